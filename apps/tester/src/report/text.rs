//! The text form: the verdict, then a table for each part, frames a second first.

use std::fmt::Write;

use super::grid::{self, Grid};
use super::stats::{deviation, median, quantile};
use super::{LatencyRow, Report, Throughput, Verdict, VerdictWord, line_percent, lost_ppm};
use crate::chart::{duration, plain};
use linerate_appliance::output::{Cell, Column, Table, Tone};

/// Thin groups of three figures: `14 880 952`.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A cell without a value.
pub(super) const NONE: &str = "-";

pub(super) fn may(value: Option<f64>, spell: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.into(), spell)
}

/// Tables for a terminal.
pub(crate) fn text(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    head(&mut out, report, colour);
    let mut part = |title: &str, table: Option<Table>| {
        if let Some(table) = table {
            let _ = write!(out, "\n{title}\n{}", table.render(colour));
        }
    };
    let rows = &report.throughput;
    part(
        "Throughput: L2 counts frames with FCS, L1 preamble and gap too",
        results(report, rows),
    );
    part("How it was found, frames/s", searches(report, rows));
    for baseline in &report.baselines {
        let title = format!("{}, in turns with the device", baseline.name);
        part(&title, beside(report, &baseline.throughput));
    }
    part(
        "Beside each other, frames/s by size",
        grid::beside(report).map(of_grid),
    );
    part(
        "What a packet costs by function: ticks for each that the device forwarded, and share",
        grid::profile(report).map(of_grid),
    );
    part(
        "Connections (RFC 9693)",
        grid::connections(report).map(of_grid),
    );
    part(
        "Latency, from the time at which each frame was to be sent",
        latencies(report),
    );
    part("Loss against load", losses(report));
    part("Back-to-back (RFC 9004)", bursts(report));
    part("Recovery (RFC 2544 26.5)", recoveries(report));
    part("Soak", soak(report));
    part("Scaling", scaling(report));
    part("Generator by itself", self_test(report));
    out
}

fn tone(word: VerdictWord) -> Tone {
    match word {
        VerdictWord::Valid => Tone::Good,
        VerdictWord::Failed => Tone::Bad,
        _ => Tone::Warn,
    }
}

fn head(out: &mut String, report: &Report, colour: bool) {
    let Verdict { word, reasons } = &report.verdict;
    let _ = writeln!(
        out,
        "{}  {} of {}, {}",
        tone(*word).paint(word.name(), colour),
        report.kind,
        match report.device.name.as_str() {
            "" => "the device",
            name => name,
        },
        report.compliance.label
    );
    for (what, said) in report.notes() {
        let _ = writeln!(out, "  {what}: {said}");
    }
    for reason in reasons {
        let _ = writeln!(out, "  {reason}");
    }
    for departure in &report.compliance.departures {
        let _ = writeln!(out, "  {}", Tone::Dim.paint(departure, colour));
    }
    for check in report.preflight.iter().filter(|check| !check.well) {
        let _ = writeln!(
            out,
            "  {} {}: {}",
            Tone::Warn.paint("preflight:", colour),
            check.what,
            check.seen
        );
    }
}

/// One row of a table, only if there is any.
fn table<T>(
    columns: &[(&str, bool)],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) -> Option<Table> {
    let column = |(heading, number): &(&str, bool)| match number {
        true => Column::number(heading),
        false => Column::text(heading),
    };
    let mut table = Table::new(columns.iter().map(column));
    for row in rows {
        table.row(cells(row).into_iter().map(Cell::new));
    }
    (!rows.is_empty()).then_some(table)
}

/// A table that the page has, too.
fn of_grid(grid: Grid) -> Table {
    let headings = grid.headings.iter().enumerate();
    let mut table = Table::new(headings.map(|(number, heading)| match number {
        0 => Column::text(heading),
        _ => Column::number(heading),
    }));
    for row in grid.rows {
        table.row(row.into_iter().map(Cell::new));
    }
    table
}

/// Whether rows are distinguished by goal too.
fn goals(rows: &[Throughput]) -> bool {
    rows.iter().any(|row| row.goal != "throughput")
}

