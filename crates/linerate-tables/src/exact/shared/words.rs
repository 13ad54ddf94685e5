//! The words that the writer and the readers share, and the order in which they are touched.
//!
//! ```text
//! word 0        how often an entry that belongs here moved (56 bits) | spilled entries (8 bits)
//! words 1 to 3  for each slot: how often it changed (56 bits) | its tag (8 bits, 0: free)
//! then, for each slot: the key in words of 8 bytes, the value
//! ```
//!
//! A slot is filled while it is free, and its tag is stored last (release). It is emptied by
//! storing a tag of 0. Its count of changes goes up both times, so a reader that loads the slot's
//! word, the key, the value and the slot's word again, and finds it as it was, has seen them whole.
//! An emptied slot is simply not there: nothing has to be waited for.
//!
//! A move puts an entry into its other bucket, then counts in word 0 of its first bucket, then
//! empties the slot that it had. So a reader that finds a key nowhere looks at word 0 of the key's
//! first bucket again, and at the number of buckets (which a split publishes between the same two
//! steps). If all is as it was when it began, the key was not there. This is the whole protocol.

use super::super::hash::KeyedHash;
use super::super::layout::Value;
use super::super::spread::Spread;
use crate::TableError;
use crate::sync::{self, AtomicU64, Ordering, Words, at, fence_at};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Entries of a bucket.
pub(super) const SLOTS: usize = 3;
/// Words before the first key.
const HEAD: usize = 1 + SLOTS;
/// Words of a segment at most: 2 MiB.
const SEGMENT_WORDS: usize = (2 << 20) / 8;

/// A table as both sides hold it.
pub(super) struct Shared<const K: usize, V> {
    pub(super) name: String,
    pub(super) limit: usize,
    pub(super) hash: KeyedHash,
    base: u32,
    /// The number of buckets at the limit.
    pub(super) most: u32,
    /// The spread, packed.
    spread: AtomicU64,
    segments: Box<[OnceLock<Words>]>,
    /// Buckets of a segment are two to this power.
    shift: u32,
    values: PhantomData<fn() -> V>,
}

impl<const K: usize, V: Value> Shared<K, V> {
    const KEY_WORDS: usize = K.div_ceil(8);
    /// Words of a bucket: whole cache lines.
    const WORDS: usize = {
        assert!(K >= 4 && K <= 64, "keys have 4 to 64 bytes");
        assert!(
            V::BYTES <= 8,
            "shared values have at most 8 bytes: keep an index to larger ones"
        );
        (HEAD + SLOTS * (Self::KEY_WORDS + 1)).next_multiple_of(8)
    };

    pub(super) fn new(
        name: &str,
        limit: usize,
        hash: KeyedHash,
        base: u32,
        most: u32,
    ) -> Result<Self, TableError> {
        let large = (SEGMENT_WORDS / Self::WORDS.next_power_of_two()) as u32;
        let each = most.next_power_of_two().min(large);
        let shared = Self {
            name: name.into(),
            limit,
            hash,
            base,
            most,
            spread: AtomicU64::new(Spread::new(base).packed()),
            segments: (0..most.div_ceil(each)).map(|_| OnceLock::new()).collect(),
            shift: each.trailing_zeros(),
            values: PhantomData,
        };
        shared.reach(base)?;
        Ok(shared)
    }

    /// Maps segments until there are `buckets`; only the writer does.
    pub(super) fn reach(&self, buckets: u32) -> Result<(), TableError> {
        let last = ((buckets - 1) >> self.shift) as usize;
        for (index, segment) in self.segments[..=last].iter().enumerate() {
            if segment.get().is_none() {
                let more = (self.most - ((index as u32) << self.shift)).min(1 << self.shift);
                let words = sync::words(&self.name, more as usize * Self::WORDS)?;
                assert!(segment.set(words).is_ok(), "there is one writer");
            }
        }
        Ok(())
    }

    /// How many buckets there are, for a reader.
    #[inline(always)]
    pub(super) fn spread(&self) -> Spread {
        let packed = self.spread.load(at("exact.spread.read", Ordering::Acquire));
        Spread::unpacked(self.base, packed)
    }

    /// Tells readers of a new bucket.
    pub(super) fn publish(&self, spread: &Spread) {
        let order = at("exact.spread", Ordering::Release);
        self.spread.store(spread.packed(), order);
    }

    /// A bucket that the spread names.
    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> Bucket<'_, K, V> {
        let segment = self.segments[(bucket >> self.shift) as usize].get();
        let segment = segment.expect("segments are mapped before the spread names their buckets");
        let within = (bucket & ((1 << self.shift) - 1)) as usize * Self::WORDS;
        Bucket {
            words: &segment[within..within + Self::WORDS],
            values: PhantomData,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let mapped = self.segments.iter().filter_map(OnceLock::get);
        let mapped: usize = mapped.map(sync::words_bytes).sum();
        mapped + size_of::<Self>() + size_of_val(&*self.segments)
    }
}

/// The words of one bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a, const K: usize, V> {
    pub(super) words: &'a [AtomicU64],
    values: PhantomData<fn() -> V>,
}

/// What a reader found in a bucket.
pub(super) enum Seen<V> {
    Value(V),
    Nothing,
    /// A slot changed while it was read.
    Changed,
}

