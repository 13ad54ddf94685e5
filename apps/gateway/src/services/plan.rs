//! Which bit is which service, and which rule gives which bits.

use std::sync::Arc;

use linerate_tables::flow::Direction;

use super::{KINDS, Kind, MOST, ServiceBits, Settings};
use crate::nat::bits::Bits;
use crate::policy::rule::Apply;
use crate::policy::{Policy, Zone};

/// A service that rules may name.
#[derive(Clone, Debug)]
pub struct Spec {
    /// As rules name it: `statistics`, `police:guest`.
    pub name: String,
    /// Its kind.
    pub kind: &'static Kind,
    /// What the file says of it.
    pub settings: Arc<dyn Settings>,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.settings.is(&*other.settings)
    }
}

/// The services of a configuration that rules name, and the bits that rules give.
#[derive(Debug, Default)]
pub struct Plan {
    /// By bit: in the order of [`KINDS`], and of the file.
    pub specs: Vec<Spec>,
    /// By list of the policy: by [`Apply`] of the list.
    bits: Vec<Vec<ServiceBits>>,
    /// By number of the zone that packets come from: whether a service may read what they carry.
    read_from: Bits,
}

impl Plan {
    /// That of a policy whose rules name some of `known`.
    pub fn new(known: &[Spec], policy: &Policy) -> Self {
        let applies = || policy.lists().iter().map(|list| &list.applies);
        let is_used = |spec: &&Spec| {
            let mut named = applies().flatten().flat_map(|apply| &apply.names);
            named.any(|name| *name == spec.name)
        };
        let in_order = KINDS.iter().flat_map(|kind| {
            let is_of = move |spec: &&Spec| spec.kind.name == kind.name;
            known.iter().filter(is_of)
        });
        let specs: Vec<Spec> = in_order.filter(is_used).take(MOST).cloned().collect();
        let bits = |apply: &Apply| {
            let named = |spec: &Spec| apply.names.contains(&spec.name);
            let places = specs.iter().enumerate().filter(|(_, spec)| named(spec));
            places.fold(ServiceBits::NONE, |bits, (bit, spec)| {
                bits.with(bit, spec.kind.directions)
            })
        };
        let bits = applies().map(|all| all.iter().map(&bits).collect());
        let mut plan = Self {
            bits: bits.collect(),
            specs,
            read_from: Bits::NONE,
        };
        for (from, to, list) in policy.pairs() {
            for (zone, direction) in [(from, Direction::Forward), (to, Direction::Reverse)] {
                if plan.reads_by(list, direction) {
                    plan.read_from.set(zone.number());
                }
            }
        }
        plan
    }

    /// Whether a rule of the list gives that direction of flows a service that reads payload.
    fn reads_by(&self, list: u16, direction: Direction) -> bool {
        let numbered = self.specs.iter().enumerate();
        let readers = numbered.filter(|(_, spec)| spec.kind.reads_payload);
        let readers = readers.fold(0, |bits, (bit, _)| bits | 1 << bit);
        let given = self.bits.get(usize::from(list)).into_iter().flatten();
        given.fold(0, |all, bits| all | bits.of(direction)) & readers != 0
    }

    /// The services of flows that a list of the policy permits by a rule with that [`Apply`].
    pub fn bits(&self, list: u16, apply: u16) -> ServiceBits {
        let list = self.bits.get(usize::from(list));
        let bits = list.and_then(|list| list.get(usize::from(apply)));
        bits.copied().unwrap_or_default()
    }

    /// The names of services, of either direction.
    pub fn names(&self, bits: ServiceBits) -> Vec<&str> {
        let [forward, reverse] = bits.0;
        let numbered = self.specs.iter().enumerate();
        let on = numbered.filter(|(bit, _)| (forward | reverse) >> bit & 1 != 0);
        on.map(|(_, spec)| spec.name.as_str()).collect()
    }

    /// Whether services may read what packets from this zone carry, and not their headers alone.
    pub fn reads_from(&self, zone: Zone) -> bool {
        self.read_from.has(zone.number())
    }
}
