//! Block copies of shared words, one atomic access per element: see [`crate::arch`].
#![allow(unsafe_code)]

use crate::sync::{AtomicU8, AtomicU32, Ordering, at};

pub(super) unsafe fn store_words(to: *const AtomicU32, from: *const u32, len: usize) {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let word = unsafe { &*to.wrapping_add(index) };
        // SAFETY: the caller vouches for `len` readable words.
        word.store(
            unsafe { from.wrapping_add(index).read() },
            Ordering::Relaxed,
        );
    }
}

pub(super) unsafe fn load_words(from: *const AtomicU32, to: *mut u32, len: usize) {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let word = unsafe { &*from.wrapping_add(index) };
        // SAFETY: the caller vouches for room for `len` words.
        unsafe { to.wrapping_add(index).write(word.load(Ordering::Relaxed)) };
    }
}

/// The most stamps that go at once: here none do, but the run is cut as it is elsewhere. Models of
/// rings of four slots have to meet a second block.
#[allow(
    dead_code,
    reason = "in tests beside a processor's own copies, theirs counts"
)]
pub(super) const STAMPS: usize = if cfg!(loom) { 2 } else { 16 };

pub(super) unsafe fn put_stamps<const N: usize>(to: *const AtomicU8, stamp: u8) {
    for index in 0..N {
        // SAFETY: the caller vouches for `N` atomics.
        let byte = unsafe { &*to.wrapping_add(index) };
        byte.store(stamp, at("mpmc.publish", Ordering::Release));
    }
}

pub(super) unsafe fn stamped(from: *const AtomicU8, len: usize, stamp: u8) -> usize {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let byte = unsafe { &*from.wrapping_add(index) };
        if byte.load(Ordering::Acquire) != stamp {
            return index;
        }
    }
    len
}

#[allow(
    dead_code,
    reason = "in tests beside a processor's own copies, theirs counts"
)]
pub(super) unsafe fn read_stamps<const N: usize>(from: *const AtomicU8, stamp: u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe { stamped(from, N, stamp) }
}
