//! Errors have exit code 1, an `error:` line that names the thing, and a `fix:` line; and nothing
//! is left behind.

use linerate_testkit::Scratch;
use linerate_testkit::cli::{binary, public_binary};
use linerate_testkit::netns::Namespace;
use linerate_testkit::{capture, has};
use linerate_testkit::{harness::Test, tests};
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    unknown_kinds_keys_and_values,
    interfaces_that_do_not_exist,
    impossible_plans,
    a_cpu_outside_the_cpuset,
    interfaces_that_are_down_or_too_large,
    more_queues_than_the_device_has,
    a_pool_too_small_for_the_queues,
    no_permission,
    files_that_are_no_captures_are_refused,
    captures_that_are_damaged,
];

/// Runs a command that must be refused; its output must contain all parts.
#[track_caller]
fn refused(command: &mut Command, parts: &[&str]) {
    let output = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(
        output.status.code(),
        Some(1),
        "{command:?}: {stderr}{stdout}"
    );
    let said = stderr
        .split_once("\nfix: ")
        .filter(|(error, fix)| error.starts_with("error: ") && fix.trim().len() > 8);
    assert!(
        said.is_some(),
        "{command:?} gives no error with a fix: {stderr}"
    );
    for part in parts {
        assert!(
            stderr.contains(part),
            "{command:?} does not say `{part}`: {stderr}"
        );
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// `linerate l2fwd` with these arguments, in this namespace, without capabilities.
fn l2fwd(words: &str) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["l2fwd", "--json", "--duration", "1"])
        .args(words.split_whitespace());
    command
}

/// The same in a namespace.
fn l2fwd_in(namespace: &Namespace, words: &str) -> Command {
    let mut command = namespace.command(binary());
    command
        .args(["l2fwd", "--json", "--duration", "1"])
        .args(words.split_whitespace());
    command
}

fn unknown_kinds_keys_and_values() {
    refused(
        &mut l2fwd("nul: null:"),
        &[
            "unknown port kind `nul`",
            "af_packet",
            "null",
            "linerate ports",
        ],
    );
    refused(&mut l2fwd("null: af_packet"), &["af_packet"]);
    refused(
        &mut l2fwd("null:,sise=60 null:"),
        &["`null:,sise=60`", "unknown option `sise`", "size"],
    );
    refused(&mut l2fwd("null:,size=x null:"), &["size is `x`", "number"]);
    refused(
        &mut l2fwd("null:,size=9999999 null:"),
        &["size is `9999999`"],
    );
    refused(
        &mut l2fwd("tap:a_name_that_is_too_long null:"),
        &["1 to 15 bytes"],
    );
    refused(&mut l2fwd("null: null: --pairs 0:5"), &["`0:5`", "0 null"]);
    refused(
        &mut l2fwd("null: null: --period=-1"),
        &["period is -1", "seconds"],
    );
}

fn interfaces_that_do_not_exist() {
    for kind in ["af_packet", "af_xdp"] {
        refused(
            &mut l2fwd(&format!("{kind}:nosuch0 null:")),
            &[kind, "no interface `nosuch0`", "ip link"],
        );
    }
}

fn impossible_plans() {
    refused(
        &mut l2fwd("null: null: --io 0 --bg 0"),
        &["slot 0", "both bg and io", "one role"],
    );
    refused(
        &mut l2fwd("null: null: --cpus 0,4000"),
        &["CPU 4000", "does not exist"],
    );
    refused(&mut l2fwd("null: null: --io x"), &["io", "`x`", "0,2-4"]);
}

/// The CPUs that this thread may use.
fn own_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

fn a_cpu_outside_the_cpuset() {
    let [allowed, other, ..] = own_cpus()[..] else {
        linerate_testkit::skip("needs two CPUs");
        return;
    };
    if !has(&["taskset"]) {
        return;
    }
    let mut command = Command::new("taskset");
    command.args([
        "-c",
        &allowed.to_string(),
        binary(),
        "l2fwd",
        "--duration",
        "1",
        "null:",
        "null:",
    ]);
    command.args(["--cpus", &other.to_string()]);
    refused(
        &mut command,
        &[
            &format!("CPU {other}"),
            "not in this process's cpuset",
            "taskset",
        ],
    );
}

fn interfaces_that_are_down_or_too_large() {
    let Some(namespace) = Namespace::new("x") else {
        return;
    };
    namespace.wire("g0", &namespace, "g1", "");
    namespace.ip("link set g0 mtu 9000");
    refused(
        &mut l2fwd_in(&namespace, "af_xdp:g0 null:"),
        &["af_xdp:g0", "MTU 9000", "ip link set g0 mtu"],
    );
    namespace.ip("link set g0 mtu 1500");
    namespace.ip("link set g0 down");
    for kind in ["af_packet", "af_xdp"] {
        refused(
            &mut l2fwd_in(&namespace, &format!("{kind}:g0 null:")),
            &["`g0` is down", "ip link set g0 up"],
        );
    }
    // The port before the one that fails is closed again.
    refused(
        &mut l2fwd_in(&namespace, "tap:t0 af_packet:g0"),
        &["`g0` is down"],
    );
    assert!(!namespace.has("t0"));
}

