//! memif: with DPDK's `net_memif` at the other end, in both roles, and with our own port there.

use crate::bench::Bench;
use crate::child::with_ours;
use crate::testpmd;
use linerate_testkit::Scratch;
use std::time::Instant;

/// What makes a client give its pool to the server.
const TRUST: &str = ",trust=full";

/// Which end DPDK is.
#[derive(Clone, Copy, PartialEq)]
enum Dpdk {
    Server,
    Client,
}

fn bench(dpdk: Dpdk, queues: u16) -> Bench {
    bench_with(dpdk, queues, "")
}

/// With more options of our port.
fn bench_with(dpdk: Dpdk, queues: u16, options: &str) -> Bench {
    bench_of(10, dpdk, queues, options)
}

/// Rings of 2^`log2` entries, a few of which stay free.
fn bench_of(log2: u32, dpdk: Dpdk, queues: u16, options: &str) -> Bench {
    let size = 1_u64 << log2;
    let (ours, theirs) = match dpdk {
        Dpdk::Server => ("client", "server"),
        Dpdk::Client => ("server", "client"),
    };
    let folder = Scratch::new();
    let socket = folder.file("s");
    // The client says how long they are.
    let length = match dpdk {
        Dpdk::Server => format!(",ring_size={size}"),
        Dpdk::Client => String::new(),
    };
    let spec = format!("memif:{socket},role={ours},queues={queues},secret=told{length}{options}");
    let device = format!(
        "net_memif0,role={theirs},id=0,socket={socket},socket-abstract=no,secret=told,rsize={log2}"
    );
    // A client lends its slots 32 at a time where they are not copied from: up to 31 entries of a
    // receive ring have none, and testpmd drops what a ring has no room for. A jumbo frame takes
    // several entries.
    let window = size - 32.max(size / 40);
    Bench::new(&spec, queues, window, move || {
        if dpdk == Dpdk::Server {
            // DPDK does not take over what a killed one has left.
            let _ = std::fs::remove_file(folder.file("s"));
        }
        testpmd::told_echo(&device, queues)
    })
    // DPDK 22.11 takes a ring's address before it looks whether the ring is mapped: a thread that
    // is preempted between the two while a client connects dies of a segmentation fault, in all
    // queues but the first. So it polls none before.
    .tell(testpmd::BEGIN)
}

fn echoes(dpdk: Dpdk, queues: u16, frames: u64) {
    let _turn = testpmd::turn();
    echoes_on(bench(dpdk, queues), frames);
}

fn echoes_on(mut bench: Bench, frames: u64) {
    let Some(peer) = bench.peer() else { return };
    let facts = bench.end.port.info().facts;
    let who = facts.iter().find(|(name, _)| *name == "peer");
    assert!(who.unwrap().1.starts_with("DPDK"), "{facts:?}");
    bench.exchange(frames, 60, &peer);
    bench.exchange(frames / 10, 1514, &peer);
    bench.exchange(frames / 100, 9018, &peer);
    drop(peer);
    bench.finish();
}

fn survives_kills(dpdk: Dpdk, kills: usize) {
    let _turn = testpmd::turn();
    survives_kills_on(bench(dpdk, 1), kills);
}

fn survives_kills_on(mut bench: Bench, kills: usize) {
    if bench.survives_kills(kills) {
        bench.finish();
    }
}

#[test]
fn memif_with_a_dpdk_server() {
    echoes(Dpdk::Server, 1, 100_000);
}

#[test]
fn memif_with_a_dpdk_client() {
    echoes(Dpdk::Client, 1, 100_000);
}

#[test]
fn memif_with_a_dpdk_server_and_two_queues() {
    echoes(Dpdk::Server, 2, 20_000);
}

#[test]
fn memif_with_a_dpdk_client_and_two_queues() {
    echoes(Dpdk::Client, 2, 20_000);
}

