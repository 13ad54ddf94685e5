//! Tracks each stream at one receive queue: order, loss, duplicates, latency and jitter.
//!
//! The lcore that receives owns [`Books`](super::Books) and is their only writer, the session reads
//! their shared half, [`ReceiverStats::stream`](super::ReceiverStats::stream), at any time, and
//! [`Boundaries`] has the first counted sequence number of each stream, for receivers.
//!
//! **Order.** A frame with the next expected number costs one comparison. A higher number makes
//! holes of those in between, kept in a bitmap over the last [`window_of`] numbers. A lower one
//! that fills a hole was reordered (RFC 4737 3.3), one that hits no hole is a duplicate. A number
//! older than the bitmap is a late first arrival while holes have left the bitmap, and a duplicate
//! otherwise. So without earlier loss each verdict is exact at any distance, and always `received =
//! unique + duplicates`.
//!
//! **Jumps.** A number more than [`JUMP`] ahead is accepted when the next frame follows it, and is
//! foreign until then, so that a damaged label neither costs time nor spoils the stream's counts.
//!
//! **Several queues.** Each tracks the numbers that come to it; sums of first arrivals, duplicates
//! and reordered frames are exact where copies of a frame come to the same queue, as with RSS.
//! Order between queues is not observable.
//!
//! **Clearing.** A clear begins each stream anew at a sequence number, its boundary, which its
//! sender names on its lcore between two frames. Frames with a lower number were sent before the
//! clear: they count for the port, and as `earlier`, and are neither received, lost nor duplicate.

use std::sync::atomic::{AtomicU64, Ordering};

use linerate_core::arch::prefetch_read;
use linerate_core::port::Counter;
use linerate_core::run::{HistogramSnapshot, bucket_count, bucket_of, bucket_upper};

use crate::figures::Tally;
use crate::signature::Label;

/// Bits of a latency in ticks: half of the 48 bits of a stamp are the future.
const AGE_BITS: u32 = 47;
/// Steps in an octave of a port's latencies: each within 1/128, 0.8 %.
pub(super) const FINE_BITS: u32 = 7;
pub(super) const FINE_BUCKETS: usize = bucket_count(FINE_BITS, AGE_BITS);
/// Fine buckets in one of a stream's: each within 1/16, 6.3 %, and 8 ticks at least.
const COARSE_SHIFT: u32 = 3;
/// Latency buckets of a stream: 5 KiB.
const COARSE_BUCKETS: usize = FINE_BUCKETS >> COARSE_SHIFT;

/// Numbers by which a stream may jump ahead at once: 16 million, a second at 100 G.
const JUMP: u64 = 1 << 24;
/// A boundary where the stream's sender is elsewhere: counting begins with the first frame that
/// comes.
pub(super) const ANYWHERE: u64 = u64::MAX;
const NONE: u64 = u64::MAX;
/// Number of streams that a label can distinguish, without the number for "no label".
pub(super) const MOST_STREAMS: usize = u16::MAX as usize;

/// A test frame's label, packed, or [`FOREIGN`].
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) sequence: u64,
    /// Stream number and 48 bits of the send time, as in the label itself.
    pub(super) last: u64,
}

/// A frame without a label: with a stream number that no session has.
pub(super) const FOREIGN: Seen = Seen {
    sequence: 0,
    last: u64::MAX,
};

impl Seen {
    #[inline(always)]
    pub(super) fn new(label: &Label) -> Self {
        Self {
            sequence: label.sequence,
            last: u64::from(label.stream) << 48 | label.stamp,
        }
    }

    #[inline(always)]
    pub(super) fn stream(&self) -> usize {
        (self.last >> 48) as usize
    }

    /// As [`Label::age`], which looks at 48 bits only.
    #[inline(always)]
    pub(super) fn age(&self, now: u64) -> u64 {
        let label = Label {
            session: 0,
            stream: 0,
            sequence: 0,
            stamp: self.last,
        };
        label.age(now)
    }
}

/// Sequence numbers back from the highest within which duplicates are always distinguished from
/// late frames: 65,536 up to 64 streams, fewer with more, 1024 at least; a bit of memory each.
pub(super) fn window_of(streams: usize) -> usize {
    let budget: usize = 1 << 22;
    (budget / streams.max(1))
        .next_power_of_two()
        .clamp(1 << 10, 1 << 16)
}

