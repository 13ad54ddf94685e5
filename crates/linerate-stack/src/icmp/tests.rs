//! Errors byte by byte, each rule that forbids one, and echo.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_wire::icmp::Icmp;
use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::ndp::{self, NdpOption};
use linerate_wire::{MacAddr, checksum, protocol};
use proptest::prelude::*;

use super::*;

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// UDP of that many payload bytes behind IP header and options.
fn udp4(payload: usize) -> Vec<u8> {
    packet4(
        protocol::UDP,
        &[&[0x10, 0, 0, 53, 0, 8, 0, 0][..], &vec![0xab; payload]].concat(),
    )
}

fn packet4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4::header(0x28, 1, protocol, SRC, DST, payload.len() as u16).to_vec();
    packet.extend(payload);
    packet
}

/// The packet with some header bytes changed, and its header checksum right.
fn with4(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    Ipv4::new_checked(&mut packet[..]).unwrap().fill_checksum();
    packet
}

/// With options in front of the payload.
fn with_options(packet: Vec<u8>, options: &[u8]) -> Vec<u8> {
    let mut packet = packet;
    packet.splice(20..20, options.iter().copied());
    let total = packet.len() as u16;
    packet[0] = 0x40 | (5 + options.len() / 4) as u8;
    with4(packet, 2, &total.to_be_bytes())
}

fn error(packet: &[u8], kind: Error4) -> Option<Vec<u8>> {
    let mut out = [0xee; 1500];
    let len = error4(packet, kind, ROUTER, &mut out)?;
    let ip = Ipv4::new_checked(&out[..len]).unwrap();
    assert!(ip.verify() && ip.total_len() == len);
    assert!(Icmp::new_checked(ip.payload()).unwrap().verify(0));
    assert_eq!((ip.src(), ip.dst(), ip.ttl()), (ROUTER, ip.dst(), 64));
    Some(out[..len].to_vec())
}

fn is_refused(packet: &[u8]) -> bool {
    error(packet, Error4::TtlExceeded).is_none()
}

#[test]
fn rfc_792_time_exceeded_byte_by_byte() {
    let packet = udp4(0);
    let mut wanted = vec![0x45, 0xc8, 0, 56, 0, 0, 0x40, 0, 64, 1];
    wanted.extend([0x24, 0xff]);
    wanted.extend([10, 0, 0, 254, 10, 0, 0, 1]);
    let sum = checksum::checksum(&wanted[..20]);
    assert_eq!(sum, 0, "the checksum above is right");
    wanted.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    wanted.extend(&packet);
    let sum = checksum::checksum(&wanted[20..]);
    wanted[22..24].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(error(&packet, Error4::TtlExceeded).unwrap(), wanted);
}

#[test]
fn types_codes_and_the_word_behind() {
    let gateway = Ipv4Addr::new(10, 0, 0, 2);
    for (kind, wanted) in [
        (Error4::NetUnreachable, [3, 0, 0, 0, 0, 0]),
        (Error4::HostUnreachable, [3, 1, 0, 0, 0, 0]),
        (Error4::ProtocolUnreachable, [3, 2, 0, 0, 0, 0]),
        (Error4::PortUnreachable, [3, 3, 0, 0, 0, 0]),
        (
            Error4::FragmentationNeeded { mtu: 1400 },
            [3, 4, 0, 0, 5, 0x78],
        ), // RFC 1191 4
        (Error4::SourceRouteFailed, [3, 5, 0, 0, 0, 0]),
        (Error4::NetProhibited, [3, 9, 0, 0, 0, 0]),
        (Error4::HostProhibited, [3, 10, 0, 0, 0, 0]),
        (Error4::AdminProhibited, [3, 13, 0, 0, 0, 0]),
        (Error4::TtlExceeded, [11, 0, 0, 0, 0, 0]),
        (Error4::ReassemblyExceeded, [11, 1, 0, 0, 0, 0]),
        (
            Error4::ParameterProblem { pointer: 20 },
            [12, 0, 20, 0, 0, 0],
        ),
        (Error4::OptionMissing, [12, 1, 0, 0, 0, 0]),
        (Error4::Redirect { gateway }, [5, 1, 10, 0, 0, 2]),
    ] {
        let error = error(&udp4(4), kind).unwrap();
        let [kind_byte, code, _, _, a, b, c, d] = error[20..28] else {
            unreachable!("eight bytes");
        };
        assert_eq!([kind_byte, code, a, b, c, d], wanted, "{kind:?}");
    }
}

