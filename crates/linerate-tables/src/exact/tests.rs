//! The table against a plain map, at every level, through growth, deletes and attacks.

use super::*;
use linerate_testkit::Random;
use std::collections::{BTreeMap, HashMap};

/// The `number`-th key: structured as real ones are, most bytes alike.
fn key<const K: usize>(number: usize) -> [u8; K] {
    let mut key = [0x5a; K];
    key[..4].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

fn config(limit: usize, isa: Isa) -> ExactConfig {
    ExactConfig {
        isa,
        ..ExactConfig::new("test", limit, Seed(1))
    }
}

/// What a model's value becomes in a table.
trait Number: Value + PartialEq + std::fmt::Debug {
    fn of(number: u64) -> Self;
}
impl Number for () {
    fn of(_: u64) {}
}
impl Number for u16 {
    fn of(number: u64) -> Self {
        number as Self
    }
}
impl Number for u32 {
    fn of(number: u64) -> Self {
        number as Self
    }
}
impl Number for u64 {
    fn of(number: u64) -> Self {
        number
    }
}
impl Number for [u8; 24] {
    fn of(number: u64) -> Self {
        [number as u8; 24]
    }
}

/// `operations` random ones on a table and on a map, which must agree throughout; phases of mostly
/// inserts and of mostly removals, in turns, drive the table up to its limit and down again.
fn agree<const K: usize, V: Number>(isa: Isa, seed: u64, limit: usize, operations: usize) {
    let mut random = Random::new(seed);
    let mut table = Exact::<K, V>::new(&config(limit, isa)).unwrap();
    let mut model = BTreeMap::<[u8; K], V>::new();
    let span = limit * 2;
    let mut cursor = Cursor::default();
    for step in 0..operations {
        let at = key::<K>(random.below(span));
        let value = V::of(random.bits());
        let growing = (step / (limit * 4)).is_multiple_of(2);
        let said = format!("K {K} {isa} seed {seed} step {step}");
        match (random.below(16), growing) {
            (0..8, true) | (0..3, false) => match table.insert(&at, value) {
                Ok(old) => assert_eq!(old, model.insert(at, value), "{said}"),
                Err(error) => {
                    assert!(
                        matches!(error, TableError::ExactFull { .. }),
                        "{said} {error}"
                    );
                    assert!(model.len() == limit && !model.contains_key(&at), "{said}");
                }
            },
            (8..10, true) | (3..10, false) => {
                assert_eq!(table.remove(&at), model.remove(&at), "{said}");
            }
            (10, _) => {
                let change = |_| value;
                let old = model
                    .get_mut(&at)
                    .map(|held| std::mem::replace(held, value));
                assert_eq!(table.update(&at, change), old, "{said}");
            }
            (11, _) => {
                let drop = random.bits() as u8;
                table.sweep(&mut cursor, 3, |key, _| {
                    let keep = key[3] != drop;
                    assert!(model.contains_key(key), "{said}");
                    if !keep {
                        model.remove(key);
                    }
                    keep
                });
            }
            (12, _) => {
                let keys: Vec<[u8; K]> = (0..random.below(70))
                    .map(|_| key(random.below(span)))
                    .collect();
                let mut found = vec![None; keys.len()];
                table.lookup_bulk(&keys, &mut found);
                for (key, found) in keys.iter().zip(found) {
                    assert_eq!(found, model.get(key).copied(), "{said}");
                }
            }
            _ => assert_eq!(table.lookup(&at), model.get(&at).copied(), "{said}"),
        }
        assert_eq!(table.len(), model.len(), "{said}");
        if step % (operations / 8).max(1) == 0 {
            assert!(spills_are_known(&table), "{said}");
            let all: BTreeMap<_, _> = table.iter().collect();
            assert!(all.len() == table.len() && all == model, "{said}");
        }
    }
    let spilled_everything = table.sweep(&mut Cursor::default(), usize::MAX, |_, _| false);
    assert!(spilled_everything && table.is_empty() && table.iter().next().is_none());
    assert!(spills_are_known(&table));
}

/// Whether the bit of each bucket says what its count does.
fn spills_are_known<const K: usize, V: Number>(table: &Exact<K, V>) -> bool {
    (0..table.spread.count()).all(|bucket| {
        let spilled = Layout::<K, V>::has_spilled(table.segments.bucket(bucket));
        table.spills.has(bucket) == spilled
    })
}

/// Every level, and buckets of each number of lines and slots.
fn agree_at_all_levels(seed: u64, limit: usize, operations: usize) {
    for isa in Isa::detect().levels() {
        agree::<16, u32>(isa, seed, limit, operations);
        agree::<16, ()>(isa, seed, limit, operations / 4);
        agree::<16, u64>(isa, seed, limit, operations / 4);
        agree::<4, u32>(isa, seed, limit, operations / 4);
        agree::<6, u16>(isa, seed, limit, operations / 4);
        agree::<13, u64>(isa, seed, limit, operations / 4);
        agree::<40, u32>(isa, seed, limit, operations / 4);
        agree::<64, u32>(isa, seed, limit, operations / 4);
        agree::<64, [u8; 24]>(isa, seed, limit, operations / 4);
    }
}

#[test]
fn agrees_with_a_map_through_growth_and_deletes() {
    agree_at_all_levels(0x1eaf, 3000, 100_000);
    agree_at_all_levels(0x2eaf, 20, 10_000);
}

#[test]
#[ignore = "long: 17 seeds, five million operations at least"]
fn agrees_with_a_map_for_long() {
    for seed in 1..18 {
        agree_at_all_levels(seed, 1 << (seed % 17), 100_000);
    }
}

#[test]
fn a_bulk_insert_is_as_many_inserts() {
    let config = || config(5000, Isa::detect());
    let mut bulk = Exact::<16, u32>::new(&config()).unwrap();
    let mut single = Exact::<16, u32>::new(&config()).unwrap();
    let mut random = Random::new(7);
    for _ in 0..200 {
        // Some are there already, some twice in one burst.
        let keys: Vec<[u8; 16]> = (0..70).map(|_| key(random.below(3000))).collect();
        let values: Vec<u32> = (0..70).map(|_| random.bits() as u32).collect();
        let before = single.len();
        for (key, &value) in keys.iter().zip(&values) {
            single.insert(key, value).unwrap();
        }
        assert_eq!(
            bulk.insert_bulk(&keys, &values).unwrap(),
            single.len() - before
        );
    }
    assert_eq!(bulk.len(), single.len());
    for (key, value) in single.iter() {
        assert_eq!(bulk.lookup(&key), Some(value));
    }
    let keys: Vec<[u8; 16]> = (3000..9000).map(key).collect();
    let room = 5000 - bulk.len();
    assert!(bulk.insert_bulk(&keys, &vec![1; 6000]).is_err());
    assert_eq!(bulk.len(), 5000);
    assert!(keys[..room].iter().all(|key| bulk.lookup(key).is_some()));
    assert!(bulk.lookup(&keys[room]).is_none());
}

#[test]
fn a_full_table_names_its_limit_and_keeps_what_it_has() {
    let mut table = Exact::<8, u64>::new(&ExactConfig::new("macs", 100, Seed(3))).unwrap();
    for number in 0..100 {
        table.insert(&key(number), number as u64).unwrap();
    }
    let error = table.insert(&key(100), 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "macs: full at its limit of 100 entries: remove some, or configure a higher limit"
    );
    assert_eq!(
        table.insert(&key(5), 9).unwrap(),
        Some(5),
        "not a new entry"
    );
    assert_eq!((table.len(), table.lookup(&key(100))), (100, None));
    for limit in [0, LIMIT_MAX + 1] {
        let error = Exact::<8, u64>::new(&ExactConfig::new("macs", limit, Seed(3))).unwrap_err();
        assert!(error.to_string().contains("out of range"), "{error}");
    }
}

/// No insert moves more entries than two splits and one chain do, from the first to the limit, and
/// none of the segments is ever copied.
#[test]
fn growth_moves_a_bounded_number_of_entries_per_insert() {
    let limit = 300_000;
    let mut table = Exact::<16, u32>::new(&config(limit, Isa::detect())).unwrap();
    let (mut worst, mut before) = (0, 0);
    for number in 0..limit {
        table.insert(&key(number), number as u32).unwrap();
        worst = worst.max(table.moved() - before);
        before = table.moved();
    }
    assert!(worst <= 2 * 3 + 6, "{worst} entries moved by one insert");
    assert!(table.stash.is_empty());
    let each = table.memory_bytes() as f64 / limit as f64;
    assert!(
        (28.0..36.0).contains(&each),
        "{each} bytes each at the limit"
    );
    assert!((0..limit).all(|number| table.lookup(&key(number)) == Some(number as u32)));
}

/// Coming and going at the limit ends in a balance that is no worse after 40 generations than
/// after 10, a sweep brings back what a new table has, and an empty table is as new.
#[test]
fn churn_leaves_nothing_behind() {
    let limit = 30_000;
    let mut table = Exact::<16, u32>::new(&config(limit, Isa::detect()).full_size()).unwrap();
    let spilled = |table: &Exact<16, u32>| {
        (0..table.spread.count())
            .filter(|&bucket| Layout::<16, u32>::has_spilled(table.segments.bucket(bucket)))
            .count() as f64
            / f64::from(table.spread.count())
    };
    for number in 0..limit {
        table.insert(&key(number), 0).unwrap();
    }
    let fresh = spilled(&table);
    let mut worn = [0.0; 2];
    for (generations, worn) in [1..11, 11..41].into_iter().zip(&mut worn) {
        for number in limit * generations.start..limit * generations.end {
            table.remove(&key(number - limit)).unwrap();
            table.insert(&key(number), 0).unwrap();
        }
        *worn = spilled(&table);
    }
    let said = format!("{fresh}, then {worn:?} of the buckets have spilled");
    assert!(worn[1] < worn[0] * 1.05 && worn[1] < 0.55, "{said}");
    table.sweep(&mut Cursor::default(), usize::MAX, |_, _| true);
    assert!(
        spilled(&table) < fresh * 1.4,
        "{said}, after a sweep {}",
        spilled(&table)
    );
    for number in limit * 40..limit * 41 {
        table.remove(&key(number)).unwrap();
    }
    assert_eq!(spilled(&table), 0.0, "an empty table");
}

/// Keys that all fall into two buckets under one seed.
fn colliding(seed: Seed, count: usize) -> Vec<[u8; 16]> {
    let hash = KeyedHash::new(seed);
    let spread = Spread::new(64);
    (0..)
        .map(key::<16>)
        .filter(|key| {
            let hash = hash.of(key);
            spread.of(hash.first()) < 2 && spread.of(hash.second()) < 2
        })
        .take(count)
        .collect()
}

/// Who knows the seed can bring the table to refuse keys, though not to slow down; who does not
/// know it has keys like any others.
#[test]
fn crafted_keys_collide_only_under_a_known_seed() {
    let (known, secret) = (Seed(1), Seed::random());
    let keys = colliding(known, 96);
    let table = |seed| {
        // 64 buckets, as the attacker has guessed.
        Exact::<16, u32>::new(&ExactConfig::new("attacked", 144, seed).full_size()).unwrap()
    };
    let mut open = table(known);
    assert_eq!(open.spread.count(), 64);
    let taken = keys
        .iter()
        .take_while(|key| open.insert(key, 1).is_ok())
        .count();
    assert_eq!(taken, 2 * 3 + place::STASH, "two buckets and the stash");
    let error = open.insert(&keys[taken], 1).unwrap_err();
    assert!(error.to_string().contains("another seed"), "{error}");
    assert_eq!(open.len(), taken);
    let mut found = vec![None; keys.len()];
    open.lookup_bulk(&keys, &mut found);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(at, found)| found.is_some() == (at < taken))
    );
    // What goes makes room for what waits.
    for key in &keys[..taken] {
        assert_eq!(open.remove(key), Some(1));
    }
    assert!(open.stash.is_empty() && open.is_empty());

    let mut keyed = table(secret);
    for key in &keys {
        keyed.insert(key, 1).unwrap();
    }
    assert!(keyed.stash.is_empty(), "{:?} {}", secret, secret.0);
    let used = (0..64).filter(|&at| Layout::<16, u32>::is_taken(keyed.segments.bucket(at), 0));
    assert!(
        used.count() > 32,
        "spread over most buckets, seed {}",
        secret.0
    );
}

