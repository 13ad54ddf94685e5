//! A table and its model: whatever is done to both, they say the same.

use super::*;

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
