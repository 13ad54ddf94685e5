//! Which of its two layouts a lookup table is read in, found out on the traffic itself.
//!
//! The compact one takes three loads, mostly from the second-level cache; the flat one takes one,
//! from an array that no cache but the last holds. Where few prefixes get most packets the flat one
//! is faster, where all get as many the compact one. This is unknown beforehand, so it is measured,
//! now and then, for a moment.

use linerate_core::env::Clock;

use super::Layout;

/// A trial: so many rounds, in each of which either layout has so many bursts in a row, of which
/// the second half is timed. A layout that has not been in use finds none of its memory in the
/// caches, and needs some hundred thousand addresses until it does: the first rounds do not count.
const ROUNDS: u32 = 16;
const STRETCH: u32 = 1024;
const JUDGED: u32 = 9;
/// Rounds that the other layout has to win. A thread that was interrupted loses one, not the trial.
const ENOUGH: u32 = 6;
/// Bursts between two trials: at first, and at most. After each that changes nothing it is four
/// times as long.
const FIRST: u32 = 1 << 14;
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
    /// Which stretch of a trial it is: the current layout has the odd ones, the other the even
    /// ones. 0 between trials.
    stretch: u32,
    /// Bursts until the stretch or the pause ends.
    left: u32,
    /// Bursts until the next trial, after this one.
    pause: u32,
    /// Ticks and addresses of the current layout and of the other, in this round.
    current: Spent,
    other: Spent,
    /// Rounds that the other won.
    won: u32,
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
            stretch: 0,
            left: FIRST,
            pause: FIRST,
            current: Spent::default(),
            other: Spent::default(),
            won: 0,
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
        let ticks = match self.is_timed() {
            false => {
                look_up(layout);
                0
            }
            true => {
                // A plain reading would not wait for the loads, and one layout leaves more of them
                // on their way than the other.
                let start = self.clock.now_after_loads();
                look_up(layout);
                self.clock.now_after_loads().saturating_sub(start)
            }
        };
        self.done(count, ticks);
    }

    /// The layout whose turn it is.
    #[inline(always)]
    fn turn(&self) -> Layout {
        match self.is_other() {
            false => self.now,
            true => self.now.other(),
        }
    }

    #[inline(always)]
    fn is_other(&self) -> bool {
        self.stretch != 0 && self.stretch.is_multiple_of(2)
    }

    #[inline(always)]
    fn is_timed(&self) -> bool {
        self.stretch != 0 && self.left <= STRETCH / 2
    }

    /// A burst of `count` addresses took `ticks`, if it was timed.
    #[inline(always)]
    fn done(&mut self, count: usize, ticks: u64) {
        if self.is_timed() {
            let spent = match self.is_other() {
                false => &mut self.current,
                true => &mut self.other,
            };
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
        if self.is_other() {
            let is_judged = self.stretch > 2 * (ROUNDS - JUDGED);
            self.won += u32::from(is_judged && self.other.beats(self.current));
            (self.current, self.other) = Default::default();
        }
        if self.stretch < 2 * ROUNDS {
            (self.stretch, self.left) = (self.stretch + 1, STRETCH);
            return;
        }
        self.pause = match self.won >= ENOUGH {
            true => {
                self.now = self.now.other();
                FIRST
            }
            false => (self.pause * 4).min(MOST),
        };
        (self.stretch, self.left, self.won) = (0, self.pause, 0);
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
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

    const TRIAL: u32 = 2 * ROUNDS * STRETCH;

    #[test]
    fn what_is_slower_is_left_after_one_trial() {
        let (choice, used) = runs(slow(Layout::Flat), FIRST + TRIAL + 100);
        assert_eq!(choice.layout(), Layout::Compact);
        assert_eq!(used[Layout::Flat as usize], FIRST + TRIAL / 2);
    }

    #[test]
    fn what_is_faster_stays_and_is_asked_ever_less() {
        let (choice, used) = runs(
            slow(Layout::Compact),
            FIRST + TRIAL + 4 * FIRST + TRIAL + 16 * FIRST,
        );
        assert_eq!(choice.layout(), Layout::Flat);
        assert_eq!(used[Layout::Compact as usize], TRIAL);
        assert_eq!((choice.stretch, choice.left), (1, STRETCH));
    }

    /// As caches do it: a layout that was not in use is slow at first.
    #[test]
    fn what_is_cold_at_first_gets_its_chance() {
        let mut choice = Choice::new(Clock::monotonic("not read"));
        let mut compact = 0;
        for _ in 0..FIRST + TRIAL {
            let ticks = match choice.turn() {
                Layout::Flat => 100,
                Layout::Compact => {
                    compact += 1;
                    if compact <= (ROUNDS - JUDGED) * STRETCH {
                        300
                    } else {
                        90
                    }
                }
            };
            choice.done(64, ticks);
        }
        assert_eq!(choice.layout(), Layout::Compact);
    }

    /// A thread may lose its CPU for thousands of bursts' time, in whichever layout.
    #[test]
    fn interruptions_do_not_decide() {
        for faster in [Layout::Flat, Layout::Compact] {
            let mut choice = Choice::new(Clock::monotonic("not read"));
            for burst in 0..FIRST + TRIAL {
                let layout = choice.turn();
                let usual = if layout == faster { 100 } else { 200 };
                // One stretch in seven.
                let is_hit = burst % (7 * STRETCH) == STRETCH / 2 + 7;
                choice.done(64, if is_hit { 10_000_000 } else { usual });
            }
            assert_eq!(choice.layout(), faster);
        }
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
