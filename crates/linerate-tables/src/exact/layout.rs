//! What a bucket of whole cache lines looks like, for each size of key and value.
//!
//! ```text
//! K = 16, V = u32: one line, three entries
//! |  key 0  |  key 1  |  key 2  | v0 | v1 | v2 | tags | spilled |
//! 0        16        32        48   52   56   60     63        64
//! ```
//!
//! Keys first, then values, and at the very end a tag for each slot (0: free) and the count of
//! entries that belong here but live in their second bucket. So a hit reads one line for small
//! keys, and no second bucket is read for an absent key while nothing was spilled. Of a bucket of
//! several lines a lookup reads the last one, and those of a key whose tag fits.

use super::hash::TAKEN;
use linerate_core::arch::prefetch_read;
use std::hint::select_unpredictable;
use std::marker::PhantomData;

/// A cache line; arrays of them begin on a page.
pub(super) type Line = [u8; LINE];
/// Bytes of one.
pub(super) const LINE: usize = 64;

/// What a table may keep with a key: plain bytes that are copied in and out.
///
/// For anything larger, keep it in an array of your own and its index here.
pub trait Value: Copy {
    /// How many bytes it takes.
    const BYTES: usize;
    /// Writes it to the first [`BYTES`](Self::BYTES) bytes of `to`.
    fn store(self, to: &mut [u8]);
    /// Reads it back.
    fn load(from: &[u8]) -> Self;
}

impl Value for () {
    const BYTES: usize = 0;
    #[inline(always)]
    fn store(self, _: &mut [u8]) {}
    #[inline(always)]
    fn load(_: &[u8]) -> Self {}
}

impl<const N: usize> Value for [u8; N] {
    const BYTES: usize = N;
    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        to[..N].copy_from_slice(&self);
    }
    #[inline(always)]
    fn load(from: &[u8]) -> Self {
        let mut value = [0; N];
        value.copy_from_slice(&from[..N]);
        value
    }
}

/// An integer's bytes.
macro_rules! integer_value {
    ($($integer:ty),*) => {$(
        impl Value for $integer {
            const BYTES: usize = size_of::<Self>();
            #[inline(always)]
            fn store(self, to: &mut [u8]) {
                self.to_le_bytes().store(to);
            }
            #[inline(always)]
            fn load(from: &[u8]) -> Self {
                Self::from_le_bytes(Value::load(from))
            }
        }
    )*};
}
integer_value!(u8, u16, u32, u64);

/// Sizes and places in a bucket of keys of `K` bytes with values `V`.
pub(crate) struct Layout<const K: usize, V>(PhantomData<V>);

impl<const K: usize, V: Value> Layout<K, V> {
    const ENTRY: usize = {
        assert!(K >= 4 && K <= 64, "keys have 4 to 64 bytes");
        assert!(
            V::BYTES <= 64,
            "values have at most 64 bytes: keep an index to larger ones"
        );
        K + V::BYTES + 1
    };

    /// Lines of a bucket: the fewest that hold three entries, or eight if these waste less, as for
    /// keys as long as a line (seven in eight lines, where four hold three).
    pub(crate) const LINES: usize = {
        let few = (Self::ENTRY * 3 + 1).div_ceil(LINE);
        match Self::fit(8) * few > Self::fit(few) * 8 {
            true => 8,
            false => few,
        }
    };
    /// Bytes of a bucket.
    pub(super) const BYTES: usize = Self::LINES * LINE;
    /// Entries of a bucket: 3 to 7.
    pub(crate) const SLOTS: usize = Self::fit(Self::LINES);
    /// The last line's last eight bytes: tags, then the count of spilled entries.
    const SPILLED: usize = Self::BYTES - 1;
    const TAGS: usize = Self::SPILLED - Self::SLOTS;

    /// Entries that fit into some lines.
    const fn fit(lines: usize) -> usize {
        let fit = (lines * LINE - 1) / Self::ENTRY;
        if fit < 7 { fit } else { 7 }
    }

    #[inline(always)]
    fn value_at(slot: usize) -> usize {
        Self::SLOTS * K + slot * V::BYTES
    }

    /// The tag of a slot, 0 if it is free.
    #[inline(always)]
    pub(super) fn tag(bucket: &[u8], slot: usize) -> u8 {
        bucket[Self::TAGS + slot]
    }

    #[inline(always)]
    pub(crate) fn is_taken(bucket: &[u8], slot: usize) -> bool {
        Self::tag(bucket, slot) & TAKEN != 0
    }

    #[inline(always)]
    pub(super) fn key(bucket: &[u8], slot: usize) -> &[u8; K] {
        bucket[slot * K..]
            .first_chunk()
            .expect("keys lie within the bucket")
    }

    /// The key in a slot, or anything of the line with the tags if there is no such slot.
    #[inline(always)]
    pub(super) fn key_or_any(bucket: &[u8], slot: usize) -> &[u8; K] {
        let there = slot < Self::SLOTS;
        let at = select_unpredictable(there, slot * K, Self::BYTES - K);
        bucket[at..]
            .first_chunk()
            .expect("keys lie within the bucket")
    }

