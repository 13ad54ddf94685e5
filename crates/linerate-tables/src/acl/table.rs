//! The table: rules added and removed, packets classified.

use linerate_core::env::Isa;

use super::block::{LANES, Lane, MORE_FIELDS, RUN_GOES_ON, SLOT};
use super::key::PacketKey;
use super::rule::{Match, Rule, RuleError};
use super::rules::Rules;
use super::tree::Trees;
use super::window::Windows;
use crate::TableError;
use crate::simd::acl::{GROUP, Kernels};

/// Trees and the last leaf.
const PLACES: usize = 5;

/// What a table is to be.
#[derive(Clone, Copy, Debug)]
pub struct AclConfig {
    /// The value of packets that no rule matches.
    pub default: u32,
    /// The most memory that the table may take, in bytes.
    pub budget_bytes: usize,
    /// Which vector kernels to use.
    pub isa: Isa,
}

impl Default for AclConfig {
    /// Value 0 where no rule matches, 256 MiB, the best kernels.
    fn default() -> Self {
        Self {
            default: 0,
            budget_bytes: 256 << 20,
            isa: Isa::detect(),
        }
    }
}

/// An access list.
#[derive(Clone)]
pub struct Acl<const W: usize> {
    pub(super) rules: Rules<W>,
    trees: Trees<W>,
    kernels: Kernels<W>,
    config: AclConfig,
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
            trees: Trees::new(0)?,
            kernels: Kernels::pick(config.isa.min(Isa::detect())),
            config,
            added: 0,
            built: 0,
        })
    }

    pub fn load(&mut self, rules: &[Rule<W>]) -> Result<(), TableError> {
        for rule in rules {
            self.rules.insert(rule);
        }
        self.rebuild()
    }

    /// Builds the trees anew.
    pub fn rebuild(&mut self) -> Result<(), TableError> {
        let mut trees = Trees::new(self.rules.len())?;
        trees.build(&self.rules)?;
        self.trees = trees;
        Ok(())
    }

    pub fn classify(&self, packets: &[PacketKey<W>], values: &mut [u32]) {
        let mut slots = [0; GROUP];
        for (packets, values) in packets.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.slots(packets, &mut slots);
            for (value, slot) in values.iter_mut().zip(slots) {
                *value = self.rules.records()[slot as usize].value;
            }
        }
    }

    /// The slot of the rule that wins for each packet, 0 where none matches.
    #[inline]
    fn slots(&self, packets: &[PacketKey<W>], slots: &mut [u32; GROUP]) {
        let Some(last) = packets.len().min(GROUP).checked_sub(1) else {
            return;
        };
        let packets = &packets[..=last];
        let windows: [Windows; GROUP] = std::array::from_fn(|at| packets[at.min(last)].windows());
        let (nodes, blocks) = (self.trees.nodes(), self.trees.blocks());
        let mut at = [[0; GROUP]; PLACES];
        let trees = &self.trees.trees;
        for (at, tree) in at.iter_mut().zip(trees) {
            (self.kernels.descend)(nodes, blocks, tree.root, &windows[..=last], at);
        }
        let mut places = trees.len();
        if self.trees.last_start() != 0 || places == 0 {
            at[places].fill(self.trees.last_start());
            places += 1;
        }
        let records = self.rules.records();
        let mut orders = [u64::MAX; GROUP];
        slots.fill(0);
        for at in &mut at[..places] {
            (self.kernels.scan)(blocks, packets, &mut at[..=last]);
            for ((best, order), slot) in slots.iter_mut().zip(&mut orders).zip(at) {
                let slot = *slot & SLOT;
                let own = records[slot as usize].order;
                *best = std::hint::select_unpredictable(own < *order, slot, *best);
                *order = own.min(*order);
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.trees.bytes() + self.rules.bytes()
    }

    pub fn shape(&self) -> String {
        self.trees.shape()
    }
}
