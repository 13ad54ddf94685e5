//! ring ends that play NICs: by a hash that is a byte of the frame, to see who comes where.

use crate::suite::{self, End, Pair, Wire};
use linerate_core::packet::{Burst, Offload, PoolCache, Pools};
use linerate_core::port::{DropReason, Port, PortConfig, Queues, RssHash, SleepOn};
use linerate_core::run::ledger::{Account, Balance};
use linerate_drivers::{Drivers, ring};
use std::time::Instant;

/// The lowest byte of a frame's number; 255 is not hashed.
#[derive(Debug)]
struct LowByte(Vec<u8>);

impl LowByte {
    fn make(profile: &str, key: Option<&[u8]>) -> Result<Box<dyn RssHash>, String> {
        match profile {
            "low" => Ok(Box::new(Self(key.unwrap_or(&[7]).into()))),
            _ => Err("only `low` is known".into()),
        }
    }
}

impl RssHash for LowByte {
    fn hash(&mut self, burst: &mut Burst, hashes: &mut [u32; Burst::CAPACITY]) -> u64 {
        let mut is_hashed = 0;
        for (at, packet) in burst.iter().enumerate() {
            hashes[at] = u32::from(packet.data()[21]);
            is_hashed |= u64::from(hashes[at] != 255) << at;
        }
        is_hashed
    }

    fn another(&self) -> Box<dyn RssHash> {
        Box::new(Self(self.0.clone()))
    }

    fn profile(&self) -> &str {
        "low"
    }

    fn key(&self) -> &[u8] {
        &self.0
    }

    fn reta_entries(&self) -> usize {
        16
    }
}

fn nics(queues: u16, size: usize) -> (ring::RingPort, ring::RingPort) {
    ring::pair_of_nics("n", queues, size, &LowByte(vec![1, 2, 3]))
}

#[test]
fn a_ring_of_nics_conforms() {
    let open = |spec: &'static str| {
        move || {
            let mut drivers = Drivers::new().playing_nics(LowByte::make);
            let [a, b] = [(); 2].map(|()| drivers.open(spec).unwrap());
            Ok(Pair {
                a,
                b,
                guard: Box::new(drivers),
            })
        }
    };
    Wire::new("nics", open("ring:a,queues=4,rss=low")).conforms();
    let window = 16;
    Wire {
        window,
        ..Wire::new(
            "small nics",
            open("ring:a,queues=2,size=16,rss=low,key=0102"),
        )
    }
    .conforms();
    suite::alone(&|| {
        let mut drivers = Drivers::new().playing_nics(LowByte::make);
        drivers.open("ring:l,loop=on,queues=3,rss=low").unwrap()
    });
}

/// One lcore's end: started with so many queues each way.
fn start(port: &mut dyn Port, queues: u16, pools: &Pools) -> Queues {
    let config = PortConfig {
        index: 0,
        rx_queues: queues,
        tx_queues: queues,
    };
    port.start(&config, pools).unwrap()
}

/// Sends frames of these numbers by one queue.
fn send(to: &mut Queues, queue: usize, numbers: &[u64], pools: &Pools, cache: &mut PoolCache) {
    let mut burst = Burst::new();
    cache.fill(pools.primary(), &mut burst, numbers.len());
    for (&number, packet) in numbers.iter().zip(burst.iter_mut()) {
        assert!(packet.set_data(&suite::frame(number, 60)));
        // What an earlier port left there is not to be taken for this one's.
        packet.meta_mut().offload.insert(Offload::RSS);
    }
    let taken = to.tx[queue].tx_burst(&mut burst, cache);
    assert_eq!((taken, burst.len()), (numbers.len(), 0));
}

/// What waits in a queue: number and, if it has one, hash.
fn receive(from: &mut Queues, queue: usize, cache: &mut PoolCache) -> Vec<(u64, Option<u32>)> {
    let mut found = Vec::new();
    let mut burst = Burst::new();
    while from.rx[queue].rx_burst(&mut burst, cache) > 0 {
        found.extend(burst.iter().map(|packet| {
            let meta = packet.meta();
            let is_hashed = meta.offload.contains(Offload::RSS);
            let number = suite::number_of(packet.data()).unwrap();
            (number, is_hashed.then_some(meta.rss_hash))
        }));
        cache.free(&mut burst);
    }
    found
}

