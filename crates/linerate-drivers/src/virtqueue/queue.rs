//! A virtqueue as a receive or transmit queue of a port: the worker's end, and what control puts in
//! and takes out.

use super::Look;
use super::active::Active;
use super::frames::{Receiving, Shape, Transmitting};
use super::gauge::{Gauge, Posted};
use super::memory::Memory;
use crate::offload::{self, Finisher};
use crate::peer::exposed::ExposedPools;
use crate::peer::gate::Gate;
use crate::peer::kick::{self, Wakeups};
use crate::peer::violations::Violation;
use linerate_core::mem::Untrusted;
use linerate_core::packet::{Burst, Offload, PoolCache, Pools};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use linerate_wire::MacAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the worker of a queue and control have in turns.
#[derive(Debug, Default)]
struct State {
    /// `None` while there is no peer, or it has not set the queue up.
    active: Option<Active>,
    /// The peer broke a rule: the queue rests until control has cut it off.
    broken: Option<Violation>,
}

/// What there is of a queue for those who look at it.
#[derive(Debug)]
pub(super) struct Shown {
    gauge: Gauge,
    pub(super) memory: Arc<Memory>,
    /// What else the ring is lost with.
    files: Vec<Arc<Untrusted>>,
    pools: Option<ExposedPools>,
}

impl Shown {
    fn is_lost(&self) -> bool {
        self.memory.is_lost()
            || self.files.iter().any(|file| file.is_lost())
            || self.pools.as_ref().is_some_and(ExposedPools::is_lost)
    }
}

/// One virtqueue of a port.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Gate<State>,
    /// A worker found its peer to break a rule; which one is in the state.
    broken: AtomicBool,
    /// Where the worker's ring stands after its last burst.
    posted: Posted,
    /// No worker takes this: whoever looks holds none up.
    shown: Mutex<Option<Shown>>,
    /// Wakes control.
    bell: Arc<OwnedFd>,
    /// An address to announce in a frame of its own (SEND_RARP), in the low 48 bits; 0: none.
    announce: AtomicU64,
}

impl Queue {
    pub(crate) fn new(bell: Arc<OwnedFd>) -> Self {
        Self {
            state: Gate::new(State::default()),
            broken: AtomicBool::new(false),
            posted: Posted::default(),
            shown: Mutex::new(None),
            bell,
            announce: AtomicU64::new(0),
        }
    }

    /// Lets the worker receive a frame that announces where a station is now.
    pub(crate) fn announce(&self, mac: MacAddr) {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&mac.0);
        self.announce
            .store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }

    /// Gives the worker a ring, unless it rests until it is cut off. `first` is done inside the
    /// gate.
    pub(crate) fn put(
        &self,
        active: Active,
        first: impl FnOnce(&mut Active) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut state = self.state.change();
        if state.broken.is_some() {
            return Ok(());
        }
        let active = state.active.insert(active);
        let done = first(active);
        let ring = active.ring.as_dyn();
        self.posted.set(ring.standing());
        let shown = Shown {
            gauge: ring.gauge(),
            memory: active.memory.clone(),
            files: active.ring.files(),
            pools: active.ring.pools(),
        };
        drop(state);
        *self.shown() = Some(shown);
        done
    }

    /// Takes the ring from its worker, who has nothing of it any more.
    pub(crate) fn take(&self) -> Option<Active> {
        let active = self.state.change().active.take();
        *self.shown() = None;
        active
    }

    /// Takes the ring, and forgets that the peer broke a rule.
    pub(crate) fn rest(&self) {
        let mut state = self.state.change();
        *state = State::default();
        self.broken.store(false, Ordering::Relaxed);
        drop(state);
        *self.shown() = None;
    }

    /// For control: what the worker found its peer to break.
    pub(crate) fn broken(&self) -> Option<Violation> {
        match self.broken.load(Ordering::Relaxed) {
            false => None,
            true => self.state.change().broken, // the queue rests
        }
    }

    /// What a look holds while it lasts.
    pub(super) fn shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the worker has a ring.
    pub(crate) fn is_active(&self) -> bool {
        self.shown().is_some()
    }

    /// Whether a file became shorter that the ring stands on, or a pool that the device maps lost
    /// pages.
    pub(crate) fn is_lost(&self) -> bool {
        self.shown().as_ref().is_some_and(Shown::is_lost)
    }

    /// How full the ring is: chains that wait, of how many.
    pub(crate) fn fill(&self) -> Option<[u16; 2]> {
        let shown = self.shown();
        let Shown { gauge, memory, .. } = shown.as_ref()?;
        Some([gauge.fill(memory, &self.posted), gauge.size()])
    }

    /// Slots of ours that the other side has. For the queue's own worker: it takes the gate, so
    /// that the ledger sees slots of a new ring that are lent either here or where they were.
    fn held(&self) -> usize {
        let state = self.state.change();
        state.active.as_ref().map_or(0, |active| active.ring.held())
    }

    #[cold]
    fn broke(&self, state: &mut State, violation: Violation) {
        state.broken = Some(violation);
        self.broken.store(true, Ordering::Relaxed);
        kick::ring(&self.bell);
    }
}

