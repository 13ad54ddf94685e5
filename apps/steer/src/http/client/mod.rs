//! The HTTP client of an lcore: GET after GET on some connections, as fast as answers come or by a
//! schedule.
//!
//! [`load`] says when requests leave, [`meter`] what has come of them; [`exchange`] follows one of
//! them from its first byte to the last of its answer, whose head [`known`] reads. Here connections
//! are begun and given requests.
//!
//! A latency counts from when the request should have left, not from when it did: who waits for a
//! slow server otherwise asks less, and leaves out what others would have waited ("coordinated
//! omission").

mod exchange;
mod known;
pub mod load;
pub mod meter;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_core::run::NEVER;
use linerate_stack::socket::{Event, Io, IpOptions, SocketId, Source, interest};
use linerate_tables::wheel::Wheel;

use super::site::Content;
use crate::app::{App, Error, Tokens, connect};
use exchange::{Connection, Phase};
use known::KnownHead;
use load::{Load, Schedule};
use meter::Meter;

/// Requests that one turn begins at most.
const BEGUN_A_TURN: usize = 256;
/// Ticks of the timers are 2^24 ns, 17 ms.
const TICK_SHIFT: u32 = 24;
/// Timers that one turn handles at most.
const TIMERS_A_TURN: usize = 256;
/// How long after a connection could not be begun the next one is, in nanoseconds.
const AGAIN_NS: u64 = 100_000_000;

/// What a client does.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The server.
    pub to: SocketAddr,
    /// The Host field's value.
    pub host: String,
    /// Targets that are asked for in turns (RFC 9112 3.2.1); none is the same as `/`.
    pub paths: Vec<String>,
    /// Connections at a time.
    pub connections: u32,
    /// Whether a connection has more than one request.
    pub keeps: bool,
    /// When requests leave.
    pub load: Load,
    /// How many there are in all; absent: without end.
    pub requests: Option<u64>,
    /// How long an answer may take from when its request left.
    pub timeout: Duration,
    /// What the body of each answer with status 200 has to be, if that is known.
    pub expects: Option<Content>,
    /// What segments have.
    pub ip: IpOptions,
}

impl Job {
    /// As fast as answers come, one connection that is kept, without end.
    pub fn to(server: SocketAddr) -> Self {
        Self {
            to: server,
            host: server.to_string(),
            paths: vec!["/".into()],
            connections: 1,
            keeps: true,
            load: Load::Closed,
            requests: None,
            timeout: Duration::from_secs(10),
            expects: None,
            ip: IpOptions::default(),
        }
    }

    /// The requests, by path.
    fn texts(&self) -> Vec<Box<[u8]>> {
        let end = if self.keeps {
            ""
        } else {
            "Connection: close\r\n"
        };
        let text = |path: &String| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{end}\r\n", self.host);
            text.into_bytes().into()
        };
        match self.paths.is_empty() {
            true => vec![text(&"/".into())],
            false => self.paths.iter().map(text).collect(),
        }
    }
}

/// A request: its path's number, and when it should have left.
#[derive(Clone, Copy, Debug, Default)]
struct Ask {
    path: u32,
    intended_ns: u64,
}

/// Asks a server.
pub struct Client {
    job: Job,
    texts: Vec<Box<[u8]>>,
    schedule: Option<Schedule>,
    seed: u64,
    token: u64,
    all: Vec<Connection>,
    /// Kept connections without a request, those that have been silent longest first. One that has
    /// ended is found out when its turn comes.
    idle: VecDeque<SocketId>,
    /// Requests whose connection the server ended as they left.
    again: VecDeque<Ask>,
    timers: Wheel,
    known: KnownHead,
    meter: Arc<Meter>,
    open: u32,
    begun: u64,
    next_path: u32,
    next_connect_ns: u64,
}

/// Whether a connection is there and has no request.
fn is_idle(all: &[Connection], id: SocketId) -> bool {
    let connection = &all[id.index()];
    connection.id == Some(id) && connection.phase == Phase::Idle
}

impl Client {
    /// With room for as many connections as the stack has. `seed` tells the schedules of several
    /// lcores apart; `meter` has what comes of it.
    ///
    /// # Errors
    /// There is no memory for timers.
    pub fn new(
        job: Job,
        stack_connections: u32,
        seed: u64,
        meter: Arc<Meter>,
        tokens: Tokens,
    ) -> Result<Self, Error> {
        let timers = Wheel::new("http client timers", stack_connections as usize, 0);
        Ok(Self {
            texts: job.texts(),
            job,
            schedule: None,
            seed,
            token: tokens.token(0),
            all: Vec::new(),
            idle: VecDeque::new(),
            again: VecDeque::new(),
            timers: timers.map_err(|error| Error::Table(error.to_string()))?,
            known: KnownHead::default(),
            meter,
            open: 0,
            begun: 0,
            next_path: 0,
            next_connect_ns: 0,
        })
    }

    /// Whether all requests have come to their end.
    pub fn is_done(&self) -> bool {
        self.job.requests.is_some_and(|all| self.begun >= all) && self.open == 0
    }

    /// The next request, if one is due.
    fn due(&self, now_ns: u64) -> Result<Ask, u64> {
        if let Some(ask) = self.again.front() {
            return Ok(*ask);
        }
        if self.job.requests.is_some_and(|all| self.begun >= all) {
            return Err(NEVER);
        }
        let intended_ns = match &self.schedule {
            Some(schedule) => schedule.due_ns(),
            None => now_ns,
        };
        match intended_ns <= now_ns {
            true => Ok(Ask {
                path: self.next_path,
                intended_ns,
            }),
            false => Err(intended_ns),
        }
    }

