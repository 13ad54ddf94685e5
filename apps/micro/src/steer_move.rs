//! Connections that move from lcore to lcore while data flows: how long each stands still, and what
//! is lost.
//!
//! Two lcores with stacks have a CPU each, joined by rings; the peer works in turns with the first,
//! which is the home of all. The peer keeps data under way on every connection and compares what
//! comes back. A connection stands still from the moment that its user gives it away until the
//! other lcore's user is told of its next data. That is what the two lcores have to do before they
//! look into their rings, and the peer's turn: so it grows with the connections that are busy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use linerate_appliance::error::Error;
use linerate_core::env::{Clock, Isa, Lcore};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, spsc};
use linerate_core::run::{Egress, Inlet, NEVER, Stage, TxPath, Worker};
use linerate_dispatch::Owners;
use linerate_stack::reassembly;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_stack::tcp::secret::Secret;
use linerate_steer::app::{self, App};
use linerate_steer::core::{StackHost, User, mesh};
use linerate_steer::steering::map::MapConfig;
use linerate_steer::steering::plan::{Arrival, Member, Plan, PortPlan, secret};
use linerate_steer::steering::{Setup, Steered};

use super::probe::pause;
use super::random::mixed;
use super::tcp::{self, address, lost};
use super::{Row, Run, Sample};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "steer.move.pause",
        about: "how long a connection stands still that moves to another lcore under load, p99",
        run: |row, run| {
            let moved = moves(run)?;
            let us = |of: usize| moved.pauses_us[moved.pauses_us.len() * of / 1000];
            let sample = Sample::new(row, us(990), "us", "as the machine gives");
            let sample = sample.with("connections", CONNECTIONS);
            let sample = sample.with("p50_us", us(500)).with("p999_us", us(999));
            Ok(sample.with("moves", moved.pauses_us.len()))
        },
    },
    Row {
        name: "steer.move.lost",
        about: "bytes lost by connections that move to another lcore under load",
        run: |row, run| {
            let moved = moves(run)?;
            let sample = Sample::new(row, moved.lost as f64, "bytes", "as the machine gives");
            let sample = sample.with("moves", moved.pauses_us.len());
            Ok(sample.with("bytes", moved.bytes))
        },
    },
];

const MOVES: usize = 10_000;
const CONNECTIONS: usize = 16;
/// Bytes under way on each.
const UNDER_WAY: u64 = 2 * 1448;
const PORT: u16 = 7;
const OWNERS: Member = 2;
/// Bytes that are read at a time.
const CHUNK: usize = 4096;
/// Turns in which what is under way has to have come.
const PATIENCE: usize = 100_000;

/// What came of it.
struct Moved {
    /// Sorted.
    pauses_us: Vec<f64>,
    lost: u64,
    bytes: u64,
}

/// What the thread that measures and the users of the lcores tell each other.
#[derive(Default)]
struct Orders {
    /// By lcore: a number by which it chooses a connection to give away; 0: none.
    wanted: [AtomicU64; 2],
    /// When one was given away, and when it had data at the other lcore: ticks, 0: not yet.
    began: AtomicU64,
    first: AtomicU64,
    /// Times that an lcore had no connection that could go.
    stayed: AtomicU64,
    accepted: AtomicUsize,
}

/// Sends back what comes.
struct Echo {
    clock: Clock,
    me: usize,
    orders: Arc<Orders>,
    all: Vec<SocketId>,
    /// One that has come and has had no data yet.
    came: Option<SocketId>,
    buffer: Box<[u8]>,
}

impl Echo {
    /// Gives a connection away.
    fn part(&mut self, io: &mut Io<'_>, drawn: u64) {
        if self.all.is_empty() {
            self.orders.stayed.fetch_add(1, Ordering::Release);
            return;
        }
        let id = self.all.swap_remove(drawn as usize % self.all.len());
        self.orders.began.store(self.clock.now(), Ordering::Relaxed);
        if io.move_to(id, 1 - self.me as Member).is_err() {
            self.orders.stayed.fetch_add(1, Ordering::Release);
        }
    }

