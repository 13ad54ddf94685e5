//! The cost of 10,000 route changes a second for forwarding: the router's fast worker between two
//! looping captures, as in `router.ip4.1m`, while control takes changes from zebra's stream, and
//! while it does not.
//!
//! The worker has the first CPU. Control and zebra, each a thread, have the second: so the measured
//! cost is that of changing tables, not of sharing the CPU. Intervals with and without changes
//! alternate, and each with changes is compared with its neighbours.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Isa, Lcore};
use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::Counter;
use linerate_core::run::Egress;
use linerate_drivers::Drivers;
use linerate_tables::lpm::Prefix4;
use linerate_tables::lpm::synth::Pattern;
use linerate_wire::MacAddr;

use super::forward::{connect, open};
use super::l3fwd::{FULL, Routes};
use super::zebra::{self, Stream, Zebra};
use super::{Row, Run, Sample, router};
use linerate_appliance::error::Error;
use linerate_routing::fpm::Fpm;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::{Fast, Setup, Tables};
use linerate_routing::rib::{Progress, Rib};

pub(super) const ROWS: &[Row] = &[Row {
    name: "router.updates",
    about: "what 10,000 route changes a second cost forwarding by a million routes, in percent",
    run,
}];

const QUICK: Routes = Routes {
    routes: 20_000,
    next_hops: 1000,
    pattern: Pattern::Zipf,
    frames: 1 << 14,
};

const UPDATES_PER_S: usize = 10_000;
/// Changes that zebra sends at once, every 10 ms; control publishes what has come by then, as the
/// router does.
const BATCH: usize = UPDATES_PER_S / 100;
const BATCH_TIME: Duration = Duration::from_millis(10);
/// Intervals with changes, and batches in each of them.
const TIMES: usize = 7;
const MOST_BATCHES: usize = 100;
/// Timeout for the whole table.
const PATIENCE: Duration = Duration::from_secs(120);

fn run(row: &'static str, run: Run) -> Result<Sample, Error> {
    let what = if run.quick { &QUICK } else { &FULL };
    let routes = what.table();
    let captures = router::captures(what, &routes)?;
    let settings = zebra::settings();
    let [worker_cpu, control_cpu] = run.cpus;
    let control = Lcore::spawn("control", Some(control_cpu), move || -> Result<_, Error> {
        let (mut rib, fpm) = zebra::stand(&settings)?;
        for number in 0..what.next_hops {
            let [.., a, b] = number.to_be_bytes();
            let mac = Some(MacAddr([2, 0, 0, 1, a, b]));
            let on = InterfaceId(number as u16 & 1);
            rib.neighbour(on, zebra::gateway(number).into(), mac);
        }
        let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
        let pages = pool.page_kind();
        let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let (fib4, fib6, hops) = rib.readers();
        let setup = Setup {
            settings: Arc::new(settings),
            tables: Tables { fib4, fib6, hops },
            clock: Clock::calibrate(),
            isa: Isa::detect(),
            slow: 2,
            punts: Default::default(),
            queues: 1,
            mesh: Default::default(),
        };
        let stage = Fast::router(setup, &mut egress);
        let mut ports = open(&mut Drivers::new(), &captures.specs())?;
        let pools = Pools::new(vec![pool]);
        let (worker, handle) = connect(&mut ports, &pools, stage, egress, 0)?;
        let worker = Lcore::spawn("io0", Some(worker_cpu), move || drop(worker.run(false)))?;
        let mut control = Control {
            zebra: Zebra::connect(&fpm),
            rib,
            fpm,
            said: 0,
        };
        let measured = measure(
            &mut control,
            &routes,
            what,
            run.duration,
            &handle.stats().packets,
        );
        handle.stop();
        worker.join()?;
        Ok((measured?, pages))
    })?;
    let (times, pages) = control.join()??;
    let cost = cost_percent(&times.with, &times.without);
    Ok(Sample::new(row, cost.max(0.0), "%", pages)
        .with("cost_percent", cost)
        .with("with_mpps", median(&times.with).unwrap_or(0.0))
        .with("without_mpps", median(&times.without).unwrap_or(0.0))
        .with("updates_per_s", median(&times.updates).unwrap_or(0.0))
        .with("followed_s", times.followed_s)
        .with("routes", what.routes))
}

/// The control thread's work on routes.
struct Control {
    // Dropped first, while its peer still reads.
    zebra: Zebra,
    rib: Rib,
    fpm: Fpm,
    /// Messages given to zebra.
    said: u64,
}

impl Control {
    fn say(&mut self, parts: Vec<Stream>, messages: usize) -> Result<(), Error> {
        self.said += messages as u64;
        self.zebra
            .say(parts.into_iter().map(|part| part.0).collect())
    }

