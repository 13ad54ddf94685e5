//! Reverse path (RFC 3704): checks that the route to the source leads to where the packet came
//! from.

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};
use linerate_tables::lpm::NO_ROUTE;

use super::View;
use super::context::{Context, Verdict, ones};
use super::hops::{Action, Hop};
use super::settings::Urpf;
use crate::model::InterfaceId;

/// Whether a source is accepted whose route leads to this hop.
fn believes(view: View<'_>, hop: &Hop, mode: Urpf, id: InterfaceId) -> bool {
    match hop.action {
        Action::Forward | Action::Resolve | Action::Glean => match mode {
            Urpf::Off => true,
            // RFC 3704 2.4: a default route would let everything through.
            Urpf::Loose => !hop.is_default,
            Urpf::Strict => hop.interface.get() == Some(id),
        },
        // Behind a virtual device of the kernel: its packets come by the kernel, not by a port.
        Action::Host => mode == Urpf::Loose && !hop.is_default,
        // RFC 3704 2.2: strict asks for the best path; of several equal ones any will do.
        Action::Multipath => {
            if mode == Urpf::Loose && hop.is_default {
                return false; // the group does it, not its members
            }
            let members = view.hops.members(hop.group).iter();
            members.map(|&member| view.hops.get(member)).any(|member| {
                member.action != Action::Multipath && believes(view, member, mode, id)
            })
        }
        // Our own addresses are no valid source, and neither is what a blackhole route discards
        // (RFC 5635 4).
        _ => false,
    }
}

/// The stage.
pub struct ReversePath;

impl Stage<Context<'_>> for ReversePath {
    fn run(&mut self, _: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let (view, vrf) = (context.view, context.interface().vrf);
        let packets = &mut *context.packets;
        let id = packets.interface;
        let Some(interface) = view.settings.interfaces.get(usize::from(id.0)) else {
            return;
        };
        let mode = interface.urpf;
        let verdict = Verdict::Drop(context.reasons.urpf);
        let mut live = packets.live;
        // Link-local and unspecified sources never leave their link and have no route (RFC 3704 4.1
        // for DHCP).
        let asked = live & !packets.marks.link_local & !packets.marks.to_group;
        let mut found = [NO_ROUTE; Burst::CAPACITY];
        let v4 = asked & packets.parsed.class.v4;
        let (mut packed, mut count) = ([0; Burst::CAPACITY], 0);
        for index in ones(v4) {
            packed[count] = u32::from(packets.parsed.keys4[index].src());
            count += 1;
        }
        view.fib4
            .lookup_bulk(vrf, &packed[..count], &mut found[..count]);
        for (index, &number) in ones(v4).zip(&found[..count]) {
            if !believes(view, view.hops.get(number), mode, id) {
                packets.judge(index, verdict);
                live &= !(1 << index);
            }
        }
        let v6 = asked & packets.parsed.class.v6;
        let (mut packed, mut count) = ([[0; 16]; Burst::CAPACITY], 0);
        for index in ones(v6) {
            packed[count] = packets.parsed.keys6[index].src().octets();
            count += 1;
        }
        view.fib6
            .lookup_bulk(vrf, &packed[..count], &mut found[..count]);
        for (index, &number) in ones(v6).zip(&found[..count]) {
            if !believes(view, view.hops.get(number), mode, id) {
                packets.judge(index, verdict);
                live &= !(1 << index);
            }
        }
        packets.keep(live);
    }
}
