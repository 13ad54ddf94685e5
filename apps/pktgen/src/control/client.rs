//! A client of the JSON interface, as the screen and scripts use it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::protocol::{ANSWER_BYTES, Answer, Event, Problem, Reply, Request};
use super::wire::{Line, Lines, Wire};
use crate::Snapshot;
use linerate_appliance::error::Error;

/// What a session sends.
#[derive(Debug)]
pub(crate) enum Message {
    /// To the request of this number.
    Answer(u64, Result<Value, Problem>),
    /// To subscribers.
    Snapshot(Box<Snapshot>),
}

/// A connection to a session.
///
/// [`call`](Self::call) and what is built on it wait for the answer. The screen, which must not
/// wait, uses [`send`](Self::send) and [`receive`](Self::receive).
#[derive(Debug)]
pub(crate) struct Client {
    wire: Wire,
    lines: Lines,
    next: u64,
    /// Messages that came before the awaited answer.
    early: VecDeque<Message>,
}

impl Client {
    /// Uses a connected socket.
    pub(crate) fn over(wire: Wire) -> io::Result<Self> {
        let lines = Lines::new(wire.try_clone()?, ANSWER_BYTES);
        Ok(Self {
            wire,
            lines,
            next: 1,
            early: VecDeque::new(),
        })
    }

    /// Connects to a session's Unix socket.
    pub(crate) fn connect(path: &Path) -> Result<Self, Error> {
        let refused = |error: io::Error| Error::Usage {
            problem: format!("{}: no session answers there: {error}", path.display()),
            fix: "start one with `linerate pktgen --listen`, or name its socket: --connect PATH"
                .into(),
        };
        let stream = UnixStream::connect(path).map_err(refused)?;
        Ok(Self::over(Wire::Unix(stream))?)
    }

    /// Connects to a session that listens on TCP, and proves with `token` that it may.
    pub(crate) fn connect_tcp(address: &str, token: &str) -> Result<Self, Error> {
        let refused = |error: io::Error| Error::Usage {
            problem: format!("tcp:{address}: no session answers there: {error}"),
            fix: "start one with `linerate pktgen --listen tcp:ADDRESS:PORT --token-file FILE`"
                .into(),
        };
        let stream = TcpStream::connect(address).map_err(refused)?;
        let mut client = Self::over(Wire::Tcp(stream))?;
        client.call("hello", json!({ "token": token }))?;
        Ok(client)
    }

    /// Sends a request without waiting; returns the number that its answer will have.
    pub(crate) fn send(&mut self, mut request: Request) -> Result<u64, Problem> {
        let id = self.next;
        self.next += 1;
        request.id = id.into();
        let mut line = serde_json::to_vec(&request).map_err(|error| gone(&error.into()))?;
        line.push(b'\n');
        self.wire.write_all(&line).map_err(|error| gone(&error))?;
        Ok(id)
    }

    /// Waits for what comes next, at most `time`; none where nothing came.
    ///
    /// # Errors
    /// The session has ended.
    pub(crate) fn receive(&mut self, time: Duration) -> Result<Option<Message>, Problem> {
        match self.early.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.read(Some(time)),
        }
    }

    /// Asks a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Problem> {
        self.answer_to(Request {
            method: Some(method.into()),
            params,
            ..Request::default()
        })
    }

    /// Gives a command and waits until it is done.
    pub(crate) fn command(&mut self, line: &str) -> Result<Reply, Problem> {
        let result = self.answer_to(Request::command(line))?;
        understand(result)
    }

    /// All counts now.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, Problem> {
        understand(self.call("snapshot", Value::Null)?)
    }

    fn answer_to(&mut self, request: Request) -> Result<Value, Problem> {
        let wanted = self.send(request)?;
        loop {
            match self.read(None)? {
                Some(Message::Answer(id, result)) if id == wanted => return result,
                Some(message) => self.early.push_back(message),
                None => {}
            }
        }
    }

    fn read(&mut self, time: Option<Duration>) -> Result<Option<Message>, Problem> {
        let deadline = time.map(|time| Instant::now() + time);
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match self.lines.next(left) {
                Line::Whole(line) => return message(&line).map(Some),
                Line::Waiting if deadline.is_some_and(|end| end <= Instant::now()) => {
                    return Ok(None);
                }
                Line::Waiting => {}
                Line::TooLong | Line::Closed => {
                    return Err(gone(&io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
    }
}

fn message(line: &[u8]) -> Result<Message, Problem> {
    let value: Value = serde_json::from_slice(line).map_err(foreign)?;
    if value.get("event").is_some() {
        let event: Event = serde_json::from_value(value).map_err(foreign)?;
        return Ok(Message::Snapshot(Box::new(event.result)));
    }
    let answer: Answer = serde_json::from_value(value).map_err(foreign)?;
    let result = match (answer.error, answer.result) {
        (Some(problem), _) => Err(problem),
        (None, result) => Ok(result.unwrap_or_default()),
    };
    match (answer.id.as_u64(), result) {
        (Some(id), result) => Ok(Message::Answer(id, result)),
        // An error without a request: too many clients, or a line that was too long.
        (None, Err(problem)) => Err(problem),
        (None, Ok(_)) => Err(Problem::new("an answer without a question", VERSIONS)),
    }
}

const VERSIONS: &str = "use the same version of linerate on both sides";

fn foreign(error: serde_json::Error) -> Problem {
    Problem::new(
        format!("the other side uses another protocol: {error}"),
        VERSIONS,
    )
}

fn understand<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(foreign)
}

fn gone(error: &io::Error) -> Problem {
    Problem::new(
        format!("the session has ended: {error}"),
        "start it again, and connect",
    )
}
