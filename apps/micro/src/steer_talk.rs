//! The table of the packet-steering talk: what 2, 3 and 4 cores carry with packets distributed by
//! software and by hardware, computed from what each role costs on one core.
//!
//! Roles are the stages of `linerate steer` as shipped, which work in turns in one thread and are
//! timed each for itself: owners of connections, which answer questions of 64 bytes, and in
//! software the distributor (`distributor = "rx+tx"`), which brings them questions and sends their
//! answers. In hardware owners have queues of their own of a ring port that plays a NIC. Cores of a
//! table share nothing, so with `n` of them
//!
//! ```text
//! software: the least of 1 / distributor, (n - 1) / owner, the link
//! hardware: the least of n / owner, the link
//! ```
//!
//! answers are carried; the link is the talk's of 10 Gb/s. What a table cannot have of one core:
//! cores that share a cache or memory's bandwidth, and lines that go from core to core.

use std::net::SocketAddr;
use std::sync::Arc;

use linerate_appliance::error::Error;
use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, Queues, RxQueue};
use linerate_core::ring::spsc;
use linerate_core::run::{Egress, Inlet, Stage, TxPath, Worker, WorkerHandle};
use linerate_dispatch::Owners;
use linerate_drivers::Drivers;
use linerate_stack::reassembly;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_stack::tcp::secret::Secret;
use linerate_steer::app::{self, App};
use linerate_steer::core::{StackHost, User, mesh};
use linerate_steer::steering::plan::{Arrival, Member, Plan, PortPlan, secret};
use linerate_steer::steering::stage::Nobody;
use linerate_steer::steering::{Setup, Steered};
use linerate_tables::rss::{FrameHash, Model};

use super::tcp::{self, address, lost};
use super::{Row, Run, Sample};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "steer.talk.64",
        about: "answers of 64 bytes on three cores, one of which distributes: computed",
        run: |row, run| talk(row, run, 64, true),
    },
    Row {
        name: "steer.talk.64.hardware",
        about: "answers of 64 bytes on three cores with a queue each: computed",
        run: |row, run| talk(row, run, 64, false),
    },
    Row {
        name: "steer.talk.1448",
        about: "answers of 1448 bytes on three cores, one of which distributes: computed",
        run: |row, run| talk(row, run, 1448, true),
    },
    Row {
        name: "steer.talk.1448.hardware",
        about: "answers of 1448 bytes on three cores with a queue each: computed",
        run: |row, run| talk(row, run, 1448, false),
    },
];

/// Owners that are measured.
const OWNERS: Member = 2;
const CONNECTIONS: usize = 1024;
/// Questions under way.
const UNDER_WAY: usize = 128;
const QUESTION: usize = 64;
/// Cores of the figure, the fewest with which software is to be as fast, and those of the table.
const CORES: f64 = 3.0;
const TABLE: [u32; 3] = [2, 3, 4];
/// Bits a second of the talk's link.
const LINK: f64 = 10e9;
/// What a frame takes on it beside its payload: headers with time stamps, check sequence,
/// preamble and gap.
const FRAMING: f64 = 66.0 + 24.0;
const PORT: u16 = 7;
/// Packets that a ring holds.
const RING: usize = 4096;
/// Turns in which connections have to be open.
const PATIENCE: usize = 10_000;

/// Answers each question with so many bytes.
struct Answers {
    answer: Box<[u8]>,
    open: usize,
}

impl User for Answers {}

impl App for Answers {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), app::Error> {
        app::listen(io, Listen::on(PORT)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.open += 1;
                        let _ = io.register(id, interest::READ | interest::EDGE, 0);
                    }
                }
                Source::Connection(id) => {
                    let mut question = [0; QUESTION];
                    if io.read(id, &mut question) == Ok(QUESTION) {
                        // There is room for the one that is under way.
                        let _ = io.write(id, &self.answer);
                    }
                }
            }
        }
    }
}

type Owner = Worker<Steered<StackHost<Answers>>>;
type OwnerHandle = WorkerHandle<Steered<StackHost<Answers>>>;
type DistributorHandle = WorkerHandle<Steered<Nobody>>;
/// A worker that distributes and owns nothing.
type Distributing = Box<Worker<Steered<Nobody>>>;

