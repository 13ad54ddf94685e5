//! The table against a plain map that walks over all its flows.

use std::collections::HashMap;

use super::*;
use crate::exact::Seed;
use crate::wheel::Wheel;
use linerate_testkit::Random;

/// What a flow table should do, one flow at a time.
struct Model {
    config: FlowConfig,
    flows: HashMap<FlowKey4, Flow<FlowKey4, u32>>,
    /// Flows in the state that may be evicted, oldest first.
    queue: Vec<FlowKey4>,
    refusals: Refusals,
}

impl Model {
    fn name(&self, key: FlowKey4) -> FlowKey4 {
        match self.config.bidirectional {
            true => key.min(key.reversed()),
            false => key,
        }
    }

    fn touch(&mut self, now: u64, key: FlowKey4, bytes: u32) -> Option<Hit> {
        let name = self.name(key);
        let flow = self.flows.get_mut(&name)?;
        let direction = usize::from(flow.key != key);
        flow.last_seen = flow.last_seen.max(now);
        flow.packets[direction] += 1;
        flow.bytes[direction] += u64::from(bytes);
        Some(Hit {
            flow: flow.id,
            direction: Direction::of(direction == 1),
            state: flow.state,
        })
    }

    fn count(&self, state: u8) -> usize {
        self.flows
            .values()
            .filter(|flow| flow.state == state)
            .count()
    }

    fn owned(&self, owner: u64) -> usize {
        self.flows
            .values()
            .filter(|flow| flow.owner == owner)
            .count()
    }

    fn is_full(&self, state: u8) -> bool {
        let most = self.config.states[usize::from(state)].most;
        most.is_some_and(|most| self.count(state) >= most) || self.count(state) >= self.config.flows
    }

    /// The flow that a new one would displace, or why it is refused.
    fn admit(&self, first: &First<u32>) -> Result<Option<FlowKey4>, Refused> {
        let limit = self.config.per_owner;
        if limit.is_some_and(|limit| self.owned(first.owner) >= limit as usize) {
            return Err(Refused::Owner);
        }
        let oldest = self.queue.first().copied();
        if self.is_full(first.state) {
            let evicts = self.config.evict == Some(first.state);
            return oldest.filter(|_| evicts).map(Some).ok_or(Refused::State);
        }
        if self.flows.len() == self.config.flows {
            return oldest.map(Some).ok_or(Refused::Table);
        }
        Ok(None)
    }

    fn remove(&mut self, name: FlowKey4) -> Flow<FlowKey4, u32> {
        self.queue.retain(|queued| *queued != name);
        self.flows.remove(&name).unwrap()
    }

    fn enter(&mut self, name: FlowKey4, state: u8) {
        if self.config.evict == Some(state) {
            self.queue.push(name);
        }
    }

    fn ends(&self, flow: &Flow<FlowKey4, u32>) -> u64 {
        let timeout = self.config.states[usize::from(flow.state)].timeout;
        flow.last_seen.saturating_add(timeout)
    }
}

struct Checked {
    table: FlowTable4<u32>,
    model: Model,
    now: u64,
    /// Names of flows that ended.
    stale: Vec<FlowId>,
}

impl Checked {
    fn new(config: FlowConfig, now: u64) -> Self {
        Self {
            table: FlowTable4::new(&config, now).unwrap(),
            model: Model {
                config,
                flows: HashMap::new(),
                queue: Vec::new(),
                refusals: Refusals::default(),
            },
            now,
            stale: Vec::new(),
        }
    }

    fn burst(&mut self, random: &mut Random, count: usize) {
        let keys: Vec<FlowKey4> = (0..count).map(|_| key(random)).collect();
        let bytes: Vec<u32> = (0..count).map(|_| random.below(1500) as u32).collect();
        let mut found = vec![None; count];
        self.table.touch_bulk(self.now, &keys, &bytes, &mut found);
        for ((&key, &bytes), found) in keys.iter().zip(&bytes).zip(&found) {
            assert_eq!(self.model.touch(self.now, key, bytes), *found);
        }
        for ((&key, &bytes), found) in keys.iter().zip(&bytes).zip(&found) {
            if found.is_none() && random.below(4) > 0 {
                self.insert(random, key, bytes);
            }
        }
    }

    fn insert(&mut self, random: &mut Random, key: FlowKey4, bytes: u32) {
        let first = First {
            state: random.below(self.model.config.states.len() as u64) as u8,
            owner: random.below(6),
            user: random.bits() as u32,
            bytes,
        };
        let inserted = self.table.insert(self.now, key, first);
        if let Some(hit) = self.model.touch(self.now, key, bytes) {
            assert_eq!(inserted, Ok(Inserted::Found(hit)));
            return;
        }
        let victim = match self.model.admit(&first) {
            Ok(victim) => victim,
            Err(refused) => {
                assert_eq!(inserted, Err(refused));
                match refused {
                    Refused::Table => self.model.refusals.table += 1,
                    Refused::State => self.model.refusals.state += 1,
                    _ => self.model.refusals.owner += 1,
                }
                return;
            }
        };
        let expected = victim.map(|victim| self.model.remove(victim));
        let Ok(Inserted::New { flow: id, evicted }) = inserted else {
            panic!("{inserted:?} rather than {expected:?}");
        };
        assert_eq!(evicted, expected);
        self.stale.extend(evicted.map(|flow| flow.id));
        let flow = Flow {
            id,
            key,
            state: first.state,
            owner: first.owner,
            user: first.user,
            created: self.now,
            last_seen: self.now,
            packets: [1, 0],
            bytes: [bytes.into(), 0],
        };
        let name = self.model.name(key);
        self.model.flows.insert(name, flow);
        self.model.enter(name, first.state);
    }

