use std::collections::HashSet;

use super::*;
use linerate_testkit::Random;

/// One queue's books of some streams.
struct Queue {
    stats: StreamStats,
    windows: Windows,
    foreign: u64,
}

impl Queue {
    fn new(streams: usize) -> Self {
        Self {
            stats: StreamStats::new(streams),
            windows: Windows::new(streams),
            foreign: 0,
        }
    }

    /// As the receiver does.
    fn take(&mut self, stream: usize, sequence: u64, age: u64) {
        let hot = &self.stats.hot[stream];
        if !hot.in_order(sequence) {
            match self.windows.arrive(&self.stats, stream, sequence, age) {
                Arrival::Ours => {}
                Arrival::Stray => {
                    self.foreign += 1;
                    return;
                }
                Arrival::Confirms { age } => {
                    self.foreign -= 1;
                    hot.age(age);
                }
            }
        }
        hot.age(age);
        let bits: u32 = self.windows.missing[stream * self.windows.words..][..self.windows.words]
            .iter()
            .map(|word| word.count_ones())
            .sum();
        assert_eq!(u64::from(bits), self.stats.hot[stream].holes.read());
    }

    fn read(&self, stream: usize) -> StreamReceived {
        self.stats.read(stream)
    }
}

/// Frames as a path with faults delivers them: some lost, some late by less than `late`, some
/// twice.
fn faulty_path(random: &mut Random, frames: u64, late: u64) -> Vec<u64> {
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    for sequence in 0..frames {
        match random.below(20) {
            0 => {}
            1 => arrivals.push((sequence + random.below(late), sequence)),
            2 => {
                arrivals.push((sequence, sequence));
                arrivals.push((sequence + random.below(late), sequence));
            }
            _ => arrivals.push((sequence, sequence)),
        }
    }
    arrivals.sort_by_key(|&(at, _)| at);
    arrivals.into_iter().map(|(_, sequence)| sequence).collect()
}

#[test]
fn within_the_window_every_verdict_is_that_of_a_model_with_all_numbers_in_a_set() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut queue = Queue::new(8192);
        assert_eq!(window_of(8192), 1024);
        let (mut seen, mut highest) = (HashSet::new(), None);
        let (mut reordered, mut duplicates) = (0, 0);
        let frames = 5000;
        for sequence in faulty_path(&mut random, frames, 900) {
            if !seen.insert(sequence) {
                duplicates += 1;
            } else if highest > Some(sequence) {
                reordered += 1;
            }
            highest = highest.max(Some(sequence));
            queue.take(7, sequence, 1);
            let told = queue.read(7);
            let unique = seen.len() as u64;
            assert_eq!(
                (
                    told.unique,
                    told.duplicates,
                    told.reordered,
                    told.overtaken()
                ),
                (unique, duplicates, reordered, highest.unwrap() + 1 - unique),
                "seed {seed}, at {sequence}"
            );
        }
        let told = queue.read(7);
        let tally = told.tally(Some(frames), true);
        assert_eq!(tally.lost, frames - seen.len() as u64, "seed {seed}");
        assert_eq!(tally.received + tally.lost, frames + duplicates);
        assert!(tally.lost > 0 && reordered > 0 && duplicates > 0);
    }
}

#[test]
fn queues_that_share_a_stream_add_up_to_what_one_queue_would_count() {
    let mut random = Random::new(99);
    let mut queues = [Queue::new(4), Queue::new(4), Queue::new(4)];
    let mut seen = HashSet::new();
    let mut duplicates = 0;
    let frames = 20_000;
    for sequence in faulty_path(&mut random, frames, 300) {
        duplicates += u64::from(!seen.insert(sequence));
        // Like RSS: copies of a frame go to the same queue.
        queues[(sequence.wrapping_mul(0x9e37_79b9) >> 7) as usize % 3].take(2, sequence, 1);
    }
    let mut told = StreamReceived::default();
    queues.iter().for_each(|queue| told.merge(&queue.read(2)));
    assert_eq!(told.unique, seen.len() as u64);
    assert_eq!(told.duplicates, duplicates);
    let highest = seen.iter().max().unwrap() + 1;
    assert_eq!(told.overtaken(), highest - told.unique);
    assert_eq!(told.tally(Some(frames), true).lost, frames - told.unique);
}

