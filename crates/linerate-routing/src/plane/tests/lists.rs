//! Access lists: verdicts, counters, log and answers.

use std::sync::Arc;

use linerate_core::packet::Offload;
use linerate_tables::acl::{Bits, Match4, Match6, Prefix, Range};
use linerate_wire::MacAddr;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::{Tcp, flag};

use super::super::acl::{AccessList, AclRule, Answer, Verdict};
use super::super::counters::Sent;
use super::super::hops::{Action, Hop};
use super::super::lists::Gate;
use super::super::punt::Reason;
use super::super::settings::PortMap;
use super::super::testing::*;

/// Denies DNS over UDP, and over TCP in IPv4; permits the rest.
pub(super) fn list() -> Arc<AccessList> {
    let dns = |protocol| Match4 {
        dst_ports: Range::one(53),
        protocol: Bits::byte(protocol),
        ..Match4::ANY
    };
    let dns6 = Match6 {
        dst_ports: Range::one(53),
        protocol: Bits::byte(17),
        ..Match6::ANY
    };
    let rules = [v4(dns(17)), v4(dns(6)), v6(dns6)];
    Arc::new(AccessList::new("edge", Verdict::Permit, &rules).unwrap())
}

fn v4(matching: Match4) -> AclRule {
    AclRule {
        v4: Some(matching),
        v6: None,
        verdict: Verdict::Deny,
        log: false,
    }
}

fn v6(matching: Match6) -> AclRule {
    AclRule {
        v4: None,
        v6: Some(matching),
        verdict: Verdict::Deny,
        log: false,
    }
}

/// Applies a list to what comes in by the first interface, or goes out by the second. Returns the
/// reason of its drops.
fn look_through(lab: &mut Lab, list: Arc<AccessList>, is_in: bool) -> &'static str {
    lab.settings.acls = vec![list];
    match is_in {
        true => {
            lab.settings.interfaces[0].acl_in = Some(0);
            "acl_in.edge"
        }
        false => {
            lab.settings.interfaces[1].acl_out = Some(0);
            "acl_out.edge"
        }
    }
}

#[test]
fn access_lists_judge_what_comes_in_and_what_goes_out() {
    for is_in in [true, false] {
        let mut lab = Lab::new();
        let reason = look_through(&mut lab, list(), is_in);
        for frame in [Frame::new(), Frame::new6()] {
            let (left, drops) = lab.one(0, &frame.bytes());
            assert!(left.is_empty());
            assert_eq!(count(&drops, reason), 1, "{drops:?}");
            let mut other = frame.clone();
            other.payload[3] = 54;
            let (left, drops) = lab.one(0, &other.bytes());
            assert_eq!((left.len(), drops.len()), (1, 0), "{drops:?}");
            // A list of an interface does not see packets that leave by another.
            let elsewhere = Frame {
                dst: if frame.dst.contains(':') {
                    "2001:db8:a2::1"
                } else {
                    "10.2.0.1"
                },
                src: if frame.dst.contains(':') {
                    "2001:db8:ff::1"
                } else {
                    "203.0.113.9"
                },
                ..frame
            };
            let (left, _) = lab.one(0, &elsewhere.bytes());
            assert_eq!(left.len(), usize::from(!is_in));
        }
    }
}

/// A list of one rule about UDP to port 53, which logs its packets.
fn rejecting() -> Arc<AccessList> {
    let dns = Match4 {
        dst_ports: Range::one(53),
        protocol: Bits::byte(17),
        ..Match4::ANY
    };
    let dns6 = Match6 {
        dst_ports: Range::one(53),
        protocol: Bits::byte(17),
        ..Match6::ANY
    };
    let rule = AclRule {
        v4: Some(dns),
        v6: Some(dns6),
        verdict: Verdict::Reject,
        log: true,
    };
    Arc::new(AccessList::new("edge", Verdict::Permit, &[rule]).unwrap())
}

