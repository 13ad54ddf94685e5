//! Rings and regions of a connection, as they lie in shared memory.
//!
//! ```text
//! ring        0: cookie u32, flags u16, head u16      64: tail u16      128: descriptors
//! descriptor  flags u16, region u16, length u32, offset u32, metadata u32
//! ```
//!
//! All of it can change at any time: what a check has seen is a value in our own memory.

use linerate_core::arch::{prefetch_read, prefetch_write};
use linerate_core::mem::{Untrusted, Window};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Marks a ring that was set up.
pub(super) const COOKIE: u32 = 0x3e3_1f20;
/// Bytes before the descriptors.
pub(super) const HEADER_LEN: usize = 128;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_LEN: usize = 16;
/// Bytes of a cache line.
pub(super) const LINE: u32 = 64;
/// Largest ring that we take or make, as a power of two: indices have 16 bits.
pub(super) const MAX_LOG2_SIZE: u8 = 15;

/// The receiver of a ring wants no notifications.
const MASK_INT: u16 = 1;
/// The frame goes on in the next descriptor.
const NEXT: u16 = 1;

/// Where the fields are, in words of 16 bits.
mod word {
    pub(super) const COOKIE: usize = 0;
    pub(super) const FLAGS: usize = 2;
    pub(super) const HEAD: usize = 3;
    pub(super) const TAIL: usize = 32;
}

/// All memory of a connection: unmapped when the last ring of it is gone.
#[derive(Debug)]
pub(super) struct Regions(pub(super) Vec<Untrusted>);

impl Regions {
    /// The bytes that a descriptor names; `None` if some are outside.
    #[inline(always)]
    pub(super) fn window(&self, region: u16, offset: u32, len: u32) -> Option<Window<'_>> {
        let region = self.0.get(usize::from(region))?;
        region.window(offset as usize, len as usize)
    }

    /// The same regions for a burst: the first one at hand.
    #[inline(always)]
    pub(super) fn at_hand(&self) -> Option<AtHand<'_>> {
        let first = self.0.first()?;
        Some(AtHand {
            number: 0,
            near: first.window(0, first.len())?,
            all: self,
        })
    }

    /// Whether a file shrank under its mapping.
    pub(super) fn is_lost(&self) -> bool {
        self.0.iter().any(Untrusted::is_lost)
    }
}

/// [`Regions`] for a burst.
#[derive(Clone, Copy)]
pub(super) struct AtHand<'a> {
    number: u16,
    near: Window<'a>,
    all: &'a Regions,
}

impl<'a> AtHand<'a> {
    /// As [`Regions::window`], of a descriptor's place.
    #[inline(always)]
    pub(super) fn window(&self, place: Descriptor, len: u32) -> Option<Window<'a>> {
        if place.region() == self.number {
            return self.near.part(place.offset() as usize, len as usize);
        }
        self.far(place, len)
    }

    /// With the region at hand in which a descriptor's buffer lies: nearly all lie in the same.
    #[inline(always)]
    pub(super) fn near(self, place: Descriptor) -> Self {
        match place.region() == self.number {
            true => self,
            false => self.other(place.region()).unwrap_or(self),
        }
    }

    #[inline(never)]
    fn other(self, number: u16) -> Option<Self> {
        let region = self.all.0.get(usize::from(number))?;
        let near = region.window(0, region.len())?;
        Some(Self {
            number,
            near,
            ..self
        })
    }

    #[cold]
    #[inline(never)]
    fn far(&self, place: Descriptor, len: u32) -> Option<Window<'a>> {
        self.all.window(place.region(), place.offset(), len)
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    first: u64,
    second: u64,
}

impl Descriptor {
    #[inline(always)]
    pub(super) fn new(region: u16, offset: u32, len: u32, more: bool) -> Self {
        let flags = if more { NEXT } else { 0 };
        // Little endian: flags, region, length; offset, metadata.
        let first = u64::from(flags) | u64::from(region) << 16 | u64::from(len) << 32;
        Self {
            first,
            second: u64::from(offset),
        }
    }

    /// Whether the frame goes on in the next one.
    #[inline(always)]
    pub(super) fn more(self) -> bool {
        self.first as u16 & NEXT != 0
    }

    #[inline(always)]
    pub(super) fn region(self) -> u16 {
        (self.first >> 16) as u16
    }

    /// Bytes of the buffer, or of what is in it.
    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        (self.first >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u32 {
        self.second as u32
    }

    /// What is in the buffer, for whoever remembers it: lengths of buffers are below 2^31.
    #[inline(always)]
    pub(super) fn brief(self) -> u32 {
        self.len() << 1 | u32::from(self.more())
    }

    /// The same place with other content.
    #[inline(always)]
    pub(super) fn holding(self, len: u32, more: bool) -> Self {
        let place = Self::new(self.region(), 0, len, more);
        Self {
            first: place.first,
            second: self.second,
        }
    }
}

/// Why memory cannot be a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRing {
    Size,
    Outside,
    Cookie,
}

/// Where a ring is.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) regions: Arc<Regions>,
    region: usize,
    at: usize,
    size: u16,
}

/// A ring's memory, checked once and for one burst.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    header: &'a [AtomicU16],
    descriptors: &'a [AtomicU64],
}

