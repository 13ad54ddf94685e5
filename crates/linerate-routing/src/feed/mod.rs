//! Translates routes as the kernel and FRR send them for the [`Rib`].
//!
//! Both speak rtnetlink: [`Said::of`] reads a message, and [`Feed`] maps tables to VRFs and kernel
//! interfaces to ours, and keeps the next-hop objects ([`objects`]). Packets of a route by a
//! virtual device of the kernel (WireGuard, VXLAN, PPP) are handed to the kernel. A route by any
//! other interface that is not ours is left out and counted. A route that needs labels or a tunnel
//! from us is kept, and its packets are refused.

mod objects;
mod said;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::model::{InterfaceId, Prefix, Vrf};
use super::rib::{Full, Key, NextHop, Rib, Source, To};
use objects::Objects;

pub use said::{Said, Told, ToldNextHop};

/// How many kernel interfaces that a speaker has named and that are not ours are remembered.
const STRANGERS: usize = 4096;

/// How a speaker's messages were handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Routes added or changed.
    pub added: u64,
    /// Routes removed.
    pub removed: u64,
    /// Left out: a table that is no VRF's, or no next hop by an interface of ours.
    pub not_ours: u64,
    /// Turned away because the routing table was full.
    pub full: u64,
}

/// What the kernel's interfaces are to the router.
#[derive(Default)]
struct Interfaces {
    /// Host interfaces by the kernel's number, with our interface of each.
    ours: HashMap<u32, InterfaceId>,
    /// Virtual devices of the kernel, which forwards packets with routes by them itself.
    host: HashSet<u32>,
}

/// One speaker: what its numbers mean.
pub struct Feed {
    source: Source,
    tables: HashMap<u32, Vrf>,
    interfaces: Interfaces,
    objects: Objects,
    /// Interfaces that are not ours and because of which routes were left out.
    strangers: BTreeSet<u32>,
    /// Of the kernel's feed: FRR sends its routes itself, so the kernel's copies of them are not
    /// needed.
    pub told_by_frr: bool,
    /// Counts of this speaker's routes.
    pub counts: FeedCounts,
}

