//! The keyed hash: the buckets of a key, unpredictable without the seed.
//!
//! Two steps. The first is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure
//! Message Authentication", CRYPTO 1999): words of 32 bits, each plus a word of the secret, are
//! multiplied in pairs and summed to 64 bits. Any two keys that were chosen without knowing the
//! secret collide there with a probability of at most 2^-32, whatever the keys. The second step is
//! a bijection, so it adds no collision: xor-shifts and multiplications by two odd numbers of the
//! secret. The half that selects the first bucket are the high bits of the last multiplication,
//! universal by themselves (Dietzfelbinger et al., "A Reliable Randomized Algorithm for the
//! Closest-Pair Problem", 1997): two keys share the first of n buckets with a probability of at
//! most 2/n + 2^-32.
//!
//! Here it is in plain integers, for one key; `simd::hash` has it for eight keys at a time, and
//! every level gives the same.

use std::hash::{BuildHasher, Hasher, RandomState};

/// What a table's hash is keyed with. Keep it secret where strangers choose the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u128);

impl Seed {
    /// A new, unpredictable one from the system's random numbers.
    pub fn random() -> Self {
        let half = || u128::from(RandomState::new().build_hasher().finish());
        Self(half() << 64 | half())
    }
}

/// Prints nothing, since a seed is secret.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Words that are added to the key's: 64 bytes at most.
const WORDS: usize = 16;

/// The hash of keys of one table.
#[derive(Clone)]
pub(crate) struct KeyedHash {
    /// What is added to the words of a key.
    pub(crate) secret: [u32; WORDS],
    /// Odd.
    pub(crate) mix: [u64; 2],
}

impl KeyedHash {
    pub(crate) fn new(seed: Seed) -> Self {
        let mut state = seed.0;
        let mut next = || {
            // Weyl steps of 128 bits, mixed by folded multiplications.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let (low, high) = (state as u64, (state >> 64) as u64);
            let once = fold(low ^ 0xa076_1d64_78bd_642f, high ^ 0xe703_7ed1_a0b4_28db);
            fold(once ^ high, low ^ 0x8ebc_6af0_9c88_c6e3)
        };
        Self {
            secret: std::array::from_fn(|_| next() as u32),
            mix: std::array::from_fn(|_| next() | 1),
        }
    }

    /// The hash of `key`.
    #[inline(always)]
    pub(crate) fn of<const K: usize>(&self, key: &[u8; K]) -> Hash {
        let mut sum = 0_u64;
        for at in 0..K.div_ceil(8) {
            let word = word(key, at * 8);
            let left = (word as u32).wrapping_add(self.secret[at * 2]);
            let right = ((word >> 32) as u32).wrapping_add(self.secret[at * 2 + 1]);
            sum = sum.wrapping_add(u64::from(left) * u64::from(right));
        }
        for factor in self.mix {
            sum = (sum ^ (sum >> 32)).wrapping_mul(factor);
        }
        Hash(sum ^ (sum >> 32))
    }
}

/// The high and the low half of the product, one on top of the other.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Eight bytes of the key from `at` on, zeros beyond its end.
#[inline(always)]
fn word<const K: usize>(key: &[u8; K], at: usize) -> u64 {
    let rest = &key[at..];
    match rest.first_chunk() {
        Some(&whole) => u64::from_le_bytes(whole),
        None => {
            let mut part = [0; 8];
            part[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(part)
        }
    }
}

/// A key's hash, and what is taken from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    /// Selects the first bucket.
    #[inline(always)]
    pub(super) fn first(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Selects the second.
    #[inline(always)]
    pub(super) fn second(self) -> u32 {
        self.0 as u32
    }

    /// Seven bits to tell keys of a bucket apart by, and the highest set: a slot with it is taken.
    ///
    /// Keys of one bucket share bits of one half, so these are of both.
    #[inline(always)]
    pub(crate) fn tag(self) -> u8 {
        (((self.0 >> 32) ^ self.0) >> 12) as u8 | TAKEN
    }
}

/// The bit that every tag of a taken slot has.
pub(super) const TAKEN: u8 = 0x80;

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    /// Flipping any bit of a key changes about half of the bits of its hash, for short, odd and
    /// long keys: what structured keys (one subnet, consecutive ports) need.
    #[test]
    fn every_bit_of_the_key_reaches_every_bit_of_the_hash() {
        fn avalanche<const K: usize>() {
            let hash = KeyedHash::new(Seed(7));
            let rounds = 512;
            for bit in 0..K * 8 {
                let mut flips = [0_u32; 64];
                for round in 0..rounds {
                    let mut key: [u8; K] = std::array::from_fn(|i| (round >> (i % 4 * 3)) as u8);
                    let before = hash.of(&key).0;
                    key[bit / 8] ^= 1 << (bit % 8);
                    let change = before ^ hash.of(&key).0;
                    for (at, flips) in flips.iter_mut().enumerate() {
                        *flips += (change >> at & 1) as u32;
                    }
                }
                for (at, flips) in flips.iter().enumerate() {
                    let share = f64::from(*flips) / f64::from(rounds);
                    assert!(
                        (0.3..0.7).contains(&share),
                        "K {K} bit {bit} -> {at}: {share}"
                    );
                }
            }
        }
        avalanche::<4>();
        avalanche::<13>();
        avalanche::<16>();
        avalanche::<40>();
        avalanche::<64>();
    }

    #[test]
    fn a_seed_shows_nothing_and_two_random_ones_differ() {
        assert_eq!(format!("{:?}", Seed(77)), "Seed(..)");
        assert_ne!(Seed::random().0, Seed::random().0);
    }
}
