//! How long a run will take, and how far it is.
//!
//! A [`Plan`] is the list of a run's phases with their expected durations. The duration of a search
//! is unknown, so a phase that takes longer stays just before its end, and one that is skipped or
//! ends early jumps there.

use super::runner::seconds;
use super::settings::{Goal, Measurement, Settings, Waits};

/// What a run is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) trials: u64,
    pub(crate) seconds: f64,
}

impl Estimate {
    /// For one device and so many baselines.
    pub(crate) fn of(kind: Measurement, settings: &Settings, baselines: usize) -> Self {
        let phases = Plan::of(kind, settings, baselines).phases;
        phases
            .iter()
            .fold(Self::default(), |sum, phase| sum.and(phase.takes))
    }

    fn and(self, other: Self) -> Self {
        Self {
            trials: self.trials + other.trials,
            seconds: self.seconds + other.seconds,
        }
    }

    fn times(trials: usize, each_seconds: f64) -> Self {
        Self {
            trials: trials as u64,
            seconds: trials as f64 * each_seconds,
        }
    }
}

/// A trial that begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// `64 B: throughput`.
    pub(crate) phase: String,
    /// `2.350 Mpps for 1 s`.
    pub(crate) trial: String,
    /// Length of the trial with the waits around it.
    pub(crate) seconds: f64,
    /// Of the whole run, 0 to 1; never falls.
    pub(crate) fraction: f64,
    /// Expected until the end.
    pub(crate) left_seconds: f64,
}

/// Shows the progress.
pub(crate) trait Progress {
    fn begins(&mut self, step: &Step);
}

/// Tells nobody.
#[cfg(test)]
pub(crate) struct Silent;

#[cfg(test)]
impl Progress for Silent {
    fn begins(&mut self, _: &Step) {}
}

struct Phase {
    name: String,
    takes: Estimate,
}

/// The phases of a run, and the current one.
pub(super) struct Plan {
    phases: Vec<Phase>,
    /// The current phase, and its duration up to now.
    current: usize,
    spent_seconds: f64,
    /// Actual and expected durations of the phases that are over.
    took_seconds: f64,
    expected_seconds: f64,
}

/// Names of phases: they are planned and entered by these.
pub(super) mod phase {
    pub(in super::super) fn throughput(frame_bytes: usize, turn: usize, subject: usize) -> String {
        let turn = match turn {
            0 => String::new(),
            turn => format!(", search {}", turn + 1),
        };
        match subject {
            0 => format!("{frame_bytes} B: throughput{turn}"),
            baseline => format!("{frame_bytes} B: throughput of baseline {baseline}{turn}"),
        }
    }

    pub(in super::super) fn of(what: &str, frame_bytes: usize) -> String {
        format!("{frame_bytes} B: {what}")
    }
}

impl Plan {
    pub(super) fn of(kind: Measurement, settings: &Settings, baselines: usize) -> Self {
        let mut phases = Vec::new();
        for &size in &settings.sizes {
            let mut add = |name, takes| phases.push(Phase { name, takes });
            if kind == Measurement::Demo {
                let full = seconds(settings.trial, settings.waits);
                let full = Estimate::times(1 + baselines, full);
                add(phase::of(super::demo::FULL, size), full);
                let half = seconds(settings.latency_trial, settings.waits);
                add(phase::of("latency", size), Estimate::times(1, half));
            } else if kind == Measurement::Ndr {
                for turn in 0..settings.ndr_repeats.max(1) {
                    add(
                        phase::of(&format!("search {}", turn + 1), size),
                        goals(settings),
                    );
                }
            } else if kind != Measurement::Loss
                && !(kind == Measurement::Soak && settings.soak_pps.is_some())
            {
                let turns = match kind {
                    Measurement::Throughput | Measurement::Rfc2544 => settings.repeats.max(1),
                    _ => 1,
                };
                for turn in 0..turns {
                    for subject in 0..=baselines {
                        add(
                            phase::throughput(size, turn, subject),
                            search(settings, turn),
                        );
                    }
                }
            }
            if matches!(
                kind,
                Measurement::Latency | Measurement::Rfc2544 | Measurement::Ndr
            ) {
                let at_throughput = match kind {
                    Measurement::Ndr => 0,
                    _ => settings.latency_repeats.max(1),
                };
                let each = seconds(settings.latency_trial, settings.waits);
                let trials = settings.latency_shares.len() + at_throughput;
                add(phase::of("latency", size), Estimate::times(trials, each));
            }
            if matches!(kind, Measurement::Loss | Measurement::Rfc2544) {
                let steps = (1.0 / settings.loss_step.max(0.01)).ceil() as usize;
                let each = seconds(settings.loss_trial, settings.waits);
                add(phase::of("loss", size), Estimate::times(steps.min(6), each));
            }
            if matches!(kind, Measurement::BackToBack | Measurement::Rfc2544) {
                add(phase::of("bursts", size), bursts(settings));
            }
            if kind == Measurement::Rfc2544 {
                let each = 2.0 * seconds(settings.recovery_trial, settings.waits);
                let repeats = settings.recovery_repeats.max(1);
                add(phase::of("recovery", size), Estimate::times(repeats, each));
            }
            if kind == Measurement::Soak {
                let each = seconds(settings.soak_slice, Waits::default());
                let slices = settings.soak.div_duration_f64(settings.soak_slice).ceil();
                add(
                    phase::of("soak", size),
                    Estimate::times(slices as usize, each),
                );
                break;
            }
        }
        if let (Some(&size), true) = (
            settings.sizes.first(),
            kind.is_profiled() && settings.profile,
        ) {
            let each = seconds(settings.trial.min(super::profile::MOST), settings.waits);
            phases.push(Phase {
                name: phase::of("profile", size),
                takes: Estimate::times(1 + baselines, each),
            });
        }
        if let (Some(&size), Some(many)) = (settings.sizes.first(), settings.connections)
            && kind.is_profiled()
        {
            // Searches of some ten trials each, at a million a second and below.
            let each = many as f64 * 6e-6 + 0.5;
            phases.push(Phase {
                name: phase::of("connections", size),
                takes: Estimate::times(20 * (1 + baselines), each),
            });
        }
        Self {
            phases,
            current: 0,
            spent_seconds: 0.0,
            took_seconds: 0.0,
            expected_seconds: 0.0,
        }
    }

