//! What the stack under test sent, taken apart.

use super::{TcpOption, flag_letters};
use linerate_wire::checksum;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::Tcp;
use linerate_wire::udp::Udp;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// IPv6 flow label; 0 in IPv4.
    pub flow_label: u32,
    /// What follows the IP header.
    pub layer4: Layer4,
}

/// What follows an IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer4 {
    /// TCP.
    Tcp(Segment),
    /// UDP: source port, destination port, payload.
    Udp(u16, u16, Vec<u8>),
    /// ICMP: type, code, the four bytes behind the checksum, payload.
    Icmp(u8, u8, [u8; 4], Vec<u8>),
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Flags, see [`flag`](super::flag); the reserved bits above AE at bits 9 to 11.
    pub flags: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Window, not shifted.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, padding included.
    pub options: Vec<TcpOption>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// Takes an IP packet apart and checks its checksums. `partial`: the layer-4 checksum is left to
/// whoever sends it on, and has the pseudo-header's sum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
///
/// # Errors
/// What is wrong with it, as a sentence. Fragments, extension headers and protocols other than TCP,
/// UDP and ICMP are errors, too.
pub fn read(packet: &[u8], partial: bool) -> Result<Seen, String> {
    let malformed = |error| format!("a malformed packet: {error}");
    let (src, dst, tos, ttl, flow_label, protocol, start, len);
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let ip = Ipv4::new_checked(packet).map_err(malformed)?;
            if !ip.verify() {
                return Err("a wrong IPv4 header checksum".into());
            }
            if ip.is_fragment() {
                return Err("a fragment".into());
            }
            (src, dst) = (IpAddr::V4(ip.src()), IpAddr::V4(ip.dst()));
            (tos, ttl, flow_label) = (ip.tos(), ip.ttl(), 0);
            protocol = ip.protocol();
            (start, len) = (ip.header_len(), ip.total_len());
        }
        Some(6) => {
            let ip = Ipv6::new_checked(packet).map_err(malformed)?;
            (src, dst) = (IpAddr::V6(ip.src()), IpAddr::V6(ip.dst()));
            (tos, ttl, flow_label) = (ip.traffic_class(), ip.hop_limit(), ip.flow_label());
            protocol = ip.next_header();
            (start, len) = (linerate_wire::ipv6::HEADER_LEN, ip.total_len());
        }
        _ => return Err("neither IPv4 nor IPv6".into()),
    }
    let upper = packet
        .get(start..len)
        .ok_or_else(|| "a malformed packet: its lengths contradict each other".to_owned())?;
    let layer4 = layer4(protocol, upper)?;
    let pseudo = pseudo(src, dst, protocol, upper.len());
    check_checksum(protocol, src.is_ipv6(), upper, pseudo, partial)?;
    Ok(Seen {
        src,
        dst,
        tos,
        ttl,
        flow_label,
        layer4,
    })
}

fn layer4(protocol: u8, upper: &[u8]) -> Result<Layer4, String> {
    let malformed = |error| format!("a malformed packet: {error}");
    match protocol {
        TCP => {
            let tcp = Tcp::new_checked(upper).map_err(malformed)?;
            // Bytes 12 to 19 are there: the header was checked.
            let reserved = u16::from(upper[12] & 0x0f) << 8;
            Ok(Layer4::Tcp(Segment {
                src_port: tcp.src_port(),
                dst_port: tcp.dst_port(),
                flags: u16::from(tcp.flags()) | reserved,
                seq: tcp.seq(),
                ack: tcp.ack(),
                window: tcp.window(),
                urgent: u16::from_be_bytes([upper[18], upper[19]]),
                options: TcpOption::read_all(tcp.options()),
                payload: tcp.payload().to_vec(),
            }))
        }
        UDP => {
            let udp = Udp::new_checked(upper).map_err(malformed)?;
            let payload = udp.payload().to_vec();
            Ok(Layer4::Udp(udp.src_port(), udp.dst_port(), payload))
        }
        ICMP | ICMPV6 => match upper {
            [kind, code, _, _, a, b, c, d, payload @ ..] => Ok(Layer4::Icmp(
                *kind,
                *code,
                [*a, *b, *c, *d],
                payload.to_vec(),
            )),
            _ => Err("a malformed packet: ICMP of less than 8 bytes".into()),
        },
        other => Err(format!("protocol {other}")),
    }
}

/// The sum of a pseudo-header; ICMP over IPv4 has none.
pub(super) fn pseudo(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> u16 {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) if protocol != ICMP => {
            // An IPv4 packet is shorter than 2^16 bytes.
            checksum::pseudo_v4(src.octets(), dst.octets(), protocol, len as u16)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo_v6(src.octets(), dst.octets(), protocol, len as u32)
        }
        _ => 0,
    }
}

fn check_checksum(
    protocol: u8,
    is_v6: bool,
    upper: &[u8],
    pseudo: u16,
    partial: bool,
) -> Result<(), String> {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    let found = u16::from_be_bytes([upper[at], upper[at + 1]]);
    if protocol == UDP && found == 0 {
        // RFC 8200 8.1: over IPv6 it is not optional.
        return if is_v6 {
            Err("UDP over IPv6 without a checksum".into())
        } else {
            Ok(())
        };
    }
    let right = if partial {
        found == pseudo
    } else {
        // Ones' complement: the end-around carry.
        let sum = u32::from(checksum::sum(upper)) + u32::from(pseudo);
        (sum & 0xffff) + (sum >> 16) == 0xffff
    };
    if right {
        return Ok(());
    }
    let what = if partial {
        "partial checksum"
    } else {
        "checksum"
    };
    Err(format!("a wrong layer-4 {what}, {found:#06x}"))
}

/// In the language's form.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tos & 3 {
            0 => {}
            1 => f.write_str("[ect1] ")?,
            2 => f.write_str("[ect0] ")?,
            _ => f.write_str("[ce] ")?,
        }
        match &self.layer4 {
            Layer4::Tcp(segment) => segment.fmt(f),
            Layer4::Udp(_, _, payload) => write!(f, "udp ({})", payload.len()),
            Layer4::Icmp(kind, code, ..) => write!(f, "icmp type {kind} code {code}"),
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flags, bytes) = (flag_letters(self.flags), self.payload.len());
        let end = self.seq.wrapping_add(bytes as u32);
        write!(f, "{flags} {}:{end}({bytes})", self.seq)?;
        if self.flags & super::flag::ACK != 0 {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.window)?;
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        if !self.options.is_empty() {
            let options: Vec<_> = self.options.iter().map(ToString::to_string).collect();
            write!(f, " <{}>", options.join(","))?;
        }
        Ok(())
    }
}

/// The address and port at both ends, source first; a port of 0 for ICMP.
impl Seen {
    /// Source and destination.
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        let (src_port, dst_port) = match &self.layer4 {
            Layer4::Tcp(segment) => (segment.src_port, segment.dst_port),
            Layer4::Udp(src, dst, _) => (*src, *dst),
            Layer4::Icmp(..) => (0, 0),
        };
        (
            SocketAddr::new(self.src, src_port),
            SocketAddr::new(self.dst, dst_port),
        )
    }
}
