//! Questions and answers of 64 bytes over TCP connections that stay: what a question costs, both
//! ends together, and how that grows with the connections.
//!
//! [`AT_ONCE`] questions are under way, each on a connection of its own. Whoever has its answer
//! asks again on the connection that has been silent longest, so that all take part.

use linerate_core::mem::PageKind;
use linerate_stack::socket::{Io, SocketId, Source, interest};

use super::tcp::{AT_ONCE, MESSAGE, Pair, ends, lost};
use super::{Growth, Point, Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "tcp.rr.1",
        about: "a question and an answer of 64 bytes on one TCP connection, client and server on \
            one core",
        run: |row, run| Ok(measured(1, run)?.sample(row)),
    },
    Row {
        name: "tcp.rr.10k",
        about: "the same on 10 K connections, 32 questions under way",
        run: |row, run| {
            let connections = if run.quick { 100 } else { 10_000 };
            Ok(measured(connections, run)?.sample(row))
        },
    },
    Row {
        name: "tcp.rr.1m",
        about: "the same on 1 M connections, over the cost on 1 K",
        run: million,
    },
];

pub(super) const GROWTH: &[Growth] = &[Growth {
    name: "tcp.rr",
    of: "connections",
    sizes: &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    run: |connections, run| {
        let measured = measured(connections as u32, run)?;
        Ok(Point {
            ns: measured.ns,
            bytes_each: measured.bytes_each as f64,
        })
    },
}];

/// Both ends' work on a question.
struct Measured {
    ns: f64,
    client_cycles: f64,
    server_cycles: f64,
    packets: f64,
    connections: u32,
    bytes_each: usize,
    pages: PageKind,
}

impl Measured {
    fn sample(&self, row: &'static str) -> Sample {
        Sample::new(row, self.ns, "ns", self.pages)
            .with("client_cycles", self.client_cycles)
            .with("server_cycles", self.server_cycles)
            .with("packets_per_question", self.packets)
            .with("connections", self.connections)
            .with("bytes_per_connection", self.bytes_each)
    }
}

fn million(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (few, many) = match run.quick {
        true => (10, 100),
        false => (1_000, 1_000_000),
    };
    let again = |run: &Run| Run {
        duration: run.duration,
        cpus: run.cpus,
        quick: run.quick,
    };
    let base = measured(few, again(&run))?;
    let full = measured(many, run)?;
    let ratio = full.ns / base.ns;
    Ok(Sample::new(row, ratio, "x", full.pages)
        .with("few_ns", base.ns)
        .with("many_ns", full.ns)
        .with("few_server_cycles", base.server_cycles)
        .with("many_server_cycles", full.server_cycles)
        .with("many_packets_per_question", full.packets)
        .with("connections", full.connections))
}

/// Both ends with their connections open.
pub(super) struct Asking {
    pub(super) pair: Pair,
    /// The client's.
    sockets: Vec<SocketId>,
    /// The connection that has been silent longest.
    next: usize,
    answers: u64,
}

impl Asking {
    /// Opens the connections, some at a time.
    pub(super) fn new(connections: u32) -> Result<Self, Error> {
        let mut pair = Pair::new(connections, |_| {}, |_| {})?;
        let mut sockets = Vec::with_capacity(connections as usize);
        while sockets.len() < connections as usize {
            let from = sockets.len() as u32;
            let to = connections.min(from + 2 * AT_ONCE as u32);
            pair.client(|client, now_ns| {
                let mut io = client.io(now_ns);
                for number in from..to {
                    let (local, remote) = ends(number);
                    if let Ok(id) = io.connect(Some(local), remote) {
                        sockets.push(id);
                    }
                }
            });
            if sockets.len() < to as usize {
                return Err(lost("a connection found no room"));
            }
            // SYN, its answer, the ACK.
            pair.server(|_, _| {});
            pair.client(|_, _| {});
            pair.server(|_, _| {});
            let now_ns = pair.now_ns();
            let mut io = pair.server.io(now_ns);
            for &listener in &pair.listeners {
                while let Some((id, _)) = io.accept(listener) {
                    let wanted = interest::READ | interest::EDGE;
                    let _ = io.register(id, wanted, 0);
                }
            }
        }
        let now_ns = pair.now_ns();
        let mut io = pair.client.io(now_ns);
        for &id in &sockets {
            let _ = io.register(id, interest::READ | interest::EDGE, 0);
        }
        if pair.server.stack.connections() != connections {
            return Err(lost("a connection was not opened"));
        }
        Ok(Self {
            pair,
            sockets,
            next: 0,
            answers: 0,
        })
    }

