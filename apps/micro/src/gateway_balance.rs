//! Two lcores that share a gateway's work: as receiver and owner of all flows (`dispatcher`), or
//! each as both (`balanced`); and buckets that move between two of the latter.
//!
//! Each lcore that receives makes its packets itself, of flows of its own, and each that sends
//! looks at their numbers. So no third one is needed, and the limit is the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Lcore, LcoreHandle};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_core::port::{RxQueue, TxQueue};
use linerate_core::ring::spsc;
use linerate_core::run::{Egress, Inlet, TxPath, Worker, WorkerHandle};
use linerate_dispatch::Bits;
use linerate_dispatch::{Going, move_buckets};
use linerate_gateway::dispatch::stage::Dispatch;
use linerate_gateway::path::GatewayPath;
use linerate_gateway::stages::flows::{Flows, Shared};
use linerate_routing::plane::{Fast, Mesh};
use linerate_routing::worker::RouterStage;
use linerate_wire::{FlowKey4, protocol};

use super::gateway::{INSIDE, firewall, routes, tables};
use super::l3fwd::{Frame, frame};
use super::random::mixed;
use super::router::{Written, two_links};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "gateway.balanced.simple",
        about: "established flows on two lcores: how much slower balanced is than dispatcher",
        run: |row, run| compared(row, run, true),
    },
    Row {
        name: "gateway.balanced.complex",
        about: "the same, each packet decided by 1000 rules",
        run: |row, run| compared(row, run, false),
    },
    Row {
        name: "gateway.rebalance",
        about: "packets lost or overtaken while a bucket moves every 10 ms, at half the load",
        run: rebalance,
    },
];

/// Flows of each lcore that receives.
const FLOWS: usize = 500;
/// Where a frame has its flow's number, and its own.
const FLOW: usize = 42;
const NUMBER: usize = 46;
/// A pace at which nothing is made.
const STOPPED: u64 = u64::MAX;
/// Slots of the rings between the two, and of the pool.
const SLOTS: (usize, u32) = (2048, 16_384);
/// The same where nothing may be lost: who measures needs a CPU now and then, and a lcore that is
/// put aside for some milliseconds meanwhile finds all of what came for it.
const SLOTS_FOR_GAPS: (usize, u32) = (32_768, 131_072);
/// The outlet behind the number of the last port.
const FIRST: u16 = 3;
/// For enough of them, and of packets.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two moves.
const BETWEEN: Duration = Duration::from_millis(10);

/// What all have counted.
struct Counts {
    made: AtomicU64,
    out: AtomicU64,
    /// Of these, those that came behind a later one of their flow.
    overtaken: AtomicU64,
    /// By flow.
    next: Vec<AtomicU32>,
    /// Ticks between two bursts of a source; 0: none.
    pace: AtomicU64,
}

/// Makes packets of its flows in turn, at a pace.
struct Source {
    frames: Vec<Frame>,
    first: usize,
    numbers: Vec<u32>,
    at: usize,
    pool: Pool,
    clock: Clock,
    due: u64,
    counts: Arc<Counts>,
}

impl RxQueue for Source {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        match self.counts.pace.load(Relaxed) {
            0 => {}
            STOPPED => return 0,
            pace => {
                let now = self.clock.now();
                if now < self.due {
                    return 0;
                }
                // What was late is not made up for.
                self.due = now.max(self.due + pace);
            }
        }
        let count = cache.fill(&self.pool, burst, burst.room());
        for packet in burst.iter_mut() {
            let mut frame = self.frames[self.at];
            let flow = (self.first + self.at) as u32;
            let number = &mut self.numbers[self.at];
            frame[FLOW..FLOW + 4].copy_from_slice(&flow.to_le_bytes());
            frame[NUMBER..NUMBER + 4].copy_from_slice(&number.to_le_bytes());
            *number = number.wrapping_add(1);
            self.at = (self.at + 1) % self.frames.len();
            assert!(packet.set_data(&frame), "a slot takes the shortest frame");
        }
        self.counts.made.fetch_add(count as u64, Relaxed);
        count
    }
}

/// Looks at what is sent, and frees it.
struct Sink(Arc<Counts>);

