//! Senders in virtual time: tests set the clock, and nothing sleeps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use linerate_core::packet::{PoolConfig, Pools};
use linerate_core::port::pcapng::{Direction, PcapngWriter, Record};
use linerate_wire::ethernet::MacAddr;

use super::*;
use crate::engine::{MOST_BYTES, Recording, Replay};
use crate::signature::Label;
use crate::stream::{Stream, StreamSpec};

/// A tick is a nanosecond.
const HZ: f64 = 1e9;
const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// What a queue took, in order.
type Taken = Arc<Mutex<Vec<Label>>>;

/// A queue that takes as many frames as it is allowed to, each time and in all.
struct Gate {
    taken: Taken,
    at_a_time: Arc<Mutex<usize>>,
}

impl TxQueue for Gate {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len().min(*self.at_a_time.lock().unwrap());
        let mut taken = self.taken.lock().unwrap();
        let labels = burst
            .iter()
            .take(count)
            .map(|packet| Label::read(packet.data()));
        taken.extend(labels.map(|label| label.expect("a test frame")));
        cache.free_front(burst, count);
        count
    }
}

struct Fixture {
    sender: Sender,
    cache: PoolCache,
    taken: Taken,
    at_a_time: Arc<Mutex<usize>>,
    sent: Vec<Arc<StreamSent>>,
}

fn stream(id: u16) -> Stream {
    let spec: StreamSpec = "size=64".parse().unwrap();
    spec.compile(id, MacAddr::local(1), MacAddr::local(2), 1)
        .unwrap()
}

/// A stream's sent, intended and unsent frames.
fn books(stats: &StreamSent) -> (u64, u64, u64) {
    (
        stats.packets.read(),
        stats.intended.read(),
        stats.unsent.read(),
    )
}

impl Fixture {
    /// Streams of these rates.
    fn new(rates: &[Option<f64>]) -> Self {
        let mut fixture = Self::empty(1024);
        for &pps in rates {
            fixture.add(pps, None, same);
        }
        fixture
    }

    fn empty(slots: u32) -> Self {
        let pool = Pool::new(&PoolConfig::new("test", slots)).unwrap();
        let pools = Pools::new(vec![pool.clone()]);
        let (taken, at_a_time) = (Taken::default(), Arc::new(Mutex::new(usize::MAX)));
        let gate = Gate {
            taken: taken.clone(),
            at_a_time: at_a_time.clone(),
        };
        Self {
            sender: Sender::new(Box::new(gate), pool, HZ),
            cache: PoolCache::new(pools.as_slice()),
            taken,
            at_a_time,
            sent: Vec::new(),
        }
    }

    fn add(
        &mut self,
        pps: Option<f64>,
        count: Option<u64>,
        make: impl Fn(ScheduledStream) -> ScheduledStream,
    ) {
        let (id, stats) = (self.sent.len() as u16, Arc::<StreamSent>::default());
        self.sent.push(stats.clone());
        let stream = ScheduledStream::new(stream(id), pps, count, stats);
        self.sender.streams.push(make(stream));
    }

    /// One stream of `pps`.
    fn one(pps: f64) -> Self {
        Self::new(&[Some(pps)])
    }

    fn start(&mut self, lasts: impl Into<Option<Duration>>) {
        self.sender.start(0, lasts.into()).unwrap();
    }

    fn turn(&mut self, now: u64) -> usize {
        self.sender.turn(now, &mut self.cache)
    }

    /// A turn each `step` ticks until `end`.
    fn run(&mut self, from: u64, end: u64, step: u64) {
        for now in (from..end).step_by(step as usize) {
            self.turn(now);
        }
    }

    fn gate(&self, at_a_time: usize) {
        *self.at_a_time.lock().unwrap() = at_a_time;
    }

    fn taken(&self) -> Vec<Label> {
        self.taken.lock().unwrap().clone()
    }

    fn books(&self, stream: usize) -> (u64, u64, u64) {
        books(&self.sent[stream])
    }

