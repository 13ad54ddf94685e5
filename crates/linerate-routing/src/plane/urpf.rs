//! Reverse path filtering (RFC 3704): would an answer to the source go back where the packet came
//! from?

use linerate_core::packet::Burst;
use linerate_core::run::DropId;
use linerate_tables::lpm::NO_ROUTE;
use linerate_tables::parse::Mask;

use super::View;
use super::engine::{Engine, Fate, ones};
use super::hops::{Action, Hop};
use super::settings::Urpf;
use crate::model::InterfaceId;

/// Whether a source that routes lead to by this hop is believed.
fn believes(view: View<'_>, hop: &Hop, mode: Urpf, id: InterfaceId) -> bool {
    match hop.action {
        Action::Forward | Action::Resolve | Action::Glean => match mode {
            Urpf::Off => true,
            // RFC 3704 2.4: a default route would let everything through.
            Urpf::Loose => !hop.is_default,
            Urpf::Strict => hop.interface.get() == Some(id),
        },
        // Behind a device of the kernel's: from there packets come by the kernel, not by a port.
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
        // Nobody else has our own addresses, and what a route discards is not to be heard from either
        // (RFC 5635 4).
        _ => false,
    }
}

impl Engine {
    /// Which of `live` come from where their sources are.
    pub(super) fn reverse_path(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        mode: Urpf,
        mut live: Mask,
    ) -> Mask {
        let reason: DropId = self.reasons.urpf;
        let vrf = self.faces[usize::from(id.0)].vrf;
        // Those that never leave their link say nothing about routes (RFC 3704 4.1 for DHCP).
        let asked = live & !self.marks.link_local & !self.marks.to_group;
        let mut found = [NO_ROUTE; Burst::CAPACITY];
        let v4 = asked & self.parsed.class.v4;
        let (mut packed, mut count) = ([0; Burst::CAPACITY], 0);
        for index in ones(v4) {
            packed[count] = u32::from(self.parsed.keys4[index].src());
            count += 1;
        }
        view.fib4
            .lookup_bulk(vrf, &packed[..count], &mut found[..count]);
        for (index, &number) in ones(v4).zip(&found[..count]) {
            if !believes(view, view.hops.get(number), mode, id) {
                self.fates[index] = Fate::Drop(reason);
                live &= !(1 << index);
            }
        }
        let v6 = asked & self.parsed.class.v6;
        let (mut packed, mut count) = ([[0; 16]; Burst::CAPACITY], 0);
        for index in ones(v6) {
            packed[count] = self.parsed.keys6[index].src().octets();
            count += 1;
        }
        view.fib6
            .lookup_bulk(vrf, &packed[..count], &mut found[..count]);
        for (index, &number) in ones(v6).zip(&found[..count]) {
            if !believes(view, view.hops.get(number), mode, id) {
                self.fates[index] = Fate::Drop(reason);
                live &= !(1 << index);
            }
        }
        live
    }
}
