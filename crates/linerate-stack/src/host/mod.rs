//! The IP host of one lcore: interfaces, addresses, routes, neighbours, ICMP, fragments
//! (RFC 1122 3, RFC 8504).
//!
//! A [`Host`] stands between ports and the protocols above IP. Those are its users: TCP,
//! [`Udp`](udp::Udp) and [`Ping`](ping::Ping). Received packets go through [`Host::receive`], which
//! answers ARP, Neighbor Discovery and pings, joins fragments, drops what is not for this host, and
//! leaves in the burst what is for its users, with facts about it in an [`Inbound`]. What they send
//! goes through [`Host::transmit`] along a [`Path`], which a connection keeps.
//!
//! ```text
//!            ┌──────────┬───────────┐                       ┌───────────────┐
//!            │ Udp      │ Ping, TCP │                       │ ICMP errors   │
//!            └────▲─────┴─────▲─────┘                       │ for sockets   │
//!                 │ Inbound   │              transmit(Path) └──────▲────────┘
//!   burst ─► parse, judge ────┴─► (kept) ...      │                │
//!              │   │  │  └─► quoted errors ───────┼────────────────┘
//!              │   │  └────► fragments ─► Reassembler ─► again
//!              │   └───────► ARP, ND ─► neighbour::Table ──► frames, waiting packets
//!              └───────────► echo, errors             └─► Egress
//! ```
//!
//! | file | what |
//! |---|---|
//! | `receive` | a burst, packet by packet: plain ones first, then the odd |
//! | `judge` | the checks of RFC 1122 3.2.1 and RFC 8200 on an odd one |
//! | `control` | ARP, ND, echo, fragments, ICMP errors received |
//! | `refuse` | ICMP errors sent |
//! | `path`, `routes`, `mtu` | where packets go, from which address, how long they may be |
//! | `transmit` | headers, checksums, fragments, neighbours |
//! | `udp`, `ping` | sockets |
//!
//! # What a host here does not do
//!
//! It does not forward (RFC 1122 3.3.5), follow redirects (they are ignored: any station of the
//! link can forge one), join groups but those it has to, learn routers or addresses from router
//! advertisements, speak IGMP or MLD, or use IPv4 options in what it sends.
//!
//! ```
//! use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
//! use linerate_core::run::Egress;
//! use linerate_stack::host::{Host, HostConfig, Inbound, InterfaceConfig, Route};
//! use linerate_wire::MacAddr;
//!
//! let pool = Pool::new(&PoolConfig::new("rx", 256))?;
//! let mut out = Egress::new(PoolCache::new(&[pool]));
//! let mut host = Host::new(&HostConfig::default(), 0, &mut out)?;
//! let lan = InterfaceConfig {
//!     port: 0,
//!     mac: MacAddr::local(1),
//!     addresses: vec![("192.0.2.1".parse()?, 24)],
//!     ..InterfaceConfig::default()
//! };
//! let lan = host.add_interface(lan, 0, &mut out)?;
//! host.add_route(Route::by(("0.0.0.0".parse()?, 0), "192.0.2.254".parse()?, lan))?;
//! let (path, source) = host.path(None, "203.0.113.9".parse()?)?;
//! assert_eq!((path.interface(), source.to_string().as_str()), (lan, "192.0.2.1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_core::run::{Egress, NEVER};
use linerate_tables::parse::{Checksums, Parser};
use linerate_wire::{MacAddr, ipv6, ndp};

use crate::icmp::Limiter;
use crate::neighbour::{self, Event, Table};
use crate::reassembly::{Reassembler, Refusal};

mod address;
mod config;
mod control;
mod inbound;
mod judge;
mod mtu;
mod options;
mod path;
pub mod ping;
mod queue;
mod reasons;
mod receive;
mod refuse;
mod routes;
#[cfg(test)]
mod tests;
mod transmit;
pub mod udp;

use address::OwnAddresses;
pub use config::{HostConfig, HostError, InterfaceConfig, InterfaceId, Unreachable};
pub(crate) use inbound::ones;
pub use inbound::{Arrived, ErrorKind, IcmpError, Inbound, MAX_ERRORS};
use mtu::PathMtus;
pub use mtu::{LEAST_MTU4, LEAST_MTU6, PathMtu};
pub use path::Path;
use path::{HopLink, Hops};
use reasons::Reasons;
pub use routes::Route;
use routes::Routes;
pub use transmit::{Checksum, Ends, Header, Unsent};

