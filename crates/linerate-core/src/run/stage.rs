//! Pipelines: stages joined by plain Rust, monomorphised, named for users and the ledger.

use super::egress::{DropId, Egress};
use super::point::{Named, Point, named};
use crate::packet::{Burst, Packet};

/// What [`Stage::turn`] returns if nothing is due: no time is later.
pub const NEVER: u64 = u64::MAX;

/// The state of a burst that stages share: parsed headers, verdicts, next hops. `()` is none.
///
/// A stage fills and reads it by position in the burst, so a stage that takes packets out of the
/// burst has to move the state of the others to their new positions.
pub trait BurstContext {
    /// Which packets of the burst the next stage handles, a bit for each: those with a verdict keep
    /// their positions, and are no longer counted.
    #[inline(always)]
    fn mask(&self, burst: &Burst) -> u64 {
        burst.mask()
    }

    /// Packets that stages have put into the context, out of the burst, for a later one to send.
    #[inline(always)]
    fn kept(&self) -> u64 {
        0
    }
}

impl BurstContext for () {}

/// One step of a pipeline. What is left in the burst goes on to the next step; a packet that a
/// stage does not pass on it sends or drops through `out`. Stages of one pipeline share a context
/// `C`; a closure over burst and egress is a stage without one.
///
/// ```
/// use linerate_core::packet::Burst;
/// use linerate_core::run::{Egress, Stage, StageExt, named};
/// struct Short { reason: linerate_core::run::DropId }
/// impl Stage for Short {
///     fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
///         let mut short = Burst::new();
///         burst.retain(&mut short, |packet| packet.len() >= 60);
///         out.drop_burst(self.reason, &mut short);
///     }
/// }
/// # let mut egress = Egress::new(linerate_core::packet::PoolCache::new(&[]));
/// let short = Short { reason: egress.reason("short") };
/// let pipeline = named("short", short).then("out", |burst: &mut Burst, out: &mut Egress| out.send(0, burst));
/// ```
pub trait Stage<C = ()>: Send {
    /// Works on the burst.
    fn run(&mut self, burst: &mut Burst, context: &mut C, out: &mut Egress);

    /// Handles timers at `now`, in ticks of the worker's clock: called every round, with or without
    /// packets. Returns when it has to be called again at the latest, which bounds the worker's
    /// sleep; [`NEVER`] if packets alone give it work.
    #[inline(always)]
    fn turn(&mut self, now: u64, context: &mut C, out: &mut Egress) -> u64 {
        let _ = (now, context, out);
        NEVER
    }

    /// Shows each named point below this stage.
    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        let _ = visit;
    }

    /// Slots that are kept here between two bursts, for the [ledger](super::ledger).
    #[inline(always)]
    fn held(&self) -> u64 {
        0
    }

    /// The packets that came in them: more, where packets have been joined in a slot.
    #[inline(always)]
    fn held_packets(&self) -> u64 {
        self.held()
    }
}

impl<F: FnMut(&mut Burst, &mut Egress) + Send> Stage for F {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        self(burst, out);
    }
}

/// Joins stages.
pub trait StageExt<C = ()>: Stage<C> + Sized {
    /// Packets that this stage leaves in the burst go on to `next`.
    fn then<N: Stage<C>>(self, name: &'static str, next: N) -> Then<Self, Named<N>> {
        Then {
            first: self,
            second: named(name, next),
        }
    }

    /// The pipeline as a worker runs it: with a context of its own, which every burst finds as the
    /// last one left it.
    fn with_context(self, context: C) -> WithContext<C, Self> {
        WithContext {
            context,
            stage: self,
        }
    }

    /// Each packet goes to the exit that `verdict` names, one sub-burst per exit, in order.
    fn branch<V, E>(self, verdict: V, exits: E) -> Then<Self, Branch<V, E>>
    where
        V: FnMut(&mut Packet) -> usize + Send,
        E: Exits,
    {
        Then {
            first: self,
            second: Branch {
                verdict,
                exits,
                bad_verdict: None,
            },
        }
    }
}

impl<C, S: Stage<C>> StageExt<C> for S {}

/// One stage after another.
pub struct Then<A, B> {
    first: A,
    second: B,
}

impl<A, B> Then<A, B> {
    /// The earlier part.
    pub fn first_mut(&mut self) -> &mut A {
        &mut self.first
    }

    /// The later part.
    pub fn second_mut(&mut self) -> &mut B {
        &mut self.second
    }
}

impl<C, A: Stage<C>, B: Stage<C>> Stage<C> for Then<A, B> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut C, out: &mut Egress) {
        self.first.run(burst, context, out);
        if !burst.is_empty() {
            self.second.run(burst, context, out);
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, context: &mut C, out: &mut Egress) -> u64 {
        let first = self.first.turn(now, context, out);
        first.min(self.second.turn(now, context, out))
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.first.points(visit);
        self.second.points(visit);
    }

    fn held(&self) -> u64 {
        self.first.held() + self.second.held()
    }

    fn held_packets(&self) -> u64 {
        self.first.held_packets() + self.second.held_packets()
    }
}

/// A pipeline and the context that its stages share.
pub struct WithContext<C, S> {
    context: C,
    stage: S,
}

impl<C, S> WithContext<C, S> {
    /// The pipeline, to exchange its tables.
    pub fn stage_mut(&mut self) -> &mut S {
        &mut self.stage
    }
}

