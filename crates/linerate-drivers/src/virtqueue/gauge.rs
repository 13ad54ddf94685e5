//! How full a ring is, for people: whoever looks takes it from no worker.
//!
//! A [`Gauge`] says where the ring lies. What only the worker knows, up to where it has come, it
//! leaves behind after each burst: its [`Standing`].

use super::memory::Memory;
use super::{Filled, packed, split};
use std::sync::atomic::{AtomicU32, Ordering};

/// Looks at a ring whose worker goes on meanwhile.
const TRIES: usize = 4;

/// Where a worker stands in its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing(u32);

impl Standing {
    /// `seen`: up to where it took what the other side gave, as a message would say it. `offered`:
    /// buffers that a driver's device has, as far as it knows; of a device 0.
    #[inline(always)]
    pub(super) fn new(seen: u16, offered: usize) -> Self {
        Self((offered as u32) << 16 | u32::from(seen))
    }
}

/// A worker's last [`Standing`], for all to see.
#[derive(Debug, Default)]
pub(crate) struct Posted(AtomicU32);

impl Posted {
    #[inline(always)]
    pub(super) fn set(&self, standing: Standing) {
        self.0.store(standing.0, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Standing {
        Standing(self.0.load(Ordering::Acquire))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Parts {
    Split(split::Rings),
    Packed(packed::Table),
}

/// Where a ring is, and whose it is to fill and to empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge {
    pub(super) parts: Parts,
    pub(super) filled: Filled,
    /// We are the device.
    pub(super) device: bool,
}

impl Gauge {
    /// Descriptors of the ring.
    pub(crate) fn size(&self) -> u16 {
        match &self.parts {
            Parts::Split(rings) => rings.size,
            Parts::Packed(table) => table.size,
        }
    }

    /// Chains with something in them that whoever reads, we or the other side, has not taken.
    pub(crate) fn fill(&self, memory: &Memory, posted: &Posted) -> u16 {
        let mut standing = posted.get();
        // What a busy worker changed between two words of the ring does not fit together.
        for _ in 1..TRIES {
            let fill = self.fill_from(memory, standing);
            let now = posted.get();
            if now == standing {
                return fill;
            }
            standing = now;
        }
        self.fill_from(memory, standing)
    }

    fn fill_from(&self, memory: &Memory, Standing(standing): Standing) -> u16 {
        let (seen, offered) = (standing as u16, (standing >> 16) as u16);
        let given = match &self.parts {
            Parts::Split(rings) => rings.given(memory, !self.device, seen),
            Parts::Packed(table) => table.given(memory, !self.device, seen),
        };
        match (self.device, self.filled) {
            (true, Filled::ByDriver) => given,
            (true, Filled::ByDevice) => self.size() - given,
            // A used descriptor of a packed ring may stand for several (2.8.7): then the ring is
            // emptier than this says.
            (false, Filled::ByDriver) => offered.saturating_sub(given),
            (false, Filled::ByDevice) => given.min(offered),
        }
    }
}
