//! Zones, and which flows may begin between them.
//!
//! Interfaces are in *zones*; a *list* of rules for each pair of zones decides on the first packet
//! of each flow. All of it is a [`Policy`]: read-only, built aside by a plain function, exchanged
//! as a whole between two bursts. Once the policy is another, the next packet of each flow is
//! decided anew.
//!
//! | what | who | when |
//! |---|---|---|
//! | [`stanza::read`] | control | a file is read: all errors, by line |
//! | [`Policy::prepare`] | who reads the file | what is as in the old policy is shared |
//! | [`warnings`] | the same | after that: rules that never decide, by line |
//! | [`Policy::of`] | control | short; [`Policy::build`] is both |
//! | [`Counts::new`] | control, for each worker | before workers take a policy |
//! | [`Policy::decide`], [`Counts::hit`] | workers | a flow's first packet, or an older number |
//! | [`Policy::explain`] | control | a user asks why |
//!
//! ```
//! use linerate_gateway::policy::{FirstPacket, Policy, stanza};
//! use linerate_routing::model::InterfaceId;
//! let text = r#"
//! [[zone]]
//! name = "lan"
//! interfaces = ["p0"]
//! [[zone]]
//! name = "wan"
//! interfaces = ["p1"]
//! [[policy]]
//! from = "lan"
//! to = "wan"
//! rules = [{ action = "permit", service = "tcp/443" }]
//! "#;
//! let folder = std::path::Path::new(".");
//! let parsed = linerate_appliance::config::parse(text, |file| {
//!     stanza::read(file, &["p0", "p1"], folder)
//! });
//! assert!(parsed.errors.is_empty());
//! let policy = Policy::build(&parsed.value, &["p0", "p1"], None)?;
//! let (from, to) = (policy.zone(InterfaceId(0)), policy.zone(InterfaceId(1)));
//! let web: FirstPacket = "10.0.0.1:4000 > 192.0.2.1:443 tcp".parse()?;
//! assert!(policy.decide(from, to, &web).is_permit());
//! assert!(!policy.decide(to, from, &web).is_permit());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read `rule.rs` first, which defines a match; `lists.rs` and `table.rs` compile it.

mod classes;
pub mod explain;
mod first;
pub mod hits;
pub mod lists;
mod ranges;
pub mod rule;
pub mod sets;
pub mod stanza;
mod table;
#[cfg(test)]
mod tests;
mod words;
pub mod zones;

use std::sync::Arc;

use linerate_appliance::config::ConfigError;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::{Answer, Said, Verdict};

pub use explain::Explanation;
pub use first::FirstPacket;
pub use hits::Counts;
pub use lists::{BuildError, List};
pub use ranges::Ranges;
pub use stanza::PolicyConfig;
pub use zones::{Zone, Zones};

use lists::Known;
use zones::Pairs;

/// The list for packets within a zone.
const WITHIN: u16 = 0;
/// The list for packets to the gateway, or from it.
const OWN: u16 = 1;
/// The list for packets between two zones.
const BETWEEN: u16 = 2;
/// The list for packets of an interface that is in no zone, while there are zones.
const NO_ZONE: u16 = 3;
/// The list for all packets where there are no zones.
const NO_ZONES: u16 = 4;
/// The lists above, by number: what they are called, and what they say.
const USUAL: [(&str, Verdict); 5] = [
    ("within a zone", Verdict::Permit),
    ("the gateway itself", Verdict::Permit),
    ("between zones", Verdict::Deny),
    ("no zone", Verdict::Deny),
    ("no zones", Verdict::Permit),
];

/// Zones, and lists for each pair of them.
#[derive(Debug)]
pub struct Policy {
    zones: Zones,
    pairs: Pairs,
    /// Whether a rule logs.
    logs: bool,
    /// [`USUAL`], then those of the configuration in their order.
    lists: Vec<Arc<List>>,
}

