//! What this machine can do, and how a command would use it: `linerate doctor`, `plan` and `ports`;
//! and what the hash of a NIC does to flows ([`rss`]).
#![forbid(unsafe_code)]
// Other crates than the binary, which uses two functions, reach in for benchmarks and fuzzing
// alone.
#![allow(missing_docs)]

pub mod doctor;
pub mod plan;
pub mod ports;
pub mod rss;
