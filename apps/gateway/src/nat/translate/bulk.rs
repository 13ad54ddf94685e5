//! Several flows at once: the memory that all of them need is asked for before the first of them
//! waits for it. Nothing is decided here.

use super::{Held, Nat};
use crate::nat::mapping::{Inside, OutsidePort};
use crate::nat::rules::At;
use crate::nat::subscribers::Who;
use crate::nat::{Endpoint, Tuple};

/// Flows whose memory is asked for at once.
const BATCH: usize = 32;

/// A flow that has ended, as [`Nat::release`] takes it: what it held, the tuples of its first
/// packet before and behind its translation, and where that came in.
pub type Released = (Held, Tuple, Tuple, u16);

/// What one of them leads to.
#[derive(Clone, Copy)]
struct Step {
    outside: OutsidePort,
    who: Who,
    place: Option<u32>,
}

impl Nat {
    /// As [`release`](Self::release) of each of them, in their order.
    pub fn release_all(&mut self, ended: &[Released], now_ms: u64) {
        for ended in ended.chunks(BATCH) {
            self.prefetch_released(ended);
            for (held, original, translated, zone) in ended {
                self.release(*held, original, translated, *zone, now_ms);
            }
        }
    }

    fn prefetch_released(&self, ended: &[Released]) {
        let mut steps = [None; BATCH];
        for ((held, original, translated, zone), step) in ended.iter().zip(&mut steps) {
            if !held.has(Held::PORT | Held::MAPPING) {
                continue;
            }
            let outside = self.outside_of(&translated.src, original.ported());
            *step = outside.map(|outside| self.begin_step(*held, outside, &original.src, *zone));
        }
        for step in steps.iter_mut().flatten() {
            step.place = self.mappings.fetch(&step.outside);
            if let Some(place) = self.subscribers.place(&step.who) {
                self.subscribers.prefetch_at(place);
            }
            let OutsidePort { address, port, .. } = step.outside;
            self.ports.prefetch(address, port);
        }
        for place in steps.iter().flatten().filter_map(|step| step.place) {
            self.mappings.prefetch_end(place);
        }
    }

    fn begin_step(&self, held: Held, outside: OutsidePort, src: &Endpoint, zone: u16) -> Step {
        if held.has(Held::MAPPING) {
            self.mappings.prefetch_at(&outside);
        }
        let who = Who {
            address: src.address,
            zone,
            pool: self.rules.address(outside.address).map_or(0, |one| one.pool),
        };
        self.subscribers.prefetch(&who);
        Step {
            outside,
            who,
            place: None,
        }
    }

    /// Asks for what tells which mapping and which host a first packet is of, if its source becomes
    /// an address of a pool. Where it leaves is not known yet, so it may be another pool in the end.
    pub fn prefetch_first(&self, tuple: &Tuple, from: At) -> Option<Who> {
        let pool = self.rules.likely_pool(tuple, from)?;
        let inside = Inside {
            endpoint: tuple.src,
            protocol: tuple.ported()?,
            zone: from.zone,
            pool,
        };
        self.mappings.prefetch_of(&inside);
        let who = Who {
            address: tuple.src.address,
            zone: from.zone,
            pool,
        };
        self.subscribers.prefetch(&who);
        Some(who)
    }

    /// Asks for what is known of that host, if it is known; returns its place.
    pub fn prefetch_host(&self, who: &Who) -> Option<u32> {
        let place = self.subscribers.place(who)?;
        self.subscribers.prefetch_at(place);
        Some(place)
    }

    /// Asks for the free ports of the host at that place, in a bucket.
    pub fn prefetch_ports(&self, place: u32, bucket: u8) {
        if let Some(host) = self.subscribers.at(place) {
            self.ports.prefetch(host.outside, u16::from(bucket) << 1);
        }
    }
}
