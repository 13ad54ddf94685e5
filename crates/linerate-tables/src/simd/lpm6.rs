//! The IPv6 forwarding table as lookups see it, and the kernels that read it.
//!
//! [`Tree`] owns the arrays; `lpm::v6` decides what stands in them. An address goes down so:
//!
//! - the *root*, by the first 16 bits;
//! - within a *span* of 32 bits (16..48, 48..80, 80..112, 112..128): *tables*, each by 8 bits,
//!   until an entry is no table; a *leaf* holds up to 16 ranges of the span's value, of which one
//!   is found by a comparison with all of them at once;
//! - the entry so found is a next hop, or leads to the next span, where it goes on.
//!
//! Beside the root there may be a *direct array* for the global addresses of a VRF (2000::/3): of
//! each of their 2^21 /24s the entry that root and first table lead to, so that both are one load.
//!
//! In an Internet table nearly everything ends in the first span. The AVX-512 kernel takes 16
//! addresses through it in step, by gathers, and hands the few that go on to scalar code.
//!
//! Every index is brought into range before it is used, so that no content of the arrays, however
//! wrong, makes a kernel read elsewhere.

use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_core::mem::{HugeArray, PageKind};

/// What no route leads to: the result where none covers an address.
pub(crate) use super::lpm4::NO_ROUTE;

/// Bits that the root decides by.
pub(crate) const ROOT_BITS: u8 = 16;
/// Bits that a table decides by.
pub(crate) const TABLE_BITS: u8 = 8;
/// Bits that a direct array decides by: the first three are those of [`GLOBAL`].
pub(crate) const DIRECT_BITS: u8 = 24;
/// The first three bits of the addresses that a direct array is for, 2000::/3: RFC 4291 2.5.4 and
/// IANA's registry of global unicast addresses.
const GLOBAL: u32 = 0b001;
/// Entries of a direct array.
pub(crate) const DIRECT: usize = 1 << (DIRECT_BITS - 3);
/// Bits of a span.
pub(crate) const SPAN_BITS: u8 = 32;
/// Ranges that a leaf holds.
pub(crate) const RANGES: usize = 16;

/// What a table or leaf says: a next hop, or where to look further.
///
/// The first two bits are 10 for the latter, then two for the kind and 28 for the index. Next hops
/// that begin with 10 themselves stand in an array of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u32);

/// An [`Entry`] resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Hop(u32),
    Table(u32),
    Leaf(u32),
    Far(u32),
}

const INDEX: u32 = (1 << 28) - 1;
const TABLE: u32 = 0x8;
const LEAF: u32 = 0x9;
const FAR: u32 = 0xa;

impl Entry {
    pub(crate) const NONE: Self = Self(NO_ROUTE);

    pub(crate) fn table(index: u32) -> Self {
        Self(TABLE << 28 | index & INDEX)
    }

    pub(crate) fn leaf(index: u32) -> Self {
        Self(LEAF << 28 | index & INDEX)
    }

    pub(crate) fn far(index: u32) -> Self {
        Self(FAR << 28 | index & INDEX)
    }

    /// The next hop as an entry, unless it needs [`far`](Self::far).
    pub(crate) fn hop(hop: u32) -> Option<Self> {
        (hop >> 30 != 0b10).then_some(Self(hop))
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> EntryKind {
        let index = self.0 & INDEX;
        match self.0 >> 28 {
            TABLE => EntryKind::Table(index),
            LEAF => EntryKind::Leaf(index),
            FAR => EntryKind::Far(index),
            _ => EntryKind::Hop(self.0),
        }
    }

    #[inline(always)]
    pub(crate) fn is_node(self) -> bool {
        matches!(self.0 >> 28, TABLE | LEAF)
    }
}

/// 256 entries, by the next 8 bits.
pub(crate) type Table = [Entry; 1 << TABLE_BITS];

/// Ranges of a span's value: the i-th begins at `keys[i]` and has `entries[i]`. The first begins at
/// 0; unused ones at the end repeat the last entry, with the greatest key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(128))]
pub(crate) struct Leaf {
    pub(crate) keys: [u32; RANGES],
    pub(crate) entries: [Entry; RANGES],
}

impl Leaf {
    pub(crate) const EMPTY: Self = Self {
        keys: [0; RANGES],
        entries: [Entry::NONE; RANGES],
    };

