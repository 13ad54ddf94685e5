//! A ring from many putters to many takers, in which no thread waits for another.
//!
//! **How.** Values lie in an array of 32-bit words; a byte per slot beside them, the *stamp*, says
//! in which lap of the ring the slot was last filled. A sender claims a run of positions by one
//! compare-and-swap on `tail`, stores the values, then the stamps: the stamps are the
//! publication, so it need not wait for earlier claims to be published. A receiver counts how many
//! slots from `head` on carry the stamp of this lap, copies those values out, and only then claims
//! them by one compare-and-swap on `head`; there is nothing left to publish. One locked
//! instruction a burst on either side, and no receiver reads `tail` nor writes a slot.
//!
//! **Stopped threads.** A sender stopped after its claim leaves a gap: receivers take what lies
//! before it and then come short; senders go on until the ring is full. A receiver holds nothing
//! until its compare-and-swap has succeeded, and owes nothing after it. A compare-and-swap fails
//! only because another thread's has succeeded.
//!
//! **Why a copy that precedes the claim is right.** Positions have 64 bits and only grow, so a
//! successful swap of `head` from `h` proves that it was `h` all the while since it was read.
//! 1. *Not newer:* slot `p >= h` is filled again in the next lap only by a sender that has seen
//!    `head > p`. That sender acquired a receiver's swap from `h` or later; if ours succeeds, it is
//!    the one that took `p`, and our copy came before it (release).
//! 2. *Not older:* reading `head = h` acquires the swaps before it, whose receivers had acquired
//!    every stamp of the lap before. So a stamp read is of this lap or of the last: one bit would
//!    do, and a byte, which comes round after 256 laps, does. Reading the stamp of this lap
//!    acquires the value stored before it.
//! 3. *Not twice:* each position is covered by exactly one successful swap on either side.
//!
//! The values are atomics (see [`crate::arch`] for their block copies), so a copy that loses its
//! race is not a data race; it is thrown away.
#![allow(unsafe_code)]

use super::cursor::{Cursor, Ends};
use super::stats::Ledger;
use super::{Pop, Push, RingMeter};
use crate::arch::{self, AlignedSlice};
use crate::sync::{self, Arc, AtomicU8, AtomicU32, Ordering, window};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};

/// What an MPMC ring carries: an owned value of 32 bits, such as a packet handle.
///
/// # Safety
/// The type has the size and alignment of `u32` and no uninitialised bytes.
pub unsafe trait Word: Send + Sized {}

// SAFETY: it is one.
unsafe impl Word for u32 {}
// SAFETY: laid out as `u32`.
unsafe impl Word for std::num::NonZeroU32 {}

/// The word of an element, which is the ring's from then on.
#[inline(always)]
fn into_word<T: Word>(element: T) -> u32 {
    // SAFETY: a `Word` has a `u32`'s size and no uninitialised bytes.
    unsafe { std::mem::transmute_copy(&ManuallyDrop::new(element)) }
}

/// The element of a word.
///
/// # Safety
/// [`into_word`] made the word, and this is the only time that it is taken for an element.
#[inline(always)]
unsafe fn from_word<T: Word>(word: u32) -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute_copy(&word) }
}

/// Makes a ring of at least `capacity` elements (rounded up to a power of two). Clone either end
/// for each thread that uses it.
///
/// # Panics
/// If `capacity` is 0 or above [`super::MAX_CAPACITY`].
pub fn ring<T: Word>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let ends = Arc::new(Ends::new(capacity));
    let shared = Arc::new(Shared::new(ends.clone()));
    let sender = Sender {
        cursor: Cursor::putter(&ends),
        ledger: ends.ledgers().open(),
        ends: ends.clone(),
        shared: shared.clone(),
        _not_sync: PhantomData,
    };
    let ledger = ends.ledgers().open();
    let receiver = Receiver {
        ends,
        shared,
        ledger,
        _not_sync: PhantomData,
    };
    (sender, receiver)
}

/// Runs below this many slots have their stamps read in the pieces in which a sender's run of that
/// length stores them. A wide load over stamps that this core stored a moment ago in narrower
/// pieces waits until they have left its store buffer.
const SHORT: usize = 16;

/// A run of positions whose slots follow each other.
#[derive(Clone, Copy)]
struct Piece {
    at: usize,
    slot: usize,
    len: usize,
}

