//! `linerate pktgen`: the traffic generator.
//!
//! [`stream`] says what a frame looks like and writes it, [`engine`] sends and checks on lcores,
//! [`session`] owns ports and lcores and takes [`snapshot`]s, [`control`] is the command table and
//! the JSON interface that the screen ([`crate::tui`]) and scripts use.
#![forbid(unsafe_code)]
// Other crates than the binary, which uses two functions, reach in for benchmarks and fuzzing
// alone.
#![allow(missing_docs)]

// Of tests, what they say is kept until they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

mod control;
pub mod engine;
pub mod session;
pub mod signature;
pub mod snapshot;
pub mod stream;
mod tui;
pub mod units;

pub(crate) use control::*;
pub use snapshot::*;

#[cfg(any(test, feature = "fuzz"))]
pub use control::fuzz;
pub use control::{Args, PortEntry, run};
