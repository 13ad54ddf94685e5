//! Connection Map and FIN Map of one home: which lcore owns a connection, where no hash says it.
//!
//! Both are states of one flow table for each family, keyed by the 4-tuple as packets from the
//! network have it:
//!
//! | state | what | ends |
//! |---|---|---|
//! | opening | the owner has sent a SYN | a segment comes, or 3 minutes without another SYN |
//! | open | Connection Map | by the owner's message; every 2 hours the owner is asked |
//! | asked | it has been asked | by its answer; without one, after a minute |
//! | fin | FIN Map: one side has sent a FIN | as open, but the owner is asked after 2 MSL |
//! | closed | both sides have, and one has the other's | 2 MSL, or see below |
//!
//! An entry is entered, moved and deleted by messages of owners alone. Segments from the network
//! only take it from one state to the next, and what they can claim is bounded:
//!
//! - A forged FIN has no numbers that fit. It may put an entry into the FIN Map, where packets find
//!   it as before; at the end of 2 MSL its owner says that the connection lives. So may the owner
//!   of a connection that is closed on one side for hours, as RFC 9293 3.6 allows.
//! - Both sides have ended (closed) only if the second FIN acknowledges the first one, exactly.
//! - The owner that closes last waits for one ACK (LAST-ACK, RFC 9293 3.10.7.4): with it the entry
//!   goes at once. The owner that closes first is in TIME-WAIT for 2 MSL, and so is the entry; a
//!   FIN that comes again makes it begin anew (RFC 9293 3.10.7.8).
//! - A RST changes nothing: whether it is one is the owner's to judge (RFC 5961 3.2), whose message
//!   deletes the entry. A SYN that meets an entry goes to its owner, too; where that was closed, a
//!   new connection may have begun (RFC 6191), so the owner is asked at the end of 2 MSL.
//!
//! Packets of open connections write nothing here, and read one line of memory each.

use linerate_core::packet::{Burst, Packet};
use linerate_dispatch::ones;
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{FlowConfig, State};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::tcp::flag;
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use super::plan::Member;

mod entry;
mod table;

pub use entry::{Entry, Phase, Segment, Way};

use entry::PHASES;
use table::{BUDGET, Table, phase};

/// Sizes and times of a home's maps.
#[derive(Clone, Debug)]
pub struct MapConfig {
    /// Most IPv4 connections with an entry; all memory is taken at set-up.
    pub connections4: usize,
    /// The same for IPv6.
    pub connections6: usize,
    /// Milliseconds after which the owner of an open connection is asked whether it exists: so
    /// entries go whose owner's message was lost in a full ring.
    pub ask_ms: u64,
    /// Maximum segment lifetime, in milliseconds. RFC 9293 3.4.2 has 2 minutes; Linux waits for 60
    /// seconds in TIME-WAIT, and so do we: twice 30.
    pub msl_ms: u64,
    /// What the hash is keyed with.
    pub seed: Seed,
}

impl Default for MapConfig {
    fn default() -> Self {
        Self {
            connections4: 1 << 16,
            connections6: 1 << 14,
            ask_ms: 2 * 3_600_000,
            msl_ms: 30_000,
            seed: Seed::random(),
        }
    }
}

/// Milliseconds for an answer: to a SYN (Linux sends the last of seven after 63 s, and gives up
/// after 127 s), and to a question.
const OPENING_MS: u64 = 180_000;
const ASKED_MS: u64 = 60_000;

/// Why an entry is not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The map is full.
    Full,
    /// The same 4-tuple is another lcore's connection.
    Taken,
}

/// What became of a [`Map::pin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// It is as it was.
    Kept,
    /// Packets have gone to this lcore before; it may be the same, to which the connection has come
    /// back before its home has heard that it had left.
    From(Member),
    /// A message of a later move has come before this one: the owner that it names has it no more.
    Stale,
}

/// What a map has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounts {
    /// Entries made.
    pub entered: u64,
    /// Entries that were not.
    pub refused: u64,
    /// Entries that went to another owner.
    pub moved: u64,
    /// Entries that their owners deleted.
    pub deleted: u64,
    /// Entries that ended with the last ACK, or 2 MSL after the last FIN.
    pub closed: u64,
    /// Entries of a SYN without an answer, or whose owner gave none.
    pub expired: u64,
    /// Questions to owners.
    pub asked: u64,
    /// Entries of owners that have ended.
    pub orphaned: u64,
}