impl Ring {
    /// A ring that lies there; the cookie says that its owner set it up.
    pub(super) fn new(
        regions: &Arc<Regions>,
        region: u16,
        offset: u32,
        log2_size: u8,
    ) -> Result<Self, NoRing> {
        if log2_size > MAX_LOG2_SIZE {
            return Err(NoRing::Size);
        }
        let ring = Self {
            regions: regions.clone(),
            region: region.into(),
            at: offset as usize,
            size: 1 << log2_size,
        };
        let view = ring.view().ok_or(NoRing::Outside)?;
        let half = |at: usize| view.header[at].load(Ordering::Relaxed).to_ne_bytes();
        let [low, high] = [half(word::COOKIE), half(word::COOKIE + 1)];
        let cookie = u32::from_ne_bytes([low[0], low[1], high[0], high[1]]);
        if cookie == COOKIE {
            Ok(ring)
        } else {
            Err(NoRing::Cookie)
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// `None` where it is outside of its region: never for one that [`Ring::new`] made.
    #[inline(always)]
    pub(super) fn view(&self) -> Option<View<'_>> {
        let region = self.regions.0.get(self.region)?;
        let header = region.u16s(self.at, HEADER_LEN / 2)?;
        let at = self.at.checked_add(HEADER_LEN)?;
        let descriptors = region.u64s(at, 2 * usize::from(self.size))?;
        Some(View {
            header,
            descriptors,
        })
    }

    /// For the owner of the memory: says that a ring is there.
    pub(super) fn mark(regions: &Regions, at: usize) {
        let Some(header) = regions.0[0].u16s(at, HEADER_LEN / 2) else {
            return;
        };
        let cookie = COOKIE.to_ne_bytes();
        for (half, bytes) in cookie.chunks_exact(2).enumerate() {
            let bytes = u16::from_ne_bytes([bytes[0], bytes[1]]);
            header[word::COOKIE + half].store(bytes, Ordering::Relaxed);
        }
    }

    /// For the owner of the memory: an empty ring, whose receiver wants to be notified until it
    /// says otherwise. VPP and libmemif never say that they want to.
    pub(super) fn set_up(regions: &Regions, at: usize) {
        Self::mark(regions, at);
        let Some(header) = regions.0[0].u16s(at, HEADER_LEN / 2) else {
            return;
        };
        header[word::FLAGS].store(0, Ordering::Relaxed);
        header[word::HEAD].store(0, Ordering::Relaxed);
        header[word::TAIL].store(0, Ordering::Relaxed);
    }
}

impl View<'_> {
    /// How far buffers were given: by the sender of packets to the server, by the receiver of those
    /// to the client.
    #[inline(always)]
    pub(super) fn head(&self) -> u16 {
        self.header[word::HEAD].load(Ordering::Acquire)
    }

    /// How far buffers were taken.
    #[inline(always)]
    pub(super) fn tail(&self) -> u16 {
        self.header[word::TAIL].load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn set_head(&self, head: u16) {
        self.header[word::HEAD].store(head, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn set_tail(&self, tail: u16) {
        self.header[word::TAIL].store(tail, Ordering::Release);
    }

    /// Whether the ring's receiver wants to be notified.
    #[inline(always)]
    pub(super) fn wants_notifications(&self) -> bool {
        self.header[word::FLAGS].load(Ordering::Relaxed) & MASK_INT == 0
    }

    /// For the ring's receiver. Loads of the indices behind it see what is sent without a
    /// notification.
    pub(super) fn want_notifications(&self, wanted: bool) {
        let flags = if wanted { 0 } else { MASK_INT };
        self.header[word::FLAGS].store(flags, Ordering::Relaxed);
        if wanted {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// The descriptor at an index that runs on for ever.
    #[inline(always)]
    pub(super) fn read(&self, index: u16) -> Descriptor {
        let pair = self.pair(index);
        Descriptor {
            first: pair[0].load(Ordering::Relaxed),
            second: pair[1].load(Ordering::Relaxed),
        }
    }

    /// Asks for the lines of `count` descriptors, to be read: they come beside each other.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u16, count: u16) {
        for number in (0..count).step_by(LINE as usize / DESCRIPTOR_LEN) {
            prefetch_read(self.pair(index.wrapping_add(number)).as_ptr());
        }
    }

    /// The same to be written, away from the other core.
    #[inline(always)]
    pub(super) fn prefetch_write(&self, index: u16, count: u16) {
        for number in (0..count).step_by(LINE as usize / DESCRIPTOR_LEN) {
            prefetch_write(self.pair(index.wrapping_add(number)).as_ptr());
        }
    }

    /// What is in the buffer at an index that runs on for ever, for whoever knows where it lies.
    #[inline(always)]
    pub(super) fn read_content(&self, index: u16) -> Descriptor {
        Descriptor {
            first: self.pair(index)[0].load(Ordering::Relaxed),
            second: 0,
        }
    }

    /// Writes what is in the buffer, and the place where it lies too.
    #[inline(always)]
    pub(super) fn write(&self, index: u16, descriptor: Descriptor) {
        let pair = self.pair(index);
        pair[1].store(descriptor.second, Ordering::Relaxed);
        pair[0].store(descriptor.first, Ordering::Relaxed);
    }

    /// Writes what is in the buffer only.
    #[inline(always)]
    pub(super) fn write_content(&self, index: u16, descriptor: Descriptor) {
        self.pair(index)[0].store(descriptor.first, Ordering::Relaxed);
    }

    #[inline(always)]
    fn pair(&self, index: u16) -> &[AtomicU64] {
        // As many pairs as a power of two: one slice of two is always inside.
        let mask = self.descriptors.len() / 2 - 1;
        let at = 2 * (usize::from(index) & mask);
        &self.descriptors[at..at + 2]
    }
}
