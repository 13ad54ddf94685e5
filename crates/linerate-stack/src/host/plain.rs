//! TCP segments over IPv4 with nothing unusual about them, one at a time: the short way in and the
//! short way out.
//!
//! Vectors find out everything about a burst of anything. Segments that have nothing unusual cost
//! less where each is only found to be one. So they are looked at here first, and a burst that has
//! something else in it goes the long way, which judges it anew: nothing was changed or counted
//! until then.

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::checksum::fold;
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::tcp::HEADER_LEN as TCP;
use linerate_wire::{FlowKey4, ipv4, protocol};

use super::judge::is_plain4;
use super::path::Link;
use super::{Arrived, Host, Inbound, InterfaceId, IpFields, Path};
use crate::tcp::segment::{Segment, Usual, UsualSyn};

/// Headers of a segment without options.
const LEAST: usize = ipv4::HEADER_LEN + TCP;
/// Bytes of the headers below TCP.
pub(crate) const BELOW: usize = L2 + ipv4::HEADER_LEN;
/// Bytes of a TCP header whose only option are time stamps.
const USUAL: usize = Usual::LEN;
/// Bytes that are summed in place: a header with its options, and a message of 64 bytes or so.
const SHORT: usize = 128;

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

/// The key of a TCP segment over IPv4.
#[inline(always)]
fn key_at(ip: &[u8; LEAST]) -> FlowKey4 {
    let mut key = [0; 16];
    key[..12].copy_from_slice(&ip[12..24]);
    key[12] = protocol::TCP;
    FlowKey4(key)
}

/// Whether a TCP segment over IPv4 is of this connection, by words as they lie there: what was put
/// together just now cannot be compared as a whole before it is in the cache.
#[inline(always)]
fn is_of(ip: &[u8; LEAST], key: &FlowKey4) -> bool {
    ip[12..20] == key.0[..8] && ip[20..24] == key.0[8..12]
}

/// A frame's IP header, and where TCP's ports would be, if it were of TCP over IPv4: nothing of it
/// was looked at.
#[inline(always)]
fn unseen(packet: &Packet) -> Option<&[u8; LEAST]> {
    packet.data().get(L2..L2 + LEAST)?.as_array()
}

/// Whether a frame is of this connection, if it is of TCP over IPv4.
#[inline(always)]
pub(crate) fn may_be_of(packet: &Packet, key: &FlowKey4) -> bool {
    unseen(packet).is_some_and(|ip| is_of(ip, key))
}

/// The connection of a frame, if it is of TCP over IPv4.
#[inline(always)]
pub(crate) fn key_of(packet: &Packet) -> Option<FlowKey4> {
    unseen(packet).map(key_at)
}

impl Host {
    /// A received TCP segment over IPv4, if it is plain and sound: to our MAC address and one of
    /// our own, from a single host, without tag, IP options or fragments, its checksums right.
    /// `None`: [`receive`](Self::receive) finds out.
    #[inline]
    pub(crate) fn plain_segment(&self, packet: &Packet) -> Option<(FlowKey4, Arrived)> {
        let plain = self.look(packet, false)?;
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
        Some((key_at(plain.ip), arrived))
    }

    /// The same of one that is of this connection and whose only option are time stamps, read; it
    /// begins at [`BELOW`]. `is_known`: a segment of the connection was plain before, by the
    /// addresses of [now](Self::own_version).
    #[inline(always)]
    pub(crate) fn usual_segment(
        &self,
        packet: &Packet,
        of: &FlowKey4,
        is_known: bool,
    ) -> Option<Segment> {
        let plain = self.look(packet, is_known)?;
        match is_of(plain.ip, of) {
            true => Segment::read_usual(plain.l4, plain.ip[1]),
            false => None,
        }
    }

