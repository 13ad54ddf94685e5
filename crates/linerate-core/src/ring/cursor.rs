//! The positions of a ring: the one cursor under every kind of ring.
//!
//! A ring has two positions that only grow, `head` (elements taken) and `tail` (elements put);
//! position `p` lies in slot `p mod capacity`, a power of two. [`Ends`] holds what both sides
//! share, each position on a cache line pair of its own. [`Cursor`] is one end's private view: it
//! remembers how far the peer was when last read and rereads it only when that is not enough.
//! 64 bits do not wrap: at 10^10 elements a second they last 58 years.

use super::stats::Ledgers;
use crate::arch::CachePadded;
use crate::sync::{self, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const _: () = assert!(
    usize::BITS == 64,
    "ring positions need 64 bits so as never to wrap"
);

/// The largest capacity of a ring, in elements.
pub const MAX_CAPACITY: usize = 1 << 30;

/// What both ends of a ring share, storage apart.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Elements taken since the start; moved by the taking side only.
    pub(crate) head: CachePadded<AtomicUsize>,
    /// Elements put (MPMC: claimed by putters) since the start; moved by the putting side only.
    pub(crate) tail: CachePadded<AtomicUsize>,
    /// Slots less 1: they are a power of two.
    mask: usize,
    /// Live handles of the putting side. Changed at clone and drop, never per element.
    pub(crate) putters: AtomicUsize,
    /// Live handles of the taking side.
    pub(crate) takers: AtomicUsize,
    ledgers: Mutex<Ledgers>,
}

impl Ends {
    /// A ring of at least `capacity` elements, rounded up to a power of two, one handle a side.
    ///
    /// # Panics
    /// If `capacity` is 0 or above [`MAX_CAPACITY`].
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(
            (1..=MAX_CAPACITY).contains(&capacity),
            "ring capacity {capacity} is not in 1..={MAX_CAPACITY}: ask for as many elements as \
             are in flight at most"
        );
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            mask: capacity.next_power_of_two() - 1,
            putters: AtomicUsize::new(1),
            takers: AtomicUsize::new(1),
            ledgers: Mutex::default(),
        }
    }

    /// Slots of the ring, a power of two.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Elements between head and tail. Exact on a quiet ring, a good guess on a busy one.
    pub(crate) fn occupancy(&self) -> usize {
        // Head first: it cannot have passed a tail that is read later.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        tail.wrapping_sub(head).min(self.capacity())
    }

    /// The counters of every handle.
    pub(crate) fn ledgers(&self) -> MutexGuard<'_, Ledgers> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a run of `len` slots lies: `first` slots from `start` on, the rest from slot 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) first: usize,
    pub(crate) len: usize,
}

impl Span {
    /// The `len` positions from `at` on, in a ring of `capacity` slots.
    #[inline(always)]
    pub(crate) fn new(at: usize, len: usize, capacity: usize) -> Self {
        let start = at & (capacity - 1);
        let first = len.min(capacity - start);
        Self { start, first, len }
    }

    /// One position; it is never cut.
    #[inline(always)]
    pub(crate) fn one(at: usize, mask: usize) -> Self {
        Self {
            start: at & mask,
            first: 1,
            len: 1,
        }
    }

    /// The same where the positions are one at least and lie in one piece: code of its own for the
    /// usual case, without what the rest from slot 0 on needs.
    #[inline(always)]
    pub(crate) fn uncut(at: usize, len: usize, mask: usize) -> Option<Self> {
        // As many slots follow `at` as its complement says. So written, one slot is never cut.
        (len.wrapping_sub(1) <= !at & mask).then_some(Self {
            start: at & mask,
            first: len,
            len,
        })
    }
}

/// One end's view: the position up to which it may go without asking the peer again.
#[derive(Debug)]
pub(crate) struct Cursor {
    limit: usize,
    /// What to add to the peer's position to get the limit: the capacity for a putter, 0 for a
    /// taker.
    lead: usize,
}

impl Cursor {
    /// A putter's view: it may be a whole ring ahead of the taker.
    pub(crate) fn putter(ends: &Ends) -> Self {
        let head = ends.head.load(Ordering::Acquire);
        Self {
            limit: head.wrapping_add(ends.capacity()),
            lead: ends.capacity(),
        }
    }

    /// A taker's view: it may go as far as the putter has published.
    pub(crate) fn taker(ends: &Ends) -> Self {
        Self {
            limit: ends.tail.load(Ordering::Acquire),
            lead: 0,
        }
    }

    /// How many of `want` positions from `at` on may be used. Reads `peer` only when its last known
    /// position is not enough; that read acquires the peer's work up to there.
    #[inline(always)]
    pub(crate) fn reach(&mut self, at: usize, want: usize, peer: &AtomicUsize) -> usize {
        if self.knows(at, want) {
            return want;
        }
        self.limit = peer
            .load(sync::at("cursor.peer", Ordering::Acquire))
            .wrapping_add(self.lead);
        self.known(at).min(want)
    }

    /// Whether the position `at` may be used; reads `peer` as [`Self::reach`] does.
    #[inline(always)]
    pub(crate) fn reaches(&mut self, at: usize, peer: &AtomicUsize) -> bool {
        if self.knows(at, 1) {
            return true;
        }
        self.limit = peer
            .load(sync::at("cursor.peer", Ordering::Acquire))
            .wrapping_add(self.lead);
        self.knows(at, 1)
    }

    /// Whether `want` positions from `at` on may be used, by the last known position of the peer.
    #[inline(always)]
    pub(crate) fn knows(&self, at: usize, want: usize) -> bool {
        // Positions do not wrap, and `want` is the length of something in memory.
        at.wrapping_add(want) <= self.limit
    }

    /// Positions from `at` to the limit. Where several hold this side's position, `at` may be past
    /// the limit known here: then 0.
    #[inline(always)]
    fn known(&self, at: usize) -> usize {
        self.limit
            .wrapping_sub(at)
            .cast_signed()
            .max(0)
            .cast_unsigned()
    }
}
