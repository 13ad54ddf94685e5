//! The headers of users' packets, with and without a tunnel's: which are in the common form, and
//! how those of a G-PDU are written.

use super::handed::End;
use linerate_core::packet::{Offload, Packet};
use linerate_wire::{checksum, ethernet, gtpu, ipv4, protocol, udp};

pub(super) const ETHERNET: usize = ethernet::HEADER_LEN;
/// Outer IPv4, UDP and GTP-U.
pub(super) const OUTER: usize = ipv4::HEADER_LEN + udp::HEADER_LEN + gtpu::HEADER_LEN;
const GTPU_AT: usize = ETHERNET + ipv4::HEADER_LEN + udp::HEADER_LEN;
pub(super) const INNER_AT: usize = ETHERNET + OUTER;
/// Frames that are looked at have so many bytes: all headers, and the user's IPv4 header.
const HEADERS: usize = INNER_AT + ipv4::HEADER_LEN;

/// The EtherType of IPv4.
pub(super) const IPV4: [u8; 2] = ethernet::EtherType::IPV4.0.to_be_bytes();

/// All headers, but for what differs between packets: lengths, addresses, identifier and sum. Not
/// to be fragmented, so that no identification is needed (RFC 6864 4.1).
const TEMPLATE: [u8; INNER_AT] = {
    let mut bytes = [0; INNER_AT];
    [bytes[12], bytes[13]] = IPV4;
    let [high, low] = gtpu::PORT.to_be_bytes();
    (bytes[14], bytes[20], bytes[22], bytes[23]) = (0x45, 0x40, 64, protocol::UDP);
    (bytes[34], bytes[35], bytes[36], bytes[37]) = (high, low, high, low);
    // TS 29.281 5.1: version 1, GTP and not GTP', nothing optional.
    (bytes[GTPU_AT], bytes[GTPU_AT + 1]) = (0x30, gtpu::message::G_PDU);
    bytes
};

/// Sum of the words of its IPv4 header.
const TEMPLATE_SUM: u64 = 0x4500 + 0x4000 + (64 << 8 | protocol::UDP as u64);

/// Writes the headers of a G-PDU, which fills the frame, to the peer's end. The UDP checksum is 0:
/// over IPv4 it may be (TS 29.281 4.4.2, RFC 768), and the user's packet has its own.
#[inline]
pub(super) fn write_headers(packet: &mut Packet, end: &End) {
    forget(packet);
    let total = packet.len() - ETHERNET;
    let Some(headers) = packet.data_mut().first_chunk_mut::<INNER_AT>() else {
        return;
    };
    *headers = TEMPLATE;
    let length = |bytes: usize| (bytes as u16).to_be_bytes();
    let addresses = [end.from, end.to].map(|address| u64::from(u32::from_be_bytes(address)));
    let sum = checksum::fold(TEMPLATE_SUM + total as u64 + addresses[0] + addresses[1]);
    let ip = ETHERNET;
    headers[ip + 2..ip + 4].copy_from_slice(&length(total));
    headers[ip + 10..ip + 12].copy_from_slice(&(!sum).to_be_bytes());
    headers[ip + 12..ip + 16].copy_from_slice(&end.from);
    headers[ip + 16..ip + 20].copy_from_slice(&end.to);
    let udp = ip + ipv4::HEADER_LEN;
    headers[udp + 4..udp + 6].copy_from_slice(&length(total - ipv4::HEADER_LEN));
    headers[GTPU_AT + 2..GTPU_AT + 4].copy_from_slice(&length(total - OUTER));
    headers[GTPU_AT + 4..GTPU_AT + 8].copy_from_slice(&end.teid.to_be_bytes());
}

#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(address(bytes, at))
}

/// Whether only the slow path takes a frame: one to be cut, or one that had a VLAN tag.
#[inline]
fn is_odd(packet: &Packet) -> bool {
    let odd = Offload::GSO | Offload::VLAN | Offload::VLAN_8021AD;
    packet.meta().offload.intersects(odd)
}

/// What is known of a frame as it came is not so of what becomes of it.
#[inline]
pub(super) fn forget(packet: &mut Packet) {
    let received = Offload::CSUM_PARTIAL | Offload::CSUM_VALID | Offload::RSS;
    packet.meta_mut().offload.remove(received);
}

#[inline]
pub(super) fn address(ip: &[u8], at: usize) -> [u8; 4] {
    [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]
}

