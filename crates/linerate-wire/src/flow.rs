//! The key of a flow, in the order in which NICs hash it, and how parsed headers give one.

use core::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
};

use crate::{
    EtherType, Headers,
    bytes::{array, be16},
    ipv4, ipv6,
};

/// An IPv4 5-tuple as 16 bytes, all in network order: source and destination address, source and
/// destination port, protocol, a byte that is zero, and the zone, zero unless
/// [set](FlowKey4::set_zone): the same 5-tuple in two zones (two VRFs, say) is two flows.
///
/// The first 8 bytes are what RSS hashes for IPv4, the first 12 for TCP, UDP and SCTP over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FlowKey4(pub [u8; 16]);

/// An IPv6 5-tuple as 40 bytes, in the order of [`FlowKey4`]; RSS hashes the first 32 or 36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FlowKey6(pub [u8; 40]);

/// The key of a packet of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each variant is the IP version of that number
pub enum FlowKey {
    V4(FlowKey4),
    V6(FlowKey6),
}

impl FlowKey4 {
    /// The key of these fields, in zone 0.
    #[inline]
    pub fn new(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&src);
        key[4..8].copy_from_slice(&dst);
        key[8..10].copy_from_slice(&src_port.to_be_bytes());
        key[10..12].copy_from_slice(&dst_port.to_be_bytes());
        key[12] = protocol;
        Self(key)
    }

    /// The same flow seen from the other side.
    #[inline]
    pub fn reversed(self) -> Self {
        let k = self.0;
        Self([
            k[4], k[5], k[6], k[7], k[0], k[1], k[2], k[3], k[10], k[11], k[8], k[9], k[12], k[13],
            k[14], k[15],
        ])
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        array::<4>(&self.0, 0).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        array::<4>(&self.0, 4).into()
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(&self.0, 8)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(&self.0, 10)
    }

    /// IP protocol.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[12]
    }

    /// The zone.
    #[inline]
    pub fn zone(&self) -> u16 {
        be16(&self.0, 14)
    }

    /// Puts the flow into a zone: one store.
    #[inline]
    pub fn set_zone(&mut self, zone: u16) {
        self.0[14..16].copy_from_slice(&zone.to_be_bytes());
    }

    /// The same key in a zone.
    #[inline]
    #[must_use]
    pub fn in_zone(mut self, zone: u16) -> Self {
        self.set_zone(zone);
        self
    }
}

impl FlowKey6 {
    /// The key of these fields, in zone 0.
    #[inline]
    pub fn new(src: [u8; 16], dst: [u8; 16], src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let mut key = [0; 40];
        key[..16].copy_from_slice(&src);
        key[16..32].copy_from_slice(&dst);
        key[32..34].copy_from_slice(&src_port.to_be_bytes());
        key[34..36].copy_from_slice(&dst_port.to_be_bytes());
        key[36] = protocol;
        Self(key)
    }

    /// The same flow seen from the other side.
    #[inline]
    pub fn reversed(self) -> Self {
        let (mut key, k) = (self.0, self.0);
        key[..16].copy_from_slice(&k[16..32]);
        key[16..32].copy_from_slice(&k[..16]);
        key[32..34].copy_from_slice(&k[34..36]);
        key[34..36].copy_from_slice(&k[32..34]);
        Self(key)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        array::<16>(&self.0, 0).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        array::<16>(&self.0, 16).into()
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(&self.0, 32)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(&self.0, 34)
    }

    /// IP protocol of the upper layer.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[36]
    }

    /// The zone.
    #[inline]
    pub fn zone(&self) -> u16 {
        be16(&self.0, 38)
    }

    /// Puts the flow into a zone: one store.
    #[inline]
    pub fn set_zone(&mut self, zone: u16) {
        self.0[38..40].copy_from_slice(&zone.to_be_bytes());
    }

    /// The same key in a zone.
    #[inline]
    #[must_use]
    pub fn in_zone(mut self, zone: u16) -> Self {
        self.set_zone(zone);
        self
    }
}

impl Default for FlowKey6 {
    fn default() -> Self {
        Self([0; 40])
    }
}

