//! Tables and metrics of NAT: pools, mappings and subscribers.

use std::net::IpAddr;

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::socket::Problem;
use linerate_control::AtWork;
use linerate_routing::model::{Cidr, Prefix};
use serde_json::json;

use crate::nat::mapping::Mapping;
use crate::nat::ports::STEP;
use crate::nat::rules::Rules;
use crate::nat::subscribers::Subscriber;
use crate::nat::{Endpoint, Nat, Protocol, Refused};
use crate::path::on_path;
use crate::stages::flows::Shared;

pub(crate) const POOLS: Table = Table {
    what: "nat",
    names: &["pool"],
    counters: &["refused"],
};
/// They may be long: only rows that are wanted are made.
pub(crate) const MAPPINGS: Table = Table {
    what: "mappings",
    names: &[],
    counters: &[],
};
pub(crate) const SUBSCRIBERS: Table = Table {
    what: "subscribers",
    names: &[],
    counters: &[],
};

/// Mappings or subscribers that a worker looks through between two bursts.
const PLACES: u32 = 1024;

/// What one pool has, of all workers.
#[derive(Clone, Copy, Default)]
struct Pool {
    /// Free ports from 1024 on.
    free: [u64; Protocol::COUNT],
    mappings: u64,
    subscribers: u64,
    blocks: u64,
    refused: u64,
}

/// What NAT has counted, of all workers.
#[derive(Default)]
struct Sums {
    /// By number.
    pools: Vec<Pool>,
    refused: [u64; Refused::COUNT],
    /// Buckets, those of each worker counted.
    buckets: u64,
    /// Records for which workers had no room.
    lost: u64,
    mappings: u64,
    subscribers: u64,
    calls: u64,
}

impl Sums {
    /// Of one worker: what costs little, whatever it has.
    fn of(nat: &Nat) -> Self {
        let rules = nat.rules();
        let mut pools = vec![Pool::default(); rules.config.pools.len()];
        for ((number, pool), refused) in (0..).zip(&mut pools).zip(nat.shortages()) {
            pool.refused = *refused;
            for &id in rules.positions(number) {
                for protocol in Protocol::ALL {
                    pool.free[protocol.index()] += u64::from(nat.ports.free(id, protocol));
                }
            }
        }
        Self {
            pools,
            refused: nat.refused().map(|(_, count)| count),
            buckets: nat.ports.mine().len().into(),
            lost: nat.log.lost(),
            mappings: nat.mappings.len() as u64,
            subscribers: nat.subscribers.len() as u64,
            calls: nat.calls.len() as u64,
        }
    }

    fn add(&mut self, other: &Self) {
        let len = self.pools.len().max(other.pools.len());
        self.pools.resize(len, Pool::default());
        for (sum, more) in self.pools.iter_mut().zip(&other.pools) {
            for (sum, more) in sum.free.iter_mut().zip(more.free) {
                *sum += more;
            }
            sum.refused += more.refused;
        }
        for (sum, more) in self.refused.iter_mut().zip(other.refused) {
            *sum += more;
        }
        self.buckets += other.buckets;
        self.lost += other.lost;
        self.mappings += other.mappings;
        self.subscribers += other.subscribers;
        self.calls += other.calls;
    }

    fn all(at_work: &AtWork<'_>) -> Self {
        let mut all = Self::default();
        for worker in at_work.running.handles() {
            if let Some(sums) = on_path(worker, |path, _| Self::of(path.flows().nat())) {
                all.add(&sums);
            }
        }
        all
    }

    /// Ports from 1024 on of a pool, of each protocol, as often as workers have them.
    fn ports(&self, rules: &Rules, pool: u16) -> [u64; Protocol::COUNT] {
        let mut ports = [0; Protocol::COUNT];
        for outside in rules
            .positions(pool)
            .iter()
            .filter_map(|id| rules.address(*id))
        {
            for protocol in Protocol::ALL {
                ports[protocol.index()] += u64::from(outside.legal.high(protocol));
            }
        }
        // Without dispatch each worker has all.
        ports.map(|ports| ports * self.buckets.div_ceil(256))
    }
}

/// Adds the rows of one of these tables that fit a filter.
pub(crate) fn rows(
    table: &Table,
    shared: &Shared,
    filter: &str,
    at_work: &AtWork<'_>,
    rows: &mut Rows,
) -> Result<(), Problem> {
    let words = words(filter, &shared.rules)?;
    match table.what {
        "mappings" => mappings(shared, &words, at_work, rows),
        "subscribers" => subscribers(shared, &words, at_work, rows),
        _ => pools(&shared.rules, &words, at_work, rows),
    }
    Ok(())
}

