//! A histogram of ticks: buckets that grow with the value, so that a percentile is within a fixed
//! share of the truth.
//!
//! Each octave is cut into `2^sub_bits` buckets of one width; below `2^sub_bits` each value has its
//! own. [`Histogram`] has 4 sub bits: within 6 %. Those who keep counters of their own use
//! [`bucket_of`] and hand them to [`HistogramSnapshot::of_counts`]; 7 sub bits are within 0.8 %.

use crate::port::Counter;

const SUB_BITS: u32 = 4;

/// Buckets that values of `value_bits` bits fall into.
pub const fn bucket_count(sub_bits: u32, value_bits: u32) -> usize {
    ((value_bits - sub_bits + 1) as usize) << sub_bits
}

/// The bucket of a value, with `2^SUB_BITS` to the octave.
#[inline(always)]
pub const fn bucket_of<const SUB_BITS: u32>(value: u64) -> usize {
    index_of(SUB_BITS, value)
}

#[inline(always)]
const fn index_of(sub_bits: u32, value: u64) -> usize {
    // Below 2^sub_bits the octave is 0 and the value its own bucket. Above, the highest bit of the
    // shifted value is set: it counts as the first of the octave's steps.
    let top = 63 - (value | 1 << sub_bits).leading_zeros();
    let octave = top - sub_bits;
    ((octave as usize) << sub_bits) + (value >> octave) as usize
}

/// Largest value that falls into a bucket.
pub fn bucket_upper(sub_bits: u32, index: usize) -> u64 {
    let step = index >> sub_bits;
    let shift = step.saturating_sub(1) as u32;
    let sub = index as u128 - ((shift as u128) << sub_bits);
    (((sub + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

/// Counts values with one writer; any thread may read meanwhile.
pub struct Histogram {
    buckets: Box<[Counter]>,
    min: Counter,
    max: Counter,
    sum: Counter,
}

impl Histogram {
    /// An empty histogram, 8 KiB.
    pub fn new() -> Self {
        let buckets = (0..bucket_count(SUB_BITS, 64)).map(|_| Counter::default());
        let min = Counter::default();
        min.set(u64::MAX);
        Self {
            buckets: buckets.collect(),
            min,
            max: Counter::default(),
            sum: Counter::default(),
        }
    }

    /// Counts `value` as often as `count` says. Only the one writer may.
    #[inline]
    pub fn record(&self, value: u64, count: u64) {
        self.buckets[bucket_of::<SUB_BITS>(value)].add(count);
        self.sum.add(value.wrapping_mul(count));
        if value > self.max.read() {
            self.max.set(value);
        }
        if value < self.min.read() {
            self.min.set(value);
        }
    }

    /// What is in it now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.buckets.iter().map(Counter::read).collect();
        HistogramSnapshot::of_counts(
            SUB_BITS,
            counts,
            self.min.read(),
            self.max.read(),
            self.sum.read(),
        )
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

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    sub_bits: u32,
    counts: Vec<u64>,
    /// Values counted.
    pub total: u64,
    /// Smallest value; `u64::MAX` with none counted.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Sum of all values, modulo 2^64.
    pub sum: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self::of_counts(SUB_BITS, Vec::new(), u64::MAX, 0, 0)
    }
}

impl HistogramSnapshot {
    /// From counters indexed by [`bucket_of`], with the extremes and the sum of the values.
    pub fn of_counts(sub_bits: u32, counts: Vec<u64>, min: u64, max: u64, sum: u64) -> Self {
        Self {
            sub_bits,
            total: counts.iter().sum(),
            counts,
            min,
            max,
            sum,
        }
    }

    /// The value that `percent` % of the counted ones do not exceed, at most one bucket too high; 0
    /// with none counted.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (upper, count) in self.buckets() {
            seen += count;
            if seen >= wanted {
                return upper.min(self.max);
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

    /// Adds another's counts. Where the two are cut differently, the coarser cut is that of the
    /// sum.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.sub_bits = other.sub_bits;
        }
        let mut coarser = None;
        if self.sub_bits > other.sub_bits && !other.counts.is_empty() {
            *self = self.coarsened(other.sub_bits);
        } else if self.sub_bits < other.sub_bits {
            coarser = Some(other.coarsened(self.sub_bits));
        }
        let counts = &coarser.as_ref().unwrap_or(other).counts;
        self.counts.resize(self.counts.len().max(counts.len()), 0);
        self.counts
            .iter_mut()
            .zip(counts)
            .for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// The same with `2^sub_bits` buckets to the octave, at most as many as now.
    fn coarsened(&self, sub_bits: u32) -> Self {
        let mut counts = vec![0; bucket_count(sub_bits, 64)];
        for (index, count) in self.counts.iter().enumerate() {
            // All values of a fine bucket fall into the same coarse one.
            counts[index_of(sub_bits, bucket_upper(self.sub_bits, index))] += count;
        }
        Self {
            sub_bits,
            counts,
            ..*self
        }
    }

    /// What was counted since an earlier snapshot of the same histogram. The extremes stay the
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
            sum: self.sum.wrapping_sub(earlier.sum),
            ..*self
        }
    }

    /// The buckets that hold something: largest value of the bucket, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(i, count)| (bucket_upper(self.sub_bits, i), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_covers_it_within_its_step() {
        fn check<const BITS: u32>() {
            for value in (0..2000)
                .chain((0..64).map(|bit| 1 << bit))
                .chain((1..64).map(|bit| (1 << bit) - 1))
                .chain([u64::MAX, u64::MAX / 3])
            {
                let index = bucket_of::<BITS>(value);
                assert!(index < bucket_count(BITS, 64), "{value}");
                let upper = bucket_upper(BITS, index);
                assert!(
                    upper >= value && upper - value <= value >> BITS,
                    "{value} in a bucket up to {upper}"
                );
                assert!(
                    index == 0 || bucket_upper(BITS, index - 1) < value,
                    "{value}"
                );
            }
            let most = bucket_of::<BITS>((1 << 47) - 1);
            assert_eq!(most + 1, bucket_count(BITS, 47));
        }
        check::<4>();
        check::<7>();
    }

    #[test]
    fn histograms_of_different_cuts_add_up_to_the_coarser() {
        let fine = |values: &[u64]| {
            let mut counts = vec![0; bucket_count(7, 64)];
            values
                .iter()
                .for_each(|&value| counts[bucket_of::<7>(value)] += 1);
            let [min, max] = [values.iter().min(), values.iter().max()].map(|v| *v.unwrap());
            HistogramSnapshot::of_counts(7, counts, min, max, values.iter().sum())
        };
        let values: Vec<u64> = (0..5000u64).map(|n| n * n * 7 % 1_000_003).collect();
        let coarse = Histogram::new();
        values.iter().for_each(|&value| coarse.record(value, 1));
        let coarse = coarse.snapshot();
        let mut merged = HistogramSnapshot::default();
        merged.merge(&fine(&values));
        assert_eq!(merged, fine(&values));
        let mut twice = coarse.clone();
        twice.merge(&coarse);
        merged.merge(&coarse);
        assert_eq!(merged, twice);
        let mut other = coarse.clone();
        other.merge(&fine(&values));
        assert_eq!(other, twice);
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
