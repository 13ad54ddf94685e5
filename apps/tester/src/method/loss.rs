//! Frame loss rate (RFC 2544 26.3): from the line rate downward, until two successive rates lose
//! nothing.

use super::Tester;
use super::runner::{Runner, loss_ratio, lost};
use crate::report::LossPoint;
use linerate_appliance::error::Error;

/// The curve for one size, `most` being 100 %. Points are added as they are measured.
pub(super) fn curve(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    most: f64,
    points: &mut Vec<LossPoint>,
) -> Result<(), Error> {
    // RFC 2544 26.3: steps of at most 10 %; finer ones are allowed.
    let step = run.settings.loss_step.clamp(0.001, 0.1);
    let mut clean = 0;
    for number in 0.. {
        let share = 1.0 - step * f64::from(number);
        if share < step / 2.0 || clean == 2 {
            break;
        }
        let load = run.load(size, Some(most * share), run.settings.loss_trial);
        let trial = run.trial(tester, &load, &mut Vec::new())?.trial;
        clean = match lost(&trial) {
            0 => clean + 1,
            _ => 0,
        };
        points.push(LossPoint {
            frame_bytes: size,
            offered_percent: share * 100.0,
            offered_pps: most * share,
            lost_percent: loss_ratio(&trial) * 100.0,
            trial,
        });
    }
    Ok(())
}
