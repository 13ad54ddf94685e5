//! Frames with users' packets, in bursts: from S1-U (or S5-U) to SGi, and back.
//!
//! Both ways take two passes: one reads headers and asks for the lines of the tunnels, the other
//! finds them in the cache. What is not the common case (extension headers, signalling, unknown
//! tunnels, packets that do not fit) stays behind unchanged, for the slow path.

use super::{Refused, Tunnel, Tunnels};
use linerate_core::arch::prefetch_write;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_wire::{checksum, gtpu, ipv4, protocol, udp};
use std::net::Ipv4Addr;

const ETHERNET: usize = 14;
/// Outer IPv4, UDP and GTP-U.
const OUTER: usize = ipv4::HEADER_LEN + udp::HEADER_LEN + gtpu::HEADER_LEN;
const GTPU_AT: usize = ETHERNET + ipv4::HEADER_LEN + udp::HEADER_LEN;
const INNER_AT: usize = ETHERNET + OUTER;
/// As many packets as a burst has.
const BURST: usize = 64;

/// What one call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Packets that went through.
    pub packets: usize,
    /// Packets that stayed behind.
    pub left: usize,
}

/// Addresses between which users' packets move.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Our address of GTP-U.
    pub own: Ipv4Addr,
    /// Destination and source address, and type, of frames to SGi.
    pub to_net: [u8; 14],
    /// The same, of frames to base stations or gateways.
    pub to_peers: [u8; 14],
    /// The longest IP packet to peers, in bytes.
    pub mtu: usize,
}

impl Plane {
    /// Takes users' packets out of their tunnels. Frames in `burst` become those packets behind
    /// [`to_net`](Self::to_net); the rest goes to `rest`, as it came.
    ///
    /// An outer checksum that the port has not checked is checked here where it is not 0.
    pub fn decapsulate(&self, tunnels: &mut Tunnels, burst: &mut Burst, rest: &mut Burst) -> Moved {
        let own = self.own.octets();
        let mut teids = [0_u32; BURST];
        for (packet, teid) in burst.iter().zip(&mut teids) {
            *teid = teid_of(packet, own);
            let index = tunnels.space.index(*teid) as usize;
            if let Some(tunnel) = tunnels.entries.get(index) {
                prefetch_write(tunnel);
            }
        }
        let mut teids = teids.iter();
        burst.retain(rest, |packet| {
            let teid = teids.next().copied().unwrap_or_default();
            if teid == 0 {
                return false;
            }
            let inner = &packet.data()[INNER_AT..];
            let source = [inner[12], inner[13], inner[14], inner[15]];
            let len = inner_len(inner);
            let Some(tunnel) = tunnels.of_id(teid) else {
                tunnels.refusals.count(Refused::Unknown);
                return false;
            };
            if tunnel.user != source {
                tunnels.refusals.count(Refused::Spoofed);
                return false;
            }
            tunnel.up.count(len);
            // The frame's own header goes where the last of GTP-U's was.
            if !packet.trim_front(OUTER) {
                return false;
            }
            packet.truncate(ETHERNET + len);
            packet.data_mut()[..ETHERNET].copy_from_slice(&self.to_net);
            // What is known was of the outer headers.
            packet.meta_mut().offload.remove(Offload::CSUM_VALID);
            true
        });
        moved(burst, rest)
    }

    /// Puts users' packets into their tunnels. Frames in `burst` get the headers of a G-PDU behind
    /// [`to_peers`](Self::to_peers); the rest goes to `rest`, as it came.
    pub fn encapsulate(&self, tunnels: &mut Tunnels, burst: &mut Burst, rest: &mut Burst) -> Moved {
        let mut users = [None; BURST];
        for (packet, user) in burst.iter().zip(&mut users) {
            *user = user_of(packet);
            if let Some(user) = *user {
                let index = tunnels.pool.index(tunnels.core, user);
                if let Some(tunnel) = tunnels.entries.get(index) {
                    prefetch_write(tunnel);
                }
            }
        }
        let template = self.template();
        let mut users = users.iter();
        burst.retain(rest, |packet| {
            let Some(user) = users.next().copied().flatten() else {
                return false;
            };
            let len = inner_len(&packet.data()[ETHERNET..]);
            if OUTER + len > self.mtu || packet.headroom() < OUTER {
                return false;
            }
            let Some(tunnel) = tunnels.of_user(user) else {
                tunnels.refusals.count(Refused::Unknown);
                return false;
            };
            tunnel.down.count(len);
            packet.truncate(ETHERNET + len);
            let tunnel = *tunnel;
            let Some(headers) = packet.prepend(OUTER) else {
                return false;
            };
            debug_assert_eq!(headers.len(), OUTER);
            let headers = &mut packet.data_mut()[..INNER_AT];
            headers.copy_from_slice(&template.bytes);
            fill(headers, &template, &tunnel, len);
            true
        });
        moved(burst, rest)
    }

    /// All headers, but for what differs between packets: lengths, the peer's address, the sum.
    fn template(&self) -> Template {
        let mut bytes = [0; INNER_AT];
        bytes[..ETHERNET].copy_from_slice(&self.to_peers);
        let ip = &mut bytes[ETHERNET..ETHERNET + ipv4::HEADER_LEN];
        // Not to be fragmented, so no identification is needed (RFC 6864 4.1).
        ip[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol::UDP, 0, 0]);
        ip[12..16].copy_from_slice(&self.own.octets());
        let sum = checksum::sum(ip);
        let ports = gtpu::PORT.to_be_bytes();
        let udp = &mut bytes[ETHERNET + ipv4::HEADER_LEN..GTPU_AT];
        udp[..2].copy_from_slice(&ports);
        udp[2..4].copy_from_slice(&ports);
        bytes[GTPU_AT..].copy_from_slice(&gtpu::header(0, 0));
        Template { bytes, sum }
    }
}

