//! Access list in: applies the interface's list to packets that come in by it.

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};

use super::change::Change;
use super::context::Context;
use super::lists::{Gate, Judge};

/// The stage.
pub struct AclIn {
    judge: Judge,
}

impl Default for AclIn {
    fn default() -> Self {
        Self {
            judge: Judge::new("acl_in"),
        }
    }
}

impl AclIn {
    /// Takes over the lists of another configuration.
    pub fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        let (room, lists) = (&mut change.denied_in, &change.settings.acls);
        self.judge.install(room, lists, &change.lists, egress);
    }
}

impl Stage<Context<'_>> for AclIn {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let (id, live) = (context.packets.interface, context.packets.live);
        let interface = context.view.settings.interfaces.get(usize::from(id.0));
        if let Some(list) = interface.and_then(|interface| interface.acl_in) {
            let permitted = self.judge.permit(list, Gate::In(id), live, burst, context);
            context.packets.keep(permitted);
        }
    }
}
