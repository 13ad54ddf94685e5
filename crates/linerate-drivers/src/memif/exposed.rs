//! A client's rings whose buffers are slots of our own pools, which the peer maps: `trust=full`.
//!
//! The pools are regions of the connection, from number 1 on, in the order in which the port was
//! given them. A sender's descriptor says where the packet lies, and the slot comes back when the
//! peer's `tail` has passed it. A receiver lends free slots of the first pool by `head`, and what
//! comes lies there already.
//!
//! Which slot a descriptor has is known here and never read back from the ring: a peer can spoil
//! the bytes of every slot in these pools, and nothing else. When a ring goes, its slots go home.

use super::receive::{Fault, Received, Slots, index_fault};
use super::ring::{Descriptor, View};
use super::transmit::Sent;
use crate::peer::exposed::{Bounds, ExposedPools, Span};
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Packet, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, PortConfig, QueueStats};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_wire::ethernet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Slots are looked for that came back once so many are under way.
const RECLAIM_AT: u16 = 64;
/// Free slots are lent so many at a time, so that their descriptors are whole cache lines.
const LEND_AT: u16 = 32;

/// Pools that the peer maps.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    pub(super) pools: ExposedPools,
    /// Most bytes of a descriptor.
    most: u32,
    /// Receive queues, which lend slots of the first pool; and the application's number of the
    /// port.
    rx_queues: usize,
    port: u16,
}

impl Exposed {
    /// Those of the pools that can be mapped, if the first is one of them.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub(super) fn of(pools: &Pools, most: u32, config: &PortConfig) -> Result<Self, String> {
        let exposed = ExposedPools::of(pools)?;
        for Span { pool, bounds } in exposed.spans() {
            if u32::try_from(bounds.bytes).is_err() {
                let (name, slots) = (pool.name(), pool.slots());
                let most = (1_usize << 32) / pool.slot_bytes() - 1;
                return Err(format!(
                    "the {slots} slots of pool `{name}` take more than 4 GiB, and descriptors of \
                     memif reach no further: give it at most {most}, or leave `trust=` out"
                ));
            }
        }
        let most = most.min(exposed.first().pool.room_bytes() as u32);
        Ok(Self {
            pools: exposed,
            most,
            rx_queues: config.rx_queues.into(),
            port: config.index,
        })
    }

    /// The descriptor of bytes at an address; `None` where the peer does not map them.
    fn place(&self, data: &[u8], len: u32, more: bool) -> Option<Descriptor> {
        let mut pools = (1..).zip(self.pools.spans());
        pools.find_map(|(region, span)| place(span.bounds, region, data, len, more))
    }
}

/// The descriptor of bytes that lie in a pool.
#[inline(always)]
fn place(pool: Bounds, region: u16, data: &[u8], len: u32, more: bool) -> Option<Descriptor> {
    let offset = pool.offset(data)?;
    Some(Descriptor::new(region, offset as u32, len, more))
}

/// The slots that descriptors of a ring have, in their order.
struct Held {
    put: spsc::Producer<Packet>,
    take: spsc::Consumer<Packet>,
    count: usize,
}

impl Held {
    fn new(size: u16) -> Self {
        let (put, take) = spsc::ring(size.into());
        Self {
            put,
            take,
            count: 0,
        }
    }

    /// Moves `count` packets there from the front of a burst. There is room: no more than the ring
    /// has descriptors.
    #[inline(always)]
    fn put(&mut self, burst: &mut Burst, count: usize) {
        if count == burst.len() {
            self.count += self.put.push_burst(burst);
            return;
        }
        let mut front = Burst::new();
        burst.move_front(count, &mut front);
        self.count += self.put.push_burst(&mut front);
    }

    /// Moves the oldest `most` to a burst, or as many as it has room for; returns how many.
    #[inline(always)]
    fn take(&mut self, burst: &mut Burst, most: usize) -> usize {
        let count = self.take.pop_burst(burst, most);
        self.count -= count;
        count
    }

    fn take_one(&mut self) -> Option<Packet> {
        let packet = self.take.pop();
        self.count -= usize::from(packet.is_some());
        packet
    }
}

/// A sending ring's.
pub(super) struct Given {
    exposed: Exposed,
    size: u16,
    held: Held,
    /// Slots that have several descriptors: the first, and how many.
    wide: VecDeque<(u16, u16)>,
    /// Slots on their way back.
    back: Burst,
}

impl Given {
    pub(super) fn new(exposed: &Exposed, size: u16) -> Self {
        Self {
            exposed: exposed.clone(),
            size,
            held: Held::new(size),
            wide: VecDeque::new(),
            back: Burst::new(),
        }
    }

    /// Slots that the peer has.
    pub(super) fn count(&self) -> usize {
        self.held.count
    }