    fn is_done(&self) -> bool {
        self.sender.stats.done.read() == 1
    }
}

fn same(stream: ScheduledStream) -> ScheduledStream {
    stream
}

#[test]
fn a_second_at_an_odd_rate_sends_exactly_its_frames_at_their_times() {
    let mut fixture = Fixture::one(12_345.67);
    fixture.start(SECOND);
    fixture.run(0, 1000 * MS + 2, 700);
    assert!(fixture.is_done());
    assert_eq!(fixture.books(0), (12_345, 12_345, 0));
    for (number, label) in (0u64..).zip(fixture.taken()) {
        assert_eq!(label.sequence, number);
        let wanted = number as f64 * HZ / 12_345.67;
        assert!((label.stamp as f64 - wanted).abs() <= 1.0, "frame {number}");
    }
    assert_eq!(fixture.sent[0].bytes.read(), 12_345 * 64);
    // Frames went at most 700 ns late, in time with the turns.
    let errors = fixture.sender.stats.departure_error.snapshot();
    assert_eq!(errors.total, 12_344);
    assert!(errors.max <= 700);
}

#[test]
fn nothing_goes_before_its_time_or_twice_at_one() {
    let mut fixture = Fixture::one(1000.0);
    fixture.sender.start(5 * MS, None).unwrap();
    for (now, sent) in [
        (0, 0),
        (5 * MS - 1, 0),
        (5 * MS, 1),
        (5 * MS, 0),
        (6 * MS, 1),
        (8 * MS, 2),
    ] {
        assert_eq!(fixture.turn(now), sent, "at {now}");
    }
    assert_eq!(fixture.sender.next_due(), Some(9 * MS));
    fixture.sender.stop(8 * MS + 1);
    assert_eq!(
        (fixture.books(0), fixture.sender.next_due()),
        ((4, 4, 0), None)
    );
    assert_eq!(fixture.turn(20 * MS), 0);
}

#[test]
fn a_refusing_queue_delays_frames_in_order_with_their_times() {
    let mut fixture = Fixture::one(1e6);
    fixture.start(Duration::from_millis(1));
    fixture.gate(0);
    fixture.run(0, 500 * US, 1000);
    assert_eq!(fixture.taken(), []);
    fixture.gate(3);
    fixture.run(500 * US, 2 * MS, 1000);
    assert_eq!(fixture.books(0), (1000, 1000, 0));
    for (number, label) in (0u64..).zip(fixture.taken()) {
        assert_eq!((label.sequence, label.stamp), (number, number * US));
    }
    assert!(fixture.sender.stats.refused.read() > 500);
}

#[test]
fn what_is_overdue_is_unsent_and_leaves_no_hole_in_the_numbers() {
    let mut fixture = Fixture::one(1e6);
    fixture.sender.give_up_after(Duration::from_millis(1));
    fixture.start(Duration::from_millis(20));
    fixture.run(0, 5 * MS, 1000);
    fixture.gate(0);
    fixture.run(5 * MS, 10 * MS, 1000);
    fixture.gate(usize::MAX);
    fixture.run(10 * MS, 22 * MS, 1000);
    assert!(fixture.is_done());
    let (sent, intended, unsent) = fixture.books(0);
    assert_eq!((intended, sent + unsent), (20_000, 20_000));
    // Nothing was sent for 5 ms; frames at most 1 ms late at the end of that were sent then.
    assert_eq!(unsent, 4000);
    let taken = fixture.taken();
    assert_eq!(taken.len() as u64, sent);
    for (number, label) in (0u64..).zip(&taken) {
        assert_eq!(label.sequence, number);
    }
    assert!(
        taken.is_sorted_by(|a, b| a.stamp < b.stamp),
        "each has its own time"
    );
    let gone = taken
        .iter()
        .position(|label| label.stamp >= 9 * MS)
        .unwrap();
    assert_eq!((gone, taken[gone].stamp), (5000, 9 * MS));
}

