//! The gateway's tables: flows, policies, backends and workers; those of NAT are [`show_nat`]'s,
//! those of services [`services::show`]'s.

pub(crate) mod workers;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use linerate_appliance::control::answers::Later;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::{AtWork, config};
use linerate_core::env::Clock;
use linerate_core::run::WorkerHandle;
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::plane::acl::Verdict;
use linerate_routing::worker::RouterStage;
use linerate_tables::flow::{Cursor, Flow, FlowId, FlowKey};
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::protocol;
use serde_json::{Value, json};

use crate::balance::show::{FlowCounts, add};
use crate::nat::{Endpoint, Tuple};
use crate::path::on_path;
use crate::policy::{Zone, Zones};
use crate::services::classify::Classify;
use crate::services::host::Host;
use crate::services::{self, ServiceBits};
use crate::show_nat;
use crate::stages::flows::turned::vrf_of;
use crate::stages::flows::{Flows, Shared, Table as FlowTable, Tracked};
use crate::track::State;

/// It may be long: only rows that are wanted are made.
const FLOWS: Table = Table {
    what: "flows",
    names: &[],
    counters: &[],
};
const POLICIES: Table = Table {
    what: "policies",
    names: &["policy", "rule"],
    counters: &["decided"],
};

const BACKENDS: Table = Table {
    what: "backends",
    names: &["balancer", "backend"],
    counters: &["flows_begun"],
};

/// What there is to show.
pub(crate) const TABLES: [&Table; 9] = [
    &FLOWS,
    &POLICIES,
    &BACKENDS,
    &workers::WORKERS,
    &show_nat::POOLS,
    &show_nat::MAPPINGS,
    &show_nat::SUBSCRIBERS,
    &services::show::SERVICES,
    &services::show::TALKERS,
];

/// Places of a flow table that a worker looks through between two bursts: its longest stop for this
/// is that of so many flows, whatever number the table has.
const PLACES: usize = 128;

/// Adds the rules of the policies that the filter names by one of their zones, or of all.
pub(crate) fn policies(shared: &Shared, filter: &str, rows: &mut Rows) -> Result<(), Problem> {
    let policy = &shared.policy;
    if !filter.is_empty() {
        zone(filter, policy.zones())?;
    }
    let workers = shared.hits.all();
    for (number, list) in policy.lists().iter().enumerate() {
        if filter.is_empty() || list.name.split(" > ").any(|zone| zone == filter) {
            (0..=list.rules.len())
                .for_each(|rule| rows.add_with(|| policy.row(number, rule, &workers)));
        }
    }
    Ok(())
}

/// Adds the backends of the balancer that the filter names, or of all.
pub(crate) fn backends(
    shared: Arc<Shared>,
    filter: &str,
    at_work: &AtWork<'_>,
    rows: &mut Rows,
) -> Result<(), Problem> {
    shared.balance.check(filter)?;
    // What is shown holds for new flows from here on.
    hand_backends(&shared, at_work);
    let mut counts = begun(at_work);
    let (visit, filter) = (Visit::of(at_work), filter.to_owned());
    rows.later(move |rows| {
        visit.all(&mut |_, seen| {
            let backend = usize::from(seen.backend);
            counts.now.resize(counts.now.len().max(backend + 1), 0);
            counts.now[backend] += 1;
        });
        shared.balance.rows(&filter, &counts, Instant::now(), rows);
    });
    Ok(())
}

/// Hands workers the tables of the backends that are up now, where others were before.
pub(crate) fn hand_backends(shared: &Shared, at_work: &AtWork<'_>) {
    let Some(tables) = shared.balance.board().changed() else {
        return;
    };
    for worker in at_work.running.handles() {
        let tables = tables.clone();
        // Those that it had come back, so that the worker frees nothing.
        drop(on_path(worker, move |path, _| {
            path.flows().exchange_backends(tables)
        }));
    }
}

/// How many flows have begun, by backend.
pub(crate) fn begun(at_work: &AtWork<'_>) -> FlowCounts {
    let mut counts = FlowCounts::default();
    for worker in at_work.running.handles() {
        let begun = on_path(worker, |path, _| path.flows().begun_by_backend().to_vec());
        add(&mut counts.begun, &begun.unwrap_or_default());
    }
    counts
}

