//! `bench port`: one end of a measurement between two processes, over ports of any kind.
//!
//! A [`Role`] is what the process does with its ports: a loop that polls them and does next to
//! nothing else, so that what is measured is the ports. Both ends begin when their links are up and
//! the first frame moves, warm up, measure, and go on for a while, since the other may have begun
//! later. So either can be asked for its figure. `xtask/peer/port.c` does the same over DPDK's
//! ports.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use linerate_core::env::{Clock, Lcore};
use linerate_core::packet::{Burst, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{Link, PortConfig, Queues, RxQueue, TxQueue};
use linerate_core::run::{HistogramSnapshot, bucket_count, bucket_of};
use linerate_wire::ethernet::{MacAddr, set_macs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::forward::FRAME;
use super::{Sample, cpus};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{OpenPort, OpenPorts};

/// How long the first frame may take once this end has started: the other may not be there yet.
const START: Duration = Duration::from_secs(30);
/// The shortest warm-up.
const WARM_UP: Duration = Duration::from_millis(100);
/// A ping that is not back by then is lost.
const LOST: Duration = Duration::from_millis(100);
/// How long a source waits that was refused, in pauses of the processor: whoever asks at once again
/// takes the ring's line from who is to write there.
const PAUSES: usize = 16;
/// How long a held end goes on between two looks at standard input.
const HELD: Duration = Duration::from_millis(10);
/// Empty polls between two looks at the clock.
const POLLS: usize = 4096;
/// Slots of the main pool, as many as DPDK's side has.
const SLOTS: u32 = 16_384;
/// Within 0.8 %.
const SUB_BITS: u32 = 7;

/// What a process does with its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Role {
    /// Send as fast as the first port takes frames: Mpps taken
    Source,
    /// Receive from all ports, and free: Mpps received
    Sink,
    /// Send as a source does, and receive from the last port: Mpps received
    Exchange,
    /// Send back what comes, addresses swapped; with two ports what came in at one goes out of the
    /// other as it is: Mpps received
    Echo,
    /// Send one frame by the first port, and wait for it at the last: the median round trip
    Ping,
}

impl Role {
    fn row(self) -> &'static str {
        match self {
            Self::Source => "port.source",
            Self::Sink => "port.sink",
            Self::Exchange => "port.exchange",
            Self::Echo => "port.echo",
            Self::Ping => "port.ping",
        }
    }
}

#[derive(clap::Parser)]
pub struct Args {
    /// What to do with the ports
    role: Role,
    /// One or two ports, each KIND:TARGET[,key=value...]
    #[arg(value_name = "PORT", required = true, num_args = 1..=2)]
    ports: Vec<String>,
    /// Seconds to measure, once the first frame has moved
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Bytes of each frame that is sent, without frame check sequence
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=1514))]
    bytes: u32,
    /// Largest burst
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..=64))]
    burst: u8,
    /// Milliseconds between two pings
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    interval: f64,
    /// After the figure go on until standard input ends: the other end may not be ready yet
    #[arg(long)]
    hold: bool,
    /// The CPU to pin to; by default the kernel chooses
    #[arg(long, value_name = "CPU")]
    cpus: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let specs: Vec<_> = args.ports.iter().map(|spec| (None, spec.clone())).collect();
    let opened = OpenPorts::open(&specs, Clock::calibrate())?;
    let end = End {
        role: args.role,
        measured: Duration::from_secs_f64(args.seconds.clamp(0.001, 3600.0)),
        bytes: args.bytes,
        burst: args.burst.into(),
        interval: Duration::from_secs_f64(args.interval.clamp(0.0, 60_000.0) / 1e3),
        hold: args.hold,
    };
    let pinned = args.cpus.as_deref().map(|list| cpus(Some(list)));
    let (cpu, json) = (pinned.transpose()?.map(|cpus| cpus[0]), args.json);
    let show = move |sample: Sample| sample.print(json);
    Lcore::spawn("bench", cpu, move || end.run(opened, show))?.join()?
}

/// One end, as it was asked for.
#[derive(Clone, Copy)]
struct End {
    role: Role,
    measured: Duration,
    bytes: u32,
    burst: usize,
    interval: Duration,
    hold: bool,
}

/// Frames so far.
#[derive(Clone, Copy, Default)]
struct Totals {
    sent: u64,
    /// How often a frame was not taken, and stayed.
    refused: u64,
    received: u64,
}

impl Totals {
    fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            refused: self.refused - before.refused,
            received: self.received - before.received,
        }
    }
}

