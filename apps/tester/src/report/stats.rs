//! Figures about few repeated results, without assuming how they are distributed.

/// Quantile by linear interpolation; `None` without values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let next = sorted.get(low + 1).unwrap_or(&sorted[low]);
    Some(sorted[low] * (1.0 - part) + next * part)
}

pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Standard deviation of a sample; `None` for less than two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// A ratio with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// How often such an interval holds the true ratio.
    pub(crate) coverage: f64,
}

/// Least coverage of an interval.
const COVERAGE: f64 = 0.8;

impl Ratio {
    /// The interval of the true ratio, and its coverage; `None` for too few values: one pair would
    /// give a point.
    pub(crate) fn interval(&self) -> Option<(f64, f64, f64)> {
        (self.coverage >= COVERAGE - 1e-9).then_some((self.low, self.high, self.coverage))
    }
}

/// How much larger `after` is than `before`: the median of all ratios of one to the other (Hodges
/// and Lehmann), with the rank-based interval of 95 % coverage or, for too few values, the widest
/// one and its coverage. `None` where either is empty or not above zero.
pub(crate) fn ratio(before: &[f64], after: &[f64]) -> Option<Ratio> {
    let positive = |values: &[f64]| values.iter().all(|value| *value > 0.0);
    let pairs = after.iter().flat_map(|a| before.iter().map(move |b| a / b));
    let mut ratios: Vec<f64> = pairs.collect();
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() || !positive(before) || !positive(after) {
        return None;
    }
    let below = |rank: usize| -> f64 {
        let ways = ways(before.len(), after.len());
        ways[..rank].iter().sum::<f64>() / ways.iter().sum::<f64>()
    };
    // As many of the outermost ratios are cut off as leave 95 %.
    let mut cut = 0;
    while cut + 1 < ratios.len() / 2 && 1.0 - 2.0 * below(cut + 2) >= 0.95 {
        cut += 1;
    }
    Some(Ratio {
        ratio: median(&ratios)?,
        low: ratios[cut],
        high: ratios[ratios.len() - 1 - cut],
        coverage: (1.0 - 2.0 * below(cut + 1)).max(0.0),
    })
}

/// By U, in how many orders of `m` and `n` values U pairs are inverted: the distribution of Mann
/// and Whitney's U for equal populations, by its recurrence over which side has the largest value.
fn ways(m: usize, n: usize) -> Vec<f64> {
    // Enough for reports; more than thirty of each would add nothing.
    let (m, n) = (m.min(30), n.min(30));
    let mut table = vec![vec![vec![1.0]; n + 1]; m + 1];
    for i in 1..=m {
        for j in 1..=n {
            let mut counts = vec![0.0; i * j + 1];
            for (u, count) in table[i - 1][j].iter().enumerate() {
                counts[u + j] += count;
            }
            for (u, count) in table[i][j - 1].iter().enumerate() {
                counts[u] += count;
            }
            table[i][j] = counts;
        }
    }
    table[m][n].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_deviation_of_a_few() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.5));
        assert_eq!(
            (quantile(&values, 0.0), quantile(&values, 1.0)),
            (Some(1.0), Some(4.0))
        );
        assert_eq!((median(&[]), deviation(&[1.0])), (None, None));
        assert!((deviation(&values).unwrap() - 1.2909944).abs() < 1e-6);
    }

    #[test]
    fn ranks_are_counted_as_mann_and_whitney_did() {
        // Their table: of 3 and 3, 20 orders; U of 0, 1, 2, 3, 4 in 1, 1, 2, 3, 3 of them.
        assert_eq!(ways(3, 3)[..5], [1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(ways(3, 3).iter().sum::<f64>(), 20.0);
        assert_eq!(ways(8, 8).iter().sum::<f64>(), 12870.0);
        // Their 5 % value, two-sided: U of 2 for 5 and 5, 13 for 8 and 8.
        let tail = |n: usize, u: usize| {
            let ways = ways(n, n);
            2.0 * ways[..=u].iter().sum::<f64>() / ways.iter().sum::<f64>()
        };
        assert!(tail(5, 2) <= 0.05 && tail(5, 3) > 0.05);
        assert!(tail(8, 13) <= 0.05 && tail(8, 14) > 0.05);
    }

    #[test]
    fn intervals_hold_the_true_ratio_as_often_as_they_say() {
        let mut random = linerate_testkit::Random::new(7);
        let mut random = move || (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        for count in [3, 5, 8] {
            let mut held = 0;
            let mut coverage = 0.0;
            for _ in 0..2000 {
                let mut draw = |scale: f64| -> Vec<f64> {
                    (0..count).map(|_| scale * (1.0 + 0.1 * random())).collect()
                };
                let found = ratio(&draw(1.0), &draw(1.5)).unwrap();
                held += usize::from((found.low..=found.high).contains(&1.5));
                coverage = found.coverage;
            }
            let share = held as f64 / 2000.0;
            assert!(
                (share - coverage).abs() < 0.03,
                "{count}: {share} {coverage}"
            );
            assert!(count == 3 || coverage >= 0.95, "{count}: {coverage}");
        }
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
        let one = ratio(&[2.0], &[3.0]).unwrap();
        assert_eq!((one.ratio, one.coverage), (1.5, 0.0));
        assert_eq!(one.interval(), None);
        let two = ratio(&[2.0, 2.2], &[3.0, 3.1]).unwrap();
        assert_eq!(
            two.interval(),
            None,
            "it would hold the ratio two times in three"
        );
        let three = ratio(&[2.0, 2.1, 2.2], &[3.0, 3.1, 3.2]).unwrap();
        let (low, high, coverage) = three.interval().unwrap();
        assert!(low < 1.5 && high > 1.4 && (coverage - 0.9).abs() < 1e-9);
    }
}
