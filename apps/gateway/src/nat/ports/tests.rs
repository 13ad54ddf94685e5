//! Ports against sets of ports that are searched one by one.

use super::*;
use linerate_core::random::Random;
use std::collections::BTreeSet;

const TCP: Protocol = Protocol::Tcp;
const A: AddressId = AddressId(0);

/// Addresses of one pool, with these ports.
fn outsides(count: u16, range: RangeInclusive<u16>, block_ports: u16) -> Vec<Option<Outside>> {
    let legal = Arc::new(Legal::new(range));
    let outside = |position: u16| Outside {
        address: [198, 51, 100, position as u8].into(),
        legal: legal.clone(),
        pool: 0,
        position,
        block_ports,
    };
    (0..count).map(|position| Some(outside(position))).collect()
}

fn all_of_one() -> Ports {
    Ports::new(&outsides(1, 1024..=65535, 0), Bits::ALL)
}

fn wish(port: u16) -> Wish {
    Wish {
        port: Some(port),
        odd: Some(port & 1 != 0),
        bucket: 7,
    }
}

#[test]
fn each_port_is_in_its_bucket_and_back() {
    for port in 0..=u16::MAX {
        assert_eq!(port_at(bucket_of(port), place_of(port)), port);
        assert_eq!(bucket_of(port), bucket_of(port ^ 1));
        assert_eq!(bucket_of(port.wrapping_add(STEP)), bucket_of(port));
    }
    let high = (1024..=u16::MAX).filter(|&port| bucket_of(port) == 9);
    assert_eq!(high.count(), 252);
}

#[test]
fn the_last_port_is_found_and_then_none() {
    let mut ports = all_of_one();
    let (mut random, mut given) = (Random::new(1), BTreeSet::new());
    for left in (0..64_512).rev() {
        let port = ports.take(A, TCP, &wish(5000), random.bits()).unwrap();
        assert!(port >= 1024 && given.insert(port));
        assert_eq!(ports.free(A, TCP), left);
    }
    for _ in 0..100 {
        assert_eq!(ports.take(A, TCP, &wish(5000), random.bits()), None);
    }
    assert_eq!(
        (ports.roomy(0, TCP, 0), ports.roomy(0, Protocol::Udp, 0)),
        (None, Some(0))
    );
    // Given back, it is there at once.
    assert!(ports.give(A, TCP, 40_001) && !ports.give(A, TCP, 40_001));
    assert_eq!(ports.take(A, TCP, &wish(5000), 3), Some(40_001));
}

#[test]
fn rfc_4787_req_3_a_port_is_preserved_if_it_is_free_and_never_given_twice() {
    let mut ports = all_of_one();
    assert_eq!(ports.take(A, TCP, &wish(5000), 1), Some(5000));
    let other = ports.take(A, TCP, &wish(5000), 1).unwrap();
    assert!(other != 5000 && bucket_of(other) == 7 && !ports.is_free(A, TCP, other));
    // Another protocol's ports are others.
    assert_eq!(ports.take(A, Protocol::Udp, &wish(5000), 1), Some(5000));
}

#[test]
fn rfc_4787_req_3_a_low_ports_are_kept_low_and_never_given_by_chance() {
    let mut ports = Ports::new(&outsides(1, 1..=65535, 0), Bits::ALL);
    assert_eq!(ports.take(A, TCP, &wish(500), 1), Some(500));
    assert!(ports.take(A, TCP, &wish(500), 1).unwrap() >= 1024);
    let mut random = Random::new(1);
    while let Some(port) = ports.take(A, TCP, &Wish::default(), random.bits()) {
        assert!(port >= 1024);
    }
    assert!(ports.is_free(A, TCP, 499) && ports.give(A, TCP, 500));
    assert_eq!(ports.free(A, TCP), 0);
}

#[test]
fn rfc_4787_req_4_parity_is_kept_to_its_last_port() {
    let mut ports = Ports::new(&outsides(1, 1024..=3071, 0), Bits::ALL);
    let mut random = Random::new(9);
    for _ in 0..1024 {
        let odd = ports.take(A, TCP, &wish(9001), random.bits()).unwrap();
        assert_eq!(odd & 1, 1);
    }
    let even = ports.take(A, TCP, &wish(9001), random.bits()).unwrap();
    assert_eq!(even & 1, 0);
}

