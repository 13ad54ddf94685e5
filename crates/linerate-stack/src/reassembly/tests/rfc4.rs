//! IPv4, clause by clause.

use etherparse::defrag::IpDefragPool;
use etherparse::{NetSlice, SlicedPacket};

use super::*;

#[test]
fn rfc_791_3_2_fragments_in_any_order_make_the_datagram() {
    let (v4, payload) = (V4::new(1), payload(100));
    let frames = v4.cut(&payload, 40);
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        let mut fixture = Fixture::new();
        let frames = order.map(|index| frames[index].clone());
        assert_eq!(
            fixture.push_all(&frames),
            Seen::Whole(v4.whole(&payload)),
            "{order:?}"
        );
        let stats = fixture.reassembler.stats();
        assert_eq!((stats.reassembled, stats.datagrams), (3, 1));
    }
}

#[test]
fn rfc_791_3_2_addresses_identification_and_protocol_tell_datagrams_apart() {
    let mut fixture = Fixture::new();
    let payload = payload(48);
    let mut others = [V4::new(1), V4::new(1), V4::new(1), V4::new(2)];
    others[1].protocol = 1;
    others[2].src[3] = 9;
    let cut: Vec<_> = others.iter().map(|v4| v4.cut(&payload, 24)).collect();
    for frames in &cut {
        assert_eq!(fixture.push(&frames[0]), Seen::Held);
    }
    fixture.vrf = 1;
    assert_eq!(fixture.push(&cut[0][0]), Seen::Held, "another VRF");
    fixture.vrf = 0;
    assert_eq!(fixture.reassembler.held().datagrams, 5);
    for (v4, frames) in others.iter().zip(&cut) {
        assert_eq!(fixture.push(&frames[1]), Seen::Whole(v4.whole(&payload)));
    }
}

#[test]
fn rfc_791_3_2_the_header_is_the_first_fragments() {
    let mut fixture = Fixture::new();
    let (plain, payload) = (V4::new(1), payload(64));
    let mut first = V4::new(1);
    // Record route, which later fragments do not have.
    first.options = vec![7, 7, 4, 0, 0, 0, 0, 0];
    first.tos = 0x10;
    assert_eq!(
        fixture.push(&plain.frame(32, false, &payload[32..])),
        Seen::Held
    );
    let whole = fixture.push(&first.frame(0, true, &payload[..32]));
    assert_eq!(whole, Seen::Whole(first.whole(&payload)));
}

#[test]
fn rfc_791_3_1_nothing_exceeds_65535_bytes() {
    let mut fixture = Fixture::new();
    let mut v4 = V4::new(1);
    // The ping of death: the last possible offset, and more than 7 bytes behind it.
    let frame = v4.frame(65_528, false, &payload(64));
    assert_eq!(fixture.push(&frame), Seen::Dropped(Refusal::TooLong));
    // A payload that just fits with a header of 20 bytes does not fit with one of 24.
    let payload = payload(65_515);
    let frames = v4.cut(&payload, 1480);
    v4.options = vec![1, 1, 1, 1];
    let first = v4.frame(0, true, &payload[..1480]);
    for frame in &frames[1..] {
        assert_eq!(fixture.push(frame), Seen::Held);
    }
    assert_eq!(fixture.push(&first), Seen::Dropped(Refusal::TooLong));
    assert_eq!(
        fixture.push_all(&frames),
        Seen::Whole(V4::new(1).whole(&payload))
    );
}

#[test]
fn rfc_791_3_2_only_the_last_may_be_no_multiple_of_8() {
    let mut fixture = Fixture::new();
    let v4 = V4::new(1);
    let odd = v4.frame(0, true, &payload(31));
    assert_eq!(fixture.push(&odd), Seen::Dropped(Refusal::Length));
    let empty = v4.frame(64, false, &[]);
    assert_eq!(fixture.push(&empty), Seen::Dropped(Refusal::Length));
    assert_eq!(fixture.reassembler.held().datagrams, 0);
}

