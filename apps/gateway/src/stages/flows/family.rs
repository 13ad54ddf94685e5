//! Packets that change their version of IP: NAT64 (RFC 6146, RFC 7915).
//!
//! A packet from IPv4 becomes one of IPv6 before its flow is looked for, and a packet to IPv4 does
//! behind that: flows are of IPv6 alone. What is said about it later is about what its sender sent.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_routing::plane::{Context, Verdict};
use linerate_wire::FlowKey as Either;
use linerate_wire::ethernet::{HEADER_LEN, MIN_FRAME_LEN};
use linerate_wire::{EtherType, Headers, ipv4, ipv6};

use super::Flows;
use crate::nat::Tuple;
use crate::nat::nat64::{Front, Untranslatable, four_to_six, six_to_four};
use crate::track::{MAX_MADE_LEN, Quote, Reason};

impl Flows {
    /// Whether an IPv6 packet may be one that leaves as IPv4.
    #[inline]
    pub(super) fn may_leave(&self, index: usize, context: &Context<'_>) -> bool {
        let parsed = &context.packets.parsed;
        !self.nat.sessions.is_empty()
            && parsed.class.v6 >> index & 1 != 0
            && self
                .nat
                .prefix64(parsed.keys6[index].dst().into())
                .is_some()
    }

    /// An IPv6 packet that flows have passed: it becomes IPv4, if its session is NAT64's.
    #[cold]
    pub(super) fn leave(
        &mut self,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let key = context.packets.parsed.keys6[index];
        let mut session = self.nat.sessions.of(&Tuple::from(&key));
        if session.is_none() {
            // What the gateway says itself to its sender: the key has that one's source.
            let own = linerate_wire::parse(packet.data()).ok();
            if let Some(Either::V6(own)) = own.and_then(|own| own.flow_key(packet.data())) {
                session = self.nat.sessions.of(&Tuple::from(&own));
            }
        }
        match session.map(|session| session.outside) {
            Some(to) => self.become_four(index, &to, packet, context),
            None => Ok(()),
        }
    }

