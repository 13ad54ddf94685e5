//! Lcores in a mesh, with one port whose NIC the test plays.

use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_core::run::{Egress, Inlet, Stage, TxPath, Worker, WorkerHandle};
use linerate_stack::reassembly;
use linerate_tables::exact::Seed;
use linerate_wire::{FlowKey, parse};

use super::hosts::TestHost;
use crate::steering::map::MapConfig;
use crate::steering::plan::{Arrival, Member, Plan};
use crate::steering::{Counts, Setup, Steered, Steering};

/// The way to the network is port 0; lcore k has number 1 + k.
pub(super) const PORTS: u16 = 1;

pub(super) struct Net {
    pub(super) workers: Vec<Worker<Steered<TestHost>>>,
    pub(super) handles: Vec<WorkerHandle<Steered<TestHost>>>,
    pub(super) plan: Arc<Plan>,
    pub(super) clock: Clock,
    pool: Pool,
    cache: PoolCache,
    /// By lcore, the queue that the NIC fills, and what it sends.
    rx: Vec<spsc::Producer<Packet>>,
    tx: Vec<spsc::Consumer<Packet>>,
}

impl Net {
    /// Lcores of a plan, whose rings have so many places, with maps of so many connections.
    pub(super) fn new(plan: Plan, members: usize, ring: usize, map: Option<usize>) -> Self {
        let pool = Pool::new(&PoolConfig {
            pages: PagePolicy::Only(PageKind::Base4K),
            ..PoolConfig::new("steer", 8192)
        })
        .unwrap();
        let (plan, clock) = (Arc::new(plan), Clock::calibrate());
        let (mut workers, mut handles) = (Vec::new(), Vec::new());
        for me in 0..members {
            let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
            let setup = Setup {
                plan: plan.clone(),
                me: me as Member,
                outlets: (PORTS..).take(members).collect(),
                map: map.map(|connections| MapConfig {
                    connections4: connections,
                    connections6: connections,
                    seed: Seed(3),
                    ..MapConfig::default()
                }),
                reassembly: reassembly::Config::default(),
                away: 256,
                isa: Isa::detect(),
                clock,
            };
            let stage = Steered::new(&setup, PORTS, TestHost::default(), &mut egress).unwrap();
            let (worker, handle) = Worker::new(&format!("w{me}"), stage, egress, clock).unwrap();
            workers.push(worker);
            handles.push(handle);
        }
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (me, worker) in workers.iter_mut().enumerate() {
            let bell = handles[me].doorbell().clone();
            let (putter, taker) = spsc::ring(4096);
            worker.add_inlet(Inlet::ring(0, 0, taker));
            rx.push(putter);
            let (putter, taker) = spsc::ring(4096);
            worker.set_outlet(0, Some(TxPath::Ring(putter, bell)));
            tx.push(taker);
        }
        for from in 0..members {
            for to in (0..members).filter(|&to| to != from) {
                let (putter, taker) = spsc::ring(ring);
                let bell = handles[to].doorbell().clone();
                let number = PORTS + to as u16;
                workers[from].set_outlet(number, Some(TxPath::Ring(putter, bell)));
                workers[to].add_inlet(Inlet::ring(number, from as u16, taker));
            }
        }
        let cache = PoolCache::new(std::slice::from_ref(&pool));
        Self {
            workers,
            handles,
            plan,
            clock,
            pool,
            cache,
            rx,
            tx,
        }
    }

    /// Where the NIC brings a frame: by its hash, to the only lcore that polls, or anywhere.
    pub(super) fn home(&self, frame: &[u8], dice: usize) -> Member {
        let headers = parse(frame).unwrap();
        let port = self.plan.port(0).unwrap();
        match (port.arrival(), headers.flow_key(frame)) {
            (Arrival::One(home), _) => *home,
            (Arrival::Any(homes), _) => homes[dice % homes.len()],
            (Arrival::ByHash, Some(key)) if headers.is_fragment || headers.ports.is_none() => {
                port.home_of_fragments(&key).unwrap()
            }
            (Arrival::ByHash, Some(key)) => port.owner(&key).unwrap(),
            (Arrival::ByHash, None) => 0,
        }
    }

    /// A frame comes from the network to an lcore.
    pub(super) fn arrive(&mut self, home: Member, frame: &[u8]) {
        let mut burst = Burst::new();
        burst.push(self.cache.copy_of(frame).unwrap()).unwrap();
        assert_eq!(self.rx[usize::from(home)].push_burst(&mut burst), 1);
    }

