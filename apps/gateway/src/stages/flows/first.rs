//! Packets that no flow has, and flows that newer policies look at: who may go where.

use std::hash::BuildHasher;
use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict as Decided;
use linerate_routing::plane::hops::Action;
use linerate_routing::plane::{Context, Verdict};
use linerate_tables::flow::{Direction, First, Flow, FlowId, FlowKey, Hit, Inserted, Refused};
use linerate_wire::FlowKey as Either;
use linerate_wire::ethernet::HEADER_LEN;

use super::balanced::DIRECT;
use super::limits::owner;
use super::turned::{TURNS, between};
use super::{Beside, Flows, Table, Tracked, gone_of, read};
use crate::balance::one_way;
use crate::nat::rewrite::{Differences, Translation4, Translation6};
use crate::nat::rules::At;
use crate::nat::sessions::Session;
use crate::nat::{self, Destination, Held, Translated, Tuple};
use crate::policy::{FirstPacket, hits};
use crate::services::ServiceBits;
use crate::track::{self, State, Upper, Way};

impl Flows {
    /// Whether the policies in force permit a flow, by the zones of the interfaces that its first
    /// packet comes in and leaves by, and which services its packets have.
    pub(super) fn permits(
        &mut self,
        index: usize,
        (first, beside): (&Tuple, Beside),
        (by, to): (InterfaceId, InterfaceId),
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<ServiceBits, Verdict> {
        let (reasons, policy) = (&self.reasons, &self.policy);
        let key = first.key().ok_or(Verdict::Drop(reasons.policy))?;
        // The key of a query has its type in the place of the destination's port.
        let icmp = (first.dst.port as u8, beside.code);
        let first = FirstPacket::of(key, Some(icmp), beside.dscp);
        let (from, to) = (policy.zone(by), policy.zone(to));
        let decision = policy.decide(from, to, &first);
        self.hits.hit(&decision);
        if decision.log {
            hits::log(
                &mut self.logged,
                &decision,
                by,
                &first.of_length(packet.len()),
            );
        }
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
            Decided::Permit => {
                let list = &policy.lists()[usize::from(decision.list)];
                let rule = list.rules.get(decision.rule as usize);
                let apply = rule.map_or(0, |rule| rule.apply);
                Ok(self.services.plan().bits(decision.list, apply))
            }
            _ if decision.lacks_zone() => Err(Verdict::Drop(reasons.no_zone)),
            Decided::Deny => Err(Verdict::Drop(reasons.policy)),
            Decided::Reject => Err(Verdict::Reject(reasons.policy, decision.answer)),
        }
    }

    /// Where an interface is, for NAT.
    pub(super) fn at(&self, interface: InterfaceId) -> At {
        At {
            zone: self.policy.zone(interface).number().into(),
            interface: interface.0,
        }
    }

    /// A packet that no flow has: begins one, or is refused.
    #[cold]
    pub(super) fn begin(
        &mut self,
        now: u64,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        self.firsts.see_one(packet.port(), packet);
        let began = self.firsts.starts();
        let outcome = self.begin_by(now, index, packet, context);
        self.firsts.ends(began, 1);
        outcome
    }

