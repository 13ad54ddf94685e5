//! Ownership, exhaustion and lifetime of slots.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use super::*;
use crate::mem::{PageKind, PagePolicy};
use std::sync::mpsc;

fn pool(slots: u32) -> Pool {
    // Plain pages: many small pools in parallel must not eat the machine's huge pages.
    Pool::new(&PoolConfig {
        pages: PagePolicy::Only(PageKind::Base4K),
        ..PoolConfig::new("test", slots)
    })
    .unwrap()
}

/// Takes every slot there is.
fn take_all(cache: &mut PoolCache, pool: &Pool) -> Vec<Packet> {
    std::iter::from_fn(|| cache.get(pool)).collect()
}

#[test]
fn a_pool_gives_every_slot_once_and_then_refuses() {
    for slots in [1, 63, 64, 65, 1000] {
        let pool = pool(slots);
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let packets = take_all(&mut cache, &pool);
        assert_eq!(packets.len(), slots as usize);
        let mut seen: Vec<u32> = packets.iter().map(|packet| packet.slot().0).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..slots), "each slot once");
        assert!(
            pool.stats().refused > 0,
            "the last request was refused and counted"
        );
        drop(packets);
        assert_eq!(
            take_all(&mut cache, &pool).len(),
            slots as usize,
            "plain drops came home"
        );
    }
}

#[test]
fn a_short_pool_fills_a_burst_partly() {
    let pool = pool(10);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut burst = Burst::new();
    assert_eq!(cache.fill(&pool, &mut burst, 32), 10);
    assert_eq!((burst.len(), pool.stats().refused), (10, 1));
    cache.free(&mut burst);
    assert_eq!(cache.held(&pool) + pool.stats().free_shared as usize, 10);
}

/// A packet that is taken alone is like one of `take`: as its last owner left it, and counted.
#[test]
fn one_packet_is_taken_as_it_was_left() {
    let pool = pool(2);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    for _ in 0..2 {
        let mut packet = cache.get(&pool).unwrap();
        assert!(packet.len() == 0 && packet.set_data(b"left behind"));
        cache.free_one(packet);
    }
    let packet = cache.take_one(&pool).unwrap();
    assert_eq!(packet.data(), b"left behind");
    let other = cache.take_one(&pool);
    assert!(cache.take_one(&pool).is_none(), "the pool has two slots");
    assert_eq!(pool.stats().refused, 1);
    drop((packet, other));
    let mut empty = PoolCache::new(&[]);
    assert!(empty.take_one(&pool).is_some(), "a pool not met before");
}

#[test]
fn data_grows_and_shrinks_within_the_slot() {
    let pool = pool(4);
    let mut packet = PoolCache::new(&[]).get(&pool).unwrap();
    assert!(packet.set_data(b"0123456789"));
    packet.prepend(2).unwrap().copy_from_slice(b"ab");
    packet.append(1).unwrap().copy_from_slice(b"z");
    assert_eq!(packet.data(), b"ab0123456789z");
    assert!(packet.trim_front(3) && !packet.trim_front(11));
    packet.truncate(4);
    assert_eq!(packet.data(), b"1234");
    assert!(packet.prepend(packet.headroom() + 1).is_none());
    assert!(packet.append(packet.tailroom() + 1).is_none());
    assert!(!packet.set_len(pool.slot_bytes()));
    assert!(packet.append(packet.tailroom()).is_some());
    assert_eq!(packet.tailroom(), 0);
    assert!(
        !packet.set_span(pool.slot_bytes() - 3, 4) && packet.set_span(pool.slot_bytes() - 4, 4)
    );
    packet.set_user(77_u64);
    assert_eq!(packet.user::<u64>(), 77);
}

#[test]
fn a_fresh_packet_shows_nothing_of_the_last_one() {
    let pool = pool(1);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut packet = cache.get(&pool).unwrap();
    assert!(packet.set_data(&[1; 100]) && packet.trim_front(50));
    packet.meta_mut().offload = Offload::CSUM_PARTIAL | Offload::VLAN;
    packet.meta_mut().vlan_tci = 5;
    cache.free_one(packet);
    let packet = cache.get(&pool).unwrap();
    assert_eq!(
        (packet.len(), packet.headroom()),
        (0, pool.headroom_bytes())
    );
    assert_eq!(
        (packet.meta().offload, packet.meta().vlan_tci),
        (Offload::NONE, 0)
    );
}

#[test]
fn a_receiver_makes_packets_in_their_slots() {
    let pool = pool(3);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let (mut burst, template) = (
        Burst::new(),
        RxTemplate {
            port: 9,
            ..RxTemplate::default()
        },
    );
    let made = cache.fill_each(&pool, &mut burst, 4, template, |number, room| {
        assert_eq!(room.len(), pool.room_bytes());
        room[..3].fill(number as u8);
        (number as u32, 70 + number as u64)
    });
    assert_eq!((made, burst.len()), (3, 3), "as many as there are");
    for (number, packet) in burst.iter().enumerate() {
        assert_eq!(packet.data(), vec![number as u8; number]);
        let meta = packet.meta();
        assert_eq!((packet.port(), meta.timestamp), (9, 70 + number as u64));
        assert_eq!(packet.headroom(), pool.headroom_bytes());
    }
    cache.free(&mut burst);
}

