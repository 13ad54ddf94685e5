//! Values of the stanzas: names, addresses, ports, and who has an address already.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use linerate_appliance::config::{At, Section};
use linerate_appliance::nearest::offer;
use linerate_control::config::words;
pub(super) use linerate_control::config::words::prefix_or_address as prefix;

use super::{Entry, Known};
use crate::nat::rules::last;

/// The number of a zone.
pub(super) fn zone(section: &Section<'_>, key: &'static str, known: &Known<'_>) -> Option<u16> {
    let At { value, line } = section.text(key, "the name of a [[zone]]")?;
    let found = known.zones.iter().position(|zone| *zone == value);
    if found.is_none() {
        let problem = format!("there is no zone `{value}`");
        section.wrong(
            line,
            key,
            problem,
            offer(&value, known.zones.iter().copied()),
        );
    }
    found.map(|at| at as u16)
}

/// The number of an interface.
pub(super) fn interface(
    section: &Section<'_>,
    key: &'static str,
    known: &Known<'_>,
) -> Option<At<u16>> {
    let At { value, line } = section.text(key, "the name of an interface")?;
    let found = known.interfaces.iter().position(|(name, _)| *name == value);
    if found.is_none() {
        let problem = format!("there is no interface `{value}`");
        let names = known.interfaces.iter().map(|(name, _)| *name);
        section.wrong(line, key, problem, offer(&value, names));
    }
    found.map(|at| At {
        value: at as u16,
        line,
    })
}

/// The number of a pool, which counts as used.
pub(super) fn pool_named(
    section: &Section<'_>,
    key: &'static str,
    pools: &mut [Entry],
) -> Option<u16> {
    let At { value, line } = section.text(key, "the name of a [[nat.pool]]")?;
    let found = pools.iter().position(|entry| entry.pool.name == value);
    match found {
        Some(at) => pools[at].is_used = true,
        None => {
            let problem = format!("there is no pool `{value}`");
            let names = pools.iter().map(|entry| entry.pool.name.as_str());
            let names = names.filter(|name| !name.starts_with("interface "));
            section.wrong(line, key, problem, offer(&value, names));
        }
    }
    found.map(|at| at as u16)
}

/// Whose addresses a range has too.
pub(super) fn conflict(
    range: (IpAddr, IpAddr),
    own: &[(IpAddr, IpAddr)],
    pools: &[Entry],
    known: &Known<'_>,
) -> Option<String> {
    let meets = |other: &(IpAddr, IpAddr)| {
        range.0.is_ipv4() == other.0.is_ipv4() && range.0 <= other.1 && other.0 <= range.1
    };
    if let Some((first, _)) = own.iter().find(|other| meets(other)) {
        return Some(format!("the pool has {first} twice"));
    }
    for entry in pools.iter().filter(|entry| !entry.pool.is_interface) {
        if entry.pool.addresses.iter().any(meets) {
            return Some(format!(
                "pool `{}` has some of these addresses",
                entry.pool.name
            ));
        }
    }
    known.interfaces.iter().find_map(|(name, addresses)| {
        let own = addresses.iter().map(|cidr| cidr.address);
        let address = own
            .into_iter()
            .find(|&address| meets(&(address, address)))?;
        Some(format!(
            "{address} is an address of interface `{name}`; masquerade = \"{name}\" uses it"
        ))
    })
}

/// How many addresses a range has.
pub(super) fn size(range: &(IpAddr, IpAddr)) -> u128 {
    match *range {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(u32::from(b) - u32::from(a)) + 1,
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(b) - u128::from(a)).saturating_add(1),
        _ => 0,
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// `198.51.100.1`, `198.51.100.1-198.51.100.8` or `198.51.100.0/28`.
pub(super) fn range_of_addresses(text: &str) -> Result<(IpAddr, IpAddr), String> {
    if text.contains('/') {
        let prefix = prefix(text)?;
        return Ok((prefix.first(), last(&prefix)));
    }
    let wrong = || format!("`{text}` is no address and no range");
    let (first, end) = text.split_once('-').unwrap_or((text, text));
    let first: IpAddr = first.trim().parse().map_err(|_| wrong())?;
    let end: IpAddr = end.trim().parse().map_err(|_| wrong())?;
    match first.is_ipv4() == end.is_ipv4() && first <= end {
        true => Ok((first, end)),
        false => Err(format!("`{text}` is reversed, or of two families")),
    }
}

/// `22` or `1024-65535`.
pub(super) fn range_of_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    words::range(text).map(|(low, high)| low..=high)
}
