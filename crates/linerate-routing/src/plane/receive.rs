//! Receive: finds the interface of a burst, as far as the port determines it.

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};

use super::context::{Context, Tags};

/// The first stage.
pub struct Receive;

impl Stage<Context<'_>> for Receive {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let Some(map) = context.view.settings.ports.get(usize::from(burst.port)) else {
            return out.drop_burst(context.reasons.no_interface, burst);
        };
        match map.untagged.filter(|_| map.vlans.is_empty()) {
            Some(interface) if context.installed.has(interface) => {
                context.packets.begin(interface, Tags::Unlikely);
            }
            untagged => {
                let interface = untagged.unwrap_or_default();
                context.packets.begin(interface, Tags::Possible);
            }
        }
    }
}
