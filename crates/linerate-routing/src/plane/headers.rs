//! Reads single fields of one untagged frame: addresses, time to live, protocol.

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_core::packet::Packet;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;

fn address4(packet: &Packet, at: usize) -> Option<Ipv4Addr> {
    let bytes = packet.data().get(HEADER_LEN + at..)?;
    bytes.first_chunk::<4>().map(|four| Ipv4Addr::from(*four))
}

fn address6(packet: &Packet, at: usize) -> Option<Ipv6Addr> {
    let bytes = packet.data().get(HEADER_LEN + at..)?;
    bytes.first_chunk::<16>().map(|all| Ipv6Addr::from(*all))
}

pub(super) fn source4(packet: &Packet) -> Option<Ipv4Addr> {
    address4(packet, 12)
}

pub(super) fn destination4(packet: &Packet) -> Option<Ipv4Addr> {
    address4(packet, 16)
}

pub(super) fn source6(packet: &Packet) -> Option<Ipv6Addr> {
    address6(packet, 8)
}

pub(super) fn destination6(packet: &Packet) -> Option<Ipv6Addr> {
    address6(packet, 24)
}

pub(super) fn ttl(packet: &Packet, is_v4: bool) -> u8 {
    let at = HEADER_LEN + if is_v4 { 8 } else { 7 };
    packet.data().get(at).copied().unwrap_or(0)
}

/// Whether this is Neighbor Discovery (RFC 4861 4), which is meaningful on the link only.
pub(super) fn is_discovery(packet: &Packet, is_v4: bool) -> bool {
    let kind = || {
        let ip = Ipv6::new_checked(packet.data().get(HEADER_LEN..)?).ok()?;
        let is_icmp = ip.next_header() == linerate_wire::protocol::ICMPV6;
        ip.payload().first().copied().filter(|_| is_icmp)
    };
    // From router solicitations to redirects.
    !is_v4 && kind().is_some_and(|kind| matches!(kind, 133..=137))
}

/// Whether this belongs to a routing protocol: OSPF (RFC 2328, RFC 5340), VRRP (RFC 9568), BGP (RFC
/// 4271), LDP (RFC 5036) or BFD (RFC 5881, RFC 5883). What comes behind extension headers, or in a
/// later fragment, is not looked into.
pub(super) fn is_routing(packet: &Packet, is_v4: bool) -> bool {
    const OSPF: u8 = 89;
    const VRRP: u8 = 112;
    const BGP: u16 = 179;
    const LDP: u16 = 646;
    /// Control, echo, and control over several hops.
    const BFD: [u16; 3] = [3784, 3785, 4784];
    let bytes = packet.data().get(HEADER_LEN..).unwrap_or_default();
    let upper = match is_v4 {
        true => Ipv4::new_checked(bytes)
            .ok()
            .filter(|ip| ip.fragment_offset() == 0)
            .map(|ip| (ip.protocol(), ip.header_len())),
        false => Ipv6::new_checked(bytes)
            .ok()
            .map(|ip| (ip.next_header(), linerate_wire::ipv6::HEADER_LEN)),
    };
    let Some((protocol, at)) = upper else {
        return false;
    };
    let port = |at: usize| {
        let two = bytes.get(at..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*two))
    };
    match (protocol, port(at), port(at + 2)) {
        (OSPF | VRRP, ..) => true,
        (linerate_wire::protocol::TCP, Some(src), Some(dst)) => {
            [src, dst].iter().any(|port| matches!(*port, BGP | LDP))
        }
        (linerate_wire::protocol::UDP, _, Some(dst)) => dst == LDP || BFD.contains(&dst),
        _ => false,
    }
}
