//! Exact match: the bulk lookup, compiled for each level, and the comparison of a whole bucket.
//!
//! A bucket of three 16-byte keys is one cache line with the keys at its front: one comparison of
//! 512 bits (two of 256) finds which of them is the one that is looked for, without tags. Buckets
//! of other shapes compare tags, of all slots at once, on every level.

use crate::exact::Exact;
use crate::exact::Value;
use crate::exact::bulk;
use crate::exact::layout::Layout;
use linerate_core::env::Isa;

/// A level that this CPU has. Not the function itself: tables that nobody looks bursts up in are
/// not to be compiled with one for each level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(Level);

#[derive(Clone, Copy, Debug)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// The best up to `isa`, and never one that the CPU lacks.
    pub(crate) fn pick(isa: Isa) -> Self {
        Self(match isa.available() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 { .. } => Level::Avx512,
            #[cfg(target_arch = "x86_64")]
            isa if isa >= Isa::Avx2 => Level::Avx2,
            _ => Level::Portable,
        })
    }

    /// Looks up keys into values, as many of one as of the other.
    #[inline]
    pub(crate) fn lookup<const K: usize, V: Value>(
        self,
        table: &Exact<K, V>,
        keys: &[[u8; K]],
        values: &mut [Option<V>],
    ) {
        match self.0 {
            Level::Portable => portable(table, keys, values),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `pick` was told that the CPU has the level.
            Level::Avx2 => unsafe { x86_64::avx2(table, keys, values) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `pick` was told that the CPU has the level.
            Level::Avx512 => unsafe { x86_64::avx512(table, keys, values) },
        }
    }
}

// Not inlined, so that its stack is none of the others'.
#[inline(never)]
fn portable<const K: usize, V: Value>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
) {
    let by_tag = bulk::by_tag::<K, V>;
    bulk::lookup::<K, V, false>(table, keys, values, bulk::hash_each, by_tag);
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::hash::x86_64::hash_avx512;
    use super::{Exact, Layout, Value, bulk};
    use std::arch::x86_64::*;

    /// Whether a bucket is one line with three 16-byte keys at its front.
    const fn is_line_of_three<const K: usize, V: Value>() -> bool {
        K == 16 && Layout::<K, V>::LINES == 1 && Layout::<K, V>::SLOTS == 3
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,sse4.2")]
    pub(super) fn avx2<const K: usize, V: Value>(
        table: &Exact<K, V>,
        keys: &[[u8; K]],
        values: &mut [Option<V>],
    ) {
        if const { is_line_of_three::<K, V>() } {
            let find =
                |bucket: &[u8], key: &[u8; K], _| taken::<K, V>(bucket, equal_avx2(bucket, key));
            bulk::lookup::<K, V, true>(table, keys, values, bulk::hash_each, find);
        } else {
            let by_tag = bulk::by_tag::<K, V>;
            bulk::lookup::<K, V, false>(table, keys, values, bulk::hash_each, by_tag);
        }
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
    pub(super) fn avx512<const K: usize, V: Value>(
        table: &Exact<K, V>,
        keys: &[[u8; K]],
        values: &mut [Option<V>],
    ) {
        let hash = |hash: &_, keys: &[_], hashes: &mut _| hash_avx512(hash, keys, hashes);
        if const { is_line_of_three::<K, V>() } {
            let find =
                |bucket: &[u8], key: &[u8; K], _| taken_avx512(bucket, equal_avx512(bucket, key));
            bulk::lookup::<K, V, true>(table, keys, values, hash, find);
        } else {
            bulk::lookup::<K, V, false>(table, keys, values, hash, bulk::by_tag::<K, V>);
        }
    }

    /// The first taken slot of those whose keys are equal (two bits of `equal` each, both set),
    /// or 3.
    #[inline(always)]
    fn taken<const K: usize, V: Value>(bucket: &[u8], equal: u32) -> usize {
        // The key of a free slot is what was there before: the highest bit of its tag is not set.
        let tags = (Layout::<K, V>::tags(bucket) as u32 & 0x80_80_80) >> 7;
        let taken = tags | (tags >> 6) | (tags >> 12);
        let slots = equal & (equal >> 1) & taken & 0b01_01_01;
        (slots | 0b1_00_00_00).trailing_zeros() as usize / 2
    }

    /// As [`taken`]. Every CPU of this level gathers bits fast, which those of AVX2 do not.
    #[inline]
    #[target_feature(enable = "bmi1,bmi2")]
    fn taken_avx512(bucket: &[u8], equal: u32) -> usize {
        let tags: &[u8; 4] = bucket.last_chunk().expect("a bucket has a line");
        let taken = _pext_u32(u32::from_le_bytes(*tags), 0x80_80_80);
        let slots = _pext_u32(equal & (equal >> 1), 0b01_01_01) & taken;
        (slots | 0b1000).trailing_zeros() as usize
    }

    /// The first 16 bytes of the key.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn key_vector(key: &[u8]) -> __m128i {
        let key: &[u8; 16] = key.first_chunk().expect("only for keys of 16 bytes");
        // SAFETY: 16 bytes are there to be read, aligned or not.
        unsafe { _mm_loadu_si128(key.as_ptr().cast()) }
    }

    /// Bit `i`: the `i`-th eight bytes of the bucket's first line equal the key's half (`i` mod 2).
    #[inline]
    #[target_feature(enable = "avx2")]
    fn equal_avx2(bucket: &[u8], key: &[u8]) -> u32 {
        let line: &[u8; 64] = bucket.first_chunk().expect("a bucket has a line");
        let key = _mm256_broadcastsi128_si256(key_vector(key));
        // SAFETY: 64 bytes are there, and these are the first 32.
        let low = unsafe { _mm256_loadu_si256(line.as_ptr().cast()) };
        // SAFETY: the other 32.
        let high = unsafe { _mm256_loadu_si256(line[32..].as_ptr().cast()) };
        let mask = |half| _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(half, key)));
        mask(low) as u32 | (mask(high) as u32) << 4
    }

    /// As [`equal_avx2`].
    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    fn equal_avx512(bucket: &[u8], key: &[u8]) -> u32 {
        let line: &[u8; 64] = bucket.first_chunk().expect("a bucket has a line");
        let key = _mm512_broadcast_i32x4(key_vector(key));
        // SAFETY: 64 bytes are there to be read.
        let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        _mm512_cmpeq_epi64_mask(line, key).into()
    }
}
