//! Meshes of rings, and pipelines by role, with more workers than CPUs: packets go out in order or
//! are counted, the ledger balances, idle workers sleep, and nothing is left at the end.

use super::*;
use linerate_core::env::{Plan, PlanSpec, Topology};
use linerate_core::packet::{Packet, PoolConfig};
use linerate_core::run::ledger::{Account, Balance};
use linerate_core::run::named;

/// So many io and eu lcores, all on one CPU.
fn crowded(io: &str, eu: &str) -> Plan {
    let topology = Topology::machine().unwrap();
    let spec = PlanSpec {
        bg: Some("0".into()),
        io: Some(io.into()),
        eu: Some(eu.into()),
        cpus: Some("0,0,0,0,0,0,0,0".into()),
    };
    Plan::build(&spec, &topology, &[]).unwrap()
}

/// The ledger of all workers and `others` over the workers' pools and `more`.
fn balance<S: Stage + 'static>(
    running: &Running<S>,
    more: &[Pool],
    mut others: impl FnMut() -> Vec<Account>,
) -> Balance {
    let first = running.handles().next().unwrap();
    let pools = first.call(|worker| worker.egress.cache.pools().cloned().collect());
    let mut pools: Vec<Pool> = pools.unwrap();
    pools.extend_from_slice(more);
    Balance::take(&pools, || {
        let accounts = |handle: &WorkerHandle<S>| {
            handle
                .call(|worker| worker.accounts(&|port| format!("port{port}")))
                .unwrap()
        };
        running
            .handles()
            .flat_map(accounts)
            .chain(others())
            .collect()
    })
}

/// Four workers on one CPU, each with a ring to each other. Each packet goes from one to the next,
/// for a random number of hops, and then out. The source never stops, so rings are full at times,
/// which is counted; the ledger balances meanwhile, and all packets under way at the end are sent.
#[test]
fn a_mesh_loses_nothing_that_it_does_not_count() {
    const WORKERS: usize = 4;
    const SINK: u16 = 1;
    const FIRST: u16 = 2;
    const HOPS: u64 = 5;
    let ports = ["null:", "null:,rx=off"].map(|spec| (None, spec.to_owned()));
    let opened = OpenPorts::open(&ports, Clock::calibrate()).unwrap();
    let mut shares = vec![Share::default(); WORKERS];
    shares[0].polls.push((0, 0));
    shares[2].sends.push((SINK, 0));
    for from in [0, 1, 3] {
        shares[from].hand_offs.push((SINK, 2));
    }
    wiring::mesh(&mut shares, FIRST, 0..WORKERS, |_| true);
    let plan = crowded("1-4", "5");
    let lcores: Vec<&Placement> = plan.role(Role::Io).collect();
    let running = opened.start_shares(shares, &lcores, &OPTIONS, |me, _| {
        named("hop", move |burst: &mut Burst, out: &mut Egress| {
            let is_new = burst.port == 0;
            for mut packet in burst.drain() {
                let hops = if is_new { 0 } else { packet.user::<u64>() };
                packet.set_user(hops + 1);
                let next = (me + 1 + hops as usize % (WORKERS - 1)) % WORKERS;
                out.send_one(
                    if hops < HOPS {
                        FIRST + next as u16
                    } else {
                        SINK
                    },
                    packet,
                );
            }
        })
    });
    let running = running.unwrap();
    let first = Sample::take(&running);
    let sent = |running: &Running<_>| running.port(SINK).unwrap().port.stats().tx_packets;
    for round in 1..4 {
        while sent(&running) < round * 5000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let books = balance(&running, &[], Vec::new);
        assert_eq!((books.missing, books.exact), (0, true), "{books}");
        assert!(books.last_holders().is_empty(), "{books}");
    }
    let (last, _, errors) = running.stop();
    assert!(errors.is_empty(), "{errors:?}");
    let reading = last.since(&first);
    let drops = || reading.lcores.iter().flat_map(|lcore| &lcore.drops);
    let is_full = |reason: &str| {
        let to = reason.strip_prefix("tx_full.");
        to.is_some_and(|to| to == "null" || lcores.iter().any(|lcore| lcore.name == to))
    };
    assert!(drops().all(|(reason, _)| is_full(reason)), "{reading:?}");
    let dropped: u64 = drops().map(|(_, count)| count).sum();
    assert_eq!(
        reading.ports[0].rx_packets,
        reading.ports[1].tx_packets + dropped
    );
    assert!(
        reading.lcores.iter().all(|lcore| lcore.packets > 0),
        "{reading:?}"
    );
}