/// Adds the pools.
fn pools(rules: &Rules, words: &[Word], at_work: &AtWork<'_>, rows: &mut Rows) {
    let mut sums = Sums::all(at_work);
    sums.pools.resize(rules.config.pools.len(), Pool::default());
    visit(at_work, parts_of_mappings, |_, mapping: &Mapping| {
        if let Some(pool) = sums.pools.get_mut(usize::from(mapping.inside.pool)) {
            pool.mappings += 1;
        }
    });
    visit(at_work, parts_of_subscribers, |_, one: &Subscriber| {
        if let Some(pool) = sums.pools.get_mut(usize::from(one.who.pool)) {
            pool.subscribers += 1;
            pool.blocks += one.blocks().count() as u64;
        }
    });
    for (number, config) in (0..).zip(&rules.config.pools) {
        let wanted = words.iter().all(|word| match word {
            Word::Pool(pool) => *pool == number,
            Word::Within(prefix) => config.each().any(|address| prefix.contains(address)),
            Word::Port(_) | Word::Protocol(_) => true,
        });
        if !wanted {
            continue;
        }
        let (pool, ports) = (&sums.pools[usize::from(number)], sums.ports(rules, number));
        rows.add_with(|| {
            let used = |of: Protocol| ports[of.index()].saturating_sub(pool.free[of.index()]);
            let free = |of: Protocol| pool.free[of.index()];
            json!({
                "pool": config.name,
                "addresses": rules.positions(number).len(),
                "tcp_used": used(Protocol::Tcp),
                "tcp_free": free(Protocol::Tcp),
                "udp_used": used(Protocol::Udp),
                "udp_free": free(Protocol::Udp),
                "icmp_used": used(Protocol::Icmp),
                "icmp_free": free(Protocol::Icmp),
                "mappings": pool.mappings,
                "subscribers": pool.subscribers,
                "blocks": pool.blocks,
                "refused": pool.refused,
            })
        });
    }
}

/// A condition of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// Inside or outside is in it.
    Within(Prefix),
    /// The port inside or outside.
    Port(u16),
    Protocol(Protocol),
    Pool(u16),
}

/// The conditions of a filter: all words of it have to hold.
fn words(filter: &str, rules: &Rules) -> Result<Vec<Word>, Problem> {
    let mut all = Vec::new();
    for text in filter.split_whitespace() {
        let address = text.parse::<IpAddr>().map(Prefix::host).ok();
        let prefix = || text.parse::<Cidr>().ok().map(|cidr| cidr.network());
        let named = |one: &Protocol| one.name() == text;
        let pool = || {
            (0..)
                .zip(&rules.config.pools)
                .find(|(_, pool)| pool.name == text)
        };
        let found = (address.or_else(prefix).map(Word::Within))
            .or_else(|| text.parse().ok().map(Word::Port))
            .or_else(|| Protocol::ALL.into_iter().find(named).map(Word::Protocol))
            .or_else(|| pool().map(|(number, _)| Word::Pool(number)));
        all.push(found.ok_or_else(|| {
            let problem = format!("`{text}` is no pool, address, prefix, port or protocol");
            Problem::new(problem, "`linerate ctl show nat` has the names of pools")
        })?);
    }
    Ok(all)
}

fn holds(word: Word, ends: &[Endpoint], protocol: Option<Protocol>, pool: u16) -> bool {
    match word {
        Word::Within(prefix) => ends.iter().any(|end| prefix.contains(end.address)),
        Word::Port(port) => ends.iter().any(|end| end.port == port),
        Word::Protocol(one) => protocol == Some(one),
        Word::Pool(number) => pool == number,
    }
}

/// Some of a worker's values, and where to go on.
type Part<T> = (Vec<T>, Option<u32>);

fn parts_of_mappings(nat: &Nat, from: u32) -> Part<Mapping> {
    let (part, next) = nat.mappings.part(from, PLACES);
    (part.copied().collect(), next)
}

fn parts_of_subscribers(nat: &Nat, from: u32) -> Part<Subscriber> {
    let (part, next) = nat.subscribers.part(from, PLACES);
    (part.copied().collect(), next)
}

/// Looks at all values of every worker, a part at a time: it forwards between them.
fn visit<T: Send + 'static>(
    at_work: &AtWork<'_>,
    part: fn(&Nat, u32) -> Part<T>,
    mut see: impl FnMut(usize, &T),
) {
    for (number, worker) in at_work.running.handles().enumerate() {
        let mut from = Some(0);
        while let Some(place) = from {
            let found = on_path(worker, move |path, _| part(path.flows().nat(), place));
            let Some((values, next)) = found else {
                break;
            };
            values.iter().for_each(|value| see(number, value));
            from = next;
        }
    }
}

