//! The worker: one lcore's loop of receive, pipeline, flush, and a turn for timers.
//!
//! Between two bursts a worker takes control messages: any function over `&mut Worker`, so that
//! tables are swapped, queues taken back and counters read while no packet is under way.

use super::doorbell::Doorbell;
use super::egress::{DropCount, Egress, TxPath};
use super::histogram::Histogram;
use super::idle::{Idle, Ladder, WAKE_UP};
use super::ledger::{Account, Holder};
use super::point::{Point, TAKEN};
use super::stage::{NEVER, Stage};
use crate::env::Clock;
use crate::inbox::{self, Inbox, Job};
use crate::packet::{Burst, Packet};
use crate::port::{Counter, RxQueue, SleepOn};
use crate::ring::{Pop, spsc};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where a worker's packets come from.
pub enum Source {
    /// A port's receive queue: its packets go through the pipeline.
    Queue(Box<dyn RxQueue>),
    /// A ring from another lcore, to a port whose transmit queue this lcore owns.
    HandOff(spsc::Consumer<Packet>),
    /// A ring from another lcore whose packets go through this lcore's pipeline.
    Ring(spsc::Consumer<Packet>),
}

/// One source and what it is called: a receive queue can be taken from one worker and given to
/// another as this value.
pub struct Inlet {
    /// The port that packets come from; for a [`Source::HandOff`], the port that they go to.
    pub port: u16,
    /// Number of the queue or ring within the port.
    pub queue: u16,
    source: Source,
    received: u64,
    ended: bool,
}

impl Inlet {
    /// A receive queue of a port.
    pub fn queue(port: u16, queue: u16, rx: Box<dyn RxQueue>) -> Self {
        Self {
            port,
            queue,
            source: Source::Queue(rx),
            received: 0,
            ended: false,
        }
    }

    /// A ring from another lcore to the transmit queue of `port` that this lcore owns.
    pub fn hand_off(port: u16, queue: u16, ring: spsc::Consumer<Packet>) -> Self {
        Self {
            port,
            queue,
            source: Source::HandOff(ring),
            received: 0,
            ended: false,
        }
    }

    fn sleep_on(&mut self) -> SleepOn {
        let on = match &mut self.source {
            Source::Queue(queue) => queue.sleep_on(),
            // Its producer rings the worker's own doorbell.
            Source::HandOff(ring) | Source::Ring(ring) if ring.is_closed() => SleepOn::Ended,
            Source::HandOff(_) | Source::Ring(_) => SleepOn::Unneeded,
        };
        self.ended = matches!(on, SleepOn::Ended);
        on
    }

    /// For the [ledger](super::ledger): what the device holds, or what came out of a ring,
    /// negative. `name` returns the name of its port.
    pub fn account(&self, worker: &str, name: &dyn Fn(u16) -> String) -> Account {
        let (port, queue) = (name(self.port), self.queue);
        let account = match &self.source {
            Source::Queue(source) => Account {
                port: Some(self.port),
                held: source.held(),
                ..Account::of(
                    Holder::RxQueue,
                    format!("{worker}: queue {queue} of {port}"),
                )
            },
            Source::HandOff(_) | Source::Ring(_) => Account {
                passed: -(self.received as i64),
                ..Account::of(Holder::Ring, format!("{worker}: ring {queue} for {port}"))
            },
        };
        Account {
            received: self.received,
            ..account
        }
    }

    /// Packets that came out of a ring from another lcore. `None` once the other has ended and all
    /// has come out, since its count of puts is gone.
    fn taken(&self) -> u64 {
        match &self.source {
            Source::Queue(_) => 0,
            Source::HandOff(ring) | Source::Ring(ring) => {
                let is_gone = ring.is_closed() && ring.meter().read().occupancy == 0;
                if is_gone { 0 } else { self.received }
            }
        }
    }

    /// A ring from another lcore to this one's pipeline.
    pub fn ring(port: u16, queue: u16, ring: spsc::Consumer<Packet>) -> Self {
        Self {
            port,
            queue,
            source: Source::Ring(ring),
            received: 0,
            ended: false,
        }
    }
}

