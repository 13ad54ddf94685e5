//! Rings: put and take in turns on one core, or from one core to the other.
//!
//! Single elements go by `push` and `pop`; the length of bulks is hidden from the compiler, as that
//! of a received burst is in a forwarder. The peer (`xtask/peer/ring.c`) does the same.

use super::probe::pause;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::Lcore;
use linerate_core::ring::{Pop, Push, mpmc, spsc};
use std::hint::black_box;

/// Elements of every ring here, as in DPDK's own ring benchmark.
const CAPACITY: usize = 4096;

/// One row for each kind of ring and block size.
macro_rules! rows {
    ($($name:literal $about:literal $make:path, $run:expr;)*) => {
        &[$(Row { name: $name, about: $about, run: |row, run| $run(row, run, $make(CAPACITY)) }),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "ring.spsc.1core.single" "SPSC, one core, one element in and out" spsc::ring::<u32>,
    one_in_turns;
    "ring.spsc.1core.bulk8" "SPSC, one core, 8 in and out" spsc::ring::<u32>, in_turns::<8, _, _>;
    "ring.spsc.1core.bulk32" "SPSC, one core, 32 in and out" spsc::ring::<u32>, in_turns::<32, _,
    _>;
    "ring.spsc.1core.bulk256" "SPSC, one core, 256 in and out" spsc::ring::<u32>, in_turns::<256,
    _, _>;
    "ring.spsc.2core.single" "SPSC, two cores, one element at a time" spsc::ring::<u32>, one_across;
    "ring.spsc.2core.bulk8" "SPSC, two cores, 8 at a time" spsc::ring::<u32>, across::<8, _, _>;
    "ring.spsc.2core.bulk32" "SPSC, two cores, 32 at a time" spsc::ring::<u32>, across::<32, _, _>;
    "ring.spsc.2core.bulk256" "SPSC, two cores, 256 at a time" spsc::ring::<u32>, across::<256, _,
    _>;
    "ring.mpmc.1core.single" "MPMC, one core, one element in and out" mpmc::ring::<u32>,
    one_in_turns;
    "ring.mpmc.1core.bulk8" "MPMC, one core, 8 in and out" mpmc::ring::<u32>, in_turns::<8, _, _>;
    "ring.mpmc.1core.bulk32" "MPMC, one core, 32 in and out" mpmc::ring::<u32>, in_turns::<32, _,
    _>;
    "ring.mpmc.1core.bulk256" "MPMC, one core, 256 in and out" mpmc::ring::<u32>, in_turns::<256,
    _, _>;
    "ring.mpmc.2core.single" "MPMC, two cores, one element at a time" mpmc::ring::<u32>, one_across;
    "ring.mpmc.2core.bulk8" "MPMC, two cores, 8 at a time" mpmc::ring::<u32>, across::<8, _, _>;
    "ring.mpmc.2core.bulk32" "MPMC, two cores, 32 at a time" mpmc::ring::<u32>, across::<32, _, _>;
    "ring.mpmc.2core.bulk256" "MPMC, two cores, 256 at a time" mpmc::ring::<u32>, across::<256, _,
    _>;
};

const PAGES: &str = "4 KiB pages";

/// Nanoseconds per element for the pair of in and out, on one core.
fn one_in_turns<P, C>(
    row: &'static str,
    run: Run,
    (mut putter, mut taker): (P, C),
) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let ns = run.pinned(move |run| {
        let mut element = 7;
        run.time(|| {
            let put = putter.push(element);
            let took = taker.pop();
            debug_assert!(put.is_ok() && took.is_some());
            element = took.unwrap_or(element);
            1
        })
    })?;
    Ok(Sample::new(row, ns, "ns", PAGES))
}

/// The same for bulks of `N`.
fn in_turns<const N: usize, P, C>(
    row: &'static str,
    run: Run,
    (mut putter, mut taker): (P, C),
) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let ns = run.pinned(move |run| {
        let mut elements = [7_u32; N];
        let elements = &mut elements[..black_box(N)];
        run.time(|| {
            let put = putter.push_slice_bulk(elements);
            let took = taker.pop_slice_bulk(elements);
            debug_assert!(put && took);
            N as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", PAGES))
}

/// Nanoseconds per element from one core to the other.
fn one_across<P, C>(row: &'static str, run: Run, (putter, taker): (P, C)) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let put = |putter: &mut P| putter.push(7).is_ok();
    let take = |taker: &mut C| taker.pop().is_some();
    passed(row, run, (putter, put), (taker, take), 1)
}

/// The same for bulks of `N`.
fn across<const N: usize, P, C>(
    row: &'static str,
    run: Run,
    (putter, taker): (P, C),
) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let len = black_box(N);
    let full = [7_u32; N];
    let mut empty = [0_u32; N];
    let put = move |putter: &mut P| putter.push_slice_bulk(&full[..len]);
    let take = move |taker: &mut C| taker.pop_slice_bulk(&mut empty[..len]);
    passed(row, run, (putter, put), (taker, take), N as u64)
}

/// Nanoseconds per element where `put` and `take` return whether they moved `count`.
fn passed<P, C>(
    row: &'static str,
    run: Run,
    (mut putter, mut put): (P, impl FnMut(&mut P) -> bool + Send + 'static),
    (mut taker, mut take): (C, impl FnMut(&mut C) -> bool + Send + 'static),
    count: u64,
) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let from = Lcore::spawn("putter", Some(run.cpus[1]), move || {
        let mut idle = 0;
        while !putter.is_closed() {
            if !put(&mut putter) {
                pause(&mut idle);
            }
        }
    })?;
    let ns = run.pinned(move |run| {
        let mut idle = 0;
        run.time(|| {
            while !take(&mut taker) {
                pause(&mut idle);
            }
            count
        })
    })?;
    from.join()?;
    Ok(Sample::new(row, ns, "ns", PAGES))
}
