//! Lists: rules in their order, the first of which that a packet matches decides.

use std::fmt;
use std::sync::Arc;

use linerate_routing::plane::acl::{Answer, Said, Verdict};
use linerate_tables::TableError;
use linerate_tables::acl::PacketKey;

use super::classes::Classes;
use super::first::FirstPacket;
use super::ranges::Ranges;
use super::rule::{Apply, Rule};
use super::sets::{PrefixSet, Service};
use super::table::{Family, MOST_MATCHES, Specs, Table};
use super::zones::End;

/// Rules looked at, all together, to find those that make others unreachable where lookups did not
/// tell: a bound on the time that it takes.
const LOOKED_AT: usize = 1 << 21;

/// A list, as the configuration states it.
#[derive(Clone, Debug)]
pub struct ListConfig {
    /// The zone that flows begin in.
    pub from: End,
    /// The zone that they go to.
    pub to: End,
    /// The verdict on flows that no rule matches.
    pub default: Verdict,
    /// How `reject` answers TCP.
    pub answer: Answer,
    /// Rules, in their order.
    pub rules: Vec<Rule>,
    /// The sets that rules ask for, by place.
    pub sets: Vec<Arc<PrefixSet>>,
    /// Services of flows that it permits: first those of flows whose rule says none.
    pub applies: Vec<Apply>,
    /// Where it begins in the file.
    pub line: usize,
    /// The file that has its rules, if it is another.
    pub file: Option<String>,
}

impl PartialEq for ListConfig {
    /// Whether both decide alike, and look alike: lines and files may differ.
    fn eq(&self, other: &Self) -> bool {
        (&self.from, &self.to) == (&other.from, &other.to)
            && (self.default, self.answer) == (other.default, other.answer)
            && self.sets == other.sets
            && self.applies == other.applies
            && self.rules == other.rules
    }
}

impl ListConfig {
    /// `lan > wan`.
    pub fn name(&self) -> String {
        format!("{} > {}", self.from.name(), self.to.name())
    }
}

/// A rule that never decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Its place in the list.
    pub rule: usize,
    /// The earlier rule that matches all that this one does; `None`: it matches nothing.
    pub by: Option<usize>,
}

/// Why a list cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A rule of many combinations.
    #[error(
        "rule {} stands for {matches} combinations of addresses, services and ports, a list has \
         room for {MOST_MATCHES}: merge its ports into ranges, or split it",
        rule + 1
    )]
    Matches {
        /// Its place.
        rule: usize,
        /// How many.
        matches: usize,
    },
    /// Large sets that overlap in too many ways.
    #[error(
        "its large sets part the addresses into more than 4096 classes: use fewer sets, or split \
         the rules among more zones"
    )]
    Classes,
    /// No room for the table.
    #[error("{0}")]
    Table(TableError),
}

/// A list, ready to decide. It never changes: a reload makes a new one.
pub struct List {
    /// Its name, `lan > wan`.
    pub name: String,
    /// The verdict on flows that no rule matches.
    pub default: Verdict,
    /// How `reject` answers TCP.
    pub answer: Answer,
    /// Its rules, in their order.
    pub rules: Vec<Rule>,
    /// The sets that they ask for.
    pub sets: Vec<Arc<PrefixSet>>,
    /// Services of flows that it permits, by [`Rule::apply`].
    pub applies: Vec<Apply>,
    /// Rules that never decide.
    pub unreachable: Vec<Unreachable>,
    v4: Table<u32, 1>,
    v6: Table<u128, 4>,
}

/// Classes of both families that lists have, to be shared.
#[derive(Default)]
pub(super) struct Known {
    v4: Vec<Arc<Classes<u32>>>,
    v6: Vec<Arc<Classes<u128>>>,
}

impl Known {
    /// Those of a list.
    pub(super) fn add(&mut self, list: &List) {
        self.v4.extend(list.v4.classes().cloned());
        self.v6.extend(list.v6.classes().cloned());
    }
}

impl List {
    /// Compiles a list. O(n log n).
    ///
    /// # Errors
    /// If there are too many combinations, or there is no memory.
    pub fn new(config: &ListConfig) -> Result<Self, BuildError> {
        Self::with(config, &mut Known::default())
    }

