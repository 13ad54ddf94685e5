//! Cases that a verdict must not call valid: searches and soaks that ended early, and the
//! generator's own limits.

use std::time::Duration;

use super::super::model::Model;
use super::super::settings::{Measurement, Settings};
use super::super::verdict::{Limit, judge};
use super::super::{Load, Silent, Subjects, run};
use super::{base, measure, measure_from, quick};
use crate::report::{Report, SearchEnd, Trial, VerdictWord};
use linerate_appliance::error::Error;

#[test]
fn a_search_that_ran_out_of_time_is_incomplete() {
    for kind in [Measurement::Ndr, Measurement::Throughput] {
        let settings = Settings {
            size_limit: Some(Duration::from_millis(600)),
            ..quick()
        };
        let mut model = Model {
            link_bps: None,
            generator_pps: 6e7,
            ..Model::default()
        };
        let report = measure(kind, &mut model, &settings);
        let row = &report.throughput[0];
        assert!(
            !row.regular && row.end == SearchEnd::Limit,
            "{kind}: {row:?}"
        );
        assert_eq!(report.verdict.word, VerdictWord::Incomplete, "{kind}");
        assert_eq!(report.verdict.word.exit_code(), 8, "{kind}");
    }
}

#[test]
fn a_soak_that_was_interrupted_is_incomplete() {
    let settings = Settings {
        soak_pps: Some(5e6),
        ..quick()
    };
    let mut model = Model {
        fails: Some((7, || Error::Interrupted)),
        ..Model::default()
    };
    let report = measure(Measurement::Soak, &mut model, &settings);
    assert_eq!(report.soak.as_ref().map(|soak| soak.points.len()), Some(7));
    assert_eq!(
        report.verdict.word,
        VerdictWord::Incomplete,
        "{:?}",
        report.verdict
    );
    let said = report.verdict.reasons.join(" ");
    assert!(said.contains("lasted 7 of 30 s"), "{said}");
}

#[test]
fn a_repeat_that_is_cut_short_is_no_result_beside_the_others() {
    for kind in [Measurement::Ndr, Measurement::Throughput] {
        let mut whole = Model::default();
        let once = Settings {
            repeats: 1,
            ..quick()
        };
        let row = measure(kind, &mut whole, &once).throughput.remove(0);
        assert_eq!(row.end, SearchEnd::Bounds, "{kind}");
        // A limit of that duration, and a little of the next one's.
        let took: f64 = whole
            .asked
            .iter()
            .map(|load| load.duration.as_secs_f64())
            .sum();
        let goals = if kind == Measurement::Ndr {
            once.goals.len()
        } else {
            1
        };
        let limit = (took + 0.1 * whole.asked.len() as f64 + 0.5) / goals as f64;
        let settings = Settings {
            repeats: 10,
            ndr_repeats: 10,
            size_limit: Some(Duration::from_secs_f64(limit)),
            ..quick()
        };
        let report = measure(kind, &mut Model::default(), &settings);
        let row = &report.throughput[0];
        assert_eq!(
            (row.end, row.repeats.len()),
            (SearchEnd::Bounds, 1),
            "{kind}"
        );
        assert_eq!(
            report.verdict.word,
            VerdictWord::Valid,
            "{:?}",
            report.verdict
        );
    }
}

#[test]
fn a_baseline_whose_search_was_cut_short_is_not_held_against_the_device() {
    let settings = Settings {
        size_limit: Some(Duration::from_secs(4)),
        ..quick()
    };
    let mut device = Model::default();
    let mut bridge = Model {
        stolen_chance: 0.7,
        stolen_s: 0.01,
        frame_ns: 700.0,
        ..Model::default()
    };
    let mut subjects = Subjects {
        device: &mut device,
        baselines: vec![("bridge".into(), &mut bridge)],
        connections: Vec::new(),
    };
    let report = base(&settings, 2e7);
    let report = run(
        Measurement::Throughput,
        &mut subjects,
        &settings,
        report,
        &mut Silent,
    );
    assert_eq!(report.baselines[0].throughput[0].end, SearchEnd::Limit);
    assert_eq!(
        report.verdict.word,
        VerdictWord::Incomplete,
        "{:?}",
        report.verdict
    );
}

/// A report of a generator that was tested on something else than the device's path.
fn stand_in(settings: &Settings, pps: f64) -> Report {
    let mut report = base(settings, pps);
    for test in &mut report.self_test {
        test.stand_in = Some("a pair of veth".into());
    }
    report
}

