//! Sockets: TCP, UDP and ping over IPv4 and IPv6, a [`Stack`] for each lcore.
//!
//! A stack shares nothing with others. It gets the packets that come to its lcore
//! ([`Stack::receive`]), is called when a timer is due ([`Stack::turn`]), and serves its user's
//! calls through an [`Io`], which has the time and the way out. A socket is an id that means
//! nothing to another stack; a connection that has to go to another lcore goes as a value.
//!
//! | file | what |
//! |---|---|
//! | `receive` | segments find their connections; those that have none |
//! | `cookies` | SYNs answered without a record |
//! | `settle` | what follows when something has happened to a connection |
//! | `io` | the user's calls |
//! | `poll` | which sockets are ready |
//! | `slots`, `listener` | connections and ports that are listened to |
//! | `way` | how segments leave |
//! | `change` | settings, addresses and users that change meanwhile |
//! | `moving` | connections that go to another lcore |
//! | `steer` | which lcore packets come to: what decides of ports, and who has to hear of ends |
//!
//! ```
//! use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
//! use linerate_core::run::Egress;
//! use linerate_stack::host::InterfaceConfig;
//! use linerate_stack::socket::{Listen, Stack, StackConfig};
//! use linerate_wire::MacAddr;
//!
//! let pool = Pool::new(&PoolConfig::new("rx", 256))?;
//! let mut out = Egress::new(PoolCache::new(&[pool]));
//! let config = StackConfig { connections: 16, ..StackConfig::default() };
//! let mut stack = Stack::new(&config, 0, &mut out)?;
//! let lan = InterfaceConfig {
//!     port: 0,
//!     mac: MacAddr::local(1),
//!     addresses: vec![("192.0.2.1".parse()?, 24)],
//!     ..InterfaceConfig::default()
//! };
//! stack.host().add_interface(lan, 0, &mut out)?;
//! let mut io = stack.io(0, &mut out);
//! let web = io.listen(Listen::on(80)).expect("nobody listens there yet");
//! assert!(io.accept(web).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A stack can go to another thread, but two threads cannot have it:
//! ```compile_fail,E0277
//! fn shared<T: Sync>(_: &T) {}
//! fn share(stack: &linerate_stack::socket::Stack) {
//!     shared(stack);
//! }
//! ```

mod change;
mod config;
mod cookies;
mod io;
mod listener;
mod moving;
mod poll;
mod receive;
mod settle;
mod slots;
mod steer;
#[cfg(test)]
mod tests;
mod way;

pub use config::{Connect, IpOptions, Listen, StackConfig};
pub use io::{ConnectError, Io};
pub use listener::ListenerId;
pub use moving::{Detached, Refused};
pub use poll::{Event, Source, interest};
pub use slots::SocketId;
pub use steer::{Ended, PortChoice, PortRule};

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, NEVER};
use linerate_tables::TableError;
use linerate_tables::wheel::Wheel;
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use crate::host::ping::Ping;
use crate::host::udp::Udp;
use crate::host::{Host, HostError, Inbound};
use crate::tcp::connection::Shared;
use crate::tcp::cookie::Cookies;
use crate::tcp::fast_open::Keys;
use crate::tcp::few::Few;
use crate::tcp::metrics::Metrics;
use crate::tcp::ports::Chooser;
use crate::tcp::rate::Challenges;
use crate::tcp::receive::Pieces;
use crate::tcp::secret::Secret;
use crate::tcp::send_buffer::Chunks;
use crate::tcp::sent::Records;
use crate::tcp::stats::Stats;
use crate::tcp::time_wait::TimeWait;
use listener::Listeners;
use poll::Ready;
use slots::Slots;

/// Ticks of the timers are 2^14 ns, 16 us.
const TICK_SHIFT: u32 = 14;
/// Timers that one turn handles at most, and moves of them.
const TIMERS_A_TURN: usize = 1024;
/// Records of TIME-WAIT that one turn looks at.
const LINGERING_A_TURN: usize = 256;
/// What the secret of Fast Open's cookies is derived for.
const FAST_OPEN: u64 = 7413;

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The host could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A table could not.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] linerate_core::MemError),
}

