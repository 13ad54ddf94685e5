//! The gateway's own stanzas: `[flows]`, `[[zone]]` and `[[policy]]`.
//!
//! Interfaces, access lists and all else are a router's ([`linerate_control::config`]), read
//! before. Zones name interfaces by name: a reload gives interfaces other numbers.

use linerate_appliance::config::{At, Section};
use linerate_appliance::nearest::offer;
use linerate_control::Config;
use linerate_routing::plane::acl::Verdict;

use crate::nat::{rules, stanza};

/// What the gateway's stanzas say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stanzas {
    /// `[flows]`.
    pub flows: FlowsConfig,
    /// By number.
    pub zones: Vec<ZoneConfig>,
    /// Each pair of zones at most once.
    pub policies: Vec<PolicyConfig>,
    /// `[nat]`, with interfaces by their place in `interfaces`.
    pub nat: rules::Config,
    /// Names of the interfaces of the file, in its order.
    pub interfaces: Vec<String>,
}

/// `[flows]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// The most flows of each family that one worker holds.
    pub ipv4: u32,
    /// The same of IPv6.
    pub ipv6: u32,
    /// Whether the receive queues of all ports put both directions of a flow into the queues of one
    /// number, which one worker polls.
    pub symmetric_rss: bool,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self {
            ipv4: 1 << 18,
            ipv6: 1 << 16,
            symmetric_rss: false,
        }
    }
}

/// `[[zone]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneConfig {
    /// Its name.
    pub name: String,
    /// Names of its interfaces.
    pub interfaces: Vec<String>,
}

/// `[[policy]]`: which flows may begin from one zone to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The zone that the first packet comes from.
    pub from: usize,
    /// The zone that it goes to.
    pub to: usize,
    /// The access list that decides, by its number in the file.
    pub acl: Option<u16>,
    /// What decides where there is no list.
    pub default: Verdict,
}

/// The verdicts of policies, by their names in the file.
const VERDICTS: [(&str, Verdict); 3] = [
    ("permit", Verdict::Permit),
    ("deny", Verdict::Deny),
    ("reject", Verdict::Reject),
];

/// Reads the gateway's stanzas.
pub(crate) fn read(file: &Section<'_>, config: &Config) -> Stanzas {
    let flows = flows(file);
    let zones = zones(file, config);
    let policies = policies(file, config, &zones);
    let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    let interfaces = config.interfaces.iter();
    let known: Vec<_> = (interfaces.clone())
        .map(|one| (one.name.as_str(), one.addresses.as_slice()))
        .collect();
    let known = stanza::Known {
        zones: &names,
        interfaces: &known,
    };
    let nat = stanza::read(file, &known);
    for (is_there, what) in [
        (!nat.nat64.is_empty(), "nat.nat64"),
        (!nat.nptv6.is_empty(), "nat.nptv6"),
    ] {
        if is_there {
            let line = file.value("nat").map_or(1, |(_, line)| line);
            let problem = format!("`{what}` is read, but packets are not translated by it yet");
            file.wrong(line, "nat", problem, "take it out");
        }
    }
    Stanzas {
        flows,
        zones,
        policies,
        nat,
        interfaces: interfaces.map(|one| one.name.clone()).collect(),
    }
}

fn flows(file: &Section<'_>) -> FlowsConfig {
    let usual = FlowsConfig::default();
    let Some(section) = file.table("flows", "flows", "a table: [flows]") else {
        return usual;
    };
    let most = |key| section.number(key, 1..=100_000_000);
    let flows = FlowsConfig {
        ipv4: most("ipv4").map_or(usual.ipv4, |at| at.value),
        ipv6: most("ipv6").map_or(usual.ipv6, |at| at.value),
        symmetric_rss: (section.switch("symmetric_rss")).map_or(usual.symmetric_rss, |at| at.value),
    };
    section.end();
    flows
}

