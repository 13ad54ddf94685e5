//! Toeplitz over a burst of tuples: bit matrices (GFNI on AVX-512), carry-less products, or tables.
//!
//! [`Parts`] is one key, made ready for every level; [`Kernel`] is the level, picked once. Both
//! belong to [`Toeplitz`](crate::rss::Toeplitz).
//!
//! A hash is a sum (XOR) over the tuple's bits of 32-bit windows of the key. Three ways to add up:
//!
//! - *Tables* (baseline): for each byte of the tuple, the sum for each of its 256 values.
//! - *Carry-less products* (AVX2): with 32 bits of the tuple as a polynomial, first bit highest,
//!   and 64 bits of the key mirrored, the coefficients 31 to 62 of the product are the hash,
//!   mirrored.
//! - *Bit matrices* (GFNI): byte `i` of the tuple adds to byte `j` of the hash by an 8 x 8 matrix
//!   that depends on `i + j` only. A vector holds four neighbouring bytes of 16 tuples, and one
//!   instruction multiplies all of them by matrix `k`: the byte at `k - j` lands in byte `j`, where
//!   it belongs. The windows slide by a byte with each matrix; nothing is ever summed across a
//!   vector.
//!
//! Nanoseconds for a tuple of 12 and of 36 bytes, in bursts of 32 on an EPYC of 2022 (Zen 4):
//! tables 2.9 and 8.8, carry-less products 1.8 and 5.0, bit matrices 0.5 and 1.7, of which
//! `rte_thash_gfni_bulk` takes two to three times as many.

use crate::rss::AffineHash;
use linerate_core::env::Isa;

/// Tuples that the GFNI kernel takes at once.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 16;

/// Places where a window of four bytes overlaps the longest tuple; no key is shorter than this and
/// one byte.
#[cfg(target_arch = "x86_64")]
const PLACES: usize = 39;

/// A key, made ready.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The tables, and what is added to every hash.
    pub(crate) affine: AffineHash,
    #[cfg(target_arch = "x86_64")]
    /// `matrices[k]`: from byte `i` of the tuple to byte `k - i` of the hash.
    matrices: Vec<u64>,
    #[cfg(target_arch = "x86_64")]
    /// `mirrored[m]`: 64 bits of the key from byte `4m` on, first bit lowest.
    mirrored: Vec<u64>,
}

impl Parts {
    /// `affine` must be the Toeplitz hash by `key` of tuples four bytes shorter.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn new(key: &[u8], affine: AffineHash) -> Self {
        let matrix = |pair: &[u8]| {
            let bits = u16::from_be_bytes([pair[0], pair[1]]);
            u64::from_le_bytes(std::array::from_fn(|row| ((bits << row) >> 8) as u8))
        };
        let mirror = |window: &[u8]| {
            let bytes = window.try_into().expect("windows of 8 bytes");
            u64::from_be_bytes(bytes).reverse_bits()
        };
        Self {
            affine,
            matrices: key.windows(2).map(matrix).collect(),
            mirrored: key.windows(8).step_by(4).map(mirror).collect(),
        }
    }

    /// Other processors have the tables only.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn new(_: &[u8], affine: AffineHash) -> Self {
        Self { affine }
    }
}

/// A level that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Tables,
    #[cfg(target_arch = "x86_64")]
    Products,
    #[cfg(target_arch = "x86_64")]
    Matrices,
}

