//! Numbers that look random and are the same for the same seed on every machine: for load, jitter
//! and tests, never for values that must be unpredictable.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): one
/// word of state, any seed, period 2^64.
///
/// ```
/// use linerate_core::random::Random;
/// let (mut a, mut b) = (Random::new(7), Random::new(7));
/// assert_eq!(a.bits(), b.bits());
/// assert!(a.below(10) < 10 && (0.0..1.0).contains(&a.unit()));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

/// What the state grows by: the golden ratio, 2^64 / phi.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// The next 128 bits.
    pub fn bits128(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// A number below `limit`, which is not 0. The bias is below `limit` / 2^64.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// One of `low..high`, or `low` where that is empty.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// From 0 to below 1, in steps of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// SplitMix64's finaliser: every bit of the number depends on every bit of `value`.
#[inline]
pub const fn mixed(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The `number`-th of an even stream: what [`Random`] gives from a seed of `number`, first.
#[inline]
pub const fn at(number: u64) -> u64 {
    mixed(number.wrapping_add(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64s() {
        // Of seed 1234567, from the authors' C program.
        let mut random = Random::new(1_234_567);
        let first = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([(); 3].map(|()| random.bits()), first);
        assert_eq!(at(1_234_567), first[0]);
    }

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
