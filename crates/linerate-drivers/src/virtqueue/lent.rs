//! A driver's queue whose buffers are slots of our own pools, which the device maps: `trust=full`.
//!
//! A sender's descriptor says where the packet lies, with its header (5.1.6) in the headroom, and
//! the slot comes back when the device has used it. A receiver lends free slots of the first pool,
//! and what comes lies there already.
//!
//! Which slot a buffer has is known here, by its number, and never read back from the ring: a
//! device can spoil the bytes of every slot in these pools, and nothing else (ADR 43). When the
//! ring goes, its slots go home.

use super::frames::{Receiving, Transmitting, num_buffers};
use super::memory::Memory;
use super::{DriverRing, HEADER_BYTES, Offer, Violation};
use crate::peer::exposed::ExposedPools;
use crate::vnet;
use linerate_core::arch::prefetch_read;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache, RxTemplate};
use linerate_core::port::DropReason;
use linerate_wire::ethernet;

/// Guest address of the first pool; each has as many addresses as [`EACH`].
const BASE: u64 = 1 << 44;
const EACH: u64 = 1 << 40;
/// Slots are looked for that came back once so many are under way.
const RECLAIM_AT: usize = 64;
/// Free slots are lent so many at a time, so that their descriptors are whole cache lines.
const LEND_AT: usize = 32;

/// The guest address of a pool, by its place among those that are exposed.
pub(crate) fn guest(pool: usize) -> u64 {
    BASE + pool as u64 * EACH
}

/// Bytes that a device may put into a slot of the first pool: a header and a frame.
pub(crate) fn room(pools: &ExposedPools) -> u32 {
    (HEADER_BYTES + pools.first().pool.room_bytes()) as u32
}

/// The ring, and who has which slot.
#[derive(Debug)]
pub(crate) struct Lent<R> {
    pub(crate) ring: R,
    pools: ExposedPools,
    /// By the buffers' numbers.
    held: Box<[Option<Packet>]>,
    /// What the device filled, as the ring says it: numbers and bytes.
    filled: Vec<(u16, u32)>,
    /// Buffers that the next frame lies in, if the last burst saw too few.
    wanted: usize,
    /// Slots on their way.
    moving: Burst,
}

/// What became of a packet that does not go as most do.
enum Fate {
    Goes(Offer),
    Dropped(DropReason),
}

impl<R: DriverRing> Lent<R> {
    pub(crate) fn new(ring: R, pools: &ExposedPools) -> Self {
        let size = usize::from(ring.size());
        Self {
            ring,
            pools: pools.clone(),
            held: std::iter::repeat_with(|| None).take(size).collect(),
            filled: Vec::new(),
            wanted: 0,
            moving: Burst::new(),
        }
    }

    /// Slots that the device has.
    pub(crate) fn count(&self) -> usize {
        self.ring.buffers().offered()
    }

    /// Where the slots are.
    pub(super) fn pools(&self) -> &ExposedPools {
        &self.pools
    }

