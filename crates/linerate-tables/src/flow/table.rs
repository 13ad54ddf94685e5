//! The table: entries, the index that finds them, and what ends them.

use linerate_core::arch::prefetch_read;
use linerate_core::mem::{HugeArray, PageKind};

use super::key::{Direction, FlowKey};
use super::queue::Queue;
use super::quota::Quota;
use super::{First, Flow, FlowConfig, FlowId, Hit, Inserted, Refusals, Refused};
use crate::TableError;
use crate::exact::{Exact, ExactConfig};
use crate::wheel::Wheel;

/// Packets of a burst that are looked up at once.
const BLOCK: usize = 32;

/// Flows of one kind of key, with a value of the user's each. One owner.
///
/// Its times are ticks of the caller's choice, a millisecond say: finer ones only move timers more
/// often. They never go back: an earlier one is taken as the latest that the flow, or the table,
/// has seen.
pub struct FlowTable<F, S, const K: usize> {
    pub(super) index: Exact<K, u32>,
    pub(super) entries: HugeArray<Entry<S>>,
    pub(super) origins: HugeArray<Origin<F>>,
    pub(super) wheel: Wheel,
    pub(super) timeouts: [u64; 256],
    free: Vec<u32>,
    /// Flows in each state, and the most there may be.
    counts: [usize; 256],
    most: [usize; 256],
    bidirectional: bool,
    evict: Option<(u8, Queue)>,
    quota: Option<Quota>,
    refusals: Refusals,
    evictions: u64,
}

/// What a packet reads and writes: one line, with up to 16 bytes of the user's.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entry<S> {
    pub(super) last_seen: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
    /// Odd while there is a flow.
    generation: u32,
    pub(super) state: u8,
    /// Whether the flow began in the direction that is not the canonical one.
    flipped: bool,
    user: S,
}

/// What a flow began with, read when it ends.
#[derive(Clone, Copy)]
pub(super) struct Origin<F> {
    pub(super) key: F,
    created: u64,
    owner: u64,
}

