//! The table against a plain map that walks over all its flows.

use std::collections::HashMap;

use super::*;
use crate::exact::Seed;
use linerate_testkit::Random;

mod collisions;

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

/// Tables and what they should be.
struct Checked<F: FlowKey<K>, const K: usize> {
    table: FlowTable<F, u32, K>,
    model: Model<F, u32, K>,
    now: u64,
    /// Names of flows that ended.
    stale: Vec<FlowId>,
}

impl<F: Drawn<K>, const K: usize> Checked<F, K> {
    fn new(config: FlowConfig, now: u64) -> Self {
        Self {
            table: FlowTable::new(&config, now).unwrap(),
            model: Model {
                config,
                flows: HashMap::new(),
                keys: HashMap::new(),
                queue: Vec::new(),
                refusals: Refusals::default(),
            },
            now,
            stale: Vec::new(),
        }
    }

    /// A key of no flow mostly, or one of a flow, or one of them the wrong way round.
    fn key(&self, random: &mut Random) -> F {
        let key = F::draw(random);
        let flow = self.model.flows.get(&self.model.name(key));
        match (flow, random.below(8)) {
            (Some(flow), 0..4) => flow.reverse,
            (Some(flow), 4) => flow.reverse.reversed(),
            _ => key,
        }
    }

    fn burst(&mut self, random: &mut Random, count: usize) {
        let keys: Vec<F> = (0..count).map(|_| self.key(random)).collect();
        let bytes: Vec<u32> = (0..count).map(|_| random.below(1500) as u32).collect();
        let mut found = vec![None; count];
        let mut places = vec![None; count];
        self.table.places_bulk(&keys, &mut places);
        let is_judged = random.below(2) == 0;
        match is_judged {
            true => self.table.lookup_bulk(&keys, &mut found),
            false => self.table.touch_bulk(self.now, &keys, &bytes, &mut found),
        }
        let place = |hit: &Hit| (hit.flow.index() as u32, hit.direction);
        let expected = found.iter().map(|hit| hit.as_ref().map(place));
        assert!(places.iter().copied().eq(expected));
        for ((&key, &bytes), found) in keys.iter().zip(&bytes).zip(&found) {
            match is_judged {
                true => self.judge(random, *found, key, bytes),
                false => assert_eq!(self.model.touch(self.now, key, bytes), *found),
            }
            if let Some(hit) = found {
                self.look(random, hit, key);
            }
        }
        for ((&key, &bytes), found) in keys.iter().zip(&bytes).zip(&found) {
            if found.is_none() && random.below(4) > 0 {
                self.insert(random, key, bytes);
            }
        }
    }

    /// A packet that was looked up counts if it passes, and may keep its flow alive.
    fn judge(&mut self, random: &mut Random, found: Option<Hit>, key: F, bytes: u32) {
        assert_eq!(self.table.lookup(key), found);
        assert_eq!(self.model.lookup(key), found);
        let Some(hit) = found else { return };
        let (name, direction) = self.model.find(key).unwrap();
        let flow = self.model.flows.get_mut(&name).unwrap();
        let mut seen = self.table.flow_mut(&hit, key).unwrap();
        if random.below(3) > 0 {
            seen.count(bytes);
            flow.packets[direction as usize] += 1;
            flow.bytes[direction as usize] += u64::from(bytes);
        }
        if random.below(2) > 0 {
            seen.refresh(self.now);
            flow.last_seen = self.now.max(flow.last_seen);
        }
    }

    /// The user's data and the other key of a hit.
    fn look(&mut self, random: &mut Random, hit: &Hit, key: F) {
        let (name, direction) = self.model.find(key).unwrap();
        let flow = self.model.flows.get_mut(&name).unwrap();
        let seen = self.table.flow_mut(hit, key).unwrap();
        let other = match direction {
            Direction::Forward => flow.reverse,
            Direction::Reverse => flow.key,
        };
        assert_eq!((seen.other, seen.bucket), (other, flow.bucket));
        let translated = flow.reverse != flow.key.reversed();
        assert_eq!((*seen.user, seen.translated), (flow.user, translated));
        flow.user = random.bits() as u32;
        *seen.user = flow.user;
    }

