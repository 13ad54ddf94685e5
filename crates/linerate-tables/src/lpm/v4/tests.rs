//! The table against maps of routes, searched length by length.

use linerate_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};

use super::*;

type Model = BTreeMap<(u32, Prefix4), u32>;

fn longest(model: &Model, vrf: u32, address: u32) -> Option<u32> {
    let lens = (0..=32).rev();
    lens.filter_map(|len| model.get(&(vrf, Prefix4::of(address, len))))
        .next()
        .copied()
}

fn small(vrfs: u32, isa: Isa) -> Lpm4Config {
    Lpm4Config {
        vrfs,
        table_bytes: (4 << 20) + (vrfs as usize) * (1 << 20),
        // The first VRF has a flat array; `compare` reads both layouts.
        flat_vrfs: 1,
        flat_routes: 0,
        rib_bytes: 8 << 20,
        isa,
    }
}

const LAYOUTS: [Layout; 2] = [Layout::Compact, Layout::Flat];

/// An address in one of a few places, so that prefixes nest, at several levels of the table.
fn address(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => 0x0a00_0000 | random.below(1 << 18),
        1 => 0x0a00_4000 | random.below(1 << 10),
        2 => 0xffff_f000 | random.below(1 << 12),
        _ => 0x0a01_0000 | random.below(1 << 7) << 8,
    }
}

fn prefix(random: &mut Random) -> Prefix4 {
    let len = match random.below(16) {
        0 => random.below(17),
        1..8 => 16 + random.below(9),
        _ => 22 + random.below(11),
    };
    Prefix4::of(address(random), len as u8)
}

/// A next hop: mostly one of a few, so that neighbours share it.
fn hop(random: &mut Random, hops: u32) -> u32 {
    match random.below(8) {
        0 => random.bits() as u32 & !1, // of 32 bits, and never NO_ROUTE
        _ => random.below(hops),
    }
}

/// All ends of the model's prefixes and their neighbours, and random addresses.
fn questions(model: &Model, random: &mut Random) -> Vec<u32> {
    let mut asked = BTreeSet::new();
    for (_, prefix) in model.keys() {
        let (first, last) = (prefix.first(), prefix.last());
        asked.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
    }
    asked.extend((0..2000).map(|_| address(random)));
    asked.extend((0..1000).map(|_| random.bits() as u32));
    asked.into_iter().collect()
}

/// Holds every way to look up equal to the model.
fn compare(fib: &Fib4, model: &Model, vrfs: u32, random: &mut Random, seed: u64) {
    let asked = questions(model, random);
    let mut hops = vec![0; asked.len()];
    // One VRF more than there is.
    for vrf in 0..=vrfs {
        let expected: Vec<u32> = asked
            .iter()
            .map(|&address| longest(model, vrf, address).unwrap_or(NO_ROUTE))
            .collect();
        for layout in LAYOUTS {
            fib.lookup_by(layout, vrf, &asked, &mut hops);
            assert_eq!(hops, expected, "seed {seed}, VRF {vrf}, {layout:?}");
        }
        for (&address, &hop) in asked.iter().zip(&expected) {
            assert_eq!(fib.lookup(vrf, address).unwrap_or(NO_ROUTE), hop);
        }
    }
    let each: Vec<u32> = asked.iter().map(|_| random.below(vrfs + 1)).collect();
    fib.lookup_each(&each, &asked, &mut hops);
    for ((&vrf, &address), &hop) in each.iter().zip(&asked).zip(&hops) {
        assert_eq!(
            longest(model, vrf, address).unwrap_or(NO_ROUTE),
            hop,
            "seed {seed}"
        );
    }
}

