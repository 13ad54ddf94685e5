//! The connections of a stack: one slot each, found by id, by 4-tuple, by timer or as ready.
//!
//! A slot is what every connection has. The connection itself is *live*, a record among others like
//! it, or [parked](Parked): one of those that have nothing under way and were used the longest ago.
//! The last [`WARM`] that have become quiet stay live, so that what is in use is never parked, and
//! an idle connection has a slot and a small record. Whoever asks for a parked one wakes it.

use std::collections::VecDeque;

use linerate_core::packet::{Burst, Packet};
use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::{FlowKey, FlowKey4};

use crate::host::{IpFields, Path, may_be_of};
use crate::tcp::config::Config;
use crate::tcp::connection::{Connection, Parked, State};

/// No slot.
pub(super) const NIL: u32 = u32::MAX;
/// Quiet connections that stay live: their records fit the second-level cache. One in this crate's
/// tests, so that most of them park connections all the time.
const WARM: usize = if cfg!(test) { 1 } else { 1536 };

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

/// What few ask, and the turns that a short frame waits: in one byte, since there are millions.
mod odd {
    /// In the list of those that are parked next.
    pub(super) const WARM: u8 = 1;
    /// Its home may have an entry for it.
    pub(super) const MAPPED: u8 = 2;
    /// A turn, of up to 63.
    pub(super) const TURN: u8 = 4;
}

pub(super) struct Slot {
    /// Where its connection is; [`NIL`] where it is parked.
    place: u32,
    /// Bits of [`odd`].
    odds: u8,
    /// As segments that arrive have it.
    pub(super) key: FlowKey,
    pub(super) path: Path,
    pub(super) fields: IpFields,
    pub(super) is: u8,
    /// What the user wants to know of it: bits of [`interest`](super::interest).
    pub(super) interest: u8,
    /// How often it has moved; the count wraps.
    pub(super) moves: u16,
    pub(super) generation: u32,
    /// The listener whose it is, until it is accepted.
    pub(super) listener: u32,
    /// Behind it in the list of those that are ready, or that are free, or that wait.
    pub(super) next: u32,
    /// Before it in the list of those that are ready.
    pub(super) prev: u32,
    pub(super) events: u16,
    pub(super) token: u64,
    /// The tick of its timer; 0 where that is not set. Also in the wheel, whose entry is in another
    /// cache line.
    pub(super) timer: u64,
}

impl Slot {
    /// Whether it is in the list of those that are parked next.
    #[inline(always)]
    pub(super) fn is_warm(&self) -> bool {
        self.odds & odd::WARM != 0
    }

    fn set_warm(&mut self, on: bool) {
        self.odds = self.odds & !odd::WARM | if on { odd::WARM } else { 0 };
    }

    /// Whether its home may have an entry for it, which has to go with it.
    pub(super) fn is_mapped(&self) -> bool {
        self.odds & odd::MAPPED != 0
    }

    pub(super) fn set_mapped(&mut self, on: bool) {
        self.odds = self.odds & !odd::MAPPED | if on { odd::MAPPED } else { 0 };
    }

    /// Turns until a short frame is sent that waits for more; 0 where none does.
    #[inline]
    pub(super) fn waits(&self) -> u8 {
        self.odds / odd::TURN
    }

    /// 63 at most.
    pub(super) fn set_waits(&mut self, turns: u8) {
        self.odds = self.odds & (odd::TURN - 1) | (turns * odd::TURN);
    }
}

pub(super) struct Slots {
    all: Vec<Slot>,
    /// Of the slot of the same number, if its connection is parked.
    parked: Vec<Option<Parked>>,
    live: Vec<Connection>,
    /// Those of `live` that are free.
    places: Vec<u32>,
    /// Slots whose connections have become quiet, those first that did so the longest ago.
    warm: VecDeque<u32>,
    free: u32,
    used: u32,
    /// Connections that were ever put in; the count wraps.
    pub(super) inserted: u32,
    /// The slots of the last of them, each where its count says.
    newest: [u32; Burst::CAPACITY],
    limit: u32,
    index4: Exact<16, u32>,
    index6: Exact<40, u32>,
    /// The one that was found last, and by which addresses of ours; any, or none, at first.
    last: u32,
    last_version: u32,
    /// What records are made by, before they get what theirs are.
    config: Config,
    /// By chance, so that ids of other stacks mean nothing here.
    first_generation: u32,
    /// Connections with an entry that have ended: key, path, whether they linger.
    pub(super) ended: VecDeque<(FlowKey, Path, bool)>,
}

