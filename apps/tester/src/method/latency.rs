//! Latency (RFC 2544 26.2) at one load, repeated; every frame is timed from the moment at which it
//! was to be sent.

use super::Tester;
use super::runner::Runner;
use crate::report::{LatencyRow, Trial};
use linerate_appliance::error::Error;
use linerate_traffic::figures::Latency;

/// Measures at `pps`, which `load` describes, so many times.
pub(super) fn at(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    (load, pps): (String, f64),
    repeats: usize,
) -> Result<LatencyRow, Error> {
    let mut row = LatencyRow {
        frame_bytes: size,
        load,
        pps,
        ..LatencyRow::default()
    };
    for _ in 0..repeats.max(1) {
        let load = run.load(size, Some(pps), run.settings.latency_trial);
        let outcome = run.trial(tester, &load, &mut Vec::new())?;
        if outcome.latency.samples > 0 {
            row.typical_ns.push(outcome.latency.p50_ns);
            row.worst_ns.push(outcome.latency.p999_ns);
        }
        row.latency = together(&row.latency, &outcome.latency);
        row.trial = sum(&row.trial, &outcome.trial);
    }
    row.pdv_ns = row.latency.p999_ns - row.latency.min_ns;
    Ok(row)
}

/// The sum of both distributions, bucket by bucket.
pub(crate) fn together(a: &Latency, b: &Latency) -> Latency {
    match (a.samples, b.samples) {
        (_, 0) => return a.clone(),
        (0, _) => return b.clone(),
        _ => {}
    }
    let mut buckets: Vec<(f64, u64)> = a.buckets.iter().chain(&b.buckets).copied().collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    let samples = a.samples + b.samples;
    let mean = |of: fn(&Latency) -> f64| {
        (of(a) * a.samples as f64 + of(b) * b.samples as f64) / samples as f64
    };
    let max_ns = a.max_ns.max(b.max_ns);
    let at = |share| percentile(&buckets, share).min(max_ns);
    Latency {
        samples,
        min_ns: a.min_ns.min(b.min_ns),
        mean_ns: mean(|of| of.mean_ns),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        p9999_ns: at(0.9999),
        max_ns,
        jitter_ns: mean(|of| of.jitter_ns),
        ipdv_max_ns: a.ipdv_max_ns.max(b.ipdv_max_ns),
        buckets,
    }
}

/// The upper bound of the bucket that holds the `share`-th sample.
fn percentile(buckets: &[(f64, u64)], share: f64) -> f64 {
    let all: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut sum = 0;
    let mut found = buckets.iter().filter(|bucket| {
        sum += bucket.1;
        sum >= wanted
    });
    found.next().map_or(0.0, |bucket| bucket.0)
}

/// The sum of both trials' counts and times; invalid for the first reason of either.
pub(super) fn sum(a: &Trial, b: &Trial) -> Trial {
    Trial {
        asked_pps: b.asked_pps,
        intended: a.intended + b.intended,
        sent: a.sent + b.sent,
        received: a.received + b.received,
        lost: a.lost + b.lost,
        unsent: a.unsent + b.unsent,
        missed: a.missed + b.missed,
        reordered: a.reordered + b.reordered,
        duplicates: a.duplicates + b.duplicates,
        seconds: a.seconds + b.seconds,
        stolen_ns: a.stolen_ns + b.stolen_ns,
        longest_stolen_ns: a.longest_stolen_ns.max(b.longest_stolen_ns),
        invalid: a.invalid.clone().or_else(|| b.invalid.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_are_one_distribution() {
        let of = |ns: f64, samples| Latency {
            samples,
            min_ns: ns,
            mean_ns: ns,
            max_ns: ns,
            buckets: vec![(ns, samples)],
            ..Latency::default()
        };
        let (fast, slow, none) = (of(100.0, 98), of(900.0, 2), Latency::default());
        let merged = together(&together(&fast, &none), &slow);
        assert_eq!(
            (merged.samples, merged.min_ns, merged.max_ns),
            (100, 100.0, 900.0)
        );
        assert_eq!(
            (merged.p50_ns, merged.p90_ns, merged.p99_ns),
            (100.0, 100.0, 900.0)
        );
        assert_eq!(merged.mean_ns, 116.0);
        assert_eq!(together(&none, &fast), fast);
        assert_eq!(together(&none, &none).samples, 0);
    }
}
