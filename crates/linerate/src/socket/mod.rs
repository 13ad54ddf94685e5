//! Talking to a running instance: Unix sockets that only their user reaches, and lines of JSON on them.
//!
//! [`unix`] is the place, [`wire`] the stream of lines, [`protocol`] what a request and its answer say.
//! What a method means belongs to the instance: `pktgen` and `router` each have their own.

mod caller;
pub(crate) mod protocol;
pub(crate) mod unix;
pub(crate) mod wire;

pub(crate) use caller::Caller;
pub(crate) use protocol::{Answer, Problem, REQUEST_BYTES, Request};
pub(crate) use wire::{Line, Lines, Wire};