    #[inline(always)]
    pub(crate) fn find(&self, key: u32) -> Entry {
        let below: u32 = self.keys.iter().map(|&first| u32::from(first <= key)).sum();
        self.entries[(below as usize).wrapping_sub(1) % RANGES]
    }
}

/// The value that a span at `from` decides by.
#[inline(always)]
pub(crate) fn span_of(address: u128, from: u8) -> u32 {
    ((address << from) >> 96) as u32
}

/// All that lookups read: one root per VRF, and what all share. Index 0 of the others is never
/// used.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) roots: HugeArray<Entry>,
    /// [`DIRECT`] entries for each VRF that has them.
    direct: Vec<Option<HugeArray<Entry>>>,
    pub(crate) tables: HugeArray<Table>,
    pub(crate) leaves: HugeArray<Leaf>,
    pub(crate) far: HugeArray<u32>,
    kernel: Kernel,
    /// Where it is copied elsewhere: what was written, in order, to be written there too.
    log: Option<Vec<Write>>,
}

/// One write to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// An entry of a root.
    Root(usize, Entry),
    /// So many entries of a VRF's direct array from this one on, if it has one.
    Direct(usize, usize, u32, Entry),
    /// A VRF's direct array: as the root and its tables say, or none.
    Array(usize, bool),
    /// An entry of a table.
    Slot(u32, u8, Entry),
    /// A table in which nothing is routed.
    Table(u32),
    /// A leaf.
    Leaf(u32, Box<Leaf>),
    /// A far hop.
    Far(u32, u32),
}

/// Looks up `addresses` from the root that begins at an index of `roots`, into as many hops.
type Kernel = fn(&Tree, usize, &[[u8; 16]], &mut [u32]);

/// Room for far hops at first.
const FAR_HOPS: usize = 1024;

/// A power of two below what gathers, whose indices are signed words, can reach.
const MOST_TABLES: usize = 1 << 22;
const MOST_LEAVES: usize = 1 << 25;

impl Tree {
    /// A tree in which nothing is routed, with room for so many tables, leaves and far hops.
    pub(crate) fn new(
        vrfs: usize,
        tables: usize,
        leaves: usize,
        isa: Isa,
    ) -> Result<Self, MemError> {
        Ok(Self {
            roots: HugeArray::filled("fib6 roots", vrfs << ROOT_BITS, Entry::NONE)?,
            direct: (0..vrfs).map(|_| None).collect(),
            tables: HugeArray::filled("fib6 tables", tables.max(1), [Entry::NONE; 256])?,
            leaves: HugeArray::filled("fib6 leaves", leaves.max(1), Leaf::EMPTY)?,
            far: HugeArray::filled("fib6 far", FAR_HOPS, NO_ROUTE)?,
            kernel: pick(isa),
            log: None,
        })
    }

