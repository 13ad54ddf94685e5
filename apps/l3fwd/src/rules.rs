//! What tables are made of, and how it is checked: one set of rules for each address family.
//!
//! Fields come as text, from a rule file ([`file`](super::file)) or from the configuration
//! ([`config`](super::config)), and are read here alone, so that both understand the same. What is
//! wrong is collected, with its place, until all has been read.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use linerate_tables::acl::{Bits, Match, Prefix as AclPrefix, Range, words6};
use linerate_tables::lpm::{Address, Prefix};
use linerate_wire::{FlowKey4, FlowKey6, MacAddr};

use linerate_appliance::config::{At, ConfigError, Wrong};
use linerate_appliance::error::Error;

/// Where an entry stands: the number of its source, as [`Problems`] gave it, the line, and what
/// errors say before the keys of an entry: `route.` in the configuration, nothing in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: usize,
    pub(super) line: usize,
    pub(super) entry: &'static str,
}

/// All that is wrong, and where.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// Each source's name, and what is wrong with it.
    sources: Vec<(String, Vec<ConfigError>)>,
}

/// What is wrong with a key, or with the whole line, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongKey {
    key: &'static str,
    pub(super) what: String,
    pub(super) legal: String,
}

impl WrongKey {
    pub(super) fn new(
        key: &'static str,
        what: impl Into<String>,
        legal: impl Into<String>,
    ) -> Self {
        Self {
            key,
            what: what.into(),
            legal: legal.into(),
        }
    }
}

impl Problems {
    /// A number for a source, by which its lines are named.
    pub(super) fn source(&mut self, name: impl std::fmt::Display) -> usize {
        self.sources.push((name.to_string(), Vec::new()));
        self.sources.len() - 1
    }

    /// What somebody else found wrong with a source.
    pub(super) fn found(&mut self, source: usize, errors: Vec<ConfigError>) {
        self.sources[source].1.extend(errors);
    }

    pub(super) fn add(&mut self, place: Place, wrong: WrongKey) {
        let key = match wrong.key {
            "" => place.entry.trim_end_matches('.').into(),
            key => format!("{}{key}", place.entry),
        };
        let error = ConfigError {
            line: place.line,
            key,
            problem: wrong.what,
            legal: wrong.legal,
        };
        self.sources[place.source].1.push(error);
    }

    /// Something that an earlier place says already.
    fn twice(&mut self, place: Place, kind: &str, what: &dyn std::fmt::Display, before: Place) {
        let before = format!("{}:{}", self.sources[before.source].0, before.line);
        let problem = format!("the {kind} of {before} has this {what} already");
        let fix = format!("remove one of the two {kind}s");
        self.add(place, WrongKey::new("", problem, fix));
    }

    /// What `read` makes of a key's text if it is right, or a problem.
    pub(super) fn take<V: Copy, T>(
        &mut self,
        place: Place,
        at: At<V>,
        read: impl FnOnce(V) -> Result<T, WrongKey>,
    ) -> Option<T> {
        let line = at.line;
        let wrong = |wrong| self.add(Place { line, ..place }, wrong);
        read(at.value).map_err(wrong).ok()
    }

    /// All of them as one error; `check` is the command that looks again.
    pub(super) fn result(self, check: Option<String>) -> Result<(), Error> {
        let mut all = Wrong::default();
        for (name, mut errors) in self.sources {
            errors.sort();
            all.add(name, errors);
        }
        match check {
            Some(check) => all.checked_by(check).result(),
            None => all.result(),
        }
    }
}

/// The ports that there are, by number: what users call them.
#[derive(Clone, Debug)]
pub(super) struct Ports(pub(super) Vec<String>);

