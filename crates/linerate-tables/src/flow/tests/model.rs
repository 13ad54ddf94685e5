//! A plain map that walks over all its flows: what the table is held against.

mod checked;

use super::*;
use linerate_testkit::Random;
use std::collections::HashMap;

/// The name of a flow that has none yet.
const NO_FLOW: FlowId = FlowId {
    index: u32::MAX,
    generation: 0,
};

/// Keys that tests draw.
trait Drawn<const K: usize>: FlowKey<K> + std::hash::Hash + Ord {
    /// One of about 400 flows, in one of two directions; some are their own reverse.
    fn draw(random: &mut Random) -> Self;
}

fn side(random: &mut Random) -> ([u8; 4], u16) {
    ([10, 0, 0, random.below(5) as u8], random.below(4) as u16)
}

fn zone(random: &mut Random) -> u16 {
    [0, 0, 0, 3][random.below(4) as usize]
}

impl Drawn<16> for FlowKey4 {
    fn draw(random: &mut Random) -> Self {
        let ((src, src_port), (dst, dst_port)) = (side(random), side(random));
        Self::new(src, dst, src_port, dst_port, 6).in_zone(zone(random))
    }
}

impl Drawn<40> for FlowKey6 {
    fn draw(random: &mut Random) -> Self {
        let ((src, src_port), (dst, dst_port)) = (side(random), side(random));
        let wide = |address: [u8; 4]| std::array::from_fn(|at| address[at % 4]);
        Self::new(wide(src), wide(dst), src_port, dst_port, 6).in_zone(zone(random))
    }
}

/// What a flow table should do, one flow at a time.
struct Model<F, S, const K: usize> {
    config: FlowConfig,
    /// By the name of a flow: the name of its first packet's key.
    flows: HashMap<F, Flow<F, S>>,
    /// The name of the flow that has a key, by the key's name.
    keys: HashMap<F, F>,
    /// Names of flows in the state that may be evicted, oldest first.
    queue: Vec<F>,
    refusals: Refusals,
}

impl<F: Drawn<K>, S: Copy, const K: usize> Model<F, S, K> {
    fn name(&self, key: F) -> F {
        match self.config.bidirectional {
            true => key.min(key.reversed()),
            false => key,
        }
    }

    /// The names of a flow's keys.
    fn names(&self, flow: &Flow<F, S>) -> Vec<F> {
        let mut names = vec![self.name(flow.key)];
        if is_translated(flow) {
            names.push(self.name(flow.reverse));
        }
        names
    }

    fn find(&self, key: F) -> Option<(F, Direction)> {
        let name = *self.keys.get(&self.name(key))?;
        let flow = &self.flows[&name];
        match key {
            _ if key == flow.key => Some((name, Direction::Forward)),
            _ if key == flow.reverse => Some((name, Direction::Reverse)),
            _ => None,
        }
    }

    fn lookup(&self, key: F) -> Option<Hit> {
        let (name, direction) = self.find(key)?;
        let flow = self.flows.get(&name)?;
        Some(Hit {
            flow: flow.id,
            direction,
            state: flow.state,
        })
    }

    fn touch(&mut self, now: u64, key: F, bytes: u32) -> Option<Hit> {
        let (name, direction) = self.find(key)?;
        let flow = self.flows.get_mut(&name)?;
        flow.last_seen = flow.last_seen.max(now);
        flow.packets[direction as usize] += 1;
        flow.bytes[direction as usize] += u64::from(bytes);
        self.lookup(key)
    }

    fn count(&self, is: impl Fn(&Flow<F, S>) -> bool) -> usize {
        self.flows.values().filter(|flow| is(flow)).count()
    }

    fn is_full(&self, state: u8) -> bool {
        let most = self.config.states[usize::from(state)].most;
        let most = most.unwrap_or(self.config.flows);
        self.count(|flow| flow.state == state) >= most
    }

    /// The flow that a new one would displace, or why it is refused.
    fn admit(&self, new: &Flow<F, S>) -> Result<Option<F>, Refused> {
        let limit = self.config.per_owner;
        if limit.is_some_and(|limit| self.count(|f| f.owner == new.owner) >= limit as usize) {
            return Err(Refused::Owner);
        }
        let zone = new.zone;
        let limit = self.config.per_zone.iter().find(|limit| limit.0 == zone);
        if limit.is_some_and(|limit| self.count(|f| f.zone == zone) >= limit.1 as usize) {
            return Err(Refused::Zone);
        }
        let oldest = self.queue.first().copied();
        let victim = if self.is_full(new.state) {
            let evicts = self.config.evict == Some(new.state);
            Some(oldest.filter(|_| evicts).ok_or(Refused::State)?)
        } else if self.flows.len() == self.config.flows {
            Some(oldest.ok_or(Refused::Table)?)
        } else {
            None
        };
        let leaves = victim.is_some_and(|victim| is_translated(&self.flows[&victim]));
        let translated = self.count(is_translated) - usize::from(leaves);
        if is_translated(new) && translated >= self.config.translated {
            return Err(Refused::Translated);
        }
        let mut names = self.names(new);
        let ambiguous = names.len() == 2 && names[0] == names[1];
        names.retain(|name| self.keys.contains_key(name));
        if ambiguous || !names.is_empty() {
            return Err(Refused::Taken);
        }
        Ok(victim)
    }

    fn add(&mut self, flow: Flow<F, S>) {
        let name = self.name(flow.key);
        for key in self.names(&flow) {
            assert_eq!(self.keys.insert(key, name), None);
        }
        self.flows.insert(name, flow);
        self.enter(name, flow.state);
    }

    fn remove(&mut self, name: F) -> Flow<F, S> {
        self.queue.retain(|queued| *queued != name);
        let flow = self.flows.remove(&name).unwrap();
        for key in self.names(&flow) {
            assert_eq!(self.keys.remove(&key), Some(name));
        }
        flow
    }

    fn enter(&mut self, name: F, state: u8) {
        if self.config.evict == Some(state) {
            self.queue.push(name);
        }
    }

    fn ends(&self, flow: &Flow<F, S>) -> u64 {
        let timeout = self.config.states[usize::from(flow.state)].timeout;
        flow.last_seen.saturating_add(timeout)
    }
}

fn is_translated<F: FlowKey<K>, S, const K: usize>(flow: &Flow<F, S>) -> bool {
    flow.reverse != flow.key.reversed()
}
