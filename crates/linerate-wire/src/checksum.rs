//! The Internet checksum (RFC 1071): ones' complement sums, pseudo-headers, incremental updates.
//!
//! "Sum" means the folded 16-bit ones' complement sum in host order; "checksum" is its complement,
//! as it stands in a header. Sums of parts that start at even offsets combine with [`add`].

use crate::bytes::{be16, be32};

/// Folds a wide accumulator of 16-bit (or wider, carry-preserving) words into a sum.
#[inline]
pub const fn fold(acc: u64) -> u16 {
    // A word and the same with its halves exchanged: the lower halves add up to what the upper ones
    // do, so that their carry is the end-around one of the upper half.
    let acc = (acc.wrapping_add(acc.rotate_right(32)) >> 32) as u32;
    (acc.wrapping_add(acc.rotate_right(16)) >> 16) as u16
}

/// Ones' complement sum of `data`; an odd last byte counts as the high byte of a word.
///
/// Adds 32-bit halves of words in memory order and swaps once at the end, RFC 1071 section 2 (B),
/// byte order independence. The lanes are separate so that the compiler vectorises them.
#[inline]
pub fn sum(data: &[u8]) -> u16 {
    const LOW: u64 = 0xffff_ffff;
    let (blocks, rest) = data.as_chunks::<32>();
    let mut lanes = [0u64; 4]; // 2^31 blocks, 64 GiB, before one could overflow
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let word = u64::from_ne_bytes(*word);
            *lane += (word & LOW) + (word >> 32);
        }
    }
    let mut acc: u64 = lanes.iter().sum();
    let (words, tail) = rest.as_chunks::<4>();
    for word in words {
        acc += u64::from(u32::from_ne_bytes(*word));
    }
    // Spelled out, for a copy of unknown length becomes a call to memcpy.
    acc += u64::from(u32::from_ne_bytes(match *tail {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    }));
    fold(acc).to_be()
}

/// Copies `data` to `out`, which is as long, and returns its [`sum`].
///
/// One pass: what does not fit the first-level cache is fetched once. For short data it costs what
/// a copy and a sum cost, for the sum is what takes the time.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(out: &mut [u8], data: &[u8]) -> u16 {
    const LOW: u64 = 0xffff_ffff;
    assert_eq!(out.len(), data.len(), "a copy is as long as its source");
    let (blocks, rest) = data.as_chunks::<32>();
    let (out_blocks, out_rest) = out.as_chunks_mut::<32>();
    let mut lanes = [0u64; 4]; // as in `sum`
    for (to, block) in out_blocks.iter_mut().zip(blocks) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let word = u64::from_ne_bytes(*word);
            *lane += (word & LOW) + (word >> 32);
        }
        *to = *block;
    }
    let mut acc: u64 = lanes.iter().sum();
    let (words, tail) = rest.as_chunks::<4>();
    let (out_words, out_tail) = out_rest.as_chunks_mut::<4>();
    for (to, word) in out_words.iter_mut().zip(words) {
        *to = *word;
        acc += u64::from(u32::from_ne_bytes(*word));
    }
    acc += u64::from(u32::from_ne_bytes(match (tail, out_tail) {
        (&[a], [x]) => {
            *x = a;
            [a, 0, 0, 0]
        }
        (&[a, b], [x, y]) => {
            (*x, *y) = (a, b);
            [a, b, 0, 0]
        }
        (&[a, b, c], [x, y, z]) => {
            (*x, *y, *z) = (a, b, c);
            [a, b, c, 0]
        }
        _ => [0; 4],
    }));
    fold(acc).to_be()
}

/// Adds two sums.
#[inline]
pub const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

/// The checksum of `data`: what goes into a header whose checksum field is zero in `data`.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    !sum(data)
}

/// Whether `data`, its checksum field included, sums to all ones.
#[inline]
pub fn verify(data: &[u8]) -> bool {
    sum(data) == 0xffff
}

/// Sum of the IPv4 pseudo-header (RFC 9293 3.1, RFC 768); `len` in bytes is the layer-4 header
/// and payload.
#[inline]
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, len: u16) -> u16 {
    let addresses = u64::from(u32::from_be_bytes(src)) + u64::from(u32::from_be_bytes(dst));
    fold(addresses + u64::from(protocol) + u64::from(len))
}

/// Sum of the IPv6 pseudo-header (RFC 8200 8.1); `len` in bytes is the layer-4 header and payload.
#[inline]
pub fn pseudo_v6(src: [u8; 16], dst: [u8; 16], protocol: u8, len: u32) -> u16 {
    let words = |a: &[u8; 16]| -> u64 { (0..16).step_by(4).map(|i| u64::from(be32(a, i))).sum() };
    fold(words(&src) + words(&dst) + u64::from(protocol) + u64::from(len))
}

