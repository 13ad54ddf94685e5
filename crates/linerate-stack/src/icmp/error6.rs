//! ICMPv6 errors (RFC 4443) and redirects (RFC 4861 8.2).

use std::net::Ipv6Addr;

use linerate_wire::icmp::{self, v6};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::{MacAddr, checksum, ndp, protocol};

use super::TTL;

/// Longest error in bytes, IP header included (RFC 4443 2.4(c)).
pub const MAX_ERROR6_LEN: usize = ipv6::MIN_MTU;

/// The reason of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error6 {
    /// No route (1, 0).
    NoRoute,
    /// A filter denies it (1, 1).
    AdminProhibited,
    /// It would have to leave the zone of its source address (1, 2).
    BeyondScope,
    /// On a network of ours, but the host does not answer (1, 3).
    AddressUnreachable,
    /// The router has no listener at that port (1, 4).
    PortUnreachable,
    /// The source address is not allowed there (1, 5).
    SourcePolicy,
    /// A route that rejects (1, 6).
    RejectRoute,
    /// Longer than the next link takes (2, 0).
    PacketTooBig {
        /// The next link's MTU in bytes.
        mtu: u32,
    },
    /// The hop limit ran out on the way (3, 0).
    HopLimitExceeded,
    /// Fragments did not come together in time (3, 1); the packet is the first fragment.
    ReassemblyExceeded,
    /// A header field that is wrong (4, 0).
    ErroneousHeader {
        /// Its offset in bytes.
        pointer: u32,
    },
    /// An unknown next header (4, 1).
    UnknownNextHeader {
        /// Offset in bytes of the field that names it.
        pointer: u32,
    },
    /// An unknown option that asks to be reported (4, 2).
    UnknownOption {
        /// Its offset in bytes.
        pointer: u32,
    },
    /// A first fragment without the whole header chain (4, 3; RFC 7112 5).
    IncompleteHeaderChain,
}

impl Error6 {
    /// Type, code, and the word behind the checksum.
    fn parts(self) -> (u8, u8, u32) {
        match self {
            Error6::NoRoute => (v6::UNREACHABLE, 0, 0),
            Error6::AdminProhibited => (v6::UNREACHABLE, 1, 0),
            Error6::BeyondScope => (v6::UNREACHABLE, 2, 0),
            Error6::AddressUnreachable => (v6::UNREACHABLE, 3, 0),
            Error6::PortUnreachable => (v6::UNREACHABLE, 4, 0),
            Error6::SourcePolicy => (v6::UNREACHABLE, 5, 0),
            Error6::RejectRoute => (v6::UNREACHABLE, 6, 0),
            Error6::PacketTooBig { mtu } => (v6::PACKET_TOO_BIG, 0, mtu),
            Error6::HopLimitExceeded => (v6::TIME_EXCEEDED, 0, 0),
            Error6::ReassemblyExceeded => (v6::TIME_EXCEEDED, 1, 0),
            Error6::ErroneousHeader { pointer } => (v6::PARAMETER_PROBLEM, 0, pointer),
            Error6::UnknownNextHeader { pointer } => (v6::PARAMETER_PROBLEM, 1, pointer),
            Error6::UnknownOption { pointer } => (v6::PARAMETER_PROBLEM, 2, pointer),
            Error6::IncompleteHeaderChain => (v6::PARAMETER_PROBLEM, 3, 0),
        }
    }

    /// Whether it may be sent for a packet to a multicast group: RFC 4443 2.4(e.3).
    fn answers_multicast(self, packet: &[u8]) -> bool {
        match self {
            Error6::PacketTooBig { .. } => true,
            // RFC 8200 4.2: the option's highest bits are 10, "whether or not multicast".
            Error6::UnknownOption { pointer } => {
                let option = packet.get(pointer as usize);
                option.is_some_and(|kind| kind >> 6 == 0b10)
            }
            _ => false,
        }
    }
}

/// Whether RFC 4443 2.4(e) allows this error about `packet`: if so, [`error6`] writes it where
/// there is room. Ask before a [`Limiter`](super::Limiter), which counts what it allows.
pub fn may_answer6(packet: &[u8], error: Error6) -> bool {
    Ipv6::new_checked(packet).is_ok_and(|ip| {
        let is_group = ip.dst().is_multicast();
        deserves_error(&ip) && (!is_group || error.answers_multicast(packet))
    })
}

