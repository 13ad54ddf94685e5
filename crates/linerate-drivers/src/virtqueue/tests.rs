//! Both sides of both rings, over one memory: clause by clause, at random, and against a side that
//! writes anything at any time.

pub(super) mod inflight;
mod log;
mod looks;

use super::frames::{Receiving, Shape, Transmitting};
use super::gauge::Posted;
use super::memory::tests::mapped;
use super::memory::{Memory, Region};
use super::*;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::QueueStats;
use linerate_core::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};

/// Guest addresses begin here, and user addresses there.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
/// Where the parts of a ring begin, and the buffers behind them.
const PARTS: [usize; 3] = [0, 0x1_0000, 0x2_0000];
const BUFFERS: usize = 0x4_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Split,
    Packed,
}

/// What a test wants of a queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    kind: Kind,
    size: u16,
    agreed: Agreed,
    filled: Filled,
    buffer: u32,
    mergeable: bool,
}

impl Queue {
    fn new(kind: Kind, filled: Filled) -> Self {
        Self {
            kind,
            size: 16,
            agreed: Agreed {
                indirect: true,
                ..Agreed::default()
            },
            filled,
            buffer: 2048,
            mergeable: true,
        }
    }

    fn bytes(&self) -> usize {
        let bytes = BUFFERS + buffers::bytes(self.size, self.buffer);
        bytes.next_multiple_of(4096)
    }

    fn memory(&self) -> Memory {
        let region = Region {
            guest: GUEST,
            user: USER,
            mapped: mapped(self.bytes()),
        };
        Memory::new(vec![region]).unwrap()
    }

    fn split(&self, memory: &Memory) -> split::Places {
        let bytes = split::bytes(self.size);
        let [table, available, used] = [0, 1, 2].map(|part| {
            memory
                .place(USER + PARTS[part] as u64, bytes[part])
                .unwrap()
        });
        split::Places {
            table,
            available,
            used,
        }
    }

    fn packed(&self, memory: &Memory) -> packed::Places {
        let bytes = packed::bytes(self.size);
        let [ring, driver, device] = [0, 1, 2].map(|part| {
            memory
                .place(USER + PARTS[part] as u64, bytes[part])
                .unwrap()
        });
        packed::Places {
            ring,
            driver,
            device,
        }
    }

    fn device(&self, memory: &Memory) -> Box<dyn Ring> {
        let Self {
            size,
            agreed,
            filled,
            ..
        } = *self;
        let start = [packed::Position::START; 2];
        match self.kind {
            Kind::Split => Box::new(split::Device::new(
                size,
                self.split(memory),
                agreed,
                filled,
                0,
            )),
            Kind::Packed => {
                let at = self.packed(memory);
                Box::new(packed::Device::new(size, at, agreed, filled, start))
            }
        }
    }

    fn driver(&self, memory: &Memory) -> Box<dyn Ring> {
        let Self {
            size,
            agreed,
            filled,
            buffer,
            ..
        } = *self;
        let base = GUEST + BUFFERS as u64;
        match self.kind {
            Kind::Split => {
                let at = self.split(memory);
                let mut driver = split::Driver::new(size, at, agreed, filled, base, buffer);
                if filled == Filled::ByDevice {
                    driver.offer_all(memory).unwrap();
                }
                Box::new(driver)
            }
            Kind::Packed => {
                let at = self.packed(memory);
                let mut driver = packed::Driver::new(size, at, agreed, filled, base, buffer);
                if filled == Filled::ByDevice {
                    driver.offer_all(memory).unwrap();
                }
                Box::new(driver)
            }
        }
    }

    fn shape(&self, device: bool) -> Shape {
        Shape {
            header_bytes: 12,
            mergeable: self.mergeable,
            device,
        }
    }
}

fn pools() -> Pools {
    let small = PoolConfig::new("small", 2048);
    let large = PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("large", 64)
    };
    Pools::new(
        [small, large]
            .map(|config| Pool::new(&config).unwrap())
            .into(),
    )
}

/// A frame of a number: its bytes follow from it.
fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut frame: Vec<u8> = (0..bytes).map(|_| random.bits() as u8).collect();
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Both halves of a queue, and who sends on it.
struct Both {
    memory: Memory,
    from: Box<dyn Ring>,
    to: Box<dyn Ring>,
    sending: Transmitting,
    receiving: Receiving,
    cache: PoolCache,
}

