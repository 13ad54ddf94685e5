//! `[[acl]]`: ordered rules, of which the first that matches decides.

use std::collections::HashSet;
use std::fmt;

use linerate_tables::acl::{Bits, Match, Prefix as AclPrefix, Range};
use linerate_tables::lpm;

use super::words;
use linerate_appliance::config::{At, Section};
use linerate_routing::model::Prefix;
use linerate_routing::plane::acl::{Answer, Verdict};

/// The verdicts of rules, by their names in the file.
const ACTIONS: [(&str, Verdict); 3] = [
    ("permit", Verdict::Permit),
    ("deny", Verdict::Deny),
    ("reject", Verdict::Reject),
];

/// How `reject` answers the sender, by the name in the file.
const ANSWERS: [(&str, Answer); 2] = [("reset", Answer::Reset), ("icmp", Answer::Icmp)];

/// A rule, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    pub action: Verdict,
    /// Whether packets that match are logged.
    pub log: bool,
    pub source: Option<Prefix>,
    pub destination: Option<Prefix>,
    pub protocol: Option<u8>,
    /// First and last port.
    pub source_ports: Option<(u16, u16)>,
    pub destination_ports: Option<(u16, u16)>,
    pub icmp_type: Option<u8>,
}

/// An access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub name: String,
    /// The verdict for packets that no rule matches.
    pub default: Verdict,
    /// How `reject` answers TCP.
    pub answer: Answer,
    pub rules: Vec<AclRule>,
}

impl AclRule {
    /// Whether the rule can match packets of this address family.
    fn is_for(&self, v4: bool) -> bool {
        let family = |prefix: &Option<Prefix>| match prefix {
            Some(Prefix::V4(_)) => v4,
            Some(Prefix::V6(_)) => !v4,
            None => true,
        };
        let icmp = match self.protocol {
            Some(1) => v4,
            Some(58) => !v4,
            _ => true,
        };
        family(&self.source) && family(&self.destination) && icmp
    }

    fn fields<const W: usize>(
        &self,
        words: impl Fn(&Prefix) -> Option<([u32; W], u8)>,
    ) -> Match<W> {
        let prefix = |prefix: &Option<Prefix>| {
            let parts = prefix.as_ref().and_then(&words);
            parts.map_or(AclPrefix::ANY, |(words, len)| AclPrefix::of(words, len))
        };
        let range = |range: Option<(u16, u16)>| {
            range.map_or(Range::ANY, |(low, high)| {
                Range::new(low, high).expect("the order was checked")
            })
        };
        Match {
            src: prefix(&self.source),
            dst: prefix(&self.destination),
            src_ports: range(self.source_ports),
            dst_ports: range(self.destination_ports),
            icmp_type: self
                .icmp_type
                .map_or(Range::ANY, |number| Range::one(number.into())),
            protocol: self.protocol.map_or(Bits::ANY, Bits::byte),
            ..Match::ANY
        }
    }

    /// The match for IPv4 packets; `None` where the rule can match none.
    pub fn match4(&self) -> Option<Match<1>> {
        let words = |prefix: &Prefix| match prefix {
            Prefix::V4(prefix) => Some(([prefix.first()], prefix.len())),
            Prefix::V6(_) => None,
        };
        self.is_for(true).then(|| self.fields(words))
    }

    /// The match for IPv6 packets; `None` where the rule can match none.
    pub fn match6(&self) -> Option<Match<4>> {
        let words = |prefix: &Prefix| match prefix {
            Prefix::V6(prefix) => Some((words6(prefix), prefix.len())),
            Prefix::V4(_) => None,
        };
        self.is_for(false).then(|| self.fields(words))
    }
}

impl fmt::Display for AclRule {
    /// What the rule matches: `tcp 10.0.0.0/8 > any port 22`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(number) => write!(f, "{} ", words::protocol_name(number))?,
            None => write!(f, "any ")?,
        }
        let end = |f: &mut fmt::Formatter<'_>, prefix: Option<Prefix>, ports| {
            match prefix {
                Some(prefix) => write!(f, "{prefix}")?,
                None => write!(f, "any")?,
            }
            match ports {
                Some((low, high)) if low == high => write!(f, " port {low}"),
                Some((low, high)) => write!(f, " ports {low}-{high}"),
                None => Ok(()),
            }
        };
        end(f, self.source, self.source_ports)?;
        write!(f, " > ")?;
        end(f, self.destination, self.destination_ports)?;
        match self.icmp_type {
            Some(kind) => write!(f, " type {kind}"),
            None => Ok(()),
        }
    }
}

