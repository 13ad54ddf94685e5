//! Judges whether a finished report is reliable, and why.
//!
//! The worst finding is the verdict; all are listed.

use super::runner::{due, loss_ratio, lost, spell_pps};
use super::settings::{Measurement, Settings};
use super::throughput::generator_pps;
use crate::report::{BackToBack, Report, SearchEnd, Soak, Throughput, Trial, Verdict, VerdictWord};

/// Offered rate over asked rate: below it the generator was too slow.
const OFFERED: f64 = 0.999;
/// Result over the generator's maximum: above it the generator may be the limit.
const NEAR_GENERATOR: f64 = 0.95;

/// Asked rate over the generator's maximum: above it the generator could not send it.
const BEYOND: f64 = 1.01;

/// The verdict on the whole report.
pub(crate) fn verdict(report: &Report, settings: &Settings) -> Verdict {
    let mut found = Findings::default();
    if let Some(failure) = &report.failure {
        found.add(
            VerdictWord::Failed,
            format!("The run ended early: {failure}."),
        );
    }
    if report.interrupted {
        found.add(
            VerdictWord::Incomplete,
            "The run was interrupted: what was not measured is left out.".into(),
        );
    }
    let empty = report.throughput.is_empty()
        && report.latency.is_empty()
        && report.loss.is_empty()
        && report.soak.is_none();
    if empty {
        found.add(VerdictWord::Failed, "Nothing was measured.".into());
    }
    for row in &report.throughput {
        found.throughput(row, report, settings);
    }
    for baseline in &report.baselines {
        for row in &baseline.throughput {
            // It widens the interval of the ratio; the device's own figures are not affected.
            let what = format!("{}, {} B", baseline.name, row.frame_bytes);
            found.verdict.reasons.extend(spread(&what, row, settings));
            // A baseline that is too low makes the device look better than it is.
            found.ended(&what, row);
            if limit_of(row) == Some(Limit::Receiver) {
                found.receiver(&what, row);
            }
        }
    }
    found.loss(report);
    for row in &report.latency {
        let what = format!("Latency of {} B at {}", row.frame_bytes, row.load);
        found.disturbed(&what, &row.trial);
        if row.latency.samples == 0 {
            found.note(format!("{what}: no frame was timed."));
        }
    }
    for row in &report.back_to_back {
        found.bursts(row, report);
    }
    for row in &report.recovery {
        let what = format!("Recovery of {} B", row.frame_bytes);
        found.disturbed(&what, &row.over);
        found.disturbed(&what, &row.then);
    }
    if let Some(soak) = &report.soak {
        found.soak(soak);
    }
    found.again(report);
    found.verdict
}

#[derive(Default)]
struct Findings {
    verdict: Verdict,
}

impl Findings {
    fn add(&mut self, word: VerdictWord, reason: String) {
        self.verdict.word = self.verdict.word.max(word);
        self.note(reason);
    }

    /// A reason that does not change the word.
    fn note(&mut self, reason: String) {
        if !self.verdict.reasons.contains(&reason) {
            self.verdict.reasons.push(reason);
        }
    }

    fn throughput(&mut self, row: &Throughput, report: &Report, settings: &Settings) {
        let what = match row.goal.as_str() {
            "throughput" => format!("{} B", row.frame_bytes),
            goal => format!("{} B, {goal}", row.frame_bytes),
        };
        if row.trials.iter().all(|trial| trial.received == 0) {
            let reason = format!("{what}: nothing came through at all.");
            return self.add(VerdictWord::Failed, reason);
        }
        if row.pps == 0.0 {
            let lowest = row
                .trials
                .iter()
                .map(|trial| trial.asked_pps)
                .fold(f64::MAX, f64::min);
            self.note(format!(
                "{what}: frames were lost at every rate, down to {}.",
                spell_pps(lowest)
            ));
            self.limit(&what, row, report);
            if row.trials.iter().any(|trial| trial.invalid.is_some()) {
                let reason = format!("{what}: others took the CPUs while frames were lost.");
                self.add(VerdictWord::SharedMachine, reason);
            }
            return;
        }
        self.offered(&what, &row.quoted);
        self.disturbed(&what, &row.quoted);
        if let Some(reason) = spread(&what, row, settings) {
            // Undecided searches differ for that reason.
            match stayed_disturbed(&row.trials) {
                true => self.note(reason),
                false => self.add(VerdictWord::Noisy, reason),
            }
        }
        self.ended(&what, row);
        self.generator(&what, row, report, settings);
        if stayed_disturbed(&row.trials) {
            self.add(
                VerdictWord::SharedMachine,
                format!(
                    "{what}: a trial of the search stayed disturbed in {} attempts and decided \
                     nothing: what is certain ends at {}.",
                    settings.attempts.max(1),
                    spell_pps(row.lower_pps)
                ),
            );
        }
        if row.conditional_pps < row.lower_pps * (1.0 - settings.noise.max(row.loss_ratio)) {
            self.add(
                VerdictWord::Noisy,
                format!(
                    "{what}: at {} often only {} came through.",
                    spell_pps(row.lower_pps),
                    spell_pps(row.conditional_pps)
                ),
            );
        }
    }

