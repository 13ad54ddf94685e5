//! Pools as the alternatives lay them out, all in the same memory.
#![allow(unsafe_code)]

use linerate_core::mem::{PageKind, PagePolicy, Region, RegionConfig};

pub(crate) const LINE: usize = 64;
/// Bytes before the data of a packet, in every alternative.
pub(crate) const HEADROOM: usize = 256;

/// As the kit's metadata line, in what the loop touches.
#[repr(C, align(64))]
pub(crate) struct Meta {
    pub(crate) slot: *mut u8,
    pool: *const u8,
    pub(crate) len: u32,
    pub(crate) start: u16,
    rest: [u8; 10],
    more: [u64; 4],
}

/// Where metadata and data of a pool's slots lie. Several share one memory, in turns.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) base: *mut u8,
    slots: usize,
    meta_stride: usize,
    data_offset: usize,
    stride: usize,
    /// What to add to the start of a slot.
    skew: fn(usize) -> usize,
}

/// Enough for metadata and slots of so many lines, in 2 MiB pages if the kernel has them.
pub(crate) fn memory(slots: u32, lines: usize) -> Region {
    Region::map(&RegionConfig {
        name: "benchmark".into(),
        bytes: slots as usize * lines * LINE + 4096,
        pages: PagePolicy::Only(PageKind::Transparent),
        ..RegionConfig::default()
    })
    .expect("the benchmark needs some 200 MB of memory")
}

impl Layout {
    /// Metadata in an array before the slots.
    pub(crate) fn apart(memory: &Region, slots: u32, lines: usize) -> Self {
        Self {
            base: memory.as_ptr(),
            slots: slots as usize,
            meta_stride: LINE,
            data_offset: slots as usize * LINE,
            stride: lines * LINE,
            skew: |_| 0,
        }
    }

    /// Metadata at the head of each slot.
    pub(crate) fn inside(memory: &Region, slots: u32, lines: usize) -> Self {
        Self {
            meta_stride: lines * LINE,
            data_offset: 0,
            ..Self::apart(memory, slots, lines)
        }
    }

    /// With starts that differ.
    pub(crate) fn skewed(self, skew: fn(usize) -> usize) -> Self {
        Self { skew, ..self }
    }

    /// Makes the memory this layout's.
    pub(crate) fn write(&self) {
        for index in 0..self.slots {
            let skew = (self.skew)(index);
            let slot = self.data().wrapping_add(index * self.stride + skew);
            let meta = Meta {
                slot,
                pool: slot,
                len: 60,
                start: HEADROOM as u16,
                rest: [0; 10],
                more: [0; 4],
            };
            // SAFETY: a line of the benchmark's memory, which it does not use otherwise.
            unsafe { self.meta(index as u32).write(meta) };
        }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        self.base.wrapping_add(self.data_offset)
    }

    #[inline(always)]
    pub(crate) fn meta(&self, index: u32) -> *mut Meta {
        let at = index as usize * self.meta_stride;
        self.base.wrapping_add(at).cast()
    }
}

/// How slots follow each other in bursts, and the order itself.
pub(crate) type Order = (&'static str, fn(u32) -> Vec<u32>);

/// Each size of pool in each order.
pub(crate) fn pools() -> impl Iterator<Item = (Order, u32)> {
    let orders: [Order; 2] = [
        ("in order", |slots| (0..slots).collect()),
        ("shuffled", shuffled),
    ];
    let sizes = [512, 2048, 8192, 16384];
    orders
        .into_iter()
        .flat_map(move |order| sizes.map(|slots| (order, slots)))
}

/// All slots once, in an order that no prefetcher guesses; the same in each run.
pub(crate) fn shuffled(slots: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..slots).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (seed >> 33) as usize % (last + 1));
    }
    order
}