/// What other threads can read of a worker while it runs. Counters have one writer, the worker.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Packets that came in, from queues and rings.
    pub packets: Counter,
    /// Rounds over all inlets.
    pub rounds: Counter,
    /// Ticks spent in rounds that had packets.
    pub busy_ticks: Counter,
    /// Of these: of rounds so long that another thread must have had the CPU.
    pub taken_ticks: Counter,
    /// Ticks spent in rounds that had none, not asleep.
    pub idle_ticks: Counter,
    /// Ticks asleep.
    pub asleep_ticks: Counter,
    /// Times fallen asleep.
    pub sleeps: Counter,
    /// Ticks from each packet's receive burst to the end of its round.
    pub residence: Histogram,
    /// Nanoseconds from the ring of a doorbell to the end of the nap: what waking up costs. Sleeps
    /// that a device's descriptor ended are not in it, since the time at which it became readable
    /// is unknown.
    pub wake_up_ns: Histogram,
    /// Length in ticks of gaps: rounds longer than `gap_limit` ticks, in which the CPU was taken
    /// from the worker (or a stage took very long).
    pub gaps: Histogram,
    /// What counts as a gap, in ticks.
    pub gap_limit: Counter,
    /// Length in ticks of each stop between two rounds to take messages.
    pub mail: Histogram,
    drops: Mutex<Arc<Mutex<Vec<DropCount>>>>,
}

impl WorkerStats {
    /// Drop reasons and counts, those that happened.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let outer = self
            .drops
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let names = outer
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        names
            .iter()
            .map(|(name, count)| (name.clone(), count.read()))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Share of the time in which packets were worked on: 0 to 1.
    pub fn busy_share(&self) -> f64 {
        let busy = self.busy_ticks.read() as f64;
        let all = busy + self.idle_ticks.read() as f64 + self.asleep_ticks.read() as f64;
        if all > 0.0 { busy / all } else { 0.0 }
    }
}

/// One lcore's packets: inlets, a pipeline, an egress.
pub struct Worker<S> {
    name: String,
    inlets: Vec<Inlet>,
    /// The pipeline.
    pub stage: S,
    /// The paths to ports, and this lcore's free slots.
    pub egress: Egress,
    clock: Clock,
    ladder: Ladder,
    stats: Arc<WorkerStats>,
    mail: Inbox<Job<Worker<S>>>,
    doorbell: Arc<Doorbell>,
    stopping: bool,
    /// Largest burst polled.
    burst_room: usize,
    last: u64,
    /// When the stage wants its next turn at the latest, in ticks.
    due: u64,
    unclaimed: super::DropId,
}

/// Sends messages to a worker. Clones reach the same one.
pub struct WorkerHandle<S> {
    name: String,
    mail: inbox::Sender<Job<Worker<S>>>,
    doorbell: Arc<Doorbell>,
    stats: Arc<WorkerStats>,
}

/// The worker has ended, so it takes no messages.
#[derive(Debug, thiserror::Error)]
#[error("worker `{0}` has ended and takes no messages")]
pub struct WorkerGone(String);

impl<S: Stage> Worker<S> {
    /// A worker without inlets and outlets, and the handle to it.
    ///
    /// # Errors
    /// If the kernel gives no eventfd for the doorbell.
    pub fn new(
        name: &str,
        stage: S,
        mut egress: Egress,
        clock: Clock,
    ) -> std::io::Result<(Self, WorkerHandle<S>)> {
        let (mail, sender) = inbox::inbox();
        let doorbell = Arc::new(Doorbell::new()?);
        let stats = Arc::new(WorkerStats::default());
        stats.gap_limit.set(clock.ticks(20_000));
        *stats
            .drops
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = egress.drop_counts();
        let handle = WorkerHandle {
            name: name.into(),
            mail: sender,
            doorbell: doorbell.clone(),
            stats: stats.clone(),
        };
        let unclaimed = egress.reason("left_over");
        let worker = Self {
            name: name.into(),
            inlets: Vec::new(),
            stage,
            egress,
            clock,
            ladder: Ladder::new(Idle::default()),
            stats,
            mail,
            doorbell,

            stopping: false,
            burst_room: Burst::CAPACITY,
            last: clock.now(),
            due: NEVER,
            unclaimed,
        };
        Ok((worker, handle))
    }

