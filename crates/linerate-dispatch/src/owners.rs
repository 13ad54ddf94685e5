//! Who owns which bucket, and which moves would even out the workers' loads.

use crate::bucket::{BUCKETS, Bucket};

/// A worker's number among those that own flows.
pub type Owner = u8;

/// The most workers.
pub const WORKERS: usize = 64;

/// The owner of each bucket. Every dispatcher has a copy of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    of: [Owner; BUCKETS],
}

impl Owners {
    /// All buckets dealt out to `workers` in turn.
    ///
    /// # Panics
    /// If there are none, or more than [`WORKERS`].
    pub fn dealt(workers: usize) -> Self {
        assert!((1..=WORKERS).contains(&workers), "{workers} workers");
        Self {
            of: std::array::from_fn(|bucket| (bucket % workers) as Owner),
        }
    }

    /// Whose a bucket is.
    #[inline(always)]
    pub fn of(&self, bucket: Bucket) -> Owner {
        self.of[usize::from(bucket)]
    }

    /// Gives a bucket to another.
    pub fn set(&mut self, bucket: Bucket, owner: Owner) {
        self.of[usize::from(bucket)] = owner;
    }

    /// The buckets of a worker.
    pub fn buckets(&self, owner: Owner) -> impl Iterator<Item = Bucket> + '_ {
        (0..=u8::MAX).filter(move |&bucket| self.of(bucket) == owner)
    }
}

/// A bucket that is to go from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The bucket.
    pub bucket: Bucket,
    /// Who has it.
    pub from: Owner,
    /// Who gets it.
    pub to: Owner,
}

/// Parts in 100 of the mean load by which the busiest worker may be above the least busy one.
pub const TOLERANCE: u64 = 10;
/// Moves of one look at the loads: the rest waits for the next, when the loads are known anew.
pub const MOVES: usize = 16;
/// Packets in a period below which nothing is moved: there is nothing to even out.
pub const FEW: u64 = 1000;

/// Load of each bucket in the last period: packets, or cycles.
pub type Loads = [u64; BUCKETS];

impl Owners {
    /// What each of `workers` has to do.
    pub fn loads(&self, loads: &Loads, workers: usize) -> Vec<u64> {
        let mut of = vec![0; workers];
        for (&owner, load) in self.of.iter().zip(loads) {
            if let Some(sum) = of.get_mut(usize::from(owner)) {
                *sum += load;
            }
        }
        of
    }

    /// The busiest worker's load over the mean: 1 where all have as much to do.
    pub fn imbalance(&self, loads: &Loads, workers: usize) -> f64 {
        let of = self.loads(loads, workers);
        let sum: u64 = of.iter().sum();
        let most = of.into_iter().max().unwrap_or(0);
        match sum {
            0 => 1.0,
            sum => most as f64 * workers as f64 / sum as f64,
        }
    }

    /// The next move that brings the busiest worker's load down, if its excess over the least busy
    /// one's is more than `tolerance` parts in 100 of the mean: the bucket whose load is nearest to
    /// half of the difference. There is none where one bucket alone is the load: an elephant flow
    /// cannot be divided, and moving it only moves the place.
    pub fn next_move(&self, loads: &Loads, workers: usize, tolerance: u64) -> Option<Move> {
        let of = self.loads(loads, workers);
        let mean = of.iter().sum::<u64>() / workers.max(1) as u64;
        let (from, most) = (0..).zip(&of).max_by_key(|&(_, load)| load)?;
        let (to, least) = (0..).zip(&of).min_by_key(|&(_, load)| load)?;
        let difference = most - least;
        if difference * 100 <= mean * tolerance {
            return None;
        }
        let load = |bucket: &Bucket| loads[usize::from(*bucket)];
        // What is moved has to make the greater of the two smaller.
        let fitting = self
            .buckets(from)
            .filter(|bucket| (1..difference).contains(&load(bucket)));
        // Of two that are as near, the one with less to move.
        let bucket =
            fitting.min_by_key(|bucket| (load(bucket).abs_diff(difference / 2), load(bucket)))?;
        Some(Move { bucket, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    #[test]
    fn buckets_are_dealt_out_evenly() {
        for workers in 1..=WORKERS {
            let owners = Owners::dealt(workers);
            let counts: Vec<_> = (0..workers as Owner)
                .map(|of| owners.buckets(of).count())
                .collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1 && counts.iter().sum::<usize>() == BUCKETS);
        }
    }

    #[test]
    fn moves_even_out_any_load_that_can_be_and_come_to_an_end() {
        let mut random = Random::new(5);
        for workers in [2, 3, 6, 24, 64] {
            let mut owners = Owners::dealt(workers);
            // As of flows of many sizes: some buckets have a hundred times the load of others.
            let loads = std::array::from_fn(|_| 1 << random.below(8));
            let before = owners.imbalance(&loads, workers);
            let mut moves = 0;
            while let Some(Move { bucket, from, to }) = owners.next_move(&loads, workers, 10) {
                assert!(owners.of(bucket) == from && from != to);
                let imbalance = owners.imbalance(&loads, workers);
                owners.set(bucket, to);
                assert!(owners.imbalance(&loads, workers) <= imbalance);
                moves += 1;
                assert!(moves < 1000, "{workers}");
            }
            let after = owners.imbalance(&loads, workers);
            assert!(
                after <= before && (workers > 6 || after < 1.1),
                "{workers} {before} {after}"
            );
        }
    }

    /// One flow that is more than a worker can do stays where it is.
    #[test]
    fn an_elephant_is_not_moved_about() {
        let mut owners = Owners::dealt(2);
        let mut loads = [0; BUCKETS];
        loads[8] = 1_000_000;
        assert_eq!(owners.next_move(&loads, 2, 10), None);
        // What is beside it goes away from it.
        loads[10] = 1000;
        let next = owners.next_move(&loads, 2, 10);
        assert_eq!(
            next,
            Some(Move {
                bucket: 10,
                from: 0,
                to: 1
            })
        );
        owners.set(10, 1);
        assert_eq!(owners.next_move(&loads, 2, 10), None);
    }
}
