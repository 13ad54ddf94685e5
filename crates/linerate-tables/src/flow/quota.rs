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

/// Counts by zone, and the most that some may have. Untouched pages of it cost nothing.
pub(super) struct Zones(Vec<[u32; 2]>);

const FLOWS: usize = 0;
/// 0: no limit.
const MOST: usize = 1;

impl Zones {
    pub(super) fn new(limits: &[(u16, u32)]) -> Self {
        let mut zones = Self(vec![[0; 2]; 1 << 16]);
        zones.limit(limits);
        zones
    }

    /// Sets the limits of some zones, and takes away those of the others.
    pub(super) fn limit(&mut self, limits: &[(u16, u32)]) {
        self.0
            .iter_mut()
            .filter(|zone| zone[MOST] != 0)
            .for_each(|zone| zone[MOST] = 0);
        for &(zone, most) in limits {
            self.0[usize::from(zone)][MOST] = most;
        }
    }

    pub(super) fn count(&self, zone: u16) -> u32 {
        self.0[usize::from(zone)][FLOWS]
    }

    pub(super) fn has_room(&self, zone: u16) -> bool {
        let [flows, most] = self.0[usize::from(zone)];
        most == 0 || flows < most
    }

    pub(super) fn add(&mut self, zone: u16) {
        self.0[usize::from(zone)][FLOWS] += 1;
    }

    pub(super) fn remove(&mut self, zone: u16) {
        self.0[usize::from(zone)][FLOWS] -= 1;
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
