//! A session: opened ports, lcores at work, control of both, and snapshots. It is the one engine
//! behind the screen, scripts and `linerate bench`.
//!
//! [`map`] assigns queues to lcores, [`streams`] streams and rates to queues, `control` starts,
//! stops and changes, `views` makes [`Snapshot`]s of what [`sample`] reads on the lcores.

mod ask;
mod change;
mod config;
mod control;
mod help;
mod log;
mod map;
mod rates;
mod sample;
mod streams;
mod views;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use linerate_core::env::{
    Clock, Lcore, LcoreHandle, Plan, PortPlace, Role, Topology, allowed_cpus,
};
use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{PortConfig, PortStats, Queues};
use linerate_core::run::HistogramSnapshot;
use linerate_core::run::ledger::Balance;
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;
use linerate_wire::vlan::TAG_LEN;

use super::engine::{
    Books as ReceiverBooks, Boundaries, Engine, EngineHandle, Receiver, Recording, Sender,
};
use super::snapshot::Snapshot;
use super::stream::StreamSpec;
use super::units::FCS_BYTES;
use linerate_appliance::control::taps::{Taps, Watched};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{OpenPort, OpenPorts};

pub use config::{PORT_KEYS, PortAsked, SessionConfig};
pub use map::{Map, PortShape};

use help::Help;
use log::Log;
use rates::Meter;
use sample::{Books, Sample};
use streams::{Limits, OpenStream};

/// Missing test frames count as lost so long after the last one that was sent or received.
const QUIET: Duration = Duration::from_millis(500);
/// Missing test frames count as lost so long after the last one that was sent, even while others
/// still come.
const LAST_DRAIN: Duration = Duration::from_secs(1);

/// Opened ports and lcores at work. Dropping it ends both.
pub struct Session {
    clock: Clock,
    profile: String,
    seed: u64,
    /// Its number in signatures: frames of other sessions are foreign.
    number: u16,
    opened: OpenPorts,
    pools: Pools,
    is_jumbo: bool,
    map: Map,
    ports: Vec<PortState>,
    streams: Vec<OpenStream>,
    /// Captures that streams send, by path.
    recordings: HashMap<String, Arc<Recording>>,
    /// The first counted sequence number of each number on the wire; receivers have room for as
    /// many.
    boundaries: Arc<Boundaries>,
    lcores: Vec<Member>,
    meter: Meter,
    log: Log,
    epoch: u64,
    cleared_at: u64,
    next_id: u16,
    next_wire: u16,
    /// Why the counts since `clear` are invalid: a port vanished, an lcore died.
    invalid: Vec<String>,
    /// Whether the session is closing: frames that have not come count as lost.
    is_over: bool,
    /// How often taps were set.
    watched: u64,
}

/// The session's state of a port.
struct PortState {
    asked: PortAsked,
    /// Lcore and position there, for each queue.
    receivers: Vec<(usize, usize)>,
    senders: Vec<(usize, usize)>,
    activity: Activity,
    /// Why its link is down; `None` while it is up.
    down: Option<String>,
    /// Start of the measurement of the achieved rate.
    pace: Option<control::Pace>,
    /// Driver's drops at the last `clear`.
    base: PortStats,
    /// Frames a second over its streams; 0: unlimited.
    asked_pps: f64,
    /// Frames in all over its streams; 0: no limit.
    count: u64,
    /// The rate that streams without one share at each transmit queue, as its sender has it.
    shares: Vec<Option<f64>>,
    help: Help,
}

/// What a port is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Idle,
    /// From tick to tick.
    Sending {
        at: u64,
        until: u64,
    },
    /// Everything asked for was sent.
    Done,
}

/// One lcore.
struct Member {
    handle: EngineHandle,
    /// `None` after it is joined.
    thread: Option<LcoreHandle<Engine>>,
    books: Arc<Books>,
    /// Sample at the last `clear`.
    base: Sample,
    departures: Vec<HistogramSnapshot>,
    /// The last sample.
    last: Sample,
}