/// One packet circulates among three workers at the end, and each is mostly asked while it has
/// nothing: the packet still finishes its path.
#[test]
fn what_goes_around_at_the_end_still_goes_out() {
    const WORKERS: usize = 3;
    const SINK: u16 = 0;
    const FIRST: u16 = 1;
    for round in 0..8 {
        let ports = [(None, "null:,rx=off".to_owned())];
        let opened = OpenPorts::open(&ports, Clock::calibrate()).unwrap();
        let mut shares = vec![Share::default(); WORKERS];
        shares[0].sends.push((SINK, 0));
        for share in &mut shares[1..] {
            share.hand_offs.push((SINK, 0));
        }
        wiring::mesh(&mut shares, FIRST, 0..WORKERS, |_| true);
        let plan = crowded("1-3", "4");
        let lcores: Vec<&Placement> = plan.role(Role::Io).collect();
        let running = opened.start_shares(shares, &lcores, &OPTIONS, |me, _| {
            let next = FIRST + ((me + 1) % WORKERS) as u16;
            move |burst: &mut Burst, out: &mut Egress| {
                for mut packet in burst.drain() {
                    let left = packet.user::<u64>();
                    packet.set_user(left.saturating_sub(1));
                    out.send_one(if left > 0 { next } else { SINK }, packet);
                }
            }
        });
        let running = running.unwrap();
        let first = running.handles().next().unwrap();
        let send = |worker: &mut Worker<_>| {
            let mut packet = worker.egress.cache.get_for(60).unwrap();
            packet.set_data(&[0; 60]);
            packet.set_user(40_u64);
            worker.egress.send_one(FIRST + 1, packet);
        };
        first.call(send).unwrap();
        let before = Sample::take(&running);
        let (last, _, errors) = running.stop();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(last.since(&before).ports[0].tx_packets, 1, "round {round}");
    }
}

/// The other end of a ring port: what a test sends there and receives.
struct Peer {
    _port: Box<dyn Port>,
    queues: Queues,
    cache: PoolCache,
    pool: Pool,
}

impl Peer {
    fn new(drivers: &mut Drivers, spec: &str) -> Self {
        let mut port = drivers.open(spec).unwrap();
        let pool = Pool::new(&PoolConfig::new("peer", 4096)).unwrap();
        let config = PortConfig::default();
        let queues = port
            .start(&config, &Pools::new(vec![pool.clone()]))
            .unwrap();
        let cache = PoolCache::new(std::slice::from_ref(&pool));
        Self {
            _port: port,
            queues,
            cache,
            pool,
        }
    }

    /// Sends a burst of frames, each with its flow and its number within that.
    fn send(&mut self, frames: &[(u16, u32)]) {
        let mut burst = Burst::new();
        self.cache.fill(&self.pool, &mut burst, frames.len());
        for (packet, (flow, number)) in burst.iter_mut().zip(frames) {
            let mut data = [0; 60];
            data[..2].copy_from_slice(&flow.to_be_bytes());
            data[2..6].copy_from_slice(&number.to_be_bytes());
            assert!(packet.set_data(&data));
        }
        let tx = &mut self.queues.tx[0];
        assert_eq!(tx.tx_burst(&mut burst, &mut self.cache), frames.len());
        tx.flush(&mut self.cache);
    }

    /// Received frames: flow, number, and the worker that has marked the frame.
    fn receive(&mut self) -> Vec<(u16, u32, u8)> {
        let mut burst = Burst::new();
        self.queues.rx[0].rx_burst(&mut burst, &mut self.cache);
        let read = |packet: &Packet| {
            let data = packet.data();
            let flow = u16::from_be_bytes([data[0], data[1]]);
            let number = u32::from_be_bytes([data[2], data[3], data[4], data[5]]);
            (flow, number, data[6])
        };
        let frames = burst.iter().map(read).collect();
        self.cache.free(&mut burst);
        frames
    }

    fn accounts(&self, name: &str) -> Vec<Account> {
        vec![
            Account::cache(format!("{name}: free slots"), &self.cache),
            Account::holds(format!("{name}: tx"), self.queues.tx[0].held()),
            Account::holds(format!("{name}: rx"), self.queues.rx[0].held()),
        ]
    }
}

