//! The tables that every run of workers has: its ports, lcores, drops, stages and books.

use linerate_core::port::PortStats;
use linerate_core::run::Stage;
use serde_json::Value;

use super::show::{Drops, Found, Table, value};
use super::{ledger, path};
use crate::runtime::{LcoreRow, OpenPort, Readings, Running, Sample};

/// A run of workers, for its tables.
pub struct RunTables<'a, S: Stage + 'static> {
    /// The workers and their ports.
    pub running: &'a Running<S>,
    /// Since when is counted.
    pub readings: &'a Readings,
    /// What an lcore does, by its place among so many.
    pub does: fn(usize, usize) -> &'static str,
    /// What is like a port besides, by name: it has drops of its own.
    pub others: Vec<(&'a str, PortStats)>,
}

impl<S: Stage + 'static> RunTables<'_, S> {
    /// All of them.
    pub const ALL: [&'static Table; 5] = [
        &Table::PORTS,
        &Table::LCORES,
        &Table::DROPS,
        &Table::PATH,
        &Table::LEDGER,
    ];

    /// All rows of one of them, counted since the start. The filter `cycles` of the path is no
    /// name: it has the stages measured, and is taken away.
    pub fn found(&self, table: &Table, filter: &mut String) -> Found {
        let (rows, notes) = match table.what {
            "ports" => (self.ports(), self.warnings()),
            "lcores" => (self.lcores(), Vec::new()),
            "drops" => (self.drops(), Vec::new()),
            "path" => {
                if filter == "cycles" {
                    path::measure(self.running);
                    filter.clear();
                }
                let rows: Vec<Value> = path::stages(self.running).iter().map(value).collect();
                let notes = path::warnings(&rows).collect();
                (rows, notes)
            }
            _ => {
                let (rows, verdict) = ledger::rows(&self.running.balance());
                (rows, vec![verdict])
            }
        };
        Found { rows, notes }
    }

    /// All rows of one of them.
    pub fn rows(&self, table: &Table) -> Vec<Value> {
        self.found(table, &mut String::new()).rows
    }

    /// Counts since the start, rates since about a second ago.
    fn ports(&self) -> Vec<Value> {
        let reading = Sample::take(self.running).since(&self.readings.previous);
        reading.ports.iter().map(value).collect()
    }

    /// Warnings of ports, a line each.
    fn warnings(&self) -> Vec<String> {
        let warning = |open: &OpenPort| {
            let warning = open.port.warning()?;
            Some(format!("warning: {}: {warning}", open.name))
        };
        self.running.ports().iter().filter_map(warning).collect()
    }

    /// Counts since the start, and how busy each was for about a second.
    fn lcores(&self) -> Vec<Value> {
        let now = Sample::take(self.running);
        let recent = now.since(&self.readings.previous);
        let all = now.since(&self.readings.first);
        let count = all.lcores.len();
        let row = |(index, lcore): (usize, &LcoreRow)| {
            let mut row = value(lcore);
            row["busy_share"] = recent.lcores[index].load.busy_share.into();
            row["does"] = (self.does)(index, count).into();
            row
        };
        all.lcores.iter().enumerate().map(row).collect()
    }

    /// By reason and place: of lcores, of ports, and of what is like one.
    fn drops(&self) -> Vec<Value> {
        let mut drops = Drops::default();
        for (name, _, stats) in self.running.lcores() {
            for (reason, packets) in stats.drops() {
                drops.add(name, reason, packets);
            }
        }
        let ports = self.running.ports().iter();
        let ports = ports.map(|open| (open.name.as_str(), open.port.stats()));
        for (name, stats) in ports.chain(self.others.iter().cloned()) {
            drops.add_port(name, &stats.rx_drops, &stats.tx_drops);
        }
        drops.rows()
    }
}
