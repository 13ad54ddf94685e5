//! The drivers of the Linux kernel's own ports, against the kernel. Each test has network name
//! spaces of its own and is skipped where it may not make them.
#![allow(missing_docs, clippy::unwrap_used)]

mod af_packet;
mod errors;
mod tap;
mod tcp;

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Port, PortConfig, PortError, Queues};
use linerate_drivers::Drivers;
use linerate_testkit::netns::Unnamed;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A fresh name space, or a line with the reason why the test is skipped.
fn namespace() -> Option<Unnamed> {
    Unnamed::new()
        .map_err(|reason| linerate_testkit::skip(&reason))
        .ok()
}

/// Small slots, and large ones where wanted.
fn pools(large: bool) -> Pools {
    let small = PoolConfig::new("small", 8192);
    let large = large.then(|| PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("large", 512)
    });
    Pools::new(
        [Some(small), large]
            .into_iter()
            .flatten()
            .map(|config| Pool::new(&config).unwrap())
            .collect(),
    )
}

fn open(spec: &str) -> Result<Box<dyn Port>, PortError> {
    Drivers::new().open(spec)
}

/// A started port with its queues.
struct End {
    port: Box<dyn Port>,
    queues: Queues,
    cache: PoolCache,
    pools: Pools,
}

impl End {
    fn new(spec: &str, rx_queues: u16, pools: &Pools) -> Self {
        let mut port = open(spec).unwrap();
        let config = PortConfig {
            rx_queues,
            ..PortConfig::default()
        };
        let queues = port.start(&config, pools).unwrap();
        Self {
            port,
            queues,
            cache: PoolCache::new(pools.as_slice()),
            pools: pools.clone(),
        }
    }

    fn send(&mut self, frame: &[u8]) -> usize {
        let pool = self.pools.for_frame(frame.len()).unwrap();
        let mut burst = Burst::new();
        self.cache.fill(pool, &mut burst, 1);
        for packet in burst.iter_mut() {
            assert!(packet.set_data(frame));
        }
        let taken = self.queues.tx[0].tx_burst(&mut burst, &mut self.cache);
        self.queues.tx[0].flush(&mut self.cache);
        self.cache.free(&mut burst);
        taken
    }

    /// Frames that wait now, and the queue of each.
    fn receive(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for (index, queue) in self.queues.rx.iter_mut().enumerate() {
            let mut burst = Burst::new();
            queue.rx_burst(&mut burst, &mut self.cache);
            found.extend(burst.iter().map(|packet| (index, packet.data().to_vec())));
            self.cache.free(&mut burst);
        }
        found
    }

    /// Receives until a frame of the local experiment's ethertype, behind any tags, has come.
    fn expect(&mut self) -> Vec<u8> {
        let mut found = None;
        wait("a frame", || {
            found = found.take().or_else(|| {
                self.receive()
                    .into_iter()
                    .map(|(_, data)| data)
                    .find(|data| is_ours(data))
            });
            found.is_some()
        });
        found.unwrap()
    }

    fn drops(&self, reason: &str) -> u64 {
        let stats = self.port.stats();
        let all = stats.rx_drops.iter().chain(&stats.tx_drops);
        all.filter(|(name, _)| *name == reason)
            .map(|(_, count)| count)
            .sum()
    }
}

/// Waits until something holds.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited for {what} in vain");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A frame of the ethertype for local experiments, with a number.
fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((0..).map(|at: u64| (number + at) as u8).take(bytes - 22));
    frame
}

/// The same behind tags of (tag protocol identifier, tag control information).
fn tagged(tags: &[(u16, u16)], number: u64, bytes: usize) -> Vec<u8> {
    let plain = frame(number, bytes);
    let tags = tags
        .iter()
        .flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    plain[..12]
        .iter()
        .copied()
        .chain(tags)
        .chain(plain[12..].iter().copied())
        .collect()
}

fn is_ours(data: &[u8]) -> bool {
    linerate_wire::vlan::untagged(data).is_ok_and(|frame| frame.ethertype.0 == 0x88b5)
}
