//! Segments one by one: order, overlaps, windows, and the ways to read.

use std::io::IoSliceMut;

use super::super::{Reason, TINY};
use super::*;

/// Just before the numbers wrap.
const NEXT: u32 = u32::MAX - 999;

#[test]
fn in_order_segments_are_read_as_they_came() {
    let mut fixture = Fixture::new(NEXT);
    for segment in 0..3 {
        let seq = NEXT.wrapping_add(segment * 1448);
        let inserted = fixture.insert(seq, &stream(seq, 1448));
        assert_eq!(
            inserted,
            Inserted {
                advanced_bytes: 1448,
                ..Inserted::default()
            }
        );
        fixture.check();
    }
    assert_eq!(fixture.queue.next(), NEXT.wrapping_add(3 * 1448));
    assert_eq!(
        (fixture.queue.readable(), fixture.queue.pieces()),
        (3 * 1448, 3)
    );
    assert_eq!(fixture.read(100), stream(NEXT, 100));
    assert_eq!(
        fixture.read(5000),
        stream(NEXT.wrapping_add(100), 3 * 1448 - 100)
    );
    assert!(fixture.queue.is_empty());
}

#[test]
fn rfc_9293_3_10_7_4_out_of_order_segments_wait_for_the_hole() {
    let mut fixture = Fixture::new(NEXT);
    for segment in [3, 1, 2] {
        let seq = NEXT.wrapping_add(segment * 1000);
        let inserted = fixture.insert(seq, &stream(seq, 1000));
        assert!(inserted.is_out_of_order && inserted.advanced_bytes == 0);
        fixture.check();
    }
    assert_eq!(
        (fixture.queue.runs(), fixture.queue.out_of_order_bytes()),
        (1, 3000)
    );
    assert!(fixture.read(10).is_empty());
    let inserted = fixture.insert(NEXT, &stream(NEXT, 1000));
    assert_eq!(inserted.advanced_bytes, 4000);
    assert!(inserted.filled_hole && !inserted.is_out_of_order);
    assert_eq!(fixture.read(9999), stream(NEXT, 4000));
}

#[test]
fn rfc_5681_4_2_a_hole_that_is_filled_in_part_is_said_so() {
    let mut fixture = Fixture::new(0);
    fixture.insert(3000, &stream(3000, 1000));
    assert!(fixture.insert(0, &stream(0, 1000)).filled_hole);
    assert!(fixture.insert(1000, &stream(1000, 1000)).filled_hole);
    assert!(fixture.insert(2000, &stream(2000, 1000)).filled_hole);
    assert!(!fixture.insert(4000, &stream(4000, 1000)).filled_hole);
    assert_eq!(fixture.read(9999), stream(0, 5000));
}

