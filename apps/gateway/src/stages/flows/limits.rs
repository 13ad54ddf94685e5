//! How many flows there may be, and how long they live: what a reload changes while they live.

use linerate_tables::exact::Seed;
use linerate_tables::flow::FlowConfig;
use linerate_wire::FlowKey;

use super::{Flows, TICKS};
use crate::config::Stanzas;
use crate::policy::Zones;
use crate::track::State;

/// What workers have of it.
#[derive(Debug)]
pub struct Limits {
    /// As the tables take it, of IPv4 and of IPv6.
    pub(super) tables: [FlowConfig; 2],
    /// Connections that may be half open.
    half_open: usize,
    /// The same by number of the zone that they come from; no zones: none has a limit.
    zones: Vec<Option<u32>>,
}

impl Limits {
    /// What the stanzas ask for, of zones with these numbers.
    pub(super) fn new(stanzas: &Stanzas, zones: &Zones) -> Self {
        let flows = &stanzas.flows;
        let states = flows.timeouts.flow_states(TICKS, None);
        let stated = || {
            (stanzas.policy.zones.iter()).filter_map(|zone| Some((zones.named(&zone.name)?, zone)))
        };
        let per_zone = stated().filter_map(|(number, zone)| Some((number.number(), zone.flows?)));
        let per_zone: Vec<_> = per_zone.collect();
        let of = |name: &str, most: u32| FlowConfig {
            states: states.clone(),
            evict: Some(State::SynSent as u8),
            translated: if !stanzas.translates() {
                0
            } else {
                most as usize
            },
            per_owner: flows.host,
            per_zone: per_zone.clone(),
            // Each worker takes another.
            ..FlowConfig::stateful(name, most as usize, TICKS, Seed(0))
        };
        let mut half_open = Vec::new();
        for (number, zone) in stated().filter(|(_, zone)| zone.half_open.is_some()) {
            half_open.resize(half_open.len().max(usize::from(number.number()) + 1), None);
            half_open[usize::from(number.number())] = zone.half_open;
        }
        Self {
            tables: [
                of("flows of IPv4", flows.ipv4),
                of("flows of IPv6", flows.ipv6),
            ],
            half_open: flows.most_half_open(),
            zones: half_open,
        }
    }

    /// Whether both say the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same = |one: &FlowConfig, other: &FlowConfig| {
            one.states == other.states
                && one.per_owner == other.per_owner
                && one.per_zone == other.per_zone
        };
        self.half_open == other.half_open
            && self.zones == other.zones
            && self
                .tables
                .iter()
                .zip(&other.tables)
                .all(|(one, other)| same(one, other))
    }
}

impl Flows {
    /// Connections that one side has not confirmed yet.
    pub fn half_open(&self) -> usize {
        let count = |state: State| self.v4.count(state as u8) + self.v6.count(state as u8);
        State::HALF_OPEN.map(count).iter().sum()
    }

    /// The same of those that have come from the zone of a number.
    pub fn half_open_in(&self, zone: u8) -> u32 {
        let count = |state: State| {
            self.v4.zone_in_state(zone, state as u8) + self.v6.zone_in_state(zone, state as u8)
        };
        State::HALF_OPEN.map(count).iter().sum()
    }

    /// Flows that have come from the zone of a number.
    pub fn in_zone(&self, zone: u8) -> u32 {
        self.v4.in_zone(zone) + self.v6.in_zone(zone)
    }

    /// Whether no other connection from this zone may be half open.
    pub(super) fn is_full_of_half_open(&self, zone: u8) -> bool {
        let most = self.limits.zones.get(usize::from(zone)).copied().flatten();
        self.half_open() >= self.limits.half_open
            || most.is_some_and(|most| self.half_open_in(zone) >= most)
    }

    /// The limits have changed: flows that there are stay, beyond them none begins.
    pub(super) fn limit(&mut self) {
        let [v4, v6] = &self.limits.tables;
        // What would need other memory is refused with the whole file, before.
        let _ = self.v4.reconfigure(v4);
        let _ = self.v6.reconfigure(v6);
    }
}

/// Whose flow it is that begins with this key: an IPv4 address, or the /64 of an IPv6 one, which
/// is what one host has (RFC 6177 2). The addresses of a VRF are others than those of another.
pub(super) fn owner(key: &FlowKey) -> u64 {
    match key {
        FlowKey::V4(key) => u64::from(key.zone()) << 32 | u64::from(key.src().to_bits()),
        FlowKey::V6(key) => {
            let network = (key.src().to_bits() >> 64) as u64;
            network ^ u64::from(key.zone()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }
}
