//! Values of the stanzas: names, addresses, ports, and who has an address already.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use linerate_appliance::config::{At, Section};
use linerate_control::config::words;
pub(super) use linerate_control::config::words::prefix_or_address as prefix;

use super::{Entry, Known, POOL};
use crate::nat::rules::last;

/// The number of a zone.
pub(super) fn zone(section: &Section<'_>, key: &'static str, known: &Known<'_>) -> Option<u16> {
    let zones = (0..).zip(known.zones.iter().copied());
    let at = section.named(key, "the name of a [[zone]]", "zone", zones)?;
    Some(at.value)
}

/// The number of an interface.
pub(super) fn interface(
    section: &Section<'_>,
    key: &'static str,
    known: &Known<'_>,
) -> Option<At<u16>> {
    let names = known.interfaces.iter().map(|(name, _)| *name);
    section.named(
        key,
        "the name of an interface",
        "interface",
        (0..).zip(names),
    )
}

/// The number of a pool, which counts as used.
pub(super) fn pool_named(
    section: &Section<'_>,
    key: &'static str,
    pools: &mut [Entry],
) -> Option<u16> {
    let named = (0_u16..)
        .zip(&*pools)
        .filter(|(_, entry)| !entry.pool.is_interface);
    let names = named.map(|(number, entry)| (number, entry.pool.name.as_str()));
    let number = section.named(key, POOL, "pool", names)?.value;
    pools[usize::from(number)].is_used = true;
    Some(number)
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
