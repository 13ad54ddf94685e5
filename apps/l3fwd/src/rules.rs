//! What tables are made of, and how it is checked: one set of rules for each address family.
//!
//! Fields come as text, from a rule file ([`file`](super::file)) or from the configuration
//! ([`config`](super::config)), and are read here alone, so that both understand the same. What is
//! wrong is collected, with its place, until all has been read.

use std::collections::HashMap;
use std::hash::Hash;

use linerate_tables::acl::{Bits, Match, Prefix as AclPrefix, Range, words6};
use linerate_tables::lpm::{Address, Prefix};
use linerate_wire::{FlowKey4, FlowKey6, MacAddr};

use linerate_appliance::error::Error;

/// Problems shown; a file of another kind has one in each line.
const SHOWN: usize = 50;

/// A line of a source: the number of the source, as [`Problems`] gave it, and of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: usize,
    pub(super) line: usize,
}

/// All that is wrong, and where.
#[derive(Debug, Default)]
pub(super) struct Problems {
    sources: Vec<String>,
    found: Vec<(Place, Wrong)>,
    beyond: usize,
}

/// What is wrong with a field, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) legal: String,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>, legal: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            legal: legal.into(),
        }
    }
}

impl Problems {
    /// A number for a source, by which its lines are named.
    pub(super) fn source(&mut self, name: impl Into<String>) -> usize {
        self.sources.push(name.into());
        self.sources.len() - 1
    }

    pub(super) fn add(&mut self, place: Place, wrong: Wrong) {
        if self.found.len() < SHOWN {
            self.found.push((place, wrong));
        } else {
            self.beyond += 1;
        }
    }

    /// Something that an earlier place says already.
    fn twice(&mut self, place: Place, kind: &str, what: &dyn std::fmt::Display, before: Place) {
        let before = self.name(before);
        self.add(
            place,
            Wrong::new(
                format!("the {kind} of {before} has this {what} already"),
                format!("remove one of the two {kind}s"),
            ),
        );
    }

    /// `what` if it is right, or a problem.
    fn take<T>(&mut self, place: Place, what: Result<T, Wrong>) -> Option<T> {
        what.map_err(|wrong| self.add(place, wrong)).ok()
    }

    /// The place as its user writes it.
    fn name(&self, place: Place) -> String {
        format!("{}:{}", self.sources[place.source], place.line)
    }

    /// All of them as one error: the last is returned, the others are printed.
    pub(super) fn result(self) -> Result<(), Error> {
        let count = self.found.len() + self.beyond;
        let mut errors: Vec<Error> = self
            .found
            .iter()
            .map(|(place, wrong)| Error::Usage {
                problem: format!("{}: {}", self.name(*place), wrong.what),
                fix: wrong.legal.clone(),
            })
            .collect();
        if self.beyond > 0 {
            errors.push(Error::Usage {
                problem: format!("{count} lines are wrong, of which {SHOWN} are shown"),
                fix: "correct those first".into(),
            });
        }
        Error::all(errors)
    }
}

/// The ports that there are, by number: what users call them.
#[derive(Clone, Debug)]
pub(super) struct Ports(pub(super) Vec<String>);

impl Ports {
    /// A port by its name or number.
    pub(super) fn find(&self, text: &str) -> Result<u16, Wrong> {
        let by_name = self.0.iter().position(|name| name == text);
        let by_number = || number(text, u64::MAX).map(|number| number as usize);
        match by_name
            .or_else(by_number)
            .filter(|&port| port < self.0.len())
        {
            Some(port) => Ok(port as u16),
            None => Err(Wrong::new(
                format!("no port `{text}`"),
                format!("the ports are {self}"),
            )),
        }
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, name) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{number} {name}")?;
        }
        Ok(())
    }
}

/// Where packets can go, before the ports' own addresses are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Out of a port, to the station that all its packets go to unless something else is said.
    Port(u16),
    /// Out of a port, to this station.
    Station(u16, MacAddr),
    /// Nowhere.
    Denied,
}

/// All of them by number: first those of the ports, then what is denied, then the stations.
#[derive(Clone, Debug)]
pub(super) struct NextHops {
    pub(super) hops: Vec<Destination>,
    ports: u32,
    stations: HashMap<(u16, MacAddr), u32>,
}

impl NextHops {
    pub(super) fn new(ports: usize) -> Self {
        let to_ports = (0..ports as u16).map(Destination::Port);
        Self {
            hops: to_ports.chain([Destination::Denied]).collect(),
            ports: ports as u32,
            stations: HashMap::new(),
        }
    }

    /// The number of what an access list denies.
    pub(super) fn denied(&self) -> u32 {
        self.ports
    }

