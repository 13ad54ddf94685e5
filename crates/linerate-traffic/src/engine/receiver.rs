//! One receive queue: every frame classified, every test frame checked against its stream.
//!
//! A burst is processed in two passes: over the frames, for their sizes, addresses and labels, and
//! over the labels, for the counters of the streams ([`track`](super::track)). Counts of a burst
//! are gathered on the stack and added to the shared counters once.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::arch::prefetch_read;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::port::{Counter, RxQueue, SleepOn};
use linerate_core::run::{HistogramSnapshot, Point};

use super::checks::{Checks, Found};
use super::classify::{Cast, FrameKind, is_plain, is_runt, size_classes};
use super::help::Helper;
use super::track::{
    Arrival, Boundaries, FINE_BITS, FINE_BUCKETS, FOREIGN, Seen, StreamReceived, StreamStats,
    Windows,
};
use crate::figures::SIZE_CLASSES;
use crate::signature::Label;
use crate::units::FCS_BYTES;

/// Prefetch distance in frames.
const AHEAD: usize = 8;
/// Number of streams up to which counters stay in the near caches.
const IN_CACHE: usize = 256;

/// Counters of a receive queue, all since the same moment: `packets` is the sum of `sizes`, and
/// that of `foreign` and each stream's `received()` and `earlier`.
pub struct ReceiverStats {
    /// Frames received.
    pub packets: Counter,
    /// With FCS.
    pub bytes: Counter,
    /// Frames to the broadcast address.
    pub broadcast: Counter,
    /// Frames to a multicast address.
    pub multicast: Counter,
    /// By `SIZE_CLASSES`.
    pub sizes: [Counter; SIZE_CLASSES.len()],
    /// Frames shorter than 64 bytes, FCS included.
    pub runts: Counter,
    /// ARP frames.
    pub arp: Counter,
    /// ICMP and ICMPv6.
    pub icmp: Counter,
    /// Frames without a label of this session's streams, or with an impossible one.
    pub foreign: Counter,
    /// Ticks in turns that received something.
    pub busy_ticks: Counter,
    /// Tick at which the first test frame came; 0 while none has.
    pub first_at: Counter,
    /// Tick at which the last test frame came; 0 while none has.
    pub last_at: Counter,
    /// Results of optional checks.
    pub found: Found,
    /// Fine buckets of all test frames' latencies.
    ages: Box<[Counter]>,
    streams: StreamStats,
}

impl ReceiverStats {
    fn new(streams: usize, checks: Checks) -> Self {
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
            first_at: Counter::default(),
            last_at: Counter::default(),
            found: Found::new(checks),
            ages: (0..FINE_BUCKETS).map(|_| Counter::default()).collect(),
            streams: StreamStats::new(streams),
        }
    }

    /// How many streams it has room for.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Counts of a stream at this queue.
    pub fn stream(&self, id: u16) -> StreamReceived {
        self.streams.read(usize::from(id))
    }

    /// Latencies of a stream's frames in ticks, within 6.3 %.
    pub fn stream_latency(&self, id: u16) -> HistogramSnapshot {
        self.streams.latency(usize::from(id))
    }

    /// Test frames that were sent before counting began, of all streams.
    #[cfg(test)]
    pub fn earlier(&self) -> u64 {
        self.streams.earlier()
    }

    /// Latencies of all test frames in ticks, within 0.8 %.
    pub fn latency(&self) -> HistogramSnapshot {
        let counts = self.ages.iter().map(Counter::read).collect();
        let (min, max, sum) = self.streams.age_extremes();
        HistogramSnapshot::of_counts(FINE_BITS, counts, min, max, sum)
    }
}

/// One queue's state of streams: the counters that the session reads, and private state. Made anew
/// for a [`clear`](Receiver::install), and for more streams.
pub struct Books {
    /// The counters that the session reads.
    pub stats: Arc<ReceiverStats>,
    windows: Windows,
    boundaries: Arc<Boundaries>,
    /// Version of the boundaries as followed.
    followed: u64,
    checks: Checks,
}

impl Books {
    /// Empty ones, of about 5.3 KiB for each stream, and up to 8 KiB more with few streams.
    pub fn new(boundaries: Arc<Boundaries>) -> Self {
        Self::with_checks(boundaries, Checks::default())
    }

    /// The same, for a receiver with optional checks.
    pub fn with_checks(boundaries: Arc<Boundaries>, checks: Checks) -> Self {
        Self {
            stats: Arc::new(ReceiverStats::new(boundaries.streams(), checks)),
            windows: Windows::new(boundaries.streams()),
            boundaries,
            // No version yet: the first turn follows the boundaries.
            followed: u64::MAX,
            checks,
        }
    }
}

