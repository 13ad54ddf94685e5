//! What BBR knows of the path: its bandwidth, its least round trip, how ACKs come together, and
//! how much is in flight by that.

use super::{BW_SHIFT, Bbr, Mode};
use crate::tcp::congestion::{Ack, Window, initial_window, ticks};
use crate::tcp::pacing::BURST_MAX_BYTES;

/// Rounds of the bandwidth's window.
const BW_ROUNDS: u16 = 10;
/// Round trips are in units of 2^-24 s (60 ns): 32 bits hold 256 s, and a product with a bandwidth
/// is shifted, not divided.
pub(super) const RTT_SHIFT: u32 = 24;
/// Rounds without growth by a quarter, after which the pipe is full.
const FULL_ROUNDS: u8 = 3;
/// Below this rate in bytes a second (1.2 Mb/s) a burst may be of one segment.
const BURST_RATE: u64 = 150_000;
/// Round trips for which ACKs that come together are remembered, at least.
const EXTRA_ROUNDS: u8 = 5;

/// Nanoseconds in units of 2^-24 s, rounded down: `2^24 / 10^9 = 18,014,399 / 2^30`.
pub(super) fn rtt_units(ns: u64) -> u32 {
    let units = (u128::from(ns) * 18_014_399) >> 30;
    u32::try_from(units).unwrap_or(u32::MAX - 1).max(1)
}

impl Bbr {
    pub(super) fn bandwidth(&self) -> u32 {
        self.bw[0]
    }

