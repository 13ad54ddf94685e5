//! Virtqueues (virtio 1.2, 2.7 split and 2.8 packed), as their device and as their driver.
//!
//! A queue moves buffers from the driver to the device and back. What stands in its rings is the
//! other side's to write, at any time: each word is loaded once, checked, and then used. Whoever is
//! at the other end can get no byte read or written outside the regions that it gave, and can make
//! us do no more work in a burst than our own ring is long.
//!
//! Read first: [`Ring`], which is all that the two kinds of ring and the two roles have in common,
//! and [`frames`], which moves packets over any of them. `split` and `packed` have a file each;
//! [`buffers`] is what a driver knows of its own buffers, [`lent`] has packets in their place;
//! [`gauge`] is for those who look and are not the worker.
//! Whoever looks for the layout of a header finds it in `vnet`.
//!
//! A frame is a run of *chains*; a chain is a run of *segments*, each in one region. A device sees
//! one chain for a frame that it receives, and may spread one that it sends over several (mergeable
//! buffers, 5.1.6.4); a driver's chains are its buffers, which it links to chains of the ring.

pub(crate) mod active;
pub(crate) mod buffers;
pub(crate) mod frames;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub(crate) mod gauge;
pub(crate) mod inflight;
pub(crate) mod lent;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod packed;
pub(crate) mod queue;
pub(crate) mod recorded;
pub(crate) mod split;

use crate::peer::violations::Violation;
use buffers::Buffers;
use gauge::{Gauge, Standing};
use linerate_core::mem::Window;
use memory::{AtHand, Memory, Near};
use std::sync::atomic::{Ordering, fence};

/// Descriptor flags (2.7.5, 2.8.1).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// Bytes of a header (5.1.6), but for the legacy form.
const HEADER_BYTES: usize = 12;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Segments after which a burst ends, however many chains it has.
const MOST_SEGMENTS: usize = 1024;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// VIRTIO_F_IN_ORDER: buffers come back in the order in which they were offered.
    pub(crate) in_order: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub(crate) event_index: bool,
    /// VIRTIO_F_INDIRECT_DESC.
    pub(crate) indirect: bool,
}

/// Which way buffers go that hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// By the driver: a transmit queue (5.1.2).
    ByDriver,
    /// By the device: a receive queue.
    ByDevice,
}

/// By the flag that a device expects of its buffers.
fn filled(direction: u16) -> Filled {
    match direction {
        WRITE => Filled::ByDevice,
        _ => Filled::ByDriver,
    }
}

/// Buffers that one side may use, as it looks at them: at most a burst.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) chains: Vec<Chain>,
    /// Those of chains that have not exactly one.
    segments: Vec<Segment>,
    /// The region of the last segment.
    last: usize,
    /// Whoever looks is to fill the buffers.
    fills: bool,
    /// Some chain goes on in the next one.
    linked: bool,
}

/// One chain of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// The only segment, where there is one.
    at: u64,
    /// Bytes of all segments.
    pub(crate) bytes: u32,
    /// Bytes put into it, by whom it was given to be filled.
    pub(crate) put: u32,
    /// Number of its first segment in the batch, and how many.
    first: u32,
    segments: u16,
    /// How the ring knows it: a head, a buffer's number.
    id: u16,
    /// Descriptors of a packed ring that it takes.
    places: u16,
    /// The frame in it goes on in the next one.
    pub(crate) goes_on: bool,
}

/// A part of a chain.
#[derive(Clone, Copy, Debug)]
struct Segment {
    at: u64,
    bytes: u32,
}

impl Batch {
    pub(crate) fn new(fills: bool) -> Self {
        Self {
            chains: Vec::with_capacity(frames::MOST_CHAINS),
            segments: Vec::new(),
            last: 0,
            fills,
            linked: false,
        }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.chains.clear();
        self.segments.clear();
        self.linked = false;
    }