impl Ports {
    /// A port by its name or number.
    pub(super) fn find(&self, text: &str) -> Result<u16, WrongKey> {
        let by_name = self.0.iter().position(|name| name == text);
        let by_number = || number(text, u64::MAX).map(|number| number as usize);
        match by_name
            .or_else(by_number)
            .filter(|&port| port < self.0.len())
        {
            Some(port) => Ok(port as u16),
            None => Err(WrongKey::new(
                "port",
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    pub(super) dst: At<&'a str>,
    pub(super) src: At<&'a str>,
    pub(super) dst_port: At<&'a str>,
    pub(super) src_port: At<&'a str>,
    pub(super) protocol: At<&'a str>,
}

/// The fields of an entry of an access list, as text.
#[derive(Clone, Copy)]
pub(super) struct AclText<'a> {
    pub(super) src: At<&'a str>,
    pub(super) dst: At<&'a str>,
    /// First and last.
    pub(super) src_ports: At<[&'a str; 2]>,
    pub(super) dst_ports: At<[&'a str; 2]>,
    /// Value and mask, as in `0x06/0xff`.
    pub(super) protocol: At<&'a str>,
}

/// How the rules of one address family differ from others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// New ones, and those that lead elsewhere now.
    pub(super) added: usize,
    /// Those that are gone, and those that led elsewhere.
    pub(super) removed: usize,
    /// Whether the same rules of an access list come in another order.
    pub(super) is_moved: bool,
}

impl Differences {
    fn between<K: Copy + Eq + Hash>(
        old: (&[(K, u32)], &NextHops),
        new: (&[(K, u32)], &NextHops),
    ) -> Self {
        let led = |(rules, hops): (&[(K, u32)], &NextHops)| -> Vec<(K, Destination)> {
            let lead = |&(key, hop): &(K, u32)| (key, hops.hops[hop as usize]);
            rules.iter().map(lead).collect()
        };
        let (old, new) = (led(old), led(new));
        let (before, after): (HashSet<_>, HashSet<_>) =
            (old.iter().collect(), new.iter().collect());
        let kept = |rules: &[(K, Destination)]| -> Vec<(K, Destination)> {
            let stays = |rule: &&(K, Destination)| before.contains(rule) && after.contains(rule);
            rules.iter().filter(stays).copied().collect()
        };
        Self {
            added: after.difference(&before).count(),
            removed: before.difference(&after).count(),
            is_moved: kept(&old) != kept(&new),
        }
    }
}

impl<A: Family<W>, const W: usize> Rules<A, W> {
    /// How `new` rules differ, whose next hops have other numbers. Of routes and flows the order
    /// means nothing.
    pub(super) fn differences(
        &self,
        hops: &NextHops,
        new: &Self,
        new_hops: &NextHops,
    ) -> Differences {
        let routes = Differences::between((&self.routes, hops), (&new.routes, new_hops));
        let flows = Differences::between((&self.flows, hops), (&new.flows, new_hops));
        let acl = Differences::between((&self.acl, hops), (&new.acl, new_hops));
        Differences {
            added: routes.added + flows.added + acl.added,
            removed: routes.removed + flows.removed + acl.removed,
            is_moved: acl.is_moved,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len() + self.flows.len() + self.acl.len()
    }

    /// Adds a route if all is right with it.
    pub(super) fn route(
        &mut self,
        place: Place,
        destination: At<&str>,
        hop: Option<u32>,
        problems: &mut Problems,
    ) {
        let prefix = problems.take(place, destination, |text| prefix("destination", text));
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
        let dst = problems.take(place, flow.dst, |text| address("destination", text));
        let src = problems.take(place, flow.src, |text| address("source", text));
        let dst_port = problems.take(place, flow.dst_port, |text| port("destination_port", text));
        let src_port = problems.take(place, flow.src_port, |text| port("source_port", text));
        let protocol = problems.take(place, flow.protocol, protocol);
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
        let acl_prefix = acl_prefix::<A, W>;
        let src = problems.take(place, entry.src, |text| acl_prefix("source", text));
        let dst = problems.take(place, entry.dst, |text| acl_prefix("destination", text));
        let src_ports = problems.take(place, entry.src_ports, |ends| range("source_ports", ends));
        let dst_ports = problems.take(place, entry.dst_ports, |ends| {
            range("destination_ports", ends)
        });
        let protocol = problems.take(place, entry.protocol, bits);
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

fn address<A: Family<W>, const W: usize>(field: &'static str, text: &str) -> Result<A, WrongKey> {
    A::read(text).ok_or_else(|| {
        WrongKey::new(
            field,
            format!("`{text}` is no IPv{} address", version::<W>()),
            format!("write it as {}", A::EXAMPLE),
        )
    })
}

/// A prefix; bits beyond its length do not count, as with DPDK.
fn prefix<A: Family<W>, const W: usize>(
    field: &'static str,
    text: &str,
) -> Result<Prefix<A>, WrongKey> {
    let wrong = || {
        WrongKey::new(
            field,
            format!("`{text}` is no IPv{} prefix", version::<W>()),
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
        None => Err(WrongKey::new(
            field,
            format!("`{text}` has no length between 0 and {}", A::BITS),
            format!("a length is 0 to {} bits", A::BITS),
        )),
    }
}

fn acl_prefix<A: Family<W>, const W: usize>(
    field: &'static str,
    text: &str,
) -> Result<AclPrefix<W>, WrongKey> {
    let prefix: Prefix<A> = prefix(field, text)?;
    Ok(AclPrefix::of(prefix.first().words(), prefix.len()))
}

const fn version<const W: usize>() -> u8 {
    if W == 1 { 4 } else { 6 }
}

fn port(field: &'static str, text: &str) -> Result<u16, WrongKey> {
    let port = number(text, u16::MAX.into()).map(|port| port as u16);
    port.ok_or_else(|| {
        WrongKey::new(
            field,
            format!("`{text}` is no port"),
            "a number from 0 to 65535",
        )
    })
}

fn range(field: &'static str, [first, last]: [&str; 2]) -> Result<Range, WrongKey> {
    let (first, last) = (port(field, first)?, port(field, last)?);
    Range::new(first, last).map_err(|error| {
        let legal = format!("write the smaller port first, as in {last} : {first}");
        WrongKey::new(field, error.to_string(), legal)
    })
}

/// An IP protocol by name or number.
fn protocol(text: &str) -> Result<u8, WrongKey> {
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
            WrongKey::new(
                "protocol",
                format!("`{text}` is none"),
                "0 to 255 (17 or 0x11 for UDP), or icmp, tcp, udp, icmpv6 or sctp",
            )
        })
}

/// A protocol and its mask; a protocol alone is that one.
fn bits(text: &str) -> Result<Bits, WrongKey> {
    let Some((value, mask)) = text.split_once('/') else {
        return Ok(Bits::byte(protocol(text)?));
    };
    let both = number(value, 255).zip(number(mask, 255));
    let (value, mask) = both.ok_or_else(|| {
        WrongKey::new(
            "protocol",
            format!("`{text}` is no value and mask"),
            "write both as 0 to 255 or 0x00 to 0xff, as in 0x06/0xff; 0x00/0x00 is any protocol",
        )
    })?;
    Bits::new(value as u16, mask as u16).map_err(|error| {
        WrongKey::new(
            "protocol",
            format!("`{text}`: {error}"),
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
            source: problems.source("x.toml"),
            line: 7,
            entry: "flow.",
        };
        let mut rules = Rules::<u32, 1>::default();
        let at = |line, value| At { value, line };
        let flow = FlowText {
            dst: at(8, "198.18.0"),
            src: at(9, "::1"),
            dst_port: at(10, "65536"),
            src_port: at(11, "x"),
            protocol: at(12, "300"),
        };
        rules.flow(place, flow, None, &mut problems);
        assert_eq!(rules.len(), 0);
        let error = problems.result(None).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().skip(1).collect();
        assert_eq!(lines.len(), 5, "{error}");
        let last = "x.toml:12: flow.protocol: `300` is none; 0 to 255";
        assert!(lines[4].starts_with(last), "{error}");
    }

    #[test]
    fn host_bits_do_not_count_and_repetitions_do() {
        let mut problems = Problems::default();
        let source = problems.source("x.cfg");
        let mut rules = Rules::<u128, 4>::default();
        for (line, text) in (1..).zip(["2001:db8::1/32", "2001:db8::/32", "::/0"]) {
            let place = Place {
                source,
                line,
                entry: "",
            };
            rules.route(place, At { value: text, line }, Some(0), &mut problems);
        }
        let shown: Vec<_> = rules
            .routes
            .iter()
            .map(|(prefix, _)| prefix.to_string())
            .collect();
        assert_eq!(shown, ["2001:db8::/32", "::/0"]);
        let error = problems.result(None).unwrap_err().to_string();
        assert!(
            error.starts_with("x.cfg:2: the route of x.cfg:1 has this 2001:db8::/32"),
            "{error}"
        );
    }

    #[test]
    fn differences_go_by_what_rules_lead_to_and_not_by_numbers() {
        let mut old = NextHops::new(2);
        let stations = [7, 8].map(MacAddr::local);
        let [a, b] = stations.map(|mac| old.number(0, Some(mac)));
        let before = [(1_u8, a), (2, b), (3, 1)];
        // The same stations, numbered the other way round.
        let mut new = NextHops::new(2);
        let [b, a] = [stations[1], stations[0]].map(|mac| new.number(0, Some(mac)));
        let differ = |after: &[(u8, u32)]| Differences::between((&before, &old), (after, &new));
        assert_eq!(differ(&[(1, a), (2, b), (3, 1)]), Differences::default());
        let changed = differ(&[(1, b), (3, 1), (4, 0)]);
        assert_eq!((changed.added, changed.removed), (2, 2));
        assert!(!changed.is_moved && differ(&[(2, b), (1, a), (3, 1)]).is_moved);
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
