//! `[nat]` with `[[nat.pool]]`, `[[nat.source]]`, `[[nat.static]]`, `[[nat.forward]]`,
//! `[[nat.nat64]]` and `[[nat.nptv6]]`: read, and checked as a whole.
//!
//! An outside address belongs to one pool, one static rule or the gateway itself: then everybody
//! agrees on whom a packet is for that it gets.

mod log;
#[cfg(test)]
mod tests;
mod values;

use std::net::IpAddr;

use linerate_appliance::config::{At, Section};
use linerate_control::config::words;
use linerate_routing::model::{Cidr, Prefix};

use super::Protocol;
use super::mapping::Filtering;
use super::nat64::Prefix64;
use super::nptv6::Prefixes;
use super::ports::POOL_ADDRESSES;
use super::rules::{
    Action, Config, Forward, LogConfig, Nat64, Nptv6, Place, Pool, SourceRule, Static, last,
};
use super::subscribers::MOST_BLOCKS;
use super::translate::Limits;
use values::{
    conflict, interface, is_link_local, pool_named, prefix, range_of_addresses, range_of_ports,
    size, zone,
};

/// What the rest of the file says, by number.
pub struct Known<'a> {
    /// Names of zones.
    pub zones: &'a [&'a str],
    /// Interfaces and their addresses.
    pub interfaces: &'a [(&'a str, &'a [Cidr])],
    /// Pools that other stanzas use.
    pub pools_used: &'a [String],
}

const ADDRESSES: &str =
    "a list such as [\"198.51.100.1\", \"198.51.100.8-198.51.100.15\", \"203.0.113.0/28\"]";
const ADDRESS: &str = "an address such as \"198.51.100.1\"";
const PREFIX: &str = "a prefix such as \"10.0.0.0/8\", or an address";
const PORTS: &str = "a port or a range such as \"1024-65535\"";
const POOL: &str = "the name of a [[nat.pool]]";
const STATIC: &str = "an address or a prefix of its own";

/// The most outside addresses of all pools.
const MOST_ADDRESSES: usize = 65_535;

/// A pool, where its stanza is, and whether a rule uses it.
struct Entry {
    pool: Pool,
    line: usize,
    is_used: bool,
    /// What it says itself about its sessions being recorded.
    logs: Option<At<bool>>,
}

/// Reads the stanzas of NAT.
pub fn read(file: &Section<'_>, known: &Known<'_>) -> Config {
    let Some(nat) = file.table("nat", "nat", "a table: [nat], [[nat.pool]], ...") else {
        return Config::default();
    };
    let usual = Limits::default();
    let most = |key| {
        nat.number::<u32>(key, 16..=100_000_000)
            .map(|at| at.value as usize)
    };
    let limits = Limits {
        mappings: most("mappings").unwrap_or(usual.mappings),
        subscribers: most("subscribers").unwrap_or(usual.subscribers),
        ..usual
    };
    let log = log::read(&nat);
    let limits = Limits {
        records: log.as_ref().map_or(usual.records, |log| log.records),
        ..limits
    };
    let mut pools = pools(&nat, known);
    let sources = sources(&nat, known, &mut pools);
    let statics = statics(&nat, known, &pools);
    let forwards = forwards(&nat, known, &mut pools, &statics);
    let nat64 = nat64(&nat, known, &mut pools);
    let nptv6 = nptv6(&nat, known);
    nat.end();
    log::pools(&nat, log.as_ref(), &mut pools);
    let is_used = |entry: &&Entry| entry.is_used || known.pools_used.contains(&entry.pool.name);
    for entry in pools.iter().filter(|entry| !is_used(entry)) {
        let problem = format!("no rule uses pool `{}`", entry.pool.name);
        let advice = "name it in a [[nat.source]], or take it out";
        nat.notes().warn(entry.line, "nat.pool", problem, advice);
    }
    Config {
        limits,
        pools: pools.into_iter().map(|entry| entry.pool).collect(),
        sources,
        statics: statics.into_iter().map(|at| at.value).collect(),
        forwards,
        nat64,
        nptv6,
        log: LogConfig {
            blocks: log.as_ref().is_some_and(|log| log.blocks),
            to: log.map(|log| log.to),
        },
    }
}

