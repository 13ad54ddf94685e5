//! Lcores with stacks, and a peer with one of its own, on a wire in memory.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::run::{Egress, NEVER, Stage};
use linerate_stack::host::{HostConfig, InterfaceConfig};
use linerate_stack::socket::{Io, Listen, Stack, StackConfig};
use linerate_stack::tcp::secret::Secret;
use linerate_stack::{neighbour, reassembly};
use linerate_tables::exact::Seed;
use linerate_testkit::Random;
use linerate_wire::{MacAddr, parse};

use super::user::{Checker, Echo, PEER};
use crate::app::App;
use crate::core::{HostCounts, StackHost, mesh};
use crate::line::{Line, into};
use crate::steering::map::MapConfig;
use crate::steering::plan::{Arrival, Member, Plan};
use crate::steering::stage::Nobody;
use crate::steering::{Counts, Setup, Steered};

pub(super) const S: u64 = 1_000_000_000;
pub(super) const US: u64 = 1_000;

/// An lcore: one with connections, or a distributor.
enum Core {
    Owner(Box<Steered<StackHost<Echo>>>),
    Distributor(Box<Steered<Nobody>>),
}

struct Lcore {
    core: Core,
    out: Egress,
    /// What it gets from lcores, by number, and from the NIC.
    rings: Vec<Line>,
    queue: Line,
    due_ns: u64,
}

impl Lcore {
    /// Source 0 is the NIC.
    fn line(&self, source: usize) -> &Line {
        match source {
            0 => &self.queue,
            ring => &self.rings[ring - 1],
        }
    }
}

pub(super) struct Net {
    lcores: Vec<Lcore>,
    plan: Arc<Plan>,
    clock: Clock,
    pub(super) now_ns: u64,
    pool: Pool,
    peer: Stack,
    peer_out: Egress,
    to_peer: Line,
    from_peer: Line,
    pub(super) checker: Checker,
    pub(super) random: Random,
}

fn config(connections: u32) -> StackConfig {
    StackConfig {
        connections,
        sent_frames: 4096,
        send_chunks: 2048,
        received_pkts: 2048,
        received_bytes: 16 << 20,
        secret: Secret::new(9),
        host: HostConfig {
            // All that is sent to the peer waits for its address together.
            neighbours: neighbour::Config {
                queue_pkts: 1024,
                queue_bytes: 4 << 20,
                ..neighbour::Config::default()
            },
            ..HostConfig::default()
        },
        ..StackConfig::default()
    }
}

fn interface(number: u8) -> InterfaceConfig {
    let v4: IpAddr = [192, 0, 2, number].into();
    let v6: IpAddr = [0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()].into();
    InterfaceConfig {
        port: 0,
        mac: MacAddr::local(number),
        addresses: vec![(v4, 24), (v6, 64)],
        ..InterfaceConfig::default()
    }
}

pub(super) fn address(number: u8, v6: bool, port: u16) -> SocketAddr {
    let ip: IpAddr = match v6 {
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()].into(),
        false => [192, 0, 2, number].into(),
    };
    (ip, port).into()
}

impl Net {
    /// Lcores of a plan, with maps or without; so many bytes go on each connection.
    pub(super) fn new(plan: Plan, members: usize, maps: bool, total: u64, seed: u64) -> Self {
        let pool = Pool::new(&PoolConfig::new("steer", 16_384)).unwrap();
        let clock = Clock::monotonic("test");
        let plan = Arc::new(plan);
        let now_ns = S;
        let egress = || Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let to_peer = Line::default();
        let mut lcores: Vec<Lcore> = Vec::new();
        let rings: Vec<Vec<Line>> = (0..members)
            .map(|_| (0..members).map(|_| Line::default()).collect())
            .collect();
        let mut posts = mesh(plan.owners(), 64).into_iter();
        for me in 0..members {
            let mut out = egress();
            out.set_outlet(0, into(&to_peer, usize::MAX));
            for (to, line) in rings.iter().map(|rings| &rings[me]).enumerate() {
                out.set_outlet(1 + to as u16, into(line, 4096));
            }
            let setup = Setup {
                plan: plan.clone(),
                me: me as Member,
                outlets: (1..).take(members).collect(),
                map: maps.then(|| MapConfig {
                    connections4: 1024,
                    connections6: 1024,
                    seed: Seed(3),
                    ..MapConfig::default()
                }),
                reassembly: reassembly::Config::default(),
                away: 256,
                isa: Isa::detect(),
                clock,
            };
            let core = match posts.next() {
                Some(post) => {
                    let mut stack = Stack::new(&config(256), now_ns, &mut out).unwrap();
                    let add = stack.host().add_interface(interface(2), now_ns, &mut out);
                    add.unwrap();
                    let mut user = Echo::new(seed + me as u64);
                    user.start(&mut stack.io(now_ns, &mut out)).unwrap();
                    let host = StackHost::new(&setup, 1, stack, user, post, &mut out);
                    Core::Owner(Box::new(Steered::new(&setup, 1, host, &mut out).unwrap()))
                }
                None => {
                    let stage = Steered::new(&setup, 1, Nobody, &mut out).unwrap();
                    Core::Distributor(Box::new(stage))
                }
            };
            lcores.push(Lcore {
                core,
                out,
                rings: rings[me].clone(),
                queue: Line::default(),
                due_ns: 0,
            });
        }
        let mut peer_out = egress();
        let from_peer = Line::default();
        peer_out.set_outlet(0, into(&from_peer, usize::MAX));
        let mut peer = Stack::new(&config(1024), now_ns, &mut peer_out).unwrap();
        let add = peer
            .host()
            .add_interface(interface(1), now_ns, &mut peer_out);
        add.unwrap();
        let mut checker = Checker::new(total);
        checker.listener = peer.io(now_ns, &mut peer_out).listen(Listen::on(PEER));
        Self {
            lcores,
            plan,
            clock,
            now_ns,
            pool,
            peer,
            peer_out,
            to_peer,
            from_peer,
            checker,
            random: Random::new(seed),
        }
    }

