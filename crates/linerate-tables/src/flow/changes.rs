//! What changes a table: flows that begin, move to another state, make room, and end.

use super::key::FlowKey;
use super::table::{FlowTable, Origin};
use super::{First, Flow, FlowId, Inserted, Refused};

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
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
