//! Flows: which packets belong to a flow, which may begin one, and what they become.
//!
//! A burst is looked up at once. Packets of known flows are judged by what their flow permits next
//! ([`track`](crate::track)), and translated as its two keys say; the others are treated one by
//! one: destination translation, a route lookup that says where the packet would leave, policy
//! between the zones of the two interfaces, source translation, a new flow. Packets for the gateway
//! itself, and those that have no route, belong to no flow and go on as in a router.
//!
//! All of it is this worker's alone: no lock, and nothing that another thread writes. Flows end in
//! the stage's turn, a bounded number at a time, and give back what they held of NAT.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::{DropId, Egress, NEVER, Stage};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict as Decided;
use linerate_routing::plane::hops::Action;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{Change, Context, Verdict, ones};
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{
    Direction, First, Flow, FlowConfig, FlowKey, FlowTable, Hit, Inserted, Refused,
};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::{FlowKey as Either, Headers};

use crate::config::{FlowsConfig, Stanzas};
use crate::dispatch::Hash;
use crate::nat::bits::Bits;
use crate::nat::rewrite::{Differences, To, Translation4, Translation6, write_any, write_error};
use crate::nat::rules::{At, Rules};
use crate::nat::{self, Held, Nat, Translated, Tuple};
use crate::policy::{self, FirstPacket, Policy};
use crate::track::{self, Quote, Reason, State, Tcp, Timeouts, Tracker, Upper, Verdict as Next};

/// Flows that one turn ends at most, of each family: see [`Flows::turn`].
const EXPIRY_BUDGET: usize = 256;
/// Ticks of the tables a second.
const TICKS: u64 = 1000;

/// What is kept with a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracked {
    tcp: Tcp,
    /// How much the checksums of its first direction's packets grow.
    differences: Differences,
    /// The number of the configuration that has permitted it.
    permitted_by: u32,
    /// The zone that it came in from.
    zone: u16,
    held: Held,
}

/// Flows of one family.
pub type Table<F, const K: usize> = FlowTable<F, Tracked, K>;

/// Why packets are dropped here.
struct Reasons {
    /// One of the two interfaces is in no zone.
    no_zone: DropId,
    /// The policy of the zones does not permit the flow.
    policy: DropId,
    /// There is no room for another flow.
    flow_table: DropId,
    /// Another flow has the key that its answers would have.
    flow_taken: DropId,
    /// The index has no room for this key.
    flow_collision: DropId,
    /// What is to be translated does not lie within the packet.
    nat_malformed: DropId,
    /// The pool that it was translated by is gone.
    nat_gone: DropId,
    /// By [`Reason`].
    track: [DropId; Reason::ALL.len()],
    /// By [`nat::Refused`].
    nat: [DropId; nat::Refused::COUNT],
}

impl Reasons {
    fn of(&self, reason: Reason) -> Verdict {
        Verdict::Drop(self.track[reason as usize])
    }

    fn of_nat(&self, refused: nat::Refused) -> Verdict {
        Verdict::Drop(self.nat[refused as usize])
    }
}

/// What the stage has counted, besides what its tables have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows that have begun.
    pub begun: u64,
    /// Flows that have ended by themselves.
    pub ended: u64,
    /// Flows that ended because newer policies do not permit them.
    pub forbidden: u64,
}

/// What all workers have of a configuration.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Zones, and what may begin between them.
    pub policy: Arc<Policy>,
    /// What is translated.
    pub rules: Arc<Rules>,
    /// The number of both, which no others in this process have.
    number: u32,
}