    fn offered(&mut self, what: &str, trial: &Trial) {
        let share = trial.sent as f64 / due(trial).max(1) as f64;
        let asked = (trial.asked_pps * trial.seconds).max(1.0);
        // The rate reveals a generator that takes longer for a trial without reporting it.
        let share = match trial.asked_pps > 0.0 {
            true => share.min(trial.sent as f64 / asked),
            false => share,
        };
        if share < OFFERED {
            self.add(
                VerdictWord::GeneratorLimited,
                format!(
                    "{what}: the generator sent {:.2} % of what it was asked for.",
                    share * 100.0
                ),
            );
        }
    }

    fn disturbed(&mut self, what: &str, trial: &Trial) {
        if let Some(why) = &trial.invalid {
            self.add(
                VerdictWord::SharedMachine,
                format!("{what}: the result is disturbed: {why}."),
            );
        }
    }

    /// Searches that ended before their bounds were close.
    fn ended(&mut self, what: &str, row: &Throughput) {
        if row.end == SearchEnd::Limit {
            let upper = row
                .upper_pps
                .map_or("the most that could be offered".into(), spell_pps);
            return self.add(
                VerdictWord::Incomplete,
                format!(
                    "{what}: the search ended before it was done: {} went through, and what is \
                     between that and {upper} was not looked at.",
                    spell_pps(row.lower_pps)
                ),
            );
        }
        // RFC 9971 calls such a result irregular: trials at one load contradict those at another.
        if row.end == SearchEnd::Bounds && !row.regular && row.lower_pps > 0.0 {
            self.add(
                VerdictWord::Noisy,
                format!("{what}: trials contradict each other, so that the bounds stayed apart."),
            );
        }
    }

    fn generator(&mut self, what: &str, row: &Throughput, report: &Report, settings: &Settings) {
        // At the line's rate the wire is the limit, and no generator could show more.
        // A demonstration offers the generator's maximum, and says so.
        let is_at_line = row.line_pps.is_some_and(|line| row.pps >= line * OFFERED);
        if is_at_line || report.kind == Measurement::Demo.name() {
            return;
        }
        self.limit(what, row, report);
        if let Some(most) = generator_pps(report, row.frame_bytes) {
            if row.pps >= most * NEAR_GENERATOR {
                self.add(
                    VerdictWord::GeneratorLimited,
                    format!(
                        "{what}: {} is {:.1} % of what the generator does by itself, {}.",
                        spell_pps(row.pps),
                        row.pps / most * 100.0,
                        spell_pps(most)
                    ),
                );
            }
            return;
        }
        // A limit by the user is among the departures.
        let as_asked = settings
            .max_pps
            .is_some_and(|most| row.pps >= most * OFFERED);
        if row.end == SearchEnd::Most && !as_asked {
            self.add(
                VerdictWord::GeneratorLimited,
                format!(
                    "{what}: all that could be offered, {}, came through.",
                    spell_pps(row.pps)
                ),
            );
        }
    }

