//! One lcore's loop: the turns of its senders and receivers, and messages between them.
//!
//! A message runs on the lcore between two turns, so that counters it reads are consistent and its
//! changes take effect at once. An lcore spins while its next frame is near, yields the CPU while
//! it only waits, and sleeps when the session sends nothing and nothing comes in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;
use std::time::Duration;

use linerate_appliance::control::taps::Watched;
use linerate_core::arch::pause;
use linerate_core::env::Clock;
use linerate_core::inbox::{self, Answer, Inbox, Job};
use linerate_core::packet::PoolCache;
use linerate_core::port::SleepOn;
use linerate_core::run::Point;
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::ledger::Account;
use linerate_core::run::{WAKE_UP, nap_on};

use super::{Receiver, Sender};

/// A round may take this long, and so much more for each frame of it (a system call at worst),
/// before the CPU counts as taken away.
const GAP_NS: u64 = 20_000;
const GAP_NS_PER_FRAME: u64 = 2_000;
/// With a frame due within this time an lcore neither yields nor sleeps.
const NEAR_NS: u64 = 50_000;
/// Time without a frame, with nothing being sent, after which an lcore sleeps.
const QUIET_NS: u64 = 2_000_000;
/// Longest sleeps: of an lcore that events wake, and of one whose queues have to be polled.
const NAP: Duration = Duration::from_millis(20);
const BLIND_NAP: Duration = Duration::from_micros(50);
/// Empty rounds between two yields of the CPU.
const YIELD_EVERY: u32 = 32;

/// What an lcore did with its time since the last `clear`, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// In rounds that moved frames.
    pub busy: u64,
    /// In rounds that moved no frames.
    pub idle: u64,
    /// Asleep.
    pub asleep: u64,
    /// Gaps: rounds that took longer than they may, since the CPU was taken away; their number, the
    /// longest, and their sum.
    pub gaps: u64,
    /// The longest gap.
    pub longest_gap: u64,
    /// Sum of all gaps.
    pub gaps_sum: u64,
}

/// One lcore's work.
pub struct Engine {
    /// Transmit queues, in the order of their turns.
    pub senders: Vec<Sender>,
    /// Receive queues, in the order of their turns.
    pub receivers: Vec<Receiver>,
    /// Use of its time since the last `clear`.
    pub load: Load,
    /// The lcore's stock of free slots.
    pub cache: PoolCache,
    clock: Clock,
    /// Whether other threads need this CPU too: then it is yielded even with a frame near.
    is_shared: bool,
    /// Active senders, over all lcores of the session: while there are any, no lcore sleeps.
    at_work: Arc<AtomicUsize>,
    /// How many of the active senders are on this lcore.
    mine_at_work: usize,
    mail: Inbox<Job<Engine>>,
    doorbell: Arc<Doorbell>,
    stopping: bool,
    /// Keeps polling when nothing comes and nothing is sent.
    pub never_sleeps: bool,
}

/// Handle of an engine on its lcore.
#[derive(Clone)]
pub struct EngineHandle {
    mail: inbox::Sender<Job<Engine>>,
    doorbell: Arc<Doorbell>,
}

/// Wakes a sleeping lcore to read its rings.
#[derive(Clone)]
pub struct Waker(Arc<Doorbell>);

impl Waker {
    pub(super) fn wake(&self) {
        self.0.ring();
    }

    /// Wakes nobody.
    #[cfg(test)]
    pub(super) fn idle() -> Self {
        Self(Arc::new(Doorbell::new().expect("a descriptor is left")))
    }
}

