//! How often a queue looks after its interface: rarely, and without a clock on the hot path.

use std::time::{Duration, Instant};

/// Interval of checks of an interface's state.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Limits checks of an interface's state to one in [`LOOK_EVERY`].
#[derive(Debug)]
pub(crate) struct Pace {
    last: Instant,
    /// Polls to let pass before the clock is read again; an empty one counts for many.
    polls: u32,
}

impl Pace {
    const POLLS: u32 = 1024;
    const EMPTY: u32 = 32;

    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
            polls: Self::POLLS,
        }
    }

    /// Counts a poll; returns whether a check is due.
    #[inline]
    pub(crate) fn due(&mut self, empty: bool) -> bool {
        self.polls = self
            .polls
            .saturating_sub(if empty { Self::EMPTY } else { 1 });
        self.polls == 0 && self.elapsed()
    }

    #[cold]
    fn elapsed(&mut self) -> bool {
        self.polls = Self::POLLS;
        let now = Instant::now();
        let due = now.duration_since(self.last) >= LOOK_EVERY;
        if due {
            self.last = now;
        }
        due
    }
}
