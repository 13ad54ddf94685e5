//! MLRsearch: several goals from one search.

use std::time::Duration;

use super::super::model::Model;
use super::super::settings::{Goal, Measurement, Settings};
use super::{measure, quick};
use crate::report::VerdictWord;

#[test]
fn ndr_and_pdr_come_from_one_search() {
    let mut model = Model {
        jitter: 0.002,
        ..Model::default()
    };
    let settings = Settings {
        sizes: vec![64],
        waits: Default::default(),
        goals: vec![Goal::csit("NDR", 0.0), Goal::csit("PDR", 0.005)],
        latency_repeats: 1,
        latency_trial: Duration::from_secs(1),
        ..Settings::full()
    };
    let report = measure(Measurement::Ndr, &mut model, &settings);
    let (ndr, pdr) = (&report.throughput[0], &report.throughput[1]);
    assert_eq!((ndr.goal.as_str(), pdr.goal.as_str()), ("NDR", "PDR"));
    let service = model.service_pps(64);
    assert!(
        (0.985..=1.005).contains(&(ndr.pps / service)),
        "{}",
        ndr.pps / service
    );
    assert!(
        (0.99..=1.015).contains(&(pdr.pps / service)),
        "{}",
        pdr.pps / service
    );
    for row in [ndr, pdr] {
        assert!(row.regular && row.pps < row.upper_pps.unwrap());
        assert!((row.upper_pps.unwrap() - row.pps) / row.upper_pps.unwrap() <= 0.005);
        assert!(row.conditional_pps >= row.pps * (1.0 - row.loss_ratio));
        assert!(row.quoted.lost as f64 <= row.quoted.intended as f64 * row.loss_ratio);
        assert_eq!(row.quoted.seconds, 1.0);
    }
    assert_eq!(report.compliance.label, "NDR-1s, PDR-0.5%-1s");
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    assert_eq!(report.goals[1].exceed_ratio, 0.5);
    let loads: Vec<&str> = report.latency.iter().map(|row| row.load.as_str()).collect();
    assert_eq!(loads, ["10% of PDR", "50% of PDR", "90% of PDR"]);
    // One bound each needs 11 of 21 trials; the coarser targets are cheaper.
    assert!(ndr.trials.len() < 120, "{}", ndr.trials.len());
}

#[test]
fn the_rfc2544_goal_of_mlrsearch_agrees_with_the_binary_search() {
    let mut model = Model::default();
    let settings = Settings {
        sizes: vec![512],
        goals: vec![Goal::csit("NDR", 0.0), Goal::rfc2544()],
        latency_shares: Vec::new(),
        ..Settings::full()
    };
    let report = measure(Measurement::Ndr, &mut model.clone(), &settings);
    let goal = &report.throughput[1];
    let row = &measure(Measurement::Throughput, &mut model, &settings).throughput[0];
    assert!(
        (goal.pps / row.pps - 1.0).abs() <= 0.01,
        "{} {}",
        goal.pps,
        row.pps
    );
    assert_eq!(goal.quoted.seconds, 60.0);
    assert_eq!(report.compliance.label, "NDR-1s, RFC2544");
    // A single short loss is enough to give a load up: few trials are long.
    let long = goal
        .trials
        .iter()
        .filter(|trial| trial.seconds == 60.0)
        .count();
    assert!(long <= 4, "{long}");
}

#[test]
fn mlrsearch_has_an_irregular_result_at_the_line_rate_and_none_without_a_device() {
    let mut model = Model {
        frame_ns: 1.0,
        ..Model::default()
    };
    let settings = quick();
    let report = measure(Measurement::Ndr, &mut model, &settings);
    let row = &report.throughput[0];
    assert!(row.upper_pps.is_none() && !row.regular);
    assert_eq!(row.pps, 14_880_952.0);
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    let mut dead = Model {
        frame_ns: 1e12,
        buffer: 0.0,
        ..Model::default()
    };
    let report = measure(Measurement::Ndr, &mut dead, &settings);
    assert_eq!(report.throughput[0].pps, 0.0);
    assert_eq!(report.verdict.word, VerdictWord::Failed);
}

#[test]
fn mlrsearch_ends_whatever_the_noise() {
    for seed in 0..20 {
        let mut model = Model {
            jitter: 0.3,
            stolen_chance: 0.3,
            stolen_s: 0.05,
            marked: false,
            seed,
            ..Model::default()
        };
        let report = measure(Measurement::Ndr, &mut model, &quick());
        let trials = report.throughput[0].trials.len();
        assert!(trials < 400, "seed {seed}: {trials}");
    }
}