/// The storage; dropping it drops what is still inside.
struct Shared<T: Word> {
    values: AlignedSlice<AtomicU32>,
    /// One per slot, and some more that are read along but never judged.
    stamps: AlignedSlice<AtomicU8>,
    mask: usize,
    laps: u32,
    ends: Arc<Ends>,
    /// It owns the elements between head and tail.
    _elements: PhantomData<T>,
}

impl<T: Word> Shared<T> {
    fn new(ends: Arc<Ends>) -> Self {
        const {
            assert!(
                size_of::<T>() == 4 && align_of::<T>() == 4,
                "a Word is laid out as u32"
            )
        };
        let slots = ends.capacity();
        Self {
            values: AlignedSlice::new(slots, || AtomicU32::new(0)),
            stamps: AlignedSlice::new(slots + arch::STAMPS_READ_ALONG, || AtomicU8::new(0)),
            mask: slots - 1,
            laps: slots.trailing_zeros(),
            ends,
            _elements: PhantomData,
        }
    }

    /// Cuts the positions `at .. at + len`, at most a lap, where the storage ends. The second piece
    /// may be empty.
    #[inline(always)]
    fn cut(&self, at: usize, len: usize) -> [Piece; 2] {
        let slot = at & self.mask;
        let first = len.min(self.mask + 1 - slot);
        [
            Piece {
                at,
                slot,
                len: first,
            },
            Piece {
                at: at + first,
                slot: 0,
                len: len - first,
            },
        ]
    }

    /// The same of positions that [`Self::is_short`], where the compiler shall leave out what a
    /// second piece needs.
    #[inline(always)]
    fn uncut(&self, at: usize, len: usize) -> [Piece; 2] {
        let slot = at & self.mask;
        [
            Piece { at, slot, len },
            Piece {
                at: at + len,
                slot: 0,
                len: 0,
            },
        ]
    }

    /// Whether `at .. at + len` are few slots, one at least, in one piece.
    #[inline(always)]
    fn is_short(&self, at: usize, len: usize) -> bool {
        // As many slots follow `at` as its complement says. So written, one slot is short for
        // certain.
        len < SHORT && len.wrapping_sub(1) <= !at & self.mask
    }

    /// The stamp of a slot filled for position `at`: the lap, counted from 1, in 8 bits.
    #[inline(always)]
    fn stamp(&self, at: usize) -> u8 {
        ((at >> self.laps) + 1) as u8
    }

    /// How many slots of a piece carry the stamp of its lap before the first that does not.
    ///
    /// # Safety
    /// The piece lies inside the storage.
    #[inline(always)]
    unsafe fn published(&self, piece: Piece) -> usize {
        let stamps = self.stamps.as_ptr().wrapping_add(piece.slot);
        let stamp = self.stamp(piece.at);
        if piece.len >= SHORT {
            // SAFETY: the caller's promise, and there are spare stamps behind the last slot.
            return unsafe { arch::stamped(stamps, piece.len, stamp) };
        }
        // SAFETY: the caller's promise.
        unsafe { arch::stamped_short(stamps, piece.len, stamp) }
    }

    /// Stores values into claimed positions and publishes them.
    ///
    /// # Safety
    /// The caller has claimed the positions of the pieces; `from` is valid for reading as many
    /// words.
    #[inline(always)]
    unsafe fn fill(&self, [first, second]: [Piece; 2], from: *const u32) {
        // SAFETY: the piece lies inside the storage, and in the caller's words.
        unsafe {
            arch::store_words(
                self.values.as_ptr().wrapping_add(first.slot),
                from,
                first.len,
            )
        };
        window("sender: values half stored");
        if second.len > 0 {
            let from = from.wrapping_add(first.len);
            // SAFETY: as above.
            unsafe { arch::store_words(self.values.as_ptr(), from, second.len) };
        }
        window("sender: values stored");
        let stamps = self.stamps.as_ptr().wrapping_add(first.slot);
        // SAFETY: the piece lies inside the storage.
        unsafe { arch::stamp(stamps, first.len, self.stamp(first.at)) };
        window("sender: half published");
        if second.len > 0 {
            // SAFETY: as above.
            unsafe { arch::stamp(self.stamps.as_ptr(), second.len, self.stamp(second.at)) };
        }
    }

