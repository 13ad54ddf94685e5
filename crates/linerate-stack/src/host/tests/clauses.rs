//! What a host accepts, clause by clause.

use super::*;
use linerate_wire::icmp::{v4, v6};

const HOST4: &str = "192.0.2.1";
const HOST6: &str = "2001:db8::1";
const PEER4: &str = "192.0.2.9";
const PEER6: &str = "2001:db8::9";

fn station() -> Station {
    Station::new(OWN, &["192.0.2.1/24", "2001:db8::1/64"]).knows(&[PEER4, PEER6])
}

/// Type, code and second word of the only answer, an ICMP error that quotes `ip`.
fn error_of(answers: &[Frame], ip: &[u8]) -> (u8, u8, u32) {
    assert_eq!(answers.len(), 1, "{answers:?}");
    check_sums(&answers[0]);
    let message = &answers[0].bytes[14 + if ip[0] >> 4 == 4 { 20 } else { 40 }..];
    let quote = &message[8..];
    assert_eq!(
        quote[..quote.len().min(ip.len())],
        ip[..quote.len().min(ip.len())]
    );
    let word = u32::from_be_bytes(message[4..8].try_into().unwrap());
    (message[0], message[1], word)
}

#[test]
fn rfc_1122_3_2_1_addresses_and_headers_that_are_dropped_silently() {
    let udp = |src: &str, dst: &str| udp_packet(src, dst, (9, 9), b"x");
    let with = |at: usize, value: u8| {
        let mut ip = udp(PEER4, HOST4);
        ip[at] = value;
        ip
    };
    let long = {
        let mut ip = udp(PEER4, HOST4);
        ip[2..4].copy_from_slice(&200_u16.to_be_bytes());
        ip
    };
    let all = MacAddr::BROADCAST;
    for (reason, mac, ip) in [
        // 3.2.1.1 and 2
        ("bad_version", OWN, with(0, 0x55)),
        ("bad_header_length", OWN, with(0, 0x44)),
        ("bad_length", OWN, long),
        ("bad_checksum", OWN, with(8, 1)),
        // 3.2.1.3
        ("not_ours", OWN, udp(PEER4, "192.0.2.7")),
        ("not_ours", OWN, udp(PEER4, "203.0.113.1")),
        ("martian_source", OWN, udp("0.0.0.0", HOST4)),
        ("martian_source", OWN, udp("127.0.0.1", HOST4)),
        ("martian_source", OWN, udp("224.0.0.5", HOST4)),
        ("martian_source", OWN, udp("255.255.255.255", HOST4)),
        ("martian_source", OWN, udp("240.0.0.1", HOST4)),
        ("own_source", OWN, udp("192.0.2.255", HOST4)),
        ("own_source", OWN, udp(HOST4, HOST4)),
        ("martian_destination", OWN, udp(PEER4, "127.0.0.1")),
        ("martian_destination", OWN, udp(PEER4, "0.0.0.0")),
        (
            "multicast",
            MacAddr([1, 0, 0x5e, 0, 0, 5]),
            udp(PEER4, "224.0.0.5"),
        ),
        // 3.3.6
        ("l2_broadcast", all, udp(PEER4, HOST4)),
        // RFC 4291 2.5, 2.7
        ("martian_source", OWN, udp("::", HOST6)),
        ("martian_source", OWN, udp("::1", HOST6)),
        ("martian_source", OWN, udp("ff02::1", HOST6)),
        ("martian_source", OWN, udp("::ffff:192.0.2.9", HOST6)),
        ("own_source", OWN, udp(HOST6, HOST6)),
        ("martian_destination", OWN, udp(PEER6, "::1")),
        ("not_ours", OWN, udp(PEER6, "2001:db8::7")),
        (
            "multicast",
            MacAddr([0x33, 0x33, 0, 0, 0, 2]),
            udp(PEER6, "ff02::2"),
        ),
        (
            "l2_broadcast",
            MacAddr([0x33, 0x33, 0, 0, 0, 1]),
            udp(PEER6, HOST6),
        ),
        // RFC 9293 MUST-57
        (
            "tcp_to_group",
            all,
            tcp_packet(PEER4, "192.0.2.255", (1, 2), b""),
        ),
        (
            "tcp_to_group",
            MacAddr([0x33, 0x33, 0, 0, 0, 1]),
            tcp_packet(PEER6, "ff02::1", (1, 2), b""),
        ),
        ("not_for_us", PEER, udp(PEER4, HOST4)),
        ("not_for_us", PEER, udp(PEER6, HOST6)),
    ] {
        let mut s = station();
        let mut sane = framed(mac, &ip);
        // Whatever its version is, it came as IPv4.
        if reason == "bad_version" {
            sane[12..14].copy_from_slice(&[8, 0]);
        }
        assert!(s.answers(sane).is_empty(), "{reason}");
        assert_eq!(s.all_drops(), [(reason.to_string(), 1)], "{ip:02x?}");
        s.check_slots();
    }
}

