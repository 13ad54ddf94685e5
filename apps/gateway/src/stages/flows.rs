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
//! `usual.rs` passes what most packets are; `balanced.rs` those to backends that answer by
//! themselves; `first.rs` begins flows, `translate.rs` writes headers,
//! `proxy.rs` what the gateway says itself in a connection that begins with a SYN cookie;
//! `serve.rs` has services look at packets of flows that have some; `family.rs` writes headers of
//! the other version of IP; `clear.rs` ends flows when it is told to;
//! `limits.rs` says how many there may be; `buckets.rs` has flows leave for another worker and
//! arrive from one; `shared.rs` is what control makes for all that, `asked.rs` what it asks,
//! `notes.rs` what traces say.

mod asked;
mod balanced;
pub mod buckets;
mod clear;
mod family;
mod first;
mod limits;
mod notes;
mod proxy;
mod serve;
mod shared;
mod translate;
mod usual;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linerate_appliance::error::Error;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::{DropId, Egress, NEVER, Point, Stage};
use linerate_routing::plane::hits::Hits as Logged;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{Change, Context, Verdict, ones};
use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{Direction, Flow, FlowConfig, FlowKey, FlowTable, Hit};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::flow::{FlowKey4, FlowKey6};

use crate::balance::{Balance, Tables};
use crate::config::Stanzas;
use crate::dispatch::across::Readers;
use crate::dispatch::control::Moves;
use crate::dispatch::{Classes, Hash, Marked};
use crate::nat::bits::Bits;
use crate::nat::ports::Ports;
use crate::nat::rewrite::Differences;
use crate::nat::rules::Rules;
use crate::nat::writer::Writer;
use crate::nat::{self, Held, Nat, Tuple};
use crate::policy::{self, Policy};
use crate::services::{Plan, ServiceBits, Services, Wanted};
use crate::track::{Cookies, Made, Pickup, Reason, Tcp, Tracker, Upper, Verdict as Next};

use balanced::{DIRECT, Directed, direct};

pub use limits::Limits;
pub use shared::{Hits, Part, Prepared};

/// Flows that one turn ends at most, of each family: see [`Flows::turn`].
const EXPIRY_BUDGET: usize = 256;
/// The segment size that is offered with a SYN cookie: it fits the usual Ethernet in both families.
const COOKIE_MSS: u16 = 1440;
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

/// What all workers have of a configuration.
#[derive(Clone)]
pub struct Shared {
    /// Zones, and what may begin between them.
    pub policy: Arc<Policy>,
    /// What is translated.
    pub rules: Arc<Rules>,
    /// Virtual services.
    pub balance: Arc<Balance>,
    /// Gives SYN cookies: any worker knows those of another.
    cookies: Cookies,
    /// What the policy's rules have decided, by worker.
    pub hits: Hits,
    /// Which bucket a packet is of, by what is translated.
    pub classes: Arc<Classes>,
    /// What control knows of buckets that have moved.
    pub(crate) moves: Arc<Moves>,
    /// How many flows there may be, and how long they live.
    limits: Arc<Limits>,
    /// Writes what translation records.
    pub log: Option<Arc<Writer>>,
    /// Services, and who is given them.
    pub plan: Arc<Plan>,
    /// The services of workers, made ahead.
    made: shared::MadeAhead,
    /// The number of policy and rules, which no others in this process have.
    number: u32,
}