#[test]
fn bytes_that_came_first_stay_in_any_overlap() {
    // (from, to) of old parts, and of the new one, which has other bytes.
    type Case = (&'static [(u32, u32)], (u32, u32));
    let cases: [Case; 9] = [
        (&[(1000, 2000)], (500, 2500)),
        (&[(1000, 2000)], (1500, 2500)),
        (&[(1000, 2000)], (500, 1500)),
        (&[(1000, 2000)], (1000, 2000)),
        (&[(1000, 2000)], (0, 1800)),
        (&[(0, 1000)], (0, 2000)),
        (&[(1000, 1400), (1600, 2000)], (500, 2300)),
        (&[(1000, 1400), (1600, 2000)], (1200, 1800)),
        (&[(1000, 1400), (1400, 2000), (2200, 2300)], (0, 1700)),
    ];
    for (old, (from, to)) in cases {
        let mut fixture = Fixture::new(NEXT);
        let mut expected = vec![None; 3000];
        for (part, &(from, to)) in old.iter().enumerate() {
            let bytes = vec![part as u8 + 1; (to - from) as usize];
            fixture.insert(NEXT.wrapping_add(from), &bytes);
            expected[from as usize..to as usize].fill(Some(part as u8 + 1));
        }
        fixture.insert(NEXT.wrapping_add(from), &vec![9; (to - from) as usize]);
        fixture.check();
        for byte in &mut expected[from as usize..to as usize] {
            byte.get_or_insert(9);
        }
        let hole = expected.iter().position(Option::is_none).unwrap();
        let in_order: Vec<u8> = expected[..hole].iter().map(|byte| byte.unwrap()).collect();
        assert_eq!(fixture.read(9999), in_order, "{old:?} {from}..{to}");
        let behind = expected.iter().enumerate().skip(hole);
        let behind: Vec<(u32, u8)> = behind
            .filter_map(|(at, byte)| Some((NEXT.wrapping_add(at as u32), (*byte)?)))
            .collect();
        assert_eq!(fixture.out_of_order(), behind, "{old:?} {from}..{to}");
    }
}

#[test]
fn a_segment_is_cut_at_the_window() {
    let mut fixture = Fixture::new(NEXT);
    fixture.limits.window_end = NEXT.wrapping_add(1500);
    let inserted = fixture.insert(NEXT.wrapping_add(1000), &[1; 1000]);
    assert!(inserted.is_out_of_order && fixture.queue.out_of_order_bytes() == 500);
    let inserted = fixture.insert(NEXT.wrapping_add(1500), &[1; 1000]);
    assert_eq!(inserted.refused, Some(Reason::Window));
    assert_eq!(fixture.insert(NEXT, &[1; 1448]).advanced_bytes, 1500);
    // A window of zero takes nothing.
    let inserted = fixture.insert(NEXT.wrapping_add(1500), &[1]);
    assert_eq!(inserted.refused, Some(Reason::Window));
}

#[test]
fn spans_that_lie_are_cut_to_the_packet() {
    for (start, len, has) in [
        (0, u32::MAX, 1066),
        (66, 5000, 1000),
        (2000, 5, 0),
        (u32::MAX, 1, 0),
    ] {
        let mut fixture = Fixture::new(7);
        let (packet, _) = fixture.packet(&[1; 1000]);
        let inserted = fixture.give(packet, Span { start, len }, 7);
        assert_eq!(inserted.advanced_bytes, has);
        fixture.check();
    }
}

#[test]
fn rfc_9293_3_8_4_a_keep_alive_changes_nothing() {
    let mut fixture = Fixture::new(NEXT);
    fixture.insert(NEXT, &[1; 10]);
    let next = fixture.queue.next();
    assert_eq!(
        fixture.insert(next.wrapping_sub(1), &[]),
        Inserted::default()
    );
    // The byte that some send with it is reported as a duplicate, as by Linux.
    let inserted = fixture.insert(next.wrapping_sub(1), &[9]);
    let duplicate = Some((next.wrapping_sub(1), next));
    assert_eq!(
        inserted,
        Inserted {
            duplicate,
            ..Inserted::default()
        }
    );
    assert_eq!(fixture.read(99), [1; 10]);
}

#[test]
fn small_segments_share_a_slot_and_the_padding_is_not_read() {
    let mut fixture = Fixture::new(NEXT);
    for index in 0..100 {
        let seq = NEXT.wrapping_add(index * 3);
        assert_eq!(fixture.insert(seq, &stream(seq, 3)).advanced_bytes, 3);
        fixture.check();
    }
    assert_eq!(fixture.queue.pieces(), 1);
    assert_eq!(fixture.pieces.stats().coalesced, 99);
    let seq = NEXT.wrapping_add(300);
    let long = TINY as usize + 1;
    fixture.insert(seq, &stream(seq, long));
    assert_eq!(fixture.queue.pieces(), 2, "too long to be copied");
    assert_eq!(fixture.read(9999), stream(NEXT, 300 + long));
}

#[test]
fn frames_of_64_kib_are_kept_whole() {
    let mut fixture = Fixture::new(NEXT);
    let long = 65_500;
    let second = NEXT.wrapping_add(long);
    assert!(
        fixture
            .insert_large(second, &stream(second, long as usize))
            .is_out_of_order
    );
    assert_eq!(
        fixture
            .insert_large(NEXT, &stream(NEXT, long as usize))
            .advanced_bytes,
        2 * long
    );
    // Behind 65,535 bytes in a slot a packet cannot begin; the rest is moved to its front.
    assert_eq!(fixture.read(65_400), stream(NEXT, 65_400));
    assert_eq!(
        fixture.read(65_590),
        stream(NEXT.wrapping_add(65_400), 65_590)
    );
    let third = NEXT.wrapping_add(2 * long);
    for index in 0..50 {
        let seq = third.wrapping_add(index);
        fixture.insert(seq, &stream(seq, 1));
    }
    fixture.check();
    assert_eq!(fixture.queue.pieces(), 1);
    assert_eq!(fixture.read(9999), stream(third.wrapping_sub(10), 60));
}

#[test]
fn slots_are_taken_whole_with_their_spans() {
    let mut fixture = Fixture::new(NEXT);
    for segment in 0..2 {
        let seq = NEXT.wrapping_add(segment * 1000);
        fixture.insert(seq, &stream(seq, 1000));
    }
    fixture.read(1);
    let (packet, span) = fixture.queue.take(&mut fixture.pieces).unwrap();
    assert_eq!((span.start, span.len), (HEADERS as u32 + 1, 999));
    let bytes = &packet.data()[span.start as usize..][..span.len as usize];
    assert_eq!(bytes, stream(NEXT.wrapping_add(1), 999));
    assert_eq!(
        (fixture.queue.readable(), fixture.queue.pieces()),
        (1000, 1)
    );
    fixture.cache.free_one(packet);
    let (packet, _) = fixture.queue.take(&mut fixture.pieces).unwrap();
    fixture.cache.free_one(packet);
    assert!(fixture.queue.take(&mut fixture.pieces).is_none());
    fixture.check();
}

#[test]
fn bytes_are_looked_at_and_dropped_in_place() {
    let mut fixture = Fixture::new(NEXT);
    for segment in 0..3 {
        let seq = NEXT.wrapping_add(segment * 1000);
        fixture.insert(seq, &stream(seq, 1000));
    }
    assert_eq!(fixture.queue.front(&fixture.pieces), stream(NEXT, 1000));
    assert_eq!(fixture.queue.slices(&fixture.pieces).count(), 3);
    for (offset, len) in [
        (0, 10),
        (999, 2),
        (1000, 1000),
        (2500, 900),
        (3000, 5),
        (9999, 5),
    ] {
        let mut out = vec![0; len];
        let done = fixture.queue.peek(&fixture.pieces, offset, &mut out);
        let has = 3000_usize.saturating_sub(offset as usize).min(len);
        assert_eq!(out[..done], stream(NEXT.wrapping_add(offset), has));
    }
    let dropped = fixture
        .queue
        .discard(&mut fixture.pieces, &mut fixture.cache, 1100);
    assert_eq!((dropped, fixture.queue.readable()), (1100, 1900));
    let (mut a, mut b) = ([0; 1000], [0; 1000]);
    let mut out = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    let done = fixture
        .queue
        .read_vectored(&mut fixture.pieces, &mut fixture.cache, &mut out);
    assert_eq!(done, 1900);
    assert_eq!(
        [a, b].concat()[..1900],
        stream(NEXT.wrapping_add(1100), 1900)
    );
    assert!(fixture.queue.front(&fixture.pieces).is_empty());
    assert_eq!(
        fixture
            .queue
            .discard(&mut fixture.pieces, &mut fixture.cache, 1),
        0
    );
}

#[test]
fn clearing_frees_both_chains_and_keeps_the_number() {
    let mut fixture = Fixture::new(NEXT);
    for segment in [0, 1, 3, 5] {
        fixture.insert(NEXT.wrapping_add(segment * 1000), &[1; 1000]);
    }
    fixture.queue.clear(&mut fixture.pieces, &mut fixture.cache);
    assert_eq!(fixture.queue.next(), NEXT.wrapping_add(2000));
    assert_eq!(
        (fixture.queue.readable(), fixture.queue.has_sack()),
        (0, false)
    );
    fixture.check();
}

/// What comes in more large slots than may be kept is in small ones, in order or not, and each byte
/// of it is there.
#[test]
fn large_slots_are_kept_up_to_a_number() {
    const LEN: usize = 30_000;
    let mut fixture = Fixture::new(NEXT);
    fixture.pieces = Pieces::new(4096, u64::MAX).unwrap().with_large_slots(3);
    let at = |number: usize| NEXT.wrapping_add((number * LEN) as u32);
    // The third is missing until the end.
    for number in [0, 1, 3, 4, 5, 7, 6] {
        let inserted = fixture.insert_large(at(number), &stream(at(number), LEN));
        assert_eq!(inserted.refused, None);
        assert_eq!(inserted.is_out_of_order, number > 1);
        fixture.check();
    }
    assert_eq!(fixture.pieces.large_slots(), 3);
    assert_eq!(fixture.pieces.stats().divided, 4);
    assert_eq!(fixture.queue.runs(), 1);
    // One that is there already is so as a whole.
    let again = fixture.insert_large(at(5), &stream(at(5), LEN));
    assert_eq!(again.duplicate, Some((at(5), at(6))));
    let filled = fixture.insert_large(at(2), &stream(at(2), LEN));
    assert_eq!(filled.advanced_bytes, (6 * LEN) as u32);
    assert!(filled.filled_hole);
    let mut out = vec![0; 8 * LEN];
    let count = fixture
        .queue
        .read(&mut fixture.pieces, &mut fixture.cache, &mut out);
    assert!(count == 8 * LEN && out == stream(NEXT, 8 * LEN));
    assert_eq!(fixture.pieces.large_slots(), 0);
    fixture.check();
    // Without small ones a large one is kept all the same.
    let small = fixture.pools[0].clone();
    let mut taken = Vec::new();
    while let Some(packet) = fixture.cache.get(&small) {
        taken.push(packet);
    }
    fixture.pieces = Pieces::new(4096, u64::MAX).unwrap().with_large_slots(0);
    let kept = fixture.insert_large(at(8), &stream(at(8), LEN));
    assert_eq!(kept.advanced_bytes, LEN as u32);
    assert_eq!(fixture.pieces.large_slots(), 1);
    taken
        .into_iter()
        .for_each(|packet| fixture.cache.free_one(packet));
    fixture.queue.clear(&mut fixture.pieces, &mut fixture.cache);
    fixture.check();
}
