//! Connections go to the lcore of their user before an application meets them.
//!
//! [`ByUser`] stands before an application that listens: it takes what is accepted, looks at the
//! first bytes without reading them, finds the user, and has the connection move to the lcore of
//! that user ([`Cores`]), where the application is given it with all its bytes. All connections of
//! a user meet on one lcore, so the user's state needs no lock.
//!
//! A connection whose first bytes name nobody stays where it is: one that says nothing for a while,
//! that ends before, or whose user is not in what comes first. So does one that cannot go
//! ([`StackHost`](crate::core::StackHost) says why).

use std::collections::VecDeque;

use linerate_stack::socket::{Event, Io, SocketId, Source, interest};
use linerate_tables::exact::Seed;

use crate::app::{App, Error, Listening, Tokens};
use crate::echo::wait;
use crate::steering::plan::Member;
use crate::steering::{Cores, Extractor, Key};

/// The token's value of a connection whose user is not known yet; applications have smaller ones.
const UNKNOWN: u64 = 1 << 55;
/// For how long its user is waited for, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Most bytes that a user is looked for in.
const MOST_BYTES: usize = 4096;

/// Where in the first bytes of a connection its user is.
#[derive(Clone, Debug)]
pub enum Extract {
    /// The first so many bytes.
    First(usize),
    /// All before the first line feed.
    Line,
    /// The value of a field of an HTTP request's head (RFC 9112 5).
    Field(String),
    /// As a function says.
    By(Extractor),
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    User(Key),
    /// More bytes may say.
    Little,
    Nobody,
}

impl Extract {
    /// Whether a file says the same of both; functions are in none.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::First(one), Self::First(other)) => one == other,
            (Self::Line, Self::Line) => true,
            (Self::Field(one), Self::Field(other)) => one == other,
            _ => false,
        }
    }

    fn find(&self, bytes: &[u8]) -> Found {
        let user = match self {
            Self::By(extract) => extract(bytes),
            Self::First(count) => bytes.get(..*count).map(hash),
            Self::Line => line(bytes).map(|(line, _)| hash(line)),
            Self::Field(name) => match field(bytes, name) {
                Ok(value) => value.map(hash),
                Err(NoField) => return Found::Nobody,
            },
        };
        match user {
            Some(user) => Found::User(user),
            None if bytes.len() >= MOST_BYTES => Found::Nobody,
            None => Found::Little,
        }
    }
}

/// A head has no such field.
struct NoField;

/// The first line without its end, and what is behind it.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

/// The value of a field; nothing while the head is not whole up to it.
fn field<'b>(mut bytes: &'b [u8], name: &str) -> Result<Option<&'b [u8]>, NoField> {
    while let Some((line, rest)) = line(bytes) {
        if line.is_empty() {
            return Err(NoField);
        }
        let colon = line.iter().position(|&byte| byte == b':');
        if let Some(colon) = colon
            && line[..colon].eq_ignore_ascii_case(name.as_bytes())
        {
            return Ok(Some(line[colon + 1..].trim_ascii()));
        }
        bytes = rest;
    }
    Ok(None)
}

