//! What the rows of both address families share: the size of the work, and how it is timed.

use std::hint::black_box;

use super::Run;

/// Routes that are not in the table.
pub(super) const FURTHER: usize = 10_000;
pub(super) const ADDRESSES: usize = 1 << 20;
pub(super) const BATCH: usize = 100;
const BURST: usize = 64;

/// Splits `all` routes into `count` for the table and `further` others, taken at regular intervals
/// so that both are alike.
pub(super) fn part<R>(all: Vec<R>, count: usize, further: usize) -> (Vec<R>, Vec<R>) {
    let every = (count + further).checked_div(further).unwrap_or(usize::MAX);
    let all = all.into_iter().enumerate();
    let (back, stay): (Vec<_>, Vec<_>) = all.partition(|&(index, _)| index % every == every - 1);
    let plain = |part: Vec<(usize, R)>| part.into_iter().map(|(_, route)| route).collect();
    (plain(stay), plain(back))
}

/// Lookups in bursts through all addresses, over and over. Returns nanoseconds for each.
pub(super) fn time_lookups<A>(
    run: &Run,
    addresses: &[A],
    mut look_up: impl FnMut(&[A], &mut [u32]),
) -> f64 {
    let mut bursts = addresses.chunks_exact(BURST).cycle();
    let mut hops = [0; BURST];
    run.time(|| {
        if let Some(burst) = bursts.next() {
            look_up(black_box(burst), &mut hops);
            black_box(&hops);
        }
        BURST as u64
    })
}
