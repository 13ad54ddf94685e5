//! Reassembly: puts fragments together before access lists and other checks see them.
//!
//! Fragments are taken out of the burst and kept until their datagram is whole, which then goes to
//! the end of the burst: the path parses and validates it like any packet. Its timers run in the
//! stage's turn.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, NEVER, Stage};
use linerate_stack::reassembly::{Outcome, Reassembler, Refusal};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;

use super::change::Change;
use super::context::Context;
use super::icmp_error::IcmpError;
use super::punt::Punt;
use crate::model::InterfaceId;

/// How many incomplete datagrams one turn may end.
const EXPIRY_BUDGET: usize = 256;

/// The stage.
#[derive(Default)]
pub struct Reassembly {
    /// Made when the first interface asks for it.
    reassembler: Option<Box<Reassembler>>,
    /// What the reassembler has dropped, as far as the drop counters include it.
    dropped: [u64; Refusal::ALL.len()],
    /// The datagrams that it has put together, and their fragments, as far as the counters include
    /// them.
    whole: (u64, u64),
}

impl Reassembly {
    /// Takes over another configuration.
    pub fn install(&mut self, change: &mut Change) {
        if self.reassembler.is_none() {
            self.reassembler = change.reassembler.take();
        }
    }

    /// When the next datagram is given up, in nanoseconds; `None`: none is incomplete.
    #[inline(always)]
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.reassembler.as_ref()?.next_expiry_ns()
    }

    /// Takes fragments out of the burst, and puts the datagrams that become whole into it.
    fn join(
        &mut self,
        fragments: Mask,
        burst: &mut Burst,
        context: &mut Context<'_>,
        out: &mut Egress,
    ) {
        let Some(reassembler) = &mut self.reassembler else {
            return;
        };
        let (id, vrf) = (context.packets.interface, context.interface().vrf);
        let mut parts = Burst::new();
        let mut index = 0;
        burst.retain(&mut parts, |_| {
            index += 1;
            fragments >> (index - 1) & 1 == 0
        });
        context.packets.first_whole = Some(burst.len());
        context.packets.here = Mask::MAX;
        let now_ns = context.view.now_ns;
        for mut part in parts.drain() {
            // If the datagram stays incomplete, its sender gets an error by this interface.
            part.set_user(Punt {
                interface: id,
                ..Punt::default()
            });
            match reassembler.push(part, HEADER_LEN, vrf, now_ns, &mut out.cache) {
                Outcome::Held => {}
                Outcome::Whole(packet) => {
                    // There is room, since each fragment was taken out before.
                    if let Err(packet) = burst.push(packet) {
                        out.drop_one(context.reasons.no_buffer, packet);
                    }
                }
                Outcome::Dropped(refusal, packet) => {
                    // RFC 8200 4.5.
                    let ip = packet.data().get(HEADER_LEN..).unwrap_or_default();
                    let error = refusal.error6(ip).map(IcmpError::Fragment);
                    end_fragment(id, error, packet, context, out);
                }
            }
        }
    }

    /// Ends datagrams whose fragments did not come in time.
    fn expire(&mut self, context: &mut Context<'_>, out: &mut Egress) {
        let Some(reassembler) = &mut self.reassembler else {
            return;
        };
        let mut first = Burst::new();
        let now_ns = context.view.now_ns;
        reassembler.expire(now_ns, EXPIRY_BUDGET, &mut out.cache, &mut first);
        for packet in first.drain() {
            // RFC 792, RFC 8200 4.5: the sender gets an error, if the first fragment came.
            let Punt { interface, .. } = packet.user();
            let error = Some(IcmpError::ReassemblyExceeded);
            end_fragment(interface, error, packet, context, out);
        }
    }

    /// Counts what the reassembler has put together since the last time, and among the drops what
    /// it has dropped: fragments given back, and those whose slots it has freed itself.
    fn count(&mut self, context: &Context<'_>, out: &mut Egress) {
        let Some(reassembler) = &self.reassembler else {
            return;
        };
        let stats = reassembler.stats();
        let (datagrams, fragments) = (stats.datagrams, stats.reassembled);
        let (known, used) = std::mem::replace(&mut self.whole, (datagrams, fragments));
        let (datagrams, fragments) = (datagrams - known, fragments - used);
        // Each datagram is in the slot of one of its fragments.
        out.consumed(fragments - datagrams);
        let counters = &context.installed.counters;
        counters.reassembled.add(datagrams);
        counters.fragments_used.add(fragments);
        let counted = stats.dropped.into_iter().zip(&mut self.dropped);
        for ((now, counted), reason) in counted.zip(context.reasons.fragment) {
            out.count_drops(reason, now - *counted);
            *counted = now;
        }
    }
}

/// Frees a fragment that the reassembler has counted as dropped, and answers its sender.
fn end_fragment(
    id: InterfaceId,
    error: Option<IcmpError>,
    packet: Packet,
    context: &mut Context<'_>,
    out: &mut Egress,
) {
    if let Some(error) = error {
        context.icmp_error(id, &packet, error, out);
    }
    out.show_dropped("fragment", &packet);
    out.cache.free_one(packet);
}

impl Stage<Context<'_>> for Reassembly {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let fragments = context.packets.live & context.packets.parsed.class.fragment;
        if fragments != 0 {
            self.join(fragments, burst, context, out);
            self.count(context, out);
        }
    }

    fn turn(&mut self, _: u64, context: &mut Context<'_>, out: &mut Egress) -> u64 {
        // The path has checked the time: see `Path::turn`.
        self.expire(context, out);
        self.count(context, out);
        NEVER
    }

    /// Slots of incomplete datagrams.
    fn held(&self) -> u64 {
        let reassembler = self.reassembler.as_ref();
        reassembler.map_or(0, |reassembler| reassembler.held().datagrams as u64)
    }

    /// The fragments in them.
    fn held_packets(&self) -> u64 {
        let reassembler = self.reassembler.as_ref();
        reassembler.map_or(0, |reassembler| reassembler.held().fragments)
    }
}