#[test]
fn rfc1812_5_2_7_1_and_5_3_9_rejected_packets_are_answered() {
    for is_in in [true, false] {
        let mut lab = Lab::new();
        let reason = look_through(&mut lab, rejecting(), is_in);
        for (frame, at, said) in [(Frame::new(), 34, [3, 13]), (Frame::new6(), 54, [1, 1])] {
            let (left, drops) = lab.one(0, &frame.bytes());
            assert_eq!(left.len(), 1, "{drops:?}");
            assert_eq!((left[0].port, &left[0].frame[at..at + 2]), (0, &said[..]));
            assert_eq!(drops, [(reason.to_string(), 1)].into());
        }
        // RFC 1812 4.3.2.7: no error for a link-layer broadcast, nor for a later fragment.
        let everybody = Frame {
            dst_mac: linerate_wire::MacAddr::BROADCAST,
            ..Frame::new()
        };
        let later = Frame {
            fragment: 6,
            ..Frame::new()
        };
        for frame in [everybody, later] {
            let (left, drops) = lab.one(0, &frame.bytes());
            assert!(left.is_empty(), "{left:?}");
            assert_eq!(drops.values().sum::<u64>(), 1, "{drops:?}");
        }
    }
}

/// A list that rejects TCP in this way.
fn refusing(answer: Answer) -> Arc<AccessList> {
    let rule = AclRule {
        v4: Some(Match4 {
            protocol: Bits::byte(6),
            ..Match4::ANY
        }),
        v6: Some(Match6 {
            protocol: Bits::byte(6),
            ..Match6::ANY
        }),
        verdict: Verdict::Reject,
        log: false,
    };
    let list = AccessList::new("edge", Verdict::Permit, &[rule]).unwrap();
    Arc::new(list.answering(answer))
}

/// Reads a reset from a frame: source, destination, flags, sequence and acknowledgment. Checks its
/// checksums.
fn reset(frame: &[u8]) -> (String, String, u8, u32, u32) {
    let read = |segment: &[u8], pseudo| {
        let tcp = Tcp::new_checked(segment).unwrap();
        assert!(tcp.verify(pseudo) && tcp.payload().is_empty());
        assert_eq!((tcp.src_port(), tcp.dst_port()), (22, 5000));
        (tcp.flags(), tcp.seq(), tcp.ack())
    };
    let (from, to, (flags, seq, ack)) = match frame[12..14] {
        [8, 0] => {
            let ip = Ipv4::new_checked(&frame[14..]).unwrap();
            assert!(ip.verify() && ip.protocol() == 6 && ip.ttl() == 64);
            // RFC 894: frames are padded to the minimum, with zeros.
            assert_eq!((frame.len(), &frame[54..]), (60, &[0; 6][..]));
            let read = read(ip.payload(), ip.pseudo_sum());
            (ip.src().to_string(), ip.dst().to_string(), read)
        }
        _ => {
            let ip = Ipv6::new_checked(&frame[14..]).unwrap();
            let upper = ip.upper_layer().unwrap();
            assert_eq!((upper.protocol, ip.hop_limit(), frame.len()), (6, 64, 74));
            let read = read(ip.payload(), ip.pseudo_sum(&upper));
            (ip.src().to_string(), ip.dst().to_string(), read)
        }
    };
    (from, to, flags, seq, ack)
}

#[test]
fn rfc9293_3_10_7_1_tcp_that_is_rejected_is_reset() {
    for is_in in [true, false] {
        let mut lab = Lab::new();
        let reason = look_through(&mut lab, refusing(Answer::Reset), is_in);
        for (syn, data, ends) in [
            (
                Frame::tcp(flag::SYN, &[]),
                Frame::tcp(flag::ACK | flag::PSH, b"data"),
                ("10.1.0.9".to_string(), "192.0.2.7".to_string()),
            ),
            (
                Frame::tcp6(flag::SYN, &[]),
                Frame::tcp6(flag::ACK | flag::PSH, b"data"),
                ("2001:db8:a1::9".to_string(), "2001:db8::7".to_string()),
            ),
        ] {
            // For a SYN: SEQ 0 and its acknowledgment; for a segment with ACK: SEQ is what it
            // acknowledged.
            for (frame, flags, seq, ack) in [
                (syn, flag::RST | flag::ACK, 0, 101),
                (data, flag::RST, 7, 0),
            ] {
                let left = lab.refuses(&frame.bytes(), reason);
                assert_eq!((left.len(), left[0].port), (1, 0));
                assert_eq!(left[0].frame[..12], [HOST_MAC.0, WAN_MAC.0].concat());
                let said = reset(&left[0].frame);
                assert_eq!(said, (ends.0.clone(), ends.1.clone(), flags, seq, ack));
            }
        }
    }
}

