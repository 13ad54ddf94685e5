//! Vector kernels: the only place in this crate where unsafe code may be.
//!
//! A kernel is a function for one level of [`Isa`](linerate_core::env::Isa), reached through a safe
//! `fn` pointer or a `Kernel` that a table picks once (`pick(isa)`, which asks `Isa::available`
//! first), and called once per burst. Slices come in, lengths are checked before the first vector
//! load, and every level gives what the baseline gives: the tests run each level that the CPU has
//! (`Isa::detect().levels()`).
#![allow(unsafe_code)]

pub(crate) mod acl;
pub(crate) mod checksum;
pub(crate) mod crc32c;
pub(crate) mod exact;
pub(crate) mod hash;
pub(crate) mod lpm4;
pub(crate) mod lpm4_flat;
pub(crate) mod lpm6;
pub(crate) mod parse;
pub(crate) mod rewrite;
pub(crate) mod rss;

/// The bytes of lines, one after the other: `as_flattened`, which is a call where a crate is
/// compiled in several units.
#[inline(always)]
pub(crate) fn flattened<const N: usize>(lines: &[[u8; N]]) -> &[u8] {
    // SAFETY: an array of bytes is these bytes and nothing else.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * N) }
}
