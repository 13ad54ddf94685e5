//! The page's charts.

use std::fmt::Write;

use super::tables::{NONE, of_grid, table};
use super::{scale, section};
use crate::chart::{
    Axis, Curve, Series, Spread, boxes, columns, count, dots, duration, escape, plain, plot, short,
    stack,
};
use crate::report::grid;
use crate::report::profile::{Role, functions};
use crate::report::{LatencyRow, Report, Throughput, deviation, median, times};
use linerate_traffic::figures::Latency;
use linerate_traffic::units::l2_bps;

/// Axis label of charts by size.
const SIZES: &str = "frame size in bytes, FCS included";
/// Colours: the device's goals, what it is compared with, and limits.
const GOALS: [usize; 4] = [0, 5, 6, 7];
const BASELINES: [usize; 5] = [3, 1, 7, 2, 6];
const LIMIT: usize = 4;
/// Colours for one kind of things, such as sizes, so that neighbours differ.
const KINDS: [usize; 8] = [0, 1, 5, 2, 6, 7, 4, 3];

fn sizes(report: &Report) -> Vec<usize> {
    let mut sizes: Vec<usize> = report
        .throughput
        .iter()
        .map(|row| row.frame_bytes)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn names(sizes: &[usize]) -> Vec<String> {
    sizes.iter().map(usize::to_string).collect()
}

/// Names of the searches' goals, as they come.
fn goals(report: &Report) -> Vec<&str> {
    let mut goals: Vec<&str> = Vec::new();
    for row in &report.throughput {
        if !goals.contains(&row.goal.as_str()) {
            goals.push(&row.goal);
        }
    }
    goals
}

/// A named line of rows by size.
struct Line<'a> {
    name: String,
    colour: usize,
    rows: Vec<&'a Throughput>,
}

/// The device by goal, then the baselines.
fn lines(report: &Report) -> Vec<Line<'_>> {
    let device = match report.device.name.as_str() {
        "" => "device",
        name => name,
    };
    let mut all = Vec::new();
    for (number, goal) in goals(report).into_iter().enumerate() {
        all.push(Line {
            name: match goal {
                "throughput" => device.to_string(),
                goal => goal.to_string(),
            },
            colour: GOALS[number % GOALS.len()],
            rows: report
                .throughput
                .iter()
                .filter(|row| row.goal == goal)
                .collect(),
        });
    }
    for (number, baseline) in report.baselines.iter().enumerate() {
        all.push(Line {
            name: baseline.name.clone(),
            colour: BASELINES[number % BASELINES.len()],
            rows: baseline.throughput.iter().collect(),
        });
    }
    all
}

/// RFC 2544 26.1's plot, and the two that compare ports.
pub(super) fn throughput(body: &mut String, report: &Report) {
    let sizes = sizes(report);
    if sizes.is_empty() {
        return;
    }
    let lines = lines(report);
    let wire = report.throughput.iter().any(|row| row.line_pps.is_some());
    section(
        body,
        "Throughput by frame size",
        if wire {
            "Frames a second over all directions (RFC 2544 26.1). The dashed line is what the wire \
             takes."
        } else {
            "Frames a second over all directions. There is no wire, so there is no line rate; \
             dashed is what the generator does by itself."
        },
    );
    let limit = |row: &&Throughput| match wire {
        true => row.line_pps,
        false => Some(row.generator_pps).filter(|pps| *pps > 0.0),
    };
    let at = |size: usize| {
        sizes
            .iter()
            .position(|one| *one == size)
            .map(|at| at as f64 + 0.5)
    };
    let point = |row: &Throughput, pps: f64| Some((at(row.frame_bytes)?, pps));
    let goal = report.throughput[0].goal.as_str();
    let limits: Vec<(f64, f64)> = report
        .throughput
        .iter()
        .filter(|row| row.goal == goal)
        .filter_map(|row| point(row, limit(&row)?))
        .collect();
    let all = lines
        .iter()
        .flat_map(|line| line.rows.iter().map(|row| row.pps));
    let most = all
        .chain(limits.iter().map(|point| point.1))
        .fold(0.0, f64::max);
    let (unit, name) = scale(most);
    let scaled = |points: Vec<(f64, f64)>| points.into_iter().map(|(x, y)| (x, y / unit)).collect();
    let mut curves = vec![Curve {
        name: if wire {
            "theoretical"
        } else {
            "generator alone"
        },
        colour: LIMIT,
        dashed: true,
        points: scaled(limits),
    }];
    for line in &lines {
        let points = line
            .rows
            .iter()
            .filter_map(|row| point(row, row.pps))
            .collect();
        curves.push(Curve {
            name: &line.name,
            colour: line.colour,
            dashed: false,
            points: scaled(points),
        });
    }
    let y = Axis::linear(
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|p| p.1)),
        plain,
    );
    let x = Axis::categories(&names(&sizes));
    body.push_str(&plot(name, SIZES, &x, &y, &curves, |value| {
        format!("{} {name}", short(value))
    }));
    ports(body, report, &sizes, &lines);
    ratios(body, report);
}

