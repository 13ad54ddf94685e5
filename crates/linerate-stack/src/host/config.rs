//! How a host and its interfaces are set up, and what can be wrong with it.

use std::net::IpAddr;

use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_tables::TableError;
use linerate_wire::MacAddr;

use crate::{icmp, neighbour, reassembly};

/// Bounds and choices of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Neighbours, and with [`max_entries`](neighbour::Config::max_entries) the next hops too.
    pub neighbours: neighbour::Config,
    /// Datagrams that come in fragments.
    pub reassembly: reassembly::Config,
    /// Rate of ICMP errors (RFC 1812 4.3.2.8, RFC 4443 2.4(f)).
    pub errors: icmp::Limits,
    /// Destinations whose path MTU is remembered, 32 bytes each.
    pub path_mtus: usize,
    /// How long a reported path MTU counts, in nanoseconds: ten minutes (RFC 1191 6.3, RFC 8201 4).
    pub path_mtu_ns: u64,
    /// Packets to our own addresses that may wait for the next
    /// [`receive`](super::Host::receive).
    pub loopback_pkts: usize,
    /// Limit of routes, those of the interfaces' networks not counted.
    pub max_routes: usize,
    /// What kernels of checksums and parsing may use.
    pub isa: Isa,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            neighbours: neighbour::Config {
                max_entries: 16_384,
                // What waits is the host's own, as a rule the SYNs of connections that begin
                // together: of one that is dropped, the next comes a second later. As many bytes
                // as with Linux (unres_qlen_bytes), and half of all packets.
                queue_pkts: 512,
                queue_bytes: 212_992,
                ..neighbour::Config::default()
            },
            reassembly: reassembly::Config::default(),
            errors: icmp::Limits::default(),
            path_mtus: 4096,
            path_mtu_ns: 600_000_000_000,
            loopback_pkts: 256,
            max_routes: 1024,
            isa: Isa::detect(),
        }
    }
}

/// Names an interface of one host, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub(super) u16);

impl InterfaceId {
    /// The host itself: where packets to our own addresses come back.
    pub const LOOPBACK: Self = Self(u16::MAX);

    /// Its number, from 0 on in the order of [`add_interface`](super::Host::add_interface).
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// One interface: a port with addresses.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Number of the port, that of the [`Egress`](linerate_core::run::Egress) and that in the
    /// metadata of received packets.
    pub port: u16,
    /// Our MAC address there.
    pub mac: MacAddr,
    /// Our addresses, each with the prefix length of its network. With IPv6 addresses but no
    /// link-local one, the one formed from the MAC address is added (RFC 4291 2.8, RFC 4862 5.3).
    pub addresses: Vec<(IpAddr, u8)>,
    /// Longest IP packet that the link takes, in bytes: 68 or more (RFC 791 3.2), with IPv6 1280
    /// or more (RFC 8200 5).
    pub mtu: u16,
    /// Whether the port takes unfinished checksums and frames to be cut
    /// ([`PortInfo::tx_offloads`](linerate_core::port::PortInfo::tx_offloads)).
    pub tx_offloads: bool,
    /// Whether an IPv4 address is used only after it was probed for (RFC 5227 2.1).
    pub detect4: bool,
    /// Whether an IPv6 address is used only after duplicate address detection (RFC 4862 5.4).
    pub detect6: bool,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self {
            port: 0,
            mac: MacAddr::default(),
            addresses: Vec::new(),
            mtu: 1500,
            tx_offloads: false,
            detect4: false,
            detect6: false,
        }
    }
}

/// Why a host, an interface or a route was not set up. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No memory for the tables of packets.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// A table's limit is not possible, or there is no memory for it.
    #[error(transparent)]
    Table(#[from] TableError),
    /// More interfaces than numbers.
    #[error("a host has at most {most} interfaces")]
    TooManyInterfaces {
        /// The limit.
        most: usize,
    },
    /// Frames of a port go to one interface.
    #[error("port {port} has an interface already: remove it first")]
    PortTaken {
        /// Its number.
        port: u16,
    },
    /// An MTU that IP does not allow.
    #[error("an MTU of {mtu} bytes is below the {least} that RFC 791 and RFC 8200 want")]
    Mtu {
        /// As given.
        mtu: u16,
        /// The least for the address families of the interface.
        least: u16,
    },
    /// An address that no interface can have, or a prefix longer than an address.
    #[error("{address}/{len} is no address of a single host in a network")]
    Address {
        /// As given.
        address: IpAddr,
        /// As given.
        len: u8,
    },
    /// There is no such interface, or no more.
    #[error("there is no interface {number}")]
    NoInterface {
        /// Its number.
        number: u16,
    },
    /// Destination, next hop and source of a route are not of one family, or its next hop cannot
    /// be a neighbour.
    #[error("the next hop or source of a route does not suit its destination {destination}/{len}")]
    Route {
        /// Of the route.
        destination: IpAddr,
        /// Of the route.
        len: u8,
    },
    /// As many routes as the host may have.
    #[error("a host has at most {most} routes: raise `max_routes`")]
    TooManyRoutes {
        /// The limit.
        most: usize,
    },
}

/// Why a destination cannot be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// No route leads there.
    #[error("no route to the destination")]
    NoRoute,
    /// The output interface has no address of the family that is used (yet).
    #[error("no address of ours to send from")]
    NoSource,
    /// The source is not an address of ours.
    #[error("the source is not an address of this host")]
    NotOurs,
    /// A link-local destination, and several interfaces (RFC 4007 6).
    #[error("a link-local destination needs an interface")]
    NoScope,
    /// A group or broadcast address, for what goes to one host only (RFC 9293 MUST-46).
    #[error("the destination is not a single host")]
    Group,
    /// Source and destination are of different families.
    #[error("source and destination are of different address families")]
    Family,
}
