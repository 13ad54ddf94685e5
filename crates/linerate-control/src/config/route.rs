//! `[[route]]` and `[[neighbour]]`.

use std::collections::HashSet;
use std::net::IpAddr;

use linerate_wire::MacAddr;
use toml::Spanned;
use toml::de::DeValue;

use super::interface::{Entry, vrf_named};
use super::{NeighbourConfig, RouteConfig, RouteTo, Via, VrfConfig, words};
use linerate_appliance::config::{At, Notes, Section};
use linerate_appliance::nearest::offer;
use linerate_routing::model::{InterfaceId, Vrf};

const VIA: &str = "an address, { address, interface, weight }, or a list of those";

pub(super) fn routes(
    file: &Section<'_>,
    notes: &Notes,
    vrfs: &[VrfConfig],
    interfaces: &[Entry],
) -> Vec<RouteConfig> {
    let (mut all, mut places) = (Vec::new(), HashSet::new());
    for section in file.tables("route", "tables: [[route]] with prefix and via") {
        let vrf = section
            .text("vrf", "the name of a [[vrf]], or default")
            .map_or(0, |at| vrf_named(&section, &at, vrfs));
        section.requires("prefix", words::PREFIX);
        let prefix = section.read("prefix", words::PREFIX, words::prefix);
        let distance = section
            .number::<u8>("distance", 1..=254)
            .map_or(1, |at| at.value);
        let to = target(&section, interfaces);
        let line = section.line;
        if let (Some(prefix), Some(to)) = (&prefix, &to) {
            let route = RouteConfig {
                vrf,
                prefix: prefix.value,
                to: to.clone(),
                distance,
            };
            let via = section.value("via").map_or(line, |(_, line)| line);
            check(&section, notes, &route, interfaces, via);
            if !places.insert((vrf, prefix.value, distance)) {
                let problem = format!("there is a route to {} of that distance", prefix.value);
                let legal = "one route with a list of `via`, or another distance";
                notes.error(line, "route.prefix", problem, legal);
            }
            all.push(route);
        }
        section.end();
    }
    all
}

/// Where the route leads: exactly one of the four keys is given.
fn target(section: &Section<'_>, interfaces: &[Entry]) -> Option<RouteTo> {
    let via = section.value("via");
    let mut next_hops: Vec<(&str, RouteTo)> = Vec::new();
    for (key, to) in [
        ("blackhole", RouteTo::Blackhole),
        ("unreachable", RouteTo::Unreachable),
        ("prohibit", RouteTo::Prohibit),
    ] {
        if section.switch(key).is_some_and(|at| at.value) {
            next_hops.push((key, to));
        }
    }
    match (via, next_hops.as_slice()) {
        (Some((value, line)), []) => self::via(section, value, line, interfaces),
        (None, [(_, to)]) => Some(to.clone()),
        (None, []) => {
            let legal = "via, or one of blackhole, unreachable and prohibit = true";
            section.wrong(section.line, "via", "the route leads nowhere", legal);
            None
        }
        (_, [(key, _), ..]) => {
            let legal = "one of via, blackhole, unreachable and prohibit";
            section.wrong(
                section.line,
                key,
                "the route leads to several places",
                legal,
            );
            None
        }
    }
}

fn via(
    section: &Section<'_>,
    value: &Spanned<DeValue<'_>>,
    line: usize,
    interfaces: &[Entry],
) -> Option<RouteTo> {
    let items: Vec<(&Spanned<DeValue<'_>>, usize)> = match value.get_ref() {
        DeValue::Array(_) => section.list("via", VIA),
        _ => vec![(value, line)],
    };
    if items.is_empty() {
        section.wrong(line, "via", "the list is empty", VIA);
    }
    if items.len() > linerate_routing::plane::hops::BUCKETS {
        let legal = format!("at most {}", linerate_routing::plane::hops::BUCKETS);
        section.wrong(line, "via", format!("{} next hops", items.len()), legal);
    }
    let count = items.len();
    let next_hops: Vec<Via> = items
        .into_iter()
        .filter_map(|(item, line)| one(section, item, line, interfaces))
        .collect();
    (count > 0 && next_hops.len() == count).then_some(RouteTo::Via(next_hops))
}

fn one(
    section: &Section<'_>,
    item: &Spanned<DeValue<'_>>,
    line: usize,
    interfaces: &[Entry],
) -> Option<Via> {
    if let Some(text) = item.get_ref().as_str() {
        return match text.parse() {
            Ok(address) => Some(Via {
                address: Some(address),
                interface: None,
                weight: 1,
            }),
            Err(_) => {
                section.wrong(line, "via", format!("`{text}` is no address"), VIA);
                None
            }
        };
    }
    let table = section.within("route.via", item, VIA)?;
    let address = table.parsed::<IpAddr>("address", "an address");
    let named = table.text("interface", "the name of an interface");
    let interface = named.as_ref().and_then(|at| find(&table, at, interfaces));
    let weight = table
        .number::<u16>("weight", 1..=256)
        .map_or(1, |at| at.value);
    if address.is_none() && named.is_none() {
        table.wrong(table.line, "address", "neither address nor interface", VIA);
    }
    table.end().then_some(Via {
        address: address.map(|at| at.value),
        interface,
        weight,
    })
}