impl Session {
    /// Opens and starts ports through `drivers` (so that a device under test in this process can
    /// own the other ends of rings) and starts lcores. Nothing is sent yet. On an error no port
    /// stays open.
    ///
    /// # Errors
    /// A port that does not open, an invalid map or stream, an impossible rate.
    pub fn open(config: SessionConfig, drivers: &mut Drivers, clock: Clock) -> Result<Self, Error> {
        if config.ports.is_empty() {
            return Err(Error::Usage {
                problem: "a generator without ports".into(),
                fix: "open one: `--port ring:a,loop=on`, `--port af_packet:eth0`".into(),
            });
        }
        let specs: Vec<_> = config
            .ports
            .iter()
            .map(|asked| (asked.name.clone(), config::timely(&asked.spec)))
            .collect();
        for (number, asked) in config.ports.iter().enumerate() {
            asked.check()?;
            check_name(asked, &config.ports[..number])?;
        }
        let mut opened = OpenPorts::open_among(drivers, &specs, clock)?;
        let map = choose_map(&config, &opened)?;
        let configs: Vec<PortConfig> = (0..opened.ports.len() as u16)
            .map(|index| {
                let (rx_queues, tx_queues) = map.queues(index);
                PortConfig {
                    index,
                    rx_queues,
                    tx_queues,
                }
            })
            .collect();
        let queue_count = configs
            .iter()
            .map(|config| u32::from(config.rx_queues) + u32::from(config.tx_queues))
            .sum();
        let pools = opened.pools(queue_count, config.pool_slots)?;
        let room = pools.primary().room_bytes();
        let is_long = |spec: &StreamSpec| {
            let [src, dst] = [0, 1].map(MacAddr::local);
            let compiled = spec.compile(0, src, dst, config.seed);
            compiled.is_ok_and(|stream| stream.max_len() > room)
        };
        let is_jumbo = config.jumbo || config.streams.iter().any(is_long);
        let pools = match is_jumbo {
            true => with_large(pools, queue_count, config.pool_slots)?,
            false => pools,
        };
        let queues = opened.start_ports(&configs, &pools)?;
        let now = clock.now();
        let number = config.session.unwrap_or_else(any_number);
        let mut session = Self {
            clock,
            profile: config.profile,
            seed: config.seed,
            number,
            opened,
            pools,
            is_jumbo,
            map,
            ports: config.ports.into_iter().map(PortState::new).collect(),
            streams: Vec::new(),
            recordings: HashMap::new(),
            boundaries: Boundaries::of_session(number, room_for(config.streams.len())).into(),
            lcores: Vec::new(),
            meter: Meter::new(clock.hz(), now),
            log: Log::new(),
            epoch: 0,
            cleared_at: now,
            next_id: 0,
            next_wire: 0,
            invalid: Vec::new(),
            is_over: false,
            watched: 0,
        };
        let mut timely = Vec::new();
        // From here on dropping the session stops what exists.
        session.spawn(queues, config.no_sleep)?;
        (0..session.port_count()).try_for_each(|port| session.fit_help(port))?;
        session.add_all(config.streams)?;
        for (asked, (_, spec)) in session
            .asked()
            .zip(&specs)
            .filter(|(a, (_, b))| a.spec != *b)
        {
            timely.push(format!(
                "{}: opened as {spec}, for exact latencies",
                asked.spec
            ));
        }
        timely.into_iter().for_each(|line| session.log.add(line));
        let explained = session.explain_map();
        explained.lines().for_each(|line| session.log.add(line));
        session.clear();
        session.epoch = 0;
        Ok(session)
    }

    /// Adds the first streams, spread over the transmit queues of their port.
    fn add_all(&mut self, specs: Vec<StreamSpec>) -> Result<(), Error> {
        let port = |spec: &StreamSpec| self.port_by_name(spec.port.as_deref().unwrap_or("0"));
        let ports = specs.iter().map(port).collect::<Result<Vec<u16>, _>>()?;
        let mut added = vec![0; self.ports.len()];
        for (spec, &port) in specs.into_iter().zip(&ports) {
            let count = ports.iter().filter(|&&other| other == port).count();
            self.add_among(spec, port, added[usize::from(port)], count)?;
            added[usize::from(port)] += 1;
        }
        Ok(())
    }

