//! What changes a table: flows that begin, move to another state, make room, and end.

use super::key::{Direction, FlowKey, Keep, difference};
use super::table::{FlowTable, Origin, Place};
use super::{First, Flow, FlowId, Inserted, Refused};

/// The name of a flow that has none yet.
pub(super) const NO_FLOW: FlowId = FlowId {
    index: u32::MAX,
    generation: 0,
};

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
    /// Begins the flow of a packet that found none; the answers' key is its reverse.
    ///
    /// # Errors
    /// [`Refused`], counted; the table is as it was.
    pub fn insert(&mut self, now: u64, key: F, first: First<S>) -> Result<Inserted<F, S>, Refused> {
        self.insert_pair(now, key, key.reversed(), 0, first)
    }

    /// As [`insert`](FlowTable::insert), for a flow in some bucket whose answers' key is `reverse`:
    /// with another one than the reverse of `forward` the flow is translated.
    ///
    /// # Errors
    /// [`Refused`], counted; the table is as it was.
    pub fn insert_pair(
        &mut self,
        now: u64,
        forward: F,
        reverse: F,
        bucket: u8,
        first: First<S>,
    ) -> Result<Inserted<F, S>, Refused> {
        self.prefetch_begin(reverse, first.state);
        if let Some(hit) = self.touch(now, forward, first.bytes) {
            return Ok(Inserted::Found(hit));
        }
        self.begin(&Flow {
            id: NO_FLOW,
            key: forward,
            reverse,
            bucket,
            state: first.state,
            owner: first.owner,
            user: first.user,
            created: now,
            last_seen: now,
            packets: [1, 0],
            bytes: [first.bytes.into(), 0],
        })
    }

    /// Puts in a flow as it is: with its age and counts, and the timer that follows from them. Its
    /// `id` means nothing here.
    ///
    /// # Errors
    /// As [`insert`](FlowTable::insert); [`Refused::Taken`] too if it is there.
    pub fn put(&mut self, flow: &Flow<F, S>) -> Result<Inserted<F, S>, Refused> {
        self.prefetch_begin(flow.reverse, flow.state);
        self.begin(flow)
    }

    /// Asks for what a new flow needs while the index is searched for its key: the index for the
    /// answers' one, and the place that it most likely gets.
    #[inline]
    fn prefetch_begin(&self, reverse: F, state: u8) {
        self.index.prefetch(self.canonical(reverse).0.bytes());
        if let Ok((place, _)) = self.room(state) {
            self.prefetch(place);
            self.wheel.prefetch(place);
        }
    }

    fn begin(&mut self, flow: &Flow<F, S>) -> Result<Inserted<F, S>, Refused> {
        let translated = flow.reverse != flow.key.reversed();
        let admitted = self.admit(flow, translated);
        let (index, victim) = admitted.map_err(|refused| self.refuse(refused))?;
        let evicted = victim.map(|victim| {
            self.evictions += 1;
            self.end(victim)
        });
        let entry = &mut self.entries[index as usize];
        entry.last_seen = flow.last_seen;
        entry.packets = flow.packets;
        entry.bytes = flow.bytes;
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = flow.state;
        entry.bucket = flow.bucket;
        entry.translated = translated;
        entry.user = flow.user;
        entry.translation = difference(flow.key, flow.reverse.reversed());
        entry.key = F::Inside::keep(flow.key);
        self.origins[index as usize] = Origin {
            created: flow.created,
            key: F::Outside::keep(flow.key),
        };
        self.zones.add(flow.key.zone());
        if let Some(quota) = &mut self.quota {
            quota.set_owner(index, flow.owner);
        }
        self.occupy(index, flow.bucket);
        self.enter(index, flow.state);
        self.wheel.schedule(index, self.ends(index));
        let flow = self.id(index);
        Ok(Inserted::New { flow, evicted })
    }

    /// The place that a new flow of a state gets, and the flow that has to leave it.
    fn room(&self, state: u8) -> Result<(u32, Option<u32>), Refused> {
        let full = self.counts[usize::from(state)] >= self.most[usize::from(state)];
        let oldest = || match &self.evict {
            Some((evict, queue)) if !full || *evict == state => queue.oldest(0),
            _ => None,
        };
        let free = self.free_place().filter(|_| !full);
        match free.or_else(oldest) {
            Some(place) => Ok((place, free.is_none().then_some(place))),
            None if full => Err(Refused::State),
            None => Err(Refused::Table),
        }
    }

    /// Finds room for a new flow and enters it in the index and the quota: the place it gets, and
    /// the flow that has to leave it.
    fn admit(
        &mut self,
        flow: &Flow<F, S>,
        translated: bool,
    ) -> Result<(u32, Option<u32>), Refused> {
        let quota = self.quota.as_ref();
        if quota.is_some_and(|quota| !quota.has_room(flow.owner)) {
            return Err(Refused::Owner);
        }
        if !self.zones.has_room(flow.key.zone()) {
            return Err(Refused::Zone);
        }
        let (index, victim) = self.room(flow.state)?;
        if translated {
            let leaves = |victim: u32| self.entries[victim as usize].translated;
            let left = usize::from(victim.is_some_and(leaves));
            if self.translated - left >= self.most_translated {
                return Err(Refused::Translated);
            }
        }
        self.index_key(flow.key, index, Direction::Forward, translated)?;
        if translated
            && let Err(refused) = self.index_key(flow.reverse, index, Direction::Reverse, true)
        {
            self.unindex(flow.key);
            return Err(refused);
        }
        self.translated += usize::from(translated);
        let quota = self.quota.as_mut();
        if quota.is_some_and(|quota| !quota.add(flow.owner)) {
            self.unindex_flow(flow, translated);
            return Err(Refused::Collision);
        }
        Ok((index, victim))
    }

    /// Enters a key in the index, unless it is there.
    fn index_key(
        &mut self,
        key: F,
        index: u32,
        direction: Direction,
        translated: bool,
    ) -> Result<(), Refused> {
        let (canonical, flipped) = self.canonical(key);
        let place = Place::new(index, direction, flipped, translated);
        match self.index.insert(canonical.bytes(), place.0) {
            Ok(None) => Ok(()),
            Ok(Some(taken)) => {
                self.index.update(canonical.bytes(), |_| taken);
                Err(Refused::Taken)
            }
            Err(_) => Err(Refused::Collision),
        }
    }

    fn unindex(&mut self, key: F) {
        self.index.remove(self.canonical(key).0.bytes());
    }

    fn unindex_flow(&mut self, flow: &Flow<F, S>, translated: bool) {
        self.unindex(flow.key);
        if translated {
            self.unindex(flow.reverse);
            self.translated -= 1;
        }
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

    /// Takes a flow out of everything.
    pub(super) fn end(&mut self, index: u32) -> Flow<F, S> {
        let flow = self.snapshot(index);
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let translated = entry.translated;
        self.unindex_flow(&flow, translated);
        self.wheel.cancel(index);
        self.leave(index, flow.state);
        self.zones.remove(flow.key.zone());
        if let Some(quota) = &mut self.quota {
            quota.remove(index);
        }
        self.vacate(index, flow.bucket);
        flow
    }

    /// Asks for the memory of the index, and of lists, that the end of a flow needs, whose entry
    /// is there.
    #[inline(always)]
    pub(super) fn prefetch_end(&self, index: u32) {
        let entry = &self.entries[index as usize];
        let key = self.key(index);
        self.index.prefetch(self.canonical(key).0.bytes());
        if entry.translated {
            let reverse = difference(key, entry.translation).reversed();
            self.index.prefetch(self.canonical(reverse).0.bytes());
        }
        self.buckets.prefetch_neighbours(index);
    }

    fn enter(&mut self, index: u32, state: u8) {
        self.counts[usize::from(state)] += 1;
        if let Some((evict, queue)) = &mut self.evict
            && *evict == state
        {
            queue.push(0, index);
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
            Refused::Zone => &mut self.refusals.zone,
            Refused::Translated => &mut self.refusals.translated,
            Refused::Taken => &mut self.refusals.taken,
            Refused::Collision => &mut self.refusals.collision,
            Refused::Stale => &mut self.refusals.stale,
        };
        *count += 1;
        refused
    }
}
