//! The packed ring (virtio 1.2, 2.8): one table in which the driver makes descriptors available and
//! the device overwrites them as used. Which of the two one is say two of its flags, against a wrap
//! counter that each side changes whenever it comes to the table's start.

mod position;
pub(super) mod record;

use super::buffers::Buffers;
use super::gauge::{Gauge, Parts, Standing};
use super::memory::{AtHand, Memory, Place};
use super::{
    Agreed, Batch, Chain, DESCRIPTOR, DriverRing, Filled, INDIRECT, Look, MOST_SEGMENTS, NEXT,
    Offer, Ring, Unsettled, Violation, WRITE, filled, ids, passed,
};
use linerate_core::mem::{CHECKED, chunk_at};
pub(crate) use position::Position;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Most descriptors (2.8.10.1); any number of them.
pub(crate) const MOST_SIZE: u16 = 32_768;
/// 2.8.1.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Bytes of an event suppression structure (2.8.14).
pub(crate) const EVENT: usize = 4;
/// What its flags say (2.8.10).
const EVENT_DISABLE: u16 = 1;
const EVENT_AT: u16 = 2;

/// Where the three parts are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) ring: Place,
    /// What the driver writes of its wishes, and the device reads.
    pub(crate) driver: Place,
    /// The other way round.
    pub(crate) device: Place,
}

/// Bytes of the parts.
pub(crate) fn bytes(size: u16) -> [usize; 3] {
    [usize::from(size) * DESCRIPTOR, EVENT, EVENT]
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) size: u16,
    at: Places,
    agreed: Agreed,
}

/// The second word of a descriptor.
#[derive(Clone, Copy)]
struct Rest {
    bytes: u32,
    id: u16,
    flags: u16,
}

impl Rest {
    #[inline(always)]
    fn load(word: &AtomicU64) -> Self {
        let word = word.load(Ordering::Relaxed);
        Self {
            bytes: word as u32,
            id: (word >> 32) as u16,
            flags: (word >> 48) as u16,
        }
    }

    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self.flags) << 48 | u64::from(self.id) << 32 | u64::from(self.bytes)
    }

    /// Which of available and used it is.
    #[inline(always)]
    fn state(self) -> u16 {
        self.flags & (AVAILABLE | USED)
    }
}

impl Table {
    #[inline(always)]
    fn view<'m>(&self, memory: &'m Memory) -> Result<&'m [AtomicU64], Violation> {
        let (ring, size) = (self.at.ring, usize::from(self.size));
        let words = memory
            .at(ring)
            .and_then(|mapped| mapped.u64s(ring.at, 2 * size));
        words.ok_or(Violation::RingOutside)
    }

    fn event<'m>(&self, memory: &'m Memory, at: Place) -> Option<&'m AtomicU32> {
        memory.at(at)?.u32s(at.at, 1)?.first()
    }

    /// 2.8.14, 2.8.10: whether the other side, whose wishes stand at `theirs`, wants to be told of
    /// `moved` places up to `new`.
    fn wants(&self, memory: &Memory, theirs: Place, new: Position, moved: u16) -> bool {
        let Some(event) = self.event(memory, theirs) else {
            return false;
        };
        let event = event.load(Ordering::Relaxed);
        match (event >> 16) as u16 & 3 {
            EVENT_DISABLE => false,
            EVENT_AT if self.agreed.event_index => {
                let wanted = Position::from_bits(event as u16);
                let before = if wanted.wrap == new.wrap {
                    0
                } else {
                    self.size
                };
                let wanted = wanted.at.wrapping_sub(before);
                passed(wanted, new.at, new.at.wrapping_sub(moved))
            }
            _ => true,
        }
    }

    fn want(&self, memory: &Memory, ours: Place, notify: bool) {
        if let Some(event) = self.event(memory, ours) {
            let flags = if notify { 0 } else { EVENT_DISABLE };
            event.store(u32::from(flags) << 16, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst); // the wish is seen before the ring is looked at again
    }

    /// How many descriptors the other side gave that were not taken yet. `seen`: up to where they
    /// were, at least.
    pub(super) fn given(&self, memory: &Memory, theirs_is_used: bool, seen: u16) -> u16 {
        let mut at = Position::from_bits(seen);
        if !at.is_in(self.size) {
            return 0;
        }
        let (mut looked, mut given) = (0, 0);
        while looked < self.size {
            let (taken, waits) = match theirs_is_used {
                true => (at.other_lap().available(), at.used()),
                false => (at.used(), at.available()),
            };
            let state = self.state(memory, at);
            if state == Some(waits) {
                given += 1;
            } else if given > 0 || state != Some(taken) {
                break; // but for what was taken meanwhile
            }
            at = at.plus(1, self.size);
            looked += 1;
        }
        given
    }

    /// The state of the descriptor at a position.
    fn state(&self, memory: &Memory, position: Position) -> Option<u16> {
        let words = self.view(memory).ok()?;
        let rest = Rest::load(words.get(2 * usize::from(position.at) + 1)?);
        fence(Ordering::Acquire);
        Some(rest.state())
    }
}

