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
//!
//! `usual.rs` passes what most packets are, `known.rs` others of flows, `balanced.rs` those to
//! backends that answer by themselves; `first.rs` begins flows, `ahead.rs` has the memory for that
//! fetched; `translate.rs` writes headers, `proxy.rs` what the gateway says itself in a connection
//! that begins with a SYN cookie; `serve.rs` has services look at packets of flows that have some;
//! `family.rs` writes headers of the other version of IP; `clear.rs` ends flows when it is told to;
//! `turned.rs` is for packets between hosts inside by their outside endpoints;
//! `limits.rs` says how many there may be; `buckets.rs` has flows leave for another worker and
//! arrive from one; `shared.rs` is what control makes for all that, `asked.rs` what it asks,
//! `notes.rs` what traces say.

mod ahead;
mod asked;
mod balanced;
mod begun;
pub mod buckets;
mod clear;
mod family;
mod first;
mod known;
mod limits;
mod notes;
mod proxy;
mod serve;
mod shared;
mod translate;
pub(crate) mod turned;
mod usual;

use std::hash::RandomState;
use std::sync::Arc;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress, NEVER, Point, Stage};
use linerate_routing::plane::hits::Hits as Logged;
use linerate_routing::plane::{Change, Context, Verdict, ones};
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{Flow, FlowConfig, FlowKey, FlowTable, Hit};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::FlowKey as Either;
use linerate_wire::flow::{FlowKey4, FlowKey6};

use crate::balance::Tables;
use crate::dispatch::Classes;
use crate::dispatch::across::Readers;
use crate::nat::bits::Bits;
use crate::nat::ports::Ports;
use crate::nat::rewrite::Differences;
use crate::nat::{self, Held, Nat, Tuple};
use crate::policy::{self, Policy};
use crate::services::{ServiceBits, Services};
use crate::track::{Pickup, Reason, Tcp, Tracker, Upper};

use ahead::Foreseen;
use balanced::DIRECT;
use begun::Begun;

use turned::TURNS;

pub use limits::Limits;
pub use shared::{Hits, Part, Prepared, Shared};

/// Flows that one turn ends at most, of each family: see [`Flows::turn`].
const EXPIRY_BUDGET: usize = 256;
/// Flows whose end NAT is told of at once.
const BATCH: usize = 32;
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
    /// What is done with its packets: by the plan of that configuration.
    services: ServiceBits,
    /// The number of its backend; 0 where it is of no balancer.
    backend: u16,
    held: Held,
    beside: Beside,
}

/// What rules ask of a flow's first packet that its key does not have: by it newer policies decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Beside {
    /// The differentiated services code point.
    dscp: u8,
    /// The code of an ICMP query, which its answer need not have.
    code: u8,
}

const _: () = assert!(size_of::<Tracked>() <= 60);

impl Tracked {
    /// The services of its packets.
    pub fn services(&self) -> ServiceBits {
        self.services
    }

    /// The number of the configuration that has permitted it.
    fn number(&self) -> u32 {
        self.permitted_by & !(DIRECT | TURNS)
    }

    /// Whether it is a connection that has begun with a SYN cookie.
    pub fn began_with_cookie(&self) -> bool {
        self.tcp.is_shifted()
    }
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
    /// The host that begins it has as many as it may have.
    flow_host: DropId,
    /// The zone that it comes from has as many as it may have.
    flow_zone: DropId,
    /// Another flow has the key that its answers would have.
    flow_taken: DropId,
    /// The index has no room for this key.
    flow_collision: DropId,
    /// What is to be translated does not lie within the packet.
    nat_malformed: DropId,
    /// The pool that it was translated by is gone.
    nat_gone: DropId,
    /// No backend of the service is up.
    no_backend: DropId,
    /// Its backend is no longer one of the service.
    backend_gone: DropId,
    /// It is to be encapsulated, and was left to be segmented later.
    backend_segments: DropId,
    /// NAT64 has no counterpart: of a fragment, an ICMP message, a packet with a route ahead.
    nat64: [DropId; 3],
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
    /// SYNs that were answered by a cookie.
    pub cookies: u64,
    /// Of these: whose cookie has come back.
    pub cookies_returned: u64,
    /// Flows that ended because a user said so.
    pub cleared: u64,
    /// Flows that came with their bucket and found no room.
    pub lost_in_moves: u64,
}