/// Gbit/s of one port and of all.
fn ports(body: &mut String, report: &Report, sizes: &[usize], lines: &[Line]) {
    // Where one direction is loaded, one port receives.
    let receiving = |row: &Throughput| row.per_port_pps.iter().filter(|pps| **pps > 0.0).count();
    let ports = report
        .throughput
        .iter()
        .map(receiving)
        .max()
        .unwrap_or(0)
        .max(1) as f64;
    let chart = |parts: f64| {
        let value = |line: &Line, size: usize| {
            let row = line.rows.iter().find(|row| row.frame_bytes == size);
            row.map_or(0.0, |row| row.l2_bps * 1e-9 / parts)
        };
        let series: Vec<Series> = lines
            .iter()
            .map(|line| Series {
                name: &line.name,
                colour: line.colour,
                values: sizes.iter().map(|size| value(line, *size)).collect(),
            })
            .collect();
        let theoretical = |size: &usize| {
            let row = report
                .throughput
                .iter()
                .find(|row| row.frame_bytes == *size);
            let line = row.and_then(|row| row.line_pps).unwrap_or(0.0);
            l2_bps(line, *size as f64) * 1e-9 / parts
        };
        let wire = report.throughput.iter().any(|row| row.line_pps.is_some());
        let limit = wire.then(|| Series {
            name: "theoretical",
            colour: LIMIT,
            values: sizes.iter().map(theoretical).collect(),
        });
        columns("Gbit/s L2", SIZES, &names(sizes), &series, limit.as_ref())
    };
    let _ = write!(
        body,
        "<div class=\"pair\"><div><h3>Per port</h3>{}</div><div><h3>All ports ({})</h3>{}</div>\
         </div>",
        chart(ports),
        ports as u64,
        chart(1.0)
    );
}

/// How many times faster, with intervals.
fn ratios(body: &mut String, report: &Report) {
    for baseline in &report.baselines {
        let found = baseline
            .throughput
            .iter()
            .filter_map(|row| Some((row.frame_bytes, times(report, row)?)));
        let mut found = found.peekable();
        if found.peek().is_none() {
            continue;
        }
        let times = format!("times {}", escape(&baseline.name));
        let rows = found.map(|(size, of)| {
            vec![
                format!("{size} B"),
                format!("<b>{:.2}×</b>", of.ratio),
                match of.interval() {
                    Some((low, high, _)) => format!("{low:.2}–{high:.2}"),
                    None => "too few searches".into(),
                },
                of.interval().map_or_else(
                    || NONE.into(),
                    |(_, _, share)| format!("{:.0} %", share * 100.0),
                ),
            ]
        });
        table(body, &["frame", &times, "interval", "confidence"], rows);
    }
}