    /// Bandwidth times round trip times gain, in bytes, rounded up.
    pub(super) fn bdp(&self, window: &Window, gain: u32) -> u32 {
        if self.min_rtt == u32::MAX {
            // Only segments that were sent twice are acknowledged so far: no more than at first.
            return initial_window(window.mss() as u16);
        }
        let product = u128::from(self.bandwidth()) * u128::from(self.min_rtt) * u128::from(gain);
        let shift = RTT_SHIFT + 8 - BW_SHIFT;
        let bytes = (product + (1 << shift) - 1) >> shift;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// What one burst carries at the present rate.
    pub(super) fn burst(&self, window: &Window) -> u32 {
        let rate = u64::from(self.pacing) << BW_SHIFT;
        let least = if rate < BURST_RATE { 1 } else { 2 };
        let bytes = (rate >> 10).min(BURST_MAX_BYTES.into()) as u32;
        bytes.max(least * window.mss())
    }

    /// With room for the bursts that are on their way in the two hosts, for an even number of
    /// segments (ACKs are for two), and for the phase that probes.
    pub(super) fn quantized(&self, window: &Window, bytes: u32) -> u32 {
        let mss = window.mss();
        let mut bytes = bytes.saturating_add(3 * self.burst(window));
        if self.mode == Mode::ProbeBw && self.cycle == 0 {
            bytes = bytes.saturating_add(2 * mss);
        }
        bytes.div_ceil(2 * mss).saturating_mul(2 * mss)
    }

    pub(super) fn inflight(&self, window: &Window, gain: u32) -> u32 {
        self.quantized(window, self.bdp(window, gain))
    }

    /// Keeps a rate that is the largest of the last 10 rounds, in three entries (Kathleen Nichols'
    /// windowed maximum, as in Linux).
    fn note_bandwidth(&mut self, bw: u32) {
        let round = self.round;
        let age = |rounds: [u16; 3], entry: usize| round.wrapping_sub(rounds[entry]);
        if bw >= self.bw[0] || age(self.bw_rounds, 2) > BW_ROUNDS {
            (self.bw, self.bw_rounds) = ([bw; 3], [round; 3]);
            return;
        }
        if bw >= self.bw[1] {
            (self.bw[1], self.bw_rounds[1]) = (bw, round);
            (self.bw[2], self.bw_rounds[2]) = (bw, round);
        } else if bw >= self.bw[2] {
            (self.bw[2], self.bw_rounds[2]) = (bw, round);
        }
        if age(self.bw_rounds, 0) > BW_ROUNDS {
            self.bw = [self.bw[1], self.bw[2], bw];
            self.bw_rounds = [self.bw_rounds[1], self.bw_rounds[2], round];
            if age(self.bw_rounds, 0) > BW_ROUNDS {
                self.bw = [self.bw[1], self.bw[2], bw];
                self.bw_rounds = [self.bw_rounds[1], self.bw_rounds[2], round];
            }
        } else if self.bw_rounds[1] == self.bw_rounds[0] && age(self.bw_rounds, 0) > BW_ROUNDS / 4 {
            (self.bw[1], self.bw_rounds[1]) = (bw, round);
            (self.bw[2], self.bw_rounds[2]) = (bw, round);
        } else if self.bw_rounds[2] == self.bw_rounds[1] && age(self.bw_rounds, 0) > BW_ROUNDS / 2 {
            (self.bw[2], self.bw_rounds[2]) = (bw, round);
        }
    }

    pub(super) fn update_bandwidth(&mut self, ack: &Ack) {
        self.is_round_start = false;
        let Some(sample) = ack.delivery.filter(|sample| sample.interval_ns > 0) else {
            return;
        };
        // No round ends ahead of what is delivered, but where it began with another algorithm, half
        // of all numbers ago.
        let is_ahead = (sample.delivered.wrapping_sub(self.round_end) as i32) < 0;
        if is_ahead || sample.prior_delivered.wrapping_sub(self.round_end) as i32 >= 0 {
            self.round_end = sample.delivered;
            self.round = self.round.wrapping_add(1);
            self.is_round_start = true;
            self.is_conserving = false;
        }
        let bw = u32::try_from(sample.rate() >> BW_SHIFT).unwrap_or(u32::MAX);
        // What the application limits says nothing, unless it is more than was known.
        if !sample.is_app_limited || bw >= self.bandwidth() {
            self.note_bandwidth(bw);
        }
        self.update_extra(ack);
    }

    /// ACKs that come together: what is delivered beyond the bandwidth, at most.
    fn update_extra(&mut self, ack: &Ack) {
        if ack.acked_bytes == 0 {
            return;
        }
        if self.is_round_start {
            self.extra_rounds += 1;
            if self.extra_rounds >= EXTRA_ROUNDS {
                self.extra_rounds = 0;
                self.extra = [0, self.extra[0]];
            }
        }
        let now = ticks(ack.now_ns);
        let elapsed = now.wrapping_sub(self.epoch_ticks);
        // 2^6 bytes a second in 2^10 ns: 2^16 / 10^9 = 70,369 / 2^30 bytes.
        let product = u128::from(self.bandwidth()) * u128::from(elapsed) * 70_369;
        let mut expected = u32::try_from(product >> 30).unwrap_or(u32::MAX);
        if self.epoch_bytes <= expected || self.epoch_bytes > 1 << 30 {
            (self.epoch_bytes, self.epoch_ticks, expected) = (0, now, 0);
        }
        self.epoch_bytes = self.epoch_bytes.saturating_add(ack.acked_bytes);
        let extra = self.epoch_bytes - expected;
        self.extra[0] = self.extra[0].max(extra);
    }

    /// For ACKs that come together: at most what leaves in 100 ms.
    pub(super) fn room_for_extra(&self) -> u32 {
        if !self.is_full {
            return 0;
        }
        let most = (u64::from(self.bandwidth()) << BW_SHIFT) / 10;
        let extra = self.extra[0].max(self.extra[1]);
        u64::from(extra).min(most) as u32
    }
    pub(super) fn look_for_full_pipe(&mut self, ack: &Ack) {
        let is_limited = ack.delivery.is_none_or(|sample| sample.is_app_limited);
        if self.is_full || !self.is_round_start || is_limited {
            return;
        }
        let grown = u64::from(self.full_bw) * 5 / 4;
        if u64::from(self.bandwidth()) >= grown {
            self.full_bw = self.bandwidth();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }
}
