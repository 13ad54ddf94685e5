//! Messages of Linux's routing netlink: routes, next hops, neighbours, addresses, links.
//!
//! The kernel sends them on its sockets, and FRR's zebra in the stream that [`fpm`](crate::fpm)
//! cuts into messages. [`Messages`] walks a buffer of messages, [`Message::read`] decodes one. What a
//! message says about lengths is checked here and nowhere else; what follows from its content (which
//! table, which interface) is the reader's business. Integers are in the host's order. [`build`]
//! makes messages.
//!
//! After `linux/netlink.h`, `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/if_addr.h` and
//! `linux/neighbour.h`.

pub mod build;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::MacAddr;
use crate::bytes::array;

/// Bytes of a message's header.
pub const HEADER_LEN: usize = 16;

/// Message types (`RTM_...`, `NLMSG_...`).
#[allow(missing_docs)] // they are the kernel's names
pub mod kind {
    pub const NOOP: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const OVERRUN: u16 = 4;
    pub const NEW_LINK: u16 = 16;
    pub const DEL_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const SET_LINK: u16 = 19;
    pub const NEW_ADDRESS: u16 = 20;
    pub const DEL_ADDRESS: u16 = 21;
    pub const GET_ADDRESS: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const DEL_ROUTE: u16 = 25;
    pub const GET_ROUTE: u16 = 26;
    pub const NEW_NEIGHBOUR: u16 = 28;
    pub const DEL_NEIGHBOUR: u16 = 29;
    pub const GET_NEIGHBOUR: u16 = 30;
    pub const NEW_NEXTHOP: u16 = 104;
    pub const DEL_NEXTHOP: u16 = 105;
    pub const GET_NEXTHOP: u16 = 106;
}

/// Address families (`AF_...`).
#[allow(missing_docs)] // they are the kernel's names
pub mod family {
    pub const UNSPEC: u8 = 0;
    pub const INET: u8 = 2;
    pub const INET6: u8 = 10;
}

/// Attributes of each kind of message, by the kernel's names without their prefix.
#[allow(missing_docs)]
pub mod attribute {
    /// Of links (`IFLA_...`).
    pub mod link {
        pub const ADDRESS: u16 = 1;
        pub const NAME: u16 = 3;
        pub const MTU: u16 = 4;
        pub const MASTER: u16 = 10;
        pub const INFO: u16 = 18;
        pub const NET_NS_FD: u16 = 28;
        pub const CARRIER: u16 = 33;
    }
    /// Within a link's `INFO` (`IFLA_INFO_...`), and within that of a VRF device (`IFLA_VRF_...`).
    pub mod info {
        pub const KIND: u16 = 1;
        pub const DATA: u16 = 2;
        pub const VRF_TABLE: u16 = 1;
    }
    /// Of addresses (`IFA_...`).
    pub mod address {
        pub const ADDRESS: u16 = 1;
        pub const LOCAL: u16 = 2;
        pub const FLAGS: u16 = 8;
    }
    /// Of routes (`RTA_...`).
    pub mod route {
        pub const DST: u16 = 1;
        pub const OIF: u16 = 4;
        pub const GATEWAY: u16 = 5;
        pub const PRIORITY: u16 = 6;
        pub const MULTIPATH: u16 = 9;
        pub const TABLE: u16 = 15;
        pub const VIA: u16 = 18;
        pub const ENCAP_TYPE: u16 = 21;
        pub const ENCAP: u16 = 22;
        pub const NH_ID: u16 = 30;
    }
    /// Of neighbours (`NDA_...`).
    pub mod neighbour {
        pub const DST: u16 = 1;
        pub const LLADDR: u16 = 2;
    }
    /// Of next hops (`NHA_...`).
    pub mod nexthop {
        pub const ID: u16 = 1;
        pub const GROUP: u16 = 2;
        pub const BLACKHOLE: u16 = 4;
        pub const OIF: u16 = 5;
        pub const GATEWAY: u16 = 6;
        pub const ENCAP: u16 = 8;
        pub const FDB: u16 = 11;
    }
}