    /// The number of a next hop.
    pub(super) fn number(&mut self, port: u16, mac: Option<MacAddr>) -> u32 {
        let Some(mac) = mac else {
            return port.into();
        };
        *self.stations.entry((port, mac)).or_insert_with(|| {
            self.hops.push(Destination::Station(port, mac));
            self.hops.len() as u32 - 1
        })
    }
}

/// An address family, and its own types. `W` is the words of an address.
pub(super) trait Family<const W: usize>: Address {
    /// A flow's key.
    type Key: Copy + Eq + Hash + std::fmt::Display;
    /// An address, and the length of a prefix of it, for messages.
    const EXAMPLE: &str;
    const EXAMPLE_LEN: u8;

    fn key(dst: Self, src: Self, dst_port: u16, src_port: u16, protocol: u8) -> Self::Key;
    fn words(self) -> [u32; W];
}

impl Family<1> for u32 {
    type Key = FlowKey4;
    const EXAMPLE: &str = "198.18.0.0";
    const EXAMPLE_LEN: u8 = 24;

    fn key(dst: Self, src: Self, dst_port: u16, src_port: u16, protocol: u8) -> FlowKey4 {
        let [src, dst] = [src, dst].map(Self::to_be_bytes);
        FlowKey4::new(src, dst, src_port, dst_port, protocol)
    }

    fn words(self) -> [u32; 1] {
        [self]
    }
}

impl Family<4> for u128 {
    type Key = FlowKey6;
    const EXAMPLE: &str = "2001:db8::";
    const EXAMPLE_LEN: u8 = 32;

    fn key(dst: Self, src: Self, dst_port: u16, src_port: u16, protocol: u8) -> FlowKey6 {
        let [src, dst] = [src, dst].map(Self::to_be_bytes);
        FlowKey6::new(src, dst, src_port, dst_port, protocol)
    }

    fn words(self) -> [u32; 4] {
        words6(self.into())
    }
}

/// The rules of one address family: routes, flows or an access list, whatever the lookup asks for.
/// Each leads to the number of a next hop.
#[derive(Debug)]
pub(super) struct Rules<A: Family<W>, const W: usize> {
    pub(super) routes: Vec<(Prefix<A>, u32)>,
    pub(super) flows: Vec<(A::Key, u32)>,
    pub(super) acl: Vec<(Match<W>, u32)>,
    seen_routes: HashMap<Prefix<A>, Place>,
    seen_flows: HashMap<A::Key, Place>,
    seen_acl: HashMap<Match<W>, Place>,
}

impl<A: Family<W>, const W: usize> Default for Rules<A, W> {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            flows: Vec::new(),
            acl: Vec::new(),
            seen_routes: HashMap::new(),
            seen_flows: HashMap::new(),
            seen_acl: HashMap::new(),
        }
    }
}

/// The fields of a flow, as text.
#[derive(Clone, Copy)]
pub(super) struct FlowText<'a> {
    pub(super) dst: &'a str,
    pub(super) src: &'a str,
    pub(super) dst_port: &'a str,
    pub(super) src_port: &'a str,
    pub(super) protocol: &'a str,
}

