//! `linerate steer`'s HTTP server over a ring port: its work on a request, of a connection that
//! stays and of one that has no other. The client is a hand-made one that sends what wrk does, and
//! knows how long an answer is.

use std::sync::Arc;

use linerate_stack::socket::{Io, SocketId, Source, interest};
use linerate_stack::tcp::connection::Error as Failure;
use linerate_steer::app::{App, Tokens};
use linerate_steer::http::server::{Limits, Server};
use linerate_steer::http::site::Site;

use super::shared::Work;
use super::tcp::{AT_ONCE, Pair, ends, lost, timed};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "http.rr.ring",
        about: "an HTTP request with an answer of 64 bytes on one of 1 K connections that are \
            kept: the server's work",
        run: requests,
    },
    Row {
        name: "http.conn.ring",
        about: "a TCP connection with one such request, which the server then closes: the \
            server's work",
        run: connections,
    },
];

/// Bytes of the body of an answer.
const BODY: u64 = 64;
/// Connections that are kept.
const KEPT: u32 = 1000;
/// Four-tuples that are used in turns where they are not: each comes again while the server's end
/// of it lingers.
const KINDS: u32 = 240_000;

const GET: &[u8] = b"GET /64 HTTP/1.1\r\nHost: 192.0.2.2:8000\r\n\r\n";
const GET_ONE: &[u8] = b"GET /64 HTTP/1.1\r\nHost: 192.0.2.2:8000\r\nConnection: close\r\n\r\n";

/// A server beside a client that keeps some requests under way.
struct Serving {
    pair: Pair,
    server: Server,
    /// Bytes of an answer, once one is known.
    answer_bytes: usize,
    answers: u64,
    failed: u64,
    begun: u32,
    under_way: usize,
    kinds: u32,
    /// The client's connections, where they are kept, and which asks next.
    kept: Vec<SocketId>,
    next: usize,
}

impl Serving {
    fn new(kinds: u32, connections: u32) -> Result<Self, Error> {
        let mut site = Site::default();
        site.add_pattern("/64", BODY);
        let limits = Limits {
            connections,
            ..Limits::default()
        };
        let tokens = Tokens::of(0);
        let token = tokens.token(0);
        let pair = Pair::new(
            kinds,
            |config| config.connections = connections,
            |listen| listen.token = token,
        )?;
        let on = linerate_stack::socket::Listen::on(8000);
        let server = Server::new(on, Arc::new(site), limits, tokens);
        Ok(Self {
            pair,
            server: server.map_err(std::io::Error::other)?,
            answer_bytes: 0,
            answers: 0,
            failed: 0,
            begun: 0,
            under_way: 0,
            kinds,
            kept: Vec::new(),
            next: 0,
        })
    }

    /// A turn of the server as an lcore has it: what came, the application, its timers.
    fn server_turn(&mut self) {
        let Self { pair, server, .. } = self;
        pair.server(|station, now_ns| {
            let mut events = std::mem::take(&mut station.events);
            let mut io = station.io(now_ns);
            let count = io.poll(&mut events);
            if count > 0 {
                server.ready(&mut io, &events[..count]);
            }
            server.turn(&mut io);
            station.events = events;
        });
    }

    /// Reads an answer, which comes in one piece; whether it is whole, or what the socket says.
    fn read(io: &mut Io<'_>, id: SocketId, known: &mut usize) -> Result<bool, Failure> {
        let mut is_good = false;
        let count = io.consume(id, |bytes| {
            is_good = bytes.starts_with(b"HTTP/1.1 200 ");
            bytes.len()
        })?;
        if *known == 0 && is_good {
            *known = count;
        }
        Ok(is_good && count == *known)
    }

    fn open(io: &mut Io<'_>, begun: &mut u32, kinds: u32) -> Option<SocketId> {
        let (local, remote) = ends(*begun % kinds);
        *begun += 1;
        let id = io.connect(Some(local), remote).ok()?;
        let _ = io.register(id, interest::WRITE | interest::READ | interest::EDGE, 0);
        Some(id)
    }

    /// Opens all that are to be kept, some at a time.
    fn open_kept(&mut self) -> Result<(), Error> {
        while self.kept.len() < self.kinds as usize {
            let Self {
                pair,
                begun,
                kinds,
                kept,
                ..
            } = self;
            pair.client(|client, now_ns| {
                let mut io = client.io(now_ns);
                let some = AT_ONCE.min(*kinds as usize - kept.len());
                kept.extend((0..some).filter_map(|_| Self::open(&mut io, begun, *kinds)));
            });
            // SYN, its answer, the ACK.
            self.server_turn();
            self.pair
                .client(|client, now_ns| client.serve(now_ns, |_, _| {}));
            self.server_turn();
        }
        let known = self.pair.server.stack.connections();
        match known == self.kinds {
            true => Ok(()),
            false => Err(lost("a connection was not opened")),
        }
    }

