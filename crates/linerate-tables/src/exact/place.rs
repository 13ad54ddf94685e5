//! Finding room: splits, spills, and entries that move over.

use super::hash::Hash;
use super::layout::{Layout, Value};
use super::reach::{Buckets, make_room};
use super::{Exact, SPLITS};
use crate::TableError;

/// Entries without a place in reach before an insert is refused.
pub(super) const STASH: usize = 16;

impl<const K: usize, V: Value> Buckets for Exact<K, V> {
    const SLOTS: usize = Layout::<K, V>::SLOTS;

    fn free(&self, bucket: u32) -> Option<usize> {
        Layout::<K, V>::free(self.segments.bucket(bucket))
    }

    fn other(&self, bucket: u32, slot: usize) -> Option<u32> {
        let hash = self.hash_at(bucket, slot)?;
        let first = self.spread.of(hash.first());
        Some(match bucket == first {
            true => self.spread.of(hash.second()),
            false => first,
        })
    }

    fn change_over(&mut self, from: (u32, usize), to: (u32, usize)) {
        if let Some(hash) = self.hash_at(from.0, from.1) {
            let first = self.spread.of(hash.first());
            self.shift(from.0, from.1, to.0, to.1);
            match from.0 == first {
                true => self.spill(first),
                false => self.unspill(first),
            }
        }
    }
}

impl<const K: usize, V: Value> Exact<K, V> {
    /// Splits as many buckets as the next entry asks for, at most [`SPLITS`].
    #[inline(never)]
    pub(super) fn grow(&mut self) -> Result<(), TableError> {
        if self.len == self.limit {
            return Err(TableError::ExactFull {
                name: self.name.clone(),
                limit: self.limit,
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

    /// Sets for how many entries there is room without growth: half of the slots, for in a fuller
    /// table inserts have to move others. At the limit it is three quarters.
    pub(super) fn measure(&mut self) {
        self.room = match self.spread.count() < self.most {
            true => (self.spread.count() as usize * Layout::<K, V>::SLOTS / 2).min(self.limit),
            false => self.limit,
        };
    }

    /// One bucket more: the entries of the next one in turn that belong to it move over.
    fn split(&mut self) -> Result<(), TableError> {
        let (source, fresh) = (self.spread.next_split(), self.spread.count());
        self.segments.reach(&self.name, fresh + 1)?;
        self.spread.grow();
        // Those that spilled from the source now belong to either: both count them all.
        let spilled = Layout::<K, V>::spilled(self.segments.bucket(source));
        self.set_spilled(fresh, spilled);
        let mut free = 0;
        for slot in 0..Layout::<K, V>::SLOTS {
            if let Some(hash) = self.hash_at(source, slot)
                && self.spread.home(hash, source) == fresh
            {
                self.shift(source, slot, fresh, free);
                free += 1;
            }
        }
        self.unstash();
        Ok(())
    }

    /// The hash of the entry in a slot.
    fn hash_at(&self, bucket: u32, slot: usize) -> Option<Hash> {
        let bucket = self.segments.bucket(bucket);
        let taken = Layout::<K, V>::is_taken(bucket, slot);
        taken.then(|| self.hash.of(Layout::<K, V>::key(bucket, slot)))
    }

    /// Moves an entry into a free slot of another bucket.
    pub(super) fn shift(&mut self, from: u32, from_slot: usize, to: u32, to_slot: usize) {
        let bucket = self.segments.bucket_mut(from);
        let tag = Layout::<K, V>::tag(bucket, from_slot);
        let key = *Layout::<K, V>::key(bucket, from_slot);
        let value = Layout::<K, V>::value(bucket, from_slot);
        Layout::<K, V>::clear(bucket, from_slot);
        Layout::<K, V>::put(self.segments.bucket_mut(to), to_slot, tag, &key, value);
        self.moved += 1;
    }

    /// Puts a new entry into its first bucket, else its second, else moves others over, else into
    /// the stash.
    #[inline(always)]
    pub(super) fn place(&mut self, key: &[u8; K], value: V, hash: Hash) -> Result<(), TableError> {
        let first = self.spread.of(hash.first());
        let near = self.segments.bucket_mut(first);
        if let Some(slot) = Layout::<K, V>::free(near) {
            Layout::<K, V>::put(near, slot, hash.tag(), key, value);
            return Ok(());
        }
        let second = self.spread.of(hash.second());
        let far = self.segments.bucket_mut(second);
        if let Some(slot) = Layout::<K, V>::free(far) {
            Layout::<K, V>::put(far, slot, hash.tag(), key, value);
            self.spill(first);
            return Ok(());
        }
        self.force(key, value, hash)
    }

    /// [`place`](Self::place), with both buckets full.
    #[cold]
    fn force(&mut self, key: &[u8; K], value: V, hash: Hash) -> Result<(), TableError> {
        let first = self.spread.of(hash.first());
        let second = self.spread.of(hash.second());
        if let Some((bucket, slot)) = make_room(self, first, second) {
            let bytes = self.segments.bucket_mut(bucket);
            Layout::<K, V>::put(bytes, slot, hash.tag(), key, value);
            if bucket != first {
                self.spill(first);
            }
            return Ok(());
        }
        if self.stash.len() == STASH {
            return Err(TableError::ExactCollisions {
                name: self.name.clone(),
                entries: self.len,
            });
        }
        self.stash.push((*key, value));
        self.spill(first);
        Ok(())
    }

    /// One entry more of this bucket lives elsewhere. 255 means: unknown.
    fn spill(&mut self, first: u32) {
        let count = Layout::<K, V>::spilled(self.segments.bucket(first));
        self.set_spilled(first, count.saturating_add(1));
    }

    /// One less.
    pub(super) fn unspill(&mut self, first: u32) {
        let count = Layout::<K, V>::spilled(self.segments.bucket(first));
        if count != u8::MAX {
            self.set_spilled(first, count - 1);
        }
    }

    fn set_spilled(&mut self, bucket: u32, count: u8) {
        Layout::<K, V>::set_spilled(self.segments.bucket_mut(bucket), count);
        self.spills.set(bucket, count != 0);
    }

    /// Gives one entry of the stash another try, after something changed.
    #[inline]
    pub(super) fn unstash(&mut self) {
        if let Some((key, value)) = self.stash.pop() {
            let hash = self.hash.of(&key);
            self.unspill(self.spread.of(hash.first()));
            self.place(&key, value, hash)
                .expect("the stash has room for what came from it");
        }
    }
}
