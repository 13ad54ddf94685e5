//! What a connection leaves to later ones to the same host, and what it begins with (RFC 9040).

use super::recovery::PERSIST;
use super::{Connection, Context, Phase, Wire, is};
use crate::tcp::metrics::{Closed, Ended};

impl Connection {
    /// The handshake is over: earlier connections know what to expect (as Linux:
    /// `tcp_init_metrics`).
    pub(super) fn begin_with_metrics<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let is_shared = cx.shared.config.path_metrics;
        let peer = cx.wire.peer();
        let known = match is_shared {
            true => cx.shared.metrics.lookup(peer, cx.now_ns),
            false => None,
        };
        self.begin_mtu_search(cx, known.and_then(|known| known.pmtu));
        let Some(known) = known else {
            return;
        };
        if let Some(srtt_ns) = known.srtt_ns {
            self.rtt.expect(srtt_ns);
        }
        if let Some(bytes) = known.ssthresh_bytes {
            self.control.window.ssthresh_bytes = bytes.max(2 * u32::from(self.mss));
        }
        if let Some(steps) = known.reordering {
            self.set(is::REORDERING, true);
            (self.rack_steps, self.rack_persist) = (steps, PERSIST);
        }
    }

    /// It has ended as connections should (`is_sound`): what it knows is kept. One that was reset
    /// or given up knows nothing that is worth it.
    pub(super) fn leave_metrics<W: Wire>(&mut self, cx: &mut Context<'_, W>, is_sound: bool) {
        if !is_sound || !cx.shared.config.path_metrics {
            return;
        }
        let window = &self.control.window;
        let (cwnd_bytes, ssthresh_bytes) = (window.cwnd_bytes, window.ssthresh_bytes);
        let ended = match self.phase {
            _ if window.is_first_slow_start() => Ended::FirstSlowStart { cwnd_bytes },
            Phase::Open if cwnd_bytes >= ssthresh_bytes => Ended::Avoidance {
                cwnd_bytes,
                ssthresh_bytes,
            },
            _ => Ended::Recovering { ssthresh_bytes },
        };
        let closed = Closed {
            // After a timeout the last samples are older than what went wrong.
            srtt_ns: self.rtt.srtt_ns().filter(|_| self.retries == 0),
            rttvar_ns: self.rtt.rttvar_ns(),
            reordering: self.is(is::REORDERING).then_some(self.rack_steps),
            window: (self.last_sent_ms != 0).then_some(ended),
        };
        let peer = cx.wire.peer();
        cx.shared.metrics.note_closed(peer, &closed, cx.now_ns);
    }
}
