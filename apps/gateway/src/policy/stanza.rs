//! The stanzas `[[zone]]`, `[[set]]` and `[[policy]]`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use linerate_appliance::address::Prefix;
use linerate_appliance::config::{At, Section, parse, text};
use linerate_appliance::nearest::offer;
use linerate_routing::plane::acl::{Answer, Said, Verdict};

use super::lists::ListConfig;
use super::rule::{Addresses, Apply, Item, Rule};
use super::sets::{self, Ports, PrefixSet, Service};
use super::words;
use super::zones::{self, End, Zone, ZoneConfig};

/// Actions of rules and defaults, by their names in the file.
const ACTIONS: [(&str, Verdict); 3] = [
    ("permit", Verdict::Permit),
    ("deny", Verdict::Deny),
    ("reject", Verdict::Reject),
];
/// How `reject` answers the sender, by the name in the file.
const ANSWERS: [(&str, Answer); 2] = [("reset", Answer::Reset), ("icmp", Answer::Icmp)];
/// Legal rules, for errors.
const RULES: &str = "a list of tables such as { action = \"permit\", service = \"tcp/443\" }";
/// Legal services to apply, for errors.
const APPLY: &str = "a list of services such as [\"statistics\", \"police:guest\"]";
/// Legal addresses, for errors.
const ADDRESSES: &str = "a prefix, the name of a [[set]], or a list of those; `!` negates one";

/// What the stanzas say.
#[derive(Clone, Debug, Default)]
pub struct PolicyConfig {
    /// Zones.
    pub zones: Vec<ZoneConfig>,
    /// Lists, one for each `[[policy]]`.
    pub lists: Vec<ListConfig>,
}

/// A named set.
enum Set {
    Prefixes(Arc<PrefixSet>),
    Ports(Vec<(u16, u16)>),
    Services(Vec<Service>),
}

impl Set {
    /// What it is, and which keys of a rule it is for.
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::Prefixes(_) => ("prefixes", "source or destination"),
            Self::Ports(_) => ("ports", "source_port or destination_port"),
            Self::Services(_) => ("services", "service"),
        }
    }
}

/// All sets, by name.
type Sets = HashMap<String, Set>;

/// Reads the stanzas. `interfaces`: the names of those that there are; `folder`: where the files
/// are whose names are relative.
pub fn read(file: &Section<'_>, interfaces: &[&str], folder: &Path) -> PolicyConfig {
    let zones = read_zones(file, interfaces);
    let sets = read_sets(file, folder);
    let lists = read_policies(file, &zones, &sets, folder);
    PolicyConfig { zones, lists }
}

fn read_zones(file: &Section<'_>, interfaces: &[&str]) -> Vec<ZoneConfig> {
    let mut zones: Vec<ZoneConfig> = Vec::new();
    let mut line = 1;
    for section in file.tables("zone", "tables: [[zone]] with name and interfaces") {
        line = section.line;
        let name = section.required("name", "a name such as \"lan\"");
        if let Some(At { value, line }) = &name {
            if matches!(value.as_str(), zones::SELF | zones::ANY) {
                let problem = format!("`{value}` has a meaning of its own");
                section.wrong(*line, "name", problem, "another name, such as \"lan\"");
            } else if zones.iter().any(|zone| zone.name == *value) {
                let problem = format!("`{value}` names two zones");
                section.wrong(*line, "name", problem, "a name of its own");
            }
        }
        let legal = "a list of interfaces such as [\"lan\", \"dmz.5\"]";
        let listed = section.texts("interfaces", legal, |text| Ok(text.to_string()));
        let is_empty = listed.is_empty();
        let mut these: Vec<String> = Vec::new();
        for At { value, line } in listed {
            let other = zones.iter().find(|zone| zone.interfaces.contains(&value));
            if !interfaces.contains(&value.as_str()) {
                let problem = format!("there is no interface `{value}`");
                let legal = offer(&value, interfaces.iter().copied());
                section.wrong(line, "interfaces", problem, legal);
            } else if let Some(zone) = other {
                let problem = format!("`{value}` is in zone `{}` already", zone.name);
                section.wrong(line, "interfaces", problem, "one zone for each interface");
            } else if !these.contains(&value) {
                these.push(value);
            }
        }
        let flows = section.number("flows", 1..=100_000_000);
        let half_open = section.number("half_open", 0..=200_000_000);
        if section.end() && is_empty {
            let advice = "name its interfaces, or take it out";
            (section.notes()).warn(section.line, "zone", "this zone has no interface", advice);
        }
        zones.push(ZoneConfig {
            name: name.map_or(String::new(), |name| name.value),
            interfaces: these,
            flows: flows.map(|at| at.value),
            half_open: half_open.map(|at| at.value),
        });
    }
    if zones.len() > Zone::MOST {
        let problem = format!("there are {} zones", zones.len());
        file.wrong(line, "zone", problem, format!("at most {}", Zone::MOST));
        zones.truncate(Zone::MOST);
    }
    if !zones.is_empty() {
        let is_in = |name: &&&str| {
            zones
                .iter()
                .any(|zone| zone.interfaces.iter().any(|one| one == *name))
        };
        for name in interfaces.iter().filter(|name| !is_in(name)) {
            let problem = format!("interface `{name}` is in no zone: nothing is forwarded there");
            (file.notes()).warn(line, "zone", problem, "put it into a [[zone]]");
        }
    }
    zones
}

