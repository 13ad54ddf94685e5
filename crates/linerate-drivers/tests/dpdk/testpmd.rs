//! `dpdk-testpmd` with one virtual device, without huge pages and without privileges.

use linerate_testkit::process::Running;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One after the other: each keeps a CPU busy.
static TURN: Mutex<()> = Mutex::new(());

/// Until it is dropped no other test has a testpmd.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts it: port 0 is `device`, and what comes there goes back there, queue by queue. `None`, and
/// a skipped test, where there is no testpmd.
pub(crate) fn echo(device: &str, queues: u16) -> Option<Running> {
    let mut command = command(device, queues)?;
    // With the period it does not wait for a line of input.
    Some(Running::start(
        command.args(["--auto-start", "--stats-period=1"]),
    ))
}

/// What the one of [`told_echo`] is told.
pub(crate) const BEGIN: &str = "start";

/// The same, but it leaves its queues alone until it is told to [`BEGIN`].
pub(crate) fn told_echo(device: &str, queues: u16) -> Option<Running> {
    let mut command = command(device, queues)?;
    Some(Running::start_to_tell(command.arg("--interactive")))
}

fn command(device: &str, queues: u16) -> Option<Command> {
    if !linerate_testkit::has(&["dpdk-testpmd"]) {
        return None;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let second = usize::from(cpus > 1);
    let prefix = format!("lr{}-{}", std::process::id(), linerate_testkit::number());
    let mut command = Command::new("dpdk-testpmd");
    command
        .args([
            "--no-pci",
            "--no-huge",
            "--no-shconf",
            "--no-telemetry",
            "-m",
            "256",
        ])
        .arg(format!("--lcores=0@0,1@{second}"))
        .arg(format!("--file-prefix={prefix}"))
        .arg(format!("--vdev={device}"))
        .args(["--", "--forward-mode=io", "--port-topology=loop"])
        // Frames may come before it begins.
        .arg("--no-flush-rx")
        .args(["--total-num-mbufs=8192", "--nb-cores=1"])
        .arg(format!("--rxq={queues}"))
        .arg(format!("--txq={queues}"));
    Some(command)
}
