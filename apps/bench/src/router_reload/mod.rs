//! Packets lost while a router under half its load takes another configuration: 100 K routes, of
//! which half change, and 1 K rules of an access list, all of which do. The same of a gateway with
//! a policy of 100 K rules, one of which changes: its lists are compiled beside, and each of its
//! flows is decided anew at its next packet.
//!
//! The router is the one that users run, without its socket and host interfaces, on in-process
//! rings. The worker has the first CPU; the second has generator and sink, in turns on one thread,
//! with control, the slow worker and the reader of the file. Frames that are due while the
//! generator has no CPU are held, up to a bound, and left out beyond it: they count as not offered,
//! not as lost. The load is half of the worker's capacity by its own counters: packets per busy
//! tick. A frame that does not fit into the ring to the router is lost, and so is any that the
//! router drops.
//!
//! The ring is deeper than a card's, since here other threads may take the worker's CPU, which is
//! not the reload's fault. As its depth could hide stops, the worker's own times are reported as
//! well: the longest stop between two rounds to take messages, which is all that a reload needs of
//! it, and the longest round. Intervals without a reload are reported, too; those in which the
//! scheduler or the host took the worker's CPU for long enough to explain a loss are repeated, and
//! their loss is reported separately.

mod files;
mod line;

use linerate_core::env::{Clock, Lcore};
use linerate_drivers::Drivers;
use linerate_tables::lpm::synth::{Pattern, destinations};
use serde_json::Value;

use files::{Files, ROUTER};
use line::{Line, Pace};
use linerate_appliance::error::Error;
use linerate_control::{Appliance, Embedded};
use linerate_micro::l3fwd::Frame;
use linerate_micro::{Row, Run, Sample, router};
use linerate_tester::device::{Involved, StartReadings};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "router.reload",
        about: "packets lost in reloads with 100 K routes and 1 K rules at half the load",
        run: |row, run| reloads(row, run, [&WHOLE, &QUICK]),
    },
    Row {
        name: "gateway.policy.100k",
        about: "packets lost in reloads that change one rule of 100 K, at half the load",
        run: |row, run| reloads(row, run, [&POLICY, &QUICK_POLICY]),
    },
];

/// Sizes of the benchmark.
struct Size {
    /// Whether it is a gateway's policy that changes, not a router's routes and access list.
    is_gateway: bool,
    routes: usize,
    rules: u32,
    /// Different frames.
    frames: usize,
    /// Frames that the ring to the router holds: at 10 Mpps 3.3 ms.
    room: usize,
}

const WHOLE: Size = Size {
    is_gateway: false,
    routes: 100_000,
    rules: 1000,
    frames: 1 << 16,
    room: 32_768,
};
const QUICK: Size = Size {
    is_gateway: false,
    routes: 2000,
    rules: 100,
    frames: 1024,
    room: 4096,
};
const POLICY: Size = Size {
    is_gateway: true,
    routes: 1000,
    rules: 100_000,
    frames: 1 << 12,
    room: 32_768,
};
const QUICK_POLICY: Size = Size {
    is_gateway: true,
    rules: 500,
    ..QUICK
};

impl Size {
    /// What a reload changes, as its answer and as the sample name it.
    fn changes(&self) -> (&'static str, &'static str) {
        match self.is_gateway {
            true => ("policies", "changed_policies"),
            false => ("routes", "changed_routes"),
        }
    }
}

/// Offered load as a part of the worker's capacity.
const LOAD: f64 = 0.5;
/// Before and behind each reload, in ns.
const AROUND_NS: u64 = 50_000_000;
/// How long the router may take to forward a first frame, and to reload, in ns.
const PATIENCE_NS: u64 = 120_000_000_000;
/// How often a disturbed reload is repeated at most.
const AGAIN: u64 = 3;
/// Once it has measured for so long, in ns, nothing is repeated, and two reloads are enough: where
/// a reload takes seconds, and on a busy machine many, the row still ends in time.
const ENOUGH_NS: u64 = 30_000_000_000;
/// The longest interval without a reload, in ns; it is as long as the one with it where that is
/// shorter.
const WITHOUT_NS: u64 = 1_000_000_000;
/// Part of the ring's room that is held for when the generator has its CPU again.
const HELD: usize = 8;

