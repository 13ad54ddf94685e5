//! The first packet of a flow: what rules look at.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_routing::plane::hits::Flow;
use linerate_tables::acl::{PacketKey, PacketKey4, PacketKey6, words6};
use linerate_wire::FlowKey;

/// The fields of a packet that may begin a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPacket {
    /// Of IPv4.
    V4(PacketKey4),
    /// Of IPv6.
    V6(PacketKey6),
}

impl FirstPacket {
    /// A packet with this key. `icmp`: type and code, if it is ICMP (its keys have identifiers in
    /// the place of ports); `dscp`: its differentiated services code point.
    ///
    /// ```
    /// use linerate_gateway::policy::FirstPacket;
    /// use linerate_wire::{FlowKey, FlowKey4};
    /// let key = FlowKey4::new([10, 0, 0, 1], [192, 0, 2, 1], 4000, 443, 6);
    /// let first = FirstPacket::of(FlowKey::V4(key), None, 0);
    /// assert_eq!(first.ports(), Some((4000, 443)));
    /// ```
    pub fn of(key: FlowKey, icmp: Option<(u8, u8)>, dscp: u8) -> Self {
        fn filled<const W: usize>(
            key: PacketKey<W>,
            icmp: Option<(u8, u8)>,
            dscp: u8,
        ) -> PacketKey<W> {
            let key = key.with_dscp(dscp);
            match (key.icmp(), icmp) {
                (None, _) => key,
                (Some(_), Some((kind, code))) => key.with_ports((kind.into(), code.into())),
                (Some(_), None) => key.without_upper(),
            }
        }
        match key {
            FlowKey::V4(key) => {
                let ends = ([u32::from(key.src())], [u32::from(key.dst())]);
                let ports = (key.src_port(), key.dst_port());
                let key = PacketKey::tuple(ends.0, ends.1, ports, key.protocol());
                Self::V4(filled(key, icmp, dscp))
            }
            FlowKey::V6(key) => {
                let ends = (words6(key.src()), words6(key.dst()));
                let ports = (key.src_port(), key.dst_port());
                let key = PacketKey::tuple(ends.0, ends.1, ports, key.protocol());
                Self::V6(filled(key, icmp, dscp))
            }
        }
    }

    /// As a fragment other than the first: its ports are not known.
    #[must_use]
    pub fn later_fragment(self) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.later_fragment()),
            Self::V6(key) => Self::V6(key.later_fragment()),
        }
    }

    /// As a frame of so many bytes, without FCS.
    #[must_use]
    pub fn of_length(self, bytes: usize) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.with_length(bytes)),
            Self::V6(key) => Self::V6(key.with_length(bytes)),
        }
    }

    /// To another destination of its family; a port is for those that have one.
    #[must_use]
    pub fn to(self, address: IpAddr, port: u16) -> Self {
        let ports = self.ports().map(|(source, _)| (source, port));
        match (self, address) {
            (Self::V4(mut key), IpAddr::V4(v4)) => {
                key.dst = [v4.into()];
                Self::V4(ports.map_or(key, |ports| key.with_ports(ports)))
            }
            (Self::V6(mut key), IpAddr::V6(v6)) => {
                key.dst = words6(v6);
                Self::V6(ports.map_or(key, |ports| key.with_ports(ports)))
            }
            (same, _) => same,
        }
    }

    /// Whether it is one.
    pub fn is_later_fragment(&self) -> bool {
        match self {
            Self::V4(key) => key.is_later_fragment(),
            Self::V6(key) => key.is_later_fragment(),
        }
    }

    /// Whether it is IPv4.
    pub fn is_v4(&self) -> bool {
        matches!(self, Self::V4(_))
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        match self {
            Self::V4(key) => Ipv4Addr::from(key.src[0]).into(),
            Self::V6(key) => Ipv6Addr::from(number6(&key.src)).into(),
        }
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        match self {
            Self::V4(key) => Ipv4Addr::from(key.dst[0]).into(),
            Self::V6(key) => Ipv6Addr::from(number6(&key.dst)).into(),
        }
    }

    /// IP protocol.
    pub fn protocol(&self) -> u8 {
        (match self {
            Self::V4(key) => key.protocol(),
            Self::V6(key) => key.protocol(),
        }) as u8
    }

    /// Source and destination port, where it has such.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::V4(key) => key.ports(),
            Self::V6(key) => key.ports(),
        }
    }

    /// ICMP type and code, where it has such.
    pub fn icmp(&self) -> Option<(u8, u8)> {
        match self {
            Self::V4(key) => key.icmp(),
            Self::V6(key) => key.icmp(),
        }
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u16 {
        match self {
            Self::V4(key) => key.dscp(),
            Self::V6(key) => key.dscp(),
        }
    }

    /// What a log says of it.
    pub fn flow(&self) -> Flow {
        match self {
            Self::V4(key) => Flow::of4(key),
            Self::V6(key) => Flow::of6(key),
        }
    }
}

impl From<PacketKey4> for FirstPacket {
    fn from(key: PacketKey4) -> Self {
        Self::V4(key)
    }
}

impl From<PacketKey6> for FirstPacket {
    fn from(key: PacketKey6) -> Self {
        Self::V6(key)
    }
}

impl fmt::Display for FirstPacket {
    /// `10.0.0.1:4000 > 192.0.2.1:443 tcp`: what [`explain::parse`](super::explain::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.src(), self.dst());
        let protocol = super::words::protocol_name(self.protocol());
        match self.ports() {
            Some((from, to)) => {
                let ends = [(source, from), (destination, to)];
                let [from, to] = ends.map(std::net::SocketAddr::from);
                write!(f, "{from} > {to} {protocol}")?;
            }
            None => write!(f, "{source} > {destination} {protocol}")?,
        }
        if let Some((kind, code)) = self.icmp() {
            write!(f, " type {kind} code {code}")?;
        }
        if self.is_later_fragment() {
            write!(f, " fragment")?;
        }
        match self.dscp() {
            0 => Ok(()),
            dscp => write!(f, " dscp {dscp}"),
        }
    }
}

/// An IPv6 address as a number.
pub(super) fn number6(words: &[u32; 4]) -> u128 {
    words
        .iter()
        .fold(0, |bits, word| bits << 32 | u128::from(*word))
}
