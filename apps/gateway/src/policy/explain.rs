//! Why a flow may begin, or may not: `10.0.0.1:4000 > 192.0.2.1:443 tcp`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::{FromStr, SplitWhitespace};

use linerate_tables::acl::{PacketKey, words6};
use serde_json::{Value, json};

use super::first::FirstPacket;
use super::words;
use super::{Policy, Zone};
use linerate_routing::plane::acl::Verdict;

/// Rules that did not match which the text tells of, and JSON: the last before the one that did.
const TOLD: usize = 20;
const MOST: usize = 1000;

/// Which rule decides on a flow, and why the rules before it do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The packet, as it is written.
    pub packet: String,
    /// The zones that it comes from and goes to.
    pub zones: (String, String),
    /// The list that decides.
    pub list: String,
    /// The rule that decides; `None`: no rule matches, and the list's default decides.
    pub rule: Option<Named>,
    /// The verdict's name.
    pub verdict: &'static str,
    /// Whether the flow is logged.
    pub log: bool,
    /// The services that it gets.
    pub apply: Vec<String>,
    /// How many rules before those in `passed_over` do not match either.
    pub untold: usize,
    /// The last rules before it.
    pub passed_over: Vec<PassedOver>,
}

/// A rule, as the user knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Counted from 1.
    pub number: usize,
    /// Its name in the configuration.
    pub name: Option<String>,
    /// What it matches.
    pub matches: String,
}

/// A rule that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The rule.
    pub rule: Named,
    /// The first field that differs.
    pub field: String,
    /// What the rule asks of it.
    pub asks: String,
}

impl Policy {
    /// Which rule decides on a flow, and why the rules before it do not: rule by rule, without the
    /// tables that [`decide`](Self::decide) looks up.
    pub fn explain(&self, from: Zone, to: Zone, packet: &FirstPacket) -> Explanation {
        let list = &self.lists()[usize::from(self.list(from, to))];
        let mut explanation = Explanation {
            packet: packet.to_string(),
            zones: (self.zones().name(from).into(), self.zones().name(to).into()),
            list: list.name.clone(),
            rule: None,
            verdict: list.default.name(),
            log: false,
            apply: Vec::new(),
            untold: 0,
            passed_over: Vec::new(),
        };
        let named = |at: usize| Named {
            number: at + 1,
            name: list.rules[at].name.clone(),
            matches: list.rules[at].show(&list.sets).to_string(),
        };
        let mut rules = list.rules.iter();
        let matching = rules.position(|rule| rule.failing(&list.sets, packet).is_none());
        if let Some(at) = matching {
            explanation.rule = Some(named(at));
            explanation.verdict = list.rules[at].action.name();
            explanation.log = list.rules[at].log;
        }
        let apply = matching.map_or(0, |at| list.rules[at].apply);
        if let Some(apply) = list.applies.get(usize::from(apply))
            && explanation.verdict == Verdict::Permit.name()
        {
            explanation.apply.clone_from(&apply.names);
        }
        let end = matching.unwrap_or(list.rules.len());
        explanation.untold = end.saturating_sub(MOST);
        for at in explanation.untold..end {
            if let Some(field) = list.rules[at].failing(&list.sets, packet) {
                explanation.passed_over.push(PassedOver {
                    rule: named(at),
                    field: field.to_string(),
                    asks: list.rules[at].asks(&list.sets, field),
                });
            }
        }
        explanation
    }
}

