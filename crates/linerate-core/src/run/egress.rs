//! Where packets leave a worker: transmit queues, rings to other lcores, and counted drops.

use crate::packet::{Burst, Packet, PoolCache};
use crate::port::{Counter, TxQueue};
use crate::ring::{Push, RingMeter, spsc};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::doorbell::Doorbell;
use super::ledger::{Account, Holder};
use super::point::Point;

/// How packets get to one port.
pub enum TxPath {
    /// A transmit queue of this lcore's own.
    Queue(Box<dyn TxQueue>),
    /// A ring to the lcore that owns one, and what wakes that lcore.
    Ring(spsc::Producer<Packet>, Arc<Doorbell>),
}

struct Outlet {
    /// Its destination, for users.
    name: String,
    path: Option<TxPath>,
    /// What did not go at once, for the flush at the end of the round.
    pending: Burst,
    sent: Arc<Counter>,
    full: DropId,
    /// Packets that found it full for good.
    refused: u64,
    dirty: bool,
    /// Rounds after which it is flushed once more.
    settles_in: u8,
}

/// How far the rings to other lcores had been filled at one moment: by port.
pub struct Handed(Vec<(usize, RingMeter, u64)>);

/// Names a drop reason of one [`Egress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropId(usize);

/// A drop reason and how often it struck.
pub type DropCount = (String, Arc<Counter>);

/// Takes the packets that a pipeline is done with. A stage keeps a packet in the burst, sends it,
/// or drops it with a reason; each is counted.
pub struct Egress {
    outlets: Vec<Outlet>,
    drops: Vec<Arc<Counter>>,
    names: Arc<Mutex<Vec<DropCount>>>,
    no_outlet: DropId,
    /// Packets ever taken less those made by stages, for the books of the stages; it wraps.
    taken: u64,
    /// Whether anything was sent since the last flush.
    dirty: bool,
    /// Whether an outlet [settles](Self::settle) later.
    unsettled: bool,
    /// Packets that come to the pipeline, that it sends, and that are dropped.
    pipeline: Point,
    sent: Point,
    drop: Point,
    /// While a tap is set: the port that the current burst came by.
    came_by: Option<u16>,
    /// This lcore's free slots.
    pub cache: PoolCache,
}

impl Egress {
    /// An egress without outlets.
    pub fn new(cache: PoolCache) -> Self {
        let mut egress = Self {
            outlets: Vec::new(),
            drops: Vec::new(),
            names: Arc::default(),
            no_outlet: DropId(0),
            taken: 0,
            dirty: false,
            unsettled: false,
            pipeline: Point::new("pipeline"),
            sent: Point::new("sent"),
            drop: Point::new("drop"),
            came_by: None,
            cache,
        };
        egress.no_outlet = egress.reason("no_outlet");
        egress
    }

    /// Sets the path to a port; the old one, if any, comes back, its pending packets flushed or
    /// dropped.
    pub fn set_outlet(&mut self, port: u16, path: Option<TxPath>) -> Option<TxPath> {
        while self.outlets.len() <= usize::from(port) {
            let name = format!("port{}", self.outlets.len());
            let full = self.reason(&format!("tx_full.{name}"));
            self.outlets.push(Outlet {
                name,
                path: None,
                pending: Burst::new(),
                sent: Arc::default(),
                full,
                refused: 0,
                dirty: false,
                settles_in: 0,
            });
        }
        self.flush();
        let outlet = &mut self.outlets[usize::from(port)];
        std::mem::replace(&mut outlet.path, path)
    }

    /// Whether packets to a port can leave.
    pub fn has_outlet(&self, port: u16) -> bool {
        let outlet = self.outlets.get(usize::from(port));
        outlet.is_some_and(|outlet| outlet.path.is_some())
    }