impl End {
    fn run(
        self,
        mut opened: OpenPorts,
        show: impl FnOnce(Sample) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let queues = 2 * opened.ports.len() as u32;
        let pools = opened.pools(queues, Some(SLOTS))?;
        let configs: Vec<PortConfig> = (0..opened.ports.len() as u16)
            .map(|index| PortConfig {
                index,
                ..PortConfig::default()
            })
            .collect();
        let started = opened.start_ports(&configs, &pools)?;
        let mut ports = Ports::new(self, started, &pools, opened.clock);
        let (there, ours) = (&opened, &mut ports);
        let done = match self.role {
            Role::Source => self.measure(there, ours, Ports::send, show),
            Role::Sink => self.measure(there, ours, Ports::receive, show),
            Role::Exchange => {
                let exchange = |ports: &mut Ports| {
                    ports.send();
                    ports.take_back();
                };
                self.measure(there, ours, exchange, show)
            }
            Role::Echo if ours.queues.len() == 1 => {
                self.measure(there, ours, Ports::forward::<true>, show)
            }
            Role::Echo => self.measure(there, ours, Ports::forward::<false>, show),
            Role::Ping => self.measure(there, ours, Ports::ping, show),
        };
        drop(ports);
        let errors = opened.stop_ports();
        done?;
        Error::all(errors)
    }

    /// Repeats `step`, and shows what came of it in the measured time.
    fn measure(
        &self,
        opened: &OpenPorts,
        ports: &mut Ports,
        mut step: impl FnMut(&mut Ports),
        show: impl FnOnce(Sample) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + START;
        let is_up = |open: &OpenPort| open.port.link() == Link::Up;
        while !opened.ports.iter().all(is_up) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let moved = |ports: &Ports| match self.role {
            Role::Source => ports.totals.sent > 0,
            _ => ports.totals.received > 0,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        repeat(ports, &mut step, left, moved);
        if !moved(ports) {
            return Err(Error::Usage {
                problem: format!(
                    "no frame moved within {} s ({})",
                    START.as_secs(),
                    facts(opened)
                ),
                fix: "start the other end, too, and let both open the same thing".into(),
            });
        }
        let warm_up = (self.measured / 5).max(WARM_UP);
        repeat(ports, &mut step, warm_up, |_| false);
        let before = ports.totals;
        let seconds = repeat(ports, &mut step, self.measured, |_| false);
        let totals = ports.totals.since(before);
        show(
            self.sample(ports, totals, seconds)
                .with("port", facts(opened)),
        )?;
        if !self.hold {
            repeat(ports, &mut step, warm_up, |_| false);
        }
        while self.hold && is_held() {
            repeat(ports, &mut step, HELD, |_| false);
        }
        Ok(())
    }

    fn sample(&self, ports: &Ports, totals: Totals, seconds: f64) -> Sample {
        let (row, pages) = (self.role.row(), ports.pool.page_kind());
        let mpps = |frames: u64| frames as f64 / seconds / 1e6;
        let tried = (totals.sent + totals.refused).max(1) as f64;
        let sample = match self.role {
            Role::Ping => ports.trips.sample(row, pages),
            Role::Source => Sample::new(row, mpps(totals.sent), "Mpps", pages),
            _ => Sample::new(row, mpps(totals.received), "Mpps", pages),
        };
        sample
            .with("sent_mpps", mpps(totals.sent))
            .with("refused_percent", 100.0 * totals.refused as f64 / tried)
    }
}

/// Repeats `step` until the time is over or all is `done`; returns how long that took, in s.
fn repeat(
    ports: &mut Ports,
    step: &mut impl FnMut(&mut Ports),
    time: Duration,
    done: impl Fn(&Ports) -> bool,
) -> f64 {
    let began = Instant::now();
    loop {
        // The clock is read once in many steps.
        for _ in 0..64 {
            step(ports);
        }
        let elapsed = began.elapsed();
        if elapsed >= time || done(ports) {
            return elapsed.as_secs_f64();
        }
    }
}

/// Whether standard input goes on. What comes from there is read and forgotten.
fn is_held() -> bool {
    let input = rustix::stdio::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut polled, Some(&Timespec::default())) {
        Ok(0) => true,
        _ => rustix::io::read(input, &mut [0_u8; 64]).is_ok_and(|bytes| bytes > 0),
    }
}

/// What the ports say of themselves, in one line.
fn facts(opened: &OpenPorts) -> String {
    let facts = opened.ports.iter().flat_map(|open| {
        let link = match open.port.link() {
            Link::Up => format!("{} is up", open.name),
            Link::Down(why) => format!("{} is down: {why}", open.name),
        };
        let facts = open.port.info().facts.into_iter();
        [link]
            .into_iter()
            .chain(facts.map(|(name, value)| format!("{name}: {value}")))
    });
    facts.collect::<Vec<_>>().join("; ")
}

