//! What this machine supports, and how a command would use it: `linerate doctor`, `plan` and
//! `ports`; and what the hash of a NIC does to flows ([`rss`]).
#![forbid(unsafe_code)]
// The binary uses two functions; the rest is public for benchmarks and fuzzing only.
#![allow(missing_docs)]

pub mod doctor;
pub mod plan;
pub mod ports;
pub mod rss;
