//! Messages about routes: where they lead, by next hops of their own or by a next-hop object.

use core::net::IpAddr;

use super::attributes::{Attributes, Value, check_prefix, unspecified};
use super::{Flaw, Message, align, attribute, kind, u16_at, u32_at};

/// Of a next hop's flags (`RTNH_F_...`): its interface is down; its gateway needs no connected
/// network.
const DEAD: u8 = 1;
pub(super) const ONLINK: u8 = 4;
/// `RTM_F_CLONED`: what the kernel remembers of one destination, not a route.
const CLONED: u32 = 0x200;

/// What a route does with packets (`RTN_...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sends them on.
    Unicast,
    /// Drops them without a word.
    Blackhole,
    /// Drops them with ICMP unreachable.
    Unreachable,
    /// Drops them with ICMP administratively prohibited.
    Prohibit,
    /// Gives them to the kernel itself, or none of this: local, broadcast, multicast, throw.
    Other(u8),
}

impl RouteKind {
    fn of(code: u8) -> Self {
        match code {
            1 => Self::Unicast,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            other => Self::Other(other),
        }
    }
}

/// One next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The next router; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Number of the interface; 0: none.
    pub interface: u32,
    /// Share among several, from 1.
    pub weight: u16,
    /// The gateway is on the link though no network says so.
    pub onlink: bool,
    /// The kernel does not use it: its interface is down.
    pub dead: bool,
    /// Packets would have to be put into a tunnel or get labels.
    pub encapsulated: bool,
}

impl Via {
    const NONE: Self = Self {
        gateway: None,
        interface: 0,
        weight: 1,
        onlink: false,
        dead: false,
        encapsulated: false,
    };

    fn flags(&mut self, flags: u8) {
        self.onlink = flags & ONLINK != 0;
        self.dead = flags & DEAD != 0;
    }

    /// Takes an attribute of a route or of one of its next hops.
    fn take(&mut self, attribute: u16, value: Value<'_>) -> Result<(), Flaw> {
        match attribute {
            attribute::route::OIF => self.interface = value.u32()?,
            attribute::route::GATEWAY => self.gateway = Some(value.address()?),
            attribute::route::VIA => match value.via()? {
                Some(gateway) => self.gateway = Some(gateway),
                None => self.encapsulated = true,
            },
            attribute::route::ENCAP | attribute::route::NEW_DST => self.encapsulated = true,
            _ => {}
        }
        Ok(())
    }
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// First address of its prefix.
    pub destination: IpAddr,
    /// Length of the prefix.
    pub len: u8,
    /// Length of the prefix that sources have to be in; 0: any source.
    pub source_len: u8,
    /// Type of service that it is for; 0: any.
    pub tos: u8,
    /// Its table.
    pub table: u32,
    /// Protocol that made it (`RTPROT_...`).
    pub protocol: u8,
    /// What it does.
    pub kind: RouteKind,
    /// Its metric; of several with one prefix the lowest is used.
    pub metric: u32,
    /// The next-hop object that it leads to, if it names one.
    pub nexthop: Option<u32>,
    /// What the kernel remembers of one destination, not a route.
    pub cloned: bool,
    one: Via,
    many: &'a [u8],
}

impl<'a> Route<'a> {
    /// Where it leads, unless it names a next-hop object: several next hops, one, or none.
    pub fn vias(&self) -> Vias<'a> {
        let one = self.one.gateway.is_some() || self.one.interface != 0 || self.one.encapsulated;
        Vias {
            one: (one && self.many.is_empty()).then_some(self.one),
            many: self.many,
            encapsulated: self.one.encapsulated,
        }
    }

    /// Whether it is one of FRR's ([`by_zebra`]).
    pub fn by_zebra(&self) -> bool {
        by_zebra(self.protocol)
    }

    pub(super) fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<12>()?;
        let &[family, len, source_len, tos, table, protocol, _, kind, ..] = fixed;
        let Some(zero) = unspecified(family) else {
            return Ok(None);
        };
        let flags = u32_at(fixed, 8);
        let mut route = Self {
            destination: zero,
            len,
            source_len,
            tos,
            table: table.into(),
            protocol,
            kind: RouteKind::of(kind),
            metric: 0,
            nexthop: None,
            cloned: flags & CLONED != 0,
            one: Via::NONE,
            many: &[],
        };
        route.one.flags(flags as u8);
        message.attributes::<12>(|attribute, value| {
            match attribute {
                attribute::route::DST => route.destination = value.address()?,
                attribute::route::PRIORITY => route.metric = value.u32()?,
                attribute::route::TABLE => route.table = value.u32()?,
                attribute::route::NH_ID => route.nexthop = Some(value.u32()?),
                attribute::route::MULTIPATH => route.many = value.bytes,
                _ => route.one.take(attribute, value)?,
            }
            Ok(())
        })?;
        if route.destination.is_ipv4() != zero.is_ipv4() {
            return Err(Flaw::Prefix { len });
        }
        check_prefix(route.destination, len)?;
        let mut rest = route.many;
        while !rest.is_empty() {
            (_, rest) = one_of_many(rest)?;
        }
        Ok(Some(route))
    }
}