    /// Takes the front of the burst, as much as there is room for: up to `next` descriptors are
    /// filled, and up to `peer` their slots are back.
    #[inline]
    pub(super) fn send(
        &mut self,
        view: View<'_>,
        (next, peer): (&mut u16, &mut u16),
        burst: &mut Burst,
        cache: &mut PoolCache,
        stats: &QueueStats,
    ) -> Sent {
        let mut sent = Sent::default();
        let size = self.size;
        let under_way = next.wrapping_sub(*peer);
        if (under_way >= RECLAIM_AT || usize::from(size - under_way) < burst.len())
            && let Err(fault) = self.reclaim(view, *next, peer, cache)
        {
            sent.fault = Some(fault);
            return sent;
        }
        let mut free = size - next.wrapping_sub(*peer);
        while !burst.is_empty() {
            let (plain, bytes) = self.put_plain(view, *next, free, burst);
            *next = next.wrapping_add(plain);
            free -= plain;
            sent.taken += usize::from(plain);
            sent.packets += u64::from(plain);
            sent.bytes += bytes;
            let Some(packet) = burst.as_packets().first().filter(|_| free > 0) else {
                break;
            };
            let len = packet.len();
            match self.put_parts(view, *next, free, packet, cache) {
                Parts::Waits => break,
                Parts::Dropped(reason) => {
                    stats.dropped(reason, 1);
                    cache.free_front(burst, 1);
                }
                Parts::Copied(used) => {
                    stats.copied.add(1);
                    cache.free_front(burst, 1);
                    (*next, free) = (next.wrapping_add(used), free - used);
                    sent.packets += 1;
                    sent.bytes += len as u64;
                }
                Parts::InPlace(used) => {
                    if used > 1 {
                        self.wide.push_back((*next, used));
                    }
                    self.held.put(burst, 1);
                    *next = next.wrapping_add(used);
                    free -= used;
                    sent.packets += 1;
                    sent.bytes += len as u64;
                }
            }
            sent.taken += 1;
        }
        sent
    }

    /// Takes slots back that the peer is done with.
    #[inline]
    pub(super) fn reclaim(
        &mut self,
        view: View<'_>,
        next: u16,
        peer: &mut u16,
        cache: &mut PoolCache,
    ) -> Result<(), Fault> {
        let (now, under_way) = (view.tail(), next.wrapping_sub(*peer));
        if now.wrapping_sub(*peer) > under_way {
            let detail = format!("the index of a ring that we fill is {now}, after {peer}");
            return Err((Violation::RingIndex, detail));
        }
        let (mut until, mut wide) = (now, 0);
        while let Some(&(first, used)) = self.wide.front() {
            if first.wrapping_sub(*peer) >= until.wrapping_sub(*peer) {
                break;
            }
            if until.wrapping_sub(first) < used {
                until = first; // it has read a part
                break;
            }
            wide += usize::from(used - 1);
            self.wide.pop_front();
        }
        let mut slots = usize::from(until.wrapping_sub(*peer)) - wide;
        *peer = until;
        while slots > 0 {
            let taken = self.held.take(&mut self.back, slots.min(Burst::CAPACITY));
            debug_assert!(taken > 0, "as many slots as descriptors");
            cache.free(&mut self.back);
            slots -= taken.max(1);
        }
        Ok(())
    }

    /// Says where the packets of the burst's front lie, up to the first that is longer than a
    /// descriptor may say, or lies elsewhere. Returns how many went, and their bytes.
    #[inline(always)]
    fn put_plain(&mut self, view: View<'_>, next: u16, free: u16, burst: &mut Burst) -> (u16, u64) {
        let most = burst.len().min(usize::from(free));
        let (pool, longest) = (self.exposed.pools.first().bounds, self.exposed.most);
        view.prefetch_write(next, most as u16);
        let (mut done, mut bytes) = (0_u16, 0);
        for packet in &burst.as_packets()[..most] {
            let data = packet.data();
            let len = data.len() as u32;
            if len > longest {
                break;
            }
            let Some(place) = place(pool, 1, data, len, false) else {
                break;
            };
            view.write(next.wrapping_add(done), place);
            done += 1;
            bytes += u64::from(len);
        }
        self.held.put(burst, done.into());
        (done, bytes)
    }

