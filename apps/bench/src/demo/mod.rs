//! `linerate demo`: the main job without root, hugepages or network cards. A generator, l2fwd and
//! a sink, joined by in-process ring ports; for each frame size first the highest rate, then the
//! latency at half of it, timed from when each frame was to be sent.
//!
//! `--linux-bridge` sets the same work beside the kernel's own bridge ([`bridge`]); `--html`
//! writes all of it as a page ([`page`]).

mod bridge;
mod cpus;
mod frame;
mod line;
mod page;
mod text;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_core::env::{Clock, Lcore, Plan, PlanSpec, Role, Topology};
use serde::Serialize;

use bridge::{Comparison, Scenario};
use frame::{L1_BYTES, LEAST_BYTES, MOST_BYTES};
use line::{Line, Outcome, Pace, Phase};
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, MachineFacts};
use linerate_appliance::runtime::Interrupts;

#[derive(clap::Args)]
pub struct Args {
    /// Frame sizes in bytes, frame check sequence included
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64,128,256,512,1024,\
        1280,1518",
          value_parser = clap::value_parser!(u16).range(LEAST_BYTES as i64..=MOST_BYTES as i64))]
    frames: Vec<u16>,
    /// Seconds for each size, half for throughput and half for latency
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds_per_size: f64,
    /// Write and check only headers and sequence numbers, not the whole frame
    #[arg(long)]
    headers_only: bool,
    /// As root: set a Linux bridge and l2fwd side by side between veth pairs
    #[arg(long)]
    linux_bridge: bool,
    /// Write the results with charts to this page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Frames per second and latency for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Size with frame check sequence.
    pub(crate) frame_bytes: usize,
    pub(crate) mpps: f64,
    /// Frames with their check sequence.
    pub gbps_l2: f64,
    /// With preamble and gap, as a wire would carry them.
    pub gbps_l1: f64,
    /// TSC ticks that pass for each frame that comes through.
    pub(crate) cycles_per_packet: f64,
    pub(crate) ns_per_packet: f64,
    /// The rate at which the latency was taken.
    pub(crate) latency_mpps: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    /// In both stretches.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Sequence numbers that never came, or came wrong.
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
    pub(crate) corrupt: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub(crate) machine: MachineFacts,
    /// Who ran where.
    pub(crate) split: String,
    /// Whether every byte was written and checked.
    pub(crate) whole_frames: bool,
    pub(crate) memory: Option<String>,
    /// Whether it was ended before all was measured.
    pub(crate) interrupted: bool,
    pub(crate) rows: Vec<Row>,
    /// The kernel's bridge and linerate between the same veth pairs, `--linux-bridge`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) linux_bridge: Vec<Scenario>,
    /// The share of each CPU that others had just before that comparison: 0 to 1.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) others_share: Vec<f64>,
}

impl Report {
    /// What to hold against the comparison, if anything: CPUs that others were using.
    pub(crate) fn disturbance(&self) -> Option<String> {
        let taken = (0..)
            .zip(&self.others_share)
            .filter(|(_, share)| **share > 0.1);
        let each: Vec<String> = taken
            .map(|(cpu, share)| format!("{:.0} % of CPU {cpu}", share * 100.0))
            .collect();
        (!each.is_empty()).then(|| {
            format!(
                "Others had {} just before this comparison: do not trust it, and run it again \
                on a quiet machine.",
                each.join(" and ")
            )
        })
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(path) = &args.html {
        writable(path)?;
    }
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
    let (rows, memory) = job.watched(&interrupts, Job::measure)?;
    let (compared, stop) = (args.linux_bridge, job.stop.clone());
    let comparison = if compared && !stop.load(Ordering::Relaxed) {
        job.watched(&interrupts, Job::compare)?
    } else {
        Comparison::default()
    };
    let report = Report {
        machine,
        split,
        whole_frames: !args.headers_only,
        memory,
        interrupted: stop.load(Ordering::Relaxed),
        rows,
        linux_bridge: comparison.scenarios,
        others_share: comparison.others,
    };
    if let Some(path) = &args.html {
        std::fs::write(path, page::page(&report)).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text::text(&report, output::colour()))?;
    }
    verdict(&report.rows)
}

/// Better said before a quarter of a minute than after it.
fn writable(path: &Path) -> Result<(), Error> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::read_dir(folder)
        .map(drop)
        .map_err(|source| Error::File {
            path: folder.into(),
            source,
        })
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
    /// Runs a part of it, with a progress line on a terminal, until it is done or interrupted.
    fn watched<T: Send + 'static>(
        &self,
        interrupts: &Interrupts,
        part: fn(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let job = self.clone();
        let lcore = Lcore::spawn("demo", None, move || part(&job))?;
        let (stop, progress) = (&self.stop, &self.progress);
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

    fn say(&self, what: String) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn compare(&self) -> Result<Comparison, Error> {
        let topology = Topology::machine()?;
        let cpus = topology.allowed().as_slice();
        bridge::compare(&self.frames, self.clock, cpus, &self.stop, &|what| {
            self.say(what)
        })
    }

    fn measure(&self) -> Result<Measured, Error> {
        if let [cpu] = self.cpus[..] {
            let job = self.clone();
            return Lcore::spawn("line", Some(cpu), move || job.measure_here())?.join()?;
        }
        self.measure_here()
    }

    fn measure_here(&self) -> Result<Measured, Error> {
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
                self.say(text);
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
