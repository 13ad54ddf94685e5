//! The congestion window that all algorithms share, and what they do with it alike.

/// Slow start threshold before there was any congestion: slow start goes on until there is.
pub const SSTHRESH_INFINITE: u32 = u32::MAX;

/// The largest window in bytes: no receiver can announce more (RFC 7323 2.3).
pub const CWND_MAX_BYTES: u32 = 1 << 30;

/// Largest slow start increase for one ACK without pacing, in segments (RFC 9406 4.3: L).
const UNPACED_LIMIT: u32 = 8;

/// The congestion window of a connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How much may be in flight.
    pub cwnd_bytes: u32,
    /// Below this slow start, from here on congestion avoidance.
    pub ssthresh_bytes: u32,
    /// The window when the threshold was last set (RFC 9438 4.1.2: cwnd_prior); 0: never. What
    /// [`restore`](Self::restore) goes back to.
    pub prior_cwnd_bytes: u32,
    /// The threshold before that.
    pub prior_ssthresh_bytes: u32,
    mss: u16,
    is_paced: bool,
    /// Marks of ECN have reduced it to one segment.
    pub(super) is_single: bool,
}

/// How much may be sent before the first ACK, in bytes (RFC 6928 2), for segments of `mss` bytes.
///
/// Where the SYN or its answer was lost, it is one segment (RFC 5681 3.1): [`loss_window`].
pub const fn initial_window(mss: u16) -> u32 {
    let mss = mss as u32;
    let some = if 2 * mss > 14_600 { 2 * mss } else { 14_600 };
    if 10 * mss < some { 10 * mss } else { some }
}

/// How much may be sent after a timeout, in bytes (RFC 5681 3.1: LW): one segment.
pub const fn loss_window(mss: u16) -> u32 {
    mss as u32
}

impl Window {
    /// The window of a new connection, whose segments carry up to `mss` bytes (RFC 5681: SMSS).
    /// `is_paced`: its segments leave one burst at a time, so that an ACK for much may grow the
    /// window by as much (RFC 9406 4.3).
    pub fn new(mss: u16, is_paced: bool) -> Self {
        let mss = mss.max(1);
        Self {
            cwnd_bytes: initial_window(mss),
            ssthresh_bytes: SSTHRESH_INFINITE,
            prior_cwnd_bytes: 0,
            prior_ssthresh_bytes: SSTHRESH_INFINITE,
            mss,
            is_paced,
            is_single: false,
        }
    }

    /// Bytes that a segment carries.
    #[inline(always)]
    pub fn mss(&self) -> u32 {
        self.mss.into()
    }

    /// Segments are of `mss` bytes from now on: the path's MTU is another. The window stays the
    /// same in bytes, but has room for a segment.
    pub fn set_mss(&mut self, mss: u16) {
        self.mss = mss.max(1);
        self.cwnd_bytes = self.cwnd_bytes.max(self.mss());
    }

    /// The handshake has said how long segments are: the initial window is that of those.
    pub fn restart(&mut self) {
        self.cwnd_bytes = initial_window(self.mss);
    }

    /// Whether segments leave one burst at a time.
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// From now on segments leave one burst at a time, or no longer do.
    pub fn set_paced(&mut self, is_paced: bool) {
        self.is_paced = is_paced;
    }

    /// What a reduction leads to: the threshold, to which PRR reduces the window and at which a
    /// recovery ends (RFC 9937 6.4). After a mark of ECN that is one segment, where the window was
    /// too small for two (RFC 9438 4.6); the threshold never is.
    pub fn target_bytes(&self) -> u32 {
        match self.is_single {
            true => self.mss(),
            false => self.ssthresh_bytes.min(CWND_MAX_BYTES),
        }
    }

    /// Whether this is slow start (RFC 5681 3.1).
    #[inline(always)]
    pub fn is_slow_start(&self) -> bool {
        self.cwnd_bytes < self.ssthresh_bytes
    }

    /// Whether it is the first slow start: nothing has shown yet what the path can carry.
    #[inline(always)]
    pub fn is_first_slow_start(&self) -> bool {
        self.ssthresh_bytes == SSTHRESH_INFINITE
    }

    /// Adds to the window.
    #[inline(always)]
    pub fn grow(&mut self, bytes: u32) {
        let grown = self.cwnd_bytes.saturating_add(bytes);
        self.cwnd_bytes = grown.min(CWND_MAX_BYTES).max(self.cwnd_bytes);
    }

    /// The most that one ACK adds to the window in slow start, in bytes: without pacing 8
    /// segments (RFC 9406 4.3), whose burst a switch can be expected to hold.
    ///
    /// RFC 5681 3.1 allows one segment an ACK and RFC 3465 two. ACKs are for more today, since
    /// NICs and kernels merge segments on both sides, so Linux counts all that is acknowledged.
    /// What was SACKed before is not counted a second time.
    #[inline(always)]
    pub fn slow_start_limit(&self) -> u32 {
        match self.is_paced {
            true => u32::MAX,
            false => UNPACED_LIMIT * self.mss(),
        }
    }

    /// Slow start (RFC 5681 3.1): grows by what was acknowledged, up to the threshold. Returns
    /// those of the bytes that are beyond it, for congestion avoidance.
    #[inline]
    pub fn slow_start(&mut self, acked_bytes: u32) -> u32 {
        let room = self.ssthresh_bytes.saturating_sub(self.cwnd_bytes);
        let counted = acked_bytes.min(room);
        self.grow(counted.min(self.slow_start_limit()));
        match self.is_slow_start() {
            true => 0,
            false => acked_bytes - counted,
        }
    }

    /// Remembers the window before it is reduced.
    pub fn save(&mut self) {
        self.prior_cwnd_bytes = self.cwnd_bytes;
        self.prior_ssthresh_bytes = self.ssthresh_bytes;
    }

    /// Undoes the reduction before which [`save`](Self::save) was called: no segment was lost
    /// (RFC 4015 3.4). A window that has grown beyond is kept.
    pub fn restore(&mut self) {
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
        self.ssthresh_bytes = self.ssthresh_bytes.max(self.prior_ssthresh_bytes);
        self.is_single = false;
    }

    /// After `idle_ns` without a transmission: what the window says is old. It is halved for each
    /// `rto_ns`, and is no less than the restart window (RFC 5681 4.1) by that; the threshold
    /// remembers three quarters of it, so that slow start leads back quickly (RFC 2861 3).
    ///
    /// RFC 5681 goes down to the restart window at once. Halving is Linux' way, and less only for
    /// windows that were in use a few RTOs ago.
    pub fn decay(&mut self, idle_ns: u64, rto_ns: u64) {
        let times = idle_ns.checked_div(rto_ns).unwrap_or(0);
        if times == 0 {
            return;
        }
        let restart = initial_window(self.mss).min(self.cwnd_bytes);
        let quarters = self.cwnd_bytes / 4 * 3;
        if !self.is_first_slow_start() {
            self.ssthresh_bytes = self.ssthresh_bytes.max(quarters);
        }
        let halved = self.cwnd_bytes >> times.min(31);
        self.cwnd_bytes = halved.max(restart);
    }
}