/// The queues of the started ports, the frames of this lcore, and what became of them.
struct Ports {
    queues: Vec<(Box<dyn RxQueue>, Box<dyn TxQueue>)>,
    cache: PoolCache,
    pool: Pool,
    template: RxTemplate,
    /// What is to be sent next, as much of it as was refused.
    next: Burst,
    room: usize,
    totals: Totals,
    trips: Trips,
}

impl Ports {
    fn new(end: End, started: Vec<Queues>, pools: &Pools, clock: Clock) -> Self {
        let pool = pools.primary().clone();
        let mut cache = PoolCache::new(pools.as_slice());
        // Each slot holds the frame from now on: who sends need not write it.
        let mut frame = vec![0; end.bytes as usize];
        frame[..FRAME.len()].copy_from_slice(&FRAME);
        let mut all = Vec::new();
        while let Some(mut packet) = cache.get(&pool) {
            packet.set_data(&frame);
            all.push(packet);
        }
        all.into_iter().for_each(|packet| cache.free_one(packet));
        let queues = started
            .into_iter()
            .map(|mut queues| (queues.rx.remove(0), queues.tx.remove(0)));
        Self {
            queues: queues.collect(),
            cache,
            pool,
            template: RxTemplate {
                len: end.bytes,
                ..RxTemplate::default()
            },
            next: Burst::with_room(end.burst),
            room: end.burst,
            totals: Totals::default(),
            trips: Trips::new(end.interval, clock),
        }
    }

    /// A burst out of the first port.
    #[inline(always)]
    fn send(&mut self) {
        self.push(self.room);
        let refused = self.next.len();
        self.totals.refused += refused as u64;
        if refused > 0 {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
    }

    /// As much as goes out of the first port of what was refused, made up to `wanted`; returns how
    /// many went.
    #[inline(always)]
    fn push(&mut self, wanted: usize) -> usize {
        let lacking = wanted.saturating_sub(self.next.len());
        self.cache
            .fill_with(&self.pool, &mut self.next, lacking, self.template);
        let tx = &mut self.queues[0].1;
        let sent = tx.tx_burst(&mut self.next, &mut self.cache);
        tx.flush(&mut self.cache);
        self.totals.sent += sent as u64;
        sent
    }

    /// A burst from each port, freed.
    #[inline(always)]
    fn receive(&mut self) {
        for port in 0..self.queues.len() {
            self.take(port);
        }
    }

    /// A burst from the last port, freed; returns how many came.
    #[inline(always)]
    fn take_back(&mut self) -> usize {
        self.take(self.queues.len() - 1)
    }

    #[inline(always)]
    fn take(&mut self, port: usize) -> usize {
        let mut burst = Burst::with_room(self.room);
        let came = self.queues[port].0.rx_burst(&mut burst, &mut self.cache);
        self.cache.free(&mut burst);
        self.totals.received += came as u64;
        came
    }

    /// A burst from each port, sent out of the other; what is refused is dropped. The only port's
    /// goes back, with addresses swapped.
    #[inline(always)]
    fn forward<const SWAP: bool>(&mut self) {
        for port in 0..self.queues.len() {
            let out = if SWAP { port } else { port ^ 1 };
            let mut burst = Burst::with_room(self.room);
            let came = self.queues[port].0.rx_burst(&mut burst, &mut self.cache);
            self.totals.received += came as u64;
            if SWAP {
                burst.iter_mut().for_each(|packet| swap(packet.data_mut()));
            }
            let tx = &mut self.queues[out].1;
            if came > 0 {
                self.totals.sent += tx.tx_burst(&mut burst, &mut self.cache) as u64;
                self.totals.refused += burst.len() as u64;
                self.cache.free(&mut burst);
            }
            tx.flush(&mut self.cache);
        }
    }

    /// Sends a frame where one is due, or waits for a while for the one that is under way.
    #[inline(always)]
    fn ping(&mut self) {
        let Some(sent) = self.trips.sent else {
            let now = self.trips.clock.now();
            if now >= self.trips.due && self.push(1) == 1 {
                self.trips.sent = Some(now);
                self.trips.due = now + self.trips.interval;
            }
            return;
        };
        for _ in 0..POLLS {
            if self.take_back() > 0 {
                return self.trips.came_back(sent);
            }
        }
        self.trips.look_at(sent);
    }
}

/// The destination and the source address change places.
#[inline(always)]
fn swap(frame: &mut [u8]) {
    if let Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) = frame.first_chunk() {
        let (dst, src) = (MacAddr([a, b, c, d, e, f]), MacAddr([g, h, i, j, k, l]));
        let _ = set_macs(frame, src, dst);
    }
}