    /// Adds a chain of one descriptor.
    #[inline(always)]
    fn add(&mut self, near: &mut Near<'_>, at: u64, bytes: u32, id: u16) -> Result<(), Violation> {
        let Some(window) = near.window(at, bytes) else {
            return self.add_parts(near, at, bytes, id);
        };
        self.push(window, 0, at, bytes, id);
        Ok(())
    }

    /// Adds a chain of one descriptor if it lies in the region at hand. For loops in which nothing
    /// else is called, so that they have all in registers.
    #[inline(always)]
    fn add_here(&mut self, here: AtHand<'_>, at: u64, bytes: u32, id: u16) -> bool {
        match here.window(at, bytes) {
            Some(window) if self.chains.len() < self.chains.capacity() => {
                self.push(window, 0, at, bytes, id);
                true
            }
            _ => false,
        }
    }

    /// Adds one of the driver's own buffers, to be filled, in the region at hand. Where it lies is
    /// looked at when it is filled.
    #[inline(always)]
    fn add_own(&mut self, here: AtHand<'_>, at: u64, bytes: u32, id: u16) {
        let (whole, offset) = here.offset(at);
        self.push(whole, offset, at, bytes, id);
    }

    /// Adds a chain of one descriptor that lies so far behind the start of a window.
    #[inline(always)]
    fn push(&mut self, window: Window<'_>, offset: usize, at: u64, bytes: u32, id: u16) {
        // Header and frame: a frame of 60 bytes begins at a line of its own, or goes on in the
        // next.
        if self.fills {
            window.prefetch_write_at(offset.wrapping_add(HEADER_BYTES));
            window.prefetch_write_at(offset.wrapping_add(LINE));
        } else {
            window.prefetch_at(offset.wrapping_add(LINE));
        }
        // Also to fill: a header that stands there is not written again.
        window.prefetch_at(offset);
        self.chains.push(Chain {
            at,
            bytes,
            put: 0,
            first: 0,
            segments: 1,
            id,
            places: 1,
            goes_on: false,
        });
    }

    #[cold]
    fn add_parts(
        &mut self,
        near: &Near<'_>,
        at: u64,
        bytes: u32,
        id: u16,
    ) -> Result<(), Violation> {
        let mut chain = self.begin();
        self.extend(near.memory(), &mut chain, at, bytes)?;
        self.end(Chain {
            id,
            places: 1,
            ..chain
        });
        Ok(())
    }

    /// A chain of several descriptors, of which none is known yet.
    fn begin(&self) -> Chain {
        Chain {
            at: 0,
            bytes: 0,
            put: 0,
            first: self.segments.len() as u32,
            segments: 0,
            id: 0,
            places: 0,
            goes_on: false,
        }
    }

    /// One more descriptor of a chain.
    fn extend(
        &mut self,
        memory: &Memory,
        chain: &mut Chain,
        at: u64,
        bytes: u32,
    ) -> Result<(), Violation> {
        if bytes == 0 {
            return Ok(());
        }
        chain.bytes = chain
            .bytes
            .checked_add(bytes)
            .ok_or(Violation::DescriptorLength)?;
        let segments = &mut self.segments;
        let inside = memory.parts(at, bytes, |at, window| {
            window.prefetch();
            let bytes = window.len() as u32;
            segments.push(Segment { at, bytes });
        });
        if inside {
            Ok(())
        } else {
            Err(Violation::DescriptorOutside)
        }
    }

    /// The chain is complete.
    fn end(&mut self, mut chain: Chain) {
        let segments = &self.segments[chain.first as usize..];
        chain.segments = segments.len() as u16;
        chain.at = segments.first().map_or(0, |segment| segment.at);
        self.chains.push(chain);
    }

    /// The segments of a chain.
    fn segments(&self, chain: &Chain) -> impl Iterator<Item = Segment> {
        let alone = (chain.segments == 1).then_some(Segment {
            at: chain.at,
            bytes: chain.bytes,
        });
        let several = match alone {
            Some(_) => &[],
            None => &self.segments[chain.first as usize..][..usize::from(chain.segments)],
        };
        alone.into_iter().chain(several.iter().copied())
    }
}

