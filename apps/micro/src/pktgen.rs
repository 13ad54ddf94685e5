//! The traffic generator's transmit side on one core: the whole turn of a sender, from the schedule
//! to the queue, and the disposal of the frames there.
//!
//! A frame of 64 bytes is 60 in memory (the check sequence is not), and each is written in full.
//! Over `ring` the same lcore takes the frames out again and frees them.

use std::time::Duration;

use linerate_core::env::{Clock, ClockSource};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig};
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;

use super::forward::rate;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_traffic::engine::{ScheduledStream, Sender};
use linerate_traffic::stream::{Stream, StreamSpec};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "pktgen.tx.fixed.null",
        about: "generate one fixed frame of 64 bytes, each written in full, into a null port",
        run: |row, run| transmit(row, run, "null:,rx=off", FIXED),
    },
    Row {
        name: "pktgen.tx.fixed.ring",
        about: "generate one fixed frame of 64 bytes into a ring loop, and take it out again",
        run: |row, run| transmit(row, run, "ring:a,loop=on,size=1024", FIXED),
    },
    Row {
        name: "pktgen.tx.varied",
        about: "generate frames of 64 bytes with four varying fields into a null port",
        run: |row, run| transmit(row, run, "null:,rx=off", VARIED),
    },
    Row {
        name: "pktgen.pace.1mpps",
        about: "how far 99 % of the times between frames are off the schedule, at 1 Mpps",
        run: pace,
    },
    Row {
        name: "pktgen.clock",
        about: "how far the clock's rate may be off, calibrated for a second or longer",
        run: clock,
    },
];

/// The same bytes in each frame, as testpmd's txonly sends them.
const FIXED: &str = "udp size=64 signature=off";
/// With a signature: stream, sequence number, time stamp and check.
const VARIED: &str = "udp size=64 dst=198.19.0.1-198.19.0.254 sport=random:1024-65535 \
    dport=1000-9999 ttl=32,64,128,255";

const SLOTS: u32 = 16_384;

/// Mpps of one stream at the maximum rate.
fn transmit(
    row: &'static str,
    run: Run,
    port: &'static str,
    stream: &'static str,
) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", SLOTS))?;
    let pages = pool.page_kind();
    let stream = compile(stream);
    let mpps = run.pinned(move |run| -> Result<f64, Error> {
        let clock = Clock::calibrate();
        let pools = Pools::new(vec![pool.clone()]);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut port: Box<dyn Port> = Drivers::new().open(port)?;
        let mut queues = port.start(&PortConfig::default(), &pools)?;
        let mut rx = queues.rx.remove(0);
        let mut sender = Sender::new(queues.tx.remove(0), pool, clock.hz());
        sender
            .streams
            .push(ScheduledStream::new(stream, None, None, Default::default()));
        sender.start(clock.now(), None)?;
        let mut burst = Burst::new();
        let mut turn = || {
            let sent = sender.turn(clock.now(), &mut cache);
            rx.rx_burst(&mut burst, &mut cache);
            cache.free(&mut burst);
            sent as u64
        };
        rate(run.duration / 10, &mut turn);
        Ok(rate(run.duration, &mut turn))
    })??;
    Ok(Sample::new(row, mpps, "Mpps", pages).with("bytes_in_memory", 60))
}

/// p99 of [`SenderStats::departure_error`] in ns: its documentation says what is measured.
///
/// [`SenderStats::departure_error`]: linerate_traffic::engine::SenderStats
fn pace(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", SLOTS))?;
    let pages = pool.page_kind();
    let stream = compile(FIXED);
    let (clock, stats) = run.pinned(move |run| -> Result<_, Error> {
        let clock = Clock::calibrate();
        let pools = Pools::new(vec![pool.clone()]);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut port: Box<dyn Port> = Drivers::new().open("null:,rx=off")?;
        let mut queues = port.start(&PortConfig::default(), &pools)?;
        let mut sender = Sender::new(queues.tx.remove(0), pool, clock.hz());
        let stream = ScheduledStream::new(stream, Some(1e6), None, Default::default());
        sender.streams.push(stream);
        sender.start(clock.now(), Some(run.duration))?;
        let stats = sender.stats.clone();
        while stats.done.read() == 0 {
            sender.turn(clock.now(), &mut cache);
        }
        Ok((clock, stats))
    })??;
    let errors = stats.departure_error.snapshot();
    let ns = |percent: f64| clock.ns(errors.percentile(percent)) as f64;
    Ok(Sample::new(row, ns(99.0), "ns", pages)
        .with("p50_ns", ns(50.0))
        .with("max_ns", clock.ns(errors.max))
        .with("frames", errors.total)
        .with("left_out", stats.departures_stolen.read()))
}

/// The bound of the clock's error in ppm, and how far the quick calibration of 16 ms is off it.
fn clock(row: &'static str, run: Run) -> Result<Sample, Error> {
    let quick = Clock::calibrate();
    let clock = Clock::calibrate_for(run.duration.max(Duration::from_secs(1)));
    let error_ppm = match clock.source() {
        ClockSource::Tsc { error_ppm, .. } => error_ppm,
        // The other clock is measured by it.
        ClockSource::Monotonic { .. } => 0.0,
    };
    Ok(Sample::new(row, error_ppm, "ppm", "no pages")
        .with("clock", clock.source().to_string())
        .with("quick_off_ppm", (quick.hz() / clock.hz() - 1.0) * 1e6))
}

/// One of the bench's own streams.
fn compile(stream: &str) -> Stream {
    stream
        .parse::<StreamSpec>()
        .and_then(|spec| spec.compile(0, MacAddr::local(1), MacAddr::local(2), 1))
        .expect("the bench's own streams are right")
}