fn name(row: &Throughput, goals: bool) -> String {
    match goals {
        true => format!("{} {}", row.frame_bytes, row.goal),
        false => row.frame_bytes.to_string(),
    }
}

/// The latency at the throughput of the same size: RFC 2544 reports show both in one table.
fn at_throughput<'a>(report: &'a Report, row: &Throughput) -> Option<&'a LatencyRow> {
    let mut rows = report.latency.iter();
    let same = |of: &&LatencyRow| of.frame_bytes == row.frame_bytes && of.load == row.goal;
    rows.find(same).filter(|of| of.latency.samples > 0)
}

/// The columns of an RFC 2544 report, frames a second first.
fn results(report: &Report, rows: &[Throughput]) -> Option<Table> {
    let columns = [
        ("size", false),
        ("frames/s", true),
        ("Mbit/s L2", true),
        ("Mbit/s L1", true),
        ("% line", true),
        ("asked/s", true),
        ("sent", true),
        ("received", true),
        ("lost", true),
        ("ppm", true),
        ("min ns", true),
        ("avg ns", true),
        ("max ns", true),
    ];
    table(&columns, rows, |row| {
        let latency = at_throughput(report, row).map(|row| &row.latency);
        let ns = |of: Option<f64>| may(of, grouped);
        vec![
            name(row, goals(rows)),
            grouped(row.pps),
            format!("{:.1}", row.l2_bps / 1e6),
            format!("{:.1}", row.l1_bps / 1e6),
            may(line_percent(row), |percent| format!("{percent:.2}")).replace(NONE, "n/a"),
            grouped(row.quoted.asked_pps),
            grouped(row.quoted.sent as f64),
            grouped(row.quoted.received as f64),
            grouped(row.quoted.lost as f64),
            format!("{:.1}", lost_ppm(&row.quoted)),
            ns(latency.map(|of| of.min_ns)),
            ns(latency.map(|of| of.mean_ns)),
            ns(latency.map(|of| of.max_ns)),
        ]
    })
}

fn searches(report: &Report, rows: &[Throughput]) -> Option<Table> {
    let columns = [
        ("size", false),
        ("lower", true),
        ("upper", true),
        ("ended by", false),
        ("conditional", true),
        ("trials", true),
        ("trial s", true),
        ("searches", true),
        ("median", true),
        ("sd", true),
        ("p10", true),
        ("p90", true),
        ("cores", true),
        ("ticks/pkt", true),
        ("ns/pkt", true),
    ];
    table(&columns, rows, |row| {
        let one = |of: Option<f64>| may(of.filter(|_| row.repeats.len() > 1), grouped);
        vec![
            name(row, goals(rows)),
            grouped(row.lower_pps),
            may(row.upper_pps, grouped),
            row.end.text().into(),
            grouped(row.conditional_pps),
            row.trials.len().to_string(),
            plain((row.quoted.seconds * 1e3).round() / 1e3),
            row.repeats.len().to_string(),
            one(median(&row.repeats)),
            one(deviation(&row.repeats)),
            one(quantile(&row.repeats, 0.1)),
            one(quantile(&row.repeats, 0.9)),
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
    })
}

fn beside(report: &Report, rows: &[Throughput]) -> Option<Table> {
    let columns = [
        ("size", false),
        ("frames/s", true),
        ("Mbit/s L2", true),
        ("Mbit/s L1", true),
        ("lost", true),
        ("device", true),
        ("interval", true),
    ];
    table(&columns, rows, |row| {
        let found = super::times(report, row);
        vec![
            row.frame_bytes.to_string(),
            grouped(row.pps),
            format!("{:.1}", row.l2_bps / 1e6),
            format!("{:.1}", row.l1_bps / 1e6),
            grouped(row.quoted.lost as f64),
            may(found.map(|found| found.ratio), |ratio| {
                format!("{ratio:.2}x")
            }),
            found
                .and_then(|found| found.interval())
                .map_or(NONE.into(), |(low, high, share)| {
                    format!("{low:.2}-{high:.2} ({:.0} %)", share * 100.0)
                }),
        ]
    })
}

fn latencies(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("load", false),
        ("frames/s", true),
        ("n", true),
        ("min", true),
        ("mean", true),
        ("p50", true),
        ("p90", true),
        ("p99", true),
        ("p99.9", true),
        ("p99.99", true),
        ("max", true),
        ("PDV", true),
        ("jitter", true),
    ];
    table(&columns, &report.latency, |row| {
        let of = &row.latency;
        let mut cells = vec![
            row.frame_bytes.to_string(),
            row.load.clone(),
            grouped(row.pps),
            grouped(of.samples as f64),
        ];
        cells.extend(
            row.times_ns()
                .map(|ns| may((of.samples > 0).then_some(ns), duration)),
        );
        cells
    })
}

