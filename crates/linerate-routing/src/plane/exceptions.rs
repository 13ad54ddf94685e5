//! Exceptions: packets that are not plain, one at a time, once their hop is known (RFC 1812 5.2 and
//! 5.3, RFC 8200), and those that a stage has passed a verdict on.
//!
//! [`Exceptions`] has the state behind punts, ICMP errors and drops, which any stage may cause.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::packet::{Burst, Offload, Packet, Pool, Pools};
use linerate_core::run::{DropId, Egress, Point, Stage};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;

use super::context::{Context, Verdict, ones};
use super::fragment::segment_len;
use super::headers::{destination4, destination6, is_discovery, is_routing, source4, source6, ttl};
use super::hits::Hits;
use super::hops::{Action, Hop};
use super::icmp_error::{self, IcmpError, IcmpErrors};
use super::local::Whose;
use super::options::{self, Asked, Day};
use super::punt::{Punt, Punts, Reason};
use super::settings::Interface;
use super::trace::Tracer;
use super::{Setup, View, origin, rewrite};
use crate::model::InterfaceId;

/// State for packets that leave the path: punts, ICMP errors, drops.
pub(super) struct Exceptions {
    pub(super) punts: Punts,
    pub(super) icmp_errors: IcmpErrors,
    pub(super) tracer: Tracer,
    /// Packets that access lists log.
    pub(super) hits: Hits,
    pub(super) pools: Pools,
    pub(super) day: Day,
    /// Makes identifications of fragments.
    idents: RandomState,
    ident: u64,
}

impl Exceptions {
    pub(super) fn new(setup: &Setup, egress: &Egress) -> Self {
        let pools: Vec<Pool> = egress.cache.pools().cloned().collect();
        Self {
            punts: Punts::new(setup.slow, &setup.punts),
            icmp_errors: IcmpErrors::new(),
            tracer: Tracer::default(),
            hits: Hits::default(),
            pools: Pools::new(pools),
            day: Day::at(setup.clock.ns(setup.clock.now())),
            idents: RandomState::new(),
            ident: 0,
        }
    }

    /// The points beside the path.
    pub(super) fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(self.punts.point());
        visit(self.icmp_errors.point());
    }

    /// An identification for the fragments of a datagram (RFC 7739: unpredictable).
    pub(super) fn ident(&mut self) -> u32 {
        self.ident += 1;
        self.idents.hash_one(self.ident) as u32
    }
}

/// The stage: it leaves in the burst what is ready to be sent, and handles the rest.
pub struct HandleExceptions;

impl Stage<Context<'_>> for HandleExceptions {
    #[cold]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let (live, ready) = (context.packets.live, context.packets.ready);
        context.packets.here = Mask::MAX;
        let exceptional = burst.mask() & !ready;
        if exceptional & live != 0 && ready != 0 {
            // A flow may have plain packets and exceptions (options, too long for the next link,
            // fragments). Their order is kept.
            for (index, packet) in burst.drain().enumerate() {
                match ready >> index & 1 {
                    1 => context.queue(context.packets.exits[index] as usize, packet, out),
                    _ => context.handle(index, packet, out),
                }
            }
            return;
        }
        let mut exceptions = Burst::new();
        let (mut index, mut left) = (0, 0);
        let exits = &mut context.packets.exits;
        burst.retain(&mut exceptions, |_| {
            let is_ready = ready >> index & 1 != 0;
            if is_ready {
                exits[left] = exits[index];
                left += 1;
            }
            index += 1;
            is_ready
        });
        for (index, packet) in ones(exceptional).zip(exceptions.drain()) {
            context.handle(index, packet, out);
        }
    }
}

/// Facts about a packet that several checks need.
#[derive(Clone, Copy)]
pub(super) struct PacketContext {
    pub(super) index: usize,
    /// The interface that it came in by.
    pub(super) id: InterfaceId,
    pub(super) is_v4: bool,
    /// Where the network packet ends in the frame.
    pub(super) end: usize,
}

