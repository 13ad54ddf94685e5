//! What a driver knows of its own buffers: which of them the device has, in which order it got
//! them, and which are linked to one chain. Nothing of this is in memory that the device writes.

use super::Violation;

/// As many buffers of one size as the ring has descriptors. A buffer's number is its place in
/// memory.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    /// Guest address of the first one.
    base: u64,
    pub(super) bytes: u32,
    /// A circle: first those that the device has, from `oldest` on, then the free ones.
    ids: Box<[u16]>,
    oldest: usize,
    offered: usize,
    /// For each that is the first of a chain which the device has: buffers in the chain. Else 0.
    chains: Box<[u16]>,
    /// The next one in its chain.
    next: Box<[u16]>,
}

impl Buffers {
    /// All free.
    pub(super) fn new(base: u64, bytes: u32, size: u16) -> Self {
        let zeros = vec![0; size.into()].into_boxed_slice();
        Self {
            base,
            bytes,
            ids: (0..size).collect(),
            oldest: 0,
            offered: 0,
            chains: zeros.clone(),
            next: zeros,
        }
    }

    #[inline(always)]
    pub(super) fn address(&self, id: u16) -> u64 {
        self.base + u64::from(id) * u64::from(self.bytes)
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

    /// The device gets the next `count` free buffers, as one chain.
    #[inline(always)]
    pub(super) fn offer(&mut self, count: u16) {
        let head = self.nth_free(0);
        if count > 1 {
            for index in 1..usize::from(count) {
                self.next[usize::from(self.nth_free(index - 1))] = self.nth_free(index);
            }
        }
        self.chains[usize::from(head)] = count;
        self.offered += usize::from(count);
    }

    /// Whether a chain that begins with this buffer is the device's.
    #[inline(always)]
    pub(super) fn is_offered(&self, id: u16) -> bool {
        self.chains
            .get(usize::from(id))
            .is_some_and(|&chain| chain > 0)
    }

    /// The oldest one that the device has.
    pub(super) fn oldest(&self) -> u16 {
        self.ids[self.oldest]
    }

    /// The device gives a chain back; how many buffers it was.
    #[inline(always)]
    pub(super) fn release(&mut self, id: u16) -> Result<u16, Violation> {
        let chain = self.chains.get_mut(usize::from(id));
        let count = std::mem::take(chain.ok_or(Violation::DescriptorIndex)?);
        if count == 0 {
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
        self.offered -= usize::from(count);
        Ok(count)
    }

    /// The device gives all chains back up to this one, in order (2.7.9, 2.8.7); how many buffers.
    #[inline(always)]
    pub(super) fn release_up_to(&mut self, id: u16) -> Result<usize, Violation> {
        if !self.is_offered(id) {
            return Err(Violation::DescriptorIndex);
        }
        let mut released = 0;
        loop {
            let head = self.release_oldest();
            released += usize::from(head.1);
            if head.0 == id || self.offered == 0 {
                return Ok(released);
            }
        }
    }

    /// The oldest chain comes back: its first buffer, and how many.
    #[inline(always)]
    pub(super) fn release_oldest(&mut self) -> (u16, u16) {
        let head = self.ids[self.oldest];
        let count = std::mem::take(&mut self.chains[usize::from(head)]);
        self.oldest = self.around(self.oldest + usize::from(count));
        self.offered -= usize::from(count);
        (head, count)
    }
}
