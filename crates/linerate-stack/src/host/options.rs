//! IPv4 options and IPv6 extension headers of packets for a host (RFC 1122 3.2.1.8, RFC 8200 4).
//!
//! | what | what happens | why |
//! |---|---|---|
//! | IPv4 source route, done or not | dropped | RFC 7126 4.3, 4.4; RFC 1122 3.3.5 leaves it open |
//! | malformed IPv4 options | parameter problem | RFC 1122 3.2.2.5 |
//! | other IPv4 options, unknown ones too | ignored | RFC 1122 3.2.1.8 |
//! | hop-by-hop options elsewhere than first | parameter problem, code 1 | RFC 8200 4.3 |
//! | unknown IPv6 option | as its highest two bits say | RFC 8200 4.2 |
//! | routing header with segments left | parameter problem, code 0 | RFC 8200 4.4, RFC 5095 |
//! | routing header without | ignored | RFC 8200 4.4 |
//! | AH, ESP and anything unknown | parameter problem, code 1 | RFC 8200 4 |

use linerate_wire::ipv6::{self, Ipv6, MAX_EXTENSIONS};
use linerate_wire::protocol;

use crate::icmp::{Error4, Error6};

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw<E> {
    /// Silently.
    Silent,
    /// Its sender gets this error.
    Error(E),
}

/// Looks through the options of an IPv4 header, whose lengths were checked.
pub(super) fn options4(options: &[u8]) -> Result<(), Flaw<Error4>> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    const START: usize = 20;
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match kind {
            END => return Ok(()),
            NOP => at += 1,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(Flaw::Silent),
            _ => {
                // RFC 791 3.1: the length counts kind and length.
                let len = options.get(at + 1).map_or(0, |len| usize::from(*len));
                if len < 2 || at + len > options.len() {
                    let pointer = (START + at + 1) as u8;
                    return Err(Flaw::Error(Error4::ParameterProblem { pointer }));
                }
                at += len;
            }
        }
    }
    Ok(())
}

/// The protocol behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upper {
    pub(super) protocol: u8,
    /// Offset of the byte that names it, from the start of the IPv6 header.
    pub(super) named_at: u32,
    /// Offset of its header.
    pub(super) at: usize,
}

/// Walks over the extension headers of an IPv6 packet as a host does: `packet` begins with the
/// IPv6 header, and ends where the packet does. The walk ends at a fragment header.
pub(super) fn headers6(packet: &[u8]) -> Result<Upper, Flaw<Error6>> {
    let ip = Ipv6::new_checked(packet).map_err(|_| Flaw::Silent)?;
    let is_group = ip.dst().is_multicast();
    let mut upper = Upper {
        protocol: ip.next_header(),
        named_at: 6,
        at: ipv6::HEADER_LEN,
    };
    for _ in 0..=MAX_EXTENSIONS {
        let pointer = upper.named_at;
        match upper.protocol {
            protocol::HOP_BY_HOP if upper.at != ipv6::HEADER_LEN => {
                return Err(Flaw::Error(Error6::UnknownNextHeader { pointer }));
            }
            protocol::HOP_BY_HOP | protocol::DEST_OPTIONS | protocol::ROUTING => {}
            _ => return Ok(upper),
        }
        let rest = packet.get(upper.at..).unwrap_or_default();
        let [next, units, _, left, ..] = *rest else {
            return Err(Flaw::Silent);
        };
        let len = (usize::from(units) + 1) * 8;
        let header = rest.get(..len).ok_or(Flaw::Silent)?;
        if upper.protocol == protocol::ROUTING {
            if left != 0 {
                // It points to the routing type.
                let pointer = upper.at as u32 + 2;
                return Err(Flaw::Error(Error6::ErroneousHeader { pointer }));
            }
        } else {
            options6(header, upper.at, is_group)?;
        }
        upper = Upper {
            protocol: next,
            named_at: upper.at as u32,
            at: upper.at + len,
        };
    }
    Err(Flaw::Silent)
}

