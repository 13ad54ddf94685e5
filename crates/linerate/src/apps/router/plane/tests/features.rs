//! What only some interfaces ask for.

use std::sync::Arc;

use linerate_core::run::ledger::{Account, Balance};
use linerate_tables::acl::{Bits, Match4, Match6, Prefix, Range};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;

use super::super::acl::{AccessList, AclRule, Verdict};
use super::super::counters::Sent;
use super::super::hops::{Action, Hop};
use super::super::lists::Gate;
use super::super::settings::{Policer, PortMap, Urpf};
use super::super::testing::*;

fn count(drops: &std::collections::BTreeMap<String, u64>, reason: &str) -> u64 {
    drops.get(reason).copied().unwrap_or(0)
}

/// Denies DNS over UDP, and TCP without ports that anybody gave; permits the rest.
fn list() -> Arc<AccessList> {
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

/// Has a list look at what comes in by the first interface, or goes out by the second. Returns the reason of
/// its drops.
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
            // What leaves elsewhere is not asked about there.
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

/// A list of one rule about UDP to port 53, which tells of what it meets.
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
fn rfc1812_5_2_7_1_and_5_3_9_who_is_rejected_is_told() {
    for is_in in [true, false] {
        let mut lab = Lab::new();
        let reason = look_through(&mut lab, rejecting(), is_in);
        for (frame, at, said) in [(Frame::new(), 34, [3, 13]), (Frame::new6(), 54, [1, 1])] {
            let (left, drops) = lab.one(0, &frame.bytes());
            assert_eq!(left.len(), 1, "{drops:?}");
            assert_eq!((left[0].port, &left[0].frame[at..at + 2]), (0, &said[..]));
            assert_eq!(drops, [(reason.to_string(), 1)].into());
        }
        // RFC 1812 4.3.2.7: not to who sent it to everybody on the link, nor for a later fragment.
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

#[test]
fn rfc1812_4_3_2_8_those_who_are_rejected_are_told_now_and_then() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![rejecting()];
    lab.settings.interfaces[0].acl_in = Some(0);
    let mut fast = lab.fast();
    let frames = vec![Frame::new().bytes(); 50];
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 10);
    assert_eq!(count(&lab.drops(), "acl_in.edge"), 50);
    assert_eq!(fast.counters().icmp(Sent::Limited), 40);
}

#[test]
fn rules_count_what_they_decide_on_and_tell_of_some() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![rejecting()];
    lab.settings.interfaces[0].acl_in = Some(0);
    lab.settings.interfaces[1].acl_out = Some(0);
    let mut fast = lab.fast();
    let mut other = Frame::new();
    other.payload[3] = 54;
    let mut frames = vec![Frame::new().bytes(); 20];
    frames.extend([other.bytes(), Frame::new6().bytes(), other.bytes()]);
    lab.run(&mut fast, 0, &frames);
    let counters = fast.counters();
    // The two others are judged once coming in, and once going out.
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
    // A reload goes on counting in a list that stays the same, and only there.
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
    lab.settings.acls = vec![list()];
    lab.settings.interfaces[0].acl_in = Some(0);
    // A later fragment whose first bytes look like the ports of something permitted.
    let later = Frame {
        fragment: 6,
        payload: vec![0, 9, 0, 99, 0, 0, 0, 0],
        ..Frame::new()
    };
    let (left, drops) = lab.one(0, &later.bytes());
    assert!(left.is_empty());
    assert_eq!(count(&drops, "acl_in.edge"), 1, "{drops:?}");
    // A first one has them, and is judged on them.
    let mut first = Frame {
        fragment: 0x2000,
        ..Frame::new()
    };
    let (_, drops) = lab.one(0, &first.bytes());
    assert_eq!(count(&drops, "acl_in.edge"), 1);
    first.payload[3] = 54;
    let (left, _) = lab.one(0, &first.bytes());
    assert_eq!(left.len(), 1);
    // Fragments of what no rule with ports means pass.
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
    lab.settings.acls = vec![Arc::new(
        AccessList::new("x", Verdict::Permit, &rules).unwrap(),
    )];
    lab.settings.interfaces[0].acl_in = Some(0);
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
    let from = Frame {
        src: "192.0.2.9",
        ..Frame::new()
    };
    assert!(!passes(&from, 0));
}