impl Both {
    fn new(queue: &Queue, pools: &Pools) -> Self {
        let memory = queue.memory();
        let (device, driver) = (queue.device(&memory), queue.driver(&memory));
        let to_device = queue.filled == Filled::ByDriver;
        let (from, to) = match to_device {
            true => (driver, device),
            false => (device, driver),
        };
        let stats = QueueStats::new();
        Self {
            memory,
            from,
            to,
            sending: Transmitting::new(queue.shape(!to_device), 65_535, stats.clone()),
            receiving: Receiving::new(queue.shape(to_device), 7, pools, stats),
            cache: PoolCache::new(pools.as_slice()),
        }
    }

    /// Sends frames of these lengths, numbered from `number` on; how many went.
    fn send(&mut self, number: u64, lens: &[usize]) -> Result<usize, Violation> {
        let mut burst = Burst::new();
        for (number, &len) in (number..).zip(lens) {
            burst
                .push(self.cache.copy_of(&frame(number, len)).unwrap())
                .unwrap();
        }
        let ring = &mut *self.from;
        let sent = self
            .sending
            .transmit(ring, &self.memory, &mut burst, &mut self.cache);
        self.cache.free(&mut burst);
        sent
    }

    /// Receives up to `room` frames.
    fn receive(&mut self, room: usize) -> Result<Vec<Vec<u8>>, Violation> {
        let mut burst = Burst::with_room(room);
        let ring = &mut *self.to;
        let received = self
            .receiving
            .receive(ring, &self.memory, &mut burst, &mut self.cache);
        let frames: Vec<_> = burst.iter().map(|packet| packet.data().to_vec()).collect();
        self.cache.free(&mut burst);
        assert_eq!(received?, frames.len());
        Ok(frames)
    }
}

const KINDS: [Kind; 2] = [Kind::Split, Kind::Packed];
const WAYS: [Filled; 2] = [Filled::ByDriver, Filled::ByDevice];

fn all_queues() -> impl Iterator<Item = Queue> {
    let flags = (0..8).map(|bits| [bits & 1, bits & 2, bits & 4].map(|bit| bit != 0));
    flags.flat_map(|[in_order, event_index, mergeable]| {
        KINDS.into_iter().flat_map(move |kind| {
            WAYS.into_iter().map(move |filled| Queue {
                agreed: Agreed {
                    in_order,
                    event_index,
                    indirect: true,
                },
                mergeable,
                ..Queue::new(kind, filled)
            })
        })
    })
}

/// Random bursts of random lengths, many laps: every frame arrives, whole, once, in order.
#[test]
fn driver_and_device_agree_whatever_they_do() {
    let pools = pools();
    let seed = 0x5eed;
    for (index, mut queue) in all_queues().enumerate() {
        let mut random = Random::new(seed + index as u64);
        // Any number for packed rings (2.8.10.1).
        queue.size = match queue.kind {
            Kind::Split => [16, 64, 256][index % 3],
            Kind::Packed => [13, 64, 250][index % 3],
        };
        let longest = if queue.mergeable { 9000 } else { 1500 };
        let mut both = Both::new(&queue, &pools);
        let (mut sent, mut got, mut lens) = (0, 0, Vec::new());
        for _ in 0..2000 {
            let context = format!("{queue:?}, seed {seed:#x}, after {got} frames");
            if random.below(2) == 0 {
                let count = 1 + random.below(40) as usize;
                let more: Vec<usize> = (0..count)
                    .map(|_| match random.below(4) {
                        0 => 14 + random.below(longest - 14) as usize,
                        _ => 60 + random.below(5) as usize,
                    })
                    .collect();
                let count = both
                    .send(sent, &more)
                    .unwrap_or_else(|wrong| panic!("{wrong:?}: {context}"));
                lens.extend(&more[..count]);
                sent += count as u64;
            } else {
                let room = 1 + random.below(64) as usize;
                let frames = both
                    .receive(room)
                    .unwrap_or_else(|wrong| panic!("{wrong:?}: {context}"));
                for found in frames {
                    let expected = frame(got, lens[got as usize]);
                    assert!(found == expected, "{context}");
                    got += 1;
                }
            }
        }
        while got < sent {
            let frames = both.receive(64).unwrap();
            assert!(!frames.is_empty(), "{queue:?}: {got} of {sent} came");
            got += frames.len() as u64;
        }
        assert!(sent > 3000, "{queue:?}: {sent}");
        assert!(both.receive(64).unwrap().is_empty());
    }
}

