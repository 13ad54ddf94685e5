//! The HTTP server of an lcore: GET and HEAD, connections that are kept, requests that come before
//! the last one is answered.
//!
//! A connection goes through [`Phase`]s. All of it is bounded: the head of a request, its body,
//! what a round does for one connection, and how long each phase may take, so that a peer that
//! sends or reads byte by byte (slowloris) is left. A head that came whole in one packet is read
//! where it lies; only parts of one are copied.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_core::run::NEVER;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, interest};
use linerate_stack::tcp::connection::Error as Ended;
use linerate_tables::wheel::Wheel;

use super::answer::{Head, MOST_HEAD, Status, date};
use super::body::Body;
use super::request::{self, Method, Request, Wrong};
use super::site::{Content, Site};
use crate::app::{App, Error, Tokens, listen};

/// Steps of one connection in a round: heads, pieces of bodies, answers.
const STEPS: usize = 32;
/// Bytes of a body that are written at a time.
const PIECE: usize = 64 << 10;
/// The part of a body that goes along with its head, in bytes.
const FIRST: usize = 16 << 10;
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

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is none.
    #[default]
    Free,
    /// A request is waited for, or its head under way.
    Head,
    /// The body of a request is being discarded.
    Body,
    /// The answer is being written.
    Answer,
    /// All is said; what still comes is discarded until the peer ends it.
    Linger,
}

/// What a step has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next one.
    Next,
    /// Nothing, until this is so.
    Wait(u8),
    /// The connection is no more.
    Gone,
}

#[derive(Debug, Default)]
struct Connection {
    id: Option<SocketId>,
    phase: Phase,
    /// What was last asked for, so that it is not asked again.
    wanted: u8,
    /// Whether it goes on after this answer.
    keeps: bool,
    is_1_1: bool,
    /// The request's body.
    body: Option<Body>,
    body_left: u64,
    status: Option<Status>,
    resource: u32,
    /// Whether the head of the answer is still to be written.
    has_head: bool,
    /// Bytes of the answer's body that are written, and all of them.
    at: u64,
    end: u64,
    progress: u64,
    deadline_ns: u64,
    /// The beginning of a head that came in parts, or of an answer's head for which there was no
    /// room.
    part: Vec<u8>,
}

/// Serves a [`Site`].
pub struct Server {
    on: Listen,
    site: Arc<Site>,
    limits: Limits,
    token: u64,
    all: Vec<Connection>,
    timers: Wheel,
    scratch: Box<[u8]>,
    date: String,
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
            on,
            site,
            limits,
            token: tokens.token(0),
            all: Vec::new(),
            timers: timers.map_err(|error| Error::Table(error.to_string()))?,
            scratch: vec![0; MOST_HEAD + FIRST].into(),
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
        self.serve(io, id);
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

    /// Reads the head of a request.
    fn head(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let (limits, site) = (self.limits, &self.site);
        let part = &mut self.all[index].part;
        let was_empty = part.is_empty();
        let mut found = None;
        let mut is_end = true;
        let read = io.consume(id, |bytes| {
            is_end = false;
            read_head(bytes, part, &limits, site, &mut found)
        });
        match (read, found) {
            (Err(Ended::WouldBlock), _) => Step::Wait(interest::READ),
            (Err(_), _) => {
                self.fail(io, id);
                Step::Gone
            }
            // The peer sends no more, and nobody waits for an answer.
            (Ok(_), None) if is_end => {
                self.end(io, id);
                Step::Gone
            }
            (Ok(_), None) => {
                if was_empty {
                    self.due(index, io.now_ns(), limits.head);
                }
                Step::Next
            }
            (Ok(_), Some(Err(wrong))) => {
                self.refuse(index, io.now_ns(), wrong.into());
                Step::Next
            }
            (Ok(_), Some(Ok((request, resource)))) => self.asked(io, id, &request, resource),
        }
    }

