use std::collections::{BTreeSet, HashSet, VecDeque};

use super::*;
use linerate_tables::rss::{Inverse, MICROSOFT_KEY, PortField, Reta, Toeplitz};
use linerate_testkit::Random;
use linerate_wire::flow::{FlowKey4, FlowKey6};

const SECRET: Secret = Secret::new(6056);

fn to(host: u8) -> FlowKey4 {
    FlowKey4::new([198, 51, 100, host], [192, 0, 2, 1], 443, 0, 6)
}

#[test]
fn a_walk_meets_every_place_once() {
    for places in [
        0,
        1,
        2,
        3,
        7,
        255,
        256,
        28_232,
        64_512,
        65_535,
        65_536,
        1 << 18,
    ] {
        for stride in STRIDES.into_iter().chain([STRIDE]) {
            let mut seen = vec![false; places as usize];
            let step = stride.checked_rem(places).unwrap_or(0);
            for place in walk(places, scaled(0x8765_4321, places), step) {
                assert!(!std::mem::replace(&mut seen[place], true));
            }
            assert!(seen.iter().all(|&seen| seen), "{places} by {stride}");
        }
    }
}

/// Every port is found, and the end is noticed, whatever the range.
#[test]
fn all_ports_are_given_before_none_is() {
    for range in [
        1..=1,
        0..=0,
        65_535..=65_535,
        1000..=1006,
        0..=1023,
        RANGE,
        0..=u16::MAX,
    ] {
        let mut chooser = Chooser::new(&SECRET);
        let mut used = BTreeSet::new();
        while let Some(port) = chooser.choose(&to(1), range.clone(), |port| used.contains(&port), 0)
        {
            assert!(range.contains(&port) && used.insert(port), "{port}");
        }
        assert!(used.iter().copied().eq(range.clone()), "{range:?}");
        let counts = chooser.counts();
        assert_eq!((counts.chosen, counts.exhausted), (range.len() as u64, 1));
    }
}

#[test]
fn an_empty_range_has_no_port() {
    let mut chooser = Chooser::new(&SECRET);
    #[allow(clippy::reversed_empty_ranges)] // what a configuration may say
    for range in [2..=1, u16::MAX..=0] {
        assert_eq!(chooser.choose(&to(1), range, |_| false, 0), None);
    }
}

/// A search without a port is not repeated at once, and only for the end that has none.
#[test]
fn an_end_without_ports_is_refused_without_a_search_for_a_while() {
    let mut chooser = Chooser::new(&SECRET);
    const MS: u64 = 1 << 20;
    for start in [0, 65_536 * MS, 1 << 52] {
        let used = chooser.counts();
        let mut full = |now_ns| chooser.choose(&to(1), RANGE, |_| true, start + now_ns);
        assert_eq!(full(0), None);
        assert_eq!([full(1), full(20 * MS - 1)], [None, None]);
        let other = chooser.choose(&to(2), RANGE, |_| false, start);
        assert!(other.is_some());
        let after = chooser.choose(&to(1), RANGE, |_| false, start + 20 * MS);
        assert!(after.is_some());
        let counts = chooser.counts();
        assert_eq!(counts.exhausted - used.exhausted, 1);
        assert_eq!(counts.refused - used.refused, 2);
        assert!(counts.tried - used.tried <= 28_232 + 8 + 2);
    }
}

/// Lcores that do not know of each other's connections never give out the same port, and all ports
/// are somebody's.
#[test]
fn shares_of_a_range_are_disjoint_and_all_of_it() {
    for (range, of) in [(RANGE, 7), (1..=10, 3), (0..=u16::MAX, 64), (5..=6, 4)] {
        let mut all = BTreeSet::new();
        for nth in 0..of {
            let share = Share { nth, of };
            let mut chooser = Chooser::new(&SECRET);
            let mut used = BTreeSet::new();
            let mut choose = || {
                let is_used = |port| used.contains(&port);
                let port = chooser.choose_of(&to(1), (range.clone(), share), is_used, 0);
                port.map(|port| used.insert(port))
            };
            while choose().is_some() {}
            assert!(used.iter().all(|&port| all.insert(port)), "{share:?}");
        }
        assert!(all.iter().copied().eq(range));
    }
}

/// Where no port that comes home is free, one that needs an entry is asked for at once.
#[test]
fn an_end_is_refused_by_kind() {
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let reta = Reta::round_robin(128, 8).unwrap();
    let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta).unwrap();
    let ports = inverse.ports(&to(1).0[..12], 3).unwrap().range(RANGE);
    let mut chooser = Chooser::new(&SECRET);
    for now in 0..3 {
        assert_eq!(chooser.choose_among(&to(1), &ports, |_| true, now), None);
        assert!(chooser.choose(&to(1), RANGE, |_| false, now).is_some());
    }
    assert_eq!(chooser.choose(&to(1), RANGE, |_| true, 3), None);
    for now in 4..7 {
        assert_eq!(chooser.choose(&to(1), RANGE, |_| false, now), None);
        assert_eq!(chooser.choose_among(&to(1), &ports, |_| false, now), None);
    }
    let counts = chooser.counts();
    assert_eq!((counts.exhausted, counts.refused), (2, 2 + 6));
}

/// Tries for each choice, with a share of the ports in use as `in_use` has it.
fn tries(in_use: impl Fn(u16) -> bool) -> f64 {
    let mut chooser = Chooser::new(&SECRET);
    for host in 0..200 {
        for _ in 0..20 {
            assert!(chooser.choose(&to(host), RANGE, &in_use, 0).is_some());
        }
    }
    let counts = chooser.counts();
    counts.tried as f64 / counts.chosen as f64
}

