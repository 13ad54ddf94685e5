//! A table gives the same as a linear search of the rules.

use std::collections::BTreeMap;

use linerate_core::env::Isa;

use super::generate::{Family, Random, inside, packets};
use super::*;
use crate::TableError;

/// The list: rules by priority, and by when they were added.
#[derive(Default)]
struct List<const W: usize> {
    rules: BTreeMap<(u32, u32), Rule<W>>,
    added: u32,
}

impl<const W: usize> List<W> {
    fn insert(&mut self, rule: &Rule<W>) {
        self.rules.insert((rule.priority, self.added), *rule);
        self.added += 1;
    }

    fn remove(&mut self, rule: &Rule<W>) {
        let same = |other: &Rule<W>| {
            other.matching == rule.matching && other.categories == rule.categories
        };
        self.rules.retain(|_, other| !same(other));
    }

    fn value(&self, packet: &PacketKey<W>, categories: u16) -> u32 {
        let wins =
            |rule: &&Rule<W>| rule.categories & categories != 0 && rule.matching.matches(packet);
        self.rules
            .values()
            .find(wins)
            .map_or(DEFAULT, |rule| rule.value)
    }
}

const DEFAULT: u32 = 0xdefa;

fn config(isa: Isa) -> AclConfig {
    AclConfig {
        default: DEFAULT,
        isa,
        ..AclConfig::default()
    }
}

fn equal<const W: usize>(acl: &Acl<W>, list: &List<W>, packets: &[PacketKey<W>], seed: u64) {
    let mut values = vec![0; packets.len()];
    acl.classify(packets, &mut values);
    for (packet, value) in packets.iter().zip(values) {
        let expected = list.value(packet, u16::MAX);
        assert_eq!(acl.classify_one(packet), value, "seed {seed}: {packet:?}");
        assert_eq!(
            value,
            expected,
            "seed {seed}: {packet:?}\n{}",
            acl.explain(packet, 0)
        );
    }
}

fn every_level(mut check: impl FnMut(Isa)) {
    Isa::detect().levels().into_iter().for_each(&mut check);
}

/// A rule that asks for all kinds of things, sometimes.
fn any_rule<const W: usize>(random: &mut Random, family: Family) -> Rule<W> {
    let mut rule = family.rules::<W>(1, random.bits())[0];
    let matching = &mut rule.matching;
    let mut one_in = |many: u64| random.below(many) == 0;
    if one_in(8) {
        matching.tcp_flags = Bits::new(0x02, 0x12).unwrap();
    }
    if one_in(16) {
        matching.dscp = Bits::new(46, 0x3f).unwrap();
    }
    if one_in(16) {
        matching.vlan = Bits::new(TAGGED | 5, TAGGED | 0xfff).unwrap();
    }
    if one_in(16) {
        matching.length = Range::new(100, 1500).unwrap();
    }
    if one_in(16) {
        matching.fragment = [
            Fragment::No,
            Fragment::Yes,
            Fragment::First,
            Fragment::Later,
        ][matching.src.bits() as usize % 4];
    }
    if one_in(16) {
        matching.src_ports = Range::ANY;
        matching.dst_ports = Range::ANY;
        matching.protocol = Bits::byte(Match::<W>::ICMP as u8);
        matching.icmp_type = Range::one(8);
    }
    if one_in(16) {
        // Ports, whatever the protocol.
        matching.protocol = Bits::ANY;
        matching.icmp_type = Range::ANY;
        matching.dst_ports = Range::new(0, 1023).unwrap();
    }
    if one_in(4) {
        matching.src = Prefix::ANY;
    }
    if one_in(4) {
        matching.dst = Prefix::ANY;
    }
    rule.priority = random.below(50) as u32;
    rule.value = random.bits() as u32;
    rule.categories = 1 << random.below(3) | random.below(8) as u16;
    rule
}

