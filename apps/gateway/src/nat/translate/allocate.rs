//! How a flow gets an outside endpoint of a pool: its endpoint's mapping, its host's address and
//! block, or any free port; and how that comes back.

use std::net::IpAddr;

use super::{Destination, First, Held, Nat, Refused};
use crate::nat::log::{Event, Record};
use crate::nat::mapping::{Filtering, Inside, OutsidePort};
use crate::nat::ports::{AddressId, Block, Wish};
use crate::nat::rules::{Rules, Terms};
use crate::nat::subscribers::Who;
use crate::nat::{Endpoint, Protocol};

impl Nat {
    /// Takes an outside endpoint of a pool for a packet's source.
    pub(super) fn take(
        &mut self,
        first: &First,
        destination: &Destination,
        number: u16,
        now_ms: u64,
        random: u64,
    ) -> Result<(Endpoint, Held), Refused> {
        let rules = &self.rules;
        let pool = &rules.config.pools[usize::from(number)].terms();
        let src = first.tuple.src;
        let Some(protocol) = first.tuple.ported() else {
            // By address alone; who came first has the address, for the flow's keys are taken.
            let who = Who {
                address: src.address,
                zone: first.from.zone,
                pool: number,
            };
            let known = self.subscribers.get(&who).map(|one| one.outside);
            let id = known.or_else(|| choose(rules, number, &src.address));
            let address = id
                .and_then(|id| rules.address(id))
                .ok_or(Refused::Exhausted)?;
            return Ok((Endpoint::new(address.address, src.port), Held::NOTHING));
        };
        let inside = Inside {
            endpoint: src,
            protocol,
            zone: first.from.zone,
            pool: number,
        };
        // Whom the host sends to, as it calls that itself.
        let remote = rules.plain(first.tuple.dst.address);
        let contact = (pool.filtering == Filtering::AddressDependent).then_some(remote);
        let mut held = Held(match pool.is_independent {
            true => Held::MAPPING | if contact.is_some() { Held::CONTACT } else { 0 },
            false => Held::PORT,
        });
        if pool.is_independent {
            let known = self.mappings.of(&inside).map(|mapping| mapping.outside);
            if let Some(outside) = known {
                let known = rules.address(outside.address);
                let address = known.ok_or(Refused::Full)?.address;
                self.mappings.begin(&outside, contact);
                return Ok((Endpoint::new(address, outside.port), held));
            }
        }
        let outside = self.take_port(first, pool, number, &inside, now_ms, random)?;
        if pool.is_independent {
            let bucket = first.bucket;
            let inserted = self.mappings.insert_begun(inside, outside, bucket, contact);
            if inserted.is_err() {
                self.give(&outside, &src.address, first.from.zone, now_ms);
                return Err(Refused::Full);
            }
        } else {
            held = Held(Held::PORT);
        }
        let known = self.rules.address(outside.address);
        let address = known.ok_or(Refused::Exhausted)?.address;
        let endpoint = Endpoint::new(address, outside.port);
        if pool.logs {
            let event = match pool.is_independent {
                true => Event::MappingBegins,
                false => Event::SessionBegins,
            };
            let remote = (!pool.is_independent).then_some(destination.tuple.dst);
            self.record(now_ms, event, &inside, endpoint, remote);
        }
        Ok((endpoint, held))
    }

