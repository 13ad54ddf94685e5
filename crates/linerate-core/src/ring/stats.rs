//! A ring's counters, readable from any thread while the ends are at work.
//!
//! Elements in and out are the ring's own positions, so the hot path counts nothing. Refused
//! elements are counted in a [`Ledger`] per handle, which that handle alone writes.

use super::cursor::Ends;
use crate::arch::CachePadded;
use crate::sync;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One handle's own counters. Plain `std` atomics under loom too: no protocol rests on them.
#[derive(Debug, Default)]
pub(crate) struct Ledger(CachePadded<Counters>);

#[derive(Debug, Default)]
struct Counters {
    refused: AtomicU64,
    short: AtomicU64,
}

/// The ledgers of a ring's living handles, and the sums of dropped ones.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    open: Vec<Arc<Ledger>>,
    gone: (u64, u64),
}

impl Ledgers {
    /// A new handle's ledger.
    pub(crate) fn open(&mut self) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        self.open.push(ledger.clone());
        ledger
    }

    /// The handle that owns `ledger` is dropped.
    pub(crate) fn close(&mut self, ledger: &Arc<Ledger>) {
        self.open.retain(|other| !Arc::ptr_eq(other, ledger));
        self.gone = plus(self.gone, ledger.read());
    }

    /// Refused elements and short calls, all handles together.
    fn sum(&self) -> (u64, u64) {
        self.open
            .iter()
            .map(|ledger| ledger.read())
            .fold(self.gone, plus)
    }
}

fn plus(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1))
}

impl Ledger {
    /// Counts `elements` that a put did not take.
    #[inline]
    pub(crate) fn refuse(&self, elements: usize) {
        add(&self.0.refused, elements as u64);
    }

    /// Counts a call that took less than asked for.
    #[inline]
    pub(crate) fn fall_short(&self) {
        add(&self.0.short, 1);
    }

    fn read(&self) -> (u64, u64) {
        (
            self.0.refused.load(Ordering::Relaxed),
            self.0.short.load(Ordering::Relaxed),
        )
    }
}

/// One writer, so no locked instruction.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(amount);
    counter.store(sum, Ordering::Relaxed);
}

/// A snapshot of a ring's counters, in elements unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Slots, a power of two.
    pub capacity: usize,
    /// Elements inside at the moment.
    pub occupancy: usize,
    /// Put since the ring was made (MPMC: including those whose put is under way).
    pub enqueued: u64,
    /// Taken since the ring was made.
    pub dequeued: u64,
    /// Offered, but there was no room. They stayed with the caller.
    pub refused: u64,
    /// Calls that took fewer than asked for, empty rings included.
    pub short: u64,
}

/// Reads a ring's counters from any thread; keeps the counters alive, not the elements.
#[derive(Clone, Debug)]
pub struct RingMeter(pub(crate) sync::Arc<Ends>);

impl RingMeter {
    /// The counters now. The fields are read one by one, so a busy ring's need not add up.
    pub fn read(&self) -> RingStats {
        let ends = &*self.0;
        let (refused, short) = ends.ledgers().sum();
        RingStats {
            capacity: ends.capacity(),
            occupancy: ends.occupancy(),
            dequeued: ends.head.load(Ordering::Acquire) as u64,
            enqueued: ends.tail.load(Ordering::Acquire) as u64,
            refused,
            short,
        }
    }
}
