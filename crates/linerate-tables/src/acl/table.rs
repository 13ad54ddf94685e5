//! The table: rules added and removed, packets classified.

use linerate_core::MemError;
use linerate_core::env::Isa;

use super::block::{MORE_FIELDS, SLOT};
use super::counters::HitCounters;
use super::key::PacketKey;
use super::rule::{Match, Rule, RuleError};
use super::rules::Rules;
use super::tree::{MOST_COPIES, Trees};
use super::window::Windows;
use crate::TableError;
use crate::simd::acl::{GROUP, Kernels};

/// Trees and the last leaf.
pub(super) const PLACES: usize = super::build::TREES + 1;

/// What a table is to be.
#[derive(Clone, Copy, Debug)]
pub struct AclConfig {
    /// The value of packets that no rule matches.
    pub default: u32,
    /// The most memory that the table may take, in bytes.
    pub budget_bytes: usize,
    /// Whether trees are built anew where half as many rules were added as they were built for.
    /// That takes O(n log n) in one of many insertions; without it every insertion is short, and
    /// [`Acl::rebuild`] is the caller's.
    pub rebuild: bool,
    /// Which vector kernels to use, if the CPU has them.
    pub isa: Isa,
}

impl Default for AclConfig {
    /// Value 0 where no rule matches, 256 MiB, rebuilds, the best kernels.
    fn default() -> Self {
        Self {
            default: 0,
            budget_bytes: 256 << 20,
            rebuild: true,
            isa: Isa::detect(),
        }
    }
}

/// An access list; see the [module](super) for what it costs.
///
/// ```
/// use linerate_tables::acl::{Acl4, AclConfig, Bits, Match4, PacketKey4, Prefix, Range, Rule4};
/// let mut acl = Acl4::new(AclConfig::default())?;
/// let web = Match4 {
///     dst: Prefix::new([0x0a000000], 8)?,
///     dst_ports: Range::one(443),
///     protocol: Bits::byte(6),
///     ..Match4::ANY
/// };
/// acl.insert(&Rule4::new(10, web, 1))?;
/// acl.insert(&Rule4::new(20, Match4::ANY, 2))?;
/// let packets = [
///     PacketKey4::tuple([0xc0a80001], [0x0a010203], (50_000, 443), 6),
///     PacketKey4::tuple([0xc0a80001], [0x0a010203], (50_000, 80), 6),
/// ];
/// let mut values = [0; 2];
/// acl.classify(&packets, &mut values);
/// assert_eq!(values, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Acl<const W: usize> {
    pub(super) rules: Rules<W>,
    pub(super) trees: Trees<W>,
    kernels: Kernels<W>,
    pub(super) config: AclConfig,
    /// Rules added since the trees were built, and how many there were then.
    added: usize,
    built: usize,
}

/// An access list for IPv4.
pub type Acl4 = Acl<1>;
/// An access list for IPv6.
pub type Acl6 = Acl<4>;

impl<const W: usize> Acl<W> {
    /// A table without rules.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(config: AclConfig) -> Result<Self, TableError> {
        Ok(Self {
            rules: Rules::new(config.default),
            trees: Trees::new(0, MOST_COPIES)?,
            kernels: Kernels::pick(config.isa.min(Isa::detect())),
            config,
            added: 0,
            built: 0,
        })
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rules, the winners first. O(n log n).
    pub fn rules(&self) -> impl Iterator<Item = &Rule<W>> {
        let slots = self.rules.slots_in_order().into_iter();
        slots.map(|slot| self.rules.rule(slot))
    }

    /// The rule with this match and these categories.
    pub fn find(&self, matching: &Match<W>, categories: u16) -> Option<&Rule<W>> {
        let slot = self.rules.find(matching, categories)?;
        Some(self.rules.rule(slot))
    }

    /// Memory that the table takes, in bytes, free room included.
    pub fn bytes(&self) -> usize {
        self.trees.bytes() + self.rules.bytes()
    }

    /// Whether a rule is sound, and not there yet.
    ///
    /// # Errors
    /// If its fields are too wide or do not agree, it is in no category, or there is a rule with the
    /// same match and categories: one of the two could never win.
    pub fn check(&self, rule: &Rule<W>) -> Result<(), TableError> {
        let sound = match rule.categories {
            0 => Err(RuleError::NoCategory),
            _ => rule.matching.check(),
        };
        sound.map_err(|reason| TableError::AclRule {
            priority: rule.priority,
            reason,
        })?;
        match self.find(&rule.matching, rule.categories) {
            Some(known) => Err(TableError::AclDuplicate {
                priority: rule.priority,
                other: known.priority,
            }),
            None => Ok(()),
        }
    }