impl FlowKey {
    /// The same flow seen from the other side.
    #[inline]
    pub fn reversed(self) -> Self {
        match self {
            FlowKey::V4(key) => FlowKey::V4(key.reversed()),
            FlowKey::V6(key) => FlowKey::V6(key.reversed()),
        }
    }
}

impl Headers {
    /// The flow that the packet belongs to; `frame` is the one that was parsed. `None` where it is
    /// neither IPv4 nor IPv6.
    ///
    /// The ports are zero where the protocol has none, and in every fragment, the first included:
    /// so all fragments of a datagram have one key (NICs too hash them on addresses alone). Only
    /// where IPv6 extension headers follow the fragment header do they not: later fragments name
    /// the extension, the first one what is behind it.
    ///
    /// ```
    /// # use linerate_wire::{FlowKey, FlowKey4, parse};
    /// let mut frame = [0; 42]; // UDP 10.0.0.1:53 > 10.0.0.2:4000
    /// frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    /// frame[26..39].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 15, 160, 0]);
    /// frame[39] = 8;
    /// let key = FlowKey4::new([10, 0, 0, 1], [10, 0, 0, 2], 53, 4000, 17);
    /// assert_eq!(parse(&frame)?.flow_key(&frame), Some(FlowKey::V4(key)));
    /// # Ok::<(), linerate_wire::Malformed>(())
    /// ```
    #[inline]
    pub fn flow_key(&self, frame: &[u8]) -> Option<FlowKey> {
        let packet = frame.get(self.l3..)?;
        let ports = self.ports.filter(|_| !self.is_fragment);
        flow_key_of(self.ethertype, packet, self.protocol?, ports)
    }
}

/// The key of the IP packet that `packet` begins with.
#[inline]
pub(crate) fn flow_key_of(
    ethertype: EtherType,
    packet: &[u8],
    protocol: u8,
    ports: Option<(u16, u16)>,
) -> Option<FlowKey> {
    let (src_port, dst_port) = ports.unwrap_or_default();
    match ethertype {
        EtherType::IPV4 => {
            let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let (src, dst) = (
                array(header, ipv4::field::SRC),
                array(header, ipv4::field::DST),
            );
            let key = FlowKey4::new(src, dst, src_port, dst_port, protocol);
            Some(FlowKey::V4(key))
        }
        EtherType::IPV6 => {
            let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let (src, dst) = (
                array(header, ipv6::field::SRC),
                array(header, ipv6::field::DST),
            );
            let key = FlowKey6::new(src, dst, src_port, dst_port, protocol);
            Some(FlowKey::V6(key))
        }
        _ => None,
    }
}

impl fmt::Display for FlowKey4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = SocketAddrV4::new(self.src(), self.src_port());
        let dst = SocketAddrV4::new(self.dst(), self.dst_port());
        write!(f, "{src} > {dst} proto {}", self.protocol())
    }
}

