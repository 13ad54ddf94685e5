//! The IPv6 forwarding table as lookups see it, and the kernels that read it.
//!
//! [`Tree`] owns the arrays; `lpm::v6` decides what stands in them. An address goes down so:
//!
//! - the *root*, by the first 16 bits;
//! - within a *span* of 32 bits (16..48, 48..80, 80..112, 112..128): *tables*, each by 8 bits, until
//!   an entry is no table; a *leaf* holds up to 16 ranges of the span's value, of which one is found
//!   by a comparison with all of them at once;
//! - the entry so found is a next hop, or leads to the next span, where it goes on.
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
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// Bits that the root decides by.
pub(crate) const ROOT_BITS: u8 = 16;
/// Bits that a table decides by.
pub(crate) const TABLE_BITS: u8 = 8;
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
pub(crate) enum Kind {
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
    pub(crate) fn kind(self) -> Kind {
        let index = self.0 & INDEX;
        match self.0 >> 28 {
            TABLE => Kind::Table(index),
            LEAF => Kind::Leaf(index),
            FAR => Kind::Far(index),
            _ => Kind::Hop(self.0),
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

/// All that lookups read: one root per VRF, and what all share. Index 0 of the others is never used.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) roots: HugeArray<Entry>,
    pub(crate) tables: HugeArray<Table>,
    pub(crate) leaves: HugeArray<Leaf>,
    pub(crate) far: HugeArray<u32>,
    kernel: Kernel,
}

/// Looks up `addresses` from the root that begins at an index of `roots`, into as many hops.
type Kernel = fn(&Tree, usize, &[[u8; 16]], &mut [u32]);

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
            tables: HugeArray::filled("fib6 tables", tables.max(1), [Entry::NONE; 256])?,
            leaves: HugeArray::filled("fib6 leaves", leaves.max(1), Leaf::EMPTY)?,
            far: HugeArray::filled("fib6 far", 1, NO_ROUTE)?,
            kernel: pick(isa),
        })
    }

    /// Another tree with the same content.
    pub(crate) fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            roots: self.roots.copy("fib6 roots")?,
            tables: self.tables.copy("fib6 tables")?,
            leaves: self.leaves.copy("fib6 leaves")?,
            far: self.far.copy("fib6 far")?,
            kernel: self.kernel,
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.roots.region().len()
            + self.tables.region().len()
            + self.leaves.region().len()
            + self.far.region().len()
    }

    pub(crate) fn pages(&self) -> PageKind {
        self.tables.region().kind()
    }

    /// How many tables and leaves there can be at all.
    pub(crate) const fn most() -> (usize, usize) {
        (MOST_TABLES, MOST_LEAVES)
    }

    #[inline]
    pub(crate) fn lookup(&self, vrf: u32, address: u128) -> u32 {
        let root = (vrf as usize) << ROOT_BITS;
        let entry = self.roots[root + (address >> 112) as usize];
        self.resolve(entry, address, ROOT_BITS)
    }

    /// # Panics
    /// If there is no such VRF, or the slices differ in length.
    pub(crate) fn lookup_bulk(&self, vrf: u32, addresses: &[[u8; 16]], hops: &mut [u32]) {
        assert_eq!(addresses.len(), hops.len(), "one hop per address");
        let root = (vrf as usize) << ROOT_BITS;
        assert!(root < self.roots.len(), "no VRF {vrf}");
        (self.kernel)(self, root, addresses, hops);
    }

    /// The next hop of `address`, from an entry on that stands at bit `at`.
    #[inline(always)]
    fn resolve(&self, mut entry: Entry, address: u128, mut at: u8) -> u32 {
        loop {
            match entry.kind() {
                Kind::Hop(hop) => return hop,
                Kind::Far(index) => return self.far[index as usize],
                Kind::Table(index) => {
                    entry = self.tables[index as usize][(address >> (120 - at)) as usize & 255];
                    at += TABLE_BITS;
                }
                Kind::Leaf(index) => {
                    let span = span_from(at);
                    entry = self.leaves[index as usize].find(span_of(address, span));
                    at = span + SPAN_BITS;
                }
            }
            // Beyond the last bit there are only hops.
            if at >= 128 {
                return match entry.kind() {
                    Kind::Far(index) => self.far[index as usize],
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
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => x86::v4,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => x86::v3,
        _ => baseline,
    }
}

#[inline(always)]
fn scalar(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
    let root = &tree.roots[root..root + (1 << ROOT_BITS)];
    for (address, hop) in addresses.iter().zip(hops) {
        let address = u128::from_be_bytes(*address);
        *hop = tree.resolve(root[(address >> 112) as usize], address, ROOT_BITS);
    }
}

fn baseline(tree: &Tree, root: usize, addresses: &[[u8; 16]], hops: &mut [u32]) {
    scalar(tree, root, addresses, hops);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
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
        let mut groups = addresses.chunks_exact(LANES);
        let mut out = hops.chunks_exact_mut(LANES);
        for (group, hops) in groups.by_ref().zip(out.by_ref()) {
            let group: &[[u8; 16]; LANES] = group.try_into().expect("a chunk has LANES");
            let hops: &mut [u32; LANES] = hops.try_into().expect("a chunk has LANES");
            sixteen(tree, root, group, hops);
        }
        scalar(tree, root, groups.remainder(), out.into_remainder());
    }

    /// Sixteen addresses in step.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
    fn sixteen(tree: &Tree, root: usize, addresses: &[[u8; 16]; LANES], hops: &mut [u32; LANES]) {
        let (first, second) = words(addresses);
        // The span's value: bits 16 to 48.
        let span = _mm512_or_si512(
            _mm512_slli_epi32::<16>(first),
            _mm512_srli_epi32::<16>(second),
        );

        let roots = &tree.roots[root..root + (1 << ROOT_BITS)];
        let index = _mm512_srli_epi32::<16>(first);
        // SAFETY: 16-bit indices, and 2^16 entries from there on.
        let mut entries = unsafe { _mm512_i32gather_epi32::<4>(index, roots.as_ptr().cast()) };

        let last_table = _mm512_set1_epi32((tree.tables.len().min(MOST_TABLES) - 1) as i32);
        let low = _mm512_set1_epi32(255);
        let kind = |entries| _mm512_srli_epi32::<28>(entries);
        let (table, leaf) = (
            _mm512_set1_epi32(TABLE as i32),
            _mm512_set1_epi32(LEAF as i32),
        );
        let mut going = _mm512_cmpeq_epi32_mask(kind(entries), table);
        let mut shift = 24;
        // Those that took the span's last bits from a table: what they found lies in the next one.
        let mut beyond: __mmask16 = 0;
        while going != 0 && shift >= 0 {
            let number = _mm512_and_si512(entries, _mm512_set1_epi32(INDEX as i32));
            let number = _mm512_min_epu32(number, last_table);
            let bits = _mm512_and_si512(_mm512_srl_epi32(span, _mm_cvtsi32_si128(shift)), low);
            let index = _mm512_or_si512(_mm512_slli_epi32::<8>(number), bits);
            let tables = tree.tables.as_ptr().cast();
            // SAFETY: the number is that of a table, and 8 bits choose one of its 256 entries.
            entries = unsafe { _mm512_mask_i32gather_epi32::<4>(entries, going, index, tables) };
            if shift == 0 {
                beyond = going;
            }
            going = _mm512_mask_cmpeq_epi32_mask(going, kind(entries), table);
            shift -= 8;
        }

        let in_leaf = _mm512_mask_cmpeq_epi32_mask(!beyond, kind(entries), leaf);
        if in_leaf != 0 {
            entries = in_leaves(tree, in_leaf, entries, span);
        }
        store(hops, entries);

        // 10 in the first two bits: a hop that is far, or something beyond the span.
        let first_bits = _mm512_srli_epi32::<30>(entries);
        let mut more = _mm512_cmpeq_epi32_mask(first_bits, _mm512_set1_epi32(0b10));
        while more != 0 {
            let lane = more.trailing_zeros() as usize % LANES;
            more &= more - 1;
            let address = u128::from_be_bytes(addresses[lane]);
            hops[lane] = tree.resolve(Entry(hops[lane]), address, ROOT_BITS + SPAN_BITS);
        }
    }

    /// What the lanes of `wanted`, whose entries name leaves, find there; others keep their entries.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
    fn in_leaves(tree: &Tree, wanted: __mmask16, entries: __m512i, span: __m512i) -> __m512i {
        let last = _mm512_set1_epi32((tree.leaves.len().min(MOST_LEAVES) - 1) as i32);
        let number = _mm512_and_si512(entries, _mm512_set1_epi32(INDEX as i32));
        let number = _mm512_maskz_mov_epi32(wanted, _mm512_min_epu32(number, last));
        let (mut numbers, mut spans, mut below) = ([0; LANES], [0; LANES], [0; LANES]);
        store(&mut numbers, number);
        store(&mut spans, span);
        for lane in 0..LANES {
            let leaf = tree.leaves.as_ptr().wrapping_add(numbers[lane] as usize);
            // SAFETY: the number is that of a leaf, which begins with 16 keys.
            let keys = unsafe { _mm512_load_si512(leaf.cast()) };
            let key = _mm512_set1_epi32(spans[lane] as i32);
            below[lane] = _mm512_cmple_epu32_mask(keys, key).count_ones();
        }
        // SAFETY: 64 bytes are read from an array of 16 words.
        let below = unsafe { _mm512_loadu_si512(below.as_ptr().cast()) };
        // In words: 32 to a leaf, the entries after 16 keys; the range before the first key above.
        let at = _mm512_and_si512(
            _mm512_sub_epi32(below, _mm512_set1_epi32(1)),
            _mm512_set1_epi32(RANGES as i32 - 1),
        );
        let at = _mm512_or_si512(at, _mm512_set1_epi32(RANGES as i32));
        let index = _mm512_or_si512(_mm512_slli_epi32::<5>(number), at);
        let leaves = tree.leaves.as_ptr().cast();
        // SAFETY: the number is that of a leaf, and what is added is below its 32 words.
        unsafe { _mm512_mask_i32gather_epi32::<4>(entries, wanted, index, leaves) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(to: &mut [u32; LANES], from: __m512i) {
        // SAFETY: 64 bytes are written to an array of 16 words.
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
