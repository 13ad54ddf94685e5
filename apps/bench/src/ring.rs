//! Rings: put and take in turns on one core, or from one core to the other.

use super::probe::pause;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::Lcore;
use linerate_core::ring::{Pop, Push, mpmc, spsc};

/// Elements of every ring here, as in DPDK's own ring benchmark.
const CAPACITY: usize = 4096;

/// Rows of one kind of ring, one per block size.
macro_rules! rows {
    ($($name:literal $about:literal $make:path, $run:ident, $block:literal;)*) => {
        &[$(Row { name: $name, about: $about, run: |row, run| $run::<_, _, $block>(row, run, $make(CAPACITY)) }),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "ring.spsc.1core.single" "SPSC, one core, one element in and out" spsc::ring::<u32>, in_turns, 1;
    "ring.spsc.1core.bulk8" "SPSC, one core, 8 in and out" spsc::ring::<u32>, in_turns, 8;
    "ring.spsc.1core.bulk32" "SPSC, one core, 32 in and out" spsc::ring::<u32>, in_turns, 32;
    "ring.spsc.1core.bulk256" "SPSC, one core, 256 in and out" spsc::ring::<u32>, in_turns, 256;
    "ring.spsc.2core.single" "SPSC, two cores, one element at a time" spsc::ring::<u32>, across, 1;
    "ring.spsc.2core.bulk8" "SPSC, two cores, 8 at a time" spsc::ring::<u32>, across, 8;
    "ring.spsc.2core.bulk32" "SPSC, two cores, 32 at a time" spsc::ring::<u32>, across, 32;
    "ring.spsc.2core.bulk256" "SPSC, two cores, 256 at a time" spsc::ring::<u32>, across, 256;
    "ring.mpmc.1core.single" "MPMC, one core, one element in and out" mpmc::ring::<u32>, in_turns, 1;
    "ring.mpmc.1core.bulk8" "MPMC, one core, 8 in and out" mpmc::ring::<u32>, in_turns, 8;
    "ring.mpmc.1core.bulk32" "MPMC, one core, 32 in and out" mpmc::ring::<u32>, in_turns, 32;
    "ring.mpmc.1core.bulk256" "MPMC, one core, 256 in and out" mpmc::ring::<u32>, in_turns, 256;
    "ring.mpmc.2core.single" "MPMC, two cores, one element at a time" mpmc::ring::<u32>, across, 1;
    "ring.mpmc.2core.bulk8" "MPMC, two cores, 8 at a time" mpmc::ring::<u32>, across, 8;
    "ring.mpmc.2core.bulk32" "MPMC, two cores, 32 at a time" mpmc::ring::<u32>, across, 32;
    "ring.mpmc.2core.bulk256" "MPMC, two cores, 256 at a time" mpmc::ring::<u32>, across, 256;
};

const PAGES: &str = "4 KiB pages";

/// Nanoseconds per element for the pair of in and out, on one core.
fn in_turns<P, C, const N: usize>(
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
        run.time(|| {
            // Opaque, so that neither the values nor the length are known to the optimiser's
            // advantage beyond what a real caller gives.
            let put = putter.push_slice_bulk(std::hint::black_box(&elements));
            let took = taker.pop_slice_bulk(std::hint::black_box(&mut elements));
            debug_assert!(put && took);
            N as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", PAGES))
}

/// Nanoseconds per element from one core to the other.
fn across<P, C, const N: usize>(
    row: &'static str,
    run: Run,
    (mut putter, mut taker): (P, C),
) -> Result<Sample, Error>
where
    P: Push<u32> + Send + 'static,
    C: Pop<u32> + Send + 'static,
{
    let from = Lcore::spawn("putter", Some(run.cpus[1]), move || {
        let elements = [7_u32; N];
        let mut idle = 0;
        while !putter.is_closed() {
            if !putter.push_slice_bulk(std::hint::black_box(&elements)) {
                pause(&mut idle);
            }
        }
    })?;
    let ns = run.pinned(move |run| {
        let mut elements = [0_u32; N];
        let mut idle = 0;
        run.time(|| {
            while !taker.pop_slice_bulk(std::hint::black_box(&mut elements)) {
                pause(&mut idle);
            }
            N as u64
        })
    })?;
    from.join()?;
    Ok(Sample::new(row, ns, "ns", PAGES))
}
