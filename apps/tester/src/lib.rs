//! Measures a device and says what that is worth: the measurements of `linerate bench`, and
//! `demo`.
//!
//! [`suite`] measures by the searches of [`method`] on what [`device`] sets up, [`report`] writes
//! what came out, [`diff`] compares two reports; [`demo`] is a moment of it for who has just come.
#![forbid(unsafe_code)]
// `bench`, whose options these are, and fuzzing alone reach in.
#![allow(missing_docs)]

// Of tests, what they say is kept until they fail.
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
