//! Workers end to end, on rings and hand-made queues.
#![allow(clippy::unwrap_used)]

mod kept;
mod rings;

use super::*;
use crate::env::{Clock, Lcore};
use crate::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use crate::port::{Counter, RxQueue, SleepOn, TxQueue};
use crate::ring::{Pop, Push, spsc};
use crate::run::doorbell::Doorbell;
use crate::run::ledger::Balance;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn pool(slots: u32) -> Pool {
    use crate::mem::{PageKind, PagePolicy};
    Pool::new(&PoolConfig {
        pages: PagePolicy::Only(PageKind::Base4K),
        ..PoolConfig::new("run", slots)
    })
    .unwrap()
}

/// The reading end of a ring as a receive queue, with a doorbell.
struct RingRx {
    ring: spsc::Consumer<Packet>,
    bell: Arc<Doorbell>,
    taken: i64,
}

impl RxQueue for RingRx {
    fn rx_burst(&mut self, burst: &mut Burst, _: &mut PoolCache) -> usize {
        let count = self.ring.pop_burst(burst, Burst::CAPACITY);
        self.taken += count as i64;
        count
    }

    fn sleep_on(&mut self) -> SleepOn {
        if self.ring.is_closed() {
            SleepOn::Ended
        } else {
            SleepOn::Doorbell(self.bell.clone())
        }
    }

    fn held(&self) -> i64 {
        -self.taken
    }
}

struct RingTx {
    ring: spsc::Producer<Packet>,
    given: i64,
}

impl TxQueue for RingTx {
    fn tx_burst(&mut self, burst: &mut Burst, _: &mut PoolCache) -> usize {
        let count = self.ring.push_burst(burst);
        self.given += count as i64;
        count
    }

    fn held(&self) -> i64 {
        self.given
    }
}

/// A source ring with its bell, a sink ring, and queues on them.
fn rings() -> (
    spsc::Producer<Packet>,
    Arc<Doorbell>,
    RingRx,
    RingTx,
    spsc::Consumer<Packet>,
) {
    let (source, inside) = spsc::ring(1024);
    let (outside, sink) = spsc::ring(4096);
    let bell = Arc::new(Doorbell::new().unwrap());
    let rx = RingRx {
        ring: inside,
        bell: bell.clone(),
        taken: 0,
    };
    (
        source,
        bell,
        rx,
        RingTx {
            ring: outside,
            given: 0,
        },
        sink,
    )
}

fn worker<S: Stage>(name: &str, stage: S) -> (Worker<S>, WorkerHandle<S>) {
    Worker::new(
        name,
        stage,
        Egress::new(PoolCache::new(&[])),
        Clock::calibrate(),
    )
    .unwrap()
}

fn forward(port: u16) -> impl FnMut(&mut Burst, &mut Egress) + Send {
    move |burst, out| out.send(port, burst)
}

/// Sends `count` numbered packets into the ring, giving the CPU away when it is full.
fn feed(
    pool: &Pool,
    ring: &mut spsc::Producer<Packet>,
    bell: &Doorbell,
    numbers: std::ops::Range<u64>,
) {
    let mut cache = PoolCache::new(&[]);
    for number in numbers {
        let mut packet = loop {
            match cache.get(pool) {
                Some(packet) => break packet,
                None => std::thread::yield_now(),
            }
        };
        packet.set_user(number);
        let mut next = Some(packet);
        while let Some(packet) = next.take() {
            if let Err(back) = ring.push(packet) {
                next = Some(back);
                std::thread::yield_now();
            }
        }
        bell.ring();
    }
}

/// Takes `count` packets and returns whether their numbers ascend from `first`.
fn in_order(sink: &mut spsc::Consumer<Packet>, mut first: u64, count: u64) -> bool {
    let end = first + count;
    let deadline = Instant::now() + Duration::from_secs(60);
    while first < end {
        match sink.pop() {
            Some(packet) if packet.user::<u64>() == first => first += 1,
            Some(packet) => panic!("expected {first}, got {}", packet.user::<u64>()),
            None => {
                assert!(Instant::now() < deadline, "stuck before {first}");
                std::thread::yield_now();
            }
        }
    }
    true
}

