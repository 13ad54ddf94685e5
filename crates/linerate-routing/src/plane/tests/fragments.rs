//! Interfaces that reassemble fragments.

use linerate_core::run::ledger::{Account, Balance};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;

use super::super::hops::{Action, Hop};
use super::super::settings::PortMap;
use super::super::testing::*;
use super::lists::list;
use linerate_core::run::Stage as _;

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
    lab.judge(list());
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
    // A datagram that is denied as a whole is denied as fragments.
    let denied = parts(16).map(|part| part.bytes());
    assert!(lab.run(&mut fast, 0, &denied[..1]).is_empty());
    assert!(lab.run(&mut fast, 0, &denied[1..]).is_empty());
    assert_eq!(lab.drops(), [("acl_in.edge".into(), 1)].into());
}

#[test]
fn rfc792_overdue_fragments_are_answered() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    let mut fast = lab.fast();
    let first = parts(16)[0].bytes();
    assert!(lab.run(&mut fast, 0, &[first]).is_empty());
    fast.turn(lab.now + 1_000_000_000, &mut (), &mut lab.egress);
    assert!(lab.left().is_empty());
    fast.turn(lab.now + 40_000_000_000, &mut (), &mut lab.egress);
    accounted(&mut fast);
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
    // Held fragments are accounted for once.
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
fn rfc792_overdue_fragments_of_a_vlan_are_answered_on_it() {
    for order in [[0, 1], [1, 0]] {
        let mut lab = Lab::new();
        lab.settings.ports[0] = PortMap {
            untagged: Some(LAN),
            vlans: vec![(100, WAN)],
        };
        let wan = &mut lab.settings.interfaces[0];
        (wan.vlan, wan.reassemble) = (Some(100), true);
        // The neighbour on the way back is not resolved yet, so the slow worker sends the error,
        // and needs its interface.
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
        fast.turn(lab.now + 40_000_000_000, &mut (), &mut lab.egress);
        accounted(&mut fast);
        let left = lab.left();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].frame[34..36], [11, 1]);
        assert_eq!(left[0].punt.unwrap().interface, WAN);
        assert_eq!(count(&lab.drops(), "fragment_timed_out"), 2);
    }
}

#[test]
fn rfc8200_4_5_errors_for_wrong_fragments_point_at_the_field() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    // A length that is no multiple of 8; beyond 65,535 bytes; RFC 7112: an incomplete header chain.
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
    let left = lab.refuses(&chain.bytes(), "fragment_header_chain");
    assert_eq!(left[0].frame[54..56], [4, 3]);
}

#[test]
fn rfc8200_4_5_what_came_as_fragments_may_leave_as_fragments() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].reassemble = true;
    lab.narrow("2001:db8:a1::/48", 1280);
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
