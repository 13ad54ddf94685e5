//! The methods on models of devices: what is found is what the model has.

use std::time::Duration;

use super::model::Model;
use super::settings::{Goal, Kind, Settings};
use super::{Estimate, Progress, Silent, Step, Subjects, run};
use crate::error::Error;
use crate::report::bench::{Device, Report, SelfTest, VerdictWord};

/// What is known before a run, as of a generator that does `generator_pps` at every size.
fn base(settings: &Settings, generator_pps: f64) -> Report {
    let test = |&frame_bytes| SelfTest {
        frame_bytes,
        max_pps: generator_pps,
        ..SelfTest::default()
    };
    Report {
        self_test: settings.sizes.iter().map(test).collect(),
        device: Device {
            link_bps: Some(10e9),
            directions: 2,
            ..Device::default()
        },
        ..Report::default()
    }
}

fn measure(kind: Kind, model: &mut Model, settings: &Settings) -> Report {
    let report = base(settings, model.generator_pps);
    let mut subjects = Subjects {
        device: model,
        baselines: Vec::new(),
    };
    run(kind, &mut subjects, settings, report, &mut Silent)
}

fn quick() -> Settings {
    Settings {
        sizes: vec![64],
        // What is found is to be seen, not when time is up.
        size_limit: None,
        ..Settings::quick()
    }
}

/// What a queue of `buffer` frames lets through whole in so many seconds.
fn whole_pps(model: &Model, frame_bytes: usize, seconds: f64) -> f64 {
    model.service_pps(frame_bytes) + model.buffer / seconds
}

#[test]
fn throughput_is_what_the_model_serves_within_the_width() {
    for frame_ns in [80.0, 115.0, 300.0, 2_000.0, 50_000.0] {
        let mut model = Model {
            frame_ns,
            ..Model::default()
        };
        let settings = quick();
        let report = measure(Kind::Throughput, &mut model, &settings);
        let row = &report.throughput[0];
        let wanted = whole_pps(&model, 64, 1.0);
        let share = row.pps / wanted;
        assert!(
            (1.0 - settings.width..=1.0).contains(&share),
            "{frame_ns}: {share}"
        );
        assert!(row.upper_pps.unwrap() > row.pps && row.lower_pps == row.pps);
        assert_eq!((row.quoted.seconds, row.quoted.lost), (1.0, 0));
        assert_eq!(row.repeats.len(), 3);
        assert_eq!(
            report.verdict.word,
            VerdictWord::Valid,
            "{:?}",
            report.verdict
        );
        assert_eq!(report.compliance.label, "NDR-1s");
        assert!(row.trials.len() < 60, "{}", row.trials.len());
    }
}

#[test]
fn the_line_rate_comes_first_and_ends_the_search_where_it_passes() {
    let mut model = Model {
        frame_ns: 1.0,
        ..Model::default()
    };
    let settings = Settings {
        repeats: 1,
        ..quick()
    };
    let report = measure(Kind::Throughput, &mut model, &settings);
    let row = &report.throughput[0];
    assert_eq!(row.pps.round(), 14_880_952.0);
    assert_eq!((row.upper_pps, row.trials.len()), (None, 2));
    assert_eq!(row.quoted.seconds, 1.0);
    // The wire is the limit, not the generator.
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
}

#[test]
fn only_full_length_trials_without_loss_are_called_rfc2544() {
    let mut model = Model::default();
    let settings = Settings {
        sizes: vec![64, 1518],
        ..Settings::full()
    };
    let report = measure(Kind::Throughput, &mut model, &settings);
    assert_eq!(report.compliance.label, "RFC2544");
    assert!(
        report
            .throughput
            .iter()
            .all(|row| row.quoted.seconds == 60.0)
    );
    // The short trials let more through, thanks to the buffer; the quoted rate is that of the long ones.
    let wanted = whole_pps(&model, 64, 60.0);
    assert!(report.throughput[0].pps <= wanted);
    let said = |what: &str| {
        report
            .compliance
            .departures
            .iter()
            .any(|text| text.contains(what))
    };
    assert!(
        said("Not all seven") && !said("section 24"),
        "{:?}",
        report.compliance
    );

    // A rate that the user limits is no throughput, and the report says so.
    let settings = Settings {
        max_pps: Some(1e5),
        ..settings
    };
    let bounded = measure(Kind::Throughput, &mut model, &settings);
    let departures = bounded.compliance.departures.join(" ");
    assert!(departures.contains("No more than 0.1 Mpps"), "{departures}");
    assert!(!said("No more than"));

    let quick = measure(Kind::Throughput, &mut model, &quick());
    let said = |what: &str| {
        quick
            .compliance
            .departures
            .iter()
            .any(|text| text.contains(what))
    };
    assert!(said("section 24") && said("learning frames") && said("settle"));
}

