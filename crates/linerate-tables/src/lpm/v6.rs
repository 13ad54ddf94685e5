//! IPv6 routes and the table that lookups read.
//!
//! [`Lpm6`] owns both: the routes ([`Rib`], one per VRF), and a tree made from them that is small
//! enough for the caches, which is all that a [`Fib6`] is. Read `simd::lpm6` for how an address is
//! looked up, `build.rs` for how the tree follows the routes, and `docs/adr/0014-lpm6.md` for why
//! it is so.

mod build;
mod nodes;
mod ranges;
#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;

use self::build::Build;
use self::nodes::{Nodes, Short};
use super::v4::{Memory, NO_ROUTE};
use super::{Prefix6, Rib};
use crate::TableError;
use crate::simd::lpm6::{DIRECT, Entry, Leaf, ROOT_BITS, Table, Tree, Write};
use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_core::mem::PageKind;
use linerate_core::publish::{Apply, Publisher, Reader};

/// What a routing table is to be.
#[derive(Debug, Clone)]
pub struct Lpm6Config {
    /// VRFs, numbered from 0: each takes 256 KiB of each copy of the table.
    pub vrfs: u32,
    /// So many VRFs, from 0 on, may have a direct array for global addresses (2000::/3): 8 MiB for
    /// each in each copy of the table, and one step less for each lookup of such an address.
    pub direct_vrfs: u32,
    /// Such a VRF has it while it has so many routes, down to half as many; 0: always. The change
    /// that brings it takes some 5 ms for each copy. Where budget or memory lack then, it stays
    /// without.
    pub direct_routes: usize,
    /// How many Internet-like routes to have room for at once, all VRFs together: 80 bytes each of
    /// each copy, of which a [`SharedLpm6`] has three; fewer if that is more than half of the
    /// budget. An [`Lpm6`] grows beyond, and is copied for that, which takes about a millisecond in
    /// ten megabytes; a [`SharedLpm6`] does not.
    pub routes: usize,
    /// The most memory in bytes, as [`Lpm6::memory`] counts it. While an array grows, the old one
    /// exists beside it.
    pub budget_bytes: usize,
    /// The instructions that lookups may use.
    pub isa: Isa,
}

impl Default for Lpm6Config {
    /// One VRF without a direct array, with room for a full Internet table, and 256 MiB at most.
    fn default() -> Self {
        Self {
            vrfs: 1,
            direct_vrfs: 0,
            direct_routes: 0,
            routes: 200_000,
            budget_bytes: 256 << 20,
            isa: Isa::detect(),
        }
    }
}

/// The lookup table: read-only, and all that forwarding needs.
#[derive(Debug)]
pub struct Fib6(Tree);

impl Fib6 {
    /// The next hop of an address (network order, as packets have it) in a VRF; `None` where no
    /// route holds it, or where there is no such VRF.
    #[inline]
    pub fn lookup(&self, vrf: u32, address: [u8; 16]) -> Option<u32> {
        Some(self.0.lookup(vrf, u128::from_be_bytes(address))).filter(|&hop| hop != NO_ROUTE)
    }

    /// The next hops of a burst of addresses (network order, too) in one VRF; [`NO_ROUTE`] where
    /// there is none. Fastest in multiples of 64, which wait for memory together.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_bulk(&self, vrf: u32, addresses: &[[u8; 16]], hops: &mut [u32]) {
        self.0.lookup_bulk(vrf, addresses, hops);
    }

    /// Bytes of this copy.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// What backs it.
    pub fn pages(&self) -> PageKind {
        self.0.pages()
    }
}

/// What [`SharedLpm6`] does to a copy of the lookup table.
#[derive(Debug, Clone)]
pub struct Change(Write);

impl Apply<Change> for Fib6 {
    fn apply(&mut self, change: &Change) {
        self.0.repeat(&change.0);
    }

    fn copy(&self) -> Result<Self, MemError> {
        Ok(Self(self.0.copy()?))
    }
}

