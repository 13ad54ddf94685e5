//! One receive queue: every frame classified, every test frame checked against its stream.
//!
//! A burst is gone through twice: once over the frames, for their sizes, addresses and labels, and
//! once over the labels, for the books of the streams ([`track`](super::track)). Counts of a burst
//! are gathered on the stack and added to the shared counters once.

use std::sync::Arc;

use linerate_core::arch::prefetch_read;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::port::{Counter, RxQueue, SleepOn};
use linerate_core::run::{HistogramSnapshot, bucket_count};

use super::classify::{Cast, Kind, is_plain, is_runt, size_class};
use super::track::{
    Arrival, Boundaries, FINE_BITS, FINE_BUCKETS, StreamReceived, StreamStats, Windows,
};
use crate::apps::pktgen::SIZE_CLASSES;
use crate::apps::pktgen::signature::Label;
use crate::apps::pktgen::units::FCS_BYTES;

/// Frames ahead whose bytes are asked for.
const AHEAD: usize = 8;

/// Counters of a receive queue, all since the same moment:
/// `packets = sum of sizes = sum over streams of received() + earlier, and foreign`.
pub(crate) struct ReceiverStats {
    pub(crate) packets: Counter,
    /// With FCS.
    pub(crate) bytes: Counter,
    pub(crate) broadcast: Counter,
    pub(crate) multicast: Counter,
    /// By `SIZE_CLASSES`.
    pub(crate) sizes: [Counter; SIZE_CLASSES.len()],
    pub(crate) runts: Counter,
    pub(crate) arp: Counter,
    /// ICMP and ICMPv6.
    pub(crate) icmp: Counter,
    /// Frames without a label of this session's streams, or with one that cannot be.
    pub(crate) foreign: Counter,
    /// Ticks in turns that received something.
    pub(crate) busy_ticks: Counter,
    /// Fine buckets of all test frames' latencies.
    ages: Box<[Counter]>,
    streams: StreamStats,
}

impl ReceiverStats {
    fn new(streams: usize) -> Self {
        const _: () = assert!(FINE_BUCKETS == bucket_count(FINE_BITS, 47));
        Self {
            packets: Counter::default(),
            bytes: Counter::default(),
            broadcast: Counter::default(),
            multicast: Counter::default(),
            sizes: Default::default(),
            runts: Counter::default(),
            arp: Counter::default(),
            icmp: Counter::default(),
            foreign: Counter::default(),
            busy_ticks: Counter::default(),
            ages: (0..FINE_BUCKETS).map(|_| Counter::default()).collect(),
            streams: StreamStats::new(streams),
        }
    }

    /// How many streams it has room for.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What came of a stream here.
    pub(crate) fn stream(&self, id: u16) -> StreamReceived {
        self.streams.read(usize::from(id))
    }

    /// Latencies of a stream's frames in ticks, within 6.3 %.
    pub(crate) fn stream_latency(&self, id: u16) -> HistogramSnapshot {
        self.streams.latency(usize::from(id))
    }

    /// Latencies of all test frames in ticks, within 0.8 %.
    pub(crate) fn latency(&self) -> HistogramSnapshot {
        let counts = self.ages.iter().map(Counter::read).collect();
        let (min, max, sum) = self.streams.age_extremes();
        HistogramSnapshot::of_counts(FINE_BITS, counts, min, max, sum)
    }
}

/// What one queue knows of streams: the counters that the session reads, and what it keeps to itself.
/// Made anew for a [`clear`](Receiver::install), and for more streams.
pub(crate) struct Books {
    pub(crate) stats: Arc<ReceiverStats>,
    windows: Windows,
    boundaries: Arc<Boundaries>,
    /// Version of the boundaries as followed.
    followed: u64,
}

impl Books {
    /// Empty ones, of about 5.3 KiB for each stream, and up to 8 KiB more with few streams.
    pub(crate) fn new(boundaries: Arc<Boundaries>) -> Self {
        Self {
            stats: Arc::new(ReceiverStats::new(boundaries.streams())),
            windows: Windows::new(boundaries.streams()),
            boundaries,
            // None yet: the first turn looks.
            followed: u64::MAX,
        }
    }
}

/// One receive queue and its books.
pub(crate) struct Receiver {
    rx: Box<dyn RxQueue>,
    clock: Clock,
    pub(crate) books: Books,
}

impl Receiver {
    pub(crate) fn new(rx: Box<dyn RxQueue>, books: Books, clock: Clock) -> Self {
        Self { rx, clock, books }
    }

    /// Goes on with fresh books, all counts 0, and returns the old ones, to be freed elsewhere.
    ///
    /// A `clear` is this at every queue and then [`Boundaries::begin`] for every stream, by its sender
    /// between two frames: frames with lower numbers that still come are `earlier`, those from there on
    /// count on both sides, whenever they come. For streams sent elsewhere, `begin` with the highest `next`
    /// of the queues.
    pub(crate) fn install(&mut self, mut books: Books) -> Books {
        let (fresh, old) = (&books.stats.streams, &self.books.stats.streams);
        books.windows.carry(fresh, &self.books.windows, old);
        std::mem::replace(&mut self.books, books)
    }