    /// Copies out the values of the pieces that are published without a gap from the first on; none
    /// if they are fewer than `least`. Returns how many.
    ///
    /// # Safety
    /// `to` is valid for writing as many words as the pieces have. They are the caller's only once
    /// it has claimed the positions.
    #[inline(always)]
    unsafe fn copy(&self, [first, second]: [Piece; 2], to: *mut u32, least: usize) -> usize {
        // SAFETY: the piece lies inside the storage.
        let mut count = unsafe { self.published(first) };
        if second.len > 0 && count == first.len {
            // SAFETY: as above.
            count += unsafe { self.published(second) };
        }
        window("receiver: stamps read");
        if count < least {
            return 0;
        }
        let values = self.values.as_ptr().wrapping_add(first.slot);
        // SAFETY: the piece lies inside the storage, and in the caller's room.
        unsafe { arch::load_words(values, to, count.min(first.len)) };
        if count > first.len {
            let to = to.wrapping_add(first.len);
            // SAFETY: as above.
            unsafe { arch::load_words(self.values.as_ptr(), to, count - first.len) };
        }
        count
    }

    /// [`Self::fill`] of one position.
    ///
    /// # Safety
    /// The caller has claimed it.
    #[inline(always)]
    unsafe fn fill_one(&self, at: usize, word: u32) {
        let slot = at & self.mask;
        // SAFETY: the mask keeps it inside the storage.
        let value = unsafe { self.values.get_unchecked(slot) };
        value.store(word, Ordering::Relaxed);
        window("sender: values stored");
        // SAFETY: likewise.
        let stamp = unsafe { self.stamps.get_unchecked(slot) };
        stamp.store(self.stamp(at), sync::at("mpmc.publish", Ordering::Release));
        window("sender: stamps stored");
    }

    /// [`Self::copy`] of one position.
    #[inline(always)]
    fn copy_one(&self, at: usize) -> Option<u32> {
        let slot = at & self.mask;
        // SAFETY: the mask keeps it inside the storage.
        let stamp = unsafe { self.stamps.get_unchecked(slot) };
        let published = stamp.load(Ordering::Acquire) == self.stamp(at);
        window("receiver: stamps read");
        if !published {
            return None;
        }
        // SAFETY: likewise.
        let value = unsafe { self.values.get_unchecked(slot) };
        Some(value.load(Ordering::Relaxed))
    }

    /// Takes between `least` and `most` elements, or none. Returns how many.
    ///
    /// # Safety
    /// `to` is valid for writing `most` words.
    #[inline(always)]
    unsafe fn take(&self, to: *mut u32, most: usize, least: usize) -> usize {
        let most = most.min(self.mask + 1);
        // Acquire: point 2 of the module's head.
        let mut head = self.ends.head.load(Ordering::Acquire);
        loop {
            window("receiver: head read");
            // SAFETY: the caller's room.
            let count = unsafe { self.copy(self.cut(head, most), to, least) };
            if count == 0 {
                // A head that other threads have moved meanwhile does not show the state of the
                // ring.
                let now = self.ends.head.load(Ordering::Acquire);
                if now == head {
                    return 0;
                }
                head = now;
                continue;
            }
            match self.try_claim(head, count) {
                Ok(_) => return count,
                Err(now) => head = now,
            }
        }
    }

    /// Claims the `count` elements from `head` on, which were just copied, unless another receiver
    /// has moved it.
    #[inline(always)]
    fn try_claim(&self, head: usize, count: usize) -> Result<usize, usize> {
        window("receiver: values copied");
        // The compare-and-swap waits for everything before it: let the next but one burst,
        // if there is one, come near meanwhile. Two lines of its three do most of it.
        let ahead = (head + 2 * count) & self.mask;
        arch::prefetch_read(self.values.as_ptr().wrapping_add(ahead));
        arch::prefetch_read(self.stamps.as_ptr().wrapping_add(ahead));
        self.swap_head(head, count)
    }

