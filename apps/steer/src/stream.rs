//! The applications `source` and `sink`: one sends bytes, the other takes them. Either listens, or
//! connects.

use std::net::SocketAddr;

use linerate_core::run::NEVER;
use linerate_stack::socket::{Event, Io, IpOptions, Listen, SocketId, Source, interest};
use linerate_stack::tcp::connection::Error as Ended;

use crate::app::{App, Error, Listening, Tokens, connect};
use crate::echo::wait;
use crate::pattern;

/// Bytes of one connection in a round.
const ROUND: usize = 256 << 10;
/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;
/// How long after a failed connect the next one comes, in nanoseconds.
const AGAIN_NS: u64 = 200_000_000;

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Peers: it listens.
    Listen(Listen),
    /// It does: to an address, with so many connections at a time, whose segments have this.
    Connect(SocketAddr, u32, IpOptions),
}

/// How much a source sends on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// For so many nanoseconds.
    Ns(u64),
}

/// Bytes out, or bytes in.
pub struct Stream {
    on: Option<Listening>,
    /// Where it connects to, how many connections it has there at a time, and what their segments
    /// have.
    to: Option<(SocketAddr, u32, IpOptions)>,
    /// What is sent; a sink sends nothing.
    sends: Option<Amount>,
    tokens: Tokens,
    /// By index of the connection.
    all: Vec<At>,
    open: u32,
    opened: u64,
    next_connect_ns: u64,
    bytes: u64,
    finished: u64,
    failed: u64,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    sent: u64,
    until_ns: u64,
    has_sent_all: bool,
    /// The peer sends no more; it may still read.
    is_half_closed: bool,
}

impl Stream {
    /// Sends so much to each peer.
    pub fn source(peer: Peer, amount: Amount, tokens: Tokens) -> Self {
        Self::new(peer, Some(amount), tokens)
    }

    /// Takes what peers send.
    pub fn sink(peer: Peer, tokens: Tokens) -> Self {
        Self::new(peer, None, tokens)
    }

    fn new(peer: Peer, sends: Option<Amount>, tokens: Tokens) -> Self {
        let (on, to) = match peer {
            Peer::Listen(on) => (Some(Listening::new(on, tokens.token(0))), None),
            Peer::Connect(to, connections, ip) => (None, Some((to, connections, ip))),
        };
        Self {
            on,
            to,
            sends,
            tokens,
            all: Vec::new(),
            open: 0,
            opened: 0,
            next_connect_ns: 0,
            bytes: 0,
            finished: 0,
            failed: 0,
        }
    }

    fn begin(&mut self, io: &mut Io<'_>, id: SocketId) {
        let index = id.index();
        if self.all.len() <= index {
            self.all.resize(index + 1, At::default());
        }
        self.open += 1;
        self.opened += 1;
        let for_ns = match self.sends {
            Some(Amount::Ns(ns)) => ns,
            _ => 0,
        };
        self.all[index] = At {
            until_ns: io.now_ns().saturating_add(for_ns),
            ..At::default()
        };
        let wanted = match self.sends {
            Some(_) => interest::READ | interest::WRITE,
            None => interest::READ,
        };
        wait(io, id, wanted, self.tokens.token(0));
    }

    fn end(&mut self, io: &mut Io<'_>, id: SocketId, is_good: bool) {
        io.close(id);
        self.open -= 1;
        match is_good {
            true => self.finished += 1,
            false => {
                self.failed += 1;
                self.next_connect_ns = io.now_ns() + AGAIN_NS;
            }
        }
    }

    /// Takes what has come; false if the connection has ended.
    fn take(&mut self, io: &mut Io<'_>, id: SocketId) -> bool {
        let mut taken = 0;
        while taken < ROUND {
            if io.readable(id) == 0 {
                let at = &mut self.all[id.index()];
                let is_good = match io.read(id, &mut [0]) {
                    Err(Ended::WouldBlock) => break,
                    Ok(_) if self.sends.is_some() && !at.has_sent_all => {
                        at.is_half_closed = true;
                        wait(io, id, interest::WRITE, self.tokens.token(0));
                        break;
                    }
                    result => result.is_ok(),
                };
                self.end(io, id, is_good);
                return false;
            }
            match io.consume(id, <[u8]>::len) {
                Ok(count) => {
                    taken += count;
                    if self.sends.is_none() {
                        self.bytes += count as u64;
                    }
                }
                Err(_) => {
                    self.end(io, id, false);
                    return false;
                }
            }
        }
        true
    }

    /// Sends as much as there is room for.
    fn send(&mut self, io: &mut Io<'_>, id: SocketId, amount: Amount) {
        let at = &mut self.all[id.index()];
        if at.has_sent_all {
            return;
        }
        let before = at.sent;
        while at.sent - before < ROUND as u64 {
            let left = match amount {
                Amount::Bytes(bytes) => bytes - at.sent,
                Amount::Ns(_) if io.now_ns() >= at.until_ns => 0,
                Amount::Ns(_) => u64::MAX,
            };
            if left == 0 {
                at.has_sent_all = true;
                self.bytes += at.sent - before;
                if at.is_half_closed {
                    return self.end(io, id, true);
                }
                // The peer's own end is waited for.
                let _ = io.shutdown(id);
                return wait(io, id, interest::READ, self.tokens.token(0));
            }
            let mut from = at.sent;
            let count = left.min(PIECE as u64) as usize;
            let fill = |room: &mut [u8]| {
                pattern::fill(from, room);
                from += room.len() as u64;
                room.len()
            };
            // All of it at once: a port that cuts frames takes long ones.
            match io.write_rooms(id, count, fill) {
                Ok(count) if count > 0 => at.sent += count as u64,
                // What has ended it is told as an event.
                _ => break,
            }
        }
        self.bytes += at.sent - before;
    }
}

impl App for Stream {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.on.as_mut().map_or(Ok(()), |on| on.start(io))
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
                    // It has ended. (Who has read the end of what comes is not told by reading.)
                    if event.ready & interest::ERROR != 0 && io.readable(id) == 0 {
                        self.end(io, id, false);
                        continue;
                    }
                    if event.ready & interest::READ != 0 && !self.take(io, id) {
                        continue;
                    }
                    if let Some(amount) = self.sends {
                        self.send(io, id, amount);
                    }
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let Some((to, connections, ip)) = self.to else {
            return NEVER;
        };
        // One that has had its connections is done.
        while self.open < connections && self.finished + u64::from(self.open) < connections.into() {
            if io.now_ns() < self.next_connect_ns {
                return self.next_connect_ns;
            }
            match connect(io, to, ip) {
                Ok(id) => self.begin(io, id),
                Err(_) => {
                    self.failed += 1;
                    self.next_connect_ns = io.now_ns() + AGAIN_NS;
                }
            }
        }
        NEVER
    }

    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.begin(io, id);
    }

    fn listening(&mut self) -> Option<&mut Listening> {
        self.on.as_mut()
    }

    fn retire(&mut self, _: &mut Io<'_>, _: bool) {
        self.to = None;
    }

    fn open(&self) -> u64 {
        self.open.into()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("open", self.open.into()),
            ("opened", self.opened),
            ("finished", self.finished),
            ("failed", self.failed),
            ("bytes", self.bytes),
        ]
    }
}
