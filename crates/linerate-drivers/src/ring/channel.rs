//! One direction of one queue pair: an SPSC ring whose ends can be given back and taken again.

use linerate_core::arch::CachePadded;
use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use linerate_core::ring::{Pop, Push, RingMeter, spsc};
use linerate_core::run::doorbell::Doorbell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ring's ends while no queue has them, and whether there is a receiver.
pub(super) struct Channel {
    /// Whether a receive queue has the ring's end: read with each transmit.
    heard: CachePadded<AtomicBool>,
    /// Rung with each transmit. None in a loop, whose sender is mostly the receiver, and where the
    /// process is out of descriptors: then the receiver naps instead.
    bell: Option<Arc<Doorbell>>,
    meter: RingMeter,
    home: Mutex<Home>,
}

struct Home {
    putter: Option<spsc::Producer<Packet>>,
    taker: Option<spsc::Consumer<Packet>>,
    /// For the ledger: packets that ends which are gone put in, less those that they took out and
    /// those that were drained.
    carried: i64,
}

impl Home {
    /// Drops what waits in the ring, if nobody listens; returns how many.
    fn drain(&mut self) -> u64 {
        let Some(taker) = &mut self.taker else {
            return 0;
        };
        let count = std::iter::from_fn(|| taker.pop()).map(drop).count() as u64;
        self.carried -= count as i64;
        count
    }
}

/// `count` channels of `size` packets each; with `bells` a sender wakes its receiver.
pub(super) fn channels(count: u16, size: usize, bells: bool) -> Vec<Arc<Channel>> {
    let channel = |_| channel(size, bell(bells));
    (0..count.max(1)).map(channel).collect()
}

/// A doorbell, if there is to be one, and the process has a descriptor left.
pub(super) fn bell(is_wanted: bool) -> Option<Arc<Doorbell>> {
    is_wanted
        .then(|| Doorbell::new().ok().map(Arc::new))
        .flatten()
}

/// One channel of `size` packets.
pub(super) fn channel(size: usize, bell: Option<Arc<Doorbell>>) -> Arc<Channel> {
    let (putter, taker) = spsc::ring(size);
    let meter = taker.meter();
    let home = Mutex::new(Home {
        putter: Some(putter),
        taker: Some(taker),
        carried: 0,
    });
    Arc::new(Channel {
        heard: CachePadded::new(AtomicBool::new(false)),
        bell,
        meter,
        home,
    })
}

impl Channel {
    pub(super) fn capacity(&self) -> usize {
        self.meter.read().capacity
    }

    pub(super) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Takes the receiving end. Packets sent without a receiver are dropped.
    pub(super) fn listen(this: &Arc<Self>, stats: Arc<QueueStats>) -> Receiver {
        let mut home = this.home();
        let stale = home.drain();
        let taker = home.taker.take();
        assert!(
            taker.is_some(),
            "a port starts only when its queues are gone"
        );
        drop(home);
        if stale > 0 {
            stats.dropped(DropReason::LinkDown, stale);
        }
        this.heard.store(true, Ordering::Relaxed);
        Receiver {
            taker,
            channel: this.clone(),
            taken: 0,
            stats,
        }
    }

    /// Takes the sending end.
    pub(super) fn send(this: &Arc<Self>, stats: Arc<QueueStats>) -> Sender {
        let putter = this.home().putter.take();
        assert!(
            putter.is_some(),
            "a port starts only when its queues are gone"
        );
        Sender {
            putter,
            channel: this.clone(),
            given: 0,
            stats,
        }
    }

    fn home(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receive queue.
pub(super) struct Receiver {
    /// Only `drop` takes it.
    taker: Option<spsc::Consumer<Packet>>,
    channel: Arc<Channel>,
    /// Packets that came out, for the ledger.
    taken: u64,
    stats: Arc<QueueStats>,
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, _: &mut PoolCache) -> usize {
        let Some(taker) = &mut self.taker else {
            return 0;
        };
        let before = burst.len();
        let count = taker.pop_burst(burst, Burst::CAPACITY);
        if count == 0 {
            return 0;
        }
        // The metadata is only read: a line that stays clean need not be written back.
        let received = &burst.as_packets()[before..];
        let bytes = received.iter().map(|packet| packet.len() as u64).sum();
        self.stats.passed(count as u64, bytes);
        self.taken += count as u64;
        count
    }

    fn sleep_on(&mut self) -> SleepOn {
        match &self.channel.bell {
            Some(bell) => SleepOn::Doorbell(bell.clone()),
            None => SleepOn::Nothing,
        }
    }

    fn held(&self) -> i64 {
        let home = self.channel.home();
        let nobody_sends = home.putter.is_some();
        let carried = if nobody_sends { home.carried } else { 0 };
        carried - self.taken as i64
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.channel.heard.store(false, Ordering::Relaxed);
        let mut home = self.channel.home();
        home.taker = self.taker.take();
        home.carried -= self.taken as i64;
        // Packets that the sender still puts in are drained when it is dropped, or when a receiver
        // returns.
        home.drain();
    }
}

/// A transmit queue.
pub(super) struct Sender {
    /// Only `drop` takes it.
    putter: Option<spsc::Producer<Packet>>,
    channel: Arc<Channel>,
    /// Packets that went in, for the ledger.
    given: u64,
    stats: Arc<QueueStats>,
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if !self.channel.is_heard() {
            let count = burst.len();
            self.stats.dropped(DropReason::NoPeer, count as u64);
            cache.free(burst);
            return count;
        }
        let Some(putter) = &mut self.putter else {
            return 0;
        };
        let bytes = burst.bytes();
        let count = putter.push_burst(burst);
        self.stats.passed(count as u64, bytes - burst.bytes());
        self.given += count as u64;
        if let Some(bell) = &self.channel.bell
            && count > 0
        {
            bell.ring();
        }
        count
    }

    fn held(&self) -> i64 {
        self.given as i64 + self.channel.home().carried
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut home = self.channel.home();
        home.putter = self.putter.take();
        home.carried += self.given as i64;
        home.drain();
    }
}
