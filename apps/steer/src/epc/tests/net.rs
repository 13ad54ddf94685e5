//! Machines that run files, with as many lcores as they have plans for, joined by networks in
//! memory, in virtual time.

use std::net::Ipv4Addr;
use std::sync::Arc;

use linerate_appliance::config;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::run::{Egress, NEVER, Stage};
use linerate_dispatch::Owners;
use linerate_stack::host::InterfaceConfig;
use linerate_testkit::Random;
use linerate_wire::{MacAddr, checksum, gtpu, protocol};

use crate::config::File;
use crate::core::mesh;
use crate::lcore::{Lcore, Maker, Several};
use crate::line::{Line, into};
use crate::steering::Cores;
use crate::steering::map::MapConfig;
use crate::steering::plan::{self, Arrival, Member, Plan, PortPlan};

pub(super) const SECOND: u64 = 1_000_000_000;
/// Packets that a ring between lcores holds.
const RING: usize = 4096;

struct Worker {
    stage: Lcore,
    out: Egress,
    /// What it gets, by port and, behind those, by lcore.
    sources: Vec<Line>,
    due_ns: u64,
}

struct Machine {
    name: &'static str,
    workers: Vec<Worker>,
    /// By port: MAC address, network, and what was sent.
    ports: Vec<(MacAddr, u8, Line)>,
}

/// Machines, and what is under way between them.
pub(super) struct Net {
    machines: Vec<Machine>,
    pub(super) now_ns: u64,
    clock: Clock,
    pool: Pool,
    cache: PoolCache,
    random: Random,
    /// Frames of all networks but the first.
    pub(super) beyond: Vec<Vec<u8>>,
    /// Frames of the first network.
    pub(super) access: Vec<Vec<u8>>,
    /// Whether lcores of machines that start have maps, as with `by = "application"`.
    pub(super) has_maps: bool,
}

impl Net {
    /// Nobody yet.
    pub(super) fn new(seed: u64) -> Self {
        println!("seed {seed:#x}");
        let pool = Pool::new(&PoolConfig::new("epc", 65_536)).unwrap();
        let clock = Clock::monotonic("a test");
        Self {
            machines: Vec::new(),
            now_ns: clock.ns(clock.now()),
            clock,
            cache: PoolCache::new(std::slice::from_ref(&pool)),
            pool,
            random: Random::new(seed),
            beyond: Vec::new(),
            access: Vec::new(),
            has_maps: false,
        }
    }

