//! What attackers send: tiny segments, many holes, in the worst order. Work, slots and memory stay
//! bounded, and no byte is lost that could be kept.

use linerate_testkit::Random;

use super::super::{Reason, TINY};
use super::*;

/// A window of 64 KiB, and the limits for it.
fn usual(next: u32) -> Fixture {
    let limits = Limits::for_window(next.wrapping_add(65_535), 65_535);
    Fixture::with(next, limits, 2048, u64::MAX)
}

/// Visits and copied bytes of one segment, amortised, as the module's text grants them.
fn assert_work(fixture: &Fixture, segments: u64, slot_bytes: u64) {
    let (stats, runs) = (fixture.pieces.stats(), u64::from(fixture.limits.runs));
    let slots = slot_bytes.div_ceil(2048);
    // The search, twice or thrice where room is made; eight visits for what came in, to copy
    // together, and sixteen and one for each dropped piece, to prune.
    let visits = segments * (3 * runs + 8 * slots) + stats.pruned_pieces * 17;
    let visits = visits + u64::from(fixture.limits.pieces) * 8;
    assert!(stats.visits <= visits, "{stats:?}");
    let copied = segments * u64::from(TINY) + stats.collapsed_slots * 2 * slot_bytes;
    assert!(stats.copied_bytes <= copied + segments * 1448, "{stats:?}");
}

#[test]
fn a_window_of_one_byte_segments_finds_room_in_any_direction() {
    let mut orders: Vec<Vec<u32>> = vec![(0..65_535).collect(), (0..65_535).rev().collect()];
    // Pairs the wrong way round; the even and then the odd.
    orders.push((0..65_534).map(|at| at ^ 1).chain([65_534]).collect());
    for order in orders {
        let mut fixture = usual(7);
        for &at in &order {
            let inserted = fixture.insert(7 + at, &[byte(7 + at)]);
            assert_eq!(inserted.refused, None, "{at}");
        }
        fixture.check();
        let stats = *fixture.pieces.stats();
        assert!(fixture.queue.charged_bytes() <= fixture.limits.bytes);
        assert_work(&fixture, order.len() as u64, 2368);
        // In reverse, the last slots before the hole is filled may have been dropped.
        let got = fixture.read(1 << 17);
        let kept = 65_535 - stats.pruned_bytes as usize;
        assert!(
            got.len() >= kept && got == stream(7, got.len()),
            "{stats:?}"
        );
        if order[0] < 2 {
            assert_eq!((got.len(), stats.pruned_bytes), (65_535, 0));
        }
    }
}

#[test]
fn every_second_byte_makes_no_more_holes_than_allowed() {
    let mut fixture = usual(7);
    let segments = 30_000;
    for at in 0..segments {
        fixture.insert(8 + 2 * at, &[byte(8 + 2 * at)]);
    }
    fixture.check();
    assert!(fixture.queue.runs() <= fixture.limits.runs);
    assert!(fixture.queue.charged_bytes() <= fixture.limits.bytes);
    assert_work(&fixture, segments.into(), 2368);
    // The connection goes on: what the application waits for is kept.
    let mut next = 7;
    while next < 60_000 {
        let inserted = fixture.insert(next, &stream(next, 1000));
        assert_eq!(inserted.refused, None);
        next = fixture.queue.next();
        let got = fixture.read(65_535);
        assert_eq!(got, stream(next - got.len() as u32, got.len()));
    }
}

#[test]
fn random_tiny_segments_cost_bounded_work() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut fixture = usual(7);
        let segments = 20_000;
        for _ in 0..segments {
            let (at, len) = (random.below(65_000_u32), random.within(1..=20));
            fixture.insert(8 + at, &stream(8 + at, len));
        }
        fixture.check();
        assert!(
            fixture.queue.charged_bytes() <= fixture.limits.bytes,
            "seed {seed}"
        );
        assert_work(&fixture, segments, 2368);
        let behind = fixture.out_of_order();
        assert!(
            behind.iter().all(|&(seq, value)| value == byte(seq)),
            "seed {seed}"
        );
    }
}

