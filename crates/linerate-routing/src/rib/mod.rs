//! The routing table on the control side: routes of all sources, which one is best, what it
//! resolves to, and the data plane's tables that follow.
//!
//! Sources put routes in ([`Rib::insert`]) and take them out; interfaces, their addresses and
//! neighbours have calls of their own. Packets do not see a change until [`Rib::commit`], which
//! finds out what has changed, writes it, and publishes: hops first, then the tables that lead to
//! them. A hop's number is not used again while any reader might see it.
//!
//! | file | what |
//! |---|---|
//! | `route` | what sources give: [`Source`], [`Key`], [`To`], [`NextHop`] |
//! | `slots` | the candidates of each prefix |
//! | `family` | IPv4 and IPv6: prefixes, forwarding table, watched addresses |
//! | `targets`, `group` | hops: neighbours, next hops, groups of next hops with resilient buckets |
//! | `resolve` | which route is best, and where a gateway is |
//! | `own` | what follows from interfaces: own addresses, networks, neighbours |
//! | `commit` | writes changes into the tables |
//! | `show` | output for users |
//!
//! Readers look at the forwarding table first and then at the hops, in each burst: so every hop
//! that the table leads to exists. `docs/adr/0021-routes-and-feeds.md` has the reasons.

mod commit;
mod family;
mod group;
mod own;
mod resolve;
mod route;
mod show;
mod slots;
mod targets;
#[cfg(any(test, feature = "fuzz"))]
#[allow(clippy::unwrap_used)] // of tests
#[cfg_attr(not(test), allow(dead_code))] // what tests use besides
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_core::env::Isa;
use linerate_core::publish::Reader;
use linerate_tables::TableError;
use linerate_tables::lpm::{
    Fib4, Fib6, Lpm4Config, Lpm6Config, Prefix as TablePrefix, SharedLpm4, SharedLpm6,
};

use self::family::{Family, Width};
use self::own::Own;
use self::slots::{Candidate, Slots};
use self::targets::{Def, Id, Targets};
use super::model::{InterfaceId, Prefix, Vrf};
use super::plane::hops::HopTable;

pub use commit::Progress;
pub use route::{Key, NextHop, ObjectId, Source, To};
pub use show::{Shown, ShownNextHop, Use};

/// Sizes of the table.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limit of routes of each family, static ones, FRR's and the kernel's together.
    pub routes: usize,
    /// Limit of neighbours with a route of their own.
    pub neighbours: usize,
    /// VRFs, from 0.
    pub vrfs: u32,
    /// How many VRFs may have additional arrays for faster lookups when their tables are large: 64
    /// MiB from [`FLAT_ROUTES`] on, and 24 MiB from [`DIRECT_ROUTES`] on.
    pub flat_vrfs: u32,
    /// Seed of the choice among a group's next hops: [`HopTable::new`].
    pub seed: u64,
    /// The instructions that lookups may use.
    pub isa: Isa,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routes: 1_000_000,
            neighbours: 65_536,
            vrfs: 1,
            flat_vrfs: 1,
            seed: 0,
            isa: Isa::detect(),
        }
    }
}

/// IPv4 routes of a VRF from which on it has a flat array, two copies of 32 MiB: below, the compact
/// table lies in the second-level cache.
pub const FLAT_ROUTES: usize = 100_000;
/// IPv6 routes of a VRF from which on it has a direct array.
pub const DIRECT_ROUTES: usize = 25_000;
/// That takes three copies of 8 MiB.
const DIRECT_BYTES: usize = 24 << 20;

impl Config {
    /// 24 bytes of table for a route are five times what an Internet table takes, and enough for
    /// any /24s; neighbours are /32s, which take blocks of their own. 2 MiB are there without any
    /// route.
    fn lpm4(&self) -> Lpm4Config {
        Lpm4Config {
            vrfs: self.vrfs,
            table_bytes: ((self.vrfs as usize + 2) << 20) + 24 * self.routes + 64 * self.neighbours,
            flat_vrfs: self.flat_vrfs,
            flat_routes: FLAT_ROUTES,
            rib_bytes: (1 << 20) + 44 * (self.routes + self.neighbours),
            isa: self.isa,
        }
    }

    /// IPv6 tables are a quarter of IPv4's in the field; the room for them is taken at once.
    fn lpm6(&self) -> Lpm6Config {
        let routes = self.routes / 4 + self.neighbours / 4 + 4096;
        Lpm6Config {
            vrfs: self.vrfs,
            direct_vrfs: self.flat_vrfs,
            direct_routes: DIRECT_ROUTES,
            routes,
            budget_bytes: ((self.vrfs as usize + 16) << 20)
                + 1024 * routes
                + DIRECT_BYTES * self.flat_vrfs.min(self.vrfs) as usize,
            isa: self.isa,
        }
    }
}

/// The table has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the routing table is full")]
pub struct Full;