    /// Makes the lcores, gives them their queues, and starts them.
    fn spawn(&mut self, queues: Vec<Queues>, no_sleep: bool) -> Result<(), Error> {
        let mut rx: Vec<_> = Vec::new();
        let mut tx: Vec<_> = Vec::new();
        for queues in queues {
            rx.push(queues.rx.into_iter().map(Some).collect::<Vec<_>>());
            tx.push(queues.tx.into_iter().map(Some).collect::<Vec<_>>());
        }
        let usable = allowed_cpus().map_or(1, |cpus| cpus.len());
        // Another thread, such as the device under test, needs a CPU too.
        let is_shared = self.map.lcores.len() >= usable;
        let at_work = Arc::<AtomicUsize>::default();
        for share in &self.map.lcores {
            let cache = PoolCache::new(self.pools.as_slice());
            let (mut engine, handle) = Engine::new(cache, self.clock, is_shared, at_work.clone())?;
            engine.never_sleeps = no_sleep;
            let mut books = Books::new(self.pools.primary().clone());
            for &(port, queue) in &share.tx {
                let taken = tx[usize::from(port)][usize::from(queue)].take();
                let queue = taken.expect("the map gives each queue to one lcore");
                let mut sender = Sender::new(queue, self.slots().clone(), self.clock.hz());
                sender.port = port;
                self.ports[usize::from(port)].asked.fit_sender(&mut sender);
                books.senders.push(sender.stats.clone());
                engine.senders.push(sender);
            }
            for &(port, queue) in &share.rx {
                let taken = rx[usize::from(port)][usize::from(queue)].take();
                let queue = taken.expect("the map gives each queue to one lcore");
                let asked = &self.ports[usize::from(port)].asked;
                let fresh = ReceiverBooks::with_checks(self.boundaries.clone(), asked.checks());
                books.receivers.push(vec![fresh.stats.clone()]);
                let mut receiver = Receiver::new(queue, fresh, self.clock);
                receiver.port = port;
                asked.fit_receiver(&mut receiver);
                engine.receivers.push(receiver);
            }
            let thread = Lcore::spawn(&share.name, share.cpu, move || engine.run())?;
            self.lcores.push(Member {
                handle,
                thread: Some(thread),
                books: Arc::new(books),
                base: Sample::default(),
                departures: Vec::new(),
                last: Sample::default(),
            });
        }
        // Queue n of a port is the n-th: lcores may have them in another order.
        for (number, port) in (0u16..).zip(&mut self.ports) {
            let places = |side: fn(&map::Share) -> &[(u16, u16)]| {
                let mut places = Vec::new();
                for (lcore, share) in self.map.lcores.iter().enumerate() {
                    let of_port = side(share).iter().enumerate();
                    let mine = of_port.filter(|(_, queue)| queue.0 == number);
                    places.extend(mine.map(|(index, queue)| (queue.1, (lcore, index))));
                }
                places.sort_unstable();
                places.into_iter().map(|(_, place)| place).collect()
            };
            port.receivers = places(|share| &share.rx);
            port.senders = places(|share| &share.tx);
        }
        Ok(())
    }

    /// Number of ports.
    pub fn port_count(&self) -> u16 {
        self.ports.len() as u16
    }

    /// Which lcore polls what, for users.
    pub fn explain_map(&self) -> String {
        self.map.explain(&shapes(&self.opened, self.asked()))
    }

    fn asked(&self) -> impl Iterator<Item = &PortAsked> {
        self.ports.iter().map(|port| &port.asked)
    }

