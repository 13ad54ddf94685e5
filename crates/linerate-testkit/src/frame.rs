//! Packets made by hand, by the RFCs and by nothing of linerate's: what it does is judged by them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A MAC address.
pub type Mac = [u8; 6];

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMP6: u8 = 58;
/// To all on the link.
pub const BROADCAST: Mac = [0xff; 6];

/// A MAC address as commands and configurations have it.
pub fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// An Ethernet frame, not padded.
pub fn ethernet(dst: Mac, src: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &ethertype.to_be_bytes(), payload].concat()
}

/// The same frame with an 802.1Q tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tag = [0x8100_u16.to_be_bytes(), vlan.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words =
        words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into()));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 header (RFC 791).
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as the RFC names them
pub struct V4 {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub ttl: u8,
    pub protocol: u8,
    pub id: u16,
    /// DF is 0x4000, MF 0x2000; the rest the offset in 8 bytes.
    pub fragment: u16,
    pub tos: u8,
    /// A multiple of four bytes.
    pub options: Vec<u8>,
}

/// Don't fragment.
pub const DF: u16 = 0x4000;
/// More fragments.
pub const MF: u16 = 0x2000;

impl V4 {
    /// With a life of 64 hops, and all else zero.
    pub fn new(src: &str, dst: &str, protocol: u8) -> Self {
        Self {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            ttl: 64,
            protocol,
            id: 0,
            fragment: 0,
            tos: 0,
            options: Vec::new(),
        }
    }

    /// The packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total = (header_len + payload.len()) as u16;
        let mut packet = vec![0x40 | (header_len / 4) as u8, self.tos];
        packet.extend(total.to_be_bytes());
        packet.extend(self.id.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.protocol, 0, 0]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        packet.extend(&self.options);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }

    /// What transport checksums cover besides.
    pub fn pseudo(&self) -> Vec<u8> {
        [self.src.octets(), self.dst.octets()].concat()
    }
}

/// An IPv6 header (RFC 8200).
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as the RFC names them
pub struct V6 {
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
    pub hop_limit: u8,
    pub next: u8,
    pub class: u8,
    pub flow: u32,
}

impl V6 {
    /// With a life of 64 hops, and all else zero.
    pub fn new(src: &str, dst: &str, next: u8) -> Self {
        Self {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            hop_limit: 64,
            next,
            class: 0,
            flow: 0,
        }
    }

    /// The packet with this payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.class) << 20 | self.flow & 0xf_ffff;
        let mut packet = first.to_be_bytes().to_vec();
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([self.next, self.hop_limit]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        packet.extend(payload);
        packet
    }

    /// What transport checksums cover besides.
    pub fn pseudo(&self) -> Vec<u8> {
        [self.src.octets(), self.dst.octets()].concat()
    }
}

/// A transport payload whose checksum, at a place, covers it and a pseudo header.
pub fn summed(pseudo: &[u8], protocol: u8, mut segment: Vec<u8>, at: usize) -> Vec<u8> {
    let len = (segment.len() as u32).to_be_bytes();
    let covered = [pseudo, &len, &[0, 0, 0, protocol], &segment].concat();
    let sum = match checksum(&covered) {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// A UDP datagram (RFC 768); `pseudo` are both addresses.
pub fn udp(pseudo: &[u8], src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut segment = [src_port, dst_port, 8 + payload.len() as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    segment.extend(payload);
    summed(pseudo, UDP, segment, 6)
}

/// A TCP segment with ACK (RFC 9293).
pub fn tcp(pseudo: &[u8], src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut segment = [src_port, dst_port].map(u16::to_be_bytes).concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(payload);
    summed(pseudo, TCP, segment, 16)
}

/// An ICMP echo request (RFC 792).
pub fn echo(id: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0];
    message.extend([id, sequence].map(u16::to_be_bytes).concat());
    message.extend(payload);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// An ICMPv6 echo request (RFC 4443).
pub fn echo6(pseudo: &[u8], id: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![128, 0, 0, 0];
    message.extend([id, sequence].map(u16::to_be_bytes).concat());
    message.extend(payload);
    summed(pseudo, ICMP6, message, 2)
}

/// An ARP packet (RFC 826) for IPv4 over Ethernet; operation 1 asks, 2 answers.
pub fn arp(operation: u16, sender: (Mac, &str), target: (Mac, &str)) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    for (mac, text) in [sender, target] {
        packet.extend(mac);
        packet.extend(address(text));
    }
    packet
}

/// What a router sends for a plain IP packet that it got: other MAC addresses, TTL or hop limit
/// one less, the header's checksum anew, and nothing behind the packet's end.
pub fn forwarded(frame: &[u8], dst: Mac, src: Mac) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    if packet[0] >> 4 == 4 {
        packet.truncate(u16::from_be_bytes([packet[2], packet[3]]).into());
        packet[8] -= 1;
        packet[10..12].fill(0);
        let header = usize::from(packet[0] & 15) * 4;
        let sum = checksum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet.truncate(40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])));
        packet[7] -= 1;
    }
    [&dst[..], &src, &frame[12..14], &packet].concat()
}
