//! The production line: generator -> ring -> l2fwd -> ring -> sink, and how it is driven.
//!
//! With three CPUs each station has an lcore of its own; with fewer they take turns in one loop.
//! The generator has credit for no more frames under way than a ring holds, so none can be lost
//! by design; the sink checks by sequence number whether that is true.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;

use linerate_core::arch::pause;
use linerate_core::env::{Clock, Lcore, LcoreHandle};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Counter, Port, PortConfig, Queues, RxQueue, TxQueue};
use linerate_core::run::{Egress, Histogram, Inlet, TxPath, Worker};
use linerate_drivers::ring;
use linerate_wire::ethernet::MacAddr;

use super::frame::{Label, Template};
use linerate_appliance::error::Error;
use linerate_l2fwd::stage::{L2fwd, Route};

/// Packets that each ring holds.
const RING: usize = 1024;
/// Frames under way at most: no more than one ring holds, so that it takes them all even if the
/// next station stands still.
const CREDIT: u64 = 512;
/// How long to wait for the last frames before they are lost, in nanoseconds.
const DRAIN_NS: u64 = 2_000_000_000;
const SLOTS: u32 = 4096;

/// Addresses as l2fwd gives them; the generator's are others.
const ROUTE: Route = Route {
    out: 1,
    src: MacAddr([2, 0, 0, 0, 1, 1]),
    dst: MacAddr::local(1),
};

/// When frames are to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As soon as there is credit.
    Full,
    /// One each `interval` ticks from `start` on; the label says when, however late it goes.
    Every { start: u64, interval: f64 },
}

/// One stretch of work: from `start` (after a warm-up until `count_from`) to `end`, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) pace: Pace,
    pub(super) count_from: u64,
    pub(super) end: u64,
}

impl Phase {
    /// Whether it goes on: until its end, and at least until something was sent, for on a crowded
    /// CPU the lcores may find their time over before they had any.
    #[inline]
    fn lasts(&self, clock: &Clock, has_sent: bool) -> bool {
        clock.now() < self.end || !has_sent
    }
}

/// Writes frames and sends them.
struct Generator {
    tx: Box<dyn TxQueue>,
    cache: PoolCache,
    pool: Pool,
    template: Template,
    /// Sequence number of the next frame: frames sent so far.
    sent: u64,
    /// Frames that the sink has, by its own count.
    arrived: Arc<Counter>,
    clock: Clock,
}

impl Generator {
    /// Sends what is due and has credit; returns how many went. `first` is the sequence number
    /// with which the phase began.
    #[inline]
    fn step(&mut self, pace: Pace, first: u64) -> usize {
        let credit = CREDIT - (self.sent - self.arrived.read());
        let now = self.clock.now();
        let due = match pace {
            Pace::Full => u64::MAX,
            Pace::Every { start, interval } => {
                let by_now = (now.saturating_sub(start) as f64 / interval) as u64;
                (first + by_now).saturating_sub(self.sent)
            }
        };
        let count = credit.min(due).min(Burst::CAPACITY as u64) as usize;
        if count == 0 {
            return 0;
        }
        let mut burst = Burst::new();
        self.cache.fill(&self.pool, &mut burst, count);
        for (sequence, packet) in (self.sent..).zip(burst.iter_mut()) {
            let stamp = match pace {
                Pace::Full => now,
                Pace::Every { start, interval } => {
                    start + ((sequence - first) as f64 * interval) as u64
                }
            };
            packet.set_len(self.template.len);
            self.template
                .write(packet.data_mut(), Label { sequence, stamp });
        }
        let went = self.tx.tx_burst(&mut burst, &mut self.cache);
        self.tx.flush(&mut self.cache);
        // Whatever did not go gets the same numbers again.
        self.cache.free(&mut burst);
        self.sent += went as u64;
        went
    }
}

/// Takes frames and checks them.
struct Sink {
    rx: Box<dyn RxQueue>,
    cache: PoolCache,
    template: Template,
    clock: Clock,
    arrived: Arc<Counter>,
    tally: Tally,
    /// From the time at which each frame was to be sent to that at which it was here.
    latency: Histogram,
}

