//! What is done with a packet that is not plain, once its hop is known: RFC 1812 5.2 and 5.3, RFC 8200,
//! one packet at a time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::{DropId, Egress};
use linerate_stack::fragment::Cut;
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::offload::complete_partial;

use super::engine::Engine;
use super::errors::Complaint;
use super::hops::{Action, Hop};
use super::lanes::trim;
use super::options::{self, Asked};
use super::origin;
use super::ours::Whose;
use super::punt::{Punt, Reason};
use super::settings::Interface;
use super::trace::Stage;
use super::{View, rewrite};
use crate::model::InterfaceId;

/// What is looked at in a packet again and again.
#[derive(Clone, Copy)]
struct Sight {
    index: usize,
    /// The interface that it came in by.
    id: InterfaceId,
    is_v4: bool,
    /// Where the network packet ends in the frame.
    end: usize,
}

impl Engine {
    /// Disposes of the packet at `index`, whose lookup is done.
    #[cold]
    pub(super) fn dispose(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        index: usize,
        packet: Packet,
        out: &mut Egress,
    ) {
        let bit: Mask = 1 << index;
        let sight = Sight {
            index,
            id,
            is_v4: self.parsed.class.v4 & bit != 0,
            end: self.parsed.end[index] as usize,
        };
        if self.marks.to_group & bit != 0 {
            return self.for_group(view, sight, packet, out);
        }
        if self.marks.link_local & bit != 0
            && let Some(link_local) = destination6(&packet).filter(|_| !sight.is_v4)
            && link_local.is_unicast_link_local()
        {
            // RFC 4291 2.5.6: no route knows whose link; the interface's own addresses do.
            return match owns(view.settings.interfaces.get(usize::from(id.0)), link_local) {
                true => self.for_us(view, sight, packet, out),
                false => self.refuse(index, self.reasons.link_local, packet, out),
            };
        }
        let (number, hop) = self.hop(view, index, &packet);
        self.note(index, Stage::Lookup, || told(&packet, number, hop));
        // RFC 1812 5.3.4: a link-layer broadcast must be one for IP too. RFC 1122 3.3.6 likewise.
        if self.marks.l2_group & bit != 0 && hop.action != Action::Broadcast {
            return self.refuse(index, self.reasons.l2_broadcast, packet, out);
        }
        let reasons = self.reasons;
        match hop.action {
            Action::Forward | Action::Resolve | Action::Glean => {
                self.forward(view, sight, number, hop, packet, out);
            }
            Action::Local => self.for_us(view, sight, packet, out),
            Action::Host => self.by_host(view, sight, packet, out),
            Action::Broadcast if hop.interface.get() == Some(id) => {
                self.for_us(view, sight, packet, out);
            }
            // RFC 2644: not from one link to another.
            Action::Broadcast => self.refuse(index, reasons.directed_broadcast, packet, out),
            Action::Multicast => self.for_group(view, sight, packet, out),
            Action::Martian => self.refuse(index, reasons.martian_destination, packet, out),
            Action::Blackhole if number == u32::MAX => {
                self.complain(view, id, &packet, Complaint::NoRoute, out);
                self.refuse(index, reasons.no_route, packet, out);
            }
            // A group in a group does not happen; it would be nowhere to go.
            Action::Blackhole | Action::Multipath => {
                self.refuse(index, reasons.blackhole, packet, out);
            }
            Action::Unreachable => {
                self.complain(view, id, &packet, Complaint::Rejected, out);
                self.refuse(index, reasons.unreachable, packet, out);
            }
            Action::Prohibit => {
                self.complain(view, id, &packet, Complaint::Prohibited, out);
                self.refuse(index, reasons.prohibited, packet, out);
            }
        }
    }

