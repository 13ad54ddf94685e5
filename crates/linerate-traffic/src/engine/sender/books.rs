//! Counters of a sender.

use linerate_core::port::Counter;
use linerate_core::run::Histogram;

use super::slots::Slots;

/// Counters of one stream at its sender.
#[derive(Debug, Default)]
pub struct StreamSent {
    /// Frames that the queue took.
    pub packets: Counter,
    /// With FCS.
    pub bytes: Counter,
    /// Frames that were due and were given up, or were still waiting at the end.
    pub unsent: Counter,
    /// Frames that the schedule has reached. Those that wait now are in it, but neither sent nor
    /// unsent.
    pub intended: Counter,
}

/// Counters of a sender.
#[derive(Debug, Default)]
pub struct SenderStats {
    /// Frames that the queue took.
    pub packets: Counter,
    /// With FCS.
    pub bytes: Counter,
    /// Times that the queue took less than it was given.
    pub refused: Counter,
    /// Times that the pool had no slot.
    pub no_slot: Counter,
    /// Ticks in turns that sent something.
    pub busy_ticks: Counter,
    /// Ticks by which the time between two successive frames was off the schedule: see
    /// [`Departures`].
    pub departure_error: Histogram,
    /// Frames left out of it, because the CPU was taken away.
    pub departures_stolen: Counter,
    /// Whether nothing is left to send (1).
    pub done: Counter,
    /// The tick at which the present sending began, or is to begin.
    pub began: Counter,
    /// The tick at which the last sending ended.
    pub ended: Counter,
    /// Ticks of finished sending, each to the end of its last frame's interval.
    pub sent_ticks: Counter,
}

impl SenderStats {
    /// Ticks of sending up to tick `now`; to be read on the sender's lcore.
    pub fn sending_ticks(&self, now: u64) -> u64 {
        let present = match self.done.read() {
            1 => 0,
            _ => now.saturating_sub(self.began.read()),
        };
        self.sent_ticks.read() + present
    }
}

/// Time between two turns from which on the CPU counts as taken away: 20 us.
const STOLEN_SECONDS: f64 = 20e-6;

/// The pacing error: for two successive frames with intended times, the absolute difference between
/// their intended and their actual distance.
///
/// A frame's time of departure is that of its turn, read once: right before it is written and
/// handed over. The duration of that is about the same for each frame, so it cancels out. While the
/// CPU is taken away (two turns more than 20 us apart), and until a frame has left on time after
/// that, nothing is recorded; the frames are counted instead.
pub(super) struct Departures {
    limit: u64,
    turned: u64,
    stolen: bool,
    /// Whether all due frames have left since.
    caught_up: bool,
    /// When the last frame left, and when it was to.
    last: Option<(u64, u64)>,
}

impl Departures {
    pub(super) fn new(ticks_per_second: f64) -> Self {
        Self {
            limit: (STOLEN_SECONDS * ticks_per_second) as u64,
            turned: 0,
            stolen: false,
            caught_up: false,
            last: None,
        }
    }

    pub(super) fn begin(&mut self, at: u64) {
        (self.turned, self.stolen, self.caught_up, self.last) = (at, false, false, None);
    }

    #[inline(always)]
    pub(super) fn turn(&mut self, now: u64) {
        if now.saturating_sub(self.turned) > self.limit {
            (self.stolen, self.caught_up) = (true, false);
        }
        self.turned = now;
    }

    /// No due frame waits.
    #[inline(always)]
    pub(super) fn caught_up(&mut self) {
        self.caught_up = true;
    }

    /// The first `went` slots left at `now`.
    #[inline]
    pub(super) fn record(
        &mut self,
        now: u64,
        slots: &Slots,
        went: usize,
        stats: &super::SenderStats,
    ) {
        if slots.timed == 0 {
            return;
        }
        self.record_timed(now, slots, went, stats);
    }

    fn record_timed(&mut self, now: u64, slots: &Slots, went: usize, stats: &super::SenderStats) {
        let (mut same, mut times) = (0, 0);
        for at in (0..went).filter(|&at| slots.is_timed(at)) {
            let stamp = slots.stamp[at];
            let before = self.last.replace((now, stamp));
            if self.stolen {
                stats.departures_stolen.add(1);
                self.stolen = !self.caught_up;
                continue;
            }
            let Some((left, intended)) = before else {
                continue;
            };
            let error = (now - left).abs_diff(stamp.saturating_sub(intended));
            if error != same && times > 0 {
                stats.departure_error.record(same, times);
                times = 0;
            }
            (same, times) = (error, times + 1);
        }
        if times > 0 {
            stats.departure_error.record(same, times);
        }
    }
}
