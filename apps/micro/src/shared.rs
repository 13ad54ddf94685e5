//! Rounds of work on a core that may not work for this thread alone.
//!
//! A CPU may be one of two threads of a core (SMT). What runs on the other, which may be another
//! virtual machine's, takes half of the core's execution units: the same work has taken 157 and 245
//! TSC cycles by turns of some ms to some s. No clock and no counter that a guest can read says so.
//! But a loop of additions that fills the execution units does, whose time depends on nothing
//! else: it runs between windows of rounds, and windows beside which it was slow are left out.

use std::hint::black_box;

use linerate_core::env::Clock;

/// Rounds between two looks: about a millisecond of a burst's work.
const WINDOW: usize = 256;
/// Turns of the loop, of eight operations each: some microseconds.
const TURNS: u32 = 4096;
/// How often it runs for a look. The least time counts, since an interrupt is no sharing.
const TRIES: usize = 3;

/// What looks between windows have found.
pub(super) struct Looks {
    clock: Clock,
    /// One before the first window, and one behind each.
    found: Vec<u64>,
}

impl Looks {
    /// The first look is now.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            found: vec![look(clock)],
        }
    }

    /// A window is over.
    pub(super) fn end_window(&mut self) {
        self.found.push(look(self.clock));
    }

    /// Of each window, whether the core was this thread's. All count where none was.
    pub(super) fn alone(&self) -> Vec<bool> {
        alone(&self.found)
    }
}

/// Turns between two looks where turns cannot be told apart: about a millisecond.
const TURNS_OF_WORK: u32 = 32;

/// Work that goes on from turn to turn, with a look behind each [`TURNS_OF_WORK`].
pub(super) struct Work {
    looks: Looks,
    until: Vec<Done>,
    turns: u32,
}

/// What was done in some time.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Done {
    /// TSC ticks.
    pub(super) ticks: u64,
    /// What they were for: connections, requests, packets.
    pub(super) count: u64,
}

impl Done {
    /// Ticks for each.
    pub(super) fn each(self) -> f64 {
        self.ticks as f64 / self.count.max(1) as f64
    }
}

impl Work {
    /// The first look is now, and nothing is done.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            looks: Looks::new(clock),
            until: vec![Done::default()],
            turns: 0,
        }
    }

    /// A turn is over, until which so much was done in all. Returns whether a look followed, whose
    /// time is nobody's.
    pub(super) fn turned(&mut self, done: Done) -> bool {
        self.turns += 1;
        let is_window = self.turns.is_multiple_of(TURNS_OF_WORK);
        if is_window {
            self.until.push(done);
            self.looks.end_window();
        }
        is_window
    }

    /// What was done in windows in which the core was this thread's, and which part of all windows
    /// was left out.
    pub(super) fn judge(&self) -> (Done, f64) {
        let alone = self.looks.alone();
        let (mut done, mut kept) = (Done::default(), 0);
        let windows = self.until.windows(2).zip(&alone);
        for (ends, _) in windows.filter(|(_, is_alone)| **is_alone) {
            done.ticks += ends[1].ticks - ends[0].ticks;
            done.count += ends[1].count - ends[0].count;
            kept += 1;
        }
        let left_out = 1.0 - f64::from(kept) / alone.len().max(1) as f64;
        (done, left_out)
    }
}

/// The ticks of rounds, with a look behind each [`WINDOW`] of them.
pub(super) struct Rounds {
    ticks: Vec<u64>,
    looks: Looks,
}

/// What rounds came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// The median of rounds in which the core was this thread's, in ticks.
    pub(super) median: u64,
    /// The median of all.
    pub(super) of_all: u64,
    /// Which part of all rounds the first is not of.
    pub(super) left_out: f64,
}

impl Rounds {
    /// Room for so many rounds. The first look is now.
    pub(super) fn new(clock: Clock, most: usize) -> Self {
        Self {
            ticks: Vec::with_capacity(most),
            looks: Looks::new(clock),
        }
    }

    /// Whether there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.ticks.len() == self.ticks.capacity()
    }

    /// Whether there is a whole window.
    pub(super) fn has_window(&self) -> bool {
        self.looks.found.len() > 1
    }

    /// A round took so many ticks.
    pub(super) fn push(&mut self, ticks: u64) {
        self.ticks.push(ticks);
        if self.ticks.len().is_multiple_of(WINDOW) {
            self.looks.end_window();
        }
    }

    /// What they came to.
    pub(super) fn judge(self) -> Judged {
        judge(self.ticks, &self.looks.found)
    }
}