    /// Starts a machine with so many lcores by its file; its ports are on these networks. Packets
    /// come to any of its lcores, as by a hash that nobody knows.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        count: usize,
        networks: &[u8],
        text: &str,
    ) -> usize {
        let number = self.machines.len();
        let mac = |port: usize| MacAddr::local((number * 4 + port + 1) as u8);
        let mut all = String::new();
        for port in 0..networks.len() {
            all += &format!("[[port]]\nname = \"p{port}\"\nspec = \"null:\"\n");
        }
        let parsed = config::parse(&(all + text), File::of);
        let errors: Vec<String> = parsed.errors.iter().map(|e| e.to_string()).collect();
        assert_eq!(errors, [""; 0], "{name}");
        let mut file = parsed.value;
        file.stack.connections = 512;
        (file.stack.sent_frames, file.stack.send_chunks) = (2048, 1024);
        file.stack.received_pkts = 2048;
        let members: Vec<Member> = (0..count as Member).collect();
        let (secret, owners) = (plan::secret(), Owners::dealt(count));
        let port_plan =
            |_| PortPlan::software(&secret, &owners, Arrival::Any(members.clone())).unwrap();
        let ports = networks.len();
        let plan = Plan::new((0..ports).map(port_plan).collect(), count as Member);
        let interface = |interface: &crate::config::Interface| InterfaceConfig {
            port: interface.port,
            mac: mac(interface.port.into()),
            addresses: interface.addresses.clone(),
            ..InterfaceConfig::default()
        };
        let mut maker = Maker {
            file: &file,
            interfaces: file.interfaces.iter().map(interface).collect(),
            clock: self.clock,
            several: (count > 1).then(|| Several {
                plan: Arc::new(plan),
                outlets: (ports as u16..).take(count).collect(),
                map: self.has_maps.then(|| MapConfig {
                    connections4: 1024,
                    connections6: 64,
                    ..MapConfig::default()
                }),
                cores: Cores::new(7, Owners::dealt(count)),
                posts: mesh(count as Member, 64).into_iter().map(Some).collect(),
            }),
        };
        let sent: Vec<Line> = (0..ports).map(|_| Line::default()).collect();
        let sources: Vec<Vec<Line>> = (0..count)
            .map(|_| (0..ports + count).map(|_| Line::default()).collect())
            .collect();
        let pool = &self.pool;
        let mut worker = |me: usize| {
            let mut out = Egress::new(PoolCache::new(std::slice::from_ref(pool)));
            let lines = sent.iter().map(|line| (line, usize::MAX));
            let rings = sources.iter().map(|of| (&of[ports + me], RING));
            for (outlet, (line, room)) in (0..).zip(lines.chain(rings)) {
                out.set_outlet(outlet, into(line, room));
            }
            Worker {
                stage: maker.lcore(me as Member, &mut out).unwrap(),
                out,
                sources: sources[me].clone(),
                due_ns: 0,
            }
        };
        let workers = (0..count).map(&mut worker).collect();
        let ports = networks.iter().zip(sent).enumerate();
        let ports = ports.map(|(port, (&network, line))| (mac(port), network, line));
        self.machines.push(Machine {
            name,
            workers,
            ports: ports.collect(),
        });
        self.now_ns = self.now_ns.max(self.clock.ns(self.clock.now()));
        number
    }

    /// Frames that were sent arrive: one at its MAC address, one for all at all others.
    fn carry(&mut self) -> bool {
        let mut any = false;
        for from in 0..self.machines.len() {
            for port in 0..self.machines[from].ports.len() {
                let (_, network, line) = &self.machines[from].ports[port];
                let network = *network;
                let frames: Vec<Packet> = line.lock().unwrap().drain(..).collect();
                for packet in frames {
                    any = true;
                    let seen = match network {
                        0 => &mut self.access,
                        _ => &mut self.beyond,
                    };
                    seen.push(packet.data().to_vec());
                    self.arrive(packet, network, (from, port));
                }
            }
        }
        any
    }

    fn arrive(&mut self, packet: Packet, network: u8, from: (usize, usize)) {
        let is_group = packet.data()[0] & 1 != 0;
        let to = packet.data()[..6].to_vec();
        for number in 0..self.machines.len() {
            let machine = &self.machines[number];
            for port in 0..machine.ports.len() {
                let (mac, on, _) = &machine.ports[port];
                if *on == network && (number, port) != from && (is_group || mac.0[..] == to[..]) {
                    let copy = self.cache.copy_of(packet.data()).unwrap();
                    let at = self.random.below(machine.workers.len());
                    let queue = &machine.workers[at].sources[port];
                    queue.lock().unwrap().push_back(copy);
                }
            }
        }
        self.cache.free_one(packet);
    }

    /// A frame with an IP packet comes to a port of a machine.
    pub(super) fn inject(&mut self, machine: usize, port: usize, ip: &[u8]) {
        let (mac, network, _) = self.machines[machine].ports[port];
        let frame = [&mac.0[..], &MacAddr::local(99).0, &[8, 0], ip].concat();
        let packet = self.cache.copy_of(&frame).unwrap();
        self.arrive(packet, network, (usize::MAX, 0));
    }

    /// One burst of each source of each lcore, and its turn; whether there was one.
    fn round(&mut self) -> bool {
        let mut any = self.carry();
        let now = self.clock.ticks(self.now_ns);
        for machine in &mut self.machines {
            for worker in &mut machine.workers {
                for (number, source) in worker.sources.iter().enumerate() {
                    let mut burst = Burst::new();
                    {
                        let mut line = source.lock().unwrap();
                        let count = line.len().min(1 + self.random.below(32));
                        let packets = line.drain(..count);
                        packets.for_each(|packet| burst.push(packet).unwrap());
                    }
                    if burst.is_empty() {
                        continue;
                    }
                    if number < machine.ports.len() {
                        burst
                            .iter_mut()
                            .for_each(|packet| packet.set_port(number as u16));
                    }
                    any = true;
                    (burst.now, burst.port) = (now, number as u16);
                    worker.stage.run(&mut burst, &mut (), &mut worker.out);
                    assert!(burst.is_empty());
                    worker.out.flush();
                }
                worker.due_ns = match worker.stage.turn(now, &mut (), &mut worker.out) {
                    NEVER => u64::MAX,
                    due => self.clock.ns(due),
                };
                worker.out.flush();
            }
        }
        any
    }

    /// Time passes.
    pub(super) fn pass(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            while self.round() {
                self.now_ns += 1000;
            }
            let workers = self.machines.iter().flat_map(|machine| &machine.workers);
            let due = workers.map(|worker| worker.due_ns).min();
            let next = due.unwrap_or(u64::MAX).max(self.now_ns + 1_000_000);
            self.now_ns = next.min(until).max(self.now_ns + 1);
        }
    }

    /// Sum over all lcores of all machines of what an application counts.
    pub(super) fn count(&mut self, app: &str, name: &str) -> u64 {
        self.by_lcore(app, name).into_iter().sum()
    }

    /// The same of each lcore that has the application.
    pub(super) fn by_lcore(&mut self, app: &str, name: &str) -> Vec<u64> {
        let machines = self.machines.iter_mut();
        let workers = machines.flat_map(|machine| &mut machine.workers);
        let counts = workers.flat_map(|worker| worker.stage.parts().unwrap().apps.counts_by_app());
        let counts = counts.filter(|(known, _)| known == app);
        let values = counts.filter_map(|(_, counts)| {
            let found = counts.into_iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value)
        });
        let values: Vec<u64> = values.collect();
        assert!(!values.is_empty(), "{app} counts no {name}");
        values
    }

    /// Entries that the maps of all lcores ever had.
    pub(super) fn entered(&mut self) -> u64 {
        let machines = self.machines.iter_mut();
        let workers = machines.flat_map(|machine| &mut machine.workers);
        let maps = workers.filter_map(|worker| {
            let (steering, _) = worker.stage.steering()?;
            steering.map().map(|map| map.counts().entered)
        });
        maps.sum()
    }

    /// All that an application counts, for a message.
    pub(super) fn all_counts(&mut self) -> String {
        let mut text = String::new();
        for machine in &mut self.machines {
            for (number, worker) in machine.workers.iter_mut().enumerate() {
                for (app, counts) in worker.stage.parts().unwrap().apps.counts_by_app() {
                    let counts = counts.into_iter().filter(|(_, value)| *value != 0);
                    let counts: Vec<_> = counts.collect();
                    text += &format!("{} {number} {app}: {counts:?}\n", machine.name);
                }
                let drops = worker.out.drop_counts();
                for (name, count) in drops.lock().unwrap().iter() {
                    if count.read() > 0 {
                        text += &format!(
                            "{} {number} dropped {name} {}\n",
                            machine.name,
                            count.read()
                        );
                    }
                }
            }
        }
        text
    }

    /// Every slot is free, or held by who says so; nothing was dropped.
    pub(super) fn assert_exact(&mut self) {
        while self.round() {}
        let all = self.all_counts();
        assert!(!all.contains(" dropped "), "{all}");
        let workers = || self.machines.iter().flat_map(|machine| &machine.workers);
        let held: u64 = workers().map(|worker| worker.stage.held()).sum();
        let lines = workers().flat_map(|worker| &worker.sources);
        let under_way: usize = lines.map(|line| line.lock().unwrap().len()).sum();
        let caches = workers().map(|worker| &worker.out.cache);
        let caches = caches.chain([&self.cache]);
        let free: usize = caches.map(|cache| cache.held(&self.pool)).sum();
        let known = free as u64 + held + under_way as u64;
        assert_eq!(
            known + u64::from(self.pool.stats().free_shared),
            u64::from(self.pool.slots()),
            "{all}"
        );
    }
}

