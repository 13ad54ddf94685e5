//! Incremental checksums against full ones, and translation against its reverse.

use super::*;
use crate::nat::testing::{Like, error, frame, sound, tuple, tuple_of};
use crate::nat::{Endpoint, Tuple};
use linerate_wire::{FlowKey, parse};
use proptest::prelude::*;
use std::net::IpAddr;

const TCP: u8 = protocol::TCP;
const UDP: u8 = protocol::UDP;
const ICMP: u8 = protocol::ICMP;

/// The keys of a tuple of either version.
fn keys(tuple: &Tuple) -> FlowKey {
    tuple.key().expect("both ends are of one family")
}

/// Translates packets of `from` into such of `to`, by the path for established flows.
fn write_fast(frame: &mut [u8], from: &Tuple, to: &Tuple, is_partial: bool) -> bool {
    let headers = parse(frame).unwrap();
    let (l3, l4, is_udp) = (headers.l3, headers.l4.unwrap(), from.protocol == UDP);
    match (keys(from), keys(to)) {
        (FlowKey::V4(from), FlowKey::V4(to)) => {
            Translation4::new(&from, &to).write(frame, l3, l4, is_udp, is_partial)
        }
        (FlowKey::V6(from), FlowKey::V6(to)) => {
            Translation6::new(&from, &to).write(frame, l3, l4, is_udp, is_partial)
        }
        _ => false,
    }
}

