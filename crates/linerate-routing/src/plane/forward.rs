//! From the lookup to frames: which hop each packet of a burst goes by, and the headers of those that are
//! plain. The others leave one by one, each in its place.

use linerate_core::arch::prefetch_read;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_tables::lpm::NO_ROUTE;
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;

use super::engine::{Engine, Fate, ones};
use super::hops::{Action, Hop, InterfaceIdOrNone};
use super::input::Within;
use super::lanes::trim;
use super::{View, errors, multipath, rewrite};
use crate::model::{InterfaceId, Vrf};

/// The exit of packets that leave one by one, if at all: no interface has that number.
const ODD: u32 = u32::MAX;

impl Engine {
    /// Finds the hop of each packet of `live`, of those that go by routes.
    #[inline(always)]
    pub(super) fn lookup(&mut self, view: View<'_>, vrf: Vrf, live: Mask, count: usize) {
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
    pub(super) fn emit(
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
        let plain = plain & !self.said_by_us(id, plain);
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

    /// Which packets of `plain` are from neighbours on an interface: those that redirects are for.
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

    /// Which packets of `plain` say that they are from us, or from everybody.
    #[inline(always)]
    fn said_by_us(&self, id: InterfaceId, plain: Mask) -> Mask {
        let vrf = self.faces[usize::from(id.0)].vrf;
        let ours = &self.ours[vrf as usize];
        ours.sources(self.vectors, &self.parsed, plain)
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
            Fate::Reject(reason, answer) => {
                let complaint = errors::rejection(&packet, answer);
                self.complain(view, id, &packet, complaint, out);
                self.refuse(index, reason, packet, out);
            }
            Fate::Punt(reason) => self.punt(index, view, reason, id, 0, packet, out),
        }
    }
}
