//! Two TCP stacks in one thread, joined by ring ports: the work of one lcore at either end of a
//! wire. What the rows of `tcp_*` have in common.
//!
//! The stacks work in turns. A turn takes what has come, fires timers, serves the user, and sends:
//! so the time of either end can be told apart. Slots move between the ends, bytes do not. Settings
//! are those that an application gets, time stamps and SACK included; the ports compute no
//! checksums. xtask/peer-smoltcp does the same with smoltcp.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linerate_core::env::Clock;
use linerate_core::mem::PageKind;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, Queues, RxQueue};
use linerate_core::run::{Egress, TxPath};
use linerate_drivers::ring;
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Event, Io, Listen, ListenerId, Stack, StackConfig};
use linerate_wire::MacAddr;

use super::Run;
use super::shared::{Done, Work};
use linerate_appliance::error::Error;

/// Bytes of a question and of an answer.
pub(super) const MESSAGE: usize = 64;
/// Questions that are under way at once, where there are connections enough.
pub(super) const AT_ONCE: usize = 32;
/// The client's ports: with each of the server's, so many connections.
const PORTS: std::ops::Range<u32> = 1024..61_024;
/// The server's first port.
const SERVER_PORT: u16 = 8000;

/// The stack of one of two ends, 1 and 2, that know each other's MAC addresses.
pub(super) fn stack(
    number: u8,
    config: &StackConfig,
    now_ns: u64,
    out: &mut Egress,
) -> Result<Stack, Error> {
    let mut stack = Stack::new(config, now_ns, out).map_err(std::io::Error::other)?;
    let interface = InterfaceConfig {
        mac: MacAddr::local(number),
        addresses: vec![(address(number), 24)],
        ..InterfaceConfig::default()
    };
    let host = stack.host();
    let lan = host.add_interface(interface, now_ns, out);
    let lan = lan.map_err(std::io::Error::other)?;
    let other = 3 - number;
    host.add_neighbour(lan, address(other), MacAddr::local(other), out);
    Ok(stack)
}

/// One stack and its end of the wire.
pub(super) struct Station {
    pub(super) stack: Stack,
    pub(super) out: Egress,
    pub(super) events: Vec<Event>,
    rx: Box<dyn RxQueue>,
    burst: Burst,
}

impl Station {
    fn new(
        number: u8,
        config: &StackConfig,
        mut queues: Queues,
        pool: &Pool,
        now_ns: u64,
    ) -> Result<Self, Error> {
        let mut out = Egress::new(PoolCache::new(std::slice::from_ref(pool)));
        out.set_outlet(0, queues.tx.pop().map(TxPath::Queue));
        let stack = stack(number, config, now_ns, &mut out)?;
        Ok(Self {
            stack,
            out,
            events: vec![Event::default(); 2 * AT_ONCE],
            rx: queues.rx.pop().expect("a ring port has a queue each way"),
            burst: Burst::new(),
        })
    }

    /// The first half of a turn: takes all that has come and fires timers. How many packets came.
    #[inline]
    pub(super) fn take(&mut self, now_ns: u64) -> usize {
        let mut packets = 0;
        loop {
            let count = self.rx.rx_burst(&mut self.burst, &mut self.out.cache);
            if count == 0 {
                break;
            }
            packets += count;
            self.stack.receive(&mut self.burst, now_ns, &mut self.out);
            // A ring gives all that it has, as far as there is room.
            if count < Burst::CAPACITY {
                break;
            }
        }
        self.stack.turn(now_ns, &mut self.out);
        packets
    }

    /// Frees all that has come unseen. How many packets those were.
    pub(super) fn discard(&mut self) -> usize {
        let mut packets = 0;
        while self.rx.rx_burst(&mut self.burst, &mut self.out.cache) > 0 {
            packets += self.burst.len();
            self.out.cache.free(&mut self.burst);
        }
        packets
    }

    pub(super) fn io(&mut self, now_ns: u64) -> Io<'_> {
        self.stack.io(now_ns, &mut self.out)
    }

    /// Calls `each` with all sockets that are ready.
    #[inline]
    pub(super) fn serve(&mut self, now_ns: u64, mut each: impl FnMut(&mut Io<'_>, &Event)) {
        if !self.stack.has_ready() {
            return;
        }
        let mut io = self.stack.io(now_ns, &mut self.out);
        let count = io.poll(&mut self.events);
        for event in &self.events[..count] {
            each(&mut io, event);
        }
    }
}

/// A client, a server, and the time that each has worked.
pub(super) struct Pair {
    pub(super) client: Station,
    pub(super) server: Station,
    pub(super) listeners: Vec<ListenerId>,
    pub(super) clock: Clock,
    pub(super) pages: PageKind,
    /// Ticks in which either has worked.
    pub(super) client_ticks: u64,
    pub(super) server_ticks: u64,
    /// When the last turn ended, and so the next one begins: one look at the clock for each.
    turned: u64,
}

