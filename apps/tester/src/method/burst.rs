//! Back-to-back frames (RFC 9004): the longest burst at the least gap that is forwarded without
//! loss, and the buffer size that follows.

use std::time::Duration;

use super::runner::{Runner, lost};
use super::settings::{Settings, Waits};
use super::{Load, Tester};
use crate::report::{BackToBack, Trial};
use linerate_appliance::error::Error;

/// Bursts end this close to each other, relative to the longer one: bursts are whole frames, and
/// buffers vary by more.
const WIDTH: f64 = 0.01;

/// Waits around a burst: as set, but at least what RFC 9004 requires between bursts.
pub(super) fn waits(settings: &Settings) -> Waits {
    Waits {
        learning: Duration::ZERO,
        residual: settings.waits.residual,
        settle: settings.burst_wait.saturating_sub(settings.waits.residual),
    }
}

/// Bursts of one size at `pps`, the line's rate or the generator's most. `throughput_pps` is what
/// the device sustains: where that equals `pps`, there is no longest burst (RFC 9004 section 4).
pub(super) fn bursts(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    pps: f64,
    throughput_pps: f64,
) -> Result<Option<BackToBack>, Error> {
    let most = (pps * run.settings.burst_limit.as_secs_f64()) as u64;
    if throughput_pps >= pps * (1.0 - run.settings.width) || most == 0 {
        return Ok(None);
    }
    let mut bursts = Vec::new();
    let mut limits = Vec::new();
    for number in 0..run.settings.burst_repeats.max(1) {
        if number > 0 && run.is_late() {
            break;
        }
        let near = bursts.last().copied();
        let (burst, limit) = longest(run, tester, size, pps, most, near)?;
        bursts.push(burst);
        limits.extend(limit);
    }
    let count = bursts.len() as f64;
    let mean = bursts.iter().sum::<u64>() as f64 / count;
    let squares: f64 = bursts
        .iter()
        .map(|burst| (*burst as f64 - mean).powi(2))
        .sum();
    let implied_buffer_s = mean / pps;
    Ok(Some(BackToBack {
        frame_bytes: size,
        mean,
        min: bursts.iter().copied().min().unwrap_or(0),
        max: bursts.iter().copied().max().unwrap_or(0),
        sd: (squares / (count - 1.0).max(1.0)).sqrt(),
        burst_pps: pps,
        implied_buffer_s,
        // While the burst arrives, the device forwards at the throughput (RFC 9004 section 5.4).
        corrected_buffer_s: implied_buffer_s * (1.0 - throughput_pps / pps),
        bursts,
        limits,
    }))
}

/// The longest burst without loss, up to `most`; 0 for none; and the shortest with loss, if any.
/// The search doubles or halves from `near`, and then bisects.
fn longest(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    pps: f64,
    most: u64,
    near: Option<u64>,
) -> Result<(u64, Option<Trial>), Error> {
    let mut limit = None;
    let mut whole = |run: &mut Runner, count: u64| -> Result<bool, Error> {
        let load = Load {
            frame_bytes: size,
            pps: Some(pps),
            duration: Duration::from_secs_f64(count as f64 / pps),
            count: Some(count),
            waits: waits(run.settings),
        };
        let trial = run.trial(tester, &load, &mut Vec::new())?.trial;
        let whole = lost(&trial) == 0 && trial.received >= count;
        if !whole {
            // Each failing burst is shorter than those before.
            limit = Some(trial);
        }
        Ok(whole)
    };
    let (mut lower, mut upper) = (0, most + 1);
    let mut next = near.filter(|near| *near > 0).unwrap_or(1024).min(most);
    // Near the last bound a small step finds the other one; far away it takes a large one.
    let mut factor = if near.is_some() {
        1.0 + 4.0 * WIDTH
    } else {
        2.0
    };
    loop {
        match whole(run, next)? {
            true => lower = next,
            false => upper = next,
        }
        let enough = 1.max((upper as f64 * WIDTH) as u64);
        if lower >= most || upper - lower <= enough {
            return Ok((lower, limit));
        }
        next = if upper > most {
            ((lower as f64 * factor) as u64).clamp(lower + 1, most)
        } else if lower == 0 {
            ((upper as f64 / factor) as u64).clamp(1, upper - 1)
        } else {
            lower + (upper - lower) / 2
        };
        factor = (factor * factor).min(4.0);
    }
}