fn read_sets(file: &Section<'_>, folder: &Path) -> Sets {
    let mut sets = Sets::new();
    for section in file.tables(
        "set",
        "tables: [[set]] with name, and prefixes, ports or services",
    ) {
        let name = section.required("name", "a name such as \"servers\"");
        if let Some(At { value, line }) = &name {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if !value.starts_with(|c: char| c.is_ascii_alphabetic())
                || !value.chars().all(is_name)
                || value == zones::ANY
                || words::protocol(value).is_ok()
            {
                let problem = format!("`{value}` could be taken for something else");
                let legal = "a letter, then letters, digits, `-`, `_` or `.`; no protocol, not any";
                section.wrong(*line, "name", problem, legal);
            } else if sets.contains_key(value) {
                let problem = format!("`{value}` names two sets");
                section.wrong(*line, "name", problem, "a name of its own");
            }
        }
        let name = name.map_or(String::new(), |name| name.value);
        let set = read_set(&section, &name, folder);
        if let Some(set) = set.filter(|_| section.end()) {
            let is_empty = match &set {
                Set::Prefixes(set) => set.v4().is_none() && set.v6().is_none(),
                Set::Ports(ports) => ports.is_empty(),
                Set::Services(services) => services.is_empty(),
            };
            if is_empty && !matches!(set, Set::Prefixes(_)) {
                let problem = format!("set `{name}` is empty");
                section.wrong(section.line, "name", problem, "fill it, or take it out");
            } else if is_empty {
                let problem = format!("set `{name}` has no prefix: nothing is in it");
                (section.notes()).warn(section.line, "set", problem, "fill it, or take it out");
            }
            sets.insert(name, set);
        } else {
            section.end();
        }
    }
    sets
}