    /// How the worker behaves when no packets come.
    pub fn set_idle(&mut self, idle: Idle) {
        self.ladder = Ladder::new(idle);
    }

    /// Largest burst to poll, 1 to [`Burst::CAPACITY`].
    pub fn set_burst(&mut self, packets: usize) {
        self.burst_room = packets.clamp(1, Burst::CAPACITY);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a source of packets. Rings are polled before queues: packets that another lcore has
    /// processed leave before more come in, and are not lost to a full ring when both are busy.
    pub fn add_inlet(&mut self, inlet: Inlet) {
        let is_queue = |inlet: &Inlet| matches!(inlet.source, Source::Queue(_));
        let at = match is_queue(&inlet) {
            true => self.inlets.len(),
            false => self.inlets.partition_point(|known| !is_queue(known)),
        };
        self.inlets.insert(at, inlet);
    }

    /// The sources by port and queue, in the order in which they are polled.
    #[cfg(all(test, not(loom)))]
    pub(super) fn inlet_order(&self) -> Vec<(u16, u16)> {
        self.inlets
            .iter()
            .map(|inlet| (inlet.port, inlet.queue))
            .collect()
    }

    /// Takes a source back. All packets received from it so far have left this worker's pipeline.
    pub fn take_inlet(&mut self, port: u16, queue: u16) -> Option<Inlet> {
        let index = self
            .inlets
            .iter()
            .position(|inlet| (inlet.port, inlet.queue) == (port, queue))?;
        Some(self.inlets.remove(index))
    }

    /// Sets the path to a port; `None` takes it back.
    pub fn set_outlet(&mut self, port: u16, path: Option<TxPath>) -> Option<TxPath> {
        self.egress.set_outlet(port, path)
    }

    /// Asks the loop to end after this round.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether every inlet has reported its end.
    pub fn is_ended(&self) -> bool {
        !self.inlets.is_empty() && self.inlets.iter().all(|inlet| inlet.ended)
    }

    /// Asks every receive queue now whether no packet will come any more. Unlike
    /// [`Worker::is_ended`] it leaves rings from other lcores aside and needs no sleep in between.
    pub fn inputs_ended(&mut self) -> bool {
        self.inlets.iter_mut().all(|inlet| {
            let from_port = matches!(inlet.source, Source::Queue(_));
            !from_port || matches!(inlet.sleep_on(), SleepOn::Ended)
        })
    }

    /// One round over all inlets; returns how many packets came.
    #[inline]
    pub fn round(&mut self) -> usize {
        let mut came = 0;
        for inlet in &mut self.inlets {
            let mut burst = Burst::with_room(self.burst_room);
            let count = match &mut inlet.source {
                Source::Queue(queue) => queue.rx_burst(&mut burst, &mut self.egress.cache),
                Source::HandOff(ring) | Source::Ring(ring) => {
                    ring.pop_burst(&mut burst, self.burst_room)
                }
            };
            if count == 0 {
                continue;
            }
            let now = self.clock.now();
            (burst.now, burst.port) = (now, inlet.port);
            inlet.received += count as u64;
            came += count;
            if let Source::HandOff(_) = inlet.source {
                self.egress.pass_on(inlet.port, &mut burst);
            } else {
                let is_from_port = matches!(inlet.source, Source::Queue(_));
                let began = self.egress.enter(&burst, is_from_port);
                self.stage.run(&mut burst, &mut (), &mut self.egress);
                if !burst.is_empty() {
                    self.egress.drop_burst(self.unclaimed, &mut burst);
                }
                self.egress.leave(began, count as u64);
            }
            self.egress.flush();
            self.stats
                .residence
                .record(self.clock.now().wrapping_sub(now), count as u64);
        }
        self.egress.settle();
        came
    }

    /// Gives the stage its turn.
    #[inline(always)]
    fn turn(&mut self, now: u64) {
        self.due = self.stage.turn(now, &mut (), &mut self.egress);
        // What it sent leaves now, not with the next packet.
        self.egress.flush_sent();
    }

    /// Runs rounds until [`Worker::stop`] is called, by a message for one, or, with `until_ended`,
    /// until no packet will come any more. Returns itself for its queues to be taken back.
    pub fn run(mut self, until_ended: bool) -> Self {
        self.last = self.clock.now();
        while !self.stopping {
            let came = self.round();
            let now = self.clock.now();
            let ticks = now.wrapping_sub(self.last);
            self.last = now;
            self.turn(now);
            self.stats.rounds.add(1);
            if ticks > self.stats.gap_limit.read() {
                self.stats.gaps.record(ticks, 1);
                if came > 0 && ticks >= TAKEN {
                    self.stats.taken_ticks.add(ticks);
                }
            }
            if came > 0 {
                self.stats.packets.add(came as u64);
                self.stats.busy_ticks.add(ticks);
                self.ladder.reset();
            } else {
                self.stats.idle_ticks.add(ticks);
                self.idle();
                if until_ended && self.is_ended() {
                    break;
                }
            }
            if self.mail.has_mail() {
                self.read_mail();
            }
        }
        self.egress.flush();
        self.egress.reclaim();
        // Dropping the messages ends the wait of their senders.
        self.mail = inbox::inbox().0;
        self
    }

    /// Takes all messages that wait.
    #[cold]
    fn read_mail(&mut self) {
        let began = self.clock.now();
        for message in self.mail.take() {
            message(self);
        }
        // What they sent leaves now, not with the next packet.
        self.egress.flush();
        // No part of a round.
        self.last = self.clock.now();
        self.stats.mail.record(self.last.wrapping_sub(began), 1);
    }

    /// An empty round: one step down the ladder.
    fn idle(&mut self) {
        if self.ladder.step() {
            self.sleep();
        }
    }

    #[cold]
    fn sleep(&mut self) {
        self.egress.reclaim();
        let sources: Vec<SleepOn> = self.inlets.iter_mut().map(Inlet::sleep_on).collect();
        let bells = || {
            sources.iter().filter_map(|on| {
                if let SleepOn::Doorbell(bell) = on {
                    Some(bell)
                } else {
                    None
                }
            })
        };
        self.doorbell.prepare_sleep();
        bells().for_each(|bell| bell.prepare_sleep());
        // The last check: work that came before the flags were set did not ring the doorbell.
        let came = self.round();
        let mail = self.mail.has_mail();
        let began = self.clock.now();
        let mut slept = false;
        if came == 0 && !mail {
            let left = self.due.saturating_sub(began);
            let left = match self.due {
                NEVER => Duration::MAX,
                _ => Duration::from_nanos(self.clock.ns(left)),
            };
            let left = left.min(self.kept_for());
            slept = !left.is_zero();
            if slept {
                self.ladder.sleep(&self.doorbell, &sources, left);
            }
        }
        for bell in bells().chain([&self.doorbell]) {
            if bell.cancel() && slept {
                self.stats.wake_up_ns.record(bell.since_rung_ns(), 1);
            }
        }
        let woke = self.clock.now();
        self.last = woke;
        self.stats.packets.add(came as u64);
        if came > 0 || mail {
            return self.ladder.reset();
        }
        let ticks = woke.wrapping_sub(began);
        match slept {
            true => {
                self.stats.sleeps.add(1);
                self.stats.asleep_ticks.add(ticks);
            }
            false => self.stats.idle_ticks.add(ticks),
        }
    }

    /// How long to sleep at most for packets that queues keep for a time, less what waking up
    /// takes: the rest of the time is polled, so that they come out when they are due.
    fn kept_for(&self) -> Duration {
        let inlets = self.inlets.iter().filter_map(|inlet| match &inlet.source {
            Source::Queue(queue) => queue.due_in(),
            Source::HandOff(_) | Source::Ring(_) => None,
        });
        let due_in = inlets.chain(self.egress.due_in()).min();
        due_in.map_or(Duration::MAX, |due_in| due_in.saturating_sub(WAKE_UP))
    }

    /// Packets that this worker ever put into rings to other workers, and that it took out of rings
    /// from others. Between bursts none is in its hands, so once two rounds of questions to all
    /// workers have gone by and what the first sums up as taken equals what the second sums up as
    /// handed over, no packet is under way between them, whatever its way and the order of
    /// questions (Mattern 1987, *Algorithms for distributed termination detection*, 4.1).
    pub fn handed_and_taken(&self) -> (u64, u64) {
        let taken = self.inlets.iter().map(Inlet::taken).sum();
        (self.egress.handed_total(), taken)
    }

    /// Shows each named point: that of the pipeline as a whole, those of its stages, and those of
    /// what it sends and what is dropped.
    pub fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        let mut known = 0;
        self.stage.points(&mut |point| known += point.unaccounted);
        visit(self.egress.pipeline(self.stage.held_packets(), known));
        self.stage.points(visit);
        self.egress.points().into_iter().for_each(visit);
    }