#[test]
fn beyond_the_window_a_late_frame_is_a_duplicate_unless_holes_have_left_it() {
    let mut queue = Queue::new(8192);
    (0..5000).for_each(|sequence| queue.take(0, sequence, 1));
    queue.take(0, 3, 1);
    assert_eq!((queue.read(0).duplicates, queue.read(0).reordered), (1, 0));
    // 5000 to 5009 are missing, and leave the window one by one.
    (5010..6000).for_each(|sequence| queue.take(0, sequence, 1));
    assert_eq!(queue.stats.cold[0].expired.read(), 0);
    (6000..7000).for_each(|sequence| queue.take(0, sequence, 1));
    assert_eq!(queue.stats.cold[0].expired.read(), 10);
    assert_eq!(queue.read(0).overtaken(), 10);
    queue.take(0, 5004, 1);
    let told = queue.read(0);
    assert_eq!(
        (told.reordered, told.overtaken(), told.duplicates),
        (1, 9, 1)
    );
    assert_eq!(told.received(), 5000 + 1 + 1990 + 1);
}

#[test]
fn an_outage_longer_than_the_window_is_lost_to_the_frame() {
    let mut queue = Queue::new(1);
    let gaps = [1, 63, 64, 65, 1000, 65_535, 65_536, 65_537, 1 << 20, JUMP];
    let (mut next, mut lost) = (0, 0);
    for gap in gaps {
        (next..next + 100).for_each(|sequence| queue.take(0, sequence, 1));
        next += 100 + gap;
        lost += gap;
        queue.take(0, next, 1);
        next += 1;
        assert_eq!(queue.read(0).overtaken(), lost, "after a gap of {gap}");
        assert_eq!(queue.read(0).received(), next - lost);
    }
    assert_eq!(queue.foreign, 0);
}

#[test]
fn a_number_from_far_ahead_is_foreign_unless_the_next_frame_follows_it() {
    let mut queue = Queue::new(2);
    (0..10).for_each(|sequence| queue.take(1, sequence, 5));
    for strange in [1 << 60, u64::MAX, JUMP + 11, u64::MAX - 1, 1 << 40] {
        queue.take(1, strange, 1 << 40);
    }
    assert_eq!(queue.foreign, 5);
    (10..20).for_each(|sequence| queue.take(1, sequence, 5));
    let told = queue.read(1);
    assert_eq!((told.received(), told.overtaken(), told.next), (20, 0, 20));
    assert_eq!(
        queue.stats.latency(1).max,
        5,
        "strange latencies do not count"
    );
    // A real outage: both frames count.
    let after = 20 + 3 * JUMP;
    queue.take(1, after, 6);
    assert_eq!(queue.foreign, 6);
    queue.take(1, after + 3, 7);
    assert_eq!(queue.foreign, 5);
    let told = queue.read(1);
    assert_eq!(told.received(), 22);
    assert_eq!(told.overtaken(), 3 * JUMP + 2);
    assert_eq!(queue.stats.latency(1).total, 22);
}

#[test]
fn numbers_of_any_kind_neither_panic_nor_take_long() {
    let mut random = Random::new(5);
    let mut queue = Queue::new(4);
    for _ in 0..20_000 {
        let shift = random.below(64);
        let sequence = random.bits() >> shift;
        queue.take(random.below(4) as usize, sequence, random.bits() >> 17);
        queue.take(0, sequence.wrapping_add(random.below(3)), 0);
    }
    for sequence in [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX, 0, 1, 2] {
        queue.take(3, sequence, 0);
        queue.read(3);
    }
}