#[test]
fn a_dead_queue_ends_by_itself_with_everything_unsent() {
    let mut fixture = Fixture::new(&[Some(1e6), Some(1234.5)]);
    fixture.gate(0);
    fixture.start(SECOND);
    let mut now = 0;
    while !fixture.is_done() {
        now += 100 * US;
        fixture.turn(now);
    }
    assert!(now <= 1011 * MS, "ended at {now}");
    assert_eq!(fixture.books(0), (0, 1_000_000, 1_000_000));
    assert_eq!(fixture.books(1), (0, 1234, 1234));
    assert_eq!(fixture.cache.held_total() % 64, 0, "slots came back");
}

#[test]
fn as_many_go_as_were_asked_for_whatever_was_given_up_on_the_way() {
    // Alone, and sharing a rate; the queue takes nothing for 30 ms.
    for rates in [&[Some(1e6)][..], &[None, None]] {
        let mut fixture = Fixture::empty(1024);
        for &rate in rates {
            fixture.add(rate, Some(50_000), same);
        }
        fixture.sender.share(Pace::even(Some(1e6)), 0);
        fixture.sender.start(0, None).unwrap();
        fixture.run(0, 10 * MS, 500);
        fixture.gate(0);
        fixture.run(10 * MS, 40 * MS, 500);
        fixture.gate(64);
        fixture.run(40 * MS, 200 * MS, 500);
        assert!(fixture.is_done());
        for stream in 0..rates.len() {
            let (sent, intended, unsent) = fixture.books(stream);
            assert_eq!((sent, intended), (50_000, sent + unsent));
            assert!(unsent > 5000, "{unsent}");
        }
    }
}

#[test]
fn a_dead_queue_ends_a_count_too() {
    let mut fixture = Fixture::empty(1024);
    fixture.add(Some(1e6), Some(5000), same);
    fixture.add(None, Some(3000), same);
    fixture.sender.share(Pace::even(Some(1e6)), 0);
    fixture.gate(0);
    fixture.sender.start(0, None).unwrap();
    fixture.run(0, 40 * MS, 10 * US);
    assert!(fixture.is_done());
    // Once for those asked for, and once for those that were to make up for them.
    assert_eq!(fixture.books(0), (0, 10_000, 10_000));
    assert_eq!(fixture.books(1), (0, 6000, 6000));
}

#[test]
fn the_time_of_sending_ends_where_the_last_frames_interval_does() {
    let ticks = |fixture: &Fixture, now| fixture.sender.stats.sending_ticks(now);
    let mut fixture = Fixture::empty(1024);
    fixture.add(Some(1e6), Some(10), same);
    fixture.sender.start(5 * MS, None).unwrap();
    assert_eq!(ticks(&fixture, 0), 0);
    fixture.run(0, 5 * MS + 4 * US, 500);
    assert_eq!(ticks(&fixture, 5 * MS + 4 * US), 4 * US);
    fixture.run(5 * MS + 4 * US, 90 * MS, 500);
    assert_eq!(
        (fixture.books(0).0, ticks(&fixture, 90 * MS)),
        (10, 10 * US)
    );
    // A second time: all of both. With a duration it is the duration.
    fixture
        .sender
        .start(100 * MS, Some(Duration::from_micros(7)))
        .unwrap();
    fixture.run(90 * MS, 120 * MS, 500);
    assert_eq!(
        (fixture.books(0).0, ticks(&fixture, 120 * MS)),
        (17, 17 * US)
    );
    // After `stop` it ends there.
    let mut fixture = Fixture::one(1e6);
    fixture.sender.start(0, None).unwrap();
    fixture.run(0, MS, 500);
    fixture.sender.stop(MS);
    assert_eq!(ticks(&fixture, 2 * MS), MS);
}

