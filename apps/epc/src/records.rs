//! A fixed number of records of one core, each under an identifier that names its place.
//!
//! All memory is taken at set-up. A place that became free is used again last, so identifiers that
//! are over stay so for long.

use crate::{Cores, EpcError, ids::IdSpace};
use linerate_core::mem::HugeArray;

const NIL: u32 = u32::MAX;

struct Entry<T> {
    /// 0: the place is free.
    id: u32,
    uses: u32,
    next_free: u32,
    value: T,
}

/// Records of type `T`, found by identifier.
pub struct Records<T> {
    space: IdSpace,
    entries: HugeArray<Entry<T>>,
    /// The places that are free, first to last.
    free: (u32, u32),
    len: usize,
}

impl<T: Copy + Default> Records<T> {
    /// Room for `capacity` records on `core`.
    ///
    /// # Errors
    /// As [`IdSpace::new`]; no memory.
    pub fn new(
        name: &str,
        capacity: usize,
        cores: Cores,
        core: u8,
        secret: u64,
    ) -> Result<Self, EpcError> {
        let space = IdSpace::new(cores, core, capacity, secret)?;
        let entries = HugeArray::from_fn(name, capacity, |index| Entry {
            id: 0,
            uses: 0,
            next_free: match index + 1 {
                next if next < capacity => next as u32,
                _ => NIL,
            },
            value: T::default(),
        })?;
        let free = match capacity {
            0 => (NIL, NIL),
            _ => (0, capacity as u32 - 1),
        };
        Ok(Self {
            space,
            entries,
            free,
            len: 0,
        })
    }

    /// How the identifiers are made.
    pub fn space(&self) -> IdSpace {
        self.space
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there can be.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// All memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.region().len()
    }

    /// Takes a place; `None` when all are taken.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let index = self.free.0;
        let entry = self.entries.get_mut(index as usize)?;
        self.free.0 = entry.next_free;
        if self.free.0 == NIL {
            self.free.1 = NIL;
        }
        entry.uses = entry.uses.wrapping_add(1);
        entry.id = self.space.id(index, entry.uses);
        entry.value = value;
        self.len += 1;
        Some(entry.id)
    }

    /// The record of that identifier, if it is current.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        let entry = self.entries.get(self.space.index(id) as usize)?;
        (entry.id == id && id != 0).then_some(&entry.value)
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let entry = self.entries.get_mut(self.space.index(id) as usize)?;
        (entry.id == id && id != 0).then_some(&mut entry.value)
    }

    /// Whichever record is at a place.
    #[inline]
    pub fn at(&self, index: usize) -> Option<(u32, &T)> {
        let entry = self.entries.get(index)?;
        (entry.id != 0).then_some((entry.id, &entry.value))
    }

    /// The place of a record.
    pub fn index(&self, id: u32) -> usize {
        self.space.index(id) as usize
    }

    /// Gives a place back.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let value = *self.get(id)?;
        let index = self.space.index(id);
        let entry = &mut self.entries[index as usize];
        (entry.id, entry.next_free) = (0, NIL);
        match self.free.1 {
            NIL => self.free.0 = index,
            last => self.entries[last as usize].next_free = index,
        }
        self.free.1 = index;
        self.len -= 1;
        Some(value)
    }

    /// All records with their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let used = self.entries.iter().filter(|entry| entry.id != 0);
        used.map(|entry| (entry.id, &entry.value))
    }
}

/// A search through all places of records. One that is begun again goes on from where it is, once
/// around: however often that is, every place has its turn.
pub(crate) struct Search {
    places: usize,
    next: usize,
    left: usize,
}

impl Search {
    /// Through so many places, not begun.
    pub(crate) fn new(places: usize) -> Self {
        let (next, left) = (0, 0);
        Self { places, next, left }
    }

    /// All places are to be looked at.
    pub(crate) fn begin(&mut self) {
        self.left = self.places;
    }

    /// Whether some are to be looked at yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// The next place; `None`: all have been looked at.
    pub(crate) fn step(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next = (at + 1) % self.places;
        Some(at)
    }

    /// That place is to be looked at again, first.
    pub(crate) fn step_back(&mut self, at: usize) {
        self.next = at;
        self.left = (self.left + 1).min(self.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_last_and_under_other_identifiers() {
        let cores = Cores::new(3).unwrap();
        let mut records = Records::<u8>::new("test", 3, cores, 2, 99).unwrap();
        let ids: Vec<u32> = (0..3).map(|n| records.insert(n).unwrap()).collect();
        assert_eq!(records.insert(9), None);
        assert_eq!(records.get(ids[1]), Some(&1));
        assert_eq!(records.remove(ids[1]), Some(1));
        assert_eq!(records.get(ids[1]), None);
        assert_eq!(records.remove(ids[1]), None);
        assert_eq!(records.remove(ids[0]), Some(0));
        let again = records.insert(7).unwrap();
        assert_eq!(records.index(again), records.index(ids[1]));
        assert_ne!(again, ids[1]);
        *records.get_mut(again).unwrap() += 1;
        assert_eq!(records.at(1), Some((again, &8)));
        assert_eq!((records.len(), records.iter().count()), (2, 2));
        assert_eq!((records.get(0), records.get(u32::MAX)), (None, None));
        assert_eq!(records.remove(again), Some(8));
        assert_eq!(records.remove(ids[2]), Some(2));
        assert!(records.is_empty());
        assert!((0..3).all(|n| records.insert(n).is_some()));
    }
}
