//! Safe code cannot break packets, pools and rings: after swaps, `mem::forget` and impossible sizes
//! a packet stays in its slot, and each slot has one owner. Most useful under a sanitizer.
#![allow(clippy::unwrap_used)]

use linerate_core::arch::CachePadded;
use linerate_core::mem::HugeArray;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_core::ring::{Pop, Push, mpmc, spsc};
use std::collections::BTreeSet;
use std::fs;
use std::mem::{forget, replace, swap, take};
use std::path::Path;

/// Every public function of the crate that hands out a `&mut`: the test that takes it at its word,
/// or why none has to. A new one is missing here until somebody has asked what can be exchanged
/// through it that unsafe code trusts.
const HANDED_OUT: &[(&str, &str)] = &[
    (
        "arch.rs deref_mut",
        "mutable_dereferences_give_what_safe_code_owns",
    ),
    (
        "mem/array.rs deref_mut",
        "mutable_dereferences_give_what_safe_code_owns",
    ),
    (
        "packet/burst.rs as_packets_mut",
        "packets_exchanged_between_bursts_keep_their_slots",
    ),
    (
        "packet/burst.rs front",
        "a_forgotten_front_gives_no_packet_twice",
    ),
    (
        "packet/burst.rs iter_mut",
        "packets_exchanged_between_bursts_keep_their_slots",
    ),
    (
        "packet/packet.rs append",
        "impossible_sizes_leave_a_packet_in_its_slot",
    ),
    (
        "packet/packet.rs data_mut",
        "impossible_sizes_leave_a_packet_in_its_slot",
    ),
    (
        "packet/packet.rs meta_mut",
        "metadata_exchanged_leave_packets_where_they_are",
    ),
    (
        "packet/packet.rs prepend",
        "impossible_sizes_leave_a_packet_in_its_slot",
    ),
    (
        "ring/slices.rs slices",
        "lent_slots_that_nobody_commits_are_not_elements",
    ),
    (
        "run/stage.rs exits_mut",
        "the application's own, in a file without unsafe code",
    ),
    (
        "run/egress.rs points",
        "counters and taps, in a file without unsafe code",
    ),
    (
        "run/point.rs stage_mut",
        "the application's own, in a file without unsafe code",
    ),
    (
        "run/stage.rs first_mut",
        "the application's own, in a file without unsafe code",
    ),
    (
        "run/stage.rs second_mut",
        "the application's own, in a file without unsafe code",
    ),
    (
        "run/stage.rs stage_mut",
        "the application's own, in a file without unsafe code",
    ),
];