impl State {
    #[inline(always)]
    fn usable(&mut self) -> Option<&mut Active> {
        match self.broken {
            None => self.active.as_mut(),
            Some(_) => None,
        }
    }
}

/// A receive queue.
pub(crate) struct Receiver {
    queue: Arc<Queue>,
    wakeups: Arc<Wakeups>,
    receiving: Receiving,
    /// The other side was asked to notify.
    asked: bool,
    /// The other side has slots of ours.
    lends: bool,
}

impl Receiver {
    pub(crate) fn new(
        queue: Arc<Queue>,
        wakeups: Arc<Wakeups>,
        index: u16,
        (pools, lends): (&Pools, bool),
        stats: Arc<QueueStats>,
    ) -> Self {
        let shape = Shape {
            header_bytes: 12,
            mergeable: false,
            device: true,
        };
        Self {
            queue,
            wakeups,
            receiving: Receiving::new(shape, index, pools, stats),
            asked: false,
            lends,
        }
    }

    /// RFC 903: the frame by which switches learn where a migrated guest is.
    #[cold]
    fn announced(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let [mac @ .., _, _] = self.queue.announce.swap(0, Ordering::Relaxed).to_le_bytes();
        let frame = rarp(mac);
        let packet = match burst.room() {
            0 => None,
            _ => cache.copy_of(&frame),
        };
        let Some(mut packet) = packet else {
            return 0; // others follow: the guest announces itself more than once
        };
        packet.set_port(self.receiving.index);
        packet.meta_mut().timestamp = burst.now;
        let pushed = burst.push(packet);
        debug_assert!(pushed.is_ok(), "the burst had room");
        self.receiving.stats.passed(1, frame.len() as u64);
        1
    }
}

