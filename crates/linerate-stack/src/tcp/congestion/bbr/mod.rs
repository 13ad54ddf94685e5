//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00; "BBR: Congestion-Based
//! Congestion Control", ACM Queue 14.5, 2016), with Linux' later additions: its margin of 1 % under
//! the rate, and room for ACKs that come together.
//!
//! The model of the path is two numbers: the bottleneck's bandwidth, as the largest delivery rate
//! of 10 round trips, and the least round trip of 10 s. Data leaves at the bandwidth, times a gain
//! that probes now and then; the window is twice their product, a bound and not the control.
//!
//! | mode | what |
//! |---|---|
//! | startup | the rate grows by 2/ln 2 a round trip, until it stops growing for three |
//! | drain | what startup has queued leaves |
//! | probe-bw | eight phases of a round trip: more, less, six times the bandwidth |
//! | probe-rtt | at most 4 segments in flight for 200 ms, so that the queue is seen empty |
//!
//! Loss does not reduce the rate. In the first round trip of a recovery what is delivered is what
//! is sent; PRR is not used. Linux' detection of policers ("long-term bandwidth") is left out: it
//! is not in the draft, and it would need 17 bytes of each connection of any algorithm.
//!
//! BBR needs a paced sender and samples of the delivery rate; without the latter it stays in
//! startup at its initial window.

mod model;

use super::{Ack, Congestion, SSTHRESH_INFINITE, Signal, Window, ticks};
use model::{RTT_SHIFT, rtt_units};

/// Gains are in units of 1/256.
const UNIT: u32 = 256;
/// 2/ln 2, rounded up: the least that doubles the rate each round trip.
const HIGH_GAIN: u32 = UNIT * 2885 / 1000 + 1;
/// Its inverse: what startup has queued in a round trip leaves in one.
const DRAIN_GAIN: u32 = UNIT * 1000 / 2885;
/// Of the window: ACKs are delayed.
const CWND_GAIN: u32 = 2 * UNIT;
/// Of the phases of probe-bw.
const CYCLE: [u32; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];

/// Bandwidth is in units of 2^6 bytes a second: 32 bits hold 2.2 Tb/s.
const BW_SHIFT: u32 = 6;
/// Milliseconds are 2^20 ns here; they wrap after 52 days.
const MS_SHIFT: u32 = 20;
/// The window of the least round trip: 10 s.
const MIN_RTT_MS: u32 = (10_000_000_000_u64 >> MS_SHIFT) as u32;
const PROBE_RTT_MS: u32 = (200_000_000_u64 >> MS_SHIFT) as u32;
/// Segments in flight in probe-rtt, and at least: two bursts of two, each answered by an ACK.
const CWND_MIN: u32 = 4;
/// What BBR is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// BBR's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    /// The largest rates of the window: the largest, and the largest of its later parts.
    bw: [u32; 3],
    bw_rounds: [u16; 3],
    round: u16,
    cycle: u8,
    mode: Mode,
    /// In units of 2^-24 s; the greatest number: none yet.
    min_rtt: u32,
    min_rtt_ms: u32,
    /// When probe-rtt ends; 0: not known yet.
    probe_done_ms: u32,
    /// The count of delivered bytes at which this round trip ends.
    round_end: u32,
    cycle_ticks: u32,
    pacing: u32,
    full_bw: u32,
    /// When the epoch began in which ACKs are counted, and what they delivered.
    epoch_ticks: u32,
    epoch_bytes: u32,
    /// The most that was delivered beyond what the bandwidth explains: of this window and the one
    /// before.
    extra: [u32; 2],
    extra_rounds: u8,
    full_rounds: u8,
    is_full: bool,
    is_round_start: bool,
    is_conserving: bool,
    is_idle_restart: bool,
    is_probe_round_done: bool,
    was_in_recovery: bool,
    /// Whether the rate is by a measured round trip, or by a guess.
    has_rtt: bool,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            bw: [0; 3],
            bw_rounds: [0; 3],
            round: 0,
            cycle: 0,
            mode: Mode::Startup,
            min_rtt: u32::MAX,
            min_rtt_ms: 0,
            probe_done_ms: 0,
            round_end: 0,
            cycle_ticks: 0,
            pacing: 0,
            full_bw: 0,
            epoch_ticks: 0,
            epoch_bytes: 0,
            extra: [0; 2],
            extra_rounds: 0,
            full_rounds: 0,
            is_full: false,
            is_round_start: false,
            is_conserving: false,
            is_idle_restart: false,
            is_probe_round_done: false,
            was_in_recovery: false,
            has_rtt: false,
        }
    }
}

fn milliseconds(ns: u64) -> u32 {
    (ns >> MS_SHIFT) as u32
}

