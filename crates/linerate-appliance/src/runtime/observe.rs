//! Samples of a run: counters at one moment, and differences between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_core::env::Clock;
use linerate_core::port::{Link, PortStats, RingFill};
use linerate_core::run::{HistogramSnapshot, Stage};
use serde::Serialize;

use super::Running;
use crate::output::LcoreReport;

/// All counters at one moment.
#[derive(Clone)]
pub struct Sample {
    at: Instant,
    clock: Clock,
    ports: Vec<PortSample>,
    lcores: Vec<LcoreSample>,
}

#[derive(Clone)]
struct PortSample {
    number: u16,
    name: String,
    kind: &'static str,
    link: Link,
    facts: Vec<(&'static str, String)>,
    stats: PortStats,
}

#[derive(Clone, Default)]
struct LcoreSample {
    name: String,
    cpu: Option<u32>,
    packets: u64,
    rounds: u64,
    busy: u64,
    idle: u64,
    asleep: u64,
    sleeps: u64,
    residence: HistogramSnapshot,
    wake_up_ns: HistogramSnapshot,
    gaps: HistogramSnapshot,
    drops: BTreeMap<String, u64>,
}

impl Sample {
    /// Reads all counters.
    pub fn take<S: Stage + 'static>(running: &Running<S>) -> Self {
        let ports = running.ports().iter().map(|open| PortSample {
            number: open.number,
            name: open.name.clone(),
            kind: open.info.kind,
            link: open.port.link(),
            // Facts about a peer change as peers come and go.
            facts: open.port.info().facts,
            stats: open.port.stats(),
        });
        let lcores = running.lcores().map(|(name, cpu, stats)| LcoreSample {
            name: name.into(),
            cpu,
            packets: stats.packets.read(),
            rounds: stats.rounds.read(),
            busy: stats.busy_ticks.read(),
            idle: stats.idle_ticks.read(),
            asleep: stats.asleep_ticks.read(),
            sleeps: stats.sleeps.read(),
            residence: stats.residence.snapshot(),
            wake_up_ns: stats.wake_up_ns.snapshot(),
            gaps: stats.gaps.snapshot(),
            drops: stats.drops().into_iter().collect(),
        });
        Self {
            at: Instant::now(),
            clock: running.clock(),
            ports: ports.collect(),
            lcores: lcores.collect(),
        }
    }

    /// With the links of an earlier sample, since a stopped port's link is down.
    pub(super) fn with_links_of(mut self, earlier: Self) -> Self {
        for (port, before) in self.ports.iter_mut().zip(earlier.ports) {
            port.link = before.link;
        }
        self
    }

    /// Packets that came in through all ports.
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.stats.rx_packets).sum()
    }

    /// Counters as they are now, rates and percentiles of the time since `earlier`, a sample of
    /// the same run.
    pub fn since(&self, earlier: &Self) -> Reading {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let lcores = self.lcores.iter().zip(&earlier.lcores);
        let mut residence = HistogramSnapshot::default();
        for (now, before) in lcores.clone() {
            residence.merge(&now.residence.since(&before.residence));
        }
        Reading {
            seconds,
            ports: self
                .ports
                .iter()
                .map(|now| {
                    // For a new one, everything.
                    let same = |before: &&PortSample| {
                        (before.number, &before.name) == (now.number, &now.name)
                    };
                    let before = earlier.ports.iter().find(same);
                    PortRow::new(now, before.map(|before| &before.stats), seconds)
                })
                .collect(),
            lcores: lcores
                .map(|(now, before)| LcoreRow::new(now, before, &self.clock))
                .collect(),
            residence: Percentiles::new(&residence, &self.clock),
        }
    }
}

/// Differences between two samples.
#[derive(Debug, Serialize)]
pub struct Reading {
    /// Time between the samples.
    pub seconds: f64,
    /// By number.
    pub ports: Vec<PortRow>,
    /// In the order of the plan.
    pub lcores: Vec<LcoreRow>,
    /// From each packet's receive burst to the end of its round.
    pub residence: Percentiles,
}

/// One port. Packets, bytes and drops since the start, rates of the interval. Bytes are counted
/// without frame check sequence.
#[derive(Debug, Serialize)]
pub struct PortRow {
    pub port: usize,
    pub name: String,
    kind: &'static str,
    /// `up`, or why not.
    pub link: String,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_pps: f64,
    pub rx_gbps: f64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_pps: f64,
    pub tx_gbps: f64,
    tx_copied: u64,
    checksums_completed: u64,
    segmented: u64,
    /// Frames that are missing in a capture or trace of the port.
    capture_missed: u64,
    joined: u64,
    pub rx_drops: BTreeMap<&'static str, u64>,
    pub tx_drops: BTreeMap<&'static str, u64>,
    /// Notifications sent to a peer in shared memory.
    notifications: u64,
    /// Why peers in shared memory were cut off.
    violations: BTreeMap<&'static str, u64>,
    /// How full the rings are that the port shares with a peer.
    rings: Vec<RingRow>,
    facts: BTreeMap<&'static str, String>,
}

