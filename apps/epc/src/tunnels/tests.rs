use super::burst::BURST;
use super::headers::teid_of;
use super::*;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, PoolConfig};
use linerate_testkit::Random;
use linerate_wire::{Headers, parse_tunnelled};

const OWN: [u8; 4] = [10, 1, 0, 1];
const PEER: [u8; 4] = [10, 2, 0, 1];
/// Another gateway's on this host.
const OTHER: [u8; 4] = [10, 1, 0, 2];

fn plane() -> Plane {
    Plane { own: OWN.into() }
}

/// Every way takes 1500 bytes, and is named by its address.
struct Direct;

impl Ways for Direct {
    type Path = [u8; 4];

    fn way(&mut self, to: [u8; 4]) -> Option<Way<[u8; 4]>> {
        (to != [9, 9, 9, 9]).then_some(Way {
            path: to,
            mtu: 1500,
            is_own: to == OWN || to == OTHER,
        })
    }
}

/// Has a gateway do something; what leaves is in `done`, what it hands on is returned, behind how
/// many packets it has taken.
fn at_gateway(
    done: &mut Burst,
    mut handed: Handed,
    work: impl FnOnce(&mut Onward<'_, Direct>) -> usize,
) -> (usize, Handed) {
    let mut leaving = Leaving::new();
    let moved = work(&mut Onward {
        leaving: &mut leaving,
        handed: &mut handed,
        ways: &mut Direct,
    });
    for (frame, path) in leaving.drain() {
        assert_eq!(frame.data()[14 + 16..14 + 20], path);
        done.push(frame).unwrap();
    }
    (moved, handed)
}

fn encapsulate(tunnels: &mut Tunnels, burst: &mut Burst, done: &mut Burst) -> usize {
    let work = |onward: &mut Onward<'_, Direct>| plane().encapsulate(tunnels, burst, onward);
    let (moved, handed) = at_gateway(done, Handed::new(), work);
    assert!(handed.is_empty());
    moved
}

fn decapsulate(tunnels: &mut Tunnels, burst: &mut Burst, done: &mut Burst) -> usize {
    let work = |onward: &mut Onward<'_, Direct>| plane().decapsulate(tunnels, burst, onward);
    let (moved, handed) = at_gateway(done, Handed::new(), work);
    assert!(handed.is_empty());
    moved
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
        let moved = encapsulate(&mut tunnels, &mut burst, &mut done);
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
        let moved = decapsulate(&mut tunnels, &mut burst, &mut done);
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
    let moved = decapsulate(&mut tunnels, &mut burst, &mut done);
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
        let moved = decapsulate(&mut tunnels, &mut odd, &mut done);
        assert_eq!((moved, odd.len()), (0, 1));
    }
    cache.free(&mut odd);
    let mut burst = burst_of(&mut cache, std::slice::from_ref(&good));
    burst.as_packets_mut()[0].meta_mut().offload = Offload::CSUM_VALID | Offload::RSS;
    let moved = decapsulate(&mut tunnels, &mut burst, &mut done);
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
    let moved = encapsulate(&mut tunnels, &mut burst, &mut done);
    assert_eq!((moved, burst.len()), (0, down.len()));
    cache.free(&mut burst);
    assert_eq!(tunnels.close(id).map(|tunnel| tunnel.up.packets), Some(1));
    let mut burst = burst_of(&mut cache, &[good]);
    let moved = decapsulate(&mut tunnels, &mut burst, &mut done);
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

/// An SGW with one user, idle or not.
struct OneUser {
    s5u: (u32, [u8; 4]),
    s1u: Option<(u32, [u8; 4])>,
    counted: usize,
}

const S1U: u32 = 0x51;
const S5U: u32 = 0x55;

impl Joined for OneUser {
    fn prefetch(&self, teid: u32) {
        assert!(teid != 0);
    }

    fn next(&self, teid: u32) -> Option<(u32, [u8; 4])> {
        match teid {
            S1U => Some(self.s5u),
            S5U => self.s1u,
            _ => None,
        }
    }

    fn count(&mut self, _: u32) {
        self.counted += 1;
    }
}

#[test]
fn ts_23_401_4_4_3_what_gateways_hand_to_each_other_is_as_by_a_network() {
    let (_pool, mut cache) = cache();
    let (mut records, mut tunnels) = tunnels(4);
    let id = records.insert(()).unwrap();
    let user = tunnels.open(id, S5U, OTHER);
    let mut sgw = OneUser {
        s5u: (id, OWN),
        s1u: Some((0xe0, PEER)),
        counted: 0,
    };
    let at_sgw = Plane { own: OTHER.into() };
    let inner = frame(user, [192, 0, 2, 1], 20);
    // To the SGW's address, with padding behind.
    let mut from_station = encapsulated(S1U, &inner[14..]);
    from_station[30..34].copy_from_slice(&OTHER);
    from_station[24..26].fill(0);
    let sum = linerate_wire::checksum::checksum(&from_station[14..34]);
    from_station[24..26].copy_from_slice(&sum.to_be_bytes());
    let padded = [&from_station[..], &[0x77; 9]].concat();
    let mut unknown = from_station.clone();
    unknown[49] ^= 1;
    let mut done = Burst::new();

    // Up: by the SGW, where nobody looks at headers in between, to the network beyond.
    let mut burst = burst_of(&mut cache, &[padded.clone(), unknown, padded.clone()]);
    let work = |onward: &mut Onward<'_, Direct>| at_sgw.pass_on(&mut sgw, &mut burst, onward);
    let (moved, handed) = at_gateway(&mut done, Handed::new(), work);
    assert_eq!((moved, burst.len(), done.len()), (2, 1, 0));
    cache.free(&mut burst);
    let work = |onward: &mut Onward<'_, Direct>| plane().decapsulate_handed(&mut tunnels, onward);
    let (moved, mut handed) = at_gateway(&mut done, handed, work);
    assert_eq!((moved, done.len(), handed.is_empty()), (2, 2, true));
    assert!(done.iter().all(|packet| bytes(packet)[14..] == inner[14..]));
    cache.free(&mut done);
    assert_eq!((sgw.counted, tunnels.of_id(id).unwrap().up.packets), (2, 2));

    // Down, to the base station, in the tunnel that it has given.
    let beyond = frame([192, 0, 2, 1], user, 33);
    let mut burst = burst_of(&mut cache, std::slice::from_ref(&beyond));
    let work =
        |onward: &mut Onward<'_, Direct>| plane().encapsulate(&mut tunnels, &mut burst, onward);
    (_, handed) = at_gateway(&mut done, handed, work);
    let work = |onward: &mut Onward<'_, Direct>| at_sgw.pass_on_handed(&mut sgw, onward);
    (_, handed) = at_gateway(&mut done, handed, work);
    let sent = bytes(&done.as_packets()[0]);
    let expected = encapsulated(0xe0, &beyond[14..]);
    assert_eq!(sent[34..], expected[34..]);
    let ip = linerate_wire::ipv4::Ipv4::new_checked(&sent[14..]).unwrap();
    assert!(ip.verify() && handed.is_empty());
    assert_eq!((ip.src().octets(), ip.dst().octets()), (OTHER, PEER));
    cache.free(&mut done);

    // The user is idle: the packet has headers again, and waits in the slow path.
    sgw.s1u = None;
    let mut burst = burst_of(&mut cache, std::slice::from_ref(&beyond));
    let work =
        |onward: &mut Onward<'_, Direct>| plane().encapsulate(&mut tunnels, &mut burst, onward);
    (_, handed) = at_gateway(&mut done, handed, work);
    let work = |onward: &mut Onward<'_, Direct>| at_sgw.pass_on_handed(&mut sgw, onward);
    let (moved, mut handed) = at_gateway(&mut done, handed, work);
    assert_eq!((moved, done.len(), handed.is_empty()), (0, 0, false));
    handed.give_up(&mut burst, 65_535);
    assert!(handed.is_empty());
    let packet = &burst.as_packets()[0];
    assert_eq!((packet.port(), teid_of(packet, OTHER)), (65_535, S5U));
    assert_eq!(bytes(packet)[34..], encapsulated(S5U, &beyond[14..])[34..]);
    cache.free(&mut burst);
}

#[test]
fn packets_that_go_different_ways_keep_their_order_and_their_tunnels() {
    let seed = 0x6d69_7865;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let (_pool, mut cache) = cache();
    let (mut records, mut tunnels) = tunnels(4);
    let ends = [(0xe0, PEER), (S5U, OTHER), (0x66, OTHER), (0, PEER)];
    let users = ends.map(|(teid, peer)| {
        let user = tunnels.open(records.insert(()).unwrap(), teid, peer);
        // The last one has no tunnel.
        if teid == 0 { [9, 9, 9, 1] } else { user }
    });
    let at_sgw = Plane { own: OTHER.into() };
    for _ in 0..100 {
        let mut expected = [const { Vec::new() }; 4];
        let all_one_way = random.below(4) == 0;
        // How long a packet is says which one it is.
        let frames = (0..random.below(BURST + 1)).map(|at| {
            let ways = if all_one_way { 1 } else { 4 };
            let user = random.below(ways);
            expected[user].push(at);
            frame([192, 0, 2, 1], users[user], at)
        });
        let frames: Vec<_> = frames.collect();
        let (mut burst, mut done) = (burst_of(&mut cache, &frames), Burst::new());
        let work = |on: &mut Onward<'_, Direct>| plane().encapsulate(&mut tunnels, &mut burst, on);
        let (moved, handed) = at_gateway(&mut done, Handed::new(), work);
        assert_eq!(moved, frames.len() - expected[3].len());
        let lengths = |burst: &Burst, headers| -> Vec<usize> {
            let lengths = burst.iter().map(|packet| packet.len() - headers);
            lengths.collect()
        };
        assert_eq!(lengths(&burst, 34), expected[3]);
        assert_eq!(lengths(&done, 70), expected[0]);
        cache.free(&mut burst);
        cache.free(&mut done);
        // The SGW knows one of its two tunnels.
        let mut sgw = OneUser {
            s5u: (0, OWN),
            s1u: Some((0xe1, PEER)),
            counted: 0,
        };
        let work = |onward: &mut Onward<'_, Direct>| at_sgw.pass_on_handed(&mut sgw, onward);
        let (moved, mut handed) = at_gateway(&mut done, handed, work);
        assert_eq!((moved, sgw.counted), (expected[1].len(), moved));
        assert_eq!(lengths(&done, 70), expected[1]);
        handed.give_up(&mut burst, 1);
        assert_eq!(lengths(&burst, 70), expected[2]);
        assert!(burst.iter().all(|packet| teid_of(packet, OTHER) == 0x66));
        cache.free(&mut burst);
        cache.free(&mut done);
    }
}
