//! The split ring (virtio 1.2, 2.7): a table of descriptors, a ring of chains that the driver made
//! available, and a ring of those that the device used.

pub(super) mod record;

use super::buffers::Buffers;
use super::gauge::{Gauge, Parts, Standing};
use super::memory::{AtHand, Memory, Place};
use super::{
    Agreed, Batch, DESCRIPTOR, DriverRing, Filled, INDIRECT, Look, MOST_SEGMENTS, NEXT, Offer,
    Ring, Unsettled, Violation, WRITE, filled, ids, passed,
};
use linerate_core::mem::{CHECKED, chunk_at};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Most descriptors (2.7): a power of two.
pub(crate) const MOST_SIZE: u16 = 32_768;
/// In the flags of the available ring (2.7.6) and of the used ring (2.7.8).
const NO_NOTIFICATION: u16 = 1;
/// Bytes before the entries of either ring.
const RING_HEAD: usize = 4;

/// Where the three parts are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) table: Place,
    pub(crate) available: Place,
    pub(crate) used: Place,
}

/// Bytes of the parts (2.7): table, available ring, used ring. The event index at the end of the
/// rings is counted: it is there, agreed on or not.
pub(crate) fn bytes(size: u16) -> [usize; 3] {
    let size = usize::from(size);
    [
        size * DESCRIPTOR,
        RING_HEAD + 2 * size + 2,
        RING_HEAD + 8 * size + 2,
    ]
}

/// The three parts of a ring, as they lie in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    pub(super) size: u16,
    at: Places,
    agreed: Agreed,
}

/// One side's view for a burst.
struct View<'m> {
    table: &'m [AtomicU64],
    available: &'m [AtomicU16],
    used: &'m [AtomicU32],
}

impl Rings {
    #[inline(always)]
    fn view<'m>(&self, memory: &'m Memory) -> Result<View<'m>, Violation> {
        let Places {
            table,
            available,
            used,
        } = self.at;
        let size = usize::from(self.size);
        let view = || {
            Some(View {
                table: memory.at(table)?.u64s(table.at, 2 * size)?,
                available: memory.at(available)?.u16s(available.at, 2 + size + 1)?,
                used: memory.at(used)?.u32s(used.at, 1 + 2 * size)?,
            })
        };
        view().ok_or(Violation::RingOutside)
    }

    /// The two words at the head of a ring, flags and index, and the event index at its end.
    fn words<'m>(&self, memory: &'m Memory, used: bool) -> Option<[&'m AtomicU16; 3]> {
        let (ring, entry) = match used {
            true => (self.at.used, 8),
            false => (self.at.available, 2),
        };
        let head = memory.at(ring)?.u16s(ring.at, 2)?;
        let event = ring.behind(RING_HEAD + entry * usize::from(self.size));
        let event = memory.at(event)?.u16s(event.at, 1)?;
        Some([&head[0], &head[1], &event[0]])
    }

    /// 2.7.10, 2.7.7: whether the other side, which writes the other ring, wants to be told.
    fn wants(&self, memory: &Memory, theirs_is_used: bool, new: u16, moved: u16) -> bool {
        let Some([flags, _, event]) = self.words(memory, theirs_is_used) else {
            return false;
        };
        if self.agreed.event_index {
            let event = event.load(Ordering::Relaxed);
            return passed(event, new, new.wrapping_sub(moved));
        }
        flags.load(Ordering::Relaxed) & NO_NOTIFICATION == 0
    }

    /// `seen`: up to where what the other side gave was taken.
    fn want(&self, memory: &Memory, ours_is_used: bool, seen: u16, notify: bool) {
        let Some([flags, _, event]) = self.words(memory, ours_is_used) else {
            return;
        };
        if !self.agreed.event_index {
            let flag = if notify { 0 } else { NO_NOTIFICATION };
            flags.store(flag, Ordering::Relaxed);
        } else if notify {
            event.store(seen, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst); // the wish is seen before the ring is looked at again
    }

    fn is_waiting(&self, memory: &Memory, theirs_is_used: bool, seen: u16) -> bool {
        self.words(memory, theirs_is_used)
            .is_some_and(|[_, index, _]| index.load(Ordering::Acquire) != seen)
    }

    /// How many chains the other side gave that were not taken yet. `seen`: up to where they were.
    pub(super) fn given(&self, memory: &Memory, theirs_is_used: bool, seen: u16) -> u16 {
        let words = self.words(memory, theirs_is_used);
        let index = words.map_or(seen, |[_, index, _]| index.load(Ordering::Acquire));
        index.wrapping_sub(seen).min(self.size)
    }

    /// How many entries are new in a ring whose index is `index`.
    #[inline(always)]
    fn ahead(&self, index: u16, seen: u16) -> Result<u16, Violation> {
        let ahead = index.wrapping_sub(seen);
        if !CHECKED || ahead <= self.size {
            Ok(ahead)
        } else {
            Err(Violation::RingIndex)
        }
    }
}

