//! Routes as sources give them.

use std::net::IpAddr;

use linerate_wire::rtnetlink;

use crate::model::InterfaceId;

/// Where a route comes from. Of two routes with the same distance the earlier source in this list
/// is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Source {
    /// Prefixes that are no destinations: loopback, class E, multicast.
    Reserved,
    /// Addresses and broadcast addresses of an interface.
    Own,
    /// Networks of an interface.
    Connected,
    /// The configuration.
    Static,
    /// FRR.
    Fpm,
    /// The kernel's routing tables.
    Kernel,
    /// A neighbour whose MAC address is known.
    Neighbour,
}

impl Source {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Own => "own",
            Self::Connected => "connected",
            Self::Static => "static",
            Self::Fpm => "fpm",
            Self::Kernel => "kernel",
            Self::Neighbour => "neighbour",
        }
    }

    /// Administrative distance of its routes unless they have their own. FRR puts its routes into
    /// the kernel too: of both the one from FRR is used ([`Key::is_copy`]).
    pub fn distance(self) -> u8 {
        match self {
            Self::Reserved | Self::Own | Self::Connected => 0,
            Self::Static => 1,
            Self::Fpm => 20,
            Self::Kernel => 30,
            Self::Neighbour => 254,
        }
    }

    /// Whether its routes count against the limit, as those from outside do.
    pub(super) fn is_fed(self) -> bool {
        matches!(self, Self::Static | Self::Fpm | Self::Kernel)
    }
}

/// What distinguishes routes with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where the route comes from.
    pub source: Source,
    /// The route with the lowest distance is used.
    pub distance: u8,
    /// Of several of the same source and distance the one with the lowest metric is used.
    pub metric: u32,
    /// Protocol that made it, by the kernel's number (`rtm_protocol`); 0: the source itself.
    pub protocol: u8,
}

impl Key {
    /// With the source's own distance.
    pub fn of(source: Source, metric: u32) -> Self {
        Self {
            source,
            distance: source.distance(),
            metric,
            protocol: 0,
        }
    }

    /// Whether a route of the kernel is a copy that FRR has put there; while FRR is connected it
    /// sends the route itself.
    pub fn is_copy(self) -> bool {
        self.source == Source::Kernel && rtnetlink::by_zebra(self.protocol)
    }

    /// Whether a route with this key replaces one with the other. FRR has one route per prefix,
    /// regardless of metric; the kernel has one per metric, regardless of protocol.
    pub(super) fn replaces(self, other: Self) -> bool {
        let same = match self.source {
            Source::Fpm => true,
            _ => (self.distance, self.metric) == (other.distance, other.metric),
        };
        self.source == other.source && same
    }
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Packets are dropped without an answer.
    Blackhole,
    /// Packets are answered with ICMP unreachable.
    Unreachable,
    /// Packets are answered with ICMP administratively prohibited.
    Prohibit,
    /// Into a tunnel, or with labels, which are not supported: packets are refused.
    Encapsulated,
    /// To the kernel, which forwards by a virtual device.
    Host,
    /// By all of these next hops, in shares.
    NextHops(Vec<NextHop>),
    /// Where the object of that number leads ([`Rib::object`](super::Rib::object)).
    Object(ObjectId),
}

/// One next hop: a gateway, an interface, or both. With both the gateway is on that link whatever
/// the connected networks are; alone, it is looked up in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// Address of the next router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Output interface; `None`: that of the route to the gateway.
    pub interface: Option<InterfaceId>,
    /// Share among several, from 1.
    pub weight: u16,
}

/// A next-hop object: routes that lead to it follow it when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(pub(super) u32);

/// Why a route is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// Nothing leads to the gateway.
    NoRoute,
    /// The interface is down, or gone.
    Down,
    /// The gateway is this router itself, or not a unicast address.
    NoGateway,
    /// The next-hop object is unknown.
    NoObject,
    /// The gateway is in the route's own prefix, and no longer prefix leads there.
    Circle,
    /// The prefix is reserved.
    Martian,
    /// The neighbour is not in a connected network of its interface, or a better route leads there.
    OffLink,
    /// The forwarding table has no room for it.
    NoRoom,
}

impl Unused {
    /// The reason in a few words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoRoute => "gateway unreachable",
            Self::Down => "interface down",
            Self::NoGateway => "gateway is no router",
            Self::NoObject => "unknown next-hop object",
            Self::Circle => "gateway within the route",
            Self::Martian => "martian",
            Self::OffLink => "neighbour off link",
            Self::NoRoom => "table full",
        }
    }
}