/// What a packet costs, by function.
pub(super) fn profiles(body: &mut String, report: &Report) {
    let (names, roles): (Vec<String>, Vec<Role>) = grid::roles(report).into_iter().unzip();
    let (Some(first), Some(table)) = (report.profiles.first(), grid::profile(report)) else {
        return;
    };
    let note = format!(
        "Ticks of the time stamp counter for each packet that the device forwarded, at {} B and \
         the throughput of each. Lcores of several roles have a bar for each role. What is \
         measured costs some: it is asked for each burst, so most with small bursts.",
        first.frame_bytes
    );
    section(body, "What a packet costs, by function", &note);
    // A legend that can be read: the greatest have colours, all others are one part.
    let took = |role: &Role, name: &str| {
        let found = role.functions.iter().find(|function| function.name == name);
        found.map_or(0.0, |function| function.ticks)
    };
    let all = functions(&roles);
    let most = |name: &str| {
        roles
            .iter()
            .map(|role| took(role, name))
            .fold(0.0, f64::max)
    };
    let mut greatest: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    greatest.sort_by(|a, b| most(b).total_cmp(&most(a)));
    greatest.truncate(KINDS.len() - 1);
    let named = all.iter().filter(|(name, _)| greatest.contains(name));
    let mut parts: Vec<Series> = named
        .enumerate()
        .map(|(number, &(name, _))| Series {
            name,
            colour: KINDS[number],
            values: roles.iter().map(|role| took(role, name)).collect(),
        })
        .collect();
    if all.len() > greatest.len() {
        let others = |role: &Role| {
            let others = role.functions.iter();
            let others = others.filter(|function| !greatest.contains(&function.name.as_str()));
            others.map(|function| function.ticks).sum::<f64>()
        };
        parts.push(Series {
            name: "others",
            colour: KINDS[KINDS.len() - 1],
            values: roles.iter().map(others).collect(),
        });
    }
    body.push_str(&stack("ticks a packet", "", &grid::labels(&names), &parts));
    of_grid(body, &table);
}

/// Repeated searches.
pub(super) fn spread(body: &mut String, report: &Report) {
    let rows: Vec<Line> = lines(report);
    let mut spreads = Vec::new();
    for size in sizes(report) {
        for (number, line) in rows.iter().enumerate() {
            let found = line.rows.iter().filter(|row| row.frame_bytes == size);
            for row in found.filter(|row| row.repeats.len() > 1) {
                let middle = median(&row.repeats).filter(|middle| *middle > 0.0);
                let Some(middle) = middle else { continue };
                let values = row.repeats.iter().map(|value| value / middle * 100.0);
                // One name under the boxes of a size.
                let name = if number == 0 {
                    size.to_string()
                } else {
                    String::new()
                };
                spreads.push(Spread::of(name, line.colour, values.collect()));
            }
        }
    }
    if spreads.is_empty() {
        return;
    }
    let all = report.throughput.iter().filter_map(|row| {
        Some(deviation(&row.repeats)? / median(&row.repeats).filter(|middle| *middle > 0.0)?)
    });
    let worst = all.fold(0.0, f64::max) * 100.0;
    section(
        body,
        "From run to run",
        &format!(
            "Each search's result, relative to the median of its size. The device's largest \
             standard deviation is {worst:.2} %."
        ),
    );
    let names: Vec<(&str, usize)> = rows
        .iter()
        .map(|line| (line.name.as_str(), line.colour))
        .collect();
    body.push_str(&boxes("of the median", SIZES, &spreads, &names));
}

/// The load that latencies by size are shown at: the throughput, or the highest there is.
fn best_load(report: &Report) -> Option<&str> {
    let mut rows = report.latency.iter().rev();
    let throughput = rows
        .find(|row| row.load == "throughput")
        .or(report.latency.last());
    throughput.map(|row| row.load.as_str())
}