/// Random inserts, replacements and removes in two VRFs, compared now and then.
fn churn(seed: u64, isa: Isa, operations: u32, hops: u32) {
    let mut random = Random::new(seed);
    let mut table = Lpm4::new(&small(2, isa)).unwrap();
    let mut model = Model::new();
    for operation in 0..operations {
        let (vrf, prefix) = (random.below(2), prefix(&mut random));
        let grows = operation / 1000 % 2 == 0;
        if random.below(10) < if grows { 8 } else { 2 } {
            let hop = hop(&mut random, hops);
            let had = table.insert(vrf, prefix, hop).unwrap();
            assert_eq!(had, model.insert((vrf, prefix), hop), "seed {seed}");
        } else {
            let near = model.range((vrf, prefix)..).next().map(|(&key, _)| key);
            let (vrf, prefix) = near.unwrap_or((vrf, prefix));
            let had = table.remove(vrf, prefix).unwrap();
            assert_eq!(had, model.remove(&(vrf, prefix)), "seed {seed}");
        }
        assert_eq!(table.len(), model.len());
        if operation % 500 == 499 {
            compare(table.fib(), &model, 2, &mut random, seed);
        }
    }
    for vrf in 0..2 {
        let routes: Vec<_> = table.routes(vrf).collect();
        let of_vrf = model.iter().filter(|((of, _), _)| *of == vrf);
        let expected: Vec<_> = of_vrf.map(|(&(_, prefix), &hop)| (prefix, hop)).collect();
        assert_eq!(routes, expected);
        for (prefix, hop) in routes {
            assert_eq!(table.get(vrf, prefix), Some(hop));
            table.remove(vrf, prefix).unwrap();
        }
    }
    assert_eq!(
        table.memory().chunks,
        0,
        "seed {seed}: an empty table has no chunks"
    );
}

#[test]
fn equal_to_a_map_at_every_level() {
    for (seed, isa) in (1..).zip(Isa::detect().levels()) {
        churn(seed, isa, 4_000, 3);
        churn(seed + 100, isa, 4_000, 1000);
    }
}

#[test]
#[ignore = "long: 144,000 random inserts and removes, millions of lookups"]
fn equal_to_a_map_for_long() {
    for seed in 1000..1006 {
        for isa in Isa::detect().levels() {
            churn(seed, isa, 8_000, 1 << (seed % 12));
        }
    }
}

/// A flat array comes when there are many routes and goes with them; readers of whichever copy, by
/// either layout and by their choice, find what the routes say.
#[test]
fn a_flat_array_comes_and_goes_with_routes() {
    const ROUTES: usize = 200;
    let mut table = SharedLpm4::new(&Lpm4Config {
        flat_routes: ROUTES,
        ..small(2, Isa::detect())
    })
    .unwrap();
    let (mut random, mut model) = (Random::new(21), Model::new());
    let mut reader = table.reader();
    let mut choice = Choice::new(linerate_core::env::Clock::calibrate());
    let (mut burst, mut found) = ([0; 64], [0; 64]);
    let (mut came, mut went, mut had) = (0, 0, false);
    for round in 0..24 {
        for _ in 0..150 {
            let (vrf, prefix, hop) = (
                random.below(4) / 3,
                prefix(&mut random),
                hop(&mut random, 1000),
            );
            if round % 12 < 6 {
                table.insert(vrf, prefix, hop).unwrap();
                model.insert((vrf, prefix), hop);
            } else if let Some((&(vrf, prefix), _)) = model.range((vrf, prefix)..).next() {
                table.remove(vrf, prefix).unwrap();
                model.remove(&(vrf, prefix));
            }
        }
        assert!(table.publish(), "the reader has looked");
        let (fib, routes) = (reader.read(), table.routes(0).count());
        let has = fib.0.has_flat(0);
        match routes {
            ROUTES.. => assert!(has, "{routes} routes"),
            ..100 => assert!(!has, "{routes} routes"),
            _ => assert_eq!(has, had, "{routes} routes"),
        }
        assert!(!fib.0.has_flat(1), "it may have none");
        came += u32::from(has & !had);
        went += u32::from(had & !has);
        had = has;
        compare(fib, &model, 2, &mut random, 21);
        // Often enough for trials of either layout.
        let asked = questions(&model, &mut random);
        for _ in 0..3000 {
            burst.fill_with(|| asked[random.below(asked.len() as u32) as usize]);
            fib.lookup_chosen(&mut choice, 0, &burst, &mut found);
            for (&address, &hop) in burst.iter().zip(&found) {
                assert_eq!(fib.lookup(0, address).unwrap_or(NO_ROUTE), hop);
            }
        }
    }
    assert!(came == 2 && went == 2, "came {came} times, went {went}");
}

