//! Services look at the packets of flows that have some, and say what becomes of them.

use linerate_core::packet::Burst;
use linerate_routing::plane::{Context, Verdict, ones};
use linerate_tables::parse::Mask;

use super::Flows;
use crate::nat::Tuple;
use crate::services::ServiceBits;

impl Flows {
    /// Runs services over the packets that want some. Those that are dropped are no longer `live`.
    #[inline(never)]
    pub(super) fn serve(&mut self, burst: &mut Burst, live: &mut Mask, context: &mut Context<'_>) {
        let port = burst.port;
        let packets = burst.as_packets_mut();
        let outcomes = self.services.run(packets, *live, port, context);
        for index in ones(outcomes.any_done | outcomes.denied) {
            let Some(hit) = self.services.wanted.hit(index) else {
                continue;
            };
            let user = match self.services.wanted.is_v4(index) {
                true => self.v4.user_mut(hit.flow),
                false => self.v6.user_mut(hit.flow),
            };
            let Some(user) = user else { continue };
            user.services = match outcomes.denied >> index & 1 {
                1 => ServiceBits::DENY,
                _ if user.services.is_denied() => ServiceBits::DENY,
                _ => user.services.without(hit.direction, outcomes.done[index]),
            };
        }
        let [denied, policed] = self.services.reasons();
        for (mask, reason) in [(outcomes.denied, denied), (outcomes.dropped, policed)] {
            for index in ones(mask) {
                context.packets.judge(index, Verdict::Drop(reason));
            }
            *live &= !mask;
        }
        for event in self.services.log_mut().fresh() {
            let (flow, is_v4) = event.flow;
            event.tuple = match is_v4 {
                true => self.v4.get(flow).map(|flow| Tuple::from(&flow.key)),
                false => self.v6.get(flow).map(|flow| Tuple::from(&flow.key)),
            };
        }
        self.services.wanted.clear();
    }
}