/// The public functions below `folder` whose result has a `&mut` in it.
fn handed_out(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            handed_out(root, &path, found);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for (at, _) in source.match_indices("fn ") {
            let line = &source[source[..at].rfind('\n').map_or(0, |end| end + 1)..at];
            let signature = &source[at + 3..];
            let signature = &signature[..signature.find(['{', ';']).unwrap_or(0)];
            let Some((name, _)) = signature.split_once(['(', '<']) else {
                continue;
            };
            let of_traits = ["deref_mut", "index_mut", "as_mut", "borrow_mut"];
            let public = line.trim_start().starts_with("pub ") || of_traits.contains(&name);
            let hidden = line.contains("pub(") || line.contains("//");
            let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
            let result = result.split("where").next().unwrap_or("");
            if public && !hidden && result.contains('&') && result.contains("mut ") {
                let file = path.strip_prefix(root).unwrap().display();
                found.insert(format!("{file} {name}"));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn every_mutable_reference_that_is_handed_out_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    handed_out(&root, &root, &mut found);
    let listed: BTreeSet<String> = HANDED_OUT.iter().map(|(name, _)| (*name).into()).collect();
    assert_eq!(found, listed, "found in the sources (left) and listed here");
}

fn pool(name: &str, slots: u32, class: SlotClass) -> Pool {
    Pool::new(&PoolConfig {
        class,
        ..PoolConfig::new(name, slots)
    })
    .unwrap()
}

/// Where a packet is: its pool, its slot, its bytes.
fn place(packet: &Packet) -> (String, u32, usize, Vec<u8>) {
    let (slot, pool) = packet.slot();
    (
        pool.into(),
        slot,
        packet.data().as_ptr().addr(),
        packet.data().to_vec(),
    )
}

#[test]
fn metadata_exchanged_leave_packets_where_they_are() {
    let (small, large) = (
        pool("small", 4, SlotClass::Small),
        pool("large", 4, SlotClass::Large),
    );
    let mut cache = PoolCache::new(&[]);
    let (mut one, mut other) = (cache.get(&small).unwrap(), cache.get(&large).unwrap());
    assert!(one.set_data(&[1; 60]) && other.set_data(&[2; 65_000]));
    other.meta_mut().offload = Offload::VLAN;
    let before = (place(&one), place(&other));
    swap(one.meta_mut(), other.meta_mut());
    assert_eq!(
        one.meta().offload,
        Offload::VLAN,
        "the application's fields went over"
    );
    let old = replace(one.meta_mut(), *other.meta());
    *other.meta_mut() = old;
    assert_eq!((place(&one), place(&other)), before);
    // The large packet's pool goes before it does; its slot is written to all the same.
    drop((large, cache));
    other.data_mut().fill(3);
    swap(one.meta_mut(), other.meta_mut());
    drop(other);
    one.data_mut().fill(4);
    assert_eq!(one.data(), [4; 60]);
}

#[test]
fn packets_exchanged_between_bursts_keep_their_slots() {
    let pools = ["a", "b"].map(|name| pool(name, 70, SlotClass::Small));
    let mut cache = PoolCache::new(&[]);
    let [mut a, mut b] = [Burst::new(), Burst::new()];
    assert_eq!(cache.fill(&pools[0], &mut a, 40), 40);
    assert_eq!(cache.fill(&pools[1], &mut b, 30), 30);
    let mut places: Vec<_> = a.iter().chain(b.iter()).map(place).collect();
    swap(&mut a.as_packets_mut()[3], &mut b.as_packets_mut()[29]);
    a.iter_mut()
        .zip(b.iter_mut())
        .for_each(|(one, other)| swap(one, other));
    a.as_packets_mut().reverse();
    swap(&mut a, &mut b);
    // A forgotten iterator's packets are lost, but never doubled.
    let mut parts = b.parts();
    let mut taken = Burst::new();
    parts.take(0b1010, &mut taken);
    forget(parts);
    assert_eq!((a.len(), b.len(), taken.len()), (30, 0, 2));
    let mut now: Vec<_> = a.iter().chain(taken.iter()).map(place).collect();
    now.sort();
    places.sort();
    now.dedup();
    assert_eq!(now.len(), 32);
    assert!(
        now.iter()
            .all(|packet| places.binary_search(packet).is_ok())
    );
    drop((take(&mut a), taken));
    let home = pools.map(|pool| std::iter::from_fn(|| cache.get(&pool)).map(forget).count());
    assert_eq!(
        home.iter().sum::<usize>(),
        140 - 38,
        "all but the 38 that were forgotten"
    );
}

#[test]
fn impossible_sizes_leave_a_packet_in_its_slot() {
    for class in [SlotClass::Small, SlotClass::Large] {
        let pool = pool("sizes", 3, class);
        let (start, bytes) = pool.data_span();
        let slot_bytes = pool.slot_bytes();
        let mut packet = PoolCache::new(&[]).get(&pool).unwrap();
        let slot = start.addr() + pool.slot_offset(&packet).unwrap();
        assert!(slot + slot_bytes <= start.addr() + bytes);
        let near = [0, 1, 64, 255, 256, 257, slot_bytes, 65_535, 65_536];
        let far = [u32::MAX as usize, 1 << 32, usize::MAX / 2, usize::MAX];
        let mut sizes: Vec<usize> = near.iter().chain(&far).copied().collect();
        // What makes the sum of two wrap to something small.
        sizes.extend(
            near.iter()
                .flat_map(|size| [usize::MAX - size, (1 << 32) + size]),
        );
        for &one in &sizes {
            for &two in &sizes {
                let span = packet.set_span(one, two);
                let fits =
                    one <= 65_535 && one.checked_add(two).is_some_and(|end| end <= slot_bytes);
                assert_eq!(span, fits, "{two} bytes from {one} on");
                packet.set_len(one);
                packet.trim_front(two);
                if let Some(new) = packet.append(one) {
                    new.fill(1);
                }
                if let Some(new) = packet.prepend(two) {
                    new.fill(2);
                }
                packet.truncate(one);
                if let Some(new) = packet.append(two) {
                    new.fill(3);
                }
                let data = packet.data_mut();
                data.fill(4);
                let (at, len) = (data.as_ptr().addr(), data.len());
                assert!(
                    at >= slot && at + len <= slot + slot_bytes,
                    "{one} and {two}: left its slot"
                );
                assert_eq!(
                    packet.headroom() + packet.len() + packet.tailroom(),
                    slot_bytes
                );
            }
        }
        packet.widen();
        assert_eq!(packet.len(), slot_bytes);
    }
}

#[test]
#[allow(clippy::forget_non_drop, clippy::drop_non_drop)] // what a caller may do
fn lent_slots_that_nobody_commits_are_not_elements() {
    let (mut tx, mut rx) = spsc::ring::<Box<u32>>(4);
    let (mut tx2, mut rx2) = spsc::ring::<Box<u32>>(4);
    let mut lent = tx.reserve(4);
    lent.slices().0[0].write(Box::new(1));
    let mut lent2 = tx2.reserve(2);
    swap(&mut lent.slices().0[0], &mut lent2.slices().0[1]);
    swap(&mut lent, &mut lent2);
    forget(lent);
    drop(lent2);
    assert!(rx.pop().is_none() && rx2.pop().is_none());
    assert!(tx.push(Box::new(2)).is_ok() && tx2.push(Box::new(3)).is_ok());
    // A loan that is forgotten gives nothing away, and the ends may be exchanged whole.
    forget(rx.peek(1));
    swap(&mut rx, &mut rx2);
    swap(&mut tx, &mut tx2);
    assert_eq!(
        (rx.pop(), rx2.pop()),
        (Some(Box::new(3)), Some(Box::new(2)))
    );
    let (mut tx, mut rx) = mpmc::ring::<Packet>(4);
    let pool = pool("mpmc", 4, SlotClass::Small);
    assert!(tx.push(PoolCache::new(&[]).get(&pool).unwrap()).is_ok());
    let (mut tx2, rx2) = mpmc::ring::<Packet>(4);
    swap(&mut tx, &mut tx2);
    drop((tx, rx2, tx2));
    assert!(rx.pop().is_some() && rx.pop().is_none());
}

#[test]
fn mutable_dereferences_give_what_safe_code_owns() {
    let mut one = HugeArray::from_fn("one", 3, |i| vec![i]).unwrap();
    let mut other = HugeArray::from_fn("other", 5, |i| vec![i + 10]).unwrap();
    swap(&mut one[0], &mut other[4]);
    swap(&mut one, &mut other);
    assert_eq!((one.len(), &other[0]), (5, &vec![14]));
    let mut padded = CachePadded::new(vec![1]);
    assert_eq!(replace(&mut *padded, vec![2]), [1]);
}

#[test]
fn a_forgotten_front_gives_no_packet_twice() {
    let pool = pool("front", 64, SlotClass::Small);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut burst = Burst::new();
    assert_eq!(cache.fill(&pool, &mut burst, 4), 4);
    let mut front = burst.front();
    let first = front.next().unwrap();
    forget(front);
    // The other three are lost; the one that was taken is nobody else's.
    assert!(burst.is_empty());
    cache.free_one(first);
    drop(burst);
}
