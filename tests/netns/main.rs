//! End-to-end scenarios: the real `linerate` binary between network namespaces, beside the
//! kernel's own network stack, ping, iperf3 and tcpdump. See `../README.md`.
//!
//! Read [`stand`] for the namespaces and wires, [`linerate`] for how the binary is run and watched,
//! [`traffic`] and [`capture`] for what goes through it and who looks on. The other modules are
//! the scenarios.
//!
//! Long ones are ignored tests (`cargo xtask test --all` runs them). A test that lacks a privilege
//! or a program prints a line `SKIP reason` and passes.
#![allow(missing_docs, clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod capture;
mod child;
mod linerate;
mod scratch;
mod stand;
mod traffic;

mod accounts;
mod demo;
mod forward;
mod idle;
mod misfortune;
mod pktgen;
mod refusals;
mod replay;
mod router;
mod stop;

// In a guest this binary runs again.
#[path = "../vm/mod.rs"]
mod vm;

use std::time::{Duration, Instant};

/// How long anything may take before it counts as lost. Nothing here is measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "waited {} s for {what} in vain",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether these programs are installed; says which is not.
fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&&str| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        eprintln!("SKIP needs the program {program}");
    }
    missing.is_none()
}
