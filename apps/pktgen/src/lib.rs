//! `linerate pktgen`: the traffic generator.
//!
//! Templates, senders and receivers are in [`linerate_traffic`]; [`session`] owns ports and lcores
//! and takes [`snapshot`]s, [`control`] is the command table and the JSON interface that the screen
//! ([`crate::tui`]) and scripts use.
#![forbid(unsafe_code)]
// The binary uses two functions; the rest is public for benchmarks and fuzzing only.
#![allow(missing_docs)]

// Tests print only when they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

mod control;
pub mod session;
pub mod snapshot;
mod tui;

pub(crate) use control::*;
use linerate_traffic::{engine, signature, stream, units};
pub use snapshot::*;

#[cfg(any(test, feature = "fuzz"))]
pub use control::fuzz;
pub use control::{Args, PortEntry, run};
