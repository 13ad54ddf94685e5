//! What `linerate ctl show` shows: [`Table`]s of rows of JSON, of which the client asks for some,
//! with what was left out counted. [`RunTables`](super::tables::RunTables) makes those that every
//! run of workers has.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::cleared::Cleared;
use crate::nearest::offer;
use crate::socket::Problem;

/// Rows at most, whatever a client asks for.
const MOST: u64 = 10_000_000;

/// A table that can be shown.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What it is called.
    pub what: &'static str,
    /// Keys that name a row: by what they say it may be asked for.
    pub names: &'static [&'static str],
    /// Keys of what a row counts: numbers, or objects of numbers.
    pub counters: &'static [&'static str],
}

impl Table {
    /// Ports, with links, counts and rates.
    pub const PORTS: Self = Self {
        what: "ports",
        names: &["name"],
        counters: &[
            "rx_packets",
            "rx_bytes",
            "tx_packets",
            "tx_bytes",
            "tx_copied",
            "checksums_completed",
            "segmented",
            "capture_missed",
            "joined",
            "notifications",
            "violations",
            "rx_drops",
            "tx_drops",
        ],
    };
    /// Lcores, what they do and how busy they are.
    pub const LCORES: Self = Self {
        what: "lcores",
        names: &["name"],
        counters: &["packets", "rounds", "sleeps", "drops"],
    };
    /// Packets dropped, by reason and place.
    pub const DROPS: Self = Self {
        what: "drops",
        names: &["reason", "at"],
        counters: &["packets"],
    };
    /// Stages, in the order in which packets pass.
    pub const PATH: Self = Self {
        what: "path",
        names: &["stage"],
        counters: &["packets"],
    };
    /// Who holds which slots and packets, and who has lost one.
    pub const LEDGER: Self = Self {
        what: "ledger",
        names: &["holder"],
        counters: &[],
    };

    /// The one of `all` that is called `what`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn find(all: &[&'static Self], what: &str) -> Result<&'static Self, Problem> {
        let found = all.iter().find(|table| table.what == what).copied();
        found.ok_or_else(|| {
            let problem = format!("there is no table `{what}` here");
            Problem::new(problem, offer(what, all.iter().map(|table| table.what)))
        })
    }

    /// What names this row.
    pub(super) fn key(&self, row: &Value) -> String {
        let names = self.names.iter().filter_map(|name| row[*name].as_str());
        names.collect::<Vec<_>>().join("\n")
    }

    /// Whether this row has that name; an empty one has each.
    fn is_called(&self, row: &Value, name: &str) -> bool {
        name.is_empty() || self.names.iter().any(|key| row[*key] == *name)
    }
}

/// All rows of a table, of which somebody may want some.
#[derive(Debug, Default)]
pub struct Found {
    /// The rows.
    pub rows: Vec<Value>,
    /// Lines below them.
    pub notes: Vec<String>,
}

impl Found {
    /// The rows of `table` that `params` ask for by the name `filter`, counted since they were
    /// cleared, where they were.
    pub fn asked(
        mut self,
        table: &Table,
        cleared: Option<&Cleared>,
        filter: &str,
        params: &Value,
    ) -> Rows {
        let since = cleared.and_then(|cleared| cleared.subtract(table, &mut self.rows));
        if *table == Table::DROPS {
            self.notes.push(most_first(&mut self.rows));
        }
        let mut rows = Rows::asked(params);
        rows.notes = self.notes;
        rows.notes.extend(since);
        let wanted = |row: &Value| table.is_called(row, filter);
        for row in self.rows.into_iter().filter(wanted) {
            rows.add_with(|| row);
        }
        rows
    }
}

/// Makes rows that take long to find.
type Later = Box<dyn FnOnce(&mut Rows) + Send>;

/// Rows of an answer under way.
pub struct Rows {
    rows: Vec<Value>,
    limit: u64,
    more: u64,
    /// For the thread of who asks.
    later: Option<Later>,
    /// Lines below them.
    pub notes: Vec<String>,
}

impl Rows {
    /// As many as a request asks for (`limit`), or 1000.
    pub fn asked(params: &Value) -> Self {
        let limit = params.get("limit").and_then(Value::as_u64).unwrap_or(1000);
        Self {
            rows: Vec::new(),
            limit: limit.min(MOST),
            more: 0,
            later: None,
            notes: Vec::new(),
        }
    }

    /// Has `make` add the rows, on the thread of who asks: the one that owns the run goes on
    /// meanwhile.
    pub fn later(&mut self, make: impl FnOnce(&mut Self) + Send + 'static) {
        self.later = Some(Box::new(make));
    }

    /// Adds the row that `make` makes while there is room.
    pub fn add_with<R: Serialize>(&mut self, make: impl FnOnce() -> R) {
        if self.rows.len() as u64 >= self.limit {
            self.more += 1;
            return;
        }
        self.rows.push(value(make()));
    }

    /// The answer. It may take long: not for the thread that owns the run.
    pub fn end(mut self) -> Value {
        if let Some(make) = self.later.take() {
            make(&mut self);
        }
        let summary = (!self.notes.is_empty()).then(|| self.notes.join("\n"));
        json!({ "rows": self.rows, "more": self.more, "summary": summary })
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({:?}, {} more)", self.rows, self.more)
    }
}

/// The row that `params` ask for; all where that is empty.
pub fn filter(params: &Value) -> String {
    let filter = params.get("filter").and_then(Value::as_str);
    filter.unwrap_or("").into()
}

/// A row as JSON.
pub fn value(row: impl Serialize) -> Value {
    serde_json::to_value(row).expect("rows have only texts as keys")
}

/// Drops by reason and place, summed.
#[derive(Debug, Default)]
pub struct Drops(BTreeMap<(String, String), u64>);

impl Drops {
    /// Adds so many, dropped `at` an lcore or port.
    pub fn add(&mut self, at: &str, reason: String, packets: u64) {
        *self.0.entry((reason, at.into())).or_default() += packets;
    }

    /// Adds those of a port, each for `rx_` or `tx_` with what it says.
    pub fn add_port<R: AsRef<str>>(&mut self, name: &str, rx: &[(R, u64)], tx: &[(R, u64)]) {
        for (direction, drops) in [("rx", rx), ("tx", tx)] {
            for (reason, packets) in drops {
                self.add(name, format!("{direction}_{}", reason.as_ref()), *packets);
            }
        }
    }

    /// A row for each.
    pub fn rows(self) -> Vec<Value> {
        let row =
            |((reason, at), packets)| json!({ "reason": reason, "at": at, "packets": packets });
        self.0.into_iter().map(row).collect()
    }
}

/// Leaves those rows of drops that count something, most first, and says how many packets that are.
fn most_first(drops: &mut Vec<Value>) -> String {
    let packets = |row: &Value| row["packets"].as_u64().unwrap_or(0);
    drops.retain(|row| packets(row) > 0);
    // And then as they come: by reason and place.
    drops.sort_by_key(|row| std::cmp::Reverse(packets(row)));
    let total: u64 = drops.iter().map(packets).sum();
    format!("{total} packets dropped")
}
