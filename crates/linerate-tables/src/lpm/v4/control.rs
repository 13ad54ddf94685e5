//! The writing side: the routes, and what each change of them does to the lookup table.
//!
//! A change of one route rebuilds the chunks that it touches from the route store, mostly one of
//! them, and says so in [`Change`]s: plain writes, which any number of copies of the table apply.
//! First everything is built aside, then the room for it is checked, and only then does anything
//! change: a refused route leaves no trace.

use std::collections::BTreeMap;

use super::arena::{self, Arena, class_of};
use super::hops::Hops;
use super::{Lpm4Config, Prefix4};
use crate::TableError;
use crate::lpm::rib::{Found, Rib};
use crate::simd::lpm4::{
    BY_ID, CHUNK_WORDS, DIRECTORY_BITS, Fib, HOPS, NO_ROUTE, SPLIT, WIDE_HEAD,
};

/// Slots of a chunk: 64, by 6 bits of the address.
const SLOT_BITS: u8 = 6;
/// Bits of the address above the slots of a directory entry's chunk, and through them.
const TOP: u8 = DIRECTORY_BITS as u8;
const TOP_END: u8 = TOP + SLOT_BITS;
/// The same below a split /24.
const LOW: u8 = TOP_END + 2;
/// Bytes of the next hops by number.
const HOP_BYTES: usize = 4 << 16;
/// Words before the blocks: the chunks that lead to a single next hop.
const FIXED_WORDS: usize = 2 * HOPS;
/// A directory entry whose block was freed, until it gets another; chunks begin at even words.
const FREED: u32 = 1;
/// Of what is left of the budget after the fixed parts, this fraction is kept for split /24s.
const SPLIT_SHARE: usize = 16;

/// One write to the lookup table.
#[derive(Clone, Debug)]
pub struct Change(Write);

#[derive(Clone, Debug)]
enum Write {
    Words { at: u32, words: Box<[u64]> },
    Move { from: u32, to: u32, words: u32 },
    Entries { first: u32, count: u32, entry: u32 },
    Hop { number: u32, hop: u32 },
    Flatten { index: u32, first: u8, count: u8 },
    Flat { vrf: u32, wanted: bool },
}

impl Change {
    pub(super) fn apply(&self, fib: &mut Fib) {
        match &self.0 {
            Write::Words { at, words } => fib.set_words(*at as usize, words),
            &Write::Move { from, to, words } => {
                fib.copy_words(from as usize, to as usize, words as usize);
            }
            &Write::Entries {
                first,
                count,
                entry,
            } => fib.set_entries(first as usize, count as usize, entry),
            &Write::Hop { number, hop } => fib.set_hop(number as usize, hop),
            &Write::Flatten {
                index,
                first,
                count,
            } => fib.flatten(index as usize, first.into(), count.into()),
            // A copy that there is no memory for is without, and finds the same.
            &Write::Flat { vrf, wanted } => drop(fib.set_flat(vrf as usize, wanted)),
        }
    }
}

/// What a directory entry is to lead to.
enum Built {
    /// This next hop, for all slots.
    Hop(u32),
    /// A chunk: these words of [`Staged::words`].
    Chunk { first: u32, len: u32 },
}

/// What a change comes to, before anything is changed.
#[derive(Default)]
struct Staged {
    entries: Vec<(u32, Built)>,
    words: Vec<u64>,
    /// Split /24s that come, by their key, and that go.
    split: Vec<(u64, u32)>,
    joined: Vec<u64>,
}

/// The writing side.
pub(super) struct Control {
    /// The routes of each VRF; a next hop is its number in `hops`.
    ribs: Vec<Rib<u32>>,
    rib_bytes: usize,
    rib_budget: usize,
    hops: Hops,
    arena: Arena,
    /// The directory as it is when all changes have been applied.
    directory: Vec<u32>,
    /// The four directory entries of each split /24, by directory entry and slot.
    splits: BTreeMap<u64, u32>,
    free_splits: Vec<u32>,
    table_bytes: usize,
    /// Which of the VRFs that may have a flat array do.
    has_flat: Vec<bool>,
    /// With how many routes they get it.
    flat_routes: usize,
    staged: Staged,
}

