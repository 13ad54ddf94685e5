//! What packets become: addresses and ports of their flow's other key, and errors about them.

use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet};
use linerate_routing::plane::{Context, Verdict};
use linerate_tables::flow::Direction;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::{FlowKey as Either, Headers};

use super::Flows;
use super::first::leaves;
use crate::nat::Tuple;
use crate::nat::rewrite::{Differences, To, Translation4, Translation6, write_any, write_error};
use crate::track::{Quote, Reason};

impl Flows {
    /// Translates an IPv4 packet: it gets the addresses and ports of `to`.
    #[inline]
    pub(super) fn write4(
        &self,
        index: usize,
        to: FlowKey4,
        differences: Differences,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let l4 = usize::from(packet.meta().l4_offset);
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let class = &context.packets.parsed.class;
        let (is_tcp, is_udp) = (class.tcp >> index & 1 != 0, class.udp >> index & 1 != 0);
        context.packets.translate(index, packet.data());
        let translation = Translation4::with(&to, differences);
        let frame = packet.data_mut();
        let written = match (is_tcp | is_udp) && l4 != 0 {
            true => translation.write(frame, HEADER_LEN, l4, is_udp, is_partial),
            false => any(frame, &translation.to(), is_partial),
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let parsed = &mut context.packets.parsed;
        parsed.dst4[index] = to.dst().to_bits();
        parsed.keys4[index] = to;
        Ok(())
    }

    /// The same of IPv6; the source in its key stays the sender's.
    #[inline]
    pub(super) fn write6(
        &self,
        index: usize,
        to: FlowKey6,
        differences: Differences,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let l4 = usize::from(packet.meta().l4_offset);
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let class = &context.packets.parsed.class;
        let (is_tcp, is_udp) = (class.tcp >> index & 1 != 0, class.udp >> index & 1 != 0);
        context.packets.translate(index, packet.data());
        let translation = Translation6::with(&to, differences);
        let frame = packet.data_mut();
        let written = match (is_tcp | is_udp) && l4 != 0 {
            true => translation.write(frame, HEADER_LEN, l4, is_udp, is_partial),
            false => any(frame, &translation.to(), is_partial),
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let key = &mut context.packets.parsed.keys6[index];
        key.0[16..].copy_from_slice(&to.0[16..]);
        Ok(())
    }

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
            Either::V4(key) => Either::V4(key.in_zone(vrf)),
            Either::V6(key) => Either::V6(key.in_zone(vrf)),
        };
        let found = match own_key {
            Either::V4(key) => self.v4.lookup(key).and_then(|hit| {
                let flow = self.v4.flow_mut(&hit, key)?;
                Some((hit, Either::V4(flow.other.reversed()), flow.user.tcp))
            }),
            Either::V6(key) => self.v6.lookup(key).and_then(|hit| {
                let flow = self.v6.flow_mut(&hit, key)?;
                Some((hit, Either::V6(flow.other.reversed()), flow.user.tcp))
            }),
        };
        let Some((hit, to, tcp)) = found else {
            return own(self, context, packet, Reason::QuoteNoFlow);
        };
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
        // RFC 5508 REQ-5 c: routers inside are not named outside.
        let hides = hit.direction == Direction::Forward;
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
