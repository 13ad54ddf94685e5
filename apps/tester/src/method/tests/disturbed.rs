//! Disturbed trials: stolen time, noise, an early end.

use std::time::Duration;

use super::super::model::Model;
use super::super::settings::{Measurement, Settings};
use super::super::{Subjects, run};
use super::{Steps, base, measure, quick, whole_pps};
use crate::report::VerdictWord;
use linerate_appliance::error::Error;

#[test]
fn stolen_time_is_tried_again_and_said_when_it_stays() {
    let now_and_then = Model {
        stolen_chance: 0.2,
        stolen_s: 0.01,
        seed: 3,
        ..Model::default()
    };
    let report = measure(Measurement::Throughput, &mut now_and_then.clone(), &quick());
    let row = &report.throughput[0];
    let share = row.pps / whole_pps(&now_and_then, 64, 1.0);
    assert!((0.98..=1.0).contains(&share), "{share}");
    assert!(row.trials.iter().any(|trial| trial.invalid.is_some()));
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    assert!(
        report.verdict.reasons[0].contains("were disturbed"),
        "{:?}",
        report.verdict
    );

    let always = Model {
        stolen_chance: 1.0,
        ..now_and_then
    };
    let report = measure(Measurement::Throughput, &mut always.clone(), &quick());
    assert_eq!(
        report.verdict.word,
        VerdictWord::SharedMachine,
        "{:?}",
        report.verdict
    );
    assert_eq!(report.verdict.word.exit_code(), 4);
    // Three attempts at each rate, no more.
    let trials = &report.throughput[0].trials;
    let runs = trials
        .chunk_by(|a, b| a.asked_pps == b.asked_pps)
        .map(<[_]>::len);
    assert!(
        runs.clone().all(|run| run % 3 == 0),
        "{:?}",
        runs.collect::<Vec<_>>()
    );
}

#[test]
fn trials_that_stay_disturbed_draw_no_bound() {
    // Half of all attempts are disturbed, without repeats: certain bounds are still right.
    for kind in [Measurement::Throughput, Measurement::Ndr] {
        for seed in 0..10 {
            let mut model = Model {
                stolen_chance: 0.5,
                stolen_s: 0.01,
                seed,
                ..Model::default()
            };
            let settings = Settings {
                attempts: 1,
                repeats: 1,
                ..quick()
            };
            let report = measure(kind, &mut model, &settings);
            for row in &report.throughput {
                let service = model.service_pps(64);
                assert!(row.pps <= whole_pps(&model, 64, 1.0) * 1.006, "{seed}");
                let upper = row.upper_pps.unwrap_or(f64::MAX);
                assert!(upper >= service, "{kind} {seed}: {upper} of {service}");
                let decided = row.regular && upper - row.pps <= upper * settings.width;
                let word = report.verdict.word;
                assert!(
                    decided || word >= VerdictWord::SharedMachine,
                    "{kind}, {seed}: {word:?}"
                );
            }
        }
    }
}

#[test]
fn a_size_that_has_had_its_time_ends_with_what_it_knows_and_says_so() {
    for kind in [
        Measurement::Throughput,
        Measurement::Rfc2544,
        Measurement::Ndr,
    ] {
        let mut model = Model {
            stolen_chance: 0.4,
            stolen_s: 0.01,
            ..Model::default()
        };
        let settings = Settings {
            sizes: vec![64, 128],
            width: 0.0005,
            repeats: 20,
            ndr_repeats: 20,
            burst_repeats: 50,
            size_limit: Some(Duration::from_secs(8)),
            ..quick()
        };
        let mut watch = Steps::default();
        let mut subjects = Subjects {
            device: &mut model,
            baselines: Vec::new(),
            connections: Vec::new(),
        };
        let report = base(&settings, 2e7);
        let report = run(kind, &mut subjects, &settings, report, &mut watch);
        let took: f64 = watch.steps.iter().map(|step| step.seconds).sum();
        assert!(took < 2.0 * 20.0, "{kind}: {took}");
        assert!(report.throughput.iter().all(|row| row.pps > 0.0));
        let said = report.compliance.departures.join(" ");
        assert!(said.contains("At 2 of 2 frame sizes"), "{said}");
    }
}

#[test]
fn results_that_differ_are_noisy() {
    for (jitter, wanted) in [(0.001, VerdictWord::Valid), (0.2, VerdictWord::Noisy)] {
        let mut model = Model {
            jitter,
            seed: 11,
            ..Model::default()
        };
        let settings = Settings {
            repeats: 8,
            ..quick()
        };
        let report = measure(Measurement::Throughput, &mut model, &settings);
        assert_eq!(
            report.verdict.word, wanted,
            "{jitter}: {:?}",
            report.verdict
        );
    }
}

#[test]
fn an_end_at_any_trial_leaves_what_was_measured() {
    let settings = quick();
    let whole = measure(Measurement::Rfc2544, &mut Model::default(), &settings);
    let mut model = Model::default();
    measure(Measurement::Rfc2544, &mut model, &settings);
    for after in 0..model.trials {
        let mut model = Model {
            fails: Some((after, || Error::Interrupted)),
            ..Model::default()
        };
        let report = measure(Measurement::Rfc2544, &mut model, &settings);
        assert!(report.interrupted && report.failure.is_none());
        assert!(report.throughput.len() <= 1 && report.loss.len() <= whole.loss.len());
        if let Some(row) = report.throughput.first() {
            assert!(row.repeats.len() <= 3 && row.pps > 0.0);
        } else {
            assert_eq!(report.verdict.word, VerdictWord::Failed);
        }
        assert!(
            report
                .verdict
                .reasons
                .iter()
                .any(|reason| reason.contains("interrupted"))
        );
    }
    let gone = || Error::Usage {
        problem: "port 1 (veth1) vanished".into(),
        fix: String::new(),
    };
    let mut model = Model {
        fails: Some((40, gone)),
        ..Model::default()
    };
    let report = measure(Measurement::Rfc2544, &mut model, &settings);
    assert_eq!(report.verdict.word, VerdictWord::Failed);
    assert!(
        report.verdict.reasons[0].contains("veth1) vanished"),
        "{:?}",
        report.verdict
    );
}

#[test]
fn a_soak_shows_every_loss_and_does_not_run_disturbed_slices_again() {
    let mut model = Model {
        stolen_chance: 0.1,
        stolen_s: 0.01,
        seed: 5,
        ..Model::default()
    };
    let settings = Settings {
        soak_pps: Some(5e6),
        ..quick()
    };
    let report = measure(Measurement::Soak, &mut model, &settings);
    let soak = report.soak.unwrap();
    assert_eq!((soak.points.len(), model.trials), (30, 30));
    assert_eq!(
        soak.trial.lost,
        soak.points.iter().map(|point| point.1).sum::<u64>()
    );
    assert!(soak.trial.lost > 0);
    assert_eq!(report.verdict.word, VerdictWord::SharedMachine);
    assert!((soak.points[29].0 - 30.0).abs() < 1e-6);
}
