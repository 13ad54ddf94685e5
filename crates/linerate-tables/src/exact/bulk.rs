//! Bulk lookup: memory for a whole burst is on its way before the first key is compared.

use super::Exact;
use super::hash::{Hash, KeyedHash};
use super::layout::{Layout, Value};
use std::hint::select_unpredictable;

/// Keys whose buckets are fetched at once.
pub(crate) const BLOCK: usize = 64;

/// The loop of every kernel. `hash` fills in the hashes of up to [`BLOCK`] keys; `find` returns the
/// slot of a key in a bucket, or the number of slots. Unless `CERTAIN`, it is the first slot with
/// the key's tag, whose key is compared when its line has come.
#[inline(always)]
pub(crate) fn lookup<const K: usize, V: Value, const CERTAIN: bool>(
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
            Some(all) => probe::<K, V, CERTAIN>(table, keys, values, &hashes, find, |bucket| {
                all.bucket(bucket)
            }),
            None => probe::<K, V, CERTAIN>(table, keys, values, &hashes, find, |bucket| {
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

/// As `array::map`, whose steps are calls where a crate is compiled in several units.
#[inline(always)]
fn of_each(hashes: &[Hash; BLOCK], part: impl Fn(Hash) -> u32) -> [u32; BLOCK] {
    let mut parts = [0; BLOCK];
    for (part_of, &hash) in parts.iter_mut().zip(hashes) {
        *part_of = part(hash);
    }
    parts
}

/// Up to [`BLOCK`] lookups: `at` gives the bytes of a bucket.
#[inline(always)]
fn probe<'a, const K: usize, V: Value, const CERTAIN: bool>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
    hashes: &[Hash; BLOCK],
    find: impl Fn(&[u8], &[u8; K], u8) -> usize,
    at: impl Fn(u32) -> &'a [u8],
) {
    // All of them, whatever the burst: the compiler makes vectors of it.
    let mut buckets = of_each(hashes, |hash| table.spread.of(hash.first()));
    let mut slots = [0; BLOCK];
    let count = keys.len().min(BLOCK);
    // Slices of one length, indexed: chained iterators keep their state in memory, which is slow.
    let (keys, values) = (&keys[..count], &mut values[..count]);
    let (buckets, slots) = (&mut buckets[..count], &mut slots[..count]);
    for &bucket in &*buckets {
        Layout::<K, V>::fetch_tags(at(bucket));
    }
    if table.is_beyond_caches() {
        // A second bucket that may be needed comes with the first, not after it.
        let far = of_each(hashes, |hash| table.spread.of(hash.second()));
        for index in 0..count {
            let spilled = table.spills.has(buckets[index]);
            let bucket = select_unpredictable(spilled, far[index], buckets[index]);
            Layout::<K, V>::fetch_tags(at(bucket));
        }
    }
    // No branch depends on a key, since entries in their second bucket are unpredictable.
    let mut again = [0_u8; BLOCK];
    let mut missed = 0;
    for index in 0..count {
        let bucket = at(buckets[index]);
        let slot = find(bucket, &keys[index], hashes[index].tag());
        if CERTAIN {
            values[index] = found::<K, V>(bucket, slot);
        } else {
            slots[index] = slot as u8;
            Layout::<K, V>::fetch_entry(bucket, slot);
        }
        again[missed % BLOCK] = index as u8;
        missed += usize::from(slot >= Layout::<K, V>::SLOTS);
    }
    let mut spilled = 0;
    for missed in 0..missed.min(BLOCK) {
        let index = again[missed];
        again[spilled % BLOCK] = index;
        let bucket = at(buckets[usize::from(index)]);
        spilled += usize::from(Layout::<K, V>::has_spilled(bucket));
    }
    for &index in &again[..spilled.min(BLOCK)] {
        let index = usize::from(index);
        let second = table.spread.of(hashes[index].second());
        let bucket = at(second);
        let slot = find(bucket, &keys[index], hashes[index].tag());
        if CERTAIN {
            values[index] = found::<K, V>(bucket, slot);
        } else {
            (buckets[index], slots[index]) = (second, slot as u8);
            Layout::<K, V>::fetch_entry(bucket, slot);
        }
    }
    if !CERTAIN {
        let mut others = 0;
        for index in 0..count {
            let (bucket, slot) = (at(buckets[index]), usize::from(slots[index]));
            let equal = Layout::<K, V>::key_or_any(bucket, slot) == &keys[index];
            let value = found::<K, V>(bucket, slot);
            values[index] = select_unpredictable(equal, value, None);
            again[others % BLOCK] = index as u8;
            others += usize::from((slot < Layout::<K, V>::SLOTS) & !equal);
        }
        // Another key's tag was the same.
        for &index in &again[..others.min(BLOCK)] {
            let index = usize::from(index);
            let place = table.find(&keys[index], hashes[index]);
            values[index] = place.map(|place| table.value_at(place));
        }
    }
    if !table.stash.is_empty() {
        table.look_in_stash(keys, values);
    }
}

/// The value in a slot, if there is such a slot; it is read either way.
#[inline(always)]
fn found<const K: usize, V: Value>(bucket: &[u8], slot: usize) -> Option<V> {
    let value = Layout::<K, V>::value_or_any(bucket, slot);
    select_unpredictable(slot < Layout::<K, V>::SLOTS, Some(value), None)
}

/// What finds keys by their tags.
#[inline(always)]
pub(crate) fn by_tag<const K: usize, V: Value>(bucket: &[u8], _: &[u8; K], tag: u8) -> usize {
    Layout::<K, V>::slot(bucket, tag)
}
