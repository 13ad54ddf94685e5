//! The round-trip time of a connection: its mean, its variation, its minimum, and the
//! retransmission timeout (RTO) that follows (RFC 6298).
//!
//! Where RFC 6298 leaves a choice, this is as in Linux:
//!
//! | what | here | RFC 6298 |
//! |---|---|---|
//! | initial RTO | 1 s | 2.1: 1 s |
//! | initial RTO after the SYN timed out | 3 s, unless there is a sample | 5.7: 3 s |
//! | least RTO | the mean and 200 ms: the floor is under the variation | 2.4: SHOULD be 1 s |
//! | greatest RTO | 120 s | 2.5: MAY be, of 60 s or more |
//! | variation | the largest of a round trip; falls by a quarter in each | 2.3: of each sample |
//!
//! The floor of 200 ms is far below RFC 6298's second, as everywhere since: it only has to exceed
//! what a delayed ACK takes. It is added to the mean, so that a path with a long and steady round
//! trip, whose variation is close to zero, has a margin.
//!
//! With time stamps there is a sample for each ACK, and a gain of 1/4 per sample would forget the
//! variation within a part of a round trip. RFC 7323 appendix G divides the gains by the expected
//! number of samples. Linux instead takes the largest smoothed deviation of each round trip; so is
//! it here, and a round trip is measured by the clock. This needs no division, and it does not
//! depend on a right guess of how often the peer acknowledges.
//!
//! Karn's algorithm (RFC 6298 3): the caller gives no sample of a segment that was sent twice,
//! unless time stamps tell which transmission was acknowledged. RFC 7323 4.1: it gives none of a
//! segment that does not acknowledge new data. Until the next sample the RTO stays backed off.
//!
//! ```
//! use linerate_stack::tcp::rtt::Rtt;
//! let mut rtt = Rtt::new();
//! assert_eq!(rtt.rto_ns(), 1_000_000_000);
//! rtt.sample(100_000_000, 5_000_000_000);
//! assert_eq!(rtt.rto_ns(), 300_000_000); // R + 4 * R/2 (RFC 6298 2.2)
//! rtt.backoff();
//! assert_eq!(rtt.rto_ns(), 600_000_000);
//! ```

#[cfg(test)]
mod tests;

/// RTO before there is a sample (RFC 6298 2.1), in nanoseconds.
pub const RTO_INITIAL_NS: u64 = 1_000_000_000;
/// RTO at the start of data whose SYN timed out (RFC 6298 5.7), in nanoseconds.
pub const RTO_FALLBACK_NS: u64 = 3_000_000_000;
/// The least that is added to the mean, in nanoseconds: Linux' `tcp_rto_min`.
pub const RTO_MIN_NS: u64 = 200_000_000;
/// The most that backing off leads to (RFC 6298 2.5), in nanoseconds: Linux' `TCP_RTO_MAX`.
pub const RTO_MAX_NS: u64 = 120_000_000_000;
/// How long a minimum counts, in nanoseconds: Linux' `tcp_min_rtt_wlen`. Long enough to outlive a
/// standing queue of our own, short enough to notice a longer route.
pub const MIN_RTT_WINDOW_NS: u64 = 300_000_000_000;

/// Round trips are kept in units of 2^5 ns: 32 bits hold 137 s, more than the greatest RTO.
const UNIT_SHIFT: u32 = 5;
/// Times of minima are kept in units of 2^20 ns, about a millisecond; they wrap after 52 days.
const STAMP_SHIFT: u32 = 20;
/// Ends of round trips are kept in units of 2^10 ns, about a microsecond; they wrap after 73
/// minutes, and a wrapped one only makes one round trip of this estimator longer or shorter.
const ROUND_SHIFT: u32 = 10;
/// Backing off further changes nothing: the least RTO is at its greatest.
const BACKOFF_MAX: u8 = 10;

const FLOOR: u32 = units(RTO_MIN_NS);
const WINDOW: u32 = (MIN_RTT_WINDOW_NS >> STAMP_SHIFT) as u32;

const fn units(ns: u64) -> u32 {
    let ns = if ns > RTO_MAX_NS { RTO_MAX_NS } else { ns };
    (ns >> UNIT_SHIFT) as u32
}

const fn ns(units: u32) -> u64 {
    (units as u64) << UNIT_SHIFT
}

/// What is known of the round trips of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Smoothed mean; 0: no sample yet.
    srtt: u32,
    /// Four times the smoothed deviation.
    mdev: u32,
    /// The largest of those in this round trip, at least the floor.
    mdev_max: u32,
    /// What the RTO adds to the mean. Before the first sample: the RTO.
    variation: u32,
    /// When this round trip ends, in units of [`ROUND_SHIFT`].
    round_end: u32,
    /// The least of the window.
    min: Minimum,
    /// The least of its later part: what counts when the first one is too old.
    later: Minimum,
    /// How often the RTO is doubled.
    backoff: u8,
}

/// A round trip that was the least, and when, in units of [`STAMP_SHIFT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Minimum {
    rtt: u32,
    at: u32,
}

const _: () = assert!(size_of::<Rtt>() <= 40);

impl Default for Rtt {
    fn default() -> Self {
        Self::new()
    }
}

impl Rtt {
    /// Without a sample: an RTO of 1 s (RFC 6298 2.1).
    pub const fn new() -> Self {
        let none = Minimum {
            rtt: u32::MAX,
            at: 0,
        };
        Self {
            srtt: 0,
            mdev: 0,
            mdev_max: FLOOR,
            variation: units(RTO_INITIAL_NS),
            round_end: 0,
            min: none,
            later: none,
            backoff: 0,
        }
    }