#[test]
fn a_stolen_cpu_is_caught_up_within_the_limit_and_not_taken_for_bad_pacing() {
    let mut fixture = Fixture::one(1e6);
    fixture.start(Duration::from_millis(100));
    fixture.run(0, 10 * MS, 500);
    // A gap of 8 ms is caught up, one of 30 ms is not.
    fixture.run(18 * MS, 40 * MS, 500);
    fixture.run(70 * MS, 112 * MS, 500);
    let (sent, intended, unsent) = fixture.books(0);
    assert_eq!((intended, sent + unsent), (100_000, 100_000));
    assert!((19_990..=20_010).contains(&unsent), "{unsent}");
    let errors = fixture.sender.stats.departure_error.snapshot();
    let stolen = fixture.sender.stats.departures_stolen.read();
    assert!(stolen > 8000 + 10_000, "{stolen}");
    assert_eq!(errors.total + stolen + 1, sent);
    assert!(errors.max <= 500, "{}", errors.max);
}

#[test]
fn a_prefix_of_a_mixed_burst_is_credited_to_the_streams_it_is_of() {
    for seed in 0..20 {
        let mut fixture = Fixture::new(&[Some(3e6), Some(1e6), Some(700_000.0)]);
        fixture.sender.give_up_after(Duration::from_micros(40));
        fixture.start(Duration::from_millis(2));
        let mut word: u64 = seed + 1;
        for now in (0..3 * MS).step_by(700) {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            fixture.gate((word % 5) as usize);
            fixture.turn(now);
        }
        assert!(fixture.is_done(), "seed {seed}");
        let mut counts = HashMap::<u16, Vec<u64>>::new();
        for label in fixture.taken() {
            counts.entry(label.stream).or_default().push(label.sequence);
        }
        for (stream, intended) in [6000, 2000, 1400].into_iter().enumerate() {
            let books = fixture.books(stream);
            let sequences = counts.remove(&(stream as u16)).unwrap_or_default();
            assert_eq!(books.0, sequences.len() as u64, "seed {seed}");
            assert_eq!(
                (books.1, books.0 + books.2),
                (intended, intended),
                "seed {seed}"
            );
            assert!(books.2 > 0, "seed {seed}: nothing was given up");
            let in_order: Vec<u64> = (0..books.0).collect();
            assert_eq!(sequences, in_order, "seed {seed}, stream {stream}");
            assert_eq!(fixture.sent[stream].bytes.read(), books.0 * 64);
        }
        assert_eq!(
            fixture.sender.stats.packets.read(),
            fixture.taken().len() as u64
        );
    }
}

#[test]
fn counts_end_lanes_and_then_the_sender() {
    let mut fixture = Fixture::empty(1024);
    fixture.add(Some(1e6), Some(10), same);
    fixture.add(None, Some(1000), same);
    fixture.add(None, Some(7), |stream| stream.weight(3));
    fixture.start(None);
    assert!(!fixture.is_done());
    fixture.run(0, MS, 1000);
    assert!(fixture.is_done());
    for (stream, count) in [10, 1000, 7].into_iter().enumerate() {
        assert_eq!(fixture.books(stream), (count, count, 0));
    }
    // Again: the numbers go on.
    fixture.sender.start(2 * MS, None).unwrap();
    fixture.run(2 * MS, 3 * MS, 1000);
    assert_eq!(fixture.books(1), (2000, 2000, 0));
    let last = fixture.taken().into_iter().rfind(|label| label.stream == 1);
    assert_eq!(last.unwrap().sequence, 1999);
}

#[test]
fn shared_rates_are_divided_by_weight_exactly_and_interleaved() {
    for pace in [Pace::even(Some(1.2e6)), Pace::even(None)] {
        let mut fixture = Fixture::empty(1024);
        for weight in [28, 16, 4, 0] {
            fixture.add(None, None, |stream| stream.weight(weight));
        }
        fixture.add(None, None, |stream| stream.enabled(false));
        fixture.sender.share(pace, 0);
        fixture.start(Duration::from_millis(10));
        let mut now = 0;
        while fixture.taken().len() < 1200 {
            fixture.turn(now);
            now += 3 * US;
        }
        let taken = fixture.taken();
        let of = |stream| {
            taken[..1200]
                .iter()
                .filter(|label| label.stream == stream)
                .count()
        };
        assert_eq!([0, 1, 2, 3, 4].map(of), [700, 400, 100, 0, 0]);
        for part in taken[..1200].chunks(12) {
            assert_eq!(part.iter().filter(|label| label.stream == 2).count(), 1);
        }
    }
}

