//! Intended times of frames: a [`Pacer`] gives one after the other, and [`weighted_order`] the
//! order in which streams share a pacer.
//!
//! Times are ticks with 64 bits of fraction, so that nothing drifts: at `r` frames a second for `T`
//! seconds exactly `floor(r * T)` frames are intended, for any `r`. The first leaves at the start;
//! a frame belongs to the time of a trial if the whole interval that it opens lies inside.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use linerate_core::random::Random;

/// How the frames of a stream, or of all that share a port's rate, are spread over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Frames a second; `None`: unlimited.
    pub pps: Option<f64>,
    /// Frames that leave together; the gap after a burst keeps to `pps`, unless `gap` says how long
    /// it is.
    pub burst: u32,
    /// From the end of a burst to the next. The frames of a burst then follow at `pps`, each
    /// opening an interval, or leave together if that is `None`.
    pub gap: Option<Duration>,
    /// Exponentially distributed gaps (a Poisson process), from this seed; `None`: constant gaps.
    pub poisson: Option<u64>,
    /// From the start to the first frame.
    pub delay: Duration,
}

impl Pace {
    /// One frame at a time, at equal distances; `None`: unlimited.
    pub fn even(pps: Option<f64>) -> Self {
        Self {
            pps,
            burst: 1,
            gap: None,
            poisson: None,
            delay: Duration::ZERO,
        }
    }

    /// Whether its frames have no intended times.
    pub fn is_max(&self) -> bool {
        self.pps.is_none() && self.gap.is_none()
    }
}

/// The time in which frames may be intended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Tick at which it begins.
    pub(super) from: u64,
    /// How long it lasts; `None`: no limit.
    pub(super) lasts: Option<Duration>,
    pub(super) ticks_per_second: f64,
}

impl Window {
    /// The first tick after it.
    pub(super) fn until(&self) -> u64 {
        let ticks = |lasts: Duration| (lasts.as_secs_f64() * self.ticks_per_second) as u64;
        let until = |lasts| self.from.saturating_add(ticks(lasts));
        self.lasts.map_or(u64::MAX, until)
    }

    /// The rest of it at tick `at`, at most all of it.
    pub(super) fn rest(&self, at: u64) -> Self {
        let gone =
            Duration::from_secs_f64(at.saturating_sub(self.from) as f64 / self.ticks_per_second);
        Self {
            from: self.from.max(at),
            lasts: self.lasts.map(|lasts| lasts.saturating_sub(gone)),
            ..*self
        }
    }

    fn ticks(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.ticks_per_second).ceil() as u64
    }
}

/// One intended time after the other.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    kind: Timing,
    /// When the next frame leaves, in ticks.
    leaves: u64,
    /// When the present burst leaves, in ticks with 64 bits of fraction.
    due: u128,
    /// From burst to burst, likewise; with Poisson gaps their mean.
    period: u128,
    /// From frame to frame within a burst, likewise.
    spacing: u128,
    burst: u32,
    /// Frames of the present burst that have gone.
    gone: u32,
    /// Frames that are still to be intended.
    left: u64,
    /// No frame leaves from this tick on.
    until: u64,
}

#[derive(Clone, Debug)]
enum Timing {
    /// Unlimited: each leaves as soon as possible.
    Max,
    Even,
    Poisson(Random),
    /// At times of its own.
    ReplayClock(ReplayClock),
}

/// The times of a recording, played again and again.
#[derive(Clone, Debug)]
pub(super) struct ReplayClock {
    /// Ticks from the first frame to each.
    pub(super) offsets: std::sync::Arc<[u64]>,
    /// Ticks from the first frame to the first of the next pass.
    pub(super) length: u64,
    at: usize,
    pass_began: u64,
}

impl ReplayClock {
    pub(super) fn new(offsets: std::sync::Arc<[u64]>, length: u64) -> Self {
        Self {
            offsets,
            length,
            at: 0,
            pass_began: 0,
        }
    }

    /// Skips whole passes that end before `horizon`, with at most `most` frames; returns how many.
    /// The present frame keeps its place in the pass.
    fn leap(&mut self, horizon: u64, most: u64) -> u64 {
        let frames = self.offsets.len() as u64;
        let passes = horizon.saturating_sub(self.pass_began) / self.length.max(1);
        let passes = passes.saturating_sub(1).min(most / frames.max(1));
        self.pass_began += passes * self.length;
        passes * frames
    }
}

/// Gaps of a Poisson process that are drawn to be skipped.
const MOST_DRAWN: u128 = 1 << 20;
const FRACTION_BITS: u32 = 64;
const ONE: f64 = 18_446_744_073_709_551_616.0;

