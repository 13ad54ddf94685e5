//! The screen's connection to a session, on a thread of its own: a session that is busy, or gone, never
//! stops the screen from drawing and from taking keys.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ui::Ask;
use crate::apps::pktgen::{Client, Completion, Message, Problem, Reply, Request, Snapshot};

/// Between two snapshots.
pub(super) const PERIOD: Duration = Duration::from_millis(200);
/// Longest that a question waits until it is sent on.
const PAUSE: Duration = Duration::from_millis(20);

/// What the session says.
#[derive(Debug)]
pub(super) enum Heard {
    Snapshot(Box<Snapshot>),
    Answer(Result<Reply, Problem>),
    Completion(Completion),
    Help(Result<Reply, Problem>),
    History(Vec<String>),
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
                    // Nobody listens any more where this fails.
                    let _ = tell.send(Heard::Gone(problem));
                }
            })?;
        Ok(Self { asks, heard })
    }

    /// Asks without waiting. What is asked of a session that has gone is answered by [`Heard::Gone`].
    pub(super) fn ask(&self, ask: Ask) {
        let _ = self.asks.send(ask);
    }
}

/// What an answer will be an answer to.
enum Question {
    Command,
    Completion,
    Help,
    History,
    Subscription,
}

/// Sends questions and passes answers on, until the screen has gone (no error) or the session has.
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
    let id = client.send(method("history", Value::Null))?;
    open.push((id, Question::History));
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
                    // Without completion or history one types a little more.
                    Question::Completion => {
                        Heard::Completion(result.and_then(read).unwrap_or_default())
                    }
                    Question::History => Heard::History(result.and_then(read).unwrap_or_default()),
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
