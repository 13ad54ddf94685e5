//! Lists of random rules against a linear search over the same rules, in which all sets are written
//! out, prefix by prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::random::Random;
use linerate_tables::acl::{PacketKey, words6};

use super::*;

/// A prefix of either family: first address, length.
#[derive(Clone, Copy)]
struct Plain {
    v4: bool,
    first: u128,
    len: u32,
}

impl Plain {
    fn draw(v4: bool, random: &mut Random) -> Self {
        let width = if v4 { 32 } else { 128 };
        let len = width - random.below(10) as u32;
        let at = base(v4) + u128::from(random.below(1 << 10));
        let first = at >> (width - len) << (width - len);
        Self { v4, first, len }
    }

    fn has(&self, v4: bool, address: u128) -> bool {
        let width = if v4 { 32 } else { 128 };
        self.v4 == v4 && (self.first ^ address) >> (width - self.len) == 0
    }

    fn text(&self) -> String {
        format!("\"{}/{}\"", address(self.v4, self.first), self.len)
    }
}

/// Where all addresses begin.
fn base(v4: bool) -> u128 {
    match v4 {
        true => 0x0a00_0000,
        false => 0x2001_0db8 << 96,
    }
}

fn address(v4: bool, number: u128) -> IpAddr {
    match v4 {
        true => Ipv4Addr::from(number as u32).into(),
        false => Ipv6Addr::from(number).into(),
    }
}

/// Included and excluded prefixes.
#[derive(Default)]
struct PlainEnd(Vec<Plain>, Vec<Plain>, bool);

impl PlainEnd {
    fn has(&self, v4: bool, address: u128) -> bool {
        let any = |list: &[Plain]| list.iter().any(|plain| plain.has(v4, address));
        (!self.2 || any(&self.0)) && !any(&self.1)
    }
}

/// Protocol, first numbers (source ports, or types) and second ones.
type PlainService = (u8, Option<(u16, u16)>, Option<(u16, u16)>);

struct PlainRule {
    permits: bool,
    ends: [PlainEnd; 2],
    services: Vec<PlainService>,
    dscp: Option<u8>,
}

/// A packet, field by field.
#[derive(Clone, Copy)]
struct PlainPacket {
    v4: bool,
    ends: [u128; 2],
    protocol: u8,
    upper: (u16, u16),
    is_fragment: bool,
    dscp: u8,
}

impl PlainPacket {
    fn draw(random: &mut Random) -> Self {
        let v4 = random.below(2) == 0;
        let icmp = if v4 { 1 } else { 58 };
        let protocol = [6, 17, icmp, 47][random.below(4) as usize];
        let mut end = || base(v4) + u128::from(random.below(1 << 10));
        let ends = [end(), end()];
        let mut number = || random.below(12) as u16;
        let upper = match protocol {
            47 => (0, 0),
            _ => (number(), number()),
        };
        Self {
            v4,
            ends,
            protocol,
            upper,
            is_fragment: random.below(10) == 0,
            dscp: 46 * random.below(2) as u8,
        }
    }

    fn first(&self) -> FirstPacket {
        let first: FirstPacket = match self.v4 {
            true => {
                let [source, destination] = self.ends.map(|end| [end as u32]);
                PacketKey::tuple(source, destination, self.upper, self.protocol)
                    .with_dscp(self.dscp)
                    .into()
            }
            false => {
                let [source, destination] = self.ends.map(|end| words6(end.into()));
                PacketKey::tuple(source, destination, self.upper, self.protocol)
                    .with_dscp(self.dscp)
                    .into()
            }
        };
        match self.is_fragment {
            true => first.later_fragment(),
            false => first,
        }
    }
}

impl PlainRule {
    fn matches(&self, packet: &PlainPacket) -> bool {
        let within = |range: Option<(u16, u16)>, number| {
            range.is_none_or(|(low, high)| low <= number && number <= high)
        };
        let service = |(protocol, first, second): &PlainService| {
            let upper = match packet.is_fragment {
                // Never permitted by ports, and denied by them.
                true => !self.permits || (first.is_none() && second.is_none()),
                false => within(*first, packet.upper.0) && within(*second, packet.upper.1),
            };
            *protocol == packet.protocol && upper
        };
        let [source, destination] = packet.ends;
        self.ends[0].has(packet.v4, source)
            && self.ends[1].has(packet.v4, destination)
            && (self.services.is_empty() || self.services.iter().any(service))
            && self.dscp.is_none_or(|dscp| dscp == packet.dscp)
    }
}

/// Draws sets and rules: the stanzas, and the same rules with all sets written out.
fn draw(random: &mut Random) -> (String, Vec<PlainRule>) {
    let (mut text, mut sets) = (String::new(), Vec::new());
    for number in 0..8 {
        let many = [2, 30, 90][random.below(3) as usize];
        let set: Vec<Plain> = (0..1 + random.below(many))
            .map(|_| Plain::draw(random.below(2) == 0, random))
            .collect();
        let prefixes: Vec<String> = set.iter().map(Plain::text).collect();
        text += &format!(
            "[[set]]\nname = \"s{number}\"\nprefixes = [{}]\n",
            prefixes.join(", ")
        );
        sets.push(set);
    }
    let (mut lines, mut all) = (Vec::new(), Vec::new());
    for _ in 0..random.below(50) {
        let (line, rule) = draw_rule(&sets, random);
        lines.push(line);
        all.push(rule);
    }
    (text + &rules(&lines.join(",\n")), all)
}

