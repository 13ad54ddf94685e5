//! What follows from interfaces: own addresses, connected networks, broadcast addresses, and routes
//! to neighbours.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linerate_tables::lpm::Prefix as TablePrefix;
use linerate_wire::MacAddr;

use super::Rib;
use super::family::{Width, is_reserved};
use super::route::{Key, Source};
use super::targets::Def;
use crate::model::{Cidr, InterfaceId, Prefix, Vrf};
use crate::plane::settings::Interface;

/// Routes of one interface in the table.
#[derive(Default)]
pub(super) struct Own {
    vrf: Vrf,
    addresses: Vec<Cidr>,
    routes: Vec<(Prefix, Key, Def)>,
}

/// Addresses that are no destinations, in every VRF: RFC 1812 4.2.2.11 and 5.3.7, RFC 4291 2.4 and
/// 2.5.5. Packets to link-local addresses are handled where the interface is known, and never
/// forwarded.
fn reserved() -> Vec<(Prefix, Def)> {
    let four = |a, b, c, d, len| Prefix::of([a, b, c, d].into(), len);
    let six = |first: u16, sixth: u16, last: u16, len| {
        Prefix::of(IpAddr::from([first, 0, 0, 0, 0, sixth, 0, last]), len)
    };
    let all = [
        (four(0, 0, 0, 0, 8), Def::Martian),
        (four(127, 0, 0, 0, 8), Def::Martian),
        (four(224, 0, 0, 0, 4), Def::Multicast),
        (four(240, 0, 0, 0, 4), Def::Martian),
        (four(255, 255, 255, 255, 32), Def::Broadcast(None)),
        (six(0, 0, 0, 128), Def::Martian),
        (six(0, 0, 1, 128), Def::Martian),
        (six(0, 0xffff, 0, 96), Def::Martian),
        (six(0xfe80, 0, 0, 10), Def::Local(None)),
        (six(0xff00, 0, 0, 8), Def::Multicast),
    ];
    let known = |(prefix, def): (Option<Prefix>, Def)| Some((prefix?, def));
    all.into_iter().filter_map(known).collect()
}

/// The routes that come with an address of an interface.
fn routes_of(id: InterfaceId, cidr: Cidr) -> Vec<(Prefix, Key, Def)> {
    let metric = u32::from(id.0);
    let (own, connected) = (
        Key::of(Source::Own, metric),
        Key::of(Source::Connected, metric),
    );
    let local = |address| (Prefix::host(address), own, Def::Local(Some(id)));
    let network = cidr.network();
    let mut routes = Vec::new();
    match (cidr.address, network) {
        (IpAddr::V4(address), Prefix::V4(prefix)) => {
            routes.push(local(address.into()));
            if prefix.len() < 32 {
                routes.push((network, connected, Def::Connected(id)));
            }
            // RFC 3021: two ends of a link need no broadcast address.
            if prefix.len() < 31 && prefix.last() != u32::from(address) {
                let last = Prefix::host(prefix.last().ip());
                routes.push((last, own, Def::Broadcast(Some(id))));
            }
        }
        (IpAddr::V6(address), Prefix::V6(prefix)) => {
            // Link-local addresses have no route: they are known by interface only.
            if address.is_unicast_link_local() {
                return routes;
            }
            routes.push(local(address.into()));
            if prefix.len() < 128 {
                routes.push((network, connected, Def::Connected(id)));
            }
            // RFC 4291 2.6.1: the subnet-router anycast address; RFC 6164: not of the two ends of a
            // link.
            if prefix.len() < 127 && prefix.first() != u128::from(address) {
                routes.push(local(prefix.first().ip()));
            }
        }
        _ => {}
    }
    routes
}

impl Rib {
    pub(super) fn reserve(&mut self, vrf: Vrf) {
        for (prefix, def) in reserved() {
            let target = self.targets.intern(0, def);
            // An empty table has room for the reserved prefixes.
            let _ = self.put(vrf, prefix, Key::of(Source::Reserved, 0), target);
        }
    }

    /// Adds an interface, or changes its port, MAC address, MTU or VRF. `None` removes it, with its
    /// addresses and neighbours. It is down until [`interface_state`](Self::interface_state) says
    /// otherwise.
    pub fn set_interface(&mut self, id: InterfaceId, interface: Option<&Interface>) {
        let vrf = interface.map(|interface| interface.vrf);
        let had = self.targets.vrf_of(id);
        let moves = had.is_some() && had != vrf;
        let addresses = self.own.get(&id).map(|own| own.addresses.clone());
        let macs: Vec<(IpAddr, Option<MacAddr>)> = match moves {
            true => {
                let all = self.targets.neighbours_of(id).into_iter();
                all.map(|address| (address, self.targets.mac(id, address)))
                    .collect()
            }
            false => Vec::new(),
        };
        if moves {
            for &(address, _) in &macs {
                self.neighbour(id, address, None);
            }
            self.addresses(id, &[]);
        }
        self.targets.set_interface(id, interface);
        if moves && vrf.is_some() {
            self.addresses(id, &addresses.unwrap_or_default());
            for (address, mac) in macs {
                self.neighbour(id, address, mac);
            }
        }
    }

