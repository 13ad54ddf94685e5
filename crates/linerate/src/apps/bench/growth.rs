//! `bench growth`: how each table grows with what it holds, in time and in memory.

use serde::Serialize;

use super::{Run, cpus};
use crate::error::Error;
use crate::report;
use std::time::Duration;

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// Tables, by name or prefix; all when absent
    tables: Vec<String>,
    /// Seconds that each point is measured
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// The CPU to pin to
    #[arg(long, value_name = "CPU")]
    cpus: Option<String>,
    /// One JSON object per point
    #[arg(long)]
    json: bool,
}

/// One curve.
pub(crate) struct Growth {
    pub(super) name: &'static str,
    /// What is counted: "routes", "rules", "entries".
    pub(super) of: &'static str,
    pub(super) sizes: &'static [u64],
    pub(super) run: fn(u64, Run) -> Result<Point, Error>,
}

/// One point of a curve.
pub(crate) struct Point {
    /// Nanoseconds per lookup.
    pub(super) ns: f64,
    /// All memory of the table over what it holds.
    pub(super) bytes_each: f64,
}

#[derive(Serialize)]
struct Line {
    table: &'static str,
    of: &'static str,
    size: u64,
    ns: f64,
    bytes_each: f64,
}

fn growths() -> impl Iterator<Item = &'static Growth> {
    let rooms = [
        super::exact::GROWTH,
        super::lpm4::GROWTH,
        super::lpm6::GROWTH,
        super::acl::GROWTH,
        super::parse::GROWTH,
        super::rss::GROWTH,
    ];
    rooms.into_iter().flatten()
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let wanted = |growth: &&Growth| {
        args.tables.is_empty()
            || args
                .tables
                .iter()
                .any(|prefix| growth.name.starts_with(prefix.as_str()))
    };
    let growths: Vec<&Growth> = growths().filter(wanted).collect();
    if growths.is_empty() {
        return Err(Error::NoSuchRow {
            rows: args.tables.join(", "),
        });
    }
    for growth in growths {
        for &size in growth.sizes {
            let run = Run {
                duration: Duration::from_secs_f64(args.seconds.clamp(0.001, 3600.0)),
                cpus: cpus(args.cpus.as_deref())?,
                port: None,
            };
            let point = (growth.run)(size, run)?;
            let line = Line {
                table: growth.name,
                of: growth.of,
                size,
                ns: point.ns,
                bytes_each: point.bytes_each,
            };
            let line = match args.json {
                true => serde_json::to_string(&line).map_err(std::io::Error::from)?,
                false => format!(
                    "{:24} {:>10} {:8} {:10.2} ns {:12.1} bytes each",
                    line.table, line.size, line.of, line.ns, line.bytes_each
                ),
            };
            report::print(&format!("{line}\n"))?;
        }
    }
    Ok(())
}
