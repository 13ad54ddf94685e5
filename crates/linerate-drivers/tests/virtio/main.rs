//! vhost and virtio_user ports against the other ends that exist: DPDK's virtio-user driver and its
//! vhost library, each in a `dpdk-testpmd` that sends back what it gets; and a peer that knows the
//! protocol and does not keep to it. Skipped where there is no DPDK.
#![allow(missing_docs, clippy::unwrap_used)]

mod dpdk;
mod messages;
mod ovs;
#[path = "../dpdk/testpmd.rs"]
mod testpmd;

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Link, Port, PortConfig, Queues};
use linerate_core::random::Random;
use linerate_drivers::Drivers;
use linerate_testkit::wait;

/// A started port in the hands of a test.
pub(crate) struct End {
    pub(crate) port: Box<dyn Port>,
    pub(crate) queues: Queues,
    pub(crate) cache: PoolCache,
    pub(crate) pools: Pools,
}

impl End {
    pub(crate) fn new(spec: &str, queues: u16) -> Self {
        let small = PoolConfig::new("small", 8192);
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 128)
        };
        let pools = [small, large].map(|config| Pool::new(&config).unwrap());
        let pools = Pools::new(pools.into());
        let mut port = Drivers::new().open(spec).unwrap();
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            ..PortConfig::default()
        };
        let queues = port.start(&config, &pools).unwrap();
        Self {
            port,
            queues,
            cache: PoolCache::new(pools.as_slice()),
            pools,
        }
    }

    pub(crate) fn wait_up(&self) {
        wait(&format!("a peer of {}", self.port.info().name), || {
            self.port.link() == Link::Up
        });
    }

    pub(crate) fn wait_down(&self) -> String {
        let mut reason = String::new();
        wait("the end of the link", || match self.port.link() {
            Link::Up => false,
            Link::Down(why) => {
                reason = why;
                true
            }
        });
        reason
    }

    /// Sends `count` frames on a queue to a peer that returns them, at most `window` under way, and
    /// checks that each comes back on that queue, once, in order and unharmed.
    pub(crate) fn echo(&mut self, queue: usize, count: u64, window: u64, longest: usize) {
        let len = |number: u64| match number % 7 {
            0 => longest,
            1 => 60 + Random::new(number).below(longest as u64 - 60) as usize,
            _ => 60,
        };
        let (mut sent, mut got) = (0, 0);
        let (mut burst, mut back) = (Burst::new(), Burst::with_room(32));
        let what = format!("{count} frames back on queue {queue}");
        let mut turn = || {
            while burst.is_empty() && sent + 32 <= got + window && sent < count {
                for number in sent..count.min(sent + 32) {
                    let packet = self.cache.copy_of(&frame(number, len(number))).unwrap();
                    burst.push(packet).unwrap();
                }
                sent += burst.len() as u64;
            }
            self.queues.tx[queue].tx_burst(&mut burst, &mut self.cache);
            self.queues.rx[queue].rx_burst(&mut back, &mut self.cache);
            for packet in back.iter() {
                if packet.data()[12..14] != [0x88, 0xb5] {
                    continue; // what a peer says of itself
                }
                let expected = frame(got, len(got));
                assert!(packet.data() == expected, "frame {got}: {packet:?}");
                got += 1;
            }
            self.cache.free(&mut back);
            got == count
        };
        // Many turns between two looks at the clock, for which it sleeps.
        wait(&what, || (0..10_000).any(|_| turn()));
    }

    /// Ends it, and checks that every slot is home.
    pub(crate) fn finish(self) {
        let Self {
            mut port,
            queues,
            cache,
            pools,
        } = self;
        drop(queues);
        port.stop().unwrap();
        drop((port, cache));
        for pool in pools.iter() {
            let stats = pool.stats();
            assert_eq!(stats.free_shared, stats.slots, "slots of {}", pool.name());
        }
    }
}

pub(crate) fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.resize(bytes, number as u8);
    frame
}