/// The ticks of the loop.
fn look(clock: Clock) -> u64 {
    let tries = (0..TRIES).map(|_| {
        let began = clock.now();
        let mut words = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
        for _ in 0..TURNS {
            // None depends on another one of the same turn.
            let [a, b, c, d, e, f, g, h] = words;
            words = [
                a.wrapping_add(b),
                b ^ c,
                c.wrapping_add(d),
                d ^ e,
                e.wrapping_add(f),
                f ^ g,
                g.wrapping_add(h),
                h ^ a,
            ];
        }
        black_box(words);
        clock.now() - began
    });
    tries.min().unwrap_or_default()
}

/// Windows count where the looks at both of their ends took no more than a quarter longer than the
/// fastest one: two threads of a core make it half as long again, or more.
fn alone(looks: &[u64]) -> Vec<bool> {
    let least = looks.iter().copied().min().unwrap_or_default();
    let is_fast = |look: &u64| *look <= least + least / 4;
    let windows = looks.windows(2).map(|both| both.iter().all(is_fast));
    let mut alone: Vec<bool> = windows.collect();
    if !alone.contains(&true) {
        alone.fill(true);
    }
    alone
}

fn judge(ticks: Vec<u64>, looks: &[u64]) -> Judged {
    let windows = ticks.chunks(WINDOW).zip(alone(looks));
    let alone = windows.filter(|(_, is_alone)| *is_alone);
    let mut alone: Vec<u64> = alone.flat_map(|(ticks, _)| ticks).copied().collect();
    if alone.is_empty() {
        // There is no whole window.
        alone.clone_from(&ticks);
    }
    Judged {
        left_out: 1.0 - alone.len() as f64 / ticks.len().max(1) as f64,
        median: median(alone),
        of_all: median(ticks),
    }
}

fn median(mut ticks: Vec<u64>) -> u64 {
    ticks.sort_unstable();
    ticks.get(ticks.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_beside_a_slow_look_are_left_out() {
        let window = |ticks: u64| vec![ticks; WINDOW];
        // Most rounds ran while another thread had its share of the core.
        let ticks = [
            window(100),
            window(160),
            window(160),
            window(160),
            window(101),
        ]
        .concat();
        let judged = judge(ticks, &[10, 11, 16, 17, 12, 10]);
        let expected = Judged {
            median: 101,
            of_all: 160,
            left_out: 0.6,
        };
        assert_eq!(
            (judged.median, judged.of_all),
            (expected.median, expected.of_all)
        );
        assert!(
            (judged.left_out - expected.left_out).abs() < 1e-9,
            "{judged:?}"
        );
    }

    #[test]
    fn work_beside_a_slow_look_is_left_out() {
        let clock = Clock::calibrate();
        let mut work = Work::new(clock);
        for turn in 1..=u64::from(3 * TURNS_OF_WORK) {
            let done = Done {
                ticks: turn * 10,
                count: turn,
            };
            let is_window = turn.is_multiple_of(TURNS_OF_WORK.into());
            assert_eq!(work.turned(done), is_window);
        }
        work.looks.found = vec![10, 10, 11, 17];
        let (done, left_out) = work.judge();
        let count = u64::from(2 * TURNS_OF_WORK);
        assert_eq!((done.ticks, done.count), (count * 10, count));
        assert!((done.each() - 10.0).abs() < 1e-9 && (left_out - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn rounds_without_a_window_or_with_none_alone_all_count() {
        let short = judge(vec![3, 1, 2], &[10]);
        assert_eq!((short.median, short.of_all, short.left_out), (2, 2, 0.0));
        // The fastest look is never slow, but it has a window on one side only.
        let shared = judge(vec![7; 2 * WINDOW], &[10, 16, 16]);
        assert_eq!((shared.median, shared.left_out), (7, 0.0));
    }

    #[test]
    fn a_look_lasts_and_rounds_are_kept() {
        let clock = Clock::calibrate();
        let mut rounds = Rounds::new(clock, WINDOW);
        assert!(rounds.looks.found[0] > 0 && !rounds.has_window());
        (0..WINDOW as u64).for_each(|ticks| rounds.push(ticks));
        assert!(rounds.is_full() && rounds.has_window());
        assert_eq!(rounds.judge().of_all, WINDOW as u64 / 2);
    }
}
