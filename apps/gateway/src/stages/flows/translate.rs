//! What packets become: addresses and ports of their flow's other key, and errors about them.

use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet};
use linerate_routing::plane::{Context, Packets, Verdict};
use linerate_tables::flow::Direction;
use linerate_tables::parse::Parsed;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::{FlowKey as Either, Headers};

use super::Flows;
use super::first::leaves;
use crate::nat::Tuple;
use crate::nat::rewrite::{Differences, To, Translation4, Translation6, write_any, write_error};
use crate::track::{Quote, Reason};

macro_rules! writers {
    ($method:ident, $name:ident, $key:ident, $translation:ident, $keep:expr) => {
        impl Flows {
            /// Translates a packet: it gets the addresses and ports of `to`.
            #[inline]
            pub(super) fn $method(
                &self,
                index: usize,
                to: $key,
                differences: Differences,
                packet: &mut Packet,
                context: &mut Context<'_>,
            ) -> Result<(), Verdict> {
                let class = &context.packets.parsed.class;
                let (is_tcp, is_udp) = (class.tcp >> index & 1 != 0, class.udp >> index & 1 != 0);
                let written = match (is_tcp | is_udp) && packet.meta().l4_offset != 0 {
                    true => $name(index, to, differences, is_udp, packet, context.packets),
                    false => {
                        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
                        context.packets.translate(index, packet.data());
                        let translation = $translation::with(&to, differences);
                        let written = any(packet.data_mut(), &translation.to(), is_partial);
                        if written {
                            $keep(&mut context.packets.parsed, index, to);
                        }
                        written
                    }
                };
                match written {
                    true => Ok(()),
                    false => Err(Verdict::Drop(self.reasons.nat_malformed)),
                }
            }
        }

        /// The same of TCP or UDP whose header has been found. `false`: it does not lie within the
        /// packet, which is as it was.
        #[inline(always)]
        pub(super) fn $name(
            index: usize,
            to: $key,
            differences: Differences,
            is_udp: bool,
            packet: &mut Packet,
            packets: &mut Packets,
        ) -> bool {
            let l4 = usize::from(packet.meta().l4_offset);
            let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
            packets.translate(index, packet.data());
            let translation = $translation::with(&to, differences);
            let frame = packet.data_mut();
            let written = translation.write(frame, HEADER_LEN, l4, is_udp, is_partial);
            if written {
                $keep(&mut packets.parsed, index, to);
            }
            written
        }
    };
}
writers!(write4, put4, FlowKey4, Translation4, keep4);
writers!(write6, put6, FlowKey6, Translation6, keep6);

#[inline(always)]
fn keep4(parsed: &mut Parsed, index: usize, to: FlowKey4) {
    parsed.dst4[index] = to.dst().to_bits();
    parsed.keys4[index] = to;
}

/// The source in its key stays the sender's.
#[inline(always)]
fn keep6(parsed: &mut Parsed, index: usize, to: FlowKey6) {
    parsed.keys6[index].0[16..].copy_from_slice(&to.0[16..]);
}

impl Flows {
    /// An ICMP error: it belongs to the flow that has sent the packet that it quotes, or nowhere.
    #[cold]
    pub(super) fn related(
        &mut self,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let vrf = context.interface().vrf as u16;
        let own = |tables: &mut Self, context: &mut Context<'_>, packet: &Packet, why| {
            let parsed = &context.packets.parsed;
            let to = match parsed.class.v4 >> index & 1 {
                1 => IpAddr::from(parsed.dst4[index].to_be_bytes()),
                _ => parsed.keys6[index].dst().into(),
            };
            // About a packet of the gateway's own.
            match leaves(index, to, packet, context) {
                None => Ok(()),
                Some(_) => Err(tables.reasons.of(why)),
            }
        };
        let Ok(headers) = linerate_wire::parse(packet.data()) else {
            return own(self, context, packet, Reason::IcmpHeader);
        };
        let quote = match Quote::read(packet.data(), &headers) {
            Ok(quote) => quote,
            Err(why) => return own(self, context, packet, why),
        };
        if !self.nat.sessions.is_empty()
            && let Some(done) = self.error_arrives(index, &quote, packet, context)
        {
            return done;
        }
        let own_key = match quote.key {
            Either::V4(key) => Either::V4(key.in_zone(self.zone_of(&Tuple::from(&key), vrf))),
            Either::V6(key) => Either::V6(key.in_zone(self.zone_of(&Tuple::from(&key), vrf))),
        };
        let found = match own_key {
            Either::V4(key) => self.v4.lookup(key).and_then(|hit| {
                let flow = self.v4.flow_mut(&hit, key)?;
                Some((hit, Either::V4(flow.other.reversed()), *flow.user))
            }),
            Either::V6(key) => self.v6.lookup(key).and_then(|hit| {
                let flow = self.v6.flow_mut(&hit, key)?;
                Some((hit, Either::V6(flow.other.reversed()), *flow.user))
            }),
        };
        let Some((hit, to, user)) = found else {
            return own(self, context, packet, Reason::QuoteNoFlow);
        };
        if user.is_direct() {
            context.note(index, "flows", || "an error about a flow".into());
            return match hit.direction {
                // About what the backend has sent: it goes where the client's packets do.
                Direction::Forward => self.encapsulate(index, user.backend, packet, context),
                Direction::Reverse => Ok(()),
            };
        }
        let tcp = user.tcp;
        let checked = quote.check(&tcp, hit.direction);
        checked.map_err(|why| self.reasons.of(why))?;
        context.note(index, "flows", || "an error about a flow".into());
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let frame = packet.data_mut();
        if tcp.is_shifted() {
            tcp.shift_quote(hit.direction, frame, &headers, &quote.headers);
        }
        if to == own_key {
            let session = match &to {
                Either::V6(key) => self.nat.sessions.of(&Tuple::from(key)),
                Either::V4(_) => None,
            };
            return match session.map(|session| session.outside) {
                Some(to) => self.become_four(index, &to, packet, context),
                None => Ok(()),
            };
        }
        let zone = match &to {
            Either::V4(key) => key.zone(),
            Either::V6(key) => key.zone(),
        };
        self.passes_to(index, zone);
        // RFC 5508 REQ-5 c: routers inside are not named outside.
        let hides = hit.direction == Direction::Forward || zone != vrf;
        let write = |frame: &mut [u8], to: &To<'_>| {
            let half = to.addresses.len() / 2;
            let router = hides.then(|| &to.addresses[..half]);
            write_error(frame, &headers, &quote.headers, to, router, is_partial)
        };
        let written = match &to {
            Either::V4(key) => {
                let translation = Translation4::with(key, Differences::default());
                write(frame, &translation.to())
            }
            Either::V6(key) => {
                let translation = Translation6::with(key, Differences::default());
                write(frame, &translation.to())
            }
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let parsed = &mut context.packets.parsed;
        match to {
            Either::V4(key) => {
                parsed.dst4[index] = key.dst().to_bits();
                parsed.keys4[index].0[4..8].copy_from_slice(&key.dst().octets());
            }
            Either::V6(key) => {
                parsed.keys6[index].0[16..32].copy_from_slice(&key.dst().octets());
            }
        }
        Ok(())
    }
}

/// Translates what is neither TCP nor UDP.
#[cold]
fn any(frame: &mut [u8], to: &To<'_>, is_partial: bool) -> bool {
    let parsed: Option<Headers> = linerate_wire::parse(frame).ok();
    parsed.is_some_and(|headers| write_any(frame, &headers, to, is_partial))
}
