//! Several flows at once: the memory that all of them need is asked for before the first of them
//! waits for it. Nothing is decided here.

use super::{Held, Nat};
use crate::nat::mapping::{Inside, OutsidePort};
use crate::nat::ports::{AddressId, Wish, bucket_of};
use crate::nat::rules::At;
use crate::nat::subscribers::Who;
use crate::nat::{Endpoint, Protocol, Tuple};

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
    /// Where its mapping is.
    place: Option<u32>,
    /// Where its subscriber is.
    host: Option<u32>,
}

impl Nat {
    /// As [`release`](Self::release) of each of them, in their order.
    pub fn release_all(&mut self, ended: &[Released], now_ms: u64) {
        for ended in ended.chunks(BATCH) {
            let mut steps = [None; BATCH];
            self.look_up(ended, &mut steps);
            for ((held, original, translated, zone), step) in ended.iter().zip(&steps) {
                let of_mapping = held.has(Held::MAPPING) && !held.has(Held::INWARD | Held::SESSION);
                match step {
                    Some(step) if of_mapping => {
                        let remote = self.rules.plain(original.dst.address);
                        let contact = held.has(Held::CONTACT).then_some(remote);
                        let place = step.place;
                        let gone =
                            place.and_then(|at| self.mappings.end_at(at, &step.outside, contact));
                        if let Some(mapping) = gone {
                            self.has_ended(&mapping, step.host, now_ms);
                        }
                    }
                    _ => self.release(*held, original, translated, *zone, now_ms),
                }
            }
        }
    }

    /// Where what they use is, all of which is asked for.
    fn look_up(&self, ended: &[Released], steps: &mut [Option<Step>; BATCH]) {
        for ((held, original, translated, zone), step) in ended.iter().zip(&mut *steps) {
            if !held.has(Held::PORT | Held::MAPPING) {
                continue;
            }
            let outside = self.outside_of(&translated.src, original.ported());
            *step = outside.map(|outside| self.first_step(*held, outside, &original.src, *zone));
        }
        for step in steps.iter_mut().flatten() {
            step.place = self.mappings.fetch(&step.outside);
            step.host = self.prefetch_host(&step.who);
            let OutsidePort { address, port, .. } = step.outside;
            self.ports.prefetch(address, port);
        }
        for place in steps.iter().flatten().filter_map(|step| step.place) {
            self.mappings.prefetch_end(place);
        }
    }

    fn first_step(&self, held: Held, outside: OutsidePort, src: &Endpoint, zone: u16) -> Step {
        if held.has(Held::MAPPING) {
            self.mappings.prefetch_at(&outside);
        }
        let who = Who {
            address: src.address,
            zone,
            pool: self
                .rules
                .address(outside.address)
                .map_or(0, |one| one.pool),
        };
        self.subscribers.prefetch(&who);
        Step {
            outside,
            who,
            place: None,
            host: None,
        }
    }

    fn prefetch_host(&self, who: &Who) -> Option<u32> {
        let place = self.subscribers.place(who)?;
        self.subscribers.prefetch_at(place);
        Some(place)
    }

    /// Of first packets whose source becomes an address of a pool, what tells their mapping, their
    /// host, and which ports are free is asked for, step by step for all of them. Where they leave
    /// is not known yet, so it may be another pool in the end.
    pub fn look_ahead(&self, all: &mut [Ahead]) {
        for one in &mut *all {
            one.who = self.first_of(one);
        }
        for one in &mut *all {
            one.host = one.who.and_then(|who| self.prefetch_host(&who));
        }
        for one in &mut *all {
            one.address = one.who.and_then(|who| self.likely_address(&who, one));
            if let Some(address) = one.address {
                self.ports.prefetch(address, u16::from(one.bucket) << 1);
                if bucket_of(one.tuple.src.port) != one.bucket {
                    self.ports.prefetch(address, one.tuple.src.port);
                }
            }
        }
        for one in all {
            one.outside = self.likely_outside(one);
            if let Some(outside) = &one.outside {
                self.mappings.prefetch_at(outside);
            }
        }
    }

    fn first_of(&self, one: &Ahead) -> Option<Who> {
        let pool = self.rules.likely_pool(&one.tuple, one.from)?;
        let inside = Inside {
            endpoint: one.tuple.src,
            protocol: one.tuple.ported()?,
            zone: one.from.zone,
            pool,
        };
        self.mappings.prefetch_of(&inside);
        let who = Who {
            address: one.tuple.src.address,
            zone: one.from.zone,
            pool,
        };
        self.subscribers.prefetch(&who);
        Some(who)
    }

    /// The outside address that a host has, or would get.
    fn likely_address(&self, who: &Who, one: &Ahead) -> Option<AddressId> {
        if let Some(host) = one.host {
            return Some(self.subscribers.at(host)?.outside);
        }
        let positions = self.rules.positions(who.pool);
        let start = (one.random >> 40) % positions.len().max(1) as u64;
        let protocol = one.tuple.ported()?;
        let position = self.ports.roomy(who.pool, protocol, start as u16)?;
        positions.get(usize::from(position)).copied()
    }

    /// The outside endpoint that a packet would get, but for what comes between.
    fn likely_outside(&self, one: &Ahead) -> Option<OutsidePort> {
        let (address, protocol) = (one.address?, one.tuple.ported()?);
        let pool = self.rules.config.pools.get(usize::from(one.who?.pool))?;
        if pool.block_ports != 0 {
            return None;
        }
        let port = one.tuple.src.port;
        let wish = Wish {
            port: pool.preserves.then_some(port),
            odd: (protocol == Protocol::Udp).then_some(port & 1 != 0),
            bucket: one.bucket,
        };
        Some(OutsidePort {
            address,
            protocol,
            port: self.ports.peek(address, protocol, &wish, one.random)?,
        })
    }

    /// The outside address and port of an [`Ahead`] that was looked at.
    pub fn likely_source(&self, one: &Ahead) -> Option<Endpoint> {
        let outside = one.outside.as_ref()?;
        let address = self.rules.address(outside.address)?.address;
        Some(Endpoint::new(address, outside.port))
    }
}

/// A packet that may begin a flow, and what it may lead to.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    pub tuple: Tuple,
    /// Where it came in.
    pub from: At,
    /// The bucket of its flow.
    pub bucket: u8,
    /// The random number that [`Nat::source`] will be given for it.
    pub random: u64,
    who: Option<Who>,
    host: Option<u32>,
    address: Option<AddressId>,
    outside: Option<OutsidePort>,
}

impl Ahead {
    /// A packet that was not looked at yet.
    pub fn new(tuple: Tuple, from: At, bucket: u8, random: u64) -> Self {
        Self {
            tuple,
            from,
            bucket,
            random,
            who: None,
            host: None,
            address: None,
            outside: None,
        }
    }
}
