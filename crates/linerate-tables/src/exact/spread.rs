//! Linear hashing: how a number of buckets, whatever it is, grows by one.
//!
//! (Litwin, "Linear Hashing: A New Tool for File and Table Addressing", VLDB 1980.) A table begins
//! with `base` buckets. Bucket `i` of a round is split into itself and a new last one, in order; a
//! round doubles the buckets. Half a hash selects one of the first `base` by its high bits, and its
//! low bits say which descendant, so a bucket's entries part by one bit and nothing else moves.

use super::hash::Hash;

/// The map from half a hash to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    base: u32,
    count: u32,
    /// Bits of the hash that say which descendant, for buckets split in this round.
    wide: u32,
    /// How many buckets there were when the round began: what is split comes this much later.
    round: u32,
}

impl Spread {
    /// `base` buckets, at least 1.
    pub(super) fn new(base: u32) -> Self {
        Self {
            base,
            count: base,
            wide: 1,
            round: base,
        }
    }

    /// All of it in one word, for those who know the number of buckets at the start.
    pub(super) fn packed(&self) -> u64 {
        u64::from(self.count) | u64::from(self.wide.count_ones() - 1) << 32
    }

    /// What was [`packed`](Self::packed) of a table that began with `base` buckets.
    #[inline(always)]
    pub(super) fn unpacked(base: u32, packed: u64) -> Self {
        let rounds = (packed >> 32) as u32 & 31;
        Self {
            base,
            count: packed as u32,
            wide: (2 << rounds) - 1,
            round: base.wrapping_shl(rounds),
        }
    }

    /// How many buckets there are.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The bucket of half a hash.
    #[inline(always)]
    pub(super) fn of(&self, half: u32) -> u32 {
        let first = ((u64::from(half) * u64::from(self.base)) >> 32) as u32;
        let split = first.wrapping_add(self.base.wrapping_mul(half & self.wide));
        // Not there yet: its bucket was not split in this round.
        match split < self.count {
            true => split,
            false => split.wrapping_sub(self.round),
        }
    }

    /// The bucket that is split next, into itself and bucket [`count`](Self::count).
    pub(super) fn next_split(&self) -> u32 {
        self.count - self.round
    }

    /// After a split: where an entry of the old bucket `source` belongs.
    pub(super) fn home(&self, hash: Hash, source: u32) -> u32 {
        let (first, second) = (self.of(hash.first()), self.of(hash.second()));
        // Its first bucket, if that was this one; else it is there for its second.
        if first == source || first == self.count - 1 {
            first
        } else {
            second
        }
    }

    /// One bucket more.
    pub(super) fn grow(&mut self) {
        self.count += 1;
        if self.count == self.round * 2 {
            self.round = self.count;
            self.wide = self.wide * 2 + 1;
        }
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    /// At every growth, hashes of the split bucket stay or go to the new one, all others stay, and
    /// each bucket has its share.
    #[test]
    fn growth_moves_hashes_of_one_bucket_only() {
        for base in [1, 3, 8, 13] {
            let mut spread = Spread::new(base);
            let halves: Vec<u32> = (0..20_000_u32)
                .map(|i| i.wrapping_mul(0x9e37_79b1))
                .collect();
            for _ in 0..150 {
                let (before, split) = (spread, spread.next_split());
                spread.grow();
                assert_eq!(Spread::unpacked(base, spread.packed()), spread);
                let mut moved = 0;
                for &half in &halves {
                    let (old, new) = (before.of(half), spread.of(half));
                    assert!(new < spread.count());
                    if old != new {
                        assert_eq!((old, new), (split, spread.count() - 1));
                        moved += 1;
                    }
                }
                assert!(moved > 0, "base {base} count {}", spread.count());
            }
        }
    }
}
