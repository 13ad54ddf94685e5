//! The memory of a driver (a guest, or ourselves), as its descriptors name it.
//!
//! A table of regions, each with two names: guest addresses stand in descriptors, user addresses
//! (those of the process that set the device up) in the messages that say where rings are. Every
//! address is checked against the table; a range may go over the border of two regions that
//! follow each other, and is then used in parts.

use linerate_core::mem::{Untrusted, Window};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Most regions: as many memory slots as QEMU ever plugs in.
pub(crate) const MOST_REGIONS: usize = 509;

/// One mapped region.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) guest: u64,
    pub(crate) user: u64,
    pub(crate) mapped: Arc<Untrusted>,
}

impl Region {
    pub(crate) fn bytes(&self) -> u64 {
        self.mapped.len() as u64
    }
}

/// Where something lies for as long as the table does: a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    region: usize,
    pub(crate) at: usize,
}

impl Place {
    /// So many bytes further on in the same region.
    pub(crate) fn behind(self, bytes: usize) -> Self {
        Self {
            at: self.at.saturating_add(bytes),
            ..self
        }
    }
}

/// The regions, sorted by guest address.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// A table of regions; the reason, where they overlap, wrap, or are too many.
    pub(crate) fn new(mut regions: Vec<Region>) -> Result<Self, &'static str> {
        if regions.len() > MOST_REGIONS {
            return Err("too many regions");
        }
        let keys: [fn(&Region) -> u64; 2] = [|region| region.user, |region| region.guest];
        for sort in keys {
            regions.sort_by_key(sort);
            if regions
                .last()
                .is_some_and(|last| sort(last).checked_add(last.bytes()).is_none())
            {
                return Err("a region wraps round");
            }
            let overlap = |pair: &[Region]| sort(&pair[1]) - sort(&pair[0]) < pair[0].bytes();
            if regions.windows(2).any(overlap) {
                return Err("regions overlap");
            }
        }
        Ok(Self { regions })
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Whether a file shrank under a region.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapped.is_lost())
    }

    /// Where a ring lies whole, by its user address.
    pub(crate) fn place(&self, user: u64, bytes: usize) -> Option<Place> {
        let found = |region: &Region| {
            let at = user.wrapping_sub(region.user);
            region.mapped.window(usize::try_from(at).ok()?, bytes)?;
            Some(at as usize)
        };
        let mut regions = self.regions.iter().enumerate();
        regions.find_map(|(region, of)| found(of).map(|at| Place { region, at }))
    }

    /// The mapping that a place is in.
    #[inline(always)]
    pub(crate) fn at(&self, place: Place) -> Option<&Untrusted> {
        self.regions.get(place.region).map(|region| &*region.mapped)
    }

    /// The guest address of a place.
    pub(crate) fn guest(&self, place: Place) -> u64 {
        let region = self.regions.get(place.region);
        region.map_or(0, |region| region.guest + place.at as u64)
    }

    /// To look addresses up, most of which lie in the region of this number.
    #[inline(always)]
    pub(crate) fn near(&self, region: usize) -> Near<'_> {
        Near {
            memory: self,
            at_hand: self.at_hand(region),
            region,
        }
    }

    /// The region of this number.
    #[inline(always)]
    pub(crate) fn at_hand(&self, region: usize) -> Option<AtHand<'_>> {
        let found = self.regions.get(region)?;
        Some(AtHand {
            guest: found.guest,
            whole: found.mapped.window(0, found.mapped.len())?,
        })
    }

    /// A table of descriptors by its guest address, in one region, as words.
    pub(super) fn words(&self, guest: u64, bytes: usize) -> Option<&[AtomicU64]> {
        let behind = self.regions.partition_point(|region| region.guest <= guest);
        let region = &self.regions[behind.checked_sub(1)?];
        let at = usize::try_from(guest - region.guest).ok()?;
        region.mapped.u64s(at, bytes / size_of::<u64>())
    }

    /// The part of a range that lies in the region where it starts.
    fn start(&self, guest: u64, bytes: usize) -> Option<(usize, Window<'_>)> {
        let behind = self.regions.partition_point(|region| region.guest <= guest);
        let index = behind.checked_sub(1)?;
        let region = &self.regions[index];
        let at = usize::try_from(guest - region.guest).ok()?;
        let inside = region.mapped.len().checked_sub(at)?;
        let window = region.mapped.window(at, bytes.min(inside))?;
        (!window.is_empty() || bytes == 0).then_some((index, window))
    }

    /// Another region than that of this number, if an address lies there.
    #[cold]
    pub(super) fn other(&self, region: usize, guest: u64) -> Option<usize> {
        let (found, _) = self.start(guest, 1)?;
        (found != region).then_some(found)
    }

    /// The parts of a range, each in a region of its own. `false`, and some or no calls, where a
    /// byte of it is in none.
    pub(crate) fn parts<'m>(
        &'m self,
        mut guest: u64,
        bytes: u32,
        mut part: impl FnMut(u64, Window<'m>),
    ) -> bool {
        let mut left = bytes as usize;
        loop {
            let Some((_, window)) = self.start(guest, left) else {
                return false;
            };
            part(guest, window);
            left -= window.len();
            if left == 0 {
                return true;
            }
            let Some(next) = guest.checked_add(window.len() as u64) else {
                return false;
            };
            guest = next;
        }
    }
}