fn more_queues_than_the_device_has() {
    let Some(namespace) = Namespace::new("x") else {
        return;
    };
    namespace.wire("g0", &namespace, "g1", "numrxqueues 2 numtxqueues 2");
    let three = "3 receive queues asked for, it has";
    refused(
        &mut l2fwd_in(&namespace, "af_packet:g0,queues=2 null: --queues 3"),
        &["af_packet:g0", three, "2"],
    );
    refused(
        &mut l2fwd_in(&namespace, "tap:t0,queues=2 null: --queues 3"),
        &["tap:t0", three, "2"],
    );
    refused(
        &mut l2fwd_in(&namespace, "af_xdp:g0 null: --queues 3"),
        &["af_xdp:g0", three, "2", "ethtool -L g0"],
    );
    assert!(!namespace.has("t0"));
}

fn a_pool_too_small_for_the_queues() {
    let Some(namespace) = Namespace::new("x") else {
        return;
    };
    namespace.wire("g0", &namespace, "g1", "");
    for kind in ["af_packet", "af_xdp"] {
        let words = format!("{kind}:g0 null: --pool-slots 16");
        refused(
            &mut l2fwd_in(&namespace, &words),
            &[kind, "pool `packets` has 16 slots", "at least"],
        );
    }
}

fn no_permission() {
    let Some(namespace) = Namespace::new("x") else {
        return;
    };
    namespace.wire("g0", &namespace, "g1", "");
    let scratch = Scratch::new();
    let public = public_binary(&scratch);
    for (port, capability, setcap) in [
        ("af_packet:g0", "CAP_NET_RAW", "setcap cap_net_raw+ep"),
        ("tap:t0", "CAP_NET_ADMIN", "setcap cap_net_admin+ep"),
        (
            "af_xdp:g0",
            "CAP_BPF",
            "setcap cap_net_raw,cap_net_admin,cap_bpf",
        ),
    ] {
        // Root without capabilities, as in a container, and an unprivileged user.
        let bereft = ["--bounding-set=-all", "--inh-caps=-all"];
        let nobody = ["--reuid=65534", "--regid=65534"];
        for identity in [bereft, nobody] {
            let mut command = namespace.command("setpriv");
            command.args(identity).arg("--clear-groups").arg(&public);
            command.args(["l2fwd", "--json", "--duration", "1", port, "null:"]);
            refused(&mut command, &[port, "no permission", capability, setcap]);
        }
    }
    assert!(!namespace.has("t0"));
}

fn files_that_are_no_captures_are_refused() {
    let scratch = Scratch::new();
    for (name, content, reason) in [
        ("empty", &b""[..], "empty"),
        (
            "text",
            b"no capture, but long enough for a header",
            "not a pcap or pcapng file",
        ),
        (
            "half-a-header",
            &capture::pcap::<[u8; 60]>(&[])[..11],
            "half-a-header",
        ),
        (
            "raw-ip",
            &[
                &capture::pcap::<[u8; 60]>(&[])[..20],
                &101_u32.to_ne_bytes()[..],
            ]
            .concat(),
            "link type",
        ),
    ] {
        let file = scratch.file(name);
        std::fs::write(&file, content).unwrap();
        refused(
            &mut l2fwd(&format!("pcap:rx={file} null:")),
            &[&file, reason],
        );
    }
    refused(
        &mut l2fwd("pcap:rx=/nonexistent.pcap null:"),
        &["cannot read `/nonexistent.pcap`", "No such file"],
    );
    refused(
        &mut l2fwd("pcap:tx=/nonexistent/out.pcapng null:"),
        &["cannot create `/nonexistent/out.pcapng`"],
    );
}

/// The frames before the damage are forwarded, and then the damage is an error.
fn captures_that_are_damaged() {
    let scratch = Scratch::new();
    let frames: Vec<[u8; 60]> = (0..100).map(|number| [number; 60]).collect();
    let whole = capture::pcap(&frames);
    let record = |number: usize| 24 + number * 76;
    let mut absurd = whole.clone();
    absurd[record(60) + 8..record(60) + 12].copy_from_slice(&u32::MAX.to_ne_bytes());
    for (name, content, good) in [
        ("cut in a frame", &whole[..record(41) - 7], 40),
        ("cut in a header", &whole[..record(41) + 5], 41),
        ("absurd length", &absurd, 60),
    ] {
        let (file, out) = (scratch.file("damaged.pcap"), scratch.file("out.pcapng"));
        std::fs::write(&file, content).unwrap();
        let words = [
            "l2fwd",
            "--json",
            "--no-mac-update",
            &format!("pcap:rx={file}"),
            &format!("pcap:tx={out}"),
        ];
        let output = Command::new(binary()).args(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        let damaged = format!("record {} is damaged", good + 1);
        assert!(
            stderr.contains(&file) && stderr.contains(&damaged) && stderr.contains("fix: "),
            "{name}: {stderr}"
        );
        let totals = String::from_utf8_lossy(&output.stdout);
        assert!(
            totals.contains(&format!("\"tx_packets\":{good}")),
            "{name}: {totals}"
        );
        if has(&["tcpdump"]) {
            assert_eq!(capture::frames(&out, &scratch), frames[..good], "{name}");
        }
    }
}