fn find(section: &Section<'_>, at: &At<String>, interfaces: &[Entry]) -> Option<InterfaceId> {
    let names = interfaces.iter().map(|entry| entry.config.name.as_str());
    let found = names.clone().position(|name| name == at.value);
    if found.is_none() {
        let problem = format!("there is no interface `{}`", at.value);
        section.wrong(at.line, "interface", problem, offer(&at.value, names));
    }
    found.map(|number| InterfaceId(number as u16))
}

/// Checks that the next hops suit the prefix and the interfaces.
fn check(
    section: &Section<'_>,
    notes: &Notes,
    route: &RouteConfig,
    interfaces: &[Entry],
    line: usize,
) {
    let RouteTo::Via(next_hops) = &route.to else {
        return;
    };
    for via in next_hops {
        if let Some(address) = via.address {
            // RFC 8950: IPv4 by an IPv6 next hop. The reverse does not exist, in the kernel
            // neither.
            if address.is_ipv4() && !route.prefix.first().is_ipv4() {
                let problem = format!(
                    "{address} is no next hop of {}, which is IPv6",
                    route.prefix
                );
                section.wrong(line, "via", problem, "an IPv6 address");
                continue;
            }
            let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            if is_link_local && via.interface.is_none() {
                let problem = format!("{address} may be on any link");
                let legal = "its link as well: { address = \"fe80::1\", interface = \"wan\" }";
                section.wrong(line, "via", problem, legal);
                continue;
            }
            if owns(interfaces, route.vrf, address) {
                let problem = format!("{address} is the router's own address");
                section.wrong(line, "via", problem, "the address of another router");
                continue;
            }
        }
        if let Some(id) = via.interface {
            let other = &interfaces[usize::from(id.0)].config;
            if other.is_loopback() {
                refuse_loopback(section, line, "via", &other.name);
            }
            if other.vrf != route.vrf {
                let problem = format!("interface `{}` is in another VRF", other.name);
                section.wrong(line, "via", problem, "an interface of the route's own VRF");
            }
            continue;
        }
        let reachable = |address| on_link(interfaces, route.vrf, address);
        if let Some(address) = via.address.filter(|address| !reachable(*address)) {
            notes.warn(
                line,
                "route.via",
                format!("{address} is on no interface's network"),
                "the route is kept, marked unreachable, until another route leads there",
            );
        }
    }
}

fn refuse_loopback(section: &Section<'_>, line: usize, key: &str, name: &str) {
    let problem = format!("`{name}` is a loopback, which has no link");
    section.wrong(line, key, problem, "an interface of a port");
}

fn owns(interfaces: &[Entry], vrf: Vrf, address: IpAddr) -> bool {
    let own = |entry: &Entry| {
        let mut addresses = entry.config.addresses.iter();
        entry.config.vrf == vrf && addresses.any(|cidr| cidr.address == address)
    };
    interfaces.iter().any(own)
}

fn on_link(interfaces: &[Entry], vrf: Vrf, address: IpAddr) -> bool {
    let on = |entry: &Entry| {
        let mut addresses = entry.config.addresses.iter();
        entry.config.vrf == vrf && addresses.any(|cidr| cidr.network().contains(address))
    };
    interfaces.iter().any(on)
}

pub(super) fn neighbours(
    file: &Section<'_>,
    notes: &Notes,
    interfaces: &[Entry],
) -> Vec<NeighbourConfig> {
    let (mut all, mut places) = (Vec::new(), HashSet::new());
    for section in file.tables(
        "neighbour",
        "tables: [[neighbour]] with address, mac and interface",
    ) {
        const MAC: &str = "an address of one station such as \"02:00:00:00:00:fe\"";
        section.requires("address", "an address");
        let address = section.parsed::<IpAddr>("address", "an address");
        section.requires("mac", MAC);
        let mac = section.parsed::<MacAddr>("mac", MAC);
        if let Some(at) = mac.as_ref().filter(|at| at.value.is_multicast()) {
            section.wrong(
                at.line,
                "mac",
                format!("{} is a group address", at.value),
                MAC,
            );
        }
        let interface = section
            .required("interface", "the name of an interface")
            .and_then(|at| find(&section, &at, interfaces));
        if let (Some(address), Some(mac), Some(interface)) = (address, mac, interface) {
            let neighbour = NeighbourConfig {
                interface,
                address: address.value,
                mac: mac.value,
            };
            let entry = &interfaces[usize::from(interface.0)].config;
            let mut addresses = entry.addresses.iter();
            if entry.is_loopback() {
                refuse_loopback(&section, address.line, "interface", &entry.name);
            } else if !addresses.any(|cidr| cidr.network().contains(address.value)) {
                let problem = format!("{} is on no network of `{}`", address.value, entry.name);
                let advice = "it is used only by routes that name it and the interface";
                notes.warn(address.line, "neighbour.address", problem, advice);
            }
            if !places.insert((interface, address.value)) {
                let problem = format!("{} is here twice", address.value);
                section.wrong(
                    address.line,
                    "address",
                    problem,
                    "one [[neighbour]] for each",
                );
            }
            all.push(neighbour);
        }
        section.end();
    }
    all
}
