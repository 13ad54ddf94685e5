//! The system calls under [`Region`](super::Region), each behind one function.
//!
//! **No part of a reserved range is ever without a mapping**, or another thread's `mmap` could come
//! to lie in it. `mmap` with `MAP_FIXED` takes away what was there before it knows whether there
//! are pages. So pages are had and populated at an address of the kernel's choice ([`Staged`]), and
//! then put over the reserved range by one call, under the lock of the process's address space,
//! which needs no page of data any more. Should that call fail all the same (the kernel has no
//! memory for its own tables), nobody knows what it left: such a range is never used again.
#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Reserves `bytes` of address space without memory behind it.
pub(super) fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

/// Takes the memory behind `[at, at + bytes)` away again, keeping the addresses reserved.
///
/// # Errors
/// If the kernel has no memory for its own tables. The range may be without a mapping then.
///
/// # Safety
/// Nothing may use the range any more, and it must lie in a reservation of [`reserve`].
pub(super) unsafe fn unmap_to_reserved(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller gives up the range; replacing it in place is what MAP_FIXED is for. The
    // new mapping needs no pages.
    unsafe {
        rustix::mm::mmap_anonymous(
            at.as_ptr().cast(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        )
    }?;
    Ok(())
}

/// Memory outside the reserved range, on its way there; unmapped on drop.
pub(super) struct Staged {
    at: NonNull<u8>,
    bytes: usize,
    file: Option<OwnedFd>,
}

impl Staged {
    /// Anonymous memory whose start is a multiple of `align`, a power of two of pages.
    pub(super) fn anonymous(bytes: usize, align: usize) -> io::Result<Self> {
        let all = bytes.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            let flags = MapFlags::PRIVATE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, READ_WRITE, flags)
        }?;
        let before = start.cast::<u8>().align_offset(align);
        let at = start.wrapping_byte_add(before);
        // What lies before and behind goes back. Where it cannot, it only takes up addresses.
        for (spare, len) in [
            (start, before),
            (at.wrapping_byte_add(bytes), align.saturating_sub(before)),
        ] {
            if len > 0 {
                // SAFETY: a part of the new mapping that nobody knows.
                let _ = unsafe { rustix::mm::munmap(spare, len) };
            }
        }
        Self::new(at, bytes, None)
    }

    /// The first `bytes` of a file in memory, which has at least that many.
    pub(super) fn file(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe {
            let flags = MapFlags::SHARED;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, READ_WRITE, flags, &file, 0)
        }?;
        Self::new(at, bytes, Some(file))
    }

    fn new(at: *mut c_void, bytes: usize, file: Option<OwnedFd>) -> io::Result<Self> {
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Self { at, bytes, file })
    }

    /// Asks for transparent huge pages; false where the kernel has none.
    pub(super) fn advise_huge(&self) -> bool {
        let at = self.at.as_ptr().cast();
        // SAFETY: MADV_HUGEPAGE changes no content.
        unsafe { rustix::mm::madvise(at, self.bytes, Advice::LinuxHugepage) }.is_ok()
    }

    /// Faults every page in, so that the hot path never does. An error means that memory ran out.
    pub(super) fn populate(&self) -> io::Result<()> {
        populate(self.at, self.bytes)
    }

    /// Binds the memory to a NUMA node, before it is populated.
    pub(super) fn bind_numa(&self, node: u32) -> io::Result<()> {
        bind_numa(self.at, self.bytes, node)
    }

    /// Puts the memory where `to` is, and gives back its file.
    ///
    /// # Errors
    /// If the kernel has no memory for its own tables. The range may be without a mapping then.
    ///
    /// # Safety
    /// The `bytes` from `to` on must be reserved, unused and aligned to the page size.
    pub(super) unsafe fn put_over(mut self, to: NonNull<u8>) -> io::Result<Option<OwnedFd>> {
        let at = to.as_ptr().cast();
        let Some(file) = self.file.take() else {
            let (from, flags) = (self.at.as_ptr().cast(), MremapFlags::MAYMOVE);
            // SAFETY: both ranges are ours, and nobody knows an address in either.
            unsafe { rustix::mm::mremap_fixed(from, self.bytes, self.bytes, flags, at) }?;
            // The memory is there now, and nothing is here.
            std::mem::forget(self);
            return Ok(None);
        };
        // Not moved, which huge pages can be since Linux 5.16 only: the file holds its pages.
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the caller owns the reserved range, so nothing is replaced that is in use.
        unsafe { rustix::mm::mmap(at, self.bytes, READ_WRITE, flags, &file, 0) }?;
        if let Err(error) = populate(to, self.bytes) {
            // SAFETY: mapped a moment ago, and nobody has seen it.
            unsafe { unmap_to_reserved(to, self.bytes) }?;
            return Err(error);
        }
        Ok(Some(file))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody knows it.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of {:?}: {unmapped:?}", self.at);
    }
}

fn populate(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: MADV_POPULATE_WRITE faults pages in and keeps their content.
    let result =
        unsafe { rustix::mm::madvise(at.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    match result {
        // Kernels before 5.14 do not know the advice: the first touch faults the pages in.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        other => other.map_err(Into::into),
    }
}

fn bind_numa(at: NonNull<u8>, bytes: usize, node: u32) -> io::Result<()> {
    let mut mask = [0_u64; 16];
    let word = node as usize / 64;
    let Some(slot) = mask.get_mut(word) else {
        return Err(io::Error::other(format!("NUMA node {node} is beyond 1023")));
    };
    *slot = 1 << (node % 64);
    // SAFETY: mbind reads the mask (1024 bits) and changes only the policy of the range.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            at.as_ptr(),
            bytes,
            libc::MPOL_BIND,
            mask.as_ptr(),
            1025_usize,
            0_usize,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