/// The device's side.
#[derive(Debug)]
pub(crate) struct Device {
    table: Table,
    direction: u16,
    /// The next available descriptor to look at.
    seen: Position,
    /// Where the next used one is to be written.
    used: Position,
    unsettled: Unsettled,
}

impl Device {
    /// `seen` and `used`: where to go on; [`Position::START`] for a fresh ring.
    pub(crate) fn new(
        size: u16,
        at: Places,
        agreed: Agreed,
        filled: Filled,
        [seen, used]: [Position; 2],
    ) -> Self {
        Self {
            table: Table { size, at, agreed },
            direction: if filled == Filled::ByDevice { WRITE } else { 0 },
            seen,
            used,
            unsettled: Unsettled::default(),
        }
    }

    /// Where to go on: available, used.
    pub(crate) fn base(&self) -> [Position; 2] {
        [self.seen, self.used]
    }

    /// The descriptor at a position, if it is available.
    #[inline(always)]
    fn entry(
        &self,
        words: &[AtomicU64],
        position: Position,
    ) -> Result<Option<(u64, Rest)>, Violation> {
        let entry = chunk_at(words, 2 * usize::from(position.at));
        let [address, rest] = entry.ok_or(Violation::RingIndex)?;
        let rest = Rest::load(rest);
        if rest.state() != position.available() {
            return Ok(None);
        }
        // 2.8.21.1: the rest of it is there when the flags are.
        fence(Ordering::Acquire);
        Ok(Some((address.load(Ordering::Relaxed), rest)))
    }

    /// Adds chains of one descriptor each in the region at hand, up to the first that is not such a
    /// one; how many.
    #[inline(always)]
    fn take_plain(
        &self,
        words: &[AtomicU64],
        here: AtHand<'_>,
        batch: &mut Batch,
        mut position: Position,
        most: usize,
    ) -> usize {
        for count in 0..most {
            let Ok(Some((address, rest))) = self.entry(words, position) else {
                return count;
            };
            let plain = rest.flags & (NEXT | INDIRECT | WRITE) == self.direction;
            if !plain || !batch.add_here(here, address, rest.bytes, rest.id) {
                return count;
            }
            position = position.plus(1, self.table.size);
        }
        most
    }