#[test]
fn a_pair_is_two_free_ports_in_a_row() {
    let mut ports = Ports::new(&outsides(1, 1024..=3071, 0), Bits::ALL);
    let mut random = Random::new(2);
    // Every odd port but one of bucket 3 is taken, and some even ones.
    for port in (1025..3072).step_by(2).filter(|&port| port != 1543) {
        assert!(ports.take_port(A, TCP, port));
    }
    assert_eq!(ports.take_pair(A, TCP, 80, random.bits()), Some(1542));
    assert_eq!(ports.take_pair(A, TCP, 80, random.bits()), None);
    assert!(ports.give(A, TCP, 1543));
    assert_eq!(ports.take_pair(A, TCP, 3, random.bits()), None);
}

#[test]
fn rfc_6056_which_port_is_taken_depends_on_the_random_number() {
    let mut random = Random::new(4);
    let taken: BTreeSet<_> = (0..200)
        .map(|_| all_of_one().take(A, TCP, &Wish::default(), random.bits()))
        .collect();
    assert!(taken.len() > 60, "{taken:?}");
}

#[test]
fn only_buckets_that_are_here_give_ports() {
    let (mut ports, mut random) = (all_of_one(), Random::new(6));
    let mut other = Ports::new(&outsides(1, 1024..=65535, 0), Bits::NONE);
    assert!(ports.take_port(A, TCP, 7 << 1 | 2 << 9));
    for bucket in 0..=255 {
        if bucket % 3 == 0 || bucket == 7 {
            let moved = ports.take_bucket(bucket).unwrap();
            assert_eq!(moved.bucket(), bucket);
            assert!(ports.take_bucket(bucket).is_none());
            other.put_bucket(moved).unwrap();
        }
    }
    // What was taken stays taken, there.
    assert!(!other.is_free(A, TCP, 7 << 1 | 2 << 9));
    assert_eq!(ports.free(A, TCP) + other.free(A, TCP), 64_511);
    assert_eq!((ports.mine().len(), other.mine().len()), (169, 87));
    for _ in 0..1000 {
        let port = ports
            .take(A, TCP, &wish(7 << 1 | 1 << 10), random.bits())
            .unwrap();
        assert!(!bucket_of(port).is_multiple_of(3) && bucket_of(port) != 7);
        let port = other
            .take(A, TCP, &wish(7 << 1 | 3 << 9), random.bits())
            .unwrap();
        assert_eq!(
            bucket_of(port),
            7.min(bucket_of(port)).max(bucket_of(port) / 3 * 3)
        );
    }
    let back = other.take_bucket(7).unwrap();
    ports.put_bucket(back).unwrap();
    let twice = other.take_bucket(9).unwrap();
    other
        .put_bucket(BucketPorts {
            bucket: 9,
            parts: twice.parts.clone(),
            illegal: BTreeSet::new(),
        })
        .unwrap();
    assert_eq!(other.put_bucket(twice).unwrap_err().bucket(), 9);
}

#[test]
fn a_pool_shows_an_address_with_a_free_port() {
    let mut ports = Ports::new(&outsides(300, 1024..=1025, 0), Bits::ALL);
    let mut random = Random::new(8);
    let mut taken = 0;
    while let Some(position) = ports.roomy(0, TCP, random.below(300) as u16) {
        ports
            .take(AddressId(position), TCP, &Wish::default(), random.bits())
            .unwrap();
        taken += 1;
    }
    assert_eq!(taken, 600);
    assert!(ports.give(AddressId(255), TCP, 1024));
    assert_eq!(ports.roomy(0, TCP, 256), Some(255));
}

#[test]
fn excluded_ports_and_addresses_that_are_not_there_give_none() {
    let mut all = outsides(3, 1024..=65535, 0);
    let mut legal = Legal::new(1024..=65535);
    legal.exclude(TCP, 8000..=8009);
    assert!(!legal.has(TCP, 8000) && legal.has(Protocol::Udp, 8000));
    all[0].as_mut().unwrap().legal = Arc::new(legal);
    all[1] = None;
    let mut ports = Ports::new(&all, Bits::ALL);
    assert_eq!(ports.free(A, TCP), 64_502);
    assert!(!ports.take_port(A, TCP, 8005) && !ports.give(A, TCP, 8005));
    for address in [AddressId(1), AddressId(3), AddressId(u16::MAX)] {
        assert_eq!(ports.take(address, TCP, &wish(5000), 1), None);
        assert!(!ports.give(address, TCP, 5000) && ports.free(address, TCP) == 0);
        assert!(ports.take_block(address, 3, TCP, 1).is_none());
    }
    let _ = format!("{:?}", all[0]);
}