#[test]
fn a_worker_forwards_sleeps_wakes_and_ends() {
    let pool = pool(2048);
    let (mut source, bell, rx, tx, mut sink) = rings();
    let (mut worker, handle) = worker("w", forward(0));
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(tx))));
    let lcore = Lcore::spawn("w", None, move || worker.run(true)).unwrap();
    feed(&pool, &mut source, &bell, 0..1000);
    assert!(in_order(&mut sink, 0, 1000));
    let asleep = Instant::now();
    while handle.stats().sleeps.read() == 0 {
        assert!(
            asleep.elapsed() < Duration::from_secs(60),
            "an idle worker falls asleep"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    feed(&pool, &mut source, &bell, 1000..1001);
    assert!(in_order(&mut sink, 1000, 1), "the bell woke it");
    drop(source);
    bell.ring();
    lcore.join().unwrap();
    assert_eq!(handle.stats().packets.read(), 1001);
    assert_eq!(handle.stats().residence.snapshot().total, 1001);
    assert!(handle.call(|_| ()).is_err(), "an ended worker says so");
}

#[test]
fn a_queue_moves_between_lcores_under_load_in_order_without_loss() {
    let pool = pool(2048);
    let (mut source, bell, rx, tx, mut sink) = rings();
    // Two workers with a ring each to the third, which owns the transmit queue.
    let (mut owner, owner_handle) = worker("owner", forward(0));
    owner.set_outlet(0, Some(TxPath::Queue(Box::new(tx))));
    let mut lcores = Vec::new();
    let mut handles = Vec::new();
    for index in 0..2 {
        // Larger than the pool, so that a slow owner fills no ring and nothing is dropped.
        let (to_owner, at_owner) = spsc::ring(4096);
        owner.add_inlet(Inlet::hand_off(0, index, at_owner));
        let (mut worker, handle) = worker(if index == 0 { "a" } else { "b" }, forward(0));
        worker.set_outlet(
            0,
            Some(TxPath::Ring(to_owner, owner_handle.doorbell().clone())),
        );
        lcores.push(Lcore::spawn("mover", None, move || drop(worker.run(false))).unwrap());
        handles.push(handle);
    }
    let owner = Lcore::spawn("owner", None, move || drop(owner.run(false))).unwrap();
    handles[0]
        .call(|worker| worker.add_inlet(Inlet::queue(7, 0, Box::new(rx))))
        .unwrap();
    let feeder = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            feed(&pool, &mut source, &bell, 0..20_000);
            source
        })
    };
    let mover = std::thread::spawn(move || {
        for round in 0..50 {
            move_inlet(&handles[round % 2], &handles[(round + 1) % 2], 7, 0).unwrap();
            std::thread::yield_now();
        }
        handles
    });
    assert!(in_order(&mut sink, 0, 20_000));
    let handles = mover.join().unwrap();
    drop(feeder.join().unwrap());
    for handle in &handles {
        assert!(
            handle.stats().drops().is_empty(),
            "{:?}",
            handle.stats().drops()
        );
        handle.stop();
    }
    owner_handle.stop();
    lcores.into_iter().for_each(|lcore| lcore.join().unwrap());
    owner.join().unwrap();
}

#[test]
fn tables_are_swapped_between_bursts_and_the_old_one_comes_back() {
    struct Table {
        port: Box<u16>,
    }
    impl Stage for Table {
        fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
            out.send(*self.port, burst);
        }
    }
    let (worker, handle) = worker("swap", named("table", Table { port: Box::new(3) }));
    let lcore = Lcore::spawn("swap", None, move || drop(worker.run(false))).unwrap();
    let new = Box::new(4);
    let old = handle
        .call(|worker| std::mem::replace(&mut worker.stage.stage_mut().port, new))
        .unwrap();
    assert_eq!(*old, 3);
    handle.stop();
    lcore.join().unwrap();
}