    /// Adds the chain that begins at `start` and is not one plain descriptor; how many it takes.
    #[cold]
    fn add_chain(
        &self,
        memory: &Memory,
        words: &[AtomicU64],
        batch: &mut Batch,
        start: Position,
        first: Rest,
    ) -> Result<usize, Violation> {
        let size = self.table.size;
        if first.flags & INDIRECT != 0 {
            return self.add_indirect(memory, words, batch, start, first);
        }
        let mut chain = batch.begin();
        let (mut position, mut rest) = (start, first);
        for places in 1..=size {
            if rest.flags & INDIRECT != 0 || rest.flags & WRITE != self.direction {
                return Err(Violation::DescriptorFlags);
            }
            let at = words[2 * usize::from(position.at)].load(Ordering::Relaxed);
            batch.extend(memory, &mut chain, at, rest.bytes)?;
            if rest.flags & NEXT == 0 {
                // 2.8.6: the buffer's number stands in the last one.
                (chain.id, chain.places) = (rest.id, places);
                batch.end(chain);
                return Ok(places.into());
            }
            position = position.plus(1, size);
            rest = Rest::load(&words[2 * usize::from(position.at) + 1]);
        }
        Err(Violation::ChainTooLong)
    }

    /// 2.8.7: a table of its own, all of which is the chain.
    fn add_indirect(
        &self,
        memory: &Memory,
        words: &[AtomicU64],
        batch: &mut Batch,
        start: Position,
        first: Rest,
    ) -> Result<usize, Violation> {
        // 2.8.19: not where it was not agreed on, and not with NEXT.
        if !self.table.agreed.indirect || first.flags & NEXT != 0 {
            return Err(Violation::DescriptorFlags);
        }
        let bytes = first.bytes as usize;
        if bytes == 0 || !bytes.is_multiple_of(DESCRIPTOR) {
            return Err(Violation::DescriptorLength);
        }
        if bytes / DESCRIPTOR > usize::from(self.table.size) {
            return Err(Violation::ChainTooLong);
        }
        let at = words[2 * usize::from(start.at)].load(Ordering::Relaxed);
        let table = memory
            .words(at, bytes)
            .ok_or(Violation::DescriptorOutside)?;
        let mut chain = batch.begin();
        (chain.id, chain.places) = (first.id, 1);
        for descriptor in table.chunks_exact(2) {
            let rest = Rest::load(&descriptor[1]);
            // Of the flags only WRITE is of any meaning there (2.8.7).
            if rest.flags & WRITE != self.direction {
                return Err(Violation::DescriptorFlags);
            }
            let at = descriptor[0].load(Ordering::Relaxed);
            batch.extend(memory, &mut chain, at, rest.bytes)?;
        }
        batch.end(chain);
        Ok(1)
    }
}

impl Ring for Device {
    fn size(&self) -> u16 {
        self.table.size
    }

