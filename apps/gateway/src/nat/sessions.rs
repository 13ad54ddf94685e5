//! Sessions of NAT64 (RFC 6146 3.2): which IPv4 flow an IPv6 flow is outside.
//!
//! Tracking, policy and time know the IPv6 flow alone, which is like any that is not translated. A
//! packet that leaves gets the addresses and ports of its session outside; one that comes from
//! there gets those inside, and is a packet of the IPv6 flow from then on.

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::FlowKey;

use super::Tuple;
use super::chain::{Chains, NONE};

/// A session: both tuples go from the host inside to the one outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// From the host to an IPv4 address behind the prefix.
    pub inside: Tuple,
    /// From an address of a pool.
    pub outside: Tuple,
    pub bucket: u8,
}

/// The sessions of one bucket, on the way to another worker.
#[derive(Debug, Default)]
pub struct BucketSessions(Vec<Session>);

/// The sessions of one worker.
pub struct Sessions {
    all: Chains<Session>,
    buckets: Box<[u32; 256]>,
    by6: Exact<40, u32>,
    by4: Exact<16, u32>,
}

impl Sessions {
    /// Room for so many, which it grows to.
    ///
    /// # Errors
    /// Those of [`Exact::new`].
    pub fn new(limit: usize, seed: Seed) -> Result<Self, TableError> {
        let config = |name: &str| ExactConfig::new(name, limit, seed);
        Ok(Self {
            all: Chains::new(),
            buckets: Box::new([NONE; 256]),
            by6: Exact::new(&config("NAT64 sessions"))?,
            by4: Exact::new(&config("NAT64 sessions of IPv4"))?,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a session; false where there is no room, or another has one of its tuples.
    pub fn insert(&mut self, session: Session) -> bool {
        let keys = (session.inside.key(), session.outside.key());
        let (Some(FlowKey::V6(inside)), Some(FlowKey::V4(outside))) = keys else {
            return false;
        };
        if self.by6.lookup(&inside.0).is_some() || self.by4.lookup(&outside.0).is_some() {
            return false;
        }
        let first = &mut self.buckets[usize::from(session.bucket)];
        let place = self.all.push(first, session);
        let done = self.by6.insert(&inside.0, place);
        let done = done.and_then(|_| self.by4.insert(&outside.0, place));
        if done.is_err() {
            self.by6.remove(&inside.0);
            self.all.remove(first, place);
        }
        done.is_ok()
    }

    /// The session of packets that go out with this tuple.
    #[inline]
    pub fn of(&self, inside: &Tuple) -> Option<&Session> {
        let Some(FlowKey::V6(key)) = inside.key() else {
            return None;
        };
        self.all.get(self.by6.lookup(&key.0)?)
    }

    /// The session of packets that go out as this tuple.
    #[inline]
    pub fn at(&self, outside: &Tuple) -> Option<&Session> {
        let Some(FlowKey::V4(key)) = outside.key() else {
            return None;
        };
        self.all.get(self.by4.lookup(&key.0)?)
    }

    /// Takes a session out.
    pub fn remove(&mut self, inside: &Tuple) -> Option<Session> {
        let Some(FlowKey::V6(key)) = inside.key() else {
            return None;
        };
        let place = self.by6.lookup(&key.0)?;
        let bucket = self.all.get(place)?.bucket;
        let first = &mut self.buckets[usize::from(bucket)];
        let session = self.all.remove(first, place)?;
        self.by6.remove(&key.0);
        if let Some(FlowKey::V4(outside)) = session.outside.key() {
            self.by4.remove(&outside.0);
        }
        Some(session)
    }

    /// Takes the sessions of a bucket out, for another worker.
    pub fn take_bucket(&mut self, bucket: u8) -> BucketSessions {
        let list = self.all.list(self.buckets[usize::from(bucket)]);
        let sessions: Vec<Session> = list.copied().collect();
        for session in &sessions {
            self.remove(&session.inside);
        }
        BucketSessions(sessions)
    }

    /// Puts in what [`take_bucket`](Self::take_bucket) of another worker took out; how many had no
    /// room: packets of those are dropped until their flows end.
    pub fn put_bucket(&mut self, sessions: BucketSessions) -> usize {
        let refused = sessions.0.into_iter().filter(|one| !self.insert(*one));
        refused.count()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.all.memory_bytes() + self.by6.memory_bytes() + self.by4.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::testing::tuple;

    fn session(port: u16) -> Session {
        Session {
            inside: tuple(
                &format!("[2001:db8::1]:{port}"),
                "[64:ff9b::c000:201]:80",
                6,
            ),
            outside: tuple(&format!("198.51.100.1:{port}"), "192.0.2.1:80", 6),
            bucket: port as u8 % 4,
        }
    }

    #[test]
    fn a_session_is_found_from_both_sides_and_moves_with_its_bucket() {
        let mut here = Sessions::new(100, Seed(1)).unwrap();
        assert!(here.is_empty());
        for port in 0..8 {
            assert!(here.insert(session(port)));
        }
        let other = Session {
            inside: session(99).inside,
            ..session(1)
        };
        assert!(!here.insert(other) && !here.insert(session(2)));
        assert_eq!(here.of(&session(3).inside), Some(&session(3)));
        assert_eq!(here.at(&session(3).outside), Some(&session(3)));
        assert_eq!(here.remove(&session(3).inside), Some(session(3)));
        assert!(here.at(&session(3).outside).is_none() && here.len() == 7);
        let mut there = Sessions::new(100, Seed(2)).unwrap();
        assert_eq!(there.put_bucket(here.take_bucket(2)), 0);
        assert_eq!((here.len(), there.len()), (5, 2));
        assert_eq!(there.at(&session(6).outside), Some(&session(6)));
        assert!(there.memory_bytes() > 0);
    }
}
