//! Random numbers from a seed, which a test prints where it fails.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0. The bias is below `limit` / 2^64.
    pub fn below<N: Number>(&mut self, limit: N) -> N {
        N::of(((u128::from(self.bits()) * u128::from(limit.wide())) >> 64) as u64)
    }

    /// One of these numbers.
    pub fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let (first, last) = range.into_inner();
        first + self.below(last - first + 1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// So many bytes without a pattern.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.bits());
        let bytes = words.flat_map(u64::to_le_bytes);
        bytes.take(len).collect()
    }
}

/// A number that is not negative, of up to 64 bits: `i32` is what a literal is that nothing else decides.
pub trait Number: Copy {
    /// Of any value below one of this type.
    fn of(wide: u64) -> Self;
    /// In 64 bits.
    fn wide(self) -> u64;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {
            fn of(wide: u64) -> Self {
                wide as Self
            }

            fn wide(self) -> u64 {
                self as u64
            }
        })*
    };
}

numbers!(u8, u16, u32, u64, usize, i32);

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as Vigna's reference implementation has them.
    #[test]
    fn the_sequence_is_that_of_the_reference() {
        let mut random = Random::new(1_234_567);
        let first: [u64; 3] = std::array::from_fn(|_| random.bits());
        let known = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, known);
    }

    #[test]
    fn every_number_below_the_limit_comes_and_no_other() {
        let mut random = Random::new(1);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.below(7_usize)] = true);
        assert_eq!(seen, [true; 7]);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.within(2..=4)] = true);
        assert_eq!(seen, [false, false, true, true, true, false, false]);
        assert_eq!(random.bytes(13).len(), 13);
        assert_eq!(random.of(&["one"]), "one");
        assert!((0..1000).any(|_| random.one_in(10)) && !(0..100).all(|_| random.one_in(10)));
    }
}
