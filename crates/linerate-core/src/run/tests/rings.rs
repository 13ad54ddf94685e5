//! Rings between workers: their accounts, and when no packet is under way in them.

use super::*;

/// Has a worker send `count` packets to port 0 now.
fn send<S: Stage>(worker: &mut Worker<S>, pool: &Pool, count: usize) {
    let mut burst = Burst::new();
    let egress = &mut worker.egress;
    egress.cache.fill(pool, &mut burst, count);
    egress.send(0, &mut burst);
    egress.flush();
}

/// The missing slots by the accounts of two workers, which together have all slots of the pool.
fn missing<A: Stage, B: Stage>(pool: &Pool, a: &mut Worker<A>, b: &mut Worker<B>) -> i64 {
    let port = |port: u16| format!("port{port}");
    let both = || [a.accounts(&port), b.accounts(&port)].concat();
    Balance::take(std::slice::from_ref(pool), both).missing
}

#[test]
fn a_ring_that_replaces_another_has_counters_of_its_own() {
    let pool = pool(256);
    let (mut sender, _sender) = worker("sender", forward(0));
    let (mut taker, taker_handle) = worker("taker", |burst: &mut Burst, out: &mut Egress| {
        burst.drain().for_each(|packet| out.consume_one(packet));
    });
    for count in [5, 3] {
        let (putter, consumer) = spsc::ring(64);
        let bell = taker_handle.doorbell().clone();
        sender.set_outlet(0, Some(TxPath::Ring(putter, bell)));
        taker.add_inlet(Inlet::ring(0, 0, consumer));
        send(&mut sender, &pool, count);
        assert_eq!(missing(&pool, &mut sender, &mut taker), 0, "in the ring");
        assert_eq!(taker.round(), count);
        assert_eq!(missing(&pool, &mut sender, &mut taker), 0, "taken");
        sender.set_outlet(0, None);
        taker.take_inlet(0, 0);
    }
}

/// Such as a worker's own number in a mesh, or that of a removed port.
#[test]
fn an_unused_outlet_number_is_not_counted_as_a_full_ring() {
    let pool = pool(256);
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let (putter, _taker) = spsc::ring(64);
    let bell = Arc::new(Doorbell::new().unwrap());
    egress.set_outlet(2, Some(TxPath::Ring(putter, bell)));
    for _ in 0..3 {
        let mut burst = Burst::new();
        egress.cache.fill(&pool, &mut burst, 50);
        egress.send(1, &mut burst);
        let packet = egress.cache.get(&pool).unwrap();
        egress.send_one(0, packet);
    }
    egress.flush();
    let counts = egress.drop_counts();
    let counts = counts.lock().unwrap();
    let happened = counts.iter().filter(|(_, count)| count.read() > 0);
    let happened: Vec<_> = happened
        .map(|(name, count)| (&**name, count.read()))
        .collect();
    assert_eq!(happened, [("no_outlet", 153)]);
}

#[test]
fn packets_handed_to_an_ended_worker_are_not_waited_for() {
    let pool = pool(64);
    let (mut sender, _handle) = worker("sender", forward(0));
    let (putter, taker) = spsc::ring(64);
    let bell = Arc::new(Doorbell::new().unwrap());
    sender.set_outlet(0, Some(TxPath::Ring(putter, bell)));
    send(&mut sender, &pool, 2);
    let handed = sender.egress.handed();
    assert!(!sender.egress.is_taken(&handed));
    assert_eq!(sender.handed_and_taken(), (2, 0));
    drop(taker);
    assert!(sender.egress.is_taken(&handed));
    assert_eq!(sender.handed_and_taken(), (0, 0));
}

