//! The table against the routes, at every level of instructions.

use super::*;
use crate::lpm::synth::{Pattern, Rng, Spec, destinations, routes6};

fn config(isa: Isa) -> Lpm6Config {
    Lpm6Config {
        // The first VRF has a direct array: bulk lookups read it, single ones do not.
        direct_vrfs: 1,
        routes: 0,
        isa,
        ..Lpm6Config::default()
    }
}

fn with_routes(routes: &[(Prefix6, u32)], config: &Lpm6Config) -> Lpm6 {
    let mut table = Lpm6::new(config).unwrap();
    for &(prefix, hop) in routes {
        table.insert(0, prefix, hop).unwrap();
    }
    table
}

/// Looks up all addresses at once and one by one, and compares with the routes.
fn check(fib: &Fib6, rib: &Rib<u128>, vrf: u32, addresses: &[u128], seed: u64) {
    let bytes: Vec<[u8; 16]> = addresses.iter().map(|at| at.to_be_bytes()).collect();
    let mut hops = vec![0; bytes.len()];
    fib.lookup_bulk(vrf, &bytes, &mut hops);
    for (&address, &hop) in addresses.iter().zip(&hops) {
        let expected = rib.longest(address).map(|found| found.1);
        assert_eq!(
            hop,
            expected.unwrap_or(NO_ROUTE),
            "{address:x}, seed {seed}"
        );
        assert_eq!(
            fib.lookup(vrf, address.to_be_bytes()),
            expected,
            "{address:x}, seed {seed}"
        );
    }
}

fn check_table(table: &Lpm6, addresses: &[u128], seed: u64) {
    check(table.fib(), &table.ribs[0], 0, addresses, seed);
}

/// The first and last address of a prefix, and those just outside.
fn edges(prefix: Prefix6) -> [u128; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
}

fn prefix(text: &str) -> Prefix6 {
    text.parse().unwrap()
}

#[test]
fn a_generated_table_at_every_level() {
    let routes = routes6(&Spec::new(20_000, 3));
    let mut addresses = destinations(&routes, Pattern::Prefixes, 10_000, 1);
    addresses.extend(routes.iter().flat_map(|route| edges(route.0)));
    for isa in Isa::detect().levels() {
        let table = with_routes(&routes, &config(isa));
        check_table(&table, &addresses, 3);
        // Bursts of every length, whatever the kernel's stride.
        for len in 0..140 {
            check_table(&table, &addresses[len..2 * len], 3);
        }
    }
}

#[test]
fn the_real_table() {
    let Some(real) = crate::lpm::tests::real_prefixes() else {
        return;
    };
    let routes: Vec<_> = real.v6.into_iter().zip(0..).collect();
    let table = with_routes(&routes, &config(Isa::detect()));
    let addresses: Vec<u128> = routes.iter().flat_map(|route| edges(route.0)).collect();
    check_table(&table, &addresses, 0);
}

/// Prefixes huddle where they overlap, meet and nest: `bits` of the address vary.
fn near(rng: &mut Rng) -> Prefix6 {
    let len = match rng.below(4) {
        0 => rng.below(129) as u8,
        1 => [16, 24, 32, 40, 48, 56, 64, 80, 112, 127, 128][rng.below(11) as usize],
        2 => 40 + rng.below(10) as u8,
        _ => 110 + rng.below(19) as u8,
    };
    // A few values at each place where tables and leaves divide, the rest zero or one.
    let mut address = match rng.below(8) {
        0 => u128::MAX,
        1 => 0,
        _ => 0x2001_0db8 << 96,
    };
    for at in [14, 22, 30, 38, 46, 54, 62, 78, 94, 110, 118, 126] {
        if rng.below(3) == 0 {
            let bits = u128::from(rng.below(16)) << 124 >> at;
            address ^= bits;
        }
    }
    Prefix6::of(address, len)
}

fn hop(rng: &mut Rng) -> u32 {
    match rng.below(8) {
        0 => 0x8000_0000 | rng.below(40) as u32,
        1 => u32::MAX - 1 - rng.below(4) as u32,
        _ => rng.below(100) as u32,
    }
}