impl Control {
    /// The writing side and an empty table.
    pub(super) fn new(config: &Lpm4Config) -> Result<(Self, Fib), TableError> {
        let vrfs = config.vrfs as usize;
        if vrfs == 0 || vrfs > HOPS / 2 {
            return Err(TableError::LpmVrfs {
                vrfs: config.vrfs,
                max: HOPS as u32 / 2,
            });
        }
        let fixed = (vrfs << DIRECTORY_BITS) * 4 + HOP_BYTES + FIXED_WORDS * 8;
        let least = fixed + (1 << 16);
        if config.table_bytes < least {
            return Err(TableError::LpmBudget {
                what: "lookup table",
                need_bytes: least,
                budget_bytes: config.table_bytes,
            });
        }
        let splits = (config.table_bytes - fixed) / SPLIT_SHARE / 16;
        let words = (config.table_bytes - fixed - splits * 16) / 8 + FIXED_WORDS;
        let words = words.min(u32::MAX as usize);
        let mut fib = Fib::new(vrfs, splits, words, config.isa)?;
        let has_flat = vec![config.flat_routes == 0; vrfs.min(config.flat_vrfs as usize)];
        for (vrf, &wanted) in has_flat.iter().enumerate() {
            fib.set_flat(vrf, wanted)?;
        }
        let first_split = (vrfs << DIRECTORY_BITS) as u32;
        let mut directory = vec![0; (vrfs << DIRECTORY_BITS) + 4 * splits];
        for (vrf, entries) in directory.chunks_mut(1 << DIRECTORY_BITS).enumerate() {
            entries.fill(if vrf < vrfs {
                2 * number_of(vrf as u32)
            } else {
                0
            });
        }
        let ribs: Vec<Rib<u32>> = (0..vrfs).map(|_| Rib::new()).collect();
        let control = Self {
            rib_bytes: ribs.iter().map(Rib::memory_bytes).sum(),
            ribs,
            rib_budget: config.rib_bytes,
            hops: Hops::new(vrfs),
            // A lookup may look at 65 words from where a chunk begins.
            arena: Arena::new(FIXED_WORDS, words - CHUNK_WORDS),
            directory,
            splits: BTreeMap::new(),
            free_splits: (0..splits as u32)
                .rev()
                .map(|split| first_split + 4 * split)
                .collect(),
            table_bytes: config.table_bytes,
            has_flat,
            flat_routes: config.flat_routes,
            staged: Staged::default(),
        };
        Ok((control, fib))
    }

    /// How many routes there are, in all VRFs.
    pub(super) fn len(&self) -> usize {
        self.ribs.iter().map(Rib::len).sum()
    }

    /// All memory of the writing side.
    pub(super) fn memory_bytes(&self) -> usize {
        // A node of the map holds 6 to 11 entries of 12 bytes.
        self.rib_bytes
            + self.hops.memory_bytes()
            + self.arena.memory_bytes()
            + 4 * (self.directory.capacity() + self.free_splits.capacity())
            + self.splits.len() * 24
    }