    fn insert(&mut self, random: &mut Random, key: F, bytes: u32) {
        let first = First {
            state: random.below(self.model.config.states.len() as u64) as u8,
            owner: random.below(6),
            zone: zone(random) as u8,
            user: random.bits() as u32,
            bytes,
        };
        let (bucket, reverse) = match random.below(6) {
            0..3 => (0, key.reversed()),
            3 => (random.below(4) as u8, key.reversed()),
            4 => (random.below(4) as u8, F::draw(random)),
            _ => (255, self.key(random)),
        };
        let inserted = match bucket {
            0 if reverse == key.reversed() => self.table.insert(self.now, key, first),
            _ => self
                .table
                .insert_pair(self.now, key, reverse, bucket, first),
        };
        if let Some(hit) = self.model.touch(self.now, key, bytes) {
            assert_eq!(inserted, Ok(Inserted::Found(hit)));
            return;
        }
        let flow = Flow {
            id: NO_FLOW,
            key,
            reverse,
            bucket,
            state: first.state,
            owner: first.owner,
            zone: first.zone,
            user: first.user,
            created: self.now,
            last_seen: self.now,
            packets: [1, 0],
            bytes: [bytes.into(), 0],
        };
        self.inserted(flow, inserted);
    }

    /// Adds to the model what the table took, or did not take.
    fn inserted(&mut self, mut flow: Flow<F, u32>, got: Result<Inserted<F, u32>, Refused>) {
        let victim = match self.model.admit(&flow) {
            Ok(victim) => victim,
            Err(refused) => {
                assert_eq!(got, Err(refused));
                *match refused {
                    Refused::Table => &mut self.model.refusals.table,
                    Refused::State => &mut self.model.refusals.state,
                    Refused::Owner => &mut self.model.refusals.owner,
                    Refused::Zone => &mut self.model.refusals.zone,
                    Refused::Translated => &mut self.model.refusals.translated,
                    Refused::Taken => &mut self.model.refusals.taken,
                    Refused::Collision | Refused::Stale => panic!("{refused:?}"),
                } += 1;
                return;
            }
        };
        let expected = victim.map(|victim| self.model.remove(victim));
        let Ok(Inserted::New { flow: id, evicted }) = got else {
            panic!("{got:?} rather than {expected:?}");
        };
        assert_eq!(evicted, expected);
        self.stale.extend(evicted.map(|flow| flow.id));
        flow.id = id;
        if self.model.config.per_owner.is_none() {
            flow.owner = 0;
        }
        self.model.add(flow);
    }

    /// Moves flows of a bucket to another table.
    fn move_to(&mut self, other: &mut Self, bucket: u8, most: usize) {
        let count = self.model.count(|flow| flow.bucket == bucket);
        let mut moved = Vec::new();
        let done = self.table.take_bucket(bucket, most, |flow| {
            assert_eq!(flow.bucket, bucket);
            assert_eq!(self.model.remove(self.model.name(flow.key)), *flow);
            moved.push(*flow);
        });
        assert_eq!((moved.len(), done), (most.min(count), most >= count));
        other.now = other.now.max(self.now);
        for flow in moved {
            self.stale.push(flow.id);
            let put = other.table.put(&flow);
            other.inserted(flow, put);
        }
    }

    /// Other limits and timeouts.
    fn reconfigure(&mut self, random: &mut Random) {
        let mut config = self.model.config.clone();
        config.per_owner = config.per_owner.map(|_| 1 + random.below(12) as u32);
        config.per_zone = match random.below(3) {
            0 => vec![],
            1 => vec![(3, 2)],
            _ => vec![(0, 12), (3, 5)],
        };
        config.states[2].most = [None, Some(5)][random.below(2) as usize];
        // Timers that are set stay where they are, so a shorter timeout is seen late.
        config.states[1].timeout += random.below(1000);
        self.table.reconfigure(&config).unwrap();
        self.model.config = config;
    }

    /// Some flow's name.
    fn any(&self, random: &mut Random) -> Option<F> {
        let name = self.model.name(F::draw(random));
        self.model.flows.contains_key(&name).then_some(name)
    }

