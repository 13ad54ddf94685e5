//! Tables of an appliance's answers.

use std::fmt::Write;

use serde_json::Value;

use super::What;
use crate::output::{Cell, Column, Table, Tone};

/// Key of a row, heading, and whether it is a number.
type Shown = (&'static str, &'static str, bool);

const SUMMARY: &[Shown] = &[
    ("side", "side", false),
    ("what", "what", false),
    ("packets", "packets", true),
    ("is", "is", false),
];
const PORTS: &[Shown] = &[
    ("port", "port", true),
    ("name", "name", false),
    ("kind", "kind", false),
    ("link", "link", false),
    ("rx_packets", "rx packets", true),
    ("rx_pps", "rx pps", true),
    ("rx_gbps", "rx Gb/s", true),
    ("tx_packets", "tx packets", true),
    ("tx_pps", "tx pps", true),
    ("tx_gbps", "tx Gb/s", true),
    ("rx_drops", "rx drops", false),
    ("tx_drops", "tx drops", false),
    ("rings", "rings shared", false),
];
const INTERFACES: &[Shown] = &[
    ("name", "interface", false),
    ("port", "port", false),
    ("vlan", "vlan", true),
    ("vrf", "vrf", false),
    ("state", "state", false),
    ("mac", "mac", false),
    ("mtu", "mtu", true),
    ("addresses", "addresses", false),
    ("host_interface", "host interface", false),
    ("in_packets", "in packets", true),
    ("out_packets", "out packets", true),
    ("to_host_packets", "to host", true),
    ("from_host_packets", "from host", true),
];
const ROUTES: &[Shown] = &[
    ("prefix", "prefix", false),
    ("vrf", "vrf", false),
    ("to", "to", false),
    ("source", "source", false),
    ("protocol", "protocol", false),
    ("distance", "distance", true),
    ("state", "state", false),
];
const NEIGHBOURS: &[Shown] = &[
    ("address", "address", false),
    ("mac", "mac", false),
    ("interface", "interface", false),
    ("state", "state", false),
];
const DROPS: &[Shown] = &[
    ("reason", "reason", false),
    ("packets", "packets", true),
    ("at", "at", false),
];
const LCORES: &[Shown] = &[
    ("name", "lcore", false),
    ("role", "role", false),
    ("cpu", "cpu", true),
    ("busy_share", "busy", true),
    ("packets", "packets", true),
    ("sleeps", "sleeps", true),
    ("does", "does", false),
];

const PATH: &[Shown] = &[
    ("stage", "stage", false),
    ("packets", "packets", true),
    ("cycles", "cycles each", true),
    ("unaccounted", "unaccounted", true),
];
const LEDGER: &[Shown] = &[
    ("holder", "holder", false),
    ("received", "received", true),
    ("sent", "sent", true),
    ("dropped", "dropped", true),
    ("held", "held", true),
    ("lost", "lost", true),
];
const ACLS: &[Shown] = &[
    ("acl", "acl", false),
    ("rule", "rule", false),
    ("action", "action", false),
    ("packets", "packets", true),
    ("matches", "matches", false),
];

const FLOWS: &[Shown] = &[
    ("protocol", "protocol", false),
    ("source", "source", false),
    ("destination", "destination", false),
    ("becomes_source", "becomes", false),
    ("becomes_destination", "to", false),
    ("state", "state", false),
    ("host", "host", false),
    ("vrf", "vrf", false),
    ("age_s", "age s", true),
    ("idle_s", "idle s", true),
    ("packets", "packets", true),
    ("packets_back", "back", true),
];
const NAT: &[Shown] = &[
    ("pool", "pool", false),
    ("addresses", "addresses", true),
    ("tcp_used", "tcp used", true),
    ("tcp_free", "tcp free", true),
    ("udp_used", "udp used", true),
    ("udp_free", "udp free", true),
    ("icmp_used", "icmp used", true),
    ("icmp_free", "icmp free", true),
    ("mappings", "mappings", true),
    ("subscribers", "subscribers", true),
    ("blocks", "blocks", true),
    ("refused", "refused", true),
];

const MAPPINGS: &[Shown] = &[
    ("protocol", "protocol", false),
    ("inside", "inside", false),
    ("outside", "outside", false),
    ("pool", "pool", false),
    ("zone", "zone", false),
    ("flows", "flows", true),
    ("worker", "worker", true),
];