/// What the sink saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) received: u64,
    next: u64,
    /// Frames that came after one that was sent later.
    pub(super) out_of_order: u64,
    /// Frames with a wrong byte.
    pub(super) corrupt: u64,
    /// Ticks and frames at the first burst that counts, and at the last one.
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Tally {
    /// Frames of `sent` whose sequence number did not come, whole and in its turn.
    pub(super) fn lost(&self, sent: u64) -> u64 {
        (sent + self.out_of_order + self.corrupt).saturating_sub(self.received)
    }

    /// Frames per tick; over a phase of `ticks` in which too few came to tell, those few.
    fn rate(&self, ticks: u64) -> f64 {
        let (began, before) = self.first.unwrap_or_default();
        if self.last.1 > before && self.last.0 > began {
            (self.last.1 - before) as f64 / (self.last.0 - began) as f64
        } else {
            self.received as f64 / ticks.max(1) as f64
        }
    }
}

impl Sink {
    #[inline]
    fn step(&mut self, phase: &Phase) -> usize {
        let mut burst = Burst::new();
        let count = self.rx.rx_burst(&mut burst, &mut self.cache);
        if count == 0 {
            return 0;
        }
        let now = self.clock.now();
        let timed = matches!(phase.pace, Pace::Every { .. }) && now >= phase.count_from;
        for packet in burst.iter() {
            let Some(label) = self.template.read(packet.data()) else {
                self.tally.corrupt += 1;
                continue;
            };
            self.tally.out_of_order += u64::from(label.sequence < self.tally.next);
            self.tally.next = label.sequence + 1;
            if timed {
                self.latency.record(now.saturating_sub(label.stamp), 1);
            }
        }
        self.cache.free(&mut burst);
        self.tally.received += count as u64;
        self.arrived.set(self.tally.received);
        if now >= phase.count_from && now <= phase.end {
            self.tally.last = (self.clock.now(), self.tally.received);
            self.tally.first.get_or_insert(self.tally.last);
        }
        count
    }
}

type Forwarder = Worker<L2fwd<true>>;

/// All three stations for frames of one size.
pub(super) struct Line {
    stations: Stations,
    clock: Clock,
    cpus: Vec<u32>,
    stop: Arc<AtomicBool>,
    // The ports last: their queues go first.
    _ports: Vec<ring::RingPort>,
}

/// The stations, at rest between two phases.
struct Stations {
    generator: Generator,
    forwarder: Forwarder,
    sink: Sink,
}

/// What came of a phase.
pub(super) struct Outcome {
    /// Frames per tick.
    pub(super) rate: f64,
    pub(super) sent: u64,
    pub(super) tally: Tally,
    pub(super) latency: Histogram,
}

impl Line {
    /// Sets the stations up on `cpus`: three of them, or one for all.
    pub(super) fn new(
        frame_bytes: usize,
        whole: bool,
        clock: Clock,
        cpus: &[u32],
        stop: &Arc<AtomicBool>,
    ) -> Result<(Self, String), Error> {
        let pool = Pool::new(&PoolConfig::new("demo", SLOTS))?;
        let pools = Pools::new(vec![pool.clone()]);
        let (mut outer_a, mut inner_a) = ring::pair("demo-in", 1, RING);
        let (mut inner_b, mut outer_b) = ring::pair("demo-out", 1, RING);
        let start = |port: &mut ring::RingPort, index| {
            let config = PortConfig {
                index,
                ..PortConfig::default()
            };
            port.start(&config, &pools)
        };
        let mut egress = Egress::new(PoolCache::new(pools.as_slice()));
        let stage = L2fwd::<true>::new(&[ROUTE], &mut egress);
        let (mut forwarder, _) = Worker::new("fwd", stage, egress, clock)?;
        let (inlet, _) = first(start(&mut inner_a, 0)?);
        let (_, outlet) = first(start(&mut inner_b, 1)?);
        forwarder.add_inlet(Inlet::queue(0, 0, inlet));
        forwarder.set_outlet(1, Some(TxPath::Queue(outlet)));
        let (_, tx) = first(start(&mut outer_a, 2)?);
        let (rx, _) = first(start(&mut outer_b, 3)?);
        let arrived = Arc::new(Counter::default());
        let generator = Generator {
            tx,
            cache: PoolCache::new(pools.as_slice()),
            pool: pool.clone(),
            template: Template::new(
                frame_bytes,
                MacAddr::local(0xfe),
                MacAddr::local(0xff),
                whole,
            ),
            sent: 0,
            arrived: arrived.clone(),
            clock,
        };
        let sink = Sink {
            rx,
            cache: PoolCache::new(pools.as_slice()),
            template: Template::new(frame_bytes, ROUTE.dst, ROUTE.src, whole),
            clock,
            arrived,
            tally: Tally::default(),
            latency: Histogram::new(),
        };
        let line = Self {
            stations: Stations {
                generator,
                forwarder,
                sink,
            },
            clock,
            cpus: cpus.into(),
            stop: stop.clone(),
            _ports: vec![outer_a, inner_a, inner_b, outer_b],
        };
        Ok((line, pool.describe()))
    }