/// Counts of routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Routes of each family from static, FRR's and the kernel's sources.
    pub routes: [usize; 2],
    /// Routes that were refused because the table was full.
    pub turned_away: u64,
    /// Prefixes that the forwarding tables have no room for.
    pub no_room: usize,
    /// Different hops.
    pub hops: usize,
    /// Neighbours with a known MAC address.
    pub neighbours: usize,
    /// Publications of the forwarding tables of each family.
    pub published: [u64; 2],
    /// Memory of the routing and forwarding tables in bytes.
    pub memory_bytes: usize,
}

/// The routing table.
pub struct Rib {
    slots: Slots,
    v4: Family<u32>,
    v6: Family<u128>,
    targets: Targets,
    own: BTreeMap<InterfaceId, Own>,
    /// By VRF: the router's own addresses that are on no interface.
    hosts: BTreeMap<Vrf, BTreeSet<IpAddr>>,
    limits: Config,
    turned_away: u64,
}

impl Rib {
    /// A table that has only the reserved prefixes.
    ///
    /// # Errors
    /// If there is no memory for tables of that size.
    pub fn new(config: &Config) -> Result<Self, TableError> {
        let mut rib = Self {
            slots: Slots::default(),
            v4: Family::new(config.vrfs, SharedLpm4::new(&config.lpm4())?),
            v6: Family::new(config.vrfs, SharedLpm6::new(&config.lpm6())?),
            targets: Targets::new(config.seed)?,
            own: BTreeMap::new(),
            hosts: BTreeMap::new(),
            limits: config.clone(),
            turned_away: 0,
        };
        for vrf in 0..config.vrfs {
            rib.reserve(vrf);
        }
        Ok(rib)
    }

    /// Makes room for so many VRFs, from 0, in tables of their own: [new readers](Self::readers)
    /// see them, and lead to the same hops. All changes must have been [committed](Self::commit).
    ///
    /// # Errors
    /// If there is no memory for tables of that size; nothing has changed then.
    pub fn widen(&mut self, vrfs: u32) -> Result<(), TableError> {
        let limits = Config {
            vrfs,
            ..self.limits.clone()
        };
        let v4 = self.v4.copy_to(SharedLpm4::new(&limits.lpm4())?)?;
        let v6 = self.v6.copy_to(SharedLpm6::new(&limits.lpm6())?)?;
        self.v4.exchange(v4, vrfs);
        self.v6.exchange(v6, vrfs);
        let new = self.limits.vrfs..vrfs;
        self.limits = limits;
        new.for_each(|vrf| self.reserve(vrf));
        Ok(())
    }

    /// How many VRFs there is room for.
    pub fn vrfs(&self) -> u32 {
        self.limits.vrfs
    }

    /// What a worker reads.
    pub fn readers(&self) -> (Reader<Fib4>, Reader<Fib6>, Reader<HopTable>) {
        (
            self.v4.table.reader(),
            self.v6.table.reader(),
            self.targets.reader(),
        )
    }

    /// Adds a route, in the place of one with the same key if there is one.
    ///
    /// # Errors
    /// If the table is full: nothing has changed then. Routes of VRFs that do not exist are
    /// turned away the same.
    pub fn insert(&mut self, vrf: Vrf, prefix: Prefix, key: Key, to: &To) -> Result<(), Full> {
        let target = match to {
            To::Object(ObjectId(id)) => *id,
            to => self.targets.intern(vrf, Def::of(to)),
        };
        let is_default = prefix.len() == 0 && matches!(to, To::Object(_) | To::NextHops(_));
        let target = match is_default {
            true => self.targets.intern(vrf, Def::Default(target)),
            false => target,
        };
        self.put(vrf, prefix, key, target)
    }

    /// Whether a source has a route with that prefix.
    pub fn has(&self, vrf: Vrf, prefix: Prefix, source: Source) -> bool {
        let head = match prefix {
            Prefix::V4(prefix) => self.v4.head(vrf, prefix),
            Prefix::V6(prefix) => self.v6.head(vrf, prefix),
        };
        let mut list = head.into_iter().flat_map(|head| self.slots.list(head));
        list.any(|candidate| candidate.key().source == source)
    }

    /// Removes a route. Returns whether it was there.
    pub fn remove(&mut self, vrf: Vrf, prefix: Prefix, key: Key) -> bool {
        match prefix {
            Prefix::V4(prefix) => self.take(vrf, prefix, key),
            Prefix::V6(prefix) => self.take(vrf, prefix, key),
        }
    }

    /// A next-hop object that routes can lead to. Held until it is [dropped](Self::drop_object).
    pub fn object(&mut self) -> ObjectId {
        ObjectId(self.targets.object())
    }

    /// Sets where an object leads; `None`: nowhere. All its routes follow.
    pub fn redefine(&mut self, object: ObjectId, to: Option<To>) {
        self.targets.redefine(object.0, to);
    }

    /// Gives up an object; it stays as long as routes lead to it.
    pub fn drop_object(&mut self, object: ObjectId) {
        self.targets.release(object.0);
    }

    /// Marks a source's routes in a VRF as stale until it repeats them. They are still used.
    pub fn mark_stale(&mut self, source: Source, vrf: Vrf) {
        self.slots.mark_stale(source, self.v4.heads(vrf));
        self.slots.mark_stale(source, self.v6.heads(vrf));
    }

