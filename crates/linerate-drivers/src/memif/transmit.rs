//! The sending end of a ring: frames are copied into buffers of the shared memory.
//!
//! From client to server the buffers are the client's own, and `head` hands them over; from server
//! to client the client has lent them up to `head`, and `tail` says how far they are filled. A
//! frame that is longer than a buffer goes on in the next.

use super::layout::Buffers;
use super::receive::Fault;
use super::ring::{Descriptor, Ring, View};
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Packet};
use linerate_core::port::{DropReason, QueueStats};

/// The sending end, as long as one connection lasts.
pub(super) struct TxRing {
    pub(super) ring: Ring,
    side: Side,
    /// The first descriptor that was not filled.
    next: u16,
    /// How far the peer was when we last looked: what it gave back, or lent.
    peer: u16,
    /// Frames were handed over since somebody last made sure that the peer is awake.
    unchecked: bool,
}

/// Whose the buffers are.
enum Side {
    /// Ours. What stands in each descriptor is known here: one that stays the same is not written,
    /// so that its cache line need not come back from the peer's core.
    Client {
        buffers: Buffers,
        written: Vec<u64>,
    },
    Server,
}

/// What [`TxRing::send`] did with the front of a burst.
#[derive(Default)]
pub(super) struct Sent {
    /// Packets taken: sent or dropped.
    pub(super) taken: usize,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// The peer sleeps.
    pub(super) notify: bool,
    pub(super) fault: Option<Fault>,
}

/// What becomes of a frame.
enum Fate {
    /// It takes so many descriptors.
    Goes(u16),
    Dropped,
    Waits,
    Fault(Fault),
}

impl TxRing {
    /// As a client with its buffers, as a server without.
    pub(super) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        let side = match buffers {
            Some(buffers) => Side::Client {
                buffers,
                written: vec![u64::MAX; usize::from(buffers.count)],
            },
            None => Side::Server,
        };
        if let (Some(buffers), Some(view)) = (buffers, ring.view()) {
            for index in 0..buffers.count {
                view.write(index, buffers.empty(index));
            }
        }
        Self {
            ring,
            side,
            next: 0,
            peer: 0,
            unchecked: false,
        }
    }

    /// Descriptors that the peer has not emptied, for people.
    pub(super) fn waiting(&self) -> u16 {
        let Some(view) = self.ring.view() else {
            return 0;
        };
        let waiting = match self.side {
            Side::Client { .. } => self.next.wrapping_sub(view.tail()),
            Side::Server => self
                .ring
                .size()
                .wrapping_sub(view.head().wrapping_sub(self.next)),
        };
        waiting.min(self.ring.size())
    }

    /// Takes the front of the burst, as much as there are buffers for. The caller frees it.
    #[inline]
    pub(super) fn send(&mut self, burst: &Burst, stats: &QueueStats) -> Sent {
        let Self {
            ring,
            side,
            next,
            peer,
            unchecked,
        } = self;
        let mut sent = Sent::default();
        let Some(view) = ring.view() else {
            return sent;
        };
        let mut free = match look(&view, ring, side, *next, peer, burst.len()) {
            Ok(free) => free,
            Err(fault) => {
                sent.fault = Some(fault);
                return sent;
            }
        };
        let began = *next;
        for packet in burst.iter() {
            if free > 0 && put(&view, ring, side, *next, packet) {
                *next = next.wrapping_add(1);
                free -= 1;
            } else {
                let fate = put_chain(&view, ring, side, *next, &mut free, peer, packet);
                match fate {
                    Fate::Goes(used) => {
                        *next = next.wrapping_add(used);
                        free -= used;
                    }
                    Fate::Dropped => {
                        stats.dropped(DropReason::Oversize, 1);
                        sent.taken += 1;
                        continue;
                    }
                    Fate::Waits => break,
                    Fate::Fault(fault) => {
                        sent.fault = Some(fault);
                        break;
                    }
                }
            }
            sent.taken += 1;
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
        }
        if *next != began {
            match side {
                Side::Client { .. } => view.set_head(*next),
                Side::Server => view.set_tail(*next),
            }
            // The look may be too early: before the peer sees the index. The next one, or `settle`,
            // is late enough.
            *unchecked = true;
            sent.notify = view.wants_notifications();
        }
        sent
    }

    /// To be called in a round in which nothing was sent: whether the peer, which may have gone to
    /// sleep just before the last frames came, has to be notified.
    #[inline]
    pub(super) fn settle(&mut self) -> bool {
        if !std::mem::take(&mut self.unchecked) {
            return false;
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let view = self.ring.view();
        view.is_some_and(|view| view.wants_notifications())
    }
}

