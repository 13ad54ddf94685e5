//! The two halves of a queue, each polled by one lcore: where packets come and go.

use super::lane::{Lane, RxPart, TxPart};
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use linerate_wire::offload::{Segments, complete_partial, looks_partial};
use linerate_wire::{EtherType, ethernet};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Polls without a packet between two looks at whether the interface still exists: some 40 us.
const EMPTY_POLLS: u32 = 4096;
/// Calls between two tries to get a socket again.
const DEAD_CALLS: u32 = 64;
/// Completions are taken back once so many frames are under way.
const RECLAIM_AT: usize = 64;

/// The receiving half.
pub(super) struct Rx {
    lane: Arc<Lane>,
    part: Option<RxPart>,
    stats: Arc<QueueStats>,
    /// Looks for unfinished checksums.
    completes: bool,
    busy_polls: bool,
    empty_polls: u32,
    idle_calls: u32,
}

impl Rx {
    pub(super) fn new(lane: Arc<Lane>, stats: Arc<QueueStats>, completes: bool) -> Self {
        let part = lane.fetch_rx();
        let busy_polls = lane.device.options.busy_poll_us > 0;
        Self {
            lane,
            part,
            stats,
            completes,
            busy_polls,
            empty_polls: 0,
            idle_calls: 0,
        }
    }

    /// Whether there is a live socket; looks for a new one now and then.
    #[inline(always)]
    fn connected(&mut self) -> bool {
        match &self.part {
            Some(part) if self.lane.is_current(part.generation) => true,
            _ => self.reconnect(),
        }
    }

    #[cold]
    fn reconnect(&mut self) -> bool {
        if let Some(mut part) = self.part.take() {
            part.lent.reclaim();
        }
        self.idle_calls += 1;
        if self.idle_calls >= DEAD_CALLS {
            self.idle_calls = 0;
            self.part = self.lane.fetch_rx();
        }
        self.part.is_some()
    }

    /// Wakes the driver up where it waits for slots, and notices when the interface is gone.
    #[cold]
    fn wake(&mut self) {
        self.empty_polls = 0;
        let Some(part) = &self.part else { return };
        let none: &mut [u8] = &mut [];
        if let Err(Errno::NXIO) = rustix::net::recv(&part.socket, none, RecvFlags::DONTWAIT) {
            self.lane.died(part.generation);
        }
    }
}

impl RxQueue for Rx {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if !self.connected() {
            return 0;
        }
        let Some(part) = &mut self.part else { return 0 };
        let shape = &self.lane.shape;
        let ready = part.rx.ready(burst.room());
        if ready == 0 {
            self.empty_polls += 1;
            if part.lent.count() < shape.ring as usize {
                refill(part, &self.lane, cache);
            }
            if self.busy_polls || self.empty_polls >= EMPTY_POLLS || part.fill.needs_wakeup() {
                self.wake();
            }
            return 0;
        }
        self.empty_polls = 0;
        let first = burst.len();
        let mut spans = [(0_u32, 0_u32); Burst::CAPACITY];
        for _ in 0..ready {
            let desc = part.rx.pop();
            // The kernel names slots that it was lent; anything else is not ours to touch.
            if let Some((packet, start)) = part.lent.take_back(desc.addr) {
                spans[burst.len()] = (start as u32, desc.len);
                if let Err(packet) = burst.push(packet) {
                    drop(packet);
                }
            }
        }
        part.rx.release();
        burst.prefetch();
        let mut bytes = 0;
        for (packet, (start, len)) in burst.as_packets_mut()[first..]
            .iter_mut()
            .zip(&spans[first..])
        {
            packet.set_span(*start as usize, *len as usize);
            bytes += u64::from(*len);
        }
        if self.completes {
            let completed = burst.as_packets_mut()[first..]
                .iter_mut()
                .map(|packet| u64::from(complete(packet)))
                .sum();
            self.stats.checksums_completed.add(completed);
        }
        refill(part, &self.lane, cache);
        if part.fill.needs_wakeup() {
            self.wake();
        }
        let received = burst.len() - first;
        self.stats.passed(received as u64, bytes);
        received
    }

    fn sleep_on(&mut self) -> SleepOn {
        self.wake();
        match &self.part {
            Some(part) if self.lane.is_current(part.generation) => {
                SleepOn::Fd(part.socket.as_raw_fd())
            }
            _ => SleepOn::Nothing,
        }
    }

    fn held(&self) -> i64 {
        self.part
            .as_ref()
            .map_or(0, |part| part.lent.count() as i64)
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        let Some(part) = self.part.take() else { return };
        self.lane.device.unmap_queue(self.lane.shape.queue);
        let (lent, generation) = (part.lent, part.generation);
        // The descriptor first, so that the lane has the last one.
        drop((part.rx, part.fill, part.socket));
        self.lane.retire(lent, generation);
    }
}