#[test]
fn the_generators_limit_is_reported_for_an_external_device() {
    let settings = quick();
    // A line that it cannot fill; the stand-in is faster than the line.
    let mut model = Model {
        generator_pps: 3e6,
        ..Model::default()
    };
    let report = measure_from(
        stand_in(&settings, 6e7),
        Measurement::Throughput,
        &mut model,
        &settings,
    );
    let verdict = &report.verdict;
    assert_eq!(verdict.word, VerdictWord::GeneratorLimited, "{verdict:?}");
    assert!(verdict.reasons[0].contains("could not send"), "{verdict:?}");
    // Without a line rate, the maximum is what it sends on the path itself, not what the stand-in
    // takes.
    let mut model = Model {
        link_bps: None,
        generator_pps: 3e6,
        ..Model::default()
    };
    let report = measure_from(
        stand_in(&settings, 6e7),
        Measurement::Throughput,
        &mut model,
        &settings,
    );
    let verdict = &report.verdict;
    assert_eq!(report.throughput[0].pps, 3e6);
    assert_eq!(verdict.word, VerdictWord::GeneratorLimited, "{verdict:?}");
    assert!(
        verdict.reasons[0].contains("all that could be offered"),
        "{verdict:?}"
    );
    // A device slower than the generator is the limit, whatever the stand-in's result.
    for stand_in_pps in [1e6, 6e7] {
        let mut model = Model::default();
        let report = stand_in(&settings, stand_in_pps);
        let report = measure_from(report, Measurement::Throughput, &mut model, &settings);
        assert_eq!(
            report.verdict.word,
            VerdictWord::Valid,
            "{:?}",
            report.verdict
        );
    }
    // A rate limit by the user is not the generator's limit.
    let bounded = Settings {
        max_pps: Some(1e6),
        ..quick()
    };
    let mut model = Model {
        link_bps: None,
        ..Model::default()
    };
    let report = measure_from(
        stand_in(&bounded, 6e7),
        Measurement::Throughput,
        &mut model,
        &bounded,
    );
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
}

#[test]
fn frames_that_the_receiver_missed_are_not_the_device_s_loss() {
    let settings = quick();
    for kind in [
        Measurement::Throughput,
        Measurement::Ndr,
        Measurement::Loss,
        Measurement::BackToBack,
        Measurement::Soak,
    ] {
        // The device takes 8 Mpps.
        let mut model = Model {
            receiver_pps: 2e6,
            ..Model::default()
        };
        let settings = Settings {
            soak_pps: Some(4e6),
            ..settings.clone()
        };
        let report = measure(kind, &mut model, &settings);
        let verdict = &report.verdict;
        assert_eq!(
            verdict.word,
            VerdictWord::GeneratorLimited,
            "{kind}: {verdict:?}"
        );
        let said = verdict.reasons.join(" ");
        assert!(said.contains("own receiver missed"), "{kind}: {said}");
    }
    // A device that loses far more than the receiver missed is the limit.
    let trial = |sent: u64, received: u64, missed: u64| Trial {
        intended: 1000,
        sent,
        received,
        missed,
        ..Trial::default()
    };
    let of = |trial: Trial, allowed: f64| judge([&trial], allowed);
    assert_eq!(of(trial(1000, 900, 1), 0.0), Some(Limit::Device));
    assert_eq!(of(trial(1000, 900, 100), 0.0), Some(Limit::Receiver));
    assert_eq!(of(trial(900, 900, 5), 0.0), Some(Limit::Sender));
    assert_eq!(of(trial(1000, 900, 98), 0.005), Some(Limit::Receiver));
    assert_eq!(of(trial(1000, 996, 0), 0.005), None);
    // One trial in which the device lost frames is enough.
    let trials = [trial(1000, 900, 100), trial(1000, 999, 0)];
    assert_eq!(judge(&trials, 0.0), Some(Limit::Device));
}

#[test]
fn disturbed_bursts_points_and_recoveries_are_marked() {
    let settings = Settings {
        recovery_repeats: 2,
        ..quick()
    };
    type When = fn(&Load) -> bool;
    let cases: [(&str, When); 3] = [
        ("Bursts of", |load| load.count.is_some()),
        ("Loss of", |load| {
            load.duration == Duration::from_millis(333)
        }),
        ("Recovery of", |load| {
            load.duration == Duration::from_millis(444)
        }),
    ];
    for (what, stolen_in) in cases {
        let mut model = Model {
            stolen_chance: 1.0,
            stolen_s: 0.001,
            stolen_in,
            ..Model::default()
        };
        let settings = Settings {
            loss_trial: Duration::from_millis(333),
            recovery_trial: Duration::from_millis(444),
            ..settings.clone()
        };
        let report = measure(Measurement::Rfc2544, &mut model, &settings);
        let verdict = &report.verdict;
        assert_eq!(
            verdict.word,
            VerdictWord::SharedMachine,
            "{what}: {verdict:?}"
        );
        let said = verdict.reasons.join(" ");
        assert!(said.contains(what) && said.contains("disturbed"), "{said}");
        assert_eq!(report.throughput[0].end, SearchEnd::Bounds);
    }
    // Undisturbed, all of it is believed, and recovery is the mean of its repeats.
    let report = measure(Measurement::Rfc2544, &mut Model::default(), &settings);
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    assert_eq!(report.recovery[0].repeats_ns.len(), 2);
    let burst = &report.back_to_back[0];
    assert_eq!(burst.limits.len(), burst.bursts.len());
    assert!(burst.limits.iter().all(|trial| trial.lost > 0));
}

#[test]
fn loss_that_the_generator_made_is_no_loss_of_the_device_in_a_whole_run_either() {
    let mut model = Model {
        generator_pps: 9e6,
        ..Model::default()
    };
    // 8 Mpps of 14.9 go through; the generator offers 9.
    let report = measure(Measurement::Rfc2544, &mut model, &quick());
    let verdict = &report.verdict;
    assert_eq!(verdict.word, VerdictWord::GeneratorLimited, "{verdict:?}");
    let said = verdict.reasons.join(" ");
    assert!(said.contains("the generator could not"), "{said}");
}
