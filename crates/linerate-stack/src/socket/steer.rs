//! What a stack has to know where packets are steered: which local ports bring answers to its
//! lcore, and which connections have an entry elsewhere that has to go when they end.
//!
//! The stack decides nothing of that. A [`PortRule`] says which ports do; the connections that need
//! an entry are told when they [end](Stack::take_ended), those that are to go elsewhere when their
//! user says so ([`Io::move_to`]).

use linerate_core::run::Egress;
use linerate_tables::rss::Ports;
use linerate_wire::FlowKey;

use super::io::Io;
use super::slots::{NIL, SocketId, is};
use super::{ListenerId, Stack};
use crate::host::Path;
use crate::tcp::connection::{Error, State};
use crate::tcp::ports::Share;

/// The local ports that a connection can have.
#[derive(Clone, Debug)]
pub enum PortChoice<'a> {
    /// Any.
    Any,
    /// Any of this lcore's share, with an entry elsewhere.
    Mapped(Share),
    /// These; where all of them are in use, as [`PortRule::mapped`] says.
    Among(Ports<'a>),
    /// None.
    Nothing,
}

/// Which local ports bring the answers of a connection to this lcore. Keys are as answers have
/// them.
pub trait PortRule: Send {
    /// The ports for a connection that leaves by `port`; the destination port of `answers` is the
    /// one that is sought.
    fn ports(&self, port: u16, answers: &FlowKey) -> PortChoice<'_>;

    /// Whether answers come to this lcore without an entry.
    fn comes_home(&self, port: u16, answers: &FlowKey) -> bool;

    /// The share of ports for connections that need an entry; `None` where homes have no maps. No
    /// two lcores have a port in common, since neither sees what the other uses.
    fn mapped(&self) -> Option<Share>;
}

/// A connection with an entry that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its key, as segments have it that arrive.
    pub key: FlowKey,
    /// The port that it left by.
    pub port: u16,
    /// Whether it is in TIME-WAIT: then segments of it may come for another 2 MSL.
    pub lingers: bool,
}

impl Stack {
    /// Sets the rule of local ports; without one any port will do.
    pub fn set_port_rule(&mut self, rule: Box<dyn PortRule>) {
        self.rule = Some(rule);
    }

    /// Whether a connection needs an entry elsewhere; `None` where it does, and there are none.
    pub(super) fn needs_entry(&self, key: &FlowKey, path: Path) -> Option<bool> {
        let (Some(rule), Some(port)) = (&self.rule, self.host.port_of(path)) else {
            return Some(false);
        };
        match rule.comes_home(port, key) {
            true => Some(false),
            false => rule.mapped().map(|_| true),
        }
    }

    /// Takes the next connection with an entry that has ended.
    #[inline]
    pub fn take_ended(&mut self) -> Option<Ended> {
        let (key, path, lingers) = self.slots.ended.pop_front()?;
        Some(Ended {
            key,
            port: self.host.port_of(path).unwrap_or(0),
            lingers,
        })
    }

    /// Takes the next connection that its user wants to go to another lcore.
    #[inline]
    pub fn take_leaving(&mut self) -> Option<(SocketId, u8)> {
        self.leaving.pop()
    }

    /// The connection of a 4-tuple, as segments have it that arrive: the port that it leaves by,
    /// and how often it has moved.
    pub fn steered(&self, key: &FlowKey) -> Option<(u16, u16)> {
        let slot = &self.slots[self.slots.find(key)?];
        Some((self.host.port_of(slot.path).unwrap_or(0), slot.moves))
    }

    /// The key of a connection that can go to another lcore, and the port that it leaves by: it is
    /// open, and its user has it.
    pub fn movable(&mut self, id: SocketId) -> Option<(FlowKey, u16)> {
        self.slots.get(id)?;
        let state = self.slots.state(id.slot);
        let slot = self.slots.get(id)?;
        let is_open = state.is_synchronized() && state != State::TimeWait;
        if !is_open || slot.is & (is::INDEXED | is::QUEUED | is::HALF_OPEN) != is::INDEXED {
            return None;
        }
        let (key, path) = (slot.key, slot.path);
        Some((key, self.host.port_of(path).unwrap_or(0)))
    }

    /// A connection that was to be opened cannot be, for want of an entry: its user hears of it as
    /// of one that was aborted. False if it is not one that waits for its first answer.
    pub fn refuse_connect(&mut self, key: &FlowKey, now_ns: u64, out: &mut Egress) -> bool {
        let Some(index) = self.slots.find(key) else {
            return false;
        };
        if self.slots.state(index) != State::SynSent {
            return false;
        }
        // Nobody has an entry of it.
        self.slots[index].set_mapped(false);
        self.with(index, now_ns, out, |connection, cx| connection.abort(cx));
        self.settle(index, now_ns, out);
        true
    }
}

impl Io<'_> {
    /// Has a connection go to another lcore, by its number, as soon as this call of the user is
    /// over; its id means nothing any more then. What was read is done with, all else goes along.
    /// It stays where it cannot go.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn move_to(&mut self, id: SocketId, lcore: u8) -> Result<(), Error> {
        self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        self.stack.leaving.push((id, lcore));
        Ok(())
    }

    /// The token that the events of a connection have.
    pub fn token(&mut self, id: SocketId) -> Option<u64> {
        Some(self.stack.slots.get(id)?.token)
    }

    /// Puts a connection that was attached behind those that wait at the listener of its local
    /// port, as if it had been opened just now. Nothing where nobody listens there.
    pub fn offer(&mut self, id: SocketId) -> Option<ListenerId> {
        let slot = self.stack.slots.get(id)?;
        let (local, port) = super::receive::local_of(&slot.key);
        let index = self.stack.listeners.find(local, port)?;
        if slot.is & (is::QUEUED | is::READY | is::HALF_OPEN) != 0 {
            return None;
        }
        let listener = self.stack.listeners.at(index)?;
        listener.waiting += 1;
        let generation = listener.generation;
        let tail = std::mem::replace(&mut listener.tail, id.slot);
        match tail {
            NIL => listener.head = id.slot,
            tail => self.stack.slots[tail].next = id.slot,
        }
        let slot = &mut self.stack.slots[id.slot];
        slot.is |= is::QUEUED | is::OWNED;
        (slot.next, slot.listener) = (NIL, index);
        self.stack.ready.listener(index);
        Some(ListenerId { index, generation })
    }
}