/// Whether a user's packet of at most so many bytes is in the common form: IPv4 without options,
/// whole, with a header that is right (RFC 1812 5.2.2), to a single host.
#[inline]
pub(super) fn is_plain(header: &[u8; ipv4::HEADER_LEN], most: usize) -> bool {
    header[0] == 0x45
        && word(header, 6) & 0x3fff == 0
        && (ipv4::HEADER_LEN..=most).contains(&word(header, 2))
        // RFC 1122 3.2.1.3: 0, 127, groups and what is reserved.
        && !matches!(header[16], 0 | 127 | 224..)
        && is_right(header)
}

/// Whether the checksum of an IPv4 header without options is right (RFC 1071).
#[inline]
fn is_right(header: &[u8; ipv4::HEADER_LEN]) -> bool {
    let sum: u64 = [0, 4, 8, 12, 16]
        .map(|at| u64::from(be32(header, at)))
        .iter()
        .sum();
    // 2^16 is 1 of this modulus, so that words of 32 bits count as their halves. The version is
    // not 0, so that the sum is not.
    sum.is_multiple_of(0xffff)
}

/// The tunnel of a frame in the common form: IPv4 without options, whole, to us; UDP; a G-PDU
/// without optional fields, with at least an IP header in it. All lengths agree. 0 for any other.
#[inline]
pub(super) fn teid_of(packet: &Packet, own: [u8; 4]) -> u32 {
    let Some(b) = packet.data().first_chunk::<HEADERS>() else {
        return 0;
    };
    // Words of 32 bits, which is a third of the instructions that bytes take.
    let is_common = be32(b, 12) & 0xffff_ff00 == 0x0800_4500
        && be32(b, ETHERNET + 6) & 0x3fff_00ff == u32::from(protocol::UDP)
        && be32(b, ETHERNET + 16) == u32::from_be_bytes(own)
        && be32(b, GTPU_AT - 8) & 0xffff == u32::from(gtpu::PORT)
        && be32(b, GTPU_AT) >> 16 == u32::from_be_bytes([0, 0, 0x30, gtpu::message::G_PDU]);
    let total = word(b, ETHERNET + 2);
    let inner = word(b, GTPU_AT + 2);
    let is_sound = ETHERNET + total <= packet.len()
        && total == OUTER + inner
        && inner >= ipv4::HEADER_LEN
        && word(b, GTPU_AT - 4) == OUTER - ipv4::HEADER_LEN + inner
        && b[ETHERNET..].first_chunk().is_some_and(is_right);
    if !is_common || !is_sound || is_odd(packet) {
        return 0;
    }
    // RFC 768: 0 is no checksum.
    let is_intact = word(b, GTPU_AT - 2) == 0 || is_intact(packet, ETHERNET + total);
    match is_intact {
        true => be32(b, GTPU_AT + 4),
        false => 0,
    }
}

/// Whether the outer UDP checksum is right.
#[cold]
fn is_intact(packet: &Packet, end: usize) -> bool {
    let offload = packet.meta().offload;
    if offload.intersects(Offload::CSUM_VALID | Offload::CSUM_PARTIAL) {
        return true;
    }
    let b = packet.data();
    let datagram = &b[ETHERNET + ipv4::HEADER_LEN..end];
    let addresses = checksum::sum(&b[ETHERNET + 12..ETHERNET + 20]);
    let rest = u16::from(protocol::UDP).wrapping_add(datagram.len() as u16);
    let pseudo = checksum::add(addresses, rest);
    checksum::add(pseudo, checksum::sum(datagram)) == 0xffff
}

/// The user that a frame goes to: an IPv4 packet, whole and in one piece of memory.
#[inline]
pub(super) fn user_of(packet: &Packet) -> Option<[u8; 4]> {
    let b = packet.data();
    if b.len() < ETHERNET + ipv4::HEADER_LEN || b[12..14] != IPV4 {
        return None;
    }
    let inner = &b[ETHERNET..];
    let header_len = usize::from(inner[0] & 0x0f) * 4;
    let is_sound = inner[0] >> 4 == 4
        && header_len >= ipv4::HEADER_LEN
        && (header_len..=inner.len()).contains(&word(inner, 2))
        && checksum::sum(&inner[..header_len]) == 0xffff
        && !is_odd(packet)
        && !packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
    is_sound.then_some(address(inner, 16))
}
