//! The two halves of a queue, each polled by one lcore: where packets come and go.

use super::queue_pair::{QueuePair, RxPart, TxPart};
use crate::af_packet::tx;
use crate::offload::Finisher;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, Pools};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use linerate_wire::offload::{complete_partial, looks_partial};
use linerate_wire::{EtherType, ethernet, vlan};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Polls without a packet between two checks whether the interface still exists: some 40 us.
const EMPTY_POLLS: u32 = 4096;
/// Calls between two tries to get a socket again.
const DEAD_CALLS: u32 = 64;
/// Completions are taken back once so many frames are under way.
const RECLAIM_AT: usize = 64;

/// The receiving half.
pub(super) struct Rx {
    queue_pair: Arc<QueuePair>,
    part: Option<RxPart>,
    stats: Arc<QueueStats>,
    /// Looks for unfinished checksums.
    completes: bool,
    busy_polls: bool,
    empty_polls: u32,
    idle_calls: u32,
}

impl Rx {
    pub(super) fn new(queue_pair: Arc<QueuePair>, stats: Arc<QueueStats>, completes: bool) -> Self {
        let part = queue_pair.fetch_rx();
        let busy_polls = queue_pair.device.options.busy_poll_us > 0;
        Self {
            queue_pair,
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
            Some(part) if self.queue_pair.is_current(part.generation) => true,
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
            self.part = self.queue_pair.fetch_rx();
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
            self.queue_pair.died(part.generation);
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
        let shape = &self.queue_pair.shape;
        let ready = part.rx.ready(burst.room());
        if ready == 0 {
            self.empty_polls += 1;
            if part.lent.count() < shape.ring as usize {
                refill(part, &self.queue_pair, cache);
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
            // The kernel returns slots that it was lent; any other address is ignored.
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
        refill(part, &self.queue_pair, cache);
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
            Some(part) if self.queue_pair.is_current(part.generation) => {
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
        self.queue_pair
            .device
            .unmap_queue(self.queue_pair.shape.queue);
        let (lent, generation) = (part.lent, part.generation);
        // The descriptor first, so that the queue pair has the last one.
        drop((part.rx, part.fill, part.socket));
        self.queue_pair.retire(lent, generation);
    }
}

#[inline(always)]
fn refill(part: &mut RxPart, queue_pair: &QueuePair, cache: &mut PoolCache) {
    let lacking = part.refill(
        &queue_pair.pool,
        queue_pair.shape.ring,
        queue_pair.shape.port_index,
        cache,
    );
    if lacking > 0 {
        queue_pair.starved.store(true, Ordering::Relaxed);
    }
}

/// Finishes a checksum that a local sender left unfinished, and says whether there was one.
#[inline]
fn complete(packet: &mut Packet) -> bool {
    let Some((start, offset)) = looks_partial(packet.data()) else {
        return false;
    };
    let completed = complete_partial(packet.data_mut(), start, offset);
    if completed {
        packet.meta_mut().offload.insert(Offload::CSUM_VALID);
    }
    completed
}

/// The sending half.
pub(super) struct Tx {
    sender: Sender,
    /// For bursts with unsegmented frames, joined here or not. In copy mode the kernel makes a
    /// frame of its own of each descriptor, so the ring spares nothing that a packet socket does
    /// not.
    unsegmented: Option<tx::Sender>,
    finisher: Finisher,
    stats: Arc<QueueStats>,
}

/// Sends what is finished; apart from [`Tx`], which finishes what is not.
struct Sender {
    queue_pair: Arc<QueuePair>,
    part: Option<TxPart>,
    stats: Arc<QueueStats>,
    dead_calls: u32,
}

impl Tx {
    pub(super) fn new(queue_pair: Arc<QueuePair>, stats: Arc<QueueStats>, pools: &Pools) -> Self {
        let part = queue_pair.fetch_tx();
        let device = queue_pair.device.clone();
        let unsegmented = (device.options.joins && !queue_pair.is_zero_copy()).then(|| {
            let sockets = device.packet_sockets();
            tx::Sender::new(sockets, true, stats.clone(), move || {
                device.packet_sockets()
            })
        });
        Self {
            unsegmented,
            sender: Sender {
                queue_pair,
                part,
                stats: stats.clone(),
                dead_calls: 0,
            },
            stats,
            finisher: Finisher::new(pools),
        }
    }
}

impl Sender {
    #[inline(always)]
    fn connected(&mut self) -> bool {
        match &self.part {
            Some(part) if self.queue_pair.is_current(part.generation) => true,
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
            self.part = self.queue_pair.fetch_tx();
        }
        self.part.is_some()
    }

    /// Puts packets into the ring, as many as fit, or drops those that the wire does not take.
    #[inline]
    fn tx(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if !self.connected() {
            return 0;
        }
        self.reclaim_if(RECLAIM_AT, burst.len(), cache);
        let Some(part) = &mut self.part else { return 0 };
        // The completion ring has as many entries as there may be frames under way.
        let under_way = (self.queue_pair.shape.ring as usize).saturating_sub(part.lent.count());
        let count = part.tx.room(burst.len()).min(under_way).min(burst.len());
        let pool = &self.queue_pair.pool;
        let mut front = Burst::new();
        burst.move_front(count, &mut front);
        front.prefetch();
        let (mut packets, mut bytes) = (0, 0);
        for mut packet in front.drain() {
            let len = packet.len();
            if !(ethernet::HEADER_LEN..=part.max_frame_bytes).contains(&len) || !pool.owns(&packet)
            {
                match admit(packet, part.max_frame_bytes, pool, &self.stats, cache) {
                    Some(admitted) => packet = admitted,
                    None => continue,
                }
            }
            let start = packet.headroom() as u64;
            match part.lent.give(packet) {
                Ok(slot) => part.tx.push(XdpDesc {
                    addr: slot + start,
                    len: len as u32,
                    options: XdpDescOptions::empty(),
                }),
                Err(stranger) => drop(stranger), // never: it is the pool's
            }
            packets += 1;
            bytes += len as u64;
        }
        part.tx.publish();
        self.stats.passed(packets, bytes);
        count
    }

    /// Takes back what was sent, where much is under way or the ring lacks room.
    #[inline]
    fn reclaim_if(&mut self, many: usize, wanted: usize, cache: &mut PoolCache) {
        let part = self.part.as_mut();
        if part.is_some_and(|part| part.lent.count() >= many || part.tx.room(wanted) < wanted) {
            self.reclaim(cache);
        }
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
        while pending > 0 && (part.tx.needs_wakeup() || !self.queue_pair.device.options.wakeup) {
            match rustix::net::send(&part.socket, &[], SendFlags::DONTWAIT) {
                Err(Errno::NXIO) => return self.queue_pair.died(part.generation),
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => {}
                Err(_) => return, // the interface is down: waiting frames leave when it is up again
            }
            let left = part.tx.pending();
            if left >= pending {
                return;
            }
            pending = left;
        }
    }
}

/// What to do with a packet that is not simply sent: too short or long, or of another pool.
/// `None` where it was dropped.
#[cold]
fn admit(
    packet: Packet,
    max_frame_bytes: usize,
    pool: &Pool,
    stats: &QueueStats,
    cache: &mut PoolCache,
) -> Option<Packet> {
    let (len, bytes) = (packet.len(), packet.data());
    let is_tagged = |bytes: &[u8]| EtherType(u16::from_be_bytes([bytes[12], bytes[13]])).is_vlan();
    let reason = if len < ethernet::HEADER_LEN {
        DropReason::Malformed
    } else if len > max_frame_bytes && !(is_tagged(bytes) && len <= max_frame_bytes + vlan::TAG_LEN)
    {
        DropReason::Oversize
    } else if pool.owns(&packet) {
        return Some(packet);
    } else if let Some(copy) = copy_to(pool, bytes, cache) {
        stats.copied.add(1);
        cache.free_one(packet);
        return Some(copy);
    } else {
        DropReason::NoBuffer
    };
    stats.dropped(reason, 1);
    cache.free_one(packet);
    None
}

fn copy_to(pool: &Pool, bytes: &[u8], cache: &mut PoolCache) -> Option<Packet> {
    let mut copy = cache.get(pool)?;
    if copy.set_data(bytes) {
        return Some(copy);
    }
    cache.free_one(copy);
    None
}

impl TxQueue for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if let Some(unsegmented) = &mut self.unsegmented
            && self.finisher.held() == 0
            && unsegmented.plan(burst)
            && self.sender.is_drained()
        {
            return unsegmented.send(burst, cache);
        }
        let (stats, sender) = (&self.stats, &mut self.sender);
        self.finisher
            .tx(burst, cache, stats, |burst, cache| sender.tx(burst, cache))
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if self.finisher.held() > 0 {
            self.tx_burst(&mut Burst::new(), cache);
        }
        self.sender.flush(cache);
        if let Some(unsegmented) = &mut self.unsegmented {
            unsegmented.flush(cache);
        }
    }

    fn held(&self) -> i64 {
        self.finisher.held() + self.sender.under_way() as i64
    }
}

impl Sender {
    fn flush(&mut self, cache: &mut PoolCache) {
        if self.connected() && self.under_way() > 0 {
            self.kick();
            self.reclaim(cache);
        }
    }

    /// Makes the kernel send the frames in the ring, so that frames that bypass it come later.
    fn is_drained(&mut self) -> bool {
        if !self.connected() {
            return false;
        }
        self.kick();
        self.part
            .as_mut()
            .is_some_and(|part| part.tx.pending() == 0)
    }

    fn under_way(&self) -> usize {
        self.part.as_ref().map_or(0, |part| part.lent.count())
    }
}

impl Drop for Sender {
    /// Sends what waits, and waits a little for what is under way, so that no slot gets another
    /// packet while its old one is being sent.
    fn drop(&mut self) {
        let mut cache = PoolCache::new(std::slice::from_ref(&self.queue_pair.pool));
        let end = Instant::now() + Duration::from_millis(50);
        while self.under_way() > 0 && Instant::now() < end {
            self.flush(&mut cache);
            std::thread::yield_now();
        }
        let Some(part) = self.part.take() else {
            return;
        };
        let (lent, generation) = (part.lent, part.generation);
        drop((part.tx, part.completion, part.socket));
        self.queue_pair.retire(lent, generation);
    }
}
