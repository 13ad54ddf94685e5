//! What `linerate ctl show` and the page of metrics say of stacks and applications.

use std::net::SocketAddr;

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::of_run::More;
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::runtime::Running;
use linerate_core::run::Worker;
use linerate_stack::socket::SocketStats;
use linerate_stack::tcp::connection::{Info, State};
use linerate_stack::tcp::stats::Stats;
use serde_json::{Value, json};

use crate::lcore::{Lcore, Parts};
use crate::steering::map::{Map, Phase};

/// Connections that one lcore tells of at a time: it has nothing else to do meanwhile.
const MOST: usize = 10_000;

/// Connections that a drain has aborted.
const DRAINED: &str = "drain_aborted";
/// What applications call the count that is of now.
const OPEN: &str = "open";

const CONNECTIONS: Table = Table {
    what: "connections",
    names: &["local", "remote", "state"],
    counters: &[],
};
const LISTENERS: Table = Table {
    what: "listeners",
    names: &["lcore", "listens"],
    counters: &[],
};
const TCP: Table = Table {
    what: "tcp",
    names: &["what"],
    counters: &[],
};
const APPS: Table = Table {
    what: "apps",
    names: &["app", "counts"],
    counters: &[],
};
const STEERING: Table = Table {
    what: "steering",
    names: &["lcore"],
    counters: &[],
};

/// The tables and metrics of the appliance.
pub(crate) const MORE: More<Lcore> = More {
    tables: &[&CONNECTIONS, &LISTENERS, &TCP, &APPS, &STEERING],
    rows,
    metrics,
};

/// Asks each worker; one that has ended says nothing.
fn ask<T: Send + 'static>(
    running: &Running<Lcore>,
    what: impl Fn(&mut Worker<Lcore>) -> Option<T> + Send + Copy + 'static,
) -> Vec<(String, T)> {
    let names: Vec<String> = running.lcores().map(|(name, ..)| name.to_owned()).collect();
    let answers = running
        .handles()
        .map(|handle| handle.call(what).ok().flatten());
    let both = names.into_iter().zip(answers);
    both.filter_map(|(name, answer)| Some((name, answer?)))
        .collect()
}

fn rows(running: &Running<Lcore>, table: &Table, filter: &str, rows: &mut Rows) {
    let all = match table.what {
        "connections" => connections(running, rows),
        "listeners" => listeners(running),
        "apps" => apps(running),
        "steering" => steering(running),
        _ => tcp(running),
    };
    let is_wanted =
        |row: &Value| filter.is_empty() || table.names.iter().any(|key| row[*key] == *filter);
    for row in all.into_iter().filter(is_wanted) {
        rows.add_with(|| row);
    }
}

fn connections(running: &Running<Lcore>, rows: &mut Rows) -> Vec<Value> {
    let of = |worker: &mut Worker<Lcore>| {
        let Worker { stage, egress, .. } = worker;
        let Parts { stack, now_ns, .. } = stage.parts()?;
        let more = (stack.connections() as usize).saturating_sub(MOST);
        let mut io = stack.io(now_ns, egress);
        let some: Vec<(SocketAddr, SocketAddr, Info)> = io.connections().take(MOST).collect();
        Some((some, more))
    };
    let mut all = Vec::new();
    for (lcore, (some, more)) in ask(running, of) {
        if more > 0 {
            rows.notes.push(format!("{more} more at {lcore}"));
        }
        all.extend(some.iter().map(|(local, remote, info)| {
            json!({
                "lcore": lcore,
                "local": local.to_string(),
                "remote": remote.to_string(),
                "state": words(info.state),
                "phase": format!("{:?}", info.phase).to_lowercase(),
                "congestion": info.algorithm,
                "cwnd_bytes": info.cwnd_bytes,
                "mss": info.mss,
                "srtt_us": info.srtt_ns.map(|ns| ns / 1000),
                "rto_ms": info.rto_ns / 1_000_000,
                "unacked_bytes": info.unacked_bytes,
                "unsent_bytes": info.unsent_bytes,
                "readable_bytes": info.readable_bytes,
                "snd_wnd": info.snd_wnd,
                "rcv_wnd": info.rcv_wnd,
            })
        }));
    }
    all
}