#[inline(always)]
fn refill(part: &mut RxPart, lane: &Lane, cache: &mut PoolCache) {
    let lacking = part.refill(&lane.pool, lane.shape.ring, lane.shape.port_index, cache);
    if lacking > 0 {
        lane.starved.store(true, Ordering::Relaxed);
    }
}

/// Finishes a checksum that a local sender left unfinished, and says whether there was one.
#[inline]
fn complete(packet: &mut Packet) -> bool {
    looks_partial(packet.data())
        .is_some_and(|(start, offset)| complete_partial(packet.data_mut(), start, offset))
}

/// The sending half.
pub(super) struct Tx {
    lane: Arc<Lane>,
    part: Option<TxPart>,
    stats: Arc<QueueStats>,
    /// Frames that wait for room in the ring: segments of one that was cut.
    segments: Vec<Packet>,
    dead_calls: u32,
}

impl Tx {
    pub(super) fn new(lane: Arc<Lane>, stats: Arc<QueueStats>) -> Self {
        let part = lane.fetch_tx();
        Self {
            lane,
            part,
            stats,
            segments: Vec::new(),
            dead_calls: 0,
        }
    }

    #[inline(always)]
    fn connected(&mut self) -> bool {
        match &self.part {
            Some(part) if self.lane.is_current(part.generation) => true,
            _ => self.reconnect(),
        }
    }

    #[cold]
    fn reconnect(&mut self) -> bool {
        if let Some(mut part) = self.part.take() {
            part.lent.reclaim();
        }
        self.dead_calls += 1;
        if self.dead_calls >= DEAD_CALLS {
            self.dead_calls = 0;
            self.part = self.lane.fetch_tx();
        }
        self.part.is_some()
    }

    /// Makes a packet one that the wire takes: right length, nothing left to do, in the port's pool.
    /// `None` where it was dropped, or cut into [`Tx::segments`].
    #[inline(always)]
    fn prepare(
        &mut self,
        packet: Packet,
        max_frame_bytes: usize,
        cache: &mut PoolCache,
    ) -> Option<Packet> {
        let duties = Offload::GSO | Offload::CSUM_PARTIAL | Offload::VLAN;
        let fits = packet.len() <= max_frame_bytes && packet.len() >= ethernet::HEADER_LEN;
        if fits && !packet.meta().offload.intersects(duties) && self.lane.pool.owns(&packet) {
            return Some(packet);
        }
        self.finish(packet, max_frame_bytes, cache)
    }

