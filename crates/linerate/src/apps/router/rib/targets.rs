//! What routes lead to, each thing once: the hops of the data plane and how they depend on each other.
//!
//! A target is a hop: its number is the value that forwarding tables hold and the place in the
//! [`HopTable`]. Routes with the same ways share one. A neighbour on a link is a target, and so is a
//! connected network; what has one way is a copy of that way's hop, what has several is a group of
//! them. So a neighbour whose MAC address becomes known is one change of its hop, and one for each
//! target that is nothing but a way through it: no route is touched.
//!
//! Targets are counted: by the routes that lead to them, by the targets that go through them, and by
//! what the published tables still say. One that nobody needs is kept until no reader can see it any
//! more ([`Targets::reap`]), and only then its number is used again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use linerate_core::MemError;
use linerate_core::publish::{Publisher, Reader};
use linerate_wire::MacAddr;

use super::group;
use super::route::{To, Unused, Way};
use crate::apps::router::model::{InterfaceId, Vrf};
use crate::apps::router::plane::hops::{Action, BUCKETS, Group, Hop, HopChange, HopTable};
use crate::apps::router::plane::settings::Interface;

/// A target, and the number of its hop.
pub(super) type Id = u32;

/// No bucket of a group leads there.
const NOWHERE: Id = u32::MAX;
/// A way of weight 1 in units of shares: ways through others are fractions of it.
const SHARE: u64 = 1 << 12;

/// What a target is, as far as it can be known beforehand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Def {
    Blackhole,
    Unreachable,
    Prohibit,
    Martian,
    Multicast,
    /// For the router itself; by the interface whose address it is.
    Local(Option<InterfaceId>),
    Broadcast(Option<InterfaceId>),
    /// A network that the interface is in.
    Connected(InterfaceId),
    /// A host on the interface's link.
    Neighbour(InterfaceId, IpAddr),
    Ways(Arc<[Way]>),
    /// What [`Target::object`] says, which may change.
    Object(u32),
    /// Where that target leads, by a default route: reverse path filtering tells these apart.
    Default(Id),
}

impl Def {
    pub(super) fn of(to: &To) -> Self {
        match to {
            To::Blackhole => Self::Blackhole,
            To::Unreachable => Self::Unreachable,
            To::Prohibit => Self::Prohibit,
            To::Ways(ways) => Self::Ways(ways.as_slice().into()),
            To::Object(_) => unreachable!("an object is a target already"),
        }
    }

    /// What it does with packets, where nothing else has to be known for that.
    fn action(&self) -> Option<Action> {
        Some(match self {
            Self::Blackhole => Action::Blackhole,
            Self::Unreachable => Action::Unreachable,
            Self::Prohibit => Action::Prohibit,
            Self::Martian => Action::Martian,
            Self::Multicast => Action::Multicast,
            Self::Local(_) => Action::Local,
            Self::Broadcast(_) => Action::Broadcast,
            Self::Connected(_)
            | Self::Neighbour(..)
            | Self::Ways(_)
            | Self::Object(_)
            | Self::Default(_) => return None,
        })
    }

    /// The interface that it is of.
    pub(super) fn interface(&self) -> Option<InterfaceId> {
        match *self {
            Self::Connected(id) | Self::Neighbour(id, _) => Some(id),
            Self::Local(id) | Self::Broadcast(id) => id,
            _ => None,
        }
    }
}

/// Whether packets can go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has looked yet.
    Fresh,
    Usable,
    Unusable(Unused),
}

/// Where one way leads, as the routes and interfaces are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    /// To something on an interface.
    Direct(Def),
    /// Through another target, whose route to the gateway has so many bits.
    Through {
        id: Id,
        gateway: IpAddr,
        len: u8,
    },
    /// Wherever another target leads.
    As(Id),
    Nowhere(Unused),
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) def: Def,
    /// Where gateways are looked up.
    pub(super) vrf: Vrf,
    /// Of [`Def::Object`]: where it leads; `None`: nobody has said.
    pub(super) object: Option<To>,
    pub(super) state: State,
    /// The hops that packets take, and their shares.
    pub(super) members: Vec<(Id, u32)>,
    /// Gateways that are reached through other routes, and the length of those: a route that holds such a
    /// gateway and is as long or longer would lead to itself.
    pub(super) guards: Vec<(IpAddr, u8)>,
    /// Targets that it goes through; a part of `links`.
    through: Vec<Id>,
    /// All that it depends on. It is one of the `users` of each.
    links: Vec<Id>,
    users: Vec<Id>,
    /// Number and buckets of its group, once it has had several members.
    group: Option<(u32, Box<Group>)>,
    /// Routes that lead here.
    routes: u32,
    /// All that need it: routes, users, holders.
    refs: u32,
    /// Prefixes in the tables of either family that lead here, and the publication that takes the last
    /// of them away.
    installed: [u32; 2],
    left: [u64; 2],
    dirty: bool,
    in_limbo: bool,
    /// Its gateways are watched.
    pub(super) watched: Vec<IpAddr>,
}

