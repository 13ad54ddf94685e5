//! Search methods: throughput, loss, latency and bursts, over any [`Tester`].

use std::time::Duration;

use crate::apps::pktgen::Latency;
use crate::error::Error;
use crate::report::bench::Trial;

/// What a trial offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// FCS included.
    pub(crate) frame_bytes: usize,
    /// Frames a second over all directions; none for as many as go.
    pub(crate) pps: Option<f64>,
    pub(crate) duration: Duration,
    /// Ends after so many frames, over all directions: a burst.
    pub(crate) count: Option<u64>,
}

/// What a trial showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) trial: Trial,
    pub(crate) latency: Latency,
    /// Frames received at each port.
    pub(crate) received_by_port: Vec<u64>,
    /// Ticks that the device's lcores spent on packets, where they are ours.
    pub(crate) device_busy_ticks: Option<u64>,
}

/// Something that can be loaded and watched: the generator around a device, or a model of one.
pub(crate) trait Tester {
    /// One trial: offers the load, waits for residual frames, counts.
    ///
    /// # Errors
    /// What makes the rest of the run useless: a port vanished, the user interrupts.
    fn trial(&mut self, load: &Load) -> Result<Outcome, Error>;

    /// What the line takes at this size, all directions; none without a wire.
    fn line_pps(&self, frame_bytes: usize) -> Option<f64>;
}