#[test]
fn the_hash_and_not_the_sender_determines_the_queue() {
    let pools = suite::pools(false);
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut a, mut b) = nics(4, 64);
    let (mut from, mut to) = (start(&mut a, 4, &pools), start(&mut b, 4, &pools));
    for queue in 0..4 {
        send(
            &mut from,
            queue,
            &[0, 1, 2, 3, 255, 17, 18, 34],
            &pools,
            &mut cache,
        );
        let found: Vec<_> = (0..4)
            .map(|queue| receive(&mut to, queue, &mut cache))
            .collect();
        let hashed = |number: u64| (number, Some(number as u32));
        assert_eq!(found[0], [hashed(0), (255, None)]);
        assert_eq!(found[1], [hashed(1), hashed(17)]);
        assert_eq!(found[2], [hashed(2), hashed(18), hashed(34)]);
        assert_eq!(found[3], [hashed(3)]);
    }
    let stats = b.stats();
    assert_eq!((stats.rx_packets, a.stats().tx_packets), (32, 32));
    assert!(stats.rx_drops.is_empty());
}

/// The table leads to the queues that the receiving end was started with, and the port says so.
#[test]
fn the_table_follows_the_queues_that_the_receiver_started() {
    let pools = suite::pools(false);
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut a, mut b) = nics(4, 64);
    let mut from = start(&mut a, 4, &pools);
    for queues in [4, 1, 3, 2] {
        let mut to = start(&mut b, queues, &pools);
        let setup = b.rss().unwrap();
        assert_eq!(
            (setup.profile.as_str(), &setup.key[..]),
            ("low", &[1, 2, 3][..])
        );
        let expected: Vec<u16> = (0..16).map(|entry| entry % queues).collect();
        assert_eq!(setup.reta, expected);
        let numbers: Vec<u64> = (0..48).collect();
        send(&mut from, 1, &numbers, &pools, &mut cache);
        let mut all = 0;
        for queue in 0..queues {
            for (number, hash) in receive(&mut to, queue.into(), &mut cache) {
                assert_eq!(setup.reta[number as usize % 16], queue, "of {number}");
                assert_eq!(hash, Some(number as u32));
                all += 1;
            }
        }
        assert_eq!(all, 48);
        drop(to);
        b.stop().unwrap();
    }
    let fact = b.info().facts.pop().unwrap();
    assert_eq!(fact, ("rss", "low, 16 entries for 2 queues".into()));
}

#[test]
fn a_full_queue_loses_its_own_packets_alone_and_all_are_accounted_for() {
    let pools = suite::pools(false);
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut a, mut b) = nics(2, 8);
    let (mut from, mut to) = (start(&mut a, 2, &pools), start(&mut b, 2, &pools));
    // Twenty for queue 0, and one in between for queue 1.
    let numbers: Vec<u64> = (0..21)
        .map(|at| if at == 15 { 1 } else { 2 * at })
        .collect();
    send(&mut from, 0, &numbers, &pools, &mut cache);
    // By another queue there are other rings.
    send(&mut from, 1, &[100, 102], &pools, &mut cache);
    let missed = DropReason::ALL[DropReason::Missed as usize].1;
    assert_eq!(b.stats().rx_drops, [(missed, 12)]);
    assert_eq!((a.stats().tx_packets, a.stats().tx_bytes), (23, 23 * 60));
    let books = Balance::take(pools.as_slice(), || {
        let rx = from.rx.iter().chain(&to.rx).map(|queue| queue.held());
        let tx = from.tx.iter().chain(&to.tx).map(|queue| queue.held());
        let queues = rx
            .chain(tx)
            .map(|held| Account::holds("queue".into(), held));
        queues
            .chain([Account::cache("cache".into(), &cache)])
            .collect()
    });
    assert!(books.missing == 0 && books.exact, "{books}");
    let one = receive(&mut to, 1, &mut cache);
    assert_eq!(one, [(1, Some(1))]);
    assert_eq!(receive(&mut to, 0, &mut cache).len(), 10);
    drop((from, to, cache));
    suite::check_home(&pools);
}

#[test]
fn without_a_receiver_packets_are_counted_as_no_peer() {
    let pools = suite::pools(false);
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut a, b) = nics(2, 8);
    let mut from = start(&mut a, 2, &pools);
    send(&mut from, 0, &[0, 1, 2], &pools, &mut cache);
    let name = DropReason::ALL[DropReason::NoPeer as usize].1;
    assert_eq!(a.stats().tx_drops, [(name, 3)]);
    assert!(b.stats().rx_drops.is_empty());
}

#[test]
fn any_sender_wakes_the_queue_that_its_packets_come_to() {
    let pools = suite::pools(false);
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut a, mut b) = nics(3, 64);
    let (mut from, mut to) = (start(&mut a, 3, &pools), start(&mut b, 3, &pools));
    for (queue, number) in [(0, 2), (1, 2), (2, 0)] {
        let bells: Vec<_> = to
            .rx
            .iter_mut()
            .map(|queue| match queue.sleep_on() {
                SleepOn::Doorbell(bell) => bell,
                other => panic!("no doorbell: {other:?}"),
            })
            .collect();
        bells.iter().for_each(|bell| bell.prepare_sleep());
        send(&mut from, queue, &[number], &pools, &mut cache);
        for (at, bell) in bells.iter().enumerate() {
            assert_eq!(bell.cancel(), at as u64 == number, "queue {at}");
        }
        assert_eq!(receive(&mut to, number as usize, &mut cache).len(), 1);
    }
}

