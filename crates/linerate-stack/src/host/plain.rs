//! TCP segments over IPv4 with nothing unusual about them, one at a time: the short way in and the
//! short way out.
//!
//! A burst of many is parsed by vectors, and what is common to it costs little for each packet. One
//! or two packets would pay all of that for themselves. So they are looked at here first, and
//! whatever is not as it is in nearly all segments goes the long way, which judges it anew: nothing
//! was changed or counted until then.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::checksum::fold;
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::tcp::HEADER_LEN as TCP;
use linerate_wire::{FlowKey4, ipv4, protocol};

use super::judge::is_plain4;
use super::path::Link;
use super::{Arrived, Host, InterfaceId, Path};
use crate::tcp::segment::{Segment, Usual};

/// Headers of a segment without options.
const LEAST: usize = ipv4::HEADER_LEN + TCP;
/// Bytes of the headers below TCP.
pub(crate) const BELOW: usize = L2 + ipv4::HEADER_LEN;
/// Bytes of a TCP header whose only option are time stamps.
const USUAL: usize = Usual::LEN;

/// Where plain segments go.
#[derive(Clone, Copy)]
pub(crate) struct PlainHop {
    /// Their Ethernet header.
    header: [u8; L2],
    port: u16,
}

/// What was found of a plain segment.
struct Plain<'a> {
    /// The IP header, and at least so much of TCP's as each has.
    ip: &'a [u8; LEAST],
    /// The segment.
    l4: &'a [u8],
    interface: InterfaceId,
    /// Whether its checksum is not finished.
    is_partial: bool,
}

impl Plain<'_> {
    #[inline(always)]
    fn key(&self) -> FlowKey4 {
        let mut key = [0; 16];
        key[..12].copy_from_slice(&self.ip[12..24]);
        key[12] = protocol::TCP;
        FlowKey4(key)
    }
}

impl Host {
    /// A received TCP segment over IPv4, if it is plain and sound: to our MAC address and one of
    /// our own, from a single host, without tag, IP options or fragments, its checksums right.
    /// `None`: [`receive`](Self::receive) finds out.
    #[inline]
    pub(crate) fn plain_segment(&self, packet: &Packet) -> Option<(FlowKey4, Arrived)> {
        let plain = self.look(packet)?;
        let arrived = Arrived {
            l4_len: plain.l4.len() as u32,
            l4: BELOW as u16,
            interface: plain.interface,
            protocol: protocol::TCP,
            tos: plain.ip[1],
            ttl: plain.ip[8],
            l3: L2 as u8,
            is_v6: false,
            is_group: false,
            is_verified: !plain.is_partial,
        };
        Some((plain.key(), arrived))
    }

    /// The same of one whose only option are time stamps, read; it begins at [`BELOW`].
    #[inline(always)]
    pub(crate) fn usual_segment(&self, packet: &Packet) -> Option<(FlowKey4, Segment)> {
        let plain = self.look(packet)?;
        let segment = Segment::read_usual(plain.l4, plain.ip[1])?;
        Some((plain.key(), segment))
    }

