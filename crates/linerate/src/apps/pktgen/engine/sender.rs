//! One transmit queue and the streams that it sends, each frame at its intended time.

use std::sync::Arc;

use linerate_core::packet::{Burst, Pool, PoolCache};
use linerate_core::port::{Counter, TxQueue};
use linerate_core::run::Histogram;

use crate::apps::pktgen::stream::Stream;

/// Counters of one stream at its sender.
#[derive(Debug, Default)]
pub(crate) struct StreamSent {
    pub(crate) packets: Counter,
    /// With FCS.
    pub(crate) bytes: Counter,
    /// Frames that were due and were given up, or were still waiting at the end.
    pub(crate) unsent: Counter,
    /// Frames that the schedule has reached.
    pub(crate) intended: Counter,
}

/// Counters of a sender.
#[derive(Debug, Default)]
pub(crate) struct SenderStats {
    pub(crate) packets: Counter,
    pub(crate) bytes: Counter,
    /// Times that the queue took less than it was given.
    pub(crate) refused: Counter,
    /// Times that the pool had no slot.
    pub(crate) no_slot: Counter,
    /// Ticks in turns that sent something.
    pub(crate) busy_ticks: Counter,
    /// Ticks by which the time between two frames was off the schedule.
    pub(crate) departure_error: Histogram,
    /// Whether all that was asked for has been sent (1).
    pub(crate) done: Counter,
}

/// One stream in a sender's hands: what to send, how fast, how many.
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    /// Frames a second; none for as many as go.
    pub(crate) pps: Option<f64>,
    /// Frames in all; none for ever.
    pub(crate) count: Option<u64>,
    pub(crate) stats: Arc<StreamSent>,
    /// The next sequence number.
    next: u64,
    due: u64,
    begun_with: u64,
}

impl Lane {
    pub(crate) fn new(
        stream: Stream,
        pps: Option<f64>,
        count: Option<u64>,
        stats: Arc<StreamSent>,
    ) -> Self {
        Self {
            stream,
            pps,
            count,
            stats,
            next: 0,
            due: 0,
            begun_with: 0,
        }
    }
}

/// One transmit queue, its streams and their schedule.
pub(crate) struct Sender {
    tx: Box<dyn TxQueue>,
    pool: Pool,
    ticks_per_second: f64,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stats: Arc<SenderStats>,
    running: bool,
    until: u64,
}

impl Sender {
    pub(crate) fn new(tx: Box<dyn TxQueue>, pool: Pool, ticks_per_second: f64) -> Self {
        Self {
            tx,
            pool,
            ticks_per_second,
            lanes: Vec::new(),
            stats: Arc::default(),
            running: false,
            until: u64::MAX,
        }
    }

    /// Begins all lanes at tick `at`; the schedule ends at tick `until` (`u64::MAX`: never).
    pub(crate) fn start(&mut self, at: u64, until: u64) {
        self.running = true;
        self.until = until;
        self.stats.done.set(0);
        for lane in &mut self.lanes {
            (lane.due, lane.begun_with) = (at, lane.next);
        }
    }

    /// Ends sending now.
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    /// The tick at which the next frame is due; none while nothing is to be sent.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.running
            .then(|| self.lanes.iter().map(|lane| lane.due).min())
            .flatten()
    }

    /// Sends what is due at `now`; returns how many frames went.
    #[inline]
    pub(crate) fn turn(&mut self, now: u64, cache: &mut PoolCache) -> usize {
        if !self.running || now > self.until {
            return 0;
        }
        let mut sent = 0;
        let mut all_done = true;
        for lane in &mut self.lanes {
            let left = lane.count.map_or(u64::MAX, |count| {
                (lane.begun_with + count).saturating_sub(lane.next)
            });
            all_done &= left == 0;
            let mut stamps = [0; Burst::CAPACITY];
            let interval = lane.pps.map(|pps| self.ticks_per_second / pps);
            let mut count = 0;
            while count < 64.min(left as usize) && lane.due <= now {
                stamps[count] = if interval.is_some() { lane.due } else { now };
                lane.due += interval.unwrap_or(0.0) as u64;
                count += 1;
            }
            if count == 0 {
                continue;
            }
            let mut burst = Burst::new();
            let count = cache.fill(&self.pool, &mut burst, count);
            lane.stream
                .write(burst.as_packets_mut(), &stamps[..count], lane.next);
            let went = self.tx.tx_burst(&mut burst, cache);
            lane.next += went as u64;
            lane.stats.packets.add(went as u64);
            cache.free(&mut burst);
            sent += went;
        }
        self.tx.flush(cache);
        if all_done {
            self.stats.done.set(1);
            self.running = false;
        }
        self.stats.packets.add(sent as u64);
        sent
    }
}
