//! Resolves a target once its next hops have been looked up, and updates its users.

use std::collections::BTreeMap;

use super::target::{Def, Leg, State};
use super::{Id, Targets};
use crate::rib::route::Unused;

/// A next hop of weight 1 in units of shares: next hops through others are fractions of it.
const SHARE: u64 = 1 << 12;

impl Targets {
    /// Whether `id` goes through `other`, or is the same.
    pub(crate) fn depends(&self, id: Id, other: Id) -> bool {
        id == other || self.at(id).through.iter().any(|&t| self.depends(t, other))
    }

    /// Sets where the next hops of a target lead.
    pub(crate) fn resolve(&mut self, id: Id, legs: &[(Leg, u16)]) {
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
    pub(super) fn link(&mut self, id: Id, links: &[Id]) {
        for &link in links {
            self.hold(link);
            self.at_mut(link).users.push(id);
        }
    }

    /// Takes `id` off the users of `links`, which are counted one less.
    pub(super) fn unlink(&mut self, id: Id, links: Vec<Id>) {
        for link in links {
            let users = &mut self.at_mut(link).users;
            if let Some(place) = users.iter().position(|&user| user == id) {
                users.swap_remove(place);
            }
            self.release(link);
        }
    }

    pub(super) fn touch_users(&mut self, id: Id) {
        for user in self.at(id).users.clone() {
            self.touch(user);
        }
    }
}

fn usable(state: State) -> bool {
    state == State::Usable
}