/// How one looks at the other side's wish to be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// At once. What was given may not be seen yet, so the other side may go to sleep just now:
    /// one more look has to follow.
    Early,
    /// When all that was given is seen: whoever sleeps has said so, or has found it.
    Late,
}

/// How many places were given since the other side's wish was last known for certain. At most a
/// ring's length: of more than that it has seen some.
#[derive(Debug, Default)]
struct Unsettled(u16);

impl Unsettled {
    #[inline(always)]
    fn add(&mut self, places: u16, size: u16) {
        self.0 = self.0.saturating_add(places).min(size);
    }

    /// `wants`: whether the other side wants to be notified of so many places.
    #[inline(always)]
    fn must_notify(&mut self, look: Look, wants: impl FnOnce(u16) -> bool) -> bool {
        if self.0 == 0 {
            return false;
        }
        if look == Look::Late {
            fence(Ordering::SeqCst); // what was given is seen before the wish is read
        }
        let wants = wants(self.0);
        if wants || look == Look::Late {
            self.0 = 0;
        }
        wants
    }
}

/// One side of one queue, of either kind.
pub(crate) trait Ring {
    /// Descriptors that it has.
    fn size(&self) -> u16;

    /// Puts up to `most` chains that the other side gave, or that are free, into an empty batch.
    /// Nothing moves by that: asked again, it finds the same.
    fn take(&mut self, memory: &Memory, batch: &mut Batch, most: usize) -> Result<(), Violation>;

    /// Gives the first `count` chains of the batch to the other side, in one step.
    fn give(&mut self, memory: &Memory, batch: &Batch, count: usize) -> Result<(), Violation>;

    /// Whether the other side wants to be notified of what was given since it last was, or since
    /// the last [`Look::Late`].
    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool;

    /// Tells the other side whether to notify.
    fn want(&mut self, memory: &Memory, notify: bool);

    /// Whether the other side gave something that was not taken yet.
    fn is_waiting(&self, memory: &Memory) -> bool;

    /// By which others look how full it is.
    fn gauge(&self) -> Gauge;

    /// What they have to know besides.
    fn standing(&self) -> Standing;
}

/// A buffer that a driver makes available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Guest address.
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) id: u16,
}

impl Chain {
    /// A buffer of our own, with what was put into it, or with room for so many bytes.
    #[inline(always)]
    fn offer(&self, room: Option<u32>) -> Offer {
        Offer {
            at: self.at,
            bytes: room.unwrap_or(self.put),
            id: self.id,
        }
    }
}

/// The driver's side of either kind, in steps: what [`Ring::take`] and [`Ring::give`] are made of,
/// for whoever has buffers elsewhere.
pub(crate) trait DriverRing: Ring {
    fn buffers(&self) -> &Buffers;

    /// Where the driver fills buffers: takes back what the device has read.
    fn reclaim(&mut self, memory: &Memory) -> Result<(), Violation>;

    /// Where the device fills them: numbers and bytes of up to `most` that it has filled. Nothing
    /// moves by that.
    fn each_filled(
        &self,
        memory: &Memory,
        most: usize,
        each: impl FnMut(u16, u32) -> Result<(), Violation>,
    ) -> Result<(), Violation>;

    /// The first of those, with these numbers, are ours again.
    fn take_back(&mut self, ids: impl ExactSizeIterator<Item = u16>) -> Result<(), Violation>;

    /// Makes free buffers available, in the order in which they are free, each by itself.
    fn offer(
        &mut self,
        memory: &Memory,
        offers: impl ExactSizeIterator<Item = Offer> + Clone,
    ) -> Result<(), Violation>;
}

/// The numbers of chains.
#[inline(always)]
fn ids(chains: &[Chain]) -> impl ExactSizeIterator<Item = u16> {
    chains.iter().map(|chain| chain.id)
}

/// Whether an event index lies among the places that were passed last (2.7.10).
fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
