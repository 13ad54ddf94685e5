//! A port with a bad wire: loses, repeats, swaps, damages and delays packets, by a seed.

use super::{
    Counter, DropReason, Link, Port, PortConfig, PortError, PortInfo, PortStats, QueueStats,
    Queues, RxQueue, SleepOn, TxQueue,
};
use crate::packet::{Burst, Packet, PoolCache, Pools};
use crate::random::Random;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

/// Packets that a queue keeps at most, besides those that are delayed by number.
const MOST_KEPT: usize = 4096;

/// What befalls packets, each with a probability from 0 to 1.
///
/// ```
/// use linerate_core::port::Faults;
/// let faults: Faults = "loss:0.01+dup:0.001+seed:7".parse()?;
/// assert_eq!((faults.loss, faults.seed), (0.01, 7));
/// assert!("loss:2".parse::<Faults>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The packet is dropped, and counted as `injected`.
    pub loss: f64,
    /// It comes twice.
    pub dup: f64,
    /// It changes places with the one behind it.
    pub reorder: f64,
    /// One bit of it flips: what a checksum finds hardest.
    pub flip: f64,
    /// It comes after so many later ones have come in. At the end so many stay behind.
    pub delay_pkts: usize,
    /// It comes so many nanoseconds later.
    pub delay_ns: u64,
    /// What is received suffers.
    pub on_rx: bool,
    /// What is sent suffers.
    pub on_tx: bool,
    /// The same seed does the same to the same packets, queue by queue.
    pub seed: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            dup: 0.0,
            reorder: 0.0,
            flip: 0.0,
            delay_pkts: 0,
            delay_ns: 0,
            on_rx: true,
            on_tx: true,
            seed: 1,
        }
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for part in text.split('+').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once(':').unwrap_or((part, ""));
            let chance = || {
                let chance = value
                    .parse()
                    .ok()
                    .filter(|chance| (0.0..=1.0).contains(chance));
                chance.ok_or(format!(
                    "{key} takes a probability from 0 to 1, not `{value}`"
                ))
            };
            let count = || {
                value
                    .parse()
                    .map_err(|_| format!("{key} takes a whole number, not `{value}`"))
            };
            match key {
                "loss" => faults.loss = chance()?,
                "dup" => faults.dup = chance()?,
                "reorder" => faults.reorder = chance()?,
                "flip" => faults.flip = chance()?,
                "delay" => faults.delay_pkts = count()? as usize,
                "delay_ns" => faults.delay_ns = count()?,
                "seed" => faults.seed = count()?,
                "on" => {
                    (faults.on_rx, faults.on_tx) = match value {
                        "rx" => (true, false),
                        "tx" => (false, true),
                        "both" => (true, true),
                        _ => return Err(format!("on takes rx, tx or both, not `{value}`")),
                    }
                }
                _ => {
                    return Err(format!(
                        "`{key}` is none of loss, dup, reorder, flip, delay, delay_ns, on, seed"
                    ));
                }
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            loss,
            dup,
            reorder,
            flip,
            delay_pkts,
            delay_ns,
            seed,
            ..
        } = self;
        write!(
            f,
            "loss:{loss}+dup:{dup}+reorder:{reorder}+flip:{flip}+delay:{delay_pkts}+\
             delay_ns:{delay_ns}+seed:{seed}"
        )
    }
}

/// What befell the packets of one queue, written by the lcore that polls it.
#[derive(Debug, Default)]
struct FaultCounts {
    lost: Counter,
    doubled: Counter,
    /// Came behind a later packet; not those whose double went before.
    reordered: Counter,
    flipped: Counter,
}

impl FaultCounts {
    /// Sums over queues by kind, those that happened.
    fn sum(all: &[Arc<Self>]) -> Vec<(&'static str, u64)> {
        let sum = |read: fn(&Self) -> &Counter| all.iter().map(|counts| read(counts).read()).sum();
        let rows = [
            ("loss", sum(|counts| &counts.lost)),
            ("dup", sum(|counts| &counts.doubled)),
            ("reorder", sum(|counts| &counts.reordered)),
            ("flip", sum(|counts| &counts.flipped)),
        ];
        let rows = rows.into_iter();
        rows.filter(|&(_, count): &(_, u64)| count > 0).collect()
    }
}

