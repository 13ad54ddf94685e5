//! `linerate demo`: the main job without root, hugepages or network cards. A generator, l2fwd and
//! a sink, joined by in-process ring ports; for each frame size first the highest rate, then the
//! latency at half of it, timed from when each frame was to be sent.
//!
//! `--linux-bridge` sets the same work beside the kernel's own bridge ([`bridge`]); `--html`
//! writes all of it as a page ([`page`]).

mod frame;
mod line;

use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_core::env::{Clock, Lcore, Plan, PlanSpec, Role, Topology};
use serde::Serialize;

use super::runtime::Interrupts;
use crate::error::Error;
use crate::report::{self, Cell, Column, MachineFacts, Table, Tone};
use frame::{FCS_BYTES, L1_BYTES, LEAST_BYTES, MOST_BYTES};
use line::{Line, Outcome, Pace, Phase};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Frame sizes in bytes, frame check sequence included
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64,128,256,512,1024,1280,1518",
          value_parser = clap::value_parser!(u16).range(LEAST_BYTES as i64..=MOST_BYTES as i64))]
    frames: Vec<u16>,
    /// Seconds for each size, half for throughput and half for latency
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds_per_size: f64,
    /// Write and check only headers and sequence numbers, not the whole frame
    #[arg(long)]
    headers_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Frames per second and latency for one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Size with frame check sequence.
    pub(crate) frame_bytes: usize,
    pub(crate) mpps: f64,
    /// Frames with their check sequence.
    pub(crate) gbps_l2: f64,
    /// With preamble and gap, as a wire would carry them.
    pub(crate) gbps_l1: f64,
    /// TSC ticks that pass for each frame that comes through.
    pub(crate) cycles_per_packet: f64,
    pub(crate) ns_per_packet: f64,
    /// The rate at which the latency was taken.
    pub(crate) latency_mpps: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    /// In both stretches.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Sequence numbers that never came, or came wrong.
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
    pub(crate) corrupt: u64,
}

#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: MachineFacts,
    /// Who ran where.
    pub(crate) split: String,
    /// Whether every byte was written and checked.
    pub(crate) whole_frames: bool,
    pub(crate) memory: Option<String>,
    /// Whether it was ended before all was measured.
    pub(crate) interrupted: bool,
    pub(crate) rows: Vec<Row>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let interrupts = Interrupts::catch()?;
    let clock = Clock::calibrate();
    let machine = MachineFacts::gather(&clock)?;
    let (cpus, split) = stations(&Topology::machine()?)?;
    let seconds = Duration::try_from_secs_f64(args.seconds_per_size).map_err(|_| Error::Usage {
        problem: format!(
            "--seconds-per-size is {}, which is no time",
            args.seconds_per_size
        ),
        fix: "give seconds, such as 2".into(),
    })?;
    let job = Job {
        frames: args.frames.iter().map(|&bytes| bytes.into()).collect(),
        ns_per_size: seconds.as_nanos() as u64,
        whole: !args.headers_only,
        clock,
        cpus,
        stop: Arc::default(),
        progress: Arc::default(),
    };
    let (rows, memory) = job.watched(&interrupts)?;
    let report = Report {
        machine,
        split,
        whole_frames: !args.headers_only,
        memory,
        interrupted: rows.len() < args.frames.len(),
        rows,
    };
    if args.json {
        report::print_json(&report)?;
    } else {
        report::print(&text(&report, report::colour()))?;
    }
    verdict(&report.rows)
}

/// Three CPUs for three stations, or one for all.
fn stations(topology: &Topology) -> Result<(Vec<u32>, String), Error> {
    let usable = topology.allowed().len();
    let spec = if usable < 3 {
        PlanSpec::default()
    } else {
        PlanSpec {
            bg: Some("3".into()),
            io: Some("0".into()),
            eu: Some("1,2".into()),
            cpus: None,
        }
    };
    let plan = Plan::build(&spec, topology, &[])?;
    let busy = plan.lcores.iter().filter(|lcore| lcore.role.is_busy());
    let cpus: Vec<u32> = busy.map(|lcore| lcore.cpu).collect();
    if let ([generator, forwarder, sink], 3..) = (&cpus[..], usable) {
        let split =
            format!("generator on CPU {generator}, l2fwd on CPU {forwarder}, sink on CPU {sink}");
        return Ok((cpus, split));
    }
    let cpu = plan
        .role(Role::Io)
        .map(|lcore| lcore.cpu)
        .next()
        .unwrap_or_default();
    let split = format!(
        "{usable} CPU{} for 3 roles: generator, l2fwd and sink take turns in one loop on CPU {cpu}",
        if usable == 1 { "" } else { "s" }
    );
    Ok((vec![cpu], split))
}

/// The measurement, on an lcore of its own.
#[derive(Clone)]
struct Job {
    frames: Vec<usize>,
    ns_per_size: u64,
    whole: bool,
    clock: Clock,
    cpus: Vec<u32>,
    stop: Arc<AtomicBool>,
    /// What is being done, for people.
    progress: Arc<Mutex<String>>,
}

type Measured = (Vec<Row>, Option<String>);

