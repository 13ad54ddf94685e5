//! `linerate pktgen` around `linerate l2fwd` in another process, over veth:
//!
//! ```text
//! gen: g0 ---- d0 :dut: d1 ---- g1 :gen
//! ```
//!
//! Nothing depends on speed: frames that the generator could not send in time are `unsent`, and
//! each sent frame is accounted for.

use linerate_testkit::Scratch;
use linerate_testkit::cli::{L2fwd, binary};
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};
use rustix::process::Signal;
use serde_json::Value;

pub(crate) const TESTS: &[Test] = tests![
    all_that_pktgen_sends_comes_back_through_l2fwd_over_af_xdp,
    all_that_pktgen_sends_comes_back_through_l2fwd_over_af_packet,
    faults_of_a_port_are_counted_exactly,
    a_port_that_vanishes_makes_the_run_invalid,
    pktgen_and_the_kernel_ping_each_other,
];

/// A generator's ends, and the device's.
struct Loop {
    generator: Namespace,
    device: Namespace,
}

impl Loop {
    fn new() -> Option<Self> {
        if !has(&["ethtool", "setpriv"]) {
            return None;
        }
        let around = Self {
            generator: Namespace::new("g")?,
            device: Namespace::new("d")?,
        };
        for (here, there) in [("g0", "d0"), ("g1", "d1")] {
            around.generator.wire(here, &around.device, there, "");
            around.generator.plain(here);
            around.device.plain(there);
        }
        Some(around)
    }

    /// Runs pktgen with these arguments to its end, and returns its exit code and its counts.
    #[track_caller]
    fn pktgen(&self, words: &[&str]) -> (i32, Value) {
        let mut command = self.generator.command(binary());
        command.args(["pktgen", "--headless", "--json", "--seed", "7"]);
        let output = command.args(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("it ends by itself");
        let counts = serde_json::from_slice(&output.stdout);
        let counts = counts.unwrap_or_else(|error| panic!("{error}; it said: {stderr}"));
        (code, counts)
    }
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// Sent, received, lost, reordered, duplicates of a stream.
#[track_caller]
fn tally(counts: &Value, stream: usize) -> [u64; 5] {
    let tally = &counts["streams"][stream]["tally"];
    ["sent", "received", "lost", "reordered", "duplicates"].map(|key| number(&tally[key]))
}

/// A port's faults of one kind.
#[track_caller]
fn faults(counts: &Value, port: usize, kind: &str) -> u64 {
    let faults = counts["ports"][port]["faults"].as_array().unwrap();
    let found = faults.iter().find(|fault| fault[0] == kind);
    found.map_or(0, |fault| number(&fault[1]))
}

/// Streams of several kinds through l2fwd, both ways: all sent frames come back, in order, and
/// l2fwd has counted as many.
fn all_come_back(kind: &str) {
    let Some(around) = Loop::new() else {
        return;
    };
    let l2fwd = L2fwd::start(
        &around.device,
        &format!("{kind}:d0 {kind}:d1 --no-mac-update"),
    );
    let ports = [0, 1].map(|port| format!("{kind}:g{port}"));
    let streams = [
        "udp port=0 rate=2kpps count=2000 dst=198.19.0.1-198.19.0.200 dport=random",
        "tcp port=0 rate=1kpps count=1000 size=80-1518 flags=SA vlan=7",
        "udp6 port=1 rate=1kpps count=1000 size=imix:84*7,570*4,1518*1",
    ];
    let mut words: Vec<&str> = ports.iter().flat_map(|port| ["-p", port]).collect();
    words.extend(streams.iter().flat_map(|stream| ["-s", stream]));
    let (code, counts) = around.pktgen(&words);
    assert_eq!(code, 0, "{counts}");
    let mut by_port = [0, 0];
    for (stream, port) in [0, 0, 1].into_iter().enumerate() {
        let [sent, received, lost, reordered, duplicates] = tally(&counts, stream);
        let unsent = number(&counts["streams"][stream]["unsent"]);
        let asked = [2000, 1000, 1000][stream];
        // Frames that were given up as late are made up for.
        assert!(
            sent <= asked && sent + unsent >= asked,
            "stream {stream}: {counts}"
        );
        assert_eq!(
            [received, lost, reordered, duplicates],
            [sent, 0, 0, 0],
            "stream {stream}: {counts}"
        );
        assert_eq!(
            number(&counts["streams"][stream]["latency"]["samples"]),
            received
        );
        by_port[port] += sent;
    }
    for (port, &sent) in by_port.iter().enumerate() {
        let view = &counts["ports"][port];
        assert_eq!(number(&view["tx"]["packets"]), sent, "{view}");
        let sizes = view["sizes"].as_array().unwrap().iter().map(number);
        assert_eq!(sizes.sum::<u64>(), number(&view["rx"]["packets"]), "{view}");
        let ours = by_port[1 - port];
        assert_eq!(
            number(&view["rx"]["packets"]),
            ours + number(&view["foreign"]),
            "{view}"
        );
    }
    let totals = l2fwd.stop(Signal::INT);
    for (port, &sent) in by_port.iter().enumerate() {
        assert_eq!(totals.count(port, "rx_packets"), sent, "{totals}");
        assert_eq!(totals.count(1 - port, "tx_packets"), sent, "{totals}");
    }
}

fn all_that_pktgen_sends_comes_back_through_l2fwd_over_af_xdp() {
    all_come_back("af_xdp");
}

fn all_that_pktgen_sends_comes_back_through_l2fwd_over_af_packet() {
    all_come_back("af_packet");
}

/// The wire loses, repeats and swaps by a seed: pktgen reports exactly the wire's own counts.
fn faults_of_a_port_are_counted_exactly() {
    let Some(around) = Loop::new() else {
        return;
    };
    let l2fwd = L2fwd::start(&around.device, "af_xdp:d0 af_xdp:d1 --no-mac-update");
    for (kind, column) in [("loss", 2), ("reorder", 3), ("dup", 4)] {
        let port = format!("af_xdp:g0,faulty={kind}:0.02+seed:11+on:tx");
        // Frames are swapped only within a burst.
        let stream = "udp port=0 rate=6kpps burst=32 count=4000";
        let (code, counts) = around.pktgen(&["-p", &port, "-p", "af_xdp:g1", "-s", stream]);
        let tally = tally(&counts, 0);
        let done = faults(&counts, 0, kind);
        assert!(done > 20, "2 % of {tally:?} are not {done}: {counts}");
        assert_eq!(tally[column], done, "{kind}: {counts}");
        let others = (2..5)
            .filter(|&other| other != column)
            .map(|other| tally[other]);
        assert_eq!(others.sum::<u64>(), 0, "{kind}: {counts}");
        let [sent, received, lost, _, duplicates] = tally;
        assert_eq!(received, sent - lost + duplicates, "{kind}: {counts}");
        assert_eq!(code, 0, "no limit was set: {counts}");
    }
    // With a limit the exit code says so.
    let words = [
        "-p",
        "af_xdp:g0,faulty=loss:0.5+seed:3+on:tx",
        "-p",
        "af_xdp:g1",
        "-s",
        "udp port=0 rate=1kpps count=200",
    ];
    let strict: Vec<&str> = words
        .into_iter()
        .chain(["--max-loss-ppm", "100", "--max-unsent-ppm", "1000000"])
        .collect();
    assert_eq!(around.pktgen(&strict).0, 3);
    l2fwd.stop(Signal::INT);
}

/// An interface is deleted while frames are sent: the run is invalid, and its report names the port
/// and the reason.
fn a_port_that_vanishes_makes_the_run_invalid() {
    let Some(around) = Loop::new() else {
        return;
    };
    let (code, counts) = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            around.pktgen(&[
                "-p",
                "af_packet:g0",
                "-p",
                "af_packet:g1",
                "-s",
                "udp port=0 rate=1kpps",
                "--duration",
                "6",
            ])
        });
        // Frames at the other end show that it sends.
        linerate_testkit::wait("frames to arrive at d0", || {
            around.device.rx_packets("d0") > 100
        });
        around.device.ip("link del d0");
        running.join().unwrap()
    });
    assert_eq!(code, 4, "{counts}");
    let reasons = counts["verdict"]["reasons"].to_string();
    assert!(reasons.contains("g0"), "{counts}");
}