    /// Enters the phase of this name; phases before it are over.
    pub(super) fn enter(&mut self, name: String) {
        let ahead = self.phases[self.current..]
            .iter()
            .position(|phase| phase.name == name);
        if let Some(ahead @ 1..) = ahead {
            self.took_seconds += self.spent_seconds;
            self.expected_seconds += self.phases[self.current].takes.seconds;
            self.spent_seconds = 0.0;
            self.current += ahead;
        }
    }

    /// A trial of so many seconds begins: phase, fraction done, seconds left.
    pub(super) fn begin(&mut self, trial_seconds: f64) -> (String, f64, f64) {
        let Some(phase) = self.phases.get(self.current) else {
            return (String::new(), 0.0, 0.0);
        };
        let sum = |phases: &[Phase]| phases.iter().map(|phase| phase.takes.seconds).sum::<f64>();
        let expected = phase.takes.seconds;
        let here = self.spent_seconds.min(expected * 0.95);
        let all = sum(&self.phases).max(f64::MIN_POSITIVE);
        let fraction = (sum(&self.phases[..self.current]) + here) / all;
        // Scales the rest by actual over expected duration so far.
        let pace = match self.expected_seconds > 0.0 {
            true => self.took_seconds / self.expected_seconds,
            false => 1.0,
        };
        let left = (expected - here).max(trial_seconds) + sum(&self.phases[self.current + 1..]);
        self.spent_seconds += trial_seconds;
        (phase.name.clone(), fraction, left * pace)
    }
}

/// A throughput search; later ones begin where the first ended.
fn search(settings: &Settings, turn: usize) -> Estimate {
    let short = match turn {
        0 => 9,
        _ => 4,
    };
    let search = Estimate::times(short, seconds(settings.search_trial, settings.waits));
    match settings.search_trial < settings.trial {
        true => search.and(Estimate::times(1, seconds(settings.trial, settings.waits))),
        false => search,
    }
}

fn goals(settings: &Settings) -> Estimate {
    let one = |goal: &Goal| {
        // Durations until a load is a lower bound, and until it is an upper one.
        let enough =
            |share: f64| (goal.sum.as_secs_f64() * share / goal.trial.as_secs_f64()).floor();
        let lower = enough(1.0 - goal.exceed_ratio).max(1.0);
        let upper = enough(goal.exceed_ratio) + 1.0;
        let short = Estimate::times(8, seconds(goal.first_trial, settings.waits));
        let full = seconds(goal.trial, settings.waits);
        short.and(Estimate::times((lower + upper) as usize + 2, full))
    };
    settings
        .goals
        .iter()
        .fold(Estimate::default(), |sum, goal| sum.and(one(goal)))
}

fn bursts(settings: &Settings) -> Estimate {
    let waits = super::burst::waits(settings);
    let first = Estimate::times(12, seconds(settings.burst_limit / 4, waits));
    let later = Estimate::times(
        6 * settings.burst_repeats.saturating_sub(1),
        seconds(settings.burst_limit / 4, waits),
    );
    first.and(later)
}
