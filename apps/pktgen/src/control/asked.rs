//! Answers `linerate ctl` and `linerate capture`, as every appliance does.

use std::time::Instant;

use linerate_appliance::control::answers::Answers;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{self, Found};
use linerate_appliance::control::taps::Taps;
use linerate_appliance::control::{ledger, metrics};
use linerate_appliance::nearest::offer;
use serde_json::{Value, json};

use super::owner::{Control, ControlHandle};
use super::protocol::Problem;
use crate::{LcoreView, PortView, Snapshot, StreamView};

/// All tables.
const TABLES: [&str; 4] = ["ports", "lcores", "drops", "ledger"];

/// Asks the session's thread.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) control: ControlHandle,
    /// When the session began.
    pub(super) began: Instant,
}

impl Asked {
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Control) -> Result<R, Problem> + Send + 'static,
    ) -> Result<R, Problem> {
        self.control.call(work)?
    }
}

impl Answers for Asked {
    fn taps(&self) -> Result<Taps, Problem> {
        self.call(|control| Ok(control.session()?.taps()))
    }

    fn table(&self, what: &str, params: &Value) -> Result<Found, Problem> {
        let snapshot = || self.call(Control::snapshot);
        let filter = show::filter(params);
        let found = match what {
            "ports" => Found {
                rows: snapshot()?.ports.iter().map(port).collect(),
                names: &["name"],
                ..Found::default()
            },
            "lcores" => Found {
                rows: lcores(&snapshot()?),
                names: &["name"],
                ..Found::default()
            },
            "drops" => {
                let mut rows = drops(&snapshot()?);
                let summary = show::most_first(&mut rows);
                Found {
                    rows,
                    summary: Some(summary),
                    names: &["reason", "at"],
                    ..Found::default()
                }
            }
            "ledger" => {
                let balance = self.call(|control| Ok(control.session()?.balance()))?;
                let (rows, verdict) = ledger::rows(&balance);
                Found {
                    rows,
                    summary: Some(verdict),
                    names: &["holder"],
                    ..Found::default()
                }
            }
            other => {
                let problem = format!("there is no table `{other}` here");
                return Err(Problem::new(problem, offer(other, TABLES)));
            }
        };
        Ok(Found { filter, ..found })
    }

    fn metrics(&self) -> Result<String, Problem> {
        let began = self.began;
        self.call(move |control| {
            let mut page = Exposition::default();
            metrics::instance(began, &mut page);
            metrics::ports(control.session()?.open_ports(), &mut page);
            streams(&control.snapshot()?, &mut page);
            Ok(page.end())
        })
    }

    fn reload(&self) -> Result<Value, Problem> {
        Err(Problem::new(
            "a session reads its file once",
            "with --listen, `linerate pktgen --connect -c \"load FILE\"` takes another",
        ))
    }

    fn stop(&self) -> Result<(), Problem> {
        self.control.call(|control| control.quitting = true)
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

fn drops(snapshot: &Snapshot) -> Vec<Value> {
    let mut rows = Vec::new();
    for port in &snapshot.ports {
        for (direction, drops) in [("rx", &port.rx_drops), ("tx", &port.tx_drops)] {
            for (reason, packets) in drops {
                let reason = format!("{direction}_{reason}");
                rows.push(json!({ "reason": reason, "at": port.name, "packets": packets }));
            }
        }
    }
    rows
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
