//! Pipelines: stages joined by plain Rust, monomorphised, named for people and for the books.

use super::egress::{DropId, Egress};
use crate::packet::{Burst, Packet};

/// One step of a pipeline. What is left in the burst goes on to the next step; a packet that a
/// stage does not pass on it sends or drops through `out`.
///
/// ```
/// use linerate_core::packet::Burst;
/// use linerate_core::run::{Egress, Stage, StageExt, named};
/// struct Short { reason: linerate_core::run::DropId }
/// impl Stage for Short {
///     fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
///         let mut short = Burst::new();
///         burst.sift(&mut short, |packet| packet.len() >= 60);
///         out.drop_burst(self.reason, &mut short);
///     }
/// }
/// # let mut egress = Egress::new(linerate_core::packet::PoolCache::new(&[]));
/// let short = Short { reason: egress.reason("short") };
/// let pipeline = named("short", short).then("out", |burst: &mut Burst, out: &mut Egress| out.send(0, burst));
/// ```
pub trait Stage: Send {
    /// Works on the burst.
    fn run(&mut self, burst: &mut Burst, out: &mut Egress);

    /// Shows each named point below this stage.
    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        let _ = visit;
    }

    /// Packets that are kept here between two bursts, for the [ledger](super::ledger).
    fn held(&self) -> u64 {
        0
    }
}

impl<F: FnMut(&mut Burst, &mut Egress) + Send> Stage for F {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        self(burst, out);
    }
}

/// Sees the packets that come to a named point of a pipeline.
pub type Tap = Box<dyn FnMut(&Burst) + Send>;

/// A named point of a pipeline: where packets are counted, and where a tap can listen.
pub struct Point {
    /// The stage's name.
    pub name: &'static str,
    /// Packets that came to the stage.
    pub packets: u64,
    /// Packets that came and neither went on nor were sent or dropped through the egress.
    pub unaccounted: i64,
    /// Sees every burst that comes to the stage.
    pub tap: Option<Tap>,
}

/// A stage with its point.
pub struct Named<S> {
    point: Point,
    stage: S,
}

/// Gives a stage its name.
pub fn named<S: Stage>(name: &'static str, stage: S) -> Named<S> {
    Named {
        point: Point {
            name,
            packets: 0,
            unaccounted: 0,
            tap: None,
        },
        stage,
    }
}

impl<S> Named<S> {
    /// The stage itself, to exchange its tables.
    pub fn stage_mut(&mut self) -> &mut S {
        &mut self.stage
    }
}

impl<S: Stage> Stage for Named<S> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        if let Some(tap) = &mut self.point.tap {
            tap(burst);
        }
        let (came, taken) = (burst.len() as u64, out.taken());
        self.stage.run(burst, out);
        self.point.packets += came;
        let gone = burst.len() as u64 + (out.taken() - taken);
        self.point.unaccounted += came.wrapping_sub(gone) as i64;
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(&mut self.point);
        self.stage.points(visit);
    }

    fn held(&self) -> u64 {
        self.stage.held()
    }
}

/// Joins stages.
pub trait StageExt: Stage + Sized {
    /// What this stage leaves in the burst goes on to `next`.
    fn then<N: Stage>(self, name: &'static str, next: N) -> Then<Self, Named<N>> {
        Then {
            first: self,
            second: named(name, next),
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

impl<S: Stage> StageExt for S {}

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

impl<A: Stage, B: Stage> Stage for Then<A, B> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        self.first.run(burst, out);
        if !burst.is_empty() {
            self.second.run(burst, out);
        }
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.first.points(visit);
        self.second.points(visit);
    }

    fn held(&self) -> u64 {
        self.first.held() + self.second.held()
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
            0 => self.0.run(burst, out),
            _ => self.1.run(burst, out),
        }
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
            0 => self.0.run(burst, out),
            1 => self.1.run(burst, out),
            _ => self.2.run(burst, out),
        }
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
            0 => self.0.run(burst, out),
            1 => self.1.run(burst, out),
            2 => self.2.run(burst, out),
            _ => self.3.run(burst, out),
        }
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
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        let mut verdicts = [0_usize; Burst::CAPACITY];
        for (verdict, packet) in verdicts.iter_mut().zip(burst.iter_mut()) {
            *verdict = (self.verdict)(packet);
        }
        // A burst of one mind goes on as it is, which is what most bursts are.
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
            left.sift(&mut chosen, |_| {
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
