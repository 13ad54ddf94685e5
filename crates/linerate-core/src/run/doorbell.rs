//! Wakes an lcore that sleeps although its work arrives in memory rings.

use crate::sync::{AtomicU32, Ordering, fence};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A flag that says whether somebody sleeps, and an eventfd that wakes him.
#[derive(Debug)]
pub struct Doorbell {
    asleep: AtomicU32,
    fd: OwnedFd,
}

impl Doorbell {
    /// A doorbell that nobody sleeps on.
    ///
    /// # Errors
    /// If the process has no descriptor left for an eventfd.
    pub fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            asleep: AtomicU32::new(0),
            fd,
        })
    }

    /// Wakes the sleeper, if there is one. Call it after the work was made visible.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(0, Ordering::AcqRel) != 0 {
            // Full (2^64 - 1 rings unread) means that it is readable anyway.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Says that the caller is about to sleep. Look for work once more after this.
    pub fn prepare_sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the caller is awake.
    pub fn cancel(&self) {
        if self.asleep.swap(0, Ordering::AcqRel) == 0 {
            let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        }
    }

    /// Readable once the bell has rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
