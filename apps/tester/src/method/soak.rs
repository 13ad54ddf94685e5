//! A long time at one rate: shows loss that is too rare for a search, and drift.

use std::time::Duration;

use super::latency::{sum, together};
use super::runner::Runner;
use super::settings::Waits;
use super::{Load, Tester};
use crate::report::Soak;
use linerate_appliance::error::Error;

/// Runs slice after slice; earlier results are in `soak` even if one fails.
pub(super) fn soak(
    run: &mut Runner,
    tester: &mut dyn Tester,
    soak: &mut Soak,
) -> Result<(), Error> {
    let mut left = run.settings.soak;
    soak.asked_seconds = left.as_secs_f64();
    while left > Duration::ZERO {
        let load = Load {
            frame_bytes: soak.frame_bytes,
            pps: Some(soak.pps),
            duration: left.min(run.settings.soak_slice),
            count: None,
            waits: Waits::default(),
        };
        // A disturbed slice is not repeated, since its loss belongs to the soak.
        let outcome = run.once(tester, &load)?;
        left = left.saturating_sub(run.settings.soak_slice);
        soak.latency = together(&soak.latency, &outcome.latency);
        soak.trial = sum(&soak.trial, &outcome.trial);
        let at = soak.trial.seconds;
        soak.points
            .push((at, outcome.trial.lost, outcome.trial.received));
    }
    Ok(())
}