impl Explanation {
    /// All of it.
    pub fn to_json(&self) -> Value {
        let named = |rule: &Named| {
            json!({
                "number": rule.number,
                "name": rule.name,
                "matches": rule.matches,
            })
        };
        let passed = |passed: &PassedOver| {
            let mut value = named(&passed.rule);
            value["field"] = json!(passed.field);
            value["asks"] = json!(passed.asks);
            value
        };
        json!({
            "packet": self.packet,
            "from": self.zones.0,
            "to": self.zones.1,
            "policy": self.list,
            "rule": self.rule.as_ref().map(named),
            "verdict": self.verdict,
            "log": self.log,
            "services": self.apply,
            "passed_over_before": self.untold,
            "passed_over": self.passed_over.iter().map(passed).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.number)?;
        match &self.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    /// A line each: the packet, the last rules that do not match, and the one that does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, from {} to {}",
            self.packet, self.zones.0, self.zones.1
        )?;
        writeln!(f, "policy {}", self.list)?;
        let left = self.passed_over.len().saturating_sub(TOLD);
        if left > 0 {
            let untold = self.untold + left;
            writeln!(
                f,
                "  {untold} rules before these do not match (--json has {MOST} of them)"
            )?;
        }
        for PassedOver { rule, field, asks } in &self.passed_over[left..] {
            writeln!(f, "  not {rule}: {field} is not {asks}")?;
        }
        match &self.rule {
            Some(rule) => writeln!(f, "  {rule}: {}", rule.matches)?,
            None => writeln!(f, "  no rule matches: the default")?,
        }
        let logged = if self.log { ", logged" } else { "" };
        write!(f, "{}{logged}", self.verdict)?;
        match self.apply.as_slice() {
            [] => Ok(()),
            names => write!(f, "\nservices {}", names.join(", ")),
        }
    }
}

/// How a flow is written, for errors.
pub const LEGAL: &str = "write it as \"10.0.0.1:4000 > 192.0.2.1:443 tcp\", \"[2001:db8::1]:53 > \
                     [2001:db8::2]:53 udp\" or \"10.0.0.1 > 192.0.2.1 icmp type 8 code 0\"";

/// Reads a flow's first packet: two ends, `>` between them, a protocol, and perhaps `type`, `code`,
/// `dscp` with a number each, and `fragment`. TCP, UDP and SCTP need ports; ICMP without a type is
/// an echo request.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse(text: &str) -> Result<FirstPacket, String> {
    let mut words = text.split_whitespace();
    let source = end(words.next())?;
    match words.next() {
        Some(">") => {}
        Some(word) => return Err(format!("`{word}` stands in the place of `>`; {LEGAL}")),
        None => return Err(format!("there is no destination; {LEGAL}")),
    }
    let destination = end(words.next())?;
    if source.0.is_ipv4() != destination.0.is_ipv4() {
        let (source, destination) = (source.0, destination.0);
        return Err(format!("{source} and {destination} are of two families"));
    }
    let name = words
        .next()
        .ok_or_else(|| format!("there is no protocol; {LEGAL}"))?;
    let protocol = words::protocol(name)?.ok_or("`any` is no protocol of a packet")?;
    let options = options(words)?;
    if options.icmp != (None, None) && !words::is_icmp(protocol) {
        return Err(format!("{name} has no type and no code: leave them out"));
    }
    let ports = match (source.1, destination.1) {
        _ if options.is_fragment || !words::has_ports(protocol) => {
            if source.1.or(destination.1).is_some() {
                let which = if options.is_fragment {
                    "a later fragment"
                } else {
                    name
                };
                return Err(format!("{which} has no ports: leave them out"));
            }
            let echo = if source.0.is_ipv4() { 8 } else { 128 };
            let (kind, code) = options.icmp;
            (kind.unwrap_or(echo).into(), code.unwrap_or(0).into())
        }
        (Some(source), Some(destination)) => (source, destination),
        (None, _) => return Err(lacks(name, source.0)),
        (_, None) => return Err(lacks(name, destination.0)),
    };
    let first: FirstPacket = match (source.0, destination.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            PacketKey::tuple([source.into()], [destination.into()], ports, protocol)
                .with_dscp(options.dscp)
                .into()
        }
        (source, destination) => {
            let words = |address| match address {
                IpAddr::V6(address) => words6(address),
                IpAddr::V4(address) => words6(address.to_ipv6_mapped()),
            };
            PacketKey::tuple(words(source), words(destination), ports, protocol)
                .with_dscp(options.dscp)
                .into()
        }
    };
    Ok(match options.is_fragment {
        true => first.later_fragment(),
        false => first,
    })
}

impl FromStr for FirstPacket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text)
    }
}

/// That an end has no port, and how it would have one.
fn lacks(protocol: &str, address: IpAddr) -> String {
    let with = SocketAddr::new(address, 443);
    format!("{protocol} has ports, {address} stands without one: write {with}, for example")
}

