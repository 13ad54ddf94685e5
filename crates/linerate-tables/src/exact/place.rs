//! Finding room: splits, spills, and entries that move over.

use super::hash::Hash;
use super::layout::{Layout, Value};
use super::{Exact, SPLITS};
use crate::TableError;

/// Buckets that are read at most to find a free slot.
const REACH: usize = 128;
/// Entries without a place in reach before an insert is refused.
pub(super) const STASH: usize = 16;

/// A bucket that would gain a free slot if the entry in `slot` of its parent moved into it.
#[derive(Clone, Copy)]
struct Step {
    bucket: u32,
    parent: u8,
    slot: u8,
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

    /// Sets for how many entries there is room without growth: three quarters of the slots.
    pub(super) fn measure(&mut self) {
        self.room = match self.spread.count() < self.most {
            true => (self.spread.count() as usize * Layout::<K, V>::SLOTS * 3 / 4).min(self.limit),
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
        Layout::<K, V>::set_spilled(self.segments.bucket_mut(fresh), spilled);
        let mut free = 0;
        for slot in 0..Layout::<K, V>::SLOTS {
            if let Some(hash) = self.hash_at(source, slot)
                && self.home(hash, source) == fresh
            {
                self.shift(source, slot, fresh, free);
                free += 1;
            }
        }
        self.unstash();
        Ok(())
    }

    /// After a split: where an entry of the old bucket `source` belongs.
    fn home(&self, hash: Hash, source: u32) -> u32 {
        let (first, second) = (self.spread.of(hash.first()), self.spread.of(hash.second()));
        let fresh = self.spread.count() - 1;
        // Its first bucket, if that was this one; else it is here for its second.
        if first == source || first == fresh {
            first
        } else {
            second
        }
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
        if let Some((bucket, slot)) = self.make_room(first, second) {
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

    /// Breadth first from both buckets: the shortest chain of entries that can each move over to
    /// their other bucket. Moves them; returns the slot that this frees.
    fn make_room(&mut self, first: u32, second: u32) -> Option<(u32, usize)> {
        let root = |bucket| Step {
            bucket,
            parent: 0,
            slot: 0,
        };
        let mut steps = [root(first); REACH];
        steps[1] = root(second);
        let mut known = 2;
        for at in 0..REACH {
            if at == known {
                return None;
            }
            for slot in 0..Layout::<K, V>::SLOTS {
                let bucket = steps[at].bucket;
                let other = self.other(bucket, slot)?;
                if other == bucket {
                    continue;
                }
                if let Some(free) = Layout::<K, V>::free(self.segments.bucket(other)) {
                    return Some(self.walk(&steps, at, slot, (other, free)));
                }
                if known < REACH {
                    steps[known] = Step {
                        bucket: other,
                        parent: at as u8,
                        slot: slot as u8,
                    };
                    known += 1;
                }
            }
        }
        None
    }

    /// Moves the entries of a chain, the last one first.
    fn walk(
        &mut self,
        steps: &[Step; REACH],
        mut at: usize,
        mut slot: usize,
        mut free: (u32, usize),
    ) -> (u32, usize) {
        loop {
            let bucket = steps[at].bucket;
            if let Some(hash) = self.hash_at(bucket, slot) {
                let first = self.spread.of(hash.first());
                self.shift(bucket, slot, free.0, free.1);
                match bucket == first {
                    true => self.spill(first),
                    false => self.unspill(first),
                }
            }
            free = (bucket, slot);
            if at < 2 {
                return free;
            }
            slot = steps[at].slot.into();
            at = steps[at].parent.into();
        }
    }

    /// The other bucket of the entry in a slot.
    fn other(&self, bucket: u32, slot: usize) -> Option<u32> {
        let hash = self.hash_at(bucket, slot)?;
        let first = self.spread.of(hash.first());
        Some(match bucket == first {
            true => self.spread.of(hash.second()),
            false => first,
        })
    }

    /// One entry more of this bucket lives elsewhere. 255 means: nobody knows how many.
    fn spill(&mut self, first: u32) {
        let bucket = self.segments.bucket_mut(first);
        let count = Layout::<K, V>::spilled(bucket).saturating_add(1);
        Layout::<K, V>::set_spilled(bucket, count);
    }

    /// One less.
    pub(super) fn unspill(&mut self, first: u32) {
        let bucket = self.segments.bucket_mut(first);
        let count = Layout::<K, V>::spilled(bucket);
        if count != u8::MAX {
            Layout::<K, V>::set_spilled(bucket, count - 1);
        }
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