/// The stage.
pub struct Flows {
    v4: Table<FlowKey4, 16>,
    v6: Table<FlowKey6, 40>,
    tracker: Tracker,
    nat: Nat,
    policy: Arc<Policy>,
    /// What flows choose backends by.
    balance: Arc<Tables>,
    /// Flows that have begun, by the number of their backend.
    begun: Vec<u64>,
    /// That of policy, rules and services.
    number: u32,
    /// What its rules have decided here.
    hits: policy::Counts,
    /// Packets that rules log, until control asks.
    logged: Logged,
    reasons: Reasons,
    counts: Counts,
    classes: Arc<Classes>,
    /// Whether this worker hands packets to others.
    hands_over: bool,
    /// Whether packets of this burst have turned.
    have_turned: bool,
    /// Which of them turn now.
    turning: Mask,
    /// Where buckets may come and go.
    moving: Option<Box<buckets::Moving>>,
    limits: Arc<Limits>,
    /// What is done with packets of flows that have some.
    services: Services,
    /// Whether the packet at hand has come as IPv4 and become IPv6.
    has_arrived: bool,
    /// Makes random numbers.
    random: (RandomState, u64),
    /// What each packet of the burst has found.
    found: Box<[Option<Hit>; Burst::CAPACITY]>,
    /// Looking flows up, and packets that no flow has: parts of the stage that are named.
    lookups: Point,
    firsts: Point,
    /// What is known of packets of this burst that may begin flows.
    foreseen: Foreseen,
    /// What this burst has begun.
    begun_here: Begun,
    /// Flows that have ended, until NAT has what they held.
    gone: Vec<Gone>,
}

