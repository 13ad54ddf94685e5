//! The sending end of a ring: frames are copied into buffers of the shared memory, or stay in the
//! slots where they are.
//!
//! From client to server the buffers are the client's own, and `head` hands them over; from server
//! to client the client has lent them up to `head`, and `tail` says how far they are filled. A
//! frame that is longer than a buffer goes on in the next.

use super::exposed::{Exposed, Given};
use super::gauge::{Gauge, Way};
use super::layout::Buffers;
use super::receive::Fault;
use super::ring::{AtHand, Descriptor, Ring, View};
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::port::{DropReason, QueueStats};

/// The sending end, as long as one connection lasts.
pub(super) struct TxRing {
    pub(super) ring: Ring,
    side: Side,
    /// On a client whose packets stay where they are: those that the peer has.
    slots: Option<Given>,
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
        written: Vec<u32>,
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
                written: vec![u32::MAX; usize::from(buffers.count)],
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
            slots: None,
            next: 0,
            peer: 0,
            unchecked: false,
        }
    }

    /// As a client whose packets stay where they are.
    pub(super) fn of_slots(ring: Ring, exposed: &Exposed) -> Self {
        let slots = Some(Given::new(exposed, ring.size()));
        Self {
            slots,
            ..Self::new(ring, None)
        }
    }

    /// Slots of ours that the peer has.
    pub(super) fn held(&self) -> usize {
        self.slots.as_ref().map_or(0, Given::count)
    }

    /// By which others look how full it is.
    pub(super) fn gauge(&self) -> Gauge {
        let way = match (&self.side, &self.slots) {
            (Side::Server, None) => Way::ToClient,
            _ => Way::ToServer,
        };
        Gauge::new(self.ring.clone(), way)
    }

    /// Takes the front of the burst, as much as there are buffers for.
    #[inline]
    pub(super) fn send(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        stats: &QueueStats,
    ) -> Sent {
        if let Some(given) = &mut self.slots {
            let Some(view) = self.ring.view() else {
                return Sent::default();
            };
            let indices = (&mut self.next, &mut self.peer);
            let mut sent = given.send(view, indices, burst, cache, stats);
            if sent.packets > 0 {
                view.set_head(self.next);
                self.unchecked = true;
                sent.notify = view.wants_notifications();
            }
            return sent;
        }
        let sent = self.copy(burst, stats);
        cache.free_front(burst, sent.taken);
        sent
    }

    /// Copies the front of the burst, as much as there are buffers for.
    #[inline(always)]
    fn copy(&mut self, burst: &Burst, stats: &QueueStats) -> Sent {
        let Self {
            ring,
            side,
            next,
            peer,
            unchecked,
            ..
        } = self;
        let mut sent = Sent::default();
        let (Some(view), Some(regions)) = (ring.view(), ring.regions.at_hand()) else {
            return sent;
        };
        let size = ring.size();
        let mut room = Room {
            view,
            regions,
            size,
            side,
        };
        let mut free = match room.look(*next, peer, burst.len()) {
            Ok(free) => free,
            Err(fault) => {
                sent.fault = Some(fault);
                return sent;
            }
        };
        let began = *next;
        let packets = burst.as_packets();
        while sent.taken < packets.len() {
            let (plain, bytes) = room.put_plain(*next, free, &packets[sent.taken..]);
            *next = next.wrapping_add(plain);
            free -= plain;
            sent.taken += usize::from(plain);
            sent.packets += u64::from(plain);
            sent.bytes += bytes;
            let Some(packet) = packets.get(sent.taken) else {
                break;
            };
            match room.put_chain(*next, &mut free, peer, packet) {
                Fate::Goes(used) => {
                    *next = next.wrapping_add(used);
                    free -= used;
                    sent.packets += 1;
                    sent.bytes += packet.len() as u64;
                }
                Fate::Dropped => stats.dropped(DropReason::Oversize, 1),
                Fate::Waits => break,
                Fate::Fault(fault) => {
                    sent.fault = Some(fault);
                    break;
                }
            }
            sent.taken += 1;
        }
        if *next != began {
            match room.side {
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

    /// To be called in a round in which nothing was sent: takes slots back, and says whether the
    /// peer, which may have gone to sleep just before the last frames came, has to be notified.
    #[inline]
    pub(super) fn settle(&mut self, cache: &mut PoolCache) -> Result<bool, Fault> {
        if let Some(given) = &mut self.slots
            && given.count() > 0
            && let Some(view) = self.ring.view()
        {
            given.reclaim(view, self.next, &mut self.peer, cache)?;
        }
        if !std::mem::take(&mut self.unchecked) {
            return Ok(false);
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let view = self.ring.view();
        Ok(view.is_some_and(|view| view.wants_notifications()))
    }
}

/// A ring in one burst.
struct Room<'a> {
    view: View<'a>,
    regions: AtHand<'a>,
    size: u16,
    side: &'a mut Side,
}

impl Room<'_> {
    /// How many descriptors can be filled. Looks at the peer's index only where those known of are
    /// too few.
    #[inline(always)]
    fn look(&self, next: u16, peer: &mut u16, wanted: usize) -> Result<u16, Fault> {
        let free = |peer: u16| match self.side {
            Side::Client { .. } => self.size.wrapping_sub(next.wrapping_sub(peer)),
            Side::Server => peer.wrapping_sub(next),
        };
        if usize::from(free(*peer)) >= wanted {
            return Ok(free(*peer));
        }
        let now = match self.side {
            Side::Client { .. } => self.view.tail(),
            Side::Server => self.view.head(),
        };
        // Not back, and not beyond what is possible: both make the number larger than the ring, or
        // smaller than it was.
        let (before, after) = (free(*peer), free(now));
        if after > self.size || after < before {
            return Err(index_fault(now, *peer));
        }
        *peer = now;
        Ok(after)
    }

    /// Copies frames into one buffer each, up to the first that does not fit, or whose buffer is no
    /// good. Returns how many, and their bytes.
    #[inline(always)]
    fn put_plain(&mut self, next: u16, free: u16, packets: &[Packet]) -> (u16, u64) {
        let most = packets.len().min(usize::from(free));
        let (view, regions, packets) = (self.view, self.regions, &packets[..most]);
        match &mut *self.side {
            Side::Client { buffers, written } => {
                put_own(view, regions, *buffers, written, next, packets)
            }
            Side::Server => put_lent(view, regions, next, packets),
        }
    }

    /// The buffer at an index: on a client what we know, on a server what the peer says.
    fn place(&self, index: u16) -> Descriptor {
        match &*self.side {
            Side::Client { buffers, .. } => buffers.empty(index),
            Side::Server => self.view.read(index),
        }
    }

    /// Says what is in a buffer. A client does not repeat what stands there already, unless there
    /// is more behind it: libmemif as a server clears that flag of what it has read.
    fn fill(&mut self, index: u16, descriptor: Descriptor) {
        if let Side::Client { written, .. } = &mut *self.side {
            let at = usize::from(index) & (written.len() - 1);
            let content = descriptor.brief();
            if std::mem::replace(&mut written[at], content) == content && !descriptor.more() {
                return;
            }
        }
        self.view.write_content(index, descriptor);
    }

    /// Copies a frame into as many buffers as it takes. Where those known of are too few, looks for
    /// more.
    #[cold]
    fn put_chain(&mut self, next: u16, free: &mut u16, peer: &mut u16, packet: &Packet) -> Fate {
        let places = loop {
            match self.chain(next, *free, packet.len()) {
                Ok(Some(places)) => break places,
                // Not even a ring without any other frame takes it.
                Ok(None) if *free == self.size => return Fate::Dropped,
                Ok(None) => {}
                Err(fault) => return Fate::Fault(fault),
            }
            let now = match self.look(next, peer, usize::MAX) {
                Ok(now) => now,
                Err(fault) => return Fate::Fault(fault),
            };
            if std::mem::replace(free, now) == now {
                return Fate::Waits;
            }
        };
        let mut data = packet.data();
        for (number, place) in places.iter().enumerate() {
            let part;
            (part, data) = data.split_at(data.len().min(place.len() as usize));
            if let Some(window) = self.regions.window(*place, part.len() as u32) {
                window.write(part);
            }
            let more = number + 1 < places.len();
            let index = next.wrapping_add(number as u16);
            self.fill(index, place.holding(part.len() as u32, more));
        }
        Fate::Goes(places.len() as u16)
    }

    /// The buffers that `len` bytes fill, each checked; `None` where those that are free are too
    /// few.
    fn chain(&self, next: u16, free: u16, len: usize) -> Result<Option<Vec<Descriptor>>, Fault> {
        let (mut places, mut room) = (Vec::new(), 0);
        for number in 0..free {
            let place = self.place(next.wrapping_add(number));
            if self.regions.window(place, place.len()).is_none() {
                let (region, offset) = (place.region(), place.offset());
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
}

/// As [`Room::put_plain`], into buffers of our own. All that the loop needs is an argument, and so
/// in a register: after each copy whatever is in memory is loaded again.
#[inline(never)]
fn put_own(
    view: View<'_>,
    regions: AtHand<'_>,
    buffers: Buffers,
    written: &mut [u32],
    next: u16,
    packets: &[Packet],
) -> (u16, u64) {
    // The peer's core has these lines since it read what was in them: asked for all at once they
    // come beside each other, and stores, which wait for each in turn, find them here.
    for number in 0..packets.len() {
        let place = buffers.empty(next.wrapping_add(number as u16));
        if let Some(window) = regions.window(place, 1) {
            window.prefetch_write();
        }
    }
    let (mut done, mut bytes) = (0_u16, 0);
    for packet in packets {
        let (data, index) = (packet.data(), next.wrapping_add(done));
        let (len, place) = (data.len() as u32, buffers.empty(index));
        if len > buffers.bytes {
            break;
        }
        let Some(window) = regions.window(place, len) else {
            break;
        };
        window.write(data);
        let at = usize::from(index) & (written.len() - 1);
        let filled = place.holding(len, false);
        if std::mem::replace(&mut written[at], filled.brief()) != filled.brief() {
            view.write_content(index, filled);
        }
        done += 1;
        bytes += u64::from(len);
    }
    (done, bytes)
}

/// As [`Room::put_plain`], into buffers that the peer lent.
#[inline(never)]
fn put_lent(view: View<'_>, regions: AtHand<'_>, next: u16, packets: &[Packet]) -> (u16, u64) {
    if packets.is_empty() {
        return (0, 0);
    }
    view.prefetch_write(next, packets.len() as u16);
    let regions = regions.near(view.read(next));
    // Only asked for: what a descriptor says then is read again when it is used.
    for number in 0..packets.len() {
        let place = view.read(next.wrapping_add(number as u16));
        if let Some(window) = regions.window(place, 1) {
            window.prefetch_write();
        }
    }
    let (mut done, mut bytes) = (0_u16, 0);
    for packet in packets {
        let (data, index) = (packet.data(), next.wrapping_add(done));
        let (len, place) = (data.len() as u32, view.read(index));
        if len > place.len() {
            break;
        }
        let Some(window) = regions.window(place, len) else {
            break;
        };
        window.write(data);
        view.write_content(index, place.holding(len, false));
        done += 1;
        bytes += u64::from(len);
    }
    (done, bytes)
}

#[cold]
fn index_fault(now: u16, before: u16) -> Fault {
    let detail = format!("the index of a ring that we fill is {now}, after {before}");
    (Violation::RingIndex, detail)
}
