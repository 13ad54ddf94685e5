//! One address family: the prefixes of each VRF, the forwarding table, and the watches of
//! addresses.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_tables::TableError;
use linerate_tables::lpm::{Address, Prefix as TablePrefix, Rib as Trie, SharedLpm4, SharedLpm6};

use super::Rib;
use super::targets::Id;
use crate::model::{Prefix, Vrf};

/// An address that comes with a forwarding table: `u32` and `u128`.
pub(super) trait Width: Address {
    type Table: Table<Self>;
    /// 0 for IPv4, 1 for IPv6.
    const INDEX: usize;

    fn of(rib: &Rib) -> &Family<Self>;
    fn of_mut(rib: &mut Rib) -> &mut Family<Self>;
    fn ip(self) -> IpAddr;
    fn wrap(prefix: TablePrefix<Self>) -> Prefix;
}

impl Width for u32 {
    type Table = SharedLpm4;
    const INDEX: usize = 0;

    fn of(rib: &Rib) -> &Family<Self> {
        &rib.v4
    }

    fn of_mut(rib: &mut Rib) -> &mut Family<Self> {
        &mut rib.v4
    }

    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }

    fn wrap(prefix: TablePrefix<Self>) -> Prefix {
        Prefix::V4(prefix)
    }
}

impl Width for u128 {
    type Table = SharedLpm6;
    const INDEX: usize = 1;

    fn of(rib: &Rib) -> &Family<Self> {
        &rib.v6
    }

    fn of_mut(rib: &mut Rib) -> &mut Family<Self> {
        &mut rib.v6
    }

    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }

    fn wrap(prefix: TablePrefix<Self>) -> Prefix {
        Prefix::V6(prefix)
    }
}

/// The forwarding table of a family.
pub(super) trait Table<A> {
    fn insert(
        &mut self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        hop: u32,
    ) -> Result<Option<u32>, TableError>;
    fn remove(&mut self, vrf: Vrf, prefix: TablePrefix<A>) -> Result<Option<u32>, TableError>;
    fn publish(&mut self) -> bool;
    /// The routes of a VRF and their hops, published or not.
    fn routes(&self, vrf: Vrf) -> impl Iterator<Item = (TablePrefix<A>, u32)>;
    fn memory_bytes(&self) -> usize;
}

macro_rules! table {
    ($int:ty, $table:ty, $memory:expr) => {
        impl Table<$int> for $table {
            fn insert(
                &mut self,
                vrf: Vrf,
                prefix: TablePrefix<$int>,
                hop: u32,
            ) -> Result<Option<u32>, TableError> {
                self.insert(vrf, prefix, hop)
            }

            fn remove(
                &mut self,
                vrf: Vrf,
                prefix: TablePrefix<$int>,
            ) -> Result<Option<u32>, TableError> {
                self.remove(vrf, prefix)
            }

            fn publish(&mut self) -> bool {
                self.publish()
            }

            fn routes(&self, vrf: Vrf) -> impl Iterator<Item = (TablePrefix<$int>, u32)> {
                self.routes(vrf)
            }

            fn memory_bytes(&self) -> usize {
                let memory: fn(&$table) -> usize = $memory;
                memory(self)
            }
        }
    };
}

table!(u32, SharedLpm4, |table| table.memory().total());
table!(u128, SharedLpm6, |table| table.table().memory().total());

/// What depends on the best route to an address.
#[derive(Default)]
pub(super) struct Dependents {
    /// Targets that have the address as a gateway.
    pub(super) targets: Vec<Id>,
    /// Prefix length of its connected network, if the address is a neighbour with a route of its
    /// own.
    pub(super) neighbour: Option<u8>,
}

/// Routes that are written into another table at once.
const COPIED_AT_ONCE: usize = 8192;

/// One family.
pub(super) struct Family<A: Width> {
    /// By VRF: the prefixes, each with the head of its list of candidates.
    pub(super) tries: Vec<Trie<A>>,
    pub(super) table: A::Table,
    /// Prefixes whose candidates have changed since the table was last updated.
    pub(super) dirty: VecDeque<(Vrf, TablePrefix<A>)>,
    pub(super) dependents: BTreeMap<(Vrf, A), Dependents>,
    /// Routes of sources from outside.
    pub(super) fed: usize,
    /// Number of publications of the table, and whether there is something to publish.
    pub(super) published: u64,
    changed: bool,
    /// Prefixes that the table has no room for.
    pub(super) refused: HashSet<(Vrf, TablePrefix<A>)>,
}

impl<A: Width> Family<A> {
    pub(super) fn new(vrfs: u32, table: A::Table) -> Self {
        Self {
            tries: (0..vrfs).map(|_| Trie::new()).collect(),
            table,
            dirty: VecDeque::new(),
            dependents: BTreeMap::new(),
            fed: 0,
            published: 0,
            changed: false,
            refused: HashSet::new(),
        }
    }

