//! One worker's forwarding: from a burst as it was received to frames in the lanes of interfaces.
//!
//! What is plain (ordinary unicast, no options, to be forwarded by a hop that is ready) stays in
//! loops over the burst. The rest is validated one by one before the lookup (`input.rs`), and
//! disposed of one by one after it (`dispose.rs`); both do what the loops do, in full. Nothing leaves
//! its place in the burst until the last step, where every packet goes its way in order.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_core::arch::{Vectors, prefetch_read};
use linerate_core::packet::{Burst, Offload, Packet, Pool, Pools};
use linerate_core::run::{DropId, Egress};
use linerate_tables::lpm::NO_ROUTE;
use linerate_tables::parse::{Mask, Parsed, Parser};
use linerate_tables::rewrite::Divider;
use linerate_wire::MacAddr;
use linerate_wire::ethernet::HEADER_LEN;

use super::change::Change;
use super::counters::Counters;
use super::errors::{Complaint, Errors};
use super::features::Features;
use super::hops::{Action, Hop, InterfaceIdOrNone};
use super::input::{self, Sieve, Within};
use super::options::Day;
use super::punt::{Punt, Reason};
use super::reasons::Reasons;
use super::settings::{Interface, PortMap, Settings};
use super::trace::{Stage, Watch};
use super::{Setup, View, multipath, rewrite, vlan};
use crate::apps::router::model::{InterfaceId, Prefix, Vrf};

/// The shortest Ethernet frame, without FCS: what is padded stays that long.
const SHORTEST: usize = 60;
/// The exit of packets that leave one by one, if at all: no interface has that number.
const ODD: u32 = u32::MAX;

/// What becomes of a packet that does not get as far as the lookup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Drop(DropId),
    /// Dropped, and told that it is prohibited.
    Reject(DropId),
    Punt(Reason),
}

/// What the loops know of an interface.
#[derive(Debug)]
pub(super) struct Face {
    mac: MacAddr,
    port: u16,
    /// The tag of its frames; 0: none.
    tci: u16,
    pub(super) vrf: Vrf,
    /// Whether there is anything in `features.rs` to do for what comes in.
    asks: bool,
    /// Whether an access list looks at what goes out.
    pub(super) has_acl_out: bool,
    pub(super) redirects: bool,
    /// Its networks, first address and mask: whose source is in one may have to be redirected. Where
    /// there are no redirects its addresses alone.
    near4: Vec<(u32, u32)>,
    near6: Vec<(u128, u128)>,
    /// Its addresses, from which nobody else may send: each is in one of the above.
    pub(super) own4: Vec<u32>,
    pub(super) own6: Vec<u128>,
}

impl Face {
    pub(super) fn new(interface: &Interface) -> Self {
        let (mut near4, mut near6) = (Vec::new(), Vec::new());
        let (mut own4, mut own6) = (Vec::new(), Vec::new());
        for cidr in &interface.addresses {
            match cidr.address {
                IpAddr::V4(address) => own4.push(u32::from(address)),
                IpAddr::V6(address) => own6.push(u128::from(address)),
            }
            let near = match interface.redirects {
                true => cidr.network(),
                false => Prefix::host(cidr.address),
            };
            match near {
                Prefix::V4(prefix) => {
                    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len()));
                    near4.push((prefix.first(), mask.unwrap_or(0)));
                }
                Prefix::V6(prefix) => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len()));
                    near6.push((prefix.first(), mask.unwrap_or(0)));
                }
            }
        }
        Self {
            near4,
            near6,
            own4,
            own6,
            mac: interface.mac,
            port: interface.port,
            tci: interface.vlan.unwrap_or(0),
            vrf: interface.vrf,
            asks: Features::are_asked(interface),
            has_acl_out: interface.acl_out.is_some(),
            redirects: interface.redirects,
        }
    }
}