/// The attribute's type without the flags that stand in the same 16 bits (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
/// Of a next hop's flags (`RTNH_F_...`): its interface is down; its gateway needs no connected network.
const DEAD: u8 = 1;
const ONLINK: u8 = 4;
/// `RTM_F_CLONED`: what the kernel remembers of one destination, not a route.
const CLONED: u32 = 0x200;
/// `RTPROT_KERNEL`: the kernel made the route itself, from an address.
pub const PROTOCOL_KERNEL: u8 = 2;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A message says that it is shorter than a header, or longer than what there is.
    Length {
        /// What it says, in bytes.
        says: u32,
        /// What there is.
        has: usize,
    },
    /// The fixed part of a message of this type is not all there.
    Short {
        /// The message's type.
        kind: u16,
        /// Its bytes behind the header.
        has: usize,
    },
    /// An attribute says that it is shorter than its header, or longer than what there is.
    AttributeLength {
        /// The attribute's type.
        attribute: u16,
        /// What it says, in bytes.
        says: u16,
        /// What there is.
        has: usize,
    },
    /// An attribute's value has not the size of its type.
    Value {
        /// The message's type.
        kind: u16,
        /// The attribute's type.
        attribute: u16,
        /// Bytes of the value.
        has: usize,
    },
    /// A prefix is longer than an address.
    Prefix {
        /// Its length in bits.
        len: u8,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { says, has } => {
                write!(f, "a netlink message says it has {says} bytes, of {has}")
            }
            Self::Short { kind, has } => {
                write!(f, "netlink message {kind} ends after {has} bytes")
            }
            Self::AttributeLength {
                attribute,
                says,
                has,
            } => write!(
                f,
                "netlink attribute {attribute} says it has {says} bytes, of {has}"
            ),
            Self::Value {
                kind,
                attribute,
                has,
            } => write!(
                f,
                "attribute {attribute} of netlink message {kind} has a value of {has} bytes"
            ),
            Self::Prefix { len } => write!(f, "a prefix of {len} bits"),
        }
    }
}

impl core::error::Error for Flaw {}

/// The messages of a buffer, one after the other. Ends after the first flaw.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Of what was received.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Flaw>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        if bytes.is_empty() {
            return None;
        }
        self.0 = &[];
        let says = match bytes.len() {
            0..4 => 0,
            _ => u32_at(bytes, 0),
        };
        let len = says as usize;
        if len < HEADER_LEN || len > bytes.len() {
            let has = bytes.len();
            return Some(Err(Flaw::Length { says, has }));
        }
        self.0 = bytes.get(align(len)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            sequence: u32_at(bytes, 8),
            port: u32_at(bytes, 12),
            payload: &bytes[HEADER_LEN..len],
        }))
    }
}

/// One message, its body unread.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its type: [`kind`].
    pub kind: u16,
    /// `NLM_F_...`.
    pub flags: u16,
    /// Of the request that it answers.
    pub sequence: u32,
    /// Of the socket that it is for; 0: of none.
    pub port: u32,
    /// What stands behind the header.
    pub payload: &'a [u8],
}

