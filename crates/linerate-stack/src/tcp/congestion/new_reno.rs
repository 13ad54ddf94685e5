//! NewReno (RFC 5681, and the window's side of RFC 6582): the window doubles in slow start, grows
//! by a segment each round trip afterwards, and is halved by congestion.

use super::{Ack, Congestion, Signal, Window, end_recovery, reduce, time_out};

/// NewReno's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewReno {
    /// Bytes acknowledged since the window grew (RFC 5681 3.1, RFC 3465 2.1).
    credit: u32,
}

impl NewReno {
    fn half(window: &Window, flight_bytes: u32) -> u32 {
        // RFC 5681 3.1 equation 4: half of FlightSize, without what limited transmit has added
        // (3.2 step 2), which is what is beyond the window.
        flight_bytes.min(window.cwnd_bytes) / 2
    }
}

impl Congestion for NewReno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if ack.in_recovery || !ack.is_cwnd_limited {
            return;
        }
        let acked = match window.is_slow_start() {
            true => window.slow_start(ack.acked_bytes),
            false => ack.acked_bytes,
        };
        // RFC 5681 3.1: a segment for each window of bytes acknowledged.
        self.credit = self.credit.saturating_add(acked);
        if self.credit >= window.cwnd_bytes {
            let windows = self.credit / window.cwnd_bytes.max(1);
            self.credit -= windows * window.cwnd_bytes;
            window.grow(windows.saturating_mul(window.mss()));
        }
    }

    fn on_congestion(&mut self, window: &mut Window, signal: Signal, flight_bytes: u32, _: u64) {
        reduce(window, signal, Self::half(window, flight_bytes));
        self.credit = 0;
    }

    fn on_timeout(&mut self, window: &mut Window, is_first: bool, flight_bytes: u32, _: u64) {
        time_out(window, is_first, Self::half(window, flight_bytes));
        self.credit = 0;
    }

    fn on_recovery_end(&mut self, window: &mut Window, by_timeout: bool, _: u64) {
        end_recovery(window, by_timeout);
    }

    fn undo(&mut self, window: &mut Window, _: u64) {
        window.restore();
    }

    fn on_idle(&mut self, window: &mut Window, idle_ns: u64, rto_ns: u64, _: u64) {
        window.decay(idle_ns, rto_ns);
    }
}
