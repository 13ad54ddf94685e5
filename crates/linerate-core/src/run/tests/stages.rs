//! What stages see, and when they have their turn: branches, taps, cycles, deadlines.

use super::*;

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
