//! What is in flight, when a device ends at any of its stores and another one takes over.

use super::super::buffers::Buffers;
use super::super::inflight::{self, Area, Inflight};
use super::super::recorded::{Recordable, Recorded};
use super::*;
use linerate_core::mem::Untrusted;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

thread_local! {
    /// Stores to the record that a device may still do.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Before each store to the record: the device ends here, if it is to.
pub(in super::super) fn may_die() {
    LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => {
            left.set(None);
            resume_unwind(Box::new("the device ends"));
        }
        Some(more) => left.set(Some(more - 1)),
    });
}

/// A queue with a record, whose device may be replaced.
struct Bench {
    queue: Queue,
    memory: Memory,
    record: Arc<Untrusted>,
    driver: Box<dyn Ring>,
    device: Box<dyn Ring>,
    sending: Transmitting,
    receiving: Receiving,
    cache: PoolCache,
}

fn device(queue: &Queue, memory: &Memory, record: &Arc<Untrusted>) -> Box<dyn Ring> {
    opened(queue, memory, record).unwrap()
}

/// As a back end makes it.
fn opened(
    queue: &Queue,
    memory: &Memory,
    record: &Arc<Untrusted>,
) -> Result<Box<dyn Ring>, Violation> {
    let Queue {
        kind,
        size,
        agreed,
        filled,
        ..
    } = *queue;
    let packed = kind == Kind::Packed;
    let area = Area::new(record.clone(), 1, packed, size, size).unwrap();
    fn boxed<D: Recordable + 'static>(device: D, inflight: Inflight) -> Box<dyn Ring> {
        Box::new(Recorded::new(device, None, Some(inflight)))
    }
    if packed {
        let at = queue.packed(memory);
        let start = packed::Position::START;
        let (found, at_once) = packed::Device::inflight(area, memory, at.ring, size, start)?;
        let device = packed::Device::new(size, at, agreed, filled, [at_once; 2]);
        return Ok(boxed(device, found));
    }
    let at = queue.split(memory);
    let device = split::Device::resume(memory, size, at, agreed, filled, 0)?;
    let found = device.inflight(area)?;
    Ok(boxed(device, found))
}

impl Bench {
    fn new(queue: Queue, pools: &Pools) -> Self {
        let memory = queue.memory();
        let record = mapped(2 * inflight::bytes(true, queue.size));
        let (driver, device) = (queue.driver(&memory), device(&queue, &memory, &record));
        let to_device = queue.filled == Filled::ByDriver;
        let stats = QueueStats::new();
        Self {
            memory,
            record,
            driver,
            device,
            sending: Transmitting::new(queue.shape(!to_device), 65_535, stats.clone()),
            receiving: Receiving::new(queue.shape(to_device), 7, pools, stats),
            cache: PoolCache::new(pools.as_slice()),
            queue,
        }
    }

    fn replace(&mut self) {
        self.device = device(&self.queue, &self.memory, &self.record);
    }

    /// Sends frames of these numbers; how many went.
    fn send(&mut self, by_device: bool, numbers: std::ops::Range<u64>) -> u64 {
        let mut burst = Burst::new();
        for number in numbers {
            let packet = self.cache.copy_of(&frame(number, len(number))).unwrap();
            burst.push(packet).unwrap();
        }
        let ring = match by_device {
            true => &mut *self.device,
            false => &mut *self.driver,
        };
        let (memory, cache) = (&self.memory, &mut self.cache);
        let sending = &mut self.sending;
        let sent = catch_unwind(AssertUnwindSafe(|| {
            sending.transmit(ring, memory, &mut burst, cache).unwrap()
        }));
        self.cache.free(&mut burst);
        sent.map_or(0, |sent| sent as u64)
    }

    /// Receives up to `room` frames: their numbers, and whether the device lived on.
    fn receive(&mut self, by_device: bool, room: usize) -> (Vec<u64>, bool) {
        let mut burst = Burst::with_room(room);
        let ring = match by_device {
            true => &mut *self.device,
            false => &mut *self.driver,
        };
        let (memory, cache) = (&self.memory, &mut self.cache);
        let receiving = &mut self.receiving;
        let done = catch_unwind(AssertUnwindSafe(|| {
            receiving.receive(ring, memory, &mut burst, cache).unwrap()
        }));
        let number = |packet: &linerate_core::packet::Packet| {
            let number = u64::from_le_bytes(packet.data()[..8].try_into().unwrap());
            assert!(
                packet.data() == frame(number, len(number)),
                "frame {number}"
            );
            number
        };
        let numbers = burst.iter().map(number).collect();
        self.cache.free(&mut burst);
        (numbers, done.is_ok())
    }