    #[inline(always)]
    fn look<'a>(&self, packet: &'a Packet, is_known: bool) -> Option<Plain<'a>> {
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
        if !is_known && !is_plain4(&self.own, src, dst) {
            return None;
        }
        let is_partial = offload.intersects(Offload::CSUM_PARTIAL);
        if !is_partial && !offload.intersects(Offload::CSUM_VALID) {
            let ends = u64::from(src) + u64::from(dst);
            let pseudo = ends + u64::from(protocol::TCP) + l4.len() as u64;
            if fold(pseudo + u64::from(self.sum(l4))) != 0xffff {
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

    /// Of the addresses that are ours: another after each change.
    #[inline(always)]
    pub(crate) fn own_version(&self) -> u32 {
        self.own_version
    }

    /// As [`receive`](Self::receive), of a burst that is nothing but plain segments. False, and
    /// nothing has happened, where it is not, or where there is more to report than it.
    pub(crate) fn receive_plain(&mut self, burst: &Burst, inbound: &mut Inbound) -> bool {
        inbound.clear();
        if self.has_waiting() {
            return false;
        }
        for packet in burst.iter() {
            let Some((key, arrived)) = self.plain_segment(packet) else {
                return false;
            };
            inbound.push_plain(key, arrived);
        }
        self.count_plain(burst.len() as u64);
        true
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
        (tcp, payload_len): ([u32; USUAL / 4], usize),
        key: &FlowKey4,
        (fields, ecn): (IpFields, u8),
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
        let sum = self.sum(payload);
        write_headers(head, &hop, tcp, key, (fields, ecn), (payload_len, sum));
        self.stats.sent += 1;
        out.made(1);
        self.leave(hop.port, packet, out);
        true
    }

    /// Sends a SYN-ACK with the [usual options](UsualSyn) to such a hop in the slot of the SYN that
    /// it answers, whose key this is.
    #[inline(always)]
    pub(crate) fn answer_usual(
        &mut self,
        hop: PlainHop,
        mut packet: Packet,
        tcp: [u32; UsualSyn::LEN / 4],
        key: &FlowKey4,
        fields: IpFields,
        out: &mut Egress,
    ) {
        packet.truncate(BELOW + UsualSyn::LEN);
        packet.meta_mut().offload = Offload::NONE;
        let head = packet.data_mut().first_chunk_mut();
        let Some(head) = head else {
            // It was as long as its SYN.
            return out.cache.free_one(packet);
        };
        write_headers::<{ UsualSyn::LEN / 4 }, { BELOW + UsualSyn::LEN }>(
            head,
            &hop,
            tcp,
            key,
            (fields, 0),
            (0, 0),
        );
        self.stats.sent += 1;
        out.made(1);
        self.leave(hop.port, packet, out);
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

    /// The ones' complement sum of bytes. Of few it is less than what a call of the vectors' loop
    /// takes.
    #[inline(always)]
    pub(crate) fn sum(&self, bytes: &[u8]) -> u16 {
        match bytes.len() {
            ..=SHORT => short_sum(bytes),
            _ => self.checksums.sum(bytes),
        }
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
        (fields, ecn): (IpFields, u8),
        out: &mut Egress,
    ) {
        let total = (packet.len() - L2) as u32;
        let head = packet.data_mut().first_chunk_mut::<BELOW>();
        let (Some(hop), Some(head)) = (self.hops.get(path), head) else {
            // The caller has asked.
            return out.drop_one(self.reasons.no_route, packet);
        };
        let ends = (key.dst().to_bits(), key.src().to_bits());
        let words = fields.words(total, ecn, ends);
        head[..L2].copy_from_slice(&hop.header);
        for (place, word) in head[L2..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        let port = hop.port;
        self.stats.sent += 1;
        self.leave(port, packet, out);
    }
}

/// Writes all headers of a TCP segment to the source of `key`: `tcp` are the words of its own,
/// whose checksum is 0; of the payload these are the length in bytes and the sum.
#[inline(always)]
fn write_headers<const N: usize, const BYTES: usize>(
    head: &mut [u8; BYTES],
    hop: &PlainHop,
    mut tcp: [u32; N],
    key: &FlowKey4,
    (fields, ecn): (IpFields, u8),
    (payload_len, payload_sum): (usize, u16),
) {
    let ends = (key.dst().to_bits(), key.src().to_bits());
    let len = (4 * N + payload_len) as u32;
    let mut sum = tcp.iter().map(|&word| u64::from(word)).sum::<u64>();
    sum += u64::from(ends.0) + u64::from(ends.1) + u64::from(protocol::TCP);
    sum += u64::from(len) + u64::from(payload_sum);
    // The checksum, and the urgent pointer, which is 0.
    tcp[4] = u32::from(!fold(sum)) << 16;
    let ip = fields.words(ipv4::HEADER_LEN as u32 + len, ecn, ends);
    let (l2, head) = head.split_at_mut(L2);
    let (ip_place, tcp_place) = head.split_at_mut(ipv4::HEADER_LEN);
    l2.copy_from_slice(&hop.header);
    write_words(ip, ip_place);
    write_words(tcp, tcp_place);
}

/// Stores words in network order. Of as many as the compiler knows there is no loop.
#[inline(always)]
fn write_words<const N: usize>(words: [u32; N], to: &mut [u8]) {
    if let Some(places) = to.as_chunks_mut::<4>().0.as_mut_array::<N>() {
        *places = words.map(u32::to_be_bytes);
    }
}

/// The ones' complement sum of few bytes, eight at a time with the carry: see
/// [`checksum::sum`](linerate_wire::checksum::sum), whose result it is.
#[inline(always)]
fn short_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u128;
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        for word in block.as_chunks::<8>().0 {
            sum += u128::from(u64::from_ne_bytes(*word));
        }
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        sum += u128::from(u64::from_ne_bytes(*word));
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        for (to, byte) in last.iter_mut().zip(tail) {
            *to = *byte;
        }
        sum += u128::from(u64::from_ne_bytes(last));
    }
    // RFC 1071 2 (C): the carries of the upper half are counted again below.
    let (sum, carry) = (sum as u64).overflowing_add((sum >> 64) as u64);
    // RFC 1071 2 (B).
    fold(sum + u64::from(carry)).to_be()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::checksum;

    #[test]
    fn the_sum_of_few_bytes_is_that_of_the_wire_crate() {
        let mut state = 0x2545_f491_u32;
        for len in 0..=SHORT {
            for fill in [None, Some(0), Some(0xff)] {
                let bytes: Vec<u8> = std::iter::repeat_with(|| {
                    state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
                    fill.unwrap_or((state >> 24) as u8)
                })
                .take(len)
                .collect();
                assert_eq!(short_sum(&bytes), checksum::sum(&bytes), "{bytes:?}");
            }
        }
    }
}
