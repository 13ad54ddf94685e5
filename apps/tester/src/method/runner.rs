//! Runs one trial, again if it was disturbed; and computes rates and loss of a trial.

use std::time::Duration;

use super::plan::{Plan, Progress, Step};
use super::settings::{Measurement, Settings, Waits};
use super::{Load, Outcome, Tester};
use crate::report::Trial;
use linerate_appliance::error::Error;

/// Frames that were due in a trial.
pub(super) fn due(trial: &Trial) -> u64 {
    trial.intended.max(trial.sent)
}

/// Frames that were due and did not come: frames not sent in time count as lost too, however the
/// tester counts them.
pub(super) fn lost(trial: &Trial) -> u64 {
    let came = trial.received.saturating_sub(trial.duplicates);
    trial
        .lost
        .max(trial.unsent)
        .max(due(trial).saturating_sub(came))
}

/// Of the frames that were due.
pub(super) fn loss_ratio(trial: &Trial) -> f64 {
    match due(trial) {
        // Nothing was due (the shortest trial at the lowest rate), so nothing was lost.
        0 => 1.0,
        due => lost(trial) as f64 / due as f64,
    }
}

/// Frames a second that came.
pub(super) fn forwarded_pps(trial: &Trial) -> f64 {
    match trial.seconds > 0.0 {
        true => trial.received.saturating_sub(trial.duplicates) as f64 / trial.seconds,
        false => 0.0,
    }
}

/// Frames a second that went out.
pub(super) fn sent_pps(trial: &Trial) -> f64 {
    match trial.seconds > 0.0 {
        true => trial.sent as f64 / trial.seconds,
        false => 0.0,
    }
}

/// A rate as text.
pub(super) fn spell_pps(pps: f64) -> String {
    match pps {
        ..1e3 => format!("{pps:.0} pps"),
        ..1e6 => format!("{:.1} kpps", pps / 1e3),
        _ => format!("{:.3} Mpps", pps / 1e6),
    }
}

/// Runs trials for the methods.
pub(super) struct Runner<'a> {
    pub(super) settings: &'a Settings,
    progress: &'a mut dyn Progress,
    plan: Plan,
    /// Duration of the current size's trials up to now.
    size_seconds: f64,
    /// How many searches of a size share its time limit: for the device and each baseline, and for
    /// each goal of MLRsearch.
    searches: u32,
    /// Sizes that took longer than they may.
    late_sizes: u32,
    /// Whether what is measured now is of no size, and has no limit.
    is_beyond: bool,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        kind: Measurement,
        settings: &'a Settings,
        baselines: usize,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self {
            settings,
            progress,
            plan: Plan::of(kind, settings, baselines),
            size_seconds: 0.0,
            searches: match kind {
                Measurement::Ndr => settings.goals.len().max(1) as u32,
                _ => 1 + baselines as u32,
            },
            late_sizes: 0,
            is_beyond: false,
        }
    }

    /// Another size begins, with all its time.
    pub(super) fn begin_size(&mut self) {
        self.late_sizes += u32::from(self.is_late());
        self.size_seconds = 0.0;
    }

    /// The last size is over.
    pub(super) fn end_sizes(&mut self) {
        self.begin_size();
        self.is_beyond = true;
    }

    /// Whether this size has used its time: searches and repeats end with what they have.
    pub(super) fn is_late(&self) -> bool {
        let limit = self.limit();
        limit.is_some_and(|limit| self.size_seconds > limit)
    }

    /// Seconds for a size.
    fn limit(&self) -> Option<f64> {
        let limit = self.settings.size_limit?;
        Some(limit.as_secs_f64() * f64::from(self.searches))
    }

    /// The departure from the settings because of the time limit.
    pub(super) fn cut_short(mut self) -> Option<String> {
        self.begin_size();
        let limit = self.limit()?;
        (self.late_sizes > 0).then(|| {
            format!(
                "At {} of {} frame sizes, searches and repeats ended after {limit} s with what \
                 they knew.",
                self.late_sizes,
                self.settings.sizes.len()
            )
        })
    }

    /// The phase that trials belong to from now on.
    pub(super) fn enter(&mut self, phase: String) {
        self.plan.enter(phase);
    }

    /// A trial with the waits that are set.
    pub(super) fn load(&self, frame_bytes: usize, pps: Option<f64>, duration: Duration) -> Load {
        Load {
            frame_bytes,
            pps,
            duration,
            count: None,
            waits: self.settings.waits,
        }
    }

    /// The trial, again while it is disturbed and attempts are left; all of them go to `log`, and
    /// the last is returned.
    pub(super) fn trial(
        &mut self,
        tester: &mut dyn Tester,
        load: &Load,
        log: &mut Vec<Trial>,
    ) -> Result<Outcome, Error> {
        let mut attempts = self.settings.attempts.max(1);
        loop {
            let outcome = self.once(tester, load)?;
            log.push(outcome.trial.clone());
            attempts -= 1;
            if outcome.trial.invalid.is_none() || attempts == 0 || self.is_late() {
                return Ok(outcome);
            }
        }
    }

    /// The trial, without repeats.
    pub(super) fn once(&mut self, tester: &mut dyn Tester, load: &Load) -> Result<Outcome, Error> {
        self.announce(load);
        let mut outcome = tester.trial(load)?;
        outcome.trial.lost = lost(&outcome.trial);
        Ok(outcome)
    }

    /// Tells that a trial begins.
    pub(super) fn announce(&mut self, load: &Load) {
        let rate = load.pps.map_or("as many as go".into(), spell_pps);
        let trial = match load.count {
            Some(count) => format!("{count} frames at {rate}"),
            None => format!("{rate} for {} s", load.duration.as_secs_f64()),
        };
        let seconds = seconds(load.duration, load.waits);
        if !self.is_beyond {
            self.size_seconds += seconds;
        }
        let (phase, fraction, left_seconds) = self.plan.begin(seconds);
        self.progress.begins(&Step {
            phase,
            trial,
            seconds,
            fraction,
            left_seconds,
        });
    }
}

/// What a trial takes: its length, the waits around it, and some time for residual frames.
pub(super) fn seconds(duration: Duration, waits: Waits) -> f64 {
    let residual = match waits.residual {
        Duration::ZERO => 0.1,
        _ => 0.0,
    };
    (duration + waits.total()).as_secs_f64() + residual
}