    /// Sets the name of the path to a port: packets that it has no room for are counted as
    /// `tx_full.NAME`, not by an internal number. Another name is another counter. Set-up only.
    pub fn name_outlet(&mut self, port: u16, name: &str) {
        let full = self.reason(&format!("tx_full.{name}"));
        if let Some(outlet) = self.outlets.get_mut(usize::from(port)) {
            outlet.full = full;
            outlet.name = name.into();
        }
    }

    /// A drop reason to use with [`Egress::drop_burst`]; the same name gives the same counter.
    /// Set-up only.
    pub fn reason(&mut self, name: &str) -> DropId {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = names.iter().position(|(known, _)| known == name) {
            return DropId(index);
        }
        let counter = Arc::new(Counter::default());
        names.push((name.into(), counter.clone()));
        self.drops.push(counter);
        DropId(self.drops.len() - 1)
    }

    /// What a drop reason is called. It takes a lock: not for the hot path.
    pub fn reason_name(&self, reason: DropId) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names
            .get(reason.0)
            .map_or_else(String::new, |(name, _)| name.clone())
    }

    /// The drop reasons and their counters, for other threads to read.
    pub fn drop_counts(&self) -> Arc<Mutex<Vec<DropCount>>> {
        self.names.clone()
    }

    /// Packets sent to a port so far, by this lcore.
    pub fn sent(&self, port: u16) -> u64 {
        self.outlets
            .get(usize::from(port))
            .map_or(0, |outlet| outlet.sent.read())
    }

    /// Sends all packets of a burst to a port. What its queue does not take now is tried again at
    /// the end of the round, and then dropped and counted.
    #[inline]
    pub fn send(&mut self, port: u16, burst: &mut Burst) {
        self.send_for::<true>(port, burst);
    }

    /// Sends what another lcore's pipeline has sent already: it is in the books of that one.
    #[inline]
    pub(super) fn pass_on(&mut self, port: u16, burst: &mut Burst) {
        self.send_for::<false>(port, burst);
    }

    #[inline(always)]
    fn send_for<const OWN: bool>(&mut self, port: u16, burst: &mut Burst) {
        let Some(outlet) = self.outlets.get_mut(usize::from(port)) else {
            if !OWN {
                self.taken = self.taken.wrapping_sub(burst.len() as u64);
            }
            return self.drop_burst(self.no_outlet, burst);
        };
        if OWN {
            self.taken = self.taken.wrapping_add(burst.len() as u64);
            self.sent.see_burst(port, burst);
        }
        (outlet.dirty, self.dirty) = (true, true);
        if outlet.pending.is_empty() {
            outlet.transmit_from(burst, &mut self.cache);
        }
        if !burst.is_empty() {
            self.postpone(port, burst);
        }
    }

    /// Keeps what was refused, dropping what is too much.
    #[cold]
    fn postpone(&mut self, port: u16, burst: &mut Burst) {
        let at = usize::from(port);
        burst.move_front(burst.len(), &mut self.outlets[at].pending);
        while !burst.is_empty() {
            if self.outlets[at].transmit(&mut self.cache) == 0 {
                self.refuse(at, burst);
            }
            burst.move_front(burst.len(), &mut self.outlets[at].pending);
        }
    }

    /// Drops what an outlet has no room for, and what was taken as sent.
    #[cold]
    fn refuse(&mut self, at: usize, burst: &mut Burst) {
        let (packets, outlet) = (burst.len() as u64, &mut self.outlets[at]);
        outlet.refused += packets;
        let reason = outlet.refusal(self.no_outlet);
        self.taken = self.taken.wrapping_sub(packets);
        self.drop_burst(reason, burst);
    }

    /// Sends one packet to a port, together with its like at the end of the round.
    #[inline]
    pub fn send_one(&mut self, port: u16, packet: Packet) {
        let Some(outlet) = self.outlets.get_mut(usize::from(port)) else {
            return self.drop_one(self.no_outlet, packet);
        };
        self.sent.see_one(port, &packet);
        (outlet.dirty, self.dirty) = (true, true);
        if outlet.pending.room() == 0 && outlet.transmit(&mut self.cache) == 0 {
            outlet.refused += 1;
            let reason = outlet.refusal(self.no_outlet);
            return self.drop_one(reason, packet);
        }
        self.taken = self.taken.wrapping_add(1);
        if let Err(packet) = outlet.pending.push(packet) {
            self.cache.free_one(packet);
        }
    }

    /// Drops all packets of a burst for a reason.
    #[inline]
    pub fn drop_burst(&mut self, reason: DropId, burst: &mut Burst) {
        self.taken = self.taken.wrapping_add(burst.len() as u64);
        self.drops[reason.0].add(burst.len() as u64);
        self.drop.packets += burst.len() as u64;
        if self.drop.is_watched() {
            let name = self.reason_name(reason);
            for packet in burst.iter() {
                self.show_dropped(&name, packet);
            }
        }
        self.cache.free(burst);
    }

    /// Drops one packet for a reason.
    #[inline]
    pub fn drop_one(&mut self, reason: DropId, packet: Packet) {
        self.taken = self.taken.wrapping_add(1);
        self.drops[reason.0].add(1);
        self.drop.packets += 1;
        if self.drop.is_watched() {
            let name = self.reason_name(reason);
            self.show_dropped(&name, &packet);
        }
        self.cache.free_one(packet);
    }

    /// Shows a dropped packet to taps: for a stage that frees slots itself and
    /// [counts](Self::count_drops) them later.
    #[cold]
    pub fn show_dropped(&mut self, reason: &str, packet: &Packet) {
        let port = self.came_by.unwrap_or(packet.port());
        self.drop.show_dropped(reason, port, packet);
    }

    /// Takes a packet that has done all that it came for: it is neither sent nor dropped.
    #[inline]
    pub fn consume_one(&mut self, packet: Packet) {
        self.taken = self.taken.wrapping_add(1);
        self.cache.free_one(packet);
    }

    /// Takes note of packets that a stage has made, so that the books of its point do not show more
    /// that went than came.
    #[inline]
    pub fn made(&mut self, packets: u64) {
        self.taken = self.taken.wrapping_sub(packets);
    }

    /// The same of packets whose slots a stage has freed itself, having done all that they came
    /// for, such as fragments of a datagram that has become whole.
    #[inline]
    pub fn consumed(&mut self, packets: u64) {
        self.taken = self.taken.wrapping_add(packets);
    }

    /// Counts packets as dropped whose slots a stage has freed itself, such as fragments of a
    /// datagram that it gave up.
    #[inline]
    pub fn count_drops(&mut self, reason: DropId, packets: u64) {
        self.taken = self.taken.wrapping_add(packets);
        self.drops[reason.0].add(packets);
        self.drop.packets += packets;
    }

    /// Ends the round: pending packets are sent or dropped, devices kicked, lcores woken.
    #[inline]
    pub fn flush(&mut self) {
        self.dirty = false;
        for at in 0..self.outlets.len() {
            let outlet = &mut self.outlets[at];
            if !outlet.dirty {
                continue;
            }
            if !outlet.pending.is_empty() {
                outlet.transmit(&mut self.cache);
                if !outlet.pending.is_empty() {
                    let mut pending = std::mem::take(&mut outlet.pending);
                    self.refuse(at, &mut pending);
                }
            }
            self.outlets[at].finish(&mut self.cache);
            self.unsettled = true;
        }
        self.came_by = None;
    }

    /// Ends a round. A queue that was flushed in the round before and got nothing in this one is
    /// flushed again, however busy the others are: right behind packets it may be too early to see
    /// whether a peer that has just gone to sleep has to be notified of them.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        for outlet in &mut self.outlets {
            match (outlet.settles_in, &mut outlet.path) {
                (0, _) => continue,
                (1, Some(TxPath::Queue(queue))) => {
                    queue.flush(&mut self.cache);
                    if queue.due_in().is_some() {
                        // It keeps packets for a time, and sends them only when it is flushed.
                        self.unsettled = true;
                        continue;
                    }
                }
                (1, _) => {}
                _ => self.unsettled = true,
            }
            outlet.settles_in -= 1;
        }
    }

    /// Flushes if anything was sent since the last flush.
    #[inline(always)]
    pub(super) fn flush_sent(&mut self) {
        if self.dirty {
            self.flush();
        }
    }

    /// Takes completions back from all queues; for idle rounds. No lcore is woken: the
    /// [`flush`](Self::flush) after each put has rung, and two idle lcores that rang each other
    /// without need would keep each other awake.
    pub fn reclaim(&mut self) {
        for outlet in &mut self.outlets {
            if let Some(TxPath::Queue(queue)) = &mut outlet.path {
                queue.flush(&mut self.cache);
            }
        }
    }

    /// How long until a transmit queue has to be flushed because of packets that it keeps for a
    /// time; `None` where none does.
    pub fn due_in(&self) -> Option<Duration> {
        let due_in = |outlet: &Outlet| match &outlet.path {
            Some(TxPath::Queue(queue)) => queue.due_in(),
            _ => None,
        };
        self.outlets.iter().filter_map(due_in).min()
    }

    /// What has been handed to other lcores so far.
    pub fn handed(&self) -> Handed {
        let meter = |(port, ring): (usize, &spsc::Producer<Packet>)| {
            let meter = ring.meter();
            let filled = meter.read().enqueued;
            (port, meter, filled)
        };
        Handed(self.rings().map(meter).collect())
    }

    /// Whether the lcores behind all rings have taken what had been handed to them then. One that
    /// has ended takes nothing more, so it is not waited for.
    pub fn is_taken(&self, handed: &Handed) -> bool {
        handed.0.iter().all(|(port, meter, filled)| {
            meter.read().dequeued >= *filled || !self.rings().any(|(known, _)| known == *port)
        })
    }

    /// Packets that ever went into the rings to lcores that still run.
    pub(super) fn handed_total(&self) -> u64 {
        self.handed().0.iter().map(|(_, _, filled)| filled).sum()
    }

    /// Whether an outlet is the ring to an lcore that has ended.
    pub fn has_ended(&self, port: u16) -> bool {
        let outlet = self.outlets.get(usize::from(port));
        let path = outlet.and_then(|outlet| outlet.path.as_ref());
        matches!(path, Some(TxPath::Ring(ring, _)) if ring.is_closed())
    }

    /// The rings to lcores that still run, by port.
    fn rings(&self) -> impl Iterator<Item = (usize, &spsc::Producer<Packet>)> {
        let outlets = self.outlets.iter().enumerate();
        outlets.filter_map(|(port, outlet)| match &outlet.path {
            Some(TxPath::Ring(ring, _)) if !ring.is_closed() => Some((port, ring)),
            _ => None,
        })
    }

    /// Packets ever taken from stages, less those that they made.
    #[inline(always)]
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// A burst comes to the pipeline: what [`leave`](Self::leave) wants to know.
    #[inline(always)]
    pub(super) fn enter(&mut self, burst: &Burst, is_from_port: bool) -> u64 {
        self.pipeline.packets += burst.len() as u64;
        match self.pipeline.is_watched() | self.drop.is_watched() {
            true => self.show_entering(burst, is_from_port),
            false => 0,
        }
    }

    #[cold]
    fn show_entering(&mut self, burst: &Burst, is_from_port: bool) -> u64 {
        // A packet from another lcore came by a port that only its metadata may have.
        self.came_by = is_from_port.then_some(burst.port);
        match self.pipeline.is_watched() {
            true => self.pipeline.begin(burst.mask(), burst),
            false => 0,
        }
    }

    /// The pipeline has done with a burst of so many packets.
    #[inline(always)]
    pub(super) fn leave(&mut self, began: u64, packets: u64) {
        if self.pipeline.is_watched() {
            self.pipeline.end(began, packets);
        }
    }

    /// The points of what is sent, and of what is dropped.
    pub fn points(&mut self) -> [&mut Point; 2] {
        [&mut self.sent, &mut self.drop]
    }

    /// The point of the pipeline as a whole. `held`: packets that its stages keep, `known`: those
    /// that a stage is known to have lost.
    pub(super) fn pipeline(&mut self, held: u64, known: i64) -> &mut Point {
        let left = self.pipeline.packets.wrapping_sub(self.taken);
        self.pipeline.unaccounted = left.wrapping_sub(held) as i64 - known;
        &mut self.pipeline
    }

    /// For the ledger: what each outlet took less what came back, and the pipeline, whose stages
    /// hold so many slots. Its point is as [`pipeline`](Self::pipeline) has left it.
    pub(super) fn accounts(&self, worker: &str, slots: u64) -> Vec<Account> {
        let refused: u64 = self.outlets.iter().map(|outlet| outlet.refused).sum();
        let outlets = (0..).zip(&self.outlets);
        let outlets = outlets.filter_map(|(port, outlet)| {
            let (sent, name) = (outlet.sent.read(), &outlet.name);
            let mut account = match outlet.path.as_ref()? {
                TxPath::Queue(queue) => Account {
                    port: Some(port),
                    held: queue.held(),
                    ..Account::of(Holder::TxQueue, format!("{worker}: queue to {name}"))
                },
                // The other end counts what comes out. `sent` is not usable, since it continues
                // when another ring replaces this one.
                TxPath::Ring(ring, _) => Account {
                    passed: ring.meter().read().enqueued as i64,
                    ..Account::of(Holder::Ring, format!("{worker}: ring to {name}"))
                },
            };
            account.held += outlet.pending.len() as i64;
            account.sent = sent;
            account.dropped = outlet.refused;
            Some(account)
        });
        let pipeline = Account {
            held: slots as i64,
            received: self.pipeline.packets,
            sent: self.sent.packets,
            dropped: self.drop.packets - refused,
            lost: self.pipeline.unaccounted,
            ..Account::of(Holder::Pipeline, format!("{worker}: pipeline"))
        };
        outlets.chain([pipeline]).collect()
    }
}

