//! Shares, disruption and independence of order, as the paper measures them.

use super::*;
use linerate_testkit::Random;

fn backends(count: usize) -> Vec<Backend> {
    (0..count)
        .map(|number| Backend {
            name: format!("192.0.2.{}:{}", number % 256, 8000 + number / 256),
            weight: 1,
        })
        .collect()
}

fn table(backends: Vec<Backend>) -> Maglev {
    Maglev::new(backends, DEFAULT_ENTRIES, 0).unwrap()
}

/// Entries that changed although neither the old nor the new backend was `touched`.
fn needless(before: &Maglev, after: &Maglev, touched: &str) -> usize {
    let name = |table: &Maglev, entry: usize| {
        table.backends[usize::from(table.entries[entry])]
            .name
            .clone()
    };
    let needless = |entry: &usize| {
        let (then, now) = (name(before, *entry), name(after, *entry));
        then != now && then != touched && now != touched
    };
    (0..before.len()).filter(needless).count()
}

#[test]
fn equal_weights_have_shares_that_differ_by_one() {
    for count in [1, 2, 3, 10, 100, 655] {
        let table = table(backends(count));
        let shares = table.shares();
        let (low, high) = (
            shares.iter().map(|s| s.entries).min().unwrap(),
            shares.iter().map(|s| s.entries).max().unwrap(),
        );
        assert!(high - low <= 1, "{count} backends: {low} to {high}");
    }
}

#[test]
fn shares_follow_weights() {
    let seed = 5;
    let mut random = Random::new(seed);
    for _ in 0..30 {
        let mut list = backends(1 + random.below(60) as usize);
        let highest = 1 << random.below(20);
        for backend in &mut list {
            backend.weight = random.below(highest) as u32;
        }
        list[0].weight = list[0].weight.max(1);
        let table = table(list);
        for share in table.shares() {
            // A backend's turns are rounded down; what is left falls to the heaviest.
            let off = f64::from(share.entries) - share.fair;
            let most = table.backends.len() as f64;
            assert!(off.abs() <= most, "{share:?}");
            assert!(share.backend.weight > 0 || share.entries == 0);
        }
    }
}

#[test]
fn drained_backends_take_nothing() {
    let mut list = backends(10);
    list[4].weight = 0;
    let table = table(list);
    assert!(table.entries.iter().all(|&backend| backend != 4));
    assert_eq!(table.shares()[4].entries, 0);
}

/// The paper's figure 12: beyond the entries that must change, few do: at 65537 entries under 1%
/// for 10 to 1000 backends when one fails or comes back.
#[test]
fn one_backend_more_or_less_moves_little_else() {
    for count in [10, 100, 1000] {
        let all = table(backends(count));
        for gone in [0, count / 2, count - 1] {
            let mut rest = backends(count);
            let touched = rest.remove(gone).name;
            let without = table(rest);
            for (before, after) in [(&all, &without), (&without, &all)] {
                let needless = needless(before, after, &touched);
                let share = needless as f64 / all.len() as f64;
                let moved = after.moved_since(before).unwrap();
                println!("{count} backends: {moved} moved, {needless} needlessly");
                assert!(share < 0.01, "{count} backends: {share}");
                assert!(moved - needless <= all.len().div_ceil(count) + 1);
            }
        }
    }
}

#[test]
fn draining_moves_what_removal_does() {
    let all = table(backends(50));
    let mut drained = backends(50);
    drained[7].weight = 0;
    let mut removed = backends(50);
    removed.remove(7);
    let (drained, removed) = (table(drained), table(removed));
    assert_eq!(drained.moved_since(&removed), Some(0));
    assert_eq!(drained.moved_since(&all), removed.moved_since(&all));
}

#[test]
fn the_order_in_which_backends_are_given_has_no_say() {
    let forwards = table(backends(30));
    let mut list = backends(30);
    list.reverse();
    let backwards = table(list);
    assert_eq!(backwards.moved_since(&forwards), Some(0));
    let seeded = Maglev::new(backends(30), DEFAULT_ENTRIES, 9).unwrap();
    assert!(seeded.moved_since(&forwards).unwrap() > 60_000);
}

/// What other machines, and later versions, must agree on.
#[test]
fn a_table_is_the_same_everywhere() {
    let small = Maglev::new(backends(3), 13, 42).unwrap();
    assert_eq!(small.entries, [1, 1, 1, 2, 0, 2, 2, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn hashes_reach_entries_evenly_and_in_bulk() {
    let table = table(backends(8));
    let hashes: Vec<u32> = (0..80_000_u32)
        .map(|i| i.wrapping_mul(0x9e37_79b1))
        .collect();
    let mut found = vec![0; hashes.len()];
    table.lookup_bulk(&hashes, &mut found);
    let mut counts = [0; 8];
    for (&hash, &backend) in hashes.iter().zip(&found) {
        assert_eq!(table.lookup(hash), backend);
        counts[usize::from(backend)] += 1;
    }
    assert!(
        counts.iter().all(|count| (9_000..11_000).contains(count)),
        "{counts:?}"
    );
    // The extremes of the hash.
    let _ = (table.lookup(0), table.lookup(u32::MAX));
}

#[test]
fn what_cannot_be_is_refused_with_the_fix() {
    let zero = |mut list: Vec<Backend>| {
        list.iter_mut().for_each(|backend| backend.weight = 0);
        list
    };
    let twice = [backends(3), backends(1)].concat();
    for (list, entries, says) in [
        (backends(3), 65_536, "nearest are 65521 and 65537"),
        (backends(3), 0, "nearest are 2"),
        (backends(3), u32::MAX, "nearest are 4294967291"),
        (backends(14), 13, "14 backends on 13 entries"),
        (zero(backends(3)), 13, "no backend has a weight"),
        (backends(0), 13, "no backend has a weight"),
        (twice, 13, "`192.0.2.0:8000` is given twice"),
        (backends(70_000), 65_537, "at most 65535"),
    ] {
        let error = Maglev::new(list, entries, 0).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
