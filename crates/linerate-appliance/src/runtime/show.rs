//! What forwarders print: the ports at the start, a table each period and totals, or the same as
//! JSON lines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use linerate_core::env::{Plan, Role};
use linerate_core::run::Stage;
use linerate_core::run::ledger::Balance;
use serde::Serialize;

use super::{Reading, Running};
use crate::config::PortStanza;
use crate::control::ledger::{self, Verdict};
use crate::error::Error;
use crate::output::{self, Cell, Column, MachineFacts, Table, Tone};

/// One line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    /// Whether these are the totals of the whole run.
    totals: bool,
    elapsed_s: f64,
    #[serde(flatten)]
    reading: &'a Reading,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineFacts>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    memory: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<Verdict>,
}

/// Lists the ports; `path` describes what is done with the packets of each.
pub(super) fn started<S: Stage>(
    running: &Running<S>,
    path: impl Fn(usize) -> String,
    json: bool,
) -> Result<(), Error> {
    if json {
        return Ok(());
    }
    let mut text = String::new();
    for (number, open) in running.ports().iter().enumerate() {
        let path = path(number);
        let mac = open
            .info
            .mac
            .map_or_else(String::new, |mac| format!(", {mac}"));
        let facts: String = open
            .info
            .facts
            .iter()
            .map(|(key, value)| format!(", {key} {value}"))
            .collect();
        let _ = writeln!(text, "port {number} {}{mac}{path}{facts}", open.name);
    }
    for (name, cpu, _) in running.lcores() {
        let cpu = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        let _ = writeln!(text, "lcore {name}{cpu}");
    }
    for pool in &running.memory {
        let _ = writeln!(text, "{pool}");
    }
    text.push_str("Ctrl-C ends it with totals.\n");
    output::print(&text)
}

/// What would be started, for `--check`: the ports, `path` for what would be done with the packets
/// of each, and the lcores that would poll them.
///
/// # Errors
/// The output cannot be written.
pub fn planned(
    ports: &[PortStanza],
    plan: &Plan,
    path: impl Fn(usize) -> String,
) -> Result<(), Error> {
    let mut text = String::new();
    for (number, port) in ports.iter().enumerate() {
        let (name, path) = (port.called(), path(number));
        let _ = writeln!(text, "port {number} {name} ({}){path}", port.spec);
    }
    for lcore in plan.role(Role::Io) {
        let _ = writeln!(text, "lcore {} on CPU {}", lcore.name, lcore.cpu);
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    output::print(&text)
}

/// One period.
pub(super) fn period(reading: &Reading, elapsed: Duration, json: bool) -> Result<(), Error> {
    if json {
        return line(&Line {
            totals: false,
            elapsed_s: elapsed.as_secs_f64(),
            reading,
            machine: None,
            memory: &[],
            ledger: None,
        });
    }
    let head = format!("\n{:.1} s\n", elapsed.as_secs_f64());
    output::print(&(head + &table(reading, output::colour())))
}

/// The whole run.
pub(super) fn totals(
    reading: &Reading,
    balance: &Balance,
    machine: &MachineFacts,
    memory: &[String],
    json: bool,
) -> Result<(), Error> {
    ledger::warn(balance);
    if json {
        return line(&Line {
            totals: true,
            elapsed_s: reading.seconds,
            reading,
            machine: Some(machine),
            memory,
            ledger: Some(Verdict::of(balance)),
        });
    }
    let head = format!(
        "\ntotals after {:.1} s, {}\n",
        reading.seconds,
        machine.line()
    );
    let table = table(reading, output::colour());
    output::print(&format!("{head}{table}{}\n", balance.verdict()))
}

fn line(line: &Line) -> Result<(), Error> {
    let text = serde_json::to_string(line).map_err(std::io::Error::from)?;
    output::print(&(text + "\n"))
}

fn table(reading: &Reading, colour: bool) -> String {
    let mut table = Table::new([
        Column::number("port"),
        Column::text("name"),
        Column::text("link"),
        Column::number("rx packets"),
        Column::number("rx Mpps"),
        Column::number("rx Gb/s"),
        Column::number("tx packets"),
        Column::number("tx Mpps"),
        Column::number("tx Gb/s"),
        Column::text("drops"),
    ]);
    for row in &reading.ports {
        let up = row.link == "up";
        let drops = row
            .rx_drops
            .iter()
            .map(|(why, count)| format!("rx {why} {count}"));
        let drops: Vec<_> = drops
            .chain(
                row.tx_drops
                    .iter()
                    .map(|(why, count)| format!("tx {why} {count}")),
            )
            .collect();
        table.row([
            Cell::new(row.port),
            Cell::new(&row.name),
            Cell::new(&row.link).tone(if up { Tone::Good } else { Tone::Bad }),
            Cell::new(row.rx_packets),
            Cell::new(format!("{:.3}", row.rx_pps * 1e-6)),
            Cell::new(format!("{:.3}", row.rx_gbps)),
            Cell::new(row.tx_packets),
            Cell::new(format!("{:.3}", row.tx_pps * 1e-6)),
            Cell::new(format!("{:.3}", row.tx_gbps)),
            Cell::new(drops.join(", ")).tone(Tone::Warn),
        ]);
    }
    let mut text = table.render(colour);
    for lcore in &reading.lcores {
        let load = &lcore.load;
        let cpu = load
            .cpu
            .map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        let _ = write!(
            text,
            "lcore {}{cpu}: {:.1} % busy, slept {} times",
            load.name,
            load.busy_share * 100.0,
            lcore.sleeps
        );
        if lcore.wake_up_p50_ns > 0 {
            let _ = write!(
                text,
                " (wake-up p50 {:.1} us)",
                lcore.wake_up_p50_ns as f64 * 1e-3
            );
        }
        if lcore.gaps > 0 {
            let (all, longest) = (
                lcore.gaps_ns as f64 * 1e-6,
                lcore.longest_gap_ns as f64 * 1e-3,
            );
            let _ = write!(
                text,
                ", {} gaps ({all:.1} ms, longest {longest:.0} us)",
                lcore.gaps
            );
        }
        text.push('\n');
        text.push_str(&drops(&load.name, &lcore.drops));
    }
    let residence = &reading.residence;
    if residence.count > 0 {
        let of = |name, ticks, ns| format!("{name} {ticks} ticks ({ns} ns)");
        let _ = writeln!(
            text,
            "residence: {}, {}, {}",
            of("p50", residence.p50_ticks, residence.p50_ns),
            of("p99", residence.p99_ticks, residence.p99_ns),
            of("p99.9", residence.p999_ticks, residence.p999_ns)
        );
    }
    text
}

fn drops(lcore: &str, drops: &BTreeMap<String, u64>) -> String {
    if drops.is_empty() {
        return String::new();
    }
    let each: Vec<_> = drops
        .iter()
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    format!("drops by {lcore}: {}\n", each.join(", "))
}