    fn set_state(&mut self, random: &mut Random) {
        let Some(name) = self.any(random) else {
            return;
        };
        let (flow, state) = (
            self.model.flows[&name],
            random.below(self.model.config.states.len() as u64) as u8,
        );
        let set = self.table.set_state(flow.id, state);
        if flow.state == state {
            assert_eq!(set, Ok(()));
        } else if self.model.is_full(state) {
            assert_eq!(set, Err(Refused::State));
            self.model.refusals.state += 1;
        } else {
            assert_eq!(set, Ok(()));
            self.model.queue.retain(|queued| *queued != name);
            self.model.enter(name, state);
            self.model.flows.get_mut(&name).unwrap().state = state;
        }
    }

    fn poll(&mut self, now: u64, budget: usize) {
        self.now = self.now.max(now);
        let (model, stale, now) = (&mut self.model, &mut self.stale, self.now);
        let mut ended = 0;
        let polled = self.table.poll(now, budget, |flow| {
            let name = model.name(flow.key);
            assert_eq!(model.flows.get(&name), Some(flow));
            assert!(model.ends(flow) <= now, "early");
            model.remove(name);
            stale.push(flow.id);
            ended += 1;
        });
        assert_eq!(polled.ended, ended);
        assert!(polled.ended + polled.renewed <= budget);
        if !polled.behind {
            assert!(
                self.model
                    .flows
                    .values()
                    .all(|flow| self.model.ends(flow) > now)
            );
        } else {
            assert!(self.table.next_expiry().is_some_and(|at| at <= now));
        }
    }

    fn stale(&mut self, random: &mut Random) {
        if self.stale.is_empty() {
            return;
        }
        let at = random.below(self.stale.len() as u64) as usize;
        let id = self.stale[at];
        let hit = Hit {
            flow: id,
            direction: Direction::Forward,
            state: 0,
        };
        assert_eq!(self.table.remove(id), None);
        assert_eq!(self.table.get(id), None);
        assert_eq!(self.table.user_mut(id), None);
        assert!(self.table.flow_mut(&hit, F::draw(random)).is_none());
        assert_eq!(self.table.set_state(id, 0), Err(Refused::Stale));
        self.model.refusals.stale += 1;
    }

    fn check(&self) {
        let model = &self.model;
        assert_eq!(self.table.len(), model.flows.len());
        assert_eq!(self.table.refusals(), model.refusals);
        for state in 0..model.config.states.len() as u8 {
            let count = model.count(|flow| flow.state == state);
            assert_eq!(self.table.count(state), count);
        }
        for bucket in 0..=255 {
            let count = model.count(|flow| flow.bucket == bucket);
            assert_eq!(self.table.in_bucket(bucket) as usize, count);
        }
        for owner in 0..6 {
            let owned = match model.config.per_owner {
                Some(_) => model.count(|flow| flow.owner == owner),
                None => 0,
            };
            assert_eq!(self.table.owned(owner) as usize, owned);
        }
        for zone in [0, 3] {
            let count = model.count(|flow| flow.zone == zone);
            assert_eq!(self.table.in_zone(zone) as usize, count);
            for state in 0..model.config.states.len() as u8 {
                let count = model.count(|flow| (flow.zone, flow.state) == (zone, state));
                assert_eq!(self.table.zone_in_state(zone, state) as usize, count);
            }
        }
        for flow in model.flows.values() {
            assert_eq!(self.table.get(flow.id).as_ref(), Some(flow));
            assert_eq!(self.table.user(flow.id), Some(&flow.user));
            for key in [flow.key, flow.reverse] {
                let hit = self.table.lookup(key);
                let found = model.find(key);
                let found = found.map(|(name, direction)| (model.flows[&name].id, direction));
                assert_eq!(hit.map(|hit| (hit.flow, hit.direction)), found);
            }
        }
        let (mut cursor, mut seen) = (Cursor::default(), HashMap::new());
        while !self.table.dump(&mut cursor, 7, |flow| {
            assert!(seen.insert(model.name(flow.key), *flow).is_none());
        }) {}
        assert_eq!(seen, model.flows);
    }
}

