//! Block copies of shared words by SSE2, which every x86-64 has: see [`crate::arch`] for why the
//! assembly may stand for element-wise atomics.
//!
//! A run of words whose length is no multiple of the block ends in a block that overlaps the one
//! before: the same value is moved twice, which costs less than a loop over the rest. Stamps must
//! not be: see there.
#![allow(unsafe_code)]

use crate::sync::{AtomicU8, AtomicU32, Ordering, fence};
use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};

/// A move of 16 unaligned bytes. With AVX on, the VEX form avoids mixing the two encodings.
#[cfg(target_feature = "avx")]
macro_rules! move16 {
    ($operands:literal) => {
        concat!("vmovdqu ", $operands)
    };
}
#[cfg(not(target_feature = "avx"))]
macro_rules! move16 {
    ($operands:literal) => {
        concat!("movdqu ", $operands)
    };
}

#[inline(always)]
pub(super) unsafe fn store_words(to: *const AtomicU32, from: *const u32, len: usize) {
    // SAFETY: the caller's promise; atomics may be written through a shared pointer.
    unsafe { copy_words(to.cast_mut().cast(), from, len) }
}

#[inline(always)]
pub(super) unsafe fn load_words(from: *const AtomicU32, to: *mut u32, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_words(to, from.cast(), len) }
}

/// Copies `len` words, of which one side may be atomics.
///
/// # Safety
/// `from` is valid for reading and `to` for writing `len` words; other threads access them at the
/// same time only by atomics.
#[inline(always)]
unsafe fn copy_words(to: *mut u32, from: *const u32, len: usize) {
    if len >= 16 {
        let last = len - 16;
        let mut done = 0;
        while done < last {
            // SAFETY: 16 words from `done` on are inside, since `done` is below `len - 16`.
            unsafe { copy_64_bytes(to.wrapping_add(done), from.wrapping_add(done)) };
            done += 16;
        }
        // SAFETY: the last 16 words.
        unsafe { copy_64_bytes(to.wrapping_add(last), from.wrapping_add(last)) };
    } else if len >= 4 {
        let last = len - 4;
        let mut done = 0;
        while done < last {
            // SAFETY: 4 words from `done` on are inside, since `done` is below `len - 4`.
            unsafe { copy_16_bytes(to.wrapping_add(done), from.wrapping_add(done)) };
            done += 4;
        }
        // SAFETY: the last 4 words.
        unsafe { copy_16_bytes(to.wrapping_add(last), from.wrapping_add(last)) };
    } else {
        for index in 0..len {
            // SAFETY: one word inside.
            unsafe { copy_4_bytes(to.wrapping_add(index), from.wrapping_add(index)) };
        }
    }
}

/// # Safety
/// As [`copy_words`], for 16 words, which need not be aligned.
#[inline(always)]
pub(super) unsafe fn copy_64_bytes(to: *mut u32, from: *const u32) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            move16!("{a}, [{from}]"),
            move16!("{b}, [{from} + 16]"),
            move16!("{c}, [{from} + 32]"),
            move16!("{d}, [{from} + 48]"),
            move16!("[{to}], {a}"),
            move16!("[{to} + 16], {b}"),
            move16!("[{to} + 32], {c}"),
            move16!("[{to} + 48], {d}"),
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

