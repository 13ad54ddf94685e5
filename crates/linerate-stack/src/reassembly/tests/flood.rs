//! Floods: memory stays at its bound, and the newest legitimate datagrams pass.

use super::*;

/// A unique source.
fn source(number: u32) -> [u8; 4] {
    (0x2000_0000 + number.wrapping_mul(0x9e37_79b1) / 2).to_be_bytes()
}

/// A single fragment of a datagram.
fn orphan(number: u32) -> Vec<u8> {
    let mut v4 = V4::new(number as u16);
    v4.src = source(number);
    v4.frame(64, true, &payload(64))
}

fn config(max_datagrams: u32, max_bytes: usize) -> Config {
    Config {
        max_datagrams,
        max_bytes,
        max_per_source: max_datagrams / 8,
        seed: Seed(11),
        ..Config::default()
    }
}

#[test]
fn in_a_flood_of_forged_sources_the_newest_pass() {
    let mut fixture = Fixture::with(&config(512, 16 << 20));
    let small = fixture.pools.primary().slot_bytes();
    let (v4, payload) = (V4::new(7), payload(1000));
    let frames = v4.cut(&payload, 504);
    let mut number = 0;
    for round in 0..50 {
        assert_eq!(
            fixture.push(&frames[round % 2]),
            Seen::Held,
            "round {round}"
        );
        for _ in 0..400 {
            number += 1;
            assert_eq!(fixture.push(&orphan(number)), Seen::Held);
            let held = fixture.reassembler.held();
            assert!(held.datagrams <= 512 && held.bytes <= 512 * small);
        }
        let whole = fixture.push(&frames[(round + 1) % 2]);
        assert_eq!(whole, Seen::Whole(v4.whole(&payload)), "round {round}");
        fixture.check();
    }
    assert_eq!(fixture.reassembler.held().datagrams, 511);
    assert_eq!(fixture.dropped(Refusal::Evicted), u64::from(number) - 511);
}

#[test]
fn one_source_uses_up_only_its_own_share() {
    let mut fixture = Fixture::with(&config(512, 16 << 20));
    let payload = payload(1000);
    let others: Vec<V4> = (0..100)
        .map(|number| {
            let mut v4 = V4::new(number);
            v4.src = source(number.into());
            v4
        })
        .collect();
    for v4 in &others {
        assert_eq!(fixture.push(&v4.cut(&payload, 504)[0]), Seen::Held);
    }
    let mut attacker = V4::new(0);
    attacker.src = [203, 0, 113, 1];
    for id in 0..20_000 {
        attacker.id = id;
        assert_eq!(fixture.push(&attacker.cut(&payload, 504)[1]), Seen::Held);
    }
    assert_eq!(fixture.reassembler.held().datagrams, 100 + 64 + 1);
    // The attacker's own newest pass, too.
    let seen = fixture.push(&attacker.cut(&payload, 504)[0]);
    assert_eq!(seen, Seen::Whole(attacker.whole(&payload)));
    let seen = others
        .iter()
        .map(|v4| fixture.push(&v4.cut(&payload, 504)[1]));
    let seen: Vec<_> = seen.collect();
    for (v4, seen) in others.iter().zip(seen) {
        assert_eq!(seen, Seen::Whole(v4.whole(&payload)));
    }
}

#[test]
fn an_ipv6_source_is_its_first_64_bits() {
    let mut fixture = Fixture::with(&config(512, 16 << 20));
    let payload = payload(64);
    for number in 0..1000_u32 {
        let mut v6 = V6::new(1);
        v6.src[12..].copy_from_slice(&number.to_be_bytes());
        assert_eq!(fixture.push(&v6.cut(&payload, 32)[1]), Seen::Held);
    }
    assert_eq!(fixture.reassembler.held().datagrams, 64 + 1);
}

#[test]
fn bytes_are_bounded_and_the_oldest_go() {
    let slots = 10;
    let small = Fixture::new().pools.primary().slot_bytes();
    let mut fixture = Fixture::with(&config(512, slots * small + small / 2));
    let payload = payload(64);
    let cut: Vec<_> = (0..20).map(|id| V4::new(id).cut(&payload, 32)).collect();
    for frames in &cut {
        assert_eq!(fixture.push(&frames[0]), Seen::Held);
        assert!(fixture.reassembler.held().bytes <= slots * small);
    }
    let seen = tally(
        cut.iter()
            .rev()
            .take(slots)
            .map(|frames| fixture.push(&frames[1])),
    );
    assert_eq!(seen, BTreeMap::from([("whole", slots)]));
    assert_eq!(fixture.dropped(Refusal::Evicted), 10);
    // With less than a slot nothing is held.
    let mut fixture = Fixture::with(&config(512, small - 1));
    assert_eq!(fixture.push(&cut[0][0]), Seen::Dropped(Refusal::NoMemory));
}

