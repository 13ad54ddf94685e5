//! Parsers of the words of rules: prefixes, ports, protocols, services.

use std::net::IpAddr;

use linerate_appliance::address::{Cidr, Prefix};
use linerate_appliance::nearest::offer;

use super::sets::{Ports, Service};

/// Legal prefixes, for errors.
pub(super) const PREFIX: &str = "a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"";
/// Legal ports, for errors.
pub(super) const PORTS: &str = "a port or a range such as \"1024-65535\"";
/// Legal services, for errors.
pub(super) const SERVICE: &str = "such as \"tcp/443\", \"udp/1000-2000\", \"icmp/8\" or \"gre\"";

const PROTOCOLS: [(&str, u8); 10] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ospf", 89),
    ("sctp", 132),
];

/// `22` or `1024-65535`.
pub(super) fn range(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("`{text}` is no number and no range");
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = low.trim().parse().map_err(|_| wrong())?;
    let high = high.trim().parse().map_err(|_| wrong())?;
    match low <= high {
        true => Ok((low, high)),
        false => Err(format!("`{text}` is reversed")),
    }
}

/// A protocol by name or number; `None` for `any`.
pub(super) fn protocol(text: &str) -> Result<Option<u8>, String> {
    if text == "any" {
        return Ok(None);
    }
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    match (named, text.parse()) {
        (Some(&(_, number)), _) | (None, Ok(number)) => Ok(Some(number)),
        (None, Err(_)) => Err(format!(
            "there is no protocol `{text}`, {}",
            offer(text, PROTOCOLS.iter().map(|(name, _)| *name))
        )),
    }
}

/// The name of a protocol, or its number.
pub(super) fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).into())
}

/// Whether a protocol has ports.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// Whether a protocol is ICMP, of either family.
pub(super) fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, 1 | 58)
}

/// A prefix whose bits behind its length are zero, or an address.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Prefix::host(address));
    }
    let cidr: Cidr = text.parse()?;
    let network = cidr.network();
    match network.first() == cidr.address {
        true => Ok(network),
        false => Err(format!(
            "`{text}` has bits set behind its length; {network} has not"
        )),
    }
}

/// `tcp/443`: a protocol, and with it perhaps destination ports or an ICMP type.
pub(super) fn service(text: &str) -> Result<Service, String> {
    let (name, rest) = match text.split_once('/') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let number = protocol(name)?.ok_or("`any` is no service: leave the key out")?;
    let mut service = Service::of(number);
    match rest {
        None => {}
        Some(rest) if has_ports(number) => {
            service.destination_ports = Ports::of(vec![range(rest)?]);
        }
        Some(rest) if is_icmp(number) => {
            let wrong = || format!("`{rest}` is no ICMP type");
            service.icmp = Some((rest.parse().map_err(|_| wrong())?, None));
        }
        Some(_) => return Err(format!("`{name}` has no ports: write `{name}` alone")),
    }
    Ok(service)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn services_as_they_are_written() {
        for text in [
            "tcp/443",
            "udp/1000-2000",
            "icmp/8",
            "icmp6/128",
            "gre",
            "99",
        ] {
            assert!(service(text).is_ok(), "{text}");
        }
        for (text, why) in [
            ("tpc/443", "perhaps tcp"),
            ("tcp/x", "no number and no range"),
            ("gre/1", "write `gre` alone"),
            ("icmp/300", "no ICMP type"),
            ("any", "leave the key out"),
        ] {
            let problem = service(text).unwrap_err();
            assert!(problem.contains(why), "{text}: {problem}");
        }
        assert_eq!(service("tcp/80-90").unwrap().to_string(), "tcp ports 80-90");
    }
}
