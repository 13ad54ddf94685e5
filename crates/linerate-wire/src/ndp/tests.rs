//! Messages byte by byte, and every rule of validity with a packet that breaks it.

use super::*;
use crate::ipv6;
use proptest::prelude::*;
use std::{string::ToString, vec::Vec};

const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn packet(src: Ipv6Addr, dst: Ipv6Addr, message: Message<'_>) -> Vec<u8> {
    let mut out = [0; 1500];
    let len = message.write(src, dst, &mut out).unwrap();
    let mut packet = ipv6::header(protocol::ICMPV6, HOP_LIMIT, src, dst, len as u16).to_vec();
    packet.extend(&out[..len]);
    packet
}

/// The packet after a change, with the checksum made right again.
fn changed(packet: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = packet.to_vec();
    change(&mut packet);
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[42..44].fill(0);
    let pseudo = checksum::pseudo_v6(array(&packet, 8), array(&packet, 24), 58, len.into());
    let sum = checksum::add(pseudo, checksum::sum(&packet[40..]));
    packet[42..44].copy_from_slice(&(!sum).to_be_bytes());
    packet
}

fn solicitation(target: Ipv6Addr) -> Message<'static> {
    Message::NeighbourSolicitation {
        target,
        source_mac: Some(MAC),
    }
}

fn advertisement(solicited: bool) -> Message<'static> {
    Message::NeighbourAdvertisement {
        target: HOST,
        target_mac: Some(MAC),
        router: true,
        solicited,
        override_known: true,
    }
}

fn reason(packet: &[u8]) -> Refused {
    accept(packet).map(|_| ()).unwrap_err()
}

#[test]
fn derived_addresses() {
    assert_eq!(solicited_node(HOST).to_string(), "ff02::1:ff12:3456");
    assert_eq!(
        multicast_mac(solicited_node(HOST)).to_string(),
        "33:33:ff:12:34:56"
    );
    let mac = MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
    // RFC 2464 4's own example.
    assert_eq!(link_local(mac).to_string(), "fe80::3656:78ff:fe9a:bcde");
}

#[test]
fn rfc_4861_4_3_solicitation_is_written_and_read() {
    let bytes = packet(US, solicited_node(HOST), solicitation(HOST));
    let mut wanted = std::vec![0x87, 0, bytes[42], bytes[43], 0, 0, 0, 0];
    wanted.extend(HOST.octets());
    wanted.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    assert_eq!(bytes[40..], wanted[..]);
    let accepted = accept(&bytes).unwrap();
    assert_eq!((accepted.src, accepted.dst), (US, solicited_node(HOST)));
    let message = accepted.message;
    assert_eq!(message.kind(), MessageKind::NeighbourSolicitation);
    assert_eq!(
        (message.target(), message.source_mac()),
        (Some(HOST), Some(MAC))
    );
    assert_eq!((message.target_mac(), message.destination()), (None, None));
    assert_eq!(
        message.to_string(),
        "neighbour solicitation 2001:db8::12:3456"
    );
}

#[test]
fn rfc_4861_4_4_advertisement_is_written_and_read() {
    let bytes = packet(HOST, US, advertisement(true));
    assert_eq!(bytes[40..42], [0x88, 0]);
    assert_eq!(bytes[44..48], [0xe0, 0, 0, 0]);
    assert_eq!(bytes[64..], [2, 1, 2, 0, 0, 0, 0, 9]);
    let message = accept(&bytes).unwrap().message;
    assert!(message.is_router() && message.is_solicited() && message.is_override());
    assert_eq!(message.target_mac(), Some(MAC));
    assert_eq!(message.router(), None);
}

