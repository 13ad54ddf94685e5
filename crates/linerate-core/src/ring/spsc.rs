//! A ring from one putter to one taker.
//!
//! Each end stores its own position once per burst and remembers how far the peer was
//! (`cursor.rs`): on a ring that is neither full nor empty a burst touches the peer's position
//! about once per capacity. One element has code of its own, in which it stays in a register.
//!
//! **Ownership.** Slots from `head` to `tail` belong to the consumer, the others to the producer.
//! A side gives slots away by storing its position with release; the other acquires it.
//!
//! Besides the forms of [`Push`] and [`Pop`], the ends lend out the slots themselves:
//! [`Producer::reserve`] and [`Consumer::peek`].
//!
//! ```compile_fail
//! let (producer, _consumer) = linerate_core::ring::spsc::ring::<u32>(4);
//! let second = producer.clone(); // one putter: there is no `Clone`
//! ```
#![allow(unsafe_code)]

use super::cursor::{Cursor, Ends, Span};
#[cfg(not(loom))]
pub use super::slices::{ReadGuard, WriteGuard};
use super::slots::{Place, Slots};
use super::stats::Ledger;
use super::{Pop, Push, RingMeter};
use crate::sync::{Arc, Ordering, at};
use std::cell::Cell;
use std::marker::PhantomData;

/// Makes a ring of at least `capacity` elements (rounded up to a power of two).
///
/// # Panics
/// If `capacity` is 0 or above [`super::MAX_CAPACITY`].
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let ends = Arc::new(Ends::new(capacity));
    let shared = Arc::new(Shared {
        slots: Slots::new(ends.capacity()),
        ends: ends.clone(),
    });
    let producer = Producer {
        tail: 0,
        cursor: Cursor::putter(&ends),
        place: shared.slots.place(),
        ledger: ends.ledgers().open(),
        ends: ends.clone(),
        _shared: shared.clone(),
        _not_sync: PhantomData,
    };
    let ledger = ends.ledgers().open();
    let consumer = Consumer {
        head: 0,
        cursor: Cursor::taker(&ends),
        place: shared.slots.place(),
        ledger,
        ends,
        _shared: shared,
        _not_sync: PhantomData,
    };
    (producer, consumer)
}

/// The storage; dropping it drops what is still inside.
struct Shared<T> {
    slots: Slots<T>,
    ends: Arc<Ends>,
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends were dropped, and the last reference has acquired their work.
        let tail = self.ends.tail.load(Ordering::Acquire);
        let mut head = self.ends.head.load(Ordering::Acquire);
        while head != tail {
            // SAFETY: slots from head to tail are filled, and there is no other reference.
            let element = unsafe { self.slots.place().take(head) };
            head = head.wrapping_add(1);
            self.ends.head.store(head, Ordering::Release);
            drop(element);
        }
    }
}

/// Gives the slots below `tail` to the consumer.
#[inline(always)]
fn publish(ends: &Ends, tail: usize) {
    ends.tail.store(tail, at("spsc.publish", Ordering::Release));
}

/// Gives the slots below `head` back to the producer.
#[inline(always)]
fn release(ends: &Ends, head: usize) {
    ends.head.store(head, at("spsc.release", Ordering::Release));
}

/// The putting end; `Send`, used through `&mut`, not `Clone`.
pub struct Producer<T> {
    /// Own position; `ends.tail` follows it. Kept here, where it is both stored and read by the
    /// handle's address: the processor then need not wait for what it stored a moment ago. The
    /// address of `ends` it reads anew each time.
    tail: usize,
    cursor: Cursor,
    place: Place<T>,
    ends: Arc<Ends>,
    /// Its share in the slots, which `place` is of.
    _shared: Arc<Shared<T>>,
    ledger: std::sync::Arc<Ledger>,
    _not_sync: PhantomData<Cell<()>>,
}

impl<T> Producer<T> {
    /// Lends out at most `most` vacant slots, as many as there are (the others count as refused).
    #[cfg(not(loom))]
    pub fn reserve(&mut self, most: usize) -> WriteGuard<'_, T> {
        let count = self.claim(most, 0);
        let span = Span::new(self.tail, count, self.ends.capacity());
        WriteGuard::new(self, span)
    }

    /// The first slot of the storage.
    #[cfg(not(loom))]
    pub(super) fn base(&self) -> *mut T {
        self.place.base()
    }

    /// How many of at most `most` elements fit, or 0 if fewer than `least`; counts the others.
    #[inline(always)]
    fn claim(&mut self, most: usize, least: usize) -> usize {
        let fit = self.cursor.reach(self.tail, most, &self.ends.head);
        if fit == most {
            return fit;
        }
        let fit = if fit < least { 0 } else { fit };
        self.ledger.refuse(most - fit);
        fit
    }

    /// Puts in between `least` and `most` elements, or none, however they lie. Returns how many.
    ///
    /// # Safety
    /// As for [`Push::push_from_ptr`].
    #[inline(never)]
    unsafe fn put(&mut self, from: *const T, most: usize, least: usize) -> usize {
        let count = self.claim(most, least);
        if count > 0 {
            let span = Span::new(self.tail, count, self.ends.capacity());
            // SAFETY: `claim` found the slots vacant, and this is the only producer.
            unsafe { self.place.write(span, from) };
            self.publish(count);
        }
        count
    }

    /// Gives the next `count` slots to the consumer.
    #[inline(always)]
    pub(super) fn publish(&mut self, count: usize) {
        self.tail += count;
        publish(&self.ends, self.tail);
    }
}

