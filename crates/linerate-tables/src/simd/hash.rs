//! The keyed hash of exact match for eight keys at a time, of 16 bytes or of more.
//!
//! What it computes is told, and done for one key, in `exact::hash`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64 {
    use crate::exact::bulk::{self, BLOCK};
    use crate::exact::hash::{Hash, KeyedHash};
    use std::arch::x86_64::*;

    /// The hashes of at most [`BLOCK`] keys; what follows the last key's is undefined.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    pub(crate) fn hash_avx512<const K: usize>(
        hash: &KeyedHash,
        keys: &[[u8; K]],
        hashes: &mut [Hash; BLOCK],
    ) {
        if K < 16 {
            bulk::hash_each(hash, keys, hashes);
            return;
        }
        let (eights, rest) = keys.as_chunks::<8>();
        let (into, _) = hashes.as_chunks_mut::<8>();
        for (eight, into) in eights.iter().zip(&mut *into) {
            hash8(hash, eight, into);
        }
        if let Some(into) = into.get_mut(eights.len())
            && !rest.is_empty()
        {
            let mut eight = [[0; K]; 8];
            eight[..rest.len()].copy_from_slice(rest);
            hash8(hash, &eight, into);
        }
    }

    /// The hashes of eight keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn hash8<const K: usize>(hash: &KeyedHash, keys: &[[u8; K]; 8], into: &mut [Hash; 8]) {
        let mut sum = match K {
            16 => sums_of_16_bytes(hash, crate::simd::flattened(keys)),
            _ => sums(hash, keys),
        };
        for factor in hash.mix {
            sum = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
            sum = _mm512_mullo_epi64(sum, _mm512_set1_epi64(factor as i64));
        }
        sum = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
        // SAFETY: a `Hash` is a transparent `u64`, and there are eight.
        unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), sum) };
    }

    /// The sums of products of eight keys, which are 128 bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sums_of_16_bytes(hash: &KeyedHash, keys: &[u8]) -> __m512i {
        let keys: &[u8; 128] = keys.first_chunk().expect("eight keys of 16 bytes");
        // SAFETY: the secret has 64 bytes, of which these are the first 16.
        let secret = unsafe { _mm_loadu_si128(hash.secret.as_ptr().cast()) };
        let secret = _mm512_broadcast_i32x4(secret);
        // SAFETY: the first 64 of 128 bytes.
        let first = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        // SAFETY: the other 64.
        let last = unsafe { _mm512_loadu_si512(keys[64..].as_ptr().cast()) };
        let products = |keys| {
            let sums = _mm512_add_epi32(keys, secret);
            _mm512_mul_epu32(sums, _mm512_srli_epi64::<32>(sums))
        };
        let (first, last) = (products(first), products(last));
        // Both products of keys 0, 4, 1, 5, 2, 6, 3, 7, in this order.
        let left = _mm512_unpacklo_epi64(first, last);
        let right = _mm512_unpackhi_epi64(first, last);
        let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        _mm512_permutexvar_epi64(order, _mm512_add_epi64(left, right))
    }

    /// The sums of products of eight keys of up to 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn sums<const K: usize>(hash: &KeyedHash, keys: &[[u8; K]; 8]) -> __m512i {
        // SAFETY: the secret has 64 bytes.
        let secret = unsafe { _mm512_loadu_si512(hash.secret.as_ptr().cast()) };
        let products = |key: &[u8; K]| {
            // SAFETY: the mask selects no byte beyond the key's last.
            let key = unsafe { _mm512_maskz_loadu_epi8(u64::MAX >> (64 - K), key.as_ptr().cast()) };
            let sums = _mm512_add_epi32(key, secret);
            let words = u8::MAX >> (8 - K.div_ceil(8));
            _mm512_maskz_mul_epu32(words, sums, _mm512_srli_epi64::<32>(sums))
        };
        // Halves are added to halves until a sum is one word: of two keys in each 128 bits, ...
        let pair = |at: usize| {
            let (a, b) = (products(&keys[at]), products(&keys[at + 1]));
            _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
        };
        // ... four times, then twice, ...
        let four = |at: usize| {
            let (a, b) = (pair(at), pair(at + 2));
            let low = _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b);
            _mm512_add_epi64(low, _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b))
        };
        // ... then once.
        let (a, b) = (four(0), four(4));
        let even = _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
        _mm512_add_epi64(even, _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b))
    }

    #[cfg(test)]
    #[cfg(not(linerate_threads))]
    mod tests {
        use super::*;
        use crate::exact::Seed;
        use linerate_core::env::Isa;

        /// Bursts of every length, keys of the vectors' size and of others.
        #[test]
        fn vectors_give_what_plain_integers_give() {
            if !matches!(Isa::detect(), Isa::Avx512 { .. }) {
                linerate_testkit::skip("this CPU has no AVX-512");
                return;
            }
            fn both<const K: usize>() {
                for seed in 0..50 {
                    let hash = KeyedHash::new(Seed(seed));
                    let keys: [[u8; K]; BLOCK] = std::array::from_fn(|at| {
                        let number = (at as u64 + seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        std::array::from_fn(|byte| number.rotate_left(byte as u32 * 5) as u8)
                    });
                    for count in 0..=BLOCK {
                        let mut hashes = [Hash::default(); BLOCK];
                        // SAFETY: the CPU was asked above.
                        unsafe { hash_avx512(&hash, &keys[..count], &mut hashes) };
                        for (key, got) in keys.iter().zip(hashes).take(count) {
                            assert_eq!(got, hash.of(key), "K {K} seed {seed} of {count}");
                        }
                    }
                }
            }
            both::<13>();
            both::<16>();
            both::<17>();
            both::<40>();
            both::<61>();
            both::<64>();
        }
    }
}
