//! Any bytes as the rings of a queue. Built for fuzzing alone.

use super::frames::{Receiving, Shape, Transmitting};
use super::lent::{self, Lent};
use super::memory::{Memory, Place, Region};
use super::{Agreed, DriverRing, Filled, Ring, Violation, buffers, packed, split};
use crate::peer::exposed::ExposedPools;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::QueueStats;
use rustix::fs::MemfdFlags;
use std::os::fd::AsFd;
use std::sync::Arc;

const PAGE: usize = 4096;
const SIZE: u16 = 16;
const BUFFER: u32 = 1024;
const BUFFERS: usize = 3 * PAGE;

/// Bytes of a ring's parts, one page after the other, in one region.
fn memory() -> Memory {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    let bytes = BUFFERS + buffers::bytes(SIZE, BUFFER);
    rustix::fs::ftruncate(&file, bytes as u64).expect("its length");
    let mapped = Untrusted::map("fuzz", file.as_fd(), 0, bytes, FileFrom::Peer);
    let region = Region {
        guest: 0,
        user: 0,
        mapped: Arc::new(mapped.expect("a mapping")),
    };
    Memory::new(vec![region]).expect("one region")
}

/// The side that is played: over a ring with buffers of its own, or one whose buffers are slots.
trait Side {
    fn receive(
        &mut self,
        receiving: &mut Receiving,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation>;
    fn transmit(
        &mut self,
        sending: &mut Transmitting,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation>;
    fn ring(&mut self) -> &mut dyn Ring;
}

impl Side for Box<dyn Ring> {
    fn receive(
        &mut self,
        receiving: &mut Receiving,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        receiving.receive(&mut **self, memory, burst, cache)
    }

    fn transmit(
        &mut self,
        sending: &mut Transmitting,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        sending.transmit(&mut **self, memory, burst, cache)
    }

    fn ring(&mut self) -> &mut dyn Ring {
        &mut **self
    }
}

impl<R: DriverRing> Side for Lent<R> {
    fn receive(
        &mut self,
        receiving: &mut Receiving,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        Lent::receive(self, receiving, memory, burst, cache)
    }

    fn transmit(
        &mut self,
        sending: &mut Transmitting,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        Lent::transmit(self, sending, memory, burst, cache)
    }

    fn ring(&mut self) -> &mut dyn Ring {
        &mut self.ring
    }
}

/// The first byte chooses ring, role and features; what follows is written over the parts of the
/// ring, 64 bytes before each burst.
pub(crate) fn run(input: &[u8]) {
    let Some((&choice, mut rest)) = input.split_first() else {
        return;
    };
    let bit = |at: u8| choice >> at & 1 == 1;
    let (is_packed, device, by_driver) = (bit(0), bit(1), bit(2));
    let agreed = Agreed {
        in_order: bit(3),
        event_index: bit(4),
        indirect: bit(5),
    };
    let filled = if by_driver {
        Filled::ByDriver
    } else {
        Filled::ByDevice
    };
    let memory = memory();
    let bytes = if is_packed {
        packed::bytes(SIZE)
    } else {
        split::bytes(SIZE)
    };
    let place = |part: usize| -> Place {
        let place = memory.place((part * PAGE) as u64, bytes[part]);
        place.expect("a part fits a page")
    };
    let (first, second, third) = (place(0), place(1), place(2));
    let split = split::Places {
        table: first,
        available: second,
        used: third,
    };
    let packed = packed::Places {
        ring: first,
        driver: second,
        device: third,
    };
    let (base, start) = (BUFFERS as u64, [packed::Position::START; 2]);
    // A driver knows no indirect tables: with that bit its buffers are slots.
    let lends = !device && agreed.indirect;
    let config = PoolConfig {
        exposed: lends,
        ..PoolConfig::new("fuzz", if lends { 64 } else { 256 })
    };
    let pools = Pools::new(vec![Pool::new(&config).expect("a pool")]);
    let mut side: Box<dyn Side> = if lends {
        let pools = ExposedPools::of(&pools).expect("it was made so");
        let room = lent::room(&pools);
        if is_packed {
            let ring = packed::Driver::of_slots(SIZE, packed, agreed, filled, room);
            Box::new(lending(ring, &pools, &memory, by_driver))
        } else {
            let ring = split::Driver::of_slots(SIZE, split, agreed, filled, room);
            Box::new(lending(ring, &pools, &memory, by_driver))
        }
    } else {
        let ring: Box<dyn Ring> = match (is_packed, device) {
            (false, true) => Box::new(split::Device::new(SIZE, split, agreed, filled, 0)),
            (true, true) => Box::new(packed::Device::new(SIZE, packed, agreed, filled, start)),
            (false, false) => {
                let mut driver = split::Driver::new(SIZE, split, agreed, filled, base, BUFFER);
                if !by_driver {
                    driver.offer_all(&memory).expect("a ring in memory");
                }
                Box::new(driver)
            }
            (true, false) => {
                let mut driver = packed::Driver::new(SIZE, packed, agreed, filled, base, BUFFER);
                if !by_driver {
                    driver.offer_all(&memory).expect("a ring in memory");
                }
                Box::new(driver)
            }
        };
        Box::new(ring)
    };
    let shape = Shape {
        header_bytes: if bit(6) { 12 } else { 10 },
        mergeable: bit(6) && bit(7),
        device,
    };
    let stats = QueueStats::new();
    let mut receiving = Receiving::new(shape, 0, &pools, stats.clone());
    let mut sending = Transmitting::new(shape, 9000, stats);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut burst = Burst::new();
    while let Some((&[part, at], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min(64));
        let at = usize::from(part % 3) * PAGE + 4 * usize::from(at);
        if let Some(window) = memory
            .at(first)
            .and_then(|mapped| mapped.window(at, bytes.len()))
        {
            window.write(bytes);
        }
        rest = after;
        let done = if by_driver == device {
            side.receive(&mut receiving, &memory, &mut burst, &mut cache)
        } else {
            cache.fill(pools.primary(), &mut burst, 8);
            for (index, packet) in burst.iter_mut().enumerate() {
                packet.set_len(60 + 200 * index);
            }
            side.transmit(&mut sending, &memory, &mut burst, &mut cache)
        };
        for packet in burst.iter() {
            assert!(packet.len() <= packet.slot_bytes(), "longer than its slot");
        }
        cache.free(&mut burst);
        let ring = side.ring();
        let _ = ring.must_notify(&memory);
        ring.want(&memory, part & 4 != 0);
        let _ = ring.is_waiting(&memory);
        if done.is_err() {
            return;
        }
    }
}

/// A driver that lends slots, the first of which a device has that is to fill them.
fn lending<R: DriverRing>(
    ring: R,
    pools: &ExposedPools,
    memory: &Memory,
    by_driver: bool,
) -> Lent<R> {
    let mut lent = Lent::new(ring, pools);
    if !by_driver {
        lent.lend_first(memory, 0).expect("a ring in memory");
    }
    lent
}