/// Writes the error for `packet` (as it was received, from its IPv6 header on) into `out`, sent
/// from `src`, with as much of the packet as fits [`MAX_ERROR6_LEN`] and `out`. Returns the length
/// of the error; `None`, with `out` undefined, where RFC 4443 2.4(e) forbids it, where the packet
/// has no whole header, or where `out` has no room for that header.
pub fn error6(packet: &[u8], error: Error6, src: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
    if !may_answer6(packet, error) {
        return None;
    }
    let ip = Ipv6::new_checked(packet).ok()?;
    const START: usize = ipv6::HEADER_LEN + icmp::HEADER_LEN;
    let room = out.len().min(MAX_ERROR6_LEN).checked_sub(START)?;
    let quote = &packet[..ip.total_len().min(room)];
    if quote.len() < ipv6::HEADER_LEN {
        return None;
    }
    let len = START + quote.len();
    let (kind, code, word) = error.parts();
    let message = &mut out[ipv6::HEADER_LEN..len];
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..8].copy_from_slice(&word.to_be_bytes());
    message[8..].copy_from_slice(quote);
    let payload_len = (len - ipv6::HEADER_LEN) as u16; // at most MAX_ERROR6_LEN
    let (from, to) = (src.octets(), ip.src().octets());
    let pseudo = checksum::pseudo_v6(from, to, protocol::ICMPV6, payload_len.into());
    let sum = checksum::add(pseudo, checksum::sum(message));
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
    let header = ipv6::header(protocol::ICMPV6, TTL, src, ip.src(), payload_len);
    out[..ipv6::HEADER_LEN].copy_from_slice(&header);
    Some(len)
}

/// Writes a redirect (RFC 4861 8.2): packets like `packet`, as it was received, should be sent to
/// `target`, which is the destination itself if that is a neighbour of the sender. `src` is our
/// link-local address on the interface. The caller has checked that the packet leaves by the
/// interface it came in on, and that its source is a neighbour there.
///
/// `None` if the packet does not allow a redirect, or `out` is shorter than the message.
pub fn redirect6(
    packet: &[u8],
    target: Ipv6Addr,
    target_mac: Option<MacAddr>,
    src: Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    if !may_redirect6(packet, target) {
        return None;
    }
    let ip = Ipv6::new_checked(packet).ok()?;
    let message = ndp::Message::Redirect {
        target,
        destination: ip.dst(),
        target_mac,
        packet: &packet[..ip.total_len()],
    };
    let (header, body) = out.split_at_mut_checked(ipv6::HEADER_LEN)?;
    let len = message.write(src, ip.src(), body)?;
    let bytes = ipv6::header(protocol::ICMPV6, ndp::HOP_LIMIT, src, ip.src(), len as u16);
    header.copy_from_slice(&bytes);
    Some(ipv6::HEADER_LEN + len)
}

/// Whether `packet` may be answered with a redirect to `target`, as [`may_answer6`].
pub fn may_redirect6(packet: &[u8], target: Ipv6Addr) -> bool {
    Ipv6::new_checked(packet).is_ok_and(|ip| {
        let is_routed = ip.upper_layer().is_ok_and(|upper| upper.is_routed);
        // RFC 4861 8.2: explicitly routed and multicast packets are not redirected; 4.5: the target
        // is a router's link-local address, or the destination.
        let suits = target.is_unicast_link_local() || target == ip.dst();
        deserves_error(&ip) && !ip.dst().is_multicast() && !is_routed && suits
    })
}

/// The rules RFC 4443 2.4(e) 1, 2 and 6, which the packet alone shows.
fn deserves_error(ip: &Ipv6<&[u8]>) -> bool {
    // Extension headers that cannot be walked may be what the error is about.
    let is_error = ip.upper_layer().is_ok_and(|upper| {
        // A later fragment does not contain the type.
        let is_later = upper.fragment_offset != 0;
        let kind = (ip.payload().get(upper.offset - ipv6::HEADER_LEN)).filter(|_| !is_later);
        upper.protocol == protocol::ICMPV6 && kind.is_none_or(|k| *k < 128 || *k == v6::REDIRECT)
    });
    is_from_node(ip) && !is_error
}

/// Whether the source is the address of a single node.
pub(crate) fn is_from_node(ip: &Ipv6<&[u8]>) -> bool {
    let src = ip.src();
    !src.is_unspecified() && !src.is_multicast() && !src.is_loopback()
}