/// Adds what policies have decided to the metrics page: three samples for each list, whatever
/// number of rules it has.
pub(crate) fn decided(shared: &Shared, page: &mut Exposition) {
    let help = "Flows that a policy decided on, and how.";
    page.family("policy_flows", FamilyKind::Counter, "", help);
    let workers = shared.hits.all();
    for (number, list) in shared.policy.lists().iter().enumerate() {
        let mut sums = Verdict::ALL.map(|verdict| (verdict, 0));
        let actions = list.rules.iter().map(|rule| rule.action);
        for (rule, action) in actions.chain([list.default]).enumerate() {
            let flows: u64 = workers.iter().map(|one| one.hits(number, rule)).sum();
            let same = sums.iter_mut().filter(|sum| sum.0 == action);
            same.for_each(|sum| sum.1 += flows);
        }
        for (action, flows) in sums {
            let labels = [("policy", list.name.as_str()), ("action", action.name())];
            page.sample(&labels, flows);
        }
    }
}

/// The zone of a name that a user has typed.
fn zone(name: &str, zones: &Zones) -> Result<Zone, Problem> {
    zones.find(name).map_err(|text| {
        let (problem, fix) = text.split_once("; ").unwrap_or((&text, "name another"));
        Problem::new(problem, fix)
    })
}

/// A condition on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// One of the two ends is in it.
    Within(Prefix),
    /// One of the two ends has this port.
    Port(u16),
    /// It is of this protocol.
    Protocol(u8),
    /// It is in this state.
    State(u8),
    /// It began in this zone.
    Zone(u8),
}

/// The conditions of a filter: all words of it have to hold.
fn words(filter: &str, zones: &Zones) -> Result<Vec<Word>, Problem> {
    const FIX: &str = "name addresses, prefixes, ports, protocols (tcp), states (established) \
                       and where flows began (zone lan)";
    let mut all = Vec::new();
    let mut texts = filter.split_whitespace();
    while let Some(text) = texts.next() {
        if text == "zone" {
            let name = texts.next();
            let name = name.ok_or_else(|| Problem::new("`zone` stands without a name", FIX))?;
            all.push(Word::Zone(zone(name, zones)?.number()));
            continue;
        }
        let address = text.parse::<IpAddr>().ok().map(Prefix::host);
        let prefix = || text.parse::<Cidr>().ok().map(|cidr| cidr.network());
        let protocol = || config::words::protocol(text).ok().flatten();
        let found = (address.or_else(prefix).map(Word::Within))
            .or_else(|| text.parse().ok().map(Word::Port))
            .or_else(|| protocol().map(Word::Protocol))
            .or_else(|| State::named(text).map(|state| Word::State(state as u8)));
        let problem = || Problem::new(format!("`{text}` says nothing of a flow"), FIX);
        all.push(found.ok_or_else(problem)?);
    }
    Ok(all)
}

/// The ends of a flow's key, its protocol, and its VRF.
type Ends = ([(IpAddr, u16); 2], u8, u16);

fn holds(word: Word, (ends, protocol, _): &Ends, (state, zone): (u8, u8)) -> bool {
    match word {
        Word::Within(prefix) => ends.iter().any(|end| prefix.contains(end.0)),
        Word::Port(port) => ends.iter().any(|end| end.1 == port),
        Word::Protocol(number) => *protocol == number,
        Word::State(number) => state == number,
        Word::Zone(number) => zone == number,
    }
}

fn ends4(key: &FlowKey4) -> Ends {
    let ends = [
        (key.src().into(), key.src_port()),
        (key.dst().into(), key.dst_port()),
    ];
    (ends, key.protocol(), vrf_of(key.zone()))
}

fn ends6(key: &FlowKey6) -> Ends {
    let ends = [
        (key.src().into(), key.src_port()),
        (key.dst().into(), key.dst_port()),
    ];
    (ends, key.protocol(), vrf_of(key.zone()))
}

