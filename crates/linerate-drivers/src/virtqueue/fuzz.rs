//! Any bytes as the rings of a queue, and as the record of what is in flight. Built for fuzzing
//! alone.

use super::active::AnyRing;
use super::frames::{Receiving, Shape, Transmitting};
use super::inflight::{self, Area};
use super::lent::{self, Lent};
use super::memory::{Memory, Place, Region};
use super::recorded::Recorded;
use super::{Agreed, DriverRing, Filled, Look, Ring, Violation, buffers, packed, split};
use crate::peer::exposed::ExposedPools;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::QueueStats;
use rustix::fs::MemfdFlags;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;
const SIZE: u16 = 16;
const BUFFER: u32 = 1024;
const BUFFERS: usize = 3 * PAGE;

fn mapped(bytes: usize) -> Arc<Untrusted> {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes as u64).expect("its length");
    let mapped = Untrusted::map("fuzz", file.as_fd(), 0, bytes, FileFrom::Peer);
    Arc::new(mapped.expect("a mapping"))
}

/// Bytes of a ring's parts, one page after the other, in one region.
fn memory() -> Memory {
    let region = Region {
        guest: 0,
        user: 0,
        mapped: mapped(BUFFERS + buffers::bytes(SIZE, BUFFER)),
    };
    Memory::new(vec![region]).expect("one region")
}

/// A ring of either kind in that memory.
struct Queue {
    packed: bool,
    agreed: Agreed,
    filled: Filled,
    parts: [Place; 3],
}

impl Queue {
    fn new(memory: &Memory, packed: bool, agreed: Agreed, filled: Filled) -> Self {
        let bytes = match packed {
            true => packed::bytes(SIZE),
            false => split::bytes(SIZE),
        };
        let place = |part: usize| memory.place((part * PAGE) as u64, bytes[part]);
        let parts = [0, 1, 2].map(|part| place(part).expect("a part fits a page"));
        Self {
            packed,
            agreed,
            filled,
            parts,
        }
    }

    fn split_places(&self) -> split::Places {
        let [table, available, used] = self.parts;
        split::Places {
            table,
            available,
            used,
        }
    }

    fn packed_places(&self) -> packed::Places {
        let [ring, driver, device] = self.parts;
        packed::Places {
            ring,
            driver,
            device,
        }
    }

    fn device(&self) -> AnyRing {
        let start = [packed::Position::START; 2];
        let (split, packed) = (self.split_places(), self.packed_places());
        let (agreed, filled) = (self.agreed, self.filled);
        match self.packed {
            false => AnyRing::SplitDevice(split::Device::new(SIZE, split, agreed, filled, 0)),
            true => AnyRing::PackedDevice(packed::Device::new(SIZE, packed, agreed, filled, start)),
        }
    }

    /// A device that takes over from an earlier one, by its record.
    fn device_after(&self, memory: &Memory, area: Area) -> Result<AnyRing, Violation> {
        let (split, packed) = (self.split_places(), self.packed_places());
        let (agreed, filled) = (self.agreed, self.filled);
        if self.packed {
            let start = packed::Position::START;
            let (left, at) = packed::Device::inflight(area, memory, packed.ring, SIZE, start)?;
            let device = packed::Device::new(SIZE, packed, agreed, filled, [at; 2]);
            let ring = Recorded::new(device, None, Some(left));
            return Ok(AnyRing::Recorded(Box::new(ring)));
        }
        let device = split::Device::resume(memory, SIZE, split, agreed, filled, 0)?;
        let left = device.inflight(area)?;
        let ring = Recorded::new(device, None, Some(left));
        Ok(AnyRing::Recorded(Box::new(ring)))
    }

    fn driver(&self, memory: &Memory) -> AnyRing {
        let (split, packed) = (self.split_places(), self.packed_places());
        let (agreed, filled, base) = (self.agreed, self.filled, BUFFERS as u64);
        let offers = filled == Filled::ByDevice;
        match self.packed {
            false => {
                let mut driver = split::Driver::new(SIZE, split, agreed, filled, base, BUFFER);
                if offers {
                    driver.offer_all(memory).expect("a ring in memory");
                }
                AnyRing::SplitDriver(driver)
            }
            true => {
                let mut driver = packed::Driver::new(SIZE, packed, agreed, filled, base, BUFFER);
                if offers {
                    driver.offer_all(memory).expect("a ring in memory");
                }
                AnyRing::PackedDriver(driver)
            }
        }
    }

