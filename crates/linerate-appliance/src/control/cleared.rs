//! Counters that somebody has cleared: what they were then is taken off whatever is shown.
//!
//! Workers go on counting, and so do the metrics; nobody but the worker ever writes a counter.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Map, Value};

use super::show::Table;

/// What all counters were when they were cleared.
pub struct Cleared {
    at: Instant,
    /// By table, then by row.
    tables: Vec<(&'static Table, BTreeMap<String, Value>)>,
}

impl Cleared {
    /// Clears those of `tables` that count something: `rows` gives all rows of one as they are.
    pub fn new(
        now: Instant,
        tables: &[&'static Table],
        mut rows: impl FnMut(&Table) -> Vec<Value>,
    ) -> Self {
        let counted = tables.iter().filter(|table| !table.counters.is_empty());
        let tables = counted.map(|table| (*table, by_key(table, rows(table))));
        Self {
            at: now,
            tables: tables.collect(),
        }
    }

    /// Takes what was off what is, and says since when that is counted; nothing of a table that
    /// counts nothing.
    pub(super) fn subtract(&self, table: &Table, rows: &mut [Value]) -> Option<String> {
        let (_, before) = self.tables.iter().find(|(known, _)| *known == table)?;
        for row in rows {
            let known = before.get(&table.key(row));
            if let (Some(row), Some(known)) = (row.as_object_mut(), known) {
                for counter in table.counters {
                    take_off(row, counter, &known[*counter]);
                }
            }
        }
        let seconds = self.at.elapsed().as_secs_f64();
        let note = format!("counted since they were cleared, {seconds:.1} s ago");
        Some(note)
    }

    /// Forgets what has begun to count anew since: `rows` gives all rows of a table as they are. To
    /// be called when a counter may have been replaced, before it has counted much.
    pub fn retain(&mut self, mut rows: impl FnMut(&Table) -> Vec<Value>) {
        for (table, known) in &mut self.tables {
            let now = by_key(table, rows(table));
            known.retain(|key, row| {
                let counters = table.counters.iter();
                now.get(key)
                    .is_some_and(|now| counters.clone().all(|at| sum(&now[*at]) >= sum(&row[*at])))
            });
        }
    }
}

fn by_key(table: &Table, rows: Vec<Value>) -> BTreeMap<String, Value> {
    let rows = rows.into_iter();
    rows.map(|row| (table.key(&row), row)).collect()
}

/// A number, or all numbers of an object.
fn sum(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields.values().map(sum).sum(),
        number => number.as_u64().unwrap_or(0),
    }
}

fn take_off(row: &mut Map<String, Value>, key: &str, before: &Value) {
    match (row.get_mut(key), before) {
        (Some(Value::Object(now)), Value::Object(before)) => {
            let keys: Vec<&String> = before.keys().collect();
            for key in keys {
                take_off(now, key, &before[key]);
            }
            now.retain(|_, value| value.as_u64() != Some(0));
        }
        (Some(now), before) => {
            if let (Some(count), Some(before)) = (now.as_u64(), before.as_u64()) {
                // One that has begun anew says all that it has.
                *now = count.checked_sub(before).unwrap_or(count).into();
            }
        }
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLES: [&Table; 3] = [&Table::PORTS, &Table::DROPS, &Table::LEDGER];

    fn rows(table: &Table, packets: u64, full: u64) -> Vec<Value> {
        match table.what {
            "ports" => vec![json!({ "name": "wan", "rx_packets": packets, "rx_pps": 5.0,
                "tx_drops": { "full": full, "link_down": packets } })],
            "drops" => vec![json!({ "reason": "no_route", "at": "io0", "packets": packets })],
            other => panic!("{other} has no counters"),
        }
    }

    fn cleared() -> Cleared {
        Cleared::new(Instant::now(), &TABLES, |table| rows(table, 10, 3))
    }

    #[test]
    fn what_was_is_taken_off_of_counters_alone() {
        let mut now = rows(&Table::PORTS, 14, 3);
        now.push(json!({ "name": "lan", "rx_packets": 2 }));
        let said = cleared().subtract(&Table::PORTS, &mut now);
        assert!(said.is_some_and(|said| said.contains("since they were cleared")));
        assert_eq!(
            now,
            [
                json!({ "name": "wan", "rx_packets": 4, "rx_pps": 5.0,
                    "tx_drops": { "link_down": 4 } }),
                json!({ "name": "lan", "rx_packets": 2 }),
            ]
        );
        assert_eq!(cleared().subtract(&Table::LEDGER, &mut now), None);
    }

    #[test]
    fn what_begins_anew_is_shown_as_it_is() {
        let mut cleared = cleared();
        cleared.retain(|table| rows(table, 1, 0));
        let mut now = rows(&Table::PORTS, 25, 3);
        cleared.subtract(&Table::PORTS, &mut now);
        assert_eq!(now, rows(&Table::PORTS, 25, 3));
    }
}