#[test]
fn frames_with_tags_and_of_other_kinds() {
    let mut s = station();
    let id = s.bind_port(9);
    let tagged = |vid: u16| {
        let mut frame = framed(OWN, &udp_packet(PEER4, HOST4, (9, 9), b"x"));
        let [high, low] = vid.to_be_bytes();
        frame.splice(12..12, [0x81, 0, high | 0x60, low]);
        frame
    };
    s.take(tagged(0));
    assert!(s.recv(id).is_some(), "a priority without a VLAN");
    s.take(tagged(7));
    let mut frame = Frame::new(framed(OWN, &udp_packet(PEER4, HOST4, (9, 9), b"x")));
    frame.offload = Offload::VLAN;
    assert!(s.take_frames(&[frame]).is_empty()); // its identifier is 0
    assert!(s.recv(id).is_some());
    let mut other = framed(OWN, &udp_packet(PEER4, HOST4, (9, 9), b"x"));
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    s.take(other);
    s.take(vec![0; 9]);
    s.take(framed(OWN, &udp_packet(PEER4, HOST4, (9, 9), b"x"))[..30].to_vec());
    let expected = [
        ("not_for_us", 0),
        ("unknown_vlan", 1),
        ("not_ip", 1),
        ("truncated", 1),
    ];
    for (name, count) in expected {
        assert_eq!(s.drops(name), count, "{name}");
    }
    // A ping with a tag gets an answer without.
    let mut ping = framed(OWN, &echo_request(PEER4, HOST4, b"ping"));
    ping.splice(12..12, [0x81, 0, 0xe0, 0]);
    let answers = s.answers(ping);
    assert_eq!((answers.len(), answers[0].bytes.len()), (1, 46));
    check_sums(&answers[0]);
    s.check_slots();
}

#[test]
fn rfc_1122_3_2_2_6_pings_are_answered_by_route_and_not_to_a_broadcast() {
    for (peer, host) in [(PEER4, HOST4), (PEER6, HOST6)] {
        let mut s = station();
        let ip = echo_request(peer, host, b"some data");
        let answers = s.answers(framed(OWN, &ip));
        assert_eq!(answers.len(), 1);
        check_sums(&answers[0]);
        let frame = &answers[0].bytes;
        assert_eq!((&frame[..6], &frame[6..12]), (&PEER.0[..], &OWN.0[..]));
        assert_eq!(frame.len(), 14 + ip.len());
        assert!(frame.ends_with(b"some data"));
        let mut bad = ip.clone();
        *bad.last_mut().unwrap() ^= 1;
        assert!(s.answers(framed(OWN, &bad)).is_empty());
        assert_eq!(s.drops("bad_l4_checksum"), 1);
    }
    let mut s = station();
    let all = echo_request(PEER4, "192.0.2.255", b"all?");
    assert!(s.answers(framed(MacAddr::BROADCAST, &all)).is_empty());
    assert_eq!(s.drops("icmp_ignored"), 1);
}

#[test]
fn rfc_1122_3_2_2_1_and_rfc_8200_4_unknown_protocols_are_refused() {
    let mut s = station();
    let ip = packet(PEER4, HOST4, 253, b"nothing known", None);
    assert_eq!(
        error_of(&s.answers(framed(OWN, &ip)), &ip),
        (v4::UNREACHABLE, 2, 0)
    );
    let ip = packet(PEER6, HOST6, 253, b"nothing known", None);
    let answers = s.answers(framed(OWN, &ip));
    assert_eq!(error_of(&answers, &ip), (v6::PARAMETER_PROBLEM, 1, 6));
    assert_eq!(s.drops("unknown_protocol"), 2);
    // RFC 8200 4.7: no next header is nothing unknown.
    let ip = packet(PEER6, HOST6, protocol::NO_NEXT, b"", None);
    assert!(s.answers(framed(OWN, &ip)).is_empty());
    // No error to a broadcast or from nobody (RFC 1122 3.2.2).
    let ip = packet(PEER4, "192.0.2.255", 253, b"nothing known", None);
    assert!(s.answers(framed(MacAddr::BROADCAST, &ip)).is_empty());
}

