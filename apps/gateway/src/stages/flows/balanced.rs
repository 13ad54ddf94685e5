//! Flows of virtual services: which backend the first packet chooses, and packets on their way to a
//! backend that answers the client itself.
//!
//! Flows whose packets are translated go the way of all others: their keys say it. Those whose
//! packets are encapsulated have [`DIRECT`] in the number of the configuration that has permitted
//! them, so that they look as if another had: what all packets are checked for leads here, and
//! costs the others nothing.

use std::sync::Arc;

use linerate_core::packet::{Offload, Packet};
use linerate_routing::plane::acl::Answer;
use linerate_routing::plane::{Context, Verdict};
use linerate_tables::flow::{FlowKey, Hit};
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::offload::complete_partial;
use linerate_wire::{EtherType, protocol};
use linerate_wire::{FlowKey4, FlowKey6};

use super::{Flows, Table, Tracked};
use crate::balance::encapsulate::{Outer, decrement, is_whole, overhead};
use crate::balance::one_way::{self, Next};
use crate::balance::tables::Target;
use crate::balance::{Chosen, Form, Tables};
use crate::nat::Tuple;
use crate::track::{State, Upper};

/// In [`Tracked::permitted_by`]: the flow's packets are encapsulated.
pub(super) const DIRECT: u32 = 1 << 31;

// An IPv4 flow fills two lines with it, an IPv6 flow three.
const _: () = assert!(size_of::<Tracked>() <= 64);

impl Tracked {
    /// The number of the backend that its packets go to; 0 where it is of no service.
    pub fn backend(&self) -> u16 {
        self.backend
    }

    /// Whether its backend answers the client itself.
    pub fn is_direct(&self) -> bool {
        self.permitted_by & DIRECT != 0
    }
}

/// What is done with a packet of a flow whose backend answers the client itself.
pub(super) enum Directed {
    /// It is the client's, and goes to the backend.
    There,
    /// It is the backend's, and goes on as it is.
    Back,
    /// It begins another flow.
    Anew,
}

/// Tracks a packet of such a flow.
pub(super) fn direct<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    hit: &Hit,
    (key, upper, bytes): (F, &Upper, u32),
    now: u64,
) -> Directed {
    let Some(mut flow) = table.flow_mut(hit, key) else {
        return Directed::Anew;
    };
    let before = flow.state;
    let Next::Pass(state) = one_way::next(hit.direction, State::of(before), upper) else {
        return Directed::Anew;
    };
    flow.count(bytes);
    flow.refresh(now);
    if state as u8 != before {
        // A state without room leaves the flow in the one that it has.
        let _ = table.set_state(hit.flow, state as u8);
    }
    match hit.direction {
        linerate_tables::flow::Direction::Forward => Directed::There,
        linerate_tables::flow::Direction::Reverse => Directed::Back,
    }
}

impl Flows {
    /// The tables that flows choose backends by: other backends are up now. Returns those that
    /// were in force.
    pub fn exchange_backends(&mut self, tables: Arc<Tables>) -> Arc<Tables> {
        if self.balance.numbers() != tables.numbers() {
            // Of another configuration, which comes with a change of its own.
            return tables;
        }
        std::mem::replace(&mut self.balance, tables)
    }

    /// Flows that have begun here, by the number of their backend.
    pub fn begun_by_backend(&self) -> &[u64] {
        &self.begun
    }

    /// The backend of a first packet; `None` where it is for no service.
    pub(super) fn choose(
        &self,
        index: usize,
        tuple: &Tuple,
        context: &mut Context<'_>,
    ) -> Result<Option<Chosen>, Verdict> {
        if self.balance.is_empty() {
            return Ok(None);
        }
        let Some(found) = self.balance.choose(tuple) else {
            return Ok(None);
        };
        let Ok(chosen) = found else {
            return Err(Verdict::Reject(self.reasons.no_backend, Answer::Reset));
        };
        context.note(index, "flows", || {
            let (service, backend) = chosen.place;
            let service = &self.balance.config().services[service];
            let backend = &service.backends[backend];
            format!("balancer {}: backend {backend}", service.name)
        });
        Ok(Some(chosen))
    }

    /// Counts a flow that has begun.
    pub(super) fn began_at(&mut self, backend: u16) {
        if let Some(begun) = self.begun.get_mut(usize::from(backend)) {
            *begun += 1;
        }
    }

    /// The backend of that number.
    pub(super) fn target(&self, backend: u16) -> Result<Target, Verdict> {
        let gone = Verdict::Drop(self.reasons.backend_gone);
        self.balance.target(backend).copied().ok_or(gone)
    }

