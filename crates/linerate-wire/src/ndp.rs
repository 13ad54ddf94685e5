//! Neighbor Discovery for IPv6 (RFC 4861): its five messages, their options, and which are valid.
//!
//! [`accept`] takes a whole IPv6 packet and applies every rule of RFC 4861 6.1, 7.1 and 8.1 that
//! can be told from the packet alone. [`Ndp`] is the view of a message behind it; [`Message`]
//! writes one.

use core::{fmt, net::Ipv6Addr};

use crate::{
    Layer, MacAddr, Malformed,
    bytes::{array, be16, be32},
    checksum,
    ipv6::Ipv6,
    protocol,
};

mod message;
#[cfg(test)]
mod tests;

pub use message::Message;

/// A message with less has passed a router, and is not a neighbour's (RFC 4861 6.1, 7.1, 8.1).
pub const HOP_LIMIT: u8 = 255;

/// ff02::1, which every node listens to.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// ff02::2, which every router listens to.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The solicited-node multicast address (RFC 4291 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let (high, low) = (0xff00 | a as u16, (b as u16) << 8 | c as u16);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// The MAC address of an IPv6 multicast group (RFC 2464 7).
pub const fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// The link-local address that a MAC address makes (RFC 2464 4, 5).
pub const fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        ((a ^ 2) as u16) << 8 | b as u16,
        (c as u16) << 8 | 0xff,
        0xfe00 | d as u16,
        (e as u16) << 8 | f as u16,
    )
}

mod field {
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
    pub(super) const FLAGS: usize = 4; // of a neighbour advertisement
    pub(super) const HOP_LIMIT: usize = 4; // and on: of a router advertisement
    pub(super) const ROUTER_FLAGS: usize = 5;
    pub(super) const LIFETIME: usize = 6;
    pub(super) const REACHABLE: usize = 8;
    pub(super) const RETRANSMIT: usize = 12;
    pub(super) const TARGET: usize = 8;
    pub(super) const DESTINATION: usize = 24;
}

mod flag {
    pub(super) const ROUTER: u8 = 0x80;
    pub(super) const SOLICITED: u8 = 0x40;
    pub(super) const OVERRIDE: u8 = 0x20;
    pub(super) const MANAGED: u8 = 0x80;
    pub(super) const OTHER: u8 = 0x40;
    pub(super) const ON_LINK: u8 = 0x80;
    pub(super) const AUTONOMOUS: u8 = 0x40;
}

mod option {
    pub(super) const SOURCE: u8 = 1;
    pub(super) const TARGET: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const REDIRECTED: u8 = 4;
    pub(super) const MTU: u8 = 5;
}

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each is the message of that name
pub enum MessageKind {
    RouterSolicitation = 133,
    RouterAdvertisement = 134,
    NeighbourSolicitation = 135,
    NeighbourAdvertisement = 136,
    Redirect = 137,
}

impl MessageKind {
    /// The message of an ICMPv6 type.
    pub const fn of(icmp_type: u8) -> Option<MessageKind> {
        Some(match icmp_type {
            133 => MessageKind::RouterSolicitation,
            134 => MessageKind::RouterAdvertisement,
            135 => MessageKind::NeighbourSolicitation,
            136 => MessageKind::NeighbourAdvertisement,
            137 => MessageKind::Redirect,
            _ => return None,
        })
    }

    /// Bytes before the options (RFC 4861 4.1 to 4.5).
    const fn header_len(self) -> usize {
        match self {
            MessageKind::RouterSolicitation => 8,
            MessageKind::RouterAdvertisement => 16,
            MessageKind::NeighbourSolicitation | MessageKind::NeighbourAdvertisement => 24,
            MessageKind::Redirect => 40,
        }
    }
}

/// A message whose length suits its kind, and whose options have lengths that fit it.
///
/// Fields that a kind does not have read as absent: `None`, false or zero.
#[derive(Clone, Copy, Debug)]
pub struct Ndp<T> {
    bytes: T,
    kind: MessageKind,
}