#[test]
fn rfc_8200_4_2_unknown_options_are_refused_as_they_ask() {
    let with_options = |kind: u8, dst: &str| {
        let mut l4 = vec![protocol::NO_NEXT, 0, kind, 4, 0, 0, 0, 0];
        l4.extend(b"rest");
        packet(PEER6, dst, protocol::DEST_OPTIONS, &l4, None)
    };
    let mut s = station();
    for (kind, expected) in [
        (0x1e, None),
        (0x5e, None),
        (0x9e, Some(42)),
        (0xde, Some(42)),
    ] {
        let ip = with_options(kind, HOST6);
        let answers = s.answers(framed(OWN, &ip));
        match expected {
            None => assert!(answers.is_empty(), "{kind:#x}"),
            Some(pointer) => {
                assert_eq!(error_of(&answers, &ip), (v6::PARAMETER_PROBLEM, 2, pointer));
            }
        }
    }
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let ip = with_options(0x9e, "ff02::1");
    let answers = s.answers(framed(group, &ip));
    assert_eq!(error_of(&answers, &ip), (v6::PARAMETER_PROBLEM, 2, 42));
    assert_eq!(
        answers[0].bytes[22..38],
        "2001:db8::1"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets()
    );
    assert!(
        s.answers(framed(group, &with_options(0xde, "ff02::1")))
            .is_empty()
    );
}

