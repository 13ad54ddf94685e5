//! The Unix socket that `linerate ctl` and `linerate capture` talk to: lines of JSON.
//!
//! Each client has a thread, which asks the control thread and waits for it, so a client never makes
//! others wait for more than one request. A capture or a trace turns its connection into a stream.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::desk::Desk;
use super::{show, stream};
use linerate_appliance::error::Error;
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::unix::UnixDoor;
use linerate_appliance::socket::{Answer, Line, Lines, Problem, REQUEST_BYTES, Request, Wire};

/// Clients at once.
const CLIENTS: usize = 32;
/// How often the listener looks whether all ends.
const LOOK_MS: u32 = 100;
/// How long a client may take to read an answer, or to send the rest of a line that it began.
const PATIENCE: Duration = Duration::from_secs(10);
/// All methods, for those who mistype one.
const METHODS: [&str; 8] = [
    "show", "clear", "reload", "stop", "drain", "trace", "capture", "metrics",
];

/// The listener. Dropping it sends clients away.
pub(super) struct Server {
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Takes clients at a socket.
    ///
    /// # Errors
    /// There can be no other thread.
    pub(super) fn listen(door: UnixDoor, desk: Desk) -> Result<Self, Error> {
        let closing = Arc::new(AtomicBool::new(false));
        let (ends, clients) = (closing.clone(), Arc::new(AtomicUsize::new(0)));
        let take = move || {
            while !ends.load(Ordering::SeqCst) {
                match door.accept(LOOK_MS) {
                    Ok(Some(stream)) => admit(stream, &clients, &desk, &ends),
                    Ok(None) => {}
                    // Too many open files, mostly: it may get better.
                    Err(_) => std::thread::sleep(Duration::from_millis(LOOK_MS.into())),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("listener".into())
            .spawn(take)?;
        Ok(Self {
            closing,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}

/// Counts a client while it is here.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn admit(
    mut stream: UnixStream,
    clients: &Arc<AtomicUsize>,
    desk: &Desk,
    closing: &Arc<AtomicBool>,
) {
    let seat = Seat(clients.clone());
    if clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS {
        let problem = format!("{CLIENTS} clients are connected already");
        // It is short: a socket takes it at once, or the client does not listen.
        let _ = say(
            &mut stream,
            Value::Null,
            Err(Problem::new(problem, "close some of them")),
        );
        return;
    }
    let (desk, closing) = (desk.clone(), closing.clone());
    let work = move || {
        let _seat = seat;
        // It ends with the client, whatever the reason.
        let _ = serve(stream, &desk, &closing);
    };
    // A client that cannot have its thread is gone; others may still come.
    let _ = std::thread::Builder::new()
        .name("client".into())
        .spawn(work);
}

/// Writes one answer.
pub(super) fn say(
    stream: &mut UnixStream,
    id: Value,
    result: Result<Value, Problem>,
) -> io::Result<()> {
    write_line(stream, &Answer::new(id, result))
}

/// Writes one line of JSON.
pub(super) fn write_line(stream: &mut UnixStream, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn serve(mut stream: UnixStream, desk: &Desk, closing: &AtomicBool) -> io::Result<()> {
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
        let request: Request = match serde_json::from_slice(&text) {
            Ok(request) => request,
            Err(error) => {
                let fix = r#"write {"id": 1, "method": "show", "params": {"what": "ports"}}"#;
                let problem = Problem::new(format!("not a request: {error}"), fix);
                say(&mut stream, Value::Null, Err(problem))?;
                continue;
            }
        };
        let (id, params) = (request.id, request.params);
        match request.method.as_deref().unwrap_or("") {
            "capture" => return stream::capture(stream, id, &params, desk, closing),
            "trace" => stream::trace(&mut stream, id, &params, desk, closing)?,
            method => {
                let result = ask(method, params, desk);
                say(&mut stream, id, result)?;
            }
        }
    }
    Ok(())
}

/// The answer to a request that is one.
fn ask(method: &str, params: Value, desk: &Desk) -> Result<Value, Problem> {
    match method {
        "show" => desk.call(move |control| show::show(control, &params))?,
        "clear" => desk.call(move |control| show::clear(control, &params))?,
        "reload" => desk.reload(),
        "stop" => desk.call(|control| {
            control.end_after(Duration::ZERO);
            Ok(json!({ "text": "ending" }))
        })?,
        "drain" => {
            let seconds = params.get("seconds").and_then(Value::as_f64);
            let seconds = seconds
                .filter(|seconds| (0.0..=3600.0).contains(seconds))
                .ok_or_else(|| Problem::new("drain: no such time", "give seconds, 0 to 3600"))?;
            desk.call(move |control| control.drain(Duration::from_secs_f64(seconds)))?
        }
        "metrics" => Ok(json!({ "text": desk.call(|control| control.metrics())? })),
        other => Err(Problem::new(
            format!("there is no method `{other}`"),
            offer(other, METHODS),
        )),
    }
}
