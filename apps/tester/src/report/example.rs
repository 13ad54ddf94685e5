//! Reports for tests, by the real methods on models of devices.

use std::time::Duration;

use super::{Check, Connections, Device, Report, Scaling, SelfTest};
use crate::method::model::Model;
use crate::method::{Load, Measurement, Settings, Silent, Subjects, Tester, run};

/// All that is known before a run.
fn base(settings: &Settings, wire: bool) -> Report {
    let mut alone = Model {
        frame_ns: 30.0,
        link_bps: wire.then_some(10e9),
        ..Model::default()
    };
    let mut self_test = |&frame_bytes: &usize| {
        let load = Load {
            frame_bytes,
            pps: Some(1e6),
            duration: Duration::from_secs(1),
            ..Load::default()
        };
        SelfTest {
            stand_in: None,
            frame_bytes,
            max_pps: alone.line_pps(frame_bytes).unwrap_or(2.6e7).min(2.6e7),
            clock_error_ppm: 0.31,
            pacing_error_p99_ns: 640.0,
            latency: alone
                .trial(&load)
                .map(|outcome| outcome.latency)
                .unwrap_or_default(),
        }
    };
    let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
    Report {
        began: "2026-11-21T15:00:00Z".into(),
        seconds: 148.2,
        self_test: settings.sizes.iter().map(&mut self_test).collect(),
        machine: serde_json::json!({
            "cpu_model": "AMD EPYC 7B13", "isa": "x86-64-v3", "cpus": 2, "cores": 1, "packages": 1,
            "nodes": 1,
            "usable_cpus": [0, 1], "clock": "TSC at 2596.1 MHz", "clock_mhz": 2596.1,
            "clock_error_ppm": 0.31,
            "kernel": "6.18.44", "memory_bytes": 8_589_934_592_u64, "hypervisor": "KVM",
            "stolen_share": 0.004,
            "huge_pages": [{"page_bytes": 2_097_152, "total": 0, "free": 0}],
            "host_stolen_share": null,
        }),
        path: vec![
            pair("backend", "memory rings, in one process"),
            pair("queues", "1 receive, 1 transmit on each port"),
            pair("ring size", "1024"),
            pair("burst", "32"),
            pair("offloads", "none"),
            pair("MTU", "1500"),
        ],
        preflight: vec![
            Check {
                what: "clock is invariant".into(),
                well: true,
                seen: "TSC, 0.31 ppm off CLOCK_MONOTONIC_RAW".into(),
            },
            Check {
                what: "every lcore has a CPU of its own".into(),
                well: false,
                seen: "3 lcores on 2 CPUs".into(),
            },
        ],
        device: Device {
            name: "linerate l2fwd".into(),
            settings: vec![pair("ports", "ring:a, ring:b"), pair("mac update", "yes")],
            cores: 1,
            link_bps: wire.then_some(10e9),
            directions: 2,
        },
        tester: Some("Example Labs, J. Doe".into()),
        note: Some("Firmware 4.2, rack 7; prices are per device".into()),
        command: "linerate bench rfc2544 --quick --device l2fwd --html report.html".into(),
        seed: 42,
        ..Report::default()
    }
}

fn model(seed: u64) -> Model {
    Model {
        jitter: 0.006,
        seed,
        ..Model::default()
    }
}

/// RFC 2544 beside a slower baseline.
pub(crate) fn rfc2544(seed: u64) -> Report {
    let settings = Settings {
        repeats: 5,
        ..Settings::quick()
    };
    let mut device = model(seed);
    let mut bridge = Model {
        frame_ns: 690.0,
        jitter: 0.02,
        seed: seed + 1,
        ..Model::default()
    };
    let mut subjects = Subjects {
        device: &mut device,
        baselines: vec![("Linux bridge".into(), &mut bridge)],
        connections: Vec::new(),
    };
    let report = base(&settings, true);
    let mut report = run(
        Measurement::Rfc2544,
        &mut subjects,
        &settings,
        report,
        &mut Silent,
    );
    let scaling = |(cores, pps)| Scaling {
        cores,
        frame_bytes: 64,
        pps,
    };
    report.profiles = [
        "gateway, dispatcher, 1000 rules",
        "gateway, balanced, 25 rules",
    ]
    .map(super::profile::tests::dispatcher)
    .to_vec();
    report.connections = vec![Connections {
        subject: "gateway, dispatcher, 1000 rules".into(),
        connections: 200_000,
        set_up_pps: 780_469.0,
        set_up_upper_pps: Some(790_000.0),
        torn_down_pps: 4.1e6,
        capacity: 261_120,
        capacity_upper: Some(263_000),
        trials: 24,
    }];
    report.scaling = [(1, 8.0e6), (2, 15.6e6), (4, 29.4e6)].map(scaling).to_vec();
    report
}

/// Anything else, without a wire.
pub(crate) fn of(kind: Measurement, seed: u64) -> Report {
    let settings = Settings::quick();
    let mut device = Model {
        link_bps: None,
        generator_pps: 2.6e7,
        stolen_chance: if kind == Measurement::Soak { 0.1 } else { 0.0 },
        stolen_s: 0.02,
        ..model(seed)
    };
    let mut subjects = Subjects {
        device: &mut device,
        baselines: Vec::new(),
        connections: Vec::new(),
    };
    run(
        kind,
        &mut subjects,
        &settings,
        base(&settings, false),
        &mut Silent,
    )
}
