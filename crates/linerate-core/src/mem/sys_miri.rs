//! The same as `sys.rs` for Miri, which has no `mmap` at fixed addresses: plain heap memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::os::fd::OwnedFd;
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
pub(super) unsafe fn unmap_to_reserved(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller gives up the range.
    unsafe { at.write_bytes(0, bytes) };
    Ok(())
}

/// The reserved range is memory already: nothing is staged.
pub(super) struct Staged;

impl Staged {
    pub(super) fn anonymous(_: usize, _: usize) -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn file(_: OwnedFd, _: usize) -> io::Result<Self> {
        Err(none("files in memory"))
    }

    pub(super) fn advise_huge(&self) -> bool {
        false
    }

    pub(super) fn populate(&self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn bind_numa(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    /// As in `sys.rs`.
    pub(super) unsafe fn put_over(self, _: NonNull<u8>) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}
