//! Sets of 256 numbers: finding a member takes the same time for any of them.

/// A set of numbers from 0 to 255: buckets, or what there is in one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set_and_finds_what_comes_next() {
        let mut random = Random::new(5);
        let (mut bits, mut set) = (Bits::NONE, BTreeSet::new());
        for round in 0..20_000 {
            // Full in between, empty at times.
            let is_member = random.below(8) < [1, 7][round / 2500 % 2];
            let number = random.bits() as u8;
            bits.put(number, is_member);
            match is_member {
                true => set.insert(number),
                false => set.remove(&number),
            };
            let start = random.bits() as u8;
            let next = set.range(start..).chain(&set).next().copied();
            assert_eq!(bits.first_from(start), next);
            assert_eq!(
                (bits.len() as usize, bits.is_empty()),
                (set.len(), set.is_empty())
            );
        }
        assert!(bits.iter().eq(set.iter().copied()));
        assert_eq!(
            (Bits::ALL.len(), bits.and(bits.not()), bits.or(bits.not())),
            (256, Bits::NONE, Bits::ALL)
        );
        assert_eq!(Bits::NONE.first_from(7), None);
    }
}