#[test]
fn branches_split_in_order_and_ends_count_what_they_leave() {
    let pool = pool(64);
    let mut cache = PoolCache::new(&[]);
    let mut egress = Egress::new(PoolCache::new(&[]));
    let (even, mut evens) = spsc::ring(64);
    let (odd, mut odds) = spsc::ring(64);
    egress.set_outlet(
        0,
        Some(TxPath::Queue(Box::new(RingTx {
            ring: even,
            given: 0,
        }))),
    );
    egress.set_outlet(
        1,
        Some(TxPath::Queue(Box::new(RingTx {
            ring: odd,
            given: 0,
        }))),
    );
    let verdict = |packet: &mut Packet| match packet.user::<u64>() {
        9 => 5,
        number => (number % 2) as usize,
    };
    let mut stage = named("look", |_: &mut Burst, _: &mut Egress| {}).branch(
        verdict,
        (named("even", forward(0)), named("odd", forward(1))),
    );
    let mut burst = Burst::new();
    cache.fill(&pool, &mut burst, 10);
    burst
        .iter_mut()
        .enumerate()
        .for_each(|(i, packet)| packet.set_user(i as u64));
    stage.run(&mut burst, &mut (), &mut egress);
    assert!(burst.is_empty());
    let numbers = |ring: &mut spsc::Consumer<Packet>| -> Vec<u64> {
        std::iter::from_fn(|| ring.pop())
            .map(|packet| packet.user())
            .collect()
    };
    assert_eq!(
        (numbers(&mut evens), numbers(&mut odds)),
        (vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7])
    );
    let drops = egress.drop_counts();
    let left_over = drops
        .lock()
        .unwrap()
        .iter()
        .find(|(name, _)| name == "left_over")
        .unwrap()
        .1
        .read();
    assert_eq!(left_over, 1, "no exit 5");
    // A burst with one exit takes the short path.
    cache.fill(&pool, &mut burst, 3);
    burst.iter_mut().for_each(|packet| packet.set_user(1_u64));
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(numbers(&mut odds), [1, 1, 1]);
    let mut seen = Vec::new();
    stage.points(&mut |point| seen.push((point.name, point.packets, point.unaccounted)));
    assert_eq!(seen, [("look", 13, 0), ("even", 5, 0), ("odd", 7, 0)]);
}

#[test]
fn a_tap_sees_every_packet_that_comes_to_its_stage() {
    let pool = pool(64);
    let mut egress = Egress::new(PoolCache::new(&[]));
    let mut stage = named("in", |_: &mut Burst, _: &mut Egress| {}).then("out", forward(0));
    let (sender, seen) = mpsc::channel();
    let mut tap: Option<Tap> = Some(Box::new(move |passing| {
        let user = passing.packet.user::<u64>();
        sender.send((passing.port, user)).unwrap();
    }));
    stage.points(&mut |point| {
        if point.name == "out" {
            point.set_tap(7, tap.take().unwrap());
        }
    });
    let mut burst = Burst::new();
    burst.port = 3;
    PoolCache::new(&[]).fill(&pool, &mut burst, 2);
    (0..)
        .zip(burst.iter_mut())
        .for_each(|(at, packet)| packet.set_user::<u64>(at));
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(3, 0), (3, 1)]);
    stage.points(&mut |point| assert_eq!(point.remove_tap(7).is_some(), point.name == "out"));
    PoolCache::new(&[]).fill(&pool, &mut burst, 2);
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn a_full_way_out_drops_and_counts() {
    let pool = pool(256);
    let mut cache = PoolCache::new(&[]);
    let mut egress = Egress::new(PoolCache::new(&[]));
    let (ring, _sink) = spsc::ring(64);
    egress.set_outlet(0, Some(TxPath::Queue(Box::new(RingTx { ring, given: 0 }))));
    for _ in 0..3 {
        let mut burst = Burst::new();
        cache.fill(&pool, &mut burst, 64);
        egress.send(0, &mut burst);
        egress.flush();
    }
    let mut lost = Burst::new();
    cache.fill(&pool, &mut lost, 7);
    egress.send(9, &mut lost);
    assert_eq!(egress.sent(0), 64);
    let drops = egress.drop_counts();
    let counts: Vec<_> = drops
        .lock()
        .unwrap()
        .iter()
        .map(|(name, count)| (name.clone(), count.read()))
        .collect();
    assert!(
        counts.contains(&("tx_full.port0".into(), 128)),
        "{counts:?}"
    );
    assert!(counts.contains(&("no_outlet".into(), 7)), "{counts:?}");

    // Once it has a name, that is what is counted.
    egress.name_outlet(0, "wan");
    let mut burst = Burst::new();
    cache.fill(&pool, &mut burst, 3);
    egress.send(0, &mut burst);
    egress.flush();
    let drops = drops.lock().unwrap();
    let of = |name: &str| {
        let named = drops.iter().find(|(known, _)| known == name);
        named.map(|(_, count)| count.read())
    };
    assert_eq!(of("tx_full.wan"), Some(3));
    assert_eq!(of("tx_full.port0"), Some(128));
}

