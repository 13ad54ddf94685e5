//! Samples of the counters: since when rates and totals are counted.

use std::time::{Duration, Instant};

use linerate_appliance::runtime::Sample;

/// Over which time rates are shown.
const RATES: Duration = Duration::from_secs(1);

/// Counters at the beginning, and lately.
pub(super) struct Readings {
    pub(super) began: Instant,
    pub(super) first: Sample,
    /// About a second ago.
    pub(super) previous: Sample,
    sampled: Instant,
    /// When the next line of statistics is due, and the sample that it counts from.
    period: Option<(Instant, Sample)>,
}

impl Readings {
    /// Begins now, with these counters.
    pub(super) fn new(now: Instant, first: Sample) -> Self {
        Self {
            began: now,
            previous: first.clone(),
            first,
            sampled: now,
            period: None,
        }
    }

    /// Whether the second is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.sampled + RATES
    }

    /// Takes a sample for the next second. Whether nothing was received in the last.
    pub(super) fn renew(&mut self, now: Instant, sample: Sample) -> bool {
        let quiet = sample.received() == self.previous.received();
        self.previous = sample;
        self.sampled = now;
        quiet
    }

    /// Where a line of statistics is due: what it counts from.
    pub(super) fn period_due(&self, now: Instant) -> Option<&Sample> {
        let (due, since) = self.period.as_ref()?;
        (now >= *due).then_some(since)
    }

    /// The next line is due after `time`, and counts from here; none without it.
    pub(super) fn begin_period(&mut self, now: Instant, time: Option<Duration>, sample: Sample) {
        self.period = time.map(|time| (now + time, sample));
    }
}
