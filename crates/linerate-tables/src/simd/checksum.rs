//! The Internet checksum's sum over a slice: [`linerate_wire::checksum::sum`] in wide registers.
//!
//! Words are added in memory order, as halves of 64-bit lanes so that no carry is lost, and the
//! bytes are swapped once at the end (RFC 1071 section 2 (B)).

use linerate_core::env::Isa;

/// The folded ones' complement sum of a slice, in host order.
pub(crate) type Sum = fn(&[u8]) -> u16;

/// The sum for this level.
pub(crate) fn pick(isa: Isa) -> Sum {
    match isa.available() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => avx512,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2,
        // The compiler makes vectors of the scalar version that every CPU of the architecture has.
        _ => linerate_wire::checksum::sum,
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2(data: &[u8]) -> u16 {
    // SAFETY: reached through `pick` alone, and so on CPUs with AVX2 alone.
    unsafe { x86::avx2(data) }
}

#[cfg(target_arch = "x86_64")]
fn avx512(data: &[u8]) -> u16 {
    // SAFETY: reached through `pick` alone, and so on CPUs with these parts of AVX-512 alone.
    linerate_wire::checksum::fold(unsafe { x86::sum_avx512(data) }).to_be()
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::sum_avx512;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use linerate_wire::checksum::{add, fold, sum};
    use std::arch::x86_64::*;

    const LOW: i64 = 0xffff_ffff;

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(data: &[u8]) -> u16 {
        let (blocks, rest) = data.as_chunks::<32>();
        let low = _mm256_set1_epi64x(LOW);
        let (mut even, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for block in blocks {
            // SAFETY: the block is 32 bytes long.
            let words = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
            even = _mm256_add_epi64(even, _mm256_and_si256(words, low));
            odd = _mm256_add_epi64(odd, _mm256_srli_epi64::<32>(words));
        }
        let lanes = _mm256_add_epi64(even, odd);
        let upper = _mm256_extracti128_si256::<1>(lanes);
        let pair = _mm_add_epi64(_mm256_castsi256_si128(lanes), upper);
        let acc = _mm_extract_epi64::<0>(pair) as u64 + _mm_extract_epi64::<1>(pair) as u64;
        add(fold(acc).to_be(), sum(rest))
    }

    /// The sum of the words of `data` in memory order, not folded.
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    pub(in crate::simd) fn sum_avx512(data: &[u8]) -> u64 {
        let (blocks, rest) = data.as_chunks::<64>();
        let low = _mm512_set1_epi64(LOW);
        let there = _bzhi_u64(u64::MAX, rest.len() as u32);
        // SAFETY: the mask lets no byte beyond the slice be touched.
        let last = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().cast()) };
        let mut even = _mm512_and_si512(last, low);
        let mut odd = _mm512_srli_epi64::<32>(last);
        for block in blocks {
            // SAFETY: the block is 64 bytes long.
            let words = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
            even = _mm512_add_epi64(even, _mm512_and_si512(words, low));
            odd = _mm512_add_epi64(odd, _mm512_srli_epi64::<32>(words));
        }
        _mm512_reduce_add_epi64(_mm512_add_epi64(even, odd)) as u64
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc_1071_example_on_every_level() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        for level in Isa::detect().levels() {
            assert_eq!(pick(level)(&data), 0xddf2, "{level}");
        }
    }

    #[test]
    fn no_carry_is_lost_in_64_kib_of_ones() {
        let data = vec![0xff; 65_536];
        for level in Isa::detect().levels() {
            assert_eq!(pick(level)(&data), 0xffff, "{level}");
        }
    }

    proptest! {
        #[test]
        fn every_level_gives_what_the_scalar_one_gives(
            data in prop::collection::vec(any::<u8>(), 0..2000),
            from in 0usize..64,
        ) {
            let data = &data[from.min(data.len())..];
            for level in Isa::detect().levels() {
                prop_assert_eq!(pick(level)(data), linerate_wire::checksum::sum(data), "{}", level);
            }
        }
    }
}
