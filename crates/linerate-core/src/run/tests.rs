//! Workers end to end, on rings and hand-made queues.
#![allow(clippy::unwrap_used)]

mod books;
mod kept;
mod rings;
mod stages;

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
