//! Test traffic: the sending and checking of frames for `linerate pktgen` and benchmarks.
//!
//! [`stream`] describes and writes frames, [`engine`] sends and checks them on lcores,
//! [`signature`] identifies a frame, and [`figures`] has the results for users.
#![forbid(unsafe_code)]

pub mod engine;
pub mod figures;
pub mod signature;
pub mod stream;
pub mod units;
