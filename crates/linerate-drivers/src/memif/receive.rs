//! The receiving end of a ring: frames are copied into slots of ours, or come into those that the
//! peer was lent.
//!
//! From server to client the client lends empty buffers by `head`, and finds what came up to
//! `tail`; from client to server frames lie up to `head`, and `tail` gives their buffers back. Each
//! descriptor is loaded once, into our memory; a burst looks at no more of them than the ring has.

use super::exposed::{Exposed, Lent};
use super::gauge::{Gauge, Way};
use super::layout::Buffers;
use super::ring::{AtHand, Descriptor, LINE, Ring, View};
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, QueueStats};
use linerate_wire::ethernet;

/// What a violation was, and the sentence about it.
pub(super) type Fault = (Violation, String);

/// What a receive queue has besides its ring.
pub(super) struct Slots {
    pub(super) pools: Pools,
    /// The application's number of the port.
    pub(super) port: u16,
}

/// The receiving end, as long as one connection lasts.
pub(super) struct RxRing {
    pub(super) ring: Ring,
    /// The buffers of our own memory; `None` on a server, whose peer says where they are.
    buffers: Option<Buffers>,
    /// A client's slots in their place.
    slots: Option<Lent>,
    /// The first descriptor that was not looked at.
    next: u16,
    /// The first that was not lent: the client's.
    lent: u16,
    /// Descriptors of a chain.
    loaded: Vec<Descriptor>,
    /// The peer is to notify.
    notified: bool,
}

/// What [`RxRing::receive`] did besides filling the burst.
#[derive(Default)]
pub(super) struct Received {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) fault: Option<Fault>,
}

/// What became of a frame that is not copied as most are.
enum Special {
    Received(u64),
    Dropped(DropReason),
    /// No slot is free, or the rest has not come: later.
    Waits,
}

impl RxRing {
    /// As a client with its buffers, as a server without.
    pub(super) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        let loaded = vec![Descriptor::default(); usize::from(ring.size())];
        let mut lent = 0;
        if let (Some(view), Some(buffers)) = (ring.view(), buffers) {
            lend(&view, buffers, 0, &mut lent);
        }
        let mut new = Self {
            ring,
            buffers,
            slots: None,
            next: 0,
            lent,
            loaded,
            notified: false,
        };
        // A worker that sleeps already has not told this ring's sender.
        new.asleep();
        new
    }

    /// As a client that lends slots.
    pub(super) fn of_slots(ring: Ring, exposed: &Exposed) -> Self {
        let slots = Some(Lent::new(exposed, ring.size()));
        Self {
            slots,
            ..Self::new(ring, None)
        }
    }

    /// Lends the first slots of a receive queue, inside its gate.
    pub(super) fn lend_first(&mut self, queue: usize) {
        if let (Some(slots), Some(view)) = (&mut self.slots, self.ring.view()) {
            slots.lend_first(view, queue);
        }
    }

    /// Slots of ours that the peer has.
    pub(super) fn held(&self) -> usize {
        self.slots.as_ref().map_or(0, Lent::count)
    }

    /// The peer is to notify, from now on.
    pub(super) fn asleep(&mut self) {
        if let Some(view) = self.ring.view() {
            view.want_notifications(true);
            self.notified = true;
        }
    }

    /// The peer need not notify any more.
    #[inline(always)]
    pub(super) fn awake(&mut self) {
        if self.notified
            && let Some(view) = self.ring.view()
        {
            view.want_notifications(false);
            self.notified = false;
        }
    }

    /// By which others look how full it is.
    pub(super) fn gauge(&self) -> Gauge {
        Gauge::new(
            self.ring.clone(),
            match (&self.slots, self.buffers) {
                (Some(slots), _) => Way::Lent(slots.taken()),
                (None, Some(_)) => Way::ToClient,
                (None, None) => Way::ToServer,
            },
        )
    }

    /// Fills the burst's free room.
    #[inline]
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        slots: &Slots,
        stats: &QueueStats,
    ) -> Received {
        if let Some(lent) = &mut self.slots {
            return match self.ring.view() {
                Some(view) => lent.receive(view, &mut self.next, burst, cache, slots, stats),
                None => Received::default(),
            };
        }
        // Taken apart, so that the ring can be borrowed while indices change.
        let Self {
            ring,
            buffers,
            next,
            lent,
            loaded,
            ..
        } = self;
        let mut done = Received::default();
        let (Some(view), Some(regions)) = (ring.view(), ring.regions.at_hand()) else {
            return done;
        };
        let (produced, most) = match buffers {
            Some(_) => (view.tail(), lent.wrapping_sub(*next)),
            None => (view.head(), ring.size()),
        };
        let mut ready = produced.wrapping_sub(*next);
        if ready == 0 {
            return done;
        }
        if ready > most {
            done.fault = Some(index_fault(produced, *next, most));
            return done;
        }
        let began = *next;
        let mut frames = Frames {
            size: ring.size(),
            view,
            regions,
            buffers: *buffers,
            loaded,
        };
        while ready > 0 && burst.room() > 0 {
            let (wanted, taken) = match buffers {
                Some(_) => frames.copy_plain::<true>(*next, ready, burst, cache, slots, &mut done),
                None => frames.copy_plain::<false>(*next, ready, burst, cache, slots, &mut done),
            };
            *next = next.wrapping_add(taken);
            ready -= taken;
            if taken < wanted || ready == 0 || burst.room() == 0 {
                break;
            }
            let (used, special) = match frames.special(*next, ready, burst, cache, slots) {
                Ok(special) => special,
                Err(fault) => {
                    done.fault = Some(fault);
                    break;
                }
            };
            match special {
                Special::Received(bytes) => {
                    done.packets += 1;
                    done.bytes += bytes;
                }
                Special::Dropped(reason) => stats.dropped(reason, 1),
                Special::Waits => break,
            }
            *next = next.wrapping_add(used);
            ready -= used;
        }
        if *next != began {
            match *buffers {
                Some(buffers) => lend(&view, buffers, *next, lent),
                None => view.set_tail(*next),
            }
        }
        done
    }
}

