//! Counters of one lcore at one moment: read on the lcore itself, between two turns, so that they add up.

use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::packet::Pool;

use crate::apps::pktgen::engine::{Engine, Load, ReceiverStats, SenderStats, StreamSent};

/// The counters that an lcore writes.
#[derive(Clone)]
pub(super) struct Books {
    /// The pool that its ports receive into.
    pub(super) pool: Pool,
    pub(super) senders: Vec<Arc<SenderStats>>,
    /// By the number on the wire.
    pub(super) sent: Vec<(u16, Arc<StreamSent>)>,
    pub(super) receivers: Vec<Arc<ReceiverStats>>,
}

/// What they said.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The lcore's ticks.
    pub(super) at: u64,
    pub(super) load: Load,
    /// Free slots of the pool in the lcore's stock.
    pub(super) free: u64,
    pub(super) senders: Vec<SenderCount>,
    pub(super) sent: Vec<(u16, SentCount)>,
    pub(super) receivers: Vec<ReceiverCount>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderCount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
    pub(super) no_slot: u64,
    pub(super) busy_ticks: u64,
    pub(super) is_done: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentCount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) unsent: u64,
    pub(super) intended: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReceiverCount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) broadcast: u64,
    pub(super) multicast: u64,
    pub(super) sizes: [u64; 7],
    pub(super) runts: u64,
    pub(super) arp: u64,
    pub(super) icmp: u64,
    pub(super) foreign: u64,
    pub(super) busy_ticks: u64,
    /// By the number on the wire.
    pub(super) streams: Vec<ReceivedCount>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedCount {
    pub(super) packets: u64,
    pub(super) next: u64,
    pub(super) reordered: u64,
    pub(super) duplicates: u64,
}

impl Books {
    /// Nothing to read yet.
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            senders: Vec::new(),
            sent: Vec::new(),
            receivers: Vec::new(),
        }
    }

    /// Reads all counters; on the lcore that writes them.
    pub(super) fn read(&self, engine: &Engine, clock: Clock) -> Sample {
        Sample {
            at: clock.now(),
            load: engine.load,
            free: engine.cache.held(&self.pool) as u64,
            senders: self.senders.iter().map(|stats| sender(stats)).collect(),
            sent: self
                .sent
                .iter()
                .map(|(wire, stats)| (*wire, sent(stats)))
                .collect(),
            receivers: self.receivers.iter().map(|stats| receiver(stats)).collect(),
        }
    }
}

fn sender(stats: &SenderStats) -> SenderCount {
    SenderCount {
        packets: stats.packets.read(),
        bytes: stats.bytes.read(),
        refused: stats.refused.read(),
        no_slot: stats.no_slot.read(),
        busy_ticks: stats.busy_ticks.read(),
        is_done: stats.done.read() == 1,
    }
}

fn sent(stats: &StreamSent) -> SentCount {
    SentCount {
        packets: stats.packets.read(),
        bytes: stats.bytes.read(),
        unsent: stats.unsent.read(),
        intended: stats.intended.read(),
    }
}

fn receiver(stats: &ReceiverStats) -> ReceiverCount {
    let streams = stats.streams.iter().map(|stream| ReceivedCount {
        packets: stream.packets.read(),
        next: stream.next.read(),
        reordered: stream.reordered.read(),
        duplicates: stream.duplicates.read(),
    });
    ReceiverCount {
        packets: stats.packets.read(),
        bytes: stats.bytes.read(),
        broadcast: stats.broadcast.read(),
        multicast: stats.multicast.read(),
        sizes: std::array::from_fn(|class| stats.sizes[class].read()),
        runts: stats.runts.read(),
        arp: stats.arp.read(),
        icmp: stats.icmp.read(),
        foreign: stats.foreign.read(),
        busy_ticks: stats.busy_ticks.read(),
        streams: streams.collect(),
    }
}

impl Sample {
    /// What was counted since an earlier sample of the same books. The load is left as it is.
    pub(super) fn since(&self, base: &Self) -> Self {
        let senders = (0..).zip(&self.senders).map(|(index, now)| {
            let before = base.senders.get(index).copied().unwrap_or_default();
            SenderCount {
                packets: now.packets - before.packets,
                bytes: now.bytes - before.bytes,
                refused: now.refused - before.refused,
                no_slot: now.no_slot - before.no_slot,
                busy_ticks: now.busy_ticks - before.busy_ticks,
                is_done: now.is_done,
            }
        });
        // Streams are only ever added.
        let sent = (0..).zip(&self.sent).map(|(index, &(wire, now))| {
            let before = base
                .sent
                .get(index)
                .map_or_else(SentCount::default, |base| base.1);
            let since = SentCount {
                packets: now.packets - before.packets,
                bytes: now.bytes - before.bytes,
                unsent: now.unsent - before.unsent,
                intended: now.intended - before.intended,
            };
            (wire, since)
        });
        Self {
            senders: senders.collect(),
            sent: sent.collect(),
            ..self.clone()
        }
    }
}
