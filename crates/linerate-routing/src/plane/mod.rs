//! The data plane: the path of packets through workers.
//!
//! [`Fast`] is the stage of the workers that poll the user's ports: it forwards, and *punts* other
//! packets through a ring to the one [`Slow`] stage, which resolves neighbours, feeds the
//! interfaces' host interfaces in the kernel, and answers for the router where it has no host
//! interface. Neither knows where routes come from: both read [`Tables`] and
//! [`settings::Settings`], which control publishes and exchanges between two bursts.
//!
//! ```text
//! port ─► receive ─► vlan ─► parse ─► validate ─► [reassembly ─► policer ─► acl_in ─► reverse_path]
//!                                                                                         │
//!    ┌────────────────────────────────────────────────────────────────────────────────────┘
//!    └─► lookup ─► [acl_out] ─► rewrite ──────────────────────► transmit ─► port
//!                                  └─ not plain ─► exceptions ─────┘
//!                                                   ├─► punt ─► ring ─► Slow ─► port, or host interface
//!                                                   ├─► icmp_error
//!                                                   └─► drop
//! ```
//!
//! `path.rs` is that list, a [`PacketPath`]; each stage is in the file of its name, and
//! `context.rs` is the state of a burst that they share. Read these first. `docs/rfc/forwarding.md`
//! lists the clauses and their tests.
//!
//! - The TTL is decremented in `rewrite.rs`, `forward4` and `forward6`, for packets in loops over a
//!   burst and for those that `exceptions.rs` forwards one by one.
//! - A new drop reason is a field and a line in `reasons.rs`, and a row of the table in
//!   `docs/router.md` (a test asks for it). A stage gives it to a packet by `Packets::judge`, and
//!   takes the packet out of the burst's mask by `keep`; `exceptions.rs` drops and counts. A packet
//!   that is in hand goes to `drop_one`. The slow worker's reasons are in `slow.rs`.
//! - Another appliance's path lists [`stages`] and its own: see [`PacketPath`]. The source of a
//!   packet is read more than once: whether it is the router's own, which member of a group the
//!   flow takes, who gets an ICMP error.
//!
//! A burst has one input interface once it is split by VLAN, so one VRF, one access list and one
//! policer.

pub mod acl;
mod acl_in;
mod acl_out;
mod address;
mod change;
mod close_up;
mod context;
pub mod counters;
mod exceptions;
mod fragment;
mod headers;
pub mod hits;
pub mod hops;
mod icmp_error;
mod interface;
pub mod lists;
mod local;
mod lookup;
mod multipath;
mod options;
mod origin;
mod original;
mod packet_path;
mod parse;
mod path;
mod policer;
pub mod punt;
mod reasons;
mod reassembly;
mod receive;
mod reverse_path;
mod rewrite;
pub mod settings;
mod slow;
pub mod trace;
mod transmit;
mod validate;
mod vlan;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(test)]
mod model_tests;
#[cfg(any(test, feature = "fuzz"))]
#[cfg_attr(not(test), allow(dead_code, unused_imports))] // what tests use besides
pub mod testing;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Pool};
use linerate_core::publish::Reader;
use linerate_core::run::{Egress, NEVER, Point, Stage};
use linerate_tables::lpm::{Fib4, Fib6};
use linerate_tables::parse::Mask;

use counters::Counters;
use exceptions::Exceptions;
use hits::Hits;
use hops::HopTable;
use interface::Installed;
use options::Day;
use reasons::Reasons;
use settings::Settings;
use transmit::Output;

pub use change::Change;
pub use context::{Context, Marks, Packets, Tags, Verdict, ones};
pub use interface::{Asked, InterfaceState};
pub use packet_path::PacketPath;
pub use path::RouterPath;
pub use slow::{Event, Slow, Tell};

/// The stages of a path, each with its own state.
pub mod stages {
    pub use super::acl_in::AclIn;
    pub use super::acl_out::AclOut;
    pub use super::exceptions::HandleExceptions;
    pub use super::lookup::Lookup;
    pub use super::parse::Parse;
    pub use super::policer::Policer;
    pub use super::reassembly::Reassembly;
    pub use super::receive::Receive;
    pub use super::reverse_path::ReversePath;
    pub use super::rewrite::Rewrite;
    pub use super::transmit::Transmit;
    pub use super::validate::Validate;
    pub use super::vlan::Vlan;
}

