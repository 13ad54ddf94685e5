//! Next-hop objects of a speaker: where each leads, and its object in the routing table.

use std::collections::HashMap;

use super::{Interfaces, Told, translate};
use crate::rib::{ObjectId, Rib, To};

/// Limit of objects of one speaker: an object that routes use takes some 400 bytes in the routing
/// table.
const MOST: usize = 1 << 18;

/// An object as the speaker sent it; `None`: a route refers to it and it has not come yet.
#[derive(Default)]
struct Object {
    told: Option<Told>,
    /// Made when the first route leads to it.
    rib: Option<ObjectId>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Objects {
    objects: HashMap<u32, Object>,
    /// By object, the groups that contain it.
    groups: HashMap<u32, Vec<u32>>,
    /// Objects of the connection before, by where they lead: after a restart a speaker uses other
    /// numbers for the same.
    earlier: HashMap<To, Vec<ObjectId>>,
}

impl Objects {
    /// Sets where an object leads. Returns whether there was room for it.
    pub(super) fn told(
        &mut self,
        rib: &mut Rib,
        interfaces: &Interfaces,
        id: u32,
        to: &Told,
    ) -> bool {
        let Some(object) = self.entry(id) else {
            return false;
        };
        if object.told.as_ref() == Some(to) {
            return true;
        }
        let before = object.told.replace(to.clone());
        self.leave_groups(id, before.as_ref());
        for &(member, _) in members(Some(to)) {
            let groups = self.groups.entry(member).or_default();
            if !groups.contains(&id) {
                groups.push(id);
            }
        }
        self.redefine(rib, interfaces, id);
        self.redefine_groups_with(rib, interfaces, id);
        true
    }

    /// Removes an object.
    pub(super) fn untold(&mut self, rib: &mut Rib, interfaces: &Interfaces, id: u32) {
        let Some(object) = self.objects.remove(&id) else {
            return;
        };
        self.leave_groups(id, object.told.as_ref());
        if let Some(object) = object.rib {
            rib.redefine(object, None);
            rib.drop_object(object);
        }
        self.redefine_groups_with(rib, interfaces, id);
    }

    /// The routing table's object for a speaker's; `None` if there is no room for it. An object
    /// that leads where one of the connection before led gets that one's.
    pub(super) fn rib(
        &mut self,
        rib: &mut Rib,
        interfaces: &Interfaces,
        id: u32,
    ) -> Option<ObjectId> {
        let object = self.entry(id)?;
        if object.rib.is_some() {
            return object.rib;
        }
        let told = object.told.clone();
        let to = told.map(|told| self.translate(&told, interfaces));
        let same = to.as_ref().and_then(|to| self.earlier.get_mut(to)?.pop());
        let made = same.unwrap_or_else(|| {
            let made = rib.object();
            rib.redefine(made, to);
            made
        });
        self.entry(id)?.rib = Some(made);
        Some(made)
    }

    /// Translates all objects again, since interfaces have changed.
    pub(super) fn redefine_all(&self, rib: &mut Rib, interfaces: &Interfaces) {
        for &id in self.objects.keys() {
            self.redefine(rib, interfaces, id);
        }
    }

    /// The speaker begins anew.
    pub(super) fn begin(&mut self, rib: &mut Rib, interfaces: &Interfaces) {
        // Groups refer to other objects: all are translated before any is forgotten.
        let mut earlier = std::mem::take(&mut self.earlier);
        for object in self.objects.values() {
            match (object.rib, &object.told) {
                (Some(id), Some(told)) => {
                    let to = self.translate(told, interfaces);
                    earlier.entry(to).or_default().push(id);
                }
                (Some(id), None) => rib.drop_object(id),
                (None, _) => {}
            }
        }
        *self = Self {
            earlier,
            ..Self::default()
        };
    }

    /// The speaker has sent everything.
    pub(super) fn end(&mut self, rib: &mut Rib) {
        for (_, ids) in self.earlier.drain() {
            ids.into_iter().for_each(|id| rib.drop_object(id));
        }
    }

    /// Translates where an object leads.
    pub(super) fn translate(&self, told: &Told, interfaces: &Interfaces) -> To {
        match told {
            Told::Blackhole => To::Blackhole,
            Told::Unreachable => To::Unreachable,
            Told::Prohibit => To::Prohibit,
            Told::NextHop(next_hop) => translate([(next_hop, 1)].into_iter(), interfaces),
            Told::NextHops(next_hops) => {
                translate(next_hops.iter().map(|next_hop| (next_hop, 1)), interfaces)
            }
            Told::Object(id) => self.of_members(&[(*id, 1)], interfaces),
            Told::Group(members) => self.of_members(members, interfaces),
            Told::Network(index) if interfaces.host.contains(index) => To::Host,
            Told::Network(_) | Told::Kernel => To::NextHops(Vec::new()),
        }
    }

    /// The next hops of a group's members; members that are groups have none, and blackholes count
    /// only where there is nothing else.
    fn of_members(&self, members: &[(u32, u16)], interfaces: &Interfaces) -> To {
        let told = |id: &u32| self.objects.get(id).and_then(|object| object.told.as_ref());
        let is_blackhole = |(id, _): &(u32, u16)| told(id) == Some(&Told::Blackhole);
        if !members.is_empty() && members.iter().all(is_blackhole) {
            return To::Blackhole;
        }
        let next_hops = members.iter().filter_map(|(id, share)| match told(id) {
            Some(Told::NextHop(next_hop)) => Some((next_hop, *share)),
            _ => None,
        });
        translate(next_hops, interfaces)
    }

    fn entry(&mut self, id: u32) -> Option<&mut Object> {
        if self.objects.len() >= MOST && !self.objects.contains_key(&id) {
            return None;
        }
        Some(self.objects.entry(id).or_default())
    }

    fn leave_groups(&mut self, id: u32, told: Option<&Told>) {
        for (member, _) in members(told) {
            if let Some(groups) = self.groups.get_mut(member) {
                groups.retain(|group| *group != id);
                if groups.is_empty() {
                    self.groups.remove(member);
                }
            }
        }
    }

    fn redefine_groups_with(&self, rib: &mut Rib, interfaces: &Interfaces, id: u32) {
        for &group in self.groups.get(&id).into_iter().flatten() {
            self.redefine(rib, interfaces, group);
        }
    }

    /// Tells the routing table where an object leads now.
    fn redefine(&self, rib: &mut Rib, interfaces: &Interfaces, id: u32) {
        if let Some(object) = self.objects.get(&id)
            && let Some(made) = object.rib
        {
            let told = object.told.as_ref();
            rib.redefine(made, told.map(|told| self.translate(told, interfaces)));
        }
    }
}

/// The members of a group; none if it is not a group.
fn members(told: Option<&Told>) -> &[(u32, u16)] {
    match told {
        Some(Told::Group(members)) => members,
        _ => &[],
    }
}