fn losses(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("offered %", true),
        ("frames/s", true),
        ("lost %", true),
        ("lost", true),
        ("unsent", true),
    ];
    table(&columns, &report.loss, |point| {
        vec![
            point.frame_bytes.to_string(),
            plain((point.offered_percent * 10.0).round() / 10.0),
            grouped(point.offered_pps),
            format!("{:.3}", point.lost_percent),
            grouped(point.trial.lost as f64),
            grouped(point.trial.unsent as f64),
        ]
    })
}

fn bursts(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("frames, mean", true),
        ("min", true),
        ("max", true),
        ("sd", true),
        ("repeats", true),
        ("at frames/s", true),
        ("implied buffer", true),
        ("corrected", true),
    ];
    table(&columns, &report.back_to_back, |row| {
        vec![
            row.frame_bytes.to_string(),
            grouped(row.mean),
            grouped(row.min as f64),
            grouped(row.max as f64),
            format!("{:.1}", row.sd),
            row.bursts.len().to_string(),
            grouped(row.burst_pps),
            duration(row.implied_buffer_s * 1e9),
            duration(row.corrected_buffer_s * 1e9),
        ]
    })
}

fn recoveries(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("overload", true),
        ("then", true),
        ("lost meanwhile", true),
        ("repeats", true),
        ("recovery", true),
        ("to within", true),
    ];
    table(&columns, &report.recovery, |row| {
        vec![
            row.frame_bytes.to_string(),
            grouped(row.overload_pps),
            grouped(row.then_pps),
            grouped(row.over.lost as f64),
            row.repeats_ns.len().to_string(),
            may(row.recovery_ns, duration),
            duration(row.resolution_ns),
        ]
    })
}

fn soak(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("frames/s", true),
        ("seconds", true),
        ("sent", true),
        ("lost", true),
        ("ppm", true),
        ("p50", true),
        ("p99.99", true),
        ("max", true),
    ];
    table(&columns, report.soak.as_slice(), |soak| {
        vec![
            soak.frame_bytes.to_string(),
            grouped(soak.pps),
            format!("{:.1}", soak.trial.seconds),
            grouped(soak.trial.sent as f64),
            grouped(soak.trial.lost as f64),
            format!("{:.3}", lost_ppm(&soak.trial)),
            duration(soak.latency.p50_ns),
            duration(soak.latency.p9999_ns),
            duration(soak.latency.max_ns),
        ]
    })
}

fn scaling(report: &Report) -> Option<Table> {
    let columns = [("size", false), ("cores", true), ("frames/s", true)];
    table(&columns, &report.scaling, |row| {
        vec![
            row.frame_bytes.to_string(),
            row.cores.to_string(),
            grouped(row.pps),
        ]
    })
}

fn self_test(report: &Report) -> Option<Table> {
    let columns = [
        ("size", false),
        ("frames/s", true),
        ("pacing error p99", true),
        ("clock error ppm", true),
        ("latency p50", true),
        ("p99", true),
    ];
    table(&columns, &report.self_test, |row| {
        let timed = row.latency.samples > 0;
        vec![
            row.frame_bytes.to_string(),
            grouped(row.max_pps),
            duration(row.pacing_error_p99_ns),
            format!("{:.2}", row.clock_error_ppm),
            may(timed.then_some(row.latency.p50_ns), duration),
            may(timed.then_some(row.latency.p99_ns), duration),
        ]
    })
}