/// What has become of segments and connections, beside [`Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Segments that no connection or listener took; answered by a reset.
    pub no_connection: u64,
    /// SYNs that were answered by a cookie.
    pub cookies_sent: u64,
    /// Connections that came of one.
    pub cookies_good: u64,
    /// ACKs that were none.
    pub cookies_bad: u64,
    /// SYNs and last ACKs of handshakes that found the backlog full.
    pub backlog_full: u64,
    /// SYNs and connects that found no room for another connection.
    pub no_room: u64,
    /// Connections opened here that found no free port.
    pub no_port: u64,
    /// ICMP errors that were of no connection, or could not be.
    pub errors_ignored: u64,
}

/// The host stack of one lcore.
pub struct Stack {
    host: Host,
    udp: Udp,
    ping: Ping,
    /// Facts of the burst at work; `None` while they are in use.
    inbound: Option<Box<Inbound>>,
    slots: Slots,
    listeners: Listeners,
    lingering4: TimeWait<16, FlowKey4>,
    lingering6: TimeWait<40, FlowKey6>,
    shared: Shared,
    cookies: Cookies,
    fast_open: Keys,
    chooser: Chooser,
    secret: Secret,
    wheel: Wheel,
    /// When a timer or a record in TIME-WAIT is due at the earliest, in nanoseconds; 0: unknown.
    due_ns: u64,
    ready: Ready,
    /// Connections to which something has happened in this burst.
    touched: Vec<u32>,
    /// Those that have a short frame waiting behind long ones.
    written: Vec<u32>,
    /// Those that found no chunk to write to, the first first.
    starved: VecDeque<u32>,
    stats: SocketStats,
    /// Which ports bring answers here; without, all do.
    rule: Option<Box<dyn PortRule>>,
    /// Connections that are to go to another lcore.
    leaving: Vec<(SocketId, u8)>,
    ports: std::ops::RangeInclusive<u16>,
    /// `Send`, not `Sync`.
    not_shared: PhantomData<Cell<()>>,
}

impl Stack {
    /// A stack without interfaces. Drop reasons are those of `out`, and every later call gets the
    /// same.
    ///
    /// # Errors
    /// No memory, or a limit that is not possible.
    pub fn new(config: &StackConfig, now_ns: u64, out: &mut Egress) -> Result<Self, StackError> {
        let timestamps = config.tcp.timestamps;
        let lingering = |config: &crate::tcp::time_wait::Config| crate::tcp::time_wait::Config {
            has_ts: config.has_ts && timestamps,
            ..config.clone()
        };
        let slots = Slots::new(config.connections, &config.tcp)?;
        Ok(Self {
            host: Host::new(&config.host, now_ns, out)?,
            udp: Udp::new(&config.udp)?,
            ping: Ping::new(&config.ping),
            inbound: Some(Box::new(Inbound::new())),
            listeners: Listeners::new(),
            lingering4: TimeWait::new(&lingering(&config.time_wait), config.secret)?,
            lingering6: TimeWait::new(&lingering(&config.time_wait), config.secret)?,
            shared: Shared {
                config: config.tcp.clone(),
                records: Records::new(config.sent_frames),
                pieces: Pieces::new(config.received_pkts, config.received_bytes)?
                    .with_large_slots(config.received_large),
                chunks: Chunks::new(config.send_chunks)?,
                stats: Stats::default(),
                challenges: Challenges::new(config.challenges_per_s, &config.secret),
                metrics: Metrics::new(&config.metrics)?,
                urgents: Few::new(),
                searches: Few::new(),
            },
            cookies: Cookies::new(config.secret),
            fast_open: Keys::new(config.secret.derived(FAST_OPEN)),
            chooser: Chooser::new(&config.secret),
            secret: config.secret,
            wheel: Wheel::new(
                "tcp timers",
                config.connections as usize,
                now_ns >> TICK_SHIFT,
            )?,
            due_ns: 0,
            ready: Ready::default(),
            touched: Vec::with_capacity(2 * Burst::CAPACITY),
            written: Vec::with_capacity(2 * Burst::CAPACITY),
            starved: VecDeque::new(),
            stats: SocketStats::default(),
            rule: None,
            leaving: Vec::new(),
            ports: config.ports.clone(),
            slots,
            not_shared: PhantomData,
        })
    }

