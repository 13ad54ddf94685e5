//! What a fast worker asks of its path, whichever appliance it is of.

use std::any::Any;

use linerate_core::run::{Egress, Stage};

use super::change::Change;
use super::context::Context;

/// How often timers are looked at, in nanoseconds.
pub(super) const TIMERS_NS: u64 = 100_000_000;

/// The path of packets through a fast worker: a list of stages that share a [`Context`].
///
/// [`Fast`](super::Fast) calls it once a burst. [`RouterPath`](super::RouterPath) is a router's,
/// and shows how [`stages`](super::stages) are put together.
pub trait PacketPath: Any + for<'a> Stage<Context<'a>> {
    /// Exchanges what stages own of the configuration, between two bursts: each swaps its part of
    /// `change` with what it had, for control to free. An appliance's own part is
    /// [`Change::own`].
    fn install(&mut self, change: &mut Change, egress: &mut Egress);

    /// When the first timer of a stage expires, in ns of the worker's clock; `None`: none runs.
    /// [`Stage::turn`] is called once that is past, until it says another time.
    fn next_expiry_ns(&self) -> Option<u64>;

    /// How often timers are looked at, in ns.
    fn timers_ns(&self) -> u64 {
        TIMERS_NS
    }
}