/// The next number of a configuration in this process.
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Shared {
    /// What the stanzas ask for, between the interfaces of `settings`; what is as in `old` is that.
    ///
    /// # Errors
    /// A list of rules cannot be compiled.
    pub fn new(
        stanzas: &Stanzas,
        settings: &Settings,
        old: Option<&Self>,
    ) -> Result<Self, policy::Error> {
        let interfaces = || settings.interfaces.iter().map(|one| one.name.as_str());
        let names: Vec<&str> = interfaces().collect();
        let policy = Policy::build(&stanzas.policy, &names, old.map(|old| &old.policy))?;
        let interface = |place: u16| {
            let name = stanzas.interfaces.get(usize::from(place));
            let number = name.and_then(|name| interfaces().position(|one| one == name));
            number.map_or(u16::MAX, |number| number as u16)
        };
        let zone = |place: u16| {
            let zone = stanzas.policy.zones.get(usize::from(place));
            let zone = zone.and_then(|zone| policy.zones().named(&zone.name));
            zone.map_or(u16::MAX, |zone| zone.number().into())
        };
        let config = stanzas.nat.clone().with_numbers(interface, zone);
        let rules = match old.filter(|old| old.rules.config == config) {
            Some(same) => same.rules.clone(),
            None => Arc::new(Rules::new(config, old.map(|old| &*old.rules))),
        };
        let is_same =
            |old: &&Self| Arc::ptr_eq(&old.policy, &policy) && Arc::ptr_eq(&old.rules, &rules);
        let number = match old.filter(is_same) {
            Some(same) => same.number,
            None => NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        Ok(Self {
            policy,
            rules,
            number,
        })
    }

    /// Whether both are those of `other`.
    pub fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The stage.
pub struct Flows {
    v4: Table<FlowKey4, 16>,
    v6: Table<FlowKey6, 40>,
    tracker: Tracker,
    nat: Nat,
    policy: Arc<Policy>,
    /// That of policy and rules.
    number: u32,
    /// What its rules have decided here.
    hits: policy::Counts,
    reasons: Reasons,
    counts: Counts,
    hash: Hash,
    /// Makes random numbers.
    random: (RandomState, u64),
    /// What each packet of the burst has found.
    found: Box<[Option<Hit>; Burst::CAPACITY]>,
    /// Whether this burst has begun a flow.
    has_begun: bool,
}

impl Flows {
    /// A stage with room for its flows, of the worker of that number.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(
        config: &FlowsConfig,
        shared: Shared,
        worker: usize,
        now_ns: u64,
        egress: &mut Egress,
    ) -> Result<Self, TableError> {
        let states = Timeouts::default().flow_states(TICKS, None);
        let translates = !shared.rules.is_empty();
        let of = |name: &str, flows: u32| FlowConfig {
            states: states.clone(),
            evict: Some(State::SynSent as u8),
            translated: if translates { flows as usize } else { 0 },
            ..FlowConfig::stateful(name, flows as usize, TICKS, Seed::random())
        };
        let random = RandomState::new();
        let limits = shared.rules.config.limits;
        let seed = Seed::random();
        let nat = Nat::new(shared.rules, &limits, Bits::ALL, worker as u16, seed)?;
        let mut reason = |name| egress.reason(name);
        Ok(Self {
            v4: Table::new(&of("flows of IPv4", config.ipv4), ticks(now_ns))?,
            v6: Table::new(&of("flows of IPv6", config.ipv6), ticks(now_ns))?,
            tracker: Tracker::default(),
            nat,
            hits: policy::Counts::new(&shared.policy, &policy::Counts::default()),
            policy: shared.policy,
            number: shared.number,
            reasons: Reasons {
                no_zone: reason("no_zone"),
                policy: reason("policy"),
                flow_table: reason("flow_table"),
                flow_taken: reason("flow_taken"),
                flow_collision: reason("flow_collision"),
                nat_malformed: reason("nat_malformed"),
                nat_gone: reason("nat_gone"),
                track: Reason::ALL.map(|one| reason(one.name())),
                nat: nat::Refused::ALL.map(|one| reason(one.name())),
            },
            counts: Counts::default(),
            hash: Hash::new(random.hash_one(0_u64)),
            random: (random, 1),
            found: Box::new([None; Burst::CAPACITY]),
            has_begun: false,
        })
    }

    /// Takes another configuration over, and leaves the one that it had.
    pub fn install(&mut self, change: &mut Change) {
        let own = change.own.take().and_then(|own| own.downcast().ok());
        let new = own.and_then(|own: Box<linerate_control::Own>| own.downcast::<Shared>().ok());
        let Some(new) = new else { return };
        let rules = self.nat.rules().clone();
        let hits = policy::Counts::new(&new.policy, &self.hits);
        let hits = std::mem::replace(&mut self.hits, hits);
        let policy = std::mem::replace(&mut self.policy, new.policy.clone());
        if !Arc::ptr_eq(&rules, &new.rules) {
            // Flows of mappings that are gone end at their next packet.
            self.nat.install(new.rules.clone());
        }
        self.number = new.number;
        change.own = Some(Box::new((policy, rules, hits)));
    }

    /// When the next timer of a flow is due, in ns of the worker's clock.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        let both = [self.v4.next_expiry(), self.v6.next_expiry()];
        let first = both.into_iter().flatten().min();
        first.map(|tick| tick.saturating_mul(1_000_000_000 / TICKS))
    }

    /// The flows of IPv4.
    pub fn v4(&self) -> &Table<FlowKey4, 16> {
        &self.v4
    }

    /// The flows of IPv6.
    pub fn v6(&self) -> &Table<FlowKey6, 40> {
        &self.v6
    }

    /// What the policy's rules have decided here.
    pub fn hits(&self) -> &policy::Counts {
        &self.hits
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Readies the keys of those that are not looked up as they are: ICMP queries, by their
    /// identifiers, and all of a VRF besides the first. Returns ICMP errors, which have no flow of
    /// their own.
    #[cold]
    fn ready_keys(&self, mask: Mask, burst: &Burst, context: &mut Context<'_>) -> Mask {
        let vrf = context.interface().vrf as u16;
        let parsed = &mut context.packets.parsed;
        let mut errors = 0;
        for index in ones(mask) {
            let is_v4 = parsed.class.v4 >> index & 1 != 0;
            match is_v4 {
                true => parsed.keys4[index].set_zone(vrf),
                false => parsed.keys6[index].set_zone(vrf),
            }
            if parsed.class.icmp >> index & 1 == 0 {
                continue;
            }
            let number = match is_v4 {
                true => parsed.keys4[index].protocol(),
                false => parsed.keys6[index].protocol(),
            };
            let packet = &burst.as_packets()[index];
            match read(packet, is_v4, number, parsed.end[index]) {
                Ok(Upper::Error) => errors |= 1 << index,
                Ok(Upper::Query(query)) => match is_v4 {
                    true => parsed.keys4[index] = query.key4(parsed.keys4[index]),
                    false => parsed.keys6[index] = query.key6(parsed.keys6[index]),
                },
                _ => {}
            }
        }
        errors
    }

    /// Looks packets up; what they found is at their positions.
    fn find(&mut self, now: u64, mask: Mask, all: Mask, context: &Context<'_>) {
        let parsed = &context.packets.parsed;
        let mut lengths = [0; Burst::CAPACITY];
        for (length, end) in lengths.iter_mut().zip(&parsed.end) {
            *length = end.saturating_sub(HEADER_LEN as u32);
        }
        let (v4, v6) = (mask & parsed.class.v4, mask & parsed.class.v6);
        let found = &mut self.found;
        look_up(&mut self.v4, now, (v4, all), &parsed.keys4, &lengths, found);
        look_up(&mut self.v6, now, (v6, all), &parsed.keys6, &lengths, found);
    }

    /// Whether the policies in force permit a flow, by the zones of the interfaces that its first
    /// packet comes in and leaves by.
    fn permits(
        &self,
        index: usize,
        first: &Tuple,
        (from, to): (InterfaceId, InterfaceId),
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let (reasons, policy) = (&self.reasons, &self.policy);
        let key = first.key().ok_or(Verdict::Drop(reasons.policy))?;
        // The key of a query has its type in the place of the destination's port.
        let kind = (first.dst.port as u8, 0);
        let packet = FirstPacket::of(key, Some(kind), 0);
        let (from, to) = (policy.zone(from), policy.zone(to));
        let decision = policy.decide(from, to, &packet);
        self.hits.hit(&decision);
        context.note(index, "flows", || {
            let name = |zone| policy.zones().name(zone);
            let list = &policy.lists()[usize::from(decision.list)];
            let rule = match list.rules.get(decision.rule as usize) {
                Some(_) => format!("rule {}", decision.rule + 1),
                None => "no rule".into(),
            };
            let verdict = decision.verdict.name();
            format!("{} to {}, {rule}: {verdict}", name(from), name(to))
        });
        match decision.verdict {
            Decided::Permit => Ok(()),
            _ if decision.lacks_zone() => Err(Verdict::Drop(reasons.no_zone)),
            Decided::Deny => Err(Verdict::Drop(reasons.policy)),
            Decided::Reject => Err(Verdict::Reject(reasons.policy, decision.answer)),
        }
    }

    /// Where an interface is, for NAT.
    fn at(&self, interface: InterfaceId) -> At {
        At {
            zone: self.policy.zone(interface).number().into(),
            interface: interface.0,
        }
    }

    /// A packet that no flow has: begins one, or is refused.
    #[cold]
    fn begin(
        &mut self,
        now: u64,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let parsed = &context.packets.parsed;
        let (is_v4, end) = (parsed.class.v4 >> index & 1 != 0, parsed.end[index]);
        let (key, tuple) = match is_v4 {
            true => {
                let key = parsed.keys4[index];
                (Either::V4(key), Tuple::from(&key))
            }
            false => {
                let key = parsed.keys6[index];
                (Either::V6(key), Tuple::from(&key))
            }
        };
        let id = context.packets.interface;
        let first = nat::First {
            tuple,
            from: self.at(id),
            bucket: self.bucket(&tuple),
        };
        let destination = self.nat.destination(&first);
        let aim = destination.map_or(tuple, |found| found.tuple);
        let Some(to) = leaves(index, aim.dst.address, packet, context) else {
            return Ok(());
        };
        let reasons = &self.reasons;
        let upper = read(packet, is_v4, tuple.protocol, end).map_err(|why| reasons.of(why))?;
        let first_state = match &key {
            Either::V4(key) => self.tracker.first(&key.0, &upper, 0, now),
            Either::V6(key) => self.tracker.first(&key.0, &upper, 0, now),
        };
        let (tcp, state) = match first_state {
            track::First::Begin(tcp, state) => (tcp, state),
            // The tracker has no cookies: too many half-open connections evict the oldest.
            track::First::Answer(_) | track::First::Proxy(..) => {
                return Err(self.reasons.of(Reason::TcpCookie));
            }
            track::First::Drop(reason) => return Err(self.reasons.of(reason)),
        };
        let destination = destination.map_err(|why| self.reasons.of_nat(why))?;
        self.permits(index, &aim, (id, to), context)?;
        let (to, random) = (self.at(to), self.random());
        let becomes = self.nat.source(&first, &destination, to, now, random);
        let becomes = becomes.map_err(|why| self.reasons.of_nat(why))?;
        let bytes = end.saturating_sub(HEADER_LEN as u32);
        let user = Tracked {
            tcp,
            differences: Differences::default(),
            permitted_by: self.number,
            zone: first.from.zone,
            held: becomes.held,
        };
        let first_of = |user| First {
            state: state as u8,
            owner: 0,
            user,
            bytes,
        };
        let back = becomes.tuple.reversed().key();
        let begun = match (key, back) {
            (Either::V4(key), Some(Either::V4(back))) => {
                let back = back.in_zone(key.zone());
                let differences = Translation4::new(&key, &back.reversed()).differences();
                let first = first_of(Tracked {
                    differences,
                    ..user
                });
                begin_in(
                    &mut self.v4,
                    now,
                    (key, back),
                    first_bucket(&self.hash, &tuple),
                    first,
                )
                .map(|gone| gone.map(|gone| gone_of(&gone)))
            }
            (Either::V6(key), Some(Either::V6(back))) => {
                let back = back.in_zone(key.zone());
                let differences = Translation6::new(&key, &back.reversed()).differences();
                let first = first_of(Tracked {
                    differences,
                    ..user
                });
                begin_in(
                    &mut self.v6,
                    now,
                    (key, back),
                    first_bucket(&self.hash, &tuple),
                    first,
                )
                .map(|gone| gone.map(|gone| gone_of(&gone)))
            }
            // Between the families nothing is translated yet.
            _ => Err(Refused::Stale),
        };
        match begun {
            Ok(evicted) => {
                if let Some((held, original, translated, zone)) = evicted {
                    self.nat.release(held, &original, &translated, zone, now);
                }
                self.counts.begun += 1;
                self.has_begun = true;
                context.note(index, "flows", || match becomes.tuple == tuple {
                    true => "a new flow".into(),
                    false => {
                        let Tuple { src, dst, .. } = becomes.tuple;
                        format!("a new flow, which becomes {src} > {dst}")
                    }
                });
            }
            Err(why) => {
                let Translated { tuple: new, held } = becomes;
                self.nat.release(held, &tuple, &new, first.from.zone, now);
                return Err(Verdict::Drop(match why {
                    Refused::Collision => self.reasons.flow_collision,
                    Refused::Taken => self.reasons.flow_taken,
                    _ => self.reasons.flow_table,
                }));
            }
        }
        if becomes.tuple == tuple {
            return Ok(());
        }
        match (key, back) {
            (Either::V4(_), Some(Either::V4(back))) => {
                let found = self.v4.lookup(context.packets.parsed.keys4[index]);
                let differences = self.differences4(found);
                self.write4(index, back.reversed(), differences, packet, context)
            }
            (Either::V6(_), Some(Either::V6(back))) => {
                let found = self.v6.lookup(context.packets.parsed.keys6[index]);
                let differences = self.differences6(found);
                self.write6(index, back.reversed(), differences, packet, context)
            }
            _ => Ok(()),
        }
    }

    fn differences4(&self, hit: Option<Hit>) -> Differences {
        let user = hit.and_then(|hit| self.v4.user(hit.flow));
        user.map_or(Differences::default(), |user| user.differences)
    }

    fn differences6(&self, hit: Option<Hit>) -> Differences {
        let user = hit.and_then(|hit| self.v6.user(hit.flow));
        user.map_or(Differences::default(), |user| user.differences)
    }

    fn bucket(&self, tuple: &Tuple) -> u8 {
        first_bucket(&self.hash, tuple)
    }

    fn random(&mut self) -> u64 {
        self.random.1 += 1;
        self.random.0.hash_one(self.random.1)
    }

    /// Translates an IPv4 packet: it gets the addresses and ports of `to`.
    #[inline]
    fn write4(
        &self,
        index: usize,
        to: FlowKey4,
        differences: Differences,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let l4 = usize::from(packet.meta().l4_offset);
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let class = &context.packets.parsed.class;
        let (is_tcp, is_udp) = (class.tcp >> index & 1 != 0, class.udp >> index & 1 != 0);
        context.packets.translate(index, packet.data());
        let translation = Translation4::with(&to, differences);
        let frame = packet.data_mut();
        let written = match (is_tcp | is_udp) && l4 != 0 {
            true => translation.write(frame, HEADER_LEN, l4, is_udp, is_partial),
            false => any(frame, &translation.to(), is_partial),
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let parsed = &mut context.packets.parsed;
        parsed.dst4[index] = to.dst().to_bits();
        parsed.keys4[index] = to;
        Ok(())
    }

    /// The same of IPv6; the source in its key stays the sender's.
    #[inline]
    fn write6(
        &self,
        index: usize,
        to: FlowKey6,
        differences: Differences,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let l4 = usize::from(packet.meta().l4_offset);
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let class = &context.packets.parsed.class;
        let (is_tcp, is_udp) = (class.tcp >> index & 1 != 0, class.udp >> index & 1 != 0);
        context.packets.translate(index, packet.data());
        let translation = Translation6::with(&to, differences);
        let frame = packet.data_mut();
        let written = match (is_tcp | is_udp) && l4 != 0 {
            true => translation.write(frame, HEADER_LEN, l4, is_udp, is_partial),
            false => any(frame, &translation.to(), is_partial),
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let key = &mut context.packets.parsed.keys6[index];
        key.0[16..].copy_from_slice(&to.0[16..]);
        Ok(())
    }

    /// A packet of a flow that older policies have permitted: it is decided anew. The tuples are
    /// those of the flow's first packet, before and behind its translation.
    #[cold]
    fn decide_again(
        &mut self,
        index: usize,
        hit: &Hit,
        (original, translated): (Tuple, Tuple),
        held: Held,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let aim = original.with_dst(translated.dst);
        let here = context.packets.interface;
        let far = match hit.direction {
            Direction::Forward => aim.dst.address,
            Direction::Reverse => original.src.address,
        };
        let Some(there) = leaves(index, far, packet, context) else {
            return Ok(());
        };
        let ends = match hit.direction {
            Direction::Forward => (here, there),
            Direction::Reverse => (there, here),
        };
        let decided = match self.nat.is_permitted(held, &translated) {
            true => self.permits(index, &aim, ends, context),
            false => Err(Verdict::Drop(self.reasons.nat_gone)),
        };
        self.counts.forbidden += u64::from(decided.is_err());
        decided
    }

    /// An ICMP error: it belongs to the flow that has sent the packet that it quotes, or nowhere.
    #[cold]
    fn related(
        &mut self,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let vrf = context.interface().vrf as u16;
        let own = |tables: &mut Self, context: &mut Context<'_>, packet: &Packet, why| {
            let parsed = &context.packets.parsed;
            let to = match parsed.class.v4 >> index & 1 {
                1 => IpAddr::from(parsed.dst4[index].to_be_bytes()),
                _ => parsed.keys6[index].dst().into(),
            };
            // About a packet of the gateway's own.
            match leaves(index, to, packet, context) {
                None => Ok(()),
                Some(_) => Err(tables.reasons.of(why)),
            }
        };
        let Ok(headers) = linerate_wire::parse(packet.data()) else {
            return own(self, context, packet, Reason::IcmpHeader);
        };
        let quote = match Quote::read(packet.data(), &headers) {
            Ok(quote) => quote,
            Err(why) => return own(self, context, packet, why),
        };
        let own_key = match quote.key {
            Either::V4(key) => Either::V4(key.in_zone(vrf)),
            Either::V6(key) => Either::V6(key.in_zone(vrf)),
        };
        let found = match own_key {
            Either::V4(key) => self.v4.lookup(key).and_then(|hit| {
                let flow = self.v4.flow_mut(&hit, key)?;
                Some((hit, Either::V4(flow.other.reversed()), flow.user.tcp))
            }),
            Either::V6(key) => self.v6.lookup(key).and_then(|hit| {
                let flow = self.v6.flow_mut(&hit, key)?;
                Some((hit, Either::V6(flow.other.reversed()), flow.user.tcp))
            }),
        };
        let Some((hit, to, tcp)) = found else {
            return own(self, context, packet, Reason::QuoteNoFlow);
        };
        let checked = quote.check(&tcp, hit.direction);
        checked.map_err(|why| self.reasons.of(why))?;
        context.note(index, "flows", || "an error about a flow".into());
        if to == own_key {
            return Ok(());
        }
        let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let frame = packet.data_mut();
        // RFC 5508 REQ-5 c: routers inside are not named outside.
        let hides = hit.direction == Direction::Forward;
        let write = |frame: &mut [u8], to: &To<'_>| {
            let half = to.addresses.len() / 2;
            let router = hides.then(|| &to.addresses[..half]);
            write_error(frame, &headers, &quote.headers, to, router, is_partial)
        };
        let written = match &to {
            Either::V4(key) => {
                let translation = Translation4::with(key, Differences::default());
                write(frame, &translation.to())
            }
            Either::V6(key) => {
                let translation = Translation6::with(key, Differences::default());
                write(frame, &translation.to())
            }
        };
        if !written {
            return Err(Verdict::Drop(self.reasons.nat_malformed));
        }
        let parsed = &mut context.packets.parsed;
        match to {
            Either::V4(key) => {
                parsed.dst4[index] = key.dst().to_bits();
                parsed.keys4[index].0[4..8].copy_from_slice(&key.dst().octets());
            }
            Either::V6(key) => {
                parsed.keys6[index].0[16..32].copy_from_slice(&key.dst().octets());
            }
        }
        Ok(())
    }
}

/// What becomes of a packet of a flow.
enum Judged<F> {
    /// It passes, and gets the addresses and ports of this key, if of any.
    Pass(Option<(F, Differences)>),
    /// The policies have changed since.
    Old(Held),
    /// It begins another flow.
    Anew,
    Drop(Reason),
}

/// Judges a packet of a flow.
#[inline(always)]
fn judge<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    tracker: &Tracker,
    hit: &Hit,
    (key, upper): (F, &Upper),
    now: u64,
    policies: u32,
) -> Judged<F> {
    let Some(flow) = table.flow_mut(hit, key) else {
        // It has ended since: a packet before in the same burst has begun another.
        return Judged::Anew;
    };
    if flow.user.permitted_by != policies {
        return Judged::Old(flow.user.held);
    }
    let next = tracker.next(&mut flow.user.tcp, hit.direction, hit.state, upper, now);
    let becomes = flow.translated.then(|| {
        let differences = match hit.direction {
            Direction::Forward => flow.user.differences,
            Direction::Reverse => flow.user.differences.reversed(),
        };
        (flow.other.reversed(), differences)
    });
    match next {
        Next::Pass(state) => {
            if state as u8 != hit.state {
                // A state without room leaves the flow in the one that it has.
                let _ = table.set_state(hit.flow, state as u8);
            }
            Judged::Pass(becomes)
        }
        Next::Unchanged => Judged::Pass(becomes),
        Next::Anew => Judged::Anew,
        // Only a proxied connection is answered, and without cookies none is.
        Next::Answer { .. } => Judged::Drop(Reason::TcpCookie),
        Next::Drop(reason) => Judged::Drop(reason),
    }
}

