//! The client's thread: questions by a schedule, and how long each waited for its answer.

use std::collections::VecDeque;

use linerate_core::env::{Clock, GAP_NS};
use linerate_core::run::{Histogram, HistogramSnapshot};

use super::gaps::{Gaps, Lost, Period};
use crate::probe::pause;

/// Questions that may be under way at half load. Beyond that the schedule waits.
pub(super) const UNDER_WAY: usize = 4096;
/// How long the last answers are waited for at most.
const LAST_NS: u64 = 1_000_000_000;

/// What questions are asked with.
pub(super) trait Asker {
    /// Takes what has come, and calls `answered` with when the question of each answer was to be
    /// asked. How many packets came.
    fn take(&mut self, now_ns: u64, answered: impl FnMut(u64)) -> usize;

    /// Asks what was to be asked at a time; `false` where there is no room.
    fn ask(&mut self, at_ns: u64, now_ns: u64) -> bool;

    /// Sends what was asked.
    fn flush(&mut self);
}

/// Asks and waits, in turns.
pub(super) struct Client<A> {
    asker: A,
    clock: Clock,
    under_way: usize,
    idle: u32,
    began_ns: u64,
    gaps: Gaps,
    /// What questions were judged to have taken, and gaps while they were asked.
    plain: Histogram,
    all: Histogram,
    lost: Lost,
}

/// What came of it.
pub(super) struct Measured {
    /// Questions that nobody else had a part in.
    pub(super) plain: HistogramSnapshot,
    pub(super) all: HistogramSnapshot,
    /// The client's gaps.
    pub(super) lost: Lost,
}

impl<A: Asker> Client<A> {
    pub(super) fn new(asker: A, clock: Clock) -> Self {
        Self {
            asker,
            clock,
            under_way: 0,
            idle: 0,
            began_ns: clock.ns(clock.now()),
            gaps: Gaps::default(),
            plain: Histogram::new(),
            all: Histogram::new(),
            lost: Lost::default(),
        }
    }

    /// A turn; returns whether no question was under way any more when it began to ask. `due` says
    /// how many are to be asked by now, given the time and how many have been answered in this
    /// turn; `answered` gets when a question was to be asked and when its answer was there.
    fn turn(
        &mut self,
        mut answered: impl FnMut(u64, u64),
        mut due: impl FnMut(u64, usize) -> Option<u64>,
    ) -> bool {
        let (began_ns, clock) = (self.began_ns, self.clock);
        let mut answers = 0;
        let mut packets = self.asker.take(began_ns, |at_ns| {
            answered(at_ns, clock.ns(clock.now()));
            answers += 1;
        });
        self.under_way -= answers;
        let is_clear = self.under_way == 0;
        while self.under_way < UNDER_WAY
            && let Some(at_ns) = due(began_ns, answers)
            && self.asker.ask(at_ns, began_ns)
        {
            self.under_way += 1;
            packets += 1;
        }
        self.asker.flush();
        if packets == 0 {
            pause(&mut self.idle);
        }
        let ended_ns = clock.ns(clock.now());
        let has_gap = self.gaps.note(began_ns, ended_ns, packets);
        self.lost.add(ended_ns - began_ns, has_gap);
        self.began_ns = ended_ns;
        is_clear
    }

    /// Answers a second, where each answer is another question, and so many are under way.
    pub(super) fn full_load(&mut self, at_once: usize, for_ns: u64) -> f64 {
        self.began_ns = self.clock.ns(self.clock.now());
        let (begun_ns, mut answers) = (self.began_ns, 0_u64);
        let mut to_ask = at_once;
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
        self.drain();
        answers as f64 * 1e9 / (self.began_ns - begun_ns) as f64
    }

    /// Until nothing is under way, or for [`LAST_NS`].
    fn drain(&mut self) {
        let until_ns = self.began_ns + LAST_NS;
        while self.under_way > 0 && self.began_ns < until_ns {
            self.turn(|_, _| {}, |_, _| None);
        }
    }

    /// Forgets the gaps of what was not by a schedule.
    pub(super) fn forget(&mut self) {
        self.lost = Lost::default();
    }

    /// Questions by a schedule, `every_ns` apart. With the gaps of the server's thread they are
    /// judged; without, all count.
    pub(super) fn by_schedule(&mut self, every_ns: f64, for_ns: u64, servers: Option<&Gaps>) {
        self.began_ns = self.clock.ns(self.clock.now());
        let begun_ns = self.began_ns;
        let until_ns = begun_ns + for_ns;
        let mut asked = 0_u64;
        // Those whose gaps are not known yet, and how long each question took.
        let (mut periods, mut took) = (VecDeque::new(), VecDeque::with_capacity(UNDER_WAY));
        let counts = |own: &Gaps| [own.count(), servers.map_or(0, Gaps::count)];
        let mut open = Period::after(counts(&self.gaps));
        loop {
            let is_over = self.began_ns >= until_ns;
            let is_judged = self.under_way == 0 && open.questions == 0 && periods.is_empty();
            if is_over && (is_judged || self.began_ns > until_ns + LAST_NS) {
                break;
            }
            let due_ns = |asked: u64| begun_ns + (asked as f64 * every_ns) as u64;
            // What is to be asked in this turn is late if the thread was not there in time: it
            // catches up then, and the answers of what it asks late come late.
            let is_timely = is_over || due_ns(asked) + GAP_NS > self.began_ns;
            let is_clear = self.turn(
                |at_ns, now_ns| {
                    took.push_back(now_ns.saturating_sub(at_ns));
                    open.from_ns = open.from_ns.min(at_ns);
                    open.questions += 1;
                },
                |now_ns, _| {
                    let at_ns = due_ns(asked);
                    (!is_over && at_ns <= now_ns).then(|| {
                        asked += 1;
                        at_ns
                    })
                },
            );
            if is_clear && is_timely && open.questions > 0 {
                open.until_ns = self.began_ns;
                let next = Period::after(counts(&self.gaps));
                periods.push_back(std::mem::replace(&mut open, next));
            }
            while let Some(period) = periods.front()
                && servers.is_none_or(|gaps| gaps.have_seen(period.until_ns))
            {
                let [own, of_server] = period.before;
                let is_plain = servers.is_none_or(|servers| {
                    !self.gaps.touch(period, own) && !servers.touch(period, of_server)
                });
                for took_ns in took.drain(..period.questions) {
                    self.all.record(took_ns, 1);
                    if is_plain {
                        self.plain.record(took_ns, 1);
                    }
                }
                periods.pop_front();
            }
        }
        took.drain(..)
            .for_each(|took_ns| self.all.record(took_ns, 1));
    }

    pub(super) fn into_measured(self) -> Measured {
        Measured {
            plain: self.plain.snapshot(),
            all: self.all.snapshot(),
            lost: self.lost,
        }
    }
}
