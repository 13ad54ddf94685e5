//! Copies of a burst's handles, chosen once for the processor.
//!
//! `memcpy` makes the same choice, but a caller that also has to look at the words would read
//! them again in pieces that the wide stores do not forward.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;

/// Block copies of handles, in the widest form that the processor has: chosen once, called once
/// a burst.
#[derive(Clone, Copy)]
pub(crate) struct WordCopy {
    /// Copies `len` words to memory that no other thread accesses.
    ///
    /// # Safety
    /// `from` is valid for reading and `to` for writing `len` words; the two do not overlap.
    pub(crate) copy: unsafe fn(to: *mut u32, from: *const u32, len: usize),
    /// Copies likewise, and returns the bits in which any word differs from `like`.
    ///
    /// # Safety
    /// As for `copy`.
    pub(crate) copy_and_compare:
        unsafe fn(to: *mut u32, from: *const u32, len: usize, like: u32) -> u32,
}

impl WordCopy {
    /// The form for this processor.
    pub(crate) fn detect() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx512f") {
            return Self {
                copy: avx512::copy,
                copy_and_compare: avx512::copy_and_compare,
            };
        }
        Self {
            copy,
            copy_and_compare,
        }
    }
}

/// # Safety
/// `from` is valid for reading and `to` for writing `len` words, without overlap.
unsafe fn copy(to: *mut u32, from: *const u32, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// # Safety
/// As for [`copy`].
unsafe fn copy_and_compare(to: *mut u32, from: *const u32, len: usize, like: u32) -> u32 {
    // SAFETY: the caller's promise.
    let words = unsafe { std::slice::from_raw_parts(from, len) };
    let differ = words.iter().fold(0, |bits, &word| bits | (word ^ like));
    // SAFETY: likewise.
    unsafe { copy(to, from, len) };
    differ
}