/// Bytes of the memory, written as the other side would.
fn poke(memory: &Memory, at: usize, bytes: &[u8]) {
    let region = memory.at(memory.place(USER, 1).unwrap()).unwrap();
    region.window(at, bytes.len()).unwrap().write(bytes);
}

fn peek<const N: usize>(memory: &Memory, at: usize) -> [u8; N] {
    let region = memory.at(memory.place(USER, 1).unwrap()).unwrap();
    let mut bytes = [0; N];
    region.window(at, N).unwrap().read(&mut bytes);
    bytes
}

/// A split descriptor (2.7.5) in a table that begins at `table`.
fn put_split(
    memory: &Memory,
    table: usize,
    index: usize,
    at: u64,
    len: u32,
    flags: u16,
    next: u16,
) {
    let mut bytes = at.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend([flags.to_le_bytes(), next.to_le_bytes()].concat());
    poke(memory, table + index * DESCRIPTOR, &bytes);
}

/// A packed one (2.8.1).
fn put_packed(memory: &Memory, index: usize, at: u64, len: u32, id: u16, flags: u16) {
    put_split(memory, PARTS[0], index, at, len, id, flags);
}

/// Makes chains available that begin with these descriptors (2.7.6).
fn make_available(memory: &Memory, heads: &[u16], index: u16) {
    for (at, head) in heads.iter().enumerate() {
        poke(memory, PARTS[1] + 4 + 2 * at, &head.to_le_bytes());
    }
    poke(memory, PARTS[1] + 2, &index.to_le_bytes());
}

/// What a device finds, as total lengths.
fn found(ring: &mut dyn Ring, memory: &Memory) -> Result<Vec<u32>, Violation> {
    let mut batch = Batch::new(false);
    ring.take(memory, &mut batch, 64)?;
    Ok(batch.chains.iter().map(|chain| chain.bytes).collect())
}

const DATA: u64 = GUEST + BUFFERS as u64;
/// Flags of an available descriptor in the first lap, and in the second.
const FIRST_LAP: u16 = 1 << 7;
const SECOND_LAP: u16 = 1 << 15;

#[test]
fn split_2_7_5_chains_are_followed_and_cut_off() {
    let queue = Queue::new(Kind::Split, Filled::ByDriver);
    let memory = queue.memory();
    let case = |descriptors: &[(u64, u32, u16, u16)], heads: &[u16], index: u16| {
        for (at, &(guest, len, flags, next)) in descriptors.iter().enumerate() {
            put_split(&memory, PARTS[0], at, guest, len, flags, next);
        }
        make_available(&memory, heads, index);
        found(&mut *queue.device(&memory), &memory)
    };
    assert_eq!(case(&[(DATA, 100, 0, 0)], &[0], 1), Ok(vec![100]));
    let two = [(DATA, 100, NEXT, 1), (DATA + 100, 50, 0, 0)];
    assert_eq!(case(&two, &[0, 1], 2), Ok(vec![150, 50]));
    // 2.7.13.3: an index further ahead than the ring is long.
    assert_eq!(case(&two, &[0], 17), Err(Violation::RingIndex));
    assert_eq!(case(&two, &[16], 1), Err(Violation::DescriptorIndex));
    let out_of_table = [(DATA, 1, NEXT, 16)];
    assert_eq!(
        case(&out_of_table, &[0], 1),
        Err(Violation::DescriptorIndex)
    );
    // 2.7.5.3.1: no loop, and no chain longer than the ring.
    let round = [(DATA, 1, NEXT, 1), (DATA, 1, NEXT, 0)];
    assert_eq!(case(&round, &[0], 1), Err(Violation::ChainTooLong));
    // 5.1.6.2.2: what is sent is for the device to read.
    let writable = [(DATA, 1, WRITE, 0)];
    assert_eq!(case(&writable, &[0], 1), Err(Violation::DescriptorFlags));
    let end = GUEST + queue.bytes() as u64;
    for (guest, len) in [
        (end - 1, 2),
        (GUEST - 1, 1),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
    ] {
        let outside = case(&[(guest, len, 0, 0)], &[0], 1);
        assert_eq!(outside, Err(Violation::DescriptorOutside), "{guest:#x}");
    }
}