/// # Safety
/// As [`copy_words`], for 4 words, which need not be aligned.
#[inline(always)]
pub(super) unsafe fn copy_16_bytes(to: *mut u32, from: *const u32) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            move16!("{a}, [{from}]"),
            move16!("[{to}], {a}"),
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy_words`], for 1 word.
#[inline(always)]
unsafe fn copy_4_bytes(to: *mut u32, from: *const u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "mov {a:e}, [{from}]",
            "mov [{to}], {a:e}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// The most stamps that go at once.
pub(super) const STAMPS: usize = 16;

#[inline(always)]
pub(super) unsafe fn put_stamps<const N: usize>(to: *const AtomicU8, stamp: u8) {
    const { assert!(N <= STAMPS && N.is_power_of_two(), "one move") };
    // What the caller stored before stays before: no instruction here, see the module's head.
    fence(Ordering::Release);
    if N == 16 {
        // SAFETY: the caller vouches for 16 atomics.
        return unsafe { store_16_bytes(to, splat(stamp)) };
    }
    let stamps = u64::from(stamp) * 0x0101_0101_0101_0101;
    match N {
        // SAFETY: the caller vouches for 8 atomics.
        8 => unsafe {
            asm!("mov [{to}], {stamps}", to = in(reg) to, stamps = in(reg) stamps,
                options(nostack, preserves_flags));
        },
        // SAFETY: the caller vouches for 4 atomics.
        4 => unsafe {
            asm!("mov [{to}], {stamps:e}", to = in(reg) to, stamps = in(reg) stamps,
                options(nostack, preserves_flags));
        },
        // SAFETY: the caller vouches for 2 atomics.
        2 => unsafe {
            asm!("mov [{to}], {stamps:x}", to = in(reg) to, stamps = in(reg) stamps,
                options(nostack, preserves_flags));
        },
        // SAFETY: the caller vouches for one.
        _ => unsafe { &*to }.store(stamp, Ordering::Relaxed),
    }
}

#[inline(always)]
pub(super) unsafe fn stamped(from: *const AtomicU8, len: usize, stamp: u8) -> usize {
    let stamps = splat(stamp);
    let mut done = 0;
    while done < len {
        // SAFETY: `done` is below `len`, and 32 atomics more may be read along.
        let low = unsafe { load_16_bytes(from.wrapping_add(done)) };
        // SAFETY: as above.
        let high = unsafe { load_16_bytes(from.wrapping_add(done + 16)) };
        let equal = equal_bytes(low, stamps) | equal_bytes(high, stamps) << 16;
        done += equal.trailing_ones() as usize;
        if equal != u32::MAX {
            break;
        }
    }
    // What the caller loads after stays after: no instruction here, see the module's head.
    fence(Ordering::Acquire);
    done.min(len)
}

/// How many of `N` stamps equal `stamp` before the first that does not, by one load.
///
/// # Safety
/// `from` points at `N` live atomics.
#[inline(always)]
pub(super) unsafe fn read_stamps<const N: usize>(from: *const AtomicU8, stamp: u8) -> usize {
    const { assert!(N <= 8 && N.is_power_of_two(), "one move") };
    let read: u64;
    match N {
        // SAFETY: the caller vouches for 8 atomics.
        8 => unsafe {
            asm!("mov {read}, [{from}]", from = in(reg) from, read = lateout(reg) read,
                options(nostack, readonly, preserves_flags));
        },
        // SAFETY: the caller vouches for 4 atomics.
        4 => unsafe {
            asm!("mov {read:e}, [{from}]", from = in(reg) from, read = lateout(reg) read,
                options(nostack, readonly, preserves_flags));
        },
        // SAFETY: the caller vouches for 2 atomics.
        2 => unsafe {
            asm!("movzx {read:e}, word ptr [{from}]", from = in(reg) from,
                read = lateout(reg) read, options(nostack, readonly, preserves_flags));
        },
        // SAFETY: the caller vouches for one.
        _ => read = unsafe { &*from }.load(Ordering::Relaxed).into(),
    }
    // What the caller loads after stays after: no instruction here, see the module's head.
    fence(Ordering::Acquire);
    let mask = u64::MAX >> (64 - 8 * N);
    let differ = read ^ (u64::from(stamp) * (0x0101_0101_0101_0101 & mask));
    if differ == 0 {
        return N;
    }
    // The first stamp is the lowest byte.
    differ.trailing_zeros() as usize / 8
}

/// # Safety
/// `to` points at 16 live atomics.
#[inline(always)]
unsafe fn store_16_bytes(to: *const AtomicU8, bytes: __m128i) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            move16!("[{to}], {bytes}"),
            to = in(reg) to,
            bytes = in(xmm_reg) bytes,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// `from` points at 16 live atomics.
#[inline(always)]
unsafe fn load_16_bytes(from: *const AtomicU8) -> __m128i {
    let bytes: __m128i;
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        asm!(
            move16!("{bytes}, [{from}]"),
            from = in(reg) from,
            bytes = lateout(xmm_reg) bytes,
            options(nostack, readonly, preserves_flags),
        );
    }
    bytes
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
    unsafe { _mm_movemask_epi8(equal).cast_unsigned() }
}
