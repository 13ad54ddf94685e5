//! A whole frame at once: where each header starts, or why it is malformed.
//!
//! For stages that need more than one layer. Filters walk on their own, because they must match
//! what is malformed too; bursts are parsed by the tables crate. What tunnels carry is found from
//! here by [`Headers::tunnel`] and [`parse_tunnelled`](crate::parse_tunnelled), what ICMP errors
//! quote by [`Headers::quoted`].

use crate::{
    EtherType, Malformed,
    bytes::be16,
    ipv4::Ipv4,
    ipv6::Ipv6,
    protocol,
    tcp::{self, Tcp},
    udp::Udp,
    vlan,
};

/// Where the headers of a packet lie. Offsets are in bytes from the start of the (outermost) frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// EtherType of the packet, behind any VLAN tags.
    pub ethertype: EtherType,
    /// Tag control information of the outermost VLAN tag.
    pub outer_tci: Option<u16>,
    /// Offset of the network header: of whatever the EtherType names.
    pub l3: usize,
    /// Where the network packet ends: padding lies beyond. The frame's length where it is not IP.
    pub end: usize,
    /// IP protocol of the upper layer, behind any IPv6 extension headers.
    pub protocol: Option<u8>,
    /// Whether this is a fragment of a datagram, the first included.
    pub is_fragment: bool,
    /// Offset of the upper-layer header; `None` where it is not IP, and in fragments other than
    /// the first.
    pub l4: Option<usize>,
    /// Source and destination port of TCP, UDP and SCTP.
    pub ports: Option<(u16, u16)>,
}

/// Which part of its datagram a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// All of it.
    No,
    /// The beginning, with the upper-layer header (or as much of it as was put there). An IPv6
    /// packet with a fragment header that is nevertheless whole (RFC 6946) counts as one.
    First,
    /// A later part, without upper-layer header.
    Later,
}

/// What classifiers ask of a parsed frame. `frame` is the one that was parsed; the answer for
/// another one is of no use, but is no panic either.
impl Headers {
    /// Whether this is a fragment, and which.
    #[inline]
    pub fn fragment(&self) -> Fragment {
        match (self.is_fragment, self.l4) {
            (false, _) => Fragment::No,
            (true, Some(_)) => Fragment::First,
            (true, None) => Fragment::Later,
        }
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474 3), of IPv4 or IPv6.
    #[inline]
    pub fn dscp(&self, frame: &[u8]) -> Option<u8> {
        let start = frame.get(self.l3..)?.first_chunk::<2>()?;
        match self.ethertype {
            EtherType::IPV4 => Some(start[1] >> 2),
            EtherType::IPV6 => Some((u16::from_be_bytes(*start) >> 6) as u8 & 0x3f),
            _ => None,
        }
    }

    /// The flags of a TCP header: bits of [`tcp::flag`]. `None` where it is not
    /// TCP, and where a fragment does not reach them.
    #[inline]
    pub fn tcp_flags(&self, frame: &[u8]) -> Option<u8> {
        if self.protocol != Some(protocol::TCP) {
            return None;
        }
        let segment = frame.get(self.l4?..self.end)?;
        segment.get(tcp::field::FLAGS).copied()
    }

    /// Type and code of an ICMP message in IPv4, or an ICMPv6 message in IPv6. `None` where it is
    /// neither, and where a fragment does not reach them.
    #[inline]
    pub fn icmp_type_code(&self, frame: &[u8]) -> Option<(u8, u8)> {
        match (self.ethertype, self.protocol?) {
            (EtherType::IPV4, protocol::ICMP) | (EtherType::IPV6, protocol::ICMPV6) => {
                let message = frame.get(self.l4?..self.end)?;
                message.first_chunk::<2>().map(|start| (start[0], start[1]))
            }
            _ => None,
        }
    }
}

