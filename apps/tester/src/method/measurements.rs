//! The kinds of benchmark, step by step.
//!
//! Results go into the report as they come, so that it is valid up to that point when the tester
//! fails or the user interrupts.

use super::plan::{Progress, phase};
use super::runner::Runner;
use super::settings::{Measurement, Settings};
use super::throughput::{Found, generator_pps, middle, warm_up};
use super::{Subjects, Tester};
use super::{burst, compliance, connections, demo, latency, loss, mlr, profile};
use super::{recovery, soak, throughput, verdict};
use crate::report::{Baseline, Report, SearchEnd, SearchGoal, Soak, Throughput, Trial, VERSION};
use linerate_appliance::error::Error;

/// Runs the benchmark. `report` has the facts known beforehand (machine, path, device, self-test),
/// and is returned with results, label and verdict.
pub(crate) fn run(
    kind: Measurement,
    subjects: &mut Subjects,
    settings: &Settings,
    mut report: Report,
    progress: &mut dyn Progress,
) -> Report {
    report.version = VERSION;
    report.kind = kind.to_string();
    let mut runner = Runner::new(kind, settings, subjects.baselines.len(), progress);
    let end = match kind {
        Measurement::Ndr => ndr(&mut runner, subjects.device, &mut report),
        Measurement::Soak => soaked(&mut runner, subjects, &mut report),
        Measurement::Demo => demo::demo(&mut runner, subjects, &mut report),
        _ => rfc2544(kind, &mut runner, subjects, &mut report),
    };
    match end {
        Ok(()) => {}
        Err(Error::Interrupted) => report.interrupted = true,
        Err(error) => report.failure = Some(error.to_string()),
    }
    report.compliance = compliance::of(kind, settings, &report);
    report.compliance.departures.extend(runner.cut_short());
    report.verdict = verdict::verdict(&report, settings);
    report
}

/// RFC 2544 section 26, or one part of it, size by size.
fn rfc2544(
    kind: Measurement,
    run: &mut Runner,
    subjects: &mut Subjects,
    report: &mut Report,
) -> Result<(), Error> {
    for &size in &run.settings.sizes {
        run.begin_size();
        let (most, whole) = match kind {
            Measurement::Loss => {
                run.enter(phase::of("loss", size));
                (
                    warm_up(run, subjects.device, size, generator_pps(report, size))?,
                    0.0,
                )
            }
            Measurement::Throughput | Measurement::Rfc2544 => {
                throughputs(run, subjects, size, run.settings.repeats, report)?
            }
            _ => throughputs(run, subjects, size, 1, report)?,
        };
        let device = &mut *subjects.device;
        if matches!(kind, Measurement::Latency | Measurement::Rfc2544) && whole > 0.0 {
            run.enter(phase::of("latency", size));
            latencies(run, device, size, whole, "throughput", report)?;
            let at = ("throughput".into(), whole);
            let row = latency::at(run, device, size, at, run.settings.latency_repeats)?;
            report.latency.push(row);
        }
        if matches!(kind, Measurement::Loss | Measurement::Rfc2544) {
            run.enter(phase::of("loss", size));
            loss::curve(run, device, size, most, &mut report.loss)?;
        }
        if matches!(kind, Measurement::BackToBack | Measurement::Rfc2544) && whole > 0.0 {
            run.enter(phase::of("bursts", size));
            report
                .back_to_back
                .extend(burst::bursts(run, device, size, most, whole)?);
        }
        if kind == Measurement::Rfc2544 && whole > 0.0 {
            run.enter(phase::of("recovery", size));
            report
                .recovery
                .extend(recovery::recovery(run, device, size, most, whole)?);
        }
    }
    if run.settings.profile && kind.is_profiled() {
        profile::profiles(run, subjects, report)?;
    }
    if kind.is_profiled() {
        connections::connections(run, subjects, report)?;
    }
    Ok(())
}

/// One subject's searches at one size.
#[derive(Default)]
struct Searches {
    most: f64,
    found: Vec<Found>,
    trials: Vec<Trial>,
}

impl Searches {
    fn turn(
        &mut self,
        run: &mut Runner,
        tester: &mut dyn Tester,
        size: usize,
        generator_pps: Option<f64>,
    ) -> Result<(), Error> {
        if self.found.is_empty() {
            self.most = warm_up(run, tester, size, generator_pps)?;
        }
        let near = self.found.last().map(|found| found.lower);
        let found = throughput::search(run, tester, size, self.most, near, &mut self.trials)?;
        // A repeat that was cut short is not comparable with the others.
        if self.found.is_empty() || found.end != SearchEnd::Limit {
            self.found.push(found);
        }
        Ok(())
    }

    /// The results up to now.
    fn row(self, report: &Report, size: usize, line_pps: Option<f64>) -> Option<Throughput> {
        let repeats = self.found.iter().map(|found| found.lower).collect();
        let found = middle(self.found)?;
        Some(Throughput {
            trials: self.trials,
            repeats,
            ..throughput::row(report, size, line_pps, self.most, &found)
        })
    }
}

