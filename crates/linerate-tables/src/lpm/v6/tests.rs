//! The table against the routes, and against addresses counted by hand.

use super::*;
use crate::lpm::synth::{Pattern, Rng, Spec, destinations, routes6};

fn with_routes(routes: &[(Prefix6, u32)], isa: Isa) -> Fib6 {
    let mut fib = Fib6::new(&Config6 {
        isa,
        ..Config6::default()
    })
    .unwrap();
    for &(prefix, hop) in routes {
        fib.insert(0, prefix, hop).unwrap();
    }
    fib
}

fn expected(fib: &Fib6, vrf: u32, address: u128) -> u32 {
    fib.rib(vrf)
        .longest(address)
        .map_or(NO_ROUTE, |found| found.1)
}

/// Looks up all addresses at once and one by one, and compares with the routes.
fn check(fib: &Fib6, vrf: u32, addresses: &[u128], seed: u64) {
    let bytes: Vec<[u8; 16]> = addresses.iter().map(|at| at.to_be_bytes()).collect();
    let mut hops = vec![0; bytes.len()];
    fib.lookup_bulk(vrf, &bytes, &mut hops);
    for (&address, &hop) in addresses.iter().zip(&hops) {
        let expected = expected(fib, vrf, address);
        assert_eq!(hop, expected, "bulk {address:x}, seed {seed}");
        let one = fib.lookup(vrf, address).unwrap_or(NO_ROUTE);
        assert_eq!(one, expected, "one {address:x}, seed {seed}");
    }
}

/// The first and last address of a prefix, and those just outside.
fn edges(prefix: Prefix6) -> [u128; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
}

#[test]
fn generated_table() {
    let routes = routes6(&Spec::new(20_000, 3));
    let fib = with_routes(&routes, Isa::detect());
    let mut addresses = destinations(&routes, Pattern::Prefixes, 20_000, 1);
    addresses.extend(routes.iter().flat_map(|route| edges(route.0)));
    check(&fib, 0, &addresses, 3);
}