impl TxQueue for Sink {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let (count, mut overtaken) = (burst.len(), 0);
        for packet in burst.iter() {
            let word = |at: usize| {
                let bytes = packet.data().get(at..at + 4);
                bytes.and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)))
            };
            let (Some(flow), Some(number)) = (word(FLOW), word(NUMBER)) else {
                continue;
            };
            // The one that has the flow writes alone.
            if let Some(next) = self.0.next.get(flow as usize) {
                let is_late = (number.wrapping_sub(next.load(Relaxed)) as i32) < 0;
                overtaken += u64::from(is_late);
                if !is_late {
                    next.store(number.wrapping_add(1), Relaxed);
                }
            }
        }
        self.0.out.fetch_add(count as u64, Relaxed);
        self.0.overtaken.fetch_add(overtaken, Relaxed);
        cache.free(burst);
        count
    }
}

/// Which lcores receive and which own flows.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Dispatcher,
    Balanced,
}

/// Two lcores at work.
struct Pair {
    handles: Vec<WorkerHandle<RouterStage>>,
    lcores: Vec<LcoreHandle<Worker<RouterStage>>>,
    counts: Arc<Counts>,
    clock: Clock,
    pages: String,
    /// Whose tables they read.
    _written: Written,
}

impl Pair {
    /// `is_simple`: packets of flows that have begun; otherwise such as no rule permits.
    fn new(
        (form, is_simple): (Form, bool),
        (ring, slots): (usize, u32),
        cpus: [u32; 2],
    ) -> Result<Self, Error> {
        let remote = routes();
        let to: Vec<u32> = remote
            .iter()
            .map(|(prefix, _)| prefix.first() | 1)
            .collect();
        let written = tables(remote)?;
        let pool = Pool::new(&PoolConfig::new("bench", slots))?;
        let clock = Clock::calibrate();
        let counts = Arc::new(Counts {
            made: AtomicU64::new(0),
            out: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            next: (0..2 * FLOWS).map(|_| AtomicU32::new(0)).collect(),
            pace: AtomicU64::new(STOPPED),
        });
        let stanzas = firewall(2 * FLOWS as u32, "udp")?;
        let shared = Shared::new(&stanzas, &two_links(), None)?;
        let takers = if form == Form::Balanced { 2 } else { 1 };
        let mut workers = Vec::new();
        for number in 0..2_u16 {
            let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
            let mut setup = written.setup(two_links(), clock);
            setup.mesh = Mesh {
                first: FIRST,
                takers,
                me: number.checked_sub(2 - takers),
                ..Mesh::default()
            };
            let now_ns = clock.ns(clock.now());
            let worker = usize::from(number);
            let mut flows = Flows::new(shared.clone(), worker, now_ns, &mut egress)?;
            let classes = flows.classes().clone();
            let dispatch = Dispatch::new(classes, &setup.mesh, setup.isa, &mut egress);
            if let Some(dispatch) = &dispatch {
                flows.own(dispatch.mine());
                flows.moves(true);
            }
            let path = Box::new(GatewayPath::with(&setup, flows, dispatch));
            let stage = RouterStage::Fast(Box::new(Fast::new(setup, path, &mut egress)));
            let (mut worker, handle) = Worker::new("pair", stage, egress, clock)?;
            for port in 0..2 {
                let sink = Box::new(Sink(counts.clone()));
                worker.set_outlet(port, Some(TxPath::Queue(sink)));
            }
            if form == Form::Balanced || number == 0 {
                let first = usize::from(number) * FLOWS;
                let key = |flow: usize| {
                    let number = (first + flow) as u64;
                    // Those outside of 10.0.0.0/8 may begin nothing.
                    let network = if is_simple {
                        INSIDE
                    } else {
                        INSIDE + (1 << 24)
                    };
                    let host = network | (mixed(number) as u32 & 0xff_ffff);
                    let ports = mixed(!number);
                    let remote = to[flow % to.len()].to_be_bytes();
                    let (src, dst) = (ports as u16 | 1024, (ports >> 16) as u16);
                    FlowKey4::new(host.to_be_bytes(), remote, src, dst, protocol::UDP)
                };
                let source = Source {
                    frames: (0..FLOWS).map(|flow| frame(&key(flow))).collect(),
                    first,
                    numbers: vec![0; FLOWS],
                    at: 0,
                    pool: pool.clone(),
                    clock,
                    due: 0,
                    counts: counts.clone(),
                };
                worker.add_inlet(Inlet::queue(0, number, Box::new(source)));
            }
            workers.push((worker, handle));
        }
        for from in 0..2_usize {
            let to = 1 - from;
            if form == Form::Dispatcher && from == 1 {
                continue;
            }
            let (putter, taker) = spsc::ring(ring);
            let outlet = FIRST + (to as u16 + takers - 2);
            let bell = workers[to].1.doorbell().clone();
            let path = TxPath::Ring(putter, bell);
            workers[from].0.set_outlet(outlet, Some(path));
            workers[to]
                .0
                .add_inlet(Inlet::ring(outlet, from as u16, taker));
        }
        let pages = pool.page_kind().to_string();
        let (mut handles, mut lcores) = (Vec::new(), Vec::new());
        for ((worker, handle), cpu) in workers.into_iter().zip(cpus) {
            handles.push(handle);
            lcores.push(Lcore::spawn("pair", Some(cpu), move || worker.run(false))?);
        }
        Ok(Self {
            handles,
            lcores,
            counts,
            clock,
            pages,
            _written: written,
        })
    }