#[test]
fn a_choice_takes_few_tries_however_ports_are_used() {
    let random =
        |port: u16, share: u64| linerate_core::random::mixed(u64::from(port) + 1) % 1000 < share;
    let half = tries(|port| random(port, 500));
    assert!((1.8..2.2).contains(&half), "{half}");
    let most = tries(|port| random(port, 900));
    assert!((8.0..16.0).contains(&most), "{most}");
    // Half of them in the worst order for a search by neighbours or by parity.
    for in_use in [|port: u16| port < 46_884, |port: u16| port & 1 == 0] {
        let half = tries(in_use);
        assert!(half < 5.0, "{half}");
    }
    // Half of them as the chooser itself gave them, from one end of its order to the middle.
    let mut chooser = Chooser::new(&SECRET);
    let mut used = HashSet::new();
    for _ in 0..28_232 / 2 {
        let port = chooser.choose(&to(1), RANGE, |port| used.contains(&port), 0);
        used.extend(port);
    }
    let before = chooser.counts();
    for _ in 0..1000 {
        let port = chooser.choose(&to(1), RANGE, |port| used.contains(&port), 0);
        assert!(port.is_some());
    }
    let counts = chooser.counts();
    let each = (counts.tried - before.tried) as f64 / 1000.0;
    assert!(each < 5.0, "{each}");
}

/// RFC 6056 3.1: ports of one end tell nothing about those of another, nor about its own next.
#[test]
fn rfc_6056_3_3_4_the_next_port_cannot_be_predicted() {
    let mut chooser = Chooser::new(&SECRET);
    let mut firsts: Vec<u16> = (0..=255)
        .map(|host| chooser.choose(&to(host), RANGE, |_| false, 0).unwrap())
        .collect();
    let quarters = |ports: &[u16]| {
        let mut counts = [0; 4];
        for port in ports {
            counts[usize::from(port - RANGE.start()) * 4 / RANGE.len()] += 1;
        }
        counts
    };
    let counts = quarters(&firsts);
    assert!(counts.iter().all(|n| (40..90).contains(n)), "{counts:?}");
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 245);
    // Of one end: the steps between ports are among eight, drawn anew.
    let ports: Vec<u16> = (0..1000)
        .map(|_| chooser.choose(&to(1), RANGE, |_| false, 0).unwrap())
        .collect();
    let counts = quarters(&ports);
    assert!(counts.iter().all(|n| (200..300).contains(n)), "{counts:?}");
    let steps: HashSet<u16> = ports.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!((8..=24).contains(&steps.len()), "{}", steps.len());
    // Another secret, another order.
    let mut other = Chooser::new(&Secret::new(1));
    let others: Vec<u16> = (0..1000)
        .map(|_| other.choose(&to(1), RANGE, |_| false, 0).unwrap())
        .collect();
    let same = ports.iter().zip(&others).filter(|(a, b)| a == b).count();
    assert!(same < 10);
}

/// RFC 6056 3.3.4: a port that was closed comes again late, even where nothing lingers.
#[test]
fn rfc_6056_3_3_4_a_port_comes_again_late() {
    let mut chooser = Chooser::new(&SECRET);
    let mut last = VecDeque::new();
    for _ in 0..50_000 {
        let port = chooser.choose(&to(1), RANGE, |_| false, 0).unwrap();
        assert!(!last.contains(&port));
        last.push_back(port);
        if last.len() > 2000 {
            last.pop_front();
        }
    }
}

/// The ports of each queue are all given, no other one is, and half use costs little.
#[test]
fn ports_that_come_home_are_all_given_before_none_is() {
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    for queues in [1, 3, 8, 64] {
        let reta = Reta::round_robin(128, queues).unwrap();
        let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta).unwrap();
        for queue in [0, queues / 2, queues - 1] {
            let ports = inverse.ports(&to(1).0[..12], queue).unwrap().range(RANGE);
            let mut chooser = Chooser::new(&SECRET);
            let mut used = HashSet::new();
            while let Some(port) =
                chooser.choose_among(&to(1), &ports, |port| used.contains(&port), 0)
            {
                let arriving = to(1).with_local_port(port);
                assert_eq!(inverse.queue(&arriving.0[..12]), queue);
                assert!(RANGE.contains(&port) && used.insert(port));
                if used.len() == ports.count() / 2 {
                    let each = chooser.counts().tried as f64 / used.len() as f64;
                    assert!(each < 2.0, "{each}");
                }
            }
            assert_eq!(used.len(), ports.count(), "queue {queue} of {queues}");
            assert_eq!(chooser.counts().exhausted, 1);
        }
    }
}

#[test]
fn ipv6_has_ports_too() {
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let reta = Reta::round_robin(128, 8).unwrap();
    let inverse = Inverse::new(rss.affine(), PortField::V6_DST, &reta).unwrap();
    let mut random = Random::new(4);
    let mut chooser = Chooser::new(&SECRET);
    for _ in 0..100 {
        let host = u128::from(random.bits()).to_be_bytes();
        let to = FlowKey6::new(host, [2; 16], 443, 0, 6);
        let ports = inverse.ports(&to.0[..36], 5).unwrap().range(RANGE);
        let port = chooser.choose_among(&to, &ports, |_| false, 0).unwrap();
        assert_eq!(inverse.queue(&to.with_local_port(port).0[..36]), 5);
    }
}