impl Pacer {
    pub(super) fn new(pace: &Pace, window: &Window) -> Self {
        let delay = window.ticks(pace.delay);
        let lasts = window.lasts.map(|lasts| lasts.saturating_sub(pace.delay));
        let from = window.from.saturating_add(delay);
        let burst = pace.burst.max(1);
        let pps = pace.pps.unwrap_or(f64::INFINITY);
        let kind = match pace.poisson {
            _ if pace.is_max() => Timing::Max,
            Some(seed) if pace.gap.is_none() => Timing::Poisson(Random::new(seed)),
            _ => Timing::Even,
        };
        // Even schedules are counted in frames, so that rounding of ticks does not add or remove a
        // frame.
        let (left, until) = match (&kind, pace.gap, lasts) {
            (Timing::Even, None, Some(lasts)) => (whole_frames(pps, lasts), u64::MAX),
            _ if pps > 0.0 => (u64::MAX, window.until()),
            _ => (0, 0),
        };
        let interval = window.ticks_per_second / pps * ONE;
        let period = interval * f64::from(burst);
        let gap = pace
            .gap
            .map(|gap| gap.as_secs_f64() * window.ticks_per_second * ONE);
        let mut pacer = Self {
            kind,
            leaves: from,
            due: u128::from(from) << FRACTION_BITS,
            period: ((period + gap.unwrap_or(0.0)) as u128).max(1),
            spacing: gap.map_or(0, |_| interval as u128),
            burst,
            gone: 0,
            left,
            until,
        };
        // A Poisson process begins at a random point of a gap.
        if matches!(pacer.kind, Timing::Poisson(_)) {
            pacer.next_burst();
        }
        pacer
    }

    /// A pacer with a recording's own timing.
    pub(super) fn cued(mut replay_clock: ReplayClock, delay: Duration, window: &Window) -> Self {
        let from = window.from.saturating_add(window.ticks(delay));
        (replay_clock.at, replay_clock.pass_began) = (0, from);
        let leaves = from.saturating_add(replay_clock.offsets.first().copied().unwrap_or(0));
        Self {
            left: if replay_clock.offsets.is_empty() {
                0
            } else {
                u64::MAX
            },
            kind: Timing::ReplayClock(replay_clock),
            leaves,
            due: 0,
            period: 1,
            spacing: 0,
            burst: 1,
            gone: 0,
            until: window.until(),
        }
    }

    /// Whether frames go as fast as they can, without intended times.
    pub(super) fn is_max(&self) -> bool {
        matches!(self.kind, Timing::Max)
    }

    /// The tick at which the next frame is to leave; `None` after the last.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        (self.left > 0 && self.leaves < self.until).then_some(self.leaves)
    }

    /// The end of the interval of the last frame taken: the tick at which the next one would leave.
    pub(super) fn opens(&self) -> u64 {
        self.leaves
    }

    /// Advances by one frame.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.left -= 1;
        self.gone += 1;
        if self.gone == self.burst {
            self.gone = 0;
            self.next_burst();
        } else if self.spacing > 0 {
            self.set_leaves();
        }
    }

    #[inline(always)]
    fn set_leaves(&mut self) {
        let due = self.due + u128::from(self.gone) * self.spacing;
        self.leaves = (due >> FRACTION_BITS) as u64;
    }

    #[inline]
    fn next_burst(&mut self) {
        self.due += match &mut self.kind {
            Timing::Even | Timing::Max => self.period,
            Timing::Poisson(random) => (exponential(random) * self.period as f64) as u128,
            Timing::ReplayClock(replay_clock) => {
                replay_clock.at += 1;
                if replay_clock.at == replay_clock.offsets.len() {
                    replay_clock.at = 0;
                    replay_clock.pass_began =
                        replay_clock.pass_began.saturating_add(replay_clock.length);
                }
                self.leaves = replay_clock
                    .pass_began
                    .saturating_add(replay_clock.offsets[replay_clock.at]);
                return;
            }
        };
        self.leaves = (self.due >> FRACTION_BITS) as u64;
    }

    /// Skips frames that were to leave at `horizon` or before, at most `most` of them; returns how
    /// many. Even pacers leap, others step.
    pub(super) fn skip_through(&mut self, horizon: u64, most: u64) -> u64 {
        if self.next().is_none_or(|leaves| leaves > horizon) {
            return 0;
        }
        // No clock reaches half of the range, so nothing overflows.
        let horizon = horizon.min(self.until - 1).min(u64::MAX >> 1);
        let end = (u128::from(horizon) + 1) << FRACTION_BITS;
        let bursts = (end - 1).saturating_sub(self.due) / self.period;
        if self.is_even() {
            let last = end - 1 - (self.due + bursts * self.period);
            let of_last = (last.checked_div(self.spacing)).map_or(u128::MAX, |whole| whole + 1);
            let through = bursts.saturating_mul(self.burst.into()) + of_last.min(self.burst.into());
            // In a burst that has begun, `gone` of them have left.
            let frames = through.saturating_sub(self.gone.into());
            let frames = frames.min(most.min(self.left).into()) as u64;
            self.leap(frames);
            return frames;
        }
        let mut skipped = 0;
        match &mut self.kind {
            Timing::ReplayClock(replay_clock) => skipped = replay_clock.leap(horizon, most),
            // Too many to draw them all: skips the expected number.
            Timing::Poisson(_) if bursts > MOST_DRAWN => {
                skipped = (bursts as u64).saturating_mul(self.burst.into()).min(most);
                self.due += bursts * self.period;
                self.set_leaves();
            }
            _ => {}
        }
        while skipped < most && self.next().is_some_and(|leaves| leaves <= horizon) {
            self.advance();
            skipped += 1;
        }
        skipped
    }

    /// Whether it can skip any number of frames in one step.
    pub(super) fn is_even(&self) -> bool {
        matches!(self.kind, Timing::Even)
    }

    /// [`advance`](Self::advance), `frames` times, of an even pacer.
    fn leap(&mut self, frames: u64) {
        let gone = u64::from(self.gone) + frames;
        self.left -= frames;
        self.due += u128::from(gone / u64::from(self.burst)) * self.period;
        self.gone = (gone % u64::from(self.burst)) as u32;
        self.set_leaves();
    }

    /// Ends the schedule.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

