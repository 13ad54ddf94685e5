//! An interface: our addresses on it, and the networks on its link.

use std::net::{IpAddr, Ipv6Addr};

use linerate_wire::{MacAddr, ndp};

use super::InterfaceConfig;
use super::advertise::Advertiser;
use super::own::Own;

pub(super) struct Interface {
    /// As given, and with the link-local address that was added.
    pub(super) config: InterfaceConfig,
    pub(super) own: Vec<Own>,
    pub(super) advertiser: Option<Advertiser>,
}

impl Interface {
    pub(super) fn mac(&self) -> MacAddr {
        self.config.mac
    }

    fn own(&self, address: IpAddr) -> Option<&Own> {
        self.own.iter().find(|own| own.address == address)
    }

    /// Whether the address is ours, or will be after duplicate detection.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.own(address).is_some_and(|own| !own.is_duplicate())
    }

    /// Whether the address is ours, and used.
    pub(super) fn is_usable(&self, address: IpAddr) -> bool {
        self.own(address).is_some_and(Own::is_usable)
    }

    /// Whether the address is ours and still being probed for.
    pub(super) fn is_tentative(&self, address: IpAddr) -> bool {
        self.own(address).is_some_and(Own::is_tentative)
    }

    /// Whether a neighbour on this link can have that address: it is in a network of ours and not
    /// the network's own or broadcast address (RFC 1122 3.2.1.3), or it is link-local.
    pub(super) fn is_on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => true,
            _ => (self.own.iter()).any(|own| own.covers(address) && !own.is_edge(address)),
        }
    }

    /// The source address for a request for `target`: one in its network, or else any; of IPv6 ones
    /// the link-local one (RFC 4861 7.2.2).
    pub(super) fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        let usable = || {
            let own = self.own.iter().filter(|own| own.is_usable());
            own.filter(|own| own.address.is_ipv4() == target.is_ipv4())
        };
        let link_local = || self.link_local().map(IpAddr::V6);
        (usable()
            .find(|own| own.covers(target))
            .map(|own| own.address))
        .or_else(|| link_local().filter(|_| target.is_ipv6()))
        .or_else(|| usable().next().map(|own| own.address))
    }

    /// Whether it has, or may soon have, an address of the family.
    pub(super) fn speaks(&self, is_ipv4: bool) -> bool {
        let mut own = self.own.iter().filter(|own| !own.is_duplicate());
        own.any(|own| own.address.is_ipv4() == is_ipv4)
    }

    /// A link-local address of ours that is used.
    pub(super) fn link_local(&self) -> Option<Ipv6Addr> {
        let usable = self.own.iter().filter(|own| own.is_usable());
        usable.filter_map(|own| link_local(own.address)).next()
    }

    /// Earliest timer of the interface itself.
    pub(super) fn due_ns(&self) -> u64 {
        let own = self.own.iter().map(|own| own.due_ns);
        let advertiser = self.advertiser.iter().map(|advertiser| advertiser.due_ns);
        own.chain(advertiser).min().unwrap_or(u64::MAX)
    }
}

/// The address, if it is link-local.
pub(super) fn link_local(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
        _ => None,
    }
}

impl InterfaceConfig {
    /// Adds a link-local address if a router has IPv6 addresses without one (RFC 4862 5.3).
    pub(super) fn complete(mut self) -> Self {
        let speaks6 = self.advertise.is_some() || self.addresses.iter().any(|(a, _)| a.is_ipv6());
        let has = self.addresses.iter().any(|(a, _)| link_local(*a).is_some());
        if speaks6 && !has && !self.host {
            let address = ndp::link_local(self.mac);
            self.addresses.push((address.into(), 64));
        }
        self
    }
}
