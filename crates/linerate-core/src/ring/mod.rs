//! Bounded rings between threads: [`spsc`] for one putter and one taker, [`mpmc`] for many.
//!
//! The mode is the type: an SPSC end is not `Clone` and works through `&mut`, so a second putter
//! does not compile. Elements are owned values that move through a ring; elements left when the
//! last end is dropped are dropped with it. A full ring takes what fits and counts the rest as
//! refused, without waiting.
//!
//! [`Push`] and [`Pop`] are the two ends of either kind, each in a *burst* form (as many as fit)
//! and a *bulk* form (all or nothing). Bursts move between rings and [`Batch`]es (a `Vec`, a
//! packet burst) by block copy. Read `cursor.rs` first, then `spsc.rs`.
//!
//! ```
//! use linerate_core::ring::{Pop, Push, spsc};
//!
//! let (mut producer, mut consumer) = spsc::ring::<u32>(4);
//! let mut batch = vec![1, 2, 3, 4, 5];
//! assert_eq!(producer.push_burst(&mut batch), 4);
//! assert_eq!(batch, [5], "what did not fit stays with the caller");
//! assert_eq!(consumer.pop(), Some(1));
//! assert_eq!(consumer.meter().read().refused, 1);
//! ```
#![allow(unsafe_code)]

mod cursor;
pub mod mpmc;
#[cfg(not(loom))]
mod slices;
mod slots;
pub mod spsc;
mod stats;

pub use cursor::MAX_CAPACITY;
pub use stats::{RingMeter, RingStats};

use std::mem::{ManuallyDrop, MaybeUninit};

/// A container that gives elements from its front and takes them at its back, as blocks.
///
/// # Safety
/// `filled` and `vacant` give the container's own memory and change nothing by themselves;
/// `take_front` forgets exactly the first `count` elements without dropping them; `append` counts
/// exactly `count` elements at the start of what `vacant` gave as the container's own.
pub unsafe trait Batch<T> {
    /// The elements, front first.
    fn filled(&self) -> &[T];

    /// Forgets the first `count` elements and closes the gap.
    ///
    /// # Safety
    /// There are at least `count` elements, and the caller has moved them elsewhere.
    unsafe fn take_front(&mut self, count: usize);

    /// Vacant memory right behind the last element, for at most `want` elements; shorter when the
    /// container is bounded.
    fn vacant(&mut self, want: usize) -> &mut [MaybeUninit<T>];

    /// Takes over `count` elements more.
    ///
    /// # Safety
    /// The caller has initialised the first `count` elements of what `vacant` just gave.
    unsafe fn append(&mut self, count: usize);
}

// SAFETY: a vector's elements lie one after the other, its spare capacity behind them.
unsafe impl<T> Batch<T> for Vec<T> {
    fn filled(&self) -> &[T] {
        self
    }

    unsafe fn take_front(&mut self, count: usize) {
        let rest = self.len() - count;
        let start = self.as_mut_ptr();
        // SAFETY: `rest` elements follow the first `count`; both places lie in the vector.
        unsafe { std::ptr::copy(start.wrapping_add(count), start, rest) };
        // SAFETY: those are the first `rest` elements now, and the caller owns the others.
        unsafe { self.set_len(rest) };
    }

    fn vacant(&mut self, want: usize) -> &mut [MaybeUninit<T>] {
        self.reserve(want);
        &mut self.spare_capacity_mut()[..want]
    }

    unsafe fn append(&mut self, count: usize) {
        let len = self.len() + count;
        // SAFETY: the caller initialised `count` elements of the spare capacity.
        unsafe { self.set_len(len) };
    }
}

/// Ends of rings are this module's alone: safe code believes the counts that they return.
mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::spsc::Producer<T> {}
    impl<T> Sealed for super::spsc::Consumer<T> {}
    impl<T: super::mpmc::Word> Sealed for super::mpmc::Sender<T> {}
    impl<T: super::mpmc::Word> Sealed for super::mpmc::Receiver<T> {}
}

/// The putting end of a ring; sealed.
///
/// Were it not, a count too large would make elements out of memory that nobody has written:
/// ```compile_fail,E0277
/// use linerate_core::ring::{Push, RingMeter};
/// struct Boaster;
/// impl Push<Box<u8>> for Boaster {
///     unsafe fn push_from_ptr(&mut self, _: *const Box<u8>, most: usize, _: usize) -> usize {
///         most + 1
///     }
///     fn is_closed(&self) -> bool { false }
///     fn meter(&self) -> RingMeter { loop {} }
/// }
/// ```
pub trait Push<T>: sealed::Sealed {
    /// Moves at most `most` elements from `from` on into the ring; none if fewer than `least` fit.
    /// Returns how many; the elements that did not fit are counted as refused.
    ///
    /// # Safety
    /// `from` is valid for reading `most` elements. The caller forgets those that were moved.
    unsafe fn push_from_ptr(&mut self, from: *const T, most: usize, least: usize) -> usize;

    /// Puts one element in; gives it back if the ring is full.
    #[inline]
    fn push(&mut self, element: T) -> Result<(), T> {
        let element = ManuallyDrop::new(element);
        // SAFETY: one element, not dropped here if it was moved.
        if unsafe { self.push_from_ptr(&raw const *element, 1, 1) } == 1 {
            return Ok(());
        }
        Err(ManuallyDrop::into_inner(element))
    }

    /// Moves as many elements as fit from the front of `batch`; returns how many.
    #[inline]
    fn push_burst(&mut self, batch: &mut impl Batch<T>) -> usize {
        push_batch(self, batch, 0)
    }

