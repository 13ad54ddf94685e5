//! `linerate bench`: measurements, one row at a time.
//!
//! `rfc2544`, `ndr` and their parts measure a device, `diff` compares two of their reports: that is
//! [`linerate_tester`]'s. `micro` times this program's own parts, the rows of [`linerate_micro`].
//! Each prints its figure, the pages under it and what else explains it; `cargo xtask compare` runs
//! the same rows in turns with DPDK's. `input` writes what a row works on, so that DPDK works on
//! the same; `growth` shows how tables grow, `dispatch` how a gateway's lcores share a capture's
//! packets; `rss` is [`apps::rss`](linerate_inspect::rss)'s, `http` that of [`linerate_steer`].
#![forbid(unsafe_code)]
// The binary uses two functions; the rest is public for benchmarks and fuzzing only.
#![allow(missing_docs)]

mod dispatch;
mod growth;
mod router_reload;

use std::time::Duration;

use clap::{Parser, Subcommand};

use linerate_appliance::error::Error;
use linerate_appliance::output;
use linerate_micro::{Row, Run, cpus, inputs, port};
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
    /// Replay a capture through a gateway's dispatch with up to 64 lcores: hops, imbalance, moves
    Dispatch(dispatch::Args),
    /// Ask an HTTP server by a schedule that does not wait for it: rate, and latency from when
    /// each request should have left
    Http(linerate_steer::http::bench::Args),
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

fn rows() -> impl Iterator<Item = &'static Row> {
    linerate_micro::rows().chain(router_reload::ROWS)
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
        What::Dispatch(args) => dispatch::run(args),
        What::Http(args) => linerate_steer::http::bench::run(args),
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
