//! The HTTP server of an lcore: GET and HEAD, connections that are kept, requests that come before
//! the last one is answered.
//!
//! A connection goes through [`Phase`]s. All of it is bounded: the head of a request, its body,
//! what a round does for one connection, and how long each phase may take, so that a peer that
//! sends or reads byte by byte (slowloris) is left. A head that came whole in one packet is read
//! where it lies; only parts of one are copied. A short answer is written where it is sent from.
//!
//! [`asks`] has what comes, [`answers`] what goes, [`connection`] how far a connection is.

mod answers;
mod asks;
mod connection;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_core::run::NEVER;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, interest};
use linerate_tables::wheel::Wheel;

use super::answer::{Date, MOST_HEAD, Status, date, front};
use super::site::{Site, TEXT};
use crate::app::{App, Error, Listening, Tokens};
use answers::FIRST;
use connection::{Connection, Phase, Step};

/// Steps of one connection in a round: heads, pieces of bodies, answers.
const STEPS: usize = 32;
/// Ticks of the timers are 2^24 ns, 17 ms.
const TICK_SHIFT: u32 = 24;
/// Timers that one turn handles at most.
const TIMERS_A_TURN: usize = 256;
/// Bytes that count as progress: below so many in the time of a stall a connection is left.
const PROGRESS: u64 = 4096;
/// How long what still comes is discarded after the last answer (RFC 9112 9.6), in nanoseconds.
const LINGER_NS: u64 = 2_000_000_000;
/// No resource.
const NONE: u32 = u32::MAX;

/// What a peer may ask for, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at most: as many as the stack has.
    pub connections: u32,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Bytes of a request's body.
    pub body_bytes: u64,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long the head of a request may take from its first byte.
    pub head: Duration,
    /// How long a body, either way, may take for 4 KiB.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            head_bytes: 8192,
            body_bytes: 16 << 20,
            idle: Duration::from_secs(60),
            head: Duration::from_secs(10),
            stall: Duration::from_secs(30),
        }
    }
}

/// Whether a server goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Goes,
    /// Another one has come in its place: connections are released between two requests.
    Replaced,
    /// None has: each answer is the last on its connection.
    Ends,
}

/// Serves a [`Site`].
pub struct Server {
    on: Listening,
    site: Arc<Site>,
    limits: Limits,
    token: u64,
    life: Life,
    /// Connections for the server that has come in this one's place.
    released: Vec<SocketId>,
    all: Vec<Connection>,
    timers: Wheel,
    scratch: Box<[u8]>,
    /// By status: the front of the head of an answer that has no resource.
    fronts: [Box<[u8]>; Status::ALL.len()],
    date: Date,
    date_due_ns: u64,
    open: u64,
    accepted: u64,
    timed_out: u64,
    failed: u64,
    bytes: u64,
    by_status: [u64; Status::ALL.len()],
}

impl Server {
    /// Listens as `on` says.
    ///
    /// # Errors
    /// There is no memory for timers.
    pub fn new(on: Listen, site: Arc<Site>, limits: Limits, tokens: Tokens) -> Result<Self, Error> {
        let timers = Wheel::new("http timers", limits.connections as usize, 0);
        Ok(Self {
            on: Listening::new(on, tokens.token(0)),
            site,
            limits,
            token: tokens.token(0),
            life: Life::Goes,
            released: Vec::new(),
            all: Vec::new(),
            timers: timers.map_err(|error| Error::Table(error.to_string()))?,
            scratch: vec![0; MOST_HEAD + FIRST].into(),
            fronts: Status::ALL.map(|status| front(status, status.line().len() as u64, TEXT)),
            date: date(0),
            date_due_ns: 0,
            open: 0,
            accepted: 0,
            timed_out: 0,
            failed: 0,
            bytes: 0,
            by_status: [0; Status::ALL.len()],
        })
    }

    fn begin(&mut self, io: &mut Io<'_>, id: SocketId) {
        let index = id.index();
        if self.all.len() <= index {
            self.all.resize_with(index + 1, Connection::default);
        }
        (self.open, self.accepted) = (self.open + 1, self.accepted + 1);
        let connection = &mut self.all[index];
        // The room for parts is kept.
        let mut part = std::mem::take(&mut connection.part);
        part.clear();
        *connection = Connection {
            id: Some(id),
            phase: Phase::Head,
            part,
            ..Connection::default()
        };
        self.due(index, io.now_ns(), self.limits.idle);
        match io.readable(id) {
            // One that has ended is told as an event too.
            0 => self.wait(io, id, interest::READ),
            _ => self.serve(io, id),
        }
    }

    /// The connection is left in so much time, unless it gets further.
    fn due(&mut self, index: usize, now_ns: u64, after: Duration) {
        self.due_ns(index, now_ns, after.as_nanos() as u64);
    }

    fn due_ns(&mut self, index: usize, now_ns: u64, after_ns: u64) {
        let connection = &mut self.all[index];
        connection.deadline_ns = now_ns.saturating_add(after_ns);
        connection.progress = 0;
        let tick = (connection.deadline_ns >> TICK_SHIFT) + 1;
        let timer = index as u32;
        // One that fires too early is set anew.
        if self.timers.deadline(timer).is_none_or(|known| tick < known) {
            self.timers.schedule(timer, tick);
        }
    }

