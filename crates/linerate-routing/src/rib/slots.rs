//! The candidates of all prefixes: a list for each, all in one array.
//!
//! A million routes are mostly a million lists of one: 16 bytes each. The prefix is not here but in
//! the trie that leads to the list's head.

use super::route::{Key, Source};
use super::targets::Id;

const NONE: u32 = u32::MAX;

/// One route of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) target: Id,
    metric: u32,
    next: u32,
    distance: u8,
    source: Source,
    /// Stale: its source has begun anew and has not repeated it yet.
    pub(super) stale: bool,
    protocol: u8,
}

const _: () = assert!(size_of::<Candidate>() == 16);

impl Candidate {
    pub(super) fn new(key: Key, target: Id) -> Self {
        Self {
            target,
            metric: key.metric,
            next: NONE,
            distance: key.distance,
            source: key.source,
            stale: false,
            protocol: key.protocol,
        }
    }

    pub(super) fn key(&self) -> Key {
        Key {
            source: self.source,
            distance: self.distance,
            metric: self.metric,
            protocol: self.protocol,
        }
    }

    /// The candidate with the lowest rank is used.
    pub(super) fn rank(&self) -> (u8, Source, u32) {
        (self.distance, self.source, self.metric)
    }
}

/// The array.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Candidate>,
    free: Vec<u32>,
}

impl Slots {
    /// A new list of one. `None` if 32-bit numbers are exhausted.
    pub(super) fn alone(&mut self, candidate: Candidate) -> Option<u32> {
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = candidate;
            return Some(free);
        }
        let number = u32::try_from(self.slots.len())
            .ok()
            .filter(|&n| n != NONE)?;
        self.slots.push(candidate);
        Some(number)
    }

    /// Drops a list of one.
    pub(super) fn drop_alone(&mut self, head: u32) {
        self.free.push(head);
    }

    /// Joins a list to the new one at `head`. Returns the candidate that it replaces.
    pub(super) fn join(&mut self, head: u32, list: u32) -> Option<Candidate> {
        let key = self.slots[head as usize].key();
        self.slots[head as usize].next = list;
        self.unlink_after(head, |candidate| key.replaces(candidate.key()))
    }

    /// Removes the kernel's copy of FRR's route at `head` from the list behind it.
    pub(super) fn take_copy(&mut self, head: u32) -> Option<Candidate> {
        self.unlink_after(head, |candidate| candidate.key().is_copy())
    }

    /// Removes from a list the candidate that one with `key` would replace. Returns the list's new
    /// head, if anything is left, and what was taken.
    pub(super) fn take(&mut self, head: u32, key: Key) -> (Option<u32>, Option<Candidate>) {
        let first = self.slots[head as usize];
        if !key.replaces(first.key()) {
            let taken = self.unlink_after(head, |candidate| key.replaces(candidate.key()));
            return (Some(head), taken);
        }
        self.free.push(head);
        (Some(first.next).filter(|&next| next != NONE), Some(first))
    }

    fn unlink_after(&mut self, head: u32, is: impl Fn(&Candidate) -> bool) -> Option<Candidate> {
        let mut before = head;
        loop {
            let at = self.slots[before as usize].next;
            if at == NONE {
                return None;
            }
            let found = self.slots[at as usize];
            if is(&found) {
                self.slots[before as usize].next = found.next;
                self.free.push(at);
                return Some(found);
            }
            before = at;
        }
    }

    /// The candidates of a list.
    pub(super) fn list(&self, head: u32) -> impl Iterator<Item = &Candidate> {
        let mut at = head;
        std::iter::from_fn(move || {
            let candidate = self.slots.get(at as usize)?;
            at = candidate.next;
            Some(candidate)
        })
    }

    /// Marks the candidates of a source in these lists.
    pub(super) fn mark_stale(&mut self, source: Source, heads: impl Iterator<Item = u32>) {
        for head in heads {
            let mut at = head;
            while let Some(candidate) = self.slots.get_mut(at as usize) {
                candidate.stale |= candidate.source == source;
                at = candidate.next;
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Candidate>() + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: Source, metric: u32) -> Key {
        Key::of(source, metric)
    }

    #[test]
    fn a_list_has_one_of_each_key() {
        let mut slots = Slots::default();
        let add = |slots: &mut Slots, list, key, target| {
            let head = slots.alone(Candidate::new(key, target)).unwrap();
            let had = slots.join(head, list);
            (head, had.map(|had| had.target))
        };
        let list = slots
            .alone(Candidate::new(key(Source::Fpm, 20), 1))
            .unwrap();
        let (list, had) = add(&mut slots, list, key(Source::Kernel, 20), 2);
        assert_eq!(had, None);
        let (list, had) = add(&mut slots, list, key(Source::Kernel, 30), 3);
        assert_eq!(had, None);
        // FRR has one route for a prefix, the kernel one for each metric.
        let (list, had) = add(&mut slots, list, key(Source::Fpm, 40), 4);
        assert_eq!(had, Some(1));
        let (list, had) = add(&mut slots, list, key(Source::Kernel, 30), 5);
        assert_eq!(had, Some(3));
        let targets: Vec<_> = slots.list(list).map(|c| c.target).collect();
        assert_eq!(targets, [5, 4, 2]);
        let (list, taken) = slots.take(list, key(Source::Kernel, 20));
        assert_eq!(taken.unwrap().target, 2);
        assert!(
            slots
                .take(list.unwrap(), key(Source::Static, 0))
                .1
                .is_none()
        );
        let (list, _) = slots.take(list.unwrap(), key(Source::Kernel, 30));
        assert_eq!(slots.take(list.unwrap(), key(Source::Fpm, 0)).0, None);
        assert_eq!(slots.free.len(), slots.slots.len());
    }
}
