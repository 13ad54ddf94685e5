//! Applies access lists to a burst: shared by the stages `acl_in` and `acl_out`.

use std::sync::Arc;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress};
use linerate_tables::acl::{Acl, PacketKey, PacketKey4, PacketKey6};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{Fragment, protocol};

use super::acl::{self, AccessList, Said};
use super::context::{Context, Packets, Verdict, ones};
use super::hits::{Flow, Hit};
use crate::model::InterfaceId;

/// Direction of a list: packets in, or out, by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Received by this interface.
    In(InterfaceId),
    /// About to leave by this interface.
    Out(InterfaceId),
}

impl Gate {
    /// The interface, of either direction.
    pub fn interface(self) -> InterfaceId {
        let (Self::In(id) | Self::Out(id)) = self;
        id
    }
}

/// Applies lists for one of the stages.
pub(super) struct Judge {
    /// The stage's name.
    stage: &'static str,
    /// By access list: the drop reason of packets that it does not permit.
    denied: Vec<DropId>,
    keys4: Box<[PacketKey4; Burst::CAPACITY]>,
    keys6: Box<[PacketKey6; Burst::CAPACITY]>,
}

impl Judge {
    pub(super) fn new(stage: &'static str) -> Self {
        let empty4 = PacketKey4::tuple([0], [0], (0, 0), 0);
        let empty6 = PacketKey6::tuple([0; 4], [0; 4], (0, 0), 0);
        Self {
            stage,
            denied: Vec::new(),
            keys4: Box::new([empty4; Burst::CAPACITY]),
            keys6: Box::new([empty6; Burst::CAPACITY]),
        }
    }

    /// Takes over the lists of another configuration: `room` for their drop reasons, by list, and
    /// the old index of each.
    pub(super) fn install(
        &mut self,
        room: &mut Vec<DropId>,
        lists: &[Arc<AccessList>],
        places: &[Option<usize>],
        egress: &mut Egress,
    ) {
        for (list, place) in lists.iter().zip(places) {
            let known = place.and_then(|at| self.denied.get(at).copied());
            room.push(
                known.unwrap_or_else(|| egress.reason(&format!("{}.{}", self.stage, list.name))),
            );
        }
        std::mem::swap(&mut self.denied, room);
    }

    /// Which of `live` the list of that number permits.
    pub(super) fn permit(
        &mut self,
        number: u16,
        gate: Gate,
        mut live: Mask,
        burst: &Burst,
        context: &mut Context<'_>,
    ) -> Mask {
        let (view, at) = (context.view, usize::from(number));
        let interface = view
            .settings
            .interfaces
            .get(usize::from(gate.interface().0));
        let Some((list, interface)) = view.settings.acls.get(at).zip(interface) else {
            return live;
        };
        let tiny = self.fill_keys(interface.vlan, live, burst, context.packets);
        for index in ones(tiny) {
            let verdict = Verdict::Drop(context.reasons.tiny_fragment);
            context.packets.judge(index, verdict);
        }
        live &= !tiny;
        let denied = self.denied[at];
        let class = context.packets.parsed.class;
        let mut said = [0; Burst::CAPACITY];
        ask(&list.v4, &self.keys4[..], live & class.v4, &mut said);
        ask(&list.v6, &self.keys6[..], live & class.v6, &mut said);
        let mut refused = 0;
        for index in ones(live) {
            let said = Said::of(said[index]);
            context.installed.counters.hit(at, said.rule());
            let verdict = match said.verdict() {
                acl::Verdict::Permit => None,
                acl::Verdict::Deny => Some(Verdict::Drop(denied)),
                acl::Verdict::Reject => Some(Verdict::Reject(denied, list.answer)),
            };
            if let Some(verdict) = verdict {
                context.packets.judge(index, verdict);
                refused |= 1 << index;
            }
            if said.is_logged() {
                let is_v4 = class.v4 >> index & 1 != 0;
                context.exceptions.hits.add(Hit {
                    list: number,
                    rule: said.rule(),
                    verdict: said.verdict(),
                    gate,
                    flow: self.flow(index, is_v4),
                });
            }
            context.note(index, self.stage, || {
                let verdict = said.verdict().name();
                match said.rule() {
                    rule if rule == list.rules => {
                        format!("list {}: no rule, {verdict}", list.name)
                    }
                    rule => format!("list {}: rule {}, {verdict}", list.name, rule + 1),
                }
            });
        }
        live & !refused
    }

    #[cold]
    fn flow(&self, index: usize, is_v4: bool) -> Flow {
        match is_v4 {
            true => Flow::of4(&self.keys4[index]),
            false => Flow::of6(&self.keys6[index]),
        }
    }

