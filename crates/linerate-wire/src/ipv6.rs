//! IPv6 (RFC 8200): the fixed header, and a walk over the extension headers.

use core::{fmt, net::Ipv6Addr};

use crate::{
    Layer, Malformed,
    bytes::{array, be16, be32, put16},
    checksum, protocol,
};

/// Length in bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Every link carries packets of that many bytes (RFC 8200 5).
pub const MIN_MTU: usize = 1280;

/// Extension headers walked before a packet is refused: RFC 8200 4.1 orders at most seven.
pub const MAX_EXTENSIONS: usize = 8;

pub(crate) mod field {
    pub(crate) const VERSION_CLASS_FLOW: usize = 0;
    pub(crate) const PAYLOAD_LEN: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const HOP_LIMIT: usize = 7;
    pub(crate) const SRC: usize = 8;
    pub(crate) const DST: usize = 24;
}

/// A packet whose payload length lies within the bytes present.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T>(T);

/// Where the extension headers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Protocol number of the first header that is not an extension.
    pub protocol: u8,
    /// Its offset in bytes from the start of the IPv6 header.
    pub offset: usize,
    /// Whether a routing header with segments left was among them: the packet's last destination
    /// is there, and layer-4 checksums are made with that one (RFC 8200 8.1).
    pub is_routed: bool,
    /// Whether a fragment header was among them.
    pub is_fragment: bool,
    /// Offset in bytes within the datagram; not 0 means no layer-4 header.
    pub fragment_offset: usize,
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Takes `bytes` (which may be longer: Ethernet pads) if version and length fit them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let ip = Self::new_header(bytes)?;
        if ip.total_len() > ip.0.as_ref().len() {
            return Err(Malformed::TotalLength(Layer::Ipv6));
        }
        Ok(ip)
    }

    /// Without a look at the payload length: for a packet that was cut short on purpose, and must
    /// not be asked for its payload.
    #[inline]
    pub(crate) fn new_header(bytes: T) -> Result<Self, Malformed> {
        if bytes.as_ref().len() < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Ipv6));
        }
        let ip = Ipv6(bytes);
        if ip.0.as_ref()[field::VERSION_CLASS_FLOW] >> 4 != 6 {
            return Err(Malformed::Version(Layer::Ipv6));
        }
        Ok(ip)
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be32(self.0.as_ref(), field::VERSION_CLASS_FLOW) >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.0.as_ref(), field::VERSION_CLASS_FLOW) & 0x000f_ffff
    }

    /// Length in bytes of what follows the fixed header.
    #[inline]
    pub fn payload_len(&self) -> usize {
        be16(self.0.as_ref(), field::PAYLOAD_LEN).into()
    }

    /// Length in bytes of the fixed header and what follows.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.payload_len()
    }

    /// The next header field of the fixed header; [`upper_layer`](Self::upper_layer) walks on.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        array::<16>(self.0.as_ref(), field::SRC).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        array::<16>(self.0.as_ref(), field::DST).into()
    }

    /// What follows the fixed header, extensions included, padding not.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.total_len()]
    }

    /// Walks hop-by-hop, routing, fragment, destination and authentication headers. The walk ends
    /// at anything else (ESP and "no next header" included), and behind the fragment header of a
    /// fragment that is not the first, where the bytes are payload.
    pub fn upper_layer(&self) -> Result<UpperLayer, Malformed> {
        self.upper_layer_within(self.total_len())
    }

    /// The walk over the first `len` bytes, which are there and hold the fixed header.
    pub(crate) fn upper_layer_within(&self, len: usize) -> Result<UpperLayer, Malformed> {
        let packet = &self.0.as_ref()[..len];
        let mut upper = UpperLayer {
            protocol: self.next_header(),
            offset: HEADER_LEN,
            is_routed: false,
            is_fragment: false,
            fragment_offset: 0,
        };
        for _ in 0..=MAX_EXTENSIONS {
            let rest = &packet[upper.offset..];
            let byte = |at: usize| {
                rest.get(at)
                    .copied()
                    .ok_or(Malformed::Truncated(Layer::Ipv6))
            };
            let len = match upper.protocol {
                // RFC 8200 4.3, 4.4, 4.6: in 8 bytes beyond the first 8.
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DEST_OPTIONS => {
                    (usize::from(byte(1)?) + 1) * 8
                }
                // RFC 4302 2.2: in 4 bytes, minus 2.
                protocol::AH => (usize::from(byte(1)?) + 2) * 4,
                protocol::FRAGMENT => 8,
                _ => return Ok(upper),
            };
            if rest.len() < len {
                return Err(Malformed::HeaderLength(Layer::Ipv6));
            }
            if upper.protocol == protocol::ROUTING {
                upper.is_routed |= byte(3)? != 0;
            }
            if upper.protocol == protocol::FRAGMENT {
                upper.is_fragment = true;
                upper.fragment_offset = usize::from(be16(rest, 2) & 0xfff8);
            }
            upper.protocol = byte(0)?;
            upper.offset += len;
            if upper.fragment_offset != 0 {
                return Ok(upper);
            }
        }
        Err(Malformed::TooDeep(Layer::Ipv6))
    }

    /// Sum of the pseudo-header for the layer-4 packet found by [`upper_layer`](Self::upper_layer).
    /// The destination is the header's: not so in what [`is_routed`](UpperLayer::is_routed).
    #[inline]
    pub fn pseudo_sum(&self, upper: &UpperLayer) -> u16 {
        let len = self.total_len().saturating_sub(upper.offset) as u32;
        checksum::pseudo_v6(
            self.src().octets(),
            self.dst().octets(),
            upper.protocol,
            len,
        )
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Takes one off the hop limit; false and unchanged where it is 0 or 1 (RFC 8200 3).
    #[inline]
    #[must_use = "false means that the packet must not be forwarded"]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let limit = &mut self.0.as_mut()[field::HOP_LIMIT];
        if *limit <= 1 {
            return false;
        }
        *limit -= 1;
        true
    }
}