impl<C: BurstContext + Send, S: Stage<C>> Stage for WithContext<C, S> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        self.stage.run(burst, &mut self.context, out);
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        self.stage.turn(now, &mut self.context, out)
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.stage.points(visit);
    }

    fn held(&self) -> u64 {
        self.stage.held()
    }

    fn held_packets(&self) -> u64 {
        self.stage.held_packets()
    }
}

/// A fork: one sub-burst per exit.
pub struct Branch<V, E> {
    verdict: V,
    exits: E,
    bad_verdict: Option<DropId>,
}

/// The exits of a [`Branch`]: a tuple of named stages.
pub trait Exits: Send {
    /// How many.
    const COUNT: usize;
    /// Runs the exit of that index.
    fn run(&mut self, exit: usize, burst: &mut Burst, out: &mut Egress);
    /// As [`Stage::turn`], of all exits.
    fn turn(&mut self, now: u64, out: &mut Egress) -> u64;
    /// Shows the points of all exits.
    fn points(&mut self, visit: &mut dyn FnMut(&mut Point));
    /// Packets that all exits keep between two bursts.
    fn held(&self) -> u64;
}

impl<A: Stage, B: Stage> Exits for (A, B) {
    const COUNT: usize = 2;

    #[inline(always)]
    fn run(&mut self, exit: usize, burst: &mut Burst, out: &mut Egress) {
        match exit {
            0 => self.0.run(burst, &mut (), out),
            _ => self.1.run(burst, &mut (), out),
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, out: &mut Egress) -> u64 {
        let due = self.0.turn(now, &mut (), out);
        due.min(self.1.turn(now, &mut (), out))
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.0.points(visit);
        self.1.points(visit);
    }

    fn held(&self) -> u64 {
        self.0.held() + self.1.held()
    }
}

impl<A: Stage, B: Stage, C: Stage> Exits for (A, B, C) {
    const COUNT: usize = 3;

    #[inline(always)]
    fn run(&mut self, exit: usize, burst: &mut Burst, out: &mut Egress) {
        match exit {
            0 => self.0.run(burst, &mut (), out),
            1 => self.1.run(burst, &mut (), out),
            _ => self.2.run(burst, &mut (), out),
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, out: &mut Egress) -> u64 {
        let due = self.0.turn(now, &mut (), out);
        let due = due.min(self.1.turn(now, &mut (), out));
        due.min(self.2.turn(now, &mut (), out))
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.0.points(visit);
        self.1.points(visit);
        self.2.points(visit);
    }

    fn held(&self) -> u64 {
        self.0.held() + self.1.held() + self.2.held()
    }
}

impl<A: Stage, B: Stage, C: Stage, D: Stage> Exits for (A, B, C, D) {
    const COUNT: usize = 4;

    #[inline(always)]
    fn run(&mut self, exit: usize, burst: &mut Burst, out: &mut Egress) {
        match exit {
            0 => self.0.run(burst, &mut (), out),
            1 => self.1.run(burst, &mut (), out),
            2 => self.2.run(burst, &mut (), out),
            _ => self.3.run(burst, &mut (), out),
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, out: &mut Egress) -> u64 {
        let due = self.0.turn(now, &mut (), out);
        let due = due.min(self.1.turn(now, &mut (), out));
        let due = due.min(self.2.turn(now, &mut (), out));
        due.min(self.3.turn(now, &mut (), out))
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.0.points(visit);
        self.1.points(visit);
        self.2.points(visit);
        self.3.points(visit);
    }

    fn held(&self) -> u64 {
        self.0.held() + self.1.held() + self.2.held() + self.3.held()
    }
}

impl<V: FnMut(&mut Packet) -> usize + Send, E: Exits> Stage for Branch<V, E> {
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let mut verdicts = [0_usize; Burst::CAPACITY];
        for (verdict, packet) in verdicts.iter_mut().zip(burst.iter_mut()) {
            *verdict = (self.verdict)(packet);
        }
        // A burst with one exit for all packets goes on as it is; most bursts are such.
        let exit = verdicts[0];
        if exit < E::COUNT && verdicts[..burst.len()].iter().all(|&other| other == exit) {
            self.exits.run(exit, burst, out);
            return self.take_rest(burst, out);
        }
        let mut left = std::mem::take(burst);
        for exit in 0..E::COUNT {
            let mut chosen = Burst::new();
            (chosen.now, chosen.port) = (left.now, left.port);
            let (mut seen, mut kept) = (0, 0);
            left.retain(&mut chosen, |_| {
                let verdict = verdicts[seen];
                seen += 1;
                if verdict != exit {
                    verdicts[kept] = verdict;
                    kept += 1;
                }
                verdict != exit
            });
            if !chosen.is_empty() {
                self.exits.run(exit, &mut chosen, out);
                self.take_rest(&mut chosen, out);
            }
        }
        self.take_rest(&mut left, out);
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        self.exits.turn(now, out)
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.exits.points(visit);
    }

    fn held(&self) -> u64 {
        self.exits.held()
    }
}

impl<V, E> Branch<V, E> {
    /// The exits, to exchange their tables.
    pub fn exits_mut(&mut self) -> &mut E {
        &mut self.exits
    }

    /// A fork is an end: what an exit left over, or no exit took, is dropped and counted.
    #[inline]
    fn take_rest(&mut self, burst: &mut Burst, out: &mut Egress) {
        if !burst.is_empty() {
            let reason = *self
                .bad_verdict
                .get_or_insert_with(|| out.reason("left_over"));
            out.drop_burst(reason, burst);
        }
    }
}
