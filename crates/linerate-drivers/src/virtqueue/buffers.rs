//! What a driver knows of its own buffers: which of them the device has, in which order it got
//! them, and which are linked to one chain. Nothing of this is in memory that the device writes.

use super::memory::Memory;
use super::{Batch, Violation};
use linerate_core::mem::CHECKED;

/// Bytes of a cache line.
const LINE: u32 = 64;
/// Where in a cache line a buffer begins: its frame, behind a header of 12 bytes, at the next one.
/// So a frame of 60 bytes is one line, and the header's, in which nearly always the same stands,
/// need not go from core to core.
const START: u32 = LINE - 12;

/// From one buffer to the next: an odd number of cache lines, since buffers a power of two apart
/// would all lie in a few sets of a cache, and a burst would drive itself out.
fn stride(bytes: u32) -> u64 {
    u64::from(((START + bytes).div_ceil(LINE) | 1) * LINE)
}

/// Bytes that so many buffers of so many bytes take.
pub(crate) fn bytes(size: u16, bytes: u32) -> usize {
    usize::from(size) * stride(bytes) as usize
}

/// As many buffers of one size as the ring has descriptors. A buffer's number is its place in
/// memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// Guest address of the first one.
    base: u64,
    stride: u64,
    pub(super) bytes: u32,
    /// They come back in the order in which they were offered: the circle is that of the numbers
    /// themselves, for ever.
    in_order: bool,
    /// A circle: first those that the device has, from `oldest` on, then the free ones.
    ids: Box<[u16]>,
    oldest: usize,
    offered: usize,
    /// Of those that the device has, how many are in a chain but not its first.
    linked: usize,
    /// For each that is the first of a chain which the device has: buffers in the chain. Of others
    /// that it has 0, and of those that it has not, too, where they come in any order.
    chains: Box<[u16]>,
    /// The next one in its chain.
    next: Box<[u16]>,
}

impl Buffers {
    /// All free, in memory of [`bytes`] that begins with a cache line at guest address `base`.
    pub(super) fn new(base: u64, bytes: u32, size: u16, in_order: bool) -> Self {
        let zeros = vec![0; size.into()].into_boxed_slice();
        Self {
            base: base + u64::from(START),
            stride: stride(bytes),
            bytes,
            in_order,
            ids: (0..size).collect(),
            oldest: 0,
            offered: 0,
            linked: 0,
            chains: zeros.clone(),
            next: zeros,
        }
    }

    #[inline(always)]
    pub(super) fn address(&self, id: u16) -> u64 {
        self.base + u64::from(id) * self.stride
    }

    /// The `count` that came back last, none of which was offered since.
    #[inline(always)]
    pub(super) fn last_back(&self, count: usize) -> impl Iterator<Item = u16> {
        let first = self.oldest + self.ids.len() - count;
        (first..first + count).map(|at| self.ids[self.around(at)])
    }

    pub(super) fn free(&self) -> usize {
        self.ids.len() - self.offered
    }

    pub(super) fn offered(&self) -> usize {
        self.offered
    }

    /// A place in the circle, from 0 to less than twice round.
    #[inline(always)]
    fn around(&self, at: usize) -> usize {
        if at >= self.ids.len() {
            at - self.ids.len()
        } else {
            at
        }
    }

    /// The free one after `index` others.
    #[inline(always)]
    pub(super) fn nth_free(&self, index: usize) -> u16 {
        let at = self.around(self.oldest + self.offered);
        self.ids[self.around(at + index)]
    }

    /// Puts up to `most` free ones into a batch, to be filled.
    #[inline(always)]
    pub(super) fn take_free(
        &self,
        memory: &Memory,
        batch: &mut Batch,
        most: usize,
    ) -> Result<(), Violation> {
        // A driver has one region, and all its buffers in it.
        let here = memory.at_hand(batch.last).ok_or(Violation::RingOutside)?;
        for index in 0..self.free().min(most) {
            let id = self.nth_free(index);
            batch.add_own(here, self.address(id), self.bytes, id);
        }
        Ok(())
    }