/// The bytes of a fixed header of traffic class 0 and flow label 0, for a payload of `payload_len`
/// bytes.
pub fn header(
    next_header: u8,
    hop_limit: u8,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    payload_len: u16,
) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[field::VERSION_CLASS_FLOW] = 0x60;
    put16(&mut out, field::PAYLOAD_LEN, payload_len);
    out[field::NEXT_HEADER] = next_header;
    out[field::HOP_LIMIT] = hop_limit;
    out[field::SRC..field::DST].copy_from_slice(&src.octets());
    out[field::DST..].copy_from_slice(&dst.octets());
    out
}

impl<T: AsRef<[u8]>> fmt::Display for Ipv6<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src, dst, next) = (self.src(), self.dst(), self.next_header());
        write!(
            f,
            "IPv6 {src} > {dst} next {next} hlim {} len {}",
            self.hop_limit(),
            self.total_len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// fe80::1 > ff02::1 with `payload` behind `next`.
    fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![0x60, 0x12, 0x34, 0x56, 0, payload.len() as u8, next, 64];
        bytes.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("ff02::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn reads_a_header() {
        let mut bytes = packet(17, &[1, 2, 3]);
        bytes.extend([0; 4]); // padding
        let ip = Ipv6::new_checked(&bytes[..]).unwrap();
        assert_eq!(
            ip.to_string(),
            "IPv6 fe80::1 > ff02::1 next 17 hlim 64 len 43"
        );
        assert_eq!(
            (ip.traffic_class(), ip.flow_label(), ip.payload()),
            (1, 0x23456, &[1, 2, 3][..])
        );
    }

    #[test]
    fn writes_a_header() {
        let mut wanted = packet(17, &[0; 3]);
        wanted[1..4].fill(0); // class and label
        let src = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let dst = "ff02::1".parse().unwrap();
        assert_eq!(header(17, 64, src, dst, 3)[..], wanted[..HEADER_LEN]);
    }

    #[test]
    fn lengths_are_checked_once() {
        let bytes = packet(17, &[1, 2, 3]);
        let reason = |b: &[u8]| Ipv6::new_checked(b).map(|_| ()).unwrap_err();
        assert_eq!(reason(&bytes[..39]), Malformed::Truncated(Layer::Ipv6));
        assert_eq!(reason(&bytes[..42]), Malformed::TotalLength(Layer::Ipv6));
        assert_eq!(
            reason(&[&[0x40][..], &bytes[1..]].concat()),
            Malformed::Version(Layer::Ipv6)
        );
    }

    #[test]
    fn walks_extension_headers() {
        let chain = [
            &[60, 0, 0, 0, 0, 0, 0, 0][..], // hop-by-hop, then destination options
            &[51, 1, 0, 0, 0, 0, 0, 0],
            &[0; 8], // 16 bytes of them, then AH
            &[44, 1, 0, 0],
            &[0; 8],                      // 12 bytes of AH, then fragment
            &[6, 0, 0, 0x01, 0, 0, 0, 9], // first fragment, then TCP
            &[0; 20],
        ]
        .concat();
        let bytes = packet(protocol::HOP_BY_HOP, &chain);
        let upper = Ipv6::new_checked(&bytes[..])
            .unwrap()
            .upper_layer()
            .unwrap();
        let expected = UpperLayer {
            protocol: 6,
            offset: 84,
            is_routed: false,
            is_fragment: true,
            fragment_offset: 0,
        };
        assert_eq!(upper, expected);
    }

    #[test]
    fn a_routing_header_counts_while_segments_are_left() {
        for left in [0, 2] {
            let bytes = packet(protocol::ROUTING, &[17, 0, 4, left, 0, 0, 0, 0]);
            let upper = Ipv6::new_checked(&bytes[..])
                .unwrap()
                .upper_layer()
                .unwrap();
            assert_eq!(
                (upper.protocol, upper.offset, upper.is_routed),
                (17, 48, left != 0)
            );
        }
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        let bytes = packet(
            protocol::FRAGMENT,
            &[60, 0, 0x05, 0xa9, 0, 0, 0, 9, 0xff, 0xff],
        );
        let upper = Ipv6::new_checked(&bytes[..])
            .unwrap()
            .upper_layer()
            .unwrap();
        assert_eq!(
            (upper.protocol, upper.offset, upper.fragment_offset),
            (60, 48, 1448)
        );
    }

    #[test]
    fn cut_and_endless_chains_are_refused() {
        let walk = |bytes: &[u8]| Ipv6::new_checked(bytes).unwrap().upper_layer().unwrap_err();
        assert_eq!(walk(&packet(60, &[6])), Malformed::Truncated(Layer::Ipv6));
        assert_eq!(
            walk(&packet(60, &[6, 1, 0, 0, 0, 0, 0, 0])),
            Malformed::HeaderLength(Layer::Ipv6)
        );
        let endless = [60, 0, 0, 0, 0, 0, 0, 0].repeat(MAX_EXTENSIONS + 1);
        assert_eq!(walk(&packet(60, &endless)), Malformed::TooDeep(Layer::Ipv6));
    }

    #[test]
    fn the_hop_limit_stops_at_one() {
        let mut bytes = packet(59, &[]);
        bytes[7] = 2;
        let mut ip = Ipv6::new_checked(&mut bytes[..]).unwrap();
        assert!(ip.decrement_hop_limit() && !ip.decrement_hop_limit());
        assert_eq!(ip.hop_limit(), 1);
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), next in 0u8..64) {
            if bytes.len() >= HEADER_LEN {
                bytes[0] = 0x60;
                bytes[4] = 0;
                bytes[6] = next;
            }
            if let Ok(ip) = Ipv6::new_checked(&bytes) {
                let _ = (ip.payload().len(), ip.to_string());
                if let Ok(upper) = ip.upper_layer() {
                    prop_assert!(upper.offset <= ip.total_len());
                    let _ = ip.pseudo_sum(&upper);
                }
            }
        }
    }
}