    /// Its host: interfaces, routes, neighbours.
    pub fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Counters of its TCP.
    pub fn tcp_stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Counters of its sockets.
    pub fn stats(&self) -> &SocketStats {
        &self.stats
    }

    /// Connections, half-open ones included.
    pub fn connections(&self) -> u32 {
        self.slots.used()
    }

    /// Connections in TIME-WAIT.
    pub fn lingering(&self) -> usize {
        self.lingering4.len() + self.lingering6.len()
    }

    /// Bytes of an idle connection: record, index, timer.
    pub fn bytes_per_connection(&self) -> usize {
        self.slots.bytes_per_connection() + 16
    }

    /// Settings of connections to come.
    pub fn settings(&mut self) -> &mut crate::tcp::config::Config {
        &mut self.shared.config
    }

    /// What is remembered of hosts (RFC 9040).
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Gives Fast Open's cookies by another key from now on; those of the present one are taken
    /// until the next change (RFC 7413 4.1.2).
    pub fn rotate_fast_open(&mut self, key: Secret) {
        self.fast_open.rotate(key);
    }

    /// Whether a connection is here, by its key as segments that arrive have it.
    pub fn has(&self, key: &FlowKey) -> bool {
        self.slots.find(key).is_some()
    }

    /// For the user's calls at a time.
    #[inline]
    pub fn io<'a>(&'a mut self, now_ns: u64, out: &'a mut Egress) -> Io<'a> {
        Io {
            stack: self,
            out,
            now_ns,
        }
    }

    /// Handles timers, and sends what waited for more. To be called behind the user's calls and
    /// when it said, or earlier. Returns when it has to be called next, in nanoseconds; [`NEVER`]
    /// if only packets give it work.
    pub fn turn(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        if !self.written.is_empty() {
            self.settle_written(now_ns, out);
        }
        if self.can_feed() {
            self.feed(now_ns, out);
        }
        let next = self.turn_timers(now_ns, out);
        match self.written.is_empty() {
            true => next,
            false => now_ns,
        }
    }

    fn turn_timers(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        if now_ns < self.due_ns && self.host.is_quiet(now_ns) {
            return self.due_ns.min(self.host.turn(now_ns, out));
        }
        let mut next = self.host.turn(now_ns, out);
        if self.host.has_waiting() {
            let mut burst = Burst::new();
            self.receive(&mut burst, now_ns, out);
            next = next.min(match self.host.has_waiting() {
                true => now_ns,
                false => NEVER,
            });
        }
        let mut budget = TIMERS_A_TURN;
        while let Some((index, _)) = self.wheel.pop(now_ns >> TICK_SHIFT, &mut budget) {
            self.on_timer(index, now_ns, out);
        }
        let mut looked = self.lingering4.expire(now_ns, LINGERING_A_TURN);
        looked = looked.max(self.lingering6.expire(now_ns, LINGERING_A_TURN));
        self.due_ns = 0;
        if budget == 0 || looked >= LINGERING_A_TURN {
            return now_ns;
        }
        let timer = self.wheel.next_expiry().map(|tick| tick << TICK_SHIFT);
        let lingering = [
            self.lingering4.next_expiry_ns(now_ns),
            self.lingering6.next_expiry_ns(now_ns),
        ];
        let due = lingering.into_iter().chain([timer]).flatten().min();
        self.due_ns = due.unwrap_or(NEVER);
        next.min(self.due_ns)
    }

    /// Whether its turn need not wait for its time.
    pub fn has_waiting(&self) -> bool {
        self.host.has_waiting() || !self.written.is_empty() || self.can_feed()
    }

    /// The packets that came in slots that it keeps, for the ledger: those of TCP were done with
    /// when they came, though their bytes wait to be read.
    pub fn held_packets(&self) -> u64 {
        self.host.held_packets() + self.udp.held() + self.ping.held()
    }

    /// Slots that it keeps, for the ledger.
    pub fn held(&self) -> u64 {
        self.host.held()
            + self.udp.held()
            + self.ping.held()
            + u64::from(self.shared.pieces.charged_slots())
    }
}
