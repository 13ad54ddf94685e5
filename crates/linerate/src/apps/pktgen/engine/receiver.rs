//! One receive queue: every frame classified, every test frame checked against its stream.

use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::{Counter, RxQueue, SleepOn};
use linerate_core::run::Histogram;

use crate::apps::pktgen::signature::Label;
use crate::apps::pktgen::units::FCS_BYTES;

/// Counters of one stream at one receive queue.
#[derive(Debug, Default)]
pub(crate) struct StreamReceived {
    /// All that came, duplicates too.
    pub(crate) packets: Counter,
    /// One more than the highest sequence number that came; 0 before the first.
    pub(crate) next: Counter,
    pub(crate) reordered: Counter,
    pub(crate) duplicates: Counter,
    /// Ticks; by RFC 3550.
    pub(crate) jitter_ticks: Counter,
    pub(crate) latency_ticks: Histogram,
}

/// Counters of a receive queue.
#[derive(Debug, Default)]
pub(crate) struct ReceiverStats {
    pub(crate) packets: Counter,
    /// With FCS.
    pub(crate) bytes: Counter,
    pub(crate) broadcast: Counter,
    pub(crate) multicast: Counter,
    pub(crate) sizes: [Counter; 7],
    pub(crate) runts: Counter,
    pub(crate) arp: Counter,
    pub(crate) icmp: Counter,
    pub(crate) foreign: Counter,
    pub(crate) busy_ticks: Counter,
    /// Of all test frames that came in here.
    pub(crate) latency_ticks: Histogram,
    /// By stream number.
    pub(crate) streams: Vec<Arc<StreamReceived>>,
}

/// One receive queue and its books.
pub(crate) struct Receiver {
    rx: Box<dyn RxQueue>,
    clock: Clock,
    pub(crate) stats: Arc<ReceiverStats>,
}

impl Receiver {
    /// `streams`: how many streams the session has, over all ports.
    pub(crate) fn new(rx: Box<dyn RxQueue>, streams: usize, clock: Clock) -> Self {
        let stats = ReceiverStats {
            streams: (0..streams).map(|_| Arc::default()).collect(),
            ..ReceiverStats::default()
        };
        Self {
            rx,
            clock,
            stats: Arc::new(stats),
        }
    }

    /// What an idle lcore may sleep on until frames come.
    pub(crate) fn sleep_on(&mut self) -> SleepOn {
        self.rx.sleep_on()
    }

    /// Receives one burst and checks it; returns how many frames came.
    #[inline]
    pub(crate) fn turn(&mut self, cache: &mut PoolCache) -> usize {
        let mut burst = Burst::new();
        let came = self.rx.rx_burst(&mut burst, cache);
        if came == 0 {
            return 0;
        }
        let now = self.clock.now();
        for packet in burst.iter() {
            self.stats.bytes.add((packet.len() + FCS_BYTES) as u64);
            let Some(label) = Label::read(packet.data()) else {
                self.stats.foreign.add(1);
                continue;
            };
            let Some(stream) = self.stats.streams.get(usize::from(label.stream)) else {
                self.stats.foreign.add(1);
                continue;
            };
            stream.packets.add(1);
            stream.next.set(stream.next.read().max(label.sequence + 1));
            self.stats.latency_ticks.record(label.age(now), 1);
        }
        self.stats.packets.add(came as u64);
        cache.free(&mut burst);
        came
    }
}
