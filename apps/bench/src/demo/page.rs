//! `--html`: the whole report as one page that needs nothing else.

use std::fmt::Write;

use super::bridge::Scenario;
use super::frame::{FCS_BYTES, L1_BYTES};
use super::{Report, Row};
use crate::chart::{Series, columns, dots, duration, escape};
use crate::html::document;

/// What the charts have below them.
const SIZES: &str = "frame size in bytes, FCS included";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut body = String::new();
    head(&mut body, report);
    rates(&mut body, &report.rows);
    latencies(&mut body, &report.rows);
    if !report.linux_bridge.is_empty() {
        comparison(&mut body, report);
    }
    table(&mut body, &report.rows);
    document("linerate demo", &body)
}

fn head(body: &mut String, report: &Report) {
    let _ = write!(
        body,
        "<h1>linerate demo</h1><p class=\"dim\">{}</p><p class=\"dim\">{}</p>",
        escape(&report.machine.line()),
        escape(&report.split)
    );
    let best = |value: fn(&Row) -> f64| report.rows.iter().map(value).fold(0.0, f64::max);
    let lost: u64 = report.rows.iter().map(|row| row.lost).sum();
    let frames: u64 = report.rows.iter().map(|row| row.received).sum();
    let facts = [
        (format!("{:.1}", best(|row| row.mpps)), "Mpps at best"),
        (format!("{:.0}", best(|row| row.gbps_l1)), "Gb/s L1 at best"),
        (lost.to_string(), "frames lost"),
        (format!("{:.1} M", frames as f64 * 1e-6), "frames checked"),
    ];
    body.push_str("<div class=\"facts\">");
    for (value, what) in facts {
        let _ = write!(body, "<div><b>{value}</b><span>{what}</span></div>");
    }
    body.push_str("</div>");
    if !report.whole_frames {
        body.push_str("<p><b>Headers only:</b> payloads were neither written nor checked.</p>");
    }
    if report.interrupted {
        body.push_str("<p><b>Ended early:</b> what was not measured is left out.</p>");
    }
}

fn sizes(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.frame_bytes.to_string()).collect()
}

fn series<'a>(
    name: &'a str,
    colour: usize,
    rows: &[Row],
    value: impl Fn(&Row) -> f64,
) -> Series<'a> {
    Series {
        name,
        colour,
        values: rows.iter().map(value).collect(),
    }
}

fn rates(body: &mut String, rows: &[Row]) {
    let _ = write!(
        body,
        "<h2>Packets per second</h2><p class=\"note\">Generator, l2fwd with MAC update and sink \
         over in-process ring ports, every frame counted by its sequence number.</p>{}<h2>Bits per \
         second</h2><p class=\"note\">L2 counts frames with their {FCS_BYTES} bytes of FCS, L1 \
         {L1_BYTES} bytes more for preamble and gap.</p>{}",
        columns(
            "Mpps",
            SIZES,
            &sizes(rows),
            &[series("Mpps", 0, rows, |row| row.mpps)]
        ),
        columns(
            "Gb/s",
            SIZES,
            &sizes(rows),
            &[
                series("L2", 0, rows, |row| row.gbps_l2),
                series("L1", 3, rows, |row| row.gbps_l1)
            ]
        )
    );
}

fn latencies(body: &mut String, rows: &[Row]) {
    let all = [
        series("p50", 0, rows, |row| row.p50_ns as f64),
        series("p99", 1, rows, |row| row.p99_ns as f64),
        series("p99.9", 2, rows, |row| row.p999_ns as f64),
    ];
    let _ = write!(
        body,
        "<h2>Latency at half the rate</h2><p class=\"note\">From the time at which each frame was \
         to be sent, however late it went, to its arrival at the sink. Logarithmic scale; time \
         that others took from the CPU is in it.</p>{}",
        dots("", SIZES, &sizes(rows), &all)
    );
}

/// Colours: the kernel grey, linerate in colour.
fn colour(scenario: &Scenario) -> usize {
    match scenario.name {
        name if name.contains("RPS") => 4,
        name if name.starts_with("Linux") => 3,
        name if name.contains("af_xdp") => 5,
        _ => 0,
    }
}

fn comparison(body: &mut String, report: &Report) {
    body.push_str(
        "<h2>Beside a Linux bridge, between the same veth pairs</h2><p class=\"note\">Frames \
         counted at the far ends. On veth the kernel is the limit for everybody: whoever forwards, \
         each frame passes its transmit and receive path twice, mostly in the sender's time.</p>",
    );
    if let Some(disturbance) = report.disturbance() {
        let _ = write!(body, "<p><b>{disturbance}</b></p>");
    }
    for ports in [2, 4] {
        let of_ports = report
            .linux_bridge
            .iter()
            .filter(|scenario| scenario.ports == ports && !scenario.rows.is_empty());
        let all: Vec<_> = of_ports
            .map(|scenario| Series {
                name: scenario.name,
                colour: colour(scenario),
                values: scenario.rows.iter().map(|rate| rate.mpps).collect(),
            })
            .collect();
        if !all.is_empty() {
            body.push_str(&columns("Mpps", SIZES, &sizes(&report.rows), &all));
        }
    }
    let _ = write!(
        body,
        "<div class=\"scroll\"><table><tr><th>Mpps, ratio to the bridge</th>{}</tr>",
        heads(&report.rows)
    );
    for scenario in &report.linux_bridge {
        let _ = write!(body, "<tr><td>{}</td>", escape(scenario.name));
        for rate in &scenario.rows {
            let _ = write!(
                body,
                "<td>{:.2} <span class=\"dim\">{:.2}×</span></td>",
                rate.mpps, rate.ratio
            );
        }
        body.push_str("</tr>");
    }
    body.push_str("<tr><td>linerate, ring ports</td>");
    for row in &report.rows {
        let _ = write!(body, "<td>{:.2}</td>", row.mpps);
    }
    body.push_str(
        "</tr></table></div><div class=\"scroll\"><table><tr><th>At the smallest \
        size</th><th class=\"wide\">what was in the way</th></tr>",
    );
    for scenario in &report.linux_bridge {
        let found = scenario.rows.first().map(|rate| rate.bottleneck.clone());
        let found = found
            .or_else(|| scenario.failed.clone())
            .unwrap_or_default();
        let _ = write!(
            body,
            "<tr><td>{}</td><td class=\"wide\">{}</td></tr>",
            escape(scenario.name),
            escape(&found)
        );
    }
    body.push_str("</table></div>");
}

fn heads(rows: &[Row]) -> String {
    rows.iter()
        .map(|row| format!("<th>{} B</th>", row.frame_bytes))
        .collect()
}

fn table(body: &mut String, rows: &[Row]) {
    body.push_str(
        "<h2>Figures over ring ports</h2><div class=\"scroll\"><table><tr><th>frame</th>\
         <th>Mpps</th><th>Gb/s L2</th><th>Gb/s L1</th><th>TSC ticks/pkt</th><th>ns/pkt</th>\
         <th>p50</th><th>p99</th><th>p99.9</th><th>received</th><th>lost</th></tr>",
    );
    for row in rows {
        let time = |ns: u64| duration(ns as f64);
        let _ = write!(
            body,
            "<tr><td>{} B</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            row.frame_bytes,
            row.mpps,
            row.gbps_l2,
            row.gbps_l1,
            row.cycles_per_packet,
            row.ns_per_packet,
            time(row.p50_ns),
            time(row.p99_ns),
            time(row.p999_ns),
            row.received,
            row.lost
        );
    }
    body.push_str("</table></div>");
}