impl<T: AsRef<[u8]>> Ndp<T> {
    /// Takes an ICMPv6 message, which ends where the IP packet does.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        let kind = b.first().ok_or(Malformed::Truncated(Layer::Icmp))?;
        let kind = MessageKind::of(*kind).ok_or(Malformed::Version(Layer::Icmp))?;
        let mut rest = b
            .get(kind.header_len()..)
            .ok_or(Malformed::Truncated(Layer::Icmp))?;
        while !rest.is_empty() {
            // RFC 4861 4.6: a length of 0 spoils the whole message.
            let len = rest.get(1).map_or(0, |units| usize::from(*units) * 8);
            if len == 0 || len > rest.len() {
                return Err(Malformed::HeaderLength(Layer::Icmp));
            }
            rest = &rest[len..];
        }
        Ok(Ndp { bytes, kind })
    }

    /// Which message it is.
    #[inline]
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The code field, which is 0 in what is valid.
    #[inline]
    pub fn code(&self) -> u8 {
        self.bytes.as_ref()[field::CODE]
    }

    /// The target of a solicitation, advertisement or redirect.
    #[inline]
    pub fn target(&self) -> Option<Ipv6Addr> {
        let has = self.kind.header_len() >= field::TARGET + 16;
        has.then(|| array::<16>(self.bytes.as_ref(), field::TARGET).into())
    }

    /// What a redirect redirects.
    #[inline]
    pub fn destination(&self) -> Option<Ipv6Addr> {
        let has = self.kind == MessageKind::Redirect;
        has.then(|| array::<16>(self.bytes.as_ref(), field::DESTINATION).into())
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.kind == MessageKind::NeighbourAdvertisement
            && self.bytes.as_ref()[field::FLAGS] & flag != 0
    }

    /// R of a neighbour advertisement: the sender is a router.
    #[inline]
    pub fn is_router(&self) -> bool {
        self.has_flag(flag::ROUTER)
    }

    /// S: it answers a solicitation.
    #[inline]
    pub fn is_solicited(&self) -> bool {
        self.has_flag(flag::SOLICITED)
    }

    /// O: its MAC address replaces the one that is known.
    #[inline]
    pub fn is_override(&self) -> bool {
        self.has_flag(flag::OVERRIDE)
    }

    /// Fields of a router advertisement before its options.
    pub fn router(&self) -> Option<Router> {
        let b = self.bytes.as_ref();
        (self.kind == MessageKind::RouterAdvertisement).then(|| Router {
            hop_limit: b[field::HOP_LIMIT],
            managed: b[field::ROUTER_FLAGS] & flag::MANAGED != 0,
            other: b[field::ROUTER_FLAGS] & flag::OTHER != 0,
            lifetime_s: be16(b, field::LIFETIME),
            reachable_ms: be32(b, field::REACHABLE),
            retransmit_ms: be32(b, field::RETRANSMIT),
        })
    }

    /// The options in order.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options(&self.bytes.as_ref()[self.kind.header_len()..])
    }

    /// The source's MAC address, if an option has it.
    #[inline]
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.options().find_map(|option| match option {
            NdpOption::SourceMac(mac) => Some(mac),
            _ => None,
        })
    }

    /// The target's MAC address, if an option has it.
    #[inline]
    pub fn target_mac(&self) -> Option<MacAddr> {
        self.options().find_map(|option| match option {
            NdpOption::TargetMac(mac) => Some(mac),
            _ => None,
        })
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Ndp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            MessageKind::RouterSolicitation => "router solicitation",
            MessageKind::RouterAdvertisement => "router advertisement",
            MessageKind::NeighbourSolicitation => "neighbour solicitation",
            MessageKind::NeighbourAdvertisement => "neighbour advertisement",
            MessageKind::Redirect => "redirect",
        };
        f.write_str(name)?;
        match self.target() {
            Some(target) => write!(f, " {target}"),
            None => Ok(()),
        }
    }
}

/// Fields of a router advertisement before its options (RFC 4861 4.2). Zero means "unspecified",
/// except for the lifetime, where it means "not a default router".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Router {
    /// Hop limit that hosts should send with.
    pub hop_limit: u8,
    /// M: addresses come from DHCPv6.
    pub managed: bool,
    /// O: other configuration comes from DHCPv6.
    pub other: bool,
    /// Seconds for which the sender may serve as default router.
    pub lifetime_s: u16,
    /// Milliseconds for which a confirmed neighbour counts as reachable.
    pub reachable_ms: u32,
    /// Milliseconds between solicitations.
    pub retransmit_ms: u32,
}

/// A prefix that a router advertises (RFC 4861 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInfo {
    /// The prefix; bits behind its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Its length in bits.
    pub len: u8,
    /// L: its addresses are on this link.
    pub on_link: bool,
    /// A: hosts may make addresses from it.
    pub autonomous: bool,
    /// Seconds for which it is on link; all ones: infinite.
    pub valid_s: u32,
    /// Seconds for which addresses made from it are preferred.
    pub preferred_s: u32,
}

