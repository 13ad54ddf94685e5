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
//! | `fields` | what headers of a connection have in common |
//! | `plain` | single TCP segments with nothing unusual, in and out |
//! | `judge` | the checks of RFC 1122 3.2.1 and RFC 8200 on an odd one |
//! | `control` | ARP, ND, echo, fragments, ICMP errors received |
//! | `refuse` | ICMP errors sent |
//! | `interfaces` | addresses, and what the neighbour table says of them |
//! | `lookup`, `path`, `routes`, `mtu` | where packets go, from which address, how long they may be |
//! | `transmit` | headers, checksums, fragments, neighbours |
//! | `udp`, `ping` | sockets |
//!
//! # On several lcores
//!
//! Each lcore has a host with the same addresses, and shares nothing with the others. A port
//! delivers ARP, Neighbor Discovery and fragments to one queue or another, whoever asked: so who
//! distributes packets gives a copy of each ARP and ND message to every host, and fragments to one.
//! All hosts learn from the copies; one answers, and the others have
//! [`replies_per_s`](neighbour::Config::replies_per_s) 0.
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

use crate::icmp::Limiter;
use crate::neighbour::{self, Table};
use crate::reassembly::{Reassembler, Refusal};

mod address;
mod config;
mod control;
mod divert;
mod fields;
mod inbound;
mod interfaces;
mod judge;
mod lookup;
mod mtu;
mod options;
mod path;
pub mod ping;
mod plain;
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
pub use address::is_host;
pub use config::{HostConfig, HostError, InterfaceConfig, InterfaceId, Unreachable};
pub(crate) use fields::IpFields;
pub use fields::{DEFAULT_TTL, MAX_DSCP};
pub(crate) use inbound::ones;
pub use inbound::{Arrived, ErrorKind, IcmpError, Inbound, MAX_ERRORS};
use mtu::PathMtus;
pub use mtu::{LEAST_MTU4, LEAST_MTU6, PathMtu};
use path::Hops;
pub use path::Path;
pub(crate) use plain::{BELOW, key_of, may_be_of};
use reasons::Reasons;
pub use routes::Route;
use routes::Routes;
pub use transmit::{Checksum, Ends, Header, Unsent};

/// Interfaces of one host.
pub const MAX_INTERFACES: usize = 1024;
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
    /// Of `own`: another after each change.
    own_version: u32,
    routes: Routes,
    hops: Hops,
    /// A route with a router, by its number, and the path along it. It holds as long as the path
    /// does: any change of routes ends that.
    last_routed: (usize, Path),
    mtus: PathMtus,
    neighbours: Table,
    /// What [`turn`](Self::turn) said last; 0 where neighbours or fragments have come since.
    due_ns: u64,
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
    /// Segments that begin or end connections, where somebody else sends them.
    diverted: Option<Box<divert::Divert>>,
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
            own_version: 0,
            routes: Routes::default(),
            hops: Hops::new(config.neighbours.max_entries)?,
            last_routed: (0, Path::UNKNOWN),
            mtus: PathMtus::new(config.path_mtus, config.path_mtu_ns),
            neighbours: Table::new(config.neighbours.clone(), now_ns)?,
            due_ns: 0,
            todo: neighbour::Out::new(),
            reassembler: Reassembler::new(&config.reassembly)?,
            counted: Counted::default(),
            limiter: Limiter::new(config.errors, secret.hash_one(0)),
            parser: Parser::new(config.isa),
            checksums: Checksums::new(config.isa),
            looped: VecDeque::with_capacity(config.loopback_pkts),
            diverted: None,
            local_errors: Vec::with_capacity(MAX_ERRORS),
            idents: vec![0; IDENTS].into(),
            secret,
            turns: 0,
            reasons: Reasons::new(out),
            stats: Stats::default(),
            max_routes: config.max_routes,
        })
    }

    /// Handles timers: neighbours, incomplete datagrams. To be called when it said, and after
    /// packets that were sent to our own addresses: then [`receive`](Self::receive) has something
    /// to do, even with an empty burst, and this returns `now_ns`. Returns when it has to be called
    /// next; [`NEVER`] if only packets give it work.
    pub fn turn(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        if self.due_ns <= now_ns {
            self.due_ns = self.turn_now(now_ns, out);
        }
        match self.has_waiting() {
            true => now_ns,
            false => self.due_ns,
        }
    }

    /// As [`turn`](Self::turn), where something is due or has changed.
    #[cold]
    fn turn_now(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        let mut neighbours = self.neighbours.next_due_ns().unwrap_or(NEVER);
        if neighbours <= now_ns {
            self.neighbours.tick(now_ns, &mut self.todo);
            neighbours = self.neighbours.next_due_ns().unwrap_or(NEVER);
        }
        self.settle(out);
        let mut fragments = self.reassembler.next_expiry_ns().unwrap_or(NEVER);
        if fragments <= now_ns {
            self.expire_fragments(now_ns, out);
            fragments = self.reassembler.next_expiry_ns().unwrap_or(NEVER);
        }
        neighbours.min(fragments)
    }

    /// Whether [`turn`](Self::turn) has nothing to do at a time.
    #[inline]
    pub(crate) fn is_quiet(&self, now_ns: u64) -> bool {
        now_ns < self.due_ns && !self.has_waiting()
    }

    /// Whether [`receive`](Self::receive) has something to do without packets from outside.
    pub fn has_waiting(&self) -> bool {
        !self.looped.is_empty() || !self.local_errors.is_empty()
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Slots that are kept here: packets that wait for neighbours, incomplete datagrams, packets to
    /// our own addresses.
    pub fn held(&self) -> u64 {
        let fragments = self.reassembler.held().datagrams;
        let kept = self.looped.len() + self.diverted_pkts();
        (self.neighbours.queued().0 + fragments + kept) as u64
    }

    /// The packets that came in them: more, where fragments were joined.
    pub fn held_packets(&self) -> u64 {
        let fragments = self.reassembler.held().fragments;
        let kept = self.looped.len() + self.diverted_pkts();
        (self.neighbours.queued().0 + kept) as u64 + fragments
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
}