impl Target {
    /// Its ways, if it is made of ways.
    pub(super) fn ways(&self) -> &[Way] {
        match (&self.def, &self.object) {
            (Def::Ways(ways), _) => ways,
            (Def::Object(_), Some(To::Ways(ways))) => ways,
            _ => &[],
        }
    }

    /// What it does by itself.
    fn action(&self) -> Option<Action> {
        match (&self.def, &self.object) {
            (Def::Object(_), Some(To::Ways(_) | To::Object(_)) | None) => None,
            (Def::Object(_), Some(to)) => Def::of(to).action(),
            (def, _) => def.action(),
        }
    }
}

/// What hops need to know of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    port: u16,
    vlan: u16,
    vrf: Vrf,
    mac: MacAddr,
    mtu: u16,
    up: bool,
}

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
    /// Became usable or ceased to be so: their routes have to be looked at.
    flipped: Vec<Id>,
    /// Nobody needs them.
    limbo: Vec<Id>,
    publisher: Publisher<HopTable, HopChange>,
}

impl Targets {
    /// None.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new() -> Result<Self, MemError> {
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
            publisher: Publisher::new(HopTable::default())?,
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.targets.len() - self.free.len()
    }

    pub(super) fn exists(&self, id: Id) -> bool {
        matches!(self.targets.get(id as usize), Some(Some(_)))
    }

    /// The target of that definition; it is not counted yet.
    pub(super) fn intern(&mut self, vrf: Vrf, def: Def) -> Id {
        // Only ways without an interface depend on the table that they are looked up in.
        let looked_up = match &def {
            Def::Ways(ways) => ways.iter().any(|way| way.interface.is_none()),
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

    /// A new object, which leads nowhere yet; held by whoever asked for it.
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
        // Until it is counted it is nobody's.
        self.forget_if_idle(id);
        if let Def::Default(of) = self.at(id).def {
            // Which may be nobody else's.
            self.link(id, &[of]);
            self.at_mut(id).links = vec![of];
        }
        match self.at(id).def {
            Def::Ways(_) | Def::Object(_) | Def::Default(_) => self.touch(id),
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

    /// The tables of a family (0: IPv4, 1: IPv6) lead here once more.
    pub(super) fn install(&mut self, id: Id, family: usize) {
        self.at_mut(id).installed[family] += 1;
    }

    /// Once less, with the publication of that number.
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

    /// Frees the targets that nobody needs and no reader can see, now that so many publications of
    /// each family were made. `forget` is told of each before it goes.
    pub(super) fn reap(&mut self, published: [u64; 2], mut forget: impl FnMut(Id, &Target)) {
        for id in std::mem::take(&mut self.limbo) {
            let target = self.at_mut(id);
            let needed = target.refs > 0 || target.installed != [0; 2];
            // With publication n readers may still hold the table before; with n + 1 no more.
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

    /// To be resolved anew.
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
            // It may be gone by now, and another in its place: then that has its own turn.
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

    /// The targets that became usable, or unusable, with routes that lead there.
    pub(super) fn take_flipped(&mut self) -> Vec<Id> {
        let mut flipped = std::mem::take(&mut self.flipped);
        flipped.retain(|&id| self.exists(id) && self.at(id).routes > 0);
        flipped.sort_unstable();
        flipped.dedup();
        flipped
    }

    /// Whether `id` goes through `other`, or is it.
    pub(super) fn depends(&self, id: Id, other: Id) -> bool {
        id == other || self.at(id).through.iter().any(|&t| self.depends(t, other))
    }

    /// Takes note of where the ways of a target lead.
    pub(super) fn resolve(&mut self, id: Id, legs: &[(Leg, u16)]) {
        let (mut members, mut links) = (BTreeMap::new(), Vec::new());
        let (mut through, mut guards) = (Vec::new(), Vec::new());
        let mut is_usable = self.at(id).action().is_some();
        let mut why = match self.at(id).object {
            None if matches!(self.at(id).def, Def::Object(_)) => Unused::NoObject,
            _ => Unused::NoRoute,
        };
        for (leg, weight) in legs {
            let share = u64::from(*weight).max(1) * SHARE;
            match leg {
                Leg::Direct(def) => {
                    let next = self.intern(0, def.clone());
                    links.push(next);
                    match self.at(next).state {
                        State::Usable => *members.entry(next).or_insert(0) += share,
                        _ => why = Unused::Down,
                    }
                }
                &Leg::Through { id, gateway, len } => {
                    let parts = &self.at(id).members;
                    let total: u64 = parts.iter().map(|&(_, part)| u64::from(part)).sum();
                    for &(next, part) in parts {
                        let part = share * u64::from(part) / total.max(1);
                        *members.entry(next).or_insert(0) += part.max(1);
                        links.push(next);
                    }
                    links.push(id);
                    through.push(id);
                    guards.push((gateway, len));
                }
                &Leg::As(of) => {
                    let same = self.at(of);
                    let parts = same.members.iter();
                    members = parts.map(|&(id, part)| (id, u64::from(part))).collect();
                    guards.clone_from(&same.guards);
                    links.extend(members.keys());
                    links.push(of);
                    through.push(of);
                    is_usable = same.state == State::Usable;
                    if let State::Unusable(unused) = same.state {
                        why = unused;
                    }
                }
                Leg::Nowhere(unused) => why = *unused,
            }
        }
        let members: Vec<(Id, u32)> = members
            .into_iter()
            .map(|(id, share)| (id, u32::try_from(share).unwrap_or(u32::MAX)))
            .collect();
        links.sort_unstable();
        links.dedup();
        self.link(id, &links);
        let state = match is_usable || !members.is_empty() {
            true => State::Usable,
            false => State::Unusable(why),
        };
        let target = self.at_mut(id);
        target.through = through;
        let old_links = std::mem::replace(&mut target.links, links);
        let old_guards = std::mem::replace(&mut target.guards, guards);
        let same_guards = old_guards == target.guards;
        let old_members = std::mem::replace(&mut target.members, members);
        let same_members = old_members == target.members;
        let was = std::mem::replace(&mut target.state, state);
        self.unlink(id, old_links);
        let fresh = was == State::Fresh;
        if !fresh && (usable(was) != usable(state) || !same_guards) {
            self.flipped.push(id);
        }
        let follows = self.at(id).object.is_some() || matches!(self.at(id).def, Def::Default(_));
        if fresh || !same_members || !same_guards || was != state || follows {
            self.share_out(id);
            self.write(id);
            self.touch_users(id);
        }
    }

    /// Makes `id` a user of `links`, which are counted once more.
    fn link(&mut self, id: Id, links: &[Id]) {
        for &link in links {
            self.hold(link);
            self.at_mut(link).users.push(id);
        }
    }

    /// Takes `id` off the users of `links`, which are counted one less.
    fn unlink(&mut self, id: Id, links: Vec<Id>) {
        for link in links {
            let users = &mut self.at_mut(link).users;
            if let Some(place) = users.iter().position(|&user| user == id) {
                users.swap_remove(place);
            }
            self.release(link);
        }
    }

    fn touch_users(&mut self, id: Id) {
        for user in self.at(id).users.clone() {
            self.touch(user);
        }
    }

    /// Shares the buckets of a target's group out anew, if it has several members or had.
    fn share_out(&mut self, id: Id) {
        if let Def::Default(_) = self.at(id).def {
            return; // the group is that of the target which it leads to
        }
        if self.at(id).members.len() > 1 && self.at(id).group.is_none() {
            let number = self.free_groups.pop().unwrap_or(self.groups);
            self.groups = self.groups.max(number + 1);
            self.at_mut(id).group = Some((number, Box::new([NOWHERE; BUCKETS])));
        }
        let target = self.at_mut(id);
        let Some((number, buckets)) = target.group.as_mut() else {
            return;
        };
        group::assign(buckets, &target.members);
        if target.members.len() > 1 {
            let change = HopChange::SetGroup(*number, buckets.clone());
            self.publisher.push(change);
        }
    }

    /// Writes a target's hop, and those that are copies of it.
    fn write(&mut self, id: Id) {
        self.publisher.push(HopChange::Set(id, self.hop(id)));
        for user in self.at(id).users.clone() {
            if matches!(self.at(user).members[..], [(only, _)] if only == id) {
                let hop = self.hop(user);
                self.publisher.push(HopChange::Set(user, hop));
            }
        }
    }

    /// The hop that a target is.
    pub(super) fn hop(&self, id: Id) -> Hop {
        let target = self.at(id);
        let of_interface = |id: InterfaceId, action| {
            let facts = self.interfaces.get(&id);
            facts.map_or_else(Hop::default, |facts| Hop {
                src: facts.mac,
                vlan: facts.vlan,
                mtu: facts.mtu,
                port: facts.port,
                interface: id.into(),
                action,
                ..Hop::default()
            })
        };
        let plain = |action| Hop {
            action,
            ..Hop::default()
        };
        if let Some(action) = target.action() {
            let interface = target.def.interface();
            return interface.map_or(plain(action), |id| of_interface(id, action));
        }
        match (&target.def, &target.members[..]) {
            (&Def::Default(of), _) => Hop {
                is_default: true,
                ..self.hop(of)
            },
            (&Def::Connected(id), _) => of_interface(id, Action::Glean),
            (&Def::Neighbour(id, address), _) => {
                let mac = self.macs.get(&(id, address));
                let action = mac.map_or(Action::Resolve, |_| Action::Forward);
                Hop {
                    dst: mac.copied().unwrap_or_default(),
                    gateway: mapped(address),
                    ..of_interface(id, action)
                }
            }
            (_, []) => plain(Action::Unreachable),
            (_, &[(only, _)]) => self.hop(only),
            (_, _) => Hop {
                group: target.group.as_ref().map_or(0, |(number, _)| *number),
                ..plain(Action::Multipath)
            },
        }
    }

    /// How many buckets of a target's group lead to `member`.
    pub(super) fn buckets(&self, id: Id, member: Id) -> u16 {
        let group = self.at(id).group.as_ref();
        group.map_or(0, |(_, buckets)| {
            buckets.iter().filter(|&&hop| hop == member).count() as u16
        })
    }

    /// The state of a target that depends on nothing but its interface. Returns whether it changed.
    fn refresh(&mut self, id: Id) -> bool {
        let target = self.at(id);
        let up = |id: &InterfaceId| self.interfaces.get(id).is_some_and(|facts| facts.up);
        let state = match &target.def {
            Def::Connected(on) | Def::Neighbour(on, _) if !up(on) => State::Unusable(Unused::Down),
            _ => State::Usable,
        };
        let was = std::mem::replace(&mut self.at_mut(id).state, state);
        if was != State::Fresh && was != state {
            self.flipped.push(id);
        }
        self.write(id);
        was != state
    }

    /// An interface is there, or is another than it was; `None`: it is gone. It comes up by
    /// [`set_state`](Self::set_state).
    pub(super) fn set_interface(&mut self, id: InterfaceId, interface: Option<&Interface>) {
        let up = self.interfaces.get(&id).is_some_and(|facts| facts.up);
        let facts = interface.map(|interface| Facts {
            port: interface.port,
            vlan: interface.vlan.unwrap_or(0),
            vrf: interface.vrf,
            mac: interface.mac,
            mtu: interface.mtu,
            up,
        });
        let had = match facts {
            None => self.interfaces.remove(&id),
            Some(facts) => self.interfaces.insert(id, facts),
        };
        if had != facts {
            self.refresh_all_of(id);
        }
    }

    /// An interface is up or down.
    pub(super) fn set_state(&mut self, id: InterfaceId, up: bool) {
        if let Some(facts) = self.interfaces.get_mut(&id)
            && facts.up != up
        {
            facts.up = up;
            self.refresh_all_of(id);
        }
    }

    pub(super) fn vrf_of(&self, id: InterfaceId) -> Option<Vrf> {
        self.interfaces.get(&id).map(|facts| facts.vrf)
    }

    fn refresh_all_of(&mut self, interface: InterfaceId) {
        for id in 0..self.targets.len() as Id {
            let of = |target: &Target| target.def.interface() == Some(interface);
            if self.targets[id as usize].as_ref().is_some_and(of) && self.refresh(id) {
                self.touch_users(id);
            }
        }
    }

    /// A neighbour's MAC address, or that it is not known any more. Returns whether that is news.
    pub(super) fn set_mac(
        &mut self,
        interface: InterfaceId,
        address: IpAddr,
        mac: Option<MacAddr>,
    ) -> bool {
        let key = (interface, address);
        let had = match mac {
            Some(mac) => self.macs.insert(key, mac),
            None => self.macs.remove(&key),
        };
        if had == mac {
            return false;
        }
        let def = Def::Neighbour(interface, address);
        if let Some(&id) = self.index.get(&(0, def)) {
            self.write(id);
        }
        true
    }

    pub(super) fn mac(&self, interface: InterfaceId, address: IpAddr) -> Option<MacAddr> {
        self.macs.get(&(interface, address)).copied()
    }

    /// Neighbours whose MAC address is known.
    pub(super) fn neighbours(&self) -> usize {
        self.macs.len()
    }

    pub(super) fn neighbours_of(&self, interface: InterfaceId) -> Vec<IpAddr> {
        let all = self.macs.keys();
        all.filter(|(on, _)| *on == interface)
            .map(|(_, address)| *address)
            .collect()
    }

    /// About what it takes, the hops' two copies included.
    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<Option<Target>>() + 2 * size_of::<Hop>() + size_of::<(Vrf, Def, Id)>();
        self.targets.capacity() * each + self.groups as usize * 3 * size_of::<Group>()
    }
}

fn usable(state: State) -> bool {
    state == State::Usable
}

/// An address in 16 bytes, IPv4 as ::ffff:a.b.c.d.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
