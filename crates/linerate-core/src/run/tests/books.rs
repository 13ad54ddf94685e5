//! Drops and their counters, and whom the ledger names for a packet that is missing.

use super::*;

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
