//! Test traffic: what `linerate pktgen` sends and what becomes of it, for it and for benchmarks.
//!
//! [`stream`] says what a frame looks like and writes it, [`engine`] sends and checks on lcores,
//! [`signature`] is how a frame says which one it is, and [`figures`] are what is told of many.
#![forbid(unsafe_code)]
// Two applications reach in; what they share with users is in `figures`, `units` and the guide.
#![allow(missing_docs)]

pub mod engine;
pub mod figures;
pub mod signature;
pub mod stream;
pub mod units;