#[test]
fn rfc_1812_4_3_2_3_quotes_as_much_as_576_bytes_hold() {
    for payload in [0, 100, 519, 520, 521, 1400] {
        let packet = udp4(payload);
        let error = error(&packet, Error4::TtlExceeded).unwrap();
        assert_eq!(error.len(), (28 + packet.len()).min(576));
        assert_eq!(error[28..], packet[..error.len() - 28]);
    }
    // Padding behind the packet is not quoted.
    let mut padded = udp4(2);
    padded.extend([0; 16]);
    assert_eq!(error(&padded, Error4::TtlExceeded).unwrap().len(), 28 + 30);
}

#[test]
fn rfc_792_header_and_eight_bytes_at_least() {
    let packet = with_options(udp4(100), &[1; 40]);
    let least = 28 + 60 + 8;
    let write = |len: usize| error4(&packet, Error4::TtlExceeded, ROUTER, &mut [0; 600][..len]);
    assert_eq!((write(least - 1), write(least)), (None, Some(least)));
    assert_eq!(write(0), None);
}

#[test]
fn rfc_1812_4_3_2_5_precedence_6_and_the_packets_own_tos() {
    for (tos, wanted) in [
        (0x00, 0xc0),
        (0x1c, 0xdc),
        (0xe0, 0xc0),
        (0x08, 0xc8),
        (0x03, 0xc0),
    ] {
        let packet = with4(udp4(0), 1, &[tos]);
        assert_eq!(error(&packet, Error4::TtlExceeded).unwrap()[1], wanted);
    }
}

#[test]
fn rfc_1812_4_3_2_7_no_error_for_an_error() {
    for kind in 0..=255 {
        let packet = packet4(protocol::ICMP, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        let is_query = matches!(kind, 0 | 8 | 9 | 10 | 13..=18);
        assert_eq!(is_refused(&packet), !is_query, "ICMP type {kind}");
    }
    assert!(
        is_refused(&packet4(protocol::ICMP, &[])),
        "its type is not there"
    );
}

#[test]
fn rfc_1812_4_3_2_7_no_error_for_groups_and_broadcasts() {
    for dst in [[224, 0, 0, 5], [239, 1, 1, 1], [255; 4], [0; 4]] {
        assert!(is_refused(&with4(udp4(0), 16, &dst)), "{dst:?}");
    }
}

#[test]
fn rfc_1812_4_3_2_7_no_error_to_an_address_that_is_no_single_host() {
    for src in [
        [0; 4],
        [0, 0, 0, 9],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255; 4],
    ] {
        assert!(is_refused(&with4(udp4(0), 12, &src)), "{src:?}");
    }
}

#[test]
fn rfc_1812_4_3_2_7_no_error_for_a_later_fragment() {
    assert!(is_refused(&with4(udp4(8), 6, &[0x20, 1])));
    assert!(is_refused(&with4(udp4(8), 6, &[0, 1])));
    assert!(
        !is_refused(&with4(udp4(8), 6, &[0x20, 0])),
        "the first one may"
    );
}

#[test]
fn rfc_1812_4_3_2_7_no_error_for_a_broken_header() {
    let packet = udp4(0);
    assert!(is_refused(&packet[..27]) && is_refused(&[]));
    let mut longer = packet.clone();
    longer[3] += 1;
    assert!(is_refused(&longer));
}