#[test]
fn loss_that_only_long_trials_show_lowers_the_result() {
    let mut model = Model {
        buffer: 2e6,
        ..Model::default()
    };
    let settings = Settings {
        repeats: 1,
        ..quick()
    };
    let report = measure(Kind::Throughput, &mut model, &settings);
    let row = &report.throughput[0];
    // In 0.25 s the buffer hides 8 Mpps of overload; in 1 s only 2.
    let share = row.pps / whole_pps(&model, 64, 1.0);
    assert!((0.99..=1.0).contains(&share), "{share}");
    assert_eq!(row.quoted.seconds, 1.0);
}

#[test]
fn a_device_that_collapses_under_overload_is_found_from_below() {
    let mut model = Model {
        collapse: 0.05,
        ..Model::default()
    };
    let report = measure(Kind::Throughput, &mut model, &quick());
    let share = report.throughput[0].pps / model.service_pps(64);
    assert!((0.98..=1.01).contains(&share), "{share}");
}

#[test]
fn a_device_that_passes_nothing_fails_and_one_that_always_loses_has_no_throughput() {
    let dead = Model {
        frame_ns: 1e12,
        buffer: 0.0,
        ..Model::default()
    };
    let report = measure(Kind::Rfc2544, &mut dead.clone(), &quick());
    assert_eq!(report.verdict.word, VerdictWord::Failed);
    assert!(
        report.verdict.reasons[0].contains("nothing came through"),
        "{:?}",
        report.verdict
    );
    let mut lossy = Model {
        buffer: 0.0,
        stolen_chance: 1.0,
        stolen_s: 0.001,
        marked: false,
        ..Model::default()
    };
    let report = measure(Kind::Throughput, &mut lossy, &quick());
    assert_eq!(report.throughput[0].pps, 0.0);
    assert!(
        report.verdict.reasons[0].contains("lost at every rate"),
        "{:?}",
        report.verdict
    );
    assert!(report.throughput[0].quoted.received > 0);
}

#[test]
fn the_generators_limit_is_not_called_the_devices() {
    // It says what it could not send.
    let mut model = Model {
        generator_pps: 3e6,
        ..Model::default()
    };
    let settings = quick();
    let report = measure(Kind::Throughput, &mut model, &settings);
    assert_eq!(
        report.verdict.word,
        VerdictWord::GeneratorLimited,
        "{:?}",
        report.verdict
    );
    assert!((report.throughput[0].pps - 3e6).abs() <= 3e6 * settings.width);

    // It does not, and the self-test was not told either.
    let mut model = Model {
        generator_pps: 3e6,
        silent: true,
        ..Model::default()
    };
    let mut subjects = Subjects {
        device: &mut model,
        baselines: Vec::new(),
    };
    let report = run(
        Kind::Throughput,
        &mut subjects,
        &settings,
        Report::default(),
        &mut Silent,
    );
    assert_eq!(
        report.verdict.word,
        VerdictWord::GeneratorLimited,
        "{:?}",
        report.verdict
    );

    // Unsent frames end a search without a self-test as well.
    let mut model = Model {
        generator_pps: 3e6,
        ..Model::default()
    };
    let mut subjects = Subjects {
        device: &mut model,
        baselines: Vec::new(),
    };
    let report = run(
        Kind::Throughput,
        &mut subjects,
        &settings,
        Report::default(),
        &mut Silent,
    );
    assert!(
        report.verdict.reasons[0].contains("could not send"),
        "{:?}",
        report.verdict
    );
}

#[test]
fn what_the_device_refuses_is_not_the_generators_fault() {
    // A ring that is full refuses frames: they are unsent, not lost, though the generator could.
    let refused = |generator_pps| {
        let mut model = Model {
            link_bps: None,
            generator_pps: 3e6,
            ..Model::default()
        };
        let settings = quick();
        let mut subjects = Subjects {
            device: &mut model,
            baselines: Vec::new(),
        };
        let report = base(&settings, generator_pps);
        run(Kind::Rfc2544, &mut subjects, &settings, report, &mut Silent)
    };
    let report = refused(2e7);
    assert_eq!(
        report.verdict.word,
        VerdictWord::Valid,
        "{:?}",
        report.verdict
    );
    let said = &report.verdict.reasons;
    assert!(
        said.iter().any(|reason| reason.contains("took no more")),
        "{said:?}"
    );
    assert_eq!(refused(3e6).verdict.word, VerdictWord::GeneratorLimited);
}

