//! The path as its workers tell it: packets at each stage, those that a stage lost, and on demand
//! cycles.

use linerate_core::run::{Point, Stage as _};
use serde::Serialize;

use super::Control;

/// For how long the cycles of stages are measured after somebody asked, in nanoseconds.
const MEASURED_NS: u64 = 5_000_000_000;

/// One stage, of all workers.
#[derive(Debug, Default, Serialize)]
pub(super) struct StageRow {
    pub(super) stage: &'static str,
    pub(super) packets: u64,
    /// Packets that came and are nowhere.
    pub(super) unaccounted: i64,
    /// Cycles for each packet while they were measured; none if they were not.
    pub(super) cycles: Option<f64>,
    #[serde(skip)]
    measured: (u64, u64),
}

impl StageRow {
    fn of(point: &Point) -> Self {
        Self {
            stage: point.name,
            ..Self::default()
        }
        .with(
            point.packets,
            point.unaccounted,
            (point.measured_packets, point.measured_ticks),
        )
    }

    /// With what another worker has counted.
    fn with(mut self, packets: u64, unaccounted: i64, measured: (u64, u64)) -> Self {
        self.packets += packets;
        self.unaccounted += unaccounted;
        self.measured.0 += measured.0;
        self.measured.1 += measured.1;
        let (packets, ticks) = self.measured;
        self.cycles = (packets > 0).then(|| ticks as f64 / packets as f64);
        self
    }
}

impl Control {
    /// The stages of all workers, in the order in which packets pass.
    pub(super) fn stages(&self) -> Vec<StageRow> {
        let mut all: Vec<StageRow> = Vec::new();
        for worker in self.running.handles() {
            let own = worker.call(|worker| {
                let mut own = Vec::new();
                worker
                    .stage
                    .points(&mut |point| own.push(StageRow::of(point)));
                own
            });
            for own in own.unwrap_or_default() {
                match all.iter_mut().find(|known| known.stage == own.stage) {
                    Some(known) => {
                        let (packets, lost) = (own.packets, own.unaccounted);
                        *known = std::mem::take(known).with(packets, lost, own.measured);
                    }
                    None => all.push(own),
                }
            }
        }
        all
    }

    /// Has all workers measure how many cycles their stages take, for a while.
    pub(super) fn measure_stages(&self) {
        let ticks = self.running.clock().ticks(MEASURED_NS);
        for worker in self.running.handles() {
            // One that has ended has nothing to measure.
            let _ = worker.call(move |worker| {
                worker.stage.points(&mut |point| point.measure_for(ticks));
            });
        }
    }
}
