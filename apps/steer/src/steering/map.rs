//! Connection Map and FIN Map of one home: which lcore owns a connection, where no hash says it.
//!
//! Both are states of one [`FlowTable`] for each family, keyed by the 4-tuple as packets from the
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
//!   deletes the entry. A SYN that meets an entry goes to its owner, too.
//!
//! Packets of open connections write nothing here.

use linerate_core::packet::{Burst, Packet};
use linerate_dispatch::ones;
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{
    Direction, First, Flow, FlowConfig, FlowKey as TableKey, FlowTable, FlowTable4, FlowTable6,
    Hit, Inserted, State,
};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::FlowKey;
use linerate_wire::tcp::{self, flag};

use super::plan::Member;

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

/// Which state an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Its owner has sent a SYN.
    Opening,
    /// Segments have come.
    Open,
    /// Its owner has been asked whether it exists.
    Asked,
    /// One side has sent a FIN.
    Fin,
    /// Both have, and the second one has acknowledged the first.
    Closed,
}

/// All of them, by number.
const PHASES: [(&str, Phase); 5] = [
    ("opening", Phase::Opening),
    ("open", Phase::Open),
    ("asked", Phase::Asked),
    ("fin", Phase::Fin),
    ("closed", Phase::Closed),
];

/// Milliseconds for an answer: to a SYN (Linux sends the last of seven after 63 s, and gives up
/// after 127 s), and to a question.
const OPENING_MS: u64 = 180_000;
const ASKED_MS: u64 = 60_000;
/// Timers that one poll handles.
const BUDGET: usize = 32;

/// From the network, or to it; also which bit of `fins` and which place of `fin_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the owner.
    In = 0,
    /// From the owner.
    Out = 1,
}

/// What an entry knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whose the connection is.
    pub owner: Member,
    /// Who has sent a FIN: bit 0 the other side, bit 1 the owner.
    fins: u8,
    /// How often the connection has moved.
    moves: u16,
    /// The sequence number behind each side's FIN.
    fin_end: [u32; 2],
}

/// What a map reads of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Flags.
    pub flags: u8,
    /// The sequence number behind all that it carries, SYN and FIN counted.
    pub end: u32,
    /// The acknowledgement number.
    pub ack: u32,
}

impl Segment {
    /// Of a TCP header and what is behind it; `None` where the header is not whole.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let segment = tcp::Tcp::new_checked(bytes).ok()?;
        let flags = segment.flags();
        let controls = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        let len = segment.payload().len() as u32 + controls;
        Some(Self {
            flags,
            end: segment.seq().wrapping_add(len),
            ack: segment.ack(),
        })
    }

    /// Of a packet whose layer-4 header was found, and which ends at `end`.
    pub(super) fn of(packet: &Packet, end: u32) -> Option<Self> {
        let l4 = usize::from(packet.meta().l4_offset);
        Self::read(packet.data().get(l4..end as usize)?)
    }

    /// Whether it is a SYN that begins a connection from this side.
    pub(super) fn begins(&self) -> bool {
        self.has(flag::SYN) && !self.has(flag::ACK)
    }

    /// Whether an entry has to know of it when it leaves.
    pub(super) fn controls(&self) -> bool {
        self.begins() || self.has(flag::FIN)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

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
    v4: FlowTable4<Entry>,
    v6: FlowTable6<Entry>,
    counts: MapCounts,
    /// Owners that have ended, whose entries are to go: a bit for each.
    ended: [u64; 4],
    /// Room for entries whose owners are to be asked; empty between two polls.
    pub(super) idle: Vec<(FlowKey, Member)>,
}

/// What a table does with an entry, whatever its family.
trait Table {
    type Key: Copy;
    fn find(&self, key: Self::Key) -> Option<(Hit, Entry)>;
    fn make(&mut self, now: u64, key: Self::Key, phase: Phase, entry: Entry)
    -> Result<(), Refused>;
    fn set(&mut self, hit: &Hit, phase: Phase, entry: Entry);
    fn refresh(&mut self, now: u64, key: Self::Key);
    fn end(&mut self, hit: &Hit) -> bool;
}

impl<F: TableKey<K>, const K: usize> Table for FlowTable<F, Entry, K> {
    type Key = F;

