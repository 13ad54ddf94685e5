//! Packets lost while a router under half its load takes another configuration: 100 K routes, of which
//! half change, and 1 K rules of an access list, all of which do.
//!
//! The router is the one that users run, less its socket and its twins, on in-process rings. Worker on the
//! first CPU; generator and sink, in turns on one thread, on the second, with control and the slow worker.
//! Where control has no CPU of its own the generator has none while control computes, and what was due
//! then is left out; it has one whenever control waits for the worker. The load is half of what the worker
//! can do by its own books: packets for each tick in which it had some. A frame for which the ring to the
//! router has no room is lost, as at a card: a worker that stands still for as long as the ring
//! lasts loses frames.
//!
//! Stretches without a reload stand beside, and those in which somebody else had the worker's CPU long
//! enough to explain a loss are done again.

mod files;
mod line;

use linerate_core::env::{Clock, Lcore};
use linerate_drivers::Drivers;
use linerate_tables::lpm::synth::{Pattern, destinations};
use serde_json::Value;

use super::device::Watch;
use super::l3fwd::Frame;
use super::{Row, Run, Sample, router};
use crate::apps::router::control::Embedded;
use crate::error::Error;
use files::{Files, ROUTER};
use line::{Line, Pace};

pub(super) const ROWS: &[Row] = &[Row {
    name: "router.reload",
    about: "packets lost in reloads with 100 K routes and 1 K rules at half the load",
    run,
}];

/// How much there is of everything.
struct Size {
    routes: usize,
    rules: u32,
    /// Different frames.
    frames: usize,
    /// Frames that the ring to the router holds: at 10 Mpps 1.6 ms.
    room: usize,
}

const WHOLE: Size = Size {
    routes: 100_000,
    rules: 1000,
    frames: 1 << 16,
    room: 16_384,
};
const QUICK: Size = Size {
    routes: 2000,
    rules: 100,
    frames: 1024,
    room: 4096,
};

/// Part of what the worker can do that is offered.
const LOAD: f64 = 0.5;
/// Before and behind each reload, in ns.
const AROUND_NS: u64 = 50_000_000;
/// How long the router may take to forward a first frame, and to reload, in ns.
const PATIENCE_NS: u64 = 120_000_000_000;
/// Stretches that are done again at most, of those that somebody has disturbed.
const AGAIN: u64 = 5;

fn run(row: &'static str, run: Run) -> Result<Sample, Error> {
    let size = if run.quick { &QUICK } else { &WHOLE };
    let [worker_cpu, other_cpu] = run.cpus;
    let files = Files::write(size, [other_cpu, worker_cpu])?;
    let addresses = destinations(&files.routes, Pattern::Prefixes, size.frames, 2);
    let frames = (0..).zip(addresses).map(|(number, dst)| asks(number, dst));
    let mut drivers = Drivers::new();
    let line = Line::open(
        &mut drivers,
        frames.collect(),
        size.room,
        worker_cpu == other_cpu,
        Clock::calibrate(),
    )?;
    let router = Embedded::start(&files.used, &mut drivers, other_cpu)?;
    let measured = Lcore::spawn("generator", Some(other_cpu), move || {
        measure(row, &run, size, &files, line, router)
    })?;
    measured.join()?
}

fn measure(
    row: &'static str,
    run: &Run,
    size: &Size,
    files: &Files,
    mut line: Line,
    router: Embedded,
) -> Result<Sample, Error> {
    let clock = router.clock;
    first_frame(&mut line, clock)?;
    let per_tick = LOAD * capacity(&mut line, &router, size, run.duration.as_nanos() as u64);
    let reloads = (run.duration.as_secs_f64() * 3.0).ceil().clamp(2.0, 100.0) as usize;
    let mut tally = Tally::default();
    for turn in 1..=reloads {
        loop {
            files.put(turn)?;
            let with = stretch(&mut line, &router, per_tick, With::Reload)?;
            let length = With::Nothing(with.ticks);
            let without = stretch(&mut line, &router, per_tick, length)?;
            if (with.disturbed || without.disturbed) && tally.disturbed < AGAIN {
                tally.disturbed += 1;
                // Whatever stands there now is reloaded once more, so that the next one changes as much.
                files.put(turn + 1)?;
                stretch(&mut line, &router, per_tick, With::Reload)?;
                continue;
            }
            tally.add(&with, &without, clock);
            break;
        }
    }
    let dropped: u64 = router.worker.1.drops().iter().map(|(_, count)| count).sum();
    let (out_of_order, strays) = (line.numbers.out_of_order, line.strays);
    router.stop()?;
    drop(line);
    Ok(Sample::new(row, tally.lost as f64, "packets", "")
        .with("reloads", reloads)
        .with("routes", files.routes.len())
        .with("rules", size.rules)
        .with("changed_routes", tally.changed_routes)
        .with("offered_mpps", per_tick * clock.hz() / 1e6)
        .with("offered_percent", 100.0 - tally.left_out_percent())
        .with("frames", tally.frames)
        .with("reload_ms", tally.reload_ns as f64 / 1e6 / reloads as f64)
        .with("no_room", tally.no_room)
        .with("lost_without_reload", tally.lost_without)
        .with("dropped", dropped)
        .with("out_of_order", out_of_order)
        .with("strays", strays)
        .with("disturbed", tally.disturbed))
}

