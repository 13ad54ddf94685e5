//! Requests that wait for an answer: their sequence numbers, and when to send them again.
//!
//! TS 29.274 7.6: a request is sent again each time T3-RESPONSE passes without an answer, at most
//! N3-REQUESTS times, under the same sequence number; then the peer counts as not responding. The
//! message itself is kept by who sent it, by [`Pending::slot`].

use crate::{Cores, EpcError, ids::SequenceSpace};
use linerate_tables::wheel::Wheel;

const NIL: u32 = u32::MAX;

/// How long an answer may take, and how often the request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// T3-RESPONSE, in milliseconds.
    pub timeout_ms: u32,
    /// N3-REQUESTS: how often it is sent again.
    pub again: u8,
}

#[derive(Clone, Copy)]
struct Entry<P> {
    /// 0: the slot is free.
    sequence: u32,
    uses: u32,
    next_free: u32,
    timeout_ms: u32,
    left: u8,
    value: P,
}

/// A request whose answer did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue<P> {
    /// Its sequence number.
    pub sequence: u32,
    /// What it was begun with.
    pub value: P,
    /// It is to be sent again; otherwise it is over.
    pub again: bool,
}

/// The requests in flight of one core.
pub struct Pending<P> {
    space: SequenceSpace,
    entries: Box<[Entry<P>]>,
    free: (u32, u32),
    wheel: Wheel,
    len: usize,
}

impl<P: Copy + Default> Pending<P> {
    /// Room for `capacity` requests of `core`.
    ///
    /// # Errors
    /// As [`SequenceSpace::new`]; no memory.
    pub fn new(
        name: &str,
        capacity: usize,
        cores: Cores,
        core: u8,
        now_ms: u64,
    ) -> Result<Self, EpcError> {
        let space = SequenceSpace::new(cores, core, capacity)?;
        let entry = |index: usize| Entry {
            sequence: 0,
            uses: 0,
            next_free: match index + 1 {
                next if next < capacity => next as u32,
                _ => NIL,
            },
            timeout_ms: 0,
            left: 0,
            value: P::default(),
        };
        let free = match capacity {
            0 => (NIL, NIL),
            _ => (0, capacity as u32 - 1),
        };
        Ok(Self {
            space,
            entries: (0..capacity).map(entry).collect(),
            free,
            wheel: Wheel::new(name, capacity, now_ms)?,
            len: 0,
        })
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Begins to wait; returns the sequence number, which is not 0. `None` when all slots wait.
    pub fn begin(&mut self, now_ms: u64, patience: Patience, value: P) -> Option<u32> {
        let slot = self.free.0;
        let entry = self.entries.get_mut(slot as usize)?;
        self.free.0 = entry.next_free;
        if self.free.0 == NIL {
            self.free.1 = NIL;
        }
        entry.uses = entry.uses.wrapping_add(1);
        entry.sequence = self.space.sequence(slot, entry.uses);
        if entry.sequence == 0 {
            entry.uses = entry.uses.wrapping_add(1);
            entry.sequence = self.space.sequence(slot, entry.uses);
        }
        entry.timeout_ms = patience.timeout_ms;
        (entry.left, entry.value) = (patience.again, value);
        self.wheel
            .schedule(slot, now_ms + u64::from(patience.timeout_ms));
        self.len += 1;
        Some(entry.sequence)
    }

    /// The place of a request, below the capacity, whether or not it still waits.
    #[inline]
    pub fn slot(&self, sequence: u32) -> usize {
        let slot = self.space.slot(sequence) as usize;
        slot.min(self.entries.len().saturating_sub(1))
    }

    /// What a request was begun with, if it still waits.
    #[inline]
    pub fn get(&self, sequence: u32) -> Option<P> {
        let entry = self.entries.get(self.space.slot(sequence) as usize)?;
        (entry.sequence == sequence && sequence != 0).then_some(entry.value)
    }

    /// Ends the wait: the answer came, or nobody wants it any more.
    #[inline]
    pub fn end(&mut self, sequence: u32) -> Option<P> {
        let value = self.get(sequence)?;
        let slot = self.space.slot(sequence);
        self.wheel.cancel(slot);
        self.release(slot);
        Some(value)
    }

    fn release(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        (entry.sequence, entry.next_free) = (0, NIL);
        match self.free.1 {
            NIL => self.free.0 = slot,
            last => self.entries[last as usize].next_free = slot,
        }
        self.free.1 = slot;
        self.len -= 1;
    }

    /// The next request that is overdue; every step takes one of `budget`.
    pub fn poll(&mut self, now_ms: u64, budget: &mut usize) -> Option<Overdue<P>> {
        let (slot, _) = self.wheel.pop(now_ms, budget)?;
        let entry = &mut self.entries[slot as usize];
        let overdue = Overdue {
            sequence: entry.sequence,
            value: entry.value,
            again: entry.left > 0,
        };
        if entry.left > 0 {
            entry.left -= 1;
            self.wheel
                .schedule(slot, now_ms + u64::from(entry.timeout_ms));
        } else {
            self.release(slot);
        }
        Some(overdue)
    }

    /// When [`poll`](Self::poll) has something to do, in milliseconds: not later.
    pub fn next_ms(&self) -> Option<u64> {
        self.wheel.next_expiry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T3: Patience = Patience {
        timeout_ms: 3000,
        again: 2,
    };

    #[test]
    fn ts_29_274_7_6_a_request_is_sent_again_n3_times() {
        let cores = Cores::new(1).unwrap();
        let mut pending = Pending::<u8>::new("test", 2, cores, 0, 0).unwrap();
        let sequence = pending.begin(100, T3, 7).unwrap();
        for (now, again) in [(3100, true), (6100, true), (9100, false)] {
            let mut budget = 64;
            assert_eq!(pending.poll(now - 1, &mut budget), None);
            let overdue = pending.poll(now, &mut budget).unwrap();
            assert_eq!((overdue.sequence, overdue.value), (sequence, 7));
            assert_eq!(overdue.again, again);
        }
        assert!(pending.is_empty() && pending.get(sequence).is_none());
        assert_eq!((pending.end(sequence), pending.next_ms()), (None, None));
    }

    #[test]
    fn slots_and_numbers_come_back() {
        let cores = Cores::new(2).unwrap();
        let mut pending = Pending::<u8>::new("test", 2, cores, 1, 0).unwrap();
        let first = pending.begin(0, T3, 1).unwrap();
        let second = pending.begin(0, T3, 2).unwrap();
        assert_eq!(pending.begin(0, T3, 3), None);
        assert_eq!(pending.end(first), Some(1));
        let third = pending.begin(0, T3, 3).unwrap();
        assert_ne!(first, third);
        assert_eq!((pending.get(first), pending.get(third)), (None, Some(3)));
        assert_eq!(
            (pending.end(second), pending.end(third)),
            (Some(2), Some(3))
        );
        let mut budget = 64;
        assert_eq!(pending.poll(1_000_000, &mut budget), None);
    }
}