/// Latency by percentile, and by size.
pub(super) fn latency(body: &mut String, report: &Report) {
    let timed: Vec<&LatencyRow> = report
        .latency
        .iter()
        .filter(|row| row.latency.samples > 0)
        .collect();
    let (Some(first), Some(best)) = (timed.first(), best_load(report)) else {
        return;
    };
    section(
        body,
        "Latency",
        "Each frame from the moment at which it was to be sent, however late it went, to its \
         receipt: a queue in front of the device counts. Nothing is subtracted; the generator's \
         own share is in its self-test below.",
    );
    let size = first.frame_bytes;
    let loads: Vec<(String, &LatencyRow)> = timed
        .iter()
        .filter(|row| row.frame_bytes == size)
        .map(|row| (row.load.clone(), *row))
        .collect();
    let by_size: Vec<(String, &LatencyRow)> = timed
        .iter()
        .filter(|row| row.load == best)
        .map(|row| (format!("{} B", row.frame_bytes), *row))
        .collect();
    let _ = write!(
        body,
        "<div class=\"pair\"><div><h3>{size} B by load</h3>{}</div><div><h3>By size, at \
         {}</h3>{}</div></div>",
        percentiles(&loads),
        escape(best),
        percentiles(&by_size)
    );
    self::by_size(body, &by_size);
}

/// Curves of latency over percentile: the more nines, the rarer.
fn percentiles(rows: &[(String, &LatencyRow)]) -> String {
    let most = rows
        .iter()
        .map(|(_, row)| row.latency.samples)
        .max()
        .unwrap_or(1);
    let nines = (most as f64).log10().floor().clamp(2.0, 6.0) as u32;
    let curves: Vec<Curve> = rows
        .iter()
        .enumerate()
        .map(|(number, (name, row))| Curve {
            name,
            colour: KINDS[number % KINDS.len()],
            dashed: false,
            points: cumulated(&row.latency, nines),
        })
        .collect();
    let y = Axis::log(
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|p| p.1)),
        |ns| duration(ns).replace(".0", ""),
    );
    plot(
        "latency",
        "percentile",
        &Axis::nines(nines),
        &y,
        &curves,
        duration,
    )
}

/// Share of the samples up to each bucket, and the bucket's bound.
fn cumulated(latency: &Latency, nines: u32) -> Vec<(f64, f64)> {
    let samples: u64 = latency.buckets.iter().map(|bucket| bucket.1).sum();
    let end = 1.0 - 10_f64.powi(-(nines as i32));
    let mut points = Vec::new();
    let mut sum = 0;
    for (ns, count) in &latency.buckets {
        sum += count;
        let share = sum as f64 / samples as f64;
        points.push((share.min(end), *ns));
        // The bucket beyond the end is drawn up to it.
        if share >= end {
            break;
        }
    }
    if points.is_empty() {
        // Only the percentiles are known.
        let known = [
            (0.5, latency.p50_ns),
            (0.9, latency.p90_ns),
            (0.99, latency.p99_ns),
            (0.999, latency.p999_ns),
            (0.9999, latency.p9999_ns),
        ];
        points.extend(
            known
                .into_iter()
                .filter(|point| point.0 <= end && point.1 > 0.0),
        );
    }
    points
}

/// Percentiles side by side.
fn by_size(body: &mut String, rows: &[(String, &LatencyRow)]) {
    let names: Vec<String> = rows
        .iter()
        .map(|(_, row)| row.frame_bytes.to_string())
        .collect();
    let series = |name, colour, of: fn(&Latency) -> f64| Series {
        name,
        colour,
        values: rows.iter().map(|(_, row)| of(&row.latency)).collect(),
    };
    let all = [
        series("p50", 0, |of| of.p50_ns),
        series("p99", 1, |of| of.p99_ns),
        series("p99.9", 2, |of| of.p999_ns),
    ];
    let _ = write!(
        body,
        "<h3>Latency by frame size</h3>{}",
        dots("latency", SIZES, &names, &all)
    );
}

