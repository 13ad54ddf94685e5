//! A port with an observer: what [`traced`](super::traced) and [`capture`](super::capture) have in
//! common.
//!
//! Only frames that a transmit queue really takes are shown, so they are copied before and shown
//! after.

use super::pcapng::Direction;
use super::{
    Link, Port, PortConfig, PortError, PortInfo, PortStats, Queues, RssSetup, RxQueue, SleepOn,
    TxQueue,
};
use crate::packet::{Burst, PoolCache, Pools};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// An observer of a port, which all its queues share.
pub trait Observer: Send {
    /// Whether a frame is to be shown to [`Observer::see`].
    fn wants(&mut self, seen: &SeenFrame<'_>) -> bool;

    /// Takes note of a frame that passed.
    fn see(&mut self, seen: &SeenFrame<'_>);

    /// The port stops.
    ///
    /// # Errors
    /// Where not all that was seen could be put down.
    fn finish(&mut self, port: &str) -> Result<(), PortError>;

    /// Facts about it for users.
    fn fact(&self) -> (&'static str, String);

    /// Frames that it should have put down and has not.
    fn missed(&self) -> u64;

    /// Why it puts nothing down any more, if it should.
    fn warning(&self) -> Option<String>;
}

/// A frame that passes a port.
#[derive(Clone, Copy, Debug)]
pub struct SeenFrame<'a> {
    /// Nanoseconds since 1970 UTC.
    pub timestamp_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// Index of the queue.
    pub queue: u16,
    /// The bytes.
    pub frame: &'a [u8],
}

/// Wraps any port.
pub struct Observed<O> {
    port: Box<dyn Port>,
    observer: Arc<Mutex<O>>,
}

impl<O: Observer + 'static> Observed<O> {
    /// Has `observer` watch `port`.
    pub fn new(port: Box<dyn Port>, observer: O) -> Self {
        Self {
            port,
            observer: Arc::new(Mutex::new(observer)),
        }
    }
}

fn lock<O>(observer: &Mutex<O>) -> MutexGuard<'_, O> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |passed| passed.as_nanos() as u64)
}

impl<O: Observer + 'static> Port for Observed<O> {
    fn info(&self) -> PortInfo {
        let mut info = self.port.info();
        info.facts.push(lock(&self.observer).fact());
        info
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        let inner = self.port.start(config, pools)?;
        let mut queues = Queues::default();
        for (index, queue) in (0..).zip(inner.rx) {
            queues.rx.push(Box::new(ObservedRx {
                queue,
                index,
                observer: self.observer.clone(),
            }));
        }
        for (index, queue) in (0..).zip(inner.tx) {
            let (frames, ends) = (Vec::new(), Vec::new());
            queues.tx.push(Box::new(ObservedTx {
                queue,
                index,
                observer: self.observer.clone(),
                frames,
                ends,
            }));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        self.port.link()
    }

    fn rss(&self) -> Option<RssSetup> {
        self.port.rss()
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        stats.capture_missed += lock(&self.observer).missed();
        stats
    }

    fn warning(&self) -> Option<String> {
        lock(&self.observer).warning().or(self.port.warning())
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.port.stop()?;
        lock(&self.observer).finish(&self.port.info().name)
    }
}

struct ObservedRx<O> {
    queue: Box<dyn RxQueue>,
    index: u16,
    observer: Arc<Mutex<O>>,
}

impl<O: Observer> RxQueue for ObservedRx<O> {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let count = self.queue.rx_burst(burst, cache);
        if count > 0 {
            let mut observer = lock(&self.observer);
            let timestamp_ns = now_ns();
            for packet in &burst.as_packets()[before..] {
                let (direction, queue) = (Direction::Inbound, self.index);
                let seen = SeenFrame {
                    timestamp_ns,
                    direction,
                    queue,
                    frame: packet.data(),
                };
                if observer.wants(&seen) {
                    observer.see(&seen);
                }
            }
        }
        count
    }

    fn sleep_on(&mut self) -> SleepOn {
        self.queue.sleep_on()
    }

    fn due_in(&self) -> Option<Duration> {
        self.queue.due_in()
    }

    fn held(&self) -> i64 {
        self.queue.held()
    }
}

struct ObservedTx<O> {
    queue: Box<dyn TxQueue>,
    index: u16,
    observer: Arc<Mutex<O>>,
    /// Copies of the offered frames that are wanted, and of each its place in the burst and its end
    /// here.
    frames: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl<O: Observer> TxQueue for ObservedTx<O> {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if burst.is_empty() {
            return self.queue.tx_burst(burst, cache);
        }
        let mut observer = lock(&self.observer);
        let (timestamp_ns, direction, queue) = (now_ns(), Direction::Outbound, self.index);
        for (place, packet) in burst.iter().enumerate() {
            let frame = packet.data();
            if observer.wants(&SeenFrame {
                timestamp_ns,
                direction,
                queue,
                frame,
            }) {
                self.frames.extend_from_slice(frame);
                self.ends.push((place, self.frames.len()));
            }
        }
        let count = self.queue.tx_burst(burst, cache);
        let mut start = 0;
        for (place, end) in self.ends.drain(..) {
            let frame = &self.frames[start..end];
            start = end;
            if place < count {
                observer.see(&SeenFrame {
                    timestamp_ns,
                    direction,
                    queue,
                    frame,
                });
            }
        }
        self.frames.clear();
        count
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        self.queue.flush(cache);
    }

    fn due_in(&self) -> Option<Duration> {
        self.queue.due_in()
    }

    fn held(&self) -> i64 {
        self.queue.held()
    }
}