#[test]
fn another_configuration_leaves_used_ports_used() {
    let mut ports = Ports::new(&outsides(3, 1024..=65535, 0), Bits::ALL);
    for port in [2000, 30_000] {
        assert!(ports.take_port(A, TCP, port));
        assert!(ports.take_port(AddressId(2), TCP, port));
    }
    let mut less = outsides(3, 1024..=9999, 0);
    less[2].as_mut().unwrap().address = [192, 0, 2, 1].into();
    ports.install(&less);
    assert!(!ports.is_free(A, TCP, 2000) && ports.is_free(AddressId(2), TCP, 2000));
    assert_eq!(ports.free(A, TCP), 8975);
    // Of the range no longer: it does not come back.
    assert!(!ports.give(A, TCP, 30_000) && ports.give(A, TCP, 2000));
    ports.install(&outsides(3, 1024..=65535, 0));
    assert_eq!(ports.free(A, TCP), 64_512);
}

#[test]
fn blocks_are_strided_ports_of_a_bucket_and_nobody_elses() {
    for len in [4_u16, 8, 64, 128] {
        let mut ports = Ports::new(&outsides(1, 1024..=65535, len), Bits::ALL);
        let mut random = Random::new(len.into());
        let (mut seen, mut blocks) = (BTreeSet::new(), Vec::new());
        while let Some(block) = ports.take_block(A, 5, TCP, random.bits()) {
            let all: Vec<u16> = (0..=u16::MAX).filter(|&port| block.has(port)).collect();
            assert_eq!((all.len(), all[0]), (len.into(), block.first()));
            assert!(all.contains(&block.last_even()) && bucket_of(all[0]) == block.bucket);
            assert!(all.iter().all(|&port| seen.insert(port)));
            blocks.push(block);
            if blocks.len() == 300 {
                break;
            }
        }
        // Its bucket comes first.
        let first = (256 / usize::from(len)).min(252_usize.div_ceil(len.into()));
        assert!(blocks[..first].iter().all(|block| block.bucket == 5));
        assert!(blocks.get(first).is_none_or(|block| block.bucket != 5));
        let mine = blocks[0];
        let mut own = Vec::new();
        while let Some(port) = ports.take_in(&mine, TCP, &wish(mine.first() | 1), random.bits()) {
            assert!(mine.has(port) && port >= 1024);
            own.push(port);
        }
        assert!((len - 4..=len).contains(&(own.len() as u16)));
        assert!(own.into_iter().all(|port| ports.give(A, TCP, port)));
        ports.give_block(&mine);
        assert!(
            ports
                .take_block(A, 5, TCP, random.bits())
                .is_some_and(|again| again == mine)
        );
    }
}

#[test]
fn all_blocks_are_given_and_then_none() {
    let mut ports = Ports::new(&outsides(1, 1024..=65535, 64), Bits::ALL);
    let mut random = Random::new(3);
    let blocks = std::iter::from_fn(|| ports.take_block(A, 200, TCP, random.bits()));
    assert_eq!(blocks.count(), 1024);
    // Those without a legal port are never given.
    let mut ports = Ports::new(&outsides(1, 32_768..=65535, 64), Bits::ALL);
    let blocks = std::iter::from_fn(|| ports.take_block(A, 200, TCP, random.bits()));
    assert_eq!(blocks.count(), 512);
}

#[test]
fn a_block_that_a_reload_gives_ports_can_be_taken() {
    // Identifiers of ICMP are always legal.
    for protocol in [TCP, Protocol::Icmp] {
        let range = |from| outsides(1, from..=65535, 64);
        let mut ports = Ports::new(&range(32_768), Bits::ALL);
        let taken = ports.take_block(A, 200, TCP, 1).unwrap();
        assert!(ports.take_port(A, protocol, taken.first()));
        // Whoever has one keeps it, also while it has no legal port.
        for from in [60_000, 50_000, 1024] {
            ports.install(&range(from));
        }
        let blocks = std::iter::from_fn(|| ports.take_block(A, 200, TCP, 1));
        let blocks: Vec<Block> = blocks.collect();
        assert_eq!((blocks.len(), blocks.contains(&taken)), (1023, false));
    }
}

