//! Two pipelines in one run: one for the lcores that poll ports, one for those that process.

use super::egress::Egress;
use super::point::Point;
use super::stage::Stage;
use crate::packet::Burst;

/// The pipeline of a worker among workers of two kinds, by the [role](crate::env::Role) of its
/// lcore. One type for all of them, so that code that starts, queries and ends workers does not
/// depend on the kind; a worker takes the same turn each time, a predicted branch for each burst.
pub enum ByRole<I, E> {
    /// On an io lcore.
    Io(I),
    /// On an eu lcore.
    Eu(E),
}

impl<I: Stage, E: Stage> Stage for ByRole<I, E> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        match self {
            Self::Io(stage) => stage.run(burst, &mut (), out),
            Self::Eu(stage) => stage.run(burst, &mut (), out),
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        match self {
            Self::Io(stage) => stage.turn(now, &mut (), out),
            Self::Eu(stage) => stage.turn(now, &mut (), out),
        }
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        match self {
            Self::Io(stage) => stage.points(visit),
            Self::Eu(stage) => stage.points(visit),
        }
    }

    fn held(&self) -> u64 {
        match self {
            Self::Io(stage) => stage.held(),
            Self::Eu(stage) => stage.held(),
        }
    }

    fn held_packets(&self) -> u64 {
        match self {
            Self::Io(stage) => stage.held_packets(),
            Self::Eu(stage) => stage.held_packets(),
        }
    }
}
