//! The gateway's own stanzas: `[dispatch]`, `[flows]`, `[[zone]]`, `[[set]]`, `[[policy]]`,
//! `[services]` and `[nat]`.
//!
//! Interfaces, access lists and all else are a router's ([`linerate_control::config`]), read
//! before. Zones name interfaces by name: a reload gives interfaces other numbers.

use std::path::Path;

use linerate_appliance::config::{At, Section};
use linerate_control::Config;

use crate::nat::rules::{Action, SourceRule};
use crate::nat::{rules, stanza};
use crate::policy::{self, PolicyConfig};
use crate::services::{self, Spec};

/// What the gateway's stanzas say.
#[derive(Clone, Debug, Default)]
pub struct Stanzas {
    /// `[dispatch]`.
    pub dispatch: Mode,
    /// `[flows]`.
    pub flows: FlowsConfig,
    /// `[[zone]]`, `[[set]]` and `[[policy]]`.
    pub policy: PolicyConfig,
    /// `[nat]`, with interfaces by their place in `interfaces`.
    pub nat: rules::Config,
    /// `[services]`: all that rules may apply.
    pub services: Vec<Spec>,
    /// Names of the interfaces of the file, in its order.
    pub interfaces: Vec<String>,
}

/// `[dispatch] mode`: which worker handles a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The one that there is.
    #[default]
    None,
    /// The one that polls its receive queue: the queues of all ports put both directions of a flow
    /// into those of one number.
    Rss,
    /// One of the role eu, to which those of the role io hand it.
    Dispatcher,
    /// One of the role io, to which the others hand it.
    Balanced,
}

impl Mode {
    const ALL: [(&str, Self); 4] = [
        ("none", Self::None),
        ("rss", Self::Rss),
        ("dispatcher", Self::Dispatcher),
        ("balanced", Self::Balanced),
    ];

    /// Whether workers hand packets to each other.
    pub fn hands_over(self) -> bool {
        matches!(self, Self::Dispatcher | Self::Balanced)
    }
}

/// `[flows]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// The most flows of each family that one worker holds.
    pub ipv4: u32,
    /// The same of IPv6.
    pub ipv6: u32,
    /// The most connections of one worker that one side has not confirmed: beyond, SYNs are
    /// answered by cookies. A quarter of all flows where it is not said.
    pub half_open: Option<u32>,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self {
            ipv4: 1 << 18,
            ipv6: 1 << 16,
            half_open: None,
        }
    }
}

impl FlowsConfig {
    /// The most half-open connections.
    pub fn most_half_open(&self) -> usize {
        let quarter = (self.ipv4 / 4).saturating_add(self.ipv6 / 4);
        self.half_open.unwrap_or(quarter) as usize
    }
}

/// Reads the gateway's stanzas.
pub(crate) fn read(file: &Section<'_>, config: &Config) -> Stanzas {
    let dispatch = file.table("dispatch", "dispatch", "a table: [dispatch]");
    let dispatch = dispatch.and_then(|section| {
        let mode = section.choice("mode", &Mode::ALL);
        section.end();
        mode
    });
    let flows = flows(file);
    let interfaces = config.interfaces.iter();
    let names: Vec<&str> = (interfaces.clone()).map(|one| one.name.as_str()).collect();
    let policy = policy::stanza::read(file, &names, Path::new(""));
    let services = services::stanza::read(file);
    services::stanza::check(file, &services, &policy);
    let zones: Vec<&str> = (policy.zones.iter())
        .map(|zone| zone.name.as_str())
        .collect();
    let known: Vec<_> = (interfaces.clone())
        .map(|one| (one.name.as_str(), one.addresses.as_slice()))
        .collect();
    let known = stanza::Known {
        zones: &zones,
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
    let dispatch = dispatch.map_or(Mode::None, |At { value, line }| {
        let without =
            |rule: &&SourceRule| matches!(rule.action, Action::Pool(_)) && rule.source.is_none();
        if value.hands_over() && nat.sources.iter().any(|rule| without(&rule)) {
            let problem = "a [[nat.source]] has no `source`: which worker has a host's flows is \
                           found by its address";
            let fix = "say in each the networks whose sources become others";
            file.wrong(line, "dispatch.mode", problem, fix);
        }
        value
    });
    Stanzas {
        dispatch,
        flows,
        policy,
        nat,
        services,
        interfaces: interfaces.map(|one| one.name.clone()).collect(),
    }
}

fn flows(file: &Section<'_>) -> FlowsConfig {
    let usual = FlowsConfig::default();
    let Some(section) = file.table("flows", "flows", "a table: [flows]") else {
        return usual;
    };
    let most = |key| section.number(key, 1..=100_000_000);
    let half_open = section.number("half_open", 0..=200_000_000);
    let flows = FlowsConfig {
        ipv4: most("ipv4").map_or(usual.ipv4, |at| at.value),
        ipv6: most("ipv6").map_or(usual.ipv6, |at| at.value),
        half_open: half_open.map(|at| at.value),
    };
    section.end();
    flows
}