    /// Another tree with the same content.
    pub(crate) fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            roots: self.roots.copy("fib6 roots")?,
            direct: (self.direct.iter())
                .map(|direct| direct.as_ref().map(|it| it.copy("fib6 direct")).transpose())
                .collect::<Result<_, _>>()?,
            tables: self.tables.copy("fib6 tables")?,
            leaves: self.leaves.copy("fib6 leaves")?,
            far: self.far.copy("fib6 far")?,
            kernel: self.kernel,
            log: None,
        })
    }

    /// From now on writes are kept for [`writes`](Self::writes).
    pub(crate) fn keep_writes(&mut self) {
        self.log = Some(Vec::new());
    }

    /// What was written since the last time.
    pub(crate) fn writes(&mut self) -> impl Iterator<Item = Write> + '_ {
        self.log.iter_mut().flat_map(|log| log.drain(..))
    }

    /// # Panics
    /// If there is no such place.
    #[inline]
    pub(crate) fn write(&mut self, write: Write) {
        self.repeat(&write);
        if let Some(log) = &mut self.log {
            log.push(write);
        }
    }

    /// As [`write`](Self::write), of a leaf: boxed only where somebody repeats it.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn write_leaf(&mut self, number: u32, leaf: &Leaf) {
        self.leaves[number as usize] = *leaf;
        if let Some(log) = &mut self.log {
            log.push(Write::Leaf(number, Box::new(*leaf)));
        }
    }

    /// Writes what another tree wrote.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub(crate) fn repeat(&mut self, write: &Write) {
        match write {
            Write::Root(index, entry) => self.roots[*index] = *entry,
            Write::Direct(vrf, first, count, entry) => {
                if let Some(direct) = &mut self.direct[*vrf] {
                    direct[*first..][..*count as usize].fill(*entry);
                }
            }
            // A copy that there is no memory for is without, and finds the same.
            Write::Array(vrf, wanted) => drop(self.make_direct(*vrf, *wanted)),
            Write::Slot(table, index, entry) => {
                self.tables[*table as usize][usize::from(*index)] = *entry;
            }
            Write::Table(number) => self.tables[*number as usize].fill(Entry::NONE),
            Write::Leaf(number, leaf) => self.leaves[*number as usize] = **leaf,
            Write::Far(number, hop) => self.far[*number as usize] = *hop,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.roots.region().len()
            + self.direct_bytes()
            + self.tables.region().len()
            + self.leaves.region().len()
            + self.far.region().len()
    }

    fn direct_bytes(&self) -> usize {
        let arrays = self.direct.iter().flatten();
        arrays.map(|direct| direct.region().len()).sum()
    }

    /// Whether a VRF that there is has a direct array.
    #[cfg(test)]
    #[cfg(not(linerate_threads))]
    pub(crate) fn has_direct(&self, vrf: usize) -> bool {
        self.direct[vrf].is_some()
    }

    /// Gives a VRF that there is a direct array that says what root and tables say, or takes it
    /// away.
    ///
    /// # Errors
    /// If there is no memory for it; lookups go on without.
    pub(crate) fn set_direct(&mut self, vrf: usize, wanted: bool) -> Result<(), MemError> {
        self.make_direct(vrf, wanted)?;
        if let Some(log) = &mut self.log {
            log.push(Write::Array(vrf, wanted));
        }
        Ok(())
    }

    fn make_direct(&mut self, vrf: usize, wanted: bool) -> Result<(), MemError> {
        self.direct[vrf] = None;
        if wanted {
            let first = (vrf << ROOT_BITS) + ((GLOBAL as usize) << (ROOT_BITS - 3));
            let of = |at: usize| {
                let entry = self.roots[first + (at >> TABLE_BITS)];
                match entry.kind() {
                    EntryKind::Table(table) => self.tables[table as usize][at & 255],
                    _ => entry,
                }
            };
            self.direct[vrf] = Some(HugeArray::from_fn("fib6 direct", DIRECT, of)?);
        }
        Ok(())
    }

    /// Where the direct array has the /24s of a block of 16 or 24 bits: whose it is, the first, and
    /// how many; if the VRF whose root begins at `root` has one, and it is for such addresses.
    pub(crate) fn direct_of(
        &self,
        root: usize,
        first: u128,
        len: u8,
    ) -> Option<(usize, usize, u32)> {
        let vrf = root >> ROOT_BITS;
        let has = self.direct[vrf].is_some() && (first >> 125) as u32 == GLOBAL;
        let at = (first >> (128 - DIRECT_BITS)) as usize % DIRECT;
        has.then(|| (vrf, at, 1 << (DIRECT_BITS - len)))
    }

    /// The direct array of the VRF whose root begins at `root`, if it has one.
    #[inline(always)]
    fn direct(&self, root: usize) -> Option<&[Entry; DIRECT]> {
        self.direct[root >> ROOT_BITS].as_ref()?.first_chunk()
    }

    pub(crate) fn pages(&self) -> PageKind {
        self.tables.region().kind()
    }

    /// How many tables and leaves there can be at all.
    pub(crate) const fn most() -> (usize, usize) {
        (MOST_TABLES, MOST_LEAVES)
    }

    /// [`NO_ROUTE`] also where there is no such VRF.
    #[inline]
    pub(crate) fn lookup(&self, vrf: u32, address: u128) -> u32 {
        let root = (vrf as usize) << ROOT_BITS;
        match self.roots.get(root + (address >> 112) as usize) {
            Some(&entry) => self.resolve(entry, address, ROOT_BITS),
            None => NO_ROUTE,
        }
    }

    /// # Panics
    /// If the slices differ in length.
    pub(crate) fn lookup_bulk(&self, vrf: u32, addresses: &[[u8; 16]], hops: &mut [u32]) {
        assert_eq!(addresses.len(), hops.len(), "one hop per address");
        let root = (vrf as usize) << ROOT_BITS;
        match root < self.roots.len() {
            true => (self.kernel)(self, root, addresses, hops),
            false => hops.fill(NO_ROUTE),
        }
    }

    /// The next hop of `address`, from an entry on that stands at bit `at`.
    #[inline(always)]
    fn resolve(&self, mut entry: Entry, address: u128, mut at: u8) -> u32 {
        loop {
            match entry.kind() {
                EntryKind::Hop(hop) => return hop,
                EntryKind::Far(index) => return self.far[index as usize],
                EntryKind::Table(index) => {
                    entry = self.tables[index as usize][(address >> (120 - at)) as usize & 255];
                    at += TABLE_BITS;
                }
                EntryKind::Leaf(index) => {
                    let span = span_from(at);
                    entry = self.leaves[index as usize].find(span_of(address, span));
                    at = span + SPAN_BITS;
                }
            }
            // Beyond the last bit there are only hops.
            if at >= 128 {
                return match entry.kind() {
                    EntryKind::Far(index) => self.far[index as usize],
                    _ => entry.0,
                };
            }
        }
    }
}

