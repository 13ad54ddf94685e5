//! Who talks to whom: what translation is about, apart from packets and tables.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use linerate_wire::{FlowKey, FlowKey4, FlowKey6, protocol};

/// Protocols whose flows are told apart by ports, or by the identifiers of ICMP queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    /// Queries, in either version.
    Icmp,
}

impl Protocol {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// By index.
    pub const ALL: [Self; Self::COUNT] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Which one an IP protocol is; `None` for those that are translated by address alone.
    #[inline]
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            protocol::TCP => Some(Self::Tcp),
            protocol::UDP => Some(Self::Udp),
            protocol::ICMP | protocol::ICMPV6 => Some(Self::Icmp),
            _ => None,
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in files and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

/// An address and a port, as in a flow's key: of an ICMP query the identifier is the port of who
/// asks, and the query's type that of who answers. It is 0 in protocols without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
}

impl Endpoint {
    pub fn new(address: impl Into<IpAddr>, port: u16) -> Self {
        let address = address.into();
        Self { address, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// Source, destination and protocol of a packet. Both ends are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    pub src: Endpoint,
    pub dst: Endpoint,
    /// IP protocol.
    pub protocol: u8,
}

impl Tuple {
    /// The same flow seen from the other side.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            ..self
        }
    }

    /// The key of its packets, the user's bytes zero; `None` where its ends are of two families.
    pub fn key(&self) -> Option<FlowKey> {
        let ports = (self.src.port, self.dst.port);
        match (self.src.address, self.dst.address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(FlowKey::V4(FlowKey4::new(
                src.octets(),
                dst.octets(),
                ports.0,
                ports.1,
                self.protocol,
            ))),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(FlowKey::V6(FlowKey6::new(
                src.octets(),
                dst.octets(),
                ports.0,
                ports.1,
                self.protocol,
            ))),
            _ => None,
        }
    }

    /// Which ports these are.
    pub fn ported(&self) -> Option<Protocol> {
        Protocol::of(self.protocol)
    }

    /// With another source.
    #[must_use]
    pub fn with_src(self, src: Endpoint) -> Self {
        Self { src, ..self }
    }

    /// With another destination.
    #[must_use]
    pub fn with_dst(self, dst: Endpoint) -> Self {
        Self { dst, ..self }
    }
}

impl From<&FlowKey4> for Tuple {
    fn from(key: &FlowKey4) -> Self {
        Self {
            src: Endpoint::new(key.src(), key.src_port()),
            dst: Endpoint::new(key.dst(), key.dst_port()),
            protocol: key.protocol(),
        }
    }
}

impl From<&FlowKey6> for Tuple {
    fn from(key: &FlowKey6) -> Self {
        Self {
            src: Endpoint::new(key.src(), key.src_port()),
            dst: Endpoint::new(key.dst(), key.dst_port()),
            protocol: key.protocol(),
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ported() {
            Some(protocol) => write!(f, "{} > {} {}", self.src, self.dst, protocol.name()),
            None => {
                let (src, dst) = (self.src.address, self.dst.address);
                write!(f, "{src} > {dst} proto {}", self.protocol)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_is_its_keys_and_back() {
        let v4 = FlowKey4::new([10, 0, 0, 1], [192, 0, 2, 1], 4000, 53, 17);
        let tuple = Tuple::from(&v4);
        assert_eq!(tuple.key(), Some(FlowKey::V4(v4)));
        assert_eq!(tuple.reversed().key(), Some(FlowKey::V4(v4.reversed())));
        assert_eq!(tuple.to_string(), "10.0.0.1:4000 > 192.0.2.1:53 udp");
        let v6 = FlowKey6::new([1; 16], [2; 16], 0, 0, 50);
        let tuple = Tuple::from(&v6);
        assert_eq!(tuple.key(), Some(FlowKey::V6(v6)));
        assert!(tuple.to_string().ends_with("202 proto 50"));
        let mixed = tuple.with_dst(Endpoint::new([1, 2, 3, 4], 0));
        assert_eq!(mixed.key(), None);
    }
}
