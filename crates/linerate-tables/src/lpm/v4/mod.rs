//! IPv4: a directory of /18s, and below each entry a chunk that says where the next hop changes.
//!
//! A lookup is three loads, of which one is likely to miss the second-level cache:
//!
//! 1. the directory entry of the address's upper 18 bits (1 MiB for each VRF), which names
//! 2. a chunk for the 64 /24s below: a bitmap in which a bit is set where a /24 has another next
//!    hop than the one before, and behind it a number of 16 bits for each set bit. The rank of the
//!    address's /24 in the bitmap is the leaf's place; most chunks are one cache line;
//! 3. the next hop of that number.
//!
//! A full Internet table takes 4.2 MB so (DIR-24-8: 64 MB), which is what makes lookups fast. An
//! /18 that leads to one next hop needs no chunk of its own. A /24 with longer prefixes in it has
//! four directory entries of its own, each with a chunk for 64 addresses; a chunk that names such a
//! /24, or one of more than 16,000 next hops, is *wide*: its leaves are 64 bits. It reads as a
//! narrow chunk that has no route, so that lookups need no branch for it; what finds no route is
//! looked at again.
//!
//! Beside it there may be a flat array, one load for each lookup ([`Layout::Flat`], ADR 38).
//!
//! | what | who | cost |
//! |---|---|---|
//! | [`Lpm4`] | the routes and one table: for a single owner | |
//! | [`SharedLpm4`] | the routes, and two copies of the table for readers that are never in the way | twice the table |
//! | [`Fib4`] | the table: what a reader has | |
//! | lookup | | three loads, five beyond /24 |
//! | insert, remove | one chunk rebuilt from its routes | O(64 + routes in the /18, or in 64 addresses beyond /24) |
//! | a prefix of n < 18 bits | 2^(18-n) chunks rebuilt | a /8: about 0.2 ms; the default route: one write |
//!
//! Memory of the table is reserved when it is made ([`Lpm4Config::table_bytes`]); a change that
//! does not fit is refused, and changes nothing. Read `control.rs` next, then `simd/lpm4.rs`.
//!
//! After DXR (Zec, Rizzo, Mikuc, 2012) and Poptrie (Asai, Ohara, 2015); ADR 10 has the
//! measurements.

mod arena;
mod choice;
mod control;
mod hops;

use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_core::mem::PageKind;
use linerate_core::publish::{Apply, Publisher, Reader};

use super::Prefix4;
use crate::TableError;
use crate::simd::lpm4::{self, Fib};
pub use choice::Choice;
pub use control::Change;
use control::Control;

/// What [`Fib4::lookup_bulk`] gives where no route holds the address. No route has this next hop.
pub const NO_ROUTE: u32 = lpm4::NO_ROUTE;

/// How a lookup reads its table; what it finds is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Directory, chunk, next hop: three loads from a few megabytes.
    Compact,
    /// One load from an array of 32 MiB, and the compact table for what is longer than /24.
    Flat,
}

impl Layout {
    fn other(self) -> Self {
        match self {
            Self::Compact => Self::Flat,
            Self::Flat => Self::Compact,
        }
    }
}

/// What a routing table is to be.
#[derive(Clone, Debug)]
pub struct Lpm4Config {
    /// VRFs, numbered from 0: each takes 1 MiB of each copy of the table.
    pub vrfs: u32,
    /// Bytes of one copy of the lookup table, all VRFs together; reserved at once. A full Internet
    /// table needs 5 MiB, a million random /24s with as many next hops 24 MiB. Flat arrays are
    /// beside it.
    pub table_bytes: usize,
    /// So many VRFs, from 0 on, may have a flat array beside it: 32 MiB for each in each copy of
    /// the table. Worth it where few prefixes get most packets; [`Choice`] finds out. Next hops
    /// below 32768 are found with one load, others with two.
    pub flat_vrfs: u32,
    /// Such a VRF has it while it has so many routes, down to half as many; 0: always. The change
    /// that brings it takes some 50 ms for each copy. Where memory lacks then, it stays without.
    pub flat_routes: usize,
    /// Bytes that the route store may grow to, all VRFs together: 20 to 40 for each route.
    pub rib_bytes: usize,
    /// The instructions that lookups may use.
    pub isa: Isa,
}

impl Default for Lpm4Config {
    /// One VRF, with room for a full Internet table twice over, and no flat array.
    fn default() -> Self {
        Self {
            vrfs: 1,
            table_bytes: 12 << 20,
            flat_vrfs: 0,
            flat_routes: 0,
            rib_bytes: 64 << 20,
            isa: Isa::detect(),
        }
    }
}

