//! Frames with users' packets, in bursts: from S1-U (or S5-U) to SGi, and back; and from one tunnel
//! into another.
//!
//! All ways take two passes: one reads headers and asks for the lines of the tunnels, the other
//! finds them in the cache. What is not the common case (extension headers, signalling, unknown
//! tunnels, packets that do not fit) stays behind unchanged, for the slow path, which counts it.

use super::Tunnels;
use linerate_core::arch::prefetch_write;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_wire::{checksum, ethernet, gtpu, ipv4, protocol, udp};
use std::net::Ipv4Addr;

const ETHERNET: usize = ethernet::HEADER_LEN;
/// Outer IPv4, UDP and GTP-U.
const OUTER: usize = ipv4::HEADER_LEN + udp::HEADER_LEN + gtpu::HEADER_LEN;
const GTPU_AT: usize = ETHERNET + ipv4::HEADER_LEN + udp::HEADER_LEN;
const INNER_AT: usize = ETHERNET + OUTER;
/// As many packets as a burst has.
const BURST: usize = Burst::CAPACITY;

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The longest IP packet that it takes, in bytes.
    pub mtu: usize,
    /// The address is of this host itself.
    pub is_own: bool,
}

/// Who knows the ways to addresses.
pub trait Ways {
    /// The way to an address, if there is one.
    fn way(&mut self, to: [u8; 4]) -> Option<Way>;
}

/// Tunnels that go on in others.
pub(crate) trait Joined {
    /// Asks for the memory of a tunnel that is looked at soon.
    fn prefetch(&self, teid: u32);

    /// The peer's end of the tunnel in which packets of this one go on, and its address.
    fn next(&self, teid: u32) -> Option<(u32, [u8; 4])>;

    /// Counts a packet that has gone on.
    fn count(&mut self, teid: u32);
}

/// Where users' packets are at a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Our address of GTP-U.
    pub own: Ipv4Addr,
}

impl Plane {
    /// Takes users' packets out of their tunnels. Their frames go to `done`: such a packet behind
    /// [`HEADER_LEN`](ethernet::HEADER_LEN) bytes for an Ethernet header, whose type is there. The
    /// others stay, as they came. Returns how many went.
    ///
    /// An outer checksum that the port has not checked is checked here where it is not 0.
    pub fn decapsulate(
        &self,
        tunnels: &mut Tunnels,
        burst: &mut Burst,
        done: &mut Burst,
        ways: &mut impl Ways,
    ) -> usize {
        let teids = self.teids(burst, |teid| {
            let index = tunnels.space.index(teid) as usize;
            if let Some(tunnel) = tunnels.entries.get(index) {
                prefetch_write(tunnel);
            }
        });
        let (mut teids, before) = (teids.iter(), done.len());
        burst.retain(done, |packet| {
            let teid = teids.next().copied().unwrap_or_default();
            let inner = match teid {
                0 => return true,
                _ => &packet.data()[INNER_AT..],
            };
            let Some(tunnel) = tunnels.of_id(teid) else {
                return true;
            };
            let (source, to) = (address(inner, 12), address(inner, 16));
            // RFC 2827: a user has one address. Packets to this host itself are refused elsewhere.
            let is_plain = is_plain(inner) && tunnel.user == source;
            let way = is_plain.then(|| ways.way(to)).flatten();
            let len = word(inner, 2);
            if !way.is_some_and(|way| !way.is_own && len <= way.mtu) {
                return true;
            }
            tunnel.up.count(len);
            // The frame's own header goes where the last of GTP-U's was: there is as much.
            packet.trim_front(OUTER);
            packet.truncate(ETHERNET + len);
            packet.data_mut()[ETHERNET - 2..ETHERNET].copy_from_slice(&IPV4);
            forget(packet);
            false
        });
        done.len() - before
    }

    /// Puts users' packets into their tunnels. Frames with the headers of a G-PDU go to `done`,
    /// the others stay, as they came: as [`decapsulate`](Self::decapsulate) has it.
    pub fn encapsulate(
        &self,
        tunnels: &mut Tunnels,
        burst: &mut Burst,
        done: &mut Burst,
        ways: &mut impl Ways,
    ) -> usize {
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
        let (mut users, before) = (users.iter(), done.len());
        burst.retain(done, |packet| {
            let Some(user) = users.next().copied().flatten() else {
                return true;
            };
            let len = word(&packet.data()[ETHERNET..], 2);
            let Some(tunnel) = tunnels.of_user(user) else {
                return true;
            };
            let way = ways.way(tunnel.peer_address);
            if way.is_none_or(|way| OUTER + len > way.mtu) || packet.headroom() < OUTER {
                return true;
            }
            tunnel.down.count(len);
            packet.truncate(ETHERNET + len);
            // The headroom was looked at.
            if packet.prepend(OUTER).is_none() {
                return true;
            }
            fill(packet, &template, (tunnel.peer, tunnel.peer_address), len);
            false
        });
        done.len() - before
    }

    /// Has G-PDUs go on into another tunnel. Frames that go on are in `done`, the others stay, as
    /// they came: as [`decapsulate`](Self::decapsulate) has it.
    pub(crate) fn pass_on(
        &self,
        tunnels: &mut impl Joined,
        burst: &mut Burst,
        done: &mut Burst,
        ways: &mut impl Ways,
    ) {
        let teids = self.teids(burst, |teid| tunnels.prefetch(teid));
        let template = self.template();
        let mut teids = teids.iter();
        burst.retain(done, |packet| {
            let teid = teids.next().copied().unwrap_or_default();
            let to = match teid {
                0 => return true,
                _ => tunnels.next(teid),
            };
            let Some((peer, address)) = to else {
                return true;
            };
            let total = word(packet.data(), ETHERNET + 2);
            if ways.way(address).is_none_or(|way| total > way.mtu) {
                return true;
            }
            packet.truncate(ETHERNET + total);
            fill(packet, &template, (peer, address), total - OUTER);
            tunnels.count(teid);
            false
        });
    }

