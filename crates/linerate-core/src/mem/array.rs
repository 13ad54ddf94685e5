//! A typed array on the largest pages to be had, for tables.
#![allow(unsafe_code)]

use super::{Region, RegionConfig};
use crate::MemError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A fixed-size array whose memory is a [`Region`]: few TLB misses, zero page faults.
///
/// ```
/// use linerate_core::mem::HugeArray;
/// let mut table = HugeArray::from_fn("squares", 1000, |i| (i * i) as u64)?;
/// table[3] += 1;
/// assert_eq!(table[3], 10);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
pub struct HugeArray<T> {
    region: Region,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> HugeArray<T> {
    /// `len` elements, the i-th made by `make(i)`.
    ///
    /// # Errors
    /// As [`Region::map`].
    ///
    /// # Panics
    /// If the size in bytes exceeds `usize`.
    pub fn from_fn(
        name: &str,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<Self, MemError> {
        const { assert!(align_of::<T>() <= 4096, "elements align to at most a page") };
        let bytes = len
            .checked_mul(size_of::<T>())
            .expect("the array's size in bytes fits usize");
        let region = Region::map(&RegionConfig {
            name: name.into(),
            bytes,
            ..RegionConfig::default()
        })?;
        // `len` grows with the elements, so that a panic in `make` drops those that exist.
        let mut array = Self {
            region,
            len: 0,
            elements: PhantomData,
        };
        for index in 0..len {
            let element = make(index);
            // SAFETY: index < len, and the region holds len elements, page-aligned.
            let at = unsafe { array.region.as_ptr().cast::<T>().add(index) };
            // SAFETY: `at` is inside the region and holds no element yet.
            unsafe { at.write(element) };
            array.len = index.saturating_add(1);
        }
        Ok(array)
    }

    /// `len` copies of `value`.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn filled(name: &str, len: usize, value: T) -> Result<Self, MemError>
    where
        T: Copy,
    {
        Self::from_fn(name, len, |_| value)
    }

    /// Another array with the same elements.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn copy(&self, name: &str) -> Result<Self, MemError>
    where
        T: Clone,
    {
        Self::from_fn(name, self.len, |index| self[index].clone())
    }

    /// The memory under it.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<T> Deref for HugeArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were written, and the array owns the region.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for HugeArray<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr().cast(), self.len) }
    }
}

impl<T> Drop for HugeArray<T> {
    fn drop(&mut self) {
        let elements = std::ptr::from_mut::<[T]>(self);
        // SAFETY: the elements are initialised, and nobody reads them after this.
        unsafe { std::ptr::drop_in_place(elements) };
    }
}

impl<T: fmt::Debug> fmt::Debug for HugeArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeArray")
            .field("region", &self.region)
            .field("len", &self.len)
            .finish()
    }
}

// SAFETY: the array owns its elements as a Vec does.
unsafe impl<T: Send> Send for HugeArray<T> {}
// SAFETY: `&HugeArray` gives `&[T]` and nothing else.
unsafe impl<T: Sync> Sync for HugeArray<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn elements_are_dropped_once() {
        let one = Arc::new(());
        let array = HugeArray::from_fn("arcs", 10, |_| one.clone()).unwrap();
        assert_eq!(Arc::strong_count(&one), 11);
        drop(array);
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn an_empty_array_is_an_empty_slice() {
        assert!(HugeArray::filled("none", 0, 0_u8).unwrap().is_empty());
    }
}
