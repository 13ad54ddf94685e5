//! Which of a list's large sets an address is in, as one small number.
//!
//! A rule that asks for a set of a hundred thousand prefixes is not a hundred thousand rules.
//! Addresses that are in the same sets of those that a list asks for are one *class*; the list's
//! table has rules about classes, and a lookup of an address's class is one binary search.

use std::collections::HashMap;
use std::sync::Arc;

use linerate_tables::lpm::Address;

use super::ranges::Ranges;

/// Classes have numbers below this: the bits of the field that carries them.
pub(super) const MOST: usize = 1 << 12;

/// The classes of addresses by some sets. Class 0 is in none of them.
#[derive(Debug)]
pub(super) struct Classes<A> {
    /// By what they were made.
    sets: Vec<Arc<Ranges<A>>>,
    /// Where another class begins.
    edges: Vec<A>,
    /// The class from each edge on.
    classes: Vec<u16>,
    /// By set: the classes in it.
    members: Vec<Vec<u16>>,
}

impl<A: Address> Classes<A> {
    /// The classes by these sets; `None` where there are too many. O(n log n) for n edges, times
    /// the sets by 64.
    pub(super) fn of(sets: Vec<Arc<Ranges<A>>>) -> Option<Self> {
        let mut toggles: Vec<(A, u32)> = Vec::new();
        for (number, set) in (0..).zip(&sets) {
            toggles.extend(set.edges().iter().map(|edge| (*edge, number)));
        }
        toggles.sort_unstable();
        let mut within = vec![0_u64; sets.len().div_ceil(64)];
        let mut known = HashMap::from([(within.clone(), 0)]);
        let (mut edges, mut classes) = (Vec::new(), Vec::new());
        for same in toggles.chunk_by(|a, b| a.0 == b.0) {
            for (_, set) in same {
                within[*set as usize / 64] ^= 1 << (set % 64);
            }
            let next = known.len();
            let class = match known.get(&within) {
                Some(class) => *class,
                None if next == MOST => return None,
                None => {
                    known.insert(within.clone(), next as u16);
                    next as u16
                }
            };
            edges.push(same[0].0);
            classes.push(class);
        }
        let mut members = vec![Vec::new(); sets.len()];
        for (within, class) in known {
            for (set, members) in members.iter_mut().enumerate() {
                if within[set / 64] >> (set % 64) & 1 != 0 {
                    members.push(class);
                }
            }
        }
        members
            .iter_mut()
            .for_each(|members| members.sort_unstable());
        Some(Self {
            sets,
            edges,
            classes,
            members,
        })
    }

    /// By what they were made.
    pub(super) fn sets(&self) -> &[Arc<Ranges<A>>] {
        &self.sets
    }

    /// The classes of the addresses in a set, by its place among those that they were made by.
    pub(super) fn members(&self, set: usize) -> &[u16] {
        &self.members[set]
    }

    /// The class of an address. O(log n).
    #[inline]
    pub(super) fn class(&self, address: A) -> u16 {
        match self.edges.partition_point(|edge| *edge <= address) {
            0 => 0,
            above => self.classes[above - 1],
        }
    }

    /// Memory, in bytes, besides that of the sets.
    pub(super) fn bytes(&self) -> usize {
        self.edges.capacity() * size_of::<A>() + self.classes.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_core::random::Random;
    use linerate_tables::lpm::Prefix4;

    #[test]
    fn addresses_in_the_same_sets_are_one_class() {
        let mut random = Random::new(7);
        let mut draw = |most| {
            let one = |_| Prefix4::of(random.below(256) as u32, 24 + random.below(9) as u8);
            (0..most).map(one).collect::<Vec<_>>()
        };
        let sets: Vec<Vec<Prefix4>> = (0..70).map(|number| draw(number % 4)).collect();
        let ranges = sets
            .iter()
            .map(|set| Arc::new(Ranges::of(set.clone())))
            .collect();
        let classes = Classes::of(ranges).unwrap();
        for at in 0..260 {
            let class = classes.class(at);
            for (number, set) in sets.iter().enumerate() {
                let is_in = set.iter().any(|prefix| prefix.contains(at));
                assert_eq!(
                    classes.members(number).contains(&class),
                    is_in,
                    "{at} in {number}"
                );
            }
        }
        assert_eq!(classes.class(u32::MAX), 0);
    }

    #[test]
    fn too_many_classes_are_refused() {
        let one = |at| Arc::new(Ranges::of(vec![Prefix4::of(at, 32)]));
        assert!(Classes::of((1..MOST as u32).map(one).collect()).is_some());
        assert!(Classes::of((0..MOST as u32).map(one).collect()).is_none());
    }
}
