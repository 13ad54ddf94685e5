//! Block copies of shared words by SSE2, which every x86-64 has: see [`crate::arch`] for why the
//! assembly may stand for element-wise atomics.

use super::{AtomicU8, AtomicU32, Ordering, portable};
use crate::sync::fence;
use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};

/// The unaligned 16-byte move. With AVX on, the VEX form avoids mixing the two encodings.
#[cfg(target_feature = "avx")]
macro_rules! movdqu {
    () => {
        "vmovdqu"
    };
}
#[cfg(not(target_feature = "avx"))]
macro_rules! movdqu {
    () => {
        "movdqu"
    };
}

/// Copies 64 bytes.
///
/// # Safety
/// `from` is valid for reading and `to` for writing 64 bytes; whoever else touches them at the
/// same time does so by atomics of 1 or 4 bytes.
#[inline(always)]
unsafe fn copy64(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            concat!(movdqu!(), " {a}, [{from}]"),
            concat!(movdqu!(), " {b}, [{from} + 16]"),
            concat!(movdqu!(), " {c}, [{from} + 32]"),
            concat!(movdqu!(), " {d}, [{from} + 48]"),
            concat!(movdqu!(), " [{to}], {a}"),
            concat!(movdqu!(), " [{to} + 16], {b}"),
            concat!(movdqu!(), " [{to} + 32], {c}"),
            concat!(movdqu!(), " [{to} + 48], {d}"),
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 16 bytes.
///
/// # Safety
/// As [`copy64`], for 16 bytes.
#[inline(always)]
unsafe fn copy16(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            concat!(movdqu!(), " {a}, [{from}]"),
            concat!(movdqu!(), " [{to}], {a}"),
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies whole blocks of 16 words, then of 4; returns how many words that made.
///
/// # Safety
/// As [`copy64`], for `len` words.
#[inline(always)]
unsafe fn copy_blocks(to: *mut u32, from: *const u32, len: usize) -> usize {
    let mut done = 0;
    while len - done >= 16 {
        // SAFETY: at least 16 words remain on either side.
        unsafe { copy64(to.wrapping_add(done).cast(), from.wrapping_add(done).cast()) };
        done += 16;
    }
    while len - done >= 4 {
        // SAFETY: at least 4 words remain on either side.
        unsafe { copy16(to.wrapping_add(done).cast(), from.wrapping_add(done).cast()) };
        done += 4;
    }
    done
}

#[inline(always)]
pub(super) unsafe fn store_words(to: &[AtomicU32], from: *const u32) {
    // SAFETY: `to` is a slice of atomics and the caller vouches for `from`.
    let done = unsafe { copy_blocks(to.as_ptr().cast_mut().cast(), from, to.len()) };
    // SAFETY: the caller vouches for `to.len()` words from `from` on, of which `done` are gone.
    unsafe { portable::store_words(&to[done..], from.wrapping_add(done)) };
}

#[inline(always)]
pub(super) unsafe fn load_words(from: &[AtomicU32], to: *mut u32) {
    // SAFETY: `from` is a slice of atomics and the caller vouches for `to`.
    let done = unsafe { copy_blocks(to, from.as_ptr().cast(), from.len()) };
    // SAFETY: the caller vouches for `from.len()` words from `to` on, of which `done` are gone.
    unsafe { portable::load_words(&from[done..], to.wrapping_add(done)) };
}

#[inline(always)]
pub(super) fn stamp(to: &[AtomicU8], stamp: u8) {
    // What the caller stored before stays before: no instruction here, see the module's head.
    fence(Ordering::Release);
    let stamps = splat(stamp);
    let mut rest = to;
    while let Some((block, after)) = rest.split_first_chunk::<16>() {
        // SAFETY: 16 atomic bytes; SSE2 is part of x86-64.
        unsafe {
            asm!(
                concat!(movdqu!(), " [{to}], {stamps}"),
                to = in(reg) block.as_ptr(),
                stamps = in(xmm_reg) stamps,
                options(nostack, preserves_flags),
            );
        }
        rest = after;
    }
    for byte in rest {
        byte.store(stamp, Ordering::Relaxed);
    }
}

#[inline(always)]
pub(super) fn stamped(from: &[AtomicU8], most: usize, stamp: u8) -> usize {
    let stamps = splat(stamp);
    let mut done = 0;
    while done < most {
        let Some(block) = from.get(done..).and_then(|rest| rest.first_chunk::<16>()) else {
            done += portable::stamped(&from[done..], most - done, stamp);
            break;
        };
        let found: __m128i;
        // SAFETY: 16 atomic bytes; SSE2 is part of x86-64.
        unsafe {
            asm!(
                concat!(movdqu!(), " {found}, [{from}]"),
                from = in(reg) block.as_ptr(),
                found = lateout(xmm_reg) found,
                options(nostack, readonly, preserves_flags),
            );
        }
        let equal = equal_bytes(found, stamps);
        done += equal.trailing_ones() as usize;
        if equal != 0xffff {
            break;
        }
    }
    // What the caller loads after stays after: no instruction here, see the module's head.
    fence(Ordering::Acquire);
    done.min(most)
}

/// `byte` sixteen times.
#[inline(always)]
fn splat(byte: u8) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set1_epi8(byte.cast_signed()) }
}

/// One bit for each of the 16 bytes in which `a` and `b` agree, the first byte lowest.
#[inline(always)]
fn equal_bytes(a: __m128i, b: __m128i) -> u32 {
    // SAFETY: SSE2 is part of x86-64.
    let equal = unsafe { _mm_cmpeq_epi8(a, b) };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_movemask_epi8(equal) as u32 }
}
