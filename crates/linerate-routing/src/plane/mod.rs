//! The data plane: what workers do with packets.
//!
//! [`Fast`] is the stage of the workers that poll the user's ports: it forwards, and *punts* what
//! is not a matter of forwarding through a ring to the one [`Slow`] stage, which resolves
//! neighbours, feeds the interfaces' twins in the kernel, and answers for the router where it has
//! no twin. Neither knows where routes come from: both read [`Tables`] and [`settings::Settings`],
//! which control publishes and exchanges between two bursts.
//!
//! ```text
//!   port ─► split by VLAN ─► parse ─► validate ─► [policer, reassembly, ACL in, uRPF] ─► lookup
//!                                                                                          │
//!      ┌──── Forward ── redirect? ── TTL ── [ACL out] ── MTU ── rewrite ─► lane of interface ─► port
//!      ├──── Resolve, Glean ─ the same, without an address yet ─► ring ─► Slow ─► port
//!      ├──── Local, Multicast, Broadcast ─────────────────────► ring ─► Slow ─► twin
//!      └──── the rest: a counted drop, and an ICMP error where the RFCs want one
//! ```
//!
//! A burst has one input interface once it is split, so one VRF, one access list and one policer.
//! Read `engine.rs` first, then `input.rs` (what is valid), `forward.rs` (the loops from the lookup on),
//! `dispose.rs` (what is done with what is not plain) and `slow.rs`. `docs/rfc/forwarding.md` lists the
//! clauses and their tests.

pub mod acl;
mod address;
mod change;
pub mod counters;
mod dispose;
mod engine;
mod errors;
mod face;
mod features;
mod forward;
pub mod hits;
pub mod hops;
mod input;
mod lanes;
pub mod lists;
mod multipath;
mod options;
mod origin;
mod ours;
pub mod punt;
mod reasons;
mod rewrite;
pub mod settings;
mod slow;
pub mod trace;
mod urpf;
mod vlan;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(test)]
mod model_tests;
#[cfg(any(test, feature = "fuzz"))]
#[cfg_attr(not(test), allow(dead_code, unused_imports))] // what tests use besides
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::Burst;
use linerate_core::publish::Reader;
use linerate_core::run::{Egress, Stage};
use linerate_tables::lpm::{Fib4, Fib6};

use counters::Counters;
use engine::Engine;
use hits::Hits;
use hops::HopTable;
use settings::Settings;

pub use change::Change;
pub use slow::{Event, Slow, Tell};

/// What workers look up in: a set of readers for each worker.
///
/// Read in this order, routes before hops: hops are published before the routes that lead to them,
/// so that no route leads to a hop that is not there yet.
#[derive(Clone)]
pub struct Tables {
    pub fib4: Reader<Fib4>,
    pub fib6: Reader<Fib6>,
    pub hops: Reader<HopTable>,
}

/// Forwarding tables that nobody reads any more.
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
    pub settings: Arc<Settings>,
    pub tables: Tables,
    pub clock: Clock,
    pub isa: Isa,
    /// The outlet of punts: a ring to the slow worker. Of [`Slow`]: the inlet that they come by.
    pub slow: u16,
    /// What the slow worker gets of each reason at most.
    pub punts: punt::Rates,
    /// How many workers share each port's traffic (its receive queues): a policer's rate is
    /// divided among them.
    pub queues: u16,
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

/// The stage of a worker that polls the user's ports.
pub struct Fast {
    settings: Arc<Settings>,
    tables: Tables,
    clock: Clock,
    engine: Engine,
}

impl Fast {
    /// A stage that draws packets from the pools of `egress` and counts drops there.
    pub fn new(setup: Setup, egress: &mut Egress) -> Self {
        let engine = Engine::new(&setup, egress);
        Self {
            settings: setup.settings,
            tables: setup.tables,
            clock: setup.clock,
            engine,
        }
    }

    /// Exchanges the configuration, between two bursts. Returns the old one, for the caller's
    /// thread to free. Counters of interfaces that keep their names go on.
    pub fn install(&mut self, mut change: Change, egress: &mut Egress) -> Change {
        self.engine.install(&mut change, egress);
        std::mem::swap(&mut self.settings, &mut change.settings);
        change
    }

    /// Takes other forwarding tables over, between two bursts; those that it had are the caller's to
    /// free.
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
        self.engine.counters.clone()
    }

    /// What access lists have to tell of since the last time that somebody asked.
    pub fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.engine.features.lists.hits)
    }

    /// Slots of datagrams in the making.
    pub fn held(&self) -> u64 {
        self.engine.features.held()
    }

    /// Fragments that wait for the rest of their datagrams.
    pub fn held_fragments(&self) -> u64 {
        self.engine.features.held_fragments()
    }

    /// Traces, taps and the like.
    pub fn watch(&mut self) -> &mut trace::Watch {
        &mut self.engine.watch
    }

    /// Gives up on fragments whose datagrams did not become whole in time: call it every 100 ms or
    /// so.
    pub fn tick(&mut self, now: u64, out: &mut Egress) {
        let Self {
            settings,
            tables,
            clock,
            engine,
        } = self;
        engine.tick(view(settings, tables, clock.ns(now)), out);
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
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        let Self {
            settings,
            tables,
            clock,
            engine,
        } = self;
        let now_ns = clock.ns(burst.now);
        engine.run(view(settings, tables, now_ns), burst, out);
    }
}