#[test]
fn rfc3704_2_2_strict_wants_the_way_back() {
    for (src, passes) in [
        ("192.0.2.9", true),     // on this link
        ("10.2.0.1", true),      // behind the host
        ("10.7.0.1", true),      // one of two ways
        ("10.1.0.1", false),     // behind the router, elsewhere
        ("198.51.100.9", false), // on another link
        ("11.0.0.1", false),     // no route
        ("10.4.0.1", false),     // discarded
        ("198.51.100.1", false), // our own
    ] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Strict;
        let frame = Frame {
            src,
            ..Frame::new()
        };
        let (left, drops) = lab.one(0, &frame.bytes());
        assert_eq!(left.len(), usize::from(passes), "{src}");
        assert_eq!(count(&drops, "urpf"), u64::from(!passes), "{src}");
    }
    for (src, passes) in [("2001:db8::9", true), ("2001:db8:a1::1", false)] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Strict;
        let frame = Frame {
            src,
            ..Frame::new6()
        };
        assert_eq!(
            lab.one(0, &frame.bytes()).0.len(),
            usize::from(passes),
            "{src}"
        );
    }
}

#[test]
fn rfc3704_2_4_loose_wants_any_way_but_the_default() {
    for (src, passes) in [("10.1.0.1", true), ("10.3.0.1", true), ("11.0.0.1", false)] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Loose;
        let default = lab.hop(Hop {
            is_default: true,
            ..Lab::forward(WAN, "192.0.2.7")
        });
        lab.route(0, "0.0.0.0/0", default);
        let frame = Frame {
            src,
            ..Frame::new()
        };
        assert_eq!(
            lab.one(0, &frame.bytes()).0.len(),
            usize::from(passes),
            "{src}"
        );
    }
    // Nor where the default is several ways.
    let mut lab = Lab::new();
    lab.settings.interfaces[0].urpf = Urpf::Loose;
    let ways = ["192.0.2.7", "192.0.2.8"].map(|gateway| lab.hop(Lab::forward(WAN, gateway)));
    let default = lab.group(&ways, true);
    lab.route(0, "0.0.0.0/0", default);
    let frame = Frame {
        src: "11.0.0.1",
        ..Frame::new()
    };
    let (left, drops) = lab.one(0, &frame.bytes());
    assert_eq!((left.len(), count(&drops, "urpf")), (0, 1));
    // A host without an address may ask for one all the same.
    let mut lab = Lab::new();
    lab.settings.interfaces[0].urpf = Urpf::Strict;
    let frame = Frame {
        dst_mac: linerate_wire::MacAddr::BROADCAST,
        src: "0.0.0.0",
        dst: "255.255.255.255",
        ..Frame::new()
    };
    assert_eq!(lab.one(0, &frame.bytes()).0.len(), 1);
}

#[test]
fn rfc2697_a_policer_lets_its_burst_and_rate_through() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].policer = Some(Policer {
        rate_bps: 8 * 46_000, // 1000 packets of 46 bytes a second
        burst_bytes: 46 * 10,
    });
    let mut fast = lab.fast();
    let frames = vec![Frame::new().bytes(); 20];
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 10);
    lab.now += 5_000_000; // 5 ms
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 5);
    assert_eq!(count(&lab.drops(), "policed"), 25);
    // A reload that leaves it alone does not fill it.
    lab.reload(&mut fast, lab.settings.clone());
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 0);
}

/// The fragments of a UDP datagram that carries 64 bytes, cut after `at` bytes of its payload.
fn parts(at: usize) -> [Frame; 2] {
    let whole = udp(64);
    let part = |fragment: u16, payload: &[u8]| Frame {
        fragment,
        payload: payload.to_vec(),
        ..Frame::new()
    };
    [
        part(0x2000, &whole[..at]),
        part((at / 8) as u16, &whole[at..]),
    ]
}