    /// The tunnel of each frame, see [`teid_of`]; each is said to `look_at`.
    #[inline]
    fn teids(&self, burst: &Burst, look_at: impl Fn(u32)) -> [u32; BURST] {
        let (own, mut teids) = (self.own.octets(), [0_u32; BURST]);
        for (packet, teid) in burst.iter().zip(&mut teids) {
            *teid = teid_of(packet, own);
            if *teid != 0 {
                look_at(*teid);
            }
        }
        teids
    }

    /// All headers, but for what differs between packets: lengths, the peer's address, the sum.
    fn template(&self) -> Template {
        let mut bytes = [0; INNER_AT];
        bytes[ETHERNET - 2..ETHERNET].copy_from_slice(&IPV4);
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

/// The EtherType of IPv4.
const IPV4: [u8; 2] = ethernet::EtherType::IPV4.0.to_be_bytes();

struct Template {
    bytes: [u8; INNER_AT],
    /// Of the IPv4 header, without length and destination.
    sum: u16,
}

/// Writes the headers of a G-PDU of `len` bytes to the peer's end. The UDP checksum is 0: over IPv4
/// it may be (TS 29.281 4.4.2, RFC 768), and the user's packet has its own.
#[inline]
fn fill(packet: &mut Packet, template: &Template, peer: (u32, [u8; 4]), len: usize) {
    forget(packet);
    let (teid, address) = peer;
    let headers = &mut packet.data_mut()[..INNER_AT];
    headers.copy_from_slice(&template.bytes);
    let total = ((OUTER + len) as u16).to_be_bytes();
    let udp_len = ((OUTER - ipv4::HEADER_LEN + len) as u16).to_be_bytes();
    let ip = ETHERNET;
    headers[ip + 2..ip + 4].copy_from_slice(&total);
    headers[ip + 16..ip + 20].copy_from_slice(&address);
    let [a, b, c, d] = address;
    let words = [total, [a, b], [c, d]].map(|word| u32::from(u16::from_be_bytes(word)));
    let mut sum = u32::from(template.sum) + words.iter().sum::<u32>();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    headers[ip + 10..ip + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let udp = ip + ipv4::HEADER_LEN;
    headers[udp + 4..udp + 6].copy_from_slice(&udp_len);
    headers[GTPU_AT + 2..GTPU_AT + 4].copy_from_slice(&(len as u16).to_be_bytes());
    headers[GTPU_AT + 4..GTPU_AT + 8].copy_from_slice(&teid.to_be_bytes());
}

#[inline]
fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Whether only the slow path takes a frame: one to be cut, or one that had a VLAN tag.
#[inline]
fn is_odd(packet: &Packet) -> bool {
    let odd = Offload::GSO | Offload::VLAN | Offload::VLAN_8021AD;
    packet.meta().offload.intersects(odd)
}

/// What is known of a frame as it came is not so of what becomes of it.
#[inline]
fn forget(packet: &mut Packet) {
    let received = Offload::CSUM_PARTIAL | Offload::CSUM_VALID | Offload::RSS;
    packet.meta_mut().offload.remove(received);
}

#[inline]
fn address(ip: &[u8], at: usize) -> [u8; 4] {
    [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]
}

/// Whether a user's packet, with room for a header, is in the common form: IPv4 without options,
/// whole, with a header that is right (RFC 1812 5.2.2), to a single host.
#[inline]
fn is_plain(inner: &[u8]) -> bool {
    inner[0] == 0x45
        && word(inner, 6) & 0x3fff == 0
        && (ipv4::HEADER_LEN..=inner.len()).contains(&word(inner, 2))
        // RFC 1122 3.2.1.3: 0, 127, groups and what is reserved.
        && !matches!(inner[16], 0 | 127 | 224..)
        && checksum::sum(&inner[..ipv4::HEADER_LEN]) == 0xffff
}

/// The tunnel of a frame in the common form: IPv4 without options, whole, to us; UDP; a G-PDU
/// without optional fields, with at least an IP header in it. All lengths agree. 0 for any other.
#[inline]
fn teid_of(packet: &Packet, own: [u8; 4]) -> u32 {
    let b = packet.data();
    if b.len() < INNER_AT + ipv4::HEADER_LEN || is_odd(packet) {
        return 0;
    }
    let is_common = b[12..15] == [0x08, 0x00, 0x45]
        && word(b, ETHERNET + 6) & 0x3fff == 0
        && b[ETHERNET + 9] == protocol::UDP
        && b[ETHERNET + 16..ETHERNET + 20] == own
        && word(b, GTPU_AT - 6) == usize::from(gtpu::PORT)
        && b[GTPU_AT..GTPU_AT + 2] == [0x30, gtpu::message::G_PDU];
    let total = word(b, ETHERNET + 2);
    let inner = word(b, GTPU_AT + 2);
    let is_sound = ETHERNET + total <= b.len()
        && total == OUTER + inner
        && inner >= ipv4::HEADER_LEN
        && word(b, GTPU_AT - 4) == OUTER - ipv4::HEADER_LEN + inner;
    if !is_common || !is_sound || !is_intact(packet, ETHERNET + total) {
        return 0;
    }
    u32::from_be_bytes(address(b, GTPU_AT + 4))
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
