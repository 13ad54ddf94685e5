//! Calls between hosts inside that the other side has not answered for yet.
//!
//! A packet from one host inside to the outside of another has left, as far as its own mapping is
//! concerned, whatever the other's filter says: so the mapping remembers whom it was for, and lets
//! the other side in (RFC 4787 REQ-8, REQ-9; RFC 5382 REQ-3, REQ-8). Without this two hosts that
//! call each other would wait for each other for ever. A call is no flow: it passes nothing. What
//! its flow would have held it holds, for as long as that flow would have lived without an answer.

use std::collections::VecDeque;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

use super::Tuple;
use super::bits::Bits;
use super::chain::{Chains, NONE};
use super::mapping::octets;
use super::translate::Held;

/// How long a call waits, in ms: RFC 5382 REQ-5, and more than RFC 4787 REQ-5 asks for.
pub const WAIT_MS: u64 = 240_000;
/// Calls that wait at most.
pub const MOST_CALLS: usize = 4096;

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its first packet, as it came.
    pub original: Tuple,
    /// What that would have become.
    pub translated: Tuple,
    /// Where it came in.
    pub zone: u16,
    pub held: Held,
    pub bucket: u8,
    /// When it is given up, in ms.
    pub until: u64,
}

/// The calls of one worker.
pub struct Calls {
    all: Chains<Call>,
    first: u32,
    places: Exact<40, u32>,
    /// Places with the time at which to look at them, the next one first.
    due: VecDeque<(u64, u32)>,
}

fn key(original: &Tuple, zone: u16) -> [u8; 40] {
    let mut key = [0; 40];
    key[..16].copy_from_slice(&octets(original.src.address));
    key[16..32].copy_from_slice(&octets(original.dst.address));
    key[32..34].copy_from_slice(&original.src.port.to_be_bytes());
    key[34..36].copy_from_slice(&original.dst.port.to_be_bytes());
    key[36..38].copy_from_slice(&zone.to_be_bytes());
    key[38] = original.protocol;
    key
}

impl Calls {
    /// # Errors
    /// There is no memory.
    pub fn new(seed: Seed) -> Result<Self, TableError> {
        Ok(Self {
            all: Chains::new(),
            first: NONE,
            places: Exact::new(&ExactConfig::new("NAT calls", MOST_CALLS, seed))?,
            due: VecDeque::new(),
        })
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a host has called so.
    pub fn has(&self, original: &Tuple, zone: u16) -> bool {
        !self.is_empty() && self.places.lookup(&key(original, zone)).is_some()
    }

    /// The call of a host.
    pub fn of(&self, original: &Tuple, zone: u16) -> Option<&Call> {
        self.all.get(self.places.lookup(&key(original, zone))?)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.all.iter()
    }

    /// A host has called once more: whether that is known already.
    pub fn again(&mut self, original: &Tuple, zone: u16, until: u64) -> bool {
        let known = self.places.lookup(&key(original, zone));
        let Some(call) = known.and_then(|at| self.all.get_mut(at)) else {
            return false;
        };
        call.until = until;
        true
    }

    /// Adds a call; false where there is no room.
    pub fn add(&mut self, call: Call) -> bool {
        if self.len() >= MOST_CALLS {
            return false;
        }
        let at = self.all.push(&mut self.first, call);
        let key = key(&call.original, call.zone);
        if self.places.insert(&key, at).is_err() {
            self.all.remove(&mut self.first, at);
            return false;
        }
        self.due.push_back((call.until, at));
        true
    }

    /// The next call whose time is over; it is no call any more.
    pub fn expired(&mut self, now_ms: u64) -> Option<Call> {
        while let Some(&(due, at)) = self.due.front()
            && due <= now_ms
        {
            self.due.pop_front();
            match self.all.get(at).map(|call| call.until) {
                Some(until) if until > now_ms => self.due.push_back((until, at)),
                _ => return self.remove(at),
            }
        }
        None
    }

    /// Takes out a call of these buckets, which another worker gets.
    pub fn take(&mut self, buckets: &Bits) -> Option<Call> {
        let is_its = |call: &Call| buckets.has(call.bucket);
        let at = (self.due.iter()).position(|&(_, at)| self.all.get(at).is_some_and(is_its))?;
        let (_, at) = self.due.remove(at)?;
        self.remove(at)
    }

    /// Ends the calls that `is_lost` names: what they held has gone.
    pub fn lose(&mut self, is_lost: impl Fn(&Call) -> bool) {
        let mut due = std::mem::take(&mut self.due);
        due.retain(|(_, at)| {
            let is_lost = self.all.get(*at).is_some_and(&is_lost);
            if is_lost {
                self.remove(*at);
            }
            !is_lost
        });
        self.due = due;
    }

    fn remove(&mut self, at: u32) -> Option<Call> {
        let call = self.all.remove(&mut self.first, at)?;
        self.places.remove(&key(&call.original, call.zone));
        Some(call)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let due = self.due.capacity() * size_of::<(u64, u32)>();
        self.all.memory_bytes() + self.places.memory_bytes() + due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::testing::tuple;

    fn call(port: u16, until: u64) -> Call {
        let original = tuple(&format!("10.0.0.1:{port}"), "198.51.100.1:6000", 17);
        Call {
            original,
            translated: original,
            zone: 1,
            held: Held::NOTHING,
            bucket: port as u8 % 4,
            until,
        }
    }

    #[test]
    fn calls_end_in_time_and_later_if_they_are_made_again() {
        let mut calls = Calls::new(Seed(1)).unwrap();
        for port in 1..=3 {
            assert!(calls.add(call(port, 10 * u64::from(port))));
        }
        assert!(calls.has(&call(1, 0).original, 1) && !calls.has(&call(1, 0).original, 2));
        assert!(calls.again(&call(1, 0).original, 1, 35));
        assert!(!calls.again(&call(9, 0).original, 1, 35));
        assert!(calls.expired(19).is_none());
        assert_eq!(calls.expired(20).unwrap().original.src.port, 2);
        let mut three = Bits::NONE;
        three.set(3);
        assert_eq!(calls.take(&three).unwrap().original.src.port, 3);
        assert!(calls.take(&three).is_none() && calls.expired(34).is_none());
        assert_eq!(calls.expired(35).unwrap().original.src.port, 1);
        assert!(calls.is_empty() && calls.expired(1000).is_none());
        assert!(calls.memory_bytes() > 0);
    }

    #[test]
    fn there_is_a_most_number_of_them() {
        let mut calls = Calls::new(Seed(1)).unwrap();
        for port in 0..MOST_CALLS {
            assert!(calls.add(call(port as u16, 10)));
        }
        assert!(!calls.add(call(9999, 10)) && calls.len() == MOST_CALLS);
    }
}
