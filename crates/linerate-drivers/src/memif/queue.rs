//! Receive and transmit queues, as workers have them.

use super::receive::Slots;
use super::shared::Shared;
use crate::offload::Finisher;
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A receive queue.
pub(super) struct Receiver {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) slots: Slots,
    pub(super) stats: Arc<QueueStats>,
    /// The peer has slots of ours.
    pub(super) lends: bool,
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let Self {
            shared,
            index,
            slots,
            stats,
            ..
        } = self;
        let Some(mut inside) = shared.rx[*index].enter() else {
            return 0;
        };
        let Some(ring) = &mut *inside else {
            return 0;
        };
        let received = ring.receive(burst, cache, slots, stats);
        if received.packets > 0 {
            stats.passed(received.packets, received.bytes);
            ring.awake();
        }
        if let Some(fault) = received.fault {
            *inside = None;
            // Still inside, so that it is this connection's fault and not the next one's.
            shared.report(fault);
        }
        received.packets as usize
    }

    /// One descriptor for good, whoever the peer is: it wakes when the peer notifies.
    fn sleep_on(&mut self) -> SleepOn {
        let wakeups = &self.shared.wakeups[self.index];
        wakeups.clear();
        if let Some(ring) = &mut *self.shared.rx[self.index].change() {
            ring.asleep();
        }
        SleepOn::Fd(wakeups.descriptor())
    }

    /// For this queue's worker: where slots are lent, it takes the gate, so that the ledger sees
    /// those of a new ring either here or where they were.
    fn held(&self) -> i64 {
        if !self.lends {
            return 0;
        }
        let ring = self.shared.rx[self.index].change();
        ring.as_ref().map_or(0, |ring| ring.held()) as i64
    }
}

/// A transmit queue.
pub(super) struct Sender {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) finisher: Finisher,
    pub(super) stats: Arc<QueueStats>,
    /// The peer has slots of ours.
    pub(super) lends: bool,
    /// Frames went since the last [`flush`](TxQueue::flush).
    pub(super) sent: bool,
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let Self {
            shared,
            index,
            finisher,
            stats,
            sent,
            ..
        } = self;
        finisher.tx(burst, cache, stats, |burst, cache| {
            let taken = send(shared, *index, burst, cache, stats);
            *sent |= taken > 0;
            taken
        })
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if self.finisher.held() > 0 {
            self.tx_burst(&mut Burst::new(), cache);
        }
        if std::mem::take(&mut self.sent) {
            return;
        }
        let rings = self.shared.tx_rings.load(Ordering::Relaxed);
        if rings == 0 {
            return;
        }
        let at = self.index % rings;
        let Some(mut inside) = self.shared.tx[at].enter() else {
            return;
        };
        let Some(ring) = &mut *inside else { return };
        match ring.settle(cache) {
            Ok(false) => {}
            Ok(true) => self.shared.notify.notify(at),
            Err(fault) => {
                *inside = None;
                self.shared.report(fault);
            }
        }
    }

    /// Rings that several queues share are those of the first of them.
    fn held(&self) -> i64 {
        let mut slots = 0;
        if self.lends {
            let ring = self.shared.tx[self.index].change();
            slots = ring.as_ref().map_or(0, |ring| ring.held());
        }
        self.finisher.held() + slots as i64
    }
}

#[inline(always)]
fn send(
    shared: &Shared,
    index: usize,
    burst: &mut Burst,
    cache: &mut PoolCache,
    stats: &QueueStats,
) -> usize {
    if burst.is_empty() {
        return 0;
    }
    let rings = shared.tx_rings.load(Ordering::Relaxed);
    if rings == 0 {
        return to_nobody(burst, cache, stats);
    }
    // Where the peer has fewer rings than we have queues, some share one.
    let at = if index < rings { index } else { index % rings };
    let Some(mut inside) = shared.tx[at].enter() else {
        return 0;
    };
    let Some(ring) = &mut *inside else {
        drop(inside);
        return to_nobody(burst, cache, stats);
    };
    let sent = ring.send(burst, cache, stats);
    stats.passed(sent.packets, sent.bytes);
    if sent.notify {
        shared.notify.notify(at);
    }
    if let Some(fault) = sent.fault {
        *inside = None;
        shared.report(fault);
    }
    sent.taken
}

#[cold]
fn to_nobody(burst: &mut Burst, cache: &mut PoolCache, stats: &QueueStats) -> usize {
    let count = burst.len();
    stats.dropped(DropReason::NoPeer, count as u64);
    cache.free(burst);
    count
}
