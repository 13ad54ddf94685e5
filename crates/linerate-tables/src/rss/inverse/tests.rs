//! The inverse against brute force over all 65536 ports.

use super::*;
use crate::rss::{MICROSOFT_KEY, PortSet, SYMMETRIC_KEY, Toeplitz};
use linerate_core::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// All ports that agree with the tuple's where the field is not free, and lead to the queue.
fn brute_force(inverse: &Inverse, hash: &AffineHash, tuple: &[u8], queue: u16) -> BTreeSet<u16> {
    let PortField { byte, mask } = inverse.field();
    let given = u16::from_be_bytes([tuple[byte], tuple[byte + 1]]);
    let mut tuple = tuple.to_vec();
    let lands = |&port: &u16| {
        tuple[byte..byte + 2].copy_from_slice(&port.to_be_bytes());
        (port ^ given) & !mask == 0 && inverse.reta().queue(hash.hash(&tuple)) == queue
    };
    (0..=u16::MAX).filter(lands).collect()
}

/// Every way to ask gives what brute force gives.
fn check(
    ports: Ports<'_>,
    all: &BTreeSet<u16>,
    range: RangeInclusive<u16>,
    out: &PortSet,
    seed: u64,
) {
    for (limited, excluded) in [(false, false), (true, false), (false, true), (true, true)] {
        let wanted =
            |port: &&u16| (!limited || range.contains(port)) && !(excluded && out.contains(**port));
        let expected: BTreeSet<u16> = all.iter().filter(wanted).copied().collect();
        let mut ports = ports.clone();
        if limited {
            ports = ports.range(range.clone());
        }
        if excluded {
            ports = ports.excluding(out);
        }
        let listed: Vec<u16> = ports.iter().collect();
        assert_eq!(
            (listed.len(), ports.count()),
            (expected.len(), expected.len()),
            "seed {seed}"
        );
        assert!(
            listed.iter().all(|port| expected.contains(port)),
            "seed {seed}"
        );
        assert!(
            ports.to_set().iter().eq(expected.iter().copied()),
            "seed {seed}"
        );
        let mut placed: Vec<u16> = (0..ports.places()).filter_map(|p| ports.at(p)).collect();
        assert_eq!(placed, listed, "seed {seed}");
        placed.dedup();
        assert_eq!(placed.len(), listed.len(), "seed {seed}");
        assert_eq!(ports.at(ports.places()), None, "seed {seed}");
        let mut written = vec![0; listed.len() / 2 + 3];
        let count = ports.write(&mut written);
        assert_eq!(written[..count], listed[..count], "seed {seed}");
        assert_eq!(count, listed.len().min(written.len()), "seed {seed}");
        for n in [
            0,
            listed.len() / 3,
            listed.len().saturating_sub(1),
            listed.len(),
        ] {
            assert_eq!(ports.nth(n), listed.get(n).copied(), "seed {seed}");
        }
        for random in 0..8 {
            let picked = ports.pick(random ^ seed);
            assert_eq!(picked.is_some(), !listed.is_empty(), "seed {seed}");
            assert!(
                picked.is_none_or(|port| expected.contains(&port)),
                "seed {seed}"
            );
        }
        for port in (0..=u16::MAX).step_by(251) {
            assert_eq!(
                ports.contains(port),
                expected.contains(&port),
                "seed {seed}"
            );
        }
    }
}

/// A random case: any key (rich, poor, symmetric), tuple, field and RETA.
fn case(seed: u64) {
    let mut random = Random::new(seed);
    let key: Vec<u8> = match random.bits() % 4 {
        0 => MICROSOFT_KEY.into(),
        1 => SYMMETRIC_KEY.into(),
        2 => [random.bits() as u8].repeat(40),
        _ => (0..52).map(|_| random.bits() as u8).collect(),
    };
    let input: Vec<u8> = (0..36).map(|_| random.bits() as u8).collect();
    let v6 = random.bits().is_multiple_of(2);
    let tuple = if v6 { &input[..] } else { &input[..12] };
    let hash = match random.bits() % 4 {
        0 => AffineHash::crc32c(tuple.len(), random.bits() as u32).unwrap(),
        _ => Toeplitz::with_start(&key, random.bits() as u32)
            .unwrap()
            .affine()
            .clone(),
    };
    let fields = [
        PortField::V4_SRC,
        PortField::V4_DST,
        PortField::V6_SRC,
        PortField::V6_DST,
    ];
    let mut field = fields[usize::from(v6) * 2 + (random.bits() % 2) as usize];
    match random.bits() % 3 {
        0 => field = field.keeping(random.bits() as u16),
        1 => field = field.keeping(1),
        _ => {}
    }
    let size = 1 << (random.bits() % 13);
    let queues = 1 + random.bits() % 9;
    let reta = Reta::from_slots((0..size).map(|_| (random.bits() % queues) as u16)).unwrap();
    let inverse = Inverse::new(&hash, field, &reta).unwrap();
    let (a, b) = (random.bits() as u16, random.bits() as u16);
    let out: PortSet = (0..random.bits() % 60_000)
        .map(|_| random.bits() as u16)
        .collect();
    let queue = (random.bits() % queues) as u16;
    let all = brute_force(&inverse, &hash, tuple, queue);
    match inverse.ports(tuple, queue) {
        Ok(ports) => check(ports, &all, a.min(b)..=a.max(b), &out, seed),
        Err(error) => {
            assert!(all.is_empty(), "seed {seed}: {error}");
            assert!(
                error.to_string().contains(&format!("queue {queue}")),
                "seed {seed}: {error}"
            );
        }
    }
    if field.mask & 1 == 0 {
        let mut even = tuple.to_vec();
        even[field.byte + 1] &= !1;
        let mut odd = even.clone();
        odd[field.byte + 1] |= 1;
        let below = brute_force(&inverse, &hash, &odd, queue);
        let all = brute_force(&inverse, &hash, &even, queue);
        let all: BTreeSet<u16> = all
            .into_iter()
            .filter(|port| below.contains(&(port + 1)))
            .collect();
        match inverse.pairs(tuple, queue) {
            Ok(pairs) => check(pairs, &all, a.min(b)..=a.max(b), &out, seed),
            Err(error) => assert!(all.is_empty(), "seed {seed}: {error}"),
        }
    }
}