    /// Why a packet is not believed: its source is an address of ours, though it comes from outside, or
    /// everybody's on a network of ours. Who has taken one of ours says so by Neighbor Discovery, which is
    /// heard (RFC 4862 5.4).
    fn pretends(&self, view: View<'_>, sight: Sight, packet: &Packet) -> Option<DropId> {
        let source = match sight.is_v4 {
            true => source4(packet).map(IpAddr::V4),
            false => source6(packet).map(IpAddr::V6),
        };
        let whose = match source? {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let interface = view.settings.interfaces.get(usize::from(sight.id.0));
                owns(interface, v6).then_some(Whose::Router)
            }
            source => {
                let vrf = self.faces[usize::from(sight.id.0)].vrf;
                self.ours[vrf as usize].whose(source)
            }
        };
        whose.map(|whose| match whose {
            Whose::Router => self.reasons.own_source,
            Whose::Everybody => self.reasons.martian_source,
        })
    }

    /// For a multicast group or everybody: on this link it is for the router too; beyond, nothing here
    /// takes it.
    fn for_group(&mut self, view: View<'_>, sight: Sight, packet: Packet, out: &mut Egress) {
        let is_near = match sight.is_v4 {
            // RFC 5771 4: 224.0.0.0/24 is never forwarded: OSPF, VRRP and the like.
            true => destination4(&packet)
                .is_some_and(|to| to.is_broadcast() || matches!(to.octets(), [224, 0, 0, _])),
            // RFC 4291 2.7: scope 2.
            false => destination6(&packet).is_some_and(|to| to.segments()[0] & 0xf == 2),
        };
        match is_near {
            true => self.for_us(view, sight, packet, out),
            false => self.refuse(sight.index, self.reasons.multicast, packet, out),
        }
    }

    /// For the router itself.
    fn for_us(&mut self, view: View<'_>, sight: Sight, packet: Packet, out: &mut Egress) {
        let reason = match is_discovery(&packet, sight.is_v4) {
            true => Reason::Nd,
            false if is_routing(&packet, sight.is_v4) => Reason::Routing,
            false => Reason::Local,
        };
        if reason != Reason::Nd
            && let Some(why) = self.pretends(view, sight, &packet)
        {
            return self.refuse(sight.index, why, packet, out);
        }
        self.punt(sight.index, view, reason, sight.id, 0, packet, out);
    }

    /// For the kernel to forward: it counts the time to live down, cuts and answers by its own
    /// lights, so the
    /// packet goes there as it came.
    fn by_host(&mut self, view: View<'_>, sight: Sight, packet: Packet, out: &mut Egress) {
        let Sight { index, id, .. } = sight;
        if self.marks.link_local >> index & 1 != 0 {
            return self.refuse(index, self.reasons.link_local, packet, out);
        }
        if let Some(why) = self.pretends(view, sight, &packet) {
            return self.refuse(index, why, packet, out);
        }
        let interface = view.settings.interfaces.get(usize::from(id.0));
        if interface.is_none_or(|interface| interface.twin.is_none()) {
            self.complain(view, id, &packet, Complaint::NoRoute, out);
            return self.refuse(index, self.reasons.no_host_interface, packet, out);
        }
        self.punt(index, view, Reason::Host, id, 0, packet, out);
    }

    /// RFC 1812 5.2.1.2, 5.2.4 to 5.2.7, 5.3.1: all that is between a route and the next link.
    fn forward(
        &mut self,
        view: View<'_>,
        sight: Sight,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let Sight { index, id, .. } = sight;
        let bit: Mask = 1 << index;
        let reasons = self.reasons;
        if self.marks.link_local & bit != 0 {
            // RFC 3927 7; RFC 4443 3.1 code 2 for a source that means nothing beyond its link.
            if !sight.is_v4 {
                self.complain(view, id, &packet, Complaint::BeyondScope, out);
            }
            return self.refuse(index, reasons.link_local, packet, out);
        }
        if let Some(why) = self.pretends(view, sight, &packet) {
            return self.refuse(index, why, packet, out);
        }
        let has_options = self.parsed.class.options & bit != 0;
        if has_options && let Err((complaint, reason)) = self.options(sight, &packet) {
            if let Some(complaint) = complaint {
                self.complain(view, id, &packet, complaint, out);
            }
            return self.refuse(index, reason, packet, out);
        }
        if ttl(&packet, sight.is_v4) <= 1 {
            self.complain(view, id, &packet, Complaint::TtlExceeded, out);
            return self.refuse(index, reasons.ttl_exceeded, packet, out);
        }
        let length = sight.end - HEADER_LEN;
        let mtu = usize::from(hop.mtu);
        let is_cut_later = packet.meta().offload.intersects(Offload::GSO);
        let fits = length <= mtu || is_cut_later && segment_len(&packet, sight) <= mtu;
        if !fits && !self.may_be_cut(sight, mtu, &mut packet) {
            self.complain(view, id, &packet, Complaint::TooBig { mtu: hop.mtu }, out);
            return self.refuse(index, reasons.too_big, packet, out);
        }
        // Only what goes on (RFC 1812 5.2.7.2), and as it came.
        if hop.interface.get() == Some(id) && self.faces[usize::from(id.0)].redirects {
            self.redirect(view, sight, hop, &packet, out);
        }
        self.note(index, Stage::Rewrite, || rewritten(hop, fits));
        let frame = packet.data_mut();
        let _ = match sight.is_v4 {
            true => rewrite::forward4(frame, hop),
            false => rewrite::forward6(frame, hop),
        };
        if has_options
            && sight.is_v4
            && let Some(own) = hop_address(view, hop, &packet)
        {
            let now_ms = self.day.ms(view.now_ns);
            let is_ours = |address: Ipv4Addr| {
                let vrf = self.faces[usize::from(id.0)].vrf;
                origin::route(view, vrf, address.into()).1.action == Action::Local
            };
            let bytes = &mut packet.data_mut()[HEADER_LEN..];
            options::record(bytes, own, now_ms, is_ours);
        }
        match fits || packet.meta().offload.intersects(Offload::GSO) {
            true => self.finish(view, sight, number, hop, packet, out),
            false => self.fragment(view, sight, number, hop, packet, out),
        }
    }

    /// What options and extension headers say against forwarding a packet: a reason to drop it, and an
    /// error to send.
    fn options(&self, sight: Sight, packet: &Packet) -> Result<(), (Option<Complaint>, DropId)> {
        let bytes = &packet.data()[HEADER_LEN..sight.end];
        if !sight.is_v4 {
            return match options::routing_header_0(bytes) {
                Some(_) => Err((None, self.reasons.routing_header)),
                None => Ok(()),
            };
        }
        match options::asked4(bytes) {
            Asked::Nothing => Ok(()),
            Asked::SourceRoute => Err((Some(Complaint::SourceRoute), self.reasons.source_route)),
            Asked::Malformed(pointer) => Err((
                Some(Complaint::Malformed { pointer }),
                self.reasons.bad_options,
            )),
        }
    }

    /// RFC 1812 5.2.7.2, RFC 4861 8.2: a neighbour whose packet goes back to where it came from could
    /// have sent it there itself.
    fn redirect(
        &mut self,
        view: View<'_>,
        sight: Sight,
        hop: &Hop,
        packet: &Packet,
        out: &mut Egress,
    ) {
        let Some(interface) = view.settings.interfaces.get(usize::from(sight.id.0)) else {
            return;
        };
        let ends = match sight.is_v4 {
            true => source4(packet).zip(destination4(packet)).map(both),
            false => source6(packet).zip(destination6(packet)).map(both),
        };
        let Some((from, to)) = ends else { return };
        let gateway = match hop.gateway {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if sight.is_v4 => {
                Ipv4Addr::new(a, b, c, d).into()
            }
            gateway if gateway != [0; 16] && !sight.is_v4 => Ipv6Addr::from(gateway).into(),
            _ => to,
        };
        let networks = || interface.addresses.iter().map(|cidr| cidr.network());
        let is_near = |address: IpAddr| networks().any(|network| network.contains(address));
        let are_neighbours = match gateway {
            // RFC 1812 5.2.7.2: on one and the same network.
            IpAddr::V4(_) => {
                networks().any(|network| network.contains(from) && network.contains(gateway))
            }
            // RFC 4861 8.2: each a neighbour of ours, which any link-local address is.
            IpAddr::V6(v6) => is_near(from) && (v6.is_unicast_link_local() || is_near(gateway)),
        };
        let is_ours = |address| interface.addresses.iter().any(|own| own.address == address);
        if are_neighbours && !is_ours(from) {
            let mac = (hop.action == Action::Forward).then_some(hop.dst);
            let complaint = Complaint::Redirect { to: gateway, mac };
            self.complain(view, sight.id, packet, complaint, out);
        }
    }

    /// Whether a packet longer than the next link takes may become shorter ones: RFC 1812 5.2.6; of
    /// IPv6 only what came as fragments and was put together here (RFC 8200 5). A frame of TCP segments that are cut on the way out anyway gets smaller
    /// ones.
    fn may_be_cut(&self, sight: Sight, mtu: usize, packet: &mut Packet) -> bool {
        if !sight.is_v4 {
            return self.marks.whole >> sight.index & 1 != 0;
        }
        let bytes = &packet.data()[HEADER_LEN..sight.end];
        let may = Ipv4::new_checked(bytes).is_ok_and(|ip| !ip.dont_fragment());
        if !may || !packet.meta().offload.intersects(Offload::GSO) {
            return may;
        }
        let headers = segment_len(packet, sight).saturating_sub(packet.meta().gso_size.into());
        let room = mtu.saturating_sub(headers);
        let may = packet.meta().offload.contains(Offload::GSO_TCP4) && room > 0;
        if may {
            packet.meta_mut().gso_size = room.min(usize::from(u16::MAX)) as u16;
        }
        may
    }

    /// Sends a packet, its time to live counted down, as fragments.
    fn fragment(
        &mut self,
        view: View<'_>,
        sight: Sight,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let meta = packet.meta_mut();
        if meta.offload.contains(Offload::CSUM_PARTIAL) {
            // Nobody can finish it once the packet is in parts.
            let (start, offset) = (meta.csum_start, meta.csum_offset.into());
            meta.offload.remove(Offload::CSUM_PARTIAL);
            if !complete_partial(packet.data_mut(), start, offset) {
                return self.refuse(sight.index, self.reasons.bad_length, packet, out);
            }
        }
        let mtu = usize::from(hop.mtu);
        let cut = match sight.is_v4 {
            true => Cut::ipv4(&packet, HEADER_LEN, mtu),
            // RFC 7739: an identification that nobody can guess.
            false => Cut::ipv6(&packet, HEADER_LEN, mtu, self.features.ident()),
        };
        let Ok(mut cut) = cut else {
            return self.refuse(sight.index, self.reasons.too_big, packet, out);
        };
        let mut is_whole = true;
        while is_whole && !cut.is_done() {
            let mut fragments = Burst::new();
            is_whole = cut.fill(&mut out.cache, &mut fragments);
            for mut fragment in fragments.drain() {
                // What stands before the network header is each fragment's own to have.
                fragment.data_mut()[..HEADER_LEN].copy_from_slice(&packet.data()[..HEADER_LEN]);
                fragment.meta_mut().l3_offset = HEADER_LEN as u8;
                self.counters.fragments_made.add(1);
                let part = Sight {
                    end: fragment.len(),
                    ..sight
                };
                self.finish(view, part, number, hop, fragment, out);
            }
        }
        match is_whole {
            true => {
                self.counters.fragmented.add(1);
                out.cache.free_one(packet);
            }
            // The datagram will not be whole: those under way are in vain.
            false => self.refuse(sight.index, self.reasons.no_buffer, packet, out),
        }
    }

    /// Sends a packet that is ready but for the neighbour's address, if that is not known.
    fn finish(
        &mut self,
        view: View<'_>,
        sight: Sight,
        number: u32,
        hop: &Hop,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let reason = match hop.action {
            Action::Forward => {
                let name = hop.interface.get().map(|id| usize::from(id.0));
                self.watch.end(sight.index, || {
                    let interface = name.and_then(|at| view.settings.interfaces.get(at));
                    let name = interface.map_or("no interface", |interface| &interface.name);
                    format!("sent by {name}")
                });
                return self.leave(hop, sight.end, packet, out);
            }
            Action::Glean => Reason::Glean,
            _ => Reason::Resolve,
        };
        let Some(id) = hop.interface.get() else {
            return self.refuse(sight.index, self.reasons.no_interface, packet, out);
        };
        // The slow worker does not look where it ends.
        trim(&mut packet, sight.end);
        let punt = Punt {
            reason,
            interface: id,
            hop: number,
            came_by: sight.id,
            ticket: 0,
        };
        self.hand_over(sight.index, view, punt, packet, out);
    }
}

