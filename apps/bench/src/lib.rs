//! `linerate bench`: measurements, one row at a time.
//!
//! `rfc2544`, `ndr` and their parts measure a device, `diff` compares two of their reports: that is
//! [`linerate_tester`]'s. `micro` times this program's own parts. Each row prints its figure, the
//! pages under it and what else explains it; `cargo xtask compare` runs the same rows in turns with
//! DPDK's. `input` writes what a row works on, so that DPDK works on the same; `growth` shows how
//! tables grow; `rss` is [`apps::rss`](linerate_inspect::rss)'s.
#![forbid(unsafe_code)]
// The binary uses two functions; the rest is public for benchmarks and fuzzing only.
#![allow(missing_docs)]

mod acl;
mod balance;
mod exact;
mod flow;
mod forward;
mod gateway;
mod growth;
mod l3fwd;
mod lpm;
mod lpm4;
mod lpm6;
mod memif;
mod meter;
mod parse;
mod pktgen;
mod pktgen_rx;
mod pool;
mod port;
mod probe;
mod random;
mod reassembly;
mod ring;
mod router;
mod router_fpm;
mod router_reload;
mod router_updates;
mod rss;
mod shm;
mod timers;
mod vhost;
mod zebra;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use linerate_core::env::{CpuList, Lcore};
use serde::Serialize;

use linerate_appliance::error::Error;
use linerate_appliance::output;
use linerate_tester::{diff, method, suite};

/// Benchmark a device by RFC 2544 and others, or time this program's own parts.
#[derive(Parser)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All of RFC 2544: throughput, latency, loss, bursts (by RFC 9004) and recovery
    Rfc2544(suite::Options),
    /// The rates without loss and with a little of it (NDR, PDR), then latency at parts of that
    Ndr(suite::Options),
    /// The highest rate without a lost frame, by frame size (RFC 2544 26.1)
    Throughput(suite::Options),
    /// Latency at the throughput, and below (26.2)
    Latency(suite::Options),
    /// Loss against load (26.3)
    Loss(suite::Options),
    /// The longest bursts without loss (RFC 9004)
    #[command(name = "back2back")]
    BackToBack(suite::Options),
    /// A long time at one rate
    Soak(suite::Options),
    /// Time rings, pools and forwarding, one row at a time
    Micro(MicroArgs),
    /// Load ports or answer on them: one end of a measurement between two processes
    Port(port::Args),
    /// Write what a row works on (routes and addresses, rules and packets) for another program
    Input(InputArgs),
    /// Show how tables grow with what they hold: time and memory, by powers of ten
    Growth(growth::Args),
    /// Compare two reports: better, worse or noise, row by row
    Diff(diff::Args),
    /// Show which queue a NIC gives each flow, list the ports that land on a queue, or check a port
    Rss(linerate_inspect::rss::Args),
}

#[derive(Parser)]
struct InputArgs {
    /// The row, like lpm4.lookup.1m.host
    row: String,
    /// Where to write it
    file: std::path::PathBuf,
}

#[derive(Parser)]
struct MicroArgs {
    /// Rows to run, by name or prefix; all when absent
    rows: Vec<String>,
    /// Seconds that each row runs
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// CPUs to pin to: the first for one-core rows, both for two-core rows
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Small tables and a short time: tests that a row works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// One JSON object per row
    #[arg(long)]
    json: bool,
    /// Only list the rows
    #[arg(long)]
    list: bool,
}

/// What a row measured.
#[derive(Serialize)]
pub struct Sample {
    row: &'static str,
    value: f64,
    unit: &'static str,
    /// What backs the memory that the row works on.
    pages: String,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    detail: serde_json::Map<String, serde_json::Value>,
}

impl Sample {
    fn new(row: &'static str, value: f64, unit: &'static str, pages: impl ToString) -> Self {
        Self {
            row,
            value,
            unit,
            pages: pages.to_string(),
            detail: serde_json::Map::new(),
        }
    }

    /// As one line, or as one JSON object.
    fn print(&self, json: bool) -> Result<(), Error> {
        let line = match json {
            true => serde_json::to_string(self).map_err(std::io::Error::from)?,
            false => format!(
                "{:28} {:10.3} {:5} {}",
                self.row, self.value, self.unit, self.pages
            ),
        };
        output::print(&format!("{line}\n"))
    }

    fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.detail.insert(key.into(), value.into());
        self
    }
}

/// How a row is to be run.
pub struct Run {
    duration: Duration,
    /// The CPUs of the first and the second lcore.
    cpus: [u32; 2],
    /// Whether to use small tables, which makes the figure meaningless.
    quick: bool,
}

impl Run {
    /// A short run over small tables, on one CPU.
    #[cfg(test)]
    fn quick() -> Self {
        let cpu = linerate_core::env::allowed_cpus()
            .expect("this thread runs")
            .as_slice()[0];
        Self {
            duration: Duration::from_millis(10),
            cpus: [cpu; 2],
            quick: true,
        }
    }

    /// Calls `turn` until the time is over, a tenth of it beforehand to warm up. Returns
    /// nanoseconds per element; `turn` says how many elements it passed.
    fn time(&self, mut turn: impl FnMut() -> u64) -> f64 {
        self.time_for(self.duration / 10, &mut turn);
        self.time_for(self.duration, &mut turn)
    }