#[test]
fn split_2_7_5_3_indirect_tables() {
    let queue = Queue::new(Kind::Split, Filled::ByDriver);
    let memory = queue.memory();
    let table = BUFFERS;
    let at = GUEST + table as u64;
    put_split(&memory, table, 0, DATA + 512, 10, NEXT, 2);
    put_split(&memory, table, 2, DATA + 600, 20, 0, 0);
    make_available(&memory, &[0], 1);
    let case = |queue: &Queue, at: u64, len: u32, flags: u16| {
        put_split(&memory, PARTS[0], 0, at, len, flags, 0);
        found(&mut *queue.device(&memory), &memory)
    };
    assert_eq!(case(&queue, at, 48, INDIRECT), Ok(vec![30]));
    // Longer than the ring; no whole descriptors; none; next out of the table; outside.
    let wrong = [
        (at, 17 * 16, Violation::ChainTooLong),
        (at, 40, Violation::DescriptorLength),
        (at, 0, Violation::DescriptorLength),
        (at, 32, Violation::DescriptorIndex),
        (GUEST - 16, 48, Violation::DescriptorOutside),
    ];
    for (at, len, violation) in wrong {
        assert_eq!(case(&queue, at, len, INDIRECT), Err(violation), "{len}");
    }
    let both = case(&queue, at, 48, INDIRECT | NEXT);
    assert_eq!(both, Err(Violation::DescriptorFlags), "2.7.5.3.1");
    put_split(&memory, table, 0, at, 16, INDIRECT, 0);
    let nested = case(&queue, at, 48, INDIRECT);
    assert_eq!(nested, Err(Violation::DescriptorFlags), "2.7.5.3.1");
    let without = Queue {
        agreed: Agreed::default(),
        ..queue
    };
    let refused = case(&without, at, 48, INDIRECT);
    assert_eq!(refused, Err(Violation::DescriptorFlags), "not agreed on");
}

#[test]
fn packed_2_8_1_wrap_counters_say_what_is_available() {
    let queue = Queue::new(Kind::Packed, Filled::ByDriver);
    let memory = queue.memory();
    let mut device = queue.device(&memory);
    put_packed(&memory, 0, DATA, 60, 5, FIRST_LAP);
    put_packed(&memory, 1, DATA, 61, 6, SECOND_LAP); // of another lap
    let mut batch = Batch::new(false);
    device.take(&memory, &mut batch, 64).unwrap();
    assert_eq!((batch.chains.len(), batch.chains[0].id), (1, 5));
    device.give(&memory, &batch, 1).unwrap();
    // Used: both flags as the wrap counter, which begins at 1; the buffer's number (2.8.1).
    let used: [u8; 8] = peek(&memory, PARTS[0] + 8);
    assert_eq!(used, [0, 0, 0, 0, 5, 0, 0x80, 0x80]);
    assert_eq!(found(&mut *device, &memory), Ok(vec![]));
    for index in 1..16 {
        put_packed(&memory, index, DATA, 60, index as u16, FIRST_LAP);
    }
    put_packed(&memory, 0, DATA, 60, 0, SECOND_LAP);
    assert_eq!(
        found(&mut *device, &memory).unwrap().len(),
        16,
        "into the second lap"
    );
}

