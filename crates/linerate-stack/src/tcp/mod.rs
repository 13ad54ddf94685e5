//! TCP (RFC 9293), without addresses, ports or devices: segments and the time go in, segments and
//! events come out, and nothing is allocated on the way.
//!
//! | file | what |
//! |---|---|
//! | [`connection`] | one connection: the state machine, both directions, timers |
//! | [`segment`] | received headers taken apart, headers to be written |
//! | [`sent`] | what is under way: the scoreboard |
//! | [`receive`], [`send_buffer`] | the bytes that were received, and those to be sent |
//! | [`congestion`], [`prr`], [`pacing`], [`rtt`] | how much may be under way, and for how long |
//! | [`cookie`], [`time_wait`], [`fast_open`] | connections without a record, or with a small one |
//! | [`isn`], [`secret`], [`ports`], [`rate`] | what others must not guess, or must not exhaust |
//! | [`metrics`] | what connections to one host learn from each other |
//! | [`few`], [`urgent`], [`mtu_search`] | what few have: urgent data, a search for the MTU |
//! | [`soft`] | what ICMP says of connections that go on |
//! | [`reset`] | the answer to a segment without a connection |
//!
//! Sequence numbers are plain `u32`s, compared by [`seq`]. Times are in nanoseconds.

pub mod config;
pub mod congestion;
pub mod connection;
pub mod cookie;
pub mod fast_open;
pub mod few;
pub mod isn;
pub mod metrics;
pub mod mtu_search;
pub mod pacing;
pub mod ports;
pub mod prr;
pub mod rate;
pub mod receive;
mod reset;
pub mod rtt;
pub mod secret;
pub mod segment;
pub mod send_buffer;
pub mod sent;
pub mod seq;
pub mod soft;
pub mod stats;
pub mod time_wait;
pub mod tuple;
pub mod urgent;

pub use reset::{MAX_RESET_LEN, Refusal, Reset, refuse};
