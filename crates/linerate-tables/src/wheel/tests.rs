//! The wheel against a sorted map, and the cases that a wheel gets wrong first.

use std::collections::{BTreeSet, HashMap};

use super::{TimerId, Timers, Wheel};
use crate::TableError;
use linerate_testkit::Random;

/// A wheel and what it should do: timers by the tick at which they are due, and by number.
struct Checked {
    wheel: Wheel,
    due: BTreeSet<(u64, u32)>,
    deadlines: HashMap<u32, (u64, u64)>,
    now: u64,
    moved: usize,
    scheduled: usize,
}

impl Checked {
    fn new(capacity: usize, now: u64) -> Self {
        Self {
            wheel: Wheel::new("model", capacity, now).unwrap(),
            due: BTreeSet::new(),
            deadlines: HashMap::new(),
            now,
            moved: 0,
            scheduled: 0,
        }
    }

    fn schedule(&mut self, timer: u32, deadline: u64) {
        self.forget(timer);
        // The past is due at the wheel's time.
        let due = deadline.max(self.wheel.time());
        self.wheel.schedule(timer, deadline);
        self.due.insert((due, timer));
        self.deadlines.insert(timer, (due, deadline));
        self.scheduled += 1;
    }

    fn forget(&mut self, timer: u32) -> bool {
        let known = self.deadlines.remove(&timer);
        known.is_some_and(|(due, _)| self.due.remove(&(due, timer)))
    }

    fn cancel(&mut self, timer: u32) {
        let known = self.forget(timer);
        assert_eq!(self.wheel.cancel(timer), known);
    }

    fn poll(&mut self, now: u64, mut budget: usize) {
        self.now = self.now.max(now);
        loop {
            let before = budget;
            let popped = self.wheel.pop(now, &mut budget);
            self.moved += before - budget - usize::from(popped.is_some());
            let Some((timer, deadline)) = popped else {
                break;
            };
            let (due, scheduled) = self.deadlines[&timer];
            assert_eq!(deadline, scheduled);
            assert!(due <= self.now, "early");
            assert_eq!(due, self.due.first().unwrap().0, "out of order");
            self.forget(timer);
        }
        if budget > 0 {
            assert!(self.due.first().is_none_or(|first| first.0 > self.now));
            assert_eq!(self.wheel.time(), self.now);
        }
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.deadlines.len());
        let (hint, first) = (self.wheel.next_expiry(), self.due.first().map(|due| due.0));
        match (hint, first) {
            (None, None) => {}
            (Some(hint), Some(first)) => {
                assert!(hint <= first, "the hint is late");
                assert!(hint >= self.wheel.time());
                let near = (first ^ self.wheel.time()) < 256;
                assert!(!near || hint == first || hint == self.wheel.time());
            }
            unequal => panic!("{unequal:?}"),
        }
    }
}

/// A distance of any magnitude up to 2^bits.
fn distance(random: &mut Random, bits: u64) -> u64 {
    let magnitude = random.below(bits);
    random.bits() & ((2 << magnitude) - 1)
}

fn run(seed: u64, operations: usize, capacity: u32, start: u64) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut checked = Checked::new(capacity as usize, start);
    for _ in 0..operations {
        let timer = random.below(u64::from(capacity)) as u32;
        match random.below(10) {
            0..5 => {
                let ahead = distance(&mut random, 40);
                let deadline = checked.now.saturating_add(ahead);
                checked.schedule(timer, deadline);
            }
            5 => {
                let past = distance(&mut random, 20);
                checked.schedule(timer, checked.now.saturating_sub(past));
            }
            6 => checked.cancel(timer),
            7 => checked.schedule(timer, random.bits()),
            _ => {
                let jump = match random.below(20) {
                    0 => distance(&mut random, 42),
                    1 => 0,
                    _ => distance(&mut random, 10),
                };
                let budget = match random.below(8) {
                    0 => 0,
                    1 => 1,
                    2 => usize::MAX,
                    _ => random.below(64) as usize,
                };
                checked.poll(checked.now.saturating_add(jump), budget);
            }
        }
        checked.check();
    }
    // Every timer fires in the end, and none moved more often than there are levels below it.
    checked.poll(u64::MAX, usize::MAX);
    assert!(checked.wheel.is_empty());
    assert!(checked.moved <= 7 * checked.scheduled);
}

#[test]
fn fires_as_a_sorted_map_would() {
    for seed in 0..40 {
        run(seed, 20_000, 300, 0);
        run(seed, 20_000, 5, u64::MAX - (1 << 41));
        run(seed, 10_000, 2000, 0xff_ffff_ff00);
    }
}

#[test]
#[ignore = "long: 40 million operations"]
fn fires_as_a_sorted_map_would_for_long() {
    for seed in 100..120 {
        run(seed, 2_000_000, 30_000, seed << 33);
    }
}

