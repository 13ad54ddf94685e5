//! A port of ours in a process of its own, which sends back what it gets: this test binary again.

use crate::bench::{BURST, Bench, Rest};
use crate::suite;
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::PortConfig;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use linerate_testkit::process::Running;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::process::Command;

const SPEC: &str = "LINERATE_TEST_ECHO";

/// A port of ours, and such a process at its other end; `PATH` in either spec is their socket.
pub(crate) fn with_ours(ours: &str, theirs: &str, window: u64) -> Bench {
    let folder = Scratch::new();
    let socket = folder.file("s");
    let [ours, theirs] = [ours, theirs].map(|spec| spec.replace("PATH", &socket));
    Bench::new(&ours, 1, window, move || {
        let _kept = &folder;
        Some(echo(&theirs))
    })
}

/// Starts it with the port of this spec. It ends when it is killed.
fn echo(spec: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::is_a_process_of_other_tests"]);
    command.args(["--include-ignored", "--nocapture"]);
    Running::start(command.env(SPEC, spec))
}

#[test]
#[ignore = "long: runs until it is killed, by the tests that start it"]
fn is_a_process_of_other_tests() {
    let Ok(spec) = std::env::var(SPEC) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut port = Drivers::new().open(&spec).unwrap();
    let pools = suite::pools_for(&[&*port]);
    let config = PortConfig {
        rx_queues: 1,
        tx_queues: 1,
        ..PortConfig::default()
    };
    let mut queues = port.start(&config, &pools).unwrap();
    let mut cache = PoolCache::new(pools.as_slice());
    let mut burst = Burst::with_room(BURST as usize);
    let mut rest = Rest::new();
    loop {
        if burst.is_empty() {
            queues.rx[0].rx_burst(&mut burst, &mut cache);
        }
        let moved = queues.tx[0].tx_burst(&mut burst, &mut cache) > 0;
        queues.tx[0].flush(&mut cache);
        rest.after(moved, &mut queues.rx);
    }
}