/// The tables of a worker: each worker has its own readers.
///
/// Read in this order, routes before hops: hops are published before the routes that lead to them,
/// so that no route leads to a hop that is not there yet.
#[derive(Clone)]
pub struct Tables {
    /// IPv4 routes.
    pub fib4: Reader<Fib4>,
    /// IPv6 routes.
    pub fib6: Reader<Fib6>,
    /// Hops and groups, by the numbers that routes have.
    pub hops: Reader<HopTable>,
}

/// Forwarding tables that the worker no longer reads.
pub type Old = (Reader<Fib4>, Reader<Fib6>);

impl Tables {
    /// Other forwarding tables, which lead to the same hops.
    fn exchange(&mut self, fib4: Reader<Fib4>, fib6: Reader<Fib6>) -> Old {
        let fib4 = std::mem::replace(&mut self.fib4, fib4);
        (fib4, std::mem::replace(&mut self.fib6, fib6))
    }
}

/// What a worker's stage is made of.
#[derive(Clone)]
pub struct Setup {
    /// The configuration.
    pub settings: Arc<Settings>,
    /// Readers of the published tables, for this worker alone.
    pub tables: Tables,
    /// The worker's clock.
    pub clock: Clock,
    /// The instruction set of lookups and loops over bursts.
    pub isa: Isa,
    /// The outlet of punts: a ring to the slow worker. For [`Slow`]: the inlet of punts.
    pub slow: u16,
    /// Limits of what the slow worker gets, by reason.
    pub punts: punt::Rates,
    /// How many workers share each port's traffic (its receive queues): a policer's rate is
    /// divided among them.
    pub queues: u16,
    /// The rings by which fast workers hand packets to each other.
    pub mesh: Mesh,
}

/// Which fast workers take packets from others: the k-th of them by outlet `first` + k, and a burst
/// that it takes has that number as its port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    /// The outlet to the first of them.
    pub first: u16,
    /// How many take packets; 0: none hands any over.
    pub takers: u16,
    /// Which of them this worker is, if it is one.
    pub me: Option<u16>,
    /// By taker: the pools of its NUMA node, where that is another than this worker's. Empty, or
    /// nothing but `None`: all are on one node.
    pub far: Vec<Option<Vec<Pool>>>,
}

/// One burst's view of all that control can change.
#[derive(Clone, Copy)]
struct View<'a> {
    settings: &'a Settings,
    fib4: &'a Fib4,
    fib6: &'a Fib6,
    hops: &'a HopTable,
    /// When the burst came, in nanoseconds of the worker's clock.
    now_ns: u64,
}

/// The stage of a worker that polls the user's ports: the path, and what its stages share.
pub struct Fast {
    settings: Arc<Settings>,
    tables: Tables,
    clock: Clock,
    installed: Installed,
    reasons: Reasons,
    packets: Packets,
    output: Output,
    exceptions: Exceptions,
    path: Box<dyn PacketPath>,
    /// How often timers are looked at, in ticks.
    period: u64,
    /// When the timers are looked at next, in ticks.
    due: u64,
}

impl Fast {
    /// A stage that draws packets from the pools of `egress` and counts drops there.
    pub fn new(setup: Setup, path: Box<dyn PacketPath>, egress: &mut Egress) -> Self {
        let reasons = Reasons::new(egress);
        let none = (Settings::default(), Counters::default());
        let change = Change::new(setup.settings.clone(), &none.0, &none.1, setup.queues);
        let mut fast = Self {
            exceptions: Exceptions::new(&setup, egress),
            settings: setup.settings,
            tables: setup.tables,
            clock: setup.clock,
            installed: Installed::default(),
            packets: Packets::new(&reasons),
            reasons,
            output: Output::default(),
            period: setup.clock.ticks(path.timers_ns()),
            path,
            due: 0,
        };
        fast.install(change, egress);
        fast
    }

    /// A router's stage.
    pub fn router(setup: Setup, egress: &mut Egress) -> Self {
        let path = Box::new(RouterPath::new(setup.clock, setup.isa));
        Self::new(setup, path, egress)
    }

