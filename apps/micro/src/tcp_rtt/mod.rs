//! How long a question over TCP waits for its answer, at half of the load that the two cores can
//! carry: client and server on a core each, joined by ring ports.
//!
//! First as many questions as go, one for each answer, on [`CONNECTIONS`] connections: that is the
//! full load. Then half as many a second, by a schedule that waits for nobody: the time of each
//! counts from when it was to be asked, so that a client that is late does not hide it.
//!
//! What others take of a CPU is no time of the stack: a turn that lasts longer than
//! [`GAP_NS`](linerate_core::env::GAP_NS), and a microsecond more for each packet in it, has had
//! something else in it ([`gaps`]). What waits behind such a gap is late, too, until all that was
//! due has been answered. So questions are judged by busy periods, from one moment in which none is
//! under way or late to the next: those of a period with a gap are left out. How many they are, and
//! what the figure is with them, stands beside it.
//!
//! Beside it stands also what the machine does without TCP ([`bare`]): the same threads pass bare
//! frames by the same schedule, in turns with TCP, a slice of [`SLICE_NS`] each, and are judged by
//! the same rule. Gaps of both threads are told for either: if TCP had more of them, or longer
//! ones, they would be its own.

mod bare;
mod client;
mod gaps;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use linerate_core::env::{Clock, Lcore};
use linerate_stack::socket::{SocketId, Source};

use super::probe::pause;
use super::tcp::{MESSAGE, Pair, Station, lost};
use super::tcp_rr::Asking;
use super::{Row, Run, Sample};
use bare::Bare;
use client::{Asker, Client, Measured, UNDER_WAY};
use gaps::{Gaps, Lost};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[Row {
    name: "tcp.rtt.p999",
    about: "the time that 99.9 % of questions of 64 bytes over TCP have their answers in, client \
        and server on a core each, at half load, without what others took of the CPUs",
    run: round_trips,
}];

/// Connections, each with a question under way at the most while the full load is sought.
const CONNECTIONS: u32 = 32;
/// Either of TCP and bare frames is asked for so long, and then the other.
const SLICE_NS: u64 = 100_000_000;

/// What the server's thread is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// To answer over TCP, as much as comes.
    Load,
    /// To answer over TCP, by the schedule.
    Tcp,
    /// To send frames back.
    Bare,
    Over,
}

/// The phase, as the client's thread has it.
struct Orders(AtomicU8);

impl Orders {
    fn give(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        let phase = self.0.load(Ordering::Relaxed);
        let phases = [Phase::Load, Phase::Tcp, Phase::Bare];
        let known = phases.into_iter().find(|&known| known as u8 == phase);
        known.unwrap_or(Phase::Over)
    }
}

/// The server's side of TCP.
struct Server {
    station: Station,
    is_known: [bool; CONNECTIONS as usize],
}

impl Server {
    /// A turn. How many packets came.
    fn answer(&mut self, now_ns: u64) -> usize {
        let packets = self.station.take(now_ns);
        let is_known = &mut self.is_known;
        self.station.serve(now_ns, |io, event| {
            let Source::Connection(id) = event.source else {
                return;
            };
            // With two questions under way Nagle's algorithm here and delayed ACKs there would keep
            // each answer back until the next question.
            if let Some(is_known) = is_known.get_mut(id.index())
                && !std::mem::replace(is_known, true)
            {
                let _ = io.set_no_delay(id, true);
            }
            // Several questions may have come together.
            let mut questions = [0; 16 * MESSAGE];
            while let Ok(count @ 1..) = io.read(id, &mut questions) {
                let _ = io.write(id, &questions[..count]);
            }
        });
        self.station.out.flush();
        packets
    }
}

/// The server's thread: it answers until it is told to stop. Its gaps with TCP, and with bare
/// frames.
fn serve(
    mut server: Server,
    mut bare: Bare,
    clock: Clock,
    gaps: &Gaps,
    orders: &Orders,
) -> [Lost; 2] {
    let (mut idle, mut began_ns) = (0, clock.ns(clock.now()));
    let mut losses = [Lost::default(); 2];
    loop {
        let phase = orders.phase();
        let packets = match phase {
            Phase::Load | Phase::Tcp => server.answer(began_ns),
            Phase::Bare => bare.answer(),
            Phase::Over => return losses,
        };
        if packets == 0 {
            pause(&mut idle);
        }
        let ended_ns = clock.ns(clock.now());
        let has_gap = gaps.note(began_ns, ended_ns, packets);
        match phase {
            Phase::Tcp => losses[0].add(ended_ns - began_ns, has_gap),
            Phase::Bare => losses[1].add(ended_ns - began_ns, has_gap),
            Phase::Load | Phase::Over => {}
        }
        began_ns = ended_ns;
    }
}

/// The client's side of TCP.
struct OverTcp {
    station: Station,
    sockets: Vec<SocketId>,
    /// When the questions of each connection were to be asked, by its index in the stack.
    asked_ns: Vec<VecDeque<u64>>,
    /// Bytes of an answer that has not come as a whole.
    partly: Vec<usize>,
    next: usize,
}

impl OverTcp {
    fn new(mut station: Station, sockets: Vec<SocketId>, now_ns: u64) -> Self {
        // No question waits for the acknowledgment of another.
        let mut io = station.io(now_ns);
        for &id in &sockets {
            let _ = io.set_no_delay(id, true);
        }
        let most = sockets.iter().map(|id| id.index() + 1).max().unwrap_or(0);
        Self {
            station,
            asked_ns: (0..most)
                .map(|_| VecDeque::with_capacity(UNDER_WAY))
                .collect(),
            partly: vec![0; most],
            sockets,
            next: 0,
        }
    }
}