    /// Takes the front of the burst, as much as there is room for; how many packets.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        sending: &Transmitting,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        let buffers = self.ring.buffers();
        if buffers.offered() >= RECLAIM_AT || buffers.free() < burst.len() {
            self.reclaim(memory, cache)?;
        }
        let mut free = self.ring.buffers().free();
        let (mut taken, mut sent, mut bytes) = (0, 0, 0);
        while !burst.is_empty() && free > 0 {
            let (count, more) = self.offer_plain(memory, sending.most, burst, free)?;
            (taken, sent, bytes) = (taken + count, sent + count, bytes + more);
            free -= count;
            let Some(packet) = burst.as_packets_mut().first_mut().filter(|_| free > 0) else {
                break;
            };
            let len = packet.len();
            let id = self.ring.buffers().nth_free(0);
            match self.copy(packet, id, sending.most, cache) {
                Fate::Goes(offer) => {
                    self.ring.offer(memory, std::iter::once(offer))?;
                    sending.stats.copied.add(1);
                    (sent, bytes, free) = (sent + 1, bytes + len as u64, free - 1);
                }
                Fate::Dropped(reason) => sending.stats.dropped(reason, 1),
            }
            cache.free_front(burst, 1);
            taken += 1;
        }
        sending.stats.passed(sent as u64, bytes);
        Ok(taken)
    }

    /// Makes the packets of the burst's front available where they lie, up to the first for which
    /// that cannot be. How many, and their bytes.
    #[inline(always)]
    fn offer_plain(
        &mut self,
        memory: &Memory,
        longest: usize,
        burst: &mut Burst,
        free: usize,
    ) -> Result<(usize, u64), Violation> {
        let most = burst.len().min(free);
        let buffers = self.ring.buffers();
        let (mut offers, mut count, mut bytes) = ([NOTHING; Burst::CAPACITY], 0, 0);
        for (packet, offer) in burst.as_packets_mut()[..most].iter_mut().zip(&mut offers) {
            let Some(made) = in_place(&self.pools, packet, buffers.nth_free(count), longest) else {
                break;
            };
            *offer = made;
            bytes += u64::from(made.bytes) - HEADER_BYTES as u64;
            count += 1;
        }
        if count == 0 {
            return Ok((0, 0));
        }
        burst.move_front(count, &mut self.moving);
        for (packet, offer) in self.moving.drain().zip(&offers) {
            self.held[usize::from(offer.id)] = Some(packet);
        }
        let offers = offers[..count].iter().copied();
        self.ring.offer(memory, offers)?;
        Ok((count, bytes))
    }

    /// Copies a packet that lies where the device does not see it, or has no room for a header.
    #[cold]
    fn copy(&mut self, packet: &Packet, id: u16, longest: usize, cache: &mut PoolCache) -> Fate {
        if is_too_long(packet, longest) {
            return Fate::Dropped(DropReason::Oversize);
        }
        let len = packet.len();
        let spans = self.pools.spans().iter();
        let fit = spans.filter(|span| span.pool.room_bytes() >= len);
        let Some(span) = fit.min_by_key(|span| span.pool.room_bytes()) else {
            return Fate::Dropped(DropReason::Oversize);
        };
        let Some(mut copy) = cache.get(&span.pool) else {
            return Fate::Dropped(DropReason::NoBuffer);
        };
        copy.copy_meta(packet);
        let fits = copy.set_data(packet.data());
        debug_assert!(fits, "the pool was chosen for the frame");
        match in_place(&self.pools, &mut copy, id, longest) {
            Some(offer) => {
                self.held[usize::from(id)] = Some(copy);
                Fate::Goes(offer)
            }
            None => {
                cache.free_one(copy);
                Fate::Dropped(DropReason::Refused)
            }
        }
    }

    /// Takes slots back that the device has read.
    #[inline]
    pub(crate) fn reclaim(
        &mut self,
        memory: &Memory,
        cache: &mut PoolCache,
    ) -> Result<(), Violation> {
        let before = self.ring.buffers().offered();
        self.ring.reclaim(memory)?;
        let buffers = self.ring.buffers();
        for id in buffers.last_back(before - buffers.offered()) {
            let Some(packet) = self.held[usize::from(id)].take() else {
                continue;
            };
            if let Err(packet) = self.moving.push(packet) {
                cache.free(&mut self.moving);
                cache.free_one(packet);
            }
        }
        cache.free(&mut self.moving);
        Ok(())
    }

    /// Fills the burst's free room, and lends other slots for those that came; how many packets.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        receiving: &Receiving,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        let Self {
            ring, held, filled, ..
        } = self;
        let most = burst.room().max(std::mem::take(&mut self.wanted));
        filled.clear();
        ring.each_filled(memory, most, |id, bytes| {
            if let Some(packet) = &held[usize::from(id)] {
                prefetch_read(packet.data().as_ptr());
            }
            filled.push((id, bytes));
            Ok(())
        })?;
        let (mut done, mut came, mut bytes) = (0, 0, 0);
        while done < self.filled.len() && burst.room() > 0 {
            let (frame, buffers) = self.frame(receiving, done, cache)?;
            match frame {
                Ok(Some(mut packet)) => {
                    packet.meta_mut().timestamp = burst.now;
                    (came, bytes) = (came + 1, bytes + packet.len() as u64);
                    let pushed = burst.push(packet);
                    debug_assert!(pushed.is_ok(), "the burst had room");
                }
                Ok(None) => break,
                Err(reason) => receiving.stats.dropped(reason, 1),
            }
            done += buffers;
        }
        if done > 0 {
            let ids = self.filled[..done].iter().map(|&(id, _)| id);
            self.ring.take_back(ids)?;
        }
        self.lend(memory, receiving.index, cache)?;
        receiving.stats.passed(came, bytes);
        Ok(came as usize)
    }

    /// The frame that begins in a buffer, and how many buffers it has; `None` where not all of it
    /// is there, or no slot in which it could be put together.
    #[inline(always)]
    fn frame(
        &mut self,
        receiving: &Receiving,
        from: usize,
        cache: &mut PoolCache,
    ) -> Result<(Result<Option<Packet>, DropReason>, usize), Violation> {
        let (id, bytes) = self.filled[from];
        // A number that stands there twice has no slot the second time.
        let slot = self.held[usize::from(id)].as_mut();
        let slot = slot.ok_or(Violation::DescriptorIndex)?;
        let start = self.pools.first().pool.headroom_bytes() - HEADER_BYTES;
        let fits = slot.set_span(start, bytes as usize);
        debug_assert!(fits, "no more than was lent");
        let Some(&header) = slot.data().first_chunk::<HEADER_BYTES>() else {
            return Ok((Err(self.drop(id, cache)), 1));
        };
        let buffers = usize::from(num_buffers(&header)).max(1);
        if receiving.shape.mergeable && buffers > 1 {
            return self.join(receiving, from, buffers, cache);
        }
        let [ref basic @ .., _, _] = header;
        slot.trim_front(HEADER_BYTES);
        if slot.len() < ethernet::HEADER_LEN || !vnet::read(basic, slot.meta_mut(), 0) {
            return Ok((Err(self.drop(id, cache)), 1));
        }
        Ok((Ok(self.held[usize::from(id)].take()), 1))
    }

    /// The slot of a buffer is free.
    #[cold]
    fn drop(&mut self, id: u16, cache: &mut PoolCache) -> DropReason {
        if let Some(packet) = self.held[usize::from(id)].take() {
            cache.free_one(packet);
        }
        DropReason::Malformed
    }

    /// Puts a frame together that lies in several buffers (5.1.6.4).
    #[cold]
    fn join(
        &mut self,
        receiving: &Receiving,
        from: usize,
        buffers: usize,
        cache: &mut PoolCache,
    ) -> Result<(Result<Option<Packet>, DropReason>, usize), Violation> {
        if buffers > usize::from(self.ring.size()) {
            return Err(Violation::ChainTooLong);
        }
        let Self { held, filled, .. } = self;
        let Some(run) = filled.get(from..from + buffers) else {
            self.wanted = if from == 0 { buffers } else { 0 };
            return Ok((Ok(None), 0));
        };
        // With the header, which is cut off at the end.
        let bytes = run.iter().map(|&(_, bytes)| bytes as usize).sum();
        let mut whole = match receiving.pools.for_frame(bytes) {
            Some(pool) => match cache.get(pool) {
                Some(packet) => Some(packet),
                None => return Ok((Ok(None), 0)),
            },
            None => None,
        };
        let start = self.pools.first().pool.headroom_bytes() - HEADER_BYTES;
        for &(id, bytes) in run {
            let part = held[usize::from(id)].take();
            let mut part = part.ok_or(Violation::DescriptorIndex)?;
            part.set_span(start, bytes as usize);
            let room = whole.as_mut().and_then(|whole| whole.append(part.len()));
            if let Some(room) = room {
                room.copy_from_slice(part.data());
            }
            cache.free_one(part);
        }
        let Some(mut whole) = whole else {
            return Ok((Err(DropReason::Oversize), buffers));
        };
        let header = whole.data().first_chunk::<{ vnet::LEN }>().copied();
        let read = header.is_some_and(|header| vnet::read(&header, whole.meta_mut(), 0));
        if !read || !whole.trim_front(HEADER_BYTES) || whole.len() < ethernet::HEADER_LEN {
            cache.free_one(whole);
            return Ok((Err(DropReason::Malformed), buffers));
        }
        whole.set_port(receiving.index);
        Ok((Ok(Some(whole)), buffers))
    }

    /// Lends slots before the worker has looked, for it may sleep until something comes. To be
    /// called inside the gate: a snapshot of the ledger has seen this queue before or sees it
    /// after, and one that was begun before is taken again for the packet that is dropped here.
    pub(crate) fn lend_first(&mut self, memory: &Memory, port: u16) -> Result<(), Violation> {
        let pool = self.pools.first().pool.clone();
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let lent = self.lend_all(memory, port, &mut cache);
        drop(cache.get(&pool));
        lent
    }

    /// Lends free slots once enough buffers have none.
    #[inline(always)]
    fn lend(&mut self, memory: &Memory, port: u16, cache: &mut PoolCache) -> Result<(), Violation> {
        let lacking = self.ring.buffers().free();
        if lacking < LEND_AT {
            return Ok(());
        }
        self.lend_all(memory, port, cache)
    }

    #[inline(never)]
    fn lend_all(
        &mut self,
        memory: &Memory,
        port: u16,
        cache: &mut PoolCache,
    ) -> Result<(), Violation> {
        let template = RxTemplate {
            port,
            ..RxTemplate::default()
        };
        let (bytes, bounds) = (room(&self.pools), self.pools.first().bounds);
        loop {
            let wanted = self.ring.buffers().free().min(Burst::CAPACITY);
            let pool = &self.pools.first().pool;
            let got = cache.fill_with(pool, &mut self.moving, wanted, template);
            if got == 0 {
                return Ok(());
            }
            let (mut offers, buffers) = ([NOTHING; Burst::CAPACITY], self.ring.buffers());
            for (index, packet) in self.moving.drain().enumerate() {
                let id = buffers.nth_free(index);
                let offset = bounds.offset(packet.data());
                let at = guest(0) + offset.unwrap_or(0) as u64 - HEADER_BYTES as u64;
                offers[index] = Offer { at, bytes, id };
                self.held[usize::from(id)] = Some(packet);
            }
            self.ring.offer(memory, offers[..got].iter().copied())?;
        }
    }
}

