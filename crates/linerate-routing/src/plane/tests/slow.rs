//! The slow worker: neighbours, host interfaces, and answers of our own.

use std::sync::mpsc;

use linerate_stack::neighbour::{Config, Event};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::flag;
use linerate_wire::{MacAddr, checksum};

use super::super::hops::{Action, Hop};
use super::super::punt::{Punt, Reason};
use super::super::testing::*;
use super::super::{Slow, counters::Sent};
use linerate_core::packet::Packet;

pub(super) fn slow(lab: &mut Lab) -> (Slow, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let tell = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let setup = lab.setup();
    let slow = Slow::new(setup, Config::default(), tell, &mut lab.egress).unwrap();
    lab.now = 1_000_000_000_000_000; // long after any address was probed for
    (slow, events)
}

/// A packet as the fast worker punts it.
fn punted(lab: &mut Lab, frame: &[u8], reason: Reason) -> Packet {
    let mut packet = lab.packet(frame);
    packet.set_user(Punt {
        reason,
        interface: WAN,
        ..Punt::default()
    });
    packet
}

/// An ARP packet with these sender and target addresses.
fn arp(operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = match operation {
        1 => vec![0xff; 6],
        _ => WAN_MAC.0.to_vec(),
    };
    frame.extend(HOST_MAC.0);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(HOST_MAC.0);
    frame.extend(sender);
    frame.extend([0; 6]);
    frame.extend(target);
    frame.resize(60, 0);
    frame
}

fn icmp_echo(v6: bool) -> Frame {
    let mut payload = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 2, 9, 9];
    let sum = match v6 {
        false => checksum::sum(&payload),
        true => {
            let (src, dst) = ("2001:db8::7", "2001:db8::1");
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
            let pseudo = checksum::pseudo_v6(octets(src), octets(dst), 58, payload.len() as u32);
            checksum::add(pseudo, checksum::sum(&payload))
        }
    };
    payload[2..4].copy_from_slice(&(!sum).to_be_bytes());
    Frame {
        dst: if v6 { "2001:db8::1" } else { "192.0.2.1" },
        protocol: if v6 { 58 } else { 1 },
        payload,
        ..if v6 { Frame::new6() } else { Frame::new() }
    }
}

#[test]
fn rfc826_requests_for_us_are_answered_and_heard() {
    let mut lab = Lab::new();
    let (mut slow, events) = slow(&mut lab);
    lab.left();
    let request = punted(
        &mut lab,
        &arp(1, [192, 0, 2, 9], [192, 0, 2, 1]),
        Reason::Arp,
    );
    let left = lab.run_packets(&mut slow, SLOW, vec![request]);
    assert_eq!(left.len(), 1, "{left:?} {:?}", lab.drops());
    assert_eq!((left[0].port, &left[0].frame[..6]), (0, &HOST_MAC.0[..]));
    assert_eq!(left[0].frame[20..22], [0, 2], "a reply");
    assert_eq!(left[0].frame[22..32], [2, 0, 0, 0, 0, 0x10, 192, 0, 2, 1]);
    assert_eq!(slow.neighbours().len(), 1);
    assert!(events.try_recv().is_err(), "no packet has asked for it");
}

#[test]
fn rfc1122_2_3_2_2_a_packet_waits_for_its_neighbour() {
    let mut lab = Lab::new();
    let (mut slow, events) = slow(&mut lab);
    lab.left();
    let frame = Frame {
        dst: "192.0.2.9",
        ttl: 63,
        ..Frame::new()
    }
    .bytes();
    let packet = punted(&mut lab, &frame, Reason::Glean);
    let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].frame[12..14], [8, 6], "asked for");
    assert_eq!(left[0].frame[38..42], [192, 0, 2, 9]);
    let reply = punted(
        &mut lab,
        &arp(2, [192, 0, 2, 9], [192, 0, 2, 1]),
        Reason::Arp,
    );
    let left = lab.run_packets(&mut slow, SLOW, vec![reply]);
    let released: Vec<_> = left.iter().filter(|left| left.port == 0).collect();
    assert_eq!(released.len(), 1, "{left:?}");
    let mut expected = frame;
    expected[..6].copy_from_slice(&HOST_MAC.0);
    expected[6..12].copy_from_slice(&WAN_MAC.0);
    assert_eq!(released[0].frame, expected);
    let event = events.try_recv().unwrap();
    let known = Event::Neighbour {
        interface: 0,
        address: "192.0.2.9".parse().unwrap(),
        mac: Some(HOST_MAC),
    };
    assert_eq!(event, known);
}

