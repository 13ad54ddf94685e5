//! A link of a rate: it sends one packet after the other, and those that come meanwhile wait.
//!
//! Nothing is sent here. From the moments at which packets come follows when each has left, and so
//! how many wait; that is all.

use super::faults::Length;
use std::collections::VecDeque;

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// When the packets have left that came so far.
#[derive(Debug)]
pub(super) struct Link {
    rate_bps: u64,
    /// What may wait.
    room: Length,
    /// When it will have sent all, in ns, and what of a nanosecond is left of that: in units of
    /// 1 / `rate_bps` ns, so that no rate is rounded.
    free_ns: u64,
    rest: u64,
    /// Packets that wait: when their sending begins, and their bytes.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

impl Link {
    /// An idle link of so many bits a second, which are not 0.
    pub(super) fn new(rate_bps: u64, room: Length) -> Self {
        Self {
            rate_bps,
            room,
            free_ns: 0,
            rest: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Whether more than this waits now.
    pub(super) fn is_longer(&mut self, now_ns: u64, than: Length) -> bool {
        self.begin(now_ns);
        match than {
            Length::Pkts(packets) => self.waiting.len() as u64 > packets,
            Length::Bytes(bytes) => self.waiting_bytes > bytes,
        }
    }

    /// A packet of so many bytes comes: when its last bit has left, or `None` where it would have
    /// to wait and there is no room.
    pub(super) fn send(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        self.begin(now_ns);
        if self.free_ns < now_ns {
            (self.free_ns, self.rest) = (now_ns, 0);
        }
        if self.free_ns > now_ns {
            let fits = match self.room {
                Length::Pkts(packets) => (self.waiting.len() as u64) < packets,
                Length::Bytes(most) => self.waiting_bytes + bytes <= most,
            };
            if !fits {
                return None;
            }
            self.waiting.push_back((self.free_ns, bytes));
            self.waiting_bytes += bytes;
        }
        let rate = u128::from(self.rate_bps);
        let time = u128::from(bytes) * 8 * SECOND + u128::from(self.rest);
        self.rest = (time % rate) as u64;
        let time_ns = u64::try_from(time / rate).unwrap_or(u64::MAX);
        self.free_ns = self.free_ns.saturating_add(time_ns);
        Some(self.free_ns)
    }

    /// Forgets those that wait no more.
    fn begin(&mut self, now_ns: u64) {
        while let Some(&(begins_ns, bytes)) = self.waiting.front()
            && begins_ns <= now_ns
        {
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
    }
}
