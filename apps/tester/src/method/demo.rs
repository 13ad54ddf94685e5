//! A demonstration: for each size the rate without a limit, and latency at half of that. Without a
//! search the rate is not claimed to be the maximum.

use super::runner::{Runner, forwarded_pps, sent_pps};
use super::throughput::{self, Found};
use super::{Subjects, Tester, latency, measurements, plan::phase};
use crate::report::{Report, SearchEnd, Throughput};
use linerate_appliance::error::Error;

/// Share of that rate that is offered while latency is measured.
const LATENCY_SHARE: f64 = 0.5;

/// What the plan calls the part that comes before latency.
pub(super) const FULL: &str = "as many as go";

/// The device and the baselines, size by size.
pub(super) fn demo(
    run: &mut Runner,
    subjects: &mut Subjects,
    report: &mut Report,
) -> Result<(), Error> {
    for &size in &run.settings.sizes {
        run.begin_size();
        run.enter(phase::of(FULL, size));
        let row = full(run, subjects.device, size, report)?;
        let pps = row.pps * LATENCY_SHARE;
        report.throughput.push(row);
        for (name, baseline) in &mut subjects.baselines {
            let row = full(run, *baseline, size, report)?;
            measurements::beside(report, name, Some(row));
        }
        if pps > 0.0 {
            run.enter(phase::of("latency", size));
            let load = format!("{}% of throughput", LATENCY_SHARE * 100.0);
            let row = latency::at(run, subjects.device, size, (load, pps), 1)?;
            report.latency.push(row);
        }
    }
    Ok(())
}

/// One trial without a rate limit.
fn full(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    report: &Report,
) -> Result<Throughput, Error> {
    let load = run.load(size, None, run.settings.trial);
    let mut trials = Vec::new();
    let outcome = run.trial(tester, &load, &mut trials)?;
    let most = sent_pps(&outcome.trial);
    let found = Found {
        lower: forwarded_pps(&outcome.trial),
        upper: None,
        end: SearchEnd::Most,
        quoted: outcome,
    };
    Ok(Throughput {
        trials,
        repeats: vec![found.lower],
        ..throughput::row(report, size, tester.line_pps(size), most, &found)
    })
}