fn both<A: Into<IpAddr>>((from, to): (A, A)) -> (IpAddr, IpAddr) {
    (from.into(), to.into())
}

fn address4(packet: &Packet, at: usize) -> Option<Ipv4Addr> {
    let bytes = packet.data().get(HEADER_LEN + at..)?;
    bytes.first_chunk::<4>().map(|four| Ipv4Addr::from(*four))
}

fn address6(packet: &Packet, at: usize) -> Option<Ipv6Addr> {
    let bytes = packet.data().get(HEADER_LEN + at..)?;
    bytes.first_chunk::<16>().map(|all| Ipv6Addr::from(*all))
}

pub(super) fn source4(packet: &Packet) -> Option<Ipv4Addr> {
    address4(packet, 12)
}

pub(super) fn destination4(packet: &Packet) -> Option<Ipv4Addr> {
    address4(packet, 16)
}

pub(super) fn source6(packet: &Packet) -> Option<Ipv6Addr> {
    address6(packet, 8)
}

pub(super) fn destination6(packet: &Packet) -> Option<Ipv6Addr> {
    address6(packet, 24)
}

fn ttl(packet: &Packet, is_v4: bool) -> u8 {
    let at = HEADER_LEN + if is_v4 { 8 } else { 7 };
    packet.data().get(at).copied().unwrap_or(0)
}