/// As the router's other row, but to the MAC address that a port of rings has.
fn asks(number: u64, dst: u32) -> Frame {
    let mut frame = router::asks(number, dst);
    frame[..6].copy_from_slice(&ROUTER.0);
    frame
}

/// Waits until frames come through: the router sees that its ports are connected.
fn first_frame(line: &mut Line, clock: Clock) -> Result<(), Error> {
    let end = clock.now() + clock.ticks(PATIENCE_NS);
    // A few: those that come too early are lost, and not counted.
    let slowly = 1000.0 / clock.hz();
    line.offer(&mut Pace::new(clock.now(), slowly), |line, now| {
        line.numbers.came >= 16 || now > end
    });
    line.drain();
    match line.numbers.came {
        0 => Err(silent("forwards nothing")),
        _ => Ok(()),
    }
}

fn silent(what: &str) -> Error {
    Error::Usage {
        problem: format!("the router {what}"),
        fix: "see what `linerate router` says to a configuration of two rings".into(),
    }
}

/// Packets for each tick that the worker spends on them, while it has as many as it can take.
fn capacity(line: &mut Line, router: &Embedded, size: &Size, ns: u64) -> f64 {
    let (stats, clock) = (&router.worker.1, router.clock);
    let time = clock.ticks(ns.clamp(20_000_000, 500_000_000));
    let mut flood = |time| {
        let end = clock.now() + time;
        line.fill(size.room, |now| now >= end);
    };
    flood(time / 5);
    let read = || (stats.packets.read(), stats.busy_ticks.read());
    let before = read();
    flood(time);
    let after = read();
    line.drain();
    (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
}

/// What happens in a stretch.
enum With {
    Reload,
    /// For so many ticks.
    Nothing(u64),
}

/// What became of a stretch.
#[derive(Default)]
struct Stretch {
    ticks: u64,
    frames: u64,
    lost: u64,
    no_room: u64,
    left_out: u64,
    /// Routes that the reload changed, and how long it took in ticks.
    changed_routes: u64,
    reload_ticks: u64,
    /// Whether somebody had the worker's CPU for long enough to explain the loss.
    disturbed: bool,
}

fn stretch(
    line: &mut Line,
    router: &Embedded,
    per_tick: f64,
    with: With,
) -> Result<Stretch, Error> {
    let clock = router.clock;
    let around = clock.ticks(AROUND_NS);
    let patience = clock.ticks(PATIENCE_NS);
    // Long rounds say nothing here, since messages between two bursts are what is measured: the
    // scheduler's books are read.
    let watch = Watch::begin(vec![router.worker.0.clone()], Vec::new(), true);
    let (sent, lost, no_room) = (line.sent, line.lost(), line.no_room);
    let stops = || {
        let stats = &router.worker.1;
        [&stats.gaps, &stats.mail].map(|histogram| histogram.snapshot())
    };
    let before = stops();
    let dbg0 = { let s=&router.worker.1; (s.busy_ticks.read(), s.idle_ticks.read(), s.asleep_ticks.read(), s.sleeps.read(), s.drops()) };
    let began = clock.now();
    let mut pace = Pace::new(began, per_tick);
    let mut stretch = Stretch::default();
    match with {
        With::Nothing(ticks) => line.offer(&mut pace, |_, now| now >= began + ticks),
        With::Reload => {
            line.offer(&mut pace, |_, now| now >= began + around);
            let (asked, reload) = (clock.now(), router.reload()?);
            let mut now = asked;
            line.offer(&mut pace, |_, at| {
                now = at;
                reload.is_finished() || now > asked + patience
            });
            if !reload.is_finished() {
                return Err(silent("does not answer a reload"));
            }
            let result = reload.join()?;
            let result =
                result.map_err(|problem| silent(&format!("refuses a reload: {problem}")))?;
            stretch.changed_routes = result.get("routes").and_then(Value::as_u64).unwrap_or(0);
            stretch.reload_ticks = now - asked;
            line.offer(&mut pace, |_, now_| now_ >= now + around);
        }
    }
    stretch.ticks = clock.now() - began;
    line.drain();
    stretch.frames = line.sent - sent;
    stretch.lost = line.lost() - lost;
    stretch.no_room = line.no_room - no_room;
    stretch.left_out = pace.left_out;
    let stolen = watch.end(&[], (0, 0), clock);
    let pps = per_tick * clock.hz();
    stretch.disturbed = stolen.explains(stretch.lost, pps).is_some();
    let longest = |at: usize| {
        let since = stops()[at].since(&before[at]);
        clock.ns(since.buckets().last().map_or(0, |(upper, _)| upper))
    };
    let g = stops()[0].since(&before[0]); let m = stops()[1].since(&before[1]);
    let s=&router.worker.1;
    let us = |t: u64| clock.ns(t) as f64 / 1e3;
    eprintln!("{} ms {:.0} reload {:.0} frames {} lost {} no_room {} left_out {} stolen {:.2} ms gap max {} us n {} sum {:.2} ms, mail max {} us n {} sum {:.3} ms busy {:.1} idle {:.1} asleep {:.1} ms sleeps {} drops {:?} before {:?} top gaps {:?}",
        if stretch.reload_ticks > 0 {"WITH   "} else {"without"}, us(stretch.ticks)/1e3, us(stretch.reload_ticks)/1e3, stretch.frames, stretch.lost, stretch.no_room, stretch.left_out, stolen.sum_ns as f64/1e6,
        longest(0)/1000, g.total, us(g.sum)/1e3, longest(1)/1000, m.total, us(m.sum)/1e3, us(s.busy_ticks.read()-dbg0.0)/1e3, us(s.idle_ticks.read()-dbg0.1)/1e3, us(s.asleep_ticks.read()-dbg0.2)/1e3, s.sleeps.read()-dbg0.3, s.drops(), dbg0.4.len(),
        g.buckets().map(|(u,c)| (clock.ns(u)/1000,c)).collect::<Vec<_>>().into_iter().rev().take(8).collect::<Vec<_>>());
    Ok(stretch)
}

/// All stretches that count.
#[derive(Default)]
struct Tally {
    lost: u64,
    lost_without: u64,
    frames: u64,
    no_room: u64,
    left_out: u64,
    changed_routes: u64,
    reload_ns: u64,
    disturbed: u64,
}

impl Tally {
    fn add(&mut self, with: &Stretch, without: &Stretch, clock: Clock) {
        self.lost += with.lost;
        self.lost_without += without.lost;
        self.frames += with.frames;
        self.no_room += with.no_room;
        self.left_out += with.left_out;
        self.changed_routes += with.changed_routes;
        self.reload_ns += clock.ns(with.reload_ticks);
    }

    /// Of what was due during reloads.
    fn left_out_percent(&self) -> f64 {
        100.0 * self.left_out as f64 / (self.left_out + self.frames).max(1) as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reloads_count_in_a_tally_and_stretches_without_one_beside() {
        let with = Stretch {
            frames: 300,
            lost: 2,
            left_out: 100,
            ..Stretch::default()
        };
        let without = Stretch {
            lost: 5,
            ..Stretch::default()
        };
        let mut tally = Tally::default();
        tally.add(&with, &without, Clock::monotonic("a test"));
        assert_eq!((tally.lost, tally.lost_without), (2, 5));
        assert_eq!(tally.left_out_percent(), 25.0);
    }

    /// Wherever this runs, on however many CPUs: every frame is accounted for, and reloads change what they
    /// should. Whether frames are lost is the machine's affair here.
    #[test]
    fn the_row_works() {
        let sample = run("router.reload", Run::quick()).unwrap();
        let detail = |key: &str| sample.detail[key].as_u64().unwrap();
        assert_eq!(detail("routes"), 2000);
        assert!(detail("changed_routes") >= 2000, "half of them, twice");
        assert!(
            detail("frames") > 100 && detail("out_of_order") == 0,
            "{:?}",
            sample.detail
        );
    }
}
