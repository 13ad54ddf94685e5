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
        let nothing = table.segments.bucket(0);
        let mut buckets = [(Hash::default(), nothing); BLOCK];
        for (key, (hash, bucket)) in keys.iter().zip(&mut buckets) {
            *hash = table.hash.of(key);
            *bucket = table.near(*hash);
            fetch(bucket);
        }
        let mut again = [0_u8; BLOCK];
        let mut spilled = 0;
        for (at, (key, value)) in keys.iter().zip(&mut *values).enumerate() {
            let (hash, bucket) = buckets[at];
            *value = find(bucket, key, hash.tag()).map(|slot| Layout::<K, V>::value(bucket, slot));
            if value.is_none() && Layout::<K, V>::has_spilled(bucket) {
                let far = table.far(hash);
                fetch(far);
                buckets[at].1 = far;
                again[spilled % BLOCK] = at as u8;
                spilled += 1;
            }
        }
        for &at in &again[..spilled] {
            let at = usize::from(at);
            let ((hash, bucket), key) = (buckets[at], &keys[at]);
            values[at] = find(bucket, key, hash.tag())
                .map(|slot| Layout::<K, V>::value(bucket, slot))
                .or_else(|| table.stashed(key));
        }
    }
}
