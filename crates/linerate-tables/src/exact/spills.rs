//! From which buckets entries spilled, a bit for each: what lookups in a table beyond the caches
//! read before any bucket, so that second buckets that they may need come with the first ones.

/// A bit for each bucket, which is set while its count of spilled entries is not 0.
pub(super) struct Spills(Vec<u64>);

impl Spills {
    /// For at most `buckets`.
    pub(super) fn new(buckets: u32) -> Self {
        Self(vec![0; buckets.div_ceil(64) as usize])
    }

    #[inline(always)]
    pub(super) fn has(&self, bucket: u32) -> bool {
        self.0[(bucket / 64) as usize] >> (bucket % 64) & 1 != 0
    }

    pub(super) fn set(&mut self, bucket: u32, spilled: bool) {
        let word = &mut self.0[(bucket / 64) as usize];
        *word = *word & !(1 << (bucket % 64)) | u64::from(spilled) << (bucket % 64);
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
