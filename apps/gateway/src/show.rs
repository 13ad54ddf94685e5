//! The gateway's tables: flows and policies.

use std::net::IpAddr;

use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::AtWork;
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::worker::on_fast;
use linerate_tables::flow::{Cursor, Flow, FlowKey};
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::protocol;
use serde_json::{Value, json};

use crate::path::GatewayPath;
use crate::policy::{Counts, Policy};
use crate::stages::flows::{Table as FlowTable, Tracked};
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
pub(crate) const TABLES: [&Table; 2] = [&FLOWS, &POLICIES];

/// Places of a flow table that a worker looks through between two bursts.
const PLACES: usize = 1024;

/// Adds the rules of the policies that the filter names by one of their zones, or of all.
pub(crate) fn policies(policy: &Policy, filter: &str, at_work: &AtWork<'_>, rows: &mut Rows) {
    let workers = at_work.running.handles().filter_map(|worker| {
        let counts = on_fast(worker, |fast, _| {
            Some(fast.path::<GatewayPath>()?.flows().hits().clone())
        });
        counts.flatten()
    });
    let workers: Vec<Counts> = workers.collect();
    let workers: Vec<&Counts> = workers.iter().collect();
    for row in policy.rows(&workers) {
        let name = row["policy"].as_str().unwrap_or_default();
        if filter.is_empty() || name.split(" > ").any(|zone| zone == filter) {
            rows.add_with(|| row.clone());
        }
    }
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
}

/// Protocols by their names.
const PROTOCOLS: [(&str, u8); 5] = [
    ("icmp", protocol::ICMP),
    ("icmp6", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
];

/// The conditions of a filter: all words of it have to hold.
fn words(filter: &str) -> Result<Vec<Word>, Problem> {
    let word = |text: &str| {
        let prefix = |text: &str| {
            let address = text.parse::<IpAddr>().ok().map(Prefix::host);
            address.or_else(|| text.parse::<Cidr>().ok().map(|cidr| cidr.network()))
        };
        let named = |all: &[(&str, u8)]| {
            let found = all.iter().find(|(name, _)| *name == text);
            found.map(|(_, number)| *number)
        };
        let found = prefix(text)
            .map(Word::Within)
            .or_else(|| text.parse().ok().map(Word::Port))
            .or_else(|| named(&PROTOCOLS).map(Word::Protocol))
            .or_else(|| State::named(text).map(|state| Word::State(state as u8)));
        found.ok_or_else(|| {
            let fix = "name addresses, prefixes, ports, protocols (tcp) and states (established)";
            Problem::new(format!("`{text}` says nothing of a flow"), fix)
        })
    };
    filter.split_whitespace().map(word).collect()
}

/// The ends of a flow's key, its protocol, and its VRF.
type Ends = ([(IpAddr, u16); 2], u8, u16);

fn holds(word: Word, (ends, protocol, _): &Ends, state: u8) -> bool {
    match word {
        Word::Within(prefix) => ends.iter().any(|end| prefix.contains(end.0)),
        Word::Port(port) => ends.iter().any(|end| end.1 == port),
        Word::Protocol(number) => *protocol == number,
        Word::State(number) => state == number,
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
    ends: Ends,
    /// What it becomes, where it is translated.
    becomes: Option<Ends>,
    state: u8,
    /// It has begun with a SYN cookie.
    cookie: bool,
    age: u64,
    idle: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Looks through the next places of a table; whether these were the last.
fn look<F: FlowKey<K>, const K: usize>(
    table: &FlowTable<F, K>,
    cursor: &mut Cursor,
    words: &[Word],
    now: u64,
    ends: fn(&F) -> Ends,
    found: &mut Vec<Seen>,
) -> bool {
    table.dump(cursor, PLACES, |flow: &Flow<F, Tracked>| {
        let (ends, becomes) = (ends(&flow.key), ends(&flow.reverse.reversed()));
        let fits = |word| holds(word, &ends, flow.state) || holds(word, &becomes, flow.state);
        if words.iter().all(|&word| fits(word)) {
            found.push(Seen {
                ends,
                becomes: (flow.reverse != flow.key.reversed()).then_some(becomes),
                state: flow.state,
                cookie: flow.user.began_with_cookie(),
                age: now.saturating_sub(flow.created),
                idle: now.saturating_sub(flow.last_seen),
                packets: flow.packets,
                bytes: flow.bytes,
            });
        }
    })
}

/// Adds the flows that fit a filter: words of which each has to hold.
pub(crate) fn flows(filter: &str, at_work: &AtWork<'_>, rows: &mut Rows) -> Result<(), Problem> {
    let words = words(filter)?;
    let clock = at_work.running.clock();
    for (number, worker) in at_work.running.handles().enumerate() {
        for is_v4 in [true, false] {
            let mut cursor = Cursor::default();
            loop {
                let words = words.clone();
                // A part at a time: the worker forwards between them.
                let part = on_fast(worker, move |fast, _| {
                    let now = clock.ns(clock.now()) / 1_000_000;
                    let mut found = Vec::new();
                    let flows = fast.path::<GatewayPath>()?.flows();
                    let is_last = match is_v4 {
                        true => look(flows.v4(), &mut cursor, &words, now, ends4, &mut found),
                        false => look(flows.v6(), &mut cursor, &words, now, ends6, &mut found),
                    };
                    Some((found, cursor, is_last))
                });
                // One that has ended, or is the slow one, has none.
                let Some((found, next, is_last)) = part.flatten() else {
                    break;
                };
                cursor = next;
                for seen in &found {
                    rows.add_with(|| row(seen, number, at_work));
                }
                if is_last {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn row(seen: &Seen, worker: usize, at_work: &AtWork<'_>) -> Value {
    let ([source, destination], number, vrf) = seen.ends;
    let name = |all: &[(&str, u8)], number: u8| {
        let found = all.iter().find(|(_, known)| *known == number);
        found.map_or_else(|| number.to_string(), |(name, _)| (*name).to_string())
    };
    let end = |(address, port): (IpAddr, u16)| match number {
        protocol::TCP | protocol::UDP | protocol::SCTP => match address {
            IpAddr::V4(v4) => format!("{v4}:{port}"),
            IpAddr::V6(v6) => format!("[{v6}]:{port}"),
        },
        _ => address.to_string(),
    };
    let vrf = at_work.config.vrfs.get(usize::from(vrf));
    json!({
        "protocol": name(&PROTOCOLS, number),
        "source": end(source),
        "destination": end(destination),
        "becomes_source": seen.becomes.map(|(ends, ..)| end(ends[0])),
        "becomes_destination": seen.becomes.map(|(ends, ..)| end(ends[1])),
        "state": State::of(seen.state).name(),
        "cookie": seen.cookie,
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
