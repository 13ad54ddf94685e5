//! Workers that count packets of flows, and buckets that move between them.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Isa, Lcore};
use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, UserData};
use linerate_core::ring::{Push, spsc};
use linerate_core::run::{Inlet, TxPath, Worker};
use linerate_tables::parse::Mask;
use linerate_testkit::Random;

use super::*;
use crate::ones;
use crate::owners::Owners;

/// Bursts of this number and up come from outside, those below from another worker.
const OUTSIDE: u16 = 100;
const FLOWS: u32 = 300;

/// A bucket, and nothing else.
#[derive(Clone, Copy)]
struct Carried(Bucket);

impl UserData for Carried {
    fn from_words([first, _]: [u64; 2]) -> Self {
        Self(first as Bucket)
    }

    fn into_words(self) -> [u64; 2] {
        [self.0.into(), 0]
    }
}

impl Mark for Carried {
    fn bucket(&self) -> Bucket {
        self.0
    }
}

/// The next number of each flow, by bucket; a flow's bucket is its number.
struct Counting {
    sorter: Sorter<Carried>,
    flows: HashMap<Bucket, HashMap<u32, u32>>,
    /// Packets that were in order, and the first that was not: flow, number, the one expected.
    good: u64,
    bad: Option<(u32, u32, Option<u32>)>,
}

impl Counting {
    fn count(&mut self, data: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(*data[at..].first_chunk().unwrap());
        let (flow, number) = (word(0), word(4));
        let bucket = self.flows.get_mut(&(flow as Bucket));
        let expected = bucket.and_then(|flows| flows.get_mut(&flow));
        match expected {
            Some(expected) if *expected == number => {
                *expected += 1;
                self.good += 1;
            }
            expected => {
                let expected = expected.copied();
                self.bad.get_or_insert((flow, number, expected));
            }
        }
    }
}

impl Stage for Counting {
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let mut buckets = [0; Burst::CAPACITY];
        match burst.port {
            OUTSIDE.. => {
                for (bucket, packet) in buckets.iter_mut().zip(burst.iter()) {
                    *bucket = packet.data()[0];
                }
                let mark = |index: usize| Carried(buckets[index]);
                let ready = |_, _: &mut Burst, _: &mut PoolCache| ();
                let sorted = (&buckets, Mask::MAX);
                let gone = self.sorter.sort(burst, sorted, mark, ready, out);
                let mut own = ones(!gone).map(|index| buckets[index]);
                buckets = std::array::from_fn(|_| own.next().unwrap_or(0));
            }
            _ => {
                self.sorter.admit(burst, out);
                for (bucket, packet) in buckets.iter_mut().zip(burst.iter()) {
                    *bucket = packet.user::<Carried>().bucket();
                }
            }
        }
        for (packet, bucket) in burst.drain().zip(buckets) {
            assert_eq!(packet.data()[0], bucket);
            self.count(packet.data());
            out.consume_one(packet);
        }
    }

    fn held(&self) -> u64 {
        self.sorter.held()
    }
}

/// A bucket's flows; nothing is the last part.
type Part = Option<(Bucket, HashMap<u32, u32>)>;

impl Sharded<Part> for Counting {
    type Mark = Carried;

    fn sorter(&mut self) -> Option<&mut Sorter<Carried>> {
        Some(&mut self.sorter)
    }

    fn take(&mut self, buckets: &Bits) -> (Part, bool) {
        let next = buckets
            .iter()
            .find(|bucket| self.flows.contains_key(bucket));
        let part = next.and_then(|bucket| Some((bucket, self.flows.remove(&bucket)?)));
        let is_last = part.is_none();
        (part, is_last)
    }

    fn put(&mut self, part: Part, _: &mut Egress) {
        self.flows.extend(part);
    }

    fn release(&mut self, buckets: &Bits, out: &mut Egress) {
        let mut packets = VecDeque::new();
        self.sorter.release(buckets, &mut packets);
        for packet in packets {
            self.count(packet.data());
            out.consume_one(packet);
        }
    }
}

fn one(bucket: Bucket) -> Bits {
    let mut bits = Bits::NONE;
    bits.set(bucket);
    bits
}

/// All parts of a bucket leave one worker for another.
fn carry(from: &mut Worker<Counting>, to: &mut Worker<Counting>, bucket: Bucket) {
    loop {
        let (part, is_last) = from.stage.take(&one(bucket));
        to.stage.put(part, &mut to.egress);
        if is_last {
            return to.stage.release(&one(bucket), &mut to.egress);
        }
    }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig {
        pages: PagePolicy::Only(PageKind::Base4K),
        ..PoolConfig::new("dispatch", 2048)
    })
    .unwrap()
}

