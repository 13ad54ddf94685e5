//! Where buckets lie: segments of 2 MiB, added one by one and never moved.

use super::layout::{LINE, Line};
use crate::TableError;
use linerate_core::mem::HugeArray;

/// Lines of a segment at most: one large page.
const SEGMENT_LINES: u32 = (2 << 20) / LINE as u32;

/// Buckets of a fixed number of lines.
pub(super) struct Segments {
    segments: Vec<HugeArray<Line>>,
    /// Lines of a bucket.
    lines: usize,
    /// Buckets of a segment are two to this power.
    shift: u32,
    /// No more buckets than these will be asked for.
    most: u32,
}

impl Segments {
    /// For at most `most` buckets of `lines` lines.
    pub(super) fn new(lines: usize, most: u32) -> Self {
        let large = SEGMENT_LINES / (lines as u32).next_power_of_two();
        Self {
            segments: Vec::new(),
            lines,
            shift: most.next_power_of_two().min(large).trailing_zeros(),
            most,
        }
    }

    /// Maps segments until there are `buckets`.
    pub(super) fn reach(&mut self, name: &str, buckets: u32) -> Result<(), TableError> {
        while (self.segments.len() << self.shift) < buckets as usize {
            let there = (self.segments.len() as u32) << self.shift;
            let more = (self.most - there).min(1 << self.shift) as usize;
            let segment = HugeArray::filled(name, more * self.lines, [0; LINE])?;
            self.segments.push(segment);
        }
        Ok(())
    }

    /// The bytes of a bucket.
    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &[u8] {
        let segment = &self.segments[(bucket >> self.shift) as usize];
        let within = (bucket & ((1 << self.shift) - 1)) as usize;
        segment[within * self.lines..][..self.lines].as_flattened()
    }

    /// The same, to change them.
    #[inline(always)]
    pub(super) fn bucket_mut(&mut self, bucket: u32) -> &mut [u8] {
        let segment = &mut self.segments[(bucket >> self.shift) as usize];
        let within = (bucket & ((1 << self.shift) - 1)) as usize;
        segment[within * self.lines..][..self.lines].as_flattened_mut()
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
