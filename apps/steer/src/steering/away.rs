//! Connections that have left this lcore: packets of theirs that still come go after them.
//!
//! 1. The owner gives a connection away: from then on it passes packets on through the ring to the
//!    new owner, behind the connection itself.
//! 2. The new owner tells the homes.
//! 3. Each home says to the old owner that it sends no more ([`Note::Moved`]).
//! 4. The old owner says the same to the new one, behind the last packet that it has passed on
//!    ([`Note::Drained`]), and forgets the connection.
//!
//! An owner that gives a connection on before its own former owner has said so passes packets on
//! until it has, as well. So none comes to an lcore that has forgotten where its connection is,
//! however fast it moves. Words that were lost in a full ring leave an entry, which goes when no
//! packet has come for a minute.
//!
//! [`Note::Moved`]: super::note::Note::Moved
//! [`Note::Drained`]: super::note::Note::Drained

use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{First, FlowConfig, FlowTable, FlowTable4, FlowTable6, State};
use linerate_wire::FlowKey;

use super::plan::Member;

/// Milliseconds without a packet.
const TIMEOUT_MS: u64 = 60_000;
/// Timers that one poll handles.
const BUDGET: usize = 32;

/// What is outstanding of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// Where it is; [`HERE`]: it has come (back).
    to: Member,
    /// Words of homes, for each time that it has left.
    homes: u16,
    /// Words of former owners, for each time that it has come.
    owners: u16,
}

/// No lcore has this number, since plans count them.
const HERE: Member = Member::MAX;

impl Default for Left {
    fn default() -> Self {
        Self {
            to: HERE,
            homes: 0,
            owners: 0,
        }
    }
}

/// The connections that have left, or come, of which packets are under way.
pub struct Away {
    v4: FlowTable4<Left>,
    v6: FlowTable6<Left>,
}

impl Away {
    /// Room for so many of each family.
    ///
    /// # Errors
    /// There is no memory, or the size is 0 or too large.
    pub fn new(connections: usize) -> Result<Self, TableError> {
        let config = FlowConfig {
            name: "away".into(),
            flows: connections,
            states: vec![State {
                name: "away",
                timeout: TIMEOUT_MS,
                most: None,
            }],
            bidirectional: false,
            translated: 0,
            per_owner: None,
            per_zone: Vec::new(),
            evict: None,
            seed: Seed::random(),
        };
        Ok(Self {
            v4: FlowTable::new(&config, 0)?,
            v6: FlowTable::new(&config, 0)?,
        })
    }

    /// Whether no packets of such are.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// A connection leaves for an lcore; `homes` will say that they know. False if there is no
    /// room: it has to stay.
    pub fn leave(&mut self, now: u64, key: &FlowKey, to: Member, homes: u16) -> bool {
        match self.record(now, key) {
            Some(left) => {
                left.to = to;
                left.homes = left.homes.saturating_add(homes);
                true
            }
            None => false,
        }
    }

    /// A connection has come here, whose former owner will say that it passes no more on. Returns
    /// to whom this lcore has passed its packets on until now, who has to hear that this is over.
    pub fn arrive(&mut self, now: u64, key: &FlowKey) -> Option<Member> {
        // Without room nobody waits for that word.
        let left = self.record(now, key)?;
        left.owners = left.owners.saturating_add(1);
        let before = std::mem::replace(&mut left.to, HERE);
        Some(before).filter(|&before| before != HERE)
    }

    /// A home sends no more packets here. If that was the last word, returns whom to tell.
    pub fn moved(&mut self, key: &FlowKey) -> Option<Member> {
        self.heard(key, |left| &mut left.homes)
    }

    /// A former owner passes no more packets on. If that was the last word, returns whom to tell.
    pub fn drained(&mut self, key: &FlowKey) -> Option<Member> {
        self.heard(key, |left| &mut left.owners)
    }

    /// One word less is outstanding.
    fn heard(
        &mut self,
        key: &FlowKey,
        which: impl FnOnce(&mut Left) -> &mut u16,
    ) -> Option<Member> {
        let left = self.known(key)?;
        let count = which(left);
        *count = count.saturating_sub(1);
        let left = *left;
        if (left.homes, left.owners) != (0, 0) {
            return None;
        }
        self.forget(key);
        Some(left.to).filter(|&to| to != HERE)
    }

    fn known(&mut self, key: &FlowKey) -> Option<&mut Left> {
        match *key {
            FlowKey::V4(key) => {
                let hit = self.v4.lookup(key)?;
                self.v4.user_mut(hit.flow)
            }
            FlowKey::V6(key) => {
                let hit = self.v6.lookup(key)?;
                self.v6.user_mut(hit.flow)
            }
        }
    }

    /// The record of a connection, a new one if there is none; `None` without room.
    fn record(&mut self, now: u64, key: &FlowKey) -> Option<&mut Left> {
        let first = First {
            state: 0,
            owner: 0,
            zone: 0,
            user: Left::default(),
            bytes: 0,
        };
        let is_there = match *key {
            FlowKey::V4(key) => self.v4.insert(now, key, first).is_ok(),
            FlowKey::V6(key) => self.v6.insert(now, key, first).is_ok(),
        };
        match is_there {
            true => self.known(key),
            false => None,
        }
    }

    fn forget(&mut self, key: &FlowKey) {
        match *key {
            FlowKey::V4(key) => {
                let hit = self.v4.lookup(key);
                hit.and_then(|hit| self.v4.remove(hit.flow));
            }
            FlowKey::V6(key) => {
                let hit = self.v6.lookup(key);
                hit.and_then(|hit| self.v6.remove(hit.flow));
            }
        }
    }

    /// Where the connection is that a packet is of, if it has left.
    pub fn follow(&mut self, now: u64, key: &FlowKey) -> Option<Member> {
        let to = match *key {
            FlowKey::V4(key) => {
                let hit = self.v4.touch(now, key, 0)?;
                self.v4.user(hit.flow).map(|left| left.to)
            }
            FlowKey::V6(key) => {
                let hit = self.v6.touch(now, key, 0)?;
                self.v6.user(hit.flow).map(|left| left.to)
            }
        };
        to.filter(|&to| to != HERE)
    }

    /// Handles timers at millisecond `now`; returns when to come again.
    pub fn poll(&mut self, now: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.v4.poll(now, BUDGET, |_| ());
        self.v6.poll(now, BUDGET, |_| ());
        let both = [self.v4.next_expiry(), self.v6.next_expiry()];
        both.into_iter().flatten().min()
    }
}