#[test]
fn the_ledger_names_the_last_holder_of_a_forgotten_packet() {
    let pool = pool(2048);
    let (mut source, bell, rx, tx, mut sink) = rings();
    let careless = |burst: &mut Burst, _: &mut Egress| {
        let found = burst.iter().position(|packet| packet.user::<u64>() == 500);
        if let Some(index) = found {
            let mut kept = Burst::new();
            burst.as_packets_mut().swap(index, 0);
            burst.move_front(1, &mut kept);
            std::mem::forget(kept);
        }
    };
    let (mut worker, handle) = worker(
        "w0",
        named("parse", |_: &mut Burst, _: &mut Egress| {})
            .then("careless", careless)
            .then("out", forward(0)),
    );
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(tx))));
    let lcore = Lcore::spawn("w0", None, move || drop(worker.run(false))).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut fed = 0_i64;
    let mut feed_some = |count: u64, cache: &mut PoolCache| {
        for number in 0..count {
            let mut packet = cache.get(&pool).unwrap();
            packet.set_user(number);
            source.push(packet).unwrap();
            fed += 1;
        }
        bell.ring();
        fed
    };
    let mut drained = 0_i64;
    let mut drain = |count: usize, cache: &mut PoolCache| {
        let mut left = count;
        while left > 0 {
            match sink.pop() {
                Some(packet) => {
                    cache.free_one(packet);
                    drained += 1;
                    left -= 1;
                }
                None => std::thread::yield_now(),
            }
        }
        drained
    };
    let take = |cache: &PoolCache, fed: i64, drained: i64| {
        Balance::take(std::slice::from_ref(&pool), || {
            let mut accounts = handle
                .call(|worker| worker.accounts(&|port| port.to_string()))
                .unwrap();
            accounts.push(ledger::Account::cache("test".into(), cache));
            accounts.push(ledger::Account::holds("feeder".into(), fed));
            accounts.push(ledger::Account::holds("drain".into(), -drained));
            accounts
        })
    };
    let fed = feed_some(400, &mut cache);
    let drained = drain(300, &mut cache);
    let clean = take(&cache, fed, drained);
    assert_eq!((clean.missing, clean.exact), (0, true), "{clean}");
    let fed = feed_some(600, &mut cache);
    let drained = drain(699, &mut cache);
    let short = take(&cache, fed, drained);
    assert_eq!(short.missing, 1, "{short}");
    assert_eq!(
        short.last_holders()[0].holder,
        "w0: stage `careless`",
        "{short}"
    );
    handle.stop();
    lcore.join().unwrap();
}

