//! Access list out: applies the list of the interface that a packet is about to leave by.

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};
use linerate_tables::parse::Mask;

use super::change::Change;
use super::context::{Context, ones};
use super::hops::Action;
use super::lists::{Gate, Judge};
use crate::model::InterfaceId;

/// The stage.
pub struct AclOut {
    judge: Judge,
}

impl Default for AclOut {
    fn default() -> Self {
        Self {
            judge: Judge::new("acl_out"),
        }
    }
}

impl AclOut {
    /// Takes over the lists of another configuration.
    pub fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        let (room, lists) = (&mut change.denied_out, &change.settings.acls);
        self.judge.install(room, lists, &change.lists, egress);
    }
}

impl Stage<Context<'_>> for AclOut {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let mut live = context.packets.live;
        let mut asked: Mask = 0;
        let mut interfaces = [InterfaceId(0); Burst::CAPACITY];
        for index in ones(live & !context.packets.marks.to_group) {
            let (_, hop) = context.hop(index, &burst.as_packets()[index]);
            // Only forwarded packets: others have no output interface, or are for the router.
            use Action::{Forward, Glean, Resolve};
            let leaves = matches!(hop.action, Forward | Resolve | Glean);
            let Some(id) = hop.interface.get().filter(|_| leaves) else {
                continue;
            };
            let interface = context.installed.interfaces.get(usize::from(id.0));
            if interface.is_some_and(|interface| interface.has_acl_out) {
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
            let interface = &context.view.settings.interfaces[usize::from(id.0)];
            if let Some(list) = interface.acl_out {
                let permitted = self.judge.permit(list, Gate::Out(id), mask, burst, context);
                live &= !mask | permitted;
            }
        }
        context.packets.keep(live);
    }
}