/// Workers with a mesh of rings that no pool fills, each with the flows of its buckets.
fn workers(count: usize) -> Vec<(Worker<Counting>, WorkerHandle<Counting>)> {
    let (owners, clock) = (Owners::dealt(count), Clock::calibrate());
    let mut all: Vec<_> = (0..count as u8)
        .map(|me| {
            let mut egress = Egress::new(PoolCache::new(&[]));
            let outlets = (0..count as u16).collect();
            let sorter = Sorter::new(me, owners.clone(), outlets, Isa::detect(), &mut egress);
            let mut flows: HashMap<Bucket, HashMap<u32, u32>> = owners
                .buckets(me)
                .map(|bucket| (bucket, HashMap::new()))
                .collect();
            for flow in 0..FLOWS {
                if let Some(flows) = flows.get_mut(&(flow as Bucket)) {
                    flows.insert(flow, 0);
                }
            }
            let stage = Counting {
                sorter,
                flows,
                good: 0,
                bad: None,
            };
            Worker::new(&format!("w{me}"), stage, egress, clock).unwrap()
        })
        .collect();
    for from in 0..count {
        for to in (0..count).filter(|&to| to != from) {
            let (putter, taker) = spsc::ring(4096);
            let bell = all[to].1.doorbell().clone();
            all[from]
                .0
                .set_outlet(to as u16, Some(TxPath::Ring(putter, bell)));
            all[to]
                .0
                .add_inlet(Inlet::ring(to as u16, from as u16, taker));
        }
    }
    all
}

/// Puts the next packet of a flow into a ring to a worker, if there is a slot.
fn feed(
    pool: &Pool,
    cache: &mut PoolCache,
    next: &mut [u32; FLOWS as usize],
    flow: u32,
    ring: &mut spsc::Producer<linerate_core::packet::Packet>,
) -> bool {
    let Some(mut packet) = cache.get(pool) else {
        return false;
    };
    let number = &mut next[flow as usize];
    let mut data = [0; 60];
    data[..4].copy_from_slice(&flow.to_le_bytes());
    data[4..8].copy_from_slice(&number.to_le_bytes());
    assert!(packet.set_data(&data));
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    let is_sent = ring.push_burst(&mut burst) == 1;
    *number += u32::from(is_sent);
    cache.free(&mut burst);
    is_sent
}

/// Ends the workers when the test is over, also when it fails: their threads are waited for.
struct Stop(Vec<WorkerHandle<Counting>>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.iter().for_each(WorkerHandle::stop);
    }
}

#[test]
fn buckets_move_under_load_without_loss_and_in_order() {
    const PACKETS: u64 = 60_000;
    let pool = pool();
    let mut handles = Vec::new();
    let mut lcores = Vec::new();
    let mut rings = Vec::new();
    for (index, (mut worker, handle)) in workers(3).into_iter().enumerate() {
        let (putter, taker) = spsc::ring(256);
        worker.add_inlet(Inlet::ring(OUTSIDE + index as u16, 0, taker));
        rings.push((putter, handle.doorbell().clone()));
        handles.push(handle);
        lcores.push(Lcore::spawn("w", None, move || worker.run(false)).unwrap());
    }
    let _stop = Stop(handles.clone());
    let feeder = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let mut cache = PoolCache::new(std::slice::from_ref(&pool));
            let (mut random, mut next) = (Random::new(1), [0; FLOWS as usize]);
            let mut sent = 0;
            while sent < PACKETS {
                // Each flow comes by one worker, whoever owns it.
                let flow = random.below(FLOWS);
                let (ring, bell) = &mut rings[flow as usize % 3];
                sent += u64::from(feed(&pool, &mut cache, &mut next, flow, ring));
                bell.ring();
                if sent % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            rings
        })
    };
    let mut owners = Owners::dealt(3);
    let (mut random, mut moves) = (Random::new(2), 0);
    while !feeder.is_finished() || moves < 200 {
        let bucket = random.below(BUCKETS) as Bucket;
        let (from, to) = (owners.of(bucket), random.below(3) as u8);
        if from != to {
            // Alone, or with the next one if that has the same owner.
            let mut buckets = one(bucket);
            let next = bucket.wrapping_add(3);
            if moves % 2 == 0 && owners.of(next) == from {
                buckets.set(next);
            }
            let both = (&handles[usize::from(from)], &handles[usize::from(to)]);
            let all: Vec<_> = handles.iter().collect();
            move_buckets(&all, both, Going { buckets, from, to }).unwrap();
            buckets.iter().for_each(|bucket| owners.set(bucket, to));
            moves += 1;
        }
    }
    drop(feeder.join().unwrap());
    let start = Instant::now();
    let counted = || -> u64 {
        let counts = handles.iter().map(|handle| {
            let both = handle.call(|worker| (worker.stage.good, worker.stage.bad));
            let (good, bad) = both.unwrap();
            assert_eq!(bad, None, "after {moves} moves");
            good
        });
        counts.sum()
    };
    while counted() < PACKETS {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} arrived",
            counted()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    for (handle, lcore) in handles.iter().zip(lcores) {
        assert_eq!(handle.stats().drops(), [], "nothing was dropped");
        handle.stop();
        let worker = lcore.join().unwrap();
        assert_eq!(worker.stage.held(), 0);
        assert_eq!(worker.stage.sorter.owners(), &owners);
    }
}

