//! Both sides of both rings, over one memory: clause by clause, at random, and against a side that
//! writes anything at any time.

use super::frames::{Receiving, Shape, Transmitting};
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

    fn memory(&self) -> Memory {
        let bytes = BUFFERS + usize::from(self.size) * self.buffer as usize;
        let region = Region {
            guest: GUEST,
            user: USER,
            mapped: mapped(bytes.next_multiple_of(4096)),
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