    fn find(&self, key: F) -> Option<(Hit, Entry)> {
        let hit = self.lookup(key)?;
        // A packet from the network with our end as its source is none of this connection.
        let is_in = hit.direction == Direction::Forward;
        Some((hit, *self.user(hit.flow)?)).filter(|_| is_in)
    }

    fn make(&mut self, now: u64, key: F, phase: Phase, entry: Entry) -> Result<(), Refused> {
        let first = First {
            state: phase as u8,
            owner: 0,
            zone: 0,
            user: entry,
            bytes: 0,
        };
        // Its bucket is its owner, so that what an owner leaves behind is found.
        match self.insert_absent(now, key, key.reversed(), entry.owner, first) {
            Ok(Inserted::New { .. }) => Ok(()),
            _ => Err(Refused::Full),
        }
    }

    fn set(&mut self, hit: &Hit, phase: Phase, entry: Entry) {
        if let Some(known) = self.user_mut(hit.flow) {
            *known = entry;
        }
        // States have no limits, and the entry is there.
        let _ = self.set_state(hit.flow, phase as u8);
    }

    fn refresh(&mut self, now: u64, key: F) {
        self.touch(now, key, 0);
    }

    fn end(&mut self, hit: &Hit) -> bool {
        self.remove(hit.flow).is_some()
    }
}

