//! Packets that are about to begin flows, before the first of them does: what all of them need of
//! NAT's tables is asked for, so that each finds it near. Nothing is decided here.

use linerate_core::packet::Burst;
use linerate_routing::plane::{Context, ones};
use linerate_tables::parse::Mask;
use linerate_wire::FlowKey as Either;

use super::Flows;
use crate::nat::Tuple;

/// For fewer packets it is not worth it.
const FEW: u32 = 4;

impl Flows {
    /// Looks at those of `left` that have found no flow.
    #[cold]
    pub(super) fn look_ahead(&self, left: Mask, context: &Context<'_>) {
        if left.count_ones() < FEW || self.nat.rules().is_empty() {
            return;
        }
        let parsed = &context.packets.parsed;
        let from = self.at(context.packets.interface);
        let mut hosts = [None; Burst::CAPACITY];
        let mut count = 0;
        for index in ones(left).filter(|&index| self.found[index].is_none()) {
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
            if let Some(host) = self.nat.prefetch_first(&tuple, from) {
                hosts[count] = Some((host, self.classes.one(&key)));
                count += 1;
            }
        }
        let mut places = [None; Burst::CAPACITY];
        for (host, place) in hosts[..count].iter().flatten().zip(&mut places) {
            *place = self.nat.prefetch_host(&host.0).map(|at| (at, host.1));
        }
        for (place, bucket) in places.iter().flatten() {
            self.nat.prefetch_ports(*place, *bucket);
        }
    }
}
