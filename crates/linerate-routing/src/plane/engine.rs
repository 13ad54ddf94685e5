//! One worker's forwarding: from a burst as it was received to frames in the lanes of interfaces.
//!
//! What is plain (ordinary unicast, no options, to be forwarded by a hop that is ready) stays in
//! loops over the burst. The rest is validated one by one before the lookup (`input.rs`), and
//! disposed of one by one after it (`dispose.rs`); both do what the loops do, in full. Nothing leaves
//! its place in the burst until the last step (`forward.rs`), where every packet goes its way in order.

use std::sync::Arc;

use linerate_core::arch::Vectors;
use linerate_core::packet::{Burst, Offload, Packet, Pool, Pools};
use linerate_core::run::{DropId, Egress};
use linerate_tables::lpm::NO_ROUTE;
use linerate_tables::parse::{Mask, Parsed, Parser};
use linerate_tables::rewrite::Divider;
use linerate_wire::MacAddr;

use super::acl::Answer;
use super::change::Change;
use super::counters::Counters;
use super::errors::Errors;
use super::face::Face;
use super::features::Features;
use super::input::{self, Sieve};
use super::options::Day;
use super::ours::Ours;
use super::punt::{Punt, Reason};
use super::reasons::Reasons;
use super::settings::{PortMap, Settings};
use super::trace::{Stage, Watch};
use super::{Setup, View, vlan};
use crate::model::InterfaceId;

/// What becomes of a packet that does not get as far as the lookup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Drop(DropId),
    /// Dropped, and told so.
    Reject(DropId, Answer),
    Punt(Reason),
}

/// What validation says of packets that go on, by position in the burst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// For a multicast group, or the broadcast address.
    pub(super) to_group: Mask,
    /// A link-local address is in it.
    pub(super) link_local: Mask,
    /// The frame was a link-layer multicast or broadcast.
    pub(super) l2_group: Mask,
    /// Put together here, from fragments.
    pub(super) whole: Mask,
}

/// One worker's forwarding.
pub(super) struct Engine {
    parser: Parser,
    pub(super) vectors: Vectors,
    pub(super) divider: Divider,
    pub(super) parsed: Box<Parsed>,
    pub(super) marks: Marks,
    pub(super) fates: [Fate; Burst::CAPACITY],
    pub(super) dst6: [[u8; 16]; Burst::CAPACITY],
    /// The number of the hop of each packet.
    pub(super) hops: [u32; Burst::CAPACITY],
    /// By interface.
    pub(super) faces: Vec<Face>,
    /// By VRF.
    pub(super) ours: Vec<Ours>,
    any_acl_out: bool,
    /// Frames ready to go, by interface; and which may hold some, by its number modulo 64.
    pub(super) lanes: Vec<Burst>,
    pub(super) filled: u64,
    pub(super) features: Features,
    pub(super) errors: Errors,
    pub(super) reasons: Reasons,
    pub(super) counters: Arc<Counters>,
    pub(super) watch: Watch,
    pub(super) pools: Pools,
    pub(super) day: Day,
    slow: u16,
}

impl Engine {
    pub(super) fn new(setup: &Setup, egress: &mut Egress) -> Self {
        let reasons = Reasons::new(egress);
        let pools: Vec<Pool> = egress.cache.pools().cloned().collect();
        let mut engine = Self {
            parser: Parser::new(setup.isa),
            vectors: Vectors::up_to(setup.isa),
            divider: Divider::new(setup.isa),
            parsed: Box::new(Parsed::new()),
            marks: Marks::default(),
            fates: [Fate::Drop(reasons.truncated); Burst::CAPACITY],
            dst6: [[0; 16]; Burst::CAPACITY],
            hops: [NO_ROUTE; Burst::CAPACITY],
            faces: Vec::new(),
            ours: Vec::new(),
            any_acl_out: false,
            lanes: Vec::new(),
            filled: 0,
            features: Features::new(&setup.punts),
            errors: Errors::new(),
            reasons,
            counters: Arc::default(),
            watch: Watch::default(),
            pools: Pools::new(pools),
            day: Day::at(setup.clock.ns(setup.clock.now())),
            slow: setup.slow,
        };
        let settings = setup.settings.clone();
        let none = (Settings::default(), Counters::default());
        let mut change = Change::new(settings, &none.0, &none.1, setup.queues);
        engine.install(&mut change, egress);
        engine
    }

