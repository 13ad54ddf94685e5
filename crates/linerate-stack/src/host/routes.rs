//! Routes of a host, and the choice of a source address (RFC 1122 3.3.1, RFC 6724 5).
//!
//! A host has a handful of routes, and a connection asks for one once: they are in a list, the
//! longest prefix first, which is searched from its front.

use std::net::{IpAddr, Ipv6Addr};

use super::address::bits;
use super::config::InterfaceId;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations: a network and its prefix length.
    pub destination: (IpAddr, u8),
    /// The router that leads there; `None`: the destinations are neighbours themselves.
    pub via: Option<IpAddr>,
    /// Output interface.
    pub interface: InterfaceId,
    /// Source address of packets that have none yet, one of ours; `None`: that of RFC 6724 5.
    pub source: Option<IpAddr>,
    /// Longest IP packet in bytes, where it is below the interface's.
    pub mtu: Option<u16>,
}

impl Route {
    /// A route to a network by a router.
    pub fn by(destination: (IpAddr, u8), via: IpAddr, interface: InterfaceId) -> Self {
        Self {
            destination,
            via: Some(via),
            interface,
            source: None,
            mtu: None,
        }
    }

    /// Whether all addresses are of one family, and the prefix fits it.
    pub(super) fn is_sound(&self) -> bool {
        let (network, len) = self.destination;
        let suits = |address: &IpAddr| address.is_ipv4() == network.is_ipv4();
        let can_lead = |via: &IpAddr| !via.is_multicast() && !via.is_unspecified();
        len <= width(network)
            && self.via.iter().all(|via| suits(via) && can_lead(via))
            && self.source.iter().all(suits)
    }

    /// Whether they are to one network, by one interface and router.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let network = |route: &Self| (mask(route.destination), route.destination.1);
        network(self) == network(other)
            && (self.interface, self.via) == (other.interface, other.via)
    }

    fn covers(&self, address: IpAddr) -> bool {
        covers(self.destination, address)
    }
}

/// All routes, those of the interfaces' networks included.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// In order of falling prefix length; among equal ones the older is first.
    list: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    route: Route,
    /// Whether it is the network of an interface's address, and goes with it.
    is_attached: bool,
    /// An IPv4 network and its mask; of another route such that no address is in it.
    v4: (u32, u32),
}

impl Entry {
    fn new(route: Route, is_attached: bool) -> Self {
        let v4 = match route.destination {
            (IpAddr::V4(network), len) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32)));
                let mask = mask.unwrap_or(0);
                (network.to_bits() & mask, mask)
            }
            (IpAddr::V6(_), _) => (1, 0),
        };
        Self {
            route,
            is_attached,
            v4,
        }
    }
}

impl Routes {
    /// How many were added, those of interfaces' networks not counted.
    pub(super) fn added(&self) -> usize {
        self.list.iter().filter(|known| !known.is_attached).count()
    }

    /// Adds a route, or replaces the one to the same network by the same interface and router.
    pub(super) fn add(&mut self, route: Route) {
        self.insert(Entry::new(route, false));
    }

    /// Adds the network of an interface's address.
    pub(super) fn attach(&mut self, network: (IpAddr, u8), interface: InterfaceId) {
        let route = Route {
            destination: network,
            via: None,
            interface,
            source: None,
            mtu: None,
        };
        if !self.list.iter().any(|known| known.route.is_same(&route)) {
            self.insert(Entry::new(route, true));
        }
    }

    fn insert(&mut self, entry: Entry) {
        let mut known = self.list.iter_mut();
        if let Some(known) = known.find(|known| known.route.is_same(&entry.route)) {
            *known = entry;
            return;
        }
        let len = entry.route.destination.1;
        let at = (self.list).partition_point(|known| known.route.destination.1 >= len);
        self.list.insert(at, entry);
    }

    /// Removes a route; false if there is none to that network by that interface and router.
    pub(super) fn remove(&mut self, route: &Route) -> bool {
        let before = self.list.len();
        self.list.retain(|known| !known.route.is_same(route));
        self.list.len() < before
    }

    /// Removes all routes by an interface, and its networks.
    pub(super) fn detach(&mut self, interface: InterfaceId) {
        self.list.retain(|known| known.route.interface != interface);
    }

    /// Removes the networks of an interface, but no route by it.
    pub(super) fn detach_networks(&mut self, interface: InterfaceId) {
        let is_its = |known: &Entry| known.is_attached && known.route.interface == interface;
        self.list.retain(|known| !is_its(known));
    }

    /// The route to an address, by a given interface if there is one.
    pub(super) fn find(&self, to: IpAddr, on: Option<InterfaceId>) -> Option<&Route> {
        let is_on = |route: &Route| on.is_none_or(|on| on == route.interface);
        self.iter().find(|route| is_on(route) && route.covers(to))
    }

