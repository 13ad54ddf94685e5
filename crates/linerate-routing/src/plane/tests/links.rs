//! Tags, offloads, interfaces and counters between packets and ports.

use linerate_core::packet::Offload;
use linerate_wire::ipv4::Ipv4;

use super::super::hops::{Action, Hop};
use super::super::punt::Reason;
use super::super::settings::{PortMap, Settings};
use super::super::testing::*;
use super::super::vlan;
use crate::model::InterfaceId;
use linerate_wire::MacAddr;

/// `wan` and `lan` as VLANs 100 and 200 of port 0, and port 1 without any.
fn trunk() -> Lab {
    let mut lab = Lab::new();
    lab.settings.ports = vec![
        PortMap {
            untagged: None,
            vlans: vec![(100, WAN), (200, LAN)],
        },
        PortMap::default(),
    ];
    for (interface, vlan) in lab.settings.interfaces.iter_mut().zip([100, 200]) {
        (interface.port, interface.vlan) = (0, Some(vlan));
    }
    let hop = lab.hop(Hop {
        vlan: 200,
        port: 0,
        ..Lab::forward(LAN, "198.51.100.2")
    });
    lab.route(0, "10.1.0.0/16", hop);
    lab
}

#[test]
fn packets_of_a_flow_leave_in_order_whatever_they_ask_for() {
    // IPv4 with options that do nothing, IPv6 with destination options, each among plain ones.
    let odd = Frame {
        options: vec![1, 1, 1, 0],
        ..Frame::new()
    };
    let odd6 = Frame {
        protocol: 60,
        options: vec![17, 0, 1, 4, 0, 0, 0, 0],
        ..Frame::new6()
    };
    for (plain, odd) in [(Frame::new(), odd), (Frame::new6(), odd6)] {
        let mut lab = Lab::new();
        let numbered = |number: u8| {
            let mut frame = if number % 3 == 1 { &odd } else { &plain }.clone();
            *frame.payload.last_mut().unwrap() = number;
            frame.bytes()
        };
        let frames: Vec<Vec<u8>> = (0..64).map(numbered).collect();
        let mut fast = lab.fast();
        let left = lab.run(&mut fast, 0, &frames);
        let expected = frames
            .into_iter()
            .map(|frame| forwarded(frame, ROUTER_MAC, LAN_MAC));
        let left = left.into_iter().map(|left| left.frame);
        assert_eq!(left.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

/// A frame with a tag among its bytes.
fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    tagged_as([0x81, 0], frame, tci)
}

/// The same with another EtherType than 802.1Q's.
fn tagged_as(kind: [u8; 2], frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &kind, &tci.to_be_bytes(), &frame[12..]].concat()
}

#[test]
fn ieee_802_1q_the_tag_selects_the_interface() {
    let mut lab = trunk();
    let frame = Frame::new().bytes();
    let left = lab.passes(&tagged(&frame, 0x6000 | 100));
    let expected = tagged(&forwarded(frame.clone(), ROUTER_MAC, LAN_MAC), 200);
    assert_eq!((left[0].port, &left[0].frame), (0, &expected));
    // The same with the tag in the metadata.
    let mut fast = lab.fast();
    let mut packet = lab.packet(&frame);
    let meta = packet.meta_mut();
    meta.vlan_tci = 100;
    meta.offload.insert(Offload::VLAN);
    let left = lab.run_packets(&mut fast, 0, vec![packet]);
    assert_eq!(left[0].frame, expected);
}

#[test]
fn unknown_tags_are_counted_drops() {
    let mut lab = trunk();
    let frame = Frame::new().bytes();
    for (frame, reason) in [
        (tagged(&frame, 300), "unknown_vlan"),
        // IEEE 802.1Q 5.5: a service tag (802.1ad) is not a customer tag, whatever its number.
        (tagged_as([0x88, 0xa8], &frame, 100), "unknown_vlan"),
        (tagged_as([0x91, 0], &frame, 100), "unknown_vlan"),
        (tagged(&tagged(&frame, 7), 100), "unknown_vlan"),
        (frame.clone(), "no_interface"),
        (tagged(&frame, 100)[..15].to_vec(), "truncated"),
    ] {
        lab.ignores(&frame, reason);
    }
    Lab::new().refuses(&tagged(&frame, 5), "unknown_vlan");
    let (_, drops) = lab.one(7, &frame);
    assert_eq!(drops, [("no_interface".to_string(), 1)].into());
}

#[test]
fn ieee_802_1q_9_6_a_priority_tag_is_no_vlan() {
    let mut lab = Lab::new();
    let frame = Frame::new().bytes();
    let mut fast = lab.fast();
    // Among other packets, whose order stays.
    let frames = [frame.clone(), tagged(&frame, 0xe000), frame.clone()];
    let left = lab.run(&mut fast, 0, &frames);
    let expected = forwarded(frame, ROUTER_MAC, LAN_MAC);
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|left| left.frame == expected));
}

