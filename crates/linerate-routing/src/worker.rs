//! The workers of a router: the fast ones forward, the slow one does the rest.

use linerate_appliance::error::Error;
use linerate_appliance::runtime::wiring::Share;
use linerate_appliance::runtime::{OpenPorts, Options, Running};
use linerate_core::env::Placement;
use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Point, Stage, WorkerHandle};

use crate::plane::{Change, Fast, Slow};

/// A worker's stage: the one type that those of all have.
pub enum RouterStage {
    /// Forwards.
    Fast(Box<Fast>),
    /// Handles rare and slow work.
    Slow(Box<Slow>),
}

/// Starts ports and workers, one for each share: [`OpenPorts::start_shares`], which is compiled
/// here, in a crate with full optimisation, and not in a control crate.
///
/// # Errors
/// A port cannot be started, or there is no memory or thread for a worker.
pub fn start(
    opened: OpenPorts,
    shares: Vec<Share>,
    lcores: &[&Placement],
    options: &Options,
    stage: &mut dyn FnMut(usize, &mut Egress) -> RouterStage,
) -> Result<Running<RouterStage>, Error> {
    opened.start_shares(shares, lcores, options, stage)
}

impl RouterStage {
    /// Exchanges the configuration, and returns what it had.
    pub fn install(&mut self, change: Change, egress: &mut Egress) -> Change {
        match self {
            Self::Fast(fast) => fast.install(change, egress),
            Self::Slow(slow) => slow.install(change, egress),
        }
    }
}

impl Stage for RouterStage {
    #[inline]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        match self {
            Self::Fast(fast) => fast.run(burst, &mut (), out),
            Self::Slow(slow) => slow.run(burst, &mut (), out),
        }
    }

    #[inline]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        match self {
            Self::Fast(fast) => fast.turn(now, &mut (), out),
            Self::Slow(slow) => slow.turn(now, &mut (), out),
        }
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        match self {
            Self::Fast(fast) => fast.points(visit),
            Self::Slow(slow) => slow.points(visit),
        }
    }

    fn held(&self) -> u64 {
        match self {
            Self::Fast(fast) => fast.held(),
            Self::Slow(slow) => slow.held(),
        }
    }

    fn held_packets(&self) -> u64 {
        match self {
            Self::Fast(fast) => fast.held_packets(),
            Self::Slow(slow) => slow.held_packets(),
        }
    }
}

/// Runs `work` on a fast worker between two bursts; `None` where it has ended, or is the slow one.
pub fn on_fast<R: Send + 'static>(
    worker: &WorkerHandle<RouterStage>,
    work: impl FnOnce(&mut Fast, &mut Egress) -> R + Send + 'static,
) -> Option<R> {
    let both = worker.call(move |worker| match &mut worker.stage {
        RouterStage::Fast(fast) => Some(work(fast, &mut worker.egress)),
        RouterStage::Slow(_) => None,
    });
    both.ok().flatten()
}

/// Runs `work` on the slow worker between two bursts; `None` where it has ended, or is a fast one.
pub fn on_slow<R: Send + 'static>(
    worker: &WorkerHandle<RouterStage>,
    work: impl FnOnce(&mut Slow, &mut Egress) -> R + Send + 'static,
) -> Option<R> {
    let both = worker.call(move |worker| match &mut worker.stage {
        RouterStage::Slow(slow) => Some(work(slow, &mut worker.egress)),
        RouterStage::Fast(_) => None,
    });
    both.ok().flatten()
}
