//! The demo's report for people.

use std::fmt::Write;

use super::Report;
use super::frame::{FCS_BYTES, L1_BYTES};
use linerate_appliance::output::{Cell, Column, Table, Tone};

/// The whole report.
pub(super) fn text(report: &Report, colour: bool) -> String {
    let mut table = Table::new([
        Column::number("frame B"),
        Column::number("Mpps"),
        Column::number("Gb/s L2"),
        Column::number("Gb/s L1"),
        Column::number("cycles/pkt"),
        Column::number("ns/pkt"),
        Column::number("p50 ns"),
        Column::number("p99 ns"),
        Column::number("p99.9 ns"),
        Column::number("lost"),
    ]);
    for row in &report.rows {
        let lost = Cell::new(row.lost).tone(if row.lost == 0 { Tone::Good } else { Tone::Bad });
        table.row([
            Cell::new(row.frame_bytes),
            Cell::new(format!("{:.2}", row.mpps)),
            Cell::new(format!("{:.1}", row.gbps_l2)),
            Cell::new(format!("{:.1}", row.gbps_l1)),
            Cell::new(format!("{:.1}", row.cycles_per_packet)),
            Cell::new(format!("{:.1}", row.ns_per_packet)),
            Cell::new(row.p50_ns),
            Cell::new(row.p99_ns),
            Cell::new(row.p999_ns),
            lost,
        ]);
    }
    let mut text = format!("{}\n{}\n", report.machine.line(), report.split);
    if let Some(memory) = &report.memory {
        let _ = writeln!(text, "{memory}");
    }
    let _ = writeln!(
        text,
        "generator -> ring -> l2fwd with MAC update -> ring -> sink\n\n{}",
        table.render(colour)
    );
    text.push_str(if report.whole_frames {
        "Every byte of every frame was written by the generator and checked by the sink.\n"
    } else {
        "headers only: payloads were neither written nor checked.\n"
    });
    let _ = writeln!(
        text,
        "Frame sizes count the {FCS_BYTES} bytes of FCS, L1 {L1_BYTES} more for preamble and gap. \
         Cycles are TSC ticks for\n\
         all three roles together. Latency is taken at half the rate shown, from the time at which \
         each\n\
         frame was to be sent to its arrival at the sink."
    );
    if !report.linux_bridge.is_empty() {
        text.push_str(&bridge_text(report, colour));
    }
    if report.interrupted {
        text.push_str("Ended early: sizes not measured are left out.\n");
    }
    text
}

/// Mpps by frame size, each with its ratio to the bridge, and what was in the way.
fn bridge_text(report: &Report, colour: bool) -> String {
    let sizes: Vec<String> = report
        .rows
        .iter()
        .map(|row| format!("{} B", row.frame_bytes))
        .collect();
    let columns = sizes.iter().map(|size| Column::number(size));
    let mut table = Table::new(
        [Column::text("Mpps (ratio to the bridge)")]
            .into_iter()
            .chain(columns),
    );
    for scenario in &report.linux_bridge {
        let rates = scenario.rows.iter().map(|rate| {
            let tone = if rate.ratio > 1.0 {
                Tone::Good
            } else {
                Tone::Plain
            };
            Cell::new(format!("{:.2} ({:.2}x)", rate.mpps, rate.ratio)).tone(tone)
        });
        table.row([Cell::new(scenario.name)].into_iter().chain(rates));
    }
    let rings = report
        .rows
        .iter()
        .map(|row| Cell::new(format!("{:.2}", row.mpps)));
    table.row(
        [Cell::new("linerate, ring ports (as above)")]
            .into_iter()
            .chain(rings),
    );
    let mut text = format!(
        "\nbetween veth pairs, frames counted at the far ends\n\n{}\n",
        table.render(colour)
    );
    for scenario in &report.linux_bridge {
        if let Some(reason) = &scenario.failed {
            let _ = writeln!(text, "{}: not measured: {reason}", scenario.name);
        }
        if let Some(rate) = scenario.rows.first() {
            let _ = writeln!(
                text,
                "{}: at {} B {}",
                scenario.name, rate.frame_bytes, rate.bottleneck
            );
        }
    }
    if let Some(disturbance) = report.disturbance() {
        let _ = writeln!(text, "\n{}", Tone::Warn.paint(&disturbance, colour));
    }
    text.push_str(
        "\nOn veth the kernel is the limit for everybody: whoever forwards, each frame passes its \
         transmit and\n\
         receive path twice, mostly in the sender's time. Over ring ports the same frames pass no \
         kernel.\n",
    );
    text
}