    /// Removes what a source has not repeated since [`mark_stale`](Self::mark_stale). Returns how
    /// many routes those were.
    pub fn sweep(&mut self, source: Source, vrf: Vrf) -> usize {
        self.sweep_family::<u32>(source, vrf) + self.sweep_family::<u128>(source, vrf)
    }

    fn sweep_family<A: Width>(&mut self, source: Source, vrf: Vrf) -> usize {
        let mut stale = Vec::new();
        for (prefix, head) in A::of(self).prefixes(vrf) {
            let of_source = |c: &&Candidate| c.stale && c.key().source == source;
            let found = self.slots.list(head).filter(of_source);
            stale.extend(found.map(|candidate| (prefix, candidate.key())));
        }
        for &(prefix, key) in &stale {
            self.take::<A>(vrf, prefix, key);
        }
        stale.len()
    }

    /// Removes all routes of a source in a VRF.
    pub fn forget(&mut self, source: Source, vrf: Vrf) {
        self.mark_stale(source, vrf);
        self.sweep(source, vrf);
    }

    /// Current counts.
    pub fn counts(&self) -> Counts {
        Counts {
            routes: [self.v4.fed, self.v6.fed],
            turned_away: self.turned_away,
            no_room: self.v4.refused.len() + self.v6.refused.len(),
            hops: self.targets.len(),
            neighbours: self.targets.neighbours(),
            published: [self.v4.published, self.v6.published],
            memory_bytes: self.slots.memory_bytes()
                + self.v4.memory_bytes()
                + self.v6.memory_bytes()
                + self.targets.memory_bytes(),
        }
    }

    fn put(&mut self, vrf: Vrf, prefix: Prefix, key: Key, target: Id) -> Result<(), Full> {
        // Holds the target during the insertion, since no route refers to it yet.
        self.targets.hold(target);
        let put = match prefix {
            Prefix::V4(prefix) => self.put_in(vrf, prefix, key, target),
            Prefix::V6(prefix) => self.put_in(vrf, prefix, key, target),
        };
        self.targets.release(target);
        self.turned_away += u64::from(put.is_err());
        put
    }

    fn put_in<A: Width>(
        &mut self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        key: Key,
        target: Id,
    ) -> Result<(), Full> {
        let head = self.slots.alone(Candidate::new(key, target)).ok_or(Full)?;
        let full = key.source.is_fed() && A::of(self).fed >= self.limits.routes;
        let family = A::of_mut(self);
        let Some(trie) = family.tries.get_mut(vrf as usize) else {
            self.slots.drop_alone(head);
            return Err(Full);
        };
        // A full table still accepts a route that replaces one.
        let list = match full {
            true => trie.get(prefix).map(Some).ok_or(Full),
            false => trie.insert(prefix, head).map_err(|_| Full),
        };
        let list = match list {
            Ok(list) => list,
            Err(full) => {
                self.slots.drop_alone(head);
                return Err(full);
            }
        };
        let had = list.and_then(|list| self.slots.join(head, list));
        let copy = match key.source {
            Source::Fpm => self.slots.take_copy(head),
            _ => None,
        };
        if full {
            if had.is_none() && copy.is_none() {
                // It was inserted before the others, and is removed again.
                let (rest, _) = self.slots.take(head, key);
                debug_assert_eq!(rest, list);
                return Err(Full);
            }
            let trie = &mut A::of_mut(self).tries[vrf as usize];
            trie.insert(prefix, head).map_err(|_| Full)?;
        }
        match had {
            Some(had) => self.took_place(vrf, prefix, Candidate::new(key, target), had),
            None => {
                A::of_mut(self).fed += usize::from(key.source.is_fed());
                self.targets.add_route(target);
                A::of_mut(self).dirty.push_back((vrf, prefix));
            }
        }
        if let Some(copy) = copy {
            A::of_mut(self).fed -= 1;
            self.targets.drop_route(copy.target);
            A::of_mut(self).dirty.push_back((vrf, prefix));
        }
        Ok(())
    }

    /// Accounts for a candidate that has replaced another.
    fn took_place<A: Width>(
        &mut self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        now: Candidate,
        had: Candidate,
    ) {
        self.targets.add_route(now.target);
        self.targets.drop_route(had.target);
        if (now.target, now.rank()) != (had.target, had.rank()) {
            A::of_mut(self).dirty.push_back((vrf, prefix));
        }
    }

    fn take<A: Width>(&mut self, vrf: Vrf, prefix: TablePrefix<A>, key: Key) -> bool {
        let Some(head) = A::of(self).head(vrf, prefix) else {
            return false;
        };
        let (rest, taken) = self.slots.take(head, key);
        let Some(taken) = taken else {
            return false;
        };
        let family = A::of_mut(self);
        let trie = &mut family.tries[vrf as usize];
        match rest {
            None => drop(trie.remove(prefix)),
            Some(rest) if rest != head => {
                // A prefix that exists needs no more memory.
                let _ = trie.insert(prefix, rest);
            }
            Some(_) => {}
        }
        family.fed -= usize::from(taken.key().source.is_fed());
        family.dirty.push_back((vrf, prefix));
        self.targets.drop_route(taken.target);
        true
    }
}
