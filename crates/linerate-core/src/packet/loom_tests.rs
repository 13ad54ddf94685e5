//! Loom models of what lies between caches: the depot's tagged stack and the return list. The same
//! rules as for the rings': every actor in a thread of its own, every expected outcome asserted,
//! and for each ordering a variant without it that must fail.
#![allow(unsafe_code)]

use super::depot::{Depot, MAGAZINE, ReturnList, Stack, pushes_between};
use crate::ring::loom_tests::explore;
use crate::sync::hooks::weaken;
use crate::sync::{Arc, AtomicU32, UnsafeCell};
use loom::thread;

/// A magazine's worth of handles, told by their first.
fn magazine(first: u32) -> [u32; MAGAZINE] {
    std::array::from_fn(|index| first + index as u32)
}

/// Takes a magazine, checks that it is whole, and returns its first handle.
fn take(depot: &Depot) -> Option<u32> {
    let mut handles = [0; MAGAZINE];
    depot.take(&mut handles).then(|| {
        assert_eq!(handles, magazine(handles[0]), "a torn magazine");
        handles[0]
    })
}

/// Two caches that share a depot of two magazines, one of them full: each puts one and takes one.
/// No handle is lost or doubled, and whoever has a magazine has it alone (loom watches each).
fn depot_model() {
    // What one (own: 200) and the other (300) took: there is always a full magazine for each. Who
    // puts when the other has put must wait for its take, so they never swap.
    let expected = [(100, 200), (100, 300), (200, 100), (200, 300), (300, 100)];
    explore(2, expected, || {
        let depot = Arc::new(Depot::of_magazines(2));
        assert!(depot.put(&magazine(100)));
        let cache = |own: u32| {
            let depot = depot.clone();
            move || {
                let kept = (!depot.put(&magazine(own))).then_some(own);
                (kept, take(&depot).expect("a full magazine for each"))
            }
        };
        let (one, other) = (thread::spawn(cache(200)), thread::spawn(cache(300)));
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        let mut all = vec![one.1, other.1];
        all.extend(one.0.into_iter().chain(other.0));
        all.extend(std::iter::from_fn(|| take(&depot)));
        all.sort_unstable();
        assert_eq!(all, [100, 200, 300], "lost or doubled");
        let room = depot.put(&magazine(1)) && depot.put(&magazine(2));
        assert!(room, "a magazine is lost");
        (one.1, other.1)
    });
}

#[test]
fn loom_depot() {
    depot_model();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_depot_pushed_without_release() {
    weaken("depot.push", depot_model);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_depot_popped_without_acquire() {
    weaken("depot.pop", depot_model);
}

/// One thread pops while another pops two and gives the first back: the index that the one read
/// is on top again, but what lies below it has changed.
fn reuse_model() {
    explore(3, [None, Some(0), Some(1)], || {
        let shared = Arc::new((Stack::new(), [AtomicU32::new(0), AtomicU32::new(0)]));
        shared.0.push(&shared.1, 1);
        shared.0.push(&shared.1, 0);
        let pop = {
            let shared = shared.clone();
            thread::spawn(move || shared.0.pop(&shared.1))
        };
        let reuse = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (first, second) = (shared.0.pop(&shared.1), shared.0.pop(&shared.1));
                if let Some(first) = first {
                    shared.0.push(&shared.1, first);
                }
                second
            })
        };
        let (popped, kept) = (pop.join().unwrap(), reuse.join().unwrap());
        let mut all: Vec<u32> = popped.into_iter().chain(kept).collect();
        all.extend(std::iter::from_fn(|| shared.0.pop(&shared.1)).take(3));
        all.sort_unstable();
        assert_eq!(all, [0, 1], "lost or doubled");
        popped
    });
}

#[test]
fn loom_depot_reuse() {
    reuse_model();
}

#[test]
#[should_panic(expected = "lost or doubled")]
fn loom_depot_reuse_without_tag() {
    weaken("depot.tag", reuse_model);
}

/// Slots that link to each other as packets' metadata lines do.
struct Lines([UnsafeCell<u32>; 3]);

impl Lines {
    fn new() -> Arc<(ReturnList, Self)> {
        let lines = Self(std::array::from_fn(|_| UnsafeCell::new(0)));
        Arc::new((ReturnList::new(), lines))
    }

