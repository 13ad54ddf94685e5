//! An SPSC ring's slots, lent out where they lie: no copy on the way in or out.
//!
//! A guard borrows its end, so nothing else moves that end meanwhile. Slots that run over the end
//! of the storage come as two slices, the second empty otherwise.
//!
//! ```
//! use linerate_core::ring::spsc;
//!
//! let (mut producer, mut consumer) = spsc::ring::<u64>(8);
//! assert_eq!(producer.reserve(3).fill([10, 20, 30]), 3);
//! let lent = consumer.peek(8);
//! assert_eq!(lent.slices().0, [10, 20, 30]);
//! lent.consume(2); // the third stays
//! assert_eq!(consumer.peek(8).slices().0, [30]);
//! ```
#![allow(unsafe_code)]

use super::cursor::Span;
use super::spsc::{Consumer, Producer};
use std::mem::MaybeUninit;
use std::slice;

/// Vacant slots on loan. Dropped without a commit, they stay vacant.
pub struct WriteGuard<'a, T> {
    producer: &'a mut Producer<T>,
    span: Span,
}

impl<'a, T> WriteGuard<'a, T> {
    pub(super) fn new(producer: &'a mut Producer<T>, span: Span) -> Self {
        Self { producer, span }
    }

    /// How many slots are on loan.
    #[expect(clippy::len_without_is_empty, reason = "a loan is not a container")]
    pub fn len(&self) -> usize {
        self.span.len
    }

    /// The slots, in the order in which the consumer will see them.
    pub fn slices(&mut self) -> (&mut [MaybeUninit<T>], &mut [MaybeUninit<T>]) {
        let base: *mut MaybeUninit<T> = self.producer.base().cast();
        let Span { start, first, len } = self.span;
        // SAFETY: `first` slots from `start` on are vacant, so the producer's alone, until commit.
        let near = unsafe { slice::from_raw_parts_mut(base.wrapping_add(start), first) };
        // SAFETY: likewise the rest from slot 0 on, which ends before `start`.
        let far = unsafe { slice::from_raw_parts_mut(base, len - first) };
        (near, far)
    }

    /// Gives the first `count` slots to the consumer.
    ///
    /// # Safety
    /// The caller has initialised them.
    ///
    /// # Panics
    /// If fewer are on loan.
    pub unsafe fn commit(self, count: usize) {
        assert!(
            count <= self.span.len,
            "commit of {count} slots, but {} are on loan",
            self.span.len
        );
        self.producer.publish(count);
    }

    /// Writes `elements` into the slots, as many as there are of both, and gives those to the
    /// consumer. Returns how many.
    pub fn fill(mut self, elements: impl IntoIterator<Item = T>) -> usize {
        let (near, far) = self.slices();
        // The slots first: `zip` asks for an element only once it has a slot.
        let filled = near
            .iter_mut()
            .chain(far)
            .zip(elements)
            .map(|(slot, element)| {
                slot.write(element);
            });
        let count = filled.count();
        // SAFETY: just written.
        unsafe { self.commit(count) };
        count
    }
}

/// The oldest elements on loan. Dropped without [`consume`](ReadGuard::consume), they stay.
pub struct ReadGuard<'a, T> {
    consumer: &'a mut Consumer<T>,
    span: Span,
}

impl<'a, T> ReadGuard<'a, T> {
    pub(super) fn new(consumer: &'a mut Consumer<T>, span: Span) -> Self {
        Self { consumer, span }
    }

    /// How many elements are on loan.
    #[expect(clippy::len_without_is_empty, reason = "a loan is not a container")]
    pub fn len(&self) -> usize {
        self.span.len
    }

    /// The elements, oldest first.
    pub fn slices(&self) -> (&[T], &[T]) {
        let base: *const T = self.consumer.base();
        let Span { start, first, len } = self.span;
        // SAFETY: `first` slots from `start` on are filled and the consumer's until it gives them
        // back.
        let near = unsafe { slice::from_raw_parts(base.wrapping_add(start), first) };
        // SAFETY: likewise the rest from slot 0 on.
        let far = unsafe { slice::from_raw_parts(base, len - first) };
        (near, far)
    }

    /// Drops the oldest `count` elements where they lie and gives their slots back.
    ///
    /// # Panics
    /// If fewer are on loan.
    pub fn consume(self, count: usize) {
        assert!(
            count <= self.span.len,
            "consume of {count} elements, but {} are on loan",
            self.span.len
        );
        let base = self.consumer.base();
        let Span { start, first, .. } = self.span;
        let first = first.min(count);
        // Gives the slots back even if an element's drop panics, lest it be dropped again.
        let back = GiveBack {
            consumer: self.consumer,
            count,
        };
        let near = std::ptr::slice_from_raw_parts_mut(base.wrapping_add(start), first);
        // SAFETY: filled, the consumer's, and read by nobody after this.
        unsafe { std::ptr::drop_in_place(near) };
        let far = std::ptr::slice_from_raw_parts_mut(base, count - first);
        // SAFETY: as above.
        unsafe { std::ptr::drop_in_place(far) };
        drop(back);
    }
}

struct GiveBack<'a, T> {
    consumer: &'a mut Consumer<T>,
    count: usize,
}

impl<T> Drop for GiveBack<'_, T> {
    fn drop(&mut self) {
        self.consumer.release(self.count);
    }
}