impl Context<'_> {
    /// Handles one exception: by the verdict of a stage, or by its hop.
    fn handle(&mut self, index: usize, mut packet: Packet, out: &mut Egress) {
        if self.packets.live >> index & 1 != 0 {
            return self.dispose(index, packet, out);
        }
        let id = self.packets.interface;
        match self.packets.verdicts[index] {
            Verdict::Drop(reason) => self.drop_one(index, reason, packet, out),
            Verdict::Reject(reason, answer) => {
                self.packets.restore(index, &mut packet);
                let error = icmp_error::rejection(&packet, answer);
                self.icmp_error(id, &packet, error, out);
                self.drop_one(index, reason, packet, out);
            }
            Verdict::Expired => {
                self.answer(index, id, &mut packet, IcmpError::TtlExceeded, out);
                self.drop_one(index, self.reasons.ttl_exceeded, packet, out);
            }
            Verdict::TooBig(mtu) => {
                self.answer(index, id, &mut packet, IcmpError::TooBig { mtu }, out);
                self.drop_one(index, self.reasons.too_big, packet, out);
            }
            Verdict::Punt(reason) => self.punt(index, reason, id, 0, packet, out),
        }
    }

    /// Handles the packet at `index` by its hop.
    #[cold]
    fn dispose(&mut self, index: usize, mut packet: Packet, out: &mut Egress) {
        let (id, bit): (_, Mask) = (self.packets.interface, 1 << index);
        let seen = PacketContext {
            index,
            id,
            is_v4: self.packets.parsed.class.v4 & bit != 0,
            end: self.packets.parsed.end[index] as usize,
        };
        if self.packets.marks.to_group & bit != 0 {
            return self.for_group(seen, packet, out);
        }
        if self.packets.marks.link_local & bit != 0
            && let Some(link_local) = destination6(&packet).filter(|_| !seen.is_v4)
            && link_local.is_unicast_link_local()
        {
            // RFC 4291 2.5.6: a link-local address is looked up on the interface, since routes do
            // not know the link.
            return match owns(
                self.view.settings.interfaces.get(usize::from(id.0)),
                link_local,
            ) {
                true => self.for_router(seen, packet, out),
                false => self.drop_one(index, self.reasons.link_local, packet, out),
            };
        }
        let (number, hop) = self.hop(index, &packet);
        self.note(index, "lookup", || told(&packet, number, hop));
        // RFC 1812 5.3.4: a link-layer broadcast must be one for IP too. RFC 1122 3.3.6 likewise.
        if self.packets.marks.l2_group & bit != 0 && hop.action != Action::Broadcast {
            return self.drop_one(index, self.reasons.l2_broadcast, packet, out);
        }
        let reasons = self.reasons;
        match hop.action {
            Action::Forward | Action::Resolve | Action::Glean => {
                self.forward(seen, number, hop, packet, out);
            }
            Action::Local => self.for_router(seen, packet, out),
            Action::Host => self.for_host(seen, packet, out),
            Action::Broadcast if hop.interface.get() == Some(id) => {
                self.for_router(seen, packet, out);
            }
            // RFC 2644: not from one link to another.
            Action::Broadcast => self.drop_one(index, reasons.directed_broadcast, packet, out),
            Action::Multicast => self.for_group(seen, packet, out),
            Action::Martian => self.drop_one(index, reasons.martian_destination, packet, out),
            Action::Blackhole if number == u32::MAX => {
                self.answer(index, id, &mut packet, IcmpError::NoRoute, out);
                self.drop_one(index, reasons.no_route, packet, out);
            }
            // A group within a group does not occur; it would have no hop.
            Action::Blackhole | Action::Multipath => {
                self.drop_one(index, reasons.blackhole, packet, out);
            }
            Action::Unreachable => {
                self.answer(index, id, &mut packet, IcmpError::Rejected, out);
                self.drop_one(index, reasons.unreachable, packet, out);
            }
            Action::Prohibit => {
                self.answer(index, id, &mut packet, IcmpError::Prohibited, out);
                self.drop_one(index, reasons.prohibited, packet, out);
            }
        }
    }

    /// Sends an ICMP error about a packet of the burst, which is what its sender sent from here on.
    fn answer(
        &mut self,
        index: usize,
        id: InterfaceId,
        packet: &mut Packet,
        error: IcmpError,
        out: &mut Egress,
    ) {
        self.packets.restore(index, packet);
        let error = match error {
            IcmpError::TooBig { mtu } => IcmpError::TooBig {
                mtu: self.packets.original_mtu(index, mtu),
            },
            error => error,
        };
        self.icmp_error(id, packet, error, out);
    }

    /// The drop reason for a packet from outside whose source is a local address, or the broadcast
    /// address of a local network. Neighbor Discovery from a local address passes: it reveals a
    /// duplicate (RFC 4862 5.4).
    fn has_local_source(&self, seen: PacketContext, packet: &Packet) -> Option<DropId> {
        // As its sender sent it: translated, it may well be an address of ours.
        let source = match (seen.is_v4, self.packets.translated >> seen.index & 1) {
            (true, 1) => Some(Ipv4Addr::from(self.packets.parsed.src4[seen.index]).into()),
            (false, 1) => Some(self.packets.parsed.keys6[seen.index].src().into()),
            (true, _) => source4(packet).map(IpAddr::V4),
            (false, _) => source6(packet).map(IpAddr::V6),
        };
        let whose = match source? {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let interface = self.view.settings.interfaces.get(usize::from(seen.id.0));
                owns(interface, v6).then_some(Whose::Router)
            }
            source => {
                let vrf = self.interface().vrf;
                self.installed.local[vrf as usize].whose(source)
            }
        };
        whose.map(|whose| match whose {
            Whose::Router => self.reasons.own_source,
            Whose::Broadcast => self.reasons.martian_source,
        })
    }

    /// For a multicast group or broadcast: on this link it is for the router too; it is not
    /// forwarded beyond.
    fn for_group(&mut self, seen: PacketContext, packet: Packet, out: &mut Egress) {
        let is_near = match seen.is_v4 {
            // RFC 5771 4: 224.0.0.0/24 is never forwarded: OSPF, VRRP and the like.
            true => destination4(&packet)
                .is_some_and(|to| to.is_broadcast() || matches!(to.octets(), [224, 0, 0, _])),
            // RFC 4291 2.7: scope 2.
            false => destination6(&packet).is_some_and(|to| to.segments()[0] & 0xf == 2),
        };
        match is_near {
            true => self.for_router(seen, packet, out),
            false => self.drop_one(seen.index, self.reasons.multicast, packet, out),
        }
    }

    /// For the router itself.
    fn for_router(&mut self, seen: PacketContext, packet: Packet, out: &mut Egress) {
        let reason = match is_discovery(&packet, seen.is_v4) {
            true => Reason::Nd,
            false if is_routing(&packet, seen.is_v4) => Reason::Routing,
            false => Reason::Local,
        };
        if reason != Reason::Nd
            && let Some(why) = self.has_local_source(seen, &packet)
        {
            return self.drop_one(seen.index, why, packet, out);
        }
        self.punt(seen.index, reason, seen.id, 0, packet, out);
    }

    /// Hands a packet to the kernel to forward, unchanged: the kernel decrements the time to live,
    /// fragments and answers itself.
    fn for_host(&mut self, seen: PacketContext, mut packet: Packet, out: &mut Egress) {
        let PacketContext { index, id, .. } = seen;
        if self.packets.marks.link_local >> index & 1 != 0 {
            return self.drop_one(index, self.reasons.link_local, packet, out);
        }
        if let Some(why) = self.has_local_source(seen, &packet) {
            return self.drop_one(index, why, packet, out);
        }
        let interface = self.view.settings.interfaces.get(usize::from(id.0));
        if interface.is_none_or(|interface| interface.host_interface.is_none()) {
            self.answer(index, id, &mut packet, IcmpError::NoRoute, out);
            return self.drop_one(index, self.reasons.no_host_interface, packet, out);
        }
        self.punt(index, Reason::Host, id, 0, packet, out);
    }

    /// RFC 1812 5.2.1.2, 5.2.4 to 5.2.7, 5.3.1: everything between the lookup and the next link.
    fn forward(
        &mut self,
        seen: PacketContext,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let PacketContext { index, id, .. } = seen;
        let bit: Mask = 1 << index;
        let reasons = self.reasons;
        if self.packets.marks.link_local & bit != 0 {
            // RFC 3927 7; RFC 4443 3.1 code 2 for a source that means nothing beyond its link.
            if !seen.is_v4 {
                self.answer(index, id, &mut packet, IcmpError::BeyondScope, out);
            }
            return self.drop_one(index, reasons.link_local, packet, out);
        }
        if let Some(why) = self.has_local_source(seen, &packet) {
            return self.drop_one(index, why, packet, out);
        }
        let has_options = self.packets.parsed.class.options & bit != 0;
        if has_options && let Err((error, reason)) = self.options(seen, &packet) {
            if let Some(error) = error {
                self.answer(index, id, &mut packet, error, out);
            }
            return self.drop_one(index, reason, packet, out);
        }
        if ttl(&packet, seen.is_v4) <= 1 {
            self.answer(index, id, &mut packet, IcmpError::TtlExceeded, out);
            return self.drop_one(index, reasons.ttl_exceeded, packet, out);
        }
        let length = seen.end - HEADER_LEN;
        let mtu = usize::from(self.longest(seen, hop.mtu, &packet));
        let is_cut_later = packet.meta().offload.intersects(Offload::GSO);
        let fits = length <= mtu || is_cut_later && segment_len(&packet, seen) <= mtu;
        if !fits && !self.may_be_cut(seen, mtu, &mut packet) {
            self.answer(
                index,
                id,
                &mut packet,
                IcmpError::TooBig { mtu: hop.mtu },
                out,
            );
            return self.drop_one(index, reasons.too_big, packet, out);
        }
        // Redirects are only for packets that are forwarded (RFC 1812 5.2.7.2), and quote them
        // unchanged.
        // Nobody else could have sent what was translated here.
        let is_back = hop.interface.get() == Some(id) && self.packets.translated & bit == 0;
        if is_back && self.interface().redirects {
            self.redirect(seen, hop, &packet, out);
        }
        self.note(index, "rewrite", || rewritten(hop, fits));
        let frame = packet.data_mut();
        let _ = match seen.is_v4 {
            true => rewrite::forward4(frame, hop),
            false => rewrite::forward6(frame, hop),
        };
        if has_options
            && seen.is_v4
            && let Some(own) = hop_address(self.view, hop, &packet)
        {
            let (view, vrf) = (self.view, self.interface().vrf);
            let now_ms = self.exceptions.day.ms(view.now_ns);
            let is_local = |address: Ipv4Addr| {
                origin::route(view, vrf, address.into()).1.action == Action::Local
            };
            let bytes = &mut packet.data_mut()[HEADER_LEN..];
            options::record(bytes, own, now_ms, is_local);
        }
        match fits || packet.meta().offload.intersects(Offload::GSO) {
            true => self.finish(seen, number, hop, packet, out),
            false => self.fragment(seen, number, hop, packet, out),
        }
    }

    /// Checks options and extension headers; if they forbid forwarding, returns a drop reason and
    /// an ICMP error.
    fn options(
        &self,
        seen: PacketContext,
        packet: &Packet,
    ) -> Result<(), (Option<IcmpError>, DropId)> {
        let bytes = &packet.data()[HEADER_LEN..seen.end];
        if !seen.is_v4 {
            return match options::routing_header_0(bytes) {
                Some(_) => Err((None, self.reasons.routing_header)),
                None => Ok(()),
            };
        }
        match options::asked4(bytes) {
            Asked::Nothing => Ok(()),
            Asked::SourceRoute => Err((Some(IcmpError::SourceRoute), self.reasons.source_route)),
            Asked::Malformed(pointer) => Err((
                Some(IcmpError::Malformed { pointer }),
                self.reasons.bad_options,
            )),
        }
    }

    /// RFC 1812 5.2.7.2, RFC 4861 8.2: a neighbour whose packet goes back to where it came from
    /// could have sent it there itself.
    fn redirect(&mut self, seen: PacketContext, hop: &Hop, packet: &Packet, out: &mut Egress) {
        let Some(interface) = self.view.settings.interfaces.get(usize::from(seen.id.0)) else {
            return;
        };
        let ends = match seen.is_v4 {
            true => source4(packet).zip(destination4(packet)).map(both),
            false => source6(packet).zip(destination6(packet)).map(both),
        };
        let Some((from, to)) = ends else { return };
        let gateway = match hop.gateway {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if seen.is_v4 => {
                Ipv4Addr::new(a, b, c, d).into()
            }
            gateway if gateway != [0; 16] && !seen.is_v4 => Ipv6Addr::from(gateway).into(),
            _ => to,
        };
        let networks = || interface.addresses.iter().map(|cidr| cidr.network());
        let is_near = |address: IpAddr| networks().any(|network| network.contains(address));
        let are_neighbours = match gateway {
            // RFC 1812 5.2.7.2: sender and gateway are on the same network.
            IpAddr::V4(_) => {
                networks().any(|network| network.contains(from) && network.contains(gateway))
            }
            // RFC 4861 8.2: both are our neighbours, as any link-local address is.
            IpAddr::V6(v6) => is_near(from) && (v6.is_unicast_link_local() || is_near(gateway)),
        };
        let is_local = |address| interface.addresses.iter().any(|own| own.address == address);
        if are_neighbours && !is_local(from) {
            let mac = (hop.action == Action::Forward).then_some(hop.macs.dst());
            let error = IcmpError::Redirect { to: gateway, mac };
            self.icmp_error(seen.id, packet, error, out);
        }
    }

    /// Sends a packet that is ready; if the neighbour's MAC address is not known, punts it.
    pub(super) fn finish(
        &mut self,
        seen: PacketContext,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let reason = match hop.action {
            Action::Forward => {
                let (view, name) = (self.view, hop.interface.get().map(|id| usize::from(id.0)));
                self.exceptions.tracer.end(seen.index, || {
                    let interface = name.and_then(|at| view.settings.interfaces.get(at));
                    let name = interface.map_or("no interface", |interface| &interface.name);
                    format!("sent by {name}")
                });
                return self.leave(hop, seen.end, packet, out);
            }
            Action::Glean => Reason::Glean,
            _ => Reason::Resolve,
        };
        let Some(id) = hop.interface.get() else {
            return self.drop_one(seen.index, self.reasons.no_interface, packet, out);
        };
        // The slow worker does not look for the end of the packet.
        rewrite::trim(&mut packet, seen.end);
        let punt = Punt {
            reason,
            interface: id,
            hop: number,
            came_by: seen.id,
            headers: self.packets.leave_original(seen.index, &mut packet),
            ..Punt::default()
        };
        self.hand_over(seen.index, punt, packet, out);
    }
}

