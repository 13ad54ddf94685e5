//! tcpdump beside our counters: both count the same frames and bytes, in each direction.

use linerate_testkit::Scratch;
use linerate_testkit::capture::Tcpdump;
use linerate_testkit::cli::L2fwd;
use linerate_testkit::netns::Stand;
use linerate_testkit::{harness::Test, tests};
use linerate_testkit::{has, traffic};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = tests![
    of_af_packet,
    of_af_packet_without_offloads,
    of_af_xdp,
    of_af_packet_and_af_xdp,
    of_taps,
];

/// Which frames must cross unsegmented.
#[derive(Clone, Copy, PartialEq)]
enum Offloads {
    /// Frames that the hosts' stacks did not segment arrive unsegmented.
    On,
    Off,
}

fn tcpdump_agrees(ports: &str, offloads: Offloads) {
    if !has(&["tcpdump", "ping", "ethtool", "sha256sum"]) {
        return;
    }
    let Some(stand) = Stand::new() else { return };
    let stand = if offloads == Offloads::Off {
        stand.plain()
    } else {
        stand
    };
    let scratch = Scratch::new();
    let mut l2fwd = L2fwd::start(&stand.mid, &format!("{ports} --no-mac-update"));
    if ports.contains("tap:") {
        stand.bridge_taps();
    }
    let arriving = Tcpdump::start(&stand.right, "veth1", "in", &scratch);
    let leaving = Tcpdump::start(&stand.right, "veth1", "out", &scratch);
    traffic::ping(&stand, 100);
    traffic::file(&stand, 1, &scratch);
    quiet(&mut l2fwd);
    let totals = l2fwd.stop(Signal::INT);
    let counted = |direction: &str| {
        (
            totals.count(1, &format!("{direction}_packets")),
            totals.count(1, &format!("{direction}_bytes")),
        )
    };
    // The kernel counts what it drops after we sent it, or before we could receive it.
    let ends = [
        (arriving, "tx", &stand.right, "veth1"),
        (leaving, "rx", &stand.mid, "vethB"),
    ];
    for (onlooker, direction, end, interface) in ends {
        let (packets, bytes) = counted(direction);
        let dropped = end.rx_dropped(interface);
        let (after, before) = if direction == "tx" {
            (dropped, 0)
        } else {
            (0, dropped)
        };
        let seen = onlooker.expect(|| packets + before - after);
        let sum: usize = seen.iter().map(Vec::len).sum();
        assert_eq!(
            packets + before,
            seen.len() as u64 + after,
            "{direction}: {totals}"
        );
        assert!(
            bytes == sum as u64 || dropped > 0,
            "{direction}: {sum} bytes seen: {totals}"
        );
        let uncut = seen.iter().any(|frame| frame.len() > 1514);
        assert!(
            uncut == (offloads == Offloads::On && !ports.contains("xdp") && direction == "tx")
                || direction == "rx",
            "{direction}"
        );
    }
}

/// Waits until nothing has come for a while: TCP closes after the file has been sent.
fn quiet(l2fwd: &mut L2fwd) {
    let (mut last, mut since) = (None, std::time::Instant::now());
    l2fwd.wait("the traffic to end", |report| {
        let now = Some((report.count(0, "rx_packets"), report.count(1, "rx_packets")));
        if now != last {
            (last, since) = (now, std::time::Instant::now());
        }
        since.elapsed().as_secs() >= 2
    });
}

fn of_af_packet() {
    tcpdump_agrees("af_packet:vethA af_packet:vethB", Offloads::On);
}

fn of_af_packet_without_offloads() {
    tcpdump_agrees("af_packet:vethA af_packet:vethB", Offloads::Off);
}

fn of_af_xdp() {
    tcpdump_agrees("af_xdp:vethA af_xdp:vethB", Offloads::On);
}

fn of_af_packet_and_af_xdp() {
    tcpdump_agrees("af_packet:vethA af_xdp:vethB", Offloads::On);
}

fn of_taps() {
    tcpdump_agrees("tap:tap0 tap:tap1", Offloads::On);
}
