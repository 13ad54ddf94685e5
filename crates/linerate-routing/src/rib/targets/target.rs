//! One target: what it is, whether packets can go there, and what depends on it.

use std::net::IpAddr;
use std::sync::Arc;

use super::Id;
use crate::model::{InterfaceId, Vrf};
use crate::plane::hops::{Action, Group};
use crate::rib::route::{NextHop, To, Unused};

/// The definition of a target, before resolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Def {
    Blackhole,
    Unreachable,
    Prohibit,
    Martian,
    Multicast,
    /// Into a tunnel, or with labels.
    Encapsulated,
    /// The kernel's to forward.
    Host,
    /// For the router itself; by the interface whose address it is.
    Local(Option<InterfaceId>),
    Broadcast(Option<InterfaceId>),
    /// A network that the interface is in.
    Connected(InterfaceId),
    /// A host on the interface's link.
    Neighbour(InterfaceId, IpAddr),
    NextHops(Arc<[NextHop]>),
    /// The next-hop object in [`Target::object`], which may change.
    Object(u32),
    /// Where that target leads, by a default route: reverse path filtering tells these apart.
    Default(Id),
}

impl Def {
    pub(crate) fn of(to: &To) -> Self {
        match to {
            To::Blackhole => Self::Blackhole,
            To::Unreachable => Self::Unreachable,
            To::Prohibit => Self::Prohibit,
            To::Encapsulated => Self::Encapsulated,
            To::Host => Self::Host,
            To::NextHops(next_hops) => Self::NextHops(next_hops.as_slice().into()),
            To::Object(_) => unreachable!("an object is a target already"),
        }
    }

    /// Its action, where the definition alone determines it.
    fn action(&self) -> Option<Action> {
        Some(match self {
            Self::Blackhole => Action::Blackhole,
            // Packets are refused rather than sent by a less specific route, which might bring them
            // back.
            Self::Unreachable | Self::Encapsulated => Action::Unreachable,
            Self::Prohibit => Action::Prohibit,
            Self::Host => Action::Host,
            Self::Martian => Action::Martian,
            Self::Multicast => Action::Multicast,
            Self::Local(_) => Action::Local,
            Self::Broadcast(_) => Action::Broadcast,
            Self::Connected(_)
            | Self::Neighbour(..)
            | Self::NextHops(_)
            | Self::Object(_)
            | Self::Default(_) => return None,
        })
    }

    /// The interface that it belongs to.
    pub(crate) fn interface(&self) -> Option<InterfaceId> {
        match *self {
            Self::Connected(id) | Self::Neighbour(id, _) => Some(id),
            Self::Local(id) | Self::Broadcast(id) => id,
            _ => None,
        }
    }
}

/// Whether packets can go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not resolved yet.
    Fresh,
    Usable,
    Unusable(Unused),
}

/// Where one next hop leads, as the routes and interfaces are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    /// To something on an interface.
    Direct(Def),
    /// Through another target, whose route to the gateway has so many bits.
    Through {
        id: Id,
        gateway: IpAddr,
        len: u8,
    },
    /// Wherever another target leads.
    As(Id),
    Nowhere(Unused),
}

#[derive(Debug)]
pub(crate) struct Target {
    pub def: Def,
    /// Where gateways are looked up.
    pub vrf: Vrf,
    /// Of [`Def::Object`]: where it leads; `None`: unknown.
    pub object: Option<To>,
    pub state: State,
    /// The hops that packets take, and their shares.
    pub members: Vec<(Id, u32)>,
    /// Gateways that are reached through other routes, and the length of those: a route that holds
    /// such a gateway and is as long or longer would lead to itself.
    pub guards: Vec<(IpAddr, u8)>,
    /// Targets that it goes through; a part of `links`.
    pub(super) through: Vec<Id>,
    /// All that it depends on. It is one of the `users` of each.
    pub(super) links: Vec<Id>,
    pub(super) users: Vec<Id>,
    /// Number and buckets of its group, once it has had several members.
    pub(super) group: Option<(u32, Box<Group>)>,
    /// Routes that lead here.
    pub(super) routes: u32,
    /// Number of references: routes, users, holders.
    pub(super) refs: u32,
    /// Prefixes in the tables of either family that lead here, and the publication that takes the
    /// last of them away.
    pub(super) installed: [u32; 2],
    pub(super) left: [u64; 2],
    pub(super) dirty: bool,
    pub(super) in_limbo: bool,
    /// Gateways whose routes are watched.
    pub watched: Vec<IpAddr>,
}

impl Target {
    /// Its next hops, if it is made of next hops.
    pub(crate) fn next_hops(&self) -> &[NextHop] {
        match (&self.def, &self.object) {
            (Def::NextHops(next_hops), _) => next_hops,
            (Def::Object(_), Some(To::NextHops(next_hops))) => next_hops,
            _ => &[],
        }
    }

    /// Its action without resolution.
    pub(super) fn action(&self) -> Option<Action> {
        match (&self.def, &self.object) {
            (Def::Object(_), Some(To::NextHops(_) | To::Object(_)) | None) => None,
            (Def::Object(_), Some(to)) => Def::of(to).action(),
            (def, _) => def.action(),
        }
    }
}