/// How far a dump has come; begins at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(usize);

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
    /// An empty table at tick `now`.
    ///
    /// # Errors
    /// [`TableError::Flow`] for a configuration that cannot be; no memory.
    pub fn new(config: &FlowConfig, now: u64) -> Result<Self, TableError> {
        config.check()?;
        let (name, flows) = (config.name.as_str(), config.flows);
        // One more, for a new flow before the evicted one goes.
        let index = ExactConfig::new(name, flows + 1, config.seed).full_size();
        let entry = Entry {
            last_seen: 0,
            packets: [0; 2],
            bytes: [0; 2],
            generation: 0,
            state: 0,
            flipped: false,
            user: S::default(),
        };
        let origin = Origin {
            key: F::from_bytes([0; K]),
            created: 0,
            owner: 0,
        };
        let (mut timeouts, mut most) = ([0; 256], [flows; 256]);
        for (number, state) in config.states.iter().enumerate() {
            timeouts[number] = state.timeout;
            most[number] = state.most.unwrap_or(flows);
        }
        // States that were not configured take no flows.
        most[config.states.len()..].fill(0);
        let queue = |state| Ok::<_, TableError>((state, Queue::new(name, flows)?));
        let quota = |most| Quota::new(name, most, flows, config.seed);
        Ok(Self {
            index: Exact::new(&index)?,
            entries: HugeArray::filled(name, flows, entry)?,
            origins: HugeArray::filled(name, flows, origin)?,
            wheel: Wheel::new(name, flows, now)?,
            timeouts,
            free: (0..flows as u32).rev().collect(),
            counts: [0; 256],
            most,
            bidirectional: config.bidirectional,
            evict: config.evict.map(queue).transpose()?,
            quota: config.per_owner.map(quota).transpose()?,
            refusals: Refusals::default(),
            evictions: 0,
        })
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The most there may be.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Flows in a state.
    pub fn count(&self, state: u8) -> usize {
        self.counts[usize::from(state)]
    }

    /// Flows of an owner; 0 without a quota.
    pub fn owned(&self, owner: u64) -> u32 {
        self.quota.as_ref().map_or(0, |quota| quota.count(owner))
    }

    /// What was refused so far.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Flows that had to make room so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// All memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.index.memory_bytes()
            + self.entries.region().len()
            + self.origins.region().len()
            + self.wheel.bytes()
            + self.free.capacity() * size_of::<u32>()
            + self.evict.as_ref().map_or(0, |(_, queue)| queue.bytes())
            + self.quota.as_ref().map_or(0, Quota::bytes)
    }

    /// What pages back its entries.
    pub fn pages(&self) -> PageKind {
        self.entries.region().kind()
    }

    /// The flow of a packet, nothing counted.
    pub fn lookup(&self, key: F) -> Option<Hit> {
        let (key, flip) = self.canonical(key);
        let index = self.index.lookup(key.bytes())?;
        Some(self.hit(index, flip))
    }

    /// The flow of each packet of a burst that came at tick `now`, if there is one; the packet is
    /// counted and keeps the flow alive. `bytes` are the packets' lengths.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn touch_bulk(&mut self, now: u64, keys: &[F], bytes: &[u32], found: &mut [Option<Hit>]) {
        assert!(
            keys.len() == bytes.len() && keys.len() == found.len(),
            "a length and a place for each key"
        );
        let blocks = keys.chunks(BLOCK).zip(bytes.chunks(BLOCK));
        for ((keys, bytes), found) in blocks.zip(found.chunks_mut(BLOCK)) {
            self.touch_block(now, keys, bytes, found);
        }
    }

    fn touch_block(&mut self, now: u64, keys: &[F], bytes: &[u32], found: &mut [Option<Hit>]) {
        let mut canonical = [[0; K]; BLOCK];
        let mut flips = [false; BLOCK];
        for ((key, canonical), flip) in keys.iter().zip(&mut canonical).zip(&mut flips) {
            let (key, flipped) = self.canonical(*key);
            (*canonical, *flip) = (*key.bytes(), flipped);
        }
        let mut indexes = [None; BLOCK];
        let indexes = &mut indexes[..keys.len()];
        self.index.lookup_bulk(&canonical[..keys.len()], indexes);
        for index in indexes.iter().flatten() {
            prefetch_read(self.entries.as_ptr().wrapping_add(*index as usize));
        }
        for (at, (index, found)) in indexes.iter().zip(found).enumerate() {
            *found = index.map(|index| self.count_in(now, index, flips[at], bytes[at]));
        }
    }

    /// As [`FlowTable::touch_bulk`], for one packet.
    #[inline]
    pub fn touch(&mut self, now: u64, key: F, bytes: u32) -> Option<Hit> {
        let (key, flip) = self.canonical(key);
        let index = self.index.lookup(key.bytes())?;
        Some(self.count_in(now, index, flip, bytes))
    }

    /// Begins the flow of a packet that found none.
    ///
    /// # Errors
    /// [`Refused`], counted; the table is as it was.
    pub fn insert(&mut self, now: u64, key: F, first: First<S>) -> Result<Inserted<F, S>, Refused> {
        // The place that a new flow most likely gets is fetched while the index is searched.
        if let Some(&place) = self.free.last() {
            self.prefetch(place);
            self.wheel.prefetch(place);
        }
        let (canonical, flipped) = self.canonical(key);
        if let Some(index) = self.index.lookup(canonical.bytes()) {
            let hit = self.count_in(now, index, flipped, first.bytes);
            return Ok(Inserted::Found(hit));
        }
        let admitted = self.admit(canonical, &first);
        let (index, victim) = admitted.map_err(|refused| self.refuse(refused))?;
        let evicted = victim.map(|victim| {
            self.evictions += 1;
            self.end(victim)
        });
        self.free.pop();

        let entry = &mut self.entries[index as usize];
        entry.last_seen = now;
        entry.packets = [1, 0];
        entry.bytes = [first.bytes.into(), 0];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = first.state;
        entry.flipped = flipped;
        entry.user = first.user;
        self.origins[index as usize] = Origin {
            key,
            created: now,
            owner: first.owner,
        };
        self.enter(index, first.state);
        let timeout = self.timeouts[usize::from(first.state)];
        self.wheel.schedule(index, now.saturating_add(timeout));
        let flow = self.id(index);
        Ok(Inserted::New { flow, evicted })
    }

    /// Finds room for a new flow and enters it in the index and the quota: the place it gets, and
    /// the flow that has to leave it.
    fn admit(&mut self, key: F, first: &First<S>) -> Result<(u32, Option<u32>), Refused> {
        let quota = self.quota.as_ref();
        if quota.is_some_and(|quota| !quota.has_room(first.owner)) {
            return Err(Refused::Owner);
        }
        let state = usize::from(first.state);
        let oldest = |state_full: bool| match &self.evict {
            Some((evict, queue)) if !state_full || *evict == first.state => queue.oldest(),
            _ => None,
        };
        let (index, victim) = match self.free.last() {
            _ if self.counts[state] >= self.most[state] => {
                let victim = oldest(true).ok_or(Refused::State)?;
                (victim, Some(victim))
            }
            Some(&index) => (index, None),
            None => {
                let victim = oldest(false).ok_or(Refused::Table)?;
                (victim, Some(victim))
            }
        };
        let inserted = self.index.insert(key.bytes(), index);
        inserted.map_err(|_| Refused::Collision)?;
        let quota = self.quota.as_mut();
        if quota.is_some_and(|quota| !quota.add(first.owner)) {
            self.index.remove(key.bytes());
            return Err(Refused::Collision);
        }
        Ok((index, victim))
    }

    /// Moves a flow to another state; its timeout counts from its last packet.
    ///
    /// # Errors
    /// [`Refused::State`] if that state is full, [`Refused::Stale`] if the flow has ended; counted.
    pub fn set_state(&mut self, flow: FlowId, state: u8) -> Result<(), Refused> {
        if !self.is_live(flow) {
            return Err(self.refuse(Refused::Stale));
        }
        let entry = &mut self.entries[flow.index()];
        let old = entry.state;
        if old == state {
            return Ok(());
        }
        if self.counts[usize::from(state)] >= self.most[usize::from(state)] {
            return Err(self.refuse(Refused::State));
        }
        entry.state = state;
        let ends = self.ends(flow.index);
        self.leave(flow.index, old);
        self.enter(flow.index, state);
        if self.wheel.deadline(flow.index).is_none_or(|at| at > ends) {
            self.wheel.schedule(flow.index, ends);
        }
        Ok(())
    }

    /// Ends a flow now; `None` if it has ended.
    pub fn remove(&mut self, flow: FlowId) -> Option<Flow<F, S>> {
        self.is_live(flow).then(|| self.end(flow.index))
    }

    /// A flow as it is; `None` if it has ended.
    pub fn get(&self, flow: FlowId) -> Option<Flow<F, S>> {
        self.is_live(flow).then(|| self.snapshot(flow.index))
    }

    /// What the user keeps with a flow; `None` if it has ended.
    #[inline]
    pub fn user(&self, flow: FlowId) -> Option<&S> {
        let entry = self.entries.get(flow.index())?;
        (entry.generation == flow.generation).then_some(&entry.user)
    }

    /// As [`FlowTable::user`], to change it.
    #[inline]
    pub fn user_mut(&mut self, flow: FlowId) -> Option<&mut S> {
        let entry = self.entries.get_mut(flow.index())?;
        (entry.generation == flow.generation).then_some(&mut entry.user)
    }

    /// Shows the flows in the next `places` places of the table. Returns whether this was the last
    /// of them; the next call begins anew. A flow that lives throughout is seen exactly once,
    /// whatever comes and goes between the calls.
    pub fn dump(
        &self,
        cursor: &mut Cursor,
        places: usize,
        mut see: impl FnMut(&Flow<F, S>),
    ) -> bool {
        let end = cursor.0.saturating_add(places).min(self.entries.len());
        for index in cursor.0..end {
            if is_odd(self.entries[index].generation) {
                see(&self.snapshot(index as u32));
            }
        }
        let done = end == self.entries.len();
        cursor.0 = if done { 0 } else { end };
        done
    }

    /// Asks for the memory of a flow.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u32) {
        prefetch_read(self.entries.as_ptr().wrapping_add(index as usize));
        prefetch_read(self.origins.as_ptr().wrapping_add(index as usize));
    }

    /// When a flow ends if no packet comes.
    #[inline(always)]
    pub(super) fn ends(&self, index: u32) -> u64 {
        let entry = &self.entries[index as usize];
        let timeout = self.timeouts[usize::from(entry.state)];
        entry.last_seen.saturating_add(timeout)
    }

    /// Takes a flow out of everything.
    pub(super) fn end(&mut self, index: u32) -> Flow<F, S> {
        let flow = self.snapshot(index);
        self.index.remove(self.canonical(flow.key).0.bytes());
        self.wheel.cancel(index);
        self.leave(index, flow.state);
        if let Some(quota) = &mut self.quota {
            quota.remove(flow.owner);
        }
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        flow
    }

    #[inline(always)]
    pub(super) fn canonical(&self, key: F) -> (F, bool) {
        match self.bidirectional {
            true => key.canonical(),
            false => (key, false),
        }
    }

    #[inline(always)]
    fn count_in(&mut self, now: u64, index: u32, flip: bool, bytes: u32) -> Hit {
        let hit = self.hit(index, flip);
        let entry = &mut self.entries[index as usize];
        let way = hit.direction as usize;
        entry.last_seen = now.max(entry.last_seen);
        entry.packets[way] += 1;
        entry.bytes[way] += u64::from(bytes);
        hit
    }

    #[inline(always)]
    fn hit(&self, index: u32, flip: bool) -> Hit {
        let entry = &self.entries[index as usize];
        Hit {
            flow: FlowId {
                index,
                generation: entry.generation,
            },
            direction: Direction::of(flip != entry.flipped),
            state: entry.state,
        }
    }

    fn id(&self, index: u32) -> FlowId {
        let generation = self.entries[index as usize].generation;
        FlowId { index, generation }
    }

    #[inline]
    fn is_live(&self, flow: FlowId) -> bool {
        let entry = self.entries.get(flow.index());
        entry.is_some_and(|entry| entry.generation == flow.generation)
    }

    fn snapshot(&self, index: u32) -> Flow<F, S> {
        let entry = &self.entries[index as usize];
        let origin = &self.origins[index as usize];
        Flow {
            id: self.id(index),
            key: origin.key,
            state: entry.state,
            owner: origin.owner,
            user: entry.user,
            created: origin.created,
            last_seen: entry.last_seen,
            packets: entry.packets,
            bytes: entry.bytes,
        }
    }

    fn enter(&mut self, index: u32, state: u8) {
        self.counts[usize::from(state)] += 1;
        if let Some((evict, queue)) = &mut self.evict
            && *evict == state
        {
            queue.push(index);
        }
    }

    fn leave(&mut self, index: u32, state: u8) {
        self.counts[usize::from(state)] -= 1;
        if let Some((evict, queue)) = &mut self.evict
            && *evict == state
        {
            queue.remove(index);
        }
    }

    #[cold]
    fn refuse(&mut self, refused: Refused) -> Refused {
        let count = match refused {
            Refused::Table => &mut self.refusals.table,
            Refused::State => &mut self.refusals.state,
            Refused::Owner => &mut self.refusals.owner,
            Refused::Collision => &mut self.refusals.collision,
            Refused::Stale => &mut self.refusals.stale,
        };
        *count += 1;
        refused
    }
}

fn is_odd(generation: u32) -> bool {
    generation % 2 == 1
}