/// Puts packets from the front of a burst into a path. How many.
#[inline(always)]
fn put(path: &mut Option<TxPath>, burst: &mut Burst, cache: &mut PoolCache) -> usize {
    match path {
        Some(TxPath::Queue(queue)) => queue.tx_burst(burst, cache),
        Some(TxPath::Ring(ring, _)) => ring.push_burst(burst),
        None => 0,
    }
}

impl Outlet {
    /// The drop reason of packets that were not taken: a number below the highest may have no path,
    /// such as that of a removed port.
    #[cold]
    fn refusal(&self, no_outlet: DropId) -> DropId {
        match self.path {
            Some(_) => self.full,
            None => no_outlet,
        }
    }

    /// Sends from the front of the burst, straight into the queue.
    #[inline(always)]
    fn transmit_from(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let sent = put(&mut self.path, burst, cache);
        self.sent.add(sent as u64);
        sent
    }

    /// The same of what is pending, where it lies: a burst is 256 bytes, and copying it away and
    /// back cost more than all else here.
    #[inline]
    fn transmit(&mut self, cache: &mut PoolCache) -> usize {
        let sent = put(&mut self.path, &mut self.pending, cache);
        self.sent.add(sent as u64);
        sent
    }

    #[inline(always)]
    fn finish(&mut self, cache: &mut PoolCache) {
        (self.dirty, self.settles_in) = (false, 2);
        match &mut self.path {
            Some(TxPath::Queue(queue)) => queue.flush(cache),
            Some(TxPath::Ring(_, doorbell)) => doorbell.ring(),
            None => {}
        }
    }
}
