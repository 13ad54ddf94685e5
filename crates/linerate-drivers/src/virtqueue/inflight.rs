//! What a device has under way, in memory that outlives it: the region of `GET_INFLIGHT_FD`, laid
//! out as vhost-user says ("Inflight I/O tracking"), so that any back end can take over from any
//! other.
//!
//! This is the memory itself; what a ring of either kind writes there is in `split/record.rs` and
//! `packed/record.rs`. The front end keeps it, and may write anything to it at any time: each word
//! is loaded once and checked.

use super::Violation;
use linerate_core::mem::Untrusted;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Each queue's part begins at a multiple of this.
const ALIGNMENT: usize = 64;
/// Of both layouts, behind 8 bytes of features (none are known).
pub(super) const VERSION: usize = 8;
pub(super) const DESC_NUM: usize = 10;
/// What stands there once the part is in use; 0 before.
pub(super) const CURRENT: u16 = 1;

/// Bytes of one queue's part.
pub(crate) fn bytes(packed: bool, size: u16) -> usize {
    let [head, each] = match packed {
        true => [super::packed::record::HEAD, super::packed::record::ENTRY],
        false => [super::split::record::HEAD, super::split::record::ENTRY],
    };
    (head + each * usize::from(size)).next_multiple_of(ALIGNMENT)
}

/// One queue's part.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    mapped: Arc<Untrusted>,
    at: usize,
}

impl Area {
    /// The part of a queue of `size` entries, in a region for queues of `most`; `None` where the
    /// region is too short for it.
    pub(crate) fn new(
        mapped: Arc<Untrusted>,
        index: usize,
        packed: bool,
        size: u16,
        most: u16,
    ) -> Option<Self> {
        let at = index.checked_mul(bytes(packed, most))?;
        mapped.window(at, bytes(packed, size))?;
        Some(Self { mapped, at })
    }

    pub(super) fn u8(&self, at: usize) -> Result<Field<'_, AtomicU8>, Violation> {
        first(self.mapped.u8s(self.at + at, 1))
    }

    pub(super) fn u16(&self, at: usize) -> Result<Field<'_, AtomicU16>, Violation> {
        first(self.mapped.u16s(self.at + at, 1))
    }

    pub(super) fn u32(&self, at: usize) -> Result<Field<'_, AtomicU32>, Violation> {
        first(self.mapped.u32s(self.at + at, 1))
    }

    pub(super) fn u64(&self, at: usize) -> Result<Field<'_, AtomicU64>, Violation> {
        first(self.mapped.u64s(self.at + at, 1))
    }
}

/// What a device knows of its queue's part.
#[derive(Debug)]
pub(crate) struct Inflight {
    pub(super) area: Area,
    /// Entries.
    pub(super) size: u16,
    /// By which chains are ordered.
    pub(super) counter: u64,
    /// What an earlier device left under way, in the order in which it took it: numbers of entries.
    pub(super) left: VecDeque<u16>,
    /// The entries of the chains that are being given.
    pub(super) giving: Vec<u16>,
}

impl Inflight {
    pub(super) fn new(area: Area, size: u16) -> Self {
        Self {
            area,
            size,
            counter: 0,
            left: VecDeque::new(),
            giving: Vec::new(),
        }
    }

    /// What it lies in.
    pub(super) fn file(&self) -> &Arc<Untrusted> {
        &self.area.mapped
    }

    /// Whether an earlier device left something that was not done since.
    pub(crate) fn is_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// The number of an entry, if it is one.
    pub(super) fn entry(&self, number: u16) -> Result<u16, Violation> {
        match number < self.size {
            true => Ok(number),
            false => Err(Violation::RegionBad),
        }
    }

    /// Finds what is marked as under way: `entry` says where the mark is and where the counter.
    pub(super) fn find(&mut self, entry: impl Fn(u16) -> [usize; 2]) -> Result<(), Violation> {
        let mut found = Vec::new();
        for number in 0..self.size {
            let [mark, counter] = entry(number);
            if self.area.u8(mark)?.get() == 1 {
                found.push((self.area.u64(counter)?.get(), number));
            }
        }
        found.sort_unstable();
        self.counter = found.last().map_or(0, |last| last.0.wrapping_add(1));
        self.left = found.into_iter().map(|(_, number)| number).collect();
        Ok(())
    }
}

fn first<T>(found: Option<&[T]>) -> Result<Field<'_, T>, Violation> {
    match found {
        Some([field, ..]) => Ok(Field(field)),
        _ => Err(Violation::RegionBad),
    }
}

/// One field. What was stored before is there when a later store is, whenever the process ends.
pub(super) struct Field<'a, T>(&'a T);

macro_rules! field {
    ($atomic:ty, $number:ty) => {
        impl Field<'_, $atomic> {
            pub(super) fn get(&self) -> $number {
                self.0.load(Ordering::Acquire)
            }

            pub(super) fn set(&self, value: $number) {
                #[cfg(test)]
                super::tests::inflight::may_die();
                self.0.store(value, Ordering::Release);
            }
        }
    };
}

field!(AtomicU8, u8);
field!(AtomicU16, u16);
field!(AtomicU32, u32);
field!(AtomicU64, u64);
