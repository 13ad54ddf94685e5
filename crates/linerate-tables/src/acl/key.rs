//! What rules look at in a packet, and how it is taken from a frame.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, Headers, protocol};

use super::rule::TAGGED;

/// A fragment of a datagram; bits of [`PacketKey::meta`] above protocol, TCP flags and DSCP.
pub(crate) const FRAGMENT: u32 = 1 << 22;
/// A fragment other than the first.
pub(crate) const LATER: u32 = 1 << 23;
/// `ports` are those of TCP, UDP or SCTP.
pub(crate) const HAS_PORTS: u32 = 1 << 24;
/// `ports` are ICMP's type (low half) and code (high half).
pub(crate) const HAS_ICMP: u32 = 1 << 25;

/// The fields of one packet, in host order: `W` is 1 for IPv4, 4 for IPv6.
///
/// ```
/// use linerate_tables::acl::PacketKey4;
/// let syn = PacketKey4::tuple([0x0a00_0001], [0x0a00_0002], (40_000, 443), 6)
///     .with_tcp_flags(0x02)
///     .with_dscp(46)
///     .with_vlan(Some(7));
/// assert_eq!((syn.ports(), syn.tcp_flags(), syn.dscp()), (Some((40_000, 443)), 2, 46));
/// let later = syn.later_fragment();
/// assert_eq!((later.ports(), later.is_later_fragment(), later.dscp()), (None, true, 46));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PacketKey<const W: usize> {
    /// Source address, the most significant word first.
    pub src: [u32; W],
    /// Destination address.
    pub dst: [u32; W],
    /// Source port in the low half, destination port in the high one; or ICMP type and code; or 0.
    pub(crate) ports: u32,
    /// Protocol (bits 0-7), TCP flags (8-15), DSCP (16-21), and the bits above.
    pub(crate) meta: u32,
    /// VLAN id, with [`TAGGED`] where there is a tag.
    pub(crate) vlan: u16,
    /// Length of the frame in bytes, without FCS; longer ones count as 65535.
    pub(crate) length: u16,
}

/// An IPv4 packet's fields.
pub type PacketKey4 = PacketKey<1>;
/// An IPv6 packet's fields.
pub type PacketKey6 = PacketKey<4>;

impl<const W: usize> PacketKey<W> {
    /// A packet of these fields: untagged, whole, 60 bytes long, no flags, no code point. Ports
    /// are ICMP's type and code where the protocol is that, and left out where it has none.
    pub fn tuple(
        src: [u32; W],
        dst: [u32; W],
        (src_port, dst_port): (u16, u16),
        protocol: u8,
    ) -> Self {
        let state = state(protocol);
        let ports = u32::from(src_port) | u32::from(dst_port) << 16;
        Self {
            src,
            dst,
            ports: if state == 0 { 0 } else { ports },
            meta: u32::from(protocol) | state,
            vlan: 0,
            length: 60,
        }
    }

    /// With these ports, or ICMP's type and code, if the packet has such.
    #[must_use]
    #[inline(always)]
    pub fn with_ports(mut self, (first, second): (u16, u16)) -> Self {
        if self.meta & (HAS_PORTS | HAS_ICMP) != 0 {
            self.ports = u32::from(first) | u32::from(second) << 16;
        }
        self
    }

    /// With these TCP flags.
    #[must_use]
    #[inline(always)]
    pub fn with_tcp_flags(mut self, flags: u8) -> Self {
        self.meta = self.meta & !(0xff << 8) | u32::from(flags) << 8;
        self
    }

    /// With this differentiated services code point, of 6 bits.
    #[must_use]
    #[inline(always)]
    pub fn with_dscp(mut self, dscp: u8) -> Self {
        self.meta = self.meta & !(0x3f << 16) | u32::from(dscp & 0x3f) << 16;
        self
    }

    /// With the id of its outermost VLAN tag, of 12 bits, or without a tag.
    #[must_use]
    #[inline(always)]
    pub fn with_vlan(mut self, id: Option<u16>) -> Self {
        self.vlan = id.map_or(0, |id| id & 0xfff | TAGGED);
        self
    }

    /// As a frame of so many bytes, without FCS.
    #[must_use]
    #[inline(always)]
    pub fn with_length(mut self, bytes: usize) -> Self {
        self.length = u16::try_from(bytes).unwrap_or(u16::MAX);
        self
    }

    /// As a fragment: the first one, unless it is made a [later](Self::later_fragment) one.
    #[must_use]
    #[inline(always)]
    pub fn fragment(mut self) -> Self {
        self.meta |= FRAGMENT;
        self
    }

    /// As a fragment other than the first, which has no header of the upper layer.
    #[must_use]
    #[inline(always)]
    pub fn later_fragment(self) -> Self {
        let mut key = self.fragment().without_upper();
        key.meta |= LATER;
        key
    }

    /// As a packet of which the upper layer's header is not known: no ports, no ICMP type, no
    /// flags.
    #[must_use]
    #[inline(always)]
    pub fn without_upper(mut self) -> Self {
        self.ports = 0;
        self.meta &= !(HAS_PORTS | HAS_ICMP | 0xff << 8);
        self
    }

