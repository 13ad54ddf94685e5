//! Pools: get and put through an lcore's cache, and beyond it.

use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use std::hint::black_box;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "pool.cache.get_put1",
        about: "get and free one packet in the cache",
        run: one,
    },
    Row {
        name: "pool.cache.get_put32",
        about: "get and free 32 packets in the cache",
        run: bulk32,
    },
    Row {
        name: "pool.beyond.get_put32",
        about: "get 2048 and free 2048, 32 at a time: beyond the cache",
        run: beyond,
    },
    Row {
        name: "pool.cache.fill32",
        about: "get 32 packets, set up, and free them, in the cache",
        run: fill32,
    },
    Row {
        name: "burst.move32",
        about: "move 32 packets from burst to burst and back",
        run: moved,
    },
    Row {
        name: "mem.pool.overhead_percent",
        about: "memory of a pool over slots x slot size",
        run: overhead,
    },
];

const SLOTS: u32 = 16_384;

/// Times `turn`, which says how many packets it got and freed, on a cache of a fresh pool.
fn in_cache<T>(
    row: &'static str,
    run: Run,
    make: fn(&mut PoolCache, &Pool) -> T,
) -> Result<Sample, Error>
where
    T: FnMut(&mut PoolCache, &Pool) -> u64 + 'static,
{
    let pool = Pool::new(&PoolConfig::new("bench", SLOTS))?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut turn = make(&mut cache, &pool);
        run.time(|| turn(&mut cache, &pool))
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

fn one(row: &'static str, run: Run) -> Result<Sample, Error> {
    in_cache(row, run, |_, _| {
        |cache, pool| {
            // Without setting it up, as the peer and the rows of 32 do.
            if let Some(packet) = cache.take_one(pool) {
                cache.free_one(packet);
            }
            1
        }
    })
}

fn bulk32(row: &'static str, run: Run) -> Result<Sample, Error> {
    in_cache(row, run, |_, _| {
        let mut burst = Burst::new();
        move |cache, pool| {
            let got = cache.take(pool, &mut burst, 32);
            cache.free(black_box(&mut burst));
            got as u64
        }
    })
}

fn fill32(row: &'static str, run: Run) -> Result<Sample, Error> {
    in_cache(row, run, |_, _| {
        let mut burst = Burst::new();
        move |cache, pool| {
            let got = cache.fill(pool, &mut burst, 32);
            cache.free(black_box(&mut burst));
            got as u64
        }
    })
}

fn beyond(row: &'static str, run: Run) -> Result<Sample, Error> {
    in_cache(row, run, |_, _| {
        let mut bursts: Vec<Burst> = (0..64).map(|_| Burst::new()).collect();
        move |cache, pool| {
            let take = |burst| cache.take(pool, burst, 32);
            let got: usize = bursts.iter_mut().map(take).sum();
            let free = |burst| cache.free(black_box(burst));
            bursts.iter_mut().for_each(free);
            got as u64
        }
    })
}

fn moved(row: &'static str, run: Run) -> Result<Sample, Error> {
    in_cache(row, run, |cache, pool| {
        let (mut here, mut there) = (Burst::new(), Burst::new());
        cache.fill(pool, &mut here, 32);
        move |_, _| {
            let moved = here.move_front(32, black_box(&mut there));
            there.move_front(32, black_box(&mut here));
            moved as u64
        }
    })
}

fn overhead(row: &'static str, _: Run) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 65_536))?;
    let slots = pool.slots() as usize * pool.slot_bytes();
    let percent = (pool.total_bytes() - slots) as f64 / slots as f64 * 100.0;
    let sample = Sample::new(row, percent, "%", pool.page_kind());
    Ok(sample
        .with("slot_bytes", pool.slot_bytes())
        .with("slots", pool.slots()))
}