    /// Some flow's name.
    fn any(&self, random: &mut Random) -> Option<FlowKey4> {
        let name = self.model.name(key(random));
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
        assert_eq!(self.table.remove(id), None);
        assert_eq!(self.table.get(id), None);
        assert_eq!(self.table.user_mut(id), None);
        assert_eq!(self.table.set_state(id, 0), Err(Refused::Stale));
        self.model.refusals.stale += 1;
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.model.flows.len());
        assert_eq!(self.table.refusals(), self.model.refusals);
        for state in 0..self.model.config.states.len() as u8 {
            assert_eq!(self.table.count(state), self.model.count(state));
        }
        for owner in 0..6 {
            let owned = match self.model.config.per_owner {
                Some(_) => self.model.owned(owner),
                None => 0,
            };
            assert_eq!(self.table.owned(owner) as usize, owned);
        }
        for (name, flow) in &self.model.flows {
            assert_eq!(self.table.get(flow.id).as_ref(), Some(flow));
            assert_eq!(self.table.user(flow.id), Some(&flow.user));
            assert_eq!(self.table.lookup(*name).unwrap().flow, flow.id);
        }
        let (mut cursor, mut seen) = (Cursor::default(), HashMap::new());
        while !self.table.dump(&mut cursor, 7, |flow| {
            assert!(seen.insert(self.model.name(flow.key), *flow).is_none());
        }) {}
        assert_eq!(seen, self.model.flows);
    }
}

/// One of about 200 flows, in one of two directions; some are their own reverse.
fn key(random: &mut Random) -> FlowKey4 {
    let side = |random: &mut Random| ([10, 0, 0, random.below(5) as u8], random.below(4) as u16);
    let ((src, src_port), (dst, dst_port)) = (side(random), side(random));
    FlowKey4::new(src, dst, src_port, dst_port, 6)
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
        per_owner: None,
        evict: None,
        seed: Seed(1),
    }
}

fn run(seed: u64, operations: usize) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let config = FlowConfig {
        bidirectional: seed.is_multiple_of(2),
        evict: [None, Some(0), Some(2)][(seed % 3) as usize],
        per_owner: (seed % 5 > 2).then(|| 5 + (seed % 7) as u32),
        seed: Seed(u128::from(seed)),
        ..config([16, 64, 250][(seed / 2 % 3) as usize])
    };
    let start = random.bits() >> (1 + random.below(63));
    let mut checked = Checked::new(config, start);
    for operation in 0..operations {
        match random.below(12) {
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
    checked.poll(u64::MAX, usize::MAX);
    assert!(checked.table.is_empty());
}

#[test]
fn flows_come_and_go_as_in_a_plain_map() {
    for seed in 0..60 {
        run(seed, 1500);
    }
}

#[test]
#[ignore = "long: 100 million packets"]
fn flows_come_and_go_as_in_a_plain_map_for_long() {
    for seed in 100..700 {
        run(seed, 10_000);
    }
}

fn first(state: u8) -> First<u32> {
    First {
        state,
        owner: 0,
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
    assert!(message(|c| c.flows = usize::MAX).contains("268435455"));
    assert!(message(|c| c.states.clear()).contains("0 states"));
    assert!(message(|c| c.states[1].timeout = 0).contains("`established` has a timeout of 0"));
    assert!(message(|c| c.evict = Some(4)).contains("there are only 4"));
    assert!(message(|c| c.per_owner = Some(0)).contains("0 flows per owner"));
    assert_eq!(message(|_| ()), "");
}

/// Checks the documentation's figures of memory.
#[test]
fn memory_per_flow_is_what_is_documented() {
    let flows = 100_000;
    let config = FlowConfig {
        flows,
        evict: None,
        ..config(10)
    };
    let four = FlowTable4::<[u64; 2]>::new(&config, 0).unwrap().bytes();
    let six = FlowTable6::<[u64; 2]>::new(&config, 0).unwrap().bytes();
    // Beside the wheel's slots, and rounded up to pages, at most 2 MiB for each of its arrays.
    let fixed = Wheel::new("none", 0, 0).unwrap().bytes() + (5 << 21);
    assert!(four <= 150 * flows + fixed && four >= 140 * flows, "{four}");
    assert!(six <= 215 * flows + fixed && six >= 200 * flows, "{six}");
}
