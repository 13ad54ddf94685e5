//! Routes as the kernel and FRR say them, into the words of the [`Rib`].
//!
//! Both speak rtnetlink: [`Said::of`] reads a message, and [`Feed`] knows which table is which VRF,
//! which kernel interface is which of ours, and what next-hop objects there are. A route by
//! interfaces that are not ours is none of our business: it is left out, and counted.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_wire::rtnetlink::{self, Body, RouteKind};

use super::model::{InterfaceId, Prefix, Vrf};
use super::rib::{Full, Key, ObjectId, Rib, Source, To, Way};

/// One thing that was said about routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Route {
        table: u32,
        prefix: Prefix,
        metric: u32,
        to: Told,
    },
    NoRoute {
        table: u32,
        prefix: Prefix,
        metric: u32,
    },
    Object {
        id: u32,
        to: Told,
    },
    NoObject {
        id: u32,
    },
}

/// Where a route or an object leads, by the speaker's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Blackhole,
    Unreachable,
    Prohibit,
    /// The usual case.
    Way(TellWay),
    Ways(Vec<TellWay>),
    Object(u32),
    /// Objects and their shares.
    Group(Vec<(u32, u16)>),
}

/// A gateway, and the number of a kernel interface (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TellWay {
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) index: u32,
    pub(crate) weight: u16,
}

impl Said {
    /// What a message says about routes; `None` where that is nothing that we forward by: MPLS,
    /// routes by source or type of service, what the kernel makes for addresses by itself (which are
    /// known), next hops of bridges.
    pub(crate) fn of(body: &Body<'_>) -> Option<Self> {
        match body {
            Body::NewRoute(route) => {
                let (table, prefix, metric) = place(route)?;
                if route.protocol == rtnetlink::PROTOCOL_KERNEL {
                    return None;
                }
                let to = told(route)?;
                Some(Self::Route {
                    table,
                    prefix,
                    metric,
                    to,
                })
            }
            Body::DelRoute(route) => {
                let (table, prefix, metric) = place(route)?;
                Some(Self::NoRoute {
                    table,
                    prefix,
                    metric,
                })
            }
            Body::NewNexthop(nexthop) if !nexthop.fdb => {
                let to = match nexthop.blackhole {
                    true => Told::Blackhole,
                    false if nexthop.is_group() => Told::Group(nexthop.members().collect()),
                    false => way(nexthop.via).map_or(Told::Ways(Vec::new()), Told::Way),
                };
                Some(Self::Object { id: nexthop.id, to })
            }
            Body::DelNexthop(nexthop) => Some(Self::NoObject { id: nexthop.id }),
            _ => None,
        }
    }
}

fn place(route: &rtnetlink::Route<'_>) -> Option<(u32, Prefix, u32)> {
    let plain = route.source_len == 0 && route.tos == 0 && !route.cloned;
    let prefix = Prefix::of(route.destination, route.len).filter(|_| plain)?;
    Some((route.table, prefix, route.metric))
}

fn told(route: &rtnetlink::Route<'_>) -> Option<Told> {
    Some(match route.kind {
        RouteKind::Blackhole => Told::Blackhole,
        RouteKind::Unreachable => Told::Unreachable,
        RouteKind::Prohibit => Told::Prohibit,
        RouteKind::Other(_) => return None,
        RouteKind::Unicast => {
            if let Some(id) = route.nexthop {
                return Some(Told::Object(id));
            }
            let mut ways = route.vias().filter_map(way);
            match (ways.next(), ways.next()) {
                (None, _) => Told::Ways(Vec::new()),
                (Some(one), None) => Told::Way(one),
                (Some(one), Some(two)) => {
                    let mut all = vec![one, two];
                    all.extend(ways);
                    Told::Ways(all)
                }
            }
        }
    })
}

/// `None` for a tunnel or labels, which packets do not get here.
fn way(via: rtnetlink::Via) -> Option<TellWay> {
    (!via.encapsulated).then_some(TellWay {
        gateway: via.gateway,
        index: via.interface,
        weight: via.weight,
    })
}

/// A next-hop object as it was said, and what the routing table knows it by.
struct Object {
    told: Option<Told>,
    /// Made when the first route leads to it.
    rib: Option<ObjectId>,
}

/// What became of what was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedCounts {
    /// Routes put in or changed, and taken out.
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// Left out: a table that is no VRF's, or no way by an interface of ours.
    pub(crate) not_ours: u64,
    /// Turned away because the routing table was full.
    pub(crate) full: u64,
}

