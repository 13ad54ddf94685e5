//! What the stages of a device take for a packet at its throughput.

use std::time::Duration;

use super::plan::phase;
use super::runner::{Runner, forwarded_pps};
use super::{Subjects, Tester};
use crate::report::{Profile, Report, Throughput};
use linerate_appliance::error::Error;

/// Longest trial of a profile: stages are measured for five seconds.
pub(super) const MOST: Duration = Duration::from_secs(3);

/// The device and the baselines, at the first size, each at its own throughput. Those that cannot
/// tell are left out.
pub(super) fn profiles(
    run: &mut Runner,
    subjects: &mut Subjects,
    report: &mut Report,
) -> Result<(), Error> {
    let Some(&size) = run.settings.sizes.first() else {
        return Ok(());
    };
    run.end_sizes();
    run.enter(phase::of("profile", size));
    let at = |rows: &[Throughput]| {
        let row = rows.iter().find(|row| row.frame_bytes == size);
        row.map_or(0.0, |row| row.pps)
    };
    let pps = at(&report.throughput);
    let name = report.device.name.clone();
    let found = profile(run, subjects.device, (name, size, pps))?;
    report.profiles.extend(found);
    for (name, tester) in &mut subjects.baselines {
        let mut known = report.baselines.iter();
        let known = known.find(|baseline| baseline.name == *name);
        let pps = known.map_or(0.0, |baseline| at(&baseline.throughput));
        let found = profile(run, *tester, (name.clone(), size, pps))?;
        report.profiles.extend(found);
    }
    Ok(())
}

fn profile(
    run: &mut Runner,
    tester: &mut dyn Tester,
    (subject, size, pps): (String, usize, f64),
) -> Result<Option<Profile>, Error> {
    if pps <= 0.0 {
        return Ok(None);
    }
    let load = run.load(size, Some(pps), run.settings.trial.min(MOST));
    run.announce(&load);
    let profiled = tester.profile(&load)?;
    Ok(profiled.map(|(lcores, trial)| Profile {
        subject,
        frame_bytes: size,
        pps: forwarded_pps(&trial),
        lcores,
    }))
}
