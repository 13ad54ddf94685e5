//! Users for tests: an echo that moves its connections about, and the peer that checks it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use linerate_core::run::NEVER;
use linerate_stack::socket::{Event, Io, Listen, ListenerId, SocketId, Source, interest};
use linerate_testkit::Random;

use crate::app::{App, Error, listen};
use crate::core::User;
use crate::steering::plan::Member;

/// The port that lcores listen to, and the one that the peer does.
pub(super) const ECHO: u16 = 7;
pub(super) const PEER: u16 = 9;

/// Sends back what comes, on all connections: those that it accepts, those that it opens, those
/// that come from other lcores. It keeps nothing of a connection.
pub(super) struct Echo {
    /// Connections of this lcore.
    pub(super) all: Vec<SocketId>,
    /// Connections to open.
    pub(super) connects: Vec<SocketAddr>,
    /// Connections to move, to these lcores.
    pub(super) moves: VecDeque<Member>,
    /// Closes connections whose peer has an odd port.
    pub(super) closes: bool,
    pub(super) echoed: u64,
    pub(super) failed: Vec<String>,
    random: Random,
}

impl Echo {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            all: Vec::new(),
            connects: Vec::new(),
            moves: VecDeque::new(),
            closes: false,
            echoed: 0,
            failed: Vec::new(),
            random: Random::new(seed),
        }
    }

    fn begin(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.all.push(id);
        // All of them together find room in the stack, so a write takes what was said to be free.
        io.set_send_limit(id, 128 << 10).unwrap();
        io.register(id, interest::READ, 1).unwrap();
    }

    fn end(&mut self, id: SocketId) {
        self.all.retain(|known| *known != id);
    }

    fn serve(&mut self, io: &mut Io<'_>, id: SocketId) {
        let mut buffer = [0; 4096];
        loop {
            if let Some(error) = io.error(id) {
                self.failed.push(error.to_string());
                io.close(id);
                return self.end(id);
            }
            let room = io.writable(id).min(buffer.len());
            if room == 0 {
                io.register(id, interest::WRITE, 1).unwrap();
                return;
            }
            match io.read(id, &mut buffer[..room]) {
                Ok(0) => {
                    io.close(id);
                    return self.end(id);
                }
                Ok(count) => {
                    assert_eq!(io.write(id, &buffer[..count]), Ok(count));
                    self.echoed += count as u64;
                }
                Err(_) => break,
            }
        }
        io.register(id, interest::READ, 1).unwrap();
    }
}

impl App for Echo {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        listen(io, Listen::on(ECHO)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.begin(io, id);
                    }
                }
                Source::Connection(id) if self.all.contains(&id) => self.serve(io, id),
                Source::Connection(_) => {}
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        for to in std::mem::take(&mut self.connects) {
            match io.connect(None, to) {
                Ok(id) => self.begin(io, id),
                Err(error) => self.failed.push(error.to_string()),
            }
        }
        while let Some(to) = self.moves.pop_front() {
            if self.all.is_empty() {
                break;
            }
            let id = self.all.swap_remove(self.random.below(self.all.len()));
            io.move_to(id, to).unwrap();
        }
        if self.closes {
            for id in self.all.clone() {
                let (_, remote) = io.addresses(id).unwrap();
                if remote.port() % 2 == 1 && remote.port() != PEER {
                    io.close(id);
                    self.end(id);
                }
            }
        }
        NEVER
    }
}

impl User for Echo {
    fn arrived(&mut self, io: &mut Io<'_>, id: SocketId, token: u64) -> bool {
        assert_eq!(token, 1);
        self.begin(io, id);
        true
    }

    fn stayed(&mut self, _: &mut Io<'_>, id: SocketId) {
        self.all.push(id);
    }
}

/// How far the peer is with one connection.
#[derive(Default)]
struct Checked {
    sent: u64,
    got: u64,
    salt: u8,
    ended: bool,
}

/// Sends a pattern on each connection and compares what comes back.
pub(super) struct Checker {
    all: HashMap<SocketId, Checked>,
    pub(super) listener: Option<ListenerId>,
    /// So much on each connection.
    pub(super) total: u64,
    pub(super) ended: usize,
    pub(super) opened: usize,
    pub(super) failed: Vec<String>,
    salt: u8,
}

fn pattern(at: u64, salt: u8) -> u8 {
    (at % 251) as u8 ^ salt
}

impl Checker {
    pub(super) fn new(total: u64) -> Self {
        Self {
            listener: None,
            all: HashMap::new(),
            total,
            ended: 0,
            opened: 0,
            failed: Vec::new(),
            salt: 0,
        }
    }

    pub(super) fn begin(&mut self, id: SocketId) {
        self.salt = self.salt.wrapping_add(37);
        self.opened += 1;
        let salt = self.salt;
        self.all.insert(
            id,
            Checked {
                salt,
                ..Checked::default()
            },
        );
    }

    /// Whether all has come back on all connections.
    pub(super) fn is_done(&self) -> bool {
        self.all.values().all(|one| one.got >= self.total)
    }

    /// Bytes that have come back.
    pub(super) fn got(&self) -> u64 {
        self.all.values().map(|one| one.got).sum()
    }

    /// Reads, compares, writes.
    pub(super) fn work(&mut self, io: &mut Io<'_>) {
        if let Some(listener) = self.listener {
            while let Some((id, _)) = io.accept(listener) {
                self.begin(id);
            }
        }
        let mut buffer = [0; 4096];
        let mut gone = Vec::new();
        for (&id, one) in &mut self.all {
            loop {
                match io.read(id, &mut buffer) {
                    Ok(0) => {
                        one.ended = true;
                        break;
                    }
                    Ok(count) => {
                        for &byte in &buffer[..count] {
                            assert_eq!(byte, pattern(one.got, one.salt), "at {}", one.got);
                            one.got += 1;
                        }
                    }
                    Err(_) => break,
                }
            }
            if let Some(error) = io.error(id) {
                self.failed.push(format!("{error} after {}", one.got));
                one.ended = true;
            }
            if one.ended {
                gone.push(id);
                continue;
            }
            let more = (self.total - one.sent).min(4096) as usize;
            let bytes: Vec<u8> = (one.sent..)
                .take(more)
                .map(|at| pattern(at, one.salt))
                .collect();
            if let Ok(count) = io.write(id, &bytes) {
                one.sent += count as u64;
            }
        }
        for id in gone {
            if self.all[&id].got != self.total {
                self.failed
                    .push(format!("ended after {}", self.all[&id].got));
            }
            io.close(id);
            self.all.remove(&id);
            self.ended += 1;
        }
    }

    /// Closes all that are left.
    pub(super) fn close(&mut self, io: &mut Io<'_>) {
        for (id, _) in self.all.drain() {
            self.ended += 1;
            io.close(id);
        }
    }
}
