//! The plain model: the fate of one packet, implemented a second time as a sequence of checks over
//! its bytes, without bursts, masks or keys. Random bursts must agree with it byte for byte.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::env::Isa;
use linerate_tables::lpm::synth::Rng;
use linerate_wire::{MacAddr, checksum};

use super::hops::{Action, Hop};
use super::testing::*;

/// What the model says of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Says {
    Sent(u16, Vec<u8>),
    Punted(&'static str),
    Dropped(&'static str),
}

/// Looks a destination up among the routes of [`Lab`], by hand.
fn lookup(to: IpAddr) -> Option<Action> {
    let by_number = |number: u16| match number {
        1 | 2 => Some(Action::Forward),
        3 => Some(Action::Resolve),
        4 => Some(Action::Blackhole),
        5 => Some(Action::Unreachable),
        6 => Some(Action::Prohibit),
        _ => None,
    };
    match to {
        IpAddr::V4(v4) => match v4.octets() {
            [10, number, ..] => by_number(number.into()),
            [192, 0, 2, 1] | [198, 51, 100, 1] => Some(Action::Local),
            [192, 0, 2, 255] | [198, 51, 100, 255] => Some(Action::Broadcast),
            [192, 0, 2, 7] | [198, 51, 100, 2] => Some(Action::Forward),
            [192, 0, 2, _] | [198, 51, 100, _] => Some(Action::Glean),
            _ => None,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1] | [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1] => {
                Some(Action::Local)
            }
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7] | [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2] => {
                Some(Action::Forward)
            }
            [0x2001, 0xdb8, 0 | 1, 0, ..] => Some(Action::Glean),
            [0x2001, 0xdb8, net, ..] if net & 0xfff0 == 0xa0 => by_number(net & 0xf),
            _ => None,
        },
    }
}

/// The port that a packet for this destination leaves by.
fn way(to: IpAddr) -> (u16, MacAddr, MacAddr) {
    let is_wan = match to {
        IpAddr::V4(v4) => matches!(v4.octets(), [10, 2, ..] | [192, ..]),
        IpAddr::V6(v6) => matches!(v6.segments()[2], 0xa2 | 0),
    };
    match is_wan {
        true => (0, HOST_MAC, WAN_MAC),
        false => (1, ROUTER_MAC, LAN_MAC),
    }
}

