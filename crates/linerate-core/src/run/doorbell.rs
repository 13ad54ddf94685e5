//! Wakes an lcore that sleeps although its work arrives in memory rings.
//!
//! A ring has no descriptor to sleep on, so the lcore that polls it owns a doorbell. Before it
//! sleeps it sets a flag, checks its rings once more, and then waits on the doorbell's descriptor;
//! a thread that puts something into one of those rings rings the bell afterwards, which costs a
//! fence and a load while the owner is awake.
//!
//! **No wake-up is lost.** Sleeper: *asleep = 1; fence; look at the rings*. Ringer: *put; fence;
//! look at asleep*. The two sequentially consistent fences have an order: if the ringer's is
//! second, it sees the flag; if the sleeper's is second, it sees what was put. Naps are bounded
//! all the same, so that one who forgets to ring costs a delay and not a hang.
//!
//! ```
//! use linerate_core::run::doorbell::Doorbell;
//! use std::time::Duration;
//!
//! let bell = Doorbell::new()?;
//! bell.prepare_sleep();
//! // Look at the rings here: if there is work, `cancel` and go on.
//! bell.ring(); // another thread, after a put
//! assert!(bell.nap(Duration::from_millis(10))?, "woken, not timed out");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::arch::CachePadded;
use crate::sync::{AtomicU32, Ordering, full_fence};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, retry_on_intr, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The flag that sleeper and ringers share: the protocol without the descriptor.
#[derive(Debug)]
struct Asleep(CachePadded<AtomicU32>);

impl Asleep {
    fn new() -> Self {
        Self(CachePadded::new(AtomicU32::new(0)))
    }

    /// Sleeper: from here on ringers ring. The rings must be looked at after this.
    fn announce(&self) {
        self.0.store(1, Ordering::Relaxed);
        full_fence("doorbell.sleeper");
    }

    /// Sleeper: up again. Returns whether a ringer has seen it asleep, and has rung or will.
    fn retract(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == 0
    }

    /// Ringer: whether the sleeper must be woken, which falls to one ringer only.
    #[inline(always)]
    fn claim_wake(&self) -> bool {
        full_fence("doorbell.ringer");
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }
}

/// One sleeper's doorbell; shared with all threads that put into its rings.
#[derive(Debug)]
pub struct Doorbell {
    asleep: Asleep,
    /// When it last rang for a sleeper, in ns of the monotonic clock.
    rung_ns: std::sync::atomic::AtomicU64,
    event: OwnedFd,
}

