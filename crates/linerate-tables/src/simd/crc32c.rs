//! CRC32C by the processor's own instruction: [`linerate_wire::crc32c::update`], three streams at
//! a time.
//!
//! The instruction takes one a cycle but answers after three, so three parts of a block are summed
//! side by side. The register is linear over GF(2): the first two states are moved past the bytes
//! that follow them by tables, and all three are added (Gopal et al., "Fast CRC computation for
//! iSCSI polynomial using CRC32 instruction", Intel 2011). Two tables of 4 KiB.

use linerate_core::env::Isa;

/// The state of the register after a slice, no inversion before or after.
pub(crate) type Update = fn(u32, &[u8]) -> u32;

/// The function for this level.
pub(crate) fn pick(isa: Isa) -> Update {
    match isa.available() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 { .. } => sse42,
        _ => linerate_wire::crc32c::update,
    }
}

#[cfg(target_arch = "x86_64")]
fn sse42(state: u32, data: &[u8]) -> u32 {
    // SAFETY: reached through `pick` alone, and both levels have SSE4.2.
    unsafe { x86::update(state, data) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    /// Bytes of each of the three streams in a block.
    const STREAM: usize = 160;

    type Tables = [[u32; 256]; 4];
    static ONE_ON: Tables = tables(STREAM);
    static TWO_ON: Tables = tables(2 * STREAM);

    /// What each byte of a state has become after `bytes` zero bytes.
    const fn tables(bytes: usize) -> Tables {
        let mut tables = [[0; 256]; 4];
        let mut bit = 0;
        while bit < 32 {
            let (mut state, mut step) = (1_u32 << bit, 0);
            while step < bytes * 8 {
                state = (state >> 1) ^ (0x82f6_3b78 * (state & 1));
                step += 1;
            }
            // Every index with this bit set has this part in it.
            let (table, mask) = (bit / 8, 1 << (bit % 8));
            let mut index = mask;
            while index < 256 {
                if index & mask != 0 {
                    tables[table][index] ^= state;
                }
                index += 1;
            }
            bit += 1;
        }
        tables
    }

    fn moved(state: u64, tables: &Tables) -> u64 {
        let [a, b, c, d] = (state as u32).to_le_bytes();
        let part = |table: usize, byte: u8| tables[table][usize::from(byte)];
        u64::from(part(0, a) ^ part(1, b) ^ part(2, c) ^ part(3, d))
    }

    #[target_feature(enable = "sse4.2")]
    pub(super) fn update(state: u32, data: &[u8]) -> u32 {
        let mut state = u64::from(state);
        let (blocks, rest) = data.as_chunks::<{ 3 * STREAM }>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            let (mut first, mut second, mut third) = (state, 0, 0);
            for at in 0..STREAM / 8 {
                let word = |stream: usize| u64::from_le_bytes(words[stream * (STREAM / 8) + at]);
                first = _mm_crc32_u64(first, word(0));
                second = _mm_crc32_u64(second, word(1));
                third = _mm_crc32_u64(third, word(2));
            }
            state = moved(first, &TWO_ON) ^ moved(second, &ONE_ON) ^ third;
        }
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
        }
        let mut state = state as u32;
        for byte in tail {
            state = _mm_crc32_u8(state, *byte);
        }
        state
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_rfc_3720_on_every_level() {
        for level in Isa::detect().levels() {
            assert_eq!(!pick(level)(!0, b"123456789"), 0xe306_9283, "{level}");
            assert_eq!(!pick(level)(!0, &[0; 32]), 0x8a91_36aa, "{level}");
        }
    }

    proptest! {
        #[test]
        fn every_level_gives_what_the_scalar_one_gives(
            state: u32,
            data in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let expected = linerate_wire::crc32c::update(state, &data);
            for level in Isa::detect().levels() {
                prop_assert_eq!(pick(level)(state, &data), expected, "{}", level);
            }
        }
    }
}
