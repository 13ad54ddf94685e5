//! Throughput by binary search (RFC 2544 26.1), and what it may be called.

use super::super::model::Model;
use super::super::settings::{Measurement, Settings};
use super::{base, measure, measure_from, quick, whole_pps};
use crate::report::{Report, VerdictWord};

#[test]
fn throughput_is_what_the_model_serves_within_the_width() {
    for frame_ns in [80.0, 115.0, 300.0, 2_000.0, 50_000.0] {
        let mut model = Model {
            frame_ns,
            ..Model::default()
        };
        let settings = quick();
        let report = measure(Measurement::Throughput, &mut model, &settings);
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
    let report = measure(Measurement::Throughput, &mut model, &settings);
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
    let report = measure(Measurement::Throughput, &mut model, &settings);
    assert_eq!(report.compliance.label, "RFC2544");
    assert!(
        report
            .throughput
            .iter()
            .all(|row| row.quoted.seconds == 60.0)
    );
    // Short trials pass at higher rates because of the buffer; the quoted rate is that of the long
    // ones.
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

    // A rate limited by the user is not a throughput, and the report says so.
    let settings = Settings {
        max_pps: Some(1e5),
        ..settings
    };
    let bounded = measure(Measurement::Throughput, &mut model, &settings);
    let departures = bounded.compliance.departures.join(" ");
    assert!(departures.contains("No more than 0.1 Mpps"), "{departures}");
    assert!(!said("No more than"));

    let quick = measure(Measurement::Throughput, &mut model, &quick());
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
    let report = measure(Measurement::Throughput, &mut model, &settings);
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
    let report = measure(Measurement::Throughput, &mut model, &quick());
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
    let report = measure(Measurement::Rfc2544, &mut dead.clone(), &quick());
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
    let report = measure(Measurement::Throughput, &mut lossy, &quick());
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
    let report = measure(Measurement::Throughput, &mut model, &settings);
    assert_eq!(
        report.verdict.word,
        VerdictWord::GeneratorLimited,
        "{:?}",
        report.verdict
    );
    assert!((report.throughput[0].pps - 3e6).abs() <= 3e6 * settings.width);

    // It hides unsent frames, also from the self-test.
    let mut model = Model {
        generator_pps: 3e6,
        silent: true,
        ..Model::default()
    };
    let report = measure_from(
        Report::default(),
        Measurement::Throughput,
        &mut model,
        &settings,
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
    let report = measure_from(
        Report::default(),
        Measurement::Throughput,
        &mut model,
        &settings,
    );
    assert!(
        report.verdict.reasons[0].contains("could not send"),
        "{:?}",
        report.verdict
    );
}

#[test]
fn what_the_device_refuses_is_not_the_generators_fault() {
    // A full ring refuses frames: they are unsent, not lost, though the generator is fast enough.
    let refused = |generator_pps| {
        let mut model = Model {
            link_bps: None,
            generator_pps: 3e6,
            ..Model::default()
        };
        let settings = quick();
        let known = base(&settings, generator_pps);
        measure_from(known, Measurement::Rfc2544, &mut model, &settings)
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
fn without_a_link_speed_loads_are_relative_to_the_generators_maximum() {
    let mut model = Model {
        link_bps: None,
        generator_pps: 1.2e7,
        ..Model::default()
    };
    let report = measure(Measurement::Rfc2544, &mut model, &quick());
    let row = &report.throughput[0];
    assert_eq!(row.line_pps, None);
    assert!((row.pps / model.service_pps(64) - 1.0).abs() < 0.02);
    assert_eq!(report.loss[0].offered_pps, 1.2e7);
    assert!(!report.back_to_back.is_empty());
}