/// Does the same with the table and the key of a family.
macro_rules! either {
    ($map:ident, $key:expr, |$table:ident, $of:ident| $do:expr) => {
        match $key {
            FlowKey::V4($of) => {
                let $table = &mut $map.v4;
                $do
            }
            FlowKey::V6($of) => {
                let $table = &mut $map.v6;
                $do
            }
        }
    };
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
            v4: FlowTable::new(&table("connections4", config.connections4), 0)?,
            v6: FlowTable::new(&table("connections6", config.connections6), 0)?,
            counts: MapCounts::default(),
            ended: [0; 4],
            idle: Vec::with_capacity(2 * BUDGET),
        })
    }

    /// Entries, of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Entries of an owner.
    pub fn owned(&self, owner: Member) -> u32 {
        self.v4.in_bucket(owner) + self.v6.in_bucket(owner)
    }

    /// Entries in a phase.
    pub fn in_phase(&self, phase: Phase) -> usize {
        self.v4.count(phase as u8) + self.v6.count(phase as u8)
    }

    /// What it has done.
    pub fn counts(&self) -> MapCounts {
        self.counts
    }

    /// All memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes() + self.v6.memory_bytes()
    }

    /// The phase of a connection, and what is known of it; `key` as packets from the network have
    /// it.
    pub fn get(&self, key: &FlowKey) -> Option<(Phase, Entry)> {
        let (hit, entry) = match *key {
            FlowKey::V4(key) => Table::find(&self.v4, key)?,
            FlowKey::V6(key) => Table::find(&self.v6, key)?,
        };
        Some((phase(&hit), entry))
    }

    /// The owner has sent a SYN by which answers with this key would come to another lcore. A SYN
    /// that comes again, or that begins anew where both sides had ended, finds its entry.
    ///
    /// # Errors
    /// [`Refused`], counted: the SYN must not leave.
    pub fn enter(&mut self, now: u64, key: &FlowKey, owner: Member) -> Result<(), Refused> {
        let entry = Entry {
            owner,
            ..Entry::default()
        };
        let entered = either!(self, *key, |table, key| match table.find(key) {
            None => table.make(now, key, Phase::Opening, entry).map(|()| true),
            Some((_, known)) if known.owner != owner => Err(Refused::Taken),
            Some((hit, known)) => {
                table.refresh(now, key);
                // RFC 6191: a new connection may begin in the TIME-WAIT of the last one.
                if matches!(phase(&hit), Phase::Closed | Phase::Fin | Phase::Asked) {
                    let moves = known.moves;
                    table.set(&hit, Phase::Opening, Entry { moves, ..entry });
                }
                Ok(false)
            }
        });
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
        let entry = Entry {
            owner,
            moves,
            ..Entry::default()
        };
        let counts = &mut self.counts;
        let pinned = either!(self, *key, |table, key| match table.find(key) {
            None if by_hash == Some(owner) => {
                // It has come back. Without an entry packets find it as well; with one, an older
                // message that comes later is known to be old.
                let made = table.make(now, key, Phase::Open, entry).is_ok();
                counts.entered += u64::from(made);
                Ok(if moves == 0 {
                    Pinned::Kept
                } else {
                    Pinned::From(owner)
                })
            }
            None => table.make(now, key, Phase::Open, entry).map(|()| {
                counts.entered += 1;
                by_hash.map_or(Pinned::Kept, Pinned::From)
            }),
            Some((_, known)) if (moves.wrapping_sub(known.moves) as i16) < 0 => Ok(Pinned::Stale),
            Some((hit, known)) if known.owner == owner => {
                table.refresh(now, key);
                let phase = match (phase(&hit), known.fins) {
                    (Phase::Asked, 0) => Phase::Open,
                    (Phase::Asked, _) => Phase::Fin,
                    (phase, _) => phase,
                };
                table.set(&hit, phase, Entry { moves, ..known });
                Ok(match moves == known.moves {
                    true => Pinned::Kept,
                    false => Pinned::From(owner),
                })
            }
            Some((hit, known)) => {
                // Its bucket is another one, so it goes out and in: there is room for one.
                table.end(&hit);
                let was = match phase(&hit) {
                    Phase::Asked => Phase::Open,
                    phase => phase,
                };
                let entry = Entry {
                    owner,
                    moves,
                    ..known
                };
                table.make(now, key, was, entry).map(|()| {
                    counts.moved += 1;
                    Pinned::From(known.owner)
                })
            }
        });
        self.counts.refused += u64::from(pinned.is_err());
        pinned
    }

    /// The owner's connection has ended. A message of anybody else changes nothing.
    pub fn delete(&mut self, key: &FlowKey, owner: Member) {
        let deleted = either!(self, *key, |table, key| match table.find(key) {
            Some((hit, known)) if known.owner == owner => table.end(&hit),
            _ => false,
        });
        self.counts.deleted += u64::from(deleted);
    }

    /// A segment of a connection passes; `key` as packets from the network have it.
    pub fn observe(&mut self, now: u64, key: &FlowKey, way: Way, segment: &Segment) {
        let closed = either!(self, *key, |table, key| match table.find(key) {
            None => false,
            Some((hit, entry)) => match step(phase(&hit), entry, way, segment) {
                Step::Same => false,
                Step::Again => {
                    table.refresh(now, key);
                    false
                }
                Step::To(to, entry) => {
                    // Its time is that of the first FIN, so that more of them do not prolong it.
                    if to != phase(&hit) {
                        table.refresh(now, key);
                    }
                    table.set(&hit, to, entry);
                    false
                }
                Step::Ends => table.end(&hit),
            },
        });
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
        let mut mapped = 0;
        let mut found = [None; Burst::CAPACITY];
        let v4 = mask & parsed.class.v4;
        if v4 != 0 && !self.v4.is_empty() {
            let count = (Mask::BITS - v4.leading_zeros()) as usize;
            let keys = &parsed.keys4[..count];
            self.v4.lookup_bulk(keys, &mut found[..count]);
            mapped |= known(&self.v4, v4, &found, owners);
        }
        let v6 = mask & parsed.class.v6;
        if v6 != 0 && !self.v6.is_empty() {
            let count = (Mask::BITS - v6.leading_zeros()) as usize;
            let keys = &parsed.keys6[..count];
            self.v6.lookup_bulk(keys, &mut found[..count]);
            mapped |= known(&self.v6, v6, &found, owners);
        }
        for index in ones(mapped) {
            let packet = &burst.as_packets()[index];
            let is_open = found[index].is_some_and(|hit| hit.state == Phase::Open as u8);
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
        poll(&mut self.v4, now, counts, |key, owner| {
            idle.push((FlowKey::V4(key), owner));
        });
        poll(&mut self.v6, now, counts, |key, owner| {
            idle.push((FlowKey::V6(key), owner));
        });
        for word in 0..self.ended.len() {
            while self.ended[word] != 0 {
                let bit = self.ended[word].trailing_zeros();
                let owner = (word as u32 * u64::BITS + bit) as Member;
                let orphaned = &mut self.counts.orphaned;
                let done = self.v4.take_bucket(owner, BUDGET, |_| *orphaned += 1)
                    && self.v6.take_bucket(owner, BUDGET, |_| *orphaned += 1);
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
        let both = [self.v4.next_expiry(), self.v6.next_expiry()];
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

/// Writes the owners of what was found.
#[inline(always)]
fn known<F: TableKey<K>, const K: usize>(
    table: &FlowTable<F, Entry, K>,
    mask: Mask,
    found: &[Option<Hit>; Burst::CAPACITY],
    owners: &mut [u32; Burst::CAPACITY],
) -> Mask {
    let mut known = 0;
    for index in ones(mask) {
        if let Some(hit) = found[index]
            && hit.direction == Direction::Forward
            && let Some(entry) = table.user(hit.flow)
        {
            owners[index] = entry.owner.into();
            known |= 1 << index;
        }
    }
    known
}

/// Handles the timers of a table.
fn poll<F: TableKey<K>, const K: usize>(
    table: &mut FlowTable<F, Entry, K>,
    now: u64,
    counts: &mut MapCounts,
    mut ask: impl FnMut(F, Member),
) {
    if table.next_expiry().is_none_or(|at| at > now) {
        return;
    }
    let mut idle: [Option<Flow<F, Entry>>; BUDGET] = [None; BUDGET];
    let mut count = 0;
    table.poll(now, BUDGET, |flow| match phase_of(flow.state) {
        Phase::Open | Phase::Fin => {
            // No more flows end than the budget is.
            idle[count] = Some(*flow);
            count += 1;
        }
        Phase::Closed => counts.closed += 1,
        Phase::Opening | Phase::Asked => counts.expired += 1,
    });
    for flow in idle.into_iter().flatten() {
        let asked = Flow {
            state: Phase::Asked as u8,
            last_seen: now,
            ..flow
        };
        // It has just left its place, so there is one.
        if table.put(&asked).is_ok() {
            counts.asked += 1;
            ask(flow.key, flow.user.owner);
        }
    }
}

fn phase(hit: &Hit) -> Phase {
    phase_of(hit.state)
}

fn phase_of(state: u8) -> Phase {
    PHASES[usize::from(state) % PHASES.len()].1
}

/// What a segment does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Same,
    /// Its time begins anew.
    Again,
    /// It is in this phase now.
    To(Phase, Entry),
    /// It goes.
    Ends,
}

/// The state machine.
fn step(phase: Phase, mut entry: Entry, way: Way, segment: &Segment) -> Step {
    let (this, other) = match way {
        Way::In => (0, 1),
        Way::Out => (1, 0),
    };
    let acks = |end: u32| segment.has(flag::ACK) && segment.ack == end;
    if segment.has(flag::RST) || segment.has(flag::SYN) && segment.has(flag::FIN) {
        return Step::Same;
    }
    if phase == Phase::Closed {
        return match way {
            // LAST-ACK: the owner closed second, and this says that all of it has come.
            Way::In if entry.fins & LAST != 0 && acks(entry.fin_end[1]) => Step::Ends,
            _ if segment.has(flag::FIN) && segment.end == entry.fin_end[this] => Step::Again,
            _ => Step::Same,
        };
    }
    if segment.has(flag::FIN) {
        entry.fins |= 1 << this;
        entry.fin_end[this] = segment.end;
        let both = entry.fins & 0b11 == 0b11;
        return match both && acks(entry.fin_end[other]) {
            false if phase == Phase::Asked => Step::To(Phase::Asked, entry),
            false => Step::To(Phase::Fin, entry),
            true => {
                // The owner that acknowledges with its own FIN is in LAST-ACK; else in TIME-WAIT.
                entry.fins |= if way == Way::Out { LAST } else { 0 };
                Step::To(Phase::Closed, entry)
            }
        };
    }
    match (phase, way) {
        (Phase::Opening, Way::In) => Step::To(Phase::Open, entry),
        _ => Step::Same,
    }
}

/// In `fins`: the owner has closed second.
const LAST: u8 = 1 << 2;

#[cfg(test)]
mod tests;
