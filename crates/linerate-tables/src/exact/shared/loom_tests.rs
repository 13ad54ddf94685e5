//! Loom models of the writer and a reader. Every actor has a thread of its own, each model asserts
//! that every expected outcome occurred, and each has twins with one ordering weakened that must
//! fail.
//!
//! The buckets are few, so that one thing happens at a time; the seeds below were searched for keys
//! that live where a model needs them.

use super::super::Seed;
use super::*;
use crate::sync::hooks::weaken;
use loom::thread;
use std::collections::BTreeSet;
use std::sync::Mutex;

type Key = [u8; 8];
type Table = SharedExact<8, u64>;

/// Explores `model`, which returns what its reader saw, and asserts that exactly these `expected`
/// outcomes occurred.
fn explore(
    expected: impl IntoIterator<Item = Option<u64>>,
    model: impl Fn() -> Option<u64> + Sync + Send + 'static,
) {
    let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check({
        let seen = seen.clone();
        move || {
            let outcome = model();
            seen.lock().unwrap().insert(outcome);
        }
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(
        seen,
        expected.into_iter().collect(),
        "outcomes seen (left) and expected"
    );
}

fn table(base: u32, most: u32) -> Table {
    let config = ExactConfig::new("loom", 64, Seed(1));
    SharedExact::with_buckets(&config, base, most).unwrap()
}

/// The first `count` keys whose two buckets, of `base`, are these.
fn keys(base: u32, first: u32, second: u32, count: usize) -> Vec<Key> {
    let (hash, spread) = (KeyedHash::new(Seed(1)), Spread::new(base));
    (0_u64..)
        .map(u64::to_le_bytes)
        .filter(|key| {
            let hash = hash.of(key);
            (spread.of(hash.first()), spread.of(hash.second())) == (first, second)
        })
        .take(count)
        .collect()
}

/// A thread that looks a key up.
fn look(table: &Table, key: Key) -> thread::JoinHandle<Option<u64>> {
    let reader = table.reader();
    thread::spawn(move || reader.lookup(&key))
}

/// An insert: the reader finds the whole value or nothing.
fn insert_model() {
    explore([None, Some(7)], || {
        let mut table = table(1, 1);
        let key = keys(1, 0, 0, 1)[0];
        let reader = look(&table, key);
        let writer = thread::spawn(move || {
            table.insert(&key, 7).unwrap();
            table
        });
        writer.join().unwrap();
        reader.join().unwrap()
    });
}

#[test]
fn loom_insert() {
    insert_model();
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_insert_seen_without_acquire() {
    weaken("exact.slot", insert_model);
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_insert_filled_without_release() {
    weaken("exact.fill", insert_model);
}

/// Two keys of one tag: `[the one looked for, the other]`, so that a reader that mixes both finds
/// what it looks for with the other's value.
fn same_tag() -> [Key; 2] {
    let hash = KeyedHash::new(Seed(1));
    let wanted = 0_u64.to_le_bytes();
    let tag = hash.of(&wanted).tag();
    let other = (1_u64..)
        .map(u64::to_le_bytes)
        .find(|key| hash.of(key).tag() == tag);
    [wanted, other.unwrap()]
}

/// A slot is emptied and used again for another key: whichever of the two a reader looks for, it
/// finds that one's value or nothing.
fn reuse_model(look_for_new: bool) {
    explore([None, Some(1)], move || {
        let [mine, other] = same_tag();
        let (mut before, mut after) = ((mine, 1), (other, 2));
        if look_for_new {
            std::mem::swap(&mut before, &mut after);
        }
        let mut table = table(1, 1);
        table.insert(&before.0, before.1).unwrap();
        let reader = look(&table, mine);
        let writer = thread::spawn(move || {
            table.remove(&before.0);
            table.insert(&after.0, after.1).unwrap();
        });
        writer.join().unwrap();
        reader.join().unwrap()
    });
}

#[test]
fn loom_reuse() {
    reuse_model(false);
    reuse_model(true);
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_reuse_without_fence_of_the_writer() {
    weaken("exact.reuse", || reuse_model(false));
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_reuse_without_fence_of_the_reader() {
    weaken("exact.whole", || reuse_model(true));
}

/// An entry moves from its first bucket to its second and back: it is always found.
fn move_model(back: bool) {
    explore([Some(5)], move || {
        let mut table = table(2, 2);
        let key = keys(2, 0, 1, 1)[0];
        table.insert(&key, 5).unwrap();
        if back {
            table.change_over((0, 0), (1, 0));
        }
        let reader = look(&table, key);
        let writer = thread::spawn(move || match back {
            true => table.change_over((1, 0), (0, 0)),
            false => table.change_over((0, 0), (1, 0)),
        });
        writer.join().unwrap();
        reader.join().unwrap()
    });
}

#[test]
fn loom_move_to_the_second_bucket() {
    move_model(false);
}

#[test]
fn loom_move_to_the_first_bucket() {
    move_model(true);
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_move_emptied_without_release() {
    weaken("exact.empty", || move_model(true));
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_move_seen_without_acquire() {
    weaken("exact.slot", || move_model(true));
}

/// A bucket is split: what parts is always found.
fn split_model() {
    explore([Some(5)], || {
        let mut table = table(1, 2);
        let (hash, mut after) = (KeyedHash::new(Seed(1)), Spread::new(1));
        after.grow();
        let parting = |key: &Key| {
            let hash = hash.of(key);
            after.of(hash.first()) == 1 && after.of(hash.second()) == 1
        };
        let key = (0_u64..).map(u64::to_le_bytes).find(parting).unwrap();
        table.insert(&key, 5).unwrap();
        table.shared.reach(2).unwrap();
        let reader = look(&table, key);
        let writer = thread::spawn(move || table.split().unwrap());
        writer.join().unwrap();
        reader.join().unwrap()
    });
}

#[test]
fn loom_split() {
    split_model();
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_split_published_without_release() {
    weaken("exact.spread", split_model);
}

#[test]
#[should_panic(expected = "outcomes seen")]
fn loom_split_emptied_without_release() {
    weaken("exact.empty", split_model);
}
