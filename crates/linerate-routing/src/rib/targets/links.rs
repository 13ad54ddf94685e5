//! The state of interfaces and neighbours that hops need.

use std::net::IpAddr;

use linerate_wire::MacAddr;

use super::target::{Def, State, Target};
use super::{Id, Targets};
use crate::model::{InterfaceId, Vrf};
use crate::plane::settings::Interface;
use crate::rib::route::Unused;

/// The state of an interface that hops need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) port: u16,
    pub(super) vlan: u16,
    pub(super) vrf: Vrf,
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
    pub(super) up: bool,
}

impl Targets {
    /// Updates the state of a target that depends only on its interface. Returns whether it
    /// changed.
    pub(super) fn refresh(&mut self, id: Id) -> bool {
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

    /// Adds or changes an interface; `None` removes it. [`set_state`](Self::set_state) brings it
    /// up.
    pub(crate) fn set_interface(&mut self, id: InterfaceId, interface: Option<&Interface>) {
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

    /// Sets whether an interface is up.
    pub(crate) fn set_state(&mut self, id: InterfaceId, up: bool) {
        if let Some(facts) = self.interfaces.get_mut(&id)
            && facts.up != up
        {
            facts.up = up;
            self.refresh_all_of(id);
        }
    }

    pub(crate) fn vrf_of(&self, id: InterfaceId) -> Option<Vrf> {
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

    /// Sets a neighbour's MAC address; `None`: unknown. Returns whether it changed.
    pub(crate) fn set_mac(
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

    pub(crate) fn mac(&self, interface: InterfaceId, address: IpAddr) -> Option<MacAddr> {
        self.macs.get(&(interface, address)).copied()
    }

    /// Neighbours whose MAC address is known.
    pub(crate) fn neighbours(&self) -> usize {
        self.macs.len()
    }

    pub(crate) fn neighbours_of(&self, interface: InterfaceId) -> Vec<IpAddr> {
        let all = self.macs.keys();
        all.filter(|(on, _)| *on == interface)
            .map(|(_, address)| *address)
            .collect()
    }
}