#[test]
fn stolen_time_is_tried_again_and_said_when_it_stays() {
    let now_and_then = Model {
        stolen_chance: 0.2,
        stolen_s: 0.01,
        seed: 3,
        ..Model::default()
    };
    let report = measure(Kind::Throughput, &mut now_and_then.clone(), &quick());
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
    let report = measure(Kind::Throughput, &mut always.clone(), &quick());
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
    // Half of all attempts are disturbed and there is but one: what is certain is still true.
    for kind in [Kind::Throughput, Kind::Ndr] {
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
    for kind in [Kind::Throughput, Kind::Rfc2544, Kind::Ndr] {
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
        let mut watch = Watch::default();
        let mut subjects = Subjects {
            device: &mut model,
            baselines: Vec::new(),
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
        let report = measure(Kind::Throughput, &mut model, &settings);
        assert_eq!(
            report.verdict.word, wanted,
            "{jitter}: {:?}",
            report.verdict
        );
    }
}

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
    let report = measure(Kind::Ndr, &mut model, &settings);
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
    // One bound each needs 11 of 21 trials; the way there is cheaper.
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
    let report = measure(Kind::Ndr, &mut model.clone(), &settings);
    let goal = &report.throughput[1];
    let row = &measure(Kind::Throughput, &mut model, &settings).throughput[0];
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
    let report = measure(Kind::Ndr, &mut model, &settings);
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
    let report = measure(Kind::Ndr, &mut dead, &settings);
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
        let report = measure(Kind::Ndr, &mut model, &quick());
        let trials = report.throughput[0].trials.len();
        assert!(trials < 400, "seed {seed}: {trials}");
    }
}

#[test]
fn the_loss_curve_goes_down_until_two_rates_lose_nothing() {
    let mut model = Model::default();
    let settings = Settings {
        loss_trial: Duration::from_secs(60),
        ..quick()
    };
    let report = measure(Kind::Loss, &mut model, &settings);
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
fn bursts_tell_the_models_buffer() {
    let mut model = Model::default();
    let settings = Settings {
        trial: Duration::from_secs(60),
        ..quick()
    };
    let report = measure(Kind::BackToBack, &mut model, &settings);
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
    let report = measure(Kind::BackToBack, &mut model, &settings);
    assert!(report.back_to_back.is_empty() && report.throughput.len() == 1);
}

#[test]
fn latency_is_measured_at_the_throughput_and_repeats_are_merged() {
    let mut model = Model::default();
    let settings = Settings {
        latency_repeats: 20,
        ..quick()
    };
    let report = measure(Kind::Latency, &mut model, &settings);
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
    };
    let mut watch = Watch::default();
    let report = run(
        Kind::Rfc2544,
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
    let planned = Estimate::of(Kind::Rfc2544, &settings, 1).seconds;
    assert!(
        (0.5..2.0).contains(&(took / planned)),
        "{took} s, {planned} s planned"
    );
    assert!(took < 180.0, "{took} s");
}

#[derive(Default)]
struct Watch {
    steps: Vec<Step>,
}

impl Progress for Watch {
    fn begins(&mut self, step: &Step) {
        self.steps.push(step.clone());
    }
}

#[test]
fn quick_runs_are_planned_below_three_minutes() {
    for kind in Kind::ALL {
        let planned = Estimate::of(kind, &Settings::quick(), 0);
        assert!(
            (5.0..170.0).contains(&planned.seconds),
            "{kind}: {planned:?}"
        );
        Settings::quick().check().unwrap();
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let full = Estimate::of(Kind::Rfc2544, &Settings::full(), 0);
    assert!(full.seconds > 7.0 * 20.0 * 120.0);
}

#[test]
fn an_end_at_any_trial_leaves_what_was_measured() {
    let settings = quick();
    let whole = measure(Kind::Rfc2544, &mut Model::default(), &settings);
    let mut model = Model::default();
    measure(Kind::Rfc2544, &mut model, &settings);
    for after in 0..model.trials {
        let mut model = Model {
            fails: Some((after, || Error::Interrupted)),
            ..Model::default()
        };
        let report = measure(Kind::Rfc2544, &mut model, &settings);
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
    let report = measure(Kind::Rfc2544, &mut model, &settings);
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
    let report = measure(Kind::Soak, &mut model, &settings);
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

#[test]
fn without_a_wire_the_generators_most_is_all() {
    let mut model = Model {
        link_bps: None,
        generator_pps: 1.2e7,
        ..Model::default()
    };
    let report = measure(Kind::Rfc2544, &mut model, &quick());
    let row = &report.throughput[0];
    assert_eq!(row.line_pps, None);
    assert!((row.pps / model.service_pps(64) - 1.0).abs() < 0.02);
    assert_eq!(report.loss[0].offered_pps, 1.2e7);
    assert!(!report.back_to_back.is_empty());
}

#[test]
fn waits_are_asked_for_with_each_trial() {
    let mut model = Model::default();
    let settings = Settings {
        sizes: vec![64],
        ..Settings::full()
    };
    measure(Kind::Throughput, &mut model, &settings);
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