    #[inline]
    fn take(&mut self, memory: &Memory, batch: &mut Batch, most: usize) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        let size = self.table.size;
        let (mut position, mut left) = (self.seen, usize::from(size));
        while batch.chains.len() < most && left > 0 && batch.segments.len() < MOST_SEGMENTS {
            if let Some(here) = memory.at_hand(batch.last) {
                let most = left.min(most - batch.chains.len());
                let plain = self.take_plain(words, here, batch, position, most);
                position = position.plus(plain, size);
                left -= plain;
                if plain == most {
                    break;
                }
            }
            let Some((address, rest)) = self.entry(words, position)? else {
                break;
            };
            let mut places = 1;
            if rest.flags & (NEXT | INDIRECT | WRITE) == self.direction {
                let mut near = memory.near(batch.last);
                batch.add(&mut near, address, rest.bytes, rest.id)?;
                batch.last = near.region;
            } else {
                places = self.add_chain(memory, words, batch, position, rest)?;
            }
            position = position.plus(places, size);
            left = left.checked_sub(places).ok_or(Violation::ChainTooLong)?;
        }
        Ok(())
    }

    #[inline]
    fn give(&mut self, memory: &Memory, batch: &Batch, count: usize) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        let size = self.table.size;
        let start = self.used;
        let Some(last) = batch.chains[..count].last() else {
            return Ok(());
        };
        let rest = |chain: &Chain, position: Position| {
            let written = if chain.put > 0 { WRITE } else { 0 };
            let rest = Rest {
                bytes: chain.put,
                id: chain.id,
                flags: position.used() | written,
            };
            rest.word()
        };
        // 2.8.13: where no length is to be told, one descriptor stands for the whole batch.
        let together = self.table.agreed.in_order && self.direction == 0;
        let mut moved = 0;
        if together {
            let places = |chain: &Chain| usize::from(chain.places);
            moved = batch.chains[..count].iter().map(places).sum();
            self.used = start.plus(moved, size);
        }
        let each = if together { 0 } else { count };
        for chain in &batch.chains[..each] {
            if moved > 0 {
                let word = &words[2 * usize::from(self.used.at) + 1];
                word.store(rest(chain, self.used), Ordering::Relaxed);
            }
            self.used = self.used.plus(chain.places.into(), size);
            moved += usize::from(chain.places);
        }
        // The first one last: the driver sees all or none.
        let first = if together { last } else { &batch.chains[0] };
        words[2 * usize::from(start.at) + 1].store(rest(first, start), Ordering::Release);
        self.seen = self.seen.plus(moved, size);
        self.unsettled.add(moved as u16, self.table.size);
        Ok(())
    }

    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool {
        let Self { table, used, .. } = self;
        self.unsettled.must_notify(look, |moved| {
            table.wants(memory, table.at.driver, *used, moved)
        })
    }

    fn want(&mut self, memory: &Memory, notify: bool) {
        self.table.want(memory, self.table.at.device, notify);
    }

    fn is_waiting(&self, memory: &Memory) -> bool {
        self.table.state(memory, self.seen) == Some(self.seen.available())
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            parts: Parts::Packed(self.table),
            filled: filled(self.direction),
            device: true,
        }
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        Standing::new(self.seen.bits(), 0)
    }
}

/// The driver's side, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Driver {
    table: Table,
    filled: Filled,
    buffers: Buffers,
    /// Where the next available descriptor is to be written.
    available: Position,
    /// The next used one to look at.
    seen: Position,
    unsettled: Unsettled,
}

impl Driver {
    /// A queue in fresh memory (all zeros), its buffers from guest address `base` on.
    pub(crate) fn new(
        size: u16,
        at: Places,
        agreed: Agreed,
        filled: Filled,
        base: u64,
        bytes: u32,
    ) -> Self {
        Self {
            table: Table { size, at, agreed },
            filled,
            buffers: Buffers::new(base, bytes, size, agreed.in_order),
            available: Position::START,
            seen: Position::START,
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
        Self::new(size, at, agreed, filled, 0, bytes)
    }

    /// Gives the device all free buffers to fill.
    pub(crate) fn offer_all(&mut self, memory: &Memory) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        for _ in 0..self.buffers.free() {
            let id = self.buffers.nth_free(0);
            self.buffers.offer(1);
            self.address(words, self.available, id);
            self.publish(words, self.available, id, self.buffers.bytes, WRITE);
            self.available = self.available.plus(1, self.table.size);
        }
        Ok(())
    }

    /// Of a descriptor, where its buffer is.
    #[inline(always)]
    fn address(&self, words: &[AtomicU64], at: Position, buffer: u16) {
        let address = self.buffers.address(buffer);
        words[2 * usize::from(at.at)].store(address, Ordering::Relaxed);
    }

    /// The rest of it, by which it becomes available.
    #[inline(always)]
    fn publish(&self, words: &[AtomicU64], at: Position, id: u16, bytes: u32, flags: u16) {
        let flags = flags | at.available();
        let rest = Rest { bytes, id, flags };
        words[2 * usize::from(at.at) + 1].store(rest.word(), Ordering::Release);
    }
}