/// At the limit, under several seeds and kinds of keys: the share of entries in their first bucket
/// is what random placement gives, so keys that follow each other are no worse than random ones.
#[test]
fn structured_keys_fill_buckets_as_random_ones_do() {
    let limit = 20_000;
    for seed in 0..8 {
        for kind in 0..4 {
            let config = ExactConfig::new("kinds", limit, Seed(seed)).full_size();
            let mut table = Exact::<16, u32>::new(&config).unwrap();
            for number in 0..limit {
                let mut key = [0_u8; 16];
                match kind {
                    0 => key[12..].copy_from_slice(&(number as u32).to_be_bytes()),
                    1 => key[..4].copy_from_slice(&(number as u32).to_le_bytes()),
                    2 => {
                        key[2..4].copy_from_slice(&(number as u16 / 128).to_be_bytes());
                        key[8..10].copy_from_slice(&(number as u16 % 128 * 512).to_be_bytes());
                        key[4] = (number >> 14) as u8;
                    }
                    _ => key[..8].copy_from_slice(&(number as u64 * 0x1_0000_0001).to_le_bytes()),
                }
                table.insert(&key, 0).unwrap();
            }
            let first = table
                .iter()
                .filter(|(key, _)| {
                    let hash = table.hash.of(key);
                    Layout::<16, u32>::find(table.near(hash), key, hash.tag()).is_some()
                })
                .count();
            let share = first as f64 / limit as f64;
            assert!(
                (0.80..0.92).contains(&share),
                "seed {seed} kind {kind}: {share}"
            );
            assert!(table.stash.is_empty());
        }
    }
}

