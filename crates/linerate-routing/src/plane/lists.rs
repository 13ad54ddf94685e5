//! What access lists say of the packets of a burst, coming in or going out.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress};
use linerate_tables::acl::{Acl, PacketKey, PacketKey4, PacketKey6};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{Fragment, protocol};

use super::View;
use super::acl::{Said, Verdict};
use super::change::Change;
use super::engine::{Engine, Fate, ones};
use super::hits::{Flow, Hit, Hits};
use super::hops::Action;
use super::trace::Stage;
use crate::model::InterfaceId;

/// Where a list judges: what comes in by an interface, or goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    In(InterfaceId),
    Out(InterfaceId),
}

impl Gate {
    pub fn interface(self) -> InterfaceId {
        let (Self::In(id) | Self::Out(id)) = self;
        id
    }
}

/// The state behind access lists.
pub(super) struct Lists {
    /// By access list: coming in, and going out.
    denied: Vec<[DropId; 2]>,
    keys4: Box<[PacketKey4; Burst::CAPACITY]>,
    keys6: Box<[PacketKey6; Burst::CAPACITY]>,
    /// What is to be told of.
    pub(super) hits: Hits,
}

impl Default for Lists {
    fn default() -> Self {
        let empty4 = PacketKey4::tuple([0], [0], (0, 0), 0);
        let empty6 = PacketKey6::tuple([0; 4], [0; 4], (0, 0), 0);
        Self {
            denied: Vec::new(),
            keys4: Box::new([empty4; Burst::CAPACITY]),
            keys6: Box::new([empty6; Burst::CAPACITY]),
            hits: Hits::default(),
        }
    }
}

impl Lists {
    /// Takes over the lists of another configuration.
    pub(super) fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        for (list, place) in change.settings.acls.iter().zip(&change.lists) {
            let known = place.and_then(|at| self.denied.get(at).copied());
            change.denied.push(known.unwrap_or_else(|| {
                ["acl_in", "acl_out"].map(|way| egress.reason(&format!("{way}.{}", list.name)))
            }));
        }
        std::mem::swap(&mut self.denied, &mut change.denied);
        // They name lists and interfaces by number.
        self.hits = Hits::default();
    }
}

impl Engine {
    /// Which of `live` the list of that number permits.
    pub(super) fn permit(
        &mut self,
        view: View<'_>,
        number: u16,
        gate: Gate,
        mut live: Mask,
        burst: &Burst,
    ) -> Mask {
        let at = usize::from(number);
        let interface = view
            .settings
            .interfaces
            .get(usize::from(gate.interface().0));
        let Some((list, interface)) = view.settings.acls.get(at).zip(interface) else {
            return live;
        };
        let tiny = self.fill_keys(interface.vlan, live, burst);
        for index in ones(tiny) {
            self.fates[index] = Fate::Drop(self.reasons.tiny_fragment);
        }
        live &= !tiny;
        let lists = &self.features.lists;
        let denied = match gate {
            Gate::In(_) => lists.denied[at][0],
            Gate::Out(_) => lists.denied[at][1],
        };
        let class = &self.parsed.class;
        let mut said = [0; Burst::CAPACITY];
        ask(&list.v4, &lists.keys4[..], live & class.v4, &mut said);
        ask(&list.v6, &lists.keys6[..], live & class.v6, &mut said);
        let mut refused = 0;
        for index in ones(live) {
            let said = Said::of(said[index]);
            self.counters.hit(at, said.rule());
            match said.verdict() {
                Verdict::Permit => {}
                Verdict::Deny => self.fates[index] = Fate::Drop(denied),
                Verdict::Reject => self.fates[index] = Fate::Reject(denied, list.answer),
            }
            refused |= Mask::from(said.verdict() != Verdict::Permit) << index;
            if said.is_logged() {
                self.tell_of(number, said, gate, index);
            }
            self.note(index, Stage::Acl, || match said.rule() {
                rule if rule == list.rules => {
                    format!("list {}: no rule, {}", list.name, said.verdict().name())
                }
                rule => {
                    let verdict = said.verdict().name();
                    format!("list {}: rule {}, {verdict}", list.name, rule + 1)
                }
            });
        }
        live & !refused
    }