    /// The device gets the next `count` free buffers, as one chain.
    pub(super) fn offer(&mut self, count: u16) {
        let head = self.nth_free(0);
        for index in 1..usize::from(count) {
            let next = self.nth_free(index);
            self.next[usize::from(self.nth_free(index - 1))] = next;
            self.chains[usize::from(next)] = 0;
        }
        self.chains[usize::from(head)] = count;
        self.linked += usize::from(count) - 1;
        self.offered += usize::from(count);
    }

    /// The device gets the next free buffers, which are these, each by itself.
    #[inline(always)]
    pub(super) fn offer_each(&mut self, ids: impl ExactSizeIterator<Item = u16>) {
        self.offered += ids.len();
        for id in ids {
            self.chains[usize::from(id)] = 1;
        }
    }

    /// In order: how many the device got before this one that it has still.
    #[inline(always)]
    fn before(&self, id: u16) -> usize {
        let id = usize::from(id);
        let wrapped = if id < self.oldest { self.ids.len() } else { 0 };
        id.wrapping_add(wrapped).wrapping_sub(self.oldest)
    }

    /// Whether a chain that begins with this buffer is the device's.
    #[inline(always)]
    pub(super) fn is_offered(&self, id: u16) -> bool {
        let chain = self.chains.get(usize::from(id));
        chain.is_some_and(|&chain| chain > 0) && (!self.in_order || self.before(id) < self.offered)
    }

    /// The device gives a chain back; how many buffers it was.
    #[inline(always)]
    pub(super) fn release(&mut self, id: u16) -> Result<u16, Violation> {
        let chain = self.chains.get_mut(usize::from(id));
        let count = std::mem::take(chain.ok_or(Violation::DescriptorIndex)?);
        if CHECKED && count == 0 {
            return Err(Violation::DescriptorIndex);
        }
        let mut freed = id;
        for left in (0..count).rev() {
            // What stood there is the device's still, or this one; the order of those is of no
            // account where they need not come back in order.
            self.ids[self.oldest] = freed;
            self.oldest = self.around(self.oldest + 1);
            if left > 0 {
                freed = self.next[usize::from(freed)];
            }
        }
        self.linked -= usize::from(count) - 1;
        self.offered -= usize::from(count);
        Ok(count)
    }

    /// The device gives buffers back, each by itself; in order where that was agreed on.
    #[inline(always)]
    pub(super) fn release_each(
        &mut self,
        ids: impl ExactSizeIterator<Item = u16>,
    ) -> Result<(), Violation> {
        if !self.in_order {
            // The second time one stands among them, it fails.
            return ids
                .into_iter()
                .try_for_each(|id| self.release(id).map(drop));
        }
        let count = ids.len();
        let in_order = |(index, id): (usize, u16)| self.before(id) == index;
        if CHECKED && !(count <= self.offered && ids.enumerate().all(in_order)) {
            return Err(Violation::DescriptorIndex);
        }
        self.oldest = self.around(self.oldest + count);
        self.offered -= count;
        Ok(())
    }

    /// The device gives all chains back up to this one, in order (2.8.7); how many buffers.
    #[inline(always)]
    pub(super) fn release_up_to(&mut self, id: u16) -> Result<usize, Violation> {
        if CHECKED && !self.is_offered(id) {
            return Err(Violation::DescriptorIndex);
        }
        let before = self.before(id);
        let mut released = 0;
        while self.linked > 0 && released <= before {
            released += self.release_oldest()?;
        }
        let alone = (before + 1).saturating_sub(released);
        self.oldest = self.around(self.oldest + alone);
        self.offered -= alone;
        Ok(released + alone)
    }

    /// The device gives so many chains back, in order (2.7.9).
    #[inline(always)]
    pub(super) fn release_chains(&mut self, mut count: usize) -> Result<(), Violation> {
        while self.linked > 0 && count > 0 {
            self.release_oldest()?;
            count -= 1;
        }
        if CHECKED && count > self.offered {
            return Err(Violation::RingIndex);
        }
        self.oldest = self.around(self.oldest + count);
        self.offered -= count;
        Ok(())
    }

    /// The oldest chain comes back; how many buffers.
    #[cold]
    fn release_oldest(&mut self) -> Result<usize, Violation> {
        let count = usize::from(self.chains[self.oldest]);
        if count == 0 || count > self.offered {
            return Err(Violation::RingIndex);
        }
        self.oldest = self.around(self.oldest + count);
        self.linked -= count - 1;
        self.offered -= count;
        Ok(count)
    }
}
