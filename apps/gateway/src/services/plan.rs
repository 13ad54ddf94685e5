//! Which bit is which service, and which rule gives which bits.

use std::sync::Arc;

use super::{KINDS, Kind, MOST, ServiceBits, Settings};
use crate::policy::Policy;
use crate::policy::rule::Apply;

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
        Self {
            bits: bits.collect(),
            specs,
        }
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

    /// Whether services read what packets carry, and not their headers alone.
    pub fn reads_payload(&self) -> bool {
        self.specs.iter().any(|spec| spec.kind.reads_payload)
    }
}