    /// What this worker holds, for the [ledger](super::ledger): free slots, what its inlets and
    /// outlets took and gave, and what its stages hold and have lost. `name` returns the names of
    /// ports.
    pub fn accounts(&mut self, name: &dyn Fn(u16) -> String) -> Vec<Account> {
        let worker = &self.name;
        let free = Account::cache(format!("{worker}: free slots"), &self.egress.cache);
        let inlets = self.inlets.iter();
        let inlets = inlets.map(|inlet| inlet.account(worker, name));
        let mut accounts: Vec<Account> = [free].into_iter().chain(inlets).collect();
        let mut stages = Vec::new();
        let mut known = 0;
        self.stage.points(&mut |point| {
            known += point.unaccounted;
            stages.push(Account {
                received: point.packets,
                lost: point.unaccounted,
                ..Account::of(Holder::Stage, format!("{worker}: stage `{}`", point.name))
            });
        });
        self.egress.pipeline(self.stage.held_packets(), known);
        accounts.extend(self.egress.accounts(worker, self.stage.held()));
        accounts.extend(stages);
        accounts
    }
}

impl<S: Stage + 'static> WorkerHandle<S> {
    /// Runs `work` on the worker, between two bursts, and returns what it returns.
    ///
    /// # Errors
    /// [`WorkerGone`] if the worker's loop has ended.
    pub fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker<S>) -> R + Send + 'static,
    ) -> Result<R, WorkerGone> {
        let answer = self.mail.ask(work);
        self.doorbell.ring();
        answer.wait().ok_or_else(|| WorkerGone(self.name.clone()))
    }

    /// Asks the worker to end. It may have ended already.
    pub fn stop(&self) {
        let _ = self.call(Worker::stop);
    }
}

