//! Parsers of values: rates, sizes, ranges of ports, protocols.

use std::net::IpAddr;

use linerate_appliance::nearest::offer;
use linerate_routing::model::{Cidr, Prefix};

/// Legal rates, for errors.
pub const RATE: &str = "a rate such as \"100Mbit\": bit, kbit, Mbit or Gbit a second";
/// Legal sizes, for errors.
pub const SIZE: &str = "a size such as \"64kB\": B, kB, MB, KiB or MiB";
/// Legal addresses with a length, for errors.
pub(super) const CIDR: &str =
    "an address with a length such as \"192.0.2.1/24\" or \"2001:db8::1/64\"";
/// Legal prefixes, for errors.
pub const PREFIX: &str = "a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"";

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

/// Splits a number from its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

/// Bits a second.
pub fn rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no rate");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let factor = match unit {
        "bit" => 1.0,
        "kbit" => 1e3,
        "Mbit" => 1e6,
        "Gbit" => 1e9,
        _ => return Err(wrong()),
    };
    match (number * factor) as u64 {
        0 => Err(format!("`{text}` lets nothing through")),
        bits => Ok(bits),
    }
}

/// Bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let factor = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        _ => return Err(wrong()),
    };
    match (number * factor) as u64 {
        0 => Err(format!("`{text}` is nothing")),
        bytes => Ok(bytes),
    }
}

/// `22` or `1024-65535`.
pub fn range(text: &str) -> Result<(u16, u16), String> {
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
pub fn protocol(text: &str) -> Result<Option<u8>, String> {
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
pub fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).into())
}

/// A prefix whose bits behind its length are zero.
pub fn prefix(text: &str) -> Result<Prefix, String> {
    let cidr: Cidr = text.parse()?;
    let network = cidr.network();
    match network.first() == cidr.address {
        true => Ok(network),
        false => Err(format!(
            "`{text}` has bits set behind its length; {network} has not"
        )),
    }
}

/// The same, or an address.
pub fn prefix_or_address(text: &str) -> Result<Prefix, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Prefix::host(address)),
        Err(_) => prefix(text),
    }
}
