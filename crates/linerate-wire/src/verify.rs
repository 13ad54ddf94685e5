//! Whether the checksums of one packet are right: all that it takes, from its headers on.
//!
//! The sum of a transport checksum is not simply over what follows the network header. A UDP
//! datagram may be shorter than its packet ([RFC 9868] puts options there), the pseudo-header then
//! has its length (RFC 768), and a packet that has source routing ahead of it is summed with an
//! address that it does not have in its header yet (RFC 8200 8.1, RFC 1122 3.2.1.8 (c)).
//!
//! [RFC 9868]: https://www.rfc-editor.org/rfc/rfc9868

use crate::{
    EtherType, Headers,
    checksum::{self, add, pseudo_v4, pseudo_v6},
    icmp,
    ipv4::Ipv4,
    ipv6::Ipv6,
    protocol, tcp,
    udp::{self, Udp},
};

/// What the transport checksum of a packet covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered<'a> {
    /// Header and payload.
    pub bytes: &'a [u8],
    /// Sum of the pseudo-header; 0 where there is none.
    pub pseudo: u16,
    /// Where in `bytes` the checksum stands.
    pub field: usize,
    /// Whether a checksum of 0 says that there is none: in UDP over IPv4 (RFC 768).
    pub is_optional: bool,
}

impl Covered<'_> {
    /// Whether the checksum is right, with `sum` to add up bytes as [`checksum::sum`] does; `None`
    /// where the packet says that it has none.
    #[inline]
    pub fn is_right(&self, sum: impl Fn(&[u8]) -> u16) -> Option<bool> {
        match self.stands() {
            0 if self.is_optional => None,
            // RFC 8200 8.1: a receiver of IPv6 discards it.
            0 if self.field == udp::field::CHECKSUM => Some(false),
            _ => Some(add(self.pseudo, sum(self.bytes)) == 0xffff),
        }
    }

    /// What stands in the checksum's field.
    #[inline]
    pub fn stands(&self) -> u16 {
        crate::bytes::be16(self.bytes, self.field)
    }
}

/// As elsewhere, `frame` is the one that was parsed.
impl Headers {
    /// What the checksum of TCP, UDP, ICMP or ICMPv6 covers. `None` where there is no such header,
    /// or none whose checksum this packet alone says something of: in fragments, and where source
    /// routing is ahead.
    #[inline]
    pub fn covered<'a>(&self, frame: &'a [u8]) -> Option<Covered<'a>> {
        let (upper, l4) = (self.protocol?, self.l4?);
        if self.is_fragment {
            return None;
        }
        let mut bytes = frame.get(l4..self.end)?;
        let field = match upper {
            protocol::UDP => udp::field::CHECKSUM,
            protocol::TCP => tcp::field::CHECKSUM,
            protocol::ICMP | protocol::ICMPV6 => icmp::field::CHECKSUM,
            _ => return None,
        };
        if upper == protocol::UDP {
            bytes = &bytes[..Udp::new_checked(bytes).ok()?.len()];
        }
        let packet = frame.get(self.l3..self.end)?;
        let is_v4 = self.ethertype == EtherType::IPV4;
        let pseudo = match upper {
            // RFC 792: over the message alone.
            protocol::ICMP => is_v4.then_some(0)?,
            _ if is_v4 => {
                let ip = Ipv4::new_checked(packet).ok()?;
                if is_source_routed(ip.options()) {
                    return None;
                }
                pseudo_v4(
                    ip.src().octets(),
                    ip.dst().octets(),
                    upper,
                    bytes.len() as u16,
                )
            }
            _ => {
                let ip = Ipv6::new_checked(packet).ok()?;
                if ip.upper_layer().ok()?.is_routed {
                    return None;
                }
                pseudo_v6(
                    ip.src().octets(),
                    ip.dst().octets(),
                    upper,
                    bytes.len() as u32,
                )
            }
        };
        bytes.get(field..field + 2)?;
        Some(Covered {
            bytes,
            pseudo,
            field,
            is_optional: upper == protocol::UDP && is_v4,
        })
    }

    /// Whether the checksum of TCP, UDP, ICMP or ICMPv6 is right; `None` where there is none, or
    /// none that can be judged by this packet alone.
    ///
    /// ```
    /// // UDP of 9 bytes in an IPv4 packet of 30: the byte behind it is not summed.
    /// let mut frame = [0u8; 44];
    /// frame[12..14].copy_from_slice(&[0x08, 0x00]);
    /// frame[14..24].copy_from_slice(&[0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17]);
    /// frame[38..40].copy_from_slice(&[0, 9]);
    /// frame[40..44].copy_from_slice(&[0xff, 0xdc, 0, 0x55]);
    /// let headers = linerate_wire::parse(&frame)?;
    /// assert_eq!(headers.is_l4_right(&frame), Some(true));
    /// frame[42] = 1;
    /// assert_eq!(headers.is_l4_right(&frame), Some(false));
    /// # Ok::<(), linerate_wire::Malformed>(())
    /// ```
    #[inline]
    pub fn is_l4_right(&self, frame: &[u8]) -> Option<bool> {
        self.covered(frame)?.is_right(checksum::sum)
    }

    /// Whether the checksum of an IPv4 header is right; `None` where it is not IPv4.
    #[inline]
    pub fn is_ipv4_right(&self, frame: &[u8]) -> Option<bool> {
        if self.ethertype != EtherType::IPV4 {
            return None;
        }
        let ip = Ipv4::new_checked(frame.get(self.l3..self.end)?).ok()?;
        Some(ip.verify())
    }
}

