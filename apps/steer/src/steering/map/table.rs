//! The map of one family: entries in a [`FlowTable`], and what messages and segments do to them.
//!
//! Beside the table lies a byte for each of its places: owner and whether the entry is open. So a
//! packet of an open connection reads the index, which is a line of memory, and that byte, which of
//! a million connections is in a cache.

use linerate_core::mem::HugeArray;
use linerate_core::packet::Burst;
use linerate_dispatch::ones;
use linerate_tables::TableError;
use linerate_tables::flow::{
    Direction, First, Flow, FlowConfig, FlowId, FlowKey, FlowTable, Hit, Inserted,
};
use linerate_tables::parse::Mask;

use super::entry::{Entry, Phase, Segment, Step, Way, phase_of, step};
use super::{MapCounts, Member, Pinned, Refused};

/// Timers that one poll handles.
pub(super) const BUDGET: usize = 32;

/// In the byte of a place: the entry is open; the other bits are its owner.
const OPEN: u8 = 1 << 7;

/// What packets found, by position: the place of the entry, and the packet's direction.
type Found = [Option<(u32, Direction)>; Burst::CAPACITY];

/// The entries of a family.
pub(super) struct Table<F: FlowKey<K>, const K: usize> {
    flows: FlowTable<F, Entry, K>,
    /// By place: see [`OPEN`].
    places: HugeArray<u8>,
}

impl<F: FlowKey<K>, const K: usize> Table<F, K> {
    pub(super) fn new(config: &FlowConfig) -> Result<Self, TableError> {
        Ok(Self {
            flows: FlowTable::new(config, 0)?,
            places: HugeArray::filled(&config.name, config.flows, 0)?,
        })
    }

    pub(super) fn flows(&self) -> &FlowTable<F, Entry, K> {
        &self.flows
    }

    /// Takes entries of an owner out, `most` at most; how many, and whether those were the last.
    pub(super) fn remove_owner(&mut self, owner: Member, most: usize) -> (u64, bool) {
        let mut count = 0;
        let is_last = self.flows.take_bucket(owner, most, |_| count += 1);
        (count, is_last)
    }

    pub(super) fn bytes(&self) -> usize {
        self.flows.memory_bytes() + self.places.region().len()
    }

    /// Notes what most packets need of an entry.
    fn note(&mut self, flow: FlowId, phase: Phase, owner: Member) {
        let open = if phase == Phase::Open { OPEN } else { 0 };
        self.places[flow.index()] = owner | open;
    }

    /// The entry of packets from the network with this key.
    pub(super) fn find(&self, key: F) -> Option<(Hit, Entry)> {
        let hit = self.flows.lookup(key)?;
        // A packet from the network with our end as its source is none of this connection.
        let is_in = hit.direction == Direction::Forward;
        Some((hit, *self.flows.user(hit.flow)?)).filter(|_| is_in)
    }

    /// Makes an entry; there is none yet.
    fn make(&mut self, now: u64, key: F, phase: Phase, entry: Entry) -> Result<(), Refused> {
        let first = First {
            state: phase as u8,
            owner: 0,
            zone: 0,
            user: entry,
            bytes: 0,
        };
        // Its bucket is its owner, so that what an owner leaves behind is found.
        let made = self
            .flows
            .insert_absent(now, key, key.reversed(), entry.owner, first);
        let Ok(Inserted::New { flow, .. }) = made else {
            return Err(Refused::Full);
        };
        self.note(flow, phase, entry.owner);
        Ok(())
    }

    /// Changes one that is there.
    fn set(&mut self, hit: &Hit, phase: Phase, entry: Entry) {
        if let Some(known) = self.flows.user_mut(hit.flow) {
            *known = entry;
        }
        // States have no limits, and the entry is there.
        let _ = self.flows.set_state(hit.flow, phase as u8);
        self.note(hit.flow, phase, entry.owner);
    }

    /// As [`Map::enter`](super::Map::enter); whether it is a new one.
    pub(super) fn enter(&mut self, now: u64, key: F, owner: Member) -> Result<bool, Refused> {
        let entry = Entry {
            owner,
            ..Entry::default()
        };
        let Some((hit, known)) = self.find(key) else {
            return self.make(now, key, Phase::Opening, entry).map(|()| true);
        };
        if known.owner != owner {
            return Err(Refused::Taken);
        }
        self.flows.touch(now, key, 0);
        // RFC 6191: a new connection may begin in the TIME-WAIT of the last one.
        if matches!(phase(&hit), Phase::Closed | Phase::Fin | Phase::Asked) {
            let moves = known.moves;
            self.set(&hit, Phase::Opening, Entry { moves, ..entry });
        }
        Ok(false)
    }

