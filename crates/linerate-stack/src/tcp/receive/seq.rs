//! Comparison of sequence numbers, modulo 2^32 (RFC 9293 3.4).

/// How far `a` lies behind `b`; negative before it.
#[inline(always)]
pub(super) const fn diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Whether `a` comes before `b`.
#[inline(always)]
pub(super) const fn lt(a: u32, b: u32) -> bool {
    diff(a, b) < 0
}

/// Whether `a` comes before `b` or is `b`.
#[inline(always)]
pub(super) const fn le(a: u32, b: u32) -> bool {
    diff(a, b) <= 0
}

/// The first of the two.
#[inline(always)]
pub(super) const fn min(a: u32, b: u32) -> u32 {
    if lt(b, a) { b } else { a }
}
