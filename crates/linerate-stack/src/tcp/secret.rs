//! The keyed hash behind everything that a stranger must not predict: sequence numbers, time stamp
//! offsets, SYN cookies, ports, Fast Open cookies.
//!
//! It is SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), the rounds
//! that Linux takes where outputs are shown to those who choose the inputs; 1-3 is for hash tables.
//! Inputs here are whole words, so the function takes forty lines, fewer than an adapter to a
//! crate's `Hasher` of bytes, and its state can be copied in the middle: a cookie needs the hashes
//! of a tuple and of the same tuple with more behind it, and the tuple is hashed once.

use linerate_tables::exact::Seed;

/// A secret key of 128 bits. All stacks that may get the answer to one another's packets need the
/// same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A known one, for tests and for processes that agree on one.
    pub const fn new(key: u128) -> Self {
        Self([key as u64, (key >> 64) as u64])
    }

    /// A new, unpredictable one from the system's random numbers.
    pub fn random() -> Self {
        Self::new(Seed::random().0)
    }

    /// Another secret for another purpose: who learns one learns nothing of the other.
    #[must_use]
    pub fn derived(&self, purpose: u64) -> Self {
        let half = |which| self.hash(&[], &[purpose, which]);
        Self([half(0), half(1)])
    }

    /// The hash of `bytes`, a whole number of words of 8 bytes, and of `words` behind them.
    ///
    /// # Panics
    /// If the length of `bytes` is no multiple of 8: lengths here are known when compiling.
    #[inline(always)]
    pub fn hash(&self, bytes: &[u8], words: &[u64]) -> u64 {
        let mut sip = Sip::new(self).bytes(bytes);
        for &word in words {
            sip = sip.word(word);
        }
        sip.finish()
    }
}

/// Prints nothing of the key.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The state of a hash under way. A copy goes on with other words.
#[derive(Clone, Copy)]
pub(super) struct Sip {
    v: [u64; 4],
    len_bytes: u64,
}

impl Sip {
    /// Nothing hashed yet.
    #[inline(always)]
    pub(super) fn new(Secret([k0, k1]): &Secret) -> Self {
        Self {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            len_bytes: 0,
        }
    }

    /// With a word of 8 bytes more, little endian.
    #[inline(always)]
    pub(super) fn word(mut self, word: u64) -> Self {
        self.len_bytes += 8;
        self.absorb(word)
    }

    /// With these bytes more, a whole number of words.
    #[inline(always)]
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks();
        assert!(rest.is_empty(), "inputs are whole words");
        for &word in words {
            self = self.word(u64::from_le_bytes(word));
        }
        self
    }

    /// The hash of what was absorbed.
    #[inline(always)]
    pub(super) fn finish(self) -> u64 {
        // The last word has the length in its highest byte, and no bytes that are left over.
        let mut v = self.absorb(self.len_bytes << 56).v;
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    #[inline(always)]
    fn absorb(mut self, word: u64) -> Self {
        self.v[3] ^= word;
        round(&mut self.v);
        round(&mut self.v);
        self.v[0] ^= word;
        self
    }
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's appendix A: key 00 to 0f, input 00 to 0e, here its vectors for whole words.
    #[test]
    fn the_hash_is_that_of_the_papers_vectors() {
        let key = u128::from_le_bytes(std::array::from_fn(|at| at as u8));
        let input: [u8; 16] = std::array::from_fn(|at| at as u8);
        let secret = Secret::new(key);
        assert_eq!(secret.hash(&[], &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(secret.hash(&input[..8], &[]), 0x93f5_f579_9a93_2462);
        assert_eq!(secret.hash(&input, &[]), 0x3f2a_cc7f_57c2_9bdb);
        let second = u64::from_le_bytes(std::array::from_fn(|at| 8 + at as u8));
        assert_eq!(
            secret.hash(&input[..8], &[second]),
            secret.hash(&input, &[])
        );
    }

    /// The standard library still has the same function, keyed, with 2-4 rounds.
    #[test]
    #[allow(deprecated)]
    fn the_hash_is_that_of_the_standard_library() {
        use std::hash::{Hasher, SipHasher};
        let bytes: Vec<u8> = (0..80_u8).map(|at| at.wrapping_mul(37)).collect();
        for len in (0..=80).step_by(8) {
            let mut hasher = SipHasher::new_with_keys(7, 9);
            hasher.write(&bytes[..len]);
            let secret = Secret::new(9 << 64 | 7);
            assert_eq!(secret.hash(&bytes[..len], &[]), hasher.finish(), "{len}");
        }
    }

    #[test]
    fn secrets_differ_and_show_nothing() {
        assert_ne!(Secret::random(), Secret::random());
        let secret = Secret::new(77);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_ne!(secret.derived(1), secret.derived(2));
        assert_eq!(secret.derived(1), Secret::new(77).derived(1));
        assert_ne!(secret.derived(1), Secret::new(78).derived(1));
    }
}
