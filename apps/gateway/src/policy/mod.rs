//! Zones, and which flows may begin between them.
//!
//! [`Policies`] are what all workers have of a configuration: read-only, made by control, exchanged
//! as a whole between two bursts. A flow keeps the [number](Policies::number) of the policies that
//! permitted it; once that is another, its next packet is decided anew.

use std::sync::atomic::{AtomicU32, Ordering};

use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict;
use linerate_routing::plane::settings::Settings;

use crate::config::Stanzas;

/// What decides on the flows from one zone to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// The access list of that number among the settings'.
    List(u16),
    /// Always the same.
    Fixed(Verdict),
}

/// Zones and policies, as workers read them.
#[derive(Debug)]
pub struct Policies {
    /// By interface: its zone, if it has one.
    zones: Vec<Option<u16>>,
    /// By zone.
    names: Vec<String>,
    /// From zone times the number of zones, plus to zone.
    deciders: Vec<Decider>,
    /// Whose lists they are: the numbers and contents of access lists.
    lists: Vec<usize>,
    number: u32,
}

/// The next number of policies in this process.
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Policies {
    /// Those that stanzas ask for, between the interfaces of `settings`.
    pub fn new(stanzas: &Stanzas, settings: &Settings) -> Self {
        let of = |name: &String| {
            let is_in = |zone: &crate::config::ZoneConfig| zone.interfaces.contains(name);
            let found = stanzas.zones.iter().position(is_in);
            found.map(|zone| zone as u16)
        };
        let interfaces = settings.interfaces.iter();
        let count = stanzas.zones.len();
        // Within a zone all may begin; between two zones nothing.
        let usual = |at| match at / count == at % count {
            true => Decider::Fixed(Verdict::Permit),
            false => Decider::Fixed(Verdict::Deny),
        };
        let mut deciders: Vec<Decider> = (0..count * count).map(usual).collect();
        for policy in &stanzas.policies {
            deciders[policy.from * count + policy.to] = match policy.acl {
                Some(list) => Decider::List(list),
                None => Decider::Fixed(policy.default),
            };
        }
        Self {
            zones: interfaces.map(|one| of(&one.name)).collect(),
            names: (stanzas.zones.iter())
                .map(|zone| zone.name.clone())
                .collect(),
            deciders,
            lists: (settings.acls.iter())
                .map(|list| std::sync::Arc::as_ptr(list) as usize)
                .collect(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether others decide alike.
    pub fn is_like(&self, other: &Self) -> bool {
        self.zones == other.zones
            && self.names == other.names
            && self.deciders == other.deciders
            && self.lists == other.lists
    }

    /// Their number, which no others in this process have.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether there are zones at all: without, everything is permitted.
    pub fn has_zones(&self) -> bool {
        !self.names.is_empty()
    }

    /// The zone of an interface.
    pub fn zone(&self, interface: InterfaceId) -> Option<u16> {
        *self.zones.get(usize::from(interface.0))?
    }

    /// The name of a zone.
    pub fn name(&self, zone: u16) -> &str {
        self.names.get(usize::from(zone)).map_or("?", |name| name)
    }

    /// What decides on flows that come in by one interface and leave by another; `None` where one
    /// of them is in no zone.
    pub fn decider(&self, from: InterfaceId, to: InterfaceId) -> Option<Decider> {
        if !self.has_zones() {
            return Some(Decider::Fixed(Verdict::Permit));
        }
        let (from, to) = (self.zone(from)?, self.zone(to)?);
        self.between(from.into(), to.into())
    }

    /// What decides on flows from one zone to another, by their numbers.
    pub fn between(&self, from: usize, to: usize) -> Option<Decider> {
        let at = from * self.names.len() + to;
        self.deciders.get(at).copied()
    }
}
