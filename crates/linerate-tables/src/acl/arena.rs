//! Runs of elements in one array on large pages, handed out and taken back in powers of two.

use linerate_core::MemError;
use linerate_core::mem::HugeArray;

/// The array, and which runs of it are free.
pub(super) struct Arena<T> {
    name: &'static str,
    elements: HugeArray<T>,
    empty: T,
    used: usize,
    /// Starts of free runs, by the logarithm of their length.
    free: [Vec<u32>; 32],
}

impl<T: Copy> Arena<T> {
    /// Room for `room` elements.
    pub(super) fn new(name: &'static str, room: usize, empty: T) -> Result<Self, MemError> {
        Ok(Self {
            name,
            elements: HugeArray::filled(name, room, empty)?,
            empty,
            used: 0,
            free: Default::default(),
        })
    }

    /// All elements, in use or not.
    #[inline]
    pub(super) fn elements(&self) -> &[T] {
        &self.elements
    }

    /// The run that starts there.
    #[inline]
    pub(super) fn run(&self, start: u32, len: usize) -> &[T] {
        &self.elements[start as usize..][..len]
    }

    /// The run that starts there, to change.
    pub(super) fn run_mut(&mut self, start: u32, len: usize) -> &mut [T] {
        &mut self.elements[start as usize..][..len]
    }

    /// Memory, free runs included.
    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[T]>(&self.elements)
    }

    /// What [`bytes`](Self::bytes) would be with room for `more` beyond all that was handed out.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        match self.used + more <= self.elements.len() {
            true => self.bytes(),
            false => (self.used + more).next_power_of_two() * size_of::<T>(),
        }
    }

    /// Makes sure that runs of `more` elements in total can be taken. O(elements) where it grows,
    /// which it does by doubling.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), MemError> {
        if self.used + more <= self.elements.len() {
            return Ok(());
        }
        let room = (self.used + more).next_power_of_two();
        let old = &self.elements;
        let element = |at| old.get(at).copied().unwrap_or(self.empty);
        self.elements = HugeArray::from_fn(self.name, room, element)?;
        Ok(())
    }

    /// Takes a run of `len` elements, all empty; there must be room for it rounded up to a power
    /// of two.
    pub(super) fn take(&mut self, len: usize) -> u32 {
        let len = len.next_power_of_two();
        let start = self.free[len.trailing_zeros() as usize].pop();
        let start = start.unwrap_or(self.used as u32);
        if start as usize == self.used {
            self.used += len;
        }
        let empty = self.empty;
        self.run_mut(start, len).fill(empty);
        start
    }

    /// Gives a run of `len` elements back.
    pub(super) fn give(&mut self, start: u32, len: usize) {
        self.free[len.next_power_of_two().trailing_zeros() as usize].push(start);
    }

    /// Another arena with the same content.
    pub(super) fn copy(&self) -> Result<Self, MemError> {
        let element = |at: usize| self.elements[at];
        Ok(Self {
            name: self.name,
            elements: HugeArray::from_fn(self.name, self.elements.len(), element)?,
            empty: self.empty,
            used: self.used,
            free: self.free.clone(),
        })
    }
}