impl<S> WorkerHandle<S> {
    /// The worker's counters.
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    /// What wakes the worker when its packets come through rings.
    pub fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbell
    }

    /// The worker's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<S> Clone for WorkerHandle<S> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            mail: self.mail.clone(),
            doorbell: self.doorbell.clone(),
            stats: self.stats.clone(),
        }
    }
}

/// Moves a receive queue from one worker to another, under load: packets keep their order, and
/// none is lost. What the old worker has handed to other lcores must have been taken before the new
/// one starts, so this waits for that, sleeping; not for what it hands over from its other queues
/// meanwhile.
///
/// # Errors
/// [`WorkerGone`] if one of them has ended. Then the queue is back with the old worker, or gone
/// with it.
pub fn move_inlet<A, B>(
    from: &WorkerHandle<A>,
    to: &WorkerHandle<B>,
    port: u16,
    queue: u16,
) -> Result<bool, WorkerGone>
where
    A: Stage + 'static,
    B: Stage + 'static,
{
    let take = move |worker: &mut Worker<A>| {
        let inlet = worker.take_inlet(port, queue)?;
        Some((inlet, Arc::new(worker.egress.handed())))
    };
    let Some((inlet, handed)) = from.call(take)? else {
        return Ok(false);
    };
    loop {
        let handed = handed.clone();
        if from.call(move |worker| worker.egress.is_taken(&handed))? {
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    to.call(move |worker| worker.add_inlet(inlet))?;
    Ok(true)
}