/// An option of a message (RFC 4861 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The sender's MAC address.
    SourceMac(MacAddr),
    /// The target's MAC address.
    TargetMac(MacAddr),
    /// A prefix.
    Prefix(PrefixInfo),
    /// The packet that a redirect is about, as much of it as fits, possibly with padding behind.
    Redirected(&'a [u8]),
    /// The link's MTU in bytes.
    Mtu(u32),
    /// Anything else, and the above with a length not theirs: type and all bytes.
    Other(u8, &'a [u8]),
}

/// Goes through a message's options.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = NdpOption<'a>;

    fn next(&mut self) -> Option<NdpOption<'a>> {
        let [kind, units, ..] = *self.0 else {
            return None;
        };
        let (b, rest) = self.0.split_at_checked(usize::from(units) * 8)?;
        self.0 = rest;
        Some(match (kind, units) {
            (option::SOURCE, 1) => NdpOption::SourceMac(MacAddr(array(b, 2))),
            (option::TARGET, 1) => NdpOption::TargetMac(MacAddr(array(b, 2))),
            (option::PREFIX, 4) => NdpOption::Prefix(PrefixInfo {
                prefix: array::<16>(b, 16).into(),
                len: b[2],
                on_link: b[3] & flag::ON_LINK != 0,
                autonomous: b[3] & flag::AUTONOMOUS != 0,
                valid_s: be32(b, 4),
                preferred_s: be32(b, 8),
            }),
            (option::REDIRECTED, _) => NdpOption::Redirected(&b[8..]),
            (option::MTU, 1) => NdpOption::Mtu(be32(b, 4)),
            _ => NdpOption::Other(kind, b),
        })
    }
}

/// A valid message and the addresses it came with.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// Source address; may be unspecified in solicitations.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// The message.
    pub message: Ndp<&'a [u8]>,
}

/// Why a message must be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Lengths that do not fit, or no message of Neighbor Discovery.
    Malformed(Malformed),
    /// In fragments (RFC 6980 5), or source-routed.
    Fragment,
    /// A hop limit below 255: it is from another link.
    HopLimit,
    /// A wrong checksum.
    Checksum,
    /// A code that is not 0.
    Code,
    /// Addresses that may not stand there, or not together, or not with that option or flag.
    Addresses,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed(reason) => reason.fmt(f),
            Refused::Fragment => f.write_str("neighbour discovery in a fragment or source-routed"),
            Refused::HopLimit => f.write_str("neighbour discovery with a hop limit below 255"),
            Refused::Checksum => f.write_str("wrong ICMPv6 checksum"),
            Refused::Code => f.write_str("neighbour discovery with a code that is not 0"),
            Refused::Addresses => f.write_str("neighbour discovery with impossible addresses"),
        }
    }
}

impl core::error::Error for Refused {}

impl From<Malformed> for Refused {
    fn from(reason: Malformed) -> Self {
        Refused::Malformed(reason)
    }
}

/// Validates an IPv6 packet (which may be followed by padding) as RFC 4861 6.1.1, 6.1.2, 7.1.1,
/// 7.1.2 and 8.1 want it.
pub fn accept(packet: &[u8]) -> Result<Accepted<'_>, Refused> {
    let ip = Ipv6::new_checked(packet)?;
    let upper = ip.upper_layer()?;
    if upper.is_fragment || upper.is_routed {
        return Err(Refused::Fragment);
    }
    if upper.protocol != protocol::ICMPV6 {
        return Err(Malformed::Version(Layer::Icmp).into());
    }
    let bytes = &packet[upper.offset..ip.total_len()];
    let message = Ndp::new_checked(bytes)?;
    if ip.hop_limit() != HOP_LIMIT {
        return Err(Refused::HopLimit);
    }
    if checksum::add(ip.pseudo_sum(&upper), checksum::sum(bytes)) != 0xffff {
        return Err(Refused::Checksum);
    }
    if message.code() != 0 {
        return Err(Refused::Code);
    }
    let (src, dst) = (ip.src(), ip.dst());
    if !addresses_suit(src, dst, &message) {
        return Err(Refused::Addresses);
    }
    Ok(Accepted { src, dst, message })
}

fn addresses_suit(src: Ipv6Addr, dst: Ipv6Addr, message: &Ndp<&[u8]>) -> bool {
    let target = message.target().unwrap_or(Ipv6Addr::UNSPECIFIED);
    if src.is_multicast() || target.is_multicast() {
        return false;
    }
    match message.kind() {
        MessageKind::RouterSolicitation => !src.is_unspecified() || message.source_mac().is_none(),
        MessageKind::RouterAdvertisement => src.is_unicast_link_local(),
        MessageKind::NeighbourSolicitation => {
            // Duplicate address detection: to the target's group, and without a MAC address.
            !src.is_unspecified()
                || (dst == solicited_node(target) && message.source_mac().is_none())
        }
        MessageKind::NeighbourAdvertisement => {
            let answers_all = dst.is_multicast() && message.is_solicited();
            !src.is_unspecified() && !answers_all
        }
        MessageKind::Redirect => {
            let destination = message.destination().unwrap_or(Ipv6Addr::UNSPECIFIED);
            src.is_unicast_link_local()
                && !destination.is_multicast()
                && (target.is_unicast_link_local() || target == destination)
        }
    }
}
