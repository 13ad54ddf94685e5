//! How packets come and go: a [`Port`] is a device; starting it hands out its queues as values.
//!
//! Two calls separate NIC from NIC: [`RxQueue::rx_burst`] and [`TxQueue::tx_burst`]. A queue is
//! `Send` and polled through `&mut`, so that a second poller does not compile. Drivers live in
//! `linerate-drivers`, one folder for each kind. [`Faulty`], [`Traced`] and [`Capture`] wrap any
//! port.

pub mod capture;
mod error;
pub mod faulty;
pub mod observed;
pub mod pcapng;
mod rss;
mod spec;
mod stats;
pub mod traced;

pub use capture::{Capture, CaptureConfig};
pub use error::PortError;
pub use faulty::{Faults, Faulty};
pub use rss::{MakeRssHash, RssHash, RssSetup};
pub use spec::{OptionHelp, Spec};
pub use stats::{Counter, DropReason, PortStats, QueueStats, RingFill};
pub use traced::Traced;

use crate::packet::{Burst, PoolCache, Pools};
use crate::run::doorbell::Doorbell;
use linerate_wire::ethernet::MacAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// One receive queue, polled by one lcore.
///
/// Two pollers of a queue do not compile:
/// ```compile_fail,E0499
/// use linerate_core::{packet::{Burst, PoolCache}, port::RxQueue};
/// fn share(queue: &mut dyn RxQueue, cache: &mut PoolCache) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| queue.rx_burst(&mut Burst::new(), &mut PoolCache::new(&[])));
///         scope.spawn(|| queue.rx_burst(&mut Burst::new(), &mut PoolCache::new(&[])));
///     });
/// }
/// ```
pub trait RxQueue: Send {
    /// Adds waiting packets to the burst's free room and returns how many. Never blocks. Slots
    /// that the queue needs come from the lcore's cache.
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize;

    /// What an idle lcore may sleep on until packets wait. Asked before each sleep.
    fn sleep_on(&mut self) -> SleepOn {
        SleepOn::Nothing
    }

    /// How long until packets that the queue keeps for a time are due, whatever happens at the
    /// device: an idle lcore sleeps no longer. `None`: it keeps none. Asked before each sleep.
    fn due_in(&self) -> Option<Duration> {
        None
    }

    /// For the ledger: slots that went into the queue less packets that came out, as the queue
    /// itself counts. A device queue answers with the slots it owns now; the reading end of a
    /// memory ring, which sees only what comes out, with minus that; one that owns nothing with 0.
    fn held(&self) -> i64 {
        0
    }
}

/// One transmit queue, used by one lcore.
pub trait TxQueue: Send {
    /// Takes packets from the front of the burst, as many as go, and returns how many; the rest
    /// stays. What was sent is freed through the lcore's cache, now or on a later call.
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize;

    /// Kicks the device and takes completions back. Called in each round, or at least behind
    /// packets, in the first round without any after that, and before the lcore sleeps.
    fn flush(&mut self, cache: &mut PoolCache) {
        let _ = cache;
    }

    /// How long until packets that the queue keeps for a time have to leave: a
    /// [`flush`](TxQueue::flush) then sends them. `None`: it keeps none. Asked before each sleep,
    /// and behind the flush of the first round without packets.
    fn due_in(&self) -> Option<Duration> {
        None
    }

    /// For the ledger: packets that went into the queue less slots that came back, as the queue
    /// itself counts; the writing end of a memory ring sees only what goes in.
    fn held(&self) -> i64 {
        0
    }
}

/// What wakes an lcore that waits for a receive queue.
#[derive(Clone, Debug)]
pub enum SleepOn {
    /// Nothing can: the queue has to be polled, with short naps at most.
    Nothing,
    /// This descriptor is readable when packets wait. It belongs to the queue.
    Fd(RawFd),
    /// This doorbell rings when packets wait in a memory ring.
    Doorbell(Arc<Doorbell>),
    /// Nothing: the sender of packets wakes the lcore itself.
    Unneeded,
    /// No packet will come any more (the end of a capture file).
    Ended,
}

/// A device.
pub trait Port: Send {
    /// What it is and what it can do; also before it is started.
    fn info(&self) -> PortInfo;

    /// Opens the device and hands out its queues. `pools` are all pools that packets may come
    /// from; the port registers their memory where the device needs that, and copies packets
    /// from elsewhere (counted as `tx_copied`).
    ///
    /// # Errors
    /// [`PortError`] names the port, the reason and the fix; nothing is left half-made.
    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError>;

    /// Whether packets can come and go now.
    fn link(&self) -> Link;

    /// Sums over the queues, also of those that other threads poll now.
    fn stats(&self) -> PortStats;

    /// How it spreads what it receives over its queues, where that is known; once it is started,
    /// over those that it was started with.
    fn rss(&self) -> Option<RssSetup> {
        None
    }

    /// A problem that does not affect packets, such as a full disk of a capture. To be reported
    /// when it occurs; it stays until the port stops.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Closes the device. The queues must be dropped first; then the port can be started again.
    ///
    /// # Errors
    /// [`PortError`] where the device could not be left as it was found.
    fn stop(&mut self) -> Result<(), PortError>;
}

/// How a port is to be started.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The application's number for the port: stands in each received packet's metadata.
    pub index: u16,
    /// Receive queues, each for one lcore.
    pub rx_queues: u16,
    /// Transmit queues, each for one lcore.
    pub tx_queues: u16,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            index: 0,
            rx_queues: 1,
            tx_queues: 1,
        }
    }
}

/// The queues of a started port, in separate lists: each can go to another lcore.
#[derive(Default)]
pub struct Queues {
    /// Receive queues.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// Transmit queues.
    pub tx: Vec<Box<dyn TxQueue>>,
}

/// What a port is.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// As the user wrote it: `KIND:TARGET`.
    pub name: String,
    /// Kind of driver.
    pub kind: &'static str,
    /// Hardware address, where there is one.
    pub mac: Option<MacAddr>,
    /// Largest frame without frame check sequence that it sends, in bytes.
    pub max_frame_bytes: usize,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    /// Whether it takes frames with [`Offload::GSO`](crate::packet::Offload::GSO) or
    /// [`Offload::CSUM_PARTIAL`](crate::packet::Offload::CSUM_PARTIAL) as they are; others finish
    /// or cut them.
    pub tx_offloads: bool,
    /// Whether its pool must be [`Layout::Aligned`](crate::packet::Layout::Aligned).
    pub aligned_pool: bool,
    /// Whether its pool must be [`exposed`](crate::packet::PoolConfig::exposed): a peer that is
    /// trusted maps it.
    pub exposed_pool: bool,
    /// Facts for users, once started: mode, ring sizes, what was chosen and why.
    pub facts: Vec<(&'static str, String)>,
}

/// Whether packets can come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// They can.
    Up,
    /// They cannot, and why: `interface eth7 was deleted`.
    Down(String),
}