/// `SynSent` as `syn-sent`, which RFC 9293 3.3.2 has in capitals.
fn words(state: State) -> String {
    let mut words = String::new();
    for letter in format!("{state:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn listeners(running: &Running<Lcore>) -> Vec<Value> {
    let of = |worker: &mut Worker<Lcore>| {
        let Worker { stage, egress, .. } = worker;
        let Parts { stack, now_ns, .. } = stage.parts()?;
        let io = stack.io(now_ns, egress);
        let all = io
            .listeners()
            .map(|(_, address, port, waiting, half_open, refused)| {
                (address, port, waiting, half_open, refused)
            });
        Some(all.collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for (lcore, all) in ask(running, of) {
        rows.extend(
            all.iter()
                .map(|(address, port, waiting, half_open, refused)| {
                    let address = address.map_or_else(|| "*".into(), |address| address.to_string());
                    json!({
                        "lcore": lcore,
                        "listens": format!("{address} {port}"),
                        "waiting": waiting,
                        "half_open": half_open,
                        "refused": refused,
                    })
                }),
        );
    }
    rows
}

fn apps(running: &Running<Lcore>) -> Vec<Value> {
    let of = |worker: &mut Worker<Lcore>| Some(worker.stage.parts()?.apps.counts_by_app());
    let mut rows = Vec::new();
    for (lcore, all) in ask(running, of) {
        for (app, counts) in all {
            rows.extend(counts.into_iter().map(|(counts, value)| {
                json!({ "lcore": lcore, "app": app, "counts": counts, "value": value })
            }));
        }
    }
    rows
}

/// What an lcore is to the packets: it receives, or has connections, or both; or it sends what the
/// others have made.
fn role(worker: &mut Worker<Lcore>) -> Option<&'static str> {
    let (steering, _) = worker.stage.steering()?;
    let (plan, me) = (steering.plan(), steering.me());
    Some(match (plan.is_home(me), plan.owns(me)) {
        (true, true) => "receives, owns",
        (true, false) => "receives",
        (false, true) => "owns",
        (false, false) => "sends",
    })
}

/// Names and values of a row.
type Counted = [(&'static str, u64); 16];

/// What steering and moves of an lcore have counted, with the entries of its maps now.
fn steered(worker: &mut Worker<Lcore>) -> Option<Counted> {
    let (steering, moves) = worker.stage.steering()?;
    let (counts, map) = (steering.counts(), steering.map());
    let entries = |map: &Map, phases: &[Phase]| -> u64 {
        phases.iter().map(|&phase| map.in_phase(phase) as u64).sum()
    };
    let fin = map.map_or(0, |map| entries(map, &[Phase::Fin, Phase::Closed]));
    Some([
        ("handed", counts.handed),
        ("misdirected", counts.misdirected),
        ("followed", counts.followed),
        ("no_slot", counts.no_slot),
        ("unknown", counts.unknown),
        ("whole", counts.whole),
        ("left", moves.left),
        ("came", moves.came),
        ("stayed", moves.stayed),
        ("returned", moves.returned),
        ("lost", moves.lost),
        ("refused", moves.refused),
        ("unmapped", moves.unmapped),
        ("entries", map.map_or(0, |map| map.len() as u64)),
        ("fin_entries", fin),
        ("map_bytes", map.map_or(0, |map| map.memory_bytes() as u64)),
    ])
}

/// Those of the former that are of now.
const OF_NOW: [&str; 3] = ["entries", "fin_entries", "map_bytes"];

fn steering(running: &Running<Lcore>) -> Vec<Value> {
    let of = |worker: &mut Worker<Lcore>| Some((role(worker)?, steered(worker)?));
    let row = |(lcore, (role, counts)): (String, (&str, Counted))| {
        let mut row = serde_json::Map::new();
        row.insert("lcore".into(), lcore.into());
        row.insert("role".into(), role.into());
        row.extend(counts.map(|(name, value)| (name.into(), value.into())));
        Value::Object(row)
    };
    ask(running, of).into_iter().map(row).collect()
}

/// Sums over all lcores.
fn sums(running: &Running<Lcore>) -> (Stats, SocketStats, [u64; 3]) {
    let of = |worker: &mut Worker<Lcore>| {
        let Parts { stack, apps, .. } = worker.stage.parts()?;
        let (now, lingering) = (stack.connections().into(), stack.lingering() as u64);
        let counts = [now, lingering, apps.aborted()];
        Some((*stack.tcp_stats(), *stack.stats(), counts))
    };
    let (mut tcp, mut sockets, mut sums) = (Stats::default(), SocketStats::default(), [0; 3]);
    for (_, (one, of_sockets, counts)) in ask(running, of) {
        tcp.add(&one);
        sockets.no_connection += of_sockets.no_connection;
        sockets.cookies_sent += of_sockets.cookies_sent;
        sockets.cookies_good += of_sockets.cookies_good;
        sockets.cookies_bad += of_sockets.cookies_bad;
        sockets.backlog_full += of_sockets.backlog_full;
        sockets.no_room += of_sockets.no_room;
        sockets.no_port += of_sockets.no_port;
        sockets.errors_ignored += of_sockets.errors_ignored;
        let both = sums.iter_mut().zip(counts);
        both.for_each(|(sum, count)| *sum += count);
    }
    (tcp, sockets, sums)
}

fn of_sockets(sockets: &SocketStats) -> [(&'static str, u64); 8] {
    [
        ("no_connection", sockets.no_connection),
        ("cookies_sent", sockets.cookies_sent),
        ("cookies_good", sockets.cookies_good),
        ("cookies_bad", sockets.cookies_bad),
        ("backlog_full", sockets.backlog_full),
        ("no_room_for_connection", sockets.no_room),
        ("no_port", sockets.no_port),
        ("icmp_errors_ignored", sockets.errors_ignored),
    ]
}

fn tcp(running: &Running<Lcore>) -> Vec<Value> {
    let (tcp, sockets, now) = sums(running);
    let row = |(what, value): (&str, u64)| json!({ "what": what, "value": value });
    let now = [
        ("connections", now[0]),
        ("lingering", now[1]),
        (DRAINED, now[2]),
    ];
    let all = now
        .into_iter()
        .chain(tcp.iter())
        .chain(of_sockets(&sockets));
    all.map(row).collect()
}

fn metrics(running: &Running<Lcore>, page: &mut Exposition) {
    let (tcp, sockets, now) = sums(running);
    let help = "Connections, half-open ones included.";
    page.family("tcp_connections", FamilyKind::Gauge, "", help);
    page.sample(&[], now[0]);
    page.family(
        "tcp_lingering",
        FamilyKind::Gauge,
        "",
        "Connections in TIME-WAIT.",
    );
    page.sample(&[], now[1]);
    let help = "What has happened to TCP segments and connections.";
    page.family("tcp_events", FamilyKind::Counter, "", help);
    let drained = [(DRAINED, now[2])];
    for (event, value) in tcp.iter().chain(of_sockets(&sockets)).chain(drained) {
        page.sample(&[("event", event)], value);
    }
    let of = |worker: &mut Worker<Lcore>| Some(worker.stage.parts()?.apps.counts_by_app());
    let all = ask(running, of);
    let samples = || {
        all.iter().flat_map(|(lcore, apps)| {
            let counts = apps.iter().flat_map(|(app, counts)| {
                let named = counts
                    .iter()
                    .map(move |&(counts, value)| (app, counts, value));
                named.map(|(app, counts, value)| (app.as_str(), counts, value))
            });
            counts.map(move |(app, counts, value)| (lcore.as_str(), app, counts, value))
        })
    };
    let help = "Connections that an application has now.";
    page.family("app_open", FamilyKind::Gauge, "", help);
    for (lcore, app, _, value) in samples().filter(|(_, _, counts, _)| *counts == OPEN) {
        page.sample(&[("app", app), ("lcore", lcore)], value);
    }
    let help = "What an application has counted.";
    page.family("app_events", FamilyKind::Counter, "", help);
    for (lcore, app, counts, value) in samples().filter(|(_, _, counts, _)| *counts != OPEN) {
        let labels = [("app", app), ("lcore", lcore), ("counts", counts)];
        page.sample(&labels, value);
    }
    let all = ask(running, steered);
    let samples = || {
        all.iter().flat_map(|(lcore, counts)| {
            counts
                .iter()
                .map(|&(name, value)| (lcore.as_str(), name, value))
        })
    };
    let help = "Packets and connections that steering has seen.";
    page.family("steering_events", FamilyKind::Counter, "", help);
    for (lcore, name, value) in samples().filter(|(_, name, _)| !OF_NOW.contains(name)) {
        page.sample(&[("event", name), ("lcore", lcore)], value);
    }
    let help = "Entries of a home's Connection Map and FIN Map.";
    page.family("steering_entries", FamilyKind::Gauge, "", help);
    for (lcore, _, value) in samples().filter(|(_, name, _)| *name == "entries") {
        page.sample(&[("lcore", lcore)], value);
    }
}
