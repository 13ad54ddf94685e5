//! What changes a table: flows that begin, move to another state, make room, and end.

use super::entry::{Entry, Origin, Place};
use super::key::{Direction, FlowKey, Keep, difference};
use super::table::FlowTable;
use super::{First, Flow, FlowId, Inserted, Refused};

/// The place that a new flow gets, and the flow that has to leave it.
type Room = Result<(u32, Option<u32>), Refused>;

/// A flow that is to be.
struct New<F, S> {
    key: F,
    /// The answers' key, if it is not the reverse.
    answers: Option<F>,
    bucket: u8,
    first: First<S>,
    created: u64,
    last_seen: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// The key of a flow's answers, if it is not the reverse of its own.
#[inline(always)]
fn unlike_reverse<F: FlowKey<K>, const K: usize>(key: F, answers: F) -> Option<F> {
    (answers != key.reversed()).then_some(answers)
}

impl<F, S: Copy> New<F, S> {
    /// Of its first packet.
    #[inline(always)]
    fn of(now: u64, key: F, answers: Option<F>, bucket: u8, first: First<S>) -> Self {
        Self {
            key,
            answers,
            bucket,
            first,
            created: now,
            last_seen: now,
            packets: [1, 0],
            bytes: [first.bytes.into(), 0],
        }
    }
}

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
    /// Begins the flow of a packet that found none; the answers' key is its reverse.
    ///
    /// # Errors
    /// [`Refused`], counted; the table is as it was.
    pub fn insert(&mut self, now: u64, key: F, first: First<S>) -> Result<Inserted<F, S>, Refused> {
        self.insert_either(now, key, None, 0, first)
    }

