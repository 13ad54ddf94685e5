//! IPv6 routes and the table that lookups read.
//!
//! [`Fib6`] owns both: the routes ([`Rib`], one per VRF), and a [`Tree`] made from them that is small
//! enough for the caches. Read `simd::lpm6` for how an address is looked up, [`build`] for how the
//! tree follows the routes, and `docs/adr/0015-lpm6.md` for why it is so.

mod build;
mod nodes;
mod ranges;
#[cfg(test)]
mod tests;

use self::build::Build;
use self::nodes::Nodes;
use super::{Prefix6, Rib};
use crate::TableError;
use crate::simd::lpm6::{NO_ROUTE, ROOT_BITS, Tree};
use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_core::publish::Apply;

/// How a [`Fib6`] is made.
#[derive(Debug, Clone)]
pub struct Config6 {
    /// How many VRFs, each with its own routes; 256 KiB are taken for each.
    pub vrfs: u32,
    /// How many routes to have room for at once. More may come; then arrays are copied to larger
    /// ones, which takes about a millisecond in ten megabytes.
    pub routes: usize,
    /// The most memory, in bytes, as [`Fib6::memory`] counts it. While an array grows, the old one
    /// exists beside it.
    pub budget_bytes: usize,
    /// The level of the lookup kernel.
    pub isa: Isa,
}

impl Default for Config6 {
    /// One VRF, no routes yet, no limit, the best kernel.
    fn default() -> Self {
        Self {
            vrfs: 1,
            routes: 0,
            budget_bytes: usize::MAX,
            isa: Isa::detect(),
        }
    }
}

/// What a [`Fib6`] takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory6 {
    /// What lookups read: roots, tables, leaves, room for more included.
    pub lookup_bytes: usize,
    /// Of which tables and leaves are in use.
    pub used_bytes: usize,
    /// The routes, and what is needed to change the tree.
    pub routes_bytes: usize,
}

impl Memory6 {
    /// All of it.
    pub fn total_bytes(&self) -> usize {
        self.lookup_bytes + self.routes_bytes
    }
}

/// Longest prefix match for IPv6.
///
/// An address costs one step for the first 16 bits, and then one for each 8 bits or for a leaf of up
/// to 16 ranges, five in a row at most for routes of up to 48 bits. A change takes time in proportion
/// to the routes that its prefix covers, in the mean a microsecond or two.
///
/// ```
/// use linerate_tables::lpm::{Config6, Fib6};
/// let mut fib = Fib6::new(&Config6::default())?;
/// fib.insert(0, "::/0".parse()?, 1)?;
/// fib.insert(0, "2001:db8::/32".parse()?, 2)?;
/// let of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
/// assert_eq!(fib.lookup(0, of("2001:db8::1").to_bits()), Some(2));
///
/// let burst = [of("2001:db8::1").octets(), of("fe80::1").octets()];
/// let mut hops = [0; 2];
/// fib.lookup_bulk(0, &burst, &mut hops);
/// assert_eq!(hops, [2, 1]);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Debug)]
pub struct Fib6 {
    ribs: Vec<Rib<u128>>,
    tree: Tree,
    nodes: Nodes,
    budget_bytes: usize,
}

/// A change of routes, for a [`Fib6`] that others read meanwhile; made by [`Fib6::check`].
#[derive(Debug, Clone, Copy)]
pub struct Change6 {
    /// In which VRF.
    pub vrf: u32,
    /// Which route.
    pub prefix: Prefix6,
    /// Where it leads; `None` takes the route out.
    pub next_hop: Option<u32>,
}

impl Fib6 {
    /// The hop that [`lookup_bulk`](Self::lookup_bulk) gives where no route covers an address.
    pub const NO_ROUTE: u32 = NO_ROUTE;

    /// A table without routes.
    ///
    /// # Errors
    /// If its memory cannot be had, or exceeds the budget.
    pub fn new(config: &Config6) -> Result<Self, TableError> {
        // An Internet table needs 26 tables and 140 leaves for a thousand routes.
        let (tables, leaves) = (config.routes / 32 + 32, config.routes / 6 + 160);
        let vrfs = config.vrfs as usize;
        let fib = Self {
            ribs: vec![Rib::new(); vrfs],
            tree: Tree::new(vrfs, tables, leaves, config.isa)?,
            nodes: Nodes::new(),
            budget_bytes: config.budget_bytes,
        };
        let need_bytes = fib.memory().total_bytes();
        match need_bytes <= fib.budget_bytes {
            true => Ok(fib),
            false => Err(fib.over_budget(need_bytes)),
        }
    }