#[test]
fn other_protocols_and_parts_of_segments_are_rejected_by_icmp() {
    let mut lab = Lab::new();
    lab.judge(rejecting());
    assert_eq!(
        lab.one(0, &Frame::new().bytes()).0[0].frame[34..36],
        [3, 13]
    );
    // The segment length of a first fragment is unknown, so it cannot be acknowledged.
    lab.judge(refusing(Answer::Reset));
    let first = Frame {
        fragment: 0x2000,
        ..Frame::tcp(flag::SYN, &[0; 8])
    };
    let left = lab.refuses(&first.bytes(), "acl_in.edge");
    assert_eq!((left.len(), &left[0].frame[34..36]), (1, &[3, 13][..]));
    let later = Frame {
        fragment: 6,
        ..Frame::tcp(flag::SYN, &[])
    };
    lab.ignores(&later.bytes(), "acl_in.edge");
    // With `Answer::Icmp` every rejection is.
    lab.judge(refusing(Answer::Icmp));
    let left = lab.refuses(&Frame::tcp(flag::SYN, &[]).bytes(), "acl_in.edge");
    assert_eq!(left[0].frame[34..36], [3, 13]);
    let left = lab.refuses(&Frame::tcp6(flag::SYN, &[]).bytes(), "acl_in.edge");
    assert_eq!(left[0].frame[54..56], [1, 1]);
}

#[test]
fn rfc9293_3_10_7_1_and_3_9_2_3_segments_that_get_no_reset() {
    let mut lab = Lab::new();
    lab.judge(refusing(Answer::Reset));
    let mut broken = Frame::tcp(flag::SYN, &[]);
    broken.payload[16] ^= 1;
    let everybody = Frame {
        dst_mac: MacAddr::BROADCAST,
        ..Frame::tcp(flag::SYN, &[])
    };
    let syn = |src, dst| Frame {
        src,
        dst,
        ..Frame::tcp(flag::SYN, &[])
    };
    for (why, frame) in [
        ("a reset", Frame::tcp(flag::RST, &[])),
        ("a reset", Frame::tcp6(flag::RST | flag::ACK, &[])),
        ("its checksum is wrong", broken),
        ("to everybody on the link", everybody),
        (
            "to everybody on a network",
            syn("192.0.2.7", "198.51.100.255").summed(),
        ),
        ("to a group", syn("192.0.2.7", "224.0.0.5").summed()),
        ("from nowhere", syn("203.0.113.9", "10.1.0.9").summed()),
        ("from us", syn("192.0.2.1", "10.1.0.9").summed()),
    ] {
        let (left, drops) = lab.one(0, &frame.bytes());
        assert!(left.is_empty(), "{why}: {left:?}");
        assert_eq!(count(&drops, "acl_in.edge"), 1, "{why}: {drops:?}");
    }
    // An unfinished checksum (offload by the kernel) is not an error.
    let mut broken = Frame::tcp(flag::SYN, &[]);
    broken.payload[16] ^= 1;
    let mut packet = lab.packet(&broken.bytes());
    packet.meta_mut().offload.insert(Offload::CSUM_PARTIAL);
    let mut fast = lab.fast();
    assert_eq!(lab.run_packets(&mut fast, 0, vec![packet]).len(), 1);
}

