//! The writer against a plain map; readers against what every entry says of itself.

use super::*;
use linerate_core::env::Isa;
use linerate_testkit::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::Seed;

fn config(limit: usize) -> ExactConfig {
    ExactConfig {
        isa: Isa::Baseline,
        ..ExactConfig::new("shared", limit, Seed(9))
    }
}

fn key<const K: usize>(number: u64) -> [u8; K] {
    let mut key = [0x3c; K];
    key[..4].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

fn agree<const K: usize>(seed: u64, limit: usize, operations: usize) {
    let mut random = Random::new(seed);
    let mut table = SharedExact::<K, u64>::new(&config(limit)).unwrap();
    let reader = table.reader();
    let mut model = BTreeMap::new();
    let mut cursor = Cursor::default();
    for step in 0..operations {
        let at = key::<K>(random.below(limit as u64 * 2));
        let value = random.bits();
        let growing = (step / (limit * 4)).is_multiple_of(2);
        let said = format!("K {K} seed {seed} step {step}");
        match (value % 16, growing) {
            (0..8, true) | (0..3, false) => match table.insert(&at, value) {
                Ok(old) => assert_eq!(old, model.insert(at, value), "{said}"),
                Err(TableError::ExactFull { .. }) => assert_eq!(model.len(), limit, "{said}"),
                Err(error) => panic!("{said} {error}"),
            },
            (8..11, true) | (3..11, false) => {
                assert_eq!(table.remove(&at), model.remove(&at), "{said}");
            }
            (11, _) => {
                table.sweep(&mut cursor, 3, |key, held| {
                    let keep = held % 8 != 0;
                    assert_eq!(model.get(key), Some(&held), "{said}");
                    if !keep {
                        model.remove(key);
                    }
                    keep
                });
            }
            (12, _) => {
                let keys: Vec<[u8; K]> = (0..value % 70)
                    .map(|_| key(random.below(limit as u64 * 2)))
                    .collect();
                let mut found = vec![None; keys.len()];
                reader.lookup_bulk(&keys, &mut found);
                for (key, found) in keys.iter().zip(found) {
                    assert_eq!(found, model.get(key).copied(), "{said}");
                }
            }
            _ => {
                let expected = model.get(&at).copied();
                assert_eq!(
                    (table.lookup(&at), reader.lookup(&at)),
                    (expected, expected),
                    "{said}"
                );
            }
        }
        assert_eq!(table.len(), model.len(), "{said}");
    }
    assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), model);
}

#[test]
fn agrees_with_a_map_through_growth_and_deletes() {
    agree::<16>(1, 3000, 150_000);
    agree::<4>(2, 3000, 50_000);
    agree::<13>(3, 900, 50_000);
    agree::<40>(4, 900, 50_000);
    agree::<64>(5, 900, 50_000);
}

#[test]
fn a_full_table_names_its_limit() {
    let mut table = SharedExact::<8, u32>::new(&config(10)).unwrap();
    for number in 0..10 {
        table.insert(&key(number), 1).unwrap();
    }
    let error = table.insert(&key(10), 1).unwrap_err().to_string();
    assert!(error.contains("limit of 10 entries"), "{error}");
    assert_eq!((table.len(), table.lookup(&key(10))), (10, None));
}

#[test]
fn growth_moves_a_bounded_number_of_entries_per_insert() {
    let limit = 200_000;
    let mut table = SharedExact::<16, u32>::new(&config(limit)).unwrap();
    let (mut worst, mut before) = (0, 0);
    for number in 0..limit as u64 {
        table.insert(&key(number), number as u32).unwrap();
        worst = worst.max(table.moved() - before);
        before = table.moved();
    }
    assert!(worst <= 2 * 3 + 6, "{worst} entries moved by one insert");
    let each = table.memory_bytes() as f64 / limit as f64;
    assert!(
        (56.0..70.0).contains(&each),
        "{each} bytes each at the limit"
    );
}

/// What the value of key `number` has to look like, whatever its version.
fn value_of(number: u64, version: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9) << 24) | (version & 0xff_ffff)
}

/// Readers run while the writer grows the table from 256 buckets to its limit, removes and inserts
/// again, many times. Keys that stay are always found, a value is always one of its key's, and
/// never goes back to an older one.
#[test]
fn stress_readers_never_miss_nor_see_halves() {
    let (stay, all) = (500_u64, 20_000_u64);
    let mut table = SharedExact::<16, u64>::new(&config(all as usize)).unwrap();
    for number in 0..stay {
        table.insert(&key(number), value_of(number, 0)).unwrap();
    }
    let done = AtomicBool::new(false);
    let looked: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=2)
            .map(|seed| {
                let (reader, done) = (table.reader(), &done);
                scope.spawn(move || {
                    let (mut random, mut looked) = (Random::new(seed), 0);
                    let mut newest = vec![0; stay as usize];
                    while !done.load(Ordering::Relaxed) || looked == 0 {
                        let numbers: [u64; 32] = std::array::from_fn(|at| {
                            random.below(if at % 2 == 0 { stay } else { all })
                        });
                        let mut found = [None; 32];
                        reader.lookup_bulk(&numbers.map(key), &mut found);
                        for (number, found) in numbers.into_iter().zip(found) {
                            if let Some(value) = found {
                                let version = value & 0xff_ffff;
                                assert_eq!(value, value_of(number, version), "torn");
                                if let Some(newest) = newest.get_mut(number as usize) {
                                    assert!(version >= *newest, "an older value");
                                    *newest = version;
                                }
                            }
                            assert!(found.is_some() || number >= stay, "{number} is gone");
                        }
                        looked += 1;
                        std::thread::yield_now();
                    }
                    looked
                })
            })
            .collect();
        let mut random = Random::new(77);
        for version in 1..=6 {
            for number in stay..all {
                table
                    .insert(&key(number), value_of(number, version))
                    .unwrap();
                if number % 16 == 0 {
                    let number = random.below(stay);
                    table
                        .insert(&key(number), value_of(number, version))
                        .unwrap();
                }
                if number % 4096 == 0 {
                    std::thread::yield_now();
                }
            }
            // Slots are emptied and filled again, and what spilled moves about.
            for number in stay..all {
                if !random.one_in(8) {
                    table.remove(&key(number));
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    assert!(looked > 0 && table.moved() > 10_000);
}