impl fmt::Display for FlowKey6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = SocketAddrV6::new(self.src(), self.src_port(), 0, 0);
        let dst = SocketAddrV6::new(self.dst(), self.dst_port(), 0, 0);
        write!(f, "{src} > {dst} proto {}", self.protocol())
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowKey::V4(key) => key.fmt(f),
            FlowKey::V6(key) => key.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, protocol};
    use etherparse::PacketBuilder;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn reversing_twice_is_the_same_flow() {
        let v4 = FlowKey4::new([1, 2, 3, 4], [5, 6, 7, 8], 0x090a, 0x0b0c, 6);
        let expected = [5, 6, 7, 8, 1, 2, 3, 4, 11, 12, 9, 10, 6, 0, 0, 0];
        assert_eq!((v4.reversed().0, v4.reversed().reversed()), (expected, v4));
        let v6 = FlowKey6::new([1; 16], [2; 16], 3, 4, 17);
        assert_eq!(v6.reversed(), FlowKey6::new([2; 16], [1; 16], 4, 3, 17));
        assert_eq!(
            FlowKey::V6(v6).reversed().reversed().to_string(),
            v6.to_string()
        );
        assert_eq!(v4.to_string(), "1.2.3.4:2314 > 5.6.7.8:2828 proto 6");
    }

    /// A zone makes another key, whose other direction is in the same zone.
    #[test]
    fn a_zone_is_part_of_the_key_in_both_directions() {
        let v4 = FlowKey4::new([1, 2, 3, 4], [5, 6, 7, 8], 9, 10, 6);
        let v6 = FlowKey6::new([1; 16], [2; 16], 3, 4, 17);
        assert_eq!((v4.zone(), v6.zone()), (0, 0));
        let (here, there) = (v4.in_zone(0x0102), v6.in_zone(0xffff));
        assert_eq!(here.0[12..], [6, 0, 1, 2]);
        assert_eq!(there.0[36..], [17, 0, 0xff, 0xff]);
        assert_eq!((here.zone(), there.zone()), (0x0102, 0xffff));
        assert_eq!(here.reversed(), v4.reversed().in_zone(0x0102));
        assert_eq!(there.reversed(), v6.reversed().in_zone(0xffff));
        assert_eq!((here.protocol(), there.protocol()), (6, 17));
        assert_eq!((here.in_zone(0), there.in_zone(0)), (v4, v6));
    }

    #[test]
    fn all_fragments_of_a_datagram_have_one_key() {
        let mut frame = std::vec::Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10; 4], [11; 4], 9)
            .udp(53, 54)
            .write(&mut frame, &[0; 8])
            .unwrap();
        let key = |frame: &[u8]| parse(frame).unwrap().flow_key(frame).unwrap();
        let ports = |src, dst| FlowKey::V4(FlowKey4::new([10; 4], [11; 4], src, dst, 17));
        assert_eq!(key(&frame), ports(53, 54));
        frame[20] = 0x20; // the first
        assert_eq!(key(&frame), ports(0, 0));
        frame[20..22].copy_from_slice(&[0, 185]); // the last
        assert_eq!(key(&frame), ports(0, 0));
    }

    #[test]
    fn what_is_not_ip_and_the_wrong_frame_have_no_key() {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        assert_eq!(parse(&frame).unwrap().flow_key(&frame), None);
        frame[12..17].copy_from_slice(&[8, 0, 0x45, 0, 0]);
        frame[17] = 20;
        let headers = parse(&frame).unwrap();
        assert!(headers.flow_key(&frame).is_some());
        assert_eq!(headers.flow_key(&frame[..33]), None);
        assert_eq!(headers.flow_key(&[]), None);
    }

    proptest! {
        #[test]
        fn keys_hold_what_was_built(v6: bool, tcp: bool, src: [u8; 16], dst: [u8; 16], ports: (u16,
            u16)) {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let (src4, dst4) = (array(&src, 0), array(&dst, 0));
            let ip = if v6 { builder.ipv6(src, dst, 9) } else { builder.ipv4(src4, dst4, 9) };
            let mut frame = std::vec::Vec::new();
            let protocol = if tcp {
                ip.tcp(ports.0, ports.1, 1, 2).write(&mut frame, &[]).unwrap();
                protocol::TCP
            } else {
                ip.udp(ports.0, ports.1).write(&mut frame, &[]).unwrap();
                protocol::UDP
            };
            let key = parse(&frame).unwrap().flow_key(&frame).unwrap();
            let expected = if v6 {
                FlowKey::V6(FlowKey6::new(src, dst, ports.0, ports.1, protocol))
            } else {
                FlowKey::V4(FlowKey4::new(src4, dst4, ports.0, ports.1, protocol))
            };
            prop_assert_eq!(key, expected);
            let (read, wanted) = match key {
                FlowKey::V4(k) => ((k.src().octets().to_vec(), k.src_port(), k.dst_port(),
                    k.protocol()), src4.to_vec()),
                FlowKey::V6(k) => ((k.src().octets().to_vec(), k.src_port(), k.dst_port(),
                    k.protocol()), src.to_vec()),
            };
            prop_assert_eq!(read, (wanted, ports.0, ports.1, protocol));
        }
    }
}
