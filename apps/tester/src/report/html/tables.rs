//! The page's tables.

use std::fmt::Write;

use super::{figure, section};
use crate::chart::{duration, escape, plain};
use crate::report::grid::{self, Grid};
use crate::report::{
    LatencyRow, Report, Throughput, deviation, line_percent, lost_ppm, median, quantile,
};

/// A cell without a value.
pub(super) const NONE: &str = "–";

/// A table that can be wider than the page; cells are HTML.
pub(super) fn table(body: &mut String, headings: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    body.push_str("<div class=\"scroll\"><table><thead><tr>");
    // Loads and ends are words.
    let class = |column: usize| match headings.get(column) {
        Some(&"load" | &"ended by") => " class=\"words\"",
        _ => "",
    };
    for (column, heading) in headings.iter().enumerate() {
        let _ = write!(body, "<th{}>{heading}</th>", class(column));
    }
    body.push_str("</tr></thead><tbody>");
    for row in rows {
        body.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(body, "<td{}>{cell}</td>", class(column));
        }
        body.push_str("</tr>");
    }
    body.push_str("</tbody></table></div>");
}

fn may(value: Option<f64>, spell: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.into(), spell)
}

fn name(row: &Throughput) -> String {
    match row.goal.as_str() {
        "throughput" | "" => format!("{} B", row.frame_bytes),
        goal => format!("{} B {}", row.frame_bytes, escape(goal)),
    }
}

/// The columns of an RFC 2544 report, then those of their quality.
pub(super) fn throughput(body: &mut String, report: &Report) {
    if report.throughput.is_empty() {
        return;
    }
    body.push_str("<h3>Results</h3>");
    let headings = [
        "frame",
        "frames/s",
        "Mbit/s L2",
        "Mbit/s L1",
        "% line",
        "latency min",
        "mean",
        "max",
    ];
    let latency = |row: &Throughput| {
        let same = |of: &&LatencyRow| {
            of.frame_bytes == row.frame_bytes && of.load == row.goal && of.latency.samples > 0
        };
        report.latency.iter().find(same).map(|row| &row.latency)
    };
    let results = report.throughput.iter().map(|row| {
        let latency = latency(row);
        vec![
            name(row),
            format!("<b>{}</b>", figure(row.pps)),
            format!("{:.1}", row.l2_bps * 1e-6),
            format!("{:.1}", row.l1_bps * 1e-6),
            line_percent(row).map_or("n/a".into(), |percent| format!("{percent:.2}")),
            may(latency.map(|of| of.min_ns), duration),
            may(latency.map(|of| of.mean_ns), duration),
            may(latency.map(|of| of.max_ns), duration),
        ]
    });
    table(body, &headings, results);
    body.push_str("<h3>The trials they are quoted from</h3>");
    let headings = [
        "frame",
        "seconds",
        "asked frames/s",
        "sent",
        "received",
        "lost",
        "lost ppm",
    ];
    let quoted = report.throughput.iter().map(|row| {
        vec![
            name(row),
            plain((row.quoted.seconds * 1e3).round() / 1e3),
            figure(row.quoted.asked_pps),
            figure(row.quoted.sent as f64),
            figure(row.quoted.received as f64),
            figure(row.quoted.lost as f64),
            format!("{:.1}", lost_ppm(&row.quoted)),
        ]
    });
    table(body, &headings, quoted);
    body.push_str("<h3>How they were found, in frames/s</h3>");
    let headings = [
        "frame",
        "lower bound",
        "upper bound",
        "ended by",
        "conditional",
        "trials",
    ];
    let searches = report.throughput.iter().map(|row| {
        vec![
            name(row),
            figure(row.lower_pps),
            may(row.upper_pps, figure),
            row.end.text().into(),
            figure(row.conditional_pps),
            row.trials.len().to_string(),
        ]
    });
    table(body, &headings, searches);
    body.push_str("<h3>From search to search, in frames/s, and what a packet costs</h3>");
    let headings = [
        "frame",
        "searches",
        "median",
        "deviation",
        "p10–p90",
        "cores",
        "ticks/packet",
        "ns/packet",
    ];
    let repeats = report.throughput.iter().map(|row| {
        let many = |of: Option<f64>| may(of.filter(|_| row.repeats.len() > 1), figure);
        let ends = (quantile(&row.repeats, 0.1), quantile(&row.repeats, 0.9));
        vec![
            name(row),
            row.repeats.len().to_string(),
            many(median(&row.repeats)),
            many(deviation(&row.repeats)),
            match ends {
                (Some(low), Some(high)) if row.repeats.len() > 1 => {
                    format!("{}–{}", figure(low), figure(high))
                }
                _ => NONE.into(),
            },
            may(
                (report.device.cores > 0).then_some(report.device.cores.into()),
                plain,
            ),
            may(
                (row.ticks_per_packet > 0.0).then_some(row.ticks_per_packet),
                |ticks| format!("{ticks:.1}"),
            ),
            format!("{:.1}", row.ns_per_packet),
        ]
    });
    table(body, &headings, repeats);
}