    /// The compare-and-swap of [`Self::try_claim`].
    #[inline(always)]
    fn swap_head(&self, head: usize, count: usize) -> Result<usize, usize> {
        // Release: point 1. Acquire on failure: as for the load of the head.
        let swap = self.ends.head.compare_exchange(
            head,
            head + count,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if swap.is_ok() {
            window("receiver: claimed");
        }
        swap
    }
}

impl<T: Word> Drop for Shared<T> {
    fn drop(&mut self) {
        // Every handle was dropped, so everything claimed is published.
        loop {
            let mut element = MaybeUninit::<T>::uninit();
            // SAFETY: room for one word.
            if unsafe { self.take(element.as_mut_ptr().cast(), 1, 1) } == 0 {
                break;
            }
            // SAFETY: a `Word` came out as it went in.
            drop(unsafe { element.assume_init() });
        }
    }
}

/// A putting end; `Send`, used through `&mut`, cloned for each thread that puts.
pub struct Sender<T: Word> {
    cursor: Cursor,
    ends: Arc<Ends>,
    shared: Arc<Shared<T>>,
    ledger: std::sync::Arc<Ledger>,
    _not_sync: PhantomData<Cell<()>>,
}

impl<T: Word> Sender<T> {
    /// Claims as many of `most` positions as fit; `None` if there is no room for `least`.
    #[inline(always)]
    fn claim(&mut self, most: usize, least: usize) -> Option<(usize, usize)> {
        let ends = &*self.ends;
        let mut tail = ends.tail.load(Ordering::Relaxed);
        loop {
            // A remembered head was acquired, and with it every claim below: `tail` is past it.
            let fit = self.cursor.reach(tail, most, &ends.head);
            window("sender: head read");
            if fit == 0 || fit < least {
                return None;
            }
            match self.try_claim(tail, fit) {
                Ok(_) => return Some((tail, fit)),
                Err(now) => tail = now,
            }
        }
    }

    /// Claims `count` positions from `tail` on, unless another sender has moved it.
    #[inline(always)]
    fn try_claim(&self, tail: usize, count: usize) -> Result<usize, usize> {
        // Relaxed: the claim alone publishes nothing.
        let (now, then) = (Ordering::Relaxed, Ordering::Relaxed);
        self.ends
            .tail
            .compare_exchange(tail, tail + count, now, then)
    }

    /// Puts in between `least` and `most` words, or none, however they lie. Returns how many. Out
    /// of line, so that a call of the few that need it saves registers, and the others none.
    ///
    /// # Safety
    /// `from` is valid for reading `most` words, each an element given away.
    #[inline(never)]
    unsafe fn put(&mut self, from: *const u32, most: usize, least: usize) -> usize {
        let claimed = self.claim(most, least);
        let count = claimed.map_or(0, |(_, count)| count);
        if count < most {
            self.ledger.refuse(most - count);
        }
        if let Some((tail, count)) = claimed {
            window("sender: claimed");
            let pieces = self.shared.cut(tail, count);
            // SAFETY: the caller's words; the positions were just claimed.
            unsafe { self.shared.fill(pieces, from) };
        }
        count
    }
}

impl<T: Word> Sender<T> {
    /// Puts in one element if there is room, however long that takes to find out.
    #[inline(never)]
    fn push_late(&mut self, element: T) -> Result<(), T> {
        let word = into_word(element);
        // SAFETY: one word, an element given away.
        if unsafe { self.put(&raw const word, 1, 1) } == 1 {
            return Ok(());
        }
        // SAFETY: made a few lines above; the ring did not take it.
        Err(unsafe { from_word(word) })
    }
}

impl<T: Word> Push<T> for Sender<T> {
    #[inline(always)]
    unsafe fn push_from_ptr(&mut self, from: *const T, most: usize, least: usize) -> usize {
        let tail = self.ends.tail.load(Ordering::Relaxed);
        if self.shared.is_short(tail, most) && self.cursor.knows(tail, most) {
            window("sender: head read");
            if self.try_claim(tail, most).is_ok() {
                window("sender: claimed");
                let pieces = self.shared.uncut(tail, most);
                // SAFETY: the caller's elements are words; the positions were just claimed.
                unsafe { self.shared.fill(pieces, from.cast()) };
                return most;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.put(from.cast(), most, least) }
    }

    #[inline(always)]
    fn push(&mut self, element: T) -> Result<(), T> {
        let tail = self.ends.tail.load(Ordering::Relaxed);
        if self.cursor.knows(tail, 1) {
            window("sender: head read");
            if self.try_claim(tail, 1).is_ok() {
                window("sender: claimed");
                // SAFETY: the position was just claimed.
                unsafe { self.shared.fill_one(tail, into_word(element)) };
                return Ok(());
            }
        }
        self.push_late(element)
    }

    fn is_closed(&self) -> bool {
        self.ends.takers.load(Ordering::Acquire) == 0
    }

    fn meter(&self) -> RingMeter {
        RingMeter(self.ends.clone())
    }
}

impl<T: Word> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.ends.putters.fetch_add(1, Ordering::Relaxed);
        Self {
            cursor: Cursor::putter(&self.ends),
            ends: self.ends.clone(),
            shared: self.shared.clone(),
            ledger: self.ends.ledgers().open(),
            _not_sync: PhantomData,
        }
    }
}

