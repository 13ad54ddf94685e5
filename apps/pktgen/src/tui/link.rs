//! The screen's connection to a session, on a thread of its own: a busy or ended session never
//! stops the screen from drawing and from taking keys.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ui::Ask;
use crate::{Client, Completion, Message, Problem, Reply, Request, Snapshot};

/// Time between two snapshots.
pub(super) const PERIOD: Duration = Duration::from_millis(200);
/// Longest time that a request waits to be sent.
const PAUSE: Duration = Duration::from_millis(20);

/// Messages of the session.
#[derive(Debug)]
pub(super) enum Heard {
    Snapshot(Box<Snapshot>),
    Answer(Result<Reply, Problem>),
    Completion(Completion),
    Help(Result<Reply, Problem>),
    /// Nothing more.
    Gone(Problem),
}

/// The other end of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Link {
    asks: Sender<Ask>,
    pub(super) heard: Receiver<Heard>,
}

impl Link {
    pub(super) fn start(client: Client) -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let (tell, heard) = mpsc::channel();
        std::thread::Builder::new()
            .name("screen-link".into())
            .spawn(move || {
                if let Err(problem) = converse(client, &asked, &tell) {
                    // If this fails the screen has been left.
                    let _ = tell.send(Heard::Gone(problem));
                }
            })?;
        Ok(Self { asks, heard })
    }

    /// Sends a request without waiting. If the session has ended the answer is [`Heard::Gone`].
    pub(super) fn ask(&self, ask: Ask) {
        let _ = self.asks.send(ask);
    }
}

/// The kind of a pending request.
enum Question {
    Command,
    Completion,
    Help,
    Subscription,
}

/// Sends requests and passes answers on, until the screen is left (no error) or the session ends.
fn converse(
    mut client: Client,
    asked: &Receiver<Ask>,
    tell: &Sender<Heard>,
) -> Result<(), Problem> {
    let mut open: Vec<(u64, Question)> = Vec::new();
    let period = json!({ "period_ms": PERIOD.as_millis() as u64 });
    let id = client.send(method("subscribe", period))?;
    open.push((id, Question::Subscription));
    let id = client.send(Request::command("help"))?;
    open.push((id, Question::Help));
    loop {
        loop {
            match asked.try_recv() {
                Ok(Ask::Command(line)) => {
                    let id = client.send(Request::command(&line))?;
                    open.push((id, Question::Command));
                }
                Ok(Ask::Complete(line, cursor)) => {
                    let params = json!({ "line": line, "cursor": cursor });
                    let id = client.send(method("complete", params))?;
                    open.push((id, Question::Completion));
                }
                // The screen handles these itself.
                Ok(Ask::SaveTheme) => {}
                Ok(Ask::Leave) | Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::TryRecvError::Empty) => break,
            }
        }
        let heard = match client.receive(PAUSE)? {
            None => continue,
            Some(Message::Snapshot(snapshot)) => Heard::Snapshot(snapshot),
            Some(Message::Answer(id, result)) => {
                let Some(at) = open.iter().position(|(other, _)| *other == id) else {
                    continue;
                };
                match open.swap_remove(at).1 {
                    Question::Command => Heard::Answer(result.and_then(read)),
                    Question::Help => Heard::Help(result.and_then(read)),
                    // Completion is optional: its errors are ignored.
                    Question::Completion => {
                        Heard::Completion(result.and_then(read).unwrap_or_default())
                    }
                    Question::Subscription => {
                        result?;
                        continue;
                    }
                }
            }
        };
        if tell.send(heard).is_err() {
            return Ok(());
        }
    }
}

fn method(name: &str, params: Value) -> Request {
    Request {
        method: Some(name.into()),
        params,
        ..Request::default()
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|error| {
        Problem::new(
            format!("the session's answer is not understood: {error}"),
            "use the same version of linerate on both sides",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    use super::*;
    use crate::Wire;

    /// Long enough for any machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A minimal session: it answers each request once, sends one snapshot to a subscriber, and
    /// ends at `quit`.
    fn session(stream: UnixStream) -> JoinHandle<Vec<String>> {
        std::thread::spawn(move || {
            let mut out = stream.try_clone().unwrap();
            let mut asked = Vec::new();
            // A client that leaves before it has read everything resets the connection.
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let request: Request = serde_json::from_str(&line).unwrap();
                let what = request.command.or(request.method).unwrap();
                // The other side may have closed; then there is nothing more to read either.
                let mut say = |value: Value| drop(writeln!(out, "{value}"));
                let id = request.id;
                match what.as_str() {
                    "quit" => break,
                    "fly" => {
                        say(json!({ "id": id, "ok": false, "error": { "problem": "no wings" } }))
                    }
                    "complete" => say(json!({ "id": id, "ok": true, "result": {
                        "begins": 0, "candidates": [{ "text": "start", "help": "to send" }] } })),
                    _ => say(json!({ "id": id, "ok": true, "result": { "text": what } })),
                }
                if what == "subscribe" {
                    let snapshot = Snapshot::default();
                    say(json!({ "id": id, "event": "snapshot", "skipped": 0, "result": snapshot }));
                }
                asked.push(what);
            }
            asked
        })
    }

    fn next(link: &Link) -> Heard {
        link.heard.recv_timeout(PATIENCE).unwrap()
    }

    #[test]
    fn answers_come_back_as_what_they_answer_and_the_end_is_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = session(theirs);
        let link = Link::start(Client::over(Wire::Unix(ours)).unwrap()).unwrap();
        assert!(matches!(next(&link), Heard::Snapshot(_)));
        assert!(matches!(next(&link), Heard::Help(Ok(reply)) if reply.text == "help"));
        link.ask(Ask::Command("stop".into()));
        assert!(matches!(next(&link), Heard::Answer(Ok(reply)) if reply.text == "stop"));
        link.ask(Ask::Command("fly".into()));
        assert!(
            matches!(next(&link), Heard::Answer(Err(problem)) if problem.problem == "no wings")
        );
        link.ask(Ask::Complete("s".into(), 1));
        assert!(matches!(next(&link), Heard::Completion(found) if found.candidates.len() == 1));
        link.ask(Ask::Command("quit".into()));
        assert!(matches!(next(&link), Heard::Gone(_)));
        let asked = session.join().unwrap();
        assert_eq!(asked, ["subscribe", "help", "stop", "fly", "complete"]);
    }

    #[test]
    fn a_screen_that_leaves_ends_its_connection() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = session(theirs);
        let link = Link::start(Client::over(Wire::Unix(ours)).unwrap()).unwrap();
        assert!(matches!(next(&link), Heard::Snapshot(_)));
        drop(link);
        // It sees the end of the stream, and ends.
        session.join().unwrap();
    }
}
