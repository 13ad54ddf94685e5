//! Named sets of prefixes, ports and services.
//!
//! A set of prefixes is compiled once, when the file is read, however many rules ask for it. Ports
//! and services are few: each rule has its own copy.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use linerate_appliance::address::Prefix;
use linerate_tables::lpm::{Prefix4, Prefix6};
use linerate_wire::protocol;

use super::ranges::Ranges;
use super::words;

/// A named set of prefixes of both families.
#[derive(Debug, PartialEq, Eq)]
pub struct PrefixSet {
    /// Its name in the configuration.
    pub name: String,
    v4: Arc<Ranges<u32>>,
    v6: Arc<Ranges<u128>>,
}

impl PrefixSet {
    /// A set of these prefixes, which may overlap.
    pub fn new(name: &str, prefixes: &[Prefix]) -> Self {
        let (v4, v6) = split(prefixes);
        Self {
            name: name.into(),
            v4: Arc::new(Ranges::of(v4)),
            v6: Arc::new(Ranges::of(v6)),
        }
    }

    /// Its IPv4 addresses.
    pub fn v4(&self) -> &Arc<Ranges<u32>> {
        &self.v4
    }

    /// Its IPv6 addresses.
    pub fn v6(&self) -> &Arc<Ranges<u128>> {
        &self.v6
    }

    /// Whether it has an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.into()),
            IpAddr::V6(address) => self.v6.contains(address.into()),
        }
    }
}

/// The prefixes of each family.
pub(super) fn split<'a>(
    prefixes: impl IntoIterator<Item = &'a Prefix>,
) -> (Vec<Prefix4>, Vec<Prefix6>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match prefix {
            Prefix::V4(prefix) => v4.push(*prefix),
            Prefix::V6(prefix) => v6.push(*prefix),
        }
    }
    (v4, v6)
}

/// Most errors of one file that are told.
const TOLD: usize = 10;

/// Reads prefixes or addresses, one a line; empty lines, and what stands behind `#`, do not count.
///
/// # Errors
/// The number and the fault of each line that is no prefix, up to ten.
pub fn prefixes(text: &str) -> Result<Vec<Prefix>, Vec<(usize, String)>> {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line {
            "" => {}
            line => match words::prefix(line) {
                Ok(prefix) => all.push(prefix),
                Err(problem) if wrong.len() < TOLD => wrong.push((number, problem)),
                Err(_) => break,
            },
        }
    }
    match wrong.is_empty() {
        true => Ok(all),
        false => Err(wrong),
    }
}

/// Ports: ranges in order, none of which touches another. No range: any port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// The ports of these ranges, which may overlap.
    pub fn of(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut all: Vec<(u16, u16)> = Vec::new();
        for (low, high) in ranges {
            match all.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => all.push((low, high)),
            }
        }
        match all.as_slice() {
            [(0, u16::MAX)] => Self::default(),
            _ => Self(all),
        }
    }

    /// Whether any port is one of them.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// First and last port of each range.
    pub fn ranges(&self) -> &[(u16, u16)] {
        match self.is_any() {
            true => &[(0, u16::MAX)],
            false => &self.0,
        }
    }

    /// Whether a port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        let ranges = self.ranges();
        let above = ranges.partition_point(|(low, _)| *low <= port);
        above > 0 && port <= ranges[above - 1].1
    }

    /// Whether all of `other` are among these.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let within = |(low, high): &(u16, u16)| {
            let holds = |mine: &(u16, u16)| mine.0 <= *low && *high <= mine.1;
            self.ranges().iter().any(holds)
        };
        other.ranges().iter().all(within)
    }
}

impl fmt::Display for Ports {
    /// ` port 22`, ` ports 80,8000-8080`; nothing where any port will do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (low, high)) in self.0.iter().enumerate() {
            f.write_str(match at {
                0 if self.0.len() == 1 && low == high => " port ",
                0 => " ports ",
                _ => ",",
            })?;
            match low == high {
                true => write!(f, "{low}")?,
                false => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

/// A protocol, and what is asked of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// IP protocol.
    pub protocol: u8,
    /// Source ports; any where the protocol has none.
    pub source_ports: Ports,
    /// Destination ports, likewise.
    pub destination_ports: Ports,
    /// ICMP type, and with it perhaps a code.
    pub icmp: Option<(u8, Option<u8>)>,
}

impl Service {
    /// A protocol, whatever its header says.
    pub fn of(protocol: u8) -> Self {
        Self {
            protocol,
            source_ports: Ports::default(),
            destination_ports: Ports::default(),
            icmp: None,
        }
    }

