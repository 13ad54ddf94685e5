//! What is kept of one host, and how what a connection has learned is merged with it: as Linux'
//! `tcp_metrics` does it.

use super::{Closed, Cookie, Ended, SECOND_NS, Shared};

/// After the first SYN with data that got lost there are none for so many seconds; the time
/// doubles with each further one, six times at most.
const COOKIE_PAUSE_S: u32 = 60;
const COOKIE_PAUSE_DOUBLINGS: u8 = 6;

/// What is kept of a host. 0 is unknown; round trips are in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) key: [u8; 16],
    pub(super) prev: u32,
    pub(super) next: u32,
    pub(super) measured_s: u32,
    pub(super) pmtu_s: u32,
    pub(super) srtt_us: u32,
    pub(super) rttvar_us: u32,
    pub(super) ssthresh_bytes: u32,
    pub(super) cwnd_bytes: u32,
    pub(super) pmtu: u16,
    pub(super) mss: u16,
    pub(super) reordering: u8,
    pub(super) cookie: Option<Cookie>,
    pub(super) syns_lost: u8,
    pub(super) syn_lost_s: u32,
    /// Whether the index leads here.
    pub(super) is_indexed: bool,
}

pub(super) fn seconds(ns: u64) -> u32 {
    (ns / SECOND_NS).min(u32::MAX.into()) as u32
}

fn microseconds(ns: u64) -> u32 {
    // 0 is "unknown".
    (ns / 1000).clamp(1, u32::MAX.into()) as u32
}

impl Entry {
    /// Forgets what is too old to be merged with.
    pub(super) fn expire(&mut self, now_s: u32, lifetime_s: u32) {
        if now_s.saturating_sub(self.measured_s) > lifetime_s {
            (self.srtt_us, self.rttvar_us) = (0, 0);
            (self.ssthresh_bytes, self.cwnd_bytes) = (0, 0);
            self.reordering = 0;
        }
    }

    pub(super) fn merge_rtt(&mut self, closed: &Closed) {
        let Some(srtt_ns) = closed.srtt_ns else {
            (self.srtt_us, self.rttvar_us) = (0, 0);
            return;
        };
        let srtt = microseconds(srtt_ns);
        let known = self.srtt_us;
        // A longer one at once: too short an RTO costs more than too long a one.
        self.srtt_us = match srtt >= known {
            true => srtt,
            false => known - (known - srtt) / 8,
        };
        // What the two means differ by is variation too.
        let differs = known.abs_diff(srtt) / 2;
        let differs = if known == 0 { 0 } else { differs };
        let var = microseconds(closed.rttvar_ns).max(differs);
        self.rttvar_us = match var >= self.rttvar_us {
            true => var,
            false => self.rttvar_us - (self.rttvar_us - var) / 4,
        };
    }

    pub(super) fn merge_window(&mut self, ended: Ended) {
        let half = |known: u32, new: u32| match known {
            0 => new,
            known => known / 2 + new / 2,
        };
        match ended {
            // Slow start was not over, so the path carries this at least.
            Ended::FirstSlowStart { cwnd_bytes } => {
                if self.ssthresh_bytes != 0 {
                    self.ssthresh_bytes = self.ssthresh_bytes.max(cwnd_bytes / 2);
                }
                self.cwnd_bytes = self.cwnd_bytes.max(cwnd_bytes);
            }
            Ended::Avoidance {
                cwnd_bytes,
                ssthresh_bytes,
            } => {
                self.ssthresh_bytes = ssthresh_bytes.max(cwnd_bytes / 2);
                self.cwnd_bytes = half(self.cwnd_bytes, cwnd_bytes);
            }
            Ended::Recovering { ssthresh_bytes } => {
                if self.ssthresh_bytes != 0 {
                    self.ssthresh_bytes = self.ssthresh_bytes.max(ssthresh_bytes);
                }
                self.cwnd_bytes = half(self.cwnd_bytes, ssthresh_bytes);
            }
        }
    }

    /// Whether SYNs with data are not tried at `now_s`.
    fn is_cookie_paused(&self, now_s: u32) -> bool {
        let doublings = self.syns_lost.saturating_sub(1).min(COOKIE_PAUSE_DOUBLINGS);
        let pause = COOKIE_PAUSE_S << doublings;
        self.syns_lost > 0 && now_s.saturating_sub(self.syn_lost_s) < pause
    }

    /// What of it is known at `now_s` and not too old.
    pub(super) fn shared(&self, now_s: u32, lifetime_s: u32, pmtu_lifetime_s: u32) -> Shared {
        let is_fresh = now_s.saturating_sub(self.measured_s) <= lifetime_s;
        let is_pmtu_fresh = now_s.saturating_sub(self.pmtu_s) <= pmtu_lifetime_s;
        let measured = |value: u32| (value != 0 && is_fresh).then_some(value);
        let ns = |us: u32| u64::from(us) * 1000;
        let is_paused = self.is_cookie_paused(now_s);
        Shared {
            srtt_ns: measured(self.srtt_us).map(ns),
            rttvar_ns: measured(self.rttvar_us).map(ns),
            ssthresh_bytes: measured(self.ssthresh_bytes),
            cwnd_bytes: measured(self.cwnd_bytes),
            reordering: (self.reordering != 0 && is_fresh).then_some(self.reordering),
            pmtu: (self.pmtu != 0 && is_pmtu_fresh).then_some(self.pmtu),
            mss: (self.mss != 0).then_some(self.mss),
            cookie: self.cookie.filter(|_| !is_paused),
            is_fast_open_paused: is_paused,
        }
    }
}