/// What a message says.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// The end of a dump.
    Done,
    /// A request's outcome: 0, or a negative errno.
    Error(i32),
    /// Messages were lost.
    Overrun,
    /// A link is there, or has changed.
    NewLink(Link<'a>),
    /// A link is gone.
    DelLink(Link<'a>),
    /// An interface has an address.
    NewAddress(Address),
    /// It has it no more.
    DelAddress(Address),
    /// A route is there, or has changed.
    NewRoute(Route<'a>),
    /// A route is gone.
    DelRoute(Route<'a>),
    /// A neighbour is there, or has changed.
    NewNeighbour(Neighbour),
    /// A neighbour is gone.
    DelNeighbour(Neighbour),
    /// A next hop or a group of them is there, or has changed.
    NewNexthop(Nexthop<'a>),
    /// It is gone.
    DelNexthop(Nexthop<'a>),
    /// Of a type or family that is not read here: MPLS, bridges, rules and the rest.
    Other,
}

impl<'a> Message<'a> {
    /// Decodes the body.
    ///
    /// # Errors
    /// Where lengths do not fit.
    pub fn read(&self) -> Result<Body<'a>, Flaw> {
        Ok(match self.kind {
            kind::DONE => Body::Done,
            kind::OVERRUN => Body::Overrun,
            kind::ERROR => Body::Error(u32_at(self.fixed::<4>()?, 0) as i32),
            kind::NEW_LINK => Link::read(self)?.map_or(Body::Other, Body::NewLink),
            kind::DEL_LINK => Link::read(self)?.map_or(Body::Other, Body::DelLink),
            kind::NEW_ADDRESS => Address::read(self)?.map_or(Body::Other, Body::NewAddress),
            kind::DEL_ADDRESS => Address::read(self)?.map_or(Body::Other, Body::DelAddress),
            kind::NEW_ROUTE => Route::read(self)?.map_or(Body::Other, Body::NewRoute),
            kind::DEL_ROUTE => Route::read(self)?.map_or(Body::Other, Body::DelRoute),
            kind::NEW_NEIGHBOUR => Neighbour::read(self)?.map_or(Body::Other, Body::NewNeighbour),
            kind::DEL_NEIGHBOUR => Neighbour::read(self)?.map_or(Body::Other, Body::DelNeighbour),
            kind::NEW_NEXTHOP => Nexthop::read(self)?.map_or(Body::Other, Body::NewNexthop),
            kind::DEL_NEXTHOP => Nexthop::read(self)?.map_or(Body::Other, Body::DelNexthop),
            _ => Body::Other,
        })
    }

    /// The fixed part of the body.
    fn fixed<const N: usize>(&self) -> Result<&'a [u8; N], Flaw> {
        let (kind, has) = (self.kind, self.payload.len());
        self.payload.first_chunk().ok_or(Flaw::Short { kind, has })
    }

    /// The attributes behind a fixed part of `N` bytes, each handed to `take` with its type.
    fn attributes<const N: usize>(
        &self,
        mut take: impl FnMut(u16, Value<'a>) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        for attribute in Attributes(&self.payload[N..]) {
            let (attribute, bytes) = attribute?;
            let kind = self.kind;
            take(
                attribute,
                Value {
                    kind,
                    attribute,
                    bytes,
                },
            )?;
        }
        Ok(())
    }
}

/// Attributes one after the other.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Flaw>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        // Up to three bytes of padding may be left.
        if bytes.len() < 4 {
            return None;
        }
        let (says, attribute) = (u16_at(bytes, 0), u16_at(bytes, 2) & TYPE_MASK);
        let len = usize::from(says);
        if len < 4 || len > bytes.len() {
            self.0 = &[];
            let has = bytes.len();
            return Some(Err(Flaw::AttributeLength {
                attribute,
                says,
                has,
            }));
        }
        self.0 = bytes.get(align(len)..).unwrap_or(&[]);
        Some(Ok((attribute, &bytes[4..len])))
    }
}

/// An attribute's value, and what to call it when it is wrong.
#[derive(Clone, Copy)]
struct Value<'a> {
    kind: u16,
    attribute: u16,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    fn wrong(self) -> Flaw {
        Flaw::Value {
            kind: self.kind,
            attribute: self.attribute,
            has: self.bytes.len(),
        }
    }

    fn u32(self) -> Result<u32, Flaw> {
        let bytes = self.bytes.try_into().map_err(|_| self.wrong())?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Of either family, by its size.
    fn address(self) -> Result<IpAddr, Flaw> {
        address(self.bytes).ok_or(self.wrong())
    }

    /// `struct rtvia`: the family, then an address of it. `None`: of a family that is not IP.
    fn via(self) -> Result<Option<IpAddr>, Flaw> {
        let (family, bytes) = self.bytes.split_first_chunk().ok_or(self.wrong())?;
        match (u16::from_ne_bytes(*family), address(bytes)) {
            (2, Some(IpAddr::V4(v4))) => Ok(Some(v4.into())),
            (10, Some(IpAddr::V6(v6))) => Ok(Some(v6.into())),
            (2 | 10, _) => Err(self.wrong()),
            _ => Ok(None),
        }
    }

    /// `None` where the link has addresses of another kind.
    fn mac(self) -> Option<MacAddr> {
        self.bytes.try_into().ok().map(MacAddr)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(array::<4>(bytes, 0)).into()),
        16 => Some(Ipv6Addr::from(array::<16>(bytes, 0)).into()),
        _ => None,
    }
}

/// The address of that family whose bits are all zero.
fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        family::INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        family::INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// A network interface of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// Its number.
    pub index: u32,
    /// Its name; empty if the message has none.
    pub name: &'a str,
    /// Whether it was set up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// The bridge or VRF device that it belongs to.
    pub master: Option<u32>,
    /// Whether it is the loopback (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// What kind of software device it is (`IFLA_INFO_KIND`): `dummy`, `vrf`, `tun`.
    pub kind: Option<&'a str>,
    /// Of a VRF device: its table (`IFLA_VRF_TABLE`).
    pub table: Option<u32>,
}