/// The tables of a list such as all `[[nat.pool]]`.
fn each<'a>(nat: &Section<'a>, name: &str, key: &'static str, keys: &str) -> Vec<Section<'a>> {
    let legal = format!("tables: [[{name}]] with {keys}");
    let items = nat.list(key, &legal).into_iter();
    items
        .filter_map(|(item, _)| nat.within(name, item, &legal))
        .collect()
}

fn pools(nat: &Section<'_>, known: &Known<'_>) -> Vec<Entry> {
    let mut pools: Vec<Entry> = Vec::new();
    for section in each(nat, "nat.pool", "pool", "name and addresses") {
        let name = section.required("name", "a name such as \"wan\"");
        if let Some(At { value, line }) = &name
            && pools.iter().any(|entry| entry.pool.name == *value)
        {
            let problem = format!("`{value}` names two pools");
            section.wrong(*line, "name", problem, "a name of its own");
        }
        let listed = section.texts("addresses", ADDRESSES, range_of_addresses);
        let mut ranges: Vec<(IpAddr, IpAddr)> = Vec::new();
        for At { value, line } in listed {
            if let Some(problem) = conflict(value, &ranges, &pools, known) {
                let legal = "addresses of no other pool, and of no interface";
                section.wrong(line, "addresses", problem, legal);
                continue;
            }
            if ranges
                .iter()
                .any(|(first, _)| first.is_ipv4() != value.0.is_ipv4())
            {
                let problem = "these addresses are of two families";
                section.wrong(line, "addresses", problem, "a pool for each family");
                continue;
            }
            ranges.push(value);
        }
        let count: u128 = ranges.iter().map(size).sum();
        if ranges.is_empty() || count > POOL_ADDRESSES as u128 {
            let legal = format!("1 to {POOL_ADDRESSES} addresses");
            let line = section
                .value("addresses")
                .map_or(section.line, |(_, line)| line);
            let problem = match ranges.is_empty() {
                true => "the pool has no address".to_string(),
                false => format!("the pool has {count} addresses"),
            };
            section.wrong(line, "addresses", problem, legal);
            // Checks of other stanzas walk through all of them.
            ranges.clear();
        }
        let mut pool = Pool::new(&name.map_or(String::new(), |name| name.value), ranges);
        let logs = options(&section, &mut pool);
        section.end();
        pools.push(Entry {
            pool,
            line: section.line,
            is_used: false,
            logs,
        });
    }
    let all: u128 = pools
        .iter()
        .flat_map(|entry| &entry.pool.addresses)
        .map(size)
        .sum();
    if all > MOST_ADDRESSES as u128 {
        let problem = format!("all pools have {all} addresses");
        let legal = format!("{MOST_ADDRESSES} at most");
        nat.wrong(nat.line, "pool", problem, legal);
    }
    pools
}

/// Whether keys of [`options`] are there.
fn has_options(section: &Section<'_>) -> bool {
    let keys = [
        "ports",
        "mapping",
        "filtering",
        "paired",
        "preserve",
        "block",
        "blocks",
    ];
    let more = ["host_ports", "log"];
    keys.iter().chain(&more).any(|key| section.has(key))
}