/// The index of the used ring shares a word with its flags, which only the device writes.
#[inline(always)]
fn index_of(word: u32) -> u16 {
    (word >> 16) as u16
}

/// A descriptor: each of its words is loaded once.
#[derive(Clone, Copy)]
struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    #[inline(always)]
    fn load(table: &[AtomicU64], index: usize) -> Option<Self> {
        let [at, rest] = chunk_at(table, 2 * index)?;
        let rest = rest.load(Ordering::Relaxed);
        Some(Self {
            at: at.load(Ordering::Relaxed),
            bytes: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        })
    }
}

/// What a driver wrote into table and available ring. What is to be as it was is not written: its
/// line stays in both caches. In order, an entry is as it was a lap ago, and so is the descriptor
/// of a frame as long. (Where the device wrote there, it loses its own frames.)
#[derive(Debug)]
struct Written {
    /// The second word of each descriptor; the first goes with its number.
    descriptors: Box<[u64]>,
    heads: Box<[u16]>,
    /// Buffers have no place of their own: the first words differ, too.
    places_differ: bool,
}

impl Written {
    /// Nothing: what no descriptor and no entry is.
    fn new(size: u16) -> Self {
        Self {
            descriptors: vec![u64::MAX; size.into()].into_boxed_slice(),
            heads: vec![u16::MAX; size.into()].into_boxed_slice(),
            places_differ: false,
        }
    }

    #[inline(always)]
    fn describe(&mut self, table: &[AtomicU64], index: u16, descriptor: Descriptor) {
        let Descriptor {
            at,
            bytes,
            flags,
            next,
        } = descriptor;
        let rest = u64::from(next) << 48 | u64::from(flags) << 32 | u64::from(bytes);
        let index = usize::from(index);
        if self.descriptors[index] != rest || self.places_differ {
            self.descriptors[index] = rest;
            table[2 * index].store(at, Ordering::Relaxed);
            table[2 * index + 1].store(rest, Ordering::Relaxed);
        }
    }

    /// `at`: less than there are descriptors.
    #[inline(always)]
    fn make_available(&mut self, ring: &[AtomicU16], at: usize, head: u16) {
        if self.heads[at] != head {
            self.heads[at] = head;
            ring[2 + at].store(head, Ordering::Relaxed);
        }
    }
}

/// The device's side.
#[derive(Debug)]
pub(crate) struct Device {
    rings: Rings,
    /// WRITE, where the device fills buffers.
    direction: u16,
    /// Up to where available chains were used.
    seen: u16,
    /// The index of the used ring.
    used: u16,
    unsettled: Unsettled,
}

impl Device {
    /// Entries of the used ring that stand for so many chains. 2.7.9: in order, where no length is
    /// to be told, one stands for the whole batch.
    fn entries(&self, count: usize) -> usize {
        match self.rings.agreed.in_order && self.direction == 0 {
            true => count.min(1),
            false => count,
        }
    }

    /// `base`: the first chain of the available ring to look at, which is also the index of the
    /// used ring: both sides begin with no chain under way.
    pub(crate) fn new(size: u16, at: Places, agreed: Agreed, filled: Filled, base: u16) -> Self {
        Self {
            rings: Rings { size, at, agreed },
            direction: if filled == Filled::ByDevice { WRITE } else { 0 },
            seen: base,
            used: base,
            unsettled: Unsettled::default(),
        }
    }

    /// To go on where another device was, which may have been ended at any time: what it used
    /// counts, for the driver has it back.
    pub(crate) fn resume(
        memory: &Memory,
        size: u16,
        at: Places,
        agreed: Agreed,
        filled: Filled,
        base: u16,
    ) -> Result<Self, Violation> {
        let mut device = Self::new(size, at, agreed, filled, base);
        device.used = index_of(device.rings.view(memory)?.used[0].load(Ordering::Acquire));
        device.seen = device.used;
        Ok(device)
    }

    /// Where to go on: the next available chain.
    pub(crate) fn base(&self) -> u16 {
        self.seen
    }

    /// The chain that was made available so many after the first that was not seen: its head, and
    /// the descriptor there.
    #[inline(always)]
    fn entry(&self, view: &View<'_>, index: usize) -> Option<(u16, Descriptor)> {
        let mask = usize::from(self.rings.size - 1);
        let at = usize::from(self.seen).wrapping_add(index) & mask;
        let head = view.available[2 + at].load(Ordering::Relaxed);
        Some((head, Descriptor::load(view.table, head.into())?))
    }

