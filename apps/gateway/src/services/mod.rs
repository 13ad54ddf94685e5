//! Services: what is done with chosen flows besides forwarding them.
//!
//! A flow's first packet gives each of its directions a bitmap of services, by the policy rule that
//! permits it (`apply = ["statistics", "police:guest"]`). Packets of the flow run those services
//! alone; a service takes itself off a direction when it is done with it. A flow without services
//! costs a comparison of four bytes that are loaded with its state anyway.
//!
//! ```text
//! rule's apply ──Plan::bits──► ServiceBits in the flow ──judge──► Wanted: a mask for each service
//!   ──Services::run──► each service over its packets of the burst ──► Outcomes: bits taken off,
//!   packets dropped, flows denied
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`stanza`] | `[services]` and what is wrong with it; which names there are to apply |
//! | [`plan`] | which bit is which service, which rule gives which bits |
//! | [`given`] | what a service sees: packets of a burst, one by one |
//! | [`capture`], [`police`], [`mss`], [`classify`], [`matcher`], [`statistics`] | the services |
//! | [`show`] | tables, metrics and lines of the log |
//! | [`host`], [`http`], [`tls`] | names of hosts in the first bytes of connections |
//!
//! A new service is a file with a [`Kind`], and its line in [`KINDS`]: its place there is when it
//! runs. Its configuration implements [`Make`], what runs [`Service`].

pub mod capture;
pub mod classify;
pub mod given;
pub mod host;
pub mod http;
pub mod matcher;
pub mod mss;
pub mod plan;
pub mod police;
mod report;
pub(crate) mod show;
pub mod stanza;
pub mod statistics;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests;
pub mod tls;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use linerate_appliance::config::Section;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress, Point};
use linerate_routing::plane::{Context, ones};
use linerate_tables::TableError;
use linerate_tables::flow::{Direction, Hit};
use linerate_tables::parse::Mask;

pub use given::{Given, One, Outcome};
pub use plan::{Plan, Spec};
pub use report::{Event, Log};

/// Every kind of service, in the order in which they see a packet.
pub const KINDS: [&Kind; 6] = [
    &capture::KIND,
    &police::KIND,
    &mss::KIND,
    &classify::KIND,
    &matcher::KIND,
    &statistics::KIND,
];

/// The most services of a configuration: a bit each.
pub const MOST: usize = 15;
/// The bit of flows that a service has denied: their packets are dropped.
const DENIED: usize = 15;