/// The checksum after one 16-bit word changed from `old` to `new`: RFC 1624 equation 3.
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// The checksum after a 32-bit value (an IPv4 address) at an even offset changed.
#[inline]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let checksum = update16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update16(checksum, old as u16, new as u16)
}

/// The checksum after an even number of bytes at an even offset changed (an IPv6 address).
/// Bytes past the shorter slice, and an odd last byte, are ignored.
pub fn update(mut checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
        checksum = update16(checksum, be16(old, 0), be16(new, 0));
    }
    checksum
}

/// The UDP rule (RFC 768, RFC 8200 8.1): a computed zero is sent as all ones, for zero means that
/// there is no checksum.
#[inline]
pub const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 section 4.1, word by word.
    fn slow(data: &[u8]) -> u16 {
        let mut acc = 0u32;
        for pair in data.chunks(2) {
            acc += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            acc = (acc & 0xffff) + (acc >> 16);
        }
        acc as u16
    }

    #[test]
    fn rfc_1071_example() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
    }

    #[test]
    fn rfc_1071_section_3_in_any_byte_order_and_in_parts() {
        let swapped = [0x01, 0x00, 0x03, 0xf2, 0xf5, 0xf4, 0xf7, 0xf6];
        assert_eq!(sum(&swapped), 0xf2dd);
        // Broken at an odd byte, the second part is added with its bytes swapped.
        let first = sum(&[0x00, 0x01, 0xf2]);
        let second = sum(&[0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!((first, second), (0xf201, 0xf0eb));
        assert_eq!(add(first, second.swap_bytes()), 0xddf2);
    }

    #[test]
    fn rfc_1624_example_does_not_yield_minus_zero() {
        // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285 gives 0x0000 where RFC 1141 errs.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(update32(0xdd2f, 0x5555_1234, 0x3285_1234), 0x0000);
        assert_eq!(update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }

    #[test]
    fn fold_takes_the_largest_accumulators() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0), 0);
        assert_eq!(fold(0x1_0000), 1);
        assert_eq!(fold(0xffff_ffff_0000_0001), 1);
        // Only nothing adds up to 0: RFC 1071 has two zeros, and a sum stays that of its words.
        for word in [
            1,
            0xffff,
            0xffff_0000,
            0xffff_ffff,
            0xffff << 32,
            0xffff << 48,
        ] {
            assert_ne!(fold(word), 0, "{word:#x}");
        }
        for acc in (0..64).flat_map(|shift| [u64::MAX >> shift, 0x9e37_79b9_7f4a_7c15 >> shift]) {
            let rest = acc % 0xffff;
            assert_eq!(u64::from(fold(acc)) % 0xffff, rest, "{acc:#x}");
        }
    }

    proptest! {
        #[test]
        fn sum_equals_the_slow_sum(data: Vec<u8>) {
            prop_assert_eq!(sum(&data), slow(&data));
        }

        #[test]
        fn a_copy_is_the_same_bytes_and_their_sum(data: Vec<u8>) {
            let mut out = std::vec![0xee; data.len()];
            prop_assert_eq!(copy(&mut out, &data), slow(&data));
            prop_assert_eq!(out, data);
        }

        #[test]
        fn parts_at_even_offsets_add_up(data: Vec<u8>, at: usize) {
            let (a, b) = data.split_at((at % (data.len() + 1)) & !1);
            prop_assert_eq!(add(sum(a), sum(b)), sum(&data));
        }

        #[test]
        fn update_equals_recomputing(mut data in prop::collection::vec(any::<u8>(), 20),
            at in 1usize..9, new: u16) {
            data[0] = 0x45; // a header is never all zero, so the sum is never +0
            let before = checksum(&data);
            let old = be16(&data, at * 2);
            data[at * 2..at * 2 + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update16(before, old, new), checksum(&data));
            prop_assert_eq!(update(before, &old.to_be_bytes(), &new.to_be_bytes()),
                checksum(&data));
        }

        #[test]
        fn pseudo_headers_equal_their_bytes(src: [u8; 16], dst: [u8; 16], protocol: u8, len: u16) {
            let tail = [0, protocol, (len >> 8) as u8, len as u8];
            let v6 = [&src[..], &dst, &[0, 0], &tail[2..], &[0, 0, 0, protocol]].concat();
            prop_assert_eq!(pseudo_v6(src, dst, protocol, len.into()), slow(&v6));
            let (s, d) = ([src[0], src[1], src[2], src[3]], [dst[0], dst[1], dst[2], dst[3]]);
            prop_assert_eq!(pseudo_v4(s, d, protocol, len), slow(&[&s[..], &d, &tail].concat()));
        }
    }
}
