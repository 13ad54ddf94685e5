//! Where buckets lie: segments of 2 MiB, added one by one and never moved.

use super::layout::{LINE, Layout, Line, Value};
use crate::TableError;
use crate::simd::flattened;
use linerate_core::mem::HugeArray;
use std::marker::PhantomData;

/// Lines of a segment at most: one large page.
const SEGMENT_LINES: u32 = (2 << 20) / LINE as u32;

/// The buckets of a table.
pub(super) struct Segments<const K: usize, V> {
    segments: Vec<HugeArray<Line>>,
    /// Buckets of a segment are two to this power.
    shift: u32,
    /// No more buckets than these will be asked for.
    most: u32,
    entries: PhantomData<V>,
}

impl<const K: usize, V: Value> Segments<K, V> {
    /// Lines of a bucket.
    const LINES: usize = Layout::<K, V>::LINES;

    /// For at most `most` buckets: in one piece if `whole`, else in segments of 2 MiB.
    pub(super) fn new(most: u32, whole: bool) -> Self {
        let large = match whole {
            true => 1 << 31,
            false => SEGMENT_LINES / (Self::LINES as u32).next_power_of_two(),
        };
        Self {
            segments: Vec::new(),
            shift: most.next_power_of_two().min(large).trailing_zeros(),
            most,
            entries: PhantomData,
        }
    }

    /// Maps segments until there are `buckets`.
    pub(super) fn reach(&mut self, name: &str, buckets: u32) -> Result<(), TableError> {
        while (self.segments.len() << self.shift) < buckets as usize {
            let there = (self.segments.len() as u32) << self.shift;
            let more = (self.most - there).min(1 << self.shift) as usize;
            let segment = HugeArray::filled(name, more * Self::LINES, [0; LINE])?;
            self.segments.push(segment);
        }
        Ok(())
    }

    /// The buckets, if all that there are and will be are in one piece.
    #[inline(always)]
    pub(super) fn only(&self) -> Option<Piece<'_, K, V>> {
        let one = self.most <= 1 << self.shift;
        one.then(|| Piece(&self.segments[0], PhantomData))
    }

    /// The bytes of a bucket.
    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &[u8] {
        let segment = &self.segments[(bucket >> self.shift) as usize];
        let within = (bucket & ((1 << self.shift) - 1)) as usize * Self::LINES;
        flattened(&segment[within..within + Self::LINES])
    }

    /// The same, to change them.
    #[inline(always)]
    pub(super) fn bucket_mut(&mut self, bucket: u32) -> &mut [u8] {
        let segment = &mut self.segments[(bucket >> self.shift) as usize];
        let within = (bucket & ((1 << self.shift) - 1)) as usize * Self::LINES;
        segment[within..within + Self::LINES].as_flattened_mut()
    }

    pub(super) fn bytes(&self) -> usize {
        let mapped: usize = self.segments.iter().map(|s| s.region().len()).sum();
        mapped + self.segments.capacity() * size_of::<HugeArray<Line>>()
    }

    pub(super) fn pages(&self) -> String {
        self.segments
            .first()
            .map_or_else(|| "none".into(), |s| s.region().kind().to_string())
    }
}

/// All buckets of a table, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a, const K: usize, V>(&'a [Line], PhantomData<V>);

impl<'a, const K: usize, V: Value> Piece<'a, K, V> {
    /// The bytes of a bucket.
    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &'a [u8] {
        let at = bucket as usize * Layout::<K, V>::LINES;
        flattened(&self.0[at..at + Layout::<K, V>::LINES])
    }
}
