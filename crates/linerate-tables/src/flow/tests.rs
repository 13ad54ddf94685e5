//! The table against a plain map, and what is promised of it case by case.

use super::*;
use crate::exact::Seed;

mod collisions;
mod model;

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
fn a_packet_sees_the_state_that_one_before_it_in_the_burst_has_left() {
    let mut table = FlowTable4::new(&config(10), 0).unwrap();
    table.insert(0, flow(1), first(0)).unwrap();
    let mut found = [None; 2];
    table.lookup_bulk(&[flow(1), flow(1).reversed()], &mut found);
    let [Some(one), Some(other)] = found else {
        panic!("both are of the flow");
    };
    assert_eq!(table.flow_mut(&one, flow(1)).unwrap().state, 0);
    table.set_state(one.flow, 1).unwrap();
    let seen = table.flow_mut(&other, flow(1).reversed()).unwrap();
    assert_eq!((other.state, seen.state), (0, 1));
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