    /// The number of the route to an address, if that is by a router.
    #[inline]
    pub(super) fn find_routed(&self, to: IpAddr) -> Option<usize> {
        let number = match to {
            IpAddr::V4(to) => {
                let to = to.to_bits();
                let covers = |known: &Entry| to & known.v4.1 == known.v4.0;
                self.list.iter().position(covers)?
            }
            to => self.list.iter().position(|known| known.route.covers(to))?,
        };
        self.list[number].route.via.map(|_| number)
    }

    /// All, in the order of the search.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.list.iter().map(|known| &known.route)
    }
}

/// Bits of an address of the family.
fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The network's bits, in 128.
fn mask((address, len): (IpAddr, u8)) -> (bool, u128) {
    let host_bits = u32::from(width(address) - len.min(width(address)));
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    let family = match address {
        // The prefix of a mapped address stays.
        IpAddr::V4(_) => u128::MAX << 32,
        IpAddr::V6(_) => 0,
    };
    (address.is_ipv4(), bits(address) & (mask | family))
}

/// Whether a network has an address.
pub(super) fn covers(network: (IpAddr, u8), address: IpAddr) -> bool {
    mask(network) == mask((address, network.1)) && network.0.is_ipv4() == address.is_ipv4()
}

/// Of our addresses, with their prefix lengths, the source for packets to `to` by the next hop
/// `next` (RFC 6724 5): rules 1 (the same address), 2 (scope), 6 (label) and 8 (longest common
/// prefix, within the address's own). Rules 3, 4 and 7 are about kinds of addresses that this host
/// does not have, and 5 is that the caller offers those of the output interface. IPv4 addresses
/// are compared with the next hop, as RFC 1122 3.3.4.3 (b) has it: one in its network is best.
pub(super) fn choose_source(
    ours: impl Iterator<Item = (IpAddr, u8)>,
    to: IpAddr,
    next: IpAddr,
) -> Option<IpAddr> {
    let ours = ours.filter(|(address, _)| address.is_ipv4() == to.is_ipv4());
    let mut best: Option<(Rank, IpAddr)> = None;
    for (address, len) in ours {
        let rank = Rank::of(address, len, to, next);
        // Of equal ones the first counts.
        if best.as_ref().is_none_or(|(known, _)| rank > *known) {
            best = Some((rank, address));
        }
    }
    best.map(|(_, address)| address)
}

/// How well an address suits: the greater the better, by its fields in order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_same: bool,
    /// Whether its scope reaches the destination; then the smaller scope, else the larger.
    reaches: bool,
    scope: i16,
    has_label: bool,
    common_bits: u32,
}

impl Rank {
    fn of(address: IpAddr, len: u8, to: IpAddr, next: IpAddr) -> Self {
        let reaches = scope(address) >= scope(to);
        let toward = if to.is_ipv4() { next } else { to };
        let differ = bits(address) ^ bits(toward);
        let offset = if to.is_ipv4() { 96 } else { 0 };
        Self {
            is_same: address == to,
            reaches,
            scope: if reaches {
                -scope(address)
            } else {
                scope(address)
            },
            has_label: label(address) == label(to),
            common_bits: (differ.leading_zeros().saturating_sub(offset)).min(len.into()),
        }
    }
}

/// RFC 6724 3.1 and 3.2: the scope, as multicast addresses number it.
fn scope(address: IpAddr) -> i16 {
    const LINK: i16 = 2;
    const SITE: i16 = 5;
    const GLOBAL: i16 = 14;
    match address {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_link_local() => LINK,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(v6) if v6.is_multicast() => i16::from(v6.octets()[1] & 0x0f),
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_loopback() => LINK,
        // RFC 4291 2.5.7: deprecated, but RFC 6724 3.1 still gives it a scope.
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0 => SITE,
        IpAddr::V6(_) => GLOBAL,
    }
}