    /// Whether so many rules can be added, wherever they fall.
    ///
    /// # Errors
    /// If the table might exceed its budget, or the rules it can number.
    pub fn check_room(&self, more: usize) -> Result<(), TableError> {
        let (nodes, blocks) = self.trees.headroom(more);
        let needed = self.trees.bytes_with(nodes, blocks) + self.rules.bytes_with(more);
        match needed <= self.config.budget_bytes && self.rules.has_room(more) {
            true => Ok(()),
            false => Err(TableError::AclBudget {
                rules: self.len() + more,
                needed,
                budget: self.config.budget_bytes,
            }),
        }
    }

    /// Adds a rule. At most 16 leaves of at most 4 blocks change; a rule that fits in no tree goes
    /// to the last leaf, which is O(rules there). But see [`AclConfig::rebuild`].
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`check_room`](Self::check_room), and if there is no memory;
    /// the table is as it was.
    pub fn insert(&mut self, rule: &Rule<W>) -> Result<(), TableError> {
        self.check(rule)?;
        self.check_room(1)?;
        let (nodes, blocks) = self.trees.headroom(1);
        self.trees.reserve(nodes, blocks)?;
        let slot = self.rules.insert(rule);
        self.trees.insert(slot, &self.rules)?;
        self.added += 1;
        if self.config.rebuild && self.wants_rebuild() {
            // Where there is no room for other trees, those that are there still hold every rule.
            let _ = self.rebuild();
        }
        Ok(())
    }

    /// Adds all of these rules or none, and builds the trees anew. O(n log n).
    ///
    /// # Errors
    /// As [`insert`](Self::insert); the table is as it was.
    pub fn insert_all(&mut self, rules: &[Rule<W>]) -> Result<(), TableError> {
        if !self.rules.has_room(rules.len()) {
            self.check_room(rules.len())?;
        }
        let mut slots = Vec::with_capacity(rules.len());
        let mut add = || {
            for rule in rules {
                self.check(rule)?;
                slots.push(self.rules.insert(rule));
            }
            self.rebuild()
        };
        let added = add();
        if added.is_err() {
            slots.into_iter().for_each(|slot| self.rules.remove(slot));
        }
        added
    }

    /// Takes out the rule with this match and these categories. As short as [`insert`](Self::insert).
    ///
    /// # Errors
    /// If there is none, or no memory to move its neighbours; the table is as it was.
    pub fn remove(&mut self, matching: &Match<W>, categories: u16) -> Result<(), TableError> {
        let slot = self.rules.find(matching, categories);
        let slot = slot.ok_or(TableError::AclNoSuchRule { categories })?;
        let (nodes, blocks) = self.trees.headroom(1);
        self.trees.reserve(nodes, blocks)?;
        self.trees.remove(slot, &self.rules);
        self.rules.remove(slot);
        Ok(())
    }

    /// Whether so many rules were added since the trees were built that others would be better.
    pub fn wants_rebuild(&self) -> bool {
        self.added > 32 + self.built / 2
    }

    /// Builds the trees anew, for the rules that there are now. O(n log n): two microseconds a rule
    /// or so.
    ///
    /// # Errors
    /// If there is no memory, or the budget has no room, for them; the table is as it was.
    pub fn rebuild(&mut self) -> Result<(), TableError> {
        let trees = Trees::build(&self.rules)?;
        let needed = trees.bytes() + self.rules.bytes();
        if needed > self.config.budget_bytes {
            return Err(TableError::AclBudget {
                rules: self.len(),
                needed,
                budget: self.config.budget_bytes,
            });
        }
        self.trees = trees;
        (self.added, self.built) = (0, self.len());
        Ok(())
    }

    /// Another table with the same content.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            rules: self.rules.clone(),
            trees: self.trees.copy()?,
            ..*self
        })
    }

    /// The value of the rule that wins for each packet, whatever its categories, or the default.
    ///
    /// # Panics
    /// If there are fewer values than packets.
    pub fn classify(&self, packets: &[PacketKey<W>], values: &mut [u32]) {
        let values = &mut values[..packets.len()];
        let mut slots = [0; GROUP];
        for (packets, values) in packets.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.winners(packets, &mut slots);
            for (value, slot) in values.iter_mut().zip(slots) {
                *value = self.rules.records()[slot as usize].value;
            }
        }
    }

    /// As [`classify`](Self::classify), and counts a hit for each rule that wins.
    ///
    /// # Panics
    /// If there are fewer values than packets.
    pub fn classify_counted(
        &self,
        packets: &[PacketKey<W>],
        values: &mut [u32],
        counters: &mut HitCounters,
    ) {
        let values = &mut values[..packets.len()];
        let mut slots = [0; GROUP];
        for (packets, values) in packets.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.winners(packets, &mut slots);
            for (value, slot) in values.iter_mut().zip(slots) {
                let record = &self.rules.records()[slot as usize];
                *value = record.value;
                counters.hit(slot, record.order as u32);
            }
        }
    }

    /// For each packet and each of the first `C` categories the value of the rule that wins in it, or
    /// the default. Several times as long as [`classify`](Self::classify): no rule ends the search.
    ///
    /// # Panics
    /// If there are fewer results than packets, or more than 16 categories.
    pub fn classify_categories<const C: usize>(
        &self,
        packets: &[PacketKey<W>],
        results: &mut [[u32; C]],
    ) {
        const { assert!(C <= 16, "a rule has 16 bits for its categories") };
        let results = &mut results[..packets.len()];
        let records = self.rules.records();
        for (packets, results) in packets.chunks(GROUP).zip(results.chunks_mut(GROUP)) {
            let (starts, places) = self.leaves(packets);
            for (at, (packet, result)) in packets.iter().zip(results).enumerate() {
                let mut best = [(u64::MAX, records[0].value); C];
                for starts in &starts[..places] {
                    self.each_match(starts[at], packet, |slot| {
                        let record = &records[slot as usize];
                        for (category, best) in best.iter_mut().enumerate() {
                            if record.categories >> category & 1 != 0 && record.order < best.0 {
                                *best = (record.order, record.value);
                            }
                        }
                        false
                    });
                }
                *result = best.map(|(_, value)| value);
            }
        }
    }

    /// The slot of the rule that wins for each packet, 0 where none matches.
    #[inline]
    pub(super) fn winners(&self, packets: &[PacketKey<W>], slots: &mut [u32; GROUP]) {
        let many = packets.len().min(GROUP);
        let packets = &packets[..many];
        let (mut found, places) = self.leaves(packets);
        let (blocks, records) = (self.trees.blocks(), self.rules.records());
        let mut orders = [u64::MAX; GROUP];
        slots.fill(0);
        for found in &mut found[..places] {
            let starts = *found;
            (self.kernels.scan)(blocks, records, packets, &orders, &mut found[..many]);
            if found[..many].iter().fold(0, |all, slot| all | slot) & MORE_FIELDS != 0 {
                self.look_in_full(packets, &starts, found);
            }
            for ((best, order), slot) in slots.iter_mut().zip(&mut orders).zip(&found[..many]) {
                let slot = slot & SLOT;
                let own = records[slot as usize].order;
                *best = std::hint::select_unpredictable(own < *order, slot, *best);
                *order = own.min(*order);
            }
        }
    }

    /// The first blocks of the leaves that each packet reaches, in how many places.
    #[inline(always)]
    fn leaves(&self, packets: &[PacketKey<W>]) -> ([[u32; GROUP]; PLACES], usize) {
        let mut at = [[0; GROUP]; PLACES];
        let Some(last) = packets.len().min(GROUP).checked_sub(1) else {
            return (at, 0);
        };
        let windows: [Windows; GROUP] = std::array::from_fn(|at| packets[at.min(last)].windows());
        let (nodes, blocks) = (self.trees.nodes(), self.trees.blocks());
        let trees = &self.trees.trees;
        for (at, tree) in at.iter_mut().zip(trees) {
            (self.kernels.descend)(nodes, blocks, tree.root, &windows[..=last], at);
        }
        let mut places = trees.len();
        if self.trees.last_start() != 0 {
            at[places].fill(self.trees.last_start());
            places += 1;
        }
        (at, places)
    }

    /// Looks again where the rule found asks for fields that its lane does not hold.
    #[cold]
    fn look_in_full(
        &self,
        packets: &[PacketKey<W>],
        starts: &[u32; GROUP],
        found: &mut [u32; GROUP],
    ) {
        for (at, packet) in packets.iter().enumerate() {
            if found[at] & MORE_FIELDS != 0 {
                found[at] = 0;
                self.each_match(starts[at], packet, |slot| {
                    found[at] = slot;
                    true
                });
            }
        }
    }

    /// Calls `each` for every rule in a run that matches, in order, until it says that it is enough.
    fn each_match(&self, start: u32, packet: &PacketKey<W>, mut each: impl FnMut(u32) -> bool) {
        for block in &self.trees.blocks()[start as usize..] {
            let mut lanes = (self.kernels.matching)(block, packet);
            while lanes != 0 {
                let marked = block.slots[lanes.trailing_zeros() as usize];
                lanes &= lanes - 1;
                let slot = marked & SLOT;
                let matches =
                    marked & MORE_FIELDS == 0 || self.rules.rule(slot).matching.matches(packet);
                if slot != 0 && matches && each(slot) {
                    return;
                }
            }
            if !block.goes_on() {
                return;
            }
        }
    }
}

impl<const W: usize> std::fmt::Debug for Acl<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acl")
            .field("rules", &self.len())
            .field("trees", &self.trees.trees.len())
            .field("bytes", &self.bytes())
            .field("config", &self.config)
            .finish()
    }
}