#[test]
fn rfc_791_3_2_fragments_that_disagree_on_the_end_are_all_dropped() {
    let v4 = V4::new(1);
    let payload = payload(200);
    let last = v4.frame(64, false, &payload[64..100]);
    let disagreeing = [
        v4.frame(96, false, &payload[96..104]),
        v4.frame(104, true, &payload[104..112]),
        v4.frame(32, false, &payload[32..40]),
    ];
    for frame in disagreeing {
        for frames in [[&last, &frame], [&frame, &last]] {
            let mut fixture = Fixture::new();
            assert_eq!(fixture.push(frames[0]), Seen::Held);
            assert_eq!(fixture.push(frames[1]), Seen::Dropped(Refusal::Overlap));
            assert_eq!(fixture.dropped(Refusal::Overlap), 2);
            assert_eq!(fixture.reassembler.held().datagrams, 0);
        }
    }
}

#[test]
fn rfc_1858_3_tiny_fragments_of_tcp_are_dropped() {
    let mut fixture = Fixture::new();
    let mut v4 = V4::new(1);
    v4.protocol = 6;
    // 3.2.1: the flags are in a later fragment.
    let tiny = v4.frame(0, true, &payload(8));
    assert_eq!(fixture.push(&tiny), Seen::Dropped(Refusal::Tiny));
    // 3.2.2: this fragment would contain them.
    let second = v4.frame(8, true, &payload(16));
    assert_eq!(fixture.push(&second), Seen::Dropped(Refusal::Tiny));
    let enough = v4.frame(0, true, &payload(16));
    assert_eq!(fixture.push(&enough), Seen::Held);
    v4.protocol = 17;
    assert_eq!(fixture.push(&v4.frame(0, true, &payload(8))), Seen::Held);
}

#[test]
fn rfc_1858_4_and_rfc_3128_2_overlapping_fragments_drop_the_datagram() {
    let mut v4 = V4::new(1);
    v4.protocol = 6;
    let payload = payload(128);
    let mut forged = payload.clone();
    forged[13] = 0x02; // SYN
    // RFC 3128 2: a first fragment that passes filters, a last one, and another first one.
    let mut fixture = Fixture::new();
    assert_eq!(fixture.push(&v4.frame(0, true, &payload[..64])), Seen::Held);
    let other = v4.frame(0, true, &forged[..24]);
    assert_eq!(fixture.push(&other), Seen::Dropped(Refusal::Overlap));
    assert_eq!(
        fixture.push(&v4.frame(64, false, &payload[64..])),
        Seen::Held
    );
    assert_eq!(fixture.reassembler.stats().datagrams, 0);
    // Every way to overlap [64, 96).
    for (start, end) in [(56, 72), (88, 104), (56, 104), (64, 72), (88, 96), (64, 96)] {
        let mut fixture = Fixture::new();
        assert_eq!(
            fixture.push(&v4.frame(64, true, &payload[64..96])),
            Seen::Held
        );
        let changed: Vec<u8> = payload[start..end].iter().map(|byte| !byte).collect();
        let frame = v4.frame(start, true, &changed);
        assert_eq!(
            fixture.push(&frame),
            Seen::Dropped(Refusal::Overlap),
            "{start}..{end}"
        );
        assert_eq!(fixture.reassembler.held().datagrams, 0);
        assert_eq!(fixture.dropped(Refusal::Overlap), 2);
    }
}

#[test]
fn duplicates_are_dropped_and_the_datagram_goes_on() {
    let mut fixture = Fixture::new();
    let (v4, payload) = (V4::new(1), payload(96));
    let frames = v4.cut(&payload, 32);
    for frame in &frames[1..] {
        assert_eq!(fixture.push(frame), Seen::Held);
        assert_eq!(fixture.push(frame), Seen::Dropped(Refusal::Duplicate));
    }
    // The same bytes, fragmented differently on another path.
    let inside = v4.frame(40, true, &payload[40..80]);
    assert_eq!(fixture.push(&inside), Seen::Dropped(Refusal::Duplicate));
    assert_eq!(fixture.push(&frames[0]), Seen::Whole(v4.whole(&payload)));
}

