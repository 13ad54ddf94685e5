//! Flows by bucket: what moves from one owner to another at the cost of those flows alone.

use super::Flow;
use super::key::FlowKey;
use super::lists::Lists;
use super::table::FlowTable;
use crate::TableError;

/// How many buckets there are.
pub(super) const BUCKETS: usize = 256;
/// The list of places without a flow.
const FREE: usize = BUCKETS;

/// Flows whose memory is asked for at once.
const BATCH: usize = 32;

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
    /// The lists of a table without flows: the first place is given first.
    pub(super) fn free_places(name: &str, flows: usize) -> Result<Lists, TableError> {
        let mut lists = Lists::new(name, flows, BUCKETS + 1)?;
        (0..flows as u32)
            .rev()
            .for_each(|place| lists.push(FREE, place));
        Ok(lists)
    }

    /// The place that the next flow gets.
    #[inline(always)]
    pub(super) fn free_place(&self) -> Option<u32> {
        self.buckets.newest(FREE)
    }

    /// A place gets a flow.
    pub(super) fn occupy(&mut self, place: u32, bucket: u8) {
        self.buckets.remove(place);
        self.buckets.push(bucket.into(), place);
        self.in_bucket[usize::from(bucket)] += 1;
    }

    /// A place loses its flow.
    pub(super) fn vacate(&mut self, place: u32, bucket: u8) {
        self.buckets.remove(place);
        self.buckets.push(FREE, place);
        self.in_bucket[usize::from(bucket)] -= 1;
    }

    /// Flows of a bucket.
    pub fn in_bucket(&self, bucket: u8) -> u32 {
        self.in_bucket[usize::from(bucket)]
    }

    /// Takes the oldest flows of a bucket out, `most` of them at most, and shows each to `taken`,
    /// whose it is from there on. Returns whether that was the last one: so a bucket can move in
    /// as many steps as its owner has time for.
    pub fn take_bucket(
        &mut self,
        bucket: u8,
        most: usize,
        mut taken: impl FnMut(&Flow<F, S>),
    ) -> bool {
        let mut left = most;
        while left > 0 && self.in_bucket(bucket) > 0 {
            let mut batch = [0; BATCH];
            let mut count = 0;
            let mut next = self.buckets.oldest(bucket.into());
            while let Some(index) = next.filter(|_| count < BATCH.min(left)) {
                self.prefetch(index);
                self.wheel.prefetch(index);
                batch[count] = index;
                count += 1;
                next = self.buckets.after(index);
            }
            let batch = &batch[..count];
            batch.iter().for_each(|&index| self.prefetch_end(index));
            for &index in batch {
                taken(&self.end(index));
            }
            left -= count;
        }
        self.in_bucket(bucket) == 0
    }
}