impl Face {
    /// Whether an address is on a network of this interface.
    #[inline]
    fn is_near6(&self, address: u128) -> bool {
        self.near6
            .iter()
            .any(|&(first, mask)| address & mask == first)
    }
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
    vectors: Vectors,
    divider: Divider,
    pub(super) parsed: Box<Parsed>,
    pub(super) marks: Marks,
    pub(super) fates: [Fate; Burst::CAPACITY],
    dst6: [[u8; 16]; Burst::CAPACITY],
    /// The number of the hop of each packet.
    pub(super) hops: [u32; Burst::CAPACITY],
    /// By interface.
    pub(super) faces: Vec<Face>,
    any_acl_out: bool,
    /// Frames ready to go, by interface; and which may hold some, by its number modulo 64.
    lanes: Vec<Burst>,
    filled: u64,
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
            any_acl_out: false,
            lanes: Vec::new(),
            filled: 0,
            features: Features::default(),
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
        self.any_acl_out = self.faces.iter().any(|face| face.has_acl_out);
        // They are empty between two bursts.
        std::mem::swap(&mut self.lanes, &mut change.lanes);
        self.features.install(change, egress);
        change.counters.go_on_from(&self.counters, &change.interfaces);
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

    /// Finds the hop of each packet of `live`, of those that go by routes.
    #[inline(always)]
    fn lookup(&mut self, view: View<'_>, vrf: Vrf, live: Mask, count: usize) {
        let (v4, v6) = (live & self.parsed.class.v4, live & self.parsed.class.v6);
        if v6 == 0 {
            // Addresses that are none, of packets that are not IPv4, do no harm.
            let (dst, hops) = (&self.parsed.dst4[..count], &mut self.hops[..count]);
            return view.fib4.lookup_bulk(vrf, dst, hops);
        }
        self.lookup_mixed(view, vrf, v4, v6);
    }

    /// Both families in one burst: each is packed, looked up, and unpacked.
    fn lookup_mixed(&mut self, view: View<'_>, vrf: Vrf, v4: Mask, v6: Mask) {
        let mut places = [0_u8; Burst::CAPACITY];
        let mut found = [NO_ROUTE; Burst::CAPACITY];
        let mut packed = [0; Burst::CAPACITY];
        let mut count = 0;
        for index in ones(v4) {
            packed[count] = self.parsed.dst4[index];
            places[count] = index as u8;
            count += 1;
        }
        view.fib4
            .lookup_bulk(vrf, &packed[..count], &mut found[..count]);
        for (place, hop) in places.iter().zip(&found[..count]) {
            self.hops[usize::from(*place)] = *hop;
        }
        count = 0;
        for index in ones(v6) {
            self.dst6[count].copy_from_slice(&self.parsed.keys6[index].0[16..32]);
            places[count] = index as u8;
            count += 1;
        }
        view.fib6
            .lookup_bulk(vrf, &self.dst6[..count], &mut found[..count]);
        for (place, hop) in places.iter().zip(&found[..count]) {
            self.hops[usize::from(*place)] = *hop;
        }
    }

