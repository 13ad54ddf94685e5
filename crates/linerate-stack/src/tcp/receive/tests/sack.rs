//! The examples of RFC 2018 and RFC 2883.

use super::*;

/// Segments of 500 bytes, named by their first number.
fn receive(fixture: &mut Fixture, seq: u32) {
    fixture.insert(seq, &stream(seq, 500));
    fixture.check();
}

/// The acknowledgement: RCV.NXT, and up to three blocks as beside a time stamp.
fn ack(fixture: &mut Fixture) -> (u32, Vec<(u32, u32)>) {
    let blocks = fixture.blocks(3);
    (fixture.queue.next(), blocks)
}

#[test]
fn rfc_2018_7_case_1_the_last_four_of_eight_are_lost() {
    let mut fixture = Fixture::new(5000);
    for (segment, next) in [(5000, 5500), (5500, 6000), (6000, 6500), (6500, 7000)] {
        receive(&mut fixture, segment);
        assert_eq!(ack(&mut fixture), (next, vec![]));
    }
    assert!(!fixture.queue.has_sack());
}

#[test]
fn rfc_2018_7_case_2_the_first_of_eight_is_lost() {
    let mut fixture = Fixture::new(5000);
    for segment in (5500..9000).step_by(500) {
        receive(&mut fixture, segment);
        assert_eq!(ack(&mut fixture), (5000, vec![(5500, segment + 500)]));
    }
}

#[test]
fn rfc_2018_7_case_3_every_second_of_eight_is_lost() {
    let mut fixture = Fixture::new(5000);
    let mut expect = |segment, next, blocks: &[(u32, u32)]| {
        receive(&mut fixture, segment);
        assert_eq!(ack(&mut fixture), (next, blocks.to_vec()), "{segment}");
    };
    expect(5000, 5500, &[]);
    expect(6000, 5500, &[(6000, 6500)]);
    expect(7000, 5500, &[(7000, 7500), (6000, 6500)]);
    expect(8000, 5500, &[(8000, 8500), (7000, 7500), (6000, 6500)]);
    // Then the fourth and the second come after all.
    expect(6500, 5500, &[(6000, 7500), (8000, 8500)]);
    expect(5500, 7500, &[(8000, 8500)]);
}

#[test]
fn rfc_2018_4_the_latest_come_first_and_the_rest_by_number() {
    let mut fixture = Fixture::new(0);
    for segment in [9000, 1000, 5000, 3000, 7000] {
        receive(&mut fixture, segment);
    }
    let blocks = fixture.blocks(4);
    assert_eq!(
        blocks,
        [(7000, 7500), (3000, 3500), (5000, 5500), (1000, 1500)]
    );
    // One of them is acknowledged: there is room for one that was reported long ago.
    receive(&mut fixture, 0);
    receive(&mut fixture, 500);
    let blocks = fixture.blocks(4);
    assert_eq!(
        blocks,
        [(7000, 7500), (3000, 3500), (5000, 5500), (9000, 9500)]
    );
    assert_eq!(fixture.blocks(0), []);
}

#[test]
fn rfc_2883_4_1_1_a_duplicate_segment() {
    let mut fixture = Fixture::new(3000);
    receive(&mut fixture, 3000);
    receive(&mut fixture, 3500);
    receive(&mut fixture, 3000);
    assert_eq!(ack(&mut fixture), (4000, vec![(3000, 3500)]));
    // 4 (2): each duplicate is reported once.
    assert_eq!(ack(&mut fixture), (4000, vec![]));
}

#[test]
fn rfc_2883_4_1_2_an_out_of_order_segment_and_a_duplicate_segment() {
    let mut fixture = Fixture::new(3000);
    receive(&mut fixture, 3000);
    receive(&mut fixture, 3500);
    receive(&mut fixture, 4500);
    assert_eq!(ack(&mut fixture), (4000, vec![(4500, 5000)]));
    receive(&mut fixture, 3000);
    assert_eq!(ack(&mut fixture), (4000, vec![(3000, 3500), (4500, 5000)]));
}

