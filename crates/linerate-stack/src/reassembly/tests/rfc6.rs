//! IPv6, clause by clause.

use linerate_wire::protocol;

use super::*;
use crate::icmp::Error6;

#[test]
fn rfc_8200_4_5_the_packet_is_the_first_fragments_without_its_fragment_header() {
    let mut v6 = V6::new(1);
    // A hop-by-hop header with a router alert, and a routing header of type 2 with one address.
    v6.before = vec![
        (protocol::HOP_BY_HOP, vec![0, 0, 5, 2, 0, 0, 1, 0]),
        (protocol::ROUTING, [&[0, 2, 2, 1][..], &[0; 20]].concat()),
    ];
    let payload = payload(100);
    let frames = v6.cut(&payload, 40);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let mut fixture = Fixture::new();
        let frames = order.map(|index| frames[index].clone());
        let whole = fixture.push_all(&frames);
        assert_eq!(whole, Seen::Whole(v6.whole(&payload)), "{order:?}");
    }
    v6.before.clear();
    let mut fixture = Fixture::new();
    let whole = fixture.push_all(&v6.cut(&payload, 40));
    assert_eq!(whole, Seen::Whole(v6.whole(&payload)));
}

#[test]
fn rfc_8200_4_5_what_follows_is_what_the_first_fragment_says() {
    let mut fixture = Fixture::new();
    let (v6, payload) = (V6::new(1), payload(48));
    let mut later = v6.clone();
    // Headers before the fragment header, and what it names, may differ in later fragments.
    later.next = 99;
    later.before = vec![(protocol::DEST_OPTIONS, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    assert_eq!(
        fixture.push(&later.frame(24, false, &payload[24..])),
        Seen::Held
    );
    let whole = fixture.push(&v6.frame(0, true, &payload[..24]));
    assert_eq!(whole, Seen::Whole(v6.whole(&payload)));
}

#[test]
fn rfc_8200_4_5_source_destination_and_identification_tell_packets_apart() {
    let mut fixture = Fixture::new();
    let payload = payload(48);
    let mut others = [V6::new(1), V6::new(2), V6::new(1)];
    others[2].src[15] = 9;
    let cut: Vec<_> = others.iter().map(|v6| v6.cut(&payload, 24)).collect();
    for frames in &cut {
        assert_eq!(fixture.push(&frames[1]), Seen::Held);
    }
    fixture.vrf = 1;
    assert_eq!(fixture.push(&cut[0][1]), Seen::Held, "another VRF");
    fixture.vrf = 0;
    for (v6, frames) in others.iter().zip(&cut) {
        assert_eq!(fixture.push(&frames[0]), Seen::Whole(v6.whole(&payload)));
    }
}

#[test]
fn rfc_8200_4_5_lengths_that_are_no_multiple_of_8_are_refused() {
    let mut fixture = Fixture::new();
    let v6 = V6::new(1);
    let odd = v6.frame(0, true, &payload(31));
    assert_eq!(fixture.push(&odd), Seen::Dropped(Refusal::Length));
    assert_eq!(fixture.push(&v6.frame(32, false, &payload(31))), Seen::Held);
}

#[test]
fn rfc_8200_4_5_no_payload_exceeds_65535_bytes() {
    let mut fixture = Fixture::new();
    let mut v6 = V6::new(1);
    let beyond = v6.frame(65_528, false, &payload(8));
    assert_eq!(fixture.push(&beyond), Seen::Dropped(Refusal::TooLong));
    let payload = payload(65_535);
    let frames = v6.cut(&payload, 1400);
    assert_eq!(fixture.push_all(&frames), Seen::Whole(v6.whole(&payload)));
    // The same behind an extension header that the earlier cases did not have.
    for frame in &frames[1..] {
        assert_eq!(fixture.push(frame), Seen::Held);
    }
    v6.before = vec![(protocol::DEST_OPTIONS, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let first = v6.frame(0, true, &payload[..1400]);
    assert_eq!(fixture.push(&first), Seen::Dropped(Refusal::TooLong));
}

#[test]
fn rfc_8200_4_5_an_error_for_a_wrong_fragment_points_at_the_field() {
    let told = |refusal: Refusal, frame: &[u8]| refusal.error6(&frame[L3..]);
    let at = |pointer| Some(Error6::ErroneousHeader { pointer });
    let mut v6 = V6::new(1);
    let mut odd = v6.frame(0, true, &payload(31));
    odd.extend([0; 3]); // padding of the link
    assert_eq!(told(Refusal::Length, &odd), at(4));
    // An empty payload is refused, without an ICMP error.
    let empty = v6.frame(8, false, &[]);
    assert_eq!(told(Refusal::Length, &empty), None);
    let beyond = v6.frame(65_528, false, &payload(8));
    assert_eq!(told(Refusal::TooLong, &beyond), at(40 + 2));
    v6.before = vec![(protocol::DEST_OPTIONS, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let beyond = v6.frame(65_528, false, &payload(8));
    assert_eq!(told(Refusal::TooLong, &beyond), at(48 + 2));
    // RFC 7112 5.
    let first = v6.frame(0, true, &payload(8));
    let chain = Some(Error6::IncompleteHeaderChain);
    assert_eq!(told(Refusal::HeaderChain, &first), chain);
    // RFC 5722 4: overlaps are dropped silently.
    assert_eq!(told(Refusal::Overlap, &first), None);
}

#[test]
fn rfc_5722_4_overlaps_drop_all_fragments_and_say_nothing() {
    let (v6, payload) = (V6::new(1), payload(128));
    for (start, end) in [(56, 72), (88, 104), (56, 104), (64, 72), (88, 96), (64, 96)] {
        let mut fixture = Fixture::new();
        assert_eq!(
            fixture.push(&v6.frame(64, true, &payload[64..96])),
            Seen::Held
        );
        assert_eq!(fixture.push(&v6.frame(0, true, &payload[..32])), Seen::Held);
        let changed: Vec<u8> = payload[start..end].iter().map(|byte| !byte).collect();
        let seen = fixture.push(&v6.frame(start, true, &changed));
        assert_eq!(seen, Seen::Dropped(Refusal::Overlap), "{start}..{end}");
        assert_eq!(fixture.reassembler.held().datagrams, 0);
        fixture.now_ns += 100 * SECOND_NS;
        assert_eq!(fixture.expire(), (0, vec![]));
    }
}

#[test]
fn rfc_8200_4_5_exact_duplicates_are_dropped_and_the_packet_goes_on() {
    let mut fixture = Fixture::new();
    let (v6, payload) = (V6::new(1), payload(96));
    let frames = v6.cut(&payload, 32);
    for frame in &frames[..2] {
        assert_eq!(fixture.push(frame), Seen::Held);
        assert_eq!(fixture.push(frame), Seen::Dropped(Refusal::Duplicate));
    }
    assert_eq!(fixture.push(&frames[2]), Seen::Whole(v6.whole(&payload)));
}

/// A deliberate departure from RFC 8200 4.5: an overlap with equal bytes is not ambiguous.
#[test]
fn a_fragment_inside_of_what_came_is_a_duplicate_if_its_bytes_are_the_same() {
    let mut fixture = Fixture::new();
    let (v6, payload) = (V6::new(1), payload(96));
    let frames = v6.cut(&payload, 32);
    fixture.push_all(&frames[..2]);
    // A part of one, and one that lies across both.
    for (first, end) in [(8, 24), (24, 40)] {
        let inside = v6.frame(first, true, &payload[first..end]);
        assert_eq!(fixture.push(&inside), Seen::Dropped(Refusal::Duplicate));
    }
    assert_eq!(fixture.push(&frames[2]), Seen::Whole(v6.whole(&payload)));
    // One byte that differs, and one beyond what is there.
    for (end, changed) in [(24, true), (72, false)] {
        fixture.push_all(&frames[..2]);
        let mut other = payload[8..end].to_vec();
        other[3] ^= u8::from(changed);
        let overlap = v6.frame(8, true, &other);
        assert_eq!(fixture.push(&overlap), Seen::Dropped(Refusal::Overlap));
        assert_eq!(fixture.reassembler.held().datagrams, 0);
    }
}

#[test]
fn rfc_6946_4_atomic_fragments_meet_no_others() {
    let mut fixture = Fixture::new();
    let (mut v6, payload) = (V6::new(1), payload(96));
    v6.before = vec![(protocol::HOP_BY_HOP, vec![0, 0, 5, 2, 0, 0, 1, 0])];
    let frames = v6.cut(&payload, 48);
    assert_eq!(fixture.push(&frames[0]), Seen::Held);
    let mut atomic = v6.frame(0, false, &payload[..20]);
    atomic.extend([0xee; 6]); // padding
    let whole = v6.whole(&payload[..20]);
    assert_eq!(fixture.push(&atomic), Seen::Whole(whole.clone()));
    assert_eq!(fixture.push(&atomic), Seen::Whole(whole));
    assert_eq!(fixture.push(&frames[1]), Seen::Whole(v6.whole(&payload)));
    assert_eq!(fixture.reassembler.stats().passed, 2);
}

#[test]
fn rfc_7112_5_a_first_fragment_has_the_whole_header_chain() {
    let refused = Seen::Dropped(Refusal::HeaderChain);
    let mut fixture = Fixture::new();
    let mut v6 = V6::new(1);
    let mut tcp = payload(40);
    tcp[12] = 0x80; // 32 bytes of header
    v6.next = protocol::TCP;
    assert_eq!(fixture.push(&v6.frame(0, true, &tcp[..24])), refused);
    assert_eq!(fixture.push(&v6.frame(0, true, &tcp[..8])), refused);
    assert_eq!(fixture.push(&v6.frame(0, true, &tcp[..32])), Seen::Held);
    v6.id = 2;
    v6.next = protocol::DEST_OPTIONS;
    // Destination options of 16 bytes, then UDP.
    let mut options = [&[17, 1, 1, 12][..], &[0; 12], &[0; 8]].concat();
    assert_eq!(fixture.push(&v6.frame(0, true, &options[..8])), refused);
    assert_eq!(fixture.push(&v6.frame(0, true, &options[..16])), refused);
    assert_eq!(fixture.push(&v6.frame(0, true, &options)), Seen::Held);
    // Atomic ones too: RFC 7112 5 applies to every first fragment.
    options[1] = 9;
    assert_eq!(fixture.push(&v6.frame(0, false, &options)), refused);
    // Later fragments have none.
    assert_eq!(fixture.push(&v6.frame(64, true, &tcp[..8])), Seen::Held);
    // A fragment of a fragment.
    v6.id = 4;
    v6.next = protocol::FRAGMENT;
    assert_eq!(fixture.push(&v6.frame(0, true, &payload(64))), refused);
    // More headers than the limit.
    (v6.id, v6.next) = (3, protocol::DEST_OPTIONS);
    let chain = [60, 0, 1, 4, 0, 0, 0, 0].repeat(20);
    assert_eq!(fixture.push(&v6.frame(0, true, &chain)), refused);
}

#[test]
fn an_authentication_header_does_not_hide_the_fragment_header() {
    let mut fixture = Fixture::new();
    let (mut v6, payload) = (V6::new(1), payload(96));
    v6.before = vec![(protocol::AH, [&[0, 4][..], &[0; 22]].concat())];
    let whole = fixture.push_all(&v6.cut(&payload, 48));
    assert_eq!(whole, Seen::Whole(v6.whole(&payload)));
}

#[test]
fn rfc_8200_4_5_60_seconds_from_the_first_to_come() {
    let mut fixture = Fixture::new();
    let (v6, payload) = (V6::new(1), payload(96));
    let frames = v6.cut(&payload, 32);
    // The IPv4 datagram began later and expires earlier.
    assert_eq!(fixture.push(&frames[2]), Seen::Held);
    fixture.now_ns += SECOND_NS;
    assert_eq!(fixture.push(&frames[0]), Seen::Held);
    assert_eq!(fixture.push(&V4::new(1).cut(&payload, 32)[1]), Seen::Held);
    fixture.now_ns = 32 * SECOND_NS;
    assert_eq!(fixture.expire(), (1, vec![]));
    fixture.now_ns = 61 * SECOND_NS - 1;
    assert_eq!(fixture.expire(), (0, vec![]));
    fixture.now_ns += 1;
    // Unchanged, with its fragment header, for the error to quote.
    assert_eq!(fixture.expire(), (1, vec![frames[0].clone()]));
}

#[test]
fn rfc_3168_5_3_a_congestion_mark_of_any_fragment_stays() {
    let mut fixture = Fixture::new();
    let (mut v6, payload) = (V6::new(1), payload(64));
    v6.class = 0x2a;
    let first = v6.frame(0, true, &payload[..32]);
    v6.class = 0x2b;
    let seen = fixture.push_all(&[first, v6.frame(32, false, &payload[32..])]);
    assert_eq!(seen, Seen::Whole(v6.whole(&payload)));
}

#[test]
fn headers_that_do_not_fit_are_refused() {
    let mut fixture = Fixture::new();
    let v6 = V6::new(1);
    let frame = v6.frame(0, true, &payload(16));
    let malformed = Seen::Dropped(Refusal::Malformed);
    assert_eq!(fixture.push(&frame[..L3 + 30]), malformed);
    assert_eq!(fixture.push(&frame[..L3 + 50]), malformed);
    let mut cut = frame[..L3 + 44].to_vec();
    cut[L3 + 5] = 4;
    assert_eq!(fixture.push(&cut), malformed, "half a fragment header");
    let mut options = frame.clone();
    (options[L3 + 6], options[L3 + 41]) = (protocol::HOP_BY_HOP, 200);
    assert_eq!(fixture.push(&options), malformed);
    let whole = v6.whole(&payload(16));
    let packet = fixture.packet(&whole);
    let Outcome::Whole(packet) = fixture.give(packet) else {
        panic!("it was whole")
    };
    assert_eq!(packet.data(), whole);
    fixture.cache.free_one(packet);
}
