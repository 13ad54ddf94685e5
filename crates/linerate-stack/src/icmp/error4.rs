//! ICMP errors for IPv4: RFC 792, RFC 1191, RFC 1812 4.3 and 5.2.7.

use std::net::Ipv4Addr;

use linerate_wire::checksum;
use linerate_wire::icmp::{self, v4};
use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::protocol;

use super::TTL;

/// Longest error in bytes, IP header included (RFC 1812 4.3.2.3).
pub const MAX_ERROR4_LEN: usize = 576;

/// Precedence of errors: internetwork control (RFC 1812 4.3.2.5).
const PRECEDENCE: u8 = 0xc0;
/// The part of the type of service that errors copy (RFC 1812 4.3.2.5), without the two bits that
/// have since become ECN's (RFC 3168 23.1).
const COPIED_TOS: u8 = 0x1c;

/// The reason of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error4 {
    /// No route (3, 0).
    NetUnreachable,
    /// On a network of ours, but the host does not answer (3, 1).
    HostUnreachable,
    /// The router itself does not speak that protocol (3, 2).
    ProtocolUnreachable,
    /// The router has no listener at that port (3, 3).
    PortUnreachable,
    /// Longer than the next link takes, and not to be fragmented (3, 4; RFC 1191).
    FragmentationNeeded {
        /// The next link's MTU in bytes.
        mtu: u16,
    },
    /// A source route that cannot be followed (3, 5).
    SourceRouteFailed,
    /// Communication with that network is prohibited (3, 9).
    NetProhibited,
    /// Communication with that host is prohibited (3, 10).
    HostProhibited,
    /// A filter denies it (3, 13).
    AdminProhibited,
    /// The TTL ran out on the way (11, 0).
    TtlExceeded,
    /// Fragments did not come together in time (11, 1); the packet is the first fragment.
    ReassemblyExceeded,
    /// A header field that is wrong (12, 0).
    ParameterProblem {
        /// Its offset in bytes.
        pointer: u8,
    },
    /// A required option is missing (12, 1).
    OptionMissing,
    /// There is a better first hop for that host (5, 1): routers send it for hosts only, never for
    /// networks (RFC 1812 5.2.7.2). The caller has checked that the packet leaves by the interface
    /// it came in on, and that the sender and the gateway are on that interface's network.
    Redirect {
        /// It.
        gateway: Ipv4Addr,
    },
}

impl Error4 {
    /// Type, code, and the word behind the checksum.
    fn parts(self) -> (u8, u8, [u8; 4]) {
        let none = [0; 4];
        match self {
            Error4::NetUnreachable => (v4::UNREACHABLE, 0, none),
            Error4::HostUnreachable => (v4::UNREACHABLE, 1, none),
            Error4::ProtocolUnreachable => (v4::UNREACHABLE, 2, none),
            Error4::PortUnreachable => (v4::UNREACHABLE, 3, none),
            Error4::FragmentationNeeded { mtu } => {
                let [a, b] = mtu.to_be_bytes();
                (v4::UNREACHABLE, 4, [0, 0, a, b])
            }
            Error4::SourceRouteFailed => (v4::UNREACHABLE, 5, none),
            Error4::NetProhibited => (v4::UNREACHABLE, 9, none),
            Error4::HostProhibited => (v4::UNREACHABLE, 10, none),
            Error4::AdminProhibited => (v4::UNREACHABLE, 13, none),
            Error4::TtlExceeded => (v4::TIME_EXCEEDED, 0, none),
            Error4::ReassemblyExceeded => (v4::TIME_EXCEEDED, 1, none),
            Error4::ParameterProblem { pointer } => (v4::PARAMETER_PROBLEM, 0, [pointer, 0, 0, 0]),
            Error4::OptionMissing => (v4::PARAMETER_PROBLEM, 1, none),
            Error4::Redirect { gateway } => (v4::REDIRECT, 1, gateway.octets()),
        }
    }
}

/// Whether RFC 1812 4.3.2.7 allows this error about `packet`: if so, [`error4`] writes it where
/// there is room. Ask before a [`Limiter`](super::Limiter), which counts what it allows.
pub fn may_answer4(packet: &[u8], error: Error4) -> bool {
    Ipv4::new_checked(packet).is_ok_and(|ip| {
        // RFC 1812 5.2.7.2: source-routed packets are not redirected.
        let is_routed = matches!(error, Error4::Redirect { .. }) && has_source_route(ip.options());
        deserves_error(&ip) && !is_routed
    })
}

/// Writes the error for `packet` (as it was received, from its IP header on) into `out`, sent from
/// `src`, with as much of the packet as fits [`MAX_ERROR4_LEN`] and `out`. Returns the length of
/// the error; `None`, with `out` undefined, where RFC 1812 4.3.2.7 forbids it, where the packet's
/// header is broken, or where `out` has no room for header and 8 bytes (RFC 792).
pub fn error4(packet: &[u8], error: Error4, src: Ipv4Addr, out: &mut [u8]) -> Option<usize> {
    if !may_answer4(packet, error) {
        return None;
    }
    let ip = Ipv4::new_checked(packet).ok()?;
    const START: usize = ipv4::HEADER_LEN + icmp::HEADER_LEN;
    let room = out.len().min(MAX_ERROR4_LEN).checked_sub(START)?;
    let quote = &packet[..ip.total_len().min(room)];
    if quote.len() < ip.total_len().min(ip.header_len() + 8) {
        return None;
    }
    let len = START + quote.len();
    let tos = PRECEDENCE | ip.tos() & COPIED_TOS;
    let payload_len = (icmp::HEADER_LEN + quote.len()) as u16; // both at most MAX_ERROR4_LEN
    let header = ipv4::header(tos, TTL, protocol::ICMP, src, ip.src(), payload_len);
    let (kind, code, word) = error.parts();
    out[..ipv4::HEADER_LEN].copy_from_slice(&header);
    let message = &mut out[ipv4::HEADER_LEN..len];
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..8].copy_from_slice(&word);
    message[8..].copy_from_slice(quote);
    let value = checksum::checksum(message);
    message[2..4].copy_from_slice(&value.to_be_bytes());
    Some(len)
}

/// The rules of RFC 1812 4.3.2.7 that the packet alone shows.
fn deserves_error(ip: &Ipv4<&[u8]>) -> bool {
    let is_error =
        ip.protocol() == protocol::ICMP && !ip.payload().first().is_some_and(|k| v4::is_query(*k));
    is_between_hosts(ip) && ip.fragment_offset() == 0 && !is_error
}

/// Whether the addresses are of single hosts.
pub(crate) fn is_between_hosts(ip: &Ipv4<&[u8]>) -> bool {
    let (src, dst) = (ip.src(), ip.dst());
    // "a source address that does not define a single host"; 5.3.7 for the rest.
    let is_host = src.octets()[0] != 0 && src.octets()[0] < 224 && !src.is_loopback();
    let is_broadcast = dst.is_broadcast() || dst.is_multicast() || dst.is_unspecified();
    is_host && !is_broadcast
}

/// Whether there is a loose or strict source route (RFC 791 3.1) among the options.
pub(super) fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    while let [kind, ref rest @ ..] = *options {
        options = match kind {
            END => return false,
            LOOSE | STRICT => return true,
            NOTHING => rest,
            _ => {
                let len = rest.first().map_or(0, |len| usize::from(*len)).max(2);
                options.get(len..).unwrap_or_default()
            }
        };
    }
    false
}