    /// Follows boundaries that changed; each turn does, and a session that wants it done calls it.
    pub(crate) fn follow(&mut self) {
        let version = self.books.boundaries.version();
        if version != self.books.followed {
            self.books.followed = version;
            let streams = &self.books.stats.streams;
            self.books.windows.follow(streams, &self.books.boundaries);
        }
    }

    /// What an idle lcore may sleep on until frames come.
    pub(crate) fn sleep_on(&mut self) -> SleepOn {
        self.rx.sleep_on()
    }

    /// Receives one burst and checks it; returns how many frames came.
    #[inline]
    pub(crate) fn turn(&mut self, cache: &mut PoolCache) -> usize {
        let mut burst = Burst::new();
        let came = self.rx.rx_burst(&mut burst, cache);
        // After the burst: a frame that came behind a boundary finds it published.
        self.follow();
        if came == 0 {
            return 0;
        }
        let now = self.clock.now();
        let mut labels = Labels::new();
        let first = self.look(burst.as_packets(), &mut labels);
        self.check(&labels, now, first);
        cache.free(&mut burst);
        self.books.stats.busy_ticks.add(self.clock.now() - now);
        came
    }

    /// Classifies and counts frames, and gathers the labels of those of known streams. Returns how many
    /// had none.
    #[inline]
    fn look(&self, packets: &[Packet], labels: &mut Labels) -> u64 {
        let stats = &*self.books.stats;
        let streams = stats.streams.len();
        let (mut bytes, mut odd) = (0, 0u64);
        let mut sizes = [0u64; 8];
        for (index, packet) in packets.iter().enumerate() {
            if let Some(ahead) = packets.get(index + AHEAD) {
                prefetch_read(ahead.data().as_ptr());
            }
            let frame = packet.data();
            bytes += frame.len();
            sizes[size_class(frame.len()) & 7] += 1;
            let plain = is_plain(frame) & !is_runt(frame.len());
            odd |= u64::from(!plain) << (index % 64);
            if let Some(label) = Label::read(frame)
                && usize::from(label.stream) < streams
            {
                labels.push(label);
            }
        }
        stats.packets.add(packets.len() as u64);
        stats.bytes.add((bytes + packets.len() * FCS_BYTES) as u64);
        for (total, count) in stats.sizes.iter().zip(sizes) {
            if count > 0 {
                total.add(count);
            }
        }
        while odd != 0 {
            let index = odd.trailing_zeros() as usize;
            odd &= odd - 1;
            self.look_closer(packets[index].data());
        }
        (packets.len() - labels.len) as u64
    }

    /// Counts what a frame is that is not plain.
    fn look_closer(&self, frame: &[u8]) {
        let stats = &*self.books.stats;
        stats.runts.add(u64::from(is_runt(frame.len())));
        match Cast::of(frame) {
            Cast::Unicast => {}
            Cast::Multicast => stats.multicast.add(1),
            Cast::Broadcast => stats.broadcast.add(1),
        }
        match Kind::of(frame) {
            Kind::Arp => stats.arp.add(1),
            Kind::Icmp { .. } => stats.icmp.add(1),
            Kind::Other => {}
        }
    }

    /// Takes test frames into the books of their streams.
    #[inline]
    fn check(&mut self, labels: &Labels, now: u64, mut foreign: u64) {
        let stats = &*self.books.stats;
        for label in &labels.labels[..labels.len] {
            let (stream, age) = (usize::from(label.stream), label.age(now));
            if !stats.streams.in_order(stream, label.sequence) {
                let windows = &mut self.books.windows;
                match windows.arrive(&stats.streams, stream, label.sequence, age) {
                    Arrival::Ours => {}
                    Arrival::Stray => {
                        foreign += 1;
                        continue;
                    }
                    Arrival::Confirms { age } => {
                        foreign = foreign.wrapping_sub(1);
                        stats.ages[stats.streams.age(stream, age)].add(1);
                    }
                }
            }
            stats.ages[stats.streams.age(stream, age)].add(1);
        }
        if foreign != 0 {
            stats.foreign.add(foreign);
        }
    }
}

/// Labels of a burst's test frames.
struct Labels {
    labels: [Label; Burst::CAPACITY],
    len: usize,
}

impl Labels {
    #[inline(always)]
    fn new() -> Self {
        let label = Label {
            stream: 0,
            sequence: 0,
            stamp: 0,
        };
        Self {
            labels: [label; Burst::CAPACITY],
            len: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(self.len) {
            *place = label;
            self.len += 1;
        }
    }
}
