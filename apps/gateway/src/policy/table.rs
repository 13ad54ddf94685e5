//! A list's rules of one family, compiled: [`Acl`] over prefixes, ports and classes of addresses.
//!
//! A rule becomes one match for each combination of its source, destination, service and ports.
//! Addresses that a few prefixes make up are those prefixes. A larger set is the classes in it
//! ([`classes`](super::classes)): the class of the source stands where a frame's VLAN would, that
//! of the destination where its length would, and the low bits of both where TCP's flags would, by
//! which the table's trees can part rules that differ in sets alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use linerate_appliance::address::Prefix as Either;
use linerate_routing::plane::acl::{Said, Verdict, later_fragments};
use linerate_tables::acl::{
    Acl, AclConfig, Bits, Match, PacketKey, Prefix as AclPrefix, Range, Rule as AclRule, TAGGED,
    words6,
};
use linerate_tables::lpm::{Address, Prefix};

use super::classes::Classes;
use super::first::number6;
use super::lists::BuildError;
use super::ranges::Ranges;
use super::rule::{Addresses, Item, Rule};
use super::sets::{PrefixSet, Service};

/// Addresses that so many prefixes make up are matched as prefixes.
const EXPANDED: usize = 8;
/// The most matches of one family that a list is compiled to.
pub(super) const MOST_MATCHES: usize = 1 << 20;
/// The most memory that they may take, in bytes.
const BUDGET: usize = 2 << 30;

/// What the two families differ in.
pub(super) trait Family<const W: usize>: Address {
    /// Whether it is IPv4.
    const V4: bool;
    fn from_words(words: &[u32; W]) -> Self;
    fn words(self) -> [u32; W];
    fn of_set(set: &PrefixSet) -> &Arc<Ranges<Self>>;
    fn of_prefix(prefix: &Either) -> Option<Prefix<Self>>;
}

impl Family<1> for u32 {
    const V4: bool = true;

    fn from_words(words: &[u32; 1]) -> Self {
        words[0]
    }

    fn words(self) -> [u32; 1] {
        [self]
    }

    fn of_set(set: &PrefixSet) -> &Arc<Ranges<Self>> {
        set.v4()
    }

    fn of_prefix(prefix: &Either) -> Option<Prefix<Self>> {
        match prefix {
            Either::V4(prefix) => Some(*prefix),
            Either::V6(_) => None,
        }
    }
}

impl Family<4> for u128 {
    const V4: bool = false;

    fn from_words(words: &[u32; 4]) -> Self {
        number6(words)
    }

    fn words(self) -> [u32; 4] {
        words6(self.into())
    }

    fn of_set(set: &PrefixSet) -> &Arc<Ranges<Self>> {
        set.v6()
    }

    fn of_prefix(prefix: &Either) -> Option<Prefix<Self>> {
        match prefix {
            Either::V6(prefix) => Some(*prefix),
            Either::V4(_) => None,
        }
    }
}

/// The addresses that rules ask for, each kind of them once.
pub(super) struct Specs<A> {
    all: Vec<Arc<Ranges<A>>>,
    /// By rule: the places of its source and destination.
    pub(super) ends: Vec<(u32, u32)>,
}

impl<A> Specs<A> {
    pub(super) fn of<const W: usize>(rules: &[Rule], sets: &[Arc<PrefixSet>]) -> Self
    where
        A: Family<W>,
    {
        let mut all = Vec::new();
        let mut known: HashMap<&Addresses, u32> = HashMap::new();
        let mut place = |addresses| {
            *known.entry(addresses).or_insert_with(|| {
                all.push(resolved(addresses, sets));
                all.len() as u32 - 1
            })
        };
        let ends = (rules.iter())
            .map(|rule| (place(&rule.source), place(&rule.destination)))
            .collect();
        Self { all, ends }
    }

    /// Source and destination of a rule.
    pub(super) fn ranges(&self, rule: usize) -> (&Arc<Ranges<A>>, &Arc<Ranges<A>>) {
        let (source, destination) = self.ends[rule];
        (&self.all[source as usize], &self.all[destination as usize])
    }
}