impl Flows {
    /// A stage with room for its flows, of the worker of that number.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(
        shared: Shared,
        worker: usize,
        now_ns: u64,
        egress: &mut Egress,
    ) -> Result<Self, TableError> {
        let of = |config: &FlowConfig| FlowConfig {
            seed: Seed::random(),
            ..config.clone()
        };
        let balance = shared.balance.board().tables();
        let [v4, v6] = shared.limits.tables.each_ref().map(of);
        let random = RandomState::new();
        let limits = shared.rules.config.limits;
        let seed = Seed::random();
        let nat = Nat::new(shared.rules, &limits, Bits::ALL, worker as u16, seed)?;
        let mut reason = |name| egress.reason(name);
        let reasons = Reasons {
            no_zone: reason("no_zone"),
            policy: reason("policy"),
            flow_table: reason("flow_table"),
            flow_host: reason("flow_host"),
            flow_zone: reason("flow_zone"),
            flow_taken: reason("flow_taken"),
            flow_collision: reason("flow_collision"),
            nat_malformed: reason("nat_malformed"),
            nat_gone: reason("nat_gone"),
            no_backend: reason("no_backend"),
            backend_gone: reason("backend_gone"),
            backend_segments: reason("backend_segments"),
            nat64: ["nat64_fragment", "nat64_icmp", "nat64_routed"].map(&mut reason),
            track: Reason::ALL.map(|one| reason(one.name())),
            nat: nat::Refused::ALL.map(|one| reason(one.name())),
        };
        Ok(Self {
            v4: Table::new(&v4, ticks(now_ns))?,
            v6: Table::new(&v6, ticks(now_ns))?,
            tracker: Tracker::new(Pickup::Strict, Some(shared.cookies)),
            nat,
            hits: shared.hits.worker(&shared.policy, worker),
            logged: Logged::default(),
            policy: shared.policy,
            begun: vec![0; balance.numbers()],
            balance,
            number: shared.number,
            reasons,
            counts: Counts::default(),
            classes: shared.classes,
            hands_over: false,
            have_turned: false,
            turning: 0,
            moving: None,
            limits: shared.limits,
            services: Services::new(shared.plan, egress)?,
            has_arrived: false,
            random: (random, 1),
            found: Box::new([None; Burst::CAPACITY]),
            lookups: Point::new("flow_lookup"),
            firsts: Point::new("first_packets"),
            foreseen: Foreseen::new(),
            begun_here: Begun::default(),
            gone: Vec::with_capacity(BATCH),
        })
    }

    /// Takes another configuration over, and leaves the one that it had.
    pub fn install(&mut self, change: &mut Change) {
        let own = change.own.as_mut();
        if let Some(part) = own.and_then(|own| own.downcast_mut::<Part>()) {
            self.exchange(part);
        }
    }

    /// From the beginning these buckets alone are this worker's, and other packets are handed over.
    pub fn own(&mut self, mine: Bits) {
        self.hands_over = true;
        self.nat.ports = Ports::new(self.nat.rules().outsides(), mine);
    }

    /// What is done with packets of flows that have some.
    pub fn services(&mut self) -> &mut Services {
        &mut self.services
    }

    /// Which bucket a packet is of.
    pub fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Of which packets services may read the payload.
    pub fn readers(&self) -> Readers {
        Readers {
            policy: self.policy.clone(),
            plan: self.services.plan().clone(),
        }
    }

    /// When the next timer of a flow is due, in ns of the worker's clock.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        let both = [self.v4.next_expiry(), self.v6.next_expiry()];
        let first = both.into_iter().flatten().min();
        first.map(|tick| tick.saturating_mul(1_000_000_000 / TICKS))
    }

    /// Readies the keys of those that are not looked up as they are: ICMP queries, by their
    /// identifiers, and all of a VRF besides the first, or that have turned. Returns ICMP errors,
    /// which have no flow of their own.
    #[cold]
    fn ready_keys(&self, mask: Mask, burst: &Burst, context: &mut Context<'_>) -> Mask {
        let vrf = context.interface().vrf as u16;
        let parsed = &mut context.packets.parsed;
        let mut errors = 0;
        for index in ones(mask) {
            let is_v4 = parsed.class.v4 >> index & 1 != 0;
            match is_v4 {
                true => {
                    let zone = self.zone_of(&Tuple::from(&parsed.keys4[index]), vrf);
                    parsed.keys4[index].set_zone(zone);
                }
                false => {
                    let zone = self.zone_of(&Tuple::from(&parsed.keys6[index]), vrf);
                    parsed.keys6[index].set_zone(zone);
                }
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
    fn find(&mut self, mask: Mask, all: Mask, context: &Context<'_>) {
        let parsed = &context.packets.parsed;
        let (v4, v6) = (mask & parsed.class.v4, mask & parsed.class.v6);
        look_up(&self.v4, (v4, all), &parsed.keys4, &mut self.found);
        look_up(&self.v6, (v6, all), &parsed.keys6, &mut self.found);
    }
}

impl Flows {
    /// The flow of a packet that had none when its burst was looked up.
    fn look_again(&self, index: usize, is_v4: bool, parsed: &Parsed) -> Option<Hit> {
        match is_v4 {
            true => {
                let key = parsed.keys4[index];
                let may = self.begun_here.may_have(&Either::V4(key));
                may.then(|| self.v4.lookup(key)).flatten()
            }
            false => {
                let key = parsed.keys6[index];
                let may = self.begun_here.may_have(&Either::V6(key));
                may.then(|| self.v6.lookup(key)).flatten()
            }
        }
    }
}

/// What a flow that has ended held of NAT, as [`Nat::release`] takes it.
type Gone = nat::Released;

fn gone_of<F>(nat: &Nat, flow: &Flow<F, Tracked>) -> Gone
where
    for<'a> Tuple: From<&'a F>,
{
    nat.still_held(held_of(flow), flow.user.number())
}

/// What it held once: an address may have gone since.
fn held_of<F>(flow: &Flow<F, Tracked>) -> Gone
where
    for<'a> Tuple: From<&'a F>,
{
    let (original, translated) = tuples_of(flow);
    (flow.user.held, original, translated, flow.zone.into())
}

/// The tuples of a flow's first packet, before and behind its translation.
fn tuples_of<F>(flow: &Flow<F, Tracked>) -> (Tuple, Tuple)
where
    for<'a> Tuple: From<&'a F>,
{
    let back = Tuple::from(&flow.reverse);
    (Tuple::from(&flow.key), back.reversed())
}

impl Stage<Context<'_>> for Flows {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let marks = &context.packets.marks;
        let tracked = context.packets.live & !(marks.to_group | marks.link_local | marks.l2_group);
        let now = ticks(context.now_ns());
        let class = &context.packets.parsed.class;
        let special = match (context.interface().vrf, self.have_turned) {
            (0, false) => tracked & class.icmp,
            _ => tracked,
        };
        self.turning = 0;
        let errors = match special {
            0 => 0,
            special => self.ready_keys(special, burst, context),
        };
        self.begun_here.clear();
        self.foreseen.clear();
        let mut is_first = true;
        self.lookups.see_burst(burst.port, burst);
        let began = self.lookups.starts();
        self.find(tracked & !errors, burst.mask(), context);
        self.lookups.ends(began, burst.len() as u64);
        match context.traced() & tracked & !errors {
            0 => {}
            traced => self.note_known(traced, context),
        }
        let class = &context.packets.parsed.class;
        let (v4, mut usual) = (class.v4, tracked & !errors & (class.udp | class.tcp));
        if !self.nat.sessions.is_empty() {
            // Some of them leave as IPv4.
            usual &= v4;
        }
        let (mut live, mut left) = (context.packets.live, tracked);
        loop {
            left = self.pass_usual((left, usual), now, burst, context.packets);
            if left == 0 {
                break;
            }
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let packet = &mut burst.as_packets_mut()[index];
            let may_move = usual >> index & 1 != 0;
            if may_move && self.pass_moving(index, now, packet, context.packets) {
                continue;
            }
            let is_v4 = v4 >> index & 1 != 0;
            let outcome = if errors >> index & 1 != 0 {
                self.related(index, packet, context)
            } else {
                let parsed = &context.packets.parsed;
                let found = match self.found[index] {
                    // A packet before in this burst may have begun the flow.
                    None => self.look_again(index, is_v4, parsed),
                    found => found,
                };
                match (found, is_v4) {
                    (None, true) if !self.nat.sessions.is_empty() => {
                        self.arrive(now, index, packet, (context, out))
                    }
                    (None, _) => {
                        if std::mem::take(&mut is_first) {
                            self.look_ahead((left | 1 << index) & !errors, context);
                        }
                        self.begin(now, index, packet, context)
                    }
                    (Some(hit), true) => self.known4(now, index, &hit, packet, (context, out)),
                    (Some(hit), false) => {
                        let known = self.known6(now, index, &hit, packet, (context, out));
                        match known.is_ok() && self.may_leave(index, context) {
                            true => self.leave(index, packet, context),
                            false => known,
                        }
                    }
                }
            };
            if let Err(verdict) = outcome {
                context.packets.judge(index, verdict);
                live &= !(1 << index);
            }
        }
        if self.services.wanted.is_any() {
            self.serve(burst, &mut live, context);
        }
        self.turning &= live;
        context.packets.keep(live);
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(&mut self.lookups);
        visit(&mut self.firsts);
        visit(self.services.point());
    }

    /// Ends flows whose time is over.
    fn turn(&mut self, _: u64, context: &mut Context<'_>, _: &mut Egress) -> u64 {
        let now = ticks(context.now_ns());
        let (nat, gone, mut ended) = (&mut self.nat, &mut self.gone, 0);
        let mut end = |flow: Gone, by| {
            ended += 1;
            if flow.0.is_nothing() {
                return;
            }
            gone.push(nat.still_held(flow, by));
            if gone.len() == BATCH {
                nat.release_all(gone, now);
                gone.clear();
            }
        };
        self.v4.poll(now, EXPIRY_BUDGET, |flow| {
            end(held_of(flow), flow.user.number());
        });
        self.v6.poll(now, EXPIRY_BUDGET, |flow| {
            end(held_of(flow), flow.user.number());
        });
        nat.release_all(gone, now);
        gone.clear();
        self.counts.ended += ended;
        if !self.nat.calls.is_empty() {
            self.nat.expire(now);
        }
        NEVER
    }
}