/// The fields of an entry of an access list, as text.
#[derive(Clone, Copy)]
pub(super) struct AclText<'a> {
    pub(super) src: &'a str,
    pub(super) dst: &'a str,
    /// First and last.
    pub(super) src_ports: [&'a str; 2],
    pub(super) dst_ports: [&'a str; 2],
    /// Value and mask, as in `0x06/0xff`.
    pub(super) protocol: &'a str,
}

impl<A: Family<W>, const W: usize> Rules<A, W> {
    pub(super) fn len(&self) -> usize {
        self.routes.len() + self.flows.len() + self.acl.len()
    }

    /// Adds a route if all is right with it.
    pub(super) fn route(
        &mut self,
        place: Place,
        prefix_text: &str,
        hop: Option<u32>,
        problems: &mut Problems,
    ) {
        let prefix = problems.take(place, prefix("destination", prefix_text));
        let (Some(prefix), Some(hop)) = (prefix, hop) else {
            return;
        };
        match self.seen_routes.insert(prefix, place) {
            Some(before) => problems.twice(place, "route", &prefix, before),
            None => self.routes.push((prefix, hop)),
        }
    }

    /// Adds a flow if all is right with it.
    pub(super) fn flow(
        &mut self,
        place: Place,
        flow: FlowText,
        hop: Option<u32>,
        problems: &mut Problems,
    ) {
        let dst = problems.take(place, address::<A, W>("destination", flow.dst));
        let src = problems.take(place, address::<A, W>("source", flow.src));
        let dst_port = problems.take(place, port("destination port", flow.dst_port));
        let src_port = problems.take(place, port("source port", flow.src_port));
        let protocol = problems.take(place, protocol(flow.protocol));
        let (Some(dst), Some(src), Some(dst_port), Some(src_port), Some(protocol), Some(hop)) =
            (dst, src, dst_port, src_port, protocol, hop)
        else {
            return;
        };
        let key = A::key(dst, src, dst_port, src_port, protocol);
        match self.seen_flows.insert(key, place) {
            Some(before) => problems.twice(place, "flow", &key, before),
            None => self.flows.push((key, hop)),
        }
    }

    /// Adds an entry of the access list if all is right with it.
    pub(super) fn acl(
        &mut self,
        place: Place,
        entry: AclText,
        hop: Option<u32>,
        problems: &mut Problems,
    ) {
        let src = problems.take(place, acl_prefix::<A, W>("source", entry.src));
        let dst = problems.take(place, acl_prefix::<A, W>("destination", entry.dst));
        let src_ports = problems.take(place, range("source port", entry.src_ports));
        let dst_ports = problems.take(place, range("destination port", entry.dst_ports));
        let protocol = problems.take(place, bits(entry.protocol));
        let (Some(src), Some(dst), Some(src_ports), Some(dst_ports), Some(protocol), Some(hop)) =
            (src, dst, src_ports, dst_ports, protocol, hop)
        else {
            return;
        };
        let matching = Match {
            src,
            dst,
            src_ports,
            dst_ports,
            protocol,
            ..Match::ANY
        };
        match self.seen_acl.insert(matching, place) {
            Some(before) => problems.twice(place, "rule", &"match", before),
            None => self.acl.push((matching, hop)),
        }
    }
}

/// A number in decimal, or in hexadecimal with 0x, up to `most`. Octal is nobody's wish.
fn number(text: &str, most: u64) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    let number = u64::from_str_radix(digits, radix).ok()?;
    (is_plain && !is_octal && number <= most).then_some(number)
}

fn address<A: Family<W>, const W: usize>(field: &str, text: &str) -> Result<A, Wrong> {
    A::read(text).ok_or_else(|| {
        Wrong::new(
            format!("{field} `{text}` is no IPv{} address", version::<W>()),
            format!("write it as {}", A::EXAMPLE),
        )
    })
}

/// A prefix; bits beyond its length do not count, as with DPDK.
fn prefix<A: Family<W>, const W: usize>(field: &str, text: &str) -> Result<Prefix<A>, Wrong> {
    let wrong = || {
        Wrong::new(
            format!("{field} `{text}` is no IPv{} prefix", version::<W>()),
            format!(
                "write address/length, such as {}/{}",
                A::EXAMPLE,
                A::EXAMPLE_LEN
            ),
        )
    };
    let (address, len) = text.split_once('/').ok_or_else(wrong)?;
    let address = A::read(address).ok_or_else(wrong)?;
    match number(len, A::BITS.into()) {
        Some(len) => Ok(Prefix::of(address, len as u8)),
        None => Err(Wrong::new(
            format!("{field} `{text}` has no length between 0 and {}", A::BITS),
            format!("a length is 0 to {} bits", A::BITS),
        )),
    }
}

fn acl_prefix<A: Family<W>, const W: usize>(
    field: &str,
    text: &str,
) -> Result<AclPrefix<W>, Wrong> {
    let prefix: Prefix<A> = prefix(field, text)?;
    Ok(AclPrefix::of(prefix.first().words(), prefix.len()))
}

const fn version<const W: usize>() -> u8 {
    if W == 1 { 4 } else { 6 }
}

fn port(field: &str, text: &str) -> Result<u16, Wrong> {
    let port = number(text, u16::MAX.into()).map(|port| port as u16);
    port.ok_or_else(|| {
        Wrong::new(
            format!("{field} `{text}` is none"),
            format!("a {field} is 0 to 65535"),
        )
    })
}

fn range(field: &str, [first, last]: [&str; 2]) -> Result<Range, Wrong> {
    let (first, last) = (port(field, first)?, port(field, last)?);
    Range::new(first, last).map_err(|error| {
        Wrong::new(format!("{field}: {error}"), {
            format!("write the smaller {field} first, as in {last} : {first}")
        })
    })
}

/// An IP protocol by name or number.
fn protocol(text: &str) -> Result<u8, Wrong> {
    use linerate_wire::protocol::{ICMP, ICMPV6, SCTP, TCP, UDP};
    let names = [
        ("icmp", ICMP),
        ("tcp", TCP),
        ("udp", UDP),
        ("icmpv6", ICMPV6),
        ("sctp", SCTP),
    ];
    let by_name = names.iter().find(|(name, _)| *name == text);
    let found = by_name.map(|&(_, number)| number);
    found
        .or_else(|| number(text, 255).map(|number| number as u8))
        .ok_or_else(|| {
            Wrong::new(
                format!("protocol `{text}` is none"),
                "a protocol is 0 to 255 (17 or 0x11 for UDP), or icmp, tcp, udp, icmpv6 or sctp",
            )
        })
}

