//! The keyed hash of exact match for eight 16-byte keys at a time.
//!
//! What it computes is told, and done for one key, in `exact::hash`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64 {
    use crate::exact::bulk::{self, BLOCK};
    use crate::exact::hash::{Hash, KeyedHash};
    use std::arch::x86_64::*;

    /// The hashes of at most [`BLOCK`] keys; what follows the last key's is undefined.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(crate) fn hash_avx512<const K: usize>(
        hash: &KeyedHash,
        keys: &[[u8; K]],
        hashes: &mut [Hash; BLOCK],
    ) {
        if K != 16 {
            bulk::hash_each(hash, keys, hashes);
            return;
        }
        let (eights, rest) = keys.as_chunks::<8>();
        let (into, _) = hashes.as_chunks_mut::<8>();
        for (eight, into) in eights.iter().zip(&mut *into) {
            hash8(hash, eight.as_flattened(), into);
        }
        if let Some(into) = into.get_mut(eights.len())
            && !rest.is_empty()
        {
            let mut eight = [[0; K]; 8];
            eight[..rest.len()].copy_from_slice(rest);
            hash8(hash, eight.as_flattened(), into);
        }
    }

    /// The hashes of eight keys, which are 128 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn hash8(hash: &KeyedHash, keys: &[u8], into: &mut [Hash; 8]) {
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
        let mut sum = _mm512_add_epi64(left, right);
        for factor in hash.mix {
            sum = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
            sum = _mm512_mullo_epi64(sum, _mm512_set1_epi64(factor as i64));
        }
        sum = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
        let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        let sum = _mm512_permutexvar_epi64(order, sum);
        // SAFETY: a `Hash` is a transparent `u64`, and there are eight.
        unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), sum) };
    }

    #[cfg(test)]
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
            both::<16>();
            both::<13>();
            both::<40>();
        }
    }
}
