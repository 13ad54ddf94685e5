//! A guest migrates from one QEMU to another, each at a `vhost` port of its own, while it answers
//! pings. What it answers comes from memory that a port wrote to: each request that either port
//! gave to it is answered, once, with the bytes that it had. A page that was written and not logged
//! would be an old one on the other side.

use crate::End;
use crate::machine::{Machine, Nic, PATIENCE};
use linerate_core::packet::Burst;
use linerate_core::port::Link;
use linerate_testkit::{Scratch, frame, guest, wait};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const GUEST: frame::Mac = [0x52, 0x54, 0, 0, 9, 2];
const HOST: frame::Mac = [2, 0, 0, 0, 9, 1];
const UNDER_WAY: usize = 48;

/// Something keeps the guest's memory changing, so that there are several rounds.
const SCRIPT: &str = "ip link set eth0 up
ip addr add 10.9.0.2/24 dev eth0
arp -s 10.9.0.1 02:00:00:00:09:01
echo READY > /dev/ttyS0
while :; do head -c 3000000 /dev/urandom > /noise; done";

/// What goes to the guest, by whichever port it is at, and what of it was answered.
struct Pings {
    next: u64,
    open: HashSet<u64>,
    answered: u64,
    announced: u64,
}

fn payload(number: u64) -> Vec<u8> {
    let len = 8 + number as usize * 37 % 1400;
    let pattern = (0..).map(|at: u64| (number.wrapping_mul(29) + at) as u8);
    number
        .to_be_bytes()
        .into_iter()
        .chain(pattern)
        .take(len)
        .collect()
}

impl Pings {
    fn send(&mut self, end: &mut End) {
        let mut burst = Burst::new();
        while self.open.len() + burst.len() < UNDER_WAY && burst.len() < 8 {
            let number = self.next + burst.len() as u64;
            let echo = frame::echo(7, number as u16, &payload(number));
            let packet = frame::V4::new("10.9.0.1", "10.9.0.2", 1).packet(&echo);
            let bytes = frame::ethernet(GUEST, HOST, 0x0800, &packet);
            burst.push(end.cache.copy_of(&bytes).unwrap()).unwrap();
        }
        let taken = end.queues.tx[0].tx_burst(&mut burst, &mut end.cache) as u64;
        self.open.extend(self.next..self.next + taken);
        self.next += taken;
        end.cache.free(&mut burst);
    }

    fn receive(&mut self, end: &mut End) {
        let mut burst = Burst::new();
        end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
        for packet in burst.iter() {
            let data = packet.data();
            if [[0x80, 0x35], [8, 6]].contains(&[data[12], data[13]]) && data[6..12] == GUEST {
                self.announced += 1;
            }
            if data[12..14] != [8, 0] || data[23] != 1 || data[34] != 0 {
                continue;
            }
            let len = 20 + 8;
            let number = u64::from_be_bytes(data[14 + len..][..8].try_into().unwrap());
            assert_eq!(data[14 + len..], payload(number), "of request {number}");
            assert!(
                self.open.remove(&number),
                "request {number} was answered twice"
            );
            self.answered += 1;
        }
        end.cache.free(&mut burst);
    }
}

fn migrates(device: &str) {
    let scratch = Scratch::new();
    let root = scratch.path().join("initramfs");
    let Some(kernel) = guest::alone(&["virtio_pci", "virtio_net"], SCRIPT, &root) else {
        return;
    };
    let kernel = kernel.display().to_string();
    let port = |name: &str| {
        End::new(
            &format!("vhost:{}", scratch.file(&format!("{name}.socket"))),
            1,
        )
    };
    let (mut from, mut to) = (port("from"), port("to"));
    let boot = |name: &str, more: &[&str]| {
        let nic = Nic {
            socket: scratch.file(&format!("{name}.socket")),
            options: format!(",mac={}{device}", frame::text(GUEST)),
        };
        Machine::boot(&scratch, &kernel, name, &[nic], more)
    };
    let mut source = boot("from", &[]);
    source.wait("READY");
    let mut pings = Pings {
        next: 0,
        open: HashSet::new(),
        answered: 0,
        announced: 0,
    };
    let until =
        |from: &mut End, to: &mut End, pings: &mut Pings, done: &mut dyn FnMut(&Pings) -> bool| {
            let start = Instant::now();
            while !done(pings) {
                assert!(start.elapsed() < PATIENCE, "{} answered", pings.answered);
                if to.port.link() == Link::Up {
                    pings.send(to);
                } else if from.port.link() == Link::Up {
                    pings.send(from);
                }
                pings.receive(from);
                pings.receive(to);
            }
        };
    until(&mut from, &mut to, &mut pings, &mut |pings| {
        pings.answered > 500
    });

    let uri = format!("unix:{}", scratch.file("migration"));
    let mut target = boot("to", &["-incoming", &uri]);
    wait("the other QEMU", || {
        target.lives();
        std::fs::exists(&target.socket).unwrap() && std::fs::exists(&uri[5..]).unwrap()
    });
    source.ask(
        "{\"execute\": \"migrate-set-parameters\", \"arguments\": {\"max-bandwidth\": 30000000, \
         \"downtime-limit\": 3000}}",
    );
    source.migrate(&uri);
    let mut looked = Instant::now();
    let mut logged = false;
    let mut shown = |end: &End| {
        let facts = end.port.info().facts;
        logged |= facts.contains(&("dirty pages", "logged".to_owned()));
    };
    let before = pings.answered;
    let state = loop {
        until(&mut from, &mut to, &mut pings, &mut |_| {
            looked.elapsed() > Duration::from_millis(200)
        });
        looked = Instant::now();
        shown(&from);
        let state = source.migrated();
        if state.contains("\"status\": \"completed\"") {
            break state;
        }
        target.lives();
        source.lives();
    };
    let meanwhile = pings.answered - before;
    eprintln!("{meanwhile} answers meanwhile, {}", state);
    let goal = pings.answered + 1000;
    until(&mut from, &mut to, &mut pings, &mut |pings| {
        pings.answered > goal
    });
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) && !pings.open.is_empty() {
        pings.receive(&mut to);
    }
    let dropped = |end: &End| {
        end.port
            .stats()
            .tx_drops
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    let dropped = dropped(&from) + dropped(&to);
    eprintln!(
        "{} sent, {} answered, {dropped} had no link",
        pings.next, pings.answered
    );
    assert_eq!(pings.open.len() as u64, dropped, "{:?}", pings.open);
    assert!(logged, "the log was on");
    assert!(pings.announced > 0, "the guest was announced");
    let running = target.ask("{\"execute\": \"query-status\"}");
    assert!(running.contains("\"running\": true"), "{running}");
    assert_eq!(from.port.stats().violations, []);
    assert_eq!(to.port.stats().violations, []);
    drop((source, target));
    from.finish();
    to.finish();
}

#[test]
#[ignore = "long: boots a guest under emulation"]
fn a_guest_migrates_while_it_is_pinged() {
    migrates("");
}

#[test]
#[ignore = "long: boots a guest under emulation"]
fn a_guest_with_packed_rings_migrates_while_it_is_pinged() {
    migrates(",packed=on");
}