    /// Adds chains of one descriptor each in the region at hand, up to the first that is not such a
    /// one; how many.
    #[inline(always)]
    fn take_plain(
        &self,
        view: &View<'_>,
        here: AtHand<'_>,
        batch: &mut Batch,
        indices: Range<usize>,
    ) -> usize {
        let add = |index: usize| {
            let (head, descriptor) = self.entry(view, index)?;
            let plain = descriptor.flags & (NEXT | INDIRECT | WRITE) == self.direction;
            (plain && batch.add_here(here, descriptor.at, descriptor.bytes, head)).then_some(())
        };
        indices.map_while(add).count()
    }

    /// Adds a chain that is not one plain descriptor (2.7.5.3).
    #[cold]
    fn add_chain(
        &self,
        memory: &Memory,
        table: &[AtomicU64],
        batch: &mut Batch,
        head: u16,
        first: Descriptor,
    ) -> Result<(), Violation> {
        let mut chain = batch.begin();
        (chain.id, chain.places) = (head, 1);
        let (mut table, mut size, mut descriptor) = (table, self.rings.size, first);
        if first.flags & INDIRECT != 0 {
            // 2.7.5.3.1: not where it was not agreed on; not with NEXT; whole descriptors, not more
            // than the ring has.
            if !self.rings.agreed.indirect || first.flags & NEXT != 0 {
                return Err(Violation::DescriptorFlags);
            }
            let bytes = first.bytes as usize;
            if bytes == 0 || !bytes.is_multiple_of(DESCRIPTOR) {
                return Err(Violation::DescriptorLength);
            }
            if bytes / DESCRIPTOR > usize::from(self.rings.size) {
                return Err(Violation::ChainTooLong);
            }
            table = memory
                .words(first.at, bytes)
                .ok_or(Violation::DescriptorOutside)?;
            size = (bytes / DESCRIPTOR) as u16;
            descriptor = Descriptor::load(table, 0).ok_or(Violation::DescriptorIndex)?;
        }
        for _ in 0..size {
            // 2.7.5.3.1: an indirect table has no descriptor that refers to another one.
            if descriptor.flags & INDIRECT != 0 || descriptor.flags & WRITE != self.direction {
                return Err(Violation::DescriptorFlags);
            }
            batch.extend(memory, &mut chain, descriptor.at, descriptor.bytes)?;
            if descriptor.flags & NEXT == 0 {
                batch.end(chain);
                return Ok(());
            }
            let next = Descriptor::load(table, descriptor.next.into());
            descriptor = next.ok_or(Violation::DescriptorIndex)?;
        }
        Err(Violation::ChainTooLong)
    }
}

impl Ring for Device {
    fn size(&self) -> u16 {
        self.rings.size
    }

    #[inline]
    fn take(&mut self, memory: &Memory, batch: &mut Batch, most: usize) -> Result<(), Violation> {
        let view = self.rings.view(memory)?;
        // 2.7.13.3: the entries are there when the index is.
        let index = view.available[1].load(Ordering::Acquire);
        let ahead = usize::from(self.rings.ahead(index, self.seen)?).min(most);
        let mut done = 0;
        while batch.segments.len() < MOST_SEGMENTS {
            if let Some(here) = memory.at_hand(batch.last) {
                done += self.take_plain(&view, here, batch, done..ahead);
            }
            if done == ahead {
                break;
            }
            let (head, descriptor) = self.entry(&view, done).ok_or(Violation::DescriptorIndex)?;
            if descriptor.flags & (NEXT | INDIRECT | WRITE) == self.direction {
                let mut near = memory.near(batch.last);
                batch.add(&mut near, descriptor.at, descriptor.bytes, head)?;
                batch.last = near.region;
            } else {
                self.add_chain(memory, view.table, batch, head, descriptor)?;
            }
            done += 1;
        }
        Ok(())
    }

    #[inline]
    fn give(&mut self, memory: &Memory, batch: &Batch, count: usize) -> Result<(), Violation> {
        let used = self.rings.view(memory)?.used;
        let mask = usize::from(self.rings.size - 1);
        let given = &batch.chains[count - self.entries(count)..count];
        for (index, chain) in given.iter().enumerate() {
            let at = 1 + 2 * (usize::from(self.used).wrapping_add(index) & mask);
            used[at].store(chain.id.into(), Ordering::Relaxed);
            used[at + 1].store(chain.put, Ordering::Relaxed);
        }
        self.used = self.used.wrapping_add(count as u16);
        self.seen = self.seen.wrapping_add(count as u16);
        self.unsettled.add(count as u16, self.rings.size);
        let words = self.rings.words(memory, true);
        let [_, index, _] = words.ok_or(Violation::RingOutside)?;
        index.store(self.used, Ordering::Release);
        Ok(())
    }

    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool {
        let Self { rings, used, .. } = self;
        self.unsettled
            .must_notify(look, |moved| rings.wants(memory, false, *used, moved))
    }