impl Slots {
    pub(super) fn new(limit: u32, config: &Config) -> Result<Self, TableError> {
        let limit = limit.clamp(1, 1 << 24);
        Ok(Self {
            all: Vec::with_capacity(limit as usize),
            parked: Vec::with_capacity(limit as usize),
            live: Vec::with_capacity(limit as usize),
            places: Vec::with_capacity(limit as usize),
            warm: VecDeque::with_capacity(WARM + 1),
            free: NIL,
            used: 0,
            inserted: 0,
            newest: [0; Burst::CAPACITY],
            limit,
            index4: Exact::new(&index_config("tcp4", limit))?,
            index6: Exact::new(&index_config("tcp6", limit))?,
            last: NIL,
            last_version: 0,
            config: config.clone(),
            first_generation: Seed::random().0 as u32,
            ended: VecDeque::new(),
        })
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// The most there can be.
    pub(super) fn most(&self) -> usize {
        self.limit as usize
    }

    pub(super) fn room(&self) -> u32 {
        self.limit - self.used
    }

    /// Bytes of each connection: slot, record and index, whatever they are on the average now.
    pub(super) fn bytes_per_connection(&self) -> usize {
        let slots = self.all.len() * (size_of::<Slot>() + size_of::<Option<Parked>>());
        let live = self.live.len() * size_of::<Connection>();
        let lists = (self.places.len() + self.warm.len()) * size_of::<u32>();
        let index = self.index4.memory_bytes() / self.limit as usize;
        match self.used {
            0 => size_of::<Slot>() + size_of::<Option<Parked>>() + index,
            used => (slots + live + lists).div_ceil(used as usize) + index,
        }
    }

    /// A slot in use and its connection, which is woken if it is parked.
    #[inline]
    pub(super) fn both(&mut self, index: u32) -> (&mut Slot, &mut Connection) {
        let place = match self.all[index as usize].place {
            NIL => self.wake(index),
            place => place,
        };
        let slot = &mut self.all[index as usize];
        (slot, &mut self.live[place as usize])
    }

    /// The slot of an id that is not out of date, and its connection.
    #[inline(always)]
    pub(super) fn get_both(&mut self, id: SocketId) -> Option<(&mut Slot, &mut Connection)> {
        let place = match self.get(id)?.place {
            NIL => self.wake(id.slot),
            place => place,
        };
        let slot = self.all.get_mut(id.slot as usize)?;
        Some((slot, self.live.get_mut(place as usize)?))
    }

    /// The connection of a slot in use.
    #[inline]
    pub(super) fn connection(&mut self, index: u32) -> &mut Connection {
        self.both(index).1
    }

    /// Its state. One that is parked is established.
    #[inline]
    pub(super) fn state(&self, index: u32) -> State {
        match self.all[index as usize].place {
            NIL => State::Established,
            place => self.live[place as usize].state(),
        }
    }

    /// Whether a slot is in use and its connection not parked.
    pub(super) fn is_awake(&self, index: u32) -> bool {
        let slot = &self.all[index as usize];
        slot.is & is::USED != 0 && slot.place != NIL
    }

    /// Shows a connection, parked or not, which stays what it is.
    pub(super) fn look<R>(&self, index: u32, look: impl FnOnce(&Connection) -> R) -> R {
        let slot = &self.all[index as usize];
        match (slot.place, &self.parked[index as usize]) {
            (NIL, Some(parked)) => look(&parked.wake(&self.config)),
            (NIL, None) => look(&Connection::closed()),
            (place, _) => look(&self.live[place as usize]),
        }
    }

    #[cfg(test)]
    pub(super) fn is_parked(&self, index: u32) -> bool {
        self.all[index as usize].place == NIL && self.parked[index as usize].is_some()
    }

    #[cold]
    fn wake(&mut self, index: u32) -> u32 {
        let parked = self.parked[index as usize].take();
        // One that is not live is parked.
        let wake = |parked: Parked| parked.wake(&self.config);
        let connection = parked.map_or_else(Connection::closed, wake);
        let place = self.house(connection);
        self.all[index as usize].place = place;
        place
    }

    /// Gives a connection a place. There is one for each slot.
    fn house(&mut self, connection: Connection) -> u32 {
        match self.places.pop() {
            Some(place) => {
                self.live[place as usize] = connection;
                place
            }
            None => {
                self.live.push(connection);
                self.live.len() as u32 - 1
            }
        }
    }

    /// A connection that is not among the warm ones has become quiet: the one that did so the
    /// longest ago is parked, if there are many and it is quiet still.
    pub(super) fn rest(&mut self, index: u32) {
        self.all[index as usize].set_warm(true);
        self.warm.push_back(index);
        if self.warm.len() > WARM
            && let Some(oldest) = self.warm.pop_front()
        {
            self.park(oldest);
        }
    }

    fn park(&mut self, index: u32) {
        let slot = &mut self.all[index as usize];
        slot.set_warm(false);
        if slot.is & is::USED == 0 || slot.place == NIL {
            return;
        }
        let parked = self.live[slot.place as usize].park();
        if parked.is_some() {
            self.places.push(std::mem::replace(&mut slot.place, NIL));
            self.parked[index as usize] = parked;
        }
    }

    #[inline]
    pub(super) fn find(&self, key: &FlowKey) -> Option<u32> {
        match key {
            FlowKey::V4(key) => self.index4.lookup(&key.0),
            FlowKey::V6(key) => self.index6.lookup(&key.0),
        }
    }

    /// A connection among those put in since there were `before`: what lookups that were made then
    /// could not find.
    #[inline]
    pub(super) fn find_new(&self, before: u32, key: &FlowKey) -> Option<u32> {
        let count = self.inserted.wrapping_sub(before) as usize;
        if count > self.newest.len() {
            return self.find(key);
        }
        (0..count).find_map(|back| {
            let number = self.inserted.wrapping_sub(1 + back as u32);
            let index = self.newest[number as usize % Burst::CAPACITY];
            let slot = self.all.get(index as usize)?;
            (slot.is & is::INDEXED != 0 && slot.key == *key).then_some(index)
        })
    }

    #[inline]
    pub(super) fn find_one4(&self, key: &FlowKey4) -> Option<u32> {
        self.index4.lookup(&key.0)
    }

    /// The one that was found last, if it may be that of this segment: what comes next is often of
    /// the same connection (4.4BSD's one-behind cache). `version` is that of the addresses of ours.
    #[inline(always)]
    pub(super) fn last_of(&self, packet: &Packet, version: u32) -> Option<u32> {
        if self.last_version != version {
            return None;
        }
        let slot = self.all.get(self.last as usize)?;
        let is_it = match &slot.key {
            FlowKey::V4(key) => may_be_of(packet, key),
            FlowKey::V6(_) => false,
        };
        (is_it && slot.is & is::INDEXED != 0).then_some(self.last)
    }

    /// Notes which was found last.
    #[inline(always)]
    pub(super) fn note_last(&mut self, found: Option<u32>, version: u32) {
        (self.last, self.last_version) = (found.unwrap_or(NIL), version);
    }

    #[inline]
    pub(super) fn find4(&self, keys: &[[u8; 16]], found: &mut [Option<u32>]) {
        self.index4.lookup_bulk(keys, found);
    }

    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        let slot = std::ptr::from_ref(&self.all[number as usize]);
        for line in 0..2 {
            linerate_core::arch::prefetch_read(slot.cast::<u8>().wrapping_add(64 * line));
        }
        // A parked record is where the slot's number says; a live one where the slot itself does.
        let parked = self.parked.as_ptr().wrapping_add(number as usize);
        for line in 0..4 {
            linerate_core::arch::prefetch_read(parked.cast::<u8>().wrapping_add(64 * line));
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
        fields: IpFields,
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
            place: self.house(connection),
            odds: 0,
            key,
            path,
            fields,
            is: is::USED | is::INDEXED,
            interest: 0,
            moves: 0,
            generation: self.first_generation,
            listener: NIL,
            next: NIL,
            prev: NIL,
            events: 0,
            token: 0,
            timer: 0,
        };
        match self.all.get_mut(index as usize) {
            Some(old) => {
                self.free = old.next;
                slot.generation = old.generation.wrapping_add(1);
                // It may be in that list from its last connection.
                slot.set_warm(old.is_warm());
                *old = slot;
            }
            None => {
                self.all.push(slot);
                self.parked.push(None);
            }
        }
        self.used += 1;
        self.newest[self.inserted as usize % Burst::CAPACITY] = index;
        self.inserted = self.inserted.wrapping_add(1);
        Ok(index)
    }

    /// Takes a connection out of the index: its 4-tuple is free.
    pub(super) fn unindex(&mut self, index: u32) {
        let state = self.state(index);
        let slot = &mut self.all[index as usize];
        if slot.is & is::INDEXED == 0 {
            return;
        }
        slot.is &= !is::INDEXED;
        if slot.is_mapped() {
            let lingers = state == State::TimeWait;
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
        match std::mem::replace(&mut slot.place, NIL) {
            NIL => self.parked[index as usize] = None,
            place => self.places.push(place),
        }
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

fn index_config(name: &str, limit: u32) -> ExactConfig {
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
