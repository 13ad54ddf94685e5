//! Hashes that are affine over GF(2): `hash(x) = M x + c`, where `+` is XOR.
//!
//! Toeplitz with any key is one (`c = 0`), and so is every CRC over messages of one length (`c` is
//! the CRC of zeros). What an [`Inverse`](super::Inverse) needs of a hash is in here and nothing
//! else.

use crate::TableError;
use linerate_core::random::Random;

/// Longest input, in bytes: an IPv6 4-tuple with room to spare.
const LONGEST_BYTES: usize = 252;
/// Random inputs on which a probed hash must agree.
const TRIALS: usize = 256;

/// A 32-bit hash of inputs of up to a fixed length that is affine over GF(2).
///
/// A shorter input hashes like one filled up with zeros. Memory: 1 KiB per byte of input.
#[derive(Clone)]
pub struct AffineHash {
    constant: u32,
    /// `tables[i][b]`: what byte `i` of the input adds when it is `b`.
    tables: Box<[[u32; 256]]>,
}

impl AffineHash {
    /// The hash whose input bit `i` (most significant bit of the first byte first) adds
    /// `column(i)`.
    ///
    /// # Errors
    /// [`TableError::RssInputBytes`] unless the length is 1 to 252 bytes.
    pub fn from_columns(
        input_bytes: usize,
        constant: u32,
        column: impl Fn(usize) -> u32,
    ) -> Result<Self, TableError> {
        if !(1..=LONGEST_BYTES).contains(&input_bytes) {
            return Err(TableError::RssInputBytes {
                given: input_bytes,
                most: LONGEST_BYTES,
            });
        }
        let table = |byte: usize| {
            let mut table = [0; 256];
            for value in 1..256_usize {
                let lowest = value.trailing_zeros() as usize;
                table[value] = table[value & (value - 1)] ^ column(8 * byte + 7 - lowest);
            }
            table
        };
        Ok(Self {
            constant,
            tables: (0..input_bytes).map(table).collect(),
        })
    }

    /// Learns any function of exactly `input_bytes` bytes by asking it for zeros and for each
    /// single bit, then compares on 256 random inputs.
    ///
    /// ```
    /// use linerate_tables::rss::AffineHash;
    /// let folded = |x: &[u8]| x.iter().fold(7u32, |sum, &byte| sum.rotate_left(5) ^ u32::from(byte));
    /// let hash = AffineHash::probe(12, folded)?;
    /// assert_eq!(hash.hash(b"abcdefghijkl"), folded(b"abcdefghijkl"));
    /// let multiplied = |x: &[u8]| x.iter().fold(7u32, |sum, &byte| sum.wrapping_mul(31) ^ u32::from(byte));
    /// assert!(AffineHash::probe(12, multiplied).is_err());
    /// # Ok::<(), linerate_tables::TableError>(())
    /// ```
    ///
    /// # Errors
    /// [`TableError::RssInputBytes`] as above; [`TableError::RssNotAffine`] with an input on which
    /// the function and its affine copy differ.
    pub fn probe(input_bytes: usize, hash: impl Fn(&[u8]) -> u32) -> Result<Self, TableError> {
        let mut input = vec![0; input_bytes.min(LONGEST_BYTES)];
        let constant = hash(&input);
        let columns: Vec<u32> = (0..8 * input.len())
            .map(|bit| {
                input[bit / 8] = 0x80 >> (bit % 8);
                let column = hash(&input) ^ constant;
                input[bit / 8] = 0;
                column
            })
            .collect();
        let affine = Self::from_columns(input_bytes, constant, |bit| columns[bit])?;
        let mut random = Random::new(0x5eed);
        for _ in 0..TRIALS {
            input
                .iter_mut()
                .for_each(|byte| *byte = random.bits() as u8);
            let (theirs, ours) = (hash(&input), affine.hash(&input));
            if theirs != ours {
                return Err(TableError::RssNotAffine {
                    input,
                    hash: theirs,
                    affine: ours,
                });
            }
        }
        Ok(affine)
    }

    /// CRC32C (Castagnoli, RFC 3720 appendix B.4) of inputs of exactly `input_bytes`, from the
    /// register `seed` on and without a final inversion: what the SSE4.2 instruction and
    /// `rte_hash_crc` give.
    ///
    /// # Errors
    /// [`TableError::RssInputBytes`] unless the length is 1 to 252 bytes.
    pub fn crc32c(input_bytes: usize, seed: u32) -> Result<Self, TableError> {
        Self::probe(input_bytes, |input| {
            linerate_wire::crc32c::update(seed, input)
        })
    }

    /// The hash. Bytes beyond [`input_bytes`](Self::input_bytes) do not count.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let bytes = input.iter().zip(&self.tables);
        bytes.fold(self.constant, |sum, (&byte, table)| {
            sum ^ table[usize::from(byte)]
        })
    }

    /// Longest input, in bytes.
    pub fn input_bytes(&self) -> usize {
        self.tables.len()
    }

    /// Memory of the tables, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.tables)
    }

    /// The hash of zeros.
    pub fn constant(&self) -> u32 {
        self.constant
    }

    /// What byte `byte` of the input adds when it is `value`.
    #[inline]
    pub(super) fn added(&self, byte: usize, value: u8) -> u32 {
        self.tables[byte][usize::from(value)]
    }

    /// What bit `bit` of the input adds, the first byte's most significant bit being bit 0.
    ///
    /// # Panics
    /// Where the input has no such bit.
    pub fn column(&self, bit: usize) -> u32 {
        self.tables[bit / 8][0x80 >> (bit % 8)]
    }
}

impl std::fmt::Debug for AffineHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AffineHash")
            .field("input_bytes", &self.input_bytes())
            .field("constant", &self.constant)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    #[test]
    fn crc32c_gives_the_check_value_of_rfc_3720() {
        let zeros = AffineHash::crc32c(32, u32::MAX).unwrap();
        assert_eq!(!zeros.hash(&[0; 32]), 0x8a91_36aa);
        assert_eq!(!zeros.hash(&[0xff; 32]), 0x62a8_ab43);
        let nine = AffineHash::crc32c(9, u32::MAX).unwrap();
        assert_eq!(!nine.hash(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_hash_that_is_not_affine_is_refused_with_a_witness() {
        let sum = |x: &[u8]| x.iter().map(|&byte| u32::from(byte)).sum();
        let error = AffineHash::probe(4, sum).unwrap_err();
        assert!(
            matches!(error, TableError::RssNotAffine { ref input, hash, .. } if hash == sum(input)),
            "{error}"
        );
        for bytes in [0, 253] {
            let error = AffineHash::probe(bytes, sum).unwrap_err();
            assert!(error.to_string().contains("1 to 252"), "{error}");
        }
    }

    #[test]
    fn columns_are_single_bits() {
        let crc = AffineHash::crc32c(12, 5).unwrap();
        for bit in 0..96 {
            let mut input = [0; 12];
            input[bit / 8] = 0x80 >> (bit % 8);
            assert_eq!(crc.column(bit), crc.hash(&input) ^ crc.constant());
        }
    }
}