    /// Reads and publishes routes until the time is over, in batches of 10 ms.
    fn work(&mut self, until: Instant) {
        let (mut events, mut dirty) = (Vec::new(), None);
        loop {
            let now = Instant::now();
            if now >= until {
                return;
            }
            let before = self.fpm.counts.frames;
            let more = self.fpm.poll(&mut self.rib, now, &mut events);
            if self.fpm.counts.frames != before {
                dirty.get_or_insert(now);
            }
            if dirty.is_some_and(|since| now >= since + BATCH_TIME)
                && self.rib.commit() == Progress::Done
            {
                dirty = None;
            }
            let due = dirty.map_or(until, |since| (since + BATCH_TIME).min(until));
            if !more {
                thread::park_timeout(due.saturating_duration_since(now));
            }
        }
    }

    /// Waits until all routes given to zebra are published.
    fn settle(&mut self) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        let mut events = Vec::new();
        loop {
            let more = self.fpm.poll(&mut self.rib, Instant::now(), &mut events);
            let progress = self.rib.commit();
            if !more && progress != Progress::More {
                if progress == Progress::Done && self.fpm.counts.frames >= self.said {
                    return Ok(());
                }
                thread::park_timeout(Duration::from_millis(1));
            }
            if Instant::now() > end {
                return Err(Error::Usage {
                    problem: "the router did not follow the stream in time".into(),
                    fix: "give it CPUs of its own".into(),
                });
            }
        }
    }
}

/// Results of all intervals, in Mpps and in changes a second.
#[derive(Default)]
struct Times {
    with: Vec<f64>,
    /// One more than with changes: before the first, between, and behind the last.
    without: Vec<f64>,
    updates: Vec<f64>,
    /// Time for the whole table, in s, beside a worker at full load.
    followed_s: f64,
}

fn measure(
    control: &mut Control,
    routes: &[(Prefix4, u32)],
    what: &Routes,
    duration: Duration,
    packets: &Counter,
) -> Result<Times, Error> {
    let mut times = Times::default();
    let began = Instant::now();
    let table = Stream::of(routes, what.next_hops);
    control.say(vec![table], what.next_hops as usize + routes.len())?;
    control.settle()?;
    times.followed_s = began.elapsed().as_secs_f64();
    let batches = (duration.as_secs_f64() * 100.0 / TIMES as f64) as usize;
    let batches = batches.clamp(2, MOST_BATCHES);
    let length = BATCH_TIME * batches as u32;
    // Every route changes once before one changes twice.
    let mut changes = (1..).flat_map(|lap| routes.iter().map(move |route| (lap, route)));
    let timed = |control: &mut Control| {
        let (began, before) = (Instant::now(), packets.read());
        let frames = control.fpm.counts.frames;
        control.work(began + length);
        let seconds = began.elapsed().as_secs_f64();
        let mpps = (packets.read() - before) as f64 / 1e6 / seconds;
        (mpps, (control.fpm.counts.frames - frames) as f64 / seconds)
    };
    for _ in 0..TIMES {
        times.without.push(timed(control).0);
        let parts = (0..batches).map(|_| {
            let mut part = Stream::default();
            for (lap, &(prefix, number)) in changes.by_ref().take(BATCH) {
                part.route(prefix, (number + lap) % what.next_hops);
            }
            part
        });
        let parts: Vec<Stream> = parts.collect();
        control.say(parts, batches * BATCH)?;
        let (mpps, updates) = timed(control);
        times.with.push(mpps);
        times.updates.push(updates);
        control.settle()?;
    }
    times.without.push(timed(control).0);
    Ok(times)
}

/// The median loss of intervals with changes against the mean of their neighbours without, in
/// percent. Negative if they were faster.
fn cost_percent(with: &[f64], without: &[f64]) -> f64 {
    let around = without.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let costs = with.iter().zip(around);
    let costs: Vec<f64> = costs
        .map(|(with, around)| 100.0 * (1.0 - with / around))
        .collect();
    median(&costs).unwrap_or(f64::NAN)
}

/// The middle value, or what is between the two in the middle; `None` of none.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let high = *sorted.get(sorted.len() / 2)?;
    Some((sorted[(sorted.len() - 1) / 2] + high) / 2.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_is_lacking_against_the_times_around() {
        // The machine gets slower, and the changes cost a constant 10 %.
        let cost = cost_percent(&[81.0, 63.0], &[100.0, 80.0, 60.0]);
        assert!((cost - 10.0).abs() < 1e-9, "{cost}");
        // One disturbed interval does not change the median.
        let cost = cost_percent(&[98.0, 10.0, 98.0], &[100.0; 4]);
        assert!((cost - 2.0).abs() < 1e-9, "{cost}");
        assert!(cost_percent(&[102.0], &[100.0, 100.0]) < 0.0);
    }

    #[test]
    fn the_row_works() {
        let sample = run("router.updates", Run::quick()).unwrap();
        let detail = |key: &str| sample.detail[key].as_f64().unwrap();
        assert!(detail("without_mpps") > 0.0 && detail("with_mpps") > 0.0);
        assert!(detail("routes") == 20_000.0);
    }
}
