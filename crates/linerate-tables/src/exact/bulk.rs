//! Bulk lookup: memory for a whole burst is on its way before the first key is compared.

use super::Exact;
use super::hash::Hash;
use super::layout::{LINE, Layout, Value};
use linerate_core::arch::prefetch_read;

/// Looks up keys into values, as many of one as of the other.
pub(crate) type Kernel<const K: usize, V> = fn(&Exact<K, V>, &[[u8; K]], &mut [Option<V>]);

/// Keys whose buckets are fetched at once.
const BLOCK: usize = 32;

/// Asks for all lines of a bucket.
#[inline(always)]
pub(super) fn fetch(bucket: &[u8]) {
    bucket
        .chunks_exact(LINE)
        .for_each(|line| prefetch_read(line.as_ptr()));
}

/// The loop of every kernel. `find` returns the slot of a key in a bucket, given its tag.
#[inline(always)]
pub(crate) fn lookup<const K: usize, V: Value>(
    table: &Exact<K, V>,
    keys: &[[u8; K]],
    values: &mut [Option<V>],
    find: impl Fn(&[u8], &[u8; K], u8) -> Option<usize>,
) {
    for (keys, values) in keys.chunks(BLOCK).zip(values.chunks_mut(BLOCK)) {
        let mut hashes = [Hash::default(); BLOCK];
        for (key, hash) in keys.iter().zip(&mut hashes) {
            *hash = table.hash.of(key);
        }
        // All of them, whatever the burst: the compiler makes vectors of it.
        let near = hashes.map(|hash| table.spread.of(hash.first()));
        for &bucket in &near[..keys.len()] {
            fetch(table.segments.bucket(bucket));
        }
        let mut again = [0_u8; BLOCK];
        let mut spilled = 0;
        for (at, (key, value)) in keys.iter().zip(&mut *values).enumerate() {
            let bucket = table.segments.bucket(near[at % BLOCK]);
            let hash = hashes[at % BLOCK];
            if let Some(slot) = find(bucket, key, hash.tag()) {
                *value = Some(Layout::<K, V>::value(bucket, slot));
                continue;
            }
            *value = None;
            if Layout::<K, V>::has_spilled(bucket) {
                fetch(table.far(hash));
                again[spilled % BLOCK] = at as u8;
                spilled += 1;
            }
        }
        for &at in &again[..spilled] {
            let at = usize::from(at) % BLOCK;
            let (key, hash) = (&keys[at], hashes[at]);
            let bucket = table.far(hash);
            values[at] = match find(bucket, key, hash.tag()) {
                Some(slot) => Some(Layout::<K, V>::value(bucket, slot)),
                None => table.stashed(key),
            };
        }
    }
}
