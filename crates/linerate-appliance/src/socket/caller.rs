//! The asking side: one request at a time, and its answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::{Answer, Line, Lines, Problem, Request, Wire};
use crate::error::Error;

/// Longest answer in bytes: a full routing table.
const ANSWER_BYTES: usize = 1 << 30;

/// A connection to an instance.
#[derive(Debug)]
pub struct Caller {
    wire: UnixStream,
    lines: Lines,
}

impl Caller {
    /// Connects to the socket of an instance; `fix` says how to start one, or to name its socket.
    ///
    /// # Errors
    /// No instance listens there.
    pub fn connect(path: &Path, fix: &str) -> Result<Self, Error> {
        let refused = |error: io::Error| Error::Usage {
            problem: format!("{}: no instance answers there: {error}", path.display()),
            fix: match error.kind() {
                io::ErrorKind::PermissionDenied => "ask as root, or as its user".into(),
                _ => fix.into(),
            },
        };
        let wire = UnixStream::connect(path).map_err(refused)?;
        let lines = Lines::new(Wire::Unix(wire.try_clone()?), ANSWER_BYTES);
        Ok(Self { wire, lines })
    }

    /// Asks a method and waits for its answer; what comes before it goes to `event`.
    ///
    /// # Errors
    /// The instance's error, or that it has ended.
    pub fn call(
        &mut self,
        method: &str,
        params: Value,
        mut event: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        let mut line =
            serde_json::to_vec(&Request::method(method, params)).map_err(io::Error::from)?;
        line.push(b'\n');
        self.wire.write_all(&line).map_err(gone)?;
        loop {
            let line = match self.lines.next(None) {
                Line::Whole(line) => line,
                Line::Waiting => continue,
                Line::TooLong | Line::Closed => {
                    return Err(gone(io::ErrorKind::ConnectionReset.into()));
                }
            };
            let value: Value = serde_json::from_slice(&line).map_err(io::Error::from)?;
            if value.get("event").is_some() {
                event(value.get("result").cloned().unwrap_or_default())?;
                continue;
            }
            let answer: Answer = serde_json::from_value(value).map_err(io::Error::from)?;
            return match answer.error {
                Some(problem) => Err(problem.into()),
                None => Ok(answer.result.unwrap_or_default()),
            };
        }
    }

    /// The connection, for binary data after an answer; bytes that were read already come first.
    ///
    /// # Errors
    /// Too many open files.
    pub fn into_stream(self) -> io::Result<(impl Read, UnixStream)> {
        let early = io::Cursor::new(self.lines.into_held());
        self.wire.set_read_timeout(None)?;
        Ok((early.chain(self.wire.try_clone()?), self.wire))
    }
}

fn gone(error: io::Error) -> Error {
    Problem::new(
        format!("the instance has ended: {error}"),
        "start it again; its own output says why it ended",
    )
    .into()
}