/// All roles, and who asks.
struct Bench {
    clock: Clock,
    /// Their rings end where it does not run, in hardware.
    distributor: Option<Box<Worker<Steered<Nobody>>>>,
    owners: Vec<Box<Owner>>,
    peer: Stack,
    out: Egress,
    rx: Box<dyn RxQueue>,
    events: Vec<Event>,
    sockets: Vec<SocketId>,
    next: usize,
    answer: usize,
    answers: u64,
    /// Ticks in which either role has worked.
    distributor_ticks: u64,
    owner_ticks: u64,
    // They go with their queues.
    _ports: [Box<dyn Port>; 2],
}

fn stack(number: u8, secret: Secret, now_ns: u64, out: &mut Egress) -> Result<Stack, Error> {
    let config = StackConfig {
        connections: 2 * CONNECTIONS as u32,
        secret,
        ..StackConfig::default()
    };
    tcp::stack(number, &config, now_ns, out)
}

/// A ring from one worker to another.
fn ring(to: &WorkerHandle<impl Stage>) -> (TxPath, spsc::Consumer<linerate_core::packet::Packet>) {
    let (putter, taker) = spsc::ring(RING);
    (TxPath::Ring(putter, to.doorbell().clone()), taker)
}

/// What all roles are made with. Workers are large, so each is made in a frame of its own.
struct Made<'a> {
    plan: Arc<Plan>,
    pools: &'a Pools,
    clock: Clock,
    /// All stacks of a machine have the same.
    secret: Secret,
}

impl Made<'_> {
    fn setup(&self, me: Member) -> Setup {
        Setup {
            plan: self.plan.clone(),
            me,
            outlets: (1..=u16::from(OWNERS) + 1).collect(),
            map: None,
            reassembly: reassembly::Config::default(),
            away: 64,
            isa: Isa::detect(),
            clock: self.clock,
        }
    }

    fn egress(&self) -> Egress {
        Egress::new(PoolCache::new(self.pools.as_slice()))
    }

    fn now_ns(&self) -> u64 {
        self.clock.ns(self.clock.now())
    }

    #[inline(never)]
    fn owner(&self, me: Member, answer: usize) -> Result<(Box<Owner>, OwnerHandle), Error> {
        let (setup, mut out) = (self.setup(me), self.egress());
        let mut user = Answers {
            answer: vec![b'!'; answer].into(),
            open: 0,
        };
        let now_ns = self.now_ns();
        let mut stack = stack(2, self.secret, now_ns, &mut out)?;
        let started = user.start(&mut stack.io(now_ns, &mut out));
        started.map_err(std::io::Error::other)?;
        // None moves, so none waits in another's post.
        let post = mesh(OWNERS, 1).swap_remove(me.into());
        let host = StackHost::new(&setup, 1, stack, user, post, &mut out);
        let stage = Steered::new(&setup, 1, host, &mut out).map_err(std::io::Error::other)?;
        let (worker, handle) = Worker::new("owner", stage, out, self.clock)?;
        Ok((Box::new(worker), handle))
    }

    #[inline(never)]
    fn distributor(&self) -> Result<(Distributing, DistributorHandle), Error> {
        let (setup, mut out) = (self.setup(OWNERS), self.egress());
        let stage = Steered::new(&setup, 1, Nobody, &mut out).map_err(std::io::Error::other)?;
        let (worker, handle) = Worker::new("distributor", stage, out, self.clock)?;
        Ok((Box::new(worker), handle))
    }
}

