//! The values of one field for a burst of frames at a time.
//!
//! A random field takes each value of its range once, in random order, before it takes any again;
//! each such pass is in another order. So 30,000 frames over a range of 30,000 are 30,000 flows,
//! and two random fields still give new pairs in each pass.

use std::num::Wrapping;
use std::ops::{Add, BitAnd, BitXor, Mul, Shr, Sub};

use linerate_core::random;

use super::values::Values;

/// Most values made at once: those of a burst.
pub(super) const MOST: usize = linerate_core::packet::Burst::CAPACITY;

/// A number as wide as the field needs, wrapping: narrow ones are made many at a time.
pub(super) trait Word:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + BitAnd<Output = Self>
    + BitXor<Output = Self>
    + Shr<usize, Output = Self>
{
    fn cut(value: u128) -> Self;
    fn wide(self) -> u128;
}

impl Word for Wrapping<u16> {
    #[inline(always)]
    fn cut(value: u128) -> Self {
        Self(value as u16)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        self.0.into()
    }
}

impl Word for Wrapping<u32> {
    #[inline(always)]
    fn cut(value: u128) -> Self {
        Self(value as u32)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        self.0.into()
    }
}

impl Word for Wrapping<u64> {
    #[inline(always)]
    fn cut(value: u128) -> Self {
        Self(value as u64)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        self.0.into()
    }
}

impl Word for Wrapping<u128> {
    #[inline(always)]
    fn cut(value: u128) -> Self {
        Self(value)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        self.0
    }
}

/// The source of a field's values, with its position.
#[derive(Debug)]
pub(super) enum Generator<W> {
    Cycle(Cycle<W>),
    Range(Range<W>),
    Random(Random<W>),
    Slow(Box<Slow<W>>),
}

/// Another generator's values, each repeated several times: a digit of a counter other than the
/// first.
#[derive(Debug)]
pub(super) struct Slow<W> {
    inner: Generator<W>,
    every: u128,
    /// The current value, and its remaining repetitions.
    at: (W, u128),
    mark: (W, u128),
}

/// The same values over and over: at least [`MOST`] of them, so that a burst is one copy or two.
#[derive(Debug)]
pub(super) struct Cycle<W> {
    values: Box<[W]>,
    at: usize,
    mark: usize,
}

/// From a first value in steps, and from the start again.
#[derive(Debug)]
pub(super) struct Range<W> {
    first: W,
    step: W,
    count: u128,
    /// The next value, and how many values are left before the first one comes again.
    at: (W, u128),
    mark: (W, u128),
}

/// A permutation of the numbers of some bits, from which those that are too large are left out.
#[derive(Debug)]
pub(super) struct Random<W> {
    first: W,
    /// Last less first.
    most: W,
    /// 2^bits - 1: the least such number that is at least `most`.
    mask: W,
    half: usize,
    at: Pass<W>,
    mark: Pass<W>,
    begin: Pass<W>,
}

/// Position of a random field.
#[derive(Clone, Copy, Debug)]
struct Pass<W> {
    /// Next input of the permutation; the last is `mask`.
    counter: W,
    keys: Keys<W>,
    seeds: u64,
}

/// Which permutation.
#[derive(Clone, Copy, Debug)]
struct Keys<W> {
    add: W,
    first: W,
    second: W,
    third: W,
}

/// The next of a sequence of 64-bit random numbers whose state is the argument.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(random::STEP);
    random::mixed(*state)
}

impl<W: Word> Generator<W> {
    /// A generator of `values`, which must not be a bare `random`; `seed` is for random ones.
    pub(super) fn new(values: &Values, seed: u64) -> Self {
        match *values {
            Values::Range { first, last, step } => {
                let count = ((last - first) / step).saturating_add(1);
                if count <= MOST as u128 {
                    let values: Vec<_> = (0..count).map(|n| first + n * step).collect();
                    return Self::cycle(&values);
                }
                let (first, step) = (W::cut(first), W::cut(step));
                Self::Range(Range {
                    first,
                    step,
                    count,
                    at: (first, count),
                    mark: (first, count),
                })
            }
            Values::RandomOf { first, last } if first == last => Self::cycle(&[first]),
            Values::RandomOf { first, last } => {
                let bits = 128 - (last - first).leading_zeros();
                let begin = Pass::first_of(seed);
                Self::Random(Random {
                    first: W::cut(first),
                    most: W::cut(last - first),
                    mask: W::cut(u128::MAX >> (128 - bits)),
                    half: bits.div_ceil(2) as usize,
                    at: begin,
                    mark: begin,
                    begin,
                })
            }
            Values::List(ref list) => Self::cycle(list),
            Values::Fixed(value) => Self::cycle(&[value]),
            Values::Random => Self::cycle(&[0]),
        }
    }