    /// Takes a sample: a segment acknowledged at `now_ns` was sent `rtt_ns` before. Ends the
    /// backing off (RFC 6298 5). Samples beyond the greatest RTO count as that.
    pub fn sample(&mut self, rtt_ns: u64, now_ns: u64) {
        // A mean of 0 says that there is no sample.
        let rtt = units(rtt_ns).max(1);
        let round = (now_ns >> ROUND_SHIFT) as u32;
        self.backoff = 0;
        self.note_minimum(rtt, (now_ns >> STAMP_SHIFT) as u32);
        if self.srtt == 0 {
            // RFC 6298 2.2: 4 * R/2.
            self.srtt = rtt;
            self.mdev = rtt.saturating_mul(2);
            self.variation = self.mdev.max(FLOOR);
            self.mdev_max = self.variation;
            self.start_round(round);
            return;
        }
        let error = i64::from(rtt) - i64::from(self.srtt);
        // RFC 6298 2.3, alpha 1/8, rounded to the nearest so that the mean has no bias.
        self.srtt = (i64::from(self.srtt) + ((error + 4) >> 3)).max(1) as u32;
        // Beta 1/4: `mdev` is four times the deviation.
        let mut change = error.abs() - i64::from(self.mdev >> 2);
        if error < 0 && change > 0 {
            // The round trip fell by much: that is no reason to wait longer, so only 1/8 of it
            // counts (Ludwig and Sklower, "The Eifel Retransmission Timer", 2000).
            change >>= 3;
        }
        let mdev = i64::from(self.mdev) + change;
        self.mdev = mdev.clamp(0, i64::from(u32::MAX)) as u32;
        self.mdev_max = self.mdev_max.max(self.mdev);
        self.variation = self.variation.max(self.mdev_max);
        if round.wrapping_sub(self.round_end) as i32 >= 0 {
            self.variation -= (self.variation - self.mdev_max) >> 2;
            self.mdev_max = FLOOR;
            self.start_round(round);
        }
    }

    fn start_round(&mut self, now: u32) {
        let long = self.srtt >> (ROUND_SHIFT - UNIT_SHIFT);
        self.round_end = now.wrapping_add(long);
    }

    /// The timeout of a segment sent now, in nanoseconds, backing off included.
    #[inline]
    pub fn rto_ns(&self) -> u64 {
        let base = (ns(self.srtt) + ns(self.variation)).min(RTO_MAX_NS);
        (base << self.backoff).min(RTO_MAX_NS)
    }

    /// Doubles the RTO, since it has passed (RFC 6298 5.5).
    pub fn backoff(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// How often the RTO has been doubled since the last sample.
    pub fn backoffs(&self) -> u8 {
        self.backoff
    }

    /// Ends the backing off without a sample: the timeout was spurious (RFC 5682 2.1 step 3b, RFC
    /// 4015 3.4), or the peer answered a window probe.
    pub fn clear_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The handshake is over after its SYN or SYN-ACK timed out: without a sample, which time
    /// stamps give also then, data starts with an RTO of 3 s (RFC 6298 5.7). The second of the
    /// initial RTO was too short once, so it is taken to be shorter than the path.
    pub fn handshake_timed_out(&mut self) {
        self.backoff = 0;
        if self.srtt == 0 {
            self.variation = self.variation.max(units(RTO_FALLBACK_NS));
        }
    }

    /// Earlier connections to this host had a mean of `srtt_ns` (RFC 9040 6.1): where that is more
    /// than this connection's, its RTO is as for a first sample of that length. The mean itself is
    /// not taken over, as in Linux: the handshake's short segments are the faster ones, so its
    /// sample makes the RTO too short for data, and a few samples of data put it right.
    pub fn expect(&mut self, srtt_ns: u64) {
        let expected = units(srtt_ns);
        if self.srtt != 0 && expected > self.srtt {
            let rto = expected.saturating_add(expected.saturating_mul(2).max(FLOOR));
            self.variation = self.variation.max(rto - self.srtt);
        }
    }

    /// The smoothed mean in nanoseconds; `None` before the first sample.
    #[inline]
    pub fn srtt_ns(&self) -> Option<u64> {
        (self.srtt != 0).then(|| ns(self.srtt))
    }

    /// The smoothed mean deviation in nanoseconds: RFC 6298's RTTVAR, without the floor.
    pub fn rttvar_ns(&self) -> u64 {
        ns(self.mdev) >> 2
    }

    /// The least round trip of the last 5 minutes in nanoseconds; the last known one where there
    /// has been no sample since, and `None` before the first sample.
    #[inline]
    pub fn min_rtt_ns(&self, now_ns: u64) -> Option<u64> {
        let now = (now_ns >> STAMP_SHIFT) as u32;
        let is_old = now.wrapping_sub(self.min.at) > WINDOW;
        let min = if is_old { self.later } else { self.min };
        (self.srtt != 0).then(|| ns(min.rtt))
    }

    /// A minimum of a window that moves, in two entries: the least, and the least of what came
    /// half a window or more after it, or as late as there is.
    fn note_minimum(&mut self, rtt: u32, now: u32) {
        let sample = Minimum { rtt, at: now };
        let age = |minimum: Minimum| now.wrapping_sub(minimum.at);
        if rtt <= self.min.rtt || age(self.later) > WINDOW {
            (self.min, self.later) = (sample, sample);
        } else if age(self.min) > WINDOW {
            self.min = self.later;
            self.later = sample;
        } else if rtt <= self.later.rtt
            || (age(self.min) > WINDOW / 2 && self.later.at.wrapping_sub(self.min.at) <= WINDOW / 2)
        {
            self.later = sample;
        }
    }
}