const NOTHING: Offer = Offer {
    at: 0,
    bytes: 0,
    id: 0,
};

/// Whether a packet is longer than what is sent whole, and is not to be cut by the device.
#[inline(always)]
fn is_too_long(packet: &Packet, longest: usize) -> bool {
    packet.len() > longest && !packet.meta().offload.intersects(Offload::GSO)
}

/// Puts the header before a packet, and says where both lie. `None`, and no change, where it is too
/// long, the headroom too short, or the device does not see it.
#[inline(always)]
fn in_place(pools: &ExposedPools, packet: &mut Packet, id: u16, longest: usize) -> Option<Offer> {
    let at = address(pools, packet.data())? - HEADER_BYTES as u64;
    if is_too_long(packet, longest) {
        return None;
    }
    let mut header = [0; HEADER_BYTES];
    header[..vnet::LEN].copy_from_slice(&vnet::write(packet));
    let place: &mut [u8; HEADER_BYTES] = packet.prepend(HEADER_BYTES)?.try_into().ok()?;
    // Most headers are alike: one that stands there already is left alone, so that its line can
    // stay in both caches.
    if *place != header {
        *place = header;
    }
    let bytes = packet.len() as u32;
    Some(Offer { at, bytes, id })
}

/// The guest address of a packet's data.
#[inline(always)]
fn address(pools: &ExposedPools, data: &[u8]) -> Option<u64> {
    if let Some(offset) = pools.first().bounds.offset(data) {
        return Some(guest(0) + offset as u64);
    }
    elsewhere(pools, data)
}

#[cold]
fn elsewhere(pools: &ExposedPools, data: &[u8]) -> Option<u64> {
    let mut spans = pools.spans().iter().enumerate();
    spans.find_map(|(index, span)| {
        let offset = span.bounds.offset(data)?;
        Some(guest(index) + offset as u64)
    })
}