#[test]
fn rfc_3168_5_3_a_congestion_mark_of_any_fragment_stays() {
    let payload = payload(64);
    let (not_capable, ect1, ect0, marked) = (0, 1, 2, 3);
    let made = |first: u8, second: u8| {
        let mut fixture = Fixture::new();
        let mut v4 = V4::new(1);
        v4.tos = 0x28 | first;
        let frame = v4.frame(0, true, &payload[..32]);
        v4.tos = 0x28 | second;
        let seen = fixture.push_all(&[frame, v4.frame(32, false, &payload[32..])]);
        match seen {
            Seen::Whole(frame) => {
                v4.tos = frame[L3 + 1];
                assert_eq!(frame, v4.whole(&payload), "and the checksum is right");
                Ok(v4.tos & 3)
            }
            seen => Err(seen),
        }
    };
    assert_eq!(made(ect0, marked), Ok(marked));
    assert_eq!(made(marked, ect1), Ok(marked));
    assert_eq!(made(ect0, ect0), Ok(ect0));
    assert_eq!(made(not_capable, not_capable), Ok(not_capable));
    let lost = Err(Seen::Dropped(Refusal::Ecn));
    assert_eq!(made(not_capable, marked), lost);
    assert_eq!(made(marked, not_capable), lost);
}

#[test]
fn rfc_1122_3_3_2_what_is_late_ends_and_the_first_fragment_comes_back() {
    let mut fixture = Fixture::new();
    let payload = payload(96);
    let (with_first, without) = (V4::new(1).cut(&payload, 32), V4::new(2).cut(&payload, 32));
    // In order and not, so that the first fragment is in its own slot and in another's.
    assert_eq!(fixture.push(&with_first[2]), Seen::Held);
    assert_eq!(fixture.push(&with_first[0]), Seen::Held);
    fixture.now_ns += SECOND_NS;
    assert_eq!(fixture.push(&without[1]), Seen::Held);
    assert_eq!(fixture.reassembler.next_expiry_ns(), Some(31 * SECOND_NS));
    // RFC 791 3.2: a fragment does not extend the timeout.
    fixture.now_ns = 31 * SECOND_NS - 1;
    assert_eq!(fixture.expire(), (0, vec![]));
    fixture.now_ns += 1;
    assert_eq!(fixture.expire(), (1, vec![with_first[0].clone()]));
    fixture.now_ns += SECOND_NS;
    assert_eq!(
        fixture.expire(),
        (1, vec![]),
        "no first fragment, no message"
    );
    assert_eq!(fixture.dropped(Refusal::TimedOut), 3);
    assert_eq!(fixture.reassembler.next_expiry_ns(), None);
    assert_eq!(fixture.push(&with_first[1]), Seen::Held, "it begins anew");
}

#[test]
fn expiry_is_done_in_portions() {
    let mut fixture = Fixture::new();
    for id in 0..100 {
        let frames = V4::new(id).cut(&payload(64), 32);
        assert_eq!(fixture.push(&frames[0]), Seen::Held);
    }
    fixture.now_ns += 30 * SECOND_NS;
    let mut first = Burst::new();
    let mut expire = |budget: usize, first: &mut Burst| {
        let (now_ns, cache) = (fixture.now_ns, &mut fixture.cache);
        fixture.reassembler.expire(now_ns, budget, cache, first)
    };
    assert_eq!(expire(10, &mut first), 10);
    assert_eq!(expire(1000, &mut first), 54, "as many as a burst takes");
    assert_eq!(expire(1000, &mut first), 0);
    fixture.cache.free(&mut first);
    assert_eq!(fixture.expire().0, 36);
}