impl<const K: usize, V: Value> Bucket<'_, K, V> {
    const KEY_WORDS: usize = K.div_ceil(8);

    fn key_at(slot: usize) -> usize {
        HEAD + slot * (Self::KEY_WORDS + 1)
    }

    fn value_word(&self, slot: usize) -> &AtomicU64 {
        &self.words[Self::key_at(slot) + Self::KEY_WORDS]
    }

    // --- readers

    /// Word 0, before the slots are looked at.
    #[inline(always)]
    pub(super) fn head(&self) -> u64 {
        self.words[0].load(at("exact.head", Ordering::Acquire))
    }

    /// Word 0 again, after a fence.
    #[inline(always)]
    pub(super) fn head_again(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed)
    }

    /// Looks for a key.
    #[inline(always)]
    pub(super) fn look(&self, key: &[u8; K], tag: u8) -> Seen<V> {
        let before: [u64; SLOTS] = std::array::from_fn(|slot| {
            self.words[1 + slot].load(at("exact.slot", Ordering::Acquire))
        });
        // All tags before the first branch: which slot it is nobody can predict.
        let fits = (0..SLOTS).map(|slot| u32::from(before[slot] as u8 == tag) << slot);
        let mut fits = fits.fold(0, |fits, slot| fits | slot);
        while fits != 0 {
            let slot = fits.trailing_zeros() as usize;
            fits &= fits - 1;
            if !self.holds(slot, key) {
                continue;
            }
            let value = self.value_word(slot).load(Ordering::Acquire);
            fence_at("exact.whole", Ordering::Acquire);
            if self.words[1 + slot].load(Ordering::Relaxed) != before[slot] {
                return Seen::Changed;
            }
            return Seen::Value(V::load(&value.to_le_bytes()));
        }
        Seen::Nothing
    }

    #[inline(always)]
    fn holds(&self, slot: usize, key: &[u8; K]) -> bool {
        let words = &self.words[Self::key_at(slot)..][..Self::KEY_WORDS];
        let differ = words
            .iter()
            .zip(words_of(key))
            .fold(0, |differ, (word, wanted)| {
                differ | (word.load(Ordering::Relaxed) ^ wanted)
            });
        differ == 0
    }

    // --- the writer, which alone stores: its own loads are always of what it stored last

    pub(super) fn is_taken(&self, slot: usize) -> bool {
        self.words[1 + slot].load(Ordering::Relaxed) as u8 != 0
    }

    pub(super) fn find_settled(&self, key: &[u8; K], tag: u8) -> Option<usize> {
        (0..SLOTS).find(|&slot| {
            self.words[1 + slot].load(Ordering::Relaxed) as u8 == tag && self.holds(slot, key)
        })
    }

    pub(super) fn key(&self, slot: usize) -> [u8; K] {
        let mut bytes = [0; 64];
        let words = &self.words[Self::key_at(slot)..][..Self::KEY_WORDS];
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        *bytes.first_chunk().expect("keys have at most 64 bytes")
    }

    pub(super) fn value(&self, slot: usize) -> V {
        V::load(&self.value_word(slot).load(Ordering::Relaxed).to_le_bytes())
    }

    /// Fills a free slot.
    pub(super) fn put(&self, slot: usize, tag: u8, key: &[u8; K], value: V) {
        let word = &self.words[1 + slot];
        let emptied = word.load(Ordering::Relaxed);
        // Whoever sees a part of the new key or value also sees that the slot was emptied.
        fence_at("exact.reuse", Ordering::Release);
        let keys = &self.words[Self::key_at(slot)..][..Self::KEY_WORDS];
        for (word, part) in keys.iter().zip(words_of(key)) {
            word.store(part, Ordering::Relaxed);
        }
        self.value_word(slot)
            .store(word_of(value), Ordering::Relaxed);
        let filled = (emptied & !0xff).wrapping_add(0x100) | u64::from(tag);
        word.store(filled, at("exact.fill", Ordering::Release));
    }

    /// Changes the value in a slot; returns the one before.
    pub(super) fn replace(&self, slot: usize, value: V) -> V {
        let old = self.value(slot);
        self.value_word(slot)
            .store(word_of(value), Ordering::Release);
        old
    }

    /// Empties a slot. If the entry moved, it is there and the move is marked by now.
    pub(super) fn clear(&self, slot: usize) {
        let word = &self.words[1 + slot];
        let emptied = (word.load(Ordering::Relaxed) & !0xff).wrapping_add(0x100);
        word.store(emptied, at("exact.empty", Ordering::Release));
    }

    pub(super) fn spilled(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed) & 0xff
    }

    /// Counts entries that belong here and live elsewhere, and that something happened. 255 means:
    /// nobody knows how many.
    pub(super) fn add_spilled(&self, more: i64) {
        let head = self.words[0].load(Ordering::Relaxed);
        let spilled = match head & 0xff {
            0xff => 0xff,
            count => count.saturating_add_signed(more).min(0xff),
        };
        let next = (head & !0xff).wrapping_add(0x100) | spilled;
        self.words[0].store(next, at("exact.came", Ordering::Release));
    }
}

/// A key in words, zeros beyond its end.
#[inline(always)]
fn words_of<const K: usize>(key: &[u8; K]) -> impl Iterator<Item = u64> + '_ {
    key.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    })
}

fn word_of<V: Value>(value: V) -> u64 {
    let mut word = [0; 8];
    value.store(&mut word);
    u64::from_le_bytes(word)
}