/// The options of one header, which begins at `start` in the packet.
fn options6(header: &[u8], start: usize, is_group: bool) -> Result<(), Flaw<Error6>> {
    const PAD1: u8 = 0;
    let mut at = 2;
    while let Some(&kind) = header.get(at) {
        if kind == PAD1 {
            at += 1;
            continue;
        }
        let len = header.get(at + 1).map(|len| usize::from(*len) + 2);
        let Some(len) = len.filter(|len| at + len <= header.len()) else {
            let pointer = (start + at + 1).min(u16::MAX.into()) as u32;
            return Err(Flaw::Error(Error6::ErroneousHeader { pointer }));
        };
        let pointer = (start + at) as u32;
        let error = Err(Flaw::Error(Error6::UnknownOption { pointer }));
        match kind >> 6 {
            // Skipped: PadN and router alert (RFC 2711) are here too.
            0b00 => {}
            0b01 => return Err(Flaw::Silent),
            0b10 => return error,
            _ if is_group => return Err(Flaw::Silent),
            _ => return error,
        }
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next: u8, group: bool, rest: &[u8]) -> Vec<u8> {
        let dst = if group { "ff02::1" } else { "2001:db8::2" };
        let (src, dst) = ("2001:db8::1".parse().unwrap(), dst.parse().unwrap());
        let mut packet = ipv6::header(next, 64, src, dst, rest.len() as u16).to_vec();
        packet.extend(rest);
        packet
    }

    #[test]
    fn rfc_1122_3_2_1_8_options_are_ignored_but_for_source_routes_and_nonsense() {
        assert_eq!(options4(&[]), Ok(()));
        assert_eq!(options4(&[1, 7, 3, 4, 0, 0, 0, 0]), Ok(()), "record route");
        assert_eq!(options4(&[222, 4, 1, 2]), Ok(()), "unknown");
        assert_eq!(options4(&[131, 7, 4, 10, 0, 0, 1, 0]), Err(Flaw::Silent));
        assert_eq!(options4(&[1, 1, 1, 137]), Err(Flaw::Silent));
        for (options, pointer) in [([1, 7, 1, 0], 22), ([7, 9, 4, 0], 21), ([1, 1, 1, 7], 24)] {
            let error = Flaw::Error(Error4::ParameterProblem { pointer });
            assert_eq!(options4(&options), Err(error), "{options:?}");
        }
        assert_eq!(options4(&[0, 7, 1, 0]), Ok(()), "behind the end");
    }

    #[test]
    fn rfc_8200_4_2_unknown_options_are_handled_as_their_bits_say() {
        let unknown = |pointer| Err(Flaw::Error(Error6::UnknownOption { pointer }));
        for (kind, alone, group) in [
            (0x1e, None, None),
            (0x05, None, None),
            (0x5e, Some(Err(Flaw::Silent)), Some(Err(Flaw::Silent))),
            (0x9e, Some(unknown(44)), Some(unknown(44))),
            (0xde, Some(unknown(44)), Some(Err(Flaw::Silent))),
        ] {
            let rest = [protocol::UDP, 0, 1, 0, kind, 1, 0, 0];
            let rest = [rest, rest].concat(); // the second is the UDP header
            for next in [protocol::HOP_BY_HOP, protocol::DEST_OPTIONS] {
                for (is_group, expected) in [(false, alone), (true, group)] {
                    let found = headers6(&packet(next, is_group, &rest));
                    let upper = Upper {
                        protocol: protocol::UDP,
                        named_at: 40,
                        at: 48,
                    };
                    assert_eq!(found, expected.unwrap_or(Ok(upper)), "{kind:#x} {is_group}");
                }
            }
        }
        // An option that leaves its header.
        let long = [protocol::UDP, 0, 1, 5, 0, 0, 0, 0];
        let error = Flaw::Error(Error6::ErroneousHeader { pointer: 43 });
        assert_eq!(
            headers6(&packet(protocol::DEST_OPTIONS, false, &long)),
            Err(error)
        );
    }

    #[test]
    fn rfc_8200_4_3_hop_by_hop_options_come_first() {
        let rest = [0, 0, 1, 4, 0, 0, 0, 0, protocol::UDP, 0, 1, 4, 0, 0, 0, 0];
        let error = Flaw::Error(Error6::UnknownNextHeader { pointer: 40 });
        assert_eq!(
            headers6(&packet(protocol::DEST_OPTIONS, false, &rest)),
            Err(error)
        );
    }

    #[test]
    fn rfc_8200_4_4_routing_headers_with_segments_left_are_refused() {
        let rest = |left| {
            let mut rest = vec![protocol::TCP, 2, 0, left, 0, 0, 0, 0];
            rest.extend([0x20; 16]);
            packet(protocol::ROUTING, false, &rest)
        };
        let upper = headers6(&rest(0)).unwrap();
        assert_eq!(
            (upper.protocol, upper.named_at, upper.at),
            (protocol::TCP, 40, 64)
        );
        let error = Flaw::Error(Error6::ErroneousHeader { pointer: 42 });
        assert_eq!(headers6(&rest(1)), Err(error));
    }

    #[test]
    fn a_chain_without_end_is_walked_so_far_and_no_further() {
        let mut rest = Vec::new();
        for _ in 0..100 {
            rest.extend([protocol::DEST_OPTIONS, 0, 1, 4, 0, 0, 0, 0]);
        }
        let packet = packet(protocol::DEST_OPTIONS, false, &rest);
        assert_eq!(headers6(&packet), Err(Flaw::Silent));
        for len in 0..packet.len() {
            let _ = headers6(&packet[..len]);
        }
    }
}