    fn want(&mut self, memory: &Memory, notify: bool) {
        self.rings.want(memory, true, self.seen, notify);
    }

    fn is_waiting(&self, memory: &Memory) -> bool {
        self.rings.is_waiting(memory, false, self.seen)
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            parts: Parts::Split(self.rings),
            filled: filled(self.direction),
            device: true,
        }
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        Standing::new(self.seen, 0)
    }
}

/// The driver's side, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Driver {
    rings: Rings,
    filled: Filled,
    buffers: Buffers,
    written: Written,
    /// The index of the available ring.
    available: u16,
    /// Up to where used chains were taken back.
    seen: u16,
    unsettled: Unsettled,
}

impl Driver {
    /// A queue in fresh memory (all zeros), its buffers from guest address `base` on. Where the
    /// device fills them, it gets all of them with the first call of [`Driver::offer_all`].
    pub(crate) fn new(
        size: u16,
        at: Places,
        agreed: Agreed,
        filled: Filled,
        base: u64,
        bytes: u32,
    ) -> Self {
        Self {
            rings: Rings { size, at, agreed },
            filled,
            buffers: Buffers::new(base, bytes, size, agreed.in_order),
            written: Written::new(size),
            available: 0,
            seen: 0,
            unsettled: Unsettled::default(),
        }
    }

    /// One whose buffers, of so many bytes where the device fills them, lie where each
    /// [`Offer`] says.
    pub(crate) fn of_slots(
        size: u16,
        at: Places,
        agreed: Agreed,
        filled: Filled,
        bytes: u32,
    ) -> Self {
        let mut driver = Self::new(size, at, agreed, filled, 0, bytes);
        driver.written.places_differ = true;
        driver
    }