/// The next number of a configuration in this process.
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Shared {
    /// What the stanzas ask for, between the interfaces of `settings`; what is as in `old` is that.
    ///
    /// # Errors
    /// A list of rules cannot be compiled, or there is no memory for what dispatch goes by.
    pub fn new(stanzas: &Stanzas, settings: &Settings, old: Option<&Self>) -> Result<Self, Error> {
        let prepared = Prepared::new(stanzas, old)?;
        Ok(Self::of(stanzas, settings, old, &prepared)?)
    }

    /// The same of what was prepared of the stanzas, with the same `old`: short.
    ///
    /// # Errors
    /// There is no memory for what dispatch goes by.
    pub fn of(
        stanzas: &Stanzas,
        settings: &Settings,
        old: Option<&Self>,
        prepared: &Prepared,
    ) -> Result<Self, TableError> {
        let interfaces = || settings.interfaces.iter().map(|one| one.name.as_str());
        let names: Vec<&str> = interfaces().collect();
        let before = old.map(|old| &old.policy);
        let policy = Policy::of(&stanzas.policy, &names, before, &prepared.lists);
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
            None => Arc::new(prepared.rules.numbered(config)),
        };
        let hits = match old {
            Some(old) if Arc::ptr_eq(&old.policy, &policy) => old.hits.clone(),
            Some(old) => Hits::of(&policy, &old.hits),
            None => Hits::default(),
        };
        let balance = Balance::new(&stanzas.balance, old.map(|old| &old.balance));
        let is_alike = |old: &&Self| {
            Arc::ptr_eq(&old.rules, &rules) && old.balance.config() == balance.config()
        };
        let classes = match old.filter(is_alike) {
            Some(same) => same.classes.clone(),
            None => {
                let hash = old.map_or_else(any_hash, |old| old.classes.hash());
                let mut marked = Marked::of_nat(&rules.config);
                balance.config().mark(&mut marked);
                Arc::new(Classes::new(hash, &marked)?)
            }
        };
        let (plan, made) = shared::plan(&stanzas.services, &policy, old)?;
        let is_same = |old: &&Self| {
            let is_policy = Arc::ptr_eq(&old.policy, &policy) && Arc::ptr_eq(&old.plan, &plan);
            is_policy && is_alike(old)
        };
        let number = match old.filter(is_same) {
            Some(same) => same.number,
            None => NUMBER.fetch_add(1, Ordering::Relaxed) & !DIRECT,
        };
        let limits = Limits::new(stanzas, policy.zones());
        let limits = match old.filter(|old| old.limits.is(&limits)) {
            Some(same) => same.limits.clone(),
            None => Arc::new(limits),
        };
        let cookies = old.map(|old| old.cookies.clone());
        let moves = old.map(|old| old.moves.clone()).unwrap_or_default();
        let known = old.and_then(|old| old.log.clone());
        let log = rules.config.log.to.clone().map(|to| match known {
            Some(same) if *same.to() == to => same,
            _ => Arc::new(Writer::new(to, |line| eprintln!("{line}"))),
        });
        Ok(Self {
            log,
            policy,
            rules,
            balance,
            hits,
            classes,
            moves,
            limits,
            plan,
            made,
            cookies: cookies.unwrap_or_else(|| {
                let random = RandomState::new();
                let secret = [0, 1].map(|half| u128::from(random.hash_one(half)));
                Cookies::new(secret[0] << 64 | secret[1], COOKIE_MSS)
            }),
            number,
        })
    }

    /// Whether all is as in `other`.
    pub fn is(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.limits, &other.limits)
    }
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
    /// Where buckets may come and go.
    moving: Option<Box<buckets::Moving>>,
    limits: Arc<Limits>,
    /// What is done with packets of flows that have some.
    services: Services,
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
            moving: None,
            limits: shared.limits,
            services: Services::new(shared.plan, egress)?,
            random: (random, 1),
            found: Box::new([None; Burst::CAPACITY]),
            has_begun: false,
        })
    }

    /// Takes another configuration over, and leaves the one that it had.
    pub fn install(&mut self, change: &mut Change) {
        let own = change.own.as_mut();
        if let Some(part) = own.and_then(|own| own.downcast_mut::<Part>()) {
            self.exchange(part);
        }
    }

    /// From the beginning these buckets alone are this worker's.
    pub fn own(&mut self, mine: Bits) {
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
    fn find(&mut self, mask: Mask, all: Mask, context: &Context<'_>) {
        let parsed = &context.packets.parsed;
        let (v4, v6) = (mask & parsed.class.v4, mask & parsed.class.v6);
        look_up(&self.v4, (v4, all), &parsed.keys4, &mut self.found);
        look_up(&self.v6, (v6, all), &parsed.keys6, &mut self.found);
    }
}