/// Where the span begins in which something at bit `at` lies.
#[inline(always)]
pub(crate) fn span_from(at: u8) -> u8 {
    ROOT_BITS + (at - ROOT_BITS) / SPAN_BITS * SPAN_BITS
}

fn pick(isa: Isa) -> Kernel {
    match isa.available() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => x86::v4,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => x86::v3,
        _ => baseline,
    }
}

#[inline(always)]
fn scalar(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
    let direct = tree.direct(root);
    let root = &tree.roots[root..root + (1 << ROOT_BITS)];
    for (address, hop) in addresses.iter().zip(hops) {
        let address = u128::from_be_bytes(*address);
        *hop = match direct {
            Some(direct) if (address >> 125) as u32 == GLOBAL => {
                let at = (address >> (128 - DIRECT_BITS)) as usize % DIRECT;
                tree.resolve(direct[at], address, DIRECT_BITS)
            }
            _ => tree.resolve(root[(address >> 112) as usize], address, ROOT_BITS),
        };
    }
}

fn baseline(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
    scalar(tree, root, addresses, hops);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use linerate_core::arch::prefetch_read;
    use std::arch::x86_64::*;

    pub(super) fn v3(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
        // SAFETY: `pick` gives this out where the CPU has AVX2 and what comes with it.
        unsafe { avx2(tree, root, addresses, hops) }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn avx2(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
        scalar(tree, root, addresses, hops);
    }

    pub(super) fn v4(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
        // SAFETY: `pick` gives this out where the CPU has AVX-512 F, BW, CD, DQ and VL.
        unsafe { avx512(tree, root, addresses, hops) }
    }

    const LANES: usize = 16;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
    fn avx512(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
        // Four vectors at a time: what one waits for, the others hide.
        let (many, addresses) = addresses.as_chunks::<{ 4 * LANES }>();
        let (many_hops, hops) = hops.as_chunks_mut::<{ 4 * LANES }>();
        for (group, hops) in many.iter().zip(many_hops) {
            vectors::<4>(tree, root, group, hops);
        }
        let (some, addresses) = addresses.as_chunks::<LANES>();
        let (some_hops, hops) = hops.as_chunks_mut::<LANES>();
        for (group, hops) in some.iter().zip(some_hops) {
            vectors::<1>(tree, root, group, hops);
        }
        scalar(tree, root, addresses, hops);
    }

    /// What was found in leaves is told apart later: which leaf, by which key, for which address.
    struct InLeaves {
        len: usize,
        leaves: [u32; 5 * LANES],
        keys: [u32; 5 * LANES],
        lanes: [u32; 5 * LANES],
    }

    /// As many addresses as `V` vectors have lanes, in step.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
    fn vectors<const V: usize>(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
        let (addresses, _) = addresses.as_chunks::<LANES>();
        let roots = &tree.roots[root..root + (1 << ROOT_BITS)];
        let zero = _mm512_setzero_si512();
        let last = _mm512_set1_epi32((tree.tables.len().min(MOST_TABLES) - 1) as i32);
        let (mut spans, mut entries) = ([zero; V], [zero; V]);
        let mut going = [0; V];
        // Those that the direct array is not for.
        let mut rest = [u16::MAX; V];
        let mut firsts = [zero; V];
        for v in 0..V {
            let (first, second) = words(&addresses[v]);
            // The span's value: bits 16 to 48.
            spans[v] = _mm512_or_si512(
                _mm512_slli_epi32::<16>(first),
                _mm512_srli_epi32::<16>(second),
            );
            firsts[v] = first;
        }
        if let Some(direct) = tree.direct(root) {
            for v in 0..V {
                let group = _mm512_srli_epi32::<29>(firsts[v]);
                let inside = _mm512_cmpeq_epi32_mask(group, _mm512_set1_epi32(GLOBAL as i32));
                let index = _mm512_srli_epi32::<8>(firsts[v]);
                let index = _mm512_and_si512(index, _mm512_set1_epi32(DIRECT as i32 - 1));
                let from = direct.as_ptr().cast();
                // SAFETY: 21-bit indices, and as many entries.
                entries[v] = unsafe { _mm512_mask_i32gather_epi32::<4>(zero, inside, index, from) };
                rest[v] = !inside;
            }
        }
        for v in 0..V {
            if rest[v] != 0 {
                let index = _mm512_srli_epi32::<16>(firsts[v]);
                let from = roots.as_ptr().cast();
                // SAFETY: 16-bit indices, and 2^16 entries from there on.
                entries[v] =
                    unsafe { _mm512_mask_i32gather_epi32::<4>(entries[v], rest[v], index, from) };
                going[v] = rest[v] & kind_is(TABLE, entries[v]);
            }
        }
        table_step::<V, 24>(tree, last, &mut going, &spans, &mut entries);
        for v in 0..V {
            going[v] = kind_is(TABLE, entries[v]);
        }
        table_step::<V, 16>(tree, last, &mut going, &spans, &mut entries);
        table_step::<V, 8>(tree, last, &mut going, &spans, &mut entries);
        // Those that take the span's last bits from a table: what they find lies in the next span.
        let beyond = going;
        table_step::<V, 0>(tree, last, &mut going, &spans, &mut entries);

        let mut list = InLeaves {
            len: 0,
            leaves: [0; 5 * LANES],
            keys: [0; 5 * LANES],
            lanes: [0; 5 * LANES],
        };
        let last = _mm512_set1_epi32((tree.leaves.len().min(MOST_LEAVES) - 1) as i32);
        let (hops, _) = hops.as_chunks_mut::<LANES>();
        for v in 0..V {
            store(&mut hops[v], entries[v]);
            let wanted = !beyond[v] & kind_is(LEAF, entries[v]);
            let number = _mm512_and_si512(entries[v], _mm512_set1_epi32(INDEX as i32));
            let number = _mm512_min_epu32(number, last);
            let lanes = _mm512_add_epi32(
                _mm512_set1_epi32((v * LANES) as i32),
                _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            );
            put(
                &mut list.leaves,
                list.len,
                _mm512_maskz_compress_epi32(wanted, number),
            );
            put(
                &mut list.keys,
                list.len,
                _mm512_maskz_compress_epi32(wanted, spans[v]),
            );
            put(
                &mut list.lanes,
                list.len,
                _mm512_maskz_compress_epi32(wanted, lanes),
            );
            list.len += wanted.count_ones() as usize;
        }
        let hops = hops.as_flattened_mut();
        // Asked for before the first is needed: both of its lines.
        for &leaf in &list.leaves[..list.len.min(V * LANES)] {
            let leaf = tree.leaves.as_ptr().wrapping_add(leaf as usize);
            prefetch_read(leaf.cast::<[Entry; RANGES]>());
            prefetch_read(leaf.cast::<[Entry; RANGES]>().wrapping_add(1));
        }
        for at in 0..list.len.min(V * LANES) {
            let leaf = tree.leaves.as_ptr().wrapping_add(list.leaves[at] as usize);
            // SAFETY: the number was brought below that of leaves, and a leaf begins with 16 keys.
            let keys = unsafe { _mm512_load_si512(leaf.cast()) };
            let key = _mm512_set1_epi32(list.keys[at] as i32);
            let below = _mm512_cmple_epu32_mask(keys, key).count_ones() as usize;
            // SAFETY: as above.
            let leaf = unsafe { &*leaf };
            hops[list.lanes[at] as usize % (V * LANES)] =
                leaf.entries[below.wrapping_sub(1) % RANGES].0;
        }

        for v in 0..V {
            let hops = &mut hops[v * LANES..][..LANES];
            // SAFETY: 64 bytes are read from 16 words.
            let found = unsafe { _mm512_loadu_si512(hops.as_ptr().cast()) };
            // 10 in the first two bits: a hop that is far, or something beyond the span.
            let first_bits = _mm512_srli_epi32::<30>(found);
            let mut more = _mm512_cmpeq_epi32_mask(first_bits, _mm512_set1_epi32(0b10));
            while more != 0 {
                let lane = more.trailing_zeros() as usize % LANES;
                more &= more - 1;
                let address = u128::from_be_bytes(addresses[v][lane]);
                hops[lane] = tree.resolve(Entry(hops[lane]), address, ROOT_BITS + SPAN_BITS);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn kind_is(kind: u32, entries: __m512i) -> __mmask16 {
        let kinds = _mm512_srli_epi32::<28>(entries);
        _mm512_cmpeq_epi32_mask(kinds, _mm512_set1_epi32(kind as i32))
    }

    /// Where `going`, entries are tables, and become what stands there for 8 bits of the span.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn table_step<const V: usize, const SHIFT: u32>(
        tree: &Tree,
        last: __m512i,
        going: &mut [__mmask16; V],
        spans: &[__m512i; V],
        entries: &mut [__m512i; V],
    ) {
        for v in 0..V {
            // A gather takes its time even for no lane.
            if going[v] == 0 {
                continue;
            }
            let number = _mm512_and_si512(entries[v], _mm512_set1_epi32(INDEX as i32));
            let number = _mm512_min_epu32(number, last);
            let bits = _mm512_srli_epi32::<SHIFT>(spans[v]);
            let bits = _mm512_and_si512(bits, _mm512_set1_epi32(255));
            let index = _mm512_or_si512(_mm512_slli_epi32::<8>(number), bits);
            let tables = tree.tables.as_ptr().cast();
            // SAFETY: the number is that of a table, and 8 bits choose one of its 256 entries.
            entries[v] =
                unsafe { _mm512_mask_i32gather_epi32::<4>(entries[v], going[v], index, tables) };
            going[v] &= kind_is(TABLE, entries[v]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(to: &mut [u32; LANES], from: __m512i) {
        // SAFETY: 64 bytes are written to an array of 16 words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), from) }
    }

    /// Writes 16 words from index `at` on, which is brought into range.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn put(list: &mut [u32; 5 * LANES], at: usize, from: __m512i) {
        let to = &mut list[at.min(4 * LANES)..][..LANES];
        // SAFETY: 64 bytes are written to 16 words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), from) }
    }

    /// The first and the second word of each address, in host order.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn words(addresses: &[[u8; 16]; LANES]) -> (__m512i, __m512i) {
        let at = |four: usize| addresses[four * 4..].as_ptr().cast();
        // SAFETY: four addresses from 0 on are 64 bytes of the array.
        let a = unsafe { _mm512_loadu_si512(at(0)) };
        // SAFETY: four addresses from 4 on are 64 bytes of the array.
        let b = unsafe { _mm512_loadu_si512(at(1)) };
        // SAFETY: four addresses from 8 on are 64 bytes of the array.
        let c = unsafe { _mm512_loadu_si512(at(2)) };
        // SAFETY: four addresses from 12 on are 64 bytes of the array.
        let d = unsafe { _mm512_loadu_si512(at(3)) };
        // The first half of each address, eight to a vector.
        let halves = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let (ab, cd) = (
            _mm512_permutex2var_epi64(a, halves, b),
            _mm512_permutex2var_epi64(c, halves, d),
        );
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        let swap = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
        let host = |words| _mm512_shuffle_epi8(words, swap);
        (
            host(_mm512_permutex2var_epi32(ab, even, cd)),
            host(_mm512_permutex2var_epi32(ab, odd, cd)),
        )
    }
}
