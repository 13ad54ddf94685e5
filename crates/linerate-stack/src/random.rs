//! Numbers that look random and are the same for the same seed (SplitMix64: Steele, Lea, Flood
//! 2014).

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// One of `low..high`, or `low` where that is empty.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high.saturating_sub(low));
        low + ((u128::from(self.next()) * span) >> 64) as u64
    }
}

/// Every bit of the number depends on every bit of `value`.
pub(crate) fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_and_reach_both_ends() {
        let mut random = Random::new(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[random.within(10, 14) as usize - 10] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!((random.within(7, 7), random.within(7, 3)), (7, 7));
    }
}
