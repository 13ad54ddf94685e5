//! One writer and many readers of one table, at the same time.
//!
//! [`SharedExact`] is the writer and [`SharedReader`] what is cloned for each reading thread. The
//! protocol between them is in `words`, and model-checked in `loom_tests`. Placement, growth and
//! the worst cases are those of [`Exact`](super::Exact).
//!
//! | | |
//! |---|---|
//! | a reader | never waits and never sees half of a key or value; scalar loads only |
//! | reads again | only after the writer moved an entry of the buckets at hand (in growth, or to make room), or changed the very slot, between two of its loads; at most once for each such move that the writer *finished* |
//! | the writer | never waits for readers; may stop anywhere, for ever, and all of them go on |
//! | memory | keys of 16 bytes with a value: 128 bytes hold three entries, 56.9 bytes per entry at the limit |
//!
//! Where readers want vectors and may be a batch behind, put an [`Exact`](super::Exact) under
//! [`linerate_core::publish`] instead: it is twice as fast to read, takes two tables' memory, and
//! its updates arrive by the batch.
//!
//! ```
//! use linerate_tables::exact::{ExactConfig, Seed, SharedExact};
//! let mut table = SharedExact::<16, u32>::new(&ExactConfig::new("flows", 1000, Seed::random()))?;
//! let reader = table.reader();
//! let other = std::thread::spawn(move || while reader.lookup(&[7; 16]).is_none() {
//!     std::thread::yield_now();
//! });
//! table.insert(&[7; 16], 1)?;
//! other.join().unwrap();
//! # Ok::<(), linerate_tables::TableError>(())
//! ```

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod reader;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod words;

use super::hash::{Hash, KeyedHash};
use super::reach::{Buckets, make_room};
use super::spread::Spread;
use super::{Cursor, ExactConfig, LIMIT_MAX, SPLITS, Value};
use crate::TableError;
pub use reader::SharedReader;
use std::sync::Arc;
use words::{Bucket, SLOTS, Shared};

/// Fewer buckets than this might not have a place for every few keys, and there is no stash here.
const BUCKETS_MIN: u32 = 256;

/// The writer's side of a table that others read: there is one.
///
/// `V` takes at most 8 bytes. What the writer wrote elsewhere before it inserted a value (the slot
/// of an array that it names, say) is visible to who finds the value.
pub struct SharedExact<const K: usize, V> {
    shared: Arc<Shared<K, V>>,
    spread: Spread,
    len: usize,
    room: usize,
    moved: u64,
}

/// Buckets that `entries` fill to three quarters.
fn buckets_for(entries: usize) -> u32 {
    (entries * 4).div_ceil(SLOTS * 3) as u32
}

impl<const K: usize, V: Value> SharedExact<K, V> {
    /// An empty table.
    ///
    /// # Errors
    /// As [`Exact::new`](super::Exact::new).
    pub fn new(config: &ExactConfig) -> Result<Self, TableError> {
        let most = buckets_for(config.limit).max(BUCKETS_MIN);
        let base = buckets_for(config.room_for.min(config.limit)).max(BUCKETS_MIN);
        Self::with_buckets(config, base, most)
    }

    /// As [`new`](Self::new), with `base` buckets that grow to `most`.
    fn with_buckets(config: &ExactConfig, base: u32, most: u32) -> Result<Self, TableError> {
        if !(1..=LIMIT_MAX).contains(&config.limit) {
            return Err(TableError::ExactLimit {
                name: config.name.clone(),
                limit: config.limit,
            });
        }
        let spread = Spread::new(base);
        let hash = KeyedHash::new(config.seed);
        let mut table = Self {
            shared: Arc::new(Shared::new(&config.name, config.limit, hash, base, most)?),
            spread,
            len: 0,
            room: 0,
            moved: 0,
        };
        table.measure();
        Ok(table)
    }

    /// One more reader of this table; clone it, or call this again, for each thread.
    pub fn reader(&self) -> SharedReader<K, V> {
        SharedReader::new(self.shared.clone())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most entries there may be.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// All memory that it holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.shared.bytes() + size_of::<Self>()
    }

    /// Entries that were moved from bucket to bucket so far.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The value of `key`.
    pub fn lookup(&self, key: &[u8; K]) -> Option<V> {
        let (bucket, slot) = self.find(key, self.shared.hash.of(key))?;
        Some(self.bucket(bucket).value(slot))
    }

    /// Sets the value of `key`, which readers see at once; returns the one it had.
    ///
    /// # Errors
    /// As [`Exact::insert`](super::Exact::insert).
    pub fn insert(&mut self, key: &[u8; K], value: V) -> Result<Option<V>, TableError> {
        let hash = self.shared.hash.of(key);
        if let Some((bucket, slot)) = self.find(key, hash) {
            return Ok(Some(self.bucket(bucket).replace(slot, value)));
        }
        if self.len >= self.room {
            self.grow()?;
        }
        let first = self.spread.of(hash.first());
        let second = self.spread.of(hash.second());
        let (bucket, slot) = [first, second]
            .into_iter()
            .find_map(|bucket| Some((bucket, self.free(bucket)?)))
            .or_else(|| make_room(self, first, second))
            .ok_or_else(|| TableError::ExactCollisions {
                name: self.shared.name.clone(),
                entries: self.len,
            })?;
        if bucket != first {
            // Before the entry is there: who sees it finds the way to it.
            self.bucket(first).add_spilled(1);
        }
        self.bucket(bucket).put(slot, hash.tag(), key, value);
        self.len += 1;
        Ok(None)
    }