    /// Exchanges the configuration, between two bursts. Returns the old one, for the caller's
    /// thread to free. Counters of interfaces that keep their names go on.
    pub fn install(&mut self, mut change: Change, egress: &mut Egress) -> Change {
        let counters = &change.installed.counters;
        counters.go_on_from(&self.installed.counters, &change.interfaces);
        self.path.install(&mut change, egress);
        self.output.install(&mut change);
        // They name lists and interfaces by number.
        self.exceptions.hits = Hits::default();
        std::mem::swap(&mut self.installed, &mut change.installed);
        std::mem::swap(&mut self.settings, &mut change.settings);
        change
    }

    /// Takes other forwarding tables over, between two bursts; those that it had are the caller's
    /// to free.
    pub fn exchange(&mut self, fib4: Reader<Fib4>, fib6: Reader<Fib6>) -> Old {
        self.tables.exchange(fib4, fib6)
    }

    /// Looks at the newest tables, so that their publisher need not wait for this worker's next
    /// packet.
    pub fn catch_up(&mut self) {
        self.tables.fib4.read();
        self.tables.fib6.read();
        self.tables.hops.read();
    }

    /// What has been counted; other threads may read it at any time. A new one after each
    /// [`Fast::install`].
    pub fn counters(&self) -> Arc<Counters> {
        self.installed.counters.clone()
    }

    /// Takes the packets that access lists have logged since the last call.
    pub fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.exceptions.hits)
    }

    /// Fragments that wait for the rest of their datagrams.
    pub fn held_fragments(&self) -> u64 {
        self.path.held_packets()
    }

    /// The path, if it is of this type.
    pub fn path<P: PacketPath>(&mut self) -> Option<&mut P> {
        let path: &mut dyn Any = &mut *self.path;
        path.downcast_mut()
    }

    /// Runs `work` on the path, if it is of this type, with the context of a burst that comes now:
    /// for packets that have waited in a stage.
    pub fn with_path<P: PacketPath, R>(
        &mut self,
        work: impl FnOnce(&mut P, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let (path, mut context) = self.parts(self.clock.now());
        let path: &mut dyn Any = path;
        Some(work(path.downcast_mut()?, &mut context))
    }

    /// The tracer of this worker.
    pub fn tracer(&mut self) -> &mut trace::Tracer {
        &mut self.exceptions.tracer
    }

    /// The path, and its context at `now` in ticks.
    #[inline(always)]
    fn parts(&mut self, now: u64) -> (&mut dyn PacketPath, Context<'_>) {
        self.packets.here = Mask::MAX;
        let context = Context {
            view: view(&self.settings, &mut self.tables, self.clock.ns(now)),
            installed: &self.installed,
            reasons: &self.reasons,
            packets: &mut self.packets,
            output: &mut self.output,
            exceptions: &mut self.exceptions,
        };
        (&mut *self.path, context)
    }

    /// What is due each period: the time of day, and fragments that are overdue. Returns
    /// when to look again.
    #[cold]
    fn look_at_timers(&mut self, now: u64, out: &mut Egress) -> u64 {
        let now_ns = self.clock.ns(now);
        self.exceptions.day = Day::at(now_ns);
        let is_overdue = |fast: &Self| {
            let next = fast.path.next_expiry_ns();
            next.is_some_and(|next| next <= now_ns)
        };
        if is_overdue(self) {
            let (path, mut context) = self.parts(now);
            path.turn(now, &mut context, out);
        }
        match is_overdue(self) {
            // One turn has a budget: more may be due.
            true => now,
            false => now + self.period,
        }
    }
}

fn view<'a>(settings: &'a Settings, tables: &'a mut Tables, now_ns: u64) -> View<'a> {
    View {
        settings,
        fib4: tables.fib4.read(),
        fib6: tables.fib6.read(),
        hops: tables.hops.read(),
        now_ns,
    }
}

impl Stage for Fast {
    #[inline]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let (path, mut context) = self.parts(burst.now);
        path.run(burst, &mut context, out);
    }

    #[inline]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        if now >= self.due {
            self.due = self.look_at_timers(now, out);
        }
        match self.path.next_expiry_ns() {
            Some(_) => self.due,
            None => NEVER,
        }
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.path.points(visit);
        self.exceptions.points(visit);
    }

    /// Slots of datagrams in the making.
    fn held(&self) -> u64 {
        self.path.held()
    }

    fn held_packets(&self) -> u64 {
        self.held_fragments()
    }
}