/// The first counted sequence number of every stream. Senders publish, receivers follow.
pub struct Boundaries {
    /// Frames of other sessions are foreign.
    session: u16,
    version: AtomicU64,
    first: Box<[AtomicU64]>,
}

impl Boundaries {
    /// For streams of `session` numbered below `streams`, [`MOST_STREAMS`] at most; all begin
    /// with 0.
    pub fn of_session(session: u16, streams: usize) -> Self {
        let streams = streams.min(MOST_STREAMS);
        Self {
            session,
            version: AtomicU64::new(0),
            first: (0..streams).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The same of session 0.
    pub fn new(streams: usize) -> Self {
        Self::of_session(0, streams)
    }

    /// The session whose frames count.
    pub(super) fn session(&self) -> u16 {
        self.session
    }

    /// The same for `streams` of them, as many or more, for fresh books: new ones begin with 0.
    pub fn grown(&self, streams: usize) -> Self {
        let streams = streams.min(MOST_STREAMS);
        let first = (0..streams).map(|stream| AtomicU64::new(self.first(stream)));
        Self {
            session: self.session,
            version: AtomicU64::new(self.version() + 1),
            first: first.collect(),
        }
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.first.len()
    }

    /// Frames of `stream` count from number `first` on. To be called on the lcore that sends the
    /// stream, before it sends that number; or on any thread while it is not sent. [`ANYWHERE`]
    /// where it is sent by another process.
    pub fn begin(&self, stream: u16, first: u64) {
        if let Some(boundary) = self.first.get(usize::from(stream)) {
            boundary.store(first, Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn first(&self, stream: usize) -> u64 {
        self.first
            .get(stream)
            .map_or(0, |first| first.load(Ordering::Acquire))
    }
}

/// Written with each frame: a cache line, and a count of the latencies behind it. In this order, so
/// that the first line is that of the fields.
#[repr(C, align(64))]
pub(super) struct Hot {
    /// One more than the highest received number.
    next: Counter,
    /// Numbers within the window that have not come.
    holes: Counter,
    age_sum: Counter,
    age_min: Counter,
    /// The largest less the smallest.
    age_span: Counter,
    last_age: Counter,
    /// RFC 3550 A.8: 16 times the jitter.
    jitter16: Counter,
    /// Largest difference of two successive frames' latencies.
    ipdv_max: Counter,
    ages: [Counter; COARSE_BUCKETS],
}

/// Written when something is out of order.
#[derive(Default)]
#[repr(align(64))]
struct Cold {
    /// Counting began with this number.
    base: Counter,
    /// Holes that left the window.
    expired: Counter,
    reordered: Counter,
    duplicates: Counter,
    earlier: Counter,
}

/// The shared half: one writer, any reader.
pub(super) struct StreamStats {
    hot: Box<[Hot]>,
    cold: Box<[Cold]>,
}

impl StreamStats {
    pub(super) fn new(streams: usize) -> Self {
        let hot = (0..streams).map(|_| Hot::new()).collect();
        let cold = (0..streams).map(|_| Cold::default()).collect();
        Self { hot, cold }
    }

    pub(super) fn len(&self) -> usize {
        self.hot.len()
    }

    /// Counts of one stream; zeros for an unknown one.
    pub(super) fn read(&self, stream: usize) -> StreamReceived {
        let (Some(hot), Some(cold)) = (self.hot.get(stream), self.cold.get(stream)) else {
            return StreamReceived::default();
        };
        // In this order a frame that comes meanwhile counts neither as lost nor as received before
        // it was sent.
        let (base, next) = (cold.base.read(), hot.next.read());
        let missing = hot.holes.read().wrapping_add(cold.expired.read());
        let numbers = if base == ANYWHERE {
            0
        } else {
            next - base.min(next)
        };
        StreamReceived {
            base,
            next,
            unique: numbers.saturating_sub(missing),
            reordered: cold.reordered.read(),
            duplicates: cold.duplicates.read(),
            earlier: cold.earlier.read(),
            jitter_ticks: (hot.jitter16.read() as f64) / 16.0,
            ipdv_max_ticks: hot.ipdv_max.read(),
        }
    }

    /// Latencies of one stream's frames, in ticks.
    pub(super) fn latency(&self, stream: usize) -> HistogramSnapshot {
        let Some(hot) = self.hot.get(stream) else {
            return HistogramSnapshot::default();
        };
        // A coarse bucket ends where its last fine one does. Above 128 ticks they are those of 4
        // bits.
        let mut counts = vec![0; bucket_count(FINE_BITS - COARSE_SHIFT, AGE_BITS)];
        for (index, count) in hot.ages.iter().enumerate() {
            let last = bucket_upper(FINE_BITS, ((index + 1) << COARSE_SHIFT) - 1);
            counts[bucket_of::<{ FINE_BITS - COARSE_SHIFT }>(last)] += count.read();
        }
        let (min, max) = hot.ages();
        let bits = FINE_BITS - COARSE_SHIFT;
        HistogramSnapshot::of_counts(bits, counts, min, max, hot.age_sum.read())
    }

    #[cfg(test)]
    pub(super) fn earlier(&self) -> u64 {
        self.cold.iter().map(|cold| cold.earlier.read()).sum()
    }

    /// Extremes and sum of all streams' latencies, in ticks: what a port's histogram lacks.
    pub(super) fn age_extremes(&self) -> (u64, u64, u64) {
        let start = (u64::MAX, 0, 0u64);
        self.hot.iter().fold(start, |(min, max, sum), hot| {
            let (least, most) = hot.ages();
            (
                min.min(least),
                max.max(most),
                sum.wrapping_add(hot.age_sum.read()),
            )
        })
    }

    /// Counters written with each frame, by stream: separate, so that a loop need not reload their
    /// address after each write.
    #[inline(always)]
    pub(super) fn hot(&self) -> &[Hot] {
        &self.hot
    }
}

impl Hot {
    fn new() -> Self {
        let hot = Self {
            next: Counter::default(),
            holes: Counter::default(),
            age_sum: Counter::default(),
            age_min: Counter::default(),
            age_span: Counter::default(),
            last_age: Counter::default(),
            jitter16: Counter::default(),
            ipdv_max: Counter::default(),
            ages: [const { Counter::new() }; COARSE_BUCKETS],
        };
        hot.age_min.set(u64::MAX);
        hot.last_age.set(NONE);
        hot
    }

    /// The smallest and the largest latency.
    fn ages(&self) -> (u64, u64) {
        match self.last_age.read() {
            NONE => (u64::MAX, 0),
            _ => (
                self.age_min.read(),
                self.age_min.read() + self.age_span.read(),
            ),
        }
    }

    /// Counts `sequence` if it is the expected one and none is missing; returns whether it did.
    #[inline(always)]
    pub(super) fn in_order(&self, sequence: u64) -> bool {
        let ordered = self.next.read() == sequence && self.holes.read() == 0;
        if ordered {
            self.next.set(sequence.wrapping_add(1));
        }
        ordered
    }

    /// Prefetches the cache lines that a frame of this latency writes.
    #[inline(always)]
    pub(super) fn prefetch(&self, age: u64) {
        let bucket = bucket_of::<FINE_BITS>(age) >> COARSE_SHIFT;
        prefetch_read(self);
        prefetch_read(self.ages.as_ptr().wrapping_add(bucket));
    }

    /// Counts one frame's latency; returns its fine bucket.
    #[inline(always)]
    pub(super) fn age(&self, age: u64) -> usize {
        let fine = bucket_of::<FINE_BITS>(age);
        self.ages[fine >> COARSE_SHIFT].add(1);
        self.spread(age);
        fine
    }

    #[inline(always)]
    fn spread(&self, age: u64) {
        self.age_sum.add(age);
        let last = self.last_age.read();
        self.last_age.set(age);
        if last == NONE {
            self.age_min.set(age);
            self.age_span.set(0);
            return;
        }
        // RFC 3550 A.8, in integers.
        let difference = age.abs_diff(last);
        let jitter16 = self.jitter16.read();
        self.jitter16
            .set(jitter16 + difference - ((jitter16 + 8) >> 4));
        if difference > self.ipdv_max.read() {
            self.ipdv_max.set(difference);
        }
        // A value below the smallest wraps to a large one.
        let min = self.age_min.read();
        if age.wrapping_sub(min) > self.age_span.read() {
            let max = age.max(min + self.age_span.read());
            self.age_min.set(min.min(age));
            self.age_span.set(max - min.min(age));
        }
    }
}

/// State for out-of-order frames besides the counters, private to the lcore.
pub(super) struct Windows {
    /// Words of a stream's bitmap.
    words: usize,
    /// A bit for each of the last numbers of each stream, set where it is missing; by number modulo
    /// the window.
    missing: Box<[u64]>,
    /// A number that came from far ahead, and its latency; [`NONE`] where there is none.
    strays: Box<[(u64, u64)]>,
    /// Boundaries as they were last applied.
    firsts: Box<[u64]>,
}

/// Class of an out-of-order frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Counts for its stream, or as sent before the boundary.
    Ours,
    /// Far ahead of what was expected, alone: foreign.
    Stray,
    /// Follows the stray of this latency, which thereby belongs to the stream.
    Confirms { age: u64 },
}

impl Windows {
    pub(super) fn new(streams: usize) -> Self {
        let words = window_of(streams) / 64;
        Self {
            words,
            missing: vec![0; words * streams].into(),
            strays: vec![(NONE, 0); streams].into(),
            firsts: vec![0; streams].into(),
        }
    }

    /// Counts a frame that [`Hot::in_order`] did not count.
    pub(super) fn arrive(
        &mut self,
        stats: &StreamStats,
        stream: usize,
        sequence: u64,
        age: u64,
    ) -> Arrival {
        let (hot, cold) = (&stats.hot[stream], &stats.cold[stream]);
        let mut window = Window {
            words: &mut self.missing[stream * self.words..][..self.words],
            hot,
            cold,
        };
        if cold.base.read() == ANYWHERE {
            cold.base.set(sequence);
            hot.next.set(sequence);
        }
        let next = hot.next.read();
        if sequence < next {
            window.late(sequence, next);
            return Arrival::Ours;
        }
        if sequence - next <= JUMP {
            window.advance(next, sequence);
            return Arrival::Ours;
        }
        let stray = std::mem::replace(&mut self.strays[stream], (sequence, age));
        if stray.0 == NONE || sequence <= stray.0 || sequence - stray.0 > window.len() {
            return Arrival::Stray;
        }
        self.strays[stream] = (NONE, 0);
        window.advance(next, stray.0);
        window.advance(stray.0 + 1, sequence);
        Arrival::Confirms { age: stray.1 }
    }

    /// Begins every stream in new counters where the old ones ended.
    pub(super) fn carry(&mut self, stats: &StreamStats, from: &Self, old: &StreamStats) {
        let both = self.firsts.len().min(from.firsts.len());
        self.firsts[..both].copy_from_slice(&from.firsts[..both]);
        for stream in 0..both {
            let floating = old.cold[stream].base.read() == ANYWHERE;
            let next = old.hot[stream].next.read().max(match self.firsts[stream] {
                ANYWHERE => 0,
                first => first,
            });
            stats.hot[stream].next.set(next);
            stats.cold[stream]
                .base
                .set(if floating { ANYWHERE } else { next });
        }
    }

    /// Follows the boundaries that changed.
    pub(super) fn follow(&mut self, stats: &StreamStats, boundaries: &Boundaries) {
        for (stream, seen) in self.firsts.iter_mut().enumerate() {
            let first = boundaries.first(stream);
            if first == std::mem::replace(seen, first) {
                continue;
            }
            let (hot, cold) = (&stats.hot[stream], &stats.cold[stream]);
            let counted = stats.read(stream);
            cold.earlier.add(counted.received());
            [&cold.expired, &cold.reordered, &cold.duplicates, &hot.holes]
                .iter()
                .for_each(|counter| counter.set(0));
            self.missing[stream * self.words..][..self.words].fill(0);
            self.strays[stream] = (NONE, 0);
            cold.base.set(first);
            hot.next.set(first);
        }
    }
}

/// One stream's window.
struct Window<'a> {
    words: &'a mut [u64],
    hot: &'a Hot,
    cold: &'a Cold,
}

impl Window<'_> {
    fn len(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// The word and the bit of a number.
    fn place(&self, sequence: u64) -> (usize, u64) {
        let at = sequence & (self.len() - 1);
        ((at / 64) as usize, 1 << (at % 64))
    }

    /// Counts a number below `next`.
    fn late(&mut self, sequence: u64, next: u64) {
        if sequence < self.cold.base.read() {
            self.cold.earlier.add(1);
            return;
        }
        let was_missing = if next - sequence <= self.len() {
            let (word, bit) = self.place(sequence);
            let was_missing = self.words[word] & bit != 0;
            self.words[word] &= !bit;
            self.hot
                .holes
                .set(self.hot.holes.read() - u64::from(was_missing));
            was_missing
        } else {
            let any = self.cold.expired.read();
            self.cold.expired.set(any.saturating_sub(1));
            any > 0
        };
        if was_missing {
            self.cold.reordered.add(1);
        } else {
            self.cold.duplicates.add(1);
        }
    }

    /// `sequence` came where `next` was expected: the numbers between are missing.
    fn advance(&mut self, next: u64, sequence: u64) {
        let before = self.hot.holes.read();
        let gap = sequence - next;
        // The holes of one window earlier leave by the places that the new numbers take.
        let mut left = 0;
        if gap >= self.len() {
            left = before.wrapping_add(gap - (self.len() - 1));
            self.words.fill(u64::MAX);
        } else {
            let mut number = next;
            while number < sequence {
                let (word, _) = self.place(number);
                let first = number % 64;
                let count = (64 - first).min(sequence - number);
                let mask = (u64::MAX >> (64 - count)) << first;
                left += u64::from((self.words[word] & mask).count_ones());
                self.words[word] |= mask;
                number += count;
            }
        }
        let (word, bit) = self.place(sequence);
        if gap < self.len() {
            left += u64::from(self.words[word] & bit != 0);
        }
        self.words[word] &= !bit;
        // In this order a concurrent reader never sees more frames than came.
        self.cold.expired.add(left);
        self.hot
            .holes
            .set(before.wrapping_add(gap).wrapping_sub(left));
        self.hot.next.set(sequence.wrapping_add(1));
    }
}

/// Counts of one stream at one queue, or summed over queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamReceived {
    /// Counting began with this number.
    pub base: u64,
    /// One more than the highest received number.
    pub next: u64,
    /// Numbers that came at least once.
    pub unique: u64,
    /// Frames that came after one with a later number (RFC 4737 3.3); duplicates are not among
    /// them.
    pub reordered: u64,
    /// Came again.
    pub duplicates: u64,
    /// Frames that were sent before counting began.
    pub earlier: u64,
    /// RFC 3550 6.4.1.
    pub jitter_ticks: f64,
    /// Largest difference of two successive frames' latencies.
    pub ipdv_max_ticks: u64,
}

impl StreamReceived {
    /// All received frames, with duplicates.
    pub fn received(&self) -> u64 {
        self.unique + self.duplicates
    }

    /// Adds the counts of another queue or port. The jitter is the mean, weighted by frames.
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (self.received() as f64, other.received() as f64);
        if mine + theirs > 0.0 {
            let sum = self.jitter_ticks * mine + other.jitter_ticks * theirs;
            self.jitter_ticks = sum / (mine + theirs);
        }
        // A queue without frames of the stream does not know its position.
        self.base = match (mine > 0.0, theirs > 0.0) {
            (true, true) => self.base.min(other.base),
            (false, true) => other.base,
            _ => self.base,
        };
        self.next = self.next.max(other.next);
        self.unique += other.unique;
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
        self.earlier += other.earlier;
        self.ipdv_max_ticks = self.ipdv_max_ticks.max(other.ipdv_max_ticks);
    }

    /// Numbers that later ones overtook.
    pub fn overtaken(&self) -> u64 {
        self.next
            .saturating_sub(self.base)
            .saturating_sub(self.unique)
    }

    /// The tally against `sent` frames since the same boundary; `None` where the sender is
    /// elsewhere. While frames may be under way only those overtaken count as lost; at the end
    /// (`ended`), all that did not come. More numbers than were sent means copies at another queue
    /// or port.
    pub fn tally(&self, sent: Option<u64>, ended: bool) -> Tally {
        let missing = sent.map(|sent| sent.saturating_sub(self.unique));
        let lost = match (ended, missing) {
            (true, Some(missing)) => missing,
            (false, Some(missing)) => self.overtaken().min(missing),
            (_, None) => self.overtaken(),
        };
        let copies = match sent {
            Some(sent) if ended => self.unique.saturating_sub(sent),
            _ => 0,
        };
        Tally {
            sent: sent.unwrap_or(0),
            received: self.received(),
            lost,
            reordered: self.reordered,
            duplicates: self.duplicates + copies,
        }
    }
}

#[cfg(test)]
mod tests;
