//! Bytes that are made up: each place in a stream has its own, so that what is lost, repeated or
//! misplaced on the way shows.

use std::sync::LazyLock;

/// After so many bytes they begin anew: a prime, which no length of segments divides.
pub const PERIOD: usize = 65_521;

static BYTES: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    // Xorshift (Marsaglia 2003), from a fixed start: the same on every machine.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(PERIOD).collect()
});

/// Writes the bytes from place `at` of the stream on.
pub fn fill(at: u64, mut to: &mut [u8]) {
    let mut from = (at % PERIOD as u64) as usize;
    while !to.is_empty() {
        let count = to.len().min(PERIOD - from);
        let (now, rest) = to.split_at_mut(count);
        now.copy_from_slice(&BYTES[from..from + count]);
        (to, from) = (rest, 0);
    }
}

/// Whether these are the bytes from place `at` on.
pub fn is(at: u64, bytes: &[u8]) -> bool {
    let mut from = (at % PERIOD as u64) as usize;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rest.len().min(PERIOD - from);
        if rest[..count] != BYTES[from..from + count] {
            return false;
        }
        (rest, from) = (&rest[count..], 0);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_pieces_is_the_same_stream() {
        let mut whole = vec![0; 3 * PERIOD + 7];
        fill(0, &mut whole);
        assert!(is(0, &whole) && !is(1, &whole));
        for (at, len) in [
            (0, 1),
            (PERIOD - 1, 3),
            (PERIOD, 5),
            (2 * PERIOD - 3, PERIOD),
        ] {
            let mut piece = vec![0; len];
            fill(at as u64, &mut piece);
            assert_eq!(piece, whole[at..at + len]);
            assert!(is(at as u64, &piece));
        }
    }
}
