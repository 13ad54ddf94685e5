//! Communication with a running instance: Unix sockets that only their user reaches, and lines of
//! JSON on them.
//!
//! [`unix`] and [`tcp`] are places, [`wire`] the stream of lines, [`protocol`] requests and
//! answers. Methods belong to the instance: `pktgen` and `router` each have their own.

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

/// The fix in errors of a router's clients if none runs.
pub const START_ONE: &str =
    "start one with `linerate router CONF.toml`, or name its socket: --socket PATH";
