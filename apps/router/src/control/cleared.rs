//! Counters that somebody has cleared: what they were then is taken off whatever is shown.
//!
//! Workers go on counting, and so do the metrics; nobody but the worker ever writes a counter.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Map, Value};

/// A table whose rows count something.
pub(super) struct Counted {
    pub(super) what: &'static str,
    /// What names a row.
    pub(super) names: &'static [&'static str],
    /// What of a row counts: numbers, or objects of numbers.
    counters: &'static [&'static str],
}

/// All such tables.
pub(super) const COUNTED: [Counted; 7] = [
    Counted {
        what: "summary",
        names: &["what"],
        counters: &["packets"],
    },
    Counted {
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
            "rx_drops",
            "tx_drops",
        ],
    },
    Counted {
        what: "interfaces",
        names: &["name"],
        counters: &[
            "in_packets",
            "in_bytes",
            "out_packets",
            "out_bytes",
            "to_host_packets",
            "to_host_drops",
            "from_host_packets",
        ],
    },
    Counted {
        what: "drops",
        names: &["reason", "at"],
        counters: &["packets"],
    },
    Counted {
        what: "lcores",
        names: &["name"],
        counters: &["packets", "rounds", "sleeps", "drops"],
    },
    Counted {
        what: "path",
        names: &["stage"],
        counters: &["packets"],
    },
    Counted {
        what: "acls",
        names: &["acl", "rule"],
        counters: &["packets"],
    },
];

impl Counted {
    fn key(&self, row: &Value) -> String {
        let names = self.names.iter().filter_map(|name| row[*name].as_str());
        names.collect::<Vec<_>>().join("\n")
    }
}

/// What all counters were when they were cleared.
pub(super) struct Cleared {
    pub(super) at: Instant,
    /// By table, then by row.
    rows: BTreeMap<&'static str, BTreeMap<String, Value>>,
}

impl Cleared {
    /// Clears: `rows` gives all rows of a table as they are.
    pub(super) fn new(now: Instant, mut rows: impl FnMut(&Counted) -> Vec<Value>) -> Self {
        let tables = COUNTED.iter().map(|table| {
            let all = rows(table).into_iter();
            (table.what, all.map(|row| (table.key(&row), row)).collect())
        });
        Self {
            at: now,
            rows: tables.collect(),
        }
    }

    /// Takes what was off what is.
    pub(super) fn subtract(&self, table: &Counted, rows: &mut [Value]) {
        let Some(before) = self.rows.get(table.what) else {
            return;
        };
        for row in rows {
            let known = before.get(&table.key(row));
            if let (Some(row), Some(known)) = (row.as_object_mut(), known) {
                for counter in table.counters {
                    take_off(row, counter, &known[*counter]);
                }
            }
        }
    }

    /// Forgets what has begun to count anew since: `rows` gives all rows of a table as they are. To
    /// be called when a counter may have been replaced, before it has counted much.
    pub(super) fn retain(&mut self, mut rows: impl FnMut(&Counted) -> Vec<Value>) {
        for table in &COUNTED {
            let now: BTreeMap<String, Value> = {
                let all = rows(table).into_iter();
                all.map(|row| (table.key(&row), row)).collect()
            };
            if let Some(known) = self.rows.get_mut(table.what) {
                let went_on = |row: &Value, key: &String| {
                    let now = now.get(key);
                    let counters = table.counters.iter();
                    now.is_some_and(|now| {
                        counters.clone().all(|at| sum(&now[*at]) >= sum(&row[*at]))
                    })
                };
                known.retain(|key, row| went_on(row, key));
            }
        }
    }
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

    fn rows(table: &Counted, packets: u64, full: u64) -> Vec<Value> {
        match table.what {
            "ports" => vec![json!({ "name": "wan", "rx_packets": packets, "rx_pps": 5.0,
                "tx_drops": { "full": full, "link_down": packets } })],
            "drops" => vec![json!({ "reason": "no_route", "at": "io0", "packets": packets })],
            _ => Vec::new(),
        }
    }

    fn ports() -> &'static Counted {
        let found = COUNTED.iter().find(|table| table.what == "ports");
        found.expect("there is such a table")
    }

    #[test]
    fn what_was_is_taken_off_of_counters_alone() {
        let cleared = Cleared::new(Instant::now(), |table| rows(table, 10, 3));
        let mut now = rows(ports(), 14, 3);
        now.push(json!({ "name": "lan", "rx_packets": 2 }));
        cleared.subtract(ports(), &mut now);
        assert_eq!(
            now,
            [
                json!({ "name": "wan", "rx_packets": 4, "rx_pps": 5.0,
                    "tx_drops": { "link_down": 4 } }),
                json!({ "name": "lan", "rx_packets": 2 }),
            ]
        );
    }

    #[test]
    fn what_begins_anew_is_shown_as_it_is() {
        let mut cleared = Cleared::new(Instant::now(), |table| rows(table, 10, 3));
        cleared.retain(|table| rows(table, 1, 0));
        let mut now = rows(ports(), 25, 3);
        cleared.subtract(ports(), &mut now);
        assert_eq!(now, rows(ports(), 25, 3));
    }
}
