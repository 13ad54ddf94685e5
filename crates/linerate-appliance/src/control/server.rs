//! The Unix socket that `linerate ctl` and `linerate capture` talk to: lines of JSON.
//!
//! Each client has a thread, which asks the thread that owns what it asks about and waits for it,
//! so a client never makes others wait for more than one request. A request may turn its connection
//! into a stream.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::acceptor::{Acceptor, Clients, LOOK_MS, Places};
use crate::error::Error;
use crate::socket::unix::UnixDoor;
use crate::socket::{Answer, Line, Lines, Problem, REQUEST_BYTES, Request, Wire};

/// Clients at once.
const CLIENTS: Clients = Clients {
    listener: "listener",
    client: "client",
    most: 32,
};
/// How long a client may take to read an answer, or to send the rest of a line that it began.
const PATIENCE: Duration = Duration::from_secs(10);

/// What answers requests. Each client's thread has a clone.
pub trait Service: Clone + Send + 'static {
    /// Does what a request asks, and [says](say) what came of it. Returns whether more requests may
    /// come by this connection. `closing` is set once all ends.
    ///
    /// # Errors
    /// The client does not read, or has gone.
    fn serve(
        &self,
        request: Request,
        stream: &mut UnixStream,
        closing: &AtomicBool,
    ) -> io::Result<bool>;
}

/// The listener. Dropping it sends clients away.
pub struct Server {
    _acceptor: Acceptor,
}

impl Server {
    /// Takes clients at a socket.
    ///
    /// # Errors
    /// There can be no other thread.
    pub fn listen(door: Arc<UnixDoor>, service: impl Service) -> Result<Self, Error> {
        let closing = Arc::<AtomicBool>::default();
        let (places, ends) = (Places::default(), closing.clone());
        let admit = move |stream| {
            let (service, closing) = (service.clone(), ends.clone());
            // It ends with the client, whatever the reason.
            let serve = move |stream| _ = serve(stream, &service, &closing);
            places.admit(CLIENTS, stream, serve, |mut stream| {
                let problem = format!("{} clients are connected already", CLIENTS.most);
                let problem = Problem::new(problem, "close some of them");
                // It is short: a socket takes it at once, or the client does not listen.
                let _ = say(&mut stream, Value::Null, Err(problem));
            })
        };
        let accept = move |time_ms| door.accept(time_ms);
        let acceptor = Acceptor::start(CLIENTS.listener, closing, accept, admit)?;
        Ok(Self {
            _acceptor: acceptor,
        })
    }
}

/// Writes one answer.
///
/// # Errors
/// The client does not read, or has gone.
pub fn say(stream: &mut UnixStream, id: Value, result: Result<Value, Problem>) -> io::Result<()> {
    write_line(stream, &Answer::new(id, result))
}

/// Writes one line of JSON.
///
/// # Errors
/// The client does not read, or has gone.
pub fn write_line(stream: &mut UnixStream, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn serve(mut stream: UnixStream, service: &impl Service, closing: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = Lines::new(Wire::Unix(stream.try_clone()?), REQUEST_BYTES);
    while !closing.load(Ordering::SeqCst) {
        let text = match lines.next(Some(Duration::from_millis(LOOK_MS.into()))) {
            Line::Whole(text) => text,
            Line::Closed => return Ok(()),
            Line::Waiting => match lines.under_way().is_some_and(|time| time > PATIENCE) {
                true => return Ok(()),
                false => continue,
            },
            Line::TooLong => {
                let problem = format!("a request of more than {REQUEST_BYTES} bytes");
                let problem = Problem::new(problem, "send shorter lines, each ended");
                return say(&mut stream, Value::Null, Err(problem));
            }
        };
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Request>(&text) {
            Ok(request) => {
                if !service.serve(request, &mut stream, closing)? {
                    return Ok(());
                }
            }
            Err(error) => {
                let fix = r#"write {"id": 1, "method": "show", "params": {"what": "ports"}}"#;
                let problem = Problem::new(format!("not a request: {error}"), fix);
                say(&mut stream, Value::Null, Err(problem))?;
            }
        }
    }
    Ok(())
}