#[test]
fn reassembly_before_anything_is_decided() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![list()];
    lab.settings.interfaces[0].acl_in = Some(0);
    lab.settings.interfaces[0].reassemble = true;
    // Both in one burst, in the wrong order, among others.
    let mut permitted = parts(16);
    permitted[0].payload[3] = 54;
    let [first, second] = permitted.map(|part| part.bytes());
    let mut other = Frame::new();
    other.payload[3] = 54;
    let mut fast = lab.fast();
    let left = lab.run(
        &mut fast,
        0,
        &[second.clone(), other.bytes(), first.clone()],
    );
    assert_eq!(left.len(), 2, "{:?}", lab.drops());
    let whole = Ipv4::new_checked(&left[1].frame[14..]).unwrap();
    assert!(whole.verify() && !whole.is_fragment() && whole.ttl() == 63);
    let mut expected = udp(64);
    expected[3] = 54;
    assert_eq!(whole.payload(), expected);
    assert_eq!(left[1].frame[..6], ROUTER_MAC.0);
    // What is denied as a whole is denied.
    let denied = parts(16).map(|part| part.bytes());
    assert!(lab.run(&mut fast, 0, &denied[..1]).is_empty());
    assert!(lab.run(&mut fast, 0, &denied[1..]).is_empty());
    assert_eq!(lab.drops(), [("acl_in.edge".into(), 1)].into());
}

#[test]
fn rfc792_fragments_that_wait_too_long_are_told() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    let mut fast = lab.fast();
    let first = parts(16)[0].bytes();
    assert!(lab.run(&mut fast, 0, &[first]).is_empty());
    fast.tick(lab.now + 1_000_000_000, &mut lab.egress);
    assert!(lab.left().is_empty());
    fast.tick(lab.now + 40_000_000_000, &mut lab.egress);
    let left = lab.left();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].port, &left[0].frame[34..36]), (0, &[11, 1][..]));
    assert_eq!(count(&lab.drops(), "fragment_timed_out"), 1);
}

/// A fragment of an IPv6 datagram: its place in units of 8 bytes, whether more follow.
fn part6(at: u16, more: bool, payload: &[u8]) -> Frame {
    let [a, b] = (at << 3 | u16::from(more)).to_be_bytes();
    Frame {
        protocol: 44,
        options: vec![17, 0, a, b, 0, 0, 0, 9],
        payload: payload.to_vec(),
        ..Frame::new6()
    }
}

#[test]
fn fragments_that_come_to_nothing_are_counted_one_by_one() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    let mut fast = lab.fast();
    let [first, second] = parts(16).map(|part| part.bytes());
    // Two of one datagram, of which the second overlaps the first; one twice; one that waits.
    let mut over = parts(16)[1].clone();
    over.fragment = 0x2001;
    over.payload.truncate(32);
    let frames = [first.clone(), over.bytes()];
    assert!(lab.run(&mut fast, 0, &frames).is_empty());
    assert_eq!(lab.drops(), [("fragment_overlap".to_string(), 2)].into());
    let frames = [second.clone(), second.clone()];
    assert!(lab.run(&mut fast, 0, &frames).is_empty());
    assert_eq!(count(&lab.drops(), "fragment_duplicate"), 1);
    assert_eq!(fast.held(), 1);
    // What is held is nowhere else.
    let pools: Vec<_> = lab.egress.cache.pools().cloned().collect();
    let balance = Balance::take(&pools, || {
        vec![
            Account::cache("lab".into(), &lab.egress.cache),
            Account::holds("stage".into(), fast.held() as i64),
        ]
    });
    assert_eq!((balance.missing, balance.exact), (0, true), "{balance}");
    assert_eq!(lab.run(&mut fast, 0, &[first]).len(), 1, "whole");
    assert_eq!(fast.held(), 0);
}

#[test]
fn rfc792_fragments_of_a_vlan_that_wait_too_long_are_told_there() {
    for order in [[0, 1], [1, 0]] {
        let mut lab = Lab::new();
        lab.settings.ports[0] = PortMap {
            untagged: Some(LAN),
            vlans: vec![(100, WAN)],
        };
        let wan = &mut lab.settings.interfaces[0];
        (wan.vlan, wan.reassemble) = (Some(100), true);
        // The way back is not known yet, so the slow worker is to say by which interface.
        let hop = lab.hop(Hop {
            action: Action::Glean,
            mtu: 1500,
            interface: WAN.into(),
            ..Hop::default()
        });
        lab.route(0, "192.0.2.7/32", hop);
        let mut fast = lab.fast();
        let mut three = parts(16).to_vec();
        three[1].fragment |= 0x2000;
        three[1].payload.truncate(48);
        for at in order {
            let mut frame = three[at].bytes();
            frame.splice(12..12, [0x81, 0, 0, 100]);
            assert!(lab.run(&mut fast, 0, &[frame]).is_empty());
        }
        fast.tick(lab.now + 40_000_000_000, &mut lab.egress);
        let left = lab.left();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].frame[34..36], [11, 1]);
        assert_eq!(left[0].punt.unwrap().interface, WAN);
        assert_eq!(count(&lab.drops(), "fragment_timed_out"), 2);
    }
}