    fn ask(io: &mut Io<'_>, kept: &[SocketId], next: &mut usize) {
        let _ = io.write(kept[*next], GET);
        *next = if *next + 1 == kept.len() {
            0
        } else {
            *next + 1
        };
    }

    /// The first requests.
    fn begin(&mut self) {
        let Self {
            pair, kept, next, ..
        } = self;
        pair.client(|client, now_ns| {
            let mut io = client.io(now_ns);
            for _ in 0..AT_ONCE.min(kept.len()) {
                Self::ask(&mut io, kept, next);
            }
        });
    }

    /// Who has an answer asks on the connection that has been silent longest.
    fn kept_turn(&mut self) -> u64 {
        let before = self.answers;
        let Self {
            pair,
            answer_bytes,
            answers,
            failed,
            kept,
            next,
            ..
        } = self;
        pair.client(|client, now_ns| {
            client.serve(now_ns, |io, event| {
                let Source::Connection(id) = event.source else {
                    return;
                };
                match Self::read(io, id, answer_bytes) {
                    Ok(true) => {
                        *answers += 1;
                        Self::ask(io, kept, next);
                    }
                    Err(Failure::WouldBlock) => {}
                    Ok(false) | Err(_) => *failed += 1,
                }
            });
        });
        self.server_turn();
        self.answers - before
    }

    /// Each connection has one request; the server ends it.
    fn opening_turn(&mut self) -> u64 {
        let before = self.answers;
        let Self {
            pair,
            answer_bytes,
            answers,
            failed,
            begun,
            under_way,
            kinds,
            ..
        } = self;
        pair.client(|client, now_ns| {
            client.serve(now_ns, |io, event| {
                let Source::Connection(id) = event.source else {
                    return;
                };
                match Self::read(io, id, answer_bytes) {
                    // The end comes with the answer.
                    Ok(true) if io.read(id, &mut [0]) == Ok(0) => *answers += 1,
                    Err(Failure::WouldBlock) => {
                        if event.ready & interest::WRITE != 0 {
                            let _ = io.write(id, GET_ONE);
                            let _ = io.register(id, interest::READ | interest::EDGE, 0);
                        }
                        return;
                    }
                    Ok(_) | Err(_) => *failed += 1,
                }
                io.close(id);
                *under_way -= 1;
            });
            let mut io = client.io(now_ns);
            while *under_way < AT_ONCE && Self::open(&mut io, begun, *kinds).is_some() {
                *under_way += 1;
            }
        });
        self.server_turn();
        self.answers - before
    }

    /// What it came to: the server's work on an answer, while the core was this thread's.
    fn sample(self, row: &'static str, work: &Work) -> Result<Sample, Error> {
        let (alone, left_out) = work.judge();
        if alone.count == 0 || self.failed > 0 {
            return Err(lost("a request was not answered, or not as it should be"));
        }
        let answers = self.answers as f64;
        let (server, client) = (self.pair.server_ticks, self.pair.client_ticks);
        let both_ns = (server + client) as f64 / answers * 1e9 / self.pair.clock.hz();
        Ok(
            Sample::new(row, alone.each(), "TSC cycles", self.pair.pages)
                .with("of_all", server as f64 / answers)
                .with("left_out", left_out)
                .with("both_ns", both_ns)
                .with("client_cycles", client as f64 / answers)
                .with("answers", self.answers)
                .with("answer_bytes", self.answer_bytes),
        )
    }
}

/// Times `turn` of a server's work on answers.
fn answers(serving: Serving, run: &Run, turn: impl Fn(&mut Serving) -> u64) -> (Serving, Work) {
    let (serving, work, _) = timed(serving, run, |all| (&mut all.pair, &mut all.answers), turn);
    (serving, work)
}

fn requests(row: &'static str, run: Run) -> Result<Sample, Error> {
    let kept = if run.quick { 100 } else { KEPT };
    let mut serving = Serving::new(kept, kept)?;
    serving.open_kept()?;
    serving.begin();
    let (serving, work) = run.pinned(move |run| answers(serving, run, Serving::kept_turn))?;
    serving.sample(row, &work)
}

fn connections(row: &'static str, run: Run) -> Result<Sample, Error> {
    let kinds = if run.quick { 1000 } else { KINDS };
    let serving = Serving::new(kinds, 4096)?;
    let (serving, work) = run.pinned(move |run| answers(serving, run, Serving::opening_turn))?;
    serving.sample(row, &work)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered() {
        for row in ROWS {
            // An answer that is missing, or is another one, is an error.
            let sample = (row.run)(row.name, Run::quick()).unwrap();
            assert!(sample.value > 0.0);
            let left_out = sample.detail["left_out"].as_f64().unwrap();
            assert!((0.0..1.0).contains(&left_out), "{left_out}");
        }
    }
}
