//! System recovery (RFC 2544 26.5): how long frames are lost after an overload is halved.

use super::Tester;
use super::runner::{Runner, lost};
use crate::error::Error;
use crate::report::bench::Recovery;

/// Overloads with 110 % of the throughput, or the most there is, then offers half of that. None where the
/// tester cannot tell.
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
    run.announce(&over);
    let found = tester.recovery(&over, &then)?;
    Ok(found.map(|found| Recovery {
        frame_bytes: size,
        overload_pps,
        then_pps,
        // Where the overload lost nothing there is nothing to recover from.
        recovery_ns: found.recovery_ns.filter(|_| lost(&found.over) > 0),
        resolution_ns: found.resolution_ns,
        over: found.over,
        then: found.then,
    }))
}