/// DPDK copies into and out of slots of ours.
#[test]
fn memif_without_a_copy_with_a_dpdk_server() {
    let _turn = testpmd::turn();
    for queues in [1, 2] {
        echoes_on(bench_with(Dpdk::Server, queues, TRUST), 20_000);
    }
}

#[test]
fn memif_without_a_copy_survives_kills_of_a_dpdk_server() {
    let _turn = testpmd::turn();
    survives_kills_on(bench_with(Dpdk::Server, 1, TRUST), 2);
}

#[test]
fn memif_survives_kills_of_a_dpdk_server() {
    survives_kills(Dpdk::Server, 2);
}

#[test]
fn memif_survives_kills_of_a_dpdk_client() {
    survives_kills(Dpdk::Client, 2);
}

/// Our own port at the other end, in a process of its own; rings of `size` entries, a tenth of
/// which stay free for the frames that the process has in its hands.
fn with_ours_of(ours: &str, theirs: &str, size: u64) -> Bench {
    let of = |options: &str| match options.contains("role=client") {
        true => format!("memif:PATH,ring_size={size},{options}"),
        false => format!("memif:PATH,{options}"),
    };
    with_ours(&of(ours), &of(theirs), size - size / 10)
}

/// Which end gives its pool away.
const OURS: [[&str; 2]; 3] = [
    ["role=client,trust=full", "role=server"],
    ["role=server", "role=client,trust=full"],
    ["role=client", "role=server"],
];

#[test]
fn memif_between_two_processes_of_ours() {
    let _turn = testpmd::turn();
    for [ours, theirs] in OURS {
        let mut bench = with_ours_of(ours, theirs, 1024);
        let Some(peer) = bench.peer() else { return };
        bench.exchange(20_000, 60, &peer);
        bench.exchange(2000, 1514, &peer);
        bench.exchange(500, 9018, &peer);
        drop(peer);
        bench.finish();
    }
}

#[test]
fn memif_between_two_processes_of_ours_survives_kills() {
    let _turn = testpmd::turn();
    for [ours, theirs] in OURS {
        survives_kills_on(with_ours_of(ours, theirs, 1024), 2);
    }
}

#[test]
#[ignore = "long: ten million frames each way"]
fn memif_between_two_processes_of_ours_moves_ten_million_frames() {
    let _turn = testpmd::turn();
    for [ours, theirs] in OURS {
        eprintln!("{ours}; {theirs}");
        let mut bench = with_ours_of(ours, theirs, 4096);
        let Some(peer) = bench.peer() else { return };
        bench.exchange(10_000_000, 60, &peer);
        bench.exchange(1_000_000, 1514, &peer);
        bench.exchange(100_000, 9018, &peer);
        drop(peer);
        bench.finish();
    }
}

#[test]
#[ignore = "long: a hundred kills of a process of ours"]
fn memif_between_two_processes_of_ours_survives_a_hundred_kills() {
    let _turn = testpmd::turn();
    for [ours, theirs] in OURS {
        survives_kills_on(with_ours_of(ours, theirs, 1024), 100);
    }
}

#[test]
#[ignore = "long: ten million frames"]
fn memif_with_dpdk_moves_ten_million_frames() {
    let _turn = testpmd::turn();
    // Long rings: where both processes have no CPU at a time, a turn takes more of them.
    for (dpdk, options) in [
        (Dpdk::Server, ""),
        (Dpdk::Client, ""),
        (Dpdk::Server, TRUST),
    ] {
        let began = Instant::now();
        echoes_on(bench_of(12, dpdk, 1, options), 10_000_000);
        eprintln!("{} s", began.elapsed().as_secs());
    }
}

#[test]
#[ignore = "long: a hundred kills"]
fn memif_survives_a_hundred_kills() {
    survives_kills(Dpdk::Server, 50);
    survives_kills(Dpdk::Client, 50);
    let _turn = testpmd::turn();
    survives_kills_on(bench_with(Dpdk::Server, 1, TRUST), 100);
}