impl Bench {
    fn new(answer: usize, in_software: bool) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("bench", 32_768))?;
        let pools = Pools::new(vec![pool]);
        let clock = Clock::calibrate();
        let queues = if in_software { 1 } else { OWNERS.into() };
        let mut drivers = Drivers::new().playing_nics(FrameHash::make);
        let spec = match in_software {
            true => format!("ring:talk,size={RING}"),
            false => format!("ring:talk,queues={queues},rss=ixgbe,size={RING}"),
        };
        let mut port = drivers.open(&spec)?;
        let mut peer_port = drivers.open("ring:talk")?;
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            ..PortConfig::default()
        };
        let mut queues = port.start(&config, &pools)?;
        let mut peer_queues = peer_port.start(&PortConfig::default(), &pools)?;
        let plan = match (in_software, port.rss()) {
            (false, Some(setup)) => {
                let homes: Vec<Member> = (0..OWNERS).collect();
                PortPlan::hardware(&Model::of_port(&setup)?, &homes)?
            }
            _ => {
                let dealt = Owners::dealt(OWNERS.into());
                PortPlan::software(&secret(), &dealt, Arrival::One(OWNERS))?
            }
        };
        let made = Made {
            plan: Arc::new(Plan::new(vec![plan], OWNERS)),
            pools: &pools,
            clock,
            secret: Secret::random(),
        };
        let (mut owners, mut handles) = (Vec::new(), Vec::new());
        for me in 0..OWNERS {
            let (owner, handle) = made.owner(me, answer)?;
            owners.push(owner);
            handles.push(handle);
        }
        let mut distributor = None;
        if in_software {
            let (mut worker, handle) = made.distributor()?;
            attach(&mut worker, &mut queues);
            for (me, owner) in owners.iter_mut().enumerate() {
                let outlet = 1 + me as u16;
                let (path, taker) = ring(&handles[me]);
                worker.set_outlet(outlet, Some(path));
                owner.add_inlet(Inlet::ring(outlet, 0, taker));
                let (path, taker) = ring(&handle);
                owner.set_outlet(0, Some(path));
                worker.add_inlet(Inlet::hand_off(0, outlet, taker));
            }
            distributor = Some(worker);
        } else {
            owners
                .iter_mut()
                .for_each(|owner| attach(owner, &mut queues));
            // One that misses its queue goes on by a ring, as shipped.
            for me in 0..owners.len() {
                let to = 1 - me;
                let (path, taker) = ring(&handles[to]);
                owners[me].set_outlet(1 + to as u16, Some(path));
                owners[to].add_inlet(Inlet::ring(1 + to as u16, 0, taker));
            }
        }
        let mut out = made.egress();
        out.set_outlet(0, peer_queues.tx.pop().map(TxPath::Queue));
        let peer = stack(1, Secret::random(), made.now_ns(), &mut out)?;
        let rx = peer_queues.rx.pop();
        Ok(Self {
            clock,
            distributor,
            owners,
            peer,
            out,
            rx: rx.ok_or_else(|| lost("the peer's port has no queue"))?,
            events: vec![Event::default(); 2 * UNDER_WAY],
            sockets: Vec::new(),
            next: 0,
            answer,
            answers: 0,
            distributor_ticks: 0,
            owner_ticks: 0,
            _ports: [port, peer_port],
        })
    }

    /// One turn of all: questions come in, answers go out.
    fn turn(&mut self) {
        self.distribute();
        let began = self.clock.now();
        self.owners
            .iter_mut()
            .for_each(|owner| work(owner, &self.clock));
        self.owner_ticks += self.clock.now() - began;
        self.distribute();
        self.ask();
    }

    fn distribute(&mut self) {
        if let Some(distributor) = &mut self.distributor {
            let began = self.clock.now();
            work(distributor, &self.clock);
            self.distributor_ticks += self.clock.now() - began;
        }
    }

    /// The peer: for each answer another question, on the connection that has been silent longest.
    fn ask(&mut self) {
        let now_ns = self.clock.ns(self.clock.now());
        let mut burst = Burst::new();
        while self.rx.rx_burst(&mut burst, &mut self.out.cache) > 0 {
            self.peer.receive(&mut burst, now_ns, &mut self.out);
        }
        let mut io = self.peer.io(now_ns, &mut self.out);
        let count = io.poll(&mut self.events);
        let mut answered = 0;
        for event in &self.events[..count] {
            if let Source::Connection(id) = event.source {
                let mut answer = [0; 2048];
                answered += usize::from(io.read(id, &mut answer[..self.answer]) == Ok(self.answer));
            }
        }
        self.answers += answered as u64;
        self.write(answered, now_ns);
        self.peer.turn(now_ns, &mut self.out);
        self.out.flush();
    }

    fn write(&mut self, questions: usize, now_ns: u64) {
        let mut io = self.peer.io(now_ns, &mut self.out);
        for _ in 0..questions {
            let _ = io.write(self.sockets[self.next], &[b'?'; QUESTION]);
            self.next = (self.next + 1) % self.sockets.len();
        }
    }

    /// Opens the connections and asks the first questions.
    fn begin(&mut self) -> Result<(), Error> {
        self.turn();
        let to: SocketAddr = (address(2), PORT).into();
        for number in 0..CONNECTIONS {
            let now_ns = self.clock.ns(self.clock.now());
            let mut io = self.peer.io(now_ns, &mut self.out);
            let id = io.connect(None, to);
            let id = id.map_err(|error| lost(&format!("a connection cannot begin: {error}")))?;
            let _ = io.register(id, interest::READ | interest::EDGE, 0);
            self.sockets.push(id);
            if number % UNDER_WAY == 0 {
                self.turn();
            }
        }
        let mut patience = PATIENCE;
        while self.open() < CONNECTIONS {
            self.turn();
            patience -= 1;
            if patience == 0 {
                return Err(lost("connections were not opened"));
            }
        }
        let now_ns = self.clock.ns(self.clock.now());
        self.write(UNDER_WAY, now_ns);
        self.out.flush();
        Ok(())
    }

    fn open(&mut self) -> usize {
        let each = self.owners.iter_mut();
        each.map(|owner| owner.stage.host().user.open).sum()
    }

    fn reset(&mut self) {
        (self.answers, self.distributor_ticks, self.owner_ticks) = (0, 0, 0);
    }
}

