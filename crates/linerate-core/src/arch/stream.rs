//! Copies of whole cache lines that leave nothing of the copy in this core's caches.
//!
//! An ordinary store fetches its line first, from the memory of another NUMA node where it lies
//! there, and keeps it, changed, in the cache of the writer: who reads it next fetches it from
//! there. A non-temporal store of a whole line does neither: the line goes to its memory. It waits
//! in a buffer of the core, so that the core goes on at once.
#![allow(unsafe_code)]

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;

/// Copies lines past the caches. [`stream_fence`] ends it, before anybody else is told.
///
/// # Safety
/// Both are multiples of [`LINE_BYTES`], `from` is valid for reading and `to` for writing that many
/// lines; the two do not overlap, and nobody else accesses them before the fence.
#[inline(always)]
pub(crate) unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    #[cfg(all(target_arch = "x86_64", not(tsan), not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
        const PARTS: usize = LINE_BYTES / size_of::<__m128i>();
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        for first in (0..lines).map(|line| line * PARTS) {
            let parts: [__m128i; PARTS] = std::array::from_fn(|part| {
                // SAFETY: inside of the lines, which are aligned and readable.
                unsafe { _mm_load_si128(from.wrapping_add(first + part)) }
            });
            for (part, bytes) in parts.into_iter().enumerate() {
                // SAFETY: likewise of the other ones; the caller sees to the fence.
                unsafe { _mm_stream_si128(to.wrapping_add(first + part), bytes) };
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(tsan), not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, lines * LINE_BYTES)
    };
}

/// What was copied by [`stream_lines`] comes before all that this thread stores from here on.
#[inline(always)]
pub(crate) fn stream_fence() {
    #[cfg(all(target_arch = "x86_64", not(tsan), not(miri)))]
    // SAFETY: every x86-64 has the instruction, which has no operands.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