    /// The same, without being seen.
    fn begin_by(
        &mut self,
        now: u64,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let parsed = &context.packets.parsed;
        let (mut is_v4, mut end) = (parsed.class.v4 >> index & 1 != 0, parsed.end[index]);
        let (mut key, tuple) = match is_v4 {
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
        let (bucket, random) = match self.foreseen.of(index) {
            Some(known) => known,
            None => (self.classes.one(&key), self.random()),
        };
        let mut first = nat::First {
            tuple,
            from: self.at(id),
            bucket,
        };
        // Before its route is asked for: an outside address may have none, and of what nobody has
        // asked for nobody is told (RFC 5382 REQ-4).
        let chosen = self.choose(index, &tuple, context)?;
        let turns = match chosen {
            None => self.turns(&key, &first),
            Some(_) => None,
        };
        if turns.is_some() {
            first.bucket = self.classes.one_from(&key, id.0);
        }
        let (first, bucket) = (first, first.bucket);
        let destination = match (&chosen, turns) {
            (Some(chosen), _) => Destination::decided(chosen.tuple, chosen.pool()),
            // Who has that endpoint is known where it turns to.
            (None, Some(pool)) => Destination::decided(tuple, Some(pool)),
            (None, None) => {
                let destination = match self.have_turned {
                    true => self.nat.destination_from_outside(&first),
                    false => self.nat.destination(&first),
                };
                destination.map_err(|why| self.reasons.of_nat(why))?
            }
        };
        let mut aim = destination.tuple;
        let goes_to = chosen.map_or(aim.dst.address, |chosen| chosen.address);
        // Between the versions of IP flows are of IPv6.
        let is_between = aim.src.address.is_ipv4() != aim.dst.address.is_ipv4();
        match (is_between, is_v4) {
            (true, true) => {
                let inside = self.nat.seen_inside(&destination);
                aim = inside.ok_or(Verdict::Drop(self.reasons.nat_gone))?;
                self.become_six(index, &aim, packet, context)?;
                let parsed = &context.packets.parsed;
                (key, end, is_v4) = (Either::V6(parsed.keys6[index]), parsed.end[index], false);
            }
            (true, false) => aim = tuple,
            _ => {}
        }
        let to = match turns {
            Some(_) => id,
            None => match leaves(index, goes_to, packet, context) {
                Some(to) => to,
                None => return Ok(()),
            },
        };
        let is_hairpin = turns.is_some() || self.have_turned;
        let is_direct = chosen.is_some_and(|chosen| chosen.form.is_direct());
        let reasons = &self.reasons;
        let upper = read(packet, is_v4, aim.protocol, end).map_err(|why| reasons.of(why))?;
        let zone = self.policy.zone(id).number();
        // A cookie would have to be said in both flows.
        let is_full = !is_hairpin && self.is_full_of_half_open(zone);
        let first_state = match &key {
            // Its answers may go another way.
            _ if is_direct => one_way::first(&upper),
            Either::V4(key) => self.tracker.first(&key.0, &upper, is_full, now),
            Either::V6(key) => self.tracker.first(&key.0, &upper, is_full, now),
        };
        if let track::First::Drop(reason) = first_state {
            return Err(self.reasons.of(reason));
        }
        let beside = Beside::of(packet, is_v4, &upper);
        let services = match turns {
            Some(_) => ServiceBits::default(),
            None => self.permits(index, (&aim, beside), (id, to), packet, context)?,
        };
        let (tcp, state, onward) = match first_state {
            track::First::Begin(tcp, state) => (tcp, state, None),
            track::First::Proxy(tcp, made) => (tcp, State::Proxied, Some(made)),
            track::First::Answer(made) => {
                context.note(index, "flows", || "answered by a SYN cookie".into());
                self.counts.cookies += 1;
                return self.becomes(index, (Way::Back, made), packet, context);
            }
            track::First::Drop(reason) => return Err(self.reasons.of(reason)),
        };
        let to = self.at(to);
        let becomes = match is_direct {
            true => Translated {
                tuple,
                held: Held::NOTHING,
            },
            false => {
                let becomes = self.nat.source(&first, &destination, to, now, random);
                if self.moving.is_some() && becomes == Err(nat::Refused::Filtered) {
                    self.note_call(&first);
                }
                becomes.map_err(|why| self.reasons.of_nat(why))?
            }
        };
        let backend = chosen.map_or(0, |chosen| chosen.number);
        let bytes = end.saturating_sub(HEADER_LEN as u32);
        let user = Tracked {
            tcp,
            differences: Differences::default(),
            permitted_by: self.number
                | if is_direct { DIRECT } else { 0 }
                | if is_hairpin { TURNS } else { 0 },
            services,
            backend,
            held: match is_between {
                true => becomes.held.with_session(),
                false => becomes.held,
            },
            beside,
        };
        let first_of = |user| First {
            state: state as u8,
            owner: match self.have_turned {
                // The host is counted where its other flow is.
                true => owner(&key) ^ u64::from(tuple.src.port) << 48,
                false => owner(&key),
            },
            zone,
            user,
            bytes,
        };
        let vrf = context.interface().vrf as u16;
        let back_zone = match turns {
            Some(_) => between(&becomes.tuple.reversed(), vrf),
            None => vrf,
        };
        let back = match is_between {
            true => aim.reversed().key(),
            false => becomes.tuple.reversed().key(),
        };
        if is_between {
            let (inside, outside) = match tuple.src.address.is_ipv6() {
                true => (tuple, becomes.tuple),
                false => (aim.reversed(), tuple.reversed()),
            };
            let session = Session {
                inside,
                outside,
                bucket,
            };
            if !self.nat.sessions.insert(session) {
                let Translated { tuple: new, held } = becomes;
                self.nat.release(held, &tuple, &new, first.from.zone, now);
                return Err(self.reasons.of_nat(nat::Refused::Full));
            }
        }
        let mut differences = Differences::default();
        let begun = match (key, back) {
            (Either::V4(key), Some(Either::V4(back))) => {
                let back = back.in_zone(back_zone);
                differences = Translation4::new(&key, &back.reversed()).differences();
                let first = first_of(Tracked {
                    differences,
                    ..user
                });
                begin_in(&mut self.v4, now, (key, back), bucket, first)
                    .map(|(new, gone)| (new, gone.map(|gone| gone_of(&self.nat, &gone))))
            }
            (Either::V6(key), Some(Either::V6(back))) => {
                let back = back.in_zone(back_zone);
                differences = Translation6::new(&key, &back.reversed()).differences();
                let first = first_of(Tracked {
                    differences,
                    ..user
                });
                begin_in(&mut self.v6, now, (key, back), bucket, first)
                    .map(|(new, gone)| (new, gone.map(|gone| gone_of(&self.nat, &gone))))
            }
            // Both are of one version.
            _ => Err(Refused::Stale),
        };
        match begun {
            Ok((flow, evicted)) => {
                if let Some((held, original, translated, zone)) = evicted {
                    self.nat.release(held, &original, &translated, zone, now);
                }
                self.counts.begun += 1;
                self.began_at(backend);
                self.begun_here.add(&key);
                back.iter().for_each(|back| self.begun_here.add(back));
                if self.moving.is_some()
                    && let Some(back) = &back
                {
                    self.note_ties(bucket, &key, back);
                }
                // Packets to a backend that answers by itself are encapsulated, and no more.
                if !services.is_none() && !is_direct {
                    let (direction, state) = (Direction::Forward, state as u8);
                    let hit = Hit {
                        flow,
                        direction,
                        state,
                    };
                    self.services.wanted.add(index, (&hit, is_v4), services);
                }
                context.note(index, "flows", || match becomes.tuple == tuple {
                    true => "a new flow".into(),
                    false => {
                        let Tuple { src, dst, .. } = becomes.tuple;
                        format!("a new flow, which becomes {src} > {dst}")
                    }
                });
            }
            Err(why) => {
                let (original, new) = match is_between {
                    true => (aim, aim),
                    false => (tuple, becomes.tuple),
                };
                self.nat
                    .release(user.held, &original, &new, first.from.zone, now);
                return Err(Verdict::Drop(match why {
                    Refused::Collision => self.reasons.flow_collision,
                    Refused::Taken => self.reasons.flow_taken,
                    Refused::Owner => self.reasons.flow_host,
                    Refused::Zone => self.reasons.flow_zone,
                    _ => self.reasons.flow_table,
                }));
            }
        }
        if let Some(made) = onward {
            context.note(index, "flows", || "its SYN cookie has come back".into());
            self.counts.cookies_returned += 1;
            self.becomes(index, (Way::Onward, made), packet, context)?;
        }
        if turns.is_some() {
            self.passes_to(index, back_zone);
        }
        if is_direct {
            return self.encapsulate(index, backend, packet, context);
        }
        if is_between {
            return match self.may_leave(index, context) {
                true => self.leave(index, packet, context),
                false => Ok(()),
            };
        }
        if becomes.tuple == tuple {
            return Ok(());
        }
        match (key, back) {
            (Either::V4(_), Some(Either::V4(back))) => {
                self.write4(index, back.reversed(), differences, packet, context)
            }
            (Either::V6(_), Some(Either::V6(back))) => {
                self.write6(index, back.reversed(), differences, packet, context)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random.1 += 1;
        self.random.0.hash_one(self.random.1)
    }

    /// A packet of a flow that older policies have permitted: it is decided anew. The tuples are
    /// those of the flow's first packet, before and behind its translation. `None`: there is no
    /// route, so nobody knows between which zones the flow is, and nothing is decided yet.
    #[cold]
    pub(super) fn decide_again(
        &mut self,
        index: usize,
        hit: &Hit,
        (original, translated): (Tuple, Tuple),
        (held, beside, backend, by): (Held, Beside, u16, u32),
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<Option<ServiceBits>, Verdict> {
        let aim = original.with_dst(translated.dst);
        let here = context.packets.interface;
        let server = match backend {
            0 => aim.dst.address,
            backend => match self.target(backend) {
                Ok(target) => target.address,
                Err(verdict) => {
                    self.counts.forbidden += 1;
                    return Err(verdict);
                }
            },
        };
        let far = match hit.direction {
            Direction::Forward => server,
            Direction::Reverse => original.src.address,
        };
        let Some(there) = leaves(index, self.nat.plain(far), packet, context) else {
            return Ok(None);
        };
        let ends = match hit.direction {
            Direction::Forward => (here, there),
            Direction::Reverse => (there, here),
        };
        let decided = match self.nat.is_permitted(held, &original, &translated, by) {
            true => self.permits(index, (&aim, beside), ends, packet, context),
            false => Err(Verdict::Drop(self.reasons.nat_gone)),
        };
        self.counts.forbidden += u64::from(decided.is_err());
        decided.map(Some)
    }
}

/// Begins a flow; returns it, and the one that had to go for it.
fn begin_in<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    now: u64,
    (forward, back): (F, F),
    bucket: u8,
    first: First<Tracked>,
) -> Result<(FlowId, Option<Flow<F, Tracked>>), Refused> {
    // It was looked up before.
    match table.insert_absent(now, forward, back, bucket, first)? {
        Inserted::New { flow, evicted } => Ok((flow, evicted)),
        Inserted::Found(_) => Err(Refused::Taken),
    }
}

impl Beside {
    /// What a packet has of it.
    fn of(packet: &Packet, is_v4: bool, upper: &Upper) -> Self {
        let l4 = usize::from(packet.meta().l4_offset);
        let code = match upper {
            Upper::Query(_) => packet.data().get(l4 + 1).copied().unwrap_or(0),
            _ => 0,
        };
        Self {
            dscp: dscp(packet, is_v4),
            code,
        }
    }
}

/// The differentiated services code point of a packet (RFC 2474 3).
fn dscp(packet: &Packet, is_v4: bool) -> u8 {
    let octet = |at: usize| packet.data().get(HEADER_LEN + at).copied().unwrap_or(0);
    match is_v4 {
        true => octet(1) >> 2,
        false => (octet(0) & 0xf) << 2 | octet(1) >> 6,
    }
}

/// The interface that packets to `to` leave by; `None` where they are not forwarded.
pub(super) fn leaves(
    index: usize,
    to: IpAddr,
    packet: &Packet,
    context: &Context<'_>,
) -> Option<InterfaceId> {
    let hop = context.route(index, to, packet);
    let leaves = matches!(
        hop.action,
        Action::Forward | Action::Resolve | Action::Glean
    );
    hop.interface.get().filter(|_| leaves)
}
