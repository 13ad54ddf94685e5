//! Access list kernels: down a tree, and through the blocks of a leaf.

use std::hint::select_unpredictable;

use linerate_core::arch::prefetch_read;
use linerate_core::env::Isa;

use crate::acl::block::{Block, LANES, RUN_GOES_ON, SLOT};
use crate::acl::key::PacketKey;
use crate::acl::rules::Record;
use crate::acl::tree::Node;
use crate::acl::window::{WINDOWS, Windows, extract};

/// Packets that are taken through a tree side by side.
pub(crate) const GROUP: usize = 32;

/// `descend(nodes, blocks, root, windows, at)`: each `at[i]` becomes the first block of the leaf that
/// packet `i` reaches from the root.
pub(crate) type Descend<const W: usize> =
    fn(&[Node], &[Block<W>], u32, &[Windows], &mut [u32; GROUP]);

/// `scan(blocks, records, packets, orders, at)`: each `at[i]`, the first block of a run, becomes the
/// slot of the first lane in it that matches packet `i`, or 0. A run is left where its next block
/// begins with a rule that does not win over `orders[i]`.
pub(crate) type Scan<const W: usize> =
    fn(&[Block<W>], &[Record], &[PacketKey<W>], &[u64; GROUP], &mut [u32]);
/// Which lanes of a block match a packet, as [`Block::matching`].
pub(crate) type Matching<const W: usize> = fn(&Block<W>, &PacketKey<W>) -> u32;

/// The kernels of one level.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<const W: usize> {
    pub(crate) descend: Descend<W>,
    pub(crate) scan: Scan<W>,
    pub(crate) matching: Matching<W>,
}

impl<const W: usize> Kernels<W> {
    /// The best kernels of this level.
    pub(crate) fn pick(isa: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        match isa {
            Isa::Avx512 { .. } => {
                return Self {
                    // SAFETY: the level says that the CPU has all that the function needs.
                    descend: |nodes, blocks, root, windows, at| unsafe {
                        x86::descend(nodes, blocks, root, windows, at)
                    },
                    // SAFETY: as above.
                    scan: |blocks, records, packets, orders, at| unsafe {
                        x86::scan_avx512(blocks, records, packets, orders, at)
                    },
                    // SAFETY: as above.
                    matching: |block, packet| unsafe { x86::matching(block, packet) },
                };
            }
            Isa::Avx2 => {
                return Self {
                    // SAFETY: the level says that the CPU has all that the function needs.
                    descend: |nodes, blocks, root, windows, at| unsafe {
                        x86::descend(nodes, blocks, root, windows, at)
                    },
                    // SAFETY: as above.
                    scan: |blocks, records, packets, orders, at| unsafe {
                        x86::scan_avx2(blocks, records, packets, orders, at)
                    },
                    // SAFETY: as above.
                    matching: |block, packet| unsafe { x86::matching(block, packet) },
                };
            }
            Isa::Baseline => {}
        }
        let _ = isa;
        Self {
            descend: |nodes, blocks, root, windows, at| {
                descend(nodes, blocks, root, windows, at, extract)
            },
            scan: |blocks, records, packets, orders, at| {
                scan(blocks, records, packets, orders, at, Block::matching)
            },
            matching: Block::matching,
        }
    }
}

#[inline(always)]
fn descend<const W: usize>(
    nodes: &[Node],
    blocks: &[Block<W>],
    root: u32,
    windows: &[Windows],
    at: &mut [u32; GROUP],
    extract: impl Fn(u64, u64) -> u64,
) {
    at.fill(root);
    // Packets that may not be at a leaf yet.
    let mut walking: [u8; GROUP] = std::array::from_fn(|packet| packet as u8);
    let mut many = windows.len().min(GROUP);
    while many > 0 {
        let mut still = 0;
        for step in 0..many {
            let packet = usize::from(walking[step]) % GROUP;
            let node = nodes[at[packet] as usize];
            let window = windows[packet][node.info as usize % WINDOWS];
            let next = node.base.wrapping_add(extract(window, node.mask) as u32);
            prefetch_read(nodes.as_ptr().wrapping_add(next as usize));
            let is_leaf = node.mask == 0;
            at[packet] = if is_leaf { node.info } else { next };
            walking[still] = packet as u8;
            still += usize::from(!is_leaf);
        }
        many = still;
    }
    for at in &at[..windows.len().min(GROUP)] {
        let block = blocks.as_ptr().wrapping_add(*at as usize).cast::<u8>();
        for line in 0..size_of::<Block<W>>() / 64 {
            prefetch_read(block.wrapping_add(64 * line));
        }
    }
}

