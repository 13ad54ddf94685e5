//! The table: rules added and removed, packets classified.

use linerate_core::env::Isa;

use super::block::{LANES, Lane, MORE_FIELDS, RUN_GOES_ON, SLOT};
use super::key::PacketKey;
use super::rule::{Match, Rule, RuleError};
use super::rules::Rules;
use super::tree::Trees;
use super::window::{WINDOWS, Windows};
use crate::TableError;
use crate::simd::acl::Kernels;

/// Packets that are taken through the trees side by side.
const GROUP: usize = 32;
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

    #[inline]
    fn slots(&self, packets: &[PacketKey<W>], slots: &mut [u32; GROUP]) {
        let mut windows: [Windows; GROUP] = [[0; WINDOWS]; GROUP];
        for (windows, packet) in windows.iter_mut().zip(packets) {
            *windows = packet.windows();
        }
        let many = packets.len().min(GROUP);
        let (nodes, blocks) = (self.trees.nodes(), self.trees.blocks());
        let trees = self.trees.trees.len();
        let mut at = [[0; GROUP]; PLACES];
        for (at, tree) in at.iter_mut().zip(&self.trees.trees) {
            at.fill(tree.root);
            (self.kernels.descend)(nodes, blocks, tree.depth, &windows[..many], &mut at[..many]);
        }
        at[trees].fill(nodes[self.trees.last as usize].info);
        let records = self.rules.records();
        slots.fill(0);
        for at in &mut at[..=trees] {
            (self.kernels.scan)(blocks, packets, &mut at[..many]);
            for (best, slot) in slots.iter_mut().zip(at) {
                let slot = *slot & SLOT;
                if records[slot as usize].order < records[*best as usize].order {
                    *best = slot;
                }
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
