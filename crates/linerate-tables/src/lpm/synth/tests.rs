//! The generator against the table that it copies, and the destinations against their patterns.

use super::*;
use std::collections::BTreeSet;

/// What is compared.
struct Statistics {
    lengths: [usize; 129],
    nested: usize,
    /// How many distinct beginnings of so many bits there are.
    distinct: Vec<(u8, usize)>,
}

const BEGINNINGS4: &[u8] = &[8, 12, 16, 20, 24];
const BEGINNINGS6: &[u8] = &[16, 20, 24, 28, 32, 36, 40, 44, 48];

impl Statistics {
    fn of<A: Top>(mut prefixes: Vec<Prefix<A>>, beginnings: &[u8]) -> Self {
        prefixes.sort_unstable();
        let mut lengths = [0; 129];
        let (mut nested, mut covering): (usize, Vec<Prefix<A>>) = (0, Vec::new());
        for &prefix in &prefixes {
            lengths[usize::from(prefix.len())] += 1;
            while covering.last().is_some_and(|above| !above.covers(prefix)) {
                covering.pop();
            }
            nested += usize::from(!covering.is_empty());
            covering.push(prefix);
        }
        let distinct = |&bits: &u8| {
            let all: BTreeSet<A> = prefixes
                .iter()
                .map(|prefix| prefix.first().network(bits))
                .collect();
            (bits, all.len())
        };
        Self {
            lengths,
            nested,
            distinct: beginnings.iter().map(distinct).collect(),
        }
    }

    fn of_routes<A: Top>(routes: &[(Prefix<A>, u32)], beginnings: &[u8]) -> Self {
        Self::of(
            routes.iter().map(|&(prefix, _)| prefix).collect(),
            beginnings,
        )
    }

    /// Holds the generated table to the real one: lengths equal, the rest within so many percent.
    fn is_near(&self, real: &Self, percent: usize) {
        let near = |what: &str, is: usize, was: usize| {
            println!("{what}: {was} in the real table, {is} generated");
            assert!(is.abs_diff(was) * 100 <= was * percent, "{what}");
        };
        assert_eq!(self.lengths, real.lengths);
        near("nested", self.nested, real.nested);
        for (is, was) in self.distinct.iter().zip(&real.distinct) {
            near(&format!("distinct /{}", is.0), is.1, was.1);
        }
    }
}

#[test]
fn a_generated_table_is_like_the_real_one() {
    let Some(real) = crate::lpm::tests::real_prefixes() else {
        return;
    };
    let (n4, n6) = (real.v4.len(), real.v6.len());
    let four = Statistics::of_routes(&routes4(&Spec::new(n4, 1)), BEGINNINGS4);
    four.is_near(&Statistics::of(real.v4, BEGINNINGS4), 12);
    let six = Statistics::of_routes(&routes6(&Spec::new(n6, 1)), BEGINNINGS6);
    six.is_near(&Statistics::of(real.v6, BEGINNINGS6), 25);
}

/// Whatever the size, the table has as many routes as asked for, no prefix twice, half of them
/// nested.
#[test]
fn any_size() {
    for routes in [0, 1, 2, 10, 1000, 30_000] {
        let spec = Spec::new(routes, 7);
        let (four, six) = (routes4(&spec), routes6(&spec));
        assert!(four.is_sorted() && six.is_sorted());
        let distinct: BTreeSet<_> = four.iter().map(|route| route.0).collect();
        assert_eq!((four.len(), distinct.len()), (routes, routes));
        let distinct: BTreeSet<_> = six.iter().map(|route| route.0).collect();
        assert_eq!((six.len(), distinct.len()), (routes, routes));
        if routes >= 1000 {
            for statistics in [
                Statistics::of_routes(&four, &[]),
                Statistics::of_routes(&six, &[]),
            ] {
                let percent = statistics.nested * 100 / routes;
                assert!(
                    (45..65).contains(&percent),
                    "{percent} % of {routes} nested"
                );
            }
        }
    }
    assert_eq!(routes4(&Spec::new(1000, 3)), routes4(&Spec::new(1000, 3)));
    assert_ne!(routes4(&Spec::new(1000, 3)), routes4(&Spec::new(1000, 4)));
}

#[test]
#[ignore = "long: the largest tables"]
fn the_largest_tables() {
    assert_eq!(routes4(&Spec::new(usize::MAX, 1)).len(), MAX_ROUTES4);
    assert_eq!(routes6(&Spec::new(usize::MAX, 1)).len(), MAX_ROUTES6);
}

#[test]
fn next_hops_are_skewed() {
    let routes = routes4(&Spec {
        next_hops: 4,
        ..Spec::new(10_000, 1)
    });
    let mut counts = [0; 4];
    routes
        .iter()
        .for_each(|route| counts[route.1 as usize] += 1);
    assert!(
        counts.is_sorted_by(|a, b| a > b) && counts[3] > 500,
        "{counts:?}"
    );
    let one = Spec {
        next_hops: 0,
        ..Spec::new(10, 1)
    };
    assert!(routes4(&one).iter().all(|route| route.1 == 0));
}

#[test]
fn destinations_are_routed() {
    let (four, six) = (routes4(&Spec::new(500, 1)), routes6(&Spec::new(500, 1)));
    for pattern in [
        Pattern::Prefixes,
        Pattern::Hosts,
        Pattern::Zipf,
        Pattern::Sequential,
    ] {
        fn all_routed<A: Top>(routes: &[(Prefix<A>, u32)], pattern: Pattern) {
            let all = destinations(routes, pattern, 2000, 1);
            assert_eq!(all.len(), 2000);
            let routed = |at: &A| routes.iter().any(|(prefix, _)| prefix.contains(*at));
            assert!(all.iter().all(routed), "{pattern:?}");
        }
        all_routed(&four, pattern);
        all_routed(&six, pattern);
        assert!(destinations::<u32>(&[], pattern, 10, 1).is_empty());
    }
}

#[test]
fn patterns_differ_as_they_say() {
    let routes = [
        ("10.0.0.0/8".parse().unwrap(), 1),
        ("11.0.0.0/24".parse().unwrap(), 2),
        ("10.1.0.0/16".parse().unwrap(), 3),
    ];
    let in_slash24 = |pattern| {
        let all = destinations::<u32>(&routes, pattern, 3000, 5);
        all.iter().filter(|&&at| at >> 24 == 11).count()
    };
    assert!((900..1100).contains(&in_slash24(Pattern::Prefixes)));
    assert!(in_slash24(Pattern::Hosts) < 10);
    let all = destinations(&routes, Pattern::Sequential, 1 << 25, 5);
    let next = |at: u32| match at {
        0x0aff_ffff => 0x0b00_0000,
        0x0b00_00ff => 0x0a00_0000,
        at => at + 1,
    };
    assert!(all.windows(2).all(|pair| pair[1] == next(pair[0])));
    let everything = [(Prefix6::ALL, 1)];
    let all = destinations(&everything, Pattern::Sequential, 10, 1);
    assert!(
        all.windows(2)
            .all(|pair| pair[1] == pair[0].wrapping_add(1))
    );
}
