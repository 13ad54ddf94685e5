//! A port with a bad wire: a slow link, a queue before it, delay and jitter, losses, repeats,
//! swaps, damage and congestion marks, by a seed.
//!
//! Each queue of the port has a wire of its own, in the file `line.rs`; so a `rate` is that of one
//! queue. What is written how stands in `faults.rs`. Frames with
//! [`Offload::GSO`](crate::packet::Offload::GSO) pass, and suffer, as one.
//!
//! Packets that are delayed need time, not an event, to come out:
//! [`RxQueue::due_in`] and [`TxQueue::due_in`] tell an lcore how long it may sleep.

mod faults;
mod line;
mod link;
#[cfg(test)]
mod tests;

pub use faults::{Ce, Faults, Jitter, Length, LineFaults, LossBursts};

use super::{
    Link, Port, PortConfig, PortError, PortInfo, PortStats, QueueStats, Queues, RssSetup, RxQueue,
    SleepOn, TxQueue,
};
use crate::packet::{Burst, PoolCache, Pools};
use line::{FaultCounts, Line};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon to try again to send what the port behind the wire has not taken.
const RETRY: Duration = Duration::from_micros(100);

/// Tells the time in nanoseconds: any that never goes back.
pub type NowNs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Wraps any port. Packets that are still delayed when a queue is dropped count as lost.
pub struct Faulty {
    port: Box<dyn Port>,
    faults: Faults,
    now_ns: NowNs,
    /// Packets that each queue keeps at most, since it was started: received, and sent.
    most_kept: Option<(usize, usize)>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
    /// Of each queue at each start.
    counts: Vec<Arc<FaultCounts>>,
}

impl Faulty {
    /// Makes `port` worse.
    pub fn new(port: Box<dyn Port>, faults: Faults) -> Self {
        let start = Instant::now();
        let now_ns = move || start.elapsed().as_nanos() as u64;
        Self::timed_by(port, faults, Arc::new(now_ns))
    }

    /// The same by another clock, such as one that a test turns.
    pub fn timed_by(port: Box<dyn Port>, faults: Faults, now_ns: NowNs) -> Self {
        Self {
            port,
            faults,
            now_ns,
            most_kept: None,
            rx: Vec::new(),
            tx: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// The wire of one more queue.
    fn wire(
        &mut self,
        faults: &LineFaults,
        stream: u64,
        pools: &Pools,
        stats: Arc<QueueStats>,
    ) -> Wire {
        let counts = Arc::<FaultCounts>::default();
        self.counts.push(counts.clone());
        Wire {
            line: Line::new(faults, (self.faults.seed, stream), pools, stats, counts),
            now_ns: self.now_ns.clone(),
        }
    }
}

impl Port for Faulty {
    fn info(&self) -> PortInfo {
        let mut info = self.port.info();
        info.facts.push(("faults", self.faults.to_string()));
        let is_timed = self.faults.rx.is_timed() || self.faults.tx.is_timed();
        if let Some((rx, tx)) = self.most_kept.filter(|_| is_timed) {
            let most = format!("{rx} packets in a receive queue, {tx} in a transmit queue");
            info.facts.push(("faults keep at most", most));
        }
        info
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        let inner = self.port.start(config, pools)?;
        let (rx, tx) = (self.faults.rx, self.faults.tx);
        self.most_kept = Some((line::most_kept(&rx, pools), line::most_kept(&tx, pools)));
        let mut queues = Queues::default();
        for (index, queue) in inner.rx.into_iter().enumerate() {
            if !self.faults.on_rx {
                queues.rx.push(queue);
                continue;
            }
            let stats = stats(&mut self.rx, index);
            let wire = self.wire(&rx, 2 * index as u64, pools, stats);
            queues.rx.push(Box::new(FaultyRx {
                queue,
                wire,
                arrived: Burst::new(),
            }));
        }
        for (index, queue) in inner.tx.into_iter().enumerate() {
            if !self.faults.on_tx {
                queues.tx.push(queue);
                continue;
            }
            let stats = stats(&mut self.tx, index);
            let wire = self.wire(&tx, 2 * index as u64 + 1, pools, stats);
            queues.tx.push(Box::new(FaultyTx {
                queue,
                wire,
                leaving: Burst::new(),
            }));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        self.port.link()
    }

    fn rss(&self) -> Option<RssSetup> {
        self.port.rss()
    }

    fn warning(&self) -> Option<String> {
        self.port.warning()
    }

    /// The port's own counters, plus the losses. What was doubled was sent twice.
    fn stats(&self) -> PortStats {
        let (mut stats, ours) = (self.port.stats(), PortStats::sum(&self.rx, &self.tx));
        stats.rx_drops.extend(ours.rx_drops);
        stats.tx_drops.extend(ours.tx_drops);
        stats.faults.extend(FaultCounts::sum(&self.counts));
        stats
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.port.stop()
    }
}

fn stats(all: &mut Vec<Arc<QueueStats>>, index: usize) -> Arc<QueueStats> {
    if index >= all.len() {
        all.resize_with(index + 1, QueueStats::new);
    }
    all[index].clone()
}

/// A line and its clock.
struct Wire {
    line: Line,
    now_ns: NowNs,
}

impl Wire {
    /// The time, if it matters; else any.
    fn now_ns(&self) -> u64 {
        match self.line.is_timed() {
            true => (self.now_ns)(),
            false => 0,
        }
    }

    /// Lets out what is due. `is_quiet`: nothing came in, so nothing is worth waiting for to swap
    /// with.
    fn leave(&mut self, burst: &mut Burst, now_ns: u64, is_quiet: bool) {
        if is_quiet {
            self.line.stop_waiting(now_ns);
        }
        while burst.room() > 0
            && let Some(packet) = self.line.leave(now_ns)
        {
            if burst.push(packet).is_err() {
                break; // there was room
            }
        }
    }

    fn due_in(&self) -> Option<Duration> {
        let due_ns = self.line.next_due_ns()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(self.now_ns())))
    }
}

struct FaultyRx {
    queue: Box<dyn RxQueue>,
    wire: Wire,
    arrived: Burst,
}

impl RxQueue for FaultyRx {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        if self.wire.line.room() >= Burst::CAPACITY {
            self.queue.rx_burst(&mut self.arrived, cache);
        }
        let (now_ns, is_quiet) = (self.wire.now_ns(), self.arrived.is_empty());
        for packet in self.arrived.drain() {
            self.wire.line.enter(packet, now_ns, cache);
        }
        self.wire.leave(burst, now_ns, is_quiet);
        burst.len() - before
    }