/// A sender, a path with frames under way, and receive queues over which a stream is spread.
#[test]
fn a_clear_neither_loses_nor_doubles_what_is_under_way() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let boundaries = Boundaries::new(1);
        let mut queues = [Queue::new(1), Queue::new(1)];
        let mut path: Vec<u64> = Vec::new();
        let (mut sent, mut base) = (0, 0);
        let mut arrived = 0;
        let follow = |queue: &mut Queue| queue.windows.follow(&queue.stats, &boundaries);
        for _ in 0..30 {
            for _ in 0..random.below(40) {
                path.push(sent);
                sent += 1;
            }
            if random.below(4) == 0 {
                // Each queue gets fresh books, then the sender names its boundary; frames come in
                // between.
                for queue in &mut queues {
                    let mut fresh = Queue::new(1);
                    fresh
                        .windows
                        .carry(&fresh.stats, &queue.windows, &queue.stats);
                    *queue = fresh;
                    if let Some(sequence) = path.pop() {
                        queue.take(0, sequence, 1);
                    }
                }
                boundaries.begin(0, sent);
                (base, arrived) = (sent, 0);
            }
            // Out of order, some twice, all before long.
            while path.len() > 20 {
                let at = random.below(path.len() as u64) as usize;
                let sequence = path.swap_remove(at);
                arrived += u64::from(sequence >= base);
                let queue = &mut queues[sequence as usize % 2];
                follow(queue);
                queue.take(0, sequence, 1);
            }
        }
        queues.iter_mut().for_each(follow);
        for sequence in path {
            arrived += u64::from(sequence >= base);
            queues[sequence as usize % 2].take(0, sequence, 1);
        }
        let mut told = StreamReceived::default();
        queues.iter().for_each(|queue| told.merge(&queue.read(0)));
        assert_eq!(told.received(), arrived, "seed {seed}");
        let tally = told.tally(Some(sent - base), true);
        assert_eq!((tally.lost, tally.duplicates), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_stream_of_another_process_counts_from_the_first_frame_that_comes() {
    let boundaries = Boundaries::new(1);
    boundaries.begin(0, ANYWHERE);
    let mut queue = Queue::new(1);
    queue.windows.follow(&queue.stats, &boundaries);
    assert_eq!(
        queue.read(0),
        StreamReceived {
            base: ANYWHERE,
            next: ANYWHERE,
            ..queue.read(0)
        }
    );
    assert_eq!(queue.read(0).received(), 0);
    (1 << 50..(1 << 50) + 10).for_each(|sequence| queue.take(0, sequence, 1));
    let tally = queue.read(0).tally(None, true);
    assert_eq!((tally.received, tally.lost), (10, 0));
}

#[test]
fn latencies_are_within_what_is_promised_and_jitter_is_that_of_the_rfc() {
    let mut random = Random::new(3);
    let queue = Queue::new(2);
    let mut fine = vec![0; FINE_BUCKETS];
    let mut ages: Vec<u64> = Vec::new();
    let (mut jitter, mut ipdv) = (0.0, 0);
    for sequence in 0..50_000 {
        let spread = random.below(12);
        let age = 40 + random.below(1_u64 << (4 + spread));
        if let Some(&last) = ages.last() {
            let difference = age.abs_diff(last);
            // RFC 3550 6.4.1.
            jitter += (difference as f64 - jitter) / 16.0;
            ipdv = ipdv.max(difference);
        }
        ages.push(age);
        let hot = &queue.stats.hot[1];
        assert!(hot.in_order(sequence));
        fine[hot.age(age)] += 1;
    }
    let told = queue.read(1);
    assert!(
        (told.jitter_ticks - jitter).abs() < 1.0,
        "{told:?} {jitter}"
    );
    assert_eq!(told.ipdv_max_ticks, ipdv);
    let coarse = queue.stats.latency(1);
    let (min, max, sum) = queue.stats.age_extremes();
    let fine = HistogramSnapshot::of_counts(FINE_BITS, fine, min, max, sum);
    ages.sort_unstable();
    assert_eq!((fine.min, fine.max), (ages[0], ages[49_999]));
    assert_eq!((coarse.min, coarse.max), (fine.min, fine.max));
    assert_eq!((coarse.total, coarse.sum), (50_000, ages.iter().sum()));
    assert_eq!(fine.mean(), coarse.mean());
    for percent in [0.01, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
        let rank = (50_000.0 * percent / 100.0f64).ceil() as usize;
        let truth = ages[rank.max(1) - 1];
        let fine = fine.percentile(percent);
        assert!(
            fine >= truth && fine - truth <= truth / 128,
            "{percent}: {fine} for {truth}"
        );
        let coarse = coarse.percentile(percent);
        assert!(
            coarse >= truth && coarse - truth <= (truth / 16).max(7),
            "{percent}: {coarse} for {truth}"
        );
    }
    assert_eq!(queue.read(0).received(), 0);
    assert_eq!(queue.stats.latency(0).total, 0);
}