    /// Whether it asks for more than the protocol: then a packet without an upper header, a later
    /// fragment, cannot be judged.
    pub(super) fn asks_upper(&self) -> bool {
        !self.source_ports.is_any() || !self.destination_ports.is_any() || self.icmp.is_some()
    }

    /// Whether packets of this family can have it.
    pub(super) fn is_for(&self, v4: bool) -> bool {
        match self.protocol {
            protocol::ICMP => v4,
            protocol::ICMPV6 => !v4,
            _ => true,
        }
    }

    /// Whether every packet that `other` matches, this one matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let icmp = match (self.icmp, other.icmp) {
            (None, _) => true,
            (Some((kind, None)), Some((theirs, _))) => kind == theirs,
            (Some(one), Some(theirs)) => one == theirs,
            (Some(_), None) => false,
        };
        self.protocol == other.protocol
            && icmp
            && self.source_ports.covers(&other.source_ports)
            && self.destination_ports.covers(&other.destination_ports)
    }
}

impl fmt::Display for Service {
    /// `tcp port 443`, `icmp type 8`, `udp from ports 1024-65535 to port 53`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::protocol_name(self.protocol))?;
        if !self.source_ports.is_any() {
            write!(f, " from{}", self.source_ports)?;
            if !self.destination_ports.is_any() {
                write!(f, " to")?;
            }
        }
        write!(f, "{}", self.destination_ports)?;
        match self.icmp {
            None => Ok(()),
            Some((kind, None)) => write!(f, " type {kind}"),
            Some((kind, Some(code))) => write!(f, " type {kind} code {code}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_prefixes_and_addresses_of_both_families() {
        let text = "# bad ones\n10.0.0.0/8  # all of it\n\n192.0.2.7\n2001:db8::/32\n10.1.0.0/16\n";
        let set = PrefixSet::new("bad", &prefixes(text).unwrap());
        for (address, is_in) in [
            ("10.200.0.1", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(set.contains(address.parse().unwrap()), is_in, "{address}");
        }
    }

    #[test]
    fn each_faulty_line_is_told_up_to_ten() {
        let wrong = prefixes("10.0.0.0/8\n10.0.0.1/8\n\n300.0.0.0/8\n").unwrap_err();
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 4]);
        assert!(wrong[0].1.contains("10.0.0.0/8 has not"), "{wrong:?}");
        assert_eq!(prefixes(&"x\n".repeat(99)).unwrap_err().len(), TOLD);
    }

    #[test]
    fn ports_merge_and_compare() {
        let ports = Ports::of(vec![(80, 80), (443, 443), (81, 90), (85, 100)]);
        assert_eq!(ports.ranges(), [(80, 100), (443, 443)]);
        assert_eq!(ports.to_string(), " ports 80-100,443");
        assert!(ports.contains(100) && !ports.contains(101) && !ports.contains(0));
        assert!(Ports::of(vec![(0, 99), (100, 65535)]).is_any());
        assert!(Ports::default().covers(&ports) && !ports.covers(&Ports::default()));
        assert!(ports.covers(&Ports::of(vec![(90, 95)])));
        assert!(!ports.covers(&Ports::of(vec![(90, 101)])));
    }

    #[test]
    fn a_service_covers_what_is_narrower() {
        let type_only = Service {
            icmp: Some((3, None)),
            ..Service::of(1)
        };
        let with_code = Service {
            icmp: Some((3, Some(4))),
            ..Service::of(1)
        };
        assert!(Service::of(1).covers(&type_only) && type_only.covers(&with_code));
        assert!(!with_code.covers(&type_only) && !type_only.covers(&Service::of(1)));
        assert!(!Service::of(6).covers(&Service::of(17)));
        assert_eq!(with_code.to_string(), "icmp type 3 code 4");
    }
}
