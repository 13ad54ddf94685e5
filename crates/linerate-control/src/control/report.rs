//! What a router prints: that it forwards, a line each period, and totals.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use linerate_core::run::ledger::Balance;
use serde::Serialize;

use super::Control;
use linerate_appliance::control::ledger::{self, Verdict};
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table};
use linerate_appliance::runtime::Reading;

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    /// `ready`, `period` or `totals`.
    event: &'static str,
    elapsed_s: f64,
    /// Routes in the forwarding tables.
    routes: usize,
    #[serde(flatten)]
    reading: &'a Reading,
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<Verdict>,
}

/// The first line of JSON.
#[derive(Serialize)]
struct Ready<'a> {
    event: &'static str,
    ports: Vec<&'a str>,
    interfaces: Vec<&'a str>,
    lcores: Vec<&'a str>,
    control: &'a Path,
    metrics: Option<SocketAddr>,
}

impl Control {
    /// Says that packets are forwarded from now on.
    pub(super) fn say_ready(
        &self,
        socket: &Path,
        metrics: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let ports: Vec<&str> = self
            .workers
            .running
            .ports()
            .iter()
            .map(|open| open.name.as_str())
            .collect();
        let interfaces = self.settings.interfaces.iter();
        let interfaces: Vec<&str> = interfaces
            .map(|interface| interface.name.as_str())
            .collect();
        let lcores: Vec<&str> = self
            .workers
            .running
            .lcores()
            .map(|(name, ..)| name)
            .collect();
        if self.json {
            return line(&Ready {
                event: "ready",
                ports,
                interfaces,
                lcores,
                control: socket,
                metrics,
            });
        }
        let metrics = metrics.map_or_else(String::new, |at| format!(", http://{at}/metrics"));
        output::print(&format!(
            "router: forwarding between {} over {}, lcores {}; `linerate ctl --socket \
             {}`{metrics}\n",
            interfaces.join(", "),
            ports.join(", "),
            lcores.join(", "),
            socket.display()
        ))
    }

    /// What it does, in a short line.
    pub(super) fn status(&self) -> String {
        let interfaces = self.config.interfaces.iter();
        let interfaces = interfaces.filter(|interface| !interface.is_gone()).count();
        let ports = self.config.ports.len();
        format!("forwarding, interfaces: {interfaces}, ports: {ports}")
    }

    /// One line about the time since the last.
    pub(super) fn say_period(&self, reading: &Reading) -> Result<(), Error> {
        let elapsed_s = self.readings.began.elapsed().as_secs_f64();
        let routes: usize = self.rib.counts().routes.iter().sum();
        if self.json {
            return line(&Line {
                event: "period",
                elapsed_s,
                routes,
                reading,
                ledger: None,
            });
        }
        let ports = || reading.ports.iter();
        let down = reading.ports.iter().filter(|port| port.link != "up");
        let down: Vec<&str> = down.map(|port| port.name.as_str()).collect();
        let mut text = format!(
            "{elapsed_s:.0} s: rx {:.3} Mpps {:.3} Gb/s, tx {:.3} Mpps {:.3} Gb/s, {} dropped, \
             {routes} routes",
            ports().map(|port| port.rx_pps).sum::<f64>() * 1e-6,
            ports().map(|port| port.rx_gbps).sum::<f64>(),
            ports().map(|port| port.tx_pps).sum::<f64>() * 1e-6,
            ports().map(|port| port.tx_gbps).sum::<f64>(),
            drops(reading).values().sum::<u64>(),
        );
        if !down.is_empty() {
            let _ = write!(text, ", down: {}", down.join(", "));
        }
        output::print(&(text + "\n"))
    }
}

/// The whole run, when it has ended.
pub(super) fn totals(
    reading: &Reading,
    balance: &Balance,
    routes: usize,
    json: bool,
) -> Result<(), Error> {
    ledger::warn(balance);
    if json {
        return line(&Line {
            event: "totals",
            elapsed_s: reading.seconds,
            routes,
            reading,
            ledger: Some(Verdict::of(balance)),
        });
    }
    let columns = [
        Column::text("port"),
        Column::number("rx packets"),
        Column::number("rx bytes"),
        Column::number("tx packets"),
        Column::number("tx bytes"),
    ];
    let mut table = Table::new(columns);
    for port in &reading.ports {
        let numbers = [
            port.rx_packets,
            port.rx_bytes,
            port.tx_packets,
            port.tx_bytes,
        ];
        let cells = numbers.map(Cell::new);
        table.row([Cell::new(&port.name)].into_iter().chain(cells));
    }
    let mut text = format!("\ntotals after {:.1} s\n", reading.seconds);
    text += &table.render(output::colour());
    let drops: Vec<String> = drops(reading)
        .iter()
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    if !drops.is_empty() {
        let _ = writeln!(text, "dropped: {}", drops.join(", "));
    }
    let _ = writeln!(text, "{}", balance.verdict());
    output::print(&text)
}

/// Everything dropped since the start, by reason: by workers and at ports.
fn drops(reading: &Reading) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for lcore in &reading.lcores {
        for (why, count) in &lcore.drops {
            *all.entry(why.clone()).or_default() += count;
        }
    }
    for port in &reading.ports {
        let both = [("rx", &port.rx_drops), ("tx", &port.tx_drops)];
        for (direction, drops) in both {
            for (why, count) in drops.iter().filter(|(_, count)| **count > 0) {
                *all.entry(format!("{}.{direction}_{why}", port.name))
                    .or_default() += count;
            }
        }
    }
    all
}

fn line(line: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(line).map_err(std::io::Error::from)?;
    output::print(&(text + "\n"))
}
