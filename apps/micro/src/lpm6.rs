//! Longest prefix match, IPv6.

use super::lpm::{ADDRESSES, BATCH, FURTHER, part, time_lookups};
use super::{Growth, Point};
use super::{Input, Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_tables::TableError;
use linerate_tables::lpm::synth::{Pattern, Spec, destinations, routes6};
use linerate_tables::lpm::{Lpm6, Lpm6Config, Prefix6};
use std::path::Path;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: PREFIX,
        about: "IPv6 next hop in a full table, destinations uniform over prefixes",
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
        about: "add an IPv6 route to a full table and take it out, in batches of 100",
        run: update,
    },
];

const PREFIX: &str = "lpm6.lookup.160k";
const HOST: &str = "lpm6.lookup.160k.host";
const ZIPF: &str = "lpm6.lookup.160k.zipf";
const UPDATE: &str = "lpm6.update.160k";

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
    name: "lpm6",
    of: "routes",
    sizes: &[1, 10, 100, 1000, 10_000, 100_000, 160_000, 1_000_000],
    run: grow,
}];

const ROUTES: usize = 160_000;

/// A full table, routes that are not in it, and addresses that it covers.
struct Work {
    routes: Vec<(Prefix6, u32)>,
    further: Vec<(Prefix6, u32)>,
    addresses: Vec<u128>,
}

impl Work {
    fn new(routes: usize, further: usize, pattern: Pattern) -> Self {
        let all = routes6(&Spec::new(routes + further, 1));
        let (routes, further) = part(all, routes, further);
        Self {
            addresses: destinations(&routes, pattern, ADDRESSES, 2),
            routes,
            further,
        }
    }
}

fn fill(routes: &[(Prefix6, u32)]) -> Result<Lpm6, TableError> {
    let mut table = Lpm6::new(&Lpm6Config {
        direct_vrfs: 1,
        routes: routes.len(),
        budget_bytes: 1 << 30,
        ..Lpm6Config::default()
    })?;
    for &(prefix, hop) in routes {
        table.insert(0, prefix, hop)?;
    }
    Ok(table)
}

fn time(run: &Run, table: &Lpm6, addresses: &[u128]) -> f64 {
    let addresses: Vec<[u8; 16]> = addresses.iter().map(|at| at.to_be_bytes()).collect();
    time_lookups(run, &addresses, |burst, hops| {
        table.fib().lookup_bulk(0, burst, hops);
    })
}

fn lookup(row: &'static str, run: Run, pattern: Pattern) -> Result<Sample, Error> {
    let work = Work::new(ROUTES, FURTHER, pattern);
    let table = fill(&work.routes)?;
    let (memory, pages) = (table.memory(), table.fib().pages());
    let ns = run.pinned(move |run| time(run, &table, &work.addresses))?;
    Ok(Sample::new(row, ns, "ns", pages)
        .with("routes", ROUTES)
        .with("table_bytes", memory.tables)
        .with("used_bytes", memory.chunks)
        .with("routes_bytes", memory.routes))
}

/// Adds a batch and takes it out again, then the next one. Returns nanoseconds per route for both.
fn update(row: &'static str, run: Run) -> Result<Sample, Error> {
    let work = Work::new(ROUTES, FURTHER, Pattern::Prefixes);
    let mut table = fill(&work.routes)?;
    let (routes, pages) = (table.len(), table.fib().pages());
    let ns = run.pinned(move |run| {
        let mut batches = work.further.chunks_exact(BATCH).cycle();
        let mut change = |batch: &[(Prefix6, u32)]| {
            for &(prefix, hop) in batch {
                table.insert(0, prefix, hop)?;
            }
            for &(prefix, _) in batch {
                table.remove(0, prefix)?;
            }
            Ok::<(), TableError>(())
        };
        let mut done = Ok(());
        let ns = run.time(|| {
            if done.is_ok() {
                done = change(batches.next().unwrap_or(&[]));
            }
            BATCH as u64
        });
        done.map(|()| ns)
    })??;
    Ok(Sample::new(row, ns, "ns", pages).with("routes", routes))
}

fn grow(size: u64, run: Run) -> Result<Point, Error> {
    let work = Work::new(size as usize, 0, Pattern::Prefixes);
    let table = fill(&work.routes)?;
    let bytes_each = table.memory().total() as f64 / size as f64;
    let ns = run.pinned(move |run| time(run, &table, &work.addresses))?;
    Ok(Point { ns, bytes_each })
}

/// In 32-bit little-endian words: how many routes, addresses and further routes; each route as
/// address (16 bytes in network order), length, next hop; the addresses; the further routes.
fn write(path: &Path, pattern: Pattern) -> Result<(), Error> {
    let work = Work::new(ROUTES, FURTHER, pattern);
    let mut file = Vec::new();
    for count in [work.routes.len(), work.addresses.len(), work.further.len()] {
        file.extend((count as u32).to_le_bytes());
    }
    let put = |file: &mut Vec<u8>, routes: &[(Prefix6, u32)]| {
        for (prefix, next_hop) in routes {
            file.extend(prefix.first().to_be_bytes());
            file.extend(u32::from(prefix.len()).to_le_bytes());
            file.extend(next_hop.to_le_bytes());
        }
    };
    put(&mut file, &work.routes);
    file.extend(work.addresses.iter().flat_map(|at| at.to_be_bytes()));
    put(&mut file, &work.further);
    std::fs::write(path, file).map_err(|source| Error::File {
        path: path.into(),
        source,
    })
}