fn both<A: Into<IpAddr>>((from, to): (A, A)) -> (IpAddr, IpAddr) {
    (from.into(), to.into())
}

/// Whether an interface has this link-local address: as one of its own, or made from its MAC
/// address.
fn owns(interface: Option<&Interface>, address: Ipv6Addr) -> bool {
    let Some(interface) = interface else {
        return false;
    };
    let is_given = |own: &crate::model::Cidr| own.address == IpAddr::V6(address);
    interface.addresses.iter().any(is_given) || address == origin::of_mac(interface.mac)
}

/// Our address on the interface that a packet leaves by.
fn hop_address(view: View<'_>, hop: &Hop, packet: &Packet) -> Option<Ipv4Addr> {
    let id = hop.interface.get()?;
    origin::source4(view.settings, hop, id, destination4(packet)?)
}

/// The text of a lookup in a trace.
fn told(packet: &Packet, number: u32, hop: &Hop) -> String {
    let to: IpAddr = match packet.data().get(HEADER_LEN).map(|byte| byte >> 4) {
        Some(4) => destination4(packet).map_or(Ipv4Addr::UNSPECIFIED.into(), IpAddr::V4),
        _ => destination6(packet).map_or(Ipv6Addr::UNSPECIFIED.into(), IpAddr::V6),
    };
    if number == u32::MAX {
        return format!("no route to {to}");
    }
    let gateway = IpAddr::V6(Ipv6Addr::from(hop.gateway)).to_canonical();
    let via = match hop.gateway == [0; 16] {
        true => String::new(),
        false => format!(" via {gateway}"),
    };
    format!("{to}: hop {number}, {:?}{via}", hop.action)
}

fn rewritten(hop: &Hop, fits: bool) -> String {
    let cut = if fits { "" } else { ", cut into fragments" };
    match hop.action {
        Action::Forward => format!(
            "time to live less one, to {}, MTU {}{cut}",
            hop.macs.dst(),
            hop.mtu
        ),
        _ => format!("time to live less one, MTU {}{cut}", hop.mtu),
    }
}
