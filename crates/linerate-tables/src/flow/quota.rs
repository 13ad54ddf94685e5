//! How many flows each owner and each zone has, and may have.

use linerate_core::mem::HugeArray;

use crate::TableError;
use crate::exact::{Exact, ExactConfig, Seed};

/// Counts by owner, the most that one may have, and whose each flow is.
pub(super) struct Quota {
    most: u32,
    counts: Exact<8, u32>,
    owners: HugeArray<u64>,
}

impl Quota {
    pub(super) fn new(name: &str, most: u32, flows: usize, seed: Seed) -> Result<Self, TableError> {
        // One more: an evicted flow goes only after the new one came.
        let config = ExactConfig::new(name, flows + 1, seed).full_size();
        Ok(Self {
            most,
            counts: Exact::new(&config)?,
            owners: HugeArray::filled(name, flows, 0)?,
        })
    }

    /// Changes the most that an owner may have; one that has more keeps them.
    pub(super) fn limit(&mut self, most: u32) {
        self.most = most;
    }

    pub(super) fn count(&self, owner: u64) -> u32 {
        self.counts.lookup(&owner.to_le_bytes()).unwrap_or(0)
    }

    pub(super) fn has_room(&self, owner: u64) -> bool {
        self.count(owner) < self.most
    }

    /// One more. False if the table will not take the owner, which happens only to owners made to
    /// collide under a known seed.
    pub(super) fn add(&mut self, owner: u64) -> bool {
        let owner = owner.to_le_bytes();
        self.counts.update(&owner, |count| count + 1).is_some()
            || self.counts.insert(&owner, 1).is_ok()
    }

    /// Notes whose the flow of a place is, which was added.
    pub(super) fn set_owner(&mut self, place: u32, owner: u64) {
        self.owners[place as usize] = owner;
    }

    /// Whose the flow of a place is.
    pub(super) fn owner(&self, place: u32) -> u64 {
        self.owners[place as usize]
    }

    /// One less.
    pub(super) fn remove(&mut self, place: u32) {
        let owner = self.owner(place).to_le_bytes();
        if self.counts.update(&owner, |count| count - 1) == Some(1) {
            self.counts.remove(&owner);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.counts.memory_bytes() + self.owners.region().len()
    }
}

/// How many zones there are.
const ZONES: usize = 1 << u8::BITS;

/// Counts by zone and state, and the most flows that some zones may have.
pub(super) struct Zones {
    flows: [u32; ZONES],
    /// 0: no limit.
    most: [u32; ZONES],
    /// Flows of each zone by state.
    in_state: Vec<u32>,
    states: usize,
}

impl Zones {
    pub(super) fn new(limits: &[(u8, u32)], states: usize) -> Self {
        let mut zones = Self {
            flows: [0; ZONES],
            most: [0; ZONES],
            in_state: vec![0; ZONES * states],
            states,
        };
        zones.limit(limits);
        zones
    }

    /// Sets the limits of some zones, and takes away those of the others.
    pub(super) fn limit(&mut self, limits: &[(u8, u32)]) {
        self.most = [0; ZONES];
        for &(zone, most) in limits {
            self.most[usize::from(zone)] = most;
        }
    }

    pub(super) fn count(&self, zone: u8) -> u32 {
        self.flows[usize::from(zone)]
    }

    /// Flows of a zone in a state.
    pub(super) fn count_in(&self, zone: u8, state: u8) -> u32 {
        let count = self.in_state.get(self.at(zone, state));
        count.copied().unwrap_or(0)
    }

    pub(super) fn has_room(&self, zone: u8) -> bool {
        let most = self.most[usize::from(zone)];
        most == 0 || self.flows[usize::from(zone)] < most
    }

    /// A flow of a zone is in a state from now on.
    pub(super) fn enter(&mut self, zone: u8, state: u8) {
        let at = self.at(zone, state);
        self.in_state[at] += 1;
        self.flows[usize::from(zone)] += 1;
    }

    /// It is no longer.
    pub(super) fn leave(&mut self, zone: u8, state: u8) {
        let at = self.at(zone, state);
        self.in_state[at] -= 1;
        self.flows[usize::from(zone)] -= 1;
    }

    fn at(&self, zone: u8, state: u8) -> usize {
        usize::from(zone) * self.states + usize::from(state)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.flows) + size_of_val(&self.most) + size_of_val(&*self.in_state)
    }
}
