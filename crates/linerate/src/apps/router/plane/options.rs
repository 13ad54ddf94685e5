//! IPv4 options and IPv6 extension headers of packets that are about to be forwarded.
//!
//! | option | what happens | why |
//! |---|---|---|
//! | source route, loose or strict | refused | RFC 1812 5.2.4.1 lets a router do so; RFC 7126 4.3, 4.4 ask for it |
//! | record route | our address is recorded | RFC 1812 5.2.4.2 |
//! | timestamp | forwarded as it is | RFC 7126 4.7 (no clock of the day is read per packet) |
//! | router alert | given to the twin, forwarded where there is none | RFC 2113 2.1, RFC 6398 |
//! | others, unknown ones too | forwarded as they are | RFC 1812 4.2.2.1 |
//! | not what it says | refused, with a parameter problem | RFC 1812 5.2.5 |
//! | IPv6 routing header of type 0 | refused | RFC 5095 |
//! | other extension headers | forwarded as they are | RFC 8200 4 |

use std::net::Ipv4Addr;

use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6;
use linerate_wire::protocol;

const END: u8 = 0;
const NOP: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;

/// What the options of a packet ask of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing, or what is done on the way ([`record_route`]).
    Nothing,
    /// To be looked at by this router.
    Alert,
    /// To be sent where the source says.
    SourceRoute,
    /// Malformed; the offending byte, from the start of the header.
    Malformed(u8),
}

/// One option: where it begins in the header, its kind, its bytes.
struct Walk<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Walk<'a> {
    /// The offending byte where it is none.
    type Item = Result<(usize, u8, &'a [u8]), u8>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.header.get(self.at..)?;
            match *rest.first()? {
                END => return None,
                NOP => self.at += 1,
                kind => {
                    // RFC 791 3.1: the length counts kind and length.
                    let len = rest.get(1).map_or(0, |&len| usize::from(len));
                    let Some(option) = rest.get(..len).filter(|_| len >= 2) else {
                        let offending = self.at as u8 + 1;
                        self.at = self.header.len();
                        return Some(Err(offending));
                    };
                    let at = self.at;
                    self.at += len;
                    return Some(Ok((at, kind, option)));
                }
            }
        }
    }
}

/// The options of the IPv4 header that `packet` begins with, whose lengths were checked.
fn walk(packet: &[u8]) -> Walk<'_> {
    let len = packet.first().map_or(0, |byte| usize::from(byte & 0xf) * 4);
    Walk {
        header: packet.get(..len).unwrap_or_default(),
        at: ipv4::HEADER_LEN,
    }
}

/// What the options of an IPv4 packet ask.
pub(super) fn asked4(packet: &[u8]) -> Asked {
    let mut asked = Asked::Nothing;
    for option in walk(packet) {
        match option {
            Err(offending) => return Asked::Malformed(offending),
            Ok((at, RECORD_ROUTE, option)) => {
                // RFC 791: the pointer is relative to the option, at least 4; RFC 1812 5.2.4.2
                // leaves a full one alone.
                if option.get(2).is_none_or(|&pointer| pointer < 4) {
                    return Asked::Malformed(at as u8 + 2);
                }
            }
            Ok((_, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _)) => asked = Asked::SourceRoute,
            Ok((_, ROUTER_ALERT, _)) if asked == Asked::Nothing => asked = Asked::Alert,
            Ok(_) => {}
        }
    }
    asked
}

/// Writes `address` where a record route option has room for it (RFC 1812 5.2.4.2: that of the
/// interface that the packet leaves by), and corrects the checksum.
pub(super) fn record_route(packet: &mut [u8], address: Ipv4Addr) {
    let found = walk(packet).find_map(|option| match option {
        Ok((at, RECORD_ROUTE, option)) => Some((at, option.len())),
        _ => None,
    });
    let Some((at, len)) = found else { return };
    // RFC 791: full if the pointer exceeds the length; 4 bytes are needed from the pointer (from 1).
    let pointer = usize::from(packet[at + 2]);
    if pointer < 4 || pointer + 3 > len {
        return;
    }
    packet[at + pointer - 1..at + pointer + 3].copy_from_slice(&address.octets());
    packet[at + 2] = pointer as u8 + 4;
    if let Ok(mut ip) = Ipv4::new_checked(packet) {
        ip.fill_checksum();
    }
}

/// Whether an IPv6 packet has a routing header of type 0 with segments left (RFC 5095), and where:
/// the offset of its type in the packet.
pub(super) fn routing_header_0(packet: &[u8]) -> Option<usize> {
    let mut next = *packet.get(6)?;
    let mut at = ipv6::HEADER_LEN;
    for _ in 0..=ipv6::MAX_EXTENSIONS {
        let header = packet.get(at..)?.first_chunk::<4>()?;
        match next {
            protocol::ROUTING if header[2] == 0 && header[3] > 0 => return Some(at + 2),
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DEST_OPTIONS => {
                at += (usize::from(header[1]) + 1) * 8;
            }
            // RFC 5095 speaks of headers before the fragment header: those that routers see.
            _ => return None,
        }
        next = header[0];
    }
    None
}

