//! Flows: which packets belong to a flow, and which may begin one.
//!
//! A burst is looked up at once. Packets of known flows are judged by what their flow permits next;
//! the others are treated one by one: a route lookup says where the packet would leave, the zones
//! of the two interfaces which policy decides, and what it permits begins a flow. Packets for the
//! gateway itself, and those that have no route, belong to no flow and go on as in a router.
//!
//! All of it is this worker's alone: no lock, and nothing that another thread writes. Flows end in
//! the stage's turn, a bounded number at a time.

use std::sync::Arc;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress, NEVER, Stage};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict as Decided;
use linerate_routing::plane::hops::Action;
use linerate_routing::plane::{Change, Context, Verdict, ones};
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{
    Direction, First, FlowConfig, FlowId, FlowKey, FlowTable, Hit, Inserted, Refused, states,
};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::tcp::flag::{ACK, FIN, RST, SYN};
use linerate_wire::{FlowKey as Either, protocol};

use crate::config::FlowsConfig;
use crate::policy::{Decider, Policies};

/// Flows that one turn ends at most, of each family: see [`Flows::turn`].
const EXPIRY_BUDGET: usize = 256;
/// Ticks of the tables a second.
const TICKS: u64 = 1000;

/// What is kept with a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// The [number](Policies::number) of the policies that have permitted it.
    policies: u32,
}

/// Flows of one family.
pub type Table<F, const K: usize> = FlowTable<F, Tracked, K>;

/// Why packets are dropped here.
struct Reasons {
    /// One of the two interfaces is in no zone.
    no_zone: DropId,
    /// The policy of the zones does not permit the flow.
    policy: DropId,
    /// TCP in the midst of a connection that is not known.
    tcp_no_flow: DropId,
    /// An answer without a question, or an error about a packet that no flow has sent.
    icmp_no_flow: DropId,
    /// There is no room for another flow.
    flow_table: DropId,
    /// The index has no room for this key.
    flow_collision: DropId,
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

/// The stage.
pub struct Flows {
    v4: Table<FlowKey4, 16>,
    v6: Table<FlowKey6, 40>,
    policies: Arc<Policies>,
    reasons: Reasons,
    counts: Counts,
    /// What each packet of the burst has found.
    found: Box<[Option<Hit>; Burst::CAPACITY]>,
}

impl Flows {
    /// A stage with room for its flows.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(
        config: &FlowsConfig,
        policies: Arc<Policies>,
        now_ns: u64,
        egress: &mut Egress,
    ) -> Result<Self, TableError> {
        let of =
            |name, flows: u32| FlowConfig::stateful(name, flows as usize, TICKS, Seed::random());
        let mut reason = |name| egress.reason(name);
        Ok(Self {
            v4: Table::new(&of("flows of IPv4", config.ipv4), ticks(now_ns))?,
            v6: Table::new(&of("flows of IPv6", config.ipv6), ticks(now_ns))?,
            policies,
            reasons: Reasons {
                no_zone: reason("no_zone"),
                policy: reason("policy"),
                tcp_no_flow: reason("tcp_no_flow"),
                icmp_no_flow: reason("icmp_no_flow"),
                flow_table: reason("flow_table"),
                flow_collision: reason("flow_collision"),
            },
            counts: Counts::default(),
            found: Box::new([None; Burst::CAPACITY]),
        })
    }