    fn ring_words(&self) -> Vec<u64> {
        let mapped = &self.memory.regions()[0].mapped;
        let words = mapped.u64s(0, BUFFERS / 8).unwrap().iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Undoes all but the first `stores` of those by which the device published a batch: as if it
    /// had ended there. How many there were.
    fn tear(&mut self, before: &[u64], stores: usize) -> usize {
        let mapped = self.memory.regions()[0].mapped.clone();
        let words = mapped.u64s(0, BUFFERS / 8).unwrap();
        let mut changed: Vec<usize> = (0..words.len())
            .filter(|&at| words[at].load(Ordering::Relaxed) != before[at])
            .collect();
        if self.queue.kind == Kind::Split {
            // The index, with what stands beside it in its word, comes last.
            changed.sort_by_key(|&at| at == PARTS[2] / 8);
        } else if !changed.is_empty() {
            // In order from where the batch began, but its first descriptor last.
            let words = 2 * usize::from(self.queue.size);
            let old = inflight::bytes(true, self.queue.size) + 18;
            let old = self.record.u16s(old, 1).unwrap()[0].load(Ordering::Relaxed);
            changed.sort_by_key(|&at| (at + words - 2 * usize::from(old)) % words);
            changed.rotate_left(1);
        }
        for &at in changed.iter().skip(stores) {
            words[at].store(before[at], Ordering::Relaxed);
        }
        changed.len()
    }
}

/// Some frames take two of a driver's buffers.
fn len(number: u64) -> usize {
    if number % 4 == 3 { 3000 } else { 60 }
}

const FRAMES: u64 = 48;

/// Everything passes, in bursts of `most` frames, although the device ends in burst `burst` after
/// so many stores to the record, and, if it had published that, all but `torn` stores of it undone.
/// Whether it did end, and by how many stores it had published.
fn passes(
    queue: Queue,
    pools: &Pools,
    (mut most, burst): (u64, u64),
    stores: u32,
    torn: Option<usize>,
) -> (bool, usize) {
    let mut bench = Bench::new(queue, pools);
    let by_driver = queue.filled == Filled::ByDriver;
    let (mut sent, mut next, mut doubt) = (0, 0, 0);
    let (mut died, mut published) = (false, 0);
    for turn in 0.. {
        assert!(turn < 500, "it stands still at {next} of {sent}");
        let before = bench.ring_words();
        let die = || {
            if turn == burst {
                LEFT.with(|left| left.set(Some(stores)));
            }
        };
        let mut ended = false;
        if by_driver {
            sent += bench.send(false, sent..FRAMES.min(sent + 16));
            let before = bench.ring_words();
            die();
            let (numbers, lived) = bench.receive(true, most as usize);
            LEFT.with(|left| left.set(None));
            if !lived {
                // It took them to its end, or another one gets them.
                (ended, doubt) = (true, numbers.len() as u64);
                published = bench.tear(&before, torn.unwrap_or(usize::MAX));
            } else if let Some(&first) = numbers.first() {
                if first == next + doubt {
                    next = first;
                }
                doubt = 0;
                for number in numbers {
                    assert_eq!(number, next, "each once, in order");
                    next += 1;
                }
            }
        } else {
            die();
            // A new one goes on where the driver has everything.
            bench.send(true, next..FRAMES.min(next + most));
            ended = LEFT.with(|left| left.take()).is_none() && turn == burst;
            if ended {
                published = bench.tear(&before, torn.unwrap_or(usize::MAX));
            }
            if !ended || stores.is_multiple_of(2) {
                next = drain(&mut bench, next);
            }
        }
        if ended {
            died = true;
            bench.replace();
            most = 1; // the new one gives back what it gets one by one
            if !by_driver {
                next = drain(&mut bench, next);
            }
        }
        if next + doubt == FRAMES {
            break;
        }
    }
    // The record says that nothing is under way, and all buffers still go round.
    let fresh = opened(&queue, &bench.memory, &bench.record);
    assert!(fresh.is_ok());
    (died, published)
}

fn drain(bench: &mut Bench, mut next: u64) -> u64 {
    loop {
        let (numbers, _) = bench.receive(false, 32);
        if numbers.is_empty() {
            return next;
        }
        for number in numbers {
            assert_eq!(number, next, "each once, in order");
            next += 1;
        }
    }
}

#[test]
fn a_device_that_ends_at_any_store_is_taken_over() {
    let pools = pools();
    for kind in KINDS {
        for filled in WAYS {
            for in_order in [false, true] {
                let mut queue = Queue::new(kind, filled);
                queue.agreed.in_order = in_order;
                // The ring's end is in the second of these bursts; the last fills a packed ring.
                let bursts: &[(u64, u64)] = match kind {
                    Kind::Split => &[(5, 0), (5, 3)],
                    Kind::Packed => &[(5, 0), (5, 3), (16, 2)],
                };
                for &burst in bursts {
                    let mut stores = 0;
                    while passes(queue, &pools, burst, stores, None).0 {
                        stores += 1;
                    }
                    assert!(stores > 10, "it stored little: {stores}");
                    // Where the record's last word before the batch was published is the end.
                    let at = (0..stores)
                        .find(|&stores| passes(queue, &pools, burst, stores, None).1 > 0);
                    let at = at.unwrap();
                    let count = passes(queue, &pools, burst, at, None).1;
                    for torn in 0..count {
                        assert!(passes(queue, &pools, burst, at, Some(torn)).0);
                    }
                }
            }
        }
    }
}

/// The layouts of the specification, byte by byte.
#[test]
fn records_lie_as_vhost_user_says() {
    assert_eq!(
        inflight::bytes(false, 256),
        (16 + 256 * 16_usize).next_multiple_of(64)
    );
    assert_eq!(
        inflight::bytes(true, 256),
        (32 + 256 * 32_usize).next_multiple_of(64)
    );
    let pools = pools();
    for kind in KINDS {
        let queue = Queue::new(kind, Filled::ByDriver);
        let buffers = Buffers::new(GUEST + BUFFERS as u64, queue.buffer, 16, false);
        let mut bench = Bench::new(queue, &pools);
        assert_eq!(bench.send(false, 0..4), 4);
        // It ends with all marked, before it says that the driver has them back.
        let stores = match kind {
            Kind::Split => 4 * 2 + 4 * 2,
            Kind::Packed => 4 * 4 + 5 * 7 + 4 * 2 + 2,
        };
        LEFT.with(|left| left.set(Some(stores)));
        let _ = bench.receive(true, 4);
        LEFT.with(|left| left.set(None));
        let at = inflight::bytes(kind == Kind::Packed, 16);
        let half =
            |offset: usize| bench.record.u16s(at + offset, 1).unwrap()[0].load(Ordering::Relaxed);
        let byte =
            |offset: usize| bench.record.u8s(at + offset, 1).unwrap()[0].load(Ordering::Relaxed);
        let word =
            |offset: usize| bench.record.u64s(at + offset, 1).unwrap()[0].load(Ordering::Relaxed);
        assert_eq!(
            (word(0), half(8), half(10)),
            (0, 1, 16),
            "features, version, entries"
        );
        if kind == Kind::Split {
            // Heads 0 to 3; the last frame is in buffers 3 and 4.
            assert_eq!((half(12), half(14)), (3, 0), "last batch, used index");
            for head in 0..4 {
                let entry = 16 + 16 * head;
                assert_eq!((byte(entry), word(entry + 8)), (1, head as u64));
                assert_eq!(
                    half(entry + 6),
                    (head as u16).saturating_sub(1),
                    "the batch's list"
                );
            }
            assert_eq!(byte(16 + 16 * 4), 0, "no head");
            continue;
        }
        // Entries 0 to 4: the last frame has two.
        assert_eq!(
            [half(12), half(14)],
            [3, 5],
            "free list: after the batch, before it"
        );
        assert_eq!([half(16), half(18)], [5, 0], "used index, old one");
        for (head, places) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
            let entry = 32 + 32 * head;
            assert_eq!((byte(entry), word(entry + 8)), (1, head as u64));
            let last = head as u16 + places - 1;
            assert_eq!(
                [half(entry + 4), half(entry + 6)],
                [last, places],
                "last, num"
            );
            assert_eq!(half(entry + 16), head as u16, "id");
            assert_eq!(word(entry + 24), buffers.address(head as u16));
        }
    }
}