/// What a flow that has ended held of NAT, as [`Nat::release`] takes it.
type Gone = (Held, Tuple, Tuple, u16);

fn gone_of<F>(flow: &Flow<F, Tracked>) -> Gone
where
    for<'a> Tuple: From<&'a F>,
{
    let back = Tuple::from(&flow.reverse);
    let original = Tuple::from(&flow.key);
    (flow.user.held, original, back.reversed(), flow.user.zone)
}

/// Begins a flow; returns the one that had to go for it.
fn begin_in<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    now: u64,
    (forward, back): (F, F),
    bucket: u8,
    first: First<Tracked>,
) -> Result<Option<Flow<F, Tracked>>, Refused> {
    match table.insert_pair(now, forward, back, bucket, first)? {
        Inserted::New { evicted, .. } => Ok(evicted),
        // It was looked up before.
        Inserted::Found(_) => Err(Refused::Taken),
    }
}

macro_rules! known {
    ($name:ident, $table:ident, $keys:ident, $write:ident) => {
        impl Flows {
            /// A packet that has hit a flow.
            #[inline]
            fn $name(
                &mut self,
                now: u64,
                index: usize,
                hit: &Hit,
                packet: &mut Packet,
                context: &mut Context<'_>,
            ) -> Result<(), Verdict> {
                let parsed = &context.packets.parsed;
                let (key, end) = (parsed.$keys[index], parsed.end[index]);
                let is_v4 = parsed.class.v4 >> index & 1 != 0;
                let upper = match parsed.class.udp >> index & 1 {
                    1 => Upper::Udp,
                    _ => read(packet, is_v4, key.protocol(), end)
                        .map_err(|why| self.reasons.of(why))?,
                };
                let number = self.number;
                let (table, tracker) = (&mut self.$table, &self.tracker);
                let mut judged = judge(table, tracker, hit, (key, &upper), now, number);
                if let Judged::Old(held) = judged {
                    let Some(flow) = self.$table.get(hit.flow) else {
                        return self.begin(now, index, packet, context);
                    };
                    let (_, original, translated, _) = gone_of(&flow);
                    let tuples = (original, translated);
                    let decided = self.decide_again(index, hit, tuples, held, packet, context);
                    if let Err(verdict) = decided {
                        if let Some(flow) = self.$table.remove(hit.flow) {
                            let (held, original, translated, zone) = gone_of(&flow);
                            self.nat.release(held, &original, &translated, zone, now);
                        }
                        return Err(verdict);
                    }
                    if let Some(user) = self.$table.user_mut(hit.flow) {
                        user.permitted_by = number;
                    }
                    let (table, tracker) = (&mut self.$table, &self.tracker);
                    judged = judge(table, tracker, hit, (key, &upper), now, number);
                }
                match judged {
                    Judged::Pass(None) => Ok(()),
                    Judged::Pass(Some((to, differences))) => {
                        self.$write(index, to, differences, packet, context)
                    }
                    Judged::Drop(reason) => Err(self.reasons.of(reason)),
                    // The flow before is closed: it goes, whatever becomes of this one.
                    Judged::Anew | Judged::Old(_) => {
                        if let Some(flow) = self.$table.remove(hit.flow) {
                            let (held, original, translated, zone) = gone_of(&flow);
                            self.nat.release(held, &original, &translated, zone, now);
                        }
                        self.begin(now, index, packet, context)
                    }
                }
            }
        }
    };
}
known!(known4, v4, keys4, write4);
known!(known6, v6, keys6, write6);