/// A time of the worker's clock in ticks of the tables: milliseconds.
fn ticks(now_ns: u64) -> u64 {
    now_ns / (1_000_000_000 / TICKS)
}

/// Reads the upper layer of a packet that ends at byte `end` of its frame.
#[inline(always)]
pub(crate) fn read(packet: &Packet, is_v4: bool, number: u8, end: u32) -> Result<Upper, Reason> {
    let l4 = usize::from(packet.meta().l4_offset);
    let upper = packet.data().get(l4..end as usize).filter(|_| l4 != 0);
    Upper::read(!is_v4, number, upper.unwrap_or_default())
}

/// Looks up the packets of `mask`, of a burst that has `all`.
#[inline(always)]
fn look_up<F: FlowKey<K> + Default, const K: usize>(
    table: &Table<F, K>,
    (mask, all): (Mask, Mask),
    keys: &[F; Burst::CAPACITY],
    found: &mut [Option<Hit>; Burst::CAPACITY],
) {
    if mask == 0 {
        return;
    }
    if mask == all {
        let count = mask.count_ones() as usize;
        return table.lookup_bulk(&keys[..count], &mut found[..count]);
    }
    let mut packed = [F::default(); Burst::CAPACITY];
    let mut hits = [None; Burst::CAPACITY];
    let mut count = 0;
    for index in ones(mask) {
        packed[count] = keys[index];
        count += 1;
    }
    table.lookup_bulk(&packed[..count], &mut hits[..count]);
    for (index, hit) in ones(mask).zip(hits) {
        found[index] = hit;
    }
}
