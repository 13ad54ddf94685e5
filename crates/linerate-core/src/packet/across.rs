//! Copies of packets into slots of other pools, for lcores of another NUMA node.
//!
//! The lcore that has the packets copies them: it reads what is in the caches of its own node, and
//! writes [past the caches](crate::arch) into memory of the other node. A receiver that copied
//! would read all of it from the other node, which it might as well have done without a copy.
#![allow(unsafe_code)]

use super::burst::Burst;
use super::cache::PoolCache;
use super::packet::Packet;
use super::pool::Pool;
use crate::arch::{LINE_BYTES, stream_fence, stream_lines};

/// What became of packets that were to be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// They are in slots of the pools that were named.
    pub copied: u64,
    /// They stay in theirs: there was no free slot that they fit.
    pub refused: u64,
    /// They were in such a slot already.
    pub there: u64,
}

impl PoolCache {
    /// Puts a copy into the place of each packet that is `wanted` and in none of these pools: in a
    /// slot of the first of them that is large enough, with the same headroom and all that is known
    /// of the packet. The slots that the packets were in are free again.
    ///
    /// ```
    /// use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
    /// let [here, there] = ["here", "there"].map(|name| Pool::new(&PoolConfig::new(name, 256)));
    /// let (here, there) = (here?, there?);
    /// let mut cache = PoolCache::new(&[here.clone()]);
    /// let mut burst = Burst::new();
    /// cache.fill(&here, &mut burst, 2);
    /// burst.iter_mut().for_each(|packet| assert!(packet.set_data(b"some payload")));
    /// let moved = cache.copy_into(std::slice::from_ref(&there), &mut burst, |_| true);
    /// assert_eq!((moved.copied, moved.refused), (2, 0));
    /// assert!(burst.iter().all(|packet| there.owns(packet) && packet.data() == b"some payload"));
    /// # cache.free(&mut burst);
    /// # Ok::<(), linerate_core::MemError>(())
    /// ```
    pub fn copy_into(
        &mut self,
        pools: &[Pool],
        burst: &mut Burst,
        wanted: impl Fn(&Packet) -> bool,
    ) -> Moved {
        let (mut moved, mut old) = (Moved::default(), Burst::new());
        for packet in burst.iter_mut() {
            if pools.iter().any(|pool| pool.owns(packet)) {
                moved.there += 1;
                continue;
            }
            if !wanted(packet) {
                continue;
            }
            let end = end_of(packet);
            let fits = pools.iter().find(|pool| pool.slot_bytes() >= end);
            let Some(mut copy) = fits.and_then(|pool| self.take_one(pool)) else {
                moved.refused += 1;
                continue;
            };
            copy.stream_from(packet);
            std::mem::swap(packet, &mut copy);
            moved.copied += 1;
            // As many as the other burst has: there is room.
            let _ = old.push(copy);
        }
        if moved.copied > 0 {
            stream_fence();
            self.free(&mut old);
        }
        moved
    }
}

/// Where the data ends in its slot, in whole lines. Slots are whole lines, too.
fn end_of(packet: &Packet) -> usize {
    (packet.headroom() + packet.len()).next_multiple_of(LINE_BYTES)
}

impl Packet {
    /// Becomes a copy of another packet, in its place of the slot. Before anybody is told,
    /// [`stream_fence`].
    ///
    /// # Panics
    /// If the slot is too small.
    fn stream_from(&mut self, other: &Self) {
        let (start, end) = (other.headroom(), end_of(other));
        assert!(end <= self.slot_bytes(), "a slot for this packet");
        let fits = self.set_span(start, other.len());
        debug_assert!(fits, "as in the other slot");
        self.copy_meta(other);
        let first = start / LINE_BYTES * LINE_BYTES;
        let to = self.line().slot.wrapping_add(first);
        let from = other.line().slot.wrapping_add(first);
        // SAFETY: slots begin with lines, and have them to the end, as was just looked at; a packet
        // owns its slot, and these are two. Slots are zeroed memory, so all of it can be read.
        unsafe { stream_lines(to, from, (end - first) / LINE_BYTES) };
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Offload, PoolConfig, SlotClass};
    use super::*;
    use crate::mem::{PageKind, PagePolicy};

    fn pool(class: SlotClass, slots: u32) -> Pool {
        Pool::new(&PoolConfig {
            pages: PagePolicy::Only(PageKind::Base4K),
            class,
            ..PoolConfig::new("test", slots)
        })
        .unwrap()
    }