#[test]
fn rfc_2883_4_1_3_a_duplicate_of_an_out_of_order_segment() {
    let mut fixture = Fixture::new(3500);
    receive(&mut fixture, 3500);
    receive(&mut fixture, 4500);
    receive(&mut fixture, 5000);
    assert_eq!(ack(&mut fixture), (4000, vec![(4500, 5500)]));
    receive(&mut fixture, 5000);
    assert_eq!(ack(&mut fixture), (4000, vec![(5000, 5500), (4500, 5500)]));
}

#[test]
fn rfc_2883_4_the_second_block_has_the_duplicate_though_another_run_came_later() {
    let mut fixture = Fixture::new(0);
    for segment in [1000, 1500, 5000, 1000] {
        receive(&mut fixture, segment);
    }
    assert_eq!(
        ack(&mut fixture),
        (0, vec![(1000, 1500), (1000, 2000), (5000, 5500)])
    );
}

#[test]
fn rfc_2883_4_2_1_a_partial_duplicate() {
    let mut fixture = Fixture::new(500);
    receive(&mut fixture, 500);
    receive(&mut fixture, 2000);
    assert_eq!(ack(&mut fixture), (1000, vec![(2000, 2500)]));
    // The delayed segment, and then the same bytes with those behind them.
    receive(&mut fixture, 1000);
    let inserted = fixture.insert(1000, &stream(1000, 1000));
    assert_eq!(inserted.duplicate, Some((1000, 1500)));
    assert_eq!(ack(&mut fixture), (2500, vec![(1000, 1500)]));
}

#[test]
fn rfc_2883_4_2_2_two_parts_are_duplicates_below_the_acknowledgement() {
    let mut fixture = Fixture::new(500);
    for segment in [500, 2500, 1000, 2000] {
        receive(&mut fixture, segment);
    }
    // 1000-1500 and 2000-2500 are there; the first is reported.
    let inserted = fixture.insert(1000, &stream(1000, 1500));
    assert_eq!(inserted.duplicate, Some((1000, 1500)));
    assert_eq!(ack(&mut fixture), (3000, vec![(1000, 1500)]));
}

#[test]
fn rfc_2883_4_2_3_two_parts_are_duplicates_above_the_acknowledgement() {
    let mut fixture = Fixture::new(500);
    for segment in [500, 3000, 1500, 2500] {
        receive(&mut fixture, segment);
    }
    // 1500-2000 and 2500-3000 are there.
    let inserted = fixture.insert(1500, &stream(1500, 1500));
    assert_eq!(inserted.duplicate, Some((1500, 2000)));
    assert_eq!(ack(&mut fixture), (1000, vec![(1500, 2000), (1500, 3500)]));
    assert_eq!(fixture.queue.runs(), 1);
}

#[test]
fn duplicates_before_one_acknowledgement_are_one_block_or_the_first() {
    let mut fixture = Fixture::new(0);
    for segment in [0, 500, 1000, 1500] {
        receive(&mut fixture, segment);
    }
    for segment in [500, 0, 1500] {
        receive(&mut fixture, segment);
    }
    // 1500 is apart from 0-1000.
    assert_eq!(ack(&mut fixture), (2000, vec![(0, 1000)]));
    // What there is no room for waits for the next.
    receive(&mut fixture, 0);
    assert_eq!(fixture.blocks(0), []);
    assert_eq!(fixture.blocks(1), [(0, 500)]);
}

#[test]
fn blocks_wrap_with_the_numbers() {
    let next = u32::MAX - 700;
    let mut fixture = Fixture::new(next);
    let from = next.wrapping_add(500);
    receive(&mut fixture, from);
    assert_eq!(ack(&mut fixture), (next, vec![(from, 299)]));
    receive(&mut fixture, next);
    receive(&mut fixture, from);
    assert_eq!(ack(&mut fixture), (299, vec![(from, 299)]));
}
