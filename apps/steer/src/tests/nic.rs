//! Lcores behind a NIC with RSS, which a ring port plays: four of them, started from a file as the
//! program starts them, and a stack on the other end of the wire.

use std::process::Command;
use std::time::{Duration, Instant};

use linerate_core::env::PlanSpec;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{
    Link, Port, PortConfig, PortError, PortInfo, PortStats, Queues, RssSetup, RxQueue,
};
use linerate_core::run::{Egress, TxPath, Worker, WorkerHandle};
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_tables::rss::{PROFILES, Profile};
use linerate_wire::MacAddr;

use super::super::*;
use crate::steering::Counts;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
const LCORES: usize = 4;
/// Connections that the peer opens, and that each lcore does: as many as wait for a neighbour, so
/// that none is tried again.
const OPENED: usize = 32;
const EACH: usize = 4;
const BYTES: usize = 3000;

/// A NIC that hashes by another key than it says.
struct Liar(Box<dyn Port>);

impl Port for Liar {
    fn info(&self) -> PortInfo {
        self.0.info()
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.0.start(config, pools)
    }

    fn link(&self) -> Link {
        self.0.link()
    }

    fn stats(&self) -> PortStats {
        self.0.stats()
    }

    fn rss(&self) -> Option<RssSetup> {
        let mut setup = self.0.rss()?;
        setup.key.iter_mut().for_each(|byte| *byte ^= 0x5a);
        Some(setup)
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.0.stop()
    }
}

/// The other end of the wire: a stack that echoes what it is asked to, and whose connections check
/// the echo of others.
struct Peer {
    stack: Stack,
    out: Egress,
    rx: Vec<Box<dyn RxQueue>>,
    clock: Clock,
    /// Connections that it has opened, and bytes of each that came back.
    opened: Vec<(SocketId, usize)>,
    /// Bytes that came on connections of others, and how many of these have ended.
    bytes: usize,
    ended: usize,
    _port: Box<dyn Port>,
}

impl Peer {
    fn new(mut port: Box<dyn Port>) -> Self {
        let pools = Pools::new(vec![Pool::new(&PoolConfig::new("peer", 8192)).unwrap()]);
        let config = PortConfig {
            rx_queues: LCORES as u16,
            ..PortConfig::default()
        };
        let mut queues = port.start(&config, &pools).unwrap();
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
        let clock = Clock::calibrate();
        let now_ns = clock.ns(clock.now());
        let config = StackConfig {
            connections: 256,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&config, now_ns, &mut out).unwrap();
        let lan = InterfaceConfig {
            mac: MacAddr::local(9),
            addresses: vec![("192.0.2.9".parse().unwrap(), 24)],
            ..InterfaceConfig::default()
        };
        let lan = stack.host().add_interface(lan, now_ns, &mut out).unwrap();
        let (lcores, mac) = ("192.0.2.1".parse().unwrap(), MacAddr::local(1));
        stack.host().add_neighbour(lan, lcores, mac, &mut out);
        let listener = stack.io(now_ns, &mut out).listen(Listen::on(9));
        listener.unwrap();
        Self {
            stack,
            out,
            rx: queues.rx,
            clock,
            opened: Vec::new(),
            bytes: 0,
            ended: 0,
            _port: port,
        }
    }

    fn connect(&mut self) {
        let now_ns = self.clock.ns(self.clock.now());
        let mut io = self.stack.io(now_ns, &mut self.out);
        let to = "192.0.2.1:7".parse().unwrap();
        for _ in 0..OPENED {
            let id = io.connect(None, to).unwrap();
            io.register(id, interest::READ, 0).unwrap();
            // It waits in the stack for the handshake.
            assert_eq!(io.write(id, &[7; BYTES]), Ok(BYTES));
            self.opened.push((id, 0));
        }
    }

