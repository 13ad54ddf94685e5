//! What `linerate ctl show` shows of any appliance: rows of JSON, with what was left out counted.

use std::collections::BTreeMap;

use linerate_core::port::PortStats;
use linerate_core::run::Stage;
use serde::Serialize;
use serde_json::{Value, json};

use crate::runtime::{LcoreRow, Running, Sample};

/// Rows at most, whatever a client asks for.
const MOST: u64 = 10_000_000;

/// Rows under way.
pub struct Rows {
    rows: Vec<Value>,
    limit: u64,
    more: u64,
    /// A line or more below them.
    pub summary: Option<String>,
}

impl Rows {
    /// As many as a request asks for (`limit`), or 1000.
    pub fn asked(params: &Value) -> Self {
        let limit = params.get("limit").and_then(Value::as_u64).unwrap_or(1000);
        Self {
            rows: Vec::new(),
            limit: limit.min(MOST),
            more: 0,
            summary: None,
        }
    }

    /// Adds the row that `make` makes while there is room.
    pub fn add_with<R: Serialize>(&mut self, make: impl FnOnce() -> R) {
        if self.rows.len() as u64 >= self.limit {
            self.more += 1;
            return;
        }
        self.rows.push(value(make()));
    }

    /// The answer.
    pub fn end(self) -> Value {
        json!({ "rows": self.rows, "more": self.more, "summary": self.summary })
    }
}

/// All rows of a table, of which somebody may want some.
#[derive(Debug, Default)]
pub struct Found {
    /// The rows.
    pub rows: Vec<Value>,
    /// A line or more below them.
    pub summary: Option<String>,
    /// Keys by which a row may be asked for.
    pub names: &'static [&'static str],
    /// What a row has to have under one of these keys, if anything.
    pub filter: String,
}

impl Found {
    /// The answer: rows of the name that was asked for, and as many as were.
    pub(super) fn answer(self, params: &Value) -> Value {
        let mut rows = Rows::asked(params);
        rows.summary = self.summary;
        let (names, filter) = (self.names, self.filter.as_str());
        let is_wanted =
            |row: &Value| filter.is_empty() || names.iter().any(|name| row[*name] == *filter);
        for row in self.rows.into_iter().filter(is_wanted) {
            rows.add_with(|| row);
        }
        rows.end()
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

/// Ports: counts since the start, rates since `previous`.
pub fn ports<S: Stage + 'static>(running: &Running<S>, previous: &Sample) -> Vec<Value> {
    let reading = Sample::take(running).since(previous);
    reading.ports.iter().map(value).collect()
}

/// Warnings of ports, a line each.
pub fn warnings<S: Stage + 'static>(running: &Running<S>) -> Vec<String> {
    let warning = |open: &crate::runtime::OpenPort| {
        let warning = open.port.warning()?;
        Some(format!("warning: {}: {warning}", open.name))
    };
    running.ports().iter().filter_map(warning).collect()
}

/// Lcores: what each `does`, by its place among so many; counts since `first`, how busy it is since
/// `previous`.
pub fn lcores<S: Stage + 'static>(
    running: &Running<S>,
    first: &Sample,
    previous: &Sample,
    does: impl Fn(usize, usize) -> &'static str,
) -> Vec<Value> {
    let now = Sample::take(running);
    let (recent, all) = (now.since(previous), now.since(first));
    let count = all.lcores.len();
    let row = |(index, lcore): (usize, &LcoreRow)| {
        let mut row = value(lcore);
        row["busy_share"] = recent.lcores[index].load.busy_share.into();
        row["does"] = does(index, count).into();
        row
    };
    all.lcores.iter().enumerate().map(row).collect()
}

/// Drops by reason and place: of lcores, of ports, and of what is like a port in `others`.
pub fn drops<'a, S: Stage + 'static>(
    running: &'a Running<S>,
    others: impl Iterator<Item = (&'a str, PortStats)>,
) -> Vec<Value> {
    let mut all: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (name, _, stats) in running.lcores() {
        for (reason, count) in stats.drops() {
            *all.entry((reason, name.into())).or_default() += count;
        }
    }
    let ports = running.ports().iter();
    let ports = ports.map(|open| (open.name.as_str(), open.port.stats()));
    for (name, stats) in ports.chain(others) {
        for (direction, drops) in [("rx", &stats.rx_drops), ("tx", &stats.tx_drops)] {
            for (reason, count) in drops.iter().filter(|(_, count)| *count > 0) {
                let key = (format!("{direction}_{reason}"), name.into());
                *all.entry(key).or_default() += count;
            }
        }
    }
    all.into_iter()
        .map(|((reason, at), packets)| json!({ "reason": reason, "at": at, "packets": packets }))
        .collect()
}

/// Leaves those rows of drops that count something, most first, and says how many packets that are.
pub fn most_first(drops: &mut Vec<Value>) -> String {
    let packets = |row: &Value| row["packets"].as_u64().unwrap_or(0);
    drops.retain(|row| packets(row) > 0);
    // And then as they come: by reason and place.
    drops.sort_by_key(|row| std::cmp::Reverse(packets(row)));
    let total: u64 = drops.iter().map(packets).sum();
    format!("{total} packets dropped")
}