impl<T: Word> Drop for Sender<T> {
    fn drop(&mut self) {
        self.ends.ledgers().close(&self.ledger);
        // Release: a thread that sees the ring closed sees the last put too.
        self.ends
            .putters
            .fetch_sub(1, sync::at("mpmc.close", Ordering::Release));
    }
}

/// A taking end; `Send`, used through `&mut`, cloned for each thread that takes.
pub struct Receiver<T: Word> {
    ends: Arc<Ends>,
    shared: Arc<Shared<T>>,
    ledger: std::sync::Arc<Ledger>,
    _not_sync: PhantomData<Cell<()>>,
}

impl<T: Word> Receiver<T> {
    /// Takes between `least` and `most` words, or none, however they lie; out of line as
    /// [`Sender::put`] is. Returns how many.
    ///
    /// # Safety
    /// `to` is valid for writing `most` words.
    #[inline(never)]
    unsafe fn take(&mut self, to: *mut u32, most: usize, least: usize) -> usize {
        // SAFETY: the caller's promise.
        let count = unsafe { self.shared.take(to, most, least) };
        if count < most {
            self.ledger.fall_short();
        }
        count
    }
}

impl<T: Word> Receiver<T> {
    /// Takes one element if there is any, however long that takes to find out.
    #[inline(never)]
    fn pop_late(&mut self) -> Option<T> {
        let mut word = 0;
        // SAFETY: room for one word.
        let count = unsafe { self.take(&raw mut word, 1, 1) };
        // SAFETY: a `Word` came out as it went in.
        (count == 1).then(|| unsafe { from_word(word) })
    }
}

impl<T: Word> Pop<T> for Receiver<T> {
    #[inline(always)]
    unsafe fn pop_to_ptr(&mut self, to: *mut T, most: usize, least: usize) -> usize {
        // Acquire: point 2 of the module's head.
        let head = self.ends.head.load(Ordering::Acquire);
        if self.shared.is_short(head, most) {
            window("receiver: head read");
            let pieces = self.shared.uncut(head, most);
            // SAFETY: the caller's room for `most` words.
            let count = unsafe { self.shared.copy(pieces, to.cast(), most) };
            if count == most && self.shared.try_claim(head, most).is_ok() {
                return most;
            }
        }
        // SAFETY: the caller's room for `most` words.
        unsafe { self.take(to.cast(), most, least) }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        // Acquire: point 2 of the module's head.
        let head = self.ends.head.load(Ordering::Acquire);
        window("receiver: head read");
        if let Some(word) = self.shared.copy_one(head) {
            window("receiver: values copied");
            if self.shared.swap_head(head, 1).is_ok() {
                // SAFETY: a `Word` came out as it went in, and the position is ours.
                return Some(unsafe { from_word(word) });
            }
        }
        self.pop_late()
    }

    fn is_closed(&self) -> bool {
        self.ends.putters.load(Ordering::Acquire) == 0
    }

    fn meter(&self) -> RingMeter {
        RingMeter(self.ends.clone())
    }
}

impl<T: Word> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.ends.takers.fetch_add(1, Ordering::Relaxed);
        Self {
            ends: self.ends.clone(),
            shared: self.shared.clone(),
            ledger: self.ends.ledgers().open(),
            _not_sync: PhantomData,
        }
    }
}

impl<T: Word> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.ends.ledgers().close(&self.ledger);
        self.ends.takers.fetch_sub(1, Ordering::Release);
    }
}
