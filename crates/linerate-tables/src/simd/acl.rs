//! Access list kernels: the bits that a node picks, and the lanes of a block that match, for each
//! level of instructions; around them [`lookup`] is compiled for that level too.

use linerate_core::env::Isa;

use crate::acl::block::{Block, LANES, RUN_GOES_ON};
use crate::acl::key::{HAS_ICMP, HAS_PORTS, PacketKey};
use crate::acl::lookup::{self, CATEGORIES, GROUP, Level};
use crate::acl::rules::Rules;
use crate::acl::tree::Trees;
use crate::acl::window::extract;

/// A group of packets, and how many of them count.
type Packets<'a, const W: usize, const N: usize = GROUP> = (&'a [PacketKey<W>; N], usize);
/// As [`lookup::winners`].
type Winners<const W: usize, const N: usize> =
    fn(&Trees<W>, &Rules<W>, Packets<W, N>, &mut [u32; N]);
/// As [`lookup::winners_by_category`].
type ByCategory<const W: usize> =
    fn(&Trees<W>, &Rules<W>, Packets<W>, &mut [[u32; CATEGORIES]; GROUP]);

/// The kernels of one level.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<const W: usize> {
    pub(crate) winners: Winners<W, GROUP>,
    /// Of one packet.
    pub(crate) winner: Winners<W, 1>,
    pub(crate) by_category: ByCategory<W>,
}

impl<const W: usize> Kernels<W> {
    /// The best kernels of this level, which the CPU must have.
    pub(crate) fn pick(isa: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        match isa.available() {
            Isa::Avx512 { .. } => {
                return Self {
                    // SAFETY: the level says that the CPU has all that the function needs.
                    winners: |trees, rules, packets, slots| unsafe {
                        x86::winners_avx512(trees, rules, packets, slots)
                    },
                    // SAFETY: as above.
                    winner: |trees, rules, packets, slots| unsafe {
                        x86::winners_avx512(trees, rules, packets, slots)
                    },
                    // SAFETY: as above.
                    by_category: |trees, rules, packets, slots| unsafe {
                        x86::by_category(trees, rules, packets, slots)
                    },
                };
            }
            Isa::Avx2 => {
                return Self {
                    // SAFETY: the level says that the CPU has all that the function needs.
                    winners: |trees, rules, packets, slots| unsafe {
                        x86::winners_avx2(trees, rules, packets, slots)
                    },
                    // SAFETY: as above.
                    winner: |trees, rules, packets, slots| unsafe {
                        x86::winners_avx2(trees, rules, packets, slots)
                    },
                    // SAFETY: as above.
                    by_category: |trees, rules, packets, slots| unsafe {
                        x86::by_category(trees, rules, packets, slots)
                    },
                };
            }
            Isa::Baseline => {}
        }
        let _ = isa;
        Self {
            winners: plain,
            winner: plain,
            by_category: |trees, rules, packets, slots| {
                let matching = Block::matching;
                lookup::winners_by_category(trees, rules, packets, slots, extract, matching)
            },
        }
    }
}