/// The lookup table: read-only, and all that forwarding needs.
pub struct Fib4(Fib);

impl Fib4 {
    /// The next hop of an address (host order) in a VRF; `None` where no route holds it, or where
    /// there is no such VRF.
    #[inline]
    pub fn lookup(&self, vrf: u32, address: u32) -> Option<u32> {
        Some(self.0.lookup(vrf, address)).filter(|&hop| hop != NO_ROUTE)
    }

    /// The next hops of a burst of addresses in one VRF; [`NO_ROUTE`] where there is none. Fastest
    /// with 64 addresses or more, which wait for memory together. Reads the compact table.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_bulk(&self, vrf: u32, addresses: &[u32], hops: &mut [u32]) {
        self.lookup_by(Layout::Compact, vrf, addresses, hops);
    }

    /// As [`lookup_bulk`](Self::lookup_bulk), by this layout if the VRF has it.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_by(&self, layout: Layout, vrf: u32, addresses: &[u32], hops: &mut [u32]) {
        self.0.lookup_bulk(layout, vrf, addresses, hops);
    }

    /// As [`lookup_bulk`](Self::lookup_bulk), by whichever layout turns out to be faster on what
    /// this lcore looks up.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_chosen(
        &self,
        choice: &mut Choice,
        vrf: u32,
        addresses: &[u32],
        hops: &mut [u32],
    ) {
        match self.0.has_flat(vrf) {
            true => choice.run(addresses.len(), |layout| {
                self.lookup_by(layout, vrf, addresses, hops);
            }),
            false => self.lookup_bulk(vrf, addresses, hops),
        }
    }

    /// As [`lookup_bulk`](Self::lookup_bulk), each address in a VRF of its own.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_each(&self, vrfs: &[u32], addresses: &[u32], hops: &mut [u32]) {
        self.0.lookup_each(vrfs, addresses, hops);
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

impl Apply<Change> for Fib4 {
    fn apply(&mut self, change: &Change) {
        change.apply(&mut self.0);
    }

    fn copy(&self) -> Result<Self, MemError> {
        Ok(Self(self.0.copy()?))
    }
}

/// A routing table with one owner, which changes it and looks up in it.
///
/// ```
/// use linerate_tables::lpm::{Lpm4, Lpm4Config, NO_ROUTE};
/// let mut table = Lpm4::new(&Lpm4Config::default())?;
/// table.insert(0, "10.0.0.0/8".parse()?, 1)?;
/// table.insert(0, "10.1.2.0/24".parse()?, 2)?;
/// let mut hops = [0; 3];
/// table.fib().lookup_bulk(0, &[0x0a00_0001, 0x0a01_0203, 0x0b00_0000], &mut hops);
/// assert_eq!(hops, [1, 2, NO_ROUTE]);
/// assert_eq!(table.remove(0, "10.1.2.0/24".parse()?)?, Some(2));
/// assert_eq!(table.fib().lookup(0, 0x0a01_0203), Some(1));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct Lpm4 {
    control: Control,
    fib: Fib4,
}

impl Lpm4 {
    /// An empty table.
    ///
    /// # Errors
    /// If the budget does not suffice for an empty table, or its memory cannot be had.
    pub fn new(config: &Lpm4Config) -> Result<Self, TableError> {
        let (control, fib) = Control::new(config)?;
        let fib = Fib4(fib);
        Ok(Self { control, fib })
    }

    /// Adds a route, or gives one another next hop. Returns the next hop that it had.
    ///
    /// # Errors
    /// If there is no such VRF, if the next hop is [`NO_ROUTE`], or if a budget does not suffice:
    /// the table is then as it was.
    pub fn insert(
        &mut self,
        vrf: u32,
        prefix: Prefix4,
        hop: u32,
    ) -> Result<Option<u32>, TableError> {
        let fib = &mut self.fib;
        self.control
            .insert(vrf, prefix, hop, &mut |change| fib.apply(&change))
    }

    /// Takes a route out. Returns its next hop, or `None` if there was none.
    ///
    /// # Errors
    /// As [`insert`](Self::insert): what remains can need more memory than before.
    pub fn remove(&mut self, vrf: u32, prefix: Prefix4) -> Result<Option<u32>, TableError> {
        let fib = &mut self.fib;
        self.control
            .remove(vrf, prefix, &mut |change| fib.apply(&change))
    }

