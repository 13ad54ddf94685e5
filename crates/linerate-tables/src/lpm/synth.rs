//! Route tables and destinations like the Internet's, from a seed.
//!
//! What users, tests and benchmarks get where the real table is not at hand. The generator owns the
//! statistics (`shape`) that it copies: how many prefixes have which length, how many lie inside a
//! shorter one and of which length that is, where in the address space they are, and how they
//! huddle together. Read `generate` first: it places lengths from short to long, each prefix either
//! inside one that stands already or outside all of them, and either afresh or near an earlier one.
//!
//! # How close it comes
//!
//! The model is a full table of January 2024 (901,899 IPv4 and 160,147 IPv6 prefixes). Measured on
//! it and on as many generated routes (seed 1). `tests` hold every row to it, IPv4 within 12 %,
//! IPv6 within 25 %, where `LINERATE_DATA` names the folder of the real one. Prefixes of each
//! length: as many.
//!
//! | | IPv4: real | generated | IPv6: real | generated |
//! |---|---:|---:|---:|---:|
//! | prefixes inside a shorter one | 457,209 | 459,231 | 91,091 | 90,616 |
//! | distinct /8 | 220 | 209 | | |
//! | distinct /12 | 3,115 | 3,243 | | |
//! | distinct /16 | 35,192 | 38,626 | 60 | 61 |
//! | distinct /20 | 217,012 | 226,344 | 618 | 752 |
//! | distinct /24 | 839,650 | 859,213 | 7,267 | 6,199 |
//! | distinct /28 | | | 18,927 | 16,236 |
//! | distinct /32 | | | 34,317 | 39,317 |
//! | distinct /36 | | | 49,728 | 54,533 |
//! | distinct /40 | | | 70,825 | 72,874 |
//! | distinct /44 | | | 95,793 | 97,820 |
//! | distinct /48 | | | 153,104 | 157,872 |
//!
//! Next hops are drawn independently of one another. In real tables neighbours often share one, so
//! that tables which merge equal neighbours look worse here than they are in the field.

mod destinations;
mod rng;
mod shape;
#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;

pub use destinations::{Pattern, destinations};
pub use rng::Rng;

use super::{Address, Prefix, Prefix4, Prefix6};
use shape::{Length, Shape};
use std::collections::HashSet;

/// An address as the topmost bits of 128, so that one generator serves both families.
pub trait Top: Address {
    /// The address in the topmost bits.
    fn to_top(self) -> u128;
    /// From the topmost bits.
    fn from_top(top: u128) -> Self;
}

impl Top for u32 {
    fn to_top(self) -> u128 {
        u128::from(self) << 96
    }

    fn from_top(top: u128) -> Self {
        (top >> 96) as u32
    }
}

impl Top for u128 {
    fn to_top(self) -> u128 {
        self
    }

    fn from_top(top: u128) -> Self {
        top
    }
}

/// What table to generate.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// How many routes, no two of the same prefix; at most [`MAX_ROUTES4`] or [`MAX_ROUTES6`].
    pub routes: usize,
    /// Next hops are `0..next_hops`, the k-th drawn with a probability of about 1/k.
    pub next_hops: u32,
    /// Equal seeds give equal tables.
    pub seed: u64,
}

impl Spec {
    /// `routes` routes over 256 next hops.
    pub fn new(routes: usize, seed: u64) -> Self {
        Self {
            routes,
            next_hops: 256,
            seed,
        }
    }
}

/// The most IPv4 routes of a table: twice as many, and its /16s would not fit the unicast space.
pub const MAX_ROUTES4: usize = 2_000_000;
/// The most IPv6 routes of a table.
pub const MAX_ROUTES6: usize = 2_000_000;

/// An IPv4 table like the Internet's, in ascending order of prefix, each with its next hop.
///
/// `spec.routes` beyond [`MAX_ROUTES4`] give as many as that. Takes about a second for a million,
/// and some ten for two, whose /16s are crowded.
///
/// ```
/// use linerate_tables::lpm::synth::{Spec, routes4};
/// let routes = routes4(&Spec::new(1000, 1));
/// assert_eq!(routes.len(), 1000);
/// assert!(routes.iter().filter(|(prefix, _)| prefix.len() == 24).count() > 500);
/// ```
pub fn routes4(spec: &Spec) -> Vec<(Prefix4, u32)> {
    routes(&shape::V4, spec, MAX_ROUTES4)
}

/// An IPv6 table like the Internet's, in ascending order of prefix, each with its next hop.
///
/// `spec.routes` beyond [`MAX_ROUTES6`] give as many as that.
pub fn routes6(spec: &Spec) -> Vec<(Prefix6, u32)> {
    routes(&shape::V6, spec, MAX_ROUTES6)
}

fn routes<A: Top>(shape: &Shape, spec: &Spec, most: usize) -> Vec<(Prefix<A>, u32)> {
    let mut rng = Rng::new(spec.seed);
    let mut prefixes = generate(shape, spec.routes.min(most), &mut rng);
    prefixes.sort_unstable();
    let mut next_hop = || rng.harmonic(spec.next_hops.max(1).into()) as u32;
    prefixes
        .into_iter()
        .map(|(top, len)| (Prefix::of(A::from_top(top), len), next_hop()))
        .collect()
}

