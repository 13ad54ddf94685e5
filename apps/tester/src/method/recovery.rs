//! System recovery (RFC 2544 26.5): how long frames are lost after an overload is halved, the mean
//! of some repeats.

use super::latency::sum;
use super::runner::{Runner, lost};
use super::{Load, Recovered, Tester};
use crate::report::Recovery;
use linerate_appliance::error::Error;

/// Overloads with 110 % of the throughput, at most the maximum, then offers half of that. `None` if
/// the tester cannot measure it.
pub(super) fn recovery(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    most: f64,
    throughput_pps: f64,
) -> Result<Option<Recovery>, Error> {
    let overload_pps = (throughput_pps * 1.1).min(most);
    let then_pps = overload_pps / 2.0;
    let over = run.load(size, Some(overload_pps), run.settings.recovery_trial);
    let then = run.load(size, Some(then_pps), run.settings.recovery_trial);
    let mut all = Recovery {
        frame_bytes: size,
        overload_pps,
        then_pps,
        ..Recovery::default()
    };
    for number in 0..run.settings.recovery_repeats.max(1) {
        if number > 0 && run.is_late() {
            break;
        }
        let Some(found) = once(run, tester, &over, &then)? else {
            return Ok(None);
        };
        // An overload without loss shows no recovery.
        let seen = found.recovery_ns.filter(|_| lost(&found.over) > 0);
        all.repeats_ns.extend(seen);
        all.resolution_ns = all.resolution_ns.max(found.resolution_ns);
        all.over = sum(&all.over, &found.over);
        all.then = sum(&all.then, &found.then);
    }
    let count = all.repeats_ns.len() as f64;
    all.recovery_ns = (count > 0.0).then(|| all.repeats_ns.iter().sum::<f64>() / count);
    Ok(Some(all))
}

/// One overload and its end, repeated while it is disturbed and attempts are left.
fn once(
    run: &mut Runner,
    tester: &mut dyn Tester,
    over: &Load,
    then: &Load,
) -> Result<Option<Recovered>, Error> {
    let mut attempts = run.settings.attempts.max(1);
    loop {
        run.announce(over);
        run.announce(then);
        let found = tester.recovery(over, then)?;
        attempts -= 1;
        let disturbed =
            |found: &Recovered| found.over.invalid.is_some() || found.then.invalid.is_some();
        if !found.as_ref().is_some_and(disturbed) || attempts == 0 || run.is_late() {
            return Ok(found);
        }
    }
}