#[test]
fn packed_2_8_6_and_2_8_7_chains_lists_and_tables() {
    let queue = Queue::new(Kind::Packed, Filled::ByDriver);
    let memory = queue.memory();
    let case = |queue: &Queue, descriptors: &[(u64, u32, u16, u16)]| {
        for (index, &(at, len, id, flags)) in descriptors.iter().enumerate() {
            put_packed(&memory, index, at, len, id, flags | FIRST_LAP);
        }
        let mut batch = Batch::new(false);
        queue.device(&memory).take(&memory, &mut batch, 1)?;
        let chain = batch.chains[0];
        Ok((chain.bytes, chain.id, chain.places))
    };
    let list = [(DATA, 10, 1, NEXT), (DATA, 20, 2, NEXT), (DATA, 30, 9, 0)];
    assert_eq!(
        case(&queue, &list),
        Ok((60, 9, 3)),
        "the number of the last"
    );
    let endless = [(DATA, 1, 0, NEXT); 16];
    assert_eq!(case(&queue, &endless), Err(Violation::ChainTooLong));
    let table = GUEST + BUFFERS as u64;
    put_split(&memory, BUFFERS, 0, DATA + 512, 10, 0, 0);
    put_split(&memory, BUFFERS, 1, DATA + 512, 20, 0, 0);
    assert_eq!(case(&queue, &[(table, 32, 3, INDIRECT)]), Ok((30, 3, 1)));
    let wrong = [
        ((table, 31, 3, INDIRECT), Violation::DescriptorLength),
        ((table, 17 * 16, 3, INDIRECT), Violation::ChainTooLong),
        ((table, 32, 3, INDIRECT | NEXT), Violation::DescriptorFlags),
        ((GUEST - 32, 32, 3, INDIRECT), Violation::DescriptorOutside),
        ((DATA, 32, 3, WRITE), Violation::DescriptorFlags),
    ];
    for (descriptor, violation) in wrong {
        assert_eq!(
            case(&queue, &[descriptor]),
            Err(violation),
            "{descriptor:?}"
        );
    }
}

#[test]
fn packed_2_8_13_in_order_one_used_descriptor_stands_for_a_batch() {
    let mut queue = Queue::new(Kind::Packed, Filled::ByDriver);
    queue.agreed.in_order = true;
    let pools = pools();
    let mut both = Both::new(&queue, &pools);
    assert_eq!(both.send(0, &[60; 10]), Ok(10));
    assert_eq!(both.receive(64).unwrap().len(), 10);
    let id = |index: usize| {
        let bytes: [u8; 4] = peek(&both.memory, PARTS[0] + index * DESCRIPTOR + 12);
        (bytes[0], bytes[3])
    };
    assert_eq!(id(0), (9, 0x80), "used, and the number of the last");
    assert_eq!(id(1), (1, 0), "not written");
    for number in 10..500 {
        assert_eq!(both.send(number, &[60]), Ok(1), "all ten came back");
        assert_eq!(both.receive(1).unwrap().len(), 1);
    }
}

#[test]
fn split_2_7_9_in_order_one_used_entry_stands_for_a_batch() {
    let mut queue = Queue::new(Kind::Split, Filled::ByDriver);
    queue.agreed.in_order = true;
    let pools = pools();
    let mut both = Both::new(&queue, &pools);
    let index = |both: &Both| u16::from_le_bytes(peek(&both.memory, PARTS[2] + 2));
    let id = |both: &Both, entry: usize| {
        u32::from_le_bytes(peek(&both.memory, PARTS[2] + 4 + 8 * entry))
    };
    // What no device writes.
    let untouched = 77_u32;
    for entry in 0..16 {
        poke(
            &both.memory,
            PARTS[2] + 4 + 8 * entry,
            &untouched.to_le_bytes(),
        );
    }
    assert_eq!(both.send(0, &[60; 10]), Ok(10));
    assert_eq!(both.receive(64).unwrap().len(), 10);
    assert_eq!(index(&both), 10, "of all");
    assert_eq!(id(&both, 0), 9, "the number of the last");
    // The next batch's entry stands where its first one's would.
    assert_eq!(both.send(10, &[60; 4]), Ok(4));
    assert_eq!(both.receive(64).unwrap().len(), 4);
    assert_eq!((index(&both), id(&both, 10)), (14, 13));
    for entry in (1..10).chain(11..16) {
        assert_eq!(id(&both, entry), untouched, "entry {entry} is not written");
    }
    for number in 14..500 {
        assert_eq!(both.send(number, &[60]), Ok(1), "all came back");
        assert_eq!(both.receive(1).unwrap().len(), 1);
    }
}