#[test]
fn finds_exactly_what_brute_force_finds() {
    (0..60).for_each(case);
}

#[test]
#[ignore = "long: 2000 random keys, tuples and tables, each over all ports"]
fn finds_exactly_what_brute_force_finds_long() {
    (1000..3_000).for_each(case);
}

/// What the specification of the T1 dispatcher wants: full rank up to 4096 entries without touching
/// the key.
#[test]
fn stock_keys_have_full_rank_up_to_4096_entries() {
    for key in [MICROSOFT_KEY, SYMMETRIC_KEY] {
        let rss = Toeplitz::new(&key).unwrap();
        for field in [
            PortField::V4_SRC,
            PortField::V4_DST,
            PortField::V6_SRC,
            PortField::V6_DST,
        ] {
            for bits in 0..=12 {
                let reta = Reta::round_robin(1 << bits, 1).unwrap();
                let inverse = Inverse::new(rss.affine(), field, &reta).unwrap();
                assert_eq!(inverse.rank(), bits, "{field:?}");
                assert_eq!(inverse.ports(&[7; 36], 0).unwrap().count(), 65_536);
            }
        }
    }
}

#[test]
fn an_unreachable_queue_is_an_error_that_names_it() {
    // A key of zeros sends everything to entry 0.
    let rss = Toeplitz::new(&[0; 40]).unwrap();
    let reta = Reta::round_robin(128, 8).unwrap();
    let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta).unwrap();
    assert_eq!((inverse.rank(), inverse.queue(&[1; 12])), (0, 0));
    assert_eq!(inverse.ports(&[1; 12], 0).unwrap().count(), 65_536);
    let error = inverse.ports(&[1; 12], 3).unwrap_err().to_string();
    assert!(
        error.contains("queue 3") && error.contains("0 of the 7 bits"),
        "{error}"
    );
    let error = inverse.ports(&[1; 12], 8).unwrap_err().to_string();
    assert!(
        error.contains("queue 8") && error.contains("below 8"),
        "{error}"
    );
}

#[test]
fn ports_that_are_not_there_are_refused() {
    let crc = AffineHash::crc32c(8, 0).unwrap();
    let reta = Reta::round_robin(4, 2).unwrap();
    let error = Inverse::new(&crc, PortField::V4_SRC, &reta)
        .unwrap_err()
        .to_string();
    assert!(error.contains("byte 8 of a hash over 8 bytes"), "{error}");
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta).unwrap();
    let error = inverse.ports(&[0; 8], 0).unwrap_err().to_string();
    assert!(
        error.contains("tuple of 8 bytes") && error.contains("12 bytes or more"),
        "{error}"
    );
    assert!(
        inverse
            .pairs(&[0; 12], 0)
            .unwrap_err()
            .to_string()
            .contains("keeping(1)")
    );
}

/// Pearson's statistic over as many ports as are wanted has their number as its mean.
#[test]
fn each_port_that_is_wanted_is_picked_as_often() {
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let reta = Reta::round_robin(128, 8).unwrap();
    let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta).unwrap();
    let excluded: PortSet = (20_000..=20_999).filter(|port| port % 3 > 0).collect();
    let ports = inverse.ports(&[7; 12], 3).unwrap();
    let ports = ports.range(20_000..=20_999).excluding(&excluded);
    let wanted: Vec<u16> = ports.iter().collect();
    let (mut counts, rounds) = (BTreeMap::new(), 100 * wanted.len() as u64);
    for random in 0..rounds {
        *counts.entry(ports.pick(random).unwrap()).or_insert(0) += 1;
    }
    let mean = 100.0;
    let square = |port: &u16| {
        let count = counts.get(port).copied().unwrap_or(0);
        (f64::from(count) - mean).powi(2) / mean
    };
    let sum: f64 = wanted.iter().map(square).sum();
    let degrees = wanted.len() as f64;
    assert!(counts.len() == wanted.len() && sum < degrees + 6.0 * (2.0 * degrees).sqrt());
    // All but one are in use.
    let last = wanted[wanted.len() / 2];
    let excluded: PortSet = (0..=u16::MAX).filter(|port| *port != last).collect();
    let ports = inverse.ports(&[7; 12], 3).unwrap().excluding(&excluded);
    assert_eq!(ports.pick(5), Some(last));
}
