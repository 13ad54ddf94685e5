//! What results may be called: `RFC2544` only after 60 s trials without a lost frame, and the
//! departures from the RFCs.

use std::time::Duration;

use super::runner::lost;
use super::settings::{Goal, Measurement, Settings, Waits};
use crate::report::{Compliance, Report};
use linerate_traffic::units::RFC2544_SIZES;

/// RFC 2544 section 24.
const TRIAL: Duration = Duration::from_secs(60);

/// Label and departures of a finished report.
pub(super) fn of(kind: Measurement, settings: &Settings, report: &Report) -> Compliance {
    let loss_ratio = report.throughput.iter().map(|row| row.loss_ratio);
    Compliance {
        label: label(kind, settings, report),
        trial_seconds: match kind {
            Measurement::Ndr => settings.goals.iter().map(|goal| goal.trial).max(),
            Measurement::Loss => Some(settings.loss_trial),
            Measurement::Soak => Some(settings.soak),
            _ => Some(settings.trial),
        }
        .unwrap_or_default()
        .as_secs_f64(),
        loss_ratio: loss_ratio.fold(0.0, f64::max),
        departures: departures(kind, settings, report),
    }
}

fn label(kind: Measurement, settings: &Settings, report: &Report) -> String {
    let rows = &report.throughput;
    let whole = rows
        .iter()
        .all(|row| row.pps > 0.0 && lost(&row.quoted) == 0);
    let throughput = || match settings.trial >= TRIAL && whole && !rows.is_empty() {
        true => "RFC2544".to_string(),
        false => format!("NDR-{}s", seconds(settings.trial)),
    };
    match kind {
        Measurement::Throughput | Measurement::Latency | Measurement::Rfc2544 => throughput(),
        Measurement::Ndr => {
            let labels: Vec<String> = settings.goals.iter().map(goal_label).collect();
            labels.join(", ")
        }
        Measurement::Loss if settings.loss_trial >= TRIAL => "RFC2544".into(),
        Measurement::Loss => format!("loss-{}s", seconds(settings.loss_trial)),
        Measurement::BackToBack if bursts_as_rfc9004(settings) && throughput() == "RFC2544" => {
            "RFC9004".into()
        }
        Measurement::BackToBack => format!("back2back-{}s", seconds(settings.burst_limit)),
        Measurement::Soak => format!("soak-{}s", seconds(settings.soak)),
        Measurement::Demo => format!("demo-{}s", seconds(settings.trial)),
    }
}

fn goal_label(goal: &Goal) -> String {
    let (trial, share) = (seconds(goal.trial), goal.loss_ratio * 100.0);
    match goal.loss_ratio {
        0.0 if goal.trial >= TRIAL && goal.sum >= TRIAL && goal.exceed_ratio == 0.0 => {
            "RFC2544".into()
        }
        0.0 => format!("NDR-{trial}s"),
        _ => format!("PDR-{}%-{trial}s", (share * 1e4).round() / 1e4),
    }
}

fn seconds(duration: Duration) -> String {
    ((duration.as_secs_f64() * 1e3).round() / 1e3).to_string()
}

fn departures(kind: Measurement, settings: &Settings, report: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |is: bool, text: String| {
        if is {
            found.push(text);
        }
    };
    let rfc = !matches!(
        kind,
        Measurement::Soak | Measurement::Ndr | Measurement::Demo
    );
    let trial = settings.trial;
    say(
        rfc && kind != Measurement::Loss && trial < TRIAL,
        format!(
            "Quoted trials last {} s, not 60 s (RFC 2544 section 24).",
            seconds(trial)
        ),
    );
    let (waits, wanted) = (settings.waits, Waits::RFC2544);
    let short = |wait: fn(&Waits) -> Duration| wait(&waits) < wait(&wanted);
    say(
        rfc && (short(|of| of.learning) || short(|of| of.residual) || short(|of| of.settle)),
        format!(
            "Trials wait {} s after learning frames, {} s for residual frames and {} s to settle, \
             not 2, 2 and 5 s (RFC 2544 section 23).",
            seconds(waits.learning),
            seconds(waits.residual),
            seconds(waits.settle)
        ),
    );
    let missing = RFC2544_SIZES
        .iter()
        .any(|size| !settings.sizes.contains(size));
    say(
        rfc && missing,
        "Not all seven frame sizes were measured (RFC 2544 section 9.1).".into(),
    );
    if matches!(kind, Measurement::Latency | Measurement::Rfc2544) {
        say(
            settings.latency_trial < Duration::from_secs(120) || settings.latency_repeats < 20,
            format!(
                "Latency is from {} × {} s, not 20 × 120 s (RFC 2544 26.2).",
                settings.latency_repeats,
                seconds(settings.latency_trial)
            ),
        );
        say(
            true,
            "Every frame is timed from the moment at which it was to be sent, not one tagged frame \
             (RFC 2544 26.2)."
                .into(),
        );
    }
    say(
        matches!(kind, Measurement::Loss | Measurement::Rfc2544) && settings.loss_trial < TRIAL,
        format!(
            "Trials of the loss curve last {} s, not 60 s (RFC 2544 section 24).",
            seconds(settings.loss_trial)
        ),
    );
    if matches!(kind, Measurement::BackToBack | Measurement::Rfc2544) {
        say(
            !bursts_as_rfc9004(settings),
            format!(
                "Bursts of up to {} s, {} s apart, are repeated {} times, not 30 s, 2 s and 50 \
                 (RFC 9004).",
                seconds(settings.burst_limit),
                seconds(settings.burst_wait),
                settings.burst_repeats
            ),
        );
    }
    if kind == Measurement::Rfc2544 {
        say(
            report.recovery.is_empty(),
            "Recovery was not measured (RFC 2544 26.5).".into(),
        );
        say(
            !report.recovery.is_empty() && settings.recovery_trial < TRIAL,
            format!(
                "Overload before recovery lasts {} s, not 60 s (RFC 2544 26.5).",
                seconds(settings.recovery_trial)
            ),
        );
        say(
            !report.recovery.is_empty() && settings.recovery_repeats < 2,
            "Recovery is from one overload, not the mean of a number of them (RFC 2544 26.5)."
                .into(),
        );
        say(true, "Resets were not measured (RFC 2544 26.6).".into());
    }
    let is_bounded = report.throughput.iter().any(|row| row.upper_pps.is_none());
    say(
        settings.max_pps.is_some() && is_bounded,
        format!(
            "No more than {} Mpps was offered, as was asked for: where all of it went through, the \
             device may bear more.",
            settings.max_pps.unwrap_or(0.0) / 1e6
        ),
    );
    say(
        rfc && report.device.link_bps.is_none(),
        "The path has no wire: 100 % is the generator's own most, not a line rate.".into(),
    );
    say(
        rfc && report.device.directions == 1,
        "One direction is loaded; both are to be tested as well (RFC 2544 section 14).".into(),
    );
    found
}

/// RFC 9004 sections 4 and 5.
fn bursts_as_rfc9004(settings: &Settings) -> bool {
    settings.burst_limit >= Duration::from_secs(30)
        && settings.burst_repeats >= 50
        && settings.burst_wait >= Duration::from_secs(2)
}