impl Stage<Context<'_>> for Flows {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let marks = &context.packets.marks;
        let tracked = context.packets.live & !(marks.to_group | marks.link_local | marks.l2_group);
        let now = ticks(context.now_ns());
        let class = &context.packets.parsed.class;
        let special = match context.interface().vrf {
            0 => tracked & class.icmp,
            _ => tracked,
        };
        let errors = match special {
            0 => 0,
            special => self.ready_keys(special, burst, context),
        };
        self.has_begun = false;
        self.find(now, tracked & !errors, burst.mask(), context);
        let v4 = context.packets.parsed.class.v4;
        let mut live = context.packets.live;
        for index in ones(tracked) {
            let packet = &mut burst.as_packets_mut()[index];
            let is_v4 = v4 >> index & 1 != 0;
            let outcome = if errors >> index & 1 != 0 {
                self.related(index, packet, context)
            } else {
                let parsed = &context.packets.parsed;
                let found = match self.found[index] {
                    // A packet before in this burst may have begun the flow.
                    None if self.has_begun => {
                        let bytes = parsed.end[index].saturating_sub(HEADER_LEN as u32);
                        match is_v4 {
                            true => self.v4.touch(now, parsed.keys4[index], bytes),
                            false => self.v6.touch(now, parsed.keys6[index], bytes),
                        }
                    }
                    found => found,
                };
                match (found, is_v4) {
                    (None, _) => self.begin(now, index, packet, context),
                    (Some(hit), true) => self.known4(now, index, &hit, packet, context),
                    (Some(hit), false) => self.known6(now, index, &hit, packet, context),
                }
            };
            if let Err(verdict) = outcome {
                context.packets.judge(index, verdict);
                live &= !(1 << index);
            }
        }
        context.packets.keep(live);
    }

    /// Ends flows whose time is over.
    fn turn(&mut self, _: u64, context: &mut Context<'_>, _: &mut Egress) -> u64 {
        let now = ticks(context.now_ns());
        let (nat, mut ended) = (&mut self.nat, 0);
        let mut end = |(held, original, translated, zone): Gone| {
            ended += 1;
            if !held.is_nothing() {
                nat.release(held, &original, &translated, zone, now);
            }
        };
        self.v4.poll(now, EXPIRY_BUDGET, |flow| end(gone_of(flow)));
        self.v6.poll(now, EXPIRY_BUDGET, |flow| end(gone_of(flow)));
        self.counts.ended += ended;
        NEVER
    }
}

