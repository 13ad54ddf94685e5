//! Loss, bursts and latency (RFC 2544 26.2 to 26.4), whole runs, and what is planned.

use std::time::Duration;

use super::super::model::Model;
use super::super::settings::{Goal, Measurement, Settings};
use super::super::{Estimate, Subjects, run};
use super::{Steps, base, measure, quick, whole_pps};
use crate::report::VerdictWord;
use linerate_appliance::error::Error;

#[test]
fn the_loss_curve_goes_down_until_two_rates_lose_nothing() {
    let mut model = Model::default();
    let settings = Settings {
        loss_trial: Duration::from_secs(60),
        ..quick()
    };
    let report = measure(Measurement::Loss, &mut model, &settings);
    let offered: Vec<f64> = report
        .loss
        .iter()
        .map(|point| point.offered_percent.round())
        .collect();
    // 8.0 of 14.9 Mpps is 53.8 %.
    assert_eq!(offered, [100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0]);
    let losing = report
        .loss
        .iter()
        .filter(|point| point.lost_percent > 0.0)
        .count();
    assert_eq!(losing, 5);
    let wanted = (1.0 - whole_pps(&model, 64, 60.0) / 14_880_952.0) * 100.0;
    assert!((report.loss[0].lost_percent - wanted).abs() < 0.01);
    assert_eq!(report.compliance.label, "RFC2544");
}

#[test]
fn a_demo_offers_what_goes_and_then_half_of_what_came() {
    let (mut model, mut bridge) = (Model::default(), Model::default());
    bridge.frame_ns *= 4.0;
    let settings = Settings {
        sizes: vec![64, 1518],
        ..quick()
    };
    let mut subjects = Subjects {
        device: &mut model,
        baselines: vec![("a bridge".into(), &mut bridge)],
        connections: Vec::new(),
    };
    let kind = Measurement::Demo;
    let mut steps = Steps::default();
    let known = base(&settings, 1e9);
    let report = run(kind, &mut subjects, &settings, known, &mut steps);
    assert_eq!((report.kind.as_str(), report.throughput.len()), ("demo", 2));
    assert_eq!(report.baselines[0].throughput.len(), 2);
    for (full, half) in report.throughput.iter().zip(&report.latency) {
        assert_eq!(full.quoted.received as f64 / full.quoted.seconds, full.pps);
        assert_eq!(half.pps, full.pps / 2.0);
        assert!(half.latency.samples > 0 && half.trial.lost == 0);
    }
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    let planned = Estimate::of(kind, &settings, 1);
    assert_eq!(planned.trials as usize, steps.steps.len());
}

#[test]
fn back_to_back_bursts_find_the_buffer_of_the_model() {
    let mut model = Model::default();
    let settings = Settings {
        trial: Duration::from_secs(60),
        ..quick()
    };
    let report = measure(Measurement::BackToBack, &mut model, &settings);
    let found = &report.back_to_back[0];
    let line = 14_880_952.0;
    let wanted = model.buffer / (1.0 - model.service_pps(64) / line);
    assert!(
        (found.mean / wanted - 1.0).abs() < 0.02,
        "{} {wanted}",
        found.mean
    );
    assert!((found.corrected_buffer_s * line / model.buffer - 1.0).abs() < 0.02);
    assert!(found.min <= found.mean as u64 + 1 && found.mean <= found.max as f64);
    assert_eq!(found.bursts.len(), 3);

    // At 1518 B the device keeps up with the line: there is no longest burst.
    let settings = Settings {
        sizes: vec![1518],
        ..settings
    };
    let report = measure(Measurement::BackToBack, &mut model, &settings);
    assert!(report.back_to_back.is_empty() && report.throughput.len() == 1);
}