    /// The next hop of exactly this route.
    pub fn get(&self, vrf: u32, prefix: Prefix4) -> Option<u32> {
        self.control.get(vrf, prefix)
    }

    /// The routes of a VRF and their next hops, by address and length.
    pub fn routes(&self, vrf: u32) -> impl Iterator<Item = (Prefix4, u32)> + '_ {
        self.control.routes(vrf)
    }

    /// How many routes there are, in all VRFs.
    pub fn len(&self) -> usize {
        self.control.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to look up.
    pub fn fib(&self) -> &Fib4 {
        &self.fib
    }

    /// How much memory goes where.
    pub fn memory(&self) -> Memory {
        Memory {
            tables: self.fib.memory_bytes(),
            chunks: self.control.chunk_bytes(),
            routes: self.control.memory_bytes(),
        }
    }
}

/// Memory of a routing table, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All copies of the lookup table, as reserved.
    pub tables: usize,
    /// What its routes take of each copy.
    pub chunks: usize,
    /// The writing side: routes, next hops, and what is where.
    pub routes: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> usize {
        self.tables + self.routes
    }
}

/// A routing table with one writer and any number of readers, which never wait for each other.
///
/// ```
/// use linerate_tables::lpm::{Lpm4Config, SharedLpm4};
/// let mut table = SharedLpm4::new(&Lpm4Config::default())?;
/// let mut reader = table.reader();
/// table.insert(0, "10.0.0.0/8".parse()?, 1)?;
/// assert_eq!(reader.read().lookup(0, 0x0a00_0001), None);
/// assert!(table.publish());
/// assert_eq!(reader.read().lookup(0, 0x0a00_0001), Some(1));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct SharedLpm4 {
    control: Control,
    publisher: Publisher<Fib4, Change>,
}

impl SharedLpm4 {
    /// An empty table, in two copies.
    ///
    /// # Errors
    /// As [`Lpm4::new`].
    pub fn new(config: &Lpm4Config) -> Result<Self, TableError> {
        Lpm4::new(config)?.share()
    }

    /// Another reader, for one lcore.
    pub fn reader(&self) -> Reader<Fib4> {
        self.publisher.reader()
    }

    /// As [`Lpm4::insert`]; readers see it after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// As [`Lpm4::insert`].
    pub fn insert(
        &mut self,
        vrf: u32,
        prefix: Prefix4,
        hop: u32,
    ) -> Result<Option<u32>, TableError> {
        let publisher = &mut self.publisher;
        self.control
            .insert(vrf, prefix, hop, &mut |change| publisher.push(change))
    }

    /// As [`Lpm4::remove`]; readers see it after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// As [`Lpm4::remove`].
    pub fn remove(&mut self, vrf: u32, prefix: Prefix4) -> Result<Option<u32>, TableError> {
        let publisher = &mut self.publisher;
        self.control
            .remove(vrf, prefix, &mut |change| publisher.push(change))
    }

    /// Makes all changes visible at once; `false` if they have to wait for a reader
    /// ([`Publisher::publish`]).
    pub fn publish(&mut self) -> bool {
        self.publisher.publish()
    }

    /// As [`publish`](Self::publish), with a third copy instead of waiting.
    ///
    /// # Errors
    /// If there is no memory for it; the changes go on waiting.
    pub fn publish_on_copy(&mut self) -> Result<(), TableError> {
        Ok(self.publisher.publish_on_copy()?)
    }

    /// The next hop of exactly this route, published or not.
    pub fn get(&self, vrf: u32, prefix: Prefix4) -> Option<u32> {
        self.control.get(vrf, prefix)
    }

    /// The routes of a VRF, published or not.
    pub fn routes(&self, vrf: u32) -> impl Iterator<Item = (Prefix4, u32)> + '_ {
        self.control.routes(vrf)
    }

    /// How much memory goes where; changes that wait are not counted.
    pub fn memory(&self) -> Memory {
        Memory {
            tables: 2 * self.publisher.newest().memory_bytes(),
            chunks: self.control.chunk_bytes(),
            routes: self.control.memory_bytes(),
        }
    }
}

impl Lpm4 {
    /// Shares the table: readers see what it holds now.
    ///
    /// # Errors
    /// If there is no memory for the second copy.
    pub fn share(self) -> Result<SharedLpm4, TableError> {
        Ok(SharedLpm4 {
            control: self.control,
            publisher: Publisher::new(self.fib)?,
        })
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