/// Whether IPv4 options hold a source route with addresses ahead (RFC 791 3.1): the header's
/// destination is not the last one.
fn is_source_routed(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        options = match options {
            [] | [END, ..] => return false,
            [NOP, rest @ ..] => rest,
            // The pointer is behind the route's end once all of it is done.
            [LOOSE | STRICT, len, pointer, ..] if pointer <= len => return true,
            [_, len, ..] if *len >= 2 => options.get(usize::from(*len)..).unwrap_or(&[]),
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use std::vec::Vec;

    /// An IPv4 or IPv6 packet of `upper`, whose checksum at `field` is right over `bytes` alone;
    /// `behind` follows within the packet, and `options` stand in or behind the network header.
    fn frame(v4: bool, upper: u8, mut bytes: Vec<u8>, field: usize, behind: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![2; 12];
        let len = bytes.len() + behind.len();
        let pseudo = if v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, upper, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            let sum = checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            pseudo_v4([192, 0, 2, 1], [192, 0, 2, 2], upper, bytes.len() as u16)
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([upper, 64]);
            frame.extend([0x20; 32]);
            pseudo_v6([0x20; 16], [0x20; 16], upper, bytes.len() as u32)
        };
        let pseudo = if upper == protocol::ICMP { 0 } else { pseudo };
        let sum = checksum::nonzero(!add(pseudo, checksum::sum(&bytes)));
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        frame.extend(bytes);
        frame.extend(behind);
        frame
    }

    fn udp() -> Vec<u8> {
        let mut udp = std::vec![0, 9, 0, 9, 0, 12, 0, 0];
        udp.extend(b"abcd");
        udp
    }

    fn tcp() -> Vec<u8> {
        let mut tcp = std::vec![0; 20];
        tcp[12] = 0x50;
        tcp.extend(b"data");
        tcp
    }

    fn judged(frame: &[u8]) -> Option<bool> {
        parse(frame).unwrap().is_l4_right(frame)
    }

    #[test]
    fn a_datagram_shorter_than_its_packet_is_summed_alone() {
        // RFC 9868 5: the surplus area.
        for (v4, behind) in [
            (true, &b""[..]),
            (true, b"options!x"),
            (false, b"options!x"),
        ] {
            let good = frame(v4, protocol::UDP, udp(), 6, behind);
            assert_eq!(judged(&good), Some(true), "{v4} {behind:?}");
            let (mut bad, end) = (good.clone(), good.len() - behind.len());
            bad[end - 1] ^= 1;
            assert_eq!(judged(&bad), Some(false), "{v4} {behind:?}");
            let mut behind_it = good;
            behind_it[end..].fill(0x99);
            assert_eq!(
                judged(&behind_it),
                Some(true),
                "what is behind is not covered"
            );
        }
    }

    #[test]
    fn every_transport_is_judged_and_only_udp_over_ipv4_may_do_without() {
        for v4 in [true, false] {
            let icmp = if v4 { protocol::ICMP } else { protocol::ICMPV6 };
            let echo = std::vec![8, 0, 0, 0, 0, 1, 0, 1, 0x55];
            let all = [
                (protocol::UDP, udp(), 6),
                (protocol::TCP, tcp(), 16),
                (icmp, echo, 2),
            ];
            for (upper, bytes, field) in all {
                let good = frame(v4, upper, bytes, field, b"");
                let headers = parse(&good).unwrap();
                assert_eq!(judged(&good), Some(true), "{v4} {upper}");
                let l4 = headers.l4.unwrap();
                for bit in l4 * 8..good.len() * 8 {
                    let mut bad = good.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    if parse(&bad).is_ok() {
                        assert_eq!(judged(&bad), Some(false), "{v4} {upper} bit {bit}");
                    }
                }
                let mut none = good.clone();
                none[l4 + field..l4 + field + 2].fill(0);
                let expected = match (v4, upper) {
                    (true, protocol::UDP) => None,
                    _ => Some(false),
                };
                assert_eq!(judged(&none), expected, "{v4} {upper} without");
            }
        }
    }

    #[test]
    fn what_is_on_a_source_route_is_not_judged_before_its_end() {
        // RFC 8200 4.4: a routing header of one address, behind the base header.
        let plain = frame(false, protocol::TCP, tcp(), 16, b"");
        for (left, expected) in [(0, Some(true)), (1, None)] {
            let mut routed = plain.clone();
            routed[20] = protocol::ROUTING;
            let mut header = std::vec![protocol::TCP, 2, 4, left, 0, 0, 0, 0];
            header.extend([0x33; 16]);
            routed.splice(54..54, header);
            let len = (routed.len() - 54) as u16;
            routed[18..20].copy_from_slice(&len.to_be_bytes());
            assert_eq!(judged(&routed), expected, "{left} segments left");
        }
        // RFC 791 3.1: of one address, which the pointer is before or behind.
        let plain = frame(true, protocol::TCP, tcp(), 16, b"");
        for (kind, pointer, expected) in [
            (131, 8, Some(true)),
            (131, 4, None),
            (137, 4, None),
            // Record route leads nowhere.
            (7, 4, Some(true)),
        ] {
            let mut routed = plain.clone();
            routed[14] = 0x47;
            routed.splice(34..34, [1, kind, 7, pointer, 192, 0, 2, 9]);
            let len = (routed.len() - 14) as u16;
            routed[16..18].copy_from_slice(&len.to_be_bytes());
            assert_eq!(
                judged(&routed),
                expected,
                "option {kind}, pointer {pointer}"
            );
        }
    }

    #[test]
    fn fragments_and_what_has_no_checksum_are_not_judged() {
        let good = frame(true, protocol::UDP, udp(), 6, b"");
        let mut first = good.clone();
        first[20] = 0x20;
        assert_eq!(judged(&first), None);
        let other = frame(true, 253, udp(), 6, b"");
        assert_eq!(judged(&other), None);
        let wrong_family = frame(false, protocol::ICMP, udp(), 2, b"");
        assert_eq!(judged(&wrong_family), None);
        let cut = frame(true, protocol::ICMP, std::vec![8, 0, 0, 0], 2, b"");
        let mut cut = cut[..cut.len() - 2].to_vec();
        cut[16..18].copy_from_slice(&22u16.to_be_bytes());
        assert_eq!(judged(&cut), None);
        assert_eq!(parse(&good).unwrap().is_ipv4_right(&good), Some(true));
        let mut bad = good;
        bad[22] ^= 1;
        assert_eq!(parse(&bad).unwrap().is_ipv4_right(&bad), Some(false));
        let v6 = frame(false, protocol::UDP, udp(), 6, b"");
        assert_eq!(parse(&v6).unwrap().is_ipv4_right(&v6), None);
    }
}