#[test]
fn bursts_keep_order() {
    let pool = pool(64);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let (mut burst, mut front, mut odd) = (Burst::new(), Burst::with_room(3), Burst::new());
    cache.fill(&pool, &mut burst, 10);
    burst
        .iter_mut()
        .enumerate()
        .for_each(|(i, packet)| packet.set_user(i as u64));
    assert_eq!(burst.move_front(5, &mut front), 3);
    burst.retain(&mut odd, |packet| packet.user::<u64>() % 2 == 0);
    let users = |burst: &Burst| burst.iter().map(Packet::user::<u64>).collect::<Vec<_>>();
    assert_eq!(
        (users(&front), users(&burst), users(&odd)),
        (vec![0, 1, 2], vec![4, 6, 8], vec![3, 5, 7, 9])
    );
    let mut drained = odd.drain();
    assert_eq!(drained.next().unwrap().user::<u64>(), 3);
    drop(drained);
    let mut taking = burst.front();
    assert_eq!(taking.peek().map(Packet::user::<u64>), Some(4));
    assert_eq!(taking.len(), 3);
    cache.free_one(taking.next().unwrap());
    // What was looked at and not taken stays.
    assert_eq!(taking.peek().map(Packet::user::<u64>), Some(6));
    drop(taking);
    assert_eq!(users(&burst), [6, 8]);
    drop((burst, front));
    assert_eq!(take_all(&mut cache, &pool).len(), 64);
}

#[test]
fn a_cache_spills_to_the_depot_and_others_find_it() {
    let pool = pool(2000);
    let (mut one, mut other) = (
        PoolCache::new(std::slice::from_ref(&pool)),
        PoolCache::new(std::slice::from_ref(&pool)),
    );
    let packets = take_all(&mut one, &pool);
    for packet in packets {
        one.free_one(packet);
    }
    assert!(one.held(&pool) <= 512, "at most its capacity stays");
    let found = take_all(&mut other, &pool).len();
    assert_eq!(found + one.held(&pool), 2000);
    drop(one);
    assert!(
        other.get(&pool).is_some(),
        "a cache that ends leaves nothing stranded"
    );
}

#[test]
fn packets_of_several_pools_find_their_own_way_home() {
    let (a, b) = (pool(100), pool(100));
    let mut cache = PoolCache::new(std::slice::from_ref(&a));
    let mut burst = Burst::new();
    cache.fill(&a, &mut burst, 10);
    PoolCache::new(&[]).fill(&b, &mut burst, 10);
    cache.free(&mut burst);
    assert_eq!(
        (
            take_all(&mut cache, &a).len(),
            take_all(&mut cache, &b).len()
        ),
        (100, 100)
    );
}

/// As a whole, or one by one where it is mixed.
#[test]
fn a_burst_goes_back_to_the_pools_that_it_came_from() {
    let pools = [pool(300), pool(300), pool(300)];
    let mut cache = PoolCache::new(&pools);
    for round in 0..20 {
        for pool in &pools {
            let mut burst = Burst::new();
            assert_eq!(cache.fill(pool, &mut burst, 1 + round * 3), 1 + round * 3);
            if round % 2 == 1 {
                cache.fill(&pools[round % 3], &mut burst, 1);
            }
            cache.free(&mut burst);
        }
    }
    for pool in &pools {
        let all = take_all(&mut cache, pool);
        assert!(all.iter().all(|packet| pool.owns(packet)));
        assert_eq!(all.len(), 300);
    }
}

#[test]
fn packets_outlive_their_pool() {
    for count in [1, 2, 70] {
        let pool = pool(100);
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut packets: Vec<_> = (0..count).map(|_| cache.get(&pool).unwrap()).collect();
        drop((pool, cache));
        packets
            .iter_mut()
            .for_each(|packet| assert!(packet.set_data(b"still here")));
        assert!(packets.iter().all(|packet| packet.data() == b"still here"));
        let mut stranger = PoolCache::new(&[]);
        stranger.free_one(packets.pop().unwrap());
        assert_eq!(
            stranger.held_total(),
            0,
            "an orphan's slots are not kept in caches"
        );
    }
}