    /// Runs a phase to its end and until the last frame is in; everything is counted anew.
    pub(super) fn run(mut self, phase: Phase) -> Result<(Self, Outcome), Error> {
        let before = self.stations.generator.sent;
        self.stations.sink.tally = Tally {
            received: before,
            next: before,
            ..Tally::default()
        };
        self.stations.generator.arrived.set(before);
        self.stations.sink.latency = Histogram::new();
        if let [generating, forwarding, sinking] = self.cpus[..] {
            self = self.run_apart(phase, [generating, forwarding, sinking])?;
        } else {
            self.stations.take_turns(phase, self.clock, &self.stop);
        }
        let Stations {
            generator, sink, ..
        } = &mut self.stations;
        let mut tally = sink.tally;
        tally.received -= before;
        let outcome = Outcome {
            rate: tally.rate(phase.end - phase.count_from),
            sent: generator.sent - before,
            tally,
            latency: std::mem::take(&mut sink.latency),
        };
        Ok((self, outcome))
    }

    /// Each station on its own CPU.
    fn run_apart(self, phase: Phase, cpus: [u32; 3]) -> Result<Self, Error> {
        let Self {
            stations,
            clock,
            stop,
            ..
        } = self;
        let Stations {
            mut generator,
            mut forwarder,
            mut sink,
        } = stations;
        // Frames to expect; not known before the generator has ended.
        let expected = Arc::new(AtomicU64::new(u64::MAX));
        let (awaited, interrupted) = (expected.clone(), stop.clone());
        let done = Arc::new(AtomicBool::new(false));
        let forwarded_all = done.clone();
        let forwarding = Lcore::spawn("fwd", Some(cpus[1]), move || {
            let mut empty = 0;
            while !forwarded_all.load(Ordering::Relaxed) {
                empty = if forwarder.round() > 0 {
                    0
                } else {
                    relax(empty)
                };
            }
            forwarder
        })?;
        let sinking = Lcore::spawn("sink", Some(cpus[2]), move || {
            let (mut give_up, mut empty) = (None, 0);
            loop {
                if sink.step(&phase) > 0 {
                    (give_up, empty) = (None, 0);
                    continue;
                }
                empty = relax(empty);
                let expected = awaited.load(Ordering::Relaxed);
                if sink.tally.received >= expected {
                    return sink;
                }
                let patience = || clock.now() + clock.ticks(DRAIN_NS);
                if expected < u64::MAX && *give_up.get_or_insert_with(patience) < clock.now() {
                    return sink;
                }
            }
        });
        let generating = Lcore::spawn("generator", Some(cpus[0]), move || {
            let (first, mut empty) = (generator.sent, 0);
            while phase.lasts(&clock, generator.sent > first)
                && !interrupted.load(Ordering::Relaxed)
            {
                empty = if generator.step(phase.pace, first) > 0 {
                    0
                } else {
                    relax(empty)
                };
            }
            generator
        });
        // Whatever failed to start, the others end before it is said.
        let generator = generating.and_then(LcoreHandle::join);
        let sent = generator.as_ref().map_or(0, |generator| generator.sent);
        expected.store(sent, Ordering::Relaxed);
        let sink = sinking.and_then(LcoreHandle::join);
        done.store(true, Ordering::Relaxed);
        Ok(Self {
            stations: Stations {
                generator: generator?,
                forwarder: forwarding.join()?,
                sink: sink?,
            },
            stop,
            ..self
        })
    }
}

impl Stations {
    /// All stations in this thread, one after the other.
    fn take_turns(&mut self, phase: Phase, clock: Clock, stop: &AtomicBool) {
        let first = self.generator.sent;
        while phase.lasts(&clock, self.generator.sent > first) && !stop.load(Ordering::Relaxed) {
            self.generator.step(phase.pace, first);
            self.forwarder.round();
            self.sink.step(&phase);
        }
        let patience = clock.now() + clock.ticks(DRAIN_NS);
        while self.sink.tally.received < self.generator.sent && clock.now() < patience {
            self.forwarder.round();
            self.sink.step(&phase);
        }
    }
}

/// An empty round: nobody may spin on a station that waits for this very CPU.
fn relax(empty: u32) -> u32 {
    pause();
    if empty % 64 == 63 {
        yield_now();
    }
    empty.wrapping_add(1)
}

/// The only queues of a port.
fn first(mut queues: Queues) -> (Box<dyn RxQueue>, Box<dyn TxQueue>) {
    (queues.rx.remove(0), queues.tx.remove(0))
}
