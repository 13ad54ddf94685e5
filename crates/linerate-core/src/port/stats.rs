//! Counters: one writer each, on cache lines of their own, summed by readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes and any thread reads. Never an atomic read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One that has counted nothing.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds; only the one writer may.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// Sets; only the one writer may.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Reads.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a port dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The pool had no free slot for a packet that arrived.
    NoBuffer,
    /// The device's receive ring was full: it was not polled in time.
    Missed,
    /// Longer than a slot, or than the wire takes, and not to be cut.
    Oversize,
    /// Shorter than an Ethernet header, or inconsistent.
    Malformed,
    /// The device refused it.
    Refused,
    /// The link was down.
    LinkDown,
    /// The other end was closed.
    NoPeer,
    /// A file could not be written.
    WriteFailed,
    /// Injected by the `faulty` middleware.
    Injected,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::NoBuffer, "no_buffer"),
        (Self::Missed, "missed"),
        (Self::Oversize, "oversize"),
        (Self::Malformed, "malformed"),
        (Self::Refused, "refused"),
        (Self::LinkDown, "link_down"),
        (Self::NoPeer, "no_peer"),
        (Self::WriteFailed, "write_failed"),
        (Self::Injected, "injected"),
    ];
}

/// Counters of one queue, written by the lcore that polls it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueStats {
    /// Packets received or sent.
    pub packets: Counter,
    /// Their bytes, without frame check sequence.
    pub bytes: Counter,
    /// Packets that were copied because their memory is not the port's.
    pub copied: Counter,
    /// Partial checksums that were completed.
    pub checksums_completed: Counter,
    /// Oversized frames that were cut into segments.
    pub segmented: Counter,
    /// The segments that those became.
    pub segments: Counter,
    /// Packets that went as parts of joined, unsegmented frames.
    pub joined: Counter,
    drops: [Counter; DropReason::ALL.len()],
}

impl QueueStats {
    /// New counters, for a queue and its port to share.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Counts packets and bytes that passed.
    #[inline(always)]
    pub fn passed(&self, packets: u64, bytes: u64) {
        self.packets.add(packets);
        self.bytes.add(bytes);
    }

    /// Counts packets that were dropped.
    #[inline]
    pub fn dropped(&self, reason: DropReason, packets: u64) {
        self.drops[reason as usize].add(packets);
    }

    /// Sets the count of a reason that the device itself counts.
    #[inline]
    pub fn set_dropped(&self, reason: DropReason, packets: u64) {
        self.drops[reason as usize].set(packets);
    }

    /// Packets dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].read()
    }
}

/// Counters of a port: sums over its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes, without frame check sequence.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes, without frame check sequence.
    pub tx_bytes: u64,
    /// Sent packets that had to be copied into the port's memory.
    pub tx_copied: u64,
    /// Partial checksums that were completed, on receive and transmit.
    pub checksums_completed: u64,
    /// Oversized frames that were cut.
    pub segmented: u64,
    /// The segments that those became.
    pub segments: u64,
    /// Packets that were sent as parts of joined, unsegmented frames.
    pub joined: u64,
    /// Drops on receive by reason, those that happened.
    pub rx_drops: Vec<(&'static str, u64)>,
    /// Drops on transmit by reason, those that happened.
    pub tx_drops: Vec<(&'static str, u64)>,
    /// Frames that a capture or trace of the port was to have and has not: its disk is full, or its
    /// bound reached.
    pub capture_missed: u64,
    /// What the `faulty` middleware did to packets, by kind, those that happened; losses are among
    /// the drops too.
    pub faults: Vec<(&'static str, u64)>,
    /// Why peers of a port in shared memory were cut off, by reason, those that happened.
    pub violations: Vec<(&'static str, u64)>,
    /// Notifications that such peers were sent.
    pub notifications: u64,
    /// How full the rings are now that such a port shares with its peer; none without one.
    pub rings: Vec<RingFill>,
}

/// How full a ring is in memory that a port shares with a peer, at about one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFill {
    /// `receive` or `transmit`.
    pub direction: &'static str,
    /// The queue's number in its direction.
    pub queue: u16,
    /// Entries that whoever reads has not taken: we of a receive ring, the peer of a transmit ring.
    pub waiting: u32,
    /// Entries of the ring.
    pub size: u32,
}

impl PortStats {
    /// Sums the counters of a port's queues.
    pub fn sum(rx: &[Arc<QueueStats>], tx: &[Arc<QueueStats>]) -> Self {
        let total = |queues: &[Arc<QueueStats>], read: fn(&QueueStats) -> &Counter| -> u64 {
            queues.iter().map(|queue| read(queue).read()).sum()
        };
        let drops = |queues: &[Arc<QueueStats>]| {
            let count = |reason| queues.iter().map(|queue| queue.drops(reason)).sum();
            let all = DropReason::ALL
                .iter()
                .map(|&(reason, name)| (name, count(reason)));
            all.filter(|&(_, count): &(_, u64)| count > 0).collect()
        };
        Self {
            rx_packets: total(rx, |queue| &queue.packets),
            rx_bytes: total(rx, |queue| &queue.bytes),
            tx_packets: total(tx, |queue| &queue.packets),
            tx_bytes: total(tx, |queue| &queue.bytes),
            tx_copied: total(tx, |queue| &queue.copied),
            checksums_completed: total(rx, |queue| &queue.checksums_completed)
                + total(tx, |queue| &queue.checksums_completed),
            segmented: total(tx, |queue| &queue.segmented),
            segments: total(tx, |queue| &queue.segments),
            joined: total(tx, |queue| &queue.joined),
            rx_drops: drops(rx),
            tx_drops: drops(tx),
            capture_missed: 0,
            faults: Vec::new(),
            violations: Vec::new(),
            notifications: 0,
            rings: Vec::new(),
        }
    }

    /// Adds those of another port, or of the same one before it was stopped. How full rings are
    /// now, nothing is added to.
    pub fn merge(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_copied += other.tx_copied;
        self.checksums_completed += other.checksums_completed;
        self.segmented += other.segmented;
        self.segments += other.segments;
        self.joined += other.joined;
        self.capture_missed += other.capture_missed;
        self.notifications += other.notifications;
        for (all, others) in [
            (&mut self.rx_drops, &other.rx_drops),
            (&mut self.tx_drops, &other.tx_drops),
            (&mut self.faults, &other.faults),
            (&mut self.violations, &other.violations),
        ] {
            for &(name, count) in others {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += count,
                    None => all.push((name, count)),
                }
            }
        }
    }

    /// All drops, receive and transmit.
    pub fn dropped(&self) -> u64 {
        self.rx_drops
            .iter()
            .chain(&self.tx_drops)
            .map(|(_, count)| count)
            .sum()
    }
}
