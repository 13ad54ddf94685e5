//! One suite for every driver: see `suite.rs` and docs/adding-a-driver.md. One line per driver.
#![allow(missing_docs, clippy::unwrap_used)]

mod suite;

mod af_packet;
mod af_xdp;
mod memif;
mod middleware;
mod null;
mod pcap;
mod ring;
mod ring_nics;
mod shm;
mod tap;
mod vhost;