/// Adds the mappings.
fn mappings(shared: &Shared, words: &[Word], at_work: &AtWork<'_>, rows: &mut Rows) {
    let rules = &shared.rules;
    visit(at_work, parts_of_mappings, |worker, mapping: &Mapping| {
        let inside = &mapping.inside;
        let Some(outside) = rules.address(mapping.outside.address) else {
            return;
        };
        let outside = Endpoint::new(outside.address, mapping.outside.port);
        let ends = [inside.endpoint, outside];
        let fits = |word: &Word| holds(*word, &ends, Some(inside.protocol), inside.pool);
        if words.iter().all(fits) {
            rows.add_with(|| {
                json!({
                    "protocol": inside.protocol.name(),
                    "inside": inside.endpoint.to_string(),
                    "outside": outside.to_string(),
                    "pool": name(rules, inside.pool),
                    "zone": zone(shared, inside.zone),
                    "flows": mapping.flows,
                    "worker": worker,
                })
            });
        }
    });
}

/// Adds the subscribers.
fn subscribers(shared: &Shared, words: &[Word], at_work: &AtWork<'_>, rows: &mut Rows) {
    let rules = &shared.rules;
    visit(at_work, parts_of_subscribers, |worker, one: &Subscriber| {
        let outside = rules.address(one.outside).map(|outside| outside.address);
        let addresses = [Some(one.who.address), outside];
        let ends: Vec<Endpoint> = (addresses.into_iter().flatten())
            .map(|address| Endpoint::new(address, 0))
            .collect();
        let fits = |word: &Word| match word {
            Word::Port(port) => one.blocks().any(|block| block.has(*port)),
            word => holds(*word, &ends, None, one.who.pool),
        };
        if words.iter().all(fits) {
            rows.add_with(|| {
                let blocks = one.blocks();
                let blocks =
                    blocks.map(|block| format!("{}+{STEP} ({})", block.first(), block.len));
                json!({
                    "inside": one.who.address,
                    "outside": outside,
                    "pool": name(rules, one.who.pool),
                    "zone": zone(shared, one.who.zone),
                    "ports": one.ports,
                    "blocks": blocks.collect::<Vec<_>>().join(", "),
                    "worker": worker,
                })
            });
        }
    });
}

fn name(rules: &Rules, pool: u16) -> &str {
    let pool = rules.config.pools.get(usize::from(pool));
    pool.map_or("?", |pool| &pool.name)
}

fn zone(shared: &Shared, number: u16) -> &str {
    let mut zones = shared.policy.zones().iter();
    let found = zones.find(|(zone, _)| u16::from(zone.number()) == number);
    found.map_or("?", |(_, name)| name)
}

/// Adds what NAT has and has counted to the metrics page.
pub(crate) fn metrics(shared: &Shared, at_work: &AtWork<'_>, page: &mut Exposition) {
    let rules = &shared.rules;
    if rules.is_empty() {
        return;
    }
    let sums = Sums::all(at_work);
    let pools = || rules.config.pools.iter().zip(&sums.pools);
    let mut ports = |family, help, of: &dyn Fn(u16, &Pool) -> [u64; Protocol::COUNT]| {
        page.family(family, FamilyKind::Gauge, "", help);
        for (number, (config, pool)) in (0..).zip(pools()) {
            for (protocol, ports) in Protocol::ALL.into_iter().zip(of(number, pool)) {
                let labels = [
                    ("pool", config.name.as_str()),
                    ("protocol", protocol.name()),
                ];
                page.sample(&labels, ports);
            }
        }
    };
    let help = "Ports from 1024 on that pools have given to flows.";
    ports("nat_ports_used", help, &|number, pool| {
        let all = sums.ports(rules, number);
        std::array::from_fn(|at| all[at].saturating_sub(pool.free[at]))
    });
    let help = "Ports from 1024 on that pools could give to flows.";
    ports("nat_ports_free", help, &|_, pool| pool.free);
    let help = "Packets for which a pool had no port.";
    page.family("nat_pool_refused", FamilyKind::Counter, "", help);
    for (config, pool) in pools() {
        page.sample(&[("pool", config.name.as_str())], pool.refused);
    }
    let help = "First packets that translation has refused, by reason.";
    page.family("nat_refused", FamilyKind::Counter, "", help);
    for (why, count) in Refused::ALL.into_iter().zip(sums.refused) {
        page.sample(&[("why", why.name())], count);
    }
    for (family, help, value) in [
        (
            "nat_mappings",
            "Inside endpoints with an outside port.",
            sums.mappings,
        ),
        (
            "nat_subscribers",
            "Hosts inside with an outside address of their own.",
            sums.subscribers,
        ),
        (
            "nat_calls",
            "Packets between hosts inside that wait for the other side.",
            sums.calls,
        ),
    ] {
        page.family(family, FamilyKind::Gauge, "", help);
        page.sample(&[], value);
    }
    if let Some(log) = &shared.log {
        let help = "Records of sessions, mappings and blocks, and what became of them.";
        page.family("nat_log_records", FamilyKind::Counter, "", help);
        let (written, lost) = log.counts();
        page.sample(&[("result", "written")], written);
        page.sample(&[("result", "lost")], lost + sums.lost);
    }
}
