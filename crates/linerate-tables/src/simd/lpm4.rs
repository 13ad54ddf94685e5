//! The IPv4 lookup table and its kernels. The layout is explained in [`crate::lpm::v4`].
//!
//! A lookup reads a directory entry, the chunk that it names (mostly one cache line), and the next
//! hop. The loads are checked where entries are *written*: [`Fib`] keeps its arrays to itself, so
//! that no entry can name a chunk that reaches beyond the words. Kernels differ in the instructions
//! that the compiler may use; all load element by element. (AVX-512 gathers took 1.7 times as long
//! where they were measured, and stall all lanes on one TLB miss: see ADR 10.)

use linerate_core::MemError;
use linerate_core::arch::prefetch_read;
use linerate_core::env::Isa;
use linerate_core::mem::HugeArray;

use super::lpm4_flat::{self, Flat};
use crate::lpm::Layout;

/// What a lookup gives where no route holds the address.
pub(crate) const NO_ROUTE: u32 = u32::MAX;
/// Next hops that a narrow chunk can name, in 16 bits.
pub(crate) const HOPS: usize = 1 << 14;
/// The number of no next hop: a leaf of it says that the chunk is a wide one.
pub(crate) const WIDE: u32 = 0;
/// What a wide chunk begins with: no bit in the bitmap, and the leaf [`WIDE`].
pub(crate) const WIDE_HEAD: [u64; 2] = [0, WIDE as u64];
/// Set in a wide leaf that names a next hop by number.
pub(crate) const BY_ID: u64 = 1 << 62;
/// Set in a wide leaf that names four directory entries, one for each 64 addresses.
pub(crate) const SPLIT: u64 = 1 << 63;
/// Bits of an address that choose the directory entry; 6 more choose the leaf.
pub(crate) const DIRECTORY_BITS: u32 = 18;
/// No chunk is longer: the head of a wide one, its bitmap and 64 leaves.
pub(crate) const CHUNK_WORDS: usize = 67;
/// Leaves are 16 bits, so there are as many next hops to be looked up, used or not.
const LEAVES: usize = 1 << 16;
/// How many addresses are on their way to memory together.
const BLOCK: usize = 64;

/// Looks up `addresses` below the directory entry `base`.
pub(crate) type Kernel = fn(&Fib, usize, &[u32], &mut [u32]);

/// The arrays.
pub(crate) struct Fib {
    /// For each VRF an entry for each /18; behind them, four for each split /24. An entry is the
    /// index of a chunk in `words`, at most `words.len() - CHUNK_WORDS`.
    directory: HugeArray<u32>,
    /// Chunks. A narrow one is a bitmap, in which bit i - 1 is set if slot i leads elsewhere than
    /// slot i - 1, and the numbers of its next hops, four to a word. A wide one is [`WIDE_HEAD`],
    /// such a bitmap, and leaves of one word. Chunk 2h, for each h below `HOPS`, leads to next hop
    /// h alone.
    words: HugeArray<u64>,
    /// `LEAVES` next hops by number.
    hops: HugeArray<u32>,
    vrfs: usize,
    kernel: Kernel,
    /// The same, with a leaf for each /24, for those VRFs that have it.
    flat: Vec<Option<Flat>>,
}

impl Fib {
    /// A table in which every address of VRF v leads to the next hop numbered v + 1, which is
    /// [`NO_ROUTE`].
    ///
    /// # Panics
    /// If there are fewer `words` than the chunks of single hops take, or more VRFs than numbers.
    pub(crate) fn new(
        vrfs: usize,
        splits: usize,
        words: usize,
        isa: Isa,
    ) -> Result<Self, MemError> {
        assert!(words >= 2 * HOPS + CHUNK_WORDS && words <= u32::MAX as usize && vrfs < HOPS);
        let uniform = |at: usize| match (at < 2 * HOPS, at % 2) {
            (true, 1) => at as u64 / 2,
            _ => 0,
        };
        let to_vrf = |at: usize| match at >> DIRECTORY_BITS {
            vrf if vrf < vrfs => 2 * (vrf as u32 + 1),
            _ => 0,
        };
        let entries = (vrfs << DIRECTORY_BITS) + 4 * splits;
        Ok(Self {
            directory: HugeArray::from_fn("lpm4 directory", entries, to_vrf)?,
            words: HugeArray::from_fn("lpm4 chunks", words, uniform)?,
            hops: HugeArray::filled("lpm4 next hops", LEAVES, NO_ROUTE)?,
            vrfs,
            kernel: pick(isa),
            flat: (0..vrfs).map(|_| None).collect(),
        })
    }

