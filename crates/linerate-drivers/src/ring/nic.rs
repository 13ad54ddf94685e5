//! One direction of a wire whose receiving end plays a NIC: whatever queue a packet is sent by, its
//! hash determines the queue that it comes to.
//!
//! Each transmit queue has an SPSC ring to each receive queue, so `q` queues have `q * q` rings.
//! The sender hashes, since the receiver's lcores must not share work; what a NIC's hardware does
//! thus costs the sender's time. As in a NIC, a full receive queue loses packets, of its own flows
//! alone: waiting would let one slow lcore stop the flows of all others.

use super::channel::{self, Channel, Receiver, Sender};
use linerate_core::arch::CachePadded;
use linerate_core::packet::{Burst, Offload, PoolCache};
use linerate_core::port::{Counter, QueueStats, RssHash, RssSetup, RxQueue, SleepOn, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Most queues each way: the rings are their square.
pub(super) const MAX_QUEUES: u16 = 64;

/// What the receiving end of one direction is set up as, and the rings to it.
pub(super) struct Nic {
    hash: Box<dyn RssHash>,
    /// The queue of each entry; written when the receiving end starts, read with each packet.
    reta: Box<[AtomicU16]>,
    /// By transmit queue, then by receive queue.
    rings: Vec<Vec<Arc<Channel>>>,
    /// Packets that found their receive queue full, by transmit queue.
    missed: Box<[CachePadded<Counter>]>,
}

impl Nic {
    /// A NIC of `queues` queues (at most [`MAX_QUEUES`]), with `size` packets in each ring to one;
    /// with `bells` a sender wakes its receiver.
    pub(super) fn new(queues: u16, size: usize, bells: bool, hash: &dyn RssHash) -> Self {
        let queues = queues.clamp(1, MAX_QUEUES);
        // One for each receive queue, whoever sends.
        let bells: Vec<_> = (0..queues).map(|_| channel::bell(bells)).collect();
        let to_all = |_| {
            let bells = bells.iter();
            bells
                .map(|bell| channel::channel(size, bell.clone()))
                .collect()
        };
        let entries = hash.reta_entries().next_power_of_two();
        let nic = Self {
            hash: hash.another(),
            reta: (0..entries).map(|_| AtomicU16::new(0)).collect(),
            rings: (0..queues).map(to_all).collect(),
            missed: (0..queues).map(|_| CachePadded::default()).collect(),
        };
        nic.spread(queues);
        nic
    }

    /// Fills the table with so many queues in turns, as drivers do by default.
    pub(super) fn spread(&self, queues: u16) {
        for (entry, slot) in self.reta.iter().enumerate() {
            let queue = entry % usize::from(queues.max(1));
            slot.store(queue as u16, Ordering::Relaxed);
        }
    }

    fn queue(&self, hash: u32) -> u16 {
        self.reta[hash as usize & (self.reta.len() - 1)].load(Ordering::Relaxed)
    }

    pub(super) fn setup(&self) -> RssSetup {
        let reta = self.reta.iter();
        RssSetup {
            profile: self.hash.profile().into(),
            key: self.hash.key().into(),
            reta: reta.map(|queue| queue.load(Ordering::Relaxed)).collect(),
        }
    }

    /// All rings: there is one at least.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.rings.iter().flatten()
    }

    pub(super) fn queues(&self) -> u16 {
        self.rings.len() as u16
    }

    /// Packets that found their receive queue full.
    pub(super) fn missed(&self) -> u64 {
        self.missed.iter().map(|count| count.read()).sum()
    }

    /// Takes receive queue `index`.
    pub(super) fn listen(&self, index: usize, stats: &Arc<QueueStats>) -> NicReceiver {
        let listen = |to_all: &Vec<Arc<Channel>>| Channel::listen(&to_all[index], stats.clone());
        NicReceiver {
            rings: self.rings.iter().map(listen).collect(),
            next: 0,
        }
    }

    /// Takes transmit queue `index` to this NIC.
    pub(super) fn send(this: &Arc<Self>, index: usize, stats: Arc<QueueStats>) -> NicSender {
        let rings = this.rings[index].iter();
        let rings: Vec<Sender> = rings
            .map(|ring| Channel::send(ring, stats.clone()))
            .collect();
        NicSender {
            sorted: rings.iter().map(|_| Burst::new()).collect(),
            rings,
            hash: this.hash.another(),
            nic: this.clone(),
            index,
            stats,
        }
    }
}

/// A receive queue: the rings from all transmit queues.
pub(super) struct NicReceiver {
    rings: Vec<Receiver>,
    /// The ring to begin with, another each time: none has to wait for the others.
    next: usize,
}

impl RxQueue for NicReceiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let (later, first) = self.rings.split_at_mut(self.next);
        for ring in first.iter_mut().chain(later) {
            if burst.room() == 0 {
                break;
            }
            ring.rx_burst(burst, cache);
        }
        self.next = match self.next + 1 {
            next if next < self.rings.len() => next,
            _ => 0,
        };
        burst.len() - before
    }

    fn sleep_on(&mut self) -> SleepOn {
        // All have the same doorbell.
        let first = self.rings.first_mut();
        first.map_or(SleepOn::Nothing, |ring| ring.sleep_on())
    }

    fn held(&self) -> i64 {
        self.rings.iter().map(|ring| ring.held()).sum()
    }
}

/// A transmit queue to a NIC.
pub(super) struct NicSender {
    nic: Arc<Nic>,
    hash: Box<dyn RssHash>,
    /// By receive queue.
    rings: Vec<Sender>,
    /// Packets of the burst in hand, by receive queue; empty between bursts.
    sorted: Vec<Burst>,
    /// The queue's own number.
    index: usize,
    stats: Arc<QueueStats>,
}

impl TxQueue for NicSender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        if count == 0 {
            return 0;
        }
        let mut hashes = [0; Burst::CAPACITY];
        let is_hashed = self.hash.hash(burst, &mut hashes);
        let mut used = 0_u64;
        for (at, mut packet) in burst.drain().enumerate() {
            let meta = packet.meta_mut();
            let queue = if is_hashed >> at & 1 != 0 {
                meta.rss_hash = hashes[at];
                meta.offload.insert(Offload::RSS);
                usize::from(self.nic.queue(hashes[at]))
            } else {
                // One that an earlier port has set is not this NIC's.
                meta.offload.remove(Offload::RSS);
                0
            };
            used |= 1 << queue;
            if let Err(packet) = self.sorted[queue].push(packet) {
                cache.free_one(packet); // there is room for a whole burst
            }
        }
        while used != 0 {
            let queue = used.trailing_zeros() as usize;
            used &= used - 1;
            let packets = &mut self.sorted[queue];
            self.rings[queue].tx_burst(packets, cache);
            if !packets.is_empty() {
                // They were sent, and the other end has no room for them.
                let missed = packets.len() as u64;
                self.stats.passed(missed, packets.bytes());
                self.nic.missed[self.index].add(missed);
                cache.free(packets);
            }
        }
        count
    }

    fn held(&self) -> i64 {
        self.rings.iter().map(|ring| ring.held()).sum()
    }
}