    /// Takes a port of a pool.
    fn take_port(
        &mut self,
        first: &First,
        pool: &Terms,
        number: u16,
        inside: &Inside,
        now_ms: u64,
        random: u64,
    ) -> Result<OutsidePort, Refused> {
        let (src, protocol) = (inside.endpoint, inside.protocol);
        let mut wish = Wish {
            port: pool.preserves.then_some(src.port),
            odd: (protocol == Protocol::Udp).then_some(src.port & 1 != 0),
            bucket: first.bucket,
        };
        let mut known = None;
        if let Some(partner) = self.partner(pool, inside) {
            // RFC 4787 4.2.3: the other port of a pair, next to the first one.
            wish.port = Some(partner.port ^ 1);
            known = Some(partner.address);
        }
        if self.rules.has_subscribers(number) {
            let who = Who {
                address: src.address,
                zone: inside.zone,
                pool: number,
            };
            return self.take_of(&who, pool, protocol, &wish, now_ms, random, first.bucket);
        }
        let count = self.rules.positions(number).len().max(1) as u64;
        let start = (random >> 40) % count;
        let roomy = || {
            let position = self.ports.roomy(number, protocol, start as u16)?;
            self.rules
                .positions(number)
                .get(usize::from(position))
                .copied()
        };
        let address = known.or_else(roomy);
        let taken = address.and_then(|address| {
            let port = self.ports.take(address, protocol, &wish, random)?;
            Some(OutsidePort {
                address,
                protocol,
                port,
            })
        });
        taken.ok_or(Refused::Exhausted)
    }

    /// The outside of the other port of a pair (RTP and RTCP), if it is mapped.
    fn partner(&self, pool: &Terms, inside: &Inside) -> Option<OutsidePort> {
        if inside.protocol != Protocol::Udp || !pool.is_independent {
            return None;
        }
        let Endpoint { address, port } = inside.endpoint;
        let endpoint = Endpoint::new(address, port ^ 1);
        let partner = self.mappings.of(&Inside {
            endpoint,
            ..*inside
        })?;
        // Only if the first one has kept its parity.
        let is_alike = (partner.outside.port ^ port) & 1 != 0;
        is_alike.then_some(partner.outside)
    }

    /// Where a pool has subscribers now and had none before, or the other way: its hosts are
    /// subscribers by the mappings that they have, or no longer.
    pub(super) fn adopt(&mut self, old: &Rules) {
        let rules = &self.rules;
        let has = |rules: &Rules, id: AddressId| {
            let known = rules.address(id);
            known.is_some_and(|outside| rules.has_subscribers(outside.pool))
        };
        self.subscribers.retain(|one| has(rules, one.outside));
        for mapping in self.mappings.iter() {
            let OutsidePort { address, port, .. } = mapping.outside;
            if has(old, address) || !has(rules, address) {
                continue;
            }
            let Inside {
                endpoint,
                zone,
                pool,
                ..
            } = mapping.inside;
            let who = Who {
                address: endpoint.address,
                zone,
                pool,
            };
            let place = match self.subscribers.place(&who) {
                Some(place) => Some(place),
                // Where there is no room, it is nobody's from then on.
                None => (self.subscribers.insert(who, mapping.bucket, address)).ok(),
            };
            if let Some(one) = place.and_then(|place| self.subscribers.at_mut(place)) {
                one.take(port);
            }
        }
    }

    /// Takes a port for a subscriber.
    #[allow(clippy::too_many_arguments)] // one call, with what it knows
    fn take_of(
        &mut self,
        who: &Who,
        pool: &Terms,
        protocol: Protocol,
        wish: &Wish,
        now_ms: u64,
        random: u64,
        bucket: u8,
    ) -> Result<OutsidePort, Refused> {
        let place = match self.subscribers.place(who) {
            Some(place) => place,
            None => {
                let positions = self.rules.positions(who.pool);
                let start = (random >> 40) % positions.len().max(1) as u64;
                let position = self.ports.roomy(who.pool, protocol, start as u16);
                let address = position.and_then(|at| positions.get(usize::from(at)));
                let address = *address.ok_or(Refused::Exhausted)?;
                let inserted = self.subscribers.insert(*who, bucket, address);
                inserted.map_err(|_| Refused::Full)?
            }
        };
        let taken = self.take_as((who, place), pool, protocol, wish, now_ms, random);
        if taken.is_err() && self.subscribers.at(place).is_some_and(|one| one.ports == 0) {
            self.subscribers.remove(who);
        }
        taken
    }