/// Three lcores send, three receive, all at once: each packet comes to its queue, and those of one
/// sender and queue in order.
#[test]
fn lcores_send_and_receive_at_the_same_time() {
    const EACH: u64 = 20_000;
    let pools = suite::pools(false);
    let (mut a, mut b) = nics(3, 4096);
    let (from, to) = (start(&mut a, 3, &pools), start(&mut b, 3, &pools));
    let start = Instant::now();
    let done = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (sender, mut tx) in (0..).zip(from.tx) {
            let (pools, done) = (&pools, &done);
            scope.spawn(move || {
                let mut cache = PoolCache::new(pools.as_slice());
                let mut next = 0;
                while next < EACH {
                    assert!(start.elapsed() < linerate_testkit::PATIENCE);
                    let under_way = 3 * next
                        - done
                            .load(std::sync::atomic::Ordering::Relaxed)
                            .min(3 * next);
                    if under_way > 3000 {
                        std::thread::yield_now();
                        continue;
                    }
                    let mut burst = Burst::new();
                    cache.fill(pools.primary(), &mut burst, 32);
                    let numbers = (next..).map(|number| sender << 32 | number);
                    let count = burst.len() as u64;
                    for (number, packet) in numbers.zip(burst.iter_mut()) {
                        assert!(packet.set_data(&suite::frame(number, 60)));
                    }
                    tx.tx_burst(&mut burst, &mut cache);
                    next += count;
                }
            });
        }
        for (index, mut rx) in (0..).zip(to.rx) {
            let (pools, done) = (&pools, &done);
            scope.spawn(move || {
                let mut cache = PoolCache::new(pools.as_slice());
                let mut next = [0; 3];
                let mut burst = Burst::new();
                while done.load(std::sync::atomic::Ordering::Relaxed) < 3 * EACH {
                    assert!(start.elapsed() < linerate_testkit::PATIENCE);
                    let count = rx.rx_burst(&mut burst, &mut cache) as u64;
                    for packet in burst.iter() {
                        let number = suite::number_of(packet.data()).unwrap();
                        let (sender, number) = ((number >> 32) as usize, number as u32);
                        let byte = number & 0xff;
                        let expected = if byte == 255 { 0 } else { byte % 16 % 3 };
                        assert_eq!(expected, index, "of {number}");
                        assert!(number >= next[sender], "in order");
                        next[sender] = number + 1;
                    }
                    cache.free(&mut burst);
                    match count {
                        0 => std::thread::yield_now(),
                        _ => {
                            done.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert!(b.stats().rx_drops.is_empty());
    // Frames beyond the last whole burst.
    assert!(b.stats().rx_packets >= 3 * EACH);
    suite::check_home(&pools);
}

#[test]
fn options_of_nics_are_checked_by_name() {
    let refusal = |drivers: &mut Drivers, spec: &str| {
        let error = drivers.open(spec).err().expect("refused");
        error.to_string()
    };
    let mut plain = Drivers::new();
    assert!(refusal(&mut plain, "ring:a,rss=low").contains("knows no NICs"));
    let mut drivers = Drivers::new().playing_nics(LowByte::make);
    for (spec, part) in [
        ("ring:a,rss=high", "only `low` is known"),
        ("ring:a,key=00", "together with rss=NIC"),
        ("ring:a,rss=low,key=0g", "hex digits"),
        ("ring:a,rss=low,key=000", "hex digits"),
        ("ring:a,rss=low,queues=65", "a number from 1 to 64"),
    ] {
        let error = refusal(&mut drivers, spec);
        assert!(error.contains(part), "{spec}: {error}");
    }
    let first = drivers.open("ring:a,rss=low,key=a0:0b,queues=2").unwrap();
    for (spec, part) in [
        ("ring:a,rss=other", "rss is `other`"),
        (
            "ring:a,key=00",
            "key is `00`, but should be as at the other end",
        ),
        ("ring:a,queues=3", "rss=low, key=a0:0b"),
    ] {
        let error = refusal(&mut drivers, spec);
        assert!(error.contains(part), "{spec}: {error}");
    }
    let second = drivers.open("ring:a").unwrap();
    assert_eq!(second.rss().unwrap().key, [0xa0, 0x0b]);
    assert_eq!(first.rss(), second.rss());
    drop((first, second));
    let mut end = End::new(drivers.open("ring:a").unwrap(), &suite::pools(false));
    assert!(end.port.rss().is_none() && end.receive().is_empty());
}