/// Random inserts, replacements and removals in two VRFs, looked up at once.
fn random_changes(rounds: usize, changes: usize, isa: Isa, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut table = Lpm6::new(&Lpm6Config {
        vrfs: 2,
        ..config(isa)
    })
    .unwrap();
    let mut model = [std::collections::BTreeMap::new(), Default::default()];
    for round in 0..rounds {
        let grow = round % 8 < 5;
        let mut addresses = Vec::new();
        for _ in 0..changes {
            let vrf = rng.below(2) as usize;
            let insert = rng.below(4) != 0;
            let some = near(&mut rng);
            addresses.extend(edges(some));
            addresses.push(some.first() | (rng.next_u128() >> some.len().min(127)));
            if insert == grow {
                let hop = hop(&mut rng);
                let had = table.insert(vrf as u32, some, hop).unwrap();
                assert_eq!(had, model[vrf].insert(some, hop), "seed {seed}");
            } else {
                // One that is there, if there are any behind it.
                let there = model[vrf].range(some..).next().map(|(&there, _)| there);
                let gone = there.unwrap_or(some);
                addresses.extend(edges(gone));
                let had = table.remove(vrf as u32, gone).unwrap();
                assert_eq!(had, model[vrf].remove(&gone), "seed {seed}");
            }
        }
        for vrf in 0..2 {
            check(&table.fib, &table.ribs[vrf], vrf as u32, &addresses, seed);
        }
    }
    for (vrf, model) in (0..).zip(model) {
        assert!(table.routes(vrf).eq(model));
        for (gone, _) in table.routes(vrf).collect::<Vec<_>>() {
            table.remove(vrf, gone).unwrap();
        }
    }
    assert_eq!(table.nodes.used(), (0, 0), "nothing is leaked, seed {seed}");
}

#[test]
fn random_changes_at_every_level() {
    for (seed, isa) in (11..).zip(Isa::detect().levels()) {
        random_changes(400, 60, isa, seed);
        random_changes(2000, 3, isa, seed + 100);
    }
}

/// A direct array comes when there are many routes and goes with them; readers of whichever copy
/// find what the routes say, before and after.
#[test]
fn a_direct_array_comes_and_goes_with_routes() {
    let mut rng = Rng::new(31);
    let mut table = SharedLpm6::new(&Lpm6Config {
        direct_routes: 400,
        routes: 50_000,
        ..config(Isa::detect())
    })
    .unwrap();
    let mut reader = table.reader();
    let (mut came, mut went, mut had) = (0, 0, false);
    for round in 0..24 {
        let mut addresses = Vec::new();
        for _ in 0..150 {
            let some = near(&mut rng);
            if round % 12 < 6 {
                table.insert(0, some, hop(&mut rng)).unwrap();
            } else {
                let there = table.routes(0).find(|route| route.0 >= some);
                if let Some((gone, _)) = there {
                    table.remove(0, gone).unwrap();
                    addresses.extend(edges(gone));
                }
            }
            addresses.extend(edges(some));
        }
        assert!(table.publish(), "the reader has looked");
        let (fib, routes) = (reader.read(), table.table.len());
        let has = fib.0.has_direct(0);
        match routes {
            400.. => assert!(has, "{routes} routes"),
            ..200 => assert!(!has, "{routes} routes"),
            _ => assert_eq!(has, had, "{routes} routes"),
        }
        came += u32::from(has & !had);
        went += u32::from(had & !has);
        had = has;
        addresses.extend(table.routes(0).flat_map(|route| edges(route.0)));
        check(fib, &table.table.ribs[0], 0, &addresses, 31);
    }
    assert!(came == 2 && went == 2, "came {came} times, went {went}");
}

#[test]
#[ignore = "long: 750,000 changes"]
fn random_changes_for_long() {
    for (seed, isa) in (1000..).zip(Isa::detect().levels()) {
        random_changes(20_000, 10, isa, seed);
        random_changes(50_000, 1, isa, seed + 100);
    }
}