#[test]
fn any_order_of_reloads_keeps_what_is_taken() {
    let mut random = Random::new(78);
    let ranges = [1024..=65_535, 1024..=1999, 40_000..=65_535];
    let mut legal = ranges[0].clone();
    let mut ports = Ports::new(&outsides(8, legal.clone(), 0), Bits::ALL);
    let mut taken = BTreeSet::new();
    for step in 0..40_000 {
        let address = AddressId(random.below(8) as u16);
        let protocol = [TCP, Protocol::Udp][random.below(2) as usize];
        // Some are met again.
        let port = 1024 + 509 * random.below(120) as u16;
        let key = (address, protocol.index(), port);
        let (is_legal, is_taken) = (legal.contains(&port), taken.contains(&key));
        let is_free = is_legal && !is_taken;
        assert_eq!(ports.is_free(address, protocol, port), is_free, "{step}");
        match random.below(3) {
            0 => {
                let gives = is_legal && is_taken;
                assert_eq!(ports.give(address, protocol, port), gives, "{step}");
                taken.remove(&key);
            }
            _ => {
                assert_eq!(ports.take_port(address, protocol, port), is_free, "{step}");
                taken.extend(is_free.then_some(key));
            }
        }
        if step % 1000 == 999 {
            legal = ranges[random.below(3) as usize].clone();
            ports.install(&outsides(8, legal.clone(), 0));
            let illegal = |bucket: &BucketPorts| bucket.illegal.len();
            let known: usize = ports.buckets.iter().flatten().map(illegal).sum();
            let out = taken.iter().filter(|(.., port)| !legal.contains(port));
            assert_eq!(known, out.count(), "{step}");
        }
    }
}

/// A reload with as many ports that are illegal and in use as an address has, and their ends.
#[test]
fn what_a_reload_makes_illegal_is_looked_up_and_not_searched() {
    let all: Vec<_> = (0..600).collect();
    let take = |ports: &mut Ports| {
        for &position in &all {
            for place in 2..128 {
                assert!(ports.take_port(AddressId(position), TCP, place << 9));
            }
        }
    };
    let range = |range| outsides(600, range, 0);
    let mut only = Bits::NONE;
    only.set(0);
    let mut ports = Ports::new(&range(1024..=65_535), only);
    take(&mut ports);
    for last in [1024..=1025, 1024..=1026, 1024..=1025] {
        ports.install(&range(last));
    }
    for &position in &all {
        for place in 2..128 {
            ports.give(AddressId(position), TCP, place << 9);
        }
    }
    ports.install(&range(1024..=65_535));
    take(&mut ports);
}

#[test]
fn any_order_of_calls_does_what_sets_do() {
    let mut random = Random::new(77);
    let mut ports = Ports::new(&outsides(2, 1000..=2999, 0), Bits::ALL);
    let mut taken = BTreeSet::new();
    let mut away: Vec<BucketPorts> = Vec::new();
    for step in 0..60_000 {
        let address = AddressId(random.below(2) as u16);
        let protocol = Protocol::ALL[random.below(2) as usize];
        let port = random.within(990, 3010) as u16;
        let key = (address, protocol.index(), port);
        let here = |port| ports.mine().has(bucket_of(port));
        match random.below(20) {
            0..8 => {
                let is_free = (1000..3000).contains(&port) && here(port) && !taken.contains(&key);
                assert_eq!(ports.is_free(address, protocol, port), is_free);
                let wish = wish(port);
                match ports.take(address, protocol, &wish, random.bits()) {
                    Some(got) => {
                        assert!(!is_free || got == port);
                        assert!((1000..3000).contains(&got));
                        assert!(
                            taken.insert((address, protocol.index(), got)),
                            "step {step}"
                        );
                    }
                    None => assert_eq!(ports.free(address, protocol), 0),
                }
            }
            8..19 => {
                let is_here = here(port);
                assert_eq!(
                    ports.give(address, protocol, port),
                    is_here && taken.contains(&key)
                );
                if is_here {
                    taken.remove(&key);
                }
            }
            _ if random.below(4) == 0 => match away.pop() {
                Some(bucket) => ports.put_bucket(bucket).unwrap(),
                None => {
                    let number = random.bits() as u8;
                    away.extend(ports.take_bucket(number));
                    away.extend(ports.take_bucket(number ^ 1));
                }
            },
            _ => {}
        }
        if step % 500 == 0 {
            let mine = ports.mine();
            for address in [AddressId(0), AddressId(1)] {
                let free = (1024..3000_u16).filter(|&port| {
                    mine.has(bucket_of(port)) && !taken.contains(&(address, 0, port))
                });
                assert_eq!(ports.free(address, Protocol::Tcp), free.count() as u32);
            }
        }
    }
}

#[test]
fn blocks_are_found_by_the_places_that_they_have() {
    let mut random = Random::new(12);
    for len in [4, 8, 16, 32, 64, 128] {
        for _ in 0..200 {
            let mut places = Bits::NONE;
            (0..random.below(12)).for_each(|_| places.set(random.bits() as u8));
            let numbers = places.iter().map(|place| u16::from(place) / len);
            let wanted = numbers.fold(0, |all: u64, number| all | 1 << number);
            assert_eq!(blocks_with(places, len), wanted, "{len}: {places:?}");
        }
        assert_eq!(blocks_with(Bits::ALL, len), all_blocks(len));
    }
}