    /// The same with each value `every` times, 1 at least.
    pub(super) fn slower(self, every: u128) -> Self {
        let at = (W::cut(0), 0);
        match every {
            0 | 1 => self,
            every => Self::Slow(Box::new(Slow {
                inner: self,
                every,
                at,
                mark: at,
            })),
        }
    }

    fn cycle(values: &[u128]) -> Self {
        let rounds = MOST.div_ceil(values.len());
        let all = values.iter().cycle().take(rounds * values.len());
        Self::Cycle(Cycle {
            values: all.map(|&value| W::cut(value)).collect(),
            at: 0,
            mark: 0,
        })
    }

    /// Fills `to`, at most [`MOST`], with the next values.
    #[inline(always)]
    pub(super) fn fill(&mut self, to: &mut [W]) {
        match self {
            Self::Cycle(cycle) => cycle.fill(to),
            Self::Range(range) => range.fill(to),
            Self::Random(random) => random.fill(to),
            Self::Slow(slow) => slow.fill(to),
        }
    }

    /// Saves the position.
    #[inline(always)]
    pub(super) fn mark(&mut self) {
        match self {
            Self::Cycle(cycle) => cycle.mark = cycle.at,
            Self::Range(range) => range.mark = range.at,
            Self::Random(random) => random.mark = random.at,
            Self::Slow(slow) => slow.mark = slow.at,
        }
    }

    /// Goes back to the position of the last [`Generator::mark`].
    pub(super) fn back(&mut self) {
        match self {
            Self::Cycle(cycle) => cycle.at = cycle.mark,
            Self::Range(range) => range.at = range.mark,
            Self::Random(random) => random.at = random.mark,
            Self::Slow(slow) => slow.back(),
        }
    }

    /// Goes back to the first value.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Cycle(cycle) => cycle.at = 0,
            Self::Range(range) => range.at = (range.first, range.count),
            Self::Random(random) => random.at = random.begin,
            Self::Slow(slow) => slow.restart(),
        }
    }
}

impl<W: Word> Slow<W> {
    /// Out of line, since slow generators rarely have a new value.
    #[inline(never)]
    fn fill(&mut self, mut to: &mut [W]) {
        // If a burst takes several of the inner values, going back returns them.
        self.inner.mark();
        while !to.is_empty() {
            if self.at.1 == 0 {
                let mut next = [W::cut(0)];
                self.inner.fill(&mut next);
                self.at = (next[0], self.every);
            }
            let run = self.at.1.min(to.len() as u128) as usize;
            let (now, later) = to.split_at_mut(run);
            now.fill(self.at.0);
            self.at.1 -= run as u128;
            to = later;
        }
    }

    fn back(&mut self) {
        self.at = self.mark;
        self.inner.back();
    }

    fn restart(&mut self) {
        self.at.1 = 0;
        self.inner.restart();
    }
}

impl<W: Word> Cycle<W> {
    #[inline(always)]
    fn fill(&mut self, mut to: &mut [W]) {
        while !to.is_empty() {
            let run = to.len().min(self.values.len() - self.at);
            let (now, later) = to.split_at_mut(run);
            now.copy_from_slice(&self.values[self.at..self.at + run]);
            self.at += run;
            if self.at == self.values.len() {
                self.at = 0;
            }
            to = later;
        }
    }
}

impl<W: Word> Range<W> {
    #[inline(always)]
    fn fill(&mut self, mut to: &mut [W]) {
        while !to.is_empty() {
            let (mut next, left) = self.at;
            let run = left.min(to.len() as u128) as usize;
            let (now, later) = to.split_at_mut(run);
            for value in now {
                *value = next;
                next = next + self.step;
            }
            self.at = match left - run as u128 {
                0 => (self.first, self.count),
                left => (next, left),
            };
            to = later;
        }
    }
}

impl<W: Word> Pass<W> {
    fn first_of(seed: u64) -> Self {
        let mut seeds = seed;
        Self {
            counter: W::cut(0),
            keys: Keys::new(&mut seeds),
            seeds,
        }
    }
}

impl<W: Word> Keys<W> {
    fn new(seeds: &mut u64) -> Self {
        let mut word = || {
            let (high, low) = (split_mix(seeds), split_mix(seeds));
            u128::from(high) << 64 | u128::from(low)
        };
        let [add, first, second, third] = std::array::from_fn(|_| word());
        Self {
            add: W::cut(add),
            // Odd factors, for which multiplication is a permutation.
            first: W::cut(first | 1),
            second: W::cut(second | 1),
            third: W::cut(third | 1),
        }
    }
}

impl<W: Word> Random<W> {
    /// Each step is a permutation of the numbers up to `mask`.
    #[inline(always)]
    fn permute(&self, number: W) -> W {
        let Keys {
            add,
            first,
            second,
            third,
        } = self.at.keys;
        let mut word = ((number + add) * first) & self.mask;
        word = ((word ^ (word >> self.half)) * second) & self.mask;
        word = ((word ^ (word >> self.half)) * third) & self.mask;
        word ^ word >> self.half
    }