/// Finds the headers of an Ethernet frame.
///
/// IP, TCP and UDP headers are checked for version and lengths, not for checksums. In a first
/// fragment the upper layer's lengths are those of the whole datagram and are not checked.
///
/// ```
/// let mut frame = [0u8; 60];
/// frame[12..14].copy_from_slice(&[0x08, 0x00]);
/// let reason = linerate_wire::parse(&frame).unwrap_err();
/// assert_eq!(reason.to_string(), "IPv4 header with a version or type not its own");
/// ```
#[inline]
pub fn parse(frame: &[u8]) -> Result<Headers, Malformed> {
    let vlan::Untagged {
        ethertype,
        offset,
        outer_tci,
    } = vlan::untagged(frame)?;
    packet_at(frame, ethertype, offset, outer_tci)
}

/// Finds the headers of what begins at `l3`. `frame` ends where that does, or its padding.
#[inline(always)]
pub(crate) fn packet_at(
    frame: &[u8],
    ethertype: EtherType,
    l3: usize,
    outer_tci: Option<u16>,
) -> Result<Headers, Malformed> {
    let mut headers = Headers {
        ethertype,
        outer_tci,
        l3,
        end: frame.len(),
        protocol: None,
        is_fragment: false,
        l4: None,
        ports: None,
    };
    let packet = &frame[l3..];
    match ethertype {
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet)?;
            headers.end = l3 + ip.total_len();
            headers.protocol = Some(ip.protocol());
            headers.is_fragment = ip.is_fragment();
            headers.l4 = (ip.fragment_offset() == 0).then_some(l3 + ip.header_len());
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new_checked(packet)?;
            let upper = ip.upper_layer()?;
            headers.end = l3 + ip.total_len();
            headers.protocol = Some(upper.protocol);
            headers.is_fragment = upper.is_fragment;
            headers.l4 = (upper.fragment_offset == 0).then_some(l3 + upper.offset);
        }
        _ => {}
    }
    if let (Some(l4), Some(protocol)) = (headers.l4, headers.protocol) {
        let segment = &frame[l4..headers.end];
        match protocol {
            protocol::TCP if !headers.is_fragment => _ = Tcp::new_checked(segment)?,
            protocol::UDP if !headers.is_fragment => _ = Udp::new_checked(segment)?,
            _ => {}
        }
        headers.ports = ports(protocol, segment);
    }
    Ok(headers)
}

