//! Converts latencies from ticks to nanoseconds for users.

use linerate_core::env::Clock;
use linerate_core::run::HistogramSnapshot;

use super::StreamReceived;
use crate::figures::Latency;

impl Latency {
    /// From a histogram of ticks, and the counts of one stream or the sum of several.
    pub fn of_ticks(ticks: &HistogramSnapshot, received: &StreamReceived, clock: &Clock) -> Self {
        if ticks.total == 0 {
            return Self::default();
        }
        let ns_per_tick = 1e9 / clock.hz();
        let ns = |ticks: f64| ticks * ns_per_tick;
        let percentile = |percent| ns(ticks.percentile(percent) as f64);
        Self {
            samples: ticks.total,
            min_ns: ns(ticks.min as f64),
            mean_ns: ns(ticks.mean()),
            p50_ns: percentile(50.0),
            p90_ns: percentile(90.0),
            p99_ns: percentile(99.0),
            p999_ns: percentile(99.9),
            p9999_ns: percentile(99.99),
            max_ns: ns(ticks.max as f64),
            jitter_ns: ns(received.jitter_ticks),
            ipdv_max_ns: ns(received.ipdv_max_ticks as f64),
            buckets: ticks
                .buckets()
                .map(|(upper, count)| (ns(upper as f64), count))
                .collect(),
        }
    }
}
