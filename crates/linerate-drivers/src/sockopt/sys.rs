//! `getsockopt`, `setsockopt` and `SIOCOUTQ`, each behind one function. [`super`] says which
//! options are safe for any value.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SIOCOUTQ` (`linux/sockios.h`), which is `TIOCOUTQ`.
const SIOCOUTQ: libc::Ioctl = libc::TIOCOUTQ;

pub(super) fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let (socket, len) = (socket.as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes, which `value` has for the time of the call. The
    // option's value has no addresses (`is_plain`).
    let rc = unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), len) };
    check(rc)
}

pub(super) fn get(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `value` has, and reads no address there
    // (`is_plain`).
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut len,
        )
    };
    check(rc)?;
    Ok((len as usize).min(value.len()))
}

pub(super) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ writes one int, borrowed for the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQ, &mut bytes) };
    check(rc)?;
    Ok(bytes)
}

fn check(rc: libc::c_int) -> io::Result<()> {
    match rc {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
