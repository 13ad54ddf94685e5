//! What a client counts: written by its lcore, read by any thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linerate_core::port::Counter;
use linerate_core::run::{HistogramSnapshot, bucket_count, bucket_of, bucket_upper};

/// Buckets to the octave are 2^7: a percentile is within 0.8 %.
const SUB_BITS: u32 = 7;
/// The longest latency that is told apart, 2^44 ns: 4.9 hours.
const VALUE_BITS: u32 = 44;

/// The meters of the clients of all lcores, in the order in which those were made.
#[derive(Debug, Default)]
pub struct Meters(Mutex<Vec<Arc<Meter>>>);

impl Meters {
    /// A new one.
    pub fn add(&self) -> Arc<Meter> {
        let meter = Arc::new(Meter::default());
        self.lock().push(meter.clone());
        meter
    }

    /// All that there are.
    pub fn all(&self) -> Vec<Arc<Meter>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Meter>>> {
        // Nobody panics while it is held: one that had would have left it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of one client.
pub struct Meter {
    /// Connections that were begun.
    pub opened: Counter,
    /// Those that are there.
    pub open: Counter,
    /// Connections that could not be begun: no port, no room, no way there.
    pub refused: Counter,
    /// Requests begun; one that is asked again on another connection counts once.
    pub requests: Counter,
    /// Whole answers by the first digit of their status: 1 is that of none, since interim ones are
    /// not counted.
    pub answers: [Counter; 10],
    /// Bytes of bodies.
    pub bytes: Counter,
    /// Answers with another body than was expected.
    pub wrong: Counter,
    /// Requests whose connection ended, or that were answered by something else than HTTP.
    pub failed: Counter,
    /// Requests that were not answered in time.
    pub timed_out: Counter,
    /// Connections on which something came that nobody had asked for.
    pub unasked: Counter,
    /// Requests asked again, since the server ended a kept connection as they left (RFC 9112 9.5).
    pub again: Counter,
    /// Requests that should have left and wait for a connection.
    pub waiting: Counter,
    latency: Box<[Counter]>,
    sum_ns: Counter,
    max_ns: Counter,
}

impl Default for Meter {
    fn default() -> Self {
        let buckets = (0..bucket_count(SUB_BITS, VALUE_BITS)).map(|_| Counter::default());
        Self {
            opened: Counter::default(),
            open: Counter::default(),
            refused: Counter::default(),
            requests: Counter::default(),
            answers: Default::default(),
            bytes: Counter::default(),
            wrong: Counter::default(),
            failed: Counter::default(),
            timed_out: Counter::default(),
            unasked: Counter::default(),
            again: Counter::default(),
            waiting: Counter::default(),
            latency: buckets.collect(),
            sum_ns: Counter::default(),
            max_ns: Counter::default(),
        }
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.counts()).finish()
    }
}

impl Meter {
    /// An answer has come after so long.
    #[inline]
    pub fn answered(&self, code: u16, latency_ns: u64) {
        self.answers[usize::from(code / 100).min(9)].add(1);
        let latency_ns = latency_ns.min((1 << VALUE_BITS) - 1);
        self.latency[bucket_of::<SUB_BITS>(latency_ns)].add(1);
        self.sum_ns.add(latency_ns);
        if latency_ns > self.max_ns.read() {
            self.max_ns.set(latency_ns);
        }
    }

    /// Whole answers.
    pub fn answered_total(&self) -> u64 {
        self.answers.iter().map(Counter::read).sum()
    }

    /// Latencies in nanoseconds.
    pub fn latency(&self) -> HistogramSnapshot {
        let counts: Vec<u64> = self.latency.iter().map(Counter::read).collect();
        let lowest = counts.iter().position(|count| *count > 0);
        let min = lowest.map_or(u64::MAX, |index| match index {
            0 => 0,
            index => bucket_upper(SUB_BITS, index - 1) + 1,
        });
        let (max, sum) = (self.max_ns.read(), self.sum_ns.read());
        HistogramSnapshot::of_counts(SUB_BITS, counts, min, max, sum)
    }

    /// Names and values of all but latencies.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("open", self.open.read()),
            ("opened", self.opened.read()),
            ("refused", self.refused.read()),
            ("requests", self.requests.read()),
            ("answers", self.answered_total()),
            ("2xx", self.answers[2].read()),
            ("3xx", self.answers[3].read()),
            ("4xx", self.answers[4].read()),
            ("5xx", self.answers[5].read()),
            ("bytes", self.bytes.read()),
            ("wrong", self.wrong.read()),
            ("failed", self.failed.read()),
            ("timed_out", self.timed_out.read()),
            ("unasked", self.unasked.read()),
            ("again", self.again.read()),
            ("waiting", self.waiting.read()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_within_their_step() {
        let meter = Meter::default();
        for ns in 1..=1000 {
            meter.answered(200, ns * 1000);
        }
        meter.answered(503, u64::MAX);
        let latency = meter.latency();
        assert_eq!((latency.total, meter.answered_total()), (1001, 1001));
        let half = latency.percentile(50.0);
        assert!((500_000..505_000).contains(&half), "{half}");
        assert!(latency.min <= 1000 && latency.min > 990);
        assert_eq!(latency.max, (1 << VALUE_BITS) - 1);
        assert_eq!(meter.answers[5].read(), 1);
    }
}