    fn begin(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.all.push(id);
        // It is there.
        let _ = io.register(id, interest::READ, 1);
    }
}

impl App for Echo {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), app::Error> {
        app::listen(io, Listen::on(PORT)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.begin(io, id);
                        self.orders.accepted.fetch_add(1, Ordering::Release);
                    }
                }
                Source::Connection(id) => {
                    if self.came == Some(id) {
                        self.came = None;
                        // Behind the time at which it began, which the other lcore has stored.
                        self.orders.first.store(self.clock.now(), Ordering::Release);
                    }
                    while let Ok(count @ 1..) = io.read(id, &mut self.buffer) {
                        // There is room for all that is under way.
                        let _ = io.write(id, &self.buffer[..count]);
                    }
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let wanted = &self.orders.wanted[self.me];
        if wanted.load(Ordering::Relaxed) != 0 {
            let drawn = wanted.swap(0, Ordering::Acquire);
            self.part(io, drawn);
        }
        NEVER
    }
}

impl User for Echo {
    fn arrived(&mut self, io: &mut Io<'_>, id: SocketId, _: u64) -> bool {
        self.came = Some(id);
        self.begin(io, id);
        true
    }

    fn stayed(&mut self, _: &mut Io<'_>, id: SocketId) {
        self.all.push(id);
        self.orders.stayed.fetch_add(1, Ordering::Release);
    }
}

/// One of the peer's connections.
#[derive(Clone, Copy, Default)]
struct Talk {
    sent: u64,
    got: u64,
}

/// Length of what all streams repeat, each from a place of its own on.
const PERIOD: usize = 65_521;

/// What streams repeat, once and as much again as is looked at together.
fn pattern() -> Vec<u8> {
    let bytes = |at: usize| mixed(at as u64 % PERIOD as u64) as u8;
    (0..PERIOD + CHUNK).map(bytes).collect()
}

/// Where a connection's stream is in the pattern.
fn place(connection: usize, at: u64) -> usize {
    (at + connection as u64 * 977) as usize % PERIOD
}

type Station = Worker<Steered<StackHost<Echo>>>;

/// One turn of an lcore; how many packets came.
fn turn(lcore: &mut Station, clock: Clock) -> usize {
    let came = lcore.round();
    let Worker { stage, egress, .. } = lcore;
    stage.turn(clock.now(), &mut (), egress);
    egress.flush();
    came
}

struct Bench {
    /// The lcore of this thread.
    first: Station,
    idle: u32,
    orders: Arc<Orders>,
    clock: Clock,
    peer: Stack,
    out: Egress,
    from_lcores: Vec<spsc::Consumer<Packet>>,
    events: Vec<Event>,
    talks: HashMap<SocketId, usize>,
    by_number: Vec<(SocketId, Talk)>,
    pattern: Vec<u8>,
    /// Reads that did not bring what was sent.
    wrong: u64,
}

fn stack(number: u8, secret: Secret, now_ns: u64, out: &mut Egress) -> Result<Stack, Error> {
    let config = StackConfig {
        connections: 2 * CONNECTIONS as u32,
        sent_frames: 8192,
        send_chunks: 4096,
        received_pkts: 4096,
        secret,
        ..StackConfig::default()
    };
    tcp::stack(number, &config, now_ns, out)
}

