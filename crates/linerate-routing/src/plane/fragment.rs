//! Fragments packets that are longer than the next link takes (RFC 791, RFC 1812 4.2.2.7, RFC 8200
//! 4.5), or than any link of IPv6 must take, if they were IPv4 (RFC 7915 4).

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Egress;
use linerate_stack::fragment::Cut;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::offload::complete_partial;

use super::context::{Context, LOWEST_MTU6};
use super::exceptions::PacketContext;
use super::hops::Hop;

impl Context<'_> {
    /// The longest packet, from the IP header on, that goes to a link of that MTU.
    pub(super) fn longest(&self, seen: PacketContext, mtu: u16, packet: &Packet) -> u16 {
        let is_cut_later = packet.meta().offload.intersects(Offload::GSO);
        match !seen.is_v4 && !is_cut_later && self.packets.ident4(seen.index).is_some() {
            true => mtu.min(LOWEST_MTU6),
            false => mtu,
        }
    }

    /// Whether a packet longer than the next link takes may become shorter ones: RFC 1812 5.2.6; of
    /// IPv6 only what was reassembled here (RFC 8200 5), or was IPv4 that may be fragmented (RFC
    /// 7915 4). A frame with TCP segmentation offload gets smaller segments.
    pub(super) fn may_be_cut(&self, seen: PacketContext, mtu: usize, packet: &mut Packet) -> bool {
        if !seen.is_v4 {
            let is_whole = self.packets.marks.whole >> seen.index & 1 != 0;
            let was_v4 = self.packets.ident4(seen.index).is_some();
            return is_whole || was_v4 && !packet.meta().offload.intersects(Offload::GSO);
        }
        let bytes = &packet.data()[HEADER_LEN..seen.end];
        let may = Ipv4::new_checked(bytes).is_ok_and(|ip| !ip.dont_fragment());
        if !may || !packet.meta().offload.intersects(Offload::GSO) {
            return may;
        }
        let headers = segment_len(packet, seen).saturating_sub(packet.meta().gso_size.into());
        let room = mtu.saturating_sub(headers);
        let may = packet.meta().offload.contains(Offload::GSO_TCP4) && room > 0;
        if may {
            packet.meta_mut().gso_size = room.min(usize::from(u16::MAX)) as u16;
        }
        may
    }

    /// Sends a packet as fragments; its time to live is decremented already.
    pub(super) fn fragment(
        &mut self,
        seen: PacketContext,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let meta = packet.meta_mut();
        if meta.offload.contains(Offload::CSUM_PARTIAL) {
            // The checksum has to be finished before the packet is cut.
            let (start, offset) = (meta.csum_start, meta.csum_offset.into());
            meta.offload.remove(Offload::CSUM_PARTIAL);
            if !complete_partial(packet.data_mut(), start, offset) {
                return self.drop_one(seen.index, self.reasons.bad_length, packet, out);
            }
        }
        let mtu = usize::from(self.longest(seen, hop.mtu, &packet));
        let cut = match seen.is_v4 {
            true => Cut::ipv4(&packet, HEADER_LEN, mtu),
            false => {
                let ident = match self.packets.ident4(seen.index) {
                    // RFC 7915 4.1: that of IPv4.
                    Some(ident) => ident.into(),
                    // RFC 7739: the identification must be unpredictable.
                    None => self.exceptions.ident(),
                };
                Cut::ipv6(&packet, HEADER_LEN, mtu, ident)
            }
        };
        let Ok(mut cut) = cut else {
            return self.drop_one(seen.index, self.reasons.too_big, packet, out);
        };
        let mut is_whole = true;
        while is_whole && !cut.is_done() {
            let mut fragments = Burst::new();
            is_whole = cut.fill(&mut out.cache, &mut fragments);
            for mut fragment in fragments.drain() {
                // Each fragment needs its own copy of what is before the network header.
                fragment.data_mut()[..HEADER_LEN].copy_from_slice(&packet.data()[..HEADER_LEN]);
                fragment.meta_mut().l3_offset = HEADER_LEN as u8;
                out.made(1);
                self.installed.counters.fragments_made.add(1);
                let part = PacketContext {
                    end: fragment.len(),
                    ..seen
                };
                self.finish(part, number, hop, fragment, out);
            }
        }
        match is_whole {
            true => {
                self.installed.counters.fragmented.add(1);
                out.consume_one(packet);
            }
            // Without this fragment the datagram cannot be reassembled: the earlier ones are lost
            // too.
            false => self.drop_one(seen.index, self.reasons.no_buffer, packet, out),
        }
    }
}

/// Length in bytes, from the IP header on, of the longest packet that a frame is segmented into.
pub(super) fn segment_len(packet: &Packet, seen: PacketContext) -> usize {
    let meta = packet.meta();
    let l4 = usize::from(meta.l4_offset);
    let header_len = match meta.offload.intersects(Offload::GSO_UDP) {
        true => 8,
        // RFC 9293 3.1: the data offset.
        false => packet
            .data()
            .get(l4 + 12)
            .map_or(60, |byte| usize::from(byte >> 4) * 4),
    };
    let whole = seen.end - HEADER_LEN;
    match l4 {
        0 => whole,
        _ => whole.min(l4 - HEADER_LEN + header_len + usize::from(meta.gso_size)),
    }
}
