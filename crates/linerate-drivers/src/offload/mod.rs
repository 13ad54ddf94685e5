//! Finishes in software what a port cannot have finished by its device.
//!
//! For ports whose [`PortInfo::tx_offloads`](linerate_core::port::PortInfo::tx_offloads) is false:
//! [`Finisher`] stands before the driver's own transmit, completes checksums, puts VLAN tags back
//! and cuts oversized frames into segments. A burst in which nothing is left to do passes it
//! untouched, after one look at each packet's flags.
//!
//! `merge` is for the others: it joins segments into the unsegmented frames that they take.

pub(crate) mod merge;

use linerate_core::packet::{Burst, Offload, Packet, PoolCache, Pools};
use linerate_core::port::{DropReason, QueueStats};
use linerate_wire::offload::{Segments, complete_partial};
use linerate_wire::{EtherType, vlan};
use std::collections::VecDeque;

/// Work to be done before a frame can go over a wire.
#[inline]
pub fn duties() -> Offload {
    Offload::CSUM_PARTIAL | Offload::VLAN | Offload::GSO
}

/// Whether a packet of the burst has any of these flags.
#[inline]
pub fn any(burst: &Burst, flags: Offload) -> bool {
    burst.iter().fold(false, |found, packet| {
        found | packet.meta().offload.intersects(flags)
    })
}

/// Puts the tags that stand in metadata back into the frames.
#[inline]
pub fn put_tags_back(burst: &mut Burst) {
    if any(burst, Offload::VLAN) {
        burst.iter_mut().for_each(put_tag_back);
    }
}

/// Puts a VLAN tag that stands in the metadata back into the frame. One without headroom or
/// header is left alone.
pub fn put_tag_back(packet: &mut Packet) {
    let meta = packet.meta();
    if !meta.offload.contains(Offload::VLAN) {
        return;
    }
    let service = meta.offload.contains(Offload::VLAN_8021AD);
    let tpid = if service {
        EtherType::SERVICE_VLAN
    } else {
        EtherType::VLAN
    };
    let tci = meta.vlan_tci;
    if packet.prepend(vlan::TAG_LEN).is_none() {
        return;
    }
    if !vlan::insert(packet.data_mut(), tpid, tci) {
        packet.trim_front(vlan::TAG_LEN);
        return;
    }
    let meta = packet.meta_mut();
    meta.offload.remove(Offload::VLAN | Offload::VLAN_8021AD);
    meta.csum_start = meta.csum_start.saturating_add(vlan::TAG_LEN as u16);
}

/// Completes a partial checksum. False where its offsets do not fit the frame.
pub fn complete_checksum(packet: &mut Packet) -> bool {
    let meta = packet.meta_mut();
    let (start, offset) = (meta.csum_start, meta.csum_offset.into());
    meta.offload.remove(Offload::CSUM_PARTIAL);
    complete_partial(packet.data_mut(), start, offset)
}

/// Finishes packets for one transmit queue, and keeps the segments that did not go yet.
pub struct Finisher {
    pools: Pools,
    /// Segments that go before anything else.
    pending: VecDeque<Packet>,
}

impl Finisher {
    /// Segments get slots from the smallest of these pools that takes them.
    pub fn new(pools: &Pools) -> Self {
        Self {
            pools: pools.clone(),
            pending: VecDeque::new(),
        }
    }

    /// Packets that wait: for the ledger.
    pub fn held(&self) -> i64 {
        self.pending.len() as i64
    }

    /// Sends a burst through `send`, which is a driver's `tx_burst` for finished frames; returns
    /// how many packets it took from the burst. Call it with an empty burst to send what waits.
    #[inline]
    pub fn tx(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        stats: &QueueStats,
        mut send: impl FnMut(&mut Burst, &mut PoolCache) -> usize,
    ) -> usize {
        if self.pending.is_empty() && !any(burst, duties()) {
            return send(burst, cache);
        }
        self.tx_unfinished(burst, cache, stats, &mut send)
    }

    #[cold]
    fn tx_unfinished(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        stats: &QueueStats,
        send: &mut dyn FnMut(&mut Burst, &mut PoolCache) -> usize,
    ) -> usize {
        if !self.send_pending(cache, send) {
            return 0;
        }
        let mut taken = 0;
        while !burst.is_empty() {
            // One packet at a time: what is not taken must stay at the front of the burst.
            let mut one = Burst::with_room(1);
            taken += burst.move_front(1, &mut one);
            if let Some(packet) = one.pop()
                && let Err((reason, packet)) = self.finish(packet, cache, stats)
            {
                stats.dropped(reason, 1);
                cache.free_one(packet);
            }
            if self.pending.len() >= Burst::CAPACITY && !self.send_pending(cache, send) {
                return taken;
            }
        }
        self.send_pending(cache, send);
        taken
    }

    /// Sends what waits; whether all of it went.
    fn send_pending(
        &mut self,
        cache: &mut PoolCache,
        send: &mut dyn FnMut(&mut Burst, &mut PoolCache) -> usize,
    ) -> bool {
        while !self.pending.is_empty() {
            let mut burst = Burst::new();
            let count = self.pending.len().min(Burst::CAPACITY);
            for packet in self.pending.drain(..count) {
                let pushed = burst.push(packet);
                debug_assert!(pushed.is_ok(), "as many as fit");
            }
            let all = send(&mut burst, cache) == count;
            while let Some(packet) = burst.pop() {
                self.pending.push_front(packet);
            }
            if !all {
                return false;
            }
        }
        true
    }

    /// Queues a packet, finished, or its segments.
    fn finish(
        &mut self,
        mut packet: Packet,
        cache: &mut PoolCache,
        stats: &QueueStats,
    ) -> Result<(), (DropReason, Packet)> {
        put_tag_back(&mut packet);
        let offload = packet.meta().offload;
        if offload.intersects(Offload::GSO) {
            let before = self.pending.len();
            return match self.cut(&packet, cache) {
                Ok(()) => {
                    stats.segmented.add(1);
                    stats.segments.add((self.pending.len() - before) as u64);
                    cache.free_one(packet);
                    Ok(())
                }
                Err(reason) => Err((reason, packet)),
            };
        }
        if offload.contains(Offload::CSUM_PARTIAL) {
            if !complete_checksum(&mut packet) {
                return Err((DropReason::Malformed, packet));
            }
            stats.checksums_completed.add(1);
        }
        self.pending.push_back(packet);
        Ok(())
    }

    /// Queues the segments of a frame: all of them, or none.
    fn cut(&mut self, packet: &Packet, cache: &mut PoolCache) -> Result<(), DropReason> {
        let mut segments = Segments::new(packet.data(), packet.meta().gso_size)
            .map_err(|_| DropReason::Malformed)?;
        let room = segments.max_len();
        let pool = self.pools.for_frame(room).ok_or(DropReason::Oversize)?;
        let before = self.pending.len();
        while segments.remaining() > 0 {
            let Some(mut segment) = cache.get(pool) else {
                for unsent in self.pending.drain(before..) {
                    cache.free_one(unsent);
                }
                return Err(DropReason::NoBuffer);
            };
            segment.copy_meta(packet);
            segment.meta_mut().offload.remove(duties());
            segment.set_len(room);
            let len = segments.write_next(segment.data_mut()).unwrap_or(0);
            segment.truncate(len);
            self.pending.push_back(segment);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
