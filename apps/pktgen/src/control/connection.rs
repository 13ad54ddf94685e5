//! One client: its rights ([`Asker`]), and its requests to the session.
//!
//! A connection has two threads. One reads a request, has it answered and only then reads the next,
//! so a client delays others by one request at most. The other writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::methods;
use super::owner::{ControlHandle, Outgoing, ended, line};
use super::protocol::{Answer, Problem, REQUEST_BYTES, Request};
use super::table::{COMMANDS, Does, Done, Given, Row, Source, expanded, parse};
use super::wire::{Line, Lines, Wire};
use crate::stream::StreamSpec;
use linerate_appliance::error::Error;

/// Queued lines for a client, beyond which its requests wait and snapshots are left out.
const QUEUED: usize = 4;
/// How long a client may take to read a line, or to send the rest of one that it began.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a connection checks whether the session ends.
const LOOK: Duration = Duration::from_millis(100);
/// Lines that are no requests before the client is left alone.
const NONSENSE: u32 = 10;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Change things, not only look.
    pub(crate) change: bool,
    /// Name files of this machine: clients on it, as its user.
    pub(crate) files: bool,
}

impl Access {
    /// Everything, as the user at this machine may.
    pub(crate) const FULL: Self = Self {
        change: true,
        files: true,
    };
}

/// Source of requests: a client, or the command line with its files of commands.
pub(crate) struct Asker {
    pub(super) control: ControlHandle,
    pub(super) access: Access,
    /// Set when the session ends; waiting calls give up.
    pub(super) closing: Arc<AtomicBool>,
    /// Where events go; `None` for a source that reads no events.
    pub(super) out: Option<SyncSender<Outgoing>>,
    pub(super) subscription: Option<u64>,
    /// How deep the current file of commands is nested.
    pub(super) depth: u32,
}

impl Asker {
    pub(crate) fn new(control: ControlHandle, access: Access, closing: Arc<AtomicBool>) -> Self {
        Self {
            control,
            access,
            closing,
            out: None,
            subscription: None,
            depth: 0,
        }
    }

    /// Runs a command line; an empty one does nothing.
    pub(crate) fn command(&mut self, line: &str) -> Done {
        let line = expanded(line);
        if line.is_empty() {
            return Ok(Default::default());
        }
        let (row, given) = parse(&line)?;
        self.run(row, given)
    }

    /// Runs the command that a method stands for.
    pub(super) fn run_named(&mut self, name: &str, given: Vec<String>) -> Done {
        let row = COMMANDS.iter().find(|row| row.name == name);
        self.run(row.expect("methods name existing commands"), Given(given))
    }

    fn run(&mut self, row: &Row, given: Given) -> Done {
        let changes = !matches!(row.does, Does::Look(_));
        if changes && !self.access.change {
            return Err(Problem::new(
                format!("this client may look, but not `{}`", row.name),
                "connect where the session lets clients change things",
            ));
        }
        if !self.access.files && names_file(row, &given) {
            return Err(Problem::new(
                format!(
                    "`{}` names a file, and this client is on another machine",
                    row.name
                ),
                "give that command on the session's own machine",
            ));
        }
        match row.does {
            Does::Wait(work) => work(self, &given),
            Does::Look(work) | Does::Change(work) => {
                self.control.call(move |control| work(control, &given))?
            }
        }
    }

    /// Waits, at most until the session ends.
    pub(super) fn pause(&self, time: Duration) -> Result<(), Problem> {
        let end = Instant::now() + time;
        loop {
            if self.closing.load(Ordering::SeqCst) {
                return Err(ended());
            }
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK)),
            }
        }
    }

    /// The answer to a request.
    fn answer(&mut self, request: Request) -> Answer {
        let id = request.id.clone();
        let result = match (&request.command, &request.method) {
            (Some(command), None) => self.command(command).map(to_value),
            (None, Some(method)) => methods::call(self, method, &request),
            _ => Err(Problem::new(
                "a request has either `command` or `method`",
                r#"write {"id": 1, "command": "help"}"#,
            )),
        };
        Answer::new(id, result)
    }
}

/// Whether a command names a file of the session's machine, as an argument or as a key.
fn names_file(row: &Row, given: &Given) -> bool {
    row.args
        .iter()
        .zip(&given.0)
        .any(|(arg, text)| match arg.from {
            Source::Files => true,
            Source::Keys | Source::StreamKeys => text == "pcap",
            // The command itself refuses a word that is not a stream.
            Source::Line => text
                .parse::<StreamSpec>()
                .is_ok_and(|spec| spec.pcap.is_some()),
            _ => false,
        })
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(number) = self.subscription.take() {
            // After the end of the session there is nothing to undo.
            let _ = self
                .control
                .call(move |control| control.unsubscribe(number));
        }
    }
}