#[inline(always)]
fn scan<const W: usize>(
    blocks: &[Block<W>],
    records: &[Record],
    packets: &[PacketKey<W>],
    orders: &[u64; GROUP],
    at: &mut [u32],
    matching: impl Fn(&Block<W>, &PacketKey<W>) -> u32,
) {
    for ((at, packet), order) in at.iter_mut().zip(packets).zip(orders) {
        let mut run = *at as usize;
        *at = loop {
            let block = &blocks[run];
            let lanes = matching(block, packet);
            if lanes == 0 && block.goes_on() {
                run += 1;
                let next = blocks[run].slots[0] & SLOT;
                if records[next as usize].order <= *order {
                    continue;
                }
            }
            let first = block.slots[lanes.trailing_zeros() as usize % LANES] & !RUN_GOES_ON;
            break select_unpredictable(lanes != 0, first, 0);
        };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn descend<const W: usize>(
        nodes: &[Node],
        blocks: &[Block<W>],
        root: u32,
        windows: &[Windows],
        at: &mut [u32; GROUP],
    ) {
        super::descend(nodes, blocks, root, windows, at, |value, mask| {
            _pext_u64(value, mask)
        });
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn scan_avx2<const W: usize>(
        blocks: &[Block<W>],
        records: &[Record],
        packets: &[PacketKey<W>],
        orders: &[u64; GROUP],
        at: &mut [u32],
    ) {
        super::scan(blocks, records, packets, orders, at, |block, packet| {
            none_avx2(differs(block, packet))
        });
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
    pub(super) fn scan_avx512<const W: usize>(
        blocks: &[Block<W>],
        records: &[Record],
        packets: &[PacketKey<W>],
        orders: &[u64; GROUP],
        at: &mut [u32],
    ) {
        super::scan(blocks, records, packets, orders, at, |block, packet| {
            let differs = differs(block, packet);
            u32::from(_mm256_testn_epi32_mask(differs, differs))
        });
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn matching<const W: usize>(block: &Block<W>, packet: &PacketKey<W>) -> u32 {
        none_avx2(differs(block, packet))
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
        let src_host = bytes(&block.src_host);
        let dst_host = bytes(&block.dst_host);
        let mut differs = _mm256_setzero_si256();
        for word in 0..W {
            let less = _mm_set1_epi8((32 * (W - 1 - word)) as i8);
            let outside = |packet: u32, column: &[u32; LANES], host: __m128i| {
                let bits = _mm256_xor_si256(broadcast(packet), words(column));
                let host = _mm256_cvtepu8_epi32(_mm_subs_epu8(host, less));
                _mm256_srlv_epi32(bits, host)
            };
            let src = outside(packet.src[word], &block.src[word], src_host);
            let dst = outside(packet.dst[word], &block.dst[word], dst_host);
            differs = _mm256_or_si256(differs, _mm256_or_si256(src, dst));
        }
        let above = _mm256_sub_epi16(broadcast(packet.ports), words(&block.low));
        let above = _mm256_or_si256(above, broadcast(packet.portless()));
        let above = _mm256_subs_epu16(above, words(&block.span));
        let protocol = _mm256_cvtepu16_epi32(halves(&block.protocol));
        let mask = _mm256_srli_epi32::<8>(protocol);
        let wrong = _mm256_xor_si256(protocol, broadcast(packet.meta));
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

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes(column: &[u8; LANES]) -> __m128i {
        _mm_cvtsi64_si128(i64::from_le_bytes(*column))
    }
}
