//! The table: entries, the index that finds them, and what packets do. `changes.rs` has what begins
//! and ends flows.

use std::hint::select_unpredictable;
use std::mem::offset_of;

use linerate_core::arch::prefetch_read;
use linerate_core::mem::{HugeArray, PageKind};

use super::buckets::BUCKETS;
use super::entry::{Entry, LINE, Origin, Place, prefetch_lines};
use super::key::{Direction, FlowKey, Keep, difference};
use super::lists::Lists;
use super::quota::{Quota, Zones};
use super::{Flow, FlowConfig, FlowId, FlowMut, Hit, Refusals};
use crate::TableError;
use crate::exact::{Exact, ExactConfig};
use crate::wheel::Wheel;

/// Packets of a burst that are looked up at once.
const BLOCK: usize = 64;

/// Flows of one kind of key, with a value of the user's each. One owner.
///
/// Its times are ticks of the caller's choice, a millisecond say: finer ones only move timers more
/// often. They never go back: an earlier one is taken as the latest that the flow, or the table,
/// has seen.
pub struct FlowTable<F: FlowKey<K>, S, const K: usize> {
    /// From canonical keys to [`Place`]s.
    pub(super) index: Exact<K, u32>,
    pub(super) entries: HugeArray<Entry<F, S, F::Inside>>,
    pub(super) origins: HugeArray<Origin<F::Outside>>,
    pub(super) wheel: Wheel,
    pub(super) timeouts: [u64; 256],
    /// Flows of each bucket, and places that are free.
    pub(super) buckets: Lists,
    pub(super) in_bucket: [u32; BUCKETS],
    /// Flows in each state, and the most there may be.
    pub(super) counts: [usize; 256],
    pub(super) most: [usize; 256],
    /// Flows with two keys.
    pub(super) translated: usize,
    pub(super) config: FlowConfig,
    pub(super) evict: Option<(u8, Lists)>,
    pub(super) quota: Option<Quota>,
    pub(super) zones: Zones,
    pub(super) refusals: Refusals,
    pub(super) evictions: u64,
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
        // Two more, for the keys of a new flow before the evicted one goes.
        let keys = flows + config.translated + 2;
        let index = ExactConfig::new(name, keys, config.seed).full_size();
        let no_key = F::from_bytes([0; K]);
        let entry = Entry {
            last_seen: 0,
            packets: [0; 2],
            bytes: [0; 2],
            generation: 0,
            state: 0,
            bucket: 0,
            translated: false,
            zone: 0,
            user: S::default(),
            translation: no_key,
            key: F::Inside::keep(no_key),
        };
        let origin = Origin {
            created: 0,
            key: F::Outside::keep(no_key),
        };
        let queue = |state| Ok::<_, TableError>((state, Lists::new(name, flows, 1)?));
        let quota = |most| Quota::new(name, most, flows, config.seed);
        let mut table = Self {
            index: Exact::new(&index)?,
            entries: HugeArray::filled(name, flows, entry)?,
            origins: HugeArray::filled(name, flows, origin)?,
            wheel: Wheel::new(name, flows, now)?,
            timeouts: [0; 256],
            buckets: Self::free_places(name, flows)?,
            in_bucket: [0; BUCKETS],
            counts: [0; 256],
            most: [0; 256],
            translated: 0,
            config: config.clone(),
            evict: config.evict.map(queue).transpose()?,
            quota: config.per_owner.map(quota).transpose()?,
            zones: Zones::new(&config.per_zone, config.states.len()),
            refusals: Refusals::default(),
            evictions: 0,
        };
        table.set_states(config);
        Ok(table)
    }

    /// States that were not configured take no flows.
    fn set_states(&mut self, config: &FlowConfig) {
        for (number, state) in config.states.iter().enumerate() {
            self.timeouts[number] = state.timeout;
            self.most[number] = state.most.unwrap_or(config.flows);
        }
    }

    /// Takes timeouts and limits of states, the limit of owners, and those of zones from another
    /// configuration. No flow ends by that: a limit refuses new ones. A flow whose timeout is
    /// shorter now ends when it would have or earlier, a flow whose timeout is longer lives on.
    ///
    /// # Errors
    /// [`TableError::Flow`] for a configuration that cannot be, or that differs in anything else,
    /// name and seed aside. Nothing is changed then.
    pub fn reconfigure(&mut self, config: &FlowConfig) -> Result<(), TableError> {
        config.check_against(&self.config)?;
        self.set_states(config);
        self.zones.limit(&config.per_zone);
        if let (Some(quota), Some(most)) = (&mut self.quota, config.per_owner) {
            quota.limit(most);
        }
        Ok(())
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.index.len() - self.translated
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

    /// Flows of a zone.
    pub fn in_zone(&self, zone: u8) -> u32 {
        self.zones.count(zone)
    }

    /// Flows of a zone in a state.
    pub fn zone_in_state(&self, zone: u8, state: u8) -> u32 {
        self.zones.count_in(zone, state)
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
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
            + self.entries.region().len()
            + self.origins.region().len()
            + self.wheel.bytes()
            + self.buckets.bytes()
            + self.evict.as_ref().map_or(0, |(_, queue)| queue.bytes())
            + self.quota.as_ref().map_or(0, Quota::bytes)
            + self.zones.bytes()
    }

    /// What pages back its entries.
    pub fn pages(&self) -> PageKind {
        self.entries.region().kind()
    }

    /// The flow of a packet, nothing counted.
    pub fn lookup(&self, key: F) -> Option<Hit> {
        let (key, flip) = self.canonical(key);
        let place = Place(self.index.lookup(key.bytes())?);
        let entry = &self.entries[place.index() as usize];
        Some(entry.hit(place.index(), place.direction(flip)?))
    }

    /// Asks for the memory that tells which flow packets with this key have, or that a new flow
    /// with it needs.
    #[inline]
    pub fn prefetch_key(&self, key: F) {
        self.index.prefetch(self.canonical(key).0.bytes());
    }

    /// The flow of each packet of a burst, if there is one, nothing counted: whoever judges packets
    /// before they count does the rest by [`FlowMut::count`] and [`FlowMut::refresh`].
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn lookup_bulk(&self, keys: &[F], found: &mut [Option<Hit>]) {
        assert!(keys.len() == found.len(), "a place for each key");
        for (keys, found) in keys.chunks(BLOCK).zip(found.chunks_mut(BLOCK)) {
            let (mut places, mut flips) = ([None; BLOCK], [false; BLOCK]);
            self.find(keys, &mut places, &mut flips);
            for ((place, flip), found) in places.into_iter().zip(flips).zip(found) {
                *found = place.map(Place).and_then(|place| {
                    let entry = &self.entries[place.index() as usize];
                    Some(entry.hit(place.index(), place.direction(flip)?))
                });
            }
        }
    }

    /// As [`FlowTable::lookup_bulk`], but reads no entries: the place of each packet's flow, which
    /// is its [`FlowId::index`], and which way the packet goes. For who keeps all that most packets
    /// need in an array beside the table.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn places_bulk(&self, keys: &[F], found: &mut [Option<(u32, Direction)>]) {
        assert!(keys.len() == found.len(), "a place for each key");
        for (keys, found) in keys.chunks(BLOCK).zip(found.chunks_mut(BLOCK)) {
            let (mut places, mut flips) = ([None; BLOCK], [false; BLOCK]);
            self.find_places(keys, &mut places, &mut flips);
            for ((place, flip), found) in places.into_iter().zip(flips).zip(found) {
                let place = place.map(Place);
                *found = place.and_then(|place| Some((place.index(), place.direction(flip)?)));
            }
        }
    }

    /// As [`FlowTable::lookup_bulk`], of packets that came at tick `now`: each is counted and keeps
    /// its flow alive. `bytes` are the packets' lengths.
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
            let (mut places, mut flips) = ([None; BLOCK], [false; BLOCK]);
            self.find(keys, &mut places, &mut flips);
            for (at, (place, found)) in places.into_iter().zip(found).enumerate() {
                *found =
                    place.and_then(|place| self.count_in(now, Place(place), flips[at], bytes[at]));
            }
        }
    }

    /// The places of the flows of a block's keys, whose memory is asked for.
    #[inline(always)]
    fn find(&self, keys: &[F], places: &mut [Option<u32>; BLOCK], flips: &mut [bool; BLOCK]) {
        self.find_places(keys, places, flips);
        for place in places[..keys.len()].iter().flatten() {
            self.prefetch_hit(Place(*place));
        }
    }

    /// The places alone.
    #[inline(always)]
    fn find_places(
        &self,
        keys: &[F],
        places: &mut [Option<u32>; BLOCK],
        flips: &mut [bool; BLOCK],
    ) {
        let mut canonical = [[0; K]; BLOCK];
        for ((key, canonical), flip) in keys.iter().zip(&mut canonical).zip(flips) {
            let (key, flipped) = self.canonical(*key);
            (*canonical, *flip) = (*key.bytes(), flipped);
        }
        let places = &mut places[..keys.len()];
        self.index.lookup_bulk(&canonical[..keys.len()], places);
    }

    /// As [`FlowTable::touch_bulk`], for one packet.
    #[inline]
    pub fn touch(&mut self, now: u64, key: F, bytes: u32) -> Option<Hit> {
        let (key, flip) = self.canonical(key);
        let place = Place(self.index.lookup(key.bytes())?);
        self.count_in(now, place, flip, bytes)
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

    /// What belongs to the flow that a packet hit whose key is `key`; `None` if it has ended since.
    ///
    /// ```
    /// # use linerate_tables::exact::Seed;
    /// # use linerate_tables::flow::{First, FlowConfig, FlowTable4, states};
    /// # use linerate_wire::flow::FlowKey4;
    /// let mut config = FlowConfig::stateful("nat", 1000, 1000, Seed::random());
    /// config.translated = 1000;
    /// let mut flows = FlowTable4::<u32>::new(&config, 0)?;
    ///
    /// // 10.0.0.1:4000 goes out as 192.0.2.1:61000, and there the answers come.
    /// let sent = FlowKey4::new([10, 0, 0, 1], [203, 0, 113, 9], 4000, 443, 6);
    /// let answer = FlowKey4::new([203, 0, 113, 9], [192, 0, 2, 1], 443, 61000, 6);
    /// let first = First { state: states::TCP_NEW, owner: 0, zone: 0, user: 7, bytes: 60 };
    /// assert!(flows.insert_pair(0, sent, answer, 0, first).is_ok());
    ///
    /// let hit = flows.touch(1, answer, 60).expect("the flow is there");
    /// let flow = flows.flow_mut(&hit, answer).expect("it has not ended");
    /// assert_eq!((flow.other, *flow.user), (sent, 7));
    /// // What the answer becomes: to 10.0.0.1:4000.
    /// assert_eq!(flow.other.reversed().dst_port(), 4000);
    /// *flow.user += 1;
    /// # Ok::<(), linerate_tables::TableError>(())
    /// ```
    #[inline]
    pub fn flow_mut(&mut self, hit: &Hit, key: F) -> Option<FlowMut<'_, F, S>> {
        let entry = self.entries.get_mut(hit.flow.index())?;
        (entry.generation == hit.flow.generation).then(|| FlowMut {
            last_seen: &mut entry.last_seen,
            packets: &mut entry.packets[hit.direction as usize],
            bytes: &mut entry.bytes[hit.direction as usize],
            translated: entry.translated,
            other: match (entry.translated, hit.direction) {
                (false, _) => key.reversed(),
                (true, Direction::Forward) => difference(key, entry.translation).reversed(),
                (true, Direction::Reverse) => difference(key.reversed(), entry.translation),
            },
            user: &mut entry.user,
            bucket: entry.bucket,
            state: entry.state,
        })
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
        let entry = self.entries.as_ptr().wrapping_add(index as usize);
        prefetch_lines(entry, size_of::<Entry<F, S, F::Inside>>());
        prefetch_read(self.origins.as_ptr().wrapping_add(index as usize));
        self.buckets.prefetch(index);
    }

    /// Asks for what packets of a flow need: the entry up to the user's data, and where the flow is
    /// translated the translation too.
    #[inline(always)]
    fn prefetch_hit(&self, place: Place) {
        let translation = const { offset_of!(Entry<F, S, F::Inside>, translation) };
        let entry = self.entries.as_ptr().wrapping_add(place.index() as usize);
        prefetch_lines(entry, translation);
        let (line, last) = (translation.next_multiple_of(LINE), translation + K);
        if line < last {
            let at = select_unpredictable(place.is_translated(), line, 0);
            prefetch_read(entry.cast::<u8>().wrapping_add(at));
        }
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
        match self.config.bidirectional {
            true => key.canonical(),
            false => (key, false),
        }
    }

    #[inline(always)]
    fn count_in(&mut self, now: u64, place: Place, flip: bool, bytes: u32) -> Option<Hit> {
        let (index, direction) = (place.index(), place.direction(flip)?);
        let entry = &mut self.entries[index as usize];
        entry.last_seen = now.max(entry.last_seen);
        entry.packets[direction as usize] += 1;
        entry.bytes[direction as usize] += u64::from(bytes);
        Some(entry.hit(index, direction))
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

    /// The key of a flow's first packet.
    #[inline(always)]
    pub(super) fn key(&self, index: u32) -> F {
        let inside = self.entries[index as usize].key.kept();
        let key = inside.or_else(|| self.origins[index as usize].key.kept());
        key.expect("a key is kept inside or outside")
    }

    /// The key of its answers.
    #[inline(always)]
    pub(super) fn reverse(&self, index: u32, key: F) -> F {
        let entry = &self.entries[index as usize];
        match entry.translated {
            true => difference(key, entry.translation).reversed(),
            false => key.reversed(),
        }
    }

    pub(super) fn snapshot(&self, index: u32) -> Flow<F, S> {
        let entry = &self.entries[index as usize];
        let origin = &self.origins[index as usize];
        let key = self.key(index);
        Flow {
            id: self.id(index),
            key,
            reverse: self.reverse(index, key),
            bucket: entry.bucket,
            zone: entry.zone,
            state: entry.state,
            owner: self.quota.as_ref().map_or(0, |quota| quota.owner(index)),
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