/// A region with its bounds in registers: for loops that copy, in which what is in memory would be
/// loaded again after each copy.
#[derive(Clone, Copy)]
pub(crate) struct AtHand<'m> {
    guest: u64,
    whole: Window<'m>,
}

impl<'m> AtHand<'m> {
    /// What a descriptor names, if it lies in this region.
    #[inline(always)]
    pub(crate) fn window(self, guest: u64, bytes: u32) -> Option<Window<'m>> {
        // An address before the region becomes a large number, which no window has.
        let at = guest.wrapping_sub(self.guest) as usize;
        self.whole.part(at, bytes as usize)
    }

    /// How far from the region's start an address lies, in it or not.
    #[inline(always)]
    pub(super) fn offset(self, guest: u64) -> (Window<'m>, usize) {
        (self.whole, guest.wrapping_sub(self.guest) as usize)
    }
}

/// A table of regions, of which the last one that was hit is at hand.
pub(crate) struct Near<'m> {
    memory: &'m Memory,
    at_hand: Option<AtHand<'m>>,
    pub(crate) region: usize,
}

impl<'m> Near<'m> {
    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// What a descriptor names, if it lies in one region.
    #[inline(always)]
    pub(crate) fn window(&mut self, guest: u64, bytes: u32) -> Option<Window<'m>> {
        let found = self
            .at_hand
            .and_then(|at_hand| at_hand.window(guest, bytes));
        match found {
            Some(window) => Some(window),
            None => self.elsewhere(guest, bytes),
        }
    }

    #[cold]
    fn elsewhere(&mut self, guest: u64, bytes: u32) -> Option<Window<'m>> {
        let (region, window) = self.memory.start(guest, bytes as usize)?;
        *self = self.memory.near(region);
        (window.len() == bytes as usize).then_some(window)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use linerate_core::mem::FileFrom;
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;

    /// A fresh memfd of so many bytes, mapped.
    pub(crate) fn mapped(bytes: usize) -> Arc<Untrusted> {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, bytes as u64).unwrap();
        Arc::new(Untrusted::map("test", file.as_fd(), 0, bytes, FileFrom::Peer).unwrap())
    }

    fn region(guest: u64, user: u64, bytes: usize) -> Region {
        let mapped = mapped(bytes);
        Region {
            guest,
            user,
            mapped,
        }
    }

    #[test]
    fn regions_that_overlap_or_wrap_are_refused() {
        let two = |a, b| Memory::new(vec![a, b]).map(drop);
        assert!(two(region(0, 0, 8192), region(8192, 8192, 4096)).is_ok());
        assert!(two(region(0, 0, 8192), region(8191, 8192, 4096)).is_err());
        assert!(two(region(0, 0, 8192), region(8192, 8191, 4096)).is_err());
        assert!(two(region(0, 0, 8192), region(u64::MAX - 4000, 9000, 4096)).is_err());
        assert!(two(region(0, 0, 8192), region(9000, u64::MAX, 4096)).is_err());
    }

    #[test]
    fn an_address_is_in_a_region_or_nowhere() {
        let memory = Memory::new(vec![region(0x4000, 0, 4096), region(0x1000, 1 << 20, 4096)]);
        let memory = memory.unwrap();
        let mut near = memory.near(7);
        let mut is_in = |at, bytes| near.window(at, bytes).is_some();
        assert!(is_in(0x1000, 4096) && is_in(0x4000, 4096) && is_in(0x1fff, 1));
        assert!(!is_in(0xfff, 1) && !is_in(0x1fff, 2) && !is_in(0x2000, 1));
        assert!(!is_in(0x5000, 1) && !is_in(u64::MAX, 1) && !is_in(u64::MAX, u32::MAX));
        assert!(memory.place(1 << 20, 4096).is_some() && memory.place(0xfff, 2).is_none());
        assert!(memory.place(0x1000, 1).is_none(), "user addresses");
    }

    #[test]
    fn a_range_over_a_border_comes_in_parts() {
        let table = vec![region(0, 0, 4096), region(4096, 1 << 20, 4096)];
        let memory = Memory::new(table).unwrap();
        let parts = |at, bytes| {
            let mut lens = Vec::new();
            memory
                .parts(at, bytes, |at, window| lens.push((at, window.len())))
                .then_some(lens)
        };
        assert_eq!(parts(4000, 200), Some(vec![(4000, 96), (4096, 104)]));
        assert_eq!(parts(0, 8192), Some(vec![(0, 4096), (4096, 4096)]));
        assert_eq!(parts(0, 8193), None);
        assert_eq!(parts(8192, 1), None);
        assert!(memory.near(0).window(4000, 200).is_none());
    }
}
