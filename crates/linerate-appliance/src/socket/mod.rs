//! Talking to a running instance: Unix sockets that only their user reaches, and lines of JSON on
//! them.
//!
//! [`unix`] and [`tcp`] are places, [`wire`] the stream of lines, [`protocol`] what a request and
//! its answer say. What a method means belongs to the instance: `pktgen` and `router` each have
//! their own.

mod caller;
pub mod protocol;
pub mod tcp;
pub mod unix;
pub mod wire;

pub use caller::Caller;
pub use protocol::{Answer, Problem, REQUEST_BYTES, Request};
pub use wire::{Line, Lines, Wire};

use std::path::PathBuf;

/// The usual place of the socket of `linerate ctl`.
pub fn usual_socket() -> PathBuf {
    unix::usual("router.sock")
}

/// Where clients of a router look for it.
pub fn found_socket() -> PathBuf {
    unix::found("router.sock")
}

/// What clients of a router say where there is none.
pub const START_ONE: &str =
    "start one with `linerate router CONF.toml`, or name its socket: --socket PATH";