/// Without a named stage the pipeline's account shows a lost packet, whether its slot is lost, too,
/// or was freed; with rings and full outlets the ledger balances.
#[test]
fn the_ledger_names_the_pipeline_where_no_stage_has_a_name() {
    let pool = pool(256);
    let (mut source, _, rx, tx, _sink) = rings();
    let careless = |burst: &mut Burst, out: &mut Egress| {
        let mut kept = Burst::new();
        let user = burst.iter().next().map(|packet| packet.user::<u64>());
        match user {
            Some(1) => {
                burst.move_front(1, &mut kept);
                std::mem::forget(kept);
            }
            Some(2) => {
                burst.move_front(1, &mut kept);
                drop(kept);
            }
            _ => {}
        }
        out.send(u16::from(user == Some(3)), burst);
    };
    let (mut worker, _handle) = worker("w0", careless);
    worker.set_burst(1);
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(tx))));
    // Another lcore's packets are in its books, not in these.
    let (mut from_other, hand_off) = spsc::ring(8);
    worker.add_inlet(Inlet::hand_off(0, 9, hand_off));
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut fed = 0;
    let mut run = |users: &[u64], worker: &mut Worker<_>, cache: &mut PoolCache| {
        for &user in users {
            let mut packet = cache.get(&pool).unwrap();
            packet.set_user(user);
            source.push(packet).unwrap();
            fed += 1;
            worker.round();
        }
        Balance::take(std::slice::from_ref(&pool), || {
            let mut accounts = worker.accounts(&|port| format!("port {port}"));
            accounts.push(ledger::Account::cache("test".into(), cache));
            // What it gave to both rings; what went out is still in the sink's.
            accounts.push(ledger::Account::holds("feeder".into(), fed + 1));
            accounts
        })
    };
    from_other.push(cache.get(&pool).unwrap()).unwrap();
    let even = run(&[0, 0, 3], &mut worker, &mut cache);
    assert!(even.is_even() && even.exact, "{even}");
    assert_eq!(even.verdict(), "all 3 packets accounted for");
    let dropped = run(&[2], &mut worker, &mut cache);
    assert_eq!(
        dropped.verdict(),
        "unaccounted for, of 4 packets: 1 lost by w0: pipeline"
    );
    let forgotten = run(&[1], &mut worker, &mut cache);
    assert_eq!(
        forgotten.verdict(),
        "unaccounted for, of 5 packets: 2 lost by w0: pipeline; 1 slots missing"
    );
}

/// Two idle lcores that can send to each other sleep, both: neither wakes the other for nothing.
#[test]
fn idle_workers_let_each_other_sleep() {
    let (to_b, from_a) = spsc::ring(64);
    let (to_a, from_b) = spsc::ring(64);
    let (mut a, handle_a) = worker("a", forward(0));
    let (mut b, handle_b) = worker("b", forward(0));
    a.set_outlet(0, Some(TxPath::Ring(to_b, handle_b.doorbell().clone())));
    b.set_outlet(0, Some(TxPath::Ring(to_a, handle_a.doorbell().clone())));
    a.add_inlet(Inlet::ring(0, 0, from_b));
    b.add_inlet(Inlet::ring(0, 0, from_a));
    let lcores = [a, b].map(|worker| {
        let name = worker.name().to_string();
        Lcore::spawn(&name, None, move || drop(worker.run(false))).unwrap()
    });
    let handles = [handle_a, handle_b];
    let start = Instant::now();
    let few = |handle: &WorkerHandle<_>| handle.stats().sleeps.read() < 4;
    while handles.iter().any(few) && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // A sleep without a wake-up lasts its whole time, on a busy machine longer.
    let naps = start.elapsed().as_millis() / Idle::default().nap.as_millis() + 2;
    let sleeps = handles
        .each_ref()
        .map(|handle| u128::from(handle.stats().sleeps.read()));
    handles.iter().for_each(WorkerHandle::stop);
    for lcore in lcores {
        lcore.join().unwrap();
    }
    assert!(
        sleeps.iter().all(|count| (4..=naps).contains(count)),
        "{sleeps:?} in {naps} naps"
    );
}

/// What a message sends reaches the lcore behind the ring at once, though its sender sees no packet
/// and never comes to rest.
#[test]
fn what_a_message_sends_wakes_its_taker() {
    let pool = pool(64);
    let (ring, mut taker) = spsc::ring(64);
    let bell = Arc::new(Doorbell::new().unwrap());
    let (mut sender, handle) = worker("w0", forward(0));
    sender.set_idle(Idle::never_sleep());
    sender.set_outlet(0, Some(TxPath::Ring(ring, bell.clone())));
    let lcore = Lcore::spawn("w0", None, move || drop(sender.run(false))).unwrap();
    bell.prepare_sleep();
    let packet = PoolCache::new(&[]).get(&pool).unwrap();
    handle
        .call(move |worker| worker.egress.send_one(0, packet))
        .unwrap();
    let is_rung = bell.nap(Duration::from_secs(20)).unwrap();
    handle.stop();
    lcore.join().unwrap();
    assert!(is_rung, "the bell did not ring");
    assert!(taker.pop().is_some());
}

