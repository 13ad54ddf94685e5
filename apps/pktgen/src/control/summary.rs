//! A run in text: one line while it goes, a table of ports and of streams at its end.

use std::fmt::Write;
use std::time::Duration;

use super::headless::Verdict;
use crate::{Latency, Snapshot, Tally};
use linerate_appliance::output::{Cell, Column, MachineFacts, Table, Tone};

/// Streams shown one by one; of more there is a line that says so.
const STREAMS: usize = 50;
/// Characters that a line of the last tables may take: a terminal's usual width.
const WIDTH: usize = 80;

/// `3.0 s: sent 1.00 Mpps, received 1.00 Mpps, lost 0, unsent 0`
pub(super) fn progress(snapshot: &Snapshot, elapsed: Duration) -> String {
    let rate = |of: fn(&crate::PortView) -> f64| {
        let pps: f64 = snapshot.ports.iter().map(of).sum();
        format!("{:.3} Mpps", pps / 1e6)
    };
    let lost: u64 = snapshot
        .streams
        .iter()
        .map(|stream| stream.tally.lost)
        .sum();
    let unsent: u64 = snapshot.streams.iter().map(|stream| stream.unsent).sum();
    format!(
        "{:.1} s: sent {}, received {}, lost {lost}, unsent {unsent}",
        elapsed.as_secs_f64(),
        rate(|port| port.tx.pps),
        rate(|port| port.rx.pps),
    )
}

/// A rate in frames a second: `999999`, `1.000 M`.
fn per_second(pps: f64) -> String {
    match pps {
        pps if pps >= 999999.5 => format!("{:.3} M", pps / 1e6),
        pps => format!("{pps:.0}"),
    }
}

/// The final tables of a run.
pub(super) fn table(
    snapshot: &Snapshot,
    verdict: &Verdict,
    machine: &MachineFacts,
    colour: bool,
) -> String {
    let mut text = format!("{}\n\n", machine.line());
    let columns = [
        Column::text("port"),
        Column::text("device"),
        Column::number("sent"),
        Column::number("received"),
        Column::number("foreign"),
        Column::number("drops"),
        Column::number("sent/s"),
    ];
    let mut table = Table::new(columns);
    for port in &snapshot.ports {
        let drops = port.rx_drops.iter().chain(&port.tx_drops);
        let drops: u64 = drops.map(|(_, count)| count).sum();
        table.row([
            Cell::new(format!("{} {}", port.number, port.name)),
            Cell::new(&port.device),
            Cell::new(port.tx.packets),
            Cell::new(port.rx.packets),
            Cell::new(port.foreign),
            Cell::new(drops),
            Cell::new(per_second(port.tx.mean_pps)),
        ]);
    }
    text.push_str(&table.render_within(WIDTH, colour));
    text.push('\n');
    let columns = [
        Column::text("stream"),
        Column::text("rate"),
        Column::number("sent/s"),
        Column::number("sent"),
        Column::number("unsent"),
        Column::number("received"),
        Column::number("lost"),
        Column::number("ppm"),
        Column::number("reordered"),
        Column::number("twice"),
        Column::number("p50 us"),
        Column::number("p99 us"),
        Column::number("max us"),
    ];
    let mut table = Table::new(columns);
    for stream in snapshot.streams.iter().take(STREAMS) {
        let name = match stream.name.is_empty() {
            true => format!("{} on port {}", stream.id, stream.port),
            false => format!("{} {}, port {}", stream.id, stream.name, stream.port),
        };
        // The fate of frames without a signature is unknown.
        let tested = |cell: Cell| if stream.tested { cell } else { Cell::new("-") };
        let Tally {
            sent,
            received,
            lost,
            reordered,
            duplicates,
        } = stream.tally;
        let bad = |count: u64| {
            let tone = if count > 0 { Tone::Bad } else { Tone::Plain };
            Cell::new(count).tone(tone)
        };
        let Latency {
            samples,
            p50_ns,
            p99_ns,
            max_ns,
            ..
        } = stream.latency;
        let us = |ns: f64| match samples {
            0 => Cell::new("-"),
            _ => Cell::new(format!("{:.2}", ns / 1e3)),
        };
        table.row([
            Cell::new(name),
            Cell::new(&stream.rate),
            Cell::new(per_second(stream.mean_pps)),
            Cell::new(sent),
            bad(stream.unsent),
            tested(Cell::new(received)),
            tested(bad(lost)),
            tested(Cell::new(format!("{:.1}", stream.tally.lost_ppm()))),
            tested(bad(reordered)),
            tested(bad(duplicates)),
            us(p50_ns),
            us(p99_ns),
            us(max_ns),
        ]);
    }
    text.push_str(&table.render_within(WIDTH, colour));
    if let more @ 1.. = snapshot.streams.len().saturating_sub(STREAMS) {
        let _ = writeln!(text, "and {more} more streams; --json has them all");
    }
    let _ = writeln!(
        text,
        "\n{:.3} s, session {}, seed {}; latency from the intended time of sending to receipt; {}",
        snapshot.since_clear_ns as f64 / 1e9,
        snapshot.session,
        snapshot.seed,
        snapshot.clock
    );
    let tone = match verdict.exit_code {
        0 => Tone::Good,
        _ => Tone::Bad,
    };
    let _ = writeln!(text, "{}", tone.paint(verdict.word, colour));
    for reason in &verdict.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    text
}
