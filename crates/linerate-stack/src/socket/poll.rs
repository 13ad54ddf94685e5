//! Which sockets are ready, as epoll says it: level, edge and one-shot.

use std::collections::VecDeque;

use super::Stack;
use super::listener::ListenerId;
use super::slots::{NIL, Slot, SocketId, is};
use crate::tcp::connection::{Connection, Shared, event};

/// What one wants to know of a socket, and what an [`Event`] says: bits.
pub mod interest {
    use crate::tcp::connection::event;

    /// There is something to read, or its end; a listener has a connection.
    pub const READ: u8 = 1;
    /// There is room to write; a connection that was opened here is connected.
    pub const WRITE: u8 = 2;
    /// The peer sends no more.
    pub const HANG_UP: u8 = 4;
    /// It has ended by an error. Always told.
    pub const ERROR: u8 = 8;
    /// Told once for each time that it happens, not as long as it is so.
    pub const EDGE: u8 = 16;
    /// Told once; then nothing, until it is asked for anew.
    pub const ONE_SHOT: u8 = 32;
    /// There is urgent data (Linux: EPOLLPRI).
    pub const URGENT: u8 = 64;
    /// A report (RFC 9293 3.9.1.8: ERROR_REPORT): nothing is answered, as many retransmissions as
    /// R1 went in vain and more follow (3.8.3); or there is a [soft error], which is ready until it
    /// is taken. Told to those who ask for it.
    ///
    /// [soft error]: crate::socket::Io::take_soft_error
    pub const REPORT: u8 = 128;

    /// Those that events of a connection are of.
    #[inline(always)]
    pub(crate) fn of_events(events: u16) -> u8 {
        OF_EVENTS[usize::from(events) % OF_EVENTS.len()]
    }

    /// By the events that there are.
    const OF_EVENTS: [u8; 1024] = {
        let mut all = [0; 1024];
        let mut events = 0;
        while events < all.len() as u16 {
            let mut found = 0;
            if events & (event::READABLE | event::PEER_CLOSED | event::CLOSED) != 0 {
                found |= READ;
            }
            if events & (event::WRITABLE | event::CONNECTED) != 0 {
                found |= WRITE;
            }
            if events & (event::PEER_CLOSED | event::CLOSED) != 0 {
                found |= HANG_UP;
            }
            if events & event::ERROR != 0 {
                found |= ERROR;
            }
            if events & event::URGENT != 0 {
                found |= URGENT;
            }
            if events & (event::UNANSWERED | event::SOFT_ERROR) != 0 {
                found |= REPORT;
            }
            all[events as usize] = found;
            events += 1;
        }
        all
    };
}

/// What is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection.
    Connection(SocketId),
    /// A listener.
    Listener(ListenerId),
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which.
    pub source: Source,
    /// The user's own word.
    pub token: u64,
    /// For what: bits of [`interest`].
    pub ready: u8,
}

impl Event {
    /// Of no socket, for nothing: what room for events starts with.
    pub const EMPTY: Self = Self {
        source: Source::Connection(SocketId {
            slot: NIL,
            generation: 0,
        }),
        token: 0,
        ready: 0,
    };
}

impl Default for Event {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Those that are ready.
pub(super) struct Ready {
    head: u32,
    tail: u32,
    len: usize,
    listeners: VecDeque<u32>,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
            listeners: VecDeque::new(),
        }
    }
}