fn reloads(
    row: &'static str,
    run: Run,
    [whole, quick]: [&'static Size; 2],
) -> Result<Sample, Error> {
    let size = if run.quick { quick } else { whole };
    let (files, line, router) = begin(size, run.cpus)?;
    let measured = Lcore::spawn("generator", Some(run.cpus[1]), move || {
        measure(row, &run, size, &files, line, router)
    })?;
    measured.join()?
}

/// A running router, and the generator and sink on its rings.
fn begin(size: &Size, cpus: [u32; 2]) -> Result<(Files, Line, Embedded), Error> {
    let [worker_cpu, other_cpu] = cpus;
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
    let appliance = match size.is_gateway {
        true => linerate_gateway::GATEWAY,
        false => Appliance::default(),
    };
    let router = Embedded::start(appliance, &files.used, &mut drivers, other_cpu)?;
    Ok((files, line, router))
}

fn measure(
    row: &'static str,
    run: &Run,
    size: &'static Size,
    files: &Files,
    mut line: Line,
    router: Embedded,
) -> Result<Sample, Error> {
    let clock = router.clock;
    first_frame(&mut line, clock)?;
    let per_tick = LOAD * capacity(&mut line, &router, size, run.duration.as_nanos() as u64);
    let reloads = (run.duration.as_secs_f64() * 3.0).ceil().clamp(2.0, 100.0) as u64;
    let (mut tally, mut turn) = (Tally::default(), 0);
    let enough = clock.now() + clock.ticks(ENOUGH_NS);
    let is_late = || clock.now() > enough;
    while tally.reloads < reloads && (tally.reloads < 2 || !is_late()) {
        // Each reload changes the same amount: from one file to the other, and back.
        turn += 1;
        files.put(turn)?;
        let held = size.room / HELD;
        let with = stretch(&mut line, &router, per_tick, held, With::Reload(size))?;
        let length = With::Nothing(with.ticks.min(clock.ticks(WITHOUT_NS)));
        let without = stretch(&mut line, &router, per_tick, held, length)?;
        let disturbed = with.disturbed || without.disturbed;
        match disturbed && tally.disturbed < AGAIN * reloads && !is_late() {
            true => tally.leave_out(&with, &without),
            false => tally.add(&with, &without, clock),
        }
    }
    let dropped: u64 = router.worker.1.drops().iter().map(|(_, count)| count).sum();
    let (out_of_order, strays) = (line.numbers.out_of_order, line.strays);
    router.stop()?;
    drop(line);
    Ok(Sample::new(row, tally.lost as f64, "packets", "")
        .with("reloads", tally.reloads)
        .with("routes", files.routes.len())
        .with("rules", size.rules)
        .with(size.changes().1, tally.changed)
        .with("offered_mpps", per_tick * clock.hz() / 1e6)
        .with("offered_percent", 100.0 - tally.left_out_percent())
        .with("frames", tally.frames)
        .with(
            "reload_ms",
            tally.reload_ns as f64 / 1e6 / tally.reloads as f64,
        )
        .with("no_room", tally.no_room)
        .with("lost_without_reload", tally.lost_without)
        .with("lost_disturbed", tally.lost_disturbed)
        .with("stop_us", tally.stop_ns[0] as f64 / 1e3)
        .with("stop_without_us", tally.stop_ns[1] as f64 / 1e3)
        .with("gap_us", tally.gap_ns[0] as f64 / 1e3)
        .with("gap_without_us", tally.gap_ns[1] as f64 / 1e3)
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

/// Waits until frames come through, when the router has found its ports connected.
fn first_frame(line: &mut Line, clock: Clock) -> Result<(), Error> {
    let end = clock.now() + clock.ticks(PATIENCE_NS);
    // Sends a few, since early ones are lost and not counted.
    let slowly = 1000.0 / clock.hz();
    line.offer(&mut Pace::new(clock.now(), slowly, 64), |line, now| {
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

/// Packets per busy tick of the worker at full load.
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

/// What happens in an interval.
enum With {
    Reload(&'static Size),
    /// For so many ticks.
    Nothing(u64),
}

/// The result of an interval.
#[derive(Default)]
struct Stretch {
    ticks: u64,
    frames: u64,
    lost: u64,
    no_room: u64,
    left_out: u64,
    /// Routes or policies that the reload changed, and how long it took in ticks.
    changed: u64,
    reload_ticks: u64,
    /// The longest stop of the worker to take messages, and its longest round, if that was a gap.
    stop_ns: u64,
    gap_ns: u64,
    /// Whether other threads had the worker's CPU for long enough to explain the loss.
    disturbed: bool,
}

fn stretch(
    line: &mut Line,
    router: &Embedded,
    per_tick: f64,
    held: usize,
    with: With,
) -> Result<Stretch, Error> {
    let clock = router.clock;
    let around = clock.ticks(AROUND_NS);
    let patience = clock.ticks(PATIENCE_NS);
    // A long round does not show its cause, so the scheduler's accounting is read.
    let involved = Involved {
        lcores: vec![router.worker.0.clone()],
        others: Vec::new(),
    };
    let watch = StartReadings::begin(involved, Vec::new(), true);
    let (sent, lost, no_room) = (line.sent, line.lost(), line.no_room);
    let stats = router.worker.1.clone();
    let times = || [stats.mail.snapshot(), stats.gaps.snapshot()];
    let before = times();
    let began = clock.now();
    let mut pace = Pace::new(began, per_tick, held as u64);
    let mut stretch = Stretch::default();
    match with {
        With::Nothing(ticks) => line.offer(&mut pace, |_, now| now >= began + ticks),
        With::Reload(size) => {
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
            let changed = result.get(size.changes().0);
            stretch.changed = changed.and_then(Value::as_u64).unwrap_or(0);
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
    let since = times();
    [stretch.stop_ns, stretch.gap_ns] = [0, 1].map(|at| {
        let since = since[at].since(&before[at]);
        clock.ns(since.buckets().last().map_or(0, |(upper, _)| upper))
    });
    Ok(stretch)
}

/// All intervals that count.
#[derive(Default)]
struct Tally {
    reloads: u64,
    lost: u64,
    lost_without: u64,
    frames: u64,
    no_room: u64,
    left_out: u64,
    changed: u64,
    reload_ns: u64,
    /// The longest of each, with and without a reload.
    stop_ns: [u64; 2],
    gap_ns: [u64; 2],
    /// Pairs of intervals that do not count, and their loss.
    disturbed: u64,
    lost_disturbed: u64,
}

impl Tally {
    fn add(&mut self, with: &Stretch, without: &Stretch, clock: Clock) {
        self.reloads += 1;
        self.lost += with.lost;
        self.lost_without += without.lost;
        self.frames += with.frames;
        self.no_room += with.no_room;
        self.left_out += with.left_out;
        self.changed += with.changed;
        self.reload_ns += clock.ns(with.reload_ticks);
        for (at, stretch) in [with, without].into_iter().enumerate() {
            self.stop_ns[at] = self.stop_ns[at].max(stretch.stop_ns);
            self.gap_ns[at] = self.gap_ns[at].max(stretch.gap_ns);
        }
    }

    fn leave_out(&mut self, with: &Stretch, without: &Stretch) {
        self.disturbed += 1;
        self.lost_disturbed += with.lost + without.lost;
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
            gap_ns: 7,
            ..Stretch::default()
        };
        let mut tally = Tally::default();
        tally.add(&with, &without, Clock::monotonic("a test"));
        assert_eq!((tally.lost, tally.lost_without), (2, 5));
        assert_eq!((tally.gap_ns, tally.reloads), ([0, 7], 1));
        assert_eq!(tally.left_out_percent(), 25.0);
        tally.leave_out(&with, &without);
        assert_eq!((tally.lost, tally.lost_disturbed, tally.reloads), (2, 7, 1));
    }

    /// On any number of CPUs every frame is accounted for, and reloads change what they should. The
    /// number of lost frames depends on the machine.
    #[test]
    fn the_row_works() {
        let sample = reloads("router.reload", Run::quick(), [&WHOLE, &QUICK]).unwrap();
        let detail = |key: &str| sample.detail[key].as_u64().unwrap();
        assert_eq!(detail("routes"), 2000);
        assert!(detail("changed_routes") >= 2000, "half of them, twice");
        assert!(
            detail("frames") > 100 && detail("out_of_order") == 0,
            "{:?}",
            sample.detail
        );
    }

    #[test]
    fn the_row_of_the_gateway_works() {
        let row = "gateway.policy.100k";
        let sample = reloads(row, Run::quick(), [&POLICY, &QUICK_POLICY]).unwrap();
        let detail = |key: &str| sample.detail[key].as_u64().unwrap();
        assert_eq!(detail("rules"), 500);
        assert_eq!(
            detail("changed_policies"),
            detail("reloads"),
            "one each time"
        );
        assert!(
            detail("frames") > 100 && detail("out_of_order") == 0,
            "{:?}",
            sample.detail
        );
    }

    /// On any machine, every frame that the router has received comes out in order during reloads.
    #[test]
    fn nothing_is_lost_over_reloads_of_twenty_thousand_routes() {
        let size = Size {
            is_gateway: false,
            routes: 20_000,
            rules: 1000,
            frames: 1024,
            room: 1024,
        };
        let (files, mut line, router) = begin(&size, Run::quick().cpus).unwrap();
        first_frame(&mut line, router.clock).unwrap();
        let (came, lost) = (line.numbers.came, line.lost());
        for turn in 1..=2 {
            files.put(turn).unwrap();
            let reload = router.reload().unwrap();
            line.fill(size.room, |_| reload.is_finished());
            let result = reload.join().unwrap().unwrap();
            let routes = result["routes"].as_u64().unwrap();
            assert!(routes > 10_000 && result["acls"] == 1, "{result}");
        }
        line.drain();
        assert!(line.numbers.came > came);
        let drops = router.worker.1.drops();
        let numbers = (line.lost() - lost, line.numbers.out_of_order);
        assert_eq!(numbers, (0, 0), "{drops:?}");
        assert!(drops.is_empty(), "{drops:?}");
    }
}
