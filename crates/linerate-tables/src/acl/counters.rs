//! How often each rule won: one writer for each lcore, and readers that sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::rule::Match;
use super::table::Acl;
use crate::TableError;

/// The hits of one slot. A slot is used again for another rule, so it says for which it counts.
#[derive(Debug, Default)]
struct Cell {
    /// When the rule was added.
    rule: AtomicU32,
    hits: AtomicU64,
}

/// The counting side, for one lcore.
#[derive(Debug)]
pub struct HitCounters {
    cells: Arc<[Cell]>,
    beyond: u64,
}

/// The reading side.
#[derive(Clone, Debug)]
pub struct HitReader {
    cells: Arc<[Cell]>,
}

impl HitCounters {
    /// Counters for the rules of a table that never has more than `rules` of them at a time; 16
    /// bytes each. Hits of rules beyond that are counted together, see [`beyond`](Self::beyond).
    pub fn new(rules: usize) -> Self {
        // Slot 0 is no rule: what no rule matched.
        let cells = (0..=rules).map(|_| Cell::default()).collect();
        Self { cells, beyond: 0 }
    }

    /// Readers of the counters.
    pub fn reader(&self) -> HitReader {
        HitReader {
            cells: self.cells.clone(),
        }
    }

    /// Hits of rules for which there was no room.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    #[inline]
    pub(super) fn hit(&mut self, slot: u32, rule: u32) {
        let Some(cell) = self.cells.get(slot as usize) else {
            self.beyond += 1;
            return;
        };
        // There is one writer, so a load and a store suffice, without a locked instruction.
        let mut hits = cell.hits.load(Ordering::Relaxed);
        if cell.rule.load(Ordering::Relaxed) != rule {
            // A reader may see the old rule's number with the new count only as 0.
            cell.hits.store(0, Ordering::Relaxed);
            cell.rule.store(rule, Ordering::Release);
            hits = 0;
        }
        cell.hits.store(hits + 1, Ordering::Release);
    }
}

impl HitReader {
    fn hits(&self, slot: u32, rule: u32) -> u64 {
        let Some(cell) = self.cells.get(slot as usize) else {
            return 0;
        };
        let hits = cell.hits.load(Ordering::Acquire);
        match cell.rule.load(Ordering::Acquire) == rule {
            true => hits,
            false => 0,
        }
    }
}

impl<const W: usize> Acl<W> {
    /// How often a rule won, at all lcores together, since it was added.
    ///
    /// # Errors
    /// If there is no rule with this match and these categories.
    pub fn hits(
        &self,
        matching: &Match<W>,
        categories: u16,
        readers: &[HitReader],
    ) -> Result<u64, TableError> {
        let slot = self.rules.find(matching, categories);
        let slot = slot.ok_or(TableError::AclNoSuchRule { categories })?;
        Ok(self.sum(slot, readers))
    }

    /// How many packets no rule matched.
    pub fn misses(&self, readers: &[HitReader]) -> u64 {
        self.sum(0, readers)
    }

    fn sum(&self, slot: u32, readers: &[HitReader]) -> u64 {
        let rule = self.rules.order(slot) as u32;
        readers.iter().map(|reader| reader.hits(slot, rule)).sum()
    }
}
