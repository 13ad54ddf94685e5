//! Addresses to look up in a table, in the patterns that tables are measured with.

use super::{Rng, Top, inside};
use crate::lpm::Prefix;

/// Which addresses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Each routed prefix as often as any other, with random host bits.
    Prefixes,
    /// Each routed address as often as any other: short prefixes more often than long ones.
    Hosts,
    /// The k-th most popular prefix (an order drawn from the seed) with a probability of about 1/k,
    /// that is Zipf's law with s = 1, with random host bits.
    Zipf,
    /// Consecutive routed addresses, from a random one on, over and over.
    Sequential,
}

/// `count` addresses that `routes` cover, in `pattern`; none where there are no routes.
///
/// ```
/// use linerate_tables::lpm::synth::{Pattern, Spec, destinations, routes6};
/// let routes = routes6(&Spec::new(100, 1));
/// assert_eq!(destinations(&routes, Pattern::Zipf, 1000, 2).len(), 1000);
/// ```
pub fn destinations<A: Top>(
    routes: &[(Prefix<A>, u32)],
    pattern: Pattern,
    count: usize,
    seed: u64,
) -> Vec<A> {
    if routes.is_empty() {
        return Vec::new();
    }
    let rng = &mut Rng::new(seed);
    match pattern {
        Pattern::Prefixes => (0..count)
            .map(|_| host(routes[below(routes.len(), rng)].0, rng))
            .collect(),
        Pattern::Zipf => {
            let popular = shuffled(routes.len(), rng);
            let mut one = || {
                let rank = rng.harmonic(routes.len() as u64) as usize;
                host(routes[popular[rank]].0, rng)
            };
            (0..count).map(|_| one()).collect()
        }
        Pattern::Hosts => {
            let routed = Routed::new(routes);
            let mut one = || routed.at(rng.next_u128());
            (0..count).map(|_| one()).collect()
        }
        Pattern::Sequential => {
            let routed = Routed::new(routes);
            let start = rng.next_u128();
            (0..count as u128)
                .map(|step| routed.at(start.wrapping_add(step)))
                .collect()
        }
    }
}

/// A random address inside the prefix.
fn host<A: Top>(prefix: Prefix<A>, rng: &mut Rng) -> A {
    A::from_top(inside(
        (prefix.first().to_top(), prefix.len()),
        A::BITS,
        rng,
    ))
}

fn below(len: usize, rng: &mut Rng) -> usize {
    rng.below(len as u64) as usize
}

/// The numbers from 0 to `len`, in random order.
fn shuffled(len: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, below(last + 1, rng));
    }
    order
}

/// All routed addresses, numbered in ascending order.
struct Routed {
    /// Of each disjoint range of addresses, in order: its first address, and the number of the
    /// address after its last.
    ranges: Vec<(u128, u128)>,
    bits: u8,
}

impl Routed {
    fn new<A: Top>(routes: &[(Prefix<A>, u32)]) -> Self {
        let to_low = 128 - u32::from(A::BITS);
        let mut all: Vec<(u128, u128)> = routes
            .iter()
            .map(|(prefix, _)| (prefix.first().to_top(), prefix.last().to_top()))
            .map(|(first, last)| (first >> to_low, last >> to_low))
            .collect();
        all.sort_unstable();
        let (mut ranges, mut number, mut free) = (Vec::new(), 0_u128, Some(0));
        for (first, last) in all {
            // `free` is the first address beyond what is numbered; none beyond the very last.
            let Some(first) = free
                .map(|free: u128| first.max(free))
                .filter(|&at| at <= last)
            else {
                continue;
            };
            // All 2^128 addresses cannot be counted; one less can.
            number = (last - first).saturating_add(1).saturating_add(number);
            ranges.push((first, number));
            free = last.checked_add(1);
        }
        Self {
            ranges,
            bits: A::BITS,
        }
    }

    /// The address whose number is `number` modulo how many there are.
    fn at<A: Top>(&self, number: u128) -> A {
        let total = self.ranges.last().expect("there are routes").1;
        let number = number % total;
        let range = self.ranges.partition_point(|&(_, end)| end <= number);
        let before = range
            .checked_sub(1)
            .map_or(0, |before| self.ranges[before].1);
        let address = self.ranges[range].0 + (number - before);
        A::from_top(address << (128 - u32::from(self.bits)))
    }
}