    /// Fills in the keys for lists, each at its position. Returns the packets that no list can
    /// judge: first fragments and broken packets that lack the header that rules look at.
    fn fill_keys(
        &mut self,
        vlan: Option<u16>,
        live: Mask,
        burst: &Burst,
        packets: &Packets,
    ) -> Mask {
        let mut tiny = 0;
        for index in ones(live) {
            let packet = &burst.as_packets()[index];
            let end = packets.parsed.end[index] as usize;
            let is_tiny = if packets.parsed.class.v4 >> index & 1 != 0 {
                let key = packets.parsed.keys4[index];
                let ends = ([u32::from(key.src())], [u32::from(key.dst())]);
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.keys4[index] = key.with_vlan(vlan))
            } else {
                let key = packets.parsed.keys6[index];
                let words = linerate_tables::acl::words6;
                let ends = (words(key.src()), words(key.dst()));
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.keys6[index] = key.with_vlan(vlan))
            }
            .is_none();
            tiny |= Mask::from(is_tiny) << index;
        }
        tiny
    }
}

/// Looks up each packet of `mask` in a list; the result is at its position.
fn ask<const W: usize>(
    list: &Acl<W>,
    keys: &[PacketKey<W>],
    mask: Mask,
    said: &mut [u32; Burst::CAPACITY],
) {
    if mask == 0 {
        return;
    }
    let mut packed = [keys[0]; Burst::CAPACITY];
    let mut values = [0; Burst::CAPACITY];
    let mut count = 0;
    for index in ones(mask) {
        packed[count] = keys[index];
        count += 1;
    }
    list.classify(&packed[..count], &mut values[..count]);
    for (index, value) in ones(mask).zip(&values[..count]) {
        said[index] = *value;
    }
}

/// The key of a packet without its tag: as `PacketKey::of`, but with the offsets of the parser; the
/// packet ends at byte `end`. `None` where ports, or an ICMP type, are missing (RFC 1858 3, RFC
/// 3128).
fn fill<const W: usize>(
    packet: &Packet,
    end: usize,
    (src, dst): ([u32; W], [u32; W]),
    protocol: u8,
) -> Option<PacketKey<W>> {
    let frame = packet.data();
    let l4 = usize::from(packet.meta().l4_offset);
    let traffic_class = match W {
        1 => frame[HEADER_LEN + 1],
        _ => frame[HEADER_LEN] << 4 | frame[HEADER_LEN + 1] >> 4,
    };
    let mut key = PacketKey::tuple(src, dst, (0, 0), protocol)
        .with_length(frame.len())
        .with_dscp(traffic_class >> 2);
    let fragment = fragment::<W>(frame, l4)?;
    let has_upper = matches!(
        protocol,
        protocol::TCP | protocol::UDP | protocol::SCTP | protocol::ICMP | protocol::ICMPV6
    );
    match fragment {
        Fragment::Later => {
            key = key.later_fragment();
            // RFC 1858 3.2.2, RFC 3128: a TCP header that begins behind its first 8 bytes hides its
            // flags from a filter of the first fragment.
            let offset = u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff;
            return (W != 1 || protocol != protocol::TCP || offset != 1).then_some(key);
        }
        Fragment::First => key = key.fragment(),
        Fragment::No => {}
    }
    if !has_upper {
        return Some(key);
    }
    // The parser's keys of fragments have no ports: those of first fragments are read here.
    let upper = frame.get(l4..end).filter(|_| l4 != 0)?;
    let is_tcp = protocol == protocol::TCP;
    let upper = upper.get(..if is_tcp { 14 } else { 4 })?;
    let two = |at: usize| u16::from_be_bytes([upper[at], upper[at + 1]]);
    key = key.with_ports(match key.icmp() {
        Some(_) => (upper[0].into(), upper[1].into()),
        None => (two(0), two(2)),
    });
    if is_tcp {
        key = key.with_tcp_flags(upper[13]);
    }
    Some(key)
}

/// Which part of a datagram an untagged frame carries. `None` where the extension headers cannot be
/// walked.
fn fragment<const W: usize>(frame: &[u8], l4: usize) -> Option<Fragment> {
    if W != 1 {
        let ip = Ipv6::new_checked(&frame[HEADER_LEN..]).ok()?;
        // The parser sets no upper layer for later fragments.
        return Some(match (ip.upper_layer().ok()?.is_fragment, l4) {
            (false, _) => Fragment::No,
            (true, 0) => Fragment::Later,
            (true, _) => Fragment::First,
        });
    }
    Some(match u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff {
        0 => Fragment::No,
        0x2000 => Fragment::First,
        _ => Fragment::Later,
    })
}