/// How often a place that does not suit is drawn anew before any free one will do.
const TRIES: u32 = 32;

/// `routes` distinct prefixes, the address in the topmost bits, in order of length.
fn generate(shape: &Shape, routes: usize, rng: &mut Rng) -> Vec<(u128, u8)> {
    let mut all: Vec<(u128, u8)> = Vec::with_capacity(routes);
    let mut covered = Covered::default();
    let mut parents = Parents::default();
    for (length, count) in shape.lengths.iter().zip(apportion(shape.lengths, routes)) {
        let mut taken = HashSet::with_capacity(count);
        // Those outside all shorter prefixes, and those inside one.
        let mut kin: [Vec<u128>; 2] = [Vec::new(), Vec::new()];
        while taken.len() < count {
            let nested = !parents.is_empty() && rng.below(100) < u64::from(length.nested_percent);
            let near = &shape.near[usize::from(nested)];
            let mut place = None;
            for _ in 0..TRIES {
                let kin = &kin[usize::from(nested)];
                let top = match nested {
                    _ if !kin.is_empty() && rng.below(100) < near.percent => {
                        let kin = kin[rng.below(kin.len() as u64) as usize];
                        neighbour(kin, length.len, near.more_percent, rng)
                    }
                    true => inside(parents.draw(rng), length.len, rng),
                    false => inside(shape.region(rng), length.len, rng),
                };
                if covered.contains(top) == nested && taken.insert(top) {
                    place = Some(top);
                    break;
                }
            }
            match place {
                Some(top) => kin[usize::from(nested)].push(top),
                // Where the table is crowded, anywhere in a region.
                None => drop(taken.insert(inside(shape.region(rng), length.len, rng))),
            }
        }
        let mut here: Vec<(u128, u8)> = taken.into_iter().map(|top| (top, length.len)).collect();
        here.sort_unstable();
        covered.add(&here);
        parents.add(&here, length.covers);
        all.append(&mut here);
    }
    all
}

/// Shares `routes` out to the lengths as the model has them; the remainder by largest fraction.
fn apportion(lengths: &[Length], routes: usize) -> Vec<usize> {
    let total: u64 = lengths.iter().map(|length| u64::from(length.count)).sum();
    let exact = |length: &Length| u64::from(length.count) * routes as u64;
    let mut counts: Vec<usize> = lengths
        .iter()
        .map(|length| (exact(length) / total) as usize)
        .collect();
    let mut by_fraction: Vec<usize> = (0..lengths.len()).collect();
    by_fraction.sort_by_key(|&index| std::cmp::Reverse(exact(&lengths[index]) % total));
    let missing = routes - counts.iter().sum::<usize>();
    for &index in by_fraction.iter().take(missing) {
        counts[index] += 1;
    }
    counts
}

/// A prefix of `len` bits with the same beginning as `prefix`, the rest random.
fn inside(prefix: (u128, u8), len: u8, rng: &mut Rng) -> u128 {
    let (top, covering) = prefix;
    let random = rng.next_u128() & !leading(covering) & leading(len);
    top | random
}

/// A prefix that differs from `top` in its last few bits: in 1, and with `more_percent` in one
/// more, and so on; the first bits of a region stay.
fn neighbour(top: u128, len: u8, more_percent: u64, rng: &mut Rng) -> u128 {
    let mut same = len - 1;
    while same > shape::REGION_BITS && rng.below(100) < more_percent {
        same -= 1;
    }
    (top & leading(same)) | (rng.next_u128() & !leading(same) & leading(len))
}

/// The topmost `len` bits.
fn leading(len: u8) -> u128 {
    match len {
        0 => 0,
        len => !0 << (128 - u32::from(len)),
    }
}

/// The union of all prefixes of the lengths that are done, as disjoint ranges in order.
#[derive(Default)]
struct Covered {
    ranges: Vec<(u128, u128)>,
}

impl Covered {
    fn contains(&self, top: u128) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= top);
        after > 0 && top <= self.ranges[after - 1].1
    }

    fn add(&mut self, prefixes: &[(u128, u8)]) {
        let outside: Vec<(u128, u128)> = prefixes
            .iter()
            .filter(|&&(top, _)| !self.contains(top))
            .map(|&(top, len)| (top, top | !leading(len)))
            .collect();
        self.ranges.extend(outside);
        self.ranges.sort_unstable();
    }
}

/// Prefixes that longer ones may be put into: a length is drawn by how many it covers in the model,
/// then one of that length.
#[derive(Default)]
struct Parents {
    by_length: Vec<Vec<(u128, u8)>>,
    /// Ascending sums of what each length covers.
    sums: Vec<u64>,
}

impl Parents {
    fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    fn add(&mut self, prefixes: &[(u128, u8)], covers: u32) {
        if prefixes.is_empty() || covers == 0 {
            return;
        }
        let before = self.sums.last().copied().unwrap_or(0);
        self.sums.push(before + u64::from(covers));
        self.by_length.push(prefixes.to_vec());
    }

    fn draw(&self, rng: &mut Rng) -> (u128, u8) {
        let total = *self
            .sums
            .last()
            .expect("asked only where there are parents");
        let at = rng.below(total);
        let prefixes = &self.by_length[self.sums.partition_point(|&sum| sum <= at)];
        prefixes[rng.below(prefixes.len() as u64) as usize]
    }
}
