//! The connections of a stack: one slot each, found by id, by 4-tuple, by timer or as ready.

use std::collections::VecDeque;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::{FlowKey, FlowKey4};

use crate::host::Path;
use crate::tcp::connection::{Connection, State};

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// Names a connection of one stack, until it is closed. It means nothing to another stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl SocketId {
    /// A small number for it: an index into a table of the user's, below the stack's limit of
    /// connections.
    #[inline]
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Facts of a slot: bits.
pub(super) mod is {
    /// In the list of those that are ready.
    pub(crate) const READY: u8 = 1;
    /// Something has happened that is not settled.
    pub(crate) const TOUCHED: u8 = 2;
    /// Found by its 4-tuple.
    pub(crate) const INDEXED: u8 = 4;
    /// The user knows it, or will accept it.
    pub(crate) const OWNED: u8 = 8;
    /// Waits to be accepted.
    pub(crate) const QUEUED: u8 = 16;
    /// Its listener counts it as half-open.
    pub(crate) const HALF_OPEN: u8 = 32;
    /// In use.
    pub(crate) const USED: u8 = 64;
    /// Its record in TIME-WAIT is there, or is not wanted.
    pub(crate) const LINGERED: u8 = 128;
}

pub(super) struct Slot {
    pub(super) connection: Connection,
    /// As segments that arrive have it.
    pub(super) key: FlowKey,
    pub(super) path: Path,
    pub(super) flow_label: u32,
    pub(super) is: u8,
    /// What the user wants to know of it: bits of [`interest`](super::interest).
    pub(super) interest: u8,
    /// Whether its home may have an entry for it, which has to go with it.
    pub(super) mapped: bool,
    /// How often it has moved; the count wraps.
    pub(super) moves: u16,
    pub(super) generation: u32,
    /// The listener whose it is, until it is accepted.
    pub(super) listener: u32,
    /// Behind it in the list of those that are ready, or that are free, or that wait.
    pub(super) next: u32,
    pub(super) events: u16,
    pub(super) token: u64,
    /// The tick of its timer; 0 where that is not set. Also in the wheel, whose entry is in another
    /// cache line.
    pub(super) timer: u64,
}

pub(super) struct Slots {
    all: Vec<Slot>,
    free: u32,
    used: u32,
    limit: u32,
    index4: Exact<16, u32>,
    index6: Exact<40, u32>,
    /// By chance, so that ids of other stacks mean nothing here.
    first_generation: u32,
    /// Connections with an entry that have ended: key, path, whether they linger.
    pub(super) ended: VecDeque<(FlowKey, Path, bool)>,
}

impl Slots {
    pub(super) fn new(limit: u32) -> Result<Self, TableError> {
        let limit = limit.clamp(1, 1 << 24);
        Ok(Self {
            all: Vec::with_capacity(limit as usize),
            free: NIL,
            used: 0,
            limit,
            index4: Exact::new(&config("tcp4", limit))?,
            index6: Exact::new(&config("tcp6", limit))?,
            first_generation: Seed::random().0 as u32,
            ended: VecDeque::new(),
        })
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn room(&self) -> u32 {
        self.limit - self.used
    }

    /// Bytes of a connection: slot and index.
    pub(super) fn bytes_per_connection(&self) -> usize {
        let index = self.index4.memory_bytes() / self.limit as usize;
        size_of::<Slot>() + index
    }

    #[inline]
    pub(super) fn find(&self, key: &FlowKey) -> Option<u32> {
        match key {
            FlowKey::V4(key) => self.index4.lookup(&key.0),
            FlowKey::V6(key) => self.index6.lookup(&key.0),
        }
    }

    #[inline]
    pub(super) fn find_one4(&self, key: &FlowKey4) -> Option<u32> {
        self.index4.lookup(&key.0)
    }

    #[inline]
    pub(super) fn find4(&self, keys: &[[u8; 16]], found: &mut [Option<u32>]) {
        self.index4.lookup_bulk(keys, found);
    }

    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        let slot = std::ptr::from_ref(&self.all[slot as usize]);
        for line in 0..4 {
            linerate_core::arch::prefetch_read(slot.cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// The slot of an id that is not out of date.
    #[inline]
    pub(super) fn get(&mut self, id: SocketId) -> Option<&mut Slot> {
        let slot = self.all.get_mut(id.slot as usize)?;
        (slot.generation == id.generation && slot.is & is::USED != 0).then_some(slot)
    }

    /// The id of a slot in use.
    #[inline]
    pub(super) fn id(&self, slot: u32) -> SocketId {
        SocketId {
            slot,
            generation: self.all[slot as usize].generation,
        }
    }

    /// Takes a slot and puts it into the index.
    ///
    /// # Errors
    /// The connection, and nothing changed, where there is no room.
    #[allow(clippy::result_large_err)] // it goes back to where it came from
    pub(super) fn insert(
        &mut self,
        connection: Connection,
        key: FlowKey,
        path: Path,
        flow_label: u32,
    ) -> Result<u32, Connection> {
        let index = match self.free {
            NIL if self.all.len() < self.limit as usize => self.all.len() as u32,
            index => index,
        };
        if index == NIL {
            return Err(connection);
        }
        let inserted = match &key {
            FlowKey::V4(key) => self.index4.insert(&key.0, index).is_ok(),
            FlowKey::V6(key) => self.index6.insert(&key.0, index).is_ok(),
        };
        if !inserted {
            return Err(connection);
        }
        let mut slot = Slot {
            connection,
            key,
            path,
            flow_label,
            is: is::USED | is::INDEXED,
            interest: 0,
            mapped: false,
            moves: 0,
            generation: self.first_generation,
            listener: NIL,
            next: NIL,
            events: 0,
            token: 0,
            timer: 0,
        };
        match self.all.get_mut(index as usize) {
            Some(old) => {
                self.free = old.next;
                slot.generation = old.generation.wrapping_add(1);
                *old = slot;
            }
            None => self.all.push(slot),
        }
        self.used += 1;
        Ok(index)
    }

    /// Takes a connection out of the index: its 4-tuple is free.
    pub(super) fn unindex(&mut self, index: u32) {
        let slot = &mut self.all[index as usize];
        if slot.is & is::INDEXED == 0 {
            return;
        }
        slot.is &= !is::INDEXED;
        if slot.mapped {
            let lingers = slot.connection.state() == State::TimeWait;
            self.ended.push_back((slot.key, slot.path, lingers));
        }
        match &slot.key {
            FlowKey::V4(key) => self.index4.remove(&key.0),
            FlowKey::V6(key) => self.index6.remove(&key.0),
        };
    }

    /// Frees a slot, whose connection holds nothing any more and which is in no list.
    pub(super) fn remove(&mut self, index: u32) {
        self.unindex(index);
        let free = self.free;
        let slot = &mut self.all[index as usize];
        debug_assert!(slot.is & (is::READY | is::QUEUED | is::HALF_OPEN) == 0);
        slot.is = 0;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        self.free = index;
        self.used -= 1;
    }

    /// Indices of all slots in use.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.all)
            .filter_map(|(index, slot)| (slot.is & is::USED != 0).then_some(index))
    }
}

fn config(name: &str, limit: u32) -> ExactConfig {
    ExactConfig::new(name, limit as usize, Seed::random())
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;

    #[inline(always)]
    fn index(&self, index: u32) -> &Slot {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.all[index as usize]
    }
}