/// The kernel pings the generator, and the generator the kernel: each resolves the other and gets
/// answers.
fn pktgen_and_the_kernel_ping_each_other() {
    let Some(around) = Loop::new() else {
        return;
    };
    if !has(&["ping"]) {
        return;
    }
    around.device.ip("addr add 10.7.0.1/24 dev d0");
    around.device.sysctl("ipv6/conf/d0/disable_ipv6", "0");
    around.device.ip("addr add 2001:db8:7::1/64 dev d0 nodad");
    let scratch = Scratch::new();
    let socket = scratch.file("pktgen.sock");
    let words = format!(
        "pktgen --headless --json -p af_packet:g0,addr=10.7.0.9/24 --no-start --listen {socket}"
    );
    let mut session = around.generator.start(binary(), &words);
    session.wait("the session to listen", |_, _| {
        std::path::Path::new(&socket).exists()
    });
    let kernel = around.device.run("ping", "-n -c 3 -i 0.2 -W 5 10.7.0.9");
    assert!(
        kernel.status.success(),
        "{}",
        String::from_utf8_lossy(&kernel.stdout)
    );
    let ask = |command: &str| {
        let mut client = around.generator.command(binary());
        client.args(["pktgen", "--connect", &socket, "-c", command]);
        let output = client.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), stdout, stderr)
    };
    let (good, said, error) = ask("ping 0 10.7.0.1 3");
    assert!(good && said.contains("3 of 3 answered"), "{said}{error}");
    let (_, log, _) = ask("log");
    assert!(log.contains("10.7.0.1 is at"), "{log}");
    assert!(log.contains("10.7.0.1 answered echo 2"), "{log}");
    let (_, said, _) = ask("arp 0");
    assert!(said.contains("told"), "{said}");
    // Both families, from now on.
    assert!(ask("set 0 addr 10.7.0.9/24,2001:db8:7::9/64").0);
    let kernel = around
        .device
        .run("ping", "-n -c 3 -i 0.2 -W 5 2001:db8:7::9");
    let text = String::from_utf8_lossy(&kernel.stdout).into_owned();
    assert!(kernel.status.success(), "{text}");
    let (good, said, error) = ask("ping 0 2001:db8:7::1 3");
    assert!(good && said.contains("3 of 3 answered"), "{said}{error}");
    let (good, _, error) = ask("ping 0 10.7.0.77");
    assert!(!good && error.contains("10.7.0.77"), "{error}");
    assert!(ask("quit").0);
    assert!(session.end().success(), "{}", session.stderr.text());
    let counts: Value = serde_json::from_str(&session.stdout.text()).unwrap();
    let answers = counts["ports"][0]["answers"].to_string();
    assert!(answers.contains(r#"["echo replies",6]"#), "{answers}");
    for kind in ["ARP replies", "ND replies"] {
        assert!(answers.contains(kind), "{answers}");
    }
}
