//! As Linux' firewall does: the same packets of generated flows go through nftables, conntrack and
//! masquerade, and through the gateway with the equal policy. Which pass, what they become, what is
//! said of them and the states of the flows are compared by `conntrack.py`, which names and
//! explains each difference; the flows are in `stories.py`.

use super::{wires, zones};
use crate::router::instance::Router;
use crate::router::oracle::Bench;
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::has;
use linerate_testkit::netns::backlog_drops;
use linerate_testkit::skip;
use linerate_testkit::traffic::ROUNDS;
use linerate_testkit::{harness::Test, tests};
use std::process::{Command, Output};

pub(crate) const TESTS: &[Test] = tests![
    flows_fare_as_with_nftables_and_conntrack,
    #[ignore = "long: 100 000 packets"]
    many_flows_fare_as_with_nftables_and_conntrack,
];

/// The policy of `conntrack.nft`.
const POLICY: &str = r#"
[[policy]]
from = "inside"
to = "outside"
rules = [
  { action = "reject", service = ["tcp/113", "udp/138"] },
  { action = "deny", service = ["tcp/25", "udp/137"] },
  { action = "permit", service = ["tcp/80", "tcp/443", "tcp/1000-2000"] },
  { action = "permit", service = ["udp/9", "udp/53", "udp/5000-5010"] },
  { action = "permit", service = ["icmp/8", "icmp/13"] },
  { action = "permit", protocol = "253" },
]
[[policy]]
from = "outside"
to = "inside"
rules = [ { action = "permit", destination = "10.60.80.80", service = "tcp/80" } ]
[nat]
[[nat.source]]
from = "inside"
to = "outside"
masquerade = "b"
[[nat.forward]]
outside = "10.2.0.1"
protocol = "tcp"
ports = "8080"
inside = "10.60.80.80"
inside_port = 80
"#;

fn config() -> String {
    wires::config("10.20.0.0/16") + &zones([65536, 1024]) + POLICY
}

/// Linux as the firewall; why not, where its kernel has no such firewall.
fn firewall(bench: &Bench, scratch: &Scratch) -> Result<(), String> {
    bench.kernel();
    let rules = scratch.file("conntrack.nft");
    std::fs::write(&rules, include_str!("conntrack.nft")).unwrap();
    let output = bench.mid.run("nft", &format!("--file {rules}"));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Err(format!("needs a kernel with nftables and NAT: {first}"));
    }
    // A connection begins with a SYN, as with us, and no flow ends while it is compared.
    bench.mid.sysctl("netfilter/nf_conntrack_tcp_loose", "0");
    for timeout in ["udp", "icmp", "tcp_close", "tcp_last_ack", "tcp_close_wait"] {
        let key = format!("netfilter/nf_conntrack_{timeout}_timeout");
        let key = match timeout.strip_prefix("tcp_") {
            Some(state) => format!("netfilter/nf_conntrack_tcp_timeout_{state}"),
            None => key,
        };
        bench.mid.sysctl(&key, "600");
    }
    Ok(())
}

/// What `conntrack.py` says of so many packets of a seed, and whether the machine or our port has
/// lost frames meanwhile; `None` where that cannot run here.
fn compare(seed: u64, count: usize) -> Option<(Output, bool)> {
    let (linux, ours) = (Bench::new()?, Bench::new()?);
    let scratch = Scratch::new();
    if let Err(reason) = firewall(&linux, &scratch) {
        skip(&reason);
        return None;
    }
    let gateway = Router::start_as("gateway", &ours.mid, &scratch, &config());
    wires::script(&scratch, "stories.py", include_str!("stories.py"));
    let script = wires::script(&scratch, "conntrack.py", include_str!("conntrack.py"));
    let place = |bench: &Bench| {
        let [left, mid, right] = [&bench.left, &bench.mid, &bench.right].map(|one| one.name());
        serde_json::json!({ "left": left, "mid": mid, "right": right })
    };
    let asked = serde_json::json!({
        "linux": place(&linux),
        "gateway": place(&ours),
        "seed": seed,
        "count": count,
        "control": gateway.socket(),
        "program": binary(),
    });
    let lost = || backlog_drops() + gateway.dropped("missed");
    let before = lost();
    let mut command = Command::new("python3");
    let output = command.args([&script, &asked.to_string()]).output();
    let has_lost = lost() > before;
    gateway.stop();
    Some((output.unwrap(), has_lost))
}

#[track_caller]
fn agrees(seed: u64, count: usize) {
    for _ in 0..ROUNDS {
        let Some((output, has_lost)) = compare(seed, count) else {
            return;
        };
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        if !output.status.success() && (has_lost || output.status.code() == Some(3)) {
            continue;
        }
        assert!(output.status.success(), "seed {seed}: {stdout}{stderr}");
        eprint!("seed {seed}: {stdout}");
        return;
    }
    panic!("frames were lost in each of {ROUNDS} rounds");
}

fn flows_fare_as_with_nftables_and_conntrack() {
    if has(&["python3", "nft", "conntrack", "ethtool", "setpriv"]) {
        agrees(11, 6000);
    }
}

/// In parts, each with firewalls of its own: none takes as long as the shortest timeout.
fn many_flows_fare_as_with_nftables_and_conntrack() {
    if has(&["python3", "nft", "conntrack", "ethtool", "setpriv"]) {
        (20..30).for_each(|seed| agrees(seed, 10_000));
    }
}
