//! What traces say of packets whose flow is known.

use linerate_routing::plane::{Context, ones};
use linerate_tables::flow::{Direction, Flow, FlowKey, Hit};
use linerate_tables::parse::Mask;

use super::{Flows, Tracked};
use crate::nat::Tuple;
use crate::track::State;

impl Flows {
    /// Notes in which state the flow of each of these packets is, and what they become.
    #[cold]
    pub(super) fn note_known(&self, traced: Mask, context: &mut Context<'_>) {
        for index in ones(traced) {
            let Some(hit) = self.found[index] else {
                continue;
            };
            let text = match context.packets.parsed.class.v4 >> index & 1 {
                1 => self.v4.get(hit.flow).map(|flow| known(&flow, &hit)),
                _ => self.v6.get(hit.flow).map(|flow| known(&flow, &hit)),
            };
            if let Some(text) = text {
                context.note(index, "flows", || text);
            }
        }
    }
}

fn known<F: FlowKey<K>, const K: usize>(flow: &Flow<F, Tracked>, hit: &Hit) -> String
where
    for<'a> Tuple: From<&'a F>,
{
    let state = State::of(flow.state).name();
    let (came, other) = match hit.direction {
        Direction::Forward => (Tuple::from(&flow.key), Tuple::from(&flow.reverse)),
        Direction::Reverse => (Tuple::from(&flow.reverse), Tuple::from(&flow.key)),
    };
    let becomes = other.reversed();
    match becomes == came {
        true => format!("a known flow, {state}"),
        false => {
            let Tuple { src, dst, .. } = becomes;
            format!("a known flow, {state}, which becomes {src} > {dst}")
        }
    }
}
