//! NDR and PDR by MLRsearch (RFC 9971): several search goals in one pass over the same trials.
//!
//! A load is a *lower bound* of a goal when what was measured there is certain to satisfy it, an
//! *upper bound* when it is certain not to, whatever the rest of the duration sum would bring, and
//! undecided otherwise (appendix A). The *relevant* upper bound is the smallest upper bound, and
//! the relevant lower bound the largest lower bound below it: a larger load that passed by chance
//! does not count.
//!
//! Each goal is approached through coarser targets (shorter trials, smaller sum, larger width),
//! whose bounds say where the next one begins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::runner::{Runner, forwarded_pps, loss_ratio};
use super::settings::Goal;
use super::{Outcome, Tester};
use crate::report::{SearchEnd, Trial};
use linerate_appliance::error::Error;

/// Coarser targets before a goal.
const COARSER: u32 = 2;
/// Loads below this share of the maximum are not tried.
const LEAST_SHARE: f64 = 1e-4;
/// Limit of trials of a search; a search that reaches it is irregular.
const MOST_TRIALS: usize = 2000;

/// The part of a trial that classification uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// As it was asked for: decides between short and full-length.
    pub(super) asked_s: f64,
    /// What it counts for in sums.
    pub(super) seconds: f64,
    pub(super) loss_ratio: f64,
}

/// The class of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Lower,
    Upper,
    Undecided,
}

/// The part of a goal, or of a coarser target before it, that classification needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) trial_s: f64,
    pub(super) sum_s: f64,
    pub(super) loss_ratio: f64,
    pub(super) exceed_ratio: f64,
    pub(super) width: f64,
}

impl Target {
    pub(super) fn of(goal: &Goal) -> Self {
        Self {
            trial_s: goal.trial.as_secs_f64(),
            sum_s: goal.sum.as_secs_f64(),
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            width: goal.width,
        }
    }

    /// From coarse to the goal itself: trials and sums grow by the same factor each time, and the
    /// width halves.
    fn ladder(goal: &Goal) -> Vec<Self> {
        let last = Self::of(goal);
        let first_s = goal.first_trial.as_secs_f64().min(last.trial_s);
        let rung = |number: u32| {
            let share = f64::from(number) / f64::from(COARSER);
            let between = |from: f64, to: f64| from * (to / from).powf(share);
            Self {
                trial_s: between(first_s, last.trial_s),
                sum_s: between(first_s, last.sum_s),
                width: last.width * 2_f64.powi((COARSER - number) as i32),
                ..last
            }
        };
        (0..COARSER).map(rung).chain([last]).collect()
    }

    fn full_length<'a>(&self, trials: &'a [Measured]) -> impl Iterator<Item = &'a Measured> {
        // Lengths are computed: rounding must not make a trial short.
        let least = self.trial_s * (1.0 - 1e-9);
        trials.iter().filter(move |trial| trial.asked_s >= least)
    }

    /// RFC 9971 appendix A, load classification.
    pub(super) fn classify(&self, trials: &[Measured]) -> Bound {
        let least = self.trial_s * (1.0 - 1e-9);
        let sum = |full: bool, high: bool| -> f64 {
            let these = trials.iter().filter(|trial| {
                (trial.asked_s >= least) == full && (trial.loss_ratio > self.loss_ratio) == high
            });
            these.map(|trial| trial.seconds).sum()
        };
        let full_low = sum(true, false);
        let balancing = sum(false, false) * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let high = sum(true, true) + (sum(false, true) - balancing).max(0.0);
        let whole = (full_low + high).max(self.sum_s);
        // Sums of computed seconds: allows for rounding.
        let may_exceed = whole * self.exceed_ratio + whole * 1e-9;
        match (high <= may_exceed, whole - full_low <= may_exceed) {
            (true, true) => Bound::Lower,
            (false, false) => Bound::Upper,
            _ => Bound::Undecided,
        }
    }

    /// RFC 9971 appendix B, conditional throughput at a load.
    pub(super) fn conditional(&self, load_pps: f64, trials: &[Measured]) -> f64 {
        let mut full: Vec<&Measured> = self.full_length(trials).collect();
        full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let whole = full
            .iter()
            .map(|trial| trial.seconds)
            .sum::<f64>()
            .max(self.sum_s);
        let mut remaining = whole * (1.0 - self.exceed_ratio) - whole * 1e-9;
        let mut quantile = None;
        for trial in full {
            if quantile.is_some() && remaining <= 0.0 {
                break;
            }
            quantile = Some(trial.loss_ratio);
            remaining -= trial.seconds;
        }
        let quantile = quantile.filter(|_| remaining <= 0.0).unwrap_or(1.0);
        load_pps * (1.0 - quantile)
    }
}

