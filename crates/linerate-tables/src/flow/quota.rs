//! How many flows each owner has.

use crate::TableError;
use crate::exact::{Exact, ExactConfig, Seed};

/// Counts by owner, and the most that one may have.
pub(super) struct Quota {
    most: u32,
    counts: Exact<8, u32>,
}

impl Quota {
    pub(super) fn new(name: &str, most: u32, flows: usize, seed: Seed) -> Result<Self, TableError> {
        // One more: an evicted flow goes only after the new one came.
        let config = ExactConfig::new(name, flows + 1, seed).full_size();
        Ok(Self {
            most,
            counts: Exact::new(&config)?,
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

    /// One less.
    pub(super) fn remove(&mut self, owner: u64) {
        let owner = owner.to_le_bytes();
        if self.counts.update(&owner, |count| count - 1) == Some(1) {
            self.counts.remove(&owner);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.counts.memory_bytes()
    }
}