impl Bench {
    /// The peer and the first lcore, and the second one.
    fn new() -> Result<(Self, Station), Error> {
        let orders = Arc::new(Orders::default());
        let pool = Pool::new(&PoolConfig::new("bench", 32_768))?;
        let clock = Clock::calibrate();
        let egress = || Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let owners = Owners::dealt(OWNERS.into());
        let port = PortPlan::software(&secret(), &owners, Arrival::One(0))?;
        let plan = Arc::new(Plan::new(vec![port], OWNERS));
        let same = Secret::random();
        let now_ns = clock.ns(clock.now());
        let mut lcores = Vec::new();
        let mut handles = Vec::new();
        for (me, post) in (0..OWNERS).zip(mesh(OWNERS, 64)) {
            let mut out = egress();
            let setup = Setup {
                plan: plan.clone(),
                me,
                outlets: (1..=u16::from(OWNERS)).collect(),
                map: Some(MapConfig {
                    connections4: 1024,
                    connections6: 16,
                    ..MapConfig::default()
                }),
                reassembly: reassembly::Config::default(),
                away: 256,
                isa: Isa::detect(),
                clock,
            };
            let mut user = Echo {
                clock,
                me: me.into(),
                orders: orders.clone(),
                all: Vec::new(),
                came: None,
                buffer: vec![0; 2 * CHUNK].into(),
            };
            let mut stack = stack(2, same, now_ns, &mut out)?;
            let started = user.start(&mut stack.io(now_ns, &mut out));
            started.map_err(std::io::Error::other)?;
            let host = StackHost::new(&setup, 1, stack, user, post, &mut out);
            let stage = Steered::new(&setup, 1, host, &mut out).map_err(std::io::Error::other)?;
            let (worker, handle) = Worker::new("lcore", stage, out, clock)?;
            lcores.push(worker);
            handles.push(handle);
        }
        let mut out = egress();
        let (putter, taker) = spsc::ring(4096);
        lcores[0].add_inlet(Inlet::ring(0, 0, taker));
        out.set_outlet(0, Some(TxPath::Ring(putter, handles[0].doorbell().clone())));
        let mut from_lcores = Vec::new();
        for from in 0..usize::from(OWNERS) {
            let (putter, taker) = spsc::ring(4096);
            // The peer is no worker, and asks; a bell that nobody hears.
            let bell = handles[from].doorbell().clone();
            lcores[from].set_outlet(0, Some(TxPath::Ring(putter, bell)));
            from_lcores.push(taker);
            let to = 1 - from;
            let (putter, taker) = spsc::ring(4096);
            let bell = handles[to].doorbell().clone();
            lcores[from].set_outlet(1 + to as u16, Some(TxPath::Ring(putter, bell)));
            lcores[to].add_inlet(Inlet::ring(1 + to as u16, 0, taker));
        }
        let peer = stack(1, Secret::random(), now_ns, &mut out)?;
        let mut lcores = lcores.into_iter();
        let (Some(first), Some(second)) = (lcores.next(), lcores.next()) else {
            return Err(lost("there are no two lcores"));
        };
        let bench = Self {
            first,
            idle: 0,
            orders,
            clock,
            peer,
            out,
            from_lcores,
            events: vec![Event::default(); 2 * CONNECTIONS],
            talks: HashMap::new(),
            by_number: Vec::new(),
            pattern: pattern(),
            wrong: 0,
        };
        Ok((bench, second))
    }

    /// One turn of the first lcore and the peer, which writes unless it is to end.
    fn turn(&mut self, ends: bool) {
        if turn(&mut self.first, self.clock) == 0 {
            pause(&mut self.idle);
        }
        let now_ns = self.clock.ns(self.clock.now());
        let mut burst = Burst::new();
        for ring in &mut self.from_lcores {
            while ring.pop_burst(&mut burst, Burst::CAPACITY) > 0 {
                for packet in burst.as_packets_mut() {
                    packet.set_port(0);
                }
                self.peer.receive(&mut burst, now_ns, &mut self.out);
            }
        }
        let mut io = self.peer.io(now_ns, &mut self.out);
        let count = io.poll(&mut self.events);
        let mut bytes = [0; CHUNK];
        for event in &self.events[..count] {
            let Source::Connection(id) = event.source else {
                continue;
            };
            let Some(&number) = self.talks.get(&id) else {
                continue;
            };
            let talk = &mut self.by_number[number].1;
            while let Ok(count @ 1..) = io.read(id, &mut bytes) {
                let expected = &self.pattern[place(number, talk.got)..][..count];
                self.wrong += u64::from(bytes[..count] != *expected);
                talk.got += count as u64;
            }
        }
        for (number, (id, talk)) in self.by_number.iter_mut().enumerate() {
            let room = UNDER_WAY.saturating_sub(talk.sent - talk.got);
            if ends || room < 1448 {
                continue;
            }
            let next = &self.pattern[place(number, talk.sent)..][..1448];
            if let Ok(count) = io.write(*id, next) {
                talk.sent += count as u64;
            }
        }
        self.peer.turn(now_ns, &mut self.out);
        self.out.flush();
    }

