//! From a destination to a path: routes, sources, path MTUs.

use std::net::{IpAddr, Ipv4Addr};

use linerate_core::run::Egress;
use linerate_wire::MacAddr;

use super::path::{self, HopLink, Path};
use super::{Host, HostError, Interface, InterfaceId, PathMtu, Route, Unreachable};
use super::{address, routes};

/// A neighbour is confirmed to the table at most this often, in nanoseconds: it counts as reachable
/// for 15 seconds or more ([`neighbour::Timers::reachable_ns`](crate::neighbour::Timers)).
const CONFIRM_NS: u64 = 1_000_000_000;

impl Host {
    /// Whether packets to this address come to this host: one of ours that is used, or loopback.
    #[inline]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own.has(address) || address::is_loopback(address)
    }

    /// Adds a route, or replaces the one to the same network by the same interface and router.
    ///
    /// # Errors
    /// Its addresses do not fit each other, there is no such interface, or there are too many.
    pub fn add_route(&mut self, route: Route) -> Result<(), HostError> {
        if self.at(route.interface).is_none() {
            let number = route.interface.number();
            return Err(HostError::NoInterface { number });
        }
        if !route.is_sound() {
            let (destination, len) = route.destination;
            return Err(HostError::Route { destination, len });
        }
        let is_new = !self.routes.iter().any(|known| known.is_same(&route));
        if is_new && self.routes.added() >= self.max_routes {
            let most = self.max_routes;
            return Err(HostError::TooManyRoutes { most });
        }
        self.routes.add(route);
        self.hops.renew();
        Ok(())
    }

    /// Removes a route to a network by an interface and router; false if there is none.
    pub fn remove_route(&mut self, route: &Route) -> bool {
        let is_gone = self.routes.remove(route);
        if is_gone {
            self.hops.renew();
        }
        is_gone
    }

    /// All routes in the order of lookup, those of the interfaces' networks included.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// The path to a destination, and the source address: `src` where it is given, else that of the
    /// route, or of RFC 6724 5. It asks no neighbour yet.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn path(
        &mut self,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<(Path, IpAddr), Unreachable> {
        self.path_on(None, src, dst)
    }

    /// The path back to the single host that a packet came from, for an answer from the address
    /// that it was sent to. Those behind one router share the path that was found last.
    #[inline]
    pub(crate) fn path_back(&mut self, ours: IpAddr, peer: IpAddr) -> Option<Path> {
        self.path_to_host(Some(ours), peer)
    }

    /// The path to a single host of a packet that passes through, whose source is another's. Those
    /// behind one router share the path that was found last. `None`: there is none, or the address
    /// is of several hosts; not even a broadcast to a network of ours passes (RFC 2644).
    #[inline]
    pub fn path_through(&mut self, to: IpAddr) -> Option<Path> {
        if self.is_group(to) {
            return None;
        }
        match self.is_own(to) {
            true => Some(self.hops.loopback()),
            false => self.path_to_host(None, to),
        }
    }

    /// The same, where it leads by a router and costs no search but that for the route.
    #[inline]
    pub fn path_by_router(&mut self, to: Ipv4Addr) -> Option<Path> {
        if self.own.find4(to.to_bits()).is_some() || to.is_loopback() || to.octets()[0] >= 224 {
            return None;
        }
        let number = self.routes.find_routed(to.into())?;
        let (known, path) = self.last_routed;
        (known == number && self.hops.get(path).is_some()).then_some(path)
    }

    #[inline]
    fn path_to_host(&mut self, ours: Option<IpAddr>, peer: IpAddr) -> Option<Path> {
        // What comes back to this host takes no router.
        let routed = match address::is_link_scoped(peer) || self.is_own(peer) {
            true => None,
            false => self.routes.find_routed(peer),
        };
        let Some(number) = routed else {
            return self.path(ours, peer).ok().map(|(path, _)| path);
        };
        let (known, path) = self.last_routed;
        if known == number && self.hops.get(path).is_some() {
            return Some(path);
        }
        let (path, _) = self.path(ours, peer).ok()?;
        self.last_routed = (number, path);
        Some(path)
    }

    /// The same, by a given interface: link-local destinations need one, unless there is only one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn path_on(
        &mut self,
        on: Option<InterfaceId>,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<(Path, IpAddr), Unreachable> {
        if src.is_some_and(|src| src.is_ipv4() != dst.is_ipv4()) {
            return Err(Unreachable::Family);
        }
        if src.is_some_and(|src| !self.is_own(src)) {
            return Err(Unreachable::NotOurs);
        }
        if dst.is_unspecified() {
            return Err(Unreachable::NoRoute);
        }
        if self.is_own(dst) {
            return Ok((self.hops.loopback(), src.unwrap_or(dst)));
        }
        // RFC 1122 3.2.1.3 (g): never outside of the host.
        if src.is_some_and(address::is_loopback) {
            return Err(Unreachable::NoRoute);
        }
        let on = match on {
            None if address::is_link_scoped(dst) => Some(self.scope_of(src, dst)?),
            on => on,
        };
        let route = match on {
            // On link by definition (RFC 4861 5.2).
            Some(on) if address::is_link_scoped(dst) => Route {
                destination: (dst, 0),
                via: None,
                interface: on,
                source: None,
                mtu: None,
            },
            on => *self.routes.find(dst, on).ok_or(Unreachable::NoRoute)?,
        };
        let interface = self.at(route.interface).ok_or(Unreachable::NoRoute)?;
        let next = route.via.unwrap_or(dst);
        let preferred = route.source.filter(|source| self.own.has(*source));
        let own = interface.usable.iter().copied();
        let source = src
            .or(preferred)
            .or_else(|| routes::choose_source(own, dst, next))
            .or_else(|| self.any_source(dst, next))
            .ok_or(Unreachable::NoSource)?;
        let config = &interface.config;
        let mtu = route.mtu.unwrap_or(config.mtu).min(config.mtu);
        let mac = address::group_mac(dst)
            .or_else(|| self.is_broadcast(next).then_some(MacAddr::BROADCAST));
        // A group or broadcast address is no neighbour's: the router is not asked.
        let next = if mac.is_some() { dst } else { next };
        let link = HopLink {
            interface: route.interface,
            port: config.port,
            mac: config.mac,
            tx_offloads: config.tx_offloads,
        };
        Ok((self.hops.path(&link, next, mac, mtu), source))
    }

    /// How long packets to `dst` may be, by the link and by what routers have reported.
    #[inline]
    pub fn mtu(&self, path: Path, dst: IpAddr, now_ns: u64) -> PathMtu {
        self.mtus.get(dst, path.link_mtu(), now_ns)
    }

    /// A router reports that it takes no more than `mtu` bytes on the way to `dst`. The caller has
    /// checked that the quoted packet is one of its own (RFC 5927 7). Returns what counts from now
    /// on, if that is less than before.
    pub fn note_too_big(&mut self, dst: IpAddr, mtu: u16, now_ns: u64) -> Option<PathMtu> {
        if self.is_own(dst) {
            return None;
        }
        let noted = self.mtus.note(dst, mtu, u16::MAX, now_ns);
        self.stats.mtus_noted += u64::from(noted.is_some());
        noted
    }

    /// An upper layer has got something that proves that packets along this path arrive, such as a
    /// new acknowledgement (RFC 4861 7.3.1): its neighbour is not probed for a while. Costs a few
    /// instructions, but for once a second.
    #[inline]
    pub fn confirm(&mut self, path: Path, now_ns: u64, out: &mut Egress) {
        if let Some(hop) = self.hops.get_mut(path)
            && hop.link == path::Link::Known
            && now_ns >= hop.confirmed_ns
        {
            hop.confirmed_ns = now_ns.saturating_add(CONFIRM_NS);
            let (interface, address) = (hop.interface.0, hop.address);
            self.neighbours
                .confirm(interface, address, now_ns, &mut self.todo);
            self.due_ns = 0;
            self.settle(out);
        }
    }

    /// An upper layer gets no answers along this path (RFC 9293 3.8.3): its neighbour is asked now
    /// whether it is still there, and under which address (RFC 1122 2.3.2.1, RFC 4861 7.3.1).
    pub fn doubt(&mut self, path: Path, now_ns: u64, out: &mut Egress) {
        if let Some(hop) = self.hops.get(path)
            && hop.link == path::Link::Known
        {
            let (interface, address) = (hop.interface.0, hop.address);
            self.neighbours
                .suspect(interface, address, now_ns, &mut self.todo);
            self.due_ns = 0;
            self.settle(out);
        }
    }

    /// Whether the port that the path leads to takes frames with unfinished checksums, and ones to
    /// be cut ([`Offload::GSO`](linerate_core::packet::Offload::GSO)).
    #[inline]
    pub fn has_tx_offloads(&self, path: Path) -> bool {
        self.hops.get(path).is_some_and(|hop| hop.tx_offloads)
    }

    /// Whether a path need not be looked up anew.
    #[inline]
    pub fn is_current(&self, path: Path) -> bool {
        self.hops.get(path).is_some()
    }

    /// How many next hops paths lead by.
    pub fn next_hops(&self) -> usize {
        self.hops.len()
    }

    /// The interface that a link-local destination is on: that of a link-local source, or the only
    /// one that speaks its family.
    fn scope_of(&self, src: Option<IpAddr>, dst: IpAddr) -> Result<InterfaceId, Unreachable> {
        let speaks = |interface: &Interface| {
            (interface.usable.iter()).any(|own| match src {
                Some(src) => own.0 == src,
                None => own.0.is_ipv4() == dst.is_ipv4(),
            })
        };
        let all = (0..).zip(&self.interfaces);
        let mut those = all
            .filter(|(_, interface)| interface.as_ref().is_some_and(speaks))
            .map(|(number, _)| InterfaceId(number));
        match (those.next(), those.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Unreachable::NoSource),
            _ => Err(Unreachable::NoScope),
        }
    }

    /// A source of another interface, for one that has none of its own: but no link-local one.
    fn any_source(&self, dst: IpAddr, next: IpAddr) -> Option<IpAddr> {
        let all = self.interfaces.iter().flatten();
        let all = all.flat_map(|interface| interface.usable.iter().copied());
        let all = all.filter(|own| !address::is_link_scoped(own.0));
        routes::choose_source(all, dst, next).filter(|_| !address::is_link_scoped(dst))
    }

    /// Whether an address is of several hosts: multicast, or a broadcast of a network of ours.
    pub(crate) fn is_group(&self, address: IpAddr) -> bool {
        address::group_mac(address).is_some() || self.is_broadcast(address)
    }

    pub(super) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else {
            return false;
        };
        self.own.find4(v4.to_bits()) == Some(address::Whose::Broadcast)
    }
}
