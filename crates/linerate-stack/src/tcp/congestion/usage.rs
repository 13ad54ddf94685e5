//! Whether the congestion window is what limits a sender: only then do ACKs grow it.

use super::Window;
use crate::tcp::seq;

/// How much of the window the last round trip has used.
///
/// RFC 9438 4.6 requires this of those that reduce the window and not FlightSize, RFC 7661 is about
/// it: a window that is not used says nothing about the path, however many ACKs come. It is
/// Linux' rule: what limits is remembered for a round trip, so that each ACK of one that was
/// limited counts, and in slow start half a window in flight is enough, since the other half is
/// what the last ACKs have added.
///
/// A window that is not used is kept, as RFC 7661 4.3 recommends over RFC 2861: what the path has
/// carried once is a better guess than less. [`Window::decay`] is for senders that pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The round trip ends when this is acknowledged.
    round_end: u32,
    /// The most in flight in it.
    most_bytes: u32,
    is_limited: bool,
}

const _: () = assert!(size_of::<Usage>() <= 12);

impl Usage {
    /// Of a connection whose next byte is `snd_nxt`.
    pub fn new(snd_nxt: u32) -> Self {
        Self {
            round_end: snd_nxt,
            most_bytes: 0,
            is_limited: false,
        }
    }

    /// After each time that the sender has sent what it may. `is_limited`: it has more to send,
    /// the receiver's window has room, and the congestion window has not.
    #[inline]
    pub fn note_sent(
        &mut self,
        snd_una: u32,
        snd_nxt: u32,
        in_flight_bytes: u32,
        is_limited: bool,
    ) {
        let is_new_round = seq::ge(snd_una, self.round_end);
        let is_more = !self.is_limited && in_flight_bytes > self.most_bytes;
        if is_new_round || is_limited || is_more {
            self.is_limited = is_limited;
            self.most_bytes = in_flight_bytes;
            self.round_end = snd_nxt;
        }
    }

    /// Whether an ACK may grow the window: for [`Ack::is_cwnd_limited`](super::Ack).
    #[inline]
    pub fn is_limited(&self, window: &Window) -> bool {
        let half = window.cwnd_bytes / 2;
        self.is_limited || (window.is_slow_start() && self.most_bytes > half)
    }
}