#[test]
fn five_thousand_streams_with_rates_of_their_own_are_all_served() {
    let mut fixture = Fixture::empty(1024);
    for stream in 0..5000 {
        fixture.add(Some(100.0 + f64::from(stream)), None, same);
    }
    fixture.start(Duration::from_millis(100));
    fixture.run(0, 111 * MS, 3 * US);
    assert!(fixture.is_done());
    for stream in 0..5000usize {
        let frames = (100 + stream as u64) / 10;
        assert_eq!(
            fixture.books(stream),
            (frames, frames, 0),
            "stream {stream}"
        );
    }
    // Overall in the order of their times.
    assert!(fixture.taken().is_sorted_by_key(|label| label.stamp));
}

#[test]
fn five_thousand_streams_that_share_a_rate_get_the_same() {
    let mut fixture = Fixture::empty(1024);
    (0..5000).for_each(|_| fixture.add(None, None, same));
    fixture.sender.share(Pace::even(Some(5e6)), 0);
    fixture.start(Duration::from_millis(10));
    fixture.run(0, 21 * MS, 3 * US);
    assert!(fixture.is_done());
    for stream in 0..5000 {
        assert_eq!(fixture.books(stream), (10, 10, 0), "stream {stream}");
    }
}

#[test]
fn bursts_go_back_to_back() {
    let mut fixture = Fixture::empty(1024);
    fixture.add(Some(32_000.0), None, |stream| {
        stream.burst(32).delay(Duration::from_millis(1))
    });
    fixture.start(Duration::from_millis(11));
    let mut bursts = Vec::new();
    for now in (0..12 * MS).step_by(10_000) {
        let sent = fixture.turn(now);
        if sent > 0 {
            bursts.push((now, sent));
        }
    }
    let wanted: Vec<_> = (1..=10).map(|ms| (ms * MS, 32)).collect();
    assert_eq!(bursts, wanted);
}

#[test]
fn as_many_as_go_is_what_the_queue_takes_and_never_unsent() {
    let mut fixture = Fixture::new(&[None]);
    fixture.start(Duration::from_millis(1));
    fixture.gate(5);
    fixture.run(0, 2 * MS, 1000);
    assert!(fixture.is_done());
    assert_eq!(fixture.books(0), (5000, 5000, 0));
    let sequences: Vec<u64> = fixture.taken().iter().map(|label| label.sequence).collect();
    assert_eq!(sequences, (0..5000).collect::<Vec<u64>>());
    // The next run continues after the last frame that the queue took, not after the last one
    // written.
    fixture.sender.start(3 * MS, Some(SECOND)).unwrap();
    fixture.turn(3 * MS);
    assert_eq!(fixture.taken()[5000].sequence, 5000);
}

#[test]
fn a_pool_that_is_empty_delays_frames_and_says_so() {
    let mut fixture = Fixture::one(1e6);
    fixture.start(Duration::from_millis(1));
    let mut hoard = Vec::new();
    while let Some(packet) = fixture.cache.get(&fixture.sender.pool.clone()) {
        hoard.push(packet);
    }
    fixture.run(0, 100 * US, 1000);
    assert_eq!(fixture.taken(), []);
    assert!(fixture.sender.stats.no_slot.read() > 0);
    drop(hoard);
    fixture.run(100 * US, 2 * MS, 1000);
    assert_eq!(fixture.books(0), (1000, 1000, 0));
    assert!(fixture.taken().is_sorted_by_key(|label| label.stamp));
}

