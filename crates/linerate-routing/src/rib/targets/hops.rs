//! The data plane's side of targets: hops, and groups of them.

use std::net::{IpAddr, Ipv4Addr};

use linerate_tables::rewrite::Macs;
use linerate_wire::MacAddr;

use super::target::Def;
use super::{Id, Targets};
use crate::model::InterfaceId;
use crate::plane::hops::{Action, BUCKETS, Hop, HopChange};
use crate::rib::group;

/// No bucket of a group leads there.
const NOWHERE: Id = u32::MAX;

impl Targets {
    /// Assigns the buckets of a target's group again, if it has, or had, several members.
    pub(super) fn share_out(&mut self, id: Id) {
        if let Def::Default(_) = self.at(id).def {
            return; // the group belongs to the target that it leads to
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

    /// Writes a target's hop, and its copies.
    pub(super) fn write(&mut self, id: Id) {
        self.publisher.push(HopChange::Set(id, self.hop(id)));
        for user in self.at(id).users.clone() {
            if matches!(self.at(user).members[..], [(only, _)] if only == id) {
                let hop = self.hop(user);
                self.publisher.push(HopChange::Set(user, hop));
            }
        }
    }

    /// The hop of a target.
    pub(crate) fn hop(&self, id: Id) -> Hop {
        let target = self.at(id);
        let of_interface = |id: InterfaceId, action| {
            let facts = self.interfaces.get(&id);
            facts.map_or_else(Hop::default, |facts| Hop {
                macs: Macs::new(MacAddr::default(), facts.mac),
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
                let hop = of_interface(id, action);
                Hop {
                    macs: Macs::new(mac.copied().unwrap_or_default(), hop.macs.src()),
                    gateway: mapped(address),
                    ..hop
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
    pub(crate) fn buckets(&self, id: Id, member: Id) -> u16 {
        let group = self.at(id).group.as_ref();
        group.map_or(0, |(_, buckets)| {
            buckets.iter().filter(|&&hop| hop == member).count() as u16
        })
    }
}

/// An address in 16 bytes, IPv4 as ::ffff:a.b.c.d.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