/// A kind of service.
pub struct Kind {
    /// Its name, and that of its stanza in `[services]`.
    pub name: &'static str,
    /// Whether there may be several, each with a name of its own: `police:guest`.
    pub is_named: bool,
    /// Which directions of a flow it looks at: that of its first packet, and the other.
    pub directions: [bool; 2],
    /// Whether it reads what headers carry: packets that it may see are copied to the NUMA node of
    /// the worker that they are handed to ([`crate::dispatch::across`]).
    pub reads_payload: bool,
    /// Reads its stanza; `None`: the file has none.
    pub read: fn(Option<&Section<'_>>) -> Arc<dyn Settings>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What the file says of a service.
pub trait Make: fmt::Debug + PartialEq + Any + Send + Sync {
    /// The service of one worker.
    ///
    /// # Errors
    /// There is no memory for it.
    fn make(&self) -> Result<Box<dyn Service>, TableError>;

    /// What it does, in a few words.
    fn text(&self) -> String;

    /// What number `what` of an [`Event`] stands for.
    fn event(&self, what: u32) -> String {
        what.to_string()
    }
}

/// A [`Make`] whose type is not known.
pub trait Settings: fmt::Debug + Send + Sync {
    /// As [`Make::make`].
    ///
    /// # Errors
    /// As there.
    fn make(&self) -> Result<Box<dyn Service>, TableError>;
    /// As [`Make::text`].
    fn text(&self) -> String;
    /// As [`Make::event`].
    fn event(&self, what: u32) -> String;
    /// Whether both say the same.
    fn is(&self, other: &dyn Settings) -> bool;
    /// For [`is`](Self::is).
    fn any(&self) -> &dyn Any;
}

impl<T: Make> Settings for T {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        Make::make(self)
    }

    fn text(&self) -> String {
        Make::text(self)
    }

    fn event(&self, what: u32) -> String {
        Make::event(self, what)
    }

    fn is(&self, other: &dyn Settings) -> bool {
        other.any().downcast_ref::<T>() == Some(self)
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

/// A service of one worker. It neither takes nor frees memory once it is made.
pub trait Service: Any + Send {
    /// Sees its packets of one burst. A flow that was done with, or denied, earlier in the same
    /// burst may still have packets in it.
    fn run(&mut self, given: &mut Given<'_, '_>);

    /// Takes over what is worth keeping of the service of that name before a reload that changes
    /// what the file says of it.
    fn inherit(&mut self, old: &mut dyn Any) {
        let _ = old;
    }
}

/// Services of a flow's two directions: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceBits([u16; 2]);

impl ServiceBits {
    /// None.
    pub const NONE: Self = Self([0; 2]);

    /// Whether there is none in either direction.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Those of a direction.
    #[inline(always)]
    pub fn of(self, direction: Direction) -> u16 {
        self.0[direction as usize]
    }

    /// Without these services in a direction.
    #[must_use]
    pub fn without(mut self, direction: Direction, bits: u16) -> Self {
        self.0[direction as usize] &= !bits;
        self
    }

    /// What is left of a flow that was denied: its packets are dropped, and no service sees them.
    pub const DENY: Self = Self([1 << DENIED; 2]);

    /// Whether it was denied.
    pub fn is_denied(self) -> bool {
        self == Self::DENY
    }

    /// With a service in some directions.
    #[must_use]
    fn with(mut self, bit: usize, directions: [bool; 2]) -> Self {
        for (bits, is_on) in self.0.iter_mut().zip(directions) {
            *bits |= u16::from(is_on) << bit;
        }
        self
    }
}

/// Which packets of a burst want which services.
pub struct Wanted {
    any: u16,
    /// By bit.
    masks: [Mask; 16],
    /// Where their flows are, and which of these are of IPv4.
    hits: Box<[Option<Hit>; Burst::CAPACITY]>,
    v4: Mask,
}

impl Wanted {
    fn new() -> Self {
        Self {
            any: 0,
            masks: [0; 16],
            hits: Box::new([None; Burst::CAPACITY]),
            v4: 0,
        }
    }

    /// Whether any packet wants any.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.any != 0
    }

    /// The packet at `index` is of this flow, which has these services; `is_v4`: it is one of IPv4,
    /// as its packets need not be (NAT64).
    #[inline(never)]
    pub fn add(&mut self, index: usize, (hit, is_v4): (&Hit, bool), services: ServiceBits) {
        let bits = services.of(hit.direction);
        self.any |= bits;
        for bit in ones(bits.into()) {
            self.masks[bit] |= 1 << index;
        }
        self.hits[index] = Some(*hit);
        self.v4 = self.v4 & !(1 << index) | Mask::from(is_v4) << index;
    }

    /// The flow of a packet that was added.
    pub fn hit(&self, index: usize) -> Option<Hit> {
        self.hits[index]
    }

    /// Whether that is a flow of IPv4.
    pub fn is_v4(&self, index: usize) -> bool {
        self.v4 >> index & 1 != 0
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.any = 0;
        self.masks = [0; 16];
    }
}

/// What a service has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that it saw.
    pub packets: u64,
    /// Of these: packets that it dropped.
    pub dropped: u64,
    /// Directions of flows that it took itself off.
    pub done: u64,
    /// Flows that it denied.
    pub denied: u64,
}

/// A service at work.
struct Running {
    service: Box<dyn Service>,
    counts: Counts,
}

/// Services of one worker, made for it by control.
#[derive(Default)]
pub struct Made(Vec<Running>);

impl Made {
    /// Those of a plan.
    ///
    /// # Errors
    /// There is no memory for one of them.
    pub fn new(plan: &Plan) -> Result<Self, TableError> {
        let make = |spec: &Spec| {
            Ok(Running {
                service: spec.settings.make()?,
                counts: Counts::default(),
            })
        };
        plan.specs
            .iter()
            .map(make)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// What services said of a burst.
#[derive(Debug)]
pub struct Outcomes {
    /// By packet: services that are done with its direction of its flow.
    pub done: [u16; Burst::CAPACITY],
    /// Packets whose `done` is not zero.
    pub any_done: Mask,
    /// Packets whose flows are denied; they are dropped.
    pub denied: Mask,
    /// Other packets that are dropped: a policer's.
    pub dropped: Mask,
}

/// Services of one worker.
pub struct Services {
    plan: Arc<Plan>,
    /// By bit.
    running: Made,
    /// Which packets of this burst want which.
    pub wanted: Wanted,
    /// Where captures see the packets of flows that are captured.
    captured: Point,
    log: Log,
    /// Why packets are dropped: their flow is denied, or sends too much.
    reasons: [DropId; 2],
    /// Packets of flows that are denied.
    denied_packets: u64,
}

impl Services {
    /// Those of a plan.
    ///
    /// # Errors
    /// There is no memory for one of them.
    pub fn new(plan: Arc<Plan>, egress: &mut Egress) -> Result<Self, TableError> {
        Ok(Self {
            running: Made::new(&plan)?,
            plan,
            wanted: Wanted::new(),
            captured: Point::new("captured"),
            log: Log::default(),
            reasons: ["service_denied", "service_policed"].map(|name| egress.reason(name)),
            denied_packets: 0,
        })
    }

    /// What runs.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What each has done, in the order of the plan.
    pub fn counts(&self) -> impl Iterator<Item = Counts> {
        self.running.0.iter().map(|one| one.counts)
    }

    /// Packets that were dropped as their flow was denied.
    pub fn denied_packets(&self) -> u64 {
        self.denied_packets
    }

    /// The service of a kind that has no names.
    pub fn find<S: Service>(&mut self) -> Option<&mut S> {
        let mut all = self.running.0.iter_mut();
        all.find_map(|one| (&mut *one.service as &mut dyn Any).downcast_mut())
    }

    /// What was logged since this was asked last.
    pub fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.log)
    }

