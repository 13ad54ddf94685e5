//! Which of the numbers that a burst's packets were given are equal to one of them.

use linerate_core::env::Isa;
use linerate_core::packet::Burst;

use crate::parse::Mask;

/// The positions of a value.
pub(crate) type Equal = fn(&[u32; Burst::CAPACITY], u32) -> Mask;

/// The kernel for this level.
pub(crate) fn pick(isa: Isa) -> Equal {
    match isa.available() {
        // SAFETY: the CPU has what the level stands for: `available` says no more than it has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => |values, value| unsafe { x86::avx512(values, value) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => |values, value| unsafe { x86::avx2(values, value) },
        _ => baseline,
    }
}

fn baseline(values: &[u32; Burst::CAPACITY], value: u32) -> Mask {
    let bits = values.iter().enumerate();
    bits.fold(0, |mask, (at, &other)| {
        mask | Mask::from(other == value) << at
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Burst, Mask};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(values: &[u32; Burst::CAPACITY], value: u32) -> Mask {
        let wanted = _mm512_set1_epi32(value as i32);
        let mut mask = 0;
        for (group, sixteen) in values.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: sixteen words.
            let lanes = unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) };
            let equal = _mm512_cmpeq_epi32_mask(lanes, wanted);
            mask |= Mask::from(equal) << (16 * group);
        }
        mask
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(values: &[u32; Burst::CAPACITY], value: u32) -> Mask {
        let wanted = _mm256_set1_epi32(value as i32);
        let mut mask = 0;
        for (group, eight) in values.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: eight words.
            let lanes = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
            let equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(lanes, wanted));
            mask |= Mask::from(_mm256_movemask_ps(equal) as u8) << (8 * group);
        }
        mask
    }
}