#[test]
fn each_boundary_of_a_level_fires_on_its_tick() {
    for start in [0, 1, 255, 256, 0xffff, 0x1_0000, (1 << 56) - 1] {
        for shift in 0..56 {
            for deadline in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let (mut wheel, deadline) = (Wheel::new("w", 1, start).unwrap(), start + deadline);
                wheel.schedule(0, deadline);
                let mut budget = 100;
                if deadline > start {
                    assert_eq!(wheel.pop(deadline - 1, &mut budget), None);
                }
                assert_eq!(wheel.pop(deadline, &mut budget), Some((0, deadline)));
                assert!(wheel.is_empty());
            }
        }
    }
}

#[test]
fn a_budget_of_one_gets_through_everything_in_order() {
    let mut wheel = Wheel::new("w", 1000, 0).unwrap();
    for timer in 0..1000 {
        wheel.schedule(timer, 100_000 + u64::from(timer) / 3);
    }
    let (mut fired, mut polls, mut last) = (0, 0, 0);
    while fired < 1000 {
        let mut budget = 1;
        polls += 1;
        if let Some((_, deadline)) = wheel.pop(200_000, &mut budget) {
            assert!(deadline >= last);
            (last, fired) = (deadline, fired + 1);
        }
    }
    // Two moves and one firing each, and one poll more for each slot that turned out empty.
    assert!(polls <= 3 * 1000 + 10, "{polls} polls");
}

#[test]
fn time_that_runs_backwards_stands_still() {
    let mut wheel = Wheel::new("w", 2, 1000).unwrap();
    wheel.schedule(0, 900);
    wheel.schedule(1, 1500);
    let mut budget = 10;
    assert_eq!(wheel.pop(10, &mut budget), Some((0, 900)));
    assert_eq!(wheel.pop(10, &mut budget), None);
    assert_eq!(wheel.time(), 1000);
    assert_eq!(wheel.next_expiry(), Some(1280));
    assert_eq!(wheel.pop(1500, &mut budget), Some((1, 1500)));
}

#[test]
fn a_timer_rescheduled_while_it_is_cascaded_fires_once() {
    let mut wheel = Wheel::new("w", 10, 0).unwrap();
    (0..10).for_each(|timer| wheel.schedule(timer, 70_000));
    let mut budget = 5;
    assert_eq!(wheel.pop(70_000, &mut budget), None);
    assert_eq!(wheel.next_expiry(), Some(wheel.time()));
    for timer in 0..10 {
        wheel.schedule(timer, 70_001);
    }
    budget = 100;
    assert_eq!(wheel.pop(70_000, &mut budget), None);
    let fired = std::iter::from_fn(|| wheel.pop(70_001, &mut budget)).count();
    assert_eq!((fired, wheel.len()), (10, 0));
}

#[test]
fn a_stale_id_does_nothing() {
    let mut timers = Timers::new("t", 1, 0).unwrap();
    let first = timers.schedule(10, 'a').unwrap();
    assert_eq!(timers.cancel(first), Some('a'));
    let second = timers.schedule(20, 'b').unwrap();
    assert_ne!(first, second);
    assert_eq!(timers.cancel(first), None);
    assert!(!timers.reschedule(first, 1));
    let mut budget = 10;
    assert_eq!(timers.pop(19, &mut budget), None);
    let fired = timers.pop(20, &mut budget).unwrap();
    assert_eq!((fired.id, fired.value), (second, 'b'));
    assert_eq!(timers.cancel(second), None);
}

#[test]
fn ids_and_values_stay_together() {
    let seed = 7;
    let mut random = Random::new(seed);
    let mut timers = Timers::new("t", 500, 0).unwrap();
    let mut live: Vec<(TimerId, u64)> = Vec::new();
    let mut now = 0;
    for value in 0..200_000 {
        match random.below(4) {
            0 | 1 => match timers.schedule(now + random.below(5000), value) {
                Ok(id) => live.push((id, value)),
                Err(error) => {
                    assert_eq!(live.len(), 500);
                    assert!(matches!(error, TableError::TimersFull { limit: 500, .. }));
                }
            },
            2 if !live.is_empty() => {
                let (id, value) = live.swap_remove(random.below(live.len() as u64) as usize);
                assert_eq!(timers.cancel(id), Some(value));
            }
            _ => {
                now += random.below(300);
                let mut budget = random.below(20) as usize;
                while let Some(fired) = timers.pop(now, &mut budget) {
                    let place = live.iter().position(|&(id, _)| id == fired.id).unwrap();
                    assert_eq!(live.swap_remove(place).1, fired.value);
                }
            }
        }
        assert_eq!(timers.len(), live.len());
    }
}

#[test]
fn a_full_wheel_and_a_wheel_too_large_name_their_limits() {
    let mut none = Timers::new("none", 0, 0).unwrap();
    let error = none.schedule(1, ()).unwrap_err().to_string();
    assert!(error.contains("`none`: all 0"), "{error}");
    let error = Wheel::new("vast", usize::MAX, 0).err().unwrap().to_string();
    assert!(error.contains("4294965247"), "{error}");
}