/// What becomes of a packet of a flow.
enum Judged<F> {
    /// It passes, and gets the addresses and ports of this key, if of any.
    Pass(Option<(F, Differences)>),
    /// The same, and its sequence numbers change.
    Shift(Option<(F, Differences)>),
    /// It ends here, and this is said to its source, and to its destination.
    Answer(Option<(F, Differences)>, [Option<Made>; 2]),
    /// Policy or translation have changed since.
    Old(Held, Beside),
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
    (key, upper, bytes): (F, &Upper, u32),
    (now, number): (u64, u32),
    (index, wanted): (usize, &mut Wanted),
) -> Judged<F> {
    let Some(mut flow) = table.flow_mut(hit, key) else {
        // It has ended since: a packet before in the same burst has begun another.
        return Judged::Anew;
    };
    if flow.user.permitted_by != number {
        return Judged::Old(flow.user.held, flow.user.beside);
    }
    let next = tracker.next(&mut flow.user.tcp, hit.direction, hit.state, upper, now);
    let is_shifted = matches!(upper, Upper::Tcp(_)) && flow.user.tcp.is_shifted();
    let becomes = flow.translated.then(|| {
        let differences = match hit.direction {
            Direction::Forward => flow.user.differences,
            Direction::Reverse => flow.user.differences.reversed(),
        };
        (flow.other.reversed(), differences)
    });
    match next {
        Next::Pass(state) => {
            flow.count(bytes);
            flow.refresh(now);
            if !flow.user.services.is_none() {
                wanted.add(index, hit, flow.user.services);
            }
            if state as u8 != hit.state {
                // A state without room leaves the flow in the one that it has.
                let _ = table.set_state(hit.flow, state as u8);
            }
            passes(becomes, is_shifted)
        }
        Next::Unchanged => {
            flow.count(bytes);
            if !flow.user.services.is_none() {
                wanted.add(index, hit, flow.user.services);
            }
            passes(becomes, is_shifted)
        }
        Next::Anew => Judged::Anew,
        Next::Answer {
            state,
            back,
            onward,
        } => {
            flow.count(bytes);
            flow.refresh(now);
            let _ = table.set_state(hit.flow, state as u8);
            Judged::Answer(becomes, [back, onward])
        }
        Next::Drop(reason) => Judged::Drop(reason),
    }
}