    /// Moves all of `batch` into the ring if it fits; otherwise nothing, and returns false.
    #[inline]
    fn push_bulk(&mut self, batch: &mut impl Batch<T>) -> bool {
        let all = batch.filled().len();
        push_batch(self, batch, all) == all
    }

    /// Copies as many elements as fit from the front of `elements`; returns how many.
    #[inline]
    fn push_slice(&mut self, elements: &[T]) -> usize
    where
        T: Copy,
    {
        // SAFETY: a readable slice of `Copy` elements.
        unsafe { self.push_from_ptr(elements.as_ptr(), elements.len(), 0) }
    }

    /// Copies all `elements` into the ring if they fit; otherwise none, and returns false.
    #[inline]
    fn push_slice_bulk(&mut self, elements: &[T]) -> bool
    where
        T: Copy,
    {
        let all = elements.len();
        // SAFETY: a readable slice of `Copy` elements.
        unsafe { self.push_from_ptr(elements.as_ptr(), all, all) == all }
    }

    /// Whether every taker was dropped: elements put now will not be read.
    fn is_closed(&self) -> bool;

    /// The ring's counters, for any thread.
    fn meter(&self) -> RingMeter;
}

#[inline(always)]
fn push_batch<T>(
    end: &mut (impl Push<T> + ?Sized),
    batch: &mut impl Batch<T>,
    least: usize,
) -> usize {
    let elements = batch.filled();
    // SAFETY: a readable slice; `take_front` forgets what was moved.
    let moved = unsafe { end.push_from_ptr(elements.as_ptr(), elements.len(), least) };
    // SAFETY: `moved` elements went from the front into the ring.
    unsafe { batch.take_front(moved) };
    moved
}

/// The taking end of a ring; sealed, for the reason that [`Push`] is:
/// ```compile_fail,E0277
/// use linerate_core::ring::{Pop, RingMeter};
/// struct Boaster;
/// impl Pop<Box<u8>> for Boaster {
///     unsafe fn pop_to_ptr(&mut self, _: *mut Box<u8>, most: usize, _: usize) -> usize { most }
///     fn is_closed(&self) -> bool { false }
///     fn meter(&self) -> RingMeter { loop {} }
/// }
/// ```
pub trait Pop<T>: sealed::Sealed {
    /// Moves at most `most` elements to `to` on; none if fewer than `least` are there. Returns how
    /// many; coming short is counted.
    ///
    /// # Safety
    /// `to` is valid for writing `most` elements. Those beyond the returned count may hold
    /// anything afterwards and must not be read.
    unsafe fn pop_to_ptr(&mut self, to: *mut T, most: usize, least: usize) -> usize;

    /// Takes the oldest element.
    #[inline]
    fn pop(&mut self) -> Option<T> {
        let mut element = MaybeUninit::uninit();
        // SAFETY: room for one element.
        let taken = unsafe { self.pop_to_ptr(element.as_mut_ptr(), 1, 1) };
        // SAFETY: it was written if one was taken.
        (taken == 1).then(|| unsafe { element.assume_init() })
    }

    /// Moves at most `most` elements to the back of `batch`, as many as are there and as it has
    /// room for; returns how many.
    #[inline]
    fn pop_burst(&mut self, batch: &mut impl Batch<T>, most: usize) -> usize {
        pop_batch(self, batch, most, 0)
    }

    /// Moves exactly `count` elements to the back of `batch`, or nothing and returns false.
    #[inline]
    fn pop_bulk(&mut self, batch: &mut impl Batch<T>, count: usize) -> bool {
        pop_batch(self, batch, count, count) == count
    }

    /// Overwrites the front of `elements` with as many as are there; returns how many. On return
    /// the rest of `elements` is unchanged or holds copies of elements of the ring.
    #[inline]
    fn pop_slice(&mut self, elements: &mut [T]) -> usize
    where
        T: Copy,
    {
        // SAFETY: a writable slice of `Copy` elements.
        unsafe { self.pop_to_ptr(elements.as_mut_ptr(), elements.len(), 0) }
    }

    /// Overwrites all of `elements` if that many are there, and returns true. Otherwise takes
    /// nothing and returns false; what `elements` then hold is as for [`Pop::pop_slice`].
    #[inline]
    fn pop_slice_bulk(&mut self, elements: &mut [T]) -> bool
    where
        T: Copy,
    {
        let all = elements.len();
        // SAFETY: a writable slice of `Copy` elements.
        unsafe { self.pop_to_ptr(elements.as_mut_ptr(), all, all) == all }
    }

    /// Whether every putter was dropped. Take once more after it is true, since the last put came
    /// before.
    fn is_closed(&self) -> bool;

    /// The ring's counters, for any thread.
    fn meter(&self) -> RingMeter;
}

#[inline(always)]
fn pop_batch<T>(
    end: &mut (impl Pop<T> + ?Sized),
    batch: &mut impl Batch<T>,
    most: usize,
    least: usize,
) -> usize {
    let room = batch.vacant(most);
    let most = most.min(room.len());
    if most < least {
        return 0;
    }
    // SAFETY: room for `most` elements.
    let moved = unsafe { end.pop_to_ptr(room.as_mut_ptr().cast(), most, least) };
    // SAFETY: that many were written at the start of the room.
    unsafe { batch.append(moved) };
    moved
}

#[cfg(test)]
#[cfg(loom)]
pub(crate) mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