    fn turn(&mut self) {
        let now_ns = self.clock.ns(self.clock.now());
        for queue in &mut self.rx {
            let mut burst = Burst::new();
            queue.rx_burst(&mut burst, &mut self.out.cache);
            for packet in burst.as_packets_mut() {
                packet.set_port(0);
            }
            self.stack.receive(&mut burst, now_ns, &mut self.out);
        }
        let mut events = [Event::default(); 64];
        let mut io = self.stack.io(now_ns, &mut self.out);
        let count = io.poll(&mut events);
        for event in &events[..count] {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        io.register(id, interest::READ, 0).unwrap();
                    }
                }
                Source::Connection(id) => {
                    let own = self.opened.iter_mut().find(|(own, _)| *own == id);
                    match own {
                        Some((_, came)) => *came += read(&mut io, id).0,
                        None => {
                            let (count, has_ended) = read(&mut io, id);
                            self.bytes += count;
                            if has_ended {
                                self.ended += 1;
                                io.close(id);
                            }
                        }
                    }
                }
            }
        }
        self.stack.turn(now_ns, &mut self.out);
        self.out.flush();
        std::thread::sleep(Duration::from_micros(50));
    }

    fn is_done(&self) -> bool {
        let all = LCORES * EACH;
        self.opened.iter().all(|(_, came)| *came == BYTES)
            && (self.ended, self.bytes) == (all, all * BYTES)
    }
}

/// Bytes that can be read, and whether there are no more to come.
fn read(io: &mut Io<'_>, id: SocketId) -> (usize, bool) {
    let (mut all, mut buffer) = (0, [0; 4096]);
    loop {
        match io.read(id, &mut buffer) {
            Ok(0) => return (all, true),
            Ok(count) => all += count,
            Err(_) => return (all, false),
        }
    }
}

/// What came of it: by lcore what steering has counted, entries of its map, and connections that
/// its echo has accepted.
fn run_with(profile: &str, mode: &str, lies: bool) -> Vec<(Counts, usize, u64)> {
    // Some drivers draw their keys, so one is said.
    let bytes = Profile::find(profile).unwrap().key_bytes;
    let key = (0..bytes).map(|at| format!("{:02x}", at * 73 % 251));
    let spec = format!(
        "ring:a,queues=4,rss={profile},key={}",
        key.collect::<String>()
    );
    let text = format!(
        "[steer]\n{mode}\n[[port]]\nname = \"lan\"\nspec = \"{spec}\"\n\
         [[interface]]\nport = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n\
         mac = \"02:00:00:00:00:01\"\n[tcp]\nconnections = 256\n\
         [[app]]\nname = \"echo\"\nkind = \"echo\"\nlisten = 7\n\
         [[app]]\nkind = \"source\"\nconnect = \"192.0.2.9:9\"\nconnections = {EACH}\n\
         bytes = {BYTES}\n"
    );
    let file = config_file::parse(&text, File::of);
    let file = file.checked(Path::new("nic.toml")).unwrap();
    let spec = PlanSpec {
        io: Some("0-3".into()),
        cpus: Some("0,0,0,0".into()),
        ..PlanSpec::default()
    };
    // On any CPU that this process may use.
    let topology = Topology::machine().unwrap();
    let plan = Plan::build(&spec, &topology, &[]);
    let plan = plan.or_else(|_| {
        let spec = PlanSpec { cpus: None, ..spec };
        Plan::build(&spec, &topology, &[])
    });
    let plan = plan.unwrap();
    let io: Vec<&Placement> = plan.role(Role::Io).collect();
    let mut drivers = runtime::drivers();
    let specs = [(Some("lan".into()), file.all.ports[0].spec.clone())];
    let opened = OpenPorts::open_among(&mut drivers, &specs, Clock::calibrate());
    let mut opened = opened.unwrap().with_large_slots();
    if lies {
        let slot = &mut opened.ports[0].port;
        let honest = std::mem::replace(slot, drivers.open("null:").unwrap());
        *slot = Box::new(Liar(honest));
    }
    let mut options = Options {
        queues: 1,
        burst: Burst::CAPACITY,
        pool_slots: Some(8192),
        sleep: true,
        spin: false,
    };
    // First, so that what the lcores begin with is not lost.
    let mut peer = Peer::new(drivers.open("ring:a").unwrap());
    let started = start(&file, &mut options, opened, (&io, &[])).unwrap();
    peer.connect();
    let began = Instant::now();
    while !peer.is_done() {
        assert!(
            began.elapsed() < PATIENCE,
            "{profile}: {} of {} others, {:?}",
            peer.bytes,
            peer.ended,
            peer.stack.tcp_stats()
        );
        peer.turn();
    }
    let of = |handle: &WorkerHandle<Lcore>| {
        let ask = |worker: &mut Worker<Lcore>| {
            let (steering, _) = worker.stage.steering().unwrap();
            let entries = steering.map().map_or(0, |map| map.len());
            let counts = steering.counts();
            let apps = worker.stage.parts().unwrap().apps.counts_by_app();
            let accepted = apps[0].1.iter().find(|(name, _)| *name == "accepted");
            (counts, entries, accepted.unwrap().1)
        };
        handle.call(ask).unwrap()
    };
    let counts = started.running.handles().map(of).collect();
    let (_, _, errors) = started.running.stop();
    assert!(errors.is_empty(), "{errors:?}");
    counts
}

