//! Block copies of shared words, one atomic access per element: see [`crate::arch`].

use super::{AtomicU8, AtomicU32, Ordering, at};

#[inline(always)]
pub(super) unsafe fn store_words(to: &[AtomicU32], from: *const u32) {
    for (index, word) in to.iter().enumerate() {
        // SAFETY: `index` is below `to.len()`, for which the caller vouches.
        let source = unsafe { from.add(index) };
        // SAFETY: as above; `u32` has no invalid values and the caller's memory is initialised.
        word.store(unsafe { source.read() }, Ordering::Relaxed);
    }
}

#[inline(always)]
pub(super) unsafe fn load_words(from: &[AtomicU32], to: *mut u32) {
    for (index, word) in from.iter().enumerate() {
        // SAFETY: `index` is below `from.len()`, for which the caller vouches.
        let target = unsafe { to.add(index) };
        // SAFETY: as above.
        unsafe { target.write(word.load(Ordering::Relaxed)) };
    }
}

#[inline(always)]
pub(super) fn stamp(to: &[AtomicU8], stamp: u8) {
    for byte in to {
        byte.store(stamp, at("mpmc.publish", Ordering::Release));
    }
}

#[inline(always)]
pub(super) fn stamped(from: &[AtomicU8], most: usize, stamp: u8) -> usize {
    from[..most]
        .iter()
        .position(|byte| byte.load(Ordering::Acquire) != stamp)
        .unwrap_or(most)
}