/// One receive queue and its books.
pub struct Receiver {
    rx: Box<dyn RxQueue>,
    clock: Clock,
    /// Labels of a burst.
    seen: Box<[Seen; Burst::CAPACITY]>,
    /// Frames in a burst at most.
    pub most: usize,
    /// Answers for the port's addresses, if it has any.
    pub helper: Option<Helper>,
    /// State of the streams at this queue.
    pub books: Books,
    /// Number of its port, for taps.
    pub port: u16,
    /// Points for taps: received frames, and frames at their end.
    points: [Point; 2],
}

impl Receiver {
    /// A receiver of the queue `rx`, without a responder.
    pub fn new(rx: Box<dyn RxQueue>, books: Books, clock: Clock) -> Self {
        Self {
            rx,
            clock,
            seen: Box::new([FOREIGN; Burst::CAPACITY]),
            most: Burst::CAPACITY,
            helper: None,
            books,
            port: 0,
            points: ["pipeline", "drop"].map(Point::new),
        }
    }

    /// Its points for taps.
    pub(super) fn points(&mut self) -> &mut [Point; 2] {
        &mut self.points
    }

    /// Goes on with fresh books, all counts 0, and returns the old ones, to be freed elsewhere.
    ///
    /// A `clear` is this at every queue and then [`Boundaries::begin`] for every stream, by its
    /// sender between two frames: frames with lower numbers that still come are `earlier`, those
    /// from there on count on both sides, whenever they come. For streams sent elsewhere, `begin`
    /// with the highest `next` of the queues.
    pub fn install(&mut self, mut books: Books) -> Books {
        let (fresh, old) = (&books.stats.streams, &self.books.stats.streams);
        books.windows.carry(fresh, &self.books.windows, old);
        std::mem::replace(&mut self.books, books)
    }

    /// Follows boundaries that changed; each turn calls it, and a session may.
    pub fn follow(&mut self) {
        let version = self.books.boundaries.version();
        if version != self.books.followed {
            self.books.followed = version;
            let streams = &self.books.stats.streams;
            self.books.windows.follow(streams, &self.books.boundaries);
        }
    }

    /// Slots that its queue holds.
    pub(super) fn held(&self) -> i64 {
        self.rx.held()
    }

    /// What an idle lcore can wait for until frames come.
    pub fn sleep_on(&mut self) -> SleepOn {
        self.rx.sleep_on()
    }