    /// A head is there.
    fn asked(&mut self, io: &mut Io<'_>, id: SocketId, request: &Request, resource: u32) -> Step {
        let index = id.index();
        let resource_of = self.site.get(resource);
        let status = match (resource_of, request.method) {
            (None, _) => Status::NotFound,
            (Some(_), Method::Other) => Status::NotAllowed,
            (Some(_), _) => Status::Ok,
        };
        let body_bytes = match (status, resource_of) {
            (Status::Ok, Some(resource)) => resource.content.len(),
            _ => text_of(status).len() as u64,
        };
        let connection = &mut self.all[index];
        connection.keeps = request.keeps;
        connection.is_1_1 = request.is_1_1;
        connection.status = Some(status);
        connection.resource = match status {
            Status::Ok => resource,
            _ => NONE,
        };
        (connection.at, connection.end) = (0, body_bytes);
        connection.has_head = true;
        if request.method == Method::Head {
            // Its length is said, and nothing sent (RFC 9110 9.3.2).
            connection.at = connection.end;
        }
        connection.body = Some(request.body);
        connection.body_left = self.limits.body_bytes;
        connection.phase = match request.body.is_done() {
            true => Phase::Answer,
            false => Phase::Body,
        };
        self.due(index, io.now_ns(), self.limits.stall);
        if request.expects {
            const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
            // There is room for it in an empty buffer; where there is not, the peer goes on
            // without it after a while (RFC 9110 10.1.1).
            if io.writable(id) >= CONTINUE.len() {
                let _ = io.write(id, CONTINUE);
            }
        }
        Step::Next
    }

    /// What came is no request that can be answered otherwise: the connection ends after this.
    fn refuse(&mut self, index: usize, now_ns: u64, status: Status) {
        let connection = &mut self.all[index];
        connection.part.clear();
        connection.phase = Phase::Answer;
        (connection.keeps, connection.is_1_1) = (false, true);
        connection.status = Some(status);
        connection.resource = NONE;
        (connection.at, connection.end) = (0, text_of(status).len() as u64);
        connection.has_head = true;
        self.due(index, now_ns, self.limits.stall);
    }

    /// Discards the body of a request.
    fn body(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let Some(mut body) = self.all[index].body else {
            self.all[index].phase = Phase::Answer;
            return Step::Next;
        };
        let mut taken = None;
        let read = io.consume(id, |bytes| {
            let result = body.take(bytes);
            taken = Some(result);
            result.map_or(bytes.len(), |(count, _)| count)
        });
        let count = match (read, taken) {
            (Err(Ended::WouldBlock), _) => return Step::Wait(interest::READ),
            // The end, before that of the body.
            (Err(_), _) | (Ok(_), None) => {
                self.fail(io, id);
                return Step::Gone;
            }
            (Ok(_), Some(Err(_))) => {
                self.refuse(index, io.now_ns(), Status::BadRequest);
                return Step::Next;
            }
            (Ok(count), Some(Ok((_, content)))) => {
                let left = &mut self.all[index].body_left;
                if content > *left {
                    self.refuse(index, io.now_ns(), Status::BodyTooLarge);
                    return Step::Next;
                }
                *left -= content;
                count as u64
            }
        };
        self.all[index].body = Some(body);
        if body.is_done() {
            self.all[index].phase = Phase::Answer;
            self.due(index, io.now_ns(), self.limits.stall);
        } else {
            self.progress(index, io.now_ns(), count);
        }
        Step::Next
    }

    /// Writes what there is room for of the answer.
    fn answer(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let written = match self.all[index].has_head {
            true => self.first(io, id),
            false => self.more(io, id),
        };
        let count = match written {
            Ok(0) | Err(Ended::WouldBlock) if !self.all[index].is_written() => {
                return Step::Wait(interest::WRITE);
            }
            Ok(count) => count as u64,
            Err(Ended::WouldBlock) => 0,
            Err(_) => {
                self.fail(io, id);
                return Step::Gone;
            }
        };
        self.bytes += count;
        let connection = &mut self.all[index];
        if !connection.is_written() {
            self.progress(index, io.now_ns(), count);
            return Step::Next;
        }
        if connection.keeps {
            connection.phase = Phase::Head;
            self.due(index, io.now_ns(), self.limits.idle);
            return Step::Next;
        }
        connection.phase = Phase::Linger;
        let _ = io.shutdown(id);
        self.due_ns(index, io.now_ns(), LINGER_NS);
        Step::Next
    }

    /// The head of the answer, and what fits behind it, in one write and so in one segment.
    fn first(&mut self, io: &mut Io<'_>, id: SocketId) -> Result<usize, Ended> {
        let connection = &mut self.all[id.index()];
        let status = connection.status.unwrap_or(Status::Ok);
        let resource = self.site.get(connection.resource);
        let mut head = [0; MOST_HEAD];
        let media_type = resource.map_or("text/plain; charset=utf-8", |one| one.media_type);
        let words = Head {
            status,
            len: connection.end,
            media_type,
            connection: match (connection.keeps, connection.is_1_1) {
                (false, _) => Some("close"),
                (true, false) => Some("keep-alive"),
                (true, true) => None,
            },
            date: &self.date,
        };
        let len = words.write(&mut head);
        if io.writable(id) < len {
            // Of one that has ended, the write says by what.
            return io.write(id, &[]).and(Err(Ended::WouldBlock));
        }
        let (to, behind) = self.scratch.split_at_mut(len);
        to.copy_from_slice(&head[..len]);
        let left = (connection.end - connection.at).min(FIRST as u64) as usize;
        let count = match resource {
            Some(resource) => resource.content.copy(connection.at, &mut behind[..left]),
            None => copy_text(status, connection.at, &mut behind[..left]),
        };
        let written = io.write(id, &self.scratch[..len + count])?;
        connection.has_head = false;
        self.by_status[status as usize] += 1;
        // For want of memory even of the head some may be left.
        connection
            .part
            .extend_from_slice(&self.scratch[written.min(len)..len]);
        connection.at += written.saturating_sub(len) as u64;
        Ok(written)
    }