    /// Packets that were dealt with: sent, or denied by the policy.
    fn done(&self) -> u64 {
        let drops = self
            .handles
            .iter()
            .flat_map(|handle| handle.stats().drops());
        let denied = drops.filter(|(name, _)| name == "policy");
        self.counts.out.load(Relaxed) + denied.map(|(_, count)| count).sum::<u64>()
    }

    /// Millions of packets a second, as fast as they go.
    fn mpps(&self, duration: Duration) -> f64 {
        self.counts.pace.store(0, Relaxed);
        thread::sleep(duration / 10);
        let (began, before) = (Instant::now(), self.done());
        thread::sleep(duration);
        let done = self.done() - before;
        let mpps = done as f64 / 1e6 / began.elapsed().as_secs_f64();
        self.stop_sources();
        mpps
    }

    /// No more packets are made, and those under way have come out.
    fn stop_sources(&self) {
        self.counts.pace.store(STOPPED, Relaxed);
        // Each answers between two bursts: the first time it may have seen the pace before.
        for _ in 0..2 {
            for handle in &self.handles {
                while !is_through(handle) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn end(self) -> Result<(), Error> {
        self.handles.iter().for_each(WorkerHandle::stop);
        for lcore in self.lcores {
            lcore.join()?;
        }
        Ok(())
    }
}

/// Whether all that a worker has handed over was taken; so it is where the worker has ended.
fn is_through(handle: &WorkerHandle<RouterStage>) -> bool {
    let asked = handle.call(|worker| worker.egress.is_taken(&worker.egress.handed()));
    asked.unwrap_or(true)
}

fn compared(row: &'static str, run: Run, is_simple: bool) -> Result<Sample, Error> {
    let mut rates = [0.0; 2];
    let mut pages = String::new();
    for (form, rate) in [Form::Dispatcher, Form::Balanced]
        .into_iter()
        .zip(&mut rates)
    {
        let pair = Pair::new((form, is_simple), SLOTS, run.cpus)?;
        *rate = pair.mpps(run.duration);
        pages.clone_from(&pair.pages);
        pair.end()?;
    }
    let [dispatcher, balanced] = rates;
    let slower = (dispatcher / balanced.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
    Ok(Sample::new(row, slower, "%", pages)
        .with("dispatcher_mpps", dispatcher)
        .with("balanced_mpps", balanced))
}

/// What went through a pair, and what did not.
#[derive(Default)]
struct Passed {
    made: u64,
    lost: u64,
    overtaken: u64,
    /// By why.
    drops: BTreeMap<String, u64>,
    moves: u64,
    longest_move: Duration,
    time: Duration,
}

impl Pair {
    fn counted(&self) -> Passed {
        let counts = &self.counts;
        let made = counts.made.load(Relaxed);
        let mut drops = BTreeMap::new();
        for (name, count) in self
            .handles
            .iter()
            .flat_map(|handle| handle.stats().drops())
        {
            *drops.entry(name).or_default() += count;
        }
        Passed {
            made,
            lost: made - counts.out.load(Relaxed),
            overtaken: counts.overtaken.load(Relaxed),
            drops,
            ..Passed::default()
        }
    }

    /// Has packets made at a pace for a time, some of each flow, and buckets moved meanwhile, or
    /// none.
    fn pass(&self, pace: u64, duration: Duration, moves: bool) -> Result<Passed, Error> {
        let before = self.counted();
        self.counts.pace.store(pace, Relaxed);
        let began = Instant::now();
        let mut now = Passed::default();
        let is_enough = |now: &Passed| {
            let made = self.counts.made.load(Relaxed) - before.made;
            made >= 8 * FLOWS as u64 && (now.moves >= 8 || !moves) || began.elapsed() > PATIENCE
        };
        while began.elapsed() < duration || !is_enough(&now) {
            thread::sleep(BETWEEN);
            if moves {
                let asked = Instant::now();
                self.move_one(now.moves)?;
                now.longest_move = now.longest_move.max(asked.elapsed());
                now.moves += 1;
            }
        }
        now.time = began.elapsed();
        self.stop_sources();
        let after = self.counted();
        now.made = after.made - before.made;
        now.lost = after.lost - before.lost;
        now.overtaken = after.overtaken - before.overtaken;
        now.drops = after.drops;
        for (name, count) in before.drops {
            *now.drops.entry(name).or_default() -= count;
        }
        now.drops.retain(|_, count| *count > 0);
        Ok(now)
    }

    /// Moves the bucket whose turn it is to the other lcore.
    fn move_one(&self, number: u64) -> Result<(), Error> {
        let bucket = number as u8;
        // Buckets are dealt out in turn at first; each goes to the other and back.
        let round = (number >> 8) as u8;
        let from = (bucket ^ round) & 1;
        let mut buckets = Bits::NONE;
        buckets.set(bucket);
        let going = Going {
            buckets,
            from,
            to: 1 - from,
        };
        let [from, to] = [from, 1 - from].map(|owner| &self.handles[usize::from(owner)]);
        let all: Vec<_> = self.handles.iter().collect();
        move_buckets(&all, (from, to), going)
            .map_err(|gone| std::io::Error::other(gone.to_string()).into())
    }
}

fn rebalance(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pair = Pair::new((Form::Balanced, true), SLOTS_FOR_GAPS, run.cpus)?;
    let most = pair.mpps(run.duration / 4);
    // Half of what each can do, a burst at a time.
    let pace = Burst::CAPACITY as f64 * 2.0 * 2.0 / (most.max(0.01) * 1e6) * pair.clock.hz();
    let still = pair.pass(pace as u64, run.duration, false)?;
    let moved = pair.pass(pace as u64, run.duration, true)?;
    let harmed = (moved.lost + moved.overtaken) as f64;
    let sample = Sample::new(row, harmed, "packets", &pair.pages)
        .with("lost", moved.lost)
        .with("overtaken", moved.overtaken)
        .with("drops", format!("{:?}", moved.drops))
        .with("lost_without_moves", still.lost)
        .with("moves", moved.moves)
        .with("longest_move_us", moved.longest_move.as_micros() as u64)
        .with("packets", moved.made)
        .with(
            "offered_mpps",
            moved.made as f64 / 1e6 / moved.time.as_secs_f64(),
        )
        .with("most_mpps", most);
    pair.end()?;
    Ok(sample)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_or_overtaken_while_buckets_move() {
        let sample = rebalance("gateway.rebalance", Run::quick()).unwrap();
        assert_eq!(sample.value, 0.0, "{:?}", sample.detail);
        assert!(sample.detail["packets"].as_u64().unwrap() > 4000);
        assert!(sample.detail["moves"].as_u64().unwrap() >= 8);
    }

    #[test]
    fn both_forms_deal_with_packets_of_both_kinds() {
        for is_simple in [true, false] {
            let run = Run {
                duration: Duration::from_millis(100),
                ..Run::quick()
            };
            let sample = compared("gateway.balanced", run, is_simple).unwrap();
            for form in ["dispatcher_mpps", "balanced_mpps"] {
                assert!(sample.detail[form].as_f64().unwrap() > 0.0, "{is_simple}");
            }
        }
    }
}
