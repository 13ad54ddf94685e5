//! How long a question over TCP waits for its answer, at half of the load that the two cores can
//! carry: client and server on a core each, joined by ring ports.
//!
//! First as many questions as go, one for each answer, on [`CONNECTIONS`] connections: that is the
//! full load. Then half as many a second, by a schedule that waits for nobody: the time of each
//! counts from when it was to be asked, so that a client that is late does not hide it.
//!
//! What others take of a CPU is no time of the stack: a turn that lasts longer than
//! [`GAP_NS`], and [`PACKET_NS`] more for each packet in it, has had something else in it. What
//! waits behind such a gap is late, too, until all that was due has been answered. So questions are
//! judged by busy periods, from one moment in which none is under way or late to the next: those of
//! a period with a gap are left out. How many they are, and what the figure is with them, stands
//! beside it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_core::env::{Clock, GAP_NS, Lcore};
use linerate_core::run::Histogram;
use linerate_stack::socket::{SocketId, Source};

use super::probe::pause;
use super::tcp::{MESSAGE, Pair, Station, lost};
use super::tcp_rr::Asking;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[Row {
    name: "tcp.rtt.p999",
    about: "the time that 99.9 % of questions of 64 bytes over TCP have their answers in, client \
        and server on a core each, at half load, without what others took of the CPUs",
    run: round_trips,
}];

/// Connections, each with a question under way at the most while the full load is sought.
const CONNECTIONS: u32 = 32;
/// Questions that may be under way at half load. Beyond that the schedule waits.
const UNDER_WAY: usize = 4096;

/// A packet costs a third of it.
const PACKET_NS: u64 = 1_000;
/// Gaps that are remembered: more than come until a period is judged.
const GAPS: usize = 16;

/// Times in which a CPU was another's, the last ones. Written by one thread.
#[derive(Default)]
struct Gaps {
    from_ns: [AtomicU64; GAPS],
    until_ns: [AtomicU64; GAPS],
    count: AtomicU64,
    /// Until when all are here.
    seen_ns: AtomicU64,
}