#[test]
fn a_rate_beyond_reach_shows_as_unsent() {
    // A turn each 10 us can send 6.4 Mpps at most.
    let mut fixture = Fixture::one(1e9);
    fixture.start(Duration::from_millis(20));
    fixture.run(0, 31 * MS, 10 * US);
    assert!(fixture.is_done());
    let (sent, intended, unsent) = fixture.books(0);
    assert_eq!((intended, sent + unsent), (20_000_000, 20_000_000));
    assert!((100_000..250_000).contains(&sent), "{sent}");
    // Shared by two, likewise.
    let mut fixture = Fixture::new(&[None, None]);
    fixture.sender.share(Pace::even(Some(1e9)), 0);
    fixture.start(Duration::from_millis(20));
    fixture.run(0, 31 * MS, 10 * US);
    let (a, b) = (fixture.books(0), fixture.books(1));
    assert_eq!((a.1 + b.1, a.0 + a.2 + b.0 + b.2), (20_000_000, 20_000_000));
    assert!(a.1.abs_diff(b.1) <= 1);
}

#[test]
fn a_lane_is_replaced_while_it_runs() {
    let mut fixture = Fixture::new(&[Some(1e6), Some(10_000.0)]);
    fixture.start(Duration::from_millis(10));
    fixture.run(0, 4 * MS, 1000);
    let slower = ScheduledStream::new(stream(0), Some(500_000.0), None, Arc::default());
    fixture.sender.replace(0, slower, 4 * MS).unwrap();
    fixture.run(4 * MS, 8 * MS, 1000);
    let off = ScheduledStream::new(stream(0), Some(1.0), None, Arc::default()).enabled(false);
    fixture.sender.replace(0, off, 8 * MS).unwrap();
    fixture.run(8 * MS, 12 * MS, 1000);
    assert!(fixture.is_done());
    // 4 ms at 1 Mpps, 4 ms at 0.5 Mpps, and none; the other stream does not notice.
    assert_eq!(
        (fixture.books(0), fixture.books(1)),
        ((6000, 6000, 0), (100, 100, 0))
    );
    let taken = fixture.taken();
    let own = taken.iter().filter(|label| label.stream == 0);
    for (number, label) in (0..).zip(own) {
        let wanted = if number < 4000 {
            number * US
        } else {
            4 * MS + (number - 4000) * 2 * US
        };
        assert_eq!((label.sequence, label.stamp), (number, wanted));
    }
}

#[test]
fn a_count_is_kept_when_the_rate_changes() {
    let mut fixture = Fixture::empty(1024);
    fixture.add(Some(1e6), Some(1000), same);
    fixture.start(None);
    fixture.run(0, 300 * US, 1000);
    let faster = ScheduledStream::new(stream(0), None, Some(1000), Arc::default());
    fixture.sender.replace(0, faster, 300 * US).unwrap();
    fixture.run(300 * US, MS, 1000);
    assert!(fixture.is_done());
    assert_eq!(fixture.books(0), (1000, 1000, 0));
}

#[test]
fn the_ports_rate_is_changed_while_it_runs() {
    let mut fixture = Fixture::new(&[None, None]);
    fixture.sender.share(Pace::even(Some(1e6)), 0);
    fixture.start(Duration::from_millis(10));
    fixture.run(0, 5 * MS, 1000);
    fixture.sender.share(Pace::even(Some(200_000.0)), 5 * MS);
    fixture.run(5 * MS, 12 * MS, 1000);
    assert_eq!(
        (fixture.books(0), fixture.books(1)),
        ((3000, 3000, 0), (3000, 3000, 0))
    );
}

#[test]
fn a_stop_leaves_what_is_due_unsent_and_what_is_not_due_unintended() {
    let mut fixture = Fixture::one(1e6);
    fixture.gate(0);
    fixture.start(SECOND);
    fixture.run(0, 100 * US, 1000);
    fixture.sender.stop(150 * US);
    assert_eq!(fixture.books(0), (0, 151, 151));
    assert!(fixture.is_done());
}