/// Whether an interface has this link-local address: as one of its own, or made from its MAC address.
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

/// Whether this is Neighbor Discovery (RFC 4861 4), which tells nothing to who is not on the link.
fn is_discovery(packet: &Packet, is_v4: bool) -> bool {
    let kind = || {
        let ip = Ipv6::new_checked(packet.data().get(HEADER_LEN..)?).ok()?;
        let is_icmp = ip.next_header() == linerate_wire::protocol::ICMPV6;
        ip.payload().first().copied().filter(|_| is_icmp)
    };
    // From router solicitations to redirects.
    !is_v4 && kind().is_some_and(|kind| matches!(kind, 133..=137))
}

/// Whether this is of a routing protocol: OSPF (RFC 2328, RFC 5340), VRRP (RFC 9568), BGP (RFC 4271), LDP (RFC
/// 5036) or BFD (RFC 5881, RFC 5883). What comes behind extension headers, or in a later fragment, is not
/// looked into.
fn is_routing(packet: &Packet, is_v4: bool) -> bool {
    const OSPF: u8 = 89;
    const VRRP: u8 = 112;
    const BGP: u16 = 179;
    const LDP: u16 = 646;
    /// Control, echo, and control over several hops.
    const BFD: [u16; 3] = [3784, 3785, 4784];
    let bytes = packet.data().get(HEADER_LEN..).unwrap_or_default();
    let upper = match is_v4 {
        true => Ipv4::new_checked(bytes)
            .ok()
            .filter(|ip| ip.fragment_offset() == 0)
            .map(|ip| (ip.protocol(), ip.header_len())),
        false => Ipv6::new_checked(bytes)
            .ok()
            .map(|ip| (ip.next_header(), linerate_wire::ipv6::HEADER_LEN)),
    };
    let Some((protocol, at)) = upper else {
        return false;
    };
    let port = |at: usize| {
        let two = bytes.get(at..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*two))
    };
    match (protocol, port(at), port(at + 2)) {
        (OSPF | VRRP, ..) => true,
        (linerate_wire::protocol::TCP, Some(src), Some(dst)) => {
            [src, dst].iter().any(|port| matches!(*port, BGP | LDP))
        }
        (linerate_wire::protocol::UDP, _, Some(dst)) => dst == LDP || BFD.contains(&dst),
        _ => false,
    }
}

/// Length in bytes of the longest packet that a frame to be segmented on its way out becomes, from its
/// IP header on.
fn segment_len(packet: &Packet, sight: Sight) -> usize {
    let meta = packet.meta();
    let l4 = usize::from(meta.l4_offset);
    let header_len = match meta.offload.intersects(Offload::GSO_UDP) {
        true => 8,
        // RFC 9293 3.1: the data offset.
        false => packet
            .data()
            .get(l4 + 12)
            .map_or(60, |byte| usize::from(byte >> 4) * 4),
    };
    let whole = sight.end - HEADER_LEN;
    match l4 {
        0 => whole,
        _ => whole.min(l4 - HEADER_LEN + header_len + usize::from(meta.gso_size)),
    }
}

/// What a trace says of a lookup.
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
            hop.dst, hop.mtu
        ),
        _ => format!("time to live less one, MTU {}{cut}", hop.mtu),
    }
}