    /// A search whose upper bound is not the device's.
    fn limit(&mut self, what: &str, row: &Throughput, report: &Report) {
        match limit_of(row) {
            Some(Limit::Receiver) => self.receiver(what, row),
            // The generator alone is faster than the device: frames it could not send were refused
            // by the device.
            Some(Limit::Sender) if generator_pps(report, row.frame_bytes).is_none() => self.add(
                VerdictWord::GeneratorLimited,
                format!(
                    "{what}: the search ended at {} because the generator could not send it.",
                    spell_pps(row.upper_pps.unwrap_or_default())
                ),
            ),
            _ => {}
        }
    }

    fn receiver(&mut self, what: &str, row: &Throughput) {
        self.add(
            VerdictWord::GeneratorLimited,
            format!(
                "{what}: the search ended at {} because the generator's own receiver missed \
                 frames.",
                spell_pps(row.upper_pps.unwrap_or_default())
            ),
        );
    }

    /// Longest bursts that something else than the device ended.
    fn bursts(&mut self, row: &BackToBack, report: &Report) {
        let what = format!("Bursts of {} B", row.frame_bytes);
        let all = row.bursts.len();
        let disturbed = row.limits.iter().filter(|trial| trial.invalid.is_some());
        if let Some(why) = disturbed.clone().find_map(|trial| trial.invalid.as_ref()) {
            self.add(
                VerdictWord::SharedMachine,
                format!(
                    "{what}: {} of {all} searches ended at a burst that was disturbed: {why}.",
                    disturbed.count()
                ),
            );
        }
        // Below its maximum the generator could send it: unsent frames were refused by the device.
        let sends = |most: f64| row.burst_pps <= most * BEYOND;
        let could = generator_pps(report, row.frame_bytes).is_some_and(sends);
        let ours = row
            .limits
            .iter()
            .filter(|trial| match judge([*trial], 0.0) {
                Some(Limit::Receiver) => true,
                Some(Limit::Sender) => !could,
                _ => false,
            });
        let ours = ours.count();
        if ours > 0 {
            self.add(
                VerdictWord::GeneratorLimited,
                format!(
                    "{what}: {ours} of {all} searches ended at a burst that the generator could \
                     not send or receive whole."
                ),
            );
        }
    }

    fn soak(&mut self, soak: &Soak) {
        self.disturbed("The soak", &soak.trial);
        self.offered("The soak", &soak.trial);
        let trial = &soak.trial;
        if trial.received == 0 {
            self.add(VerdictWord::Failed, "Nothing came through at all.".into());
        }
        if trial.missed > 0 && lost(trial) > 0 {
            self.add(
                VerdictWord::GeneratorLimited,
                format!(
                    "The soak: {} frames were lost, and the generator's own receiver missed {}.",
                    lost(trial),
                    trial.missed
                ),
            );
        }
        if trial.seconds < soak.asked_seconds * OFFERED {
            self.add(
                VerdictWord::Incomplete,
                format!(
                    "The soak lasted {:.0} of {:.0} s.",
                    trial.seconds, soak.asked_seconds
                ),
            );
        }
    }

    /// Points of a loss curve that were disturbed, or that the generator could not offer or count.
    fn loss(&mut self, report: &Report) {
        for points in report.loss.chunk_by(|a, b| a.frame_bytes == b.frame_bytes) {
            let size = points[0].frame_bytes;
            if points.iter().all(|point| point.trial.received == 0) {
                self.add(
                    VerdictWord::Failed,
                    format!("{size} B: nothing came through at all."),
                );
            }
            for point in points {
                let what = format!("Loss of {size} B at {:.0} %", point.offered_percent);
                self.disturbed(&what, &point.trial);
                if point.trial.missed as f64 > due(&point.trial) as f64 * (1.0 - OFFERED) {
                    self.add(
                        VerdictWord::GeneratorLimited,
                        format!(
                            "{what}: of {} lost frames the generator's own receiver missed up to \
                             {}.",
                            lost(&point.trial),
                            point.trial.missed
                        ),
                    );
                }
            }
            let mut short = points
                .iter()
                .filter(|point| (point.trial.sent as f64) < due(&point.trial) as f64 * OFFERED);
            let Some(least) = short
                .clone()
                .map(|p| p.offered_percent)
                .min_by(f64::total_cmp)
            else {
                continue;
            };
            let generator = generator_pps(report, size);
            let beyond = |pps: f64| generator.is_none_or(|most| pps > most * BEYOND);
            let (word, why) = match short.any(|point| beyond(point.offered_pps)) {
                true => (VerdictWord::GeneratorLimited, "the generator could not"),
                false => (VerdictWord::Valid, "the device took no more"),
            };
            self.add(
                word,
                format!(
                    "{size} B: from {least:.0} % of the load on, not all was sent, because {why}; \
                     it counts as lost."
                ),
            );
        }
    }

