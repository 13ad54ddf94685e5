//! Locks on ranges of a file that belong to the open file (`F_OFD_SETLK`): who holds one is alive,
//! for the kernel takes it back when the last descriptor of that open file is gone.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks the range for this open file; false where another one has it.
///
/// # Errors
/// The kernel's; a file system without locks answers with one.
pub(super) fn lock(file: BorrowedFd<'_>, range: &Range<usize>) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, libc::F_WRLCK, range) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Takes the lock back at once, and not only when the last descriptor is gone.
///
/// # Errors
/// The kernel's.
pub(super) fn unlock(file: BorrowedFd<'_>, range: &Range<usize>) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, libc::F_UNLCK, range).map(drop)
}

/// Whether another open file has locked the range or a part of it.
///
/// # Errors
/// The kernel's.
pub(super) fn is_locked(file: BorrowedFd<'_>, range: &Range<usize>) -> io::Result<bool> {
    let found = call(file, libc::F_OFD_GETLK, libc::F_WRLCK, range)?;
    Ok(found.l_type != libc::F_UNLCK as libc::c_short)
}

fn call(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    kind: libc::c_int,
    range: &Range<usize>,
) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start as libc::off_t,
        l_len: range.len() as libc::off_t,
        l_pid: 0, // as these commands demand
    };
    // SAFETY: the descriptor is open, and the third argument is a `flock` that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