/// The next hops of a route.
#[derive(Clone, Debug)]
pub struct Vias<'a> {
    one: Option<Via>,
    many: &'a [u8],
    /// zebra puts the tunnel (VXLAN) that all next hops of a route take into the route itself.
    encapsulated: bool,
}

impl Iterator for Vias<'_> {
    type Item = Via;

    fn next(&mut self) -> Option<Via> {
        if let Some(one) = self.one.take() {
            return Some(one);
        }
        if self.many.is_empty() {
            return None;
        }
        // It was walked when the route was read.
        let (mut via, rest) = one_of_many(self.many).ok()?;
        self.many = rest;
        via.encapsulated |= self.encapsulated;
        Some(via)
    }
}

/// The first of a list of `struct rtnexthop` with their attributes, and the rest of the list.
fn one_of_many(bytes: &[u8]) -> Result<(Via, &[u8]), Flaw> {
    const FIXED: usize = 8;
    let flaw = |says| Flaw::AttributeLength {
        attribute: attribute::route::MULTIPATH,
        says,
        has: bytes.len(),
    };
    let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(flaw(0))?;
    let says = u16_at(fixed, 0);
    let len = usize::from(says);
    if len < FIXED || len > bytes.len() {
        return Err(flaw(says));
    }
    let mut via = Via {
        interface: u32_at(fixed, 4),
        weight: u16::from(fixed[3]) + 1,
        ..Via::NONE
    };
    via.flags(fixed[2]);
    for found in Attributes(&bytes[FIXED..len]) {
        let (attribute, bytes) = found?;
        let value = Value {
            kind: kind::NEW_ROUTE,
            attribute,
            bytes,
        };
        via.take(attribute, value)?;
    }
    Ok((via, bytes.get(align(len)..).unwrap_or(&[])))
}

/// A next-hop object: one next hop, or a group of other objects.
#[derive(Clone, Copy, Debug)]
pub struct Nexthop<'a> {
    /// Its number.
    pub id: u32,
    /// Its next hop, unless it is a group or a blackhole.
    pub via: Via,
    /// Whether packets are dropped without a word.
    pub blackhole: bool,
    /// Whether it is for bridges.
    pub fdb: bool,
    members: &'a [u8],
}

impl<'a> Nexthop<'a> {
    /// Of a group: its members' numbers and their shares, from 1.
    pub fn members(&self) -> impl Iterator<Item = (u32, u16)> + 'a {
        let (members, _) = self.members.as_chunks::<GROUP_MEMBER_LEN>();
        members.iter().map(|member| {
            // Bits 8 to 15 of a share less one stand in what was reserved once.
            let share = u16::from_le_bytes([member[4], member[5]]);
            (u32_at(member, 0), share.saturating_add(1))
        })
    }

    /// Whether it is a group.
    pub fn is_group(&self) -> bool {
        !self.members.is_empty()
    }

    pub(super) fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<8>()?;
        let (mut id, mut members): (_, &[u8]) = (None, &[]);
        let (mut blackhole, mut fdb, mut via) = (false, false, Via::NONE);
        via.flags(u32_at(fixed, 4) as u8);
        message.attributes::<8>(|attribute, value| {
            match attribute {
                attribute::nexthop::ID => id = Some(value.u32()?),
                attribute::nexthop::GROUP => {
                    if value.bytes.len() % GROUP_MEMBER_LEN != 0 {
                        return Err(value.wrong());
                    }
                    members = value.bytes;
                }
                attribute::nexthop::BLACKHOLE => blackhole = true,
                attribute::nexthop::OIF => via.interface = value.u32()?,
                attribute::nexthop::GATEWAY => via.gateway = Some(value.address()?),
                attribute::nexthop::ENCAP => via.encapsulated = true,
                attribute::nexthop::FDB => fdb = true,
                _ => {}
            }
            Ok(())
        })?;
        Ok(id.map(|id| Self {
            id,
            via,
            blackhole,
            fdb,
            members,
        }))
    }
}

/// Bytes of a `struct nexthop_grp`.
const GROUP_MEMBER_LEN: usize = 8;

/// Whether a route's protocol is one of FRR's: zebra's own number, and those that it gives to its
/// daemons' routes (FRR's `rt_netlink.h`). Routes that it has from the kernel are not among them.
pub fn by_zebra(protocol: u8) -> bool {
    matches!(protocol, 11 | 42 | 186..=198)
}

/// The name of a route's protocol (`rtm_protocol`), as `ip route` has it from `rt_protos`; `None`
/// for an unknown number. A static route of FRR's is one, whatever its number.
pub fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        2 => "kernel",
        3 => "boot",
        4 | 196 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        190 => "ripng",
        191 => "nhrp",
        192 => "eigrp",
        193 => "ldp",
        194 => "sharp",
        195 => "pbr",
        197 => "openfabric",
        198 => "srte",
        _ => return None,
    })
}
