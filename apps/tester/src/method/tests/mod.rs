//! The methods on models of devices: they find the model's values.

mod believed;
mod disturbed;
mod mlrsearch;
mod parts;
mod throughput;

use super::model::Model;
use super::settings::{Measurement, Settings};
use super::{Progress, Silent, Step, Subjects, run};
use crate::report::{Device, Report, SelfTest};

/// A report before a run, with a generator of `generator_pps` at every size.
fn base(settings: &Settings, generator_pps: f64) -> Report {
    let test = |&frame_bytes| SelfTest {
        frame_bytes,
        max_pps: generator_pps,
        ..SelfTest::default()
    };
    Report {
        self_test: settings.sizes.iter().map(test).collect(),
        device: Device {
            link_bps: Some(10e9),
            directions: 2,
            ..Device::default()
        },
        ..Report::default()
    }
}

fn measure(kind: Measurement, model: &mut Model, settings: &Settings) -> Report {
    let report = base(settings, model.generator_pps);
    measure_from(report, kind, model, settings)
}

/// The same from what is known before.
fn measure_from(
    known: Report,
    kind: Measurement,
    model: &mut Model,
    settings: &Settings,
) -> Report {
    let mut subjects = Subjects {
        device: model,
        baselines: Vec::new(),
        connections: Vec::new(),
    };
    run(kind, &mut subjects, settings, known, &mut Silent)
}

fn quick() -> Settings {
    Settings {
        sizes: vec![64],
        // Without a time limit, which would hide the result.
        size_limit: None,
        ..Settings::quick()
    }
}

/// The rate that a queue of `buffer` frames forwards without loss for so many seconds.
fn whole_pps(model: &Model, frame_bytes: usize, seconds: f64) -> f64 {
    model.service_pps(frame_bytes) + model.buffer / seconds
}

/// Keeps the steps that a run announces.
#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
}

impl Progress for Steps {
    fn begins(&mut self, step: &Step) {
        self.steps.push(step.clone());
    }
}
