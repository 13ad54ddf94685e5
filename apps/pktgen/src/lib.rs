//! `linerate pktgen`: the traffic generator.
//!
//! What frames look like, who sends and who checks them is in [`linerate_traffic`]; [`session`]
//! owns ports and lcores and takes [`snapshot`]s, [`control`] is the command table and
//! the JSON interface that the screen ([`crate::tui`]) and scripts use.
#![forbid(unsafe_code)]
// Other crates than the binary, which uses two functions, reach in for benchmarks and fuzzing
// alone.
#![allow(missing_docs)]

// Of tests, what they say is kept until they fail.
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