#[test]
fn more_next_hops_than_numbers() {
    // 20,000 next hops: those beyond 16,384 make wide chunks, and wide chunks of one leaf.
    let mut table = Lpm4::new(&small(1, Isa::detect())).unwrap();
    let mut model = Model::new();
    for index in 0..20_000_u32 {
        let (prefix, hop) = (Prefix4::of(index << 10, 22), 0x8000_0000 | index);
        table.insert(0, prefix, hop).unwrap();
        model.insert((0, prefix), hop);
    }
    let mut random = Random::new(7);
    compare(table.fib(), &model, 1, &mut random, 7);
    // Low numbers become free and are given to others, here and there.
    for index in (0..20_000_u32).step_by(3) {
        let prefix = Prefix4::of(index << 10, 22);
        table.remove(0, prefix).unwrap();
        model.remove(&(0, prefix));
    }
    for index in 30_000..33_000_u32 {
        let (prefix, hop) = (Prefix4::of(index << 14, 18), 0x4000_0000 | index);
        table.insert(0, prefix, hop).unwrap();
        model.insert((0, prefix), hop);
    }
    compare(table.fib(), &model, 1, &mut random, 7);
}

#[test]
fn default_routes_and_unknown_vrfs() {
    let mut table = Lpm4::new(&small(3, Isa::detect())).unwrap();
    table.insert(1, Prefix4::ALL, 5).unwrap();
    table.insert(1, "10.0.0.0/25".parse().unwrap(), 6).unwrap();
    let fib = table.fib();
    assert_eq!(fib.lookup(0, 1), None);
    assert_eq!(fib.lookup(1, 1), Some(5));
    assert_eq!(fib.lookup(1, 0x0a00_0000), Some(6));
    assert_eq!(
        fib.lookup(1, 0x0a00_0080),
        Some(5),
        "beside a longer prefix too"
    );
    assert_eq!(
        (fib.lookup(2, 1), fib.lookup(3, 1), fib.lookup(u32::MAX, 1)),
        (None, None, None)
    );
    let mut hops = [0; 2];
    fib.lookup_bulk(3, &[1, 2], &mut hops);
    assert_eq!(hops, [NO_ROUTE; 2]);
    assert_eq!(table.remove(1, Prefix4::ALL).unwrap(), Some(5));
    assert_eq!(table.fib().lookup(1, 0x0a00_0080), None);
}

#[test]
fn bad_input_changes_nothing() {
    let why = |config: Lpm4Config| Lpm4::new(&config).err().unwrap().to_string();
    let config = small(1, Isa::detect());
    let none = Lpm4Config {
        vrfs: 0,
        ..config.clone()
    };
    assert!(why(none).contains("1 to 8192"));
    let tiny = Lpm4Config {
        table_bytes: 1 << 20,
        ..config.clone()
    };
    let text = why(tiny);
    assert!(
        text.contains("lookup table") && text.contains("1048576"),
        "{text}"
    );

    let mut table = Lpm4::new(&config).unwrap();
    let net: Prefix4 = "10.0.0.0/8".parse().unwrap();
    let text = table.insert(1, net, 1).unwrap_err().to_string();
    assert!(text.contains("no VRF 1"), "{text}");
    assert!(table.remove(1, net).is_err());
    assert!(table.insert(0, net, NO_ROUTE).is_err());
    assert!(table.is_empty() && table.fib().lookup(0, 0x0a00_0000).is_none());
}

/// Fills `table` until it refuses; what it holds then is right, and room is found again.
fn fill_up(config: &Lpm4Config, part: &str, route: impl Fn(u32) -> Prefix4) {
    let mut table = Lpm4::new(config).unwrap();
    let mut model = Model::new();
    let mut refused = 0;
    for index in 0..400_000 {
        let (prefix, hop) = (route(index), index % 7);
        match table.insert(0, prefix, hop) {
            Ok(had) => assert_eq!(model.insert((0, prefix), hop), had),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(part) && text.contains("bytes"), "{text}");
                assert_eq!(table.get(0, prefix), None);
                refused += 1;
            }
        }
        if refused == 100 {
            break;
        }
    }
    assert!(refused > 0, "{} routes fit", table.len());
    assert!(table.memory().chunks <= config.table_bytes);
    let routes: Vec<_> = table.routes(0).collect();
    assert!(
        routes
            .iter()
            .copied()
            .eq(model.iter().map(|(&(_, p), &h)| (p, h)))
    );
    for (prefix, hop) in routes.iter().step_by(17) {
        assert_eq!(
            table.fib().lookup(0, prefix.first()),
            longest(&model, 0, prefix.first())
        );
        assert_eq!(table.get(0, *prefix), Some(*hop));
    }
    for (prefix, _) in routes {
        // A full table may have to refuse this too, as long as others are in it.
        let _ = table.remove(0, prefix);
    }
    let left: Vec<_> = table.routes(0).collect();
    for (prefix, _) in left {
        table.remove(0, prefix).unwrap();
    }
    assert_eq!((table.len(), table.memory().chunks), (0, 0));
}