#[test]
fn split_2_7_9_drivers_take_in_order_batches_back() {
    for kind in KINDS {
        let mut queue = Queue::new(kind, Filled::ByDevice);
        queue.agreed.in_order = true;
        let pools = pools();
        let mut both = Both::new(&queue, &pools);
        for number in (0..900).step_by(9) {
            assert_eq!(both.send(number, &[60; 9]), Ok(9));
            assert_eq!(both.receive(64).unwrap().len(), 9);
        }
    }
}

/// How full a ring is, as others see it between two bursts.
fn fill(ring: &dyn Ring, memory: &Memory) -> u16 {
    let posted = Posted::default();
    posted.set(ring.standing());
    ring.gauge().fill(memory, &posted)
}

#[test]
fn notifications_2_7_7_and_2_8_10_come_where_they_are_wanted() {
    let pools = pools();
    for queue in all_queues() {
        let mut both = Both::new(&queue, &pools);
        both.send(0, &[60]).unwrap();
        both.receive(9).unwrap();
        both.from.must_notify(&both.memory, Look::Late);
        both.to.want(&both.memory, true);
        assert!(!both.to.is_waiting(&both.memory), "{queue:?}");
        assert!(
            !both.from.must_notify(&both.memory, Look::Late),
            "nothing given: {queue:?}"
        );
        both.send(1, &[60, 60]).unwrap();
        assert!(both.to.is_waiting(&both.memory), "{queue:?}");
        assert!(both.from.must_notify(&both.memory, Look::Late), "{queue:?}");
        let fill = |both: &Both| [&both.from, &both.to].map(|ring| fill(&**ring, &both.memory));
        assert_eq!(fill(&both), [2; 2], "{queue:?}");
        both.receive(9).unwrap();
        // One used descriptor may stand for several (2.8.7).
        let most = u16::from(queue.agreed.in_order);
        assert!(fill(&both)[0] <= most && fill(&both)[1] == 0, "{queue:?}");
        both.to.want(&both.memory, false);
        both.send(3, &[60]).unwrap();
        // With an event index, a wish that was passed is none any more (2.7.10).
        assert!(
            !both.from.must_notify(&both.memory, Look::Late),
            "{queue:?}"
        );
    }
}

/// The other side may go to sleep when frames are under way that it cannot see yet.
#[test]
fn a_wish_behind_early_looks_is_found_by_the_late_one() {
    let pools = pools();
    for queue in all_queues() {
        let mut both = Both::new(&queue, &pools);
        both.send(0, &[60]).unwrap();
        both.receive(9).unwrap();
        both.from.must_notify(&both.memory, Look::Late);
        both.to.want(&both.memory, false);
        for number in [1, 2] {
            both.send(number, &[60]).unwrap();
            assert!(
                !both.from.must_notify(&both.memory, Look::Early),
                "{queue:?}"
            );
        }
        both.to.want(&both.memory, true);
        assert!(both.from.must_notify(&both.memory, Look::Late), "{queue:?}");
        assert!(
            !both.from.must_notify(&both.memory, Look::Late),
            "once: {queue:?}"
        );
    }
}

#[test]
fn a_device_that_returns_a_buffer_twice_is_caught() {
    for kind in KINDS {
        for in_order in [false, true] {
            let mut queue = Queue::new(kind, Filled::ByDevice);
            queue.agreed.in_order = in_order;
            let memory = queue.memory();
            let mut driver = queue.driver(&memory);
            for index in 0..2_usize {
                match kind {
                    Kind::Split => {
                        let entry = [3_u32.to_le_bytes(), 100_u32.to_le_bytes()].concat();
                        poke(&memory, PARTS[2] + 4 + 8 * index, &entry);
                        poke(&memory, PARTS[2] + 2, &2_u16.to_le_bytes());
                    }
                    Kind::Packed => {
                        let used = FIRST_LAP | SECOND_LAP | WRITE;
                        put_packed(&memory, index, 0, 100, 3, used);
                    }
                }
            }
            let mut batch = Batch::new(false);
            driver.take(&memory, &mut batch, 8).unwrap();
            assert_eq!(batch.chains.len(), 2);
            let given = driver.give(&memory, &batch, 2);
            assert_eq!(given, Err(Violation::DescriptorIndex), "{kind:?}");
        }
    }
}