/// How a pool gives its ports away; returns what it says about records of its sessions.
fn options(section: &Section<'_>, pool: &mut Pool) -> Option<At<bool>> {
    if let Some(At { value, line }) = section.word("ports", PORTS, range_of_ports) {
        if *value.end() < 1024 || *value.start() == 0 {
            let problem = "ports that are given to flows are from 1024 on, and low ones only to \
                           flows from the same port";
            section.wrong(line, "ports", problem, "a range that ends at 1024 or above");
        } else {
            pool.ports = value;
        }
    }
    let mapping = [("independent", true), ("dependent", false)];
    if let Some(at) = section.choice("mapping", &mapping) {
        pool.is_independent = at.value;
    }
    let ways = [
        ("independent", Filtering::EndpointIndependent),
        ("address", Filtering::AddressDependent),
        ("address-port", Filtering::AddressAndPortDependent),
    ];
    if let Some(at) = section.choice("filtering", &ways) {
        pool.filtering = at.value;
        if !pool.is_independent && at.value != Filtering::AddressAndPortDependent {
            let problem = "a mapping that depends on the remote end lets nobody else in";
            let legal = "\"address-port\", or mapping = \"independent\"";
            section.wrong(at.line, "filtering", problem, legal);
        }
    }
    if !pool.is_independent {
        pool.filtering = Filtering::AddressAndPortDependent;
    }
    pool.is_paired = section.switch("paired").is_none_or(|at| at.value);
    pool.preserves = section.switch("preserve").is_none_or(|at| at.value);
    pool.host_ports = section
        .number("host_ports", 1..=1_000_000)
        .map(|at| at.value);
    if let Some(At { value, line }) = section.number::<u16>("block", 4..=128) {
        match value.is_power_of_two() {
            true => pool.block_ports = value,
            false => {
                let problem = format!("{value} is no power of two");
                section.wrong(line, "block", problem, "4, 8, 16, 32, 64 or 128 ports");
            }
        }
    }
    if let Some(At { value, line }) = section.number("blocks", 1..=MOST_BLOCKS as u16) {
        pool.blocks = value;
        if !section.has("block") {
            section.wrong(line, "blocks", "the pool has no blocks", "with block = 64");
        }
    }
    section.switch("log")
}

fn sources(nat: &Section<'_>, known: &Known<'_>, pools: &mut Vec<Entry>) -> Vec<SourceRule> {
    let mut rules: Vec<SourceRule> = Vec::new();
    for section in each(nat, "nat.source", "source", "pool, masquerade or keep") {
        let from = Place {
            zone: zone(&section, "from", known),
            interface: None,
        };
        let mut to = Place {
            zone: zone(&section, "to", known),
            interface: interface(&section, "interface", known).map(|at| at.value),
        };
        let [source, destination] = ["source", "destination"].map(|key| {
            let at = section.read(key, PREFIX, prefix);
            at.map(|at| at.value)
        });
        let protocol = section.word("protocol", "a name or a number, or any", words::protocol);
        let protocol = protocol.and_then(|at| at.value);
        let ways = ["pool", "masquerade", "keep"].map(|key| section.has(key));
        let actions: Vec<Action> = match ways {
            [true, false, false] => pool_named(&section, "pool", pools)
                .map(|number| {
                    let pool = &pools[usize::from(number)].pool;
                    check_family(&section, pool, [source, destination]);
                    Action::Pool(number)
                })
                .into_iter()
                .collect(),
            [false, true, false] => {
                let named = interface(&section, "masquerade", known);
                if let Some(at) = &named
                    && to == Place::default()
                {
                    to.interface = Some(at.value);
                }
                named.map_or(Vec::new(), |at| masquerade(&section, &at, known, pools))
            }
            [false, false, true] => match section.switch("keep") {
                Some(At { value: true, .. }) => vec![Action::Keep],
                Some(At { line, .. }) => {
                    section.wrong(line, "keep", "the rule does nothing", "true");
                    Vec::new()
                }
                None => Vec::new(),
            },
            _ => {
                let problem = "the rule does not say what the source becomes";
                let legal = "one of pool, masquerade and keep = true";
                section.wrong(section.line, "pool", problem, legal);
                // What is there is known.
                let _ = (section.value("pool"), section.value("masquerade"));
                let _ = section.value("keep");
                Vec::new()
            }
        };
        if ways[1] {
            // Read already, or not legal where the interface is unknown.
            let mut nobody = Pool::new("", Vec::new());
            options(&section, &mut nobody);
        }
        if !section.end() {
            continue;
        }
        for action in actions {
            let rule = SourceRule {
                from,
                to,
                source,
                destination,
                protocol,
                action,
            };
            let is_same = |other: &&SourceRule| SourceRule { action, ..**other } == rule;
            if !ways[1] && rules.iter().any(|other| is_same(&other)) {
                let problem = "an earlier rule fits the same packets: this one never decides";
                nat.notes()
                    .warn(section.line, "nat.source", problem, "take one out");
            }
            rules.push(rule);
        }
    }
    rules
}

