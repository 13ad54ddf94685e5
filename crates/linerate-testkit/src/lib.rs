//! What the tests of all crates share. Nothing but tests depends on it, and it depends on nothing
//! of linerate's: linerate is tested by independent means.
//!
//! | module | what |
//! |---|---|
//! | [`Random`] | random numbers that a failing test can repeat |
//! | [`Scratch`] | a folder of the test's own |
//! | [`data`](data()), [`captures`], [`ethernet_frames`] | what is not in the repository |
//! | [`skip`], [`has`], [`harness`] | tests that cannot run here, and a harness that says so |
//! | [`wait`], [`process`] | programs beside the test, and waiting for what they say |
//! | [`netns`], [`traffic`], [`capture`] | network namespaces, what goes through, who looks on |
//! | [`appliance`] | one that runs beside a test, and what it shows |
//! | [`cli`], [`guest`] | the `linerate` binary; a guest of another kernel under QEMU |
//! | [`frame`] | packets made by hand, by the RFCs |
//!
//! All of it panics where it cannot go on, as tests do.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

pub mod appliance;
pub mod capture;
pub mod cli;
pub mod frame;
pub mod guest;
pub mod harness;
pub mod netns;
pub mod process;
pub mod traffic;

mod data;
mod random;
mod scratch;
mod skip;

pub use data::{captures, data, ethernet_frames};
pub use random::Random;
pub use scratch::{Scratch, number};
pub use skip::{has, skip};

use std::time::{Duration, Instant};

/// How long anything may take before it counts as lost. Nothing here is measured.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
pub fn wait(what: &str, mut holds: impl FnMut() -> bool) {
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