impl<'a> Link<'a> {
    fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<16>()?;
        if fixed[0] != family::UNSPEC {
            return Ok(None); // what a bridge says about its ports
        }
        let flags = u32_at(fixed, 8);
        let mut link = Self {
            index: u32_at(fixed, 4),
            name: "",
            up: flags & 1 != 0,
            carrier: flags & 1 << 16 != 0,
            mac: None,
            mtu: None,
            master: None,
            loopback: flags & 1 << 3 != 0,
            kind: None,
            table: None,
        };
        message.attributes::<16>(|attribute, value| {
            match attribute {
                attribute::link::ADDRESS => link.mac = value.mac(),
                attribute::link::NAME => {
                    let name = value.bytes.split(|&byte| byte == 0).next();
                    let name = core::str::from_utf8(name.unwrap_or_default());
                    link.name = name.map_err(|_| value.wrong())?;
                }
                attribute::link::MTU => link.mtu = Some(value.u32()?),
                attribute::link::MASTER => link.master = Some(value.u32()?),
                attribute::link::INFO => link.read_info(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Some(link))
    }

    /// What kind of device it is, and of a VRF device its table. The kernel says the kind first.
    fn read_info(&mut self, info: Value<'a>) -> Result<(), Flaw> {
        for part in Attributes(info.bytes) {
            match part? {
                (attribute::info::KIND, kind) => {
                    let kind = kind.split(|&byte| byte == 0).next();
                    let kind = core::str::from_utf8(kind.unwrap_or_default());
                    self.kind = Some(kind.map_err(|_| info.wrong())?);
                }
                (attribute::info::DATA, data) if self.kind == Some("vrf") => {
                    for part in Attributes(data) {
                        if let (attribute::info::VRF_TABLE, bytes) = part? {
                            self.table = Some(Value { bytes, ..info }.u32()?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub index: u32,
    /// The address itself.
    pub address: IpAddr,
    /// Length of the network around it.
    pub len: u8,
    /// `IFA_F_...`.
    pub flags: u32,
}

impl Address {
    /// Duplicate address detection has not ended, or has found another with this address.
    pub fn tentative(&self) -> bool {
        const DAD_FAILED: u32 = 0x08;
        const TENTATIVE: u32 = 0x40;
        self.flags & (DAD_FAILED | TENTATIVE) != 0
    }

    fn read(message: &Message<'_>) -> Result<Option<Self>, Flaw> {
        let &[family, len, flags, _, ..] = message.fixed::<8>()?;
        if unspecified(family).is_none() {
            return Ok(None);
        }
        let mut flags = u32::from(flags);
        let (mut address, mut local) = (None, None);
        message.attributes::<8>(|attribute, value| {
            match attribute {
                attribute::address::ADDRESS => address = Some(value.address()?),
                attribute::address::LOCAL => local = Some(value.address()?),
                attribute::address::FLAGS => flags = value.u32()?,
                _ => {}
            }
            Ok(())
        })?;
        // On a point-to-point link ADDRESS is the other end.
        let Some(address) = local.or(address) else {
            return Ok(None);
        };
        check_prefix(address, len)?;
        Ok(Some(Self {
            index: u32_at(message.payload, 4),
            address,
            len,
            flags,
        }))
    }
}

fn check_prefix(address: IpAddr, len: u8) -> Result<(), Flaw> {
    match len > if address.is_ipv4() { 32 } else { 128 } {
        true => Err(Flaw::Prefix { len }),
        false => Ok(()),
    }
}

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

/// One way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The next router; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Number of the interface; 0: not said.
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
            attribute::route::ENCAP => self.encapsulated = true,
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
    /// Who made it (`RTPROT_...`).
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
    /// Where it leads, unless it names a next-hop object: several ways, one, or none.
    pub fn vias(&self) -> Vias<'a> {
        let one = self.one.gateway.is_some() || self.one.interface != 0 || self.one.encapsulated;
        Vias {
            one: (one && self.many.is_empty()).then_some(self.one),
            many: self.many,
        }
    }

    fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
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

/// The ways of a route.
#[derive(Clone, Debug)]
pub struct Vias<'a> {
    one: Option<Via>,
    many: &'a [u8],
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
        let (via, rest) = one_of_many(self.many).ok()?;
        self.many = rest;
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

/// A next-hop object: one way, or a group of other objects.
#[derive(Clone, Copy, Debug)]
pub struct Nexthop<'a> {
    /// Its number.
    pub id: u32,
    /// Its way, unless it is a group or a blackhole.
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

    fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
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

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is known.
    pub mac: Option<MacAddr>,
    /// `NUD_...`.
    pub state: u16,
}

impl Neighbour {
    /// Whether someone has set it by hand (`NUD_PERMANENT`).
    pub fn permanent(&self) -> bool {
        self.state & 0x80 != 0
    }

    fn read(message: &Message<'_>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<12>()?;
        if unspecified(fixed[0]).is_none() {
            return Ok(None);
        }
        let (mut address, mut mac) = (None, None);
        message.attributes::<12>(|attribute, value| {
            match attribute {
                attribute::neighbour::DST => address = Some(value.address()?),
                attribute::neighbour::LLADDR => mac = value.mac(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(address.map(|address| Self {
            index: u32_at(fixed, 4),
            address,
            mac,
            state: u16_at(fixed, 8),
        }))
    }
}

/// Messages and attributes begin at multiples of 4.
fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}