    /// A driver whose buffers are slots of an exposed pool.
    fn lending(&self, pools: &Pools, memory: &Memory) -> Box<dyn Side> {
        let (split, packed) = (self.split_places(), self.packed_places());
        let (agreed, filled) = (self.agreed, self.filled);
        let pools = ExposedPools::of(pools).expect("it was made so");
        let room = lent::room(&pools);
        let by_driver = filled == Filled::ByDriver;
        match self.packed {
            true => {
                let ring = packed::Driver::of_slots(SIZE, packed, agreed, filled, room);
                Box::new(lending(ring, &pools, memory, by_driver))
            }
            false => {
                let ring = split::Driver::of_slots(SIZE, split, agreed, filled, room);
                Box::new(lending(ring, &pools, memory, by_driver))
            }
        }
    }

    /// Writes what a peer might to a part of the ring.
    fn poke(&self, memory: &Memory, part: u8, at: u8, bytes: &[u8]) {
        let at = usize::from(part % 3) * PAGE + 4 * usize::from(at);
        let mapped = memory.at(self.parts[0]);
        if let Some(window) = mapped.and_then(|mapped| mapped.window(at, bytes.len())) {
            window.write(bytes);
        }
    }
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

impl Side for AnyRing {
    fn receive(
        &mut self,
        receiving: &mut Receiving,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        receiving.receive(self.as_dyn(), memory, burst, cache)
    }

    fn transmit(
        &mut self,
        sending: &mut Transmitting,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        sending.transmit(self.as_dyn(), memory, burst, cache)
    }