    /// The same; classes that `known` has are shared.
    pub(super) fn with(config: &ListConfig, known: &mut Known) -> Result<Self, BuildError> {
        let ListConfig { rules, sets, .. } = config;
        let v4 = Specs::of(rules, sets);
        let v6 = Specs::of(rules, sets);
        let default = Said::new(rules.len(), config.default, false);
        let mut list = Self {
            name: config.name(),
            default: config.default,
            answer: config.answer,
            rules: rules.clone(),
            sets: sets.clone(),
            applies: config.applies.clone(),
            unreachable: Vec::new(),
            v4: Table::new(rules, &v4, default, &mut known.v4)?,
            v6: Table::new(rules, &v6, default, &mut known.v6)?,
        };
        list.unreachable = list.find_unreachable(&v4, &v6);
        Ok(list)
    }

    /// A list without rules.
    pub(super) fn fixed(name: &str, default: Verdict) -> Self {
        let config = ListConfig {
            from: End::Any,
            to: End::Any,
            default,
            answer: Answer::default(),
            rules: Vec::new(),
            sets: Vec::new(),
            applies: Vec::new(),
            line: 0,
            file: None,
        };
        let list = Self::new(&config).expect("no rules have no combinations");
        Self {
            name: name.into(),
            ..list
        }
    }

    /// Whether it is what a configuration asks for.
    pub fn is_of(&self, config: &ListConfig) -> bool {
        self.name == config.name()
            && self.default == config.default
            && self.answer == config.answer
            && self.sets == config.sets
            && self.applies == config.applies
            && self.rules == config.rules
    }

    /// Which rule decides on a packet, and how: one lookup, whatever number of rules there is.
    pub fn ask(&self, packet: &FirstPacket) -> Said {
        Said::of(match packet {
            FirstPacket::V4(key) => self.v4.acl.classify_one(&self.v4.key(key)),
            FirstPacket::V6(key) => self.v6.acl.classify_one(&self.v6.key(key)),
        })
    }

    /// As [`ask`](Self::ask), of several at once: faster for each. `said` is what it was for
    /// packets that `is_asked` leaves out.
    pub(super) fn ask_bulk(
        &self,
        packets: &[FirstPacket],
        is_asked: impl Fn(usize) -> bool,
        said: &mut [Said],
    ) {
        fn bulk<A: Family<W>, const W: usize>(
            table: &Table<A, W>,
            packets: impl Iterator<Item = (usize, PacketKey<W>)>,
            said: &mut [Said],
        ) {
            let (mut places, mut keys) = (Vec::new(), Vec::new());
            for (place, key) in packets {
                places.push(place);
                keys.push(table.key(&key));
            }
            let mut values = vec![0; keys.len()];
            table.acl.classify(&keys, &mut values);
            for (place, value) in places.into_iter().zip(values) {
                said[place] = Said::of(value);
            }
        }
        let asked = packets
            .iter()
            .enumerate()
            .filter(|(place, _)| is_asked(*place));
        let four = asked.clone().filter_map(|(place, packet)| match packet {
            FirstPacket::V4(key) => Some((place, *key)),
            FirstPacket::V6(_) => None,
        });
        bulk(&self.v4, four, said);
        let six = asked.filter_map(|(place, packet)| match packet {
            FirstPacket::V6(key) => Some((place, *key)),
            FirstPacket::V4(_) => None,
        });
        bulk(&self.v6, six, said);
    }

    /// Memory that its tables take, in bytes, besides rules and sets.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// Rules all of whose packets one earlier rule matches, or that match none. That several
    /// earlier rules together match all of them is not found out.
    ///
    /// Each rule's two extreme packets are looked up: where the rule wins for one, it is reachable.
    /// Otherwise those that win are compared with it, and then all before it.
    fn find_unreachable(&self, v4: &Specs<u32>, v6: &Specs<u128>) -> Vec<Unreachable> {
        let mut all = Vec::new();
        let mut left = LOOKED_AT;
        for number in 0..self.rules.len() {
            let rule = &self.rules[number];
            let mut probes = Vec::new();
            probes.extend(extremes(rule, v4.ranges(number)).map(FirstPacket::V4));
            probes.extend(extremes(rule, v6.ranges(number)).map(FirstPacket::V6));
            if probes.is_empty() {
                all.push(Unreachable {
                    rule: number,
                    by: None,
                });
                continue;
            }
            let winners: Vec<usize> = probes.iter().map(|probe| self.ask(probe).rule()).collect();
            if winners.contains(&number) {
                continue;
            }
            let covers = |by: &usize| self.covers(*by, number, v4, v6);
            let mut by = winners
                .iter()
                .copied()
                .filter(|by| *by < number)
                .find(covers);
            if by.is_none() && left >= number {
                left -= number;
                let matches =
                    |by: &usize| self.rules[*by].failing(&self.sets, &probes[0]).is_none();
                by = (0..number).filter(matches).find(covers);
            }
            all.extend(by.map(|by| Unreachable {
                rule: number,
                by: Some(by),
            }));
        }
        all
    }