impl Ready {
    pub(super) fn listener(&mut self, index: u32) {
        if !self.listeners.contains(&index) {
            self.listeners.push_back(index);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL && self.listeners.is_empty()
    }
}

/// What a connection is ready for now, of what is wanted: nobody pays for what he did not ask.
#[inline(always)]
fn readiness(connection: &Connection, shared: &Shared, wanted: u8) -> u8 {
    let mut ready = 0;
    if connection.readable() > 0 || connection.is_at_end() {
        ready |= interest::READ;
    }
    if wanted & !(interest::READ | interest::ERROR | interest::EDGE | interest::ONE_SHOT) != 0 {
        ready |= more_readiness(connection, shared);
    }
    if connection.error().is_some() {
        ready |= interest::ERROR | interest::WRITE | interest::READ;
    }
    ready & wanted
}

/// The same of what not every reader asks for.
#[inline]
fn more_readiness(connection: &Connection, shared: &Shared) -> u8 {
    let mut ready = 0;
    let is_open = connection.state().is_synchronized() || connection.is_open_early();
    // Who found no chunk would find none again: it is told when there are some.
    if is_open && connection.writable() > 0 && !connection.lacks_chunks() {
        ready |= interest::WRITE;
    }
    if connection.has_hung_up() {
        ready |= interest::HANG_UP;
    }
    if connection.has_urgent(shared) {
        ready |= interest::URGENT;
    }
    if connection.is_unanswered(&shared.config) || connection.has_soft_error() {
        ready |= interest::REPORT;
    }
    ready
}

/// Who waits for room is told of it whether or not a write has met its end.
#[inline(always)]
fn want_room(slot: &Slot, connection: &mut Connection) {
    if slot.interest & interest::WRITE != 0 && connection.writable() == 0 {
        connection.want_room();
    }
}

impl Stack {
    /// Puts a connection behind those that are ready. One that waits to be accepted is in another
    /// list, and comes here when it is accepted.
    #[inline]
    pub(super) fn make_ready(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.is & (is::READY | is::QUEUED) != 0 {
            return;
        }
        slot.is |= is::READY;
        (slot.prev, slot.next) = (self.ready.tail, NIL);
        match self.ready.tail {
            NIL => self.ready.head = index,
            tail => self.slots[tail].next = index,
        }
        self.ready.tail = index;
        self.ready.len += 1;
    }

    fn next_ready(&mut self) -> Option<u32> {
        let index = self.ready.head;
        (index != NIL).then(|| self.forget_ready(index))?;
        Some(index)
    }

    /// Takes one out that is in the list, or is not: it is freed, or looked at.
    pub(super) fn forget_ready(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.is & is::READY == 0 {
            return;
        }
        slot.is &= !is::READY;
        let next = std::mem::replace(&mut slot.next, NIL);
        let prev = std::mem::replace(&mut slot.prev, NIL);
        match prev {
            NIL => self.ready.head = next,
            prev => self.slots[prev].next = next,
        }
        match next {
            NIL => self.ready.tail = prev,
            next => self.slots[next].prev = prev,
        }
        self.ready.len -= 1;
    }

    /// Sets what one wants to know of a connection, and the word that comes with it.
    pub(super) fn set_interest(&mut self, index: u32, wanted: u8, token: u64) {
        let slot = &mut self.slots[index];
        (slot.interest, slot.token) = (wanted | interest::ERROR, token);
        // What is so already is an edge to one that asks now.
        slot.events = u16::MAX;
        let (slot, connection) = self.slots.both(index);
        want_room(slot, connection);
        if readiness(connection, &self.shared, slot.interest) != 0 {
            self.make_ready(index);
        }
    }

    /// Writes what is ready into `events`, in the order in which it became so; returns how many.
    pub(super) fn poll(&mut self, events: &mut [Event]) -> usize {
        let mut count = 0;
        for _ in 0..self.ready.listeners.len() {
            if count == events.len() {
                return count;
            }
            let Some(index) = self.ready.listeners.pop_front() else {
                break;
            };
            let Some(listener) = self.listeners.at(index) else {
                continue;
            };
            if listener.waiting == 0 || !listener.is_open {
                continue;
            }
            let generation = listener.generation;
            events[count] = Event {
                source: Source::Listener(ListenerId { index, generation }),
                token: listener.listen.token,
                ready: interest::READ,
            };
            count += 1;
            // As long as somebody waits it is ready.
            self.ready.listeners.push_back(index);
        }
        // Those that become ready again meanwhile come next time.
        let mut waiting = self.ready.len;
        while waiting > 0
            && count < events.len()
            && let Some(index) = self.next_ready()
        {
            waiting -= 1;
            let (slot, connection) = self.slots.both(index);
            let wanted = slot.interest;
            let happened = std::mem::take(&mut slot.events);
            let now = readiness(connection, &self.shared, wanted);
            // As Linux: whatever has happened, all is told that is so now.
            let is_news = now & interest::of_events(happened | event::ERROR) != 0;
            let ready = match wanted & interest::EDGE == 0 || is_news {
                true => now,
                false => 0,
            };
            if ready & interest::WRITE == 0 {
                want_room(slot, connection);
            }
            if ready == 0 {
                continue;
            }
            if wanted & interest::ONE_SHOT != 0 {
                slot.interest = 0;
            }
            events[count] = Event {
                token: slot.token,
                ready,
                source: Source::Connection(SocketId {
                    slot: index,
                    generation: slot.generation,
                }),
            };
            count += 1;
            if wanted & (interest::EDGE | interest::ONE_SHOT) == 0 {
                self.make_ready(index);
            }
        }
        count
    }

    /// Whether anything may be ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
