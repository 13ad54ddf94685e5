//! The gateway's own stanzas: `[dispatch]`, `[flows]`, `[[zone]]`, `[[set]]`, `[[policy]]`,
//! `[services]`, `[nat]` and `[[balancer]]`.
//!
//! Interfaces, access lists and all else are a router's ([`linerate_control::config`]), read
//! before. Zones name interfaces by name: a reload gives interfaces other numbers.

use std::path::Path;
use std::time::Duration;

use linerate_appliance::config::{At, Section};
use linerate_control::Config;

use crate::balance;
use crate::dispatch::across::By;
use crate::nat::rules::{Action, SourceRule};
use crate::nat::{rules, stanza};
use crate::policy::{self, PolicyConfig};
use crate::services::{self, Spec};
use crate::track::{State, Timeouts};

/// What the gateway's stanzas say.
#[derive(Clone, Debug, Default)]
pub struct Stanzas {
    /// `[dispatch]`.
    pub dispatch: Mode,
    /// `[dispatch] across_sockets`.
    pub across: By,
    /// `[dispatch] rebalance`: how often buckets move that make loads even, if they do.
    pub rebalance: Option<Duration>,
    /// `[flows]`.
    pub flows: FlowsConfig,
    /// `[[zone]]`, `[[set]]` and `[[policy]]`.
    pub policy: PolicyConfig,
    /// `[nat]`, with interfaces by their place in `interfaces`.
    pub nat: rules::Config,
    /// `[[balancer]]`.
    pub balance: balance::Config,
    /// `[services]`: all that rules may apply.
    pub services: Vec<Spec>,
    /// Names of the interfaces of the file, in its order.
    pub interfaces: Vec<String>,
}

impl Stanzas {
    /// Whether packets of any flow are translated, for which memory is taken at the start.
    pub fn translates(&self) -> bool {
        !self.nat.is_empty() || self.balance.translates()
    }
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
    /// The most flows of each family that one host has begun, in one worker.
    pub host: Option<u32>,
    /// How long flows live.
    pub timeouts: Timeouts,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self {
            ipv4: 1 << 18,
            ipv6: 1 << 16,
            half_open: None,
            host: None,
            timeouts: Timeouts::default(),
        }
    }
}

impl FlowsConfig {
    /// The most half-open connections.
    pub fn most_half_open(&self) -> usize {
        let quarter = (self.ipv4 / 4).saturating_add(self.ipv6 / 4);
        self.half_open.unwrap_or(quarter) as usize
    }

    /// What other memory than `old` it would need, which takes a restart.
    pub(crate) fn refused(&self, old: &Self) -> impl Iterator<Item = String> + use<> {
        let differs = [
            ("ipv4", self.ipv4 != old.ipv4),
            ("ipv6", self.ipv6 != old.ipv6),
            (
                "host, from none or to none,",
                self.host.is_some() != old.host.is_some(),
            ),
        ];
        let differs = differs.into_iter().filter(|(_, differs)| *differs);
        differs.map(|(key, _)| format!("[flows] {key}"))
    }
}

/// Reads the gateway's stanzas.
pub(crate) fn read(file: &Section<'_>, config: &Config) -> Stanzas {
    let (mut rebalance, mut across) = (None, By::default());
    let dispatch = file.table("dispatch", "dispatch", "a table: [dispatch]");
    let dispatch = dispatch.and_then(|section| {
        let mode = section.choice("mode", &Mode::ALL);
        rebalance = interval(&section, mode.as_ref().map(|at| at.value));
        across = across_sockets(&section, mode.as_ref().map(|at| at.value));
        section.end();
        mode
    });
    let (flows, stated) = flows(file);
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
    let pools_used = balance::stanza::pools(file);
    let known = stanza::Known {
        zones: &zones,
        interfaces: &known,
        pools_used: &pools_used,
    };
    let nat = stanza::read(file, &known);
    let pools = nat.pools.iter();
    let pools: Vec<_> = pools
        .map(|pool| {
            let first = pool.addresses.first();
            (
                pool.name.as_str(),
                first.is_none_or(|range| range.0.is_ipv4()),
            )
        })
        .collect();
    let balance = balance::stanza::read(
        file,
        &balance::stanza::Known {
            pools: &pools,
            interfaces: known.interfaces,
        },
    );
    if !nat.is_empty() {
        warn_of_short(&stated, file);
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
        across,
        rebalance,
        flows,
        policy,
        nat,
        balance,
        services,
        interfaces: interfaces.map(|one| one.name.clone()).collect(),
    }
}