#[test]
fn rfc_1812_5_2_7_2_source_routed_packets_are_not_redirected() {
    let redirect = Error4::Redirect { gateway: DST };
    for (options, is_routed) in [
        ([1, 131, 7, 4, 10, 0, 0, 9], true),
        ([137, 7, 4, 10, 0, 0, 9, 0], true),
        ([7, 7, 4, 0, 0, 0, 0, 0], false),   // record route
        ([0, 131, 7, 4, 0, 0, 0, 0], false), // behind the end
        ([148, 4, 0, 0, 131, 3, 4, 1], true),
        ([148, 9, 131, 0, 0, 0, 0, 0], false), // a length past the end
    ] {
        let packet = with_options(udp4(0), &options);
        assert_eq!(error(&packet, redirect).is_none(), is_routed, "{options:?}");
        assert!(!is_refused(&packet), "other errors are sent");
    }
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn udp6(payload: usize) -> Vec<u8> {
    packet6(protocol::UDP, &vec![0xab; payload])
}

fn packet6(next: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (v6("2001:db8::7"), v6("2001:db8:9::1"));
    let mut packet = ipv6::header(next, 1, src, dst, payload.len() as u16).to_vec();
    packet.extend(payload);
    packet
}

fn with_addresses(mut packet: Vec<u8>, src: &str, dst: &str) -> Vec<u8> {
    packet[8..24].copy_from_slice(&v6(src).octets());
    packet[24..40].copy_from_slice(&v6(dst).octets());
    packet
}

fn error_v6(packet: &[u8], kind: Error6) -> Option<Vec<u8>> {
    let mut out = [0xee; 1500];
    let len = error6(packet, kind, v6("2001:db8::1"), &mut out)?;
    let ip = Ipv6::new_checked(&out[..len]).unwrap();
    let upper = ip.upper_layer().unwrap();
    assert_eq!(
        (ip.total_len(), upper.protocol, ip.hop_limit()),
        (len, protocol::ICMPV6, 64)
    );
    assert!(
        Icmp::new_checked(ip.payload())
            .unwrap()
            .verify(ip.pseudo_sum(&upper))
    );
    Some(out[..len].to_vec())
}

#[test]
fn rfc_4443_3_2_packet_too_big_byte_by_byte() {
    let packet = udp6(0);
    let mut wanted = vec![0x60, 0, 0, 0, 0, 48, 58, 64];
    wanted.extend(v6("2001:db8::1").octets());
    wanted.extend(v6("2001:db8::7").octets());
    let error = error_v6(&packet, Error6::PacketTooBig { mtu: 1400 }).unwrap();
    wanted.extend([2, 0, error[42], error[43], 0, 0, 5, 0x78]);
    wanted.extend(&packet);
    assert_eq!(error, wanted);
}

#[test]
fn rfc_4443_3_types_codes_and_the_word_behind() {
    for (kind, wanted) in [
        (Error6::NoRoute, [1, 0, 0]),
        (Error6::AdminProhibited, [1, 1, 0]),
        (Error6::BeyondScope, [1, 2, 0]),
        (Error6::AddressUnreachable, [1, 3, 0]),
        (Error6::PortUnreachable, [1, 4, 0]),
        (Error6::SourcePolicy, [1, 5, 0]),
        (Error6::RejectRoute, [1, 6, 0]),
        (Error6::HopLimitExceeded, [3, 0, 0]),
        (Error6::ReassemblyExceeded, [3, 1, 0]),
        (Error6::ErroneousHeader { pointer: 4 }, [4, 0, 4]),
        (Error6::UnknownNextHeader { pointer: 6 }, [4, 1, 6]),
        (Error6::UnknownOption { pointer: 42 }, [4, 2, 42]),
        (Error6::IncompleteHeaderChain, [4, 3, 0]),
    ] {
        let error = error_v6(&udp6(8), kind).unwrap();
        assert_eq!([error[40], error[41], error[47]], wanted, "{kind:?}");
    }
}

#[test]
fn rfc_4443_2_4_c_quotes_as_much_as_1280_bytes_hold() {
    for payload in [0, 1191, 1192, 1193, 1400] {
        let packet = udp6(payload);
        let error = error_v6(&packet, Error6::HopLimitExceeded).unwrap();
        assert_eq!(error.len(), (48 + packet.len()).min(1280));
        assert_eq!(error[48..], packet[..error.len() - 48]);
    }
    let write = |len: usize| {
        let src = v6("2001:db8::1");
        error6(&udp6(9), Error6::NoRoute, src, &mut [0; 100][..len])
    };
    assert_eq!((write(87), write(88), write(30)), (None, Some(88), None));
}

#[test]
fn rfc_4443_2_4_e_1_and_2_no_error_for_errors_and_redirects() {
    let is_refused = |packet: &[u8]| error_v6(packet, Error6::NoRoute).is_none();
    for kind in 0..=255 {
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        let wanted = kind < 128 || kind == 137;
        assert_eq!(
            is_refused(&packet6(protocol::ICMPV6, &message)),
            wanted,
            "type {kind}"
        );
        // Behind a destination options header too.
        let behind = [&[protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        assert_eq!(
            is_refused(&packet6(protocol::DEST_OPTIONS, &behind)),
            wanted,
            "type {kind}"
        );
    }
    assert!(
        is_refused(&packet6(protocol::ICMPV6, &[])),
        "its type is not there"
    );
    let later = [&[protocol::ICMPV6, 0, 0, 8, 0, 0, 0, 1][..], &[128; 8]].concat();
    assert!(
        is_refused(&packet6(protocol::FRAGMENT, &later)),
        "its type is out of sight"
    );
}

#[test]
fn rfc_4443_2_4_e_3_multicast_gets_two_errors_only() {
    // A destination option of type 0x80 or 0xc0, which asks for a report: always, or unless
    // multicast.
    let option = |kind| packet6(protocol::DEST_OPTIONS, &[59, 0, kind, 4, 0, 0, 0, 0]);
    let to_group = |packet| with_addresses(packet, "2001:db8::7", "ff0e::1");
    let unknown = Error6::UnknownOption { pointer: 42 };
    for (packet, kind, is_sent) in [
        (option(0x80), unknown, true),
        (option(0xc0), unknown, false),
        (option(0x80), Error6::UnknownOption { pointer: 4000 }, false),
        (udp6(8), Error6::PacketTooBig { mtu: 1280 }, true),
        (udp6(8), Error6::HopLimitExceeded, false),
        (udp6(8), Error6::NoRoute, false),
    ] {
        assert!(error_v6(&packet, kind).is_some());
        assert_eq!(
            error_v6(&to_group(packet), kind).is_some(),
            is_sent,
            "{kind:?}"
        );
    }
}

#[test]
fn rfc_4443_2_4_e_6_no_error_to_an_address_that_is_no_single_node() {
    for src in ["::", "ff02::1", "::1"] {
        let packet = with_addresses(udp6(0), src, "2001:db8:9::1");
        assert!(error_v6(&packet, Error6::NoRoute).is_none(), "{src}");
    }
}

#[test]
fn rfc_4861_8_2_redirects() {
    let (router, mac) = (v6("fe80::1"), MacAddr::local(9));
    let mut out = [0; 1280];
    let packet = udp6(1400);
    let target = v6("fe80::2");
    let len = redirect6(&packet, target, Some(mac), router, &mut out).unwrap();
    assert!(len <= 1280);
    let accepted = ndp::accept(&out[..len]).unwrap();
    assert_eq!((accepted.src, accepted.dst), (router, v6("2001:db8::7")));
    let message = accepted.message;
    assert_eq!(
        (message.target(), message.target_mac()),
        (Some(target), Some(mac))
    );
    assert_eq!(message.destination(), Some(v6("2001:db8:9::1")));
    let Some(NdpOption::Redirected(quote)) = message.options().last() else {
        panic!("it quotes");
    };
    assert_eq!(quote, &packet[..quote.len()]);
    assert!(quote.len() >= 1280 - 40 - 40 - 8 - 8 - 8);
    // The destination itself, where that is a neighbour.
    assert!(redirect6(&packet, v6("2001:db8:9::1"), None, router, &mut out).is_some());
    let refused = [
        (packet.clone(), v6("2001:db8::2")), // neither link-local nor the destination
        (with_addresses(udp6(0), "2001:db8::7", "ff0e::1"), target),
        (with_addresses(udp6(0), "::", "2001:db8:9::1"), target),
        (
            packet6(protocol::ICMPV6, &[137, 0, 0, 0, 0, 0, 0, 0]),
            target,
        ),
        (
            packet6(protocol::ROUTING, &[59, 0, 4, 1, 0, 0, 0, 0]),
            target,
        ),
    ];
    for (packet, target) in refused {
        assert_eq!(redirect6(&packet, target, None, router, &mut out), None);
    }
    assert_eq!(
        redirect6(&packet, target, None, router, &mut out[..100]),
        None
    );
}

/// An echo request, identifier 0x1234, sequence 0xabcd.
const ECHO: [u8; 12] = [
    0x08, 0x00, 0x8e, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0x00, 0x00, 0xff,
];

#[test]
fn rfc_1812_4_3_3_6_echo_is_answered_in_place() {
    let mut packet = packet4(protocol::ICMP, &ECHO);
    packet.extend([7; 3]); // padding
    assert!(echo4(&mut packet));
    let ip = Ipv4::new_checked(&packet[..]).unwrap();
    assert_eq!(
        (ip.src(), ip.dst(), ip.ttl(), ip.tos()),
        (DST, SRC, 64, 0x28)
    );
    assert!(ip.verify());
    let icmp = Icmp::new_checked(ip.payload()).unwrap();
    assert!(icmp.verify(0));
    let wanted = [0, 0, 0x96, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0, 0, 0xff];
    assert_eq!(ip.payload(), wanted);
    assert_eq!(packet[32..], [7; 3]);
}

#[test]
fn echo_requests_that_are_not_answered_stay_as_they_are() {
    let good = packet4(protocol::ICMP, &ECHO);
    let mut broken = good.clone();
    broken[30] ^= 1;
    let mut header = good.clone();
    header[8] ^= 1;
    for (why, packet) in [
        ("a wrong checksum", broken),
        ("a wrong header checksum", header),
        (
            "a reply",
            packet4(
                protocol::ICMP,
                &[0, 0, 0x96, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0, 0, 0xff],
            ),
        ),
        ("a fragment", with4(good.clone(), 6, &[0x20, 0])),
        ("to a group", with4(good.clone(), 16, &[224, 0, 0, 1])),
        ("to all", with4(good.clone(), 16, &[255; 4])),
        ("from nobody", with4(good.clone(), 12, &[0; 4])),
        (
            "source-routed",
            with_options(good.clone(), &[131, 7, 8, 10, 0, 0, 9, 0]),
        ),
        ("UDP", udp4(8)),
        ("short", good[..31].to_vec()),
    ] {
        let mut after = packet.clone();
        assert!(!echo4(&mut after), "{why}");
        assert_eq!(after, packet, "{why}");
    }
    let mut recorded = with_options(good, &[7, 7, 4, 0, 0, 0, 0, 0]);
    assert!(echo4(&mut recorded));
    assert_eq!(recorded[20..24], [7, 7, 4, 0], "options are kept");
}

/// An ICMPv6 echo request with its checksum.
fn echo_request6() -> Vec<u8> {
    let mut packet = packet6(protocol::ICMPV6, &[&[128][..], &ECHO[1..]].concat());
    let ip = Ipv6::new_checked(&packet[..]).unwrap();
    let pseudo = ip.pseudo_sum(&ip.upper_layer().unwrap());
    Icmp::new_checked(&mut packet[40..])
        .unwrap()
        .fill_checksum(pseudo);
    packet
}

#[test]
fn rfc_4443_4_2_echo_is_answered_in_place() {
    let mut packet = echo_request6();
    assert!(echo6(&mut packet));
    let ip = Ipv6::new_checked(&packet[..]).unwrap();
    assert_eq!(
        (ip.src(), ip.dst()),
        (v6("2001:db8:9::1"), v6("2001:db8::7"))
    );
    assert_eq!(ip.hop_limit(), 64);
    let icmp = Icmp::new_checked(ip.payload()).unwrap();
    assert!(icmp.verify(ip.pseudo_sum(&ip.upper_layer().unwrap())));
    assert_eq!((icmp.kind(), icmp.payload()), (129, &ECHO[8..]));
    assert!(!echo6(&mut packet), "a reply is not answered");
    let mut broken = echo_request6();
    broken[47] ^= 1;
    assert!(!echo6(&mut broken));
    let mut group = with_addresses(echo_request6(), "2001:db8::7", "ff02::1");
    assert!(!echo6(&mut group));
}

proptest! {
    #[test]
    fn errors_hold_together_whatever_the_packet(mut bytes in prop::collection::vec(any::<u8>(),
        0..1600), v4: bool, room in 0usize..1500) {
        if let Some(first) = bytes.first_mut() {
            *first = if v4 { 0x45 } else { 0x60 };
        }
        if bytes.len() >= 40 {
            let payload = (bytes.len() - 40) as u16;
            let (at, len) = if v4 { (2, payload + 40) } else { (4, payload) };
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        let mut out = vec![0; room];
        let whole = error4(&bytes, Error4::HostUnreachable, ROUTER, &mut [0; MAX_ERROR4_LEN]);
        prop_assert_eq!(may_answer4(&bytes, Error4::HostUnreachable), whole.is_some());
        if let Some(len) = error4(&bytes, Error4::HostUnreachable, ROUTER, &mut out) {
            let ip = Ipv4::new_checked(&out[..len]).unwrap();
            prop_assert!(len <= MAX_ERROR4_LEN && ip.verify());
            // An error must not be answered with an error.
            prop_assert_eq!(error4(&out[..len], Error4::HostUnreachable, ROUTER, &mut [0; 576]),
                None);
        }
        let router = v6("2001:db8::1");
        let whole = error6(&bytes, Error6::NoRoute, router, &mut [0; MAX_ERROR6_LEN]);
        prop_assert_eq!(may_answer6(&bytes, Error6::NoRoute), whole.is_some());
        if let Some(len) = error6(&bytes, Error6::NoRoute, router, &mut out) {
            prop_assert!(len <= MAX_ERROR6_LEN);
            let ip = Ipv6::new_checked(&out[..len]).unwrap();
            let upper = ip.upper_layer().unwrap();
            prop_assert!(Icmp::new_checked(ip.payload()).unwrap().verify(ip.pseudo_sum(&upper)));
            prop_assert_eq!(error6(&out[..len], Error6::NoRoute, router, &mut [0; 1280]), None);
        }
        let before = bytes.clone();
        if !echo4(&mut bytes) && !echo6(&mut bytes) {
            prop_assert_eq!(bytes, before);
        }
    }

    #[test]
    fn errors_agree_with_etherparse(payload in prop::collection::vec(any::<u8>(), 0..1400)) {
        let mut out = [0; 1280];
        let len = error4(&packet4(protocol::UDP, &payload), Error4::HostUnreachable, ROUTER,
            &mut out).unwrap();
        let oracle = etherparse::SlicedPacket::from_ip(&out[..len]).unwrap();
        let Some(etherparse::TransportSlice::Icmpv4(icmp)) = oracle.transport else {
            panic!("it is ICMP");
        };
        prop_assert_eq!(icmp.header().icmp_type.calc_checksum(icmp.payload()),
            icmp.header().checksum);
        let mut out = [0; 1280];
        let len = error6(&packet6(protocol::UDP, &payload), Error6::NoRoute, v6("2001:db8::1"),
            &mut out).unwrap();
        let oracle = etherparse::SlicedPacket::from_ip(&out[..len]).unwrap();
        let Some(etherparse::TransportSlice::Icmpv6(icmp)) = oracle.transport else {
            panic!("it is ICMPv6");
        };
        prop_assert!(icmp.is_checksum_valid(v6("2001:db8::1").octets(),
            v6("2001:db8::7").octets()));
    }
}
