//! CUBIC (RFC 9438) with HyStart++ (RFC 9406): after congestion the window grows as a cubic
//! function of time, fast at first, slowly around the size at which congestion was, then fast
//! again. Where Reno's would be larger, it is that.
//!
//! `W(t) = C * (t - K)^3 + W_max`, with t the time since the window began to grow and K the time
//! when it is W_max again. All is in bytes, so C is 0.4 segments a second cubed; t and K are in
//! ticks of 2^10 ns. The cube is a product of integers below 2^119, without a division; the cube
//! root of K is taken once for each congestion.
//!
//! - t is the sum of the times between ACKs that the window had to do with (RFC 9438 4.2: it MUST
//!   NOT include times in which the application did not fill the window). So the curve waits.
//! - The threshold is 0.7 of the window, not of FlightSize: RFC 9438 4.6 allows that where the
//!   window does not grow unless it is used ([`Usage`](super::Usage)), and Linux does it. An
//!   application that pauses does not lose the window which it had shown to fit.
//! - RFC 9438 4.9.2: what a spurious retransmission has changed is all restored.

use super::hystart::HyStart;
use super::{Ack, Congestion, Signal, Window, end_recovery, reduce, ticks, time_out};

/// `C * tick^3 * 2^80`, with C = 0.4 per second cubed (RFC 9438 5.1) and ticks of 1024 ns:
/// `0.4 * 1024e-9^3 * 2^80 = 519,229.7`.
const C_SCALED: u128 = 519_230;
const C_SHIFT: u32 = 80;
/// `1 / (C * tick^3) = 2.5 * 1024e-9^-3`.
const C_INVERSE: u128 = 2_328_306_436_538_696_289;
/// The largest distance from K that is cubed: 275 s, whose cube alone is 8 million segments.
const DISTANCE_MAX: u32 = 1 << 28;

/// CUBIC's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cubic {
    curve: Curve,
    /// The curve before the last reduction.
    undo: Curve,
    hystart: HyStart,
    /// When the last ACK came.
    last_ticks: u32,
    /// Bytes acknowledged since the window grew.
    credit: u32,
    /// Bytes acknowledged since Reno's window grew.
    est_credit: u32,
}

/// What RFC 9438 4.9.2 saves and restores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Curve {
    /// W_max in bytes; 0: unknown.
    w_max: u32,
    /// W_est in bytes: the window that Reno would have. 0: no congestion avoidance yet since the
    /// last congestion.
    w_est: u32,
    k_ticks: u32,
    /// t.
    elapsed_ticks: u32,
}

impl Cubic {
    /// What the window is after congestion: beta is 0.7 (RFC 9438 4.6).
    fn reduced(window: &Window) -> u32 {
        (u64::from(window.cwnd_bytes) * 7 / 10) as u32
    }

    /// Congestion avoidance (RFC 9438 4.2 to 4.5), for `acked` bytes at `elapsed` ticks after the
    /// last ACK.
    fn avoid(&mut self, window: &mut Window, ack: &Ack, acked: u32, elapsed: u32) {
        if self.curve.w_est == 0 {
            self.curve.start(window);
            (self.credit, self.est_credit) = (0, 0);
        } else {
            let t = self.curve.elapsed_ticks;
            self.curve.elapsed_ticks = t.saturating_add(elapsed);
        }
        self.grow_as_reno(window, acked);
        let (cwnd, mss) = (window.cwnd_bytes, window.mss());
        let now = self.curve.elapsed_ticks;
        // RFC 9438 4.3: the Reno-friendly region.
        if self.curve.w_est > cwnd && self.curve.at(now, mss) < self.curve.w_est {
            window.grow(self.curve.w_est - cwnd);
            self.credit = 0;
            return;
        }
        // 4.2: where the window should be a round trip from now. More than half of it in a round
        // trip would be slow start.
        let then = now.saturating_add(ticks(ack.srtt_ns));
        let most = cwnd.saturating_add(cwnd / 2);
        let gap = self.curve.at(then, mss).clamp(cwnd, most) - cwnd;
        // 4.4, 4.5: (target - cwnd) / cwnd segments for each one acknowledged, a segment at least
        // at a time. More than a window's credit would make a burst where the curve rises again.
        self.credit = self.credit.saturating_add(acked).min(cwnd);
        let due = u64::from(self.credit) * u64::from(gap);
        if due >= u64::from(cwnd) * u64::from(mss) {
            window.grow((due / u64::from(cwnd)) as u32);
            self.credit = 0;
        }
    }

