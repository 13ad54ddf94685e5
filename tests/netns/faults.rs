//! Faults while linerate runs: a full disk, an interface that is deleted. They are reported and
//! counted, and the rest keeps working.

use linerate_testkit::Scratch;
use linerate_testkit::cli::{L2fwd, binary};
use linerate_testkit::netns::{LEFT, Namespace, RIGHT, Stand};
use linerate_testkit::{capture, has, traffic, wait};
use linerate_testkit::{harness::Test, tests};
use rustix::process::Signal;
use std::process::{Command, Output};

pub(crate) const TESTS: &[Test] = tests![
    a_disk_that_is_full_from_the_start,
    a_disk_that_becomes_full,
    an_interface_deleted_under_af_packet,
    an_interface_deleted_under_af_xdp,
    a_tap_deleted,
];

/// Checks the report of a capture onto a full disk: file, reason, and how much is missing.
#[track_caller]
fn says_full(output: &Output, file: &str, frames: u64) {
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{stderr}{stdout}");
    assert!(
        stderr.contains("error: ") && stderr.contains("\nfix: "),
        "{stderr}"
    );
    assert!(
        stderr.contains(file) && stderr.contains("No space left on device"),
        "{stderr}"
    );
    let totals: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let port = &totals["ports"][1];
    let (written, failed) = (
        port["tx_packets"].as_u64().unwrap(),
        port["tx_drops"]["write_failed"].as_u64().unwrap(),
    );
    assert!(failed > 0 && written + failed == frames, "{port}");
    assert!(
        port["link"]
            .as_str()
            .unwrap()
            .contains("No space left on device"),
        "{port}"
    );
}

/// 2000 frames of 1000 bytes, as a file.
fn two_megabytes(scratch: &Scratch) -> String {
    let file = scratch.file("in.pcap");
    let frames: Vec<Vec<u8>> = (0..2000)
        .map(|number| traffic::noise(1000 + number % 2))
        .collect();
    std::fs::write(&file, capture::pcap(&frames)).unwrap();
    file
}

fn a_disk_that_is_full_from_the_start() {
    let scratch = Scratch::new();
    let input = two_megabytes(&scratch);
    let words = [
        "l2fwd",
        "--json",
        "--no-mac-update",
        &format!("pcap:rx={input}"),
        "pcap:tx=/dev/full",
    ];
    let output = Command::new(binary()).args(words).output().unwrap();
    says_full(&output, "/dev/full", 2000);
}

/// On a file system of 256 KiB that only this process sees.
fn a_disk_that_becomes_full() {
    let Some(namespace) = Namespace::new("x") else {
        return;
    };
    let scratch = Scratch::new();
    let input = two_megabytes(&scratch);
    let disk = scratch.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=256k tmpfs $0 && \"$1\" l2fwd --json --no-mac-update \
                  pcap:rx=$2 pcap:tx=$0/out.pcapng; code=$?; cp $0/out.pcapng $3; exit $code";
    let copy = scratch.file("copy.pcapng");
    let mut command = namespace.command("unshare");
    let output = command
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            &disk,
            binary(),
            &input,
            &copy,
        ])
        .output()
        .unwrap();
    says_full(&output, &disk, 2000);
    // Packets written before can be read.
    if has(&["tcpdump"]) {
        let kept = capture::frames(&copy, &scratch);
        assert!(kept.len() > 100, "{} frames", kept.len());
        assert_eq!(kept, capture::frames(&input, &scratch)[..kept.len()]);
    }
}

/// Two pairs of ports; an interface of the first is deleted and made again.
fn survives_deletion(kind: &str) {
    if !has(&["ping"]) {
        return;
    }
    let Some(stand) = Stand::new() else { return };
    // The other pair, with hosts of its own.
    let (Some(far), Some(near)) = (Namespace::new("f"), Namespace::new("n")) else {
        return;
    };
    near.wire("veth3", &stand.mid, "vethD", "");
    far.wire("veth4", &stand.mid, "vethE", "");
    for (host, interface, address) in [(&near, "veth3", LEFT), (&far, "veth4", RIGHT)] {
        host.ip(&format!("addr add {address}/24 dev {interface}"));
    }
    let words = format!("{kind}:vethA {kind}:vethB {kind}:vethD {kind}:vethE --no-mac-update");
    let mut l2fwd = L2fwd::start(&stand.mid, &words);
    traffic::ping(&stand, 20);
    wait("the other pair", || traffic::reaches(&near, RIGHT, 2));

    stand.mid.ip("link del vethA");
    let report = l2fwd.wait("the port to say that it is down", |report| {
        report.link(0) != "up"
    });
    assert!(report.link(0).contains("vethA"), "{}", report.link(0));
    assert_eq!([report.link(2), report.link(3)], ["up", "up"]);
    let before = l2fwd.report().count(2, "rx_packets");
    assert!(
        traffic::reaches(&near, RIGHT, 20),
        "the other pair stopped too"
    );
    assert!(
        traffic::reaches(&far, LEFT, 20),
        "the other pair stopped too"
    );
    l2fwd.wait("the other pair's counters", |report| {
        report.count(2, "rx_packets") >= before + 2
    });
    assert!(!traffic::reaches(&stand.right, LEFT, 1));
    assert!(l2fwd.is_alive());

    stand.left.wire("veth0", &stand.mid, "vethA", "");
    stand.left.ip(&format!("addr add {LEFT}/24 dev veth0"));
    l2fwd.wait("the port to come back", |report| report.link(0) == "up");
    wait("the first pair to forward again", || {
        traffic::reaches(&stand.right, LEFT, 2)
    });
    traffic::ping(&stand, 20);
    assert!(l2fwd.stderr().is_empty(), "{}", l2fwd.stderr());
    l2fwd.stop(Signal::INT);
}

fn an_interface_deleted_under_af_packet() {
    survives_deletion("af_packet");
}

fn an_interface_deleted_under_af_xdp() {
    survives_deletion("af_xdp");
}

/// A TAP that an administrator deletes and makes again: it is brought up as the first one was.
fn a_tap_deleted() {
    if !has(&["ping"]) {
        return;
    }
    let Some(stand) = Stand::new() else { return };
    let mut l2fwd = L2fwd::start(
        &stand.mid,
        "af_packet:vethA af_packet:vethB tap:tap0 null:,rx=off --no-mac-update",
    );
    stand.mid.ip("link del tap0");
    let report = l2fwd.wait("the TAP to be down", |report| report.link(2) != "up");
    assert!(report.link(2).contains("tap0"), "{}", report.link(2));
    traffic::ping(&stand, 20);
    stand.mid.ip("tuntap add mode tap name tap0");
    l2fwd.wait("the TAP to come back", |report| report.link(2) == "up");
    traffic::ping(&stand, 20);
    l2fwd.stop(Signal::INT);
}