impl Bbr {
    fn pacing_gain(&self) -> u32 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw => CYCLE[usize::from(self.cycle) % CYCLE.len()],
            Mode::ProbeRtt => UNIT,
        }
    }

    fn cwnd_gain(&self) -> u32 {
        match self.mode {
            // Drain keeps the window; the rate is what drains.
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw => CWND_GAIN,
            Mode::ProbeRtt => UNIT,
        }
    }

    fn update_cycle(&mut self, window: &Window, ack: &Ack) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let elapsed = ticks(ack.now_ns).wrapping_sub(self.cycle_ticks);
        let min_rtt_ticks = (u64::from(self.min_rtt) * 1_000_000_000) >> (RTT_SHIFT + 10);
        let is_long = u64::from(elapsed) > min_rtt_ticks;
        let gain = self.pacing_gain();
        let in_flight = ack.in_flight_bytes;
        let is_over = match () {
            () if gain > UNIT => {
                // Until what is in flight shows the gain; not longer where it does not fit.
                let with_next = in_flight.saturating_add(self.burst(window));
                is_long && (ack.lost_bytes > 0 || with_next >= self.inflight(window, gain))
            }
            // Until the queue is gone; longer would leave the path idle.
            () if gain < UNIT => is_long || in_flight <= self.inflight(window, UNIT),
            () => is_long,
        };
        if is_over {
            self.start_phase(self.cycle + 1, ack.now_ns);
        }
    }

    fn start_phase(&mut self, cycle: u8, now_ns: u64) {
        self.cycle = cycle % CYCLE.len() as u8;
        self.cycle_ticks = ticks(now_ns);
    }

    /// Enters probe-bw in any phase but the one that drains, so that flows which start together
    /// do not probe together. The time's low bits are random enough: nothing is secret here.
    fn enter_probe_bw(&mut self, now_ns: u64) {
        self.mode = Mode::ProbeBw;
        let random = (now_ns ^ (now_ns >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let phase = (random * 7) >> 32;
        self.start_phase(if phase == 0 { 0 } else { phase as u8 + 1 }, now_ns);
    }

    fn drain(&mut self, window: &mut Window, now_ns: u64, in_flight: u32) {
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
            // For those who read it: from here on it is no slow start.
            window.ssthresh_bytes = self.inflight(window, UNIT);
        }
        if self.mode == Mode::Drain && in_flight <= self.inflight(window, UNIT) {
            self.enter_probe_bw(now_ns);
        }
    }

    fn update_min_rtt(&mut self, window: &mut Window, ack: &Ack, in_flight: u32) {
        let now = milliseconds(ack.now_ns);
        let is_old = now.wrapping_sub(self.min_rtt_ms) > MIN_RTT_MS;
        if let Some(rtt) = ack.rtt_ns.map(rtt_units)
            && (rtt <= self.min_rtt || is_old)
        {
            (self.min_rtt, self.min_rtt_ms) = (rtt, now);
        }
        if is_old && !self.is_idle_restart && self.mode != Mode::ProbeRtt {
            self.save(window);
            self.mode = Mode::ProbeRtt;
            self.probe_done_ms = 0;
        }
        if self.mode == Mode::ProbeRtt {
            if self.probe_done_ms == 0 {
                if in_flight <= CWND_MIN * window.mss() {
                    // 0 is "not yet": once in 52 days a millisecond longer.
                    self.probe_done_ms = now.wrapping_add(PROBE_RTT_MS).max(1);
                    self.is_probe_round_done = false;
                    self.round_end = ack.delivery.map_or(self.round_end, |it| it.delivered);
                }
            } else {
                self.is_probe_round_done |= self.is_round_start;
                if self.is_probe_round_done {
                    self.look_for_end_of_probe(window, ack.now_ns);
                }
            }
        }
        self.is_idle_restart = false;
    }

    fn look_for_end_of_probe(&mut self, window: &mut Window, now_ns: u64) {
        let now = milliseconds(now_ns);
        if self.probe_done_ms == 0 || (now.wrapping_sub(self.probe_done_ms) as i32) < 0 {
            return;
        }
        self.min_rtt_ms = now;
        window.cwnd_bytes = window.cwnd_bytes.max(window.prior_cwnd_bytes);
        match self.is_full {
            true => self.enter_probe_bw(now_ns),
            false => self.mode = Mode::Startup,
        }
    }

    /// Remembers the window, unless it is reduced already.
    fn save(&self, window: &mut Window) {
        let is_good = !self.was_in_recovery && self.mode != Mode::ProbeRtt;
        let known = if is_good { 0 } else { window.prior_cwnd_bytes };
        window.prior_cwnd_bytes = known.max(window.cwnd_bytes);
    }

    /// A rate for this bandwidth and gain, 1 % under it: on the average no queue is made.
    fn rate(bw: u32, gain: u32) -> u32 {
        let rate = u64::from(bw) * u64::from(gain) / u64::from(UNIT) * 99 / 100;
        u32::try_from(rate).unwrap_or(u32::MAX)
    }

    fn set_pacing(&mut self, window: &Window, ack: &Ack) {
        if !self.has_rtt && ack.srtt_ns > 0 {
            self.has_rtt = true;
            self.pace_window(window, ack.srtt_ns);
        }
        let rate = Self::rate(self.bandwidth(), self.pacing_gain());
        // In startup a sample that is too small does not slow it down.
        if self.is_full || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// The first rate: a window in a round trip, times the gain.
    fn pace_window(&mut self, window: &Window, rtt_ns: u64) {
        let rate = u64::from(window.cwnd_bytes) * 1_000_000_000 / rtt_ns.max(1);
        let bw = u32::try_from(rate >> BW_SHIFT).unwrap_or(u32::MAX);
        self.pacing = Self::rate(bw, HIGH_GAIN).max(1);
    }

    fn set_window(&mut self, window: &mut Window, ack: &Ack, in_flight: u32) {
        let mss = window.mss();
        let acked = ack.acked_bytes;
        let least = CWND_MIN * mss;
        if acked > 0 {
            // An ACK for so much releases at most twice that.
            let lost = ack.lost_bytes.min(window.cwnd_bytes.saturating_sub(mss));
            let mut cwnd = window.cwnd_bytes - lost;
            let conserved = in_flight.saturating_add(acked);
            if ack.in_recovery && !self.was_in_recovery {
                self.was_in_recovery = true;
                self.is_conserving = true;
                self.round_end = ack.delivery.map_or(self.round_end, |it| it.delivered);
                cwnd = conserved;
            }
            if self.is_conserving {
                cwnd = cwnd.max(conserved);
            } else {
                let bdp = self.bdp(window, self.cwnd_gain());
                let with_extra = bdp.saturating_add(self.room_for_extra());
                let target = self.quantized(window, with_extra);
                if self.is_full {
                    cwnd = cwnd.saturating_add(acked).min(target);
                } else if cwnd < target {
                    cwnd = cwnd.saturating_add(acked);
                }
                cwnd = cwnd.max(least);
            }
            window.cwnd_bytes = cwnd.clamp(mss, super::CWND_MAX_BYTES);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd_bytes = window.cwnd_bytes.min(least);
        }
    }
}

impl Congestion for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_start(&mut self, window: &mut Window, now_ns: u64) {
        window.ssthresh_bytes = SSTHRESH_INFINITE;
        self.min_rtt_ms = milliseconds(now_ns);
        self.epoch_ticks = ticks(now_ns);
        // A window in a millisecond, until there is a round trip.
        self.pace_window(window, 1_000_000);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let gone = ack.acked_bytes.saturating_add(ack.lost_bytes);
        let in_flight = ack.in_flight_bytes.saturating_sub(gone);
        self.update_bandwidth(ack);
        self.update_cycle(window, ack);
        self.look_for_full_pipe(ack);
        self.drain(window, ack.now_ns, in_flight);
        self.update_min_rtt(window, ack, in_flight);
        self.set_pacing(window, ack);
        self.set_window(window, ack, in_flight);
    }

    fn on_congestion(&mut self, window: &mut Window, signal: Signal, _: u32, _: u64) {
        // A mark of ECN says that there is a queue, which BBR bounds by its model.
        if signal == Signal::Loss {
            self.save(window);
        }
    }

    fn on_timeout(&mut self, window: &mut Window, is_first: bool, _: u32, _: u64) {
        if is_first {
            self.save(window);
        }
        window.cwnd_bytes = window.mss();
        self.was_in_recovery = true;
        self.is_conserving = false;
        // The path may be another one: what was full need not be.
        self.full_bw = 0;
        self.is_round_start = true;
    }

    fn on_recovery_end(&mut self, window: &mut Window, _: bool, _: u64) {
        if self.was_in_recovery {
            window.cwnd_bytes = window.cwnd_bytes.max(window.prior_cwnd_bytes);
            self.was_in_recovery = false;
            self.is_conserving = false;
        }
    }

    fn undo(&mut self, window: &mut Window, now_ns: u64) {
        (self.full_bw, self.full_rounds) = (0, 0);
        self.on_recovery_end(window, false, now_ns);
    }

    fn on_idle(&mut self, window: &mut Window, idle_ns: u64, _: u64, now_ns: u64) {
        self.epoch_ticks = ticks(now_ns);
        self.epoch_bytes = 0;
        // The window stays: its data leaves at the path's rate, not at once.
        self.is_idle_restart = idle_ns > 0;
        match self.mode {
            Mode::ProbeBw => self.pacing = Self::rate(self.bandwidth(), UNIT),
            Mode::ProbeRtt => self.look_for_end_of_probe(window, now_ns),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(u64::from(self.pacing) << BW_SHIFT)
    }

    fn is_by_prr(&self) -> bool {
        false
    }

    fn is_self_limited(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }
}
