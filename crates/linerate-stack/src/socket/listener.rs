//! Ports that are listened to, and the connections that wait to be accepted.

use std::net::IpAddr;

use super::config::Listen;
use super::slots::NIL;

/// Names a listener of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

pub(super) struct Listener {
    pub(super) listen: Listen,
    pub(super) generation: u32,
    /// The next one of the same port.
    next: u32,
    /// Connections that wait, in a list through their slots.
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) waiting: u32,
    pub(super) half_open: u32,
    /// Those of them whose users have them already (RFC 7413 5.1).
    pub(super) early: u32,
    pub(super) is_open: bool,
    /// Connections that found the backlog full.
    pub(super) refused: u64,
}

pub(super) struct Listeners {
    all: Vec<Listener>,
    /// The first listener of each port.
    by_port: Box<[u32]>,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            by_port: vec![NIL; 1 << 16].into(),
        }
    }

    /// Adds one, unless the address and port are taken.
    pub(super) fn add(&mut self, listen: Listen) -> Option<ListenerId> {
        let same = |other: &Listen| other.address == listen.address;
        if self.of_port(listen.port).any(|other| same(&other.listen)) {
            return None;
        }
        let next = std::mem::replace(&mut self.by_port[usize::from(listen.port)], NIL);
        let free = self
            .all
            .iter()
            .position(|listener| !listener.is_open && listener.half_open == 0);
        let generation = free.map_or(0, |at| self.all[at].generation + 1);
        let new = Listener {
            listen,
            generation,
            next,
            head: NIL,
            tail: NIL,
            waiting: 0,
            half_open: 0,
            early: 0,
            is_open: true,
            refused: 0,
        };
        let index = match free {
            Some(at) => {
                self.all[at] = new;
                at as u32
            }
            None => {
                self.all.push(new);
                self.all.len() as u32 - 1
            }
        };
        self.by_port[usize::from(listen.port)] = index;
        Some(ListenerId { index, generation })
    }

    fn of_port(&self, port: u16) -> impl Iterator<Item = &Listener> {
        let mut at = self.by_port[usize::from(port)];
        std::iter::from_fn(move || {
            let found = self.all.get(at as usize)?;
            at = found.next;
            Some(found)
        })
    }

    /// Who listens there: one of the very address before one of any.
    #[inline]
    pub(super) fn find(&self, address: IpAddr, port: u16) -> Option<u32> {
        let mut at = self.by_port[usize::from(port)];
        let mut any = None;
        while at != NIL {
            let listener = &self.all[at as usize];
            match listener.listen.address {
                Some(own) if own == address => return Some(at),
                None => any = Some(at),
                Some(_) => {}
            }
            at = listener.next;
        }
        any
    }

    pub(super) fn get(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let listener = self.all.get_mut(id.index as usize)?;
        (listener.generation == id.generation && listener.is_open).then_some(listener)
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Listener> {
        self.all.get_mut(index as usize)
    }

    /// Nobody listens there any more.
    pub(super) fn close(&mut self, id: ListenerId) {
        let Some(listener) = self.get(id) else {
            return;
        };
        listener.is_open = false;
        let (port, next) = (listener.listen.port, listener.next);
        let first = &mut self.by_port[usize::from(port)];
        if *first == id.index {
            *first = next;
            return;
        }
        let mut at = *first;
        while at != NIL {
            let behind = self.all[at as usize].next;
            if behind == id.index {
                self.all[at as usize].next = next;
                return;
            }
            at = behind;
        }
    }

    /// All that are open, with their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ListenerId, &Listener)> {
        let all = (0..).zip(&self.all);
        all.filter(|(_, listener)| listener.is_open)
            .map(|(index, listener)| {
                let generation = listener.generation;
                (ListenerId { index, generation }, listener)
            })
    }
}