const SUBSCRIBERS: &[Shown] = &[
    ("inside", "inside", false),
    ("outside", "outside", false),
    ("pool", "pool", false),
    ("zone", "zone", false),
    ("ports", "ports", true),
    ("blocks", "blocks", false),
    ("worker", "worker", true),
];

const POLICIES: &[Shown] = &[
    ("policy", "policy", false),
    ("rule", "rule", false),
    ("name", "name", false),
    ("action", "action", false),
    ("decided", "decided", true),
    ("matches", "matches", false),
];

const BACKENDS: &[Shown] = &[
    ("balancer", "balancer", false),
    ("backend", "backend", false),
    ("form", "form", false),
    ("state", "state", false),
    ("weight", "weight", true),
    ("share_percent", "share %", true),
    ("flows", "flows", true),
    ("flows_begun", "begun", true),
    ("check", "check", false),
    ("checked_ms_ago", "ms ago", true),
    ("why", "why", false),
];

const SERVICES: &[Shown] = &[
    ("service", "service", false),
    ("packets", "packets", true),
    ("dropped", "dropped", true),
    ("done", "done", true),
    ("denied", "denied", true),
    ("does", "does", false),
];

const TALKERS: &[Shown] = &[
    ("host", "host", false),
    ("bytes", "bytes", true),
    ("last_bytes", "last window", true),
];

const WORKERS: &[Shown] = &[
    ("worker", "worker", true),
    ("name", "lcore", false),
    ("buckets", "buckets", true),
    ("flows", "flows", true),
    ("half_open", "half-open", true),
    ("packets", "packets", true),
    ("handed", "handed over", true),
    ("by_pointer", "pointer", true),
    ("by_copy", "copy", true),
    ("busy_share", "busy", true),
    ("load_share", "load", true),
    ("note", "", false),
];

const CONNECTIONS: &[Shown] = &[
    ("lcore", "lcore", false),
    ("local", "local", false),
    ("remote", "remote", false),
    ("state", "state", false),
    ("congestion", "congestion", false),
    ("cwnd_bytes", "cwnd", true),
    ("mss", "mss", true),
    ("srtt_us", "srtt us", true),
    ("rto_ms", "rto ms", true),
    ("unacked_bytes", "unacked", true),
    ("unsent_bytes", "unsent", true),
    ("readable_bytes", "readable", true),
];

const LISTENERS: &[Shown] = &[
    ("lcore", "lcore", false),
    ("listens", "listens", false),
    ("waiting", "waiting", true),
    ("half_open", "half-open", true),
    ("refused", "refused", true),
];

const TCP: &[Shown] = &[("what", "what", false), ("value", "value", true)];

const APPS: &[Shown] = &[
    ("lcore", "lcore", false),
    ("app", "app", false),
    ("counts", "counts", false),
    ("value", "value", true),
];

const STEERING: &[Shown] = &[
    ("lcore", "lcore", false),
    ("handed", "handed", true),
    ("misdirected", "misdirected", true),
    ("followed", "followed", true),
    ("no_slot", "no slot", true),
    ("unknown", "unknown", true),
    ("whole", "whole", true),
];

/// The rows of an answer as a table, and what was left out.
pub(super) fn text(what: What, answer: &Value, colour: bool) -> String {
    let shown = match what {
        What::Summary => SUMMARY,
        What::Ports => PORTS,
        What::Interfaces => INTERFACES,
        What::Routes => ROUTES,
        What::Neighbours => NEIGHBOURS,
        What::Drops => DROPS,
        What::Lcores => LCORES,
        What::Path => PATH,
        What::Ledger => LEDGER,
        What::Acls => ACLS,
        What::Flows => FLOWS,
        What::Policies => POLICIES,
        What::Workers => WORKERS,
        What::Backends => BACKENDS,
        What::Nat => NAT,
        What::Mappings => MAPPINGS,
        What::Subscribers => SUBSCRIBERS,
        What::Services => SERVICES,
        What::Talkers => TALKERS,
        What::Connections => CONNECTIONS,
        What::Listeners => LISTENERS,
        What::Tcp => TCP,
        What::Apps => APPS,
        What::Steering => STEERING,
    };
    let mut table = Table::new(shown.iter().map(|&(_, heading, number)| match number {
        true => Column::number(heading),
        false => Column::text(heading),
    }));
    let rows = answer.get("rows").and_then(Value::as_array);
    for row in rows.into_iter().flatten() {
        table.row(shown.iter().map(|&(key, _, _)| {
            let text = cell(key, row.get(key).unwrap_or(&Value::Null));
            let tone = tone(key, &text);
            Cell::new(text).tone(tone)
        }));
    }
    let mut text = table.render(colour);
    if let Some(more) = answer
        .get("more")
        .and_then(Value::as_u64)
        .filter(|&more| more > 0)
    {
        let _ = writeln!(
            text,
            "{more} more; name what you look for, or raise --limit"
        );
    }
    if let Some(summary) = answer.get("summary").and_then(Value::as_str) {
        let _ = writeln!(text, "{summary}");
    }
    text
}

