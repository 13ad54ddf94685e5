use super::*;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, PoolConfig};
use linerate_testkit::Random;
use linerate_wire::{Headers, parse_tunnelled};

const OWN: [u8; 4] = [10, 1, 0, 1];
const PEER: [u8; 4] = [10, 2, 0, 1];

fn plane() -> Plane {
    Plane { own: OWN.into() }
}

/// Every way takes 1500 bytes, but that to our own address.
struct Direct;

impl Ways for Direct {
    fn way(&mut self, to: [u8; 4]) -> Option<Way> {
        (to != [9, 9, 9, 9]).then_some(Way {
            mtu: 1500,
            is_own: to == OWN,
        })
    }
}

fn tunnels(capacity: usize) -> (crate::records::Records<()>, Tunnels) {
    let cores = Cores::new(3).unwrap();
    let pool = AddressPool::new(Ipv4Addr::new(100, 64, 0, 0), 10, cores, capacity).unwrap();
    let records = crate::records::Records::new("test", capacity, cores, 2, 5).unwrap();
    let tunnels = Tunnels::new(records.space(), pool, 2, capacity).unwrap();
    (records, tunnels)
}

/// A user's packet of so many bytes, behind an Ethernet header.
fn frame(from: [u8; 4], to: [u8; 4], payload: usize) -> Vec<u8> {
    // RFC 3692: 253 is for experiments.
    let ip = linerate_wire::ipv4::header(7, 64, 253, from.into(), to.into(), payload as u16);
    [&[0x22; 12][..], &[8, 0], &ip, &vec![0x5a; payload]].concat()
}

fn cache() -> (Pool, PoolCache) {
    let pool = Pool::new(&PoolConfig::new("test", 256)).unwrap();
    let cache = PoolCache::new(std::slice::from_ref(&pool));
    (pool, cache)
}

fn burst_of(cache: &mut PoolCache, frames: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for frame in frames {
        burst.push(cache.copy_of(frame).unwrap()).unwrap();
    }
    burst
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.data().to_vec()
}

#[test]
fn packets_down_and_up_again_are_the_same() {
    let seed = 0x6770_7475;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let (_pool, mut cache) = cache();
    let (mut records, mut tunnels) = tunnels(100);
    let users: Vec<_> = (0..100)
        .map(|_| {
            let id = records.insert(()).unwrap();
            (id, tunnels.open(id, random.bits() as u32, PEER))
        })
        .collect();
    for _ in 0..50 {
        let chosen: Vec<usize> = (0..32).map(|_| random.below(100)).collect();
        let net = [192, 0, 2, 1];
        let down: Vec<_> = chosen
            .iter()
            .map(|&user| frame(net, users[user].1, random.below(1400)))
            .collect();
        let (mut burst, mut done) = (burst_of(&mut cache, &down), Burst::new());
        let moved = plane().encapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
        assert_eq!((moved, burst.len(), done.len()), (32, 0, 32));
        for ((packet, &user), sent) in done.iter().zip(&chosen).zip(&down) {
            let data = packet.data();
            assert_eq!(data[12..14], [8, 0]);
            let found = parse_tunnelled(data).unwrap();
            let tunnel = found.tunnels().next().unwrap();
            let index = records.index(users[user].0);
            assert_eq!(tunnel.id, Some(tunnels.entries[index].peer));
            assert_eq!(found.stopped, None);
            let Headers { l3, end, .. } = *found.innermost();
            assert_eq!(&data[l3..end], &sent[14..]);
            let ip = linerate_wire::ipv4::Ipv4::new_checked(&data[14..]).unwrap();
            assert!(ip.verify());
            assert_eq!((ip.src().octets(), ip.dst().octets()), (OWN, PEER));
        }
        // The peer sends the answers: source and destination exchanged, in our tunnel.
        let up: Vec<_> = chosen
            .iter()
            .map(|&user| encapsulated(users[user].0, &frame(users[user].1, net, 100)[14..]))
            .collect();
        cache.free(&mut done);
        let mut burst = burst_of(&mut cache, &up);
        let moved = plane().decapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
        assert_eq!((moved, burst.len()), (32, 0));
        for (packet, sent) in done.iter().zip(&up) {
            assert_eq!(bytes(packet)[12..14], [8, 0]);
            assert_eq!(bytes(packet)[14..], sent[14 + 36..]);
        }
        cache.free(&mut done);
    }
    let all: u64 = tunnels
        .entries
        .iter()
        .map(|t| t.up.packets + t.down.packets)
        .sum();
    assert_eq!((all, tunnels.refusals), (3200, Refusals::default()));
}

/// A G-PDU to us in that tunnel, in an Ethernet frame.
fn encapsulated(teid: u32, inner: &[u8]) -> Vec<u8> {
    let len = inner.len() as u16;
    let ip = linerate_wire::ipv4::header(1, 64, 17, PEER.into(), OWN.into(), len + 16);
    let [a, b] = (len + 16).to_be_bytes();
    let udp = [0x08, 0x68, 0x08, 0x68, a, b, 0, 0];
    let gtpu = linerate_wire::gtpu::header(teid, len);
    [&[0x22; 12][..], &[8, 0], &ip, &udp, &gtpu, inner].concat()
}