    /// As [`Map::pin`](super::Map::pin).
    pub(super) fn pin(
        &mut self,
        now: u64,
        key: F,
        (owner, moves): (Member, u16),
        by_hash: Option<Member>,
        counts: &mut MapCounts,
    ) -> Result<Pinned, Refused> {
        let Some((hit, known)) = self.find(key) else {
            let entry = Entry {
                owner,
                moves,
                ..Entry::default()
            };
            let made = self.make(now, key, Phase::Open, entry);
            counts.entered += u64::from(made.is_ok());
            if by_hash != Some(owner) {
                return made.map(|()| by_hash.map_or(Pinned::Kept, Pinned::From));
            }
            // It has come back. Without an entry packets find it as well; with one, an older
            // message that comes later is known to be old.
            return Ok(match moves {
                0 => Pinned::Kept,
                _ => Pinned::From(owner),
            });
        };
        // A connection that began in the TIME-WAIT of the last one has nothing of it.
        let (phase, known) = match known.is_anew() {
            true => (
                Phase::Open,
                Entry {
                    owner: known.owner,
                    ..Entry::default()
                },
            ),
            false => (phase(&hit), known),
        };
        if (moves.wrapping_sub(known.moves) as i16) < 0 {
            return Ok(Pinned::Stale);
        }
        let entry = Entry {
            owner,
            moves,
            ..known
        };
        if known.owner == owner {
            self.flows.touch(now, key, 0);
            let phase = match (phase, known.fins) {
                (Phase::Asked, 0) => Phase::Open,
                (Phase::Asked, _) => Phase::Fin,
                (phase, _) => phase,
            };
            self.set(&hit, phase, entry);
            return Ok(match moves == known.moves {
                true => Pinned::Kept,
                false => Pinned::From(owner),
            });
        }
        // Its bucket is another one, so it goes out and in: there is room for one.
        self.flows.remove(hit.flow);
        let phase = match phase {
            Phase::Asked => Phase::Open,
            phase => phase,
        };
        self.make(now, key, phase, entry)?;
        counts.moved += 1;
        Ok(Pinned::From(known.owner))
    }

    /// As [`Map::delete`](super::Map::delete); whether it was there.
    pub(super) fn delete(&mut self, key: F, owner: Member) -> bool {
        match self.find(key) {
            Some((hit, known)) if known.owner == owner => self.flows.remove(hit.flow).is_some(),
            _ => false,
        }
    }

    /// As [`Map::observe`](super::Map::observe); whether the entry has ended with it.
    pub(super) fn observe(&mut self, now: u64, key: F, way: Way, segment: &Segment) -> bool {
        let Some((hit, entry)) = self.find(key) else {
            return false;
        };
        match step(phase(&hit), entry, way, segment) {
            Step::Same => {}
            Step::Again => {
                self.flows.touch(now, key, 0);
            }
            Step::To(to, entry) => {
                // Its time is that of the first FIN, so that more of them do not prolong it.
                if to != phase(&hit) {
                    self.flows.touch(now, key, 0);
                }
                self.set(&hit, to, entry);
            }
            Step::Ends => return self.flows.remove(hit.flow).is_some(),
        }
        false
    }

    /// Writes the owners of packets at the positions of a mask that have an entry; returns where
    /// they have, and where it is open.
    #[inline(always)]
    pub(super) fn owners(
        &self,
        keys: &[F; Burst::CAPACITY],
        mask: Mask,
        owners: &mut [u32; Burst::CAPACITY],
    ) -> (Mask, Mask) {
        let count = (Mask::BITS - mask.leading_zeros()) as usize;
        let mut found: Found = [None; Burst::CAPACITY];
        self.flows.places_bulk(&keys[..count], &mut found[..count]);
        let (mut known, mut open) = (0, 0);
        for index in ones(mask) {
            if let Some((place, Direction::Forward)) = found[index] {
                let noted = self.places[place as usize];
                owners[index] = (noted & !OPEN).into();
                known |= 1 << index;
                open |= Mask::from(noted & OPEN != 0) << index;
            }
        }
        (known, open)
    }

    /// Handles timers: shows to `ask` the entries whose owners are to be asked.
    pub(super) fn age(&mut self, now: u64, counts: &mut MapCounts, mut ask: impl FnMut(F, Member)) {
        if self.flows.next_expiry().is_none_or(|at| at > now) {
            return;
        }
        let mut idle: [Option<Flow<F, Entry>>; BUDGET] = [None; BUDGET];
        let mut count = 0;
        self.flows
            .poll(now, BUDGET, |flow| match phase_of(flow.state) {
                Phase::Closed if !flow.user.is_anew() => counts.closed += 1,
                Phase::Open | Phase::Fin | Phase::Closed => {
                    // No more flows end than the budget is.
                    idle[count] = Some(*flow);
                    count += 1;
                }
                Phase::Opening | Phase::Asked => counts.expired += 1,
            });
        for flow in idle.into_iter().flatten() {
            let asked = Flow {
                state: Phase::Asked as u8,
                last_seen: now,
                ..flow
            };
            // It has just left its place, so there is one.
            if let Ok(Inserted::New { flow: place, .. }) = self.flows.put(&asked) {
                self.note(place, Phase::Asked, flow.user.owner);
                counts.asked += 1;
                ask(flow.key, flow.user.owner);
            }
        }
    }
}

/// The phase of what was found.
pub(super) fn phase(hit: &Hit) -> Phase {
    phase_of(hit.state)
}