    /// Takes other policies over, and leaves those that it had.
    pub fn install(&mut self, change: &mut Change) {
        let own = change.own.take().and_then(|own| own.downcast().ok());
        let new = own.and_then(|own: Box<linerate_control::Own>| own.downcast::<Policies>().ok());
        if let Some(policies) = new {
            let old = std::mem::replace(&mut self.policies, policies);
            change.own = Some(Box::new(old));
        }
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

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Readies the keys of those that are not looked up as they are: ICMP queries by their
    /// identifier, and all of a VRF besides the first. Returns ICMP errors, which have no flow of
    /// their own.
    #[cold]
    fn ready_keys(&self, mask: Mask, burst: &Burst, context: &mut Context<'_>) -> Mask {
        let vrf = context.interface().vrf as u16;
        let parsed = &mut context.packets.parsed;
        let mut errors = 0;
        for index in ones(mask) {
            let is_v4 = parsed.class.v4 >> index & 1 != 0;
            if is_v4 {
                parsed.keys4[index].set_zone(vrf);
            } else {
                parsed.keys6[index].set_zone(vrf);
            }
            if parsed.class.icmp >> index & 1 == 0 {
                continue;
            }
            match icmp(&burst.as_packets()[index], is_v4) {
                Icmp::Error => errors |= 1 << index,
                // RFC 5508 3.1: the identifier is what a port is elsewhere.
                Icmp::Query(ident) | Icmp::Answer(ident) => {
                    let [high, low] = ident.to_be_bytes();
                    let both = [high, low, high, low];
                    match is_v4 {
                        true => parsed.keys4[index].0[8..12].copy_from_slice(&both),
                        false => parsed.keys6[index].0[32..36].copy_from_slice(&both),
                    }
                }
                Icmp::Other => {}
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
        look_up(
            &mut self.v4,
            now,
            (v4, all),
            &parsed.keys4,
            &lengths,
            &mut self.found,
        );
        look_up(
            &mut self.v6,
            now,
            (v6, all),
            &parsed.keys6,
            &lengths,
            &mut self.found,
        );
    }

    /// A packet of a known flow.
    #[inline]
    fn follow<F: FlowKey<K>, const K: usize>(table: &mut Table<F, K>, hit: Hit, flags: Option<u8>) {
        let Some(flags) = flags else { return };
        let next = tcp_state(hit.state, hit.direction, flags);
        if next != hit.state {
            // A state without room leaves the flow in the one that it has.
            let _ = table.set_state(hit.flow, next);
        }
    }

    /// Whether the policies in force permit the flow of a packet, by the zones of the interfaces
    /// that it comes in and leaves by. `is_back`: the packet is an answer in that flow.
    fn permits(
        &self,
        index: usize,
        (from, to): (InterfaceId, InterfaceId),
        is_back: bool,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let reasons = &self.reasons;
        let (from, to) = if is_back { (to, from) } else { (from, to) };
        let policies = &self.policies;
        let decided = match policies.decider(from, to) {
            None => {
                context.note(index, "flows", || "an interface in no zone".into());
                return Err(Verdict::Drop(reasons.no_zone));
            }
            Some(Decider::Fixed(verdict)) => (verdict, Default::default()),
            Some(Decider::List(number)) => {
                let decision = context.ask_list("flows", number, index, is_back, packet);
                let decision = decision.ok_or(Verdict::Drop(reasons.policy))?;
                (decision.verdict, decision.answer)
            }
        };
        context.note(index, "flows", || {
            let name = |id| policies.zone(id).map_or("?", |zone| policies.name(zone));
            format!("{} to {}: {}", name(from), name(to), decided.0.name())
        });
        match decided {
            (Decided::Permit, _) => Ok(()),
            (Decided::Deny, _) => Err(Verdict::Drop(reasons.policy)),
            (Decided::Reject, answer) => Err(Verdict::Reject(reasons.policy, answer)),
        }
    }

    /// A packet that no flow has: begins one, or is refused.
    #[cold]
    fn begin(
        &mut self,
        now: u64,
        index: usize,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let Some(ends) = ends(index, packet, context) else {
            return Ok(());
        };
        let parsed = &context.packets.parsed;
        let is_v4 = parsed.class.v4 >> index & 1 != 0;
        let bytes = parsed.end[index].saturating_sub(HEADER_LEN as u32);
        let flags = tcp_flags(index, packet, context);
        let state = match flags {
            // RFC 9293 3.10.7.1: only a SYN begins a connection.
            Some(flags) if flags & (SYN | ACK | RST | FIN) != SYN => {
                return Err(Verdict::Drop(self.reasons.tcp_no_flow));
            }
            Some(_) => states::TCP_NEW,
            None if parsed.class.udp >> index & 1 != 0 => states::UDP,
            None if parsed.class.icmp >> index & 1 != 0 => match icmp(packet, is_v4) {
                Icmp::Answer(_) => return Err(Verdict::Drop(self.reasons.icmp_no_flow)),
                _ => states::ICMP,
            },
            None => states::OTHER,
        };
        self.permits(index, ends, false, packet, context)?;
        let user = Tracked {
            policies: self.policies.number(),
        };
        let first = First {
            state,
            owner: 0,
            user,
            bytes,
        };
        let parsed = &context.packets.parsed;
        let begun = match is_v4 {
            true => insert(&mut self.v4, now, parsed.keys4[index], first),
            false => insert(&mut self.v6, now, parsed.keys6[index], first),
        };
        match begun {
            Ok(is_new) => {
                self.counts.begun += u64::from(is_new);
                context.note(index, "flows", || "a new flow".into());
                Ok(())
            }
            Err(Refused::Collision) => Err(Verdict::Drop(self.reasons.flow_collision)),
            Err(_) => Err(Verdict::Drop(self.reasons.flow_table)),
        }
    }

    /// A packet of a flow that older policies have permitted: it is decided anew.
    #[cold]
    fn decide_again(
        &mut self,
        index: usize,
        hit: Hit,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        let Some(ends) = ends(index, packet, context) else {
            return Ok(());
        };
        let is_back = hit.direction == Direction::Reverse;
        let decided = self.permits(index, ends, is_back, packet, context);
        let number = self.policies.number();
        let is_v4 = context.packets.parsed.class.v4 >> index & 1 != 0;
        match (&decided, is_v4) {
            (Ok(()), true) => note(&mut self.v4, hit.flow, number),
            (Ok(()), false) => note(&mut self.v6, hit.flow, number),
            (Err(_), true) => drop(self.v4.remove(hit.flow)),
            (Err(_), false) => drop(self.v6.remove(hit.flow)),
        }
        self.counts.forbidden += u64::from(decided.is_err());
        decided
    }

    /// An ICMP error that is to be forwarded: it belongs to the flow that has sent the packet that
    /// it quotes, or nowhere.
    #[cold]
    fn related(
        &self,
        index: usize,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        if ends(index, packet, context).is_none() {
            return Ok(());
        }
        let vrf = context.interface().vrf as u16;
        let hit = match quoted(packet.data(), vrf) {
            Some(Either::V4(key)) => self.v4.lookup(key),
            Some(Either::V6(key)) => self.v6.lookup(key),
            None => None,
        };
        match hit {
            Some(_) => {
                context.note(index, "flows", || "an error about a flow".into());
                Ok(())
            }
            None => Err(Verdict::Drop(self.reasons.icmp_no_flow)),
        }
    }
}

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
        let looked_up = tracked & !errors;
        self.find(now, looked_up, burst.mask(), context);
        let (number, v4) = (self.policies.number(), context.packets.parsed.class.v4);
        let tcp = context.packets.parsed.class.tcp;
        let mut live = context.packets.live;
        for index in ones(tracked) {
            let packet = &burst.as_packets()[index];
            let is_v4 = v4 >> index & 1 != 0;
            let outcome = if errors >> index & 1 != 0 {
                self.related(index, packet, context)
            } else if let Some(hit) = self.found[index] {
                let flags = match tcp >> index & 1 {
                    1 => tcp_flags(index, packet, context),
                    _ => None,
                };
                let permitted = match is_v4 {
                    true => {
                        Self::follow(&mut self.v4, hit, flags);
                        self.v4.user(hit.flow).map(|user| user.policies)
                    }
                    false => {
                        Self::follow(&mut self.v6, hit, flags);
                        self.v6.user(hit.flow).map(|user| user.policies)
                    }
                };
                match permitted == Some(number) {
                    true => Ok(()),
                    false => self.decide_again(index, hit, packet, context),
                }
            } else {
                self.begin(now, index, packet, context)
            };
            if let Err(verdict) = outcome {
                context.packets.judge(index, verdict);
                live &= !(1 << index);
            }
        }
        context.packets.keep(live);
    }

    /// Ends flows whose time is over.
    fn turn(&mut self, now: u64, context: &mut Context<'_>, _: &mut Egress) -> u64 {
        let _ = now;
        let now = ticks(context.now_ns());
        let mut ended = 0;
        self.v4.poll(now, EXPIRY_BUDGET, |_| ended += 1);
        self.v6.poll(now, EXPIRY_BUDGET, |_| ended += 1);
        self.counts.ended += ended;
        NEVER
    }
}

/// A time of the worker's clock in ticks of the tables.
fn ticks(now_ns: u64) -> u64 {
    now_ns / (1_000_000_000 / TICKS)
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

/// Begins a flow; false where there is one already, from a packet before in the same burst.
fn insert<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    now: u64,
    key: F,
    first: First<Tracked>,
) -> Result<bool, Refused> {
    let inserted = table.insert(now, key, first)?;
    Ok(matches!(inserted, Inserted::New { .. }))
}

/// Notes which policies have permitted a flow.
fn note<F: FlowKey<K>, const K: usize>(table: &mut Table<F, K>, flow: FlowId, number: u32) {
    if let Some(user) = table.user_mut(flow) {
        user.policies = number;
    }
}

/// The interfaces that a packet comes in and leaves by; `None` where it is not forwarded.
fn ends(
    index: usize,
    packet: &Packet,
    context: &Context<'_>,
) -> Option<(InterfaceId, InterfaceId)> {
    let hop = context.route(index, packet);
    let leaves = matches!(
        hop.action,
        Action::Forward | Action::Resolve | Action::Glean
    );
    let to = hop.interface.get().filter(|_| leaves)?;
    Some((context.packets.interface, to))
}

/// The flags of a TCP segment.
fn tcp_flags(index: usize, packet: &Packet, context: &Context<'_>) -> Option<u8> {
    let is_tcp = context.packets.parsed.class.tcp >> index & 1 != 0;
    let at = usize::from(packet.meta().l4_offset) + 13;
    packet.data().get(at).copied().filter(|_| is_tcp)
}

/// The state of a connection behind a segment.
fn tcp_state(state: u8, direction: Direction, flags: u8) -> u8 {
    let is_forward = direction == Direction::Forward;
    match state {
        _ if flags & (RST | FIN) != 0 => states::TCP_CLOSING,
        // The same ports again, for another connection.
        states::TCP_CLOSING if is_forward && flags & (SYN | ACK) == SYN => states::TCP_NEW,
        states::TCP_NEW if is_forward && flags & (SYN | ACK) == ACK => states::TCP_ESTABLISHED,
        state => state,
    }
}

/// What an ICMP message is to a flow.
enum Icmp {
    /// About a packet of a flow.
    Error,
    /// A question, which may begin a flow.
    Query(u16),
    /// Its answer.
    Answer(u16),
    /// Neither: policy alone decides.
    Other,
}

/// What kind of ICMP message a packet is.
fn icmp(packet: &Packet, is_v4: bool) -> Icmp {
    let at = usize::from(packet.meta().l4_offset);
    let Some(&[kind, _, _, _, high, low, ..]) = packet.data().get(at..).filter(|_| at != 0) else {
        return Icmp::Other;
    };
    let ident = u16::from_be_bytes([high, low]);
    match (kind, is_v4) {
        // RFC 792: unreachable, source quench, redirect, time exceeded, parameter problem.
        (3 | 4 | 5 | 11 | 12, true) => Icmp::Error,
        // RFC 4443 2.1: the first half of the types are errors.
        (0..=127, false) => Icmp::Error,
        // Echo, timestamp, information, address mask (RFC 950).
        (8 | 13 | 15 | 17, true) | (128, false) => Icmp::Query(ident),
        (0 | 14 | 16 | 18, true) | (129, false) => Icmp::Answer(ident),
        _ => Icmp::Other,
    }
}

/// The key of the flow that an ICMP error is about, as its answers have it.
fn quoted(frame: &[u8], vrf: u16) -> Option<Either> {
    let headers = linerate_wire::parse(frame).ok()?;
    let inner = headers.quoted(frame).ok()??;
    let key = inner.flow_key(frame)?.reversed();
    let ident = || {
        let at = inner.l4?;
        let bytes = frame.get(at + 4..at + 6)?;
        Some([bytes[0], bytes[1], bytes[0], bytes[1]])
    };
    Some(match key {
        Either::V4(mut key) => {
            if key.protocol() == protocol::ICMP {
                key.0[8..12].copy_from_slice(&ident()?);
            }
            Either::V4(key.in_zone(vrf))
        }
        Either::V6(mut key) => {
            if key.protocol() == protocol::ICMPV6 {
                key.0[32..36].copy_from_slice(&ident()?);
            }
            Either::V6(key.in_zone(vrf))
        }
    })
}