    #[inline(always)]
    fn look<'a>(&self, packet: &'a Packet) -> Option<Plain<'a>> {
        let offload = packet.meta().offload;
        if offload.intersects(Offload::VLAN) {
            return None;
        }
        let interface = (*self.by_port.get(usize::from(packet.port()))?)?;
        let frame = packet.data();
        let head = frame.first_chunk::<{ L2 + LEAST }>()?;
        let (ethernet, ip) = head.split_first_chunk::<L2>()?;
        let ip = ip.as_array::<LEAST>()?;
        let [to @ .., _, _, _, _, _, _, high, low] = ethernet;
        let is_ours = to == &self.at(interface)?.config.mac.0;
        // IPv4, without options.
        if !is_ours || [*high, *low, ip[0]] != [8, 0, 0x45] {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
        let words = [word(0), word(4), word(8), word(12), word(16)];
        let sum = fold(words.iter().map(|&word| u64::from(word)).sum());
        // RFC 791 3.1: no fragment; DF or not. The byte behind the TTL is the protocol.
        let is_whole = words[1] & 0xbfff == 0;
        let is_tcp = (words[2] >> 16) as u8 == protocol::TCP;
        let total = (words[0] & 0xffff) as usize;
        let l4 = frame.get(BELOW..L2 + total)?;
        // RFC 9293 3.1: the data offset.
        let header_len = usize::from(head[BELOW + 12] >> 4) * 4;
        let is_sound = (TCP..=l4.len()).contains(&header_len);
        if sum != 0xffff || !is_whole || !is_tcp || !is_sound {
            return None;
        }
        let (src, dst) = (words[3], words[4]);
        if !is_plain4(&self.own, src, dst) {
            return None;
        }
        let is_partial = offload.intersects(Offload::CSUM_PARTIAL);
        if !is_partial && !offload.intersects(Offload::CSUM_VALID) {
            let ends = u64::from(src) + u64::from(dst);
            let pseudo = ends + u64::from(protocol::TCP) + l4.len() as u64;
            if fold(pseudo + u64::from(self.checksums.sum(l4))) != 0xffff {
                return None;
            }
        }
        Some(Plain {
            ip,
            l4,
            interface,
            is_partial,
        })
    }

    /// Counts packets that came this way.
    #[inline]
    pub(crate) fn count_plain(&mut self, packets: u64) {
        self.stats.received += packets;
        self.stats.delivered += packets;
    }

    /// The next hop of a path that need not be looked up, if a TCP segment of so many bytes over
    /// IPv4, its header counted, can be sent to it as it is: to a neighbour that is known, by a
    /// port that adds no checksums.
    #[inline(always)]
    pub(crate) fn plain_hop(&self, path: Path, len: usize) -> Option<PlainHop> {
        let hop = self.hops.get(path)?;
        let fits = ipv4::HEADER_LEN + len <= usize::from(path.link_mtu());
        let is_plain = hop.link == Link::Known && !hop.tx_offloads && fits;
        is_plain.then_some(PlainHop {
            header: hop.header,
            port: hop.port,
        })
    }

    /// Sends a TCP segment to such a hop: the words of its header, whose checksum is 0, and so many
    /// bytes of payload, which `fill` writes. The peer is the source of `key`. Each byte is written
    /// once, and sums are of what is written: bytes that were stored just now in narrow words
    /// cannot be read in wide ones before they are in the cache. Whether there was a slot.
    #[inline(always)]
    pub(crate) fn send_usual(
        &mut self,
        hop: PlainHop,
        (mut tcp, payload_len): ([u32; USUAL / 4], usize),
        key: &FlowKey4,
        (tos, ttl): (u8, u8),
        out: &mut Egress,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        const HEADERS: usize = BELOW + USUAL;
        let Some(mut packet) = out.cache.get_for(HEADERS + payload_len) else {
            return false;
        };
        // The slot was chosen for its length.
        packet.set_len(HEADERS + payload_len);
        let frame = packet.data_mut().split_first_chunk_mut::<HEADERS>();
        let Some((head, payload)) = frame else {
            out.cache.free_one(packet);
            return false;
        };
        fill(payload);
        let (ours, peer) = (key.dst().to_bits(), key.src().to_bits());
        let ends = u64::from(ours) + u64::from(peer);
        let len = (USUAL + payload_len) as u64;
        let mut sum = tcp.iter().map(|&word| u64::from(word)).sum::<u64>();
        sum += ends + u64::from(protocol::TCP) + len;
        if payload_len > 0 {
            sum += u64::from(self.checksums.sum(payload));
        }
        tcp[4] = u32::from(!fold(sum)) << 16;
        let total = ipv4::HEADER_LEN as u32 + len as u32;
        let ip = ip_words(total, tos, ttl, (ours, peer));
        let words = ip.into_iter().chain(tcp);
        head[..L2].copy_from_slice(&hop.header);
        for (place, word) in head[L2..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        self.stats.sent += 1;
        out.made(1);
        self.leave(hop.port, packet, out);
        true
    }

    /// Whether [`send_plain`](Self::send_plain) may send a TCP segment of so many bytes over IPv4,
    /// its header counted: along a path that need not be looked up, to a neighbour that is known,
    /// by a port that adds no checksums.
    #[inline]
    pub(crate) fn sends_plain(&self, path: Path, len: usize) -> bool {
        let hop = self.hops.get(path);
        hop.is_some_and(|hop| hop.link == Link::Known && !hop.tx_offloads)
            && ipv4::HEADER_LEN + len <= usize::from(path.link_mtu())
    }

    /// The ones' complement sum of bytes.
    #[inline]
    pub(crate) fn sum(&self, bytes: &[u8]) -> u16 {
        self.checksums.sum(bytes)
    }

    /// Sends a segment that [`sends_plain`](Self::sends_plain) allows: the packet's data is the TCP
    /// segment, complete, with [`BELOW`] bytes before it that are written here. The peer is the
    /// source of `key`.
    #[inline]
    pub(crate) fn send_plain(
        &mut self,
        path: Path,
        mut packet: Packet,
        key: &FlowKey4,
        (tos, ttl): (u8, u8),
        out: &mut Egress,
    ) {
        let total = (packet.len() - L2) as u32;
        let head = packet.data_mut().first_chunk_mut::<BELOW>();
        let (Some(hop), Some(head)) = (self.hops.get(path), head) else {
            // The caller has asked.
            return out.drop_one(self.reasons.no_route, packet);
        };
        let ends = (key.dst().to_bits(), key.src().to_bits());
        let words = ip_words(total, tos, ttl, ends);
        head[..L2].copy_from_slice(&hop.header);
        for (place, word) in head[L2..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        let port = hop.port;
        self.stats.sent += 1;
        self.leave(port, packet, out);
    }
}

/// The words of an IPv4 header of what is not to be fragmented and has TCP in it.
#[inline(always)]
fn ip_words(total: u32, tos: u8, ttl: u8, (src, dst): (u32, u32)) -> [u32; ipv4::HEADER_LEN / 4] {
    const DONT_FRAGMENT: u32 = 0x4000;
    // RFC 791 3.1; the identification of what is not to be fragmented is 0 (RFC 6864 4.1).
    let life = u32::from(ttl) << 24 | u32::from(protocol::TCP) << 16;
    let first = 0x4500_0000 | u32::from(tos) << 16 | total;
    let mut words = [first, DONT_FRAGMENT, life, src, dst];
    // RFC 1071 2 (C): words of any width add up to the same.
    let sum = words.iter().map(|&word| u64::from(word)).sum();
    words[2] = life | u32::from(!fold(sum));
    words
}
