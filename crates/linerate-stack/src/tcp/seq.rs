//! Sequence numbers (RFC 9293 3.4): numbers modulo 2^32, of which two can be compared while they
//! are less than 2^31 apart.
//!
//! A window is at most 2^30 bytes (RFC 7323 2.3), so all the numbers of one connection that are in
//! use at a time can be compared.
//!
//! ```
//! use linerate_stack::tcp::seq;
//! assert!(seq::lt(u32::MAX, 0));
//! assert_eq!(seq::diff(3, u32::MAX), 4);
//! ```

/// Whether `a` comes before `b`.
#[inline(always)]
pub const fn lt(a: u32, b: u32) -> bool {
    diff(a, b) < 0
}

/// Whether `a` comes before `b`, or is the same.
#[inline(always)]
pub const fn le(a: u32, b: u32) -> bool {
    diff(a, b) <= 0
}

/// Whether `a` comes after `b`.
#[inline(always)]
pub const fn gt(a: u32, b: u32) -> bool {
    diff(a, b) > 0
}

/// Whether `a` comes after `b`, or is the same.
#[inline(always)]
pub const fn ge(a: u32, b: u32) -> bool {
    diff(a, b) >= 0
}

/// The later one.
#[inline(always)]
pub const fn max(a: u32, b: u32) -> u32 {
    if gt(a, b) { a } else { b }
}

/// The earlier one.
#[inline(always)]
pub const fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}

/// How many numbers `a` is after `b`; negative where it is before it.
#[inline(always)]
pub const fn diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Whether `number` is in the range from `first` on, without `end`. Right for ranges of any length
/// below 2^32, since nothing is compared across the range's ends.
#[inline(always)]
pub const fn is_within(number: u32, first: u32, end: u32) -> bool {
    number.wrapping_sub(first) < end.wrapping_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// RFC 9293 3.4: the order is that of the numbers before they wrapped.
        #[test]
        fn rfc9293_3_4_the_order_is_that_of_the_unwrapped_numbers(
            base in any::<u64>(),
            distance in 0..1_u64 << 31,
        ) {
            let (earlier, later) = (base as u32, base.wrapping_add(distance) as u32);
            prop_assert_eq!(lt(earlier, later), distance > 0);
            prop_assert!(le(earlier, later) && ge(later, earlier));
            prop_assert_eq!(gt(later, earlier), distance > 0);
            prop_assert_eq!(u64::from(diff(later, earlier) as u32), distance);
            prop_assert_eq!(diff(earlier, later), -diff(later, earlier));
            prop_assert_eq!((min(earlier, later), max(later, earlier)), (earlier, later));
            prop_assert_eq!((min(later, earlier), max(earlier, later)), (earlier, later));
        }

        #[test]
        fn a_range_holds_what_it_counts(first: u32, len: u32, offset: u32) {
            let number = first.wrapping_add(offset);
            prop_assert_eq!(is_within(number, first, first.wrapping_add(len)), offset < len);
        }
    }

    #[test]
    fn half_of_the_numbers_away_is_before_from_both_sides() {
        assert!(lt(0, 1 << 31) && lt(1 << 31, 0));
    }
}
