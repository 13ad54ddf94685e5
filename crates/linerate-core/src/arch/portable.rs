//! Block copies of shared words, one atomic access per element: see [`crate::arch`].

use super::{AtomicU8, AtomicU32, Ordering, at};

pub(super) unsafe fn store_words(to: *const AtomicU32, from: *const u32, len: usize) {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let word = unsafe { &*to.add(index) };
        // SAFETY: the caller vouches for `len` readable words.
        word.store(unsafe { from.add(index).read() }, Ordering::Relaxed);
    }
}

pub(super) unsafe fn load_words(from: *const AtomicU32, to: *mut u32, len: usize) {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let word = unsafe { &*from.add(index) };
        // SAFETY: the caller vouches for room for `len` words.
        unsafe { to.add(index).write(word.load(Ordering::Relaxed)) };
    }
}

pub(super) unsafe fn stamp(to: *const AtomicU8, len: usize, stamp: u8) {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let byte = unsafe { &*to.add(index) };
        byte.store(stamp, at("mpmc.publish", Ordering::Release));
    }
}

pub(super) unsafe fn stamped(from: *const AtomicU8, len: usize, stamp: u8) -> usize {
    for index in 0..len {
        // SAFETY: the caller vouches for `len` atomics.
        let byte = unsafe { &*from.add(index) };
        if byte.load(Ordering::Acquire) != stamp {
            return index;
        }
    }
    len
}