/// An ICMP echo request from one address to another.
pub(super) fn echo_request(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let header = linerate_wire::ipv4::header(1, 64, 1, from, to, 8);
    [&header[..], &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]].concat()
}

/// A TCP segment without data from one address to another.
pub(super) fn segment(from: Ipv4Addr, to: Ipv4Addr, flags: u8) -> Vec<u8> {
    let mut tcp = [0; 20];
    (tcp[1], tcp[3], tcp[12], tcp[13]) = (99, 80, 0x50, flags);
    let header = linerate_wire::ipv4::header(1, 64, protocol::TCP, from, to, 20);
    let ends = [from, to].map(|end| checksum::sum(&end.octets()));
    let pseudo = checksum::add(
        ends[0],
        checksum::add(ends[1], 20 + u16::from(protocol::TCP)),
    );
    let sum = !checksum::add(pseudo, checksum::sum(&tcp));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    [&header[..], &tcp].concat()
}

/// A G-PDU with a sequence number, which no gateway takes in bursts.
pub(super) fn numbered(from: Ipv4Addr, to: Ipv4Addr, teid: [u8; 4], user: &[u8]) -> Vec<u8> {
    let len = user.len() as u16;
    // TS 29.281 5.1: version 1, GTP, S; the length counts the four bytes of optional fields.
    let mut gtpu = vec![0x32, gtpu::message::G_PDU];
    gtpu.extend((len + 4).to_be_bytes());
    gtpu.extend(teid);
    gtpu.extend([0, 7, 0, 0]);
    let port = gtpu::PORT.to_be_bytes();
    let udp = [port, port, (8 + 12 + len).to_be_bytes(), [0, 0]].concat();
    let header = linerate_wire::ipv4::header(1, 64, protocol::UDP, from, to, 8 + 12 + len);
    [&header[..], &udp, &gtpu, user].concat()
}
