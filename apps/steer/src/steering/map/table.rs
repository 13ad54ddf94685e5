//! The map of one family: entries in a [`FlowTable`], and what messages and segments do to them.

use linerate_core::packet::Burst;
use linerate_dispatch::ones;
use linerate_tables::flow::{Direction, First, Flow, FlowKey, FlowTable, Hit, Inserted};
use linerate_tables::parse::Mask;

use super::entry::{Entry, Phase, Segment, Step, Way, phase_of, step};
use super::{MapCounts, Member, Pinned, Refused};

/// Timers that one poll handles.
pub(super) const BUDGET: usize = 32;

/// What is done with the entries of a family, whose keys are `F`.
pub(super) trait Table<F> {
    /// The entry of packets from the network with this key.
    fn find(&self, key: F) -> Option<(Hit, Entry)>;

    /// Makes an entry; there is none yet.
    fn make(&mut self, now: u64, key: F, phase: Phase, entry: Entry) -> Result<(), Refused>;

    /// Changes one that is there.
    fn set(&mut self, hit: &Hit, phase: Phase, entry: Entry);

    /// As [`Map::enter`](super::Map::enter); whether it is a new one.
    fn enter(&mut self, now: u64, key: F, owner: Member) -> Result<bool, Refused>;

    /// As [`Map::pin`](super::Map::pin).
    fn pin(
        &mut self,
        now: u64,
        key: F,
        to: (Member, u16),
        by_hash: Option<Member>,
        counts: &mut MapCounts,
    ) -> Result<Pinned, Refused>;

    /// As [`Map::delete`](super::Map::delete); whether it was there.
    fn delete(&mut self, key: F, owner: Member) -> bool;

    /// As [`Map::observe`](super::Map::observe); whether the entry has ended with it.
    fn observe(&mut self, now: u64, key: F, way: Way, segment: &Segment) -> bool;

    /// Writes the owners of what was found at the positions of a mask; returns where it was.
    fn known(
        &self,
        mask: Mask,
        found: &[Option<Hit>; Burst::CAPACITY],
        owners: &mut [u32; Burst::CAPACITY],
    ) -> Mask;

    /// Handles timers: shows to `ask` the entries whose owners are to be asked.
    fn age(&mut self, now: u64, counts: &mut MapCounts, ask: impl FnMut(F, Member));
}

impl<F: FlowKey<K>, const K: usize> Table<F> for FlowTable<F, Entry, K> {
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

    fn enter(&mut self, now: u64, key: F, owner: Member) -> Result<bool, Refused> {
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
        self.touch(now, key, 0);
        // RFC 6191: a new connection may begin in the TIME-WAIT of the last one.
        if matches!(phase(&hit), Phase::Closed | Phase::Fin | Phase::Asked) {
            let moves = known.moves;
            self.set(&hit, Phase::Opening, Entry { moves, ..entry });
        }
        Ok(false)
    }

    fn pin(
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
        if (moves.wrapping_sub(known.moves) as i16) < 0 {
            return Ok(Pinned::Stale);
        }
        let entry = Entry {
            owner,
            moves,
            ..known
        };
        if known.owner == owner {
            self.touch(now, key, 0);
            let phase = match (phase(&hit), known.fins) {
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
        self.remove(hit.flow);
        let phase = match phase(&hit) {
            Phase::Asked => Phase::Open,
            phase => phase,
        };
        self.make(now, key, phase, entry)?;
        counts.moved += 1;
        Ok(Pinned::From(known.owner))
    }

    fn delete(&mut self, key: F, owner: Member) -> bool {
        match self.find(key) {
            Some((hit, known)) if known.owner == owner => self.remove(hit.flow).is_some(),
            _ => false,
        }
    }

    fn observe(&mut self, now: u64, key: F, way: Way, segment: &Segment) -> bool {
        let Some((hit, entry)) = self.find(key) else {
            return false;
        };
        match step(phase(&hit), entry, way, segment) {
            Step::Same => {}
            Step::Again => {
                self.touch(now, key, 0);
            }
            Step::To(to, entry) => {
                // Its time is that of the first FIN, so that more of them do not prolong it.
                if to != phase(&hit) {
                    self.touch(now, key, 0);
                }
                self.set(&hit, to, entry);
            }
            Step::Ends => return self.remove(hit.flow).is_some(),
        }
        false
    }

    #[inline(always)]
    fn known(
        &self,
        mask: Mask,
        found: &[Option<Hit>; Burst::CAPACITY],
        owners: &mut [u32; Burst::CAPACITY],
    ) -> Mask {
        let mut known = 0;
        for index in ones(mask) {
            if let Some(hit) = found[index]
                && hit.direction == Direction::Forward
                && let Some(entry) = self.user(hit.flow)
            {
                owners[index] = entry.owner.into();
                known |= 1 << index;
            }
        }
        known
    }

    fn age(&mut self, now: u64, counts: &mut MapCounts, mut ask: impl FnMut(F, Member)) {
        if self.next_expiry().is_none_or(|at| at > now) {
            return;
        }
        let mut idle: [Option<Flow<F, Entry>>; BUDGET] = [None; BUDGET];
        let mut count = 0;
        self.poll(now, BUDGET, |flow| match phase_of(flow.state) {
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
            if self.put(&asked).is_ok() {
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