/// The maps of one home.
pub struct Map {
    v4: Table<FlowKey4, 16>,
    v6: Table<FlowKey6, 40>,
    counts: MapCounts,
    /// Owners that have ended, whose entries are to go: a bit for each.
    ended: [u64; 4],
    /// Room for entries whose owners are to be asked; empty between two polls.
    pub(super) idle: Vec<(FlowKey, Member)>,
}

impl Map {
    /// Empty maps.
    ///
    /// # Errors
    /// There is no memory, or a size is 0 or too large.
    pub fn new(config: &MapConfig) -> Result<Self, TableError> {
        let timeout = |phase| match phase {
            Phase::Opening => OPENING_MS,
            Phase::Open => config.ask_ms,
            Phase::Asked => ASKED_MS,
            Phase::Fin | Phase::Closed => 2 * config.msl_ms,
        };
        let states = PHASES.map(|(name, phase)| State {
            name,
            timeout: timeout(phase).max(1),
            most: None,
        });
        let table = |name: &str, flows| FlowConfig {
            name: name.into(),
            flows,
            states: states.to_vec(),
            bidirectional: true,
            translated: 0,
            per_owner: None,
            per_zone: Vec::new(),
            evict: None,
            seed: config.seed,
        };
        Ok(Self {
            v4: Table::new(&table("connections4", config.connections4))?,
            v6: Table::new(&table("connections6", config.connections6))?,
            counts: MapCounts::default(),
            ended: [0; 4],
            idle: Vec::with_capacity(2 * BUDGET),
        })
    }

    /// Entries, of both families.
    pub fn len(&self) -> usize {
        self.v4.flows().len() + self.v6.flows().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.v4.flows().is_empty() && self.v6.flows().is_empty()
    }

    /// Entries of an owner.
    pub fn owned(&self, owner: Member) -> u32 {
        self.v4.flows().in_bucket(owner) + self.v6.flows().in_bucket(owner)
    }

    /// Entries in a phase.
    pub fn in_phase(&self, phase: Phase) -> usize {
        self.v4.flows().count(phase as u8) + self.v6.flows().count(phase as u8)
    }

    /// What it has done.
    pub fn counts(&self) -> MapCounts {
        self.counts
    }

    /// All memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// The phase of a connection, and what is known of it; `key` as packets from the network have
    /// it.
    pub fn get(&self, key: &FlowKey) -> Option<(Phase, Entry)> {
        let (hit, entry) = match *key {
            FlowKey::V4(key) => self.v4.find(key)?,
            FlowKey::V6(key) => self.v6.find(key)?,
        };
        Some((phase(&hit), entry))
    }

    /// The owner has sent a SYN by which answers with this key would come to another lcore. A SYN
    /// that comes again, or that begins anew where both sides had ended, finds its entry.
    ///
    /// # Errors
    /// [`Refused`], counted: the SYN must not leave.
    pub fn enter(&mut self, now: u64, key: &FlowKey, owner: Member) -> Result<(), Refused> {
        let entered = match *key {
            FlowKey::V4(key) => self.v4.enter(now, key, owner),
            FlowKey::V6(key) => self.v6.enter(now, key, owner),
        };
        match entered {
            Ok(is_new) => self.counts.entered += u64::from(is_new),
            Err(_) => self.counts.refused += 1,
        }
        entered.map(|_| ())
    }

    /// A connection is `owner`'s from now on, after `moves` moves, or still is, as the answer to a
    /// question; `by_hash` is whose it is without an entry.
    ///
    /// # Errors
    /// [`Refused::Full`], counted: packets go where they went before.
    pub fn pin(
        &mut self,
        now: u64,
        key: &FlowKey,
        (owner, moves): (Member, u16),
        by_hash: Option<Member>,
    ) -> Result<Pinned, Refused> {
        let (to, counts) = ((owner, moves), &mut self.counts);
        let pinned = match *key {
            FlowKey::V4(key) => self.v4.pin(now, key, to, by_hash, counts),
            FlowKey::V6(key) => self.v6.pin(now, key, to, by_hash, counts),
        };
        self.counts.refused += u64::from(pinned.is_err());
        pinned
    }

