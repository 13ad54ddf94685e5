//! Exact match: the value of a key, for keys of 4 to 64 bytes.
//!
//! [`Exact`] has one owner and is the fast form. Read `layout` for what a bucket is, `hash` for how
//! a key finds its two buckets, `spread` for how their number grows, `place` for how an entry finds
//! room, `bulk` how a burst is looked up. [`SharedExact`] has one writer and many readers.
//!
//! # Cost
//!
//! | operation | work |
//! |---|---|
//! | lookup, hit or miss | at most two buckets, and 16 entries of the stash (empty, but for attacks on a known seed) |
//! | bulk lookup | the same; the buckets of 64 keys are fetched at once, second ones where entries spilled |
//! | bulk insert | as insert, memory for 64 keys asked for at once |
//! | insert | at most two splits of a bucket and 128 buckets read to make room; now and then one segment (2 MiB) mapped |
//! | remove | as lookup, and one insert from the stash if it is not empty |
//! | memory | a line of 64 bytes holds 3 keys of 16 bytes with 4 of value; 28.5 bytes per entry at the limit (three quarters of the slots) |
//!
//! An entry is found in its first bucket if that had room (six of seven times at the limit), else
//! in its second. No entry is ever looked for elsewhere, nothing is left behind by a removal, and
//! growth never stops anything: see [`Exact::insert`].
//!
//! ```
//! use linerate_tables::exact::{Exact, ExactConfig, Seed};
//! let mut ports = Exact::<6, u16>::new(&ExactConfig::new("stations", 1000, Seed::random()))?;
//! assert_eq!(ports.insert(&[2, 0, 0, 0, 0, 1], 7)?, None);
//! assert_eq!(ports.lookup(&[2, 0, 0, 0, 0, 1]), Some(7));
//! let mut found = [None; 2];
//! ports.lookup_bulk(&[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]], &mut found);
//! assert_eq!(found, [Some(7), None]);
//! assert_eq!(ports.remove(&[2, 0, 0, 0, 0, 1]), Some(7));
//! # Ok::<(), linerate_tables::TableError>(())
//! ```
//!
//! A key of another size does not compile:
//!
//! ```compile_fail
//! # use linerate_tables::exact::{Exact, ExactConfig, Seed};
//! # let table = Exact::<6, u16>::new(&ExactConfig::new("stations", 1000, Seed::random())).unwrap();
//! table.lookup(&[0; 8]);
//! ```

pub(crate) mod bulk;
pub(crate) mod hash;
mod iter;
pub(crate) mod layout;
mod place;
mod reach;
mod segments;
mod shared;
mod spills;
mod spread;
#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;

use crate::TableError;
use crate::simd::exact::Kernel;
pub use hash::Seed;
use hash::{Hash, KeyedHash};
pub use iter::Cursor;
use layout::Layout;
pub use layout::Value;
use linerate_core::env::Isa;
use segments::Segments;
pub use shared::{SharedExact, SharedReader};
use spills::Spills;
use spread::Spread;

/// How a table is to be.
#[derive(Clone, Debug)]
pub struct ExactConfig {
    /// Whose it is, for messages.
    pub name: String,
    /// The most entries it may hold, 1 to 2^28.
    pub limit: usize,
    /// For how many entries there is room from the start: no insert below grows the table.
    pub room_for: usize,
    /// What its hash is keyed with.
    pub seed: Seed,
    /// What its kernels may use.
    pub isa: Isa,
}

impl ExactConfig {
    /// A table that grows from small up to `limit` entries, with the best kernels of this CPU.
    pub fn new(name: &str, limit: usize, seed: Seed) -> Self {
        Self {
            name: name.into(),
            limit,
            room_for: 0,
            seed,
            isa: Isa::detect(),
        }
    }

    /// With all the room from the start.
    #[must_use]
    pub fn full_size(mut self) -> Self {
        self.room_for = self.limit;
        self
    }
}