    /// A packet that takes several descriptors, or lies where the peer does not see it.
    #[cold]
    fn put_parts(
        &mut self,
        view: View<'_>,
        next: u16,
        free: u16,
        packet: &Packet,
        cache: &mut PoolCache,
    ) -> Parts {
        let (data, most) = (packet.data(), self.exposed.most as usize);
        let used = data.len().div_ceil(most).max(1);
        if used > usize::from(self.size) {
            return Parts::Dropped(DropReason::Oversize);
        }
        if used > usize::from(free) {
            return Parts::Waits;
        }
        // A slot lies in one pool as a whole.
        if self.exposed.place(data, 0, false).is_some() {
            for (number, part) in data.chunks(most).enumerate() {
                let more = number + 1 < used;
                if let Some(place) = self.exposed.place(part, part.len() as u32, more) {
                    view.write(next.wrapping_add(number as u16), place);
                }
            }
            return Parts::InPlace(used as u16);
        }
        let mut copies = Vec::with_capacity(used);
        for part in data.chunks(most) {
            let Some(mut copy) = cache.get(&self.exposed.pools.first().pool) else {
                copies.into_iter().for_each(|copy| cache.free_one(copy));
                return Parts::Dropped(DropReason::NoBuffer);
            };
            let fits = copy.set_data(part);
            debug_assert!(fits, "a descriptor has no more bytes than a slot");
            copies.push(copy);
        }
        for (number, copy) in copies.into_iter().enumerate() {
            let (index, more) = (next.wrapping_add(number as u16), number + 1 < used);
            let data = copy.data();
            if let Some(place) = self.exposed.place(data, data.len() as u32, more) {
                view.write(index, place);
            }
            let kept = self.held.put.push(copy);
            debug_assert!(kept.is_ok(), "as many slots as descriptors");
            self.held.count += 1;
        }
        Parts::Copied(used as u16)
    }
}

/// What became of a packet that does not go as most do.
enum Parts {
    /// Its slot is the peer's, by so many descriptors.
    InPlace(u16),
    /// Slots that are copies of it are, so many.
    Copied(u16),
    Dropped(DropReason),
    /// There are too few free descriptors.
    Waits,
}

/// A receiving ring's.
pub(super) struct Lent {
    exposed: Exposed,
    size: u16,
    held: Held,
    /// The first descriptor without a slot.
    until: u16,
    /// The first that was not looked at, after the last burst, for others.
    taken: Arc<AtomicU16>,
}

impl Lent {
    pub(super) fn new(exposed: &Exposed, size: u16) -> Self {
        Self {
            exposed: exposed.clone(),
            size,
            held: Held::new(size),
            until: 0,
            taken: Arc::default(),
        }
    }

    /// Up to where descriptors were looked at.
    pub(super) fn taken(&self) -> Arc<AtomicU16> {
        self.taken.clone()
    }

    /// Slots that the peer has.
    pub(super) fn count(&self) -> usize {
        self.held.count
    }

    /// Lends slots before the worker has looked, for it may sleep until something comes. To be
    /// called inside the gate: a snapshot of the ledger has seen this queue before or sees it
    /// after, and one that was begun before is taken again for the packet that is dropped here.
    pub(super) fn lend_first(&mut self, view: View<'_>, queue: usize) {
        if queue >= self.exposed.rx_queues {
            return;
        }
        let pool = self.exposed.pools.first().pool.clone();
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        self.lend_all(view, self.size, &mut cache);
        drop(cache.get(&pool));
    }

    /// Fills the burst's free room, and lends other slots for those that came.
    #[inline]
    pub(super) fn receive(
        &mut self,
        view: View<'_>,
        next: &mut u16,
        burst: &mut Burst,
        cache: &mut PoolCache,
        slots: &Slots,
        stats: &QueueStats,
    ) -> Received {
        let mut done = Received::default();
        let (produced, most) = (view.tail(), self.until.wrapping_sub(*next));
        let mut ready = produced.wrapping_sub(*next);
        if ready > most {
            done.fault = Some(index_fault(produced, *next, most));
            return done;
        }
        while ready > 0 && burst.room() > 0 {
            let taken = self.take_plain(view, *next, ready, burst, &mut done);
            *next = next.wrapping_add(taken);
            ready -= taken;
            if ready == 0 || burst.room() == 0 {
                break;
            }
            match self.take_parts(view, *next, ready, burst, cache, slots) {
                Err(fault) => {
                    done.fault = Some(fault);
                    return done;
                }
                Ok((0, _)) => break,
                Ok((used, came)) => {
                    match came {
                        Ok(bytes) => {
                            done.packets += 1;
                            done.bytes += bytes;
                        }
                        Err(reason) => stats.dropped(reason, 1),
                    }
                    *next = next.wrapping_add(used);
                    ready -= used;
                }
            }
        }
        self.lend(view, *next, cache);
        self.taken.store(*next, Ordering::Relaxed);
        done
    }