/// A recording of frames of 60 bytes, so many ns apart.
fn recording(gaps_ns: &[u64]) -> Arc<Recording> {
    let folder = linerate_core::env::PrivateFolder::new("sender").unwrap();
    let path = folder.join("recording.pcapng");
    let mut writer = PcapngWriter::new(std::fs::File::create(&path).unwrap(), "test");
    let interface = writer.add_interface("test", 0).unwrap();
    let mut timestamp_ns = 1_000_000_000;
    for (number, gap) in (0u8..).zip([0].iter().chain(gaps_ns)) {
        timestamp_ns += gap;
        let record = Record {
            interface,
            timestamp_ns,
            direction: Direction::Inbound,
            frame: &[number; 60],
            comment: "",
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    Arc::new(Recording::load(&path, MOST_BYTES, 1514).unwrap())
}

#[test]
fn a_recording_is_sent_at_its_times_beside_other_streams() {
    let gaps = [100, 900, 1_000_000, 5, 5_000];
    for (speed, passes) in [(1.0, Some(2)), (4.0, Some(1))] {
        let mut fixture = Fixture::one(10_000.0);
        let stats = Arc::<StreamSent>::default();
        let replay = Replay::new(recording(&gaps), 7, true, Some(speed), passes).unwrap();
        let stream = ScheduledStream::new(replay, None, None, stats.clone());
        fixture.sender.add(stream, 0).unwrap();
        fixture.start(Duration::from_millis(3));
        fixture.run(0, 14 * MS, 50);
        assert!(fixture.is_done());
        assert_eq!(fixture.books(0), (30, 30, 0));
        let frames = 6 * passes.unwrap();
        assert_eq!(books(&stats), (frames, frames, 0));
        let mut wanted = 0.0;
        let own = fixture
            .taken()
            .into_iter()
            .filter(|label| label.stream == 7);
        for (number, label) in (0usize..).zip(own) {
            if number > 0 {
                // Between two passes lies the mean gap.
                let gap = gaps.get((number - 1) % 6).copied().unwrap_or(1_006_005 / 5);
                wanted += gap as f64 / speed;
            }
            assert_eq!(label.sequence, number as u64);
            assert!(
                (label.stamp as f64 - wanted).abs() <= 3.0,
                "{number}: {label:?}"
            );
        }
    }
}

/// What a queue took of frames without signatures: their first bytes.
struct First(Arc<Mutex<Vec<u8>>>, bool);

impl TxQueue for First {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        // Takes nothing each second time.
        self.1 = !self.1;
        let count = if self.1 { burst.len().min(2) } else { 0 };
        let first = burst.iter().take(count).map(|packet| packet.data()[0]);
        self.0.lock().unwrap().extend(first);
        cache.free_front(burst, count);
        count
    }
}

#[test]
fn recorded_frames_that_are_overdue_are_left_out_and_the_others_keep_their_order() {
    let mut fixture = Fixture::empty(1024);
    let taken = Arc::new(Mutex::new(Vec::new()));
    fixture.sender.tx = Box::new(First(taken.clone(), true));
    let stats = Arc::<StreamSent>::default();
    let gaps = [1000; 99];
    let replay = Replay::new(recording(&gaps), 7, false, Some(1.0), Some(1)).unwrap();
    fixture
        .sender
        .streams
        .push(ScheduledStream::new(replay, None, None, stats.clone()));
    fixture.sender.give_up_after(Duration::from_micros(10));
    fixture.start(None);
    // The CPU is away from frame 40 to frame 70: those of the last 10 us may go,
    // but the queue refuses the first.
    fixture.run(0, 40 * US, 500);
    fixture.run(70 * US, 200 * US, 500);
    assert!(fixture.is_done());
    let wanted: Vec<u8> = (0..40).chain(61..100).collect();
    let taken = taken.lock().unwrap().clone();
    assert_eq!(taken, wanted);
    assert_eq!(books(&stats), (79, 100, 21));
}
