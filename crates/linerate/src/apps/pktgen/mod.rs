//! `linerate pktgen`: the traffic generator.
//!
//! [`stream`] says what a frame looks like and writes it, [`engine`] sends and checks on lcores,
//! [`session`] owns ports and lcores and takes [`snapshot`]s, [`control`] is the command table and the JSON
//! interface that the screen ([`crate::tui`]) and scripts use.

mod control;
pub(crate) mod engine;
pub(crate) mod session;
pub(crate) mod signature;
mod snapshot;
pub(crate) mod stream;
pub(crate) mod units;

pub(crate) use control::*;
pub(crate) use snapshot::*;

#[cfg(any(test, fuzzing))]
pub(crate) use control::fuzz;
