//! Copies of a burst's handles by 64-byte registers; the last part under a mask.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Words in a register.
const WIDTH: usize = 16;

/// Mask of the first `len % 16` words.
#[inline]
#[target_feature(enable = "avx512f")]
fn rest(len: usize) -> __mmask16 {
    (1 << (len % WIDTH)) - 1
}

/// # Safety
/// AVX-512F; `from` is valid for reading and `to` for writing `len` words, without overlap.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy(to: *mut u32, from: *const u32, len: usize) {
    let mut done = 0;
    while done + WIDTH <= len {
        // SAFETY: 16 words from `done` on lie below `len`.
        let words = unsafe { _mm512_loadu_epi32(from.wrapping_add(done).cast()) };
        // SAFETY: likewise.
        unsafe { _mm512_storeu_epi32(to.wrapping_add(done).cast(), words) };
        done += WIDTH;
    }
    if done == len {
        // A masked store of nothing still costs as much as ten others.
        return;
    }
    let mask = rest(len);
    // SAFETY: the mask lets through the words below `len` only, and masked words do not fault.
    let words = unsafe { _mm512_maskz_loadu_epi32(mask, from.wrapping_add(done).cast()) };
    // SAFETY: likewise.
    unsafe { _mm512_mask_storeu_epi32(to.wrapping_add(done).cast(), mask, words) };
}

/// # Safety
/// As for [`copy`].
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy_and_compare(
    to: *mut u32,
    from: *const u32,
    len: usize,
    like: u32,
) -> u32 {
    let like = _mm512_set1_epi32(like.cast_signed());
    let mut differ = _mm512_setzero_si512();
    let mut done = 0;
    while done + WIDTH <= len {
        // SAFETY: 16 words from `done` on lie below `len`.
        let words = unsafe { _mm512_loadu_epi32(from.wrapping_add(done).cast()) };
        // SAFETY: likewise.
        unsafe { _mm512_storeu_epi32(to.wrapping_add(done).cast(), words) };
        differ = _mm512_or_si512(differ, _mm512_xor_si512(words, like));
        done += WIDTH;
    }
    if done == len {
        return _mm512_reduce_or_epi32(differ).cast_unsigned();
    }
    let mask = rest(len);
    // SAFETY: the mask lets through the words below `len` only, and masked words do not fault.
    let words = unsafe { _mm512_mask_loadu_epi32(like, mask, from.wrapping_add(done).cast()) };
    // SAFETY: likewise.
    unsafe { _mm512_mask_storeu_epi32(to.wrapping_add(done).cast(), mask, words) };
    differ = _mm512_or_si512(differ, _mm512_xor_si512(words, like));
    _mm512_reduce_or_epi32(differ).cast_unsigned()
}