    /// Where the NIC brings a frame.
    fn home(&mut self, packet: &Packet) -> usize {
        let frame = packet.data();
        let headers = parse(frame).unwrap();
        let port = self.plan.port(0).unwrap();
        let key = headers.flow_key(frame).filter(|_| headers.ports.is_some());
        let home = match (port.arrival(), key) {
            (Arrival::One(home), _) => *home,
            (Arrival::Any(homes), _) => homes[self.random.below(homes.len())],
            (Arrival::ByHash, Some(key)) => port.owner(&key).unwrap(),
            (Arrival::ByHash, None) => 0,
        };
        home.into()
    }

    /// Frames of the peer come to the queues of their homes.
    fn spread(&mut self) {
        let frames: Vec<Packet> = self.from_peer.lock().unwrap().drain(..).collect();
        for packet in frames {
            let home = self.home(&packet);
            self.lcores[home].queue.lock().unwrap().push_back(packet);
        }
    }

    /// One burst of one of an lcore's sources, 0 the NIC; whether there was one.
    fn run(&mut self, at: usize, source: usize) -> bool {
        let lcore = &mut self.lcores[at];
        let line = lcore.line(source);
        let mut burst = Burst::new();
        {
            let mut line = line.lock().unwrap();
            let count = line.len().min(1 + self.random.below(32));
            line.drain(..count)
                .for_each(|packet| burst.push(packet).unwrap());
        }
        if burst.is_empty() {
            return false;
        }
        (burst.now, burst.port) = (self.clock.ticks(self.now_ns), source as u16);
        match &mut lcore.core {
            Core::Owner(stage) => stage.run(&mut burst, &mut (), &mut lcore.out),
            Core::Distributor(stage) => stage.run(&mut burst, &mut (), &mut lcore.out),
        }
        assert!(burst.is_empty());
        lcore.out.flush();
        true
    }

    /// The turn of one lcore.
    fn turn(&mut self, at: usize) {
        let lcore = &mut self.lcores[at];
        let now = self.clock.ticks(self.now_ns);
        let due = match &mut lcore.core {
            Core::Owner(stage) => stage.turn(now, &mut (), &mut lcore.out),
            Core::Distributor(stage) => stage.turn(now, &mut (), &mut lcore.out),
        };
        lcore.due_ns = match due {
            NEVER => u64::MAX,
            due => self.clock.ns(due),
        };
        lcore.out.flush();
    }

    /// The peer takes what was sent, and works.
    fn peer(&mut self) -> bool {
        let mut frames: VecDeque<Packet> = self.to_peer.lock().unwrap().drain(..).collect();
        let any = !frames.is_empty();
        while !frames.is_empty() {
            let mut burst = Burst::new();
            for mut packet in frames.drain(..frames.len().min(32)) {
                packet.set_port(0);
                burst.push(packet).unwrap();
            }
            self.peer
                .receive(&mut burst, self.now_ns, &mut self.peer_out);
        }
        let mut io = self.peer.io(self.now_ns, &mut self.peer_out);
        self.checker.work(&mut io);
        self.peer.turn(self.now_ns, &mut self.peer_out);
        self.peer_out.flush();
        any
    }

    /// Something happens somewhere.
    pub(super) fn step(&mut self) {
        self.now_ns += self.random.below(20) as u64 * US;
        let at = self.random.below(self.lcores.len());
        match self.random.below(4) {
            0 => {
                self.peer();
                self.spread();
            }
            1 => self.turn(at),
            _ => {
                let lcore = &self.lcores[at];
                let has = |source: &usize| !lcore.line(*source).lock().unwrap().is_empty();
                let sources: Vec<usize> = (0..=self.lcores.len()).filter(has).collect();
                if !sources.is_empty() {
                    let source = sources[self.random.below(sources.len())];
                    self.run(at, source);
                }
            }
        }
    }

