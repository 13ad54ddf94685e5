//! The table for users: every route, whether it is used, and if not, why.

use std::net::IpAddr;

use linerate_tables::lpm::Prefix as TablePrefix;
use linerate_wire::MacAddr;

use super::Rib;
use super::family::Width;
use super::route::{Key, To, Unused};
use super::slots::Candidate;
use super::targets::{Def, Id};
use crate::model::{InterfaceId, Prefix, Vrf};

/// One route.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its destination.
    pub prefix: Prefix,
    /// Its source, distance and metric.
    pub key: Key,
    /// Stale: its source has begun anew and has not repeated it yet.
    pub stale: bool,
    /// Whether packets follow it.
    pub used: Use,
    /// What is done with packets: "via", "connected", "local", "blackhole" and so on.
    pub kind: &'static str,
    /// Next hops as its source gave them; those of the next-hop object if it has one.
    pub next_hops: Vec<ShownNextHop>,
    /// Next hops that packets take: with gateways resolved, without unusable ones.
    pub resolved: Vec<ShownNextHop>,
}

/// Whether packets follow a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is the best route of its prefix.
    Best,
    /// There is a better one with this prefix.
    Backup,
    /// It cannot be used, for this reason.
    No(Unused),
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownNextHop {
    /// Address of the next router, if there is one.
    pub gateway: Option<IpAddr>,
    /// Output interface, if it is known.
    pub interface: Option<InterfaceId>,
    /// As the source gave it; for a resolved next hop its buckets of 64, or 1 if it is the only
    /// one.
    pub weight: u16,
    /// MAC address of the next hop, if it is known.
    pub mac: Option<MacAddr>,
}

impl Rib {
    /// The routes of a VRF in `within`, and those that hold it, in order.
    pub fn show(&self, vrf: Vrf, within: Prefix) -> Box<dyn Iterator<Item = Shown> + '_> {
        match within {
            Prefix::V4(within) => Box::new(self.show_family(vrf, within)),
            Prefix::V6(within) => Box::new(self.show_family(vrf, within)),
        }
    }

    fn show_family<A: Width>(
        &self,
        vrf: Vrf,
        within: TablePrefix<A>,
    ) -> impl Iterator<Item = Shown> + '_ {
        let tries = A::of(self).tries.get(vrf as usize).into_iter();
        let prefixes = tries.flat_map(move |trie| {
            let above = trie.covering(within).filter(move |(p, _)| *p != within);
            above.chain(trie.covered(within))
        });
        prefixes.flat_map(move |(prefix, head)| {
            let best = self.best(vrf, prefix, head).map(Candidate::key);
            self.slots
                .list(head)
                .map(move |candidate| self.show_one(vrf, prefix, candidate, best))
        })
    }

    fn show_one<A: Width>(
        &self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        candidate: &Candidate,
        best: Option<Key>,
    ) -> Shown {
        let key = candidate.key();
        let no_room = A::of(self).refused.contains(&(vrf, prefix));
        let used = match self.usable(vrf, prefix, candidate) {
            Err(why) => Use::No(why),
            Ok(()) if best != Some(key) => Use::Backup,
            Ok(()) if no_room => Use::No(Unused::NoRoom),
            Ok(()) => Use::Best,
        };
        let id = match self.targets.at(candidate.target).def {
            Def::Default(of) => of,
            _ => candidate.target,
        };
        let target = self.targets.at(id);
        let next_hops = target.next_hops().iter();
        let next_hop =
            |gateway: Option<IpAddr>, interface: Option<InterfaceId>, weight| ShownNextHop {
                gateway,
                interface,
                weight,
                mac: interface
                    .zip(gateway)
                    .and_then(|(on, gateway)| self.targets.mac(on, gateway)),
            };
        let resolved = |id: Id, weight| match self.targets.at(id).def {
            Def::Neighbour(on, address) => Some(next_hop(Some(address), Some(on), weight)),
            Def::Connected(on) => Some(next_hop(None, Some(on), weight)),
            _ => None,
        };
        let members = target.members.iter().filter_map(|&(member, _)| {
            let weight = match target.members.len() {
                1 => 1,
                _ => self.targets.buckets(id, member),
            };
            resolved(member, weight)
        });
        Shown {
            prefix: A::wrap(prefix),
            key,
            stale: candidate.stale,
            used,
            kind: kind(&target.def, target.object.as_ref()),
            next_hops: next_hops
                .map(|w| next_hop(w.gateway, w.interface, w.weight))
                .chain(resolved(id, 1))
                .collect(),
            resolved: members.chain(resolved(id, 1)).collect(),
        }
    }
}

fn kind(def: &Def, object: Option<&To>) -> &'static str {
    match def {
        Def::Blackhole => "blackhole",
        Def::Unreachable => "unreachable",
        Def::Prohibit => "prohibit",
        Def::Martian => "martian",
        Def::Multicast => "multicast",
        Def::Encapsulated => "encapsulated",
        Def::Host => "by the host",
        Def::Local(_) => "local",
        Def::Broadcast(_) => "broadcast",
        Def::Connected(_) => "connected",
        Def::Neighbour(..) => "neighbour",
        Def::NextHops(_) | Def::Default(_) => "via",
        Def::Object(_) => match object {
            Some(To::NextHops(_) | To::Object(_)) | None => "via",
            Some(to) => kind(&Def::of(to), None),
        },
    }
}