/// All trials, by load in whole frames a second.
#[derive(Default)]
struct Book {
    loads: BTreeMap<u64, Vec<Measured>>,
    /// The same, as they are reported.
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// Loads at which a trial of the current target stayed disturbed: they are undecided, and the
    /// search goes on below.
    unclear: BTreeSet<u64>,
}

impl Book {
    fn bound(&self, target: &Target, load: u64) -> Bound {
        self.loads
            .get(&load)
            .map_or(Bound::Undecided, |trials| target.classify(trials))
    }

    fn upper(&self, target: &Target) -> Option<u64> {
        let mut loads = self.loads.iter();
        let found = loads.find(|(_, trials)| target.classify(trials) == Bound::Upper);
        found.map(|(load, _)| *load)
    }

    fn lower(&self, target: &Target, below: Option<u64>) -> Option<u64> {
        let mut loads = self.loads.range(..below.unwrap_or(u64::MAX)).rev();
        let found = loads.find(|(_, trials)| target.classify(trials) == Bound::Lower);
        found.map(|(load, _)| *load)
    }
}

/// What a search found for one goal.
pub(super) struct Found {
    /// Relevant lower bound, 0 for none. If even the maximum is a lower bound, it is the maximum,
    /// the result is irregular, and `upper` is `None`.
    pub(super) lower: f64,
    pub(super) upper: Option<f64>,
    pub(super) conditional_pps: f64,
    /// Whether both bounds are there, as close as the goal wants them.
    pub(super) regular: bool,
    pub(super) end: SearchEnd,
    /// The worst full-length trial at the relevant lower bound that the goal allows.
    pub(super) quoted: Outcome,
}

/// The state of a target's search.
struct Stand {
    lower: Option<u64>,
    upper: Option<u64>,
    end: SearchEnd,
}

/// Searches for all goals, `most` being the largest load. The first trial, a warm-up, is the
/// caller's.
pub(super) fn search(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    most: f64,
    goals: &[Goal],
    log: &mut Vec<Trial>,
) -> Result<Vec<Found>, Error> {
    let mut search = Search {
        run,
        tester,
        size,
        most: (most.floor() as u64).max(1),
        book: Book::default(),
        forwarded: None,
        log,
        left: MOST_TRIALS,
    };
    let ladders: Vec<Vec<Target>> = goals.iter().map(Target::ladder).collect();
    let mut stands: Vec<Option<Stand>> = goals.iter().map(|_| None).collect();
    for rung in 0..=COARSER as usize {
        for (ladder, stand) in ladders.iter().zip(&mut stands) {
            *stand = Some(search.target(&ladder[rung], stand.take())?);
        }
    }
    let book = search.book;
    // Later goals' trials may have moved earlier goals' bounds, so all are classified once more.
    let ends = stands
        .iter()
        .map(|stand| stand.as_ref().map(|stand| stand.end));
    let found =
        |(goal, end): (&Goal, Option<SearchEnd>)| found(&book, goal, most, end.unwrap_or_default());
    Ok(goals.iter().zip(ends).map(found).collect())
}

fn found(book: &Book, goal: &Goal, most: f64, end: SearchEnd) -> Found {
    let target = Target::of(goal);
    let upper = book.upper(&target);
    let lower = book.lower(&target, upper);
    let trials = lower.and_then(|lower| book.loads.get(&lower));
    let lower_pps = lower.map_or(0.0, |lower| lower as f64);
    let outcomes = lower.and_then(|lower| book.outcomes.get(&lower));
    let full = |outcome: &&Outcome| outcome.trial.seconds >= target.trial_s * 0.9;
    let mut full: Vec<&Outcome> = outcomes.into_iter().flatten().filter(full).collect();
    full.sort_by(|a, b| loss_ratio(&a.trial).total_cmp(&loss_ratio(&b.trial)));
    let well = full.partition_point(|outcome| loss_ratio(&outcome.trial) <= goal.loss_ratio);
    let quoted = full.get(well.saturating_sub(1)).copied();
    let regular = match (lower, upper) {
        (Some(lower), Some(upper)) => close(lower, upper, target.width),
        _ => false,
    };
    Found {
        lower: if upper.is_none() {
            lower_pps.min(most)
        } else {
            lower_pps
        },
        upper: upper.map(|upper| upper as f64),
        conditional_pps: trials.map_or(0.0, |trials| target.conditional(lower_pps, trials)),
        regular,
        end: if regular { SearchEnd::Bounds } else { end },
        quoted: quoted.cloned().unwrap_or_default(),
    }
}