/// RFC 6724 2.1: the label in the default policy table.
fn label(address: IpAddr) -> u8 {
    let IpAddr::V6(v6) = address else {
        return 4;
    };
    let (bits, first) = (v6.to_bits(), v6.segments()[0]);
    match first {
        _ if v6 == Ipv6Addr::LOCALHOST => 0,
        0 if bits >> 32 == 0xffff => 4,
        0 if bits >> 32 == 0 => 3,
        0x2002 => 2,
        0x2001 if v6.segments()[1] == 0 => 5,
        0x3ffe => 12,
        _ if first & 0xfe00 == 0xfc00 => 13,
        _ if first & 0xffc0 == 0xfec0 => 11,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn chosen(ours: &[(&str, u8)], to: &str, next: &str) -> Option<String> {
        let ours = ours.iter().map(|(text, len)| (at(text), *len));
        choose_source(ours, at(to), at(next)).map(|address| address.to_string())
    }

    #[test]
    fn rfc_1122_3_3_1_the_longest_prefix_leads() {
        let mut routes = Routes::default();
        let (lan, wan) = (InterfaceId(0), InterfaceId(1));
        routes.attach((at("192.0.2.1"), 24), lan);
        routes.add(Route::by((at("0.0.0.0"), 0), at("192.0.2.254"), lan));
        routes.add(Route::by((at("10.0.0.0"), 8), at("192.0.2.253"), lan));
        routes.add(Route::by((at("10.1.0.0"), 16), at("198.51.100.1"), wan));
        routes.add(Route::by((at("::"), 0), at("fe80::1"), wan));
        let via = |routes: &Routes, to: &str, on| routes.find(at(to), on).map(|route| route.via);
        assert_eq!(via(&routes, "192.0.2.77", None), Some(None));
        assert_eq!(
            via(&routes, "10.1.2.3", None),
            Some(Some(at("198.51.100.1")))
        );
        assert_eq!(
            via(&routes, "10.1.2.3", Some(lan)),
            Some(Some(at("192.0.2.253")))
        );
        assert_eq!(
            via(&routes, "10.2.2.3", None),
            Some(Some(at("192.0.2.253")))
        );
        assert_eq!(
            via(&routes, "203.0.113.1", None),
            Some(Some(at("192.0.2.254")))
        );
        assert_eq!(via(&routes, "2001:db8::1", None), Some(Some(at("fe80::1"))));
        assert_eq!(via(&routes, "2001:db8::1", Some(lan)), None);
        assert_eq!(routes.added(), 4);
        // The same again replaces it.
        routes.add(Route {
            mtu: Some(1400),
            ..Route::by((at("10.99.0.0"), 8), at("192.0.2.253"), lan)
        });
        assert_eq!(
            (
                routes.added(),
                routes.find(at("10.2.2.3"), None).unwrap().mtu
            ),
            (4, Some(1400))
        );
        assert!(routes.remove(&Route::by((at("10.1.0.0"), 16), at("198.51.100.1"), wan)));
        assert!(!routes.remove(&Route::by((at("10.1.0.0"), 16), at("198.51.100.1"), wan)));
        assert_eq!(
            via(&routes, "10.1.2.3", None),
            Some(Some(at("192.0.2.253")))
        );
        routes.detach(lan);
        assert_eq!(
            (routes.added(), via(&routes, "192.0.2.77", None)),
            (1, None)
        );
    }

    #[test]
    fn rfc_6724_5_the_source_is_of_the_smallest_scope_that_reaches() {
        let ours = [("fe80::5", 64), ("2001:db8:1::5", 64), ("fd00::5", 64)];
        let to = |to: &str| chosen(&ours, to, to).unwrap();
        // Rule 2.
        assert_eq!(to("fe80::9"), "fe80::5");
        assert_eq!(to("ff02::1"), "fe80::5");
        // Rule 6: unique local to unique local.
        assert_eq!(to("fd77::1"), "fd00::5");
        assert_eq!(to("2001:db8:9::1"), "2001:db8:1::5");
        // Rule 1.
        assert_eq!(to("fd00::5"), "fd00::5");
    }

    #[test]
    fn rfc_6724_5_rule_8_and_its_bound() {
        let ours = [("2001:db8:1::5", 48), ("2001:db8:2::5", 48)];
        assert_eq!(
            chosen(&ours, "2001:db8:2:9::1", "fe80::1").unwrap(),
            "2001:db8:2::5"
        );
        // Beyond the prefix bits do not count, and the first is taken.
        let ours = [("2001:db8:1::5", 32), ("2001:db8:2::5", 32)];
        assert_eq!(
            chosen(&ours, "2001:db8:2:9::1", "fe80::1").unwrap(),
            "2001:db8:1::5"
        );
    }

    #[test]
    fn rfc_1122_3_3_4_3_an_ipv4_source_is_in_the_network_of_the_next_hop() {
        let ours = [("169.254.3.3", 16), ("192.0.2.5", 24), ("198.51.100.5", 24)];
        assert_eq!(
            chosen(&ours, "203.0.113.9", "198.51.100.1").unwrap(),
            "198.51.100.5"
        );
        assert_eq!(
            chosen(&ours, "169.254.9.9", "169.254.9.9").unwrap(),
            "169.254.3.3"
        );
        assert_eq!(chosen(&ours, "2001:db8::1", "fe80::1"), None);
    }
}