    fn ring(&mut self) -> &mut dyn Ring {
        self.as_dyn()
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

/// Who sends and receives on rings.
struct Worker {
    pools: Pools,
    cache: PoolCache,
    burst: Burst,
}

impl Worker {
    fn new(config: &PoolConfig) -> Self {
        let pools = Pools::new(vec![Pool::new(config).expect("a pool")]);
        Self {
            cache: PoolCache::new(pools.as_slice()),
            pools,
            burst: Burst::new(),
        }
    }

    fn receive(
        &mut self,
        receiving: &mut Receiving,
        side: &mut dyn Side,
        memory: &Memory,
    ) -> Result<usize, Violation> {
        let done = side.receive(receiving, memory, &mut self.burst, &mut self.cache);
        self.end(side.ring(), memory);
        done
    }

    fn transmit(
        &mut self,
        sending: &mut Transmitting,
        side: &mut dyn Side,
        memory: &Memory,
    ) -> Result<usize, Violation> {
        let Self {
            pools,
            cache,
            burst,
        } = self;
        cache.fill(pools.primary(), burst, 8);
        for (index, packet) in burst.iter_mut().enumerate() {
            packet.set_len(60 + 200 * index);
        }
        let done = side.transmit(sending, memory, burst, cache);
        self.end(side.ring(), memory);
        done
    }

    fn end(&mut self, ring: &mut dyn Ring, memory: &Memory) {
        for packet in self.burst.iter() {
            assert!(packet.len() <= packet.slot_bytes(), "longer than its slot");
        }
        self.cache.free(&mut self.burst);
        let _ = ring.must_notify(memory, Look::Early);
        let _ = ring.must_notify(memory, Look::Late);
        let _ = ring.is_waiting(memory);
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
    let filled = match by_driver {
        true => Filled::ByDriver,
        false => Filled::ByDevice,
    };
    let memory = memory();
    let queue = Queue::new(&memory, is_packed, agreed, filled);
    // A driver knows no indirect tables: with that bit its buffers are slots.
    let lends = !device && agreed.indirect;
    let mut worker = Worker::new(&PoolConfig {
        exposed: lends,
        ..PoolConfig::new("fuzz", if lends { 64 } else { 256 })
    });
    let mut side: Box<dyn Side> = match (lends, device) {
        (true, _) => queue.lending(&worker.pools, &memory),
        (false, true) => Box::new(queue.device()),
        (false, false) => Box::new(queue.driver(&memory)),
    };
    let shape = Shape {
        header_bytes: if bit(6) { 12 } else { 10 },
        mergeable: bit(6) && bit(7),
        device,
    };
    let stats = QueueStats::new();
    let mut receiving = Receiving::new(shape, 0, &worker.pools, stats.clone());
    let mut sending = Transmitting::new(shape, 9000, stats);
    while let Some((&[part, at], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min(64));
        queue.poke(&memory, part, at, bytes);
        rest = after;
        let done = match by_driver == device {
            true => worker.receive(&mut receiving, &mut *side, &memory),
            false => worker.transmit(&mut sending, &mut *side, &memory),
        };
        side.ring().want(&memory, part & 4 != 0);
        if done.is_err() {
            return;
        }
    }
}

/// Bytes that a step of [`run_record`] writes.
const STEP: usize = 16;
/// Queues with a part in the record; the one in the middle is in use.
const TRACKED: usize = 3;

/// The first byte chooses ring, direction and features. Each step has two bytes, of which the first
/// says whether what follows is written over the record or the ring, whether driver or device have
/// a burst, and whether another device takes over; the second where it is written.
pub(crate) fn run_record(input: &[u8]) {
    let Some((&choice, mut rest)) = input.split_first() else {
        return;
    };
    let bit = |at: u8| choice >> at & 1 == 1;
    let (is_packed, by_driver) = (bit(0), bit(1));
    let agreed = Agreed {
        in_order: bit(2),
        event_index: bit(3),
        indirect: bit(4),
    };
    let filled = match by_driver {
        true => Filled::ByDriver,
        false => Filled::ByDevice,
    };
    let memory = memory();
    let queue = Queue::new(&memory, is_packed, agreed, filled);
    let bytes = inflight::bytes(is_packed, SIZE);
    let record = mapped(TRACKED * bytes);
    let area = || {
        let area = Area::new(record.clone(), 1, is_packed, SIZE, SIZE);
        area.expect("a part of the record")
    };
    let mut driver = queue.driver(&memory);
    let Ok(mut device) = queue.device_after(&memory, area()) else {
        unreachable!("a fresh record is taken");
    };
    let mut worker = Worker::new(&PoolConfig::new("fuzz", 256));
    let shape = |device| Shape {
        header_bytes: 12,
        mergeable: bit(5),
        device,
    };
    let stats = QueueStats::new();
    let mut receiving = Receiving::new(shape(by_driver), 0, &worker.pools, stats.clone());
    let mut sending = Transmitting::new(shape(!by_driver), 9000, stats);
    while let Some((&[what, at], after)) = rest.split_first_chunk() {
        let (bytes_here, after) = after.split_at(after.len().min(match what & 3 {
            0 => 0,
            _ => STEP,
        }));
        rest = after;
        match what & 3 {
            0 => {}
            1 => queue.poke(&memory, what >> 6, at, bytes_here),
            _ => {
                let at = 4 * usize::from(at) % (bytes - STEP);
                let window = record.window(bytes + at, bytes_here.len());
                window.expect("within the part").write(bytes_here);
            }
        }
        if what & 4 != 0 {
            let ring = &mut driver;
            let done = match by_driver {
                true => worker.transmit(&mut sending, ring, &memory),
                false => worker.receive(&mut receiving, ring, &memory),
            };
            if done.is_err() {
                return;
            }
        }
        let mut goes_on = true;
        if what & 8 != 0 {
            let ring = &mut device;
            let done = match by_driver {
                true => worker.receive(&mut receiving, ring, &memory),
                false => worker.transmit(&mut sending, ring, &memory),
            };
            goes_on = done.is_ok();
        }
        // As a front end asks before it hands its rings on.
        let _ = (driver.agrees(&memory, &area()), driver.used(&memory));
        if what & 16 != 0 || !goes_on {
            match queue.device_after(&memory, area()) {
                Ok(next) => device = next,
                Err(_) => return,
            }
        }
        for beside in [0, 2 * bytes] {
            let words = record.u64s(beside, bytes / size_of::<u64>());
            let mut words = words.expect("a part of the record").iter();
            let untouched = words.all(|word| word.load(Ordering::Relaxed) == 0);
            assert!(untouched, "the part of another queue was written to");
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