/// Stages that share a context: the first passes a verdict, the second takes the packets that it
/// handles out of the burst, and the last sends them.
#[derive(Default)]
struct Verdicts {
    live: u64,
    kept: Vec<Packet>,
}

impl BurstContext for Verdicts {
    fn mask(&self, burst: &Burst) -> u64 {
        self.live & burst.mask()
    }

    fn kept(&self) -> u64 {
        self.kept.len() as u64
    }
}

struct Judge;
impl Stage<Verdicts> for Judge {
    fn run(&mut self, burst: &mut Burst, context: &mut Verdicts, _: &mut Egress) {
        context.live = burst.mask() & 0b0101;
    }
}

struct Keep;
impl Stage<Verdicts> for Keep {
    fn run(&mut self, burst: &mut Burst, context: &mut Verdicts, out: &mut Egress) {
        for (index, packet) in burst.drain().enumerate() {
            match context.live >> index & 1 {
                1 => context.kept.push(packet),
                _ => out.consume_one(packet),
            }
        }
        // One of its own besides.
        out.made(1);
        let pool = out.cache.pools().next().unwrap().clone();
        context.kept.extend(out.cache.get(&pool));
    }

    fn turn(&mut self, now: u64, context: &mut Verdicts, out: &mut Egress) -> u64 {
        let mut kept: Burst = context
            .kept
            .drain(..)
            .fold(Burst::new(), |mut burst, packet| {
                burst.push(packet).unwrap();
                burst
            });
        out.send(0, &mut kept);
        now + 5
    }
}

#[test]
fn the_ledger_of_a_point_counts_packets_kept_in_the_context_and_made() {
    let pool = pool(64);
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let (ring, mut sink) = spsc::ring(64);
    egress.set_outlet(0, Some(TxPath::Queue(Box::new(RingTx { ring, given: 0 }))));
    let mut stage = named("judge", Judge)
        .then("keep", Keep)
        .with_context(Verdicts {
            live: u64::MAX,
            ..Verdicts::default()
        });
    let mut burst = Burst::new();
    egress.cache.fill(&pool, &mut burst, 4);
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(stage.turn(100, &mut (), &mut egress), 105);
    egress.flush();
    assert_eq!(std::iter::from_fn(|| sink.pop()).count(), 3);
    let mut seen = Vec::new();
    stage.points(&mut |point| seen.push((point.name, point.packets, point.unaccounted)));
    assert_eq!(
        seen,
        [("judge", 4, 0), ("keep", 2, 0)],
        "of keep those that are live"
    );
}

#[test]
fn cycles_are_measured_only_on_request() {
    let pool = pool(64);
    let mut egress = Egress::new(PoolCache::new(&[]));
    let spin = |_: &mut Burst, _: &mut Egress| (0..1000).for_each(|_| crate::arch::pause());
    let mut stage = named("idle", |_: &mut Burst, _: &mut Egress| {}).then("spin", spin);
    let mut burst = Burst::new();
    PoolCache::new(&[]).fill(&pool, &mut burst, 5);
    let measured = |stage: &mut dyn Stage| {
        let mut all = Vec::new();
        stage.points(&mut |point| all.push((point.measured_packets, point.measured_ticks)));
        all
    };
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(measured(&mut stage), [(0, 0); 2]);
    stage.points(&mut |point| point.measure_for(u64::MAX));
    stage.run(&mut burst, &mut (), &mut egress);
    let [idle, spin] = measured(&mut stage)[..] else {
        panic!("two points");
    };
    assert_eq!((idle.0, spin.0), (5, 5));
    assert!(spin.1 > 1000 && spin.1 > idle.1, "{idle:?} {spin:?}");
    // It ends by itself: with the burst that is being measured then.
    stage.points(&mut |point| point.measure_for(0));
    assert_eq!(measured(&mut stage), [idle, spin], "went on");
    stage.run(&mut burst, &mut (), &mut egress);
    let last = measured(&mut stage);
    assert_eq!(last[1].0, 10);
    stage.run(&mut burst, &mut (), &mut egress);
    assert_eq!(measured(&mut stage), last);
    stage.points(&mut |point| point.measure_for(u64::MAX));
    assert_eq!(measured(&mut stage), [(0, 0); 2], "from the start");
}

