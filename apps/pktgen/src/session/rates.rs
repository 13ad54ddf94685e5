//! Rates: counts between two moments, divided by the time between them on the counting lcore's
//! clock. Transmit rates use only the time in which the sender was sending, so that waiting for a
//! start, or for the last frames after the end, does not lower them.

use std::collections::HashMap;

use crate::Traffic;
use crate::units::L1_BYTES;

/// Shorter intervals would show bursts rather than rates.
pub(super) const LEAST_INTERVAL_NS: u64 = 100_000_000;

/// A count, and the ticks that it took so far. Bytes include FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) ticks: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Series {
    /// A queue: port and number.
    Rx(u16, u16),
    Tx(u16, u16),
    /// Test frames by their number on the wire; for received ones with lcore and receiver.
    Sent(u16),
    Received(u16, u16, u16),
}

/// Frames and bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    pub(super) pps: f64,
    pub(super) l2_bps: f64,
    pub(super) l1_bps: f64,
}

impl Speed {
    /// Between two counts of the same thing.
    pub(super) fn between(before: Count, now: Count, hz: f64) -> Self {
        let seconds = now.ticks.saturating_sub(before.ticks) as f64 / hz;
        if seconds <= 0.0 {
            return Self::default();
        }
        let pps = now.packets.saturating_sub(before.packets) as f64 / seconds;
        let l2_bps = now.bytes.saturating_sub(before.bytes) as f64 * 8.0 / seconds;
        Self {
            pps,
            l2_bps,
            l1_bps: l2_bps + pps * (L1_BYTES * 8) as f64,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            pps: self.pps + other.pps,
            l2_bps: self.l2_bps + other.l2_bps,
            l1_bps: self.l1_bps + other.l1_bps,
        }
    }
}

/// Keeps the counts of one moment, until a later one is far enough away.
#[derive(Debug, Default)]
pub(super) struct Meter {
    hz: f64,
    before: HashMap<Series, Count>,
    before_at: u64,
    speeds: HashMap<Series, Speed>,
    /// The fastest interval since `clear`, by port and whether received.
    most: HashMap<(u16, bool), f64>,
    interval: u64,
}

impl Meter {
    /// Starts with all counts and their ticks 0 at tick `at`.
    pub(super) fn new(hz: f64, at: u64) -> Self {
        Self {
            hz,
            before_at: at,
            ..Self::default()
        }
    }

    /// Takes all counts at about tick `now`. Rates change only where the interval is long enough.
    pub(super) fn take(&mut self, now: u64, counts: HashMap<Series, Count>) {
        let interval = now.saturating_sub(self.before_at);
        if (interval as f64) < LEAST_INTERVAL_NS as f64 * 1e-9 * self.hz {
            return;
        }
        let before = |series: &Series| self.before.get(series).copied().unwrap_or_default();
        self.speeds = counts
            .iter()
            .map(|(series, &count)| (*series, Speed::between(before(series), count, self.hz)))
            .collect();
        // By direction of a port: the rate, and its interval.
        let mut ports: HashMap<(u16, bool), (f64, u64)> = HashMap::new();
        for (series, speed) in &self.speeds {
            let key = match *series {
                Series::Rx(port, _) => (port, true),
                Series::Tx(port, _) => (port, false),
                Series::Sent(_) | Series::Received(..) => continue,
            };
            let (pps, ticks) = ports.entry(key).or_default();
            *pps += speed.pps;
            *ticks = (*ticks).max(counts[series].ticks.saturating_sub(before(series).ticks));
        }
        for (key, (pps, ticks)) in ports {
            let is_short = (ticks as f64) < LEAST_INTERVAL_NS as f64 * 1e-9 * self.hz;
            let most = self.most.entry(key).or_default();
            // A run shorter than one interval has only this rate.
            if !is_short || *most == 0.0 {
                *most = most.max(pps);
            }
        }
        (self.before, self.before_at, self.interval) = (counts, now, interval);
    }

    /// Ticks over which the rates are averaged.
    pub(super) fn interval(&self) -> u64 {
        self.interval
    }

    pub(super) fn speed(&self, series: Series) -> Speed {
        self.speeds.get(&series).copied().unwrap_or_default()
    }

    /// One direction of a port: sums of its queues.
    pub(super) fn traffic(
        &self,
        port: u16,
        received: bool,
        queues: impl Iterator<Item = Count>,
    ) -> Traffic {
        let (mut packets, mut bytes) = (0, 0);
        let (mut speed, mut mean) = (Speed::default(), Speed::default());
        for (queue, count) in (0..).zip(queues) {
            packets += count.packets;
            bytes += count.bytes;
            let series = match received {
                true => Series::Rx(port, queue),
                false => Series::Tx(port, queue),
            };
            speed = speed.plus(self.speed(series));
            mean = mean.plus(Speed::between(Count::default(), count, self.hz));
        }
        Traffic {
            packets,
            bytes,
            pps: speed.pps,
            mean_pps: mean.pps,
            max_pps: self.most.get(&(port, received)).copied().unwrap_or(0.0),
            l1_bps: speed.l1_bps,
            l2_bps: speed.l2_bps,
        }
    }
}

#[cfg(test)]
mod tests;