#[test]
fn rfc_4861_4_1_and_4_2_router_messages_are_written_and_read() {
    let source_mac = Some(MAC);
    let bytes = packet(US, ALL_ROUTERS, Message::RouterSolicitation { source_mac });
    assert_eq!(bytes[44..], [0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 9]);
    let message = accept(&bytes).unwrap().message;
    assert_eq!((message.source_mac(), message.target()), (source_mac, None));

    let router = Router {
        hop_limit: 64,
        managed: true,
        other: false,
        lifetime_s: 1800,
        reachable_ms: 30_000,
        retransmit_ms: 1000,
    };
    let prefix = PrefixInfo {
        prefix: "2001:db8::".parse().unwrap(),
        len: 64,
        on_link: true,
        autonomous: false,
        valid_s: 2_592_000,
        preferred_s: 604_800,
    };
    let message = Message::RouterAdvertisement {
        router,
        source_mac,
        mtu: Some(1500),
        prefixes: &[prefix],
    };
    let bytes = packet(US, ALL_NODES, message);
    let mut wanted = std::vec![64, 0x80, 7, 8, 0, 0, 0x75, 0x30, 0, 0, 3, 0xe8];
    wanted.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    wanted.extend([5, 1, 0, 0, 0, 0, 5, 0xdc]);
    wanted.extend([
        3, 4, 64, 0x80, 0, 0x27, 0x8d, 0, 0, 9, 0x3a, 0x80, 0, 0, 0, 0,
    ]);
    wanted.extend(prefix.prefix.octets());
    assert_eq!(bytes[44..], wanted[..]);
    let message = accept(&bytes).unwrap().message;
    assert_eq!(message.router(), Some(router));
    let options: Vec<_> = message.options().collect();
    let all = [
        NdpOption::SourceMac(MAC),
        NdpOption::Mtu(1500),
        NdpOption::Prefix(prefix),
    ];
    assert_eq!(options, all);
}