/// Whether bounds are as close as a width wants; whole frames a second cannot be closer than one.
fn close(lower: u64, upper: u64, width: f64) -> bool {
    upper - lower <= 1 || (upper - lower) as f64 / upper as f64 <= width
}

struct Search<'a, 'b> {
    run: &'a mut Runner<'b>,
    tester: &'a mut dyn Tester,
    size: usize,
    most: u64,
    book: Book,
    /// Forwarding rate at the maximum load.
    forwarded: Option<f64>,
    log: &'a mut Vec<Trial>,
    /// Trials that may still be run.
    left: usize,
}

impl Search<'_, '_> {
    /// Finds the bounds of one target, beginning at those of the coarser one.
    fn target(&mut self, target: &Target, coarser: Option<Stand>) -> Result<Stand, Error> {
        let least = ((self.most as f64 * LEAST_SHARE) as u64).max(1);
        let hint = coarser.unwrap_or(Stand {
            lower: None,
            upper: None,
            end: SearchEnd::default(),
        });
        // Outward steps double; the first is the target's width.
        let mut step = target.width;
        self.book.unclear.clear();
        let mut hints = [hint.upper.unwrap_or(self.most), hint.lower.unwrap_or(0)]
            .into_iter()
            .filter(|load| *load > 0);
        loop {
            let upper = self.book.upper(target);
            let lower = self.book.lower(target, upper);
            // Where to search below: a bound, or a load that could not be decided.
            let above = lower.map_or(0, |lower| lower + 1);
            let unclear = self.book.unclear.range(above..).next().copied();
            let decided = upper;
            let upper = upper.into_iter().chain(unclear).min();
            let bounds = match upper == decided {
                true => SearchEnd::Bounds,
                false => SearchEnd::Disturbed,
            };
            let inside = |load: &u64| {
                upper.is_none_or(|upper| *load < upper) && lower.is_none_or(|lower| *load > lower)
            };
            let outward = |factor: f64, load: u64| (load as f64 * factor).round() as u64;
            let next = match (lower, upper) {
                (Some(lower), Some(upper)) if close(lower, upper, target.width) => Err(bounds),
                (Some(lower), None) if lower >= self.most => Err(SearchEnd::Most),
                (None, Some(upper)) if upper <= least => Err(bounds),
                _ if self.left == 0 => Err(SearchEnd::Limit),
                (Some(_), _) if self.run.is_late() => Err(SearchEnd::Limit),
                (lower, upper) => Ok(hints.find(inside).unwrap_or_else(|| match (lower, upper) {
                    (None, None) => self.most,
                    (Some(lower), None) => {
                        step *= 2.0;
                        outward(1.0 + step, lower).clamp(lower + 1, self.most)
                    }
                    (None, Some(upper)) => {
                        step *= 2.0;
                        let forwarded = self.forwarded.take().map(|pps| pps as u64);
                        let guess = forwarded.filter(|guess| (least..upper).contains(guess));
                        let lowered = outward(1.0 - step.min(0.5), upper);
                        guess.unwrap_or(lowered).clamp(least, upper - 1)
                    }
                    (Some(lower), Some(upper)) => {
                        let middle = (lower as f64 * upper as f64).sqrt() as u64;
                        middle.clamp(lower + 1, upper - 1)
                    }
                })),
            };
            match next {
                Ok(load) => self.decide(target, load)?,
                Err(end) => return Ok(Stand { lower, upper, end }),
            }
        }
    }