#[test]
fn small_segments_in_large_slots_find_room_too() {
    // A driver with offloads receives all frames into slots of 64 KiB.
    let mut fixture = usual(7);
    let mut next = 7;
    while next < 65_000 {
        let inserted = fixture.insert_large(next, &stream(next, 300));
        assert_eq!(inserted.refused, None, "{next}");
        next += 300;
    }
    fixture.check();
    assert!(fixture.queue.charged_bytes() <= fixture.limits.bytes);
    assert!(fixture.pieces.stats().collapses > 0);
    assert_eq!(fixture.read(1 << 17), stream(7, 65_100));
}

#[test]
fn any_sizes_of_in_order_segments_fill_the_window() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let longest = random.of(&[1, 10, 257, 300, 700, 1448]);
        let mut fixture = usual(7);
        let mut at = 0;
        while at < 65_535 {
            let len = random.within(1..=longest).min(65_535 - at as usize);
            let inserted = match random.one_in(4) {
                true => fixture.insert_large(7 + at, &stream(7 + at, len)),
                false => fixture.insert(7 + at, &stream(7 + at, len)),
            };
            assert_eq!(inserted.refused, None, "seed {seed} at {at}");
            at += len as u32;
        }
        fixture.check();
        assert!(fixture.queue.charged_bytes() <= fixture.limits.bytes);
        assert_eq!(fixture.read(1 << 17), stream(7, 65_535), "seed {seed}");
    }
}

#[test]
fn full_segments_are_not_copied() {
    let mut fixture = usual(7);
    for segment in 0..45 {
        let seq = 7 + segment * 1448;
        assert_eq!(fixture.insert(seq, &stream(seq, 1448)).refused, None);
    }
    assert_eq!(fixture.pieces.stats().copied_bytes, 0);
}

#[test]
fn rfc_2018_8_the_highest_are_dropped_first_and_never_what_may_be_read() {
    let limits = Limits {
        window_end: 1 << 20,
        bytes: 10 * 2368,
        pieces: 100,
        runs: 256,
    };
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    for segment in 0..10 {
        fixture.insert(segment * 2000, &stream(segment * 2000, 1400));
    }
    assert_eq!((fixture.queue.runs(), fixture.queue.pieces()), (9, 10));
    // The highest is refused itself.
    let inserted = fixture.insert(20_000, &stream(20_000, 1400));
    assert_eq!(
        (inserted.refused, fixture.queue.pieces()),
        (Some(Reason::Bytes), 10)
    );
    // A lower one takes the highest one's place, or those of an eighth.
    let inserted = fixture.insert(1400, &stream(1400, 600));
    assert_eq!((inserted.refused, inserted.advanced_bytes), (None, 2000));
    assert_eq!((fixture.queue.runs(), fixture.queue.pieces()), (6, 9));
    assert_eq!(fixture.pieces.stats().pruned_pieces, 2);
    fixture.check();
    assert_eq!(fixture.read(9999), stream(0, 3400));
    // All can go.
    let freed = fixture
        .queue
        .drop_out_of_order(&mut fixture.pieces, &mut fixture.cache);
    assert_eq!(
        (freed, fixture.queue.runs(), fixture.queue.has_sack()),
        (6, 0, false)
    );
    fixture.check();
}

#[test]
fn a_hole_too_many_is_refused_and_those_that_are_there_are_filled() {
    let limits = Limits {
        runs: 2,
        ..Limits::for_window(65_535, 65_535)
    };
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    for at in [1000, 5000] {
        assert!(fixture.insert(at, &stream(at, 500)).is_out_of_order);
    }
    for at in [3000, 7000] {
        let inserted = fixture.insert(at, &stream(at, 500));
        assert_eq!(inserted.refused, Some(Reason::Runs));
    }
    // Whatever touches a run or RCV.NXT is no new one.
    for (at, len) in [
        (1500, 500),
        (4000, 1000),
        (2000, 2000),
        (5500, 1000),
        (0, 1000),
    ] {
        assert_eq!(fixture.insert(at, &stream(at, len)).refused, None);
    }
    assert_eq!(fixture.read(9999), stream(0, 6500));
}