    /// Both ends, and the client's sockets.
    pub(super) fn into_parts(self) -> (Pair, Vec<SocketId>) {
        (self.pair, self.sockets)
    }

    /// The first questions.
    fn begin(&mut self) {
        let Self {
            pair,
            sockets,
            next,
            ..
        } = self;
        pair.client(|client, now_ns| {
            let mut io = client.io(now_ns);
            for _ in 0..AT_ONCE.min(sockets.len()) {
                ask(&mut io, sockets, next);
            }
        });
    }

    /// A turn of the server and one of the client. Returns how many packets came to them.
    #[inline]
    fn turn(&mut self) -> usize {
        let Self {
            pair,
            sockets,
            next,
            answers,
        } = self;
        let mut packets = pair.server(|server, now_ns| {
            server.serve(now_ns, |io, event| {
                if let Source::Connection(id) = event.source {
                    let mut question = [0; MESSAGE];
                    if io.read(id, &mut question) == Ok(MESSAGE) {
                        let _ = io.write(id, &question);
                    }
                }
            });
        });
        packets += pair.client(|client, now_ns| {
            client.serve(now_ns, |io, event| {
                if let Source::Connection(id) = event.source {
                    let mut answer = [0; MESSAGE];
                    if io.read(id, &mut answer) == Ok(MESSAGE) {
                        *answers += 1;
                        ask(io, sockets, next);
                    }
                }
            });
        });
        packets
    }
}

#[inline]
fn ask(io: &mut Io<'_>, sockets: &[SocketId], next: &mut usize) {
    let _ = io.write(sockets[*next], &[b'?'; MESSAGE]);
    *next += 1;
    if *next == sockets.len() {
        *next = 0;
    }
}

fn measured(connections: u32, run: Run) -> Result<Measured, Error> {
    let mut asking = Asking::new(connections)?;
    let pages = asking.pair.pages;
    let (asking, ns, packets) = run.pinned(move |run| {
        asking.begin();
        // All connections have asked and been answered once before it counts.
        let at_least = if run.quick { 0 } else { connections.into() };
        while asking.answers < at_least && asking.turn() > 0 {}
        run.time_for(run.duration / 10, &mut || asking.round().0);
        asking.pair.reset();
        asking.answers = 0;
        let mut packets = 0;
        let ns = run.time_for(run.duration, &mut || {
            let (answers, of_turn) = asking.round();
            packets += of_turn;
            answers
        });
        (asking, ns, packets)
    })?;
    let answers = asking.answers as f64;
    if answers == 0.0 {
        return Err(lost("no question was answered"));
    }
    Ok(Measured {
        ns,
        client_cycles: asking.pair.client_ticks as f64 / answers,
        server_cycles: asking.pair.server_ticks as f64 / answers,
        packets: packets as f64 / answers,
        connections,
        bytes_each: asking.pair.server.stack.bytes_per_connection(),
        pages,
    })
}

impl Asking {
    /// A turn, and how many answers and packets came of it.
    #[inline]
    fn round(&mut self) -> (u64, usize) {
        let before = self.answers;
        let packets = self.turn();
        (self.answers - before, packets)
    }
}
