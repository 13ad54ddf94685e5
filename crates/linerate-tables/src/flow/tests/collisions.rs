//! Keys that a stranger has chosen to collide.

use super::*;
use crate::exact::hash::KeyedHash;

/// The number-th flow of UDP to a server.
fn udp(number: u32) -> FlowKey4 {
    let [_, a, b, c] = number.to_be_bytes();
    FlowKey4::new([10, a, b, c], [192, 0, 2, 1], 4000, 53, 17)
}

/// Flows whose keys all fall into a 64th of the index, by either half of their hash under a seed.
fn chosen(seed: Seed, count: usize) -> Vec<FlowKey4> {
    let hash = KeyedHash::new(seed);
    let falls = |key: &FlowKey4| {
        let bits = hash.of(key.canonical().0.bytes()).0;
        bits >> 58 == 0 && bits as u32 >> 26 == 0
    };
    (1 << 20..).map(udp).filter(falls).take(count).collect()
}

/// Who knows the seed can bring the table to refuse flows of its choice, which is counted; flows
/// that are there stay, and others begin. Who does not know it has flows like any others.
#[test]
fn chosen_keys_collide_only_under_a_known_seed_and_end_no_flow() {
    let (known, secret) = (Seed(1), Seed::random());
    let first = || First {
        state: 1,
        owner: 0,
        zone: 0,
        user: 0,
        bytes: 60,
    };
    let table = |seed| {
        let config = FlowConfig {
            seed,
            ..config(1000)
        };
        FlowTable::<FlowKey4, u64, 16>::new(&config, 0).unwrap()
    };
    let keys = chosen(known, 200);
    let mut open = table(known);
    for number in 0..100 {
        open.insert(0, udp(number), first()).unwrap();
    }
    let refused = |key: &&FlowKey4| open.insert(1, **key, first()) == Err(Refused::Collision);
    let refused: Vec<FlowKey4> = keys.iter().filter(refused).copied().collect();
    assert!(refused.len() > 100, "{}", refused.len());
    assert_eq!(open.refusals().collision, refused.len() as u64);
    assert_eq!(open.len(), 100 + keys.len() - refused.len());
    for key in &keys {
        assert_eq!(open.lookup(*key).is_some(), !refused.contains(key));
    }
    for number in 0..100 {
        assert!(open.touch(2, udp(number), 60).is_some());
    }
    for number in 100..200 {
        open.insert(2, udp(number), first()).unwrap();
    }

    let mut keyed = table(secret);
    for key in &keys {
        keyed.insert(1, *key, first()).unwrap();
    }
    assert_eq!(keyed.refusals().collision, 0, "seed {}", secret.0);
}