#[test]
fn rfc_4861_4_5_redirect_quotes_within_the_least_mtu() {
    let quoted = [0x60; 1500];
    for (len, mac, padded) in [(1500, Some(MAC), 1184), (41, None, 48), (48, None, 48)] {
        let message = Message::Redirect {
            target: US,
            destination: HOST,
            target_mac: mac,
            packet: &quoted[..len],
        };
        let bytes = packet(US, HOST, message);
        assert!(bytes.len() <= ipv6::MIN_MTU);
        let message = accept(&bytes).unwrap().message;
        assert_eq!(
            (
                message.target(),
                message.destination(),
                message.target_mac()
            ),
            (Some(US), Some(HOST), mac)
        );
        let Some(NdpOption::Redirected(quote)) = message.options().last() else {
            panic!("it quotes");
        };
        assert_eq!(quote.len(), padded);
        let (text, padding) = quote.split_at(len.min(padded));
        assert_eq!(text, &quoted[..text.len()]);
        assert!(padding.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn writers_refuse_a_short_buffer() {
    let message = advertisement(false);
    for len in 0..32 {
        assert_eq!(message.write(US, HOST, &mut [0; 40][..len]), None);
    }
    assert_eq!(message.write(US, HOST, &mut [0; 32]), Some(32));
}

#[test]
fn rfc_4861_7_1_1_solicitations_that_are_refused() {
    let good = packet(US, solicited_node(HOST), solicitation(HOST));
    let mut near = good.clone();
    near[7] = 254;
    assert_eq!(reason(&near), Refused::HopLimit);
    let mut flipped = good.clone();
    flipped[50] ^= 1;
    assert_eq!(reason(&flipped), Refused::Checksum);
    assert_eq!(reason(&changed(&good, |b| b[41] = 1)), Refused::Code);
    let short = changed(&good, |b| b.truncate(63));
    assert_eq!(
        reason(&short),
        Refused::Malformed(Malformed::Truncated(Layer::Icmp))
    );
    let no_length = changed(&good, |b| b[65] = 0);
    assert_eq!(
        reason(&no_length),
        Refused::Malformed(Malformed::HeaderLength(Layer::Icmp))
    );
    let long = changed(&good, |b| b[65] = 2);
    assert_eq!(
        reason(&long),
        Refused::Malformed(Malformed::HeaderLength(Layer::Icmp))
    );
    let multicast = changed(&good, |b| b[48] = 0xff);
    assert_eq!(reason(&multicast), Refused::Addresses);
    // From the unspecified address: to the target's group, and no source address option.
    let unspecified = |dst| packet(Ipv6Addr::UNSPECIFIED, dst, solicitation(HOST));
    assert_eq!(
        reason(&unspecified(solicited_node(HOST))),
        Refused::Addresses
    );
    let bare = |dst| changed(&unspecified(dst), |b| b.truncate(64));
    assert_eq!(reason(&bare(ALL_NODES)), Refused::Addresses);
    assert!(accept(&bare(solicited_node(HOST))).is_ok());
}

#[test]
fn rfc_4861_7_1_2_advertisements_that_are_refused() {
    assert!(accept(&packet(HOST, ALL_NODES, advertisement(false))).is_ok());
    assert_eq!(
        reason(&packet(HOST, ALL_NODES, advertisement(true))),
        Refused::Addresses
    );
    let multicast = changed(&packet(HOST, US, advertisement(true)), |b| b[48] = 0xff);
    assert_eq!(reason(&multicast), Refused::Addresses);
}

#[test]
fn rfc_4861_6_1_and_8_1_router_messages_that_are_refused() {
    let source_mac = Some(MAC);
    let message = Message::RouterSolicitation { source_mac };
    assert_eq!(
        reason(&packet(Ipv6Addr::UNSPECIFIED, ALL_ROUTERS, message)),
        Refused::Addresses
    );
    let message = Message::RouterAdvertisement {
        router: Router::default(),
        source_mac,
        mtu: None,
        prefixes: &[],
    };
    assert!(accept(&packet(US, ALL_NODES, message)).is_ok());
    assert_eq!(
        reason(&packet(HOST, ALL_NODES, message)),
        Refused::Addresses
    );
    let redirect = |target, destination| Message::Redirect {
        target,
        destination,
        target_mac: None,
        packet: &[],
    };
    assert!(accept(&packet(US, HOST, redirect(HOST, HOST))).is_ok());
    for (src, message) in [
        (HOST, redirect(HOST, HOST)),
        (US, redirect(HOST, US)),
        (US, redirect(US, ALL_NODES)),
    ] {
        assert_eq!(reason(&packet(src, HOST, message)), Refused::Addresses);
    }
}

#[test]
fn rfc_6980_5_fragments_are_refused() {
    let good = packet(HOST, US, advertisement(true));
    let mut bytes = ipv6::header(protocol::FRAGMENT, 255, HOST, US, 8 + 32).to_vec();
    bytes.extend([protocol::ICMPV6, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend(&good[40..]);
    assert_eq!(reason(&bytes), Refused::Fragment);
}

#[test]
fn unknown_options_are_skipped() {
    let good = packet(US, solicited_node(HOST), solicitation(HOST));
    let with = changed(&good, |b| {
        b.splice(
            64..64,
            [14, 1, 9, 9, 9, 9, 9, 9, 1, 2].into_iter().chain([0; 14]),
        );
    });
    let accepted = accept(&with).unwrap();
    // A source address option of two units is no MAC address.
    assert_eq!(accepted.message.source_mac(), Some(MAC));
    assert_eq!(accepted.message.options().count(), 3);
}

proptest! {
    #[test]
    fn never_panics(kind in 133u8..=137, tail in prop::collection::vec(any::<u8>(), 0..200),
        src: [u8; 16]) {
        let mut bytes = ipv6::header(58, 255, src.into(), ALL_NODES,
            tail.len() as u16 + 4).to_vec();
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend(&tail);
        let bytes = changed(&bytes, |_| ());
        if let Ok(accepted) = accept(&bytes) {
            let message = accepted.message;
            let _ = (message.to_string(), message.options().count(), message.router());
            prop_assert_eq!(message.target().is_some(), kind >= 135);
        }
    }

    #[test]
    fn written_messages_agree_with_etherparse(target: [u8; 16], src: [u8; 16], dst: [u8; 16]) {
        let mut out = [0; 64];
        let len = solicitation(target.into()).write(src.into(), dst.into(), &mut out).unwrap();
        let oracle = etherparse::Icmpv6Slice::from_slice(&out[..len]).unwrap();
        prop_assert!(oracle.is_checksum_valid(src, dst));
    }
}
