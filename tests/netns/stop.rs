//! How linerate ends: with totals and exit code 0 on either signal, or by SIGKILL; nothing is left
//! behind.

use linerate_testkit::cli::L2fwd;
use linerate_testkit::netns::Stand;
use linerate_testkit::{harness::Test, tests};
use linerate_testkit::{has, traffic, wait};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = tests![
    sigint_ends_with_totals,
    sigterm_ends_with_totals,
    a_duration_ends_with_totals,
    kill_leaves_nothing_and_a_restart_works,
];

const PORTS: &str = "af_packet:vethA af_packet:vethB tap:tap0 tap:tap1";

/// Checks that nothing of linerate is attached any more.
#[track_caller]
fn nothing_left(stand: &Stand) {
    // The kernel may need a moment to clean up after a dead process.
    wait("the TAPs to go", || {
        !stand.mid.has("tap0") && !stand.mid.has("tap1")
    });
    wait("the XDP programs to go", || {
        !stand.mid.ip("-details link show").contains("xdp")
    });
    wait("promiscuous mode to end", || {
        !stand.mid.ip("-details link show").contains("promiscuity 1")
    });
}

fn ends_cleanly(signal: Signal) {
    if !has(&["ping"]) {
        return;
    }
    let Some(stand) = Stand::new() else { return };
    for ports in [PORTS, "af_xdp:vethA af_xdp:vethB tap:tap0 tap:tap1"] {
        let l2fwd = L2fwd::start(&stand.mid, &format!("{ports} --no-mac-update"));
        assert!(stand.mid.has("tap0"));
        traffic::ping(&stand, 10);
        let totals = l2fwd.stop(signal);
        assert!(
            totals.count(0, "rx_packets") >= 10 && totals.count(0, "tx_packets") >= 10,
            "{totals}"
        );
        nothing_left(&stand);
    }
}

fn sigint_ends_with_totals() {
    ends_cleanly(Signal::INT);
}

fn sigterm_ends_with_totals() {
    ends_cleanly(Signal::TERM);
}

fn a_duration_ends_with_totals() {
    let Some(stand) = Stand::new() else { return };
    let mut l2fwd = L2fwd::start(&stand.mid, &format!("{PORTS} --duration 1"));
    l2fwd.totals();
    nothing_left(&stand);
}

/// Twice: the second start must not fail because of the first one.
fn kill_leaves_nothing_and_a_restart_works() {
    if !has(&["ping"]) {
        return;
    }
    let Some(stand) = Stand::new() else { return };
    for ports in ["af_xdp:vethA af_xdp:vethB tap:tap0 tap:tap1", PORTS] {
        for _ in 0..2 {
            let l2fwd = L2fwd::start(&stand.mid, &format!("{ports} --no-mac-update"));
            assert!(
                !ports.contains("xdp") || stand.mid.ip("-details link show vethA").contains("xdp")
            );
            traffic::ping(&stand, 10);
            l2fwd.kill();
            nothing_left(&stand);
        }
    }
}