/// RFC 2544 26.3's plot.
pub(super) fn loss(body: &mut String, report: &Report) {
    if report.loss.is_empty() {
        return;
    }
    let of = match report.device.link_bps {
        Some(_) => "offered, of the line rate",
        None => "offered, of the generator's most",
    };
    section(
        body,
        "Loss against load",
        "Downward from all that there is until two successive rates lose nothing (RFC 2544 26.3). \
         What the generator did not send in time counts as lost.",
    );
    let by_size = report.loss.chunk_by(|a, b| a.frame_bytes == b.frame_bytes);
    let by_size: Vec<_> = by_size
        .map(|points| (format!("{} B", points[0].frame_bytes), points))
        .collect();
    let curves: Vec<Curve> = by_size
        .iter()
        .enumerate()
        .map(|(number, (name, points))| Curve {
            name,
            colour: KINDS[number % KINDS.len()],
            dashed: false,
            points: points
                .iter()
                .rev()
                .map(|p| (p.offered_percent, p.lost_percent))
                .collect(),
        })
        .collect();
    let percent = |value: f64| format!("{} %", plain(value));
    let y = Axis::linear(report.loss.iter().map(|point| point.lost_percent), percent);
    let x = Axis::between(0.0, 100.0, 20.0, percent);
    body.push_str(&plot("lost", of, &x, &y, &curves, |lost| {
        format!("{} % lost", short(lost))
    }));
}

/// Loss over time.
pub(super) fn soak(body: &mut String, report: &Report) {
    let Some(soak) = &report.soak else { return };
    section(
        body,
        "Soak",
        &format!(
            "{} B at {} frames/s for {:.0} s: {} of {} frames lost.",
            soak.frame_bytes,
            super::figure(soak.pps),
            soak.trial.seconds,
            super::figure(soak.trial.lost as f64),
            super::figure(soak.trial.intended.max(soak.trial.sent) as f64)
        ),
    );
    let points: Vec<(f64, f64)> = soak
        .points
        .iter()
        .map(|point| (point.0, point.1 as f64))
        .collect();
    let x = Axis::linear(points.iter().map(|point| point.0), plain);
    let y = Axis::linear(points.iter().map(|point| point.1), count);
    let curve = Curve {
        name: "lost",
        colour: 2,
        dashed: false,
        points,
    };
    body.push_str(&plot(
        "frames lost in a slice",
        "seconds",
        &x,
        &y,
        &[curve],
        count,
    ));
}

/// Throughput by cores, beside a multiple of one core's.
pub(super) fn scaling(body: &mut String, report: &Report) {
    if report.scaling.is_empty() {
        return;
    }
    section(
        body,
        "Scaling by cores",
        "Throughput with so many cores of the device. Dashed: a multiple of the fewest.",
    );
    let most = report.scaling.iter().map(|row| row.pps).fold(0.0, f64::max);
    let (unit, name) = scale(most);
    let mut rows = report.scaling.clone();
    rows.sort_by_key(|row| (row.frame_bytes, row.cores));
    let by_size: Vec<_> = rows
        .chunk_by(|a, b| a.frame_bytes == b.frame_bytes)
        .collect();
    let labels: Vec<String> = by_size
        .iter()
        .map(|rows| format!("{} B", rows[0].frame_bytes))
        .collect();
    let mut curves = Vec::new();
    for (number, rows) in by_size.iter().enumerate() {
        let each = rows[0].pps / f64::from(rows[0].cores.max(1)) / unit;
        let points = |of: &dyn Fn(u32, f64) -> f64| {
            rows.iter()
                .map(|row| (f64::from(row.cores), of(row.cores, row.pps)))
                .collect()
        };
        curves.push(Curve {
            name: &labels[number],
            colour: KINDS[number % KINDS.len()],
            dashed: false,
            points: points(&|_, pps| pps / unit),
        });
        curves.push(Curve {
            name: "ideal",
            colour: KINDS[number % KINDS.len()],
            dashed: true,
            points: points(&|cores, _| f64::from(cores) * each),
        });
    }
    let x = Axis::linear(rows.iter().map(|row| f64::from(row.cores)), plain);
    let y = Axis::linear(
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|p| p.1)),
        plain,
    );
    body.push_str(&plot(name, "cores", &x, &y, &curves, |value| {
        format!("{} {name}", short(value))
    }));
}
