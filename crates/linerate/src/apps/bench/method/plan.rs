//! How long a run will take, and how far it is.

use super::settings::{Kind, Settings};

/// What a run is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) trials: u64,
    pub(crate) seconds: f64,
}

impl Estimate {
    /// For one device and so many baselines.
    pub(crate) fn of(_kind: Kind, _settings: &Settings, _baselines: usize) -> Self {
        Self::default()
    }
}

/// A trial that begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// `64 B: throughput of the device`.
    pub(crate) phase: String,
    /// `2.35 Mpps for 1 s`.
    pub(crate) trial: String,
    /// Length of the trial with the waits around it.
    pub(crate) seconds: f64,
    /// Of the whole run, 0 to 1; never falls.
    pub(crate) fraction: f64,
    /// Expected until the end.
    pub(crate) left_seconds: f64,
}

/// Who is told how far it is.
pub(crate) trait Progress {
    fn begins(&mut self, step: &Step);
}

/// Tells nobody.
pub(crate) struct Silent;

impl Progress for Silent {
    fn begins(&mut self, _: &Step) {}
}
