//! The one address range of the process, so that 32 bits name any packet in it (ADR 1).
//!
//! The range is reserved without memory the first time a region is asked for, and never given
//! back. Its base is the only static of the kit: written once, before the first handle exists.

use super::sys;
use crate::MemError;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Granularity of everything that is handed out: one 2 MiB page.
pub(crate) const GRAIN_BYTES: usize = 2 << 20;
/// A 32-bit handle counts cache lines: 2^32 x 64 bytes.
const MAX_BYTES: usize = if cfg!(miri) { 64 << 20 } else { 256 << 30 };
const MIN_BYTES: usize = if cfg!(miri) { MAX_BYTES } else { 1 << 30 };
/// Alignment of the base, for 1 GiB pages.
const GIB: usize = if cfg!(miri) { GRAIN_BYTES } else { 1 << 30 };

static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static SPACE: OnceLock<Result<Space, i32>> = OnceLock::new();

/// Start of the range. Null until the first region exists.
#[inline(always)]
pub(crate) fn base() -> *mut u8 {
    // Relaxed is enough: whoever holds a handle got it, by some synchronising way, from the
    // thread that made the pool, which saw the base.
    BASE.load(Ordering::Relaxed)
}

/// Hands out parts of the reserved range.
pub(crate) struct Space {
    base: usize,
    bytes: usize,
    /// Free extents as (offset, bytes), sorted by offset, never touching each other.
    free: Mutex<Vec<(usize, usize)>>,
}

impl Space {
    /// The process's space, reserved on first use.
    pub(crate) fn get() -> Result<&'static Self, MemError> {
        let space = SPACE
            .get_or_init(|| Self::reserve().map_err(|e| e.raw_os_error().unwrap_or(libc::ENOMEM)));
        space.as_ref().map_err(|&errno| MemError::Reserve {
            source: std::io::Error::from_raw_os_error(errno),
        })
    }

    fn reserve() -> std::io::Result<Self> {
        let mut bytes = MAX_BYTES;
        let at = loop {
            // One GiB more than used, so that the base can be aligned for 1 GiB pages.
            match sys::reserve(bytes + GIB) {
                Ok(at) => break at,
                Err(error) if bytes <= MIN_BYTES => return Err(error),
                Err(_) => bytes /= 2,
            }
        };
        let skip = at.as_ptr().align_offset(GIB);
        let base = at.as_ptr().wrapping_add(skip);
        BASE.store(base, Ordering::Release);
        // The first grain stays unused: no handle is 0, and none is below a page of slack.
        Ok(Self {
            base: base.addr(),
            bytes,
            free: Mutex::new(vec![(GRAIN_BYTES, bytes - GRAIN_BYTES)]),
        })
    }

    /// Takes `bytes` (rounded up to 2 MiB) aligned to `align`, first fit.
    pub(crate) fn take(&self, bytes: usize, align: usize) -> Result<Extent, MemError> {
        let full = || self.full(bytes);
        let bytes = bytes.checked_next_multiple_of(GRAIN_BYTES);
        let bytes = bytes.ok_or_else(full)?;
        let align = align.max(GRAIN_BYTES);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().enumerate().find_map(|(index, &(offset, len))| {
            let start = offset.checked_next_multiple_of(align)?;
            (start.checked_add(bytes)? <= offset + len).then_some((index, start))
        });
        let (index, start) = found.ok_or_else(full)?;
        let (offset, len) = free.remove(index);
        if start + bytes < offset + len {
            free.insert(index, (start + bytes, offset + len - start - bytes));
        }
        if offset < start {
            free.insert(index, (offset, start - offset));
        }
        Ok(Extent {
            offset: start,
            bytes,
        })
    }

    /// There is no room for `bytes`.
    pub(crate) fn full(&self, bytes: usize) -> MemError {
        MemError::RangeFull {
            bytes,
            range_bytes: self.bytes,
        }
    }

    /// Gives an extent back. Its pages must be gone, and its addresses reserved: what is not known
    /// to be reserved is never given back, so that nobody else's memory is ever mapped over.
    pub(crate) fn give(&self, extent: &Extent) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.partition_point(|&(offset, _)| offset < extent.offset);
        free.insert(at, (extent.offset, extent.bytes));
        // Join with the right neighbour first, so that `at` stays valid for the left one.
        if at + 1 < free.len() && free[at].0 + free[at].1 == free[at + 1].0 {
            free[at].1 += free[at + 1].1;
            free.remove(at + 1);
        }
        if at > 0 && free[at - 1].0 + free[at - 1].1 == free[at].0 {
            free[at - 1].1 += free[at].1;
            free.remove(at);
        }
    }

    /// Address of an extent of this space.
    pub(crate) fn address(&self, extent: &Extent) -> NonNull<u8> {
        let at = base().wrapping_add(extent.offset);
        debug_assert_eq!(self.base + extent.offset, at.addr());
        NonNull::new(at).expect("extents start at least one grain above the base")
    }
}

/// A part of the reserved range, in bytes from its base.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_do_not_overlap_and_join_again() {
        let space = Space::get().unwrap();
        let a = space.take(3 << 20, GRAIN_BYTES).unwrap();
        let b = space.take(1, GIB).unwrap();
        assert_eq!(a.bytes, 4 << 20);
        assert_eq!(b.offset % GIB, 0);
        assert!(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
        space.give(&b);
        space.give(&a);
        let free = space.free.lock().unwrap();
        assert!(
            free.windows(2)
                .all(|pair| pair[0].0 + pair[0].1 < pair[1].0),
            "sorted, joined: {free:?}"
        );
    }

    #[test]
    fn a_range_too_large_is_refused_with_its_size() {
        let error = Space::get()
            .unwrap()
            .take(300 << 30, GRAIN_BYTES)
            .unwrap_err();
        assert!(
            error.to_string().contains("reserved address range"),
            "{error}"
        );
    }
}
