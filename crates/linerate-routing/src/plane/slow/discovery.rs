//! ARP and Neighbor Discovery: passed to the neighbour table, and to the kernel where it needs them
//! too.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_wire::MacAddr;
use linerate_wire::arp::{Arp, Operation};
use linerate_wire::ethernet::HEADER_LEN;

use super::Slow;
use crate::model::InterfaceId;
use crate::plane::headers::source6;
use crate::plane::hops::Action;
use crate::plane::origin::{route, vrf};
use crate::plane::punt::Punt;
use crate::plane::settings::Settings;
use crate::plane::{Tables, View, view};

impl Slow {
    /// ARP, which the router answers. The kernel also gets replies to its own requests, and
    /// messages by which a neighbour has moved: otherwise it would send to the old address for a
    /// minute.
    pub(super) fn arp(&mut self, id: InterfaceId, packet: Packet, now_ns: u64, out: &mut Egress) {
        let arp = packet.data().get(HEADER_LEN..).map(Arp::new_checked);
        let arp = arp.and_then(Result::ok);
        let is_request = arp
            .as_ref()
            .is_some_and(|arp| arp.operation() == Operation::Request);
        let sender = arp.map(|arp| IpAddr::V4(arp.sender_ip()));
        let before = sender.and_then(|sender| self.table.mac(id.0, sender));
        let elsewhere = elsewhere(&self.settings, &mut self.tables, id);
        // The reason why it was ignored, if it was, is not needed.
        let _ = self
            .table
            .arp(id.0, packet.data(), &elsewhere, now_ns, &mut self.todo);
        drop(elsewhere);
        match is_request && !self.has_moved(id, sender, before) {
            true => self.answered(packet, out),
            false => self.for_host_interface(id, packet, now_ns, out),
        }
    }

    /// Whether a neighbour, whose MAC address was `before`, has another one now.
    fn has_moved(&self, id: InterfaceId, who: Option<IpAddr>, before: Option<MacAddr>) -> bool {
        before.is_some() && who.and_then(|who| self.table.mac(id.0, who)) != before
    }

    /// Neighbor Discovery likewise.
    pub(super) fn nd(&mut self, id: InterfaceId, packet: Packet, now_ns: u64, out: &mut Egress) {
        const ROUTER_SOLICITATION: u8 = 133;
        const NEIGHBOUR_SOLICITATION: u8 = 135;
        let sender = source6(&packet);
        let before = sender.and_then(|sender| self.table.mac(id.0, sender.into()));
        let elsewhere = elsewhere(&self.settings, &mut self.tables, id);
        let _ = self
            .table
            .ndp(id.0, packet.data(), &elsewhere, now_ns, &mut self.todo);
        drop(elsewhere);
        let interface = self.settings.interfaces.get(usize::from(id.0));
        let is_answered = match packet.data().get(HEADER_LEN + 40) {
            Some(&ROUTER_SOLICITATION) => interface.is_some_and(|own| own.advertise.is_some()),
            // A probe for an address may be for one of the kernel's, too (RFC 4862 5.4.3).
            Some(&NEIGHBOUR_SOLICITATION) => {
                sender.is_some_and(|from| !from.is_unspecified())
                    && !self.has_moved(id, sender.map(IpAddr::V6), before)
            }
            _ => false,
        };
        match is_answered {
            true => self.answered(packet, out),
            false => self.for_host_interface(id, packet, now_ns, out),
        }
    }

    /// Frees a solicitation that the neighbour table has handled.
    fn answered(&self, packet: Packet, out: &mut Egress) {
        let Punt { ticket, .. } = packet.user();
        self.tracer.follow(ticket, || "heard".into());
        self.counters.answered.add(1);
        out.consume_one(packet);
    }
}

/// Whether `id` answers for an address that is none of its own: by its settings, or as a proxy
/// because it is routed by another interface.
fn elsewhere<'a>(
    settings: &'a Settings,
    tables: &'a mut Tables,
    id: InterfaceId,
) -> impl Fn(IpAddr) -> bool + 'a {
    let vrf = vrf(settings, id);
    let interface = settings.interfaces.get(usize::from(id.0));
    let view: View<'a> = view(settings, tables, 0);
    move |address| {
        let has = |(first, last): &(IpAddr, IpAddr)| {
            first.is_ipv4() == address.is_ipv4() && (*first..=*last).contains(&address)
        };
        if interface.is_some_and(|own| own.answered.iter().any(has)) {
            return true;
        }
        if !interface.is_some_and(|own| own.proxy) {
            return false;
        }
        let (_, hop) = route(view, vrf, address);
        let leads = matches!(
            hop.action,
            Action::Forward | Action::Resolve | Action::Glean
        );
        leads && hop.interface.get().is_some_and(|out_by| out_by != id)
    }
}
