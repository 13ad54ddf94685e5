//! Exact match: lookups of bursts of 32, inserts and removals.
//!
//! Keys are made by number, as xtask/peer/exact.c makes them, and looked up in random order. "4m"
//! is a table for 4 Mi entries that holds 3 Mi, "1k" one for 1366 that holds 1024.

use std::hint::black_box;
use std::time::Instant;

use linerate_tables::exact::{Exact, ExactConfig, Seed};

use super::random::mixed;
use super::{Growth, Point};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "exact.lookup16.1k",
        about: "look up 16-byte keys by 32, 1 Ki entries, all there",
        run: |row, run| lookup::<16>(row, run, SMALL, false),
    },
    Row {
        name: "exact.lookup16.4m",
        about: "look up 16-byte keys by 32, 3 Mi of 4 Mi entries, all there",
        run: |row, run| lookup::<16>(row, run, LARGE, false),
    },
    Row {
        name: "exact.miss16.1k",
        about: "look up 16-byte keys by 32, 1 Ki entries, none there",
        run: |row, run| lookup::<16>(row, run, SMALL, true),
    },
    Row {
        name: "exact.miss16.4m",
        about: "look up 16-byte keys by 32, 3 Mi of 4 Mi entries, none there",
        run: |row, run| lookup::<16>(row, run, LARGE, true),
    },
    Row {
        name: "exact.lookup64.1k",
        about: "look up 64-byte keys by 32, 1 Ki entries, all there",
        run: |row, run| lookup::<64>(row, run, SMALL, false),
    },
    Row {
        name: "exact.lookup64.4m",
        about: "look up 64-byte keys by 32, 3 Mi of 4 Mi entries, all there",
        run: |row, run| lookup::<64>(row, run, LARGE, false),
    },
    Row {
        name: "exact.insert16",
        about: "insert 16-byte keys by 32 into a table for 1 Mi entries, up to 3/4 of them",
        run: |row, run| change(row, run, Change::Insert),
    },
    Row {
        name: "exact.insert16.single",
        about: "the same one key at a time",
        run: |row, run| change(row, run, Change::InsertEach),
    },
    Row {
        name: "exact.insert16.grow",
        about: "the same into a table that begins with 16 buckets and grows",
        run: |row, run| change(row, run, Change::InsertAndGrow),
    },
    Row {
        name: "exact.delete16",
        about: "remove these keys again, in random order",
        run: |row, run| change(row, run, Change::Remove),
    },
];

pub(super) const GROWTH: &[Growth] = &[
    Growth {
        name: "exact.lookup16",
        of: "entries",
        sizes: &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        run: grown::<16>,
    },
    Growth {
        name: "exact.lookup64",
        of: "entries",
        sizes: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        run: grown::<64>,
    },
];

/// Room and entries of a table.
#[derive(Clone, Copy)]
struct Size {
    limit: usize,
    entries: usize,
}

const SMALL: Size = Size {
    limit: 1366,
    entries: 1024,
};
const LARGE: Size = Size {
    limit: 4 << 20,
    entries: 3 << 20,
};
const CHANGED: Size = Size {
    limit: 1 << 20,
    entries: 3 << 18,
};
/// Least number of looked-up keys before they repeat.
const ASKED_MIN: usize = 1 << 18;
const BULK: usize = 32;

/// The `number`-th key, a 5-tuple with its user's bytes zero, over and over to `K` bytes; the
/// peer's `make_key`.
fn key<const K: usize>(number: u64) -> [u8; K] {
    let (low, high) = (mixed(number), mixed(!number));
    let mut tuple = [0; 16];
    tuple[..8].copy_from_slice(&low.to_le_bytes());
    tuple[8..12].copy_from_slice(&(high as u32).to_le_bytes());
    tuple[12] = if high >> 40 & 1 == 0 { 6 } else { 17 };
    std::array::from_fn(|at| tuple[at % 16])
}

/// Numbers below `count` in random order (Fisher and Yates), repeated up to [`ASKED_MIN`].
fn shuffled(count: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count.max(ASKED_MIN))
        .map(|i| (i % count) as u64)
        .collect();
    for at in (1..numbers.len()).rev() {
        let other = mixed(at as u64 ^ 0x5eed << 32) % (at as u64 + 1);
        numbers.swap(at, other as usize);
    }
    numbers
}

