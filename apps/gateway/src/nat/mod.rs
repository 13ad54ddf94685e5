//! Translation of addresses: pools, ports, mappings, headers.
//!
//! Pure code: bytes, clocks and random numbers are arguments, and all state is one worker's
//! (`&mut`, no locks). Flows are not here. Two of a flow's things are NAT's: its two keys, which
//! say what its packets become, and [`Held`], one byte that says what to give back at its end.
//!
//! # For each first packet
//!
//! ```text
//! first = First { tuple, from: At { zone, interface }, bucket }
//! destination = nat.destination(&first)?              a Refused: drop it, by that reason
//! route destination.tuple.dst; ask the policy about destination.tuple
//! flow = nat.source(&first, &destination, to, now, random)?
//! insert a flow: key first.tuple, the other direction's key flow.tuple reversed, flow.held
//!     refused by the table: nat.release(flow.held, &first.tuple, &flow.tuple, zone, now)
//! ```
//!
//! # For each packet of a flow
//!
//! Packets of one direction become what the other direction's key, reversed, says:
//!
//! ```text
//! first:    Translation4::new(&first_key, &other_key.reversed()).differences(): keep these 4 bytes
//! forward:  Translation4::with(&other_key.reversed(), differences).write(frame, l3, l4, ..)
//! backward: Translation4::with(&first_key.reversed(), differences.reversed()).write(..)
//! ```
//!
//! That is for whole TCP and UDP packets; see [`rewrite`] for all others and for ICMP errors. Ports
//! of ICMP keys are those of `track::Query`: the identifier is the port of who
//! asks. A flow of IPv6 whose other key is IPv4 is NAT64's: see [`nat64`].
//!
//! # When a flow ends, and other events
//!
//! [`Nat::release`] gives back what it held. A reload makes new [`Rules`](rules::Rules) of the
//! [`Config`](rules::Config) with the rules before, and each worker [installs](Nat::install) them:
//! flows whose outside address is gone have to end ([`Nat::is_permitted`]). A bucket leaves with
//! [`Nat::take_bucket`] and arrives with [`Nat::put_bucket`].
//!
//! | file | what |
//! |---|---|
//! | [`ports`] | which ports are free |
//! | [`mapping`] | which outside an inside endpoint has, and who may send to it |
//! | [`calls`] | hosts inside that have called each other |
//! | [`subscribers`] | hosts with an address, blocks and limits of their own |
//! | [`rules`], [`stanza`] | what is translated, and how the file says it |
//! | [`rewrite`] | headers and checksums |
//! | [`sessions`] | which IPv4 flow an IPv6 flow is outside |
//! | [`nat64`], [`nptv6`] | IPv6 to IPv4, IPv6 prefixes |
//! | [`log`], [`writer`] | records of sessions and blocks, and who writes them |
//!
//! Clauses and their tests are in `docs/rfc/nat.md`.
#![allow(missing_docs)] // fields say what they are by their names

pub mod bits;
pub mod calls;
mod chain;
mod explain;
pub mod log;
pub mod mapping;
pub mod nat64;
pub mod nptv6;
pub mod ports;
pub mod rewrite;
pub mod rules;
pub mod sessions;
pub mod stanza;
pub mod subscribers;
#[cfg(test)]
mod testing;
mod translate;
mod tuple;
pub mod writer;

pub use translate::{
    Ahead, Bucket, Destination, First, Held, Limits, Nat, Refused, Released, Translated,
};
pub use tuple::{Endpoint, Protocol, Tuple};