    /// As [`insert`](FlowTable::insert), for a flow in some bucket whose answers' key is `reverse`:
    /// with another one than the reverse of `forward` the flow is translated. If the packet's flow
    /// is there ([`Inserted::Found`]), it has kept the keys that it had.
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
        let answers = unlike_reverse(forward, reverse);
        self.insert_either(now, forward, answers, bucket, first)
    }

    #[inline(always)]
    fn insert_either(
        &mut self,
        now: u64,
        key: F,
        answers: Option<F>,
        bucket: u8,
        first: First<S>,
    ) -> Result<Inserted<F, S>, Refused> {
        // What a new flow needs comes while the index is searched for its key.
        let room = self.prefetch_room(first.state, answers);
        if let Some(hit) = self.touch(now, key, first.bytes) {
            return Ok(Inserted::Found(hit));
        }
        self.begin(room, &New::of(now, key, answers, bucket, first))
    }

    /// As [`insert_pair`](FlowTable::insert_pair), for the flow of a packet that was looked up and
    /// found none.
    ///
    /// # Errors
    /// As there; [`Refused::Taken`] too if it is there.
    pub fn insert_absent(
        &mut self,
        now: u64,
        forward: F,
        reverse: F,
        bucket: u8,
        first: First<S>,
    ) -> Result<Inserted<F, S>, Refused> {
        let answers = unlike_reverse(forward, reverse);
        let room = self.prefetch_room(first.state, answers);
        self.begin(room, &New::of(now, forward, answers, bucket, first))
    }

    /// Puts in a flow as it is: with its age and counts, and the timer that follows from them. Its
    /// `id` means nothing here.
    ///
    /// # Errors
    /// As [`insert`](FlowTable::insert); [`Refused::Taken`] too if it is there.
    pub fn put(&mut self, flow: &Flow<F, S>) -> Result<Inserted<F, S>, Refused> {
        let answers = unlike_reverse(flow.key, flow.reverse);
        let room = self.prefetch_room(flow.state, answers);
        let new = New {
            key: flow.key,
            answers,
            bucket: flow.bucket,
            first: First {
                state: flow.state,
                owner: flow.owner,
                zone: flow.zone,
                user: flow.user,
                bytes: 0,
            },
            created: flow.created,
            last_seen: flow.last_seen,
            packets: flow.packets,
            bytes: flow.bytes,
        };
        self.begin(room, &new)
    }

    /// The room for a new flow, whose memory is asked for, and that of the index for its answers.
    #[inline(always)]
    fn prefetch_room(&self, state: u8, answers: Option<F>) -> Room {
        if let Some(answers) = answers {
            self.index.prefetch(self.canonical(answers).0.bytes());
        }
        let room = self.room(state);
        if let Ok((place, _)) = room {
            self.prefetch(place);
            self.wheel.prefetch(place);
        }
        room
    }

    #[inline(always)]
    fn begin(&mut self, room: Room, new: &New<F, S>) -> Result<Inserted<F, S>, Refused> {
        let admitted = self.admit(room, new);
        let (index, victim) = admitted.map_err(|refused| self.refuse(refused))?;
        let evicted = victim.map(|victim| {
            self.evictions += 1;
            self.end(victim)
        });
        let key = new.key;
        let translation = |answers: F| difference(key, answers.reversed());
        let entry = &mut self.entries[index as usize];
        *entry = Entry {
            last_seen: new.last_seen,
            packets: new.packets,
            bytes: new.bytes,
            generation: entry.generation.wrapping_add(1),
            state: new.first.state,
            bucket: new.bucket,
            translated: new.answers.is_some(),
            zone: new.first.zone,
            user: new.first.user,
            translation: new.answers.map_or(F::from_bytes([0; K]), translation),
            key: F::Inside::keep(key),
        };
        self.origins[index as usize] = Origin {
            created: new.created,
            key: F::Outside::keep(key),
        };
        if let Some(quota) = &mut self.quota {
            quota.set_owner(index, new.first.owner);
        }
        self.occupy(index, new.bucket);
        self.enter(index, new.first.zone, new.first.state);
        self.wheel.schedule(index, self.ends(index));
        let flow = self.id(index);
        Ok(Inserted::New { flow, evicted })
    }

    #[inline(always)]
    fn room(&self, state: u8) -> Room {
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

    /// Enters a new flow in the index and the quota, if nothing is against it.
    #[inline(always)]
    fn admit(&mut self, room: Room, new: &New<F, S>) -> Room {
        let owner = new.first.owner;
        let quota = self.quota.as_ref();
        if quota.is_some_and(|quota| !quota.has_room(owner)) {
            return Err(Refused::Owner);
        }
        if !self.zones.has_room(new.first.zone) {
            return Err(Refused::Zone);
        }
        let (index, victim) = room?;
        if new.answers.is_some() {
            let leaves = |victim: u32| self.entries[victim as usize].translated;
            let left = usize::from(victim.is_some_and(leaves));
            if self.translated - left >= self.config.translated {
                return Err(Refused::Translated);
            }
        }
        self.index_key(new.key, index, Direction::Forward, new.answers.is_some())?;
        if let Some(answers) = new.answers {
            let entered = self.index_key(answers, index, Direction::Reverse, true);
            entered.inspect_err(|_| self.unindex(new.key))?;
            self.translated += 1;
        }
        let quota = self.quota.as_mut();
        if quota.is_some_and(|quota| !quota.add(owner)) {
            self.unindex_both(new.key, new.answers);
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

    fn unindex_both(&mut self, key: F, answers: Option<F>) {
        self.unindex(key);
        if let Some(answers) = answers {
            self.unindex(answers);
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
        let zone = entry.zone;
        let ends = self.ends(flow.index);
        self.leave(flow.index, zone, old);
        self.enter(flow.index, zone, state);
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
        let answers = entry.translated.then_some(flow.reverse);
        self.unindex_both(flow.key, answers);
        self.wheel.cancel(index);
        self.leave(index, flow.zone, flow.state);
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
        let key = self.key(index);
        self.index.prefetch(self.canonical(key).0.bytes());
        if self.entries[index as usize].translated {
            let reverse = self.reverse(index, key);
            self.index.prefetch(self.canonical(reverse).0.bytes());
        }
        self.buckets.prefetch_neighbours(index);
    }

    fn enter(&mut self, index: u32, zone: u8, state: u8) {
        self.zones.enter(zone, state);
        self.counts[usize::from(state)] += 1;
        if let Some((evict, queue)) = &mut self.evict
            && *evict == state
        {
            queue.push(0, index);
        }
    }

    fn leave(&mut self, index: u32, zone: u8, state: u8) {
        self.zones.leave(zone, state);
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
