//! A histogram of ticks: 16 buckets to the octave, so that a percentile is within 6 %.

use crate::port::Counter;

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Counts values with one writer; any thread may read meanwhile.
pub struct Histogram {
    buckets: Box<[Counter]>,
    max: Counter,
    sum: Counter,
}

impl Histogram {
    /// An empty histogram, 8 KiB.
    pub fn new() -> Self {
        let buckets = (0..BUCKETS).map(|_| Counter::default()).collect();
        Self {
            buckets,
            max: Counter::default(),
            sum: Counter::default(),
        }
    }

    /// Counts `value` as often as `count` says. Only the one writer may.
    #[inline]
    pub fn record(&self, value: u64, count: u64) {
        self.buckets[index_of(value)].add(count);
        self.sum.add(value.wrapping_mul(count));
        if value > self.max.read() {
            self.max.set(value);
        }
    }

    /// What is in it now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts: Vec<u64> = self.buckets.iter().map(Counter::read).collect();
        HistogramSnapshot {
            total: counts.iter().sum(),
            counts,
            max: self.max.read(),
            sum: self.sum.read(),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.snapshot().fmt(f)
    }
}

#[inline]
fn index_of(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() - SUB_BITS;
    (octave as usize + 1) * SUB + (value >> octave) as usize - SUB
}

/// Largest value that falls into a bucket.
fn upper_of(index: usize) -> u64 {
    let (octave, sub) = (index / SUB, index % SUB);
    if octave == 0 {
        return sub as u64;
    }
    let shift = octave as u32 - 1;
    (((SUB + sub) as u128 + 1) << shift)
        .saturating_sub(1)
        .min(u128::from(u64::MAX)) as u64
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    /// Values counted.
    pub total: u64,
    /// Largest value.
    pub max: u64,
    /// Sum of all values, modulo 2^64.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// The value that `percent` % of the counted ones do not exceed; 0 with none counted.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_of(index).min(self.max);
            }
        }
        self.max
    }

    /// Mean of the values.
    pub fn mean(&self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            self.sum as f64 / self.total as f64
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .resize(self.counts.len().max(other.counts.len()), 0);
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// What was counted since an earlier snapshot of the same histogram. The maximum stays the
    /// whole time's.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |index: usize| earlier.counts.get(index).copied().unwrap_or(0);
        let counts = self
            .counts
            .iter()
            .enumerate()
            .map(|(i, count)| count - before(i))
            .collect();
        Self {
            counts,
            total: self.total - earlier.total,
            max: self.max,
            sum: self.sum.wrapping_sub(earlier.sum),
        }
    }

    /// The buckets that hold something: largest value of the bucket, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(i, count)| (upper_of(i), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_covers_it_within_a_sixteenth() {
        for value in (0..2000)
            .chain((0..64).map(|bit| 1 << bit))
            .chain([u64::MAX, u64::MAX / 3])
        {
            let upper = upper_of(index_of(value));
            assert!(
                upper >= value && upper - value <= value / 16 + 1,
                "{value} in a bucket up to {upper}"
            );
            assert!(
                index_of(value) == 0 || upper_of(index_of(value) - 1) < value,
                "{value}"
            );
        }
    }

    #[test]
    fn percentiles_count_weights() {
        let histogram = Histogram::new();
        histogram.record(10, 98);
        histogram.record(1000, 2);
        let snapshot = histogram.snapshot();
        assert_eq!(
            (snapshot.percentile(50.0), snapshot.total, snapshot.max),
            (10, 100, 1000)
        );
        assert_eq!(snapshot.percentile(99.0), 1000);
        histogram.record(20, 100);
        let later = histogram.snapshot().since(&snapshot);
        assert_eq!((later.percentile(50.0), later.total), (20, 100));
        assert_eq!(HistogramSnapshot::default().percentile(99.0), 0);
    }
}