fn model(frame: &[u8]) -> Says {
    use Says::{Dropped, Punted, Sent};
    if frame.len() < 14 {
        return Dropped("truncated");
    }
    let is_group = frame[0] & 1 == 1;
    if frame[..6] != WAN_MAC.0 && !is_group {
        return Dropped("not_for_us");
    }
    let ip = &frame[14..];
    let is_v4 = match frame[12..14] {
        [8, 0] => true,
        [0x86, 0xdd] => false,
        [8, 6] => return Punted("arp"),
        _ => return Punted("other"),
    };
    let least = if is_v4 { 20 } else { 40 };
    if ip.len() < least {
        return Dropped("bad_length");
    }
    if ip[0] >> 4 != if is_v4 { 4 } else { 6 } {
        return Dropped("bad_version");
    }
    let two = |at: usize| usize::from(ip[at]) << 8 | usize::from(ip[at + 1]);
    let (header, total) = match is_v4 {
        true => (usize::from(ip[0] & 15) * 4, two(2)),
        false => (40, 40 + two(4)),
    };
    if header < least || header > ip.len() {
        return Dropped("bad_header_length");
    }
    if total < header || total > ip.len() {
        return Dropped("bad_length");
    }
    if is_v4 && checksum::sum(&ip[..header]) != 0xffff {
        return Dropped("bad_checksum");
    }
    let (from, to): (IpAddr, IpAddr) = match is_v4 {
        true => {
            let at = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (at(12).into(), at(16).into())
        }
        false => {
            let at = |at: usize| {
                let bytes: [u8; 16] = ip[at..at + 16].try_into().expect("16 bytes");
                Ipv6Addr::from(bytes)
            };
            (at(8).into(), at(24).into())
        }
    };
    let is_martian = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            let [a, ..] = v4.octets();
            v4.is_loopback() || a == 0 && !v4.is_unspecified() || a >= 240 && !v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            let segments = v6.segments();
            segments[..6] == [0; 6] && !v6.is_unspecified()
                || segments[..6] == [0, 0, 0, 0, 0, 0xffff]
                || segments[0] & 0xff0f == 0xff01
                || segments[0] & 0xff0f == 0xff00
        }
    };
    let is_everybody = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    let to_group = to.is_multicast() || is_everybody(to);
    if is_martian(from) || from.is_multicast() || is_everybody(from) {
        return Dropped("martian_source");
    }
    if is_martian(to) || to.is_unspecified() {
        return Dropped("martian_destination");
    }
    if from.is_unspecified() && !to_group {
        return Dropped("martian_source");
    }
    let is_discovery = !is_v4 && ip[6] == 58 && total > 40 && (133..=137).contains(&ip[40]);
    let is_ours = lookup(from) == Some(Action::Local)
        || from == IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x10));
    let is_everybodys = lookup(from) == Some(Action::Broadcast);
    let to_us = || match (is_discovery, is_ours) {
        (true, _) => Punted("nd"),
        (false, true) => Dropped("own_source"),
        (false, false) if is_everybodys => Dropped("martian_source"),
        (false, false) => Punted("local"),
    };
    if to_group {
        let is_near = match to {
            IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xf == 2,
        };
        return if is_near {
            to_us()
        } else {
            Dropped("multicast")
        };
    }
    let is_link_local = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if let IpAddr::V6(v6) = to
        && v6.is_unicast_link_local()
    {
        let ours = v6 == Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x10);
        return if ours { to_us() } else { Dropped("link_local") };
    }
    let action = lookup(to);
    if is_group && action != Some(Action::Broadcast) {
        return Dropped("l2_broadcast");
    }
    match action {
        None => return Dropped("no_route"),
        Some(Action::Local) => return to_us(),
        Some(Action::Broadcast) if way(to).0 == 0 => return to_us(),
        Some(Action::Broadcast) => return Dropped("directed_broadcast"),
        Some(Action::Blackhole) => return Dropped("blackhole"),
        Some(Action::Unreachable) => return Dropped("unreachable"),
        Some(Action::Prohibit) => return Dropped("prohibited"),
        Some(_) => {}
    }
    if is_link_local(from) || is_link_local(to) {
        return Dropped("link_local");
    }
    // Of whatever interface.
    if is_ours {
        return Dropped("own_source");
    }
    if is_everybodys {
        return Dropped("martian_source");
    }
    let mut out = frame.to_vec();
    if is_v4 && header > 20 {
        match ip[20] {
            131 => return Dropped("source_route"),
            0x9e if ip[21] < 2 || usize::from(ip[21]) > header - 20 => {
                return Dropped("bad_options");
            }
            _ => {}
        }
    }
    if !is_v4 && ip[6] == 43 && total >= 44 && ip[42] == 0 && ip[43] > 0 {
        return Dropped("routing_header");
    }
    let life = if is_v4 { 22 } else { 21 };
    if frame[life] <= 1 {
        return Dropped("ttl_exceeded");
    }
    let (port, dst, src) = way(to);
    if total > MTU && action == Some(Action::Forward) {
        // Another test covers fragments.
        return Dropped("too_big");
    }
    out[life] -= 1;
    if is_v4 {
        out[24..26].fill(0);
        let sum = checksum::checksum(&out[14..14 + header]);
        out[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    match action {
        Some(Action::Glean) => return Punted("glean"),
        Some(Action::Resolve) => return Punted("resolve"),
        _ => {}
    }
    out[..6].copy_from_slice(&dst.0);
    out[6..12].copy_from_slice(&src.0);
    out.truncate((14 + total).max(60));
    Sent(port, out)
}

/// Of all hops that are ready, small enough for random packets to meet it.
const MTU: usize = 120;

/// A frame that is mostly sound, and now and then is not.
fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let mut one_in = |count: u64| rng.below(count) == 0;
    let is_v6 = one_in(3);
    let (odd_address, odd_mac) = (one_in(3), one_in(8));
    let (has_options, is_long, is_old) = (one_in(6), one_in(10), one_in(8));
    let (is_broken, is_cut, is_padded) = (one_in(6), one_in(20), one_in(6));
    const PLAIN4: [&str; 3] = ["10.1.0.9", "10.1.77.2", "10.2.3.4"];
    const ODD4: [&str; 18] = [
        "10.3.0.1",
        "10.4.0.1",
        "10.5.0.1",
        "10.6.0.1",
        "11.0.0.1",
        "192.0.2.1",
        "192.0.2.255",
        "198.51.100.255",
        "192.0.2.7",
        "192.0.2.99",
        "127.0.0.1",
        "0.0.0.0",
        "0.0.0.9",
        "224.0.0.5",
        "239.1.1.1",
        "255.255.255.255",
        "250.0.0.1",
        "169.254.3.3",
    ];
    const PLAIN6: [&str; 2] = ["2001:db8:a1::9", "2001:db8:a2::9"];
    const ODD6: [&str; 17] = [
        "2001:db8:a3::1",
        "2001:db8:a4::1",
        "2001:db8:a5::1",
        "2001:db8:a6::1",
        "2001:db8:ff::1",
        "2001:db8::1",
        "2001:db8::7",
        "2001:db8::99",
        "::1",
        "::",
        "::ffff:1.2.3.4",
        "ff02::5",
        "ff05::5",
        "ff01::5",
        "fe80::10",
        "fe80::11",
        "fc00::1",
    ];
    let mut pick = |plain: &[&'static str], odd: &[&'static str], is_odd: bool| {
        let from = if is_odd { odd } else { plain };
        from[rng.below(from.len() as u64) as usize]
    };
    let source_is_odd = odd_address && pick(&["y"], &["n"], false) == "y";
    let (src, dst) = match is_v6 {
        false => (
            pick(&["192.0.2.7", "203.0.113.4"], &ODD4, source_is_odd),
            pick(&PLAIN4, &ODD4, odd_address),
        ),
        true => (
            pick(&["2001:db8::7", "2001:db8:77::4"], &ODD6, source_is_odd),
            pick(&PLAIN6, &ODD6, odd_address),
        ),
    };
    let protocol = [17, 17, 17, 6, 58, 132, 47][rng.below(7) as usize];
    let len = match is_long {
        true => 100 + rng.below(40) as usize,
        false => 18 + rng.below(24) as usize,
    };
    let mut payload = udp(len);
    if protocol == 6 {
        payload[12] = 0x50;
    }
    if protocol == 58 {
        payload[0] = 128 + rng.below(12) as u8;
    }
    let mut frame = Frame {
        src,
        dst,
        protocol,
        payload,
        // What may not be cut, so that too long is too big.
        fragment: if is_v6 { 0 } else { 0x4000 },
        ttl: if is_old { rng.below(3) as u8 } else { 64 },
        ..Frame::new()
    };
    if has_options {
        let (protocol, options) = match (is_v6, rng.below(4)) {
            (false, 0) => (protocol, vec![131, 7, 4, 1, 2, 3, 4, 0]),
            (false, 1) => (protocol, vec![0x9e, rng.below(9) as u8, 0, 0]),
            (false, _) => (protocol, vec![1, 1, 0x9e, 2]),
            (true, 0) => (
                43,
                vec![protocol, 2, 0, 1].into_iter().chain([7; 20]).collect(),
            ),
            (true, 1) => (60, [protocol, 0, 1, 4, 0, 0, 0, 0].repeat(12)),
            (true, 2) => (60, vec![protocol, 99, 1, 4, 0, 0, 0, 0]),
            (true, _) => (0, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        };
        (frame.protocol, frame.options) = (protocol, options);
    }
    if odd_mac {
        let macs = [MacAddr::local(0x55), MacAddr::BROADCAST, LAN_MAC];
        frame.dst_mac = macs[rng.below(3) as usize];
    }
    let mut bytes = frame.bytes();
    if is_padded {
        bytes.resize(bytes.len() + rng.below(30) as usize, 0xee);
    }
    if is_broken {
        let at = 12 + rng.below(42) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }
    if is_cut {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
    }
    bytes
}

/// Without options that the model does not read, tags, and what the host interface would get.
fn is_in_scope(frame: &[u8]) -> bool {
    let is_tagged = matches!(
        frame.get(12..14),
        Some([0x81, 0] | [0x88, 0xa8] | [0x91, 0])
    );
    let is_fragment =
        frame.get(12..14) == Some(&[8, 0]) && frame.get(20..22).is_some_and(|two| two != [0x40, 0]);
    // A flipped bit may make an option of another kind.
    let known = |kind| matches!(kind, 131 | 0x9e | 1);
    let has_options = frame
        .get(12..15)
        .is_some_and(|head| head[..2] == [8, 0] && head[2] & 15 > 5);
    let is_known = !has_options || frame.get(34).copied().is_none_or(known);
    // Nor what a group leads to.
    let is_grouped = frame.get(38..44) == Some(&[0x20, 0x01, 0x0d, 0xb8, 0, 0xa7]);
    !is_tagged && !is_fragment && is_known && !is_grouped
}

fn agree(isa: Isa, seed: u64) {
    // Large tables and small ones in turns: what a lookup finds does not depend on it.
    let mut lab = Lab::with_flat((seed % 2) as u32);
    lab.isa = isa;
    for interface in &mut lab.settings.interfaces {
        interface.redirects = false;
    }
    // The same routes with a smaller MTU.
    for (prefix, id, gateway) in [
        ("10.1.0.0/16", LAN, "198.51.100.2"),
        ("10.2.0.0/16", WAN, "192.0.2.7"),
        ("192.0.2.7/32", WAN, "192.0.2.7"),
        ("198.51.100.2/32", LAN, "198.51.100.2"),
        ("2001:db8:a1::/48", LAN, "2001:db8:1::2"),
        ("2001:db8:a2::/48", WAN, "2001:db8::7"),
        ("2001:db8::7/128", WAN, "2001:db8::7"),
        ("2001:db8:1::2/128", LAN, "2001:db8:1::2"),
    ] {
        let hop = lab.hop(Hop {
            mtu: MTU as u16,
            ..Lab::forward(id, gateway)
        });
        lab.route(0, prefix, hop);
    }
    let mut fast = lab.fast();
    let rng = &mut Rng::new(seed);
    let mut expected_drops: BTreeMap<String, u64> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 0..300 {
        let count = 1 + rng.below(64) as usize;
        let mut frames = Vec::new();
        while frames.len() < count {
            let frame = random_frame(rng);
            if is_in_scope(&frame) {
                frames.push(frame);
            }
        }
        let mut expected: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut punts: Vec<&str> = Vec::new();
        for frame in &frames {
            match model(frame) {
                Says::Sent(port, bytes) => expected.push((port, bytes)),
                Says::Punted(reason) => punts.push(reason),
                Says::Dropped(reason) => {
                    *expected_drops.entry(reason.into()).or_default() += 1;
                    *kinds.entry(reason).or_default() += 1;
                }
            }
        }
        // Enough time for the limits of punts to be of no account.
        lab.now += 1_000_000_000;
        let left = lab.run(&mut fast, 0, &frames);
        let mut got = Vec::new();
        let mut got_punts = Vec::new();
        // Other tests cover ICMP errors.
        for left in left.into_iter().filter(|left| !is_error(&left.frame)) {
            match left.punt {
                Some(punt) => got_punts.push(punt),
                None => got.push((left.port, left.frame)),
            }
        }
        // The order of plain packets and exceptions may differ.
        got.sort();
        expected.sort();
        let at = format!("{isa:?}, seed {seed}, round {round}");
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "{at}");
        }
        assert_eq!(got.len(), expected.len(), "{at}");
        let mut names: Vec<&str> = got_punts.iter().map(|punt| punt.reason.name()).collect();
        names.sort_unstable();
        punts.sort_unstable();
        assert_eq!(names, punts, "{at}");
        let mut drops = lab.drops();
        drops.retain(|name, _| !name.starts_with("tx_full"));
        assert_eq!(drops, expected_drops, "{at}");
    }
    assert!(kinds.len() >= 18, "not every case was met: {kinds:?}");
}

/// Whether a frame is an ICMP error; none of the random ones is.
fn is_error(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => frame[23] == 1,
        // It quotes an IPv6 packet.
        [0x86, 0xdd] => frame[20] == 58 && frame.get(62).is_some_and(|byte| byte >> 4 == 6),
        _ => false,
    }
}

#[test]
fn random_bursts_agree_with_the_plain_model() {
    for isa in Isa::detect().levels() {
        for seed in 1..4 {
            agree(isa, seed);
        }
    }
}
