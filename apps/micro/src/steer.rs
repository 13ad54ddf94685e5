//! `linerate steer`: what a distributor does for a packet, and how a port is chosen whose answers
//! come home.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use linerate_appliance::error::Error;
use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_core::run::{Egress, Inlet, TxPath, Worker};
use linerate_dispatch::Owners;
use linerate_stack::reassembly;
use linerate_steer::steering::map::MapConfig;
use linerate_steer::steering::note::{MESSAGE_BYTES, Note, write_key};
use linerate_steer::steering::plan::{Arrival, Member, Plan, PortPlan};
use linerate_steer::steering::stage::Nobody;
use linerate_steer::steering::{Setup, Steered};
use linerate_tables::exact::Seed;
use linerate_tables::rss::{Inverse, MICROSOFT_KEY, PortField, PortSet, Reta, Toeplitz};
use linerate_wire::{FlowKey, FlowKey4, protocol, tcp};

use super::random::{below, mixed};
use super::shared::Rounds;
use super::{Row, Run, Sample};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "steer.hop",
        about: "a distributor's packet: ring in, parse, hash, map of 1 M connections, ring out",
        run: |row, run| hop(row, run, true),
    },
    Row {
        name: "steer.hop.hash",
        about: "the same without a map: owners by hash alone",
        run: |row, run| hop(row, run, false),
    },
    Row {
        name: "steer.connect",
        about: "a free port whose answers come to one of 8 queues, half of the ports in use",
        run: connect,
    },
];

/// Lcores that own connections.
const OWNERS: u16 = 4;
/// Entries of the map.
const CONNECTIONS: u64 = 1_000_000;
/// Packets of a round.
const BURST: usize = Burst::CAPACITY;
/// Bytes of an Ethernet, an IPv4 and a TCP header, and of the shortest frame.
const HEADERS: usize = 54;
const FRAME: usize = 60;

/// The 4-tuple of a connection, as packets from the network have it.
fn key(number: u64) -> FlowKey4 {
    let (ends, ports) = (mixed(number), mixed(!number));
    let src = ((ends >> 32) as u32).to_be_bytes();
    FlowKey4::new(
        src,
        [10, 0, 0, 1],
        ports as u16,
        (ports >> 16) as u16,
        protocol::TCP,
    )
}

/// A frame of an acknowledgement, whose addresses and ports are written later.
fn frame() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol::TCP]);
    frame[34..HEADERS].copy_from_slice(&tcp::header(0, 0, 1, 1, tcp::flag::ACK));
    frame
}

/// A distributor, with what the rest of the machine does to it.
struct Bench {
    worker: Worker<Steered<Nobody>>,
    clock: Clock,
    pool: Pool,
    cache: PoolCache,
    /// The port's queue, and an owner's ring.
    port: spsc::Producer<linerate_core::packet::Packet>,
    owner: spsc::Producer<linerate_core::packet::Packet>,
    /// The rings of the owners.
    taken: Vec<spsc::Consumer<linerate_core::packet::Packet>>,
    frame: [u8; FRAME],
}

impl Bench {
    fn new(connections: usize) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("bench", 4096))?;
        let clock = Clock::calibrate();
        let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let secret = *MICROSOFT_KEY.first_chunk().unwrap_or(&[0; 40]);
        let home = OWNERS as Member;
        let owners = Owners::dealt(OWNERS.into());
        let port = PortPlan::software(&secret, &owners, Arrival::One(home))?;
        let map = MapConfig {
            connections4: connections.max(1),
            connections6: 1,
            seed: Seed(1),
            ..MapConfig::default()
        };
        let setup = Setup {
            plan: Arc::new(Plan::new(vec![port], home)),
            me: home,
            outlets: (1..=OWNERS + 1).collect(),
            map: (connections > 0).then_some(map),
            reassembly: reassembly::Config::default(),
            away: 64,
            isa: Isa::detect(),
            clock,
        };
        let stage = Steered::new(&setup, 1, Nobody, &mut egress);
        let stage = stage.map_err(std::io::Error::other)?;
        let (mut worker, handle) = Worker::new("distributor", stage, egress, clock)?;
        let (port, taker) = spsc::ring(2 * BURST);
        worker.add_inlet(Inlet::ring(0, 0, taker));
        let (owner, taker) = spsc::ring(2 * BURST);
        worker.add_inlet(Inlet::ring(OWNERS + 1, 0, taker));
        let mut taken = Vec::new();
        for outlet in 1..=OWNERS {
            let (putter, taker) = spsc::ring(1024);
            let bell = handle.doorbell().clone();
            worker.set_outlet(outlet, Some(TxPath::Ring(putter, bell)));
            taken.push(taker);
        }
        let cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut bench = Self {
            worker,
            clock,
            pool,
            cache,
            port,
            owner,
            taken,
            frame: frame(),
        };
        let mut number = 0;
        while number < connections as u64 {
            let mut burst = Burst::new();
            while burst.room() > 0 && number < connections as u64 {
                let mut bytes = [0; MESSAGE_BYTES];
                let len = write_key(&FlowKey::V4(key(number)), &mut bytes);
                let packet = bench.cache.copy_of(&bytes[..len]);
                let mut packet = packet.ok_or_else(|| std::io::Error::other("no free slot"))?;
                packet.set_user(Note::Pin {
                    owner: (number % u64::from(OWNERS)) as Member,
                    port: 0,
                    moves: 1,
                    again: false,
                });
                // There is room.
                let _ = burst.push(packet);
                number += 1;
            }
            bench.owner.push_burst(&mut burst);
            bench.worker.round();
            bench.drain();
        }
        Ok(bench)
    }

    /// What the owners do.
    fn drain(&mut self) -> usize {
        let mut burst = Burst::new();
        let mut count = 0;
        for ring in &mut self.taken {
            while ring.pop_burst(&mut burst, BURST) > 0 {
                count += burst.len();
                self.cache.free(&mut burst);
            }
        }
        count
    }

    /// Ticks of one round with a burst of packets, of connections with these numbers.
    fn round(&mut self, numbers: impl Iterator<Item = u64>) -> u64 {
        let mut burst = Burst::new();
        self.cache.fill(&self.pool, &mut burst, BURST);
        for (packet, number) in burst.iter_mut().zip(numbers) {
            packet.set_data(&self.frame);
            let key = key(number).0;
            packet.data_mut()[26..38].copy_from_slice(&key[..12]);
        }
        self.port.push_burst(&mut burst);
        let began = self.clock.now();
        black_box(self.worker.round());
        let ticks = self.clock.now() - began;
        self.drain();
        ticks
    }
}