/// A flow that was found, as a row has it.
struct Seen {
    id: FlowId,
    ends: Ends,
    /// What it becomes, where it is translated.
    becomes: Option<Ends>,
    state: u8,
    /// It has begun with a SYN cookie.
    cookie: bool,
    zone: u8,
    backend: u16,
    services: ServiceBits,
    /// What it asks for, if that is known.
    host: Option<Host>,
    age: u64,
    idle: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// A part of a table's flows. Its memory is that of who asks: a worker neither takes nor frees any.
struct Part {
    found: Vec<Seen>,
    cursor: Cursor,
    /// Whether there are no more.
    is_last: bool,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            found: Vec::with_capacity(PLACES),
            cursor: Cursor::default(),
            is_last: false,
        }
    }
}

impl Part {
    /// Looks through the next places of a table for flows of which all words hold.
    fn look<F: FlowKey<K>, const K: usize>(
        &mut self,
        table: &FlowTable<F, K>,
        words: &[Word],
        now: u64,
        ends: fn(&F) -> Ends,
    ) {
        let found = &mut self.found;
        self.is_last = table.dump(&mut self.cursor, PLACES, |flow: &Flow<F, Tracked>| {
            let (ends, becomes) = (ends(&flow.key), ends(&flow.reverse.reversed()));
            let is = (flow.state, flow.zone);
            let fits = |word| holds(word, &ends, is) || holds(word, &becomes, is);
            if words.iter().all(|&word| fits(word)) {
                found.push(Seen {
                    id: flow.id,
                    ends,
                    becomes: (flow.reverse != flow.key.reversed()).then_some(becomes),
                    state: flow.state,
                    cookie: flow.user.began_with_cookie(),
                    zone: flow.zone,
                    backend: flow.user.backend(),
                    services: flow.user.services(),
                    host: None,
                    age: now.saturating_sub(flow.created),
                    idle: now.saturating_sub(flow.last_seen),
                    packets: flow.packets,
                    bytes: flow.bytes,
                });
            }
        });
    }
}

/// Adds the flows that fit a filter: words of which each has to hold. Who asks looks for them, with
/// the workers: control is not held up.
pub(crate) fn flows(
    shared: Arc<Shared>,
    filter: &str,
    at_work: &AtWork<'_>,
    rows: &mut Rows,
) -> Result<(), Problem> {
    let visit = Visit {
        words: words(filter, shared.policy.zones())?.into(),
        clears: false,
        ..Visit::of(at_work)
    };
    let vrfs = at_work.config.vrfs.iter().map(|vrf| vrf.name.clone());
    let vrfs: Vec<String> = vrfs.collect();
    rows.later(move |rows| {
        visit.all(&mut |worker, seen| rows.add_with(|| row(seen, worker, &shared, &vrfs)));
    });
    Ok(())
}

/// Ends the flows that fit a filter, or all if that is asked for by name.
pub(crate) fn clear(shared: &Shared, filter: &str, at_work: &AtWork<'_>) -> Result<Later, Problem> {
    let words = match filter {
        "" => {
            let fix = "name them as for `show flows`, or say `clear flows all`";
            return Err(Problem::new("clear flows: which is not said", fix));
        }
        "all" => Vec::new(),
        filter => words(filter, shared.policy.zones())?,
    };
    let visit = Visit {
        words: words.into(),
        clears: true,
        ..Visit::of(at_work)
    };
    Ok(Box::new(move || {
        let mut cleared = 0_u64;
        visit.all(&mut |_, _| cleared += 1);
        let plural = if cleared == 1 { "" } else { "s" };
        json!({ "text": format!("{cleared} flow{plural} ended"), "cleared": cleared })
    }))
}

/// A walk through the flows of every worker.
struct Visit {
    workers: Vec<WorkerHandle<RouterStage>>,
    clock: Clock,
    /// What flows have to be, each.
    words: Arc<[Word]>,
    /// Whether those that fit end.
    clears: bool,
}

impl Visit {
    /// Through all of them.
    fn of(at_work: &AtWork<'_>) -> Self {
        Self {
            workers: at_work.running.handles().cloned().collect(),
            clock: at_work.running.clock(),
            words: [].into(),
            clears: false,
        }
    }