/// One ring that a port shares with its peer.
#[derive(Debug, Serialize)]
struct RingRow {
    direction: &'static str,
    queue: u16,
    /// Entries that whoever reads has not taken.
    waiting: u32,
    size: u32,
}

impl From<&RingFill> for RingRow {
    fn from(fill: &RingFill) -> Self {
        let RingFill {
            direction,
            queue,
            waiting,
            size,
        } = *fill;
        Self {
            direction,
            queue,
            waiting,
            size,
        }
    }
}

impl PortRow {
    fn new(now: &PortSample, before: Option<&PortStats>, seconds: f64) -> Self {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let none = PortStats::default();
        let (stats, old) = (&now.stats, before.unwrap_or(&none));
        Self {
            port: now.number.into(),
            name: now.name.clone(),
            kind: now.kind,
            link: match &now.link {
                Link::Up => "up".into(),
                Link::Down(reason) => format!("down: {reason}"),
            },
            rx_packets: stats.rx_packets,
            rx_bytes: stats.rx_bytes,
            rx_pps: rate(stats.rx_packets, old.rx_packets),
            rx_gbps: rate(stats.rx_bytes, old.rx_bytes) * 8e-9,
            tx_packets: stats.tx_packets,
            tx_bytes: stats.tx_bytes,
            tx_pps: rate(stats.tx_packets, old.tx_packets),
            tx_gbps: rate(stats.tx_bytes, old.tx_bytes) * 8e-9,
            tx_copied: stats.tx_copied,
            checksums_completed: stats.checksums_completed,
            segmented: stats.segmented,
            capture_missed: stats.capture_missed,
            joined: stats.joined,
            rx_drops: stats.rx_drops.iter().copied().collect(),
            tx_drops: stats.tx_drops.iter().copied().collect(),
            notifications: stats.notifications,
            violations: stats.violations.iter().copied().collect(),
            rings: stats.rings.iter().map(RingRow::from).collect(),
            facts: now.facts.iter().cloned().collect(),
        }
    }
}

/// One lcore. Packets, rounds and drops since the start, as of ports; the rest of the interval. A
/// sample at the start would be too late: workers run by then, and a short run may be over.
#[derive(Debug, Serialize)]
pub struct LcoreRow {
    /// Its name and load.
    #[serde(flatten)]
    pub load: LcoreReport,
    asleep_share: f64,
    /// Packets that it took since the start.
    pub packets: u64,
    rounds: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// From the doorbell to the end of the sleep.
    pub wake_up_p50_ns: u64,
    wake_up_p99_ns: u64,
    /// Rounds so long that another thread must have had the CPU (or a stage took that long).
    pub gaps: u64,
    /// Time of these gaps in nanoseconds.
    pub gaps_ns: u64,
    /// The longest piece of that.
    pub longest_gap_ns: u64,
    residence: Percentiles,
    /// Packets by the reason why they were dropped.
    pub drops: BTreeMap<String, u64>,
}

impl LcoreRow {
    fn new(now: &LcoreSample, before: &LcoreSample, clock: &Clock) -> Self {
        let (busy, idle) = (now.busy - before.busy, now.idle - before.idle);
        let asleep = now.asleep - before.asleep;
        let share = |ticks: u64| ticks as f64 / (busy + idle + asleep).max(1) as f64;
        let gaps = now.gaps.since(&before.gaps);
        let wake_up = now.wake_up_ns.since(&before.wake_up_ns);
        Self {
            load: LcoreReport {
                name: now.name.clone(),
                role: now
                    .name
                    .trim_end_matches(|c: char| c.is_ascii_digit())
                    .into(),
                cpu: now.cpu,
                busy_share: share(busy),
            },
            asleep_share: share(asleep),
            packets: now.packets,
            rounds: now.rounds,
            sleeps: now.sleeps - before.sleeps,
            wake_up_p50_ns: wake_up.percentile(50.0),
            wake_up_p99_ns: wake_up.percentile(99.0),
            gaps: gaps.total,
            gaps_ns: clock.ns(gaps.sum),
            longest_gap_ns: clock.ns(if gaps.total > 0 { gaps.max } else { 0 }),
            residence: Percentiles::new(&now.residence.since(&before.residence), clock),
            drops: now.drops.clone(),
        }
    }
}

/// Percentiles of a duration, in ticks of the clock and in nanoseconds; by the upper ends of
/// buckets.
#[derive(Debug, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub p50_ticks: u64,
    pub p99_ticks: u64,
    pub p999_ticks: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

impl Percentiles {
    pub fn new(values: &HistogramSnapshot, clock: &Clock) -> Self {
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| {
            if values.total == 0 {
                0
            } else {
                values.percentile(percent)
            }
        });
        Self {
            count: values.total,
            p50_ticks: p50,
            p99_ticks: p99,
            p999_ticks: p999,
            p50_ns: clock.ns(p50),
            p99_ns: clock.ns(p99),
            p999_ns: clock.ns(p999),
        }
    }
}