/// Whether an IPv6 packet carries the Router Alert option (RFC 2711) in its hop-by-hop header.
pub(super) fn alert6(packet: &[u8]) -> bool {
    const PAD1: u8 = 0;
    const ALERT: u8 = 5;
    let Some(front) = packet.get(..ipv6::HEADER_LEN + 2) else {
        return false;
    };
    if front[6] != protocol::HOP_BY_HOP {
        return false;
    }
    let end = ipv6::HEADER_LEN + (usize::from(front[ipv6::HEADER_LEN + 1]) + 1) * 8;
    let Some(options) = packet.get(ipv6::HEADER_LEN + 2..end) else {
        return false;
    };
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match (kind, options.get(at + 1)) {
            (PAD1, _) => at += 1,
            (ALERT, _) => return true,
            (_, Some(&len)) => at += 2 + usize::from(len),
            (_, None) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these options, padded with ends.
    fn header(options: &[u8]) -> Vec<u8> {
        let words = 5 + options.len().div_ceil(4);
        let mut packet = vec![0; words * 4];
        packet[..20].copy_from_slice(&[
            0x40 | words as u8,
            0,
            0,
            words as u8 * 4,
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        packet[20..20 + options.len()].copy_from_slice(options);
        let mut ip = Ipv4::new_checked(&mut packet).expect("lengths are right");
        ip.fill_checksum();
        packet
    }

    #[test]
    fn rfc1812_5_2_4_1_source_routes_are_seen() {
        for kind in [LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE] {
            let packet = header(&[NOP, kind, 7, 4, 1, 2, 3, 4]);
            assert_eq!(asked4(&packet), Asked::SourceRoute);
            // An alert beside it does not hide it.
            let packet = header(&[kind, 7, 4, 1, 2, 3, 4, ROUTER_ALERT, 4, 0, 0]);
            assert_eq!(asked4(&packet), Asked::SourceRoute);
        }
    }

    #[test]
    fn rfc1812_4_2_2_1_unknown_options_ask_nothing() {
        assert_eq!(asked4(&header(&[])), Asked::Nothing);
        assert_eq!(asked4(&header(&[0x9e, 4, 1, 2, NOP])), Asked::Nothing);
        // Behind the end of the list anything may stand.
        assert_eq!(
            asked4(&header(&[END, STRICT_SOURCE_ROUTE, 1])),
            Asked::Nothing
        );
        assert_eq!(asked4(&header(&[ROUTER_ALERT, 4, 0, 0])), Asked::Alert);
    }

    #[test]
    fn rfc1812_5_2_5_the_offending_byte_is_named() {
        assert_eq!(asked4(&header(&[NOP, 0x9e, 1])), Asked::Malformed(22));
        assert_eq!(asked4(&header(&[0x9e, 0])), Asked::Malformed(21));
        assert_eq!(
            asked4(&header(&[NOP, NOP, NOP, 0x9e])),
            Asked::Malformed(24)
        );
        assert_eq!(asked4(&header(&[0x9e, 5, 0, 0])), Asked::Malformed(21));
        assert_eq!(
            asked4(&header(&[RECORD_ROUTE, 7, 3, 0, 0, 0, 0])),
            Asked::Malformed(22)
        );
    }

    #[test]
    fn rfc1812_5_2_4_2_routes_are_recorded_until_the_option_is_full() {
        let mut packet = header(&[RECORD_ROUTE, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        record_route(&mut packet, Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(packet[20..27], [RECORD_ROUTE, 11, 8, 192, 0, 2, 1]);
        record_route(&mut packet, Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(packet[22..31], [12, 192, 0, 2, 1, 192, 0, 2, 2]);
        let full = packet.clone();
        record_route(&mut packet, Ipv4Addr::new(192, 0, 2, 3));
        assert_eq!(packet, full);
        assert!(Ipv4::new_checked(&packet).expect("as before").verify());
    }

    #[test]
    fn rfc5095_routing_header_type_0_is_found_behind_others() {
        let mut packet = vec![0; 80];
        packet[0] = 0x60;
        packet[6] = protocol::HOP_BY_HOP;
        packet[40] = protocol::ROUTING; // hop-by-hop, 8 bytes
        packet[48..52].copy_from_slice(&[protocol::UDP, 2, 0, 1]);
        assert_eq!(routing_header_0(&packet), Some(50));
        packet[51] = 0; // no segment left: it has arrived
        assert_eq!(routing_header_0(&packet), None);
        packet[50..52].copy_from_slice(&[4, 1]); // segment routing
        assert_eq!(routing_header_0(&packet), None);
        packet.truncate(50);
        assert_eq!(routing_header_0(&packet), None);
    }

    #[test]
    fn rfc2711_the_alert_is_found_behind_padding() {
        let mut packet = vec![0; 48];
        packet[6] = protocol::HOP_BY_HOP;
        packet[40..48].copy_from_slice(&[protocol::ICMPV6, 0, 0, 5, 2, 0, 0, 0]);
        assert!(alert6(&packet));
        packet[42..46].copy_from_slice(&[1, 2, 5, 2]); // inside PadN's bytes
        assert!(!alert6(&packet));
        packet.truncate(47);
        assert!(!alert6(&packet));
    }
}