/// The most that [`ExactConfig::limit`] may be.
pub const LIMIT_MAX: usize = 1 << 28;
/// Fewer buckets than this make no sense.
const BUCKETS_MIN: u32 = 16;
/// Buckets that one insert splits at most.
const SPLITS: usize = 2;

/// Buckets of that many bytes are in the second level of most caches.
const NEAR_BYTES: usize = 1 << 20;

/// A table from keys of `K` bytes to values, changed and read by its owner.
pub struct Exact<const K: usize, V> {
    name: String,
    limit: usize,
    len: usize,
    hash: KeyedHash,
    spread: Spread,
    /// The number of buckets at the limit.
    most: u32,
    /// With this many entries the next one makes the table grow, or is one too many.
    room: usize,
    segments: Segments<K, V>,
    spills: Spills,
    /// Entries for which there was no room in reach: none, unless keys were made to collide.
    stash: Vec<([u8; K], V)>,
    /// Entries that were moved from one bucket to another.
    moved: u64,
    kernel: Kernel,
}

/// Where an entry lives.
#[derive(Clone, Copy)]
enum Place {
    Slot { bucket: u32, slot: usize },
    Stash(usize),
}

impl<const K: usize, V: Value> Exact<K, V> {
    /// An empty table.
    ///
    /// # Errors
    /// [`TableError::ExactLimit`] for a limit of 0 or above [`LIMIT_MAX`], and
    /// [`TableError::Memory`].
    pub fn new(config: &ExactConfig) -> Result<Self, TableError> {
        if !(1..=LIMIT_MAX).contains(&config.limit) {
            return Err(TableError::ExactLimit {
                name: config.name.clone(),
                limit: config.limit,
            });
        }
        let most = Self::buckets_for(config.limit).max(BUCKETS_MIN);
        let base = Self::buckets_for(config.room_for.min(config.limit)).max(BUCKETS_MIN);
        let mut table = Self {
            name: config.name.clone(),
            limit: config.limit,
            len: 0,
            hash: KeyedHash::new(config.seed),
            spread: Spread::new(base),
            most,
            room: 0,
            segments: Segments::new(most, base == most),
            spills: Spills::new(most),
            stash: Vec::new(),
            moved: 0,
            kernel: Kernel::pick(config.isa),
        };
        table.segments.reach(&table.name, base)?;
        table.measure();
        Ok(table)
    }

    /// Buckets that `entries` fill to three quarters.
    fn buckets_for(entries: usize) -> u32 {
        (entries * 4).div_ceil(Layout::<K, V>::SLOTS * 3) as u32
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
        self.limit
    }

