//! Randomness from a seed, the same on every machine.

use linerate_core::random::Random;

/// Random numbers as tables and destinations are drawn by them.
#[derive(Debug, Clone)]
pub struct Rng(Random);

impl Rng {
    /// Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.bits()
    }

    /// The next 128 bits.
    pub fn next_u128(&mut self) -> u128 {
        self.0.bits128()
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number below `bound`: k with a probability of ln((k + 2) / (k + 1)) / ln(bound + 1), which
    /// is Zipf's law with exponent 1 in its continuous form, the most frequent first.
    pub fn harmonic(&mut self, bound: u64) -> u64 {
        let rank = ((bound + 1) as f64).powf(self.0.unit()) as u64;
        rank.clamp(1, bound) - 1
    }
}