    /// Puts the packet at `index` into one to its backend, which it leaves in.
    #[cold]
    pub(super) fn encapsulate(
        &mut self,
        index: usize,
        backend: u16,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let Target { address, form } = self.target(backend)?;
        let malformed = Verdict::Drop(self.reasons.nat_malformed);
        let parsed = &context.packets.parsed;
        let (is_v4, end) = (
            parsed.class.v4 >> index & 1 != 0,
            parsed.end[index] as usize,
        );
        let offload = packet.meta().offload;
        if offload.intersects(Offload::GSO) {
            return Err(Verdict::Drop(self.reasons.backend_segments));
        }
        let ident = self.random() as u16;
        let hop = context.route(index, address, packet);
        let (mtu, before) = (usize::from(hop.mtu), overhead(form, address));
        let inner = packet.data().get(HEADER_LEN..end).ok_or(malformed)?;
        let may_be_cut = !is_whole(inner);
        if mtu != 0 && inner.len() + before > mtu && !may_be_cut {
            let fits = mtu.saturating_sub(before) as u16;
            context.note(index, "flows", || format!("too big for {}", form.name()));
            return Err(Verdict::TooBig(fits));
        }
        context.packets.translate(index, packet.data());
        if offload.contains(Offload::CSUM_PARTIAL) {
            let meta = packet.meta();
            let (start, offset) = (meta.csum_start, meta.csum_offset.into());
            if !complete_partial(packet.data_mut(), start, offset) {
                return Err(malformed);
            }
        }
        packet.truncate(end);
        if !decrement(&mut packet.data_mut()[HEADER_LEN..]) {
            return Err(Verdict::Expired);
        }
        let flow = match is_v4 {
            true => hash(&context.packets.parsed.keys4[index].0),
            false => hash(&context.packets.parsed.keys6[index].0),
        };
        let inner = &packet.data()[HEADER_LEN..];
        let outer = Outer::new(form, address, inner, (flow, ident)).ok_or(malformed)?;
        let bytes = outer.bytes();
        if packet.prepend(bytes.len()).is_none() {
            return Err(malformed);
        }
        let frame = packet.data_mut();
        frame.copy_within(bytes.len()..bytes.len() + HEADER_LEN, 0);
        let ethertype = match address.is_ipv4() {
            true => EtherType::IPV4,
            false => EtherType::IPV6,
        };
        frame[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&ethertype.0.to_be_bytes());
        frame[HEADER_LEN..HEADER_LEN + bytes.len()].copy_from_slice(bytes);
        let meta = packet.meta_mut();
        let checked = Offload::CSUM_PARTIAL;
        meta.offload.remove(checked);
        meta.offload.remove(Offload::CSUM_VALID);
        meta.l3_offset = HEADER_LEN as u8;
        meta.l4_offset = (HEADER_LEN + outer.ip_len()) as u16;
        packed(index, &outer, (address, form), may_be_cut, context);
        Ok(())
    }
}

/// What is known of the packet at `index` becomes what is true of the one that it is in. The source
/// in its key stays the sender's, as with all that is translated; where the families differ, it is
/// the backend.
fn packed(
    index: usize,
    outer: &Outer,
    (to, form): (std::net::IpAddr, Form),
    may_be_cut: bool,
    context: &mut Context<'_>,
) {
    let bit = 1 << index;
    let packets = &mut *context.packets;
    let parsed = &mut *packets.parsed;
    let was_v4 = parsed.class.v4 & bit != 0;
    parsed.end[index] += outer.bytes().len() as u32;
    let class = &mut parsed.class;
    for other in [
        &mut class.v4,
        &mut class.v6,
        &mut class.tcp,
        &mut class.udp,
        &mut class.icmp,
        &mut class.options,
    ] {
        *other &= !bit;
    }
    let (number, ports) = match (form, was_v4) {
        (Form::Gue(_), _) => {
            class.udp |= bit;
            let udp = &outer.bytes()[outer.ip_len()..];
            let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
            (protocol::UDP, (port(0), port(2)))
        }
        (_, true) => (protocol::IPV4, (0, 0)),
        (_, false) => (protocol::IPV6, (0, 0)),
    };
    match to {
        std::net::IpAddr::V4(v4) => {
            class.v4 |= bit;
            let to = v4.octets();
            let from = match was_v4 {
                true => parsed.keys4[index].src().octets(),
                false => to,
            };
            parsed.keys4[index] = FlowKey4::new(from, to, ports.0, ports.1, number);
            parsed.src4[index] = u32::from_be_bytes(from);
            parsed.dst4[index] = v4.to_bits();
        }
        std::net::IpAddr::V6(v6) => {
            class.v6 |= bit;
            let to = v6.octets();
            let from = match was_v4 {
                true => to,
                false => parsed.keys6[index].src().octets(),
            };
            parsed.keys6[index] = FlowKey6::new(from, to, ports.0, ports.1, number);
            if may_be_cut {
                // RFC 2473 7.2: where the packet may be fragmented, the one around it is.
                packets.marks.whole |= bit;
            }
        }
    }
}

/// Tells flows apart: not secret, and the same for all packets of one.
fn hash(key: &[u8]) -> u32 {
    let sum = key.chunks(4).fold(0_u32, |sum, bytes| {
        let word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
        (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1)
    });
    sum ^ sum >> 15
}
