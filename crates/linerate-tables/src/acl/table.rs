//! The table: rules added and removed, packets classified.

use linerate_core::MemError;
use linerate_core::env::Isa;

use super::counters::HitCounters;
use super::key::PacketKey;
use super::lookup::{CATEGORIES, GROUP};
use super::rule::{Match, Rule, RuleError};
use super::rules::Rules;
use super::tree::{MOST_COPIES, Trees};
use crate::TableError;
use crate::simd::acl::Kernels;

/// Fewer packets than these are looked up one by one: the room for a whole group costs more.
const FEW: usize = 4;

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
    /// If its fields are too wide or do not agree, it is in no category, or there is a rule with
    /// the same match and categories: one of the two could never win.
    pub fn check(&self, rule: &Rule<W>) -> Result<(), TableError> {
        check(&self.rules, rule)
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
        let mut all = self.rules.clone();
        for rule in rules {
            check(&all, rule)?;
            if !all.has_room(1) {
                self.check_room(rules.len())?;
            }
            all.insert(rule);
        }
        self.replace(all)
    }

    /// Puts these rules in the place of those that there are.
    fn replace(&mut self, rules: Rules<W>) -> Result<(), TableError> {
        let trees = Trees::build(&rules)?;
        let needed = trees.bytes() + rules.bytes();
        if needed > self.config.budget_bytes {
            return Err(TableError::AclBudget {
                rules: rules.len(),
                needed,
                budget: self.config.budget_bytes,
            });
        }
        (self.rules, self.trees) = (rules, trees);
        (self.added, self.built) = (0, self.len());
        Ok(())
    }

    /// Takes out the rule with this match and these categories. As short as
    /// [`insert`](Self::insert).
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
        self.replace(self.rules.clone())
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
        if packets.len() < FEW {
            for (packet, value) in packets.iter().zip(values) {
                *value = self.classify_one(packet);
            }
            return;
        }
        let mut slots = [0; GROUP];
        for (packets, values) in packets.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            with_group(packets, |group| {
                (self.kernels.winners)(&self.trees, &self.rules, group, &mut slots);
            });
            for (value, slot) in values.iter_mut().zip(slots) {
                *value = self.rules.records()[slot as usize].value;
            }
        }
    }

    /// As [`classify`](Self::classify), of one packet.
    pub fn classify_one(&self, packet: &PacketKey<W>) -> u32 {
        let mut slot = [0];
        let one = (std::array::from_ref(packet), 1);
        (self.kernels.winner)(&self.trees, &self.rules, one, &mut slot);
        self.rules.records()[slot[0] as usize].value
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
            with_group(packets, |group| {
                (self.kernels.winners)(&self.trees, &self.rules, group, &mut slots);
            });
            for (value, slot) in values.iter_mut().zip(slots) {
                let record = &self.rules.records()[slot as usize];
                *value = record.value;
                counters.hit(slot, record.order as u32);
            }
        }
    }

    /// For each packet and each of the first `C` categories the value of the rule that wins in it,
    /// or the default. Several times as long as [`classify`](Self::classify): no rule ends the
    /// search.
    ///
    /// # Panics
    /// If there are fewer results than packets, or more than 16 categories.
    pub fn classify_categories<const C: usize>(
        &self,
        packets: &[PacketKey<W>],
        results: &mut [[u32; C]],
    ) {
        const { assert!(C <= CATEGORIES, "a rule has 16 bits for its categories") };
        let results = &mut results[..packets.len()];
        let mut slots = [[0; CATEGORIES]; GROUP];
        for (packets, results) in packets.chunks(GROUP).zip(results.chunks_mut(GROUP)) {
            with_group(packets, |group| {
                (self.kernels.by_category)(&self.trees, &self.rules, group, &mut slots);
            });
            for (result, slots) in results.iter_mut().zip(&slots) {
                let value = |category: usize| self.rules.records()[slots[category] as usize].value;
                *result = std::array::from_fn(value);
            }
        }
    }
}

/// As [`Acl::check`].
fn check<const W: usize>(rules: &Rules<W>, rule: &Rule<W>) -> Result<(), TableError> {
    let sound = match rule.categories {
        0 => Err(RuleError::NoCategory),
        _ => rule.matching.check(),
    };
    sound.map_err(|reason| TableError::AclRule {
        priority: rule.priority,
        reason,
    })?;
    match rules.find(&rule.matching, rule.categories) {
        Some(known) => Err(TableError::AclDuplicate {
            priority: rule.priority,
            other: rules.rule(known).priority,
        }),
        None => Ok(()),
    }
}

/// Hands on a whole group: fewer packets are filled up.
#[inline]
fn with_group<const W: usize>(
    packets: &[PacketKey<W>],
    look: impl FnOnce((&[PacketKey<W>; GROUP], usize)),
) {
    match packets.first_chunk() {
        Some(group) => look((group, GROUP)),
        None => {
            let none = PacketKey::tuple([0; W], [0; W], (0, 0), 0);
            let packet = |at| packets.get(at).copied().unwrap_or(none);
            look((&std::array::from_fn(packet), packets.len()));
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