    /// Packets of these lengths, each with its own bytes, place and metadata.
    fn packets(cache: &mut PoolCache, pool: &Pool, lens: &[usize]) -> Burst {
        let mut burst = Burst::new();
        for (number, &len) in lens.iter().enumerate() {
            let mut packet = cache.get(pool).unwrap();
            assert!(packet.set_span(200 + 3 * number, len));
            for (at, byte) in packet.data_mut().iter_mut().enumerate() {
                *byte = (at * 7 + number) as u8;
            }
            packet.set_port(number as u16);
            packet.set_user(number as u64);
            packet.meta_mut().offload = Offload::VLAN;
            packet.meta_mut().vlan_tci = 0x100 + number as u16;
            burst.push(packet).unwrap();
        }
        burst
    }

    /// All slots of a pool are free again.
    fn is_home(pool: &Pool, caches: &[&PoolCache]) -> bool {
        let held: usize = caches.iter().map(|cache| cache.held(pool)).sum();
        held as u32 + pool.stats().free_shared == pool.slots()
    }

    #[test]
    fn copies_are_as_what_they_are_of_in_order_and_slots_come_home() {
        let lens = [0, 1, 40, 63, 64, 65, 127, 128, 577, 1500];
        let (here, there) = (pool(SlotClass::Small, 64), pool(SlotClass::Small, 64));
        let mut cache = PoolCache::new(&[here.clone(), there.clone()]);
        let mut receiver = PoolCache::new(&[there.clone(), here.clone()]);
        for turn in 0..20 {
            // Those that are wanted alone: long ones, and in one turn all.
            let least = if turn == 0 { 0 } else { 64 };
            let mut burst = packets(&mut cache, &here, &lens);
            let to = std::slice::from_ref(&there);
            let moved = cache.copy_into(to, &mut burst, |packet| packet.len() >= least);
            let long = lens.iter().filter(|&&len| len >= least).count() as u64;
            assert_eq!((moved.copied, moved.refused), (long, 0));
            for (number, (packet, &len)) in burst.iter().zip(&lens).enumerate() {
                assert_eq!(there.owns(packet), len >= least);
                assert_eq!((packet.len(), packet.headroom()), (len, 200 + 3 * number));
                let bytes = (0..len).map(|at| (at * 7 + number) as u8);
                assert!(packet.data().iter().copied().eq(bytes), "{len}");
                assert_eq!(packet.port(), number as u16);
                assert_eq!(packet.user::<u64>(), number as u64);
                assert_eq!(packet.meta().vlan_tci, 0x100 + number as u16);
                assert!(packet.meta().offload.contains(Offload::VLAN));
            }
            // What is there already stays where it is.
            let numbers: Vec<u32> = burst.iter().map(Packet::number).collect();
            let moved = cache.copy_into(to, &mut burst, |packet| packet.len() >= least);
            assert_eq!((moved.copied, moved.refused, moved.there), (0, 0, long));
            assert!(burst.iter().map(Packet::number).eq(numbers));
            receiver.free(&mut burst);
        }
        assert!(is_home(&here, &[&cache, &receiver]));
        assert!(is_home(&there, &[&cache, &receiver]));
    }

    #[test]
    fn a_packet_without_a_slot_stays_as_it_is_and_is_counted() {
        let here = pool(SlotClass::Large, 8);
        let (small, large) = (pool(SlotClass::Small, 3), pool(SlotClass::Large, 1));
        let mut cache = PoolCache::new(std::slice::from_ref(&here));
        let to = [small.clone(), large.clone()];
        let mut burst = packets(&mut cache, &here, &[9000, 100, 60_000, 100, 100, 100]);
        let moved = cache.copy_into(&to, &mut burst, |_| true);
        assert_eq!((moved.copied, moved.refused), (4, 2));
        let pools = [&large, &small, &here, &small, &small, &here];
        for (packet, pool) in burst.iter().zip(pools) {
            assert!(pool.owns(packet));
            assert!(packet.data()[..8].iter().zip(0..).all(|(&byte, at)| {
                usize::from(byte) == (at * 7 + usize::from(packet.port())) % 256
            }));
        }
        let moved = cache.copy_into(&[], &mut burst, |_| true);
        assert_eq!((moved.copied, moved.refused), (0, 6), "no pool at all");
        cache.free(&mut burst);
        assert!(
            [&here, &small, &large]
                .iter()
                .all(|pool| is_home(pool, &[&cache]))
        );
    }
}