/// Whatever the front end puts there.
#[test]
fn any_record_is_taken_or_refused() {
    let pools = pools();
    let mut random = Random::new(17);
    let mut seen = BTreeSet::new();
    for round in 0..1000_u32 {
        let queue = Queue::new(KINDS[round as usize % 2], WAYS[round as usize / 2 % 2]);
        let mut bench = Bench::new(queue, &pools);
        if queue.filled == Filled::ByDriver {
            bench.send(false, 0..5);
        }
        let halves = bench.record.u16s(0, bench.record.len() / 2).unwrap();
        for _ in 0..1 + random.below(40) {
            let at = random.below(halves.len() as u64) as usize;
            let value = if random.below(4) == 0 {
                random.bits() as u16
            } else {
                random.below(18) as u16
            };
            halves[at].store(value, Ordering::Relaxed);
        }
        let mut device = match opened(&queue, &bench.memory, &bench.record) {
            Ok(device) => device,
            Err(violation) => {
                seen.insert(violation.name());
                continue;
            }
        };
        seen.insert("taken");
        for _ in 0..4 {
            let mut batch = Batch::new(queue.filled == Filled::ByDevice);
            let most = random.below(8) as usize;
            let taken = device.take(&bench.memory, &mut batch, most);
            let count = batch.chains.len();
            let done = taken.and_then(|()| device.give(&bench.memory, &batch, count));
            if let Err(violation) = done {
                seen.insert(violation.name());
                break;
            }
        }
    }
    assert!(
        seen.contains("taken") && seen.contains("region_bad"),
        "{seen:?}"
    );
}
