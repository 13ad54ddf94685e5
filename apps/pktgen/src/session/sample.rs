//! Counters of one lcore at one moment: read on the lcore itself, between two turns, so that they
//! add up.

use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::packet::Pool;

use crate::engine::{
    Engine, Load, Receiver, ReceiverStats, SenderStats, StreamReceived, StreamSent,
};

/// The counters that an lcore writes.
#[derive(Clone)]
pub(super) struct Books {
    /// The pool that its ports receive into.
    pub(super) pool: Pool,
    pub(super) senders: Vec<Arc<SenderStats>>,
    /// By the number on the wire.
    pub(super) sent: Vec<(u16, Arc<StreamSent>)>,
    /// For each receiver its counters since `clear`: the current ones, after earlier ones that had
    /// room for fewer streams.
    pub(super) receivers: Vec<Vec<Arc<ReceiverStats>>>,
}

/// The values of the counters.
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
    /// Ticks in which it was sending.
    pub(super) sending_ticks: u64,
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
    /// Ticks at which the first and the last test frame came; 0 while none has.
    pub(super) first_at: u64,
    pub(super) last_at: u64,
    /// By the number on the wire.
    pub(super) streams: Vec<StreamReceived>,
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
    pub(super) fn read(&self, engine: &mut Engine, clock: Clock) -> Sample {
        Sample {
            receivers: self.read_received(engine),
            ..self.read_sent(engine, clock)
        }
    }

    /// What receivers counted; on their lcore.
    pub(super) fn read_received(&self, engine: &mut Engine) -> Vec<ReceiverCount> {
        engine.receivers.iter_mut().for_each(Receiver::follow);
        self.receivers.iter().map(|stats| receiver(stats)).collect()
    }

    /// All but what receivers counted; on the lcore.
    pub(super) fn read_sent(&self, engine: &Engine, clock: Clock) -> Sample {
        Sample {
            at: clock.now(),
            load: engine.load,
            free: engine.cache.held(&self.pool) as u64,
            senders: self
                .senders
                .iter()
                .map(|stats| sender(stats, clock.now()))
                .collect(),
            sent: self
                .sent
                .iter()
                .map(|(wire, stats)| (*wire, sent(stats)))
                .collect(),
            receivers: Vec::new(),
        }
    }
}

fn sender(stats: &SenderStats, now: u64) -> SenderCount {
    SenderCount {
        packets: stats.packets.read(),
        bytes: stats.bytes.read(),
        refused: stats.refused.read(),
        no_slot: stats.no_slot.read(),
        busy_ticks: stats.busy_ticks.read(),
        sending_ticks: stats.sending_ticks(now),
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

fn receiver(all: &[Arc<ReceiverStats>]) -> ReceiverCount {
    let mut sum = ReceiverCount::default();
    for stats in all {
        sum.packets += stats.packets.read();
        sum.bytes += stats.bytes.read();
        sum.broadcast += stats.broadcast.read();
        sum.multicast += stats.multicast.read();
        for (sum, class) in sum.sizes.iter_mut().zip(&stats.sizes) {
            *sum += class.read();
        }
        sum.runts += stats.runts.read();
        sum.arp += stats.arp.read();
        sum.icmp += stats.icmp.read();
        sum.foreign += stats.foreign.read();
        sum.busy_ticks += stats.busy_ticks.read();
        let first_at = stats.first_at.read();
        sum.first_at = match sum.first_at {
            0 => first_at,
            known => known,
        };
        sum.last_at = sum.last_at.max(stats.last_at.read());
        let streams = stats.streams();
        sum.streams
            .resize(sum.streams.len().max(streams), StreamReceived::default());
        for (wire, sum) in (0..).zip(&mut sum.streams[..streams]) {
            sum.merge(&stats.stream(wire));
        }
    }
    sum
}

impl Sample {
    /// Counts since an earlier sample of the same counters. The load stays as it is.
    pub(super) fn since(&self, base: &Self) -> Self {
        let senders = (0..).zip(&self.senders).map(|(index, now)| {
            let before = base.senders.get(index).copied().unwrap_or_default();
            SenderCount {
                packets: now.packets - before.packets,
                bytes: now.bytes - before.bytes,
                refused: now.refused - before.refused,
                no_slot: now.no_slot - before.no_slot,
                busy_ticks: now.busy_ticks - before.busy_ticks,
                sending_ticks: now.sending_ticks - before.sending_ticks,
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