/// A pool of an interface's addresses for each family that it has.
fn masquerade(
    section: &Section<'_>,
    interface: &At<u16>,
    known: &Known<'_>,
    pools: &mut Vec<Entry>,
) -> Vec<Action> {
    let (name, addresses) = known.interfaces[usize::from(interface.value)];
    let mut actions = Vec::new();
    for is_v4 in [true, false] {
        let of_family = addresses
            .iter()
            .filter(|cidr| cidr.address.is_ipv4() == is_v4);
        let ranges: Vec<_> = of_family
            .map(|cidr| (cidr.address, cidr.address))
            .filter(|(address, _)| !is_link_local(*address))
            .collect();
        if ranges.is_empty() {
            continue;
        }
        let name = format!("interface {name} {}", if is_v4 { "ipv4" } else { "ipv6" });
        if let Some(at) = pools.iter().position(|entry| entry.pool.name == name) {
            if has_options(section) {
                let problem = "an earlier rule says how this interface's ports are given";
                let legal = "these keys in the first rule that names it";
                section.wrong(section.line, "masquerade", problem, legal);
            }
            actions.push(Action::Pool(at as u16));
            continue;
        }
        let mut pool = Pool::new(&name, ranges);
        let logs = options(section, &mut pool);
        pool.is_interface = true;
        actions.push(Action::Pool(pools.len() as u16));
        pools.push(Entry {
            pool,
            line: section.line,
            is_used: true,
            logs,
        });
    }
    if actions.is_empty() {
        let problem = format!("interface `{name}` has no address");
        section.wrong(
            interface.line,
            "masquerade",
            problem,
            "an interface with addresses",
        );
    }
    actions
}

fn check_family(section: &Section<'_>, pool: &Pool, prefixes: [Option<Prefix>; 2]) {
    let Some((first, _)) = pool.addresses.first() else {
        return;
    };
    for (key, prefix) in ["source", "destination"].into_iter().zip(prefixes) {
        if let Some(prefix) = prefix
            && prefix.first().is_ipv4() != first.is_ipv4()
        {
            let line = section.value(key).map_or(section.line, |(_, line)| line);
            let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
            let problem = format!("pool `{}` has {family} addresses", pool.name);
            section.wrong(line, key, problem, format!("a prefix of {family}"));
        }
    }
}

fn statics(nat: &Section<'_>, known: &Known<'_>, pools: &[Entry]) -> Vec<At<Static>> {
    let mut rules: Vec<At<Static>> = Vec::new();
    for section in each(nat, "nat.static", "static", "inside and outside") {
        let [inside, outside] = ["inside", "outside"].map(|key| {
            section.requires(key, PREFIX);
            section.read(key, PREFIX, prefix)
        });
        let to = Place {
            zone: zone(&section, "to", known),
            interface: interface(&section, "interface", known).map(|at| at.value),
        };
        if let (Some(inside), Some(outside)) = (&inside, &outside) {
            let shape = |prefix: &Prefix| (prefix.first().is_ipv4(), prefix.len());
            if shape(&inside.value) != shape(&outside.value) {
                let problem = format!("{} and {} differ", inside.value, outside.value);
                let legal = "prefixes of one family and length";
                section.wrong(outside.line, "outside", problem, legal);
            }
            let range = (outside.value.first(), last(&outside.value));
            if let Some(problem) = conflict(range, &[], pools, known) {
                section.wrong(outside.line, "outside", problem, STATIC);
            }
            let overlaps = |a: &Prefix, b: &Prefix| a.contains(b.first()) || b.contains(a.first());
            for At { value, line } in &rules {
                let pairs = [
                    ("inside", &value.inside, inside),
                    ("outside", &value.outside, outside),
                ];
                for (key, other, mine) in pairs {
                    if overlaps(other, &mine.value) {
                        let problem = format!("{other} of line {line} overlaps it");
                        section.wrong(mine.line, key, problem, STATIC);
                    }
                }
            }
            if section.end() {
                let (inside, outside) = (inside.value, outside.value);
                rules.push(At {
                    value: Static {
                        inside,
                        outside,
                        to,
                    },
                    line: section.line,
                });
            }
            continue;
        }
        section.end();
    }
    rules
}

