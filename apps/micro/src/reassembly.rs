//! Reassembly: IPv4 datagrams of 2 and of 8 fragments, from a fragment in the burst to the freed
//! datagram.
//!
//! Only the router's work is timed: fragments are written between the timed parts. They come as one
//! datagram after the other, each in order or last fragment first, or `interleaved`: first all that
//! come first, then all that come second. xtask/peer/reassembly.c does the same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::packet::{Packet, Pool, PoolCache, PoolConfig, Pools};
use linerate_stack::reassembly::{Config, Outcome, Reassembler};
use linerate_wire::ipv4::Ipv4;

use super::random::mixed;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "reassembly.2",
        about: "put together and free datagrams of 2 fragments (704 + 696 bytes), in order, per \
            fragment",
        run: |row, run| timed(row, run, TWO, Order::Linear),
    },
    Row {
        name: "reassembly.2.reversed",
        about: "the same, the last fragment first",
        run: |row, run| timed(row, run, TWO, Order::Reversed),
    },
    Row {
        name: "reassembly.2.interleaved",
        about: "the same in order, fragments of 64 datagrams in turns",
        run: |row, run| timed(row, run, TWO.of(64), Order::Interleaved),
    },
    Row {
        name: "reassembly.8",
        about: "put together and free datagrams of 8 fragments (64 bytes each), in order, per \
            fragment",
        run: |row, run| timed(row, run, EIGHT, Order::Linear),
    },
    Row {
        name: "reassembly.8.reversed",
        about: "the same, the last fragment first",
        run: |row, run| timed(row, run, EIGHT, Order::Reversed),
    },
    Row {
        name: "reassembly.8.interleaved",
        about: "the same in order, fragments of 32 datagrams in turns",
        run: |row, run| timed(row, run, EIGHT.of(32), Order::Interleaved),
    },
];

/// How datagrams are cut, and how many of them are timed at once.
#[derive(Clone, Copy)]
struct Shape {
    datagrams: usize,
    fragments: usize,
    /// Bytes of payload of all fragments but the last, and of the last.
    each: usize,
    last: usize,
}

/// In bursts of 32 fragments.
const TWO: Shape = Shape {
    datagrams: 16,
    fragments: 2,
    each: 704,
    last: 696,
};
const EIGHT: Shape = Shape {
    datagrams: 4,
    fragments: 8,
    each: 64,
    last: 64,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Linear,
    Reversed,
    Interleaved,
}

/// Ethernet; and IPv4 without options.
const L3: usize = 14;
const HEADERS: usize = L3 + 20;
/// Sources that the datagrams are from.
const SOURCES: u64 = 256;

impl Shape {
    /// The shape with so many datagrams at once.
    const fn of(self, datagrams: usize) -> Self {
        Self { datagrams, ..self }
    }

    /// The datagram and fragment at `turn`.
    fn at(self, turn: usize, order: Order) -> (usize, usize) {
        let (datagram, fragment) = (turn / self.fragments, turn % self.fragments);
        match order {
            Order::Linear => (datagram, fragment),
            Order::Reversed => (datagram, self.fragments - 1 - fragment),
            Order::Interleaved => (turn % self.datagrams, turn / self.datagrams),
        }
    }

    /// Writes the fragment of a datagram; the payload does not matter.
    fn write(self, packet: &mut Packet, datagram: u64, fragment: usize) {
        let is_last = fragment + 1 == self.fragments;
        let len = if is_last { self.last } else { self.each };
        let fits = packet.set_len(HEADERS + len);
        assert!(fits, "a slot takes a fragment");
        let more = if is_last { 0 } else { 0x2000 };
        let cut = more | (fragment * self.each / 8) as u16;
        let data = packet.data_mut();
        data[..L3].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        let ip = &mut data[L3..];
        ip[..20].fill(0);
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&(datagram as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&cut.to_be_bytes());
        (ip[8], ip[9]) = (64, 17);
        let source = 0x0a00_0000 | (mixed(datagram) % SOURCES) as u32;
        ip[12..16].copy_from_slice(&source.to_be_bytes());
        ip[16..20].copy_from_slice(&[10, 1, 0, 1]);
        if let Ok(mut ip) = Ipv4::new_checked(ip) {
            ip.fill_checksum();
        }
    }
}

/// An lcore that only reassembles.
struct Bench {
    clock: Clock,
    pools: Pools,
    cache: PoolCache,
    reassembler: Reassembler,
    shape: Shape,
    order: Order,
    /// Datagrams so far.
    number: u64,
    fragments: Vec<Packet>,
}

impl Bench {
    fn write(&mut self) {
        let (shape, pool) = (self.shape, self.pools.primary());
        for turn in 0..shape.datagrams * shape.fragments {
            let (datagram, fragment) = shape.at(turn, self.order);
            let packet = self.cache.get(pool);
            let mut packet = packet.expect("the pool has more slots than one batch");
            shape.write(&mut packet, self.number + datagram as u64, fragment);
            self.fragments.push(packet);
        }
        self.number += shape.datagrams as u64;
    }

    /// Reassembles a batch; returns how many bytes came out.
    fn reassemble(&mut self, now_ns: u64) -> usize {
        let mut bytes = 0;
        for packet in self.fragments.drain(..) {
            match self
                .reassembler
                .push(packet, L3, 0, now_ns, &mut self.cache)
            {
                Outcome::Held => {}
                Outcome::Whole(packet) | Outcome::Dropped(_, packet) => {
                    bytes += packet.len();
                    self.cache.free_one(black_box(packet));
                }
            }
        }
        bytes
    }

    /// Nanoseconds for each fragment.
    fn run(&mut self, duration: Duration) -> f64 {
        let (began, clock) = (Instant::now(), self.clock);
        let (mut timed, mut fragments) = (0, 0);
        while began.elapsed() < duration {
            for _ in 0..64 {
                self.write();
                fragments += self.fragments.len();
                let start = clock.now();
                black_box(self.reassemble(clock.ns(start)));
                timed += clock.now() - start;
            }
        }
        clock.ns(timed) as f64 / fragments.max(1) as f64
    }
}

fn timed(row: &'static str, run: Run, shape: Shape, order: Order) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let pools = Pools::new(vec![pool]);
    let reassembler = Reassembler::new(&Config::default())?;
    let (ns, stats) = run.pinned(move |run| {
        let mut bench = Bench {
            clock: Clock::calibrate(),
            cache: PoolCache::new(pools.as_slice()),
            pools,
            reassembler,
            shape,
            order,
            number: 0,
            fragments: Vec::with_capacity(shape.datagrams * shape.fragments),
        };
        bench.run(run.duration / 10);
        (bench.run(run.duration), bench.reassembler.stats())
    })?;
    let bytes = shape.each * (shape.fragments - 1) + shape.last;
    Ok(Sample::new(row, ns, "ns", pages)
        .with("ns_per_datagram", ns * shape.fragments as f64)
        .with("payload_bytes", bytes)
        .with("fragments_at_once", shape.datagrams * shape.fragments)
        .with(
            "whole_percent",
            100.0 * stats.reassembled as f64 / stats.fragments as f64,
        ))
}
