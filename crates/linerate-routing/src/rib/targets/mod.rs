//! What routes lead to, without duplicates: the hops of the data plane and their dependencies.
//!
//! A target is a hop: its number is the value that forwarding tables hold and the place in the
//! [`HopTable`]. Routes with the same next hops share one. A neighbour on a link is a target, and
//! so is a connected network; what has one next hop is a copy of that one's hop, what has several
//! is a group of them. So when a neighbour's MAC address becomes known, only its hop changes, and
//! that of each target that is a single next hop through it: no route is touched.
//!
//! Targets are counted: by the routes that lead to them, by the targets that go through them, and
//! by the published tables. An unused target is kept until no reader can see it any more
//! ([`Targets::reap`]), and only then its number is used again.

mod hops;
mod links;
mod resolve;
mod target;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use linerate_core::MemError;
use linerate_core::publish::{Publisher, Reader};
use linerate_wire::MacAddr;

use self::links::Facts;
use super::route::To;
use crate::model::{InterfaceId, Vrf};
use crate::plane::hops::{Group, Hop, HopChange, HopTable};

pub(super) use target::{Def, Leg, State, Target};

/// A target, and the number of its hop.
pub(super) type Id = u32;

/// All targets.
pub(super) struct Targets {
    targets: Vec<Option<Target>>,
    free: Vec<Id>,
    index: HashMap<(Vrf, Def), Id>,
    free_groups: Vec<u32>,
    groups: u32,
    objects: u32,
    interfaces: BTreeMap<InterfaceId, Facts>,
    macs: HashMap<(InterfaceId, IpAddr), MacAddr>,
    /// To be resolved.
    dirty: VecDeque<Id>,
    /// Targets that became usable or unusable: their routes have to be selected again.
    flipped: Vec<Id>,
    /// Unused targets, which readers may still see.
    limbo: Vec<Id>,
    publisher: Publisher<HopTable, HopChange>,
}

impl Targets {
    /// No targets. `seed` is for [`HopTable::new`].
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new(seed: u64) -> Result<Self, MemError> {
        Ok(Self {
            targets: Vec::new(),
            free: Vec::new(),
            index: HashMap::new(),
            free_groups: Vec::new(),
            groups: 0,
            objects: 0,
            interfaces: BTreeMap::new(),
            macs: HashMap::new(),
            dirty: VecDeque::new(),
            flipped: Vec::new(),
            limbo: Vec::new(),
            publisher: Publisher::new(HopTable::new(seed))?,
        })
    }

    pub(super) fn reader(&self) -> Reader<HopTable> {
        self.publisher.reader()
    }

    pub(super) fn publish(&mut self) -> bool {
        self.publisher.publish()
    }

    pub(super) fn at(&self, id: Id) -> &Target {
        self.targets[id as usize]
            .as_ref()
            .expect("counted targets stay")
    }

    fn at_mut(&mut self, id: Id) -> &mut Target {
        self.targets[id as usize]
            .as_mut()
            .expect("counted targets stay")
    }

    /// Number of targets.
    pub(super) fn len(&self) -> usize {
        self.targets.len() - self.free.len()
    }

    pub(super) fn exists(&self, id: Id) -> bool {
        matches!(self.targets.get(id as usize), Some(Some(_)))
    }

    /// The target of that definition; it is not counted yet.
    pub(super) fn intern(&mut self, vrf: Vrf, def: Def) -> Id {
        // Only next hops without an interface depend on the table that they are looked up in.
        let looked_up = match &def {
            Def::NextHops(next_hops) => next_hops
                .iter()
                .any(|next_hop| next_hop.interface.is_none()),
            _ => false,
        };
        let key = (if looked_up { vrf } else { 0 }, def);
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        let id = self.add(key.0, key.1.clone());
        self.index.insert(key, id);
        id
    }

    /// A new object, which leads nowhere yet; held by the caller.
    pub(super) fn object(&mut self) -> Id {
        self.objects += 1;
        let id = self.add(0, Def::Object(self.objects));
        self.hold(id);
        id
    }

    /// Makes an object lead elsewhere.
    pub(super) fn redefine(&mut self, id: Id, to: Option<To>) {
        if self.at(id).object != to {
            self.at_mut(id).object = to;
            self.touch(id);
        }
    }