    /// The hop of a packet, through its group if there is one, and its number.
    #[inline]
    pub(super) fn hop<'a>(&self, view: View<'a>, index: usize, packet: &Packet) -> (u32, &'a Hop) {
        let number = self.hops[index];
        let hop = view.hops.get(number);
        match hop.action {
            Action::Multipath => self.member(view, hop.group, index, packet),
            _ => (number, hop),
        }
    }

    fn member<'a>(
        &self,
        view: View<'a>,
        group: u32,
        index: usize,
        packet: &Packet,
    ) -> (u32, &'a Hop) {
        let class = &self.parsed.class;
        let hash = match class.v4 >> index & 1 {
            1 => multipath::hash4(&self.parsed.keys4[index]),
            _ => {
                let label = match packet.data().get(HEADER_LEN..HEADER_LEN + 4) {
                    Some(&[_, b, c, d]) => u32::from_be_bytes([0, b & 0xf, c, d]),
                    _ => 0,
                };
                let is_fragment = class.fragment >> index & 1 != 0;
                multipath::hash6(&self.parsed.keys6[index], label, is_fragment)
            }
        };
        let number = view.hops.member(group, hash);
        (number, view.hops.get(number))
    }

    /// Sends every packet on its way: those that are `plain` in groups by where they leave, each in
    /// order; the others one by one. Where both kinds go on none overtakes another.
    #[inline(always)]
    fn emit(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        live: Mask,
        plain: Mask,
        burst: &mut Burst,
        out: &mut Egress,
    ) {
        let mut exits = [ODD; Burst::CAPACITY];
        let ready = self.rewrite(view, id, plain, burst, &mut exits);
        let odd = burst.mask() & !ready;
        if odd & live != 0 && ready != 0 {
            return self.in_order(view, id, live, ready, &exits, burst, out);
        }
        let divider = self.divider;
        divider.divide(burst, Mask::MAX, &exits, |exit, packets| match exit {
            ODD => self.part(view, id, live, odd, packets, out),
            exit => self.send(exit as usize, packets, out),
        });
    }

    /// Sends packets one by one, in order: those that are `ready` out of the interfaces `exits`. A flow
    /// may have packets of both kinds: with options, longer than the next link takes, in fragments.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn in_order(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        live: Mask,
        ready: Mask,
        exits: &[u32; Burst::CAPACITY],
        burst: &mut Burst,
        out: &mut Egress,
    ) {
        for (index, packet) in burst.drain().enumerate() {
            match ready >> index & 1 {
                1 => self.queue(exits[index] as usize, packet, out),
                _ => self.odd(view, id, live, index, packet, out),
            }
        }
    }

    /// Writes the headers of the packets of `plain` that go on by a hop that is ready, and the
    /// interface that each leaves by to `exits`. Returns which.
    #[inline(always)]
    fn rewrite(
        &self,
        view: View<'_>,
        id: InterfaceId,
        plain: Mask,
        burst: &mut Burst,
        exits: &mut [u32; Burst::CAPACITY],
    ) -> Mask {
        let (v4, back) = (self.parsed.class.v4, InterfaceIdOrNone::from(id));
        let near = self.near(id, plain, burst.len());
        let plain = match near {
            0 => plain,
            near => plain & !self.own(id, near, burst.len()),
        };
        let mut ready = 0;
        for &number in &self.hops[..burst.len()] {
            prefetch_read(view.hops.get(number));
        }
        let ends = &self.parsed.end[..burst.len()];
        let found = self.hops.iter().zip(ends).zip(exits);
        for ((index, packet), ((&number, &end), exit)) in burst.iter_mut().enumerate().zip(found) {
            if plain >> index & 1 == 0 {
                continue;
            }
            let mut hop = view.hops.get(number);
            if hop.action == Action::Multipath {
                hop = self.member(view, hop.group, index, packet).1;
            }
            let end = end as usize;
            let fits = end <= usize::from(hop.mtu) + HEADER_LEN;
            let is_near = near >> index & 1 != 0;
            // One branch for all of it: which interface a packet leaves by cannot be predicted.
            if (hop.action != Action::Forward) | !fits | (is_near & (hop.interface == back)) {
                continue;
            }
            let frame = packet.data_mut();
            let is_written = match v4 >> index & 1 {
                1 => rewrite::forward4(frame, hop),
                _ => rewrite::forward6(frame, hop),
            };
            trim(packet, end);
            *exit = hop.interface.number();
            ready |= Mask::from(is_written) << index;
        }
        ready
    }

    /// Which packets of `plain` are from neighbours on an interface: those that redirects are for, and
    /// those that may say that they are from us.
    #[inline(always)]
    fn near(&self, id: InterfaceId, plain: Mask, count: usize) -> Mask {
        let face = &self.faces[usize::from(id.0)];
        let (v4, v6) = (plain & self.parsed.class.v4, plain & self.parsed.class.v6);
        let mut near = 0;
        for &(first, mask) in face.near4.iter().filter(|_| v4 != 0) {
            let src = &self.parsed.src4[..count];
            near |= v4 & self.vectors.run(Within { src, first, mask });
        }
        for index in ones(v6) {
            let source = self.parsed.keys6[index].src().to_bits();
            near |= Mask::from(face.is_near6(source)) << index;
        }
        near
    }

    /// Which packets of `near` have an address of the interface that they came in by as their source.
    fn own(&self, id: InterfaceId, near: Mask, count: usize) -> Mask {
        let face = &self.faces[usize::from(id.0)];
        let (v4, v6) = (near & self.parsed.class.v4, near & self.parsed.class.v6);
        let mut own = 0;
        for &first in face.own4.iter().filter(|_| v4 != 0) {
            let (src, mask) = (&self.parsed.src4[..count], u32::MAX);
            own |= v4 & self.vectors.run(Within { src, first, mask });
        }
        for index in ones(v6) {
            let source = self.parsed.keys6[index].src().to_bits();
            own |= Mask::from(face.own6.contains(&source)) << index;
        }
        own
    }

    /// Puts a frame, whose headers are written, into the lane of its hop's interface.
    pub(super) fn leave(&mut self, hop: &Hop, end: usize, mut packet: Packet, out: &mut Egress) {
        trim(&mut packet, end);
        self.queue(hop.interface.number() as usize, packet, out);
    }

    /// Puts a frame that is ready into an interface's lane.
    fn queue(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        self.filled |= 1 << (at % 64);
        if let Err(packet) = lane.push(packet) {
            self.leave_full(at, packet, out);
        }
    }

    fn leave_full(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        self.send_lane(at, out);
        if let Err(packet) = self.lanes[at].push(packet) {
            out.drop_one(self.reasons.no_buffer, packet);
        }
    }

    /// Sends what is in the lanes.
    #[inline(always)]
    pub(super) fn send_lanes(&mut self, out: &mut Egress) {
        let mut filled = std::mem::take(&mut self.filled);
        while filled != 0 {
            let lowest = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            for at in (lowest..self.lanes.len()).step_by(64) {
                if !self.lanes[at].is_empty() {
                    self.send_lane(at, out);
                }
            }
        }
    }

    fn send_lane(&mut self, at: usize, out: &mut Egress) {
        let mut lane = std::mem::take(&mut self.lanes[at]);
        self.send(at, &mut lane, out);
    }

    /// Sends frames, whose headers are written, out of an interface.
    #[inline(always)]
    fn send(&mut self, at: usize, packets: &mut Burst, out: &mut Egress) {
        let Some(face) = self.faces.get(at) else {
            return out.drop_burst(self.reasons.no_interface, packets);
        };
        let (port, tci) = (face.port, face.tci);
        if let Some(traffic) = self.counters.at(at) {
            traffic.out_packets.add(packets.len() as u64);
            traffic.out_bytes.add(packets.bytes());
        }
        if tci != 0 {
            let mut lost = Burst::new();
            packets.sift(&mut lost, |packet| vlan::tag(packet, tci));
            out.drop_burst(self.reasons.no_buffer, &mut lost);
        }
        if self.watch.is_tapped() {
            self.watch.show(Stage::Output, port, packets);
        }
        out.send(port, packets);
    }

    /// Sends packets on their way that are not plain, one by one: those that `live` dispose of
    /// themselves, the others have a fate. `odd` are their places in the burst that they are from.
    #[cold]
    fn part(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        live: Mask,
        odd: Mask,
        packets: &mut Burst,
        out: &mut Egress,
    ) {
        for (index, packet) in ones(odd).zip(packets.drain()) {
            self.odd(view, id, live, index, packet, out);
        }
    }

    /// One of them.
    fn odd(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        live: Mask,
        index: usize,
        packet: Packet,
        out: &mut Egress,
    ) {
        if live >> index & 1 != 0 {
            return self.dispose(view, id, index, packet, out);
        }
        match self.fates[index] {
            Fate::Drop(reason) => self.refuse(index, reason, packet, out),
            Fate::Reject(reason) => {
                self.complain(view, id, &packet, Complaint::Prohibited, out);
                self.refuse(index, reason, packet, out);
            }
            Fate::Punt(reason) => self.punt(index, view, reason, id, 0, packet, out),
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
            self.watch
                .show_one(Stage::Drop, packet.meta().port, &packet);
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
        mut packet: Packet,
        out: &mut Egress,
    ) {
        if !self.features.may_punt(reason, view.now_ns) {
            return self.refuse(index, self.reasons.punt_limited, packet, out);
        }
        self.watch
            .end(index, || format!("to the slow worker: {}", reason.name()));
        packet.set_user(Punt {
            reason,
            interface,
            hop,
        });
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

/// Cuts off the padding that the last link needed, and the next may have no room for.
#[inline(always)]
fn trim(packet: &mut Packet, end: usize) {
    let end = end.max(SHORTEST);
    if packet.len() > end {
        packet.truncate(end);
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