/// Interfaces of one host.
pub const MAX_INTERFACES: usize = 1024;
/// A neighbour is confirmed to the table at most this often, in nanoseconds: it counts as reachable
/// for 15 seconds or more ([`neighbour::Timers::reachable_ns`]).
const CONFIRM_NS: u64 = 1_000_000_000;
/// Buckets of IPv4 identifications and IPv6 fragment identifications.
const IDENTS: usize = 2048;

/// One interface.
struct Interface {
    config: InterfaceConfig,
    /// Addresses that are used: configured, and not (yet) a duplicate.
    usable: Vec<(IpAddr, u8)>,
}

/// Counts since the start, beside the drops that the [`Egress`] counts by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that came.
    pub received: u64,
    /// Of them, or of datagrams made of them, left for the users.
    pub delivered: u64,
    /// Packets that users have sent.
    pub sent: u64,
    /// Fragments that they were cut into.
    pub fragments_sent: u64,
    /// Datagrams that were put together.
    pub reassembled: u64,
    /// Pings answered.
    pub echo_replies: u64,
    /// ICMP errors sent.
    pub errors_sent: u64,
    /// ICMP errors reported to users.
    pub errors_reported: u64,
    /// ARP and ND messages received.
    pub neighbour_messages: u64,
    /// Times that another station claimed an address of ours.
    pub conflicts: u64,
    /// Reported path MTUs that counted.
    pub mtus_noted: u64,
}

/// The IP host of one lcore. It has one owner, its methods never block, and time is an argument, in
/// nanoseconds of any clock that does not go back.
pub struct Host {
    interfaces: Vec<Option<Interface>>,
    /// Interface by port.
    by_port: Vec<Option<InterfaceId>>,
    own: OwnAddresses,
    routes: Routes,
    hops: Hops,
    mtus: PathMtus,
    neighbours: Table,
    /// What the neighbour table has to say; empty between two calls.
    todo: neighbour::Out,
    reassembler: Reassembler,
    /// What the reassembler has dropped and joined, as far as it was counted.
    counted: Counted,
    limiter: Limiter,
    parser: Parser,
    checksums: Checksums,
    /// Packets to our own addresses.
    looped: VecDeque<Packet>,
    /// Errors that arose while sending, for the next call of `receive`.
    local_errors: Vec<IcmpError>,
    /// Counters of identifications, by a keyed hash of the addresses.
    idents: Box<[u32]>,
    secret: RandomState,
    /// How many unpredictable numbers were made.
    turns: u64,
    reasons: Reasons,
    stats: Stats,
    max_routes: usize,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    dropped: [u64; Refusal::ALL.len()],
    datagrams: u64,
    fragments: u64,
}

impl Host {
    /// A host without interfaces. Drop reasons are those of `out`, and every later call gets the
    /// same.
    ///
    /// # Errors
    /// No memory, or a limit that is not possible.
    pub fn new(config: &HostConfig, now_ns: u64, out: &mut Egress) -> Result<Self, HostError> {
        let secret = RandomState::new();
        Ok(Self {
            interfaces: Vec::new(),
            by_port: Vec::new(),
            own: OwnAddresses::default(),
            routes: Routes::default(),
            hops: Hops::new(config.neighbours.max_entries)?,
            mtus: PathMtus::new(config.path_mtus, config.path_mtu_ns),
            neighbours: Table::new(config.neighbours.clone(), now_ns)?,
            todo: neighbour::Out::new(),
            reassembler: Reassembler::new(&config.reassembly)?,
            counted: Counted::default(),
            limiter: Limiter::new(config.errors, secret.hash_one(0)),
            parser: Parser::new(config.isa),
            checksums: Checksums::new(config.isa),
            looped: VecDeque::with_capacity(config.loopback_pkts),
            local_errors: Vec::with_capacity(MAX_ERRORS),
            idents: vec![0; IDENTS].into(),
            secret,
            turns: 0,
            reasons: Reasons::new(out),
            stats: Stats::default(),
            max_routes: config.max_routes,
        })
    }