    /// The port's limits for streams.
    fn limits(&self, port: u16) -> Limits {
        let info = &self.opened.ports[usize::from(port)].info;
        let room = self.slots().room_bytes();
        Limits {
            max_frame_bytes: info.max_frame_bytes.min(room) + FCS_BYTES,
            max_tagged_bytes: (info.max_frame_bytes + TAG_LEN).min(room) + FCS_BYTES,
            longer: match room < info.max_frame_bytes {
                true => {
                    "make them shorter, or open the session for jumbo frames (`jumbo = true`, `-j`)"
                }
                false => "make them shorter, or raise the interface's MTU",
            },
            speed_bps: self.ports[usize::from(port)].asked.speed_bps,
            hz: self.clock.hz(),
        }
    }

    /// The pool that senders fill: that of large slots in a session for jumbo frames.
    fn slots(&self) -> &Pool {
        match self.is_jumbo {
            true => self
                .pools
                .iter()
                .max_by_key(|pool| pool.room_bytes())
                .unwrap_or(self.pools.primary()),
            false => self.pools.primary(),
        }
    }

    /// A port's address, and that of the port it is paired with: 0 with 1, 2 with 3.
    fn macs(&self, port: u16) -> (MacAddr, MacAddr) {
        let mac = |number: u16| {
            let info = self
                .opened
                .ports
                .get(usize::from(number))
                .map(|open| &open.info);
            info.and_then(|info| info.mac)
                .unwrap_or(MacAddr::local(number as u8))
        };
        (mac(port), mac(port ^ 1))
    }

    /// Where its frames can be watched.
    pub fn taps(&mut self) -> Taps {
        self.watched += 1;
        let lcores = self.lcores.iter();
        Taps::new(
            lcores
                .map(|lcore| Box::new(lcore.handle.clone()) as Box<dyn Watched>)
                .collect(),
            (0..).zip(self.port_names()).collect(),
            self.watched,
        )
    }

    /// The ledger at this moment: where each slot is.
    pub fn balance(&self) -> Balance {
        let mut is_whole = true;
        let balance = Balance::take(self.pools.as_slice(), || {
            let mut accounts = Vec::new();
            for (member, share) in self.lcores.iter().zip(&self.map.lcores) {
                let name = share.name.clone();
                match member.handle.call(move |engine| engine.accounts(&name)) {
                    Some(own) => accounts.extend(own),
                    None => is_whole = false,
                }
            }
            self.opened.in_rings(accounts)
        });
        Balance {
            exact: balance.exact && is_whole,
            ..balance
        }
    }

    /// Its ports.
    pub fn open_ports(&self) -> &[OpenPort] {
        &self.opened.ports
    }

    /// Ends sending, drains, joins the lcores and stops the ports. Returns the last counts, the
    /// ledger, and errors.
    pub fn close(mut self) -> (Snapshot, Balance, Vec<Error>) {
        self.stop(&[]);
        self.drain(QUIET, LAST_DRAIN);
        self.is_over = true;
        let last = self.snapshot();
        let (balance, errors) = self.end();
        (last, balance, errors)
    }