impl Engine {
    /// An lcore's work without queues, and the handle to it. `at_work` is shared by the session's
    /// lcores.
    ///
    /// # Errors
    /// If the kernel gives no eventfd.
    pub fn new(
        cache: PoolCache,
        clock: Clock,
        is_shared: bool,
        at_work: Arc<AtomicUsize>,
    ) -> std::io::Result<(Self, EngineHandle)> {
        let (mail, sender) = inbox::inbox();
        let doorbell = Arc::new(Doorbell::new()?);
        let handle = EngineHandle {
            mail: sender,
            doorbell: doorbell.clone(),
        };
        let engine = Self {
            senders: Vec::new(),
            receivers: Vec::new(),
            load: Load::default(),
            cache,
            clock,
            is_shared,
            at_work,
            mine_at_work: 0,
            mail,
            doorbell,
            stopping: false,
            never_sleeps: false,
        };
        Ok((engine, handle))
    }

    /// The slots that it holds, for the ledger, under the lcore's name.
    pub fn accounts(&self, lcore: &str) -> Vec<Account> {
        let queue = |way: &str, port: u16, held: i64| Account {
            port: Some(port),
            ..Account::holds(format!("{lcore}: queue {way} port {port}"), held)
        };
        let free = Account::cache(format!("{lcore}: free slots"), &self.cache);
        let senders = self.senders.iter();
        let senders = senders.map(|sender| queue("to", sender.port, sender.held()));
        let receivers = self.receivers.iter();
        let receivers = receivers.map(|receiver| queue("from", receiver.port, receiver.held()));
        [free].into_iter().chain(senders).chain(receivers).collect()
    }

