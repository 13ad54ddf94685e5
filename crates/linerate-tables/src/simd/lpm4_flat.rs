//! The flat array beside an IPv4 lookup table: a leaf of 16 bits for each /24, so that most lookups
//! are one load (DIR-24-8 without the 8: what is longer than /24 is asked of the compact table).
//!
//! A leaf below [`BY_NUMBER`] is the next hop itself. Others name one by its number in the compact
//! table; number 0 is nobody's, and says that the compact table has to be asked. Which of the two
//! is faster depends on the traffic: see `lpm::v4::choice`.
//!
//! All leaves of a burst are asked for before the first is loaded: a load that waits for memory
//! keeps those behind it from starting, a prefetch does not. Then they are loaded one by one, which
//! takes less than gathers do even where all are in the first-level cache.

use linerate_core::MemError;
use linerate_core::arch::prefetch_read;
use linerate_core::mem::HugeArray;

/// Leaves from here on are numbers of next hops, and not next hops.
const BY_NUMBER: u16 = 1 << 15;
/// A leaf that leads nowhere: the compact table has to be asked.
pub(super) const ASK: u16 = BY_NUMBER;
/// Bits of an address that choose the leaf.
const BITS: u32 = 24;
/// Leaves of a VRF.
pub(crate) const LEAVES: usize = 1 << BITS;
/// The least that a table of next hops by number has.
const NUMBERS: usize = BY_NUMBER as usize;

/// The leaves of a VRF.
pub(super) struct Flat {
    /// [`LEAVES`] of them.
    leaves: HugeArray<u16>,
}

/// The leaf of a next hop that has this number; `fixed` if the number stays and the next hop
/// changes.
pub(super) fn leaf(number: usize, hop: u32, fixed: bool) -> u16 {
    match u16::try_from(hop) {
        Ok(hop) if hop < BY_NUMBER && !fixed => hop,
        _ if number < NUMBERS => BY_NUMBER | number as u16,
        _ => ASK,
    }
}

impl Flat {
    /// An array with the same leaf everywhere.
    pub(super) fn new(leaf: u16) -> Result<Self, MemError> {
        Ok(Self {
            leaves: HugeArray::filled("lpm4 flat", LEAVES, leaf)?,
        })
    }

    pub(super) fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            leaves: self.leaves.copy("lpm4 flat")?,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.leaves)
    }

    /// Leaves of neighbouring /24s, from the `first`-th on.
    pub(super) fn leaves(&mut self, first: usize, count: usize) -> &mut [u16] {
        &mut self.leaves[first..][..count]
    }

    /// The next hops; `by_number[0]` where the compact table has to be asked. Returns whether any
    /// was found by its number.
    ///
    /// # Panics
    /// If there are too few numbers.
    #[inline]
    pub(super) fn bulk(&self, by_number: &[u32], addresses: &[u32], hops: &mut [u32]) -> bool {
        // Arrays of known length: no index that is shifted or masked so is checked again.
        let leaves: Option<&[u16; LEAVES]> = self.leaves.first_chunk();
        let by_number: Option<&[u32; NUMBERS]> = by_number.first_chunk();
        let (Some(leaves), Some(by_number)) = (leaves, by_number) else {
            panic!("a flat array has {LEAVES} leaves, and {NUMBERS} next hops by number");
        };
        for &address in addresses {
            prefetch_read(&raw const leaves[(address >> 8) as usize]);
        }
        let mut all = 0;
        for (&address, hop) in addresses.iter().zip(&mut *hops) {
            let leaf = leaves[(address >> 8) as usize];
            all |= leaf;
            *hop = leaf.into();
        }
        let any = all & BY_NUMBER != 0;
        if any {
            let near = u32::from(BY_NUMBER);
            for hop in hops {
                // Both, to avoid an unpredictable branch.
                let found = by_number[(*hop & (near - 1)) as usize];
                *hop = if *hop < near { *hop } else { found };
            }
        }
        any
    }
}