#[test]
fn a_stage_has_its_turn_without_packets_and_a_deadline_ends_the_nap() {
    struct Timer {
        period: u64,
        turns: Arc<Counter>,
        due: u64,
    }
    impl Stage for Timer {
        fn run(&mut self, _: &mut Burst, (): &mut (), _: &mut Egress) {}

        fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
            if now >= self.due {
                self.due = now + self.period;
                self.turns.add(1);
                let pool = out.cache.pools().next().unwrap().clone();
                if let Some(packet) = out.cache.get(&pool) {
                    out.made(1);
                    out.send_one(0, packet);
                }
            }
            self.due
        }
    }
    let pool = pool(64);
    let turns = Arc::new(Counter::default());
    let clock = Clock::monotonic("a test");
    let timer = Timer {
        period: clock.ticks(2_000_000),
        turns: turns.clone(),
        due: 0,
    };
    let egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let (mut worker, handle) = Worker::new("timer", named("timer", timer), egress, clock).unwrap();
    worker.set_idle(Idle {
        polls: 1,
        pauses: 1,
        nap: Duration::from_secs(3600),
        ..Idle::default()
    });
    let (ring, mut sink) = spsc::ring(64);
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(RingTx { ring, given: 0 }))));
    let lcore = Lcore::spawn("timer", None, move || worker.run(false)).unwrap();
    // Asleep for an hour but for its deadlines.
    while turns.read() < 5 || handle.stats().sleeps.read() < 4 {
        std::thread::yield_now();
    }
    handle.stop();
    let mut worker = lcore.join().unwrap();
    let sent = std::iter::from_fn(|| sink.pop()).count() as u64;
    assert_eq!(sent, turns.read(), "each was flushed");
    worker
        .stage
        .points(&mut |point| assert_eq!(point.unaccounted, 0));
}

/// Counts how often it is flushed with nothing sent since.
struct FlushedTx {
    queue: RingTx,
    sent: bool,
    later: Arc<Counter>,
}

impl TxQueue for FlushedTx {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        self.sent = true;
        self.queue.tx_burst(burst, cache)
    }

    fn flush(&mut self, _: &mut PoolCache) {
        if !std::mem::take(&mut self.sent) {
            self.later.add(1);
        }
    }

    fn held(&self) -> i64 {
        self.queue.held()
    }
}

/// What a queue leaves to the next round must not wait for as long as others are busy.
#[test]
fn a_queue_that_falls_silent_is_flushed_again_by_a_worker_that_never_idles() {
    let pool = pool(64);
    let (mut source, bell, rx, queue, mut sink) = rings();
    let (_, _, _, other, mut busy) = rings();
    let later = Arc::new(Counter::default());
    let silent = FlushedTx {
        queue,
        sent: false,
        later: later.clone(),
    };
    // The first packet to port 0, all others to port 1.
    let stage = |burst: &mut Burst, out: &mut Egress| {
        let port = burst
            .iter()
            .next()
            .map_or(1, |packet| u16::from(packet.user::<u64>() > 0));
        out.send(port, burst);
    };
    let (mut worker, _handle) = worker("busy", stage);
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(silent))));
    worker.set_outlet(1, Some(TxPath::Queue(Box::new(other))));
    for (number, flushed_later) in [(0, 0), (1, 1), (2, 1), (3, 1)] {
        feed(&pool, &mut source, &bell, number..number + 1);
        assert_eq!(worker.round(), 1);
        assert_eq!(later.read(), flushed_later, "in round {number}");
    }
    assert!(sink.pop().is_some() && busy.pop().is_some());
}

#[test]
fn rings_are_polled_before_queues() {
    let (_, _, rx, _, _) = rings();
    let (mut worker, _handle) = worker("order", forward(0));
    let ring = || spsc::ring::<Packet>(64).1;
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.add_inlet(Inlet::ring(9, 0, ring()));
    let (_, _, rx, _, _) = rings();
    worker.add_inlet(Inlet::queue(1, 0, Box::new(rx)));
    worker.add_inlet(Inlet::hand_off(0, 1, ring()));
    assert_eq!(worker.inlet_order(), [(9, 0), (0, 1), (0, 0), (1, 0)]);
}
