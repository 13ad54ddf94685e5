//! Who has which flows: `show workers`, and the same on the metrics page.

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::AtWork;
use serde_json::json;

use crate::dispatch::across::Counts;
use crate::dispatch::bucket::Bucket;
use crate::path::on_path;
use crate::stages::flows::Shared;
use linerate_dispatch::NOBODY;

pub(crate) const WORKERS: Table = Table {
    what: "workers",
    names: &["worker"],
    counters: &[
        "packets",
        "handed",
        "by_pointer",
        "by_copy",
        "copies_refused",
    ],
};

/// The share of a worker's load from which one bucket is called the load.
const ELEPHANT: f64 = 0.8;

/// What a worker says of itself.
struct Said {
    number: usize,
    name: String,
    /// Whether others hand packets to it, or it keeps its own.
    owns: bool,
    buckets: Vec<Bucket>,
    flows: usize,
    half_open: usize,
    packets: u64,
    handed: u64,
    /// Of these: to workers on other NUMA nodes, where there are any.
    across: Option<Counts>,
    busy_share: f64,
}

fn all(at_work: &AtWork<'_>) -> Vec<Said> {
    let workers = at_work.running.handles().zip(at_work.running.lcores());
    let said = workers
        .enumerate()
        .filter_map(|(number, (handle, (name, _, stats)))| {
            let asked = on_path(handle, |path, egress| {
                let flows = path.flows();
                let (known, half_open) = (flows.v4().len() + flows.v6().len(), flows.half_open());
                let sorted = path.dispatch().map(|dispatch| {
                    let across = dispatch.across().map(|across| across.counts());
                    let sorter = dispatch.sorter();
                    let buckets = sorter.owners().buckets(sorter.me()).collect::<Vec<_>>();
                    (
                        sorter.me() != NOBODY,
                        buckets,
                        sorter.handed(egress),
                        across,
                    )
                });
                // Alone it has all.
                let alone = || (true, (0..=Bucket::MAX).collect(), 0, None);
                (known, half_open, sorted.unwrap_or_else(alone))
            });
            // One that has ended, or is the slow one, has none.
            let (flows, half_open, (owns, buckets, handed, across)) = asked?;
            Some(Said {
                number,
                name: name.to_owned(),
                owns,
                buckets,
                flows,
                half_open,
                packets: stats.packets.read(),
                handed,
                across,
                busy_share: stats.busy_share(),
            })
        });
    said.collect()
}

/// Adds a row for each worker that forwards.
pub(crate) fn rows(shared: &Shared, at_work: &AtWork<'_>, rows: &mut Rows) -> Result<(), Problem> {
    let loads = shared.moves.loads();
    let whole: u64 = loads.iter().flat_map(|loads| loads.iter()).sum();
    let all = all(at_work);
    let owners = all.iter().filter(|said| said.owns).count() as u64;
    for said in all {
        let load = |bucket: &Bucket| {
            let loads = loads.as_deref();
            loads.map_or(0, |loads| loads[usize::from(*bucket)])
        };
        let own: u64 = said.buckets.iter().map(load).sum();
        let busiest = said.buckets.iter().max_by_key(|bucket| load(bucket));
        // One flow, or one host behind NAT, cannot be divided among workers.
        let is_above = own * owners * 10 > whole * 11;
        let elephant = busiest.filter(|bucket| load(bucket) as f64 >= ELEPHANT * own as f64);
        let elephant = elephant.filter(|_| is_above);
        let note = match (said.owns, elephant) {
            (false, _) => "receives, and hands all flows over".to_owned(),
            (true, Some(bucket)) => format!(
                "bucket {bucket} is {:.0}% of its load, and one bucket is one worker's",
                load(bucket) as f64 * 100.0 / own as f64
            ),
            (true, None) => String::new(),
        };
        let shares = (whole > 0).then(|| own as f64 / whole as f64);
        rows.add_with(|| {
            json!({
                "worker": said.number,
                "name": said.name,
                "buckets": said.buckets.len(),
                "numbers": said.buckets,
                "flows": said.flows,
                "half_open": said.half_open,
                "packets": said.packets,
                "handed": said.handed,
                "by_pointer": said.across.map(|counts| counts.by_pointer),
                "by_copy": said.across.map(|counts| counts.by_copy),
                "copies_refused": said.across.map(|counts| counts.refused),
                "busy_share": said.busy_share,
                "load_share": shares,
                "busiest_bucket": busiest.filter(|bucket| load(bucket) > 0),
                "note": note,
            })
        });
    }
    Ok(())
}

/// The same for the metrics page.
pub(crate) fn metrics(shared: &Shared, at_work: &AtWork<'_>, page: &mut Exposition) {
    let all = all(at_work);
    let help = "Buckets of flows that a worker owns.";
    page.family("worker_buckets", FamilyKind::Gauge, "", help);
    for said in &all {
        let buckets = if said.owns { said.buckets.len() } else { 0 };
        page.sample(&[("worker", said.name.as_str())], buckets as u64);
    }
    let help = "Flows that a worker knows.";
    page.family("worker_flows", FamilyKind::Gauge, "", help);
    for said in &all {
        page.sample(&[("worker", said.name.as_str())], said.flows as u64);
    }
    let help = "Packets that a worker has handed to the owners of their flows.";
    page.family(
        "worker_handed_packets",
        FamilyKind::Counter,
        "packets",
        help,
    );
    for said in &all {
        page.sample(&[("worker", said.name.as_str())], said.handed);
    }
    let across = || {
        all.iter()
            .filter_map(|said| Some((said.name.as_str(), said.across?)))
    };
    if across().next().is_some() {
        let help = "Packets that a worker has handed to owners on other NUMA nodes.";
        page.family(
            "worker_across_packets",
            FamilyKind::Counter,
            "packets",
            help,
        );
        for (name, counts) in across() {
            page.sample(&[("worker", name), ("by", "pointer")], counts.by_pointer);
            page.sample(&[("worker", name), ("by", "copy")], counts.by_copy);
        }
        let help = "Packets that were to be copied to another NUMA node without a free slot.";
        page.family(
            "worker_uncopied_packets",
            FamilyKind::Counter,
            "packets",
            help,
        );
        for (name, counts) in across() {
            page.sample(&[("worker", name)], counts.refused);
        }
    }
    let help = "Buckets of flows that have moved to another worker.";
    page.family("buckets_moved", FamilyKind::Counter, "", help);
    page.sample(&[], shared.moves.moved());
}