    pub(super) fn head(&self, vrf: Vrf, prefix: TablePrefix<A>) -> Option<u32> {
        self.tries.get(vrf as usize)?.get(prefix)
    }

    /// All prefixes of a VRF, each with the head of its list.
    pub(super) fn prefixes(&self, vrf: Vrf) -> impl Iterator<Item = (TablePrefix<A>, u32)> {
        let trie = self.tries.get(vrf as usize).into_iter();
        trie.flat_map(Trie::iter)
    }

    /// The heads of all lists of a VRF.
    pub(super) fn heads(&self, vrf: Vrf) -> impl Iterator<Item = u32> {
        self.prefixes(vrf).map(|(_, head)| head)
    }

    /// Sets the hop of a prefix in the table; `None` removes it. Returns the hop before.
    pub(super) fn set(
        &mut self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
        hop: Option<Id>,
    ) -> Result<Option<Id>, TableError> {
        let had = match hop {
            Some(hop) => self.table.insert(vrf, prefix, hop),
            None => self.table.remove(vrf, prefix),
        };
        match had {
            Ok(had) => {
                self.changed |= had != hop;
                if !self.refused.is_empty() {
                    self.refused.remove(&(vrf, prefix));
                }
                // A removal may make room for prefixes that were refused.
                if hop.is_none() && had.is_some() && !self.refused.is_empty() {
                    self.dirty.extend(self.refused.drain());
                }
                Ok(had)
            }
            Err(error) => {
                self.refused.insert((vrf, prefix));
                Err(error)
            }
        }
    }

    /// Copies the table into an empty one with more VRFs, and publishes that.
    pub(super) fn copy_to(&self, mut table: A::Table) -> Result<A::Table, TableError> {
        for vrf in 0..self.tries.len() as Vrf {
            for (count, (prefix, hop)) in self.table.routes(vrf).enumerate() {
                table.insert(vrf, prefix, hop)?;
                // It has no readers yet; changes that wait for publication take memory.
                if count % COPIED_AT_ONCE == COPIED_AT_ONCE - 1 {
                    table.publish();
                }
            }
        }
        table.publish();
        Ok(table)
    }

    /// Replaces the table by a [copy](Self::copy_to) with so many VRFs.
    pub(super) fn exchange(&mut self, table: A::Table, vrfs: u32) {
        self.table = table;
        self.tries.resize_with(vrfs as usize, Trie::new);
    }

    /// The publication that will show what has been changed.
    pub(super) fn next_publication(&self) -> u64 {
        self.published + 1
    }

    /// `false`: a reader still uses the older copy.
    pub(super) fn publish(&mut self) -> bool {
        if self.changed {
            if !self.table.publish() {
                return false;
            }
            self.published += 1;
            self.changed = false;
        }
        true
    }

    /// The watches of all addresses in a prefix.
    pub(super) fn dependents_in(
        &self,
        vrf: Vrf,
        prefix: TablePrefix<A>,
    ) -> impl Iterator<Item = (A, &Dependents)> {
        self.dependents
            .range((vrf, prefix.first())..=(vrf, prefix.last()))
            .map(|(&(_, address), watch)| (address, watch))
    }

    pub(super) fn watch(&mut self, vrf: Vrf, address: A) -> &mut Dependents {
        self.dependents.entry((vrf, address)).or_default()
    }

    /// Drops a watch without users.
    pub(super) fn tidy_dependents(&mut self, vrf: Vrf, address: A) {
        let idle = |watch: &Dependents| watch.targets.is_empty() && watch.neighbour.is_none();
        if self.dependents.get(&(vrf, address)).is_some_and(idle) {
            self.dependents.remove(&(vrf, address));
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tries: usize = self.tries.iter().map(Trie::memory_bytes).sum();
        tries
            + self.table.memory_bytes()
            + self.dirty.capacity() * size_of::<(Vrf, TablePrefix<A>)>()
    }
}

/// Whether a prefix has only addresses that nothing may be sent to (RFC 1812 5.3.7, RFC 4291 2.4):
/// routes to them are not used.
pub(super) fn is_reserved(prefix: Prefix) -> bool {
    match prefix {
        Prefix::V4(prefix) => {
            let first = prefix.first() >> 24;
            match prefix.len() {
                8.. => matches!(first, 0 | 127 | 224..),
                4.. => first >= 224,
                _ => false,
            }
        }
        Prefix::V6(prefix) => {
            let (bits, len) = (prefix.first(), prefix.len());
            (len >= 8 && bits >> 120 == 0xff)
                || (len >= 10 && bits >> 118 == 0xfe80 >> 6)
                || (len >= 96 && bits >> 32 == 0xffff)
                || (len == 128 && bits <= 1)
        }
    }
}
