//! Buckets that move: flows that have begun still have one owner, for any number of workers; and
//! under a running gateway no packet is lost or overtaken.

use serde_json::{Value, json};

use super::running::{Peer, text};
use super::*;
use crate::GATEWAY;
use linerate_control::Embedded;
use linerate_dispatch::moves::Ties;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use std::time::{Duration, Instant};

/// Begins flows and moves buckets in turn, each alone or with those that it is tied to. Returns how
/// often the two directions of a flow did not meet any more.
fn astray(workers: usize, follows_ties: bool) -> usize {
    let mut random = Random::new(workers as u64);
    let (mut owners, classes, mut all) = shards(workers);
    let mut ties: Vec<Ties> = (0..workers).map(|_| Ties::default()).collect();
    let mut flows = Vec::new();
    let mut astray = 0;
    let at = |zone| At {
        zone,
        interface: zone,
    };
    let of = |tuple: &Tuple| classes.one(&tuple.key().unwrap());
    for number in 0..200_u32 {
        let (tuple, from) = some_flow(&mut random, number);
        let bucket = of(&tuple);
        let owner = usize::from(owners.of(bucket));
        let first = First {
            tuple,
            from: at(from),
            bucket,
        };
        let destination = all[owner].destination(&first).unwrap();
        let to = at(OUTSIDE + INSIDE - from);
        let becomes = all[owner].source(&first, &destination, to, 0, random.bits());
        let becomes = becomes.unwrap().tuple;
        let back = of(&becomes.reversed());
        ties[owner].add(bucket, back);
        flows.push((bucket, back));
        if number % 4 != 0 {
            continue;
        }
        let bucket = random.below(256) as u8;
        let (from, to) = (owners.of(bucket), random.below(workers as u64) as Owner);
        if from == to {
            continue;
        }
        let (old, new) = (usize::from(from), usize::from(to));
        let mut buckets = ties[old].with(bucket);
        if !follows_ties {
            buckets = Bits::NONE;
            buckets.set(bucket);
        }
        for bucket in buckets.iter() {
            assert_eq!(owners.of(bucket), from, "tied buckets have one owner");
            let moved = all[old].take_bucket(bucket);
            assert!(all[new].put_bucket(moved, 0).is_empty());
            owners.set(bucket, to);
        }
        ties[old].forget(&buckets);
        for (bucket, back) in flows.iter().filter(|(bucket, _)| buckets.has(*bucket)) {
            ties[new].add(*bucket, *back);
        }
        astray += flows
            .iter()
            .filter(|(bucket, back)| owners.of(*bucket) != owners.of(*back))
            .count();
    }
    astray
}

#[test]
fn both_directions_meet_on_one_worker_while_buckets_move() {
    for workers in 1..=WORKERS {
        assert_eq!(astray(workers, true), 0, "{workers} workers");
    }
    // A bucket that goes alone leaves answers behind: so the test can fail.
    assert!(astray(3, false) > 0);
}

/// Where a datagram has its number.
const NUMBER: usize = 14 + 20 + 8;
/// Packets of one flow under way at most.
const AHEAD: u32 = 4;

fn numbered(tuple: &Tuple, port: u16, number: u32) -> Frame {
    let mut frame = datagram(tuple, port);
    frame.payload[8..12].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame[NUMBER..].first_chunk().unwrap())
}

/// The numbers that a flow has had on its way.
#[derive(Default)]
struct Course {
    sent: u32,
    back: u32,
}

/// Flows that send all the time, `each` packets of each, which come back; `between` is called all
/// the time. All come, in their order.
fn stream(peers: &mut [Peer; 2], each: u32, between: &mut dyn FnMut()) {
    let [wan, lan] = peers;
    let all: Vec<Tuple> = hosts(protocol::UDP).collect();
    let mut courses: BTreeMap<Endpoint, Course> = BTreeMap::new();
    // The next number by the outside, which a flow has for good.
    let mut outsides: BTreeMap<Endpoint, u32> = BTreeMap::new();
    let patience = Instant::now() + Duration::from_secs(120);
    let mut left = all.len();
    while left > 0 {
        for tuple in &all {
            let course = courses.entry(tuple.src).or_default();
            // The first one alone: its mapping is to be seen.
            let ahead = if course.back == 0 { 1 } else { AHEAD };
            while course.sent < each && course.sent - course.back < ahead {
                lan.send(&numbered(tuple, INSIDE, course.sent));
                course.sent += 1;
            }
        }
        for sent in wan.receive() {
            let outside = ends(&sent);
            let next = outsides.entry(outside.src).or_insert(0);
            assert_eq!(number(&sent), *next, "{outside}: in order, none lost");
            *next += 1;
            wan.send(&numbered(&outside.reversed(), OUTSIDE, number(&sent)));
        }
        for back in lan.receive() {
            let host = ends(&back).dst;
            let course = courses.get_mut(&host).unwrap();
            assert_eq!(number(&back), course.back, "{host}: in order, none lost");
            course.back += 1;
            left -= usize::from(course.back == each);
        }
        assert!(Instant::now() < patience, "{left} flows are not through");
        between();
        std::thread::yield_now();
    }
    assert_eq!(outsides.len(), all.len(), "no flow has changed its outside");
}