#[test]
fn latency_is_measured_at_the_throughput_and_repeats_are_merged() {
    let mut model = Model::default();
    let settings = Settings {
        latency_repeats: 20,
        ..quick()
    };
    let report = measure(Measurement::Latency, &mut model, &settings);
    let loads: Vec<&str> = report.latency.iter().map(|row| row.load.as_str()).collect();
    assert_eq!(
        loads,
        [
            "10% of throughput",
            "50% of throughput",
            "90% of throughput",
            "throughput"
        ]
    );
    let row = &report.latency[3];
    assert_eq!(row.pps, report.throughput[0].pps);
    assert_eq!((row.typical_ns.len(), row.worst_ns.len()), (20, 20));
    let counted: u64 = row.latency.buckets.iter().map(|bucket| bucket.1).sum();
    assert_eq!(
        (row.latency.samples, counted),
        (row.trial.received, row.trial.received)
    );
    assert!(row.latency.p50_ns <= row.latency.p99_ns && row.latency.p99_ns <= row.latency.max_ns);
    assert!((row.pdv_ns - (row.latency.p999_ns - row.latency.min_ns)).abs() < 1e-9);
}

#[test]
fn an_rfc2544_run_has_every_part_for_every_size_and_beside_it_the_baseline() {
    let settings = Settings::quick();
    let mut model = Model::default();
    let mut bridge = Model {
        frame_ns: 1_100.0,
        ..Model::default()
    };
    let mut subjects = Subjects {
        device: &mut model,
        baselines: vec![("Linux bridge".into(), &mut bridge)],
        connections: Vec::new(),
    };
    let mut watch = Steps::default();
    let report = run(
        Measurement::Rfc2544,
        &mut subjects,
        &settings,
        base(&settings, 2e7),
        &mut watch,
    );
    let sizes: Vec<usize> = report
        .throughput
        .iter()
        .map(|row| row.frame_bytes)
        .collect();
    assert_eq!(sizes, settings.sizes);
    assert_eq!(report.latency.len(), 7 * 4);
    assert_eq!(report.recovery.len(), 7);
    assert!(report.loss.len() >= 7 * 2 && !report.back_to_back.is_empty());
    let baseline = &report.baselines[0];
    assert_eq!(
        (baseline.name.as_str(), baseline.throughput.len()),
        ("Linux bridge", 7)
    );
    assert!(baseline.throughput[0].pps < report.throughput[0].pps / 5.0);

    // Progress rises to nearly the end, and what was planned is about what it took.
    let fractions: Vec<f64> = watch.steps.iter().map(|step| step.fraction).collect();
    assert!(fractions.is_sorted() && fractions[0] == 0.0);
    assert!(fractions.last().unwrap() > &0.9, "{:?}", fractions.last());
    assert!(watch.steps.iter().all(|step| !step.phase.is_empty()));
    let took: f64 = watch.steps.iter().map(|step| step.seconds).sum();
    let planned = Estimate::of(Measurement::Rfc2544, &settings, 1).seconds;
    assert!(
        (0.5..2.0).contains(&(took / planned)),
        "{took} s, {planned} s planned"
    );
    assert!(took < 180.0, "{took} s");
}

#[test]
fn quick_runs_are_planned_below_three_minutes() {
    for kind in Measurement::ALL {
        let planned = Estimate::of(kind, &Settings::quick(), 0);
        assert!(
            (5.0..170.0).contains(&planned.seconds),
            "{kind}: {planned:?}"
        );
        Settings::quick().check().unwrap();
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let full = Estimate::of(Measurement::Rfc2544, &Settings::full(), 0);
    assert!(full.seconds > 7.0 * 20.0 * 120.0);
    assert!(full.seconds < 14.0 * 3600.0, "{} h", full.seconds / 3600.0);
}

#[test]
fn waits_are_asked_for_with_each_trial() {
    let mut model = Model::default();
    let settings = Settings {
        sizes: vec![64],
        ..Settings::full()
    };
    measure(Measurement::Throughput, &mut model, &settings);
    let waits = settings.waits;
    assert!(model.asked.iter().all(|load| load.waits == waits));
    assert_eq!(waits.total(), Duration::from_secs(9));
}

#[test]
fn settings_that_end_in_nothing_are_refused() {
    let bad = [
        Settings {
            sizes: Vec::new(),
            ..Settings::quick()
        },
        Settings {
            trial: Duration::ZERO,
            ..Settings::quick()
        },
        Settings {
            width: 0.0,
            ..Settings::quick()
        },
        Settings {
            goals: vec![Goal::csit("all", 1.0)],
            ..Settings::quick()
        },
    ];
    for settings in bad {
        assert!(
            matches!(settings.check(), Err(Error::Usage { .. })),
            "{settings:?}"
        );
    }
}