pub(super) fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

/// Ends of connection `number`: the client's, the server's.
pub(super) fn ends(number: u32) -> (SocketAddr, SocketAddr) {
    let ports = PORTS.end - PORTS.start;
    let from = PORTS.start + number % ports;
    let to = SERVER_PORT + (number / ports) as u16;
    ((address(1), from as u16).into(), (address(2), to).into())
}

impl Pair {
    /// Stacks with room for so many connections, and a server that listens to as many ports as
    /// those need. `listen` changes how it does.
    pub(super) fn new(
        connections: u32,
        change: impl FnOnce(&mut StackConfig),
        listen: impl Fn(&mut Listen),
    ) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("bench", 16_384))?;
        let pools = Pools::new(vec![pool]);
        let pages = pools.primary().page_kind();
        let (client, server) = ring::pair("bench", 1, 4096);
        let mut config = StackConfig {
            connections: connections + 1024,
            ..StackConfig::default()
        };
        change(&mut config);
        let mut started = Vec::with_capacity(2);
        for mut port in [client, server] {
            started.push(port.start(&PortConfig::default(), &pools)?);
        }
        let (at_server, at_client) = (started.pop(), started.pop());
        let clock = Clock::calibrate();
        let station = |number, queues: Option<Queues>| {
            let queues = queues.expect("both were started");
            Station::new(
                number,
                &config,
                queues,
                pools.primary(),
                clock.ns(clock.now()),
            )
        };
        let mut pair = Self {
            client: station(1, at_client)?,
            server: station(2, at_server)?,
            listeners: Vec::new(),
            clock,
            pages,
            client_ticks: 0,
            server_ticks: 0,
            turned: clock.now(),
        };
        let last = ends(connections.max(1) - 1).1.port();
        for port in SERVER_PORT..=last {
            let mut how = Listen::on(port);
            listen(&mut how);
            let now_ns = pair.now_ns();
            let listener = pair.server.io(now_ns).listen(how);
            pair.listeners
                .push(listener.expect("nobody else listens here"));
        }
        Ok(pair)
    }

    /// One turn of the client: `user` does its work between what has come and what is sent.
    #[inline]
    pub(super) fn client(&mut self, user: impl FnOnce(&mut Station, u64)) -> usize {
        let packets = turn(&mut self.client, self.clock.ns(self.turned), user);
        self.client_ticks += self.passed();
        packets
    }

    /// One turn of the server.
    #[inline]
    pub(super) fn server(&mut self, user: impl FnOnce(&mut Station, u64)) -> usize {
        let packets = turn(&mut self.server, self.clock.ns(self.turned), user);
        self.server_ticks += self.passed();
        packets
    }

    /// Ticks since a turn ended last, as one does now.
    #[inline]
    fn passed(&mut self) -> u64 {
        let now = self.clock.now();
        now - std::mem::replace(&mut self.turned, now)
    }

    /// What has passed since the last turn is nobody's work.
    pub(super) fn rest(&mut self) {
        self.turned = self.clock.now();
    }

    /// The time in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.ns(self.clock.now())
    }

    /// Forgets what either has worked.
    pub(super) fn reset(&mut self) {
        (self.client_ticks, self.server_ticks) = (0, 0);
        self.turned = self.clock.now();
    }
}

/// Times `turn` of `all`, which returns what it counts, after a tenth of the time to warm up.
/// `parts` are its pair and what was counted so far. Returns the work that was the server's, and
/// the nanoseconds of both ends for each that was counted.
pub(super) fn timed<T>(
    mut all: T,
    run: &Run,
    parts: impl Fn(&mut T) -> (&mut Pair, &mut u64),
    turn: impl Fn(&mut T) -> u64,
) -> (T, Work, f64) {
    run.time_for(run.duration / 10, &mut || turn(&mut all));
    let (pair, count) = parts(&mut all);
    *count = 0;
    let mut work = Work::new(pair.clock);
    pair.reset();
    let ns = run.time_for(run.duration, &mut || {
        let counted = turn(&mut all);
        let (pair, count) = parts(&mut all);
        let done = Done {
            ticks: pair.server_ticks,
            count: *count,
        };
        if work.turned(done) {
            pair.rest();
        }
        counted
    });
    (all, work, ns)
}

#[inline]
fn turn(station: &mut Station, now_ns: u64, user: impl FnOnce(&mut Station, u64)) -> usize {
    let packets = station.take(now_ns);
    user(station, now_ns);
    station.out.flush();
    packets
}

/// Why a row has no figure: what should have gone through did not.
pub(super) fn lost(text: &str) -> Error {
    std::io::Error::other(text.to_owned()).into()
}
