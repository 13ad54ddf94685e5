//! One suite for every driver: see `suite.rs` and docs/adding-a-driver.md. One line per driver.
#![allow(missing_docs, clippy::unwrap_used)]

mod suite;

mod af_xdp;
mod null;
mod ring;