impl Asker for OverTcp {
    fn take(&mut self, now_ns: u64, mut answered: impl FnMut(u64)) -> usize {
        let packets = self.station.take(now_ns);
        let (asked_ns, partly) = (&mut self.asked_ns, &mut self.partly);
        self.station.serve(now_ns, |io, event| {
            let Source::Connection(id) = event.source else {
                return;
            };
            let mut room = [0; 16 * MESSAGE];
            while let Ok(count @ 1..) = io.read(id, &mut room) {
                let bytes = partly[id.index()] + count;
                partly[id.index()] = bytes % MESSAGE;
                let answers = asked_ns[id.index()].drain(..bytes / MESSAGE);
                answers.for_each(&mut answered);
            }
        });
        packets
    }

    fn ask(&mut self, at_ns: u64, now_ns: u64) -> bool {
        let id = self.sockets[self.next];
        let written = self.station.io(now_ns).write(id, &[b'?'; MESSAGE]);
        if written != Ok(MESSAGE) {
            return false;
        }
        self.next = (self.next + 1) % self.sockets.len();
        self.asked_ns[id.index()].push_back(at_ns);
        true
    }

    fn flush(&mut self) {
        self.station.out.flush();
    }
}

/// What came of a run.
struct Outcome {
    per_s: f64,
    tcp: Measured,
    bare: Measured,
}

/// The client's thread.
fn ask(tcp: OverTcp, bare: Bare, clock: Clock, run: &Run, gaps: &Gaps, orders: &Orders) -> Outcome {
    let for_ns = run.duration.as_nanos() as u64;
    // On one CPU each turn of one end is a gap of the other.
    let gaps = (run.cpus[0] != run.cpus[1]).then_some(gaps);
    let (mut tcp, mut bare) = (Client::new(tcp, clock), Client::new(bare, clock));
    tcp.full_load(CONNECTIONS as usize, for_ns / 10);
    let per_s = tcp.full_load(CONNECTIONS as usize, for_ns / 4);
    if per_s > 0.0 {
        tcp.forget();
        let slices = for_ns.div_ceil(SLICE_NS).max(1);
        for _ in 0..slices {
            orders.give(Phase::Tcp);
            tcp.by_schedule(2e9 / per_s, for_ns / slices, gaps);
            orders.give(Phase::Bare);
            bare.by_schedule(2e9 / per_s, for_ns / slices, gaps);
        }
    }
    Outcome {
        per_s,
        tcp: tcp.into_measured(),
        bare: bare.into_measured(),
    }
}

fn round_trips(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (pair, sockets) = Asking::new(CONNECTIONS)?.into_parts();
    let Pair {
        client,
        server,
        clock,
        pages,
        ..
    } = pair;
    let (bare_client, bare_server) = Bare::pair()?;
    let gaps = Arc::new(Gaps::default());
    let orders = Arc::new(Orders(AtomicU8::new(Phase::Load as u8)));
    let server = Server {
        station: server,
        is_known: [false; CONNECTIONS as usize],
    };
    let (of_server, orders_of_server) = (gaps.clone(), orders.clone());
    let serving = Lcore::spawn("server", Some(run.cpus[1]), move || {
        serve(server, bare_server, clock, &of_server, &orders_of_server)
    })?;
    let (by_client, seen) = (orders.clone(), gaps);
    let outcome = run.pinned(move |run| {
        let tcp = OverTcp::new(client, sockets, clock.ns(clock.now()));
        ask(tcp, bare_client, clock, run, &seen, &by_client)
    });
    orders.give(Phase::Over);
    let of_server = serving.join()?;
    let Outcome { per_s, tcp, bare } = outcome?;
    if tcp.all.total == 0 {
        return Err(lost("no question was answered"));
    }
    if tcp.plain.total == 0 {
        return Err(lost("others had a part in every question's time"));
    }
    let value = us(tcp.plain.percentile(99.9));
    let mut sample = Sample::new(row, value, "us", pages)
        .with("full_load_per_s", per_s)
        .with("connections", CONNECTIONS);
    for (prefix, measured, server) in [("", tcp, of_server[0]), ("bare_", bare, of_server[1])] {
        sample = told(sample, prefix, &measured, &server);
    }
    Ok(sample)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The same figures for TCP and for bare frames.
fn told(mut sample: Sample, prefix: &str, measured: &Measured, server: &Lost) -> Sample {
    let Measured { plain, all, lost } = measured;
    let mut with = |key: &str, value: f64| {
        sample.detail.insert(format!("{prefix}{key}"), value.into());
    };
    with("p50_us", us(plain.percentile(50.0)));
    with("p99_us", us(plain.percentile(99.0)));
    with("p999_us", us(plain.percentile(99.9)));
    with("with_stolen_p999_us", us(all.percentile(99.9)));
    with("questions", all.total as f64);
    with("left_out", (all.total - plain.total) as f64);
    for (end, lost) in [("client", lost), ("server", server)] {
        with(&format!("{end}_gaps_per_s"), lost.per_s());
        with(&format!("{end}_long_gaps_per_s"), lost.long_per_s());
        with(&format!("{end}_gaps_share"), lost.share());
        with(&format!("{end}_longest_gap_us"), us(lost.longest_ns));
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_told_each_phase() {
        let orders = Orders(AtomicU8::new(0));
        for phase in [Phase::Load, Phase::Tcp, Phase::Bare, Phase::Over] {
            orders.give(phase);
            assert!(orders.phase() == phase);
        }
    }
}