#[test]
fn lying_tunnels_lengths_and_addresses_stay_behind() {
    let (_pool, mut cache) = cache();
    let (mut records, mut tunnels) = tunnels(4);
    let id = records.insert(()).unwrap();
    let user = tunnels.open(id, 77, PEER);
    let inner = frame(user, [192, 0, 2, 1], 20)[14..].to_vec();
    let good = encapsulated(id, &inner);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        // Keep the outer header's checksum right, so that what is meant is what is found.
        frame[24..26].fill(0);
        let sum = linerate_wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let other_sender = frame([100, 64, 0, 99], [192, 0, 2, 1], 20)[14..].to_vec();
    let mut bad_sum = good.clone();
    bad_sum[24] ^= 1;
    let to_us = frame(user, OWN, 20)[14..].to_vec();
    let nowhere = frame(user, [9, 9, 9, 9], 20)[14..].to_vec();
    let to_all = frame(user, [224, 0, 0, 1], 20)[14..].to_vec();
    let mut broken = inner.clone();
    broken[8] ^= 1; // the header's checksum is that of another time to live
    let bad = [
        encapsulated(id, &to_us),
        encapsulated(id, &nowhere),
        encapsulated(id, &to_all),
        encapsulated(id, &broken),
        encapsulated(id ^ 1 << 12, &inner), // another tag
        encapsulated(id + 1, &inner),       // a place without a tunnel
        encapsulated(0, &inner),
        encapsulated(u32::MAX, &inner),
        encapsulated(id, &other_sender),
        encapsulated(id, &[]),
        with(17, 75), // IP total length
        with(39, 55), // UDP length
        with(45, 39), // GTP-U length
        with(45, 255),
        with(53, 19),   // inner total length below its header
        with(53, 41),   // and past the end
        with(42, 0x50), // version
        with(43, 254),  // an end marker
        with(20, 0x20), // a fragment
        with(33, 9),    // not to us
        with(41, 1),    // an outer checksum that is wrong
        bad_sum,
        good[..60].to_vec(),
        good[..14].to_vec(),
    ];
    let (mut burst, mut done) = (burst_of(&mut cache, &bad), Burst::new());
    let moved = plane().decapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
    assert_eq!((moved, burst.len()), (0, bad.len()));
    for (packet, sent) in burst.iter().zip(&bad) {
        assert_eq!(bytes(packet), *sent);
    }
    cache.free(&mut burst);
    // The slow path counts what it refuses.
    assert_eq!(tunnels.refusals, Refusals::default());
    let mut odd = burst_of(&mut cache, std::slice::from_ref(&good));
    for flag in [Offload::GSO_UDP, Offload::VLAN] {
        odd.as_packets_mut()[0].meta_mut().offload = flag;
        let moved = plane().decapsulate(&mut tunnels, &mut odd, &mut done, &mut Direct);
        assert_eq!((moved, odd.len()), (0, 1));
    }
    cache.free(&mut odd);
    let mut burst = burst_of(&mut cache, std::slice::from_ref(&good));
    burst.as_packets_mut()[0].meta_mut().offload = Offload::CSUM_VALID | Offload::RSS;
    let moved = plane().decapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
    assert_eq!((moved, burst.len()), (1, 0));
    assert_eq!(done.as_packets()[0].meta().offload, Offload::NONE);
    cache.free(&mut done);

    let mut broken = frame([192, 0, 2, 1], user, 20);
    broken[22] ^= 1;
    let far = tunnels.pool.address(1, 0);
    let down = [
        broken,
        frame([192, 0, 2, 1], far, 20),
        frame([192, 0, 2, 1], [100, 64, 0, 0], 20),
        frame([192, 0, 2, 1], [9, 9, 9, 9], 20),
        frame([192, 0, 2, 1], user, 1445), // too long in the tunnel
        frame([192, 0, 2, 1], user, 20)[..40].to_vec(),
        vec![0; 14],
    ];
    let mut burst = burst_of(&mut cache, &down);
    let moved = plane().encapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
    assert_eq!((moved, burst.len()), (0, down.len()));
    cache.free(&mut burst);
    assert_eq!(tunnels.close(id).map(|tunnel| tunnel.up.packets), Some(1));
    let mut burst = burst_of(&mut cache, &[good]);
    let moved = plane().decapsulate(&mut tunnels, &mut burst, &mut done, &mut Direct);
    assert_eq!((moved, burst.len()), (0, 1));
    cache.free(&mut burst);
}

#[test]
fn addresses_name_cores_and_places() {
    for count in [1, 2, 3, 8] {
        let cores = Cores::new(count).unwrap();
        let pool = AddressPool::new(Ipv4Addr::new(10, 0, 0, 0), 8, cores, 1 << 20).unwrap();
        for core in 0..cores.count() {
            for index in [0, 1, 1000, (1 << 20) - 1] {
                let address = pool.address(core, index);
                assert_eq!(pool.owner(address), Some(core));
                assert_eq!(pool.index(core, address), index);
            }
        }
        assert_eq!(pool.owner([11, 0, 0, 1]), None);
        assert!(pool.index(0, [10, 0, 0, 0]) > 1 << 20);
    }
    let cores = Cores::new(8).unwrap();
    assert!(AddressPool::new(Ipv4Addr::new(10, 0, 0, 0), 24, cores, 30).is_ok());
    assert!(AddressPool::new(Ipv4Addr::new(10, 0, 0, 0), 24, cores, 31).is_err());
    assert!(AddressPool::new(Ipv4Addr::new(10, 0, 0, 0), 31, cores, 1).is_err());
}
