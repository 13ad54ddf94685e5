//! Why a header could not be taken: two bytes, so that it can be a drop reason and index a counter.

use core::fmt;

/// The header that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each variant is the protocol of that name; Tunnel is any
pub enum Layer {
    Ethernet,
    Vlan,
    Arp,
    Ipv4,
    Ipv6,
    Icmp,
    Tcp,
    Udp,
    Sctp,
    Vxlan,
    Geneve,
    Gre,
    Mpls,
    Gtpu,
    Gtpc,
    Diameter,
    Tunnel,
}

/// Why the bytes are not what they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The bytes end inside this header.
    Truncated(Layer),
    /// A version, hardware type or address size that this header does not allow.
    Version(Layer),
    /// A header length below the minimum or past the end of the packet.
    HeaderLength(Layer),
    /// A total or payload length that does not fit the header or the bytes present.
    TotalLength(Layer),
    /// A checksum that does not verify.
    Checksum(Layer),
    /// More VLAN tags, labels, extension headers or nested tunnels than this crate walks.
    TooDeep(Layer),
    /// The packet cannot be segmented: not TCP or UDP, a fragment, source-routed, or no segment
    /// size.
    NotSegmentable,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ethernet => "Ethernet",
            Layer::Vlan => "VLAN",
            Layer::Arp => "ARP",
            Layer::Ipv4 => "IPv4",
            Layer::Ipv6 => "IPv6",
            Layer::Icmp => "ICMP",
            Layer::Tcp => "TCP",
            Layer::Udp => "UDP",
            Layer::Sctp => "SCTP",
            Layer::Vxlan => "VXLAN",
            Layer::Geneve => "Geneve",
            Layer::Gre => "GRE",
            Layer::Mpls => "MPLS",
            Layer::Gtpu => "GTP-U",
            Layer::Gtpc => "GTP-C",
            Layer::Diameter => "Diameter",
            Layer::Tunnel => "tunnel",
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated(layer) => write!(f, "the frame ends inside its {layer} header"),
            Malformed::Version(layer) => {
                write!(f, "{layer} header with a version or type not its own")
            }
            Malformed::HeaderLength(layer) => write!(f, "impossible {layer} header length"),
            Malformed::TotalLength(layer) => {
                write!(f, "{layer} length does not match the bytes present")
            }
            Malformed::Checksum(layer) => write!(f, "wrong {layer} checksum"),
            Malformed::TooDeep(Layer::Vlan) => f.write_str("too many VLAN tags"),
            Malformed::TooDeep(Layer::Mpls) => f.write_str("too many MPLS labels"),
            Malformed::TooDeep(Layer::Tunnel) => f.write_str("too many tunnels in one another"),
            Malformed::TooDeep(layer) => write!(f, "too many {layer} extension headers"),
            Malformed::NotSegmentable => {
                f.write_str("not a TCP or UDP frame that can be cut into segments of that size")
            }
        }
    }
}

impl core::error::Error for Malformed {}
