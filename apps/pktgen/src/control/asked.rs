//! Answers `linerate ctl` and `linerate capture`, as every appliance does.

use linerate_appliance::control::answers::Answers;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::reload::Outcomes;
use linerate_appliance::control::show::{self, Drops, Found, Rows, Table};
use linerate_appliance::control::taps::Taps;
use linerate_appliance::control::{ledger, metrics};
use serde_json::{Value, json};

use super::owner::Control;
use super::protocol::Problem;
use crate::{LcoreView, PortView, Snapshot, StreamView};

/// All tables.
const TABLES: [&Table; 4] = [&Table::PORTS, &Table::LCORES, &Table::DROPS, &Table::LEDGER];

impl Answers for Control {
    fn taps(&mut self) -> Result<Taps, Problem> {
        Ok(self.session()?.taps())
    }

    fn table(&mut self, what: &str, params: &Value) -> Result<Rows, Problem> {
        let table = Table::find(&TABLES, what)?;
        let mut found = Found::default();
        match table.what {
            "ports" => found.rows = self.snapshot()?.ports.iter().map(port).collect(),
            "lcores" => found.rows = lcores(&self.snapshot()?),
            "drops" => {
                let mut drops = Drops::default();
                for port in &self.snapshot()?.ports {
                    drops.add_port(&port.name, &port.rx_drops, &port.tx_drops);
                }
                found.rows = drops.rows();
            }
            _ => {
                let (rows, verdict) = ledger::rows(&self.session()?.balance());
                (found.rows, found.notes) = (rows, vec![verdict]);
            }
        }
        Ok(found.asked(table, None, &show::filter(params), params))
    }

    fn clear(&mut self) -> Result<Value, Problem> {
        self.session()?.clear();
        Ok(json!({ "text": "all counters begin at 0 again, those of streams in the metrics, too" }))
    }

    fn metrics(&mut self, _reloads: Option<&Outcomes>) -> Result<String, Problem> {
        let mut page = Exposition::default();
        metrics::instance(self.began, &mut page);
        metrics::ports(self.session()?.open_ports(), &mut page);
        streams(&self.snapshot()?, &mut page);
        Ok(page.end())
    }

    fn no_reload() -> Problem {
        Problem::new(
            "a session reads its file once",
            "with --listen, `linerate pktgen --connect -c \"load FILE\"` takes another",
        )
    }

    fn stop(&mut self) {
        self.quitting = true;
    }
}

fn port(port: &PortView) -> Value {
    let link = match port.link_up {
        true => "up",
        false => port.link_reason.as_str(),
    };
    let drops = |drops: &[(String, u64)]| -> Value {
        let counts = drops
            .iter()
            .map(|(reason, count)| (reason.clone(), (*count).into()));
        Value::Object(counts.collect())
    };
    json!({
        "port": port.number,
        "name": port.name,
        "kind": port.kind,
        "link": link,
        "rx_packets": port.rx.packets,
        "rx_bytes": port.rx.bytes,
        "rx_pps": port.rx.pps,
        "rx_gbps": port.rx.l2_bps / 1e9,
        "tx_packets": port.tx.packets,
        "tx_bytes": port.tx.bytes,
        "tx_pps": port.tx.pps,
        "tx_gbps": port.tx.l2_bps / 1e9,
        "rx_drops": drops(&port.rx_drops),
        "tx_drops": drops(&port.tx_drops),
    })
}

fn lcores(snapshot: &Snapshot) -> Vec<Value> {
    // Of each lcore's queues.
    let packets = |lcore: &str| -> u64 {
        let queues = snapshot.ports.iter().flat_map(|port| &port.queues);
        let mine = queues.filter(|queue| queue.lcore == lcore);
        mine.map(|queue| queue.packets).sum()
    };
    let row = |lcore: &LcoreView| {
        let mut row = show::value(lcore);
        row["role"] = "io".into();
        row["packets"] = packets(&lcore.name).into();
        row["does"] = lcore.work.clone().into();
        row
    };
    snapshot.lcores.iter().map(row).collect()
}

/// A family of metrics: name, help, and its value for a stream.
type Family = (&'static str, &'static str, fn(&StreamView) -> u64);

/// Metrics of the frames of each stream.
fn streams(snapshot: &Snapshot, page: &mut Exposition) {
    let families: [Family; 6] = [
        ("stream_sent_frames", "Test frames sent.", |stream| {
            stream.tally.sent
        }),
        (
            "stream_received_frames",
            "Test frames that came, duplicates too.",
            |stream| stream.tally.received,
        ),
        (
            "stream_lost_frames",
            "Test frames that did not come; while some are under way, those that others overtook.",
            |stream| stream.tally.lost,
        ),
        (
            "stream_reordered_frames",
            "Test frames that came after a later one.",
            |stream| stream.tally.reordered,
        ),
        (
            "stream_duplicate_frames",
            "Test frames that came again.",
            |stream| stream.tally.duplicates,
        ),
        (
            "stream_unsent_frames",
            "Frames that were due and not sent.",
            |stream| stream.unsent,
        ),
    ];
    for (family, help, count) in families {
        // Gauges: lost frames may still come, and a `clear` resets all.
        page.family(family, FamilyKind::Gauge, "frames", help);
        for stream in &snapshot.streams {
            let (id, port) = (stream.id.to_string(), stream.port.to_string());
            let labels = [
                ("stream", id.as_str()),
                ("name", stream.name.as_str()),
                ("port", port.as_str()),
            ];
            page.sample(&labels, count(stream));
        }
    }
}
