//! `bench dispatch`: a recorded trace through the gateway's own classifier, bucket table and
//! rebalancer, for any number of lcores: who would hand how much to whom.
//!
//! Nothing is measured: the outcome is the same on any machine. [`trace`] reads the capture,
//! [`model`] has the lcores.

mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod trace;

use std::path::PathBuf;

use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table};
use linerate_dispatch::owners::WORKERS;
use linerate_gateway::dispatch::{Classes, Hash, Marked, Marks};
use linerate_routing::model::Cidr;
use serde::Serialize;

use model::{Costs, Form, Outcome, Replay, replay};
use trace::Trace;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The capture (pcap or pcapng, Ethernet)
    capture: PathBuf,
    /// Numbers of lcores
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    lcores: Vec<usize>,
    /// A network whose hosts are behind NAT: all flows of one of them are one worker's
    #[arg(long, value_name = "PREFIX")]
    inside: Vec<Cidr>,
    /// Packets a second; default: as in the capture, or 100000 where it has no times
    #[arg(long)]
    pps: Option<f64>,
    /// Seconds between two looks at the loads, as of `[dispatch] interval`
    #[arg(long, default_value_t = 1.0)]
    interval: f64,
    /// For how many intervals the capture is repeated
    #[arg(long, default_value_t = 20)]
    intervals: u64,
    /// Cycles of a packet: to receive it, to classify it, to hand it over and take it, of a known
    /// flow, of a flow's first packet
    #[arg(long, value_delimiter = ',', default_value = "40,12,50,80,1500")]
    cost: Vec<u64>,
    /// Seed of the keyed hash
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON: an object for each form and number of lcores, behind one of the capture
    #[arg(long)]
    json: bool,
}

/// A rate where the capture has none.
const PPS: f64 = 100_000.0;

/// The capture, in a report.
#[derive(Serialize)]
struct Found {
    capture: String,
    packets: usize,
    /// Packets that are for no flow, and stay with who receives them.
    others: usize,
    flows: usize,
    /// Parts of all packets of flows: what one flow, and one bucket, has at most.
    busiest_flow: f64,
    busiest_bucket: f64,
    /// No more lcores than that can share the packets of flows evenly.
    limit: f64,
}

impl Found {
    fn of(args: &Args, trace: &Trace) -> Self {
        let (busiest_flow, busiest_bucket) = trace.elephants();
        let others = trace.packets.iter().filter(|packet| packet.flow.is_none());
        Self {
            capture: args.capture.display().to_string(),
            packets: trace.packets.len(),
            others: others.count(),
            flows: trace.flows,
            busiest_flow,
            busiest_bucket,
            limit: 1.0 / busiest_bucket.max(1e-9),
        }
    }

    fn text(&self) -> String {
        format!(
            "{}: {} packets of {} flows, {} others\n\
             busiest flow {:.1} % of them, busiest bucket {:.1} %: {:.1} lcores can share them \
             evenly at most\n\n",
            self.capture,
            self.packets - self.others,
            self.flows,
            self.others,
            self.busiest_flow * 100.0,
            self.busiest_bucket * 100.0,
            self.limit
        )
    }
}

fn usage(problem: impl Into<String>, fix: impl Into<String>) -> Error {
    Error::Usage {
        problem: problem.into(),
        fix: fix.into(),
    }
}

impl Args {
    /// What the gateway knows of addresses.
    fn classes(&self) -> Result<Classes, Error> {
        let mut marked = Marked::default();
        for network in &self.inside {
            marked.network(network.network(), Marks::Inside);
        }
        Ok(Classes::new(Hash::new(self.seed), &marked)?)
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(wrong) = self
            .lcores
            .iter()
            .find(|many| !(1..=WORKERS).contains(many))
        {
            return Err(usage(
                format!("--lcores {wrong}"),
                format!("give 1 to {WORKERS}"),
            ));
        }
        if !(0.001..=3600.0).contains(&self.interval) {
            return Err(usage(
                format!("--interval is {}, which is none", self.interval),
                "give seconds, 0.001 to 3600",
            ));
        }
        if !(1..=100_000).contains(&self.intervals) {
            return Err(usage(
                format!("--intervals {}", self.intervals),
                "give 1 to 100000",
            ));
        }
        match self.pps {
            Some(pps) if !(1.0..=1e9).contains(&pps) => Err(usage(
                format!("--pps is {pps}, which is no rate"),
                "give packets a second, 1 to 1e9",
            )),
            _ => Ok(()),
        }
    }

    fn replay(&self, trace: &Trace) -> Result<Replay, Error> {
        let &[receive, classify, hop, flow, first] = self.cost.as_slice() else {
            return Err(usage(
                format!("--cost has {} numbers", self.cost.len()),
                "give five: receive,classify,hop,flow,first",
            ));
        };
        let has_times = trace.packets.iter().any(|packet| packet.ns > 0);
        let pps = self.pps.or((!has_times).then_some(PPS));
        Ok(Replay {
            costs: Costs {
                receive,
                classify,
                hop,
                flow,
                first,
            },
            gap_ns: pps.map(|pps| (1e9 / pps) as u64),
            interval_ns: (self.interval * 1e9) as u64,
            intervals: self.intervals,
        })
    }
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    args.check()?;
    let trace = Trace::read(&args.capture, &args.classes()?)?;
    let how = args.replay(&trace)?;
    let found = Found::of(args, &trace);
    let outcomes = outcomes(&trace, &args.lcores, &how);
    output::print(&match args.json {
        true => json(&found, &outcomes)?,
        false => found.text() + &table(&outcomes).render(output::colour()),
    })
}

/// Each form with each number of lcores that can have it.
fn outcomes(trace: &Trace, lcores: &[usize], how: &Replay) -> Vec<Outcome> {
    let all = Form::ALL.into_iter().flat_map(|form| {
        let lcores = lcores.iter().filter(move |&&lcores| form.takes(lcores));
        lcores.map(move |&lcores| replay(trace, form, lcores, how))
    });
    all.collect()
}

fn json(found: &Found, outcomes: &[Outcome]) -> Result<String, Error> {
    let mut text = serde_json::to_string(found).map_err(std::io::Error::from)? + "\n";
    for outcome in outcomes {
        text += &serde_json::to_string(outcome).map_err(std::io::Error::from)?;
        text.push('\n');
    }
    Ok(text)
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new([
        Column::text("form"),
        Column::number("lcores"),
        Column::number("hops"),
        Column::number("imbalance"),
        Column::number("by cycles"),
        Column::number("times one lcore"),
        Column::number("moves/s"),
    ]);
    for one in outcomes {
        table.row([
            Cell::new(one.form.name()),
            Cell::new(one.lcores),
            Cell::new(format!(
                "{:.1} %",
                one.hops as f64 * 100.0 / one.packets.max(1) as f64
            )),
            Cell::new(format!("{:.2}", one.imbalance)),
            Cell::new(format!("{:.2}", one.imbalance_cycles)),
            Cell::new(format!("{:.2}", one.speedup)),
            Cell::new(format!("{:.2}", one.moves_per_s)),
        ]);
    }
    table
}
