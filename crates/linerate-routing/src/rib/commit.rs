//! Writes changes into the published tables.
//!
//! Changes are written in slices, and each slice is published: a full table that comes at once
//! takes no more memory than one slice of changes. Within a slice hops are published before the
//! tables that lead to them.

use linerate_tables::lpm::Prefix as TablePrefix;
use std::net::IpAddr;

use super::Rib;
use super::family::{Family, Width};
use super::targets::Id;
use crate::model::Vrf;

/// About how many prefixes one publication makes visible at most.
const SLICE: usize = 8192;
/// Publications of one [`Rib::commit`], so that control can do other work in between.
const SLICES: usize = 8;
/// How often targets and prefixes may change each other before the rest waits for the next slice.
const ROUNDS: usize = 64;

/// What a commit has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Everything is published.
    Done,
    /// There are more changes: commit again.
    More,
    /// A reader has not looked since the last publication (its lcore sleeps): make it look, and
    /// commit again. Unpublished changes are kept, and more may be added.
    Blocked,
}

impl Rib {
    /// Publishes the changes, or a part of them.
    pub fn commit(&mut self) -> Progress {
        // What an earlier call could not publish.
        if !self.publish() {
            return Progress::Blocked;
        }
        for _ in 0..SLICES {
            self.settle();
            if !self.publish() {
                return Progress::Blocked;
            }
            if self.is_settled() {
                return Progress::Done;
            }
        }
        Progress::More
    }

    fn is_settled(&self) -> bool {
        self.targets.is_settled() && self.v4.dirty.is_empty() && self.v6.dirty.is_empty()
    }

    /// Writes one slice of changes.
    fn settle(&mut self) {
        let mut left = SLICE;
        for _ in 0..ROUNDS {
            while let Some(id) = self.targets.next_dirty() {
                self.resolve(id);
            }
            let flipped = self.targets.take_flipped();
            if !flipped.is_empty() {
                self.find_routes_to::<u32>(&flipped);
                self.find_routes_to::<u128>(&flipped);
            }
            left -= self.select::<u32>(left);
            left -= self.select::<u128>(left);
            if left == 0 || self.is_settled() {
                return;
            }
        }
    }

    /// Publishes hops first, then the tables that lead to them; then frees hops that no reader can
    /// see any more.
    fn publish(&mut self) -> bool {
        if !self.targets.publish() || !self.v4.publish() || !self.v6.publish() {
            return false;
        }
        let (v4, v6) = (&mut self.v4, &mut self.v6);
        let published = [v4.published, v6.published];
        self.targets.reap(published, |id, target| {
            for &gateway in &target.watched {
                match gateway {
                    IpAddr::V4(gateway) => unwatch(v4, target.vrf, gateway.into(), id),
                    IpAddr::V6(gateway) => unwatch(v6, target.vrf, gateway.into(), id),
                }
            }
        });
        true
    }

    fn resolve(&mut self, id: Id) {
        let legs = self.legs(id);
        self.targets.resolve(id, &legs);
        self.watch_gateways(id);
    }

    /// Registers a target for changes of the routes to its gateways.
    fn watch_gateways(&mut self, id: Id) {
        let target = self.targets.at(id);
        let looked_up = target
            .next_hops()
            .iter()
            .filter(|next_hop| next_hop.interface.is_none());
        let gateways: Vec<IpAddr> = looked_up.filter_map(|next_hop| next_hop.gateway).collect();
        if gateways == target.watched {
            return;
        }
        let vrf = target.vrf;
        for old in self.targets.watch(id, gateways.clone()) {
            match old {
                IpAddr::V4(old) => unwatch(&mut self.v4, vrf, old.into(), id),
                IpAddr::V6(old) => unwatch(&mut self.v6, vrf, old.into(), id),
            }
        }
        for gateway in gateways {
            match gateway {
                IpAddr::V4(gateway) => watch(&mut self.v4, vrf, gateway.into(), id),
                IpAddr::V6(gateway) => watch(&mut self.v6, vrf, gateway.into(), id),
            }
        }
    }

    /// Looks at all prefixes again that have a route to one of these targets.
    fn find_routes_to<A: Width>(&mut self, targets: &[Id]) {
        let mut found = Vec::new();
        for vrf in 0..self.limits.vrfs {
            for (prefix, head) in A::of(self).prefixes(vrf) {
                let mut list = self.slots.list(head);
                if list.any(|candidate| targets.binary_search(&candidate.target).is_ok()) {
                    found.push((vrf, prefix));
                }
            }
        }
        A::of_mut(self).dirty.extend(found);
    }

    /// Updates the table for at most `most` prefixes. Returns how many those were.
    fn select<A: Width>(&mut self, most: usize) -> usize {
        for done in 0..most {
            let Some((vrf, prefix)) = A::of_mut(self).dirty.pop_front() else {
                return done;
            };
            let head = A::of(self).head(vrf, prefix);
            let best = head.and_then(|head| self.best(vrf, prefix, head));
            let best = best.map(|candidate| candidate.target);
            let family = A::of_mut(self);
            let publication = family.next_publication();
            let Ok(had) = family.set(vrf, prefix, best) else {
                continue; // it is in `refused`
            };
            if had == best {
                continue;
            }
            if let Some(best) = best {
                self.targets.install(best, A::INDEX);
            }
            if let Some(had) = had {
                self.targets.uninstall(had, A::INDEX, publication);
            }
            self.tell_watchers(vrf, prefix);
        }
        most
    }

    /// Marks all watchers of addresses in a prefix, whose route may have changed.
    fn tell_watchers<A: Width>(&mut self, vrf: Vrf, prefix: TablePrefix<A>) {
        let family = A::of(self);
        if family.dependents.is_empty() {
            return;
        }
        let (mut touched, mut hosts) = (Vec::new(), Vec::new());
        for (address, watch) in family.dependents_in(vrf, prefix) {
            touched.extend_from_slice(&watch.targets);
            // Shorter than the neighbour's network, it changes nothing about it.
            let matters = |network: u8| network <= prefix.len() && prefix.len() < A::BITS;
            if watch.neighbour.is_some_and(matters) {
                hosts.push((vrf, TablePrefix::of(address, A::BITS)));
            }
        }
        for id in touched {
            if self.targets.exists(id) {
                self.targets.touch(id);
            }
        }
        A::of_mut(self).dirty.extend(hosts);
    }
}

fn watch<A: Width>(family: &mut Family<A>, vrf: Vrf, gateway: A, id: Id) {
    family.watch(vrf, gateway).targets.push(id);
}

fn unwatch<A: Width>(family: &mut Family<A>, vrf: Vrf, gateway: A, id: Id) {
    let targets = &mut family.watch(vrf, gateway).targets;
    if let Some(place) = targets.iter().position(|&watcher| watcher == id) {
        targets.swap_remove(place);
    }
    family.tidy_dependents(vrf, gateway);
}