#[test]
fn resets_are_limited_and_leave_errors_their_rate() {
    let mut lab = Lab::new();
    lab.judge(refusing(Answer::Reset));
    let mut fast = lab.fast();
    let syns = vec![Frame::tcp(flag::SYN, &[]).bytes(); 50];
    assert_eq!(lab.run(&mut fast, 0, &syns).len(), 10);
    assert_eq!(count(&lab.drops(), "acl_in.edge"), 50);
    let counters = fast.counters();
    let sent = [Sent::Reset, Sent::Limited, Sent::Unreachable].map(|what| counters.icmp(what));
    assert_eq!(sent, [10, 40, 0]);
    let unreachable = vec![Frame::to("10.5.0.1").bytes(); 10];
    assert_eq!(lab.run(&mut fast, 0, &unreachable).len(), 10);
}

#[test]
fn resets_leave_by_vlans_and_to_unresolved_neighbours() {
    let mut lab = Lab::new();
    lab.judge(refusing(Answer::Reset));
    lab.settings.ports[0] = PortMap {
        untagged: None,
        vlans: vec![(100, WAN)],
    };
    lab.settings.interfaces[0].vlan = Some(100);
    let tagged = |mut frame: Vec<u8>| {
        frame.splice(12..12, [0x81, 0, 0, 100]);
        frame
    };
    let syn = Frame::tcp(flag::SYN, &[]);
    let mut left = lab.refuses(&tagged(syn.bytes()), "acl_in.edge");
    assert_eq!((left.len(), left[0].port), (1, 0));
    let mut frame = left.remove(0).frame;
    assert_eq!(frame.drain(12..16).collect::<Vec<_>>(), [0x81, 0, 0, 100]);
    assert_eq!(reset(&frame).2, flag::RST | flag::ACK);
    // Its sender's MAC address is not known yet.
    let hop = lab.hop(Hop {
        action: Action::Glean,
        mtu: 1500,
        interface: WAN.into(),
        ..Hop::default()
    });
    lab.route(0, "192.0.2.7/32", hop);
    let left = lab.refuses(&tagged(syn.bytes()), "acl_in.edge");
    let punt = left[0].punt.unwrap();
    assert_eq!((punt.reason, punt.interface), (Reason::Glean, WAN));
    assert_eq!(reset(&left[0].frame).2, flag::RST | flag::ACK);
}

#[test]
fn rfc1812_4_3_2_8_errors_for_rejected_packets_are_rate_limited() {
    let mut lab = Lab::new();
    lab.judge(rejecting());
    let mut fast = lab.fast();
    let frames = vec![Frame::new().bytes(); 50];
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 10);
    assert_eq!(count(&lab.drops(), "acl_in.edge"), 50);
    assert_eq!(fast.counters().icmp(Sent::Limited), 40);
}

#[test]
fn rules_count_what_they_decide_on_and_tell_of_some() {
    let mut lab = Lab::new();
    lab.judge(rejecting());
    lab.settings.interfaces[1].acl_out = Some(0);
    let mut fast = lab.fast();
    let mut other = Frame::new();
    other.payload[3] = 54;
    let mut frames = vec![Frame::new().bytes(); 20];
    frames.extend([other.bytes(), Frame::new6().bytes(), other.bytes()]);
    lab.run(&mut fast, 0, &frames);
    let counters = fast.counters();
    // The two other packets pass the list once in, and once out.
    assert_eq!((counters.hits(0, 0), counters.hits(0, 1)), (21, 4));
    let hits = fast.take_hits();
    let told: Vec<_> = hits
        .iter()
        .map(|hit| (hit.list, hit.rule, hit.gate))
        .collect();
    assert_eq!(told, [(0, 0, Gate::In(WAN)); 16]);
    assert_eq!(hits.more, 5);
    let flow = hits.iter().next().unwrap().flow.to_string();
    assert_eq!(flow, "192.0.2.7:5000 > 10.1.0.9:53 udp, 60 bytes");
    assert_eq!(fast.take_hits().iter().count(), 0);
    // After a reload only the counters of an unchanged list go on.
    let mut settings = lab.settings.clone();
    lab.reload(&mut fast, settings.clone());
    assert_eq!(fast.counters().hits(0, 0), 21);
    settings.acls = vec![rejecting()];
    lab.reload(&mut fast, settings);
    assert_eq!(fast.counters().hits(0, 0), 0);
}

