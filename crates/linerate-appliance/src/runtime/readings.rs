//! Samples of the counters that a run keeps: since when rates, totals and lines of statistics are
//! counted.

use std::time::{Duration, Instant};

use super::{Reading, Sample};

/// Over which time rates are shown to those who ask.
const RATES: Duration = Duration::from_secs(1);

/// Counters at the beginning, and lately.
pub struct Readings {
    /// Since when there is forwarding.
    pub began: Instant,
    /// Counters then.
    pub first: Sample,
    /// Counters about a second ago.
    pub previous: Sample,
    sampled: Instant,
    period: Option<Period>,
}

/// Lines of statistics.
struct Period {
    every: Duration,
    /// When the next is due.
    due: Instant,
    /// What it counts from.
    since: Sample,
}

impl Readings {
    /// Begins now, with these counters; a line of statistics is due `every` so often, or never.
    pub fn new(now: Instant, first: Sample, every: Option<Duration>) -> Self {
        let period = every.map(|every| Period {
            every,
            due: now + every,
            since: first.clone(),
        });
        Self {
            began: now,
            previous: first.clone(),
            first,
            sampled: now,
            period,
        }
    }

    /// Whether the second is over.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.sampled + RATES
    }

    /// Takes a sample for the next second. Whether nothing was received in the last.
    pub fn renew(&mut self, now: Instant, sample: Sample) -> bool {
        let quiet = sample.received() == self.previous.received();
        self.previous = sample;
        self.sampled = now;
        quiet
    }

    /// When the next line of statistics is due.
    pub fn period_due(&self) -> Option<Instant> {
        self.period.as_ref().map(|period| period.due)
    }

    /// Where a line of statistics is due: what it says, of a sample that `take` takes. Of lines
    /// that are late one is left out, and the others keep their beat.
    pub fn period(&mut self, now: Instant, take: impl FnOnce() -> Sample) -> Option<Reading> {
        let period = self.period.as_mut().filter(|period| now >= period.due)?;
        let sample = take();
        let reading = sample.since(&period.since);
        period.since = sample;
        period.due = now
            .checked_sub(period.every)
            .map_or(period.due, |last| period.due.max(last));
        period.due += period.every;
        Some(reading)
    }
}
