//! Latency distributions of several ports as one.

use crate::apps::pktgen::Latency;

/// All of them together; percentiles are those of the merged buckets.
pub(super) fn merge<'a>(parts: impl Iterator<Item = &'a Latency>) -> Latency {
    let parts: Vec<&Latency> = parts.filter(|part| part.samples > 0).collect();
    if let [] | [_] = parts[..] {
        return parts
            .first()
            .map_or_else(Latency::default, |part| (*part).clone());
    }
    let samples: u64 = parts.iter().map(|part| part.samples).sum();
    let mean = |value: fn(&Latency) -> f64| {
        let weighted = parts.iter().map(|part| value(part) * part.samples as f64);
        weighted.sum::<f64>() / samples as f64
    };
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for &(upper, count) in parts.iter().flat_map(|part| &part.buckets) {
        match buckets.iter_mut().find(|(other, _)| *other == upper) {
            Some((_, sum)) => *sum += count,
            None => buckets.push((upper, count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let max_ns = parts.iter().map(|part| part.max_ns).fold(0.0, f64::max);
    let percentile = |percent: f64| {
        let wanted = (samples as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(max_ns, |(upper, _)| upper.min(max_ns))
    };
    Latency {
        samples,
        min_ns: parts
            .iter()
            .map(|part| part.min_ns)
            .fold(f64::MAX, f64::min),
        mean_ns: mean(|part| part.mean_ns),
        p50_ns: percentile(50.0),
        p90_ns: percentile(90.0),
        p99_ns: percentile(99.0),
        p999_ns: percentile(99.9),
        p9999_ns: percentile(99.99),
        max_ns,
        jitter_ns: mean(|part| part.jitter_ns),
        ipdv_max_ns: parts
            .iter()
            .map(|part| part.ipdv_max_ns)
            .fold(0.0, f64::max),
        buckets,
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
        let merged = merge([&fast, &none, &slow].into_iter());
        assert_eq!(
            (merged.samples, merged.min_ns, merged.max_ns),
            (100, 100.0, 900.0)
        );
        assert_eq!(
            (merged.p50_ns, merged.p90_ns, merged.p99_ns),
            (100.0, 100.0, 900.0)
        );
        assert_eq!(merged.mean_ns, 116.0);
        assert_eq!(merge([&fast, &none].into_iter()), fast);
        assert_eq!(merge(std::iter::empty()).samples, 0);
    }
}