    /// Whether a rule matches all packets that a later one does.
    fn covers(&self, by: usize, rule: usize, v4: &Specs<u32>, v6: &Specs<u128>) -> bool {
        fn holds<A: Family<W>, const W: usize>(
            specs: &Specs<A>,
            by: usize,
            (number, rule): (usize, &Rule),
        ) -> bool {
            let (mine, theirs) = (specs.ranges(by), specs.ranges(number));
            let matches_none =
                theirs.0.is_none() || theirs.1.is_none() || !has_service(rule, A::V4);
            matches_none || covers(mine.0, theirs.0) && covers(mine.1, theirs.1)
        }
        fn covers<A: Family<W>, const W: usize>(
            mine: &Arc<Ranges<A>>,
            theirs: &Arc<Ranges<A>>,
        ) -> bool {
            Arc::ptr_eq(mine, theirs) || mine.covers(theirs)
        }
        let (first, second) = (&self.rules[by], &self.rules[rule]);
        let permits = |rule: &Rule| rule.action == Verdict::Permit;
        let service = |one: &Service| {
            // Later fragments: only rules that permit leave those out which they cannot judge.
            let asked = !one.asks_upper() || !permits(second);
            let fits = |mine: &&Service| !asked || !mine.asks_upper() || !permits(first);
            first
                .services
                .iter()
                .filter(fits)
                .any(|mine| mine.covers(one))
        };
        let services = first.services.is_empty()
            || !second.services.is_empty() && second.services.iter().all(service);
        services
            && (first.dscp.is_none() || first.dscp == second.dscp)
            && holds(v4, by, (rule, second))
            && holds(v6, by, (rule, second))
    }
}

/// Whether packets of a family can have one of a rule's services.
fn has_service(rule: &Rule, v4: bool) -> bool {
    rule.services.is_empty() || rule.services.iter().any(|service| service.is_for(v4))
}

/// The lowest and the highest packet that a rule matches.
fn extremes<A: Family<W>, const W: usize>(
    rule: &Rule,
    (source, destination): (&Arc<Ranges<A>>, &Arc<Ranges<A>>),
) -> impl Iterator<Item = PacketKey<W>> + use<A, W> {
    let ends = source.ends().zip(destination.ends());
    let mut services = rule.services.iter().filter(|service| service.is_for(A::V4));
    let (low, high) = match (services.next(), services.next_back()) {
        (None, _) if rule.services.is_empty() => ((0, (0, 0)), (255, (0, 0))),
        (None, _) => return None.into_iter().flatten(),
        (Some(first), last) => {
            let low = |service: &Service| match service.icmp {
                Some((kind, code)) => (kind.into(), code.unwrap_or(0).into()),
                None => (
                    service.source_ports.ranges()[0].0,
                    service.destination_ports.ranges()[0].0,
                ),
            };
            let high = |service: &Service| match service.icmp {
                Some((kind, code)) => (kind.into(), code.unwrap_or(255).into()),
                None => {
                    let highest = |ranges: &[(u16, u16)]| ranges[ranges.len() - 1].1;
                    let source = highest(service.source_ports.ranges());
                    (source, highest(service.destination_ports.ranges()))
                }
            };
            let last = last.unwrap_or(first);
            ((first.protocol, low(first)), (last.protocol, high(last)))
        }
    };
    let dscp = rule.dscp.unwrap_or(0);
    let packets = ends.map(move |(source, destination)| {
        [
            (source.0, destination.0, low),
            (source.1, destination.1, high),
        ]
        .map(|(source, destination, (protocol, ports))| {
            PacketKey::tuple(source.words(), destination.words(), ports, protocol).with_dscp(dscp)
        })
    });
    packets.into_iter().flatten()
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({}, {} rules)", self.name, self.rules.len())
    }
}
