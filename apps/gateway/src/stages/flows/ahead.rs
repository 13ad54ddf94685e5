//! Packets that are about to begin flows, before the first of them does: what all of them need of
//! NAT's tables and of the flow table is asked for, so that each finds it near. Nothing is decided
//! here: what is foreseen may turn out otherwise.

use linerate_core::packet::Burst;
use linerate_routing::plane::{Context, ones};
use linerate_tables::parse::Mask;
use linerate_wire::FlowKey as Either;

use super::Flows;
use crate::dispatch::Bucket;
use crate::nat::{Ahead, Tuple};

/// For fewer packets it is not worth it.
const FEW: u32 = 4;

/// What is known of the packets of a burst that have found no flow.
pub(super) struct Foreseen {
    packets: Vec<Ahead>,
    /// Where each packet is there, if it is of these.
    places: [u8; Burst::CAPACITY],
    known: Mask,
}

impl Foreseen {
    /// Room for a burst.
    pub(super) fn new() -> Self {
        Self {
            packets: Vec::with_capacity(Burst::CAPACITY),
            places: [0; Burst::CAPACITY],
            known: 0,
        }
    }

    /// Another burst.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.known = 0;
    }

    /// The bucket of a packet and the random number for it, if it was looked at: its keys are as
    /// they were.
    pub(super) fn of(&self, index: usize) -> Option<(Bucket, u64)> {
        let known = self.known >> index & 1 != 0;
        let packet = self.packets.get(usize::from(self.places[index]));
        let packet = packet.filter(|_| known)?;
        Some((packet.bucket, packet.random))
    }
}

impl Flows {
    /// Looks at those of `left` that have found no flow.
    #[cold]
    pub(super) fn look_ahead(&mut self, left: Mask, context: &Context<'_>) {
        if left.count_ones() < FEW || self.nat.rules().is_empty() {
            return;
        }
        let parsed = &context.packets.parsed;
        let from = self.at(context.packets.interface);
        self.foreseen.packets.clear();
        for index in ones(left) {
            if self.found[index].is_some() {
                continue;
            }
            let (key, tuple) = match parsed.class.v4 >> index & 1 != 0 {
                true => {
                    let key = parsed.keys4[index];
                    (Either::V4(key), Tuple::from(&key))
                }
                false => {
                    let key = parsed.keys6[index];
                    (Either::V6(key), Tuple::from(&key))
                }
            };
            let ahead = Ahead::new(tuple, from, self.classes.one(&key), self.random());
            self.foreseen.places[index] = self.foreseen.packets.len() as u8;
            self.foreseen.known |= 1 << index;
            self.foreseen.packets.push(ahead);
        }
        let packets = &mut self.foreseen.packets;
        self.nat.look_ahead(packets);
        let zone = context.interface().vrf as u16;
        for one in packets.iter() {
            let Some(source) = self.nat.likely_source(one) else {
                continue;
            };
            match one.tuple.with_src(source).reversed().key() {
                Some(Either::V4(answer)) => self.v4.prefetch_key(answer.in_zone(zone)),
                Some(Either::V6(answer)) => self.v6.prefetch_key(answer.in_zone(zone)),
                None => {}
            }
        }
    }
}