#[test]
fn a_hop_resolved_while_the_packet_waited_is_used() {
    let mut lab = Lab::new();
    let number = lab.hop(Lab::forward(WAN, "192.0.2.33"));
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    let mut packet = lab.packet(&Frame::new().bytes());
    packet.set_user(Punt {
        reason: Reason::Resolve,
        interface: WAN,
        hop: number,
        ..Punt::default()
    });
    let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
    assert_eq!(
        left[0].frame[38..42],
        [192, 0, 2, 33],
        "the gateway is asked for"
    );
}

#[test]
fn rfc1812_3_3_2_an_unresolved_neighbour_is_host_unreachable() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    let frame = Frame::between("192.0.2.7", "192.0.2.99").bytes();
    let packet = punted(&mut lab, &frame, Reason::Glean);
    lab.run_packets(&mut slow, SLOW, vec![packet]);
    let mut told = Vec::new();
    for tenths in 1..60 {
        let now = lab.now + tenths * 100_000_000;
        slow.tick(now, &mut lab.egress);
        told.extend(
            lab.left()
                .into_iter()
                .filter(|left| left.frame[12..14] == [8, 0]),
        );
    }
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].frame[34..36], [3, 1]);
    assert_eq!(lab.drops()["neighbour_unresolved"], 1);
}

/// The punts of a fast worker, as packets.
fn handed(lab: &mut Lab, left: &[Left]) -> Vec<Packet> {
    let punts = left.iter().filter_map(|left| Some((left, left.punt?)));
    let packet = |(left, punt): (&Left, Punt)| {
        let mut packet = lab.packet(&left.frame);
        packet.set_user(punt);
        packet
    };
    punts.map(packet).collect()
}

#[test]
fn rfc1812_4_3_2_4_the_way_back_is_that_of_the_senders_vrf() {
    let mut lab = Lab::new();
    // A route leaked from the sender's VRF into another one; only the sender's VRF has the route
    // back.
    lab.settings.interfaces[0].vrf = 1;
    let leaked = lab.hop(Hop {
        interface: LAN.into(),
        port: LAN.0,
        mtu: 1500,
        action: Action::Resolve,
        gateway: mapped("198.51.100.3"),
        ..Hop::default()
    });
    let back = lab.hop(Lab::forward(WAN, "192.0.2.7"));
    let nowhere = lab.hop(Hop::default());
    lab.route(1, "10.3.0.0/16", leaked);
    lab.route(1, "192.0.2.7/32", back);
    lab.route(0, "192.0.2.7/32", nowhere);
    let (mut slow, _events) = slow(&mut lab);
    let mut fast = lab.fast();
    lab.left();
    let frame = Frame {
        dst: "10.3.0.9",
        ..Frame::new()
    };
    let left = lab.run(&mut fast, 0, &[frame.bytes()]);
    let waiting = handed(&mut lab, &left);
    assert_eq!(waiting.len(), 1, "{left:?} {:?}", lab.drops());
    lab.run_packets(&mut slow, SLOW, waiting);
    let mut told = Vec::new();
    for tenths in 1..60 {
        slow.tick(lab.now + tenths * 100_000_000, &mut lab.egress);
        told.extend(lab.left());
    }
    told.retain(|left| left.frame[12..14] == [8, 0]);
    assert_eq!(told.len(), 1, "{:?}", lab.drops());
    assert_eq!((told[0].port, &told[0].frame[34..36]), (0, &[3, 1][..]));
}

