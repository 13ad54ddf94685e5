//! Timers: set again while pending, and set and fired. A tick is a millisecond, deadlines lie
//! within a minute.

use std::hint::black_box;
use std::time::{Duration, Instant};

use linerate_core::mem::PageKind;
use linerate_tables::wheel::Wheel;

use super::random::below;
use super::{Growth, Point};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "wheel.rearm.1m",
        about: "set a random one of 1 M pending timers to another time",
        run: |row, run| {
            let (ns, bytes_each, pages) = rearm(1_000_000, run)?;
            Ok(Sample::new(row, ns, "ns", pages).with("bytes_each", bytes_each))
        },
    },
    Row {
        name: "wheel.arm_fire.100k",
        about: "set 100 K timers to random times, and fire them all",
        run: |row, run| fire(row, 100_000, run),
    },
    Row {
        name: "wheel.arm_fire.1m",
        about: "set 1 M timers to random times, and fire them all",
        run: |row, run| fire(row, 1_000_000, run),
    },
];

pub(super) const GROWTH: &[Growth] = &[Growth {
    name: "wheel.rearm",
    of: "timers",
    sizes: &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    run: |timers, run| {
        let (ns, bytes_each, _) = rearm(timers, run)?;
        Ok(Point { ns, bytes_each })
    },
}];

const MINUTE: u64 = 60_000;
/// Number of timers and times drawn beforehand.
const DRAWN: u64 = 1 << 20;

/// Nanoseconds per timer that is set again, bytes of each, and the pages of those.
fn rearm(timers: u64, run: Run) -> Result<(f64, f64, PageKind), Error> {
    let mut wheel = Wheel::new("bench", timers as usize, 0)?;
    let (bytes_each, pages) = (wheel.bytes() as f64 / timers as f64, wheel.pages());
    for timer in 0..timers {
        wheel.schedule(timer as u32, 1 + below(timer, MINUTE));
    }
    let draw = |number: u64| {
        let timer = below(number << 1, timers) as u32;
        (timer, 1 + below((number << 1) | 1, MINUTE))
    };
    let drawn: Vec<(u32, u64)> = (0..DRAWN).map(draw).collect();
    let ns = run.pinned(move |run| {
        let mut bursts = drawn.chunks_exact(32).cycle();
        run.time(|| {
            let burst = bursts.next().unwrap_or_default();
            for &(timer, deadline) in black_box(burst) {
                wheel.schedule(timer, deadline);
            }
            burst.len() as u64
        })
    })?;
    Ok((ns, bytes_each, pages))
}

/// Nanoseconds per timer that is set and fires.
fn fire(row: &'static str, timers: u64, run: Run) -> Result<Sample, Error> {
    let mut wheel = Wheel::new("bench", timers as usize, 0)?;
    let pages = wheel.pages();
    let delays: Vec<u64> = (0..timers).map(|timer| 1 + below(timer, MINUTE)).collect();
    let ns = run.pinned(move |run| {
        let (mut timed, mut fired, mut now) = (Duration::ZERO, 0, 0);
        // The first round touches the memory, and does not count.
        for round in 0.. {
            let began = Instant::now();
            for (timer, delay) in delays.iter().enumerate() {
                wheel.schedule(timer as u32, now + delay);
            }
            let end = now + MINUTE;
            while now < end {
                now += 1;
                let mut budget = usize::MAX;
                while let Some(timer) = wheel.pop(now, &mut budget) {
                    black_box(timer);
                    fired += u64::from(round > 0);
                }
            }
            if round > 0 {
                timed += began.elapsed();
                if timed >= run.duration {
                    break;
                }
            }
        }
        timed.as_nanos() as f64 / fired as f64
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}