impl Doorbell {
    /// A doorbell whose owner is awake.
    ///
    /// # Errors
    /// If the process or the system is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            asleep: Asleep::new(),
            rung_ns: std::sync::atomic::AtomicU64::new(0),
            event,
        })
    }

    /// Wakes the sleeper, if it sleeps. Call it after putting something into one of its rings,
    /// once per burst. Without a sleeper this is a fence and a load, and no system call.
    #[inline]
    pub fn ring(&self) {
        if self.asleep.claim_wake() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.rung_ns
            .store(monotonic_ns(), std::sync::atomic::Ordering::Relaxed);
        // It fails only when 2^64 - 2 wake-ups are pending, and then the sleeper wakes anyway.
        let _ = retry_on_intr(|| write(&self.event, &1u64.to_ne_bytes()));
    }

    /// Announces that the owner is about to sleep. It must then check its rings once more and
    /// either [`cancel`](Self::cancel), or sleep until [`fd`](Self::fd) is readable, and then
    /// `cancel`.
    pub fn prepare_sleep(&self) {
        self.asleep.announce();
    }

    /// The owner is awake again, or did not sleep after all. Returns whether the bell rang. A bell
    /// that is still being rung makes `fd` readable a moment later, and one nap end early.
    pub fn cancel(&self) -> bool {
        let rung = self.asleep.retract();
        // Also if the bell did not ring this time: the ringer of an earlier sleep may have written
        // late.
        let _ = retry_on_intr(|| read(&self.event, &mut [0; 8]));
        rung
    }

    /// How long ago the bell last woke a sleeper, in ns: called right after a sleep, the cost of
    /// waking up.
    pub fn since_rung_ns(&self) -> u64 {
        let rung = self.rung_ns.load(std::sync::atomic::Ordering::Relaxed);
        monotonic_ns().saturating_sub(rung)
    }

    /// The descriptor that is readable once the bell has rung; to be polled along with others.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Sleeps until the bell rings, at most `longest`, and cancels. Returns whether it rang. Call
    /// it after `prepare_sleep` and a last look at the rings.
    ///
    /// # Errors
    /// If `poll(2)` fails for another reason than a signal, which ends the nap early.
    pub fn nap(&self, longest: Duration) -> io::Result<bool> {
        let timeout = longest.try_into().ok();
        let polled = poll(
            &mut [PollFd::new(&self.event, PollFlags::IN)],
            timeout.as_ref(),
        );
        let rung = self.cancel();
        match polled {
            Ok(_) | Err(Errno::INTR) => Ok(rung),
            Err(error) => Err(error.into()),
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    //! The sleeper sees what was put, or is woken; a bell rung is a bell noticed.

    use super::Asleep;
    use crate::sync::hooks::weaken;
    use crate::sync::{Arc, AtomicUsize, Ordering};
    use std::sync::atomic::{AtomicUsize as Count, Ordering::Relaxed};

    /// One sleeper and one ringer, whose bell is the value it returns.
    fn model() {
        let saw_and_slept = std::sync::Arc::new((Count::new(0), Count::new(0)));
        let outcomes = saw_and_slept.clone();
        loom::model(move || {
            let asleep = Arc::new(Asleep::new());
            let work = Arc::new(AtomicUsize::new(0));
            let ringer = loom::thread::spawn({
                let (asleep, work) = (asleep.clone(), work.clone());
                move || {
                    work.store(1, Ordering::Relaxed);
                    asleep.claim_wake()
                }
            });
            let sleeper = loom::thread::spawn({
                let asleep = asleep.clone();
                move || {
                    asleep.announce();
                    let saw = work.load(Ordering::Relaxed) == 1;
                    (saw, saw && asleep.retract())
                }
            });
            let rung = ringer.join().unwrap();
            let (saw, noticed) = sleeper.join().unwrap();
            assert!(saw || rung, "wake-up lost");
            assert!(!saw || noticed == rung, "a bell rung must be noticed");
            let outcome = if saw { &outcomes.0 } else { &outcomes.1 };
            outcome.fetch_add(1, Relaxed);
        });
        let (saw, slept) = &*saw_and_slept;
        assert!(
            saw.load(Relaxed) > 0 && slept.load(Relaxed) > 0,
            "not all outcomes explored"
        );
    }

    #[test]
    fn loom_doorbell_loses_no_wake_up() {
        model();
    }

    #[test]
    #[should_panic(expected = "wake-up lost")]
    fn loom_doorbell_without_the_sleepers_fence() {
        weaken("doorbell.sleeper", model);
    }

    #[test]
    #[should_panic(expected = "wake-up lost")]
    fn loom_doorbell_without_the_ringers_fence() {
        weaken("doorbell.ringer", model);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::Doorbell;
    use crate::ring::{Pop, Push, spsc};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_ring_without_a_sleeper_does_not_end_the_next_nap() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        bell.prepare_sleep();
        assert!(!bell.nap(Duration::from_millis(1)).unwrap());
    }

    #[test]
    fn cancel_swallows_a_bell_already_rung() {
        let bell = Doorbell::new().unwrap();
        bell.prepare_sleep();
        bell.ring();
        bell.ring();
        assert!(bell.cancel());
        bell.prepare_sleep();
        assert!(!bell.nap(Duration::from_millis(1)).unwrap());
    }

    /// Every element arrives although the taker sleeps whenever it finds nothing, and no nap
    /// lasts its full 20 s, which a lost wake-up would make it do.
    #[test]
    fn a_sleeper_on_a_ring_is_woken_for_each_put() {
        const COUNT: u32 = 3000;
        let (mut tx, mut rx) = spsc::ring(8);
        let bell = Arc::new(Doorbell::new().unwrap());
        let ringer = std::thread::spawn({
            let bell = bell.clone();
            move || {
                for number in 0..COUNT {
                    while tx.push(number).is_err() {
                        std::thread::yield_now();
                    }
                    bell.ring();
                    if number % 7 == 0 {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let start = Instant::now();
        let mut expected = 0;
        while expected < COUNT {
            if let Some(number) = rx.pop() {
                assert_eq!(number, expected);
                expected += 1;
                continue;
            }
            bell.prepare_sleep();
            if let Some(number) = rx.pop() {
                bell.cancel();
                assert_eq!(number, expected);
                expected += 1;
            } else {
                bell.nap(LONG).unwrap();
            }
        }
        ringer.join().unwrap();
        assert!(start.elapsed() < LONG, "a wake-up was lost");
    }
}