#[test]
fn rfc5227_2_1_addresses_are_announced_when_a_link_comes_back() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    // Not the earlier addresses.
    for tenths in 1..60 {
        slow.tick(lab.now + tenths * 100_000_000, &mut lab.egress);
    }
    lab.left();
    slow.link_up(LAN, &mut lab.egress);
    let left = lab.left();
    assert!(left.iter().all(|left| left.port == 1), "{left:?}");
    let arps: Vec<&Left> = left
        .iter()
        .filter(|left| left.frame[12..14] == [8, 6])
        .collect();
    assert_eq!((arps.len(), left.len()), (1, 3), "{left:?}");
    let [ours, theirs] = [28, 38].map(|at| &arps[0].frame[at..at + 4]);
    assert_eq!(
        (ours, theirs),
        (&[198, 51, 100, 1][..], &[198, 51, 100, 1][..])
    );
}

#[test]
fn the_host_interface_gets_what_is_for_us_and_sends_what_it_likes() {
    let mut lab = Lab::new();
    let wan = &mut lab.settings.interfaces[0];
    (wan.host_interface, wan.vlan) = (Some(5), Some(100));
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    let frame = icmp_echo(false).bytes();
    let packet = punted(&mut lab, &frame, Reason::Local);
    let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
    let expected = Left {
        port: 5,
        frame: frame.clone(),
        punt: None,
    };
    assert_eq!(left, [expected]);
    // In the other direction the tag is added.
    let left = lab.run(&mut slow, 5, std::slice::from_ref(&frame));
    assert_eq!((left.len(), left[0].port), (1, 0));
    assert_eq!(left[0].frame[12..16], [0x81, 0, 0, 100]);
    assert_eq!(left[0].frame[16..], frame[12..]);
    // The kernel gets replies to its own requests as well, but no requests to us.
    let reply = punted(
        &mut lab,
        &arp(2, [192, 0, 2, 9], [192, 0, 2, 1]),
        Reason::Arp,
    );
    let left = lab.run_packets(&mut slow, SLOW, vec![reply]);
    assert_eq!(left.iter().filter(|left| left.port == 5).count(), 1);
    let request = punted(
        &mut lab,
        &arp(1, [192, 0, 2, 9], [192, 0, 2, 1]),
        Reason::Arp,
    );
    let left = lab.run_packets(&mut slow, SLOW, vec![request]);
    assert!(left.iter().all(|left| left.port == 0) && left.len() == 1);
    // It does get requests that show a neighbour's new MAC address: it would keep sending to the
    // old one.
    let mut moved = arp(1, [192, 0, 2, 9], [192, 0, 2, 1]);
    for at in [6, 22] {
        moved[at + 5] ^= 1;
    }
    lab.now += 1_000_000_000_000;
    for expected in [1, 0] {
        let request = punted(&mut lab, &moved, Reason::Arp);
        let left = lab.run_packets(&mut slow, SLOW, vec![request]);
        let to_host_interface = left.iter().filter(|left| left.port == 5).count();
        assert_eq!(
            (to_host_interface, left.len() - to_host_interface),
            (expected, 1),
            "{left:?}"
        );
    }
}

#[test]
fn rfc1812_4_3_3_6_ping_is_answered_where_there_is_no_host_interface() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    for v6 in [false, true] {
        let packet = punted(&mut lab, &icmp_echo(v6).bytes(), Reason::Local);
        let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
        assert_eq!(left.len(), 1, "{:?}", lab.drops());
        assert_eq!((left[0].port, &left[0].frame[..6]), (0, &HOST_MAC.0[..]));
        let at = if v6 { 54 } else { 34 };
        assert_eq!(left[0].frame[at..at + 2], [if v6 { 129 } else { 0 }, 0]);
        match v6 {
            true => {
                let ip = Ipv6::new_checked(&left[0].frame[14..]).unwrap();
                assert_eq!(ip.dst().to_string(), "2001:db8::7");
            }
            false => {
                let ip = Ipv4::new_checked(&left[0].frame[14..]).unwrap();
                assert!(ip.verify());
                assert_eq!(ip.dst().to_string(), "192.0.2.7");
            }
        }
    }
    assert_eq!(slow.counters().icmp(Sent::EchoReply), 2);
}

