//! The cost of an idle appliance: how often its threads wake.
//!
//! Counted are voluntary context switches, which a busy machine makes fewer, not more. A worker
//! wakes ten times a second by itself, and for each request of control.

use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::netns::{Namespace, Stand};
use linerate_testkit::process::Running;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = tests![
    an_idle_l2fwd_over_rings,
    an_idle_l2fwd_over_taps,
    an_idle_l2fwd_over_af_packet,
    an_idle_l2fwd_over_af_xdp,
    an_idle_router_over_rings,
    an_idle_router_over_taps,
    an_idle_router_over_af_packet,
    an_idle_router_over_af_xdp,
];

/// The counting interval.
const SPAN: Duration = Duration::from_secs(1);
/// Switches a second that an idle process may make: 50 to 80 are seen, and hundreds to thousands if
/// two threads keep waking each other, or one polls.
const IDLE_PER_S: f64 = 250.0;

/// Voluntary context switches of all threads of a process so far.
fn switches(running: &Running) -> u64 {
    let tasks = format!("/proc/{}/task", running.pid().as_raw_nonzero());
    let of = |status: String| -> u64 {
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    let all = std::fs::read_dir(tasks).unwrap();
    all.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
        .map(of)
        .sum()
}

/// Starts an appliance, and waits until it makes no more switches than an idle one may; its start
/// makes more.
#[track_caller]
fn rests(namespace: &Namespace, words: &str) {
    let mut running = namespace.start(binary(), words);
    running.wait("the first line", |stdout, _| !stdout.all().is_empty());
    let mut least = f64::MAX;
    for _ in 0..5 {
        let (start, before) = (Instant::now(), switches(&running));
        std::thread::sleep(SPAN);
        let spent = switches(&running) - before;
        least = least.min(spent as f64 / start.elapsed().as_secs_f64());
        if least <= IDLE_PER_S {
            println!("{words}: {least:.0} context switches a second");
            return;
        }
    }
    panic!("{words}: {least:.0} context switches a second, and nothing to do");
}

/// Ports of one kind in a namespace without traffic.
fn l2fwd_rests(ports: &str) {
    let Some(stand) = Stand::new() else { return };
    // Each port with a worker of its own, which reaches the other's queue by a ring.
    for lcores in ["0", "0-1"] {
        rests(
            &stand.mid,
            &format!("l2fwd --period 60 --io {lcores} {ports}"),
        );
    }
}

fn an_idle_l2fwd_over_rings() {
    l2fwd_rests("ring:a ring:a");
}

fn an_idle_l2fwd_over_taps() {
    l2fwd_rests("tap:tap0 tap:tap1");
}

fn an_idle_l2fwd_over_af_packet() {
    l2fwd_rests("af_packet:vethA af_packet:vethB");
}

fn an_idle_l2fwd_over_af_xdp() {
    l2fwd_rests("af_xdp:vethA af_xdp:vethB");
}

/// The router also has a slow worker, to which the others punt, and which sends by their queues.
fn router_rests(ports: [&str; 2]) {
    let Some(stand) = Stand::new() else { return };
    let scratch = Scratch::new();
    let (file, socket) = (scratch.file("idle.toml"), scratch.file("idle.sock"));
    for kernel in [false, true] {
        let mut text = format!(
            "[plan]\nio = \"0\"\n\n[router]\ncontrol = \"{socket}\"\nperiod = 60\nkernel = \
             {kernel}\n"
        );
        for (at, port) in ports.iter().enumerate() {
            text += &format!(
                "\n[[port]]\nname = \"p{at}\"\nspec = \"{port}\"\n\n[[interface]]\n\
                 port = \"p{at}\"\naddresses = [\"10.{at}.0.1/24\"]\n"
            );
        }
        std::fs::write(&file, text).unwrap();
        rests(&stand.mid, &format!("router {file} --json"));
        wait("the interfaces of before to go", || !stand.mid.has("lr-p0"));
    }
}

fn an_idle_router_over_rings() {
    router_rests(["ring:a", "ring:a"]);
}

fn an_idle_router_over_taps() {
    router_rests(["tap:tap0", "tap:tap1"]);
}

fn an_idle_router_over_af_packet() {
    router_rests(["af_packet:vethA", "af_packet:vethB"]);
}

fn an_idle_router_over_af_xdp() {
    router_rests(["af_xdp:vethA", "af_xdp:vethB"]);
}