/// A time of the worker's clock in ticks of the tables: milliseconds.
fn ticks(now_ns: u64) -> u64 {
    now_ns / (1_000_000_000 / TICKS)
}

/// The bucket of a flow: that of who begins it.
fn first_bucket(hash: &Hash, tuple: &Tuple) -> u8 {
    match tuple.src.address {
        IpAddr::V4(v4) => hash.host4(v4.to_bits()),
        IpAddr::V6(v6) => hash.host6(&v6.octets()),
    }
}

/// Reads the upper layer of a packet that ends at byte `end` of its frame.
#[inline(always)]
fn read(packet: &Packet, is_v4: bool, number: u8, end: u32) -> Result<Upper, Reason> {
    let l4 = usize::from(packet.meta().l4_offset);
    let upper = packet.data().get(l4..end as usize).filter(|_| l4 != 0);
    Upper::read(!is_v4, number, upper.unwrap_or_default())
}

/// Translates what is neither TCP nor UDP.
#[cold]
fn any(frame: &mut [u8], to: &To<'_>, is_partial: bool) -> bool {
    let parsed: Option<Headers> = linerate_wire::parse(frame).ok();
    parsed.is_some_and(|headers| write_any(frame, &headers, to, is_partial))
}

/// Looks up the packets of `mask`, of a burst that has `all`.
#[inline(always)]
fn look_up<F: FlowKey<K> + Default, const K: usize>(
    table: &mut Table<F, K>,
    now: u64,
    (mask, all): (Mask, Mask),
    keys: &[F; Burst::CAPACITY],
    lengths: &[u32; Burst::CAPACITY],
    found: &mut [Option<Hit>; Burst::CAPACITY],
) {
    if mask == 0 {
        return;
    }
    if mask == all {
        let count = mask.count_ones() as usize;
        return table.touch_bulk(now, &keys[..count], &lengths[..count], &mut found[..count]);
    }
    let mut packed = [F::default(); Burst::CAPACITY];
    let mut short = [0; Burst::CAPACITY];
    let mut hits = [None; Burst::CAPACITY];
    let mut count = 0;
    for index in ones(mask) {
        (packed[count], short[count]) = (keys[index], lengths[index]);
        count += 1;
    }
    table.touch_bulk(now, &packed[..count], &short[..count], &mut hits[..count]);
    for (index, hit) in ones(mask).zip(hits) {
        found[index] = hit;
    }
}

/// The interface that packets to `to` leave by; `None` where they are not forwarded.
fn leaves(index: usize, to: IpAddr, packet: &Packet, context: &Context<'_>) -> Option<InterfaceId> {
    let hop = context.route(index, to, packet);
    let leaves = matches!(
        hop.action,
        Action::Forward | Action::Resolve | Action::Glean
    );
    hop.interface.get().filter(|_| leaves)
}