    /// That [`due`](Self::due) one leaves.
    fn leaves(&mut self) {
        if self.again.pop_front().is_some() {
            return;
        }
        self.begun += 1;
        self.meter.requests.add(1);
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        self.next_path += 1;
        if self.next_path as usize >= self.texts.len() {
            self.next_path = 0;
        }
    }

    /// Begins what is due; when to come again.
    fn begin(&mut self, io: &mut Io<'_>) -> u64 {
        let now_ns = io.now_ns();
        for _ in 0..BEGUN_A_TURN {
            let ask = match self.due(now_ns) {
                Ok(ask) => ask,
                Err(next) => {
                    if next == NEVER {
                        self.close_idle(io);
                    }
                    return next;
                }
            };
            if self.open < self.job.connections {
                if now_ns < self.next_connect_ns {
                    return self.next_connect_ns;
                }
                let Ok(id) = connect(io, self.job.to, self.job.ip) else {
                    self.meter.refused.add(1);
                    self.next_connect_ns = now_ns + AGAIN_NS;
                    return self.next_connect_ns;
                };
                self.leaves();
                self.opened(io, id, ask);
            } else if let Some(id) = self.take_idle() {
                self.leaves();
                self.ask(io, id, ask);
            } else {
                // An answer that comes gives it work.
                return NEVER;
            }
        }
        now_ns
    }

    /// The connection that has been without a request for longest.
    fn take_idle(&mut self) -> Option<SocketId> {
        loop {
            let id = self.idle.pop_front()?;
            if is_idle(&self.all, id) {
                return Some(id);
            }
        }
    }

    /// Puts a connection behind those without a request. Those that servers have ended meanwhile
    /// are found out when their turn comes, or here, where they are most.
    fn put_idle(&mut self, id: SocketId) {
        if self.idle.len() >= 2 * self.all.len() {
            let all = &self.all;
            self.idle.retain(|&id| is_idle(all, id));
        }
        self.idle.push_back(id);
    }

    /// Nothing more will be asked for.
    fn close_idle(&mut self, io: &mut Io<'_>) {
        while let Some(id) = self.take_idle() {
            io.close(id);
            self.forget(id);
        }
    }

    fn opened(&mut self, io: &mut Io<'_>, id: SocketId, ask: Ask) {
        let index = id.index();
        if self.all.len() <= index {
            self.all.resize_with(index + 1, Connection::default);
        }
        self.open += 1;
        self.meter.opened.add(1);
        self.meter.open.set(self.open.into());
        self.all[index].begin(id);
        // The request waits in the stack for the handshake.
        self.ask(io, id, ask);
    }

    /// A connection has so much time from now on.
    fn due_in(&mut self, index: usize, now_ns: u64, after: Duration) {
        let connection = &mut self.all[index];
        connection.deadline_ns = now_ns.saturating_add(after.as_nanos() as u64);
        let (tick, timer) = ((connection.deadline_ns >> TICK_SHIFT) + 1, index as u32);
        // One that fires too early is set anew.
        if self.timers.deadline(timer).is_none_or(|known| tick < known) {
            self.timers.schedule(timer, tick);
        }
    }

    fn wait(&mut self, io: &mut Io<'_>, id: SocketId, wanted: u8) {
        let connection = &mut self.all[id.index()];
        if connection.wanted != wanted {
            connection.wanted = wanted;
            // One that has ended is told as an error.
            let _ = io.register(id, wanted, self.token);
        }
    }

    /// The connection is known no more.
    fn forget(&mut self, id: SocketId) {
        self.open -= 1;
        self.meter.open.set(self.open.into());
        self.all[id.index()].end();
        self.timers.cancel(id.index() as u32);
    }

    fn on_timer(&mut self, io: &mut Io<'_>, index: usize) {
        let connection = &self.all[index];
        let Some(id) = connection.id else { return };
        match connection.phase {
            Phase::Idle => {}
            _ if connection.deadline_ns > io.now_ns() => {
                let tick = (connection.deadline_ns >> TICK_SHIFT) + 1;
                self.timers.schedule(index as u32, tick);
            }
            // Its answer was whole: the server's end of it has not come.
            Phase::Closing => {
                io.close(id);
                self.forget(id);
            }
            Phase::Head | Phase::Body => {
                self.meter.timed_out.add(1);
                io.abort(id);
                self.forget(id);
            }
        }
    }
}

impl App for Client {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.schedule = Schedule::new(self.job.load, io.now_ns(), self.seed);
        Ok(())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            if let Source::Connection(id) = event.source
                && let Some(connection) = self.all.get(id.index())
                && connection.id == Some(id)
            {
                self.serve(io, id);
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let now_ns = io.now_ns();
        let mut budget = TIMERS_A_TURN;
        while let Some((index, _)) = self.timers.pop(now_ns >> TICK_SHIFT, &mut budget) {
            self.on_timer(io, index as usize);
        }
        let next = self.begin(io);
        if let Some(schedule) = &self.schedule {
            self.meter.waiting.set(schedule.waiting(now_ns));
        }
        if budget == 0 {
            return now_ns;
        }
        let tick = self.timers.next_expiry();
        next.min(tick.map_or(NEVER, |tick| tick << TICK_SHIFT))
    }

    fn retire(&mut self, _: &mut Io<'_>, _: bool) {
        // What the server did not take is not asked for again, either.
        self.again.clear();
        self.job.requests = Some(self.begun);
    }

    fn open(&self) -> u64 {
        self.open.into()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.meter.counts()
    }
}

/// What is waited for while an answer is.
const ANSWER: u8 = interest::READ;