/// How often loads are evened out, if they are.
fn interval(section: &Section<'_>, mode: Option<Mode>) -> Option<Duration> {
    let rebalance = section.switch("rebalance");
    let seconds = section.number("interval", 1..=3600_u16);
    let is_on = rebalance.as_ref().is_some_and(|at| at.value);
    if let Some(at) = rebalance.filter(|at| at.value && !mode.is_some_and(Mode::hands_over)) {
        let problem = "loads are evened out by handing packets over, which this mode does not";
        let fix = "say mode = \"balanced\" or \"dispatcher\", or take it out";
        section.wrong(at.line, "rebalance", problem, fix);
    }
    if let Some(at) = seconds.as_ref().filter(|_| !is_on) {
        let problem = "loads are not evened out, so there is no interval";
        let fix = "say rebalance = true, or take it out";
        section.wrong(at.line, "interval", problem, fix);
    }
    let seconds = seconds.map_or(1, |at| at.value);
    is_on.then(|| Duration::from_secs(seconds.into()))
}

/// The longest timeout: a year.
const MOST_SECONDS: u32 = 31_536_000;

/// How packets get to workers on other NUMA nodes.
fn across_sockets(section: &Section<'_>, mode: Option<Mode>) -> By {
    let across = section.choice("across_sockets", &By::ALL);
    if let Some(at) = across
        .as_ref()
        .filter(|_| !mode.is_some_and(Mode::hands_over))
    {
        let problem = "no packets are handed over in this mode";
        let fix = "say mode = \"balanced\" or \"dispatcher\", or take it out";
        section.wrong(at.line, "across_sockets", problem, fix);
    }
    across.map_or_else(By::default, |at| at.value)
}

/// The states whose timeouts a file states.
type Stated = Vec<(State, At<u32>)>;

/// `[flows]`, and which timeouts it states.
fn flows(file: &Section<'_>) -> (FlowsConfig, Stated) {
    let usual = FlowsConfig::default();
    let Some(section) = file.table("flows", "flows", "a table: [flows]") else {
        return (usual, Vec::new());
    };
    let most = |key| section.number(key, 1..=100_000_000);
    let half_open = section.number("half_open", 0..=200_000_000);
    let host = section.number("host", 1..=100_000_000);
    let (mut timeouts, mut stated) = (usual.timeouts, Vec::new());
    let table = section.table("flows.timeouts", "timeouts", "a table: [flows.timeouts]");
    if let Some(section) = table {
        for state in State::ALL {
            if let Some(seconds) = section.number(state.name(), 1..=MOST_SECONDS) {
                timeouts.set(state, seconds.value);
                stated.push((state, seconds));
            }
        }
        section.end();
    }
    let flows = FlowsConfig {
        ipv4: most("ipv4").map_or(usual.ipv4, |at| at.value),
        ipv6: most("ipv6").map_or(usual.ipv6, |at| at.value),
        half_open: half_open.map(|at| at.value),
        host: host.map(|at| at.value),
        timeouts,
    };
    section.end();
    (flows, stated)
}