/// Gives a worker the next queue of the port, both ways.
fn attach<S: Stage>(worker: &mut Worker<S>, queues: &mut Queues) {
    worker.add_inlet(Inlet::queue(0, 0, queues.rx.remove(0)));
    worker.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
}

/// A round of a worker, and its turn.
fn work<S: Stage>(worker: &mut Worker<S>, clock: &Clock) {
    worker.round();
    let Worker { stage, egress, .. } = worker;
    stage.turn(clock.now(), &mut (), egress);
    egress.flush();
}

/// Cycles of an answer in each role.
#[derive(Clone, Copy)]
struct Cost {
    distributor: f64,
    owner: f64,
}

impl Cost {
    /// Answers a second of so many cores, without a link.
    fn rate(self, cores: f64, hz: f64) -> f64 {
        match self.distributor > 0.0 {
            true => (hz / self.distributor).min((cores - 1.0) * hz / self.owner),
            false => cores * hz / self.owner,
        }
    }
}

/// Gb/s of payload of so many answers a second over the talk's link.
fn gbps(rate: f64, answer: usize) -> f64 {
    let most = LINK / 8.0 / (answer as f64 + FRAMING);
    rate.min(most) * answer as f64 * 8.0 / 1e9
}

fn talk(row: &'static str, run: Run, answer: usize, in_software: bool) -> Result<Sample, Error> {
    let (cost, hz) = run.pinned(move |run| {
        let mut bench = Bench::new(answer, in_software)?;
        bench.begin()?;
        let turn = |bench: &mut Bench| {
            let before = bench.answers;
            bench.turn();
            bench.answers - before
        };
        run.time_for(run.duration / 5, &mut || turn(&mut bench));
        bench.reset();
        run.time_for(run.duration, &mut || turn(&mut bench));
        if bench.answers == 0 {
            return Err(lost("no question was answered"));
        }
        let each = |ticks: u64| ticks as f64 / bench.answers as f64;
        let cost = Cost {
            distributor: each(bench.distributor_ticks),
            owner: each(bench.owner_ticks),
        };
        Ok((cost, bench.clock.hz()))
    })??;
    let value = gbps(cost.rate(CORES, hz), answer);
    let mut sample = Sample::new(row, value, "Gb/s", "as the machine gives")
        .with("owner_cycles", cost.owner)
        .with("distributor_cycles", cost.distributor);
    for cores in TABLE {
        let rate = cost.rate(cores.into(), hz);
        sample = sample
            .with(&format!("gbps_{cores}"), gbps(rate, answer))
            .with(
                &format!("no_link_gbps_{cores}"),
                rate * answer as f64 * 8.0 / 1e9,
            );
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_bound_by_owners_the_distributor_or_the_link() {
        let software = Cost {
            distributor: 100.0,
            owner: 250.0,
        };
        let hardware = Cost {
            distributor: 0.0,
            owner: 250.0,
        };
        let hz = 1e9;
        assert_eq!(software.rate(2.0, hz), 4e6);
        assert_eq!(software.rate(3.0, hz), 8e6);
        assert_eq!(software.rate(4.0, hz), 1e7, "the distributor");
        assert_eq!(hardware.rate(4.0, hz), 1.6e7);
        assert!(
            (gbps(1e9, 1448) - 10.0 * 1448.0 / 1538.0).abs() < 1e-9,
            "the link"
        );
        assert!((gbps(1e5, 64) - 0.0512).abs() < 1e-12);
    }

    #[test]
    fn every_row_has_a_figure() {
        for row in ROWS {
            let sample = (row.run)(row.name, Run::quick()).unwrap();
            assert!(sample.value > 0.0, "{}", row.name);
        }
    }
}
