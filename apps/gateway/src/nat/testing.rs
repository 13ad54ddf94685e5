//! Frames for tests, with checksums that another implementation made.

use std::net::IpAddr;

use etherparse::{
    IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpFragOffset, IpHeaders, IpNumber, Ipv4Header,
    Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder,
};
use linerate_wire::{Headers, parse, protocol};

use super::{Endpoint, Tuple};

/// A tuple from texts such as `10.0.0.1:4000` and `[2001:db8::1]:53`.
pub(super) fn tuple(src: &str, dst: &str, protocol: u8) -> Tuple {
    let end = |text: &str| {
        let at: std::net::SocketAddr = text.parse().unwrap();
        Endpoint::new(at.ip(), at.port())
    };
    Tuple {
        src: end(src),
        dst: end(dst),
        protocol,
    }
}

/// What a frame is like besides its tuple.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Like {
    /// Words of IPv4 options, or 8 bytes of IPv6 extension headers each.
    pub(super) options: usize,
    /// A fragment header that says "whole", in IPv6.
    pub(super) is_atomic: bool,
}

/// An Ethernet frame of that tuple: TCP, UDP, an ICMP echo request whose identifier is the source
/// port, or an unknown protocol.
pub(super) fn frame(tuple: &Tuple, payload: &[u8], like: Like) -> Vec<u8> {
    let number = match (tuple.protocol, tuple.src.address) {
        (protocol::ICMP | protocol::ICMPV6, IpAddr::V4(_)) => protocol::ICMP,
        (protocol::ICMP | protocol::ICMPV6, IpAddr::V6(_)) => protocol::ICMPV6,
        (number, _) => number,
    };
    let headers = match (tuple.src.address, tuple.dst.address) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (src, dst) = (src.octets(), dst.octets());
            let mut header = Ipv4Header::new(0, 64, IpNumber(number), src, dst).unwrap();
            header.options = [1; 40][..4 * like.options].try_into().unwrap();
            header.identification = 0x1234;
            header.dont_fragment = false;
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let (source, destination) = (src.octets(), dst.octets());
            let header = Ipv6Header {
                source,
                destination,
                hop_limit: 64,
                ..Default::default()
            };
            let mut extensions = Ipv6Extensions::default();
            if like.options > 0 {
                let bytes = &[1; 80][..8 * like.options - 2];
                extensions.destination_options =
                    Some(Ipv6RawExtHeader::new_raw(0.into(), bytes).unwrap());
            }
            if like.is_atomic {
                let (next, none) = (IpNumber(number), IpFragOffset::ZERO);
                extensions.fragment = Some(Ipv6FragmentHeader::new(next, none, false, 0xabcd));
            }
            IpHeaders::Ipv6(header, extensions)
        }
        _ => panic!("both ends are of one family"),
    };
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(headers);
    let (src, dst) = (tuple.src.port, tuple.dst.port);
    let echo = IcmpEchoHeader { id: src, seq: 7 };
    let mut out = Vec::new();
    match number {
        protocol::TCP => builder.tcp(src, dst, 77, 1024).write(&mut out, payload),
        protocol::UDP => builder.udp(src, dst).write(&mut out, payload),
        protocol::ICMP => builder
            .icmpv4(Icmpv4Type::EchoRequest(echo))
            .write(&mut out, payload),
        protocol::ICMPV6 => builder
            .icmpv6(Icmpv6Type::EchoRequest(echo))
            .write(&mut out, payload),
        other => builder.write(&mut out, IpNumber(other), payload),
    }
    .unwrap();
    out
}

/// An ICMP error of that type from `src` to `dst`, over the first bytes of the packet in `quoted`.
pub(super) fn error(src: IpAddr, dst: IpAddr, kind: u8, quoted: &[u8], len: usize) -> Vec<u8> {
    let packet = &quoted[14..];
    let quote = &packet[..len.min(packet.len())];
    let builder = PacketBuilder::ethernet2([4; 6], [2; 6]);
    let mut out = Vec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => builder
            .ipv4(src.octets(), dst.octets(), 60)
            .icmpv4_raw(kind, 1, [0, 0, 0x05, 0x14])
            .write(&mut out, quote),
        (IpAddr::V6(src), IpAddr::V6(dst)) => builder
            .ipv6(src.octets(), dst.octets(), 60)
            .icmpv6_raw(kind, 1, [0, 0, 0x05, 0x14])
            .write(&mut out, quote),
        _ => panic!("both ends are of one family"),
    }
    .unwrap();
    out
}

/// What was parsed of a frame, all of whose checksums are right.
#[track_caller]
pub(super) fn sound(frame: &[u8]) -> Headers {
    let headers = parse(frame).expect("a frame that parses");
    assert_ne!(headers.is_ipv4_right(frame), Some(false), "header checksum");
    assert_ne!(
        headers.is_l4_right(frame),
        Some(false),
        "transport checksum"
    );
    headers
}

/// The tuple of a frame, as tracking makes keys of it.
pub(super) fn tuple_of(frame: &[u8]) -> Tuple {
    let headers = parse(frame).expect("a frame that parses");
    let mut tuple = match headers.flow_key(frame).expect("it is IP") {
        linerate_wire::FlowKey::V4(key) => Tuple::from(&key),
        linerate_wire::FlowKey::V6(key) => Tuple::from(&key),
    };
    if let (Some(super::Protocol::Icmp), Some(l4)) = (tuple.ported(), headers.l4) {
        let identifier = u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]);
        (tuple.src.port, tuple.dst.port) = match frame[l4] {
            kind @ (8 | 128) => (identifier, kind.into()),
            0 => (8, identifier),
            129 => (128, identifier),
            _ => (0, 0),
        };
    }
    tuple
}
