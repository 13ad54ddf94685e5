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
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, PortConfig, QueueStats};
use linerate_wire::ethernet;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Slots are looked for that came back once so many are under way.
const RECLAIM_AT: u16 = 64;
/// Free slots are lent so many at a time, so that their descriptors are whole cache lines.
const LEND_AT: u16 = 32;

/// Pools that the peer maps.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    pools: Vec<Span>,
    /// Most bytes of a descriptor.
    most: u32,
    /// Receive queues, which lend slots of the first pool; and the application's number of the
    /// port.
    rx_queues: usize,
    port: u16,
}

/// Where a pool's slots lie.
#[derive(Clone, Debug)]
struct Span {
    pool: Pool,
    start: usize,
    bytes: usize,
}

impl Exposed {
    /// Those of the pools that can be mapped, if the first is one of them.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub(super) fn of(pools: &Pools, most: u32, config: &PortConfig) -> Result<Self, String> {
        let first = pools.primary();
        if first.exposed().is_none() {
            let name = first.name();
            return Err(format!(
                "pool `{name}` is private memory, and `trust=full` gives the pool to the peer: \
                 make it an exposed one (`PoolConfig::exposed`), or leave `trust=` out"
            ));
        }
        let exposed = pools.iter().filter(|pool| pool.exposed().is_some());
        let mut spans = Vec::new();
        for pool in exposed {
            let (start, bytes) = pool.data_span();
            if u32::try_from(bytes).is_err() {
                let (name, slots) = (pool.name(), pool.slots());
                let most = (1_usize << 32) / pool.slot_bytes() - 1;
                return Err(format!(
                    "the {slots} slots of pool `{name}` take more than 4 GiB, and descriptors of \
                     memif reach no further: give it at most {most}, or leave `trust=` out"
                ));
            }
            spans.push(Span {
                pool: pool.clone(),
                start: start.addr(),
                bytes,
            });
        }
        let most = most.min(first.room_bytes() as u32);
        Ok(Self {
            pools: spans,
            most,
            rx_queues: config.rx_queues.into(),
            port: config.index,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.pools.len()
    }

    /// The files to be sent, in the order of their regions from number 1 on, with their bytes.
    ///
    /// # Errors
    /// The kernel's: too many open files.
    pub(super) fn files(&self) -> std::io::Result<Vec<(OwnedFd, u64)>> {
        let files = self.pools.iter().filter_map(|span| span.pool.exposed());
        let sized = |file: BorrowedFd<'_>| -> std::io::Result<(OwnedFd, u64)> {
            let bytes = rustix::fs::fstat(file)?.st_size.cast_unsigned();
            Ok((file.try_clone_to_owned()?, bytes))
        };
        files.map(sized).collect()
    }

    /// Whether a peer took pages out of one of them.
    pub(super) fn is_lost(&self) -> bool {
        self.pools.iter().any(|span| span.pool.is_lost())
    }

    /// For people: what the peer can read and write.
    pub(super) fn describe(&self) -> String {
        let pools = self.pools.iter();
        let pools: Vec<String> = pools
            .map(|span| format!("`{}` ({} slots)", span.pool.name(), span.pool.slots()))
            .collect();
        let pools = pools.join(", ");
        format!("full: the peer can read and write every packet of pool {pools}")
    }

    /// The descriptor of bytes at an address; `None` where the peer does not map them.
    #[inline(always)]
    fn place(&self, data: &[u8], len: u32, more: bool) -> Option<Descriptor> {
        let at = data.as_ptr().addr();
        let number = self
            .pools
            .iter()
            .position(|span| at.wrapping_sub(span.start) < span.bytes)?;
        let offset = at.wrapping_sub(self.pools[number].start);
        Some(Descriptor::new(number as u16 + 1, offset as u32, len, more))
    }
}

/// The slots that descriptors of a ring have, by their indices.
struct Held {
    slots: Vec<Option<Packet>>,
    count: usize,
}

impl Held {
    fn new(size: u16) -> Self {
        Self {
            slots: (0..size).map(|_| None).collect(),
            count: 0,
        }
    }

    #[inline(always)]
    fn put(&mut self, index: u16, packet: Packet) {
        let at = usize::from(index) & (self.slots.len() - 1);
        self.slots[at] = Some(packet);
        self.count += 1;
    }

    #[inline(always)]
    fn take(&mut self, index: u16) -> Option<Packet> {
        let at = usize::from(index) & (self.slots.len() - 1);
        let packet = self.slots[at].take();
        self.count -= usize::from(packet.is_some());
        packet
    }
}

/// A sending ring's.
pub(super) struct Given {
    exposed: Exposed,
    held: Held,
}

