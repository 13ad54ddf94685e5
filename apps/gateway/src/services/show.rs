//! What services show: `show services`, `show talkers`, metrics, and lines of the log.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::AtWork;
use serde_json::json;

use super::statistics::{Statistics, Talker};
use super::{Counts, Event, Log, Plan};
use crate::path::on_path;

/// Services that rules apply, in the order in which they see packets.
pub(crate) const SERVICES: Table = Table {
    what: "services",
    names: &["service"],
    counters: &["packets", "dropped", "done", "denied"],
};
/// Hosts whose flows carry the most.
pub(crate) const TALKERS: Table = Table {
    what: "talkers",
    names: &["host"],
    counters: &[],
};

/// What all workers have counted, by service, and packets of denied flows.
fn sums(plan: &Plan, at_work: &AtWork<'_>) -> (Vec<Counts>, u64) {
    let mut sums = vec![Counts::default(); plan.specs.len()];
    let mut denied = 0;
    for worker in at_work.running.handles() {
        let of = on_path(worker, |path, _| {
            let services = path.flows().services();
            let counts: Vec<Counts> = services.counts().collect();
            (counts, services.denied_packets())
        });
        let Some((counts, packets)) = of else {
            continue;
        };
        denied += packets;
        for (sum, more) in sums.iter_mut().zip(counts) {
            sum.packets += more.packets;
            sum.dropped += more.dropped;
            sum.done += more.done;
            sum.denied += more.denied;
        }
    }
    (sums, denied)
}

/// Adds the services of the name in the filter, or all.
pub(crate) fn services(plan: &Plan, filter: &str, at_work: &AtWork<'_>, rows: &mut Rows) {
    let (sums, _) = sums(plan, at_work);
    for (spec, sum) in plan.specs.iter().zip(sums) {
        if filter.is_empty() || spec.name == filter || spec.kind.name == filter {
            rows.add_with(|| {
                json!({
                    "service": spec.name,
                    "packets": sum.packets,
                    "dropped": sum.dropped,
                    "done": sum.done,
                    "denied": sum.denied,
                    "does": spec.settings.text(),
                    "reads": if spec.kind.reads_payload { "payload" } else { "header" },
                })
            });
        }
    }
}

/// Adds the hosts that talk most, those first that do in this window.
///
/// # Errors
/// No rule applies `statistics`.
pub(crate) fn talkers(
    plan: &Plan,
    filter: &str,
    at_work: &AtWork<'_>,
    rows: &mut Rows,
) -> Result<(), Problem> {
    if !plan.specs.iter().any(|spec| spec.name == "statistics") {
        let fix = "say apply = [\"statistics\"] in rules or a [[policy]]";
        return Err(Problem::new("no rule applies the service statistics", fix));
    }
    let clock = at_work.running.clock();
    let mut all: HashMap<IpAddr, [u64; 2]> = HashMap::new();
    for worker in at_work.running.handles() {
        let of = on_path(worker, move |path, _| {
            let statistics = path.flows().services().find::<Statistics>()?;
            Some(statistics.talkers(clock.ns(clock.now())))
        });
        let windows: [Vec<Talker>; 2] = of.flatten().unwrap_or_default();
        for (at, window) in windows.into_iter().enumerate() {
            for (host, bytes) in window {
                all.entry(host).or_default()[at] += bytes;
            }
        }
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(host, bytes)| (std::cmp::Reverse(*bytes), *host));
    for (host, [bytes, last]) in all {
        let host = host.to_string();
        if filter.is_empty() || host == filter {
            rows.add_with(|| json!({ "host": host, "bytes": bytes, "last_bytes": last }));
        }
    }
    Ok(())
}

/// A metric of each service: its name, what it is, and where it is counted.
type Family = (&'static str, &'static str, fn(&Counts) -> u64);

/// Adds what services have done to the metrics page.
pub(crate) fn metrics(plan: &Plan, at_work: &AtWork<'_>, page: &mut Exposition) {
    if plan.specs.is_empty() {
        return;
    }
    let (sums, denied) = sums(plan, at_work);
    let families: [Family; 4] = [
        ("service_packets", "Packets that a service saw.", |sum| {
            sum.packets
        }),
        (
            "service_dropped_packets",
            "Packets that a service dropped.",
            |sum| sum.dropped,
        ),
        (
            "service_done",
            "Directions of flows that a service was done with.",
            |sum| sum.done,
        ),
        (
            "service_denied_flows",
            "Flows that a service denied.",
            |sum| sum.denied,
        ),
    ];
    for (family, help, of) in families {
        page.family(family, FamilyKind::Counter, "", help);
        for (spec, sum) in plan.specs.iter().zip(&sums) {
            page.sample(&[("service", spec.name.as_str())], of(sum));
        }
    }
    let help = "Packets of flows that a service had denied before.";
    page.family("service_denied_packets", FamilyKind::Counter, "", help);
    page.sample(&[], denied);
}

/// Adds lines about what services of all workers tell of; returns how much more there was.
pub(crate) fn logged(plan: &Plan, at_work: &AtWork<'_>, lines: &mut Vec<String>) -> u64 {
    if plan.specs.is_empty() {
        return 0;
    }
    let mut more = 0;
    for worker in at_work.running.handles() {
        let taken = on_path(worker, |path, _| path.flows().services().take_log());
        let log: Log = taken.unwrap_or_default();
        more += log.more;
        lines.extend(log.iter().map(|event| line(plan, event)));
    }
    more
}

/// `service match:worms: pattern "abc" in 10.0.0.1:4000 > 192.0.2.1:80 tcp`
fn line(plan: &Plan, event: &Event) -> String {
    let spec = plan.specs.get(event.service);
    let name = spec.map_or("?", |spec| &spec.name);
    let what = match (event.host, spec) {
        (Some(host), _) => format!("host {host} denied"),
        (None, Some(spec)) => spec.settings.event(event.what),
        (None, None) => event.what.to_string(),
    };
    let flow = event.tuple.map(|tuple| {
        let protocol = linerate_control::config::words::protocol_name(tuple.protocol);
        format!("{} > {} {protocol}", tuple.src, tuple.dst)
    });
    let flow = flow.unwrap_or_else(|| "a flow that has ended".into());
    format!("service {name}: {what} in {flow}")
}