    /// Bytes of the lookup table that routes take: chunks, and entries for split /24s.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.arena.used_words() * 8 + self.splits.len() * 16
    }

    pub(super) fn get(&self, vrf: u32, prefix: Prefix4) -> Option<u32> {
        let number = self.ribs.get(vrf as usize)?.get(prefix)?;
        Some(self.hops.hop(number))
    }

    /// The routes of a VRF, by address and length.
    pub(super) fn routes(&self, vrf: u32) -> impl Iterator<Item = (Prefix4, u32)> + '_ {
        let rib = self.ribs.get(vrf as usize).into_iter();
        rib.flat_map(Rib::iter)
            .map(|(prefix, number)| (prefix, self.hops.hop(number)))
    }

    /// Adds a route or changes its next hop; hands what is to be written to `sink`.
    pub(super) fn insert(
        &mut self,
        vrf: u32,
        prefix: Prefix4,
        hop: u32,
        sink: &mut impl FnMut(Change),
    ) -> Result<Option<u32>, TableError> {
        self.check(vrf)?;
        if hop == NO_ROUTE {
            return Err(TableError::LpmHop { hop });
        }
        let rib = &mut self.ribs[vrf as usize];
        let need = self.rib_bytes + rib.growth_bytes();
        if need > self.rib_budget {
            return Err(TableError::LpmBudget {
                what: "route store",
                need_bytes: need,
                budget_bytes: self.rib_budget,
            });
        }
        let (number, new) = self.hops.acquire(hop);
        let before = rib.memory_bytes();
        let had = match rib.insert(prefix, number) {
            Ok(had) => had,
            Err(error) => {
                self.hops.release(number);
                return Err(error);
            }
        };
        self.rib_bytes += rib.memory_bytes() - before;
        if had != Some(number) {
            // First, since flat arrays hold next hops; no leaf has the number if this is refused.
            if new && (number as usize) < HOPS {
                sink(Change(Write::Hop { number, hop }));
            }
            if let Err(error) = self.compile(vrf, prefix, sink) {
                self.restore(vrf, prefix, had);
                self.hops.release(number);
                return Err(error);
            }
            self.resize_flat(vrf, sink);
        }
        Ok(had.map(|had| {
            let hop = self.hops.hop(had);
            self.hops.release(had);
            hop
        }))
    }

    /// Takes a route out; hands what is to be written to `sink`.
    pub(super) fn remove(
        &mut self,
        vrf: u32,
        prefix: Prefix4,
        sink: &mut impl FnMut(Change),
    ) -> Result<Option<u32>, TableError> {
        self.check(vrf)?;
        let Some(number) = self.ribs[vrf as usize].remove(prefix) else {
            return Ok(None);
        };
        if let Err(error) = self.compile(vrf, prefix, sink) {
            self.restore(vrf, prefix, Some(number));
            return Err(error);
        }
        self.resize_flat(vrf, sink);
        let hop = self.hops.hop(number);
        self.hops.release(number);
        Ok(Some(hop))
    }

    /// Gives a VRF that has become large a flat array, and takes it from one that has lost half of
    /// that.
    fn resize_flat(&mut self, vrf: u32, sink: &mut impl FnMut(Change)) {
        let Some(has) = self.has_flat.get_mut(vrf as usize) else {
            return;
        };
        let least = match *has {
            true => self.flat_routes / 2,
            false => self.flat_routes,
        };
        let wanted = self.ribs[vrf as usize].len() >= least;
        if *has != wanted {
            *has = wanted;
            sink(Change(Write::Flat { vrf, wanted }));
        }
    }

    fn check(&self, vrf: u32) -> Result<(), TableError> {
        match (vrf as usize) < self.ribs.len() {
            true => Ok(()),
            false => Err(TableError::LpmNoVrf {
                vrf,
                vrfs: self.ribs.len() as u32,
            }),
        }
    }

    /// Makes the route what it was.
    fn restore(&mut self, vrf: u32, prefix: Prefix4, had: Option<u32>) {
        let rib = &mut self.ribs[vrf as usize];
        match had {
            None => drop(rib.remove(prefix)),
            Some(number) => drop(
                rib.insert(prefix, number)
                    .expect("its nodes were there a moment ago"),
            ),
        }
    }

    /// Rebuilds what `prefix` touches, from the routes as they are now.
    fn compile(
        &mut self,
        vrf: u32,
        prefix: Prefix4,
        sink: &mut impl FnMut(Change),
    ) -> Result<(), TableError> {
        if prefix.len() == 0 {
            // What no other route holds leads to the next hop numbered like its VRF.
            let hop = self.ribs[vrf as usize].get(prefix);
            let hop = hop.map_or(NO_ROUTE, |number| self.hops.hop(number));
            let number = number_of(vrf);
            sink(Change(Write::Hop { number, hop }));
            return Ok(());
        }
        let mut staged = std::mem::take(&mut self.staged);
        let outcome = self
            .stage(vrf, prefix, &mut staged)
            .and_then(|()| self.check_room(&staged));
        match outcome {
            Ok(()) => self.commit(&mut staged, prefix, sink),
            Err(_) => {
                let taken = staged.split.drain(..).map(|(_, entries)| entries);
                self.free_splits.extend(taken);
            }
        }
        staged.entries.clear();
        staged.words.clear();
        staged.split.clear();
        staged.joined.clear();
        self.staged = staged;
        outcome
    }

    fn stage(&mut self, vrf: u32, prefix: Prefix4, staged: &mut Staged) -> Result<(), TableError> {
        let first = (vrf << DIRECTORY_BITS) + (prefix.first() >> (32 - TOP));
        let slot = u64::from(prefix.first() >> 8 & 63);
        if prefix.len() > TOP_END {
            let whole = Prefix4::of(prefix.first(), TOP_END);
            let entries = self.splits.get(&(u64::from(first) << SLOT_BITS | slot));
            if let Some(&entries) = entries
                && self.ribs[vrf as usize].has_longer(whole)
            {
                self.stage_split(vrf, whole.first(), entries, prefix, staged);
                return Ok(());
            }
        }
        let count = 1_u32 << TOP.saturating_sub(prefix.len());
        for index in 0..count {
            let address = Prefix4::of(prefix.first(), TOP).first() + (index << (32 - TOP));
            self.stage_entry(vrf, first + index, address, prefix, staged)?;
        }
        Ok(())
    }

    /// The chunk of the directory entry `index`, which is that of the /18 at `address`.
    fn stage_entry(
        &mut self,
        vrf: u32,
        index: u32,
        address: u32,
        changed: Prefix4,
        staged: &mut Staged,
    ) -> Result<(), TableError> {
        let (numbers, mut longer) = self.slots(vrf, Prefix4::of(address, TOP), TOP_END);
        let key = u64::from(index) << SLOT_BITS;
        if longer == 0 && self.splits.range(key..key + 64).next().is_none() {
            let built = self.build(staged, &numbers.map(u64::from));
            staged.entries.push((index, built));
            return Ok(());
        }
        let had = self.splits.range(key..key + 64);
        let gone = had.filter(|(slot, _)| longer >> (*slot & 63) & 1 == 0);
        for (&key, &entries) in gone {
            staged.joined.push(key);
            let freed = (entries..entries + 4).map(|entry| (entry, Built::Hop(0)));
            staged.entries.extend(freed);
        }
        let mut leaves = numbers.map(u64::from);
        while longer != 0 {
            let slot = longer.trailing_zeros();
            longer &= longer - 1;
            let whole = Prefix4::of(address + (slot << 8), TOP_END);
            let key = key | u64::from(slot);
            let entries = match self.splits.get(&key) {
                Some(&entries) => {
                    if changed.covers(whole) {
                        self.stage_split(vrf, whole.first(), entries, whole, staged);
                    }
                    entries
                }
                None => {
                    let entries = self.free_splits.pop().ok_or(TableError::LpmBudget {
                        what: "lookup table's share for prefixes beyond /24",
                        need_bytes: (self.splits.len() + 1) * 16,
                        budget_bytes: self.splits.len() * 16,
                    })?;
                    staged.split.push((key, entries));
                    self.stage_split(vrf, whole.first(), entries, whole, staged);
                    entries
                }
            };
            leaves[slot as usize] = SPLIT | u64::from(entries);
        }
        let built = self.build(staged, &leaves);
        staged.entries.push((index, built));
        Ok(())
    }

    /// Those chunks of a split /24 that `changed` touches.
    fn stage_split(
        &self,
        vrf: u32,
        address: u32,
        entries: u32,
        changed: Prefix4,
        staged: &mut Staged,
    ) {
        for quarter in 0..4 {
            let region = Prefix4::of(address + (quarter << SLOT_BITS), LOW);
            if changed.covers(region) || region.covers(changed) {
                let (numbers, _) = self.slots(vrf, region, 32);
                let built = self.build(staged, &numbers.map(u64::from));
                staged.entries.push((entries + quarter, built));
            }
        }
    }

    /// The next hop of each of the 64 slots of a region, by routes of up to `len` bits, which is
    /// the length of a slot; and a bit for each slot that has longer ones.
    fn slots(&self, vrf: u32, region: Prefix4, len: u8) -> ([u32; 64], u64) {
        let rib = &self.ribs[vrf as usize];
        let above = rib.longest_within(region.first(), region.len() - 1);
        let above = above.filter(|(prefix, _)| prefix.len() > 0);
        let mut numbers = [above.map_or(number_of(vrf), |(_, number)| number); 64];
        let mut longer = 0;
        let slot = |prefix: Prefix4| (prefix.first() >> (32 - len) & 63) as usize;
        for found in rib.walk(region, len) {
            match found {
                Found::Route(prefix, number) => {
                    let (first, count) = (slot(prefix), 1 << (len - prefix.len()));
                    numbers[first..first + count].fill(number);
                }
                Found::Longer(prefix) => longer |= 1 << slot(prefix),
            }
        }
        (numbers, longer)
    }

    /// Whether what is staged finds room.
    fn check_room(&self, staged: &Staged) -> Result<(), TableError> {
        let (mut comes, mut goes) = ([0; arena::CLASSES], [0; arena::CLASSES]);
        for (index, built) in &staged.entries {
            if let Some(at) = block(self.directory[*index as usize]) {
                goes[self.arena.class_at(at)] += 1;
            }
            if let Built::Chunk { len, .. } = built {
                comes[class_of(*len as usize)] += 1;
            }
        }
        match self.arena.missing_pages(&comes, &goes) {
            0 => Ok(()),
            pages => Err(TableError::LpmBudget {
                what: "lookup table",
                need_bytes: self.table_bytes + pages * arena::PAGE * 8,
                budget_bytes: self.table_bytes,
            }),
        }
    }

    /// Makes what is staged true, and tells `sink`; `changed` is the route that came or went.
    fn commit(&mut self, staged: &mut Staged, changed: Prefix4, sink: &mut impl FnMut(Change)) {
        let (first_slot, slots) = slots_of(changed);
        for key in staged.joined.drain(..) {
            let entries = self.splits.remove(&key);
            self.free_splits.extend(entries);
        }
        self.splits.extend(staged.split.drain(..));
        // Freed blocks make room first; blocks that keep their class keep their place.
        for (index, built) in &staged.entries {
            let Some(at) = block(self.directory[*index as usize]) else {
                continue;
            };
            let stays = matches!(built, Built::Chunk { len, .. }
                if class_of(*len as usize) == self.arena.class_at(at));
            if !stays {
                self.free(*index, at, sink);
            }
        }
        for (index, built) in &staged.entries {
            let old = self.directory[*index as usize];
            let entry = match *built {
                Built::Hop(number) => 2 * number,
                Built::Chunk { first, len } => {
                    let at = block(old)
                        .unwrap_or_else(|| self.arena.take(class_of(len as usize), *index));
                    let words = &staged.words[first as usize..(first + len) as usize];
                    sink(Change(Write::Words {
                        at: at as u32,
                        words: words.into(),
                    }));
                    at as u32
                }
            };
            if entry != old {
                self.set_entry(*index, entry, sink);
            }
            if self.has_flat.get((*index >> DIRECTORY_BITS) as usize) == Some(&true) {
                sink(Change(Write::Flatten {
                    index: *index,
                    first: first_slot,
                    count: slots,
                }));
            }
        }
    }

    /// Frees the block at `at`, which `index` names, and moves another into the hole.
    fn free(&mut self, index: u32, at: usize, sink: &mut impl FnMut(Change)) {
        self.directory[index as usize] = FREED;
        let Some(moved) = self.arena.free(at) else {
            return;
        };
        sink(Change(Write::Move {
            from: moved.from as u32,
            to: moved.to as u32,
            words: moved.words as u32,
        }));
        self.set_entry(moved.owner, moved.to as u32, sink);
    }

    fn set_entry(&mut self, index: u32, entry: u32, sink: &mut impl FnMut(Change)) {
        self.directory[index as usize] = entry;
        sink(Change(Write::Entries {
            first: index,
            count: 1,
            entry,
        }));
    }

    /// Builds a chunk of 64 slots, each the number of a next hop or a split with its entries.
    fn build(&self, staged: &mut Staged, slots: &[u64; 64]) -> Built {
        let mut bitmap = 0;
        let mut leaves = [0; 64];
        let mut count = 0;
        let mut all = 0;
        for slot in 0..64 {
            if slot == 0 || slots[slot] != slots[slot - 1] {
                bitmap |= 1_u64 << slot;
                leaves[count] = slots[slot];
                all |= slots[slot];
                count += 1;
            }
        }
        let (bitmap, leaves) = (bitmap >> 1, &leaves[..count]);
        let wide = all >= HOPS as u64;
        if !wide && count == 1 {
            return Built::Hop(leaves[0] as u32);
        }
        let first = staged.words.len();
        if wide {
            staged.words.extend(WIDE_HEAD);
        }
        staged.words.push(bitmap);
        match wide {
            false => staged.words.extend(leaves.chunks(4).map(|four| {
                let places = four.iter().zip([0, 16, 32, 48]);
                places.fold(0, |word, (leaf, place)| word | leaf << place)
            })),
            true => staged.words.extend(leaves.iter().map(|&leaf| match leaf {
                split if split & SPLIT != 0 => split,
                number if number < HOPS as u64 => BY_ID | number,
                number => self.hops.hop(number as u32).into(),
            })),
        }
        Built::Chunk {
            first: first as u32,
            len: (staged.words.len() - first) as u32,
        }
    }
}

/// The slots that a route has of each /18 that it touches: the first, and how many.
fn slots_of(prefix: Prefix4) -> (u8, u8) {
    match prefix.len() {
        ..=TOP => (0, 1 << SLOT_BITS),
        len => (
            (prefix.first() >> (32 - TOP_END) & 63) as u8,
            1 << TOP_END.saturating_sub(len),
        ),
    }
}

/// The number of a VRF's default route.
fn number_of(vrf: u32) -> u32 {
    vrf + 1
}

/// The block that a directory entry names; `None` for the chunks that lead to a single next hop.
fn block(entry: u32) -> Option<usize> {
    let at = entry as usize;
    (at >= FIXED_WORDS).then_some(at)
}