/// A pass in steps sees all that stays, however the table grows meanwhile.
#[test]
fn a_sweep_in_steps_sees_everything() {
    let mut table = Exact::<4, u32>::new(&config(50_000, Isa::detect())).unwrap();
    for number in 0..10_000 {
        table.insert(&key(number), 0).unwrap();
    }
    let mut cursor = Cursor::default();
    let mut seen = HashMap::<[u8; 4], u32>::new();
    let mut next = 10_000;
    while !table.sweep(&mut cursor, 7, |key, value| {
        *value += 1;
        *seen.entry(*key).or_default() += 1;
        true
    }) {
        table.insert(&key(next), 0).unwrap();
        next += 1;
    }
    let missed = (0..10_000)
        .filter(|&number| !seen.contains_key(&key::<4>(number)))
        .count();
    assert!(missed < 20, "{missed} were moved over to make room");
    assert!(
        seen.iter()
            .all(|(key, times)| table.lookup(key) == Some(*times))
    );
}

/// Tables beyond the caches are asked in another way; keys of one line and of several, all of them
/// there, none of them, and some of each.
#[test]
fn a_large_table_answers_bursts_as_it_does_single_keys() {
    fn ask<const K: usize>(limit: usize) {
        for isa in Isa::detect().levels() {
            for config in [config(limit, isa), config(limit, isa).full_size()] {
                let mut table = Exact::<K, u32>::new(&config).unwrap();
                for number in 0..limit {
                    table.insert(&key(number), number as u32).unwrap();
                }
                assert!(table.is_beyond_caches());
                let mut found = [None; 64];
                for burst in (0..2 * limit - 64).step_by(997) {
                    let keys: [[u8; K]; 64] = std::array::from_fn(|at| key(burst + at));
                    table.lookup_bulk(&keys, &mut found);
                    let alone = keys.map(|key| table.lookup(&key));
                    assert_eq!(found, alone, "K {K} {isa} from {burst}");
                    let there = (burst..burst + 64).filter(|&number| number < limit);
                    assert!(
                        there
                            .map(|number| Some(number as u32))
                            .eq(found.into_iter().flatten().map(Some))
                    );
                }
            }
        }
    }
    ask::<16>(60_000);
    ask::<40>(40_000);
    ask::<64>(20_000);
}

#[test]
fn clearing_keeps_the_room() {
    let mut table = Exact::<16, u64>::new(&config(1000, Isa::detect())).unwrap();
    for number in 0..1000 {
        table.insert(&key(number), 1).unwrap();
    }
    let bytes = table.memory_bytes();
    table.clear();
    assert!(table.is_empty() && table.iter().next().is_none() && table.lookup(&key(1)).is_none());
    table.insert(&key(1), 2).unwrap();
    assert_eq!((table.len(), table.memory_bytes()), (1, bytes));
}