impl Feed {
    /// A speaker that has sent nothing yet.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            tables: HashMap::new(),
            interfaces: Interfaces::default(),
            objects: Objects::default(),
            strangers: BTreeSet::new(),
            told_by_frr: false,
            counts: FeedCounts::default(),
        }
    }

    /// Sets which VRF each table of the kernel is. Routes of other tables are left out. Returns
    /// whether anything changed.
    pub fn set_tables(&mut self, tables: impl IntoIterator<Item = (u32, Vrf)>) -> bool {
        let tables = tables.into_iter().collect();
        let had = std::mem::replace(&mut self.tables, tables);
        had != self.tables
    }

    /// The VRF that a table of the kernel is.
    pub fn vrf(&self, table: u32) -> Option<Vrf> {
        self.tables.get(&table).copied()
    }

    /// All VRFs that have a table; a VRF with two tables comes twice.
    pub fn vrfs(&self) -> impl Iterator<Item = Vrf> {
        self.tables.values().copied()
    }

    /// The tables of a VRF, from the lowest.
    pub fn tables_of(&self, vrf: Vrf) -> Vec<u32> {
        let of = self.tables.iter().filter(|(_, of)| **of == vrf);
        let mut tables: Vec<u32> = of.map(|(table, _)| *table).collect();
        tables.sort_unstable();
        tables
    }

    /// Sets which of our interfaces a kernel interface is the host interface of; `None`: of none.
    /// Returns whether routes by it were left out before: then the speaker has to send them again.
    pub fn set_interface(&mut self, rib: &mut Rib, index: u32, id: Option<InterfaceId>) -> bool {
        let had = match id {
            Some(id) => self.interfaces.ours.insert(index, id),
            None => self.interfaces.ours.remove(&index),
        };
        if had != id {
            self.objects.redefine_all(rib, &self.interfaces);
        }
        id.is_some() && self.strangers.remove(&index)
    }

    /// Forgets the host interface of an interface of ours, since the kernel may reuse its number.
    /// Of a host interface that was deleted and made again both numbers are known until the speaker
    /// uses the new one.
    pub fn forget_interface(&mut self, rib: &mut Rib, id: InterfaceId) {
        self.interfaces.ours.retain(|_, known| *known != id);
        self.objects.redefine_all(rib, &self.interfaces);
    }

    /// Which of our interfaces a kernel interface is the host interface of.
    pub fn interface(&self, index: u32) -> Option<InterfaceId> {
        self.interfaces.ours.get(&index).copied()
    }

    /// Sets whether a kernel interface is a virtual device of the kernel, which packets are handed
    /// to. Returns whether the speaker has to send its routes again: some were left out, or still
    /// lead there.
    pub fn set_host(&mut self, rib: &mut Rib, index: u32, is_host: bool) -> Option<bool> {
        let is_new = match is_host {
            true => self.interfaces.host.insert(index),
            false => self.interfaces.host.remove(&index),
        };
        if !is_new {
            return None;
        }
        self.objects.redefine_all(rib, &self.interfaces);
        Some(self.strangers.remove(&index) || !is_host)
    }

    /// The speaker begins anew: its routes are stale until it repeats them or [`end`](Self::end) is
    /// called. Packets still follow them.
    pub fn begin(&mut self, rib: &mut Rib) {
        for &vrf in self.tables.values() {
            rib.mark_stale(self.source, vrf);
        }
        self.objects.begin(rib, &self.interfaces);
        self.strangers.clear();
    }

    /// The speaker has sent everything: removes what it has not repeated. Returns how many routes
    /// those were.
    pub fn end(&mut self, rib: &mut Rib) -> usize {
        self.objects.end(rib);
        let vrfs = self.tables.values();
        vrfs.map(|&vrf| rib.sweep(self.source, vrf)).sum()
    }

    /// Applies a message to the routing table.
    pub fn apply(&mut self, rib: &mut Rib, said: &Said) {
        match said {
            Said::Route {
                table,
                prefix,
                metric,
                to,
                protocol,
            } => self.route(rib, *table, (*prefix, *metric), to, *protocol),
            Said::NoRoute {
                table,
                prefix,
                metric,
            } => self.no_route(rib, *table, (*prefix, *metric)),
            Said::Object { id, to } => {
                let room = self.objects.told(rib, &self.interfaces, *id, to);
                self.counts.full += u64::from(!room);
            }
            Said::NoObject { id } => self.objects.untold(rib, &self.interfaces, *id),
        }
    }

    fn no_route(&mut self, rib: &mut Rib, table: u32, (prefix, metric): (Prefix, u32)) {
        if let Some(&vrf) = self.tables.get(&table) {
            let removed = rib.remove(vrf, prefix, Key::of(self.source, metric));
            self.counts.removed += u64::from(removed);
        }
    }

    fn route(
        &mut self,
        rib: &mut Rib,
        table: u32,
        (prefix, metric): (Prefix, u32),
        told: &Told,
        protocol: u8,
    ) {
        let is_kernels = match told {
            Told::Kernel => true,
            // Connected networks are known from the addresses of host interfaces; the kernel sends
            // FRR's as well.
            Told::Network(index) => {
                self.source == Source::Fpm || self.interfaces.ours.contains_key(index)
            }
            _ => false,
        };
        if is_kernels {
            // zebra has one route for a prefix, so the kernel's own route has replaced zebra's. The
            // kernel has several for a prefix, and sends the removal of each.
            if self.source == Source::Fpm {
                self.no_route(rib, table, (prefix, metric));
            }
            return;
        }
        let Some(&vrf) = self.tables.get(&table) else {
            self.counts.not_ours += 1;
            return;
        };
        let key = Key {
            protocol,
            ..Key::of(self.source, metric)
        };
        if key.is_copy() && self.told_by_frr && rib.has(vrf, prefix, Source::Fpm) {
            return;
        }
        let to = match told {
            Told::Object(id) => match self.objects.rib(rib, &self.interfaces, *id) {
                Some(object) => To::Object(object),
                None => {
                    self.counts.full += 1;
                    return;
                }
            },
            told => self.objects.translate(told, &self.interfaces),
        };
        if let To::NextHops(next_hops) = &to
            && (next_hops.len() < told.next_hops().len() || matches!(told, Told::Network(_)))
        {
            self.note_strangers(told);
        }
        // It replaces the earlier route, even one that led by an interface of ours.
        if to == To::NextHops(Vec::new()) {
            rib.remove(vrf, prefix, key);
            self.counts.not_ours += 1;
            return;
        }
        match rib.insert(vrf, prefix, key, &to) {
            Ok(()) => self.counts.added += 1,
            Err(Full) => self.counts.full += 1,
        }
    }

    /// Remembers the interfaces of a route that are not ours yet: the message about them may
    /// follow.
    fn note_strangers(&mut self, told: &Told) {
        let network = match told {
            Told::Network(index) => Some(*index),
            _ => None,
        };
        let next_hops = told.next_hops().iter().map(|next_hop| next_hop.index);
        for index in next_hops.chain(network).filter(|index| *index != 0) {
            if !self.interfaces.ours.contains_key(&index) && self.strangers.len() < STRANGERS {
                self.strangers.insert(index);
            }
        }
    }
}

/// Translates next hops with their shares. Next hops by interfaces that are not ours are left out;
/// so are those that need labels or a tunnel, which we do not support, unless there are no others.
/// The kernel gets packets only where there is no next hop of ours. Several are sorted, so that
/// their order in the message does not matter.
fn translate<'a>(
    told: impl Iterator<Item = (&'a ToldNextHop, u16)>,
    interfaces: &Interfaces,
) -> To {
    let (mut encapsulated, mut by_host) = (false, false);
    let mut next_hops: Vec<NextHop> = Vec::new();
    for (told, share) in told {
        let interface = match told.index {
            // Without an interface of ours a gateway may be anywhere.
            0 => None,
            index => match interfaces.ours.get(&index) {
                Some(&id) => Some(id),
                None => {
                    by_host |= interfaces.host.contains(&index);
                    continue;
                }
            },
        };
        if interface.is_none() && told.gateway.is_none() {
            continue;
        }
        if told.encapsulated {
            encapsulated = true;
            continue;
        }
        next_hops.push(NextHop {
            gateway: told.gateway,
            interface,
            weight: told.weight.saturating_mul(share),
        });
    }
    if next_hops.is_empty() && by_host {
        return To::Host;
    }
    if next_hops.is_empty() && encapsulated {
        return To::Encapsulated;
    }
    next_hops
        .sort_unstable_by_key(|next_hop| (next_hop.interface, next_hop.gateway, next_hop.weight));
    To::NextHops(next_hops)
}