/// The most significant word first.
fn words6(prefix: &lpm::Prefix6) -> [u32; 4] {
    let bits = prefix.first();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

pub(super) fn acls(file: &Section<'_>) -> Vec<Acl> {
    let mut acls: Vec<Acl> = Vec::new();
    for section in file.tables("acl", "tables: [[acl]] with name, default and rules") {
        let name = section.required("name", "a name such as \"edge\"");
        if let Some(At { value, line }) = &name
            && acls.iter().any(|acl| acl.name == *value)
        {
            let problem = format!("`{value}` names two access lists");
            section.wrong(*line, "name", problem, "a name of its own");
        }
        let default = section.choice("default", &ACTIONS);
        let answer = section.choice("reject", &ANSWERS);
        let rules = rules(&section, name.as_ref().map_or("", |name| &name.value));
        section.end();
        acls.push(Acl {
            name: name.map_or(String::new(), |name| name.value),
            default: default.map_or(Verdict::Deny, |at| at.value),
            answer: answer.map_or(Answer::default(), |at| at.value),
            rules,
        });
    }
    acls
}

fn rules(section: &Section<'_>, acl: &str) -> Vec<AclRule> {
    let mut all: Vec<AclRule> = Vec::new();
    let (mut known4, mut known6) = (HashSet::new(), HashSet::new());
    let legal = "a list of tables such as { action = \"deny\", source = \"10.0.0.0/8\" }";
    for (number, (value, _)) in (1..).zip(section.list("rules", legal)) {
        // Rules are numbered as `ctl show acls` and the lines of `log` do.
        let which = format!("acl {acl} rule {number}");
        let Some(rule) = section.element(&which, value, legal) else {
            continue;
        };
        let read = self::rule(&rule);
        // A rule with an error may lack conditions, hence it is not compared with the others.
        let Some(read) = read.filter(|_| rule.end()) else {
            rule.end();
            continue;
        };
        let (matches4, matches6) = (read.match4(), read.match6());
        let again4 = matches4.is_some_and(|matches| !known4.insert(matches));
        let again6 = matches6.is_some_and(|matches| !known6.insert(matches));
        if again4 || again6 {
            let problem = "an earlier rule matches the same packets: this one never decides";
            rule.wrong(rule.line, "action", problem, "remove one of the two");
            continue;
        }
        all.push(read);
    }
    all
}

fn rule(section: &Section<'_>) -> Option<AclRule> {
    let prefix = |key| section.read(key, words::PREFIX, words::prefix);
    let ports = |key| {
        section.word(
            key,
            "a port or a range such as \"1024-65535\"",
            words::range,
        )
    };
    let legal = "permit, deny or reject";
    let action = section.required("action", legal).and_then(|at| {
        let known = ACTIONS.iter().find(|(name, _)| *name == at.value);
        if known.is_none() {
            let problem = format!("`{}` is no action", at.value);
            section.wrong(at.line, "action", problem, legal);
        }
        known.map(|(_, verdict)| *verdict)
    });
    let (source, destination) = (prefix("source"), prefix("destination"));
    let protocol = section.word("protocol", "a name or a number, or any", words::protocol);
    let (source_ports, destination_ports) = (ports("source_port"), ports("destination_port"));
    let icmp_type = section.number::<u8>("icmp_type", 0..=255);
    let log = section.switch("log");
    // Where the protocol is misspelt, ports and types may be right.
    let is_misread = protocol.is_none() && section.has("protocol");
    let protocol = protocol.and_then(|at| at.value);
    let mut is_mixed = false;
    if let (Some(a), Some(b)) = (&source, &destination)
        && matches!(a.value, Prefix::V4(_)) != matches!(b.value, Prefix::V4(_))
    {
        is_mixed = true;
        let problem = "source and destination are of two families";
        section.wrong(b.line, "destination", problem, "both IPv4 or both IPv6");
    }
    for (at, key) in [
        (&source_ports, "source_port"),
        (&destination_ports, "destination_port"),
    ] {
        if let Some(at) = at
            && !is_misread
            && !matches!(protocol, Some(6 | 17 | 132))
        {
            let legal = "with protocol = \"tcp\", \"udp\" or \"sctp\"";
            section.wrong(at.line, key, "only some protocols have ports", legal);
        }
    }
    if let Some(at) = &icmp_type
        && !is_misread
        && !matches!(protocol, Some(1 | 58))
    {
        let legal = "with protocol = \"icmp\" or \"icmp6\"";
        section.wrong(at.line, "icmp_type", "only ICMP has types", legal);
    }
    let rule = AclRule {
        action: action?,
        log: log.is_some_and(|at| at.value),
        source: source.map(|at| at.value),
        destination: destination.map(|at| at.value),
        protocol,
        source_ports: source_ports.map(|at| at.value),
        destination_ports: destination_ports.map(|at| at.value),
        icmp_type: icmp_type.map(|at| at.value),
    };
    let misses = |number, v4| protocol == Some(number) && !rule.is_for(v4);
    if !is_mixed && (misses(58, false) || misses(1, true)) {
        let legal = "icmp with IPv4 addresses, icmp6 with IPv6 addresses";
        section.wrong(
            section.line,
            "protocol",
            "it fits no packet of these addresses",
            legal,
        );
    }
    Some(rule)
}
