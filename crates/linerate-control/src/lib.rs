//! The control plane of `linerate router`, and of every appliance that is a router with more.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | the file: read, checked as a whole, explained |
//! | [`control`] | the control thread: start, reload, questions, metrics, captures |
//! | [`machine`] | what a file takes of this machine, and whether that is there |
//! | [`extension`] | what an appliance adds to all that |
//! | [`question`] | what decides on a flow, for who asks |
//! | [`command`] | the arguments that all have, and what they do |
//!
//! What workers do with packets, the routing table and its feeds are [`linerate_routing`].
#![forbid(unsafe_code)]
// Apps, benchmarks and fuzzing use a few functions; the rest is public for them only.
#![allow(missing_docs)]

// Tests print only when they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

mod command;
pub mod config;
mod control;
pub mod extension;
mod machine;
pub mod question;

pub use command::{RunArgs, named, run};
pub use config::Config;
pub use control::Embedded;
pub use extension::{Appliance, AtWork, Extension, Own};
pub use question::Question;