    /// How long until frames come that its queue keeps for a time.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.rx.due_in()
    }

    /// Receives one burst and checks it; returns how many frames came.
    #[inline]
    pub fn turn(&mut self, cache: &mut PoolCache) -> usize {
        let mut burst = Burst::with_room(self.most);
        let came = self.rx.rx_burst(&mut burst, cache);
        // After the burst: the boundary of a received frame is published by now.
        self.follow();
        if came == 0 {
            return 0;
        }
        let now = self.clock.now();
        self.points[0].see_burst(self.port, &burst);
        let helpable = if self.books.stats.streams.len() > IN_CACHE {
            self.look::<true>(burst.as_packets(), now)
        } else {
            self.look::<false>(burst.as_packets(), now)
        };
        if self.points[1].is_watched() {
            self.show(burst.as_packets(), helpable);
        }
        self.check(came, now);
        if self.books.checks != Checks::default() {
            let found = &self.books.stats.found;
            found.look(burst.as_packets(), self.books.checks);
        }
        if let (Some(helper), true) = (&mut self.helper, helpable != 0) {
            helper.help(&mut burst, helpable, now, cache);
        }
        cache.free(&mut burst);
        came
    }

    /// Shows frames at their end, with how they were counted, except those for a responder.
    #[cold]
    fn show(&mut self, frames: &[Packet], helpable: u64) {
        let session = self.books.boundaries.session();
        for (index, packet) in frames.iter().enumerate() {
            if helpable >> index & 1 != 0 {
                continue;
            }
            let label = Label::read(packet.data()).filter(|label| label.session == session);
            let counted = match label {
                Some(Label {
                    stream, sequence, ..
                }) => {
                    format!("counted as number {sequence} of stream {stream}")
                }
                None => "counted as no frame of this session".into(),
            };
            self.points[1].show_dropped(&counted, self.port, packet);
        }
    }

    /// Classifies and counts frames, and gathers their labels. Returns which ones a responder
    /// should see, a bit each. With `MANY`, prefetches the counters to be written.
    #[inline(always)]
    fn look<const MANY: bool>(&mut self, frames: &[Packet], now: u64) -> u64 {
        let stats = &*self.books.stats;
        let streams = stats.streams.hot();
        let session = self.books.boundaries.session();
        let (mut bytes, mut any, mut odd) = (0, 0, 0u64);
        let mut lengths = [0; Burst::CAPACITY];
        let places = lengths.iter_mut().zip(self.seen.iter_mut());
        for (index, (packet, (length, seen))) in frames.iter().zip(places).enumerate() {
            if let Some(ahead) = frames.get(index + AHEAD) {
                prefetch_read(ahead.data().as_ptr());
            }
            let frame = packet.data();
            bytes += frame.len();
            any |= frame.len();
            *length = frame.len() as u16;
            if !is_plain(frame) {
                mark(&mut odd, index);
            }
            let label = Label::read(frame).filter(|label| label.session == session);
            *seen = label.map_or_else(unlabelled, |label| Seen::new(&label));
            if MANY && let Some(hot) = streams.get(seen.stream()) {
                hot.prefetch(seen.age(now));
            }
        }
        stats.packets.add(frames.len() as u64);
        stats.bytes.add((bytes + frames.len() * FCS_BYTES) as u64);
        let sizes = size_classes(frames, &mut lengths, any);
        for (total, count) in stats.sizes.iter().zip(sizes) {
            total.add(count);
        }
        let mut helpable = 0;
        while odd != 0 {
            let index = odd.trailing_zeros() as usize;
            odd &= odd - 1;
            let is_test = self.seen[index].stream() < stats.streams.len();
            if look_closer(stats, frames[index].data()) && !is_test {
                helpable |= 1 << index;
            }
        }
        helpable
    }

    /// Counts the labels of `count` frames for their streams.
    #[inline(always)]
    fn check(&mut self, count: usize, now: u64) {
        let stats = &*self.books.stats;
        let (streams, ages) = (stats.streams.hot(), &*stats.ages);
        let mut foreign = 0u64;
        for seen in &self.seen[..count.min(Burst::CAPACITY)] {
            let (stream, age) = (seen.stream(), seen.age(now));
            let Some(hot) = streams.get(stream) else {
                foreign += 1;
                continue;
            };
            if !hot.in_order(seen.sequence) {
                let change = out_of_order(stats, &mut self.books.windows, seen, age);
                foreign = foreign.wrapping_add(change);
                if change == 1 {
                    continue;
                }
            }
            ages[hot.age(age)].add(1);
        }
        if foreign != 0 {
            stats.foreign.add(foreign);
        }
        if foreign != count as u64 {
            if stats.first_at.read() == 0 {
                stats.first_at.set(now);
            }
            stats.last_at.set(now);
        }
    }
}

/// Counts a test frame that was not the next of its stream. Returns the change of the number of
/// foreign frames: 1 for a foreign one, negative if an earlier one turned out to be ours. Out of
/// line, so that the path of frames in order is short.
#[inline(never)]
fn out_of_order(stats: &ReceiverStats, windows: &mut Windows, seen: &Seen, age: u64) -> u64 {
    let stream = seen.stream();
    match windows.arrive(&stats.streams, stream, seen.sequence, age) {
        Arrival::Ours => 0,
        Arrival::Stray => 1,
        Arrival::Confirms { age } => {
            stats.ages[stats.streams.hot()[stream].age(age)].add(1);
            u64::MAX
        }
    }
}

/// Out of line, so that frames that are plain cost a jump not taken.
#[cold]
#[inline(never)]
fn mark(odd: &mut u64, index: usize) {
    *odd |= 1 << (index % 64);
}

/// A predicted branch is cheaper than a conditional move.
#[cold]
#[inline(never)]
fn unlabelled() -> Seen {
    FOREIGN
}

/// Counts a frame that is not plain by its class. Returns whether a responder should see it.
fn look_closer(stats: &ReceiverStats, frame: &[u8]) -> bool {
    stats.runts.add(u64::from(is_runt(frame.len())));
    match Cast::of(frame) {
        Cast::Unicast => {}
        Cast::Multicast => stats.multicast.add(1),
        Cast::Broadcast => stats.broadcast.add(1),
    }
    match FrameKind::of(frame) {
        FrameKind::Arp => {
            stats.arp.add(1);
            true
        }
        FrameKind::Icmp { helps } => {
            stats.icmp.add(1);
            helps
        }
        FrameKind::Other => false,
    }
}

#[cfg(test)]
mod tests;
