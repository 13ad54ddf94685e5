//! CRC32C (Castagnoli): SCTP's checksum (RFC 9260 appendix A), iSCSI's, and many a hash's.
//!
//! Eight table look-ups per eight bytes (Kounavis and Berry, "A systematic approach to building
//! high performance, software-based, CRC generators", 2005), 8 KiB of constant tables.

/// x^32 + 0x1edc6f41, with the bits of each byte, and so of the whole, in reverse.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][b]`: what byte `b` has become when `n` more zero bytes have passed.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut state, mut bit) = (byte as u32, 0);
        while bit < 8 {
            state = (state >> 1) ^ (POLYNOMIAL * (state & 1));
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[n - 1][byte];
            tables[n][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

/// The CRC32C of `data`, as protocols store it (SCTP and iSCSI: little endian).
///
/// ```
/// assert_eq!(linerate_wire::crc32c::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    !update(!0, data)
}

/// The state of the register after `data`: no inversion before or after, so that parts can be
/// taken one by one, and linear over GF(2) in `state` and `data` together.
pub fn update(mut state: u32, data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<8>();
    for word in words {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*word) ^ u64::from(state)).to_le_bytes();
        let t = |n: usize, byte: u8| TABLES[n][usize::from(byte)];
        state = t(7, a) ^ t(6, b) ^ t(5, c) ^ t(4, d) ^ t(3, e) ^ t(2, f) ^ t(1, g) ^ t(0, h);
    }
    for byte in tail {
        state = (state >> 8) ^ TABLES[0][usize::from(state as u8 ^ byte)];
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Bit by bit.
    fn slow(data: &[u8]) -> u32 {
        let mut state = !0u32;
        for byte in data {
            state ^= u32::from(*byte);
            for _ in 0..8 {
                state = (state >> 1) ^ (POLYNOMIAL * (state & 1));
            }
        }
        !state
    }

    #[test]
    fn rfc_3720_b_4() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        // An iSCSI SCSI Read (10) command PDU.
        let mut pdu = [0; 48];
        pdu[..2].copy_from_slice(&[0x01, 0xc0]);
        pdu[16] = 0x14;
        pdu[22] = 0x04;
        pdu[27] = 0x14;
        pdu[31] = 0x18;
        pdu[32] = 0x28;
        pdu[40] = 0x02;
        let vectors: [(&[u8], [u8; 4]); 5] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&up, [0x4e, 0x79, 0xdd, 0x46]),
            (&down, [0x5c, 0xdb, 0x3f, 0x11]),
            (&pdu, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (data, stored) in vectors {
            assert_eq!(crc32c(data).to_le_bytes(), stored, "{data:02x?}");
        }
    }

    proptest! {
        #[test]
        fn equals_the_slow_one_whole_and_in_parts(data: Vec<u8>, at: usize) {
            prop_assert_eq!(crc32c(&data), slow(&data));
            let (a, b) = data.split_at(at % (data.len() + 1));
            prop_assert_eq!(!update(update(!0, a), b), slow(&data));
        }

        #[test]
        fn is_linear(a: [u8; 24], b: [u8; 24], s: u32, t: u32) {
            let both: Vec<_> = a.iter().zip(b).map(|(a, b)| a ^ b).collect();
            prop_assert_eq!(update(s ^ t, &both), update(s, &a) ^ update(t, &b));
        }
    }
}