/// A key for what may be longer: FNV-1a. Which lcore a key leads to is hashed once more, with a
/// secret.
fn hash(bytes: &[u8]) -> Key {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    Key(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A seed for the [`Cores`] of all lcores.
pub fn seed() -> u64 {
    Seed::random().0 as u64
}

/// An application behind a look at the first bytes.
pub struct ByUser {
    app: Box<dyn App>,
    token: u64,
    extract: Extract,
    cores: Cores,
    me: Member,
    /// Connections whose user is not known, and since when at the latest it has to be.
    waiting: VecDeque<(u64, SocketId)>,
    scratch: Box<[u8; MOST_BYTES]>,
    moved: u64,
    kept: u64,
}

impl ByUser {
    /// On lcore `me`, before an application with these tokens.
    pub fn new(
        app: Box<dyn App>,
        tokens: Tokens,
        extract: Extract,
        cores: Cores,
        me: Member,
    ) -> Self {
        Self {
            app,
            token: tokens.token(UNKNOWN),
            extract,
            cores,
            me,
            waiting: VecDeque::new(),
            scratch: Box::new([0; MOST_BYTES]),
            moved: 0,
            kept: 0,
        }
    }

    /// A connection that has not gone: to the application, as it is.
    fn keep(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.kept += 1;
        self.app.accepted(io, id);
    }

    fn look(&mut self, io: &mut Io<'_>, id: SocketId, is_last: bool) {
        let count = io.peek(id, &mut self.scratch[..]);
        match self.extract.find(&self.scratch[..count]) {
            Found::User(user) => match self.cores.core(user) {
                core if core == self.me => self.keep(io, id),
                core => {
                    // What comes meanwhile is for the application there.
                    wait(io, id, 0, self.token);
                    self.moved += 1;
                    // It is there: it has just been looked at.
                    let _ = io.move_to(id, core);
                }
            },
            // Each segment is told of, once: not for as long as there is something to read.
            Found::Little if !is_last => {}
            // It ends, or names nobody.
            Found::Little | Found::Nobody => self.keep(io, id),
        }
    }

    fn is_waiting(&self, io: &mut Io<'_>, id: SocketId) -> bool {
        io.token(id) == Some(self.token)
    }

    fn begin(&mut self, io: &mut Io<'_>, id: SocketId) {
        let due_ns = io.now_ns().saturating_add(PATIENCE_NS);
        self.waiting.push_back((due_ns, id));
        let wanted = interest::READ | interest::HANG_UP | interest::EDGE;
        wait(io, id, wanted, self.token);
    }
}

impl App for ByUser {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.app.start(io)
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.begin(io, id);
                    }
                }
                Source::Connection(id) if event.token == self.token => {
                    let is_last = event.ready & (interest::ERROR | interest::HANG_UP) != 0;
                    self.look(io, id, is_last);
                }
                Source::Connection(_) => self.app.ready(io, std::slice::from_ref(event)),
            }
        }
    }

    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.app.accepted(io, id);
    }

    fn met(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.begin(io, id);
    }

    fn listening(&mut self) -> Option<&mut Listening> {
        self.app.listening()
    }

    fn retire(&mut self, io: &mut Io<'_>, has_successor: bool) {
        self.app.retire(io, has_successor);
    }

    fn released(&mut self) -> Option<SocketId> {
        self.app.released()
    }

    fn open(&self) -> u64 {
        self.waiting.len() as u64 + self.app.open()
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        while let Some(&(due_ns, id)) = self.waiting.front() {
            let is_waiting = self.is_waiting(io, id);
            if is_waiting && due_ns > io.now_ns() {
                break;
            }
            self.waiting.pop_front();
            if is_waiting {
                self.keep(io, id);
            }
        }
        let due = self.waiting.front().map_or(u64::MAX, |&(due_ns, _)| due_ns);
        self.app.turn(io).min(due)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.app.counts();
        counts.extend([("to_user", self.moved), ("stayed", self.kept)]);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_in_what_comes_first() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nx-User:  alice \r\n\r\n";
        let by_field = Extract::Field("X-User".into());
        assert_eq!(by_field.find(head), Found::User(hash(b"alice")));
        assert_eq!(by_field.find(&head[..30]), Found::Little);
        assert_eq!(by_field.find(b"GET / HTTP/1.1\r\n\r\n"), Found::Nobody);
        assert_eq!(by_field.find(&[b'a'; MOST_BYTES]), Found::Nobody);
        assert_eq!(
            Extract::Line.find(b"bob\r\nrest"),
            Found::User(hash(b"bob"))
        );
        assert_eq!(Extract::Line.find(b"bob"), Found::Little);
        assert_eq!(Extract::First(4).find(b"12345"), Found::User(hash(b"1234")));
        assert_eq!(Extract::First(4).find(b"123"), Found::Little);
        let by = Extract::By(|bytes| bytes.first().map(|&byte| Key(byte.into())));
        assert_eq!(by.find(b"7"), Found::User(Key(b'7'.into())));
        assert_eq!(by.find(b""), Found::Little);
    }
}