fn read_set(section: &Section<'_>, name: &str, folder: &Path) -> Option<Set> {
    let keys = ["prefixes", "ports", "services", "file"];
    let given: Vec<&str> = keys.into_iter().filter(|key| section.has(key)).collect();
    let values = |list: Vec<At<Prefix>>| list.into_iter().map(|at| at.value).collect::<Vec<_>>();
    // All keys are read, so that `end` knows them.
    let legal = "a list of prefixes such as [\"10.0.0.0/8\", \"2001:db8::/32\"]";
    let prefixes = values(section.texts("prefixes", legal, words::prefix));
    let ports = port_ranges(section, "ports", None);
    let legal = format!("a list of services, {}", words::SERVICE);
    let services = section.texts("services", &legal, words::service);
    let legal = "the name of a file with a prefix in each line";
    let path = section.text("file", legal);
    match given.as_slice() {
        ["prefixes"] => Some(Set::Prefixes(Arc::new(PrefixSet::new(name, &prefixes)))),
        ["ports"] => Some(Set::Ports(ports)),
        ["services"] => Some(Set::Services(
            services.into_iter().map(|at| at.value).collect(),
        )),
        ["file"] => {
            let At { value, line } = path?;
            let text = match text(&folder.join(&value)) {
                Ok(text) => text,
                Err(error) => {
                    section.wrong(line, "file", error.to_string(), legal);
                    return None;
                }
            };
            match sets::prefixes(&text) {
                Ok(prefixes) => Some(Set::Prefixes(Arc::new(PrefixSet::new(name, &prefixes)))),
                Err(wrong) => {
                    for (number, problem) in wrong {
                        let problem = format!("{value} line {number}: {problem}");
                        section.wrong(line, "file", problem, words::PREFIX);
                    }
                    None
                }
            }
        }
        [] => {
            let legal = "one of prefixes, ports, services, file";
            section.wrong(
                section.line,
                "name",
                "this set says nothing of its members",
                legal,
            );
            None
        }
        [first, ..] => {
            let problem = format!("it has {}", given.join(" and "));
            section.wrong(
                section.line,
                first,
                problem,
                "one kind of members for each set",
            );
            None
        }
    }
}

fn read_policies(
    file: &Section<'_>,
    zones: &[ZoneConfig],
    sets: &Sets,
    folder: &Path,
) -> Vec<ListConfig> {
    let mut lists: Vec<ListConfig> = Vec::new();
    for section in file.tables(
        "policy",
        "tables: [[policy]] with from, to, default and rules",
    ) {
        let end = |key| {
            let at = section.required(key, "the name of a [[zone]], self or any")?;
            let names = || {
                zones
                    .iter()
                    .map(|zone| zone.name.as_str())
                    .chain([zones::SELF])
            };
            if at.value == zones::ANY {
                return Some(End::Any);
            }
            if !names().any(|name| name == at.value) {
                let problem = format!("there is no zone `{}`", at.value);
                let legal = offer(&at.value, names().chain([zones::ANY]));
                section.wrong(at.line, key, problem, legal);
            }
            Some(End::Named(at.value))
        };
        let (from, to) = (end("from"), end("to"));
        let default = section.choice("default", &ACTIONS);
        let answer = section.choice("reject", &ANSWERS);
        let (Some(from), Some(to)) = (from, to) else {
            // The rules have no name, but may have errors.
            read_rules(&section, "policy", sets, folder);
            section.end();
            continue;
        };
        let mut list = ListConfig {
            from,
            to,
            default: default.map_or(Verdict::Deny, |at| at.value),
            answer: answer.map_or(Answer::default(), |at| at.value),
            rules: Vec::new(),
            sets: Vec::new(),
            applies: Vec::new(),
            line: section.line,
            file: None,
        };
        let name = list.name();
        if lists
            .iter()
            .any(|other| (&other.from, &other.to) == (&list.from, &list.to))
        {
            let problem = format!("there are two policies {name}");
            section.wrong(section.line, "from", problem, "one for each pair of zones");
        }
        let is_self = |end: &End| *end == End::Named(zones::SELF.into());
        if is_self(&list.from) && is_self(&list.to) {
            let problem = "what the gateway sends to itself does not cross it";
            section.wrong(
                section.line,
                "to",
                problem,
                "the name of a [[zone]], or any",
            );
        }
        (list.rules, list.sets, list.applies, list.file) =
            read_rules(&section, &name, sets, folder);
        section.end();
        lists.push(list);
    }
    lists
}

/// Rules, the sets that they ask for, services that they apply, and the file that they are in.
type Rules = (Vec<Rule>, Vec<Arc<PrefixSet>>, Vec<Apply>, Option<String>);