/// The ports of a packet whose protocol has some, where they are there.
#[inline(always)]
pub(crate) fn ports(protocol: u8, segment: &[u8]) -> Option<(u16, u16)> {
    let has_ports = matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
    (has_ports && segment.len() >= 4).then(|| (be16(segment, 0), be16(segment, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn finds_tcp_behind_two_tags_and_ipv4_options() {
        let options = etherparse::Ipv4Options::try_from(&[1u8; 8][..]).unwrap();
        let mut ip =
            etherparse::Ipv4Header::new(0, 9, etherparse::IpNumber::TCP, [10; 4], [11; 4]).unwrap();
        ip.options = options;
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .double_vlan(100.try_into().unwrap(), 200.try_into().unwrap())
            .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .tcp(1000, 80, 7, 1024)
            .write(&mut frame, b"hello")
            .unwrap();
        frame.extend([0; 6]);
        let headers = parse(&frame).unwrap();
        let expected = Headers {
            ethertype: EtherType::IPV4,
            outer_tci: Some(100),
            l3: 22,
            end: frame.len() - 6,
            protocol: Some(protocol::TCP),
            is_fragment: false,
            l4: Some(50),
            ports: Some((1000, 80)),
        };
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_later_fragment_has_no_ports_and_a_first_one_is_not_measured() {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10; 4], [11; 4], 9)
            .udp(53, 54)
            .write(&mut frame, &[0; 8])
            .unwrap();
        frame[38..40].copy_from_slice(&3000u16.to_be_bytes()); // of the whole datagram
        assert_eq!(parse(&frame), Err(Malformed::TotalLength(Layer::Udp)));
        frame[20] = 0x20;
        let first = parse(&frame).unwrap();
        assert_eq!(
            (first.is_fragment, first.l4, first.ports),
            (true, Some(34), Some((53, 54)))
        );
        assert_eq!(first.fragment(), Fragment::First);
        frame[21] = 0xb9;
        let later = parse(&frame).unwrap();
        assert_eq!(
            (later.is_fragment, later.l4, later.ports),
            (true, None, None)
        );
        assert_eq!(later.fragment(), Fragment::Later);
    }

    #[test]
    fn classifiers_read_the_class_the_flags_and_the_type() {
        let build = |v6: bool, l4: u8| {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let ip = if v6 {
                builder.ipv6([10; 16], [11; 16], 9)
            } else {
                builder.ipv4([10; 4], [11; 4], 9)
            };
            let mut frame = Vec::new();
            match l4 {
                protocol::TCP => ip.tcp(1, 2, 3, 4).syn().write(&mut frame, &[]),
                _ if v6 => ip.icmpv6_raw(128, 0, [0; 4]).write(&mut frame, &[]),
                _ => ip.icmpv4_raw(3, 4, [0; 4]).write(&mut frame, &[]),
            }
            .unwrap();
            frame[if v6 { 20 } else { 23 }] = l4;
            (frame[14], frame[15]) = if v6 { (0x6b, 0x9f) } else { (0x45, 0xb9) }; // EF, ECT(1)
            let headers = parse(&frame).unwrap();
            assert_eq!(headers.dscp(&frame), Some(46));
            assert_eq!(headers.dscp(&frame[..15]), None);
            let answers = (headers.tcp_flags(&frame), headers.icmp_type_code(&frame));
            assert_eq!(headers.tcp_flags(&frame[..40]), None);
            assert_eq!(headers.icmp_type_code(&frame[..34]), None);
            answers
        };
        let syn = (Some(tcp::flag::SYN), None);
        assert_eq!(build(false, protocol::TCP), syn);
        assert_eq!(build(true, protocol::TCP), syn);
        assert_eq!(build(false, protocol::ICMP), (None, Some((3, 4))));
        assert_eq!(build(true, protocol::ICMPV6), (None, Some((128, 0))));
        assert_eq!(build(false, protocol::ICMPV6), (None, None)); // not in IPv4
    }

    #[test]
    fn other_ethertypes_have_no_upper_layer() {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        let headers = parse(&frame).unwrap();
        assert_eq!(
            (headers.l3, headers.end, headers.protocol, headers.l4),
            (14, 60, None, None)
        );
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(v6: bool, tcp: bool, vlan in prop::option::of(0u16..4096),
            ports: (u16, u16), payload: Vec<u8>, cut in 0usize..100) {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let ip = match (v6, vlan) {
                (false, None) => builder.ipv4([10; 4], [11; 4], 9),
                (true, None) => builder.ipv6([10; 16], [11; 16], 9),
                (false, Some(id)) => builder.single_vlan(id.try_into().unwrap()).ipv4([10; 4],
                    [11; 4], 9),
                (true, Some(id)) => builder.single_vlan(id.try_into().unwrap()).ipv6([10; 16],
                    [11; 16], 9),
            };
            let mut frame = Vec::new();
            if tcp {
                ip.tcp(ports.0, ports.1, 1, 2).write(&mut frame, &payload).unwrap();
            } else {
                ip.udp(ports.0, ports.1).write(&mut frame, &payload).unwrap();
            }
            let headers = parse(&frame).unwrap();
            prop_assert_eq!(headers.ports, Some(ports));
            prop_assert_eq!(headers.outer_tci, vlan);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let header = match sliced.transport.unwrap() {
                TransportSlice::Tcp(tcp) => tcp.slice().len(),
                TransportSlice::Udp(udp) => udp.slice().len(),
                _ => unreachable!(),
            };
            prop_assert_eq!(headers.end - headers.l4.unwrap(), header);
            let cut_frame = &frame[..frame.len().saturating_sub(1 + cut)];
            prop_assert!(parse(cut_frame).is_err());
        }

        #[test]
        fn never_panics(kind in 0usize..4, tail in prop::collection::vec(any::<u8>(), 0..120)) {
            let start = [[0x08, 0x00, 0x45], [0x86, 0xdd, 0x60], [0x81, 0x00, 0x01], [0x08, 0x00,
                0x4f]][kind];
            let frame = [&[0; 12][..], &start, &tail].concat();
            if let Ok(headers) = parse(&frame) {
                prop_assert!(headers.l3 <= headers.end && headers.end <= frame.len());
                prop_assert!(headers.l4.is_none_or(|l4| headers.l3 <= l4 && l4 <= headers.end));
            }
        }
    }
}