/// What a policy says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The list that has decided, by its number.
    pub list: u16,
    /// The rule, by its place in the list; the number of rules where none matches.
    pub rule: u32,
    /// Whether the flow may begin.
    pub verdict: Verdict,
    /// How the sender of a packet that is rejected gets an answer.
    pub answer: Answer,
    /// Whether it is logged.
    pub log: bool,
}

impl Decision {
    /// Whether the flow may begin.
    pub fn is_permit(&self) -> bool {
        self.verdict == Verdict::Permit
    }

    /// Whether an interface in no zone is why it may not.
    pub fn lacks_zone(&self) -> bool {
        self.list == NO_ZONE
    }
}

impl Policy {
    /// The policy that a configuration asks for, between `interfaces` by their place. Lists, sets
    /// and classes that are as in `old` are taken from there, and if all is, that one is returned:
    /// then flows stay decided.
    ///
    /// # Errors
    /// The list that cannot be compiled, and why.
    pub fn build(
        config: &PolicyConfig,
        interfaces: &[&str],
        old: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Error> {
        let prepared = Self::prepare(config, old)?;
        Ok(Self::of(config, interfaces, old, &prepared))
    }

    /// The lists of a configuration, in its order: what takes long of a policy, and can be done
    /// while another decides. Lists, sets and classes that are as in `old` are taken from there.
    ///
    /// # Errors
    /// The list that cannot be compiled, and why.
    pub fn prepare(
        config: &PolicyConfig,
        old: Option<&Arc<Self>>,
    ) -> Result<Vec<Arc<List>>, Error> {
        let mut known = Known::default();
        let of_old = || old.iter().flat_map(|old| &old.lists);
        of_old().for_each(|list| known.add(list));
        let mut lists = Vec::new();
        for list in &config.lists {
            let mut list = list.clone();
            for set in &mut list.sets {
                let mut all = of_old().flat_map(|list| &list.sets);
                if let Some(same) = all.find(|other| *other == set) {
                    *set = same.clone();
                }
            }
            let list = match of_old().find(|old| old.is_of(&list)) {
                Some(same) => same.clone(),
                None => {
                    let built = List::with(&list, &mut known);
                    let built = Arc::new(built.map_err(|reason| Error {
                        list: list.name(),
                        line: list.line,
                        reason,
                    })?);
                    known.add(&built);
                    built
                }
            };
            lists.push(list);
        }
        Ok(lists)
    }

    /// The policy of a configuration whose lists were [prepared](Self::prepare): short, whatever
    /// number of rules there is.
    pub fn of(
        config: &PolicyConfig,
        interfaces: &[&str],
        old: Option<&Arc<Self>>,
        prepared: &[Arc<List>],
    ) -> Arc<Self> {
        let none = Zones::default();
        let before = old.map_or(&none, |old| &old.zones);
        let zones = Zones::new(&config.zones, interfaces, before);
        let mut lists = match old {
            Some(old) => old.lists[..USUAL.len()].to_vec(),
            None => USUAL
                .map(|(name, verdict)| Arc::new(List::fixed(name, verdict)))
                .to_vec(),
        };
        lists.extend_from_slice(prepared);
        let usual = |from, to| match (from, to) {
            _ if zones.is_empty() => NO_ZONES,
            (Zone::SELF, _) | (_, Zone::SELF) => OWN,
            (Zone::NONE, _) | (_, Zone::NONE) => NO_ZONE,
            _ if from == to => WITHIN,
            _ => BETWEEN,
        };
        let numbered = (USUAL.len() as u16..).zip(&config.lists);
        let policies = numbered.map(|(number, list)| (&list.from, &list.to, number));
        let pairs = Pairs::new(&zones, usual, policies);
        let is_same = |old: &&Arc<Self>| {
            old.zones == zones
                && old.pairs == pairs
                && old.lists.len() == lists.len()
                && old
                    .lists
                    .iter()
                    .zip(&lists)
                    .all(|(old, new)| Arc::ptr_eq(old, new))
        };
        if let Some(same) = old.filter(is_same) {
            return same.clone();
        }
        let logs = |list: &Arc<List>| list.rules.iter().any(|rule| rule.log);
        Arc::new(Self {
            zones,
            pairs,
            logs: lists.iter().any(logs),
            lists,
        })
    }

    /// Whether one of its rules logs.
    pub fn logs(&self) -> bool {
        self.logs
    }

    /// Its zones.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Its lists, by number: first those that decide where the configuration does not.
    pub fn lists(&self) -> &[Arc<List>] {
        &self.lists
    }

    /// The list, by its number, of each pair of zones.
    pub fn pairs(&self) -> impl Iterator<Item = (Zone, Zone, u16)> {
        self.pairs.iter()
    }

    /// The zone of an interface.
    #[inline]
    pub fn zone(&self, interface: InterfaceId) -> Zone {
        self.zones.of(interface)
    }

    /// The number of the list that decides on flows from one zone to another.
    #[inline]
    fn list(&self, from: Zone, to: Zone) -> u16 {
        self.pairs.list(from, to).unwrap_or(NO_ZONE)
    }

    fn decision(&self, number: u16, said: Said) -> Decision {
        Decision {
            list: number,
            rule: said.rule() as u32,
            verdict: said.verdict(),
            answer: self.lists[usize::from(number)].answer,
            log: said.is_logged(),
        }
    }

    /// Decides on a flow by its first packet: one lookup.
    pub fn decide(&self, from: Zone, to: Zone, packet: &FirstPacket) -> Decision {
        let number = self.list(from, to);
        self.decision(number, self.lists[usize::from(number)].ask(packet))
    }

    /// Decides on several at once, each with its zones: one lookup for those of one list and
    /// family.
    ///
    /// # Panics
    /// If there are not as many zones as packets.
    pub fn decide_bulk(&self, zones: &[(Zone, Zone)], packets: &[FirstPacket]) -> Vec<Decision> {
        assert_eq!(zones.len(), packets.len(), "each packet has its zones");
        let numbers: Vec<u16> = zones
            .iter()
            .map(|(from, to)| self.list(*from, *to))
            .collect();
        let mut said = vec![Said::of(0); packets.len()];
        for (at, number) in numbers.iter().enumerate() {
            if !numbers[..at].contains(number) {
                let list = &self.lists[usize::from(*number)];
                list.ask_bulk(packets, |place| numbers[place] == *number, &mut said);
            }
        }
        let decided = numbers.into_iter().zip(said);
        decided
            .map(|(number, said)| self.decision(number, said))
            .collect()
    }
}

/// Rules that never decide, for the user, by line: of the lists that were
/// [prepared](Policy::prepare) of `config`.
pub fn warnings(lists: &[Arc<List>], config: &PolicyConfig) -> Vec<ConfigError> {
    let mut all = Vec::new();
    for (list, config) in lists.iter().zip(&config.lists) {
        for unreachable in &list.unreachable {
            let line = config.rules[unreachable.rule].line;
            let place = match &config.file {
                Some(file) => format!(" ({file} line {line})"),
                None => String::new(),
            };
            let problem = match unreachable.by {
                Some(by) => format!("rule {} has all its packets: it never decides", by + 1),
                None => "its sets have no addresses: it never decides".into(),
            };
            let rule = unreachable.rule + 1;
            all.push(ConfigError {
                line: if config.file.is_some() {
                    config.line
                } else {
                    line
                },
                key: format!("policy {} rule {rule}", list.name),
                problem: format!("{problem}{place}"),
                legal: "move it up, or take it out".into(),
            });
        }
    }
    all
}

/// A list that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("policy {list} (line {line}): {reason}")]
pub struct Error {
    /// Its name.
    pub list: String,
    /// Where it begins in the file.
    pub line: usize,
    /// Why.
    pub reason: BuildError,
}
