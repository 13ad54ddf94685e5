//! Pacing: when a connection may send its next burst, so that a window leaves over a round trip
//! and not at once.
//!
//! The rate is the congestion controller's own (BBR), or a window in a round trip: twice that in
//! slow start, so that the window can double, and 1.2 times that afterwards, so that pacing is not
//! what limits the connection (Linux' `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`). RFC 9937
//! 6.4 recommends pacing, RFC 9406 4.3 grows faster with it.
//!
//! What is kept is the time that a byte takes, not the rate: an ACK costs one division, a
//! transmission none. A burst is what the rate allows in about a millisecond, at least two
//! segments, and at most a frame of 64 KiB or what the rate allows in 16 us: the turn of a worker
//! that has other things to do.
//!
//! ```
//! use linerate_stack::tcp::pacing::Pacer;
//! let mut pacer = Pacer::new();
//! assert!(pacer.may_send(0)); // without a rate always
//! pacer.set_rate(1_000_000); // bytes a second
//! pacer.sent(1000, 0);
//! assert!(!pacer.may_send(999_999));
//! assert!(pacer.may_send(1_000_000));
//! ```

#[cfg(test)]
mod tests;

/// The most that leaves at once in bytes, below 32 Gb/s: what fits one frame that the NIC cuts into
/// segments.
pub const BURST_MAX_BYTES: u32 = 65_536 - 256;
/// A burst is the rate's bytes of 2^20 ns, about a millisecond (Linux: 2^-10 s).
const BURST_SHIFT: u32 = 20;
/// Bytes of 2^14 ns may leave at once at any rate.
const TURN_SHIFT: u32 = 14;
/// The time of a byte is kept in units of 2^-20 ns: one part in 20,000 at 400 Gb/s.
const TIME_SHIFT: u32 = 20;
const SECOND: u64 = 1_000_000_000;

/// When one connection may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacer {
    next_ns: u64,
    /// Time of a byte in 2^-20 ns; 0: no rate.
    per_byte: u64,
    /// The least that may be: the connection's limit.
    least_per_byte: u64,
}

const _: () = assert!(size_of::<Pacer>() <= 24);

/// In which part of its life a connection is, for its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The window doubles in a round trip: below half of the slow start threshold.
    Doubling,
    /// It grows more slowly.
    Slow,
}

impl Pacer {
    /// Without a rate: everything may be sent at any time.
    pub const fn new() -> Self {
        Self {
            next_ns: 0,
            per_byte: 0,
            least_per_byte: 0,
        }
    }

    /// Bounds the rate to `bytes_per_s`, whatever the congestion window allows (Linux'
    /// `SO_MAX_PACING_RATE`); 0 ends that. Without another rate this is the rate.
    pub fn set_limit(&mut self, bytes_per_s: u64) {
        if self.per_byte == self.least_per_byte {
            self.per_byte = 0;
        }
        self.least_per_byte = per_byte(bytes_per_s);
        self.per_byte = self.per_byte.max(self.least_per_byte);
    }

    /// Paces at `bytes_per_s`; 0: [without a rate](Self::clear_rate).
    pub fn set_rate(&mut self, bytes_per_s: u64) {
        self.per_byte = per_byte(bytes_per_s).max(self.least_per_byte);
    }

    /// Without a rate, but for the limit.
    #[inline(always)]
    pub fn clear_rate(&mut self) {
        self.per_byte = self.least_per_byte;
    }

    /// Paces a window of `cwnd_bytes` over a round trip of `srtt_ns`. Does nothing if either is 0:
    /// before the first sample there is nothing to pace by.
    #[inline]
    pub fn set_window(&mut self, cwnd_bytes: u32, srtt_ns: u64, growth: Growth) {
        if cwnd_bytes == 0 || srtt_ns == 0 {
            return;
        }
        // A round trip over two windows, or over 6/5 of one.
        let (times, of) = match growth {
            Growth::Doubling => (1, 2),
            Growth::Slow => (5, 6),
        };
        // No round trip lasts half an hour, and nothing overflows below that.
        let time = srtt_ns.min(1 << 41) << TIME_SHIFT;
        let per_byte = time / u64::from(cwnd_bytes) * times / of;
        self.per_byte = per_byte.max(1).max(self.least_per_byte);
    }

    /// The rate in bytes a second; `None` without one.
    pub fn rate(&self) -> Option<u64> {
        (SECOND << TIME_SHIFT).checked_div(self.per_byte)
    }

    /// Whether its rate is [bounded](Self::set_limit).
    #[inline]
    pub fn has_limit(&self) -> bool {
        self.least_per_byte != 0
    }

    /// Whether there is a rate.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.per_byte != 0
    }

    /// Whether something may be sent: up to [`burst_bytes`](Self::burst_bytes).
    #[inline]
    pub fn may_send(&self, now_ns: u64) -> bool {
        self.per_byte == 0 || now_ns >= self.next_ns
    }

    /// From when on something may be sent, for the timer.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// How many bytes may leave at once: two segments of `mss` or more. Two, so that a receiver
    /// that delays ACKs answers each burst.
    #[inline]
    pub fn burst_bytes(&self, mss: u32) -> u32 {
        let least = 2 * mss;
        let Some(bytes) = (1_u64 << (BURST_SHIFT + TIME_SHIFT)).checked_div(self.per_byte) else {
            return BURST_MAX_BYTES.max(least);
        };
        let turn = bytes >> (BURST_SHIFT - TURN_SHIFT);
        let most = turn.clamp(BURST_MAX_BYTES.into(), 1 << 30) as u32;
        bytes.min(most.into()).max(least.into()) as u32
    }

    /// `bytes` left at `now_ns`, whether new or again.
    ///
    /// Whoever comes late, since the turn was another's, gets back up to half of what the bytes
    /// take, as in Linux: else each delay would lower the rate. More would be a burst.
    #[inline]
    pub fn sent(&mut self, bytes: u32, now_ns: u64) {
        if self.per_byte == 0 {
            return;
        }
        let takes = (u128::from(bytes) * u128::from(self.per_byte)) >> TIME_SHIFT;
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let late = now_ns.saturating_sub(self.next_ns);
        self.next_ns = match late {
            0 => self.next_ns.saturating_add(takes),
            _ => now_ns.saturating_add(takes - late.min(takes / 2)),
        };
    }
}

/// The time of a byte at this rate; 0 for a rate of 0, which is none.
fn per_byte(bytes_per_s: u64) -> u64 {
    match (SECOND << TIME_SHIFT).checked_div(bytes_per_s) {
        Some(time) => time.max(1),
        None => 0,
    }
}
