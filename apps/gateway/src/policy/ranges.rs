//! Sets of addresses as ranges: what prefixes, sets and their negations become.

use linerate_tables::lpm::{Address, Prefix};

/// A set of addresses, as the sorted places where it begins and ends: an address is in the set if
/// an odd number of them is not above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<A> {
    edges: Vec<A>,
}

impl<A: Address> Ranges<A> {
    /// No address.
    pub fn none() -> Self {
        Self { edges: Vec::new() }
    }

    /// Every address.
    pub fn all() -> Self {
        Self {
            edges: vec![A::ZERO],
        }
    }

    /// The addresses of these prefixes, in any order. O(n log n).
    pub fn of(mut prefixes: Vec<Prefix<A>>) -> Self {
        prefixes.sort_unstable();
        let mut edges = Vec::new();
        // Where the last range ends; `None` where it ends behind the last address.
        let mut open: Option<Option<A>> = None;
        for prefix in prefixes {
            let end = prefix.last().next();
            match open {
                // What lies inside a prefix follows it.
                Some(None) => break,
                Some(Some(before)) if prefix.first() < before => {}
                Some(Some(before)) if prefix.first() == before => open = Some(end),
                _ => {
                    edges.extend(open.flatten());
                    edges.push(prefix.first());
                    open = Some(end);
                }
            }
        }
        edges.extend(open.flatten());
        Self { edges }
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.edges.is_empty()
    }

    /// Whether these are all.
    pub fn is_all(&self) -> bool {
        self.edges == [A::ZERO]
    }

    /// Where they begin and end, in turn.
    pub(super) fn edges(&self) -> &[A] {
        &self.edges
    }

    /// Whether an address is one of them. O(log n).
    pub fn contains(&self, address: A) -> bool {
        self.edges.partition_point(|edge| *edge <= address) % 2 == 1
    }

    /// The addresses for which `keep` says so, of whether these have it and whether `other` has it.
    fn combined(&self, other: &Self, keep: impl Fn(bool, bool) -> bool) -> Self {
        let (mut mine, mut others) = (self.edges.iter().peekable(), other.edges.iter().peekable());
        let (mut in_mine, mut in_other, mut kept) = (false, false, false);
        let mut edges = Vec::new();
        while let Some(edge) = [mine.peek(), others.peek()].into_iter().flatten().min() {
            let edge = **edge;
            in_mine ^= mine.next_if(|one| **one == edge).is_some();
            in_other ^= others.next_if(|one| **one == edge).is_some();
            if keep(in_mine, in_other) != kept {
                kept = !kept;
                edges.push(edge);
            }
        }
        Self { edges }
    }

    /// These and those.
    pub fn union(&self, other: &Self) -> Self {
        self.combined(other, |mine, other| mine || other)
    }

    /// These without those.
    pub fn minus(&self, other: &Self) -> Self {
        self.combined(other, |mine, other| mine && !other)
    }

    /// Whether all of `other` are among these.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_all() || other.minus(self).is_none()
    }

    /// The first and the last of them.
    pub fn ends(&self) -> Option<(A, A)> {
        let first = *self.edges.first()?;
        let mut last = A::ZERO.last(0);
        if self.edges.len().is_multiple_of(2) {
            // The address before the end: all prefixes that begin the last range, one by one.
            let range = [
                self.edges[self.edges.len() - 2],
                self.edges[self.edges.len() - 1],
            ];
            Pieces::of(range[0], Some(range[1])).for_each(|piece| last = piece.last());
        }
        Some((first, last))
    }

    /// The fewest prefixes that hold these addresses and no other; `None` if there are more than
    /// `most`.
    pub fn prefixes(&self, most: usize) -> Option<Vec<Prefix<A>>> {
        let mut all = Vec::new();
        for range in self.edges.chunks(2) {
            for piece in Pieces::of(range[0], range.get(1).copied()) {
                if all.len() == most {
                    return None;
                }
                all.push(piece);
            }
        }
        Some(all)
    }
}