/// By every family of NICs: connections of the peer's are where its hash says, and those that
/// begin here have local ports whose answers come to the lcore that has them. So no packet takes a
/// hop, and no map has an entry.
#[test]
fn both_directions_are_on_one_lcore_whatever_nic() {
    const MODES: [&str; 2] = [
        "mode = \"application\"\nover = \"hardware\"",
        "mode = \"hardware\"",
    ];
    for (number, profile) in PROFILES.iter().enumerate() {
        // What differs is in neither mode's hands: one family will do for the other one.
        for mode in &MODES[..if number == 0 { 2 } else { 1 }] {
            let all = run_with(profile.name, mode, false);
            let accepted: u64 = all.iter().map(|(.., accepted)| accepted).sum();
            assert_eq!(accepted, OPENED as u64, "{}", profile.name);
            for (counts, entries, accepted) in all {
                assert_eq!(counts, Counts::default(), "{} {mode}", profile.name);
                assert_eq!(entries, 0, "{} {mode}", profile.name);
                // Of 32, one lcore gets none once in 2500 runs; the hash has no chance in it.
                assert!(accepted < OPENED as u64, "{} {mode}", profile.name);
            }
        }
    }
}

/// A NIC that hashes otherwise than it says costs hops and no connection; it is counted.
#[test]
fn what_comes_elsewhere_is_counted_and_handed_over() {
    let all = run_with("ixgbe", "mode = \"hardware\"", true);
    let sum = |of: fn(&Counts) -> u64| all.iter().map(|(counts, ..)| of(counts)).sum::<u64>();
    let misdirected = sum(|counts| counts.misdirected);
    assert!(misdirected > OPENED as u64, "{misdirected}");
    assert_eq!(sum(|counts| counts.handed), misdirected);
    assert_eq!(sum(|counts| counts.no_slot + counts.unknown), 0);
}

/// It is said, too, once by each lcore: on standard error, of which a process has one.
#[test]
fn what_comes_elsewhere_is_said() {
    let this = std::env::current_exe().unwrap();
    let test = "tests::nic::what_comes_elsewhere_is_counted_and_handed_over";
    let output = Command::new(this)
        .args([test, "--exact", "--nocapture"])
        .output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("warning"))
        .collect();
    assert!((1..=LCORES).contains(&lines.len()), "{said}");
    for line in lines {
        assert!(line.contains("where the model of its RSS says"), "{line}");
    }
}