    /// Bytes have gone either way: enough of them count.
    fn progress(&mut self, index: usize, now_ns: u64, bytes: u64) {
        self.all[index].progress += bytes;
        if self.all[index].progress >= PROGRESS {
            self.due(index, now_ns, self.limits.stall);
        }
    }

    fn end(&mut self, io: &mut Io<'_>, id: SocketId) {
        io.close(id);
        self.forget(id);
    }

    fn fail(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.failed += 1;
        io.abort(id);
        self.forget(id);
    }

    /// A connection is its next server's.
    fn release(&mut self, id: SocketId) {
        self.forget(id);
        self.released.push(id);
    }

    fn forget(&mut self, id: SocketId) {
        self.open -= 1;
        let connection = &mut self.all[id.index()];
        (connection.phase, connection.id) = (Phase::Free, None);
        // A head of many parts does not keep its memory.
        connection.part.shrink_to(1024);
        self.timers.cancel(id.index() as u32);
    }

    /// Does what can be done for a connection.
    fn serve(&mut self, io: &mut Io<'_>, id: SocketId) {
        let index = id.index();
        for _ in 0..STEPS {
            let step = match self.all[index].phase {
                Phase::Free => return,
                Phase::Head => self.head(io, id),
                Phase::Body => self.body(io, id),
                Phase::Answer => self.answer(io, id),
                Phase::Linger => self.linger(io, id),
            };
            match step {
                Step::Next => {}
                Step::Gone => return,
                Step::Wait(wanted) => return self.wait(io, id, wanted),
            }
        }
        let wanted = match self.all[index].phase {
            Phase::Answer => interest::WRITE,
            _ => interest::READ,
        };
        self.wait(io, id, wanted);
    }

    fn wait(&mut self, io: &mut Io<'_>, id: SocketId, wanted: u8) {
        let connection = &mut self.all[id.index()];
        if connection.wanted != wanted {
            connection.wanted = wanted;
            // One that has ended is told as an error.
            let _ = io.register(id, wanted, self.token);
        }
    }

    /// A connection has taken too long.
    fn on_timer(&mut self, io: &mut Io<'_>, index: usize) {
        let connection = &self.all[index];
        let Some(id) = connection.id else { return };
        let now_ns = io.now_ns();
        if connection.deadline_ns > now_ns {
            let tick = (connection.deadline_ns >> TICK_SHIFT) + 1;
            return self.timers.schedule(index as u32, tick);
        }
        match connection.phase {
            Phase::Free => {}
            Phase::Head if connection.part.is_empty() => self.end(io, id),
            Phase::Head | Phase::Body => {
                self.timed_out += 1;
                self.refuse(index, now_ns, Status::Timeout);
                self.serve(io, id);
            }
            Phase::Answer => {
                self.timed_out += 1;
                self.fail(io, id);
            }
            Phase::Linger => self.end(io, id),
        }
    }
}

impl App for Server {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.on.start(io)
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.begin(io, id);
                    }
                }
                Source::Connection(id) => {
                    if self
                        .all
                        .get(id.index())
                        .is_some_and(|one| one.id == Some(id))
                    {
                        if event.ready & interest::ERROR != 0 && io.readable(id) == 0 {
                            self.fail(io, id);
                        } else {
                            self.serve(io, id);
                        }
                    }
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let now_ns = io.now_ns();
        // RFC 9110 5.6.7: a second is as fine as a date is.
        if now_ns >= self.date_due_ns {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let since = since.unwrap_or_default();
            self.date = date(since.as_secs());
            let left = 1_000_000_000 - u64::from(since.subsec_nanos());
            self.date_due_ns = now_ns.saturating_add(left);
        }
        let mut budget = TIMERS_A_TURN;
        while let Some((index, _)) = self.timers.pop(now_ns >> TICK_SHIFT, &mut budget) {
            self.on_timer(io, index as usize);
        }
        if budget == 0 {
            return now_ns;
        }
        let tick = self.timers.next_expiry();
        tick.map_or(NEVER, |tick| tick << TICK_SHIFT)
    }

    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.begin(io, id);
    }

    fn listening(&mut self) -> Option<&mut Listening> {
        Some(&mut self.on)
    }

    fn retire(&mut self, io: &mut Io<'_>, has_successor: bool) {
        self.life = match has_successor {
            true => Life::Replaced,
            false => Life::Ends,
        };
        let is_idle = |one: &&Connection| one.phase == Phase::Head && one.part.is_empty();
        let idle = self.all.iter().filter(is_idle);
        for id in idle.filter_map(|one| one.id).collect::<Vec<_>>() {
            match self.life {
                Life::Replaced => self.release(id),
                // What has come of a request is answered first.
                _ if io.readable(id) > 0 => {}
                _ => self.end(io, id),
            }
        }
    }

    fn released(&mut self) -> Option<SocketId> {
        self.released.pop()
    }

    fn open(&self) -> u64 {
        self.open
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![
            ("open", self.open),
            ("accepted", self.accepted),
            ("bytes", self.bytes),
            ("failed", self.failed),
            ("timed_out", self.timed_out),
        ];
        let statuses = Status::ALL.iter().zip(self.by_status);
        counts.extend(statuses.map(|(status, count)| (&status.line()[..3], count)));
        counts
    }
}