    /// Opens the connections.
    fn open(&mut self) -> Result<(), Error> {
        self.turn(true);
        let now_ns = self.clock.ns(self.clock.now());
        let to: SocketAddr = (address(2), PORT).into();
        for number in 0..CONNECTIONS {
            let mut io = self.peer.io(now_ns, &mut self.out);
            let id = io.connect(None, to);
            let id = id.map_err(|error| lost(&format!("a connection cannot begin: {error}")))?;
            // Level-triggered: it is asked every turn.
            let _ = io.register(id, interest::READ, number as u64);
            self.talks.insert(id, number);
            self.by_number.push((id, Talk::default()));
        }
        let mut patience = PATIENCE;
        while self.orders.accepted.load(Ordering::Acquire) < CONNECTIONS {
            self.turn(true);
            patience -= 1;
            if patience == 0 {
                return Err(lost("connections were not opened"));
            }
        }
        Ok(())
    }

    /// Has a connection of lcore `from` move to the other one; how long it stood still, in us.
    fn step(&mut self, from: usize, drawn: u64) -> Result<Option<f64>, Error> {
        let Orders {
            wanted,
            began,
            first,
            stayed,
            ..
        } = &*self.orders.clone();
        let before = stayed.load(Ordering::Acquire);
        first.store(0, Ordering::Relaxed);
        wanted[from].store(drawn | 1 << 63, Ordering::Release);
        for _ in 0..PATIENCE {
            self.turn(false);
            let had = first.load(Ordering::Acquire);
            if had != 0 {
                let ticks = had.saturating_sub(began.load(Ordering::Relaxed));
                return Ok(Some(ticks as f64 * 1e6 / self.clock.hz()));
            }
            if stayed.load(Ordering::Acquire) > before {
                return Ok(None);
            }
        }
        Err(lost("a connection that moved had no data any more"))
    }

    fn run(&mut self, moves: usize) -> Result<Moved, Error> {
        self.open()?;
        for _ in 0..1000 {
            self.turn(false);
        }
        let mut pauses_us = Vec::with_capacity(moves);
        let mut tries = 0;
        while pauses_us.len() < moves {
            tries += 1;
            if tries > 10 * moves {
                return Err(lost("connections do not move"));
            }
            let drawn = mixed(tries as u64);
            pauses_us.extend(self.step(tries % 2, drawn)?);
        }
        let is_whole = |(_, talk): &(SocketId, Talk)| talk.sent == talk.got;
        let mut patience = PATIENCE;
        while !self.by_number.iter().all(is_whole) && patience > 0 {
            self.turn(true);
            patience -= 1;
        }
        pauses_us.sort_unstable_by(f64::total_cmp);
        let talks = || self.by_number.iter().map(|(_, talk)| talk);
        let missing: u64 = talks().map(|talk| talk.sent - talk.got).sum();
        Ok(Moved {
            pauses_us,
            lost: missing + self.wrong,
            bytes: talks().map(|talk| talk.got).sum(),
        })
    }
}

fn moves(run: Run) -> Result<Moved, Error> {
    let count = if run.quick { 100 } else { MOVES };
    let (mut bench, mut second) = Bench::new()?;
    let (stop, clock) = (Arc::new(AtomicBool::new(false)), bench.clock);
    let stopped = stop.clone();
    let other = Lcore::spawn("second", Some(run.cpus[1]), move || {
        let mut idle = 0;
        while !stopped.load(Ordering::Relaxed) {
            if turn(&mut second, clock) == 0 {
                pause(&mut idle);
            }
        }
    })?;
    let moved = run.pinned(move |_| bench.run(count));
    stop.store(true, Ordering::Relaxed);
    other.join()?;
    moved?
}