impl<T> Push<T> for Producer<T> {
    #[inline(always)]
    unsafe fn push_from_ptr(&mut self, from: *const T, most: usize, least: usize) -> usize {
        let tail = self.tail;
        match Span::uncut(tail, most, self.place.mask()) {
            Some(span) if self.cursor.knows(tail, most) => {
                // SAFETY: the slots are known to be vacant, and this is the only producer.
                unsafe { self.place.write(span, from) };
                self.publish(most);
                most
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.put(from, most, least) },
        }
    }

    #[inline(always)]
    fn push(&mut self, element: T) -> Result<(), T> {
        // Held here, since the compiler reads the handle again after each acquiring load.
        let (ends, tail) = (&*self.ends, self.tail);
        if !self.cursor.reaches(tail, &ends.head) {
            self.ledger.refuse(1);
            return Err(element);
        }
        // SAFETY: the slot is known to be vacant, and this is the only producer.
        unsafe { self.place.put(tail, element) };
        self.tail = tail + 1;
        publish(ends, self.tail);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.ends.takers.load(Ordering::Acquire) == 0
    }

    fn meter(&self) -> RingMeter {
        RingMeter(self.ends.clone())
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.ends.ledgers().close(&self.ledger);
        // Release: a thread that sees the end closed sees the last put too.
        self.ends
            .putters
            .store(0, at("spsc.close", Ordering::Release));
    }
}

/// The taking end; `Send`, used through `&mut`, not `Clone`.
pub struct Consumer<T> {
    /// Own position; `ends.head` follows it. Why it is here: see [`Producer`].
    head: usize,
    cursor: Cursor,
    place: Place<T>,
    ends: Arc<Ends>,
    /// Its share in the slots, which `place` is of.
    _shared: Arc<Shared<T>>,
    ledger: std::sync::Arc<Ledger>,
    _not_sync: PhantomData<Cell<()>>,
}

impl<T> Consumer<T> {
    /// Lends out the oldest elements, at most `most`, where they lie.
    #[cfg(not(loom))]
    pub fn peek(&mut self, most: usize) -> ReadGuard<'_, T> {
        let count = self.claim(most, 0);
        let span = Span::new(self.head, count, self.ends.capacity());
        ReadGuard::new(self, span)
    }

    /// The first slot of the storage.
    #[cfg(not(loom))]
    pub(super) fn base(&self) -> *mut T {
        self.place.base()
    }

    /// How many of at most `most` elements are there, or 0 if fewer than `least`.
    #[inline(always)]
    fn claim(&mut self, most: usize, least: usize) -> usize {
        let there = self.cursor.reach(self.head, most, &self.ends.tail);
        if there == most {
            return there;
        }
        self.ledger.fall_short();
        if there < least { 0 } else { there }
    }

    /// Takes between `least` and `most` elements, or none, however they lie. Returns how many.
    ///
    /// # Safety
    /// As for [`Pop::pop_to_ptr`].
    #[inline(never)]
    unsafe fn take(&mut self, to: *mut T, most: usize, least: usize) -> usize {
        let count = self.claim(most, least);
        if count > 0 {
            let span = Span::new(self.head, count, self.ends.capacity());
            // SAFETY: `claim` found the slots filled, and this is the only consumer.
            unsafe { self.place.read(span, to) };
            self.release(count);
        }
        count
    }

    /// Gives the next `count` slots back to the producer.
    #[inline(always)]
    pub(super) fn release(&mut self, count: usize) {
        self.head += count;
        release(&self.ends, self.head);
    }
}

impl<T> Pop<T> for Consumer<T> {
    #[inline(always)]
    unsafe fn pop_to_ptr(&mut self, to: *mut T, most: usize, least: usize) -> usize {
        let head = self.head;
        match Span::uncut(head, most, self.place.mask()) {
            Some(span) if self.cursor.reach(head, most, &self.ends.tail) == most => {
                // SAFETY: the slots are known to be filled, and this is the only consumer.
                unsafe { self.place.read(span, to) };
                self.release(most);
                most
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.take(to, most, least) },
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        // As in `push`.
        let (ends, head) = (&*self.ends, self.head);
        if !self.cursor.reaches(head, &ends.tail) {
            self.ledger.fall_short();
            return None;
        }
        // SAFETY: the slot is known to be filled, and this is the only consumer.
        let element = unsafe { self.place.take(head) };
        self.head = head + 1;
        release(ends, self.head);
        Some(element)
    }

    fn is_closed(&self) -> bool {
        self.ends.putters.load(Ordering::Acquire) == 0
    }

    fn meter(&self) -> RingMeter {
        RingMeter(self.ends.clone())
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.ends.ledgers().close(&self.ledger);
        self.ends.takers.store(0, Ordering::Release);
    }
}
