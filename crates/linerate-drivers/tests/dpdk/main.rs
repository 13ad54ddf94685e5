//! Ports whose peer is another process: DPDK's `testpmd`, or a port of our own, that sends back
//! what it receives, and is killed at times.
#![allow(missing_docs, clippy::unwrap_used)]

/// Frames with numbers, and a port in the hands of a test.
#[allow(dead_code)]
#[path = "../conformance/suite.rs"]
mod suite;

mod bench;
mod child;
mod memif;
mod testpmd;
mod vhost;