fn read_rules(section: &Section<'_>, list: &str, sets: &Sets, folder: &Path) -> Rules {
    let mut reader = RuleReader {
        sets,
        used: Vec::new(),
        applies: vec![applied(section)],
        rules: Vec::new(),
    };
    let path = section.text("file", "the name of a file with [[rule]] tables");
    let rules = section.list("rules", RULES);
    if let Some(At { line, .. }) = path.as_ref().filter(|_| section.has("rules")) {
        section.wrong(*line, "file", "it has rules, too", "either rules or file");
    }
    if section.has("rules") && rules.is_empty() {
        let advice = "its default alone decides";
        (section.notes()).warn(section.line, "policy.rules", "this list is empty", advice);
    }
    for (number, (value, _)) in (1..).zip(rules) {
        let which = format!("policy {list} rule {number}");
        if let Some(rule) = section.element(&which, value, RULES) {
            reader.add(&rule);
        }
    }
    if let Some(At { value, line }) = &path {
        let legal = "the name of a file with [[rule]] tables";
        match text(&folder.join(value)) {
            Err(error) => section.wrong(*line, "file", error.to_string(), legal),
            Ok(text) => {
                let parsed = parse(&text, |file| {
                    for rule in file.tables("rule", "tables: [[rule]] with action") {
                        reader.add(&rule);
                    }
                    file.end();
                });
                for error in parsed.errors {
                    let (line_of, key, problem) = (error.line, error.key, error.problem);
                    let problem = format!("{value} line {line_of}: {key}: {problem}");
                    section.wrong(*line, "file", problem, error.legal);
                }
            }
        }
    }
    if reader.rules.len() >= Said::MOST_RULES {
        let legal = format!("at most {}", Said::MOST_RULES);
        section.wrong(section.line, "rules", "there are too many rules", legal);
    }
    let file = path.map(|path| path.value);
    (reader.rules, reader.used, reader.applies, file)
}

/// The services of a rule or of a list.
fn applied(section: &Section<'_>) -> Apply {
    let all = section.texts("apply", APPLY, |name| Ok(name.to_string()));
    let mut names: Vec<String> = all.into_iter().map(|at| at.value).collect();
    names.sort_unstable();
    names.dedup();
    Apply {
        names,
        line: section.line,
    }
}

/// Port ranges of a key, and of named sets if there may be such.
fn port_ranges(section: &Section<'_>, key: &'static str, sets: Option<&Sets>) -> Vec<(u16, u16)> {
    let legal = match sets {
        Some(_) => format!(
            "{}, the name of a [[set]], or a list of those",
            words::PORTS
        ),
        None => format!("a list of ports: {}", words::PORTS),
    };
    let mut all = Vec::new();
    for At { value, line } in one_or_more(section, key, &legal) {
        match sets.and_then(|sets| sets.get(&value)) {
            Some(Set::Ports(ports)) => all.extend(ports),
            Some(other) => wrong_kind(section, line, key, &value, other),
            None => match words::range(&value) {
                Ok(range) => all.push(range),
                Err(problem) => {
                    let legal = match sets {
                        Some(sets) => named(&value, sets, "ports", &legal),
                        None => legal.clone(),
                    };
                    section.wrong(line, key, problem, legal);
                }
            },
        }
    }
    all
}

/// A text or a number, or a list of such; an error where the list is empty.
fn one_or_more(section: &Section<'_>, key: &'static str, legal: &str) -> Vec<At<String>> {
    let Some(At { value, line }) = section.scalar(key, legal) else {
        return Vec::new();
    };
    let all: Vec<_> = value
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| At {
            value: part.to_string(),
            line,
        })
        .collect();
    if all.is_empty() {
        section.wrong(line, key, "this list is empty", legal);
    }
    all
}

/// That a set is of another kind than the key.
fn wrong_kind(section: &Section<'_>, line: usize, key: &str, name: &str, set: &Set) {
    let (kind, keys) = set.kind();
    let problem = format!("`{name}` is a set of {kind}");
    section.wrong(line, key, problem, format!("use it for {keys}"));
}

/// What is legal, and sets of that kind whose names are like `word`.
fn named(word: &str, sets: &Sets, kind: &str, legal: &str) -> String {
    let names = sets.iter().filter(|(_, set)| set.kind().0 == kind);
    let mut names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match linerate_appliance::nearest::nearest(word, names.iter().copied()).as_slice() {
        [] => legal.into(),
        _ => offer(word, names),
    }
}