/// Wraps any port. Packets that are still delayed when a queue is dropped count as lost.
pub struct Faulty {
    port: Box<dyn Port>,
    faults: Faults,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
    /// Of each queue at each start.
    counts: Vec<Arc<FaultCounts>>,
}

impl Faulty {
    /// Makes `port` worse.
    pub fn new(port: Box<dyn Port>, faults: Faults) -> Self {
        Self {
            port,
            faults,
            rx: Vec::new(),
            tx: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Counters for one more queue.
    fn count(&mut self) -> Arc<FaultCounts> {
        let counts = Arc::<FaultCounts>::default();
        self.counts.push(counts.clone());
        counts
    }
}

impl Port for Faulty {
    fn info(&self) -> PortInfo {
        let mut info = self.port.info();
        info.facts.push(("faults", self.faults.to_string()));
        info
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        let inner = self.port.start(config, pools)?;
        let mut queues = Queues::default();
        for (index, queue) in inner.rx.into_iter().enumerate() {
            if !self.faults.on_rx {
                queues.rx.push(queue);
                continue;
            }
            let counts = self.count();
            let line = Line::new(
                &self.faults,
                2 * index as u64,
                pools,
                stats(&mut self.rx, index),
                counts,
            );
            queues.rx.push(Box::new(FaultyRx {
                queue,
                line,
                arrived: Burst::new(),
            }));
        }
        for (index, queue) in inner.tx.into_iter().enumerate() {
            if !self.faults.on_tx {
                queues.tx.push(queue);
                continue;
            }
            let counts = self.count();
            let line = Line::new(
                &self.faults,
                2 * index as u64 + 1,
                pools,
                stats(&mut self.tx, index),
                counts,
            );
            queues.tx.push(Box::new(FaultyTx {
                queue,
                line,
                leaving: Burst::new(),
            }));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        self.port.link()
    }

    /// The port's own counters, plus the losses. What was doubled was sent twice.
    fn warning(&self) -> Option<String> {
        self.port.warning()
    }

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

/// The bad wire of one queue.
struct Line {
    faults: Faults,
    random: Random,
    /// In the order in which they come out, with the time from which they may.
    packets: VecDeque<(Option<Instant>, Packet)>,
    /// Waits for the next packet, to come out behind it; and whether a double of it went before.
    swapped: Option<(Option<Instant>, Packet, bool)>,
    pools: Pools,
    stats: Arc<QueueStats>,
    counts: Arc<FaultCounts>,
}

impl Line {
    fn new(
        faults: &Faults,
        stream: u64,
        pools: &Pools,
        stats: Arc<QueueStats>,
        counts: Arc<FaultCounts>,
    ) -> Self {
        let random = Random::new(faults.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            faults: *faults,
            random,
            packets: VecDeque::new(),
            swapped: None,
            pools: pools.clone(),
            stats,
            counts,
        }
    }

    fn room(&self) -> usize {
        // One packet may become two.
        (MOST_KEPT + self.faults.delay_pkts).saturating_sub(self.packets.len()) / 2
    }

    fn held(&self) -> usize {
        self.packets.len() + usize::from(self.swapped.is_some())
    }

    /// Takes one packet in. Each draws the same number of random values, whatever its faults.
    fn enter(&mut self, mut packet: Packet, now: Option<Instant>, cache: &mut PoolCache) {
        let Faults {
            loss,
            dup,
            reorder,
            flip,
            ..
        } = self.faults;
        let [lost, doubled, swapped, flipped] =
            [loss, dup, reorder, flip].map(|chance| self.random.unit() < chance);
        let bit = self.random.bits();
        if lost {
            self.stats.dropped(DropReason::Injected, 1);
            self.counts.lost.add(1);
            cache.free_one(packet);
            return;
        }
        let bits = packet.len() as u64 * 8;
        if flipped && bits > 0 {
            let bit = bit % bits;
            packet.data_mut()[bit as usize / 8] ^= 1 << (bit % 8);
            self.counts.flipped.add(1);
        }
        let second = if doubled {
            self.copy(&packet, cache)
        } else {
            None
        };
        self.counts.doubled.add(u64::from(second.is_some()));
        if swapped && self.swapped.is_none() {
            self.swapped = Some((now, packet, second.is_some()));
        } else {
            self.packets.push_back((now, packet));
            if let Some((entered, packet, doubled)) = self.swapped.take() {
                self.counts.reordered.add(u64::from(!doubled));
                self.packets.push_back((entered, packet));
            }
        }
        self.packets.extend(second.map(|second| (now, second)));
    }

    fn copy(&self, packet: &Packet, cache: &mut PoolCache) -> Option<Packet> {
        let mut copy = cache.get(self.pools.for_frame(packet.len())?)?;
        copy.copy_meta(packet);
        copy.set_data(packet.data()).then_some(copy)
    }

    /// The time, if it matters.
    fn now(&self) -> Option<Instant> {
        (self.faults.delay_ns > 0).then(Instant::now)
    }

    /// Lets out what is due. `quiet`: nothing came in, so nothing is worth waiting for to swap
    /// with.
    fn leave(&mut self, burst: &mut Burst, now: Option<Instant>, quiet: bool) {
        if quiet {
            let waiting = self.swapped.take();
            self.packets
                .extend(waiting.map(|(entered, packet, _)| (entered, packet)));
        }
        while self.packets.len() > self.faults.delay_pkts && burst.room() > 0 {
            let entered = self.packets.front().and_then(|(entered, _)| *entered);
            if let (Some(now), Some(entered)) = (now, entered)
                && now.duration_since(entered).as_nanos() < u128::from(self.faults.delay_ns)
            {
                break;
            }
            let Some((_, packet)) = self.packets.pop_front() else {
                break;
            };
            if burst.push(packet).is_err() {
                break; // there was room
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stats.dropped(DropReason::Injected, self.held() as u64);
    }
}

struct FaultyRx {
    queue: Box<dyn RxQueue>,
    line: Line,
    arrived: Burst,
}

impl RxQueue for FaultyRx {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        if self.line.room() >= Burst::CAPACITY {
            self.queue.rx_burst(&mut self.arrived, cache);
        }
        let (now, quiet) = (self.line.now(), self.arrived.is_empty());
        for packet in self.arrived.drain() {
            self.line.enter(packet, now, cache);
        }
        self.line.leave(burst, now, quiet);
        burst.len() - before
    }

    fn sleep_on(&mut self) -> SleepOn {
        // Packets on the line come out with time, not with an event.
        if self.line.held() > 0 {
            SleepOn::Nothing
        } else {
            self.queue.sleep_on()
        }
    }

    fn held(&self) -> i64 {
        self.queue.held() + (self.line.held() + self.arrived.len()) as i64
    }
}

struct FaultyTx {
    queue: Box<dyn TxQueue>,
    line: Line,
    /// Off the line, but not yet taken by the queue.
    leaving: Burst,
}

impl FaultyTx {
    fn send(&mut self, now: Option<Instant>, quiet: bool, cache: &mut PoolCache) {
        loop {
            self.line.leave(&mut self.leaving, now, quiet);
            if self.leaving.is_empty() || self.queue.tx_burst(&mut self.leaving, cache) == 0 {
                return;
            }
        }
    }
}

impl TxQueue for FaultyTx {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let now = self.line.now();
        let mut taken = Burst::new();
        let count = burst.move_front(self.line.room(), &mut taken);
        for packet in taken.drain() {
            self.line.enter(packet, now, cache);
        }
        self.send(now, false, cache);
        count
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        self.send(self.line.now(), true, cache);
        self.queue.flush(cache);
    }

    fn held(&self) -> i64 {
        self.queue.held() + (self.line.held() + self.leaving.len()) as i64
    }
}

impl Drop for FaultyTx {
    fn drop(&mut self) {
        self.line
            .stats
            .dropped(DropReason::Injected, self.leaving.len() as u64);
    }
}
