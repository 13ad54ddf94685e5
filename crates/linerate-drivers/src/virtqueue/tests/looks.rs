//! Whoever looks at a queue holds no worker up, and sees how full the ring is.

use super::*;
use crate::peer::kick::{Notifier, Wakeups, new_eventfd};
use crate::virtqueue::active::{Active, AnyRing};
use crate::virtqueue::queue::{self, Receiver, Sender};
use linerate_core::packet::Offload;
use linerate_core::port::{RxQueue, TxQueue};
use std::sync::Arc;

/// Both ends of a ring as workers have them, device and driver in one process.
struct Ends {
    queues: [Arc<queue::Queue>; 2],
    sender: Sender,
    receiver: Receiver,
    cache: PoolCache,
    _notifier: Notifier,
}

fn any(queue: &Queue, memory: &Memory) -> [AnyRing; 2] {
    let Queue {
        size,
        agreed,
        filled,
        buffer,
        ..
    } = *queue;
    let base = GUEST + BUFFERS as u64;
    match queue.kind {
        Kind::Split => {
            let at = queue.split(memory);
            let mut driver = split::Driver::new(size, at, agreed, filled, base, buffer);
            if filled == Filled::ByDevice {
                driver.offer_all(memory).unwrap();
            }
            let device = split::Device::new(size, at, agreed, filled, 0);
            [AnyRing::SplitDevice(device), AnyRing::SplitDriver(driver)]
        }
        Kind::Packed => {
            let (at, start) = (queue.packed(memory), [packed::Position::START; 2]);
            let mut driver = packed::Driver::new(size, at, agreed, filled, base, buffer);
            if filled == Filled::ByDevice {
                driver.offer_all(memory).unwrap();
            }
            let device = packed::Device::new(size, at, agreed, filled, start);
            [AnyRing::PackedDevice(device), AnyRing::PackedDriver(driver)]
        }
    }
}

impl Ends {
    fn new(of: &Queue) -> Self {
        let memory = Arc::new(of.memory());
        let notifier = Notifier::new(2, Arc::default()).unwrap();
        let bell = Arc::new(new_eventfd().unwrap());
        let mut index = 0;
        let queues = any(of, &memory).map(|ring| {
            let queue = Arc::new(queue::Queue::new(bell.clone()));
            let active = Active {
                ring,
                memory: memory.clone(),
                shape: of.shape(index == 0),
                takes: Offload::NONE,
                notify: (notifier.handle(), index),
            };
            queue.put(active, |_| Ok(())).unwrap();
            index += 1;
            queue
        });
        let [device, driver] = queues.clone();
        let (from, to) = match of.filled {
            Filled::ByDriver => (driver, device),
            Filled::ByDevice => (device, driver),
        };
        let (pools, stats) = (pools(), QueueStats::new());
        let wakeups = Arc::new(Wakeups::new().unwrap());
        Self {
            queues,
            sender: Sender::new(vec![from], 0, 9000, (&pools, false), stats.clone()),
            receiver: Receiver::new(to, wakeups, 0, (&pools, false), stats),
            cache: PoolCache::new(pools.as_slice()),
            _notifier: notifier,
        }
    }

    fn send(&mut self, count: usize) -> usize {
        let mut burst = Burst::new();
        for number in 0..count {
            let packet = self.cache.copy_of(&frame(number as u64, 60));
            burst.push(packet.unwrap()).unwrap();
        }
        let sent = self.sender.tx_burst(&mut burst, &mut self.cache);
        self.sender.flush(&mut self.cache);
        self.cache.free(&mut burst);
        sent
    }

    fn receive(&mut self, room: usize) -> usize {
        let mut burst = Burst::with_room(room);
        let count = self.receiver.rx_burst(&mut burst, &mut self.cache);
        self.cache.free(&mut burst);
        count
    }
}

/// Somebody looks all the time, and never comes to an end: as one that lost its CPU.
#[test]
fn bursts_go_while_a_look_lasts() {
    for of in all_queues() {
        let mut ends = Ends::new(&of);
        let queues = ends.queues.clone();
        let looks = queues.each_ref().map(|queue| queue.shown());
        for lap in 0..100 {
            assert_eq!(ends.send(9), 9, "{of:?}, {lap}");
            assert_eq!(ends.receive(64), 9, "{of:?}, {lap}");
        }
        drop(looks);
        let fills = queues.each_ref().map(|queue| queue.fill());
        assert!(
            fills.iter().all(|fill| fill.unwrap()[0] <= 9),
            "{of:?}: {fills:?}"
        );
    }
}

#[test]
fn control_goes_by_what_is_shown_and_by_the_flag_of_a_breach() {
    for kind in KINDS {
        let of = Queue::new(kind, Filled::ByDriver);
        let mut ends = Ends::new(&of);
        let [device, driver] = ends.queues.clone();
        assert_eq!(ends.send(5), 5);
        assert_eq!([device.fill(), driver.fill()], [Some([5, 16]); 2]);
        assert!(device.is_active() && !device.is_lost());
        assert_eq!(device.broken(), None);
        // A descriptor that is nowhere.
        put_split(&device_memory(&device), PARTS[0], 0, u64::MAX, 60, 0, 0);
        if kind == Kind::Packed {
            put_packed(&device_memory(&device), 0, u64::MAX, 60, 0, FIRST_LAP);
        }
        assert_eq!(ends.receive(64), 0);
        assert_eq!(device.broken(), Some(Violation::DescriptorOutside));
        assert_eq!(driver.broken(), None);
        device.rest();
        assert!(device.broken().is_none() && device.fill().is_none() && !device.is_active());
        assert!(driver.take().is_some() && driver.take().is_none());
        assert_eq!(driver.fill(), None);
    }
}

fn device_memory(queue: &queue::Queue) -> Arc<Memory> {
    queue.shown().as_ref().unwrap().memory.clone()
}

/// What the worker left behind may be older than what stands in the ring.
#[test]
fn a_look_at_a_busy_ring_is_between_what_was_and_what_is() {
    let pools = pools();
    for of in all_queues().filter(|of| !of.agreed.in_order) {
        let mut both = Both::new(&of, &pools);
        both.send(0, &[60; 7]).unwrap();
        let posted = Posted::default();
        posted.set(both.to.standing());
        assert_eq!(both.to.gauge().fill(&both.memory, &posted), 7, "{of:?}");
        both.receive(3).unwrap();
        let seen = both.to.gauge().fill(&both.memory, &posted);
        assert!((4..=7).contains(&seen), "{of:?}: {seen}");
        posted.set(both.to.standing());
        assert_eq!(both.to.gauge().fill(&both.memory, &posted), 4, "{of:?}");
    }
}
