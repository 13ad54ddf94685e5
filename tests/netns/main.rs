//! End-to-end scenarios: the real `linerate` binary between network namespaces, beside the
//! kernel's own network stack, ping, iperf3 and tcpdump. See `../README.md`.
//!
//! Read `linerate_testkit` first: `netns` for the namespaces and wires, `cli` for how the binary is
//! run and watched, `traffic` and `capture` for its traffic and its observers. The modules here are
//! the scenarios.
//!
//! Long ones are ignored tests (`cargo xtask test --all` runs them). A test that lacks a privilege
//! or a program counts as ignored, with the reason.
#![allow(missing_docs, clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod counters;
mod demo;
mod errors;
mod faults;
mod forward;
mod guide;
mod http;
mod idle;
mod pktgen;
mod replay;
mod router;
mod steer;
mod stop;

// A guest runs this binary as well.
#[path = "../vm/mod.rs"]
mod vm;

use linerate_testkit::harness;
use std::process::ExitCode;

fn main() -> ExitCode {
    let own = [
        counters::TESTS,
        demo::TESTS,
        errors::TESTS,
        faults::TESTS,
        forward::TESTS,
        guide::TESTS,
        idle::TESTS,
        pktgen::TESTS,
        replay::TESTS,
        steer::TESTS,
        stop::TESTS,
        vm::TESTS,
        vm::vhost::TESTS,
    ];
    harness::run(&[&own[..], http::TESTS, router::TESTS].concat())
}
