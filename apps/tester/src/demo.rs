//! `linerate demo`: the main job without root, huge pages or network cards, as a preset of the
//! benchmarks. The generator, l2fwd and the generator's receiver, joined by ring ports: for each
//! frame size the maximum rate, then latency at half of that.
//!
//! The generator has no more frames under way than the ring behind l2fwd holds, so none is lost by
//! design; sequence numbers verify that.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use linerate_core::env::Clock;

use crate::method::Measurement;
use crate::report::{Report, Trial, VerdictWord};
use crate::suite::{self, Options};
use linerate_appliance::error::Error;
use linerate_appliance::output::{Cell, Column, MachineFacts, Table, Tone};
use linerate_traffic::units::{FCS_BYTES, L1_BYTES, LEAST_FRAME, MOST_FRAME};

/// A ring behind l2fwd holds twice its `size`.
const RINGS: &str = "ring,size=2048,slots=4096";

#[derive(clap::Args)]
pub struct Args {
    /// Frame sizes in bytes, frame check sequence included
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64,128,256,512,1024,\
        1280,1518",
          value_parser = clap::value_parser!(u16).range(LEAST_FRAME as i64..=MOST_FRAME as i64))]
    frames: Vec<u16>,
    /// Seconds for each size, half for throughput and half for latency
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds_per_size: f64,
    /// As root: between veth pairs instead of rings, in turns with a Linux bridge
    #[arg(long)]
    linux_bridge: bool,
    /// Write the results with charts to this page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The same as options of a benchmark.
    fn options(&self) -> Result<Options, Error> {
        let half = self.seconds_per_size / 2.0;
        if Duration::try_from_secs_f64(half).is_ok_and(|half| half >= Duration::from_millis(1)) {
            let sizes: Vec<String> = self.frames.iter().map(u16::to_string).collect();
            return Ok(Options {
                ports: (!self.linux_bridge).then(|| RINGS.into()),
                baseline: match self.linux_bridge {
                    true => vec!["bridge".into()],
                    false => Vec::new(),
                },
                sizes: Some(sizes.join(",")),
                quick: true,
                trial: Some(half),
                latency_trial: Some(half),
                json: self.json.then(|| "-".into()),
                html: self.html.clone(),
                ..Options::default()
            });
        }
        Err(Error::Usage {
            problem: format!(
                "--seconds-per-size is {}, which is not a duration",
                self.seconds_per_size
            ),
            fix: "give seconds, such as 2".into(),
        })
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    let options = args.options()?;
    let machine = MachineFacts::gather(&Clock::calibrate())?.line();
    let text = |report: &Report, colour: bool| format!("{machine}\n{}", text(report, colour));
    let report = suite::reported(Measurement::Demo, &options, text)?;
    // Loss between veth pairs is the kernel's, whichever device forwards.
    let lost = match args.linux_bridge {
        true => 0,
        false => (0..report.throughput.len())
            .map(|row| lost(&report, row))
            .sum(),
    };
    let is_failed = report.verdict.word == VerdictWord::Failed && !report.interrupted;
    if lost == 0 && !is_failed {
        return Ok(());
    }
    Err(Error::Usage {
        problem: match lost {
            0 => report.verdict.reasons.join(" "),
            lost => format!("{lost} frames did not come through"),
        },
        fix: "this is a fault in linerate: report it together with the output of `linerate doctor`"
            .into(),
    })
}

/// Lost frames of a size, in both trials.
fn lost(report: &Report, row: usize) -> u64 {
    let lost = |trial: &Trial| trial.sent.saturating_sub(trial.received - trial.duplicates);
    let full = &report.throughput[row];
    let half = report
        .latency
        .iter()
        .find(|half| half.frame_bytes == full.frame_bytes);
    lost(&full.quoted) + half.map_or(0, |half| lost(&half.trial))
}

/// One table, and how it was measured.
fn text(report: &Report, colour: bool) -> String {
    let mut table = Table::new([
        Column::number("frame B"),
        Column::number("Mpps"),
        Column::number("Gb/s L2"),
        Column::number("Gb/s L1"),
        Column::number("cycles/pkt"),
        Column::number("ns/pkt"),
        Column::number("p50 ns"),
        Column::number("p99 ns"),
        Column::number("p99.9 ns"),
        Column::number("lost"),
    ]);
    for (number, row) in report.throughput.iter().enumerate() {
        let mut halves = report.latency.iter();
        let half = halves.find(|half| half.frame_bytes == row.frame_bytes);
        let latency = half
            .map(|half| &half.latency)
            .filter(|half| half.samples > 0);
        let ns = |ns: Option<f64>| Cell::new(ns.map_or("-".into(), |ns| format!("{ns:.0}")));
        let lost = lost(report, number);
        table.row([
            Cell::new(row.frame_bytes),
            Cell::new(format!("{:.2}", row.pps / 1e6)),
            Cell::new(format!("{:.1}", row.l2_bps / 1e9)),
            Cell::new(format!("{:.1}", row.l1_bps / 1e9)),
            Cell::new(format!("{:.1}", row.ticks_per_packet)),
            Cell::new(format!("{:.1}", row.ns_per_packet)),
            ns(latency.map(|latency| latency.p50_ns)),
            ns(latency.map(|latency| latency.p99_ns)),
            ns(latency.map(|latency| latency.p999_ns)),
            Cell::new(lost).tone(if lost == 0 { Tone::Good } else { Tone::Bad }),
        ]);
    }
    let mut text = String::new();
    let cpus = report.preflight.iter().find(|check| check.what == "CPUs");
    if let Some(cpus) = cpus {
        let _ = writeln!(text, "{}", cpus.seen);
    }
    let _ = write!(
        text,
        "generator -> {}, MAC addresses rewritten -> generator\n\n{}\n\
         Every frame carries a number and the time at which it was to be sent, and is counted by\n\
         them when it comes back. Sizes count the {FCS_BYTES} bytes of FCS, L1 {L1_BYTES} more \
         for preamble and gap.\n\
         Cycles are TSC ticks of l2fwd alone. Latency is taken at half the rate shown.\n",
        report.device.name,
        table.render(colour)
    );
    for baseline in &report.baselines {
        let _ = writeln!(text, "\n{}, in turns:", baseline.name);
        for row in &baseline.throughput {
            let ratio = crate::report::times(report, row).map_or(0.0, |times| times.ratio);
            let _ = writeln!(
                text,
                "{:>7} B {:8.2} Mpps; l2fwd is {ratio:.2} times as fast",
                row.frame_bytes,
                row.pps / 1e6
            );
        }
    }
    if report.verdict.word != VerdictWord::Valid {
        for reason in &report.verdict.reasons {
            let _ = writeln!(text, "{}", Tone::Warn.paint(reason, colour));
        }
    }
    text
}