impl Given {
    pub(super) fn new(exposed: &Exposed, size: u16) -> Self {
        Self {
            exposed: exposed.clone(),
            held: Held::new(size),
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
        let size = self.held.slots.len() as u16;
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
                    *next = next.wrapping_add(used);
                    free -= used;
                    let last = next.wrapping_sub(1);
                    self.keep(last, burst, 1);
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
        let mut back = Burst::new();
        while *peer != now {
            if let Some(packet) = self.held.take(*peer)
                && let Err(packet) = back.push(packet)
            {
                cache.free(&mut back);
                cache.free_one(packet);
            }
            *peer = peer.wrapping_add(1);
        }
        cache.free(&mut back);
        Ok(())
    }

    /// Says where the packets of the burst's front lie, up to the first that is longer than a
    /// descriptor may say, or lies elsewhere. Returns how many went, and their bytes.
    #[inline(always)]
    fn put_plain(&mut self, view: View<'_>, next: u16, free: u16, burst: &mut Burst) -> (u16, u64) {
        let most = burst.len().min(usize::from(free));
        let (mut done, mut bytes) = (0_u16, 0);
        for packet in &burst.as_packets()[..most] {
            let data = packet.data();
            let len = data.len() as u32;
            if len > self.exposed.most {
                break;
            }
            let Some(place) = self.exposed.place(data, len, false) else {
                break;
            };
            view.write(next.wrapping_add(done), place);
            done += 1;
            bytes += u64::from(len);
        }
        self.keep(next, burst, done.into());
        (done, bytes)
    }

    /// The front of the burst is the peer's from now on, in descriptors from `next` on.
    #[inline(always)]
    fn keep(&mut self, next: u16, burst: &mut Burst, count: usize) {
        let mut front = Burst::new();
        burst.move_front(count, &mut front);
        for (number, packet) in front.drain().enumerate() {
            self.held.put(next.wrapping_add(number as u16), packet);
        }
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
        if used > self.held.slots.len() {
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
            let Some(mut copy) = cache.get(&self.exposed.pools[0].pool) else {
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
            self.held.put(index, copy);
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
    held: Held,
    /// The first descriptor without a slot.
    until: u16,
}

impl Lent {
    pub(super) fn new(exposed: &Exposed, size: u16) -> Self {
        Self {
            exposed: exposed.clone(),
            held: Held::new(size),
            until: 0,
        }
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
        let pool = self.exposed.pools[0].pool.clone();
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        self.lend_all(view, self.held.slots.len() as u16, &mut cache);
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
        let most = ready.min(burst.room() as u16);
        let mut lengths = [0_u32; Burst::CAPACITY];
        let mut taken = 0;
        while taken < most {
            let index = next.wrapping_add(taken);
            let content = view.read_content(index);
            let len = content.len();
            let plain = ethernet::HEADER_LEN as u32..=self.exposed.most;
            if content.more() || !plain.contains(&len) {
                break;
            }
            let Some(packet) = self.held.take(index) else {
                break;
            };
            lengths[burst.len()] = len;
            let pushed = burst.push(packet);
            debug_assert!(pushed.is_ok(), "the burst had room");
            taken += 1;
        }
        burst.prefetch();
        let now = burst.now;
        for (packet, &len) in burst.as_packets_mut()[first..]
            .iter_mut()
            .zip(&lengths[first..])
        {
            let fits = packet.set_len(len as usize);
            debug_assert!(fits, "no longer than what was lent");
            packet.meta_mut().timestamp = now;
            done.bytes += u64::from(len);
        }
        done.packets += u64::from(taken);
        taken
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
                if ready >= self.held.slots.len() as u16 {
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
                for (number, &len) in lengths.iter().enumerate() {
                    let index = next.wrapping_add(number as u16);
                    let Some(mut part) = self.held.take(index) else {
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
        for number in 0..used {
            if let Some(part) = self.held.take(next.wrapping_add(number)) {
                cache.free_one(part);
            }
        }
        Ok((used, came))
    }

    /// Lends free slots until all descriptors behind `next` have one.
    #[inline(always)]
    fn lend(&mut self, view: View<'_>, next: u16, cache: &mut PoolCache) {
        let size = self.held.slots.len() as u16;
        let lacking = size - self.until.wrapping_sub(next);
        if lacking >= LEND_AT.min(size) {
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
        while lacking > 0 {
            let wanted = usize::from(lacking).min(Burst::CAPACITY);
            let pool = &self.exposed.pools[0].pool;
            let got = cache.fill_with(pool, &mut free, wanted, template);
            for packet in free.drain() {
                if let Some(place) = self.exposed.place(packet.data(), self.exposed.most, false) {
                    view.write(self.until, place);
                }
                self.held.put(self.until, packet);
                self.until = self.until.wrapping_add(1);
            }
            lacking -= got as u16;
            if got < wanted {
                break;
            }
        }
        view.set_head(self.until);
    }
}
