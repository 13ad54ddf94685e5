//! A burst taken apart by masks of positions: a sub-burst for each way that its packets go.

use super::Burst;

/// The packets of a burst, each to be taken once, by its position in it: see [`Burst::parts`].
///
/// What has not been taken when this is dropped is in the burst again, in order.
pub struct Parts<'a> {
    /// Its length is 0 meanwhile: should this value be leaked, its packets are lost, and in no two
    /// places.
    burst: &'a mut Burst,
    /// Positions that nobody has taken; all of them hold packets.
    left: u64,
}

impl Burst {
    /// Takes the burst apart. Positions keep their numbers until the last packet is taken.
    ///
    /// ```
    /// use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
    /// let pool = Pool::new(&PoolConfig::new("rx", 256))?;
    /// let mut cache = PoolCache::new(&[pool.clone()]);
    /// let (mut burst, mut odd) = (Burst::new(), Burst::new());
    /// cache.fill(&pool, &mut burst, 5);
    /// burst.parts().take(0b01010, &mut odd);
    /// assert_eq!((burst.len(), odd.len()), (3, 2));
    /// # cache.free(&mut burst);
    /// # cache.free(&mut odd);
    /// # Ok::<(), linerate_core::MemError>(())
    /// ```
    #[inline(always)]
    pub fn parts(&mut self) -> Parts<'_> {
        let left = self.mask();
        self.len = 0;
        Parts { burst: self, left }
    }
}

impl Parts<'_> {
    /// The positions that nobody has taken.
    #[inline(always)]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Moves the packets at the positions of `mask`, those that are left, to the end of `to`, in
    /// order, as many as it has room for.
    #[inline]
    pub fn take(&mut self, mask: u64, to: &mut Burst) {
        let mut taken = mask & self.left;
        if taken.count_ones() as usize > to.room() {
            taken = lowest(taken, to.room());
        }
        self.left &= !taken;
        let (from, spare) = (&self.burst.handles, &mut to.handles[to.len as usize..]);
        let mut count = 0;
        for (place, position) in spare.iter_mut().zip(positions(taken)) {
            *place = from[position];
            count += 1;
        }
        // There was room for all of them.
        to.len += count;
    }
}

/// What is left closes up.
impl Drop for Parts<'_> {
    #[inline]
    fn drop(&mut self) {
        for (place, position) in positions(self.left).enumerate() {
            // From behind, or onto itself.
            self.burst.handles[place] = self.burst.handles[position];
        }
        self.burst.len = self.left.count_ones();
    }
}

/// The positions of a mask, in order.
#[inline(always)]
fn positions(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (position < Burst::CAPACITY).then_some(position)
    })
}

/// The lowest `count` positions of a mask.
#[cold]
fn lowest(mask: u64, count: usize) -> u64 {
    positions(mask)
        .take(count)
        .fold(0, |lowest, position| lowest | 1 << position)
}