    #[inline(always)]
    pub(super) fn value(bucket: &[u8], slot: usize) -> V {
        V::load(&bucket[Self::value_at(slot)..])
    }

    /// The value in a slot, or anything if there is no such slot.
    #[inline(always)]
    pub(super) fn value_or_any(bucket: &[u8], slot: usize) -> V {
        // Where tags are long enough to be read as one value more, no slot has to be corrected.
        let one_more = const { (Self::SLOTS + 1) * V::BYTES + Self::SLOTS * K <= Self::BYTES };
        let last = if one_more {
            Self::SLOTS
        } else {
            Self::SLOTS - 1
        };
        Self::value(bucket, slot.min(last))
    }

    #[inline(always)]
    pub(super) fn set_value(bucket: &mut [u8], slot: usize, value: V) {
        value.store(&mut bucket[Self::value_at(slot)..]);
    }

    pub(super) fn put(bucket: &mut [u8], slot: usize, tag: u8, key: &[u8; K], value: V) {
        bucket[slot * K..][..K].copy_from_slice(key);
        Self::set_value(bucket, slot, value);
        bucket[Self::TAGS + slot] = tag;
    }

    pub(super) fn clear(bucket: &mut [u8], slot: usize) {
        bucket[Self::TAGS + slot] = 0;
    }

    /// Tags of all slots in the high bytes, the bytes below them zero; the spilled count is cut
    /// off.
    #[inline(always)]
    pub(crate) fn tags(bucket: &[u8]) -> u64 {
        let end = bucket[..Self::BYTES].last_chunk().expect("a line at least");
        (u64::from_le_bytes(*end) << 8) >> (64 - 8 * Self::SLOTS)
    }

    /// A slot that is free.
    #[inline(always)]
    pub(super) fn free(bucket: &[u8]) -> Option<usize> {
        let all = u64::MAX >> (64 - 8 * Self::SLOTS);
        let free = !Self::tags(bucket) & 0x8080_8080_8080_8080 & all;
        (free != 0).then(|| free.trailing_zeros() as usize / 8)
    }

    /// The highest bit of the byte of the first slot with this tag; above it there may be others,
    /// for slots that have it not.
    #[inline(always)]
    fn with_tag(bucket: &[u8], tag: u8) -> u64 {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = 0x8080_8080_8080_8080;
        let other = Self::tags(bucket) ^ (u64::from(tag) * ONES);
        other.wrapping_sub(ONES) & !other & (HIGHS >> (64 - 8 * Self::SLOTS))
    }

    /// The first slot with this tag; the number of slots if none has it.
    #[inline(always)]
    pub(super) fn slot(bucket: &[u8], tag: u8) -> usize {
        let none = 0x80 << (8 * Self::SLOTS);
        (Self::with_tag(bucket, tag) | none).trailing_zeros() as usize / 8
    }

    /// The slot that holds `key`: tags of all slots are compared at once, then keys whose tag fits.
    #[inline(always)]
    pub(super) fn find(bucket: &[u8], key: &[u8; K], tag: u8) -> Option<usize> {
        let mut fits = Self::with_tag(bucket, tag);
        while fits != 0 {
            let slot = fits.trailing_zeros() as usize / 8;
            if Self::tag(bucket, slot) == tag && Self::key(bucket, slot) == key {
                return Some(slot);
            }
            fits &= fits - 1;
        }
        None
    }

    /// Asks for all lines of a bucket.
    #[inline(always)]
    pub(super) fn fetch(bucket: &[u8]) {
        let lines = bucket.chunks_exact(LINE);
        lines.for_each(|line| prefetch_read(line.as_ptr()));
    }

    /// Asks for the line with the tags, which is the whole bucket if it has one.
    #[inline(always)]
    pub(super) fn fetch_tags(bucket: &[u8]) {
        prefetch_read(bucket[Self::BYTES - LINE..].as_ptr());
    }

    /// Asks for the other lines of the entry in a slot, if there is such a slot.
    #[inline(always)]
    pub(super) fn fetch_entry(bucket: &[u8], slot: usize) {
        if Self::LINES == 1 {
            return;
        }
        let there = |at| select_unpredictable(slot < Self::SLOTS, at, Self::SPILLED);
        prefetch_read(bucket[there(slot * K)..].as_ptr());
        if !LINE.is_multiple_of(K) {
            prefetch_read(bucket[there(slot * K + K - 1)..].as_ptr());
        }
        if Self::SLOTS * (V::BYTES + 1) >= LINE {
            prefetch_read(bucket[there(Self::value_at(slot))..].as_ptr());
        }
    }

    /// Whether entries that belong here live in their second bucket.
    #[inline(always)]
    pub(super) fn has_spilled(bucket: &[u8]) -> bool {
        bucket[Self::SPILLED] != 0
    }

    pub(super) fn spilled(bucket: &[u8]) -> u8 {
        bucket[Self::SPILLED]
    }

    pub(super) fn set_spilled(bucket: &mut [u8], count: u8) {
        bucket[Self::SPILLED] = count;
    }
}