#[test]
fn buckets_move_in_a_running_gateway_without_loss_and_in_order() {
    for (plan, mode, keys, owners) in [
        ("io = \"1-3\"\n", "balanced", "", [0, 1, 2]),
        (
            "io = \"1-3\"\n",
            "balanced",
            "rebalance = true\n",
            [0, 1, 2],
        ),
        ("io = \"1-2\"\neu = \"3-5\"\n", "dispatcher", "", [2, 3, 4]),
    ] {
        let scratch = Scratch::new();
        let file = scratch.file("gateway.toml");
        std::fs::write(&file, text(plan, mode, keys)).unwrap();
        let mut drivers = Drivers::new();
        let mut peers = [("ring:wan,size=2048", 0), ("ring:lan,size=2048", 1)]
            .map(|(spec, number)| Peer::new(&mut drivers, spec, number));
        let gateway = Embedded::start(GATEWAY, Path::new(&file), &mut drivers, 0).unwrap();
        let (mut random, mut moved) = (Random::new(3), 0);
        let mut next = Instant::now();
        stream(&mut peers, 150, &mut || {
            if Instant::now() < next {
                return;
            }
            next = Instant::now() + Duration::from_millis(3);
            let (bucket, worker) = (random.below(256), random.of(&owners));
            let asked = json!({ "bucket": bucket, "worker": worker });
            let told = gateway.ask("move", asked).unwrap();
            moved += told["buckets"].as_array().unwrap().len();
        });
        assert!(moved > 20, "{moved} buckets have moved");
        let table = gateway.show("workers").unwrap();
        let rows = table["rows"].as_array().unwrap();
        let sum = |key: &str| -> u64 { rows.iter().map(|row| row[key].as_u64().unwrap()).sum() };
        assert_eq!((sum("buckets"), sum("flows")), (256, 60), "{rows:?}");
        assert!(sum("handed") > 0, "{rows:?}");
        let drops = gateway.show("drops").unwrap();
        assert_eq!(drops["rows"], Value::Array(Vec::new()), "{mode}");
        let wrong = gateway.ask("move", json!({ "bucket": 1, "worker": 9 }));
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .contains("worker 9 owns no flows")
        );
        let books = gateway.stop().unwrap();
        assert_eq!(books.missing, 0, "{mode}: {books}");
    }
}

/// All buckets begin on one worker, and each packet passes meanwhile.
#[test]
fn loads_become_even_by_themselves() {
    let scratch = Scratch::new();
    let file = scratch.file("gateway.toml");
    let text = text("io = \"1-3\"\n", "balanced", "rebalance = true\n");
    std::fs::write(&file, text).unwrap();
    let mut drivers = Drivers::new();
    let mut peers = [("ring:wan,size=2048", 0), ("ring:lan,size=2048", 1)]
        .map(|(spec, number)| Peer::new(&mut drivers, spec, number));
    let gateway = Embedded::start(GATEWAY, Path::new(&file), &mut drivers, 0).unwrap();
    for bucket in 0..256 {
        let asked = json!({ "bucket": bucket, "worker": 0 });
        gateway.ask("move", asked).unwrap();
    }
    let patience = Instant::now() + Duration::from_secs(120);
    loop {
        stream(&mut peers, 100, &mut || {});
        let table = gateway.show("workers").unwrap();
        let rows = table["rows"].as_array().unwrap();
        let shares = rows.iter().map(|row| row["load_share"].as_f64());
        // Unknown before the end of the first interval.
        if shares
            .clone()
            .all(|share| share.is_some_and(|share| share < 0.42))
        {
            assert!(rows.iter().all(|row| row["note"] == ""), "{rows:?}");
            break;
        }
        assert!(Instant::now() < patience, "{rows:?}");
    }
    let books = gateway.stop().unwrap();
    assert_eq!(books.missing, 0, "{books}");
}