    fn add(&mut self, vrf: Vrf, def: Def) -> Id {
        let target = Target {
            def,
            vrf,
            object: None,
            state: State::Fresh,
            members: Vec::new(),
            guards: Vec::new(),
            through: Vec::new(),
            links: Vec::new(),
            users: Vec::new(),
            group: None,
            routes: 0,
            refs: 0,
            installed: [0; 2],
            left: [0; 2],
            dirty: false,
            in_limbo: false,
            watched: Vec::new(),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.targets[id as usize] = Some(target);
                id
            }
            None => {
                self.targets.push(Some(target));
                (self.targets.len() - 1) as Id
            }
        };
        // Without a reference yet it counts as unused.
        self.forget_if_idle(id);
        if let Def::Default(of) = self.at(id).def {
            // `of` may have no other user.
            self.link(id, &[of]);
            self.at_mut(id).links = vec![of];
        }
        match self.at(id).def {
            Def::NextHops(_) | Def::Object(_) | Def::Default(_) => self.touch(id),
            _ => drop(self.refresh(id)),
        }
        id
    }

    pub(super) fn hold(&mut self, id: Id) {
        self.at_mut(id).refs += 1;
    }

    pub(super) fn release(&mut self, id: Id) {
        self.at_mut(id).refs -= 1;
        self.forget_if_idle(id);
    }

    pub(super) fn add_route(&mut self, id: Id) {
        self.at_mut(id).routes += 1;
        self.hold(id);
    }

    pub(super) fn drop_route(&mut self, id: Id) {
        self.at_mut(id).routes -= 1;
        self.release(id);
    }

    /// Counts a further prefix of a family (0: IPv4, 1: IPv6) that leads here.
    pub(super) fn install(&mut self, id: Id, family: usize) {
        self.at_mut(id).installed[family] += 1;
    }

    /// Counts one prefix less, from the publication of that number on.
    pub(super) fn uninstall(&mut self, id: Id, family: usize, publication: u64) {
        let target = self.at_mut(id);
        target.installed[family] -= 1;
        target.left[family] = publication;
        self.forget_if_idle(id);
    }

    fn forget_if_idle(&mut self, id: Id) {
        let target = self.at_mut(id);
        if target.refs == 0 && target.installed == [0; 2] && !target.in_limbo {
            target.in_limbo = true;
            self.limbo.push(id);
        }
    }

    /// Frees the unused targets that no reader can see after so many publications of each family.
    /// `forget` is called for each before.
    pub(super) fn reap(&mut self, published: [u64; 2], mut forget: impl FnMut(Id, &Target)) {
        for id in std::mem::take(&mut self.limbo) {
            let target = self.at_mut(id);
            let needed = target.refs > 0 || target.installed != [0; 2];
            // After publication n readers may still hold the table before; after n + 1 they do not.
            let seen = (0..2).any(|f| target.left[f] > 0 && published[f] <= target.left[f]);
            if needed {
                target.in_limbo = false;
            } else if seen {
                self.limbo.push(id);
            } else if let Some(target) = self.targets[id as usize].take() {
                forget(id, &target);
                self.free.push(id);
                self.index.remove(&(target.vrf, target.def));
                self.unlink(id, target.links);
                self.free_groups
                    .extend(target.group.map(|(group, _)| group));
            }
        }
    }

    /// Marks a target to be resolved anew.
    pub(super) fn touch(&mut self, id: Id) {
        let target = self.at_mut(id);
        if !target.dirty {
            target.dirty = true;
            self.dirty.push_back(id);
        }
    }

    pub(super) fn next_dirty(&mut self) -> Option<Id> {
        loop {
            let id = self.dirty.pop_front()?;
            // It may have been freed and its number reused: the new target is queued itself.
            if let Some(Some(target)) = self.targets.get_mut(id as usize)
                && std::mem::take(&mut target.dirty)
            {
                return Some(id);
            }
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.dirty.is_empty() && self.flipped.is_empty()
    }

    /// Notes which gateways of a target are watched; returns those that were.
    pub(super) fn watch(&mut self, id: Id, gateways: Vec<IpAddr>) -> Vec<IpAddr> {
        std::mem::replace(&mut self.at_mut(id).watched, gateways)
    }

    /// Takes the targets with routes that became usable or unusable.
    pub(super) fn take_flipped(&mut self) -> Vec<Id> {
        let mut flipped = std::mem::take(&mut self.flipped);
        flipped.retain(|&id| self.exists(id) && self.at(id).routes > 0);
        flipped.sort_unstable();
        flipped.dedup();
        flipped
    }

    /// Approximate memory, with both copies of the hops.
    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<Option<Target>>() + 2 * size_of::<Hop>() + size_of::<(Vrf, Def, Id)>();
        self.targets.capacity() * each + self.groups as usize * 3 * size_of::<Group>()
    }
}
