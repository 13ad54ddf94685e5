//! vhost and virtio_user ports against peers of the tests' own, which know the protocol: one keeps
//! to it, others do not; with Open vSwitch, and with guests.
#![allow(missing_docs, clippy::unwrap_used)]

mod booked;
mod guests;
mod hostile;
mod lent;
mod looks;
mod machine;
mod messages;
mod migration;
mod ovs;
mod peer;
mod protocol;
mod wakeups;

use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Link, Port, PortConfig, Queues};
use linerate_drivers::Drivers;
use linerate_testkit::wait;

/// A started port in the hands of a test.
pub(crate) struct End {
    pub(crate) port: Box<dyn Port>,
    pub(crate) queues: Queues,
    pub(crate) cache: PoolCache,
    pub(crate) pools: Pools,
}

/// Small slots and large ones, which peers may map or not.
pub(crate) fn pools(exposed: bool) -> Pools {
    let small = PoolConfig::new("small", 8192);
    let large = PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("large", 128)
    };
    let pools = [small, large].map(|config| Pool::new(&PoolConfig { exposed, ..config }).unwrap());
    Pools::new(pools.into())
}

impl End {
    pub(crate) fn new(spec: &str, queues: u16) -> Self {
        let port = Drivers::new().open(spec).unwrap();
        let pools = pools(port.info().exposed_pool);
        let mut end = Self {
            port,
            queues: Queues::default(),
            cache: PoolCache::new(pools.as_slice()),
            pools,
        };
        end.start(queues);
        end
    }

    pub(crate) fn start(&mut self, queues: u16) {
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            ..PortConfig::default()
        };
        self.queues = self.port.start(&config, &self.pools).unwrap();
    }

    /// It can be started again.
    pub(crate) fn stop(&mut self) {
        self.queues = Queues::default();
        self.port.stop().unwrap();
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

    /// Ends it, and checks that every slot is home.
    pub(crate) fn finish(mut self) {
        self.stop();
        let Self {
            port, cache, pools, ..
        } = self;
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