fn forwards(
    nat: &Section<'_>,
    known: &Known<'_>,
    pools: &mut [Entry],
    statics: &[At<Static>],
) -> Vec<Forward> {
    let mut rules: Vec<(Forward, usize)> = Vec::new();
    for section in each(
        nat,
        "nat.forward",
        "forward",
        "outside, protocol, ports and inside",
    ) {
        let [outside, inside] = ["outside", "inside"].map(|key| {
            section.requires(key, ADDRESS);
            section.parsed::<IpAddr>(key, ADDRESS)
        });
        let protocols = [
            ("tcp", Some(Protocol::Tcp)),
            ("udp", Some(Protocol::Udp)),
            ("any", None),
        ];
        section.requires("protocol", "tcp, udp or any");
        let protocol = section.choice("protocol", &protocols);
        let ports = section.word("ports", PORTS, range_of_ports);
        let inside_port = section.number::<u16>("inside_port", 1..=u16::MAX);
        let from = Place {
            zone: zone(&section, "from", known),
            interface: interface(&section, "interface", known).map(|at| at.value),
        };
        let source_pool = pool_named(&section, "source_pool", pools);
        match (&protocol, &ports, &inside_port) {
            (Some(At { value: Some(_), .. }), None, _) if !section.has("ports") => {
                let problem = "it is missing";
                section.wrong(section.line, "ports", problem, PORTS);
            }
            (Some(At { value: None, .. }), Some(At { line, .. }), _) => {
                let legal = "with protocol = \"tcp\" or \"udp\"";
                section.wrong(*line, "ports", "any protocol has no ports", legal);
            }
            (Some(At { value: None, .. }), None, Some(At { line, .. })) => {
                let legal = "with protocol = \"tcp\" or \"udp\"";
                section.wrong(*line, "inside_port", "any protocol has no ports", legal);
            }
            _ => {}
        }
        let range = ports.as_ref().map_or(0..=u16::MAX, |at| at.value.clone());
        let base = inside_port.as_ref().map_or(*range.start(), |at| at.value);
        let width = range.end() - range.start();
        if let Some(at) = inside_port
            .as_ref()
            .filter(|_| base.checked_add(width).is_none())
        {
            let problem = format!(
                "{} ports from {base} on end above 65535",
                u32::from(width) + 1
            );
            section.wrong(at.line, "inside_port", problem, "a lower port");
        }
        if let (Some(outside), Some(inside), Some(protocol)) = (outside, inside, protocol) {
            if outside.value.is_ipv4() != inside.value.is_ipv4() {
                let problem = "outside and inside are of two families";
                section.wrong(inside.line, "inside", problem, "both IPv4 or both IPv6");
            }
            if let Some(at) = statics
                .iter()
                .find(|at| at.value.outside.contains(outside.value))
            {
                let problem = format!(
                    "{} is of the static rule of line {}",
                    outside.value, at.line
                );
                section.wrong(
                    outside.line,
                    "outside",
                    problem,
                    "an address without static rule",
                );
            }
            let rule = Forward {
                outside: outside.value,
                protocol: protocol.value,
                ports: range,
                inside: inside.value,
                inside_port: base,
                from,
                source_pool,
            };
            if let Some((_, line)) = rules.iter().find(|(other, _)| meets(other, &rule)) {
                let problem = format!("the forward of line {line} has some of these ports");
                let legal = "ports, a protocol or an address of its own";
                section.wrong(section.line, "ports", problem, legal);
            }
            if section.end() {
                rules.push((rule, section.line));
            }
            continue;
        }
        section.end();
    }
    rules.into_iter().map(|(rule, _)| rule).collect()
}