/// TSC cycles of a packet in a distributor: the median of rounds, each with packets of connections
/// drawn from all.
fn hop(row: &'static str, run: Run, mapped: bool) -> Result<Sample, Error> {
    let all = if run.quick { 10_000 } else { CONNECTIONS };
    let hz = Clock::calibrate().hz();
    let (judged, entries) = run.pinned(move |run| {
        let mut bench = Bench::new(if mapped { all as usize } else { 0 })?;
        let began = Instant::now();
        let mut rounds = Rounds::new(bench.clock, 1 << 20);
        let mut drawn = 0..;
        while !rounds.has_window() || began.elapsed() < run.duration && !rounds.is_full() {
            let numbers = drawn.by_ref().take(BURST).map(|number| below(number, all));
            rounds.push(bench.round(numbers));
        }
        let entries = bench
            .worker
            .stage
            .steering()
            .map()
            .map_or(0, |map| map.len());
        Ok::<_, Error>((rounds.judge(), entries))
    })??;
    let cycles = |ticks: u64| ticks as f64 / BURST as f64;
    let median = cycles(judged.median);
    Ok(Sample::new(row, median, "cycles", "as the machine gives")
        .with("of_all", cycles(judged.of_all))
        .with("left_out", judged.left_out)
        .with("entries", entries)
        .with("burst", BURST)
        .with("clock_mhz", hz / 1e6))
}

/// The queues of `steer.connect`, and its table.
const QUEUES: u16 = 8;
const RETA: usize = 128;

/// Nanoseconds for a port: of each tuple another half of the ports is in use.
fn connect(row: &'static str, run: Run) -> Result<Sample, Error> {
    let rss = Toeplitz::new(&MICROSOFT_KEY)?;
    let reta = Reta::round_robin(RETA, QUEUES)?;
    let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta)?;
    let mut used = PortSet::new();
    (0..=u16::MAX)
        .filter(|port| mixed(u64::from(*port) | 1 << 32) & 1 == 0)
        .for_each(|port| {
            used.insert(port);
        });
    let in_use = used.len();
    let (ns, trial_ns, wrong) = run.pinned(move |run| {
        let (mut asked, mut wrong) = (0_u64, 0_u64);
        let ns = run.time(|| {
            asked += 1;
            let (answers, queue) = (key(asked), (asked % u64::from(QUEUES)) as u16);
            let ports = inverse.ports(black_box(&answers.0[..12]), queue);
            let port = ports.ok().and_then(|ports| {
                let free = ports.range(1024..=u16::MAX).excluding(&used);
                free.pick(mixed(asked))
            });
            wrong += u64::from(black_box(port).is_none_or(|port| used.contains(port)));
            1
        });
        // The same by trial, with our own hash.
        let trial_ns = run.time(|| {
            asked += 1;
            let (mut answers, queue) = (key(asked), (asked % u64::from(QUEUES)) as u16);
            let mut tries = asked << 16;
            loop {
                tries += 1;
                let port = mixed(tries) as u16 | 1024;
                if used.contains(port) {
                    continue;
                }
                answers.0[10..12].copy_from_slice(&port.to_be_bytes());
                if reta.queue(rss.hash(black_box(&answers.0[..12]))) == queue {
                    break;
                }
            }
            black_box(answers);
            1
        });
        (ns, trial_ns, wrong)
    })?;
    Ok(Sample::new(row, ns, "ns", "4 KiB")
        .with("queues", QUEUES)
        .with("in_use", in_use)
        .with("wrong", wrong)
        .with("by_trial_ns", trial_ns))
}