fn config(flows: usize) -> FlowConfig {
    let state = |name, timeout, most| State {
        name,
        timeout,
        most,
    };
    FlowConfig {
        name: "test".into(),
        flows,
        states: vec![
            state("new", 20, None),
            state("established", 5000, None),
            state("closing", 7, Some(flows / 4)),
            state("eternal", u64::MAX, Some(3)),
        ],
        bidirectional: true,
        translated: flows,
        per_owner: None,
        per_zone: Vec::new(),
        evict: None,
        seed: Seed(1),
    }
}

/// Random operations on two tables, between which buckets move.
fn run<F: Drawn<K>, const K: usize>(seed: u64, operations: usize) {
    println!("seed {seed}, keys of {K} bytes");
    let mut random = Random::new(seed);
    let flows = [16, 64, 250][(seed / 2 % 3) as usize];
    let config = FlowConfig {
        bidirectional: seed % 8 != 7,
        translated: [flows, flows, flows / 4, 0][(seed / 3 % 4) as usize],
        evict: [None, Some(0), Some(2)][(seed % 3) as usize],
        per_owner: (seed % 5 > 2).then(|| 5 + (seed % 7) as u32),
        per_zone: if seed % 4 > 1 { vec![(3, 6)] } else { vec![] },
        seed: Seed(u128::from(seed)),
        ..config(flows)
    };
    let start = random.bits() >> (1 + random.below(63));
    let new = || Checked::<F, K>::new(config.clone(), start);
    let (mut checked, mut other) = (new(), new());
    for operation in 0..operations {
        match random.below(13) {
            0..5 => {
                let count = random.below(80) as usize;
                checked.burst(&mut random, count);
            }
            5..8 => checked.set_state(&mut random),
            8 => checked.stale(&mut random),
            9 => {
                if let Some(name) = checked.any(&mut random) {
                    let flow = checked.model.remove(name);
                    assert_eq!(checked.table.remove(flow.id), Some(flow));
                    checked.stale.push(flow.id);
                }
            }
            10 if random.below(4) == 0 => checked.reconfigure(&mut random),
            10 => {
                let bucket = [0, 1, 2, 255, 77][random.below(5) as usize];
                let most = [0, 1, 40, usize::MAX][random.below(4) as usize];
                checked.move_to(&mut other, bucket, most);
                std::mem::swap(&mut checked, &mut other);
            }
            _ => {
                let jump = match random.below(30) {
                    0 => random.below(1 << 45),
                    1..5 => random.below(6000),
                    _ => random.below(8),
                };
                let budget = match random.below(6) {
                    0 => 0,
                    1 => 1 + random.below(40) as usize,
                    _ => usize::MAX,
                };
                checked.poll(checked.now + jump, budget);
            }
        }
        if operation % 16 == 0 {
            checked.check();
        }
    }
    for mut checked in [checked, other] {
        checked.check();
        checked.poll(u64::MAX, usize::MAX);
        assert!(checked.table.is_empty());
    }
}

#[test]
fn flows_come_and_go_as_in_a_plain_map() {
    for seed in 0..36 {
        run::<FlowKey4, 16>(seed, 1500);
        run::<FlowKey6, 40>(seed, 700);
    }
}

#[test]
#[ignore = "long: 100 million packets"]
fn flows_come_and_go_as_in_a_plain_map_for_long() {
    for seed in 100..500 {
        run::<FlowKey4, 16>(seed, 10_000);
        run::<FlowKey6, 40>(seed, 5_000);
    }
}

fn first(state: u8) -> First<u32> {
    First {
        state,
        owner: 0,
        zone: 0,
        user: 0,
        bytes: 64,
    }
}

fn flow(number: u32) -> FlowKey4 {
    FlowKey4::new(number.to_be_bytes(), [10, 0, 0, 1], 1, 2, 17)
}

#[test]
fn a_busy_flow_costs_one_timer_a_timeout_and_no_more() {
    let mut table = FlowTable4::new(&config(10), 0).unwrap();
    table.insert(0, flow(1), first(1)).unwrap();
    let (mut renewed, mut now) = (0, 0);
    for tick in 0..50_000 {
        now = tick;
        assert!(table.touch(now, flow(1), 64).is_some());
        renewed += table.poll(now, 100, |_| panic!("it is busy")).renewed;
    }
    assert_eq!(renewed, 9);
    // Silent from here on, it ends on the tick.
    assert_eq!(table.poll(now + 4999, 100, |_| ()).ended, 0);
    assert_eq!(table.poll(now + 5000, 100, |_| ()).ended, 1);
}

