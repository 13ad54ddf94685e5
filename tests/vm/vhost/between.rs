//! Two guests, joined by `l2fwd` alone.

use super::{Host, Nic, devices, ends_well, ping, up};
use linerate_testkit::cli::L2fwd;
use linerate_testkit::guest::Guest;
use serde_json::{Value, json};

/// The first joins the guests with checksums and segmentation left to whoever can, the second
/// without.
const LEFT: [Nic; 2] = [
    Nic::new("left", "", ""),
    Nic::new("leftplain", ",offloads=off", ""),
];
const RIGHT: [Nic; 2] = [
    Nic::new("right", "", ""),
    Nic::new("rightplain", ",offloads=off", ""),
];

/// How often TCP is measured, and for how many seconds each, where nobody says it
/// (`LINERATE_GUEST_TCP="ROUNDS SECONDS"`, as `cargo xtask compare` does).
const MEASURED: &str = "2 2";

/// Pings, bytes over TCP, and what it carries each way of joining them: printed as a line of JSON,
/// and not judged here.
pub(super) fn two_guests_reach_each_other_with_and_without_offloads() {
    let Some(host) = Host::new() else { return };
    let pair = |at: usize| {
        let [left, right] = [LEFT[at], RIGHT[at]].map(|nic| nic.port(&host.scratch));
        format!("{left} {right} ")
    };
    let ports: String = (0..LEFT.len()).map(pair).collect();
    let l2fwd = L2fwd::start(&host.namespace, &format!("{ports} --no-mac-update"));
    let start = |nics: &[Nic], last| Guest::start(&devices(&host.scratch, nics, last));
    let (Some(mut left), Some(mut right)) = (start(&LEFT, 1), start(&RIGHT, 2)) else {
        return;
    };
    up(&mut left, LEFT.len(), 1);
    up(&mut right, RIGHT.len(), 2);
    for net in 0..LEFT.len() {
        ping(&mut right, &format!("10.8.{net}.1"), 18);
        for (mtu, bytes) in [(9000, 8972), (1500, 1472)] {
            let set = format!("ip link set dev eth{net} mtu {mtu}");
            for guest in [&mut left, &mut right] {
                guest.run(&set);
            }
            ping(&mut left, &format!("10.8.{net}.2"), bytes);
        }
        arrives_unchanged(&mut left, &mut right, net);
    }
    let measured = std::env::var("LINERATE_GUEST_TCP").unwrap_or(MEASURED.into());
    let (rounds, seconds) = measured.split_once(' ').expect("ROUNDS SECONDS");
    right.run(
        "iperf3 --server > /dev/null 2>&1 &
        until ss -Hltn | grep -q :5201; do sleep 0.1; done",
    );
    let mut gbps = [vec![], vec![]];
    for _ in 0..rounds.parse::<u32>().unwrap() {
        for (net, gbps) in gbps.iter_mut().enumerate() {
            let client = format!("iperf3 --client 10.8.{net}.2 --time {seconds} --json");
            let said = left.run(&client);
            let report: Value = serde_json::from_str(&said).unwrap();
            let bits = &report["end"]["sum_received"]["bits_per_second"];
            gbps.push(bits.as_f64().expect(&said) / 1e9);
        }
    }
    println!(
        "vhost.guest.tcp {}",
        json!({"with": gbps[0], "without": gbps[1]})
    );
    let totals = ends_well(l2fwd);
    for port in 0..2 * LEFT.len() {
        // Neither finishes anything: both guests take what the other one sends.
        assert_eq!(totals.count(port, "segmented"), 0, "{totals}");
        assert_eq!(totals.count(port, "checksums_completed"), 0, "{totals}");
        let mean_bytes = totals.count(port, "tx_bytes") / totals.count(port, "tx_packets");
        // What the right ones are sent is the load. However slow it is, TCP hands on two segments
        // of 1448 bytes at a time (`tcp_min_tso_segs`) where the other side cuts them, else one.
        let is_whole = mean_bytes > 2200;
        assert!(port % 2 == 0 || is_whole == (port == 1), "{totals}");
    }
}

/// One guest sends bytes, and both sum them up.
#[track_caller]
fn arrives_unchanged(left: &mut Guest, right: &mut Guest, net: usize) {
    let (address, port) = (format!("10.8.{net}.2"), 7000 + net);
    right.run(&format!(
        "(/proc/1/root/bin/busybox nc -l -p {port} | sha256sum > /dev/shm/sum{net}) &
        until ss -Hltn | grep -q :{port}; do sleep 0.1; done"
    ));
    let sent = left.run(&format!(
        "head -c 4000000 /dev/urandom > /dev/shm/sent
        bash -c 'cat /dev/shm/sent > /dev/tcp/{address}/{port}'
        sha256sum < /dev/shm/sent"
    ));
    let came = format!("until [ -s /dev/shm/sum{net} ]; do sleep 0.1; done; cat /dev/shm/sum{net}");
    assert_eq!(sent, right.run(&came));
}