    /// Links slot `slot` (from 1 on) to the next.
    fn link(&self, slot: u32, next: u32) {
        self.0[slot as usize - 1].with_mut(|line| {
            // SAFETY: loom checks that no other thread has the line now.
            unsafe { *line = next };
        });
    }

    /// The slots from `first` on.
    fn walk(&self, first: u32) -> Vec<u32> {
        let next = |&slot: &u32| {
            let next = self.0[slot as usize - 1].with(|line| {
                // SAFETY: as above.
                unsafe { *line }
            });
            (next != 0).then_some(next)
        };
        std::iter::successors((first != 0).then_some(first), next)
            .take(4)
            .collect()
    }
}

/// Two droppers, one of a single slot and one of a chain of two, and a cache that takes the list
/// twice: each slot comes once, whoever comes first, and the books count each push.
fn returns_model() {
    // What the two takes found: nothing, the chain (2), the single (1), or both.
    let expected = [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 2),
        (2, 0),
        (2, 1),
        (3, 0),
    ];
    explore(2, expected, || {
        let shared = Lines::new();
        let dropper = |first: u32, count: u32| {
            let shared = shared.clone();
            move || {
                let (list, lines) = &*shared;
                if count == 2 {
                    lines.link(first, first + 1);
                }
                let last = first + count - 1;
                assert!(!list.push(first, count, |next| lines.link(last, next)));
            }
        };
        let single = thread::spawn(dropper(1, 1));
        let chain = thread::spawn(dropper(2, 2));
        let taker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (list, lines) = &*shared;
                [(); 2].map(|()| lines.walk(list.take_all()))
            })
        };
        single.join().unwrap();
        chain.join().unwrap();
        let [first, second] = taker.join().unwrap();
        let (list, lines) = &*shared;
        let mut all = [first.clone(), second.clone(), lines.walk(list.take_all())].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3], "lost or doubled");
        assert_eq!(list.pushes(), 3);
        (first.len(), second.len())
    });
}

#[test]
fn loom_returns() {
    returns_model();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_returns_pushed_without_release() {
    weaken("returns.push", returns_model);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_returns_taken_without_acquire() {
    weaken("returns.take", returns_model);
}

/// Two packets outlive their pool: while both are dropped, the last `Pool` value goes. Exactly one
/// of the three finds every slot home and frees the pool, after everybody's last look at it.
fn orphan_model() {
    explore(3, ["first", "owner", "second"], || {
        let shared = Lines::new();
        // Stands for the pool's memory: looked at by all, written by whoever frees it.
        let memory = Arc::new(UnsafeCell::new(()));
        let look = |memory: &UnsafeCell<()>| memory.with(|_| ());
        let dropper = |slot: u32| {
            let (shared, memory) = (shared.clone(), memory.clone());
            move || {
                let (list, lines) = &*shared;
                look(&memory);
                let last = list.push(slot, 1, |next| lines.link(slot, next));
                if last {
                    memory.with_mut(|_| ());
                }
                last
            }
        };
        let (first, second) = (thread::spawn(dropper(1)), thread::spawn(dropper(2)));
        let owner = {
            let (shared, memory) = (shared.clone(), memory.clone());
            thread::spawn(move || {
                look(&memory);
                // All that is home came through the list, and nobody took any from it.
                let all_home = shared.0.orphan(|pushes| 2 - pushes_between(0, pushes));
                if all_home {
                    memory.with_mut(|_| ());
                }
                all_home
            })
        };
        let freed = [
            (first.join().unwrap(), "first"),
            (owner.join().unwrap(), "owner"),
            (second.join().unwrap(), "second"),
        ];
        let by: Vec<_> = freed.iter().filter(|(freed, _)| *freed).collect();
        assert_eq!(by.len(), 1, "freed by {by:?}, not by exactly one");
        by[0].1
    });
}

#[test]
fn loom_orphan() {
    orphan_model();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_orphan_pushed_without_release() {
    weaken("returns.push", orphan_model);
}

#[test]
#[should_panic(expected = "not by exactly one")]
fn loom_orphan_mark_seen_without_acquire() {
    weaken("returns.seen", orphan_model);
}

#[test]
#[should_panic(expected = "not by exactly one")]
fn loom_orphan_marked_without_release() {
    weaken("returns.orphan", orphan_model);
}
