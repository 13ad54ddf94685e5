//! The trie against a sorted map of prefixes.

use super::*;
use linerate_testkit::Random;
use std::collections::BTreeMap;

type Model<A> = BTreeMap<Prefix<A>, u32>;

/// Checks everything that can be asked about `prefix`.
fn compare<A: Address>(rib: &Rib<A>, model: &Model<A>, prefix: Prefix<A>, max_len: u8) {
    let first = prefix.first();
    assert_eq!(rib.get(prefix), model.get(&prefix).copied());
    let covering: Vec<_> = (0..=prefix.len())
        .map(|len| Prefix::of(first, len))
        .filter_map(|above| Some((above, *model.get(&above)?)))
        .collect();
    assert_eq!(rib.covering(prefix).collect::<Vec<_>>(), covering);
    assert_eq!(
        rib.longest_within(first, prefix.len()),
        covering.last().copied()
    );
    let covered: Vec<_> = model
        .range(prefix..)
        .take_while(|(below, _)| prefix.covers(**below))
        .map(|(&below, &hop)| (below, hop))
        .collect();
    assert_eq!(rib.covered(prefix).collect::<Vec<_>>(), covered);
    assert_eq!(
        rib.has_longer(prefix),
        covered.iter().any(|(below, _)| below.len() > prefix.len())
    );
    // The same in stages, through prefixes around it.
    let mut at = rib.descent();
    for len in [prefix.len() / 3, prefix.len() / 2, prefix.len()] {
        at = rib.descend(at, Prefix::of(first, len));
    }
    assert_eq!(at.next_hop(), covering.last().map(|route| route.1));
    assert_eq!(rib.has_longer_from(at, prefix), rib.has_longer(prefix));
    let from_there = rib.walk_from(at, prefix, max_len);
    assert!(from_there.eq(rib.walk(prefix, max_len)));
    let mut found: Vec<_> = rib.walk(prefix, max_len).collect();
    found.dedup();
    let mut expected: Vec<_> = covered
        .iter()
        .map(|&(below, hop)| match below.len() <= max_len {
            true => Found::Route(below, hop),
            false => Found::Longer(Prefix::of(below.first(), max_len)),
        })
        .collect();
    expected.dedup();
    assert_eq!(found, expected);
}

/// Random inserts, removes and questions, `bits` wide below `base`, so that prefixes nest.
fn churn<A: Address>(seed: u64, operations: u32, address: impl Fn(u64) -> A, bits: u8) {
    let mut random = Random::new(seed);
    let (mut rib, mut model) = (Rib::<A>::new(), Model::new());
    for operation in 0..operations {
        let len = match random.below(20) {
            0 => random.below(u64::from(A::BITS - bits) + 1) as u8,
            _ => A::BITS - bits + random.below(u64::from(bits) + 1) as u8,
        };
        let prefix = Prefix::of(address(random.bits() >> 20), len);
        // It grows for a while, then shrinks, down to nothing now and then.
        let grows = operation / 2000 % 2 == 0;
        if random.below(10) < if grows { 7 } else { 2 } {
            let hop = random.bits() as u32;
            assert_eq!(
                rib.insert(prefix, hop).unwrap(),
                model.insert(prefix, hop),
                "seed {seed}"
            );
        } else {
            let victim = match model.range(prefix..).next() {
                Some((&victim, _)) if random.below(2) == 0 => victim,
                _ => prefix,
            };
            assert_eq!(rib.remove(victim), model.remove(&victim), "seed {seed}");
        }
        assert_eq!(rib.len(), model.len());
        if random.below(16) == 0 {
            let asked = Prefix::of(
                address(random.bits() >> 20),
                A::BITS - random.below(u64::from(bits)) as u8,
            );
            let max_len = asked.len().max(A::BITS - bits / 2);
            compare(&rib, &model, asked, max_len);
        }
    }
    assert_eq!(
        rib.iter().collect::<Vec<_>>(),
        model.iter().map(|(&p, &h)| (p, h)).collect::<Vec<_>>()
    );
    for &prefix in model.keys() {
        rib.remove(prefix);
    }
    assert!(
        rib.is_empty() && rib.nodes[0].children == [NONE; 2],
        "no node is left behind"
    );
    let mut free = 0;
    let mut at = rib.free;
    while at != NONE {
        (free, at) = (free + 1, rib.nodes[at as usize].children[0]);
    }
    assert_eq!(free, rib.nodes.len() - 1, "every node is free again");
}

#[test]
fn equal_to_a_sorted_map() {
    for seed in 1..4 {
        churn::<u32>(seed, 40_000, |bits| 0x0a00_0000 | bits as u32 & 0x7ff, 11);
        churn::<u128>(
            seed,
            40_000,
            |bits| 0x2001_0db8 << 96 | u128::from(bits & 0x7ff),
            11,
        );
        churn::<u32>(seed, 20_000, |bits| bits as u32, 32);
    }
}

#[test]
#[ignore = "long: a million random operations for each width"]
fn equal_to_a_sorted_map_for_long() {
    for seed in 100..120 {
        churn::<u32>(seed, 100_000, |bits| bits as u32 & 0xfff, 12);
        churn::<u128>(seed, 100_000, |bits| u128::from(bits) << 64, 76);
    }
}

#[test]
fn a_default_route_is_a_route() {
    let mut rib = Rib::<u128>::new();
    assert_eq!(rib.longest(5), None);
    rib.insert(Prefix::ALL, 7).unwrap();
    assert_eq!(rib.longest(u128::MAX), Some((Prefix::ALL, 7)));
    assert_eq!(
        (rib.remove(Prefix::ALL), rib.remove(Prefix::ALL)),
        (Some(7), None)
    );
}

#[test]
fn memory_is_told_before_it_is_taken() {
    let mut rib = Rib::<u32>::new();
    for address in 0..10_000_u32 {
        let most = rib.memory_bytes() + rib.growth_bytes();
        rib.insert(Prefix::of(address << 8, 24), address).unwrap();
        assert!(rib.memory_bytes() <= most);
    }
    assert!(rib.memory_bytes() < 10_000 * 2 * Rib::<u32>::NODE_BYTES * 9 / 8 + 1000);
}
