//! What follows when something has happened to a connection: its timer, its user, its end.

use linerate_core::run::Egress;
use linerate_wire::FlowKey;

use super::poll::interest;
use super::slots::{NIL, Slot, is};
use super::way::Way;
use super::{Stack, TICK_SHIFT};
use crate::tcp::connection::{Connection, Context, State, event};
use crate::tcp::time_wait::{Kind, Lingering};

/// Turns that a short frame waits: that of the round in which it was written, and the next.
const TURNS: u8 = 2;
/// Events that change more than what the user waits for.
const CHANGES: u16 = event::CONNECTED | event::CLOSED | event::TIME_WAIT | event::NO_CHUNKS;

/// The tick that a connection's timer is to be set to, if it is to fire earlier than it does: one
/// that fires too early is set anew.
#[inline(always)]
pub(super) fn new_tick(slot: &Slot, connection: &Connection) -> Option<u64> {
    let tick = (connection.deadline_ns()? >> TICK_SHIFT) + 1;
    (slot.timer == 0 || tick < slot.timer).then_some(tick)
}

/// Whether there is nothing that [`Stack::settle`] would do: it is so after most calls of users.
#[inline(always)]
pub(super) fn is_settled(slot: &Slot, connection: &Connection) -> bool {
    connection.has_no_events() && slot.is_warm() && new_tick(slot, connection).is_none()
}

