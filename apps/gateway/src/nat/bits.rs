//! Sets of up to 4096 numbers: finding a member takes the same time for any of them. Those of 256,
//! as of buckets, are [`Bits`].

pub use linerate_dispatch::Bits;

/// A set of numbers from 0 to 4095.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    words: Box<[u64; 64]>,
    /// Which words are not zero.
    some: u64,
}

impl Wide {
    /// Numbers from here on are never members.
    pub(super) const LIMIT: usize = 4096;

    pub(super) fn new() -> Self {
        Self {
            words: Box::new([0; 64]),
            some: 0,
        }
    }

    /// Makes a number below [`LIMIT`](Self::LIMIT) a member or not.
    #[inline]
    pub(super) fn put(&mut self, number: u16, is_member: bool) {
        let at = usize::from(number >> 6);
        let word = &mut self.words[at];
        *word = *word & !(1 << (number & 63)) | u64::from(is_member) << (number & 63);
        self.some = self.some & !(1 << at) | u64::from(*word != 0) << at;
    }

    /// The first member from `start` on, beginning again behind the last.
    #[inline]
    pub(super) fn first_from(&self, start: u16) -> Option<u16> {
        let word = usize::from(start >> 6) & 63;
        let ahead = self.words[word] & u64::MAX << (start & 63);
        if ahead != 0 {
            return Some((word as u16) << 6 | ahead.trailing_zeros() as u16);
        }
        let later = self.some & (u64::MAX << word) << 1;
        let word = match later {
            0 => self.some,
            later => later,
        };
        (word != 0).then(|| {
            let at = word.trailing_zeros() as u16;
            at << 6 | self.words[usize::from(at)].trailing_zeros() as u16
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set_and_finds_what_comes_next() {
        let mut random = Random::new(5);
        let (mut wide, mut set) = (Wide::new(), BTreeSet::new());
        for round in 0..20_000 {
            // Full in between, empty at times.
            let is_member = random.below(8) < [1, 7][round / 2500 % 2];
            let number = random.bits() as u16 & 0xfff;
            wide.put(number, is_member);
            match is_member {
                true => set.insert(number),
                false => set.remove(&number),
            };
            let start = random.bits() as u16 & 0xfff;
            let next = set.range(start..).chain(&set).next().copied();
            assert_eq!(wide.first_from(start), next);
        }
        assert_eq!(Wide::new().first_from(4095), None);
    }
}
