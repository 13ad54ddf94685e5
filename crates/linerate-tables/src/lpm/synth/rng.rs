//! Randomness from a seed, the same on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next 128 bits.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A number below `bound`, which must not be 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`: k with a probability of ln((k + 2) / (k + 1)) / ln(bound + 1), which
    /// is Zipf's law with exponent 1 in its continuous form, the most frequent first.
    pub fn harmonic(&mut self, bound: u64) -> u64 {
        let uniform = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((bound + 1) as f64).powf(uniform) as u64;
        rank.clamp(1, bound) - 1
    }
}