    /// Shows the flows that fit, with their worker's number.
    fn all(&self, see: &mut dyn FnMut(usize, &Seen)) {
        for (number, worker) in self.workers.iter().enumerate() {
            for is_v4 in [true, false] {
                let mut part = Part::default();
                // One that has ended, or is the slow one, has none.
                while let Some(next) = self.next(worker, is_v4, part) {
                    part = next;
                    part.found.drain(..).for_each(|seen| see(number, &seen));
                    if part.is_last {
                        break;
                    }
                }
            }
        }
    }

    /// The next part of a worker's flows of a family: the worker forwards between two of them.
    fn next(
        &self,
        worker: &WorkerHandle<RouterStage>,
        is_v4: bool,
        mut part: Part,
    ) -> Option<Part> {
        let (words, clears, clock) = (self.words.clone(), self.clears, self.clock);
        on_path(worker, move |path, _| {
            let now = clock.ns(clock.now()) / 1_000_000;
            let flows = path.flows();
            match is_v4 {
                true => part.look(flows.v4(), &words, now, ends4),
                false => part.look(flows.v6(), &words, now, ends6),
            }
            if !is_v4 && !flows.nat().sessions.is_empty() {
                part.found.iter_mut().for_each(|seen| outside(flows, seen));
            }
            if let Some(classify) = flows.services().find::<Classify>() {
                for seen in &mut part.found {
                    seen.host = classify.host((seen.id, is_v4)).copied();
                }
            }
            for seen in part.found.iter().filter(|_| clears) {
                match is_v4 {
                    true => flows.clear4(seen.id, now),
                    false => flows.clear6(seen.id, now),
                };
            }
            part
        })
    }
}

/// What a flow of IPv6 becomes that NAT64 translates.
fn outside(flows: &Flows, seen: &mut Seen) {
    let ([src, dst], protocol, vrf) = seen.ends;
    let end = |(address, port)| Endpoint { address, port };
    let tuple = Tuple {
        src: end(src),
        dst: end(dst),
        protocol,
    };
    let sessions = &flows.nat().sessions;
    let there = sessions.of(&tuple).map(|session| session.outside);
    let back = || Some(sessions.of(&tuple.reversed())?.outside.reversed());
    if let Some(Tuple { src, dst, protocol }) = there.or_else(back) {
        let ends = [(src.address, src.port), (dst.address, dst.port)];
        seen.becomes = Some((ends, protocol, vrf));
    }
}

fn row(seen: &Seen, worker: usize, shared: &Shared, vrfs: &[String]) -> Value {
    let zones = shared.policy.zones();
    let mut backends = shared.balance.each();
    let backend = backends.find(|(.., number)| seen.backend == *number);
    let ([source, destination], number, vrf) = seen.ends;
    let mut zones = zones.iter().filter(|(zone, _)| zone.number() == seen.zone);
    let end = |(address, port): (IpAddr, u16)| match number {
        protocol::TCP | protocol::UDP | protocol::SCTP => match address {
            IpAddr::V4(v4) => format!("{v4}:{port}"),
            IpAddr::V6(v6) => format!("[{v6}]:{port}"),
        },
        _ => address.to_string(),
    };
    let vrf = vrfs.get(usize::from(vrf));
    json!({
        "protocol": config::words::protocol_name(number),
        "source": end(source),
        "destination": end(destination),
        "becomes_source": seen.becomes.map(|(ends, ..)| end(ends[0])),
        "becomes_destination": seen.becomes.map(|(ends, ..)| end(ends[1])),
        "state": State::of(seen.state).name(),
        "cookie": seen.cookie,
        "host": seen.host.map(|host| host.to_string()),
        "services": shared.plan.names(seen.services),
        "denied": seen.services.is_denied(),
        "zone": zones.next().map(|(_, name)| name),
        "vrf": vrf.map_or("?", String::as_str),
        "balancer": backend.map(|(service, ..)| &service.name),
        "backend": backend.map(|(_, backend, _)| backend.to_string()),
        "age_s": seen.age / 1000,
        "idle_s": seen.idle / 1000,
        "packets": seen.packets[0],
        "bytes": seen.bytes[0],
        "packets_back": seen.packets[1],
        "bytes_back": seen.bytes[1],
        "worker": worker,
    })
}
