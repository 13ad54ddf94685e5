//! Lookups while the writer writes.

use super::super::hash::Hash;
use super::super::layout::Value;
use super::words::{Seen, Shared};
use linerate_core::arch::prefetch_read;
use std::sync::Arc;

/// Keys whose buckets are fetched at once.
const BLOCK: usize = 32;

/// Reads a [`SharedExact`](super::SharedExact): one for each thread.
pub struct SharedReader<const K: usize, V> {
    shared: Arc<Shared<K, V>>,
}

impl<const K: usize, V: Value> SharedReader<K, V> {
    pub(super) fn new(shared: Arc<Shared<K, V>>) -> Self {
        Self { shared }
    }

    /// The value of `key`, as it is at some moment of this call.
    #[inline]
    pub fn lookup(&self, key: &[u8; K]) -> Option<V> {
        self.lookup_hashed(key, self.shared.hash.of(key))
    }

    /// The value of each key, in order, each as it is at some moment of this call.
    ///
    /// # Panics
    /// Unless both slices are of one length.
    pub fn lookup_bulk(&self, keys: &[[u8; K]], values: &mut [Option<V>]) {
        assert_eq!(keys.len(), values.len(), "one place for each key's value");
        for (keys, values) in keys.chunks(BLOCK).zip(values.chunks_mut(BLOCK)) {
            let spread = self.shared.spread();
            let mut hashes = [Hash::default(); BLOCK];
            for (key, hash) in keys.iter().zip(&mut hashes) {
                *hash = self.shared.hash.of(key);
                let bucket = self.shared.bucket(spread.of(hash.first()));
                bucket
                    .words
                    .chunks(8)
                    .for_each(|line| prefetch_read(line.as_ptr()));
            }
            for ((key, hash), value) in keys.iter().zip(hashes).zip(values) {
                *value = self.lookup_hashed(key, hash);
            }
        }
    }

    /// The words' protocol: see [`words`](super::words).
    #[inline]
    fn lookup_hashed(&self, key: &[u8; K], hash: Hash) -> Option<V> {
        loop {
            let spread = self.shared.spread();
            let near = self.shared.bucket(spread.of(hash.first()));
            let near_head = near.head();
            match near.look(key, hash.tag()) {
                Seen::Value(value) => return Some(value),
                Seen::Changed => continue,
                Seen::Nothing => {}
            }
            if near_head & 0xff != 0 {
                let far = self.shared.bucket(spread.of(hash.second()));
                match far.look(key, hash.tag()) {
                    Seen::Value(value) => return Some(value),
                    Seen::Changed => continue,
                    Seen::Nothing => {}
                }
            }
            // The loads of the slots acquire: who saw an emptied one sees what came before that.
            let now = self.shared.spread();
            let same_buckets = now.of(hash.first()) == spread.of(hash.first())
                && now.of(hash.second()) == spread.of(hash.second());
            if near.head_again() == near_head && same_buckets {
                return None;
            }
        }
    }
}

impl<const K: usize, V> Clone for SharedReader<K, V> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<const K: usize, V> std::fmt::Debug for SharedReader<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedReader").finish_non_exhaustive()
    }
}