/// One speaker: what its numbers mean.
pub(crate) struct Feed {
    source: Source,
    tables: HashMap<u32, Vrf>,
    interfaces: HashMap<u32, InterfaceId>,
    objects: HashMap<u32, Object>,
    /// Of the connection before, by what they lead to: a speaker that begins anew has other numbers
    /// for the same.
    earlier: Vec<(To, ObjectId)>,
    pub(crate) counts: FeedCounts,
}

impl Feed {
    /// A speaker of whom nothing is known.
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            tables: HashMap::new(),
            interfaces: HashMap::new(),
            objects: HashMap::new(),
            earlier: Vec::new(),
            counts: FeedCounts::default(),
        }
    }

    /// Which VRF a table of the kernel is. The routes of a table that is none stay away. Returns whether
    /// anything is another than it was.
    pub(crate) fn set_tables(&mut self, tables: impl IntoIterator<Item = (u32, Vrf)>) -> bool {
        let tables = tables.into_iter().collect();
        let had = std::mem::replace(&mut self.tables, tables);
        had != self.tables
    }

    /// The VRF that a table of the kernel is.
    pub(crate) fn vrf(&self, table: u32) -> Option<Vrf> {
        self.tables.get(&table).copied()
    }

    /// All VRFs that routes are taken for; one may be there twice.
    pub(crate) fn vrfs(&self) -> impl Iterator<Item = Vrf> {
        self.tables.values().copied()
    }

    /// The tables of a VRF, from the lowest.
    pub(crate) fn tables_of(&self, vrf: Vrf) -> Vec<u32> {
        let of = self.tables.iter().filter(|(_, of)| **of == vrf);
        let mut tables: Vec<u32> = of.map(|(table, _)| *table).collect();
        tables.sort_unstable();
        tables
    }

    /// Which of our interfaces a kernel interface is the twin of; `None`: of none.
    pub(crate) fn set_interface(&mut self, rib: &mut Rib, index: u32, id: Option<InterfaceId>) {
        let had = match id {
            Some(id) => self.interfaces.insert(index, id),
            None => self.interfaces.remove(&index),
        };
        if had != id {
            let all: Vec<u32> = self.objects.keys().copied().collect();
            self.redefine(rib, &all);
        }
    }

    /// Which of our interfaces a kernel interface is the twin of.
    pub(crate) fn interface(&self, index: u32) -> Option<InterfaceId> {
        self.interfaces.get(&index).copied()
    }

    /// The speaker begins anew: what it said is in doubt until it repeats it or
    /// [`end`](Self::end) is called. Packets follow it all the same.
    pub(crate) fn begin(&mut self, rib: &mut Rib) {
        for &vrf in self.tables.values() {
            rib.mark_stale(self.source, vrf);
        }
        // Groups are made of others: all are translated before any is forgotten.
        let mut earlier = Vec::new();
        for object in self.objects.values() {
            let to = object.told.as_ref().map(|told| self.translate(told));
            match (object.rib, to) {
                (Some(id), Some(to)) => earlier.push((to, id)),
                (Some(id), None) => rib.drop_object(id),
                (None, _) => {}
            }
        }
        self.objects.clear();
        self.earlier.append(&mut earlier);
    }

    /// The speaker has said all: what it has not repeated goes. Returns how many routes those were.
    pub(crate) fn end(&mut self, rib: &mut Rib) -> usize {
        for (_, id) in self.earlier.drain(..) {
            rib.drop_object(id);
        }
        let vrfs = self.tables.values();
        vrfs.map(|&vrf| rib.sweep(self.source, vrf)).sum()
    }

    /// Does what was said.
    pub(crate) fn apply(&mut self, rib: &mut Rib, said: &Said) {
        match said {
            Said::Route {
                table,
                prefix,
                metric,
                to,
            } => self.route(rib, *table, *prefix, *metric, to),
            Said::NoRoute {
                table,
                prefix,
                metric,
            } => {
                if let Some(&vrf) = self.tables.get(table) {
                    let removed = rib.remove(vrf, *prefix, Key::of(self.source, *metric));
                    self.counts.removed += u64::from(removed);
                }
            }
            Said::Object { id, to } => {
                let object = self.objects.entry(*id).or_insert(Object {
                    told: None,
                    rib: None,
                });
                if object.told.as_ref() != Some(to) {
                    object.told = Some(to.clone());
                    let with: Vec<u32> = self.groups_with(*id).chain([*id]).collect();
                    self.redefine(rib, &with);
                }
            }
            Said::NoObject { id } => {
                let gone = self.objects.remove(id);
                if let Some(object) = gone.and_then(|object| object.rib) {
                    rib.redefine(object, None);
                    rib.drop_object(object);
                }
                let with: Vec<u32> = self.groups_with(*id).collect();
                self.redefine(rib, &with);
            }
        }
    }

    fn route(&mut self, rib: &mut Rib, table: u32, prefix: Prefix, metric: u32, told: &Told) {
        let Some(&vrf) = self.tables.get(&table) else {
            self.counts.not_ours += 1;
            return;
        };
        let key = Key::of(self.source, metric);
        let to = match told {
            Told::Object(id) => To::Object(self.object(rib, *id)),
            told => self.translate(told),
        };
        // It takes the place of what was there, though that may have been ours.
        if to == To::Ways(Vec::new()) {
            rib.remove(vrf, prefix, key);
            self.counts.not_ours += 1;
            return;
        }
        match rib.insert(vrf, prefix, key, &to) {
            Ok(()) => self.counts.added += 1,
            Err(Full) => self.counts.full += 1,
        }
    }

    /// What the routing table knows an object by. One that leads where one of the connection before
    /// led is that one.
    fn object(&mut self, rib: &mut Rib, id: u32) -> ObjectId {
        if let Some(made) = self.objects.get(&id).and_then(|object| object.rib) {
            return made;
        }
        let told = self.objects.get(&id).and_then(|object| object.told.clone());
        let to = told.as_ref().map(|told| self.translate(told));
        let same = self
            .earlier
            .iter()
            .position(|(had, _)| Some(had) == to.as_ref());
        let made = match same {
            Some(same) => self.earlier.swap_remove(same).1,
            None => {
                let made = rib.object();
                rib.redefine(made, to);
                made
            }
        };
        let rib = Some(made);
        self.objects.insert(id, Object { told, rib });
        made
    }

    /// The groups that have an object among them.
    fn groups_with(&self, id: u32) -> impl Iterator<Item = u32> {
        self.objects.iter().filter_map(move |(&group, object)| {
            let has = |members: &[(u32, u16)]| members.iter().any(|member| member.0 == id);
            matches!(&object.told, Some(Told::Group(members)) if has(members)).then_some(group)
        })
    }

    /// Tells the routing table where objects lead now.
    fn redefine(&self, rib: &mut Rib, ids: &[u32]) {
        for object in ids.iter().filter_map(|id| self.objects.get(id)) {
            if let Some(made) = object.rib {
                rib.redefine(made, object.told.as_ref().map(|told| self.translate(told)));
            }
        }
    }

    /// In our words. Ways by interfaces that are not ours are left out.
    /// Several are sorted: in whatever order they were said, it is the same.
    fn translate(&self, told: &Told) -> To {
        match told {
            Told::Blackhole => To::Blackhole,
            Told::Unreachable => To::Unreachable,
            Told::Prohibit => To::Prohibit,
            Told::Way(way) => To::Ways(self.way(way, 1).into_iter().collect()),
            Told::Ways(ways) => sorted(ways.iter().filter_map(|w| self.way(w, 1))),
            Told::Object(id) => self.of_members(&[(*id, 1)]),
            Told::Group(members) => self.of_members(members),
        }
    }

    /// The ways of a group's members; members that are groups or blackholes have none.
    fn of_members(&self, members: &[(u32, u16)]) -> To {
        let told = |id: &u32| self.objects.get(id).and_then(|object| object.told.as_ref());
        if let [(only, _)] = members
            && matches!(told(only), Some(Told::Blackhole))
        {
            return To::Blackhole;
        }
        let ways = members.iter().filter_map(|(id, weight)| match told(id) {
            Some(Told::Way(way)) => self.way(way, *weight),
            _ => None,
        });
        sorted(ways)
    }

    fn way(&self, told: &TellWay, share: u16) -> Option<Way> {
        let interface = match told.index {
            // Not to be found among ours, a gateway alone may be anywhere.
            0 => None,
            index => Some(self.interface(index)?),
        };
        (interface.is_some() || told.gateway.is_some()).then_some(Way {
            gateway: told.gateway,
            interface,
            weight: told.weight.saturating_mul(share),
        })
    }
}

fn sorted(ways: impl Iterator<Item = Way>) -> To {
    let mut ways: Vec<Way> = ways.collect();
    ways.sort_unstable_by_key(|way| (way.interface, way.gateway, way.weight));
    To::Ways(ways)
}
