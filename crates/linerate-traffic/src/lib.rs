//! Test traffic: the sending and checking of frames for `linerate pktgen` and benchmarks.
//!
//! [`stream`] describes and writes frames, [`engine`] sends and checks them on lcores,
//! [`signature`] identifies a frame, and [`figures`] has the results for users.
#![forbid(unsafe_code)]
// Two applications reach in; what they share with users is in `figures`, `units` and the guide.

pub mod engine;
pub mod figures;
pub mod signature;
pub mod stream;
pub mod units;