    /// Gives a VRF that there is a flat array that says what the compact table says, or takes it
    /// away.
    ///
    /// # Errors
    /// If there is no memory for it; lookups go on by the compact table.
    pub(crate) fn set_flat(&mut self, vrf: usize, wanted: bool) -> Result<(), MemError> {
        self.flat[vrf] = None;
        if wanted {
            let default = vrf + 1;
            self.flat[vrf] = Some(Flat::new(lpm4_flat::leaf(default, NO_ROUTE, true))?);
            for index in vrf << DIRECTORY_BITS..default << DIRECTORY_BITS {
                if self.directory[index] as usize != 2 * default {
                    self.flatten(index, 0, 64);
                }
            }
        }
        Ok(())
    }

    /// Another table with the same content.
    pub(crate) fn copy(&self) -> Result<Self, MemError> {
        let (directory, words, hops) = (&self.directory, &self.words, &self.hops);
        let copy = |flat: &Option<Flat>| flat.as_ref().map(Flat::copy).transpose();
        let flat = self.flat.iter().map(copy);
        Ok(Self {
            directory: HugeArray::from_fn("lpm4 directory", directory.len(), |at| directory[at])?,
            words: HugeArray::from_fn("lpm4 chunks", words.len(), |at| words[at])?,
            hops: HugeArray::from_fn("lpm4 next hops", hops.len(), |at| hops[at])?,
            vrfs: self.vrfs,
            kernel: self.kernel,
            flat: flat.collect::<Result<_, _>>()?,
        })
    }