#[test]
fn a_frame_over_the_border_of_two_regions_is_whole() {
    let queue = Queue::new(Kind::Split, Filled::ByDriver);
    let bytes = BUFFERS + 16 * 2048;
    let at = |guest: u64, user: u64, bytes: usize| Region {
        guest,
        user,
        mapped: mapped(bytes),
    };
    let second = GUEST + bytes as u64;
    let memory = Memory::new(vec![at(GUEST, USER, bytes), at(second, USER << 1, 4096)]).unwrap();
    put_split(&memory, PARTS[0], 0, second - 50, 112, 0, 0);
    make_available(&memory, &[0], 1);
    let sent = frame(1, 100);
    poke(&memory, bytes - 38, &sent[..38]);
    let other = memory.at(memory.place(USER << 1, 1).unwrap()).unwrap();
    other.window(0, 62).unwrap().write(&sent[38..]);
    let pools = pools();
    let mut both = Both::new(&queue, &pools);
    both.memory = memory;
    both.to = queue.device(&both.memory);
    assert_eq!(both.receive(8).unwrap(), [sent]);
}

/// A side that writes anything anywhere at any time, for so long: every burst ends, with frames or
/// a violation, and nothing beside the regions changes.
fn survives(kind: Kind, filled: Filled, device: bool, in_order: bool) {
    let pools = pools();
    let mut queue = Queue::new(kind, filled);
    queue.agreed.in_order = in_order;
    let memory = std::sync::Arc::new(queue.memory());
    let stop = AtomicBool::new(false);
    let seed = 0xbad;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed);
            let whole = memory.at(memory.place(USER, 1).unwrap()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let part = PARTS[random.below(3) as usize];
                let words = whole.u16s(part, 200).unwrap();
                let at = random.below(200) as usize;
                // Mostly what makes sense nearly.
                let value = match random.below(6) {
                    0 => random.bits() as u16,
                    1 => words[at].load(Ordering::Relaxed).wrapping_add(1),
                    2 => [NEXT, WRITE, INDIRECT, 0][random.below(4) as usize],
                    3 => FIRST_LAP | [0, NEXT, WRITE, INDIRECT][random.below(4) as usize],
                    4 => SECOND_LAP | [0, NEXT, WRITE, INDIRECT][random.below(4) as usize],
                    _ => random.below(20) as u16,
                };
                words[at].store(value, Ordering::Relaxed);
            }
        });
        let mut cache = PoolCache::new(pools.as_slice());
        let (mut violations, mut burst) = (0, Burst::new());
        let mut ring: Option<Box<dyn Ring>> = None;
        let receives = (filled == Filled::ByDriver) == device;
        let stats = QueueStats::new();
        let mut receiving = Receiving::new(queue.shape(device), 0, &pools, stats.clone());
        let mut sending = Transmitting::new(queue.shape(device), 65_535, stats);
        let (start, mut bursts) = (std::time::Instant::now(), 0);
        while bursts < 500 || violations < 5 {
            bursts += 1;
            let what = format!("{kind:?} {filled:?} {device}, seed {seed:#x}: {violations}");
            assert!(start.elapsed() < linerate_testkit::PATIENCE, "{what}");
            let side = ring.get_or_insert_with(|| match device {
                true => queue.device(&memory),
                false => queue.driver(&memory),
            });
            let done = if receives {
                receiving.receive(&mut **side, &memory, &mut burst, &mut cache)
            } else {
                cache.fill(pools.primary(), &mut burst, 16);
                burst.iter_mut().for_each(|packet| {
                    packet.set_data(&[7; 300]);
                });
                sending.transmit(&mut **side, &memory, &mut burst, &mut cache)
            };
            let _ = side.must_notify(&memory, Look::Early);
            cache.free(&mut burst);
            if done.is_err() {
                violations += 1;
                ring = None; // as control would: from the start
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_side_that_writes_anything_at_any_time_harms_only_itself() {
    for kind in KINDS {
        for filled in WAYS {
            for device in [false, true] {
                survives(kind, filled, device, false);
                survives(kind, filled, device, true);
            }
        }
    }
}