    /// What follows.
    fn more(&mut self, io: &mut Io<'_>, id: SocketId) -> Result<usize, Ended> {
        let connection = &mut self.all[id.index()];
        if !connection.part.is_empty() {
            let written = io.write(id, &connection.part)?;
            connection.part.drain(..written);
            return Ok(written);
        }
        let left = (connection.end - connection.at).min(PIECE as u64) as usize;
        if left == 0 {
            return Ok(0);
        }
        let from = connection.at;
        let status = connection.status.unwrap_or(Status::Ok);
        let resource = self.site.get(connection.resource);
        let written = match resource.map(|resource| &resource.content) {
            Some(Content::Bytes(bytes)) => {
                let from = from as usize;
                io.write(id, &bytes[from..from + left])?
            }
            Some(content) => io.write_with(id, left, |room| {
                let count = left.min(room.len());
                content.copy(from, &mut room[..count])
            })?,
            None => {
                let count = copy_text(status, from, &mut self.scratch[..left.min(FIRST)]);
                io.write(id, &self.scratch[..count])?
            }
        };
        connection.at += written as u64;
        Ok(written)
    }

    /// Discards what still comes, so that no reset takes the answer away from the peer.
    fn linger(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        match io.readable(id) {
            0 => match io.read(id, &mut [0]) {
                Err(Ended::WouldBlock) => Step::Wait(interest::READ),
                _ => {
                    self.end(io, id);
                    Step::Gone
                }
            },
            _ => match io.consume(id, <[u8]>::len) {
                Ok(_) => Step::Next,
                Err(_) => {
                    self.end(io, id);
                    Step::Gone
                }
            },
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

impl Connection {
    /// Whether all of the answer is.
    fn is_written(&self) -> bool {
        !self.has_head && self.at == self.end && self.part.is_empty()
    }
}

/// What a head says: itself and the number of its resource.
type Found = Option<Result<(Request, u32), Wrong>>;

/// Reads a head from `bytes`, or from `part` and them; returns how many of them are done with.
fn read_head(
    bytes: &[u8],
    part: &mut Vec<u8>,
    limits: &Limits,
    site: &Site,
    found: &mut Found,
) -> usize {
    let before = part.len();
    let taken = bytes.len().min(limits.head_bytes.saturating_sub(before));
    let whole = match before {
        0 => &bytes[..taken],
        _ => {
            part.extend_from_slice(&bytes[..taken]);
            // Without an end of line a head has no end: it need not be read again.
            if !bytes[..taken].contains(&b'\n') && part.len() < limits.head_bytes {
                return taken;
            }
            &part[..]
        }
    };
    match request::read(whole, limits.body_bytes) {
        Ok(Some((len, request, target))) => {
            let resource = site.find(target).unwrap_or(NONE);
            *found = Some(Ok((request, resource)));
            part.clear();
            // It was not whole without some of these bytes.
            len.saturating_sub(before)
        }
        Ok(None) if whole.len() >= limits.head_bytes => {
            *found = Some(Err(Wrong::TooLarge));
            bytes.len()
        }
        Ok(None) => {
            if before == 0 {
                part.extend_from_slice(bytes);
            }
            taken
        }
        Err(wrong) => {
            *found = Some(Err(wrong));
            bytes.len()
        }
    }
}

/// The body of an answer that has no resource: its status.
fn text_of(status: Status) -> &'static str {
    status.line()
}

fn copy_text(status: Status, at: u64, to: &mut [u8]) -> usize {
    let text = text_of(status).as_bytes();
    let rest = text.get(at as usize..).unwrap_or(&[]);
    let count = rest.len().min(to.len());
    to[..count].copy_from_slice(&rest[..count]);
    count
}

impl App for Server {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        let token = self.token;
        listen(io, Listen { token, ..self.on }).map(|_| ())
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