    fn take_as(
        &mut self,
        (who, place): (&Who, u32),
        pool: &Terms,
        protocol: Protocol,
        wish: &Wish,
        now_ms: u64,
        random: u64,
    ) -> Result<OutsidePort, Refused> {
        let one = self.subscribers.at_mut(place).ok_or(Refused::Full)?;
        if pool.host_ports.is_some_and(|most| one.ports >= most) {
            return Err(Refused::Limit);
        }
        let address = one.outside;
        let at = |port| OutsidePort {
            address,
            protocol,
            port,
        };
        if pool.block_ports == 0 {
            let port = self.ports.take(address, protocol, wish, random);
            let port = port.ok_or(Refused::Exhausted)?;
            one.take(port);
            return Ok(at(port));
        }
        let mut blocks = one.blocks();
        let port = blocks.find_map(|block| self.ports.take_in(block, protocol, wish, random));
        drop(blocks);
        if let Some(port) = port {
            one.take(port);
            return Ok(at(port));
        }
        if !one.may_add(pool.blocks) {
            return Err(Refused::Limit);
        }
        let block = self.ports.take_block(address, one.bucket, protocol, random);
        let block = block.ok_or(Refused::Exhausted)?;
        let Some(port) = self.ports.take_in(&block, protocol, wish, random >> 16) else {
            // It is of another bucket, while those are kept apart.
            self.ports.give_block(&block);
            return Err(Refused::Exhausted);
        };
        one.add(block, pool.blocks);
        one.take(port);
        self.record_block(now_ms, Event::BlockBegins, who, &block);
        Ok(at(port))
    }

    /// Gives a port back, and what the subscriber has no use for any longer.
    pub(super) fn give(&mut self, outside: &OutsidePort, inside: &IpAddr, zone: u16, now_ms: u64) {
        self.give_of(outside, (inside, zone), None, now_ms);
    }

    /// The same of a host inside, which may be the subscriber at the place of `host`.
    pub(super) fn give_of(
        &mut self,
        outside: &OutsidePort,
        (inside, zone): (&IpAddr, u16),
        host: Option<u32>,
        now_ms: u64,
    ) {
        self.ports
            .give(outside.address, outside.protocol, outside.port);
        if self.subscribers.is_empty() {
            return;
        }
        let Some(known) = self.rules.address(outside.address) else {
            return;
        };
        let who = Who {
            address: *inside,
            zone,
            pool: known.pool,
        };
        let is = |place: &u32| {
            self.subscribers
                .at(*place)
                .is_some_and(|one| one.who == who)
        };
        let Some(place) = host.filter(is).or_else(|| self.subscribers.place(&who)) else {
            return;
        };
        let Some(one) = self.subscribers.at_mut(place) else {
            return;
        };
        let block = one.give(outside.port);
        let is_last = one.ports == 0;
        if let Some(block) = block {
            self.ports.give_block(&block);
            self.record_block(now_ms, Event::BlockEnds, &who, &block);
        }
        if is_last {
            self.subscribers.remove(&who);
        }
    }

    pub(super) fn record(
        &mut self,
        time_ms: u64,
        event: Event,
        inside: &Inside,
        outside: Endpoint,
        remote: Option<Endpoint>,
    ) {
        self.log.push(Record::session(
            time_ms,
            self.worker,
            event,
            inside,
            outside,
            remote,
        ));
    }

    fn record_block(&mut self, time_ms: u64, event: Event, who: &Who, block: &Block) {
        if !self.rules.config.log.blocks {
            return;
        }
        if let Some(outside) = self.rules.address(block.address) {
            let record = Record::block(time_ms, self.worker, event, who, outside.address, block);
            self.log.push(record);
        }
    }
}

/// Some address of a pool, always the same for a host.
fn choose(rules: &Rules, pool: u16, host: &IpAddr) -> Option<AddressId> {
    let positions = rules.positions(pool);
    let bits = match host {
        IpAddr::V4(v4) => u64::from(u32::from(*v4)),
        IpAddr::V6(v6) => (u128::from(*v6) >> 64) as u64 ^ u128::from(*v6) as u64,
    };
    let at = linerate_core::random::mixed(bits) as usize % positions.len().max(1);
    positions.get(at).copied()
}