/// How many descriptors can be filled. Looks at the peer's index only where those known of are too
/// few.
#[inline(always)]
fn look(
    view: &View<'_>,
    ring: &Ring,
    side: &Side,
    next: u16,
    peer: &mut u16,
    wanted: usize,
) -> Result<u16, Fault> {
    let size = ring.size();
    let free = |peer: u16| match side {
        Side::Client { .. } => size.wrapping_sub(next.wrapping_sub(peer)),
        Side::Server => peer.wrapping_sub(next),
    };
    if usize::from(free(*peer)) >= wanted {
        return Ok(free(*peer));
    }
    let now = match side {
        Side::Client { .. } => view.tail(),
        Side::Server => view.head(),
    };
    // Not back, and not beyond what is possible: both make the number larger than the ring, or
    // smaller than it was.
    let (before, after) = (free(*peer), free(now));
    if after > size || after < before {
        return Err(index_fault(now, *peer));
    }
    *peer = now;
    Ok(after)
}

#[cold]
fn index_fault(now: u16, before: u16) -> Fault {
    let detail = format!("the index of a ring that we fill is {now}, after {before}");
    (Violation::RingIndex, detail)
}

/// Copies a frame into one buffer; false where it does not fit, or the buffer is no good.
#[inline(always)]
fn put(view: &View<'_>, ring: &Ring, side: &mut Side, index: u16, packet: &Packet) -> bool {
    let data = packet.data();
    let len = data.len() as u32;
    match side {
        Side::Client { buffers, written } => {
            if len > buffers.bytes {
                return false;
            }
            let place = buffers.empty(index);
            let Some(window) = ring.regions.window(place.region(), place.offset(), len) else {
                return false;
            };
            window.write(data);
            write_own(view, written, index, place.holding(len, false));
            true
        }
        Side::Server => {
            let place = view.read(index);
            if len > place.len() {
                return false;
            }
            let Some(window) = ring.regions.window(place.region(), place.offset(), len) else {
                return false;
            };
            window.write(data);
            view.write_content(index, place.holding(len, false));
            true
        }
    }
}

/// Writes a descriptor of our own memory, if it changes.
#[inline(always)]
fn write_own(view: &View<'_>, written: &mut [u64], index: u16, descriptor: Descriptor) {
    let at = usize::from(index) & (written.len() - 1);
    if let Some(known) = written.get_mut(at)
        && *known != descriptor.content()
    {
        *known = descriptor.content();
        view.write_content(index, descriptor);
    }
}

/// Copies a frame into as many buffers as it takes. Where those known of are too few, looks for
/// more.
#[cold]
fn put_chain(
    view: &View<'_>,
    ring: &Ring,
    side: &mut Side,
    next: u16,
    free: &mut u16,
    peer: &mut u16,
    packet: &Packet,
) -> Fate {
    let places = loop {
        match chain(view, ring, side, next, *free, packet.len()) {
            Ok(Some(places)) => break places,
            // Not even a ring without any other frame takes it.
            Ok(None) if *free == ring.size() => return Fate::Dropped,
            Ok(None) => {}
            Err(fault) => return Fate::Fault(fault),
        }
        let before = std::mem::replace(
            free,
            match look(view, ring, side, next, peer, usize::MAX) {
                Ok(free) => free,
                Err(fault) => return Fate::Fault(fault),
            },
        );
        if *free == before {
            return Fate::Waits;
        }
    };
    let mut data = packet.data();
    for (number, place) in places.iter().enumerate() {
        let part;
        (part, data) = data.split_at(data.len().min(place.len() as usize));
        let (region, offset, len) = (place.region(), place.offset(), part.len() as u32);
        if let Some(window) = ring.regions.window(region, offset, len) {
            window.write(part);
        }
        let index = next.wrapping_add(number as u16);
        let filled = place.holding(len, number + 1 < places.len());
        match side {
            Side::Client { written, .. } => write_own(view, written, index, filled),
            Side::Server => view.write_content(index, filled),
        }
    }
    Fate::Goes(places.len() as u16)
}

/// The buffers that `len` bytes fill, each checked; `None` where those that are free are too few.
fn chain(
    view: &View<'_>,
    ring: &Ring,
    side: &Side,
    next: u16,
    free: u16,
    len: usize,
) -> Result<Option<Vec<Descriptor>>, Fault> {
    let (mut places, mut room) = (Vec::new(), 0);
    for number in 0..free {
        let index = next.wrapping_add(number);
        let place = match side {
            Side::Client { buffers, .. } => buffers.empty(index),
            Side::Server => view.read(index),
        };
        let (region, offset) = (place.region(), place.offset());
        if ring.regions.window(region, offset, place.len()).is_none() {
            let detail = format!("{} bytes at {offset} of region {region}", place.len());
            return Err((Violation::DescriptorOutside, detail));
        }
        if place.len() == 0 {
            let detail = "an empty buffer has no room".to_owned();
            return Err((Violation::DescriptorLength, detail));
        }
        room += place.len() as usize;
        places.push(place);
        if room >= len {
            return Ok(Some(places));
        }
    }
    Ok(None)
}