struct Template {
    bytes: [u8; INNER_AT],
    /// Of the IPv4 header, without length and destination.
    sum: u16,
}

/// Fills lengths, addresses and identifier in. The UDP checksum stays 0: over IPv4 it may
/// (TS 29.281 4.4.2, RFC 768), and the user's packet has its own.
#[inline]
fn fill(headers: &mut [u8], template: &Template, tunnel: &Tunnel, len: usize) {
    let total = ((OUTER + len) as u16).to_be_bytes();
    let udp_len = ((OUTER - ipv4::HEADER_LEN + len) as u16).to_be_bytes();
    let ip = ETHERNET;
    headers[ip + 2..ip + 4].copy_from_slice(&total);
    headers[ip + 16..ip + 20].copy_from_slice(&tunnel.peer_address);
    let [a, b, c, d] = tunnel.peer_address;
    let words = [total, [a, b], [c, d]].map(|word| u32::from(u16::from_be_bytes(word)));
    let mut sum = u32::from(template.sum) + words.iter().sum::<u32>();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    headers[ip + 10..ip + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let udp = ip + ipv4::HEADER_LEN;
    headers[udp + 4..udp + 6].copy_from_slice(&udp_len);
    headers[GTPU_AT + 2..GTPU_AT + 4].copy_from_slice(&(len as u16).to_be_bytes());
    headers[GTPU_AT + 4..GTPU_AT + 8].copy_from_slice(&tunnel.peer.to_be_bytes());
}

fn moved(burst: &Burst, rest: &Burst) -> Moved {
    Moved {
        packets: burst.len(),
        left: rest.len(),
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Total length of an inner IPv4 packet whose header is there.
#[inline]
fn inner_len(inner: &[u8]) -> usize {
    word(inner, 2)
}

/// The tunnel of a frame in the common form: IPv4 without options, whole, to us; UDP; a G-PDU
/// without optional fields; IPv4 in it. All lengths agree. 0 for any other.
#[inline]
fn teid_of(packet: &Packet, own: [u8; 4]) -> u32 {
    let b = packet.data();
    if b.len() < INNER_AT + ipv4::HEADER_LEN {
        return 0;
    }
    let is_common = b[12..15] == [0x08, 0x00, 0x45]
        && word(b, ETHERNET + 6) & 0x3fff == 0
        && b[ETHERNET + 9] == protocol::UDP
        && b[ETHERNET + 16..ETHERNET + 20] == own
        && word(b, GTPU_AT - 6) == usize::from(gtpu::PORT)
        && b[GTPU_AT..GTPU_AT + 2] == [0x30, gtpu::message::G_PDU]
        && b[INNER_AT] >> 4 == 4;
    let total = word(b, ETHERNET + 2);
    let inner = word(b, GTPU_AT + 2);
    let is_sound = ETHERNET + total <= b.len()
        && total == OUTER + inner
        && word(b, GTPU_AT - 4) == OUTER - ipv4::HEADER_LEN + inner
        && (ipv4::HEADER_LEN..=inner).contains(&inner_len(&b[INNER_AT..]));
    if !is_common || !is_sound || !is_intact(packet, ETHERNET + total) {
        return 0;
    }
    let [m, n, o, p] = [4, 5, 6, 7].map(|at| b[GTPU_AT + at]);
    u32::from_be_bytes([m, n, o, p])
}

/// Whether the outer checksums are right, or there is none.
#[inline]
fn is_intact(packet: &Packet, end: usize) -> bool {
    let b = packet.data();
    let ip = &b[ETHERNET..ETHERNET + ipv4::HEADER_LEN];
    if checksum::sum(ip) != 0xffff {
        return false;
    }
    let has_none = word(b, GTPU_AT - 2) == 0;
    let offload = packet.meta().offload;
    if has_none || offload.intersects(Offload::CSUM_VALID | Offload::CSUM_PARTIAL) {
        return true;
    }
    let datagram = &b[ETHERNET + ipv4::HEADER_LEN..end];
    let addresses = checksum::sum(&ip[12..20]);
    let rest = u16::from(protocol::UDP).wrapping_add(datagram.len() as u16);
    let pseudo = checksum::add(addresses, rest);
    checksum::add(pseudo, checksum::sum(datagram)) == 0xffff
}

/// The user that a frame goes to: an IPv4 packet, whole and in one piece of memory.
#[inline]
fn user_of(packet: &Packet) -> Option<[u8; 4]> {
    let b = packet.data();
    if b.len() < ETHERNET + ipv4::HEADER_LEN || b[12..14] != [0x08, 0x00] {
        return None;
    }
    let inner = &b[ETHERNET..];
    let header_len = usize::from(inner[0] & 0x0f) * 4;
    let is_sound = inner[0] >> 4 == 4
        && header_len >= ipv4::HEADER_LEN
        && (header_len..=inner.len()).contains(&inner_len(inner))
        && !packet
            .meta()
            .offload
            .intersects(Offload::GSO | Offload::CSUM_PARTIAL);
    let address = [inner[16], inner[17], inner[18], inner[19]];
    is_sound.then_some(address)
}
