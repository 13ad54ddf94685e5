//! What a worker does when no packets come: poll, then pause, then sleep.
#![allow(unsafe_code)]

use super::doorbell::Doorbell;
use crate::port::SleepOn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The rungs of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Empty rounds at full speed.
    pub polls: u32,
    /// Empty rounds with a pause each, giving the CPU away now and then.
    pub pauses: u32,
    /// Whether to sleep after that; otherwise it keeps pausing.
    pub sleep: bool,
    /// Longest sleep where something can wake the worker.
    pub nap: Duration,
    /// Longest sleep where a queue can only be polled.
    pub blind_nap: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            polls: 200,
            pauses: 400,
            sleep: true,
            nap: Duration::from_millis(100),
            blind_nap: Duration::from_micros(50),
        }
    }
}

impl Idle {
    /// Never sleeps: for an lcore of its own where every microsecond counts.
    pub fn never_sleep() -> Self {
        Self {
            sleep: false,
            ..Self::default()
        }
    }
}

/// What waking up may take: the slack that the kernel gives the timers of a thread (50 us), and
/// some more. Who has to do something at a time sleeps until so long before it, and polls on.
pub const WAKE_UP: Duration = Duration::from_micros(70);

/// Where on the ladder a worker is.
pub(super) struct Ladder {
    idle: Idle,
    empty_rounds: u32,
}

/// Empty rounds between two offers of the CPU to others.
const YIELD_EVERY: u32 = 32;

impl Ladder {
    pub(super) fn new(idle: Idle) -> Self {
        Self {
            idle,
            empty_rounds: 0,
        }
    }

    /// Packets came: back to the first rung.
    #[inline(always)]
    pub(super) fn reset(&mut self) {
        self.empty_rounds = 0;
    }

    /// One empty round; true when it is time to sleep.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        self.empty_rounds = self.empty_rounds.saturating_add(1);
        if self.empty_rounds <= self.idle.polls {
            return false;
        }
        crate::arch::pause();
        // The thread that sends the next packet may be waiting for this CPU.
        if self.empty_rounds.is_multiple_of(YIELD_EVERY) {
            std::thread::yield_now();
        }
        self.idle.sleep && self.empty_rounds > self.idle.polls.saturating_add(self.idle.pauses)
    }

    /// As [`nap_on`], by the ladder's bounds, and no longer than `left`.
    pub(super) fn sleep(&self, doorbell: &Doorbell, sources: &[SleepOn], left: Duration) {
        nap_on(
            doorbell,
            sources,
            self.idle.nap.min(left),
            self.idle.blind_nap,
        );
    }
}

/// Sleeps until a descriptor is readable, a doorbell rings, or the nap is over: after `blind` where
/// a source can only be polled, else after `nap`. The doorbells are prepared, and work was looked
/// for since. A descriptor that its queue has closed meanwhile ends the nap at once.
pub fn nap_on(doorbell: &Doorbell, sources: &[SleepOn], mut nap: Duration, blind: Duration) {
    let mut fds = vec![PollFd::from_borrowed_fd(doorbell.fd(), PollFlags::IN)];
    for source in sources {
        match source {
            SleepOn::Nothing => nap = nap.min(blind),
            SleepOn::Fd(fd) => {
                // SAFETY: the queue owns the descriptor, and its worker keeps it meanwhile; poll(2)
                // on a number that is no descriptor any more answers POLLNVAL.
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            SleepOn::Doorbell(bell) => fds.push(PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)),
            SleepOn::Unneeded | SleepOn::Ended => {}
        }
    }
    let timeout = Timespec {
        tv_sec: nap.as_secs() as i64,
        tv_nsec: i64::from(nap.subsec_nanos()),
    };
    // An interrupted or failed sleep is a short one; the next round looks for packets anyway.
    let _ = poll(&mut fds, Some(&timeout));
}