/// A protocol and its mask; a protocol alone is that one.
fn bits(text: &str) -> Result<Bits, Wrong> {
    let Some((value, mask)) = text.split_once('/') else {
        return Ok(Bits::byte(protocol(text)?));
    };
    let both = number(value, 255).zip(number(mask, 255));
    let (value, mask) = both.ok_or_else(|| {
        Wrong::new(
            format!("protocol `{text}` is no value and mask"),
            "write both as 0 to 255 or 0x00 to 0xff, as in 0x06/0xff; 0x00/0x00 is any protocol",
        )
    })?;
    Bits::new(value as u16, mask as u16).map_err(|error| {
        Wrong::new(
            format!("protocol `{text}`: {error}"),
            "0xff is the mask of one protocol, 0x00/0x00 is any protocol",
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("17", 255), Some(17));
        assert_eq!(number("0x11", 255), Some(17));
        assert_eq!(number("0", 255), Some(0));
        for wrong in [
            "",
            "0x",
            "+1",
            "-1",
            "010",
            "256",
            "1.0",
            "0x-1",
            "99999999999999999999",
        ] {
            assert_eq!(number(wrong, 255), None, "{wrong}");
        }
    }

    #[test]
    fn next_hops_of_one_address_are_one() {
        let mut hops = NextHops::new(2);
        let [near, far] = [1, 2].map(MacAddr::local);
        assert_eq!(hops.number(1, None), 1);
        assert_eq!(hops.denied(), 2);
        assert_eq!(hops.number(1, Some(near)), 3);
        assert_eq!(hops.number(0, Some(near)), 4);
        assert_eq!(hops.number(1, Some(near)), 3);
        assert_eq!(hops.number(1, Some(far)), 5);
        let stations =
            [(1, near), (0, near), (1, far)].map(|(port, mac)| Destination::Station(port, mac));
        assert_eq!(hops.hops[3..], stations);
    }

    #[test]
    fn each_wrong_field_is_a_problem_of_its_own() {
        let mut problems = Problems::default();
        let place = Place {
            source: problems.source("x.cfg"),
            line: 7,
        };
        let mut rules = Rules::<u32, 1>::default();
        let flow = FlowText {
            dst: "198.18.0",
            src: "::1",
            dst_port: "65536",
            src_port: "x",
            protocol: "300",
        };
        rules.flow(place, flow, None, &mut problems);
        assert_eq!(problems.found.len(), 5);
        assert_eq!(rules.len(), 0);
        let error = problems.result().unwrap_err();
        assert_eq!(error.to_string(), "x.cfg:7: protocol `300` is none");
    }

    #[test]
    fn host_bits_do_not_count_and_repetitions_do() {
        let mut problems = Problems::default();
        let source = problems.source("x.cfg");
        let mut rules = Rules::<u128, 4>::default();
        for (line, text) in (1..).zip(["2001:db8::1/32", "2001:db8::/32", "::/0"]) {
            rules.route(Place { source, line }, text, Some(0), &mut problems);
        }
        let shown: Vec<_> = rules
            .routes
            .iter()
            .map(|(prefix, _)| prefix.to_string())
            .collect();
        assert_eq!(shown, ["2001:db8::/32", "::/0"]);
        let error = problems.result().unwrap_err().to_string();
        assert!(
            error.starts_with("x.cfg:2: the route of x.cfg:1 has this 2001:db8::/32"),
            "{error}"
        );
    }

    #[test]
    fn a_file_of_another_kind_is_not_shown_in_full() {
        let mut problems = Problems::default();
        let source = problems.source("x.cfg");
        for line in 1..=1000 {
            problems.add(Place { source, line }, Wrong::new("wrong", "right"));
        }
        let error = problems.result().unwrap_err().to_string();
        assert_eq!(error, "1000 lines are wrong, of which 50 are shown");
    }

    #[test]
    fn protocols_with_and_without_a_mask() {
        assert_eq!(bits("0x06/0xFF").unwrap(), Bits::byte(6));
        assert_eq!(bits("udp").unwrap(), Bits::byte(17));
        assert_eq!(bits("0/0").unwrap(), Bits::ANY);
        assert!(bits("6/7/8").unwrap_err().what.contains("`6/7/8`"));
        assert!(bits("6/1").unwrap_err().what.contains("mask"));
    }
}