    /// Sets whether an interface is up; routes by one that is down are not used.
    pub fn interface_state(&mut self, id: InterfaceId, up: bool) {
        self.targets.set_state(id, up);
    }

    /// Sets all addresses of an interface: each gives routes for the address itself, its network
    /// and its broadcast address.
    pub fn addresses(&mut self, id: InterfaceId, addresses: &[Cidr]) {
        let vrf = self.targets.vrf_of(id).unwrap_or(0);
        let same = |own: &Own| (own.vrf, &*own.addresses) == (vrf, addresses);
        if self.own.get(&id).is_some_and(same) {
            return;
        }
        let mut routes: Vec<(Prefix, Key, Def)> = Vec::new();
        for &cidr in addresses {
            for route in routes_of(id, cidr) {
                // Two addresses in one network; or one that is another network's broadcast address.
                let same = |had: &&(Prefix, Key, Def)| (had.0, had.1) == (route.0, route.1);
                if routes.iter().find(same).is_none() {
                    routes.push(route);
                }
            }
        }
        let now = Own {
            vrf,
            addresses: addresses.to_vec(),
            routes,
        };
        let was = self.own.insert(id, now).unwrap_or_default();
        let routes = self.own[&id].routes.clone();
        for (prefix, key, _) in &was.routes {
            let stays =
                was.vrf == vrf && routes.iter().any(|now| (now.0, now.1) == (*prefix, *key));
            if !stays {
                self.remove(was.vrf, *prefix, *key);
            }
        }
        for (prefix, key, def) in routes {
            let target = self.targets.intern(0, def);
            // If there is no memory, `counts` shows it.
            let _ = self.put(vrf, prefix, key, target);
        }
        if addresses.is_empty() {
            self.own.remove(&id);
        }
        // A neighbour may now be in a longer network.
        for address in self.targets.neighbours_of(id) {
            self.watch_neighbour(id, vrf, address);
        }
    }

    /// Sets all addresses of the router in a VRF that are on none of its interfaces. Reserved ones
    /// are left out.
    pub fn set_hosts(&mut self, vrf: Vrf, hosts: &BTreeSet<IpAddr>) {
        // They rank behind those of interfaces.
        let key = Key::of(Source::Own, u32::MAX);
        let mut now = hosts.clone();
        now.retain(|&host| !is_reserved(Prefix::host(host)));
        let was = self.hosts.insert(vrf, now.clone()).unwrap_or_default();
        for &host in was.difference(&now) {
            self.remove(vrf, Prefix::host(host), key);
        }
        for &host in now.difference(&was) {
            let target = self.targets.intern(0, Def::Local(None));
            // If there is no memory, `counts` shows it.
            let _ = self.put(vrf, Prefix::host(host), key, target);
        }
    }

    /// The addresses that [`addresses`](Self::addresses) gave an interface.
    pub fn addresses_of(&self, id: InterfaceId) -> &[Cidr] {
        self.own.get(&id).map_or(&[], |own| &own.addresses)
    }

    /// Sets a neighbour's MAC address; `None`: unknown. Within the interface's own networks the
    /// neighbour gets a route of its own; beyond the limit of neighbours it does not, and each
    /// packet is punted to be resolved.
    pub fn neighbour(&mut self, id: InterfaceId, address: IpAddr, mac: Option<MacAddr>) {
        let is_new = self.targets.mac(id, address).is_none();
        if mac.is_some() && is_new && self.targets.neighbours() >= self.limits.neighbours {
            return;
        }
        if !self.targets.set_mac(id, address, mac) || is_new == mac.is_none() {
            return; // only the MAC address changed
        }
        let Some(vrf) = self.targets.vrf_of(id) else {
            return;
        };
        let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if link_local {
            return;
        }
        let key = Key::of(Source::Neighbour, id.0.into());
        if mac.is_some() {
            let target = self.targets.intern(0, Def::Neighbour(id, address));
            // Without memory for the route each packet is punted.
            let _ = self.put(vrf, Prefix::host(address), key, target);
        } else {
            self.remove(vrf, Prefix::host(address), key);
        }
        self.watch_neighbour(id, vrf, address);
    }

    /// Updates the watch of a neighbour's address: the prefix length of its network.
    fn watch_neighbour(&mut self, id: InterfaceId, vrf: Vrf, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.watch_neighbour_in(id, vrf, u32::from(v4)),
            IpAddr::V6(v6) => self.watch_neighbour_in(id, vrf, u128::from(v6)),
        }
    }

    fn watch_neighbour_in<A: Width>(&mut self, id: InterfaceId, vrf: Vrf, address: A) {
        let known = self.targets.mac(id, address.ip()).is_some();
        let networks = self.addresses_of(id).iter().map(Cidr::network);
        let around = networks.filter(|network| network.contains(address.ip()));
        let longest = around.map(|network| network.len()).max();
        let family = A::of_mut(self);
        family.watch(vrf, address).neighbour = known.then_some(longest.unwrap_or(0));
        family.tidy_dependents(vrf, address);
        if known {
            let host = TablePrefix::of(address, A::BITS);
            family.dirty.push_back((vrf, host));
        }
    }
}