/// The steps by hand, a packet in the ring to the old owner and one in that to the new one. Without
/// a wait for the rings the first finds no state: so the test above can fail.
#[test]
fn state_that_leaves_before_the_rings_are_empty_leaves_packets_behind() {
    for waits in [true, false] {
        let pool = pool();
        let mut all = workers(3);
        let (mut ring, taker) = spsc::ring(64);
        all[0].0.add_inlet(Inlet::ring(OUTSIDE, 0, taker));
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut next = [0; FLOWS as usize];
        let mut send = |all: &mut [(Worker<Counting>, WorkerHandle<Counting>)]| {
            // Flow 1 is of bucket 1, which worker 1 has at first.
            assert!(feed(&pool, &mut cache, &mut next, 1, &mut ring));
            assert_eq!(all[0].0.round(), 1);
        };
        send(&mut all);
        all[2].0.stage.sorter.expect(&one(1));
        for (worker, _) in &mut all {
            worker.stage.sorter.turn(&one(1), 2);
        }
        send(&mut all);
        if waits {
            assert_eq!(all[1].0.round(), 1);
        }
        assert_eq!(all[2].0.round(), 1);
        assert_eq!(all[2].0.stage.held(), 1, "it waits for the state");
        let [_, (old, _), (new, _)] = &mut all[..] else {
            panic!("three");
        };
        carry(old, new, 1);
        all[1].0.round();
        let found: Vec<_> = all.iter().map(|(worker, _)| worker.stage.bad).collect();
        match waits {
            true => assert_eq!(found, [None; 3]),
            false => assert_eq!(found, [None, Some((1, 0, None)), Some((1, 1, Some(0)))]),
        }
    }
}

/// What waits is bounded: the rest is dropped, and counted by name.
#[test]
fn too_many_packets_for_a_bucket_on_its_way_are_dropped_and_counted() {
    let pool = Pool::new(&PoolConfig {
        pages: PagePolicy::Only(PageKind::Base4K),
        ..PoolConfig::new("many", 8192)
    })
    .unwrap();
    let (mut worker, handle) = workers(1).remove(0);
    let (mut ring, taker) = spsc::ring(64);
    worker.add_inlet(Inlet::ring(OUTSIDE, 0, taker));
    worker.stage.sorter.expect(&one(1));
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut next = [0; FLOWS as usize];
    for _ in 0..5000 {
        assert!(feed(&pool, &mut cache, &mut next, 1, &mut ring));
        worker.round();
    }
    assert_eq!(worker.stage.held(), 4096);
    assert_eq!(handle.stats().drops(), [("bucket_moves".to_string(), 904)]);
    worker.stage.release(&one(1), &mut worker.egress);
    assert_eq!(
        (worker.stage.held(), worker.stage.good, worker.stage.bad),
        (0, 4096, None)
    );
}

/// What has ever been tied moves together, and what was forgotten does not.
#[test]
fn ties_are_followed_from_bucket_to_bucket() {
    let mut ties = Ties::default();
    assert_eq!(ties.with(7), one(7));
    ties.add(7, 7);
    assert_eq!(ties.with(7), one(7));
    for (a, b) in [(7, 9), (200, 9), (0, 255)] {
        ties.add(a, b);
    }
    let together: Vec<u8> = ties.with(200).iter().collect();
    assert_eq!(together, [7, 9, 200]);
    assert_eq!(ties.with(255).len(), 2);
    ties.forget(&ties.clone().with(7));
    assert_eq!((ties.with(9), ties.with(0).len()), (one(9), 2));
}
