//! How large a connection's receive buffer should be: dynamic right-sizing (Fisk and Feng, 2001),
//! with the steps of Linux' `tcp_rcv_space_adjust`.
//!
//! A sender's congestion window doubles at most once in a round trip. So a buffer of twice what the
//! application reads in one round trip never limits the sender, and a slow application keeps a
//! small one.

use super::seq;

/// The measurement of one connection: bytes read in each round trip. Times are nanoseconds of a
/// monotonic clock; they are kept in microseconds, whose wrap after 71 minutes counts as a long
/// round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autotune {
    /// Bytes that the buffer takes now.
    buffer: u32,
    /// Most bytes that were read in one round trip.
    read: u32,
    /// The first sequence number that was not read when the measured round trip began, and when
    /// that was.
    read_seq: u32,
    read_us: u32,
    /// Smoothed round trip in eighths of a microsecond; 0 until it was measured.
    rtt: u32,
    /// When RCV.NXT reaches this number, a window was received since `edge_us`.
    edge: u32,
    edge_us: u32,
}

const _: () = assert!(size_of::<Autotune>() == 28);

/// Longest round trip in microseconds; what seems longer is this.
const MAX_RTT_US: u32 = 60_000_000;

fn micros(now_ns: u64) -> u32 {
    (now_ns / 1000) as u32
}

impl Autotune {
    /// The beginning of a connection: `buffer` bytes, RCV.NXT, and RCV.NXT + RCV.WND.
    pub fn new(buffer: u32, next: u32, edge: u32, now_ns: u64) -> Self {
        Self {
            buffer,
            read: 0,
            read_seq: next,
            read_us: micros(now_ns),
            rtt: 0,
            edge,
            edge_us: micros(now_ns),
        }
    }

    /// Bytes that the buffer takes: RCV.BUFF.
    #[inline]
    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Round trip in microseconds as the receiver sees it; 0 until it was measured.
    pub fn rtt_us(&self) -> u32 {
        self.rtt / 8
    }

    /// A segment with data echoed a time stamp of ours that is `rtt_ns` old (RFC 7323 4.3). The
    /// peer may have waited before it sent, and so the value is smoothed.
    pub fn on_echo(&mut self, rtt_ns: u64) {
        let sample = micros(rtt_ns).clamp(1, MAX_RTT_US);
        self.rtt = match self.rtt {
            0 => sample * 8,
            rtt => rtt - rtt / 8 + sample,
        };
    }

    /// A segment with data came, and there are no time stamps: `next` and `edge` are RCV.NXT and
    /// RCV.NXT + RCV.WND. A window cannot be filled in less than a round trip, so the least of
    /// these times is taken.
    pub fn on_segment(&mut self, next: u32, edge: u32, now_ns: u64) {
        if seq::lt(next, self.edge) {
            return;
        }
        let now = micros(now_ns);
        let sample = now.wrapping_sub(self.edge_us).clamp(1, MAX_RTT_US);
        self.rtt = match self.rtt {
            0 => sample * 8,
            rtt => rtt.min(sample * 8),
        };
        (self.edge, self.edge_us) = (edge, now);
    }

    /// The application has read up to sequence number `read`. Once in a round trip, the buffer
    /// grows to twice what was read in it, and more while that itself grows, up to `max_buffer`; it
    /// never shrinks. `mss` is the largest payload that the peer sends. Returns whether it grew.
    pub fn on_read(&mut self, read: u32, mss: u32, max_buffer: u32, now_ns: u64) -> bool {
        let now = micros(now_ns);
        let elapsed = now.wrapping_sub(self.read_us);
        if self.rtt == 0 || elapsed < self.rtt / 8 {
            return false;
        }
        let bytes = read.wrapping_sub(self.read_seq);
        (self.read_seq, self.read_us) = (read, now);
        // As if an initial window had been read (RFC 6928), so that the first bytes do not look
        // like growth.
        let old = self.read.max(mss.saturating_mul(10)).max(1);
        if bytes <= old {
            return false;
        }
        self.read = bytes;
        let (bytes, old) = (u64::from(bytes), u64::from(old));
        // What the sender sends in this round trip, and in the next while the application reads;
        // sixteen segments, for the first round trips are small.
        let base = 2 * bytes + 16 * u64::from(mss);
        // It was this much faster than before, and may be again.
        let growth = base.saturating_mul(bytes - old) / old;
        let wanted = base.saturating_add(growth.saturating_mul(2));
        let wanted = wanted.min(max_buffer.into()) as u32;
        let grows = wanted > self.buffer;
        self.buffer = self.buffer.max(wanted);
        grows
    }
}
