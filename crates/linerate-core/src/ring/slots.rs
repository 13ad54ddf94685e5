//! The storage of an SPSC ring: slots that are each owned by exactly one side at a time.
//!
//! Who owns which slot follows from the positions in [`super::cursor`]; this file only moves
//! elements, in at most two block copies. [`Slots`] has the memory; each end keeps a [`Place`],
//! which says where that is, beside its position. Under loom every slot is a cell of its own, so
//! that loom sees each access.
#![allow(unsafe_code)]

use super::cursor::Span;
use crate::arch::AlignedSlice;
use crate::sync::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};

pub(crate) struct Slots<T>(AlignedSlice<UnsafeCell<MaybeUninit<T>>>);

// SAFETY: the two ends may be on two threads, but each slot is touched by its owner only, so
// elements move between threads (hence `Send`) and are never shared between them.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "a ring of zero-sized elements is a counter: use an atomic"
            )
        };
        Self(AlignedSlice::new(capacity, || {
            UnsafeCell::new(MaybeUninit::uninit())
        }))
    }

    /// Where they are, until `self` is dropped or moved.
    pub(crate) fn place(&self) -> Place<T> {
        Place {
            #[cfg(not(loom))]
            base: self.0.as_ptr().cast_mut().cast(),
            #[cfg(loom)]
            base: self,
            mask: self.0.len() - 1,
        }
    }
}

/// Where the slots of a ring are. Its owner also holds a reference to the [`Slots`].
pub(crate) struct Place<T> {
    #[cfg(not(loom))]
    base: *mut T,
    #[cfg(loom)]
    base: *const Slots<T>,
    /// Slots less 1: they are a power of two.
    mask: usize,
}

// SAFETY: as for sharing the slots themselves.
unsafe impl<T: Send> Send for Place<T> {}

impl<T> Place<T> {
    /// The part of a position that selects the slot.
    #[inline(always)]
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    /// The first slot; all slots follow each other from here.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut T {
        self.base
    }

    /// Moves an element into the slot of a position.
    ///
    /// # Safety
    /// The caller owns the slot, which is vacant, and a share in the slots.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, at: usize, element: T) {
        let element = ManuallyDrop::new(element);
        // SAFETY: the caller's promise.
        unsafe { self.write(Span::one(at, self.mask), &raw const *element) };
    }

    /// Moves the element out of the slot of a position.
    ///
    /// # Safety
    /// The caller owns the slot, which is filled, and a share in the slots, and treats it as vacant
    /// from then on.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, at: usize) -> T {
        let mut element = MaybeUninit::uninit();
        // SAFETY: the caller's promise.
        unsafe { self.read(Span::one(at, self.mask), element.as_mut_ptr()) };
        // SAFETY: just moved out of the slot.
        unsafe { element.assume_init() }
    }

    /// Moves `span.len` elements from `from` on into the slots.
    ///
    /// # Safety
    /// The caller owns the slots, which are vacant, and a share in all; `from` is valid for reading
    /// the elements, which are the ring's from then on.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn write(&self, span: Span, from: *const T) {
        let start = self.base().wrapping_add(span.start);
        if span.len == 1 {
            // Known to the compiler where one element is pushed: a move, not a call of `memcpy`.
            // SAFETY: the slot lies inside the storage; the caller owns it.
            return unsafe { std::ptr::copy_nonoverlapping(from, start, 1) };
        }
        // SAFETY: `first` slots from `start` on lie inside the storage; the caller owns them.
        unsafe { std::ptr::copy_nonoverlapping(from, start, span.first) };
        if span.first < span.len {
            let from = from.wrapping_add(span.first);
            // SAFETY: the rest wraps to slot 0 and is shorter than the storage.
            unsafe { std::ptr::copy_nonoverlapping(from, self.base(), span.len - span.first) };
        }
    }

    /// Moves `span.len` elements out of the slots to `to` on.
    ///
    /// # Safety
    /// The caller owns the slots, which are filled, and a share in all, and treats them as vacant
    /// from then on; `to` is valid for writing the elements.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn read(&self, span: Span, to: *mut T) {
        let start = self.base().wrapping_add(span.start);
        if span.len == 1 {
            // SAFETY: the slot lies inside the storage; the caller owns it.
            return unsafe { std::ptr::copy_nonoverlapping(start, to, 1) };
        }
        // SAFETY: `first` slots from `start` on lie inside the storage; the caller owns them.
        unsafe { std::ptr::copy_nonoverlapping(start, to, span.first) };
        if span.first < span.len {
            let to = to.wrapping_add(span.first);
            // SAFETY: the rest wraps to slot 0 and is shorter than the storage.
            unsafe { std::ptr::copy_nonoverlapping(self.base(), to, span.len - span.first) };
        }
    }

    #[cfg(loom)]
    pub(crate) unsafe fn write(&self, span: Span, from: *const T) {
        for index in 0..span.len {
            // SAFETY: the caller has a share in the slots.
            let slots = unsafe { &*self.base };
            let slot = &slots.0[(span.start + index) & self.mask];
            let from = from.wrapping_add(index);
            // SAFETY: as for the block copy.
            slot.with_mut(|slot| unsafe { slot.cast::<T>().copy_from_nonoverlapping(from, 1) });
        }
    }

    #[cfg(loom)]
    pub(crate) unsafe fn read(&self, span: Span, to: *mut T) {
        for index in 0..span.len {
            // SAFETY: the caller has a share in the slots.
            let slots = unsafe { &*self.base };
            let slot = &slots.0[(span.start + index) & self.mask];
            let to = to.wrapping_add(index);
            // SAFETY: as for the block copy.
            slot.with(|slot| unsafe { slot.cast::<T>().copy_to_nonoverlapping(to, 1) });
        }
    }
}
