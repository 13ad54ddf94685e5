//! The one address range of the process, so that 32 bits name any packet in it (ADR 1).
//!
//! The range is reserved without memory the first time a region is asked for, and never given
//! back. Its base is the only static of the kit: written once, before the first handle exists.

use super::sys;
use crate::MemError;
use std::ops::Range;
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
    /// Free extents as offsets, sorted, never touching each other.
    free: Mutex<Vec<Range<usize>>>,
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
            match sys::reserve(bytes.saturating_add(GIB)) {
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
            free: Mutex::new(std::iter::once(GRAIN_BYTES..bytes).collect()),
        })
    }

    /// Takes `bytes` (rounded up to 2 MiB) aligned to `align`, first fit.
    pub(crate) fn take(&self, bytes: usize, align: usize) -> Result<Extent, MemError> {
        let full = || self.full(bytes);
        let bytes = bytes.checked_next_multiple_of(GRAIN_BYTES);
        let bytes = bytes.ok_or_else(full)?;
        let align = align.max(GRAIN_BYTES);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().enumerate().find_map(|(index, room)| {
            let start = room.start.checked_next_multiple_of(align)?;
            let end = start.checked_add(bytes)?;
            (end <= room.end).then_some((index, start..end))
        });
        let (index, taken) = found.ok_or_else(full)?;
        let room = free.remove(index);
        let left = [room.start..taken.start, taken.end..room.end];
        free.splice(
            index..index,
            left.into_iter().filter(|part| !part.is_empty()),
        );
        Ok(Extent(taken))
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
        let at = free.partition_point(|room| room.start < extent.offset());
        free.insert(at, extent.0.clone());
        free.dedup_by(|next, room| {
            let touch = room.end == next.start;
            if touch {
                room.end = next.end;
            }
            touch
        });
    }

    /// Address of an extent of this space.
    pub(crate) fn address(&self, extent: &Extent) -> NonNull<u8> {
        let at = base().wrapping_add(extent.offset());
        debug_assert_eq!(self.base.wrapping_add(extent.offset()), at.addr());
        NonNull::new(at).expect("extents start at least one grain above the base")
    }
}

/// A part of the reserved range, in bytes from its base.
#[derive(Debug)]
pub(crate) struct Extent(Range<usize>);

impl Extent {
    /// Where it begins.
    pub(crate) fn offset(&self) -> usize {
        self.0.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_do_not_overlap_and_join_again() {
        let space = Space::get().unwrap();
        let a = space.take(3 << 20, GRAIN_BYTES).unwrap();
        let b = space.take(1, GIB).unwrap();
        assert_eq!(a.0.len(), 4 << 20);
        assert_eq!(b.offset() % GIB, 0);
        assert!(a.0.end <= b.0.start || b.0.end <= a.0.start);
        space.give(&b);
        space.give(&a);
        let free = space.free.lock().unwrap();
        assert!(
            free.windows(2).all(|pair| pair[0].end < pair[1].start),
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