    /// Gives the device all free buffers to fill.
    pub(crate) fn offer_all(&mut self, memory: &Memory) -> Result<(), Violation> {
        let count = self.buffers.free();
        let (available, first) = (self.available, usize::from(self.available));
        let View {
            table,
            available: ring,
            ..
        } = self.rings.view(memory)?;
        let mask = usize::from(self.rings.size - 1);
        for index in 0..count {
            let id = self.buffers.nth_free(0);
            self.buffers.offer(1);
            let descriptor = self.descriptor(id, self.buffers.bytes, WRITE, 0);
            self.written.describe(table, id, descriptor);
            let at = first.wrapping_add(index) & mask;
            self.written.make_available(ring, at, id);
        }
        self.available = available.wrapping_add(count as u16);
        self.unsettled.add(count as u16, self.rings.size);
        ring[1].store(self.available, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn descriptor(&self, id: u16, bytes: u32, flags: u16, next: u16) -> Descriptor {
        Descriptor {
            at: self.buffers.address(id),
            bytes,
            flags,
            next,
        }
    }
}

impl DriverRing for Driver {
    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Takes back what the device has sent.
    fn reclaim(&mut self, memory: &Memory) -> Result<(), Violation> {
        let used = self.rings.view(memory)?.used;
        let index = index_of(used[0].load(Ordering::Acquire));
        let ahead = self.rings.ahead(index, self.seen)?;
        if self.rings.agreed.in_order {
            // 2.7.9: entries of a batch but the first may not be written.
            self.buffers.release_chains(ahead.into())?;
            self.seen = index;
            return Ok(());
        }
        let mask = usize::from(self.rings.size - 1);
        for _ in 0..ahead {
            let at = 1 + 2 * (usize::from(self.seen) & mask);
            let id = used[at].load(Ordering::Relaxed);
            let id = u16::try_from(id).map_err(|_| Violation::DescriptorIndex)?;
            self.buffers.release(id)?;
            self.seen = self.seen.wrapping_add(1);
        }
        Ok(())
    }

    #[inline(always)]
    fn each_filled(
        &self,
        memory: &Memory,
        most: usize,
        mut each: impl FnMut(u16, u32) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let used = self.rings.view(memory)?.used;
        let index = index_of(used[0].load(Ordering::Acquire));
        let ahead = self.rings.ahead(index, self.seen)?;
        let mask = usize::from(self.rings.size - 1);
        for count in 0..usize::from(ahead).min(most) {
            let at = 1 + 2 * (usize::from(self.seen).wrapping_add(count) & mask);
            let id = used[at].load(Ordering::Relaxed);
            let put = used[at + 1].load(Ordering::Relaxed);
            let id = u16::try_from(id).map_err(|_| Violation::DescriptorIndex)?;
            if CHECKED && !self.buffers.is_offered(id) {
                return Err(Violation::DescriptorIndex);
            }
            if CHECKED && put > self.buffers.bytes {
                return Err(Violation::DescriptorLength);
            }
            each(id, put)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn take_back(&mut self, ids: impl ExactSizeIterator<Item = u16>) -> Result<(), Violation> {
        self.seen = self.seen.wrapping_add(ids.len() as u16);
        self.buffers.release_each(ids)
    }

    #[inline(always)]
    fn offer(
        &mut self,
        memory: &Memory,
        offers: impl ExactSizeIterator<Item = Offer> + Clone,
    ) -> Result<(), Violation> {
        let View {
            table, available, ..
        } = self.rings.view(memory)?;
        self.buffers
            .offer_each(offers.clone().map(|offer| offer.id));
        // Descriptors that a device fills stay as they are but for what it wrote over them.
        let flags = match self.filled {
            Filled::ByDevice => WRITE,
            Filled::ByDriver => 0,
        };
        let mask = usize::from(self.rings.size - 1);
        let (start, count) = (usize::from(self.available), offers.len() as u16);
        for (index, Offer { at, bytes, id }) in offers.enumerate() {
            let descriptor = Descriptor {
                at,
                bytes,
                flags,
                next: 0,
            };
            self.written.describe(table, id, descriptor);
            let at = start.wrapping_add(index) & mask;
            self.written.make_available(available, at, id);
        }
        self.available = self.available.wrapping_add(count);
        self.unsettled.add(count, self.rings.size);
        available[1].store(self.available, Ordering::Release);
        Ok(())
    }
}

impl Ring for Driver {
    fn size(&self) -> u16 {
        self.rings.size
    }

    #[inline]
    fn take(&mut self, memory: &Memory, batch: &mut Batch, most: usize) -> Result<(), Violation> {
        if self.filled == Filled::ByDriver {
            if self.buffers.free() < most {
                self.reclaim(memory)?;
            }
            return self.buffers.take_free(memory, batch, most);
        }
        let mut near = memory.near(batch.last);
        self.each_filled(memory, most, |id, put| {
            batch.add(&mut near, self.buffers.address(id), put, id)
        })?;
        batch.last = near.region;
        Ok(())
    }

    #[inline]
    fn give(&mut self, memory: &Memory, batch: &Batch, count: usize) -> Result<(), Violation> {
        let chains = &batch.chains[..count];
        let by_device = self.filled == Filled::ByDevice;
        if by_device {
            self.take_back(ids(chains))?;
        }
        if !batch.linked {
            let room = by_device.then_some(self.buffers.bytes);
            return self.offer(memory, chains.iter().map(|chain| chain.offer(room)));
        }
        let View {
            table, available, ..
        } = self.rings.view(memory)?;
        let (before, mask) = (self.available, usize::from(self.rings.size - 1));
        let mut first = 0;
        for (index, chain) in chains.iter().enumerate() {
            let next = chains.get(index + 1).filter(|_| chain.goes_on);
            let flags = if next.is_some() { NEXT } else { 0 };
            let after = next.map_or(0, |next| next.id);
            let descriptor = self.descriptor(chain.id, chain.put, flags, after);
            self.written.describe(table, chain.id, descriptor);
            if next.is_none() {
                let at = usize::from(self.available) & mask;
                self.written.make_available(available, at, chains[first].id);
                self.available = self.available.wrapping_add(1);
                self.buffers.offer((index + 1 - first) as u16);
                first = index + 1;
            }
        }
        let given = self.available.wrapping_sub(before);
        self.unsettled.add(given, self.rings.size);
        available[1].store(self.available, Ordering::Release);
        Ok(())
    }

    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool {
        let Self {
            rings, available, ..
        } = self;
        self.unsettled
            .must_notify(look, |moved| rings.wants(memory, true, *available, moved))
    }

    fn want(&mut self, memory: &Memory, notify: bool) {
        self.rings.want(memory, false, self.seen, notify);
    }

    fn is_waiting(&self, memory: &Memory) -> bool {
        self.rings.is_waiting(memory, true, self.seen)
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            parts: Parts::Split(self.rings),
            filled: self.filled,
            device: false,
        }
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        Standing::new(self.seen, self.buffers.offered())
    }
}
