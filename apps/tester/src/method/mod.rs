//! Search methods: throughput, loss, latency and bursts, over any [`Tester`].
//!
//! They decide which loads to offer, and evaluate the results; they neither read a clock nor touch
//! a file, so each is tested against models of devices (`model.rs`). Begin with [`measurements`]:
//! the kinds of benchmark, step by step. [`settings`] has durations and repeats, [`runner`] runs
//! one trial (again if other threads took the CPUs), [`compliance`] labels the result, and
//! [`verdict()`] judges it.

mod burst;
mod compliance;
mod connections;
mod demo;
mod latency;
mod loss;
mod measurements;
mod mlr;
#[cfg(test)]
pub(crate) mod model;
mod plan;
mod profile;
mod recovery;
mod runner;
mod settings;
mod soak;
#[cfg(test)]
mod tests;
mod throughput;
mod verdict;

use std::time::Duration;

use crate::report::{ProfiledLcore, Trial};
use linerate_appliance::error::Error;
use linerate_traffic::figures::Latency;

pub(crate) use connections::{Connected, Opened, spelled};
pub(crate) use latency::together;
pub(crate) use measurements::run;
#[cfg(test)]
pub(crate) use plan::Silent;
pub(crate) use plan::{Estimate, Progress, Step};
pub use settings::Measurement;
pub(crate) use settings::{Settings, Waits};
pub(crate) use verdict::verdict;

/// What a trial offers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// FCS included.
    pub(crate) frame_bytes: usize,
    /// Frames a second over all directions; `None`: unlimited.
    pub(crate) pps: Option<f64>,
    pub(crate) duration: Duration,
    /// Ends after so many frames, over all directions: a burst.
    pub(crate) count: Option<u64>,
    /// Waits around the trial.
    pub(crate) waits: Waits,
}

/// The outcome of a trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) trial: Trial,
    pub(crate) latency: Latency,
    /// Frames received at each port.
    pub(crate) received_by_port: Vec<u64>,
    /// Ticks that the device's lcores spent on packets, if they are in this process.
    pub(crate) device_busy_ticks: Option<u64>,
}

/// The outcome of a drop of the load (RFC 2544 26.5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovered {
    /// The trials during the overload, and after.
    pub(crate) over: Trial,
    pub(crate) then: Trial,
    /// Time from the drop to the last lost frame, if losses can be seen as they happen; and its
    /// resolution.
    pub(crate) recovery_ns: Option<f64>,
    pub(crate) resolution_ns: f64,
}

/// What trials run on: the generator around a device, or a model of one.
pub(crate) trait Tester {
    /// One trial: offers the load, waits for residual frames, counts.
    ///
    /// # Errors
    /// Errors that end the run: a port vanished, the user interrupts ([`Error::Interrupted`]).
    fn trial(&mut self, load: &Load) -> Result<Outcome, Error>;

    /// Line rate at this size, all directions; `None` without a known speed.
    fn line_pps(&self, frame_bytes: usize) -> Option<f64>;

    /// Offers `over`, then at once `then`, and measures how long frames were lost after the change;
    /// `None` if the tester cannot.
    ///
    /// # Errors
    /// As [`trial`](Self::trial).
    fn recovery(&mut self, _over: &Load, _then: &Load) -> Result<Option<Recovered>, Error> {
        Ok(None)
    }

    /// One trial while the device's lcores are measured: what their stages took, if they can tell.
    ///
    /// # Errors
    /// As [`trial`](Self::trial).
    fn profile(&mut self, _load: &Load) -> Result<Option<(Vec<ProfiledLcore>, Trial)>, Error> {
        Ok(None)
    }

    /// Opens connections, answers in each, and has the device forget them; `None` if it knows no
    /// connections.
    ///
    /// # Errors
    /// As [`trial`](Self::trial).
    fn connect(&mut self, _opened: &Opened) -> Result<Option<Connected>, Error> {
        Ok(None)
    }
}

/// What is measured: the device, and others in turns with it.
pub(crate) struct Subjects<'a> {
    pub(crate) device: &'a mut dyn Tester,
    /// Name and tester of each baseline.
    pub(crate) baselines: Vec<(String, &'a mut dyn Tester)>,
    /// Those of the device and the baselines that know connections, set up so that one side alone
    /// may begin any.
    pub(crate) connections: Vec<(String, &'a mut dyn Tester)>,
}