#[test]
fn rfc1858_fragments_are_not_judged_on_ports_that_they_do_not_have() {
    let mut lab = Lab::new();
    lab.judge(list());
    // A later fragment whose first bytes look like the ports of something permitted.
    let later = Frame {
        fragment: 6,
        payload: vec![0, 9, 0, 99, 0, 0, 0, 0],
        ..Frame::new()
    };
    let (left, drops) = lab.one(0, &later.bytes());
    assert!(left.is_empty());
    assert_eq!(count(&drops, "acl_in.edge"), 1, "{drops:?}");
    // A first fragment has ports, and is matched on them.
    let mut first = Frame {
        fragment: 0x2000,
        ..Frame::new()
    };
    let (_, drops) = lab.one(0, &first.bytes());
    assert_eq!(count(&drops, "acl_in.edge"), 1);
    first.payload[3] = 54;
    let (left, _) = lab.one(0, &first.bytes());
    assert_eq!(left.len(), 1);
    // Fragments that no rule with ports can match pass.
    let other = Frame {
        protocol: 47,
        fragment: 6,
        ..Frame::new()
    };
    assert_eq!(lab.one(0, &other.bytes()).0.len(), 1);
}

#[test]
fn rfc3128_tiny_fragments_are_dropped_where_a_list_would_judge_them() {
    let tiny = Frame {
        protocol: 6,
        fragment: 0x2000,
        payload: vec![0, 1, 0, 2, 0, 0, 0, 0],
        ..Frame::new()
    };
    let overlapping = Frame {
        protocol: 6,
        fragment: 1,
        payload: vec![0; 16],
        ..Frame::new()
    };
    let mut lab = Lab::new();
    lab.settings.acls = vec![list()];
    for frame in [tiny, overlapping] {
        lab.settings.interfaces[0].acl_in = None;
        assert_eq!(lab.one(0, &frame.bytes()).0.len(), 1);
        lab.settings.interfaces[0].acl_in = Some(0);
        let (left, drops) = lab.one(0, &frame.bytes());
        assert!(left.is_empty());
        assert_eq!(count(&drops, "tiny_fragment"), 1, "{drops:?}");
    }
}

#[test]
fn a_list_sees_flags_types_and_code_points() {
    let any = Match4::ANY;
    let syn = Match4 {
        protocol: Bits::byte(6),
        tcp_flags: Bits::new(0x02, 0x12).unwrap(),
        ..any
    };
    let ping = Match4 {
        protocol: Bits::byte(1),
        icmp_type: Range::one(8),
        ..any
    };
    let ef = Match4 {
        dscp: Bits::new(46, 0x3f).unwrap(),
        ..any
    };
    let from = Match4 {
        src: Prefix::new([0xc000_0209], 32).unwrap(),
        ..any
    };
    let rules = [syn, ping, ef, from].map(v4);
    let mut lab = Lab::new();
    lab.judge(Arc::new(
        AccessList::new("x", Verdict::Permit, &rules).unwrap(),
    ));
    let mut passes = |frame: &Frame, tos: u8| {
        let mut bytes = frame.bytes();
        bytes[15] = tos;
        let mut ip = Ipv4::new_checked(&mut bytes[14..]).unwrap();
        ip.fill_checksum();
        lab.one(0, &bytes).0.len() == 1
    };
    let mut tcp = Frame {
        protocol: 6,
        payload: vec![0; 20],
        ..Frame::new()
    };
    tcp.payload[12] = 0x50;
    tcp.payload[13] = 0x12;
    assert!(passes(&tcp, 0));
    tcp.payload[13] = 0x02;
    assert!(!passes(&tcp, 0));
    let mut icmp = Frame {
        protocol: 1,
        payload: vec![0; 8],
        ..Frame::new()
    };
    assert!(passes(&icmp, 0));
    icmp.payload[0] = 8;
    assert!(!passes(&icmp, 0));
    assert!(passes(&Frame::new(), 45 << 2) && !passes(&Frame::new(), 46 << 2));
    let from = Frame::from("192.0.2.9");
    assert!(!passes(&from, 0));
}