fn draw_rule(sets: &[Vec<Plain>], random: &mut Random) -> (String, PlainRule) {
    let action = ["permit", "deny", "reject"][random.below(3) as usize];
    let mut line = format!("{{ action = \"{action}\"");
    // Prefixes of a rule are of one family; sets have both.
    let v4 = random.below(2) == 0;
    let mut ends = [PlainEnd::default(), PlainEnd::default()];
    for (end, key) in ends.iter_mut().zip(["source", "destination"]) {
        let mut items = Vec::new();
        for _ in 0..random.below(4) {
            let (name, prefixes) = match random.below(2) {
                0 => {
                    let prefix = Plain::draw(v4, random);
                    (prefix.text(), vec![prefix])
                }
                _ => {
                    let set = random.below(sets.len() as u64) as usize;
                    (format!("\"s{set}\""), sets[set].clone())
                }
            };
            match random.below(3) {
                0 => {
                    items.push(name.replacen('"', "\"!", 1));
                    end.1.extend(prefixes);
                }
                _ => {
                    items.push(name);
                    end.0.extend(prefixes);
                    end.2 = true;
                }
            }
        }
        if !items.is_empty() {
            line += &format!(", {key} = [{}]", items.join(", "));
        }
    }
    let range = |random: &mut Random| {
        let low = random.below(12) as u16;
        (low, low + random.below(4) as u16)
    };
    let mut services: Vec<PlainService> = Vec::new();
    match random.below(4) {
        0 => {}
        1 => {
            let (source, destination) = (range(random), range(random));
            line += &format!(
                ", protocol = \"tcp\", source_port = \"{}-{}\"",
                source.0, source.1
            );
            line += &format!(
                ", destination_port = [\"{}-{}\", 3]",
                destination.0, destination.1
            );
            services.push((6, Some(source), Some(destination)));
            services.push((6, Some(source), Some((3, 3))));
        }
        2 => {
            let ports = range(random);
            line += &format!(
                ", service = [\"udp/{}-{}\", \"tcp\", \"gre\"]",
                ports.0, ports.1
            );
            services.extend([(17, None, Some(ports)), (6, None, None), (47, None, None)]);
        }
        _ => {
            let kind = random.below(12) as u16;
            line += &format!(", service = [\"icmp/{kind}\", \"icmp6/{kind}\"]");
            let kind = Some((kind, kind));
            services.extend([(1, kind, None), (58, kind, None)]);
        }
    }
    let dscp = (random.below(8) == 0).then_some(46);
    if dscp.is_some() {
        line += ", dscp = 46";
    }
    let rule = PlainRule {
        permits: action == "permit",
        ends,
        services,
        dscp,
    };
    (line + " }", rule)
}

/// Some rounds of lists and packets: every answer, alone and in bulk, is that of the linear search,
/// and what explains it says the same.
fn rounds(seed: u64, lists: usize, packets: usize) {
    let mut random = Random::new(seed);
    let (mut matched, mut unreachable) = (0, 0);
    for round in 0..lists {
        let what = format!("seed {seed}, round {round}");
        let (text, plain) = draw(&mut random);
        let policy = build(&text, None);
        let (from, to) = lan_and_wan(&policy);
        let drawn: Vec<_> = (0..packets)
            .map(|_| PlainPacket::draw(&mut random))
            .collect();
        let firsts: Vec<FirstPacket> = drawn.iter().map(PlainPacket::first).collect();
        // Every other packet goes the other way, where nothing is permitted.
        let zones: Vec<_> = (0..packets)
            .map(|at| if at % 2 == 0 { (from, to) } else { (to, from) })
            .collect();
        let bulk = policy.decide_bulk(&zones, &firsts);
        let list = &policy.lists()[usize::from(policy.list(from, to))];
        let mut reached = vec![false; plain.len()];
        for (at, packet) in drawn.iter().enumerate() {
            let (from, to) = zones[at];
            let first = &firsts[at];
            let decision = policy.decide(from, to, first);
            assert_eq!(bulk[at], decision, "{what}: {first}");
            let expected = match at % 2 {
                0 => plain.iter().position(|rule| rule.matches(packet)),
                _ => None,
            };
            let explanation = policy.explain(from, to, first);
            let rule = explanation.rule.as_ref().map(|rule| rule.number - 1);
            assert_eq!(rule, expected, "{what}: {explanation}");
            assert_eq!(
                explanation.verdict,
                decision.verdict.name(),
                "{what}: {explanation}"
            );
            if at % 2 == 0 {
                let place = expected.unwrap_or(plain.len());
                assert_eq!(decision.rule as usize, place, "{what}: {explanation}");
                assert_eq!(explanation.passed_over.len(), place);
                matched += usize::from(expected.is_some());
                expected.into_iter().for_each(|rule| reached[rule] = true);
            }
        }
        for one in &list.unreachable {
            assert!(!reached[one.rule], "{what}: {one:?} decides");
            unreachable += 1;
        }
    }
    assert!(
        matched > lists * packets / 4 && unreachable > 0,
        "the draw finds something"
    );
}

#[test]
fn random_lists_decide_as_a_linear_search_does() {
    rounds(1, 25, 400);
}

#[test]
#[ignore = "long: 200 lists, 60,000 packets"]
fn many_random_lists_decide_as_a_linear_search_does() {
    for seed in 2..4 {
        rounds(seed, 100, 300);
    }
}