#[test]
fn every_length_nested_in_the_one_before() {
    for isa in Isa::detect().levels() {
        for address in [0, u128::MAX, 0x2001_0db8 << 96 | 1] {
            let mut table = Lpm6::new(&config(isa)).unwrap();
            let nested = |len| Prefix6::of(address, len);
            let probes: Vec<u128> = (0..=128).flat_map(|len| edges(nested(len))).collect();
            for len in (0..=128).rev() {
                table.insert(0, nested(len), len.into()).unwrap();
                check_table(&table, &probes, 0);
            }
            for len in 0..=128 {
                table.remove(0, nested(len)).unwrap();
                check_table(&table, &probes, 0);
            }
            assert_eq!(table.nodes.used(), (0, 0));
        }
    }
}

#[test]
fn the_budget_holds_and_an_error_changes_nothing() {
    let budget_bytes = 2 << 20;
    let mut table = Lpm6::new(&Lpm6Config {
        direct_vrfs: 0,
        budget_bytes,
        ..config(Isa::detect())
    })
    .unwrap();
    let routes = routes6(&Spec::new(100_000, 1));
    let mut added = 0;
    let error = loop {
        let (prefix, hop) = routes[added];
        match table.insert(0, prefix, hop) {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
        assert!(table.memory().total() <= budget_bytes);
    };
    assert!(
        error.to_string().contains(&budget_bytes.to_string()),
        "{error}"
    );
    assert!((2_000..50_000).contains(&added), "{added} routes");
    assert!(table.routes(0).eq(routes[..added].iter().copied()));
    let addresses: Vec<u128> = routes.iter().flat_map(|route| edges(route.0)).collect();
    check_table(&table, &addresses, 1);
    assert!(
        Lpm6::new(&Lpm6Config {
            direct_vrfs: 0,
            budget_bytes: 1 << 16,
            ..config(Isa::Baseline)
        })
        .is_err()
    );
}

/// The bytes that a refusal asks for and those that there are.
fn budget(error: &TableError) -> (usize, usize) {
    match error {
        TableError::LpmBudget {
            need_bytes,
            budget_bytes,
            ..
        } => (*need_bytes, *budget_bytes),
        other => panic!("not a matter of the budget: {other}"),
    }
}

/// What an error says is needed is more than there is, and enough.
#[test]
fn an_error_about_the_budget_has_the_bytes_that_are_enough() {
    let routes = routes6(&Spec::new(60_000, 1));
    // Budgets that end in the arrays, and in the route store, on either kind of pages.
    for budget_bytes in (1..=24).map(|times| times * (700 << 10)) {
        let insert = |table: &mut Lpm6| {
            let mut routes = routes.iter();
            let of = |at: usize| match at % 7 {
                // A next hop that needs a place of its own.
                0 => 0x8000_0000 | at as u32,
                _ => at as u32,
            };
            routes.try_fold(table.len(), |at, &(prefix, _)| {
                table.insert(0, prefix, of(at)).map(|_| at + 1)
            })
        };
        let table = |budget_bytes| {
            Lpm6::new(&Lpm6Config {
                direct_vrfs: 0,
                budget_bytes,
                ..config(Isa::Baseline)
            })
        };
        let mut small = match table(budget_bytes) {
            Ok(table) => table,
            Err(error) => {
                let (need, have) = budget(&error);
                assert!(need > have && have == budget_bytes, "{error}");
                assert!(table(need).is_ok(), "{error}");
                continue;
            }
        };
        let Err(error) = insert(&mut small) else {
            continue;
        };
        let (need, have) = budget(&error);
        assert!(need > have && have == budget_bytes, "{error}");
        // The same table under the budget that the error asks for takes the route that it refused.
        let refused = routes[small.len()];
        small.budget_bytes = need;
        small.insert(0, refused.0, refused.1).unwrap();
        assert!(small.memory().total() <= need);
    }
}

#[test]
fn a_budget_can_be_lowered_alone() {
    for budget_bytes in [3 << 20, 4 << 20, 8 << 20, 64 << 20] {
        let config = Lpm6Config {
            budget_bytes,
            ..Lpm6Config::default()
        };
        let mut table = Lpm6::new(&config).unwrap();
        table.insert(0, prefix("2001:db8::/32"), 1).unwrap();
        assert!(table.memory().total() <= budget_bytes);
        if budget_bytes >= 4 << 20 {
            let mut table = SharedLpm6::new(&config).unwrap();
            table.insert(0, prefix("2001:db8::/32"), 1).unwrap();
        }
    }
}

#[test]
fn a_shared_table_that_is_full_says_of_what_and_stays_as_it_was() {
    let mut table = SharedLpm6::new(&config(Isa::detect())).unwrap();
    let routes = routes6(&Spec::new(60_000, 1));
    let mut added = 0;
    let error = loop {
        let (prefix, hop) = routes[added];
        match table.insert(0, prefix, hop) {
            Ok(_) => added += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        error.contains("all in use") && error.contains("`routes`"),
        "{error}"
    );
    assert!(table.routes(0).eq(routes[..added].iter().copied()));
}

#[test]
fn bad_arguments_are_named() {
    let mut table = Lpm6::new(&config(Isa::detect())).unwrap();
    let why = |result: Result<_, TableError>| result.unwrap_err().to_string();
    assert!(why(table.insert(1, prefix("::/0"), 1)).contains("VRF 1"));
    assert!(why(table.remove(7, prefix("::/0"))).contains("VRF 7"));
    assert!(why(table.insert(0, prefix("::/0"), NO_ROUTE)).contains("no route"));
    for vrfs in [0, u32::MAX] {
        assert!(
            Lpm6::new(&Lpm6Config {
                vrfs,
                ..config(Isa::Baseline)
            })
            .is_err()
        );
    }
    assert!(table.is_empty());
    assert_eq!(table.fib().lookup(9, [1; 16]), None);
    let mut hops = [1];
    table.fib().lookup_bulk(9, &[[0; 16]], &mut hops);
    assert_eq!(hops, [NO_ROUTE]);
}

/// What a change writes does not depend on how many routes there are elsewhere.
#[test]
fn a_change_touches_little() {
    let routes = routes6(&Spec::new(30_000, 5));
    let (table, rest) = routes.split_at(29_000);
    let mut table = with_routes(
        table,
        &Lpm6Config {
            routes: 60_000,
            ..config(Isa::detect())
        },
    );
    table.fib.0.keep_writes();
    let mut most = 0;
    for &(prefix, hop) in rest.iter().filter(|route| route.0.len() >= 32) {
        table.insert(0, prefix, hop).unwrap();
        most = most.max(table.fib.0.writes().count());
        table.remove(0, prefix).unwrap();
        most = most.max(table.fib.0.writes().count());
    }
    assert!(most < 400, "{most} writes");
}

/// Tells the readers to stop, even where the writer fails.
struct Done<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Readers on other threads see each published state whole: all routes lead to its number.
#[test]
fn readers_see_one_state_at_a_time() {
    let routes = routes6(&Spec::new(500, 9));
    let mut table = SharedLpm6::new(&Lpm6Config {
        routes: 5000,
        ..config(Isa::detect())
    })
    .unwrap();
    let addresses: Vec<[u8; 16]> = routes
        .iter()
        .map(|route| route.0.first().to_be_bytes())
        .collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = table.reader();
            let (addresses, done) = (&addresses, &done);
            scope.spawn(move || {
                let mut hops = vec![0; addresses.len()];
                let mut last = NO_ROUTE;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    reader.read().lookup_bulk(0, addresses, &mut hops);
                    assert!(hops.iter().all(|&hop| hop == hops[0]));
                    assert!(last == NO_ROUTE || hops[0] >= last, "states come in order");
                    last = hops[0];
                    std::thread::yield_now();
                }
            });
        }
        let _stop = Done(&done);
        for state in 0..100_u32 {
            for &(prefix, _) in &routes {
                // Some come and go within one state.
                table.insert(0, prefix, state).unwrap();
                if state.is_multiple_of(3) {
                    table.remove(0, prefix).unwrap();
                    table.insert(0, prefix, state).unwrap();
                }
            }
            while !table.publish() {
                std::thread::yield_now();
            }
        }
    });
}
