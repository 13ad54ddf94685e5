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

/// Counts of the zones that have a limit, by zone.
pub(super) struct Zones(Vec<Zone>);

#[derive(Clone, Copy)]
struct Zone {
    flows: u32,
    most: u32,
}

impl Zones {
    pub(super) fn new(limits: &[(u16, u32)]) -> Self {
        let last = limits.iter().map(|&(zone, _)| usize::from(zone) + 1).max();
        let free = Zone {
            flows: 0,
            most: u32::MAX,
        };
        let mut zones = vec![free; last.unwrap_or(0)];
        for &(zone, most) in limits {
            zones[usize::from(zone)].most = most;
        }
        Self(zones)
    }

    pub(super) fn count(&self, zone: u16) -> u32 {
        self.0.get(usize::from(zone)).map_or(0, |zone| zone.flows)
    }

    pub(super) fn has_room(&self, zone: u16) -> bool {
        let zone = self.0.get(usize::from(zone));
        zone.is_none_or(|zone| zone.flows < zone.most)
    }

    pub(super) fn add(&mut self, zone: u16) {
        if let Some(zone) = self.0.get_mut(usize::from(zone)) {
            zone.flows += 1;
        }
    }

    pub(super) fn remove(&mut self, zone: u16) {
        if let Some(zone) = self.0.get_mut(usize::from(zone)) {
            zone.flows -= 1;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Zone>()
    }
}
