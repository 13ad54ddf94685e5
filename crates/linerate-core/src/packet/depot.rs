//! What lies between the caches of different lcores: whole magazines, and a list of strays.
//!
//! Both are lock-free, and no operation waits for another thread: a thread stopped in the middle
//! keeps at most one magazine to itself. Magazines change hands by the classic tagged stack
//! (Treiber 1986, with a counter against reuse); strays by a list that only ever loses all its
//! members at once, so that it needs no counter for safety, only for the books.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, at, with_cell};

/// Handles in a magazine: what one exchange between a cache and the depot moves.
pub(crate) const MAGAZINE: usize = 64;
const NIL: u32 = u32::MAX;

/// Full and empty magazines of one pool.
pub(super) struct Depot {
    magazines: Box<[UnsafeCell<[u32; MAGAZINE]>]>,
    next: Box<[AtomicU32]>,
    full: Stack,
    empty: Stack,
}

// SAFETY: a magazine is touched only between its pop from one stack and its push to the other,
// and a pop hands it to one thread.
unsafe impl Sync for Depot {}
// SAFETY: it holds numbers.
unsafe impl Send for Depot {}

impl Depot {
    /// Room for `handles` handles, all magazines empty. A thread between its two steps holds one
    /// magazine and the handles in it, so no more magazines than full ones are ever needed.
    /// A pool of few magazines gets none: a cache that takes 64 slots to use one would starve
    /// the others.
    pub(super) fn new(handles: usize) -> Self {
        Self::of_magazines(if handles < 16 * MAGAZINE {
            0
        } else {
            (handles / MAGAZINE) as u32
        })
    }

    /// A depot of `count` magazines, all empty.
    pub(super) fn of_magazines(count: u32) -> Self {
        let depot = Self {
            magazines: (0..count).map(|_| UnsafeCell::new([0; MAGAZINE])).collect(),
            next: (0..count).map(|_| AtomicU32::new(NIL)).collect(),
            full: Stack::new(),
            empty: Stack::new(),
        };
        (0..count).for_each(|index| depot.empty.push(&depot.next, index));
        depot
    }

    /// Handles in full magazines. Exact only while nobody else uses the depot.
    pub(super) fn count_handles(&self) -> usize {
        let mut count = 0;
        let mut index = self.full.head.load(Ordering::Acquire) as u32;
        // A walk over a stack that changes meanwhile may lose its way, so it is bounded.
        while index != NIL && count < self.next.len() * MAGAZINE {
            count += MAGAZINE;
            index = self.next[index as usize].load(Ordering::Relaxed);
        }
        count
    }

    /// Takes a full magazine's handles into `to`; false where there is none.
    pub(super) fn take(&self, to: &mut [u32; MAGAZINE]) -> bool {
        let Some(index) = self.full.pop(&self.next) else {
            return false;
        };
        with_cell(&self.magazines[index as usize], |at| {
            // SAFETY: popped, so this thread alone has the magazine; the pop's Acquire saw the
            // writes of whoever filled it.
            *to = unsafe { *at };
        });
        self.empty.push(&self.next, index);
        true
    }

    /// Puts a magazine's worth of handles in; false where all magazines are full or in other hands.
    pub(super) fn put(&self, from: &[u32; MAGAZINE]) -> bool {
        let Some(index) = self.empty.pop(&self.next) else {
            return false;
        };
        with_cell(&self.magazines[index as usize], |at| {
            // SAFETY: as above.
            unsafe { *at = *from };
        });
        self.full.push(&self.next, index);
        true
    }
}

/// A lock-free stack of indices: `tag << 32 | index`, the tag counting every change.
pub(super) struct Stack {
    head: AtomicU64,
}

impl Stack {
    pub(super) fn new() -> Self {
        Self {
            head: AtomicU64::new(u64::from(NIL)),
        }
    }