#[test]
fn datagrams_behind_options_and_extension_headers_arrive() {
    let mut s = station();
    let id = s.bind_port(9);
    let mut ip = udp_packet(PEER6, HOST6, (9, 9), b"behind");
    ip[6] = protocol::HOP_BY_HOP;
    let length = (ip.len() - 40 + 8) as u16;
    ip[4..6].copy_from_slice(&length.to_be_bytes());
    ip.splice(40..40, [protocol::UDP, 0, 5, 2, 0, 0, 1, 0]);
    s.take(framed(OWN, &ip));
    assert_eq!(s.recv(id).unwrap().1, b"behind");
    let mut ip = udp_packet(PEER4, HOST4, (9, 9), b"options");
    ip[0] = 0x46;
    let total = (ip.len() + 4) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip.splice(20..20, [0x94, 4, 0, 0]); // router alert
    let fill = |ip: &mut Vec<u8>| {
        ip[10..12].fill(0);
        let sum = checksum::checksum(&ip[..24]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    };
    fill(&mut ip);
    s.take(framed(OWN, &ip));
    assert_eq!(s.recv(id).unwrap().1, b"options");
    ip[20..24].copy_from_slice(&[131, 3, 4, 0]);
    fill(&mut ip);
    assert!(s.answers(framed(OWN, &ip)).is_empty());
    assert_eq!(s.drops("source_route"), 1);
    ip[20..24].copy_from_slice(&[7, 9, 4, 0]);
    fill(&mut ip);
    let answers = s.answers(framed(OWN, &ip));
    assert_eq!(
        error_of(&answers, &ip),
        (v4::PARAMETER_PROBLEM, 0, 21 << 24)
    );
}

#[test]
fn rfc_1122_4_1_3_4_udp_checksums() {
    let mut s = station();
    let id = s.bind_port(9);
    for (peer, host, l4) in [(PEER4, HOST4, 20), (PEER6, HOST6, 40)] {
        let good = udp_packet(peer, host, (9, 9), b"x");
        let mut bad = good.clone();
        bad[l4 + 6] ^= 1;
        let mut none = good.clone();
        none[l4 + 6..l4 + 8].fill(0);
        for ip in [&good, &bad, &none] {
            s.take(framed(OWN, ip));
        }
    }
    let got = std::iter::from_fn(|| s.recv(id)).count();
    // RFC 8200 8.1: over IPv6 there has to be one.
    assert_eq!((got, s.drops("bad_l4_checksum")), (3, 3));
}

#[test]
fn rfc_1122_3_3_2_fragments_are_joined_and_late_ones_reported() {
    for (peer, host) in [(PEER4, HOST4), (PEER6, HOST6)] {
        let mut sender = Station::new(PEER, &[&format!("{peer}/24")]);
        let mut s = station();
        let (from, to) = (sender.bind_port(9), s.bind_port(9));
        exchange(&mut sender, &mut s);
        sender
            .send(from, &[5; 4000], &SocketAddr::new(at(host), 9).to_string())
            .unwrap();
        let asked = sender.sent();
        assert!(s.take_frames(&asked).is_empty());
        let answer = s.sent();
        assert!(sender.take_frames(&answer).is_empty());
        let fragments = sender.sent();
        assert_eq!(fragments.len(), 3);
        // In any order.
        let turned: Vec<Frame> = fragments.iter().rev().cloned().collect();
        assert!(s.take_frames(&turned).is_empty());
        assert_eq!(s.recv(to).unwrap().1, vec![5; 4000]);
        assert_eq!((s.host.stats().reassembled, s.host.held()), (1, 0));
        s.check_slots();
        // One is missing.
        assert!(s.take_frames(&fragments[..2]).is_empty());
        assert_eq!((s.host.held(), s.host.held_packets()), (1, 2));
        s.check_slots();
        s.now_ns += 61 * SECOND;
        s.receive(&mut Burst::new());
        let answers = s.sent();
        let kind = if peer == PEER4 {
            v4::TIME_EXCEEDED
        } else {
            v6::TIME_EXCEEDED
        };
        let error = error_of(&answers[answers.len() - 1..], &fragments[0].bytes[14..]);
        assert_eq!(error, (kind, 1, 0));
        assert_eq!((s.host.held(), s.drops("fragment_timed_out")), (0, 2));
        s.check_slots();
    }
}

#[test]
fn rfc_1122_3_2_2_errors_are_limited() {
    let mut s = station();
    for _ in 0..100 {
        s.take(framed(OWN, &udp_packet(PEER4, HOST4, (9, 9), b"x")));
    }
    assert_eq!(s.sent().len(), 10, "a burst");
    assert_eq!(s.drops("no_listener"), 100);
}

#[test]
fn messages_that_a_host_ignores() {
    let mut s = station();
    for (kind, code) in [
        (4, 0),
        (5, 1),
        (13, 0),
        (15, 0),
        (17, 0),
        (9, 0),
        (10, 0),
        (99, 0),
    ] {
        let l4 = [kind, code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let ip = packet(PEER4, HOST4, protocol::ICMP, &l4, Some(2));
        assert!(s.answers(framed(OWN, &ip)).is_empty());
    }
    assert_eq!(s.drops("icmp_ignored"), 8);
    for kind in [5, 100, 130, 143, 200] {
        let l4 = [kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let ip = packet(PEER6, HOST6, protocol::ICMPV6, &l4, Some(2));
        assert!(s.answers(framed(OWN, &ip)).is_empty());
    }
    assert_eq!(s.drops("icmp_ignored"), 13);
}

#[test]
fn rfc_1191_5_and_rfc_8201_4_forged_mtus_are_not_believed() {
    let mut s = station();
    let quote = udp_packet(HOST4, PEER4, (9, 9), &[0; 100]);
    // 0: the next plateau below 128 bytes.
    for (mtu, reported) in [(0, Some(68)), (67, None), (128, None), (100, Some(100))] {
        let [high, low] = u16::to_be_bytes(mtu);
        let message = [&[3, 4, 0, 0, 0, 0, high, low][..], &quote].concat();
        let ip = packet(PEER4, HOST4, protocol::ICMP, &message, Some(2));
        s.take(framed(OWN, &ip));
        let kinds: Vec<_> = s.inbound.errors().iter().map(|error| error.kind).collect();
        let expected: Vec<_> = reported
            .into_iter()
            .map(|mtu| ErrorKind::TooBig { mtu })
            .collect();
        assert_eq!(kinds, expected, "{mtu}");
    }
    // Nobody has sent that, so nothing was noted.
    assert_eq!(s.host.stats().mtus_noted, 0);
    assert_eq!(s.host.note_too_big(at(PEER6), 1000, 0), None);
    let floor = s.host.note_too_big(at(PEER4), 100, 0).unwrap();
    assert_eq!((floor.bytes, floor.dont_fragment), (LEAST_MTU4, false));
}

#[test]
fn more_errors_than_are_reported_are_counted() {
    let mut s = station();
    let quote = udp_packet(HOST4, PEER4, (9, 9), b"x");
    let message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quote].concat();
    let ip = packet(PEER4, HOST4, protocol::ICMP, &message, Some(2));
    s.take(framed(OWN, &ip));
    // Some have arisen while sending, too.
    let local = [s.inbound.errors()[0]; 3];
    s.host.local_errors.extend(local);
    let frames = vec![Frame::new(framed(OWN, &ip)); MAX_ERRORS];
    assert!(s.take_frames(&frames).is_empty());
    let counts = (s.inbound.errors().len(), s.drops("icmp_too_many"));
    assert_eq!(counts, (MAX_ERRORS, 3));
    s.check_slots();
}
