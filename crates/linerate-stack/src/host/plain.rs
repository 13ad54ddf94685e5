//! TCP segments over IPv4 with nothing unusual about them, one at a time: the short way in and the
//! short way out.
//!
//! A burst of many is parsed by vectors, and what is common to it costs little for each packet. One
//! or two packets would pay all of that for themselves. So they are looked at here first, and
//! whatever is not as it is in nearly all segments goes the long way, which judges it anew: nothing
//! was changed or counted until then.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::checksum::{add, fold, pseudo_v4};
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::tcp::HEADER_LEN as TCP;
use linerate_wire::{FlowKey4, ipv4, protocol};

use super::judge::is_plain4;
use super::path::Link;
use super::{Arrived, Host, Path};

/// Headers of a segment without options.
const LEAST: usize = ipv4::HEADER_LEN + TCP;
/// Bytes of the headers below TCP.
pub(crate) const BELOW: usize = L2 + ipv4::HEADER_LEN;

impl Host {
    /// A received TCP segment over IPv4, if it is plain and sound: to our MAC address and one of
    /// our own, from a single host, without tag, IP options or fragments, its checksums right.
    /// `None`: [`receive`](Self::receive) finds out.
    #[inline]
    pub(crate) fn plain_segment(&self, packet: &Packet) -> Option<(FlowKey4, Arrived)> {
        let offload = packet.meta().offload;
        if offload.intersects(Offload::VLAN) {
            return None;
        }
        let interface = (*self.by_port.get(usize::from(packet.port()))?)?;
        let frame = packet.data();
        let head = frame.first_chunk::<{ L2 + LEAST }>()?;
        let (ethernet, ip) = head.split_first_chunk::<L2>()?;
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
            let (from, to) = (src.to_be_bytes(), dst.to_be_bytes());
            let pseudo = pseudo_v4(from, to, protocol::TCP, l4.len() as u16);
            if add(pseudo, self.checksums.sum(l4)) != 0xffff {
                return None;
            }
        }
        let mut key = [0; 16];
        key[..12].copy_from_slice(&ip[12..24]);
        key[12] = protocol::TCP;
        let arrived = Arrived {
            l4_len: l4.len() as u32,
            l4: BELOW as u16,
            interface,
            protocol: protocol::TCP,
            tos: ip[1],
            ttl: ip[8],
            l3: L2 as u8,
            is_v6: false,
            is_group: false,
            is_verified: !is_partial,
        };
        Some((FlowKey4(key), arrived))
    }

    /// Counts packets that came this way.
    #[inline]
    pub(crate) fn count_plain(&mut self, packets: u64) {
        self.stats.received += packets;
        self.stats.delivered += packets;
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
        const DONT_FRAGMENT: u32 = 0x4000;
        let (ours, peer) = (key.dst().to_bits(), key.src().to_bits());
        // RFC 791 3.1; the identification of what is not to be fragmented is 0 (RFC 6864 4.1).
        let life = u32::from(ttl) << 24 | u32::from(protocol::TCP) << 16;
        let mut words = [
            0x4500_0000 | u32::from(tos) << 16 | total,
            DONT_FRAGMENT,
            life,
            ours,
            peer,
        ];
        // RFC 1071 2 (C): words of any width add up to the same.
        let sum = words.iter().map(|&word| u64::from(word)).sum();
        words[2] = life | u32::from(!fold(sum));
        head[..L2].copy_from_slice(&hop.header);
        for (place, word) in head[L2..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        let port = hop.port;
        self.stats.sent += 1;
        self.leave(port, packet, out);
    }
}
