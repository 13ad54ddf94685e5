//! The rules themselves, by slot, and the order in which they win.

use std::collections::{HashMap, VecDeque};

use super::block::{Lane, SLOT};
use super::rule::{Match, Rule};
use super::window::Ternary;

/// What a lookup needs of the rule that won.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Priority in the high half, when it was added in the low one: the smallest wins.
    pub(crate) order: u64,
    pub(super) value: u32,
    pub(super) categories: u16,
}

/// Slot 0: no rule, and every rule wins over it.
const NONE: Record = Record {
    order: u64::MAX,
    value: 0,
    categories: 0,
};

/// Every rule of a table.
#[derive(Clone)]
pub(crate) struct Rules<const W: usize> {
    records: Vec<Record>,
    rules: Vec<Rule<W>>,
    /// Slots without a rule, the one that has been so longest first.
    free: VecDeque<u32>,
    by_match: HashMap<(Match<W>, u16), u32>,
    added: u32,
}

impl<const W: usize> Rules<W> {
    /// No rules; `value` is for packets that no rule matches.
    pub(super) fn new(value: u32) -> Self {
        Self {
            records: vec![Record { value, ..NONE }],
            rules: vec![Rule::new(u32::MAX, Match::ANY, value)],
            free: VecDeque::new(),
            by_match: HashMap::new(),
            added: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_match.len()
    }

    /// The records, by slot.
    #[inline]
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn rule(&self, slot: u32) -> &Rule<W> {
        &self.rules[slot as usize]
    }

    #[inline]
    pub(super) fn order(&self, slot: u32) -> u64 {
        self.records[slot as usize].order
    }

    pub(super) fn lane(&self, slot: u32) -> Lane<W> {
        Lane::of(&self.rule(slot).matching, slot)
    }

    pub(super) fn ternary(&self, slot: u32) -> Ternary {
        Ternary::of(&self.rule(slot).matching)
    }

    /// The slot of the rule with this match and these categories.
    pub(super) fn find(&self, matching: &Match<W>, categories: u16) -> Option<u32> {
        self.by_match.get(&(*matching, categories)).copied()
    }

    /// All slots with a rule, the winners first.
    pub(super) fn slots_in_order(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.by_match.values().copied().collect();
        slots.sort_unstable_by_key(|slot| self.order(*slot));
        slots
    }

    /// Whether there is room for so many more.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.records.len() + more <= self.free.len() + SLOT as usize
    }

    /// Adds a rule that is not there yet; there must be room.
    pub(super) fn insert(&mut self, rule: &Rule<W>) -> u32 {
        if self.added == u32::MAX {
            self.renumber();
        }
        let record = Record {
            order: u64::from(rule.priority) << 32 | u64::from(self.added),
            value: rule.value,
            categories: rule.categories,
        };
        self.added += 1;
        let slot = match self.free.pop_front() {
            Some(slot) => {
                self.records[slot as usize] = record;
                self.rules[slot as usize] = *rule;
                slot
            }
            None => {
                self.records.push(record);
                self.rules.push(*rule);
                self.records.len() as u32 - 1
            }
        };
        self.by_match.insert((rule.matching, rule.categories), slot);
        slot
    }

    /// Forgets a rule that is in no tree any more.
    pub(super) fn remove(&mut self, slot: u32) {
        let rule = self.rules[slot as usize];
        self.by_match.remove(&(rule.matching, rule.categories));
        self.records[slot as usize] = Record {
            value: self.records[0].value,
            ..NONE
        };
        self.free.push_back(slot);
    }

    /// Numbers the rules anew, after four billion were added; their order stays.
    fn renumber(&mut self) {
        self.added = 0;
        for slot in self.slots_in_order() {
            let record = &mut self.records[slot as usize];
            record.order = record.order >> 32 << 32 | u64::from(self.added);
            self.added += 1;
        }
    }

    /// Memory, all that is set aside.
    pub(super) fn bytes(&self) -> usize {
        // A hash map keeps an eighth free, and a byte beside each entry.
        let entry = size_of::<((Match<W>, u16), u32)>() + 1;
        self.records.capacity() * size_of::<Record>()
            + self.rules.capacity() * size_of::<Rule<W>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_match.capacity() * entry * 8 / 7
    }

    /// No less than what [`bytes`](Self::bytes) is with so many rules more: all of it doubles.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        let fits = self.records.len() + more <= self.free.len() + self.records.capacity();
        match fits && self.len() + more <= self.by_match.capacity() {
            true => self.bytes(),
            false => self.bytes() * 2 + more * 2 * size_of::<(Rule<W>, Rule<W>)>(),
        }
    }
}
