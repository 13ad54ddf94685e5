//! Sets of 256 numbers, and sets of up to 4096: finding a member takes the same time for any of
//! them.

/// A set of numbers from 0 to 255: buckets, or the places of the ports in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits(pub [u64; 4]);

impl Bits {
    /// No number.
    pub const NONE: Self = Self([0; 4]);
    /// All numbers.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Whether a number is a member.
    #[inline]
    pub const fn has(&self, number: u8) -> bool {
        self.0[number as usize >> 6] >> (number & 63) & 1 != 0
    }

    /// Makes it a member.
    #[inline]
    pub const fn set(&mut self, number: u8) {
        self.0[number as usize >> 6] |= 1 << (number & 63);
    }

    /// Makes it no member.
    #[inline]
    pub const fn clear(&mut self, number: u8) {
        self.0[number as usize >> 6] &= !(1 << (number & 63));
    }

    /// Makes it a member or not.
    #[inline]
    pub const fn put(&mut self, number: u8, is_member: bool) {
        match is_member {
            true => self.set(number),
            false => self.clear(number),
        }
    }

    /// What is a member of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a & e, b & f, c & g, d & h])
    }

    /// What is a member of either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a | e, b | f, c | g, d | h])
    }

    /// What is no member.
    #[inline]
    #[must_use]
    pub const fn not(self) -> Self {
        let [a, b, c, d] = self.0;
        Self([!a, !b, !c, !d])
    }

    /// Whether there is no member.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// How many members there are.
    #[inline]
    pub const fn len(&self) -> u32 {
        let [a, b, c, d] = self.0;
        a.count_ones() + b.count_ones() + c.count_ones() + d.count_ones()
    }

    /// The first member from `start` on, beginning again behind the last.
    #[inline]
    pub fn first_from(&self, start: u8) -> Option<u8> {
        let word = usize::from(start >> 6);
        let ahead = self.0[word] & u64::MAX << (start & 63);
        if ahead != 0 {
            return Some((word as u8) << 6 | ahead.trailing_zeros() as u8);
        }
        // The word itself once more, for what is below the start.
        (1..=4).map(|step| (word + step) & 3).find_map(|word| {
            let bits = self.0[word];
            (bits != 0).then(|| (word as u8) << 6 | bits.trailing_zeros() as u8)
        })
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let bits = *self;
        (0..=255).filter(move |&number| bits.has(number))
    }
}

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

    /// The first of `set` from `start` on, around its end.
    fn around(set: &BTreeSet<u16>, start: u16) -> Option<u16> {
        set.range(start..).chain(set.iter()).next().copied()
    }

    #[test]
    fn both_are_sets_and_find_what_comes_next() {
        let mut random = Random::new(5);
        let (mut bits, mut wide) = (Bits::NONE, Wide::new());
        let (mut few, mut many) = (BTreeSet::new(), BTreeSet::new());
        for round in 0..20_000 {
            // Full in between, empty at times.
            let is_member = random.below(8) < [1, 7][round / 2500 % 2];
            let (near, far) = (random.bits() as u8, random.bits() as u16 & 0xfff);
            bits.put(near, is_member);
            wide.put(far, is_member);
            match is_member {
                true => (few.insert(near.into()), many.insert(far)),
                false => (few.remove(&near.into()), many.remove(&far)),
            };
            let (near, far) = (random.bits() as u8, random.bits() as u16 & 0xfff);
            assert_eq!(
                bits.first_from(near).map(u16::from),
                around(&few, near.into())
            );
            assert_eq!(wide.first_from(far), around(&many, far));
            assert_eq!(
                (bits.len() as usize, bits.is_empty()),
                (few.len(), few.is_empty())
            );
        }
        assert!(bits.iter().map(u16::from).eq(few.iter().copied()));
        assert_eq!(
            (Bits::ALL.len(), bits.and(bits.not()), bits.or(bits.not())),
            (256, Bits::NONE, Bits::ALL)
        );
        assert_eq!(
            (Bits::NONE.first_from(7), Wide::new().first_from(4095)),
            (None, None)
        );
    }
}