    /// An lcore's host sends a frame.
    pub(super) fn send(&mut self, from: Member, frame: &[u8]) {
        let worker = &mut self.workers[usize::from(from)];
        let now_ns = self.clock.ns(self.clock.now());
        let (steering, _) = worker.stage.both();
        let mut burst = Burst::new();
        burst
            .push(worker.egress.cache.copy_of(frame).unwrap())
            .unwrap();
        worker.egress.made(1);
        steering.send(0, &mut burst, now_ns, &mut worker.egress);
        worker.egress.flush();
    }

    /// Does something with an lcore's steering and host.
    pub(super) fn on<R>(
        &mut self,
        member: Member,
        does: impl FnOnce(&mut Steering, &mut TestHost, &mut Egress, u64) -> R,
    ) -> R {
        let now_ns = self.clock.ns(self.clock.now());
        let worker = &mut self.workers[usize::from(member)];
        let (steering, host) = worker.stage.both();
        let done = does(steering, host, &mut worker.egress, now_ns);
        worker.egress.flush();
        done
    }

    /// One round of one lcore; how many packets it took.
    pub(super) fn round(&mut self, member: Member) -> usize {
        self.workers[usize::from(member)].round()
    }

    /// Rounds of all lcores until nothing is under way.
    pub(super) fn settle(&mut self) {
        loop {
            let mut came = 0;
            for worker in &mut self.workers {
                came += worker.round();
            }
            if came == 0 {
                return;
            }
        }
    }

    /// The turn of all lcores, so many seconds from now; packets that follow from it arrive.
    pub(super) fn later(&mut self, seconds: u64) {
        let now_ns = self.clock.ns(self.clock.now()) + seconds * 1_000_000_000;
        let now = self.clock.ticks(now_ns);
        // Timers move in steps.
        for _ in 0..16 {
            for worker in &mut self.workers {
                worker.stage.turn(now, &mut (), &mut worker.egress);
                worker.egress.flush();
            }
            self.settle();
        }
    }

    /// What has left for the network, in order, and by which lcore.
    pub(super) fn sent(&mut self) -> Vec<(Member, Vec<u8>)> {
        let mut all = Vec::new();
        for (member, ring) in self.tx.iter_mut().enumerate() {
            loop {
                let mut burst = Burst::new();
                if ring.pop_burst(&mut burst, Burst::CAPACITY) == 0 {
                    break;
                }
                let frames = burst.iter().map(|packet| packet.data().to_vec());
                all.extend(frames.map(|frame| (member as Member, frame)));
                self.cache.free(&mut burst);
            }
        }
        all
    }

    /// Who has a connection.
    pub(super) fn who_has(&mut self, key: &FlowKey) -> Vec<Member> {
        let has = |worker: &mut Worker<Steered<TestHost>>| {
            worker.stage.host().connections.contains_key(key)
        };
        let workers = (0..).zip(&mut self.workers);
        workers
            .filter_map(|(member, worker)| has(worker).then_some(member))
            .collect()
    }

    pub(super) fn counts(&mut self) -> Counts {
        let mut sum = Counts::default();
        for worker in &mut self.workers {
            let counts = worker.stage.steering().counts();
            sum.handed += counts.handed;
            sum.misdirected += counts.misdirected;
            sum.followed += counts.followed;
            sum.no_slot += counts.no_slot;
            sum.unknown += counts.unknown;
            sum.whole += counts.whole;
        }
        sum
    }

    /// Entries of all maps.
    pub(super) fn entries(&mut self) -> usize {
        let maps = self
            .workers
            .iter_mut()
            .map(|worker| worker.stage.steering().map());
        maps.map(|map| map.map_or(0, |map| map.len())).sum()
    }

    pub(super) fn drops(&self) -> Vec<(String, u64)> {
        self.handles
            .iter()
            .flat_map(|handle| handle.stats().drops())
            .collect()
    }

    /// All slots are free, and the books of all lcores are even.
    pub(super) fn is_exact(&mut self) {
        self.sent();
        for worker in &mut self.workers {
            assert_eq!(worker.stage.held(), 0);
            let accounts = worker.accounts(&|port| format!("port {port}"));
            let lost: i64 = accounts.iter().map(|account| account.lost).sum();
            assert_eq!(lost, 0, "{accounts:?}");
        }
        let caches = self.workers.iter().map(|worker| &worker.egress.cache);
        let held = caches
            .chain([&self.cache])
            .map(|cache| cache.held(&self.pool));
        let free = held.sum::<usize>() as u32 + self.pool.stats().free_shared;
        assert_eq!(free, self.pool.slots());
    }
}
