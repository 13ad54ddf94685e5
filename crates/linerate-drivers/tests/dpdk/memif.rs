//! memif: with DPDK's `net_memif` at the other end, in both roles.

use crate::suite::{self, End, PATIENCE};
use crate::testpmd;
use linerate_core::packet::Pools;
use linerate_core::port::Link;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use linerate_testkit::process::Running;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Frames under way: as many as a ring has room for, so that testpmd, which drops what it cannot
/// send, never has to.
const WINDOW: u64 = 1000;

/// What makes a client give its pool to the server.
const TRUST: &str = ",trust=full";

/// Which end DPDK is.
#[derive(Clone, Copy, PartialEq)]
enum Dpdk {
    Server,
    Client,
}

struct Bench {
    folder: Scratch,
    dpdk: Dpdk,
    queues: u16,
    pools: Pools,
    end: End,
}

impl Bench {
    fn new(dpdk: Dpdk, queues: u16) -> Self {
        Self::with(dpdk, queues, "")
    }

    /// With more options of our port.
    fn with(dpdk: Dpdk, queues: u16, options: &str) -> Self {
        let folder = Scratch::new();
        let socket = folder.file("s");
        let role = match dpdk {
            Dpdk::Server => "client",
            Dpdk::Client => "server",
        };
        let spec = format!("memif:{socket},role={role},queues={queues},secret=told{options}");
        let port = Drivers::new().open(&spec).unwrap();
        let pools = suite::pools_for(&[&*port]);
        let mut end = End::new(port, &pools);
        end.start(0, queues, &pools);
        Self {
            folder,
            dpdk,
            queues,
            pools,
            end,
        }
    }

    fn peer(&self) -> Option<Running> {
        let role = match self.dpdk {
            Dpdk::Server => "server",
            Dpdk::Client => "client",
        };
        let socket = self.folder.file("s");
        if self.dpdk == Dpdk::Server {
            // DPDK does not take over what a killed one has left.
            let _ = std::fs::remove_file(&socket);
        }
        let device = format!(
            "net_memif0,role={role},id=0,socket={socket},socket-abstract=no,secret=told,rsize=10"
        );
        testpmd::echo(&device, self.queues)
    }

    /// `peer` is to be seen in what goes wrong.
    fn wait_link(&mut self, up: bool, peer: &Running) {
        let start = Instant::now();
        while (self.end.port.link() == Link::Up) != up {
            assert!(
                start.elapsed() < PATIENCE,
                "{:?}: {}{}",
                self.end.port.link(),
                peer.stdout.text(),
                peer.stderr.text()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends so many frames and waits until each is back, once, whole, and (in one queue) in order.
    fn exchange(&mut self, frames: u64, bytes: usize, peer: &Running) {
        // A jumbo frame takes several descriptors.
        let window = WINDOW / bytes.div_ceil(2048) as u64;
        let (mut sent, mut back) = (0, HashSet::new());
        let mut began = Instant::now();
        while (back.len() as u64) < frames {
            let room = window - (sent - back.len() as u64);
            let count = room.min(frames - sent).min(32) as usize;
            if count > 0 {
                sent += self.end.send_burst(sent, count, bytes, &self.pools);
            }
            self.end.flush();
            for (number, len) in self.end.receive() {
                assert_eq!(len, bytes);
                let next = back.len() as u64;
                assert!(
                    number == next || self.queues > 1,
                    "{number} where {next} was next"
                );
                assert!(back.insert(number), "{number} came twice");
                began = Instant::now();
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{} of {sent} came back: {:?} {}",
                back.len(),
                self.end.port.stats(),
                peer.stdout.text()
            );
        }
    }

    /// Counters agree, and every slot is home.
    fn finish(mut self) {
        self.end.check_stats();
        let stats = self.end.port.stats();
        assert!(stats.violations.is_empty(), "{stats:?}");
        self.end.stop();
        drop(self.end);
        suite::check_home(&self.pools);
    }
}

fn echoes(dpdk: Dpdk, queues: u16, frames: u64) {
    let _turn = testpmd::turn();
    echoes_on(Bench::new(dpdk, queues), frames);
}

fn echoes_on(mut bench: Bench, frames: u64) {
    let Some(peer) = bench.peer() else { return };
    bench.wait_link(true, &peer);
    let facts = bench.end.port.info().facts;
    let who = facts.iter().find(|(name, _)| *name == "peer");
    assert!(who.unwrap().1.starts_with("DPDK"), "{facts:?}");
    bench.exchange(frames, 60, &peer);
    bench.exchange(frames / 10, 1514, &peer);
    bench.exchange(frames / 100, 9018, &peer);
    drop(peer);
    bench.finish();
}

/// The peer is killed in the middle of traffic, several times.
fn survives_kills(dpdk: Dpdk, kills: usize) {
    let _turn = testpmd::turn();
    survives_kills_on(Bench::new(dpdk, 1), kills);
}

fn survives_kills_on(mut bench: Bench, kills: usize) {
    for kill in 0..kills {
        let Some(peer) = bench.peer() else { return };
        bench.wait_link(true, &peer);
        bench.exchange(2000, 60, &peer);
        // Some are under way when it dies.
        for number in 0..(kill as u64 * 37) % 300 {
            bench.end.send(number, 60, &bench.pools);
        }
        peer.signal(rustix::process::Signal::KILL);
        bench.wait_link(false, &peer);
        while !bench.end.receive().is_empty() {}
    }
    bench.finish();
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
        echoes_on(Bench::with(Dpdk::Server, queues, TRUST), 20_000);
    }
}

#[test]
fn memif_without_a_copy_survives_kills_of_a_dpdk_server() {
    let _turn = testpmd::turn();
    survives_kills_on(Bench::with(Dpdk::Server, 1, TRUST), 2);
}

#[test]
fn memif_survives_kills_of_a_dpdk_server() {
    survives_kills(Dpdk::Server, 2);
}

#[test]
fn memif_survives_kills_of_a_dpdk_client() {
    survives_kills(Dpdk::Client, 2);
}

#[test]
#[ignore = "long: ten million frames"]
fn memif_with_dpdk_moves_ten_million_frames() {
    echoes(Dpdk::Server, 1, 10_000_000);
    echoes(Dpdk::Client, 1, 10_000_000);
    let _turn = testpmd::turn();
    echoes_on(Bench::with(Dpdk::Server, 1, TRUST), 10_000_000);
}

#[test]
#[ignore = "long: a hundred kills"]
fn memif_survives_a_hundred_kills() {
    survives_kills(Dpdk::Server, 50);
    survives_kills(Dpdk::Client, 50);
    let _turn = testpmd::turn();
    survives_kills_on(Bench::with(Dpdk::Server, 1, TRUST), 50);
}