#[inline(always)]
fn passes<F>(becomes: Option<(F, Differences)>, is_shifted: bool) -> Judged<F> {
    match is_shifted {
        true => Judged::Shift(becomes),
        false => Judged::Pass(becomes),
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
    (flow.user.held, original, back.reversed(), flow.zone.into())
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
                (context, out): (&mut Context<'_>, &mut Egress),
            ) -> Result<(), Verdict> {
                let parsed = &context.packets.parsed;
                let (key, end) = (parsed.$keys[index], parsed.end[index]);
                let is_v4 = parsed.class.v4 >> index & 1 != 0;
                let upper = match parsed.class.udp >> index & 1 {
                    1 => Upper::Udp,
                    _ => read(packet, is_v4, key.protocol(), end)
                        .map_err(|why| self.reasons.of(why))?,
                };
                let (number, bytes) = (self.number, end.saturating_sub(HEADER_LEN as u32));
                let (table, tracker) = (&mut self.$table, &self.tracker);
                let (packet_of, when) = ((key, &upper, bytes), (now, number));
                let wanted = (index, &mut self.services.wanted);
                let mut judged = judge(table, tracker, hit, packet_of, when, wanted);
                if let Judged::Old(held, beside) = judged {
                    let Some(flow) = self.$table.get(hit.flow) else {
                        return self.begin(now, index, packet, context);
                    };
                    let backend = flow.user.backend;
                    let number = number | flow.user.permitted_by & DIRECT;
                    if flow.user.permitted_by != number {
                        let (_, original, translated, _) = gone_of(&flow);
                        let tuples = (original, translated);
                        let kept = (held, beside, backend);
                        let decided = self.decide_again(index, hit, tuples, kept, packet, context);
                        let services = match decided {
                            Ok(services) => services,
                            Err(verdict) => {
                                if let Some(flow) = self.$table.remove(hit.flow) {
                                    let (held, original, translated, zone) = gone_of(&flow);
                                    self.nat.release(held, &original, &translated, zone, now);
                                }
                                return Err(verdict);
                            }
                        };
                        if let Some(user) = self.$table.user_mut(hit.flow) {
                            user.permitted_by = number;
                            user.services = services;
                        }
                    }
                    if number & DIRECT != 0 {
                        return match direct(&mut self.$table, hit, (key, &upper, bytes), now) {
                            Directed::There => self.encapsulate(index, backend, packet, context),
                            Directed::Back => Ok(()),
                            Directed::Anew => {
                                self.$table.remove(hit.flow);
                                self.begin(now, index, packet, context)
                            }
                        };
                    }
                    let (table, tracker) = (&mut self.$table, &self.tracker);
                    let wanted = (index, &mut self.services.wanted);
                    judged = judge(table, tracker, hit, packet_of, when, wanted);
                }
                match judged {
                    Judged::Pass(None) => Ok(()),
                    Judged::Pass(Some((to, differences))) => {
                        self.$write(index, to, differences, packet, context)
                    }
                    Judged::Drop(reason) => Err(self.reasons.of(reason)),
                    Judged::Shift(becomes) => {
                        let tcp = self.$table.user(hit.flow).map(|user| user.tcp);
                        match becomes {
                            Some((to, differences)) => {
                                self.$write(index, to, differences, packet, context)?;
                            }
                            None => context.packets.translate(index, packet.data()),
                        }
                        shift(tcp, hit.direction, end, packet);
                        Ok(())
                    }
                    Judged::Answer(becomes, said) => {
                        let is_onward = said[1].is_some();
                        self.answer(index, said, packet, (context, out))?;
                        match becomes.filter(|_| is_onward) {
                            None => Ok(()),
                            Some((to, differences)) => {
                                self.$write(index, to, differences, packet, context)
                            }
                        }
                    }
                    // The flow before is closed: it goes, whatever becomes of this one.
                    Judged::Anew | Judged::Old(..) => {
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
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
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
        self.find(tracked & !errors, burst.mask(), context);
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
            let is_v4 = v4 >> index & 1 != 0;
            let outcome = if errors >> index & 1 != 0 {
                self.related(index, packet, context)
            } else {
                let parsed = &context.packets.parsed;
                let found = match self.found[index] {
                    // A packet before in this burst may have begun the flow.
                    None if self.has_begun => match is_v4 {
                        true => self.v4.lookup(parsed.keys4[index]),
                        false => self.v6.lookup(parsed.keys6[index]),
                    },
                    found => found,
                };
                match (found, is_v4) {
                    (None, true) if !self.nat.sessions.is_empty() => {
                        self.arrive(now, index, packet, (context, out))
                    }
                    (None, _) => self.begin(now, index, packet, context),
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
        context.packets.keep(live);
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(self.services.point());
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
        if !self.nat.calls.is_empty() {
            self.nat.expire(now);
        }
        NEVER
    }
}

/// A hash that nobody outside knows.
fn any_hash() -> Hash {
    Hash::new(RandomState::new().hash_one(0_u64))
}

/// A time of the worker's clock in ticks of the tables: milliseconds.
fn ticks(now_ns: u64) -> u64 {
    now_ns / (1_000_000_000 / TICKS)
}

/// Changes the numbers of a segment of a connection that has begun with a SYN cookie.
#[cold]
fn shift(tcp: Option<Tcp>, direction: Direction, end: u32, packet: &mut Packet) {
    let l4 = usize::from(packet.meta().l4_offset);
    let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
    if let (Some(tcp), Some(segment)) = (tcp, packet.data_mut().get_mut(l4..end as usize)) {
        tcp.shift(direction, segment, is_partial);
    }
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