/// Whether two forwards are for the same packets.
fn meets(a: &Forward, b: &Forward) -> bool {
    a.outside == b.outside
        && a.protocol == b.protocol
        && a.ports.start() <= b.ports.end()
        && b.ports.start() <= a.ports.end()
}

fn nat64(nat: &Section<'_>, known: &Known<'_>, pools: &mut [Entry]) -> Vec<Nat64> {
    let mut rules: Vec<Nat64> = Vec::new();
    for section in each(nat, "nat.nat64", "nat64", "pool and prefix") {
        let legal = "a prefix of 32, 40, 48, 56, 64 or 96 bits, such as \"64:ff9b::/96\"";
        let read = |text: &str| match prefix(text)? {
            Prefix::V6(v6) => Prefix64::new(v6).ok_or(format!("`{text}` is none of RFC 6052")),
            Prefix::V4(_) => Err(format!("`{text}` is IPv4")),
        };
        let usual = At {
            value: Prefix64::well_known(),
            line: section.line,
        };
        let stated = section.read("prefix", legal, read);
        let prefix = stated.or_else(|| (!section.has("prefix")).then_some(usual));
        section.requires("pool", POOL);
        let pool = pool_named(&section, "pool", pools);
        let from = Place {
            zone: zone(&section, "from", known),
            interface: None,
        };
        if let Some(pool) = pool {
            let entry = &pools[usize::from(pool)];
            if entry
                .pool
                .addresses
                .iter()
                .any(|(first, _)| first.is_ipv6())
            {
                let problem = format!("pool `{}` has IPv6 addresses", entry.pool.name);
                section.wrong(section.line, "pool", problem, "a pool of IPv4 addresses");
            }
        }
        if let Some(prefix) = &prefix
            && rules.iter().any(|other| {
                let (a, b) = (other.prefix.prefix(), prefix.value.prefix());
                a.contains(b.first()) || b.contains(a.first())
            })
        {
            let problem = "another rule's prefix overlaps it";
            section.wrong(prefix.line, "prefix", problem, "a prefix of its own");
        }
        if let (true, Some(prefix), Some(pool)) = (section.end(), prefix, pool) {
            rules.push(Nat64 {
                prefix: prefix.value,
                pool,
                from,
            });
        }
    }
    rules
}

fn nptv6(nat: &Section<'_>, known: &Known<'_>) -> Vec<Nptv6> {
    let mut rules = Vec::new();
    for section in each(nat, "nat.nptv6", "nptv6", "inside and outside") {
        let legal = "an IPv6 prefix of 1 to 64 bits such as \"fd01:203:405::/48\"";
        let read = |text: &str| match prefix(text)? {
            Prefix::V6(v6) if (1..=64).contains(&v6.len()) => Ok(v6),
            _ => Err(format!("`{text}` is none")),
        };
        let [inside, outside] = ["inside", "outside"].map(|key| {
            section.requires(key, legal);
            section.read(key, legal, read).map(|at| at.value)
        });
        let to = Place {
            zone: zone(&section, "to", known),
            interface: interface(&section, "interface", known).map(|at| at.value),
        };
        if let (true, Some(inside), Some(outside)) = (section.end(), inside, outside) {
            rules.push(Nptv6 {
                prefixes: Prefixes::new(inside, outside),
                to,
            });
        }
    }
    rules
}