    /// Keeps what a rule says of the packet at `index`, for control to tell.
    #[cold]
    fn tell_of(&mut self, list: u16, said: Said, gate: Gate, index: usize) {
        let lists = &mut self.features.lists;
        let flow = match self.parsed.class.v4 >> index & 1 {
            1 => Flow::of4(&lists.keys4[index]),
            _ => Flow::of6(&lists.keys6[index]),
        };
        lists.hits.add(Hit {
            list,
            rule: said.rule(),
            verdict: said.verdict(),
            gate,
            flow,
        });
    }

    /// Fills in the keys that lists look at, each at its place. Returns the packets that no list can
    /// judge: first fragments, and broken packets, without the header that rules ask for.
    fn fill_keys(&mut self, vlan: Option<u16>, live: Mask, burst: &Burst) -> Mask {
        let mut tiny = 0;
        for index in ones(live) {
            let packet = &burst.as_packets()[index];
            let end = self.parsed.end[index] as usize;
            let is_tiny = if self.parsed.class.v4 >> index & 1 != 0 {
                let key = self.parsed.keys4[index];
                let ends = ([u32::from(key.src())], [u32::from(key.dst())]);
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.features.lists.keys4[index] = key.with_vlan(vlan))
            } else {
                let key = self.parsed.keys6[index];
                let words = linerate_tables::acl::words6;
                let ends = (words(key.src()), words(key.dst()));
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.features.lists.keys6[index] = key.with_vlan(vlan))
            }
            .is_none();
            tiny |= Mask::from(is_tiny) << index;
        }
        tiny
    }

    /// Which of `live` the lists of the interfaces permit that they leave by.
    #[cold]
    pub(super) fn permit_out(&mut self, view: View<'_>, mut live: Mask, burst: &Burst) -> Mask {
        let mut asked: Mask = 0;
        let mut interfaces = [InterfaceId(0); Burst::CAPACITY];
        for index in ones(live & !self.marks.to_group) {
            let (_, hop) = self.hop(view, index, &burst.as_packets()[index]);
            // Only what is forwarded: the rest has no interface to leave by, or stays here.
            use Action::{Forward, Glean, Resolve};
            let leaves = matches!(hop.action, Forward | Resolve | Glean);
            let Some(id) = hop.interface.get().filter(|_| leaves) else {
                continue;
            };
            let face = self.faces.get(usize::from(id.0));
            if face.is_some_and(|face| face.has_acl_out) {
                interfaces[index] = id;
                asked |= 1 << index;
            }
        }
        while asked != 0 {
            let id = interfaces[asked.trailing_zeros() as usize];
            let mut mask = 0;
            for index in ones(asked) {
                mask |= Mask::from(interfaces[index] == id) << index;
            }
            asked &= !mask;
            if let Some(list) = view.settings.interfaces[usize::from(id.0)].acl_out {
                let permitted = self.permit(view, list, Gate::Out(id), mask, burst);
                live &= !mask | permitted;
            }
        }
        live
    }
}

/// What a list says of each packet of `mask`, at its place.
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

/// What lists ask of a packet without its tag: as `PacketKey::of`, but what the parser found is not
/// looked for again; the packet ends at byte `end`. `None` where there should be ports, or an ICMP type, and are none (RFC 1858 3,
/// RFC 3128).
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
            // flags from whoever judges the first fragment.
            let offset = u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff;
            return (W != 1 || protocol != protocol::TCP || offset != 1).then_some(key);
        }
        Fragment::First => key = key.fragment(),
        Fragment::No => {}
    }
    if !has_upper {
        return Some(key);
    }
    // Keys of fragments have no ports: they are read here.
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
        // The parser gives no upper layer to what is no first fragment.
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
