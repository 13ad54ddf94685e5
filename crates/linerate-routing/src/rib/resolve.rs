//! Which of a prefix's routes is used, and where a gateway is.

use std::net::IpAddr;

use linerate_tables::lpm::Prefix as TablePrefix;

use super::Rib;
use super::family::{Width, is_reserved};
use super::route::{NextHop, Source, Unused};
use super::slots::Candidate;
use super::targets::{Def, Id, Leg, State};
use crate::model::Vrf;

impl Rib {
    /// The candidate of a prefix that is used.
    pub(super) fn best<A: Width>(
        &self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        head: u32,
    ) -> Option<&Candidate> {
        let mut best: Option<&Candidate> = None;
        for candidate in self.slots.list(head) {
            if best.is_none_or(|best| candidate.rank() < best.rank())
                && self.usable(vrf, prefix, candidate).is_ok()
            {
                best = Some(candidate);
            }
        }
        best
    }

    /// Whether a route can be used, regardless of others with its prefix.
    pub(super) fn usable<A: Width>(
        &self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        candidate: &Candidate,
    ) -> Result<(), Unused> {
        let target = self.targets.at(candidate.target);
        let source = candidate.key().source;
        match target.state {
            State::Usable => {}
            State::Unusable(why) => return Err(why),
            State::Fresh => return Err(Unused::NoRoute),
        }
        let itself = |&(gateway, len): &(IpAddr, u8)| {
            len <= prefix.len() && A::wrap(prefix).contains(gateway)
        };
        if target.guards.iter().any(itself) {
            return Err(Unused::Circle);
        }
        if source != Source::Reserved && is_reserved(A::wrap(prefix)) {
            return Err(Unused::Martian);
        }
        match (source, &target.def) {
            (Source::Neighbour, &Def::Neighbour(on, _)) => {
                match self.network_of(vrf, prefix.first()) {
                    Some((Def::Connected(network), _)) if *network == on => Ok(()),
                    _ => Err(Unused::OffLink),
                }
            }
            _ => Ok(()),
        }
    }

    /// The best route to an address other than its host route, with its prefix length.
    pub(super) fn network_of<A: Width>(&self, vrf: Vrf, address: A) -> Option<(&Def, u8)> {
        let trie = A::of(self).tries.get(vrf as usize)?;
        let mut found = None;
        for (prefix, head) in trie.covering(TablePrefix::of(address, A::BITS - 1)) {
            if let Some(best) = self.best(vrf, prefix, head) {
                found = Some((&self.targets.at(best.target).def, prefix.len()));
            }
        }
        found
    }

    /// Where the next hops of a target lead.
    pub(super) fn legs(&self, id: Id) -> Vec<(Leg, u16)> {
        let target = self.targets.at(id);
        let leg = |next_hop: &NextHop| match (next_hop.gateway, next_hop.interface) {
            (Some(gateway), Some(on)) => Leg::Direct(Def::Neighbour(on, gateway)),
            (None, Some(on)) => Leg::Direct(Def::Connected(on)),
            (Some(IpAddr::V4(v4)), None) => self.gateway(id, target.vrf, u32::from(v4)),
            (Some(IpAddr::V6(v6)), None) => self.gateway(id, target.vrf, u128::from(v6)),
            (None, None) => Leg::Nowhere(Unused::NoRoute),
        };
        if let Def::Default(of) = target.def {
            return vec![(Leg::As(of), 1)];
        }
        let next_hops = target.next_hops().iter();
        next_hops
            .map(|next_hop| (leg(next_hop), next_hop.weight))
            .collect()
    }

    /// Where a gateway of target `of` is: on a connected network, or behind another route. As in
    /// FRR, a gateway is not resolved by the default route: otherwise every unknown gateway would
    /// be.
    fn gateway<A: Width>(&self, of: Id, vrf: Vrf, gateway: A) -> Leg {
        let Some(trie) = A::of(self).tries.get(vrf as usize) else {
            return Leg::Nowhere(Unused::NoRoute);
        };
        let host = TablePrefix::of(gateway, A::BITS);
        let mut covering: Vec<(TablePrefix<A>, u32)> = trie.covering(host).collect();
        covering.retain(|(prefix, _)| prefix.len() > 0);
        while let Some((prefix, head)) = covering.pop() {
            let mut best: Option<&Candidate> = None;
            for candidate in self.slots.list(head) {
                // A neighbour's own route gives the same as its network.
                if candidate.key().source != Source::Neighbour
                    && best.is_none_or(|best| candidate.rank() < best.rank())
                    && !self.targets.depends(candidate.target, of)
                    && self.usable(vrf, prefix, candidate).is_ok()
                {
                    best = Some(candidate);
                }
            }
            let Some(best) = best else { continue };
            let target = self.targets.at(best.target);
            return match &target.def {
                &Def::Connected(on) => Leg::Direct(Def::Neighbour(on, gateway.ip())),
                // The gateway is behind a virtual device of the kernel, which knows how to reach
                // it.
                Def::Host => Leg::Direct(Def::Host),
                Def::NextHops(_) | Def::Object(_) if !target.members.is_empty() => Leg::Through {
                    id: best.target,
                    gateway: gateway.ip(),
                    len: prefix.len(),
                },
                Def::NextHops(_) | Def::Object(_) => Leg::Nowhere(Unused::NoRoute),
                _ => Leg::Nowhere(Unused::NoGateway),
            };
        }
        Leg::Nowhere(Unused::NoRoute)
    }
}