/// [`lookup::winners`] of any CPU.
fn plain<const W: usize, const N: usize>(
    trees: &Trees<W>,
    rules: &Rules<W>,
    packets: Packets<W, N>,
    slots: &mut [u32; N],
) {
    let level = Level {
        extract,
        matching: Block::matching,
        first: Block::first,
    };
    lookup::winners(trees, rules, packets, slots, level);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn winners_avx2<const W: usize, const N: usize>(
        trees: &Trees<W>,
        rules: &Rules<W>,
        packets: Packets<W, N>,
        slots: &mut [u32; N],
    ) {
        let level = Level {
            extract: |value, mask| _pext_u64(value, mask),
            matching: |block: &_, packet: &_| none_avx2(differs(block, packet)),
            first: Block::first,
        };
        lookup::winners(trees, rules, packets, slots, level);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
    pub(super) fn winners_avx512<const W: usize, const N: usize>(
        trees: &Trees<W>,
        rules: &Rules<W>,
        packets: Packets<W, N>,
        slots: &mut [u32; N],
    ) {
        let level = Level {
            extract: |value, mask| _pext_u64(value, mask),
            matching: |block: &_, packet: &_| {
                let differs = differs(block, packet);
                u32::from(_mm256_testn_epi32_mask(differs, differs))
            },
            first: |block: &Block<W>, lanes| {
                let slots = _mm256_maskz_compress_epi32(lanes as u8, words(&block.slots));
                _mm256_cvtsi256_si32(slots) as u32 & !RUN_GOES_ON
            },
        };
        lookup::winners(trees, rules, packets, slots, level);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn by_category<const W: usize>(
        trees: &Trees<W>,
        rules: &Rules<W>,
        packets: Packets<W>,
        slots: &mut [[u32; CATEGORIES]; GROUP],
    ) {
        let extract = |value, mask| _pext_u64(value, mask);
        let matching = |block: &_, packet: &_| none_avx2(differs(block, packet));
        lookup::winners_by_category(trees, rules, packets, slots, extract, matching);
    }

    /// A bit for each lane that is 0.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn none_avx2(differs: __m256i) -> u32 {
        let equal = _mm256_cmpeq_epi32(differs, _mm256_setzero_si256());
        _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
    }

    /// In each lane 0 where the rule matches, as [`Block::matching`] has it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn differs<const W: usize>(block: &Block<W>, packet: &PacketKey<W>) -> __m256i {
        let broadcast = |word: u32| _mm256_set1_epi32(word as i32);
        let meta = broadcast(packet.meta);
        let hosts = hosts(&block.hosts);
        let mut differs = _mm256_setzero_si256();
        for word in 0..W {
            let less = _mm256_set1_epi8((32 * (W - 1 - word)) as i8);
            let hosts = _mm256_subs_epu8(hosts, less);
            let outside = |packet: u32, column: &[u32; LANES], spread: __m256i| {
                let bits = _mm256_xor_si256(broadcast(packet), words(column));
                _mm256_srlv_epi32(bits, _mm256_shuffle_epi8(hosts, spread))
            };
            let src = outside(packet.src[word], &block.src[word], to_lanes(0));
            let dst = outside(packet.dst[word], &block.dst[word], to_lanes(LANES as i32));
            differs = _mm256_or_si256(differs, _mm256_or_si256(src, dst));
        }
        let above = _mm256_sub_epi16(broadcast(packet.ports), words(&block.low));
        let has = _mm256_and_si256(meta, broadcast(HAS_PORTS | HAS_ICMP));
        let portless = _mm256_cmpeq_epi32(has, _mm256_setzero_si256());
        let above = _mm256_or_si256(above, portless);
        let above = _mm256_subs_epu16(above, words(&block.span));
        let protocol = _mm256_cvtepu16_epi32(halves(&block.protocol));
        let mask = _mm256_srli_epi32::<8>(protocol);
        let wrong = _mm256_xor_si256(protocol, meta);
        let wrong = _mm256_and_si256(wrong, mask);
        _mm256_or_si256(differs, _mm256_or_si256(above, wrong))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(column: &[u32; LANES]) -> __m256i {
        // SAFETY: eight words are the 32 bytes that are read.
        unsafe { _mm256_loadu_si256(column.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(column: &[u16; LANES]) -> __m128i {
        // SAFETY: eight halves are the 16 bytes that are read.
        unsafe { _mm_loadu_si128(column.as_ptr().cast()) }
    }

    /// Both rows in both halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn hosts(rows: &[[u8; LANES]; 2]) -> __m256i {
        // SAFETY: two rows of eight bytes are the 16 bytes that are read.
        let both = unsafe { _mm_loadu_si128(rows.as_ptr().cast()) };
        _mm256_broadcastsi128_si256(both)
    }

    /// A shuffle of bytes: lane i becomes the byte `first` + i. Widening instructions would do, but
    /// the compiler knows of them that bytes are below 256, and makes shifts by them longer.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn to_lanes(first: i32) -> __m256i {
        // Bytes with the highest bit set become 0.
        let lane = |lane: i32| 0x8080_8000_u32 as i32 | (first + lane);
        _mm256_setr_epi32(
            lane(0),
            lane(1),
            lane(2),
            lane(3),
            lane(4),
            lane(5),
            lane(6),
            lane(7),
        )
    }
}