    /// Visits the points of each receive queue, then of each transmit queue.
    pub fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        let receivers = self.receivers.iter_mut();
        receivers
            .flat_map(Receiver::points)
            .chain(self.senders.iter_mut().map(Sender::point))
            .for_each(visit);
    }

    /// Ends the loop after this round.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Runs until a message stops it. Returns itself, with its queues.
    pub fn run(mut self) -> Self {
        let (near, quiet) = (self.clock.ticks(NEAR_NS), self.clock.ticks(QUIET_NS));
        let mut last = self.clock.now();
        let mut moved_at = last;
        let mut empty = 0u32;
        while !self.stopping {
            let moved = self.round();
            let now = self.clock.now();
            self.account(last, now, moved);
            last = now;
            if moved > 0 {
                moved_at = now;
            } else {
                pause();
                empty = empty.wrapping_add(1);
                if empty.is_multiple_of(YIELD_EVERY) {
                    last = self.wait(now, near, now.saturating_sub(moved_at) > quiet);
                }
            }
            if self.mail.has_mail() {
                self.read_mail();
                last = self.clock.now();
                moved_at = last;
            }
        }
        self.at_work.fetch_sub(self.mine_at_work, Ordering::Relaxed);
        // Dropping the messages ends the wait of their senders.
        self.mail = inbox::inbox().0;
        self
    }

    /// One turn of each sender and receiver; returns how many frames moved.
    #[inline]
    fn round(&mut self) -> usize {
        let mut moved = 0;
        // The time of each turn counts for its queue: from the end of the turn before to its own
        // end.
        let mut now = self.clock.now();
        for sender in &mut self.senders {
            let sent = sender.turn(now, &mut self.cache);
            let after = self.clock.now();
            if sent > 0 {
                let ticks = after.saturating_sub(now);
                sender.stats.busy_ticks.add(ticks);
            }
            (moved, now) = (moved + sent, after);
        }
        for receiver in &mut self.receivers {
            let came = receiver.turn(&mut self.cache);
            let after = self.clock.now();
            if came > 0 {
                let ticks = after.saturating_sub(now);
                receiver.books.stats.busy_ticks.add(ticks);
            }
            (moved, now) = (moved + came, after);
        }
        moved
    }

    #[inline]
    fn account(&mut self, last: u64, now: u64, moved: usize) {
        let ticks = now.saturating_sub(last);
        if moved > 0 {
            self.load.busy += ticks;
        } else {
            self.load.idle += ticks;
        }
        if ticks > self.clock.ticks(GAP_NS + GAP_NS_PER_FRAME * moved as u64) {
            self.gap(ticks);
        }
    }

    #[cold]
    fn gap(&mut self, ticks: u64) {
        self.load.gaps += 1;
        self.load.gaps_sum += ticks;
        self.load.longest_gap = self.load.longest_gap.max(ticks);
    }

    /// When the next frame is due; updates the number of active senders.
    fn next_due(&mut self) -> u64 {
        let senders = self.senders.iter().filter_map(Sender::next_due);
        let (due, count) = senders.fold((u64::MAX, 0), |(due, count), at| (due.min(at), count + 1));
        if count != self.mine_at_work {
            // Wrapping is right here, since the sum over all lcores is never negative.
            let change = count.wrapping_sub(self.mine_at_work);
            self.at_work.fetch_add(change, Ordering::Relaxed);
            self.mine_at_work = count;
        }
        due
    }

    /// Nothing to do: spins on, yields, or sleeps. Returns the time afterwards.
    fn wait(&mut self, now: u64, near: u64, is_quiet: bool) -> u64 {
        let due = self.next_due();
        // A frame that is overdue waits for the peer to make room, and the peer may need this CPU.
        let is_near = due > now && due - now < near;
        if is_near && !self.is_shared {
            return now;
        }
        let nobody_sends = self.at_work.load(Ordering::Relaxed) == 0;
        if is_quiet && nobody_sends && !self.never_sleeps {
            return self.sleep();
        }
        yield_now();
        let back = self.clock.now();
        if nobody_sends {
            // The CPU was yielded, so this time is not a gap.
            self.load.idle += back.saturating_sub(now);
        } else {
            self.account(now, back, 0);
        }
        back
    }

    /// Sleeps until frames or messages come, or the time is over.
    #[cold]
    fn sleep(&mut self) -> u64 {
        let sources: Vec<SleepOn> = self.receivers.iter_mut().map(Receiver::sleep_on).collect();
        let bells = || {
            sources.iter().filter_map(|on| match on {
                SleepOn::Doorbell(bell) => Some(&**bell),
                _ => None,
            })
        };
        self.doorbell.prepare_sleep();
        bells().for_each(Doorbell::prepare_sleep);
        // The last check: what came before the flags were set did not ring the doorbell.
        let moved = self.round();
        let before = self.clock.now();
        if moved == 0 && !self.mail.has_mail() {
            let senders = self.senders.iter().filter_map(Sender::due_in);
            let receivers = self.receivers.iter().filter_map(Receiver::due_in);
            let due_in = senders.chain(receivers).min();
            let nap = due_in.map_or(NAP, |due_in| due_in.saturating_sub(WAKE_UP).min(NAP));
            nap_on(&self.doorbell, &sources, nap, BLIND_NAP);
        }
        bells().chain([&*self.doorbell]).for_each(|bell| {
            bell.cancel();
        });
        let woke = self.clock.now();
        self.load.asleep += woke.saturating_sub(before);
        woke
    }

    /// Takes all messages that wait.
    #[cold]
    fn read_mail(&mut self) {
        // Cleared before reading: a message sent meanwhile sets it again.
        for message in self.mail.take() {
            message(self);
        }
        self.next_due();
    }
}

impl Watched for EngineHandle {
    fn visit(&self, mut visit: Box<dyn FnMut(&mut Point) + Send>) {
        drop(self.call(move |engine| {
            engine.points(&mut *visit);
            visit
        }));
    }
}

impl EngineHandle {
    /// What wakes the lcore.
    pub fn waker(&self) -> Waker {
        Waker(self.doorbell.clone())
    }

    /// Asks for `work` to be run on the lcore, between two turns, and returns without waiting.
    pub fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Answer<R> {
        let answer = self.mail.ask(work);
        self.doorbell.ring();
        answer
    }

    /// Runs `work` on the lcore, between two turns, and returns what it returns; `None` where the
    /// lcore has ended.
    pub fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Option<R> {
        self.ask(work).wait()
    }
}
