//! The state of a queue that its worker uses and a control thread replaces.
//!
//! The worker takes it once a burst and never waits: while control changes it, a burst has no
//! packets. Control waits for the end of a burst at most. So once control has been inside, a worker
//! has nothing any more of what was there before, and it can be unmapped; this holds for a worker
//! that sleeps, too.
//!
//! Only what changes a queue takes the gate, and the queue's own worker. Whoever looks goes by what
//! stands beside it: a look that is preempted inside would hold the worker up for as long, and what
//! it sends meanwhile would be dropped as if the ring were full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value that a worker and a control thread take in turns, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gate<T> {
    /// Control threads that wait. A worker leaves the gate to them: locks are not fair, and one
    /// that polls would have it nearly always.
    waiting: AtomicUsize,
    inside: Mutex<T>,
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            inside: Mutex::new(value),
        }
    }

    /// For the worker, once a burst; `None` while somebody else has it or waits for it.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, T>> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return None;
        }
        match self.inside.try_lock() {
            Ok(guard) => Some(guard),
            // A worker that panicked left values that are each valid.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For control: waits for the end of the worker's burst.
    pub(crate) fn change(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Gate;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_worker_never_waits() {
        let gate = Gate::new(1);
        let change = gate.change();
        assert!(gate.enter().is_none(), "control is inside");
        drop(change);
        assert_eq!(*gate.enter().unwrap(), 1);
    }

    #[test]
    fn control_gets_in_between_two_bursts_of_a_busy_worker() {
        let gate = Arc::new(Gate::new(0_u32));
        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let (gate, stop) = (gate.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(value) = gate.enter() {
                        std::hint::black_box(*value);
                    }
                }
            })
        };
        for _ in 0..1000 {
            *gate.change() += 1;
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert_eq!(*gate.enter().unwrap(), 1000);
    }

    #[test]
    fn what_a_panicking_worker_had_is_taken_over() {
        let gate = Arc::new(Gate::new(7));
        let inside = gate.clone();
        let panicked = std::thread::spawn(move || {
            let _guard = inside.enter();
            std::panic::resume_unwind(Box::new("the worker ends"));
        });
        assert!(panicked.join().is_err());
        assert_eq!(*gate.change(), 7);
        assert_eq!(*gate.enter().unwrap(), 7);
    }
}
