//! Parsers of the words of rules: those of a router's file, and services.

pub(super) use linerate_control::config::words::{
    PREFIX, prefix_or_address as prefix, protocol, protocol_name, range,
};

use super::sets::{Ports, Service};

/// Legal ports, for errors.
pub(super) const PORTS: &str = "a port or a range such as \"1024-65535\"";
/// Legal services, for errors.
pub(super) const SERVICE: &str = "such as \"tcp/443\", \"udp/1000-2000\", \"icmp/8\" or \"gre\"";

/// Whether a protocol has ports.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// Whether a protocol is ICMP, of either family.
pub(super) fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, 1 | 58)
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