/// A RARP request for one's own address, broadcast.
fn rarp(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    let parts: [&[u8]; 8] = [
        &[0xff; 6],
        &mac,
        &[0x80, 0x35],
        &[0, 1, 8, 0, 6, 4, 0, 3],
        &mac,
        &[0; 4],
        &mac,
        &[0; 4],
    ];
    let mut at = 0;
    for part in parts {
        frame[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    frame
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if self.queue.announce.load(Ordering::Relaxed) != 0 {
            return self.announced(burst, cache);
        }
        let Some(mut state) = self.queue.state.enter() else {
            return 0;
        };
        let before = burst.len();
        let Some(active) = state.usable() else {
            return 0;
        };
        match active.receive(&mut self.receiving, burst, cache, &self.queue.posted) {
            Ok(count) => {
                // Before it sleeps, a worker looks once more: the wish stays if nothing came.
                if count > 0 && std::mem::take(&mut self.asked) {
                    active.ring.as_dyn().want(&active.memory, false);
                }
                // An empty burst follows before whoever calls this sleeps.
                let look = if count > 0 { Look::Early } else { Look::Late };
                active.notify(look);
                count
            }
            Err(violation) => {
                while burst.len() > before {
                    let _ = burst.pop().map(|packet| cache.free_one(packet));
                }
                self.queue.broke(&mut state, violation);
                0
            }
        }
    }

    fn sleep_on(&mut self) -> SleepOn {
        let Some(mut state) = self.queue.state.enter() else {
            return SleepOn::Nothing;
        };
        self.wakeups.clear();
        if let Some(active) = state.usable() {
            active.notify(Look::Late);
            let ring = active.ring.as_dyn();
            ring.want(&active.memory, true);
            self.asked = true;
            if ring.is_waiting(&active.memory) {
                return SleepOn::Nothing; // a nap at most: the next burst finds it
            }
        }
        SleepOn::Fd(self.wakeups.descriptor())
    }

    fn held(&self) -> i64 {
        if self.lends {
            self.queue.held() as i64
        } else {
            0
        }
    }
}

/// A transmit queue.
pub(crate) struct Sender {
    /// Of all pairs: where the peer does not use this one's own, the first takes its frames.
    queues: Vec<Arc<Queue>>,
    own: usize,
    sending: Transmitting,
    finisher: Finisher,
    stats: Arc<QueueStats>,
    /// The other side has slots of ours.
    lends: bool,
    /// Where frames went since the last [`flush`](TxQueue::flush).
    sent_to: Option<usize>,
    /// Where they went before it.
    unsettled: Option<usize>,
}

impl Sender {
    pub(crate) fn new(
        queues: Vec<Arc<Queue>>,
        own: usize,
        most: usize,
        (pools, lends): (&Pools, bool),
        stats: Arc<QueueStats>,
    ) -> Self {
        let shape = Shape {
            header_bytes: 12,
            mergeable: false,
            device: true,
        };
        Self {
            queues,
            own,
            sending: Transmitting::new(shape, most, stats.clone()),
            finisher: Finisher::new(pools),
            stats,
            lends,
            sent_to: None,
            unsettled: None,
        }
    }

    /// In a round in which nothing was sent: takes slots back, and looks whether the other side,
    /// which may have gone to sleep just before the last frames came, has to be notified.
    #[cold]
    fn settle(&mut self, cache: &mut PoolCache) {
        let queue = &self.queues[self.unsettled.unwrap_or(self.own)];
        let Some(mut state) = queue.state.enter() else {
            return; // the next round is soon enough
        };
        self.unsettled = None;
        let settled = state.usable().map(|active| {
            active.notify(Look::Late);
            active.reclaim(cache, &queue.posted)
        });
        if let Some(Err(violation)) = settled {
            queue.broke(&mut state, violation);
        }
    }
}

impl TxQueue for Sender {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let Self {
            queues,
            own,
            sending,
            finisher,
            stats,
            sent_to,
            ..
        } = self;
        let mut at = *own;
        let mut queue = &queues[at];
        let Some(mut state) = queue.state.enter() else {
            return 0;
        };
        if state.usable().is_none() && *own > 0 {
            at = 0;
            queue = &queues[at];
            drop(state);
            state = match queue.state.enter() {
                Some(state) => state,
                None => return 0,
            };
        }
        let Some(active) = state.usable() else {
            return finisher.tx(burst, cache, stats, |burst, cache| {
                let count = burst.len();
                stats.dropped(DropReason::LinkDown, count as u64);
                cache.free(burst);
                count
            });
        };
        let mut duties = offload::duties();
        duties.remove(active.takes);
        let mut violation = None;
        let mut send = |burst: &mut Burst, cache: &mut PoolCache| {
            let sent = active.transmit(sending, burst, cache, &queue.posted);
            sent.unwrap_or_else(|broken| {
                violation = Some(broken);
                0
            })
        };
        let taken = if finisher.held() > 0 || offload::any(burst, duties) {
            finisher.tx(burst, cache, stats, send)
        } else {
            send(burst, cache)
        };
        active.notify(Look::Early);
        if taken > 0 {
            *sent_to = Some(at);
        }
        if let Some(violation) = violation {
            queue.broke(&mut state, violation);
        }
        taken
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if self.finisher.held() > 0 {
            self.tx_burst(&mut Burst::with_room(0), cache);
        }
        match self.sent_to.take() {
            Some(at) => self.unsettled = Some(at),
            None if self.unsettled.is_some() || self.lends => self.settle(cache),
            None => {}
        }
    }

    /// Rings that several queues share are those of the first of them.
    fn held(&self) -> i64 {
        let lent = if self.lends {
            self.queues[self.own].held()
        } else {
            0
        };
        self.finisher.held() + lent as i64
    }
}

/// What of a frame the other side finishes, by the features for what it gets: checksums, TCP over
/// IPv4, over IPv6, UDP.
pub(crate) fn takes([checksum, tcp4, tcp6, udp]: [bool; 4]) -> Offload {
    let mut takes = Offload::NONE;
    for (agreed, offload) in [
        (checksum, Offload::CSUM_PARTIAL),
        (checksum && tcp4, Offload::GSO_TCP4),
        (checksum && tcp6, Offload::GSO_TCP6),
        (checksum && udp, Offload::GSO_UDP),
    ] {
        if agreed {
            takes.insert(offload);
        }
    }
    takes
}
