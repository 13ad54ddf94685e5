//! Decodes what a message says about routes, without acting on it.

use std::net::IpAddr;

use linerate_wire::rtnetlink::{self, Body, RouteKind};

use crate::model::Prefix;

/// One statement of a message about routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A route was added or changed.
    Route {
        /// The kernel's routing table.
        table: u32,
        /// Its destination.
        prefix: Prefix,
        /// The kernel's metric: the lower one is preferred.
        metric: u32,
        /// Where it leads.
        to: Told,
        /// Protocol that made the route (`rtm_protocol`).
        protocol: u8,
    },
    /// A route was removed.
    NoRoute {
        /// The kernel's routing table.
        table: u32,
        /// Its destination.
        prefix: Prefix,
        /// The kernel's metric.
        metric: u32,
    },
    /// A next-hop object was added or changed.
    Object {
        /// The speaker's number of it.
        id: u32,
        /// Where it leads.
        to: Told,
    },
    /// A next-hop object was removed.
    NoObject {
        /// The speaker's number of it.
        id: u32,
    },
}

/// How many next hops of a route, or members of a group, are read. FRR has 514 at most, and a hop
/// of ours 64.
const MAX_NEXT_HOPS: usize = 1024;

/// Where a route or an object leads, by the speaker's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Packets are dropped without an answer.
    Blackhole,
    /// Packets are answered with ICMP unreachable.
    Unreachable,
    /// Packets are answered with ICMP administratively prohibited.
    Prohibit,
    /// One next hop, the usual case.
    NextHop(ToldNextHop),
    /// Several next hops, with their weights.
    NextHops(Vec<ToldNextHop>),
    /// The next-hop object of this number.
    Object(u32),
    /// Objects and their shares.
    Group(Vec<(u32, u16)>),
    /// The connected network of a kernel interface, which the kernel adds itself.
    Network(u32),
    /// A route that the kernel adds itself: a network of its own, an address, a kind that only the
    /// kernel has.
    Kernel,
}

impl Told {
    /// The next hops that the message itself has.
    pub(super) fn next_hops(&self) -> &[ToldNextHop] {
        match self {
            Self::NextHop(next_hop) => std::slice::from_ref(next_hop),
            Self::NextHops(next_hops) => next_hops,
            _ => &[],
        }
    }
}

/// A gateway, and the number of a kernel interface (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldNextHop {
    /// Address of the next router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The kernel's interface number; 0: none.
    pub index: u32,
    /// Share among several next hops, from 1.
    pub weight: u16,
    /// Whether packets need labels or a tunnel.
    pub encapsulated: bool,
}

impl From<rtnetlink::Via> for ToldNextHop {
    fn from(via: rtnetlink::Via) -> Self {
        Self {
            gateway: via.gateway,
            index: via.interface,
            weight: via.weight,
            encapsulated: via.encapsulated,
        }
    }
}

impl Said {
    /// What a message says about routes; `None` for what we do not forward by: MPLS, routes by
    /// source or type of service, next hops of bridges.
    pub fn of(body: &Body<'_>) -> Option<Self> {
        match body {
            Body::NewRoute(route) => {
                let (table, prefix, metric) = place(route)?;
                Some(Self::Route {
                    table,
                    prefix,
                    metric,
                    to: told(route),
                    protocol: route.protocol,
                })
            }
            Body::DelRoute(route) => {
                let (table, prefix, metric) = place(route)?;
                Some(Self::NoRoute {
                    table,
                    prefix,
                    metric,
                })
            }
            Body::NewNexthop(nexthop) if !nexthop.fdb => {
                let to = match nexthop.blackhole {
                    true => Told::Blackhole,
                    false if nexthop.is_group() => {
                        Told::Group(nexthop.members().take(MAX_NEXT_HOPS).collect())
                    }
                    false => Told::NextHop(nexthop.via.into()),
                };
                Some(Self::Object { id: nexthop.id, to })
            }
            Body::DelNexthop(nexthop) => Some(Self::NoObject { id: nexthop.id }),
            _ => None,
        }
    }
}

fn place(route: &rtnetlink::Route<'_>) -> Option<(u32, Prefix, u32)> {
    let plain = route.source_len == 0 && route.tos == 0 && !route.cloned;
    let prefix = Prefix::of(route.destination, route.len).filter(|_| plain)?;
    Some((route.table, prefix, route.metric))
}

/// The interface of a connected route that the kernel added for an address.
fn network(route: &rtnetlink::Route<'_>) -> Option<u32> {
    let is_link_local = match route.destination {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    };
    let is_one = route.kind == RouteKind::Unicast && !is_link_local;
    let mut next_hops = route.vias().take(2).filter(|_| is_one);
    match (next_hops.next(), next_hops.next()) {
        (Some(only), None) if only.gateway.is_none() => Some(only.interface),
        _ => None,
    }
}

fn told(route: &rtnetlink::Route<'_>) -> Told {
    if route.protocol == rtnetlink::PROTOCOL_KERNEL
        && let Some(index) = network(route)
    {
        return Told::Network(index);
    }
    match route.kind {
        _ if route.protocol == rtnetlink::PROTOCOL_KERNEL => Told::Kernel,
        RouteKind::Blackhole => Told::Blackhole,
        RouteKind::Unreachable => Told::Unreachable,
        RouteKind::Prohibit => Told::Prohibit,
        RouteKind::Other(_) => Told::Kernel,
        RouteKind::Unicast => {
            if let Some(id) = route.nexthop {
                return Told::Object(id);
            }
            let mut next_hops = route.vias().take(MAX_NEXT_HOPS).map(ToldNextHop::from);
            match (next_hops.next(), next_hops.next()) {
                (None, _) => Told::NextHops(Vec::new()),
                (Some(one), None) => Told::NextHop(one),
                (Some(one), Some(two)) => {
                    let mut all = vec![one, two];
                    all.extend(next_hops);
                    Told::NextHops(all)
                }
            }
        }
    }
}
