//! HyStart++ (RFC 9406): the first slow start ends when round trips become longer, before the
//! queue overflows.
//!
//! A longer round trip leads to conservative slow start (CSS), in which the window grows a quarter
//! as fast. If round trips stay long for five rounds, congestion avoidance follows; if they become
//! short again, the increase was another's, and slow start goes on.

use super::{Ack, Window};
use crate::tcp::seq;

// RFC 9406 4.3, times in microseconds.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
// 4.3: with 1 it would be slow start.
const _: () = assert!(CSS_GROWTH_DIVISOR >= 2);

/// No round trip yet.
const INFINITE: u32 = u32::MAX;

/// HyStart++'s state. A round is a round trip, counted by sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HyStart {
    last_round_min: u32,
    round_min: u32,
    /// The least round trip of conservative slow start's first round; infinite: not in it.
    css_baseline: u32,
    /// Where this round ends.
    window_end: u32,
    samples: u8,
    css_rounds: u8,
    has_round: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            last_round_min: INFINITE,
            round_min: INFINITE,
            css_baseline: INFINITE,
            window_end: 0,
            samples: 0,
            css_rounds: 0,
            has_round: false,
        }
    }
}

impl HyStart {
    /// The round after an idle time is a new one: nothing of its data has been sent yet.
    pub(super) fn restart(&mut self) {
        self.has_round = false;
    }

    /// Whether the increase is that of conservative slow start.
    pub(super) fn is_conservative(&self) -> bool {
        self.css_baseline != INFINITE
    }

    /// Grows the window for an ACK, if it may. Returns whether slow start is over.
    pub(super) fn on_ack(&mut self, window: &mut Window, ack: &Ack) -> bool {
        if !self.has_round {
            self.start_round(ack.snd_nxt);
        }
        if ack.is_cwnd_limited {
            let counted = ack.acked_bytes.min(window.slow_start_limit());
            window.grow(match self.is_conservative() {
                true => counted / CSS_GROWTH_DIVISOR,
                false => counted,
            });
        }
        if let Some(rtt_ns) = ack.rtt_ns {
            let rtt_us = u32::try_from(rtt_ns / 1000).unwrap_or(INFINITE);
            self.round_min = self.round_min.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
            self.look();
        }
        seq::ge(ack.snd_una, self.window_end) && self.end_round(ack.snd_nxt)
    }

    /// RFC 9406 4.2: whether the round trips of this round are longer, or short again.
    fn look(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        if self.is_conservative() {
            if self.round_min < self.css_baseline {
                self.css_baseline = INFINITE;
                self.css_rounds = 0;
            }
            return;
        }
        if self.round_min == INFINITE || self.last_round_min == INFINITE {
            return;
        }
        let eighth = self.last_round_min / MIN_RTT_DIVISOR;
        let threshold = eighth.clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.round_min >= self.last_round_min.saturating_add(threshold) {
            self.css_baseline = self.round_min;
        }
    }

    fn start_round(&mut self, snd_nxt: u32) {
        self.window_end = snd_nxt;
        self.last_round_min = self.round_min;
        self.round_min = INFINITE;
        self.samples = 0;
        self.has_round = true;
    }

    /// Returns whether that was the last round of conservative slow start. A round in whose middle
    /// it began counts as one.
    fn end_round(&mut self, snd_nxt: u32) -> bool {
        self.start_round(snd_nxt);
        if self.is_conservative() {
            self.css_rounds += 1;
        }
        self.css_rounds >= CSS_ROUNDS
    }
}