/// An address, and perhaps a port.
fn end(word: Option<&str>) -> Result<(IpAddr, Option<u16>), String> {
    let word = word.ok_or_else(|| format!("an address is missing; {LEGAL}"))?;
    if let Ok(end) = word.parse::<SocketAddr>() {
        return Ok((end.ip(), Some(end.port())));
    }
    let address = word
        .strip_prefix('[')
        .and_then(|word| word.strip_suffix(']'));
    match address.unwrap_or(word).parse() {
        Ok(address) => Ok((address, None)),
        Err(_) => Err(format!(
            "`{word}` is no address, with or without a port; {LEGAL}"
        )),
    }
}

/// What may stand behind the protocol.
#[derive(Default)]
struct Options {
    /// Type and code.
    icmp: (Option<u8>, Option<u8>),
    dscp: u8,
    is_fragment: bool,
}

fn options(mut words: SplitWhitespace<'_>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        if word == "fragment" {
            options.is_fragment = true;
            continue;
        }
        let most = match word {
            "type" | "code" => 255,
            "dscp" => 63,
            _ => {
                let legal = "type, code, dscp or fragment may";
                return Err(format!(
                    "`{word}` cannot stand behind the protocol; {legal}"
                ));
            }
        };
        let number = words.next().and_then(|number| number.parse().ok());
        let number = number.filter(|number| *number <= most);
        let number =
            number.ok_or_else(|| format!("behind {word} stands no number up to {most}"))?;
        match word {
            "type" => options.icmp.0 = Some(number),
            "code" => options.icmp.1 = Some(number),
            _ => options.dscp = number,
        }
    }
    Ok(options)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_read_as_it_is_shown() {
        for text in [
            "10.0.0.1:4000 > 192.0.2.1:443 tcp",
            "[2001:db8::1]:53 > [2001:db8::2]:53 udp",
            "10.0.0.1 > 192.0.2.1 icmp type 3 code 4",
            "2001:db8::1 > 2001:db8::2 icmp6 type 128 code 0",
            "10.0.0.1 > 192.0.2.1 gre",
            "10.0.0.1 > 192.0.2.1 99 dscp 46",
            "10.0.0.1 > 192.0.2.1 udp fragment",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let echo = parse("10.0.0.1 > 192.0.2.1 icmp").unwrap();
        assert_eq!(echo.icmp(), Some((8, 0)));
        let echo = parse("[::1] > ::2 icmp6 code 1").unwrap();
        assert_eq!(echo.icmp(), Some((128, 1)));
    }

    #[test]
    fn an_error_names_the_fix() {
        for (text, fix) in [
            ("", "an address is missing; write it as"),
            ("10.0.0.1:1", "there is no destination; write it as"),
            ("10.0.0.1:1 10.0.0.2:2 tcp", "stands in the place of `>`"),
            ("10.0.0.1:1 > 10.0.0.2:2", "there is no protocol"),
            ("10.0.0.1:1 > 10.0.0.2:2 tpc", "perhaps tcp"),
            ("10.0.0.1:1 > 10.0.0.2:2 any", "no protocol of a packet"),
            (
                "10.0.0.1 > 10.0.0.2:2 tcp",
                "10.0.0.1 stands without one: write 10.0.0.1:443",
            ),
            ("[::1]:1 > ::2 tcp", "write [::2]:443"),
            ("10.0.0.1:1 > 10.0.0.2:2 icmp", "icmp has no ports"),
            (
                "10.0.0.1:1 > 10.0.0.2 udp fragment",
                "a later fragment has no ports",
            ),
            ("10.0.0.1:1 > ::2 tcp", "two families"),
            ("10.0.0:1 > 10.0.0.2:2 tcp", "`10.0.0:1` is no address"),
            ("10.0.0.1:1 > 10.0.0.2:2 tcp dscp 64", "number up to 63"),
            ("10.0.0.1:1 > 10.0.0.2:2 tcp syn", "dscp or fragment may"),
            ("10.0.0.1:1 > 10.0.0.2:2 tcp type 8", "leave them out"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(fix), "{text}: {problem}");
        }
    }
}
