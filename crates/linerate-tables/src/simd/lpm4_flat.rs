//! The flat array beside an IPv4 lookup table: a leaf of 16 bits for each /24, so that most lookups
//! are one load (DIR-24-8 without the 8: what is longer than /24 is asked of the compact table).
//!
//! A leaf below [`BY_NUMBER`] is the next hop itself. Others name one by its number in the compact
//! table; number 0 is nobody's, and says that the compact table has to be asked. Which of the two
//! is faster depends on the traffic: see `lpm::v4::choice`.

use linerate_core::MemError;
use linerate_core::env::Isa;
use linerate_core::mem::HugeArray;

/// Leaves from here on are numbers of next hops, and not next hops.
const BY_NUMBER: u16 = 1 << 15;
/// A leaf that leads nowhere: the compact table has to be asked.
pub(super) const ASK: u16 = BY_NUMBER;
/// Bits of an address that choose the leaf.
const BITS: u32 = 24;
/// Leaves of a VRF.
pub(crate) const LEAVES: usize = 1 << BITS;
/// What vectors of 32-bit words read beyond the last leaf.
const BEYOND: usize = 2;
/// The least that a table of next hops by number has.
const NUMBERS: usize = BY_NUMBER as usize;

/// Looks up addresses in the leaves of one VRF, with the next hops by number.
type Kernel = fn(&[u16], &[u32], &[u32], &mut [u32]);

/// The leaves of the first VRFs.
pub(super) struct Flat {
    /// [`LEAVES`] for each VRF, and [`BEYOND`].
    leaves: HugeArray<u16>,
    vrfs: usize,
    kernel: Kernel,
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
    /// An array for so many VRFs, each with the same leaf everywhere.
    pub(super) fn new(
        vrfs: usize,
        leaf: impl Fn(usize) -> u16,
        isa: Isa,
    ) -> Result<Self, MemError> {
        let at = |index: usize| leaf(index >> BITS);
        Ok(Self {
            leaves: HugeArray::from_fn("lpm4 flat", vrfs * LEAVES + BEYOND, at)?,
            vrfs,
            kernel: pick(isa),
        })
    }

    pub(super) fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            leaves: self.leaves.copy("lpm4 flat")?,
            ..*self
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.leaves)
    }

    pub(super) fn vrfs(&self) -> usize {
        self.vrfs
    }

    /// Writes the leaves of 64 neighbouring /24s, the `block`-th.
    pub(super) fn set(&mut self, block: usize, leaves: &[u16; 64]) {
        self.leaves[block * 64..][..64].copy_from_slice(leaves);
    }

    /// The next hops of a VRF that there is; `by_number[0]` where the compact table has to be
    /// asked.
    ///
    /// # Panics
    /// If there is no such VRF, if the slices differ in length, or if there are too few numbers.
    #[inline]
    pub(super) fn bulk(&self, vrf: usize, by_number: &[u32], addresses: &[u32], hops: &mut [u32]) {
        assert!(vrf < self.vrfs && addresses.len() == hops.len() && by_number.len() >= NUMBERS);
        let leaves = &self.leaves[vrf * LEAVES..][..LEAVES + BEYOND];
        (self.kernel)(leaves, by_number, addresses, hops);
    }
}

#[inline(always)]
fn scalar(leaves: &[u16], by_number: &[u32], addresses: &[u32], hops: &mut [u32]) {
    for (&address, hop) in addresses.iter().zip(hops) {
        let leaf = leaves[(address >> 8) as usize];
        *hop = match leaf < BY_NUMBER {
            true => leaf.into(),
            false => by_number[usize::from(leaf & !BY_NUMBER)],
        };
    }
}

fn pick(isa: Isa) -> Kernel {
    match isa.available() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => x86::v4,
        _ => scalar,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BY_NUMBER, LEAVES, NUMBERS};
    use std::arch::x86_64::*;

    const LANES: usize = 16;

    pub(super) fn v4(leaves: &[u16], by_number: &[u32], addresses: &[u32], hops: &mut [u32]) {
        assert!(leaves.len() > LEAVES && by_number.len() >= NUMBERS);
        // SAFETY: `pick` gives this out where the CPU has AVX-512 F, BW, CD, DQ and VL; the lengths
        // were checked.
        unsafe { avx512(leaves, by_number, addresses, hops) }
    }

    /// # Safety
    /// There are more than `LEAVES` leaves, and `NUMBERS` next hops by number.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512(leaves: &[u16], by_number: &[u32], addresses: &[u32], hops: &mut [u32]) {
        let low_half = _mm512_set1_epi32(0xffff);
        let far_bit = _mm512_set1_epi32(i32::from(BY_NUMBER as i16) & 0xffff);
        let (many, addresses) = addresses.as_chunks::<LANES>();
        let (many_hops, hops) = hops.as_chunks_mut::<LANES>();
        for (addresses, hops) in many.iter().zip(many_hops) {
            // SAFETY: 64 bytes are read from 16 words.
            let addresses = unsafe { _mm512_loadu_si512(addresses.as_ptr().cast()) };
            let index = _mm512_srli_epi32::<8>(addresses);
            // SAFETY: 24-bit indices of elements of 2 bytes, of which 4 are read: within one leaf
            // more than `LEAVES`.
            let words = unsafe { _mm512_i32gather_epi32::<2>(index, leaves.as_ptr().cast()) };
            let mut found = _mm512_and_si512(words, low_half);
            let far = _mm512_test_epi32_mask(found, far_bit);
            if far != 0 {
                let number = _mm512_andnot_si512(far_bit, found);
                let table = by_number.as_ptr().cast();
                // SAFETY: numbers have 15 bits, and there are as many next hops.
                found = unsafe { _mm512_mask_i32gather_epi32::<4>(found, far, number, table) };
            }
            // SAFETY: 64 bytes are written to 16 words.
            unsafe { _mm512_storeu_si512(hops.as_mut_ptr().cast(), found) };
        }
        super::scalar(leaves, by_number, addresses, hops);
    }
}
