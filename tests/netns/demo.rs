//! `linerate demo` as a user without any privilege, and without huge pages.

use linerate_testkit::Scratch;
use linerate_testkit::cli::{binary, public_binary};
use linerate_testkit::{harness::Test, tests};
use serde_json::Value;
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: about 15 s of the machine's full speed"]
    without_a_lossless_load_there_is_no_throughput,
];

/// As root, the user nobody runs it; otherwise the current user.
fn without_a_lossless_load_there_is_no_throughput() {
    let scratch = Scratch::new();
    let mut command = Command::new(binary());
    if rustix::process::geteuid().is_root() {
        let public = public_binary(&scratch);
        command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--bounding-set=-all",
            ])
            .arg(public);
    }
    let output = command
        .args(["demo", "--json"])
        .current_dir("/")
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stderr}{stdout}");
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let (full, half) = (&report["throughput"], &report["latency"]);
    let rows = full.as_array().unwrap().iter();
    let rows: Vec<_> = rows.zip(half.as_array().unwrap()).collect();
    let sizes = rows
        .iter()
        .map(|(full, _)| full["frame_bytes"].as_u64().unwrap());
    assert!(sizes.eq([64, 128, 256, 512, 1024, 1280, 1518]));
    for (full, half) in rows {
        for trial in [&full["quoted"], &half["trial"]] {
            let sent = trial["sent"].as_u64().unwrap();
            assert!(sent > 1000 && trial["sent"] == trial["received"], "{trial}");
        }
        let is_there = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
        for key in [
            "pps",
            "l2_bps",
            "l1_bps",
            "ticks_per_packet",
            "ns_per_packet",
        ] {
            assert!(is_there(&full[key]), "{key} in {full}");
        }
        for key in ["p50_ns", "p99_ns", "p999_ns"] {
            assert!(is_there(&half["latency"][key]), "{key} in {half}");
        }
    }
    assert!(report["machine"].is_object(), "{report}");
}