fn zones(file: &Section<'_>, config: &Config) -> Vec<ZoneConfig> {
    let mut zones: Vec<ZoneConfig> = Vec::new();
    for section in file.tables("zone", "tables: [[zone]] with name and interfaces") {
        let name = section.required("name", "a name such as \"lan\"");
        if let Some(At { value, line }) = &name
            && zones.iter().any(|zone| zone.name == *value)
        {
            let problem = format!("`{value}` names two zones");
            section.wrong(*line, "name", problem, "a name of its own");
        }
        let known = || config.interfaces.iter().map(|one| one.name.as_str());
        let legal = "a list of interfaces such as [\"lan\", \"dmz.5\"]";
        let listed = section.texts("interfaces", legal, |text| Ok(text.to_string()));
        let mut interfaces = Vec::new();
        for At { value, line } in listed {
            let other = zones.iter().find(|zone| zone.interfaces.contains(&value));
            if !known().any(|name| name == value) {
                let problem = format!("there is no interface `{value}`");
                section.wrong(line, "interfaces", problem, offer(&value, known()));
            } else if let Some(zone) = other {
                let problem = format!("`{value}` is in zone `{}` already", zone.name);
                section.wrong(line, "interfaces", problem, "one zone for each interface");
            } else {
                interfaces.push(value);
            }
        }
        if section.end() && interfaces.is_empty() {
            let advice = "name its interfaces, or take it out";
            (section.notes()).warn(section.line, "zone", "this zone has no interface", advice);
        }
        zones.push(ZoneConfig {
            name: name.map_or(String::new(), |name| name.value),
            interfaces,
        });
    }
    if !zones.is_empty() {
        let is_in = |name: &String| zones.iter().any(|zone| zone.interfaces.contains(name));
        let apart = config.interfaces.iter().map(|one| &one.name);
        for name in apart.filter(|name| !is_in(name)) {
            let problem = format!("interface `{name}` is in no zone: nothing is forwarded there");
            (file.notes()).warn(1, "zone", problem, "put it into a [[zone]]");
        }
    }
    zones
}

fn policies(file: &Section<'_>, config: &Config, zones: &[ZoneConfig]) -> Vec<PolicyConfig> {
    let mut policies: Vec<PolicyConfig> = Vec::new();
    for section in file.tables(
        "policy",
        "tables: [[policy]] with from, to, and acl or default",
    ) {
        let zone = |key| {
            let at = section.required(key, "the name of a [[zone]]")?;
            let names = || zones.iter().map(|zone| zone.name.as_str());
            let found = names().position(|name| name == at.value);
            if found.is_none() {
                let problem = format!("there is no zone `{}`", at.value);
                section.wrong(at.line, key, problem, offer(&at.value, names()));
            }
            found
        };
        let (from, to) = (zone("from"), zone("to"));
        let acl = section
            .text("acl", "the name of an [[acl]]")
            .and_then(|at| {
                let names = || config.acls.iter().map(|acl| acl.name.as_str());
                let found = names().position(|name| name == at.value);
                if found.is_none() {
                    let problem = format!("there is no access list `{}`", at.value);
                    section.wrong(at.line, "acl", problem, offer(&at.value, names()));
                }
                found.map(|number| number as u16)
            });
        let default = section.choice("default", &VERDICTS);
        if let Some(at) = default.as_ref().filter(|_| section.has("acl")) {
            let problem = "an access list has a default of its own";
            section.wrong(at.line, "default", problem, "either acl or default");
        }
        if !section.end() {
            continue;
        }
        let (Some(from), Some(to)) = (from, to) else {
            continue;
        };
        if policies.iter().any(|one| (one.from, one.to) == (from, to)) {
            let (from, to) = (&zones[from].name, &zones[to].name);
            let problem = format!("there are two policies from `{from}` to `{to}`");
            section.wrong(section.line, "from", problem, "one for each pair of zones");
            continue;
        }
        policies.push(PolicyConfig {
            from,
            to,
            acl,
            default: default.map_or(Verdict::Deny, |at| at.value),
        });
    }
    policies
}
