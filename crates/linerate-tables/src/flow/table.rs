//! The table: entries, the index that finds them, and what packets do. `changes.rs` has what begins
//! and ends flows.

use linerate_core::arch::prefetch_read;
use linerate_core::mem::{HugeArray, PageKind};

use super::key::{Direction, FlowKey};
use super::queue::Queue;
use super::quota::Quota;
use super::{Flow, FlowConfig, FlowId, Hit, Refusals};
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
    pub(super) free: Vec<u32>,
    /// Flows in each state, and the most there may be.
    pub(super) counts: [usize; 256],
    pub(super) most: [usize; 256],
    bidirectional: bool,
    pub(super) evict: Option<(u8, Queue)>,
    pub(super) quota: Option<Quota>,
    pub(super) refusals: Refusals,
    pub(super) evictions: u64,
}

/// What a packet reads and writes: one line, with up to 16 bytes of the user's.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entry<S> {
    pub(super) last_seen: u64,
    pub(super) packets: [u64; 2],
    pub(super) bytes: [u64; 2],
    /// Odd while there is a flow.
    pub(super) generation: u32,
    pub(super) state: u8,
    /// Whether the flow began in the direction that is not the canonical one.
    pub(super) flipped: bool,
    pub(super) user: S,
}

/// What a flow began with, read when it ends.
#[derive(Clone, Copy)]
pub(super) struct Origin<F> {
    pub(super) key: F,
    pub(super) created: u64,
    pub(super) owner: u64,
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
    /// whatever is added or removed between the calls.
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

    #[inline(always)]
    pub(super) fn canonical(&self, key: F) -> (F, bool) {
        match self.bidirectional {
            true => key.canonical(),
            false => (key, false),
        }
    }

    #[inline(always)]
    pub(super) fn count_in(&mut self, now: u64, index: u32, flip: bool, bytes: u32) -> Hit {
        let hit = self.hit(index, flip);
        let entry = &mut self.entries[index as usize];
        let direction = hit.direction as usize;
        entry.last_seen = now.max(entry.last_seen);
        entry.packets[direction] += 1;
        entry.bytes[direction] += u64::from(bytes);
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

    pub(super) fn id(&self, index: u32) -> FlowId {
        let generation = self.entries[index as usize].generation;
        FlowId { index, generation }
    }

    #[inline]
    pub(super) fn is_live(&self, flow: FlowId) -> bool {
        let entry = self.entries.get(flow.index());
        entry.is_some_and(|entry| entry.generation == flow.generation)
    }

    pub(super) fn snapshot(&self, index: u32) -> Flow<F, S> {
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
}

fn is_odd(generation: u32) -> bool {
    generation % 2 == 1
}