    /// Frames of one descriptor each, up to the first that is not such a one, or too short. Each
    /// content is loaded once. Returns how many.
    #[inline(always)]
    fn take_plain(
        &mut self,
        view: View<'_>,
        next: u16,
        ready: u16,
        burst: &mut Burst,
        done: &mut Received,
    ) -> u16 {
        let first = burst.len();
        let most = usize::from(ready).min(burst.room());
        let mut lengths = [0_u32; Burst::CAPACITY];
        let plain = ethernet::HEADER_LEN as u32..=self.exposed.most;
        view.prefetch(next, most as u16);
        let mut found = 0;
        for (number, length) in lengths[..most].iter_mut().enumerate() {
            let content = view.read_content(next.wrapping_add(number as u16));
            if content.more() || !plain.contains(&content.len()) {
                break;
            }
            *length = content.len();
            found += 1;
        }
        let taken = self.held.take(burst, found);
        debug_assert_eq!(taken, found, "a slot for each descriptor");
        burst.prefetch();
        let now = burst.now;
        for (packet, &len) in burst.as_packets_mut()[first..].iter_mut().zip(&lengths) {
            let fits = packet.set_len(len as usize);
            debug_assert!(fits, "no longer than what was lent");
            packet.meta_mut().timestamp = now;
            done.bytes += u64::from(len);
        }
        done.packets += taken as u64;
        taken as u16
    }

    /// One frame that is too short, or in several slots: those are put together in one. Returns how
    /// many descriptors it had, none where the last has not come or there is no free slot; and the
    /// frame's bytes, or why it was dropped.
    #[cold]
    fn take_parts(
        &mut self,
        view: View<'_>,
        next: u16,
        ready: u16,
        burst: &mut Burst,
        cache: &mut PoolCache,
        slots: &Slots,
    ) -> Result<(u16, Result<u64, DropReason>), Fault> {
        let mut lengths = Vec::new();
        loop {
            if lengths.len() == usize::from(ready) {
                if ready >= self.size {
                    let detail =
                        format!("all {ready} descriptors of the ring say that there is more");
                    return Err((Violation::ChainTooLong, detail));
                }
                return Ok((0, Ok(0)));
            }
            let content = view.read_content(next.wrapping_add(lengths.len() as u16));
            if content.len() > self.exposed.most {
                let detail = format!(
                    "{} bytes in a buffer of {}",
                    content.len(),
                    self.exposed.most
                );
                return Err((Violation::DescriptorLength, detail));
            }
            lengths.push(content.len() as usize);
            if !content.more() {
                break;
            }
        }
        let (used, bytes) = (lengths.len() as u16, lengths.iter().sum::<usize>());
        let mut came = Err(DropReason::Malformed);
        if bytes >= ethernet::HEADER_LEN {
            came = Err(DropReason::Oversize);
            if let Some(pool) = slots.pools.for_frame(bytes) {
                let Some(mut whole) = cache.get(pool) else {
                    return Ok((0, Ok(0)));
                };
                whole.set_port(slots.port);
                whole.meta_mut().timestamp = burst.now;
                for &len in &lengths {
                    let Some(mut part) = self.held.take_one() else {
                        continue;
                    };
                    part.set_len(len);
                    if let Some(room) = whole.append(len) {
                        room.copy_from_slice(part.data());
                    }
                    cache.free_one(part);
                }
                let pushed = burst.push(whole);
                debug_assert!(pushed.is_ok(), "the burst had room");
                return Ok((used, Ok(bytes as u64)));
            }
        }
        for _ in 0..used {
            if let Some(part) = self.held.take_one() {
                cache.free_one(part);
            }
        }
        Ok((used, came))
    }

    /// Lends free slots until all descriptors behind `next` have one.
    #[inline(always)]
    fn lend(&mut self, view: View<'_>, next: u16, cache: &mut PoolCache) {
        let lacking = self.size - self.until.wrapping_sub(next);
        if lacking >= LEND_AT.min(self.size) {
            self.lend_all(view, lacking, cache);
        }
    }

    #[inline(never)]
    fn lend_all(&mut self, view: View<'_>, mut lacking: u16, cache: &mut PoolCache) {
        let template = RxTemplate {
            port: self.exposed.port,
            ..RxTemplate::default()
        };
        let mut free = Burst::new();
        let (span, most) = (self.exposed.pools.first(), self.exposed.most);
        while lacking > 0 {
            let wanted = usize::from(lacking).min(Burst::CAPACITY);
            let got = cache.fill_with(&span.pool, &mut free, wanted, template);
            view.prefetch_write(self.until, got as u16);
            for packet in free.iter() {
                if let Some(place) = place(span.bounds, 1, packet.data(), most, false) {
                    view.write(self.until, place);
                }
                self.until = self.until.wrapping_add(1);
            }
            self.held.put(&mut free, got);
            lacking -= got as u16;
            if got < wanted {
                break;
            }
        }
        view.set_head(self.until);
    }
}