    fn sleep_on(&mut self) -> SleepOn {
        match self.queue.sleep_on() {
            // The last ones are still on the wire, and come out with time.
            SleepOn::Ended if self.wire.line.next_due_ns().is_some() => SleepOn::Unneeded,
            on => on,
        }
    }

    fn due_in(&self) -> Option<Duration> {
        let inner = self.queue.due_in().into_iter();
        inner.chain(self.wire.due_in()).min()
    }

    fn held(&self) -> i64 {
        self.queue.held() + (self.wire.line.held() + self.arrived.len()) as i64
    }
}

struct FaultyTx {
    queue: Box<dyn TxQueue>,
    wire: Wire,
    /// Off the line, but not yet taken by the queue.
    leaving: Burst,
}

impl FaultyTx {
    fn send(&mut self, now_ns: u64, is_quiet: bool, cache: &mut PoolCache) {
        loop {
            self.wire.leave(&mut self.leaving, now_ns, is_quiet);
            if self.leaving.is_empty() || self.queue.tx_burst(&mut self.leaving, cache) == 0 {
                return;
            }
        }
    }
}

impl TxQueue for FaultyTx {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let now_ns = self.wire.now_ns();
        let mut taken = Burst::new();
        let count = burst.move_front(self.wire.line.room(), &mut taken);
        for packet in taken.drain() {
            self.wire.line.enter(packet, now_ns, cache);
        }
        self.send(now_ns, false, cache);
        count
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        self.send(self.wire.now_ns(), true, cache);
        self.queue.flush(cache);
    }

    fn due_in(&self) -> Option<Duration> {
        let own = match self.leaving.is_empty() {
            true => self.wire.due_in(),
            // The queue had no room, and nobody tells when it has: at once would be a spin.
            false => Some(RETRY),
        };
        self.queue.due_in().into_iter().chain(own).min()
    }

    fn held(&self) -> i64 {
        self.queue.held() + (self.wire.line.held() + self.leaving.len()) as i64
    }
}

impl Drop for FaultyTx {
    fn drop(&mut self) {
        self.wire.line.abandon(self.leaving.len());
    }
}