/// Two io workers hand each flow to one of three eu workers, which mark its frames and send them
/// out through the io worker that has the queue: all six lcores on one CPU.
#[test]
fn io_lcores_classify_and_eu_lcores_process() {
    const FLOWS: u16 = 7;
    const EUS: usize = 3;
    let mut drivers = Drivers::new();
    let specs = ["ring:a,size=4096", "ring:b,size=4096"].map(|spec| (None, spec.to_owned()));
    let opened = OpenPorts::open_among(&mut drivers, &specs, Clock::calibrate()).unwrap();
    let mut peers = ["ring:a", "ring:b"].map(|spec| Peer::new(&mut drivers, spec));
    let pools = peers.each_ref().map(|peer| peer.pool.clone());
    let plan = crowded("1-2", "3-5");
    let eus = wiring::eus(2, EUS);
    let flow = |packet: &Packet| u16::from(packet.data()[1]);
    let classify = |_: usize, _: &mut Egress| {
        let eus = eus.clone();
        named("classify", move |burst: &mut Burst, out: &mut Egress| {
            let port = burst.port;
            for mut packet in burst.drain() {
                packet.set_port(port);
                out.send_one(eus.start + flow(&packet) % EUS as u16, packet);
            }
        })
    };
    let process = |me: usize, _: &mut Egress| {
        named("process", move |burst: &mut Burst, out: &mut Egress| {
            for mut packet in burst.drain() {
                packet.data_mut()[6] = 1 + me as u8;
                out.send_one(1 - packet.port(), packet);
            }
        })
    };
    let running = opened.start_by_role(&plan.lcores, &OPTIONS, classify, process);
    let mut running = running.unwrap();
    let names: Vec<String> = running.lcores().map(|lcore| lcore.0.to_owned()).collect();
    assert_eq!(names, ["io0", "io1", "eu0", "eu1", "eu2"]);
    let (mut fed, mut seen) = ([[0; FLOWS as usize]; 2], [[0; FLOWS as usize]; 2]);
    let mut feed = |peers: &mut [Peer; 2], number: usize| {
        for (peer, fed) in peers.iter_mut().zip(&mut fed) {
            let frames: Vec<(u16, u32)> = (0..64)
                .map(|at| {
                    let flow = (at * 5 + number) % usize::from(FLOWS);
                    fed[flow] += 1;
                    (flow as u16, fed[flow] - 1)
                })
                .collect();
            peer.send(&frames);
        }
    };
    // What has come out of both, each flow in order and by one eu worker.
    let mut take = |peers: &mut [Peer; 2]| -> usize {
        let mut came = 0;
        for (peer, seen) in peers.iter_mut().zip(&mut seen) {
            for (flow, number, by) in peer.receive() {
                assert_eq!(number, seen[usize::from(flow)], "of flow {flow}");
                assert_eq!(
                    usize::from(by),
                    1 + usize::from(flow) % EUS,
                    "of flow {flow}"
                );
                seen[usize::from(flow)] += 1;
                came += 1;
            }
        }
        came
    };
    // No more under way than any ring holds, so that none is full.
    for number in 0..200 {
        feed(&mut peers, number);
        let mut left = 128;
        while left > 0 {
            left -= take(&mut peers);
            std::thread::yield_now();
        }
        if number % 50 == 0 {
            let others = || [peers[0].accounts("a"), peers[1].accounts("b")].concat();
            let books = balance(&running, &pools, others);
            assert_eq!((books.missing, books.exact), (0, true), "{books}");
        }
    }
    // Idle workers do not wake each other.
    let sleeps = || -> Vec<u64> {
        let stats = running.lcores();
        stats.map(|(_, _, stats)| stats.sleeps.read()).collect()
    };
    let before = sleeps();
    let patience = Instant::now() + Duration::from_secs(60);
    while sleeps()
        .iter()
        .zip(&before)
        .any(|(now, before)| now == before)
    {
        assert!(Instant::now() < patience, "{:?}", sleeps());
        std::thread::sleep(Duration::from_millis(1));
    }
    // A port that comes later is polled by io workers, and eu workers reach it by them.
    let taken = running.add_port(&mut drivers, (eus.start, "x", "null:,rx=off"), &OPTIONS);
    let taken = taken.err().map(|error| error.to_string());
    assert_eq!(
        taken.unwrap(),
        "port x: a ring between workers has the number 2"
    );
    running
        .add_port(&mut drivers, (9, "late", "null:,rx=off"), &OPTIONS)
        .unwrap();
    for worker in &running.workers {
        let has = |paths: &[(u16, u16)]| paths.iter().any(|path| path.0 == 9);
        let is_fed = worker
            .share
            .hand_offs
            .iter()
            .any(|&(port, to)| port == 9 && to < 2);
        let is_eu = worker.share.role == Role::Eu;
        assert!(!is_eu || is_fed && !has(&worker.share.polls) && !has(&worker.share.sends));
    }
    // Packets received before the end are sent; their path has three rings.
    (0..4).for_each(|number| feed(&mut peers, number));
    let received = |running: &Running<_>| running.stats().rx_packets;
    while received(&running) < 128 * 204 {
        std::thread::yield_now();
    }
    let first = Sample::take(&running);
    let (last, _, errors) = running.stop();
    assert!(errors.is_empty(), "{errors:?}");
    let dropped: Vec<_> = last
        .since(&first)
        .lcores
        .into_iter()
        .map(|lcore| lcore.drops)
        .collect();
    assert!(dropped.iter().all(|drops| drops.is_empty()), "{dropped:?}");
    let mut left = 128 * 4;
    while left > 0 {
        let came = take(&mut peers);
        assert!(came > 0, "{left} are missing");
        left -= came;
    }
}
