//! What the gateway says itself in a connection that begins with a SYN cookie (RFC 4987 3.6).
//!
//! A packet that ends here becomes what is said in its place, so that it leaves like any other: by
//! the route to where it goes. Where both ends are told something, a packet more is made.

use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_routing::plane::{Context, Verdict};
use linerate_wire::ethernet::{HEADER_LEN, MIN_FRAME_LEN};
use linerate_wire::{ipv4, ipv6};

use super::Flows;
use super::family::as_four;
use crate::track::{MAX_MADE_LEN, Made, Way};

impl Flows {
    /// The packet at `index` becomes what is said, to its source or its destination, or to both.
    #[cold]
    pub(super) fn answer(
        &mut self,
        index: usize,
        [back, onward]: [Option<Made>; 2],
        packet: &mut Packet,
        (context, out): (&mut Context<'_>, &mut Egress),
    ) -> Result<(), Verdict> {
        context.note(index, "flows", || "answered in the server's place".into());
        match (back, onward) {
            (Some(back), Some(onward)) => {
                let to = source(index, context);
                let caused = packet.data().get(HEADER_LEN..).unwrap_or_default();
                let write = |put: &mut [u8]| back.write(Way::Back, caused, put);
                match self.outside(index, context) {
                    None => context.send(to, MAX_MADE_LEN, write, out),
                    // It came from IPv4.
                    Some(outside) => {
                        let ident = self.random() as u16;
                        let to = outside.dst.address;
                        let write = |put: &mut [u8]| as_four(&outside, ident, write, put);
                        context.send(to, MAX_MADE_LEN, write, out);
                    }
                }
                self.becomes(index, (Way::Onward, onward), packet, context)
            }
            (Some(back), None) => self.becomes(index, (Way::Back, back), packet, context),
            (None, Some(onward)) => self.becomes(index, (Way::Onward, onward), packet, context),
            (None, None) => Err(self.reasons.of(crate::track::Reason::TcpCookie)),
        }
    }

    /// The packet at `index` becomes this segment: on to its destination, or back to its source.
    /// What is said about it later is about what its sender sent.
    #[cold]
    pub(super) fn becomes(
        &self,
        index: usize,
        (way, made): (Way, Made),
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        context.packets.translate(index, packet.data());
        let mut bytes = [0; MAX_MADE_LEN];
        let caused = packet.data().get(HEADER_LEN..).unwrap_or_default();
        let len = made.write(way, caused, &mut bytes).unwrap_or_default();
        let end = HEADER_LEN + len;
        if len == 0 || !packet.set_len(end.max(MIN_FRAME_LEN)) {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let frame = &mut packet.data_mut()[HEADER_LEN..];
        frame.fill(0);
        frame[..len].copy_from_slice(&bytes[..len]);
        let parsed = &mut context.packets.parsed;
        let is_v4 = parsed.class.v4 >> index & 1 != 0;
        let meta = packet.meta_mut();
        meta.offload.remove(Offload::CSUM_PARTIAL);
        meta.offload.remove(Offload::GSO);
        let header = if is_v4 {
            ipv4::HEADER_LEN
        } else {
            ipv6::HEADER_LEN
        };
        meta.l4_offset = (HEADER_LEN + header) as u16;
        parsed.end[index] = end as u32;
        parsed.class.options &= !(1 << index);
        if way == Way::Back {
            match is_v4 {
                true => {
                    let key = parsed.keys4[index].reversed();
                    parsed.dst4[index] = key.dst().to_bits();
                    parsed.keys4[index] = key;
                }
                // The source in its key stays the sender's.
                false => {
                    let back = parsed.keys6[index].reversed();
                    parsed.keys6[index].0[16..].copy_from_slice(&back.0[16..]);
                }
            }
        }
        Ok(())
    }
}

/// Who has sent the packet at `index`.
fn source(index: usize, context: &Context<'_>) -> IpAddr {
    let parsed = &context.packets.parsed;
    match parsed.class.v4 >> index & 1 {
        1 => parsed.keys4[index].src().into(),
        _ => parsed.keys6[index].src().into(),
    }
}