    #[cold]
    fn finish(
        &mut self,
        mut packet: Packet,
        max_frame_bytes: usize,
        cache: &mut PoolCache,
    ) -> Option<Packet> {
        let offload = packet.meta().offload;
        if packet.len() < ethernet::HEADER_LEN {
            return self.discard(packet, DropReason::Malformed, cache);
        }
        if offload.contains(Offload::VLAN) && !insert_tag(&mut packet) {
            return self.discard(packet, DropReason::Oversize, cache);
        }
        if offload.intersects(Offload::GSO) {
            self.cut(packet, max_frame_bytes, cache);
            return None;
        }
        let tag_bytes = if ethertype(&packet).is_vlan() { 4 } else { 0 };
        if packet.len() > max_frame_bytes + tag_bytes {
            return self.discard(packet, DropReason::Oversize, cache);
        }
        if offload.contains(Offload::CSUM_PARTIAL) {
            let (start, offset) = (packet.meta().csum_start, packet.meta().csum_offset);
            let shift = if offload.contains(Offload::VLAN) {
                4
            } else {
                0
            };
            if !complete_partial(packet.data_mut(), start + shift, offset.into()) {
                return self.discard(packet, DropReason::Malformed, cache);
            }
            packet.meta_mut().offload.remove(Offload::CSUM_PARTIAL);
            self.stats.checksums_completed.add(1);
        }
        if self.lane.pool.owns(&packet) {
            return Some(packet);
        }
        let copy = copy_to(&self.lane.pool, packet.data(), cache);
        match copy {
            Some(copy) => {
                self.stats.copied.add(1);
                cache.free_one(packet);
                Some(copy)
            }
            None => self.discard(packet, DropReason::NoBuffer, cache),
        }
    }

    fn discard(&self, packet: Packet, reason: DropReason, cache: &mut PoolCache) -> Option<Packet> {
        self.stats.dropped(reason, 1);
        cache.free_one(packet);
        None
    }

    /// Cuts an oversized frame into segments.
    fn cut(&mut self, packet: Packet, max_frame_bytes: usize, cache: &mut PoolCache) {
        let reason = match Segments::new(packet.data(), packet.meta().gso_size) {
            Err(_) => Some(DropReason::Malformed),
            Ok(segments) if segments.max_len() > max_frame_bytes + 4 => Some(DropReason::Oversize),
            Ok(mut segments) => {
                self.stats.segmented.add(1);
                while segments.remaining() > 0 {
                    let Some(mut slot) = cache.get(&self.lane.pool) else {
                        self.stats
                            .dropped(DropReason::NoBuffer, segments.remaining() as u64);
                        break;
                    };
                    slot.set_len(self.lane.pool.room_bytes());
                    let len = segments.write_next(slot.data_mut()).unwrap_or(0);
                    slot.truncate(len);
                    self.segments.push(slot);
                }
                self.segments.reverse();
                None
            }
        };
        match reason {
            Some(reason) => drop(self.discard(packet, reason, cache)),
            None => cache.free_one(packet),
        }
    }

    /// Segments first; whether all of them went into the ring.
    #[cold]
    fn push_segments(&mut self) -> bool {
        let Some(part) = &mut self.part else {
            return false;
        };
        while part.tx.room(1) > 0 {
            let Some(segment) = self.segments.pop() else {
                return true;
            };
            self.stats.passed(1, segment.len() as u64);
            push(part, segment);
        }
        self.segments.is_empty()
    }

    /// Takes back what was sent.
    #[inline]
    fn reclaim(&mut self, cache: &mut PoolCache) {
        let Some(part) = &mut self.part else { return };
        let mut sent = Burst::new();
        loop {
            let ready = part.completion.ready(Burst::CAPACITY);
            for _ in 0..ready {
                let address = part.completion.pop();
                if let Some((packet, _)) = part.lent.take_back(address) {
                    sent.push(packet).ok();
                }
            }
            if ready > 0 {
                part.completion.release();
                cache.free(&mut sent);
            }
            if ready < Burst::CAPACITY {
                return;
            }
        }
    }

    /// Has the kernel send what waits in the ring. In copy mode it sends a number of frames per
    /// call; it is called again as long as that gets on.
    fn kick(&mut self) {
        let Some(part) = &mut self.part else { return };
        let mut pending = part.tx.pending();
        while pending > 0 && (part.tx.needs_wakeup() || !self.lane.device.options.wakeup) {
            match rustix::net::send(&part.socket, &[], SendFlags::DONTWAIT) {
                Err(Errno::NXIO) => return self.lane.died(part.generation),
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => {}
                Err(_) => return, // the interface is down: what waits goes when it is up again
            }
            let left = part.tx.pending();
            if left >= pending {
                return;
            }
            pending = left;
        }
    }
}

