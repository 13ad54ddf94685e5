//! Medians and spreads of a handful of rounds.

/// The middle value (the mean of the two middle ones); `None` without values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// (highest - lowest) / median; `None` without values.
pub(super) fn spread(values: &[f64]) -> Option<f64> {
    let highest = values.iter().copied().max_by(f64::total_cmp)?;
    let lowest = values.iter().copied().min_by(f64::total_cmp)?;
    Some((highest - lowest) / median(values)?)
}

#[cfg(test)]
mod tests {
    use super::{median, spread};

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 12.0]), Some(0.3));
        assert_eq!(spread(&[]), None);
    }
}