    /// An IPv4 packet that no flow of IPv4 has: it goes on as IPv6 where it is of a session.
    #[cold]
    pub(super) fn arrive(
        &mut self,
        now: u64,
        index: usize,
        packet: &mut Packet,
        (context, out): (&mut Context<'_>, &mut Egress),
    ) -> Result<(), Verdict> {
        let tuple = Tuple::from(&context.packets.parsed.keys4[index]);
        let session = self.nat.sessions.at(&tuple.reversed());
        let Some(to) = session.map(|session| session.inside.reversed()) else {
            return self.begin(now, index, packet, context);
        };
        self.become_six(index, &to, packet, context)?;
        let key = context.packets.parsed.keys6[index];
        let hit = self.v6.lookup(key);
        let hit = hit.ok_or(Verdict::Drop(self.reasons.nat_gone))?;
        self.has_arrived = true;
        let known = self.known6(now, index, &hit, packet, (context, out));
        self.has_arrived = false;
        known?;
        match self.may_leave(index, context) {
            true => self.leave(index, packet, context),
            false => Ok(()),
        }
    }

    /// An IPv4 error about a packet of a session: it goes on as IPv6. `None` where it is about no
    /// session.
    #[cold]
    pub(super) fn error_arrives(
        &mut self,
        index: usize,
        quote: &Quote,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Option<Result<(), Verdict>> {
        let Either::V4(key) = quote.key else {
            return None;
        };
        let session = self.nat.sessions.at(&Tuple::from(&key).reversed())?;
        let to = session.inside.reversed();
        Some(self.error_of(index, quote, &to, packet, context))
    }

    fn error_of(
        &mut self,
        index: usize,
        quote: &Quote,
        to: &Tuple,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let vrf = context.interface().vrf as u16;
        let Some(Either::V6(key)) = to.key() else {
            return Err(Verdict::Drop(self.reasons.nat_gone));
        };
        let key = key.in_zone(vrf);
        let hit = self.v6.lookup(key);
        let found = hit.and_then(|hit| Some((hit, self.v6.flow_mut(&hit, key)?.user.tcp)));
        let (hit, tcp) = found.ok_or(self.reasons.of(Reason::QuoteNoFlow))?;
        let checked = quote.check(&tcp, hit.direction);
        checked.map_err(|why| self.reasons.of(why))?;
        context.note(index, "flows", || "an error about a flow".into());
        if tcp.is_shifted()
            && let Ok(headers) = linerate_wire::parse(packet.data())
        {
            tcp.shift_quote(hit.direction, packet.data_mut(), &headers, &quote.headers);
        }
        self.become_six(index, to, packet, context)
    }

    /// What answers to a packet are in IPv4, if it came from there.
    pub(super) fn outside(&self, index: usize, context: &Context<'_>) -> Option<Tuple> {
        let parsed = &context.packets.parsed;
        if self.nat.sessions.is_empty() || parsed.class.v6 >> index & 1 == 0 {
            return None;
        }
        let back = Tuple::from(&parsed.keys6[index]).reversed();
        Some(self.nat.sessions.of(&back)?.outside)
    }

    /// A packet of IPv6 becomes one of IPv4, of this tuple.
    pub(super) fn become_four(
        &mut self,
        index: usize,
        to: &Tuple,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let headers = self.headers(packet)?;
        let (is_partial, mtu) = about(index, to, packet, context);
        let ident = self.random() as u16;
        context.packets.translate(index, packet.data());
        let mut front = six_to_four(packet.data_mut(), &headers, to, ident, mtu, is_partial);
        if let (Ok(front), 1) = (&mut front, context.packets.marks.whole >> index & 1) {
            front.may_be_cut(ident);
        }
        self.becomes_other(index, front, to, packet, context)
    }

    /// A packet of IPv4 becomes one of IPv6, of this tuple.
    pub(super) fn become_six(
        &mut self,
        index: usize,
        to: &Tuple,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let headers = self.headers(packet)?;
        let (is_partial, mtu) = about(index, to, packet, context);
        let prefix = self.nat.prefix64(to.src.address);
        let prefix = prefix.ok_or(Verdict::Drop(self.reasons.nat_gone))?;
        context.packets.translate(index, packet.data());
        let front = four_to_six(packet.data_mut(), &headers, to, &prefix, mtu, is_partial);
        self.becomes_other(index, front, to, packet, context)
    }

    /// A packet gets these headers, of the other version, and is what `to` says from here on.
    fn becomes_other(
        &mut self,
        index: usize,
        front: Result<Front, Untranslatable>,
        to: &Tuple,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let front = front.map_err(|why| self.untranslatable(why))?;
        self.put(index, &front, packet, context)?;
        let vrf = context.interface().vrf as u16;
        let parsed = &mut context.packets.parsed;
        let (version, l3_len) = match to.key() {
            Some(Either::V4(key)) => {
                parsed.class.v6 &= !(1 << index);
                parsed.class.v4 |= 1 << index;
                parsed.keys4[index] = key.in_zone(vrf);
                parsed.src4[index] = key.src().to_bits();
                parsed.dst4[index] = key.dst().to_bits();
                ("IPv4", ipv4::HEADER_LEN)
            }
            Some(Either::V6(key)) => {
                parsed.class.v4 &= !(1 << index);
                parsed.class.v6 |= 1 << index;
                parsed.keys6[index] = key.in_zone(vrf);
                ("IPv6", ipv6::HEADER_LEN)
            }
            None => return Err(Verdict::Drop(self.reasons.nat_malformed)),
        };
        packet.meta_mut().l4_offset = (HEADER_LEN + l3_len) as u16;
        context.note(index, "flows", || format!("{version} from here on: {to}"));
        Ok(())
    }

    fn headers(&self, packet: &Packet) -> Result<Headers, Verdict> {
        let malformed = Verdict::Drop(self.reasons.nat_malformed);
        linerate_wire::parse(packet.data()).map_err(|_| malformed)
    }

    fn untranslatable(&self, why: Untranslatable) -> Verdict {
        Verdict::Drop(match why {
            Untranslatable::Malformed => self.reasons.nat_malformed,
            Untranslatable::Fragment => self.reasons.nat64[0],
            Untranslatable::Icmp => self.reasons.nat64[1],
            Untranslatable::Routed => self.reasons.nat64[2],
        })
    }

    /// Puts the new headers before what is behind them.
    fn put(
        &self,
        index: usize,
        front: &Front,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let malformed = Verdict::Drop(self.reasons.nat_malformed);
        let grew = front.bytes().len() as i16 - front.replaced as i16;
        if !front.put(packet, HEADER_LEN) {
            return Err(malformed);
        }
        let end = packet.len();
        context.packets.grow(index, grew, end);
        if end < MIN_FRAME_LEN {
            if !packet.set_len(MIN_FRAME_LEN) {
                return Err(malformed);
            }
            packet.data_mut()[end..].fill(0);
        }
        let parsed = &mut context.packets.parsed;
        parsed.end[index] = end as u32;
        parsed.class.options &= !(1 << index);
        parsed.class.fragment &= !(1 << index);
        Ok(())
    }
}

/// Puts down as IPv4, of the tuple `to`, what `write` writes as IPv6; how many bytes that are.
pub(super) fn as_four(
    to: &Tuple,
    ident: u16,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
    put: &mut [u8],
) -> Option<usize> {
    let mut frame = [0; HEADER_LEN + MAX_MADE_LEN];
    frame[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
    let len = write(&mut frame[HEADER_LEN..])?;
    let frame = frame.get_mut(..HEADER_LEN + len)?;
    let headers = linerate_wire::parse(frame).ok()?;
    let front = six_to_four(frame, &headers, to, ident, u16::MAX, false).ok()?;
    let rest = frame.get(HEADER_LEN + front.replaced..front.end)?;
    let (header, behind) = put.split_at_mut_checked(front.bytes().len())?;
    header.copy_from_slice(front.bytes());
    behind.get_mut(..rest.len())?.copy_from_slice(rest);
    Some(header.len() + rest.len())
}

/// Whether the checksum of a packet is left to the network card, and the largest packet of the way
/// out, which errors say.
fn about(index: usize, to: &Tuple, packet: &Packet, context: &Context<'_>) -> (bool, u16) {
    let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
    let is_icmp = context.packets.parsed.class.icmp >> index & 1 != 0;
    let mtu = match is_icmp {
        true => context.route(index, to.dst.address, packet).mtu,
        false => u16::MAX,
    };
    (is_partial, mtu)
}
