//! The system calls under [`Region`](super::Region), each behind one function.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

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
/// # Safety
/// Nothing may use the range any more, and it must lie in a reservation of [`reserve`].
pub(super) unsafe fn unmap_to_reserved(at: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller gives up the range; replacing it in place is what MAP_FIXED is for.
    let result = unsafe {
        rustix::mm::mmap_anonymous(
            at.as_ptr().cast(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        )
    };
    debug_assert!(
        result.is_ok(),
        "cannot return {bytes} bytes at {at:?} to the reserved range: {result:?}"
    );
}

/// Maps anonymous pages over a reserved range. `huge_shift` is the log2 of a hugetlbfs page size.
///
/// # Safety
/// The range must be reserved, unused and aligned to the page size.
pub(super) unsafe fn map_anonymous(
    at: NonNull<u8>,
    bytes: usize,
    huge_shift: Option<u32>,
) -> io::Result<()> {
    let mut flags = MapFlags::PRIVATE | MapFlags::FIXED;
    if let Some(shift) = huge_shift {
        flags |= MapFlags::HUGETLB | MapFlags::from_bits_retain(shift << libc::MAP_HUGE_SHIFT);
    }
    let rw = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller owns the reserved range, so MAP_FIXED replaces nothing that is in use.
    let result = unsafe { rustix::mm::mmap_anonymous(at.as_ptr().cast(), bytes, rw, flags) };
    restore_on_error(at, bytes, result)
}

/// Maps a memfd over a reserved range.
///
/// # Safety
/// As for [`map_anonymous`]; the file must be at least `bytes` long.
pub(super) unsafe fn map_shared(
    at: NonNull<u8>,
    bytes: usize,
    fd: BorrowedFd<'_>,
) -> io::Result<()> {
    let rw = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: as above; the fd is borrowed for the call only.
    let result = unsafe {
        rustix::mm::mmap(
            at.as_ptr().cast(),
            bytes,
            rw,
            MapFlags::SHARED | MapFlags::FIXED,
            fd,
            0,
        )
    };
    restore_on_error(at, bytes, result)
}

fn restore_on_error<T>(
    at: NonNull<u8>,
    bytes: usize,
    result: rustix::io::Result<T>,
) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => {
            // A failed MAP_FIXED may already have removed the reservation under it.
            // SAFETY: the range is the caller's and holds nothing.
            unsafe { unmap_to_reserved(at, bytes) };
            Err(error.into())
        }
    }
}

/// Asks for transparent huge pages on a mapped range; false where the kernel has none.
pub(super) fn advise_huge(at: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: MADV_HUGEPAGE changes no content.
    unsafe { rustix::mm::madvise(at.as_ptr().cast(), bytes, Advice::LinuxHugepage) }.is_ok()
}

/// Faults every page in, so that the hot path never does. An error means that memory ran out.
pub(super) fn populate(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: MADV_POPULATE_WRITE faults pages in and keeps their content.
    let result =
        unsafe { rustix::mm::madvise(at.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    match result {
        // Kernels before 5.14 do not know the advice: the first touch faults the pages in.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        other => other.map_err(Into::into),
    }
}

/// Binds a mapped range to a NUMA node, before it is populated.
pub(super) fn bind_numa(at: NonNull<u8>, bytes: usize, node: u32) -> io::Result<()> {
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