impl TxQueue for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if !self.connected() || !self.segments.is_empty() && !self.push_segments() {
            return 0;
        }
        let Some(part) = &mut self.part else { return 0 };
        if part.tx.room(burst.len()) < burst.len() || part.lent.count() >= RECLAIM_AT {
            self.reclaim(cache);
        }
        let Some(part) = &mut self.part else { return 0 };
        // The completion ring has as many entries as there may be frames under way.
        let under_way = (self.lane.shape.ring as usize).saturating_sub(part.lent.count());
        let count = part.tx.room(burst.len()).min(under_way).min(burst.len());
        let max_frame_bytes = part.max_frame_bytes;
        let mut front = Burst::new();
        burst.move_front(count, &mut front);
        front.prefetch();
        let (mut packets, mut bytes) = (0, 0);
        for packet in front.drain() {
            let packet = self.prepare(packet, max_frame_bytes, cache);
            if !self.segments.is_empty() {
                self.push_segments();
            }
            if let (Some(packet), Some(part)) = (packet, &mut self.part) {
                packets += 1;
                bytes += packet.len() as u64;
                push(part, packet);
            }
        }
        if let Some(part) = &self.part {
            part.tx.publish();
        }
        self.stats.passed(packets, bytes);
        count
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if !self.connected() {
            return;
        }
        if !self.segments.is_empty() {
            self.push_segments();
            if let Some(part) = &self.part {
                part.tx.publish();
            }
        }
        if self.part.as_ref().is_some_and(|part| part.lent.count() > 0) {
            self.kick();
            self.reclaim(cache);
        }
    }

    fn held(&self) -> i64 {
        (self.segments.len() + self.part.as_ref().map_or(0, |part| part.lent.count())) as i64
    }
}

impl Drop for Tx {
    /// Sends what waits, and waits a little for what is under way, so that no slot gets another
    /// packet while its old one is being sent.
    fn drop(&mut self) {
        let mut cache = PoolCache::new(std::slice::from_ref(&self.lane.pool));
        let end = Instant::now() + Duration::from_millis(50);
        while self.connected()
            && self.part.as_ref().is_some_and(|part| part.lent.count() > 0)
            && Instant::now() < end
        {
            self.flush(&mut cache);
            std::thread::yield_now();
        }
        let Some(part) = self.part.take() else { return };
        let (lent, generation) = (part.lent, part.generation);
        drop((part.tx, part.completion, part.socket));
        self.lane.retire(lent, generation);
    }
}

/// Puts a packet of the port's pool into the ring; there is room.
#[inline(always)]
fn push(part: &mut TxPart, packet: Packet) {
    let (start, len) = (packet.headroom() as u64, packet.len() as u32);
    match part.lent.give(packet) {
        Ok(slot) => part.tx.push(XdpDesc {
            addr: slot + start,
            len,
            options: XdpDescOptions::empty(),
        }),
        Err(stranger) => drop(stranger),
    }
}

fn copy_to(pool: &Pool, bytes: &[u8], cache: &mut PoolCache) -> Option<Packet> {
    let mut copy = cache.get(pool)?;
    if copy.set_data(bytes) {
        return Some(copy);
    }
    cache.free_one(copy);
    None
}

fn ethertype(packet: &Packet) -> EtherType {
    let bytes = packet.data();
    EtherType(u16::from_be_bytes([bytes[12], bytes[13]]))
}

/// Puts the tag back that stands in the metadata.
fn insert_tag(packet: &mut Packet) -> bool {
    let meta = packet.meta_mut();
    let tci = meta.vlan_tci.to_be_bytes();
    let tpid = if meta.offload.contains(Offload::VLAN_8021AD) {
        EtherType::SERVICE_VLAN
    } else {
        EtherType::VLAN
    };
    meta.offload.remove(Offload::VLAN | Offload::VLAN_8021AD);
    if packet.prepend(4).is_none() {
        return false;
    }
    let bytes = packet.data_mut();
    bytes.copy_within(4..16, 0);
    bytes[12..14].copy_from_slice(&tpid.0.to_be_bytes());
    bytes[14..16].copy_from_slice(&tci);
    true
}
