//! Which of its two layouts a lookup table is read in, found out on the traffic itself.
//!
//! The compact one takes three loads, mostly from the second-level cache; the flat one takes one,
//! from an array that no cache but the last holds. Where few prefixes get most packets the flat one
//! is faster, where all get as many the compact one. Nobody knows beforehand, so it is measured,
//! now and then, for a moment.

use linerate_core::env::Clock;

use super::Layout;

/// Bursts that warm the caches for the other layout, before each is timed for `TIMED` bursts.
const WARMING: u32 = 512;
const TIMED: u32 = 128;
/// Bursts between two trials: at first, and at most. What is not overturned is asked half as often.
const FIRST: u32 = 1 << 13;
const MOST: u32 = 1 << 22;

/// One lcore's choice, for one [`Fib4`](super::Fib4) and one kind of traffic. Lookups give the same
/// whatever it is.
///
/// ```
/// use linerate_core::env::Clock;
/// use linerate_tables::lpm::{Choice, Lpm4, Lpm4Config, NO_ROUTE};
/// let mut table = Lpm4::new(&Lpm4Config { flat_vrfs: 1, ..Lpm4Config::default() })?;
/// table.insert(0, "10.0.0.0/8".parse()?, 1)?;
/// let (mut choice, mut hops) = (Choice::new(Clock::calibrate()), [0; 2]);
/// table.fib().lookup_chosen(&mut choice, 0, &[0x0a00_0001, 0x0b00_0000], &mut hops);
/// assert_eq!(hops, [1, NO_ROUTE]);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    clock: Clock,
    now: Layout,
    stage: Stage,
    /// Bursts until the stage ends.
    left: u32,
    /// Bursts until the next trial, after this one.
    pause: u32,
    /// Ticks and addresses of the current layout, and of the other.
    current: Spent,
    other: Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is timed.
    Pause,
    /// The current layout is timed.
    Current,
    /// The other one is used, and its memory comes into the caches.
    Warming,
    /// The other one is timed.
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    ticks: u64,
    addresses: u64,
}

impl Spent {
    /// Whether it took less for an address, by a twentieth at least.
    fn beats(self, other: Self) -> bool {
        let cross = |ticks: u64, addresses: u64| u128::from(ticks) * u128::from(addresses);
        cross(self.ticks, other.addresses) * 20 < cross(other.ticks, self.addresses) * 19
    }
}

impl Choice {
    /// Begins with the flat layout.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            now: Layout::Flat,
            stage: Stage::Pause,
            left: FIRST,
            pause: FIRST,
            current: Spent::default(),
            other: Spent::default(),
        }
    }

    /// The layout that is in use, but for trials.
    pub fn layout(&self) -> Layout {
        self.now
    }

    /// Runs one burst of `count` addresses by the layout whose turn it is.
    #[inline(always)]
    pub(super) fn run(&mut self, count: usize, look_up: impl FnOnce(Layout)) {
        let layout = self.turn();
        let ticks = match self.stage {
            Stage::Pause | Stage::Warming => {
                look_up(layout);
                0
            }
            Stage::Current | Stage::Other => {
                let start = self.clock.now();
                look_up(layout);
                self.clock.now().saturating_sub(start)
            }
        };
        self.done(count, ticks);
    }

    /// The layout whose turn it is.
    #[inline(always)]
    fn turn(&self) -> Layout {
        match self.stage {
            Stage::Pause | Stage::Current => self.now,
            Stage::Warming | Stage::Other => self.now.other(),
        }
    }

    /// A burst of `count` addresses took `ticks`, if it was timed.
    #[inline(always)]
    fn done(&mut self, count: usize, ticks: u64) {
        let spent = match self.stage {
            Stage::Pause | Stage::Warming => None,
            Stage::Current => Some(&mut self.current),
            Stage::Other => Some(&mut self.other),
        };
        if let Some(spent) = spent {
            spent.ticks += ticks;
            spent.addresses += count as u64;
        }
        self.left -= 1;
        if self.left == 0 {
            self.next();
        }
    }

    #[cold]
    fn next(&mut self) {
        (self.stage, self.left) = match self.stage {
            Stage::Pause => (Stage::Current, TIMED),
            Stage::Current => (Stage::Warming, WARMING),
            Stage::Warming => (Stage::Other, TIMED),
            Stage::Other => {
                self.pause = match self.other.beats(self.current) {
                    true => {
                        self.now = self.now.other();
                        FIRST
                    }
                    false => (self.pause * 2).min(MOST),
                };
                (self.current, self.other) = Default::default();
                (Stage::Pause, self.pause)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs so many bursts, of which each takes what `ticks` says of its layout. Returns how many
    /// each layout had.
    fn runs(ticks: impl Fn(Layout) -> u64, bursts: u32) -> (Choice, [u32; 2]) {
        let mut choice = Choice::new(Clock::monotonic("not read"));
        let mut used = [0; 2];
        for _ in 0..bursts {
            let layout = choice.turn();
            used[layout as usize] += 1;
            choice.done(64, ticks(layout));
        }
        (choice, used)
    }

    fn slow(which: Layout) -> impl Fn(Layout) -> u64 {
        move |layout| if layout == which { 200 } else { 100 }
    }

    const TRIAL: u32 = 2 * TIMED + WARMING;

    #[test]
    fn what_is_slower_is_left_after_one_trial() {
        let (choice, used) = runs(slow(Layout::Flat), FIRST + TRIAL + 100);
        assert_eq!(choice.layout(), Layout::Compact);
        assert_eq!(used[Layout::Flat as usize], FIRST + TIMED);
    }

    #[test]
    fn what_is_faster_stays_and_is_asked_ever_less() {
        let (choice, used) = runs(
            slow(Layout::Compact),
            FIRST + TRIAL + 2 * FIRST + TRIAL + 4 * FIRST,
        );
        assert_eq!(choice.layout(), Layout::Flat);
        assert_eq!(used[Layout::Compact as usize], 2 * (WARMING + TIMED));
        assert_eq!((choice.stage, choice.left), (Stage::Current, TIMED));
    }

    #[test]
    fn a_twentieth_is_no_reason() {
        let spent = |ticks, addresses| Spent { ticks, addresses };
        assert!(spent(94, 64).beats(spent(100, 64)));
        assert!(!spent(96, 64).beats(spent(100, 64)));
        assert!(spent(96, 128).beats(spent(100, 64)));
        assert!(!spent(0, 0).beats(spent(0, 0)), "nothing was looked up");
    }
}