#[test]
fn a_burst_of_several_vlans_is_split_without_loss() {
    let mut lab = trunk();
    let mut fast = lab.fast();
    let by_wan = Frame::new().bytes();
    let by_lan = Frame {
        dst_mac: LAN_MAC,
        dst: "10.2.0.1",
        ..Frame::new()
    }
    .bytes();
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|number| match number % 4 {
            0 => tagged(&by_wan, 100),
            1 => tagged(&by_lan, 200),
            2 => tagged(&by_wan, 300),
            _ => tagged(&by_lan, 100), // not the address of that interface
        })
        .collect();
    let left = lab.run(&mut fast, 0, &frames);
    assert_eq!(left.len(), 32);
    let drops = lab.drops();
    assert_eq!((drops["unknown_vlan"], drops["not_for_us"]), (16, 16));
    let counters = fast.counters();
    assert_eq!(counters.of("wan").unwrap().in_packets.read(), 32);
    assert_eq!(counters.of("lan").unwrap().in_packets.read(), 16);
    assert_eq!(counters.of("lan").unwrap().out_packets.read(), 16);
}

/// A frame of `segments` TCP segments of 1000 bytes that the kernel has not cut yet.
fn oversized(lab: &mut Lab, flags: u16) -> linerate_core::packet::Packet {
    let mut payload = vec![0; 20 + 3000];
    payload[12] = 0x50;
    let frame = Frame {
        protocol: 6,
        fragment: flags,
        payload,
        ..Frame::new()
    };
    let bytes = frame.bytes();
    let large = lab.egress.cache.pools().nth(1).unwrap().clone();
    let mut packet = lab.egress.cache.get(&large).unwrap();
    assert!(packet.set_data(&bytes));
    let meta = packet.meta_mut();
    meta.gso_size = 1000;
    meta.csum_start = 34;
    meta.csum_offset = 16;
    meta.offload
        .insert(Offload::GSO_TCP4 | Offload::CSUM_PARTIAL);
    packet
}

#[test]
fn oversized_frames_are_measured_by_their_segments() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let packet = oversized(&mut lab, 0x4000);
    let bytes = packet.data().to_vec();
    let left = lab.run_packets(&mut fast, 0, vec![packet]);
    assert_eq!(left.len(), 1, "{:?}", lab.drops());
    assert_eq!(left[0].frame, forwarded(bytes, ROUTER_MAC, LAN_MAC));
    // A link whose MTU is smaller than a segment.
    lab.narrow("10.1.0.0/16", 1039);
    let mut fast = lab.fast();
    let packet = oversized(&mut lab, 0x4000);
    let left = lab.run_packets(&mut fast, 0, vec![packet]);
    assert_eq!((left[0].port, &left[0].frame[34..36]), (0, &[3, 4][..]));
    // It passes where segments may be made smaller.
    let packet = oversized(&mut lab, 0);
    let left = lab.run_packets(&mut fast, 0, vec![packet]);
    assert_eq!((left[0].port, left[0].frame.len()), (1, 14 + 20 + 3020));
}