    /// Source and destination port, where it has such.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.pair(HAS_PORTS)
    }

    /// ICMP's type and code, where it has such.
    pub fn icmp(&self) -> Option<(u8, u8)> {
        self.pair(HAS_ICMP)
            .map(|(kind, code)| (kind as u8, code as u8))
    }

    fn pair(&self, state: u32) -> Option<(u16, u16)> {
        (self.meta & state != 0).then_some((self.ports as u16, (self.ports >> 16) as u16))
    }

    /// Whether it is a fragment, the first or another.
    pub fn is_fragment(&self) -> bool {
        self.meta & FRAGMENT != 0
    }

    /// Whether it is a fragment other than the first.
    pub fn is_later_fragment(&self) -> bool {
        self.meta & LATER != 0
    }

    /// The id of its outermost VLAN tag.
    pub fn vlan(&self) -> Option<u16> {
        (self.vlan & TAGGED != 0).then_some(self.vlan & 0xfff)
    }

    /// Bytes of the frame, without FCS; 65535 for longer ones.
    pub fn length(&self) -> u16 {
        self.length
    }

    /// All ones where `ports` holds nothing, so that only a rule that asks for none matches.
    #[inline(always)]
    pub(crate) fn portless(&self) -> u32 {
        match self.meta & (HAS_PORTS | HAS_ICMP) {
            0 => u32::MAX,
            _ => 0,
        }
    }

    /// IP protocol, behind extension headers.
    pub fn protocol(&self) -> u16 {
        (self.meta & 0xff) as u16
    }

    /// TCP flags.
    pub fn tcp_flags(&self) -> u16 {
        (self.meta >> 8 & 0xff) as u16
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u16 {
        (self.meta >> 16 & 0x3f) as u16
    }

    /// Fills in what does not depend on the kind of address.
    fn upper(src: [u32; W], dst: [u32; W], tos: u8, frame: &[u8], headers: &Headers) -> Self {
        let protocol = headers.protocol.unwrap_or(protocol::NO_NEXT);
        let mut meta = u32::from(protocol) | u32::from(tos >> 2) << 16;
        if headers.is_fragment {
            meta |= FRAGMENT;
        }
        let mut ports = 0;
        match (headers.l4, headers.ports) {
            (None, _) => meta |= LATER,
            (_, Some((src_port, dst_port))) => {
                meta |= HAS_PORTS;
                ports = u32::from(src_port) | u32::from(dst_port) << 16;
            }
            (Some(l4), None) => {
                let upper = frame.get(l4..headers.end).unwrap_or_default();
                if let ([kind, code, ..], HAS_ICMP) = (upper, state(protocol)) {
                    meta |= HAS_ICMP;
                    ports = u32::from(*kind) | u32::from(*code) << 16;
                }
            }
        }
        if let (protocol::TCP, Some(l4)) = (protocol, headers.l4) {
            let flags = frame.get(l4 + 13).copied().unwrap_or(0);
            meta |= u32::from(flags) << 8;
        }
        let key = Self {
            src,
            dst,
            ports,
            meta,
            vlan: 0,
            length: 0,
        };
        key.with_vlan(headers.outer_tci).with_length(frame.len())
    }
}

/// What `ports` holds in a whole packet of this protocol.
fn state(protocol: u8) -> u32 {
    match protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP => HAS_PORTS,
        protocol::ICMP | protocol::ICMPV6 => HAS_ICMP,
        _ => 0,
    }
}

impl PacketKey4 {
    /// The fields of a frame whose headers were found; `None` where it is not IPv4.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        if headers.ethertype != EtherType::IPV4 {
            return None;
        }
        let ip = Ipv4::new_checked(frame.get(headers.l3..)?).ok()?;
        let word = |address: Ipv4Addr| [u32::from(address)];
        Some(Self::upper(
            word(ip.src()),
            word(ip.dst()),
            ip.tos(),
            frame,
            headers,
        ))
    }
}

impl PacketKey6 {
    /// The fields of a frame whose headers were found; `None` where it is not IPv6.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        if headers.ethertype != EtherType::IPV6 {
            return None;
        }
        let ip = Ipv6::new_checked(frame.get(headers.l3..)?).ok()?;
        let src = words6(ip.src());
        Some(Self::upper(
            src,
            words6(ip.dst()),
            ip.traffic_class(),
            frame,
            headers,
        ))
    }
}

/// An IPv6 address as words, the most significant first.
pub fn words6(address: Ipv6Addr) -> [u32; 4] {
    let bits = u128::from(address);
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

/// An address of either kind, to print.
pub(super) fn address<const W: usize>(words: &[u32; W]) -> impl fmt::Display {
    let bits = words
        .iter()
        .fold(0, |bits: u128, word| bits << 32 | u128::from(*word));
    match W {
        1 => std::net::IpAddr::from(Ipv4Addr::from(bits as u32)),
        _ => std::net::IpAddr::from(Ipv6Addr::from(bits)),
    }
}

impl<const W: usize> fmt::Display for PacketKey<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (self.ports & 0xffff, self.ports >> 16);
        write!(f, "{} -> {}", address(&self.src), address(&self.dst))?;
        write!(f, " protocol {}", self.protocol())?;
        if self.meta & HAS_PORTS != 0 {
            write!(f, " ports {first} -> {second}")?;
        }
        if self.meta & HAS_ICMP != 0 {
            write!(f, " ICMP type {first} code {second}")?;
        }
        Ok(())
    }
}