#[test]
fn slots_travel_between_threads_and_all_come_home() {
    let pool = pool(512);
    let (tx, rx) = mpsc::sync_channel::<Packet>(64);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (pool, tx) = (pool.clone(), tx.clone());
            std::thread::spawn(move || {
                let mut cache = PoolCache::new(std::slice::from_ref(&pool));
                let mut sent = 0;
                while sent < 20_000 {
                    if let Some(mut packet) = cache.get(&pool) {
                        assert!(packet.set_data(&[sent as u8; 64]));
                        tx.send(packet).unwrap();
                        sent += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(tx);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    for (index, packet) in rx.into_iter().enumerate() {
        assert!(packet.data().iter().all(|&byte| byte == packet.data()[0]));
        // Both ways home, in turns.
        if index % 3 == 0 {
            drop(packet)
        } else {
            cache.free_one(packet)
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(take_all(&mut cache, &pool).len(), 512);
}

#[test]
fn a_pool_of_64k_slots_takes_the_largest_frames() {
    let large = Pool::new(&PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("jumbo", 4)
    })
    .unwrap();
    let mut packet = PoolCache::new(&[]).get(&large).unwrap();
    assert!(packet.set_data(&[7; 65_535 + 14 + 4]));
    let pools = Pools::new(vec![pool(1), large.clone()]);
    assert_eq!(pools.for_frame(2048), Some(pools.primary()));
    assert_eq!(pools.for_frame(2113), Some(&large));
    assert_eq!(pools.for_frame(70_000), None);
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn a_pool_costs_at_most_3_percent_over_its_slots() {
    let pool = pool(65_536);
    let slots = pool.slots() as usize * pool.slot_bytes();
    let over = (pool.total_bytes() - slots) as f64 / slots as f64 * 100.0;
    assert!(over <= 3.0, "{over:.2} %");
}

#[test]
fn impossible_pools_are_refused_with_the_reason() {
    let error = Pool::new(&PoolConfig::new("none", 0))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`none`") && error.contains("at least 1"),
        "{error}"
    );
    assert!(Pool::new(&PoolConfig::new("vast", u32::MAX)).is_err());
}

#[test]
fn lent_slots_come_back_by_any_offset_inside_them() {
    let pool = pool(8);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let mut packet = cache.get(&pool).unwrap();
    assert!(packet.set_data(b"lent"));
    let offset = pool.lend(packet).unwrap();
    // SAFETY: lent a line above, and not taken back yet.
    let packet = unsafe { pool.take_back(offset + 300) }.unwrap();
    assert_eq!(packet.data(), b"lent");
}

#[test]
fn a_panic_while_retaining_frees_nothing_twice() {
    let pool = pool(64);
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let (mut burst, mut rejected) = (Burst::new(), Burst::new());
    cache.fill(&pool, &mut burst, 10);
    let mut seen = 0;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        burst.retain(&mut rejected, |_| {
            seen += 1;
            assert!(seen < 6, "a stage's bug");
            seen % 2 == 0
        });
    }));
    assert!(outcome.is_err());
    let whole = burst.len() + rejected.len();
    drop((burst, rejected));
    // The sixth was dropped by the panic; the four behind it are lost, none is there twice.
    assert_eq!((whole, take_all(&mut cache, &pool).len()), (5, 60));
}

/// The slots of an exposed pool are its file, in their order, and the metadata is not in it.
#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn an_exposed_pool_shows_its_slots_and_nothing_else() {
    let exposed = |slots| {
        let config = PoolConfig {
            pages: PagePolicy::Only(PageKind::Base4K),
            exposed: true,
            ..PoolConfig::new("exposed", slots)
        };
        Pool::new(&config).unwrap()
    };
    // More lines than a power of two, and a pool right behind it.
    let (pool, other) = (exposed(1025), exposed(3));
    assert!(self::pool(3).exposed().is_none() && !pool.is_lost());
    let mut cache = PoolCache::new(&[pool.clone(), other.clone()]);
    let mut all = take_all(&mut cache, &pool);
    all.extend(take_all(&mut cache, &other));
    assert_eq!(all.len(), 1028);
    for (number, packet) in all.iter_mut().enumerate() {
        assert!(packet.set_data(&number.to_ne_bytes()));
    }
    for (number, packet) in all.iter().enumerate() {
        let of = if number < 1025 { &pool } else { &other };
        let at = of.slot_offset(packet).unwrap() + packet.headroom();
        let mut bytes = [0; 8];
        rustix::io::pread(of.exposed().unwrap(), &mut bytes, at as u64).unwrap();
        assert_eq!(usize::from_ne_bytes(bytes), number);
        let (start, len) = of.data_span();
        let data = packet.data().as_ptr().addr();
        assert!((start.addr()..start.addr() + len).contains(&data));
    }
    let bytes = rustix::fs::fstat(pool.exposed().unwrap()).unwrap().st_size as usize;
    let (start, len) = pool.data_span();
    assert_eq!(bytes, len.next_multiple_of(4096));
    let lines = all[0].line() as *const _ as usize;
    assert!(!(start.addr()..start.addr() + bytes).contains(&lines));
    // Whatever a peer writes there.
    rustix::io::pwrite(pool.exposed().unwrap(), &vec![0xff; bytes], 0).unwrap();
    assert!(all.iter().all(|packet| packet.len() == 8));
    drop(all);
    for pool in [pool, other] {
        assert_eq!(take_all(&mut cache, &pool).len(), pool.slots() as usize);
    }
}