    /// Runs trials at a load until it is a bound, or one stays disturbed.
    fn decide(&mut self, target: &Target, load: u64) -> Result<(), Error> {
        while self.left > 0 && self.book.bound(target, load) == Bound::Undecided {
            self.left -= 1;
            let duration = Duration::from_secs_f64(target.trial_s);
            let asked = self.run.load(self.size, Some(load as f64), duration);
            let outcome = self.run.trial(self.tester, &asked, self.log)?;
            if outcome.trial.invalid.is_some() && loss_ratio(&outcome.trial) > target.loss_ratio {
                self.book.unclear.insert(load);
                return Ok(());
            }
            let measured = Measured {
                asked_s: target.trial_s,
                seconds: match outcome.trial.seconds > 0.0 {
                    true => outcome.trial.seconds,
                    false => target.trial_s,
                },
                loss_ratio: loss_ratio(&outcome.trial),
            };
            if load == self.most && self.forwarded.is_none() {
                self.forwarded = Some(forwarded_pps(&outcome.trial));
            }
            self.book.loads.entry(load).or_default().push(measured);
            self.book.outcomes.entry(load).or_default().push(outcome);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9971 appendix C: the example's four goals.
    fn goals() -> [Target; 4] {
        let goal = |trial_s, sum_s, loss_ratio, exceed_ratio| Target {
            trial_s,
            sum_s,
            loss_ratio,
            exceed_ratio,
            width: 0.005,
        };
        [
            goal(60.0, 60.0, 0.0, 0.0),
            goal(60.0, 120.0, 0.0, 0.5),
            goal(1.0, 120.0, 0.005, 0.5),
            goal(60.0, 60.0, 0.005, 0.2),
        ]
    }

    fn measured(count: usize, seconds: f64, loss_ratio: f64) -> Vec<Measured> {
        let one = Measured {
            asked_s: seconds,
            seconds,
            loss_ratio,
        };
        vec![one; count]
    }

    #[test]
    fn loads_are_classified_as_in_the_example_of_rfc_9971() {
        use Bound::{Lower, Undecided, Upper};
        // The example calls points 5 and 6 a lower bound of the last goal; but its own figures,
        // 42.857 % and 27.273 % of high loss, are above that goal's 20 %, and so by appendix A it
        // is none.
        let points = [
            (measured(59, 1.0, 0.0), [Undecided; 4]),
            (
                measured(1, 1.0, 0.01),
                [Upper, Undecided, Undecided, Undecided],
            ),
            (
                measured(59, 1.0, 0.01),
                [Upper, Undecided, Undecided, Upper],
            ),
            (measured(1, 1.0, 0.0), [Upper, Undecided, Lower, Upper]),
            (measured(1, 60.0, 0.001), [Upper, Undecided, Lower, Upper]),
            (measured(1, 60.0, 0.0), [Upper, Lower, Lower, Upper]),
        ];
        let mut trials = Vec::new();
        for (number, (added, wanted)) in points.into_iter().enumerate() {
            trials.extend(added);
            let found = goals().map(|goal| goal.classify(&trials));
            assert_eq!(found, wanted, "point {}", number + 1);
        }
        let conditional = goals().map(|goal| goal.conditional(1e6, &trials).round());
        assert_eq!(conditional[1..], [1e6, 1e6, 999_000.0]);
    }

    #[test]
    fn an_unmeasured_load_is_undecided_and_forwards_nothing_for_sure() {
        for goal in goals() {
            assert_eq!(goal.classify(&[]), Bound::Undecided);
            assert_eq!(goal.conditional(1e6, &[]), 0.0);
        }
    }

    #[test]
    fn of_inverted_bounds_the_smallest_upper_one_counts() {
        let mut book = Book::default();
        let target = goals()[2];
        for (load, loss) in [(100, 0.0), (200, 0.1), (300, 0.0), (400, 0.1)] {
            book.loads.insert(load, measured(120, 1.0, loss));
        }
        assert_eq!(book.upper(&target), Some(200));
        assert_eq!(book.lower(&target, Some(200)), Some(100));
    }

    #[test]
    fn a_ladder_ends_at_its_goal_and_halves_its_width() {
        let ladder = Target::ladder(&Goal::rfc2544());
        let widths: Vec<f64> = ladder.iter().map(|target| target.width).collect();
        assert_eq!(widths, [0.02, 0.01, 0.005]);
        assert_eq!(ladder[0].trial_s, 1.0);
        assert_eq!((ladder[2].trial_s, ladder[2].sum_s), (60.0, 60.0));
    }
}