    pub(super) fn push(&self, next: &[AtomicU32], index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next[index as usize].store(head as u32, Ordering::Relaxed);
            let new = tagged(head, index);
            match self.head.compare_exchange_weak(
                head,
                new,
                at("depot.push", Ordering::Release),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    pub(super) fn pop(&self, next: &[AtomicU32]) -> Option<u32> {
        let seen = at("depot.pop", Ordering::Acquire);
        let mut head = self.head.load(seen);
        loop {
            let index = head as u32;
            if index == NIL {
                return None;
            }
            // May be stale when another thread pops the same index first; then the tag has
            // moved on and the exchange fails.
            let below = next[index as usize].load(Ordering::Relaxed);
            let new = tagged(head, below);
            match self.head.compare_exchange_weak(head, new, seen, seen) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }
}

fn tagged(old: u64, index: u32) -> u64 {
    // Not an ordering, but a model must be able to show what the tag is for.
    let step = u64::from(at("depot.tag", Ordering::SeqCst) == Ordering::SeqCst);
    ((old >> 32).wrapping_add(step) << 32) | u64::from(index)
}

/// Slots that came home one by one, from any thread: a list linked through the slots themselves.
///
/// One word holds it all: `orphan << 63 | pushes << 32 | first`, `pushes` counting modulo 2^31
/// every slot ever pushed. A push's exchange is its last access to the pool, so the pool may be
/// freed by whichever push brings the last slot home.
pub(super) struct ReturnList {
    word: AtomicU64,
    /// In an orphan: the pushes at which every slot is home.
    all_home_at: AtomicU32,
}

const ORPHAN: u64 = 1 << 63;
const PUSHES_MASK: u64 = (1 << 31) - 1;

impl ReturnList {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            all_home_at: AtomicU32::new(0),
        }
    }

    /// Pushes a chain of `count` slots that begins with `first`. `link` makes the chain's last
    /// slot point to its argument. True when the pool is an orphan and this was its last slot.
    pub(super) fn push(&self, first: u32, count: u32, link: impl Fn(u32)) -> bool {
        // Acquire: whoever sees the orphan's mark must see when all are home.
        let seen = at("returns.seen", Ordering::Acquire);
        let mut word = self.word.load(seen);
        loop {
            link(word as u32);
            let pushes = pushes_after((word >> 32) as u32, count);
            let last = word & ORPHAN != 0 && pushes == self.all_home_at.load(Ordering::Relaxed);
            let new = (word & ORPHAN) | (u64::from(pushes) << 32) | u64::from(first);
            // Acquire too: in an orphan the last pusher frees what all others wrote.
            let both = at("returns.push", Ordering::AcqRel);
            match self.word.compare_exchange_weak(word, new, both, seen) {
                Ok(_) => return last,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the whole list; 0 is the empty one.
    pub(super) fn take_all(&self) -> u32 {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word as u32 == 0 {
                return 0;
            }
            let new = word & !u64::from(u32::MAX);
            match self.word.compare_exchange_weak(
                word,
                new,
                at("returns.take", Ordering::Acquire),
                Ordering::Relaxed,
            ) {
                Ok(_) => return word as u32,
                Err(now) => word = now,
            }
        }
    }

    /// Slots ever pushed, modulo 2^31.
    pub(super) fn pushes(&self) -> u32 {
        ((self.word.load(Ordering::Acquire) >> 32) & PUSHES_MASK) as u32
    }

    /// Marks the list as an orphan's: of its pool, `away(pushes)` slots are not home at that count
    /// of pushes. Returns whether all are.
    pub(super) fn orphan(&self, away: impl Fn(u32) -> u32) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let pushes = ((word >> 32) & PUSHES_MASK) as u32;
            let missing = away(pushes);
            self.all_home_at
                .store(pushes_after(pushes, missing), Ordering::Relaxed);
            match self.word.compare_exchange_weak(
                word,
                word | ORPHAN,
                at("returns.orphan", Ordering::AcqRel),
                Ordering::Acquire,
            ) {
                Ok(_) => return missing == 0,
                Err(now) => word = now,
            }
        }
    }
}

/// `from + count` of pushes.
pub(super) fn pushes_after(from: u32, count: u32) -> u32 {
    from.wrapping_add(count) & PUSHES_MASK as u32
}

/// `a - b` of two counts of pushes.
pub(super) fn pushes_between(b: u32, a: u32) -> u32 {
    a.wrapping_sub(b) & PUSHES_MASK as u32
}