    /// How much was run again.
    fn again(&mut self, report: &Report) {
        // Goals of one search share its trials.
        let searches = report
            .throughput
            .chunk_by(|a, b| a.frame_bytes == b.frame_bytes);
        let first: Vec<&Throughput> = searches.filter_map(<[Throughput]>::first).collect();
        let all = || first.iter().flat_map(|row| &row.trials);
        let bad = all().filter(|trial| trial.invalid.is_some()).count();
        if bad > 0 {
            self.note(format!(
                "{bad} of {} trials of the searches were disturbed.",
                all().count()
            ));
        }
    }
}

/// What lost the frames of trials that lost too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The device itself lost more than allowed.
    Device,
    /// The generator's receivers missed enough to explain the loss.
    Receiver,
    /// Frames were not sent; all sent ones came back.
    Sender,
}

/// What limits a search's upper bound; `None` without a bound, or if it is unknown.
fn limit_of(row: &Throughput) -> Option<Limit> {
    let upper = row.upper_pps?;
    let there = row
        .trials
        .iter()
        .filter(|trial| (trial.asked_pps - upper).abs() <= upper * 1e-6);
    judge(there, row.loss_ratio)
}

/// What was the limit in those of the trials that lost more than `allowed`, a share of what was
/// due.
pub(super) fn judge<'a>(
    trials: impl IntoIterator<Item = &'a Trial>,
    allowed: f64,
) -> Option<Limit> {
    let too_many = |trial: &&Trial| trial.invalid.is_none() && loss_ratio(trial) > allowed;
    let one = |trial: &Trial| {
        let gone = (trial.sent + trial.duplicates).saturating_sub(trial.received);
        // Any of the missed frames may be a test frame.
        let by_device = gone.saturating_sub(trial.missed);
        let too_many = |frames: u64| frames as f64 > due(trial) as f64 * allowed;
        match (too_many(by_device), gone > 0 && trial.missed > 0) {
            (true, _) => Limit::Device,
            (false, true) => Limit::Receiver,
            (false, false) => Limit::Sender,
        }
    };
    let found: Vec<Limit> = trials.into_iter().filter(too_many).map(one).collect();
    let order = [Limit::Device, Limit::Receiver, Limit::Sender];
    order.into_iter().find(|limit| found.contains(limit))
}

/// The finding about repeated results that differ too much.
fn spread(what: &str, row: &Throughput, settings: &Settings) -> Option<String> {
    let mut repeats = row.repeats.clone();
    repeats.sort_by(f64::total_cmp);
    // Of many repeats, one outlier in ten on each side is to be expected.
    let spare = repeats.len() / 10;
    let low = repeats.get(spare)?;
    let high = repeats.get(repeats.len().checked_sub(spare + 1)?)?;
    let spread = (high - low) / repeats[repeats.len() / 2].max(f64::MIN_POSITIVE);
    (spread > settings.noise).then(|| {
        format!(
            "{what}: {} searches gave {} to {}, {:.1} % apart, more than {:.1} %.",
            repeats.len(),
            spell_pps(*low),
            spell_pps(*high),
            spread * 100.0,
            settings.noise * 100.0
        )
    })
}

/// Whether a trial's last attempt was disturbed too, and lost frames: the search could not decide
/// there.
fn stayed_disturbed(trials: &[Trial]) -> bool {
    let attempts = trials.chunk_by(|a, b| a.asked_pps == b.asked_pps && a.invalid.is_some());
    let mut last = attempts.filter_map(<[Trial]>::last);
    last.any(|trial| trial.invalid.is_some() && lost(trial) > 0)
}