impl Kernel {
    /// The best kernel up to `isa`, and never one that the CPU lacks.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn pick(isa: Isa) -> Self {
        let v4 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("gfni");
        let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq");
        Self(match isa {
            Isa::Avx512 { gfni: true, .. } if v4 => Level::Matrices,
            isa if isa > Isa::Baseline && v3 => Level::Products,
            _ => Level::Tables,
        })
    }

    /// The only one there is.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn pick(_: Isa) -> Self {
        Self(Level::Tables)
    }

    /// What it is made of, for reports.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Level::Tables => "tables",
            #[cfg(target_arch = "x86_64")]
            Level::Products => "pclmulqdq",
            #[cfg(target_arch = "x86_64")]
            Level::Matrices => "avx512+gfni",
        }
    }

    /// Hashes the first `4 * WORDS` bytes of each row. The key must be at least four bytes longer.
    pub(crate) fn bulk<const STRIDE: usize, const WORDS: usize>(
        self,
        parts: &Parts,
        rows: &[[u8; STRIDE]],
        out: &mut [u32],
    ) {
        const { assert!(WORDS * 4 <= STRIDE && WORDS <= 9) };
        assert_eq!(rows.len(), out.len(), "one hash for each tuple");
        match self.0 {
            Level::Tables => tables::<STRIDE, WORDS>(parts, rows, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `pick` saw the features that the kernel is compiled for.
            Level::Products => unsafe { x86::products::<STRIDE, WORDS>(parts, rows, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `pick` saw the features that the kernel is compiled for.
            Level::Matrices => unsafe { x86::matrices::<STRIDE, WORDS>(parts, rows, out) },
        }
    }
}

/// The bytes of flow keys as rows.
pub(crate) fn rows<K: Row<N>, const N: usize>(keys: &[K]) -> &[[u8; N]] {
    // SAFETY: implementors of `Row` guarantee that a key is N bytes and nothing else.
    unsafe { std::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
}

/// A type that is `N` bytes and nothing else.
///
/// # Safety
/// The type is `repr(transparent)` over `[u8; N]`.
pub(crate) unsafe trait Row<const N: usize> {}

// SAFETY: declared `repr(transparent)` over `[u8; 16]`.
unsafe impl Row<16> for linerate_wire::flow::FlowKey4 {}
// SAFETY: declared `repr(transparent)` over `[u8; 40]`.
unsafe impl Row<40> for linerate_wire::flow::FlowKey6 {}

fn tables<const STRIDE: usize, const WORDS: usize>(
    parts: &Parts,
    rows: &[[u8; STRIDE]],
    out: &mut [u32],
) {
    for (row, hash) in rows.iter().zip(out) {
        *hash = parts.affine.hash(&row[..4 * WORDS]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, PLACES, Parts};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn products<const STRIDE: usize, const WORDS: usize>(
        parts: &Parts,
        rows: &[[u8; STRIDE]],
        out: &mut [u32],
    ) {
        let keys = &parts.mirrored[..WORDS];
        // Two words with their bytes turned, each in a half of its own.
        let turn = _mm_set_epi64x(
            0x8080_8080_0405_0607_u64 as i64,
            0x8080_8080_0001_0203_u64 as i64,
        );
        for (row, hash) in rows.iter().zip(&mut *out) {
            let mut sum = _mm_setzero_si128();
            let (pairs, last) = row[..4 * WORDS].as_chunks::<8>();
            let (key_pairs, last_key) = keys.as_chunks::<2>();
            for (pair, key) in pairs.iter().zip(key_pairs) {
                let words = _mm_shuffle_epi8(_mm_cvtsi64_si128(i64::from_le_bytes(*pair)), turn);
                let key = _mm_set_epi64x(key[1] as i64, key[0] as i64);
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x00>(words, key));
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x11>(words, key));
            }
            if let (&[a, b, c, d], &[key]) = (last, last_key) {
                let word = _mm_cvtsi32_si128(i32::from_be_bytes([a, b, c, d]));
                let key = _mm_cvtsi64_si128(key as i64);
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x00>(word, key));
            }
            *hash = (_mm_cvtsi128_si64(sum) as u64 >> 31) as u32;
        }
        let constant = parts.affine.constant();
        for hash in out {
            *hash = hash.reverse_bits() ^ constant;
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,gfni")]
    pub(super) fn matrices<const STRIDE: usize, const WORDS: usize>(
        parts: &Parts,
        rows: &[[u8; STRIDE]],
        out: &mut [u32],
    ) {
        let keys = parts.matrices.first_chunk();
        let keys = keys.expect("a key has 40 bytes or more");
        let constant = parts.affine.constant();
        let (blocks, rest) = rows.as_chunks::<BLOCK>();
        let (hashes, rest_hashes) = out.as_chunks_mut::<BLOCK>();
        for (block, hashes) in blocks.iter().zip(hashes) {
            store(hashes, sixteen::<STRIDE, WORDS>(keys, block, constant));
        }
        if !rest.is_empty() {
            let mut block = [[0; STRIDE]; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            let mut hashes = [0; BLOCK];
            store(
                &mut hashes,
                sixteen::<STRIDE, WORDS>(keys, &block, constant),
            );
            rest_hashes.copy_from_slice(&hashes[..rest.len()]);
        }
    }

    /// The hashes of one block. `keys` has one matrix for each place of a window; the first
    /// `4 * WORDS + 3` count.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,gfni")]
    fn sixteen<const STRIDE: usize, const WORDS: usize>(
        keys: &[u64; PLACES],
        block: &[[u8; STRIDE]; BLOCK],
        constant: u32,
    ) -> __m512i {
        let words = transposed::<STRIDE, WORDS>(block);
        let mut sums = [_mm512_set1_epi32(constant as i32), _mm512_setzero_si512()];
        let mut add = |place: usize, window: __m512i| {
            let matrix = _mm512_set1_epi64(keys[place] as i64);
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(window, matrix);
            sums[place % 2] = _mm512_xor_si512(sums[place % 2], product);
        };
        add(0, _mm512_slli_epi32::<24>(words[0]));
        add(1, _mm512_slli_epi32::<16>(words[0]));
        add(2, _mm512_slli_epi32::<8>(words[0]));
        for word in 0..WORDS {
            let next = match word + 1 {
                next if next < WORDS => words[next],
                _ => _mm512_setzero_si512(),
            };
            add(4 * word + 3, words[word]);
            add(4 * word + 4, _mm512_shrdi_epi32::<8>(words[word], next));
            add(4 * word + 5, _mm512_shrdi_epi32::<16>(words[word], next));
            add(4 * word + 6, _mm512_shrdi_epi32::<24>(words[word], next));
        }
        _mm512_xor_si512(sums[0], sums[1])
    }

    /// Word `w` of the result holds bytes `4w..4w + 4` of the sixteen rows, in their order.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transposed<const STRIDE: usize, const WORDS: usize>(
        block: &[[u8; STRIDE]; BLOCK],
    ) -> [__m512i; WORDS] {
        let bytes = block.as_flattened();
        let mut words = [_mm512_setzero_si512(); WORDS];
        if WORDS >= 8 {
            words[..8].copy_from_slice(&eight_words(block));
            if WORDS > 8 {
                let ninth = |row: usize| {
                    let bytes = block[row][32..36].try_into().expect("four bytes");
                    i32::from_le_bytes(bytes)
                };
                words[8] = _mm512_setr_epi32(
                    ninth(0),
                    ninth(1),
                    ninth(2),
                    ninth(3),
                    ninth(4),
                    ninth(5),
                    ninth(6),
                    ninth(7),
                    ninth(8),
                    ninth(9),
                    ninth(10),
                    ninth(11),
                    ninth(12),
                    ninth(13),
                    ninth(14),
                    ninth(15),
                );
            }
        } else {
            // Sixteen rows are STRIDE / 4 vectors; each vector that a word occurs in gives its
            // part.
            for (w, word) in words.iter_mut().enumerate() {
                let step = _mm512_set1_epi32(STRIDE as i32 / 4);
                let row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let index =
                    _mm512_add_epi32(_mm512_mullo_epi32(row, step), _mm512_set1_epi32(w as i32));
                *word = _mm512_permutexvar_epi32(index, load(bytes, 0));
                for vector in 1..STRIDE / 4 {
                    let from = _mm512_srli_epi32::<4>(index);
                    let here = _mm512_cmpeq_epi32_mask(from, _mm512_set1_epi32(vector as i32));
                    *word =
                        _mm512_mask_permutexvar_epi32(*word, here, index, load(bytes, vector * 64));
                }
            }
        }
        words
    }

    /// The first 32 bytes of the rows, as eight words.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn eight_words<const STRIDE: usize>(block: &[[u8; STRIDE]; BLOCK]) -> [__m512i; 8] {
        let mut pairs = [_mm512_setzero_si512(); 8];
        for (index, pair) in pairs.iter_mut().enumerate() {
            // Rows r and r + 4 of either half: then the lanes come out in order.
            let row = index + index / 4 * 4;
            *pair = load_halves(&block[row], &block[row + 4]);
        }
        let mut words = [_mm512_setzero_si512(); 8];
        let mut quads = [[_mm512_setzero_si512(); 4]; 2];
        for (quad, rows) in quads.iter_mut().zip(pairs.as_chunks::<4>().0) {
            let [low01, high01] = unpack32(rows[0], rows[1]);
            let [low23, high23] = unpack32(rows[2], rows[3]);
            quad[0] = _mm512_unpacklo_epi64(low01, low23);
            quad[1] = _mm512_unpackhi_epi64(low01, low23);
            quad[2] = _mm512_unpacklo_epi64(high01, high23);
            quad[3] = _mm512_unpackhi_epi64(high01, high23);
        }
        for word in 0..4 {
            let (low, high) = (quads[0][word], quads[1][word]);
            words[word] = _mm512_shuffle_i64x2::<0b10_00_10_00>(low, high);
            words[word + 4] = _mm512_shuffle_i64x2::<0b11_01_11_01>(low, high);
        }
        words
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn unpack32(a: __m512i, b: __m512i) -> [__m512i; 2] {
        [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)]
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8], at: usize) -> __m512i {
        let bytes = &bytes[at..at + 64];
        // SAFETY: the slice is 64 bytes long.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// The first 32 bytes of each row.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_halves(low: &[u8], high: &[u8]) -> __m512i {
        let (low, high) = (&low[..32], &high[..32]);
        // SAFETY: the slice is 32 bytes long.
        let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast()) };
        // SAFETY: the slice is 32 bytes long.
        let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast()) };
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(to: &mut [u32; BLOCK], hashes: __m512i) {
        // SAFETY: the array is 64 bytes long.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), hashes) }
    }
}
