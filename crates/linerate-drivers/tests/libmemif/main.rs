//! memif with libmemif, VPP's library, at the other end: in both roles, polling and asleep. Its
//! peer, `peer.c`, is compiled here; skipped where the C compiler does not find libmemif.
//!
//! Neither Debian nor a release of its own has libmemif: docs/ports.md says how to build it.
#![allow(missing_docs, clippy::unwrap_used)]

/// Frames with numbers, and a port in the hands of a test.
#[allow(dead_code)]
#[path = "../conformance/suite.rs"]
mod suite;

use crate::suite::{End, PATIENCE};
use linerate_core::packet::Pools;
use linerate_core::port::{Link, SleepOn};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::nap_on;
use linerate_drivers::Drivers;
use linerate_testkit::process::Running;
use linerate_testkit::{Random, Scratch, skip};
use rustix::process::Signal;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Frames under way: as many as a ring has room for.
const WINDOW: u64 = 1000;

/// One after the other: each keeps a CPU busy.
static TURN: Mutex<()> = Mutex::new(());

/// The program, or a skipped test.
fn program(folder: &Scratch) -> Option<String> {
    let mut probe = Command::new("cc");
    let probe = probe.args(["-x", "c", "-", "-lmemif", "-o", "/dev/null"]);
    let probe = probe.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let found = probe.and_then(|mut child| {
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"#include <libmemif.h>\nint main(void) { return 0; }\n")?;
        drop(input);
        child.wait()
    });
    if !found.is_ok_and(|status| status.success()) {
        skip("needs cc and libmemif (CPATH, LIBRARY_PATH and LD_LIBRARY_PATH may lead to it)");
        return None;
    }
    let (source, program) = (
        folder.write("peer.c", include_str!("peer.c")),
        folder.file("p"),
    );
    let mut cc = Command::new("cc");
    cc.args([
        "-O2", "-Wall", "-Wextra", "-Werror", "-o", &program, &source, "-lmemif",
    ]);
    let done = cc.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    Some(program)
}

/// How the peer is: its role, how it sends back, how it waits.
#[derive(Clone, Copy, Debug)]
struct Peer {
    role: &'static str,
    way: &'static str,
    waits: &'static str,
}

const fn peer(role: &'static str, way: &'static str, waits: &'static str) -> Peer {
    Peer { role, way, waits }
}

/// A port of ours that the program is to meet.
struct Bench {
    folder: Scratch,
    program: String,
    peer: Peer,
    queues: u16,
    pools: Pools,
    end: End,
    sent: u64,
}

impl Bench {
    fn new(peer: Peer, queues: u16) -> Option<Self> {
        let folder = Scratch::new();
        let program = program(&folder)?;
        let pools = suite::pools(false);
        let role = match peer.role {
            "master" => "client",
            _ => "server",
        };
        let socket = folder.file("s");
        let spec = format!("memif:{socket},role={role},queues={queues},secret=told");
        let mut end = End::new(Drivers::new().open(&spec).unwrap(), &pools);
        end.start(0, queues, &pools);
        Some(Self {
            folder,
            program,
            peer,
            queues,
            pools,
            end,
            sent: 0,
        })
    }

    /// The program as it is told to be, connected.
    fn start(&mut self) -> Running {
        let (socket, queues) = (self.folder.file("s"), self.queues.to_string());
        let Peer { role, way, waits } = self.peer;
        if role == "master" {
            // libmemif does not take over what a killed one has left.
            let _ = std::fs::remove_file(&socket);
        }
        let mut command = Command::new(&self.program);
        let peer = Running::start(command.args([role, &socket, &queues, way, waits]));
        self.wait_link(true, &peer);
        let facts = self.end.port.info().facts;
        let who = facts.iter().find(|(name, _)| *name == "peer");
        assert!(who.unwrap().1.starts_with("libmemif peer"), "{facts:?}");
        peer
    }

