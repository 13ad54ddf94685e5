//! The same as `sys.rs` for Miri, which has no `mmap` at fixed addresses: plain heap memory.

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

fn none(what: &str) -> io::Error {
    io::Error::other(format!("{what}: not under Miri"))
}

pub(super) fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, 64).map_err(io::Error::other)?;
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| none("allocation failed"))
}

/// # Safety
/// Nothing may use the range any more.
pub(super) unsafe fn unmap_to_reserved(at: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller gives up the range.
    unsafe { at.write_bytes(0, bytes) };
}

/// # Safety
/// As in `sys.rs`.
pub(super) unsafe fn map_anonymous(
    _: NonNull<u8>,
    _: usize,
    huge_shift: Option<u32>,
) -> io::Result<()> {
    huge_shift.map_or(Ok(()), |_| Err(none("huge pages")))
}

/// # Safety
/// As in `sys.rs`.
pub(super) unsafe fn map_shared(_: NonNull<u8>, _: usize, _: BorrowedFd<'_>) -> io::Result<()> {
    Err(none("shared memory"))
}

pub(super) fn advise_huge(_: NonNull<u8>, _: usize) -> bool {
    false
}

pub(super) fn populate(_: NonNull<u8>, _: usize) -> io::Result<()> {
    Ok(())
}

pub(super) fn bind_numa(_: NonNull<u8>, _: usize, _: u32) -> io::Result<()> {
    Ok(())
}