/// A packet near a rule: inside, or with something else in one field.
fn near<const W: usize>(rule: &Rule<W>, random: &mut Random) -> PacketKey<W> {
    let mut packet = inside(&rule.matching, random);
    match random.below(10) {
        0 => packet.src[W - 1] ^= 1 << random.below(32),
        1 => packet.dst[0] ^= 1 << random.below(32),
        2 => packet.ports ^= 1 << random.below(32),
        3 => {
            let protocol = [0, 1, 6, 17, 47, 58, 132][random.below(7) as usize];
            let ports = (packet.ports as u16, (packet.ports >> 16) as u16);
            packet = PacketKey::tuple(packet.src, packet.dst, ports, protocol);
        }
        4 => packet.meta |= random.bits() as u32 & 0x003f_ff00,
        5 => {
            let bytes = random.below(2000) as usize;
            packet = packet.with_vlan(Some(5)).with_length(bytes);
        }
        6 => {
            packet = packet.later_fragment();
        }
        7 => packet = packet.fragment(),
        _ => {}
    }
    packet
}

/// Adds, removes and looks up at random, for `rounds` rounds of some 40 operations and 64 packets.
fn churn<const W: usize>(isa: Isa, rounds: usize, most: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut acl = Acl::<W>::new(config(isa)).unwrap();
    let mut list = List::default();
    let mut rules: Vec<Rule<W>> = Vec::new();
    for round in 0..rounds {
        for _ in 0..40 {
            let family = [Family::Acl, Family::Fw, Family::Ipc][random.below(3) as usize];
            if rules.len() < 4 || rules.len() < most && random.below(5) < 3 {
                let rule = any_rule(&mut random, family);
                match acl.insert(&rule) {
                    Ok(()) => {
                        list.insert(&rule);
                        rules.push(rule);
                    }
                    Err(TableError::AclDuplicate { .. }) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            } else {
                let rule = rules.swap_remove(random.below(rules.len() as u64) as usize);
                acl.remove(&rule.matching, rule.categories).unwrap();
                list.remove(&rule);
            }
        }
        assert_eq!(acl.len(), rules.len());
        let packet = |_| {
            let rule = &rules[random.below(rules.len() as u64) as usize];
            near(rule, &mut random)
        };
        let packets: Vec<_> = (0..127).map(packet).collect();
        equal(&acl, &list, &packets, seed);
        let mut results = vec![[0; 4]; packets.len()];
        acl.classify_categories(&packets, &mut results);
        for (packet, result) in packets.iter().zip(results) {
            let expected: Vec<u32> = (0..4).map(|at| list.value(packet, 1 << at)).collect();
            assert_eq!(result.as_slice(), expected, "seed {seed}: {packet:?}");
        }
        if round % 16 == 15 {
            let mut slots = acl.trees.slots();
            slots.sort_unstable();
            slots.dedup();
            let mut expected = acl.rules.slots_in_order();
            expected.sort_unstable();
            assert_eq!(
                slots, expected,
                "seed {seed}: every rule is in the trees, and no other"
            );
        }
    }
    for rule in &rules {
        acl.remove(&rule.matching, rule.categories).unwrap();
    }
    assert!(acl.is_empty() && acl.trees.slots().is_empty());
}

#[test]
fn adds_and_removes_keep_it_equal_to_a_list_v4() {
    every_level(|isa| (0..3).for_each(|seed| churn::<1>(isa, 60, 300, seed)));
}

/// A thousand rules, so that leaves are split, merged and inserted to again: merged leaves were
/// once not in order.
#[test]
fn many_adds_and_removes_keep_it_equal_to_a_list() {
    churn::<1>(Isa::detect(), 200, 1000, 100);
}

#[test]
fn adds_and_removes_keep_it_equal_to_a_list_v6() {
    every_level(|isa| (0..2).for_each(|seed| churn::<4>(isa, 50, 300, seed)));
}

/// Generated sets, loaded at once, then changed.
fn families<const W: usize>(sizes: &[usize], many: usize, seed: u64) {
    for family in [Family::Acl, Family::Fw, Family::Ipc] {
        for &size in sizes {
            let rules = family.rules::<W>(size, seed);
            let mut list = List::default();
            rules.iter().for_each(|rule| list.insert(rule));
            let packets = packets(&rules, many, seed);
            every_level(|isa| {
                let mut acl = Acl::new(config(isa)).unwrap();
                acl.insert_all(&rules).unwrap();
                equal(&acl, &list, &packets, seed);
            });
        }
    }
}

#[test]
fn generated_sets_are_classified_as_a_list_does() {
    families::<1>(&[1, 8, 9, 100, 1000], 2000, 1);
    families::<4>(&[1, 100, 500], 2000, 2);
}

#[test]
#[ignore = "long: two million packets against a list"]
fn two_million_packets() {
    for seed in 0..10 {
        families::<1>(&[30, 300], 10_000, seed);
        families::<4>(&[30, 300], 10_000, seed);
    }
    families::<1>(&[10_000], 5_000, 7);
    families::<4>(&[10_000], 5_000, 7);
    every_level(|isa| (100..110).for_each(|seed| churn::<1>(isa, 200, 1000, seed)));
    every_level(|isa| (100..110).for_each(|seed| churn::<4>(isa, 200, 1000, seed)));
}

#[test]
fn every_length_of_a_burst_is_answered() {
    let rules = Family::Ipc.rules::<1>(200, 3);
    let packets = packets(&rules, 100, 3);
    let mut list = List::default();
    rules.iter().for_each(|rule| list.insert(rule));
    every_level(|isa| {
        let mut acl = Acl::new(config(isa)).unwrap();
        acl.insert_all(&rules).unwrap();
        (0..packets.len()).for_each(|many| equal(&acl, &list, &packets[..many], 3));
    });
}

/// Rules that nothing tells apart but ranges: the worst case is a list, and right.
#[test]
fn rules_of_ranges_alone_become_a_list() {
    let mut acl = Acl4::new(config(Isa::detect())).unwrap();
    let mut list = List::default();
    let mut rules = Vec::new();
    for at in 0..2000_u16 {
        let matching = Match4 {
            src_ports: Range::new(at, 40_000 + at).unwrap(),
            dst_ports: Range::new(2000 - at, 50_000).unwrap(),
            protocol: Bits::byte(6),
            ..Match4::ANY
        };
        let rule = Rule4::new(u32::from(at), matching, u32::from(at));
        list.insert(&rule);
        rules.push(rule);
    }
    acl.insert_all(&rules).unwrap();
    // A list of 2000 rules is 250 blocks of 192 bytes; trees may not blow it up.
    assert!(acl.bytes() < 2000 * 1000, "{acl:?}");
    equal(&acl, &list, &packets(&rules, 500, 1), 1);
    for rule in rules.iter().step_by(3) {
        acl.remove(&rule.matching, 1).unwrap();
        list.remove(rule);
    }
    equal(&acl, &list, &packets(&rules, 500, 2), 2);
}

#[test]
fn among_equal_priorities_the_first_added_wins() {
    let mut acl = Acl4::new(config(Isa::detect())).unwrap();
    let wide = |bits: u8| Match4 {
        src: Prefix::new([0], bits).unwrap(),
        ..Match4::ANY
    };
    for (bits, value) in [(8, 1), (16, 2), (0, 3)] {
        acl.insert(&Rule4::new(5, wide(bits), value)).unwrap();
    }
    let packet = [PacketKey4::tuple([0], [1], (2, 3), 6)];
    let mut value = [0];
    for expected in [1, 2, 3, DEFAULT] {
        acl.classify(&packet, &mut value);
        assert_eq!(value, [expected]);
        if let Some(bits) = [8, 16, 0].get(expected as usize - 1) {
            acl.remove(&wide(*bits), 1).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    let mut acl = Acl4::new(AclConfig {
        budget_bytes: 300_000,
        ..config(Isa::detect())
    })
    .unwrap();
    let rules = Family::Acl.rules::<1>(50, 1);
    acl.insert_all(&rules).unwrap();
    let packets = packets(&rules, 200, 1);
    let mut before = [0; 200];
    acl.classify(&packets, &mut before);
    let refused = |rule: Rule4| Rule4 {
        priority: 9,
        ..rule
    };
    let any = Rule4::new(9, Match4::ANY, 9);
    let bad = [
        (
            refused(rules[3]),
            "rule of priority 9 asks what the rule of priority 4 asks: remove that first",
        ),
        (
            Rule4 {
                categories: 0,
                ..any
            },
            "rule of priority 9: no category: set at least one bit of `categories`",
        ),
        (
            Rule4::new(
                9,
                Match4 {
                    protocol: Bits::new(0, 0x1ff).unwrap(),
                    ..Match4::ANY
                },
                9,
            ),
            "rule of priority 9: protocol: mask 0x1ff is wider than the field, 0xff",
        ),
        (
            Rule4::new(
                9,
                Match4 {
                    icmp_type: Range::one(8),
                    ..Match4::ANY
                },
                9,
            ),
            "rule of priority 9: an ICMP type or code needs protocol 1, and no ports",
        ),
    ];
    for (rule, message) in bad {
        assert_eq!(acl.insert(&rule).unwrap_err().to_string(), message);
        // Nor is a good rule before it kept.
        let batch = [
            Rule4::new(
                1,
                Match4 {
                    length: Range::one(77),
                    ..Match4::ANY
                },
                1,
            ),
            rule,
        ];
        assert_eq!(acl.insert_all(&batch).unwrap_err().to_string(), message);
    }
    assert!(matches!(
        acl.remove(&Match4::ANY, 1),
        Err(TableError::AclNoSuchRule { .. })
    ));
    let many = Family::Fw.rules::<1>(3000, 9);
    assert!(matches!(
        acl.insert_all(&many),
        Err(TableError::AclBudget { .. })
    ));
    let full = many.iter().find_map(|rule| acl.insert(rule).err());
    assert!(matches!(full, Some(TableError::AclBudget { .. })));
    assert!(acl.bytes() <= 300_000, "{acl:?}");
    for rule in &many {
        let _ = acl.remove(&rule.matching, 1);
    }
    let mut after = [0; 200];
    acl.classify(&packets, &mut after);
    assert_eq!((acl.len(), after), (50, before));
}

/// An update writes a bounded part of the table: nodes and blocks in use grow by what one insertion
/// may take, whatever the size of the table.
#[test]
fn an_update_of_a_large_table_is_small() {
    let mut acl = Acl4::new(AclConfig {
        rebuild: false,
        ..config(Isa::detect())
    })
    .unwrap();
    acl.insert_all(&Family::Acl.rules::<1>(5000, 1)).unwrap();
    let copies = |acl: &Acl4| acl.trees.slots().len();
    let mut before = copies(&acl);
    for rule in Family::Ipc.rules::<1>(300, 99) {
        if acl.insert(&rule).is_err() {
            continue;
        }
        let after = copies(&acl);
        // At most 16 leaves of 32 rules are split, each rule in them going to one or two.
        assert!(after - before <= 16 * 32, "{rule:?}: {before} to {after}");
        before = after;
    }
}

#[test]
fn hits_are_counted_for_each_rule_and_reader() {
    let rules = Family::Acl.rules::<1>(40, 5);
    let mut acl = Acl4::new(config(Isa::detect())).unwrap();
    acl.insert_all(&rules).unwrap();
    let packets = packets(&rules, 1000, 5);
    let mut lcores = [HitCounters::new(40), HitCounters::new(40)];
    let readers = [lcores[0].reader(), lcores[1].reader()];
    let mut values = [0; 1000];
    for (lcore, packets) in lcores.iter_mut().zip(packets.chunks(600)) {
        acl.classify_counted(packets, &mut values, lcore);
    }
    acl.classify(&packets, &mut values);
    for rule in &rules {
        let expected = values.iter().filter(|value| **value == rule.value).count() as u64;
        assert_eq!(acl.hits(&rule.matching, 1, &readers).unwrap(), expected);
    }
    let missed = values.iter().filter(|value| **value == DEFAULT).count() as u64;
    assert_eq!(acl.misses(&readers), missed);
    // A rule in a slot that another one left starts at 0.
    acl.remove(&rules[0].matching, 1).unwrap();
    let new = Rule4::new(0, Match4::ANY, 7);
    acl.insert(&new).unwrap();
    assert_eq!(acl.hits(&new.matching, 1, &readers).unwrap(), 0);
    acl.classify_counted(&packets[..10], &mut values, &mut lcores[0]);
    assert_eq!(acl.hits(&new.matching, 1, &readers).unwrap(), 10);
}

#[test]
fn an_explanation_names_the_fields_that_differ() {
    let mut acl = Acl4::new(config(Isa::detect())).unwrap();
    let web = Match4 {
        dst: Prefix::new([0x0a00_0000], 8).unwrap(),
        dst_ports: Range::one(443),
        protocol: Bits::byte(6),
        ..Match4::ANY
    };
    acl.insert(&Rule4::new(10, web, 1)).unwrap();
    acl.insert(&Rule4::new(
        20,
        Match4 {
            protocol: Bits::byte(17),
            ..Match4::ANY
        },
        2,
    ))
    .unwrap();
    let packet = PacketKey4::tuple([0xc0a8_0001], [0x0b00_0001], (1, 53), 17);
    let explanation = acl.explain(&packet, 0);
    assert_eq!(explanation.matched.unwrap().priority, 20);
    assert_eq!(
        explanation.passed_over[0].failing,
        [Field::Dst, Field::DstPorts, Field::Protocol]
    );
    assert_eq!(
        explanation.to_string(),
        "packet 192.168.0.1 -> 11.0.0.1 protocol 17 ports 1 -> 53\n  not priority 10: destination \
         is not 10.0.0.0/8, destination port is not 443, protocol is not 0x6/0xff\n  priority 20 \
         matches: value 2\n"
    );
    assert!(
        acl.explain(&packet, 1).matched.is_none(),
        "no rule is in category 1"
    );
}

/// Every state that a reader sees is one that was published: a rule's value and its shadow's agree.
#[test]
fn readers_see_whole_publications() {
    let mut writer = AclWriter::new(Acl4::new(config(Isa::detect())).unwrap()).unwrap();
    for rule in Family::Acl.rules::<1>(100, 4) {
        writer
            .insert(&Rule4 {
                priority: rule.priority + 10,
                ..rule
            })
            .unwrap();
    }
    assert!(writer.publish());
    let hosts = [1, 2].map(|host| Match4 {
        src: Prefix::new([host], 32).unwrap(),
        ..Match4::ANY
    });
    let packets = [1, 2].map(|host| PacketKey4::tuple([host], [9], (1, 2), 6));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = writer.reader();
            let stop = &stop;
            scope.spawn(move || {
                let mut values = [0; 2];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    reader.read().classify(&packets, &mut values);
                    assert_eq!(values[0], values[1], "half a publication");
                    std::thread::yield_now();
                }
            });
        }
        for round in 1..300 {
            for matching in hosts {
                if round > 1 {
                    writer.remove(&matching, 1).unwrap();
                }
                writer.insert(&Rule4::new(1, matching, round)).unwrap();
            }
            if round % 50 == 0 {
                writer.rebuild();
            }
            while !writer.publish() {
                std::thread::yield_now();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(writer.published().len(), 102);
}

#[test]
fn changes_that_wait_count_as_made() {
    let mut writer = AclWriter::new(Acl4::new(config(Isa::detect())).unwrap()).unwrap();
    let rule = Rule4::new(3, Match4::ANY, 1);
    writer.insert(&rule).unwrap();
    assert!(matches!(
        writer.insert(&rule),
        Err(TableError::AclDuplicate { other: 3, .. })
    ));
    writer.remove(&rule.matching, 1).unwrap();
    assert!(matches!(
        writer.remove(&rule.matching, 1),
        Err(TableError::AclNoSuchRule { .. })
    ));
    writer.insert(&rule).unwrap();
    assert!(writer.publish());
    assert_eq!(writer.published().len(), 1);
}

#[test]
fn classbench_files_come_back_as_they_were_written() {
    for family in [Family::Acl, Family::Fw, Family::Ipc] {
        let matches4: Vec<_> = family
            .rules::<1>(300, 1)
            .iter()
            .map(|rule| rule.matching)
            .collect();
        let read = classbench::read4(&classbench::write(&matches4)).unwrap();
        assert!(read.iter().map(|rule| rule.matching).eq(matches4));
        assert!(read.iter().map(|rule| rule.priority).eq(1..=300));
        let matches6: Vec<_> = family
            .rules::<4>(300, 1)
            .iter()
            .map(|rule| rule.matching)
            .collect();
        let read = classbench::read6(&classbench::write(&matches6)).unwrap();
        assert!(read.iter().map(|rule| rule.matching).eq(matches6));
    }
}

/// As DPDK's own sets are written: any protocol is `0/0`, and what stands behind a prefix's length
/// does not count.
#[test]
fn rules_in_the_form_of_dpdks_are_read() {
    let v4 = "# a comment\n\n@192.0.2.7/24\t198.51.100.0/24\t0 : 65535\t0 : 65535 0/0\n\
              @192.0.2.1/32\t0.0.0.0/0\t0 : 65535\t53 : 53 17/0xff\n";
    let rules = classbench::read4(v4).unwrap();
    let [any, udp] = [rules[0].matching, rules[1].matching];
    assert_eq!(any.src, "192.0.2.0/24".parse().unwrap());
    assert_eq!((any.protocol, udp.protocol), (Bits::ANY, Bits::byte(17)));
    let v6 = "@2001:0db8:8000:0000:e300:00ff:fe04:c5a8/33\t\
              2001:0db8:0000:0000:6600:00ff:fed9:aeaa/33\t0 : 65535\t1526 : 1526\t0x00/0x00\n";
    let rule = classbench::read6(v6).unwrap()[0].matching;
    assert_eq!(rule.src, "2001:db8:8000::/33".parse().unwrap());
    assert_eq!(rule.dst, "2001:db8::/33".parse().unwrap());
    assert_eq!(
        classbench::read6(&classbench::write(&[rule])).unwrap()[0].matching,
        rule
    );
}

#[test]
fn prefixes_are_those_of_routes() {
    use crate::lpm::{Prefix4, Prefix6};
    let mut random = Random::new(5);
    for len in 0..=128_u8 {
        let bits = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let route = Prefix6::of(bits, len);
        let prefix: Prefix<4> = route.into();
        assert_eq!(prefix, Prefix::of(words6(bits.into()), len));
        assert_eq!(prefix, Prefix::new(*prefix.words(), len).unwrap());
        assert_eq!(prefix.to_string().parse::<Prefix<4>>().unwrap(), prefix);
        assert_eq!(Prefix6::from(prefix), route);
        if len <= 32 {
            let route = Prefix4::of(bits as u32, len);
            let prefix: Prefix<1> = route.into();
            assert_eq!(prefix, Prefix::of([bits as u32], len));
            assert_eq!(prefix.to_string().parse::<Prefix<1>>().unwrap(), prefix);
            assert_eq!(Prefix4::from(prefix), route);
        }
    }
    let error = "10.0.0.1/8".parse::<Prefix<1>>().unwrap_err().to_string();
    assert!(error.contains("write 10.0.0.0/8"), "{error}");
}

#[test]
fn a_bad_line_is_named_and_nothing_is_loaded() {
    let good = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1000\n";
    let flags = classbench::read4(good).unwrap()[0].matching.tcp_flags;
    assert_eq!((flags.value(), flags.mask()), (0x10, 0x10));
    let bad = [
        ("10.0.0.0/8 0.0.0.0/0", "a rule begins with @"),
        (
            "@10.0.0.0/8",
            "destination is missing: expected an IPv4 prefix like 192.0.2.0/24",
        ),
        (
            "@10.0.0.0/33 0.0.0.0/0",
            "source: prefix length 33 is more than the 32 bits of the address",
        ),
        (
            "@10.0.0.0/+8 0.0.0.0/0",
            "source is \"10.0.0.0/+8\": expected an IPv4 prefix like 192.0.2.0/24",
        ),
        (
            "@::/0 ::/0",
            "source is \"::/0\": expected an IPv4 prefix like 192.0.2.0/24",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 9 : 8 1 : 2 0x06/0xff",
            "source port: range 9 to 8 is reversed: write the smaller number first",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0:65535",
            "source port is \"0:65535\": expected two ports like 0 : 65535",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 65536 1 : 2",
            "source port is \"65536\": expected two ports like 0 : 65535",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 1 1 : 2 6",
            "protocol is \"6\": expected value/mask like 0x06/0xFF or 0/0",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 1 1 : 2 0x06/0x05",
            "protocol: value 0x6 has bits outside its mask 0x5: clear them, or widen the mask",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 1 1 : 2 0x06/0xFF 0x10/0x10",
            "flags is \"0x10/0x10\": expected TCP flags and their mask, each shifted by 8, like \
             0x1000/0x1000",
        ),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 1 1 : 2 0x06/0xFF 0x1000/0x1000 x=1",
            "unknown field \"x=1\" behind the rule",
        ),
        (good, "the same rule as in line 1"),
    ];
    for (line, reason) in bad {
        let error = classbench::read4(&format!("{good}\n# a comment\n{line}\n")).unwrap_err();
        assert_eq!(error.to_string(), format!("line 4: {reason}"));
    }
}

/// The key of a frame, for each kind of upper layer.
#[test]
fn keys_are_taken_from_frames() {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&[0x81, 0x00]);
    frame[14..18].copy_from_slice(&[0x20, 0x05, 0x08, 0x00]);
    let ip = [
        0x45,
        46 << 2,
        0,
        40,
        0,
        0,
        0,
        0,
        64,
        6,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ];
    frame[18..38].copy_from_slice(&ip);
    frame[38..42].copy_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
    (frame[50], frame[51]) = (0x50, 0x12);
    let key = PacketKey4::of(&frame, &linerate_wire::parse(&frame).unwrap()).unwrap();
    assert_eq!(
        (key.src, key.dst, key.ports(), key.icmp()),
        ([0x0a00_0001], [0x0a00_0002], Some((12345, 443)), None)
    );
    assert_eq!((key.protocol(), key.tcp_flags(), key.dscp()), (6, 0x12, 46));
    assert_eq!((key.vlan(), key.length()), (Some(5), 60));
    assert!(!key.is_fragment() && !key.is_later_fragment());
    assert!(PacketKey6::of(&frame, &linerate_wire::parse(&frame).unwrap()).is_none());

    (frame[27], frame[38], frame[39]) = (1, 8, 3); // ICMP
    let key = PacketKey4::of(&frame, &linerate_wire::parse(&frame).unwrap()).unwrap();
    assert_eq!((key.ports(), key.icmp()), (None, Some((8, 3))));
    assert_eq!(key.tcp_flags(), 0);

    frame[25] = 7; // a later fragment
    let key = PacketKey4::of(&frame, &linerate_wire::parse(&frame).unwrap()).unwrap();
    assert_eq!((key.ports(), key.icmp()), (None, None));
    assert!(key.is_fragment() && key.is_later_fragment());
    let ports = Match4 {
        dst_ports: Range::new(0, 1023).unwrap(),
        ..Match4::ANY
    };
    assert!(!ports.matches(&key));

    let mut frame = vec![0u8; 62];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14..22].copy_from_slice(&[0x6b, 0x80, 0, 0, 0, 8, 17, 64]);
    (frame[22], frame[37], frame[38]) = (0x20, 1, 0x20);
    frame[54..60].copy_from_slice(&[0, 53, 0, 54, 0, 8]);
    let key = PacketKey6::of(&frame, &linerate_wire::parse(&frame).unwrap()).unwrap();
    assert_eq!(
        (key.src, key.dst),
        ([0x2000_0000, 0, 0, 1], [0x2000_0000, 0, 0, 0])
    );
    assert_eq!(
        (key.protocol(), key.dscp(), key.vlan(), key.ports()),
        (17, 46, None, Some((53, 54)))
    );
}

#[test]
fn loading_anew_gives_other_trees_and_the_same_answers() {
    let rules = Family::Fw.rules::<1>(600, 8);
    let (mut grown, mut list) = (Acl4::new(config(Isa::detect())).unwrap(), List::default());
    for rule in &rules {
        grown.insert(rule).unwrap();
        list.insert(rule);
    }
    let packets = packets(&rules, 2000, 8);
    equal(&grown, &list, &packets, 8);
    grown.rebuild().unwrap();
    equal(&grown, &list, &packets, 8);
    equal(&grown.copy().unwrap(), &list, &packets, 8);
}