/// The addresses of one family.
fn resolved<A: Family<W>, const W: usize>(
    addresses: &Addresses,
    sets: &[Arc<PrefixSet>],
) -> Arc<Ranges<A>> {
    let part = |items: &[Item]| -> Arc<Ranges<A>> {
        if let [Item::Set(set)] = items {
            return A::of_set(&sets[*set]).clone();
        }
        let (mut prefixes, mut named) = (Vec::new(), Ranges::none());
        for item in items {
            match item {
                Item::Prefix(prefix) => prefixes.extend(A::of_prefix(prefix)),
                Item::Set(set) => named = named.union(A::of_set(&sets[*set])),
            }
        }
        Arc::new(named.union(&Ranges::of(prefixes)))
    };
    let included = match addresses.include.is_empty() {
        true => Arc::new(Ranges::all()),
        false => part(&addresses.include),
    };
    match addresses.exclude.is_empty() {
        true => included,
        false => Arc::new(included.minus(&part(&addresses.exclude))),
    }
}

/// How a rule asks for an end's addresses, in the table.
#[derive(Clone, Copy)]
enum Part<A> {
    Prefix(Prefix<A>),
    Class(u16),
}

/// The ends of one side, source or destination, of all rules.
struct Side<A> {
    classes: Option<Arc<Classes<A>>>,
    /// By place among the specs.
    parts: HashMap<u32, Vec<Part<A>>>,
}

impl<A: Address> Side<A> {
    /// `known`: classes that may be those which are wanted.
    fn of(
        specs: &[Arc<Ranges<A>>],
        mut used: Vec<u32>,
        known: &mut Vec<Arc<Classes<A>>>,
    ) -> Result<Self, BuildError> {
        used.sort_unstable();
        used.dedup();
        let mut parts = HashMap::new();
        let mut large = Vec::new();
        for place in used {
            match specs[place as usize].prefixes(EXPANDED) {
                Some(few) => {
                    parts.insert(place, few.into_iter().map(Part::Prefix).collect());
                }
                None => large.push(place),
            }
        }
        let sets: Vec<_> = large
            .iter()
            .map(|place| specs[*place as usize].clone())
            .collect();
        if sets.is_empty() {
            return Ok(Self {
                classes: None,
                parts,
            });
        }
        // One set under two names, too, is the same.
        let same = |one: &&Arc<Classes<A>>| one.sets() == sets;
        let classes = match known.iter().find(same) {
            Some(classes) => classes.clone(),
            None => {
                let classes = Arc::new(Classes::of(sets).ok_or(BuildError::Classes)?);
                known.push(classes.clone());
                classes
            }
        };
        for (number, place) in large.into_iter().enumerate() {
            let members = classes.members(number);
            // Sets that lie in this one make classes of it: where these are more, prefixes do.
            let few = specs[place as usize].prefixes(members.len().saturating_sub(1));
            let these = match few {
                Some(few) => few.into_iter().map(Part::Prefix).collect(),
                None => members.iter().copied().map(Part::Class).collect(),
            };
            parts.insert(place, these);
        }
        Ok(Self {
            classes: Some(classes),
            parts,
        })
    }
}

/// The compiled rules of one family.
pub(super) struct Table<A, const W: usize> {
    pub(super) acl: Acl<W>,
    source: Option<Arc<Classes<A>>>,
    destination: Option<Arc<Classes<A>>>,
}

impl<A: Family<W>, const W: usize> Table<A, W> {
    /// Compiles rules, whose addresses are `specs`.
    pub(super) fn new(
        rules: &[Rule],
        specs: &Specs<A>,
        default: Said,
        known: &mut Vec<Arc<Classes<A>>>,
    ) -> Result<Self, BuildError> {
        let (sources, destinations) = specs.ends.iter().copied().unzip();
        let sources = Side::of(&specs.all, sources, known)?;
        let destinations = Side::of(&specs.all, destinations, known)?;
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for (number, (rule, (source, destination))) in rules.iter().zip(&specs.ends).enumerate() {
            let before = all.len();
            let said = Said::new(number, rule.action, rule.log);
            let denies = rule.action != Verdict::Permit;
            let (sources, destinations) =
                (&sources.parts[source], &destinations.parts[destination]);
            let uppers = uppers::<A, W>(rule);
            let matches = uppers.len() * sources.len() * destinations.len();
            if before + matches > MOST_MATCHES {
                return Err(BuildError::Matches {
                    rule: number,
                    matches,
                });
            }
            for upper in uppers {
                for source in sources {
                    for destination in destinations {
                        let matching = with_ends(upper, *source, *destination);
                        let later = later_fragments(&matching).filter(|_| denies);
                        // What an earlier rule matches, this one would never decide.
                        for matching in [Some(matching), later].into_iter().flatten() {
                            if seen.insert(matching) {
                                let priority = number as u32;
                                all.push(AclRule::new(priority, matching, said.value()));
                            }
                        }
                    }
                }
            }
        }
        let config = AclConfig {
            default: default.value(),
            budget_bytes: BUDGET,
            ..AclConfig::default()
        };
        let mut acl = Acl::new(config).map_err(BuildError::Table)?;
        acl.insert_all(&all).map_err(BuildError::Table)?;
        Ok(Self {
            acl,
            source: sources.classes,
            destination: destinations.classes,
        })
    }