/// A packet circulates among three. Each worker is queried while the packet is in none of its own
/// output rings, so that all find theirs empty, and yet it is detected as under way.
#[test]
fn a_packet_that_circulates_is_under_way_in_whatever_order_workers_answer() {
    let pool = pool(64);
    let next = |burst: &mut Burst, out: &mut Egress| {
        for mut packet in burst.drain() {
            match packet.user::<u64>() {
                0 => out.consume_one(packet),
                left => {
                    packet.set_user(left - 1);
                    out.send_one(0, packet);
                }
            }
        }
    };
    let mut all = ["a", "b", "c"].map(|name| worker(name, next));
    for from in 0..3 {
        let to = (from + 1) % 3;
        let (putter, taker) = spsc::ring(64);
        let bell = all[to].1.doorbell().clone();
        all[from].0.set_outlet(0, Some(TxPath::Ring(putter, bell)));
        all[to].0.add_inlet(Inlet::ring(0, 0, taker));
    }
    let mut packet = PoolCache::new(&[]).get(&pool).unwrap();
    packet.set_user(17_u64);
    // In the ring from b to c.
    all[1].0.egress.send_one(0, packet);
    all[1].0.egress.flush();
    let mut wave = |is_under_way: bool| {
        let mut sums = (0, 0);
        for asked in 0..3 {
            let worker = &mut all[asked].0;
            let handed = worker.egress.handed();
            assert!(worker.egress.is_taken(&handed), "its ring is empty");
            let of = worker.handed_and_taken();
            sums = (sums.0 + of.0, sums.1 + of.1);
            // On to the ring that the next queried worker does not send to either.
            let came = all[(asked + 2) % 3].0.round();
            assert_eq!(came, usize::from(is_under_way));
        }
        sums
    };
    let mut before = wave(true);
    for _ in 0..5 {
        let now = wave(true);
        assert_ne!(before.1, now.0);
        before = now;
    }
    assert_eq!(wave(false).1, wave(false).0);
}

/// The ring to the lcore that transmits is never empty, since a second queue of the same worker
/// fills it all the time: the first moves all the same.
#[test]
fn a_queue_moves_while_another_fills_the_ring() {
    let pool = pool(2048);
    let (to_owner, mut owner) = spsc::ring(1024);
    let bell = Arc::new(Doorbell::new().unwrap());
    let (mut a, handle_a) = worker("a", forward(0));
    a.set_outlet(0, Some(TxPath::Ring(to_owner, bell)));
    let (source, moves, rx, ..) = rings();
    a.add_inlet(Inlet::queue(7, 0, Box::new(rx)));
    let (mut busy, busy_bell, rx, ..) = rings();
    a.add_inlet(Inlet::queue(8, 0, Box::new(rx)));
    let (b, handle_b) = worker("b", forward(0));
    let lcores = [a, b].map(|worker| {
        let name = worker.name().to_string();
        Lcore::spawn(&name, None, move || drop(worker.run(false))).unwrap()
    });
    let mut numbers = 0..u64::MAX;
    let mut feed_one = || {
        let number = numbers.next().unwrap();
        feed(&pool, &mut busy, &busy_bell, number..number + 1);
    };
    // One is left in the ring always.
    feed_one();
    let waits = Instant::now() + Duration::from_secs(60);
    while owner.meter().read().occupancy == 0 {
        assert!(Instant::now() < waits, "a does not forward");
        std::thread::yield_now();
    }
    let (done, moved) = mpsc::channel();
    let handles = (handle_a.clone(), handle_b.clone());
    let mover = std::thread::spawn(move || {
        let _ = done.send(move_inlet(&handles.0, &handles.1, 7, 0));
    });
    let mut outcome = None;
    while outcome.is_none() && Instant::now() < waits {
        feed_one();
        while owner.meter().read().occupancy < 2 {
            std::thread::yield_now();
        }
        drop(owner.pop());
        outcome = moved.try_recv().ok();
    }
    let order = handle_b.call(|worker| worker.inlet_order()).unwrap();
    // Before anything is asserted, since that waits for them.
    handle_a.stop();
    handle_b.stop();
    mover.join().unwrap();
    let outcome = outcome.expect("it waits for a ring that is never empty");
    assert!(outcome.unwrap());
    assert_eq!(order, [(7, 0)]);
    drop((source, moves));
    lcores.into_iter().for_each(|lcore| lcore.join().unwrap());
}