    /// The owner's connection has ended. A message of anybody else changes nothing.
    pub fn delete(&mut self, key: &FlowKey, owner: Member) {
        let deleted = match *key {
            FlowKey::V4(key) => self.v4.delete(key, owner),
            FlowKey::V6(key) => self.v6.delete(key, owner),
        };
        self.counts.deleted += u64::from(deleted);
    }

    /// A segment of a connection passes; `key` as packets from the network have it.
    pub fn observe(&mut self, now: u64, key: &FlowKey, way: Way, segment: &Segment) {
        let closed = match *key {
            FlowKey::V4(key) => self.v4.observe(now, key, way, segment),
            FlowKey::V6(key) => self.v6.observe(now, key, way, segment),
        };
        self.counts.closed += u64::from(closed);
    }

    /// Writes the owners of those packets of a burst, at the positions of a mask, that have an
    /// entry, over what a hash says; they are whole TCP. Returns at which positions.
    #[inline]
    pub(super) fn owners(
        &mut self,
        now: u64,
        burst: &Burst,
        (parsed, mask): (&Parsed, Mask),
        owners: &mut [u32; Burst::CAPACITY],
    ) -> Mask {
        let (mut mapped, mut open) = (0, 0);
        let v4 = mask & parsed.class.v4;
        if v4 != 0 && !self.v4.flows().is_empty() {
            (mapped, open) = self.v4.owners(&parsed.keys4, v4, owners);
        }
        let v6 = mask & parsed.class.v6;
        if v6 != 0 && !self.v6.flows().is_empty() {
            let (more, more_open) = self.v6.owners(&parsed.keys6, v6, owners);
            mapped |= more;
            open |= more_open;
        }
        for index in ones(mapped) {
            let packet = &burst.as_packets()[index];
            let is_open = open >> index & 1 != 0;
            if !is_open || flags(packet) & (flag::SYN | flag::FIN) != 0 {
                self.observe_at(now, parsed, index, packet);
            }
        }
        mapped
    }

    #[cold]
    fn observe_at(&mut self, now: u64, parsed: &Parsed, index: usize, packet: &Packet) {
        if let Some(segment) = Segment::of(packet, parsed.end[index]) {
            let key = super::plan::key_of(parsed, index);
            self.observe(now, &key, Way::In, &segment);
        }
    }

    /// Handles timers at millisecond `now`: shows in `idle` the entries whose owners are to be
    /// asked, as many as it has room for at most.
    pub(super) fn poll(&mut self, now: u64, idle: &mut Vec<(FlowKey, Member)>) {
        let counts = &mut self.counts;
        self.v4.age(now, counts, |key, owner| {
            idle.push((FlowKey::V4(key), owner));
        });
        self.v6.age(now, counts, |key, owner| {
            idle.push((FlowKey::V6(key), owner));
        });
        for word in 0..self.ended.len() {
            while self.ended[word] != 0 {
                let bit = self.ended[word].trailing_zeros();
                let owner = (word as u32 * u64::BITS + bit) as Member;
                let (v4, v4_done) = self.v4.remove_owner(owner, BUDGET);
                let (v6, v6_done) = self.v6.remove_owner(owner, BUDGET);
                self.counts.orphaned += v4 + v6;
                let done = v4_done && v6_done;
                if !done {
                    return;
                }
                self.ended[word] &= !(1 << bit);
            }
        }
    }

    /// When [`poll`](Self::poll) has something to do, in milliseconds; `None`: never as it is.
    pub(super) fn next_ms(&self, now: u64) -> Option<u64> {
        if self.ended != [0; 4] {
            return Some(now);
        }
        let both = [self.v4.flows().next_expiry(), self.v6.flows().next_expiry()];
        both.into_iter().flatten().min()
    }

    /// The entries of an owner are to go.
    pub(super) fn remove_owner(&mut self, owner: Member) {
        self.ended[usize::from(owner >> 6)] |= 1 << (owner & 63);
    }
}

/// The flags of a TCP packet whose layer-4 header was found.
#[inline(always)]
pub(super) fn flags(packet: &Packet) -> u8 {
    let at = usize::from(packet.meta().l4_offset) + 13;
    packet.data().get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