/// A value as JSON.
pub(super) fn to_value(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("what is said has only texts as keys")
}

/// Serves one client until it disconnects, breaks the protocol, or the session ends. With a
/// `token`, its first request has to be `hello` with it.
pub(super) fn serve(wire: Wire, mut asker: Asker, token: Option<&str>) -> Result<(), Error> {
    let mut writer = wire.try_clone()?;
    let ender = wire.try_clone()?;
    writer.set_write_timeout(Some(PATIENCE))?;
    let (out, queue) = mpsc::sync_channel::<Outgoing>(QUEUED);
    let write = move || {
        use std::io::Write;
        while let Ok(line) = queue.recv() {
            if writer.write_all(&line).is_err() {
                break;
            }
        }
        // Wakes the reader, which cannot answer any more.
        writer.shutdown();
    };
    let writing = std::thread::Builder::new()
        .name("to client".into())
        .spawn(write)?;
    asker.out = Some(out.clone());
    read(wire, &mut asker, token, &out);
    drop(asker);
    drop(out);
    // What is queued is still written, as long as the client reads it.
    let _ = writing.join();
    ender.shutdown();
    Ok(())
}

fn read(wire: Wire, asker: &mut Asker, token: Option<&str>, out: &SyncSender<Outgoing>) {
    let mut lines = Lines::new(wire, REQUEST_BYTES);
    let mut nonsense = 0;
    let mut known = token.is_none();
    let began = Instant::now();
    let say = |answer: Answer| out.send(line(&answer)).is_ok();
    while !asker.closing.load(Ordering::SeqCst) {
        let text = match lines.next(Some(LOOK)) {
            Line::Whole(text) => text,
            Line::Closed => return,
            Line::TooLong => {
                let problem = format!("a request of more than {REQUEST_BYTES} bytes");
                say(refusal(problem, "send shorter lines, each ended"));
                return;
            }
            Line::Waiting => {
                let slow = lines.under_way().is_some_and(|time| time > PATIENCE);
                if slow || (!known && began.elapsed() > PATIENCE) {
                    let problem = format!("no whole request in {} s", PATIENCE.as_secs());
                    say(refusal(problem, "send lines at once, each ended"));
                    return;
                }
                continue;
            }
        };
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let request: Request = match serde_json::from_slice(&text) {
            Ok(request) => request,
            Err(error) => {
                nonsense += 1;
                let fix = r#"write {"id": 1, "command": "help"} on one line"#;
                let heard = say(refusal(format!("not a request: {error}"), fix));
                if !heard || !known || nonsense >= NONSENSE {
                    return;
                }
                continue;
            }
        };
        if let (false, Some(token)) = (known, token) {
            let given = request.params.get("token").and_then(Value::as_str);
            let hello = request.method.as_deref() == Some("hello");
            known = hello && given.is_some_and(|given| same(given.as_bytes(), token.as_bytes()));
            if !known {
                // A delay, so that guessing tokens takes long.
                let _ = asker.pause(Duration::from_millis(500));
                say(refusal(
                    "the first request is to be `hello` with this session's token".into(),
                    r#"write {"id": 1, "method": "hello", "params": {"token": "..."}}"#,
                ));
                return;
            }
        }
        if !say(asker.answer(request)) {
            return;
        }
    }
}

/// An answer to no request in particular.
pub(super) fn refusal(problem: String, fix: &str) -> Answer {
    Answer::new(Value::Null, Err(Problem::new(problem, fix)))
}

/// Whether two secrets are the same, in constant time, so that timing does not reveal where they
/// differ.
fn same(given: &[u8], token: &[u8]) -> bool {
    let mut differ = given.len() ^ token.len();
    for (at, byte) in token.iter().enumerate() {
        differ |= usize::from(byte ^ given.get(at).copied().unwrap_or(!byte));
        differ = std::hint::black_box(differ);
    }
    differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_file_is_seen() {
        for (line, wanted) in [
            ("save x", true),
            ("load x", true),
            ("pcap load 0 x", true),
            ("set 0 pcap x", true),
            ("stream set 0 pcap x", true),
            ("stream add pcap=x", true),
            ("stream add size=64 pc\"ap=x\"", true),
            ("seq 0 0 pcap=x", true),
            ("set 0 size 64", false),
            ("stream add name=pcap", false),
            ("start 0", false),
        ] {
            let (row, given) = parse(line).unwrap();
            assert_eq!(names_file(row, &given), wanted, "{line}");
        }
    }

    #[test]
    fn secrets_are_the_same_or_not() {
        for (given, token, wanted) in [
            ("secret", "secret", true),
            ("secreT", "secret", false),
            ("secre", "secret", false),
            ("secrets", "secret", false),
            ("", "secret", false),
        ] {
            assert_eq!(same(given.as_bytes(), token.as_bytes()), wanted, "{given}");
        }
    }
}