    fn wait_link(&mut self, up: bool, peer: &Running) {
        let began = Instant::now();
        while (self.end.port.link() == Link::Up) != up {
            let said = (peer.stdout.text(), peer.stderr.text());
            assert!(
                began.elapsed() < PATIENCE,
                "{:?}: {said:?}",
                self.end.port.link()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends so many frames and waits until each is back, once, whole, and in order on its queue.
    fn exchange(&mut self, frames: u64, bytes: usize, peer: &Running) {
        let window = WINDOW / bytes.div_ceil(2048) as u64;
        let (first, until) = (self.sent, self.sent + frames);
        let queues = u64::from(self.queues);
        let mut next: Vec<u64> = (0..queues).map(|queue| queue + first).collect();
        let (mut back, mut moved) = (0, Instant::now());
        while back < frames {
            let room = window - (self.sent - first - back);
            // One burst goes on one queue; a frame's queue follows from its number.
            if room > 0 && self.sent < until {
                self.sent += u64::from(self.end.send(self.sent, bytes, &self.pools));
            }
            self.end.flush();
            for (number, len) in self.end.receive() {
                let next = &mut next[((number - first) % queues) as usize];
                assert_eq!((number, len), (*next, bytes), "once, whole and in order");
                *next += queues;
                back += 1;
                moved = Instant::now();
            }
            assert!(
                moved.elapsed() < PATIENCE,
                "{back} of {} came back: {:?} {:?}",
                self.sent - first,
                self.end.port.stats(),
                (peer.stdout.text(), peer.stderr.text())
            );
        }
    }

    /// One frame at a time, there and back, with both ends asleep in between. A notification that
    /// is left out or lost ends it, for nobody looks without one.
    fn ping_pong(&mut self, frames: u64) {
        let bell = Doorbell::new().unwrap();
        for _ in 0..frames {
            assert!(self.end.send(self.sent, 60, &self.pools));
            self.end.flush();
            let (mut back, began) = (Vec::new(), Instant::now());
            while back.is_empty() {
                let on = self.end.queues.rx[0].sleep_on();
                assert!(matches!(on, SleepOn::Fd(_)), "nothing to sleep on");
                // The last look before it sleeps, as a worker's.
                self.end.flush();
                back = self.end.receive();
                if !back.is_empty() {
                    break;
                }
                nap_on(&bell, &[on], PATIENCE, PATIENCE);
                back = self.end.receive();
                assert!(
                    began.elapsed() < PATIENCE,
                    "nothing woke it, or nothing came"
                );
            }
            assert_eq!(back, [(self.sent, 60)]);
            self.sent += 1;
        }
    }

    /// Counters agree, and every slot is home.
    fn finish(mut self) {
        self.end.check_stats();
        let stats = self.end.port.stats();
        assert!(stats.violations.is_empty(), "{stats:?}");
        eprintln!("{:?}: {} notifications", self.peer, stats.notifications);
        self.end.stop();
        drop(self.end);
        suite::check_home(&self.pools);
    }
}

fn echoes(peer: Peer, queues: u16, frames: u64) {
    let _turn = TURN.lock().unwrap_or_else(|lock| lock.into_inner());
    let Some(mut bench) = Bench::new(peer, queues) else {
        return;
    };
    let running = bench.start();
    bench.exchange(frames, 60, &running);
    bench.exchange(frames / 10, 1514, &running);
    // Several times round a ring of 1024.
    bench.exchange((frames / 100).max(1000), 9018, &running);
    drop(running);
    bench.finish();
}

#[test]
fn libmemif_polls_as_master() {
    echoes(peer("master", "copy", "polling"), 1, 20_000);
    echoes(peer("master", "copy", "polling"), 3, 20_000);
}

#[test]
fn libmemif_polls_as_slave() {
    echoes(peer("slave", "copy", "polling"), 1, 20_000);
    echoes(peer("slave", "copy", "polling"), 3, 20_000);
}

/// Its buffers change rings with each frame.
#[test]
fn libmemif_sends_the_same_buffers_back() {
    echoes(peer("slave", "swap", "polling"), 1, 20_000);
    echoes(peer("slave", "swap", "sweep"), 1, 20_000);
}

#[test]
fn libmemif_sleeps_under_load() {
    echoes(peer("master", "copy", "sweep"), 2, 20_000);
    echoes(peer("slave", "copy", "sweep"), 2, 20_000);
}

fn wakes(role: &'static str, frames: u64) {
    let _turn = TURN.lock().unwrap_or_else(|lock| lock.into_inner());
    let Some(mut bench) = Bench::new(peer(role, "copy", "interrupt"), 1) else {
        return;
    };
    let running = bench.start();
    bench.ping_pong(frames);
    let notified = bench.end.port.stats().notifications;
    assert!(
        notified > frames / 2,
        "{notified} notifications for {frames} frames"
    );
    drop(running);
    bench.finish();
}

#[test]
fn both_sleep_and_wake_each_other_with_libmemif_as_master() {
    wakes("master", 2000);
}

#[test]
fn both_sleep_and_wake_each_other_with_libmemif_as_slave() {
    wakes("slave", 2000);
}

/// It is killed in the middle of traffic, again and again.
fn survives_kills(peer: Peer, kills: usize) {
    let _turn = TURN.lock().unwrap_or_else(|lock| lock.into_inner());
    let Some(mut bench) = Bench::new(peer, 1) else {
        return;
    };
    let mut random = Random::new(u64::from(std::process::id()));
    for _ in 0..kills {
        let running = bench.start();
        bench.exchange(500, 60, &running);
        let (began, life) = (Instant::now(), random.below(3000));
        while began.elapsed() < Duration::from_micros(life) {
            bench.sent += u64::from(bench.end.send(bench.sent, 60, &bench.pools));
            bench.end.flush();
            bench.end.receive();
        }
        running.signal(Signal::KILL);
        bench.wait_link(false, &running);
        while !bench.end.receive().is_empty() {}
    }
    bench.finish();
}

#[test]
fn a_port_survives_kills_of_libmemif() {
    survives_kills(peer("master", "copy", "polling"), 3);
    survives_kills(peer("slave", "swap", "sweep"), 3);
}

#[test]
#[ignore = "long: ten million frames with libmemif"]
fn libmemif_moves_ten_million_frames() {
    echoes(peer("master", "copy", "polling"), 1, 10_000_000);
    echoes(peer("slave", "swap", "polling"), 1, 10_000_000);
}

#[test]
#[ignore = "long: a hundred thousand wake-ups each way with libmemif"]
fn libmemif_and_a_port_never_miss_a_wake_up() {
    wakes("master", 100_000);
    wakes("slave", 100_000);
}

#[test]
#[ignore = "long: libmemif is killed a hundred times"]
fn a_port_survives_a_hundred_kills_of_libmemif() {
    survives_kills(peer("master", "copy", "polling"), 50);
    survives_kills(peer("slave", "swap", "sweep"), 50);
}
