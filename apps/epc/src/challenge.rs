//! How user and home prove to each other who they are: by a key that only both know.
//!
//! This is *not* the authentication of a real network. TS 33.401 has AKA with Milenage or TUAK, a
//! sequence number against replay, and keys derived with HMAC-SHA-256. Here a keyed function,
//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), takes the place
//! of all of them: a pseudo-random function of 64 bits, so that a user without the key is refused,
//! and messages have the sizes and the order of the real ones. Nothing is encrypted or integrity
//! protected with what follows from it, and an old challenge is accepted again.

use linerate_wire::gtpc::ie::Imsi;

/// The key of one user.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Key([u64; 2]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What the home sends for a user that wants to attach (TS 33.401 6.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// The challenge.
    pub rand: [u8; 16],
    /// What proves the home to the user.
    pub autn: [u8; 16],
    /// What the user has to answer.
    pub xres: [u8; 8],
    /// The key of the session.
    pub kasme: [u8; 32],
}

impl Key {
    /// A user's key, from a secret of the operator: so both ends of a test have it without a table.
    pub fn derive(operator: u64, imsi: Imsi) -> Self {
        Self([1, 2].map(|half| siphash([operator, half], &imsi.bytes())))
    }

    fn word(self, purpose: u8, rand: &[u8; 16]) -> [u8; 8] {
        let mut input = [0; 17];
        input[0] = purpose;
        input[1..].copy_from_slice(rand);
        siphash(self.0, &input).to_be_bytes()
    }

    /// What a user with this key answers to a challenge.
    pub fn answer(self, rand: &[u8; 16]) -> [u8; 8] {
        self.word(1, rand)
    }

    /// What proves to the user that its home made the challenge.
    pub fn autn(self, rand: &[u8; 16]) -> [u8; 16] {
        let mut autn = [0; 16];
        autn[..8].copy_from_slice(&self.word(2, rand));
        autn[8..].copy_from_slice(&self.word(3, rand));
        autn
    }

    /// All that the home needs of one challenge.
    pub fn vector(self, rand: [u8; 16]) -> Vector {
        let mut kasme = [0; 32];
        for (purpose, part) in (4..).zip(kasme.chunks_exact_mut(8)) {
            part.copy_from_slice(&self.word(purpose, &rand));
        }
        Vector {
            rand,
            autn: self.autn(&rand),
            xres: self.answer(&rand),
            kasme,
        }
    }
}

/// SipHash-2-4 of `input` under a key of two words, each little endian.
pub fn siphash(key: [u64; 2], input: &[u8]) -> u64 {
    let [k0, k1] = key;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut chunks = input.chunks_exact(8);
    let absorb = |v: &mut [u64; 4], word: u64| {
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    };
    for chunk in chunks.by_ref() {
        let word = chunk.try_into().expect("chunks have 8 bytes");
        absorb(&mut v, u64::from_le_bytes(word));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = input.len() as u8;
    absorb(&mut v, u64::from_le_bytes(last));
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the paper's appendix A.
    #[test]
    fn siphash_is_that_of_the_paper() {
        let input: Vec<u8> = (0..15).collect();
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, &input), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn only_the_key_answers_a_challenge() {
        let imsi = |number| Imsi::new(number, 15).unwrap();
        let (key, other) = (Key::derive(7, imsi(1)), Key::derive(7, imsi(2)));
        let vector = key.vector([9; 16]);
        assert_eq!(key.answer(&vector.rand), vector.xres);
        assert_eq!(key.autn(&vector.rand), vector.autn);
        assert_ne!(other.answer(&vector.rand), vector.xres);
        assert_ne!(other.autn(&vector.rand), vector.autn);
        assert_ne!(key.answer(&[8; 16]), vector.xres);
        assert_ne!(Key::derive(8, imsi(1)).answer(&vector.rand), vector.xres);
    }
}