#[test]
fn a_packet_before_the_poll_revives_a_flow() {
    let mut table = FlowTable4::new(&config(10), 0).unwrap();
    table.insert(0, flow(1), first(0)).unwrap();
    assert!(table.touch(1000, flow(1), 64).is_some());
    assert_eq!(table.poll(1000, 100, |_| ()).renewed, 1);
    assert_eq!(table.poll(1020, 100, |_| ()).ended, 1);
}

#[test]
fn a_shorter_timeout_counts_at_once() {
    let mut table = FlowTable4::new(&config(10), 0).unwrap();
    let Ok(Inserted::New { flow, .. }) = table.insert(0, flow(1), first(1)) else {
        panic!("there is room");
    };
    table.touch(100, super::tests::flow(1), 64);
    table.set_state(flow, 2).unwrap();
    assert_eq!(table.poll(106, 100, |_| ()).ended, 0);
    assert_eq!(table.poll(107, 100, |_| ()).ended, 1);
}

/// A SYN flood: half-open flows push each other out, established ones stay.
#[test]
fn a_flood_of_new_flows_displaces_the_oldest_of_them_only() {
    let config = FlowConfig {
        evict: Some(0),
        ..config(1000)
    };
    let mut table = FlowTable4::new(&config, 0).unwrap();
    for number in 0..500 {
        table.insert(0, flow(number), first(1)).unwrap();
    }
    let mut evicted = 0;
    for number in 500..100_000_u32 {
        match table.insert(1, flow(number), first(0)) {
            Ok(Inserted::New { evicted: None, .. }) => assert!(number < 1000),
            Ok(Inserted::New {
                evicted: Some(gone),
                ..
            }) => {
                assert_eq!(gone.key, flow(number - 500));
                evicted += 1;
            }
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert_eq!((evicted, table.evictions()), (99_000, 99_000));
    assert!((0..500).all(|number| table.lookup(flow(number)).is_some()));
}

#[test]
fn without_eviction_a_full_table_refuses_and_counts() {
    let mut table = FlowTable4::new(&config(10), 0).unwrap();
    for number in 0..10 {
        table.insert(0, flow(number), first(1)).unwrap();
    }
    assert_eq!(table.insert(0, flow(10), first(1)), Err(Refused::State));
    assert_eq!(table.insert(0, flow(10), first(0)), Err(Refused::Table));
    assert_eq!(table.insert(0, flow(10), first(9)), Err(Refused::State));
    let refusals = table.refusals();
    assert_eq!((refusals.table, refusals.state), (1, 2));
    assert_eq!(table.len(), 10);
}

#[test]
fn ipv6_flows_are_found_from_both_sides() {
    let config = FlowConfig::stateful("v6", 100, 1000, Seed(3));
    let mut table = FlowTable6::<u8>::new(&config, 0).unwrap();
    let key = |number: u8| FlowKey6::new([number; 16], [7; 16], 1, 2, 6);
    for number in 0..100 {
        let first = First {
            state: states::UDP,
            owner: 0,
            zone: 0,
            user: number,
            bytes: 1,
        };
        table.insert(0, key(number), first).unwrap();
    }
    for number in 0..100 {
        let forward = table.touch(1, key(number), 1).unwrap();
        let reverse = table.touch(1, key(number).reversed(), 1).unwrap();
        assert_eq!(forward.flow, reverse.flow);
        assert_eq!(forward.direction, Direction::Forward);
        assert_eq!(reverse.direction, Direction::Reverse);
        assert_eq!(table.user(forward.flow), Some(&number));
    }
    let mut ended = 0;
    table.poll(300_001, usize::MAX, |_| ended += 1);
    assert_eq!(ended, 100);
}

#[test]
fn impossible_tables_are_refused_with_the_fix() {
    let message = |change: fn(&mut FlowConfig)| {
        let mut config = config(10);
        change(&mut config);
        let error = FlowTable4::<()>::new(&config, 0).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(message(|c| c.flows = 0).contains("flow table `test`: 0 flows: give 1 to"));
    assert!(message(|c| c.flows = usize::MAX).contains("268435454"));
    assert!(message(|c| c.translated = 11).contains("11 translated flows: give 0 to 10"));
    assert!(message(|c| c.states.clear()).contains("0 states"));
    assert!(message(|c| c.states[1].timeout = 0).contains("`established` has a timeout of 0"));
    assert!(message(|c| c.evict = Some(4)).contains("there are only 4"));
    assert!(message(|c| c.per_owner = Some(0)).contains("0 flows per owner"));
    assert!(message(|c| c.per_zone = vec![(1, 5), (2, 0)]).contains("0 flows in zone 2"));
    assert_eq!(message(|_| ()), "");
}

/// However many flows are due, a poll ends no more than its budget, and together the polls touch a
/// timer as often as the wheel says: once for each level that it moves down, and once to end.
#[test]
fn a_budget_bounds_the_work_of_a_poll() {
    let (flows, budget) = (20_000, 100);
    let mut table = FlowTable4::new(&config(flows), 0).unwrap();
    for number in 0..flows as u32 {
        let now = u64::from(number % 700);
        table.insert(now, flow(number), first(1)).unwrap();
    }
    let (mut ended, mut polls) = (0, 0);
    while !table.is_empty() {
        let polled = table.poll(10_000, budget, |_| ended += 1);
        assert!(polled.ended <= budget && polled.renewed == 0);
        assert_eq!(polled.behind, !table.is_empty());
        polls += 1;
    }
    // Deadlines 5000 to 5700 begin at the second level, of 256 ticks a slot.
    assert_eq!((ended, polls), (flows, 2 * flows / budget));
}

#[test]
fn what_is_settled_at_set_up_is_not_reconfigured() {
    let made = config(10);
    let mut table = FlowTable4::<u32>::new(&made, 0).unwrap();
    table.insert(0, flow(1), first(1)).unwrap();
    let mut refuse = |change: fn(&mut FlowConfig), reason: &str| {
        let mut config = made.clone();
        config.states[1].timeout = 1;
        change(&mut config);
        let error = table.reconfigure(&config).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    refuse(
        |c| c.flows = 11,
        "another number of flows: make a new table",
    );
    refuse(|c| c.translated = 3, "another number of translated flows");
    refuse(|c| c.evict = Some(0), "another state to evict");
    refuse(|c| c.per_owner = Some(4), "another limit of owners");
    refuse(|c| c.bidirectional = false, "another kind of directions");
    refuse(|c| c.states.truncate(2), "another number of states");
    refuse(|c| c.states[0].timeout = 0, "has a timeout of 0");
    assert_eq!(table.poll(4999, 100, |_| ()).ended, 0);

    let mut longer = made;
    longer.states[1].timeout = 9000;
    table.reconfigure(&longer).unwrap();
    assert_eq!(table.poll(8999, 100, |_| ()).renewed, 1);
    assert_eq!(table.poll(9000, 100, |_| ()).ended, 1);
}

/// Memory a flow at set-up with 64 bytes of the user's and a state to evict, for a million flows,
/// all that is rounded up to pages included.
#[test]
fn memory_per_flow_is_what_is_documented() {
    fn bytes_each<F: FlowKey<K>, const K: usize>(translated: bool) -> f64 {
        let flows = 1_000_000;
        let config = FlowConfig {
            flows,
            translated: if translated { flows } else { 0 },
            evict: Some(0),
            ..config(10)
        };
        let table = FlowTable::<F, [u64; 8], K>::new(&config, 0).unwrap();
        table.memory_bytes() as f64 / flows as f64
    }
    let four = [false, true].map(bytes_each::<FlowKey4, 16>);
    let six = [false, true].map(bytes_each::<FlowKey6, 40>);
    println!("{four:?} {six:?}");
    assert!(four[0] <= 240.0 && four[1] <= 272.0, "{four:?}");
    assert!(six[0] <= 304.0 && six[1] <= 368.0, "{six:?}");
}