#[test]
fn rfc1122_3_2_2_1_closed_ports_and_unknown_protocols_are_unreachable() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    for (protocol, code) in [(17, Some(3)), (132, Some(2)), (6, None)] {
        let frame = Frame {
            dst: "192.0.2.1",
            protocol,
            ..Frame::new()
        };
        let packet = punted(&mut lab, &frame.bytes(), Reason::Local);
        let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
        let said = left.first().map(|left| left.frame[35]);
        assert_eq!(said, code, "protocol {protocol}");
    }
    assert_eq!(lab.drops()["not_served"], 3);
}

#[test]
fn the_slow_worker_ends_the_traces_of_what_it_gets() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    let (to, records) = mpsc::sync_channel(16);
    slow.tracer().set_follower(Some(to));
    let packet = |lab: &mut Lab, dst, reason, ticket| {
        let frame = Frame {
            dst,
            ..Frame::new()
        };
        let mut packet = lab.packet(&frame.bytes());
        packet.set_user(Punt {
            reason,
            interface: WAN,
            ticket,
            ..Punt::default()
        });
        packet
    };
    let said = || {
        let records = records.try_iter();
        let said = records.map(|record| (record.ticket, record.end));
        said.collect::<Vec<_>>()
    };
    // For a port of ours without a listener; and one that is not traced.
    for ticket in [7, 0] {
        let packet = packet(&mut lab, "192.0.2.1", Reason::Local, ticket);
        lab.run_packets(&mut slow, SLOW, vec![packet]);
    }
    assert_eq!(said(), [(7, "dropped: not_served".to_string())]);
    // Two packets wait: one for a neighbour that answers, one for a neighbour that does not.
    for (dst, ticket) in [("192.0.2.9", 8), ("192.0.2.99", 9)] {
        let packet = packet(&mut lab, dst, Reason::Glean, ticket);
        lab.run_packets(&mut slow, SLOW, vec![packet]);
    }
    assert_eq!(said(), []);
    let reply = arp(2, [192, 0, 2, 9], [192, 0, 2, 1]);
    let reply = punted(&mut lab, &reply, Reason::Arp);
    lab.run_packets(&mut slow, SLOW, vec![reply]);
    assert_eq!(said(), [(8, format!("sent by wan to {HOST_MAC}"))]);
    for tenths in 1..60 {
        let now = lab.now + tenths * 100_000_000;
        slow.tick(now, &mut lab.egress);
    }
    assert_eq!(said(), [(9, "dropped: neighbour_unresolved".to_string())]);
}

#[test]
fn rfc9293_3_5_2_segments_to_closed_ports_are_reset() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    lab.left();
    for (frame, to, at) in [
        (Frame::tcp(flag::SYN, &[]), "192.0.2.1", 34),
        (Frame::tcp6(flag::SYN, &[]), "2001:db8::1", 54),
    ] {
        let frame = Frame { dst: to, ..frame }.summed();
        let packet = punted(&mut lab, &frame.bytes(), Reason::Local);
        let left = lab.run_packets(&mut slow, SLOW, vec![packet]);
        assert_eq!((left.len(), left[0].port), (1, 0));
        assert_eq!(left[0].frame[..12], [HOST_MAC.0, WAN_MAC.0].concat());
        let segment = &left[0].frame[at..];
        assert_eq!(segment[8..14], [0, 0, 0, 101, 0x50, flag::RST | flag::ACK]);
    }
    assert_eq!(slow.counters().icmp(Sent::Reset), 2);
    assert_eq!(lab.drops()["not_served"], 2);
}

#[test]
fn pinned_neighbours_are_announced_to_routing() {
    let mut lab = Lab::new();
    let (mut slow, events) = slow(&mut lab);
    let address = "192.0.2.50".parse().unwrap();
    let mac = MacAddr::local(0x50);
    assert!(slow.pin(WAN, address, Some(mac), &mut lab.egress));
    let known = |mac| Event::Neighbour {
        interface: 0,
        address,
        mac,
    };
    assert_eq!(events.try_recv(), Ok(known(Some(mac))));
    assert!(slow.pin(WAN, address, None, &mut lab.egress));
    assert_eq!(events.try_recv(), Ok(known(None)));
}
