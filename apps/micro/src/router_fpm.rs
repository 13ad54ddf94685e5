//! A full table from FRR, as zebra sends it, until all of it is published.
//!
//! The stream is [`zebra`]'s, of the prefixes that the `lpm4` rows work on. A worker looks for
//! every publication. Then changes, in batches.

use std::thread;
use std::time::{Duration, Instant};

use linerate_core::publish::Reader;
use linerate_tables::lpm::Fib4;
use linerate_tables::lpm::synth::{Spec, routes4};
use rustix::time::{ClockId, clock_gettime};

use super::zebra::{self, Stream, Zebra};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_routing::fpm::Fpm;
use linerate_routing::rib::{Progress, Rib};

pub(super) const ROWS: &[Row] = &[Row {
    name: "router.fpm.1m",
    about: "a million routes from an FPM stream until all are published; changes beside",
    run,
}];

const ROUTES: usize = 1_000_000;
/// Routes with `--quick`.
const QUICK_ROUTES: usize = 20_000;
const NEXT_HOPS: u32 = 1000;
/// Changes that are timed, and how many are published together.
const CHANGES: usize = 10_000;
const BATCH: usize = 100;

/// One turn of control: reads what has come, and publishes it. The worker looks after each
/// publication.
fn turn(rib: &mut Rib, fpm: &mut Fpm, worker: &mut Reader<Fib4>, others: &mut impl FnMut()) {
    let mut events = Vec::new();
    let more = fpm.poll(rib, Instant::now(), &mut events);
    let progress = rib.commit();
    worker.read();
    others();
    if !more && progress == Progress::Done {
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// CPU time of this thread, which is control's; waiting does not count.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn run(row: &'static str, run: Run) -> Result<Sample, Error> {
    let spec = Spec {
        next_hops: NEXT_HOPS,
        ..Spec::new(if run.quick { QUICK_ROUTES } else { ROUTES }, 1)
    };
    let routes = routes4(&spec);
    let table = Stream::of(&routes, NEXT_HOPS);
    let stream_bytes = table.0.len();
    let changes: Vec<Vec<u8>> = routes
        .chunks(routes.len() / CHANGES)
        .take(CHANGES)
        .map(|chunk| {
            let mut sent = Stream::default();
            sent.route(chunk[0].0, (chunk[0].1 + 1) % NEXT_HOPS);
            sent.0
        })
        .collect();
    let batches: Vec<Vec<u8>> = changes.chunks(BATCH).map(<[Vec<u8>]>::concat).collect();
    let (first_frames, all) = (u64::from(NEXT_HOPS) + routes.len() as u64, routes.len());
    let timed = run.pinned(move |_| -> Result<_, Error> {
        let (mut rib, mut fpm) = zebra::stand(&zebra::settings())?;
        let (mut worker, mut fib6, mut hops) = rib.readers();
        let mut others = move || {
            fib6.read();
            hops.read();
        };
        while rib.commit() != Progress::Done {
            worker.read();
            others();
        }
        let memory_before = rib.counts().memory_bytes;
        let zebra = Zebra::connect(&fpm);
        let began = Instant::now();
        zebra.say(vec![table.0])?;
        loop {
            turn(&mut rib, &mut fpm, &mut worker, &mut others);
            if fpm.counts.frames == first_frames && rib.commit() == Progress::Done {
                break;
            }
            worker.read();
        }
        let seconds = began.elapsed().as_secs_f64();
        // Checks the first and the last route.
        let fib = worker.read();
        let followed = routes
            .iter()
            .filter(|(prefix, _)| fib.lookup(0, prefix.first()).is_some())
            .count();
        let counts = rib.counts();
        let began = cpu_seconds();
        for (sent, batch) in (1..).zip(batches) {
            zebra.say(vec![batch])?;
            let frames = first_frames + sent * BATCH as u64;
            while fpm.counts.frames < frames || rib.commit() != Progress::Done {
                turn(&mut rib, &mut fpm, &mut worker, &mut others);
            }
        }
        let change_us = (cpu_seconds() - began) * 1e6 / CHANGES as f64;
        drop(fpm);
        Ok((seconds, followed, change_us, counts, memory_before))
    })?;
    let (seconds, followed, change_us, counts, memory_before) = timed?;
    Ok(Sample::new(row, seconds, "s", "")
        .with("routes", all)
        .with("followed", followed)
        .with("next_hops", NEXT_HOPS)
        .with("stream_bytes", stream_bytes)
        .with("change_us", change_us)
        .with("hops", counts.hops)
        .with("memory_bytes", counts.memory_bytes)
        .with("memory_before_bytes", memory_before))
}
