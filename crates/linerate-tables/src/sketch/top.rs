//! The keys with the highest estimates: a heap with the lowest on top, and where each key is in it.

use super::Heavy;
use crate::TableError;
use crate::exact::{Exact, ExactConfig, Seed};
use std::cmp::Reverse;

/// At most `limit` keys.
///
/// An estimate only grows within a window, so the lowest listed only rises, and a key that is not
/// listed was not above it when it was last counted: nothing heavier than the lowest is missing.
pub(super) struct Top<const K: usize> {
    limit: usize,
    /// Where each listed key's entry is.
    index: Exact<K, u32>,
    entries: Vec<Entry<K>>,
    /// Entries by their place in the heap: none is above its two children.
    heap: Vec<u32>,
}

struct Entry<const K: usize> {
    key: [u8; K],
    estimate: u64,
    /// Its place in the heap.
    place: u32,
}

impl<const K: usize> Top<K> {
    pub(super) fn new(name: &str, limit: usize, seed: Seed) -> Result<Self, TableError> {
        // One more, for a new key before the lowest is removed.
        let index = Exact::new(&ExactConfig::new(name, limit + 1, seed).full_size())?;
        Ok(Self {
            limit,
            index,
            entries: Vec::with_capacity(limit),
            heap: Vec::with_capacity(limit),
        })
    }

    /// What a key must exceed to be listed.
    #[inline(always)]
    pub(super) fn lowest(&self) -> u64 {
        match self.heap.first() {
            Some(&first) if self.heap.len() == self.limit => self.entries[first as usize].estimate,
            _ => 0,
        }
    }

    /// Lists `key`, whose estimate is above the lowest and not below its own before.
    #[inline]
    pub(super) fn set(&mut self, key: &[u8; K], estimate: u64) {
        let entry = match self.index.lookup(key) {
            Some(entry) => entry as usize,
            None => match self.admit(key) {
                Some(entry) => entry,
                None => return,
            },
        };
        self.entries[entry].estimate = estimate;
        self.sink(self.entries[entry].place as usize);
    }

    /// An entry for a new key: a fresh one, or the lowest's. `None` if the index will not take the
    /// key, which happens only to keys made to collide under a known seed.
    fn admit(&mut self, key: &[u8; K]) -> Option<usize> {
        let is_full = self.heap.len() == self.limit;
        let entry = match is_full {
            true => self.heap[0] as usize,
            false => self.entries.len(),
        };
        self.index.insert(key, entry as u32).ok()?;
        if is_full {
            let old = std::mem::replace(&mut self.entries[entry].key, *key);
            self.index.remove(&old);
            return Some(entry);
        }
        // At the bottom of the heap with the lowest estimate, and up from there.
        let mut place = self.heap.len();
        self.heap.push(entry as u32);
        self.entries.push(Entry {
            key: *key,
            estimate: 0,
            place: place as u32,
        });
        while place > 0 {
            let parent = (place - 1) / 2;
            self.swap(place, parent);
            place = parent;
        }
        Some(entry)
    }

    /// Restores the heap below an entry whose estimate grew.
    fn sink(&mut self, mut place: usize) {
        let estimate = |top: &Self, place: usize| {
            let entry = top.heap.get(place)?;
            Some(top.entries[*entry as usize].estimate)
        };
        while let Some(left) = estimate(self, 2 * place + 1) {
            let right = estimate(self, 2 * place + 2);
            let child = 2 * place + 1 + usize::from(right.is_some_and(|right| right < left));
            if estimate(self, child) >= estimate(self, place) {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.entries[self.heap[place] as usize].place = place as u32;
        }
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.heap.clear();
    }

    /// The heaviest first; ties by key.
    pub(super) fn sorted(&self) -> Vec<Heavy<K>> {
        let heavy = |entry: &Entry<K>| Heavy {
            key: entry.key,
            estimate: entry.estimate,
        };
        let mut list: Vec<_> = self.entries.iter().map(heavy).collect();
        list.sort_unstable_by_key(|heavy| (Reverse(heavy.estimate), heavy.key));
        list
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.memory_bytes()
            + self.entries.capacity() * size_of::<Entry<K>>()
            + self.heap.capacity() * size_of::<u32>()
    }
}