/// A routing table with one owner, which changes it and looks up in it.
///
/// An address costs one step for the first 16 bits (24 by a direct array), and then one for each 8
/// bits or for a leaf of up to 16 ranges: five in a row at most for routes of up to 48 bits,
/// fourteen in all. A change takes time in proportion to the routes that its prefix covers, in the
/// mean a few microseconds.
///
/// ```
/// use linerate_tables::lpm::{Lpm6, Lpm6Config, NO_ROUTE};
/// let mut table = Lpm6::new(&Lpm6Config::default())?;
/// table.insert(0, "2001:db8::/32".parse()?, 1)?;
/// table.insert(0, "2001:db8:1::/48".parse()?, 2)?;
///
/// let of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
/// let burst = ["2001:db8::1", "2001:db8:1::1", "fe80::1"].map(|text| of(text).octets());
/// let mut hops = [0; 3];
/// table.fib().lookup_bulk(0, &burst, &mut hops);
/// assert_eq!(hops, [1, 2, NO_ROUTE]);
/// assert_eq!(table.remove(0, "2001:db8:1::/48".parse()?)?, Some(2));
/// assert_eq!(table.fib().lookup(0, of("2001:db8:1::1").octets()), Some(1));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Debug)]
pub struct Lpm6 {
    ribs: Vec<Rib<u128>>,
    fib: Fib6,
    nodes: Nodes,
    budget_bytes: usize,
    /// How many copies of the lookup table there are.
    copies: usize,
    /// Which of the VRFs that may have a direct array do.
    has_direct: Vec<bool>,
    /// With how many routes they get it.
    direct_routes: usize,
}

impl Lpm6 {
    /// An empty table.
    ///
    /// # Errors
    /// If the budget does not suffice for an empty table, or its memory cannot be had.
    pub fn new(config: &Lpm6Config) -> Result<Self, TableError> {
        Self::with_copies(config, 1)
    }

    /// An empty table with room for as many routes as so many copies may have.
    fn with_copies(config: &Lpm6Config, copies: usize) -> Result<Self, TableError> {
        const MOST_VRFS: u32 = 1 << 12;
        if !(1..=MOST_VRFS).contains(&config.vrfs) {
            return Err(TableError::LpmVrfs {
                vrfs: config.vrfs,
                max: MOST_VRFS,
            });
        }
        let vrfs = config.vrfs as usize;
        let direct_vrfs = (config.direct_vrfs as usize).min(vrfs);
        let roots = vrfs * ROOT_BYTES + direct_vrfs * DIRECT_BYTES;
        // Half of what the roots leave is for the routes themselves, and for more of them.
        let lookup_bytes = (config.budget_bytes / copies).saturating_sub(roots) / 2;
        let routes = config.routes.min(lookup_bytes / ROUTE_BYTES);
        // An Internet table needs 32 tables and 170 leaves for a thousand routes.
        let (tables, leaves) = (routes / 28 + 32, routes / 5 + 160);
        let least = roots + tables * size_of::<Table>() + leaves * size_of::<Leaf>();
        let over = |need_bytes| TableError::LpmBudget {
            what: WHAT,
            need_bytes,
            budget_bytes: config.budget_bytes,
        };
        if least > config.budget_bytes {
            return Err(over(least));
        }
        let mut tree = Tree::new(vrfs, tables, leaves, config.isa)?;
        let has_direct = vec![config.direct_routes == 0; direct_vrfs];
        for (vrf, &wanted) in has_direct.iter().enumerate() {
            tree.set_direct(vrf, wanted)?;
        }
        let table = Self {
            ribs: vec![Rib::new(); vrfs],
            fib: Fib6(tree),
            nodes: Nodes::new(),
            budget_bytes: config.budget_bytes,
            copies: 1,
            has_direct,
            direct_routes: config.direct_routes,
        };
        match table.memory().total() {
            need if need > config.budget_bytes => Err(over(need)),
            _ => Ok(table),
        }
    }