    /// Adds a route, or gives one another next hop. Returns the next hop that it had.
    ///
    /// # Errors
    /// If there is no such VRF, the next hop is [`NO_ROUTE`](Self::NO_ROUTE), or the route exceeds
    /// the budget or what memory there is; the table is as it was.
    pub fn insert(
        &mut self,
        vrf: u32,
        prefix: Prefix6,
        hop: u32,
    ) -> Result<Option<u32>, TableError> {
        self.check_vrf(vrf)?;
        if hop == NO_ROUTE {
            return Err(TableError::LpmHop { hop });
        }
        let grown = self.ribs[vrf as usize].growth_bytes();
        let spare = self.spare_bytes(grown)?;
        let admitted = self.nodes.admit(&mut self.tree, hop, spare)?;
        let spare = self.spare_bytes(grown)?;
        if !admitted || !self.nodes.make_room(&mut self.tree, spare)? {
            let total = self.memory().total_bytes();
            return Err(self.over_budget(total + grown + Nodes::CHANGE_BYTES));
        }
        let had = self.ribs[vrf as usize].insert(prefix, hop)?;
        if had != Some(hop) {
            self.rebuild(vrf, prefix, false);
        }
        Ok(had)
    }

    /// Takes a route out. Returns its next hop, or `None` if there was no such route.
    ///
    /// # Errors
    /// If there is no such VRF.
    pub fn remove(&mut self, vrf: u32, prefix: Prefix6) -> Result<Option<u32>, TableError> {
        self.check_vrf(vrf)?;
        let had = self.ribs[vrf as usize].remove(prefix);
        if had.is_some() {
            self.rebuild(vrf, prefix, true);
        }
        Ok(had)
    }

    fn rebuild(&mut self, vrf: u32, change: Prefix6, removed: bool) {
        let mut build = Build {
            tree: &mut self.tree,
            nodes: &mut self.nodes,
            rib: &self.ribs[vrf as usize],
            change,
            removed,
        };
        build.run((vrf as usize) << ROOT_BITS);
    }

    /// The next hop of one address in host order.
    ///
    /// # Panics
    /// If there is no such VRF.
    #[inline]
    pub fn lookup(&self, vrf: u32, address: u128) -> Option<u32> {
        let hop = self.tree.lookup(vrf, address);
        (hop != NO_ROUTE).then_some(hop)
    }

    /// The next hop of each address in network order, [`NO_ROUTE`](Self::NO_ROUTE) where there is
    /// none. Best in multiples of 16.
    ///
    /// # Panics
    /// If there is no such VRF, or the slices differ in length.
    #[inline]
    pub fn lookup_bulk(&self, vrf: u32, addresses: &[[u8; 16]], hops: &mut [u32]) {
        self.tree.lookup_bulk(vrf, addresses, hops);
    }

    /// The routes of a VRF.
    ///
    /// # Panics
    /// If there is no such VRF.
    pub fn rib(&self, vrf: u32) -> &Rib<u128> {
        &self.ribs[vrf as usize]
    }

    /// Routes of all VRFs.
    pub fn len(&self) -> usize {
        self.ribs.iter().map(Rib::len).sum()
    }

    /// Whether no VRF has a route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What memory it takes, exactly.
    pub fn memory(&self) -> Memory6 {
        let (tables, leaves) = self.nodes.used();
        let ribs = self.ribs.iter().map(Rib::memory_bytes).sum::<usize>();
        Memory6 {
            lookup_bytes: self.tree.memory_bytes(),
            used_bytes: tables * 1024 + leaves * 128,
            routes_bytes: ribs + self.nodes.memory_bytes(),
        }
    }

    /// What pages lookups read.
    pub fn pages(&self) -> linerate_core::mem::PageKind {
        self.tree.pages()
    }

    /// What the budget leaves once so many bytes more are taken.
    fn spare_bytes(&self, more: usize) -> Result<usize, TableError> {
        let need = self.memory().total_bytes() + more;
        let spare = self.budget_bytes.checked_sub(need);
        spare.ok_or_else(|| self.over_budget(need))
    }

    fn check_vrf(&self, vrf: u32) -> Result<(), TableError> {
        match (vrf as usize) < self.ribs.len() {
            true => Ok(()),
            false => Err(TableError::LpmNoVrf {
                vrf,
                vrfs: self.ribs.len() as u32,
            }),
        }
    }

    fn over_budget(&self, need_bytes: usize) -> TableError {
        TableError::LpmBudget {
            what: "IPv6 routing table",
            need_bytes,
            budget_bytes: self.budget_bytes,
        }
    }
}