/// The device's throughput and those of the baselines, in turns: A B A B. Returns the highest rate
/// offered to the device, and its throughput.
fn throughputs(
    run: &mut Runner,
    subjects: &mut Subjects,
    size: usize,
    turns: usize,
    report: &mut Report,
) -> Result<(f64, f64), Error> {
    let mut all: Vec<Searches> = Vec::new();
    all.resize_with(1 + subjects.baselines.len(), Searches::default);
    let generator = generator_pps(report, size);
    let mut turn = |number: usize, run: &mut Runner, subjects: &mut Subjects| {
        if number > 0 && run.is_late() {
            return Ok(());
        }
        for (subject, searches) in all.iter_mut().enumerate() {
            run.enter(phase::throughput(size, number, subject));
            match subject {
                0 => searches.turn(run, subjects.device, size, generator)?,
                // Only a self-test on the device's own path counts.
                _ => searches.turn(run, subjects.baselines[subject - 1].1, size, None)?,
            }
        }
        Ok(())
    };
    let end = (0..turns.max(1)).try_for_each(|number| turn(number, run, subjects));
    let mut all = all.into_iter();
    let device = all.next().unwrap_or_default();
    let most = device.most;
    let row = device.row(report, size, subjects.device.line_pps(size));
    let whole = row.as_ref().map_or(0.0, |row| row.pps);
    report.throughput.extend(row);
    for ((name, tester), searches) in subjects.baselines.iter().zip(all) {
        let row = searches.row(report, size, tester.line_pps(size));
        beside(report, name, row);
    }
    end.map(|()| (most, whole))
}

/// Adds a result of a baseline.
pub(super) fn beside(report: &mut Report, name: &str, row: Option<Throughput>) {
    let mut known = report.baselines.iter();
    let at = known.position(|baseline| baseline.name == name);
    let at = at.unwrap_or_else(|| {
        report.baselines.push(Baseline {
            name: name.into(),
            throughput: Vec::new(),
        });
        report.baselines.len() - 1
    });
    report.baselines[at].throughput.extend(row);
}

/// Latency at parts of `pps`, which is called `of`.
fn latencies(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    pps: f64,
    of: &str,
    report: &mut Report,
) -> Result<(), Error> {
    for share in &run.settings.latency_shares {
        let load = format!("{}% of {of}", (share * 1000.0).round() / 10.0);
        // RFC 2544 asks for the throughput only: other loads are measured once.
        let row = latency::at(run, tester, size, (load, pps * share), 1)?;
        report.latency.push(row);
    }
    Ok(())
}

/// NDR, PDR and other goals, in one search for each size; then latency at parts of the goal with
/// most loss.
fn ndr(run: &mut Runner, device: &mut dyn Tester, report: &mut Report) -> Result<(), Error> {
    let goals = &run.settings.goals;
    report.goals = goals
        .iter()
        .map(|goal| SearchGoal {
            name: goal.name.clone(),
            trial_seconds: goal.trial.as_secs_f64(),
            sum_seconds: goal.sum.as_secs_f64(),
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            width: goal.width,
        })
        .collect();
    for &size in &run.settings.sizes {
        run.begin_size();
        let turns = run.settings.ndr_repeats.max(1);
        let mut searches: Vec<Vec<mlr::Found>> = Vec::new();
        let mut trials = Vec::new();
        let mut most = 0.0;
        let mut turn = |number: usize| {
            if number > 0 && run.is_late() {
                return Ok(());
            }
            run.enter(phase::of(&format!("search {}", number + 1), size));
            if number == 0 {
                most = warm_up(run, device, size, generator_pps(report, size))?;
            }
            let found = mlr::search(run, device, size, most, goals, &mut trials)?;
            let is_cut = found.iter().any(|found| found.end == SearchEnd::Limit);
            // A repeat that was cut short is not comparable with the others.
            if searches.is_empty() || !is_cut {
                searches.push(found);
            }
            Ok(())
        };
        let end: Result<(), Error> = (0..turns).try_for_each(&mut turn);
        let mut pdr: Option<(f64, f64, String)> = None;
        for (number, goal) in goals.iter().enumerate() {
            let found = searches.iter().filter_map(|search| search.get(number));
            let mut found: Vec<&mlr::Found> = found.collect();
            let repeats = found.iter().map(|found| found.lower).collect();
            found.sort_by(|a, b| a.lower.total_cmp(&b.lower));
            let Some(middle) = found.get(found.len().saturating_sub(1) / 2) else {
                break;
            };
            let as_one = Found {
                lower: middle.lower,
                upper: middle.upper,
                end: middle.end,
                quoted: middle.quoted.clone(),
            };
            let row = throughput::row(report, size, device.line_pps(size), most, &as_one);
            report.throughput.push(Throughput {
                goal: goal.name.clone(),
                loss_ratio: goal.loss_ratio,
                regular: middle.regular,
                conditional_pps: middle.conditional_pps,
                trials: trials.clone(),
                repeats,
                ..row
            });
            if middle.lower > 0.0 && pdr.as_ref().is_none_or(|pdr| goal.loss_ratio > pdr.0) {
                pdr = Some((goal.loss_ratio, middle.lower, goal.name.clone()));
            }
        }
        end?;
        if let Some((_, pps, name)) = pdr {
            run.enter(phase::of("latency", size));
            latencies(run, device, size, pps, &name, report)?;
        }
    }
    Ok(())
}

/// A soak at the first size: at the rate that is set, or at 90 % of the throughput.
fn soaked(run: &mut Runner, subjects: &mut Subjects, report: &mut Report) -> Result<(), Error> {
    let Some(&size) = run.settings.sizes.first() else {
        return Ok(());
    };
    let pps = match run.settings.soak_pps {
        Some(pps) => pps,
        None => throughputs(run, subjects, size, 1, report)?.1 * 0.9,
    };
    if pps <= 0.0 {
        return Ok(());
    }
    run.enter(phase::of("soak", size));
    let mut soak = Soak {
        frame_bytes: size,
        pps,
        ..Soak::default()
    };
    let end = soak::soak(run, subjects.device, &mut soak);
    if !soak.points.is_empty() {
        report.soak = Some(soak);
    }
    end
}