fn tone(key: &str, text: &str) -> Tone {
    match (key, text) {
        ("link" | "state", "up" | "active" | "reachable" | "permanent") => Tone::Good,
        ("link" | "state", text) if text.starts_with("down") || text == "unreachable" => Tone::Bad,
        ("rx_drops" | "tx_drops", _) => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) if key == "rings" => {
            let rings: Vec<String> = items.iter().map(ring).collect();
            rings.join(", ")
        }
        Value::Array(items) => items
            .iter()
            .map(|item| cell(key, item))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Object(entries) => entries
            .iter()
            .map(|(name, value)| format!("{name} {}", cell(key, value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Number(number) => match (key, number.as_f64()) {
            ("busy_share" | "load_share", Some(share)) => format!("{:.1} %", share * 100.0),
            ("rx_gbps" | "tx_gbps", Some(rate)) => format!("{rate:.3}"),
            ("cycles", Some(cycles)) => format!("{cycles:.1}"),
            ("rx_pps" | "tx_pps", Some(rate)) => format!("{rate:.0}"),
            _ => number.to_string(),
        },
        Value::Bool(value) => value.to_string(),
    }
}

/// How full a ring is: `rx 0: 3 of 1024`.
fn ring(ring: &Value) -> String {
    let direction = match ring["direction"].as_str() {
        Some("receive") => "rx",
        _ => "tx",
    };
    let number = |key: &str| ring[key].as_u64().unwrap_or(0);
    let (queue, waiting, size) = (number("queue"), number("waiting"), number("size"));
    format!("{direction} {queue}: {waiting} of {size}")
}

/// One traced packet: a line for each stage that it went through.
pub(super) fn trace(packet: &Value) -> String {
    let text = |key: &str| packet.get(key).and_then(Value::as_str).unwrap_or("");
    let mut out = format!("{}\n", text("packet"));
    let steps = packet.get("steps").and_then(Value::as_array);
    for step in steps.into_iter().flatten() {
        let _ = writeln!(out, "  {}", step.as_str().unwrap_or(""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_become_lines_and_what_was_left_out_is_said() {
        let answer = json!({
            "rows": [
                {"prefix": "10.0.0.0/8", "vrf": "default", "to": ["192.0.2.1 on wan", "x2"],
                 "source": "static", "distance": 1, "state": "active"},
                {"prefix": "::/0", "vrf": "blue", "to": [], "source": "fpm",
                 "protocol": "bgp", "distance": 20},
            ],
            "more": 3,
        });
        assert_eq!(
            text(What::Routes, &answer, false),
            "prefix      vrf      to                   source  protocol  distance  state\n\
             10.0.0.0/8  default  192.0.2.1 on wan x2  static  -                1  active\n\
             ::/0        blue                          fpm     bgp             20  -\n\
             3 more; name what you look for, or raise --limit\n"
        );
    }

    #[test]
    fn rates_and_shares_are_rounded() {
        let answer = json!({"rows": [{"name": "io0", "role": "io", "cpu": 1, "busy_share": 0.1234,
            "packets": 7, "sleeps": 0, "does": "forwards"}]});
        let text = text(What::Lcores, &answer, false);
        assert!(text.contains("12.3 %"), "{text}");
    }

    #[test]
    fn rings_that_are_shared_say_how_full_they_are() {
        let ring = |direction, waiting| {
            json!({"direction": direction, "queue": 0,
            "waiting": waiting, "size": 1024})
        };
        let rings = [ring("receive", 3), ring("transmit", 0)];
        let answer = json!({"rows": [{"name": "a", "rings": rings}, {"name": "b", "rings": []}]});
        let text = text(What::Ports, &answer, false);
        assert!(
            text.contains("rx 0: 3 of 1024, tx 0: 0 of 1024\n"),
            "{text}"
        );
    }
}