/// The prefixes that a range consists of.
struct Pieces<A> {
    at: Option<A>,
    end: Option<A>,
}

impl<A: Address> Pieces<A> {
    /// From `first` to the address before `end`; to the last address where there is no end.
    fn of(first: A, end: Option<A>) -> Self {
        Self {
            at: Some(first),
            end,
        }
    }
}

impl<A: Address> Iterator for Pieces<A> {
    type Item = Prefix<A>;

    fn next(&mut self) -> Option<Prefix<A>> {
        let at = self.at?;
        let fits = |len: u8| at.network(len) == at && self.end.is_none_or(|end| at.last(len) < end);
        let len = (0..=A::BITS)
            .find(|len| fits(*len))
            .expect("one address fits");
        self.at = at.last(len).next().filter(|next| self.end != Some(*next));
        Some(Prefix::of(at, len))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_tables::lpm::{Prefix4, Prefix6};
    use proptest::prelude::*;

    fn four(texts: &[&str]) -> Ranges<u32> {
        Ranges::of(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn prefixes_that_touch_or_nest_become_one_range() {
        let merged = four(&["10.1.0.0/16", "10.0.0.0/16", "10.0.3.0/24"]);
        assert_eq!(merged, four(&["10.0.0.0/15"]));
        assert_eq!(
            merged.prefixes(1).unwrap(),
            ["10.0.0.0/15".parse::<Prefix4>().unwrap()]
        );
        assert!(four(&["0.0.0.0/1", "128.0.0.0/1"]).is_all());
        assert!(four(&[]).is_none() && four(&["0.0.0.0/0", "10.0.0.0/8"]).is_all());
        let six = Ranges::of(vec![Prefix6::of(u128::MAX, 128)]);
        assert_eq!(six.ends(), Some((u128::MAX, u128::MAX)));
    }

    #[test]
    fn the_negation_of_a_prefix_takes_a_prefix_for_each_bit() {
        let ten = four(&["10.0.0.0/8"]);
        let others = Ranges::all().minus(&ten);
        assert_eq!(others.prefixes(99).unwrap().len(), 8);
        assert_eq!(others.prefixes(7), None);
        assert!(others.union(&ten).is_all() && !others.covers(&ten));
        assert_eq!(ten.ends(), Some((0x0a00_0000, 0x0aff_ffff)));
    }

    proptest! {
        #[test]
        fn sets_of_a_few_addresses_are_as_counted(
            a in prop::collection::vec((0u32..64, 26u8..=32), 0..6),
            b in prop::collection::vec((0u32..64, 26u8..=32), 0..6),
        ) {
            let prefixes = |list: &[(u32, u8)]| -> Vec<Prefix4> {
                list.iter().map(|(at, len)| Prefix::of(*at, *len)).collect()
            };
            let (a, b) = (prefixes(&a), prefixes(&b));
            let has = |list: &[Prefix4], at| list.iter().any(|prefix| prefix.contains(at));
            let (x, y) = (Ranges::of(a.clone()), Ranges::of(b.clone()));
            let pieces = Ranges::of(x.prefixes(99).unwrap());
            prop_assert_eq!(&pieces, &x);
            for at in 0..70 {
                prop_assert_eq!(x.contains(at), has(&a, at));
                prop_assert_eq!(x.union(&y).contains(at), has(&a, at) || has(&b, at));
                prop_assert_eq!(x.minus(&y).contains(at), has(&a, at) && !has(&b, at));
            }
            let covers = (0..70).all(|at| has(&a, at) || !has(&b, at));
            prop_assert_eq!(x.covers(&y), covers);
            let mut inside = (0..70).filter(|at| has(&a, *at));
            prop_assert_eq!(x.ends(), inside.clone().next().zip(inside.next_back()));
        }
    }
}
