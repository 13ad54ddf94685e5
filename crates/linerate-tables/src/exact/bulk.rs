//! Bulk lookup: memory for a whole burst is on its way before the first key is compared.

use super::Exact;
use super::hash::{Hash, KeyedHash};
use super::layout::{LINE, Layout, Value};
use linerate_core::arch::prefetch_read;

/// Looks up keys into values, as many of one as of the other.
pub(crate) type Kernel<const K: usize, V> = fn(&Exact<K, V>, &[[u8; K]], &mut [Option<V>]);

/// Keys whose buckets are fetched at once.
pub(crate) const BLOCK: usize = 32;

/// Asks for all lines of a bucket.
#[inline(always)]
pub(super) fn fetch(bucket: &[u8]) {
    bucket
        .chunks_exact(LINE)
        .for_each(|line| prefetch_read(line.as_ptr()));
}

/// The loop of every kernel. `hash` fills in the hashes of up to [`BLOCK`] keys; `find` returns the
/// slot of a key in a bucket, given its tag.
#[inline(always)]
pub(crate) fn lookup<const K: usize, V: Value>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
    hash: impl Fn(&KeyedHash, &[[u8; K]], &mut [Hash; BLOCK]) + Copy,
    find: impl Fn(&[u8], &[u8; K], u8) -> Option<usize> + Copy,
) {
    for (keys, values) in keys.chunks(BLOCK).zip(values.chunks_mut(BLOCK)) {
        let mut hashes = [Hash::default(); BLOCK];
        hash(&table.hash, keys, &mut hashes);
        // A table that never grows lies in one piece, which spares a step for each key.
        match table.segments.only() {
            Some(all) => probe(table, keys, values, &hashes, find, |bucket| {
                all.bucket(bucket)
            }),
            None => probe(table, keys, values, &hashes, find, |bucket| {
                table.segments.bucket(bucket)
            }),
        }
    }
}

/// The hash of every level that has no better one.
#[inline(always)]
pub(crate) fn hash_each<const K: usize>(
    hash: &KeyedHash,
    keys: &[[u8; K]],
    hashes: &mut [Hash; BLOCK],
) {
    for (key, into) in keys.iter().zip(hashes) {
        *into = hash.of(key);
    }
}

/// Up to [`BLOCK`] lookups: `at` gives the bytes of a bucket.
#[inline(always)]
fn probe<'a, const K: usize, V: Value>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
    hashes: &[Hash; BLOCK],
    find: impl Fn(&[u8], &[u8; K], u8) -> Option<usize>,
    at: impl Fn(u32) -> &'a [u8],
) {
    // All of them, whatever the burst: the compiler makes vectors of it.
    let near = hashes.map(|hash| table.spread.of(hash.first()));
    for (&bucket, _) in near.iter().zip(keys) {
        fetch(at(bucket));
    }
    let mut again = [0_u8; BLOCK];
    let mut spilled = 0;
    let keyed = keys.iter().zip(hashes).zip(near);
    for (index, (((key, hash), bucket), value)) in keyed.zip(&mut *values).enumerate() {
        let bucket = at(bucket);
        *value = match find(bucket, key, hash.tag()) {
            Some(slot) => Some(Layout::<K, V>::value(bucket, slot)),
            None => {
                if Layout::<K, V>::has_spilled(bucket) {
                    fetch(at(table.spread.of(hash.second())));
                    again[spilled % BLOCK] = index as u8;
                    spilled += 1;
                }
                None
            }
        };
    }
    for &index in &again[..spilled] {
        let index = usize::from(index) % BLOCK;
        let (key, hash) = (&keys[index], hashes[index]);
        let bucket = at(table.spread.of(hash.second()));
        values[index] = match find(bucket, key, hash.tag()) {
            Some(slot) => Some(Layout::<K, V>::value(bucket, slot)),
            None => table.stashed(key),
        };
    }
}