#[test]
fn large_slots_are_taken_from_those_that_had_them_longest() {
    let payload = payload(9000);
    let large = Fixture::new().pools.for_frame(9000).unwrap().slot_bytes();
    // Bounded by the pool, and by half of the bytes.
    for (max_bytes, most) in [(16 << 20, LARGE_SLOTS as usize), (large * 12, 6)] {
        let mut fixture = Fixture::with(&config(512, max_bytes));
        let mut legitimate = V4::new(1);
        legitimate.src = source(0);
        let small = V4::new(2).cut(&payload[..1000], 504);
        assert_eq!(fixture.push(&small[0]), Seen::Held);
        for number in 1..200 {
            // A far offset asks for a large slot at once.
            let mut far = V4::new(1);
            far.src = source(number);
            let frame = far.frame(60_000, true, &payload[..64]);
            assert_eq!(fixture.push(&frame), Seen::Held);
            assert!(fixture.reassembler.large_bytes <= most * large);
        }
        assert_eq!(fixture.reassembler.large_bytes, most * large);
        let frames = legitimate.cut(&payload, 1480);
        assert_eq!(
            fixture.push_all(&frames),
            Seen::Whole(legitimate.whole(&payload))
        );
        // Datagrams in small slots were not evicted.
        let whole = V4::new(2).whole(&payload[..1000]);
        assert_eq!(fixture.push(&small[1]), Seen::Whole(whole));
    }
}

#[test]
fn without_large_slots_what_fits_the_small_ones_passes() {
    let mut fixture = Fixture::new();
    fixture.pools = Pools::new(vec![fixture.pools.primary().clone()]);
    fixture.cache = PoolCache::new(fixture.pools.as_slice());
    let payload = payload(9000);
    let frames = V4::new(1).cut(&payload, 1480);
    assert_eq!(fixture.push(&frames[0]), Seen::Held);
    assert_eq!(fixture.push(&frames[1]), Seen::Dropped(Refusal::NoMemory));
    assert_eq!(fixture.dropped(Refusal::NoMemory), 2, "with the one held");
    assert_eq!(fixture.push(&frames[3]), Seen::Dropped(Refusal::NoMemory));
    let short = V4::new(2).cut(&payload[..1600], 800);
    assert_eq!(
        fixture.push_all(&short),
        Seen::Whole(V4::new(2).whole(&payload[..1600]))
    );
}

#[test]
fn a_datagram_of_many_fragments_holds_one_slot() {
    let mut fixture = Fixture::new();
    let (v4, payload) = (V4::new(1), payload(60_000));
    let frames = v4.cut(&payload, 8);
    let (last, before) = frames.split_last().unwrap();
    for frame in before.iter().rev() {
        assert_eq!(fixture.push(frame), Seen::Held);
    }
    let held = fixture.reassembler.held();
    assert_eq!((held.datagrams, held.fragments), (1, 7499));
    assert_eq!(fixture.push(last), Seen::Whole(v4.whole(&payload)));
}

#[test]
fn a_datagram_with_too_many_gaps_is_abandoned() {
    let mut fixture = Fixture::new();
    let v4 = V4::new(1);
    let seen: Vec<_> = (0..40)
        .map(|index| fixture.push(&v4.frame(index * 16, true, &payload(8))))
        .collect();
    let expected = BTreeMap::from([("held", 39), ("fragment_scattered", 1)]);
    assert_eq!(tally(seen.clone()), expected);
    assert_eq!(seen[36], Seen::Dropped(Refusal::Scattered));
    assert_eq!(fixture.dropped(Refusal::Scattered), 37);
    assert_eq!(fixture.reassembler.held().fragments, 3);
}

#[test]
fn keys_in_a_row_spread_over_the_index() {
    let mut fixture = Fixture::with(&Config {
        max_per_source: 1024,
        ..config(1024, 16 << 20)
    });
    let payload = payload(32);
    for id in 0..1024 {
        fixture.push(&V4::new(id).frame(0, true, &payload));
    }
    let chain = fixture.reassembler.table.longest_chain();
    // 1024 keys in 2048 buckets: eight in one is a chance of one in a hundred thousand.
    assert!(chain <= 8, "{chain}");
}