/// One that the text has, too.
pub(super) fn of_grid(body: &mut String, grid: &Grid) {
    let headings: Vec<String> = grid
        .headings
        .iter()
        .map(|heading| escape(heading))
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let cells = |row: &Vec<String>| row.iter().map(|cell| escape(cell)).collect();
    table(body, &headings, grid.rows.iter().map(cells));
}

/// The device and all baselines.
pub(super) fn beside(body: &mut String, report: &Report) {
    if let Some(grid) = grid::beside(report) {
        body.push_str("<h3>Beside each other, in frames/s</h3>");
        of_grid(body, &grid);
    }
}

/// Of the device and baselines that know connections.
pub(super) fn connections(body: &mut String, report: &Report) {
    if let Some(grid) = grid::connections(report) {
        section(
            body,
            "Connections",
            "The highest rate at which all of so many connections are set up: one side sends a \
             frame of each, then the other answers in each, which only a known connection lets \
             through. Torn down: all at once. Capacity: how many are known at once (RFC 9693).",
        );
        of_grid(body, &grid);
    }
}

pub(super) fn latency(body: &mut String, report: &Report) {
    if report.latency.is_empty() {
        return;
    }
    let headings = [
        "frame", "load", "frames/s", "n", "min", "mean", "p50", "p90", "p99", "p99.9", "p99.99",
        "max", "PDV", "jitter",
    ];
    let rows = report.latency.iter().map(|row| {
        let of = &row.latency;
        let mut cells = vec![
            format!("{} B", row.frame_bytes),
            escape(&row.load),
            figure(row.pps),
            figure(of.samples as f64),
        ];
        cells.extend(
            row.times_ns()
                .map(|ns| may((of.samples > 0).then_some(ns), duration)),
        );
        cells
    });
    table(body, &headings, rows);
}

/// Bursts and recovery.
pub(super) fn bursts(body: &mut String, report: &Report) {
    if !report.back_to_back.is_empty() {
        section(
            body,
            "Back-to-back frames",
            "The longest burst at the least gap that comes through whole, and the buffer it tells \
             of (RFC 9004). Sizes that go through at the full rate have none.",
        );
        let headings = [
            "frame",
            "frames, mean",
            "min",
            "max",
            "sd",
            "repeats",
            "at frames/s",
            "implied buffer",
            "corrected",
        ];
        let rows = report.back_to_back.iter().map(|row| {
            vec![
                format!("{} B", row.frame_bytes),
                format!("<b>{}</b>", figure(row.mean)),
                figure(row.min as f64),
                figure(row.max as f64),
                format!("{:.1}", row.sd),
                row.bursts.len().to_string(),
                figure(row.burst_pps),
                duration(row.implied_buffer_s * 1e9),
                duration(row.corrected_buffer_s * 1e9),
            ]
        });
        table(body, &headings, rows);
    }
    if !report.recovery.is_empty() {
        section(
            body,
            "Recovery",
            "From the moment at which an overload was halved to the last lost frame, the mean of \
             the repeats (RFC 2544 26.5).",
        );
        let headings = [
            "frame",
            "overload",
            "then",
            "lost meanwhile",
            "repeats",
            "recovery",
            "to within",
        ];
        let rows = report.recovery.iter().map(|row| {
            vec![
                format!("{} B", row.frame_bytes),
                figure(row.overload_pps),
                figure(row.then_pps),
                figure(row.over.lost as f64),
                row.repeats_ns.len().to_string(),
                match row.recovery_ns {
                    None => NONE.into(),
                    Some(ns) => format!("<b>{}</b>", duration(ns)),
                },
                duration(row.resolution_ns),
            ]
        });
        table(body, &headings, rows);
    }
}

pub(super) fn self_test(body: &mut String, report: &Report) {
    if report.self_test.is_empty() {
        return;
    }
    section(
        body,
        "The generator by itself",
        &match report
            .self_test
            .iter()
            .find_map(|test| test.stand_in.as_ref())
        {
            None => {
                "Generator to generator, without the device. Its latency is in every latency above."
                    .into()
            }
            Some(what) => format!(
                "Generator to generator on {}, which stands for the device's ports: what the \
                 generator does on those is not known from it.",
                escape(what)
            ),
        },
    );
    let headings = [
        "frame",
        "frames/s",
        "pacing error p99",
        "clock error",
        "latency p50",
        "p99",
        "max",
    ];
    let rows = report.self_test.iter().map(|row| {
        let timed = |ns: f64| may((row.latency.samples > 0).then_some(ns), duration);
        vec![
            format!("{} B", row.frame_bytes),
            figure(row.max_pps),
            duration(row.pacing_error_p99_ns),
            format!("{:.2} ppm", row.clock_error_ppm),
            timed(row.latency.p50_ns),
            timed(row.latency.p99_ns),
            timed(row.latency.max_ns),
        ]
    });
    table(body, &headings, rows);
}