    fn time_for(&self, duration: Duration, turn: &mut impl FnMut() -> u64) -> f64 {
        let began = Instant::now();
        let mut elements = 0;
        loop {
            // The clock is read once per many turns.
            for _ in 0..256 {
                elements += turn();
            }
            let elapsed = began.elapsed();
            if elapsed >= duration {
                return elapsed.as_nanos() as f64 / elements.max(1) as f64;
            }
        }
    }

    /// Runs `work` on the first CPU.
    fn pinned<T: Send + 'static>(
        self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let cpu = self.cpus[0];
        Ok(Lcore::spawn("bench", Some(cpu), move || work(&self))?.join()?)
    }
}

/// One row: its name, what it says, and how it runs.
pub struct Row {
    name: &'static str,
    about: &'static str,
    run: fn(&'static str, Run) -> Result<Sample, Error>,
}

/// The input of a row, for other programs: the row's name and the function that writes its file.
pub struct Input {
    row: &'static str,
    write: fn(&Path) -> Result<(), Error>,
}

fn rows() -> impl Iterator<Item = &'static Row> {
    let rooms = [
        probe::ROWS,
        ring::ROWS,
        pool::ROWS,
        forward::ROWS,
        memif::ROWS,
        vhost::ROWS,
        shm::ROWS,
        l3fwd::ROWS,
        router::ROWS,
        gateway::ROWS,
        parse::ROWS,
        rss::ROWS,
        exact::ROWS,
        lpm4::ROWS,
        lpm6::ROWS,
        acl::ROWS,
        flow::ROWS,
        timers::ROWS,
        meter::ROWS,
        balance::ROWS,
        reassembly::ROWS,
        pktgen::ROWS,
        pktgen_rx::ROWS,
        router_fpm::ROWS,
        router_updates::ROWS,
        router_reload::ROWS,
    ];
    rooms.into_iter().flatten()
}

fn inputs() -> impl Iterator<Item = &'static Input> {
    let rooms = [
        l3fwd::INPUTS,
        gateway::INPUTS,
        lpm4::INPUTS,
        lpm6::INPUTS,
        acl::INPUTS,
    ];
    rooms.into_iter().flatten()
}

pub fn run(args: &Args) -> Result<(), Error> {
    match &args.what {
        What::Rfc2544(options) => suite::run(method::Measurement::Rfc2544, options),
        What::Ndr(options) => suite::run(method::Measurement::Ndr, options),
        What::Throughput(options) => suite::run(method::Measurement::Throughput, options),
        What::Latency(options) => suite::run(method::Measurement::Latency, options),
        What::Loss(options) => suite::run(method::Measurement::Loss, options),
        What::BackToBack(options) => suite::run(method::Measurement::BackToBack, options),
        What::Soak(options) => suite::run(method::Measurement::Soak, options),
        What::Micro(args) => micro(args),
        What::Port(args) => port::run(args),
        What::Input(args) => input(args),
        What::Growth(args) => growth::run(args),
        What::Diff(args) => diff::run(args),
        What::Rss(args) => linerate_inspect::rss::run(args),
    }
}

fn input(args: &InputArgs) -> Result<(), Error> {
    let input = inputs().find(|input| input.row == args.row);
    let input = input.ok_or_else(|| {
        let rows: Vec<&str> = inputs().map(|input| input.row).collect();
        Error::Usage {
            problem: format!(
                "row `{}` works on nothing that another program could read",
                args.row
            ),
            fix: format!("rows with inputs: {}", rows.join(", ")),
        }
    })?;
    (input.write)(&args.file)
}

/// The error where no row begins with any of these.
fn no_such_row(rows: &[String]) -> Error {
    Error::Usage {
        problem: format!("no benchmark row begins with `{}`", rows.join(", ")),
        fix: "`linerate bench micro --list` shows the rows".into(),
    }
}

fn micro(args: &MicroArgs) -> Result<(), Error> {
    // A complete name selects that row only, though others may begin with it.
    let names = |wanted: &str, row: &Row| {
        row.name == wanted
            || (row.name.starts_with(wanted) && rows().all(|other| other.name != wanted))
    };
    let wanted = |row: &&Row| {
        let mut wanted = args.rows.iter();
        args.rows.is_empty() || wanted.any(|wanted| names(wanted, row))
    };
    let rows: Vec<&Row> = rows().filter(wanted).collect();
    if rows.is_empty() {
        return Err(no_such_row(&args.rows));
    }
    if args.list {
        let lines: String = rows
            .iter()
            .map(|row| format!("{:28} {}\n", row.name, row.about))
            .collect();
        return output::print(&lines);
    }
    let cpus = cpus(args.cpus.as_deref())?;
    for row in rows {
        let duration = Duration::from_secs_f64(args.seconds.clamp(0.001, 3600.0));
        let sample = (row.run)(
            row.name,
            Run {
                duration,
                cpus,
                quick: args.quick,
            },
        )?;
        sample.print(args.json)?;
    }
    Ok(())
}

/// The CPUs of the first and the second lcore.
fn cpus(list: Option<&str>) -> Result<[u32; 2], Error> {
    let allowed: Vec<u32> = match list {
        Some(list) => CpuList::parse("cpus", list)?.iter().collect(),
        None => linerate_core::env::allowed_cpus()
            .map_err(Error::Output)?
            .iter()
            .collect(),
    };
    let first = allowed.first().copied().unwrap_or(0);
    Ok([first, allowed.get(1).copied().unwrap_or(first)])
}
