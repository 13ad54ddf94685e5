//! A set of layer-4 ports: what is taken, or must not be used.

use std::ops::RangeInclusive;

/// Any of the 65536 ports, in 8 KiB.
///
/// ```
/// use linerate_tables::rss::PortSet;
/// let mut taken = PortSet::new();
/// taken.insert(5060);
/// taken.insert_range(8000..=8009);
/// assert!(taken.contains(8005) && taken.len() == 11);
/// assert_eq!(taken.iter().next(), Some(5060));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PortSet {
    words: Box<[u64; 1024]>,
}

impl PortSet {
    /// No port.
    pub fn new() -> Self {
        Self {
            words: Box::new([0; 1024]),
        }
    }

    /// Adds a port; whether it was not there.
    #[inline]
    pub fn insert(&mut self, port: u16) -> bool {
        let (word, bit) = (&mut self.words[usize::from(port >> 6)], 1 << (port & 63));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Adds ports from the first to the last.
    pub fn insert_range(&mut self, ports: RangeInclusive<u16>) {
        ports.for_each(|port| _ = self.insert(port));
    }

    /// Takes a port out; whether it was there.
    #[inline]
    pub fn remove(&mut self, port: u16) -> bool {
        let (word, bit) = (&mut self.words[usize::from(port >> 6)], 1 << (port & 63));
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    /// Whether it is there.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        self.words[usize::from(port >> 6)] >> (port & 63) & 1 != 0
    }

    /// How many ports.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The ports, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..).zip(self.words.iter()).flat_map(|(index, &word)| {
            let next = |&left: &u64| Some(left & (left - 1)).filter(|&left| left != 0);
            std::iter::successors(Some(word).filter(|&word| word != 0), next)
                .map(move |left| (index << 6) + left.trailing_zeros() as u16)
        })
    }
}

impl Default for PortSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<u16> for PortSet {
    fn from_iter<I: IntoIterator<Item = u16>>(ports: I) -> Self {
        let mut set = Self::new();
        ports.into_iter().for_each(|port| _ = set.insert(port));
        set
    }
}

impl std::fmt::Debug for PortSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn is_a_set() {
        let mut set = PortSet::new();
        let mut model = BTreeSet::new();
        let mut random = linerate_core::random::Random::new(3);
        for _ in 0..20_000 {
            let (port, out) = (random.bits() as u16 & 0xfff, random.bits() & 3 == 0);
            match out {
                true => assert_eq!(set.remove(port), model.remove(&port)),
                false => assert_eq!(set.insert(port), model.insert(port)),
            }
        }
        set.insert_range(65_530..=65_535);
        model.extend(65_530..=65_535);
        assert!(set.iter().eq(model.iter().copied()));
        assert_eq!((set.len(), set.is_empty()), (model.len(), false));
    }
}