/// Warns of timeouts that are less than what RFCs ask of who translates.
fn warn_of_short(stated: &Stated, file: &Section<'_>) {
    for (state, At { value, line }) in stated {
        let least = state.least_s();
        if *value < least {
            let problem = format!("{value} seconds, and translated flows are to live {least}");
            let advice = format!("{least} or more (RFC 4787 REQ-5, 5382 REQ-5, 5508 REQ-2)");
            (file.notes()).warn(*line, state.name(), problem, advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_appliance::config::{ConfigError, parse};

    use super::*;

    /// `[flows]`, and what is wrong with it.
    fn read(text: &str) -> (FlowsConfig, Vec<String>, Vec<String>) {
        let parsed = parse(text, |file| {
            let (flows, stated) = flows(file);
            warn_of_short(&stated, file);
            file.end();
            flows
        });
        let lines = |all: Vec<ConfigError>| all.iter().map(ConfigError::to_string).collect();
        (parsed.value, lines(parsed.errors), lines(parsed.warnings))
    }

    #[test]
    fn timeouts_have_the_names_of_states_and_the_usual_values_where_none_is_stated() {
        let (flows, errors, warnings) = read("[flows]\nhost = 5\n");
        assert_eq!((errors.len(), warnings.len()), (0, 0));
        assert_eq!((flows.host, flows.timeouts), (Some(5), Timeouts::default()));
        for state in State::ALL {
            let name = state.name();
            let (flows, errors, _) = read(&format!("[flows.timeouts]\n{name} = 9000\n"));
            assert_eq!(errors, [""; 0]);
            let mut expected = Timeouts::default();
            expected.set(state, 9000);
            assert_eq!(flows.timeouts, expected, "{name}");
        }
    }

    #[test]
    fn across_sockets_is_for_modes_that_hand_packets_over() {
        let read = |text: &str| {
            let parsed = parse(&format!("[dispatch]\n{text}"), |file| {
                let section = file.table("dispatch", "dispatch", "a table").unwrap();
                let mode = section.choice("mode", &Mode::ALL).map(|at| at.value);
                let by = across_sockets(&section, mode);
                section.end();
                file.end();
                by
            });
            let errors = parsed.errors.iter().map(ConfigError::to_string);
            (parsed.value, errors.collect::<Vec<_>>())
        };
        for mode in ["balanced", "dispatcher"] {
            let mode = format!("mode = \"{mode}\"\n");
            assert_eq!(read(&mode), (By::Auto, Vec::new()));
            for (name, by) in By::ALL {
                let text = format!("{mode}across_sockets = \"{name}\"\n");
                assert_eq!(read(&text), (by, Vec::new()));
            }
            let (_, errors) = read(&format!("{mode}across_sockets = \"copied\"\n"));
            assert!(
                errors.len() == 1 && errors[0].starts_with("3: "),
                "{errors:?}"
            );
        }
        for mode in ["", "mode = \"none\"\n", "mode = \"rss\"\n"] {
            let (_, errors) = read(&format!("{mode}across_sockets = \"copy\"\n"));
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(
                errors[0].contains("no packets are handed over"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn timeouts_that_cannot_be_are_refused_by_line_and_short_ones_are_warned_of() {
        let text = "[flows]\nhost = 0\n[flows.timeouts]\nestablished = 3600\n\
                    udp_single = 0\nsyn_recieved = 3\n";
        let (_, errors, warnings) = read(text);
        assert_eq!(errors.len(), 3, "{errors:?}");
        for (line, what) in [("2", "host"), ("5", "udp_single"), ("6", "syn_recieved")] {
            let is_it = |text: &&String| text.contains(what) && text.contains(line);
            assert!(errors.iter().any(|text| is_it(&text)), "{what}: {errors:?}");
        }
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("7440"), "{warnings:?}");
    }

    #[test]
    fn loads_are_evened_out_only_where_packets_are_handed_over() {
        let read = |text: &str| {
            let parsed = parse(text, |file| {
                let section = file.table("dispatch", "dispatch", "a table").unwrap();
                let mode = section.choice("mode", &Mode::ALL).map(|at| at.value);
                interval(&section, mode)
            });
            let errors = parsed.errors.iter().map(ConfigError::to_string);
            (parsed.value, errors.collect::<Vec<_>>().join("\n"))
        };
        let on = "[dispatch]\nmode = \"balanced\"\nrebalance = true\ninterval = 7\n";
        let seven = Some(Duration::from_secs(7));
        assert_eq!(read(on), (seven, String::new()));
        let (_, said) = read(&on.replace("balanced", "rss"));
        assert!(said.starts_with("3: dispatch.rebalance: loads"), "{said}");
        let (_, said) = read(&on.replace("true", "false"));
        assert!(said.starts_with("4: dispatch.interval: loads"), "{said}");
    }

    #[test]
    fn only_what_takes_memory_takes_a_restart() {
        let (old, ..) = read("[flows]\nhost = 5\n");
        let refused = |text: &str| read(text).0.refused(&old).collect::<Vec<_>>();
        let (same, timeouts) = (
            "[flows]\nhost = 6\nhalf_open = 7\n",
            "[flows.timeouts]\nreset = 1\n",
        );
        assert_eq!(refused(&format!("{same}{timeouts}")), [""; 0]);
        assert_eq!(
            refused("[flows]\nhost = 5\nipv4 = 3\nipv6 = 4\n"),
            ["[flows] ipv4", "[flows] ipv6"]
        );
        assert_eq!(
            refused("[flows]\n"),
            ["[flows] host, from none or to none,"]
        );
    }
}