    /// Adds an interface. Its addresses are announced, or probed for and used later; routes lead to
    /// their networks from then on.
    ///
    /// # Errors
    /// Why it was not added: see [`HostError`].
    pub fn add_interface(
        &mut self,
        mut config: InterfaceConfig,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<InterfaceId, HostError> {
        let port = config.port;
        if self
            .by_port
            .get(usize::from(port))
            .copied()
            .flatten()
            .is_some()
        {
            return Err(HostError::PortTaken { port });
        }
        for &(address, len) in &config.addresses {
            let (is_host, width) = match address {
                IpAddr::V4(v4) => (address::is_host4(v4.to_bits()), 32),
                IpAddr::V6(v6) => (address::is_host6(v6), 128),
            };
            if !is_host || len > width {
                return Err(HostError::Address { address, len });
            }
        }
        let has6 = config
            .addresses
            .iter()
            .any(|(address, _)| address.is_ipv6());
        let least = if has6 { ipv6::MIN_MTU as u16 } else { 68 };
        if config.mtu < least {
            let mtu = config.mtu;
            return Err(HostError::Mtu { mtu, least });
        }
        let is_link_local =
            |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if has6
            && !config
                .addresses
                .iter()
                .any(|(address, _)| is_link_local(address))
        {
            config
                .addresses
                .push((ndp::link_local(config.mac).into(), 64));
        }
        let free = self.interfaces.iter().position(Option::is_none);
        let number = free.unwrap_or(self.interfaces.len());
        if number >= MAX_INTERFACES {
            return Err(HostError::TooManyInterfaces {
                most: MAX_INTERFACES,
            });
        }
        let id = InterfaceId(number as u16);
        let mut table = neighbour::InterfaceConfig {
            mac: config.mac,
            addresses: config.addresses.clone(),
            host: true,
            detect4: config.detect4,
            detect6: config.detect6,
            ..neighbour::InterfaceConfig::default()
        };
        table.addresses.dedup();
        for &network in &config.addresses {
            self.routes.attach(network, id);
        }
        let interface = Some(Interface {
            config,
            usable: Vec::new(),
        });
        match free {
            Some(free) => self.interfaces[free] = interface,
            None => self.interfaces.push(interface),
        }
        let ports = self.by_port.len().max(usize::from(port) + 1);
        self.by_port.resize(ports, None);
        self.by_port[usize::from(port)] = Some(id);
        self.neighbours
            .set_interface(id.0, table, now_ns, &mut self.todo);
        self.readdress();
        self.settle(out);
        Ok(id)
    }

    /// Removes an interface with its routes; packets that wait for its neighbours are dropped.
    /// False if there is none.
    pub fn remove_interface(&mut self, id: InterfaceId, out: &mut Egress) -> bool {
        let Some(slot) = self.interfaces.get_mut(usize::from(id.0)) else {
            return false;
        };
        let Some(interface) = slot.take() else {
            return false;
        };
        self.by_port[usize::from(interface.config.port)] = None;
        self.routes.detach(id);
        self.neighbours.remove_interface(id.0, &mut self.todo);
        self.readdress();
        self.settle(out);
        true
    }

    /// An interface as configured, its link-local address included.
    pub fn interface(&self, id: InterfaceId) -> Option<&InterfaceConfig> {
        self.at(id).map(|interface| &interface.config)
    }

    /// The interface of a port.
    pub fn interface_of(&self, port: u16) -> Option<InterfaceId> {
        self.by_port.get(usize::from(port)).copied().flatten()
    }

    /// Whether an address of ours on the interface is used: configured, and no duplicate.
    pub fn is_usable(&self, id: InterfaceId, address: IpAddr) -> bool {
        let interface = self.at(id);
        interface.is_some_and(|interface| interface.usable.iter().any(|own| own.0 == address))
    }

    /// Whether packets to this address come to this host: one of ours that is used, or loopback.
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
        if self.routes.added() >= self.max_routes {
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

    /// Handles timers: neighbours, incomplete datagrams. To be called when it said, and after
    /// packets that were sent to our own addresses: then [`receive`](Self::receive) has something
    /// to do, even with an empty burst, and this returns `now_ns`. Returns when it has to be called
    /// next; [`NEVER`] if only packets give it work.
    pub fn turn(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        let mut neighbours = self.neighbours.next_due_ns().unwrap_or(NEVER);
        if neighbours <= now_ns {
            self.neighbours.tick(now_ns, &mut self.todo);
            self.settle(out);
            neighbours = self.neighbours.next_due_ns().unwrap_or(NEVER);
        }
        if self
            .reassembler
            .next_expiry_ns()
            .is_some_and(|due| due <= now_ns)
        {
            self.expire_fragments(now_ns, out);
        }
        if self.has_waiting() {
            return now_ns;
        }
        neighbours.min(self.reassembler.next_expiry_ns().unwrap_or(NEVER))
    }

    /// Whether [`receive`](Self::receive) has something to do without packets from outside.
    pub fn has_waiting(&self) -> bool {
        !self.looped.is_empty() || !self.local_errors.is_empty()
    }

    /// The link of an interface came up: neighbours are doubted, our addresses announced anew.
    pub fn link_up(&mut self, id: InterfaceId, now_ns: u64, out: &mut Egress) {
        self.neighbours.link_up(id.0, now_ns, &mut self.todo);
        self.settle(out);
    }

    /// The link of an interface went down.
    pub fn link_down(&mut self, id: InterfaceId, now_ns: u64) {
        self.neighbours.link_down(id.0, now_ns);
    }

    /// Sets a neighbour that is never asked; false if there is no room.
    pub fn add_neighbour(
        &mut self,
        id: InterfaceId,
        address: IpAddr,
        mac: MacAddr,
        out: &mut Egress,
    ) -> bool {
        let is_added = self
            .neighbours
            .add_static(id.0, address, mac, &mut self.todo);
        self.settle(out);
        is_added
    }

    /// The neighbours, to be shown.
    pub fn neighbours(&self) -> impl Iterator<Item = neighbour::Neighbour> {
        self.neighbours.neighbours()
    }

    /// How many next hops paths lead by.
    pub fn next_hops(&self) -> usize {
        self.hops.len()
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Slots that are kept here: packets that wait for neighbours, incomplete datagrams, packets to
    /// our own addresses.
    pub fn held(&self) -> u64 {
        let fragments = self.reassembler.held().datagrams;
        (self.neighbours.queued().0 + fragments + self.looped.len()) as u64
    }

    /// The packets that came in them: more, where fragments were joined.
    pub fn held_packets(&self) -> u64 {
        let fragments = self.reassembler.held().fragments;
        (self.neighbours.queued().0 + self.looped.len()) as u64 + fragments
    }

    /// Drops all that is kept.
    pub fn shutdown(&mut self, out: &mut Egress) {
        self.neighbours.shutdown(&mut self.todo);
        self.settle(out);
        self.reassembler.clear(&mut out.cache);
        self.count_fragments(out);
        while let Some(packet) = self.looped.pop_front() {
            out.drop_one(self.reasons.loopback_full, packet);
        }
    }

    /// An unpredictable number (SipHash of a counter under a key of the system's random numbers).
    pub(crate) fn unpredictable(&mut self, what: u64) -> u64 {
        self.turns += 1;
        self.secret.hash_one((what, self.turns))
    }

    fn at(&self, id: InterfaceId) -> Option<&Interface> {
        self.interfaces.get(usize::from(id.0))?.as_ref()
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

    fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else {
            return false;
        };
        self.own.find4(v4.to_bits()) == Some(address::Whose::Broadcast)
    }

    /// Addresses, or which of them are used, have changed.
    fn readdress(&mut self) {
        for (number, slot) in (0..).zip(&mut self.interfaces) {
            if let Some(interface) = slot {
                let own = interface.config.addresses.iter().copied();
                let own = own.filter(|own| self.neighbours.is_usable(number, own.0));
                interface.usable = own.collect();
            }
        }
        let all = (0..).zip(&self.interfaces);
        let all = all.filter_map(|(number, slot)| Some((InterfaceId(number), slot.as_ref()?)));
        self.own = OwnAddresses::of(all.flat_map(|(id, interface)| {
            let own = interface.usable.iter();
            own.map(move |&(address, len)| (address, len, id))
        }));
        self.hops.renew();
    }

    /// Does what the neighbour table says: sends its frames and packets, notes addresses.
    fn settle(&mut self, out: &mut Egress) {
        if self.todo.is_empty() {
            return;
        }
        let mut todo = std::mem::take(&mut self.todo);
        let mut is_readdressed = false;
        for event in todo.events.drain(..) {
            match event {
                Event::Neighbour {
                    interface,
                    address,
                    mac,
                } => self.hops.learn(interface, address, mac),
                Event::Unique { .. } => is_readdressed = true,
                Event::Duplicate { .. } => {
                    is_readdressed = true;
                    self.stats.conflicts += 1;
                }
                Event::Conflict { .. } => self.stats.conflicts += 1,
            }
        }
        if is_readdressed {
            self.readdress();
        }
        for (number, frame) in todo.frames() {
            let Some(interface) = self.at(InterfaceId(number)) else {
                continue;
            };
            // Without a slot the question is lost, and asked again.
            if let Some(packet) = out.cache.copy_of(frame) {
                out.made(1);
                out.send_one(interface.config.port, packet);
            }
        }
        self.release(&mut todo, out);
        todo.clear();
        self.todo = todo;
    }
}