impl Gaps {
    /// A turn is over that had so many packets.
    fn note(&self, began_ns: u64, ended_ns: u64, packets: usize) {
        if ended_ns - began_ns > GAP_NS + PACKET_NS * packets as u64 {
            let count = self.count.load(Ordering::Relaxed);
            let at = (count % GAPS as u64) as usize;
            self.from_ns[at].store(began_ns, Ordering::Relaxed);
            self.until_ns[at].store(ended_ns, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
        self.seen_ns.store(ended_ns, Ordering::Release);
    }

    /// Whether all gaps before then are here: a turn is noted when what it sent has gone.
    fn have_seen(&self, ns: u64) -> bool {
        self.seen_ns.load(Ordering::Acquire) > ns
    }

    /// Whether one lies in a period.
    fn touch(&self, period: &Period) -> bool {
        let mut gaps = self.from_ns.iter().zip(&self.until_ns);
        gaps.any(|(from_ns, until_ns)| {
            period.from_ns < until_ns.load(Ordering::Relaxed)
                && from_ns.load(Ordering::Relaxed) < period.until_ns
        })
    }
}

/// From when the first of some questions was to be asked until none was under way.
struct Period {
    from_ns: u64,
    until_ns: u64,
    questions: usize,
}

impl Period {
    /// Without a question yet.
    const EMPTY: Self = Self {
        from_ns: u64::MAX,
        until_ns: 0,
        questions: 0,
    };
}

/// The server's thread: it answers until it is told to stop.
fn serve(mut server: Station, clock: Clock, gaps: &Gaps, stop: &AtomicBool) {
    let (mut idle, mut began_ns) = (0, clock.ns(clock.now()));
    let mut is_known = [false; CONNECTIONS as usize];
    while !stop.load(Ordering::Relaxed) {
        let packets = server.take(began_ns);
        server.serve(began_ns, |io, event| {
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
        server.out.flush();
        if packets == 0 {
            pause(&mut idle);
        }
        let ended_ns = clock.ns(clock.now());
        gaps.note(began_ns, ended_ns, packets);
        began_ns = ended_ns;
    }
}

/// The client's side.
struct Client {
    station: Station,
    clock: Clock,
    sockets: Vec<SocketId>,
    /// When the questions of each connection were to be asked, by its index in the stack.
    asked_ns: Vec<VecDeque<u64>>,
    /// Bytes of an answer that has not come as a whole.
    partly: Vec<usize>,
    next: usize,
    under_way: usize,
    idle: u32,
    began_ns: u64,
    gaps: Gaps,
}

impl Client {
    fn new(station: Station, clock: Clock, sockets: Vec<SocketId>) -> Self {
        let most = sockets.iter().map(|id| id.index() + 1).max().unwrap_or(0);
        Self {
            station,
            clock,
            asked_ns: vec![VecDeque::with_capacity(UNDER_WAY); most],
            partly: vec![0; most],
            sockets,
            next: 0,
            under_way: 0,
            idle: 0,
            began_ns: clock.ns(clock.now()),
            gaps: Gaps::default(),
        }
    }

    /// No question waits for the acknowledgment of another.
    fn send_at_once(&mut self) {
        let mut io = self.station.io(self.began_ns);
        for &id in &self.sockets {
            let _ = io.set_no_delay(id, true);
        }
    }

    /// Asks on the next connection what was to be asked at a time.
    fn ask(&mut self, at_ns: u64, now_ns: u64) -> bool {
        let id = self.sockets[self.next];
        let written = self.station.io(now_ns).write(id, &[b'?'; MESSAGE]);
        if written != Ok(MESSAGE) {
            return false;
        }
        self.next = (self.next + 1) % self.sockets.len();
        self.asked_ns[id.index()].push_back(at_ns);
        self.under_way += 1;
        true
    }

    /// A turn; returns whether no question was under way any more when it began to ask. `due` says
    /// how many are to be asked by now, given the time and how many have been answered in this
    /// turn; `answered` gets when a question was to be asked and when its answer was there.
    fn turn(
        &mut self,
        mut answered: impl FnMut(u64, u64),
        mut due: impl FnMut(u64, usize) -> Option<u64>,
    ) -> bool {
        let began_ns = self.began_ns;
        let mut packets = self.station.take(began_ns);
        let (asked_ns, partly) = (&mut self.asked_ns, &mut self.partly);
        let (clock, mut answers) = (self.clock, 0);
        self.station.serve(began_ns, |io, event| {
            let Source::Connection(id) = event.source else {
                return;
            };
            let mut room = [0; 16 * MESSAGE];
            while let Ok(count @ 1..) = io.read(id, &mut room) {
                let now_ns = clock.ns(clock.now());
                let bytes = partly[id.index()] + count;
                partly[id.index()] = bytes % MESSAGE;
                for at_ns in asked_ns[id.index()].drain(..bytes / MESSAGE) {
                    answered(at_ns, now_ns);
                    answers += 1;
                }
            }
        });
        self.under_way -= answers;
        let is_clear = self.under_way == 0;
        while self.under_way < UNDER_WAY
            && let Some(at_ns) = due(began_ns, answers)
            && self.ask(at_ns, began_ns)
        {
            packets += 1;
        }
        self.station.out.flush();
        if packets == 0 {
            pause(&mut self.idle);
        }
        let ended_ns = self.clock.ns(self.clock.now());
        self.gaps.note(began_ns, ended_ns, packets);
        self.began_ns = ended_ns;
        is_clear
    }

    /// Answers a second, where each answer is another question.
    fn full_load(&mut self, for_ns: u64) -> f64 {
        let (begun_ns, mut answers) = (self.began_ns, 0_u64);
        let mut to_ask = self.sockets.len();
        while self.began_ns < begun_ns + for_ns {
            let mut has_asked = 0;
            self.turn(
                |_, _| answers += 1,
                |now_ns, of_turn| {
                    let is_due = has_asked < to_ask + of_turn;
                    has_asked += 1;
                    is_due.then_some(now_ns)
                },
            );
            to_ask = 0;
        }
        answers as f64 * 1e9 / (self.began_ns - begun_ns) as f64
    }

    /// Until nothing is under way, or for a second.
    fn drain(&mut self) {
        let until_ns = self.began_ns + 1_000_000_000;
        while self.under_way > 0 && self.began_ns < until_ns {
            self.turn(|_, _| {}, |_, _| None);
        }
    }

    /// Questions by a schedule, `every_ns` apart.
    fn by_schedule(&mut self, every_ns: f64, for_ns: u64, servers: &Gaps) -> Measured {
        let measured = Measured {
            plain: Histogram::new(),
            all: Histogram::new(),
        };
        let begun_ns = self.began_ns;
        let mut asked = 0_u64;
        // Those whose gaps are not known yet, and how long each question took.
        let (mut periods, mut took) = (VecDeque::new(), VecDeque::with_capacity(UNDER_WAY));
        let (mut open, mut last_ns) = (Period::EMPTY, begun_ns);
        while self.began_ns < begun_ns + for_ns {
            let due_ns = |asked: u64| begun_ns + (asked as f64 * every_ns) as u64;
            // What has come due since the last turn began is not late.
            let is_timely = due_ns(asked) >= last_ns;
            last_ns = self.began_ns;
            let is_clear = self.turn(
                |at_ns, now_ns| {
                    let took_ns = now_ns.saturating_sub(at_ns);
                    measured.all.record(took_ns, 1);
                    took.push_back(took_ns);
                    open.from_ns = open.from_ns.min(at_ns);
                    open.questions += 1;
                },
                |now_ns, _| {
                    let at_ns = due_ns(asked);
                    (at_ns <= now_ns).then(|| {
                        asked += 1;
                        at_ns
                    })
                },
            );
            if is_clear && is_timely && open.questions > 0 {
                open.until_ns = self.began_ns;
                periods.push_back(std::mem::replace(&mut open, Period::EMPTY));
            }
            while let Some(period) = periods.front()
                && servers.have_seen(period.until_ns)
            {
                let is_plain = !self.gaps.touch(period) && !servers.touch(period);
                for took_ns in took.drain(..period.questions).filter(|_| is_plain) {
                    measured.plain.record(took_ns, 1);
                }
                periods.pop_front();
            }
        }
        measured
    }
}

struct Measured {
    /// Questions that nobody else had a part in.
    plain: Histogram,
    all: Histogram,
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
    let (gaps, stop) = (Arc::new(Gaps::default()), Arc::new(AtomicBool::new(false)));
    let (of_server, stopped) = (gaps.clone(), stop.clone());
    let serving = Lcore::spawn("server", Some(run.cpus[1]), move || {
        serve(server, clock, &of_server, &stopped);
    })?;
    let measured = run.pinned(move |run| {
        let for_ns = run.duration.as_nanos() as u64;
        let mut client = Client::new(client, clock, sockets);
        client.send_at_once();
        client.full_load(for_ns / 10);
        let per_s = client.full_load(for_ns / 4);
        client.drain();
        let measured = match per_s > 0.0 {
            true => Some(client.by_schedule(2e9 / per_s, for_ns, &gaps)),
            false => None,
        };
        (per_s, measured)
    });
    stop.store(true, Ordering::Relaxed);
    serving.join()?;
    let (per_s, Some(measured)) = measured? else {
        return Err(lost("no question was answered"));
    };
    let (plain, all) = (measured.plain.snapshot(), measured.all.snapshot());
    let (kept, answers) = (plain.total, all.total);
    if kept == 0 {
        return Err(lost("others had a part in every question's time"));
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Sample::new(row, us(plain.percentile(99.9)), "us", pages)
        .with("p50_us", us(plain.percentile(50.0)))
        .with("p99_us", us(plain.percentile(99.0)))
        .with("full_load_per_s", per_s)
        .with("questions", answers)
        .with("left_out", answers - kept)
        .with("with_stolen_p999_us", us(all.percentile(99.9)))
        .with("connections", CONNECTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_another_s_if_a_gap_lies_in_it() {
        let gaps = Gaps::default();
        let touch = |from_ns, until_ns| {
            gaps.touch(&Period {
                from_ns,
                until_ns,
                questions: 1,
            })
        };
        gaps.note(0, 1000, 0);
        // Ten packets explain 12 us, and no more.
        gaps.note(1000, 13_000, 10);
        assert!(gaps.have_seen(12_999) && !gaps.have_seen(13_000) && !touch(0, 13_000));
        gaps.note(13_000, 25_001, 10);
        assert!(touch(0, 13_001) && touch(25_000, 26_000) && touch(0, 30_000));
        assert!(!touch(0, 13_000) && !touch(25_001, 30_000));
        // Only the last ones are known.
        for number in 0..2 * GAPS as u64 {
            let at_ns = 1_000_000 * (1 + number);
            gaps.note(at_ns, at_ns + 10_000, 0);
        }
        assert!(!touch(1_000_000, 1_000_001) && touch(32_000_000, 32_000_001));
    }
}
