//! The path as its workers tell it: packets at each named point, those that are nowhere, and on
//! demand cycles.

use linerate_core::run::{Point, Stage};
use serde::Serialize;
use serde_json::Value;

use crate::runtime::Running;

/// For how long the cycles of stages are measured after somebody asked, in nanoseconds.
const MEASURED_NS: u64 = 5_000_000_000;

/// One stage, of all workers.
#[derive(Debug, Default, Serialize)]
pub struct StageRow {
    /// Its name.
    pub stage: &'static str,
    /// Packets that came to it.
    pub packets: u64,
    /// Packets that came and are nowhere.
    pub unaccounted: i64,
    /// Cycles for each packet while they were measured; none if they were not.
    pub cycles: Option<f64>,
    #[serde(skip)]
    measured: (u64, u64),
}

impl StageRow {
    fn add(&mut self, point: &Point) {
        self.packets += point.packets;
        self.unaccounted += point.unaccounted;
        self.measured.0 += point.measured_packets;
        self.measured.1 += point.measured_ticks;
        let (packets, ticks) = self.measured;
        self.cycles = (packets > 0).then(|| ticks as f64 / packets as f64);
    }
}

/// The points of all workers, in the order in which packets pass.
pub fn stages<S: Stage + 'static>(running: &Running<S>) -> Vec<StageRow> {
    let mut all: Vec<StageRow> = Vec::new();
    for worker in running.handles() {
        let rows = std::mem::take(&mut all);
        // One that has ended counts no more.
        let counted = worker.call(move |worker| {
            let mut rows = rows;
            worker.points(&mut |point| count(&mut rows, point));
            rows
        });
        all = counted.unwrap_or_default();
    }
    all
}

fn count(rows: &mut Vec<StageRow>, point: &Point) {
    let known = rows.iter_mut().find(|known| known.stage == point.name);
    match known {
        Some(known) => known.add(point),
        None => {
            let stage = point.name;
            let mut row = StageRow {
                stage,
                ..StageRow::default()
            };
            row.add(point);
            rows.push(row);
        }
    }
}

/// Has all workers measure how many cycles their stages take, for a while.
pub fn measure<S: Stage + 'static>(running: &Running<S>) {
    let ticks = running.clock().ticks(MEASURED_NS);
    for worker in running.handles() {
        // One that has ended has nothing to measure.
        let _ = worker.call(move |worker| worker.points(&mut |point| point.measure_for(ticks)));
    }
}

/// What a stage of one worker took while it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its name.
    pub stage: &'static str,
    /// Packets that came to it meanwhile.
    pub packets: u64,
    /// Ticks that it took for them, with those of stages within it.
    pub ticks: u64,
}

/// The same points as [`stages`], worker by worker; none of one that has ended.
pub fn measured<S: Stage + 'static>(running: &Running<S>) -> Vec<Vec<Measured>> {
    let of = |point: &mut Point| Measured {
        stage: point.name,
        packets: point.measured_packets,
        ticks: point.measured_ticks,
    };
    let workers = running.handles().map(|worker| {
        let counted = worker.call(move |worker| {
            let mut all = Vec::new();
            worker.points(&mut |point| all.push(of(point)));
            all
        });
        counted.unwrap_or_default()
    });
    workers.collect()
}

/// A line for each of these rows that has lost packets.
pub fn warnings(rows: &[Value]) -> impl Iterator<Item = String> {
    let lost = |row: &&Value| row["unaccounted"].as_i64().is_some_and(|lost| lost != 0);
    rows.iter().filter(lost).map(|row| {
        let (lost, stage) = (&row["unaccounted"], row["stage"].as_str());
        let stage = stage.unwrap_or_default();
        format!("warning: {lost} packets unaccounted for at `{stage}`")
    })
}