#[test]
fn an_unfinished_checksum_is_finished_before_a_packet_is_cut() {
    let mut lab = Lab::new();
    lab.narrow("10.1.0.0/16", 100);
    let mut fast = lab.fast();
    let frame = Frame {
        payload: udp(192),
        ..Frame::new()
    }
    .bytes();
    let mut packet = lab.packet(&frame);
    let pseudo = Ipv4::new_checked(&frame[14..]).unwrap().pseudo_sum();
    packet.data_mut()[40..42].copy_from_slice(&pseudo.to_be_bytes());
    let meta = packet.meta_mut();
    (meta.csum_start, meta.csum_offset) = (34, 6);
    meta.offload.insert(Offload::CSUM_PARTIAL);
    let left = lab.run_packets(&mut fast, 0, vec![packet]);
    let mut datagram = Vec::new();
    for part in &left {
        datagram.extend(Ipv4::new_checked(&part.frame[14..]).unwrap().payload());
    }
    use linerate_wire::checksum::{add, sum};
    assert_eq!(add(pseudo, sum(&datagram)), 0xffff);
}

#[test]
fn counters_go_on_over_a_reload_by_name() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let frames = vec![Frame::new().bytes(); 5];
    lab.run(&mut fast, 0, &frames);
    let traffic = |fast: &super::super::Fast, name: &str| {
        let counters = fast.counters();
        let traffic = counters.of(name).unwrap();
        [
            traffic.in_packets.read(),
            traffic.in_bytes.read(),
            traffic.out_packets.read(),
            traffic.out_bytes.read(),
        ]
    };
    assert_eq!(traffic(&fast, "wan"), [5, 300, 0, 0]);
    assert_eq!(traffic(&fast, "lan"), [0, 0, 5, 300]);
    // A new interface gets index 0.
    let mut settings: Settings = lab.settings.clone();
    let dmz = interface("dmz", 2, MacAddr::local(0x12), &[]);
    settings.interfaces.push(dmz);
    settings.interfaces.swap(0, 2);
    settings.ports[0].untagged = Some(InterfaceId(2));
    lab.reload(&mut fast, settings);
    assert_eq!(traffic(&fast, "wan"), [5, 300, 0, 0]);
    assert_eq!(traffic(&fast, "dmz"), [0; 4]);
    lab.run(&mut fast, 0, &frames);
    assert_eq!(traffic(&fast, "wan"), [10, 600, 0, 0]);
}

#[test]
fn a_full_outlet_is_flushed_without_loss() {
    let mut lab = Lab::new();
    lab.narrow("10.1.0.0/16", 68);
    let mut fast = lab.fast();
    // 30 fragments each.
    let frame = Frame {
        payload: udp(48 * 30 - 8),
        ..Frame::new()
    }
    .bytes();
    let left = lab.run(&mut fast, 0, &vec![frame; 20]);
    assert_eq!(left.len(), 600, "{:?}", lab.drops());
    assert_eq!(fast.counters().fragments_made.read(), 600);
    assert_eq!(vlan::untag(&mut lab.packet(&left[0].frame)), Some(0));
}

/// Packets that the kernel forwards go to it unchanged, by the host interface of their input
/// interface; without a host interface they are dropped, and the sender gets an error.
#[test]
fn what_the_host_forwards_is_handed_over_as_it_came() {
    for (has_host_interface, ttl) in [(true, 64), (true, 1), (false, 64)] {
        let mut lab = Lab::new();
        let by_host = lab.hop(Hop {
            action: Action::Host,
            ..Hop::default()
        });
        lab.route(0, "10.9.0.0/16", by_host);
        lab.settings.interfaces[0].host_interface = has_host_interface.then_some(SLOW + 1);
        let frame = Frame {
            ttl,
            ..Frame::to("10.9.0.1")
        };
        match has_host_interface {
            true => lab.punts(&frame.bytes(), Reason::Host),
            false => {
                let left = lab.refuses(&frame.bytes(), "no_host_interface");
                assert_eq!(left.len(), 1, "ICMP unreachable");
            }
        }
    }
}