fn filled<const K: usize>(config: &ExactConfig, entries: usize) -> Result<Exact<K, u32>, Error> {
    let mut table = Exact::new(config)?;
    for number in 0..entries {
        table.insert(&key(number as u64), number as u32)?;
    }
    Ok(table)
}

/// Nanoseconds per key; all keys are looked up in bursts, over and over.
fn ask<const K: usize>(run: Run, table: Exact<K, u32>, absent: bool) -> Result<f64, Error> {
    let offset = if absent { 1 << 40 } else { 0 };
    let asked: Vec<[u8; K]> = shuffled(table.len())
        .into_iter()
        .map(|number| key(number + offset))
        .collect();
    run.pinned(move |run| {
        let mut found = [None; BULK];
        let mut at = 0;
        run.time(|| {
            table.lookup_bulk(black_box(&asked[at..at + BULK]), &mut found);
            black_box(&found);
            at += BULK;
            if at + BULK > asked.len() {
                at = 0;
            }
            BULK as u64
        })
    })
}

fn lookup<const K: usize>(
    row: &'static str,
    run: Run,
    size: Size,
    absent: bool,
) -> Result<Sample, Error> {
    let config = ExactConfig::new("bench", size.limit, Seed::random()).full_size();
    let table = filled::<K>(&config, size.entries)?;
    let (pages, bytes) = (table.pages(), table.memory_bytes());
    let ns = ask(run, table, absent)?;
    Ok(Sample::new(row, ns, "ns", pages)
        .with("entries", size.entries)
        .with("bytes_each", bytes as f64 / size.entries as f64))
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Insert,
    InsertEach,
    InsertAndGrow,
    Remove,
}

fn change(row: &'static str, run: Run, what: Change) -> Result<Sample, Error> {
    let grows = ExactConfig::new("bench", CHANGED.limit, Seed::random());
    let config = match what {
        Change::InsertAndGrow => grows,
        _ => grows.full_size(),
    };
    let keys: Vec<[u8; 16]> = (0..CHANGED.entries as u64).map(key).collect();
    let values: Vec<u32> = (0..CHANGED.entries as u32).collect();
    let order: Vec<[u8; 16]> = shuffled(CHANGED.entries).into_iter().map(key).collect();
    let (ns, pages) = run.pinned(move |run| {
        let mut table = Exact::<16, u32>::new(&config)?;
        let mut timed = std::time::Duration::ZERO;
        let mut changed = 0;
        // The first round touches the memory, and does not count.
        for round in 0.. {
            let began = Instant::now();
            if what == Change::Insert {
                for (keys, values) in keys.chunks(BULK).zip(values.chunks(BULK)) {
                    table.insert_bulk(black_box(keys), values)?;
                }
            } else {
                for (key, &value) in keys.iter().zip(&values) {
                    table.insert(black_box(key), value)?;
                }
            }
            let inserted = began.elapsed();
            let began = Instant::now();
            if what == Change::Remove {
                for key in &order {
                    black_box(table.remove(black_box(key)));
                }
            }
            let removed = began.elapsed();
            match what {
                Change::InsertAndGrow => table = Exact::new(&config)?,
                _ => table.clear(),
            }
            if round > 0 {
                timed += if what == Change::Remove {
                    removed
                } else {
                    inserted
                };
                changed += keys.len();
                if timed >= run.duration {
                    break;
                }
            }
        }
        let ns = timed.as_nanos() as f64 / changed as f64;
        Ok::<_, linerate_tables::TableError>((ns, table.pages()))
    })??;
    Ok(Sample::new(row, ns, "ns", pages).with("entries", CHANGED.entries))
}

/// A table that was grown entry by entry to its limit.
fn grown<const K: usize>(entries: u64, run: Run) -> Result<Point, Error> {
    let config = ExactConfig::new("growth", entries as usize, Seed::random());
    let table = filled::<K>(&config, entries as usize)?;
    let bytes_each = table.memory_bytes() as f64 / entries as f64;
    let ns = ask(run, table, false)?;
    Ok(Point { ns, bytes_each })
}