/// Reads rules of one list.
struct RuleReader<'a> {
    sets: &'a Sets,
    /// The sets that rules have asked for.
    used: Vec<Arc<PrefixSet>>,
    /// Services that they apply, those of the list first.
    applies: Vec<Apply>,
    rules: Vec<Rule>,
}

impl RuleReader<'_> {
    /// Reads a rule, and keeps it if it has no errors.
    fn add(&mut self, section: &Section<'_>) {
        let rule = self.rule(section);
        if let Some(rule) = rule.filter(|_| section.end()) {
            self.rules.push(rule);
        } else {
            section.end();
        }
    }

    fn rule(&mut self, section: &Section<'_>) -> Option<Rule> {
        let legal = "permit, deny or reject";
        let action = section.required("action", legal).and_then(|at| {
            let known = ACTIONS.iter().find(|(name, _)| *name == at.value);
            if known.is_none() {
                let problem = format!("`{}` is no action", at.value);
                section.wrong(at.line, "action", problem, legal);
            }
            known.map(|(_, verdict)| *verdict)
        });
        let name = section.text("name", "a text such as \"web\"");
        let log = section.switch("log");
        let source = self.addresses(section, "source");
        let destination = self.addresses(section, "destination");
        let services = self.services(section);
        let dscp = section.number::<u8>("dscp", 0..=63);
        let apply = self.apply(section);
        let rule = Rule {
            name: name.map(|at| at.value),
            action: action?,
            log: log.is_some_and(|at| at.value),
            source,
            destination,
            services,
            dscp: dscp.map(|at| at.value),
            apply,
            line: section.line,
        };
        if rule.action != Verdict::Permit && section.has("apply") {
            let problem = "flows that it refuses have no packets";
            section.wrong(rule.line, "apply", problem, "only with action = \"permit\"");
        }
        self.check_families(section, &rule);
        Some(rule)
    }

    /// The place of the services that a rule applies.
    fn apply(&mut self, section: &Section<'_>) -> u16 {
        let apply = applied(section);
        if !section.has("apply") {
            return 0;
        }
        let mut known = self.applies.iter().skip(1);
        let place = known.position(|known| *known == apply).map(|at| at + 1);
        let place = place.unwrap_or(self.applies.len());
        if place == self.applies.len() && place < usize::from(u16::MAX) {
            self.applies.push(apply);
        }
        place as u16
    }

    /// An error where the rule can match no packet of either family.
    fn check_families(&self, section: &Section<'_>, rule: &Rule) {
        let is_for = |v4: bool| {
            let of = |item: &Item| match item {
                // A set may be filled later.
                Item::Set(_) => true,
                Item::Prefix(prefix) => matches!(prefix, Prefix::V4(_)) == v4,
            };
            let end = |end: &Addresses| end.include.is_empty() || end.include.iter().any(of);
            let services = &rule.services;
            let service = services.is_empty() || services.iter().any(|one| one.is_for(v4));
            (end(&rule.source), end(&rule.destination), service)
        };
        let (four, six) = (is_for(true), is_for(false));
        let fits =
            |(source, destination, service): (bool, bool, bool)| source && destination && service;
        if fits(four) || fits(six) {
            return;
        }
        match (four.0 && four.1) || (six.0 && six.1) {
            true => section.wrong(
                section.line,
                "protocol",
                "it fits no packet of these addresses",
                "icmp with IPv4 addresses, icmp6 with IPv6 addresses",
            ),
            false => section.wrong(
                section.line,
                "destination",
                "source and destination are of two families",
                "both IPv4 or both IPv6",
            ),
        }
    }

    fn addresses(&mut self, section: &Section<'_>, key: &'static str) -> Addresses {
        let mut all = Addresses::default();
        let mut is_any = false;
        for At { value, line } in one_or_more(section, key, ADDRESSES) {
            let (word, negated) = match value.strip_prefix('!') {
                Some(word) => (word.trim(), true),
                None => (value.as_str(), false),
            };
            if word == zones::ANY && !negated {
                is_any = true;
                continue;
            }
            let item = match self.sets.get(word) {
                Some(Set::Prefixes(set)) => Some(Item::Set(self.place(set))),
                Some(other) => {
                    wrong_kind(section, line, key, word, other);
                    None
                }
                None => match words::prefix(word) {
                    Ok(prefix) => Some(Item::Prefix(prefix)),
                    Err(problem) => {
                        let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic())
                            && !word.contains([':', '/']);
                        let problem = match is_name {
                            true => format!("there is no set `{word}`"),
                            false => problem,
                        };
                        let legal = named(word, self.sets, "prefixes", ADDRESSES);
                        section.wrong(line, key, problem, legal);
                        None
                    }
                },
            };
            match negated {
                true => all.exclude.extend(item),
                false => all.include.extend(item),
            }
        }
        if is_any {
            all.include.clear();
        }
        all
    }

    /// The place of a set among those that the list asks for.
    fn place(&mut self, set: &Arc<PrefixSet>) -> usize {
        let known = self.used.iter().position(|one| Arc::ptr_eq(one, set));
        known.unwrap_or_else(|| {
            self.used.push(set.clone());
            self.used.len() - 1
        })
    }

    /// `service`, or `protocol` with ports or a type.
    fn services(&self, section: &Section<'_>) -> Vec<Service> {
        let mut all: Vec<Service> = Vec::new();
        let legal = format!(
            "{}, the name of a [[set]], or a list of those",
            words::SERVICE
        );
        for At { value, line } in one_or_more(section, "service", &legal) {
            match self.sets.get(&value) {
                Some(Set::Services(services)) => all.extend(services.iter().cloned()),
                Some(other) => wrong_kind(section, line, "service", &value, other),
                None => match words::service(&value) {
                    Ok(service) => all.push(service),
                    Err(problem) => {
                        let legal = named(&value, self.sets, "services", &legal);
                        section.wrong(line, "service", problem, legal);
                    }
                },
            }
        }
        let protocol = section.word("protocol", "a name or a number, or any", words::protocol);
        let keys = ["source_port", "destination_port"];
        let ports = keys.map(|key| port_ranges(section, key, Some(self.sets)));
        let kind = section.number::<u8>("icmp_type", 0..=255);
        let code = section.number::<u8>("icmp_code", 0..=255);
        // Where the protocol is misspelt, ports and types may be right.
        let is_misread = protocol.is_none() && section.has("protocol");
        let number = protocol.and_then(|at| at.value);
        let both = ["protocol", keys[0], keys[1], "icmp_type", "icmp_code"];
        if let Some(key) = both
            .into_iter()
            .find(|key| section.has(key) && section.has("service"))
        {
            let problem = "a service has all of this";
            section.wrong(
                section.line,
                key,
                problem,
                "either service, or protocol and ports",
            );
            return all;
        }
        for key in keys {
            if section.has(key) && !is_misread && !number.is_some_and(words::has_ports) {
                let legal = "with protocol = \"tcp\", \"udp\" or \"sctp\"";
                section.wrong(section.line, key, "only some protocols have ports", legal);
            }
        }
        for (at, key) in [(&kind, "icmp_type"), (&code, "icmp_code")] {
            if at.is_some() && !is_misread && !number.is_some_and(words::is_icmp) {
                let legal = "with protocol = \"icmp\" or \"icmp6\"";
                section.wrong(section.line, key, "only ICMP has types and codes", legal);
            }
        }
        if let Some(at) = code.as_ref().filter(|_| kind.is_none()) {
            section.wrong(
                at.line,
                "icmp_code",
                "a code is one of a type",
                "with icmp_type",
            );
        }
        if let Some(protocol) = number {
            let [source, destination] = ports;
            all.push(Service {
                protocol,
                source_ports: Ports::of(source),
                destination_ports: Ports::of(destination),
                icmp: kind.map(|kind| (kind.value, code.map(|code| code.value))),
            });
        }
        all
    }
}
