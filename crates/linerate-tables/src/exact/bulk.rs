//! Bulk lookup: memory for a whole burst is on its way before the first key is compared.

use super::Exact;
use super::hash::{Hash, KeyedHash};
use super::layout::{LINE, Layout, Value};
use linerate_core::arch::prefetch_read;
use std::hint::select_unpredictable;

/// Looks up keys into values, as many of one as of the other.
pub(crate) type Kernel<const K: usize, V> = fn(&Exact<K, V>, &[[u8; K]], &mut [Option<V>]);

/// Keys whose buckets are fetched at once.
pub(crate) const BLOCK: usize = 64;

/// Asks for all lines of a bucket.
#[inline(always)]
pub(super) fn fetch(bucket: &[u8]) {
    bucket
        .chunks_exact(LINE)
        .for_each(|line| prefetch_read(line.as_ptr()));
}

/// The loop of every kernel. `hash` fills in the hashes of up to [`BLOCK`] keys; `find` returns the
/// slot of a key in a bucket, given its tag, or the number of slots.
#[inline(always)]
pub(crate) fn lookup<const K: usize, V: Value>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
    hash: impl Fn(&KeyedHash, &[[u8; K]], &mut [Hash; BLOCK]) + Copy,
    find: impl Fn(&[u8], &[u8; K], u8) -> usize + Copy,
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
    find: impl Fn(&[u8], &[u8; K], u8) -> usize,
    at: impl Fn(u32) -> &'a [u8],
) {
    // All of them, whatever the burst: the compiler makes vectors of it.
    let near = hashes.map(|hash| table.spread.of(hash.first()));
    let count = keys.len().min(BLOCK);
    // Slices of one length, indexed: chained iterators keep their state in memory, which is slow.
    let (keys, values) = (&keys[..count], &mut values[..count]);
    let (near, hashes) = (&near[..count], &hashes[..count]);
    for &bucket in near {
        fetch(at(bucket));
    }
    // No branch depends on a key, since entries in their second bucket are unpredictable.
    let mut again = [0_u8; BLOCK];
    let mut missed = 0;
    for index in 0..count {
        let bucket = at(near[index]);
        let slot = find(bucket, &keys[index], hashes[index].tag());
        values[index] = found::<K, V>(bucket, slot);
        again[missed % BLOCK] = index as u8;
        missed += usize::from(slot >= Layout::<K, V>::SLOTS);
    }
    let far = |index: usize| at(table.spread.of(hashes[index].second()));
    let mut spilled = 0;
    for missed in 0..missed.min(BLOCK) {
        let index = again[missed];
        if Layout::<K, V>::has_spilled(at(near[usize::from(index)])) {
            fetch(far(index.into()));
            again[spilled % BLOCK] = index;
            spilled += 1;
        }
    }
    for &index in &again[..spilled.min(BLOCK)] {
        let index = usize::from(index);
        let bucket = far(index);
        let slot = find(bucket, &keys[index], hashes[index].tag());
        values[index] = match found::<K, V>(bucket, slot) {
            None if !table.stash.is_empty() => table.stashed(&keys[index]),
            value => value,
        };
    }
}

/// The value in a slot, if there is such a slot; it is read either way.
#[inline(always)]
fn found<const K: usize, V: Value>(bucket: &[u8], slot: usize) -> Option<V> {
    let value = Layout::<K, V>::value_or_any(bucket, slot);
    select_unpredictable(slot < Layout::<K, V>::SLOTS, Some(value), None)
}

/// The slot of a key as every level finds it that has no better way; the number of slots if the
/// key is not there.
#[inline(always)]
pub(crate) fn find_by_tag<const K: usize, V: Value>(
    bucket: &[u8],
    key: &[u8; K],
    tag: u8,
) -> usize {
    Layout::<K, V>::find(bucket, key, tag).unwrap_or(Layout::<K, V>::SLOTS)
}
