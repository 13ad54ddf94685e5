//! Pools: get and put through an lcore's cache, and beyond it.

use super::{Row, Run, Sample};
use crate::error::Error;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};

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

fn pool() -> Result<Pool, Error> {
    Ok(Pool::new(&PoolConfig::new("bench", SLOTS))?)
}

fn one(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = pool()?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        run.time(|| {
            if let Some(packet) = cache.get(&pool) {
                cache.free_one(std::hint::black_box(packet));
            }
            1
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

fn bulk32(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = pool()?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut burst = Burst::new();
        run.time(|| {
            let got = cache.take(&pool, &mut burst, 32);
            cache.free(std::hint::black_box(&mut burst));
            got as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

fn fill32(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = pool()?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut burst = Burst::new();
        run.time(|| {
            let got = cache.fill(&pool, &mut burst, 32);
            cache.free(std::hint::black_box(&mut burst));
            got as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

fn beyond(row: &'static str, run: Run) -> Result<Sample, Error> {
    const BURSTS: usize = 64;
    let pool = pool()?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut bursts: Vec<Burst> = (0..BURSTS).map(|_| Burst::new()).collect();
        run.time(|| {
            let got: usize = bursts
                .iter_mut()
                .map(|burst| cache.take(&pool, burst, 32))
                .sum();
            bursts
                .iter_mut()
                .for_each(|burst| cache.free(std::hint::black_box(burst)));
            got as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

fn moved(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = pool()?;
    let pages = pool.page_kind();
    let ns = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let (mut here, mut there) = (Burst::new(), Burst::new());
        cache.fill(&pool, &mut here, 32);
        run.time(|| {
            let moved = here.move_front(32, std::hint::black_box(&mut there));
            there.move_front(32, std::hint::black_box(&mut here));
            moved as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
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