/// Lends all buffers behind `next` that are not lent.
#[inline(always)]
fn lend(view: &View<'_>, buffers: Buffers, next: u16, lent: &mut u16) {
    let until = next.wrapping_add(buffers.count);
    view.prefetch_write(*lent, until.wrapping_sub(*lent));
    while *lent != until {
        view.write(*lent, buffers.empty(*lent));
        *lent = lent.wrapping_add(1);
    }
    view.set_head(until);
}

#[cold]
pub(super) fn index_fault(produced: u16, next: u16, most: u16) -> Fault {
    let detail = format!(
        "a ring's index is {produced} after {next}: {} ahead, where {most} are possible",
        produced.wrapping_sub(next)
    );
    (Violation::RingIndex, detail)
}

/// A ring's frames in one burst.
struct Frames<'a> {
    size: u16,
    view: View<'a>,
    regions: AtHand<'a>,
    buffers: Option<Buffers>,
    loaded: &'a mut [Descriptor],
}

impl Frames<'_> {
    /// Loads a descriptor. On a client the place of the buffer is what we said, whatever stands
    /// there now.
    #[inline(always)]
    fn load(&self, index: u16) -> Descriptor {
        let read = self.view.read(index);
        match self.buffers {
            Some(buffers) => buffers.empty(index).holding(read.len(), read.more()),
            None => read,
        }
    }

    /// Copies frames of one descriptor each, up to the first that is not such a one, or too long or
    /// short. Returns how many it found, and for how many of them there were slots.
    #[inline(never)]
    fn copy_plain<const CLIENT: bool>(
        &mut self,
        next: u16,
        ready: u16,
        burst: &mut Burst,
        cache: &mut PoolCache,
        slots: &Slots,
        done: &mut Received,
    ) -> (u16, u16) {
        let pool = slots.pools.primary();
        let room = pool.room_bytes() as u32;
        // All in registers: after a copy whatever is in memory would be loaded again.
        let (view, mut regions) = (self.view, self.regions);
        if !CLIENT {
            regions = regions.near(view.read(next));
        }
        let buffers = self.buffers.filter(|_| CLIENT).unwrap_or_default();
        let room = if CLIENT {
            room.min(buffers.bytes)
        } else {
            room
        };
        let most = usize::from(ready).min(burst.room());
        view.prefetch(next, most as u16);
        let mut windows = [None; Burst::CAPACITY];
        let (mut found, mut longest) = (0, 0);
        for (number, frame) in windows[..most].iter_mut().enumerate() {
            let index = next.wrapping_add(number as u16);
            let read = view.read(index);
            let descriptor = match CLIENT {
                true => buffers.empty(index).holding(read.len(), read.more()),
                false => read,
            };
            let len = descriptor.len();
            let Some(window) = regions.window(descriptor, len) else {
                break;
            };
            if descriptor.more() || !(ethernet::HEADER_LEN as u32..=room).contains(&len) {
                break;
            }
            window.prefetch();
            longest = longest.max(len);
            *frame = Some(window);
            found += 1;
        }
        if found == 0 {
            return (0, 0);
        }
        let template = RxTemplate {
            len: 0,
            port: slots.port,
            offload: Offload::NONE,
        };
        let (now, mut bytes) = (burst.now, 0);
        let taken = cache.fill_each(pool, burst, found, template, |number, room| {
            let Some(window) = windows[number] else {
                return (0, now);
            };
            let len = window.len();
            if longest > LINE
                && let Some(Some(next)) = windows.get(number + 1)
            {
                next.prefetch_rest();
            }
            window.read(&mut room[..len]);
            bytes += len as u64;
            (len as u32, now)
        });
        done.packets += taken as u64;
        done.bytes += bytes;
        (found as u16, taken as u16)
    }

    /// One frame that is in several descriptors, or too long or too short for a small slot. Returns
    /// how many descriptors it had.
    #[cold]
    fn special(
        &mut self,
        next: u16,
        ready: u16,
        burst: &mut Burst,
        cache: &mut PoolCache,
        slots: &Slots,
    ) -> Result<(u16, Special), Fault> {
        let Some((used, len)) = self.chain(next, ready)? else {
            return Ok((0, Special::Waits));
        };
        if len < ethernet::HEADER_LEN {
            return Ok((used, Special::Dropped(DropReason::Malformed)));
        }
        let Some(pool) = slots.pools.for_frame(len) else {
            return Ok((used, Special::Dropped(DropReason::Oversize)));
        };
        let Some(mut packet) = self.copy_chain(used, len, pool, cache) else {
            return Ok((0, Special::Waits));
        };
        packet.set_port(slots.port);
        packet.meta_mut().timestamp = burst.now;
        let pushed = burst.push(packet);
        debug_assert!(pushed.is_ok(), "the burst had room");
        Ok((used, Special::Received(len as u64)))
    }

    /// Loads the descriptors of a frame and checks each; their number, and the frame's bytes.
    /// `None` where the last of it has not come.
    fn chain(&mut self, next: u16, ready: u16) -> Result<Option<(u16, usize)>, Fault> {
        let mut bytes = 0;
        for used in 0..ready {
            let descriptor = self.load(next.wrapping_add(used));
            let (region, offset) = (descriptor.region(), descriptor.offset());
            let len = descriptor.len();
            if let Some(buffers) = self.buffers.filter(|buffers| len > buffers.bytes) {
                let detail = format!("{len} bytes in a buffer of {}", buffers.bytes);
                return Err((Violation::DescriptorLength, detail));
            }
            if self.regions.window(descriptor, len).is_none() {
                let detail = format!("{len} bytes at {offset} of region {region}");
                return Err((Violation::DescriptorOutside, detail));
            }
            bytes += len as usize;
            self.loaded[usize::from(used)] = descriptor;
            if !descriptor.more() {
                return Ok(Some((used + 1, bytes)));
            }
        }
        if ready >= self.size {
            let detail = format!("all {ready} descriptors of the ring say that there is more");
            return Err((Violation::ChainTooLong, detail));
        }
        Ok(None)
    }

    /// Copies a chain that [`chain`](Self::chain) has checked; `None` without a free slot.
    fn copy_chain(
        &self,
        used: u16,
        len: usize,
        pool: &Pool,
        cache: &mut PoolCache,
    ) -> Option<Packet> {
        let mut packet = cache.get(pool)?;
        let fits = packet.set_len(len);
        debug_assert!(fits, "the pool was chosen for the frame");
        let mut rest = packet.data_mut();
        for descriptor in &self.loaded[..usize::from(used)] {
            let Some(part) = rest.split_off_mut(..descriptor.len() as usize) else {
                break;
            };
            if let Some(window) = self.regions.window(*descriptor, descriptor.len()) {
                window.read(part);
            }
        }
        Some(packet)
    }
}