#[test]
fn a_full_table_refuses_and_stays_whole() {
    let table = |kib: usize| Lpm4Config {
        table_bytes: kib << 10,
        ..small(1, Isa::detect())
    };
    // Every second /24, so that chunks grow and change their class.
    fill_up(&table(1700), "lookup table", |index| {
        Prefix4::of(index.wrapping_mul(0x9e37_79b1) << 9, 24)
    });
    // Host routes, each in a /24 of its own.
    fill_up(&table(1700), "beyond /24", |index| {
        Prefix4::of(index << 8 | 77, 32)
    });
    let routes = Lpm4Config {
        rib_bytes: 1 << 20,
        ..small(1, Isa::detect())
    };
    fill_up(&routes, "route store", |index| Prefix4::of(index << 8, 24));
}

#[test]
fn readers_see_whole_batches() {
    // In each batch all routes lead to the same next hop; a reader never sees two in one burst.
    let mut table = SharedLpm4::new(&small(1, Isa::detect())).unwrap();
    let prefixes: Vec<Prefix4> = (0..200_u32)
        .map(|index| Prefix4::of(0x0a00_0000 + index * 0x1234, 18 + (index % 15) as u8))
        .collect();
    let set: BTreeSet<_> = prefixes.iter().copied().collect();
    for &prefix in &set {
        table.insert(0, prefix, 0).unwrap();
    }
    assert!(table.publish());
    let done = std::sync::atomic::AtomicBool::new(false);
    let rounds = 300;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = table.reader();
            let (set, done) = (&set, &done);
            scope.spawn(move || {
                let addresses: Vec<u32> = set.iter().map(|prefix| prefix.last()).collect();
                let mut hops = vec![0; addresses.len()];
                let mut newest = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    reader.read().lookup_bulk(0, &addresses, &mut hops);
                    assert!(hops.iter().all(|&hop| hop == hops[0]), "{hops:?}");
                    assert!(hops[0] >= newest, "it never goes back");
                    newest = hops[0];
                    std::thread::yield_now();
                }
            });
        }
        for round in 1..=rounds {
            for &prefix in &set {
                if round % 3 == 0 {
                    table.remove(0, prefix).unwrap();
                }
                table.insert(0, prefix, round).unwrap();
            }
            while !table.publish() {
                std::thread::yield_now();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let mut reader = table.reader();
    assert_eq!(reader.read().lookup(0, prefixes[0].last()), Some(rounds));
}

#[test]
fn the_real_table_against_its_routes() {
    let Some(real) = crate::lpm::tests::real_prefixes() else {
        return;
    };
    let mut table = Lpm4::new(&Lpm4Config::default()).unwrap();
    let mut rib = crate::lpm::Rib::<u32>::new();
    for (hop, prefix) in (0..1000).cycle().zip(real.v4) {
        assert_eq!(
            table.insert(0, prefix, hop).unwrap(),
            rib.insert(prefix, hop).unwrap()
        );
    }
    println!("{} routes, {:?}", table.len(), table.memory());
    let mut random = Random::new(11);
    let mut asked: Vec<u32> = (0..1_000_000).map(|_| random.bits() as u32).collect();
    for (prefix, _) in rib.iter() {
        let (first, last) = (prefix.first(), prefix.last());
        asked.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
    }
    let expected: Vec<u32> = asked
        .iter()
        .map(|&address| rib.longest(address).map_or(NO_ROUTE, |(_, hop)| hop))
        .collect();
    let mut hops = vec![0; asked.len()];
    table.fib().lookup_bulk(0, &asked, &mut hops);
    assert!(hops == expected);
    // Half of it goes, and the rest is still right.
    let routes: Vec<_> = rib.iter().collect();
    for (prefix, _) in routes.into_iter().step_by(2) {
        assert_eq!(table.remove(0, prefix).unwrap(), rib.remove(prefix));
    }
    table.fib().lookup_bulk(0, &asked, &mut hops);
    let right = |(&address, &hop): (&u32, &u32)| {
        rib.longest(address).map_or(NO_ROUTE, |(_, hop)| hop) == hop
    };
    assert!(asked.iter().zip(&hops).all(right));
}