    fn end(&mut self) -> (Balance, Vec<Error>) {
        let (mut errors, mut engines) = (Vec::new(), Vec::new());
        for member in &self.lcores {
            drop(member.handle.ask(Engine::stop));
        }
        for (member, share) in self.lcores.iter_mut().zip(&self.map.lcores) {
            match member.thread.take().map(LcoreHandle::join) {
                Some(Ok(engine)) => engines.push((&share.name, engine)),
                Some(Err(error)) => errors.push(error.into()),
                None => {}
            }
        }
        let balance = Balance::take(self.pools.as_slice(), || {
            let accounts = engines.iter();
            let accounts = accounts.flat_map(|(name, engine)| engine.accounts(name));
            self.opened.in_rings(accounts.collect())
        });
        // Slots of a panicked lcore are in no account.
        let balance = Balance {
            exact: balance.exact && errors.is_empty(),
            ..balance
        };
        // Before their devices are dropped.
        drop(engines);
        errors.extend(self.opened.stop_ports());
        self.opened.ports.clear();
        (balance, errors)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Commands name ports by number, by name, and by `all`, so a name must be neither a number nor
/// `all`, and unique.
fn check_name(asked: &PortAsked, others: &[PortAsked]) -> Result<(), Error> {
    let Some(name) = &asked.name else {
        return Ok(());
    };
    let wrong = |problem: String| Error::Usage {
        problem,
        fix: "give each port a name of its own that is no number, such as `lan=ring:a`".into(),
    };
    if others.iter().any(|other| other.name.as_ref() == Some(name)) {
        return Err(wrong(format!("two ports are named `{name}`")));
    }
    if name == "all" || name.parse::<u64>().is_ok() {
        return Err(wrong(format!(
            "a port is named `{name}`, which means another port"
        )));
    }
    Ok(())
}

/// Slots of 64 KiB for each queue of a session for jumbo frames.
const LARGE_SLOTS: u32 = 1024;

/// Adds a pool of large slots, enough for all that queues hold.
fn with_large(pools: Pools, queues: u32, slots: Option<u32>) -> Result<Pools, Error> {
    let mut all: Vec<Pool> = pools.iter().cloned().collect();
    all.retain(|pool| pool.class() == SlotClass::Small);
    all.push(Pool::new(&PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("jumbo", slots.unwrap_or(LARGE_SLOTS * (1 + queues)))
    })?);
    Ok(Pools::new(all))
}

/// A random session number: two generators have the same with a probability of 1 in 65,535.
fn any_number() -> u16 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    (RandomState::new().build_hasher().finish() % u64::from(u16::MAX)) as u16 + 1
}

/// How many streams' counters to allocate for so many streams, so that they grow rarely.
fn room_for(streams: usize) -> usize {
    streams.next_power_of_two().clamp(64, 1 << 16)
}

impl PortState {
    fn new(asked: PortAsked) -> Self {
        Self {
            asked,
            receivers: Vec::new(),
            senders: Vec::new(),
            activity: Activity::Idle,
            down: None,
            pace: None,
            base: PortStats::default(),
            asked_pps: 0.0,
            count: 0,
            shares: Vec::new(),
            help: Help::default(),
        }
    }
}

/// What the map needs to know of the ports.
fn shapes<'a>(opened: &OpenPorts, asked: impl Iterator<Item = &'a PortAsked>) -> Vec<PortShape> {
    opened
        .ports
        .iter()
        .zip(asked)
        .map(|(open, asked)| PortShape {
            name: open.name.clone(),
            max_rx: open.info.max_rx_queues,
            max_tx: open.info.max_tx_queues,
            rx: asked.rx_queues,
            tx: asked.tx_queues,
        })
        .collect()
}

/// The map as written, or by the plan.
fn choose_map(config: &SessionConfig, opened: &OpenPorts) -> Result<Map, Error> {
    let shapes = shapes(opened, config.ports.iter());
    if let Some(text) = &config.map {
        let cpus: BTreeMap<u32, u32> = match config.cpus.is_empty() {
            false => (0..).zip(config.cpus.iter().copied()).collect(),
            true => allowed_cpus()
                .map_err(Error::Output)?
                .iter()
                .map(|cpu| (cpu, cpu))
                .collect(),
        };
        return Map::parse(text, &shapes, &cpus);
    }
    if !config.cpus.is_empty() {
        let places: Vec<_> = (0..)
            .zip(&config.cpus)
            .map(|(number, &cpu)| (format!("io{number}"), Some(cpu)))
            .collect();
        return Ok(Map::automatic(&shapes, &places));
    }
    let topology = Topology::machine()?;
    let places: Vec<PortPlace> = opened
        .ports
        .iter()
        .map(|open| PortPlace {
            name: open.name.clone(),
            node: open.info.numa_node,
        })
        .collect();
    let plan = Plan::build(&config.plan, &topology, &places)?;
    // Polling and processing are the same here: a receiver checks what it polls.
    let busy = [Role::Io, Role::Eu]
        .into_iter()
        .flat_map(|role| plan.role(role));
    let places: Vec<_> = busy
        .map(|place| (place.name.clone(), Some(place.cpu)))
        .collect();
    Ok(Map::automatic(&shapes, &places))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
