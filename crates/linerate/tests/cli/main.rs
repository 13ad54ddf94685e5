//! `linerate` from outside: what its commands do, print, refuse and exit with. One program of all
//! suites: each would be linked anew otherwise.
#![allow(missing_docs, clippy::unwrap_used)]

mod commands;
mod drill;
mod forward;
mod gateway;
mod gateway_nat;
mod instance;
mod kernel;
mod l3fwd;
mod manual;
mod pktgen;
mod plan;
mod ports;
mod router;
mod rss;
mod screen;
mod service;
mod tshark;
