//! Which bucket of a group leads to which member (resilient hashing).
//!
//! Each of the [`BUCKETS`] buckets belongs to one member. When members come and go, a bucket is
//! moved only if it has to be: those of a removed member, and the share of an added one. Shares are
//! by weight, whole buckets by largest remainder.

use crate::plane::hops::{BUCKETS, Group};

/// How many buckets each weight gets, [`BUCKETS`] together. Each gets at least one, unless there
/// are more weights than buckets.
fn quotas(weights: &[u32]) -> Vec<usize> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let exact = |index: usize| u64::from(weights[index]) * BUCKETS as u64;
    let mut quotas: Vec<usize> = (0..weights.len())
        .map(|index| (exact(index) / total.max(1)) as usize)
        .collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|&index| std::cmp::Reverse(exact(index) % total.max(1)));
    let missing = BUCKETS - quotas.iter().sum::<usize>();
    for &index in by_remainder.iter().take(missing) {
        quotas[index] += 1;
    }
    for index in 0..quotas.len() {
        let richest = (0..quotas.len()).max_by_key(|&other| quotas[other]);
        if let Some(richest) = richest.filter(|&other| quotas[index] == 0 && quotas[other] > 1) {
            quotas[richest] -= 1;
            quotas[index] += 1;
        }
    }
    quotas
}

/// Shares the buckets out to `members`, each a hop and its weight, moving as few as can be. Without
/// members the buckets stay as they are.
pub(super) fn assign(buckets: &mut Group, members: &[(u32, u32)]) {
    let weights: Vec<u32> = members.iter().map(|&(_, weight)| weight).collect();
    let mut room = quotas(&weights);
    let place = |hop: u32| members.iter().position(|&(member, _)| member == hop);
    // A member keeps its buckets up to its quota.
    let mut homeless = Vec::new();
    for (bucket, hop) in buckets.iter().enumerate() {
        match place(*hop).filter(|&member| room[member] > 0) {
            Some(member) => room[member] -= 1,
            None => homeless.push(bucket),
        }
    }
    // The rest goes, one at a time, to the member that lacks most.
    for bucket in homeless {
        let Some(most) = (0..members.len()).max_by_key(|&m| (room[m], members.len() - m)) else {
            return;
        };
        buckets[bucket] = members[most].0;
        room[most] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOBODY: u32 = u32::MAX;

    fn count(buckets: &Group, hop: u32) -> usize {
        buckets.iter().filter(|&&b| b == hop).count()
    }

    #[test]
    fn shares_by_weight() {
        let mut buckets = [NOBODY; BUCKETS];
        assign(&mut buckets, &[(7, 1), (8, 3)]);
        assert_eq!((count(&buckets, 7), count(&buckets, 8)), (16, 48));
        assign(&mut buckets, &[(7, 1), (8, 1), (9, 1)]);
        let counts = [7, 8, 9].map(|hop| count(&buckets, hop));
        assert_eq!(counts.iter().sum::<usize>(), BUCKETS);
        assert!(counts.iter().all(|&n| n == 21 || n == 22));
    }

    #[test]
    fn a_small_share_is_a_bucket_at_least() {
        let mut buckets = [NOBODY; BUCKETS];
        assign(&mut buckets, &[(1, 1000), (2, 1)]);
        assert_eq!(count(&buckets, 2), 1);
        assign(&mut buckets, &[(1, 1 << 30), (2, 1), (3, 1)]);
        assert_eq!([1, 2, 3].map(|hop| count(&buckets, hop)), [62, 1, 1]);
        let many: Vec<_> = (0..100).map(|hop| (hop, 1)).collect();
        assign(&mut buckets, &many);
        assert!(many.iter().all(|&(hop, _)| count(&buckets, hop) <= 1));
    }

    #[test]
    fn who_goes_takes_only_its_buckets_along() {
        let mut buckets = [NOBODY; BUCKETS];
        assign(&mut buckets, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let before = buckets;
        assign(&mut buckets, &[(1, 1), (2, 1), (4, 1)]);
        for (was, is) in before.iter().zip(&buckets) {
            assert!(*was == 3 || was == is);
            assert_ne!(*is, 3);
        }
        let without = buckets;
        assign(&mut buckets, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let moved = without.iter().zip(&buckets).filter(|(was, is)| was != is);
        assert!(moved.clone().all(|(_, is)| *is == 3));
        assert_eq!(moved.count(), 16);
    }

    proptest! {
        #[test]
        fn no_bucket_moves_that_need_not(
            first in proptest::collection::btree_map(0u32..30, 1u32..50, 1..20),
            second in proptest::collection::btree_map(0u32..30, 1u32..50, 1..20),
        ) {
            let [first, second] = [first, second].map(|m| m.into_iter().collect::<Vec<_>>());
            let mut buckets = [NOBODY; BUCKETS];
            assign(&mut buckets, &first);
            let before = buckets;
            assign(&mut buckets, &second);
            let weights: Vec<u32> = second.iter().map(|m| m.1).collect();
            let quotas = quotas(&weights);
            prop_assert_eq!(quotas.iter().sum::<usize>(), BUCKETS);
            for (&(hop, _), quota) in second.iter().zip(quotas) {
                prop_assert_eq!(count(&buckets, hop), quota);
                let kept = before.iter().zip(&buckets).filter(|(was,
                    is)| **was == hop && **is == hop);
                prop_assert_eq!(kept.count(), quota.min(count(&before, hop)));
            }
        }
    }
}