#[test]
fn rfc8200_4_5_senders_of_wrong_fragments_are_told_where() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    // A length that is no multiple of 8; beyond 65,535 bytes; RFC 7112: no whole header chain.
    for (frame, reason, code, pointer) in [
        (part6(0, true, &udp(27)), "fragment_length", 0, 4),
        (part6(0x1fff, false, &[0; 8]), "fragment_too_long", 0, 42),
        (part6(0, true, &[]), "fragment_length", 9, 0),
        (part6(0, true, &udp(0)[..8]), "", 9, 0),
    ] {
        let (left, drops) = lab.one(0, &frame.bytes());
        if reason.is_empty() {
            assert!(drops.is_empty(), "{drops:?}");
        } else {
            assert_eq!(drops, [(reason.to_string(), 1)].into());
        }
        if code == 9 {
            assert!(left.is_empty(), "nothing is said: {left:?}");
            continue;
        }
        assert_eq!(left.len(), 1, "{reason}");
        assert_eq!((left[0].port, &left[0].frame[54..56]), (0, &[4, code][..]));
        assert_eq!(left[0].frame[61], pointer, "{reason}");
    }
    let mut chain = part6(0, true, &[0; 8]);
    chain.options[0] = 6; // TCP has 20 bytes at least
    let (left, drops) = lab.one(0, &chain.bytes());
    assert_eq!(drops, [("fragment_header_chain".to_string(), 1)].into());
    assert_eq!(left[0].frame[54..56], [4, 3]);
}

#[test]
fn rfc8200_4_5_what_came_as_fragments_may_leave_as_fragments() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    let hop = lab.hop(Hop {
        mtu: 1280,
        ..Lab::forward(LAN, "2001:db8:1::2")
    });
    lab.route(0, "2001:db8:a1::/48", hop);
    let datagram = udp(1392);
    let frames = [
        part6(0, true, &datagram[..1000]).bytes(),
        part6(125, false, &datagram[1000..]).bytes(),
    ];
    let mut fast = lab.fast();
    let left = lab.run(&mut fast, 0, &frames);
    assert_eq!(left.len(), 2, "{:?}", lab.drops());
    for part in &left {
        assert_eq!((part.port, &part.frame[..6]), (1, &ROUTER_MAC.0[..]));
        let ip = Ipv6::new_checked(&part.frame[14..]).unwrap();
        assert!(ip.total_len() <= 1280 && ip.hop_limit() == 63);
        assert!(ip.upper_layer().unwrap().is_fragment);
    }
}

#[test]
fn all_that_an_interface_asks_agrees_on_one_burst() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![list()];
    let wan = &mut lab.settings.interfaces[0];
    wan.acl_in = Some(0);
    wan.urpf = Urpf::Strict;
    wan.policer = Some(Policer {
        rate_bps: 8,
        burst_bytes: 46 * 40,
    });
    let only = |action| Hop {
        action,
        ..Hop::default()
    };
    let black = lab.hop(only(Action::Blackhole));
    lab.route(0, "10.1.3.0/24", black);
    let mut fast = lab.fast();
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|number| {
            let mut frame = Frame {
                src: ["192.0.2.7", "10.1.0.1"][usize::from(number % 8 == 1)],
                dst: ["10.1.0.9", "10.1.3.9"][usize::from(number % 8 == 3)],
                ..Frame::new()
            };
            frame.payload[3] = if number % 8 == 2 { 53 } else { 54 };
            frame.bytes()
        })
        .collect();
    let left = lab.run(&mut fast, 0, &frames);
    // The first 40 are within the policer's burst: five of each kind.
    let drops = lab.drops();
    assert_eq!(left.len(), 5 * 5);
    assert_eq!(count(&drops, "policed"), 24);
    assert_eq!(count(&drops, "acl_in.edge"), 5);
    assert_eq!(count(&drops, "urpf"), 5);
    assert_eq!(count(&drops, "blackhole"), 5);
}