/// Round trips of one frame at a time.
struct Trips {
    clock: Clock,
    interval: u64,
    lost_after: u64,
    /// When the frame that is under way was sent.
    sent: Option<u64>,
    /// When the next may go.
    due: u64,
    lost: u64,
    /// In ticks, of all that came back.
    counts: Vec<u64>,
    min: u64,
    max: u64,
    sum: u64,
}

impl Trips {
    fn new(interval: Duration, clock: Clock) -> Self {
        Self {
            clock,
            interval: clock.ticks(interval.as_nanos() as u64),
            lost_after: clock.ticks(LOST.as_nanos() as u64),
            sent: None,
            due: 0,
            lost: 0,
            counts: vec![0; bucket_count(SUB_BITS, 64)],
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }

    #[inline(always)]
    fn came_back(&mut self, sent: u64) {
        let ticks = self.clock.now().wrapping_sub(sent);
        self.counts[bucket_of::<SUB_BITS>(ticks)] += 1;
        self.sum = self.sum.wrapping_add(ticks);
        (self.min, self.max) = (self.min.min(ticks), self.max.max(ticks));
        self.sent = None;
    }

    /// Gives up what was sent too long ago.
    fn look_at(&mut self, sent: u64) {
        if self.clock.now().wrapping_sub(sent) > self.lost_after {
            self.lost += 1;
            self.sent = None;
        }
    }

    fn sample(&self, row: &'static str, pages: impl ToString) -> Sample {
        let (counts, [min, max, sum]) = (self.counts.clone(), [self.min, self.max, self.sum]);
        let trips = HistogramSnapshot::of_counts(SUB_BITS, counts, min, max, sum);
        let ns = |percent| self.clock.ns(trips.percentile(percent));
        Sample::new(row, ns(50.0) as f64, "ns", pages)
            .with("p99_ns", ns(99.0))
            .with("p999_ns", ns(99.9))
            .with("trips", trips.total)
            .with("lost", self.lost)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_drivers::Drivers;

    /// Two ends, joined by in-process rings: what each measured. There is no sample without a frame
    /// that moved; how many moved in the measured time is the scheduler's affair.
    fn ends(rings: &[&str], first: Role, second: Role) -> [Sample; 2] {
        let clock = Clock::calibrate();
        let mut drivers = Drivers::new();
        let ends = [first, second].map(|role| {
            let specs: Vec<_> = rings.iter().map(|ring| (None, ring.to_string())).collect();
            let opened = OpenPorts::open_among(&mut drivers, &specs, clock).unwrap();
            let end = End {
                role,
                measured: Duration::from_millis(100),
                bytes: 60,
                burst: 32,
                interval: Duration::ZERO,
                hold: false,
            };
            std::thread::spawn(move || {
                let mut shown = None;
                let show = |sample| {
                    shown = Some(sample);
                    Ok(())
                };
                end.run(opened, show).unwrap();
                shown.unwrap()
            })
        });
        ends.map(|end| end.join().unwrap())
    }

    #[test]
    fn a_sink_counts_what_a_source_sends() {
        let [source, sink] = ends(&["ring:a,size=256"], Role::Source, Role::Sink);
        assert_eq!((source.row, sink.row), ("port.source", "port.sink"));
        assert_eq!(source.detail["sent_mpps"], source.value);
        assert_eq!(sink.detail["sent_mpps"], 0.0);
    }

    #[test]
    fn an_echo_sends_back_by_the_only_port_and_out_of_the_other_of_two() {
        for rings in [
            &["ring:a,size=256"][..],
            &["ring:a,size=256", "ring:b,size=256"],
        ] {
            let [exchange, echo] = ends(rings, Role::Exchange, Role::Echo);
            assert_eq!((exchange.unit, echo.row), ("Mpps", "port.echo"));
            let [ping, _] = ends(rings, Role::Ping, Role::Echo);
            assert!(ping.detail["trips"].as_u64() > Some(0), "{rings:?}");
            assert!(ping.value > 0.0 && ping.unit == "ns", "{rings:?}");
        }
    }

    #[test]
    fn addresses_change_places() {
        let mut frame = FRAME;
        swap(&mut frame);
        assert_eq!((&frame[..6], &frame[6..12]), (&FRAME[6..12], &FRAME[..6]));
        assert_eq!(frame[12..], FRAME[12..]);
    }
}