impl DriverRing for Driver {
    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn reclaim(&mut self, memory: &Memory) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        while self.buffers.offered() > 0 {
            let rest = Rest::load(&words[2 * usize::from(self.seen.at) + 1]);
            if rest.state() != self.seen.used() {
                break;
            }
            let places = match self.table.agreed.in_order {
                true => self.buffers.release_up_to(rest.id)?,
                false => self.buffers.release(rest.id)?.into(),
            };
            self.seen = self.seen.plus(places, self.table.size);
        }
        fence(Ordering::Acquire);
        Ok(())
    }

    #[inline(always)]
    fn each_filled(
        &self,
        memory: &Memory,
        most: usize,
        mut each: impl FnMut(u16, u32) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        let mut position = self.seen;
        for _ in 0..self.buffers.offered().min(most) {
            let rest = Rest::load(&words[2 * usize::from(position.at) + 1]);
            if rest.state() != position.used() {
                break;
            }
            fence(Ordering::Acquire);
            if CHECKED && !self.buffers.is_offered(rest.id) {
                return Err(Violation::DescriptorIndex);
            }
            if CHECKED && rest.bytes > self.buffers.bytes {
                return Err(Violation::DescriptorLength);
            }
            each(rest.id, rest.bytes)?;
            position = position.plus(1, self.table.size);
        }
        Ok(())
    }

    #[inline(always)]
    fn take_back(&mut self, ids: impl ExactSizeIterator<Item = u16>) -> Result<(), Violation> {
        self.seen = self.seen.plus(ids.len(), self.table.size);
        self.buffers.release_each(ids)
    }

    #[inline(always)]
    fn offer(
        &mut self,
        memory: &Memory,
        mut offers: impl ExactSizeIterator<Item = Offer> + Clone,
    ) -> Result<(), Violation> {
        let words = self.table.view(memory)?;
        self.buffers
            .offer_each(offers.clone().map(|offer| offer.id));
        self.unsettled.add(offers.len() as u16, self.table.size);
        let flags = match self.filled {
            Filled::ByDevice => WRITE,
            Filled::ByDriver => 0,
        };
        let (start, Some(first)) = (self.available, offers.next()) else {
            return Ok(());
        };
        let write = |position: Position, Offer { at, bytes, id }| {
            words[2 * usize::from(position.at)].store(at, Ordering::Relaxed);
            self.publish(words, position, id, bytes, flags);
        };
        let mut position = start.plus(1, self.table.size);
        for offer in offers {
            write(position, offer);
            position = position.plus(1, self.table.size);
        }
        // The first one last: the device sees all or none.
        write(start, first);
        self.available = position;
        Ok(())
    }
}

impl Ring for Driver {
    fn size(&self) -> u16 {
        self.table.size
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
        let Some(first) = chains.first() else {
            return Ok(());
        };
        let (words, size) = (self.table.view(memory)?, self.table.size);
        let start = self.available;
        let mut begin = 0;
        for (index, chain) in chains.iter().enumerate() {
            let goes_on = chain.goes_on && index + 1 < count;
            let flags = if goes_on { NEXT } else { 0 };
            let id = chains[begin].id;
            self.address(words, self.available, chain.id);
            if index > 0 {
                self.publish(words, self.available, id, chain.put, flags);
            }
            if !goes_on {
                self.buffers.offer((index + 1 - begin) as u16);
                begin = index + 1;
            }
            self.available = self.available.plus(1, size);
        }
        // The first one last: the device sees all or none.
        let goes_on = first.goes_on && count > 1;
        let flags = if goes_on { NEXT } else { 0 };
        self.publish(words, start, first.id, first.put, flags);
        self.unsettled.add(count as u16, self.table.size);
        Ok(())
    }

    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool {
        let Self {
            table, available, ..
        } = self;
        self.unsettled.must_notify(look, |moved| {
            table.wants(memory, table.at.device, *available, moved)
        })
    }

    fn want(&mut self, memory: &Memory, notify: bool) {
        self.table.want(memory, self.table.at.driver, notify);
    }

    fn is_waiting(&self, memory: &Memory) -> bool {
        self.table.state(memory, self.seen) == Some(self.seen.used())
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            parts: Parts::Packed(self.table),
            filled: self.filled,
            device: false,
        }
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        Standing::new(self.seen.bits(), self.buffers.offered())
    }
}