    /// Exchanges the configuration, between two bursts.
    pub(super) fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        std::mem::swap(&mut self.faces, &mut change.faces);
        std::mem::swap(&mut self.ours, &mut change.ours);
        self.any_acl_out = self.faces.iter().any(|face| face.has_acl_out);
        // They are empty between two bursts.
        std::mem::swap(&mut self.lanes, &mut change.lanes);
        self.features.install(change, egress);
        change
            .counters
            .go_on_from(&self.counters, &change.interfaces);
        std::mem::swap(&mut self.counters, &mut change.counters);
    }

    /// Forwards a burst: nothing of it is left.
    #[inline]
    pub(super) fn run(&mut self, view: View<'_>, burst: &mut Burst, out: &mut Egress) {
        let Some(map) = view.settings.ports.get(usize::from(burst.port)) else {
            return out.drop_burst(self.reasons.no_interface, burst);
        };
        if self.watch.is_tapped() {
            self.watch.show(Stage::Input, burst.port, burst);
        }
        match map.untagged.filter(|_| map.vlans.is_empty()) {
            Some(interface) => {
                self.parse(interface, burst);
                if !self.interface(view, interface, burst, out, None) {
                    self.split(view, map, burst, out);
                }
            }
            None => self.split(view, map, burst, out),
        }
        self.send_lanes(out);
    }

    /// Takes off tags, and runs what came by each interface as a burst of its own.
    #[cold]
    fn split(&mut self, view: View<'_>, map: &PortMap, burst: &mut Burst, out: &mut Egress) {
        let mut numbers = [None; Burst::CAPACITY];
        for (packet, number) in burst.iter_mut().zip(&mut numbers) {
            *number = vlan::untag(packet);
        }
        while !burst.is_empty() {
            let number = numbers[0];
            let mut later = Burst::new();
            let (mut index, mut left) = (0, 0);
            burst.sift(&mut later, |_| {
                let own = numbers[index];
                index += 1;
                if own != number {
                    numbers[left] = own;
                    left += 1;
                }
                own == number
            });
            let interface = match number {
                Some(0) => map.untagged,
                Some(number) => {
                    let known = map.vlans.binary_search_by_key(&number, |vlan| vlan.0);
                    known.ok().map(|at| map.vlans[at].1)
                }
                None => None,
            };
            match interface {
                Some(interface) => {
                    self.parse(interface, burst);
                    if !self.interface(view, interface, burst, out, None) {
                        // A second tag, which no interface has.
                        out.drop_burst(self.reasons.unknown_vlan, burst);
                    }
                }
                None => {
                    let reason = match number {
                        Some(0) => self.reasons.no_interface,
                        Some(_) => self.reasons.unknown_vlan,
                        None => self.reasons.truncated,
                    };
                    out.drop_burst(reason, burst);
                }
            }
            (later.now, later.port) = (burst.now, burst.port);
            *burst = later;
        }
    }

    /// Parses what came by one interface.
    #[inline(always)]
    fn parse(&mut self, id: InterfaceId, burst: &mut Burst) {
        // Without such an interface there will be drops alone.
        let face = self.faces.get(usize::from(id.0));
        let mac = face.map_or(MacAddr([0; 6]), |face| face.mac);
        self.parser.parse_for(burst, &mut self.parsed, mac);
    }

    /// Forwards a parsed burst that came by one interface. False, and nothing done, where a frame has a
    /// tag. `whole`: it has been here before, and the packets from this one on were put together since.
    fn interface(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        burst: &mut Burst,
        out: &mut Egress,
        whole: Option<usize>,
    ) -> bool {
        let Some(face) = self.faces.get(usize::from(id.0)) else {
            out.drop_burst(self.reasons.no_interface, burst);
            return true;
        };
        let (count, all) = (burst.len(), burst.mask());
        // In the metadata, or in the frame.
        if self.parsed.offloads.intersects(Offload::VLAN) || self.parsed.class.vlan != 0 {
            return false;
        }
        let is_new = whole.is_none();
        if let Some(traffic) = self.counters.at(id.0.into()).filter(|_| is_new) {
            traffic.in_packets.add(count as u64);
            traffic.in_bytes.add(self.parsed.bytes);
        }
        let (asks, vrf, mac) = (face.asks, face.vrf, face.mac);
        self.marks = Marks {
            whole: whole.map_or(0, |first| {
                all & Mask::MAX.checked_shl(first as u32).unwrap_or(0)
            }),
            ..Marks::default()
        };
        let (class, checks) = (&self.parsed.class, self.parsed.checks);
        let ordinary = class.ours & !class.options & !checks.ip_bad;
        let odd = match class.v4 {
            0 => 0,
            v4 => {
                v4 & self.vectors.run(Sieve {
                    src: &self.parsed.src4[..count],
                    dst: &self.parsed.dst4[..count],
                })
            }
        };
        let odd = odd | input::odd6(&self.parsed.keys6, class.v6 & ordinary);
        let mut plain = ordinary & !odd;
        let traced = self.watch.begin(id, burst);
        plain &= !traced;
        let mut live = plain | self.validate_all(all & !plain, mac, burst);
        if asks {
            live = self.admit(view, id, live, is_new, burst, out);
            if burst.is_empty() {
                return true;
            }
            if self.watch.is_tapped() {
                let port = burst.port;
                for index in ones(live) {
                    let packet = &burst.as_packets()[index];
                    self.watch.show_one(Stage::Acl, port, packet);
                }
            }
        }
        self.lookup(view, vrf, live, count);
        if self.any_acl_out {
            live = self.permit_out(view, live, burst);
        }
        self.emit(view, id, live, plain & live & !checks.expired, burst, out);
        true
    }

    /// Validates the packets of `mask`; returns which may go on.
    #[inline(always)]
    fn validate_all(&mut self, mut mask: Mask, mac: MacAddr, burst: &mut Burst) -> Mask {
        let mut valid = 0;
        while mask != 0 {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let packet = &mut burst.as_packets_mut()[index];
            let is_valid = self.validate(index, packet, mac);
            valid |= Mask::from(is_valid) << index;
        }
        valid
    }

    /// Runs a burst once more, whose packets from `whole` on were put together from fragments.
    #[cold]
    pub(super) fn again(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        whole: usize,
        burst: &mut Burst,
        out: &mut Egress,
    ) {
        self.parse(id, burst);
        if !self.interface(view, id, burst, out, Some(whole)) {
            out.drop_burst(self.reasons.unknown_vlan, burst);
        }
    }

    /// Drops a packet, and tells whoever traces it.
    pub(super) fn refuse(
        &mut self,
        index: usize,
        reason: DropId,
        packet: Packet,
        out: &mut Egress,
    ) {
        if self.watch.is_tapped() {
            self.watch.show_one(Stage::Drop, packet.port(), &packet);
        }
        self.watch
            .end(index, || format!("dropped: {}", out.reason_name(reason)));
        out.drop_one(reason, packet);
    }

    /// Hands a packet to the slow worker.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn punt(
        &mut self,
        index: usize,
        view: View<'_>,
        reason: Reason,
        interface: InterfaceId,
        hop: u32,
        packet: Packet,
        out: &mut Egress,
    ) {
        let punt = Punt {
            reason,
            interface,
            hop,
            came_by: interface,
            ticket: 0,
        };
        self.hand_over(index, view, punt, packet, out);
    }

    /// Hands a packet to the slow worker, and who traces it as well.
    pub(super) fn hand_over(
        &mut self,
        index: usize,
        view: View<'_>,
        punt: Punt,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        if !self.features.may_punt(punt.reason, view.now_ns) {
            return self.refuse(index, self.reasons.punt_limited, packet, out);
        }
        let ticket = self.watch.hand_over(index, punt.reason);
        packet.set_user(Punt { ticket, ..punt });
        out.send_one(self.slow, packet);
    }

    /// Notes a step of a packet that is traced.
    #[inline(always)]
    pub(super) fn note(&mut self, index: usize, stage: Stage, text: impl FnOnce() -> String) {
        if self.watch.is_traced(index) {
            self.watch.note(index, stage, text());
        }
    }

    /// What waits for time to pass.
    pub(super) fn tick(&mut self, view: View<'_>, out: &mut Egress) {
        self.day = Day::at(view.now_ns);
        self.expire(view, out);
        self.send_lanes(out);
        out.flush();
    }
}

/// The places of the bits that are set, from the lowest.
pub(super) fn ones(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lowest < 64).then_some(lowest)
    })
}
