//! The evolved packet core of LTE, small: base stations with users, MME, HSS, SGW and PGW as state
//! machines, so that the same work can be steered to cores in several ways and measured.
//!
//! ```text
//!   ran ── S1 control (TCP) ── mme ── S6a, Diameter (TCP) ── hss
//!    │                          │
//!    │                          S11, GTP-C (UDP)
//!    │                          │
//!    └──── S1-U, GTP-U (UDP) ─ sgw ─ S5, GTP-C and GTP-U (UDP) ─ pgw ── SGi, IP
//! ```
//!
//! Nodes do no input or output: read [`link`] first, then a node. All state of a user is on the
//! core `core(IMSI)` of each node, and identifiers name that core ([`ids`]); [`store`] has the two
//! arrangements that are compared.
//!
//! | module | what |
//! |---|---|
//! | [`ran`], [`mme`], [`hss`], [`sgw`], [`pgw`] | the nodes |
//! | [`load`] | what users do, when |
//! | [`s1`], [`s6a`], [`gtp`] | the messages; headers of the latter are in `linerate_wire` |
//! | [`tunnels`] | users' packets in and out of GTP-U, in bursts |
//! | [`ids`], [`records`], [`pending`], [`answers`] | identifiers, tables, requests, answers |
//! | [`challenge`] | what stands for authentication |
//!
//! Left out: ASN.1 and SCTP of S1-AP, NAS, Milenage and all protection; handover, dedicated
//! bearers, IPv6 for users and between nodes, charging, several PDN connections of a user.
#![forbid(unsafe_code)]

pub mod answers;
pub mod challenge;
mod error;
pub mod gtp;
pub mod hss;
pub mod ids;
pub mod link;
pub mod load;
pub mod mme;
pub mod pending;
pub mod pgw;
pub mod ran;
pub mod records;
pub mod s1;
pub mod s6a;
pub mod sgw;
pub mod store;
pub mod tunnels;

pub use error::EpcError;
pub use ids::Cores;
pub use link::{Link, Node, Notice, Owner, Sink};
