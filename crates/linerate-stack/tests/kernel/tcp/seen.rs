//! TCP as tshark sees it at the kernel's end: a clean wire has no bad checksum, and no loss,
//! retransmission, reordering or closed window; a bad one has those that it injects.

use linerate_testkit::process::{self, Running};
use linerate_testkit::{Scratch, wait};
use std::process::Command;

use super::*;

/// What is wrong on a clean wire, in tshark's words.
const WRONG: &str = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission \
    || tcp.analysis.spurious_retransmission || tcp.analysis.lost_segment \
    || tcp.analysis.ack_lost_segment || tcp.analysis.out_of_order \
    || tcp.analysis.duplicate_ack || tcp.analysis.zero_window \
    || tcp.analysis.reused_ports";
/// All ones is what Linux stores for a checksum of zero, as UDP needs it, when it finishes one in
/// software (skb_checksum_help), once in 65536 segments; the two are equal (RFC 1071 2), and tshark
/// finds fault with it.
const BAD_SUM: &str =
    "tcp.checksum.status == 0 && tcp.checksum != 0xffff || ip.checksum.status == 0";
const GOOD_SUM: &str = "tcp.checksum.status == 1";
const AGAIN: &str = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission";

/// Bytes of a connection: less than windows and any queue on the way hold, so that none is full
/// when the machine lets a reader wait.
const TOTAL: usize = 1_000_000;

/// tcpdump at t0.
struct Capture {
    tcpdump: Running,
    file: String,
    _scratch: Scratch,
}

impl Capture {
    fn start(namespace: &Unnamed) -> Self {
        let scratch = Scratch::new();
        let file = scratch.file("t0.pcap");
        let words = "-Z root -i t0 -B 65536 -s 262144 -U --immediate-mode -n -w";
        let mut tcpdump = {
            let _inside = namespace.enter();
            let mut command = Command::new("tcpdump");
            Running::start(command.args(words.split(' ')).arg(&file))
        };
        tcpdump.wait("tcpdump to listen", |_, stderr| {
            stderr.text().contains("listening on")
        });
        Self {
            tcpdump,
            file,
            _scratch: scratch,
        }
    }

    /// Ends it once nothing more comes.
    fn end(&mut self) {
        let mut len = 0;
        wait("the capture to settle", || {
            std::thread::sleep(Duration::from_millis(300));
            let before = std::mem::replace(&mut len, std::fs::metadata(&self.file).unwrap().len());
            len == before
        });
        process::interrupt(&self.tcpdump);
        assert!(self.tcpdump.end().success());
        let said = self.tcpdump.stderr.text();
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
    }

    /// The frames that a filter of tshark's passes, a line each.
    fn frames(&self, filter: &str) -> Vec<String> {
        let checked = ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"];
        let mut command = Command::new("tshark");
        command.args(["-n", "-r", &self.file, "-Y", filter]);
        command.args(checked.map(|preference| ["-o", preference]).concat());
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{filter}: {complaint}");
        let said = String::from_utf8_lossy(&output.stdout);
        said.lines().map(str::to_owned).collect()
    }

    /// How many these are.
    fn count(&self, filter: &str) -> usize {
        self.frames(filter).len()
    }
}

/// Segments that the kernel has found to have a wrong checksum, in the namespace.
fn checksum_errors(namespace: &Unnamed) -> u64 {
    let _inside = namespace.enter();
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut rows = text.lines().filter(|row| row.starts_with("Tcp:"));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    let (_, value) = columns.find(|(name, _)| *name == "InCsumErrors").unwrap();
    value.parse().unwrap()
}

/// Has nobody send anything again only because a busy machine let the other side wait.
fn be_patient(namespace: &Unnamed) {
    for words in [
        "route change 192.0.2.0/24 dev t0 proto kernel src 192.0.2.2 rto_min 20s",
        "-6 route change 2001:db8::/64 dev t0 proto kernel metric 256 rto_min 20s",
    ] {
        namespace.ip(words);
    }
    for setting in [
        "net.ipv4.tcp_early_retrans=0",
        "net.ipv4.tcp_rmem=4096 6291456 6291456",
    ] {
        let _inside = namespace.enter();
        let mut command = Command::new("sysctl");
        let set = command.args(["-qw", setting]).status().unwrap();
        assert!(set.success(), "{setting}");
    }
}

/// Both roles over both families; what was captured.
fn captured(spec: &str, offloads: bool) -> Option<Capture> {
    if !has(&["tshark", "tcpdump", "ethtool"]) {
        return None;
    }
    let tcp = Config {
        loss_probes: false,
        receive_bytes: 2 << 20,
        ..Config::default()
    };
    let (namespace, mut server) = match offloads {
        true => server(spec, tcp)?,
        false => plain_server(spec, tcp)?,
    };
    if !spec.contains("faulty") {
        be_patient(&namespace);
    }
    // One that cannot send does not read otherwise, and closes its window with good reason.
    server.reads_on = true;
    // A sender that changes its CPU may have its frames overtake each other in the kernel.
    let pinned = process::pin_here();
    let mut capture = Capture::start(&namespace);
    beside(&namespace, &mut server, || {
        for ours in OURS {
            for total in [0, 1, TOTAL] {
                echo(&mut connect(ours, ECHO), total);
            }
        }
    });
    let kernel = echo_server(&namespace, KERNELS.len());
    for to in KERNELS {
        server.ask(SocketAddr::new(to.parse().unwrap(), PEER), TOTAL);
    }
    kernel.join().unwrap();
    server.settle();
    drop(pinned);
    capture.end();
    if !spec.contains("flip") {
        assert_eq!(checksum_errors(&namespace), 0, "{spec}");
    }
    Some(capture)
}

#[test]
fn tshark_finds_nothing_wrong() {
    for (spec, offloads) in [
        (TAP, true),
        (TAP, false),
        (VETH, true),
        (VETH, false),
        (XDP, false),
    ] {
        let Some(capture) = captured(spec, offloads) else {
            return;
        };
        let wrong = capture.frames(WRONG);
        assert!(wrong.is_empty(), "{spec} {offloads}: {wrong:#?}");
        // 8 connections open and close, and 4 of them have data both ways.
        assert_eq!(capture.count("tcp.flags.syn == 1"), 2 * 8, "{spec}");
        assert_eq!(capture.count("tcp.flags.fin == 1"), 2 * 8, "{spec}");
        assert_eq!(capture.count("tcp.flags.reset == 1"), 0, "{spec}");
        let long = capture.count("tcp.len > 1460");
        if offloads {
            assert!(long > 10, "{spec}: {long} long frames");
        } else {
            assert_eq!(long, 0, "{spec}");
            assert_eq!(capture.frames(BAD_SUM), [""; 0], "{spec}");
            let good = capture.count(GOOD_SUM);
            let least = 8 * TOTAL / 1460;
            assert!(good >= least, "{spec}: {good} of {least}");
        }
    }
}

#[test]
fn tshark_finds_what_was_injected() {
    let lossy = format!("{VETH},faulty=tx.loss:0.02+rx.loss:0.02+seed:7");
    let Some(capture) = captured(&lossy, false) else {
        return;
    };
    assert!(capture.count(AGAIN) > 10);
    // What is sent is right all the same.
    assert_eq!(capture.frames(BAD_SUM), [""; 0]);
    let damaged = format!("{VETH},faulty=tx.flip:0.05+seed:7");
    let capture = captured(&damaged, false).expect("the first was there");
    assert!(capture.count(BAD_SUM) > 10);
}
