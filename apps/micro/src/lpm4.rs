//! Longest prefix match, IPv4.

use super::lpm::{ADDRESSES, BATCH, FURTHER, part, time_lookups};
use super::{Growth, Point};
use super::{Input, Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::Clock;
use linerate_tables::TableError;
use linerate_tables::lpm::synth::{Pattern, Spec, destinations, routes4};
use linerate_tables::lpm::{Choice, Fib4, Layout, Lpm4, Lpm4Config, Prefix4};
use std::hint::black_box;
use std::path::Path;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: PREFIX,
        about: "IPv4 next hop among a million routes, destinations uniform over prefixes",
        run: |row, run| lookup(row, run, Pattern::Prefixes),
    },
    Row {
        name: HOST,
        about: "the same, destinations uniform over routed addresses",
        run: |row, run| lookup(row, run, Pattern::Hosts),
    },
    Row {
        name: ZIPF,
        about: "the same, few prefixes much more often than others",
        run: |row, run| lookup(row, run, Pattern::Zipf),
    },
    Row {
        name: UPDATE,
        about: "add a route to a million and take it out, published in batches of 100",
        run: update,
    },
];

const PREFIX: &str = "lpm4.lookup.1m.prefix";
const HOST: &str = "lpm4.lookup.1m.host";
const ZIPF: &str = "lpm4.lookup.1m.zipf";
const UPDATE: &str = "lpm4.update.1m";

/// Inputs for DPDK's side.
pub(super) const INPUTS: &[Input] = &[
    Input {
        row: PREFIX,
        write: |path| write(path, Pattern::Prefixes),
    },
    Input {
        row: HOST,
        write: |path| write(path, Pattern::Hosts),
    },
    Input {
        row: ZIPF,
        write: |path| write(path, Pattern::Zipf),
    },
    Input {
        row: UPDATE,
        write: |path| write(path, Pattern::Prefixes),
    },
];

pub(super) const GROWTH: &[Growth] = &[Growth {
    name: "lpm4",
    of: "routes",
    sizes: &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    run: grow,
}];

const ROUTES: usize = 1_000_000;
/// More than DPDK's entries of one byte hold; as many as a large router has.
const NEXT_HOPS: u32 = 1000;

type Route = (Prefix4, u32);

/// A full table, and similar routes that are not in it.
fn routes(count: usize, further: usize) -> (Vec<Route>, Vec<Route>) {
    let spec = Spec {
        next_hops: NEXT_HOPS,
        ..Spec::new(count + further, 1)
    };
    part(routes4(&spec), count, further)
}

fn fill(routes: &[Route]) -> Result<Lpm4, TableError> {
    let mut table = Lpm4::new(&Lpm4Config {
        flat_vrfs: 1,
        ..Lpm4Config::default()
    })?;
    for &(prefix, hop) in routes {
        table.insert(0, prefix, hop)?;
    }
    Ok(table)
}

fn time(run: &Run, fib: &Fib4, addresses: &[u32]) -> (f64, Layout) {
    let mut choice = Choice::new(Clock::calibrate());
    let ns = time_lookups(run, addresses, |burst, hops| {
        fib.lookup_chosen(&mut choice, 0, burst, hops)
    });
    (ns, choice.layout())
}

fn lookup(row: &'static str, run: Run, pattern: Pattern) -> Result<Sample, Error> {
    let (routes, _) = routes(ROUTES, FURTHER);
    let table = fill(&routes)?;
    let addresses = destinations(&routes, pattern, ADDRESSES, 2);
    let (pages, memory) = (table.fib().pages(), table.memory());
    let (ns, layout) = run.pinned(move |run| time(run, table.fib(), &addresses))?;
    Ok(Sample::new(row, ns, "ns", pages)
        .with("layout", format!("{layout:?}").to_lowercase())
        .with("routes", routes.len())
        .with("next_hops", NEXT_HOPS)
        .with("chunk_bytes", memory.chunks)
        .with("table_bytes", memory.tables)
        .with("control_bytes", memory.routes))
}

/// Adds a batch, publishes it, takes it out, publishes that; the time is that of both, for each
/// route. A reader follows, so that every publication replays the one before on the other copy.
fn update(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (routes, further) = routes(ROUTES, FURTHER);
    let mut table = fill(&routes)?.share()?;
    let memory = table.memory();
    let mut reader = table.reader();
    let ns = run.pinned(move |run| {
        let mut batches = further.chunks_exact(BATCH).cycle();
        let mut failed = None;
        let ns = run.time(|| {
            let batch = batches.next().unwrap_or_default();
            for &(prefix, hop) in batch {
                failed = table.insert(0, prefix, hop).err().or(failed.take());
            }
            assert!(table.publish(), "the only reader has moved on");
            black_box(reader.read());
            for &(prefix, _) in batch {
                failed = table.remove(0, prefix).err().or(failed.take());
            }
            assert!(table.publish(), "the only reader has moved on");
            black_box(reader.read());
            batch.len() as u64
        });
        failed.map_or(Ok(ns), Err)
    })??;
    Ok(Sample::new(row, ns, "ns", "")
        .with("routes", routes.len())
        .with("batch", BATCH)
        .with("total_bytes", memory.total()))
}

fn grow(size: u64, run: Run) -> Result<Point, Error> {
    let (routes, _) = routes(size as usize, 0);
    let table = fill(&routes)?;
    let memory = table.memory();
    let addresses = destinations(&routes, Pattern::Prefixes, ADDRESSES, 2);
    let (ns, _) = run.pinned(move |run| time(run, table.fib(), &addresses))?;
    Ok(Point {
        ns,
        bytes_each: memory.total() as f64 / size as f64,
    })
}

/// In 32-bit little-endian words: how many routes, addresses and further routes; each route as
/// address, length, next hop; the addresses; the further routes, which the table lacks.
fn write(path: &Path, pattern: Pattern) -> Result<(), Error> {
    let (routes, further) = routes(ROUTES, FURTHER);
    let addresses = destinations(&routes, pattern, ADDRESSES, 2);
    let words = |routes: &[Route]| -> Vec<u32> {
        let words = |&(prefix, hop): &Route| [prefix.first(), prefix.len().into(), hop];
        routes.iter().flat_map(words).collect()
    };
    let counts = [routes.len(), addresses.len(), further.len()].map(|count| count as u32);
    let all = [&counts[..], &words(&routes), &addresses, &words(&further)].concat();
    let bytes: Vec<u8> = all.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(path, bytes).map_err(Error::Output)
}