    /// RFC 9438 4.3 figure 4: W_est grows by alpha segments for each window acknowledged; alpha is
    /// 3 * (1 - beta) / (1 + beta) = 9/17. It SHOULD be 1 from the window at the last
    /// congestion on. Linux leaves it as it is, and so do we: who grows faster takes more than a
    /// share beside those that do not.
    fn grow_as_reno(&mut self, window: &Window, acked: u32) {
        let cwnd = u64::from(window.cwnd_bytes.max(1));
        let needed = cwnd * 17 / 9;
        self.est_credit = self.est_credit.saturating_add(acked);
        if u64::from(self.est_credit) >= needed {
            let times = (u64::from(self.est_credit) / needed) as u32;
            self.est_credit -= times * needed as u32;
            let more = times.saturating_mul(window.mss());
            self.curve.w_est = self.curve.w_est.saturating_add(more);
        }
    }
}

impl Curve {
    /// Congestion avoidance begins (RFC 9438 4.2; 4.8 and 4.10 without a W_max).
    fn start(&mut self, window: &Window) {
        let cwnd = window.cwnd_bytes;
        self.w_est = cwnd;
        self.elapsed_ticks = 0;
        self.w_max = self.w_max.max(cwnd);
        let cube = u128::from(self.w_max - cwnd) * C_INVERSE / u128::from(window.mss());
        self.k_ticks = cube_root(cube);
    }

    /// W_cubic in bytes at `t` ticks.
    #[inline]
    fn at(&self, t: u32, mss: u32) -> u32 {
        let distance = u128::from(t.abs_diff(self.k_ticks).min(DISTANCE_MAX));
        let cubed = distance * distance * distance;
        let change = (cubed * C_SCALED * u128::from(mss)) >> C_SHIFT;
        let change = u32::try_from(change).unwrap_or(u32::MAX);
        match t < self.k_ticks {
            true => self.w_max.saturating_sub(change),
            false => self.w_max.saturating_add(change),
        }
    }
}

/// The largest integer whose cube is at most `value`, below 2^94; bit by bit.
fn cube_root(value: u128) -> u32 {
    let mut rest = value;
    let mut root: u128 = 0;
    for shift in (0..=93).rev().step_by(3) {
        root *= 2;
        let step = 3 * root * (root + 1) + 1;
        if rest >> shift >= step {
            rest -= step << shift;
            root += 1;
        }
    }
    root as u32
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_start(&mut self, _: &mut Window, now_ns: u64) {
        self.last_ticks = ticks(now_ns);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let now = ticks(ack.now_ns);
        let elapsed = now.wrapping_sub(self.last_ticks);
        self.last_ticks = now;
        if ack.in_recovery {
            return;
        }
        if window.is_first_slow_start() {
            if self.hystart.on_ack(window, ack) {
                // RFC 9406 4.2, RFC 9438 4.10: W_max is unknown.
                window.prior_cwnd_bytes = window.cwnd_bytes;
                window.ssthresh_bytes = window.cwnd_bytes;
            }
            return;
        }
        if !ack.is_cwnd_limited {
            return;
        }
        let acked = match window.is_slow_start() {
            true => window.slow_start(ack.acked_bytes),
            false => ack.acked_bytes,
        };
        if !window.is_slow_start() {
            self.avoid(window, ack, acked, elapsed);
        }
    }

    fn on_congestion(&mut self, window: &mut Window, signal: Signal, _: u32, _: u64) {
        self.undo = self.curve;
        // RFC 9438 4.7: fast convergence, (1 + beta) / 2 = 0.85.
        let cwnd = window.cwnd_bytes;
        self.curve.w_max = match cwnd < self.curve.w_max {
            true => (u64::from(cwnd) * 17 / 20) as u32,
            false => cwnd,
        };
        self.curve.w_est = 0;
        reduce(window, signal, Self::reduced(window));
    }

    fn on_timeout(&mut self, window: &mut Window, is_first: bool, _: u32, _: u64) {
        if is_first {
            self.undo = self.curve;
        }
        // RFC 9438 4.8: the next curve begins at its middle.
        (self.curve.w_max, self.curve.w_est) = (0, 0);
        time_out(window, is_first, Self::reduced(window));
    }

    fn on_recovery_end(&mut self, window: &mut Window, by_timeout: bool, _: u64) {
        end_recovery(window, by_timeout);
    }

    fn undo(&mut self, window: &mut Window, _: u64) {
        // RFC 9438 4.9.2: one that has grown beyond goes on as it is, threshold and curve too.
        if window.cwnd_bytes <= window.prior_cwnd_bytes {
            window.restore();
            self.curve = self.undo;
        }
    }

    fn on_idle(&mut self, window: &mut Window, idle_ns: u64, rto_ns: u64, now_ns: u64) {
        self.last_ticks = ticks(now_ns);
        if idle_ns > rto_ns {
            self.hystart.restart();
        }
        window.decay(idle_ns, rto_ns);
    }
}