    /// The log, for those who know the flows in it.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Why packets are dropped: of denied flows, and by policers.
    pub fn reasons(&self) -> [DropId; 2] {
        self.reasons
    }

    /// Where captures see packets.
    pub fn point(&mut self) -> &mut Point {
        &mut self.captured
    }

    /// Takes another plan over, with its services; both become those that were here. A service
    /// that is as before goes on as it is.
    pub fn exchange(&mut self, plan: &mut Arc<Plan>, made: &mut Made) {
        if Arc::ptr_eq(&self.plan, plan) {
            return;
        }
        std::mem::swap(&mut self.plan, plan);
        std::mem::swap(&mut self.running, made);
        // What is logged has the numbers of services before.
        self.log.forget();
        for (new, spec) in self.running.0.iter_mut().zip(&self.plan.specs) {
            let known = made.0.iter_mut().zip(&plan.specs);
            let mut known = known.filter(|(_, old)| old.name == spec.name);
            let Some((old, before)) = known.next() else {
                continue;
            };
            new.counts = old.counts;
            match spec.settings.is(&*before.settings) {
                true => std::mem::swap(&mut new.service, &mut old.service),
                false => new.service.inherit(&mut *old.service),
            }
        }
    }

    /// Runs each service over the packets that want it, of those that are `live`.
    pub fn run(
        &mut self,
        packets: &mut [Packet],
        live: Mask,
        port: u16,
        context: &mut Context<'_>,
    ) -> Outcomes {
        let mut outcomes = Outcomes {
            done: [0; Burst::CAPACITY],
            any_done: 0,
            denied: self.wanted.masks[DENIED] & live,
            dropped: 0,
        };
        self.denied_packets += u64::from(outcomes.denied.count_ones());
        for (bit, running) in self.running.0.iter_mut().enumerate() {
            let live = live & !(outcomes.denied | outcomes.dropped);
            let mask = self.wanted.masks[bit] & live;
            if mask == 0 {
                continue;
            }
            let mut given = Given::new(
                (&mut *packets, mask, port),
                context,
                (&self.wanted, bit),
                (&mut self.captured, &mut self.log),
            );
            running.service.run(&mut given);
            let said = given.said;
            let counts = &mut running.counts;
            counts.packets += u64::from(mask.count_ones());
            counts.dropped += u64::from((said.dropped | said.denied).count_ones());
            counts.done += u64::from(said.done.count_ones());
            counts.denied += u64::from(said.denied.count_ones());
            ones(said.done).for_each(|index| outcomes.done[index] |= 1 << bit);
            outcomes.any_done |= said.done;
            outcomes.denied |= said.denied;
            outcomes.dropped |= said.dropped;
        }
        outcomes
    }
}