#[test]
fn a_piece_that_the_segment_overlaps_is_not_dropped_for_it() {
    let limits = Limits {
        pieces: 2,
        ..Limits::for_window(65_535, 65_535)
    };
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    fixture.insert(0, &stream(0, 1400));
    fixture.insert(2000, &stream(2000, 1400));
    let inserted = fixture.insert(1400, &stream(1400, 700));
    assert_eq!(inserted.refused, Some(Reason::Pieces));
    assert_eq!(fixture.queue.out_of_order_bytes(), 1400);
    fixture.read(1400);
    assert_eq!(
        fixture.insert(1400, &stream(1400, 700)).advanced_bytes,
        2000
    );
}

#[test]
fn a_few_bytes_do_not_stay_in_a_large_slot() {
    let mut fixture = Fixture::new(0);
    fixture.insert_large(0, &stream(0, 300));
    fixture.insert_large(5000, &stream(5000, 60_000));
    let freed = fixture
        .queue
        .collapse(&mut fixture.pieces, &mut fixture.cache);
    assert_eq!((freed, fixture.queue.charged_bytes()), (0, 2368 + 65_856));
    fixture.check();
    assert_eq!(fixture.read(9999), stream(0, 300));
}

#[test]
fn a_run_is_cut_in_its_middle() {
    let limits = Limits {
        window_end: 1 << 20,
        bytes: 17 * 2368,
        pieces: 100,
        runs: 256,
    };
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    for segment in 1..18 {
        fixture.insert(segment * 1400, &stream(segment * 1400, 1400));
    }
    assert_eq!(
        fixture.insert(0, &stream(0, 1400)).advanced_bytes,
        15 * 1400
    );
    fixture.check();
    assert_eq!(fixture.read(1 << 16), stream(0, 15 * 1400));
}

#[test]
fn what_the_application_waits_for_is_kept_under_the_least_limits() {
    let limits = Limits {
        window_end: 1 << 20,
        bytes: 0,
        pieces: 0,
        runs: 0,
    };
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    assert_eq!(fixture.insert(0, &stream(0, 1400)).advanced_bytes, 1400);
    assert_eq!(
        fixture.insert(1400, &stream(1400, 1400)).refused,
        Some(Reason::Bytes)
    );
    assert_eq!(
        fixture.insert(9000, &stream(9000, 1400)).refused,
        Some(Reason::Runs)
    );
    fixture.read(1400);
    assert_eq!(
        fixture.insert(1400, &stream(1400, 1400)).advanced_bytes,
        1400
    );
}

#[test]
fn a_stack_without_room_refuses_and_loses_nothing() {
    for (count, max_bytes) in [(3, u64::MAX), (64, 3 * 2368)] {
        let limits = Limits::for_window(1 << 20, 1 << 20);
        let mut fixture = Fixture::with(0, limits, 64, max_bytes);
        fixture.pieces = Pieces::new(count, max_bytes).unwrap();
        for segment in 0..3 {
            let seq = segment * 1400;
            assert_eq!(fixture.insert(seq, &stream(seq, 1400)).refused, None);
        }
        let inserted = fixture.insert(4200, &stream(4200, 1400));
        assert_eq!(inserted.refused, Some(Reason::Stack));
        // A few bytes still go into the last slot.
        assert_eq!(fixture.insert(4200, &stream(4200, 100)).advanced_bytes, 100);
        assert_eq!(fixture.read(1400), stream(0, 1400));
        assert_eq!(fixture.insert(4300, &stream(4300, 1400)).refused, None);
        fixture.check();
        assert_eq!(fixture.read(9999), stream(1400, 4300));
    }
}

#[test]
fn an_arena_without_pieces_refuses_all() {
    let limits = Limits::for_window(1 << 20, 1 << 20);
    let mut fixture = Fixture::with(0, limits, 64, u64::MAX);
    fixture.pieces = Pieces::new(0, u64::MAX).unwrap();
    assert_eq!(fixture.insert(0, &[1]).refused, Some(Reason::Stack));
    assert_eq!(fixture.insert(5, &[1]).refused, Some(Reason::Stack));
}