    /// The classes that it uses.
    pub(super) fn classes(&self) -> impl Iterator<Item = &Arc<Classes<A>>> {
        [&self.source, &self.destination].into_iter().flatten()
    }

    /// The packet as the table knows it.
    #[inline]
    pub(super) fn key(&self, packet: &PacketKey<W>) -> PacketKey<W> {
        let class = |classes: &Option<Arc<Classes<A>>>, words: &[u32; W]| match classes {
            Some(classes) => classes.class(A::from_words(words)),
            None => 0,
        };
        let source = class(&self.source, &packet.src);
        let destination = class(&self.destination, &packet.dst);
        packet
            .with_vlan(Some(source))
            .with_length(destination.into())
            .with_tcp_flags(low_bits(source) << 4 | low_bits(destination))
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let classes: usize = self.classes().map(|classes| classes.bytes()).sum();
        self.acl.bytes() + classes
    }
}

/// The bits of a class that trees know.
fn low_bits(class: u16) -> u8 {
    (class & 0xf) as u8
}

/// What a rule asks besides addresses, in this family.
fn uppers<A: Family<W>, const W: usize>(rule: &Rule) -> Vec<Match<W>> {
    let dscp = rule.dscp.map_or(Bits::ANY, |dscp| {
        Bits::new(dscp.into(), 0x3f).expect("the range was checked")
    });
    let any = Match { dscp, ..Match::ANY };
    if rule.services.is_empty() {
        return vec![any];
    }
    let range = |(low, high)| Range::new(low, high).expect("the order was checked");
    let mut all = Vec::new();
    for service in rule.services.iter().filter(|service| service.is_for(A::V4)) {
        let Service {
            protocol,
            source_ports,
            destination_ports,
            icmp,
        } = service;
        let (kind, code) = match icmp {
            None => (Range::ANY, Range::ANY),
            Some((kind, code)) => (
                Range::one((*kind).into()),
                code.map_or(Range::ANY, |code| Range::one(code.into())),
            ),
        };
        for source in source_ports.ranges() {
            for destination in destination_ports.ranges() {
                all.push(Match {
                    protocol: Bits::byte(*protocol),
                    src_ports: range(*source),
                    dst_ports: range(*destination),
                    icmp_type: kind,
                    icmp_code: code,
                    ..any
                });
            }
        }
    }
    all
}

/// The same, of these addresses.
fn with_ends<A: Family<W>, const W: usize>(
    mut matching: Match<W>,
    source: Part<A>,
    destination: Part<A>,
) -> Match<W> {
    let prefix = |prefix: Prefix<A>| AclPrefix::of(prefix.first().words(), prefix.len());
    let (mut value, mut mask) = (0, 0);
    match source {
        Part::Prefix(source) => matching.src = prefix(source),
        Part::Class(class) => {
            let bits = TAGGED | 0xfff;
            matching.vlan = Bits::new(class | TAGGED, bits).expect("classes are below 4096");
            (value, mask) = (u16::from(low_bits(class)) << 4, 0xf0);
        }
    }
    match destination {
        Part::Prefix(destination) => matching.dst = prefix(destination),
        Part::Class(class) => {
            matching.length = Range::one(class);
            (value, mask) = (value | u16::from(low_bits(class)), mask | 0xf);
        }
    }
    matching.tcp_flags = Bits::new(value, mask).expect("the value is within the mask");
    matching
}