    /// Adds a route, or gives one another next hop. Returns the next hop that it had.
    ///
    /// # Errors
    /// If there is no such VRF, if the next hop is [`NO_ROUTE`], or if the budget or the memory
    /// that there is does not suffice: the table is then as it was.
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
        let admitted = self.nodes.admit(&mut self.fib.0, hop, spare);
        admitted.map_err(|short| self.no_room(short, grown))?;
        let spare = self.spare_bytes(grown)?;
        let room = self.nodes.make_room(&mut self.fib.0, spare);
        room.map_err(|short| self.no_room(short, grown))?;
        let had = self.ribs[vrf as usize].insert(prefix, hop)?;
        if had != Some(hop) {
            self.rebuild(vrf, prefix, false);
            self.resize_direct(vrf);
        }
        Ok(had)
    }

    /// Takes a route out. Returns its next hop, or `None` if there was none.
    ///
    /// # Errors
    /// If there is no such VRF.
    pub fn remove(&mut self, vrf: u32, prefix: Prefix6) -> Result<Option<u32>, TableError> {
        self.check_vrf(vrf)?;
        let had = self.ribs[vrf as usize].remove(prefix);
        if had.is_some() {
            self.rebuild(vrf, prefix, true);
            self.resize_direct(vrf);
        }
        Ok(had)
    }

    /// Gives a VRF that has become large a direct array, and takes it from one that has lost half
    /// of that.
    fn resize_direct(&mut self, vrf: u32) {
        let vrf = vrf as usize;
        let Some(&has) = self.has_direct.get(vrf) else {
            return;
        };
        let least = match has {
            true => self.direct_routes / 2,
            false => self.direct_routes,
        };
        let wanted = self.ribs[vrf].len() >= least;
        if has == wanted || wanted && self.spare_bytes(self.copies * DIRECT_BYTES).is_err() {
            return;
        }
        if self.fib.0.set_direct(vrf, wanted).is_ok() {
            self.has_direct[vrf] = wanted;
        }
    }

    fn rebuild(&mut self, vrf: u32, change: Prefix6, removed: bool) {
        let mut build = Build {
            tree: &mut self.fib.0,
            nodes: &mut self.nodes,
            rib: &self.ribs[vrf as usize],
            root: (vrf as usize) << ROOT_BITS,
            change,
            removed,
        };
        build.run();
    }

    /// The next hop of exactly this route.
    pub fn get(&self, vrf: u32, prefix: Prefix6) -> Option<u32> {
        self.ribs.get(vrf as usize)?.get(prefix)
    }

    /// The routes of a VRF and their next hops, by address and length.
    pub fn routes(&self, vrf: u32) -> impl Iterator<Item = (Prefix6, u32)> + '_ {
        self.ribs.get(vrf as usize).into_iter().flat_map(Rib::iter)
    }

    /// How many routes there are, in all VRFs.
    pub fn len(&self) -> usize {
        self.ribs.iter().map(Rib::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to look up.
    pub fn fib(&self) -> &Fib6 {
        &self.fib
    }

    /// How much memory goes where.
    pub fn memory(&self) -> Memory {
        let (tables, leaves) = self.nodes.used();
        let ribs: usize = self.ribs.iter().map(Rib::memory_bytes).sum();
        Memory {
            tables: self.copies * self.fib.memory_bytes(),
            chunks: tables * size_of::<Table>() + leaves * size_of::<Leaf>(),
            routes: ribs + self.nodes.memory_bytes(),
        }
    }

    /// Shares the table: readers see what it holds now.
    ///
    /// # Errors
    /// If the budget or the memory that there is does not suffice for two more copies.
    pub fn share(mut self) -> Result<SharedLpm6, TableError> {
        self.copies = COPIES;
        let need = self.memory().total();
        if need > self.budget_bytes {
            return Err(self.over_budget(need));
        }
        let publisher = Publisher::new(self.fib.copy()?)?;
        self.nodes.fix();
        self.fib.0.keep_writes();
        Ok(SharedLpm6 {
            table: self,
            publisher,
        })
    }

    /// What the budget leaves once so many bytes more are taken.
    fn spare_bytes(&self, more: usize) -> Result<usize, TableError> {
        let need = self.memory().total() + more;
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

    /// Why a change that takes `grown` bytes of the route store finds no room in the tree.
    fn no_room(&self, short: Short, grown: usize) -> TableError {
        match short {
            Short::Bytes(bytes) => self.over_budget(self.memory().total() + grown + bytes),
            Short::Room { what, len } => TableError::LpmRoom {
                what,
                // The first is never used.
                room: len - 1,
            },
            Short::Memory(error) => error.into(),
        }
    }

    fn over_budget(&self, need_bytes: usize) -> TableError {
        debug_assert!(need_bytes > self.budget_bytes, "an error that is none");
        TableError::LpmBudget {
            what: WHAT,
            need_bytes,
            budget_bytes: self.budget_bytes,
        }
    }
}

/// Copies of the lookup table that a shared table has.
const COPIES: usize = 3;
const WHAT: &str = "IPv6 routing table";
const ROOT_BYTES: usize = size_of::<Entry>() << ROOT_BITS;
const DIRECT_BYTES: usize = size_of::<Entry>() * DIRECT;
/// What a route takes of a copy of the lookup table.
const ROUTE_BYTES: usize = 80;

/// A routing table with one writer and any number of readers, which never wait for each other.
///
/// The lookup table exists three times: as readers see it, as they saw it before, and as the writer
/// is about to show it. What it changes in its own is written to the others afterwards.
///
/// ```
/// use linerate_tables::lpm::{Lpm6Config, SharedLpm6};
/// let mut table = SharedLpm6::new(&Lpm6Config::default())?;
/// let mut reader = table.reader();
/// table.insert(0, "::/0".parse()?, 1)?;
/// let address = [0xfe; 16];
/// assert_eq!(reader.read().lookup(0, address), None);
/// assert!(table.publish());
/// assert_eq!(reader.read().lookup(0, address), Some(1));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct SharedLpm6 {
    table: Lpm6,
    publisher: Publisher<Fib6, Change>,
}

impl SharedLpm6 {
    /// An empty table.
    ///
    /// # Errors
    /// As [`Lpm6::new`] and [`Lpm6::share`].
    pub fn new(config: &Lpm6Config) -> Result<Self, TableError> {
        Lpm6::with_copies(config, COPIES)?.share()
    }

    /// Another reader, for one lcore.
    pub fn reader(&self) -> Reader<Fib6> {
        self.publisher.reader()
    }

    /// As [`Lpm6::insert`]; readers see it after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// As [`Lpm6::insert`], and if the room that was made at first is used up.
    pub fn insert(
        &mut self,
        vrf: u32,
        prefix: Prefix6,
        hop: u32,
    ) -> Result<Option<u32>, TableError> {
        let had = self.table.insert(vrf, prefix, hop);
        self.pass_on();
        had
    }

    /// As [`Lpm6::remove`]; readers see it after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// As [`Lpm6::remove`].
    pub fn remove(&mut self, vrf: u32, prefix: Prefix6) -> Result<Option<u32>, TableError> {
        let had = self.table.remove(vrf, prefix);
        self.pass_on();
        had
    }

    fn pass_on(&mut self) {
        for write in self.table.fib.0.writes() {
            self.publisher.push(Change(write));
        }
    }

    /// Makes all changes visible at once; `false` if they have to wait for a reader
    /// ([`Publisher::publish`]).
    pub fn publish(&mut self) -> bool {
        self.publisher.publish()
    }

    /// As [`publish`](Self::publish), with another copy instead of waiting.
    ///
    /// # Errors
    /// If there is no memory for it; the changes go on waiting.
    pub fn publish_on_copy(&mut self) -> Result<(), TableError> {
        Ok(self.publisher.publish_on_copy()?)
    }

    /// The routes of a VRF, published or not.
    pub fn routes(&self, vrf: u32) -> impl Iterator<Item = (Prefix6, u32)> + '_ {
        self.table.routes(vrf)
    }

    /// The writer's table, published or not.
    pub fn table(&self) -> &Lpm6 {
        &self.table
    }
}