#[test]
fn padding_behind_the_packet_is_no_payload() {
    let mut fixture = Fixture::new();
    let (v4, payload) = (V4::new(1), payload(24));
    let mut frames = v4.cut(&payload, 16);
    for frame in &mut frames {
        frame.resize(60, 0xee);
    }
    frames.reverse();
    assert_eq!(fixture.push_all(&frames), Seen::Whole(v4.whole(&payload)));
}

#[test]
fn what_is_no_fragment_passes() {
    let mut fixture = Fixture::new();
    let whole = V4::new(1).whole(&payload(30));
    let packet = fixture.packet(&whole);
    let Outcome::Whole(packet) = fixture.give(packet) else {
        panic!("it was whole")
    };
    assert_eq!(packet.data(), whole);
    fixture.cache.free_one(packet);
    let stats = fixture.reassembler.stats();
    assert_eq!((stats.passed, stats.fragments), (1, 0));
    let broken = V4::new(1).frame(0, true, &payload(16));
    assert_eq!(
        fixture.push(&broken[..40]),
        Seen::Dropped(Refusal::Malformed)
    );
    assert_eq!(
        fixture.push(&broken[..L3]),
        Seen::Dropped(Refusal::Malformed)
    );
    assert_eq!(fixture.push(&[0; 60]), Seen::Dropped(Refusal::Malformed));
}

#[test]
fn metadata_is_the_first_fragments_less_what_its_checksum_was() {
    use linerate_core::packet::Offload;
    let payload = payload(3000);
    let frames = V4::new(1).cut(&payload, 1000);
    // In its own slot, in another's, and in a large one.
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let mut fixture = Fixture::new();
        for (nth, index) in order.into_iter().enumerate() {
            let mut packet = fixture.packet(&frames[index]);
            packet.set_user([index as u64, 5]);
            packet.set_port(index as u16 + 3);
            packet.meta_mut().offload = Offload::CSUM_VALID | Offload::VLAN;
            let outcome = fixture.give(packet);
            let Outcome::Whole(packet) = outcome else {
                assert!(nth < 2);
                continue;
            };
            assert_eq!(packet.user::<[u64; 2]>(), [0, 5]);
            assert_eq!(packet.port(), 3);
            assert_eq!(packet.meta().offload, Offload::VLAN);
            assert_eq!(packet.data(), V4::new(1).whole(&payload));
            fixture.cache.free_one(packet);
        }
        assert_eq!(fixture.reassembler.stats().datagrams, 1);
    }
}

#[test]
fn etherparse_makes_the_same_of_the_same_fragments() {
    let mut fixture = Fixture::new();
    let mut oracle = IpDefragPool::<(), ()>::new();
    for (id, len, size, step) in [(1, 1000, 104, 7), (2, 5000, 1480, 3), (3, 60_000, 1400, 10)] {
        let (mut v4, payload) = (V4::new(id), payload(len));
        v4.protocol = 253; // for experiments: nobody looks inside
        let frames = v4.cut(&payload, size);
        let mut done = 0;
        for index in 0..frames.len() {
            // A step coprime to the count visits each once.
            let frame = &frames[(index * step + 1) % frames.len()];
            let sliced = SlicedPacket::from_ethernet(frame).unwrap();
            let theirs = oracle.process_sliced_packet(&sliced, (), ()).unwrap();
            match fixture.push(frame) {
                Seen::Held => assert!(theirs.is_none()),
                Seen::Whole(frame) => {
                    assert_eq!(frame[L3 + 20..], theirs.unwrap().payload);
                    let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
                    let Some(NetSlice::Ipv4(ip)) = sliced.net else {
                        panic!("IPv4")
                    };
                    let header = ip.header();
                    assert_eq!(
                        header.header_checksum(),
                        header.to_header().calc_header_checksum()
                    );
                    assert!(!ip.is_payload_fragmented() && header.total_len() as usize == 20 + len);
                    done += 1;
                }
                seen => panic!("{seen:?}"),
            }
        }
        assert_eq!(done, 1);
    }
}