    /// Takes `key` out, at once for every reader; returns its value.
    pub fn remove(&mut self, key: &[u8; K]) -> Option<V> {
        let hash = self.shared.hash.of(key);
        let (bucket, slot) = self.find(key, hash)?;
        let value = self.bucket(bucket).value(slot);
        self.take_out(bucket, slot, hash);
        Some(value)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; K], V)> + '_ {
        (0..self.spread.count()).flat_map(|bucket| {
            let bucket = self.bucket(bucket);
            (0..SLOTS)
                .filter(move |&slot| bucket.is_taken(slot))
                .map(move |slot| (bucket.key(slot), bucket.value(slot)))
        })
    }

    /// As [`Exact::sweep`](super::Exact::sweep), but values are shown only and entries stay where
    /// they are.
    pub fn sweep(
        &mut self,
        cursor: &mut Cursor,
        buckets: usize,
        mut keep: impl FnMut(&[u8; K], V) -> bool,
    ) -> bool {
        let end = (cursor.bucket as usize).saturating_add(buckets);
        let end = end.min(self.spread.count() as usize) as u32;
        for bucket in cursor.bucket..end {
            for slot in 0..SLOTS {
                let at = self.bucket(bucket);
                if at.is_taken(slot) && !keep(&at.key(slot), at.value(slot)) {
                    let hash = self.shared.hash.of(&at.key(slot));
                    self.take_out(bucket, slot, hash);
                }
            }
        }
        let ended = end == self.spread.count();
        cursor.bucket = if ended { 0 } else { end };
        ended
    }

    fn take_out(&mut self, bucket: u32, slot: usize, hash: Hash) {
        self.bucket(bucket).clear(slot);
        let first = self.spread.of(hash.first());
        if bucket != first {
            self.bucket(first).add_spilled(-1);
        }
        self.len -= 1;
    }

    fn bucket(&self, bucket: u32) -> Bucket<'_, K, V> {
        self.shared.bucket(bucket)
    }

    /// Where an entry lives; only the writer knows for sure.
    fn find(&self, key: &[u8; K], hash: Hash) -> Option<(u32, usize)> {
        let buckets = [self.spread.of(hash.first()), self.spread.of(hash.second())];
        buckets.into_iter().find_map(|bucket| {
            let slot = self.bucket(bucket).find_settled(key, hash.tag())?;
            Some((bucket, slot))
        })
    }

    /// Splits as many buckets as the next entry asks for, at most [`SPLITS`].
    fn grow(&mut self) -> Result<(), TableError> {
        if self.len == self.shared.limit {
            return Err(TableError::ExactFull {
                name: self.shared.name.clone(),
                limit: self.shared.limit,
            });
        }
        for _ in 0..SPLITS {
            if self.len < self.room {
                break;
            }
            self.split()?;
            self.measure();
        }
        Ok(())
    }

    /// Sets for how many entries there is room without growth: three quarters of the slots.
    fn measure(&mut self) {
        let limit = self.shared.limit;
        self.room = match self.spread.count() < self.shared.most {
            true => (self.spread.count() as usize * SLOTS * 3 / 4).min(limit),
            false => limit,
        };
    }

    /// One bucket more. Readers find the entries that part in the old bucket until they know of
    /// the new one; what left the old bucket tells them that there is one.
    fn split(&mut self) -> Result<(), TableError> {
        let (source, fresh) = (self.spread.next_split(), self.spread.count());
        self.shared.reach(fresh + 1)?;
        self.spread.grow();
        let old = self.bucket(source);
        let new = self.bucket(fresh);
        // Those that spilled from the source now belong to either: both count them all.
        new.add_spilled(old.spilled() as i64);
        let mut parted = [false; SLOTS];
        for (slot, parted) in parted
            .iter_mut()
            .enumerate()
            .filter(|(slot, _)| old.is_taken(*slot))
        {
            let hash = self.shared.hash.of(&old.key(slot));
            if self.spread.home(hash, source) == fresh {
                new.put(slot, hash.tag(), &old.key(slot), old.value(slot));
                *parted = true;
            }
        }
        self.shared.publish(&self.spread);
        let leave = (0..SLOTS).filter(|&slot| parted[slot]);
        leave.clone().for_each(|slot| old.clear(slot));
        self.moved += leave.count() as u64;
        Ok(())
    }
}

impl<const K: usize, V: Value> Buckets for SharedExact<K, V> {
    const SLOTS: usize = SLOTS;

    fn free(&self, bucket: u32) -> Option<usize> {
        (0..SLOTS).find(|&slot| !self.bucket(bucket).is_taken(slot))
    }

    fn other(&self, bucket: u32, slot: usize) -> Option<u32> {
        let hash = self.shared.hash.of(&self.bucket(bucket).key(slot));
        let first = self.spread.of(hash.first());
        Some(match bucket == first {
            true => self.spread.of(hash.second()),
            false => first,
        })
    }

    /// First there, then the mark at its first bucket, then away from here: a reader that missed it
    /// in both places sees the mark, and looks again.
    fn change_over(&mut self, from: (u32, usize), to: (u32, usize)) {
        let (old, new) = (self.bucket(from.0), self.bucket(to.0));
        let key = old.key(from.1);
        let hash = self.shared.hash.of(&key);
        let first = self.spread.of(hash.first());
        if from.0 == first {
            old.add_spilled(1);
            new.put(to.1, hash.tag(), &key, old.value(from.1));
            old.add_spilled(0);
        } else {
            new.put(to.1, hash.tag(), &key, old.value(from.1));
            new.add_spilled(-1);
        }
        old.clear(from.1);
        self.moved += 1;
    }
}

impl<const K: usize, V> std::fmt::Debug for SharedExact<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedExact")
            .field("name", &self.shared.name)
            .field("len", &self.len)
            .field("limit", &self.shared.limit)
            .finish_non_exhaustive()
    }
}