    /// Everything until nothing is under way.
    pub(super) fn settle(&mut self) {
        loop {
            let mut any = self.peer();
            self.spread();
            for at in 0..self.lcores.len() {
                for source in 0..=self.lcores.len() {
                    any |= self.run(at, source);
                }
                self.turn(at);
            }
            any |= !self.to_peer.lock().unwrap().is_empty();
            if !any {
                return;
            }
            self.now_ns += US;
        }
    }

    /// Time passes, with all timers.
    pub(super) fn pass(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            self.settle();
            let mut next = self.peer.turn(self.now_ns, &mut self.peer_out);
            for lcore in &self.lcores {
                next = next.min(lcore.due_ns);
            }
            self.now_ns = next.max(self.now_ns + 100 * US).min(until);
        }
        self.settle();
    }

    /// The host of an lcore that owns connections.
    pub(super) fn host(&mut self, at: usize) -> &mut StackHost<Echo> {
        match &mut self.lcores[at].core {
            Core::Owner(stage) => stage.host(),
            Core::Distributor(_) => panic!("a distributor"),
        }
    }

    pub(super) fn owners(&self) -> usize {
        self.plan.owners().into()
    }

    /// The peer opens a connection.
    pub(super) fn open(&mut self, v6: bool, port: u16) {
        let mut io: Io<'_> = self.peer.io(self.now_ns, &mut self.peer_out);
        let id = io.connect(None, address(2, v6, port)).unwrap();
        self.checker.begin(id);
    }

    pub(super) fn close_all(&mut self) {
        let mut io = self.peer.io(self.now_ns, &mut self.peer_out);
        self.checker.close(&mut io);
    }

    pub(super) fn counts(&mut self) -> (Counts, HostCounts) {
        let (mut sum, mut hosts) = (Counts::default(), HostCounts::default());
        for lcore in &mut self.lcores {
            let counts = match &mut lcore.core {
                Core::Owner(stage) => {
                    let counts = stage.host().counts();
                    hosts.left += counts.left;
                    hosts.came += counts.came;
                    hosts.stayed += counts.stayed;
                    hosts.returned += counts.returned;
                    hosts.lost += counts.lost;
                    hosts.refused += counts.refused;
                    hosts.unmapped += counts.unmapped;
                    stage.steering().counts()
                }
                Core::Distributor(stage) => stage.steering().counts(),
            };
            sum.handed += counts.handed;
            sum.misdirected += counts.misdirected;
            sum.followed += counts.followed;
            sum.no_slot += counts.no_slot;
            sum.unknown += counts.unknown;
        }
        (sum, hosts)
    }

    /// Segments that came to an lcore without their connection, and resets that were sent.
    pub(super) fn misdelivered(&mut self) -> u64 {
        let owners = 0..self.owners();
        let of = |at| {
            let stack = &self.host(at).stack;
            stack.stats().no_connection + stack.tcp_stats().resets_out
        };
        owners.map(of).sum()
    }

    /// Entries of all maps.
    pub(super) fn entries(&mut self) -> usize {
        let entries = |lcore: &mut Lcore| {
            let map = match &mut lcore.core {
                Core::Owner(stage) => stage.steering().map().map(|map| map.len()),
                Core::Distributor(stage) => stage.steering().map().map(|map| map.len()),
            };
            map.unwrap_or(0)
        };
        self.lcores.iter_mut().map(entries).sum()
    }

    pub(super) fn connections(&mut self) -> u32 {
        (0..self.owners())
            .map(|at| self.host(at).stack.connections())
            .sum()
    }

    /// Nothing was dropped, and all slots are free.
    pub(super) fn is_exact(&mut self, of: &str) {
        for lcore in &self.lcores {
            let drops = lcore.out.drop_counts();
            for (name, count) in drops.lock().unwrap().iter() {
                assert_eq!(count.read(), 0, "{of}: {name}");
            }
        }
        let held: u64 = self
            .lcores
            .iter()
            .map(|lcore| match &lcore.core {
                Core::Owner(stage) => stage.held(),
                Core::Distributor(stage) => stage.held(),
            })
            .sum();
        assert_eq!(held + self.peer.held(), 0, "{of}");
        let caches = self.lcores.iter().map(|lcore| &lcore.out.cache);
        let held = caches
            .chain([&self.peer_out.cache])
            .map(|cache| cache.held(&self.pool));
        let free = held.sum::<usize>() as u32 + self.pool.stats().free_shared;
        assert_eq!(free, self.pool.slots(), "{of}");
    }
}