/// `floor(pps * time)`. The rate, the time and their product are each rounded to 53 bits, so a
/// product within that precision below a whole number counts as the whole number.
pub(super) fn whole_frames(pps: f64, time: Duration) -> u64 {
    let frames = pps * time.as_secs_f64();
    (frames * (1.0 + 2.0 * f64::EPSILON)).floor() as u64
}

/// Exponentially distributed with mean 1, by inversion of a number in (0, 1].
#[inline]
fn exponential(random: &mut Random) -> f64 {
    -(random.unit() + f64::EPSILON / 2.0).ln()
}

/// Longest order that streams may share a rate in, in frames.
pub(super) const LONGEST_ORDER: u64 = 1 << 16;

/// The order in which streams take turns, by weight: in it each comes as often as its weight says
/// (after division by what all have in common), spread so that at any point a stream is less than
/// one frame off its share. `None` where the order would be longer than [`LONGEST_ORDER`].
///
/// It is worst-case fair weighted fair queueing (Bennett and Zhang, 1996): of the streams that are
/// not ahead of their share, the one that must come first.
pub(super) fn weighted_order(weights: &[u32]) -> Option<Vec<u32>> {
    let common = weights.iter().copied().fold(0, gcd).max(1);
    let total: u64 = weights
        .iter()
        .map(|&weight| u64::from(weight / common))
        .sum();
    if total > LONGEST_ORDER {
        return None;
    }
    let weight = |stream: u32| u64::from(weights[stream as usize] / common);
    // By the slot from which on a stream is not ahead any more, and by its deadline.
    let mut ahead: BinaryHeap<Reverse<(u64, u32, u64)>> = (0u32..)
        .zip(weights)
        .filter(|&(_, &weight)| weight > 0)
        .map(|(stream, _)| Reverse((0, stream, 0)))
        .collect();
    let mut ready: BinaryHeap<Reverse<(u128, u32, u64)>> = BinaryHeap::new();
    let mut order = Vec::with_capacity(total as usize);
    for slot in 0..total {
        while let Some(&Reverse((from, stream, turn))) = ahead.peek() {
            if from > slot {
                break;
            }
            ahead.pop();
            let deadline = (u128::from((turn + 1) * total) << 40) / u128::from(weight(stream));
            ready.push(Reverse((deadline, stream, turn)));
        }
        let Some(Reverse((_, stream, turn))) = ready.pop() else {
            break; // cannot occur: not all can be ahead of their shares at once
        };
        order.push(stream);
        let turn = turn + 1;
        if turn < weight(stream) {
            ahead.push(Reverse((
                (turn * total).div_ceil(weight(stream)),
                stream,
                turn,
            )));
        }
    }
    Some(order)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