    /// All memory that it holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.segments.bytes()
            + self.spills.bytes()
            + size_of::<Self>()
            + self.stash.capacity() * size_of::<([u8; K], V)>()
    }

    /// What pages back it.
    pub fn pages(&self) -> String {
        self.segments.pages()
    }

    /// The value of `key`.
    #[inline]
    pub fn lookup(&self, key: &[u8; K]) -> Option<V> {
        Some(self.value_at(self.find(key, self.hash.of(key))?))
    }

    /// The value of each key, in order.
    ///
    /// Best for bursts of 32 and more: memory for all keys is asked for before the first is
    /// compared.
    ///
    /// # Panics
    /// Unless both slices are of one length.
    pub fn lookup_bulk(&self, keys: &[[u8; K]], values: &mut [Option<V>]) {
        assert_eq!(keys.len(), values.len(), "one place for each key's value");
        // Vectors of sixteen pay off from about four on.
        if keys.len() < 4 {
            for (key, value) in keys.iter().zip(values) {
                *value = self.lookup(key);
            }
            return;
        }
        self.kernel.lookup(self, keys, values);
    }

    /// Sets the value of `key`; returns the one it had.
    ///
    /// While the table is over half full and has not the size of its limit, an insert of a new key
    /// splits up to two buckets (at most 7 entries each) between themselves and one new bucket
    /// each. That is all there is to growth: no second table, no copy of everything.
    ///
    /// # Errors
    /// [`TableError::ExactFull`] at the limit; [`TableError::ExactCollisions`] if keys were made
    /// to collide under a known seed; [`TableError::Memory`]. The entries are as they were.
    #[inline]
    pub fn insert(&mut self, key: &[u8; K], value: V) -> Result<Option<V>, TableError> {
        self.insert_hashed(key, value, self.hash.of(key))
    }

    /// Inserts a burst, memory for which is asked for before the first is placed; returns how many
    /// keys are new. In a table beyond the caches this is several inserts at the price of one.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), for the first key that is refused; those before it are in.
    ///
    /// # Panics
    /// Unless both slices are of one length.
    pub fn insert_bulk(&mut self, keys: &[[u8; K]], values: &[V]) -> Result<usize, TableError> {
        assert_eq!(keys.len(), values.len(), "one value for each key");
        let before = self.len;
        for (keys, values) in keys.chunks(bulk::BLOCK).zip(values.chunks(bulk::BLOCK)) {
            let mut hashes = [Hash::default(); bulk::BLOCK];
            bulk::hash_each(&self.hash, keys, &mut hashes);
            let hashes = &hashes[..keys.len()];
            for &hash in hashes {
                Layout::<K, V>::fetch_tags(self.near(hash));
            }
            // Now that the tags arrive: the slot that will be compared or filled, and whether there
            // is none.
            for &hash in hashes {
                let near = self.near(hash);
                let free = Layout::<K, V>::free(near);
                let slot = match Layout::<K, V>::slot(near, hash.tag()) {
                    slot if slot < Layout::<K, V>::SLOTS => slot,
                    none => free.unwrap_or(none),
                };
                Layout::<K, V>::fetch_entry(near, slot);
                if Layout::<K, V>::has_spilled(near) || free.is_none() {
                    Layout::<K, V>::fetch(self.segments.bucket(self.spread.of(hash.second())));
                }
            }
            for ((key, &value), &hash) in keys.iter().zip(values).zip(hashes) {
                self.insert_hashed(key, value, hash)?;
            }
        }
        Ok(self.len - before)
    }

    #[inline(always)]
    fn insert_hashed(
        &mut self,
        key: &[u8; K],
        value: V,
        hash: Hash,
    ) -> Result<Option<V>, TableError> {
        let first = self.spread.of(hash.first());
        let near = self.segments.bucket_mut(first);
        let free = Layout::<K, V>::free(near);
        let slot = Layout::<K, V>::find(near, key, hash.tag());
        if (slot.is_some() || Layout::<K, V>::has_spilled(near))
            && let Some(place) = self.find(key, hash)
        {
            return Ok(Some(self.set_value_at(place, value)));
        }
        if self.len >= self.room {
            self.grow()?;
            self.place(key, value, hash)?;
        } else if let Some(slot) = free {
            let near = self.segments.bucket_mut(first);
            Layout::<K, V>::put(near, slot, hash.tag(), key, value);
        } else {
            self.place(key, value, hash)?;
        }
        self.len += 1;
        Ok(None)
    }

    /// Changes the value of `key` in place; returns the one it had.
    pub fn update(&mut self, key: &[u8; K], change: impl FnOnce(V) -> V) -> Option<V> {
        let place = self.find(key, self.hash.of(key))?;
        let new = change(self.value_at(place));
        Some(self.set_value_at(place, new))
    }

    /// Takes `key` out; returns its value.
    #[inline]
    pub fn remove(&mut self, key: &[u8; K]) -> Option<V> {
        let hash = self.hash.of(key);
        let place = self.find(key, hash)?;
        let value = self.value_at(place);
        let first = self.spread.of(hash.first());
        match place {
            Place::Slot { bucket, slot } => {
                Layout::<K, V>::clear(self.segments.bucket_mut(bucket), slot);
                if bucket != first {
                    self.unspill(first);
                }
            }
            Place::Stash(at) => {
                self.stash.swap_remove(at);
                self.unspill(first);
            }
        }
        self.len -= 1;
        self.unstash();
        Some(value)
    }

    /// Takes everything out. Buckets stay. Costs a write to every bucket.
    pub fn clear(&mut self) {
        for bucket in 0..self.spread.count() {
            let bucket = self.segments.bucket_mut(bucket);
            (0..Layout::<K, V>::SLOTS).for_each(|slot| Layout::<K, V>::clear(bucket, slot));
            Layout::<K, V>::set_spilled(bucket, 0);
        }
        self.spills.clear();
        self.stash.clear();
        self.len = 0;
    }

    /// Asks for the memory that a lookup, insert or removal of `key` soon will need.
    #[inline]
    pub fn prefetch(&self, key: &[u8; K]) {
        let hash = self.hash.of(key);
        let first = self.spread.of(hash.first());
        Layout::<K, V>::fetch(self.segments.bucket(first));
        if self.spills.has(first) {
            Layout::<K, V>::fetch(self.segments.bucket(self.spread.of(hash.second())));
        }
    }

    /// Entries that were moved from bucket to bucket so far, by growth and to make room.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether most lookups wait for memory.
    #[inline(always)]
    fn is_beyond_caches(&self) -> bool {
        self.spread.count() as usize * Layout::<K, V>::BYTES > NEAR_BYTES
    }

    /// The first bucket of a hash.
    #[inline(always)]
    fn near(&self, hash: Hash) -> &[u8] {
        self.segments.bucket(self.spread.of(hash.first()))
    }

    /// The values of keys that are nowhere else.
    #[cold]
    #[inline(never)]
    fn look_in_stash(&self, keys: &[[u8; K]], values: &mut [Option<V>]) {
        let absent = keys.iter().zip(values).filter(|(_, value)| value.is_none());
        for (key, value) in absent {
            let entry = self.stash.iter().find(|(stashed, _)| stashed == key);
            *value = entry.map(|&(_, value)| value);
        }
    }

    #[inline(always)]
    fn find(&self, key: &[u8; K], hash: Hash) -> Option<Place> {
        let bucket = self.spread.of(hash.first());
        let near = self.segments.bucket(bucket);
        if let Some(slot) = Layout::<K, V>::find(near, key, hash.tag()) {
            return Some(Place::Slot { bucket, slot });
        }
        if !Layout::<K, V>::has_spilled(near) {
            return None;
        }
        let bucket = self.spread.of(hash.second());
        let far = self.segments.bucket(bucket);
        if let Some(slot) = Layout::<K, V>::find(far, key, hash.tag()) {
            return Some(Place::Slot { bucket, slot });
        }
        let at = self.stash.iter().position(|(stashed, _)| stashed == key)?;
        Some(Place::Stash(at))
    }

    #[inline(always)]
    fn value_at(&self, place: Place) -> V {
        match place {
            Place::Slot { bucket, slot } => {
                Layout::<K, V>::value(self.segments.bucket(bucket), slot)
            }
            Place::Stash(at) => self.stash[at].1,
        }
    }

    #[inline(always)]
    fn set_value_at(&mut self, place: Place, value: V) -> V {
        let old = self.value_at(place);
        match place {
            Place::Slot { bucket, slot } => {
                Layout::<K, V>::set_value(self.segments.bucket_mut(bucket), slot, value);
            }
            Place::Stash(at) => self.stash[at].1 = value,
        }
        old
    }
}

impl<const K: usize, V> std::fmt::Debug for Exact<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exact")
            .field("name", &self.name)
            .field("len", &self.len)
            .field("limit", &self.limit)
            .field("buckets", &self.spread.count())
            .finish_non_exhaustive()
    }
}