impl Stack {
    /// Does something with a connection.
    #[inline]
    pub(super) fn with<R>(
        &mut self,
        index: u32,
        now_ns: u64,
        out: &mut Egress,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Way<'_>>) -> R,
    ) -> R {
        let (slot, connection) = self.slots.both(index);
        let mut way = Way::new(&mut self.host, out, slot, now_ns);
        let mut cx = Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut way,
        };
        work(connection, &mut cx)
    }

    pub(super) fn on_timer(&mut self, index: u32, now_ns: u64, out: &mut Egress) {
        let slot = &mut self.slots[index];
        slot.timer = 0;
        if slot.is & is::USED == 0 {
            return;
        }
        let due = self.slots.connection(index).deadline_ns();
        if due.is_some_and(|due| due <= now_ns) {
            self.with(index, now_ns, out, |connection, cx| connection.on_timer(cx));
        }
        self.settle(index, now_ns, out);
    }

    /// Notes that a connection is to be settled at the end of the burst.
    #[inline]
    pub(super) fn touch(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.is & is::TOUCHED == 0 {
            slot.is |= is::TOUCHED;
            self.touched.push(index);
        }
    }

    /// Sends and settles what was touched.
    #[inline]
    pub(super) fn settle_touched(&mut self, now_ns: u64, out: &mut Egress) {
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let slot = &mut self.slots[index];
            slot.is &= !is::TOUCHED;
            if slot.is & is::USED == 0 {
                continue;
            }
            self.with(index, now_ns, out, |connection, cx| connection.push(cx));
            self.settle(index, now_ns, out);
        }
        self.touched = touched;
    }

    /// Notes that a short frame waits behind long ones, for there was a write just now.
    pub(super) fn note_written(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        let waited = slot.waits();
        slot.set_waits(TURNS);
        if waited == 0 {
            self.written.push(index);
        }
    }

    /// Sends what waits, where nothing more was written since the last turn: a user that writes
    /// whenever there is room is called again before the next one.
    #[cold]
    pub(super) fn settle_written(&mut self, now_ns: u64, out: &mut Egress) {
        let mut written = std::mem::take(&mut self.written);
        written.retain(|&index| {
            let slot = &mut self.slots[index];
            slot.set_waits(slot.waits().saturating_sub(1));
            if slot.waits() > 0 {
                return true;
            }
            if slot.is & is::USED != 0 {
                self.with(index, now_ns, out, |connection, cx| connection.push_all(cx));
                self.settle(index, now_ns, out);
            }
            false
        });
        self.written = written;
    }

    /// Whether there are chunks again for those that found none.
    #[inline]
    pub(super) fn can_feed(&self) -> bool {
        !self.starved.is_empty() && self.shared.chunks.has_free()
    }

    /// A connection has found no chunk.
    #[cold]
    fn starve(&mut self, index: u32) {
        // Slots of connections that have ended since are in it, too.
        if self.starved.len() > 2 * self.slots.most() {
            let mut all = Vec::from(std::mem::take(&mut self.starved));
            all.sort_unstable();
            all.dedup();
            self.starved = all.into();
        }
        self.starved.push_back(index);
    }

    /// Tells as many of those that found no chunk as there are chunks: the first first.
    #[cold]
    pub(super) fn feed(&mut self, now_ns: u64, out: &mut Egress) {
        let chunks = &self.shared.chunks;
        let free = (chunks.count() - chunks.in_use()) as usize;
        for _ in 0..free.min(self.starved.len()) {
            let Some(index) = self.starved.pop_front() else {
                return;
            };
            // Its slot may be another one's by now, or nobody's.
            if self.slots.is_awake(index) {
                self.slots.connection(index).feed();
                self.settle(index, now_ns, out);
            }
        }
    }

    /// Looks at what has become of a connection.
    #[inline]
    pub(super) fn settle(&mut self, index: u32, now_ns: u64, out: &mut Egress) {
        let (slot, connection) = self.slots.both(index);
        let events = connection.take_events();
        if events & CHANGES != 0 {
            return self.settle_change(index, events, now_ns, out);
        }
        slot.events |= events;
        let is_wanted = interest::of_events(events) & slot.interest != 0;
        let is_ready = is_wanted && slot.is & (is::READY | is::QUEUED) == 0;
        if let Some(tick) = new_tick(slot, connection) {
            slot.timer = tick;
            self.due_ns = self.due_ns.min(tick << TICK_SHIFT);
            self.wheel.schedule(index, tick);
        }
        let rests = !slot.is_warm() && connection.is_quiet();
        if is_ready {
            self.make_ready(index);
        }
        if rests {
            self.slots.rest(index);
        }
    }

    /// The same, where its state has changed.
    #[inline(never)]
    fn settle_change(&mut self, index: u32, events: u16, now_ns: u64, out: &mut Egress) {
        self.on_change(index, events, now_ns, out);
        let slot = &mut self.slots[index];
        if slot.is & is::USED == 0 {
            return;
        }
        slot.events |= events;
        if interest::of_events(events) & slot.interest != 0 {
            self.make_ready(index);
        }
        // No event that is a change: this does the rest.
        self.settle(index, now_ns, out);
    }

    fn on_change(&mut self, index: u32, events: u16, now_ns: u64, out: &mut Egress) {
        if events & event::CONNECTED != 0 {
            self.on_connected(index, now_ns, out);
            if self.slots[index].is & is::USED == 0 {
                return; // the backlog is full: it is gone already
            }
        }
        if events & event::NO_CHUNKS != 0 {
            self.starve(index);
        }
        if events & event::TIME_WAIT != 0 {
            self.linger(index, now_ns);
        }
        if events & (event::CLOSED | event::TIME_WAIT) != 0 {
            self.slots.unindex(index);
            self.leave_listener(index);
            if self.slots[index].is & is::OWNED == 0 {
                self.free(index, now_ns, out);
            }
        }
    }

    /// A handshake is over: a connection of a listener waits to be accepted.
    fn on_connected(&mut self, index: u32, now_ns: u64, out: &mut Egress) {
        let slot = &mut self.slots[index];
        // A new connection takes the place of what lingered.
        match &slot.key {
            FlowKey::V4(key) if !self.lingering4.is_empty() => {
                self.lingering4.remove(key);
            }
            FlowKey::V6(key) if !self.lingering6.is_empty() => {
                self.lingering6.remove(key);
            }
            _ => {}
        }
        if slot.is & is::HALF_OPEN == 0 {
            return;
        }
        slot.is &= !is::HALF_OPEN;
        let listener_index = slot.listener;
        let Some(listener) = self.listeners.at(listener_index) else {
            return;
        };
        listener.half_open -= 1;
        if self.slots.connection(index).is_fast_passive() {
            // It waits already, or was accepted.
            listener.early -= 1;
            return;
        }
        if !listener.is_open || listener.waiting >= listener.listen.backlog {
            listener.refused += 1;
            self.stats.backlog_full += 1;
            self.with(index, now_ns, out, |connection, cx| connection.abort(cx));
            self.slots.unindex(index);
            return self.free(index, now_ns, out);
        }
        self.queue(index, listener_index);
    }

    /// Puts a connection behind those that wait to be accepted.
    pub(super) fn queue(&mut self, index: u32, listener_index: u32) {
        let Some(listener) = self.listeners.at(listener_index) else {
            return;
        };
        listener.waiting += 1;
        let tail = std::mem::replace(&mut listener.tail, index);
        match tail {
            NIL => listener.head = index,
            tail => self.slots[tail].next = index,
        }
        let slot = &mut self.slots[index];
        slot.is |= is::QUEUED | is::OWNED;
        slot.next = NIL;
        self.ready.listener(listener_index);
    }

    /// Takes a connection out of its listener's counts.
    fn leave_listener(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.is & is::HALF_OPEN != 0 {
            slot.is &= !is::HALF_OPEN;
            let listener = slot.listener;
            let is_early = self.slots.connection(index).is_fast_passive();
            if let Some(listener) = self.listeners.at(listener) {
                listener.half_open -= 1;
                listener.early -= u32::from(is_early);
            }
        }
    }

    /// A record takes over for twice the lifetime of segments.
    fn linger(&mut self, index: u32, now_ns: u64) {
        let (slot, connection) = self.slots.both(index);
        let facts = connection.lingering(Kind::TimeWait);
        slot.is |= is::LINGERED;
        self.due_ns = 0;
        // One that does not fit is forgotten: its 4-tuple is in use no more.
        let _ = match &slot.key {
            FlowKey::V4(key) => self.lingering4.insert(key, &facts, now_ns),
            FlowKey::V6(key) => self.lingering6.insert(key, &facts, now_ns),
        };
    }

    /// Frees a connection that nobody knows any more.
    pub(super) fn free(&mut self, index: u32, now_ns: u64, out: &mut Egress) {
        self.with(index, now_ns, out, |connection, cx| connection.release(cx));
        self.leave_listener(index);
        if std::mem::take(&mut self.slots[index].timer) != 0 {
            self.wheel.cancel(index);
        }
        self.forget_ready(index);
        self.slots.remove(index);
    }

    /// The user knows it no more: it goes on by itself until its end.
    pub(super) fn disown(&mut self, index: u32, now_ns: u64, out: &mut Egress) {
        let slot = &mut self.slots[index];
        slot.is &= !is::OWNED;
        slot.interest = 0;
        // Its id means nothing any more.
        slot.generation = slot.generation.wrapping_add(1);
        let lingers = slot.is & is::LINGERED == 0;
        let state = self.slots.state(index);
        if matches!(state, State::Closed | State::TimeWait) {
            if state == State::TimeWait && lingers {
                self.linger(index, now_ns);
            }
            self.slots.unindex(index);
            self.free(index, now_ns, out);
        }
    }
}

impl Connection {
    /// What a record in TIME-WAIT has to know.
    fn lingering(&self, kind: Kind) -> Lingering {
        let (snd_nxt, rcv_nxt, window, ts_recent) = self.last_words();
        Lingering {
            kind,
            snd_nxt,
            rcv_nxt,
            window,
            ts_recent,
        }
    }
}