    #[inline(always)]
    fn fill(&mut self, to: &mut [W]) {
        let mut filled = 0;
        let mut tries = [W::cut(0); MOST];
        let one = W::cut(1);
        while filled < to.len() {
            // At least half of them are small enough.
            let ahead = (self.mask - self.at.counter).wide().min(MOST as u128 - 1) as usize + 1;
            let tries = &mut tries[..ahead.min((to.len() - filled) * 2).min(MOST)];
            let mut number = self.at.counter;
            for word in tries.iter_mut() {
                *word = number;
                number = number + one;
            }
            for word in tries.iter_mut() {
                *word = self.permute(*word);
            }
            if self.most == self.mask {
                let run = tries.len().min(to.len() - filled);
                for (to, &word) in to[filled..].iter_mut().zip(tries.iter()) {
                    *to = self.first + word;
                }
                filled += run;
                self.advance(run);
                continue;
            }
            let mut used = 0;
            for &word in tries.iter() {
                let Some(to) = to.get_mut(filled) else { break };
                *to = self.first + word;
                filled += usize::from(word <= self.most);
                used += 1;
            }
            self.advance(used);
        }
    }

    /// `used` numbers went into the permutation; after the last one another begins.
    #[inline(always)]
    fn advance(&mut self, used: usize) {
        let last = self.at.counter + W::cut(used as u128 - 1);
        if last == self.mask {
            self.at.counter = W::cut(0);
            self.at.keys = Keys::new(&mut self.at.seeds);
        } else {
            self.at.counter = last + W::cut(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn take<W: Word>(values: &Values, seed: u64, count: usize) -> Vec<u128> {
        let mut generator = Generator::<W>::new(values, seed);
        let mut all = vec![W::cut(0); count];
        // Bursts of all sizes.
        let mut at = 0;
        let mut size = 1;
        while at < count {
            let end = count.min(at + size);
            generator.fill(&mut all[at..end]);
            (at, size) = (end, size % MOST + 1);
        }
        all.into_iter().map(Word::wide).collect()
    }

    fn random(first: u128, last: u128) -> Values {
        Values::RandomOf { first, last }
    }

    #[test]
    fn slow_ones_stay_and_go_back_wherever_a_burst_ended() {
        for every in [1, 2, 63, 64, 65, 1000] {
            for values in [Values::List(vec![7, 9, 8]), random(0, 99)] {
                let inner = take::<Wrapping<u32>>(&values, 3, 2000);
                let mut slow = Generator::<Wrapping<u32>>::new(&values, 3).slower(every);
                let mut expected = inner.iter().flat_map(|&value| vec![value; every as usize]);
                for size in (1..=MOST).cycle().take(200) {
                    let mut first = vec![Wrapping(0); size];
                    slow.mark();
                    slow.fill(&mut first);
                    // Refused values come again.
                    let mut again = vec![Wrapping(0); size];
                    slow.back();
                    slow.mark();
                    slow.fill(&mut again);
                    assert_eq!(first, again, "every {every}");
                    let wanted: Vec<_> = expected.by_ref().take(size).collect();
                    let got: Vec<_> = again.iter().map(|value| u128::from(value.0)).collect();
                    assert_eq!(got[..wanted.len()], wanted[..], "every {every}");
                }
                slow.restart();
                let mut begin = [Wrapping(0)];
                slow.fill(&mut begin);
                assert_eq!(u128::from(begin[0].0), inner[0]);
            }
        }
    }

    #[test]
    fn ranges_step_and_begin_anew() {
        for (first, last, step) in [
            (0, 9, 1),
            (5, 5000, 7),
            (1024, 65535, 3),
            (10, 11, 5),
            (3, 66, 1),
        ] {
            let wanted = (first..=last).step_by(step as usize).cycle().take(70_000);
            let values = Values::Range { first, last, step };
            assert!(
                take::<Wrapping<u32>>(&values, 0, 70_000)
                    .into_iter()
                    .eq(wanted)
            );
        }
        let whole = Values::Range {
            first: 0,
            last: u128::MAX,
            step: 1,
        };
        assert_eq!(
            take::<Wrapping<u128>>(&whole, 0, 300),
            (0..300).collect::<Vec<_>>()
        );
        let top = Values::Range {
            first: u128::from(u64::MAX) - 99,
            last: u64::MAX.into(),
            step: 1,
        };
        let values = take::<Wrapping<u64>>(&top, 0, 101);
        assert_eq!(
            (values[99], values[100]),
            (u64::MAX.into(), u128::from(u64::MAX) - 99)
        );
    }

    #[test]
    fn lists_go_round() {
        let list = vec![7, 7, 1, 9, 3];
        let wanted: Vec<_> = list.iter().copied().cycle().take(1000).collect();
        assert_eq!(take::<Wrapping<u32>>(&Values::List(list), 0, 1000), wanted);
        let long: Vec<_> = (0..777).rev().collect();
        let wanted: Vec<_> = long.iter().copied().cycle().take(2000).collect();
        assert_eq!(take::<Wrapping<u64>>(&Values::List(long), 0, 2000), wanted);
    }

    #[test]
    fn random_ones_reach_every_value_once_in_each_pass() {
        // Pktgen's issues 349 and 295: 1,057 of 30,000 distinct, and 222 of 256.
        for (first, last) in [
            (0, 255),
            (0, 29_999),
            (1024, 65_535),
            (0, 65_535),
            (7, 8),
            (0, 2),
            (5, 68),
            (1, 300),
        ] {
            let range = (last - first + 1) as usize;
            for seed in 0..4 {
                let all = take::<Wrapping<u32>>(&random(first, last), seed, range * 3);
                let passes: Vec<_> = all.chunks(range).collect();
                for pass in &passes {
                    let distinct: HashSet<_> = pass.iter().copied().collect();
                    assert_eq!(distinct.len(), range, "{first}-{last}, seed {seed}");
                    assert!(pass.iter().all(|value| (first..=last).contains(value)));
                }
                assert!(range < 16 || passes[0] != passes[1] && passes[1] != passes[2]);
                assert_eq!(
                    all,
                    take::<Wrapping<u64>>(&random(first, last), seed, range * 3).as_slice(),
                    "as wide"
                );
            }
        }
    }

    #[test]
    fn random_ones_of_large_ranges_are_distinct_and_spread() {
        for last in [
            u128::from(u32::MAX),
            0xffff_ffff_ffff,
            u64::MAX.into(),
            1 << 80,
            u128::MAX,
        ] {
            let all = take::<Wrapping<u128>>(&random(0, last), 1, 30_000);
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), 30_000);
            // Sixteenths of the range: each with 1875 of them, give or take six deviations.
            let mut sixteenths = [0; 16];
            for value in all {
                sixteenths[(value / (last / 16 + 1)) as usize] += 1;
            }
            assert!(
                sixteenths.iter().all(|count| (1624..2126).contains(count)),
                "{last:#x}: {sixteenths:?}"
            );
        }
    }

    #[test]
    fn random_orders_have_no_step_that_stands_out() {
        // Of a permutation of 2^16, no difference between neighbours is much more frequent than
        // others.
        let all = take::<Wrapping<u32>>(&random(0, 0xffff), 9, 1 << 16);
        let mut steps = std::collections::HashMap::new();
        for pair in all.windows(2) {
            *steps
                .entry((pair[1] as u16).wrapping_sub(pair[0] as u16))
                .or_insert(0) += 1;
        }
        let most = steps.values().max().copied().unwrap_or(0);
        assert!(steps.len() > 20_000, "{} different steps", steps.len());
        assert!(most < 200, "one step {most} times");
    }

    #[test]
    fn two_random_fields_meet_in_new_pairs_in_each_pass() {
        let [a, b] = [1, 2].map(|seed| take::<Wrapping<u32>>(&random(0, 255), seed, 1 << 14));
        let pairs: HashSet<_> = a.into_iter().zip(b).collect();
        // 64 passes of 256 out of 65,536 pairs: by chance 14,500 are distinct.
        assert!(pairs.len() > 13_000, "{} pairs", pairs.len());
    }

    #[test]
    fn marks_and_restarts_bring_values_back() {
        let range = Values::Range {
            first: 3,
            last: 99,
            step: 1,
        };
        for values in [
            range,
            random(0, 70),
            random(0, 127),
            Values::List(vec![1, 2, 3]),
        ] {
            let wanted = take::<Wrapping<u32>>(&values, 5, 1000);
            let mut generator = Generator::<Wrapping<u32>>::new(&values, 5);
            let mut burst = [Wrapping(0); 50];
            for end in (50..1000).step_by(50) {
                for _ in 0..2 {
                    generator.mark();
                    generator.fill(&mut burst);
                    generator.back();
                }
                generator.fill(&mut burst);
                assert!(
                    burst
                        .iter()
                        .map(|value| value.wide())
                        .eq(wanted[end - 50..end].iter().copied())
                );
            }
            generator.restart();
            generator.fill(&mut burst);
            assert!(
                burst
                    .iter()
                    .map(|value| value.wide())
                    .eq(wanted[..50].iter().copied())
            );
        }
    }

    #[test]
    fn a_seed_gives_its_own_order_each_time() {
        let of = |seed| take::<Wrapping<u32>>(&random(0, 9999), seed, 500);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
