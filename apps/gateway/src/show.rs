//! The gateway's tables: flows and policies. Those of services are theirs.

use std::net::IpAddr;

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::{AtWork, config};
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::plane::acl::Verdict;
use linerate_routing::worker::on_fast;
use linerate_tables::flow::{Cursor, Flow, FlowId, FlowKey};
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::protocol;
use serde_json::{Value, json};

use crate::path::GatewayPath;
use crate::policy::{Zone, Zones};
use crate::services::classify::Classify;
use crate::services::{self, ServiceBits};
use crate::stages::flows::{Shared, Table as FlowTable, Tracked};
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

/// What there is to show.
pub(crate) const TABLES: [&Table; 4] = [
    &FLOWS,
    &POLICIES,
    &services::show::SERVICES,
    &services::show::TALKERS,
];

/// Places of a flow table that a worker looks through between two bursts, and that it empties.
const PLACES: usize = 1024;
const CLEARED_PLACES: usize = 128;

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
    Zone(u16),
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
            all.push(Word::Zone(zone(name, zones)?.number().into()));
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

fn holds(word: Word, (ends, protocol, _): &Ends, (state, zone): (u8, u16)) -> bool {
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
    (ends, key.protocol(), key.zone())
}

fn ends6(key: &FlowKey6) -> Ends {
    let ends = [
        (key.src().into(), key.src_port()),
        (key.dst().into(), key.dst_port()),
    ];
    (ends, key.protocol(), key.zone())
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
    zone: u16,
    services: ServiceBits,
    /// What it asks for, if that is known.
    host: Option<String>,
    age: u64,
    idle: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Looks through the next places of a table; whether these were the last.
fn look<F: FlowKey<K>, const K: usize>(
    table: &FlowTable<F, K>,
    cursor: &mut Cursor,
    (words, places): (&[Word], usize),
    now: u64,
    ends: fn(&F) -> Ends,
    found: &mut Vec<Seen>,
) -> bool {
    table.dump(cursor, places, |flow: &Flow<F, Tracked>| {
        let (ends, becomes) = (ends(&flow.key), ends(&flow.reverse.reversed()));
        let is = (flow.state, flow.user.zone());
        let fits = |word| holds(word, &ends, is) || holds(word, &becomes, is);
        if words.iter().all(|&word| fits(word)) {
            found.push(Seen {
                id: flow.id,
                ends,
                becomes: (flow.reverse != flow.key.reversed()).then_some(becomes),
                state: flow.state,
                cookie: flow.user.began_with_cookie(),
                zone: flow.user.zone(),
                services: flow.user.services(),
                host: None,
                age: now.saturating_sub(flow.created),
                idle: now.saturating_sub(flow.last_seen),
                packets: flow.packets,
                bytes: flow.bytes,
            });
        }
    })
}

/// Adds the flows that fit a filter: words of which each has to hold.
pub(crate) fn flows(
    shared: &Shared,
    filter: &str,
    at_work: &AtWork<'_>,
    rows: &mut Rows,
) -> Result<(), Problem> {
    let zones = shared.policy.zones();
    let words = words(filter, zones)?;
    visit(&words, false, at_work, &mut |worker, seen| {
        rows.add_with(|| row(seen, worker, shared, at_work));
    });
    Ok(())
}

/// Ends the flows that fit a filter, or all if that is asked for by name.
pub(crate) fn clear(shared: &Shared, filter: &str, at_work: &AtWork<'_>) -> Result<Value, Problem> {
    let words = match filter {
        "" => {
            let fix = "name them as for `show flows`, or say `clear flows all`";
            return Err(Problem::new("clear flows: which is not said", fix));
        }
        "all" => Vec::new(),
        filter => words(filter, shared.policy.zones())?,
    };
    let mut cleared = 0_u64;
    visit(&words, true, at_work, &mut |_, _| cleared += 1);
    let plural = if cleared == 1 { "" } else { "s" };
    Ok(json!({ "text": format!("{cleared} flow{plural} ended"), "cleared": cleared }))
}

/// Looks at the flows that fit, of every worker, and ends them if they are to be cleared.
fn visit(words: &[Word], clears: bool, at_work: &AtWork<'_>, see: &mut dyn FnMut(usize, &Seen)) {
    let clock = at_work.running.clock();
    let places = if clears { CLEARED_PLACES } else { PLACES };
    for (number, worker) in at_work.running.handles().enumerate() {
        for is_v4 in [true, false] {
            let mut cursor = Cursor::default();
            loop {
                let words = words.to_vec();
                // A part at a time: the worker forwards between them.
                let part = on_fast(worker, move |fast, _| {
                    let now = clock.ns(clock.now()) / 1_000_000;
                    let mut found = Vec::new();
                    let (flows, asked) = (fast.path::<GatewayPath>()?.flows(), (&*words, places));
                    let is_last = match is_v4 {
                        true => look(flows.v4(), &mut cursor, asked, now, ends4, &mut found),
                        false => look(flows.v6(), &mut cursor, asked, now, ends6, &mut found),
                    };
                    if let Some(classify) = flows.services().find::<Classify>() {
                        let host = |seen: &Seen| classify.host((seen.id, is_v4));
                        found.iter_mut().for_each(|seen| {
                            seen.host = host(seen).map(|host| host.to_string());
                        });
                    }
                    for seen in found.iter().filter(|_| clears) {
                        match is_v4 {
                            true => flows.clear4(seen.id, now),
                            false => flows.clear6(seen.id, now),
                        };
                    }
                    Some((found, cursor, is_last))
                });
                // One that has ended, or is the slow one, has none.
                let Some((found, next, is_last)) = part.flatten() else {
                    break;
                };
                cursor = next;
                found.iter().for_each(|seen| see(number, seen));
                if is_last {
                    break;
                }
            }
        }
    }
}

fn row(seen: &Seen, worker: usize, shared: &Shared, at_work: &AtWork<'_>) -> Value {
    let zones = shared.policy.zones();
    let ([source, destination], number, vrf) = seen.ends;
    let mut zones = zones
        .iter()
        .filter(|(zone, _)| u16::from(zone.number()) == seen.zone);
    let end = |(address, port): (IpAddr, u16)| match number {
        protocol::TCP | protocol::UDP | protocol::SCTP => match address {
            IpAddr::V4(v4) => format!("{v4}:{port}"),
            IpAddr::V6(v6) => format!("[{v6}]:{port}"),
        },
        _ => address.to_string(),
    };
    let vrf = at_work.config.vrfs.get(usize::from(vrf));
    json!({
        "protocol": config::words::protocol_name(number),
        "source": end(source),
        "destination": end(destination),
        "becomes_source": seen.becomes.map(|(ends, ..)| end(ends[0])),
        "becomes_destination": seen.becomes.map(|(ends, ..)| end(ends[1])),
        "state": State::of(seen.state).name(),
        "cookie": seen.cookie,
        "host": seen.host,
        "services": shared.plan.names(seen.services),
        "denied": seen.services.is_denied(),
        "zone": zones.next().map(|(_, name)| name),
        "vrf": vrf.map_or("?", |vrf| &vrf.name),
        "age_s": seen.age / 1000,
        "idle_s": seen.idle / 1000,
        "packets": seen.packets[0],
        "bytes": seen.bytes[0],
        "packets_back": seen.packets[1],
        "bytes_back": seen.bytes[1],
        "worker": worker,
    })
}