fn with_to<T>(to: &Tuple, then: impl FnOnce(&To<'_>) -> T) -> T {
    match keys(to) {
        FlowKey::V4(key) => then(&Translation4::new(&key, &key).to()),
        FlowKey::V6(key) => then(&Translation6::new(&key, &key).to()),
    }
}

fn write_slow(frame: &mut [u8], to: &Tuple, is_partial: bool) -> bool {
    let headers = parse(frame).unwrap();
    with_to(to, |to| write_any(frame, &headers, to, is_partial))
}

fn write_error_to(frame: &mut [u8], to: &Tuple, router: Option<&[u8]>) -> bool {
    let headers = parse(frame).unwrap();
    let quoted = headers.quoted(frame).unwrap().unwrap();
    with_to(to, |to| {
        write_error(frame, &headers, &quoted, to, router, false)
    })
}

fn inside() -> Tuple {
    tuple("10.0.0.1:4000", "192.0.2.1:80", TCP)
}

fn outside() -> Tuple {
    tuple("198.51.100.1:1024", "192.0.2.1:80", TCP)
}

#[test]
fn a_packet_becomes_what_would_have_been_built() {
    for protocol in [TCP, UDP, ICMP, protocol::SCTP, 50] {
        let port = if protocol == ICMP { 8 } else { 80 };
        let from = tuple("10.0.0.1:4000", &format!("192.0.2.1:{port}"), protocol);
        let to = from.with_src(Endpoint::new([198, 51, 100, 1], 1024));
        let mut packet = frame(&from, b"payload", Like::default());
        assert!(write_slow(&mut packet, &to, false));
        let expected = match protocol {
            TCP | UDP | ICMP => frame(&to, b"payload", Like::default()),
            // By address alone: ports of SCTP stay.
            _ => {
                let to = from.with_src(Endpoint::new([198, 51, 100, 1], 4000));
                frame(&to, b"payload", Like::default())
            }
        };
        assert_eq!(packet, expected, "protocol {protocol}");
    }
}

#[test]
fn rfc_5508_req_1_queries_and_their_answers_have_the_identifier_of_who_asked() {
    let from = tuple("10.0.0.1:77", "192.0.2.1:8", ICMP);
    let to = from.with_src(Endpoint::new([198, 51, 100, 1], 1024));
    let mut packet = frame(&from, b"payload", Like::default());
    assert!(write_slow(&mut packet, &to, false));
    assert_eq!(tuple_of(&packet), to);
    // The answer, with everything the other way round.
    packet = frame(&to, b"payload", Like::default());
    packet[26..34].rotate_left(4);
    packet[34] = 0;
    packet[36..38].copy_from_slice(&[0, 0]);
    let sum = checksum::checksum(&packet[34..]);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(tuple_of(&packet), to.reversed());
    assert!(write_slow(&mut packet, &from.reversed(), false));
    sound(&packet);
    assert_eq!(tuple_of(&packet), from.reversed());
}

#[test]
fn rfc_768_a_udp_checksum_of_0_stays_0_and_none_becomes_0() {
    let from = Tuple {
        protocol: UDP,
        ..inside()
    };
    let to = Tuple {
        protocol: UDP,
        ..outside()
    };
    let mut packet = frame(&from, b"payload", Like::default());
    packet[40..42].fill(0);
    for write in [true, false] {
        let mut packet = packet.clone();
        match write {
            true => assert!(write_fast(&mut packet, &from, &to, false)),
            false => assert!(write_slow(&mut packet, &to, false)),
        }
        assert_eq!((tuple_of(&packet), &packet[40..42]), (to, &[0; 2][..]));
    }
    // Some port makes the sum such that 0 would have to be sent.
    let all = (1..=u16::MAX).filter(|&port| {
        let to = from.with_src(Endpoint::new([198, 51, 100, 1], port));
        let mut packet = frame(&from, b"payload", Like::default());
        assert!(write_fast(&mut packet, &from, &to, false));
        assert_ne!(packet[40..42], [0, 0]);
        packet[40..42] == [0xff, 0xff] && sound(&packet).ports == Some((port, 80))
    });
    assert_eq!(all.count(), 1);
}

#[test]
fn an_unfinished_checksum_stays_a_sum_of_the_pseudo_header() {
    for (from, to) in [
        (inside(), outside()),
        (
            tuple("[fd00::1]:4000", "[2001:db8::1]:80", UDP),
            tuple("[2001:db8:ffff::9]:5000", "[2001:db8::1]:80", UDP),
        ),
    ] {
        let pseudo = |frame: &[u8]| parse(frame).unwrap().covered(frame).unwrap().pseudo;
        let mut packet = frame(&from, b"payload", Like::default());
        let at = parse(&packet).unwrap().l4.unwrap() + if from.protocol == TCP { 16 } else { 6 };
        let sum = pseudo(&packet);
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        for is_fast in [true, false] {
            let mut packet = packet.clone();
            assert!(match is_fast {
                true => write_fast(&mut packet, &from, &to, true),
                false => write_slow(&mut packet, &to, true),
            });
            assert_eq!(packet[at..at + 2], pseudo(&packet).to_be_bytes());
            assert_eq!(tuple_of(&packet), to);
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut packet = frame(&inside(), b"payload", Like::default());
    packet[60] ^= 1;
    assert!(write_fast(&mut packet, &inside(), &outside(), false));
    assert_eq!(parse(&packet).unwrap().is_l4_right(&packet), Some(false));
    packet[60] ^= 1;
    sound(&packet);
}

#[test]
fn fragments_are_translated_as_the_datagram_was() {
    let (from, to) = (inside(), outside());
    let whole = frame(&from, &[7; 100], Like::default());
    let fragment = |from: usize, to: usize, offset: u16| {
        let mut packet = whole[..34].to_vec();
        packet.extend(&whole[34 + from..34 + to]);
        packet[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        packet[20..22].copy_from_slice(&offset.to_be_bytes());
        packet[24..26].fill(0);
        let header = checksum::checksum(&packet[14..34]);
        packet[24..26].copy_from_slice(&header.to_be_bytes());
        packet
    };
    let mut parts = [fragment(0, 64, 0x2000), fragment(64, 120, 8)];
    for part in &mut parts {
        assert!(write_slow(part, &to, false));
        sound(part);
    }
    let joined = [&parts[0][34..], &parts[1][34..]].concat();
    assert_eq!(joined, frame(&to, &[7; 100], Like::default())[34..]);
    // A first fragment without its checksum is not translated in part.
    let mut tiny = fragment(0, 8, 0x2000);
    let before = tiny.clone();
    assert!(!write_slow(&mut tiny, &to, false));
    assert_eq!(tiny, before);
}

#[test]
fn rfc_5508_req_4_an_error_from_outside_and_its_quote_reach_the_inside() {
    for len in [28, 32, 40, 60, 200] {
        let sent = frame(&outside(), &[9; 100], Like::default());
        let router = IpAddr::from([203, 0, 113, 5]);
        let mut packet = error(router, outside().src.address, 3, &sent, len);
        // Of packets that come back: from the server to the pool, to the inside.
        let to = outside().reversed().with_dst(inside().src);
        assert!(write_error_to(&mut packet, &to, None));
        let headers = sound(&packet);
        let original = frame(&inside(), &[9; 100], Like::default());
        let expected = error(router, inside().src.address, 3, &original, len);
        assert_eq!(packet, expected, "{len} bytes quoted");
        assert_eq!(headers.icmp_type_code(&packet), Some((3, 1)));
    }
}

#[test]
fn rfc_5508_req_5_an_error_from_inside_shows_no_inside_address() {
    // The server's packet, as it is inside, could not be delivered there.
    let sent = frame(&inside().reversed(), &[9; 100], Like::default());
    let outer = frame(&outside().reversed(), &[9; 100], Like::default());
    let server = inside().dst.address;
    for (who, router) in [("10.0.0.1", None), ("10.0.0.254", Some([198, 51, 100, 1]))] {
        let mut packet = error(who.parse().unwrap(), server, 3, &sent, 60);
        assert!(write_error_to(
            &mut packet,
            &outside(),
            router.as_ref().map(|a| &a[..])
        ));
        sound(&packet);
        let expected = error(outside().src.address, server, 3, &outer, 60);
        assert_eq!(packet, expected);
    }
}

#[test]
fn rfc_5508_req_3_quotes_of_queries_udp_and_others_are_translated() {
    for protocol in [UDP, ICMP, protocol::SCTP] {
        for is_optional in [false, true] {
            let port = if protocol == ICMP { 8 } else { 53 };
            let from = tuple("10.0.0.1:4000", &format!("192.0.2.1:{port}"), protocol);
            let to = from.with_src(Endpoint::new([198, 51, 100, 1], 1024));
            let mut sent = frame(
                &to,
                &[9; 100],
                Like {
                    options: 2,
                    ..Like::default()
                },
            );
            let mut original = frame(
                &from,
                &[9; 100],
                Like {
                    options: 2,
                    ..Like::default()
                },
            );
            if protocol == UDP && is_optional {
                sent[48..50].fill(0);
                original[48..50].fill(0);
            }
            if protocol == protocol::SCTP {
                // The quote must have ports, which stay.
                original[42..50].fill(5);
                sent[42..50].fill(5);
            }
            let router = IpAddr::from([203, 0, 113, 5]);
            let mut packet = error(router, to.src.address, 11, &sent, 36);
            assert!(write_error_to(
                &mut packet,
                &to.reversed().with_dst(from.src),
                None
            ));
            let expected = error(router, from.src.address, 11, &original, 36);
            assert_eq!(packet, expected, "protocol {protocol}");
        }
    }
}

#[test]
fn errors_of_ipv6_are_translated_with_their_pseudo_header() {
    for protocol in [TCP, UDP, protocol::ICMPV6] {
        let port = if protocol == protocol::ICMPV6 {
            128
        } else {
            80
        };
        let from = tuple("[fd00::1]:4000", &format!("[2001:db8::1]:{port}"), protocol);
        let to = from.with_src(Endpoint::new("2001:db8:f::1".parse::<IpAddr>().unwrap(), 9));
        for options in [0, 2] {
            let like = Like {
                options,
                ..Like::default()
            };
            let sent = frame(&to, &[9; 100], like);
            let router: IpAddr = "2001:db8:5::1".parse().unwrap();
            let mut packet = error(router, to.src.address, 1, &sent, 100);
            assert!(write_error_to(
                &mut packet,
                &to.reversed().with_dst(from.src),
                None
            ));
            sound(&packet);
            let original = frame(&from, &[9; 100], like);
            assert_eq!(packet, error(router, from.src.address, 1, &original, 100));
        }
    }
}

#[test]
fn what_does_not_fit_is_left_alone() {
    let packet = frame(&inside(), b"payload", Like::default());
    let headers = parse(&packet).unwrap();
    let v6 = tuple("[fd00::1]:4000", "[2001:db8::1]:80", TCP);
    let mut copy = packet.clone();
    assert!(!write_slow(&mut copy, &v6, false));
    assert!(!with_to(&outside(), |to| write_any(
        &mut copy[..50],
        &headers,
        to,
        false
    )));
    let (FlowKey::V4(from), FlowKey::V4(to)) = (keys(&inside()), keys(&outside())) else {
        panic!("these are IPv4");
    };
    let translation = Translation4::new(&from, &to);
    assert!(!translation.write(&mut copy[..51], 14, 34, false, false));
    assert!(!translation.write(&mut copy, 14, 33, false, false));
    assert_eq!(copy, packet);
}

fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
    any::<([u8; 16], [u8; 4])>().prop_map(move |(long, short)| match v6 {
        true => long.into(),
        false => short.into(),
    })
}

fn endpoint(v6: bool) -> impl Strategy<Value = Endpoint> {
    (address(v6), any::<u16>()).prop_map(|(address, port)| Endpoint { address, port })
}

/// A tuple and what it becomes, of one family and protocol.
fn flows() -> impl Strategy<Value = (Tuple, Tuple)> {
    let number = prop::sample::select(vec![TCP, UDP, 33, 136, ICMP, 132, 50]);
    (any::<bool>(), number).prop_flat_map(|(v6, number)| {
        let protocol = if v6 && number == ICMP {
            protocol::ICMPV6
        } else {
            number
        };
        let end = || endpoint(v6);
        (end(), end(), end(), end()).prop_map(move |(a, b, c, d)| {
            let tuple = |src, dst| Tuple { src, dst, protocol };
            let mut flows = (tuple(a, b), tuple(c, d));
            if matches!(protocol, ICMP | protocol::ICMPV6) {
                let kind = if v6 { 128 } else { 8 };
                (flows.0.dst.port, flows.1.dst.port) = (kind, kind);
            }
            flows
        })
    })
}

proptest! {
    #[test]
    fn incremental_checksums_equal_full_ones((from, to) in flows(), payload: Vec<u8>,
        options in 0usize..4, is_atomic: bool) {
        let like = Like { options, is_atomic };
        let has_ports = matches!(from.protocol, TCP | UDP | ICMP | protocol::ICMPV6);
        let mut packet = frame(&from, &payload, like);
        prop_assume!(has_ports || payload.len() >= 8);
        prop_assert!(write_slow(&mut packet, &to, false));
        if has_ports {
            prop_assert_eq!(&packet, &frame(&to, &payload, like));
        } else {
            let headers = parse(&packet).unwrap();
            prop_assert_ne!(headers.is_ipv4_right(&packet), Some(false));
        }
        if matches!(from.protocol, TCP | UDP) {
            let mut again = frame(&from, &payload, like);
            prop_assert!(write_fast(&mut again, &from, &to, false));
            prop_assert_eq!(&again, &packet);
        }
    }

    #[test]
    fn translation_and_its_reverse_are_the_identity((from, to) in flows(), payload: Vec<u8>,
        options in 0usize..4, is_atomic: bool, partial: bool) {
        let like = Like { options, is_atomic };
        let before = frame(&from, &payload, like);
        let mut packet = before.clone();
        if write_slow(&mut packet, &to, partial) {
            prop_assert!(write_slow(&mut packet, &from, partial));
        }
        // A sum of 0 and one of all ones are the same number, of which 0 does not come back.
        let headers = parse(&packet).unwrap();
        if !partial || headers.protocol == Some(50) {
            prop_assert_eq!(&packet, &before);
        }
        if matches!(from.protocol, TCP | UDP) {
            let mut packet = before.clone();
            let (FlowKey::V4(a), FlowKey::V4(b)) = (keys(&from), keys(&to)) else {
                return Ok(());
            };
            let there = Translation4::new(&a, &b);
            let back = Translation4::with(&a, there.differences().reversed());
            let (l3, l4) = (headers.l3, headers.l4.unwrap());
            let is_udp = from.protocol == UDP;
            prop_assert!(there.write(&mut packet, l3, l4, is_udp, false));
            prop_assert!(back.write(&mut packet, l3, l4, is_udp, false));
            prop_assert_eq!(&packet, &before);
        }
    }

    #[test]
    fn errors_are_translated_and_back((from, to) in flows(), payload in prop::collection::vec(
        any::<u8>(), 8..100), options in 0usize..4, len: usize, far in any::<bool>()) {
        let like = Like { options, is_atomic: false };
        // `from` becomes `to` one way; the error about such a packet comes back.
        let sent = frame(&to, &payload, like);
        // RFC 792: 8 bytes of the upper layer at least; a checksum as a whole or not at all.
        let least = parse(&sent).unwrap().l4.unwrap() - 14 + 8;
        let len = least + len % sent.len() / 2 * 2;
        let router = if far { to.dst.address } else { to.src.address };
        let kind = if to.src.address.is_ipv4() { 3 } else { 1 };
        let before = error(router, to.src.address, kind, &sent, len);
        let mut packet = before.clone();
        let headers = parse(&packet).unwrap();
        if !matches!(headers.quoted(&packet), Ok(Some(_))) {
            return Ok(());
        }
        prop_assert!(write_error_to(&mut packet, &from.reversed(), None));
        sound(&packet);
        if matches!(from.protocol, TCP | UDP | ICMP | protocol::ICMPV6) {
            let original = frame(&from, &payload, like);
            let who = if far { from.dst.address } else { to.src.address };
            prop_assert_eq!(&packet, &error(who, from.src.address, kind, &original, len));
        }
        prop_assert!(write_error_to(&mut packet, &to.reversed(), None));
        prop_assert_eq!(packet, before);
    }

    #[test]
    fn any_bytes_are_translated_within_their_bounds(bytes in prop::collection::vec(any::<u8>(),
        14..200), kind in 0usize..4, (_, to) in flows(), partial: bool) {
        let mut frame = bytes;
        let (ethertype, number, at) = [(0x0800_u16, 1, 23), (0x0800, 6, 23), (0x86dd, 58, 20),
            (0x86dd, 17, 20)][kind];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        if frame.len() > 60 {
            frame[at] = number;
            frame[14] = if ethertype == 0x0800 { 0x45 } else { 0x60 };
            let len = (frame.len() - 14) as u16;
            match ethertype {
                0x0800 => frame[16..18].copy_from_slice(&len.to_be_bytes()),
                _ => frame[18..20].copy_from_slice(&(len - 40.min(len)).to_be_bytes()),
            }
        }
        if let Ok(headers) = parse(&frame) {
            let before = frame.clone();
            let quoted = headers.quoted(&frame).ok().flatten();
            let done = with_to(&to, |to| match &quoted {
                Some(quoted) => write_error(&mut frame, &headers, quoted, to, None, partial),
                None => write_any(&mut frame, &headers, to, partial),
            });
            prop_assert!(done || frame == before);
        }
    }
}