    /// All memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let flat = self.flat.iter().flatten().map(Flat::memory_bytes);
        size_of_val(&*self.directory)
            + size_of_val(&*self.words)
            + size_of_val(&*self.hops)
            + flat.sum::<usize>()
    }

    /// What backs the chunks.
    pub(crate) fn pages(&self) -> linerate_core::mem::PageKind {
        self.words.region().kind()
    }

    /// Makes `count` directory entries from `first` on name the chunk of `entry`.
    ///
    /// # Panics
    /// If the chunk might reach beyond the words: this is what makes lookups safe.
    pub(crate) fn set_entries(&mut self, first: usize, count: usize, entry: u32) {
        assert!(entry as usize + CHUNK_WORDS <= self.words.len());
        self.directory[first..first + count].fill(entry);
    }

    /// Makes the flat array say of `count` /24s from the `first`-th of a /18 on what its directory
    /// entry, the `index`-th, leads to. To be called when that has changed for them.
    pub(crate) fn flatten(&mut self, index: usize, first: usize, count: usize) {
        let vrf = index >> DIRECTORY_BITS;
        let Some(Some(flat)) = self.flat.get_mut(vrf) else {
            return;
        };
        let chunk = &self.words[self.directory[index] as usize..][..CHUNK_WORDS];
        let by_number = |number: usize| {
            // A default route's next hop changes without its leaves.
            lpm4_flat::leaf(number, self.hops[number], number <= self.vrfs)
        };
        let is_wide = chunk.starts_with(&WIDE_HEAD);
        let bitmap = if is_wide { chunk[2] } else { chunk[0] };
        let leaf = |rank: usize| match is_wide {
            false => by_number((chunk[1 + rank / 4] >> (rank % 4 * 16)) as u16 as usize),
            true => match chunk[3 + rank] {
                split if split & SPLIT != 0 => lpm4_flat::leaf(WIDE as usize, NO_ROUTE, true),
                number if number & BY_ID != 0 => by_number(number as usize & (HOPS - 1)),
                hop => lpm4_flat::leaf(WIDE as usize, hop as u32, false),
            },
        };
        let mut at = rank(bitmap, first as u32);
        let mut last = leaf(at);
        let first_leaf = (index * 64 + first) % lpm4_flat::LEAVES;
        for (slot, to) in (first..).zip(flat.leaves(first_leaf, count)) {
            if slot > first && bitmap >> (slot - 1) & 1 != 0 {
                at += 1;
                last = leaf(at);
            }
            *to = last;
        }
    }

    /// Writes a chunk, or a part of one.
    pub(crate) fn set_words(&mut self, at: usize, words: &[u64]) {
        self.words[at..at + words.len()].copy_from_slice(words);
    }

    /// Copies a chunk.
    pub(crate) fn copy_words(&mut self, from: usize, to: usize, len: usize) {
        self.words.copy_within(from..from + len, to);
    }

    /// What the next hop numbered `id` is.
    pub(crate) fn set_hop(&mut self, id: usize, hop: u32) {
        self.hops[id] = hop;
    }

    /// The next hop of one address; [`NO_ROUTE`] in a VRF that does not exist.
    #[inline]
    pub(crate) fn lookup(&self, vrf: u32, address: u32) -> u32 {
        if vrf as usize >= self.vrfs {
            return NO_ROUTE;
        }
        let entry = self.entry((vrf as usize) << DIRECTORY_BITS, address);
        self.resolve(entry, address)
    }

    /// Whether a VRF has a flat array.
    #[inline]
    pub(crate) fn has_flat(&self, vrf: u32) -> bool {
        matches!(self.flat.get(vrf as usize), Some(Some(_)))
    }

    /// The next hops of `addresses` in one VRF; by the flat array only where there is one.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub(crate) fn lookup_bulk(
        &self,
        layout: Layout,
        vrf: u32,
        addresses: &[u32],
        hops: &mut [u32],
    ) {
        assert_eq!(addresses.len(), hops.len(), "one next hop for each address");
        let base = (vrf as usize) << DIRECTORY_BITS;
        match (self.flat.get(vrf as usize), layout) {
            (None, _) => hops.fill(NO_ROUTE),
            (Some(Some(flat)), Layout::Flat) => {
                for (addresses, hops) in addresses.chunks(BLOCK).zip(hops.chunks_mut(BLOCK)) {
                    let any = flat.bulk(&self.hops, addresses, hops);
                    let ask = |any, &hop: &u32| any | (hop == NO_ROUTE);
                    if any && hops.iter().fold(false, ask) {
                        self.ask_compact(base, addresses, hops);
                    }
                }
            }
            _ => (self.kernel)(self, base, addresses, hops),
        }
    }

    /// What the flat array did not know.
    #[cold]
    fn ask_compact(&self, base: usize, addresses: &[u32], hops: &mut [u32]) {
        for (&address, hop) in addresses.iter().zip(hops) {
            if *hop == NO_ROUTE {
                *hop = self.resolve(self.entry(base, address), address);
            }
        }
    }

    /// The next hops of `addresses`, each in a VRF of its own.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub(crate) fn lookup_each(&self, vrfs: &[u32], addresses: &[u32], hops: &mut [u32]) {
        assert!(vrfs.len() == addresses.len() && addresses.len() == hops.len());
        let blocks = vrfs.chunks(BLOCK).zip(addresses.chunks(BLOCK));
        for ((vrfs, addresses), hops) in blocks.zip(hops.chunks_mut(BLOCK)) {
            let mut entries = [0; BLOCK];
            for ((&vrf, &address), entry) in vrfs.iter().zip(addresses).zip(&mut entries) {
                let known = if (vrf as usize) < self.vrfs { vrf } else { 0 };
                *entry = self.entry((known as usize) << DIRECTORY_BITS, address);
                self.prefetch(*entry);
            }
            let looked = addresses.iter().zip(&entries);
            for (((&address, &entry), hop), &vrf) in looked.zip(hops).zip(vrfs) {
                let found = self.resolve(entry, address);
                *hop = if (vrf as usize) < self.vrfs {
                    found
                } else {
                    NO_ROUTE
                };
            }
        }
    }

    /// The directory entry of an address; `base` is where its VRF begins.
    #[inline(always)]
    fn entry(&self, base: usize, address: u32) -> u32 {
        let at = base + (address >> (32 - DIRECTORY_BITS)) as usize;
        debug_assert!(at < self.directory.len());
        // SAFETY: each VRF has 1 << 18 entries here; `base` is v << 18 for a VRF v that exists
        // (checked by the callers' callers, all in this file), and what is added is below 1 << 18.
        unsafe { *self.directory.get_unchecked(at) }
    }

    #[inline(always)]
    fn prefetch(&self, entry: u32) {
        prefetch_read(self.words.as_ptr().wrapping_add(entry as usize));
    }

    /// From the directory entry to the next hop.
    #[inline(always)]
    fn resolve(&self, entry: u32, address: u32) -> u32 {
        match self.narrow(entry, address >> 8) {
            NO_ROUTE => self.resolve_slowly(entry, address),
            hop => hop,
        }
    }

    /// The next hop of a slot (the low 6 bits) of a narrow chunk; [`NO_ROUTE`] of a wide one.
    #[inline(always)]
    fn narrow(&self, entry: u32, slot: u32) -> u32 {
        let at = entry as usize;
        debug_assert!(at + CHUNK_WORDS <= self.words.len());
        // SAFETY: `set_entries` lets in no entry within `CHUNK_WORDS` of the end, and all that
        // begin in the directory are before; `entry` has been read from there.
        let bitmap = unsafe { *self.words.get_unchecked(at) };
        let rank = rank(bitmap, slot);
        // SAFETY: `at` is inside the words, as above.
        let chunk = unsafe { self.words.as_ptr().add(at) };
        // SAFETY: rank is below 64, so this is half-word 67 of the chunk at most: word 16 of 67.
        let leaf = unsafe { chunk.cast::<u16>().add(4 + rank) };
        // SAFETY: it is inside the words, aligned, and any bits are a u16.
        let leaf = unsafe { *leaf };
        // SAFETY: there are `LEAVES` next hops, one for each u16.
        unsafe { *self.hops.get_unchecked(leaf as usize) }
    }

    /// The leaf of a slot of a wide chunk; `None` if the chunk is narrow.
    fn wide(&self, entry: u32, slot: u32) -> Option<u64> {
        let chunk = &self.words[entry as usize..][..CHUNK_WORDS];
        chunk
            .starts_with(&WIDE_HEAD)
            .then(|| chunk[3 + rank(chunk[2], slot)])
    }

    /// Where a narrow chunk would say that there is no route, or the chunk is wide.
    #[cold]
    #[inline(never)]
    fn resolve_slowly(&self, entry: u32, address: u32) -> u32 {
        let Some(mut leaf) = self.wide(entry, address >> 8) else {
            return NO_ROUTE;
        };
        if leaf & SPLIT != 0 {
            let entry = self.directory[leaf as u32 as usize + (address >> 6 & 3) as usize];
            leaf = match self.wide(entry, address) {
                Some(leaf) => leaf,
                None => return self.narrow(entry, address),
            };
        }
        match leaf & BY_ID {
            0 => leaf as u32,
            _ => self.hops[leaf as usize & (HOPS - 1)],
        }
    }

    /// All entries of a block are fetched and their chunks asked for, before the first is needed.
    #[inline(always)]
    fn bulk(&self, base: usize, addresses: &[u32], hops: &mut [u32]) {
        let mut entries = [0; BLOCK];
        for (addresses, hops) in addresses.chunks(BLOCK).zip(hops.chunks_mut(BLOCK)) {
            for (&address, entry) in addresses.iter().zip(&mut entries) {
                *entry = self.entry(base, address);
                self.prefetch(*entry);
            }
            let looked = addresses.iter().zip(&entries);
            for ((&address, &entry), hop) in looked.clone().zip(&mut *hops) {
                *hop = self.narrow(entry, address >> 8);
            }
            // No branch for each address: it would be one too many for the few wide chunks.
            if hops.iter().fold(false, |any, &hop| any | (hop == NO_ROUTE)) {
                for ((&address, &entry), hop) in looked.zip(hops) {
                    if *hop == NO_ROUTE {
                        *hop = self.resolve_slowly(entry, address);
                    }
                }
            }
        }
    }
}

/// How often the next hop has changed up to a slot (the low 6 bits).
#[inline(always)]
fn rank(bitmap: u64, slot: u32) -> usize {
    (bitmap & ((1 << (slot & 63)) - 1)).count_ones() as usize
}

fn baseline(fib: &Fib, base: usize, addresses: &[u32], hops: &mut [u32]) {
    fib.bulk(base, addresses, hops);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Fib;

    /// With a population count, and shifts that leave the flags alone.
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn v3(fib: &Fib, base: usize, addresses: &[u32], hops: &mut [u32]) {
        fib.bulk(base, addresses, hops);
    }

    pub(super) fn call_v3(fib: &Fib, base: usize, addresses: &[u32], hops: &mut [u32]) {
        // SAFETY: `pick` names this function only where the CPU has AVX2's level, which includes
        // them.
        unsafe { v3(fib, base, addresses, hops) }
    }
}

/// The kernel for this level.
fn pick(isa: Isa) -> Kernel {
    match isa.available() {
        Isa::Baseline => baseline,
        #[cfg(target_arch = "x86_64")]
        _ => x86::call_v3,
        #[cfg(not(target_arch = "x86_64"))]
        _ => baseline,
    }
}
