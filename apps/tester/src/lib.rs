//! Measures a device and judges the result: the measurements of `linerate bench`, and `demo`.
//!
//! [`suite`] measures by the searches of [`method`] on what [`device`] sets up, [`report`] writes
//! the results, [`diff`] compares two reports; [`demo`] is a short form for newcomers.
#![forbid(unsafe_code)]
// Only `bench`, whose options these are, and fuzzing use these.
#![allow(missing_docs)]

// Tests print only when they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

pub mod chart;
pub mod demo;
pub mod device;
pub mod diff;
pub mod html;
pub mod method;
pub mod report;
pub mod suite;