impl Job {
    /// Runs it, with a progress line on a terminal, until it is done or interrupted.
    fn watched(self, interrupts: &Interrupts) -> Result<Measured, Error> {
        let (stop, progress) = (self.stop.clone(), self.progress.clone());
        // With one CPU for all, the loop runs right there.
        let cpu = Some(self.cpus[0]).filter(|_| self.cpus.len() == 1);
        let lcore = Lcore::spawn("demo", cpu, move || self.measure())?;
        let terminal = std::io::stderr().is_terminal();
        while !lcore.is_finished() {
            if interrupts.wait(Duration::from_millis(50)) {
                stop.store(true, Ordering::Relaxed);
            }
            if terminal {
                let now = progress
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                eprint!("\r\x1b[K{now}");
            }
        }
        if terminal {
            eprint!("\r\x1b[K");
            std::io::stderr().flush()?;
        }
        lcore.join()?
    }

    fn measure(&self) -> Result<Measured, Error> {
        let (mut rows, mut memory) = (Vec::new(), None);
        for (index, &bytes) in self.frames.iter().enumerate() {
            let (line, pool) = Line::new(bytes, self.whole, self.clock, &self.cpus, &self.stop)?;
            memory.get_or_insert(pool);
            let say = |what: &str| {
                let text = format!(
                    "[{}/{}] {bytes} byte frames: {what}",
                    index + 1,
                    self.frames.len()
                );
                *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = text;
            };
            say("throughput");
            let (line, full) = line.run(self.phase(|_| Pace::Full))?;
            let rate = full.rate;
            if full.tally.received == 0 {
                break;
            }
            let interval = 2.0 / rate;
            say(&format!(
                "{:.2} Mpps; latency at half that rate",
                rate * self.clock.hz() * 1e-6
            ));
            let (_, half) = line.run(self.phase(|start| Pace::Every { start, interval }))?;
            if half.tally.received == 0 {
                break;
            }
            rows.push(row(bytes, &full, &half, &self.clock));
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok((rows, memory))
    }

    /// Half of the time for one size; its first tenth is to warm up.
    fn phase(&self, pace: impl Fn(u64) -> Pace) -> Phase {
        let (start, ticks) = (self.clock.now(), self.clock.ticks(self.ns_per_size / 2));
        Phase {
            pace: pace(start),
            count_from: start + ticks / 10,
            end: start + ticks,
        }
    }
}

fn row(frame_bytes: usize, full: &Outcome, half: &Outcome, clock: &Clock) -> Row {
    let pps = full.rate * clock.hz();
    let gbps = |bytes: usize| pps * bytes as f64 * 8e-9;
    let latency = half.latency.snapshot();
    let ns = |percent| clock.ns(latency.percentile(percent));
    let both = |count: fn(&Outcome) -> u64| count(full) + count(half);
    Row {
        frame_bytes,
        mpps: pps * 1e-6,
        gbps_l2: gbps(frame_bytes),
        gbps_l1: gbps(frame_bytes + L1_BYTES),
        cycles_per_packet: clock.hz() / pps,
        ns_per_packet: 1e9 / pps,
        latency_mpps: half.rate * clock.hz() * 1e-6,
        p50_ns: ns(50.0),
        p99_ns: ns(99.0),
        p999_ns: ns(99.9),
        sent: both(|outcome| outcome.sent),
        received: both(|outcome| outcome.tally.received),
        lost: both(|outcome| outcome.tally.lost(outcome.sent)),
        out_of_order: both(|outcome| outcome.tally.out_of_order),
        corrupt: both(|outcome| outcome.tally.corrupt),
    }
}

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
    for row in &report.rows {
        let lost = Cell::new(row.lost).tone(if row.lost == 0 { Tone::Good } else { Tone::Bad });
        table.row([
            Cell::new(row.frame_bytes),
            Cell::new(format!("{:.2}", row.mpps)),
            Cell::new(format!("{:.1}", row.gbps_l2)),
            Cell::new(format!("{:.1}", row.gbps_l1)),
            Cell::new(format!("{:.1}", row.cycles_per_packet)),
            Cell::new(format!("{:.1}", row.ns_per_packet)),
            Cell::new(row.p50_ns),
            Cell::new(row.p99_ns),
            Cell::new(row.p999_ns),
            lost,
        ]);
    }
    let mut text = format!("{}\n{}\n", report.machine.line(), report.split);
    for memory in &report.memory {
        let _ = writeln!(text, "{memory}");
    }
    let _ = writeln!(
        text,
        "generator -> ring -> l2fwd with MAC update -> ring -> sink\n\n{}",
        table.render(colour)
    );
    text.push_str(if report.whole_frames {
        "Every byte of every frame was written by the generator and checked by the sink.\n"
    } else {
        "headers only: payloads were neither written nor checked.\n"
    });
    let _ = writeln!(
        text,
        "Frame sizes count the {FCS_BYTES} bytes of FCS, L1 {L1_BYTES} more for preamble and gap. Cycles are TSC ticks for\n\
         all three roles together. Latency is taken at half the rate shown, from the time at which each\n\
         frame was to be sent to its arrival at the sink."
    );
    if report.interrupted {
        text.push_str("Ended early: sizes not measured are left out.\n");
    }
    text
}

/// A run that lost or spoilt frames is a failed one, whatever its rate.
fn verdict(rows: &[Row]) -> Result<(), Error> {
    let sum = |count: fn(&Row) -> u64| rows.iter().map(count).sum::<u64>();
    let (lost, corrupt) = (sum(|row| row.lost), sum(|row| row.corrupt));
    if lost + corrupt == 0 {
        return Ok(());
    }
    Err(Error::Usage {
        problem: format!("{lost} frames did not come through, {corrupt} of them spoilt"),
        fix: "this is a fault in linerate: report it together with the output of `linerate doctor`"
            .into(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
