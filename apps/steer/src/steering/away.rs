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
//! however fast it moves.
//!
//! Words are lost in full rings, and a home whose map is full has none to say. So where no packet
//! has come for a minute, the homes are asked whether they still send packets here
//! ([`Note::Where`]), and the owner whether the connection still exists ([`Note::Ask`]): what a
//! full map does not take goes by its former owner as long as it lives, and what has lost a former
//! owner's word has an entry as long.
//!
//! [`Note::Ask`]: super::note::Note::Ask
//! [`Note::Where`]: super::note::Note::Where
//! [`Note::Moved`]: super::note::Note::Moved
//! [`Note::Drained`]: super::note::Note::Drained

use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{
    self, First, Flow, FlowConfig, FlowTable, FlowTable4, FlowTable6, State,
};
use linerate_wire::FlowKey;

use super::plan::Member;

/// Milliseconds without a packet, and for an answer.
const TIMEOUT_MS: u64 = 60_000;
/// How often an owner is asked that does not answer.
const QUESTIONS: u8 = 3;
/// Timers that one poll handles, of each family.
pub(super) const BUDGET: usize = 32;

/// What is outstanding of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Where it is; [`HERE`]: it has come (back).
    pub(super) to: Member,
    /// Questions to that lcore without an answer.
    asked: u8,
    /// The port by which its packets come.
    pub(super) port: u16,
    /// Words of homes, for each time that it has left.
    homes: u16,
    /// Words of former owners, for each time that it has come.
    owners: u16,
}

/// No lcore has this number, since plans count them.
pub(super) const HERE: Member = Member::MAX;

impl Default for Left {
    fn default() -> Self {
        Self {
            to: HERE,
            asked: 0,
            port: 0,
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

    /// A connection, whose packets come by a port, leaves for an lcore; `homes` will say that they
    /// know. False if there is no room: it has to stay.
    pub fn leave(
        &mut self,
        now: u64,
        key: &FlowKey,
        (port, to): (u16, Member),
        homes: u16,
    ) -> bool {
        match self.record(now, key) {
            Some(left) => {
                (left.to, left.port, left.asked) = (to, port, 0);
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

    /// So many homes are asked whether they send packets here: all of them have to say no in one
    /// round, since one that has said so before says it again.
    pub fn asks(&mut self, key: &FlowKey, homes: u16) {
        if let Some(left) = self.known(key) {
            left.homes = homes;
        }
    }

    /// The connection exists, wherever it is.
    pub fn exists(&mut self, key: &FlowKey) {
        if let Some(left) = self.known(key) {
            left.asked = 0;
        }
    }

    /// An lcore does not have the connection: nothing goes after it there.
    pub fn gone(&mut self, key: &FlowKey, from: Member) {
        if self.known(key).is_some_and(|left| left.to == from) {
            self.forget(key);
        }
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

    /// Where a connection is, if it has left.
    pub fn whither(&mut self, key: &FlowKey) -> Option<Member> {
        let to = self.known(key)?.to;
        Some(to).filter(|&to| to != HERE)
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

    /// Handles timers at millisecond `now`: shows the connections after which it is to be asked.
    /// Returns when to come again.
    pub(super) fn poll(&mut self, now: u64, mut ask: impl FnMut(FlowKey, Left)) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        idle(&mut self.v4, now, |key, left| ask(FlowKey::V4(key), left));
        idle(&mut self.v6, now, |key, left| ask(FlowKey::V6(key), left));
        let both = [self.v4.next_expiry(), self.v6.next_expiry()];
        both.into_iter().flatten().min()
    }
}

/// Shows the idle connections of a family, and forgets those that were asked after in vain.
fn idle<F: flow::FlowKey<K>, const K: usize>(
    all: &mut FlowTable<F, Left, K>,
    now: u64,
    mut ask: impl FnMut(F, Left),
) {
    if all.next_expiry().is_none_or(|at| at > now) {
        return;
    }
    let mut idle: [Option<Flow<F, Left>>; BUDGET] = [None; BUDGET];
    let mut count = 0;
    all.poll(now, BUDGET, |flow| {
        let left = flow.user;
        if left.asked < QUESTIONS {
            // No more flows end than the budget is.
            idle[count] = Some(*flow);
            count += 1;
        }
    });
    for mut flow in idle.into_iter().flatten() {
        flow.last_seen = now;
        flow.user.asked += 1;
        // It has just left its place, so there is one.
        if all.put(&flow).is_ok() {
            ask(flow.key, flow.user);
        }
    }
}
